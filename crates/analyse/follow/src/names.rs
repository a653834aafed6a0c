//! A thread's process, and what that was called at the time.

use std::num::NonZeroU32;

use rustc_hash::FxHashMap;

use fettle_trace::{EventKind, Process, Strings, TASKS_OF_A_MACHINE, Thread, Trace};

use crate::error::Result;

/// Names of processes and processes of threads.
#[derive(Debug, Default)]
pub(crate) struct Names {
    /// By process, when it came to be called what, in order of time.
    called: FxHashMap<u32, Vec<(u64, String)>>,
    /// By machine, the process of each thread number, as seen last; none if none was.
    process_of: Vec<Vec<Option<NonZeroU32>>>,
    /// Names of machines, if there are several.
    machines: Vec<String>,
}

impl Names {
    /// What tables and events say. Tables that cannot be read say nothing.
    pub(crate) fn read(trace: &Trace, problems: &mut Vec<String>) -> Result<Names> {
        let machines = &trace.manifest().machines;
        let machines = machines.iter().filter(|_| machines.len() > 1).map(|m| m.name.clone());
        let mut names = Names { machines: machines.collect(), ..Names::default() };
        let processes = trace.processes().unwrap_or_default();
        names.take_in(&processes, &trace.threads().unwrap_or_default());
        names.read_events(trace, problems)?;
        for times in names.called.values_mut() {
            times.sort_by_key(|(ns, _)| *ns);
        }
        Ok(names)
    }

    /// Takes in what tables say.
    pub(crate) fn take_in(&mut self, processes: &[Process], threads: &[Thread]) {
        for process in processes {
            self.call(process.pid, process.start_ns, process.program());
        }
        for thread in threads {
            self.learn(thread.tid, thread.pid);
        }
    }

    /// Takes in `fork` and `exec`.
    fn read_events(&mut self, trace: &Trace, problems: &mut Vec<String>) -> Result<()> {
        let wanted = |kind: &EventKind| -> Option<Vec<usize>> {
            let names: &[&str] = match kind.name.as_str() {
                "exec" => &["pid", "path", "tid"],
                "fork" => &["pid", "child_pid", "child_tid"],
                _ => return None,
            };
            kind.places(names)
        };
        let (mut stream, _) = trace.events(&mut |kind| wanted(kind))?;
        let is_exec: Vec<bool> = stream.kinds().map(|kind| kind.name == "exec").collect();
        let mut paths = Strings::default();
        loop {
            let run = match stream.next(u64::MAX, &mut |text| paths.code(text)) {
                Ok(Some(run)) => run,
                Ok(None) => return Ok(()),
                Err(error) => {
                    problems.push(error.to_string());
                    continue;
                }
            };
            let rows = run.times_ns().iter().zip(run.values(0)).zip(run.values(1));
            for (((ns, pid), other), tid) in rows.zip(run.values(2)) {
                let of = if is_exec[run.kind] {
                    self.exec(*pid as u32, *ns, paths.of_value(*other));
                    *pid
                } else {
                    self.fork(*pid as u32, *ns, *other as u32);
                    *other
                };
                self.learn(*tid as u32, of as u32);
            }
        }
    }

    /// A process runs another program.
    pub(crate) fn exec(&mut self, pid: u32, at_ns: u64, path: &str) {
        self.call(pid, at_ns, base_name(path));
    }

    /// A process forks, or makes a thread of its own.
    pub(crate) fn fork(&mut self, pid: u32, at_ns: u64, child_pid: u32) {
        if child_pid != pid {
            // A child is called what its parent is until it runs another program.
            let name = self.process(pid, at_ns).unwrap_or_default().to_owned();
            self.call(child_pid, at_ns, &name);
        }
    }

    fn call(&mut self, pid: u32, from_ns: u64, name: &str) {
        if !name.is_empty() {
            self.called.entry(pid).or_default().push((from_ns, name.to_owned()));
        }
    }

    /// Remembers that a thread is of a process.
    #[inline]
    pub(crate) fn learn(&mut self, tid: u32, pid: u32) {
        let (machine, at) = split(tid);
        // Claims of other machines than there are take no memory.
        if machine >= self.machines.len().max(1) {
            return;
        }
        if machine >= self.process_of.len() {
            self.process_of.resize_with(machine + 1, Vec::new);
        }
        let known = &mut self.process_of[machine];
        if at >= known.len() {
            known.resize((at + 1).next_power_of_two(), None);
        }
        known[at] = NonZeroU32::new(pid);
    }

    /// The process of a thread.
    pub(crate) fn process_of(&self, tid: u32) -> Option<u32> {
        let (machine, at) = split(tid);
        self.process_of.get(machine)?.get(at).copied()?.map(NonZeroU32::get)
    }

    /// A process or thread as its machine numbers it, behind that machine's name if there are
    /// several.
    pub(crate) fn local(&self, number: u32) -> (String, u32) {
        let (machine, local) = split(number);
        match self.machines.get(machine) {
            Some(name) => (format!("{name}/"), local as u32),
            None => (String::new(), number),
        }
    }

    /// What a process was called at a time.
    pub(crate) fn process(&self, pid: u32, at_ns: u64) -> Option<&str> {
        let times = self.called.get(&pid)?;
        let after = times.partition_point(|(ns, _)| *ns <= at_ns);
        times.get(after.saturating_sub(1)).map(|(_, name)| name.as_str())
    }
}

/// A number's machine, and the number there.
fn split(number: u32) -> (usize, usize) {
    ((number / TASKS_OF_A_MACHINE) as usize, (number % TASKS_OF_A_MACHINE) as usize)
}

/// The last part of a path.
fn base_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_called_what_it_was_at_the_time() {
        let mut names = Names::default();
        names.call(7, 0, "sh");
        names.call(7, 100, base_name("/usr/bin/nginx"));
        assert_eq!(names.process(7, 99), Some("sh"));
        assert_eq!(names.process(7, 100), Some("nginx"));
        assert_eq!(names.process(8, 100), None);
        names.learn(70_000, 7);
        names.learn(u32::MAX, 7);
        assert_eq!((names.process_of(70_000), names.process_of(u32::MAX)), (Some(7), None));
    }

    #[test]
    fn machines_keep_their_numbers_apart() {
        let machines = vec!["web".to_owned(), "db".to_owned()];
        let mut names = Names { machines, ..Names::default() };
        names.learn(70, 7);
        names.learn(TASKS_OF_A_MACHINE + 70, TASKS_OF_A_MACHINE + 8);
        assert_eq!(names.process_of(70), Some(7));
        assert_eq!(names.process_of(TASKS_OF_A_MACHINE + 70), Some(TASKS_OF_A_MACHINE + 8));
        assert_eq!(names.local(70), ("web/".to_owned(), 70));
        assert_eq!(names.local(TASKS_OF_A_MACHINE + 70), ("db/".to_owned(), 70));
        names.learn(2 * TASKS_OF_A_MACHINE, 1);
        assert_eq!(names.process_of(2 * TASKS_OF_A_MACHINE), None);
    }
}
