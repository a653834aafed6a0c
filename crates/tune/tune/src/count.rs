//! Counting what runs in a process, for a while, by copies with counters.
//!
//! Threads that share a bank of counters and increment at the same time may lose counts; but a
//! block that ran is never taken for one that did not.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use fettle_code::{Mode, Pointers, Probing};
use fettle_image::LinkAddr;
use fettle_live::{Journal, LiveError, Process, Undoing};
use fettle_place::Counts;
use fettle_record::Selection;
use fettle_record::counts;
use fettle_record::modules::SlotOffsets;
use fettle_rewrite::Plan;
use fettle_rewrite::plan::PlannedFunction;
use fettle_trace::CounterKind;
use fettle_types::{FunctionIndex, Pid};

use crate::counters::{self, Copies, Counters};
use crate::error::TuneError;
use crate::group::ProcessGroup;
use crate::group_patches::revert;
use crate::install::{self, Installed};
use crate::module::{self, Module, Recipe};
use crate::osr;
use crate::patch_sites::Callers;
use crate::profile::ByFunction;
use crate::rewritten::Rewritten;
use crate::stop::Stop;
use crate::switching::PatchSet;
use crate::target::Target;
use crate::targets::Targets;

/// How long threads have to leave copies with counters.
const PATIENCE: Duration = Duration::from_secs(20);
/// Functions that have counted enough in this part of the time need not count in the rest.
const EARLY: u32 = 8;
/// That is enough: this many events, for blocks and edges of a function together.
const ENOUGH: u64 = 10_000;

/// What was counted in a process, or in several that run the same code.
#[derive(Clone, Debug, Default)]
pub struct Profile {
    /// By module, in the order that they were given.
    pub modules: Vec<ByFunction>,
    /// If nothing was counted but sampled: the number of samples, and of those in functions that
    /// can be laid out.
    pub pc_samples: Option<(u64, u64)>,
    /// Functions whose counts do not add up: some control flow was not counted.
    pub inconsistent: u64,
    /// Calls and jumps between blocks that were counted.
    pub events: u64,
    /// Functions that had counted enough before the time was over, and counted no more.
    pub early: usize,
    /// How copies with counters were installed in the process that was named.
    pub installed: Installed,
    /// How long threads were paused, each time, in all processes.
    pub stops: Vec<Duration>,
    /// In how many processes it was counted; children that they forked meanwhile are not among
    /// them, but their counts are included.
    pub processes: usize,
    /// Processes that had copies with counters and still have memory of them, and why.
    pub stuck: Vec<(Pid, String)>,
}

impl Profile {
    /// Whether the processes of a process group that are to be counted can be patched again.
    ///
    /// # Errors
    ///
    /// When one of them still has copies with counters.
    pub fn is_reverted(&self, process_group: &ProcessGroup<'_>) -> Result<(), TuneError> {
        let leader = process_group.leader.pid();
        let first = process_group.members().next().map_or(leader, Process::pid);
        let Some((pid, why)) = self.stuck.iter().find(|(pid, _)| [leader, first].contains(pid))
        else {
            return Ok(());
        };
        let why =
            format!("copies with counters are still in use ({why}); they are entered no more");
        Err(TuneError::Unfit { pid: *pid, why })
    }

    /// Adds the counts of an earlier profile of the same modules.
    pub fn add(&mut self, before: &Profile) {
        for (module, before) in self.modules.iter_mut().zip(&before.modules) {
            for (entry, counts) in before {
                let sum = module.entry(*entry).or_default();
                sum.estimated |= counts.estimated;
                counts.blocks.iter().for_each(|(at, n)| *sum.blocks.entry(*at).or_default() += n);
                counts.edges.iter().for_each(|(at, n)| *sum.edges.entry(*at).or_default() += n);
                for (call, n) in &counts.targets {
                    *sum.targets.entry(call.clone()).or_default() += n;
                }
            }
        }
    }
}

/// A process with counters.
struct Counting<'a> {
    process: &'a Process,
    journal: Journal,
    installed: Installed,
    counts: counters::Counts,
}

/// How many processes of a process group are counted besides those that others were forked from.
const WORKERS: usize = 4;
/// How long the processes' CPU times are watched to choose these.
const WATCHED: Duration = Duration::from_millis(200);

