//! What probes cost on this machine, measured before every recording.
//!
//! An empty function is given the probes of the session's mode, exactly as rewriting would, and
//! called many times in this process, next to the same function without probes. What the probes
//! themselves measure of it is the part of their cost that falls inside of measured intervals;
//! the rest of what a call takes longer falls outside, on the caller.
//!
//! Calls are sampled here as in programs, now and then, and with jumps in between that cannot be
//! predicted: where every call is sampled, or the same in turns, the processor learns to be ready.

use fettle_stats::median;
use std::ptr;
use std::sync::OnceLock;
use std::time::Instant;

use fettle_abi::block::{self, Accumulator, MirrorFrame, ThreadBlock};
use fettle_abi::record::{CallRecord, FunctionId};
use fettle_abi::ring::RingCursors;
use fettle_abi::{MAGIC, VERSION};
use fettle_code::{Mode, ProbeFixup, Probes};
use fettle_isa::{Gpr, RegSet};
use fettle_rewrite::agent;
use fettle_rewrite::probe::{self, Snippet};
use fettle_trace::ProbeCost;
use memmap2::MmapMut;

const RING_BYTES: u32 = 1 << 16;
/// Offset of the accumulators in the thread block.
const ACCUMULATORS: u32 = block::counters(RING_BYTES);
const CALLS: u32 = 20_000;
const ROUNDS: usize = 9;
/// [`Accumulator::sampling`] of a function that is called often, and of one that is not sampled.
const OFTEN: u64 = 6 << 32;
const NEVER: u64 = i32::MAX as u64;

/// The cost of one call's probes under `mode`; zeros for modes that measure no time.
pub fn measure(mode: Mode) -> ProbeCost {
    if !mode.is_timed() {
        return ProbeCost::default();
    }
    // A thread of its own, as its gs base is set to a thread block: that would do no harm here, but
    // callers should not have to know.
    let worker = std::thread::spawn(move || measure_here(mode));
    worker.join().ok().flatten().unwrap_or_default()
}

/// What sampling takes, in ticks.
#[derive(Clone, Copy, Debug, Default)]
pub struct SampleCost {
    /// The part of a sampled call's probes that it measures.
    pub inner: f64,
    /// All that a sampled call's probes take.
    pub sampled: f64,
    /// What the probes of a call take that is not sampled.
    pub passed: f64,
    /// Nanoseconds of a tick.
    pub ns_per_tick: f64,
}

/// The cost of sampling; measured once.
pub fn of_samples() -> SampleCost {
    static COST: OnceLock<SampleCost> = OnceLock::new();
    *COST.get_or_init(|| {
        let worker = std::thread::spawn(measure_samples);
        worker.join().ok().flatten().unwrap_or_default()
    })
}

/// A function with probes and one without, ready to be called by the thread that made this.
struct Rig {
    memory: MmapMut,
    /// Mapped as long as it is called.
    _code: memmap2::Mmap,
    with: extern "sysv64" fn(),
    without: extern "sysv64" fn(),
}

impl Rig {
    fn new(mode: Mode, body: &[u8]) -> Option<Rig> {
        let mut memory = MmapMut::map_anon(ACCUMULATORS as usize + 4096).ok()?;
        let at = memory.as_mut_ptr();
        let head = ThreadBlock {
            magic: MAGIC,
            version: VERSION,
            address: at as u64,
            mirror_used: size_of::<MirrorFrame>() as u64,
            ring: RingCursors {
                limit: u64::MAX,
                policy: 1,
                capacity_log2: RING_BYTES.trailing_zeros(),
                ..RingCursors::default()
            },
            random: 1,
            accumulators: u64::from(ACCUMULATORS),
            records: u64::from(mode == Mode::Events),
            top_stack_pointer: u64::MAX,
            clock: crate::slots::clock_of(mode) as u64,
            ..ThreadBlock::default()
        };
        // SAFETY: the map is larger than a block, aligned to pages, and ours alone.
        unsafe { at.cast::<ThreadBlock>().write(head) };
        let (code, with, without) = assemble(mode, ACCUMULATORS, body);
        let mut map = MmapMut::map_anon(code.len()).ok()?;
        map.copy_from_slice(&code);
        let map = map.make_exec().ok()?;
        // SAFETY: both offsets are entries of complete functions without arguments that keep the
        // System V ABI: `ret` alone, and probes before a `ret`. `map` outlives every call.
        let (with, without) = unsafe {
            let base = map.as_ptr();
            (
                std::mem::transmute::<*const u8, extern "sysv64" fn()>(base.add(with)),
                std::mem::transmute::<*const u8, extern "sysv64" fn()>(base.add(without)),
            )
        };
        set_gs(at as u64)?;
        Some(Rig { memory, _code: map, with, without })
    }

