//! Calls that stubs of protoc-gen-fettle reported: what `fettle sensors read rpc.calls --json` writes,
//! with the names of services, methods and fields from the names files next to the stubs.
//!
//! A call is one event, committed at its end; it becomes `rpc_begin` and `rpc_end`, and an event of the
//! method with the fields that are marked in the service's description. Hooks become `rpc_hook`.
//!
//! A server's call that no id joins to its client's begins a trace of its own. `join` looks for the client's by
//! what both sides say of the call.

mod call;
mod join;
mod names;
pub mod wires;

use std::iter::Peekable;
use std::path::{Path, PathBuf};

use fettle_abi::rpc;
use fettle_trace::{EventField, FieldType};
use serde_json::Value as Json;

use crate::error::{Error, Result};
use crate::lines::Lines;
use crate::sink::{At, Sink, field_name, number_apart, task_fields};
use crate::source::{Context, Remarks, Source};
use crate::spans::Found;
use call::Call;
pub use names::Names;
use names::{Kind, Method, Named};

/// A beginning, an end, or a hook.
#[derive(Debug)]
struct Moment {
    time_ns: u64,
    pid: u32,
    tid: u32,
    event: String,
    fields: Vec<(String, Owned)>,
}

#[derive(Debug)]
enum Owned {
    Text(String),
    Unsigned(u64),
    Signed(i64),
}

/// The events of a file, in order of time.
#[derive(Debug)]
pub struct Calls {
    moments: Peekable<std::vec::IntoIter<Moment>>,
    remarks: Remarks,
}

/// Reads a file of events.
pub fn open(path: &Path, names: &Names) -> Result<Calls> {
    let mut calls = Reader::new(names);
    calls.read(path)?;
    calls.notes.extend(join::note_of_loose(&calls.calls));
    Ok(calls.finish())
}

/// Reads files of events of one system, and puts calls together that no id joins; `traces` are recordings of the
/// kernel's events meanwhile.
pub fn open_without_ids(paths: &[PathBuf], traces: &[PathBuf], names: &Names) -> Result<Calls> {
    let mut calls = Reader::new(names);
    for path in paths {
        calls.read(path)?;
        calls.file += 1;
    }
    let mut seen = Vec::new();
    for trace in traces {
        if calls.file > 1 {
            let hint =
                "a recording of the kernel's goes with one file of calls, of the same machine";
            return Err(Error::Unknown { path: trace.clone(), hint });
        }
        seen.extend(wires::read(trace, names)?);
    }
    if !traces.is_empty() {
        calls.notes.push(format!("the kernel saw both ends of {} calls", seen.len()));
    }
    calls.join(&seen);
    Ok(calls.finish())
}

/// Reads text as a file of events, for fuzzing.
pub fn read_all(text: &str) {
    let names = Names::default();
    for joins in [false, true] {
        let mut calls = Reader::new(&names);
        text.lines().for_each(|line| calls.line(line));
        if joins {
            calls.join(&[]);
        }
        drop(calls.finish());
    }
}

/// A hook that was passed.
#[derive(Debug)]
struct Hook {
    time_ns: u64,
    pid: u32,
    tid: u32,
    what: rpc::What,
    trace: [u64; 2],
    span: u64,
    name: &'static str,
}

struct Reader<'a> {
    names: &'a Names,
    calls: Vec<Call>,
    hooks: Vec<Hook>,
    /// The number of the file that is read.
    file: u32,
    moments: Vec<Moment>,
    nameless: u64,
    unclear: u64,
    lost: u64,
    notes: Vec<String>,
    /// Calls say how their parents were found.
    joins: bool,
}

