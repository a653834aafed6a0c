//! Comparing original and rewritten text in the process that runs them.
//!
//! Patches are switched by writing the jumps or the original bytes ([`crate::switching`]). Original
//! and rewritten text run in turns, ABBA and then BAAB, so that slow changes of the load affect
//! both alike. Each turn gives the CPU time for a unit of work; each four turns give a ratio. Their
//! mean and its 95 % confidence interval decide.

use std::process::Command;
use std::time::Duration;

use fettle_kernel_events::Tally;
use fettle_live::{MappedFiles, Process};
use fettle_stats::Interval;

use crate::error::TuneError;
use crate::group::ProcessGroup;
use crate::rewritten::Rewritten;
use crate::stop::Stop;
use crate::switching::Ways;

/// How a process's work is measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Work {
    /// Its read and write system calls, as the kernel counts them for each process; if there are
    /// hardly any, all of its system calls, if the user may count them.
    Calls,
    /// The first number that a command prints, which grows with the work.
    Command(String),
}

/// The unit of work that CPU time is related to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkUnit {
    /// A call that reads or writes.
    ReadOrWrite,
    /// A system call: servers may use others (`recvmsg`) for what they do.
    SystemCall,
    /// The unit of a command's number.
    Told,
}

/// How to compare.
#[derive(Clone, Debug)]
pub struct Plan {
    /// How work is measured.
    pub work: Work,
    /// Rounds of four turns.
    pub pairs: usize,
    /// How long a turn is.
    pub turn: Duration,
}

/// The result of a comparison.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// CPU time for a unit of work, rewritten over original, of each round.
    pub ratios: Vec<f64>,
    /// Their geometric mean.
    pub ratio: f64,
    /// Lower end of its 95 % interval.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// What a unit of work was.
    pub unit: WorkUnit,
    /// Nanoseconds of CPU time for a unit of work, by the original text and by the rewritten.
    pub ns: (f64, f64),
    /// Rounds with too little work to be used.
    pub idle: usize,
    /// How long threads were paused for each switch.
    pub stops: Vec<Duration>,
}

impl Measured {
    /// Whether rewritten text is faster for certain, as far as the interval shows.
    pub fn is_gain(&self) -> bool {
        self.high < 1.0
    }

    /// The difference that rewritten text makes to CPU time, with its interval.
    pub fn percent(&self) -> String {
        let percent = |ratio: f64| (ratio - 1.0) * 100.0;
        let (ratio, low, high) = (percent(self.ratio), percent(self.low), percent(self.high));
        format!("{ratio:+.1} % of processor time [95 % interval {low:+.1} to {high:+.1}]")
    }

    /// Whether rewritten text is slower for certain.
    pub fn is_loss(&self) -> bool {
        self.low > 1.0
    }

    /// The result of this and another comparison of the same code together.
    pub fn with(&self, other: &Measured) -> Measured {
        let ratios = self.ratios.iter().chain(&other.ratios);
        let rounds: Vec<(f64, f64)> = ratios.map(|ratio| (1.0, *ratio)).collect();
        let mean = |old: f64, new: f64| {
            let (many, more) = (self.ratios.len() as f64, other.ratios.len() as f64);
            (old * many + new * more) / (many + more)
        };
        Measured {
            ns: (mean(self.ns.0, other.ns.0), mean(self.ns.1, other.ns.1)),
            idle: self.idle + other.idle,
            stops: self.stops.iter().chain(&other.stops).copied().collect(),
            ..evaluate(&rounds, self.unit)
        }
    }

    /// Whether rewritten text gains less than it did before, for certain.
    pub fn is_less_than(&self, before: &Measured) -> bool {
        self.low > before.high
    }
}

/// The time after a switch before a turn begins.
const SETTLE: Duration = Duration::from_millis(10);
/// A turn with less work is not used.
const LEAST_WORK: u64 = 10;
/// Turns that have less work than that are made longer, up to this.
const LONGEST_TURN: Duration = Duration::from_secs(2);
/// With fewer rounds the interval has no use.
pub const LEAST_ROUNDS: usize = 5;

/// Original and rewritten text of a process, or of a process group.
struct Switch<'a, 'b> {
    family: &'a mut ProcessGroup<'b>,
    codes: &'a [Rewritten],
    besides: &'a Ways,
    places: MappedFiles,
    is_new: bool,
    stops: Vec<Duration>,
}

