//! A trace's events in order of time, as batches for a program of schemas.
//!
//! Three sources are merged: the files of events; recorded calls ([`crate::calls`]); and the times that
//! threads were switched out, as `switch_out` and `switch_in`, where no events of the kernel report
//! them. Only kinds that a schema does something with are read.

use std::collections::HashSet;

use fettle_requests::{Batch, EventId, EventType, FieldType, Program, Strings};
use fettle_trace::{EventKind, EventStream, Trace};

use crate::calls::Calls;
use crate::deferred::{ByTraceId, Deferred};
use crate::error::Result;
use crate::names::Names;
use crate::place::{Part, Place};

/// Events of a batch, about.
const BATCH: usize = 1 << 14;

/// Reads a trace for a program.
pub(crate) struct Feed {
    stream: EventStream,
    /// For each kind of the stream, what it is to the program.
    kinds: Vec<Mapped>,
    calls: Option<Calls>,
    /// Events of calls that were given places.
    calls_given: u64,
    strings: Strings,
    deferred: Deferred,
    problems: Vec<String>,
    switches: bool,
}

/// A kind of event that both the trace and the program know.
struct Mapped {
    event: EventId,
    fields: usize,
    /// Columns of `pid` and `tid`, if it has both.
    who: Option<(usize, usize)>,
}

impl Feed {
    /// The events of `trace` that `wanted` lets, as `program` declares them.
    pub(crate) fn open(
        trace: &Trace,
        program: &Program,
        wanted: &dyn Fn(EventId) -> bool,
    ) -> Result<Feed> {
        let mut problems = Vec::new();
        let mut kinds = Vec::new();
        let catalog = program.catalog();
        let mut present = HashSet::new();
        let deferred = Deferred::new(program, wanted);
        let wanted = &|event| wanted(event) || deferred.needs(event);
        let (stream, damaged) = trace.events(&mut |kind| {
            if kind.rows > 0 {
                present.insert(kind.name.clone());
            }
            let event = catalog.find(&kind.name).filter(|event| wanted(*event))?;
            let declared = catalog.get(event)?;
            match places(kind, declared) {
                Ok(places) => {
                    let who = declared.place("pid").zip(declared.place("tid"));
                    kinds.push(Mapped { event, fields: places.len(), who });
                    Some(places)
                }
                Err(problem) => {
                    problems.push(problem);
                    None
                }
            }
        })?;
        problems.extend(damaged.iter().map(ToString::to_string));
        let mut strings = program.strings().clone();
        let recorded = |name: &str| present.contains(name);
        let calls = Calls::open(trace, catalog, wanted, &recorded, &mut strings, &mut problems)?;
        let switches = recorded("switch_out") || calls.as_ref().is_some_and(Calls::switches);
        Ok(Feed { stream, kinds, calls, calls_given: 0, strings, deferred, problems, switches })
    }

    /// Whether events report when threads are switched out.
    pub(crate) fn switches(&self) -> bool {
        self.switches
    }

    /// The texts that events name by code.
    pub(crate) fn strings(&self) -> &Strings {
        &self.strings
    }

    /// The texts, when no more events are read.
    pub(crate) fn into_strings(self) -> Strings {
        self.strings
    }

    /// What could not be read so far.
    pub(crate) fn problems(&self) -> &[String] {
        &self.problems
    }

    /// Leaves out the events that are another part's.
    pub(crate) fn keep(&mut self, part: Part) {
        let of = part.of.max(1);
        self.stream.keep(&|source| source as usize % of == part.index);
        // Calls and switches are one source, and the last one.
        if part.index + 1 != of {
            self.calls = None;
        }
    }

    /// Whether an event has to be seen whatever the schemas do with it, and whether it may come
    /// before events of an earlier time.
    pub(crate) fn is_transfer(&self, event: EventId) -> (bool, bool) {
        self.deferred.looks_at(event)
    }

    /// Of how many questions their bytes said whose they are.
    pub(crate) fn by_trace_id(&self) -> ByTraceId {
        self.deferred.by_trace_id()
    }

    /// Where events go that are not read from files, and the texts that they name by code.
    pub(crate) fn input(&mut self) -> (&mut Batch, &mut Strings) {
        (self.deferred.input(), &mut self.strings)
    }

    /// Replaces `out` by the events whose time has come, all if there are no more.
    pub(crate) fn release(&mut self, all: bool, out: &mut Batch) {
        self.deferred.release(all, &self.strings, out);
    }

    /// Replaces `batch` by the next events as the files have them, and `places` by where they lie;
    /// `false` when there are none.
    pub(crate) fn next_placed(
        &mut self,
        batch: &mut Batch,
        places: &mut Vec<Place>,
        names: &mut Names,
    ) -> Result<bool> {
        batch.clear();
        places.clear();
        self.read(names, Some((batch, places)))
    }

