// Package sensor commits events of Go programs to Fettle's sensors.
//
//	var requests = sensor.NewList("web.request", 7, 1, sensor.Drop)
//
//	requests.Commit(1, url, bytes)
//
// It is the counterpart of runtime/sensor/fettle.h, in Go alone: no cgo. Without FETTLE_SENSORS in the
// environment an event is one load and one branch.
//
// Goroutines change threads at any moment, so slots cannot belong to threads. A slot belongs to the process
// here, and one goroutine at a time takes it from a pool for one event. What is in it has one writer, as
// everywhere, and a program that is killed leaves whole records and at most one hole for each commit that was
// under way. Go programs do not fork without exec, so nothing has to be wiped.
package sensor

import (
	"errors"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"
)

// Policy says what a list does when its ring is full.
type Policy uint32

const (
	// Drop counts the event as lost and goes on.
	Drop Policy = 0
	// Overwrite goes on over the oldest: a flight recorder.
	Overwrite Policy = 1
	// Wait waits until the consumer made room, unless there is none.
	Wait Policy = 2
)

// Layouts: crates/base/abi/src/sensor.rs owns them.
const (
	magic          = 0x0100454c54544546
	version        = 1
	slotsAt        = 4096
	listRing       = 4096
	defaultSlots   = 65
	slotsMax       = 256
	nameBytes      = 64
	waitLimit      = 2 * time.Second
	kindScalar     = 1
	kindList       = 2
	kindHistogram  = 3
	kindKnob       = 4
	scalarBytes    = 64
	buckets        = 496
	subBits        = 3
	knobBytes      = 4096
	histogramBytes = 64 + buckets*8 + 64

	headName     = 88
	headLevel    = 192
	headBeat     = 256
	headOwners   = 1024
	cursorLimit  = 8
	cursorLost   = 16
	cursorPolicy = 24
	cursorTaken  = 64
	cursorBeat   = 72
	histogramAt  = 64
	knobDefault  = 64
	knobLeast    = 72
	knobGreatest = 80
	knobResting  = 88

	madvPopulateWrite = 23
)

// TSC is the processor's time-stamp counter, the clock of all sensors.
func TSC() uint64 { return tsc() }

func tsc() uint64

// pid is this process: Go asks the kernel each time.
var pid = os.Getpid()

const (
	unopened = iota
	on
	off
)

// core is what the three kinds have in common.
type core struct {
	name                string
	major, minor        uint32
	instance            uint32
	kind                uint32
	policy              Policy
	slots               uint32
	cellLog2, ringLog2  uint32
	state               atomic.Uint32
	opening             sync.Mutex
	base                unsafe.Pointer
	pool                sync.Pool
	free                chan uint32
	deadBeat            atomic.Uint64
	knob                knobValues
}

func (s *core) at(offset uintptr) *uint64 { return (*uint64)(unsafe.Add(s.base, offset)) }

func (s *core) slotBytes() uintptr {
	switch s.kind {
	case kindList:
		return listRing + uintptr(1)<<s.ringLog2
	case kindScalar:
		return scalarBytes
	case kindKnob:
		return knobBytes
	}
	return histogramBytes
}

// Enabled says whether events are taken: FETTLE_SENSORS asks for sensors, and there is room for them.
func (s *core) Enabled() bool {
	state := s.state.Load()
	if state == unopened {
		state = s.open()
	}
	return state == on
}

func (s *core) open() uint32 {
	s.opening.Lock()
	defer s.opening.Unlock()
	if state := s.state.Load(); state != unopened {
		return state
	}
	state := uint32(off)
	if s.make() == nil {
		state = on
	}
	s.state.Store(state)
	return state
}

var errOff = errors.New("sensors are off")

// directory is the folder of sensors, if the environment asks for one and it is ours alone.
func directory() (string, error) {
	wish := os.Getenv("FETTLE_SENSORS")
	if wish == "" || wish == "0" || os.Geteuid() != os.Getuid() || os.Getegid() != os.Getgid() {
		return "", errOff
	}
	run := os.Getenv("XDG_RUNTIME_DIR")
	path := "/dev/shm/fettle-" + strconv.Itoa(os.Geteuid())
	if strings.HasPrefix(wish, "/") {
		path = wish
	} else if strings.HasPrefix(run, "/") {
		path = run + "/fettle"
	}
	_ = os.Mkdir(path, 0o700)
	var stat syscall.Stat_t
	if err := syscall.Lstat(path, &stat); err != nil {
		return "", err
	}
	if stat.Mode&syscall.S_IFMT != syscall.S_IFDIR || int(stat.Uid) != os.Geteuid() || stat.Mode&0o77 != 0 {
		return "", errOff
	}
	return path, nil
}

