//! Slots of threads: which thread has which, and what becomes of its records.

use std::collections::HashMap;

use fettle_abi::block::OWN_WORDS;
use fettle_abi::record::CallRecord;
use fettle_code::Mode;
use fettle_rewrite::PlannedFunction;
use fettle_trace::{OpenCall, Thread, Total, UserValue};
use fettle_types::{HeldOver, Pid, SlotIndex, Tid};

use crate::clock;
use crate::locking;
use crate::sampled;
use crate::slots::SlotTotals;
use crate::switches::{Out, Switches};
use crate::task;

use super::Recorder;
use super::done::split_values;
use super::state::ThreadState;

impl<'a> Recorder<'a> {
    /// Writes in front of the slots what functions of new modules do with locks, before any of them runs.
    pub(super) fn report_operations(&mut self) {
        let Some(locking) = &mut self.done.locking else { return };
        for module in &self.modules.all()[self.operations_of..] {
            let planned = &module.plan.functions;
            let operation =
                |f: &PlannedFunction| locking::operation(&module.image, f.entry, f.name.as_deref());
            let operations: Vec<u8> = planned.iter().map(operation).collect();
            locking.functions += operations.iter().filter(|code| **code != 0).count() as u64;
            if let Err(error) = self.slots.set_operations(module.first_function, &operations) {
                let path = module.path.display();
                self.notes.push(format!("locks of {path} are not known: {error}"));
            }
        }
        self.operations_of = self.modules.all().len();
    }

    /// Looks which threads wait in a system call with a lock in hand. A look stands for the time since the one
    /// before.
    pub(super) fn look_at_held_locks(&mut self) {
        if self.done.locking.is_none() {
            return;
        }
        let now = clock::tsc();
        let ticks = now - std::mem::replace(&mut self.last_look, now);
        for (tid, state) in &mut self.threads {
            let in_hand = self.slots.locks_in_hand(state.slot);
            if in_hand.is_empty() {
                continue;
            }
            let Some(call) = task::system_call(state.pid, *tid) else { continue };
            // A thread that went on meanwhile may have taken another lock, or let go of this one.
            if self.slots.locks_in_hand(state.slot) != in_hand {
                continue;
            }
            for row in in_hand {
                let sum = state.held_over.entry((row, call)).or_default();
                *sum = (sum.0 + 1, sum.1 + ticks);
            }
        }
    }

    /// Takes down what a thread has left of locks.
    fn take_locks(&mut self, state: &ThreadState, tid: Tid, end: u64) {
        let Some(locking) = &mut self.done.locking else { return };
        // As it is now, if the process is still alive.
        locking.map(state.pid);
        match self.slots.lock_table(state.slot) {
            Ok(table) if table.is_empty() => {}
            Ok(table) => {
                let name = self.done.threads[state.index as usize].name.clone();
                let (pid, tid) = (state.pid.unsigned(), tid.unsigned());
                let start = state.start_tsc;
                let looks = state.held_over.iter();
                let held_over = looks
                    .map(|(&(row, call), &(looks, ticks))| HeldOver { row, call, looks, ticks })
                    .collect();
                let table = locking::ThreadTable { pid, tid, name, start, end, held_over, ..table };
                locking.threads.push(table);
            }
            Err(error) => self.notes.push(format!("locks of thread {tid} are not known: {error}")),
        }
    }

    pub(super) fn take_slot(&mut self) -> Option<SlotIndex> {
        if let Some(slot) = self.free.pop() {
            return Some(slot);
        }
        let slot = self.next_slot;
        if slot.get() >= self.slots.layout().slots {
            self.done.without_slot += 1;
            return None;
        }
        self.next_slot = slot.next();
        Some(slot)
    }

    pub(super) fn open_thread(&mut self, pid: Pid, tid: Tid, slot: SlotIndex) {
        if let Some(locking) = &mut self.done.locking {
            locking.map_first(pid);
        }
        let index = self.done.threads.len() as u32;
        let start_tsc = clock::tsc();
        let account = task::account(pid, tid);
        self.done.threads.push(Thread {
            index,
            pid: pid.unsigned(),
            tid: tid.unsigned(),
            name: account.name,
            ..Thread::default()
        });
        let (start_cpu_ns, end) = (account.cpu_ns, None);
        let state = ThreadState {
            index,
            slot,
            pid,
            start_tsc,
            start_cpu_ns,
            end,
            copied: Vec::new(),
            held_over: HashMap::new(),
        };
        self.threads.insert(tid, state);
        if let Some(switches) = &mut self.switches {
            switches.open(tid, start_tsc);
        }
    }

