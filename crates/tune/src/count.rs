//! Counting what runs in a process, for a while, by copies with counters.
//!
//! Counters lie in memory that every thread reaches through its gs base: all threads have the same
//! one, and those that they make inherit it, so that nothing has to watch the process. Threads
//! that count at the same moment may lose counts to each other; a place that ran is never seen as
//! one that did not.

use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;

use fettle_collect::Selection;
use fettle_collect::counts::{self, Counted};
use fettle_image::LinkAddr;
use fettle_layout::Counts;
use fettle_live::{Journal, Prot, Region};
use fettle_rewrite::{Mode, Plan};
use fettle_trace::CounterKind;

use crate::Stop;
use crate::error::TuneError;
use crate::install::{self, Installed};
use crate::module::{self, Module};
use crate::target::Target;

const PAGE: u64 = 4096;
/// Far from what loaders and allocators use, and no number that programs have for other reasons.
const COUNTERS_FROM: u64 = 0x2b5c_9d3a_7000;
/// So long threads have to leave copies with counters.
const PATIENCE: Duration = Duration::from_secs(20);

/// What was counted in one module, by function.
pub type ByFunction = HashMap<LinkAddr, Counts>;

/// What was counted in a process.
#[derive(Debug, Default)]
pub struct Profile {
    /// By module, in the order that they were given.
    pub modules: Vec<ByFunction>,
    /// Functions whose counts do not add up: some control came by ways that are not counted.
    pub inconsistent: u64,
    /// Calls and jumps between blocks that were counted.
    pub events: u64,
    /// How copies with counters were installed.
    pub installed: Installed,
    /// How long threads stood still when they were taken back, each time.
    pub stops: Vec<Duration>,
}

/// Counts for `time`, and takes all of it back.
///
/// # Errors
///
/// When the process cannot be changed; or when threads do not leave the copies with counters:
/// then those stay mapped, and `fettle undo` takes them away later.
pub fn count(
    target: &Target<'_>,
    folder: &Path,
    modules: &[Module],
    selection: &Selection,
    time: Duration,
    stop: Stop<'_>,
) -> Result<Profile, TuneError> {
    let process = target.process;
    let unfit = |why: String| TuneError::Unfit { pid: process.pid(), why };
    let mut maps = target.maps()?;
    let mut all = Vec::new();
    let mut codes = Vec::new();
    let mut counters = 0u64;
    for (index, module) in modules.iter().enumerate() {
        let wants = module::wanted(&module.image, selection);
        let from = (counters * 8) as u32;
        let code = module.new_code(process, (Mode::Edges, from), None, &wants, &maps);
        let Ok(code) = code else { continue };
        maps.extend([install::taken(code.text), install::taken(code.constants)]);
        all.push((index, counters));
        counters += u64::from(code.plan.counters);
        if counters * 8 > i32::MAX as u64 {
            return Err(unfit("it has more blocks than can be counted at once".to_owned()));
        }
        codes.push(code);
    }
    let len = (counters * 8).max(1).next_multiple_of(PAGE);
    let at = fettle_collect::modules::find_hole(COUNTERS_FROM, len, &maps)
        .ok_or_else(|| unfit("there is no room for counters".to_owned()))?;
    let region = Region { at, len, prot: Prot { read: true, write: true, exec: false } };

    let mut journal = Journal::create(folder, process)?;
    let installed = install::install(target, &mut journal, &codes, Some(region));
    let counted = installed.and_then(|installed| {
        stop.wait(process.pid(), time)?;
        Ok((installed, process.read(at, (counters * 8) as usize)?))
    });
    let undone = fettle_live::undo(journal, PATIENCE)?;
    if let Some((_, why)) = undone.kept {
        let why =
            format!("copies with counters are still in use ({why}); they are entered no more");
        return Err(unfit(why));
    }
    let (installed, bytes) = counted?;
    let mut profile = Profile {
        modules: vec![ByFunction::new(); modules.len()],
        installed,
        stops: undone.stops,
        ..Profile::default()
    };
    for (code, (index, first)) in codes.iter().zip(all) {
        let value = |n: u32| {
            let at = (first + u64::from(n)) as usize * 8;
            u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
        };
        profile.inconsistent += add(&code.plan, value, &mut profile.modules[index]);
    }
    profile.events = profile
        .modules
        .iter()
        .flat_map(|module| module.values())
        .flat_map(|counts| counts.edges.values())
        .sum();
    Ok(profile)
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
        let right = counts::rows(0, &Counted::of(planned), value, &mut rows);
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
