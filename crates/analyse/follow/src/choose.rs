//! Which shipped schema suits a trace: the one whose requests are nearest to what people ask for,
//! of those whose events the trace has.

use std::collections::HashSet;

use fettle_requests::{Source, shipped};
use fettle_trace::Trace;

use crate::calls::functions_with_arguments;
use crate::error::{Error, Result};

/// Schemas and the events without which they find nothing, best first.
const BY_EVENTS: [(&str, &[&str]); 9] = [
    ("sockets", &["received", "sent"]),
    ("pipes", &["pipe_read", "pipe_write"]),
    ("queues", &["queue_push", "queue_pop"]),
    ("spans", &["span_begin", "span_end"]),
    ("locks", &["lock_acquired", "lock_released"]),
    ("files", &["open", "close"]),
    ("processes", &["exec"]),
    ("block", &["block_issue", "block_complete"]),
    ("calls", &["call", "call_end"]),
];

/// Those of messages between threads.
const MESSAGES: [&str; 6] = ["asyncio", "sockets", "pipes", "queues", "grpc", "http2"];

/// Functions whose arguments say more of messages through sockets than their events alone.
const STEPS: [&str; 2] = ["_PyDict_SetItem_KnownHash", "PyByteArray_Resize"];

/// Protocols of which one connection carries many questions at once, and the schema that separates them:
/// a schema that follows bytes takes them for one.
const AT_ONCE: [(&str, &str); 2] = [("grpc", "gRPC"), ("http2", "HTTP/2")];

/// What was chosen.
#[derive(Clone, Debug)]
pub struct Choice {
    /// The schema, to be compiled.
    pub sources: Vec<Source>,
    /// Why this one, as the rest of a sentence: "the trace has the events `sent` and `received`".
    pub reason: String,
    /// Whether every program does such things in its first moments, so that in a trace that grows
    /// something better may still come.
    pub weak: bool,
}

/// Chooses a shipped schema for a trace.
///
/// # Errors
///
/// [`Error::NothingToFollow`] if none suits.
pub fn choose(trace: &Trace) -> Result<Choice> {
    let (kinds, _) = trace.event_kinds()?;
    let mut present: HashSet<&str> =
        kinds.iter().filter(|kind| kind.rows > 0).map(|kind| kind.name.as_str()).collect();
    let functions = functions_with_arguments(trace)?;
    if functions.values().any(|name| fettle_abi::locks::named(name).is_some()) {
        present.extend(["lock_acquired", "lock_released"]);
    }
    let steps = STEPS.iter().all(|step| functions.values().any(|name| name == step));
    if steps && ["received", "sent"].iter().all(|event| present.contains(event)) {
        let reason = "the trace has events of sockets, and calls of the steps of Python's tasks";
        return Ok(choice("asyncio", reason.into()));
    }
    if let Some((schema, protocol)) = asked_at_once(trace)? {
        return Ok(choice(schema, format!("all that servers are asked in it is {protocol}")));
    }
    if let Some(choice) = choose_by(&present) {
        return Ok(choice);
    }
    if trace.manifest().totals.records > 0 {
        return Ok(choice("calls", "the trace has recorded calls and no events".into()));
    }
    Err(Error::NothingToFollow)
}

/// Events that follow from a trace's calls and switches, apart from those that it stores as such.
///
/// # Errors
///
/// When the trace's tables cannot be read.
pub fn derived_events(trace: &Trace) -> Result<Vec<&'static str>> {
    let mut events = Vec::new();
    if trace.manifest().totals.records > 0 {
        events.extend(["call", "call_end"]);
    }
    let functions = functions_with_arguments(trace)?;
    if !functions.is_empty() {
        events.extend(["arguments", "result"]);
    }
    if functions.values().any(|name| fettle_abi::locks::named(name).is_some()) {
        events.extend(["lock_wait", "lock_acquired", "lock_released", "lock_given_up"]);
    }
    if trace.manifest().switches {
        events.extend(["switch_out", "switch_in"]);
    }
    Ok(events)
}

/// The one of [`AT_ONCE`] that all questions are of which servers got, if there are some.
fn asked_at_once(trace: &Trace) -> Result<Option<(&'static str, &'static str)>> {
    let (mut stream, _) = trace.events(&mut |kind| {
        (kind.name == "ask").then_some(())?;
        kind.places(&["sent", "protocol"])
    })?;
    // Codes are places in the list behind 0, which is any other protocol.
    let code = |text: &str| {
        AT_ONCE.iter().position(|(name, _)| *name == text).map_or(0, |place| place as u32 + 1)
    };
    let mut found = None;
    while let Some(run) = stream.next(u64::MAX, &mut |text| code(text))? {
        for (_, protocol) in run.values(0).iter().zip(run.values(1)).filter(|(sent, _)| **sent == 0)
        {
            if found.is_some_and(|found| found != *protocol) {
                return Ok(None);
            }
            found = Some(*protocol);
        }
    }
    let place = found.and_then(|code| usize::try_from(code).ok()?.checked_sub(1));
    Ok(place.and_then(|place| AT_ONCE.get(place).copied()))
}

/// Chooses a shipped schema by the events that there are.
pub fn choose_by(present: &HashSet<&str>) -> Option<Choice> {
    for (name, events) in BY_EVENTS {
        if events.iter().all(|event| present.contains(event)) {
            let events: Vec<String> = events.iter().map(|event| format!("`{event}`")).collect();
            let noun = if events.len() == 1 { "the event" } else { "the events" };
            let asks = MESSAGES.contains(&name) && present.contains("ask");
            let asks = if asks { " (`messages` tells what servers are asked)" } else { "" };
            let reason = format!("the trace has {noun} {}{asks}", events.join(" and "));
            return Some(choice(name, reason));
        }
    }
    None
}

fn choice(name: &str, reason: String) -> Choice {
    let text = shipped(name).unwrap_or_default();
    let weak = !MESSAGES.contains(&name);
    Choice { sources: vec![Source::new(name, text)], reason, weak }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_that_may_be_chosen_are_shipped_and_declare_their_events() {
        for (name, events) in BY_EVENTS {
            let text = shipped(name).expect(name);
            let program = fettle_requests::compile(&[Source::new(name, text)], &shipped).unwrap();
            for event in events {
                let id = program.catalog().find(event).expect(event);
                assert!(program.schemas()[0].uses(id), "{name} does nothing with {event}");
            }
        }
    }
}
