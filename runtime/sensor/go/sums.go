package sensor

import (
	"math/bits"
	"sync/atomic"
	"unsafe"
)

// Scalar is one number: a level that is set, plus all that was added.
type Scalar struct{ core }

// NewScalar makes a scalar.
func NewScalar(name string, major, minor, instance uint32) *Scalar {
	return &Scalar{core{
		name: name, major: major, minor: minor, instance: instance, kind: kindScalar, slots: defaultSlots,
	}}
}

// Add adds to it; delta may be negative.
func (s *Scalar) Add(delta int64) {
	if !s.Enabled() {
		return
	}
	w := s.take()
	atomic.AddUint64(w.word(0), uint64(delta))
	s.give(w)
}

// Set sets its level.
func (s *Scalar) Set(value int64) {
	if s.Enabled() {
		atomic.StoreUint64(s.at(headLevel), uint64(value))
	}
}

// Histogram says how often each magnitude occurred.
type Histogram struct{ core }

// NewHistogram makes a histogram.
func NewHistogram(name string, major, minor, instance uint32) *Histogram {
	return &Histogram{core{
		name: name, major: major, minor: minor, instance: instance, kind: kindHistogram, slots: defaultSlots,
	}}
}

// Record counts a value.
func (s *Histogram) Record(value uint64) {
	if !s.Enabled() {
		return
	}
	w := s.take()
	bucket := (*uint64)(unsafe.Add(w.at, histogramAt+8*uintptr(bucketOf(value))))
	atomic.AddUint64(bucket, 1)
	atomic.AddUint64(w.word(0), value)
	s.give(w)
}

func bucketOf(value uint64) uint {
	if value < 1<<subBits {
		return uint(value)
	}
	exponent := uint(bits.Len64(value) - 1)
	return (exponent-subBits+1)<<subBits | uint(value>>(exponent-subBits))&(1<<subBits-1)
}
