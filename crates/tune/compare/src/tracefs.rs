//! The kernel's own tracing (ftrace), through its file system: an instance with rings of its own, so that what
//! others trace at the same time is left unmodified.
//!
//! The file system is mounted for this process alone, at no path. Probes that an instance records belong to all
//! of the kernel, so they have this process's number in their names. What a killed process has left there is
//! removed by the next one.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use fettle_live::Tracefs;
use fettle_types::Pid;

/// What names of instances and groups of probes begin with.
const OURS: &str = "fettle_";
/// Kinds of probes, and the files that they are made by.
const PROBES: [&str; 2] = ["uprobe_events", "kprobe_events"];

/// What is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Traced {
    /// A probe at a function of the program's.
    Uprobe,
    /// The tracepoint at which system calls begin.
    Calls,
    /// The kernel's function that serves the call, by the function tracer.
    Function,
    /// A probe at that function.
    Kprobe,
}

/// Where the program's operations pass: what is probed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// The file with the function, and where it begins there.
    pub(crate) file: PathBuf,
    pub(crate) offset: u64,
    /// The kernel's function that serves the call that it makes.
    pub(crate) handler: String,
}

/// An instance of the kernel's tracing. It goes with this value.
#[derive(Debug)]
pub(crate) struct Tracing {
    root: Tracefs,
    name: String,
    traced: Traced,
}

impl Tracing {
    /// Makes an instance that can record that.
    ///
    /// # Errors
    ///
    /// In words, when the user may not or the kernel cannot.
    pub(crate) fn new(traced: Traced) -> Result<Tracing, String> {
        let root = Tracefs::mount().map_err(|error| match error.kind() {
            io::ErrorKind::PermissionDenied => "the kernel's tracing needs root".to_owned(),
            _ => format!("this kernel's tracing cannot be had: {error}"),
        })?;
        // One process may have several.
        static MADE: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let number = MADE.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let tracing = Tracing { root, name: format!("{OURS}{}_{number}", Pid::own()), traced };
        tracing.remove_deserted();
        tracing.can()?;
        let instance = tracing.of_instance("");
        fs::create_dir(instance).map_err(|error| format!("no instance of ftrace: {error}"))?;
        Ok(tracing)
    }

    /// Whether this kernel can.
    fn can(&self) -> Result<(), String> {
        let exists = |name: &str| self.path(name).exists();
        match self.traced {
            Traced::Uprobe if !exists("uprobe_events") => {
                Err("this kernel has no uprobes in ftrace (CONFIG_UPROBE_EVENTS)".to_owned())
            }
            Traced::Kprobe if !exists("kprobe_events") => {
                Err("this kernel has no kprobes (CONFIG_KPROBE_EVENTS)".to_owned())
            }
            Traced::Calls if !exists("events/raw_syscalls/sys_enter") => {
                Err("this kernel traces no system calls (CONFIG_FTRACE_SYSCALLS)".to_owned())
            }
            Traced::Function if !exists("set_ftrace_filter") => {
                Err("this kernel has no function tracer (CONFIG_DYNAMIC_FTRACE)".to_owned())
            }
            Traced::Function => match fs::File::open(self.path("set_ftrace_filter")) {
                Ok(_) => Ok(()),
                Err(error) => Err(format!(
                    "this kernel does not let its functions be traced ({error}; it may be locked down)"
                )),
            },
            _ => Ok(()),
        }
    }

    /// Runs `work` while what processes do, and what those do that they start, is recorded.
    ///
    /// # Errors
    ///
    /// In words, when the kernel refuses, or when nothing was recorded.
    pub(crate) fn during<T>(
        &self,
        pids: impl Iterator<Item = Pid>,
        place: Option<&Place>,
        work: impl FnOnce() -> T,
    ) -> Result<T, String> {
        let pids: Vec<String> = pids.map(|pid| pid.to_string()).collect();
        let begun = self.begin(&pids.join(" "), place);
        let worked = begun.as_ref().is_ok().then(work);
        let seen = self.seen();
        self.end();
        begun?;
        match (worked, seen) {
            (Some(worked), 1..) => Ok(worked),
            _ => Err("ftrace recorded nothing".to_owned()),
        }
    }

    fn begin(&self, pids: &str, place: Option<&Place>) -> Result<(), String> {
        let need = || place.ok_or_else(|| "nothing is known that could be probed".to_owned());
        let set = |name: &str, text: &str| self.set(&self.of_instance(name), text);
        if self.traced == Traced::Function {
            set("set_ftrace_filter", &need()?.handler)?;
            set("set_ftrace_pid", pids)?;
            set("options/function-fork", "1")?;
            return set("current_tracer", "function");
        }
        set("set_event_pid", pids)?;
        set("options/event-fork", "1")?;
        match self.traced {
            Traced::Uprobe => {
                let Place { file, offset, .. } = need()?;
                self.add("uprobe_events", &format!("{}:{offset:#x}", file.display()))?;
            }
            Traced::Kprobe => self.add("kprobe_events", &need()?.handler)?,
            _ => return set("events/raw_syscalls/sys_enter/enable", "1"),
        }
        set(&format!("events/{}/passes/enable", self.name), "1")
    }

