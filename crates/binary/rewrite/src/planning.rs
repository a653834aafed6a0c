//! Planning: every function of an image is emitted, checked, and put into one plan.

use std::ops::Range;
use std::sync::atomic::Ordering;

use fettle_check::{CheckError, Checker, Claim};
use fettle_code::{
    Context, ENTRY_PATCH_SIZE, Emitted, Fixup, LandingBase, PartUnwind, PlannedEntry, PlannedTable,
};
use fettle_image::{Image, LinkAddr, unversioned};
use fettle_isa::{Flow, Insn, RegSet};
use fettle_lift::conventions;
use fettle_lift::function::{Exit, Function, JumpTable, Skipped, TableKind};
use fettle_lift::liveness::{self, Callees, ExitLiveness, HIDDEN, Liveness};
use fettle_lift::results::{self, Solved};
use fettle_lift::summary::{self, Index, Summary};
use fettle_lift::{Lifted, Pool, SkipReason};
use rayon::prelude::*;

use crate::assembly::{Assembly, Made};
use crate::emit;
use crate::filler::is_filler;
use crate::osr_map::OsrMap;
use crate::plan::{Plan, PlanOptions};
use crate::pointer;
use crate::unwind::{self, RowReader};

/// Functions that return a second time, after a `longjmp`.
const RETURNS_TWICE: [&str; 7] =
    ["setjmp", "_setjmp", "__sigsetjmp", "sigsetjmp", "__setjmp", "savectx", "getcontext"];

/// Functions of the loader that ask for their caller's module.
const CALLER_SENSITIVE: [&str; 5] = ["dlsym", "dlvsym", "dlopen", "dlmopen", "dl_iterate_phdr"];

/// Makes rewritten text for the functions of `image`; in parallel.
pub fn plan(image: &Image, lifted: &Lifted, options: PlanOptions<'_>) -> Plan {
    plan_checked_by(image, lifted, options, || {
        let mut checker = Checker::new(image);
        move |claim: Claim<'_>, context: &Context<'_>| checker.check(claim, context)
    })
}

