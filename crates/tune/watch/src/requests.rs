//! Requests that processes answer, as the kernel's events show them. Who reads these gives each with the time that it
//! took; here they are added up by what rules ask for.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fettle_stats::Distribution;
use fettle_trace::{EventKind, Strings};
use fettle_types::{Pid, Tid};

use crate::look::RequestsLook;

/// A request that a process has answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answered {
    /// The process.
    pub pid: Pid,
    /// What it was asked: a command and its object, such as `GET /cart/3`.
    pub what: String,
    /// From when it lay there to be read until the answer, in nanoseconds.
    pub took_ns: u64,
    /// Whether the answer says that it failed.
    pub failed: bool,
}

/// Where requests come from.
pub trait Requests: Debug {
    /// Those that were answered since this was asked last.
    fn poll(&mut self) -> Vec<Answered>;

    /// Why there are none any more, once.
    fn problem(&mut self) -> Option<String>;

    /// The events by which requests are known, for evidence.
    fn recent(&self) -> Arc<dyn Recent>;
}

/// The kernel's last events of processes.
pub trait Recent: Debug + Send + Sync {
    /// Those of a process up to a time of CLOCK_MONOTONIC, once they have come, or what there is of them after so long.
    fn of(&self, pid: Pid, until_ns: u64, patience: Duration) -> Recorded;
}

/// Events of a process, and what it was asked and has not answered.
#[derive(Clone, Debug, Default)]
pub struct Recorded {
    /// All kinds that there are; `cpu` is the first field of each.
    pub kinds: Vec<EventKind>,
    /// Texts, by their codes in events.
    pub texts: Strings,
    /// The events, in order of time.
    pub events: Vec<Happened>,
    /// Questions without an answer, in order of time.
    pub open: Vec<Open>,
    /// Whether all had come that happened until then.
    pub is_whole: bool,
}

/// An event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Happened {
    /// Its kind's place.
    pub kind: usize,
    /// When, in nanoseconds of CLOCK_MONOTONIC.
    pub at_ns: u64,
    /// The values of its fields.
    pub values: Vec<u64>,
}

/// A question that waits for its answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Open {
    /// The thread that has read it, if that is known.
    pub tid: Option<Tid>,
    /// What it was asked.
    pub what: String,
    /// From when on it lay there to be read, in nanoseconds of CLOCK_MONOTONIC.
    pub begun_ns: u64,
}

/// Answered requests of watched processes, by what rules ask for.
#[derive(Debug, Default)]
pub(crate) struct Counted {
    wanted: Vec<Wanted>,
    /// By process: what it has answered of each that is wanted.
    counts: BTreeMap<Pid, Vec<Count>>,
}

/// What rules ask for.
#[derive(Debug)]
struct Wanted {
    /// A pattern of requests.
    pattern: String,
    every: Duration,
    given: Option<Instant>,
}

#[derive(Clone, Debug, Default)]
struct Count {
    took: Distribution,
    failed: u64,
}

impl Counted {
    pub(crate) fn new(wanted: &BTreeMap<String, Duration>) -> Counted {
        let wanted = wanted.iter().map(|(pattern, every)| Wanted {
            pattern: pattern.clone(),
            every: *every,
            given: None,
        });
        Counted { wanted: wanted.collect(), counts: BTreeMap::new() }
    }

    /// Adds requests, as far as rules ask for them.
    pub(crate) fn add(&mut self, answered: &[Answered]) {
        for one in answered {
            let counts = self.counts.entry(one.pid);
            let counts = counts.or_insert_with(|| vec![Count::default(); self.wanted.len()]);
            for (count, wanted) in counts.iter_mut().zip(&self.wanted) {
                if fits(&wanted.pattern, &one.what) {
                    count.took.add(one.took_ns, 1);
                    count.failed += u64::from(one.failed);
                }
            }
        }
    }

