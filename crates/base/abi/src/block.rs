//! The thread block: what one probed thread writes to, at its `gs` base.

use crate::ring::RingCursors;

/// Head of a thread block.
///
/// Probe code knows these offsets; so does the agent (`runtime/agent`).
#[repr(C, align(64))]
#[derive(Debug, Default)]
pub struct ThreadBlock {
    /// [`crate::MAGIC`].
    pub magic: u64,
    /// [`crate::VERSION`].
    pub version: u32,
    /// Slot number in the session.
    pub slot: u32,
    /// Kernel's process id of the owner.
    pub pid: u32,
    /// Kernel's thread id of the owner.
    pub tid: u32,
    /// Address of this block in the process that owns it; equals the `gs` base.
    pub address: u64,
    /// Bytes of call-stack mirror in use. A frame is pushed by moving this first and storing
    /// second, so that a signal handler's frames lie above a half-stored one.
    pub mirror_used: u64,
    /// Unmatched exits, which found no frame of theirs on the call-stack mirror (coroutines, frames
    /// entered before recording began).
    pub unmatched_exits: u64,
    /// Unwound frames: closed because of an exception, `longjmp` or `exit`.
    pub unwound_frames: u64,
    /// Entries that found the call-stack mirror full.
    pub mirror_overflows: u64,
    /// Cursors of the ring at [`RING`].
    pub ring: RingCursors,
    /// Seed of the sampling intervals, never 0.
    pub random: u64,
    /// Offset of the accumulators in this block.
    pub accumulators: u64,
    /// 1 if every call leaves a record in the ring.
    pub records: u64,
    /// Sampling only: [`MirrorFrame::stack_pointer`] of the frame on top, or `u64::MAX` if there is
    /// none; 0 in other modes.
    pub top_stack_pointer: u64,
    /// Programs that attach themselves only: the value that makes the sum of it, the thread pointer
    /// (`fs:0`) and the key of the process zero, so that a thread recognises a block that is not
    /// its own.
    pub owner: u64,
    /// Programs that attach themselves only: address of the code that empties a full ring, or 0.
    pub spill: u64,
    /// A [`Clock`]: what probes measure that the agent makes.
    pub clock: u64,
    /// Address of an [`Alive`], or 0.
    pub alive: u64,
    /// Calls that ended, where calls are timed.
    pub ended: u64,
    /// Sampling: the longest interval's logarithm; 0 stands for 6, one call in 64 (`runtime/agent`).
    pub interval_max: u64,
    /// Offset in this block of the tables of locks ([`crate::locking`]), or 0.
    pub locks: u64,
}

/// Says to threads whether a recorder still reads what they write.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Alive {
    /// The tracer's thread id, or 0 once dlopen hooks are not answered any more. The kernel sets
    /// bit 30 (`FUTEX_OWNER_DIED`) when that thread dies.
    pub tracer: u32,
    /// 1 once the recording has ended while threads go on.
    pub ended: u32,
}

/// What the agent's probes measure.
#[repr(u64)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    /// Ticks of the time-stamp counter.
    Ticks = 0,
    /// Nanoseconds of CPU time of the thread, which the kernel is asked for.
    Cpu = 1,
}

/// One activation of a probed function, on the call-stack mirror.
///
/// Sampling also has checkpoint frames, whose function number is `u32::MAX`. Activations whose
/// stack pointer is a checkpoint's `stack_pointer` or above are in progress since its `start`. When
/// one ends, the checkpoint moves up to its caller. Its `child_ticks` is the address at which the
/// activation goes on that it lies in. The time of the last checkpoint is the `start` of the lowest
/// frame, which is of no function.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct MirrorFrame {
    /// Time-stamp counter at entry.
    pub start: u64,
    /// Stack pointer at entry: the address of the return address. Shows at any exit whose frame is
    /// on top, without reading return addresses.
    pub stack_pointer: u64,
    /// Ticks spent in probed callees.
    pub child_ticks: u64,
    /// Number of the function in the session ([`crate::record::FunctionId::index`]).
    pub function: u32,
    /// Calls of probed functions that it made. Sampling: calls that this one stands for.
    pub children: u32,
    /// [`ThreadBlock::ended`] at entry: what ended since then are calls below it.
    pub ended_before: u64,
}

