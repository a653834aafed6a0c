//! Tuning from beginning to end: count, decide, install, measure, keep or revert.

use std::borrow::Cow;
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use fettle_code::{Mode, Pointers, Probing};
use fettle_lift::Function;
use fettle_live::{LiveError, Process};
use fettle_place::model::Geometry;
use fettle_record::modules::SlotOffsets;
use fettle_types::{Pid, Tid};

use crate::comparison::Measured;
use crate::count::{self, Profile};
use crate::decide::{self, Decided, Group};
use crate::error::TuneError;
use crate::group::ProcessGroup;
use crate::group_patches::GroupPatches;
use crate::install::{self, Installed};
use crate::measure;
use crate::module::{Module, Recipe};
use crate::osr::Seen;
use crate::patch_sites::Callers;
use crate::profile::{Fit, Saved, Subject};
use crate::quiet::Quiet;
use crate::rewritten::Rewritten;
use crate::samples;
use crate::stalls;
use crate::switching::PatchSet;
use crate::target::{LOADING, Target};
use crate::{Stop, Wanted, lift, work};

/// What to do.
#[derive(Clone, Debug)]
pub struct Options {
    /// Which code.
    pub wanted: Wanted,
    /// How long to count.
    pub time: Duration,
    /// What to lay out of what ran.
    pub group: Group,
    /// How to compare old and rewritten text.
    pub measure: measure::Plan,
    /// Leave the rewritten text in place without a comparison.
    pub keep: bool,
    /// Count and decide only.
    pub dry_run: bool,
    /// Only the process that is named, not its relatives.
    pub alone: bool,
    /// Look where threads are, instead of counting.
    pub samples: bool,
    /// What was counted another time, instead of counting.
    pub profile: Option<Saved>,
    /// Where what was counted is to be kept.
    pub save: Option<PathBuf>,
    /// Modules whose fetching stalls for less than this share of the time, by the model, are
    /// left unmodified.
    pub threshold: f64,
    /// Count, lay out and compare so many times, each time in the next of the ways that the model
    /// ranks; the fastest stays.
    pub passes: usize,
    /// Compare again after so long, again and again, and tune anew when it does not pay any more.
    pub watch: Option<Duration>,
}

