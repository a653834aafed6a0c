//! A random walk through the program that follows its counts.
//!
//! Control goes from block to block at random, in proportion to the counts of edges, into callees
//! and back. The target of an indirect call is one of its known targets, in proportion to their
//! counts, else a function with more calls than its known callers explain. Where a walk begins, the
//! callers are not on the stack; when such a function returns, one of its callers is chosen in
//! proportion to its calls.

use rustc_hash::FxHashMap;

use crate::code::{Callee, Code, End};
use crate::group::known_calls;

/// A part of a block that runs in one go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// The procedure.
    pub procedure: u32,
    /// The block.
    pub block: u32,
    /// First byte in the original block.
    pub from: u32,
    /// End.
    pub to: u32,
    /// Instructions.
    pub insns: u32,
}

/// Segments in the order in which they run.
#[derive(Clone, Debug, Default)]
pub struct Walk {
    /// The segments.
    pub segments: Vec<Segment>,
}

/// Marsaglia's xorshift64*.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let number = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d);
        ((u128::from(number) * u128::from(n.max(1))) >> 64) as u64
    }
}

/// Items to be drawn, each in proportion to its weight.
struct Urn<T> {
    upto: Vec<u64>,
    what: Vec<T>,
}

impl<T> Default for Urn<T> {
    fn default() -> Urn<T> {
        Urn { upto: Vec::new(), what: Vec::new() }
    }
}

impl<T: Copy> Urn<T> {
    fn add(&mut self, what: T, weight: u64) {
        if weight > 0 {
            self.upto.push(self.upto.last().copied().unwrap_or(0).saturating_add(weight));
            self.what.push(what);
        }
    }

    fn draw(&self, random: &mut Random) -> Option<T> {
        let n = random.below(*self.upto.last()?);
        self.what.get(self.upto.partition_point(|u| *u <= n)).copied()
    }
}

/// A place in the code: procedure, block, calls of the block that are done.
type Place = (u32, u32, u32);

struct Walker<'a> {
    code: &'a Code,
    random: Random,
    starts: Urn<Place>,
    pointed_to: Urn<usize>,
    /// For each procedure, the return points of its callers.
    callers: Vec<Urn<Place>>,
    /// Targets of indirect calls, by procedure, block, and calls of the block before.
    seen: FxHashMap<Place, Urn<Callee>>,
    /// Targets for indirect calls without observed ones.
    pointing: Urn<Place>,
    ways: Vec<Vec<Urn<u32>>>,
    leaves: Vec<Vec<u64>>,
}

/// Depth beyond which calls are not followed: recursion, or counts that do not add up.
const STACK_MAX: usize = 256;
/// Segments after which a walk begins anew somewhere else.
const STRETCH: usize = 50_000;

impl Walk {
    /// A walk of about so many segments.
    pub fn new(code: &Code, segments: usize, seed: u64) -> Walk {
        let mut walk = Walk { segments: Vec::with_capacity(segments) };
        let mut walker = Walker::new(code, seed);
        while walk.segments.len() < segments {
            let before = walk.segments.len();
            let Some(start) = walker.starts.draw(&mut walker.random) else { break };
            let end = segments.min(before + STRETCH);
            walker.go(start, end, &mut walk.segments);
        }
        walk
    }
}

