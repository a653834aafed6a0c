//! What a process did last, as a trace in the folder with the evidence: the events that its sensors hold, those of the
//! kernel where requests are recorded, and what the watcher has seen.
//!
//! What its sensors hold is copied at once, for the process goes on. Making a trace of it takes longer than a restart may
//! wait for, and the kernel's events come some tenths of a second late: a thread of its own does both.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use fettle_abi::events::Event;
use fettle_sensor::{Directory, Kind, Sensor};
use fettle_trace::{
    Clock, EventField, EventKind, EventWriter, FieldType, Finish, KindId, Manifest, ProbeMode,
    Process, Thread, TraceWriter,
};
use fettle_types::{Pid, Tid};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::finding::{Finding, Why};
use crate::look::{Look, ThreadLook};
use crate::requests::{Happened, Open, Recent, Recorded};
use crate::scene::Scene;
use crate::threads::tids;

/// What was found: a [`Finding`].
pub const FINDING: &str = "finding.json";
/// The trace's folder.
pub const TRACE: &str = "last.fettle";
/// Questions that the process had not answered: a list of [`OpenRequest`].
pub const OPEN: &str = "requests.json";
/// Why there is no trace.
pub const NO_TRACE: &str = "no-trace";

/// The trace that is meant by a folder of evidence; none if it is no such folder.
pub fn trace_in(folder: &Path) -> Option<PathBuf> {
    let is_evidence = folder.join(FINDING).is_file() && !folder.join("manifest.json").exists();
    is_evidence.then(|| folder.join(TRACE))
}

/// Events that are taken of each ring of a sensor, and of each sensor.
const OF_RING_MAX: u64 = 2000;
const OF_SENSOR_MAX: usize = 20_000;
/// Sensors of a process that are read.
const SENSORS_MAX: usize = 64;
/// What happened earlier before the finding is left out.
const SPAN_NS: u64 = 60_000_000_000;
/// The kernel's events have come after so long.
const PATIENCE: Duration = Duration::from_secs(1);
/// Requests that are described.
const OPEN_MAX: usize = 32;
/// Steps of each that are: so many of the first, by which it began, and of the last.
const STEPS_FIRST: usize = 20;
const STEPS_LAST: usize = 180;
/// Traces that are written at a time.
const WRITERS_MAX: usize = 4;

/// A request without an answer, and what its thread has done for it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OpenRequest {
    /// What was asked.
    pub what: String,
    /// The thread that has read it, if that is known.
    pub tid: Option<Tid>,
    /// For how long it had waited when something was found, in nanoseconds.
    pub open_ns: u64,
    /// What its thread did since: the first steps, and the last.
    pub steps: Vec<Step>,
    /// How many were left out between them.
    #[serde(default)]
    pub steps_left_out: usize,
}

/// Something that a thread did.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// When, in nanoseconds from the question on.
    pub after_ns: u64,
    /// The event's name.
    pub event: String,
    /// Its fields.
    pub fields: Map<String, Value>,
}

/// What is to become a trace.
#[derive(Debug)]
pub(crate) struct Last {
    folder: PathBuf,
    rule: String,
    finding: Finding,
    command: String,
    threads: Vec<(Tid, String)>,
    sensors: BTreeMap<String, Committed>,
    notes: Vec<String>,
    looks: Vec<(u64, ThreadLook)>,
    recent: Option<Arc<dyn Recent>>,
    at_ns: u64,
    at_ms: u64,
}

/// Events of sensors of a name.
#[derive(Debug, Default)]
struct Committed {
    /// Words of the longest.
    words: usize,
    events: Vec<OneCommitted>,
}

#[derive(Debug)]
struct OneCommitted {
    at_ns: u64,
    /// What the program says that it was committed by.
    thread: u32,
    number: u16,
    words: Vec<u64>,
}

impl Last {
    /// Takes what there is now of the process that was found.
    pub(crate) fn take(folder: &Path, rule: &str, scene: &Scene<'_>) -> Last {
        let finding = scene.finding.clone();
        let pid = finding.process.pid;
        let mut last = Last {
            folder: folder.to_owned(),
            rule: rule.to_owned(),
            command: fettle_live::command_of(pid),
            threads: tids(pid).into_iter().map(|tid| (tid, name_of(pid, tid))).collect(),
            sensors: BTreeMap::new(),
            notes: Vec::new(),
            looks: looks_at(&finding, scene.looks),
            recent: scene.recent.clone(),
            at_ns: scene.at_ns,
            at_ms: scene.at_ms,
            finding,
        };
        last.take_sensors();
        last
    }

