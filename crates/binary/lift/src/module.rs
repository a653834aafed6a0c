//! Lifting every function of an image.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;

use fettle_image::{FunctionRange, Image, Kind, LinkAddr};
use fettle_isa::{FactsFactory, Flow, Insn};
use rayon::prelude::*;
use rustc_hash::FxHashSet;

use crate::coverage::Coverage;
use crate::decode::{self, Scratch};
use crate::function::{
    Block, BlockId, Exit, Function, JumpTable, Ranges, SkipReason, Skipped, Succs,
};
use crate::listed;
use crate::lsda::{self, Lsda};
use crate::pool::Pool;
use crate::range_code::RangeCode;
use crate::rseq;
use crate::runtime;
use crate::tables::{self, TableContext};

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
    /// How much of the code is in functions that are known.
    pub coverage: Coverage,
}

/// A range on its way to becoming a part of a function.
struct Part {
    name: Option<String>,
    cold: bool,
    /// Parts are moved about, and this is large.
    code: Box<RangeCode>,
    pads: Vec<LinkAddr>,
}

/// Lifts every function of `image` that can be lifted with certainty; in parallel.
pub fn lift(image: &Image) -> Lifted {
    let ranges = image.functions();
    let cold = cold_ranges(image, &ranges);
    let context = TableContext::new(image, cold.clone());

    let (mut parts, tables) = decode_all(image, ranges, &cold, &context);
    let kept = runtime::kept(image, parts.iter().map(|p| (p.name.as_deref(), &*p.code)));
    let restarted = rseq::known_to_kernel(image);
    for (part, kept) in parts.iter_mut().zip(kept) {
        let range = &part.code.range;
        if let Some(failure) = kept {
            part.code.failure = Some(failure);
        } else if let Some(at) = relocated(image, range) {
            part.code.failure = Some((SkipReason::Relocation, at));
        } else if let Some(at) = restarted.iter().find(|at| range.contains(at)) {
            part.code.failure = Some((SkipReason::Restartable, *at));
        }
    }
    let places = Places::of(&parts);
    follow_across(image, &mut parts, &places, &context);
    parts.par_iter_mut().for_each(|p| p.code.close());
    let groups = group(&parts, &places);
    keep_named_inside(image, &mut parts, &places, &groups, &context);
    let targets = targets(image, &parts, &context);
    find_unnamed_cold(image, &mut parts, &groups, &context);

    let mut lifted = Lifted {
        exception_tables: tables,
        targets,
        code_bytes: parts.iter().map(|p| p.code.code_bytes).sum(),
        coverage: Coverage::new(
            image,
            parts.iter().map(|p| p.code.known_bytes()).fold(0, u64::saturating_add),
        ),
        ..Lifted::default()
    };
    // From here on each group has its parts to itself.
    let mut parts: Vec<Option<Part>> = parts.into_iter().map(Some).collect();
    let groups: Vec<Vec<Part>> =
        groups.iter().map(|g| g.iter().filter_map(|i| parts[*i].take()).collect()).collect();
    let results: Vec<Result<Function, Vec<Skipped>>> =
        groups.into_par_iter().map(|parts| assemble(image, parts)).collect();
    // In the same memory: there is much of it.
    let skipped = &mut lifted.skipped;
    let functions = results.into_iter().filter_map(|made| made.map_err(|s| skipped.extend(s)).ok());
    lifted.functions = functions.collect();
    let missing = listed::missing(image, &lifted.functions, skipped, &places.0);
    skipped.extend(missing);
    lifted.tables = lifted.functions.iter().flat_map(|f| &f.tables).map(|t| t.start).collect();
    lifted.tables.sort_unstable();
    lifted.functions.sort_by_key(|f| f.entry);
    lifted.skipped.sort_by_key(|s| s.entry);
    lifted
}

