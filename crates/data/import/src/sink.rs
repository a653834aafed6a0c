//! Where imported events go: the series of a trace.
//!
//! Events of the catalogue have their own series, the same as those of a recording. Every other kind
//! becomes a series of its own name, whose columns are made when its first event comes. Where a later
//! event of that name has other fields, or values that the columns cannot hold, it goes to `NAME_2`,
//! and so on: nothing is cut to fit, and no second pass over the input is needed.

use std::collections::BTreeMap;
use std::path::Path;

use fettle_abi::events::Event;
use fettle_trace::{
    CpuLoss, EventField, EventWriter, FieldType, KindId, Loss, Process, Thread, WrittenEvents,
};
use rustc_hash::FxHashMap;

use crate::error::Result;
use crate::tasks::Tasks;
use crate::value::{Field, Value};

/// When, where and whose an event is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct At {
    /// Nanoseconds of the foreign clock.
    pub time_ns: u64,
    /// Processor.
    pub cpu: u32,
    /// Process; 0 if it is not known.
    pub pid: u32,
    /// Thread; 0 if it is not known, or if the processor was idle.
    pub tid: u32,
}

/// Texts that the writer keeps at most: each takes its bytes and some 60 more.
const TEXTS_MAX: usize = 1 << 20;
/// Series of one name.
const VARIANTS_MAX: usize = 16;
/// Series of all names.
const KINDS_MAX: usize = 4096;

/// Takes events.
#[derive(Debug)]
pub struct Sink {
    writer: EventWriter,
    kernel: Vec<Option<KindId>>,
    foreign: FxHashMap<String, Vec<Variant>>,
    kinds: usize,
    /// The foreign clock's time that is trace time 0.
    base_ns: u64,
    last_ns: u64,
    events: u64,
    /// The processes and threads that there were.
    pub tasks: Tasks,
    losses: BTreeMap<String, u64>,
    cpu_losses: BTreeMap<u32, u64>,
    notes: Vec<String>,
    /// The thread that runs, by processor, for events that do not name it.
    running: FxHashMap<u32, u32>,
    /// Reused for each event.
    values: Vec<u64>,
}

/// A series for events of one name with the same fields.
#[derive(Debug)]
struct Variant {
    kind: KindId,
    fields: Vec<EventField>,
}

/// What came of it all.
#[derive(Debug)]
pub(crate) struct Sunk {
    pub events: WrittenEvents,
    pub count: u64,
    pub duration_ns: u64,
    pub processes: Vec<Process>,
    pub threads: Vec<Thread>,
    pub losses: Vec<Loss>,
    pub notes: Vec<String>,
}

impl Sink {
    /// A sink into a trace's folder.
    pub(crate) fn create(trace: &Path, base_ns: u64) -> Result<Sink> {
        Ok(Sink {
            writer: EventWriter::create(trace)?,
            kernel: vec![None; Event::ALL.len()],
            foreign: FxHashMap::default(),
            kinds: 0,
            base_ns,
            last_ns: 0,
            events: 0,
            tasks: Tasks::default(),
            losses: BTreeMap::new(),
            cpu_losses: BTreeMap::new(),
            notes: Vec::new(),
            running: FxHashMap::default(),
            values: Vec::new(),
        })
    }

    /// The code of a text, good for the next event only.
    pub fn text(&mut self, text: &str) -> u64 {
        u64::from(self.writer.text(text))
    }

    /// A time of the foreign clock as trace time.
    pub fn since_start_ns(&self, time_ns: u64) -> u64 {
        time_ns.saturating_sub(self.base_ns)
    }

    /// Takes an event of the catalogue; its values as [`EventWriter::push`] has them.
    pub fn kernel(&mut self, event: Event, at: At, values: &[u64]) -> Result<()> {
        let place = event as usize;
        let kind = match self.kernel.get(place) {
            Some(Some(kind)) => *kind,
            _ => {
                let fields = event.fields().iter();
                let fields: Vec<_> = fields.map(|(name, ty)| EventField::new(*name, *ty)).collect();
                let kind = self.writer.kind(event.name(), &fields)?;
                if let Some(known) = self.kernel.get_mut(place) {
                    *known = Some(kind);
                }
                kind
            }
        };
        self.push(kind, at, values)
    }