impl<'a> Reader<'a> {
    fn new(names: &'a Names) -> Reader<'a> {
        Reader {
            names,
            calls: Vec::new(),
            hooks: Vec::new(),
            file: 0,
            moments: Vec::new(),
            nameless: 0,
            unclear: 0,
            lost: 0,
            notes: Vec::new(),
            joins: false,
        }
    }

    fn read(&mut self, path: &Path) -> Result<()> {
        let mut lines = Lines::open(path)?;
        while lines.advance()? {
            self.line(lines.text());
        }
        Ok(())
    }

    /// Looks for the client's calls that servers' calls without an id belong to.
    fn join(&mut self, wires: &[wires::Wire]) {
        self.joins = true;
        let joined = join::join(&mut self.calls, wires);
        self.notes.extend(joined.note());
        for hook in &mut self.hooks {
            if let Some(trace) = joined.traces.get(&hook.trace) {
                hook.trace = *trace;
            }
        }
    }

    fn line(&mut self, line: &str) {
        let Ok(value) = &serde_json::from_str::<Json>(line) else {
            self.unclear += u64::from(!line.trim().is_empty());
            return;
        };
        match value["type"].as_str() {
            Some("event") if value["sensor"] == rpc::SENSOR => {
                if self.event(value).is_none() {
                    self.unclear += 1;
                }
            }
            Some("end") => {
                self.lost = self.lost.saturating_add(value["lost"].as_u64().unwrap_or(0));
            }
            _ => self.unclear += 1,
        }
    }

    fn event(&mut self, value: &Json) -> Option<()> {
        let time_ns = value["time_ns"].as_u64()?;
        let pid = u32::try_from(value["pid"].as_u64()?).ok()?;
        let tid = u32::try_from(value["thread"].as_u64()?).ok()?;
        let number = u16::try_from(value["event"].as_u64()?).ok()?;
        let words = value["words"].as_array()?;
        let words: Vec<u64> = words.iter().map(Json::as_u64).collect::<Option<_>>()?;
        // Times in words are those of the event's own clock, and earlier than the event.
        let (ticks, length) = (value["ticks"].as_u64()?, value["ns_per_tick"].as_f64()?);
        let at = |word: u64| {
            let before = (ticks.wrapping_sub(word) as i64).max(0) as f64 * length;
            time_ns.saturating_sub(before as u64)
        };
        match number {
            rpc::CALL => {
                let began_ns = at(*words.first()?);
                self.call(began_ns, time_ns, pid, tid, &words)
            }
            hook => {
                let hook = usize::from(hook.checked_sub(rpc::HOOK)?);
                self.hook(at(*words.get(4)?), pid, tid, &words, hook)
            }
        }
    }

    fn hook(&mut self, time_ns: u64, pid: u32, tid: u32, words: &[u64], hook: usize) -> Option<()> {
        let [span, what, high, low, ..] = *words else { return None };
        let what = rpc::What::from_word(what);
        let name = rpc::HOOKS.get(hook)?;
        self.hooks.push(Hook { time_ns, pid, tid, what, trace: [high, low], span, name });
        Some(())
    }

    fn call(
        &mut self,
        began_ns: u64,
        time_ns: u64,
        pid: u32,
        tid: u32,
        words: &[u64],
    ) -> Option<()> {
        let (head, values) = words.split_first_chunk::<{ rpc::FIELDS }>()?;
        let [_, what, counts, sent_bytes, received_bytes, high, low, span, parent] = *head;
        self.calls.push(Call {
            began_ns,
            // Events of different kinds have no order at one time: the fields come between begin and end.
            time_ns: time_ns.max(began_ns.saturating_add(2)),
            file: self.file,
            pid,
            tid,
            what: rpc::What::from_word(what),
            counts,
            sent_bytes,
            received_bytes,
            trace: [high, low],
            span,
            parent,
            values: values.to_vec(),
            found: None,
        });
        Some(())
    }

    /// The method of an event; one without a name has its numbers for one.
    fn method(&mut self, what: rpc::What) -> Method {
        match self.names.methods.get(&(what.service, what.method)) {
            Some(method) => method.clone(),
            None => {
                self.nameless += 1;
                let name = format!("{:#010x}/{}", what.service, what.method);
                Method { name, event: String::new(), fields: Vec::new() }
            }
        }
    }

    /// The beginning of a call, its fields, and its end.
    fn moments_of(&mut self, call: &Call) {
        let method = self.method(call.what);
        let Call { began_ns, time_ns, pid, tid, .. } = *call;
        let ids =
            || vec![text("trace", trace_text(call.trace)), text("span", span_text(call.span))];
        let side = if call.is_server() { "server" } else { "client" };
        let about = || vec![text("side", side.to_owned()), text("method", method.name.clone())];
        let parent = if call.parent == 0 { String::new() } else { span_text(call.parent) };
        let mut fields = ids();
        fields.push(text("parent", parent));
        fields.extend(about());
        if self.joins {
            // Seen, unless something was found.
            let found = call.found.unwrap_or(Found { candidates: 0, likely: 1000 });
            fields.push(("candidates".to_owned(), Owned::Signed(found.candidates.into())));
            fields.push(("likely".to_owned(), Owned::Signed(found.likely.into())));
        }
        let event = "rpc_begin".to_owned();
        self.moments.push(Moment { time_ns: began_ns, pid, tid, event, fields });
        if !method.fields.is_empty() {
            let mut fields = ids();
            for field in &method.fields {
                fields.push((field.name.clone(), field.value(&call.values)));
            }
            let event = method.event.clone();
            self.moments.push(Moment { time_ns: time_ns - 1, pid, tid, event, fields });
        }
        let status = rpc::STATUS.get(usize::from(call.what.status)).copied().unwrap_or("");
        let ended = rpc::ENDED.get(usize::from(call.what.ended)).copied().unwrap_or(rpc::ENDED[0]);
        let number = |name: &str, number: u64| (name.to_owned(), Owned::Unsigned(number));
        let mut fields = ids();
        fields.extend(about());
        fields.push(text("status", status.to_owned()));
        fields.push(text("ended", ended.to_owned()));
        fields.push(number("sent", call.counts & 0xffff_ffff));
        fields.push(number("received", call.counts >> 32));
        fields.push(number("sent_bytes", call.sent_bytes));
        fields.push(number("received_bytes", call.received_bytes));
        fields.push(number("duration_ns", time_ns - began_ns));
        self.moments.push(Moment { time_ns, pid, tid, event: "rpc_end".to_owned(), fields });
    }

    fn finish(mut self) -> Calls {
        for call in std::mem::take(&mut self.calls) {
            self.moments_of(&call);
        }
        for hook in std::mem::take(&mut self.hooks) {
            let method = self.method(hook.what);
            let Hook { time_ns, pid, tid, .. } = hook;
            let fields = vec![
                text("trace", trace_text(hook.trace)),
                text("span", span_text(hook.span)),
                text("method", method.name),
                text("hook", hook.name.to_owned()),
            ];
            self.moments.push(Moment { time_ns, pid, tid, event: "rpc_hook".to_owned(), fields });
        }
        self.moments.sort_by_key(|moment| moment.time_ns);
        let losses = vec![
            ("calls that found no room in their sensor", self.lost),
            ("events of methods that no names file has", self.nameless),
            ("lines that are no events of rpc.calls", self.unclear),
        ];
        let remarks = Remarks { losses, notes: self.notes };
        Calls { moments: self.moments.into_iter().peekable(), remarks }
    }
}

fn text(name: &str, text: String) -> (String, Owned) {
    (name.to_owned(), Owned::Text(text))
}

impl Named {
    fn value(&self, words: &[u64]) -> Owned {
        let word = |at: usize| words.get(at).copied().unwrap_or(0);
        let first = word(self.word);
        match self.kind {
            Kind::Unsigned => Owned::Unsigned(first),
            Kind::Signed => Owned::Signed(first as i64),
            Kind::Float => Owned::Text(f64::from_bits(first).to_string()),
            Kind::Text => {
                let words = (0..rpc::TEXT_WORDS).map(|at| word(self.word.saturating_add(at)));
                let mut bytes: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
                bytes.truncate(bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len()));
                // What was cut in the middle of a character is cut before it.
                if let Err(error) = std::str::from_utf8(&bytes)
                    && error.error_len().is_none()
                {
                    bytes.truncate(error.valid_up_to());
                }
                Owned::Text(String::from_utf8_lossy(&bytes).into_owned())
            }
        }
    }
}