/// What a probed function accumulates in each thread, exact even when records are lost.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Accumulator {
    /// Calls that ended.
    pub calls: u64,
    /// Ticks from entry to exit, callees included; nested activations count each. Counting: exits.
    pub total_ticks: u64,
    /// Ticks outside probed callees. Counting: calls of a function that every call which enters it
    /// also leaves; they are entries and exits at once.
    pub self_ticks: u64,
    /// Sampling only: calls until the next one is timed (low 32 bits); above, the logarithm of the
    /// interval in force (8 bits), samples taken at it (8 bits), and calls from the last sample to
    /// this one (16 bits).
    pub sampling: u64,
    /// Calls of probed functions that its calls made.
    pub children: u64,
    /// Calls of probed functions below its calls, however deep; counted for each activation
    /// around them, as their time is.
    pub below: u64,
}

impl Accumulator {
    /// From its words, in their order.
    pub const fn new(words: [u64; size_of::<Accumulator>() / 8]) -> Accumulator {
        let [calls, total_ticks, self_ticks, sampling, children, below] = words;
        Accumulator { calls, total_ticks, self_ticks, sampling, children, below }
    }

    /// Ticks outside probed callees. A signal handler that runs after an exit has read the clock,
    /// and before the call is popped from the call-stack mirror, counts as called by the function,
    /// which was over: that may make the difference negative.
    pub const fn own_ticks(&self) -> u64 {
        if self.self_ticks.cast_signed() < 0 { 0 } else { self.self_ticks }
    }

    /// Counting: the numbers of entries and of exits.
    pub const fn entries_and_exits(&self) -> (u64, u64) {
        let passed = self.self_ticks;
        (self.calls.wrapping_add(passed), self.total_ticks.wrapping_add(passed))
    }
}

/// Sampling: a checkpoint frame is left at the end of a sample if the last one is so many ticks
/// old, and calls that last as long again from a checkpoint on are recorded by themselves.
pub const TICKS_PER_MARK: u64 = 1 << 17;

/// Words of an [`Accumulator`] that a user probe may use for its counters.
pub const OWN_WORDS: usize = 4;

/// Offset of the call-stack mirror in a thread block.
pub const MIRROR: u32 = 0x1000;
/// Bytes of call-stack mirror: 131,072 frames.
pub const MIRROR_BYTES: u32 = 5 << 20;
/// Offset of the ring.
pub const RING: u32 = MIRROR + MIRROR_BYTES + 0x1000;

/// Offset of the accumulators and counters in a thread block whose ring has this many bytes.
pub const fn counters(ring_bytes: u32) -> u32 {
    RING + ring_bytes + 0x1000
}

const _: () = {
    use core::mem::offset_of;
    assert!(size_of::<ThreadBlock>() == 320);
    assert!(offset_of!(ThreadBlock, address) == 24);
    assert!(offset_of!(ThreadBlock, mirror_used) == 32);
    assert!(offset_of!(ThreadBlock, unmatched_exits) == 40);
    assert!(offset_of!(ThreadBlock, unwound_frames) == 48);
    assert!(offset_of!(ThreadBlock, mirror_overflows) == 56);
    assert!(offset_of!(ThreadBlock, ring) == 64);
    assert!(offset_of!(ThreadBlock, random) == 192);
    assert!(offset_of!(ThreadBlock, accumulators) == 200);
    assert!(offset_of!(ThreadBlock, records) == 208);
    assert!(offset_of!(ThreadBlock, top_stack_pointer) == 216);
    assert!(offset_of!(ThreadBlock, owner) == 224);
    assert!(offset_of!(ThreadBlock, spill) == 232);
    assert!(offset_of!(ThreadBlock, clock) == 240);
    assert!(offset_of!(ThreadBlock, alive) == 248);
    assert!(offset_of!(ThreadBlock, ended) == 256);
    assert!(offset_of!(ThreadBlock, interval_max) == 264);
    assert!(size_of::<MirrorFrame>() == 40);
    assert!(size_of::<Accumulator>() == 48);
};
