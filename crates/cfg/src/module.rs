//! Lifting every function of an image.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use fettle_image::{FunctionRange, Image, LinkAddr};
use fettle_isa::{Flow, flow};
use rayon::prelude::*;

use crate::decode::RangeCode;
use crate::function::{Block, BlockId, Exit, Function, SkipReason, Skipped};
use crate::lsda::{self, Lsda};
use crate::tables::{self, TableContext};

/// What to lift.
#[derive(Clone, Copy, Debug, Default)]
pub struct LiftOptions {}

/// The functions of an image.
#[derive(Debug, Default)]
pub struct Lifted {
    /// Lifted functions in order of entry.
    pub functions: Vec<Function>,
    /// The rest, in order of entry.
    pub skipped: Vec<Skipped>,
    /// Exception tables of the functions, by the start of their unwind entry.
    pub exception_tables: HashMap<LinkAddr, Lsda>,
    /// Addresses that some code, symbol or data of the image leads to, sorted: no patch may
    /// cover one of them unless it begins there.
    pub targets: Vec<LinkAddr>,
    /// Where jump tables start, sorted.
    pub tables: Vec<LinkAddr>,
    /// Bytes of code that were followed.
    pub code_bytes: u64,
}

/// A range on its way to becoming a part of a function.
struct Part {
    name: Option<String>,
    cold: bool,
    code: RangeCode,
    pads: Vec<LinkAddr>,
}

/// Lifts every function of `image` that can be lifted with certainty; in parallel.
pub fn lift(image: &Image, _options: LiftOptions) -> Lifted {
    let ranges = image.functions();
    let cold = cold_ranges(image, &ranges);
    let context = TableContext::new(image, cold.clone());

    let (mut parts, tables) = decode_all(image, &ranges, &cold, &context);
    let runtime = Runtime::of(image);
    for part in parts.iter_mut().filter(|p| runtime.owns(p.name.as_deref())) {
        part.code.failure = Some((SkipReason::FramesByAddress, part.code.range.start));
    }
    follow_across(image, &mut parts, &context);
    parts.par_iter_mut().for_each(|p| p.code.close());
    let groups = group(&parts);
    let called = called(image, &parts, &context);
    let targets = targets(image, &parts, &context);
    for group in &groups {
        find_unnamed_cold(&mut parts, group, &called);
    }

    let mut lifted = Lifted {
        exception_tables: tables,
        targets,
        code_bytes: parts
            .iter()
            .map(|p| p.code.insns.iter().map(|i| i.len() as u64).sum::<u64>())
            .sum(),
        ..Lifted::default()
    };
    let results: Vec<_> = groups.par_iter().filter_map(|g| assemble(&parts, g)).collect();
    for result in results {
        match result {
            Ok(function) => lifted.functions.push(function),
            Err(skipped) => lifted.skipped.push(skipped),
        }
    }
    lifted.tables = lifted.functions.iter().flat_map(|f| &f.tables).map(|t| t.start).collect();
    lifted.tables.sort_unstable();
    lifted.functions.sort_by_key(|f| f.entry);
    lifted.skipped.sort_by_key(|s| s.entry);
    lifted
}

/// A language's runtime that looks return addresses up in tables of its own: for its garbage
/// collector, its exceptions, its compiled code. Such code has to stay where the tables say.
enum Runtime {
    /// None that is known.
    None,
    /// OCaml's native code (`caml_frametable`), with symbols: all of it and its runtime.
    Ocaml,
    /// The same without symbols: there is no telling what is whose.
    OcamlStripped,
    /// V8's embedded builtins.
    V8,
}

impl Runtime {
    fn of(image: &Image) -> Runtime {
        let has = |name: &str| image.symbols().iter().any(|s| s.name == name);
        if has("caml_frametable") || has("caml_startup__code_begin") {
            return Runtime::Ocaml;
        }
        if image.symbols().iter().any(|s| s.name.starts_with("Builtins_")) {
            return Runtime::V8;
        }
        // The variable that every OCaml runtime reads its settings from.
        let constants = image
            .section(".rodata")
            .and_then(|s| image.read(s.start, usize::try_from(s.size).ok()?));
        let names_ocaml = constants.is_some_and(|bytes| {
            let needle = b"CAMLRUNPARAM\0";
            bytes.windows(needle.len()).any(|w| w == needle)
        });
        if names_ocaml { Runtime::OcamlStripped } else { Runtime::None }
    }

    fn owns(&self, name: Option<&str>) -> bool {
        match self {
            Runtime::None => false,
            Runtime::Ocaml => name.is_none_or(|n| n.starts_with("caml")),
            Runtime::OcamlStripped => true,
            Runtime::V8 => name.is_some_and(|n| n.starts_with("Builtins_")),
        }
    }
}