fn trace_text([high, low]: [u64; 2]) -> String {
    format!("{high:016x}{low:016x}")
}

fn span_text(span: u64) -> String {
    format!("{span:016x}")
}

impl Source for Calls {
    fn next_ns(&mut self) -> Result<Option<u64>> {
        Ok(self.moments.peek().map(|moment| moment.time_ns))
    }

    fn take(&mut self, context: &mut Context) -> Result<()> {
        let Some(moment) = self.moments.next() else { return Ok(()) };
        let Moment { time_ns, pid, tid, event, fields } = moment;
        let sink = &mut context.sink;
        sink.tasks.seen(pid, tid, "", time_ns);
        let mut declared = task_fields();
        declared.extend(fields.iter().map(|(name, value)| {
            let ty = match value {
                Owned::Text(_) => FieldType::Text,
                Owned::Unsigned(_) => FieldType::U64,
                Owned::Signed(_) => FieldType::I64,
            };
            EventField::new(field_name(name), ty)
        }));
        number_apart(&mut declared);
        let Some(kind) = sink.declare(&event, &declared)? else {
            sink.lose(format!("events of `{event}` whose fields differ too often"), 1);
            return Ok(());
        };
        let mut values = vec![u64::from(pid), u64::from(tid)];
        for (_, value) in &fields {
            values.push(match value {
                Owned::Text(text) => sink.text(text),
                Owned::Unsigned(number) => *number,
                Owned::Signed(number) => *number as u64,
            });
        }
        sink.push(kind, At { time_ns, cpu: 0, pid, tid }, &values)
    }

    fn left_out(&self) -> Vec<(&'static str, u64)> {
        self.remarks.left_out()
    }

    fn finish(&mut self, sink: &mut Sink) {
        self.remarks.report(sink);
    }
}

/// Which of the inputs are names files.
pub fn is_names(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "fettle-calls")
}

/// The names in all names files among the inputs, and the other inputs.
pub fn names_of(inputs: &[PathBuf]) -> Result<(Names, Vec<PathBuf>)> {
    let mut names = Names::default();
    let (files, others): (Vec<&PathBuf>, Vec<&PathBuf>) =
        inputs.iter().partition(|path| is_names(path));
    files.into_iter().try_for_each(|path| names.read(path))?;
    Ok((names, others.into_iter().cloned().collect()))
}
