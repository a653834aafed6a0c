//! A trace's events in order of time, as batches for a program of schemas.
//!
//! Three sources are merged: the files of events; recorded calls, of which each is a `call` and a
//! `call_end`; and the times that threads were switched out, as `switch_out` and `switch_in`, where
//! no events of the kernel tell of them. Only kinds that a schema does something with are read.

use fettle_requests::{Batch, EventId, EventType, FieldType, Program, Strings};
use fettle_trace::{EventField, EventKind, EventStream, Moment, Moments, Trace, What};

use crate::causal::Causal;
use crate::error::Result;
use crate::names::Names;
use crate::parts::{Part, Place};

/// Events of a batch, about.
const BATCH: usize = 1 << 14;

/// Reads a trace for a program.
pub(crate) struct Feed {
    stream: EventStream,
    /// For each kind of the stream, what it is to the program.
    kinds: Vec<Mapped>,
    calls: Option<Calls>,
    strings: Strings,
    causal: Causal,
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

/// Calls and switches as events.
struct Calls {
    moments: Moments,
    call: Option<EventId>,
    call_end: Option<EventId>,
    switch_out: Option<EventId>,
    switch_in: Option<EventId>,
    /// Codes of functions' names, by number.
    functions: Vec<u64>,
    /// Process and thread, by index.
    threads: Vec<(u64, u64)>,
    /// How many were given places.
    given: u64,
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
        let mut switches = false;
        let (stream, damaged) = trace.events(&mut |kind| {
            switches |= kind.name == "switch_out" && kind.rows > 0;
            let event = catalog.find(&kind.name).filter(|event| wanted(*event))?;
            let declared = catalog.get(event)?;
            match places(kind, declared) {
                Ok(places) => {
                    let column = |name| declared.fields.iter().position(|f| f.name == name);
                    let who = column("pid").zip(column("tid"));
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
        let of_kernel = switches;
        let find = |name: &str| catalog.find(name).filter(|event| wanted(*event));
        let recorded = |name: &str| stream.kinds().any(|kind| kind.name == name);
        let calls = find("call").or(find("call_end")).filter(|_| !recorded("call"));
        let out = find("switch_out").or(find("switch_in")).filter(|_| !of_kernel);
        let has_calls = calls.is_some() && trace.manifest().totals.records > 0;
        let has_switches = out.is_some() && trace.manifest().switches;
        switches |= has_switches;
        let calls = if has_calls || has_switches {
            let (moments, damaged) = trace.moments(has_calls, has_switches)?;
            problems.extend(damaged.iter().map(ToString::to_string));
            let mut functions = Vec::new();
            for function in trace.functions()? {
                let name = function.demangled.as_ref().unwrap_or(&function.name);
                let at = function.id as usize;
                if at >= functions.len() {
                    functions.resize(at + 1, u64::from(strings.code("")));
                }
                functions[at] = u64::from(strings.code(name));
            }
            let mut threads = Vec::new();
            for thread in trace.threads()? {
                let at = thread.index as usize;
                if at >= threads.len() {
                    threads.resize(at + 1, (0, 0));
                }
                threads[at] = (u64::from(thread.pid), u64::from(thread.tid));
            }
            Some(Calls {
                moments,
                call: find("call"),
                call_end: find("call_end"),
                switch_out: find("switch_out"),
                switch_in: find("switch_in"),
                functions,
                threads,
                given: 0,
            })
        } else {
            None
        };
        let causal = Causal::new(catalog);
        Ok(Feed { stream, kinds, calls, strings, causal, problems, switches })
    }

    /// Whether events tell when threads are switched out.
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
        self.causal.looks_at(event)
    }

    /// Where events go that are not read from files, and the texts that they name by code.
    pub(crate) fn input(&mut self) -> (&mut Batch, &mut Strings) {
        (self.causal.held(), &mut self.strings)
    }

    /// Replaces `out` by the events whose time has come, all if there are no more.
    pub(crate) fn release(&mut self, all: bool, out: &mut Batch) {
        self.causal.release(all, out);
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
            self.causal.release(!more, batch);
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
            None => (self.causal.held(), &mut unplaced),
        };
        let before = batch.len();
        while batch.len() < before + BATCH {
            let calls_ns = match &mut self.calls {
                Some(calls) => calls.moments.next_ns().unwrap_or(u64::MAX),
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
                        if let Some(moment) = calls.moments.pull()? {
                            calls.push(moment, batch);
                            while is_placed && places.len() < batch.len() {
                                let row = calls.given;
                                calls.given += 1;
                                places.push(Place { source: u32::MAX, row });
                            }
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

impl Calls {
    fn push(&self, moment: Moment, batch: &mut Batch) {
        let (pid, tid) = self.threads.get(moment.thread as usize).copied().unwrap_or((0, 0));
        let mut add = |event: Option<EventId>, values: &[u64]| {
            if let Some(event) = event {
                batch.push(moment.time_ns, event, values);
            }
        };
        let name = |function: u32| self.functions.get(function as usize).copied().unwrap_or(0);
        match moment.what {
            What::Call { function, depth } => {
                add(self.call, &[pid, tid, name(function), u64::from(depth)]);
            }
            What::CallEnd { function, depth } => {
                add(self.call_end, &[pid, tid, name(function), u64::from(depth)]);
            }
            What::Out { preempted } => add(self.switch_out, &[tid, 0, u64::from(preempted)]),
            What::In => add(self.switch_in, &[tid, 0]),
        }
    }
}

/// Where the declared fields are among a kind's, or why they are not.
pub(crate) fn places(
    kind: &EventKind,
    declared: &EventType,
) -> std::result::Result<Vec<usize>, String> {
    let mut places = Vec::new();
    for field in &declared.fields {
        let of = |found: &EventField| found.name == field.name;
        let Some(place) = kind.fields.iter().position(of) else {
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
fn holds(declared: FieldType, column: fettle_trace::FieldType) -> bool {
    let Some(column) = FieldType::from_name(column.name()) else { return false };
    if (declared == FieldType::Text) != (column == FieldType::Text) {
        return false;
    }
    let ((least, most), (low, high)) = (declared.range(), column.range());
    least <= low && high <= most
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_hold_what_they_can() {
        use fettle_trace::FieldType as Column;
        assert!(holds(FieldType::I64, Column::U32));
        assert!(holds(FieldType::U32, Column::U32));
        assert!(holds(FieldType::U8, Column::Bool));
        assert!(!holds(FieldType::I32, Column::U32));
        assert!(!holds(FieldType::U32, Column::Text));
        assert!(!holds(FieldType::Text, Column::U32));
    }

    #[test]
    fn a_field_that_is_missing_is_named() {
        let fields = vec![EventField::new("fd", Column::I64)];
        use fettle_trace::FieldType as Column;
        let kind = EventKind { name: "read".into(), fields, rows: 1 };
        let declared = |name: &str| EventType {
            name: "read".into(),
            fields: vec![fettle_requests::Field { name: name.into(), ty: FieldType::I32 }],
        };
        assert!(places(&kind, &declared("tid")).unwrap_err().contains("`tid`"));
        assert!(places(&kind, &declared("fd")).unwrap_err().contains("i64 in the trace"));
    }
}
