//! Processes and threads, as foreign events report them.

use std::collections::HashMap;

use fettle_trace::{Process, Thread};

/// The processes and threads that there were, and from when to when, by the foreign clock.
#[derive(Debug, Default)]
pub struct Tasks {
    processes: Vec<Process>,
    /// The newest with a number.
    process_of: HashMap<u32, usize>,
    threads: Vec<Thread>,
    thread_of: HashMap<u32, usize>,
    /// Living threads and their parents.
    begot: HashMap<u32, u32>,
}

impl Tasks {
    /// A thread does something. Without a process it is taken for its process's only thread, until
    /// another event says more.
    pub fn seen(&mut self, pid: u32, tid: u32, name: &str, now_ns: u64) {
        if tid == 0 {
            return;
        }
        let known = self.thread_of.get(&tid).and_then(|index| self.threads.get_mut(*index));
        if let Some(thread) = known {
            if thread.name.is_empty() && !name.is_empty() {
                thread.name = name.to_owned();
            }
            if pid == 0 || thread.pid == pid {
                return;
            }
            thread.pid = pid;
            self.process(pid, None, "", now_ns);
            return;
        }
        let pid = if pid == 0 { tid } else { pid };
        self.process(pid, None, if pid == tid { name } else { "" }, now_ns);
        self.thread(pid, tid, name, now_ns);
    }

    fn newest(&self, tid: u32) -> Option<&Thread> {
        self.threads.get(*self.thread_of.get(&tid)?)
    }

    /// The process of a thread; the thread itself if it is not known.
    pub fn pid_of(&self, tid: u32) -> u32 {
        self.newest(tid).map_or(tid, |thread| thread.pid)
    }

    /// What a thread is called.
    pub fn name_of(&self, tid: u32) -> &str {
        self.newest(tid).map_or("", |thread| &thread.name)
    }

    fn process(&mut self, pid: u32, parent: Option<u32>, command: &str, start_ns: u64) {
        if parent.is_none() && self.process_of.contains_key(&pid) {
            return;
        }
        self.process_of.insert(pid, self.processes.len());
        let command = command.to_owned();
        self.processes.push(Process { pid, parent, command, start_ns, ..Process::default() });
    }

    fn thread(&mut self, pid: u32, tid: u32, name: &str, start_ns: u64) {
        let index = self.threads.len() as u32;
        self.thread_of.insert(tid, self.threads.len());
        let name = name.to_owned();
        self.threads.push(Thread { index, pid, tid, name, start_ns, ..Thread::default() });
    }

    /// Whether this is the first report that a thread created another: there are several such
    /// events.
    pub fn begets(&mut self, parent: u32, child: u32) -> bool {
        self.begot.insert(child, parent) != Some(parent)
    }

    /// A thread creates a thread or forks a process. A thread that was seen to work before this was
    /// reported is the same one.
    pub fn fork(&mut self, parent: u32, child_pid: u32, child_tid: u32, now_ns: u64) {
        let pid = self.pid_of(parent);
        if self.thread_of.contains_key(&child_tid) {
            let index = self.process_of.get(&child_pid);
            let parent_of = index.and_then(|index| self.processes.get_mut(*index));
            if let Some(child) =
                parent_of.filter(|child| child_pid != pid && child.parent.is_none())
            {
                child.parent = Some(pid);
            }
            return self.seen(child_pid, child_tid, "", now_ns);
        }
        let name = self.name_of(parent).to_owned();
        if child_pid != pid {
            let known = self.process_of.get(&pid).and_then(|index| self.processes.get(*index));
            let command = known.map(|process| process.command.clone()).unwrap_or_default();
            self.process(child_pid, Some(pid), &command, now_ns);
        }
        self.thread(child_pid, child_tid, &name, now_ns);
    }

    /// A process runs another program.
    pub fn exec(&mut self, pid: u32, tid: u32, path: &str, now_ns: u64) {
        self.seen(pid, tid, "", now_ns);
        let process = self.process_of.get(&pid).and_then(|index| self.processes.get_mut(*index));
        if let Some(process) = process {
            process.command = path.to_owned();
        }
        let thread = self.thread_of.get(&tid).and_then(|index| self.threads.get_mut(*index));
        if let Some(thread) = thread {
            let name = path.rsplit('/').next().unwrap_or(path);
            // As the kernel names it.
            thread.name = name.chars().take(15).collect();
        }
    }

    /// A thread ends.
    pub fn thread_exit(&mut self, tid: u32, now_ns: u64) {
        self.begot.remove(&tid);
        let thread = self.thread_of.remove(&tid).and_then(|index| self.threads.get_mut(index));
        if let Some(thread) = thread {
            thread.end_ns = now_ns;
        }
    }

    /// A process ends, with a status, or a signal below zero.
    pub fn process_exit(&mut self, pid: u32, status: i32, now_ns: u64) {
        let process = self.process_of.remove(&pid).and_then(|at| self.processes.get_mut(at));
        if let Some(process) = process {
            process.end_ns = now_ns;
            process.exit_code = (status >= 0).then_some(status);
            process.exit_signal = (status < 0).then(|| status.wrapping_neg());
        }
    }

    /// The tables, in trace time.
    pub(crate) fn tables(mut self, base_ns: u64, end_ns: u64) -> (Vec<Process>, Vec<Thread>) {
        let end_of = |time_ns: u64| match time_ns {
            0 => end_ns,
            time_ns => time_ns.saturating_sub(base_ns),
        };
        for thread in &mut self.threads {
            thread.start_ns = thread.start_ns.saturating_sub(base_ns);
            thread.end_ns = end_of(thread.end_ns);
        }
        for process in &mut self.processes {
            process.start_ns = process.start_ns.saturating_sub(base_ns);
            process.end_ns = end_of(process.end_ns);
        }
        (self.processes, self.threads)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_unknown_becomes_known() {
        let mut tasks = Tasks::default();
        tasks.seen(0, 7, "", 100);
        assert_eq!(tasks.pid_of(7), 7);
        tasks.seen(5, 7, "worker", 110);
        assert_eq!((tasks.pid_of(7), tasks.name_of(7)), (5, "worker"));
        tasks.fork(7, 8, 8, 120);
        tasks.exec(8, 8, "/bin/quite_a_long_name", 130);
        tasks.thread_exit(8, 140);
        tasks.process_exit(8, -9, 140);
        tasks.fork(7, 8, 8, 150);
        let (processes, threads) = tasks.tables(100, 60);
        let eight: Vec<_> = processes.iter().filter(|process| process.pid == 8).collect();
        assert_eq!((eight[0].exit_signal, eight[0].end_ns, eight[1].end_ns), (Some(9), 40, 60));
        assert_eq!(eight[0].parent, Some(5));
        assert_eq!(threads[1].name, "quite_a_long_na");
        assert_eq!((threads[0].start_ns, threads[0].end_ns), (0, 60));
    }
}