    fn take_sensors(&mut self) {
        let Ok(directory) = Directory::open(&Directory::default_path()) else { return };
        let own = self.finding.process.pid.unsigned();
        let files = directory.files_of(|_, pid| pid == own).unwrap_or_default();
        for file in files.iter().take(SENSORS_MAX) {
            let Ok(sensor) = Sensor::open(file) else { continue };
            if sensor.is_alive() && sensor.description().shape.kind() == Kind::List {
                self.take_events(&sensor);
            }
        }
    }

    fn take_events(&mut self, sensor: &Sensor) {
        let name = &sensor.description().name;
        let of = self.sensors.entry(series(name)).or_default();
        let (clock, earliest_ns) = (sensor.clock(), self.at_ns.saturating_sub(SPAN_NS));
        let mut older = 0u64;
        let read = sensor.last_events(OF_RING_MAX, |event| {
            let at_ns = clock.monotonic_ns(event.timestamp);
            if at_ns < earliest_ns {
                older += 1;
                return;
            }
            // What claims to come from the future was committed just now.
            let (at_ns, words) = (at_ns.min(self.at_ns), event.words.to_vec());
            of.words = of.words.max(words.len());
            of.events.push(OneCommitted {
                at_ns,
                thread: event.thread,
                number: event.number,
                words,
            });
        });
        if of.events.len() > OF_SENSOR_MAX {
            of.events.sort_by_key(|event| event.at_ns);
            of.events.drain(..of.events.len() - OF_SENSOR_MAX);
        }
        if older > 0 {
            self.notes.push(format!("{older} events of {name} are older than a minute: left out"));
        }
        if let Err(error) = read {
            self.notes.push(error.to_string());
        }
    }

    /// Writes the trace, and what was asked and not answered.
    fn write(self) {
        let pid = self.finding.process.pid;
        let recorded = self.recent.as_ref().map(|recent| recent.of(pid, self.at_ns, PATIENCE));
        let recorded = recorded.unwrap_or_default();
        let open = self.open_requests(&recorded);
        let listed = serde_json::to_vec_pretty(&open).map_err(std::io::Error::from);
        // Without these the trace is there all the same.
        if self.recent.is_some() {
            let _ = listed.and_then(|text| fs::write(self.folder.join(OPEN), text));
        }
        if let Err(error) = self.write_trace(&recorded) {
            let _ = fs::remove_dir_all(self.folder.join(TRACE));
            let _ = fs::write(self.folder.join(NO_TRACE), format!("{error}\n"));
        }
    }

    /// What the process had not answered: first what the thread was asked that was found.
    fn open_requests(&self, recorded: &Recorded) -> Vec<OpenRequest> {
        let is_other = |open: &Open| open.tid.is_none_or(|tid| !concerns(&self.finding.why, tid));
        let mut open: Vec<&Open> = recorded.open.iter().collect();
        open.sort_by_key(|open| (is_other(open), open.begun_ns));
        let described = open.into_iter().take(OPEN_MAX).map(|open| {
            let (steps, steps_left_out) = steps(open, recorded);
            let open_ns = self.at_ns.saturating_sub(open.begun_ns);
            OpenRequest { what: open.what.clone(), tid: open.tid, open_ns, steps, steps_left_out }
        });
        described.collect()
    }

    fn write_trace(&self, recorded: &Recorded) -> fettle_trace::Result<()> {
        let path = self.folder.join(TRACE);
        let committed = self.sensors.values().flat_map(|of| &of.events).map(|event| event.at_ns);
        let seen = self.looks.iter().map(|(at_ns, _)| *at_ns);
        let happened = recorded.events.iter().map(|event| event.at_ns);
        let base_ns = committed.chain(seen).chain(happened).fold(self.at_ns, u64::min);
        let duration_ns = self.at_ns - base_ns;
        let mut manifest = Manifest {
            fettle_version: env!("CARGO_PKG_VERSION").to_owned(),
            command: vec![self.command.clone()],
            start_unix_ns: (self.at_ms * 1_000_000).saturating_sub(duration_ns),
            duration_ns,
            probe_mode: ProbeMode::None,
            // Times are nanoseconds already.
            clock: Clock { tsc_hz: 1_000_000_000, ..Clock::default() },
            notes: self.notes.clone(),
            ..Manifest::default()
        };
        manifest.totals.processes = 1;
        manifest.totals.threads = self.threads.len() as u64;
        let what = format!(
            "what process {} did last when rule {} of fettle watch held",
            self.pid(),
            self.rule
        );
        manifest.notes.insert(0, what);
        if self.recent.is_some() && !recorded.is_whole {
            manifest
                .notes
                .push("the kernel's last events had not come when this was written".into());
        }
        let trace = TraceWriter::create(&path, &manifest)?;
        let mut events = EventWriter::create(&path)?;
        self.write_sensors(&mut events, base_ns)?;
        self.write_looks(&mut events, base_ns)?;
        write_recorded(&mut events, recorded, base_ns)?;
        let end_ns = duration_ns;
        let thread = |(index, (tid, name)): (usize, &(Tid, String))| Thread {
            index: index as u32,
            pid: self.pid().unsigned(),
            tid: tid.unsigned(),
            name: name.clone(),
            end_ns,
            ..Thread::default()
        };
        let (pid, command) = (self.pid().unsigned(), self.command.clone());
        let finish = Finish {
            manifest,
            processes: vec![Process { pid, command, end_ns, ..Process::default() }],
            threads: self.threads.iter().enumerate().map(thread).collect(),
            events: events.finish(Vec::new())?,
            ..Finish::default()
        };
        trace.finish(finish, &mut |_, _| {}).map(drop)
    }

