//! What the kernel's events say of calls: which process asked which one, on which stream of which connection.
//!
//! `fettle record --kernel --payload BYTES` decodes HTTP/2, so both ends of a call are known to be one by their
//! connection and their stream. Which call of a stub's an end is, its events do not say.

use std::collections::HashMap;
use std::path::Path;

use fettle_trace::{Strings, Trace};

use super::names::Names;
use crate::error::{Error, Result};

/// Fields of a question.
const ASK: [&str; 6] = ["pid", "local", "remote", "sent", "exchange", "command"];
/// Of an answer.
const ANSWER: [&str; 5] = ["pid", "local", "remote", "sent", "exchange"];

/// One end of a call: the process, when the question passed it, and when the answer did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct End {
    /// The process.
    pub pid: u32,
    /// When it sent or received the question, on the wall's clock.
    pub asked_ns: u64,
    /// When the last of the answer passed.
    pub answered_ns: u64,
}

impl End {
    fn is_whole(&self) -> bool {
        self.asked_ns != 0 && self.answered_ns != 0
    }
}

/// A call as the kernel saw it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wire {
    /// Service and method by their numbers.
    pub method: (u32, u16),
    /// The end that asked.
    pub client: End,
    /// The end that was asked.
    pub server: End,
}

impl Wire {
    /// The question or the answer has passed an end.
    fn pass(&mut self, at_client: bool, pid: u32, is_answer: bool, time_ns: u64) {
        let end = if at_client { &mut self.client } else { &mut self.server };
        end.pid = pid;
        match is_answer {
            true => end.answered_ns = time_ns,
            false => end.asked_ns = time_ns,
        }
    }

    /// Whether question and answer have passed both ends.
    fn is_whole(&self) -> bool {
        self.client.is_whole() && self.server.is_whole()
    }
}

/// Whether an input is a recording of Fettle's.
pub fn is_trace(path: &Path) -> bool {
    path.join("manifest.json").is_file()
}

/// Calls of known methods in a recording, of which both ends were seen.
///
/// # Errors
///
/// If the recording cannot be read, or has no messages.
pub fn read(path: &Path, names: &Names) -> Result<Vec<Wire>> {
    let trace = Trace::open(path)?;
    let (mut stream, _) = trace.events(&mut |kind| match kind.name.as_str() {
        "ask" => kind.places(&ASK),
        "answer" => kind.places(&ANSWER),
        _ => None,
    })?;
    let answers: Vec<bool> = stream.kinds().map(|kind| kind.name == "answer").collect();
    if answers.is_empty() {
        let hint = "it has no messages: record with --kernel --payload 4000";
        return Err(Error::Unknown { path: path.to_owned(), hint });
    }
    let start_ns = trace.manifest().start_unix_ns;
    let mut strings = Strings::default();
    let mut wires = Wires::default();
    while let Some(run) = stream.next(u64::MAX, &mut |text| strings.code(text))? {
        let is_answer = answers.get(run.kind).copied().unwrap_or(false);
        for (row, time_ns) in run.times_ns().iter().enumerate() {
            let value = |place: usize| run.values(place).get(row).copied().unwrap_or(0);
            let [pid, local, remote, sent, exchange] = [0, 1, 2, 3, 4].map(value);
            let method = match is_answer {
                true => None,
                false => match names.method_at(strings.of_value(value(5))) {
                    None => continue,
                    method => method,
                },
            };
            wires.pass(Message {
                pid: u32::try_from(pid).unwrap_or(0),
                local,
                remote,
                sent: sent != 0,
                exchange,
                method,
                time_ns: start_ns.saturating_add(*time_ns),
            });
        }
    }
    Ok(wires.whole)
}

/// A question or an answer that passes an end of a connection.
#[derive(Clone, Copy, Debug)]
struct Message {
    pid: u32,
    local: u64,
    remote: u64,
    sent: bool,
    exchange: u64,
    /// What is asked; nothing of answers.
    method: Option<(u32, u16)>,
    time_ns: u64,
}

/// Calls as their messages pass.
#[derive(Debug, Default)]
struct Wires {
    /// By the addresses of client and server, and the stream.
    open: HashMap<[u64; 3], Wire>,
    whole: Vec<Wire>,
}

impl Wires {
    fn pass(&mut self, message: Message) {
        let Message { pid, local, remote, sent, exchange, method, time_ns } = message;
        // Who sends a question, or receives an answer, is the client.
        let at_client = sent == method.is_some();
        let key = match at_client {
            true => [local, remote, exchange],
            false => [remote, local, exchange],
        };
        if let Some(method) = method {
            let known = self.open.entry(key).or_insert(Wire { method, ..Wire::default() });
            let end = if at_client { known.client } else { known.server };
            // A port that was used before: what was open there is not answered any more.
            if end.asked_ns != 0 || known.method != method {
                *known = Wire { method, ..Wire::default() };
            }
        }
        let Some(wire) = self.open.get_mut(&key) else { return };
        wire.pass(at_client, pid, method.is_none(), time_ns);
        if wire.is_whole() {
            self.whole.extend(self.open.remove(&key));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_of_a_call_meet_by_their_addresses_and_their_stream() {
        let mut wires = Wires::default();
        let message = |[local, remote]: [u64; 2], sent, exchange, method, time_ns| Message {
            pid: local as u32,
            local,
            remote,
            sent,
            exchange,
            method,
            time_ns,
        };
        let (client, server, buy) = ([7, 9], [9, 7], Some((1, 0)));
        // A stream that nothing answers before its port is used again.
        wires.pass(message(client, true, 1, buy, 10));
        wires.pass(message(client, true, 1, buy, 20));
        wires.pass(message(client, true, 3, buy, 21));
        // The receiver's end may be noted first.
        wires.pass(message(server, false, 5, buy, 22));
        wires.pass(message(client, true, 5, buy, 23));
        wires.pass(message(server, false, 1, buy, 24));
        for exchange in [1, 5, 11] {
            wires.pass(message(server, true, exchange, None, 30 + exchange));
            wires.pass(message(client, false, exchange, None, 40 + exchange));
        }
        let whole = |asked: [u64; 2], exchange: u64| Wire {
            method: (1, 0),
            client: End { pid: 7, asked_ns: asked[0], answered_ns: 40 + exchange },
            server: End { pid: 9, asked_ns: asked[1], answered_ns: 30 + exchange },
        };
        assert_eq!(wires.whole, [whole([20, 24], 1), whole([23, 22], 5)]);
        assert_eq!(wires.open.len(), 1);
    }
}
