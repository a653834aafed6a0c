//! Registers that functions return values in, beyond what the ABI says.
//!
//! Hand-written assembly (OpenSSL's, say) has local functions with conventions of their own:
//! their callers find values in any register. Who they are shows in their callers, which read a
//! register after a call that may have written it, or call a function that does. A probe at such a
//! function's exits must leave these registers alone.

use std::ops::Range;

use fettle_image::{Image, LinkAddr};
use fettle_isa::{Flow, RegSet};
use rayon::prelude::*;
use rustc_hash::FxHashMap;

use crate::function::{Exit, Function};
use crate::module::Lifted;

/// For each lifted function, in order: the registers that its callers read after it although the
/// ABI says that it may have changed them.
pub fn solve(image: &Image, lifted: &Lifted, clobbers: &[RegSet]) -> Vec<RegSet> {
    let functions = &lifted.functions;
    let index: Index = functions.iter().enumerate().map(|(i, f)| (f.entry, i)).collect();
    let summaries: Vec<Summary> =
        functions.par_iter().map(|f| Summary::of(image, f, clobbers, &index)).collect();
    let mut solver = Solver::default();
    let inputs = inputs(functions, &summaries, &mut solver);
    let mut results = vec![RegSet::NONE; functions.len()];
    // Of callers that are not understood nothing is known.
    for callee in entered_from_elsewhere(image, lifted, &index) {
        results[callee] = RegSet::CALLER_SAVED;
    }
    let mut work: Vec<usize> = (0..functions.len()).rev().collect();
    let mut waiting = vec![true; functions.len()];
    // What a function returns it may have from one that it calls.
    while let Some(i) = work.pop() {
        waiting[i] = false;
        let own = results[i];
        solver.wanted((&functions[i], &summaries[i]), own, &inputs, |callee, live| {
            let wanted = live.intersection(clobbers[callee]).minus(BY_THE_ABI);
            let joined = results[callee].union(wanted);
            if joined != results[callee] {
                results[callee] = joined;
                if !std::mem::replace(&mut waiting[callee], true) {
                    work.push(callee);
                }
            }
        });
    }
    results
}

/// What callers may read anyway.
const BY_THE_ABI: RegSet = RegSet::RESULTS.union(RegSet::FLAGS).union(RegSet::VECTOR_COUNT);

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

/// Numbers of functions by their entries.
type Index = FxHashMap<LinkAddr, usize>;

/// What is called.
#[derive(Clone, Copy)]
enum Callee {
    /// This function.
    Known(u32),
    /// Code of this image that was not lifted: it may read any register.
    Unknown,
    /// Somebody who gets what the ABI passes, which is put there between calls.
    Other,
}

/// Instructions of a block up to its end, or to a call.
struct Segment {
    needs: RegSet,
    kills: RegSet,
    /// The call, and what it may change.
    call: Option<(Callee, RegSet)>,
}

/// What matters of a function here, so that it is read once however often it is solved.
struct Summary {
    segments: Vec<Segment>,
    /// By block: where its segments end.
    blocks: Vec<u32>,
    /// Known functions that it ends with a jump to, by block.
    tails: Vec<(u32, u32)>,
    /// Known functions that it calls or ends with a jump to.
    callees: Vec<u32>,
}

impl Summary {
    fn of(image: &Image, function: &Function, clobbers: &[RegSet], index: &Index) -> Summary {
        let mut summary =
            Summary { segments: vec![], blocks: vec![], tails: vec![], callees: vec![] };
        for (b, block) in function.blocks.iter().enumerate() {
            if let Some(Exit::TailJump(to) | Exit::TailBranch(to)) = block.exit
                && let Some(callee) = index.get(&to)
            {
                summary.tails.push((b as u32, *callee as u32));
                summary.callees.push(*callee as u32);
            }
            let (mut needs, mut kills) = (RegSet::NONE, RegSet::NONE);
            for (insn, facts) in function.block_facts(block) {
                needs = needs.union(facts.reads().minus(kills));
                kills = kills.union(facts.kills());
                if !facts.calls() {
                    continue;
                }
                let callee = match facts.flow(insn) {
                    Flow::Call(to) => match index.get(&LinkAddr(to)) {
                        Some(callee) => Callee::Known(*callee as u32),
                        None if is_stub(image, LinkAddr(to)) => Callee::Other,
                        None => Callee::Unknown,
                    },
                    _ => Callee::Other,
                };
                let lost = match callee {
                    Callee::Known(callee) => {
                        summary.callees.push(callee);
                        clobbers[callee as usize]
                    }
                    Callee::Unknown | Callee::Other => RegSet::CALLER_SAVED,
                };
                summary.segments.push(Segment { needs, kills, call: Some((callee, lost)) });
                (needs, kills) = (RegSet::NONE, RegSet::NONE);
            }
            summary.segments.push(Segment { needs, kills, call: None });
            summary.blocks.push(summary.segments.len() as u32);
        }
        summary
    }

