//! Which functions are laid out together: roots and what they call.

use crate::code::{Callee, Code, End, Pointer};

/// What is hot.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Hot {
    /// Blocks that run at least once.
    Run,
    /// Blocks that run more often than so many times: a share of the calls of roots.
    MoreThan(u64),
}

impl Hot {
    /// The paper's share of the root's calls that a hot block exceeds.
    pub const SHARE: f64 = 0.05;

    /// Blocks that run more often than `share` of the times that any of `roots` is called.
    pub fn of_roots(code: &Code, roots: &[usize], share: f64) -> Hot {
        let calls: f64 = roots.iter().map(|root| code.procedures[*root].calls as f64).sum();
        Hot::MoreThan((calls * share) as u64)
    }

    /// Whether a block that ran `count` times is hot.
    pub fn is(self, count: u64) -> bool {
        match self {
            Hot::Run => count > 0,
            Hot::MoreThan(n) => count > n,
        }
    }
}

/// The functions that `roots` call directly or indirectly, breadth first. If indirect calls with
/// unknown targets are among them, any function is added that was called more often than its known
/// callers explain.
pub fn group(code: &Code, roots: &[usize]) -> Vec<usize> {
    let called = known_calls(code);
    let mut seen = vec![false; code.procedures.len()];
    let mut order = roots.to_vec();
    roots.iter().for_each(|root| seen[*root] = true);
    let mut through_pointers = false;
    let mut next = 0;
    while next < order.len() || !through_pointers {
        let Some(p) = order.get(next).copied() else {
            through_pointers = true;
            if calls_through_pointers(code, &order) {
                let unknown = |p: &usize| is_more(code.procedures[*p].calls, called[*p]);
                let more = (0..seen.len()).filter(unknown);
                let more: Vec<usize> = more.filter(|p| !seen[*p]).collect();
                more.iter().for_each(|p| seen[*p] = true);
                order.extend(more);
            }
            continue;
        };
        next += 1;
        let pointers = &code.procedures[p].pointers;
        for (to, _) in pointers.iter().flat_map(|pointer| &pointer.targets) {
            if !std::mem::replace(&mut seen[*to], true) {
                order.push(*to);
            }
        }
        for block in code.procedures[p].blocks.iter().filter(|b| b.count > 0) {
            let tail = match block.end {
                End::Tail { callee, .. } => Some(callee),
                _ => None,
            };
            for callee in block.calls.iter().map(|c| c.callee).chain(tail) {
                if let Callee::Procedure(to) = callee
                    && !std::mem::replace(&mut seen[to], true)
                {
                    order.push(to);
                }
            }
        }
    }
    order
}

/// How often each function was called from places that are known.
pub fn known_calls(code: &Code) -> Vec<u64> {
    let mut known = vec![0u64; code.procedures.len()];
    for (_, _, to, count) in code.calls() {
        known[to] = known[to].saturating_add(count);
    }
    known
}

/// Whether some indirect calls of `group` have unknown targets.
fn calls_through_pointers(code: &Code, group: &[usize]) -> bool {
    group.iter().map(|p| &code.procedures[*p]).any(|procedure| {
        let unknown =
            |pointer: &Pointer| is_more(procedure.blocks[pointer.block].count, pointer.known);
        procedure.pointers.iter().any(unknown)
    })
}

/// Whether there were more calls than are known. Some are always lost: counts of targets begin when
/// one is seen for the second time, and threads overwrite each other's.
fn is_more(all: u64, known: u64) -> bool {
    all.saturating_sub(known) > all / 8
}

/// The functions of `group` alone, in that order; calls of others lead outside.
pub fn only(code: &Code, group: &[usize]) -> Code {
    let number = |p: usize| group.iter().position(|g| *g == p);
    let keep = |callee: &mut Callee| {
        if let Callee::Procedure(to) = *callee {
            *callee = number(to).map_or(Callee::Outside, Callee::Procedure);
        }
    };
    let mut procedures: Vec<_> = group.iter().map(|p| code.procedures[*p].clone()).collect();
    for block in procedures.iter_mut().flat_map(|p| &mut p.blocks) {
        block.calls.iter_mut().for_each(|c| keep(&mut c.callee));
        if let End::Tail { callee, .. } = &mut block.end {
            keep(callee);
        }
    }
    for pointer in procedures.iter_mut().flat_map(|p| &mut p.pointers) {
        let kept = pointer.targets.iter().filter_map(|(to, count)| Some((number(*to)?, *count)));
        pointer.targets = kept.collect();
    }
    Code { procedures }
}
