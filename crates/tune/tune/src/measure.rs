//! Comparing original and rewritten text in the process that runs them.
//!
//! Patches are switched by writing the jumps or the original bytes ([`crate::switching`]). Original
//! and rewritten text run in turns, ABBA and then BAAB, so that slow changes of the load affect
//! both alike. Each turn gives the CPU time for a unit of work; each four turns give a ratio. Their
//! mean and its interval decide, and whether further rounds are needed ([`crate::comparison`]).

use std::time::Duration;

use fettle_live::{MappedFiles, Process};

use crate::comparison::{LEAST_ROUNDS, Measured, Rounds, WorkUnit, evaluate};
use crate::error::TuneError;
use crate::group::ProcessGroup;
use crate::rewritten::Rewritten;
use crate::stop::Stop;
use crate::switching::PatchSet;
use crate::work::{Meter, Work};

/// How to compare.
#[derive(Clone, Debug)]
pub struct Plan {
    /// How work is measured.
    pub work: Work,
    /// How many rounds of four turns.
    pub rounds: Rounds,
    /// How long a turn is.
    pub turn: Duration,
}

/// The time after a switch before a turn begins.
const SETTLE: Duration = Duration::from_millis(10);
/// Less work than that makes no round.
const LEAST_WORK: u64 = 10;
/// Turns of rounds that have less work than that are made longer, up to this.
const LONGEST_TURN: Duration = Duration::from_secs(2);

/// The patches that switch a process to its rewritten text, and back.
pub(crate) type PatchSetOf<'a> = &'a dyn Fn(&Process) -> Result<PatchSet, TuneError>;

/// Processes that can be switched between what is compared.
trait Sides<'b> {
    /// Lets them run what is new, or what is old.
    fn turn(&mut self, new: bool) -> Result<(), TuneError>;

    /// Whose time and work are measured.
    fn process_group(&self) -> &ProcessGroup<'b>;
}

/// Original and rewritten text of a process, or of a process group.
struct Switch<'a, 'b> {
    process_group: &'a mut ProcessGroup<'b>,
    patch_set_of: PatchSetOf<'a>,
    places: MappedFiles,
    is_new: bool,
    stops: Vec<Duration>,
}

impl<'b> Sides<'b> for Switch<'_, 'b> {
    fn process_group(&self) -> &ProcessGroup<'b> {
        self.process_group
    }

    fn turn(&mut self, new: bool) -> Result<(), TuneError> {
        if self.is_new == new {
            return Ok(());
        }
        // A process that was forked meanwhile has inherited rewritten text, and its parent's jumps
        // of that time.
        self.process_group.forget();
        self.process_group.look();
        let leader = self.process_group.leader.pid();
        for process in self.process_group.members() {
            let switched = (self.patch_set_of)(process)
                .and_then(|patch_set| Ok(patch_set.switch(process, new, &self.places)?));
            match switched {
                Ok(stops) => self.stops.extend(stops),
                Err(_) if process.pid() != leader && !process.is_same() => {}
                Err(error) => return Err(error),
            }
        }
        self.is_new = new;
        std::thread::sleep(SETTLE);
        Ok(())
    }
}

/// The patches that switch a process to its rewritten text, and back. Functions that a thread stays
/// in for long call others in rewritten text: deopt jumps lead those calls back, too.
fn patch_set(process: &Process, codes: &[Rewritten], others: &PatchSet) -> PatchSet {
    let mut patch_set = PatchSet::default();
    for code in codes {
        if is_there(process, code) {
            patch_set.add(code);
        }
    }
    if !patch_set.into.is_empty() {
        patch_set.extend(others);
    }
    patch_set
}

/// Whether rewritten text is where it was mapped; else the process has none. What unwinders read
/// never changes.
fn is_there(process: &Process, code: &Rewritten) -> bool {
    let from = code.eh_frame_hdr.0 - code.constants.at.0;
    let known = &code.linked.constants[from as usize..];
    let known = &known[..known.len().min(256)];
    process.read(code.eh_frame_hdr, known.len()).ok().as_deref() == Some(known)
}