    /// A process that has limited its address space to less than our memory could map nothing more.
    pub(super) fn report_limit(&mut self, pid: Pid) {
        let ours = self.processes.get(&pid).filter(|process| process.slots_at.is_some());
        let Some((process, limit)) = ours.zip(task::address_limit(pid)) else { return };
        if limit < self.slots.layout().size() {
            let note = format!(
                "{} limited its address space to {} MiB (RLIMIT_AS), to which Fettle's memory counts: \
                 it could map nothing from then on; `fettle record --kernel --no-probes` takes no memory \
                 in it",
                process.command,
                limit >> 20
            );
            if !self.notes.contains(&note) {
                self.notes.push(note);
            }
        }
    }

    /// Records from now on when threads and their descendants are off-CPU.
    pub(super) fn follow_switches(&mut self, threads: &[Tid]) {
        if self.switches_refused {
            return;
        }
        let followed = match &mut self.switches {
            Some(switches) => switches.add(threads),
            None => Switches::follow(threads, self.slots.pc_samples(), self.begin)
                .map(|switches| self.switches = Some(switches)),
        };
        if let Err(error) = followed {
            (self.switches, self.switches_refused) = (None, true);
            self.notes.push(format!(
                "CPU time is known of threads only, not of functions: the kernel does \
                 not tell of context switches (perf_event_open: {error})"
            ));
        }
    }

    /// Takes the kernel's records of switches: of all threads what is clear, or of one that is `closing`
    /// everything; then answers when that one ended, if it did.
    pub(super) fn drain_switches(&mut self, closing: Option<Tid>) -> Option<u64> {
        let switches = self.switches.as_mut()?;
        let (threads, writer) = (&self.threads, &mut self.writer);
        let (error, done) = (&mut self.write_error, &mut self.done);
        let sampled = &mut self.sampled;
        let notify = |tid: Tid, out: Out| {
            let (Some(state), Some(writer)) = (threads.get(&tid), writer.as_mut()) else { return };
            let Out { off, on, preempted } = out;
            if let Some(sampled) = sampled.as_mut() {
                sampled.switched_out(state.index, out);
            }
            if error.is_none()
                && let Err(e) = writer.switched_out(state.index, off, on, preempted)
            {
                *error = Some(e);
            }
            done.unwritten += u64::from(error.is_some());
        };
        let end = match closing {
            Some(tid) => switches.close(tid, notify),
            None => {
                switches.drain(notify);
                None
            }
        };
        self.done.switches_lost = switches.lost;
        for place in switches.places() {
            if let (Some(sampled), Some(state)) = (&mut self.sampled, threads.get(&place.tid)) {
                sampled.was_at(state.index, state.pid, &place, self.modules.all());
            }
        }
        end
    }

    /// Reads the last of a thread's slot and gives the slot back if its thread is `gone`.
    pub(super) fn close_thread(&mut self, tid: Tid, gone: bool) {
        let end_tsc = self.drain_switches(Some(tid)).unwrap_or_else(clock::tsc);
        let Some(mut state) = self.threads.remove(&tid) else { return };
        let end = state.end.take().unwrap_or_else(|| task::account(state.pid, tid));
        // A record that a living thread is just about to store is not lost.
        let holes = self.drain(&state, gone);
        let (functions, counters) = self.modules.numbers();
        let mut totals = self.slots.totals(state.slot, functions, counters).unwrap_or_default();
        totals.leave_to_parent(&state.copied);
        let end_by_clock = match self.slots.mode() {
            Mode::Time => Some(end_tsc),
            Mode::Cpu => end.cpu_ns,
            _ => None,
        };
        if let Some(end) = end_by_clock {
            let modules = &self.modules;
            totals.open.retain(|frame| !modules.is_start(frame.function));
            totals.end_open(end, &state.copied);
        }
        let cpu_ns =
            end.cpu_ns.zip(state.start_cpu_ns).map(|(end, start)| end.saturating_sub(start));
        self.add_totals(&state, &totals, cpu_ns, end_tsc);
        let row = &mut self.done.threads[state.index as usize];
        row.start_ns = state.start_tsc;
        row.end_ns = end_tsc;
        row.cpu_ns = cpu_ns;
        if !end.name.is_empty() {
            row.name = end.name;
        }
        row.lost = totals.lost + holes;
        self.done.lost += row.lost;
        self.done.short = self.min_duration.as_ref().map_or(0, |least| least.left_out);
        self.take_locks(&state, tid, end_tsc);
        self.slots.close(state.slot);
        if gone {
            self.slots.clear(state.slot);
            self.free.push(state.slot);
        }
    }