    /// Records nothing any more, and forgets what was recorded.
    fn end(&self) {
        // Each of these is only there after some beginnings.
        let off = |name: &str, text: &str| drop(self.set(&self.of_instance(name), text));
        match self.traced {
            Traced::Function => {
                off("current_tracer", "nop");
                off("set_ftrace_pid", "");
            }
            _ => {
                off("events/enable", "0");
                off("set_event_pid", "");
                self.remove_probes(&self.name);
            }
        }
        off("trace", "");
    }

    /// How much was recorded, what was overwritten included.
    fn seen(&self) -> u64 {
        let Ok(processors) = fs::read_dir(self.of_instance("per_cpu")) else { return 0 };
        let stats = processors.flatten().filter_map(|cpu| {
            let text = fs::read_to_string(cpu.path().join("stats")).ok()?;
            Some(recorded(&text))
        });
        stats.sum()
    }

    fn add(&self, kind: &str, place: &str) -> Result<(), String> {
        let definition = format!("p:{}/passes {place}\n", self.name);
        self.append(kind, &definition).map_err(|error| format!("{kind}: {place}: {error}"))
    }

    /// These files list all probes of the kernel's: opened to be emptied, they would remove those.
    fn append(&self, kind: &str, line: &str) -> io::Result<()> {
        let mut file = OpenOptions::new().append(true).open(self.path(kind))?;
        file.write_all(line.as_bytes())
    }

    /// Those whose group has that name.
    fn remove_probes(&self, group: &str) {
        for kind in PROBES {
            let defined = fs::read_to_string(self.path(kind)).unwrap_or_default();
            for name in probes_of(&defined, group) {
                let _ = self.append(kind, &format!("-:{name}\n"));
            }
        }
    }

    /// What processes have left that are no more.
    fn remove_deserted(&self) {
        let Ok(instances) = fs::read_dir(self.path("instances")) else { return };
        for instance in instances.flatten() {
            let name = instance.file_name().to_string_lossy().into_owned();
            let owner = owner(&name);
            if owner.is_some_and(|pid| !Path::new("/proc").join(pid.to_string()).exists()) {
                let _ = fs::remove_dir(instance.path());
                self.remove_probes(&name);
            }
        }
    }

    fn set(&self, path: &Path, text: &str) -> Result<(), String> {
        fs::write(path, text).map_err(|error| {
            let name: PathBuf = path.components().skip(5).collect();
            format!("ftrace: {}: {error}", name.display())
        })
    }

    fn of_instance(&self, name: &str) -> PathBuf {
        self.path("instances").join(&self.name).join(name)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.path(name)
    }
}

impl Drop for Tracing {
    fn drop(&mut self) {
        self.end();
        let _ = fs::remove_dir(self.of_instance(""));
    }
}

/// What a processor's ring says that it has recorded.
fn recorded(stats: &str) -> u64 {
    let number = |name: &str| {
        let line = stats.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().parse::<u64>().ok()
    };
    number("entries:").unwrap_or(0) + number("overrun:").unwrap_or(0)
}

/// Probes of a group, as `GROUP/NAME`, in a list of all.
fn probes_of<'a>(defined: &'a str, group: &str) -> Vec<&'a str> {
    let name =
        |line: &'a str| line.split_whitespace().next()?.split_once(':').map(|(_, name)| name);
    let is_of_group = |name: &&str| name.split_once('/').is_some_and(|(of, _)| of == group);
    defined.lines().filter_map(name).filter(is_of_group).collect()
}

/// The process that made an instance of that name, if it is one of ours.
fn owner(name: &str) -> Option<Pid> {
    name.strip_prefix(OURS)?.split_once('_')?.0.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_the_kernel_are_read() {
        let stats = "entries: 21\noverrun: 3\ncommit overrun: 9\nbytes: 420\n";
        assert_eq!((recorded(stats), recorded("")), (24, 0));
        let defined = "p:fettle_7_0/passes /bin/a:0x0000000000001040\n\
                       r8:others/x __x64_sys_read\np:fettle_7_01/passes y\n";
        assert_eq!(probes_of(defined, "fettle_7_0"), ["fettle_7_0/passes"]);
        assert_eq!(owner("fettle_7_0").map(Pid::unsigned), Some(7));
        assert!(owner("fettle_x_0").is_none() && owner("others").is_none());
    }
}