    fn read(&self) -> Accumulator {
        // SAFETY: the accumulator of function 0 lies inside the memory.
        unsafe { ptr::read_volatile(self.memory.as_ptr().add(ACCUMULATORS as usize).cast()) }
    }

    /// Samples that were recorded.
    fn samples(&self) -> u64 {
        let at =
            std::mem::offset_of!(ThreadBlock, ring) + std::mem::offset_of!(RingCursors, reserved);
        // SAFETY: that field of the block, inside the memory.
        let bytes: u64 = unsafe { ptr::read_volatile(self.memory.as_ptr().add(at).cast()) };
        bytes / (2 * size_of::<CallRecord>() as u64)
    }

    /// Says when the next call is sampled (`runtime/agent`).
    fn set_sampling(&mut self, sampling: u64) {
        let at = ACCUMULATORS as usize + std::mem::offset_of!(Accumulator, sampling);
        // SAFETY: that field of the accumulator of function 0, inside the memory.
        unsafe { ptr::write_volatile(self.memory.as_mut_ptr().add(at).cast(), sampling) }
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        set_gs(0);
    }
}

fn measure_here(mode: Mode) -> Option<ProbeCost> {
    if mode == Mode::Sample {
        let cost = of_samples();
        let ns = |ticks: f64| ticks * cost.ns_per_tick;
        // What a sample has in it is taken out of it at once.
        return Some(ProbeCost { inner_ns: ns(cost.passed), outer_ns: 0.0 });
    }
    let rig = Rig::new(mode, &[])?;
    let mut inner = Vec::new();
    let mut outer = Vec::new();
    for _ in 0..ROUNDS {
        let before = rig.read();
        let (plain_ns, _) = time(rig.without, CALLS);
        let (probed_ns, ticks) = time(rig.with, CALLS);
        let after = rig.read();
        let calls = (after.calls - before.calls).max(1) as f64;
        let ns_per_tick = probed_ns / ticks.max(1) as f64;
        let inside = (after.total_ticks - before.total_ticks) as f64 / calls * ns_per_tick;
        let whole = (probed_ns - plain_ns) / f64::from(CALLS);
        inner.push(inside);
        outer.push((whole - inside).max(0.0));
    }
    Some(ProbeCost { inner_ns: median(&inner), outer_ns: median(&outer) })
}

fn measure_samples() -> Option<SampleCost> {
    let passed = measure_passed()?;
    let mut rig = Rig::new(Mode::Sample, &[])?;
    let [mut inner, mut sampled, mut rates] = [const { Vec::new() }; 3];
    for _ in 0..ROUNDS {
        rig.set_sampling(NEVER);
        let (ns, ticks) = time(rig.with, CALLS);
        rates.push(ns / ticks.max(1) as f64);
        let never = walk(rig.with);
        rig.set_sampling(OFTEN);
        let (before, samples) = (rig.read(), rig.samples());
        let often = walk(rig.with);
        let (after, samples) = (rig.read(), rig.samples() - samples);
        let calls = (after.calls - before.calls).max(1) as f64;
        inner.push((after.total_ticks - before.total_ticks) as f64 / calls);
        sampled.push(often.saturating_sub(never) as f64 / samples.max(1) as f64);
    }
    Some(SampleCost {
        inner: median(&inner),
        sampled: median(&sampled),
        passed,
        ns_per_tick: median(&rates),
    })
}

/// Ticks that the probes of a call take which is not sampled. An idle processor would do that in
/// parallel with a call of an empty function, so the function is one that keeps it busy.
fn measure_passed() -> Option<f64> {
    // lea eax, [rdi + 1]; lea ecx, [rdi + 1]; lea edx, [rdi + 1]
    let body = [0x8d, 0x47, 0x01, 0x8d, 0x4f, 0x01, 0x8d, 0x57, 0x01].repeat(16);
    let mut rig = Rig::new(Mode::Sample, &body)?;
    rig.set_sampling(NEVER);
    let rounds = (0..ROUNDS).map(|_| {
        let plain = time(rig.without, CALLS).1;
        time(rig.with, CALLS).1.saturating_sub(plain) as f64 / f64::from(CALLS)
    });
    Some(median(&rounds.collect::<Vec<f64>>()))
}