/// Compares rewritten text that this very process has installed, and knows.
///
/// # Errors
///
/// When the processes cannot be switched, or do no work that could be seen.
pub fn measure_installed(
    process_group: &mut ProcessGroup<'_>,
    (codes, others): (&[Rewritten], &PatchSet),
    plan: &Plan,
    stop: Stop<'_>,
) -> Result<Measured, TuneError> {
    measure(process_group, &|process| Ok(patch_set(process, codes, others)), plan, stop)
}

/// Lets `run` switch a process group, to rewritten text by `true` and back by `false`. Rewritten text is in place
/// before and afterwards.
///
/// # Errors
///
/// When the processes cannot be switched.
pub(crate) fn switched<T>(
    process_group: &mut ProcessGroup<'_>,
    patch_set_of: PatchSetOf<'_>,
    run: impl FnOnce(&mut dyn FnMut(bool) -> Result<(), TuneError>) -> T,
) -> Result<T, TuneError> {
    let places = patch_set_of(process_group.leader)?.places(process_group.leader);
    let mut switch =
        Switch { process_group, patch_set_of, places, is_new: true, stops: Vec::new() };
    let done = run(&mut |new| switch.turn(new));
    switch.turn(true)?;
    Ok(done)
}

/// Compares; rewritten text is in place in all of the process group, and is again afterwards.
///
/// # Errors
///
/// When the processes cannot be switched, or do no work that could be seen.
pub(crate) fn measure(
    process_group: &mut ProcessGroup<'_>,
    patch_set_of: PatchSetOf<'_>,
    plan: &Plan,
    stop: Stop<'_>,
) -> Result<Measured, TuneError> {
    let places = patch_set_of(process_group.leader)?.places(process_group.leader);
    let mut switch =
        Switch { process_group, patch_set_of, places, is_new: true, stops: Vec::new() };
    let mut failed = None;
    let done = take_rounds(&mut switch, plan, stop, &mut failed);
    // Whatever the outcome, rewritten text is in place afterwards.
    switch.turn(true)?;
    let mut measured = enough(switch.process_group, done?, failed)?;
    measured.stops = switch.stops;
    Ok(measured)
}

/// A process that something else switches.
struct By<'a, 'b, F> {
    process_group: &'a ProcessGroup<'b>,
    switch: F,
}

impl<'b, F: FnMut(bool) -> Result<(), TuneError>> Sides<'b> for By<'_, 'b, F> {
    fn process_group(&self) -> &ProcessGroup<'b> {
        self.process_group
    }

    fn turn(&mut self, new: bool) -> Result<(), TuneError> {
        (self.switch)(new)
    }
}

/// Compares what `switch` lets a process run: what is new by `true`, what is old by `false`. So what is
/// decided by can be tried with differences that are known.
///
/// # Errors
///
/// When it does no work that could be seen, or cannot be switched.
pub fn compare_by(
    process_group: &ProcessGroup<'_>,
    plan: &Plan,
    stop: Stop<'_>,
    switch: impl FnMut(bool) -> Result<(), TuneError>,
) -> Result<Measured, TuneError> {
    let mut failed = None;
    let done = take_rounds(&mut By { process_group, switch }, plan, stop, &mut failed);
    enough(process_group, done?, failed)
}

/// What rounds have shown, if they are enough.
fn enough(
    process_group: &ProcessGroup<'_>,
    (rounds, idle, unit): Taken,
    failed: Option<TuneError>,
) -> Result<Measured, TuneError> {
    if let Some(failed) = failed.filter(|_| rounds.len() < LEAST_ROUNDS) {
        return Err(failed);
    }
    if rounds.len() < LEAST_ROUNDS {
        let why = format!(
            "it did too little work that could be seen in {idle} of {} rounds: put it under load, or \
             say by --work-counter what its work is",
            rounds.len() + idle
        );
        return Err(TuneError::Unfit { pid: process_group.leader.pid(), why });
    }
    Ok(Measured { idle, ..evaluate(&rounds, unit) })
}

