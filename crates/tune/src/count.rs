//! Counting what runs in a process, for a while, by copies with counters.
//!
//! Threads of one bank of counters that count at the same moment may lose counts to each other; a
//! place that ran is never seen as one that did not.

use std::collections::{HashMap, VecDeque};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use fettle_collect::Selection;
use fettle_collect::counts;
use fettle_collect::modules::SlotOffsets;
use fettle_image::LinkAddr;
use fettle_layout::Counts;
use fettle_live::{Journal, Process, Undoing};
use fettle_rewrite::{Mode, Plan, Pointers, Probing};
use fettle_trace::CounterKind;

use crate::Stop;
use crate::counters::Counters;
use crate::error::TuneError;
use crate::everywhere::take_back;
use crate::family::Family;
use crate::install::{self, Installed};
use crate::module::{self, Module, NewCode, Recipe};
use crate::target::Target;
use crate::targets::Targets;
use crate::ways::Callers;

/// So long threads have to leave copies with counters.
const PATIENCE: Duration = Duration::from_secs(20);

/// What was counted in one module, by function.
pub type ByFunction = HashMap<LinkAddr, Counts>;

/// What was counted in a process, or in several that run the same code.
#[derive(Clone, Debug, Default)]
pub struct Profile {
    /// By module, in the order that they were given.
    pub modules: Vec<ByFunction>,
    /// Functions whose counts do not add up: some control came by ways that are not counted.
    pub inconsistent: u64,
    /// Calls and jumps between blocks that were counted.
    pub events: u64,
    /// How copies with counters were installed in the process that was named.
    pub installed: Installed,
    /// How long threads stood still, each time, in all processes.
    pub stops: Vec<Duration>,
    /// In how many processes it was counted; those that they forked meanwhile are not among them,
    /// but count too.
    pub processes: usize,
    /// Processes that had copies with counters and still have memory of them, and why.
    pub stuck: Vec<(i32, String)>,
}

impl Profile {
    /// Adds what was counted before, of the same modules.
    pub fn add(&mut self, before: &Profile) {
        for (module, before) in self.modules.iter_mut().zip(&before.modules) {
            for (entry, counts) in before {
                let sum = module.entry(*entry).or_default();
                counts.blocks.iter().for_each(|(at, n)| *sum.blocks.entry(*at).or_default() += n);
                counts.edges.iter().for_each(|(at, n)| *sum.edges.entry(*at).or_default() += n);
                for (call, n) in &counts.targets {
                    *sum.targets.entry(call.clone()).or_default() += n;
                }
            }
        }
    }
}

/// Copies with counters, for all processes of a family.
pub(crate) struct Copies {
    pub(crate) codes: Vec<NewCode>,
    /// Of each, the module and its first counter.
    pub(crate) places: Vec<(usize, u64)>,
    counters: Counters,
}

/// A process that counts.
struct Counting<'a> {
    process: &'a Process,
    journal: Journal,
    installed: Installed,
}

/// How many processes of a family count besides those that others were forked from.
const WORKERS: usize = 4;
/// So long it is watched who works.
const WATCHED: Duration = Duration::from_millis(200);

/// Counts for `time`, and takes all of it back. Of a family those count that use most processor
/// time, the process that was named, and the oldest; whoever is forked from these counts with them.
///
/// # Errors
///
/// When the process cannot be changed; or when threads do not leave the copies with counters:
/// then those stay mapped, and `fettle undo` takes them away later.
pub fn count(
    (target, family): (&Target<'_>, &Family<'_>),
    folder: &Path,
    modules: &[Module],
    selection: &Selection,
    time: Duration,
    stop: Stop<'_>,
) -> Result<Profile, TuneError> {
    let lead = target.process.pid();
    let wait = || stop.wait(lead, time);
    let wait = Wait { counting: &wait, taking_back: PATIENCE };
    let Counted { profile, .. } =
        count_while((target, family), folder, modules, selection, stop, wait)?;
    let first = family.members().next().map_or(lead, Process::pid);
    if let Some((pid, why)) = profile.stuck.iter().find(|(pid, _)| [lead, first].contains(pid)) {
        let why =
            format!("copies with counters are still in use ({why}); they are entered no more");
        return Err(TuneError::Unfit { pid: *pid, why });
    }
    Ok(profile)
}

/// What was counted, and where counters were.
pub struct Counted {
    /// The counts.
    pub profile: Profile,
    /// By what copies were made, each for the module of this number.
    pub codes: Vec<(usize, Arc<Plan>)>,
}

/// How long to wait.
#[derive(Clone, Copy)]
pub struct Wait<'a> {
    /// Waits while it is counted; nothing comes of it if this fails.
    pub counting: &'a dyn Fn() -> Result<(), TuneError>,
    /// So long threads have to leave copies with counters. Those that some do not leave stay mapped
    /// ([`Profile::stuck`]): `fettle undo` takes them away later.
    pub taking_back: Duration,
}

