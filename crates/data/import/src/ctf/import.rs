//! CTF as a source of events.

use std::collections::HashMap;
use std::path::Path;
use std::rc::Rc;

use fettle_trace::{EventField, FieldType, KindId};

use super::plan::{Column, EventPlan, Kind};
use super::reader::{Event, Stream, Trace};
use super::show::show;
use crate::error::Result;
use crate::sink::{At, Sink, field_name, number_apart, task_fields};
use crate::source::{Context, Source};
use crate::value::{Field, Value};

/// Opens all streams in and below a folder.
pub fn open(path: &Path) -> Result<Vec<Box<dyn Source>>> {
    let mut sources: Vec<Box<dyn Source>> = Vec::new();
    for folder in super::folders(path)? {
        let trace = Rc::new(Trace::open(&folder)?);
        for file in trace.files() {
            sources.push(Box::new(CtfSource::new(trace.stream(file)?)));
        }
    }
    Ok(sources)
}

/// A stream.
#[derive(Debug)]
pub struct CtfSource {
    stream: Stream,
    /// Whether an event is waiting to be taken.
    waiting: bool,
    over: bool,
    /// What becomes of a kind of event, by the place of its plan in memory.
    routes: HashMap<*const EventPlan, Route>,
    scratch: String,
    values: Vec<u64>,
}

/// What becomes of a kind of event.
#[derive(Clone, Debug)]
struct Route {
    /// Columns of the process, the thread and its name.
    pid: Option<usize>,
    tid: Option<usize>,
    name: Option<usize>,
    /// Columns that are imported, with their places.
    slots: Rc<[(usize, Column)]>,
    /// An event of the kernel: it is translated.
    kernel: bool,
    /// The series of its own.
    kind: Option<KindId>,
}

impl CtfSource {
    fn new(stream: Stream) -> CtfSource {
        CtfSource {
            stream,
            waiting: false,
            over: false,
            routes: HashMap::new(),
            scratch: String::new(),
            values: Vec::new(),
        }
    }
}

/// Names under which the kernel's tracepoints come.
fn is_kernel(name: &str) -> bool {
    let known = ["sched_", "syscall_entry_", "syscall_exit_", "sys_enter", "sys_exit", "signal_"];
    known.iter().any(|prefix| name.starts_with(prefix))
        || matches!(name, "block_rq_issue" | "block_rq_complete" | "task_newtask")
        || name.ends_with("page_fault_user")
}

impl Route {
    fn of(plan: &EventPlan, sink: &mut Sink) -> Result<Route> {
        let columns = || plan.columns.iter().enumerate();
        let numeric = |column: &Column| matches!(column.kind, Kind::Unsigned | Kind::Signed);
        let slot_of = |names: &[&str]| {
            let found = columns().find(|(_, column)| names.contains(&column.name.as_str()));
            found.filter(|(_, column)| numeric(column)).map(|(slot, _)| slot)
        };
        let kernel = is_kernel(&plan.name);
        // In the kernel's events, `pid` and `tid` often name another thread than the one that was
        // running.
        let own: [&[&str]; 2] = match kernel {
            true => [&["vpid"], &["vtid"]],
            false => [&["vpid", "pid"], &["vtid", "tid"]],
        };
        let (pid, tid) = (slot_of(own[0]), slot_of(own[1]));
        let text = |column: &Column| matches!(column.kind, Kind::Text);
        let name = columns().find(|(_, column)| column.name == "procname" && text(column));
        let name = name.map(|(slot, _)| slot);
        let reported = columns()
            .filter(|(slot, column)| !column.hidden && ![pid, tid, name].contains(&Some(*slot)));
        let slots: Rc<[(usize, Column)]> =
            reported.take(60).map(|(slot, column)| (slot, column.clone())).collect();
        let mut fields = task_fields();
        for (_, column) in slots.iter() {
            let ty = match column.kind {
                Kind::Unsigned => FieldType::U64,
                Kind::Signed => FieldType::I64,
                _ => FieldType::Text,
            };
            fields.push(EventField::new(field_name(&column.name), ty));
        }
        number_apart(&mut fields);
        let kind = match kernel {
            true => None,
            false => sink.declare(&plan.name, &fields)?,
        };
        Ok(Route { pid, tid, name, slots, kernel, kind })
    }
}