/// What became of it.
#[derive(Debug, Default)]
pub struct Outcome {
    /// What was counted.
    pub profile: Profile,
    /// The share of its cycles in which it waits for instructions, if the processor counts that.
    pub stalled: Option<f64>,
    /// How the profile that was given fits.
    pub fit: Option<Fit>,
    /// Layouts, by module.
    pub decided: Vec<(PathBuf, Decided)>,
    /// Modules that are left unmodified, and why.
    pub refused: Vec<(PathBuf, String)>,
    /// What was installed in the process that was named.
    pub installed: Option<Installed>,
    /// How many processes have got rewritten text, that one included.
    pub processes: usize,
    /// Processes of the group that are left unmodified, and why.
    pub left: Vec<(Pid, String)>,
    /// Where threads were seen then.
    pub seen: Option<Seen>,
    /// What the comparison has shown.
    pub measured: Option<Measured>,
    /// Why it has shown nothing.
    pub not_compared: Option<String>,
    /// Of a dry run: threads that wait now in a call that a pause would end early, with EINTR.
    pub limited_waits: Vec<(Tid, &'static str)>,
    /// Whether the rewritten text is in place.
    pub kept: bool,
}

/// What [`tune`] tells while it works.
#[derive(Debug)]
pub enum Progress<'a> {
    /// What is being done now, in words.
    Step(String),
    /// A process was tuned, or is left unmodified.
    Tuned(&'a Outcome),
}

/// Tunes a process; `tell` gets each step, and each result. If it is to be watched, that goes on
/// until it has ended or we are interrupted.
///
/// # Errors
///
/// When the process cannot be tuned. Then everything is reverted that can be.
pub fn tune(
    process: &Process,
    folder: &Path,
    options: &Options,
    stop: Stop<'_>,
    mut notify: impl FnMut(Progress<'_>),
) -> Result<Outcome, TuneError> {
    // Whatever failed, that is why.
    let known = |error| match process.is_same() {
        true => error,
        false => LiveError::Gone { pid: process.pid() }.into(),
    };
    let mut now = tune_once(process, folder, options, stop, &mut notify).map_err(known);
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
        now = match tune_once(process, folder, &options, stop, &mut notify) {
            // It may have nothing to do for a while.
            Err(TuneError::Unfit { why, .. }) if process.is_same() => {
                notify(Progress::Step(why));
                Ok((outcome, false))
            }
            Err(_) if !process.is_same() => return Ok(outcome),
            done => done,
        };
    }
}

/// Tunes a process once, and watches it if what was done stays; also says whether that was
/// reverted later, because the load had changed.
fn tune_once(
    process: &Process,
    folder: &Path,
    options: &Options,
    stop: Stop<'_>,
    notify: &mut dyn FnMut(Progress<'_>),
) -> Result<(Outcome, bool), TuneError> {
    match Quiet::of(process.pid()) {
        Some(quiet @ Quiet::Waits(_)) => notify(Progress::Step(quiet.to_string())),
        Some(quiet) => {
            let why = quiet.to_string();
            return Err(TuneError::Unfit { pid: process.pid(), why });
        }
        None => {}
    }
    let target = Target::when_loaded(process, LOADING, &|| stop.is_wanted())?;
    if !options.keep && !options.dry_run {
        let said = work::try_work(process.pid(), &options.measure.work)?;
        if !said.is_empty() {
            notify(Progress::Step(format!("--work-counter says: {said}")));
        }
    }
    let (modules, refused) = lift(&target, &options.wanted, stop)?;
    let process_group = ProcessGroup::of(process, options.alone);
    let mut tuning =
        Tuning { target, modules, refused, process_group, folder, options, stop, notify };
    let mut outcome = Outcome { refused: tuning.refused.clone(), ..Outcome::default() };
    let codes = tuning.decided(&mut outcome, 0)?;
    if options.dry_run || codes.is_empty() {
        let members = tuning.process_group.members();
        outcome.limited_waits = members.flat_map(|p| fettle_live::limited_waits(p.pid())).collect();
        (tuning.notify)(Progress::Tuned(&outcome));
        return Ok((outcome, false));
    }
    let mut everywhere = GroupPatches::new(folder, Cow::Owned(codes));
    let pays = tuning.pays(&mut everywhere, &mut outcome, None);
    // What was counted and laid out is reported whatever came of it.
    (tuning.notify)(Progress::Tuned(&outcome));
    if !pays? {
        return Ok((outcome, false));
    }
    for rank in 1..options.passes {
        if !tuning.once_more(&mut everywhere, &mut outcome, rank)? {
            break;
        }
    }
    let (Some(pause), Some(first)) = (options.watch, &outcome.measured) else {
        return Ok((outcome, false));
    };
    let Tuning { mut process_group, notify, .. } = tuning;
    let others = outcome.installed.as_ref().map(|i| i.others.clone()).unwrap_or_default();
    let code = (&everywhere.codes[..], &others);
    let Some(last) = watch(&mut process_group, code, (options, pause, first), stop, notify)? else {
        return Ok((outcome, false));
    };
    everywhere.revert()?;
    (outcome.kept, outcome.measured) = (false, Some(last));
    Ok((outcome, true))
}

/// A process that is being tuned.
struct Tuning<'a, 't> {
    target: Target<'a>,
    modules: Vec<Module>,
    /// Modules that cannot be laid out, and why.
    refused: Vec<(PathBuf, String)>,
    process_group: ProcessGroup<'a>,
    folder: &'a Path,
    options: &'a Options,
    stop: Stop<'a>,
    notify: &'t mut dyn FnMut(Progress<'_>),
}

impl<'a> Tuning<'a, '_> {
    fn step(&mut self, what: &str) {
        (self.notify)(Progress::Step(what.to_owned()));
    }

    /// Counts, and makes rewritten text by that and by what `outcome` knows of: in the way that is `rank`
    /// places behind the one that the model likes best.
    fn decided(&mut self, outcome: &mut Outcome, rank: usize) -> Result<Vec<Rewritten>, TuneError> {
        outcome.stalled = stalls::share(&self.process_group, self.stop)?;
        self.step(if self.options.samples { "looking" } else { "counting" });
        let before = std::mem::take(&mut outcome.profile);
        (outcome.profile, outcome.fit) = self.counted()?;
        outcome.profile.add(&before);
        let subjects = self.modules.iter().map(Module::subject);
        if let Some(path) = &self.options.save {
            let saved = Saved::of(subjects.zip(&outcome.profile.modules));
            saved.write(path).map_err(unusable)?;
        }
        // What was counted is kept all the same.
        outcome.profile.is_reverted(&self.process_group)?;
        self.step("deciding");
        self.process_group.forget();
        self.process_group.look();
        let group = Group { rank, ..self.options.group.clone() };
        lay_out(&self.target, &self.process_group, &self.modules, (self.options, &group), outcome)
    }

