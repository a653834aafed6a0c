//! Kernel events of a recording: a thread empties the kernel's rings into a spool, in parallel with
//! whatever else is recorded; afterwards the spool becomes tables.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use fettle_kernel_events::decode::{Decoder, Sink};
use fettle_kernel_events::spool::{self, Moment, SpoolWriter};
use fettle_kernel_events::{Capture, Event, KernelError, Losses, Processes};
use fettle_trace::{
    ClockPair, CpuLoss, EventField, EventWriter, KindId, Loss, Manifest, Recovered, WrittenEvents,
};

use serde::{Deserialize, Serialize};

use crate::clock;
use crate::process_table::ProcessTable;

/// What to record of the kernel's events.
#[derive(Clone, Copy, Debug)]
pub struct KernelOptions {
    /// Of all processes, not only those of the program.
    pub system: bool,
    /// Bytes of ring for each processor, a power of two.
    pub ring_bytes: u32,
    /// Bytes of each message on a stream socket that are looked into; 0 for none.
    pub payload: u32,
    /// The begin of every system call is recorded, not only of those that have to wait.
    pub call_times: bool,
}

impl KernelOptions {
    /// Puts what records them into the kernel; nothing is recorded yet.
    ///
    /// # Errors
    ///
    /// When the user may not or the kernel cannot.
    pub fn capture(&self) -> Result<Capture, KernelError> {
        self.capture_with(false)
    }

    /// The same where nothing else changes the observed programs, so that their tasks' wake-ups can be
    /// recorded.
    ///
    /// # Errors
    ///
    /// As [`KernelOptions::capture`].
    pub fn capture_untraced(&self) -> Result<Capture, KernelError> {
        self.capture_with(true)
    }

    fn capture_with(&self, task_wakes: bool) -> Result<Capture, KernelError> {
        Capture::new(&fettle_kernel_events::Options {
            system: self.system,
            ring_bytes: self.ring_bytes,
            payload: self.payload,
            begins: self.call_times,
            task_wakes,
            ..fettle_kernel_events::Options::default()
        })
    }
}

/// How often rings are emptied. A ring of 8 MiB takes some 100,000 records, which is ten
/// milliseconds of what one processor can do at most.
const PERIOD: Duration = Duration::from_millis(10);
/// A ring that is fuller than this part is emptied again sooner.
const NEARLY_FULL: usize = 8;

/// A recording of kernel events under way.
#[derive(Debug)]
pub struct Running {
    processes: Processes,
    stop: Arc<AtomicBool>,
    drainer: JoinHandle<Ended>,
}

/// What is known when it has ended.
#[derive(Debug)]
pub struct Ended {
    losses: Result<Losses, KernelError>,
    /// Why the spool is not whole.
    pub error: Option<io::Error>,
    /// Places in the kernel that nothing was attached to.
    without: Vec<&'static str>,
}

/// The spool of a trace.
pub fn spool_path(trace: &Path) -> PathBuf {
    trace.join("spool").join("kernel.events")
}

impl Running {
    /// Begins to record into a spool.
    ///
    /// # Errors
    ///
    /// When the kernel attaches nothing.
    pub fn start(
        mut capture: Capture,
        mut writer: SpoolWriter,
        ring: u32,
    ) -> Result<Running, KernelError> {
        capture.start()?;
        let processes = capture.processes();
        let stop = Arc::new(AtomicBool::new(false));
        let flag = stop.clone();
        let drain = move || drain(capture, &mut writer, &flag, ring as usize);
        let drainer = std::thread::Builder::new().name("kernel events".to_owned()).spawn(drain);
        let failed = |error| KernelError::Io { what: "start a thread", error };
        Ok(Running { processes, stop, drainer: drainer.map_err(failed)? })
    }

    /// The observed processes.
    pub fn processes(&self) -> &Processes {
        &self.processes
    }

    /// Stops recording and takes the rest.
    pub fn end(self) -> Ended {
        self.stop.store(true, Ordering::Relaxed);
        self.drainer.thread().unpark();
        self.drainer.join().unwrap_or_else(|_| Ended {
            losses: Ok(Losses::default()),
            error: Some(io::Error::other("the thread that stores kernel events has failed")),
            without: Vec::new(),
        })
    }
}

