//! Requests as spans, for programs that show distributed traces.
//!
//! A request is a trace. Its root span is as long as the request; below it is a span for each stay at
//! a thread, as a child of the one that the work came from, and below that one for each wait. Threads
//! of one process are one service.

use std::collections::BTreeMap;
use std::io::Write;

use fettle_requests::{CERTAIN, Peer, Request, State};
use serde_json::{Value, json};

use crate::error::{Error, Result};
use crate::perfetto::Perfetto;
use crate::session::{Context, Session};
use crate::span::Span;

/// A format for spans.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SpanFormat {
    /// OpenTelemetry's protocol as JSON, a line for each request: what a collector's `otlpjsonfile`
    /// receiver reads.
    Otlp,
    /// Jaeger's JSON: what its page and Grafana open as a file.
    Jaeger,
    /// Perfetto's: what ui.perfetto.dev opens.
    Perfetto,
}

impl SpanFormat {
    /// What files of this format are usually called, after the trace's name.
    pub fn extension(self) -> &'static str {
        match self {
            SpanFormat::Otlp => "otlp.jsonl",
            SpanFormat::Jaeger => "jaeger.json",
            SpanFormat::Perfetto => "requests.pftrace",
        }
    }
}

/// What numbers of traces and times begin from.
#[derive(Clone, Copy)]
struct Origin {
    unix_ns: u64,
}

impl Origin {
    /// The number of a request among all that anybody records: by the moment of the recording.
    fn trace(self, request: &Request) -> String {
        let low = (request.schema as u64) << 56 ^ (request.id + 1);
        format!("{:016x}{low:016x}", self.unix_ns.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn span(self, request: &Request, number: u64) -> String {
        format!("{:016x}", (request.id + 1) << 20 ^ number)
    }
}

impl Session<'_> {
    /// Writes all requests as spans. Returns how many.
    ///
    /// # Errors
    ///
    /// [`Error::Output`] if `out` fails, a closed pipe included.
    pub fn export(&self, format: SpanFormat, out: &mut dyn Write) -> Result<u64> {
        let origin = Origin { unix_ns: self.trace.manifest().start_unix_ns };
        let mut written = 0;
        let mut failed = None;
        let write = |out: &mut dyn Write, text: &[u8]| out.write_all(text);
        let mut perfetto = Perfetto::default();
        if format == SpanFormat::Jaeger {
            write(out, b"{\"data\":[").map_err(Error::Output)?;
        }
        self.run(&mut |request, context| {
            let spans = spans(request, context);
            let line = match format {
                SpanFormat::Perfetto => perfetto.request(&spans),
                SpanFormat::Otlp => format!("{}\n", otlp(request, &spans, origin)).into_bytes(),
                SpanFormat::Jaeger => {
                    let comma = if written > 0 { ",\n" } else { "\n" };
                    format!("{comma}{}", jaeger(request, &spans, origin)).into_bytes()
                }
            };
            written += 1;
            failed = write(out, &line).err();
            failed.is_none()
        })?;
        if let Some(error) = failed {
            return Err(Error::Output(error));
        }
        if format == SpanFormat::Jaeger {
            write(out, b"\n]}\n").map_err(Error::Output)?;
        }
        out.flush().map_err(Error::Output)?;
        Ok(written)
    }
}

fn spans(request: &Request, context: &Context<'_>) -> Vec<Span> {
    let row = context.row(request);
    let mut tags = vec![
        ("fettle.request", json!(row.id)),
        ("fettle.outcome", json!(row.outcome)),
        ("fettle.events", json!(row.events)),
    ];
    for (state, ns) in row.times_ns.by_state() {
        if ns > 0 {
            tags.push((time_tag(state), json!(ns)));
        }
    }
    tags.push(("fettle.certainty", json!(row.certainty)));
    if request.certainty.is_choice() {
        tags.push(("fettle.likely", json!(f64::from(row.likely) / f64::from(CERTAIN))));
        tags.push(("fettle.candidates", json!(row.candidates)));
    }
    if !request.shared_with.is_empty() {
        tags.push(("fettle.shared_with", json!(request.shared_with)));
    }
    let mut spans = vec![Span {
        number: 1,
        parent: None,
        service: row.path.first().cloned().unwrap_or_else(|| "fettle".into()),
        name: row.class,
        from_ns: request.begin_ns,
        to_ns: request.end_ns,
        tags,
    }];
    let mut number = 1;
    // The span of each stay at an actor; stays without one are not exported.
    let mut of_section: BTreeMap<u32, u64> = BTreeMap::new();
    for (section, stay) in (0u32..).zip(&request.sections) {
        if !stay.actor {
            continue;
        }
        number += 1;
        let actor = context.actor(request, stay.timeline, stay.key, stay.joined_ns);
        let came = request.links.iter().filter(|link| link.to == section);
        let came =
            came.filter(|link| link.to_ns <= stay.joined_ns).find_map(|link| match link.from {
                Peer::Section(from) => of_section.get(&from).copied(),
                Peer::Outsider { .. } => None,
            });
        of_section.insert(section, number);
        let service = actor.process.clone().unwrap_or_else(|| actor.name.clone());
        let own = request.spans.iter().filter(|span| span.section == section);
        // What lay there for it lay there before it took it.
        let from_ns = own.clone().map(|span| span.from_ns).fold(stay.joined_ns, u64::min);
        let within = |ns: u64| ns.clamp(request.begin_ns, request.end_ns);
        let (from_ns, to_ns) = (within(from_ns), within(stay.left_ns));
        let ids = [("process.pid", actor.pid), ("thread.id", actor.tid)];
        let tags = ids.into_iter().filter_map(|(tag, id)| Some((tag, json!(id?)))).collect();
        let (parent, stay_number) = (Some(came.unwrap_or(1)), number);
        let name = actor.name;
        spans.push(Span { number, parent, service: service.clone(), name, from_ns, to_ns, tags });
        for span in own.filter(|span| span.state != State::Running && span.to_ns > span.from_ns) {
            number += 1;
            let mut tags = vec![("fettle.state", json!(span.state.name()))];
            if span.shared {
                tags.push(("fettle.shared", json!(true)));
            }
            spans.push(Span {
                number,
                parent: Some(stay_number),
                service: service.clone(),
                name: match span.state {
                    State::Runnable | State::Queued => span.state.name().into(),
                    state => format!("waits: {}", state.name()),
                },
                from_ns: span.from_ns,
                to_ns: span.to_ns,
                tags,
            });
        }
    }
    spans
}

fn time_tag(state: State) -> &'static str {
    const TAGS: [&str; State::ALL.len()] = [
        "fettle.running_ns",
        "fettle.runnable_ns",
        "fettle.queued_ns",
        "fettle.lock_ns",
        "fettle.disk_ns",
        "fettle.network_ns",
        "fettle.sleeping_ns",
    ];
    TAGS[state.index()]
}

