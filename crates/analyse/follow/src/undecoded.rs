//! Messages that a recording does not have: of connections that were given up, and answers that were not
//! found.
//!
//! Schemas of messages find nothing there, and a server whose long answers are cut off would look as if
//! it was never asked. That is no fault of the trace either, but has to be said, with what helps.

use fettle_protocols::{Reason, UNSEEN};
use fettle_requests::{Batch, EventId, Program, Strings};
use rustc_hash::FxHashMap;

use crate::view::Count;

/// Counts them, if a schema follows messages.
#[derive(Clone)]
pub(crate) struct Undecoded {
    /// The event, and the places of its connection's ends and of the text that says why.
    given_up: Option<(EventId, [usize; 3])>,
    /// The same of answers, and how these went.
    answers: Option<(EventId, [usize; 3])>,
    /// How often each end of a connection reported it.
    reported: FxHashMap<(What, u64, u64), u64>,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum What {
    GivenUp(Reason),
    Unseen,
}

impl Undecoded {
    pub fn new(program: &Program) -> Undecoded {
        let catalog = program.catalog();
        let followed = |name| {
            let event = catalog.find(name);
            // One that follows bytes finds what was asked without them.
            let mut schemas = program.schemas().iter().filter(|schema| !schema.follows_bytes());
            event.is_some_and(|event| schemas.any(|schema| schema.uses(event)))
        };
        let followed = followed("ask") || followed("answer");
        let find = |name, text| {
            let event = catalog.find(name).filter(|_| followed)?;
            let kind = catalog.get(event)?;
            Some((event, [kind.place("local")?, kind.place("remote")?, kind.place(text)?]))
        };
        Undecoded {
            given_up: find("undecoded", "reason"),
            answers: find("answer", "status"),
            reported: FxHashMap::default(),
        }
    }

    /// Whether it has to see an event, whatever the schemas do with it.
    pub fn wants(&self, event: EventId) -> bool {
        [self.given_up, self.answers].iter().flatten().any(|(wanted, _)| *wanted == event)
    }

    /// Looks at some events.
    pub fn look(&mut self, batch: &Batch, strings: &Strings) {
        if self.given_up.is_none() && self.answers.is_none() {
            return;
        }
        for row in 0..batch.len() {
            let kind = batch.kind(row);
            let (ends, what) = match (self.given_up, self.answers) {
                (Some((event, [ends @ .., reason])), _) if event == kind => {
                    let text = strings.of_value(batch.value(row, reason));
                    // A word that is not known is of another version: something was given up.
                    let known = Reason::ALL.into_iter().find(|reason| reason.text() == text);
                    (ends, What::GivenUp(known.unwrap_or(Reason::Unknown)))
                }
                (_, Some((event, [ends @ .., status]))) if event == kind => {
                    let text = strings.text(batch.value(row, status) as u32);
                    if text != Some(UNSEEN) {
                        continue;
                    }
                    (ends, What::Unseen)
                }
                _ => continue,
            };
            let [local, remote] = ends.map(|end| batch.value(row, end));
            *self.reported.entry((what, local, remote)).or_default() += 1;
        }
    }

    /// What was found, those first that something can be done about.
    pub fn counts(&self) -> Vec<Count> {
        let reasons = [Reason::Cut, Reason::Quiet, Reason::Unasked].into_iter().chain([
            Reason::Upgraded,
            Reason::Tls,
            Reason::Compressed,
            Reason::Unknown,
        ]);
        let all = std::iter::once(What::Unseen).chain(reasons.map(What::GivenUp));
        let counts = all.map(|what| {
            let (name, meaning) = what.name_and_meaning();
            Count { name, meaning, count: self.count(what) }
        });
        counts.filter(|count| count.count > 0).collect()
    }

    /// How many there are. Where both ends of a connection were recorded, both report it.
    fn count(&self, what: What) -> u64 {
        let of = self.reported.iter().filter(|((of, ..), _)| *of == what);
        of.map(|(&(_, local, remote), &count)| {
            let other = self.reported.get(&(what, remote, local)).copied().unwrap_or(0);
            let is_first = local <= remote;
            match other {
                0 => count,
                _ if is_first => count.max(other),
                _ => 0,
            }
        })
        .sum()
    }
}

impl What {
    fn name_and_meaning(self) -> (&'static str, &'static str) {
        match self {
            What::Unseen => (
                "unseen",
                "answers were not found: bytes of their connections are missing that matter; \
                 record more of each message with --payload BYTES (16,000 at most)",
            ),
            What::GivenUp(Reason::Cut) => (
                "undecoded_cut",
                "connections were given up, and what is asked on them later is in no request: \
                 bytes are missing that matter; record more of each message with --payload BYTES \
                 (16,000 at most), and the connections from their beginning",
            ),
            What::GivenUp(Reason::Quiet) => (
                "undecoded_quiet",
                "connections were given up: they have questions whose answers may be left out",
            ),
            What::GivenUp(Reason::Unasked) => (
                "undecoded_unasked",
                "connections were given up: they have answers without a question \
                 (subscriptions); the schema `sockets` follows these",
            ),
            What::GivenUp(Reason::Upgraded) => (
                "undecoded_upgraded",
                "connections were given up when they went on with another protocol; the schema \
                 `sockets` follows these",
            ),
            What::GivenUp(Reason::Tls) => (
                "undecoded_tls",
                "connections are encrypted, so what they ask is not known; the schema `sockets` \
                 follows these",
            ),
            What::GivenUp(Reason::Compressed) => (
                "undecoded_compressed",
                "connections are compressed, so what they ask is not known; the schema `sockets` \
                 follows these",
            ),
            What::GivenUp(Reason::Unknown) => (
                "undecoded_unknown",
                "connections are of no protocol that is known, or were seen too late; the schema \
                 `sockets` follows these",
            ),
        }
    }
}
