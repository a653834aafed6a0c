//! Zipkin's spans, version 2 of its JSON: a list of spans, one a line, or its API's list of traces.
//!
//! The two sides of a call may report one span with one id: then the side that was asked marks its own
//! as `shared`. Here each is a span, the shared one below the other.

use std::path::Path;

use rustc_hash::FxHashMap;
use serde_json::Value as Json;

use super::{About, LeftOut, Moments, Span, Spans, Torn, at, members, micros, said, text, values};
use crate::error::Result;

/// Reads a file.
pub fn open(path: &Path) -> Result<Moments> {
    Ok(read(path)?.moments())
}

/// The spans of a file.
pub fn read(path: &Path) -> Result<Spans> {
    let (lists, torn) = values(path)?;
    Ok(spans(&lists, torn))
}

/// The spans of lists, of lists of traces, and those that stand alone.
pub fn spans(lists: &[Json], torn: Torn) -> Spans {
    let mut all: Vec<&Json> = Vec::new();
    for list in lists {
        for trace in elements(list) {
            all.extend(elements(trace));
        }
    }
    // The sides that were asked of spans that both sides report: who they are, by trace and span.
    let mut shared: FxHashMap<(String, String), String> = FxHashMap::default();
    for span in all.iter().filter(|span| span["shared"] == true) {
        shared.insert((text(&span["traceId"]), text(&span["id"])), service(span));
    }
    let mut spans = Vec::with_capacity(all.len());
    let mut left_out = LeftOut::default();
    let mut foreign = 0;
    for span in all {
        if !span["traceId"].is_string() {
            foreign += 1;
            continue;
        }
        let (Some(from_ns), Some(took_ns)) =
            (micros(&span["timestamp"]), micros(&span["duration"]))
        else {
            left_out.count(&[&span["timestamp"], &span["duration"]]);
            continue;
        };
        let Some(to_ns) = from_ns.checked_add(took_ns) else {
            left_out.unfit += 1;
            continue;
        };
        spans.push(one(span, (from_ns, to_ns), &shared));
    }
    let losses = vec![
        ("spans without a beginning or a duration", left_out.timeless),
        (LeftOut::UNFIT, left_out.unfit),
        ("values that are no spans", foreign),
        (Torn::CUT, torn.count()),
    ];
    Spans { spans, losses }
}

/// The elements of a list; what is no list is its own.
fn elements(value: &Json) -> &[Json] {
    value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice)
}

/// Who reported a span.
fn service(span: &Json) -> String {
    text(at(span, "/localEndpoint/serviceName"))
}

/// What a side that was asked is called, where the one that asks has the same id.
fn of_shared(id: &str) -> String {
    format!("{id}/shared")
}

fn one(
    span: &Json,
    (from_ns, to_ns): (u64, u64),
    shared: &FxHashMap<(String, String), String>,
) -> Span {
    let (trace, id) = (text(&span["traceId"]), text(&span["id"]));
    let service = service(span);
    let is_shared = span["shared"] == true;
    let own_parent = text(&span["parentId"]);
    let parent = match is_shared {
        true => id.clone(),
        // What a service did for a question is below its own side of it.
        false if shared.get(&(trace.clone(), own_parent.clone())) == Some(&service) => {
            of_shared(&own_parent)
        }
        false => own_parent,
    };
    let tags = &span["tags"];
    let tag = |wanted: &str| tags.get(wanted).map(text);
    let number = |names: [&str; 2]| -> u32 {
        names.iter().find_map(|name| tag(name)?.parse().ok()).unwrap_or(0)
    };
    let kind = text(&span["kind"]).to_lowercase();
    let mut peers = said::peers(&tag);
    let remote = text(at(span, "/remoteEndpoint/serviceName"));
    if !remote.is_empty() {
        peers.insert(0, remote);
    }
    let address = text(at(span, "/localEndpoint/ipv4"));
    Span {
        from_ns,
        to_ns,
        pid: number(["process.pid", "pid"]),
        tid: number(["thread.id", "thread_id"]),
        trace,
        span: if is_shared { of_shared(&id) } else { id },
        parent,
        service,
        name: text(&span["name"]),
        // The tag is there if something went wrong, whatever it says.
        status: if tag("error").is_some_and(|error| error != "false") { "error" } else { "" },
        attributes: members(tags),
        about: About {
            instance: match said::instance(&tag) {
                instance if instance.is_empty() => address,
                instance => instance,
            },
            peers,
            port: said::port(&kind, &tag),
            kind,
        },
        found: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_two_sides_of_a_shared_span_are_two() {
        let span = |id: &str, parent: &str, service: &str, more: &str| {
            format!(
                r#"{{"traceId":"t","id":"{id}","parentId":"{parent}","name":"{service}","timestamp":7,"duration":5,"localEndpoint":{{"serviceName":"{service}"}}{more}}}"#
            )
        };
        let text = format!(
            "[[{},{},{},{}],[]]",
            span("1", "", "web", ""),
            span("2", "1", "web", r#","kind":"CLIENT","remoteEndpoint":{"serviceName":"cart"}"#),
            span("2", "1", "cart", r#","kind":"SERVER","shared":true"#),
            span("3", "2", "cart", "")
        );
        let (lists, torn) = super::super::parse(text.as_bytes(), Path::new("x")).unwrap();
        let read = spans(&lists, torn).spans;
        let ids: Vec<_> = read.iter().map(|it| (it.span.as_str(), it.parent.as_str())).collect();
        assert_eq!(ids, [("1", ""), ("2", "1"), ("2/shared", "2"), ("3", "2/shared")]);
        assert_eq!(
            (read[1].about.kind.as_str(), &*read[1].about.peers),
            ("client", &["cart".to_owned()][..])
        );
        assert_eq!((read[0].from_ns, read[0].to_ns), (7_000, 12_000));
    }
}
