//! Following a program's processes while they are recorded.

use std::collections::{BTreeMap, HashMap};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use fettle_abi::block::{Clock, OWN_WORDS};
use fettle_abi::record::CallRecord;
use fettle_code::Mode;
use fettle_image::{Image, LinkAddr};
use fettle_lift::SkipReason;
use fettle_live::{
    Birth, DlopenHook, ExecStop, ExitStatus, FaultStop, FileMap, HookStop, Injection, LiveAddr,
    LiveError, Prot, Request, Session,
};
use fettle_rewrite::PlannedFunction;
use fettle_trace::{
    ClockPair, Counter, Manifest, Mapping, OpenCall, Process, Thread, TickConverter, Total,
    TraceWriter, UserValue,
};

use crate::clock;
use crate::counts::{self, Counted};
use crate::leaks;
use crate::libraries::{Libraries, LibraryEvent, Space, UndoRecorder};
use crate::locking::{self, Locking};
use crate::modules::Modules;
use crate::naming;
use crate::rewritten::Rewritten;
use crate::room::{AddressSpace, find_gap, slots_from};
use crate::sampled::{self, Sampled};
use crate::short::MinDuration;
use crate::slots::{ALIVE_AT, AliveWord, SlotTotals, Slots};
use crate::switches::{Out, Switches};
use crate::task;
use crate::unmatched::Unmatched;

/// What is known of a thread with a slot.
struct ThreadState {
    index: u32,
    slot: u32,
    pid: i32,
    start_tsc: u64,
    /// CPU time that it had used before.
    start_cpu_ns: Option<u64>,
    /// What it was at its end, once that has come.
    end: Option<task::Account>,
    /// Calls that it was forked in the middle of.
    copied: Vec<(u32, u64)>,
}

/// What is known of a process.
struct ProcessState {
    parent: Option<i32>,
    command: String,
    start_tsc: u64,
    /// Where the slots are mapped, if its code was rewritten.
    slots_at: Option<u64>,
    /// What is there for its libraries.
    space: Option<Space>,
}

/// The session that records.
pub struct Recorder<'a> {
    modules: Modules,
    libraries: Libraries,
    slots: &'a Slots,
    alive: Option<AliveWord<'a>>,
    writer: Option<TraceWriter>,
    /// Why the trace can take no more, once it cannot.
    pub write_error: Option<fettle_trace::Error>,
    free: Vec<u32>,
    next_slot: u32,
    threads: HashMap<i32, ThreadState>,
    processes: HashMap<i32, ProcessState>,
    pending: HashMap<i32, Pending>,
    /// For modules that were executed, whether they have a run-time that looks for leaks.
    with_leak_checks: HashMap<usize, bool>,
    /// What processes have that run already, if those are recorded.
    attached: Option<Attached>,
    /// What samples say of callers, in the mode that samples.
    sampled: Option<Sampled>,
    /// Counters of the user probe in use, if that is what is recorded.
    user_fields: Option<usize>,
    /// Modules of whose functions it is known in the slots what they do with locks.
    operations_of: usize,
    /// When threads were off-CPU, once the program runs.
    switches: Option<Switches>,
    /// Why that is not known, if it should be.
    switches_refused: bool,
    begin: ClockPair,
    next_tick_flush: u64,
    /// The manifest as it is while recording, and how many modules the tables know by now.
    checkpoint: Option<(Manifest, usize)>,
    records: u64,
    /// Finished rows, with ticks where nanoseconds go until the clock's rate is known.
    pub done: Done,
    /// What is reported to the user, once each.
    pub notes: Vec<String>,
    progress: Option<Box<dyn FnMut(Progress) + 'a>>,
    /// What becomes of processes that outlive the launched program, and the function that reports them
    /// at once.
    outliving: Outliving,
    /// If calls that took less time are to leave no record.
    min_duration: Option<MinDuration>,
}

/// What becomes of processes that outlive the launched one which has started them.
#[derive(Clone, Copy, Debug)]
pub struct Outliving {
    /// They are recorded to their ends; otherwise the recording ends with the launched process.
    pub recorded: bool,
    /// Notified of them when it happens.
    pub notice: fn(&str),
}

