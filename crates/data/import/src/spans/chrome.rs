//! Chrome's trace events.
//!
//! What is nested on a thread (`B` and `E`, `X`) becomes `call` and `call_end`, the events of recorded
//! calls, so that the schemas of calls work; asynchronous ones (`b`, `e`) become spans; counters,
//! instants and flows are series of their own.

use std::collections::HashMap;
use std::path::Path;

use serde_json::Value as Json;

use super::{CALL, CALL_END, LeftOut, Moment, Moments, Torn, at, micros, number, text, values};
use crate::error::Result;
use crate::syscalls::args::cut;

/// Reads a file.
pub fn open(path: &Path) -> Result<Moments> {
    let (values, torn) = values(path)?;
    Ok(moments(&values, torn))
}

/// An interval or an end of one on a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Edge {
    /// Of those that end at one time, the one that began last is the innermost.
    End(std::cmp::Reverse<u64>),
    /// Of those that begin at one time, the longest is the outermost.
    Begin(std::cmp::Reverse<u64>),
    /// It ends when it begins.
    Instant,
}

/// Begins and ends of one thread, each with its order among those of the same time.
type Edges = Vec<(u64, Edge, String)>;

/// The events of files.
pub fn moments(values: &[Json], torn: Torn) -> Moments {
    let mut moments: Vec<Moment> = Vec::new();
    let mut names = Vec::new();
    let mut unclear = 0;
    let mut left_out = LeftOut::default();
    // By thread: begins and ends with the order among those of the same time.
    let mut nested: HashMap<(u32, u32), Edges> = HashMap::new();
    let lists = values
        .iter()
        .filter_map(|value| value["traceEvents"].as_array().or_else(|| value.as_array()));
    // Of a file of lines each is an event.
    let single = values.iter().filter(|value| value["ph"].is_string());
    for event in lists.flatten().chain(single) {
        // What stands behind the last comma where a recorder writes one behind each event.
        if event.as_object().is_some_and(serde_json::Map::is_empty) {
            continue;
        }
        let phase = event["ph"].as_str().unwrap_or_default();
        let id = |key: &str| number(&event[key]).unwrap_or(0) as u32;
        let (pid, tid) = (id("pid"), id("tid"));
        let name = text(&event["name"]);
        if phase == "M" {
            if name == "thread_name" {
                names.push((pid, tid, text(at(event, "/args/name"))));
            }
            continue;
        }
        let Some(time_ns) = micros(&event["ts"]) else {
            left_out.count(&[&event["ts"]]);
            continue;
        };
        let about = |kind, numbers| Moment {
            time_ns,
            pid,
            tid,
            kind,
            texts: vec![
                ("name", name.clone()),
                ("category", text(&event["cat"])),
                ("arguments", arguments(&event["args"])),
            ],
            numbers,
        };
        let of_thread = nested.entry((pid, tid));
        match phase {
            "X" => {
                let Some(took_ns) = micros(&event["dur"]) else {
                    left_out.count(&[&event["dur"]]);
                    continue;
                };
                interval(time_ns, took_ns, name, of_thread.or_default());
            }
            // Its length is not known yet: those in the file's order are outermost first.
            "B" => of_thread.or_default().push((time_ns, Edge::Begin(std::cmp::Reverse(0)), name)),
            "E" => {
                let end = Edge::End(std::cmp::Reverse(time_ns));
                of_thread.or_default().push((time_ns, end, String::new()));
            }
            "b" | "e" | "S" | "F" => {
                let begins = matches!(phase, "b" | "S");
                let key = ["/id", "/id2/local", "/id2/global"].map(|path| at(event, path));
                let span = key.into_iter().map(text).find(|id| !id.is_empty()).unwrap_or_default();
                let texts = vec![
                    ("trace", text(&event["cat"])),
                    ("span", format!("{span}/{name}")),
                    ("name", name),
                ];
                let kind = if begins { "async_begin" } else { "async_end" };
                moments.push(Moment { time_ns, pid, tid, kind, texts, numbers: Vec::new() });
            }
            "i" | "I" | "R" | "n" => moments.push(about("instant", Vec::new())),
            "C" => {
                for (series, value) in event["args"].as_object().into_iter().flatten() {
                    let texts = vec![("name", name.clone()), ("series", series.clone())];
                    let numbers = vec![("value", value.as_f64().unwrap_or(0.0) as i64)];
                    let kind = "counter";
                    moments.push(Moment { time_ns, pid, tid, kind, texts, numbers });
                }
            }
            "s" | "t" | "f" => {
                let flow = number(&event["id"]).unwrap_or(0) as i64;
                let kind = match phase {
                    "s" => "flow_begin",
                    "t" => "flow_step",
                    _ => "flow_end",
                };
                moments.push(about(kind, vec![("flow", flow)]));
            }
            _ => unclear += 1,
        }
    }
    let mut unmatched = 0;
    for ((pid, tid), edges) in nested {
        unmatched += calls(pid, tid, edges, &mut moments);
    }
    let losses = vec![
        ("events of Chrome's that are of no known kind", unclear),
        ("events of Chrome's without a time or a duration", left_out.timeless),
        (LeftOut::UNFIT, left_out.unfit),
        ("ends of intervals that had not begun", unmatched),
        (Torn::CUT, torn.count_within()),
    ];
    Moments::new(moments, names, losses)
}

/// Both ends of an interval.
fn interval(time_ns: u64, took_ns: u64, name: String, edges: &mut Edges) {
    if took_ns == 0 {
        edges.push((time_ns, Edge::Instant, name));
        return;
    }
    edges.push((time_ns, Edge::Begin(std::cmp::Reverse(took_ns)), name));
    let end = Edge::End(std::cmp::Reverse(time_ns));
    edges.push((time_ns.saturating_add(took_ns), end, String::new()));
}

/// Beginnings and ends with their depth; how many ends had no beginning.
fn calls(pid: u32, tid: u32, mut edges: Edges, moments: &mut Vec<Moment>) -> u64 {
    // Beginnings and ends of their own stand in the right order; those of intervals have to be put in.
    match edges.iter().any(|(_, edge, _)| matches!(edge, Edge::Begin(length) if length.0 > 0)) {
        true => edges.sort_by(|a, b| (a.0, &a.1).cmp(&(b.0, &b.1))),
        false => edges.sort_by_key(|edge| edge.0),
    }
    let mut open: Vec<String> = Vec::new();
    let mut unmatched = 0;
    for (time_ns, edge, name) in edges {
        let mut notify = |kind, name: String, depth: usize| {
            let texts = vec![("function", name)];
            let numbers = vec![("depth", depth as i64)];
            moments.push(Moment { time_ns, pid, tid, kind, texts, numbers });
        };
        match edge {
            Edge::Begin(_) => {
                notify(CALL, name.clone(), open.len());
                open.push(name);
            }
            Edge::Instant => {
                notify(CALL, name.clone(), open.len());
                notify(CALL_END, name, open.len());
            }
            Edge::End(_) => match open.pop() {
                Some(name) => notify(CALL_END, name, open.len()),
                None => unmatched += 1,
            },
        }
    }
    unmatched
}

fn arguments(value: &Json) -> String {
    let mut shown = match value {
        Json::Object(map) if map.is_empty() => String::new(),
        value => text(value),
    };
    cut(&mut shown, 255);
    shown
}
