//! How certain it is that something belongs to a request.
//!
//! Most of what connects events is *seen*: the kernel names the connection, the bytes, the thread. Some
//! is not, and then a reader of events chooses among several requests. A rule's `choice` says so of an
//! event, and the event's requests carry it from then on.

/// Per mille: the unit of a likelihood.
pub const CERTAIN: u16 = 1000;

/// How it is known that something belongs to a request. In order: the first is the most certain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Certainty {
    /// By a byte range, a connection, a thread, a task or an id.
    #[default]
    Seen,
    /// Nothing says so, but there was no other request that it could belong to.
    OnlyCandidate,
    /// There were several.
    Chosen {
        /// How many, the chosen one included.
        candidates: u32,
        /// How likely the choice is right, in thousandths.
        likely: u16,
    },
}

impl Certainty {
    /// As an event's fields have it: no candidates if it is seen.
    pub fn new(candidates: u64, likely: u64) -> Certainty {
        match u32::try_from(candidates).unwrap_or(u32::MAX) {
            0 => Certainty::Seen,
            1 => Certainty::OnlyCandidate,
            candidates => {
                let likely = u16::try_from(likely).unwrap_or(CERTAIN).min(CERTAIN);
                Certainty::Chosen { candidates, likely }
            }
        }
    }

    /// How likely it is right, in thousandths.
    pub fn likely(self) -> u16 {
        match self {
            Certainty::Seen | Certainty::OnlyCandidate => CERTAIN,
            Certainty::Chosen { likely, .. } => likely,
        }
    }

    /// How many requests it was chosen among; 1 if there was no choice.
    pub fn candidates(self) -> u32 {
        match self {
            Certainty::Seen | Certainty::OnlyCandidate => 1,
            Certainty::Chosen { candidates, .. } => candidates,
        }
    }

    /// Its name: `seen`, `only candidate`, `chosen`.
    pub fn name(self) -> &'static str {
        match self {
            Certainty::Seen => "seen",
            Certainty::OnlyCandidate => "only candidate",
            Certainty::Chosen { .. } => "chosen",
        }
    }

    /// Whether it rests on a choice among several.
    pub fn is_choice(self) -> bool {
        matches!(self, Certainty::Chosen { .. })
    }

    /// The less certain of two.
    pub fn least(self, other: Certainty) -> Certainty {
        let doubt = |one: Certainty| match one {
            Certainty::Seen => (0, 0),
            Certainty::OnlyCandidate => (1, 0),
            Certainty::Chosen { likely, .. } => (2, CERTAIN.saturating_sub(likely)),
        };
        if doubt(other) > doubt(self) { other } else { self }
    }
}

/// An event of a request that a rule's `choice` says something of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    /// When the event was.
    pub at_ns: u64,
    /// How certain it is that the event is this request's.
    pub certainty: Certainty,
}

/// What a request remembers of them.
#[derive(Debug, Default)]
pub(crate) struct Choices {
    pub least: Certainty,
    pub all: Vec<Choice>,
}

/// Most that a request remembers one by one.
const REMEMBERED: usize = 1 << 12;

impl Choices {
    pub fn add(&mut self, choice: Choice) {
        self.least = self.least.least(choice.certainty);
        if self.all.len() < REMEMBERED {
            self.all.push(choice);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_certain_counts() {
        let chosen = |likely| Certainty::Chosen { candidates: 3, likely };
        assert_eq!(Certainty::new(0, 7), Certainty::Seen);
        assert_eq!(Certainty::new(1, 0), Certainty::OnlyCandidate);
        assert_eq!(Certainty::new(3, 5000), chosen(CERTAIN));
        let all = [Certainty::Seen, Certainty::OnlyCandidate, chosen(900), chosen(100)];
        for (n, one) in all.into_iter().enumerate() {
            for (m, other) in all.into_iter().enumerate() {
                assert_eq!(one.least(other), all[n.max(m)]);
            }
        }
    }
}
