//! Calls that generated stubs reported, as spans with the calls' own ids: what reads them next to spans of other
//! programs puts them together with these.

use std::collections::HashMap;
use std::io::Write;

use fettle_abi::rpc::STATUS;
use fettle_requests::{CERTAIN, Certainty, Strings};
use fettle_trace::Trace;
use serde_json::{Value, json};

use crate::error::{Error, Result};

/// Fields of an event that begins a call, in this order.
const BEGIN: [&str; 4] = ["trace", "span", "parent", "side"];
/// Those that it has if the call's parent was found without an id.
const FOUND: [&str; 2] = ["candidates", "likely"];
/// Of one that ends a call.
const END: [&str; 9] =
    ["trace", "span", "side", "method", "status", "ended", "sent", "received", "pid"];

/// Those that are the server's fault, as OpenTelemetry's conventions have it.
const SERVER_FAULTS: [&str; 6] =
    ["UNKNOWN", "DEADLINE_EXCEEDED", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS"];

/// Writes the calls of a trace as spans for collectors of OpenTelemetry, a line for each. Returns how many;
/// `None` if the trace is not one of calls that stubs reported.
///
/// # Errors
///
/// [`Error::Output`] if `out` fails, a closed pipe included; those of reading the trace.
pub fn export_calls(trace: &Trace, out: &mut dyn Write) -> Result<Option<u64>> {
    let (mut stream, _) = trace.events(&mut |kind| match kind.name.as_str() {
        "rpc_begin" => kind.places(&BEGIN).map(|mut begin| {
            begin.extend(kind.places(&FOUND).unwrap_or_default());
            begin
        }),
        "rpc_end" => kind.places(&END),
        _ => None,
    })?;
    let kinds: Vec<bool> = stream.kinds().map(|kind| kind.name == "rpc_end").collect();
    let found: Vec<bool> = stream.kinds().map(|kind| kind.places(&FOUND).is_some()).collect();
    if kinds.len() < 2 {
        return Ok(None);
    }
    let processes = trace.processes().unwrap_or_default();
    let names = processes.iter().map(|process| (u64::from(process.pid), process.program()));
    let names: HashMap<u64, &str> = names.collect();
    let unix_ns = trace.manifest().start_unix_ns;
    let mut strings = Strings::default();
    // By trace, span and side: the parent's span, the beginning, and how certain the parent is.
    let mut open: HashMap<[u64; 3], (u64, u64, Certainty)> = HashMap::new();
    let mut written = 0;
    while let Some(run) = stream.next(u64::MAX, &mut |text| strings.code(text))? {
        for (row, time_ns) in run.times_ns().iter().enumerate() {
            let value = |place: usize| run.values(place)[row];
            if !kinds[run.kind] {
                let [trace, span, parent, side] = [0, 1, 2, 3].map(value);
                let certainty = match found[run.kind] {
                    true => Certainty::new(value(4), value(5)),
                    false => Certainty::Seen,
                };
                open.insert([trace, span, side], (parent, *time_ns, certainty));
                continue;
            }
            let [trace, span, side, method, status, ended, sent, received, pid] =
                [0, 1, 2, 3, 4, 5, 6, 7, 8].map(value);
            let begun = open.remove(&[trace, span, side]);
            let (parent, begin_ns, certainty) = begun.unwrap_or((0, *time_ns, Certainty::Seen));
            let text = |code: u64| strings.of_value(code);
            let call = Call {
                trace: text(trace),
                span: text(span),
                parent: if begun.is_some() { text(parent) } else { "" },
                is_server: text(side) == "server",
                method: text(method),
                status: text(status),
                ended: text(ended),
                messages: [sent, received],
                times_ns: [begin_ns, *time_ns].map(|ns| unix_ns.saturating_add(ns)),
                pid,
                process: names.get(&pid).copied().filter(|name| !name.is_empty()),
                certainty,
            };
            writeln!(out, "{}", call.request()).map_err(Error::Output)?;
            written += 1;
        }
    }
    out.flush().map_err(Error::Output)?;
    Ok(Some(written))
}

/// A call, as its stub reported it.
struct Call<'a> {
    trace: &'a str,
    span: &'a str,
    parent: &'a str,
    is_server: bool,
    method: &'a str,
    status: &'a str,
    ended: &'a str,
    /// Sent and received.
    messages: [u64; 2],
    /// Begin and end, since 1970.
    times_ns: [u64; 2],
    pid: u64,
    process: Option<&'a str>,
    /// Of its parent.
    certainty: Certainty,
}

impl Call<'_> {
    /// One request to a collector.
    fn request(&self) -> Value {
        let text = |key: &str, of: &str| json!({ "key": key, "value": { "stringValue": of } });
        let number =
            |key: &str, of: u64| json!({ "key": key, "value": { "intValue": of.to_string() } });
        let (service, method) = self.method.rsplit_once('/').unwrap_or(("", self.method));
        let mut attributes = vec![
            text("rpc.system", "grpc"),
            text("rpc.service", service),
            text("rpc.method", method),
            text("fettle.ended", self.ended),
            number("fettle.messages_sent", self.messages[0]),
            number("fettle.messages_received", self.messages[1]),
        ];
        // As on spans of requests: what an id says needs no word.
        if self.certainty != Certainty::Seen {
            attributes.push(text("fettle.certainty", self.certainty.name()));
        }
        if self.certainty.is_choice() {
            let likely = f64::from(self.certainty.likely()) / f64::from(CERTAIN);
            attributes.push(json!({ "key": "fettle.likely", "value": { "doubleValue": likely } }));
            attributes.push(number("fettle.candidates", self.certainty.candidates().into()));
        }
        let code = STATUS.iter().position(|name| *name == self.status);
        attributes.extend(code.map(|code| number("rpc.grpc.status_code", code as u64)));
        // A server that answers "not found" does what it should; its client did not get what it asked for.
        let failed = match self.is_server {
            true => SERVER_FAULTS.contains(&self.status) || code.is_none(),
            false => self.status != "OK",
        };
        let [begin, end] = self.times_ns.map(|ns| ns.to_string());
        let mut span = json!({
            "traceId": self.trace, "spanId": self.span, "name": self.method,
            "kind": if self.is_server { 2 } else { 3 },
            "startTimeUnixNano": begin, "endTimeUnixNano": end,
            "attributes": attributes,
            "status": if failed { json!({ "code": 2, "message": self.status }) } else { json!({}) },
        });
        if !self.parent.is_empty() {
            span["parentSpanId"] = json!(self.parent);
        }
        let name = self.process.map_or_else(|| format!("process {}", self.pid), str::to_owned);
        let resource = [text("service.name", &name), number("process.pid", self.pid)];
        json!({ "resourceSpans": [{
            "resource": { "attributes": resource },
            "scopeSpans": [{ "scope": { "name": "fettle" }, "spans": [span] }],
        }] })
    }
}
