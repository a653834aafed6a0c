//! A turn as a trace: the kernel's events of the system's processes, and the program's calls among them, for
//! the schema `hosted` and all that reads traces.

use std::path::Path;

use fettle_kernel_events::Event;
use fettle_kernel_events::decode::{Decoder, Sink};
use fettle_trace::{
    Clock, EventField, EventWriter, FieldType, Finish, KindId, Manifest, ProbeMode, Process,
    Thread, TraceWriter,
};
use fettle_types::{Pid, Tid};

use super::steps::Call;
use super::watch::Raw;
use crate::error::CompareError;
use crate::processes;

/// A call, with the thread of this kernel that it was made by.
#[derive(Clone, Copy, Debug)]
pub(super) struct Made {
    pub(super) tid: Tid,
    pub(super) call: Call,
}

/// Writes a trace of what was recorded of a process and its descendants while these calls were made.
pub(super) fn write(
    path: &Path,
    (system, name): (&str, &str),
    pid: Pid,
    raw: &[Raw],
    made: &[Made],
) -> Result<(), CompareError> {
    let begin_ns = raw.first().map_or(0, |raw| raw.time_ns);
    let since_begin = |ns: f64| (ns as u64).saturating_sub(begin_ns);
    let end_ns = made.last().map_or(0, |made| since_begin(made.call.end_ns));
    let manifest = Manifest {
        fettle_version: env!("CARGO_PKG_VERSION").to_owned(),
        command: vec![format!("{name} on {system}")],
        probe_mode: ProbeMode::None,
        // Times are nanoseconds already.
        clock: Clock { tsc_hz: 1_000_000_000, ..Clock::default() },
        duration_ns: end_ns,
        ..Manifest::default()
    };
    let writer = TraceWriter::create(path, &manifest)?;
    let mut events = ToTrace::create(path, begin_ns)?;
    let mut decoder = Decoder::new();
    for raw in raw {
        decoder.record(raw.cpu, &raw.bytes, &mut events)?;
    }
    let field = |name: &str, ty| EventField::new(name, ty);
    let (tid, number) = (field("tid", FieldType::U32), field("number", FieldType::U64));
    let call = [tid.clone(), number.clone(), field("call", FieldType::Text)];
    let call = events.writer.kind("hosted_call", &call)?;
    let end = events.writer.kind("hosted_end", &[tid, number])?;
    let text = u64::from(events.writer.text(name));
    for (number, made) in made.iter().enumerate() {
        let (tid, number) = (u64::from(made.tid.unsigned()), number as u64);
        let (begin_ns, end_ns) = (since_begin(made.call.begin_ns), since_begin(made.call.end_ns));
        events.writer.push(call, begin_ns, made.call.from, &[tid, number, text])?;
        events.writer.push(end, end_ns, made.call.from, &[tid, number])?;
    }
    let (processes, threads) = tables(pid, end_ns);
    let events = events.writer.finish(Vec::new())?;
    let finish = Finish { manifest, processes, threads, events, ..Finish::default() };
    writer.finish(finish, &mut |_, _| {})?;
    Ok(())
}

/// The processes and threads that there are now.
fn tables(pid: Pid, end_ns: u64) -> (Vec<Process>, Vec<Thread>) {
    let read = |path: String| std::fs::read(path).unwrap_or_default();
    let text =
        |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).replace('\0', " ").trim().to_owned();
    let (mut all, mut threads) = (Vec::new(), Vec::new());
    for pid in processes::tree(pid) {
        let mut command = text(read(format!("/proc/{pid}/cmdline")));
        if command.is_empty() {
            // What gVisor runs programs in has no command line.
            command = text(read(format!("/proc/{pid}/comm")));
        }
        all.push(Process { pid: pid.unsigned(), command, end_ns, ..Process::default() });
        for tid in processes::threads(pid) {
            let name = text(read(format!("/proc/{pid}/task/{tid}/comm")));
            let index = threads.len() as u32;
            let (pid, tid) = (pid.unsigned(), tid.unsigned());
            threads.push(Thread { index, pid, tid, name, end_ns, ..Thread::default() });
        }
    }
    (all, threads)
}

struct ToTrace {
    writer: EventWriter,
    /// By the event's number.
    kinds: Vec<KindId>,
    begin_ns: u64,
}

impl ToTrace {
    fn create(trace: &Path, begin_ns: u64) -> Result<ToTrace, fettle_trace::Error> {
        let mut writer = EventWriter::create(trace)?;
        let kinds = Event::ALL.iter().map(|event| {
            let fields = event.fields().iter().map(|(name, ty)| EventField::new(*name, *ty));
            writer.kind(event.name(), &fields.collect::<Vec<_>>())
        });
        let kinds = kinds.collect::<Result<_, _>>()?;
        Ok(ToTrace { writer, kinds, begin_ns })
    }
}

impl Sink for ToTrace {
    type Error = fettle_trace::Error;

    fn text(&mut self, text: &str) -> u32 {
        self.writer.text(text)
    }

    fn event(
        &mut self,
        event: Event,
        time_ns: u64,
        cpu: u32,
        values: &[u64],
    ) -> Result<(), fettle_trace::Error> {
        let since_begin = time_ns.saturating_sub(self.begin_ns);
        self.writer.push(self.kinds[event as usize], since_begin, cpu, values)
    }
}