    /// Places of what looks are to have the counts of now.
    pub(crate) fn due(&mut self, now: Instant) -> Vec<usize> {
        let mut due = Vec::new();
        for (place, wanted) in self.wanted.iter_mut().enumerate() {
            if wanted.given.is_none_or(|at| now.duration_since(at) >= wanted.every) {
                wanted.given = Some(now);
                due.push(place);
            }
        }
        due
    }

    /// What a process has answered so far of these. It is there when that is nothing, too: a window begins with it.
    pub(crate) fn of(&self, pid: Pid, due: &[usize]) -> Vec<RequestsLook> {
        let counts = self.counts.get(&pid);
        let look = |place: &usize| {
            let pattern = self.wanted.get(*place)?.pattern.clone();
            let count = counts.and_then(|counts| counts.get(*place));
            let buckets = count.into_iter().flat_map(|count| count.took.buckets());
            let counts = buckets.map(|(low, _, count)| (low, count)).collect();
            Some(RequestsLook { pattern, failed: count.map_or(0, |count| count.failed), counts })
        };
        due.iter().filter_map(look).collect()
    }

    /// Forgets processes that are watched no more.
    pub(crate) fn retain(&mut self, is_known: impl Fn(Pid) -> bool) {
        self.counts.retain(|pid, _| is_known(*pid));
    }
}

/// Whether a text is as a pattern says, in which `*` stands for any characters.
fn fits(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else { return false };
    let mut parts = parts.peekable();
    if parts.peek().is_none() {
        return rest.is_empty();
    }
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return rest.ends_with(part);
        }
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_have_stars() {
        for (pattern, text) in [
            ("*", ""),
            ("*", "GET /"),
            ("GET /cart*", "GET /cart/3"),
            ("GET *", "GET /"),
            ("* /cart/*/items", "POST /cart/7/items"),
            ("GET /", "GET /"),
            ("a*a", "aa"),
        ] {
            assert!(fits(pattern, text), "{pattern} {text}");
        }
        for (pattern, text) in
            [("GET", "GET /"), ("a*a", "a"), ("* /cart/*/items", "POST /cart/items"), ("", "x")]
        {
            assert!(!fits(pattern, text), "{pattern} {text}");
        }
    }

    #[test]
    fn requests_are_counted_by_pattern_and_process() {
        let every = Duration::from_secs(1);
        let wanted = BTreeMap::from([("GET *".to_owned(), every), ("*".to_owned(), every)]);
        let mut counted = Counted::new(&wanted);
        let pid = |number: u32| Pid::try_from(number).unwrap();
        let answered = |number, what: &str, failed| Answered {
            pid: pid(number),
            what: what.to_owned(),
            took_ns: 5,
            failed,
        };
        counted.add(&[
            answered(7, "GET /", false),
            answered(7, "PUT /", true),
            answered(8, "PUT /", false),
        ]);
        let now = Instant::now();
        let due = counted.due(now);
        assert_eq!(due, [0, 1]);
        assert!(counted.due(now).is_empty() && counted.due(now + every).len() == 2);
        let look = |pattern: &str, failed, counts: &[(u64, u64)]| RequestsLook {
            pattern: pattern.to_owned(),
            failed,
            counts: counts.to_vec(),
        };
        let nothing = [look("*", 0, &[]), look("GET *", 0, &[])];
        assert_eq!(
            counted.of(pid(7), &due),
            [look("*", 1, &[(5, 2)]), look("GET *", 0, &[(5, 1)])]
        );
        assert_eq!(counted.of(pid(7), &due[1..]), [look("GET *", 0, &[(5, 1)])]);
        assert_eq!(counted.of(pid(8), &due), [look("*", 0, &[(5, 1)]), look("GET *", 0, &[])]);
        assert_eq!(counted.of(pid(9), &due), nothing, "a window begins before the first answer");
        counted.retain(|other| other == pid(8));
        assert_eq!(counted.of(pid(7), &due), nothing);
    }
}