/// Costs by original and by rewritten text of each round; how many rounds were not used; the unit.
type Taken = (Vec<(f64, f64)>, usize, WorkUnit);

/// Takes rounds until they have shown enough. A round whose work could not be measured is repeated;
/// the last reason is in `failed`. Where a unit of work takes long, several rounds make one.
fn take_rounds(
    switch: &mut dyn Sides<'_>,
    plan: &Plan,
    stop: Stop<'_>,
    failed: &mut Option<TuneError>,
) -> Result<Taken, TuneError> {
    let (mut rounds, mut pooled) = (Vec::new(), [Cost::default(); 2]);
    let (mut idle, mut taken) = (0, 0);
    let mut meter = Meter::new(&plan.work);
    let mut turn = plan.turn;
    // When so many are not used, more rounds do not help.
    while idle <= plan.rounds.enough / 2 && taken < plan.rounds.longest() {
        let begins_new = taken % 2 == 1;
        taken += 1;
        let costs = match take_round(switch, begins_new, (&meter, turn), stop) {
            Err(error @ TuneError::Work { .. }) => {
                *failed = Some(error);
                idle += 1;
                continue;
            }
            round => round?,
        };
        if costs.iter().any(|cost| cost.work < LEAST_WORK) && rounds.is_empty() && meter.count_all()
        {
            // Begun again, with all system calls counted.
            pooled = [Cost::default(); 2];
            continue;
        }
        let is_idle = costs.iter().any(|cost| cost.work == 0);
        for (pooled, cost) in pooled.iter_mut().zip(costs) {
            pooled.add(cost);
        }
        if pooled.iter().any(|cost| cost.work < LEAST_WORK) {
            idle += usize::from(is_idle);
            turn = turn.max((turn * 2).min(LONGEST_TURN));
            continue;
        }
        let [old, new] = std::mem::take(&mut pooled);
        rounds.push((old.per_unit(), new.per_unit()));
        if plan.rounds.are_over(&evaluate(&rounds, meter.unit())) {
            break;
        }
    }
    Ok((rounds, idle, meter.unit()))
}

/// The costs of work by original and by rewritten text, in four turns.
fn take_round(
    switch: &mut dyn Sides<'_>,
    begins_new: bool,
    turn: (&Meter<'_>, Duration),
    stop: Stop<'_>,
) -> Result<[Cost; 2], TuneError> {
    let mut costs = [Cost::default(), Cost::default()];
    for new in [begins_new, !begins_new, !begins_new, begins_new] {
        switch.turn(new)?;
        costs[usize::from(new)].add(take_turn(switch.process_group(), turn, stop)?);
    }
    Ok(costs)
}

/// The CPU time and the work of turns.
#[derive(Clone, Copy, Debug, Default)]
struct Cost {
    cpu_ns: u64,
    work: u64,
}

impl Cost {
    fn add(&mut self, other: Cost) {
        self.cpu_ns += other.cpu_ns;
        self.work += other.work;
    }

    fn per_unit(self) -> f64 {
        self.cpu_ns as f64 / self.work.max(1) as f64
    }
}

fn take_turn(
    process_group: &ProcessGroup<'_>,
    (meter, turn): (&Meter<'_>, Duration),
    stop: Stop<'_>,
) -> Result<Cost, TuneError> {
    let pid = process_group.leader.pid();
    let look = || -> Result<Cost, TuneError> {
        let gone = || TuneError::Unfit { pid, why: "it has ended".to_owned() };
        let work = meter.work(process_group)?;
        Ok(Cost { cpu_ns: process_group.cpu_ns().ok_or_else(gone)?, work })
    };
    let before = look()?;
    stop.wait(pid, turn)?;
    let after = look()?;
    Ok(Cost {
        cpu_ns: after.cpu_ns.saturating_sub(before.cpu_ns),
        work: after.work.saturating_sub(before.work),
    })
}