    fn pid(&self) -> Pid {
        self.finding.process.pid
    }

    fn write_sensors(&self, writer: &mut EventWriter, base_ns: u64) -> fettle_trace::Result<()> {
        for (name, of) in self.sensors.iter().filter(|(_, of)| !of.events.is_empty()) {
            let mut fields = task_fields();
            fields.push(EventField::new("number", FieldType::U16));
            let word = |n: usize| EventField::new(format!("word_{n}"), FieldType::U64);
            fields.extend((1..=of.words).map(word));
            let kind = writer.kind(name, &fields)?;
            for event in &of.events {
                let mut values =
                    vec![self.pid().unsigned().into(), event.thread.into(), event.number.into()];
                values.extend(&event.words);
                values.resize(fields.len(), 0);
                writer.push(kind, event.at_ns - base_ns, 0, &values)?;
            }
        }
        Ok(())
    }

    /// What the watcher has seen, and at the end that something was found.
    fn write_looks(&self, writer: &mut EventWriter, base_ns: u64) -> fettle_trace::Result<()> {
        let mut fields = task_fields();
        let number = |name: &str| EventField::new(name, FieldType::U64);
        fields.extend(["cpu_time_ns", "calls", "waits"].map(number));
        let kind = writer.kind("watch_look", &fields)?;
        let pid = u64::from(self.pid().unsigned());
        for (at_ns, look) in &self.looks {
            let ThreadLook { tid, cpu_ns, progress } = look;
            let values = [pid, tid.unsigned().into(), *cpu_ns, progress.calls, progress.waits];
            writer.push(kind, at_ns - base_ns, 0, &values)?;
        }
        let mut fields = task_fields();
        fields.extend(["rule", "kind"].map(|name| EventField::new(name, FieldType::Text)));
        let kind = writer.kind("watch_found", &fields)?;
        let why = serde_json::to_value(&self.finding.why).unwrap_or_default();
        let texts = [&self.rule, why["kind"].as_str().unwrap_or_default()];
        let [rule, why] = texts.map(|text| u64::from(writer.text(text)));
        let tid = match &self.finding.why {
            Why::Spins { tid, .. } => tid.unsigned(),
            _ => self.pid().unsigned(),
        };
        writer.push(kind, self.at_ns - base_ns, 0, &[pid, tid.into(), rule, why])
    }
}

/// The kernel's events, as a recording has them.
fn write_recorded(
    writer: &mut EventWriter,
    recorded: &Recorded,
    base_ns: u64,
) -> fettle_trace::Result<()> {
    let mut kinds: Vec<Option<KindId>> = vec![None; recorded.kinds.len()];
    let mut values = Vec::new();
    for event in &recorded.events {
        let Some((known, kind)) = kinds.get_mut(event.kind).zip(recorded.kinds.get(event.kind))
        else {
            continue;
        };
        // The processor is not declared.
        let Some((cpu, own)) = event.values.split_first() else { continue };
        let fields = kind.fields.get(1..).unwrap_or_default();
        if own.len() != fields.len() {
            continue;
        }
        let id = match known {
            Some(id) => *id,
            None => *known.insert(writer.kind(&kind.name, fields)?),
        };
        values.clear();
        for (field, value) in fields.iter().zip(own) {
            values.push(match field.ty {
                FieldType::Text => u64::from(writer.text(recorded.texts.of_value(*value))),
                _ => *value,
            });
        }
        writer.push(id, event.at_ns - base_ns, *cpu as u32, &values)?;
    }
    Ok(())
}

