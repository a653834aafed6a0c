//! Registers that functions return values in, beyond what the ABI says.
//!
//! Hand-written assembly (OpenSSL's, say) has local functions with conventions of their own:
//! their callers find values in any register. Which they are shows in their callers, which read a
//! register after a call that may have written it, or call a function that does. A probe at such a
//! function's exits must leave these registers alone.

use std::ops::Range;

use fettle_image::{Image, LinkAddr};
use fettle_isa::RegSet;

use crate::module::Lifted;
use crate::summary::{Call, Index, Live, Summary};

/// What is known of each lifted function, in order.
pub struct Solved {
    /// The registers that its callers read after it although the ABI says that it may have changed
    /// them.
    pub results: Vec<RegSet>,
    /// The registers, of those that calls may change, that it may read before it writes them.
    pub inputs: Vec<RegSet>,
}

/// Finds what callers and functions read of each other's registers.
pub fn solve(
    image: &Image,
    lifted: &Lifted,
    index: &Index,
    summaries: &mut [Summary],
    callers: &[Vec<u32>],
    clobbers: &[RegSet],
) -> Solved {
    let functions = &lifted.functions;
    let pointed = read_behind(summaries, clobbers);
    let summaries = &*summaries;
    let mut solver = Solver { clobbers, live: Vec::new() };
    let inputs = inputs(summaries, callers, &mut solver);
    let mut results = vec![pointed; functions.len()];
    // Of callers that are not understood nothing is known.
    for callee in entered_from_elsewhere(image, lifted, index) {
        results[callee] = RegSet::CALLER_SAVED;
    }
    // What goes on behind another stack's return may be a function that has its arguments in registers.
    for (_, results) in summaries.iter().zip(&mut results).filter(|(s, _)| s.changes_stacks) {
        *results = RegSet::CALLER_SAVED;
    }
    // What it does not write it keeps; but flags are written by nearly everything, probes too.
    let wanted = |callee: usize, live: RegSet| {
        live.intersection(clobbers[callee].union(RegSet::FLAGS)).minus(BY_THE_ABI)
    };
    let mut work: Vec<usize> = (0..functions.len()).rev().collect();
    // What each was solved with, if it was.
    let mut solved: Vec<Option<RegSet>> = vec![None; functions.len()];
    // What a function returns it may have from one that it calls.
    while let Some(i) = work.pop() {
        let (own, summary) = (results[i], &summaries[i]);
        // Each register is a question of its own: a register that is new for no function adds nothing.
        let reported = solved[i].replace(own);
        let tells = |callee: &u32| {
            let callee = *callee as usize;
            reported.is_none_or(|reported| {
                !results[callee].is_superset(wanted(callee, own.minus(reported)))
            })
        };
        if !summary.callees().iter().any(tells) {
            continue;
        }
        solver.wanted(summary, own, &inputs, |callee, live| {
            let joined = results[callee].union(wanted(callee, live));
            if joined != results[callee] {
                results[callee] = joined;
                // Others are still to come.
                if solved[callee].is_some() {
                    work.push(callee);
                }
            }
        });
    }
    Solved { results, inputs }
}

/// What callers read behind calls of code that they do not know, although the ABI says that calls may
/// change it: any function may be called through a pointer, and by its name from elsewhere. Notes in
/// the summaries whose calls keep more than the ABI wants.
///
/// Only what is read in the same block counts. What begins behind a noreturn call reads
/// registers that were set elsewhere.
fn read_behind(summaries: &mut [Summary], clobbers: &[RegSet]) -> RegSet {
    const NOT_RESULTS: RegSet = RegSet::CALLER_SAVED.minus(RegSet::RESULTS);
    let mut pointed = RegSet::NONE;
    for summary in summaries {
        let mut kept = RegSet::NONE;
        summary.read_behind_calls(|call, read| match call {
            Call::Indirect | Call::Foreign | Call::Unknown => {
                pointed = pointed.union(read.intersection(NOT_RESULTS));
                kept = kept.union(read);
            }
            Call::Known(to) => kept = kept.union(read.intersection(clobbers[to as usize])),
            Call::None | Call::Constant => {}
        });
        summary.keeps = !kept.intersection(NOT_RESULTS).is_empty();
    }
    pointed
}

/// What callers may read anyway.
const BY_THE_ABI: RegSet = RegSet::RESULTS.union(RegSet::VECTOR_COUNT);

/// Functions that code which was not lifted may call or jump to: every place that would do so counts.
/// Such code is not of the skipped functions alone, whose other parts may lie anywhere.
fn entered_from_elsewhere(image: &Image, lifted: &Lifted, index: &Index) -> Vec<usize> {
    let mut known: Vec<_> = lifted.functions.iter().flat_map(|f| f.ranges.iter()).collect();
    known.sort_unstable_by_key(|range| (range.start, range.end));
    let mut entered = Vec::new();
    for segment in image.segments().iter().filter(|segment| segment.executable) {
        let len = usize::try_from(segment.file_size).unwrap_or(0);
        let Some(bytes) = image.read(segment.start, len) else { continue };
        let (start, end) = (segment.start.0, segment.start.0 + len as u64);
        let known = known.iter().map(|range| (range.start.0, range.end.0));
        let here = known.filter(|range| start <= range.0 && range.0 < end);
        let mut at = start;
        for (from, to) in here.chain([(end, end)]) {
            targets((bytes, start), at..from, index, &mut entered);
            at = at.max(to);
        }
    }
    entered
}

