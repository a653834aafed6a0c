// Package rpc is what stubs of protoc-gen-fettle call: it follows each call from its beginning to its one end
// and reports it to the sensor rpc.calls. Programs do not use it themselves.
package rpc

import (
	"math"
	"strings"
	"sync"

	"fettle.dev/sensor"
)

// Mode says what is recorded.
type Mode int

const (
	// Performance is one event for each call.
	Performance Mode = iota
	// Cflow is an event for each hook besides.
	Cflow
	// Scalar is a histogram of durations and a count of failed calls for each method.
	Scalar
)

// Hooks by number: crates/record/rpc/src/hooks.rs has them all.
const (
	BeforeCall = iota + 3
	AfterCall
	BeforeDispatch
	AfterDispatch
	BeforeReplyOnly
	AfterReplyOnly
	BeforeReplyWait
	AfterReplyWait
	BeforeComponent
	AfterComponent
	BeforeUnmarshal
	AfterUnmarshal
	BeforeMarshal
	AfterMarshal
)

// Method describes a method. Stubs have one for each.
type Method struct {
	// Service and Number are what events say instead of names.
	Service uint32
	Number  uint16
	// Name is the service's full name, a slash, and the method's.
	Name string
	Mode Mode
	// SendsID says that calls carry the header traceparent.
	SendsID bool
	// Flags are 2 if the client sends a stream, and 4 if the server does.
	Flags uint64
	// Request and Response take what is marked from a message.
	Request, Response func(message any, call *Call, first bool)
	// Hooks is code of one's own at hooks, by number.
	Hooks map[int]func(call *Call)
	// Variables makes what a call has for code of one's own.
	Variables func() any

	sums  sync.Once
	times [2]*sensor.Histogram
	fails [2]*sensor.Scalar
}

// Events: crates/base/abi/src/rpc.rs owns them.
const (
	callEvent  = 1
	hookEvent  = 16
	fieldsAt   = 9
	wordsMax   = 30
	textWords  = 4
	noStatus   = 255
	server     = 1
	finished   = 1
	cancelled  = 2
	deadline   = 3
	dropped    = 4
	raised     = 5
	left       = 6
	major      = 17
	maxName    = 63
	cellLog2   = 8
	ringLog2   = 20
	ownSlots   = 65
	fnvOffset  = 0x811c9dc5
	fnvPrime   = 0x01000193
)

var calls = sensor.NewListOf("rpc.calls", major, 1, sensor.Drop, ownSlots, cellLog2, ringLog2)

func (m *Method) scalars() {
	m.sums.Do(func() {
		minor := uint32(fnvOffset)
		for _, c := range []byte(m.Name) {
			minor = (minor ^ uint32(c)) * fnvPrime
		}
		for side, name := range []string{"client", "server"} {
			name := strings.ReplaceAll(m.Name, "/", ".") + "." + name
			name = name[max(0, len(name)-maxName+len(".failed")):]
			m.times[side] = sensor.NewHistogram(name+".ns", major, minor, uint32(side))
			m.fails[side] = sensor.NewScalar(name+".failed", major, minor, uint32(2+side))
		}
	})
}

// Word is a field's value as a word.
func Word[T ~int32 | ~int64 | ~uint32 | ~uint64 | ~bool](value T) uint64 {
	switch v := any(value).(type) {
	case int32:
		return uint64(int64(v))
	case int64:
		return uint64(v)
	case uint32:
		return uint64(v)
	case uint64:
		return v
	case bool:
		if v {
			return 1
		}
		return 0
	}
	// An enumeration: a type of its own over int32.
	if number, ok := any(value).(interface{ Number() protoNumber }); ok {
		return uint64(int64(number.Number()))
	}
	return 0
}

// Value sets a field of a call.
func (c *Call) Value(word int, value uint64) { c.words[fieldsAt+word] = value }

// Add adds to a field of a call.
func (c *Call) Add(word int, value uint64) { c.words[fieldsAt+word] += value }

// Float sets a field of a call.
func (c *Call) Float(word int, value float64) { c.words[fieldsAt+word] = math.Float64bits(value) }

// Text sets a field of a call: its first bytes.
func (c *Call) Text(word int, text string) {
	for i := 0; i < textWords; i++ {
		var value uint64
		for j := 0; j < 8 && 8*i+j < len(text); j++ {
			value |= uint64(text[8*i+j]) << (8 * j)
		}
		c.words[fieldsAt+word+i] = value
	}
}
