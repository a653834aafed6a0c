//! What probes cost on this machine, measured before every recording.
//!
//! An empty function is given the probes of the session's mode, exactly as rewriting would, and
//! called many times in this process, next to the same function without probes. What the probes
//! themselves measure of it is the part of their cost that falls inside of measured intervals;
//! the rest of what a call takes longer falls outside, on the caller.

use std::ptr;
use std::time::Instant;

use fettle_abi::block::{self, Accumulator, ShadowFrame, ThreadBlock};
use fettle_abi::record::FunctionId;
use fettle_abi::ring::RingCursors;
use fettle_abi::{MAGIC, VERSION};
use fettle_isa::{Gpr, RegSet};
use fettle_rewrite::Mode;
use fettle_rewrite::agent;
use fettle_rewrite::probe::{self, ProbeFixup, Probes, Snippet};
use fettle_trace::ProbeCost;
use memmap2::MmapMut;

const RING_BYTES: u32 = 1 << 16;
const CALLS: u32 = 20_000;
const ROUNDS: usize = 9;

/// The cost of one call's probes under `mode`; zeros for modes that measure no time.
pub fn measure(mode: Mode) -> ProbeCost {
    if !mode.is_timed() {
        return ProbeCost::default();
    }
    // A thread of its own: its gs base is set to a thread block, which nothing else would mind,
    // but nobody should have to know.
    let worker = std::thread::spawn(move || measure_here(mode));
    worker.join().ok().flatten().unwrap_or_default()
}

fn measure_here(mode: Mode) -> Option<ProbeCost> {
    let accumulators = block::counters(RING_BYTES);
    let mut memory = MmapMut::map_anon(accumulators as usize + 4096).ok()?;
    let at = memory.as_mut_ptr();
    let head = ThreadBlock {
        magic: MAGIC,
        version: VERSION,
        address: at as u64,
        shadow_used: size_of::<ShadowFrame>() as u64,
        ring: RingCursors {
            limit: u64::MAX,
            policy: 1,
            capacity_log2: RING_BYTES.trailing_zeros(),
            ..RingCursors::default()
        },
        random: 1,
        accumulators: u64::from(accumulators),
        records: u64::from(mode == Mode::Events),
        top_stack_pointer: u64::MAX,
        clock: crate::slots::clock_of(mode) as u64,
        ..ThreadBlock::default()
    };
    // SAFETY: the map is larger than a block, aligned to pages, and ours alone.
    unsafe { at.cast::<ThreadBlock>().write(head) };

    let (code, with, without) = assemble(mode, accumulators);
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
    let mut inner = Vec::new();
    let mut outer = Vec::new();
    for _ in 0..ROUNDS {
        let before = read_accumulator(at, accumulators);
        let (plain_ns, _) = time(without);
        let (probed_ns, ticks) = time(with);
        let after = read_accumulator(at, accumulators);
        let calls = (after.calls - before.calls).max(1) as f64;
        let ns_per_tick = probed_ns / ticks.max(1) as f64;
        let inside = (after.total_ticks - before.total_ticks) as f64 / calls * ns_per_tick;
        let whole = (probed_ns - plain_ns) / f64::from(CALLS);
        inner.push(inside);
        outer.push((whole - inside).max(0.0));
    }
    set_gs(0)?;
    Some(ProbeCost { inner_ns: median(inner), outer_ns: median(outer) })
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Nanoseconds and ticks that all calls of `f` take.
fn time(f: extern "sysv64" fn()) -> (f64, u64) {
    let begin = Instant::now();
    let ticks = crate::clock::tsc();
    for _ in 0..CALLS {
        f();
    }
    let ticks = crate::clock::tsc() - ticks;
    (begin.elapsed().as_nanos() as f64, ticks)
}

fn read_accumulator(at: *const u8, accumulators: u32) -> Accumulator {
    // SAFETY: the accumulator of function 0 lies inside the map that `at` begins.
    unsafe { ptr::read_volatile(at.add(accumulators as usize).cast()) }
}

fn set_gs(base: u64) -> Option<()> {
    const ARCH_SET_GS: i32 = 0x1001;
    // SAFETY: nothing in this thread uses gs: neither Rust nor glibc do on x86-64 Linux.
    let result = unsafe { libc::syscall(libc::SYS_arch_prctl, ARCH_SET_GS, base) };
    (result == 0).then_some(())
}

/// The agent, a function with probes and one without; gives the code and the functions' offsets.
fn assemble(mode: Mode, accumulators: u32) -> (Vec<u8>, usize, usize) {
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
    let inline = [code.len(), code.len() + entry.code.len()];
    code.extend_from_slice(&entry.code);
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
        for mode in [Mode::Time, Mode::Events] {
            let cost = measure(mode);
            // At least one reading of the clock, less than a microsecond.
            assert!(cost.inner_ns > 1.0 && cost.inner_ns < 1000.0, "{mode:?}: {cost:?}");
            assert!(cost.outer_ns < 1000.0, "{mode:?}: {cost:?}");
            println!("{mode:?}: {cost:?}");
        }
    }
}