impl Outliving {
    /// The report of them.
    pub(crate) fn notify(&self, program: &str, who: &str) {
        (self.notice)(&match self.recorded {
            true => format!(
                "{program} has ended, and {who}: this is recorded until it has ended, too, or until Ctrl-C"
            ),
            false => format!(
                "{program} has ended, and {who}: not recorded from here on; `--until all` goes on until \
                 that has ended, too"
            ),
        });
    }
}

/// An injection on its way.
struct Pending {
    space: Option<Space>,
    /// The main program has rewritten text.
    probed: bool,
    tid: i32,
    slot: u32,
    slots_at: u64,
    module: usize,
    bias: u64,
}

/// Rows that are finished; times are ticks until [`Done::into_ns`].
#[derive(Default)]
pub struct Done {
    /// Threads.
    pub threads: Vec<Thread>,
    /// Processes.
    pub processes: Vec<Process>,
    /// Calls and ticks per thread and function.
    pub totals: Vec<Total>,
    /// The user's patterns, but those that libraries have matched.
    pub unmatched: Unmatched,
    /// What the user probe counted.
    pub user_values: Vec<UserValue>,
    /// What threads left of locks, if those are added up.
    pub locking: Option<Locking>,
    /// Sums of block counters, by counter number.
    pub counters: HashMap<u32, u64>,
    /// Calls that did not end.
    pub open: Vec<OpenCall>,
    /// Where modules lay.
    pub mappings: Vec<Mapping>,
    /// Calls that ended.
    pub calls: u64,
    /// Records that found no room.
    pub lost: u64,
    /// Calls that took less than was asked for, of which no record was kept.
    pub short: u64,
    /// Records that the disk did not take.
    pub unwritten: u64,
    /// Frames left by exceptions.
    pub unwound_frames: u64,
    /// Exits without a frame.
    pub unmatched_exits: u64,
    /// Entries without room.
    pub mirror_overflows: u64,
    /// Threads that found no slot.
    pub without_slot: u64,
    /// There would have been more slots but for the limit on files' sizes (`RLIMIT_FSIZE`).
    pub limited: bool,
    /// Records of context switches that the kernel had no room for.
    pub switches_lost: u64,
    /// Whether it is known when threads were off-CPU.
    pub switches: bool,
    /// Programs that gain privileges, which were let go of, and how often each was executed.
    pub privileged: BTreeMap<PathBuf, u64>,
    /// Programs that could not be recorded, with the reason.
    pub refused: Vec<(String, String)>,
}

/// What processes have that run already, all at the same places: before anything leads there.
pub struct Attached {
    /// Where the slots are.
    pub slots_at: LiveAddr,
    /// Rewritten text.
    pub codes: Vec<Rewritten>,
    /// The undo recorder, which gives them dlopen hooks for libraries that they open later, if there is
    /// one.
    pub undo_recorder: Option<Box<dyn UndoRecorder>>,
}

/// What a progress line says.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Records taken so far.
    pub records: u64,
    /// Threads being recorded.
    pub threads: usize,
    /// Time since the start.
    pub elapsed_ticks: u64,
}