/// As [`count()`], for as long as `wait` says.
///
/// # Errors
///
/// When the process cannot be changed, and what waiting fails with.
pub fn count_while(
    (target, family): (&Target<'_>, &Family<'_>),
    folder: &Path,
    modules: &[Module],
    selection: &Selection,
    stop: Stop<'_>,
    wait: Wait<'_>,
) -> Result<Counted, TuneError> {
    let lead = target.process.pid();
    let copies = copies(target, family, modules, selection)?;
    let workers = workers(family, stop)?;
    let mut counting: Vec<Counting<'_>> = Vec::new();
    let mut trouble = None;
    for target in family.targets(target).iter().filter(|t| workers.contains(&t.process.pid())) {
        // Borrowed from the family, as the target does.
        let pid = target.process.pid();
        let Some(process) = family.members().find(|p| p.pid() == pid) else { continue };
        match begin(target, folder, &copies) {
            Ok((journal, installed)) => counting.push(Counting { process, journal, installed }),
            Err(_) if pid != lead => {}
            Err(error) => {
                trouble = Some(error);
                break;
            }
        }
    }
    if trouble.is_none() {
        trouble = (wait.counting)().err();
    }
    let mut profile = Profile {
        modules: vec![ByFunction::new(); modules.len()],
        processes: counting.len(),
        ..Profile::default()
    };
    let mut sums = vec![0u64; copies.counters.words()];
    let mut targets = Targets::new(&copies);
    let mut undo: VecDeque<Journal> = VecDeque::new();
    for one in counting {
        copies.counters.read(one.process, |bank| {
            for (sum, word) in sums.iter_mut().zip(bank.chunks_exact(8)) {
                *sum = sum.wrapping_add(u64::from_le_bytes(word.try_into().expect("eight bytes")));
            }
            targets.take(bank);
        });
        if one.process.pid() == lead {
            profile.installed = one.installed;
        }
        undo.push_back(one.journal);
    }
    let codes = |_| copies.codes.iter().collect();
    let taken_back = take_back(folder, undo, &codes, wait.taking_back)?;
    (profile.stops, profile.stuck) = (taken_back.stops, taken_back.stuck);
    if let Some(error) = trouble {
        return Err(error);
    }
    for (code, (index, first)) in copies.codes.iter().zip(&copies.places) {
        let value = |n: u32| sums[(first + u64::from(n)) as usize];
        profile.inconsistent += add(&code.plan, value, &mut profile.modules[*index]);
    }
    targets.give(&copies, modules, &mut profile.modules);
    let counts = profile.modules.iter().flat_map(|module| module.values());
    profile.events = counts.flat_map(|counts| counts.edges.values()).sum();
    let plans = copies.codes.into_iter().map(|code| code.plan);
    let codes = copies.places.iter().map(|(index, _)| *index).zip(plans).collect();
    Ok(Counted { profile, codes })
}

/// Copies with counters of all functions of all modules.
fn copies(
    target: &Target<'_>,
    family: &Family<'_>,
    modules: &[Module],
    selection: &Selection,
) -> Result<Copies, TuneError> {
    let process = target.process;
    let unfit = |why: &str| TuneError::Unfit { pid: process.pid(), why: why.to_owned() };
    let mut maps = family.maps()?;
    let mut places = Vec::new();
    let mut codes = Vec::new();
    let mut counters = 0u64;
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
        let code = module.new_code(process, &recipe, &maps);
        let Ok(code) = code else { continue };
        maps.extend([install::taken(code.text), install::taken(code.constants)]);
        places.push((index, counters));
        counters += u64::from(code.plan.counters);
        if counters * 8 > i32::MAX as u64 {
            return Err(unfit("it has more blocks than can be counted at once"));
        }
        codes.push(code);
    }
    let threads = family.members().map(Process::threads).max().unwrap_or(1);
    let counters = Counters::new(counters, threads, &maps)
        .ok_or_else(|| unfit("there is no room for counters"))?;
    Ok(Copies { codes, places, counters })
}

/// Who is to count.
fn workers(family: &Family<'_>, stop: Stop<'_>) -> Result<Vec<i32>, TuneError> {
    let times = || -> Vec<(i32, u64)> {
        let time = |p: &Process| Some((p.pid(), p.cpu_ns()?));
        family.members().filter_map(time).collect()
    };
    let lead = family.lead.pid();
    if family.others.is_empty() {
        return Ok(vec![lead]);
    }
    let before = times();
    stop.wait(lead, WATCHED)?;
    let mut used: Vec<(u64, i32)> = times()
        .into_iter()
        .filter_map(|(pid, now)| {
            let (_, then) = before.iter().find(|(other, _)| *other == pid)?;
            Some((now - then, pid)).filter(|(used, _)| *used > 0)
        })
        .collect();
    used.sort_unstable_by(|a, b| b.cmp(a));
    let mut workers: Vec<i32> = used.into_iter().take(WORKERS).map(|(_, pid)| pid).collect();
    workers.extend(family.members().next().map(Process::pid));
    workers.push(lead);
    Ok(workers)
}

/// Has a process count; takes back what was begun if that fails.
fn begin(
    target: &Target<'_>,
    folder: &Path,
    copies: &Copies,
) -> Result<(Journal, Installed), TuneError> {
    let mut journal = Journal::create(folder, target.process)?;
    match install::install(target, &mut journal, &copies.codes, Some(copies.counters)) {
        Ok(installed) => Ok((journal, installed)),
        Err(error) => {
            fettle_live::undo(journal, Undoing::within(PATIENCE))?;
            Err(error)
        }
    }
}

/// Adds what was counted in the functions of a plan; gives how many have counts that do not add
/// up.
fn add(plan: &Plan, value: impl Fn(u32) -> u64, by_function: &mut ByFunction) -> u64 {
    let mut inconsistent = 0;
    for planned in &plan.functions {
        let first = planned.counters.0;
        let value = |k: usize| value(first + k as u32);
        if (0..planned.counters.1.len()).all(|k| value(k) == 0) {
            continue;
        }
        let mut rows = Vec::new();
        let right = counts::rows(0, &counts::Counted::of(planned), value, &mut rows);
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
