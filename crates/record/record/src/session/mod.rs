//! Following a program's processes while they are recorded.

mod answers;
mod done;
mod prepare;
mod state;
mod threads;

use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;

use fettle_live::{ExitStatus, LiveAddr};
use fettle_trace::{ClockPair, Manifest, Mapping, Process, TraceWriter};
use fettle_types::{ModuleIndex, Pid, SlotIndex, Tid};

use crate::clock;
use crate::libraries::{Libraries, UndoRecorder};
use crate::locking::Locking;
use crate::modules::Modules;
use crate::naming;
use crate::rewritten::Rewritten;
use crate::sampled::Sampled;
use crate::short::MinDuration;
use crate::slots::{AliveWord, Slots};
use crate::switches::Switches;
pub use done::Done;
pub use prepare::called;

use state::{Pending, ProcessState, ThreadState};

/// The session that records.
pub struct Recorder<'a> {
    modules: Modules,
    libraries: Libraries,
    slots: &'a Slots,
    alive: Option<AliveWord<'a>>,
    writer: Option<TraceWriter>,
    /// Why the trace can take no more, once it cannot.
    pub write_error: Option<fettle_trace::Error>,
    free: Vec<SlotIndex>,
    next_slot: SlotIndex,
    threads: HashMap<Tid, ThreadState>,
    processes: HashMap<Pid, ProcessState>,
    pending: HashMap<Pid, Pending>,
    /// For modules that were executed, whether they have a run-time that looks for leaks.
    with_leak_checks: HashMap<ModuleIndex, bool>,
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
    /// When it was last looked which locks threads have in system calls.
    last_look: u64,
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
            next_slot: SlotIndex(0),
            threads: HashMap::new(),
            processes: HashMap::new(),
            pending: HashMap::new(),
            with_leak_checks: HashMap::new(),
            attached: None,
            sampled: slots.samples().then(|| Sampled::new(crate::cost::of_samples())),
            user_fields: None,
            operations_of: 0,
            next_tick_flush: 0,
            last_look: clock::tsc(),
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
        let tids: Vec<Tid> = self.threads.keys().copied().collect();
        for tid in tids {
            self.close_thread(tid, false);
        }
        let pids: Vec<Pid> = self.processes.keys().copied().collect();
        for pid in pids {
            self.close_process(pid, None);
        }
        if let Some(locking) = &mut self.done.locking {
            locking.ticks = clock::tsc() - self.begin.tsc;
            match self.slots.convoys() {
                Ok(convoys) => locking.convoys = convoys,
                Err(error) => self.notes.push(format!("convoys are not known: {error}")),
            }
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

    /// Lets the trace have names from early on, should the recording be cut off. Of locks there is nothing to recover
    /// before the end.
    pub fn checkpoint_manifest(&mut self, manifest: Manifest) {
        self.checkpoint = self.done.locking.is_none().then_some((manifest, 0));
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

    /// What processes have that [join](fettle_live::Session::joined) the session.
    pub fn attach(&mut self, attached: Attached) {
        self.attached = Some(attached);
        self.report_operations();
    }

    /// Takes down what lies where in a process, for the names of locks and of places.
    fn map_locks(&mut self, pid: Pid) {
        if let Some(locking) = &mut self.done.locking {
            locking.map(pid);
        }
    }

    /// A module of a process has its rewritten text mapped.
    fn mapped(&mut self, pid: Pid, code: &Rewritten) {
        let Rewritten { module, text, text_len, bias } = code;
        let process = pid.unsigned();
        self.done.mappings.push(Mapping { module: *module, pid: process, base: bias.get() });
        if let Some(sampled) = &mut self.sampled {
            sampled.add_code(pid, text.0, *text_len, *module);
        }
    }

    /// Takes over what a process that ran before has got for its libraries meanwhile.
    fn give_hook(&mut self, pid: Pid) {
        let undo_recorder =
            self.attached.as_mut().and_then(|attached| attached.undo_recorder.as_mut());
        if let (Some(undo_recorder), Some(process)) = (undo_recorder, self.processes.get_mut(&pid))
            && process.space.is_none()
            && process.slots_at.is_some()
        {
            process.space = undo_recorder.space(pid);
        }
    }

    fn close_process(&mut self, pid: Pid, status: Option<ExitStatus>) {
        let Some(process) = self.processes.remove(&pid) else { return };
        let (exit_code, exit_signal) = match status {
            Some(ExitStatus::Code(code)) => (Some(code), None),
            Some(ExitStatus::Signal { signal, .. }) => (None, Some(signal)),
            None => (None, None),
        };
        self.done.processes.push(Process {
            pid: pid.unsigned(),
            parent: process.parent.map(Pid::unsigned),
            command: process.command,
            start_ns: process.start_tsc,
            end_ns: clock::tsc(),
            exit_code,
            exit_signal,
        });
    }
}