impl<'a> Recorder<'a> {
    /// A session without processes yet, made by the thread that will trace. `progress` is called
    /// a few times per second.
    pub fn new(
        modules: Modules,
        libraries: Libraries,
        slots: &'a Slots,
        writer: TraceWriter,
        progress: Option<Box<dyn FnMut(Progress) + 'a>>,
    ) -> Recorder<'a> {
        let mut notes = Vec::new();
        let alive = match slots.alive() {
            Ok(alive) => Some(alive),
            Err(error) => {
                if libraries.wanted() {
                    notes.push(format!("libraries ran without probes: {error}"));
                }
                None
            }
        };
        Recorder {
            modules,
            libraries,
            slots,
            alive,
            writer: Some(writer),
            write_error: None,
            free: Vec::new(),
            next_slot: 0,
            threads: HashMap::new(),
            processes: HashMap::new(),
            pending: HashMap::new(),
            with_leak_checks: HashMap::new(),
            attached: None,
            sampled: slots.samples().then(|| Sampled::new(crate::cost::of_samples())),
            user_fields: None,
            operations_of: 0,
            next_tick_flush: 0,
            checkpoint: None,
            switches: None,
            switches_refused: !slots.times_calls(),
            begin: clock::now(),
            records: 0,
            done: Done { locking: slots.layout().locks.then(Locking::default), ..Done::default() },
            notes,
            progress,
            outliving: Outliving { recorded: false, notice: |_| () },
            min_duration: None,
        }
    }

    /// Calls that take less time than this leave no record.
    pub fn leave_out_shorter(&mut self, least: Option<Duration>) {
        self.min_duration = least.map(MinDuration::new);
    }

    /// What becomes of processes that outlive the launched program.
    pub fn expect_outliving(&mut self, outliving: Outliving) {
        self.outliving = outliving;
    }

    /// Ends the session: what is still running is left running, its slots are read as they are.
    pub fn end(mut self) -> (Modules, TraceWriter, Done, Vec<String>, Option<fettle_trace::Error>) {
        let tids: Vec<i32> = self.threads.keys().copied().collect();
        for tid in tids {
            self.close_thread(tid, false);
        }
        let pids: Vec<i32> = self.processes.keys().copied().collect();
        for pid in pids {
            self.close_process(pid, None);
        }
        if let Some(locking) = &mut self.done.locking {
            locking.ticks = clock::tsc() - self.begin.tsc;
        }
        self.done.switches = self.switches.is_some();
        self.done.limited = self.slots.limited();
        self.done.unmatched = self.libraries.unmatched();
        let writer = self.writer.take().expect("taken only here");
        (self.modules, writer, self.done, self.notes, self.write_error)
    }

    /// A process that is recorded has this library already.
    pub fn meets_library(&mut self, path: &Path) {
        self.libraries.wants(path);
    }

    /// Probes are the user's own, with so many counters in use.
    pub fn expect_user_fields(&mut self, fields: Option<usize>) {
        self.user_fields = fields;
    }

    /// Lets the trace have names from early on, should the recording be cut off.
    pub fn checkpoint_manifest(&mut self, manifest: Manifest) {
        self.checkpoint = Some((manifest, 0));
    }

    /// Writes the tables of names if there are new ones.
    fn write_checkpoint(&mut self) {
        let (Some((manifest, known)), Some(writer)) = (&mut self.checkpoint, &mut self.writer)
        else {
            return;
        };
        let count = self.modules.all().len();
        if *known == count || self.write_error.is_some() {
            return;
        }
        *known = count;
        manifest.clock.end = Some(clock::now());
        manifest.switches = self.switches.is_some();
        let mut tables = naming::name_tables(manifest.clone(), &self.modules);
        tables.mappings = self.done.mappings.clone();
        if let Err(e) = writer.checkpoint(&tables) {
            self.write_error = Some(e);
        }
    }

    /// What processes have that [join](Session::joined) the session.
    pub fn attach(&mut self, attached: Attached) {
        self.attached = Some(attached);
        self.report_operations();
    }

    /// Writes in front of the slots what functions of new modules do with locks, before any of them runs.
    fn report_operations(&mut self) {
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

    /// Takes down what lies where in a process, for the names of locks and of places.
    fn map_locks(&mut self, pid: i32) {
        if let Some(locking) = &mut self.done.locking {
            locking.map(pid);
        }
    }

    /// Takes down what a thread has left of locks.
    fn take_locks(&mut self, state: &ThreadState, tid: i32, end: u64) {
        let Some(locking) = &mut self.done.locking else { return };
        // As it is now, if the process is still alive.
        locking.map(state.pid);
        match self.slots.lock_table(state.slot) {
            Ok(table) if table.is_empty() => {}
            Ok(table) => {
                let name = self.done.threads[state.index as usize].name.clone();
                let (pid, tid, start) = (state.pid as u32, tid as u32, state.start_tsc);
                let table = locking::ThreadTable { pid, tid, name, start, end, ..table };
                locking.threads.push(table);
            }
            Err(error) => self.notes.push(format!("locks of thread {tid} are not known: {error}")),
        }
    }

    /// A module of a process has its rewritten text mapped.
    fn mapped(&mut self, pid: i32, code: &Rewritten) {
        let Rewritten { module, text, text_len, bias } = code;
        let (module_id, process) = (*module as u32, pid as u32);
        self.done.mappings.push(Mapping { module: module_id, pid: process, base: *bias });
        if let Some(sampled) = &mut self.sampled {
            sampled.add_code(pid, text.0, *text_len, *module);
        }
    }

    /// Takes over what a process that ran before has got for its libraries meanwhile.
    fn give_hook(&mut self, pid: i32) {
        let undo_recorder =
            self.attached.as_mut().and_then(|attached| attached.undo_recorder.as_mut());
        if let (Some(undo_recorder), Some(process)) = (undo_recorder, self.processes.get_mut(&pid))
            && process.space.is_none()
            && process.slots_at.is_some()
        {
            process.space = undo_recorder.space(pid);
        }
    }

    fn take_slot(&mut self) -> Option<u32> {
        if let Some(slot) = self.free.pop() {
            return Some(slot);
        }
        let slot = self.next_slot;
        if slot >= self.slots.layout().slots {
            self.done.without_slot += 1;
            return None;
        }
        self.next_slot += 1;
        Some(slot)
    }

    fn open_thread(&mut self, pid: i32, tid: i32, slot: u32) {
        let index = self.done.threads.len() as u32;
        let start_tsc = clock::tsc();
        let account = task::account(pid, tid);
        self.done.threads.push(Thread {
            index,
            pid: pid as u32,
            tid: tid as u32,
            name: account.name,
            ..Thread::default()
        });
        let (start_cpu_ns, end) = (account.cpu_ns, None);
        let state =
            ThreadState { index, slot, pid, start_tsc, start_cpu_ns, end, copied: Vec::new() };
        self.threads.insert(tid, state);
        if let Some(switches) = &mut self.switches {
            switches.open(tid, start_tsc);
        }
    }

    /// A process that has limited its address space to less than our memory could map nothing more.
    fn report_limit(&mut self, pid: i32) {
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
    fn follow_switches(&mut self, threads: &[i32]) {
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
    fn drain_switches(&mut self, closing: Option<i32>) -> Option<u64> {
        let switches = self.switches.as_mut()?;
        let (threads, writer) = (&self.threads, &mut self.writer);
        let (error, done) = (&mut self.write_error, &mut self.done);
        let sampled = &mut self.sampled;
        let notify = |tid: i32, out: Out| {
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
    fn close_thread(&mut self, tid: i32, gone: bool) {
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
    fn drain(&mut self, state: &ThreadState, ended: bool) -> u64 {
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
    fn close_threads(&mut self, pid: i32) {
        let tids: Vec<i32> =
            self.threads.iter().filter(|(_, t)| t.pid == pid).map(|(tid, _)| *tid).collect();
        for tid in tids {
            self.close_thread(tid, true);
        }
    }

    fn close_process(&mut self, pid: i32, status: Option<ExitStatus>) {
        let Some(process) = self.processes.remove(&pid) else { return };
        let (exit_code, exit_signal) = match status {
            Some(ExitStatus::Code(code)) => (Some(code), None),
            Some(ExitStatus::Signal { signal, .. }) => (None, Some(signal)),
            None => (None, None),
        };
        self.done.processes.push(Process {
            pid: pid as u32,
            parent: process.parent.map(|p| p as u32),
            command: process.command,
            start_ns: process.start_tsc,
            end_ns: clock::tsc(),
            exit_code,
            exit_signal,
        });
    }

    fn prepare(&mut self, stop: &ExecStop<'_>) -> Result<Injection, String> {
        if stop.compat {
            return Err("it is a 32-bit program".to_owned());
        }
        let exe = format!("/proc/{}/exe", stop.pid);
        let module = self
            .modules
            .get_as(&stop.executable, &executed_as(stop), Path::new(&exe))
            .map_err(|e| e.to_string())?;
        let image = &self.modules.all()[module].image;
        let bias = load_bias(image, stop.auxv.entry);
        let probed = !self.modules.all()[module].plan.functions.is_empty();
        let libraries = self.libraries.wanted() && self.alive.is_some();
        if !probed && !libraries {
            return Err(self.why_no_probe(module).to_owned());
        }
        let size = self.slots.layout().size();
        let slots_at = find_gap(slots_from(&stop.maps, size), size, &stop.maps)
            .ok_or_else(|| "no room for the session's memory in its address space".to_owned())?;
        let live = |at: LinkAddr| LiveAddr(at.0.wrapping_add(bias));
        let map = |fd: &Arc<OwnedFd>, offset, len, addr, prot, shared| FileMap {
            fd: fd.clone(),
            offset,
            len,
            addr,
            prot,
            shared,
            dont_dump: shared,
        };
        let mut injection = Injection::default();
        let mut taken = vec![(slots_at.0, size)];
        if probed {
            let mut space = AddressSpace::of(stop.pid, &stop.maps);
            let raised = self.modules.raised_heap(module, bias, space);
            // Where the kernel does not do it, rewritten text goes elsewhere.
            if let Some(heap) = raised.filter(|heap| stop.raise_heap(*heap).is_ok()) {
                space.growth.heap = Some(heap);
            }
            let placed = self.modules.place(module, bias, space).map_err(|e| e.to_string())?;
            let (linked, file) = (&placed.linked, &placed.file);
            let (text_len, constants_len) = (placed.text_len, placed.constants_len);
            let (text, constants) = (live(linked.text_at), live(linked.constants_at));
            injection.maps.push(map(file, 0, text_len, text, CODE, false));
            injection.maps.push(map(file, text_len, constants_len, constants, CONSTANTS, false));
            injection.writes.extend(linked.writes.iter().map(|(at, b)| (live(*at), b.clone())));
            injection.phdr = Some((live(linked.program_headers.0), linked.program_headers.1));
            if let Some(sampled) = &mut self.sampled {
                sampled.forget(stop.pid);
                sampled.add_code(stop.pid, text.0, text_len, module);
            }
            taken.extend([(text.0, text_len), (constants.0, constants_len)]);
        }
        injection.maps.push(map(&self.slots.file(), 0, size, slots_at, DATA, true));
        let mut space = None;
        if self.alive.is_some() {
            let alive = slots_at.0 + ALIVE_AT;
            match self.libraries.prepare(stop, alive, &taken) {
                Ok(Some((made, maps, writes))) => {
                    injection.maps.extend(maps);
                    injection.writes.extend(writes);
                    space = Some(made);
                }
                Ok(None) => {}
                Err(reason) => {
                    let of = format!("the libraries of {}", stop.executable.display());
                    self.refuse(of, reason);
                }
            }
        }
        if !probed && space.is_none() {
            return Err(self.why_no_probe(module).to_owned());
        }
        let slot = self.take_slot().ok_or_else(|| self.why_no_slot().to_owned())?;
        let base = self.slots.prepare(slot, stop.pid, stop.pid, slots_at.0);
        injection.gs_base = Some(base.ok_or_else(|| "there is no memory for it".to_owned())?);
        self.pending.insert(
            stop.pid,
            Pending { space, probed, tid: stop.pid, slot, slots_at: slots_at.0, module, bias },
        );
        Ok(injection)
    }

    fn why_no_probe(&self, module: usize) -> &'static str {
        let skipped = &self.modules.all()[module].plan.skipped;
        match skipped.iter().any(|s| s.reason == SkipReason::NotSelected) {
            true => "it has none of the functions that are asked for",
            false => "it has no function to probe",
        }
    }

    fn why_no_slot(&self) -> &'static str {
        match self.slots.limited() {
            true => "the limit on files' sizes (RLIMIT_FSIZE, ulimit -f) leaves no room for it",
            false => "too many threads at once",
        }
    }

    /// Reports a program that has set its gs base, now that a fault shows it: probes took what lies
    /// there for their memory.
    fn report_gs(&mut self, stop: &FaultStop) {
        let slots_at = self.processes.get(&stop.pid).and_then(|process| process.slots_at);
        let Some(offset) = slots_at.map(|at| stop.gs_base.0.wrapping_sub(at)) else { return };
        if offset < self.slots.layout().size() {
            return;
        }
        let program = std::fs::read_link(format!("/proc/{}/exe", stop.pid)).unwrap_or_default();
        let note = format!(
            "{} has set its gs base, through which probes reach their memory: it cannot be recorded, \
             and may have gone wrong by that",
            program.display()
        );
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }

    /// Notes what ran without probes, once.
    /// A process executes a file that may be executed but not read, so neither may its memory.
    fn executed_unreadable(&mut self, pid: i32) {
        self.close_threads(pid);
        let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        let name = name.trim_end().to_owned();
        if let Some(process) = self.processes.get_mut(&pid) {
            process.command.clone_from(&name);
            process.slots_at = None;
            process.space = None;
        }
        let reason = "its file may be executed but not read, and if it is set-user-ID or \
                      set-group-ID, it had its caller's rights only, because it was traced";
        self.refuse(name, reason.to_owned());
    }

    fn refuse(&mut self, what: String, reason: String) {
        let refused = (what, reason);
        if !self.done.refused.contains(&refused) {
            self.done.refused.push(refused);
        }
    }
}

/// Parts what a ring held: calls, and cells with their values.
fn split_values(records: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let (mut calls, mut values) = (Vec::with_capacity(records.len()), Vec::new());
    for record in records.chunks_exact(size_of::<CallRecord>()) {
        let last = u64::from_ne_bytes(record[8..].try_into().expect("eight bytes"));
        let to = if last & 0xfff == 0 { &mut values } else { &mut calls };
        to.extend_from_slice(record);
    }
    (calls, values)
}

/// The path that was executed, if it leads to the program's file: `/proc/PID/exe` has symbolic
/// links resolved, so that `redis-server` would be called `redis-check-rdb`.
fn executed_as(stop: &ExecStop<'_>) -> PathBuf {
    let real = stop.executable.clone();
    stop.execfn().map_or(real.clone(), |given| called(stop.pid, &given, real))
}

/// What a process's program goes by that was executed as `given`, and is the file `real`.
pub fn called(pid: i32, given: &Path, real: PathBuf) -> PathBuf {
    let folder = std::fs::read_link(format!("/proc/{pid}/cwd")).unwrap_or_default();
    let given = folder.join(given);
    let file = |path: &Path| std::fs::metadata(path).map(|m| (m.dev(), m.ino())).ok();
    if file(&given).is_some_and(|f| Some(f) == file(&real)) { given } else { real }
}

const CODE: Prot = Prot { read: true, write: false, exec: true };
const CONSTANTS: Prot = Prot { read: true, write: false, exec: false };
const DATA: Prot = Prot { read: true, write: true, exec: false };

/// What the loader adds to `image`'s link addresses in a process whose entry is at `entry`.
fn load_bias(image: &Image, entry: LiveAddr) -> u64 {
    entry.0.wrapping_sub(image.entry().0)
}

impl Session for Recorder<'_> {
    fn is_prepared(&mut self, stop: &ExecStop<'_>) -> bool {
        let exe = format!("/proc/{}/exe", stop.pid);
        stop.compat || self.modules.begin(&stop.executable, Path::new(&exe))
    }

    fn exec(&mut self, stop: &ExecStop<'_>) -> Option<Injection> {
        // At the first; all others have been begotten by it.
        if self.switches.is_none() {
            self.follow_switches(&[stop.pid]);
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

    fn setuid_exec(&mut self, pid: i32, path: &Path) {
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
        let has = || leaks::has_run_time(&modules.all()[module].image);
        *self.with_leak_checks.entry(module).or_insert_with(has) && leaks::are_wanted(stop.pid)
    }

    fn leaving(&mut self, pid: i32, tid: i32) -> Option<u64> {
        self.close_thread(tid, false);
        // Others may be forked with its block, and no collector empties the ring.
        self.slots.shared_block(self.processes.get(&pid)?.slots_at?)
    }

    fn left(&mut self, pid: i32) {
        self.close_threads(pid);
        self.close_process(pid, None);
    }

    fn joined(&mut self, pid: i32, parent: Option<i32>, threads: &[i32]) -> bool {
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

    fn injected(&mut self, pid: i32, result: Result<(), LiveError>) {
        let Some(pending) = self.pending.remove(&pid) else {
            return if result.is_err() {
                self.executed_unreadable(pid)
            };
        };
        let path = self.modules.all()[pending.module].path.display().to_string();
        match result {
            Ok(()) => {
                if let Some(process) = self.processes.get_mut(&pid) {
                    process.slots_at = Some(pending.slots_at);
                    process.space = pending.space;
                }
                self.open_thread(pid, pending.tid, pending.slot);
                self.map_locks(pid);
                if pending.probed {
                    self.done.mappings.push(Mapping {
                        module: pending.module as u32,
                        pid: pid as u32,
                        base: pending.bias,
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

    fn born(&mut self, parent_tid: i32, pid: i32, tid: i32, birth: Birth) -> Option<u64> {
        let parent = self.threads.get(&parent_tid).map(|t| (t.pid, t.slot));
        let parent_pid = parent
            .map(|(pid, _)| pid)
            .or_else(|| self.processes.contains_key(&parent_tid).then_some(parent_tid));
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

    fn signalled(&mut self, tid: i32) {
        if let (Some(sampled), Some(state)) = (&mut self.sampled, self.threads.get(&tid)) {
            sampled.signalled(state.index, clock::tsc());
        }
    }

    fn dlopen_hook(&mut self, pid: i32, at: LiveAddr) -> Option<DlopenHook> {
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

    fn outlived(&mut self, living: &[i32]) {
        const NAMED: usize = 3;
        let name = |pid: &i32| format!("{} ({pid})", task::account(*pid, *pid).name);
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

    fn letting_go(&mut self, _pid: i32, tid: i32) {
        // Later it shares what it writes to with its children.
        self.close_thread(tid, false);
    }

    fn thread_ending(&mut self, pid: i32, tid: i32) {
        if let Some(state) = self.threads.get_mut(&tid) {
            state.end = Some(task::account(pid, tid));
        }
        if pid == tid {
            self.report_limit(pid);
        }
    }

    fn thread_exit(&mut self, _pid: i32, tid: i32) {
        self.close_thread(tid, true);
    }

    fn process_exit(&mut self, pid: i32, status: ExitStatus, cpu: Duration) {
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

impl Done {
    /// Turns ticks into nanoseconds of trace time.
    pub fn into_ns(&mut self, clock: TickConverter, mode: Mode) {
        for thread in &mut self.threads {
            thread.start_ns = clock.since_start_ns(thread.start_ns);
            thread.end_ns = clock.since_start_ns(thread.end_ns);
        }
        for process in &mut self.processes {
            process.start_ns = clock.since_start_ns(process.start_ns);
            process.end_ns = clock.since_start_ns(process.end_ns);
        }
        // The clock of CPU time counts nanoseconds.
        let in_ticks = crate::slots::clock_of(mode) == Clock::Ticks;
        for total in self.totals.iter_mut().filter(|_| in_ticks) {
            total.total_ns = clock.duration_ns(total.total_ns);
            total.self_ns = clock.duration_ns(total.self_ns);
            total.cpu_total_ns = total.cpu_total_ns.map(|ticks| clock.duration_ns(ticks));
            total.cpu_self_ns = total.cpu_self_ns.map(|ticks| clock.duration_ns(ticks));
        }
    }

    /// Counts as rows, and how many functions have counts that do not add up.
    pub fn counter_rows(&self, modules: &Modules) -> (Vec<Counter>, u64) {
        let mut rows = Vec::new();
        let mut inconsistent = 0;
        for module in modules.all() {
            for (i, planned) in module.plan.functions.iter().enumerate() {
                let function = module.first_function + i as u32;
                let count = |k: usize| {
                    let number = module.first_counter + planned.counters.0 + k as u32;
                    self.counters.get(&number).copied().unwrap_or(0)
                };
                if (0..planned.counters.1.len()).all(|k| count(k) == 0) {
                    continue;
                }
                inconsistent +=
                    u64::from(!counts::rows(function, &Counted::of(planned), count, &mut rows));
            }
        }
        (rows, inconsistent)
    }
}