/// As [`plan`], with another checker; `checker` makes one per thread.
pub fn plan_checked_by<C>(
    image: &Image,
    lifted: &Lifted,
    options: PlanOptions<'_>,
    checker: impl Fn() -> C + Sync + Send,
) -> Plan
where
    C: FnMut(Claim<'_>, &Context<'_>) -> Result<(), CheckError> + Send,
{
    let by_entry: Index = lifted.functions.iter().enumerate().map(|(i, f)| (f.entry, i)).collect();
    let mut summaries = summary::summaries(image, &lifted.functions, &by_entry);
    let callers = summary::callers(&summaries);
    let clobbers = fettle_lift::clobbers::solve(&summaries, &callers);
    let Solved { results, inputs: reads } =
        results::solve(image, lifted, &by_entry, &mut summaries, &callers, &clobbers);
    let results = unwind::with_kept(image, results);
    let returns_twice = named_targets(image, &RETURNS_TWICE);
    let caller_sensitive = caller_sensitive(image);
    let unread = vec![RegSet::NONE; lifted.functions.len()];
    let callees =
        Callees { index: &by_entry, clobbers: &clobbers, inputs: &unread, pointed: RegSet::NONE };
    let mut inputs = hidden_inputs(&summaries, &callers, &reads, callees);
    let pointed = conventions::pointed(image, &lifted.functions, &summaries, &inputs);
    if !pointed.is_empty() {
        inputs = hidden_inputs(&summaries, &callers, &reads, Callees { pointed, ..callees });
    }
    let callees = Callees { inputs: &inputs, pointed, ..callees };
    let known: Vec<(Liveness, ExitLiveness)> = (0..lifted.functions.len())
        .into_par_iter()
        .map_init(liveness::Memory::default, |memory, i| {
            let (function, summary) = (&lifted.functions[i], &summaries[i]);
            let exits = ExitLiveness::new(clobbers[i]).with_results(results[i]);
            let exits = exits.with_inputs(pointed);
            let liveness = Liveness::solve(summary, exits, callees, memory);
            let own_way = summary.forwards()
                || conventions::evidence(image, function, &liveness, callees).is_some();
            match own_way {
                true => (liveness.all(), ExitLiveness::ALL),
                false => (liveness, exits),
            }
        })
        .collect();
    // Rewritten text takes their place.
    drop((summaries, callers));
    let context = Context {
        image,
        probes: &options.probes,
        callees,
        returns_twice: &returns_twice,
        low_addresses: image.kind() == fettle_image::Kind::Executable,
        placement: options.placement,
        pointers: options.pointers,
        descriptors: pointer::has_descriptors(image),
        omits_base: unwind::omits_base(image),
    };

    let tools = Pool::new(|| (emit::Tools::default(), RowReader::new(image), checker()));
    let make_all = |functions: Range<usize>| -> Vec<Result<Made, Skipped>> {
        functions
            .into_par_iter()
            .map_init(
                || tools.take(),
                |tools, i| {
                    let function = &lifted.functions[i];
                    let (emitter, rows, checker) = &mut **tools;
                    let skip = |(reason, at)| Skipped {
                        entry: function.entry,
                        size: function.size(),
                        name: function.name.clone(),
                        reason,
                        at,
                    };
                    if let Some(why) = stays(function, &options, &caller_sensitive) {
                        return Err(skip(why));
                    }
                    let (liveness, exits) = &known[i];
                    let tools = (&mut *emitter, rows.as_mut(), checker as &mut CheckOne<'_>);
                    let draft = make(i, *exits, liveness, &context, lifted, tools).map_err(skip)?;
                    Ok(draft.keep(function, lifted, &options, emitter))
                },
            )
            .collect()
    };
    put_together(lifted, &by_entry, &options, make_all)
}

/// Functions that a thread makes before they get their places: few, so that what they leave is still
/// in a cache, and its memory is used again.
const BATCH: usize = 1024;

/// The plan of all functions: some get their places while the next are made.
fn put_together(
    lifted: &Lifted,
    index: &Index,
    options: &PlanOptions<'_>,
    make: impl Fn(Range<usize>) -> Vec<Result<Made, Skipped>> + Sync,
) -> Plan {
    let all = lifted.functions.len();
    let batch = match options.placement {
        Some(_) => all.max(1),
        None => BATCH * rayon::current_num_threads(),
    };
    let mut assembly = Assembly::new(lifted, index, options);
    let mut made = Vec::new();
    for from in (0..all).step_by(batch) {
        let done = std::mem::take(&mut made);
        let functions = from..all.min(from + batch);
        if let Some(done) = options.done {
            done.store(from, Ordering::Relaxed);
        }
        ((), made) = rayon::join(|| assembly.add(done), || make(functions));
    }
    assembly.add(made);
    assembly.finish()
}

/// Addresses and slots of the functions that ask the loader for their caller's module.
fn caller_sensitive(image: &Image) -> (Vec<LinkAddr>, Vec<LinkAddr>) {
    match image.kind() {
        // What the loader takes for the caller is right for the main program.
        fettle_image::Kind::SharedLibrary => {
            (named_targets(image, &CALLER_SENSITIVE), named_slots(image, &CALLER_SENSITIVE))
        }
        _ => Default::default(),
    }
}

/// What functions read beyond what the ABI passes; `reads` is what they read of all that calls may
/// change.
fn hidden_inputs(
    summaries: &[Summary],
    callers: &[Vec<u32>],
    reads: &[RegSet],
    callees: Callees<'_>,
) -> Vec<RegSet> {
    let mut inputs = vec![RegSet::NONE; summaries.len()];
    // Flags may be read behind calls that are said to change them there.
    let beside = callees.pointed.union(RegSet::FLAGS);
    let may_read = |i: usize| HIDDEN.intersection(reads[i].union(beside));
    let reads_something = |i: &usize| {
        let flags = summaries[*i].needed().intersection(RegSet::FLAGS);
        let all = reads[*i].union(flags).union(callees.pointed);
        !HIDDEN.intersection(all).is_empty()
    };
    let mut work: Vec<usize> = (0..summaries.len()).filter(reads_something).collect();
    let mut memory = liveness::Memory::default();
    // A caller of such a function may be one itself.
    while let Some(i) = work.pop() {
        let callees = Callees { inputs: &inputs, ..callees };
        let read = liveness::hidden_inputs(&summaries[i], callees, &mut memory);
        let new = read.minus(inputs[i]);
        inputs[i] = inputs[i].union(read);
        // Each register is a question of its own.
        let concerned = callers[i].iter().map(|caller| *caller as usize).filter(|caller| {
            !new.intersection(may_read(*caller)).minus(inputs[*caller]).is_empty()
        });
        work.extend(concerned);
    }
    inputs
}

/// Addresses that calls of functions with these names go to, sorted.
fn named_targets(image: &Image, names: &[&str]) -> Vec<LinkAddr> {
    let plain = |name: &str| names.contains(&unversioned(name));
    let plt = image.plt().iter().filter(|p| plain(&p.target)).map(|p| p.start);
    let own = image.symbols().iter().filter(|s| plain(&s.name)).map(|s| s.addr);
    let mut all: Vec<LinkAddr> = plt.chain(own).collect();
    all.sort_unstable();
    all
}

/// Slots of the GOT that the loader fills with the address of one of these functions, sorted.
fn named_slots(image: &Image, names: &[&str]) -> Vec<LinkAddr> {
    let plain = |name: &str| names.contains(&unversioned(name));
    let named = image.relocs().iter().filter(|r| r.symbol.as_deref().is_some_and(plain));
    let mut all: Vec<LinkAddr> = named.map(|r| r.addr).collect();
    all.sort_unstable();
    all
}

/// Why a function is left unmodified before anything is made of it, and where that shows.
fn stays(
    function: &Function,
    options: &PlanOptions<'_>,
    caller_sensitive: &(Vec<LinkAddr>, Vec<LinkAddr>),
) -> Option<(SkipReason, LinkAddr)> {
    if !(options.select)(function) {
        return Some((SkipReason::NotSelected, function.entry));
    }
    Some((SkipReason::CallerSensitive, calls_one_of(function, caller_sensitive)?))
}

/// Where a function calls one of `targets`, or uses one of the GOT's `slots`: calls through it
/// and loads it to call it later.
fn calls_one_of(
    function: &Function,
    (targets, slots): &(Vec<LinkAddr>, Vec<LinkAddr>),
) -> Option<LinkAddr> {
    if targets.is_empty() && slots.is_empty() {
        return None;
    }
    let uses_slot = |i: &Insn| {
        i.is_ip_rel_memory_operand()
            && slots.binary_search(&LinkAddr(i.ip_rel_memory_address())).is_ok()
    };
    function.insns.iter().zip(&function.facts).find_map(|(i, facts)| match facts.flow(i) {
        _ if uses_slot(i) => Some(LinkAddr(i.ip())),
        Flow::Call(to) | Flow::Jump(to) | Flow::Branch(to)
            if targets.binary_search(&LinkAddr(to)).is_ok() =>
        {
            Some(LinkAddr(i.ip()))
        }
        _ => None,
    })
}

/// One function's rewritten text, checked.
struct Draft {
    function: usize,
    emitted: Emitted,
    unwind: Vec<PartUnwind>,
    entry_patches: Vec<(LinkAddr, u32)>,
    tables: Vec<(u32, PlannedTable)>,
}

impl Draft {
    /// What the plan needs of it, with all that is asked for of where its code came to lie.
    fn keep(
        self,
        function: &Function,
        lifted: &Lifted,
        options: &PlanOptions<'_>,
        tools: &mut emit::Tools,
    ) -> Made {
        let Draft { function: index, emitted, unwind, entry_patches, tables } = self;
        let osr_map = || OsrMap::of(function, &emitted, &lifted.targets);
        Made {
            function: index,
            places: places(function, &emitted, options.places),
            osr_map: options.osr_map.then(osr_map).unwrap_or_default(),
            new: tools.reclaim(emitted),
            unwind,
            entry_patches,
            tables,
        }
    }
}

/// Checks one function.
type CheckOne<'a> = dyn FnMut(Claim<'_>, &Context<'_>) -> Result<(), CheckError> + 'a;

/// What one thread makes functions with.
type MakeTools<'t, 'a> = (&'t mut emit::Tools, Option<&'t mut RowReader<'a>>, &'t mut CheckOne<'t>);

fn make(
    index: usize,
    exits: ExitLiveness,
    liveness: &Liveness,
    context: &Context<'_>,
    lifted: &Lifted,
    (emitter, rows, checker): MakeTools<'_, '_>,
) -> Result<Draft, (SkipReason, LinkAddr)> {
    let function = &lifted.functions[index];
    let entry_patches = entry_patches(function, lifted, context.image)?;
    let emitted = emit::emit(function, exits, liveness, context, emitter)?;
    let unwind = match rows {
        Some(rows) => rows.carry_over(function, &emitted, &lifted.exception_tables)?,
        None => Vec::new(),
    };
    let split = emitted.chunk_starts.len() > 1;
    let says_base =
        |p: &PartUnwind| p.table.as_ref().is_some_and(|t| split || t.base != LandingBase::Part);
    if context.omits_base && unwind.iter().any(says_base) {
        return Err((SkipReason::ExceptionTable, function.entry));
    }
    let entry_patches = entry_patches
        .into_iter()
        .map(|(at, to)| match to {
            None => (at, 0),
            Some(block) => (at, emitted.block_offsets[block]),
        })
        .collect::<Vec<_>>();
    let copy = |t: u32| {
        let table = &function.tables[t as usize];
        (t, move_table(context.image, lifted, function, table, &emitted))
    };
    let tables: Vec<(u32, PlannedTable)> =
        copied_tables(function, &emitted).into_iter().map(copy).collect();
    let claim = Claim {
        function,
        emitted: &emitted,
        unwind: &unwind,
        tables: &tables,
        entry_patches: &entry_patches,
        exits,
        keeps: liveness.keeps(),
        exception_tables: &lifted.exception_tables,
    };
    checker(claim, context).map_err(|e| (SkipReason::CheckFailed, e.at))?;
    Ok(Draft { function: index, emitted, unwind, entry_patches, tables })
}

/// Where those of the addresses `wanted` came to lie that are in copied instructions: jumps are
/// written anew.
fn places(function: &Function, emitted: &Emitted, wanted: &[LinkAddr]) -> Vec<(LinkAddr, u32)> {
    let mut all = Vec::new();
    for range in &function.ranges {
        let from = wanted.partition_point(|at| *at < range.start);
        for at in wanted[from..].iter().take_while(|at| **at < range.end) {
            let i = function.insns.partition_point(|insn| insn.next_ip() <= at.0);
            let Some(insn) = function.insns.get(i).filter(|insn| insn.ip() <= at.0) else {
                continue;
            };
            let is_promoted = emitted.pointers.binary_search(&LinkAddr(insn.ip())).is_ok();
            if !is_promoted && !matches!(function.flow(i), Flow::Jump(_) | Flow::Branch(_)) {
                all.push((*at, emitted.insn_offsets[i] + (at.0 - insn.ip()) as u32));
            }
        }
    }
    all
}

/// `endbr64`, where indirect calls may lead.
pub(crate) const ENDBR64: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];

/// Where an entry patch is, and the block it leads to; `None` stands for the new entry.
type Board = (LinkAddr, Option<usize>);

/// Where original code must lead to rewritten text: at the entry, and wherever a jump table leads that
/// cannot be moved.
fn entry_patches(
    function: &Function,
    lifted: &Lifted,
    image: &Image,
) -> Result<Vec<Board>, (SkipReason, LinkAddr)> {
    let mut labels: Vec<LinkAddr> =
        function.tables.iter().filter(|t| !t.movable).flat_map(JumpTable::targets).collect();
    labels.sort_unstable();
    labels.dedup();
    let free = |at: LinkAddr| {
        let end = LinkAddr(at.0 + ENTRY_PATCH_SIZE);
        let next = lifted.targets.partition_point(|t| *t <= at);
        lifted.targets.get(next).is_none_or(|t| *t >= end)
            && labels.get(labels.partition_point(|t| *t <= at)).is_none_or(|t| *t >= end)
            && image.read(at, ENTRY_PATCH_SIZE as usize).is_some()
            && covers_own(function, image, at..end)
    };
    let entry = function.entry;
    let endbr = image.read(entry, ENDBR64.len()) == Some(&ENDBR64);
    // An indirect call wants to find the `endbr64` where it was.
    let after_endbr = LinkAddr(entry.0 + 4);
    let at = if endbr && free(after_endbr) && function.contains(LinkAddr(after_endbr.0)) {
        after_endbr
    } else if free(entry) {
        entry
    } else {
        return Err((SkipReason::TooSmall, entry));
    };
    // Where a jump's targets are not all known, original code may run from anywhere; so no part
    // of it that something leads to may be covered.
    let certain = function.blocks.iter().all(|b| b.exit != Some(Exit::TailIndirect))
        && function.tables.iter().all(|t| t.movable);
    let covers_block = |at: LinkAddr| {
        let next = function.blocks.partition_point(|b| b.start <= at);
        function.blocks.get(next).is_some_and(|b| b.start.0 < at.0 + ENTRY_PATCH_SIZE)
    };
    if !certain && covers_block(at) {
        return Err((SkipReason::CrowdedTargets, at));
    }
    let mut all = vec![(at, None)];
    for label in labels.iter().copied() {
        if label.0 < at.0 + ENTRY_PATCH_SIZE && at.0 < label.0 + ENTRY_PATCH_SIZE {
            return Err((SkipReason::CrowdedTargets, label));
        }
        let Some(block) = function.block_at(label) else { continue };
        if !free(label) || covers_block(label) {
            return Err((SkipReason::CrowdedTargets, label));
        }
        all.push((label, Some(block.index())));
    }
    Ok(all)
}

/// Whether bytes from inside a function are its own, or fill up what is behind it.
fn covers_own(function: &Function, image: &Image, bytes: Range<LinkAddr>) -> bool {
    // The longest instruction.
    const MOST: usize = 15;
    let Some(own) = function.ranges.iter().find(|range| range.contains(&bytes.start)) else {
        return false;
    };
    let wanted = bytes.end.0.saturating_sub(own.end.0) as usize;
    wanted == 0
        || (wanted..=wanted + MOST)
            .rev()
            .find_map(|len| image.read(own.end, len))
            .is_some_and(|behind| is_filler(behind, wanted))
}

/// The jump tables whose copies rewritten text leads to, each once.
fn copied_tables(function: &Function, emitted: &Emitted) -> Vec<u32> {
    if function.tables.is_empty() {
        return Vec::new();
    }
    let table = |(_, fixup): &(u32, Fixup)| match fixup {
        Fixup::Table(t) | Fixup::TableAddress(t) => Some(*t),
        _ => None,
    };
    let mut tables: Vec<u32> = emitted.fixups.iter().filter_map(table).collect();
    tables.sort_unstable();
    tables.dedup();
    tables
}

/// The copy of a jump table. Where a bound was found it is trusted only as a lower limit: the
/// copy goes on as long as the original's entries lead into the function, so that no index that
/// was in range of the original is out of range of the copy.
fn move_table(
    image: &Image,
    lifted: &Lifted,
    function: &Function,
    table: &JumpTable,
    emitted: &Emitted,
) -> PlannedTable {
    const MOST: usize = 1 << 16;
    let mut targets = table.entries.to_vec();
    let size = if table.kind == TableKind::Absolute { 8 } else { 4 };
    while targets.len() < MOST {
        let at = LinkAddr(table.start.0 + targets.len() as u64 * size);
        if lifted.tables.binary_search(&at).is_ok() {
            break;
        }
        let to = match table.kind {
            TableKind::Relative { base } => image.read(at, 4).map(|bytes| {
                let distance = i32::from_le_bytes(bytes.try_into().expect("four bytes"));
                LinkAddr(base.0.wrapping_add_signed(i64::from(distance)))
            }),
            TableKind::Absolute => fettle_lift::tables::read_address(image, at),
        };
        match to {
            Some(to) if function.contains(to) => targets.push(Some(to)),
            _ => break,
        }
    }
    let entries = targets
        .into_iter()
        .map(|to| match to.map(|to| (to, function.block_at(to))) {
            Some((_, Some(block))) => PlannedEntry::New(emitted.block_offsets[block.index()]),
            Some((to, None)) => PlannedEntry::Original(to),
            None => PlannedEntry::Null,
        })
        .collect();
    PlannedTable { original: table.start, kind: table.kind, entries }
}