/// Ranges that are a part of another function: GCC's `.cold` parts, by name or by unwind entries
/// that begin in the middle of a frame.
fn cold_ranges(image: &Image, ranges: &[FunctionRange]) -> Vec<Range<LinkAddr>> {
    let fdes = image.fdes();
    ranges
        .iter()
        .filter(|r| {
            r.name.as_deref().is_some_and(|n| n.contains(".cold"))
                || fdes
                    .binary_search_by_key(&r.start, |f| f.start)
                    .is_ok_and(|i| fdes[i].starts_mid_frame)
        })
        .map(|r| r.start..r.end)
        .collect()
}

fn is_cold(cold: &[Range<LinkAddr>], start: LinkAddr) -> bool {
    cold.binary_search_by_key(&start, |r| r.start).is_ok()
}

fn decode_all(
    image: &Image,
    ranges: &[FunctionRange],
    cold: &[Range<LinkAddr>],
    context: &TableContext<'_>,
) -> (Vec<Part>, HashMap<LinkAddr, Lsda>) {
    let fdes = image.fdes();
    let decoded: Vec<(Part, Vec<(LinkAddr, Lsda)>)> = ranges
        .par_iter()
        .map(|range| {
            let mut code = RangeCode::new(range.start..range.end);
            let mut pads = Vec::new();
            let mut found = Vec::new();
            code.add_entry(range.start);
            let from = fdes.partition_point(|f| f.end <= range.start);
            for fde in fdes[from..].iter().take_while(|f| f.start < range.end) {
                let Some(at) = fde.lsda else { continue };
                let Some(table) = lsda::parse(image, at, fde.start) else {
                    code.failure = Some((SkipReason::ExceptionTable, at));
                    continue;
                };
                for pad in table.call_sites.iter().filter_map(|s| s.landing_pad) {
                    if code.range.contains(&pad) {
                        code.add_entry(pad);
                    }
                    pads.push(pad);
                }
                found.push((fde.start, table));
            }
            pads.sort_unstable();
            pads.dedup();
            follow(image, &mut code, context);
            let part =
                Part { name: range.name.clone(), cold: is_cold(cold, range.start), code, pads };
            (part, found)
        })
        .collect();
    let mut tables = HashMap::new();
    let parts = decoded
        .into_iter()
        .map(|(part, found)| {
            tables.extend(found);
            part
        })
        .collect();
    (parts, tables)
}

fn follow(image: &Image, code: &mut RangeCode, context: &TableContext<'_>) {
    let len = (code.range.end.0 - code.range.start.0) as usize;
    match image.read(code.range.start, len) {
        Some(bytes) => code.follow(bytes, context),
        None => code.failure = Some((SkipReason::Undecodable, code.range.start)),
    }
}

/// The part that `addr` lies in.
fn part_of(parts: &[Part], addr: LinkAddr) -> Option<usize> {
    let i = parts.partition_point(|p| p.code.range.end <= addr);
    parts.get(i).filter(|p| p.code.range.contains(&addr)).map(|_| i)
}

/// Where control goes from one part into the middle of another: jumps, jump tables, handlers.
fn crossings(part: &Part) -> impl Iterator<Item = LinkAddr> {
    let own = part.code.range.clone();
    part.code
        .outgoing
        .iter()
        .map(|(_, to)| *to)
        .chain(part.code.tables.iter().flat_map(|t| t.targets.iter().copied()))
        .chain(part.pads.iter().copied())
        .filter(move |to| !own.contains(to))
}

fn follow_across(image: &Image, parts: &mut [Part], context: &TableContext<'_>) {
    let mut work: Vec<usize> = (0..parts.len()).collect();
    while let Some(i) = work.pop() {
        let into: Vec<LinkAddr> = crossings(&parts[i]).collect();
        for to in into {
            let Some(j) = part_of(parts, to) else { continue };
            let code = &mut parts[j].code;
            if code.failure.is_some() || code.range.start == to {
                continue;
            }
            let known = code.outgoing.len() + code.tables.len();
            code.add_entry(to);
            follow(image, code, context);
            if code.outgoing.len() + code.tables.len() != known {
                work.push(j);
            }
        }
    }
}