impl<'a> Walker<'a> {
    fn new(code: &'a Code, seed: u64) -> Walker<'a> {
        let count = code.procedures.len();
        let mut walker = Walker {
            code,
            random: Random(seed | 1),
            starts: Urn::default(),
            pointed_to: Urn::default(),
            callers: (0..count).map(|_| Urn::default()).collect(),
            seen: FxHashMap::default(),
            pointing: Urn::default(),
            ways: Vec::new(),
            leaves: Vec::new(),
        };
        for (p, (known, procedure)) in known_calls(code).iter().zip(&code.procedures).enumerate() {
            walker.pointed_to.add(p, procedure.calls.saturating_sub(*known));
            let blocks = procedure.blocks.len();
            let mut ways: Vec<Urn<u32>> = (0..blocks).map(|_| Urn::default()).collect();
            let mut leaves: Vec<u64> = procedure.blocks.iter().map(|b| b.count).collect();
            for jump in &procedure.jumps {
                ways[jump.from].add(jump.to as u32, jump.count);
                leaves[jump.from] = leaves[jump.from].saturating_sub(jump.count);
            }
            walker.ways.push(ways);
            walker.leaves.push(leaves);
            for (b, block) in procedure.blocks.iter().enumerate() {
                walker.starts.add((p as u32, b as u32, 0), block.count);
                for (c, call) in block.calls.iter().enumerate() {
                    let place = (p as u32, b as u32, c as u32 + 1);
                    match call.callee {
                        Callee::Procedure(to) => walker.callers[to].add(place, block.count),
                        Callee::Indirect | Callee::Outside => {}
                    }
                }
            }
            for pointer in &procedure.pointers {
                let (b, block) = (pointer.block as u32, &procedure.blocks[pointer.block]);
                let before = pointer.call.unwrap_or(block.calls.len()) as u32;
                let urn = walker.seen.entry((p as u32, b, before)).or_default();
                let unknown = block.count.saturating_sub(pointer.known);
                urn.add(Callee::Indirect, unknown);
                let mut elsewhere = pointer.known;
                for (to, count) in &pointer.targets {
                    urn.add(Callee::Procedure(*to), *count);
                    elsewhere = elsewhere.saturating_sub(*count);
                }
                urn.add(Callee::Outside, elsewhere);
                // A tail call returns to the caller.
                if pointer.call.is_some() {
                    let place = (p as u32, b, before + 1);
                    walker.pointing.add(place, unknown);
                    pointer.targets.iter().for_each(|(to, n)| walker.callers[*to].add(place, *n));
                }
            }
        }
        walker
    }

    /// Walks on from `place` until there are `end` segments.
    fn go(&mut self, place: Place, end: usize, out: &mut Vec<Segment>) {
        let mut stack: Vec<Place> = Vec::new();
        let mut at = Some(place);
        // Empty segments alone cannot loop for ever: every step adds one.
        while let Some((p, b, done)) = at.filter(|_| out.len() < end) {
            let block = &self.code.procedures[p as usize].blocks[b as usize];
            let from = done.checked_sub(1).map(|c| block.calls[c as usize]);
            let call = block.calls.get(done as usize);
            out.push(Segment {
                procedure: p,
                block: b,
                from: from.map_or(0, |c| c.offset),
                to: call.map_or(block.size, |c| c.offset),
                insns: call.map_or(block.insns, |c| c.insns) - from.map_or(0, |c| c.insns),
            });
            at = match call {
                Some(call) => {
                    let back = (p, b, done + 1);
                    match self.callee(call.callee, (p, b, done)).filter(|_| stack.len() < STACK_MAX)
                    {
                        Some(callee) => {
                            stack.push(back);
                            Some(callee)
                        }
                        None => Some(back),
                    }
                }
                None => self.onward(p, b, &mut stack),
            };
        }
    }

    /// The callee of the call behind `place`, or of the tail call behind all calls of a block.
    fn callee(&mut self, callee: Callee, place: Place) -> Option<Place> {
        let seen = self.seen.get(&place).filter(|_| callee == Callee::Indirect);
        let callee = seen.and_then(|urn| urn.draw(&mut self.random)).unwrap_or(callee);
        let p = match callee {
            Callee::Procedure(to) => to,
            Callee::Indirect => self.pointed_to.draw(&mut self.random)?,
            Callee::Outside => return None,
        };
        Some((p as u32, self.code.procedures[p].head as u32, 0))
    }

    /// From the end of a block.
    fn onward(&mut self, p: u32, b: u32, stack: &mut Vec<Place>) -> Option<Place> {
        let urn = &self.ways[p as usize][b as usize];
        let inside = urn.upto.last().copied().unwrap_or(0);
        let leaves = self.leaves[p as usize][b as usize];
        if inside > 0 && self.random.below(inside.saturating_add(leaves)) < inside {
            return urn.draw(&mut self.random).map(|to| (p, to, 0));
        }
        let block = &self.code.procedures[p as usize].blocks[b as usize];
        if let End::Tail { callee, .. } = block.end
            && let Some(callee) = self.callee(callee, (p, b, block.calls.len() as u32))
        {
            return Some(callee);
        }
        stack.pop().or_else(|| self.caller(p))
    }

    /// The return point in a caller of `p` that is not on the stack.
    fn caller(&mut self, p: u32) -> Option<Place> {
        let known = &self.callers[p as usize];
        let calls = self.code.procedures[p as usize].calls;
        let by_name = known.upto.last().copied().unwrap_or(0);
        let from_known = self.random.below(calls.max(by_name)) < by_name;
        match from_known {
            true => known.draw(&mut self.random),
            false => self.pointing.draw(&mut self.random),
        }
    }
}
