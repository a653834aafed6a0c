//! What a function does to registers, in brief.
//!
//! Several questions are asked of all functions, and of some again and again, until answers no
//! longer change: what calls may change ([`crate::clobbers`]), what callers read
//! ([`crate::results`]), what is live ([`crate::liveness`]). All of them see a block as one set of
//! registers that is read and one that is written; where it calls a function, as a few *segments* of
//! that kind between the calls. So instructions are read once, here.
//!
//! Blocks are kept in the order in which they are solved, backwards: each behind all that it leads
//! to, except where they go in circles. Its place in this order is a block's *position*.

use std::ops::Range;

use fettle_image::{Image, LinkAddr};
use fettle_isa::{Flow, Gpr, Insn, RegSet};
use iced_x86::Code;
use rayon::prelude::*;
use rustc_hash::FxHashMap;

use crate::function::{Exit, Function};
use crate::pool::Pool;

/// Numbers of functions by their entries.
pub type Index = FxHashMap<LinkAddr, usize>;

/// What an instruction calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    /// Nothing.
    None,
    /// A direct call of this function.
    Known(u32),
    /// A direct call of code of this image that was not lifted.
    Unknown,
    /// A direct call of another image's function.
    Foreign,
    /// An indirect call.
    Indirect,
    /// The same in a function that has the address of another in itself, as all have for each call in the
    /// large code model: the compiler knows what is called, and which registers that leaves alone.
    Constant,
}

/// Instructions of a block up to a call, which is one of them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Segment {
    pub needs: RegSet,
    pub kills: RegSet,
    pub call: Call,
}

/// A block with calls.
#[derive(Clone, Copy, Debug)]
struct Calling {
    position: u32,
    /// Where its segments end; they begin where those of the one before end.
    segments_end: u32,
}

/// A block that control leaves the function from.
#[derive(Clone, Copy, Debug)]
struct Leaving {
    position: u32,
    /// By a `ret`.
    returns: bool,
    /// The known function that it jumps to.
    to: Option<u32>,
}

/// Where control goes from a block, or a *join*: where several blocks lead to the same many others
/// (an interpreter's `goto *`), they lead to a block of no instructions that leads there.
#[derive(Clone, Copy, Debug)]
struct Ways {
    /// Positions. Most blocks have no more than two; what is left of these leads behind all others,
    /// to nothing.
    first: [u32; 2],
    /// The list of further ones, counted from one; 0 if there are none.
    others: u32,
    /// The first block that leads here although it is solved before; behind all if none does.
    back: u32,
    /// The last block that leads here.
    reach: u32,
}

/// What a block needs and defines, and what is live before and behind it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Live {
    pub needs: RegSet,
    pub kills: RegSet,
    pub before: RegSet,
    pub behind: RegSet,
}

impl Live {
    /// Adds what stands before it: `segment`, and the call behind that, which reads `reads` and
    /// changes `changes`.
    #[inline(always)]
    fn behind(&mut self, segment: &Segment, (reads, changes): (RegSet, RegSet)) {
        self.needs = self.needs.minus(changes).union(reads);
        self.needs = self.needs.minus(segment.kills).union(segment.needs);
        self.kills = self.kills.union(changes).union(segment.kills);
    }
}

/// What a function does to registers.
#[derive(Clone, Debug)]
pub struct Summary {
    /// Of each block and join: what it needs and defines, or what its last segment does.
    blocks: Box<[Live]>,
    ways: Box<[Ways]>,
    /// Lists of further ways, with the end of each.
    others: Box<[u32]>,
    others_end: Box<[u32]>,
    calling: Box<[Calling]>,
    /// Of blocks with calls, all but the last.
    segments: Box<[Segment]>,
    leaving: Box<[Leaving]>,
    /// The position of each block of the function.
    positions: Box<[u32]>,
    /// The position of the block that callers come to.
    entry: u32,
    /// Known functions that it calls or ends with a jump to, each once.
    callees: Box<[u32]>,
    /// What its own instructions may write.
    pub(crate) written: RegSet,
    /// What some segment reads.
    needed: RegSet,
    /// It takes another stack: coroutines do. A function's frame only comes from `rbp`.
    pub(crate) changes_stacks: bool,
    /// It calls known functions, beside those that it ends with a jump to.
    pub(crate) calls_known: bool,
    /// All that it calls or ends with a jump to is known, or known to the compiler.
    pub(crate) closed: bool,
    /// What its indirect calls are.
    pub(crate) indirect: Call,
    /// It counts on a call keeping registers that the ABI lets calls change: see
    /// [`crate::conventions`].
    pub(crate) keeps: bool,
}