/// Counts for `time`, and reverts everything. Functions that run often are counted for an eighth of
/// the time only, and their counts are scaled: they are soon known well enough, and counting costs
/// most in them. In a process group the processes that use most CPU time are counted, the process
/// that was named, and the oldest; their forked children are counted with them.
///
/// # Errors
///
/// When the process cannot be changed. Where threads do not leave the copies with counters, those
/// stay mapped ([`Profile::is_reverted`]), and `fettle undo` unmaps them later.
pub fn count(
    (target, process_group): (&Target<'_>, &ProcessGroup<'_>),
    folder: &Path,
    modules: &[Module],
    selection: &Selection,
    time: Duration,
    stop: Stop<'_>,
) -> Result<Profile, TuneError> {
    let leader = target.process.pid();
    let early = || stop.wait(leader, time / EARLY);
    let wait = || stop.wait(leader, time - time / EARLY);
    let wait = Wait { early: Some(&early), counting: &wait, reverting: PATIENCE };
    count_while((target, process_group), folder, modules, selection, stop, wait)
        .map(|counted| counted.profile)
}

/// The counts, and the places of counters.
pub struct Counted {
    /// The counts.
    pub profile: Profile,
    /// The plans of the copies, each for the module of this number.
    pub codes: Vec<(usize, Arc<Plan>)>,
}

/// How long to wait.
#[derive(Clone, Copy)]
pub struct Wait<'a> {
    /// Waits for the first of [`EARLY`] equal parts of the time, after which functions that have
    /// counted enough are no longer counted; without it, all are counted all the time.
    pub early: Option<&'a dyn Fn() -> Result<(), TuneError>>,
    /// Waits while it is counted; there is no profile if this fails.
    pub counting: &'a dyn Fn() -> Result<(), TuneError>,
    /// How long threads have to leave copies with counters. Copies that some thread does not leave
    /// stay mapped ([`Profile::stuck`]): `fettle undo` unmaps them later.
    pub reverting: Duration,
}

/// As [`count()`], with the times of `wait`.
///
/// # Errors
///
/// When the process cannot be changed, and errors of waiting.
pub fn count_while(
    (target, process_group): (&Target<'_>, &ProcessGroup<'_>),
    folder: &Path,
    modules: &[Module],
    selection: &Selection,
    stop: Stop<'_>,
    wait: Wait<'_>,
) -> Result<Counted, TuneError> {
    let leader = target.process.pid();
    let copies = copies(target, process_group, modules, selection)?;
    let (mut counting, mut trouble) = begin_all((target, process_group), folder, &copies, stop)?;
    let mut profile = Profile { processes: counting.len(), ..Profile::default() };
    if trouble.is_none() {
        let entered = osr_entries(&copies, &mut counting, &mut profile.stops);
        trouble = entered.err().map(TuneError::from);
    }
    let mut early = None;
    if trouble.is_none() {
        let mut wait_early = |wait: &dyn Fn() -> Result<(), TuneError>| {
            wait()?;
            let reading = Reading::take(&copies, &counting);
            profile.stops.extend(retire(&copies, &counting, &reading)?);
            early = Some(reading);
            Ok(())
        };
        let waited = wait.early.map_or(Ok(()), &mut wait_early);
        trouble = waited.and_then(|()| (wait.counting)()).err();
    }
    let reading = Reading::take(&copies, &counting);
    let mut undo: VecDeque<Journal> = VecDeque::new();
    for one in counting {
        if one.process.pid() == leader {
            profile.installed = one.installed;
        }
        undo.push_back(one.journal);
    }
    let codes = |_| copies.codes.iter().collect();
    let reverted = revert(folder, undo, &codes, wait.reverting)?;
    profile.stops.extend(reverted.stops);
    profile.stuck = reverted.stuck;
    if let Some(error) = trouble {
        return Err(error);
    }
    let reported_early =
        |first, f: &PlannedFunction| early.as_ref().is_some_and(|e| e.is_enough(first, f));
    (profile.modules, profile.inconsistent) =
        reading.by_function(&copies, modules, |first, f| !reported_early(first, f));
    if let Some(early) = &early {
        let (counted, inconsistent) = early.by_function(&copies, modules, reported_early);
        profile.inconsistent += inconsistent;
        profile.early = counted.iter().map(ByFunction::len).sum();
        // What they counted later, because threads were still in them, is not added.
        for (all, counted) in profile.modules.iter_mut().zip(counted) {
            let whole = |counts: Counts| counts.times(u64::from(EARLY));
            all.extend(counted.into_iter().map(|(entry, counts)| (entry, whole(counts))));
        }
    }
    let counts = profile.modules.iter().flat_map(|module| module.values());
    profile.events = counts.flat_map(|counts| counts.edges.values()).sum();
    let plans = copies.codes.into_iter().map(|code| code.plan);
    let codes = copies.places.iter().map(|(index, _)| *index).zip(plans).collect();
    Ok(Counted { profile, codes })
}

