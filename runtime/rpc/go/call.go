package rpc

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"fettle.dev/sensor"
)

type protoNumber = protoreflect.EnumNumber

// Call is a call in progress. What is recorded of it lies in it and in no thread, and it ends once.
type Call struct {
	// Method is what is called.
	Method *Method
	// Variables is what the hook variable_declaration made.
	Variables any

	// Whether anything is to be done at hooks.
	hooked bool
	over   atomic.Bool
	// Receives under way, and the stream's end: which of the two is later reports the call, so that
	// the last message is in it.
	receiving atomic.Int32
	finish    atomic.Pointer[error]
	isServer       bool
	sent, received atomic.Uint32
	sentBytes      atomic.Uint64
	receivedBytes  atomic.Uint64
	// What the event will say; fields are written by one goroutine for each direction.
	words [wordsMax]uint64
}

type key struct{}

// served is a server's call and the context of its handler, in one piece of memory.
type served struct {
	Call
	inner inner
}

// inner is the context of a handler.
type inner struct {
	context.Context
	call *Call
}

func (c *inner) Value(of any) any {
	if _, ok := of.(key); ok {
		return c.call
	}
	return c.Context.Value(of)
}

// asked has clients' calls that are over: with one question and one answer, and without code of anybody's own, nothing
// else has seen them.
var asked = sync.Pool{New: func() any { return new(Call) }}

// release makes a client's call ready for the next one.
func (c *Call) release() {
	// Field by field: what is atomic is not copied.
	c.Method = nil
	c.over.Store(false)
	c.sent.Store(0)
	c.received.Store(0)
	c.sentBytes.Store(0)
	c.receivedBytes.Store(0)
	c.words = [wordsMax]uint64{}
	asked.Put(c)
}

// FromContext is the call that a context belongs to on its server; nil if there is none.
func FromContext(ctx context.Context) *Call {
	call, _ := ctx.Value(key{}).(*Call)
	return call
}

// Trace is the id of the call's trace.
func (c *Call) Trace() (uint64, uint64) { return c.words[5], c.words[6] }

// Span is the call's own id.
func (c *Call) Span() uint64 { return c.words[7] }

func (c *Call) begin(m *Method, isServer bool) {
	c.Method, c.isServer, c.hooked = m, isServer, m.hooked()
	c.words[0] = sensor.TSC()
	c.words[7] = rand.Uint64() | 1
	if m.Variables != nil {
		c.Variables = m.Variables()
	}
}

// hooked says whether anything is to be done at hooks.
func (m *Method) hooked() bool { return m.Mode == Cflow || m.Hooks != nil }

// enabled says whether a call of the method is to be followed.
func (m *Method) enabled() bool { return calls.Enabled() }

func beginClient(ctx context.Context, m *Method, call *Call) context.Context {
	call.begin(m, false)
	if outer := FromContext(ctx); outer != nil {
		call.words[5], call.words[6], call.words[8] = outer.words[5], outer.words[6], outer.words[7]
	} else {
		call.words[5], call.words[6] = rand.Uint64(), rand.Uint64()
	}
	if m.SendsID {
		id := fmt.Sprintf("00-%016x%016x-%016x-01", call.words[5], call.words[6], call.words[7])
		ctx = metadata.AppendToOutgoingContext(ctx, "traceparent", id)
	}
	call.hook(BeforeCall)
	return ctx
}

func beginServer(ctx context.Context, m *Method) *served {
	served := &served{}
	call := &served.Call
	call.begin(m, true)
	if ids := metadata.ValueFromIncomingContext(ctx, "traceparent"); len(ids) > 0 {
		var version, flags uint64
		n, err := fmt.Sscanf(ids[0], "%02x-%016x%016x-%016x-%02x", &version, &call.words[5], &call.words[6], &call.words[8], &flags)
		if n < 4 || err != nil {
			call.words[5], call.words[6], call.words[8] = 0, 0, 0
		}
	}
	if call.words[5]|call.words[6] == 0 {
		call.words[5], call.words[6] = rand.Uint64(), rand.Uint64()
	}
	call.hook(BeforeDispatch)
	served.inner = inner{ctx, call}
	return served
}

func (c *Call) what(code uint64, ended uint64) uint64 {
	flags := c.Method.Flags
	if c.isServer {
		flags |= server
	}
	return uint64(c.Method.Service)<<32 | uint64(c.Method.Number)<<16 | code<<8 | ended<<4 | flags
}

// hook passes a hook: its event in the mode cflow, and code of one's own.
func (c *Call) hook(number int) {
	if c.hooked {
		c.passed(number)
	}
}

func (c *Call) passed(number int) {
	if c.Method.Mode == Cflow {
		calls.Commit(uint16(hookEvent+number), c.words[7], c.what(noStatus, 0), c.words[5], c.words[6], sensor.TSC())
	}
	if own := c.Method.Hooks[number]; own != nil {
		own(c)
	}
}

// message counts a message and takes what is marked in it.
func (c *Call) message(message any, isRequest, isSent bool) {
	counter, bytes := &c.received, &c.receivedBytes
	if isSent {
		counter, bytes = &c.sent, &c.sentBytes
	}
	first := counter.Add(1) == 1
	if m, ok := message.(proto.Message); ok {
		bytes.Add(uint64(proto.Size(m)))
	}
	take := c.Method.Response
	if isRequest {
		take = c.Method.Request
	}
	if take != nil && !c.over.Load() {
		take(message, c, first)
	}
}

// end ends the call, if nothing has yet.
func (c *Call) end(err error, ended uint64) {
	if !c.over.CompareAndSwap(false, true) {
		return
	}
	code := codes.OK
	if err != nil {
		code = status.Code(err)
		if code == codes.Unknown {
			// What handlers return without a status of gRPC.
			if errors.Is(err, context.Canceled) {
				code = codes.Canceled
			} else if errors.Is(err, context.DeadlineExceeded) {
				code = codes.DeadlineExceeded
			}
		}
	}
	if ended == finished && !c.isServer {
		switch code {
		case codes.Canceled:
			ended = cancelled
		case codes.DeadlineExceeded:
			ended = deadline
		}
	}
	if c.isServer {
		c.hook(AfterDispatch)
	} else {
		c.hook(AfterCall)
	}
	m := c.Method
	if m.Mode == Scalar {
		m.scalars()
		side := 0
		if c.isServer {
			side = 1
		}
		m.times[side].Record(uint64(float64(sensor.TSC()-c.words[0]) * tick()))
		if code != codes.OK {
			m.fails[side].Add(1)
		}
		return
	}
	c.words[1] = c.what(uint64(code), ended)
	c.words[2] = uint64(c.received.Load())<<32 | uint64(c.sent.Load())
	c.words[3], c.words[4] = c.sentBytes.Load(), c.receivedBytes.Load()
	n := wordsMax
	for n > fieldsAt && c.words[n-1] == 0 {
		n--
	}
	calls.CommitWords(callEvent, c.words[:n])
}

// tick is the length of a tick of the time-stamp counter in nanoseconds.
func tick() float64 {
	if known := tickBits.Load(); known != nil {
		return *known
	}
	from, start := sensor.TSC(), time.Now()
	for time.Since(start) < 2*time.Millisecond {
	}
	length := float64(time.Since(start)) / float64(sensor.TSC()-from)
	tickBits.Store(&length)
	return length
}

var tickBits atomic.Pointer[float64]
