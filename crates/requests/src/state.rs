//! What an actor does at a time: it runs, it could run, or it waits for something.

/// What an actor waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Wait {
    /// For somebody who holds a lock.
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
    /// It waits.
    Waiting(Wait),
}

impl State {
    /// All states.
    pub const ALL: [State; 6] = [
        State::Running,
        State::Runnable,
        State::Waiting(Wait::Lock),
        State::Waiting(Wait::Disk),
        State::Waiting(Wait::Network),
        State::Waiting(Wait::Sleeping),
    ];

    /// Its place in [`State::ALL`].
    pub fn index(self) -> usize {
        match self {
            State::Running => 0,
            State::Runnable => 1,
            State::Waiting(wait) => 2 + wait as usize,
        }
    }

    /// What it waits for, if it does.
    pub(crate) fn wait(self) -> Option<Wait> {
        match self {
            State::Waiting(wait) => Some(wait),
            State::Running | State::Runnable => None,
        }
    }

    /// Its name in schemas and reports.
    pub fn name(self) -> &'static str {
        ["running", "runnable", "lock", "disk", "network", "sleeping"][self.index()]
    }

    /// The state of that name.
    pub fn from_name(name: &str) -> Option<State> {
        State::ALL.into_iter().find(|state| state.name() == name)
    }
}

/// A state as its place in [`State::ALL`]: comparing these is no branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Code(u8);

impl Code {
    /// How many there are.
    pub const COUNT: usize = State::ALL.len();

    /// Its place among all.
    #[inline]
    pub fn index(self) -> usize {
        usize::from(self.0)
    }

    /// The state.
    #[inline]
    pub fn state(self) -> State {
        State::ALL[self.index()]
    }
}

impl From<State> for Code {
    fn from(state: State) -> Code {
        Code(state.index() as u8)
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_names_and_places_agree() {
        for (n, state) in State::ALL.into_iter().enumerate() {
            assert_eq!(state.index(), n);
            assert_eq!(Code::from(state).state(), state);
            assert_eq!(State::from_name(state.name()), Some(state));
        }
        assert_eq!(State::from_name("blocked"), None);
    }
}