    fn counted(&self) -> Result<(Profile, Option<Fit>), TuneError> {
        let subjects: Vec<Subject<'_>> = self.modules.iter().map(Module::subject).collect();
        if let Some(saved) = &self.options.profile {
            let (modules, fit) = saved.counts(&subjects).map_err(unusable)?;
            return Ok((Profile { modules, ..Profile::default() }, Some(fit)));
        }
        let selection = &self.options.wanted.selection;
        let from = (&self.target, &self.process_group);
        let time = self.options.time;
        let profile = match self.options.samples {
            true => samples::sample(from, &self.modules, selection, time, self.stop)?,
            false => count::count(from, self.folder, &self.modules, selection, time, self.stop)?,
        };
        Ok((profile, None))
    }

    /// Installs rewritten text and compares. What does not pay, or not more than `least`, is reverted.
    fn pays(
        &mut self,
        everywhere: &mut GroupPatches<'_>,
        outcome: &mut Outcome,
        least: Option<&Measured>,
    ) -> Result<bool, TuneError> {
        self.step("installing");
        let done: Result<_, TuneError> = (|| {
            outcome.installed = Some(everywhere.install(&self.target, &mut self.process_group)?);
            outcome.processes = everywhere.journals.len();
            outcome.seen = Some(everywhere.seen(&self.process_group)?);
            outcome.left = self.process_group.left.clone();
            if self.options.keep {
                return Ok(None);
            }
            self.step("measuring");
            let others = outcome.installed.as_ref().map(|i| i.others.clone()).unwrap_or_default();
            let code = (&everywhere.codes[..], &others);
            let plan = &self.options.measure;
            Ok(Some(measure::measure_installed(&mut self.process_group, code, plan, self.stop)?))
        })();
        let gain = |measured: &Measured| {
            measured.is_gain() && least.is_none_or(|least| measured.ratio < least.ratio)
        };
        outcome.kept = matches!(&done, Ok(measured) if measured.as_ref().is_none_or(gain));
        if !outcome.kept {
            self.step("reverting");
            everywhere.revert()?;
        }
        outcome.not_compared = done.as_ref().err().map(ToString::to_string);
        outcome.measured = done?;
        if let Some(measured) = outcome.measured.as_ref().filter(|_| outcome.kept) {
            everywhere.note(measured)?;
        }
        Ok(outcome.kept)
    }

    /// Counts again, with what was counted before, and tries the next way. Whichever was faster is
    /// in place afterwards. Gives false if there is no sense in a further pass.
    fn once_more(
        &mut self,
        everywhere: &mut GroupPatches<'a>,
        outcome: &mut Outcome,
        rank: usize,
    ) -> Result<bool, TuneError> {
        let Some(least) = outcome.measured.clone() else { return Ok(false) };
        everywhere.revert()?;
        let (profile, refused) = (outcome.profile.clone(), self.refused.clone());
        let mut next = Outcome { profile, refused, ..Outcome::default() };
        let tried = self.decided(&mut next, rank).and_then(|codes| {
            let mut everywhere = GroupPatches::new(self.folder, Cow::Owned(codes));
            let better = self.pays(&mut everywhere, &mut next, Some(&least))?;
            Ok((everywhere, better))
        });
        let (shown, go_on) = match tried {
            Ok((found, true)) => {
                (*everywhere, *outcome) = (found, next);
                (self.notify)(Progress::Tuned(outcome));
                return Ok(true);
            }
            Ok((_, false)) => {
                (next.measured.as_ref().map_or_else(String::new, Measured::percent), true)
            }
            Err(error) => (error.to_string(), false),
        };
        self.step(&format!("pass {}: {shown}; what was there before comes back", rank + 1));
        self.process_group.forget();
        self.process_group.look();
        outcome.installed = Some(everywhere.install(&self.target, &mut self.process_group)?);
        everywhere.note(&least)?;
        Ok(go_on)
    }
}

fn unusable(why: String) -> TuneError {
    TuneError::Profile { why }
}