impl Source for CtfSource {
    fn next_ns(&mut self) -> Result<Option<u64>> {
        if !self.waiting && !self.over {
            self.waiting = self.stream.advance()?;
            self.over = !self.waiting;
        }
        Ok(self.stream.event().filter(|_| self.waiting).map(|event| event.time_ns))
    }

    fn take(&mut self, context: &mut Context) -> Result<()> {
        self.waiting = false;
        let Some(event) = self.stream.event() else { return Ok(()) };
        let Context { sink, tracepoints } = context;
        let key: *const EventPlan = event.plan;
        let route = match self.routes.get(&key) {
            Some(route) => route.clone(),
            None => {
                let route = Route::of(event.plan, sink)?;
                self.routes.insert(key, route.clone());
                route
            }
        };
        let value = |slot: Option<usize>| slot.and_then(|slot| event.values.get(slot));
        let number = |slot: Option<usize>| value(slot).copied().unwrap_or(0) as u32;
        let (pid, tid) = (number(route.pid), number(route.tid));
        let mut at = At { time_ns: event.time_ns, cpu: event.cpu, pid, tid };
        let name = route.name.filter(|_| tid != 0);
        if let Some(slot) = name
            && let Some(column) = event.plan.columns.get(slot)
        {
            if let Value::Text(name) = show(&event, column, slot, &mut self.scratch) {
                sink.tasks.seen(pid, tid, name, event.time_ns);
            }
        } else {
            sink.tasks.seen(pid, tid, "", event.time_ns);
        }
        if route.kernel {
            return kernel(&event, &route, &mut at, sink, tracepoints);
        }
        let Some(kind) = route.kind else {
            sink.lose("events of kinds beyond those that a trace can have", 1);
            return Ok(());
        };
        self.values.clear();
        self.values.extend([u64::from(pid), u64::from(tid)]);
        for (slot, column) in route.slots.iter() {
            let value = match show(&event, column, *slot, &mut self.scratch) {
                Value::Unsigned(value) => value,
                Value::Signed(value) => value as u64,
                Value::Float(value) => sink.text(&value.to_string()),
                Value::Text(text) => sink.text(text),
            };
            self.values.push(value);
        }
        sink.push(kind, at, &self.values)
    }

    fn finish(&mut self, sink: &mut Sink) {
        sink.lose_on(self.stream.cpu(), self.stream.lost());
        sink.lose("events that were cut off at the end of a file", self.stream.torn());
    }
}

/// An event of the kernel: the thread that runs is the one that the processor's last switch named, if
/// nothing else says it.
fn kernel(
    event: &Event<'_>,
    route: &Route,
    at: &mut At,
    sink: &mut Sink,
    tracepoints: &mut crate::tracepoints::Tracepoints,
) -> Result<()> {
    let mut texts: Vec<String> = Vec::with_capacity(route.slots.len());
    let mut numbers: Vec<Option<Value<'static>>> = Vec::with_capacity(route.slots.len());
    for (slot, column) in route.slots.iter() {
        let mut text = String::new();
        let number = match (show(event, column, *slot, &mut text), &column.kind) {
            // Names of values are for people; the translation wants the value.
            (_, Kind::Label { signed, .. }) => {
                let value = event.values.get(*slot).copied();
                value.map(|bits| match signed {
                    true => Value::Signed(bits as i64),
                    false => Value::Unsigned(bits),
                })
            }
            (Value::Unsigned(value), _) => Some(Value::Unsigned(value)),
            (Value::Signed(value), _) => Some(Value::Signed(value)),
            (Value::Float(value), _) => Some(Value::Float(value)),
            (Value::Text(_), _) => None,
        };
        texts.push(text);
        numbers.push(number);
    }
    let fields: Vec<Field<'_>> = route
        .slots
        .iter()
        .zip(&texts)
        .zip(&numbers)
        .map(|(((_, column), text), number)| {
            (column.name.as_str(), number.unwrap_or(Value::Text(text)))
        })
        .collect();
    if at.tid == 0 {
        at.tid = sink.running(at.cpu);
    }
    let next = fields.iter().find(|(name, _)| *name == "next_tid").and_then(|(_, tid)| tid.bits());
    if let Some(next) = next {
        sink.runs(at.cpu, next as u32);
    }
    tracepoints.event(sink, *at, &event.plan.name, &fields, false)
}