/// Reads all functions, in parallel; `index` has their numbers.
pub fn summaries(image: &Image, functions: &[Function], index: &Index) -> Vec<Summary> {
    let readers = Pool::new(|| Reader::new(image, index));
    functions
        .par_iter()
        .map_init(|| readers.take(), |reader, function| reader.read(function))
        .collect()
}

/// For each function, those that call it directly or end with a jump to it.
pub fn callers(summaries: &[Summary]) -> Vec<Vec<u32>> {
    let mut callers = vec![Vec::new(); summaries.len()];
    for (caller, summary) in summaries.iter().enumerate() {
        summary.callees().iter().for_each(|callee| callers[*callee as usize].push(caller as u32));
    }
    callers
}

impl Summary {
    /// The summary of one function; `index` has the numbers of all.
    pub fn of(image: &Image, function: &Function, index: &Index) -> Summary {
        Reader::new(image, index).read(function)
    }

    /// Numbers of the known functions that it calls or ends with a jump to, each once.
    pub fn callees(&self) -> &[u32] {
        &self.callees
    }

    /// Whether it hands on all that it was given: its own instructions write nothing that a call may
    /// change, and it ends with a jump to code that is not known.
    pub fn forwards(&self) -> bool {
        let unknown = |leaving: &Leaving| !leaving.returns && leaving.to.is_none();
        self.written.intersection(RegSet::CALLER_SAVED).is_empty()
            && self.segments.is_empty()
            && self.leaving.iter().any(unknown)
    }

    /// What is read behind calls before it is written or the block ends: by code that a compiler made,
    /// nothing but results.
    pub(crate) fn read_behind_calls(&self, mut notify: impl FnMut(Call, RegSet)) {
        for (position, segments) in self.calling() {
            let mut needs = self.blocks[position].needs;
            for segment in segments.iter().rev() {
                notify(segment.call, needs);
                needs = segment.needs;
            }
        }
    }

    /// Registers that something in it reads, and did not write since the last call.
    pub fn needed(&self) -> RegSet {
        self.needed
    }

    /// Numbers of the known functions that it ends with a jump to.
    pub(crate) fn tails(&self) -> impl Iterator<Item = u32> {
        self.leaving.iter().filter_map(|leaving| leaving.to)
    }

    /// What is live where callers come in, of what [`Summary::solve`] found.
    pub(crate) fn at_entry(&self, live: &[Live]) -> RegSet {
        live[self.entry as usize].before
    }

    /// What [`Summary::solve`] found, block for block of the function.
    pub(crate) fn by_block(&self, live: &[Live]) -> impl ExactSizeIterator<Item = Live> {
        self.positions.iter().map(|position| live[*position as usize])
    }

    /// Blocks with calls: their positions and all their segments but the last.
    fn calling(&self) -> impl Iterator<Item = (usize, &[Segment])> {
        let mut from = 0;
        self.calling.iter().map(move |calling| {
            let from = std::mem::replace(&mut from, calling.segments_end as usize);
            (calling.position as usize, &self.segments[from..calling.segments_end as usize])
        })
    }

    /// Finds what is live at the borders of all blocks. `behind` says what is live where control
    /// leaves the function, by a `ret` or otherwise, `does` what a call reads and changes, and
    /// `inputs` what known functions read, those that it ends with a jump to among them.
    #[inline]
    pub(crate) fn solve(
        &self,
        behind: impl Fn(bool) -> RegSet,
        does: impl Fn(Call) -> (RegSet, RegSet),
        inputs: &[RegSet],
        live: &mut Vec<Live>,
    ) {
        self.begin(does, live);
        for Leaving { position, returns, to } in &self.leaving {
            let read = to.map_or(RegSet::NONE, |callee| inputs[callee as usize]);
            live[*position as usize].behind = behind(*returns).union(read);
        }
        self.spread(live);
    }

    /// The same as if nothing were read where control leaves.
    pub(crate) fn solve_alone(
        &self,
        does: impl Fn(Call) -> (RegSet, RegSet),
        live: &mut Vec<Live>,
    ) {
        self.begin(does, live);
        self.spread(live);
    }