/// What a thread did since it was asked, and how many steps are left out of that.
fn steps(open: &Open, recorded: &Recorded) -> (Vec<Step>, usize) {
    let Some(tid) = open.tid else { return (Vec::new(), 0) };
    let of_thread = |event: &&Happened| {
        event.at_ns >= open.begun_ns
            && field(recorded, event, "tid") == Some(u64::from(tid.unsigned()))
    };
    let of_thread: Vec<&Happened> = recorded.events.iter().filter(of_thread).collect();
    let left_out = of_thread.len().saturating_sub(STEPS_FIRST + STEPS_LAST);
    let (first, rest) = of_thread.split_at(of_thread.len().min(STEPS_FIRST));
    let step = |event: &&Happened| {
        let kind = recorded.kinds.get(event.kind)?;
        let after_ns = event.at_ns - open.begun_ns;
        Some(Step { after_ns, event: kind.name.clone(), fields: fields_of(recorded, kind, event) })
    };
    let last = rest.iter().skip(left_out);
    (first.iter().chain(last).filter_map(step).collect(), left_out)
}

fn field(recorded: &Recorded, event: &Happened, name: &str) -> Option<u64> {
    let kind = recorded.kinds.get(event.kind)?;
    event.values.get(kind.place(name)?).copied()
}

/// The fields of an event that say something of it; whose and where it is, is known.
fn fields_of(recorded: &Recorded, kind: &EventKind, event: &Happened) -> Map<String, Value> {
    let all = kind.fields.iter().zip(&event.values);
    let shown = all.filter(|(field, _)| !matches!(field.name.as_str(), "cpu" | "pid" | "tid"));
    let value = |(field, value): (&EventField, &u64)| {
        let shown = match field.ty {
            FieldType::Text => Value::from(recorded.texts.of_value(*value)),
            FieldType::Bool => Value::from(*value != 0),
            FieldType::I8 | FieldType::I16 | FieldType::I32 | FieldType::I64 => {
                Value::from(value.cast_signed())
            }
            _ => Value::from(*value),
        };
        (field.name.clone(), shown)
    };
    shown.map(value).collect()
}

/// Whether a finding names a thread.
pub(crate) fn concerns(why: &Why, thread: Tid) -> bool {
    match why {
        Why::Spins { tid, .. } => *tid == thread,
        Why::Cycle { tids } => tids.contains(&thread),
        _ => false,
    }
}

fn looks_at(finding: &Finding, looks: &[Look]) -> Vec<(u64, ThreadLook)> {
    let mut seen = Vec::new();
    for look in looks {
        let process = look.processes.iter().find(|process| process.id == finding.process);
        let threads = process.and_then(|process| process.threads.as_ref()).into_iter().flatten();
        seen.extend(threads.map(|thread| (look.at_ns, *thread)));
    }
    seen
}

/// The first fields of each event.
fn task_fields() -> Vec<EventField> {
    ["pid", "tid"].map(|name| EventField::new(name, FieldType::U32)).to_vec()
}

/// What a sensor's events are called in the trace: its name, as far as a kind of event can have it, unless the kernel's
/// have that name or the watcher's.
fn series(name: &str) -> String {
    let good = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
    let name: String = name.chars().map(good).collect();
    let is_taken = name.starts_with(|first: char| first.is_ascii_digit())
        || name.starts_with("watch_")
        || Event::ALL.iter().any(|event| event.name() == name);
    let mut name = if is_taken { format!("sensor_{name}") } else { name };
    name.truncate(64);
    name
}

fn name_of(pid: Pid, tid: Tid) -> String {
    let name = fs::read_to_string(format!("/proc/{pid}/task/{tid}/comm")).unwrap_or_default();
    name.trim_end().to_owned()
}

/// Traces that are being written.
#[derive(Debug, Default)]
pub(crate) struct Writers(Vec<JoinHandle<()>>);

impl Writers {
    /// Has one written in the background.
    pub(crate) fn write(&mut self, last: Last) {
        if self.are_busy() && self.0.len() >= WRITERS_MAX {
            let why = format!("{WRITERS_MAX} traces of earlier findings were being written\n");
            // The rest of the evidence is there.
            let _ = fs::write(last.folder.join(NO_TRACE), why);
            return;
        }
        self.0.extend(Builder::new().name("evidence".to_owned()).spawn(move || last.write()));
    }