// startTime is when this process started, in ticks since boot; 0 if unknown.
func startTime() uint64 {
	text, _ := os.ReadFile("/proc/self/stat")
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	if len(fields) < 20 {
		return 0
	}
	ticks, _ := strconv.ParseUint(fields[19], 10, 64)
	return ticks
}

func clock(which uintptr) uint64 {
	var now syscall.Timespec
	syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, which, uintptr(unsafe.Pointer(&now)), 0)
	return uint64(now.Nano())
}

// populate takes memory for these bytes now, so that a full disk is found here and not by a SIGBUS.
func (s *core) populate(from, bytes uintptr) syscall.Errno {
	start := (uintptr(s.base) + from) &^ 4095
	end := (uintptr(s.base) + from + bytes + 4095) &^ 4095
	_, _, errno := syscall.Syscall(syscall.SYS_MADVISE, start, end-start, madvPopulateWrite)
	return errno
}

func (s *core) make() error {
	folder, err := directory()
	if err != nil {
		return err
	}
	opened := tsc()
	bytes := (slotsAt + uintptr(s.slots)*s.slotBytes() + 4095) &^ 4095
	path := folder + "/" + s.name + "." + strconv.Itoa(pid) + "." + strconv.FormatUint(opened, 16)
	fd, err := syscall.Open(path, syscall.O_RDWR|syscall.O_CREAT|syscall.O_EXCL|syscall.O_NOFOLLOW|syscall.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	defer syscall.Close(fd)
	err = syscall.Ftruncate(fd, int64(bytes))
	if err == nil {
		var memory []byte
		memory, err = syscall.Mmap(fd, 0, int(bytes), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
		if err == nil {
			s.base = unsafe.Pointer(&memory[0])
			errno := s.populate(0, slotsAt+s.slotBytes())
			if errno == syscall.EINVAL { // before Linux 5.14: take memory for the whole file
				err = syscall.Fallocate(fd, 0, 0, int64(bytes))
			} else if errno != 0 {
				err = errno
			}
		}
	}
	if err != nil {
		_ = syscall.Unlink(path)
		return err
	}
	words := map[uintptr]uint32{
		8: version, 12: version, 16: s.kind, 20: uint32(s.policy), 24: s.major, 28: s.minor,
		32: s.instance, 36: uint32(pid), 72: s.slots, 76: s.cellLog2, 80: s.ringLog2,
	}
	for offset, word := range words {
		*(*uint32)(unsafe.Add(s.base, offset)) = word
	}
	*s.at(40) = startTime()
	*s.at(48) = tsc()
	*s.at(56) = clock(1)
	*s.at(64) = clock(0)
	copy(unsafe.Slice((*byte)(unsafe.Add(s.base, headName)), nameBytes-1), s.name)
	s.prepare(0)
	s.free = make(chan uint32, s.slots)
	for slot := uint32(1); slot < s.slots; slot++ {
		s.free <- slot
	}
	atomic.StoreUint64(s.at(0), magic)
	return nil
}

// prepare fills in a slot's head.
func (s *core) prepare(slot uint32) unsafe.Pointer {
	at := unsafe.Add(s.base, slotsAt+uintptr(slot)*s.slotBytes())
	if s.kind == kindList {
		*(*uint32)(unsafe.Add(at, cursorPolicy)) = uint32(s.policy)
		*(*uint32)(unsafe.Add(at, cursorPolicy+4)) = s.ringLog2
		if s.policy == Overwrite {
			atomic.StoreUint64((*uint64)(unsafe.Add(at, cursorLimit)), ^uint64(0))
		}
	}
	if s.kind == kindKnob {
		*(*int64)(at) = s.knob.byDefault
		*(*int64)(unsafe.Add(at, knobDefault)) = s.knob.byDefault
		*(*int64)(unsafe.Add(at, knobLeast)) = s.knob.least
		*(*int64)(unsafe.Add(at, knobGreatest)) = s.knob.greatest
		*(*int64)(unsafe.Add(at, knobResting)) = s.knob.byDefault
	}
	return at
}

// writer is the right to write to a slot. One goroutine has it at a time.
type writer struct {
	at     unsafe.Pointer
	shared bool
	stuck  uint64
	index  uint32
}

// take gives a writer: that of a slot of its own, or of the shared one if all are taken.
func (s *core) take() *writer {
	if w, ok := s.pool.Get().(*writer); ok {
		return w
	}
	select {
	case slot := <-s.free:
		errno := s.populate(slotsAt+uintptr(slot)*s.slotBytes(), s.slotBytes())
		if errno != 0 && errno != syscall.EINVAL {
			s.free <- slot
			break
		}
		w := &writer{at: s.prepare(slot), index: slot}
		owner := (*uint32)(unsafe.Add(s.base, headOwners+4*uintptr(slot)))
		atomic.StoreUint32(owner, uint32(pid))
		// The pool forgets what is not used for a while.
		runtime.SetFinalizer(w, func(w *writer) { s.free <- w.index })
		return w
	default:
	}
	return &writer{at: unsafe.Add(s.base, slotsAt), shared: true}
}

func (s *core) give(w *writer) {
	if !w.shared {
		s.pool.Put(w)
	}
}

func (w *writer) word(offset uintptr) *uint64 { return (*uint64)(unsafe.Add(w.at, offset)) }

// List is a list of events.
type List struct{ core }

// NewList makes a list of events with up to two words.
func NewList(name string, major, minor uint32, policy Policy) *List {
	return NewListOf(name, major, minor, policy, defaultSlots, 5, 18)
}

// NewListOf makes a list with all that can be chosen: as FETTLE_DEFINE of fettle.h.
func NewListOf(name string, major, minor uint32, policy Policy, slots, cellLog2, ringLog2 uint32) *List {
	slots = min(max(slots, 1), slotsMax)
	cellLog2, ringLog2 = min(max(cellLog2, 4), 8), min(max(ringLog2, 12), 30)
	return &List{core{
		name: name, major: major, minor: minor, kind: kindList, policy: policy,
		slots: slots, cellLog2: cellLog2, ringLog2: ringLog2,
	}}
}

// Commit commits an event: its number and its words. Words that the cell has no room for are cut.
func (s *List) Commit(event uint16, words ...uint64) {
	if s.Enabled() {
		s.commit(event, words)
	}
}

// CommitWords is Commit without an array made for it.
func (s *List) CommitWords(event uint16, words []uint64) {
	if s.Enabled() {
		s.commit(event, words)
	}
}

func (s *List) commit(event uint16, words []uint64) {
	now := tsc()
	w := s.take()
	defer s.give(w)
	cell := uint64(1) << s.cellLog2
	at := atomic.LoadUint64(w.word(0))
	for {
		limit := atomic.LoadUint64(w.word(cursorLimit))
		if at+cell > limit {
			room := atomic.LoadUint64(w.word(cursorTaken)) + uint64(1)<<s.ringLog2
			if at+cell > room {
				if s.policy == Wait && s.wait(w) {
					at = atomic.LoadUint64(w.word(0))
					continue
				}
				atomic.AddUint64(w.word(cursorLost), 1)
				return
			}
			atomic.StoreUint64(w.word(cursorLimit), room)
		}
		if w.shared {
			if !atomic.CompareAndSwapUint64(w.word(0), at, at+cell) {
				at = atomic.LoadUint64(w.word(0))
				continue
			}
		} else {
			atomic.StoreUint64(w.word(0), at+cell)
		}
		break
	}
	place := unsafe.Add(w.at, listRing+uintptr(at&(uint64(1)<<s.ringLog2-1)))
	mark := (*uint64)(unsafe.Add(place, cell-8))
	lap := at >> s.ringLog2 & 0xffff
	if s.policy == Overwrite && !claim(mark, lap) {
		return
	}
	payload := unsafe.Slice((*uint64)(place), cell/8)
	payload[0] = now
	n := copy(payload[1:cell/8-1], words)
	atomic.StoreUint64(mark, uint64(pid)<<40|lap<<24|uint64(event)<<8|uint64(n)<<1|1)
}

// claim claims a cell of a ring that is overwritten, as in fettle.h.
func claim(mark *uint64, lap uint64) bool {
	for {
		seen := atomic.LoadUint64(mark)
		if seen>>63 != 0 || int16(uint16(seen>>24-lap)) > 0 {
			return false
		}
		if atomic.CompareAndSwapUint64(mark, seen, 1<<63|lap<<24) {
			return true
		}
	}
}

// wait waits until the consumer made room; false if it will not.
func (s *List) wait(w *writer) bool {
	visits, taken := atomic.LoadUint64(w.word(cursorBeat)), atomic.LoadUint64(w.word(cursorTaken))
	beat, since := atomic.LoadUint64(s.at(headBeat)), time.Now()
	if beat == s.deadBeat.Load() || taken+1 == w.stuck {
		return false
	}
	for turn := 0; ; turn++ {
		now := atomic.LoadUint64(s.at(headBeat))
		if now == 0 {
			return false
		}
		if now != beat {
			beat, since = now, time.Now()
		} else if turn > 64 && time.Since(since) > waitLimit {
			s.deadBeat.Store(beat)
			return false
		}
		seen := atomic.LoadUint64(w.word(cursorBeat))
		if atomic.LoadUint64(w.word(cursorTaken)) != taken {
			return true
		}
		if seen-visits >= 2 {
			w.stuck = taken + 1
			return false
		}
		if turn < 64 {
			runtime.Gosched()
		} else {
			time.Sleep(20 * time.Microsecond)
		}
	}
}