    /// Declares a series that the catalogue does not have; `None` if there are too many already.
    pub(crate) fn declare(&mut self, name: &str, fields: &[EventField]) -> Result<Option<KindId>> {
        let name = name_of(name);
        let variants = self.foreign.entry(name.clone()).or_default();
        if let Some(known) = variants.iter().find(|variant| variant.fields == fields) {
            return Ok(Some(known.kind));
        }
        if variants.len() >= VARIANTS_MAX || self.kinds >= KINDS_MAX {
            return Ok(None);
        }
        let series = match variants.len() {
            0 => name,
            n => format!("{}_{}", &name[..name.len().min(60)], n + 1),
        };
        let kind = self.writer.kind(&series, fields)?;
        variants.push(Variant { kind, fields: fields.to_vec() });
        self.kinds += 1;
        Ok(Some(kind))
    }

    /// Takes an event of a series that was declared.
    pub(crate) fn push(&mut self, kind: KindId, at: At, values: &[u64]) -> Result<()> {
        let time_ns = self.since_start_ns(at.time_ns);
        if at.time_ns < self.base_ns {
            self.lose("events before the trace's beginning: they are at its beginning", 1);
        }
        self.last_ns = self.last_ns.max(time_ns);
        self.events += 1;
        self.writer.push(kind, time_ns, at.cpu, values)?;
        if self.writer.texts() > TEXTS_MAX {
            self.writer.forget_texts()?;
        }
        Ok(())
    }