/// Known functions that calls and jumps lead to which may begin in `gap` of the code `bytes`, which
/// begin at `start`.
fn targets((bytes, start): (&[u8], u64), gap: Range<u64>, index: &Index, found: &mut Vec<usize>) {
    let byte = |at: u64| bytes.get((at - start) as usize).copied().unwrap_or(0);
    for at in gap {
        let operand = match byte(at) {
            // call, jmp
            0xe8 | 0xe9 => at + 1,
            // jcc
            0x0f if byte(at + 1) & 0xf0 == 0x80 => at + 2,
            // Short ones.
            0xeb | 0x70..=0x7f => {
                let to = (at + 2).wrapping_add_signed(i64::from(byte(at + 1) as i8));
                found.extend(index.get(&LinkAddr(to)));
                continue;
            }
            _ => continue,
        };
        let distance = i32::from_le_bytes([0, 1, 2, 3].map(|i| byte(operand + i)));
        let to = (operand + 4).wrapping_add_signed(distance.into());
        found.extend(index.get(&LinkAddr(to)));
    }
}

/// What a call reads and changes; `keeps` is about the function that it is in.
fn does(call: Call, keeps: bool, inputs: &[RegSet], clobbers: &[RegSet]) -> (RegSet, RegSet) {
    let (reads, changes) = match call {
        // A compiler that knows the callee may count on any register.
        Call::None | Call::Constant => (RegSet::NONE, RegSet::NONE),
        Call::Known(callee) => (inputs[callee as usize], clobbers[callee as usize]),
        // It may read any register.
        Call::Unknown => (RegSet::CALLER_SAVED, RegSet::CALLER_SAVED),
        // A callee that gets what the ABI passes gets what is put there between calls.
        Call::Foreign | Call::Indirect => (RegSet::NONE, RegSet::CALLER_SAVED),
    };
    (reads, if keeps { RegSet::NONE } else { changes })
}

/// For each function: what of the registers that calls may change is read in it, or in functions that
/// it calls, before it is written.
fn inputs(summaries: &[Summary], callers: &[Vec<u32>], solver: &mut Solver<'_>) -> Vec<RegSet> {
    let mut inputs = vec![RegSet::NONE; summaries.len()];
    let mut work = callers_first(summaries);
    let mut waiting = vec![true; summaries.len()];
    while let Some(i) = work.pop() {
        waiting[i] = false;
        let summary = &summaries[i];
        solver.solve(summary, RegSet::NONE, &inputs);
        let read = summary.at_entry(&solver.live);
        let joined = inputs[i].union(read.intersection(RegSet::CALLER_SAVED));
        let new = joined.minus(inputs[i]);
        inputs[i] = joined;
        for caller in callers[i].iter().map(|caller| *caller as usize) {
            // Each register is a question of its own: a caller that reads it anyway learns nothing.
            let learns = !inputs[caller].is_superset(new);
            if learns && !std::mem::replace(&mut waiting[caller], true) {
                work.push(caller);
            }
        }
    }
    inputs
}

/// All functions, each before those that it calls as far as calls are no circles: from the end of the
/// list, most are solved once.
fn callers_first(summaries: &[Summary]) -> Vec<usize> {
    let mut order = Vec::with_capacity(summaries.len());
    let mut seen = vec![false; summaries.len()];
    let mut path: Vec<(usize, usize)> = Vec::new();
    for root in 0..summaries.len() {
        if !std::mem::replace(&mut seen[root], true) {
            path.push((root, 0));
        }
        while let Some((function, next)) = path.last_mut() {
            match summaries[*function].callees().get(*next) {
                Some(callee) => {
                    *next += 1;
                    if !std::mem::replace(&mut seen[*callee as usize], true) {
                        path.push((*callee as usize, 0));
                    }
                }
                None => {
                    order.push(*function);
                    path.pop();
                }
            }
        }
    }
    order.reverse();
    order
}

/// Solves functions backwards, one after another in the same memory.
struct Solver<'a> {
    /// What calls of functions may change.
    clobbers: &'a [RegSet],
    live: Vec<Live>,
}

impl Solver<'_> {
    /// Finds what is needed at the borders of blocks of a function, if its callers themselves read
    /// `own`.
    fn solve(&mut self, summary: &Summary, own: RegSet, inputs: &[RegSet]) {
        let Solver { clobbers, live } = self;
        let does = |call| does(call, summary.keeps, inputs, clobbers);
        summary.solve(|_| own, does, inputs, live);
    }

    /// Calls `tell` with every known function that a function calls and what may be read after it,
    /// if its callers themselves read `own`.
    fn wanted(
        &mut self,
        summary: &Summary,
        own: RegSet,
        inputs: &[RegSet],
        mut notify: impl FnMut(usize, RegSet),
    ) {
        summary.tails().for_each(|callee| notify(callee as usize, own));
        if !summary.calls_known {
            return;
        }
        self.solve(summary, own, inputs);
        let does = |call| does(call, summary.keeps, inputs, self.clobbers);
        summary.calls(&self.live, does, |callee, live| notify(callee as usize, live));
    }
}
