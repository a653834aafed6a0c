//! A process's amount of work, which CPU time is related to.

use std::process::Command;
use std::time::Duration;

use fettle_kernel_events::Tally;
use fettle_types::Pid;

use crate::comparison::WorkUnit;
use crate::error::TuneError;
use crate::group::ProcessGroup;

/// How a process's work is measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Work {
    /// Its read and write system calls, as the kernel counts them for each process; if there are
    /// hardly any, all of its system calls, if the user may count them.
    Calls,
    /// The first number that a command prints, which grows with the work.
    Command(String),
}

/// The source of a process's amount of work.
pub(crate) enum Meter<'a> {
    Io,
    All(Tally),
    Command(&'a str),
}

impl Meter<'_> {
    pub(crate) fn new(work: &Work) -> Meter<'_> {
        match work {
            Work::Calls => Meter::Io,
            Work::Command(command) => Meter::Command(command),
        }
    }

    pub(crate) fn unit(&self) -> WorkUnit {
        match self {
            Meter::Io => WorkUnit::ReadOrWrite,
            Meter::All(_) => WorkUnit::SystemCall,
            Meter::Command(_) => WorkUnit::Given,
        }
    }

    /// Counts all system calls from now on, if reads and writes were counted and it is allowed.
    /// That makes each system call of the machine a little slower, so it is not done without need.
    pub(crate) fn count_all(&mut self) -> bool {
        let tally = if matches!(self, Meter::Io) { Tally::new().ok() } else { None };
        tally.map(|tally| *self = Meter::All(tally)).is_some()
    }

    /// The work done so far.
    pub(crate) fn work(&self, process_group: &ProcessGroup<'_>) -> Result<u64, TuneError> {
        let pid = process_group.leader.pid();
        let unfit = |why: String| TuneError::Unfit { pid, why };
        match self {
            Meter::Io => process_group.io_calls().ok_or_else(|| unfit("it has ended".to_owned())),
            Meter::All(tally) => {
                let mut all = process_group.all().into_iter();
                all.try_for_each(|member| tally.watch(member.pid))
                    .and_then(|()| tally.total())
                    .map_err(|error| unfit(error.to_string()))
            }
            Meter::Command(command) => Ok(work_printed(pid, command)?.number),
        }
    }
}

/// What a command printed: the first number on its standard output, and all of its standard error.
pub struct Printed {
    /// The first number on its standard output.
    pub number: u64,
    /// Its standard error.
    pub error: String,
}

fn work_printed(pid: Pid, command: &str) -> Result<Printed, TuneError> {
    printed(command).map_err(|why| TuneError::Work { pid, command: command.to_owned(), why })
}

/// Runs the command that reports a process's work twice, as a comparison will many times, and
/// returns what it printed to standard error.
///
/// # Errors
///
/// When it prints no number, or one that gets smaller.
pub fn try_work(pid: Pid, work: &Work) -> Result<String, TuneError> {
    let Work::Command(command) = work else { return Ok(String::new()) };
    let (first, second) = (work_printed(pid, command)?, work_printed(pid, command)?);
    if second.number < first.number {
        let why = format!(
            "it printed {} and then {}: its number is to grow with the work",
            first.number, second.number
        );
        return Err(TuneError::Work { pid, command: command.clone(), why });
    }
    Ok(first.error)
}

/// What a command for `--work-counter` prints. It may read a file while that is being replaced, and is run
/// again then.
///
/// # Errors
///
/// When it prints no number: why.
pub fn printed(command: &str) -> Result<Printed, String> {
    const TRIES: usize = 3;
    const PAUSE: Duration = Duration::from_millis(20);
    let mut why = String::new();
    for tries in 0..TRIES {
        if tries > 0 {
            std::thread::sleep(PAUSE);
        }
        let output = Command::new("sh").args(["-c", command]).output();
        let output = output.map_err(|error| error.to_string())?;
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
    Err(why)
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
            try_work(Pid::own(), &Work::Command(command)).map_err(|error| error.to_string())
        };
        assert_eq!(try_work(Pid::own(), &Work::Calls).unwrap(), "");
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
    fn numbers_that_commands_print() {
        assert_eq!(printed("echo total: 42 of 43").unwrap().number, 42);
        let said =
            try_work(Pid::own(), &Work::Command("echo nothing".into())).unwrap_err().to_string();
        assert!(said.contains("no number"), "{said}");
    }
}
