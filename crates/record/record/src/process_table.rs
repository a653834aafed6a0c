//! Processes and threads as the kernel's events report them.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use fettle_kernel_events::decode::Life;
use fettle_trace::{Process, Thread};
use fettle_types::{Pid, Tid};
use serde::{Deserialize, Serialize};

use crate::task;

/// The processes and threads that there were, and from when to when.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct ProcessTable {
    processes: Vec<Process>,
    /// The newest with a number.
    process_of: HashMap<u32, usize>,
    threads: Vec<Thread>,
    thread_of: HashMap<u32, usize>,
    /// Names at the end, if this is read on another machine.
    names: Option<HashMap<u32, String>>,
}

impl ProcessTable {
    /// Takes along what is asked of this machine at the end.
    pub fn pack(&mut self) {
        self.names = Some(thread_names());
    }

    /// Takes in a process that runs before the recording begins.
    pub fn running(&mut self, pid: Pid) {
        self.process(pid.unsigned(), None, fettle_live::command_line(pid), 0);
        let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        for tid in tasks.filter_map(|task| task.file_name().to_str()?.parse::<Tid>().ok()) {
            self.thread(pid.unsigned(), tid.unsigned(), task::account(pid, tid).name, 0);
        }
    }

    /// The tables as they are by now.
    pub fn so_far(&self) -> (Vec<Process>, Vec<Thread>) {
        (self.processes.clone(), self.threads.clone())
    }

    fn process(&mut self, pid: u32, parent: Option<u32>, command: String, start_ns: u64) {
        self.process_of.insert(pid, self.processes.len());
        self.processes.push(Process { pid, parent, command, start_ns, ..Process::default() });
    }

    fn thread(&mut self, pid: u32, tid: u32, name: String, start_ns: u64) {
        let index = self.threads.len() as u32;
        self.thread_of.insert(tid, self.threads.len());
        self.threads.push(Thread { index, pid, tid, name, start_ns, ..Thread::default() });
    }

    /// Something happened to a process or thread.
    pub fn happened(&mut self, life: Life<'_>, now_ns: u64) {
        match life {
            Life::Seen { pid, tid } => {
                if !self.process_of.contains_key(&pid) {
                    self.process(pid, None, String::new(), now_ns);
                }
                if !self.thread_of.contains_key(&tid) {
                    self.thread(pid, tid, String::new(), now_ns);
                }
            }
            Life::Fork { pid, tid, child_pid, child_tid } => {
                let of = |map: &HashMap<u32, usize>, key| map.get(&key).copied();
                if child_pid != pid {
                    let command = of(&self.process_of, pid).map(|i| &self.processes[i].command);
                    let command = command.cloned().unwrap_or_default();
                    self.process(child_pid, Some(pid), command, now_ns);
                }
                let name = of(&self.thread_of, tid).map(|i| self.threads[i].name.clone());
                self.thread(child_pid, child_tid, name.unwrap_or_default(), now_ns);
            }
            Life::Exec { pid, tid, path } => {
                self.happened(Life::Seen { pid, tid }, now_ns);
                let name = path.rsplit('/').next().unwrap_or(path);
                self.processes[self.process_of[&pid]].command = path.to_owned();
                // As the kernel names it.
                let name = name.chars().take(15).collect();
                self.threads[self.thread_of[&tid]].name = name;
            }
            Life::ThreadExit { tid, name, .. } => {
                if let Some(index) = self.thread_of.remove(&tid) {
                    let thread = &mut self.threads[index];
                    thread.end_ns = now_ns;
                    thread.name = name.to_owned();
                }
            }
            Life::ProcessExit { pid, status } => {
                if let Some(index) = self.process_of.remove(&pid) {
                    let process = &mut self.processes[index];
                    process.end_ns = now_ns;
                    process.exit_code = (status >= 0).then_some(status);
                    process.exit_signal = (status < 0).then_some(-status);
                }
            }
        }
    }

