//! Which locks are held at a point of a function, as far as its text alone says.

use crate::kinds::Kind;

/// Most locks that are followed at once. More are in no function that people write.
const MOST: usize = 64;

/// A lock that was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Taken {
    /// Which acquisition of the function.
    pub id: u32,
    pub kind: Kind,
    /// The tokens that name the lock: indices from and to.
    pub lock: (u32, u32),
    pub line: u32,
    /// Whether it may have failed: its result is looked at.
    pub maybe: bool,
    /// Until the end of which block it is held, where that is what lets go of it.
    pub scope: Option<u32>,
}

/// What is held, in the order of taking.
pub(crate) type Held = Vec<Taken>;

/// What is held, or nothing where control cannot be.
pub(crate) type State = Option<Held>;

pub(crate) fn take(state: &mut State, taken: Taken) -> usize {
    let Some(held) = state else { return 1 };
    if held.len() < MOST {
        held.push(taken);
    }
    held.len()
}

/// Lets go of the lock that `same` says is the one, or else of the last of that kind.
pub(crate) fn let_go(state: &mut State, kind: Kind, same: impl Fn(&Taken) -> bool) {
    let Some(held) = state else { return };
    let exact = held.iter().rposition(|taken| taken.kind == kind && same(taken));
    if let Some(at) = exact.or_else(|| held.iter().rposition(|taken| taken.kind == kind)) {
        held.remove(at);
    }
}

/// Lets go of what is held until the end of a block, for all blocks from this depth on.
pub(crate) fn leave_scope(state: &mut State, depth: u32) {
    if let Some(held) = state {
        held.retain(|taken| taken.scope.is_none_or(|scope| scope < depth));
    }
}

fn has(held: &Held, id: u32) -> bool {
    held.iter().any(|taken| taken.id == id)
}

/// What is held where two paths meet that began with `start`. What one of them has let go of counts as
/// let go, and what one of them has taken as taken: functions that take a lock under a condition let go
/// of it under the same condition.
pub(crate) fn join(start: &State, one: State, other: State) -> State {
    let (Some(one), Some(other)) = (&one, &other) else { return one.or(other) };
    let before = |id| start.as_ref().is_some_and(|start| has(start, id));
    let keeps = |taken: &&Taken, there: &Held| !before(taken.id) || has(there, taken.id);
    let mut held: Held = one.iter().filter(|taken| keeps(taken, other)).copied().collect();
    for taken in other {
        if !has(&held, taken.id) && !before(taken.id) && held.len() < MOST {
            held.push(*taken);
        }
    }
    Some(held)
}

/// What may be held where jumps meet.
pub(crate) fn unite(one: State, other: &State) -> State {
    match (one, other) {
        (Some(mut one), Some(other)) => {
            for taken in other {
                if !has(&one, taken.id) && one.len() < MOST {
                    one.push(*taken);
                }
            }
            Some(one)
        }
        (one, other) => one.or_else(|| other.clone()),
    }
}