/// Where the loader changes code, if it does (text relocations): a copy is made before that.
fn relocated(image: &Image, range: &Range<LinkAddr>) -> Option<LinkAddr> {
    /// No relocation changes more bytes.
    const LONGEST: u64 = 8;
    let relocs = image.relocs();
    let first = relocs.partition_point(|r| r.addr.0.saturating_add(LONGEST) <= range.start.0);
    relocs.get(first).map(|r| r.addr).filter(|at| *at < range.end)
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
    ranges: Vec<FunctionRange>,
    cold: &[Range<LinkAddr>],
    context: &TableContext<'_>,
) -> (Vec<Part>, HashMap<LinkAddr, Lsda>) {
    let fdes = image.fdes();
    let tools = Pool::new(<(FactsFactory, Scratch)>::default);
    let decoded: Vec<(Part, Vec<(LinkAddr, Lsda)>)> = ranges
        .into_par_iter()
        .map_init(
            || tools.take(),
            |tools, range| {
                let (facts, scratch) = &mut **tools;
                // A damaged file may claim any size; memory is for what it has.
                let there =
                    image.read(range.start, (range.end.0 - range.start.0) as usize).is_some();
                let end = if there { range.end } else { LinkAddr(range.start.0.saturating_add(1)) };
                let mut code = Box::new(RangeCode::new(
                    range.start..end,
                    range.evidence.size_guessed,
                    scratch,
                ));
                if !there {
                    code.failure = Some((SkipReason::RunsOffEnd, range.start));
                }
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
                follow(image, &mut code, context, facts);
                code.settle(scratch);
                let part = Part { name: range.name, cold: is_cold(cold, range.start), code, pads };
                (part, found)
            },
        )
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

fn follow(
    image: &Image,
    code: &mut RangeCode,
    context: &TableContext<'_>,
    facts: &mut FactsFactory,
) {
    let len = (code.range.end.0 - code.range.start.0) as usize;
    match image.read(code.range.start, len) {
        Some(bytes) => {
            code.follow(bytes, context, facts);
            if decode::splits_stack(bytes) {
                code.failure.get_or_insert((SkipReason::SplitStack, code.range.start));
            }
        }
        None => code.failure = Some((SkipReason::Undecodable, code.range.start)),
    }
}

/// Where parts lie, in order: close together, for much is looked up.
struct Places(Vec<Range<LinkAddr>>);

impl Places {
    fn of(parts: &[Part]) -> Places {
        Places(parts.iter().map(|part| part.code.range.clone()).collect())
    }

    /// The part that `addr` lies in.
    fn part_at(&self, addr: LinkAddr) -> Option<usize> {
        let i = self.0.partition_point(|range| range.end <= addr);
        self.0.get(i).filter(|range| range.contains(&addr)).map(|_| i)
    }

    /// Those of `addrs`, which are in order, that lie in the middle of a part, with that.
    fn inside(&self, addrs: &[LinkAddr]) -> Vec<(usize, LinkAddr)> {
        let mut parts = self.0.iter().enumerate().peekable();
        let mut inside = Vec::new();
        for addr in addrs {
            while parts.next_if(|(_, range)| range.end <= *addr).is_some() {}
            let Some((part, range)) = parts.peek() else { break };
            inside.extend((range.start < *addr).then_some((*part, *addr)));
        }
        inside
    }
}

/// Where control goes from one part into the middle of another: jumps, jump tables, handlers.
fn jumps_inside(part: &Part) -> impl Iterator<Item = LinkAddr> {
    let own = part.code.range.clone();
    part.code
        .outgoing
        .iter()
        .map(|(_, to)| *to)
        .chain(table_targets(&part.code.tables))
        .chain(part.pads.iter().copied())
        .filter(move |to| !own.contains(to))
}

/// Where tables lead, those that lie in one place once.
fn table_targets(tables: &[JumpTable]) -> impl Iterator<Item = LinkAddr> {
    let places = tables.chunk_by(|a, b| Arc::ptr_eq(&a.entries, &b.entries));
    places.flat_map(|tables| tables[0].targets())
}

fn follow_across(image: &Image, parts: &mut [Part], places: &Places, context: &TableContext<'_>) {
    // Nearly all is known already.
    let mut tools: Option<(FactsFactory, Scratch)> = None;
    let mut work: Vec<usize> = (0..parts.len()).collect();
    let mut into = Vec::new();
    while let Some(i) = work.pop() {
        into.clear();
        into.extend(jumps_inside(&parts[i]).filter_map(|to| Some((places.part_at(to)?, to))));
        into.sort_unstable();
        into.dedup();
        // All entries of one part at once: opening it again reads all of it.
        for entries in into.chunk_by(|a, b| a.0 == b.0) {
            let j = entries[0].0;
            let code = &mut parts[j].code;
            let start = code.range.start;
            let mut unknown: Vec<LinkAddr> = Vec::new();
            for (_, to) in entries.iter().filter(|(_, to)| *to != start) {
                if code.failure.is_none() && !code.add_known_entry(*to) {
                    unknown.push(*to);
                }
            }
            if unknown.is_empty() {
                continue;
            }
            let known = code.outgoing.len() + code.tables.len();
            let (facts, scratch) = tools.get_or_insert_default();
            code.reopen(scratch);
            unknown.into_iter().for_each(|to| code.add_entry(to));
            follow(image, code, context, facts);
            code.settle(scratch);
            if code.outgoing.len() + code.tables.len() != known {
                work.push(j);
            }
        }
    }
}

/// Brings parts together that make up one function; each group lists its parts.
fn group(parts: &[Part], places: &Places) -> Vec<Vec<usize>> {
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
        let own = table_targets(&code.tables).chain(parts[i].pads.iter().copied());
        let mut own: Vec<LinkAddr> = own.filter(|to| !code.range.contains(to)).collect();
        own.sort_unstable();
        for to in jumps_inside(&parts[i]) {
            let Some(j) = places.part_at(to) else { continue };
            if places.0[j].start != to || parts[j].cold || own.binary_search(&to).is_ok() {
                let (a, b) = (find(&mut leader, i), find(&mut leader, j));
                leader[a.max(b)] = a.min(b);
            }
        }
    }
    // A leader is the first of its group.
    let mut groups: Vec<Vec<usize>> = vec![Vec::new(); parts.len()];
    for i in 0..parts.len() {
        groups[find(&mut leader, i)].push(i);
    }
    groups.retain(|g| !g.is_empty());
    groups
}

