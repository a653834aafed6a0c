package rpc

import (
	"context"
	"errors"
	"io"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Invoke stands for the Invoke of a connection in stubs.
func Invoke(cc grpc.ClientConnInterface, ctx context.Context, m *Method, name string, in, out any, opts ...grpc.CallOption) error {
	if !m.enabled() {
		return cc.Invoke(ctx, name, in, out, opts...)
	}
	call, ctx := beginClient(ctx, m)
	// A panic of an interceptor goes on its way, and the call is over.
	defer call.end(errDropped, raised)
	call.message(in, true, true)
	call.hook(BeforeReplyWait)
	err := cc.Invoke(ctx, name, in, out, opts...)
	call.hook(AfterReplyWait)
	if err == nil {
		call.message(out, false, false)
	}
	call.end(err, finished)
	return err
}

var errDropped = status.Error(codes.Unknown, "the call was left")

// NewStream stands for the NewStream of a connection in stubs.
func NewStream(cc grpc.ClientConnInterface, ctx context.Context, m *Method, desc *grpc.StreamDesc, name string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	if !m.enabled() {
		return cc.NewStream(ctx, desc, name, opts...)
	}
	call, ctx := beginClient(ctx, m)
	// gRPC calls this once, when the stream is over: read to its end, failed, cancelled, or cut off.
	opts = append(opts[:len(opts):len(opts)], grpc.OnFinish(call.finished))
	stream, err := cc.NewStream(ctx, desc, name, opts...)
	if err != nil {
		call.end(err, finished)
		return nil, err
	}
	return &clientStream{stream, call}, nil
}

func (c *Call) finished(err error) {
	c.finish.Store(&err)
	if c.receiving.Load() == 0 {
		c.end(err, finished)
	}
}

type clientStream struct {
	grpc.ClientStream
	call *Call
}

func (s *clientStream) SendMsg(m any) error {
	s.call.hook(BeforeMarshal)
	err := s.ClientStream.SendMsg(m)
	s.call.hook(AfterMarshal)
	if err == nil {
		s.call.message(m, true, true)
	}
	return err
}

func (s *clientStream) RecvMsg(m any) error {
	s.call.receiving.Add(1)
	s.call.hook(BeforeReplyWait)
	s.call.hook(BeforeUnmarshal)
	err := s.ClientStream.RecvMsg(m)
	s.call.hook(AfterUnmarshal)
	s.call.hook(AfterReplyWait)
	if err == nil {
		s.call.message(m, false, false)
	}
	s.call.receiving.Add(-1)
	switch over := s.call.finish.Load(); {
	case over != nil:
		s.call.end(*over, finished)
	case errors.Is(err, io.EOF):
		s.call.end(nil, finished)
	case err != nil:
		s.call.end(err, finished)
	}
	return err
}

// handlerType is what generated stubs have in their tables for unary methods.
type handlerType = func(srv any, ctx context.Context, dec func(any) error, interceptor grpc.UnaryServerInterceptor) (any, error)

// Unary wraps the handler of a method with one question and one answer.
func Unary(m *Method, handler handlerType) handlerType {
	// Tables are made once, when the program starts: where sensors are off, nothing is in between.
	if !m.enabled() {
		return handler
	}
	return func(srv any, ctx context.Context, dec func(any) error, interceptor grpc.UnaryServerInterceptor) (any, error) {
		call, inner := beginServer(ctx, m)
		// Only a panic leaves the call open.
		defer call.end(errDropped, raised)
		read := func(into any) error {
			call.hook(BeforeUnmarshal)
			err := dec(into)
			call.hook(AfterUnmarshal)
			if err == nil {
				call.message(into, true, false)
			}
			return err
		}
		answer, err := handler(srv, inner, read, interceptor)
		if err == nil {
			call.hook(BeforeReplyOnly)
			call.message(answer, false, true)
			call.hook(AfterReplyOnly)
		}
		call.answered(ctx, err)
		return answer, err
	}
}

// answered ends a call at its server: with the handler's status, unless no client waited for it any more.
func (c *Call) answered(ctx context.Context, err error) {
	switch gone := ctx.Err(); {
	case gone == nil:
		c.end(err, finished)
	case errors.Is(gone, context.DeadlineExceeded):
		c.end(gone, deadline)
	default:
		c.end(gone, left)
	}
}

// Stream wraps the handler of a method with a stream.
func Stream(m *Method, handler grpc.StreamHandler) grpc.StreamHandler {
	if !m.enabled() {
		return handler
	}
	return func(srv any, stream grpc.ServerStream) error {
		call, ctx := beginServer(stream.Context(), m)
		defer call.end(errDropped, raised)
		err := handler(srv, &serverStream{stream, call, ctx})
		call.answered(stream.Context(), err)
		return err
	}
}

type serverStream struct {
	grpc.ServerStream
	call *Call
	ctx  context.Context
}

func (s *serverStream) Context() context.Context { return s.ctx }

func (s *serverStream) SendMsg(m any) error {
	s.call.hook(BeforeMarshal)
	err := s.ServerStream.SendMsg(m)
	s.call.hook(AfterMarshal)
	if err == nil {
		s.call.message(m, false, true)
	}
	return err
}

func (s *serverStream) RecvMsg(m any) error {
	s.call.hook(BeforeReplyWait)
	s.call.hook(BeforeUnmarshal)
	err := s.ServerStream.RecvMsg(m)
	s.call.hook(AfterUnmarshal)
	s.call.hook(AfterReplyWait)
	if err == nil {
		s.call.message(m, true, false)
	}
	return err
}

// Component passes the hooks around the program's own method.
func Component(ctx context.Context) func() {
	call := FromContext(ctx)
	if call == nil {
		return func() {}
	}
	call.hook(BeforeComponent)
	return func() { call.hook(AfterComponent) }
}
