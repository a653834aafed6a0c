//! The C library's functions of locks: what is recorded of their calls, and what they mean.

/// What a function does with a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Takes it alone.
    Lock,
    /// Takes it shared, with other readers.
    Read,
    /// Decrements a semaphore.
    Down,
    /// Releases it.
    Unlock,
    /// Increments a semaphore.
    Up,
    /// Releases it while it waits for a condition.
    Condition,
    /// Initialises a semaphore.
    Make,
}

/// A lock function of the C library.
#[derive(Clone, Copy, Debug)]
pub struct Function {
    /// As in C.
    pub prototype: &'static str,
    /// What it does.
    pub change: Change,
    /// Which argument is the lock, from 0.
    pub lock: usize,
    /// Whether it waits for a lock that is held.
    pub waits: bool,
}

impl Function {
    /// Its name.
    pub fn name(&self) -> &'static str {
        let before = self.prototype.split('(').next().unwrap_or_default();
        before.rsplit(' ').next().unwrap_or_default()
    }

    /// Whether it waits with a timeout.
    pub fn timed(&self) -> bool {
        self.name().contains("timed") || self.name().contains("clock")
    }
}

/// All of them: threads and semaphores of POSIX.1-2024.
pub const FUNCTIONS: [Function; 26] = [
    of("int pthread_mutex_lock(void *mutex)", Change::Lock, 0),
    tries("int pthread_mutex_trylock(void *mutex)", Change::Lock, 0),
    of("int pthread_mutex_timedlock(void *mutex)", Change::Lock, 0),
    of("int pthread_mutex_clocklock(void *mutex)", Change::Lock, 0),
    of("int pthread_mutex_unlock(void *mutex)", Change::Unlock, 0),
    of("int pthread_cond_wait(void *condition, void *mutex)", Change::Condition, 1),
    of("int pthread_cond_timedwait(void *condition, void *mutex)", Change::Condition, 1),
    of("int pthread_cond_clockwait(void *condition, void *mutex)", Change::Condition, 1),
    of("int pthread_rwlock_rdlock(void *lock)", Change::Read, 0),
    tries("int pthread_rwlock_tryrdlock(void *lock)", Change::Read, 0),
    of("int pthread_rwlock_timedrdlock(void *lock)", Change::Read, 0),
    of("int pthread_rwlock_clockrdlock(void *lock)", Change::Read, 0),
    of("int pthread_rwlock_wrlock(void *lock)", Change::Lock, 0),
    tries("int pthread_rwlock_trywrlock(void *lock)", Change::Lock, 0),
    of("int pthread_rwlock_timedwrlock(void *lock)", Change::Lock, 0),
    of("int pthread_rwlock_clockwrlock(void *lock)", Change::Lock, 0),
    of("int pthread_rwlock_unlock(void *lock)", Change::Unlock, 0),
    of("int pthread_spin_lock(void *lock)", Change::Lock, 0),
    tries("int pthread_spin_trylock(void *lock)", Change::Lock, 0),
    of("int pthread_spin_unlock(void *lock)", Change::Unlock, 0),
    of("int sem_init(void *semaphore, int shared, unsigned value)", Change::Make, 0),
    of("int sem_wait(void *semaphore)", Change::Down, 0),
    tries("int sem_trywait(void *semaphore)", Change::Down, 0),
    of("int sem_timedwait(void *semaphore)", Change::Down, 0),
    of("int sem_clockwait(void *semaphore)", Change::Down, 0),
    of("int sem_post(void *semaphore)", Change::Up, 0),
];

const fn of(prototype: &'static str, change: Change, lock: usize) -> Function {
    Function { prototype, change, lock, waits: true }
}

const fn tries(prototype: &'static str, change: Change, lock: usize) -> Function {
    Function { prototype, change, lock, waits: false }
}

/// The function of this name, which may have underscores before it and a version after it.
pub fn named(name: &str) -> Option<&'static Function> {
    let name = name.trim_start_matches('_');
    let name = name.split_once('@').map_or(name, |(name, _)| name);
    FUNCTIONS.iter().find(|function| function.name() == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_in_prototypes() {
        assert_eq!(FUNCTIONS[0].name(), "pthread_mutex_lock");
        assert!(
            FUNCTIONS
                .iter()
                .all(|f| f.name().starts_with("pthread_") || f.name().starts_with("sem_"))
        );
    }
}