/// Leaves functions unmodified in whose middle others name an instruction, in code or in data: code that asks
/// whether a thread is between two such does not find it in a copy. Labels that only the function's own
/// jumps go through are none of these.
fn keep_named_inside(
    image: &Image,
    parts: &mut [Part],
    places: &Places,
    groups: &[Vec<usize>],
    context: &TableContext<'_>,
) {
    let mut named: Vec<(LinkAddr, usize)> = Vec::new();
    for (i, part) in parts.iter().enumerate() {
        named.extend(part.code.named.iter().map(|to| (*to, i)));
    }
    named.sort_unstable();
    let addrs: Vec<LinkAddr> = named.iter().map(|(to, _)| *to).collect();
    let by_code = places.inside(&addrs);
    // Where no relocations tell, a number may look like an address.
    let certain = image.kind() != Kind::Executable;
    let by_data = if certain { places.inside(context.labels()) } else { Vec::new() };
    if by_code.is_empty() && by_data.is_empty() {
        return;
    }
    let mut group_of = vec![0; parts.len()];
    for (number, group) in groups.iter().enumerate() {
        group.iter().for_each(|i| group_of[*i] = number);
    }
    let others = by_code.into_iter().filter(|(j, to)| {
        let from = named.partition_point(|(addr, _)| addr < to);
        let who = named[from..].iter().take_while(|(addr, _)| addr == to);
        who.map(|(_, i)| group_of[*i]).any(|group| group != group_of[*j])
    });
    let mut known: Vec<(usize, LinkAddr)> = others.collect();
    for labels in by_data.chunk_by(|a, b| a.0 == b.0) {
        let group = groups[group_of[labels[0].0]].iter();
        let own: FxHashSet<LinkAddr> =
            group.flat_map(|i| table_targets(&parts[*i].code.tables)).collect();
        known.extend(labels.iter().filter(|(_, to)| !own.contains(to)));
    }
    for (j, to) in known {
        let code = &mut parts[j].code;
        if code.insns.binary_search_by_key(&to.0, Insn::ip).is_ok() {
            code.failure.get_or_insert((SkipReason::NamedInside, to));
        }
    }
}

