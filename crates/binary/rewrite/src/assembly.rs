//! Putting a plan together: the functions' shares at their places, and what lies between them.

use std::ops::Range;

use fettle_code::pointers::COUNTERS;
use fettle_code::{Fixup, Mode, PartUnwind, PlannedEntry, PlannedTable, ProbeFixup};
use fettle_image::LinkAddr;
use fettle_lift::edges::{Edge, EdgeGraph, Place};
use fettle_lift::function::{Function, Skipped};
use fettle_lift::summary::Index;
use fettle_lift::{Lifted, Placement};
use rustc_hash::FxHashMap;

use crate::agent;
use crate::emit;
use crate::osr_map::OsrMap;
use crate::plan::{
    EntryPatch, Plan, PlanFixup, PlanFixupKind, PlanOptions, PlannedChunk, PlannedFunction,
};

/// One function's share of a plan.
pub(crate) struct Made {
    /// Its number among the lifted ones.
    pub function: usize,
    pub new: emit::Kept,
    pub unwind: Vec<PartUnwind>,
    pub entry_patches: Vec<(LinkAddr, u32)>,
    /// Copies of jump tables with their index in the function; entries are relative to it.
    pub tables: Vec<(u32, PlannedTable)>,
    pub places: Vec<(LinkAddr, u32)>,
    pub osr_map: OsrMap,
}

/// What a probe's field holds in the plan, where the function's counters begin at `counters`.
fn of_probe(fixup: ProbeFixup, counters: u32) -> PlanFixupKind {
    match fixup {
        ProbeFixup::Accumulator(field) => PlanFixupKind::Accumulator(field),
        ProbeFixup::Counter(n) => PlanFixupKind::Counter(counters + n),
        ProbeFixup::IdHigh => PlanFixupKind::IdHigh,
        ProbeFixup::IdLow => PlanFixupKind::IdLow,
        ProbeFixup::Number => PlanFixupKind::Number,
        ProbeFixup::RingMask => PlanFixupKind::RingMask,
        ProbeFixup::Agent(entry) => PlanFixupKind::New(agent::entry_offset(entry)),
        ProbeFixup::Inline(_) | ProbeFixup::OutOfLine(_) => unreachable!("resolved by emission"),
    }
}

/// A plan on the way: functions are put behind each other as they are made.
pub(crate) struct Assembly<'a> {
    lifted: &'a Lifted,
    index: &'a Index,
    placement: Option<&'a Placement>,
    plan: Plan,
    /// For each lifted function, where its rewritten text begins in the text, if it has any.
    entries: Vec<Option<u32>>,
    /// Numbers of fixups that lead to functions: where those lie is known at the end only.
    calls: Vec<usize>,
    /// Instructions of the functions that are there.
    insns: usize,
    /// Instructions of all.
    all_insns: usize,
}