/// Empties the rings until `stop` is set.
fn drain(mut capture: Capture, writer: &mut SpoolWriter, stop: &AtomicBool, ring: usize) -> Ended {
    let mut error = None;
    let mut rounds = 0_u32;
    loop {
        let last = stop.load(Ordering::Relaxed);
        if last {
            capture.stop();
        }
        let ClockPair { tsc, monotonic_ns } = clock::now();
        // After an error the records are taken all the same, so that none wait in full rings for
        // others, and are counted as lost with the rest of the spool.
        let round = capture.drain(|cpu, bytes| match &error {
            None => writer.append(cpu, bytes),
            Some(_) => Ok(()),
        });
        let most = round.and_then(|most| writer.mark(Moment { tsc, monotonic_ns }).map(|()| most));
        let most = most.unwrap_or_else(|e| {
            error.get_or_insert(e);
            0
        });
        rounds += 1;
        // Several times per second, should this process be killed.
        if last || rounds.is_multiple_of(32) {
            error = error.or(writer.flush().err());
        }
        if last {
            break;
        }
        if most < ring / NEARLY_FULL {
            std::thread::park_timeout(PERIOD);
        }
    }
    Ended { losses: capture.losses(), error, without: capture.without.clone() }
}

/// What is known of the kernel's events when their recording has ended, but for the spool.
#[derive(Debug, Serialize, Deserialize)]
pub struct KernelEnding {
    /// By processor.
    lost: Vec<u64>,
    missed: u64,
    compat: u64,
    /// Sentences for the manifest.
    notes: Vec<String>,
    process_table: ProcessTable,
}

impl Ended {
    /// All that is known, with the processes that were there before the recording began.
    pub fn known(self, process_table: ProcessTable) -> KernelEnding {
        let mut notes = Vec::new();
        let losses = self.losses.unwrap_or_else(|error| {
            notes.push(error.to_string());
            Losses::default()
        });
        if let Some(error) = self.error {
            notes.push(format!("kernel events end early: {error}"));
        }
        if !self.without.is_empty() {
            let places = self.without.join(", ");
            notes.push(format!("this kernel reports nothing of: {places}"));
        }
        let Losses { lost, missed, compat } = losses;
        KernelEnding { lost, missed, compat, notes, process_table }
    }
}

impl KernelEnding {
    /// Takes along what is asked of this machine: the trace is made on another one.
    pub fn pack(&mut self) {
        self.process_table.pack();
    }

    /// Turns the spool into tables, in the trace's time, whose clock has been read at its end, and
    /// writes into the manifest what was lost.
    ///
    /// # Errors
    ///
    /// When the spool cannot be read or the tables not be written.
    pub fn convert(
        self,
        trace: &Path,
        manifest: &mut Manifest,
    ) -> Result<Converted, fettle_trace::Error> {
        let note = |reason: &str, count| Loss { reason: reason.to_owned(), count };
        if self.missed > 0 {
            let reason = "kernel event that came while another of its kind was being recorded";
            manifest.losses.push(note(reason, self.missed));
        }
        if self.compat > 0 {
            let reason = "system call of a 32-bit program";
            manifest.losses.push(note(reason, self.compat));
        }
        manifest.notes.extend(self.notes);
        let lost = self.lost.iter().enumerate();
        let lost = lost.map(|(cpu, lost)| CpuLoss { cpu: cpu as u32, lost: *lost }).collect();
        convert(&spool_path(trace), trace, self.process_table, lost, manifest, End::Whole)
    }
}

/// Kernel events in a trace.
#[derive(Debug, Default)]
pub struct Converted {
    /// For [`fettle_trace::Finish::events`].
    pub events: WrittenEvents,
    /// The processes that there were.
    pub process_table: ProcessTable,
}

/// Turns the spool of a recording that was cut off into tables, if there is one; see
/// [`fettle_trace::recover_with`].
///
/// # Errors
///
/// When the tables cannot be written.
pub fn recover(
    trace: &Path,
    manifest: &mut Manifest,
) -> Result<Option<Recovered>, fettle_trace::Error> {
    recover_until(trace, manifest, End::Whole)
}

/// As [`recover`], of a copy of a spool that grows: what is in order for certain.
///
/// # Errors
///
/// As [`recover`].
pub(crate) fn recover_so_far(
    trace: &Path,
    manifest: &mut Manifest,
) -> Result<Option<Recovered>, fettle_trace::Error> {
    recover_until(trace, manifest, End::Growing)
}

/// Where a spool ends.
#[derive(Clone, Copy)]
enum End {
    /// It is whole: all that is in it.
    Whole,
    /// It grows: what is in order for certain.
    Growing,
}

fn recover_until(
    trace: &Path,
    manifest: &mut Manifest,
    end: End,
) -> Result<Option<Recovered>, fettle_trace::Error> {
    let spool = spool_path(trace);
    let Ok(last) = spool::last_mark(&spool) else { return Ok(None) };
    if let Some(Moment { tsc, monotonic_ns }) = last
        && manifest.clock.end.is_none_or(|end| end.tsc < tsc)
    {
        manifest.clock.end = Some(ClockPair { tsc, monotonic_ns });
        manifest.duration_ns = manifest.clock.converter().since_start_ns(tsc);
    }
    // What the recording may have made of the spool before it was cut off.
    let _ = std::fs::remove_dir_all(trace.join("events"));
    let converted = convert(&spool, trace, ProcessTable::default(), Vec::new(), manifest, end)?;
    let text = "how many kernel events were lost is not known";
    manifest.notes.push(text.to_owned());
    let (processes, threads) = converted.process_table.tables(manifest.duration_ns);
    Ok(Some(Recovered { events: converted.events, processes, threads }))
}

