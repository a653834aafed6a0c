//! Tuning a process while it runs: its hot code is laid out anew, and everything can be undone.
//!
//! [`Target`] knows the modules of a process. Of each, [`Module`] lifts the functions and makes
//! [`Rewritten`]; [`install()`] puts that into the process. [`tune`] counts with copies that have
//! counters, has `fettle-place` decide, installs, compares, and keeps what is faster. Stopping
//! threads, writing and reverting are in `fettle-live`. [`offline`] decides by the counts of a
//! trace, and changes nothing. [`recording`] counts without tuning, and makes a trace.
#![forbid(unsafe_code)]

pub mod attached;
pub mod comparison;
pub mod count;
mod counters;
pub mod decide;
mod dlopen_hooks;
mod error;
pub mod group;
mod group_patches;
pub mod install;
pub mod kept_symbols;
pub mod leftovers;
pub mod measure;
pub mod module;
pub mod offline;
mod osr;
mod own_tables;
mod patch_sites;
pub mod profile;
pub mod quiet;
mod recheck;
pub mod recording;
mod rewritten;
mod samples;
mod several;
mod stalls;
mod state;
mod stop;
mod switching;
pub mod symbols;
pub mod target;
mod targets;
mod tuning;
pub mod work;

pub use comparison::{Measured, Rounds, Verdict, WorkUnit};
pub use counters::Counters;
pub use decide::{Decided, Group};
pub use error::TuneError;
pub use fettle_place::figures::Row;
pub use fettle_place::model::Geometry;
pub use fettle_place::order::{Choice, Method, Modelled, Unit};
pub use fettle_place::promote::Promoted;
pub use group::ProcessGroup;
pub use group_patches::{inherited_log, install_in_group, undo_group};
pub use install::{Installed, install};
pub use module::{Module, Recipe};
pub use osr::Seen;
pub use patch_sites::Callers;
pub use profile::{ByFunction, Fit, Saved, SavedFunction, Subject};
pub use recheck::{Rechecked, recheck, switched};
pub use rewritten::{LeftUnmodified, Reason, Rewritten};
pub use several::Several;
pub use state::{Audit, StateFolders};
pub use stop::Stop;
pub use switching::PatchSet;
pub use target::{LOADING, Loaded, Target};
pub use tuning::{Options, Outcome, Progress, tune};
pub use work::Work;

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use fettle_code::{Mode, Pointers, Probing};
use fettle_image::LinkAddr;
use fettle_isa::Flow;
use fettle_lift::Placement;
use fettle_record::Selection;
use fettle_record::modules::SlotOffsets;

/// What is to be laid out.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// Libraries besides the executable, by path or name with `*` and `?`.
    pub libraries: Vec<String>,
    /// Which functions.
    pub selection: Selection,
}

/// Modules of a process, and those that are left unmodified with the reason.
pub type Lifted = (Vec<Module>, Vec<(PathBuf, String)>);

/// Lifts the modules that are wanted.
///
/// # Errors
///
/// When the executable cannot be laid out and no library is wanted, or we are interrupted.
pub fn lift(target: &Target<'_>, wanted: &Wanted, stop: Stop<'_>) -> Result<Lifted, TuneError> {
    let meant = |path: &Path| target::is_meant(path, &wanted.libraries);
    let mut refused: Vec<(PathBuf, String)> =
        target.refused.iter().filter(|(path, _)| meant(path)).cloned().collect();
    let mut modules = Vec::new();
    // The loader is left unmodified, as in programs that are launched.
    let loader = target.loader().map(|loader| loader.link_map);
    let meant = |l: &&Loaded| l.main || meant(&l.path) && Some(l.link_map) != loader;
    for loaded in target.loaded.iter().filter(meant) {
        stop.check(target.process.pid())?;
        match Module::open(target.process, loaded.clone()) {
            Ok(module) => modules.push(module),
            Err(why) => refused.push((loaded.path.clone(), why)),
        }
    }
    match (modules.is_empty(), refused.first()) {
        (true, Some((path, why))) => Err(TuneError::Unfit {
            pid: target.process.pid(),
            why: format!("{}: {why}", path.display()),
        }),
        _ => Ok((modules, refused)),
    }
}

/// Lowers the priority of the threads that lift and plan, so that the program gets most of the
/// processors. To be called before any of them is started; later it has no effect.
pub fn lower_priority() {
    let behind = rayon::ThreadPoolBuilder::new().start_handler(|_| fettle_live::lower_priority());
    let _ = behind.build_global();
}

/// Rewritten text for all modules, each with its blocks in any order: for tests.
///
/// # Errors
///
/// When none of them can be moved.
pub fn shuffled(
    (target, process_group): (&Target<'_>, &ProcessGroup<'_>),
    modules: &[Module],
    selection: &Selection,
    seed: u64,
) -> Result<Vec<Rewritten>, TuneError> {
    let mut maps = process_group.maps()?;
    let mut all = Vec::new();
    let mut trouble = String::new();
    for module in modules {
        let placement = Placement::shuffled(&module.lifted.functions, seed);
        let wants = module::wanted(&module.image, selection);
        let mut promoted = HashMap::new();
        let recipe = Recipe {
            probes: &Probing::new(Mode::Plain),
            slot: SlotOffsets::counters(0),
            pointers: any_promotions(module, seed, &mut promoted),
            placement: Some(&placement),
            wants: &wants,
            callers: Callers::All,
        };
        match module.rewritten_text(target.process, &recipe, &maps) {
            Ok(code) => {
                maps.extend([install::taken(code.text), install::taken(code.constants)]);
                all.push(code);
            }
            Err(why) => trouble = format!("{}: {why}", module.loaded.path.display()),
        }
    }
    match all.is_empty() {
        true => Err(TuneError::Unfit { pid: target.process.pid(), why: trouble }),
        false => Ok(all),
    }
}

/// Each indirect call compared with some function, mostly one that it never calls; none for every
/// second seed.
fn any_promotions<'a>(
    module: &Module,
    seed: u64,
    targets: &'a mut HashMap<LinkAddr, LinkAddr>,
) -> Pointers<'a> {
    if seed.is_multiple_of(2) {
        return Pointers::Kept;
    }
    let functions = &module.lifted.functions;
    let insns = functions.iter().flat_map(|f| f.insns.iter().zip(&f.facts));
    let calls = insns.filter(|(insn, facts)| {
        matches!(facts.flow(insn), Flow::IndirectCall | Flow::IndirectJump)
    });
    // Nearby functions are likelier targets than others.
    let near = |at: u64| functions.partition_point(|f| f.entry.0 <= at) + seed as usize % 5;
    targets.extend(calls.map(|(insn, _)| {
        let at = LinkAddr(insn.ip());
        (at, functions[near(at.0) % functions.len()].entry)
    }));
    Pointers::Promoted(targets)
}