impl Switch<'_, '_> {
    fn turn(&mut self, new: bool) -> Result<(), TuneError> {
        if self.is_new == new {
            return Ok(());
        }
        // A process that was forked meanwhile has inherited rewritten text, and its parent's jumps
        // of that time.
        self.family.forget();
        self.family.look();
        let lead = self.family.lead.pid();
        for process in self.family.members() {
            match ways(process, (self.codes, self.besides)).lead(process, new, &self.places) {
                Ok(stops) => self.stops.extend(stops),
                Err(_) if process.pid() != lead && !process.is_same() => {}
                Err(error) => return Err(error.into()),
            }
        }
        self.is_new = new;
        std::thread::sleep(SETTLE);
        Ok(())
    }
}

/// The patches that switch a process to its rewritten text, and back. Functions that a thread stays
/// in for long call others in rewritten text: deopt jumps lead those calls back, too.
fn ways(process: &Process, (codes, besides): (&[Rewritten], &Ways)) -> Ways {
    let mut ways = Ways::default();
    for code in codes {
        if is_there(process, code) {
            ways.add(code);
        }
    }
    if !ways.into.is_empty() {
        ways.extend(besides);
    }
    ways
}

/// Whether rewritten text is where it was mapped; else the process has none. What unwinders read
/// never changes.
fn is_there(process: &Process, code: &Rewritten) -> bool {
    let from = code.eh_frame_hdr.0 - code.constants.at.0;
    let known = &code.linked.constants[from as usize..];
    let known = &known[..known.len().min(256)];
    process.read(code.eh_frame_hdr, known.len()).ok().as_deref() == Some(known)
}

/// Compares; `codes` are in place in all of the process group, and are again afterwards.
///
/// # Errors
///
/// When the processes cannot be switched, or do no work that could be seen.
pub fn measure(
    family: &mut ProcessGroup<'_>,
    (codes, besides): (&[Rewritten], &Ways),
    plan: &Plan,
    stop: Stop<'_>,
) -> Result<Measured, TuneError> {
    let pid = family.lead.pid();
    let places = ways(family.lead, (codes, besides)).places(family.lead);
    let mut switch = Switch { family, codes, besides, places, is_new: true, stops: Vec::new() };
    let mut failed = None;
    let done = take_rounds(&mut switch, plan, stop, &mut failed);
    // Whatever the outcome, rewritten text is in place afterwards.
    switch.turn(true)?;
    let (rounds, idle, unit) = done?;
    if let Some(failed) = failed.filter(|_| rounds.len() < LEAST_ROUNDS) {
        return Err(failed);
    }
    if rounds.len() < LEAST_ROUNDS {
        let why = format!(
            "it did too little work that could be seen in {idle} of {} rounds: put it under load, or \
             say by --work-counter what its work is",
            rounds.len() + idle
        );
        return Err(TuneError::Unfit { pid, why });
    }
    let mut measured = evaluate(&rounds, unit);
    (measured.idle, measured.stops) = (idle, switch.stops);
    Ok(measured)
}

/// Costs by original and by rewritten text of each round; how many rounds were not used; the unit.
type Rounds = (Vec<(f64, f64)>, usize, WorkUnit);

/// Takes rounds until there are enough. A round whose work could not be measured is repeated; the
/// last reason is in `failed`.
fn take_rounds(
    switch: &mut Switch<'_, '_>,
    plan: &Plan,
    stop: Stop<'_>,
    failed: &mut Option<TuneError>,
) -> Result<Rounds, TuneError> {
    let mut rounds = Vec::new();
    let mut idle = 0;
    let mut meter = Meter::new(&plan.work);
    let mut turn = plan.turn;
    // When so many are not used, more rounds do not help.
    while rounds.len() < plan.pairs && idle <= plan.pairs / 2 {
        let begins_new = rounds.len() % 2 == 1;
        let round = match take_round(switch, begins_new, (&meter, turn), stop) {
            Err(error @ TuneError::Work { .. }) => {
                *failed = Some(error);
                idle += 1;
                continue;
            }
            round => round?,
        };
        match round {
            Some(round) => rounds.push(round),
            // Begun again, with all system calls counted.
            None if rounds.is_empty() && meter.count_all() => {}
            // Once more, with longer turns.
            None => {
                idle += 1;
                turn = turn.max((turn * 2).min(LONGEST_TURN));
            }
        }
    }
    Ok((rounds, idle, meter.unit()))
}