    /// Takes an event that the catalogue does not have: `pid` and `tid`, then its fields.
    pub fn foreign(&mut self, name: &str, at: At, fields: &[Field<'_>]) -> Result<()> {
        let known = self.foreign.get(name).and_then(|variants| {
            variants.iter().find(|variant| holds(&variant.fields, fields)).map(|v| v.kind)
        });
        let kind = match known {
            Some(kind) => Some(kind),
            None => self.declare_for(name, fields)?,
        };
        let Some(kind) = kind else {
            self.lose(format!("events of `{name}` whose fields differ too often"), 1);
            return Ok(());
        };
        let mut values = std::mem::take(&mut self.values);
        values.clear();
        values.extend([u64::from(at.pid), u64::from(at.tid)]);
        for (_, value) in distinct(fields) {
            values.push(match value {
                Value::Text(text) => self.text(text),
                Value::Float(number) => self.text(&number.to_string()),
                other => other.bits().unwrap_or(0),
            });
        }
        let result = self.push(kind, at, &values);
        self.values = values;
        result
    }

    fn declare_for(&mut self, name: &str, fields: &[Field<'_>]) -> Result<Option<KindId>> {
        let (mut declared, series) = (task_fields(), name);
        for (name, value) in distinct(fields) {
            declared.push(EventField::new(field_name(name), column(series, name, value)));
        }
        number_apart(&mut declared);
        let kind = self.declare(name, &declared)?;
        // Found by its own name the next time.
        let clean = name_of(name);
        if clean != name {
            let fields = declared;
            if let (Some(kind), Some(_)) = (kind, self.foreign.get(&clean)) {
                self.foreign.entry(name.to_owned()).or_default().push(Variant { kind, fields });
            }
        }
        Ok(kind)
    }

    /// A thread runs on a processor from now on.
    pub fn runs(&mut self, cpu: u32, tid: u32) {
        self.running.insert(cpu, tid);
    }

    /// The thread that runs on a processor; 0 if it is not known.
    pub fn running(&self, cpu: u32) -> u32 {
        self.running.get(&cpu).copied().unwrap_or(0)
    }

    /// Counts something that was lost.
    pub fn lose(&mut self, reason: impl Into<String>, count: u64) {
        if count > 0 {
            let of = self.losses.entry(reason.into()).or_default();
            *of = of.saturating_add(count);
        }
    }

    /// Counts events that the foreign recorder lost on a processor.
    pub fn lose_on(&mut self, cpu: u32, count: u64) {
        let of = self.cpu_losses.entry(cpu).or_default();
        *of = of.saturating_add(count);
    }

    /// Says something about the trace, once.
    pub fn note(&mut self, note: impl Into<String>) {
        let note = note.into();
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }

    /// Writes what is left.
    pub(crate) fn finish(self) -> Result<Sunk> {
        let losses = self.losses.into_iter();
        let (processes, threads) = self.tasks.tables(self.base_ns, self.last_ns);
        let lost = self.cpu_losses.into_iter();
        Ok(Sunk {
            count: self.events,
            duration_ns: self.last_ns,
            processes,
            threads,
            losses: losses.map(|(reason, count)| Loss { reason, count }).collect(),
            notes: self.notes,
            events: self.writer.finish(lost.map(|(cpu, lost)| CpuLoss { cpu, lost }).collect())?,
        })
    }
}

/// The first fields of every foreign event.
pub(crate) fn task_fields() -> Vec<EventField> {
    vec![EventField::new("pid", FieldType::U32), EventField::new("tid", FieldType::U32)]
}

/// The type of a column. Events of calls and locks have those of the shipped schemas, whatever reports them.
fn column(series: &str, field: &str, value: Value<'_>) -> FieldType {
    let known = match (series, field) {
        ("call" | "call_end", "depth") => FieldType::U16,
        (
            "lock_wait" | "lock_acquired" | "lock_released" | "lock_given_up" | "lock_made",
            "lock",
        ) => FieldType::U64,
        _ => return value.column(),
    };
    if value.fits(known) { known } else { value.column() }
}

/// Fields beyond those that every event has, as many as a series can hold.
fn distinct<'a, 'b>(fields: &'b [Field<'a>]) -> impl Iterator<Item = Field<'a>> + 'b {
    fields.iter().take(60).copied()
}

fn holds(columns: &[EventField], fields: &[Field<'_>]) -> bool {
    let own = columns.get(2..).unwrap_or_default();
    own.len() == distinct(fields).count()
        && own
            .iter()
            .zip(distinct(fields))
            .all(|(column, (name, value))| value.fits(column.ty) && same_name(&column.name, name))
}

/// Whether a column was made for a field of that name.
fn same_name(column: &str, field: &str) -> bool {
    column == field
        || column == field_name(field)
        || column.rsplit_once('_').is_some_and(|(stem, number)| {
            number.bytes().all(|b| b.is_ascii_digit()) && stem == field_name(field)
        })
}

/// A name that a column can have.
pub(crate) fn field_name(name: &str) -> String {
    let name = clean(name);
    match name.as_str() {
        // Every event has these.
        "cpu" | "time_ns" | "pid" | "tid" => format!("own_{name}"),
        _ => name,
    }
}

/// Gives fields of the same name numbers.
pub(crate) fn number_apart(fields: &mut [EventField]) {
    for at in 1..fields.len() {
        let (earlier, rest) = fields.split_at_mut(at);
        let Some(field) = rest.first_mut() else { return };
        let mut number = 2;
        let stem = field.name.clone();
        while earlier.iter().any(|earlier| earlier.name == field.name) {
            field.name = format!("{}_{number}", &stem[..stem.len().min(58)]);
            number += 1;
        }
    }
}

/// A name that a series can have and the catalogue does not.
fn name_of(name: &str) -> String {
    let name = clean(name);
    match Event::ALL.iter().any(|event| event.name() == name) {
        true => format!("foreign_{}", &name[..name.len().min(50)]),
        false => name,
    }
}

/// Letters, digits and `_`, no digit first, at most 64.
fn clean(name: &str) -> String {
    let good = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
    let mut clean: String = name.chars().take(64).map(good).collect();
    if clean.bytes().next().is_none_or(|first| first.is_ascii_digit()) {
        clean.insert(0, '_');
        clean.truncate(64);
    }
    clean
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_made_good() {
        assert_eq!(name_of("net:netif_rx"), "net_netif_rx");
        assert_eq!(name_of("read"), "foreign_read");
        assert_eq!(name_of(""), "_");
        assert_eq!(name_of("9p"), "_9p");
        assert_eq!(field_name("cpu"), "own_cpu");
        assert_eq!(clean(&"ä".repeat(100)).len(), 64);
    }

    #[test]
    fn another_shape_is_another_series() {
        let folder = tempfile::tempdir().unwrap();
        let mut sink = Sink::create(folder.path(), 0).unwrap();
        let at = At { time_ns: 5, cpu: 1, pid: 2, tid: 3 };
        sink.foreign("a:b", at, &[("x", Value::Unsigned(1))]).unwrap();
        sink.foreign("a:b", at, &[("x", Value::Signed(-1))]).unwrap();
        sink.foreign("a:b", at, &[("x", Value::Text("y")), ("x", Value::Float(0.5))]).unwrap();
        sink.foreign("a:b", at, &[("x", Value::Text("y")), ("x", Value::Float(0.5))]).unwrap();
        for n in 0..20_u64 {
            let name = format!("f{n}");
            sink.foreign("many", at, &[(name.as_str(), Value::Unsigned(n))]).unwrap();
        }
        let sunk = sink.finish().unwrap();
        let kinds = &sunk.events.events().kinds;
        let rows = |name: &str| kinds.iter().find(|kind| kind.name == name).map(|kind| kind.rows);
        assert_eq!((rows("a_b"), rows("a_b_2"), rows("a_b_3")), (Some(2), Some(2), None));
        assert_eq!(sunk.losses.iter().map(|loss| loss.count).sum::<u64>(), 4);
        assert_eq!(sunk.count, 4 + 16);
    }
}
