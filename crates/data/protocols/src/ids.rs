//! Ids in messages by which several of them, of different processes, are known to belong together. They are
//! reported as hashes only: what an id is made of may be someone's secret, that two are the same is not.

use crate::decoder::Ask;
use crate::message::Ids;
use crate::text::{reported, split_at_byte, statement};

/// What an id is of. Those of different domains are never the same.
#[derive(Clone, Copy, Debug)]
enum Domain {
    Trace,
    Request,
    Correlation,
}

/// Bytes of an id that are believed to be one.
const ID_MAX: usize = 512;
/// Digits of a trace's id.
const TRACE: usize = 32;
/// The longest statement whose comments are looked at.
pub const STATEMENT: u64 = 8192;
/// What stands before the id of a trace in a comment of a statement.
const IN_COMMENT: &[u8] = b"traceparent='";

fn hashed(domain: Domain, id: &[u8]) -> u64 {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&[domain as u8]).update(id);
    let hash = hasher.finalize();
    let first = hash.as_bytes().first_chunk().map_or(1, |bytes| u64::from_le_bytes(*bytes));
    first.max(1)
}

/// The hash of what a question has its answer repeat.
pub fn correlation(id: &[u8]) -> u64 {
    if id.is_empty() { 0 } else { hashed(Domain::Correlation, id) }
}

/// The hash of a trace's id in hexadecimal digits. One of 64 bits may be written with zeros before it.
fn trace(digits: &[u8]) -> Option<u64> {
    let is_id = matches!(digits.len(), 16 | TRACE) && digits.iter().all(u8::is_ascii_hexdigit);
    let first = digits.iter().position(|digit| *digit != b'0').filter(|_| is_id)?;
    Some(hashed(Domain::Trace, &digits.get(first..)?.to_ascii_lowercase()))
}

/// The id in a `traceparent`: a version, the trace, the span, flags.
fn traceparent(value: &[u8]) -> Option<u64> {
    let (version, rest) = split_at_byte(value, b'-')?;
    let (id, _) = split_at_byte(rest, b'-')?;
    if version.len() != 2 || id.len() != TRACE {
        return None;
    }
    trace(id)
}

/// Finds the id of a trace among headers: of several, the one that says most.
#[derive(Clone, Copy, Debug, Default)]
pub struct Headers {
    /// How much the best one says, and its hash.
    best: (u8, u64),
}

impl Headers {
    /// Looks at a header.
    pub fn look(&mut self, name: &[u8], value: &[u8]) {
        let is = |wanted: &[u8]| name.eq_ignore_ascii_case(wanted);
        // Most have other lengths.
        let found = match name.len() {
            11 if is(b"traceparent") => traceparent(value).map(|id| (4, id)),
            2 if is(b"b3") => {
                let id = split_at_byte(value, b'-').map_or(value, |(id, _)| id);
                trace(id).map(|id| (3, id))
            }
            12 if is(b"x-b3-traceid") => trace(value).map(|id| (2, id)),
            12 if is(b"x-request-id") && (1..=ID_MAX).contains(&value.len()) => {
                Some((1, hashed(Domain::Request, value)))
            }
            _ => None,
        };
        self.best = self.best.max(found.unwrap_or_default());
    }

    /// Looks at lines of a name and a value.
    pub fn look_at_lines(&mut self, lines: &[u8]) {
        for line in lines.split(|byte| *byte == b'\n') {
            if let Some((name, value)) = split_at_byte(line, b':') {
                self.look(name, value.trim_ascii());
            }
        }
    }

    /// The hash of the id; 0 if there is none.
    pub fn id(self) -> u64 {
        self.best.1
    }
}

