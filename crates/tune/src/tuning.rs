//! Tuning from beginning to end: count, decide, install, measure, keep or take back.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use fettle_cfg::Function;
use fettle_layout::model::Geometry;
use fettle_live::{Entry, Process};
use fettle_rewrite::Mode;

use crate::count::{self, Profile};
use crate::decide::{self, Decided, Group};
use crate::error::TuneError;
use crate::everywhere::Everywhere;
use crate::family::Family;
use crate::install::{self, Installed};
use crate::measure::{self, Measured};
use crate::module::{Module, NewCode};
use crate::target::Target;
use crate::{Stop, Wanted, lift};

/// What to do.
#[derive(Clone, Debug)]
pub struct Options {
    /// Which code.
    pub wanted: Wanted,
    /// How long to count.
    pub time: Duration,
    /// What to lay out of what ran.
    pub group: Group,
    /// How to compare old and new code.
    pub measure: measure::Plan,
    /// Leave the new code in place without a comparison.
    pub keep: bool,
    /// Count and decide only.
    pub dry_run: bool,
    /// Only the process that is named, not its relatives.
    pub alone: bool,
}

/// What became of it.
#[derive(Debug)]
pub struct Outcome {
    /// What was counted.
    pub profile: Profile,
    /// Layouts, by module.
    pub decided: Vec<(PathBuf, Decided)>,
    /// Modules that stay as they are, and why.
    pub refused: Vec<(PathBuf, String)>,
    /// What was installed in the process that was named.
    pub installed: Option<Installed>,
    /// How many processes have got new code, that one included.
    pub processes: usize,
    /// Relatives that stay as they are, and why.
    pub left: Vec<(i32, String)>,
    /// What the comparison has shown.
    pub measured: Option<Measured>,
    /// Whether the new code is in place.
    pub kept: bool,
}

/// Tunes a process; `tell` is told what is being done.
///
/// # Errors
///
/// When the process cannot be tuned. Then everything is taken back that can be.
pub fn tune(
    process: &Process,
    folder: &Path,
    options: &Options,
    stop: Stop<'_>,
    mut tell: impl FnMut(&str),
) -> Result<Outcome, TuneError> {
    let target = Target::new(process)?;
    let (modules, refused) = lift(&target, &options.wanted)?;
    let mut family = Family::of(process, options.alone);

    tell("counting");
    let selection = &options.wanted.selection;
    let from = (&target, &family);
    let profile = count::count(from, folder, &modules, selection, options.time, stop)?;
    tell("deciding");
    let mut outcome = Outcome {
        profile,
        decided: Vec::new(),
        refused,
        installed: None,
        processes: 0,
        left: Vec::new(),
        measured: None,
        kept: false,
    };
    family.forget();
    family.look();
    let codes = lay_out(&target, &family, &modules, &options.group, &mut outcome)?;
    if options.dry_run {
        return Ok(outcome);
    }

    tell("installing");
    let mut everywhere = Everywhere { folder, codes: &codes, journals: Vec::new() };
    let done: Result<_, TuneError> = (|| {
        outcome.installed = Some(everywhere.install(&target, &mut family)?);
        outcome.processes = everywhere.journals.len();
        outcome.left = family.left.clone();
        if options.keep {
            return Ok(None);
        }
        tell("measuring");
        let linkage = outcome.installed.as_ref().map_or(&[][..], |i| &i.linkage);
        let code = (&codes[..], linkage);
        Ok(Some(measure::measure(&mut family, code, &options.measure, stop)?))
    })();
    let gain = |measured: &Option<Measured>| measured.as_ref().is_none_or(Measured::is_gain);
    match done {
        Ok(measured) if gain(&measured) => {
            if let Some(measured) = &measured {
                let percent = (1.0 / measured.ratio - 1.0) * 100.0;
                let note = Entry::Note(format!("faster by {percent:.1} %, as measured"));
                for journal in &mut everywhere.journals {
                    journal.add([note.clone()])?;
                }
            }
            outcome.kept = true;
            outcome.measured = measured;
            Ok(outcome)
        }
        done => {
            tell("taking back");
            everywhere.take_back()?;
            outcome.measured = done?;
            Ok(outcome)
        }
    }
}

/// New code for what ran of each module, in the order that was decided.
fn lay_out(
    target: &Target<'_>,
    family: &Family<'_>,
    modules: &[Module],
    group: &Group,
    outcome: &mut Outcome,
) -> Result<Vec<NewCode>, TuneError> {
    let process = target.process;
    let mut maps = family.maps()?;
    let mut codes: Vec<NewCode> = Vec::new();
    for (module, counts) in modules.iter().zip(&outcome.profile.modules) {
        let path = module.loaded.path.clone();
        let functions = &module.lifted.functions;
        let decided = match decide::decide(functions, counts, group, Geometry::L1I) {
            Ok(Some(decided)) => decided,
            Ok(None) => continue,
            Err(why) => {
                outcome.refused.push((path, why));
                continue;
            }
        };
        let placement = decided.chosen.layout.placement(&decided.code);
        let entries: HashSet<_> = decided.code.procedures.iter().map(|p| p.entry).collect();
        let wants = |f: &Function| entries.contains(&f.entry);
        match module.new_code(process, (Mode::Plain, 0), Some(&placement), &wants, &maps) {
            Ok(code) => {
                maps.extend([install::taken(code.text), install::taken(code.constants)]);
                codes.push(code);
                outcome.decided.push((path, decided));
            }
            Err(why) => outcome.refused.push((path, why)),
        }
    }
    if codes.is_empty() {
        let why = match outcome.refused.first() {
            Some((path, why)) => format!("{}: {why}", path.display()),
            None => "none of the code that was counted ran".to_owned(),
        };
        return Err(TuneError::Unfit { pid: process.pid(), why });
    }
    Ok(codes)
}