/// The cost of a unit of work by original and by rewritten text; `None` if some turn had too little
/// work.
fn take_round(
    switch: &mut Switch<'_, '_>,
    begins_new: bool,
    turn: (&Meter<'_>, Duration),
    stop: Stop<'_>,
) -> Result<Option<(f64, f64)>, TuneError> {
    let mut costs = [Cost::default(), Cost::default()];
    for new in [begins_new, !begins_new, !begins_new, begins_new] {
        switch.turn(new)?;
        let cost = take_turn(switch.family, turn, stop)?;
        if cost.work < LEAST_WORK {
            return Ok(None);
        }
        costs[usize::from(new)].add(cost);
    }
    Ok(Some((costs[0].per_unit(), costs[1].per_unit())))
}

/// The source of a process's amount of work.
enum Meter<'a> {
    Io,
    All(Tally),
    Command(&'a str),
}

impl Meter<'_> {
    fn new(work: &Work) -> Meter<'_> {
        match work {
            Work::Calls => Meter::Io,
            Work::Command(command) => Meter::Command(command),
        }
    }

    fn unit(&self) -> WorkUnit {
        match self {
            Meter::Io => WorkUnit::ReadOrWrite,
            Meter::All(_) => WorkUnit::SystemCall,
            Meter::Command(_) => WorkUnit::Told,
        }
    }

    /// Counts all system calls from now on, if reads and writes were counted and it is allowed.
    /// That makes each system call of the machine a little slower, so it is not done without need.
    fn count_all(&mut self) -> bool {
        let tally = if matches!(self, Meter::Io) { Tally::new().ok() } else { None };
        tally.map(|tally| *self = Meter::All(tally)).is_some()
    }

    /// The work done so far.
    fn work(&self, family: &ProcessGroup<'_>) -> Result<u64, TuneError> {
        let pid = family.lead.pid();
        let unfit = |why: String| TuneError::Unfit { pid, why };
        match self {
            Meter::Io => family.io_calls().ok_or_else(|| unfit("it has ended".to_owned())),
            Meter::All(tally) => {
                let mut all = family.all().into_iter();
                all.try_for_each(|relative| tally.watch(relative.pid as u32))
                    .and_then(|()| tally.total())
                    .map_err(|error| unfit(error.to_string()))
            }
            Meter::Command(command) => Ok(printed(pid, command)?.number),
        }
    }
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
    family: &ProcessGroup<'_>,
    (meter, turn): (&Meter<'_>, Duration),
    stop: Stop<'_>,
) -> Result<Cost, TuneError> {
    let pid = family.lead.pid();
    let look = || -> Result<Cost, TuneError> {
        let gone = || TuneError::Unfit { pid, why: "it has ended".to_owned() };
        let work = meter.work(family)?;
        Ok(Cost { cpu_ns: family.cpu_ns().ok_or_else(gone)?, work })
    };
    let before = look()?;
    stop.wait(pid, turn)?;
    let after = look()?;
    Ok(Cost {
        cpu_ns: after.cpu_ns.saturating_sub(before.cpu_ns),
        work: after.work.saturating_sub(before.work),
    })
}

/// What a command printed: the first number on its standard output, and all of its standard error.
struct Printed {
    number: u64,
    error: String,
}

/// Runs the command that reports a process's work twice, as a comparison will many times, and
/// returns what it printed to standard error.
///
/// # Errors
///
/// When it prints no number, or one that gets smaller.
pub fn try_work(pid: i32, work: &Work) -> Result<String, TuneError> {
    let Work::Command(command) = work else { return Ok(String::new()) };
    let (first, second) = (printed(pid, command)?, printed(pid, command)?);
    if second.number < first.number {
        let why = format!(
            "it printed {} and then {}: its number is to grow with the work",
            first.number, second.number
        );
        return Err(TuneError::Work { pid, command: command.clone(), why });
    }
    Ok(first.error)
}

