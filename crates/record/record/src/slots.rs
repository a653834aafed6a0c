//! The session's shared memory: one slot for every probed thread.
//!
//! A slot holds a thread block (see `fettle_abi::block`), its call-stack mirror, its ring, its
//! accumulators and its counters. The memory is one sparse memory file that every probed process maps
//! whole, so that a new thread or a forked child needs no system call of its own to get a slot: its `gs`
//! base is set and that is all.
//!
//! Programs may write anything there. What is read here is bounded by what the slot can hold,
//! whatever it says of itself.

use std::cell::Cell;
use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use fettle_abi::block::{self, Accumulator, Alive, Clock, MirrorFrame, ThreadBlock};
use fettle_abi::locking;
use fettle_abi::ring::{Policy, RingCursors};
use fettle_abi::{MAGIC, VERSION};
use fettle_code::Mode;
use fettle_types::{FunctionIndex, Pid, SlotIndex, Tid};
use memmap2::MmapRaw;

use crate::perf::PcSamples;

mod locks;

/// Sizes of a session's slots.
#[derive(Clone, Copy, Debug)]
pub struct SlotLayout {
    /// Bytes of ring, a power of two.
    pub ring_bytes: u32,
    /// Functions that the session can number.
    pub functions: u32,
    /// Block counters that the session can number.
    pub counters: u32,
    /// Slots.
    pub slots: u32,
    /// Locks are added up: there is a table where counters would be, and more in front of the slots.
    pub locks: bool,
}

impl SlotLayout {
    /// Offset of the accumulators in a slot.
    pub fn accumulators_at(&self) -> u32 {
        block::counters(self.ring_bytes)
    }

    /// Offset of the block counters in a slot.
    pub fn counters_at(&self) -> u32 {
        self.accumulators_at() + self.functions * size_of::<Accumulator>() as u32
    }

    /// Bytes from one slot to the next.
    pub fn stride(&self) -> u64 {
        (u64::from(self.counters_at()) + u64::from(self.counters) * 8).next_multiple_of(1 << 21)
    }

    /// Offset of a slot. The last one, behind those that are distinguished, is for threads without a
    /// slot of their own.
    fn at(&self, slot: SlotIndex) -> u64 {
        self.head() + self.stride() * u64::from(slot.get())
    }

    /// Bytes in front of the slots.
    fn head(&self) -> u64 {
        if self.locks { locking::HEAD_BYTES } else { HEAD }
    }

    /// Bytes of the whole.
    pub fn size(&self) -> u64 {
        self.at(SlotIndex(self.slots).next())
    }

    /// The same with no more slots than a file of `size` bytes holds, and the one for all others.
    fn within(self, size: u64) -> SlotLayout {
        let held = size.saturating_sub(self.head()) / self.stride();
        let slots = held.saturating_sub(1).min(self.slots.into()) as u32;
        SlotLayout { slots, ..self }
    }
}

/// Bytes in front of the slots, of which the first page is used.
const HEAD: u64 = 1 << 21;
const HEAD_USED: u64 = 4096;
/// Offset of the [`Alive`] that says whether the session is alive.
pub const ALIVE_AT: u64 = 0;
/// Offset of an [`Alive`] that says that there is no recorder: for threads without a slot of their own.
const NOBODY_AT: u64 = 64;

/// How large a file may be that this process makes (`RLIMIT_FSIZE`).
fn file_size_max() -> u64 {
    let mut limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: the limit is written to, which is ours; failing leaves it as it is.
    unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &mut limit) };
    limit.rlim_cur
}

/// What the agent's probes measure in `mode`.
pub(crate) fn clock_of(mode: Mode) -> Clock {
    if mode == Mode::Cpu { Clock::Cpu } else { Clock::Ticks }
}

/// What a slot's thread did, apart from its records.
#[derive(Clone, Debug, Default)]
pub struct SlotTotals {
    /// By function number: those that were called.
    pub accumulators: Vec<(FunctionIndex, Accumulator)>,
    /// By counter number: those that are not zero.
    pub counters: Vec<(u32, u64)>,
    /// Records that found no room, and room that no record was stored to.
    pub lost: u64,
    /// Exits that found no frame.
    pub unmatched_exits: u64,
    /// Frames left by an exception or `longjmp`.
    pub unwound_frames: u64,
    /// Entries that found no room for a frame.
    pub mirror_overflows: u64,
    /// Frames that are still open, outermost first.
    pub open: Vec<OpenFrame>,
    /// Calls that have ended ([`ThreadBlock::ended`]).
    pub ended: u64,
}

