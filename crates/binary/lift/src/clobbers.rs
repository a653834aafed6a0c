//! Which registers a call of a function may change, callees included.
//!
//! GCC's `-fipa-ra`, on at `-O2`, lets a caller keep a value in a caller-saved register across a
//! call of a function that it knows not to write that register. A probe may therefore write only
//! what its function writes anyway (or put back what it wrote).

use fettle_isa::RegSet;

use crate::summary::Summary;

/// For each function, in order: what a call of it may change of what the ABI lets calls change.
/// `callers` are [`crate::summary::callers`].
pub fn solve(summaries: &[Summary], callers: &[Vec<u32>]) -> Vec<RegSet> {
    let own = |summary: &Summary| match summary.closed {
        true => summary.written.intersection(RegSet::CALLER_SAVED),
        // A caller of what is not known may change all that calls may.
        false => RegSet::CALLER_SAVED,
    };
    let mut sets: Vec<RegSet> = summaries.iter().map(own).collect();
    let mut work: Vec<usize> = (0..summaries.len()).collect();
    while let Some(callee) = work.pop() {
        for caller in &callers[callee] {
            let caller = *caller as usize;
            let joined = sets[caller].union(sets[callee]);
            if joined != sets[caller] {
                sets[caller] = joined;
                work.push(caller);
            }
        }
    }
    sets
}