impl<'a> Assembly<'a> {
    /// No function yet; `index` has the numbers of all.
    pub(crate) fn new(
        lifted: &'a Lifted,
        index: &'a Index,
        options: &PlanOptions<'a>,
    ) -> Assembly<'a> {
        let mut text = agent::CODE.to_vec();
        if let Some(user_probe) = options.probes.user_probe {
            text.resize(agent::user_at() as usize, emit::TRAP);
            text.extend_from_slice(&user_probe.code);
        }
        let functions = lifted.functions.len();
        let plan = Plan {
            mode: options.probes.mode,
            functions: Vec::with_capacity(functions),
            skipped: lifted.skipped.clone(),
            chunks: Vec::with_capacity(functions),
            text,
            fixups: Vec::new(),
            tables: Vec::new(),
            entry_patches: Vec::with_capacity(functions),
            unwind: Vec::with_capacity(functions),
            counters: 0,
            coverage: lifted.coverage,
        };
        Assembly {
            lifted,
            index,
            placement: options.placement,
            plan,
            entries: vec![None; functions],
            calls: Vec::new(),
            insns: 0,
            all_insns: lifted.functions.iter().map(|f| f.insns.len()).sum(),
        }
    }

    /// Adds functions, which come behind those that are there. A placement says where each of a
    /// plan's functions goes, so they have to come all at once.
    pub(crate) fn add(&mut self, made: Vec<Result<Made, Skipped>>) {
        // In the same memory.
        let skipped = &mut self.plan.skipped;
        let kept = made.into_iter().filter_map(|made| made.map_err(|s| skipped.push(s)).ok());
        let kept: Vec<Made> = kept.collect();
        let from = self.plan.text.len() as u32;
        let (places, end) = place_chunks(self.lifted, self.placement, &kept, from);
        let insns = kept.iter().map(|made| self.lifted.functions[made.function].insns.len());
        self.insns += insns.sum::<usize>();
        let fixups = kept.iter().map(|made| made.new.fixups.len()).sum();
        let share = (self.insns, self.all_insns);
        make_room(&mut self.plan.text, (end - from) as usize, share);
        make_room(&mut self.plan.fixups, fixups, share);
        // Traps between functions.
        self.plan.text.resize(end as usize, emit::TRAP);
        for (made, places) in kept.into_iter().zip(&places) {
            self.add_function(made, places);
        }
    }

    /// Adds one function.
    fn add_function(&mut self, made: Made, places: &Places) {
        let plan = &mut self.plan;
        let function = &self.lifted.functions[made.function];
        let index = plan.functions.len() as u32;
        let base = places.of(0);
        self.entries[made.function] = Some(base);
        for (from, at) in places.ranges() {
            let end = at as usize + from.len();
            plan.text[at as usize..end].copy_from_slice(&made.new.code[from]);
            plan.chunks.push(PlannedChunk { function: index, start: at, end: end as u32 });
        }
        let mut tables = FxHashMap::default();
        for (i, mut table) in made.tables {
            move_table(&mut table, places);
            tables.insert(i, plan.tables.len() as u32);
            plan.tables.push(table);
        }
        for (at, fixup) in &made.new.fixups {
            let kind = match *fixup {
                Fixup::Original { to, after } => PlanFixupKind::Original { to, after },
                Fixup::Function(to) => {
                    self.calls.push(plan.fixups.len());
                    PlanFixupKind::Original { to, after: 0 }
                }
                Fixup::Across(to) => PlanFixupKind::New(places.of(to)),
                Fixup::Table(t) => PlanFixupKind::Table(tables[&t]),
                Fixup::TableAddress(t) => PlanFixupKind::TableAddress(tables[&t]),
                Fixup::Probe(probe) => of_probe(probe, plan.counters),
            };
            plan.fixups.push(PlanFixup { at: places.of(*at), function: index, kind });
        }
        plan.entry_patches.extend(
            made.entry_patches.iter().map(|(at, to)| EntryPatch { at: *at, to: places.of(*to) }),
        );
        plan.unwind.extend(made.unwind.into_iter().map(|part| (index, place_part(part, places))));
        let mode = plan.mode;
        let starts = function.blocks.iter().map(|b| b.start);
        let (first, _) = places.ranges().next().expect("a function has code");
        let (counters, pointers) = (made.new.counters, made.new.pointers);
        let used = (counters.len() as u32, pointers.len() as u32 * COUNTERS);
        plan.functions.push(PlannedFunction {
            entry: function.entry,
            name: function.name.clone(),
            size: function.size(),
            text_offset: base,
            text_size: first.len() as u32,
            counters: (plan.counters, counters),
            pointers,
            blocks: if mode.has_counters() { starts.collect() } else { Vec::new() },
            osr_map: made.osr_map.placed(|at| places.of(at)),
            edges: counted_edges(function, mode),
            places: made.places.into_iter().map(|(at, to)| (at, places.of(to))).collect(),
        });
        plan.counters += used.0 + if mode.has_counters() { used.1 } else { 0 };
    }

    /// The plan, when all functions are there.
    pub(crate) fn finish(mut self) -> Plan {
        for number in self.calls {
            let kind = &mut self.plan.fixups[number].kind;
            if let PlanFixupKind::Original { to, .. } = kind
                && let Some(function) = self.index.get(to)
                && let Some(offset) = self.entries[*function]
            {
                *kind = PlanFixupKind::New(offset);
            }
        }
        // Functions without probes are listed: reports say how many there are of each.
        let (probed, left) = (self.plan.functions.len(), self.plan.skipped.len());
        let all = self.lifted.functions.len() + self.lifted.skipped.len();
        assert_eq!(probed + left, all, "functions that are neither probed nor listed");
        self.plan.skipped.sort_by_key(|s| s.entry);
        self.plan.chunks.sort_by_key(|c| c.start);
        self.plan.entry_patches.sort_by_key(|s| s.at);
        self.plan
    }
}