/// A call that a thread is in, as its call-stack mirror has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenFrame {
    /// Its function's number.
    pub function: FunctionIndex,
    /// When it was entered, by the clock of the mode.
    pub start: u64,
    /// Ticks of the calls that it made and that have ended.
    child_ticks: u64,
    /// How many these are.
    children: u64,
    /// How many calls had ended in the thread when it began.
    ended_before: u64,
}

impl SlotTotals {
    /// Takes the calls out that began in another process, before a fork, and ended in this one:
    /// probes count a call where it ends, and these have ended, or will, in the parent, too. Their
    /// time since the fork stays, as do records of it. `copied` are those frames that
    /// [`Slots::copy_frames`] made.
    pub fn leave_to_parent(&mut self, copied: &[(FunctionIndex, u64)]) {
        let open: HashSet<(FunctionIndex, u64)> =
            self.open.iter().map(|f| (f.function, f.start)).collect();
        let mut ended: HashMap<FunctionIndex, u64> = HashMap::new();
        for (function, _) in copied.iter().filter(|frame| !open.contains(frame)) {
            *ended.entry(*function).or_default() += 1;
        }
        for (function, accumulator) in &mut self.accumulators {
            let ended = ended.get(function).copied().unwrap_or_default();
            accumulator.calls = accumulator.calls.saturating_sub(ended);
        }
    }

    /// Lets the open calls count as if they ended at `end`, by the clock of the mode: those of functions
    /// that never return, for there is no probe at an end that does not come. Those of `copied` began in
    /// the process that this one was forked from: they are its calls, and here their time is added.
    pub fn end_open(&mut self, end: u64, copied: &[(FunctionIndex, u64)]) {
        let copied: HashSet<&(FunctionIndex, u64)> = copied.iter().collect();
        let mut places: HashMap<FunctionIndex, usize> =
            self.accumulators.iter().enumerate().map(|(at, (number, _))| (*number, at)).collect();
        let (mut ticks_inside, mut inside) = (0, 0);
        for frame in self.open.iter().rev() {
            let ticks = end.saturating_sub(frame.start);
            let place = *places.entry(frame.function).or_insert_with(|| {
                self.accumulators.push((frame.function, Accumulator::default()));
                self.accumulators.len() - 1
            });
            let accumulator = &mut self.accumulators[place].1;
            accumulator.calls += u64::from(!copied.contains(&(frame.function, frame.start)));
            accumulator.total_ticks = accumulator.total_ticks.saturating_add(ticks);
            let own = ticks.saturating_sub(frame.child_ticks.saturating_add(ticks_inside));
            accumulator.self_ticks = accumulator.own_ticks().saturating_add(own);
            accumulator.children += frame.children + u64::from(inside > 0);
            accumulator.below += self.ended.saturating_sub(frame.ended_before) + inside;
            (ticks_inside, inside) = (ticks, inside + 1);
        }
    }
}

/// A [`fettle_live::AliveWord`] in the shared memory. When it is dropped, the recording has ended.
#[derive(Debug)]
pub struct AliveWord<'a> {
    word: fettle_live::AliveWord,
    slots: &'a Slots,
}

impl AliveWord<'_> {
    /// Says that the recorder is gone.
    pub fn clear(&self) {
        self.word.clear();
    }
}

impl Drop for AliveWord<'_> {
    fn drop(&mut self) {
        let ended = self.slots.head(ALIVE_AT as usize + std::mem::offset_of!(Alive, ended));
        ended.store(1, Ordering::Release);
    }
}

/// The shared memory.
#[derive(Debug)]
pub struct Slots {
    file: File,
    shared: Arc<OwnedFd>,
    map: MmapRaw,
    /// Bytes of the file, which grows with the slots in use: a program may lock all of its memory
    /// (`mlockall`), and then gets as much of what is mapped as there is a file for.
    len: Cell<u64>,
    /// Where the process has the memory whose threads have no slot of their own.
    shared_by: Cell<Option<u64>>,
    /// Memory files, too, may be no larger than `RLIMIT_FSIZE`, which leaves room for fewer threads.
    limited: bool,
    layout: SlotLayout,
    policy: Policy,
    mode: Mode,
    pc_samples: Option<PcSamples>,
}

