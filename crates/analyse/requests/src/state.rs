//! What an actor does at a time: it runs, it could run, or it waits for something. Before it does
//! anything, what it will do may lie there and wait for it.

/// What an actor waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Wait {
    /// For a lock that another actor holds.
    Lock,
    /// For a disk.
    Disk,
    /// For a peer: a socket, a pipe.
    Network,
    /// For something else, or time.
    #[default]
    Sleeping,
}

/// What an actor does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum State {
    /// It is on a processor.
    #[default]
    Running,
    /// It could be, but others are.
    Runnable,
    /// It has not taken what lies there for it: bytes in its socket, an item in a queue.
    Queued,
    /// It waits.
    Waiting(Wait),
}

impl State {
    /// All states.
    pub const ALL: [State; 7] = [
        State::Running,
        State::Runnable,
        State::Queued,
        State::Waiting(Wait::Lock),
        State::Waiting(Wait::Disk),
        State::Waiting(Wait::Network),
        State::Waiting(Wait::Sleeping),
    ];

    /// Where waits begin in [`State::ALL`].
    pub(crate) const FIRST_WAIT: usize = 3;

    /// Its place in [`State::ALL`].
    pub const fn index(self) -> usize {
        match self {
            State::Running => 0,
            State::Runnable => 1,
            State::Queued => 2,
            State::Waiting(wait) => State::FIRST_WAIT + wait as usize,
        }
    }

    /// Its name in schemas and reports.
    pub fn name(self) -> &'static str {
        ["running", "runnable", "queued", "lock", "disk", "network", "sleeping"][self.index()]
    }

    /// The state of that name.
    pub fn from_name(name: &str) -> Option<State> {
        State::ALL.into_iter().find(|state| state.name() == name)
    }
}

/// What a binding says of an actor.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Change {
    /// What it waited for last turned out to be this.
    pub was: Option<Wait>,
    is: Option<NewState>,
    expects: Option<Wait>,
}

impl Change {
    /// `was …`, `is …` and `expects …`; `None` if nothing is said.
    pub fn new(was: Option<Wait>, is: Option<NewState>, expects: Option<State>) -> Option<Change> {
        let expects = match expects {
            Some(State::Waiting(wait)) => Some(wait),
            _ => None,
        };
        (was.is_some() || is.is_some() || expects.is_some()).then_some(Change { was, is, expects })
    }
}

/// An actor's state and what it expects, as one small number: what becomes of it is looked up in a
/// table, and that two states are the same is no branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Code(u8);

impl Code {
    /// More than there are: a power of 2, so that whatever lies in a table of so many is in bounds.
    pub const COUNT: usize = 32;

    /// That of an actor of which nothing is known yet.
    pub const FIRST: Code = Code::new(State::Running, Wait::Sleeping);

    /// A number for each pair.
    pub const fn new(state: State, expects: Wait) -> Code {
        Code((state.index() * WAITS) as u8 | expects as u8)
    }

    /// Its place in a table.
    #[inline]
    pub fn index(self) -> usize {
        usize::from(self.0) % Code::COUNT
    }

    /// The same, of its place in a table.
    #[inline]
    pub fn of_index(index: usize) -> Code {
        Code((index % Code::COUNT) as u8)
    }

    /// The state.
    #[inline]
    pub fn state(self) -> State {
        State::ALL[usize::from(self.0) / WAITS]
    }

    /// Whether it is the state of another, whatever they expect.
    #[inline]
    pub fn is_in_state_of(self, other: Code) -> bool {
        usize::from(self.0 ^ other.0) < WAITS
    }

    /// Whether it expects the same as another, whatever it does.
    #[inline]
    pub fn expects_as(self, other: Code) -> bool {
        usize::from(self.0) % WAITS == usize::from(other.0) % WAITS
    }

    /// A number that is no code: that of a wait, once it is known what for.
    pub const fn of_wait(wait: Wait) -> Code {
        Code((State::ALL.len() * WAITS) as u8 | wait as u8)
    }

    /// The wait that it is the number of, if it is no code.
    #[inline]
    pub fn wait(self) -> Option<Wait> {
        (usize::from(self.0) / WAITS == State::ALL.len()).then(|| WAIT[usize::from(self.0) % WAITS])
    }

    /// What becomes of it. Without events of switches, an actor that expects something waits for it from
    /// then on.
    pub fn after(self, change: Change, switches: bool) -> Code {
        let expected = WAIT[usize::from(self.0) % WAITS];
        let state = match (change.is, change.expects) {
            (Some(NewState::State(state)), _) => state,
            (Some(NewState::Blocked), _) => State::Waiting(expected),
            (None, Some(wait)) if !switches => State::Waiting(wait),
            _ => self.state(),
        };
        Code::new(state, change.expects.unwrap_or(expected))
    }

    /// What becomes of each, by its index.
    pub fn all_after(change: Option<Change>, switches: bool) -> [Code; Code::COUNT] {
        let mut all = [Code(0); Code::COUNT];
        for code in State::ALL.into_iter().flat_map(|state| WAIT.map(|wait| Code::new(state, wait)))
        {
            all[code.index()] = change.map_or(code, |change| code.after(change, switches));
        }
        all
    }
}

/// All waits, each at its number.
const WAIT: [Wait; WAITS] = [Wait::Lock, Wait::Disk, Wait::Network, Wait::Sleeping];
const WAITS: usize = 4;

/// Nanoseconds in each state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times([u64; State::ALL.len()]);

impl Times {
    /// Nanoseconds in a state.
    pub fn get(&self, state: State) -> u64 {
        self.0[state.index()]
    }

    /// Adds nanoseconds in a state.
    pub fn add(&mut self, state: State, ns: u64) {
        let sum = &mut self.0[state.index()];
        *sum = sum.saturating_add(ns);
    }

    /// Nanoseconds in all states.
    pub fn total(&self) -> u64 {
        self.0.iter().fold(0, |sum, ns| sum.saturating_add(*ns))
    }
}

/// What can stand behind `is`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NewState {
    /// This one.
    State(State),
    /// `blocked`: the one that was expected.
    Blocked,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_names_and_places_agree() {
        for (n, state) in State::ALL.into_iter().enumerate() {
            assert_eq!(state.index(), n);
            let change = Change { was: None, is: Some(NewState::Blocked), expects: None };
            for (n, wait) in WAIT.into_iter().enumerate() {
                let code = Code::new(state, wait);
                assert_eq!((code.state(), WAIT[wait as usize], wait as usize), (state, wait, n));
                let blocked = code.after(change, true);
                assert_eq!(blocked.state(), State::Waiting(wait));
                assert!(code.is_in_state_of(Code::new(state, Wait::Disk)));
                assert!(code.expects_as(Code::new(State::Running, wait)));
                assert_eq!((code.wait(), Code::of_wait(wait).wait()), (None, Some(wait)));
            }
            assert_eq!(State::from_name(state.name()), Some(state));
        }
        assert_eq!(State::from_name("blocked"), None);
    }
}