/// Which of `starts` (sorted) may be called: by a direct call, through a symbol or a pointer in
/// data.
fn called(
    image: &Image,
    parts: &[Part],
    context: &TableContext<'_>,
    starts: &[LinkAddr],
) -> HashSet<LinkAddr> {
    let is_start = |at: &LinkAddr| starts.binary_search(at).is_ok();
    let functions = image.symbols().iter().filter(|s| !s.name.contains(".cold"));
    let named = functions.map(|s| s.addr).chain([image.entry()]).filter(is_start);
    let mut all: HashSet<LinkAddr> = named.collect();
    // Entries of jump tables are pointers in data, too, but no call goes through them.
    let in_tables: HashSet<LinkAddr> =
        parts.iter().flat_map(|p| table_targets(&p.code.tables)).filter(is_start).collect();
    all.par_extend(parts.par_iter().flat_map_iter(|part| {
        let labels = context.labels_in(&part.code.range).iter().copied();
        // A function's address may be taken in code, too.
        let leas = part.code.insns.iter().filter(|i| i.is_ip_rel_memory_operand());
        let leas = leas.map(|i| LinkAddr(i.ip_rel_memory_address()));
        let calls = part.code.calls.iter().copied();
        labels.filter(|l| !in_tables.contains(l)).chain(calls).chain(leas).filter(is_start)
    }));
    all
}