    /// What blocks need and define, calls included.
    #[inline]
    fn begin(&self, does: impl Fn(Call) -> (RegSet, RegSet), live: &mut Vec<Live>) {
        live.clear();
        live.extend_from_slice(&self.blocks);
        // Nothing is live where control never comes to.
        live.push(Live::default());
        for (position, segments) in self.calling() {
            let block = &mut live[position];
            segments.iter().rev().for_each(|segment| block.behind(segment, does(segment.call)));
        }
    }

    /// Reports each direct call of a known function, and what is live behind it, given what
    /// [`Summary::solve`] found.
    #[inline]
    pub(crate) fn calls(
        &self,
        live: &[Live],
        does: impl Fn(Call) -> (RegSet, RegSet),
        mut notify: impl FnMut(u32, RegSet),
    ) {
        for (position, segments) in self.calling() {
            let last = &self.blocks[position];
            let mut live = live[position].behind.minus(last.kills).union(last.needs);
            for Segment { needs, kills, call } in segments.iter().rev() {
                if let Call::Known(callee) = call {
                    notify(*callee, live);
                }
                let (reads, changes) = does(*call);
                live = live.minus(changes).union(reads).minus(*kills).union(*needs);
            }
        }
    }

    /// Spreads what is needed backwards until nothing changes. `live` says of each block what it
    /// needs and defines, and what is live behind it because control leaves there.
    fn spread(&self, live: &mut [Live]) {
        let (mut from, mut until) = (0, self.ways.len());
        // A round goes over those that lead to a block which changed after they were solved, and on
        // as far as something changes.
        while from < until {
            let (mut again, mut again_until) = (self.ways.len(), 0);
            let mut i = from;
            while i < until {
                let ways = &self.ways[i];
                let [one, other] = ways.first.map(|way| live[way as usize].before);
                let mut behind = live[i].behind.union(one).union(other);
                if ways.others != 0 {
                    let further = self.further(ways.others).iter();
                    behind = further.fold(behind, |all, w| all.union(live[*w as usize].before));
                }
                let block = &mut live[i];
                let before = behind.minus(block.kills).union(block.needs);
                block.behind = behind;
                i += 1;
                if before != block.before {
                    block.before = before;
                    until = until.max(ways.reach as usize + 1);
                    if (ways.back as usize) < i {
                        again = again.min(ways.back as usize);
                        again_until = i;
                    }
                }
            }
            (from, until) = (again, again_until);
        }
    }

    /// A list of further ways, counted from one.
    fn further(&self, list: u32) -> &[u32] {
        let list = list as usize - 1;
        let from = if list == 0 { 0 } else { self.others_end[list - 1] };
        &self.others[from as usize..self.others_end[list] as usize]
    }
}

/// Blocks of a function that lead to this many others may share a join.
const MANY: usize = 16;

/// What a function's own frame is known by.
const FRAME: RegSet = RegSet::of(&[Gpr::Rsp, Gpr::Rbp]);

/// No position yet.
const NOWHERE: u32 = u32::MAX;

/// Reads functions one after another in the same memory.
struct Reader<'a> {
    image: &'a Image,
    index: &'a Index,
    /// What constants that name functions are counted from.
    bases: Vec<u64>,
    blocks: Vec<Live>,
    ways: Vec<Ways>,
    others: Vec<u32>,
    others_end: Vec<u32>,
    calling: Vec<Calling>,
    segments: Vec<Segment>,
    leaving: Vec<Leaving>,
    callees: Vec<u32>,
    /// Numbers of blocks that each block leads to, one list behind the other, and where each ends;
    /// joins have numbers behind those of blocks.
    to: Vec<u32>,
    to_end: Vec<u32>,
    /// For each join, one of the blocks that lead to it.
    joins: Vec<usize>,
    /// Blocks and joins in the order of their positions.
    order: Vec<usize>,
    /// The position of each block and join.
    positions: Vec<u32>,
    /// Blocks on the way to the one at hand, each with the ways that were not gone.
    path: Vec<(usize, Range<u32>)>,
}