    /// Whether any is being written.
    pub(crate) fn are_busy(&mut self) -> bool {
        self.0.retain(|writer| !writer.is_finished());
        !self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use fettle_trace::Strings;

    use super::*;
    use crate::look::{ProcessId, Progress};

    fn tid(number: u32) -> Tid {
        number.try_into().unwrap()
    }

    #[test]
    fn names_of_sensors_are_made_good() {
        for (sensor, name) in
            [("shop.request", "shop_request"), ("open", "sensor_open"), ("9", "sensor_9")]
        {
            assert_eq!(series(sensor), name);
        }
        assert_eq!(series(&"a".repeat(63)), "a".repeat(63));
    }

    fn last(folder: &Path) -> Last {
        let process = ProcessId { pid: tid(7).as_process(), start: 1 };
        let why = Why::Spins { tid: tid(8), cpu_ns: 3, limit_ns: 3, learned_from: 0 };
        let event = |at_ns, words: &[u64]| OneCommitted {
            at_ns,
            thread: 8,
            number: 2,
            words: words.to_vec(),
        };
        let events = vec![event(1_000_200, &[5]), event(1_000_100, &[6, 7])];
        let progress = Progress { calls: 3, waits: 4 };
        Last {
            folder: folder.to_owned(),
            rule: "stuck".into(),
            finding: Finding { rule: 0, process, since_ns: 1_000_000, why },
            command: "app".into(),
            threads: vec![(tid(7), "app".into()), (tid(8), "worker".into())],
            sensors: BTreeMap::from([("shop_request".into(), Committed { words: 2, events })]),
            notes: Vec::new(),
            looks: vec![(1_000_300, ThreadLook { tid: tid(8), cpu_ns: 9, progress })],
            recent: None,
            at_ns: 1_000_400,
            at_ms: 1_796_000_000_000,
        }
    }

    /// Thread 8 was asked for something, and has opened a file since; thread 7 was asked, too.
    fn recorded() -> Recorded {
        let kind = |name: &str| {
            let event = Event::ALL.iter().find(|event| event.name() == name).unwrap();
            let field = |(name, ty): &(&str, FieldType)| EventField::new(*name, *ty);
            EventKind::declared(name, &event.fields().iter().map(field).collect::<Vec<_>>())
        };
        let open = kind("open");
        let values = |thread: u64| vec![1, 7, thread, 3, 0, 99, 1];
        let event = |at_ns, thread| Happened { kind: 0, at_ns, values: values(thread) };
        assert_eq!(open.fields.len(), values(8).len());
        let asked = |number: u32, what: &str, begun_ns| Open {
            tid: Some(tid(number)),
            what: what.into(),
            begun_ns,
        };
        let mut texts = Strings::default();
        assert_eq!(["/etc/hosts", "file"].map(|text| texts.code(text)), [0, 1]);
        Recorded {
            kinds: vec![open],
            texts,
            events: vec![event(1_000_050, 8), event(1_000_350, 8), event(1_000_360, 7)],
            open: vec![asked(7, "GET /7", 1_000_010), asked(8, "GET /8", 1_000_250)],
            is_whole: true,
        }
    }

    #[test]
    fn what_was_open_is_described() {
        let folder = tempfile::tempdir().unwrap();
        let open = last(folder.path()).open_requests(&recorded());
        let described = |open: &OpenRequest| (open.what.clone(), open.open_ns, open.steps.len());
        let described: Vec<_> = open.iter().map(described).collect();
        assert_eq!(described, [("GET /8".to_owned(), 150, 1), ("GET /7".to_owned(), 390, 1)]);
        let step = &open[0].steps[0];
        assert_eq!((step.after_ns, step.event.as_str()), (100, "open"));
        assert_eq!(step.fields["path"], "/etc/hosts");
        assert!(!step.fields.contains_key("pid"));
    }

    #[test]
    fn a_trace_is_made_of_all_of_it() {
        let folder = tempfile::tempdir().unwrap();
        last(folder.path()).write_trace(&recorded()).unwrap();
        let trace = fettle_trace::Trace::open(&folder.path().join(TRACE)).unwrap();
        let manifest = trace.manifest();
        let kinds = manifest.events.kinds.iter().map(|kind| (kind.name.as_str(), kind.rows));
        let expected = [("open", 3), ("shop_request", 2), ("watch_found", 1), ("watch_look", 1)];
        assert_eq!(kinds.collect::<Vec<_>>(), expected);
        assert_eq!(manifest.duration_ns, 350, "from the first event on");
        assert!(manifest.notes[0].contains("rule stuck"), "{:?}", manifest.notes);
        assert_eq!(trace.threads().unwrap().len(), 2);
    }
}
