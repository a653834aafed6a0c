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
	var call *Call
	seen := m.hooked() || m.Variables != nil
	if seen {
		call = new(Call)
	} else {
		call = asked.Get().(*Call)
	}
	ctx = beginClient(ctx, m, call)
	defer func() {
		// A panic of an interceptor goes on its way, and the call is over.
		call.end(errDropped, raised)
		if !seen {
			call.release()
		}
	}()
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
	call := new(Call)
	ctx = beginClient(ctx, m, call)
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

// Serve begins a call with one question and one answer at its server, and gives the context for the program's method: the
// same one where sensors are off.
//
// A goroutine begins with a stack that gRPC's reading of a question just fills, and one that does not suffice is copied to a
// larger place. So stubs call this in their handlers, and what it makes is in the context: not a word more is on the stack
// while gRPC reads.
//
//go:noinline
func Serve(ctx context.Context, m *Method) context.Context {
	if !m.enabled() {
		return ctx
	}
	return &beginServer(ctx, m).inner
}

// Reader is what reads the question, with hooks around.
func Reader(ctx context.Context, dec func(any) error) func(any) error {
	c, ok := ctx.(*inner)
	if !ok || !c.call.hooked {
		return dec
	}
	return func(into any) error {
		c.call.hook(BeforeUnmarshal)
		err := dec(into)
		c.call.hook(AfterUnmarshal)
		return err
	}
}

// Unread ends a call whose question could not be read.
//
//go:noinline
func Unread(ctx context.Context, err error) error {
	if c, ok := ctx.(*inner); ok {
		c.finish(err)
	}
	return err
}

// Read gives the interceptor around the program's method, which sees question and answer; the program's own, if sensors
// are off.
//
//go:noinline
func Read(ctx context.Context, interceptor grpc.UnaryServerInterceptor) grpc.UnaryServerInterceptor {
	c, ok := ctx.(*inner)
	if !ok {
		return interceptor
	}
	return func(ctx context.Context, question any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (answer any, err error) {
		// Only a panic leaves the call open.
		defer c.lost()
		c.call.message(question, true, false)
		if interceptor == nil {
			answer, err = handler(ctx, question)
		} else {
			answer, err = interceptor(ctx, question, info, handler)
		}
		if err == nil {
			c.call.hook(BeforeReplyOnly)
			c.call.message(answer, false, true)
			c.call.hook(AfterReplyOnly)
		}
		c.finish(err)
		return answer, err
	}
}

func (c *inner) lost() { c.call.end(errDropped, raised) }

// finish ends a call at its server: with the handler's status, unless no client waited for it any more.
func (c *inner) finish(err error) {
	switch gone := c.Context.Err(); {
	case gone == nil:
		c.call.end(err, finished)
	case errors.Is(gone, context.DeadlineExceeded):
		c.call.end(gone, deadline)
	default:
		c.call.end(gone, left)
	}
}

// Stream wraps the handler of a method with a stream.
func Stream(m *Method, handler grpc.StreamHandler) grpc.StreamHandler {
	if !m.enabled() {
		return handler
	}
	return func(srv any, stream grpc.ServerStream) error {
		served := beginServer(stream.Context(), m)
		defer served.inner.lost()
		err := handler(srv, &serverStream{stream, &served.Call, &served.inner})
		served.inner.finish(err)
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
