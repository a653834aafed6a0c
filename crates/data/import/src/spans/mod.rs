//! Spans of tracing libraries.
//!
//! A span is two events, `span_begin` and `span_end`, with the trace, the span and the one that it is
//! a child of. Those of JSON files come in no order, so they are put in order in memory: some hundred
//! bytes for a span, which is far less than the JSON takes.

pub mod chrome;
pub mod jaeger;
pub mod otlp;
mod said;
pub mod without_ids;

use std::io::Read;
use std::path::Path;

use fettle_trace::{EventField, FieldType};
use serde_json::Value as Json;

use crate::error::{Error, Place, Result};
use crate::sink::{At, Sink, task_fields};
use crate::source::{Context, Source};
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
    moments: std::vec::IntoIter<Moment>,
    next: Option<Moment>,
    names: Vec<(u32, u32, String)>,
    losses: Vec<(&'static str, u64)>,
    notes: Vec<String>,
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
        let mut moments = moments.into_iter();
        let next = moments.next();
        Moments { moments, next, names, losses, notes: Vec::new() }
    }
}

impl Source for Moments {
    fn next_ns(&mut self) -> Result<Option<u64>> {
        Ok(self.next.as_ref().map(|moment| moment.time_ns))
    }

    fn take(&mut self, context: &mut Context) -> Result<()> {
        let Some(moment) = std::mem::replace(&mut self.next, self.moments.next()) else {
            return Ok(());
        };
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
        self.losses.iter().copied().filter(|(_, count)| *count > 0).collect()
    }

    fn finish(&mut self, sink: &mut Sink) {
        for (reason, count) in self.losses.drain(..) {
            sink.lose(reason, count);
        }
        for note in self.notes.drain(..) {
            sink.note(note);
        }
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
        for span in self.spans {
            span.moments(&mut moments);
        }
        Moments::new(moments, Vec::new(), self.losses)
    }
}

impl Span {
    /// Its beginning and its end.
    pub fn moments(self, moments: &mut Vec<Moment>) {
        let Span { pid, tid, .. } = self;
        let (trace, span) = (self.trace.clone(), self.span.clone());
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
            texts: vec![("trace", trace), ("span", span), ("status", self.status.to_owned())],
            numbers: vec![("duration_ns", (to_ns - self.from_ns) as i64)],
        });
    }
}

/// The JSON values of a file: one, or one a line. A last one that was cut off is counted.
pub fn values(path: &Path) -> Result<(Vec<Json>, u64)> {
    let failed = |action| move |e| Error::io(action, path, e);
    let mut file = std::fs::File::open(path).map_err(failed("open"))?;
    let length = file.metadata().map_err(failed("measure"))?.len();
    if length > JSON_MAX {
        let problem = "a file of JSON is read as a whole, and this one is larger than 1 GiB";
        return Err(Error::at_byte(path, JSON_MAX, problem));
    }
    let mut text = Vec::new();
    file.read_to_end(&mut text).map_err(failed("read"))?;
    parse(&text, path)
}

/// As [`values`], of text.
pub fn parse(text: &[u8], path: &Path) -> Result<(Vec<Json>, u64)> {
    let mut found = Vec::new();
    let mut stream = serde_json::Deserializer::from_slice(text).into_iter::<Json>();
    let mut torn = 0;
    while let Some(value) = stream.next() {
        match value {
            Ok(value) => found.push(value),
            // Chrome's array may end without its bracket: what is whole is in it.
            Err(error) if error.is_eof() => {
                torn = 1;
                let rest = text.get(stream.byte_offset()..).unwrap_or_default();
                found.extend(repaired(rest));
                break;
            }
            Err(error) => {
                let place = Place::Line(error.line() as u64);
                let problem = format!("this is no JSON: {error}");
                return Err(Error::Malformed { path: path.to_owned(), place, problem });
            }
        }
    }
    if found.is_empty() && torn > 0 {
        return Err(Error::at_byte(path, text.len() as u64, "the file was cut off"));
    }
    Ok((found, torn))
}

/// A value that was cut off, up to the last element that is whole: brackets that are open are closed.
fn repaired(text: &[u8]) -> Option<Json> {
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
    let mut text = text.get(..end)?.to_vec();
    text.extend(open.iter().rev());
    serde_json::from_slice(&text).ok()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_cut_off_is_kept_as_far_as_it_is_whole() {
        let whole = br#"{"traceEvents":[{"a":"]}"},{"b":[1]}"#;
        let (found, torn) = parse(whole, Path::new("x")).unwrap();
        assert_eq!((found[0]["traceEvents"].as_array().unwrap().len(), torn), (2, 1));
        let (found, torn) = parse(b"{\"a\":1}\n{\"a\":2}\n{\"a\":", Path::new("x")).unwrap();
        assert_eq!((found.len(), torn), (2, 1));
        assert!(parse(b"{\"a\":", Path::new("x")).is_err());
        assert!(parse(b"{\"a\" 1}", Path::new("x")).unwrap_err().to_string().contains("line 1"));
    }
}