    /// Replaces `batch` by the next events; `false` when there are none.
    pub(crate) fn next(&mut self, batch: &mut Batch, names: &mut Names) -> Result<bool> {
        loop {
            let more = self.read(names, None)?;
            self.deferred.release(!more, &self.strings, batch);
            if !batch.is_empty() || !more {
                return Ok(!batch.is_empty());
            }
        }
    }

    /// Reads more events, to those that are held or into `out`; `false` when there are none.
    fn read(
        &mut self,
        names: &mut Names,
        out: Option<(&mut Batch, &mut Vec<Place>)>,
    ) -> Result<bool> {
        let mut unplaced = Vec::new();
        let is_placed = out.is_some();
        let (batch, places) = match out {
            Some(out) => out,
            None => (self.deferred.input(), &mut unplaced),
        };
        let before = batch.len();
        while batch.len() < before + BATCH {
            let calls_ns = match &mut self.calls {
                Some(calls) => calls.next_ns(),
                None => u64::MAX,
            };
            let strings = &mut self.strings;
            match self.stream.next(calls_ns, &mut |text| strings.code(text)) {
                Ok(Some(run)) => {
                    let kind = &self.kinds[run.kind];
                    let fields = (0..kind.fields).map(|n| run.values(n));
                    batch.extend(kind.event, run.times_ns(), fields);
                    if is_placed {
                        let (source, first) = run.place();
                        let rows = first..first + run.times_ns().len() as u64;
                        places.extend(rows.map(|row| Place { source, row }));
                    }
                    if let Some((pid, tid)) = kind.who {
                        for (pid, tid) in run.values(pid).iter().zip(run.values(tid)) {
                            names.learn(*tid as u32, *pid as u32);
                        }
                    }
                }
                Ok(None) => match &mut self.calls {
                    Some(calls) if calls_ns < u64::MAX => {
                        calls.pull(batch)?;
                        while is_placed && places.len() < batch.len() {
                            let row = self.calls_given;
                            self.calls_given += 1;
                            places.push(Place { source: u32::MAX, row });
                        }
                    }
                    _ => break,
                },
                // The file is given up; the others go on.
                Err(error) => self.problems.push(error.to_string()),
            }
        }
        Ok(batch.len() > before)
    }
}

/// Where the declared fields are among a kind's, or why they are not. From the first optional one on
/// that its events do not have, there are none: those are 0.
pub(crate) fn places(
    kind: &EventKind,
    declared: &EventType,
) -> std::result::Result<Vec<usize>, String> {
    let mut places = Vec::new();
    for field in &declared.fields {
        let Some(place) = kind.place(&field.name) else {
            if field.optional {
                break;
            }
            return Err(format!(
                "event `{}` is left out: the schema declares a field `{}`, which the trace's \
                 events do not have",
                kind.name, field.name
            ));
        };
        let found = kind.fields[place].ty;
        if !holds(field.ty, found) {
            return Err(format!(
                "event `{}` is left out: its field `{}` is {} in the trace and {} in the schema, \
                 which cannot hold it",
                kind.name,
                field.name,
                found.name(),
                field.ty.name()
            ));
        }
        places.push(place);
    }
    Ok(places)
}

/// Whether a field declared as one type can hold all values of a column's.
fn holds(declared: FieldType, column: FieldType) -> bool {
    if (declared == FieldType::Text) != (column == FieldType::Text) {
        return false;
    }
    let ((least, most), (low, high)) = (declared.range(), column.range());
    least <= low && high <= most
}

#[cfg(test)]
mod tests {
    use fettle_trace::EventField;

    use super::*;

    #[test]
    fn fields_hold_what_they_can() {
        assert!(holds(FieldType::I64, FieldType::U32));
        assert!(holds(FieldType::U32, FieldType::U32));
        assert!(holds(FieldType::U8, FieldType::Bool));
        assert!(!holds(FieldType::I32, FieldType::U32));
        assert!(!holds(FieldType::U32, FieldType::Text));
        assert!(!holds(FieldType::Text, FieldType::U32));
    }

    #[test]
    fn a_field_may_be_missing() {
        let fields = vec![EventField::new("fd", FieldType::I32)];
        let kind = EventKind { name: "read".into(), fields, rows: 1 };
        let field = |name: &str, optional| fettle_requests::Field {
            name: name.into(),
            ty: FieldType::I32,
            optional,
        };
        let fields = vec![field("fd", false), field("later", true)];
        assert_eq!(places(&kind, &EventType { name: "read".into(), fields }), Ok(vec![0]));
    }

    #[test]
    fn a_field_that_is_missing_is_named() {
        let fields = vec![EventField::new("fd", FieldType::I64)];
        let kind = EventKind { name: "read".into(), fields, rows: 1 };
        let declared = |name: &str| EventType {
            name: "read".into(),
            fields: vec![fettle_requests::Field {
                name: name.into(),
                ty: FieldType::I32,
                optional: false,
            }],
        };
        assert!(places(&kind, &declared("tid")).unwrap_err().contains("`tid`"));
        assert!(places(&kind, &declared("fd")).unwrap_err().contains("i64 in the trace"));
    }
}