/// Logarithm of the longest sampling interval where timed calls need not give own times.
const RARELY: u64 = 10;

/// Bytes of a record.
const RECORD: usize = size_of::<fettle_abi::record::CallRecord>();
/// Bytes that are taken from a ring at a time: few calls of the system, and what is copied stays in
/// the cache.
const PIECE: usize = 1 << 16;

impl Slots {
    /// Makes the memory; nothing of it is in use yet.
    ///
    /// # Errors
    ///
    /// When the kernel gives no memory file or no room in the address space.
    pub fn new(layout: SlotLayout, policy: Policy, mode: Mode) -> io::Result<Slots> {
        // SAFETY: the name is a C string; the result is checked.
        let fd = unsafe { libc::memfd_create(c"fettle".as_ptr(), libc::MFD_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: `fd` was just made and has no other owner.
        let file = unsafe { File::from_raw_fd(fd) };
        Slots::over(file, layout, policy, mode)
    }

    /// Has the memory in an empty memory file.
    ///
    /// # Errors
    ///
    /// As those of [`Slots::new`].
    pub fn over(file: File, layout: SlotLayout, policy: Policy, mode: Mode) -> io::Result<Slots> {
        assert!(layout.ring_bytes.is_power_of_two());
        let all = layout.slots;
        let layout = layout.within(file_size_max());
        let limited = layout.slots < all;
        let used = if layout.locks { layout.head() } else { HEAD_USED };
        file.set_len(used)?;
        let size = layout.size() as usize;
        let map = memmap2::MmapOptions::new().len(size).no_reserve_swap().map_raw(&file)?;
        let shared = Arc::new(file.try_clone()?.into());
        let (len, shared_by) = (Cell::new(used), Cell::new(None));
        let pc_samples = (mode == Mode::Sample).then(PcSamples::affordable).flatten();
        let slots =
            Slots { file, shared, map, len, shared_by, limited, layout, policy, mode, pc_samples };
        slots
            .head(NOBODY_AT as usize + std::mem::offset_of!(Alive, ended))
            .store(1, Ordering::Relaxed);
        slots.publish_layout(0);
        Ok(slots)
    }

    /// The memory file, to be mapped by the processes.
    pub fn file(&self) -> Arc<OwnedFd> {
        self.shared.clone()
    }

    /// Says in the shared memory that the calling thread is alive; it must be the tracer.
    ///
    /// # Errors
    ///
    /// When the kernel cannot clear the word at its death (robust futexes).
    pub fn alive(&self) -> io::Result<AliveWord<'_>> {
        let word = self.head(ALIVE_AT as usize + std::mem::offset_of!(Alive, tracer));
        // SAFETY: the word outlives the value, which borrows `self`. This crate uses no robust
        // locks.
        let word = unsafe { fettle_live::AliveWord::set(word.as_ptr()) };
        Ok(AliveWord { word: word?, slots: self })
    }

    /// A word in front of the slots.
    fn head(&self, offset: usize) -> &AtomicU32 {
        assert!(offset + 4 <= HEAD_USED as usize && offset.is_multiple_of(4));
        // SAFETY: the word is aligned, inside the mapping and the file (asserted), and changed by
        // atomics only.
        unsafe { AtomicU32::from_ptr(self.map.as_mut_ptr().add(offset).cast()) }
    }

    /// The samples of threads' PCs that functions' own times follow from, if there are to be any.
    pub fn pc_samples(&self) -> Option<PcSamples> {
        self.pc_samples
    }

    /// Whether the session samples calls.
    pub fn samples(&self) -> bool {
        self.mode == Mode::Sample
    }

    /// Whether exits are counted as well as entries.
    pub fn counts_exits(&self) -> bool {
        self.mode.counts_exits()
    }

    /// What probes measure.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Whether it is counted how many calls were made below each.
    pub fn counts_below(&self) -> bool {
        self.mode.counts_below()
    }

    /// Whether single calls are recorded: that matters for those whose thread was off-CPU.
    pub fn times_calls(&self) -> bool {
        matches!(self.mode, Mode::Events | Mode::Sample)
    }

    /// Sizes.
    pub fn layout(&self) -> &SlotLayout {
        &self.layout
    }

    fn base(&self, slot: SlotIndex) -> *mut u8 {
        let offset = self.layout.at(slot);
        assert!(offset + self.layout.stride() <= self.len.get(), "a slot that was prepared");
        // SAFETY: the offset is inside the file (asserted), and so inside the mapping, which is
        // `layout.size()` bytes long.
        unsafe { self.map.as_mut_ptr().add(offset as usize) }
    }

    fn word(&self, slot: SlotIndex, offset: usize) -> &AtomicU64 {
        assert!(offset + 8 <= self.layout.stride() as usize && offset.is_multiple_of(8));
        // SAFETY: inside the slot (asserted) and aligned; the memory is mapped as long as `self`, and
        // any bits are a valid u64. Other processes write it at any time, which atomics allow.
        unsafe { &*self.base(slot).add(offset).cast::<AtomicU64>() }
    }

    /// Whether the limit on files' sizes (`RLIMIT_FSIZE`) leaves room for fewer threads than asked for.
    pub fn limited(&self) -> bool {
        self.limited
    }

    /// The ring of a slot, as words.
    fn ring(&self, slot: SlotIndex) -> &[AtomicU64] {
        let words = self.layout.ring_bytes as usize / 8;
        // SAFETY: the ring lies inside the slot, page-aligned, and is `ring_bytes` long; the memory is
        // mapped as long as `self`, and any bits are valid. Other processes write it at any time, which
        // atomics allow.
        unsafe {
            let start = self.base(slot).add(block::RING as usize).cast::<AtomicU64>();
            std::slice::from_raw_parts(start, words)
        }
    }

    /// Prepares an empty slot for a thread whose process has the memory mapped at `mapped_at`;
    /// gives the `gs` base. `None` if there is no memory for it.
    pub fn prepare(&self, slot: SlotIndex, pid: Pid, tid: Tid, mapped_at: u64) -> Option<u64> {
        self.prepare_as(slot, Some((pid, tid)), mapped_at, mapped_at + ALIVE_AT)
    }

    /// The `gs` base for a thread that has no slot of its own. Many may have the same at once, so what
    /// they leave there is never read. `None` if that cannot be had.
    pub fn shared_block(&self, mapped_at: u64) -> Option<u64> {
        let slot = SlotIndex(self.layout.slots);
        match self.shared_by.get() {
            None => {
                let nobody = mapped_at + NOBODY_AT;
                let address = self.prepare_as(slot, None, mapped_at, nobody)?;
                self.shared_by.set(Some(mapped_at));
                Some(address)
            }
            // A block knows its address.
            Some(at) => (at == mapped_at).then(|| mapped_at + self.layout.at(slot)),
        }
    }

    fn prepare_as(
        &self,
        slot: SlotIndex,
        owner: Option<(Pid, Tid)>,
        mapped_at: u64,
        alive: u64,
    ) -> Option<u64> {
        let end = self.layout.at(slot.next());
        if end > self.len.get() {
            self.file.set_len(end).ok()?;
            self.len.set(end);
        }
        let address = mapped_at + self.layout.at(slot);
        let (pid, tid) = owner.map_or((0, 0), |(pid, tid)| (pid.unsigned(), tid.unsigned()));
        let block = ThreadBlock {
            magic: MAGIC,
            version: VERSION,
            slot: slot.get(),
            pid,
            tid,
            address,
            // The lowest frame is no function's; callers' times add up in it.
            mirror_used: size_of::<MirrorFrame>() as u64,
            ring: RingCursors {
                limit: match self.policy {
                    Policy::Overwrite => u64::MAX,
                    Policy::Drop | Policy::Wait => u64::from(self.layout.ring_bytes),
                },
                policy: self.policy as u32,
                capacity_log2: self.layout.ring_bytes.trailing_zeros(),
                consumer_beat: 1,
                ..RingCursors::default()
            },
            random: 0x9e37_79b9_7f4a_7c15 ^ u64::from(slot.get()) << 32 ^ u64::from(tid),
            accumulators: u64::from(self.layout.accumulators_at()),
            records: u64::from(self.mode == Mode::Events),
            top_stack_pointer: match self.mode {
                Mode::Sample | Mode::Locks => u64::MAX,
                _ => 0,
            },
            locks: if self.layout.locks { u64::from(self.layout.counters_at()) } else { 0 },
            clock: clock_of(self.mode) as u64,
            alive,
            interval_max: if self.pc_samples.is_some() { RARELY } else { 0 },
            ..ThreadBlock::default()
        };
        // SAFETY: the slot is inside the mapping, aligned to its stride, and no thread uses it
        // yet; `ThreadBlock` is plain data.
        unsafe { self.base(slot).cast::<ThreadBlock>().write(block) };
        fence(Ordering::SeqCst);
        self.publish_layout(if slot.get() < self.layout.slots { slot.next().get() } else { 0 });
        Some(address)
    }

    /// Gives `child` the call-stack mirror of `parent`: after a fork both are inside of the same
    /// functions. Where calls are timed, these go on in the child as calls that begin at the fork,
    /// `now`: what was before is the parent's. They are given with where each is, as in
    /// [`SlotTotals::open`].
    pub fn copy_frames(
        &self,
        parent: SlotIndex,
        child: SlotIndex,
        now: u64,
    ) -> Vec<(FunctionIndex, u64)> {
        let used = self.word(parent, std::mem::offset_of!(ThreadBlock, mirror_used));
        let used = used.load(Ordering::Acquire).min(u64::from(block::MIRROR_BYTES));
        for offset in (0..used as usize).step_by(8) {
            let at = block::MIRROR as usize + offset;
            let value = self.word(parent, at).load(Ordering::Relaxed);
            self.word(child, at).store(value, Ordering::Relaxed);
        }
        let ended = std::mem::offset_of!(ThreadBlock, ended);
        let value = self.word(parent, ended).load(Ordering::Relaxed);
        self.word(child, ended).store(value, Ordering::Relaxed);
        let frame = size_of::<MirrorFrame>() as u64;
        let used = used / frame * frame;
        let copied = match self.counts_below() {
            true => self.begin_frames(child, (used, value), now),
            false => Vec::new(),
        };
        if self.samples() {
            self.begin_samples(child, used, now);
        }
        self.word(child, std::mem::offset_of!(ThreadBlock, mirror_used))
            .store(used, Ordering::Release);
        copied
    }

    /// Lets the frames of `slot`, of so many bytes, begin anew, when so many calls have `ended`.
    fn begin_frames(
        &self,
        slot: SlotIndex,
        (used, ended): (u64, u64),
        now: u64,
    ) -> Vec<(FunctionIndex, u64)> {
        use std::mem::offset_of;
        // A child has used no CPU time yet.
        let now = if self.mode == Mode::Cpu { 0 } else { now };
        let frame = size_of::<MirrorFrame>() as u64;
        let frames = (frame..used).step_by(frame as usize).zip(1..);
        let begin = |(at, nth): (u64, u64)| {
            let word = |field| self.word(slot, block::MIRROR as usize + at as usize + field);
            let function = word(offset_of!(MirrorFrame, function));
            // Callers begin before those that they call. The function's number has the lower half of
            // a word; in the other are calls that it made.
            let (number, start) = (function.load(Ordering::Relaxed) as u32, now + nth);
            function.store(u64::from(number), Ordering::Relaxed);
            word(offset_of!(MirrorFrame, start)).store(start, Ordering::Relaxed);
            word(offset_of!(MirrorFrame, child_ticks)).store(0, Ordering::Relaxed);
            word(offset_of!(MirrorFrame, ended_before)).store(ended, Ordering::Relaxed);
            (FunctionIndex(number), start)
        };
        frames.map(begin).collect()
    }

    /// Lets sampled calls and checkpoint frames of `slot`, of so many bytes, begin anew: an exit finds
    /// what is on top, and no time before the fork is the child's.
    fn begin_samples(&self, slot: SlotIndex, used: u64, now: u64) {
        use std::mem::offset_of;
        let frame = size_of::<MirrorFrame>();
        let word = |at, field| self.word(slot, block::MIRROR as usize + at + field);
        for at in (0..used as usize).step_by(frame) {
            word(at, offset_of!(MirrorFrame, start)).store(now, Ordering::Relaxed);
        }
        // The lowest frame is no function's.
        if let Some(top) = (used as usize).checked_sub(frame).filter(|top| *top > 0) {
            let top = word(top, offset_of!(MirrorFrame, stack_pointer)).load(Ordering::Relaxed);
            self.word(slot, offset_of!(ThreadBlock, top_stack_pointer))
                .store(top, Ordering::Relaxed);
        }
    }

    /// Takes what the thread stored to its ring since the last time, oldest first, and gives it
    /// to `take` in one or two pieces. With `ended` set, the thread is gone: room that it
    /// reserved and never stored to is skipped; the number of such records is returned.
    ///
    /// # Errors
    ///
    /// Those of `take`; what it did not take is counted as taken.
    pub fn drain<E>(
        &self,
        slot: SlotIndex,
        ended: bool,
        mut take: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<u64, E> {
        let ring = std::mem::offset_of!(ThreadBlock, ring);
        let cursor = |offset| self.word(slot, ring + offset);
        let size = u64::from(self.layout.ring_bytes);
        let reserved = cursor(std::mem::offset_of!(RingCursors, reserved)).load(Ordering::Acquire);
        let consumed_word = cursor(std::mem::offset_of!(RingCursors, consumed));
        let beat = cursor(std::mem::offset_of!(RingCursors, consumer_beat));
        beat.fetch_add(1, Ordering::Relaxed);
        let mut consumed = consumed_word.load(Ordering::Relaxed);
        if self.policy == Policy::Overwrite {
            if !ended {
                return Ok(0);
            }
            consumed = consumed.max(reserved.saturating_sub(size));
        }
        // Whatever the program may have written there, no more than the ring holds.
        let end = reserved.min(consumed.saturating_add(size)) & !(RECORD as u64 - 1);
        let mut holes = 0;
        let mut result = Ok(());
        let mut copy = vec![[0; RECORD]; (PIECE / RECORD).min((end - consumed) as usize / RECORD)];
        let words = self.ring(slot).as_chunks::<{ RECORD / 8 }>().0;
        while consumed < end {
            let index = (consumed & (size - 1)) as usize;
            let run = ((end - consumed) as usize).min(size as usize - index).min(PIECE);
            let (mut taken, mut stored) = (0, 0);
            for [first, last] in &words[index / RECORD..(index + run) / RECORD] {
                let value = last.load(Ordering::Acquire);
                if value != 0 {
                    let record =
                        u128::from(value) << 64 | u128::from(first.load(Ordering::Relaxed));
                    copy[stored] = record.to_le_bytes();
                    stored += 1;
                } else if ended {
                    holes += 1;
                } else {
                    // Reserved, not yet stored to: come back later.
                    break;
                }
                last.store(0, Ordering::Relaxed);
                taken += RECORD;
            }
            consumed += taken as u64;
            consumed_word.store(consumed, Ordering::Release);
            if result.is_ok() && stored > 0 {
                result = take(copy[..stored].as_flattened());
            }
            if taken < run {
                break;
            }
        }
        result.map(|()| holes)
    }

    /// What the slot says apart from its records, for numbers below `functions` and `counters`.
    ///
    /// # Errors
    ///
    /// When the memory file cannot be read.
    pub fn totals(&self, slot: SlotIndex, functions: u32, counters: u32) -> io::Result<SlotTotals> {
        use std::mem::offset_of;
        let word = |offset| self.word(slot, offset).load(Ordering::Acquire);
        let mut totals = SlotTotals {
            lost: word(offset_of!(ThreadBlock, ring) + offset_of!(RingCursors, lost)),
            unmatched_exits: word(offset_of!(ThreadBlock, unmatched_exits)),
            unwound_frames: word(offset_of!(ThreadBlock, unwound_frames)),
            mirror_overflows: word(offset_of!(ThreadBlock, mirror_overflows)),
            ended: word(offset_of!(ThreadBlock, ended)),
            ..SlotTotals::default()
        };
        let used = word(offset_of!(ThreadBlock, mirror_used)).min(u64::from(block::MIRROR_BYTES));
        let frame = size_of::<MirrorFrame>() as u64;
        for at in (frame..used / frame * frame).step_by(frame as usize) {
            let field = |field| word(block::MIRROR as usize + at as usize + field);
            let start = field(offset_of!(MirrorFrame, start));
            // The function's number has the lower half of a word, how many calls it made the upper.
            let function = field(offset_of!(MirrorFrame, function));
            if (function as u32) < functions && start != 0 {
                totals.open.push(OpenFrame {
                    function: FunctionIndex(function as u32),
                    start,
                    child_ticks: field(offset_of!(MirrorFrame, child_ticks)),
                    children: function >> 32,
                    ended_before: field(offset_of!(MirrorFrame, ended_before)),
                });
            }
        }
        let from = u64::from(self.layout.accumulators_at());
        let size = size_of::<Accumulator>() as u64;
        self.nonzero(slot, from, u64::from(functions) * size, |i, words| {
            totals.accumulators.push((FunctionIndex(i), Accumulator::new(words)));
        })?;
        let from = u64::from(self.layout.counters_at());
        self.nonzero(slot, from, u64::from(counters) * 8, |i, [count]| {
            totals.counters.push((i, count));
        })?;
        Ok(totals)
    }

    /// Visits the entries of so many words in `from..from + len` of a slot that are not zero.
    /// Reads through the file, which does not fill holes as reading memory would.
    fn nonzero<const WORDS: usize>(
        &self,
        slot: SlotIndex,
        from: u64,
        len: u64,
        visit: impl FnMut(u32, [u64; WORDS]),
    ) -> io::Result<()> {
        self.nonzero_at(self.layout.at(slot) + from, len, visit)
    }

    /// The same of `base..base + len` of the file.
    fn nonzero_at<const WORDS: usize>(
        &self,
        base: u64,
        len: u64,
        mut visit: impl FnMut(u32, [u64; WORDS]),
    ) -> io::Result<()> {
        let size = WORDS * 8;
        let mut buffer = vec![0u8; size << 10];
        let mut at = 0u64;
        while at < len {
            // SAFETY: seeking a file that we own.
            let data =
                unsafe { libc::lseek(self.file.as_raw_fd(), (base + at) as i64, libc::SEEK_DATA) };
            // Where files have no holes to find (gVisor), everything is read.
            let all = data < 0 && io::Error::last_os_error().raw_os_error() == Some(libc::EINVAL);
            let data = if all { (base + at) as i64 } else { data };
            if data < 0 || data as u64 >= base + len {
                return Ok(());
            }
            at = (data as u64 - base).max(at) / size as u64 * size as u64;
            let n = (len - at).min(buffer.len() as u64) as usize;
            self.file.read_exact_at(&mut buffer[..n], base + at)?;
            for (i, entry) in buffer[..n].chunks_exact(size).enumerate() {
                if entry.iter().all(|b| *b == 0) {
                    continue;
                }
                let mut words = [0u64; WORDS];
                for (word, bytes) in words.iter_mut().zip(entry.chunks_exact(8)) {
                    *word = u64::from_ne_bytes(bytes.try_into().expect("eight bytes"));
                }
                visit((at / size as u64) as u32 + i as u32, words);
            }
            at += n as u64;
        }
        Ok(())
    }

    /// Empties a slot for its next thread.
    pub fn clear(&self, slot: SlotIndex) {
        let offset = self.layout.at(slot);
        // SAFETY: punching a hole in a file that we own; the range is inside it. Failing leaves
        // old numbers, so the slot is zeroed by hand then.
        let done = unsafe {
            libc::fallocate(
                self.file.as_raw_fd(),
                libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE,
                offset as i64,
                self.layout.stride() as i64,
            )
        };
        if done != 0 {
            // SAFETY: inside the mapping; no thread uses the slot any more.
            unsafe { self.base(slot).write_bytes(0, self.layout.stride() as usize) };
        }
    }

    /// Notifies waiting producers that the ring has no reader any more.
    pub fn close(&self, slot: SlotIndex) {
        self.word(
            slot,
            std::mem::offset_of!(ThreadBlock, ring)
                + std::mem::offset_of!(RingCursors, consumer_beat),
        )
        .store(0, Ordering::Release);
    }
}