/// Compares again and again, until rewritten text does not pay any more, or pays less than at `first`:
/// then the load has changed, and what the last comparison has shown is given. What one comparison leaves
/// open the next one decides with it. `None` if the process has ended, or we are to end.
fn watch(
    process_group: &mut ProcessGroup<'_>,
    code: (&[Rewritten], &PatchSet),
    (options, pause, first): (&Options, Duration, &Measured),
    stop: Stop<'_>,
    notify: &mut dyn FnMut(Progress<'_>),
) -> Result<Option<Measured>, TuneError> {
    let pid = process_group.leader.pid();
    let mut open: Option<Measured> = None;
    loop {
        if open.is_none() && stop.wait(pid, pause).is_err() {
            return Ok(None);
        }
        let measured = match measure::measure_installed(process_group, code, &options.measure, stop)
        {
            Ok(measured) => measured,
            Err(TuneError::Interrupted { .. }) => return Ok(None),
            Err(_) if !process_group.leader.is_same() => return Ok(None),
            // It may have nothing to do for a while.
            Err(TuneError::Unfit { why, .. }) => {
                notify(Progress::Step(why));
                open = None;
                continue;
            }
            Err(error) => return Err(error),
        };
        let is_second = open.is_some();
        let measured = open.take().map_or_else(|| measured.clone(), |open| open.with(&measured));
        let is_less = measured.is_less_than(first);
        let what = match (measured.is_gain(), is_less) {
            (true, false) => "the rewritten text stays",
            (true, true) => "less than it was: the load has changed; tuning anew",
            (false, _) if measured.is_loss() => "it is slower: the load has changed; tuning anew",
            (false, _) if !is_second => "no certain gain, no certain loss: comparing once more",
            (false, _) => "no certain gain any more: the load has changed; tuning anew",
        };
        notify(Progress::Step(format!("{}; {what}", measured.percent())));
        if !measured.is_gain() && !is_less && !measured.is_loss() && !is_second {
            open = Some(measured);
        } else if !measured.is_gain() || is_less {
            return Ok(Some(measured));
        }
    }
}

/// Rewritten text for what ran of each module, in the order that was decided.
fn lay_out(
    target: &Target<'_>,
    process_group: &ProcessGroup<'_>,
    modules: &[Module],
    (options, group): (&Options, &Group),
    outcome: &mut Outcome,
) -> Result<Vec<Rewritten>, TuneError> {
    let process = target.process;
    let mut maps = process_group.maps()?;
    let mut codes: Vec<Rewritten> = Vec::new();
    let mut below = false;
    for (module, counts) in modules.iter().zip(&outcome.profile.modules) {
        let path = module.loaded.path.clone();
        let code = (&module.image, &module.lifted.functions[..]);
        let mut decided = match decide::decide(code, counts, group, Geometry::L1I) {
            Ok(Some(decided)) => decided,
            Ok(None) => continue,
            Err(why) => {
                outcome.refused.push((path, why));
                continue;
            }
        };
        let modelled = decided.chosen.before.stall_share();
        let (share, by) = match outcome.stalled {
            Some(share) => (share, "processor's counters the process waits for code in"),
            None => (modelled, "model fetching its code takes"),
        };
        if share < options.threshold {
            let why =
                format!("by the {by} {:.1} % of the time, less than --threshold", share * 100.0);
            outcome.refused.push((path, why));
            below = true;
            continue;
        }
        let placement = decided.chosen.layout.placement(&decided.code);
        let entries: HashSet<_> = decided.code.procedures.iter().map(|p| p.entry).collect();
        let wants = |f: &Function| entries.contains(&f.entry);
        let recipe = Recipe {
            probes: &Probing::new(Mode::Plain),
            slot: SlotOffsets::counters(0),
            pointers: Pointers::Promoted(&decided.promoted.targets),
            placement: Some(&placement),
            wants: &wants,
            callers: Callers::Ran(counts),
        };
        match module.rewritten_text(process, &recipe, &maps) {
            Ok(code) => {
                maps.extend([install::taken(code.text), install::taken(code.constants)]);
                // Where too few registers are free a call is left unmodified.
                let plan = code.plan.functions.iter();
                let made: HashSet<_> = plan.flat_map(|f| f.pointers.iter().copied()).collect();
                decided.promoted.keep(|call| made.contains(&call));
                codes.push(code);
                outcome.decided.push((path, decided));
            }
            Err(why) => outcome.refused.push((path, why)),
        }
    }
    if codes.is_empty() && !below {
        let why = match outcome.refused.first() {
            Some((path, why)) => format!("{}: {why}", path.display()),
            None => {
                let quiet = Quiet::of(process.pid()).map(|quiet| format!(": {quiet}"));
                format!("none of its code ran while it was counted{}", quiet.unwrap_or_default())
            }
        };
        return Err(TuneError::Unfit { pid: process.pid(), why });
    }
    Ok(codes)
}
