//! Sorts of locks.

use fettle_abi::locking::Operation;
use serde::Serialize;

/// Sorts of locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// A mutex, of any type.
    Mutex,
    /// A reader-writer lock.
    Rwlock,
    /// A spin lock.
    Spin,
    /// A semaphore.
    Semaphore,
    /// A condition variable: waits for it are no contention.
    Condition,
    /// A barrier: neither are these.
    Barrier,
    /// A lock of a language's own, seen only where it has to wait.
    SlowPath,
}

impl Kind {
    /// That of the locks which an operation is for; `None` where that is not known.
    pub fn of(operation: Operation) -> Option<Kind> {
        use Operation as O;
        Some(match operation {
            O::MutexLock | O::MutexTry | O::MutexTimed | O::MutexUnlock => Kind::Mutex,
            O::ReadLock
            | O::ReadTry
            | O::ReadTimed
            | O::WriteLock
            | O::WriteTry
            | O::WriteTimed
            | O::RwUnlock => Kind::Rwlock,
            O::SpinLock | O::SpinTry | O::SpinUnlock => Kind::Spin,
            O::SemWait | O::SemTry | O::SemTimed | O::SemPost => Kind::Semaphore,
            O::CondWait | O::CondSignal => Kind::Condition,
            O::Barrier => Kind::Barrier,
            O::Slow => Kind::SlowPath,
            O::Init | O::Destroy | O::Create | O::Join => return None,
        })
    }

    /// For people.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Mutex => "mutex",
            Kind::Rwlock => "rwlock",
            Kind::Spin => "spin",
            Kind::Semaphore => "semaphore",
            Kind::Condition => "condition",
            Kind::Barrier => "barrier",
            Kind::SlowPath => "slow path",
        }
    }

    /// Whether a thread that waits for it waits for a thread that holds it.
    pub fn is_lock(self) -> bool {
        !matches!(self, Kind::Condition | Kind::Barrier)
    }
}
