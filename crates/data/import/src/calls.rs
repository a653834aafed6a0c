//! Calls that stubs of protoc-gen-fettle reported: what `fettle sensors read rpc.calls --json` writes,
//! with the names of services, methods and fields from the names files next to the stubs.
//!
//! A call is one event, committed at its end; it becomes `rpc_begin` and `rpc_end`, and an event of the
//! method with the fields that are marked in the service's description. Hooks become `rpc_hook`.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use fettle_abi::rpc;
use fettle_trace::{EventField, FieldType};
use serde_json::Value as Json;

use crate::error::{Error, Result};
use crate::lines::Lines;
use crate::sink::{At, Sink, field_name, number_apart, task_fields};
use crate::source::{Context, Source};
use crate::spans::values;

/// Version of names files.
const VERSION: u64 = 1;

/// Names of the hooks, by number.
const HOOKS: [&str; 17] = [
    "default_includes",
    "init_server",
    "variable_declaration",
    "before_call",
    "after_call",
    "before_dispatch",
    "after_dispatch",
    "before_reply_only",
    "after_reply_only",
    "before_reply_wait",
    "after_reply_wait",
    "before_component",
    "after_component",
    "before_unmarshal",
    "after_unmarshal",
    "before_marshal",
    "after_marshal",
];

/// What a field of a method holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Unsigned,
    Signed,
    Float,
    Text,
}

#[derive(Clone, Debug)]
struct Named {
    name: String,
    kind: Kind,
    word: usize,
}

#[derive(Clone, Debug)]
struct Method {
    /// `service/method`.
    name: String,
    /// The event with its fields.
    event: String,
    fields: Vec<Named>,
}

/// What numbers in events mean.
#[derive(Clone, Debug, Default)]
pub struct Names {
    methods: HashMap<(u32, u16), Method>,
}

impl Names {
    /// Adds those of a file.
    pub fn read(&mut self, path: &Path) -> Result<()> {
        let (files, _) = values(path)?;
        let bad = |problem: &str| Err(Error::at_line(path, 1, problem));
        for file in &files {
            if file["fettle_calls"].as_u64() != Some(VERSION) {
                return bad("it is no names file of this version (fettle_calls: 1)");
            }
            for service in file["services"].as_array().into_iter().flatten() {
                let Some(name) = service["name"].as_str() else {
                    return bad("a service has no name");
                };
                let number = rpc::service_number(name);
                let methods = service["methods"].as_array().into_iter().flatten();
                for (place, method) in methods.enumerate().take(1 << 16) {
                    let Some(method) = method_of(name, method) else {
                        return bad("a method, or a field of it, is not as it should be");
                    };
                    self.methods.insert((number, place as u16), method);
                }
            }
        }
        Ok(())
    }
}

fn method_of(service: &str, method: &Json) -> Option<Method> {
    let name = method["name"].as_str()?;
    let mut fields = Vec::new();
    // A cell has room for fewer.
    for field in method["fields"].as_array().into_iter().flatten().take(rpc::FIELD_WORDS) {
        let kind = match field["type"].as_str()? {
            "u64" => Kind::Unsigned,
            "i64" => Kind::Signed,
            "f64" => Kind::Float,
            "text" => Kind::Text,
            _ => return None,
        };
        let word = usize::try_from(field["word"].as_u64()?).ok()?;
        fields.push(Named { name: field["name"].as_str()?.to_owned(), kind, word });
    }
    let event: String = format!("{service}_{name}")
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '_' })
        .take(64)
        .collect();
    Some(Method { name: format!("{service}/{name}"), event, fields })
}

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
    moments: std::vec::IntoIter<Moment>,
    next: Option<Moment>,
    losses: Vec<(&'static str, u64)>,
}

/// Reads a file of events.
pub fn open(path: &Path, names: &Names) -> Result<Calls> {
    let mut calls = Reader { names, moments: Vec::new(), nameless: 0, unclear: 0, lost: 0 };
    let mut lines = Lines::open(path)?;
    while lines.advance()? {
        calls.line(lines.text());
    }
    Ok(calls.finish())
}