fn convert(
    spool: &Path,
    trace: &Path,
    process_table: ProcessTable,
    lost: Vec<CpuLoss>,
    manifest: &mut Manifest,
    end: End,
) -> Result<Converted, fettle_trace::Error> {
    let mut sink = ToTrace::create(trace, process_table)?;
    let mut decoder = Decoder::new();
    let begin = manifest.clock.begin.unwrap_or_default();
    let begin = Moment { tsc: begin.tsc, monotonic_ns: begin.monotonic_ns };
    let converter = manifest.clock.converter();
    let take = |ticks, cpu, record: &[u8]| -> Result<(), Failure> {
        sink.now_ns = converter.since_start_ns(ticks);
        Ok(decoder.record(cpu, record, &mut sink)?)
    };
    let read =
        spool::Reader::open(spool, begin).map_err(Failure::from).and_then(|mut reader| match end {
            End::Whole => reader.finish(take).map(|found| found.torn),
            End::Growing => reader.poll(take).map(|()| false),
        });
    match read {
        Ok(true) => {
            manifest.notes.push("kernel events end early: their spool is cut off".to_owned());
        }
        Ok(false) => {}
        Err(Failure::Trace(error)) => return Err(error),
        Err(Failure::Spool(error)) => {
            manifest.notes.push(format!("kernel events end early: {}: {error}", spool.display()));
        }
    }
    if decoder.unreadable > 0 {
        let reason = "kernel event that cannot be read".to_owned();
        manifest.losses.push(Loss { reason, count: decoder.unreadable });
    }
    if let Some(counts) = decoder.messages() {
        note_messages(counts, manifest);
    }
    if decoder.urings > 0 {
        manifest.notes.push(format!(
            "io_uring was used ({} calls): what was read, written, sent and received through it is \
             not among the events",
            decoder.urings
        ));
    }
    Ok(Converted { events: sink.writer.finish(lost)?, process_table: sink.process_table })
}

/// Writes into the manifest what was not understood of messages.
fn note_messages(counts: &fettle_protocols::Counts, manifest: &mut Manifest) {
    let mut loss = |reason: String, count: u64| {
        if count > 0 {
            manifest.losses.push(Loss { reason, count });
        }
    };
    for (reason, count) in fettle_protocols::Reason::ALL.into_iter().zip(counts.given_up) {
        loss(format!("connection {}: its messages are not told", reason.text()), count);
    }
    let reason = "message whose answer was not found, for bytes are missing (a larger --payload?)";
    loss(reason.to_owned(), counts.unanswered);
    loss("connection forgotten among too many at once".to_owned(), counts.forgotten);
}

#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Trace(#[from] fettle_trace::Error),
    #[error(transparent)]
    Spool(#[from] io::Error),
}

/// The fields of an event in a trace.
pub(crate) fn fields(event: Event) -> Vec<EventField> {
    event.fields().iter().map(|(name, ty)| EventField::new(*name, *ty)).collect()
}

/// What a message says comes after the call that moved it, whose time it has.
pub(crate) fn reported_ns(event: Event, time_ns: u64) -> u64 {
    let says = matches!(event, Event::Ask | Event::Answer | Event::Undecoded);
    time_ns + u64::from(says)
}

/// Writes events into a trace.
struct ToTrace {
    writer: EventWriter,
    /// By the event's number.
    kinds: Vec<KindId>,
    process_table: ProcessTable,
    now_ns: u64,
}

impl ToTrace {
    fn create(trace: &Path, process_table: ProcessTable) -> Result<ToTrace, fettle_trace::Error> {
        let mut writer = EventWriter::create(trace)?;
        let kinds = Event::ALL.iter().map(|event| writer.kind(event.name(), &fields(*event)));
        let kinds = kinds.collect::<Result<_, _>>()?;
        Ok(ToTrace { writer, kinds, process_table, now_ns: 0 })
    }
}

impl Sink for ToTrace {
    type Error = fettle_trace::Error;

    fn text(&mut self, text: &str) -> u32 {
        self.writer.text(text)
    }

    fn life(&mut self, life: fettle_kernel_events::decode::Life<'_>) {
        self.process_table.happened(life, self.now_ns);
    }

    fn event(
        &mut self,
        event: Event,
        _time_ns: u64,
        cpu: u32,
        values: &[u64],
    ) -> Result<(), fettle_trace::Error> {
        self.writer.push(self.kinds[event as usize], reported_ns(event, self.now_ns), cpu, values)
    }
}
