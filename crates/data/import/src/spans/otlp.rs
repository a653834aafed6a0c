//! OpenTelemetry's protocol as JSON: one request to a collector, or one a line.

use std::path::Path;

use serde_json::Value as Json;

use super::{About, LeftOut, Moments, Span, Spans, Torn, at, number, said, text, values};
use crate::error::Result;
use crate::syscalls::args::cut;

/// Reads a file.
pub fn open(path: &Path) -> Result<Moments> {
    Ok(read(path)?.moments())
}

/// The spans of a file.
pub fn read(path: &Path) -> Result<Spans> {
    let (requests, torn) = values(path)?;
    Ok(spans(&requests, torn))
}

/// The elements of a list that has one of two names.
fn list<'a>(value: &'a Json, names: [&str; 2]) -> &'a [Json] {
    let found = names.iter().find_map(|name| value[*name].as_array());
    found.map(Vec::as_slice).unwrap_or_default()
}

/// The spans of requests.
pub fn spans(requests: &[Json], torn: Torn) -> Spans {
    let mut spans: Vec<Span> = Vec::new();
    let mut left_out = LeftOut::default();
    for resource in requests.iter().flat_map(|it| list(it, ["resourceSpans", "resource_spans"])) {
        let about = at(resource, "/resource/attributes");
        let service = attribute(about, "service.name").map(text).unwrap_or_default();
        let pid = attribute(about, "process.pid").and_then(number).unwrap_or(0) as u32;
        let instance = said::instance(&|wanted| attribute(about, wanted).map(text));
        // As it was called at first.
        let scopes = match resource["scopeSpans"].is_array() {
            true => list(resource, ["scopeSpans", "scope_spans"]),
            false => list(resource, ["instrumentationLibrarySpans", "scope_spans"]),
        };
        for span in scopes.iter().flat_map(|scope| list(scope, ["spans", "spans"])) {
            let time = |keys: [&str; 2]| {
                let found = keys.iter().map(|key| &span[*key]).find(|time| !time.is_null());
                found.unwrap_or(&Json::Null)
            };
            let from = time(["startTimeUnixNano", "start_time_unix_nano"]);
            let to = time(["endTimeUnixNano", "end_time_unix_nano"]);
            let (Some(from_ns), Some(to_ns)) = (number(from), number(to)) else {
                left_out.count(&[from, to]);
                continue;
            };
            let own = &span["attributes"];
            let status = at(span, "/status/code");
            let tid = attribute(own, "thread.id").and_then(number).unwrap_or(0) as u32;
            let own_pid = attribute(own, "process.pid").and_then(number);
            let kind = kind(&span["kind"]);
            spans.push(Span {
                from_ns,
                to_ns,
                pid: own_pid.map_or(pid, |pid| pid as u32),
                tid,
                trace: text(&span["traceId"]),
                span: text(&span["spanId"]),
                parent: text(&span["parentSpanId"]),
                service: service.clone(),
                name: text(&span["name"]),
                status: match number(status) {
                    Some(1) => "ok",
                    Some(2) => "error",
                    _ if status == "STATUS_CODE_ERROR" => "error",
                    _ => "",
                },
                attributes: attributes(own),
                about: About {
                    instance: instance.clone(),
                    peers: said::peers(&|wanted| attribute(own, wanted).map(text)),
                    port: said::port(&kind, &|wanted| attribute(own, wanted).map(text)),
                    kind,
                },
                found: None,
            });
        }
    }
    let losses = vec![
        ("spans without a beginning or an end", left_out.timeless),
        (LeftOut::UNFIT, left_out.unfit),
        (Torn::CUT, torn.count()),
    ];
    Spans { spans, losses }
}

/// A span's kind in small letters: it is a number or a name.
fn kind(kind: &Json) -> String {
    const KINDS: [&str; 6] = ["", "internal", "server", "client", "producer", "consumer"];
    let name = number(kind).and_then(|number| KINDS.get(usize::try_from(number).ok()?));
    let named = || text(kind).trim_start_matches("SPAN_KIND_").to_lowercase();
    name.map_or_else(named, |name| (*name).to_owned())
}

/// The value of an attribute, out of what says its type.
fn attribute<'a>(attributes: &'a Json, wanted: &str) -> Option<&'a Json> {
    let list = attributes.as_array()?;
    let found = list.iter().find(|it| it["key"] == wanted)?;
    found["value"].as_object()?.values().next()
}

fn attributes(attributes: &Json) -> String {
    let mut shown = String::new();
    for one in attributes.as_array().into_iter().flatten() {
        if !shown.is_empty() {
            shown.push_str(", ");
        }
        let value = one["value"].as_object().and_then(|value| value.values().next());
        shown.push_str(&format!("{}={}", text(&one["key"]), value.map(text).unwrap_or_default()));
    }
    cut(&mut shown, 255);
    shown
}
