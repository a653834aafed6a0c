//! Spans of tracing libraries.
//!
//! A span is two events, `span_begin` and `span_end`, with the trace, the span and the one that it is
//! a child of. Those of JSON files come in no order, so they are put in order in memory: some hundred
//! bytes for a span, which is far less than the JSON takes.

pub mod chrome;
pub mod console;
mod inspect;
pub mod jaeger;
pub mod otlp;
mod said;
pub mod without_ids;
pub mod zipkin;

use std::io::Read;
use std::iter::Peekable;
use std::path::Path;

use fettle_reconstruct::Link;
use fettle_trace::{EventField, FieldType};
use rustc_hash::{FxHashMap, FxHashSet};
use serde_json::Value as Json;

use crate::error::{Error, Place, Result};
use crate::sink::{At, Sink, task_fields};
use crate::source::{Context, Remarks, Source};
use crate::syscalls::args::cut;
use crate::value::{Field, Value};

/// Bytes of a file of JSON at most: it has to be in memory.
const JSON_MAX: u64 = 1 << 30;

/// An event of a span: its begin or its end, at one time.
#[derive(Debug)]
pub struct Moment {
    pub time_ns: u64,
    pub pid: u32,
    pub tid: u32,
    /// What it is called as a series.
    pub kind: &'static str,
    /// Fields that hold texts, and those that hold numbers.
    pub texts: Vec<(&'static str, String)>,
    pub numbers: Vec<(&'static str, i64)>,
}

/// The events of recorded calls, which schemas know.
pub const CALL: &str = "call";
/// Their ends.
pub const CALL_END: &str = "call_end";

/// Begins and ends in order of time.
#[derive(Debug)]
pub struct Moments {
    moments: Peekable<std::vec::IntoIter<Moment>>,
    names: Vec<(u32, u32, String)>,
    remarks: Remarks,
}

/// Spans or events that are left out, by why.
#[derive(Clone, Copy, Debug, Default)]
pub struct LeftOut {
    /// A time is missing.
    pub timeless: u64,
    /// A time is there and is none, or lies beyond what nanoseconds can express.
    pub unfit: u64,
}

impl LeftOut {
    /// What the second are called.
    pub const UNFIT: &str = "spans or events whose times do not fit";

    /// Counts one that should have had these times.
    pub fn count(&mut self, times: &[&Json]) {
        match times.iter().any(|time| time.is_null()) {
            true => self.timeless += 1,
            false => self.unfit += 1,
        }
    }
}

impl Moments {
    /// Puts begins and ends in order. `names` are those of threads, by process and thread; `losses`
    /// what could not be imported.
    pub fn new(
        mut moments: Vec<Moment>,
        names: Vec<(u32, u32, String)>,
        losses: Vec<(&'static str, u64)>,
    ) -> Moments {
        // The sort is stable: of those at the same time, begins stay before ends.
        moments.sort_by_key(|moment| moment.time_ns);
        let remarks = Remarks { losses, notes: Vec::new() };
        Moments { moments: moments.into_iter().peekable(), names, remarks }
    }
}

impl Source for Moments {
    fn next_ns(&mut self) -> Result<Option<u64>> {
        Ok(self.moments.peek().map(|moment| moment.time_ns))
    }

    fn take(&mut self, context: &mut Context) -> Result<()> {
        let Some(moment) = self.moments.next() else { return Ok(()) };
        let sink = &mut context.sink;
        let at = At { time_ns: moment.time_ns, cpu: 0, pid: moment.pid, tid: moment.tid };
        for (pid, tid, name) in self.names.drain(..) {
            sink.tasks.seen(pid, tid, &name, moment.time_ns);
        }
        sink.tasks.seen(moment.pid, moment.tid, "", moment.time_ns);
        if matches!(moment.kind, CALL | CALL_END) {
            return call(sink, at, &moment);
        }
        let texts = moment.texts.iter().map(|(name, text)| (*name, Value::Text(text)));
        let numbers = moment.numbers.iter().map(|(name, of)| (*name, Value::Signed(*of)));
        let fields: Vec<Field<'_>> = texts.chain(numbers).collect();
        sink.foreign(moment.kind, at, &fields)
    }

    fn left_out(&self) -> Vec<(&'static str, u64)> {
        self.remarks.left_out()
    }

    fn finish(&mut self, sink: &mut Sink) {
        self.remarks.report(sink);
    }
}

/// A call's beginning or end, with the types that `probes.fettle-schema` declares.
fn call(sink: &mut Sink, at: At, moment: &Moment) -> Result<()> {
    let mut fields = task_fields();
    fields.push(EventField::new("function", FieldType::Text));
    fields.push(EventField::new("depth", FieldType::U16));
    let Some(kind) = sink.declare(moment.kind, &fields)? else { return Ok(()) };
    let function = sink.text(moment.texts.first().map_or("", |(_, text)| text));
    let depth = moment.numbers.first().map_or(0, |(_, depth)| (*depth).min(0xffff) as u64);
    sink.push(kind, at, &[u64::from(at.pid), u64::from(at.tid), function, depth])
}

/// A span as all formats have it.
#[derive(Debug, Default)]
pub struct Span {
    /// When it began, in nanoseconds since 1970.
    pub from_ns: u64,
    /// When it ended.
    pub to_ns: u64,
    /// Its process; 0 if that is not known.
    pub pid: u32,
    /// Its thread; 0 if that is not known.
    pub tid: u32,
    /// The id of its trace.
    pub trace: String,
    /// Its own id.
    pub span: String,
    /// The id of the span that it is a child of.
    pub parent: String,
    /// The service that reported it.
    pub service: String,
    /// What was done.
    pub name: String,
    /// `ok`, `error`, or nothing.
    pub status: &'static str,
    /// Its other attributes.
    pub attributes: String,
    /// What is known of it beside its ids.
    pub about: About,
    /// How its parent was found, if not by an id.
    pub found: Option<Found>,
}

/// What a span says without ids.
#[derive(Clone, Debug, Default)]
pub struct About {
    /// `server`, `client`, `internal` and so on, in small letters; empty if it is not said.
    pub kind: String,
    /// The process, of several of one service.
    pub instance: String,
    /// Names of the other side, the best first.
    pub peers: Vec<String>,
    /// The port of the asking end of its connection.
    pub port: Option<u16>,
}

/// How certain a parent is that was found without ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// How many there were to choose from.
    pub candidates: u32,
    /// How likely it is right, in thousandths.
    pub likely: u16,
}

impl Found {
    /// What a link says.
    pub fn of(link: &Link) -> Found {
        let likely = (link.likely.clamp(0.0, 1.0) * 1000.0).round() as u16;
        Found { candidates: link.candidates, likely }
    }
}

/// Spans of files, and what was left out.
#[derive(Debug, Default)]
pub struct Spans {
    /// In the files' order.
    pub spans: Vec<Span>,
    /// What was left out, and how many.
    pub losses: Vec<(&'static str, u64)>,
}

impl Spans {
    /// Their begins and ends in order of time.
    pub fn moments(self) -> Moments {
        let mut moments = Vec::with_capacity(2 * self.spans.len());
        let mut processes = Processes::new(&self.spans);
        for mut span in self.spans {
            processes.place(&mut span);
            span.moments(&mut moments);
        }
        let mut made = Moments::new(moments, processes.names, self.losses);
        if !processes.made.is_empty() {
            made.remarks.notes.push(format!(
                "processes that do not say their numbers have numbers of their own here: {}",
                processes.made.len()
            ));
        }
        made
    }
}

/// Processes of spans, by which they are shown: those that do not say their number get one.
#[derive(Debug, Default)]
struct Processes {
    /// Numbers that are said.
    said: FxHashSet<u32>,
    /// Those that are made, by service and instance.
    made: FxHashMap<(String, String), u32>,
    last: u32,
    /// What threads are called: their service.
    names: Vec<(u32, u32, String)>,
    named: FxHashSet<(u32, u32)>,
}

impl Processes {
    fn new(spans: &[Span]) -> Processes {
        let said = spans.iter().flat_map(|span| [span.pid, span.tid]).collect();
        Processes { said, ..Processes::default() }
    }

    /// Gives a span a process and a thread, if it does not say them.
    fn place(&mut self, span: &mut Span) {
        if span.pid == 0 {
            let key = (span.service.clone(), span.about.instance.clone());
            span.pid = self.made.get(&key).copied().unwrap_or_else(|| {
                self.last += 1;
                while self.said.contains(&self.last) {
                    self.last += 1;
                }
                self.made.insert(key, self.last);
                self.last
            });
        }
        if span.tid == 0 {
            span.tid = span.pid;
        }
        if !span.service.is_empty() && self.named.insert((span.pid, span.tid)) {
            self.names.push((span.pid, span.tid, span.service.clone()));
        }
    }
}

impl Span {
    /// Its beginning and its end.
    pub fn moments(self, moments: &mut Vec<Moment>) {
        let Span { pid, tid, .. } = self;
        let (trace, span, service) = (self.trace.clone(), self.span.clone(), self.service.clone());
        moments.push(Moment {
            time_ns: self.from_ns,
            pid,
            tid,
            kind: "span_begin",
            texts: vec![
                ("trace", self.trace),
                ("span", self.span),
                ("parent", self.parent),
                ("service", self.service),
                ("name", self.name),
                ("attributes", self.attributes),
            ],
            numbers: self.found.map_or_else(Vec::new, |found| {
                vec![("candidates", found.candidates.into()), ("likely", found.likely.into())]
            }),
        });
        let to_ns = self.to_ns.max(self.from_ns);
        moments.push(Moment {
            time_ns: to_ns,
            pid,
            tid,
            kind: "span_end",
            texts: vec![
                ("trace", trace),
                ("span", span),
                ("status", self.status.to_owned()),
                ("service", service),
            ],
            numbers: vec![("duration_ns", (to_ns - self.from_ns) as i64)],
        });
    }
}

/// How a file ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Torn {
    /// As it should.
    #[default]
    No,
    /// Behind a whole element of a list, whose bracket is missing: Chrome's lists may end so.
    Unclosed,
    /// Within something.
    Cut,
}

impl Torn {
    /// What a cut is called.
    pub const CUT: &str = "values that were cut off at the end of a file";

    /// How many values were cut off.
    pub fn count(self) -> u64 {
        u64::from(self != Torn::No)
    }

    /// How many were, where lists need no bracket at their end.
    pub fn count_within(self) -> u64 {
        u64::from(self == Torn::Cut)
    }
}

/// The JSON values of a file: one, or one a line; and how it ends.
pub fn values(path: &Path) -> Result<(Vec<Json>, Torn)> {
    parse(&whole(path)?, path)
}

/// All of a file of JSON.
pub fn whole(path: &Path) -> Result<Vec<u8>> {
    let failed = |action| move |e| Error::io(action, path, e);
    let mut file = std::fs::File::open(path).map_err(failed("open"))?;
    let length = file.metadata().map_err(failed("measure"))?.len();
    if length > JSON_MAX {
        let problem = "a file of JSON is read as a whole, and this one is larger than 1 GiB";
        return Err(Error::at_byte(path, JSON_MAX, problem));
    }
    let mut text = Vec::new();
    file.read_to_end(&mut text).map_err(failed("read"))?;
    Ok(text)
}

/// As [`values`], of text.
pub fn parse(text: &[u8], path: &Path) -> Result<(Vec<Json>, Torn)> {
    let mut found = Vec::new();
    let mut stream = serde_json::Deserializer::from_slice(text).into_iter::<Json>();
    let mut torn = Torn::No;
    while let Some(value) = stream.next() {
        match value {
            Ok(value) => found.push(value),
            // What is whole in it is kept.
            Err(error) if error.is_eof() => {
                torn = Torn::Cut;
                let rest = text.get(stream.byte_offset()..).unwrap_or_default();
                if let Some((value, ends)) = repaired(rest) {
                    found.push(value);
                    torn = ends;
                }
                break;
            }
            Err(error) => {
                let place = Place::Line(error.line() as u64);
                let problem = format!("this is no JSON: {error}");
                return Err(Error::Malformed { path: path.to_owned(), place, problem });
            }
        }
    }
    if found.is_empty() && torn != Torn::No {
        return Err(Error::at_byte(path, text.len() as u64, "the file was cut off"));
    }
    Ok((found, torn))
}

/// A value that was cut off, up to the last element that is whole: brackets that are open are closed. And
/// whether it was cut within an element.
fn repaired(text: &[u8]) -> Option<(Json, Torn)> {
    let (mut open, mut quoted, mut escaped) = (Vec::new(), false, false);
    // Where the last whole element ends, and what was open there.
    let mut whole: Option<(usize, Vec<u8>)> = None;
    for (at, byte) in text.iter().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            _ if quoted => {}
            b'{' => open.push(b'}'),
            b'[' => open.push(b']'),
            b'}' | b']' => {
                open.pop();
                if open.last() == Some(&b']') {
                    whole = Some((at + 1, open.clone()));
                }
            }
            _ => {}
        }
    }
    let (end, open) = whole?;
    let (before, behind) = text.split_at_checked(end)?;
    let behind = behind.trim_ascii();
    let torn = match open == b"]" && matches!(behind, b"" | b",") {
        true => Torn::Unclosed,
        false => Torn::Cut,
    };
    let mut text = before.to_vec();
    text.extend(open.iter().rev());
    Some((serde_json::from_slice(&text).ok()?, torn))
}