/// Brings parts together that make up one function; each group lists its parts.
fn group(parts: &[Part]) -> Vec<Vec<usize>> {
    let mut leader: Vec<usize> = (0..parts.len()).collect();
    fn find(leader: &mut [usize], mut i: usize) -> usize {
        while leader[i] != i {
            leader[i] = leader[leader[i]];
            i = leader[i];
        }
        i
    }
    for i in 0..parts.len() {
        // A plain jump to where another function begins may be a tail call; an entry of a jump
        // table or a handler is a part of the function.
        let code = &parts[i].code;
        let own: HashSet<LinkAddr> = code
            .tables
            .iter()
            .flat_map(|t| t.targets.iter().copied())
            .chain(parts[i].pads.iter().copied())
            .collect();
        for to in crossings(&parts[i]) {
            let Some(j) = part_of(parts, to) else { continue };
            if parts[j].code.range.start != to || parts[j].cold || own.contains(&to) {
                let (a, b) = (find(&mut leader, i), find(&mut leader, j));
                leader[a.max(b)] = a.min(b);
            }
        }
    }
    let mut groups: HashMap<usize, Vec<usize>> = HashMap::new();
    for i in 0..parts.len() {
        groups.entry(find(&mut leader, i)).or_default().push(i);
    }
    let mut groups: Vec<_> = groups.into_values().collect();
    groups.sort_unstable();
    groups
}

/// Addresses that may be called: by a direct call, through a symbol or a pointer in data.
fn called(image: &Image, parts: &[Part], context: &TableContext<'_>) -> Vec<LinkAddr> {
    let functions = image.symbols().iter().filter(|s| !s.name.contains(".cold"));
    let mut all: Vec<LinkAddr> = functions.map(|s| s.addr).collect();
    all.push(image.entry());
    // Entries of jump tables are pointers in data, too, but nobody calls through them.
    let in_tables: HashSet<LinkAddr> = parts
        .iter()
        .flat_map(|p| p.code.tables.iter().flat_map(|t| t.targets.iter().copied()))
        .collect();
    for part in parts {
        all.extend_from_slice(&part.code.calls);
        let labels = context.labels_in(&part.code.range).iter();
        all.extend(labels.filter(|l| !in_tables.contains(l)));
        // A function's address may be taken in code, too.
        let leas = part.code.insns.iter().filter(|i| i.is_ip_rel_memory_operand());
        all.extend(leas.map(|i| LinkAddr(i.ip_rel_memory_address())));
    }
    all.sort_unstable();
    all.dedup();
    all
}

/// Where several parts of a group begin like functions, those that nobody calls are cold parts
/// whose frame happens to be empty where they begin.
fn find_unnamed_cold(parts: &mut [Part], group: &[usize], called: &[LinkAddr]) {
    let heads: Vec<usize> = group.iter().copied().filter(|i| !parts[*i].cold).collect();
    if heads.len() < 2 {
        return;
    }
    let is_called = |i: &usize| called.binary_search(&parts[*i].code.range.start).is_ok();
    let (real, unnamed): (Vec<usize>, Vec<usize>) = heads.into_iter().partition(is_called);
    if real.len() == 1 {
        for i in unnamed {
            parts[i].cold = true;
        }
    }
}

/// Addresses that a patch must not cover.
fn targets(image: &Image, parts: &[Part], context: &TableContext<'_>) -> Vec<LinkAddr> {
    let mut all: Vec<LinkAddr> = image.symbols().iter().map(|s| s.addr).collect();
    // Stripped or not, `.init`, `.fini` and the PLT begin at sections or are named to the loader.
    all.extend(image.sections().iter().flat_map(|s| [s.start, s.end()]));
    all.extend(image.segments().iter().flat_map(|s| [s.start, s.end()]));
    all.extend(image.plt().iter().map(|p| p.start));
    all.extend(image.initializers());
    for part in parts {
        all.push(part.code.range.start);
        all.extend_from_slice(&part.code.calls);
        all.extend_from_slice(context.labels_in(&part.code.range));
        if part.code.failure.is_some() {
            // This code goes on running where it is.
            all.extend(part.code.outgoing.iter().map(|(_, to)| *to));
            all.extend_from_slice(&part.code.leaders);
            all.extend(part.code.tables.iter().flat_map(|t| &t.targets));
        }
    }
    all.sort_unstable();
    all.dedup();
    all
}