/// Makes room for `more`, and for what is still to come if that is like what is there: to move what
/// has no room takes as long as to write it, and memory that is never written to costs nothing. `share`
/// is how much is there when `more` is, of how much.
fn make_room<T>(list: &mut Vec<T>, more: usize, share: (usize, usize)) {
    let len = list.len() + more;
    if len > list.capacity() {
        let (there, all) = share;
        let expected = len * (all - there) / there.max(1);
        list.reserve_exact(more + expected + expected / 8);
    }
}

/// Where the chunks of one function's rewritten text are in the text.
struct Places {
    /// Offset in the function's code and in the text, for each.
    chunks: Vec<(u32, u32)>,
    /// Bytes of code.
    size: u32,
}

impl Places {
    /// The place in the text of an offset in the function's code.
    fn of(&self, offset: u32) -> u32 {
        if let [(_, text)] = self.chunks[..] {
            return text + offset;
        }
        let chunk = self.chunks.partition_point(|(start, _)| *start <= offset).max(1) - 1;
        let (start, text) = self.chunks[chunk];
        text + (offset - start)
    }

    /// Where the chunks begin and end: in the function's code, and in the text.
    fn ranges(&self) -> impl Iterator<Item = (Range<usize>, u32)> {
        let ends = self.chunks[1..].iter().map(|(start, _)| *start).chain([self.size]);
        self.chunks.iter().zip(ends).map(|((from, at), to)| (*from as usize..to as usize, *at))
    }
}

/// Gives every chunk its place in the text, which is filled up to `from`; where it ends.
fn place_chunks(
    lifted: &Lifted,
    placement: Option<&Placement>,
    kept: &[Made],
    from: u32,
) -> (Vec<Places>, u32) {
    let mut places: Vec<Places> = kept
        .iter()
        .map(|made| Places {
            chunks: made.new.chunk_starts.iter().map(|start| (*start, u32::MAX)).collect(),
            size: made.new.code.len() as u32,
        })
        .collect();
    let mut offset = from;
    let mut put = |places: &mut Places, chunk: usize, align: u32| {
        let start = places.chunks[chunk].0;
        let next = places.chunks.get(chunk + 1).map(|(start, _)| *start);
        offset = offset.next_multiple_of(align);
        places.chunks[chunk].1 = offset;
        offset += next.unwrap_or(places.size) - start;
    };
    if let Some(placement) = placement {
        // Which made function a chunk is of, and which of its chunks.
        let mut numbers: Vec<Option<(usize, usize)>> = vec![None; placement.chunks().len()];
        for (m, made) in kept.iter().enumerate() {
            let indices = placement.of(&lifted.functions[made.function]).unwrap_or_default();
            for (n, i) in indices.into_iter().enumerate() {
                numbers[i] = Some((m, n));
            }
        }
        for (chunk, number) in placement.chunks().iter().zip(numbers) {
            if let Some((m, n)) = number {
                put(&mut places[m], n, chunk.align.max(1));
            }
        }
    }
    for places in places.iter_mut().filter(|p| p.chunks[0].1 == u32::MAX) {
        put(places, 0, 16);
    }
    (places, offset)
}

/// Leads a jump table to a function's code where it is in the plan.
fn move_table(table: &mut PlannedTable, places: &Places) {
    for entry in &mut table.entries {
        if let PlannedEntry::New(offset) = entry {
            *offset = places.of(*offset);
        }
    }
}

/// The edges of a function and where each is counted, if that is what is counted.
fn counted_edges(function: &Function, mode: Mode) -> Vec<(Edge, Option<Place>)> {
    let graph = (mode == Mode::Edges).then(|| EdgeGraph::new(function));
    graph.map_or(Vec::new(), |g| g.edges.into_iter().zip(g.places).collect())
}

/// Unwind information of a part where it came to lie, from the function's first chunk on.
fn place_part(mut part: PartUnwind, places: &Places) -> PartUnwind {
    let size = part.end - part.start;
    part.start = places.of(part.start).wrapping_sub(places.of(0));
    part.end = part.start.wrapping_add(size);
    if let (Some(table), true) = (&mut part.table, places.chunks.len() > 1) {
        table.move_pads(|offset| places.of(offset));
    }
    part
}
