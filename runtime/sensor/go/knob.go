package sensor

import (
	"math"
	"sync/atomic"
	"unsafe"
)

// Knob is a number that others set, by `fettle sensors set` or a rule of `fettle watch`, and this program reads.
//
//	var path = sensor.NewKnob("put.path", 7, 4, 0, 0, 3) // 0 if nothing is said; else 0 to 3
//
//	switch path.Get() { ... }
//
// What was set for some time goes back to what it was when its setter ends, however that ends.
type Knob struct {
	core
	// Where the value is: in the knob's file, or here where there is none.
	value  atomic.Pointer[int64]
	values knobValues
}

type knobValues struct{ byDefault, least, greatest int64 }

// NewKnob makes a knob: its default, and the least and the greatest value that may be set. It panics if the default is
// not between them.
func NewKnob(name string, major, minor uint32, byDefault, least, greatest int64) *Knob {
	if least == math.MinInt64 || byDefault < least || byDefault > greatest {
		panic("sensor: a knob's default is between its least and its greatest value")
	}
	values := knobValues{byDefault, least, greatest}
	return &Knob{values: values, core: core{
		name: name, major: major, minor: minor, kind: kindKnob, slots: 1, knob: values,
	}}
}

// Get is the value: two loads. The first one makes the knob's file; until then it cannot be set.
func (k *Knob) Get() int64 {
	if value := k.value.Load(); value != nil {
		return atomic.LoadInt64(value)
	}
	return k.first()
}

func (k *Knob) first() int64 {
	value := &k.values.byDefault
	if k.Enabled() {
		value = (*int64)(unsafe.Add(k.base, slotsAt))
	}
	k.value.Store(value)
	return atomic.LoadInt64(value)
}