    /// The tables. What is still alive has the end that is given, and the name that it has now.
    pub fn tables(mut self, end_ns: u64) -> (Vec<Process>, Vec<Thread>) {
        for index in self.thread_of.into_values() {
            let thread = &mut self.threads[index];
            thread.end_ns = end_ns;
            let name = match &self.names {
                Some(names) => names.get(&thread.tid).cloned().unwrap_or_default(),
                None => name_of(thread),
            };
            if !name.is_empty() {
                thread.name = name;
            }
        }
        for index in self.process_of.into_values() {
            self.processes[index].end_ns = end_ns;
        }
        (self.processes, self.threads)
    }

    /// Adds those that are not in the tables yet: the program's own are there, with more.
    pub fn add_to(self, end_ns: u64, processes: &mut Vec<Process>, threads: &mut Vec<Thread>) {
        let (more_processes, more_threads) = self.tables(end_ns);
        let known: Vec<u32> = processes.iter().map(|process| process.pid).collect();
        processes.extend(more_processes.into_iter().filter(|new| !known.contains(&new.pid)));
        let known: Vec<u32> = threads.iter().map(|thread| thread.tid).collect();
        for mut new in more_threads {
            if !known.contains(&new.tid) {
                new.index = threads.len() as u32;
                threads.push(new);
            }
        }
    }
}

/// The name of a thread that lives; empty for the kernel's idle threads, which have no numbers.
fn name_of(thread: &Thread) -> String {
    match (Pid::try_from(thread.pid), Tid::try_from(thread.tid)) {
        (Ok(pid), Ok(tid)) => task::account(pid, tid).name,
        _ => String::new(),
    }
}

/// Names of all threads of this machine, by number.
pub(crate) fn thread_names() -> HashMap<u32, String> {
    let numbers = |path: &Path| -> Vec<(u32, PathBuf)> {
        let entries = fs::read_dir(path).into_iter().flatten().flatten();
        entries
            .filter_map(|entry| Some((entry.file_name().to_str()?.parse().ok()?, entry.path())))
            .collect()
    };
    let mut names = HashMap::new();
    for (_, process) in numbers(Path::new("/proc")) {
        for (tid, thread) in numbers(&process.join("task")) {
            if let Ok(name) = fs::read_to_string(thread.join("comm")) {
                names.insert(tid, name.trim_end().to_owned());
            }
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn from_fork_to_exit() {
        let mut process_table = ProcessTable::default();
        process_table.happened(Life::Exec { pid: 1, tid: 1, path: "/bin/sh" }, 10);
        process_table.happened(Life::Fork { pid: 1, tid: 1, child_pid: 2, child_tid: 2 }, 20);
        process_table.happened(Life::Fork { pid: 2, tid: 2, child_pid: 2, child_tid: 3 }, 30);
        process_table.happened(Life::ThreadExit { tid: 3, name: "worker" }, 40);
        process_table.happened(Life::ThreadExit { tid: 2, name: "sh" }, 50);
        process_table.happened(Life::ProcessExit { pid: 2, status: -9 }, 50);
        // The number is used again.
        process_table.happened(Life::Fork { pid: 1, tid: 1, child_pid: 2, child_tid: 2 }, 60);
        let (processes, threads) = process_table.tables(70);
        let shown: Vec<_> =
            processes.iter().map(|p| (p.pid, p.parent, p.start_ns, p.end_ns)).collect();
        assert_eq!(shown, [(1, None, 10, 70), (2, Some(1), 20, 50), (2, Some(1), 60, 70)]);
        assert_eq!((processes[1].exit_signal, processes[1].command.as_str()), (Some(9), "/bin/sh"));
        let shown: Vec<_> = threads.iter().map(|t| (t.index, t.pid, t.tid, t.end_ns)).collect();
        assert_eq!(shown, [(0, 1, 1, 70), (1, 2, 2, 50), (2, 2, 3, 40), (3, 2, 2, 70)]);
        assert_eq!(threads[2].name, "worker");
    }
}