/// Makes a function of its parts; `None` for a cold part that nothing led to.
fn assemble(parts: &[Part], group: &[usize]) -> Option<Result<Function, Skipped>> {
    let heads: Vec<usize> = group.iter().copied().filter(|i| !parts[*i].cold).collect();
    let head = &parts[*heads.first()?];
    let skip = |reason, at| {
        Some(Err(Skipped {
            entry: head.code.range.start,
            size: head.code.range.end.0 - head.code.range.start.0,
            name: head.name.clone(),
            reason,
            at,
        }))
    };
    if let Some((reason, at)) = group.iter().find_map(|i| parts[*i].code.failure) {
        return skip(reason, at);
    }
    if heads.len() > 1 {
        return skip(SkipReason::SharedCode, parts[heads[1]].code.range.start);
    }
    let mut insns = Vec::with_capacity(group.iter().map(|i| parts[*i].code.insns.len()).sum());
    let mut leaders = Vec::new();
    let mut function = Function {
        entry: head.code.range.start,
        name: head.name.clone(),
        ranges: vec![head.code.range.clone()],
        insns: Vec::new(),
        blocks: Vec::new(),
        tables: Vec::new(),
    };
    let mut pads = Vec::new();
    let mut tail_jumps = Vec::new();
    for i in group {
        let part = &parts[*i];
        insns.extend_from_slice(&part.code.insns);
        leaders.extend_from_slice(&part.code.leaders);
        leaders.extend(part.code.outgoing.iter().map(|(_, to)| *to));
        pads.extend_from_slice(&part.pads);
        tail_jumps.extend_from_slice(&part.code.tail_jumps);
        function.tables.extend_from_slice(&part.code.tables);
        if *i != heads[0] {
            function.ranges.push(part.code.range.clone());
        }
    }
    insns.sort_unstable_by_key(|i| i.ip());
    leaders.sort_unstable();
    leaders.dedup();
    function.insns = insns;
    if let Err((reason, at)) = make_blocks(&mut function, &leaders, &pads) {
        return skip(reason, at);
    }
    for i in 0..function.tables.len() {
        function.tables[i].movable = tables::is_movable(&function, &function.tables[i]);
    }
    Some(Ok(function))
}

fn make_blocks(
    function: &mut Function,
    leaders: &[LinkAddr],
    pads: &[LinkAddr],
) -> Result<(), (SkipReason, LinkAddr)> {
    let insns = &function.insns;
    let mut starts = vec![0u32];
    for i in 1..insns.len() {
        let previous = &insns[i - 1];
        let ends = !matches!(flow(previous), Flow::Next | Flow::Call(_) | Flow::IndirectCall);
        if ends
            || previous.next_ip() != insns[i].ip()
            || leaders.binary_search(&LinkAddr(insns[i].ip())).is_ok()
        {
            starts.push(i as u32);
        }
    }
    let block_at = |addr: LinkAddr| {
        starts
            .binary_search_by_key(&addr.0, |s| insns[*s as usize].ip())
            .ok()
            .map(|i| BlockId(i as u32))
    };
    let mut blocks = Vec::with_capacity(starts.len());
    for (i, start) in starts.iter().enumerate() {
        let end = starts.get(i + 1).copied().unwrap_or(insns.len() as u32);
        let last = &insns[end as usize - 1];
        let next = insns
            .get(end as usize)
            .filter(|n| n.ip() == last.next_ip())
            .map(|_| BlockId(i as u32 + 1));
        let mut block = Block {
            insns: *start..end,
            succs: Vec::new(),
            falls_through: false,
            exit: None,
            landing_pad: pads.contains(&LinkAddr(insns[*start as usize].ip())),
            table: None,
        };
        let at = LinkAddr(last.ip());
        let inside = |to: LinkAddr| function.ranges.iter().any(|r| r.contains(&to));
        let target = |to: LinkAddr| match block_at(to) {
            Some(b) => Ok(Some(b)),
            None if inside(to) => Err((SkipReason::OverlappingInstructions, to)),
            None => Ok(None),
        };
        match flow(last) {
            Flow::Next | Flow::Call(_) | Flow::IndirectCall => {
                block.falls_through = next.is_some();
                block.succs.extend(next);
            }
            Flow::Jump(to) => match target(LinkAddr(to))? {
                Some(b) => block.succs.push(b),
                None => block.exit = Some(Exit::TailJump(LinkAddr(to))),
            },
            Flow::Branch(to) => {
                let Some(next) = next else { return Err((SkipReason::RunsOffEnd, at)) };
                block.falls_through = true;
                block.succs.push(next);
                match target(LinkAddr(to))? {
                    Some(b) => block.succs.push(b),
                    None => block.exit = Some(Exit::TailBranch(LinkAddr(to))),
                }
            }
            Flow::IndirectJump => match function.tables.iter().position(|t| t.jump == at) {
                Some(t) => {
                    block.table = Some(t as u32);
                    for to in &function.tables[t].targets {
                        let b = block_at(*to).ok_or((SkipReason::OverlappingInstructions, *to))?;
                        if !block.succs.contains(&b) {
                            block.succs.push(b);
                        }
                    }
                }
                None => block.exit = Some(Exit::TailIndirect),
            },
            Flow::Return => block.exit = Some(Exit::Return),
            Flow::Stop => {}
            Flow::Strange => return Err((SkipReason::StrangeFlow, at)),
        }
        blocks.push(block);
    }
    function.blocks = blocks;
    Ok(())
}