/// One request to a collector: its spans by service.
fn otlp(request: &Request, spans: &[Span], origin: Origin) -> Value {
    let value = |value: &Value| match value {
        Value::Number(number) => json!({ "intValue": number.to_string() }),
        Value::Bool(flag) => json!({ "boolValue": flag }),
        Value::String(text) => json!({ "stringValue": text }),
        other => json!({ "stringValue": other.to_string() }),
    };
    let attribute = |(key, of): &(&str, Value)| json!({ "key": key, "value": value(of) });
    let trace = origin.trace(request);
    let unix = |ns: u64| origin.unix_ns.saturating_add(ns).to_string();
    let mut services: BTreeMap<&str, Vec<Value>> = BTreeMap::new();
    for span in spans {
        let attributes: Vec<Value> = span.tags.iter().map(attribute).collect();
        let mut made = json!({
            "traceId": trace,
            "spanId": origin.span(request, span.number),
            "name": span.name,
            "kind": if span.parent.is_none() { 2 } else { 1 },
            "startTimeUnixNano": unix(span.from_ns),
            "endTimeUnixNano": unix(span.to_ns),
            "attributes": attributes,
            "status": {},
        });
        if let Some(parent) = span.parent {
            made["parentSpanId"] = json!(origin.span(request, parent));
        }
        services.entry(&span.service).or_default().push(made);
    }
    let resource = |(service, spans): (&str, Vec<Value>)| {
        json!({
            "resource": {
                "attributes": [{ "key": "service.name", "value": { "stringValue": service } }],
            },
            "scopeSpans": [{ "scope": { "name": "fettle" }, "spans": spans }],
        })
    };
    json!({ "resourceSpans": services.into_iter().map(resource).collect::<Vec<_>>() })
}

/// One trace of Jaeger's.
fn jaeger(request: &Request, spans: &[Span], origin: Origin) -> Value {
    let trace = origin.trace(request);
    let mut processes: Vec<&str> = spans.iter().map(|span| span.service.as_str()).collect();
    processes.sort_unstable();
    processes.dedup();
    let process = |service: &str| {
        let place = processes.iter().position(|known| *known == service).unwrap_or(0);
        format!("p{}", place + 1)
    };
    let tag = |(key, value): &(&str, Value)| match value {
        Value::Number(_) => json!({ "key": key, "type": "int64", "value": value }),
        Value::Bool(_) => json!({ "key": key, "type": "bool", "value": value }),
        Value::String(_) => json!({ "key": key, "type": "string", "value": value }),
        other => json!({ "key": key, "type": "string", "value": other.to_string() }),
    };
    let span = |span: &Span| {
        let reference = |parent| {
            json!({
                "refType": "CHILD_OF",
                "traceID": trace,
                "spanID": origin.span(request, parent),
            })
        };
        json!({
            "traceID": trace,
            "spanID": origin.span(request, span.number),
            "operationName": span.name,
            "references": span.parent.into_iter().map(reference).collect::<Vec<_>>(),
            "startTime": origin.unix_ns.saturating_add(span.from_ns) / 1000,
            "duration": span.to_ns.saturating_sub(span.from_ns).div_ceil(1000),
            "tags": span.tags.iter().map(tag).collect::<Vec<_>>(),
            "logs": [],
            "processID": process(&span.service),
        })
    };
    let named = processes
        .iter()
        .map(|service| (process(service), json!({ "serviceName": service, "tags": [] })));
    json!({
        "traceID": trace,
        "spans": spans.iter().map(span).collect::<Vec<_>>(),
        "processes": named.collect::<serde_json::Map<_, _>>(),
    })
}