    fn block(&self, block: usize) -> &[Segment] {
        let from = if block == 0 { 0 } else { self.blocks[block - 1] };
        &self.segments[from as usize..self.blocks[block] as usize]
    }
}

/// Whether calls of `to` leave the image, through a procedure linkage table.
fn is_stub(image: &Image, to: LinkAddr) -> bool {
    image.plt().binary_search_by_key(&to, |stub| stub.start).is_ok() || !image.is_code(to)
}

/// What is needed before some segments if `live` is behind them; `tell` is told of every known function
/// that they call, and what is needed after that.
fn before(
    segments: &[Segment],
    mut live: RegSet,
    inputs: &[RegSet],
    mut tell: impl FnMut(usize, RegSet),
) -> RegSet {
    for Segment { needs, kills, call } in segments.iter().rev() {
        if let Some((callee, lost)) = call {
            let reads = match callee {
                Callee::Known(callee) => {
                    tell(*callee as usize, live);
                    inputs[*callee as usize]
                }
                Callee::Unknown => RegSet::CALLER_SAVED,
                Callee::Other => RegSet::NONE,
            };
            live = live.minus(*lost).union(reads);
        }
        live = live.minus(*kills).union(*needs);
    }
    live
}

/// For each function: what of the registers that calls may change is read in it, or in functions that
/// it calls, before it is written.
fn inputs(functions: &[Function], summaries: &[Summary], solver: &mut Solver) -> Vec<RegSet> {
    let mut callers: Vec<Vec<u32>> = vec![Vec::new(); functions.len()];
    for (caller, summary) in summaries.iter().enumerate() {
        summary.callees.iter().for_each(|c| callers[*c as usize].push(caller as u32));
    }
    let mut inputs = vec![RegSet::NONE; functions.len()];
    let mut work = callers_first(summaries);
    let mut waiting = vec![true; functions.len()];
    while let Some(i) = work.pop() {
        waiting[i] = false;
        let (function, summary) = (&functions[i], &summaries[i]);
        solver.solve(function, summary, RegSet::NONE, &inputs);
        let read = solver.live_in[function.entry_block().index()];
        let joined = inputs[i].union(read.intersection(RegSet::CALLER_SAVED));
        if joined != inputs[i] {
            inputs[i] = joined;
            for caller in &callers[i] {
                if !std::mem::replace(&mut waiting[*caller as usize], true) {
                    work.push(*caller as usize);
                }
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
            match summaries[*function].callees.get(*next) {
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
#[derive(Default)]
struct Solver {
    /// By block: what it needs, and what it defines.
    sums: Vec<(RegSet, RegSet)>,
    live_in: Vec<RegSet>,
    live_out: Vec<RegSet>,
}

impl Solver {
    /// Finds what is needed at the borders of blocks, if callers of `function` itself read `own`.
    fn solve(&mut self, function: &Function, summary: &Summary, own: RegSet, inputs: &[RegSet]) {
        let Solver { sums, live_in, live_out } = self;
        sums.clear();
        sums.extend((0..function.blocks.len()).map(|i| {
            let segments = summary.block(i);
            let lost = |s: &Segment| s.call.map_or(s.kills, |(_, lost)| s.kills.union(lost));
            let kills = segments.iter().map(lost).fold(RegSet::NONE, RegSet::union);
            (before(segments, RegSet::NONE, inputs, |_, _| ()), kills)
        }));
        live_in.clear();
        live_in.resize(sums.len(), RegSet::NONE);
        live_out.clear();
        live_out.extend(
            function.blocks.iter().map(|b| if b.exit.is_some() { own } else { RegSet::NONE }),
        );
        for (block, callee) in &summary.tails {
            let out = &mut live_out[*block as usize];
            *out = out.union(inputs[*callee as usize]);
        }
        let mut changed = true;
        while changed {
            changed = false;
            for (i, block) in function.blocks.iter().enumerate().rev() {
                let mut out = live_out[i];
                for succ in &block.succs {
                    out = out.union(live_in[succ.index()]);
                }
                live_out[i] = out;
                let (needs, kills) = sums[i];
                let into = needs.union(out.minus(kills));
                if into != live_in[i] {
                    live_in[i] = into;
                    changed = true;
                }
            }
        }
    }

    /// Tells `tell` of every known function that `function` calls and what may be read after it,
    /// if callers of `function` itself read `own`.
    fn wanted(
        &mut self,
        (function, summary): (&Function, &Summary),
        own: RegSet,
        inputs: &[RegSet],
        mut tell: impl FnMut(usize, RegSet),
    ) {
        for (_, callee) in &summary.tails {
            tell(*callee as usize, own);
        }
        if summary.callees.len() == summary.tails.len() {
            return;
        }
        self.solve(function, summary, own, inputs);
        for (i, out) in self.live_out.iter().enumerate() {
            before(summary.block(i), *out, inputs, &mut tell);
        }
    }
}
