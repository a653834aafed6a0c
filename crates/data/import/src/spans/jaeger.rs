//! Jaeger's JSON, as its page and its API give it.

use std::path::Path;

use serde_json::Value as Json;

use super::{About, LeftOut, Moments, Span, Spans, Torn, number, said, text, values};
use crate::error::Result;
use crate::syscalls::args::cut;

/// Reads a file.
pub fn open(path: &Path) -> Result<Moments> {
    Ok(read(path)?.moments())
}

/// The spans of a file.
pub fn read(path: &Path) -> Result<Spans> {
    let (answers, torn) = values(path)?;
    Ok(spans(&answers, torn))
}

/// The spans of answers.
pub fn spans(answers: &[Json], torn: Torn) -> Spans {
    let mut spans: Vec<Span> = Vec::new();
    let mut left_out = LeftOut::default();
    // An answer has a list of traces; a trace alone is one, too.
    let traces = answers.iter().flat_map(|answer| match answer["data"].as_array() {
        Some(traces) => traces.iter().collect(),
        None => vec![answer],
    });
    for trace in traces {
        for span in trace["spans"].as_array().into_iter().flatten() {
            let Some((from_ns, to_ns)) = times(span) else {
                left_out.count(&[&span["startTime"], &span["duration"]]);
                continue;
            };
            let processes = &trace["processes"];
            let process = &processes[text(&span["processID"])];
            let parents = span["references"].as_array().into_iter().flatten();
            let parent = parents.filter(|it| it["refType"] == "CHILD_OF").map(|it| &it["spanID"]);
            let tag = |of: &Json, wanted: &str| {
                let mut tags = of["tags"].as_array().into_iter().flatten();
                tags.find(|tag| tag["key"] == wanted).map(|tag| tag["value"].clone())
            };
            let of_process = || tag(process, "process.pid").or_else(|| tag(process, "pid"));
            let pid = tag(span, "process.pid").or_else(of_process);
            let tid = tag(span, "thread.id");
            let wrong = tag(span, "error").is_some_and(|error| text(&error) == "true");
            let said = |of: &Json, wanted: &str| tag(of, wanted).as_ref().map(text);
            let kind = said(span, "span.kind").unwrap_or_default().to_lowercase();
            let about = About {
                instance: said::instance(&|wanted| said(process, wanted)),
                peers: said::peers(&|wanted| said(span, wanted)),
                port: said::port(&kind, &|wanted| said(span, wanted)),
                kind,
            };
            spans.push(Span {
                from_ns,
                to_ns,
                pid: pid.as_ref().and_then(number).unwrap_or(0) as u32,
                tid: tid.as_ref().and_then(number).unwrap_or(0) as u32,
                trace: text(&span["traceID"]),
                span: text(&span["spanID"]),
                parent: parent.map(text).next().unwrap_or_default(),
                service: text(&process["serviceName"]),
                name: text(&span["operationName"]),
                status: if wrong { "error" } else { "" },
                attributes: tags(&span["tags"]),
                about,
                found: None,
            });
        }
    }
    let losses = vec![
        ("spans without a beginning or a duration", left_out.timeless),
        (LeftOut::UNFIT, left_out.unfit),
        (Torn::CUT, torn.count()),
    ];
    Spans { spans, losses }
}

/// When a span began and ended, in nanoseconds.
fn times(span: &Json) -> Option<(u64, u64)> {
    let from_ns = number(&span["startTime"])?.checked_mul(1000)?;
    let took_ns = number(&span["duration"])?.checked_mul(1000)?;
    Some((from_ns, from_ns.checked_add(took_ns)?))
}

fn tags(tags: &Json) -> String {
    let shown = tags.as_array().into_iter().flatten();
    let shown = shown.map(|tag| format!("{}={}", text(&tag["key"]), text(&tag["value"])));
    let mut shown = shown.collect::<Vec<_>>().join(", ");
    cut(&mut shown, 255);
    shown
}
