//! Tuning from beginning to end: count, decide, install, measure, keep or take back.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use fettle_cfg::Function;
use fettle_layout::model::Geometry;
use fettle_live::{Patch, Process};
use fettle_rewrite::Mode;

use crate::count::{self, Profile};
use crate::decide::{self, Decided, Group};
use crate::error::TuneError;
use crate::everywhere::Everywhere;
use crate::family::Family;
use crate::install::{self, Installed};
use crate::measure::{self, Measured};
use crate::module::{Module, NewCode};
use crate::profile::{Fit, Saved, Subject};
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
    /// What was counted another time, instead of counting.
    pub profile: Option<Saved>,
    /// Where what was counted is to be kept.
    pub save: Option<PathBuf>,
    /// Modules whose fetching stalls for less than this share of the time, by the model, stay as
    /// they are.
    pub threshold: f64,
    /// Compare again after so long, again and again, and tune anew when it does not pay any more.
    pub watch: Option<Duration>,
}

/// What became of it.
#[derive(Debug, Default)]
pub struct Outcome {
    /// What was counted.
    pub profile: Profile,
    /// How the profile that was given fits.
    pub fit: Option<Fit>,
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

/// What [`tune`] tells while it works.
#[derive(Debug)]
pub enum News<'a> {
    /// What is being done now, in words.
    Step(String),
    /// A process was tuned, or stays as it is.
    Tuned(&'a Outcome),
}

/// Tunes a process; `tell` is told what is being done, and each time what became of it. If it is to
/// be watched, that goes on until it has ended or we are to end.
///
/// # Errors
///
/// When the process cannot be tuned. Then everything is taken back that can be.
pub fn tune(
    process: &Process,
    folder: &Path,
    options: &Options,
    stop: Stop<'_>,
    mut tell: impl FnMut(News<'_>),
) -> Result<Outcome, TuneError> {
    let mut now = tune_once(process, folder, options, stop, &mut tell);
    let Some(pause) = options.watch.filter(|_| !options.dry_run) else {
        return now.map(|(outcome, _)| outcome);
    };
    // By a saved profile only once: it is of the load as it was.
    let options = Options { profile: None, ..options.clone() };
    let pid = process.pid();
    loop {
        let (outcome, changed) = now?;
        // Where there was nothing to gain there may be, later.
        let over = outcome.kept || !process.is_same();
        if over || (!changed && stop.wait(pid, pause).is_err()) || stop.is_wanted() {
            return Ok(outcome);
        }
        now = match tune_once(process, folder, &options, stop, &mut tell) {
            // It may have nothing to do for a while.
            Err(TuneError::Unfit { why, .. }) if process.is_same() => {
                tell(News::Step(why));
                Ok((outcome, false))
            }
            Err(_) if !process.is_same() => return Ok(outcome),
            done => done,
        };
    }
}

/// Tunes a process once, and watches it if what was done stays; also says whether that was taken
/// back later, because the load had changed.
fn tune_once(
    process: &Process,
    folder: &Path,
    options: &Options,
    stop: Stop<'_>,
    tell: &mut dyn FnMut(News<'_>),
) -> Result<(Outcome, bool), TuneError> {
    let mut step = |what: &str| tell(News::Step(what.to_owned()));
    let target = Target::new(process)?;
    let (modules, refused) = lift(&target, &options.wanted)?;
    let mut family = Family::of(process, options.alone);
    let subjects: Vec<Subject<'_>> = modules.iter().map(Module::subject).collect();
    let (profile, fit) = match &options.profile {
        Some(saved) => {
            let (modules, fit) = saved.counts(&subjects).map_err(unusable)?;
            (Profile { modules, ..Profile::default() }, Some(fit))
        }
        None => {
            step("counting");
            let selection = &options.wanted.selection;
            let from = (&target, &family);
            (count::count(from, folder, &modules, selection, options.time, stop)?, None)
        }
    };
    if let Some(path) = &options.save {
        let saved = Saved::of(subjects.iter().copied().zip(&profile.modules));
        saved.write(path).map_err(unusable)?;
    }
    step("deciding");
    let mut outcome = Outcome { profile, fit, refused, ..Outcome::default() };
    family.forget();
    family.look();
    let codes = lay_out(&target, &family, &modules, options, &mut outcome)?;
    if options.dry_run || codes.is_empty() {
        tell(News::Tuned(&outcome));
        return Ok((outcome, false));
    }

    step("installing");
    let mut everywhere = Everywhere { folder, codes: &codes, journals: Vec::new() };
    let done: Result<_, TuneError> = (|| {
        outcome.installed = Some(everywhere.install(&target, &mut family)?);
        outcome.processes = everywhere.journals.len();
        outcome.left = family.left.clone();
        if options.keep {
            return Ok(None);
        }
        step("measuring");
        let linkage = outcome.installed.as_ref().map_or(&[][..], |i| &i.linkage);
        let code = (&codes[..], linkage);
        Ok(Some(measure::measure(&mut family, code, &options.measure, stop)?))
    })();
    let gain = |measured: &Option<Measured>| measured.as_ref().is_none_or(Measured::is_gain);
    let measured = match done {
        Ok(measured) if gain(&measured) => measured,
        done => {
            step("taking back");
            everywhere.take_back()?;
            outcome.measured = done?;
            tell(News::Tuned(&outcome));
            return Ok((outcome, false));
        }
    };
    if let Some(measured) = &measured {
        everywhere.note(measured)?;
    }
    (outcome.kept, outcome.measured) = (true, measured);
    tell(News::Tuned(&outcome));
    let (Some(pause), Some(first)) = (options.watch, &outcome.measured) else {
        return Ok((outcome, false));
    };
    let linkage = outcome.installed.as_ref().map_or(&[][..], |i| &i.linkage);
    let code = (&codes[..], linkage);
    let Some(last) = watch(&mut family, code, (options, pause, first), stop, tell)? else {
        return Ok((outcome, false));
    };
    everywhere.take_back()?;
    (outcome.kept, outcome.measured) = (false, Some(last));
    Ok((outcome, true))
}

fn unusable(why: String) -> TuneError {
    TuneError::Profile { why }
}

/// Compares again and again, until new code does not pay any more, or pays less than at `first`:
/// then the load has changed, and what the last comparison has shown is given. `None` if the
/// process has ended, or we are to end.
fn watch(
    family: &mut Family<'_>,
    code: (&[NewCode], &[Patch]),
    (options, pause, first): (&Options, Duration, &Measured),
    stop: Stop<'_>,
    tell: &mut dyn FnMut(News<'_>),
) -> Result<Option<Measured>, TuneError> {
    let pid = family.lead.pid();
    loop {
        if stop.wait(pid, pause).is_err() {
            return Ok(None);
        }
        let measured = match measure::measure(family, code, &options.measure, stop) {
            Ok(measured) => measured,
            Err(TuneError::Interrupted { .. }) => return Ok(None),
            Err(_) if !family.lead.is_same() => return Ok(None),
            // It may have nothing to do for a while.
            Err(TuneError::Unfit { why, .. }) => {
                tell(News::Step(why));
                continue;
            }
            Err(error) => return Err(error),
        };
        let what = match (measured.is_gain(), measured.is_less_than(first)) {
            (true, false) => "the new code stays",
            (true, true) => "less than it was: the load has changed; tuning anew",
            (false, _) => "no certain gain any more: the load has changed; tuning anew",
        };
        tell(News::Step(format!("{}; {what}", measured.percent())));
        if !measured.is_gain() || measured.is_less_than(first) {
            return Ok(Some(measured));
        }
    }
}

/// New code for what ran of each module, in the order that was decided.
fn lay_out(
    target: &Target<'_>,
    family: &Family<'_>,
    modules: &[Module],
    options: &Options,
    outcome: &mut Outcome,
) -> Result<Vec<NewCode>, TuneError> {
    let process = target.process;
    let mut maps = family.maps()?;
    let mut codes: Vec<NewCode> = Vec::new();
    let mut below = false;
    for (module, counts) in modules.iter().zip(&outcome.profile.modules) {
        let path = module.loaded.path.clone();
        let functions = &module.lifted.functions;
        let decided = match decide::decide(functions, counts, &options.group, Geometry::L1I) {
            Ok(Some(decided)) => decided,
            Ok(None) => continue,
            Err(why) => {
                outcome.refused.push((path, why));
                continue;
            }
        };
        let share = decided.chosen.before.stall_share();
        if share < options.threshold {
            let why = format!(
                "by the model fetching its code takes {:.1} % of the time, less than --threshold",
                share * 100.0
            );
            outcome.refused.push((path, why));
            below = true;
            continue;
        }
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
    if codes.is_empty() && !below {
        let why = match outcome.refused.first() {
            Some((path, why)) => format!("{}: {why}", path.display()),
            None => "none of the code that was counted ran".to_owned(),
        };
        return Err(TuneError::Unfit { pid: process.pid(), why });
    }
    Ok(codes)
}
