//! The recorder's answers to all events of a process.

use std::path::Path;
use std::time::Duration;

use fettle_live::{
    Birth, DlopenHook, ExecStop, ExitStatus, FaultStop, HookStop, Injection, LiveAddr, LiveError,
    Request, Session,
};
use fettle_trace::Mapping;
use fettle_types::{Pid, Tid};

use crate::clock;
use crate::leaks;
use crate::libraries::LibraryEvent;
use crate::switches::Switches;
use crate::task;

use super::prepare::executed_as;
use super::state::ProcessState;
use super::{Attached, Progress, Recorder};

impl Session for Recorder<'_> {
    fn is_prepared(&mut self, stop: &ExecStop<'_>) -> bool {
        let exe = format!("/proc/{}/exe", stop.pid);
        stop.compat || self.modules.begin(&stop.executable, Path::new(&exe))
    }

    fn exec(&mut self, stop: &ExecStop<'_>) -> Option<Injection> {
        // At the first; all others have been begotten by it.
        if self.switches.is_none() {
            self.follow_switches(&[stop.pid.first_thread()]);
        }
        // What ran in this process before is gone, threads and all.
        self.close_threads(stop.pid);
        let command = stop.arguments().unwrap_or_default();
        let command: Vec<_> = command.iter().map(|a| a.to_string_lossy()).collect();
        let start_tsc = clock::tsc();
        let process = self.processes.entry(stop.pid).or_insert_with(|| ProcessState {
            parent: None,
            command: String::new(),
            start_tsc,
            slots_at: None,
            space: None,
        });
        process.command = command.join(" ");
        process.slots_at = None;
        process.space = None;
        let prepared = self.prepare(stop);
        self.report_operations();
        match prepared {
            Ok(injection) => Some(injection),
            Err(reason) => {
                self.refuse(stop.executable.display().to_string(), reason);
                None
            }
        }
    }

    fn setuid_exec(&mut self, pid: Pid, path: &Path) {
        self.close_threads(pid);
        self.close_process(pid, None);
        *self.done.privileged.entry(path.to_owned()).or_default() += 1;
    }

    fn looks_for_leaks(&mut self, stop: &ExecStop<'_>) -> bool {
        if stop.compat {
            return false;
        }
        let exe = format!("/proc/{}/exe", stop.pid);
        let module = self.modules.get_as(&stop.executable, &executed_as(stop), Path::new(&exe));
        let Ok(module) = module else { return false };
        let modules = &self.modules;
        let has = || leaks::has_run_time(&modules.at(module).image);
        *self.with_leak_checks.entry(module).or_insert_with(has) && leaks::are_wanted(stop.pid)
    }

    fn leaving(&mut self, pid: Pid, tid: Tid) -> Option<u64> {
        self.close_thread(tid, false);
        // Others may be forked with its block, and no collector empties the ring.
        self.slots.shared_block(self.processes.get(&pid)?.slots_at?)
    }

    fn left(&mut self, pid: Pid) {
        self.close_threads(pid);
        self.close_process(pid, None);
    }

    fn joined(&mut self, pid: Pid, parent: Option<Pid>, threads: &[Tid]) -> bool {
        let Some(Attached { slots_at, codes, undo_recorder }) = self.attached.take() else {
            return false;
        };
        self.follow_switches(threads);
        codes.iter().for_each(|code| self.mapped(pid, code));
        let state = ProcessState {
            parent: parent.filter(|parent| self.processes.contains_key(parent)),
            command: fettle_live::command_of(pid),
            start_tsc: clock::tsc(),
            slots_at: Some(slots_at.0),
            space: None,
        };
        self.processes.insert(pid, state);
        self.attached = Some(Attached { slots_at, codes, undo_recorder });
        self.modules.all().iter().any(|module| leaks::has_run_time(&module.image))
            && leaks::are_wanted(pid)
    }

    fn injected(&mut self, pid: Pid, result: Result<(), LiveError>) {
        let Some(pending) = self.pending.remove(&pid) else {
            return if result.is_err() {
                self.executed_unreadable(pid);
            };
        };
        let path = self.modules.at(pending.module).path.display().to_string();
        match result {
            Ok(()) => {
                if let Some(process) = self.processes.get_mut(&pid) {
                    process.slots_at = Some(pending.slots_at);
                    process.space = pending.space;
                }
                self.open_thread(pid, pid.first_thread(), pending.slot);
                self.map_locks(pid);
                // One without a probe lies there, too, for the names of its variables.
                if pending.probed || self.modules.at(pending.module).plan.functions.is_empty() {
                    self.done.mappings.push(Mapping {
                        module: pending.module,
                        pid: pid.unsigned(),
                        base: pending.bias.get(),
                    });
                }
            }
            Err(e) => {
                self.slots.clear(pending.slot);
                self.free.push(pending.slot);
                self.refuse(path, e.to_string());
            }
        }
    }

    fn born(&mut self, parent_tid: Option<Tid>, pid: Pid, tid: Tid, birth: Birth) -> Option<u64> {
        let parent = parent_tid.and_then(|parent| self.threads.get(&parent));
        let parent = parent.map(|t| (t.pid, t.slot));
        // A first thread without a slot is known as its process.
        let known = |pid: &Pid| self.processes.contains_key(pid);
        let parent_pid =
            parent.map(|(pid, _)| pid).or_else(|| parent_tid.map(Tid::as_process).filter(known));
        if !matches!(birth, Birth::Thread) {
            if let Some(parent) = parent_pid {
                self.give_hook(parent);
            }
            let from = parent_pid.and_then(|p| self.processes.get(&p));
            let state = ProcessState {
                parent: parent_pid,
                command: from.map(|p| p.command.clone()).unwrap_or_default(),
                start_tsc: clock::tsc(),
                slots_at: from.and_then(|p| p.slots_at),
                space: from.and_then(|p| p.space.clone()),
            };
            self.processes.insert(pid, state);
            self.map_locks(pid);
        }
        let slots_at = self.processes.get(&pid)?.slots_at?;
        // Without a block of its own it would write to its parent's.
        let Some(slot) = self.take_slot() else { return self.slots.shared_block(slots_at) };
        let Some(address) = self.slots.prepare(slot, pid, tid, slots_at) else {
            self.done.without_slot += 1;
            return self.slots.shared_block(slots_at);
        };
        if let (Some(sampled), Some(parent_pid)) = (&mut self.sampled, parent_pid)
            && pid != parent_pid
        {
            sampled.fork(parent_pid, pid);
        }
        let copied = match (birth, parent) {
            (Birth::Fork, Some((_, from))) => self.slots.copy_frames(from, slot, clock::tsc()),
            _ => Vec::new(),
        };
        self.open_thread(pid, tid, slot);
        if let Some(state) = self.threads.get_mut(&tid) {
            state.copied = copied;
        }
        Some(address)
    }

    fn signalled(&mut self, tid: Tid) {
        if let (Some(sampled), Some(state)) = (&mut self.sampled, self.threads.get(&tid)) {
            sampled.signalled(state.index, clock::tsc());
        }
    }

    fn dlopen_hook(&mut self, pid: Pid, at: LiveAddr) -> Option<DlopenHook> {
        self.give_hook(pid);
        self.processes.get(&pid)?.space.as_ref()?.dlopen_hook(at)
    }

    fn can_answer(&mut self, stop: &HookStop) -> bool {
        let space = self.processes.get(&stop.pid).and_then(|p| p.space.as_ref());
        space.is_none_or(|space| self.libraries.is_ready(space, &mut self.modules, stop))
    }

    fn library_event(
        &mut self,
        stop: &HookStop,
        done: Option<Vec<Result<(), LiveError>>>,
    ) -> Vec<Request> {
        let space = self.processes.get_mut(&stop.pid).and_then(|p| p.space.as_mut());
        let Some(space) = space else { return Vec::new() };
        let (mut events, mut nobody) = (Vec::new(), None);
        let undo_recorder =
            self.attached.as_mut().map_or(&mut nobody, |attached| &mut attached.undo_recorder);
        let visit = (stop, undo_recorder);
        let requests =
            self.libraries.library_event(space, &mut self.modules, visit, done, &mut events);
        self.report_operations();
        self.map_locks(stop.pid);
        for item in events {
            match item {
                LibraryEvent::Mapped(code) => self.mapped(stop.pid, &code),
                LibraryEvent::Refused(path, reason) => self.refuse(path, reason),
            }
        }
        requests
    }

    fn fault(&mut self, stop: &FaultStop) -> Option<LiveAddr> {
        self.report_gs(stop);
        // Only the agent reads what a program's pointer points to, and in one place only; it is
        // known by its code.
        let (read, otherwise) = fettle_rewrite::agent::text_read();
        let agent = fettle_rewrite::agent::CODE;
        let start = stop.instruction.0.checked_sub(u64::from(read))?;
        let found = stop.read(LiveAddr(start), agent.len())?;
        (found == agent).then_some(LiveAddr(start + u64::from(otherwise)))
    }

    fn outlived(&mut self, living: &[Pid]) {
        const NAMED: usize = 3;
        let name = |pid: &Pid| format!("{} ({pid})", task::account(*pid, pid.first_thread()).name);
        let names: Vec<String> = living.iter().take(NAMED).map(name).collect();
        let others = match living.len().saturating_sub(NAMED) {
            0 => String::new(),
            n => format!(" and {n} others"),
        };
        let who = match living.len() {
            1 => format!("a process that it started runs on, {}", names[0]),
            n => format!("{n} processes that it started run on, {}{others}", names.join(", ")),
        };
        self.outliving.notify("the program", &who);
    }

    fn detaching(&mut self) {
        if let Some(alive) = &self.alive {
            alive.clear();
        }
    }

    fn letting_go(&mut self, _pid: Pid, tid: Tid) {
        // Later it shares what it writes to with its children.
        self.close_thread(tid, false);
    }

    fn thread_ending(&mut self, pid: Pid, tid: Tid) {
        if let Some(state) = self.threads.get_mut(&tid) {
            state.end = Some(task::account(pid, tid));
        }
        if tid.is_first_of(pid) {
            self.report_limit(pid);
        }
    }

    fn thread_exit(&mut self, _pid: Pid, tid: Tid) {
        self.close_thread(tid, true);
    }

    fn process_exit(&mut self, pid: Pid, status: ExitStatus, cpu: Duration) {
        self.close_threads(pid);
        let _ = cpu;
        self.close_process(pid, Some(status));
    }

    fn tick(&mut self) {
        let threads = std::mem::take(&mut self.threads);
        for state in threads.values() {
            self.drain(state, false);
        }
        self.threads = threads;
        self.drain_switches(None);
        self.look_at_held_locks();
        if let Some(sampled) = &mut self.sampled {
            sampled.settle(self.switches.as_ref().map_or(u64::MAX, Switches::settled));
        }
        let now = clock::tsc();
        if now > self.next_tick_flush {
            // A few times per second, whatever the exact rate.
            self.next_tick_flush = now + (1 << 29);
            if let Some(writer) = &mut self.writer
                && self.write_error.is_none()
                && let Err(e) = writer.flush()
            {
                self.write_error = Some(e);
            }
            self.write_checkpoint();
            if let Some(progress) = &mut self.progress {
                progress(Progress {
                    records: self.records,
                    threads: self.threads.len(),
                    elapsed_ticks: now - self.begin.tsc,
                });
            }
        }
    }
}