/// Reads text as a file of events, for fuzzing.
pub fn read_all(text: &str) {
    let names = Names::default();
    let mut calls = Reader { names: &names, moments: Vec::new(), nameless: 0, unclear: 0, lost: 0 };
    text.lines().for_each(|line| calls.line(line));
    drop(calls.finish());
}

struct Reader<'a> {
    names: &'a Names,
    moments: Vec<Moment>,
    nameless: u64,
    unclear: u64,
    lost: u64,
}

impl Reader<'_> {
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
        let [span, what, trace, rest, ..] = *words else { return None };
        let method = self.method(rpc::What::from_word(what));
        let fields = vec![
            ("trace".to_owned(), Owned::Text(trace_text(trace, rest))),
            ("span".to_owned(), Owned::Text(span_text(span))),
            ("method".to_owned(), Owned::Text(method.name)),
            ("hook".to_owned(), Owned::Text(HOOKS.get(hook)?.to_string())),
        ];
        self.moments.push(Moment { time_ns, pid, tid, event: "rpc_hook".to_owned(), fields });
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
        let what = rpc::What::from_word(what);
        let method = self.method(what);
        // Events of different kinds have no order at one time: the fields come between begin and end.
        let time_ns = time_ns.max(began_ns.saturating_add(2));
        let fields_ns = time_ns - 1;
        let text = |name: &str, text: String| (name.to_owned(), Owned::Text(text));
        let number = |name: &str, number: u64| (name.to_owned(), Owned::Unsigned(number));
        let side = if what.flags & rpc::SERVER != 0 { "server" } else { "client" };
        let status = rpc::STATUS.get(usize::from(what.status)).copied().unwrap_or("");
        let ended = rpc::ENDED.get(usize::from(what.ended)).copied().unwrap_or(rpc::ENDED[0]);
        let ids = || vec![text("trace", trace_text(high, low)), text("span", span_text(span))];
        let about = || vec![text("side", side.to_owned()), text("method", method.name.clone())];
        let parent = if parent == 0 { String::new() } else { span_text(parent) };
        let mut fields = ids();
        fields.push(text("parent", parent));
        fields.extend(about());
        let event = "rpc_begin".to_owned();
        self.moments.push(Moment { time_ns: began_ns, pid, tid, event, fields });
        if !method.fields.is_empty() {
            let mut fields = ids();
            for field in &method.fields {
                fields.push((field.name.clone(), field.value(values)));
            }
            let event = method.event.clone();
            self.moments.push(Moment { time_ns: fields_ns, pid, tid, event, fields });
        }
        let mut fields = ids();
        fields.extend(about());
        fields.push(text("status", status.to_owned()));
        fields.push(text("ended", ended.to_owned()));
        fields.push(number("sent", counts & 0xffff_ffff));
        fields.push(number("received", counts >> 32));
        fields.push(number("sent_bytes", sent_bytes));
        fields.push(number("received_bytes", received_bytes));
        fields.push(number("duration_ns", time_ns - began_ns));
        self.moments.push(Moment { time_ns, pid, tid, event: "rpc_end".to_owned(), fields });
        Some(())
    }

    fn finish(mut self) -> Calls {
        self.moments.sort_by_key(|moment| moment.time_ns);
        let mut moments = self.moments.into_iter();
        let next = moments.next();
        let losses = vec![
            ("calls that found no room in their sensor", self.lost),
            ("events of methods that no names file has", self.nameless),
            ("lines that are no events of rpc.calls", self.unclear),
        ];
        Calls { moments, next, losses }
    }
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

fn trace_text(high: u64, low: u64) -> String {
    format!("{high:016x}{low:016x}")
}

fn span_text(span: u64) -> String {
    format!("{span:016x}")
}

impl Source for Calls {
    fn next_ns(&mut self) -> Result<Option<u64>> {
        Ok(self.next.as_ref().map(|moment| moment.time_ns))
    }

    fn take(&mut self, context: &mut Context) -> Result<()> {
        let Some(moment) = std::mem::replace(&mut self.next, self.moments.next()) else {
            return Ok(());
        };
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
        self.losses.iter().copied().filter(|(_, count)| *count > 0).collect()
    }

    fn finish(&mut self, sink: &mut Sink) {
        for (reason, count) in self.losses.drain(..) {
            sink.lose(reason, count);
        }
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