/// Nanoseconds and ticks that so many calls of `f` take.
fn time(f: extern "sysv64" fn(), calls: u32) -> (f64, u64) {
    let begin = Instant::now();
    let ticks = crate::clock::tsc();
    for _ in 0..calls {
        f();
    }
    let ticks = crate::clock::tsc() - ticks;
    (begin.elapsed().as_nanos() as f64, ticks)
}

/// Ticks that [`CALLS`] calls of `f` take, with unpredictable jumps in between.
fn walk(f: extern "sysv64" fn()) -> u64 {
    let ticks = crate::clock::tsc();
    let mut random = 1u64;
    for _ in 0..CALLS {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        for bit in [1, 1 << 20] {
            if random & bit != 0 {
                std::hint::black_box(random);
            }
        }
        f();
    }
    crate::clock::tsc() - ticks
}

fn set_gs(base: u64) -> Option<()> {
    const ARCH_SET_GS: i32 = 0x1001;
    // SAFETY: nothing in this thread uses gs: neither Rust nor glibc do on x86-64 Linux.
    let result = unsafe { libc::syscall(libc::SYS_arch_prctl, ARCH_SET_GS, base) };
    (result == 0).then_some(())
}

/// The agent, a function with probes and one without, which do what `body` does; gives the code and
/// the functions' offsets.
fn assemble(mode: Mode, accumulators: u32, body: &[u8]) -> (Vec<u8>, usize, usize) {
    let mut code = agent::CODE.to_vec();
    let align = |code: &mut Vec<u8>| code.resize(code.len().next_multiple_of(16), 0x90);
    align(&mut code);
    let with = code.len();
    // What is dead at the entry and at the `ret` of a function that calls others.
    let entry = probe::entry(
        Probes::new(mode),
        RegSet::of(&[Gpr::Rax, Gpr::R10, Gpr::R11]).union(RegSet::FLAGS),
    );
    let exit = probe::exit(Probes::new(mode), true, RegSet::CALLER_SAVED.minus(RegSet::RESULTS));
    let inline = [code.len(), code.len() + entry.code.len() + body.len()];
    code.extend_from_slice(&entry.code);
    code.extend_from_slice(body);
    code.extend_from_slice(&exit.code);
    code.push(0xc3);
    let mut cold = [0; 2];
    for (i, snippet) in [&entry, &exit].into_iter().enumerate() {
        cold[i] = code.len();
        code.extend_from_slice(&snippet.cold);
    }
    for (i, snippet) in [&entry, &exit].into_iter().enumerate() {
        fill(&mut code, snippet, inline[i], cold[i], accumulators);
    }
    align(&mut code);
    let without = code.len();
    code.extend_from_slice(body);
    code.push(0xc3);
    (code, with, without)
}

fn fill(code: &mut [u8], snippet: &Snippet, inline: usize, cold: usize, accumulators: u32) {
    let id = FunctionId::from_index(0).expect("the first");
    let all = snippet
        .fixups
        .iter()
        .map(|(at, f)| (inline + *at as usize, f))
        .chain(snippet.cold_fixups.iter().map(|(at, f)| (cold + *at as usize, f)));
    for (at, fixup) in all {
        let distance = |to: usize| (to as u32).wrapping_sub(at as u32 + 4);
        let value = match fixup {
            ProbeFixup::Accumulator(field) => accumulators + field,
            ProbeFixup::Counter(_) | ProbeFixup::Number => 0,
            ProbeFixup::IdHigh => id.high(),
            ProbeFixup::IdLow => id.low(),
            ProbeFixup::RingMask => RING_BYTES - 1,
            ProbeFixup::Agent(entry) => distance(agent::entry_offset(*entry) as usize),
            ProbeFixup::Inline(to) => distance(inline + *to as usize),
            ProbeFixup::OutOfLine(to) => distance(cold + *to as usize),
        };
        code[at..at + 4].copy_from_slice(&value.to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_are_plausible() {
        for mode in [Mode::Time, Mode::Events, Mode::Sample] {
            let cost = measure(mode);
            // At least one reading of the clock, less than a microsecond; passing a probe reads none.
            let least = if mode == Mode::Sample { 0.0 } else { 1.0 };
            assert!(cost.inner_ns >= least && cost.inner_ns < 1000.0, "{mode:?}: {cost:?}");
            assert!(cost.outer_ns < 1000.0, "{mode:?}: {cost:?}");
            println!("{mode:?}: {cost:?}");
        }
    }
}