/// The hash of the trace's id in a comment of a statement, as sqlcommenter writes it; 0 if there is none.
fn in_statement(mut statement: &[u8]) -> u64 {
    while let Some(at) = find(statement, b"/*") {
        let behind = statement.get(at + 2..).unwrap_or_default();
        let end = find(behind, b"*/").unwrap_or(behind.len());
        let (comment, rest) = behind.split_at(end);
        let is_key = |at: usize| {
            let before = at.checked_sub(1).and_then(|before| comment.get(before));
            before.is_none_or(|before| matches!(before, b',' | b' '))
        };
        let value = find(comment, IN_COMMENT).filter(|at| is_key(*at));
        let value = value.and_then(|at| comment.get(at + IN_COMMENT.len()..));
        if let Some(id) = value.and_then(traceparent) {
            return id;
        }
        statement = rest;
    }
    0
}

/// A request that is a statement, with the id that it has.
pub fn statement_with_id(bytes: &[u8]) -> Ask {
    let ids = Ids { trace: in_statement(bytes), ..Ids::default() };
    Ask { ids, ..statement(reported(bytes)) }
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|window| window == wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    fn of(headers: &[(&str, &str)]) -> u64 {
        let mut found = Headers::default();
        headers.iter().for_each(|(name, value)| found.look(name.as_bytes(), value.as_bytes()));
        found.id()
    }

    #[test]
    fn one_trace_has_one_id_in_whichever_header() {
        let id = of(&[("traceparent", PARENT)]);
        assert_ne!(id, 0);
        // The next one's span is another one.
        let next = PARENT.replace("00f067", "11f067").replace("4bf9", "4BF9");
        assert_eq!(of(&[("Traceparent", &next)]), id);
        let (trace, span) = ("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7");
        assert_eq!(of(&[("b3", &format!("{trace}-{span}-1"))]), id);
        assert_eq!(of(&[("X-B3-TraceId", trace), ("x-request-id", "17")]), id);
        assert_eq!(of(&[("x-request-id", "17"), ("traceparent", PARENT)]), id);
        let short = of(&[("b3", span)]);
        assert_eq!(of(&[("x-b3-traceid", &format!("{span:0>32}"))]), short);
        assert_ne!(short, id);
    }

    #[test]
    fn what_is_no_id_is_none() {
        for value in ["", "00", "00--", "00-xyz-1", "0", "00-4bf92f3577b34da6-00f067aa0ba902b7-01"]
        {
            assert_eq!(of(&[("traceparent", value), ("b3", value)]), 0, "{value}");
        }
        let zeros = PARENT.replace("4bf92f3577b34da6a3ce929d0e0e4736", &"0".repeat(32));
        assert_eq!(of(&[("traceparent", &zeros)]), 0);
        assert_eq!(of(&[("x-request-id", ""), ("traceparents", PARENT)]), 0);
        assert_eq!(of(&[("x-request-id", &"a".repeat(ID_MAX + 1))]), 0);
        assert_eq!(correlation(b""), 0);
    }

    #[test]
    fn domains_are_apart() {
        let request = of(&[("x-request-id", "00f067aa0ba902b7")]);
        assert_ne!(request, of(&[("b3", "00f067aa0ba902b7")]));
        assert_ne!(request, correlation(b"00f067aa0ba902b7"));
    }

    #[test]
    fn statements_have_it_in_comments() {
        let id = of(&[("traceparent", PARENT)]);
        for statement in [
            format!("SELECT 1 /*action='run',traceparent='{PARENT}'*/"),
            format!("/*traceparent='{PARENT}',tracestate='x'*/ SELECT 1"),
            format!("SELECT /* hint */ 1 /*a='b', traceparent='{PARENT}'*/;"),
            // The end was cut off.
            format!("SELECT 1 /*traceparent='{PARENT}'"),
        ] {
            assert_eq!(in_statement(statement.as_bytes()), id, "{statement}");
        }
        for statement in [
            "SELECT 1".to_owned(),
            format!("SELECT 'traceparent=''{PARENT}'''"),
            format!("SELECT 1 /*notraceparent='{PARENT}'*/"),
            "SELECT 1 /*traceparent='".to_owned(),
            "/*/".to_owned(),
        ] {
            assert_eq!(in_statement(statement.as_bytes()), 0, "{statement}");
        }
    }
}