impl<'a> Reader<'a> {
    fn new(image: &'a Image, index: &'a Index) -> Reader<'a> {
        Reader {
            image,
            index,
            bases: bases_of_constants(image),
            blocks: Vec::new(),
            ways: Vec::new(),
            others: Vec::new(),
            others_end: Vec::new(),
            calling: Vec::new(),
            segments: Vec::new(),
            leaving: Vec::new(),
            callees: Vec::new(),
            to: Vec::new(),
            to_end: Vec::new(),
            joins: Vec::new(),
            order: Vec::new(),
            positions: Vec::new(),
            path: Vec::new(),
        }
    }

    fn clear(&mut self) {
        self.blocks.clear();
        self.ways.clear();
        self.others.clear();
        self.others_end.clear();
        self.calling.clear();
        self.segments.clear();
        self.leaving.clear();
        self.callees.clear();
    }

    fn read(&mut self, function: &Function) -> Summary {
        self.clear();
        self.list_ways(function);
        self.find_order(function.entry_block().index());
        self.find_ways();
        let (mut closed, mut calls_known, mut changes_stacks) = (true, false, false);
        let (mut written, mut needed) = (RegSet::NONE, RegSet::NONE);
        let indirect = self.indirect(function);
        for (position, number) in (0u32..).zip(&self.order) {
            let Some(block) = function.blocks.get(*number) else {
                self.blocks.push(Live::default());
                continue;
            };
            if let Some(exit) = block.exit {
                let leaving = self.left(position, exit);
                let elsewhere = exit == Exit::TailIndirect && indirect == Call::Constant;
                closed &= leaving.returns || leaving.to.is_some() || elsewhere;
                self.callees.extend(leaving.to);
                self.leaving.push(leaving);
            }
            let segments_before = self.segments.len();
            let (mut needs, mut kills) = (RegSet::NONE, RegSet::NONE);
            for (insn, facts) in function.block_facts(block) {
                needs = needs.union(facts.reads().minus(kills));
                kills = kills.union(facts.kills());
                written = written.union(facts.writes());
                if facts.kills().contains(Gpr::Rsp) {
                    changes_stacks |= facts.reads().intersection(FRAME) == RegSet::NONE;
                }
                if !facts.calls() {
                    continue;
                }
                let call = self.called(facts.flow(insn), indirect);
                if let Call::Known(callee) = call {
                    calls_known = true;
                    self.callees.push(callee);
                }
                closed &= matches!(call, Call::Known(_) | Call::Constant);
                self.segments.push(Segment { needs, kills, call });
                needed = needed.union(needs);
                (needs, kills) = (RegSet::NONE, RegSet::NONE);
            }
            if self.segments.len() != segments_before {
                let segments_end = self.segments.len() as u32;
                self.calling.push(Calling { position, segments_end });
            }
            self.blocks.push(Live { needs, kills, ..Live::default() });
            needed = needed.union(needs);
        }
        self.callees.sort_unstable();
        self.callees.dedup();
        Summary {
            blocks: self.blocks.as_slice().into(),
            ways: self.ways.as_slice().into(),
            others: self.others.as_slice().into(),
            others_end: self.others_end.as_slice().into(),
            calling: self.calling.as_slice().into(),
            segments: self.segments.as_slice().into(),
            leaving: self.leaving.as_slice().into(),
            positions: self.positions[..function.blocks.len()].into(),
            entry: self.positions[function.entry_block().index()],
            callees: self.callees.as_slice().into(),
            written,
            needed,
            changes_stacks,
            calls_known,
            closed,
            indirect,
            keeps: false,
        }
    }

    /// What is known of whom a call calls.
    fn called(&self, flow: Flow, indirect: Call) -> Call {
        match flow {
            Flow::Call(to) => self.call(LinkAddr(to)),
            _ => indirect,
        }
    }

    /// How a block leaves the function.
    fn left(&self, position: u32, exit: Exit) -> Leaving {
        Leaving { position, returns: exit == Exit::Return, to: self.tail(exit) }
    }

    /// Lists where blocks lead, and finds those that lead to the same many others.
    fn list_ways(&mut self, function: &Function) {
        self.to.clear();
        self.to_end.clear();
        self.joins.clear();
        for (number, block) in function.blocks.iter().enumerate() {
            if block.succs.len() < MANY {
                self.to.extend(block.succs.iter().map(|succ| succ.0));
            } else {
                let same = |other: &usize| function.blocks[*other].succs == block.succs;
                let join = self.joins.iter().position(same).unwrap_or_else(|| {
                    self.joins.push(number);
                    self.joins.len() - 1
                });
                self.to.push((function.blocks.len() + join) as u32);
            }
            self.to_end.push(self.to.len() as u32);
        }
        for join in &self.joins {
            self.to.extend(function.blocks[*join].succs.iter().map(|succ| succ.0));
            self.to_end.push(self.to.len() as u32);
        }
    }

    /// Where the list of what block or join `number` leads to begins and ends.
    fn ways_of(&self, number: usize) -> Range<u32> {
        let from = if number == 0 { 0 } else { self.to_end[number - 1] };
        from..self.to_end[number]
    }

    /// Finds the positions of all blocks: in depth, from the entry first, and then from whatever
    /// control comes to in another way.
    fn find_order(&mut self, entry: usize) {
        // On the path, but not solved yet.
        const SEEN: u32 = NOWHERE - 1;
        let all = self.to_end.len();
        self.order.clear();
        self.positions.clear();
        self.positions.resize(all, NOWHERE);
        for root in [entry].into_iter().chain(0..all) {
            if self.positions[root] != NOWHERE {
                continue;
            }
            self.positions[root] = SEEN;
            let (mut number, mut ways) = (root, self.ways_of(root));
            loop {
                if let Some(way) = ways.next() {
                    let to = self.to[way as usize] as usize;
                    if self.positions[to] == NOWHERE {
                        self.positions[to] = SEEN;
                        self.path.push((number, ways));
                        (number, ways) = (to, self.ways_of(to));
                    }
                    continue;
                }
                self.positions[number] = self.order.len() as u32;
                self.order.push(number);
                match self.path.pop() {
                    Some(before) => (number, ways) = before,
                    None => break,
                }
            }
        }
    }

    fn find_ways(&mut self) {
        let nowhere = self.order.len() as u32;
        let none = Ways { first: [nowhere; 2], others: 0, back: nowhere, reach: 0 };
        self.ways.resize(self.order.len(), none);
        for (position, number) in self.order.iter().enumerate() {
            let ways = self.ways_of(*number);
            let to = &self.to[ways.start as usize..ways.end as usize];
            for (way, to) in to.iter().enumerate() {
                let to = self.positions[*to as usize];
                match self.ways[position].first.get_mut(way) {
                    Some(first) => *first = to,
                    None => self.others.push(to),
                }
                let there = &mut self.ways[to as usize];
                // Positions come in order.
                there.reach = position as u32;
                if position as u32 <= to {
                    there.back = there.back.min(position as u32);
                }
            }
            if to.len() > 2 {
                self.others_end.push(self.others.len() as u32);
                self.ways[position].others = self.others_end.len() as u32;
            }
        }
    }

    /// What indirect calls are in `function`: see [`Call::Constant`].
    fn indirect(&self, function: &Function) -> Call {
        // mov register, constant of 64 bits
        const LENGTH: usize = 10;
        let names = |(i, insn): (usize, &Insn)| {
            let constant = (insn.len() == LENGTH).then(|| function.full(self.image, i));
            let constant = constant.filter(|insn| insn.code() == Code::Mov_r64_imm64);
            constant.is_some_and(|insn| {
                let to = |base: &u64| LinkAddr(base.wrapping_add(insn.immediate64()));
                self.bases.iter().any(|base| self.index.contains_key(&to(base)))
            })
        };
        match function.insns.iter().enumerate().any(names) {
            true => Call::Constant,
            false => Call::Indirect,
        }
    }

    /// The known function that `exit` jumps to.
    fn tail(&self, exit: Exit) -> Option<u32> {
        let (Exit::TailJump(to) | Exit::TailBranch(to)) = exit else { return None };
        self.index.get(&to).map(|callee| *callee as u32)
    }

    fn call(&self, to: LinkAddr) -> Call {
        match self.index.get(&to) {
            Some(callee) => Call::Known(*callee as u32),
            None if is_stub(self.image, to) => Call::Foreign,
            None => Call::Unknown,
        }
    }
}

/// What constants of 64 bits are counted from that name functions: nothing, or the table of offsets in
/// code that may lie anywhere.
fn bases_of_constants(image: &Image) -> Vec<u64> {
    let tables = [".got.plt", ".got"].into_iter().filter_map(|name| image.section(name));
    [0].into_iter().chain(tables.map(|table| table.start.0)).collect()
}

/// Whether calls of `to` leave the image, through a PLT.
fn is_stub(image: &Image, to: LinkAddr) -> bool {
    image.plt().binary_search_by_key(&to, |stub| stub.start).is_ok() || !image.is_code(to)
}