/// What stands at a JSON pointer; nothing is null.
pub fn at<'a>(value: &'a Json, pointer: &str) -> &'a Json {
    value.pointer(pointer).unwrap_or(&Json::Null)
}

/// A text of a value, whatever it is.
pub fn text(value: &Json) -> String {
    match value {
        Json::String(text) => text.clone(),
        Json::Null => String::new(),
        other => other.to_string(),
    }
}

/// A number, which may be written as a text.
pub fn number(value: &Json) -> Option<u64> {
    value.as_u64().or_else(|| value.as_str()?.parse().ok())
}

/// Microseconds with a fraction, as nanoseconds.
pub fn micros(value: &Json) -> Option<u64> {
    if let Some(whole) = value.as_u64() {
        return whole.checked_mul(1000);
    }
    let micros = value.as_f64().or_else(|| value.as_str()?.parse().ok())?;
    (0.0..1.8e16).contains(&micros).then(|| (micros * 1000.0).round() as u64)
}

/// Members of an object as one text, which is not too long for a field.
pub fn members(value: &Json) -> String {
    let shown = value.as_object().into_iter().flatten();
    let shown = shown.map(|(key, value)| format!("{key}={}", text(value)));
    let mut shown = shown.collect::<Vec<_>>().join(", ");
    cut(&mut shown, 255);
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_cut_off_is_kept_as_far_as_it_is_whole() {
        let whole = br#"{"traceEvents":[{"a":"]}"},{"b":[1]}"#;
        let (found, torn) = parse(whole, Path::new("x")).unwrap();
        assert_eq!((found[0]["traceEvents"].as_array().unwrap().len(), torn), (2, Torn::Cut));
        let (found, torn) = parse(b"{\"a\":1}\n{\"a\":2}\n{\"a\":", Path::new("x")).unwrap();
        assert_eq!((found.len(), torn), (2, Torn::Cut));
        assert!(parse(b"{\"a\":", Path::new("x")).is_err());
        assert!(parse(b"{\"a\" 1}", Path::new("x")).unwrap_err().to_string().contains("line 1"));
    }

    #[test]
    fn a_list_may_lack_its_bracket_alone() {
        let ends = |text: &str| {
            let (found, torn) = parse(text.as_bytes(), Path::new("x")).unwrap();
            (found[0].as_array().unwrap().len(), torn)
        };
        for rest in ["", ",", " ,\n\n", "\n"] {
            assert_eq!(
                ends(&format!("[{{\"a\":[1]}},{{}}{rest}")),
                (2, Torn::Unclosed),
                "{rest:?}"
            );
        }
        for rest in [",{", ",{\"a\":1", ", 7"] {
            assert_eq!(ends(&format!("[{{\"a\":[1]}},{{}}{rest}")), (2, Torn::Cut), "{rest:?}");
        }
        assert_eq!(ends("[{}]"), (1, Torn::No));
    }
}