/// What a command prints. It may read a file while that is being replaced, and is run again then.
fn printed(pid: i32, command: &str) -> Result<Printed, TuneError> {
    const TRIES: usize = 3;
    const PAUSE: Duration = Duration::from_millis(20);
    let failed = |why: String| TuneError::Work { pid, command: command.to_owned(), why };
    let mut why = String::new();
    for tries in 0..TRIES {
        if tries > 0 {
            std::thread::sleep(PAUSE);
        }
        let output = Command::new("sh").args(["-c", command]).output();
        let output = output.map_err(|error| failed(error.to_string()))?;
        let text = String::from_utf8_lossy(&output.stdout);
        let error = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        let mut numbers = text.split(|c: char| !c.is_ascii_digit()).filter(|n| !n.is_empty());
        if let Some(number) = numbers.next().and_then(|number| number.parse().ok()) {
            return Ok(Printed { number, error });
        }
        why = format!("it printed no number ({})", output.status);
        if !error.is_empty() {
            why = format!("{why}; it said: {error}");
        }
    }
    Err(failed(why))
}

/// Mean and interval of what rounds have shown, two at least: cost by original text, cost by rewritten
/// text.
pub fn evaluate(rounds: &[(f64, f64)], unit: WorkUnit) -> Measured {
    let ratios: Vec<f64> = rounds.iter().map(|(old, new)| new / old).collect();
    let Interval { value, low, high } = fettle_stats::geometric_mean(&ratios);
    let average = |values: &mut dyn Iterator<Item = f64>| values.sum::<f64>() / rounds.len() as f64;
    Measured {
        ratios,
        ratio: value,
        low,
        high,
        unit,
        ns: (
            average(&mut rounds.iter().map(|round| round.0)),
            average(&mut rounds.iter().map(|round| round.1)),
        ),
        idle: 0,
        stops: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_tried_before_it_is_needed() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("count");
        let tried = |command: &str| {
            let command = command.replace("FILE", file.to_str().unwrap());
            try_work(1, &Work::Command(command)).map_err(|error| error.to_string())
        };
        assert_eq!(try_work(1, &Work::Calls).unwrap(), "");
        assert_eq!(tried("echo careful >&2; echo work: 12").unwrap(), "careful");
        // Once in a while it fails, and is run again.
        let flaky = "echo x >> FILE; test $(wc -l < FILE) != 2 && wc -l < FILE";
        assert_eq!(tried(flaky).unwrap(), "");
        assert_eq!(std::fs::read_to_string(&file).unwrap().lines().count(), 3);
        let said = tried("echo oops >&2; exit 3").unwrap_err();
        assert!(said.contains("exit status: 3") && said.contains("it said: oops"), "{said}");
        let said = tried("echo x >> FILE; expr 100 - $(wc -l < FILE)").unwrap_err();
        assert!(said.contains("grow with the work"), "{said}");
    }

    #[test]
    fn gains_are_told_from_noise() {
        let noisy = |gain: f64| -> Vec<(f64, f64)> {
            (0..20)
                .map(|i| {
                    let noise = 1.0 + 0.01 * f64::from(i % 5 - 2);
                    (100.0, 100.0 * gain * noise)
                })
                .collect()
        };
        let gain = evaluate(&noisy(0.95), WorkUnit::Told);
        assert!(gain.is_gain() && (gain.ratio - 0.95).abs() < 0.001, "{gain:?}");
        assert!(gain.low < gain.ratio && gain.ratio < gain.high);
        let none = evaluate(&noisy(1.0), WorkUnit::Told);
        assert!(!none.is_gain() && none.low < 1.0 && none.high > 1.0, "{none:?}");
        let loss = evaluate(&noisy(1.05), WorkUnit::Told);
        assert!(loss.is_loss() && !loss.is_gain() && !none.is_loss());
    }

    #[test]
    fn a_disturbed_comparison_is_outweighed_by_another() {
        let disturbed =
            [(100.0, 60.0), (100.0, 95.0), (100.0, 130.0), (100.0, 80.0), (100.0, 75.0)];
        let disturbed = evaluate(&disturbed, WorkUnit::Told);
        assert!(!disturbed.is_gain() && !disturbed.is_loss(), "{disturbed:?}");
        let more = evaluate(&[(100.0, 78.0); 5], WorkUnit::Told);
        let both = disturbed.with(&more);
        assert!(both.is_gain() && both.ratios.len() == 10, "{both:?}");
        assert!((both.ns.1 - (disturbed.ns.1 + more.ns.1) / 2.0).abs() < 1e-9);
    }

    #[test]
    fn numbers_that_commands_print() {
        assert_eq!(printed(1, "echo total: 42 of 43").unwrap().number, 42);
        let said = try_work(1, &Work::Command("echo nothing".into())).unwrap_err().to_string();
        assert!(said.contains("no number"), "{said}");
    }
}
