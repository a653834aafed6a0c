//! Processes of which no code will run, and why: it is known before anything is counted.

use std::fmt;
use std::fs;

use fettle_types::Pid;

/// `wait4` and `waitid`.
const WAITS_FOR_CHILDREN: [&str; 2] = ["61", "247"];

/// Why nothing of a process runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Quiet {
    /// It is stopped, as by SIGSTOP or Ctrl-Z.
    Stopped,
    /// A debugger holds it.
    Held,
    /// Its only thread waits for its children, as the shell of a start script does: number and name of
    /// each.
    Waits(Vec<(Pid, String)>),
}

impl Quiet {
    /// What is the matter with a process, if anything is.
    pub(crate) fn of(pid: Pid) -> Option<Quiet> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
        let call = fs::read_to_string(format!("/proc/{pid}/syscall"));
        let children = children.unwrap_or_default();
        let children = children.split_whitespace().filter_map(|child| child.parse().ok());
        let named = children.map(|child| (child, name(child)));
        Quiet::by(&stat, &call.unwrap_or_default(), named.collect())
    }

    /// The same by `stat` and `syscall` of `/proc/PID` (proc(5)).
    fn by(stat: &str, call: &str, children: Vec<(Pid, String)>) -> Option<Quiet> {
        // The name, in brackets, may hold anything.
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        let threads = fields.get(17)?;
        match *fields.first()? {
            "T" => Some(Quiet::Stopped),
            "t" => Some(Quiet::Held),
            "S" if *threads == "1" && !children.is_empty() => {
                let number = call.split_whitespace().next()?;
                WAITS_FOR_CHILDREN.contains(&number).then_some(Quiet::Waits(children))
            }
            _ => None,
        }
    }
}

fn name(pid: Pid) -> String {
    fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default().trim_end().to_owned()
}

impl fmt::Display for Quiet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Quiet::Stopped => write!(f, "it is stopped, as by SIGSTOP: `kill -CONT` lets it run"),
            Quiet::Held => write!(f, "a debugger holds it"),
            Quiet::Waits(children) => {
                let named = children.iter().map(|(pid, name)| format!("{name} ({pid})"));
                write!(f, "it waits for what it started: {}", named.collect::<Vec<_>>().join(", "))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stat(state: &str, threads: u32) -> String {
        let rest = "1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16";
        format!("77 (a) S (x) {state} {rest} {threads} 0 99\n")
    }

    #[test]
    fn states_are_told_apart() {
        let child = vec![(Pid::try_from(78).unwrap(), "redis-server".to_owned())];
        let by = |state, threads, call| Quiet::by(&stat(state, threads), call, child.clone());
        assert_eq!(by("T", 4, "running"), Some(Quiet::Stopped));
        assert_eq!(by("t", 1, "0 0x0"), Some(Quiet::Held));
        assert_eq!(by("S", 1, "61 0xffffffff 0x0"), Some(Quiet::Waits(child.clone())));
        assert_eq!(by("S", 1, "247 0x0"), Some(Quiet::Waits(child.clone())));
        assert_eq!(by("S", 1, "232 0x4"), None, "it waits for something else");
        assert_eq!(by("S", 2, "61 0xffffffff"), None, "another thread may work");
        assert_eq!(by("R", 1, "running"), None);
        assert_eq!(Quiet::by(&stat("S", 1), "61 0x0", Vec::new()), None);
        for damaged in ["", "77 (a", "77 (a) S", "77 (a) S 1 2"] {
            assert_eq!(Quiet::by(damaged, "61", child.clone()), None, "{damaged:?}");
        }
        let said = Quiet::Waits(child).to_string();
        assert_eq!(said, "it waits for what it started: redis-server (78)");
    }
}