    fn add_totals(
        &mut self,
        state: &ThreadState,
        totals: &SlotTotals,
        cpu_ns: Option<u64>,
        end_tsc: u64,
    ) {
        let sampled = self.sampled.as_mut().map(|sampled| {
            let calls = totals.accumulators.iter().map(|(f, a)| (*f, sampled::calls(a)));
            let calls = calls.collect();
            let times = sampled.times(state.index, &calls, cpu_ns);
            (calls, times)
        });
        let counts_below = self.slots.counts_below();
        for (function, a) in &totals.accumulators {
            if let Some(fields) = self.user_fields {
                // What is an accumulator's elsewhere, the user probe has for its counters.
                let words: [u64; OWN_WORDS] = [a.calls, a.total_ticks, a.self_ticks, a.sampling];
                let values = words.into_iter().take(fields).enumerate();
                self.done.user_values.extend(values.map(|(field, value)| UserValue {
                    thread: state.index,
                    function: *function,
                    field: field as u32,
                    value,
                }));
                continue;
            }
            let known = sampled.is_some() && self.switches.is_some();
            let entries_and_exits = self.slots.counts_exits().then(|| a.entries_and_exits());
            let (calls, total_ticks, self_ticks, cpu) = match (&sampled, entries_and_exits) {
                (Some((calls, times)), _) => {
                    let times = times.get(function).copied().unwrap_or_default();
                    (calls[function], times.total, times.own, (times.cpu_total, times.cpu_own))
                }
                (None, Some((entries, _))) => (entries, 0, 0, (0, 0)),
                (None, None) => (a.calls, a.total_ticks, a.own_ticks(), (0, 0)),
            };
            let exits = entries_and_exits.map(|(_, exits)| exits);
            if calls == 0 && total_ticks == 0 && exits.unwrap_or(0) == 0 {
                continue;
            }
            self.done.calls += calls;
            self.done.totals.push(Total {
                thread: state.index,
                function: *function,
                calls,
                total_ns: total_ticks,
                self_ns: self_ticks,
                cpu_total_ns: known.then_some(cpu.0),
                cpu_self_ns: known.then_some(cpu.1),
                child_calls: counts_below.then_some(a.children),
                calls_below: counts_below.then_some(a.below),
                exits,
            });
        }
        for (counter, count) in &totals.counters {
            *self.done.counters.entry(*counter).or_default() += count;
        }
        self.done.open.extend(totals.open.iter().map(|frame| OpenCall {
            thread: state.index,
            function: frame.function,
            start_tsc: frame.start,
            end_tsc,
        }));
        self.done.unwound_frames += totals.unwound_frames;
        self.done.unmatched_exits += totals.unmatched_exits;
        self.done.mirror_overflows += totals.mirror_overflows;
    }

    /// Takes a thread's new records; gives the number of holes.
    pub(super) fn drain(&mut self, state: &ThreadState, ended: bool) -> u64 {
        let writer = self.writer.as_mut().expect("there until the end");
        let error = &mut self.write_error;
        let done = &mut self.done;
        let (sampled, modules) = (&mut self.sampled, &self.modules);
        let taken = &mut self.records;
        let min_duration = &mut self.min_duration;
        let result: Result<u64, std::convert::Infallible> =
            self.slots.drain(state.slot, ended, |records| {
                if let Some(sampled) = sampled {
                    sampled.feed(state.index, state.pid, records, modules.all());
                    return Ok(());
                }
                let split;
                let (calls, values) = if modules.has_arguments() {
                    split = split_values(records);
                    (split.0.as_slice(), split.1.as_slice())
                } else {
                    (records, &[][..])
                };
                let kept;
                let calls = match min_duration {
                    Some(least) => {
                        kept = least.keep(calls);
                        &*kept
                    }
                    None => calls,
                };
                let count = (calls.len() / size_of::<CallRecord>()) as u64;
                *taken += count;
                if error.is_none() {
                    let calls = writer.spool_append(state.index, calls);
                    *error = calls.and_then(|()| writer.spool_values(state.index, values)).err();
                }
                if error.is_some() {
                    done.unwritten += count;
                }
                Ok(())
            });
        result.unwrap_or(0)
    }

    /// All threads of a process are gone.
    pub(super) fn close_threads(&mut self, pid: Pid) {
        let tids: Vec<Tid> =
            self.threads.iter().filter(|(_, t)| t.pid == pid).map(|(tid, _)| *tid).collect();
        for tid in tids {
            self.close_thread(tid, true);
        }
    }
}