/// Moves threads that are in functions already to copies by OSR. These count to the end.
fn osr_entries(
    copies: &Copies,
    counting: &mut [Counting<'_>],
    stops: &mut Vec<Duration>,
) -> Result<(), LiveError> {
    let codes: Vec<&Rewritten> = copies.codes.iter().collect();
    let processes: Vec<&Process> = counting.iter().map(|one| one.process).collect();
    let journals = counting.iter_mut().map(|one| &mut one.journal);
    osr::osr_entries(&codes, &processes, journals, stops).map(drop)
}

/// What counters of all processes held at one time.
struct Reading {
    sums: Vec<u64>,
    targets: Targets,
}

impl Reading {
    fn take(copies: &Copies, counting: &[Counting<'_>]) -> Reading {
        let mut sums = vec![0u64; copies.counters.words()];
        let mut targets = Targets::new(copies);
        for one in counting {
            copies.counters.read(one.process, &one.counts, |bank| {
                for (sum, word) in sums.iter_mut().zip(bank.chunks_exact(8)) {
                    let word = u64::from_le_bytes(word.try_into().expect("eight bytes"));
                    *sum = sum.wrapping_add(word);
                }
                targets.take(bank);
            });
        }
        Reading { sums, targets }
    }

    /// The count of a place by a counter of one of the copies.
    fn value(&self, first: u64, counter: u32) -> u64 {
        self.sums[(first + u64::from(counter)) as usize]
    }

    /// Whether a function of some copies has counted enough.
    fn is_enough(&self, first: u64, planned: &PlannedFunction) -> bool {
        let (from, places) = &planned.counters;
        let counted = (0..places.len() as u32).map(|n| self.value(first, from + n));
        counted.fold(0, u64::saturating_add) >= ENOUGH
    }

    /// The counts of the functions that are `wanted`, by module, given the first counter of their
    /// copies; and how many functions have counts that do not add up.
    fn by_function(
        &self,
        copies: &Copies,
        modules: &[Module],
        wanted: impl Fn(u64, &PlannedFunction) -> bool,
    ) -> (Vec<ByFunction>, u64) {
        let mut all = vec![ByFunction::new(); modules.len()];
        let mut inconsistent = 0;
        for (code, (index, first)) in copies.codes.iter().zip(&copies.places) {
            let functions = code.plan.functions.iter().filter(|f| wanted(*first, f));
            inconsistent += add(functions, |n| self.value(*first, n), &mut all[*index]);
        }
        self.targets.give(copies, modules, &mut all);
        (all, inconsistent)
    }
}

/// Reverts copies of functions that have counted enough, in all processes. Returns how long threads
/// were paused, each time.
fn retire(
    copies: &Copies,
    counting: &[Counting<'_>],
    reading: &Reading,
) -> Result<Vec<Duration>, TuneError> {
    let mut patch_set = PatchSet::default();
    for (code, (_, first)) in copies.codes.iter().zip(&copies.places) {
        patch_set.add_only(code, |f| reading.is_enough(*first, &code.plan.functions[f]));
    }
    let mut stops = Vec::new();
    for one in counting {
        match patch_set.switch(one.process, false, &patch_set.places(one.process)) {
            Ok(stopped) => stops.extend(stopped),
            // A process that has ended counts no more.
            Err(_) if !one.process.is_same() => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(stops)
}

/// Copies with counters of all functions of all modules.
fn copies(
    target: &Target<'_>,
    process_group: &ProcessGroup<'_>,
    modules: &[Module],
    selection: &Selection,
) -> Result<Copies, TuneError> {
    let process = target.process;
    let unfit = |why: &str| TuneError::Unfit { pid: process.pid(), why: why.to_owned() };
    let mut maps = process_group.maps()?;
    let mut places = Vec::new();
    let mut codes = Vec::new();
    let mut counters = 0u64;
    let mut trouble = None;
    for (index, module) in modules.iter().enumerate() {
        let wants = module::wanted(&module.image, selection);
        let from = (counters * 8) as u32;
        let recipe = Recipe {
            probes: &Probing::new(Mode::Edges),
            slot: SlotOffsets::counters(from),
            pointers: Pointers::Counted,
            placement: None,
            wants: &wants,
            callers: Callers::Others,
        };
        let code = match module.rewritten_text(process, &recipe, &maps) {
            Ok(code) => code,
            Err(why) => {
                trouble.get_or_insert(format!("{}: {why}", module.loaded.path.display()));
                continue;
            }
        };
        maps.extend([install::taken(code.text), install::taken(code.constants)]);
        places.push((index, counters));
        counters += u64::from(code.plan.counters);
        if counters * 8 > i32::MAX as u64 {
            return Err(unfit("it has more blocks than can be counted at once"));
        }
        codes.push(code);
    }
    if let Some(why) = trouble.filter(|_| codes.is_empty()) {
        return Err(unfit(&why));
    }
    let threads = process_group.members().map(Process::threads).max().unwrap_or(1);
    let counters = Counters::new(counters, threads, &maps)
        .ok_or_else(|| unfit("there is no room for counters"))?;
    Ok(Copies { codes, places, counters })
}

/// The processes that are counted, or sampled.
pub(crate) fn workers(
    process_group: &ProcessGroup<'_>,
    stop: Stop<'_>,
) -> Result<Vec<Pid>, TuneError> {
    let times = || -> Vec<(Pid, u64)> {
        let time = |p: &Process| Some((p.pid(), p.cpu_ns()?));
        process_group.members().filter_map(time).collect()
    };
    let leader = process_group.leader.pid();
    if process_group.others.is_empty() {
        return Ok(vec![leader]);
    }
    let before = times();
    stop.wait(leader, WATCHED)?;
    let mut used: Vec<(u64, Pid)> = times()
        .into_iter()
        .filter_map(|(pid, now)| {
            let (_, then) = before.iter().find(|(other, _)| *other == pid)?;
            Some((now - then, pid)).filter(|(used, _)| *used > 0)
        })
        .collect();
    used.sort_unstable_by(|a, b| b.cmp(a));
    let mut workers: Vec<Pid> = used.into_iter().take(WORKERS).map(|(_, pid)| pid).collect();
    workers.extend(process_group.members().next().map(Process::pid));
    workers.push(leader);
    Ok(workers)
}

/// Begins to count in the busiest processes of the process group. Returns why the process that was
/// named could not be counted, if so.
fn begin_all<'a>(
    (target, process_group): (&Target<'_>, &'a ProcessGroup<'_>),
    folder: &Path,
    copies: &Copies,
    stop: Stop<'_>,
) -> Result<(Vec<Counting<'a>>, Option<TuneError>), TuneError> {
    let leader = target.process.pid();
    let workers = workers(process_group, stop)?;
    let mut counting = Vec::new();
    for target in
        process_group.targets(target).iter().filter(|t| workers.contains(&t.process.pid()))
    {
        // Borrowed from the process group, as the target does.
        let pid = target.process.pid();
        let Some(process) = process_group.members().find(|p| p.pid() == pid) else { continue };
        match begin(target, folder, copies) {
            Ok((journal, installed, counts)) => {
                counting.push(Counting { process, journal, installed, counts });
            }
            Err(_) if pid != leader => {}
            Err(error) => return Ok((counting, Some(error))),
        }
    }
    Ok((counting, None))
}

/// Begins to count in a process; reverts what was begun if that fails.
fn begin(
    target: &Target<'_>,
    folder: &Path,
    copies: &Copies,
) -> Result<(Journal, Installed, counters::Counts), TuneError> {
    let mut journal = Journal::create(folder, target.process)?;
    match install::install_counting(target, &mut journal, &copies.codes, copies.counters) {
        Ok((installed, counts)) => Ok((journal, installed, counts)),
        Err(error) => {
            fettle_live::undo(journal, Undoing::within(PATIENCE))?;
            Err(error)
        }
    }
}

/// Adds the counts of a plan's functions; returns how many have counts that do not add up.
fn add<'a>(
    functions: impl Iterator<Item = &'a PlannedFunction>,
    value: impl Fn(u32) -> u64,
    by_function: &mut ByFunction,
) -> u64 {
    let mut inconsistent = 0;
    for planned in functions {
        let first = planned.counters.0;
        let value = |k: usize| value(first + k as u32);
        if (0..planned.counters.1.len()).all(|k| value(k) == 0) {
            continue;
        }
        let mut rows = Vec::new();
        let right = counts::rows(FunctionIndex(0), &counts::Counted::of(planned), value, &mut rows);
        inconsistent += u64::from(!right);
        let counts = by_function.entry(planned.entry).or_default();
        for row in rows {
            let from = LinkAddr(row.from_address);
            match (row.kind, row.to_address) {
                (CounterKind::Block, _) => drop(counts.blocks.insert(from, row.count)),
                (_, Some(to)) => drop(counts.edges.insert((from, LinkAddr(to)), row.count)),
                (_, None) => {}
            }
        }
    }
    inconsistent
}