/// Where several parts of a group begin like functions, those without a caller are cold parts
/// whose frame happens to be empty where they begin.
fn find_unnamed_cold(
    image: &Image,
    parts: &mut [Part],
    groups: &[Vec<usize>],
    context: &TableContext<'_>,
) {
    let heads_of = |g: &Vec<usize>| g.iter().copied().filter(|i| !parts[*i].cold).collect();
    let several: Vec<Vec<usize>> = groups
        .iter()
        .filter(|g| g.len() > 1)
        .map(heads_of)
        .filter(|h: &Vec<_>| h.len() > 1)
        .collect();
    if several.is_empty() {
        return;
    }
    let mut starts: Vec<LinkAddr> =
        several.iter().flatten().map(|i| parts[*i].code.range.start).collect();
    starts.sort_unstable();
    let called = called(image, parts, context, &starts);
    for heads in several {
        let is_called = |i: &usize| called.contains(&parts[*i].code.range.start);
        let (real, unnamed): (Vec<usize>, Vec<usize>) = heads.into_iter().partition(is_called);
        if real.len() == 1 {
            for i in unnamed {
                parts[i].cold = true;
            }
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
    let mut known: Vec<_> = parts.iter().map(|part| &part.code.range).collect();
    known.sort_unstable_by_key(|range| (range.start, range.end));
    let is_known = |at: &LinkAddr| {
        let next = known.partition_point(|range| range.start <= *at);
        next > 0 && known[next - 1].contains(at)
    };
    for part in parts {
        all.push(part.code.range.start);
        all.extend_from_slice(&part.code.calls);
        // Code without a symbol and an unwind entry goes on running where it is, too.
        let outgoing = part.code.outgoing.iter().map(|(_, to)| *to);
        all.extend(outgoing.filter(|to| !is_known(to)));
        all.extend_from_slice(&part.code.unlocked);
        all.extend_from_slice(context.labels_in(&part.code.range));
        if part.code.failure.is_some() {
            // This code goes on running where it is.
            all.extend(part.code.outgoing.iter().map(|(_, to)| *to));
            all.extend_from_slice(&part.code.leaders);
            all.extend(table_targets(&part.code.tables));
        }
    }
    all.sort_unstable();
    all.dedup();
    all
}

/// Makes a function of its parts, or says of each part that is a function why it is none of ours.
fn assemble(image: &Image, mut parts: Vec<Part>) -> Result<Function, Vec<Skipped>> {
    let failure = parts.iter().find_map(|p| p.code.failure);
    let Some(head) = parts.iter().position(|p| !p.cold) else {
        let (start, nothing) = (parts[0].code.range.start, SkipReason::NothingLeads);
        return Err(skip_all(parts, failure.unwrap_or((nothing, start))));
    };
    let other_head = || parts[head + 1..].iter().find(|p| !p.cold);
    let shared = || other_head().map(|p| (SkipReason::SharedCode, p.code.range.start));
    if let Some(why) = failure.or_else(shared) {
        parts.retain(|part| !part.cold);
        return Err(skip_all(parts, why));
    }
    let entry = parts[head].code.range.start;
    let name = parts[head].name.take();
    let size = parts[head].code.range.end - entry;
    let mut leaders = Vec::new();
    let mut pads = Vec::new();
    let mut function = Function {
        entry,
        name,
        ranges: Ranges::from([parts[head].code.range.clone()]),
        insns: Vec::new(),
        facts: Vec::new(),
        blocks: Vec::new(),
        tables: Vec::new(),
    };
    let insns: usize = parts.iter().map(|part| part.code.insns.len()).sum();
    for (i, part) in parts.into_iter().enumerate() {
        let mut code = part.code;
        // Parts are in order of address, and so are the instructions of each.
        if function.insns.is_empty() {
            (function.insns, function.facts) = (code.insns, code.facts);
            function.insns.reserve_exact(insns - function.insns.len());
            function.facts.reserve_exact(insns - function.facts.len());
        } else {
            function.insns.append(&mut code.insns);
            function.facts.append(&mut code.facts);
        }
        leaders.append(&mut code.leaders);
        leaders.extend(code.outgoing.iter().map(|(_, to)| *to));
        pads.extend_from_slice(&part.pads);
        function.tables.append(&mut code.tables);
        if i != head {
            function.ranges.push(code.range);
        }
    }
    leaders.sort_unstable();
    leaders.dedup();
    pads.sort_unstable();
    if let Err((reason, at)) = make_blocks(&mut function, &leaders, &pads) {
        return Err(vec![Skipped { entry, size, name: function.name, reason, at }]);
    }
    tables::find_movable(image, &mut function);
    Ok(function)
}

/// The functions that begin with these parts, left unmodified for the same reason.
fn skip_all(parts: Vec<Part>, (reason, at): (SkipReason, LinkAddr)) -> Vec<Skipped> {
    let skip = |part: Part| {
        let range = part.code.range;
        Skipped { entry: range.start, size: range.end - range.start, name: part.name, reason, at }
    };
    parts.into_iter().map(skip).collect()
}

/// Indices of the instructions that start a block, by what comes before them or leads to them;
/// `leaders` are sorted.
fn block_starts(function: &Function, leaders: &[LinkAddr]) -> Vec<u32> {
    let mut starts = Vec::with_capacity(leaders.len() + function.ranges.len());
    let mut leaders = leaders.iter().map(|l| l.0);
    let mut leader = leaders.next().unwrap_or(u64::MAX);
    // Where the instruction before ends, if control goes on from it.
    let mut follows = u64::MAX;
    for (i, (insn, facts)) in function.insns.iter().zip(&function.facts).enumerate() {
        let at = insn.ip();
        while leader < at {
            leader = leaders.next().unwrap_or(u64::MAX);
        }
        if follows != at || leader == at || i == 0 {
            starts.push(i as u32);
        }
        follows = if facts.goes_on() || facts.may_return() { insn.next_ip() } else { u64::MAX };
    }
    starts
}

/// Finds the blocks that jump tables lead to, each once.
#[derive(Default)]
struct TableSuccs {
    /// For each block, the number, from one, of the table that led to it last.
    led_to: Vec<usize>,
    tables: usize,
    /// What the last table led to: every `goto *` of an interpreter leads to the same.
    last: Option<(Arc<[Option<LinkAddr>]>, Succs)>,
}

impl TableSuccs {
    /// What `table` leads to; `starts` are where blocks begin.
    fn of(
        &mut self,
        table: &JumpTable,
        starts: &[LinkAddr],
    ) -> Result<Succs, (SkipReason, LinkAddr)> {
        if let Some((entries, succs)) = &self.last
            && Arc::ptr_eq(entries, &table.entries)
        {
            return Ok(succs.clone());
        }
        self.led_to.resize(starts.len(), 0);
        self.tables += 1;
        let mut succs = Succs::new();
        for to in table.targets() {
            let Ok(block) = starts.binary_search(&to) else {
                return Err((SkipReason::OverlappingInstructions, to));
            };
            if std::mem::replace(&mut self.led_to[block], self.tables) != self.tables {
                succs.push(BlockId(block as u32));
            }
        }
        self.last = Some((table.entries.clone(), succs.clone()));
        Ok(succs)
    }
}

/// The exit behind `last`, with which a part of the function ends.
fn runs_on(last: &Insn, inside: impl Fn(LinkAddr) -> bool) -> Result<Exit, (SkipReason, LinkAddr)> {
    let behind = LinkAddr(last.next_ip());
    match inside(behind) {
        true => Err((SkipReason::RunsOffEnd, LinkAddr(last.ip()))),
        false => Ok(Exit::TailJump(behind)),
    }
}

fn make_blocks(
    function: &mut Function,
    leaders: &[LinkAddr],
    pads: &[LinkAddr],
) -> Result<(), (SkipReason, LinkAddr)> {
    let starts = block_starts(function, leaders);
    let insns = &function.insns;
    let at: Vec<LinkAddr> = starts.iter().map(|s| LinkAddr(insns[*s as usize].ip())).collect();
    let block_at = |addr: LinkAddr| at.binary_search(&addr).ok().map(|i| BlockId(i as u32));
    let mut blocks = Vec::with_capacity(starts.len());
    let mut table_succs = TableSuccs::default();
    for (i, start) in starts.iter().enumerate() {
        let end = starts.get(i + 1).copied().unwrap_or(insns.len() as u32);
        let last = &insns[end as usize - 1];
        let next = insns
            .get(end as usize)
            .filter(|n| n.ip() == last.next_ip())
            .map(|_| BlockId(i as u32 + 1));
        let mut block = Block {
            start: at[i],
            insns: *start..end,
            succs: Succs::new(),
            falls_through: false,
            exit: None,
            landing_pad: pads.binary_search(&at[i]).is_ok(),
            switches: false,
        };
        let jump = LinkAddr(last.ip());
        let inside = |to: LinkAddr| function.ranges.iter().any(|r| r.contains(&to));
        let target = |to: LinkAddr| match block_at(to) {
            Some(b) => Ok(Some(b)),
            None if inside(to) => Err((SkipReason::OverlappingInstructions, to)),
            None => Ok(None),
        };
        match function.flow(end as usize - 1) {
            Flow::Next if next.is_none() => block.exit = Some(runs_on(last, inside)?),
            Flow::Next | Flow::Trap | Flow::Call(_) | Flow::IndirectCall => {
                block.falls_through = next.is_some();
                block.succs.extend(next);
            }
            Flow::Jump(to) => match target(LinkAddr(to))? {
                Some(b) => block.succs.push(b),
                None => block.exit = Some(Exit::TailJump(LinkAddr(to))),
            },
            Flow::Branch(to) => {
                let Some(next) = next else { return Err((SkipReason::RunsOffEnd, jump)) };
                block.falls_through = true;
                block.succs.push(next);
                match target(LinkAddr(to))? {
                    Some(b) => block.succs.push(b),
                    None => block.exit = Some(Exit::TailBranch(LinkAddr(to))),
                }
            }
            Flow::IndirectJump => match function.tables.iter().position(|t| t.jump == jump) {
                Some(t) => {
                    block.switches = true;
                    block.succs = table_succs.of(&function.tables[t], &at)?;
                }
                None => block.exit = Some(Exit::TailIndirect),
            },
            Flow::Return => block.exit = Some(Exit::Return),
            Flow::Stop => {}
            Flow::Strange => return Err((SkipReason::StrangeFlow, jump)),
        }
        blocks.push(block);
    }
    function.blocks = blocks;
    Ok(())
}
