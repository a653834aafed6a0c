//! Three kinds of locks, and the four ways to lock the kernel: one source, and a constant that says which locks
//! exist. A lock that does not exist in a build costs nothing in it.
//!
//! | role | up | giant | coarse | fine |
//! |---|---|---|---|---|
//! | giant: the whole kernel | | yes | yes, where no other covers | |
//! | subsystem: IPC, database | | | yes | |
//! | common: ready queues, pages, timers, tables, semaphores | | | yes | yes |
//! | object: a mailbox, a bucket of the database | | | | yes |
//!
//! Every lock that exists is counted and timed (the profiler), written to the event log, and checked for order
//! (the deadlock detector).

use core::hint::spin_loop;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use crate::cpu::{local, now};
use crate::log::{Event, log};

/// How the kernel is locked.
#[derive(Clone, Copy, PartialEq, Eq)]
#[allow(dead_code)]
#[derive(Debug)]
pub enum Build {
    Up,
    Giant,
    Coarse,
    Fine,
}

/// This build.
pub const BUILD: Build = if cfg!(feature = "up") {
    Build::Up
} else if cfg!(feature = "giant") {
    Build::Giant
} else if cfg!(feature = "coarse") {
    Build::Coarse
} else {
    Build::Fine
};

/// What a lock protects.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Role {
    Giant,
    Subsystem,
    Common,
    Object,
}

const fn exists(role: Role) -> bool {
    match BUILD {
        Build::Up => false,
        Build::Giant => matches!(role, Role::Giant),
        Build::Coarse => !matches!(role, Role::Object),
        Build::Fine => matches!(role, Role::Common | Role::Object),
    }
}

/// Whether there is another CPU to lock out: with one there is not, unless the log is to show locks.
static ACTIVE: AtomicBool = AtomicBool::new(false);

/// Makes locks lock. No lock is held yet.
pub fn switch_on() {
    ACTIVE.store(true, Ordering::Release);
}

#[inline]
fn active(role: Role) -> bool {
    exists(role) && ACTIVE.load(Ordering::Relaxed)
}

/// Classes of locks: all mailboxes are one.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Class {
    Giant,
    Ipc,
    Database,
    Ready,
    Pages,
    Timers,
    Tables,
    Semaphore,
    Mailbox,
    Bucket,
}

/// How many.
pub const CLASSES: usize = 10;
pub const NAMES: [&str; CLASSES] = [
    "giant",
    "ipc",
    "database",
    "ready",
    "pages",
    "timers",
    "tables",
    "semaphore",
    "mailbox",
    "bucket",
];

/// `ORDER[a]` has bit `b` if `b` was taken while `a` was held.
static ORDER: [AtomicU32; CLASSES] = [const { AtomicU32::new(0) }; CLASSES];
/// Pairs that were taken in both orders, and locks let go of out of order.
pub static VIOLATIONS: AtomicU32 = AtomicU32::new(0);

/// Where a lock is: the kernel lies in the first 128 MiB.
fn address<T>(lock: &T) -> u32 {
    core::ptr::from_ref(lock).addr() as u32
}

fn begin(class: Class) {
    let local = local();
    let bit = 1 << class as u32;
    for &held in &local.held[..local.held_count as usize] {
        ORDER[held as usize].fetch_or(bit, Ordering::Relaxed);
        if ORDER[class as usize].load(Ordering::Relaxed) & (1 << held) != 0 {
            VIOLATIONS.fetch_add(1, Ordering::Relaxed);
            log(Event::Order, u32::from(held), class as u32);
        }
    }
}

fn taken(class: Class, lock: u32, spun: Option<u64>) {
    let local = local();
    let counts = &mut local.locks[class as usize];
    counts.taken += 1;
    if let Some(spun) = spun {
        counts.contended += 1;
        counts.spun += spun;
        local.times.spinning += spun;
    }
    if (local.held_count as usize) < local.held.len() {
        local.held[local.held_count as usize] = class as u8;
        local.held_count += 1;
    }
    log(Event::Lock, class as u32, lock);
}

fn let_go(class: Class, lock: u32) {
    let local = local();
    let held = &local.held[..local.held_count as usize];
    if held.last() != Some(&(class as u8)) {
        VIOLATIONS.fetch_add(1, Ordering::Relaxed);
        log(Event::Order, class as u32, class as u32);
    }
    local.held_count = local.held_count.saturating_sub(1);
    log(Event::Unlock, class as u32, lock);
}

/// A plain spin lock.
pub struct Spin {
    held: AtomicBool,
    class: Class,
    role: Role,
}

impl Spin {
    pub const fn new(class: Class, role: Role) -> Spin {
        Spin { held: AtomicBool::new(false), class, role }
    }

    #[inline]
    pub fn lock(&self) {
        if active(self.role) {
            begin(self.class);
            let spun = spin(
                (self.class, address(self)),
                || !self.held.swap(true, Ordering::Acquire),
                || self.held.load(Ordering::Relaxed),
            );
            taken(self.class, address(self), spun);
        }
    }

    #[inline]
    pub fn unlock(&self) {
        if active(self.role) {
            let_go(self.class, address(self));
            self.held.store(false, Ordering::Release);
        }
    }

    #[inline]
    pub fn with<R>(&self, what: impl FnOnce() -> R) -> R {
        self.lock();
        let result = what();
        self.unlock();
        result
    }
}

/// Takes a lock: at once, or by spinning until it seems free. How long it took then.
fn spin(
    (class, lock): (Class, u32),
    take: impl Fn() -> bool,
    busy: impl Fn() -> bool,
) -> Option<u64> {
    if take() {
        return None;
    }
    let since = now();
    log(Event::Spin, class as u32, lock);
    loop {
        while busy() {
            spin_loop();
        }
        if take() {
            return Some(now() - since);
        }
    }
}

/// A lock that its holder may take again. Only the giant lock is one: others would hide deadlocks.
pub struct Recursive {
    owner: AtomicU32,
}

pub static GIANT: Recursive = Recursive { owner: AtomicU32::new(0) };

impl Recursive {
    pub fn lock(&self) {
        if !active(Role::Giant) {
            return;
        }
        let local = local();
        if local.giant_depth == 0 {
            begin(Class::Giant);
            let me = local.id + 1;
            let free =
                || self.owner.compare_exchange(0, me, Ordering::Acquire, Ordering::Relaxed).is_ok();
            let spun =
                spin((Class::Giant, address(self)), free, || self.owner.load(Ordering::Relaxed) != 0);
            taken(Class::Giant, address(self), spun);
        }
        local.giant_depth += 1;
    }

    pub fn unlock(&self) {
        if !active(Role::Giant) {
            return;
        }
        let local = local();
        local.giant_depth -= 1;
        if local.giant_depth == 0 {
            let_go(Class::Giant, address(self));
            self.owner.store(0, Ordering::Release);
        }
    }
}

/// Many readers or one writer. A writer that waits keeps new readers out.
pub struct ReaderWriter {
    /// Readers, or [`WRITER`].
    state: AtomicU32,
    waiting: AtomicU32,
    class: Class,
    role: Role,
}

const WRITER: u32 = u32::MAX;

impl ReaderWriter {
    pub const fn new(class: Class, role: Role) -> ReaderWriter {
        ReaderWriter { state: AtomicU32::new(0), waiting: AtomicU32::new(0), class, role }
    }

    pub fn read(&self) {
        if !active(self.role) {
            return;
        }
        begin(self.class);
        let blocked = || {
            self.waiting.load(Ordering::Relaxed) != 0
                || self.state.load(Ordering::Relaxed) == WRITER
        };
        let take = || {
            let readers = self.state.load(Ordering::Relaxed);
            !blocked()
                && readers != WRITER
                && self
                    .state
                    .compare_exchange(readers, readers + 1, Ordering::Acquire, Ordering::Relaxed)
                    .is_ok()
        };
        let spun = spin((self.class, address(self)), take, blocked);
        taken(self.class, address(self), spun);
    }

    pub fn write(&self) {
        if !active(self.role) {
            return;
        }
        begin(self.class);
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let take =
            || self.state.compare_exchange(0, WRITER, Ordering::Acquire, Ordering::Relaxed).is_ok();
        let spun =
            spin((self.class, address(self)), take, || self.state.load(Ordering::Relaxed) != 0);
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        taken(self.class, address(self), spun);
    }

    pub fn read_unlock(&self) {
        if active(self.role) {
            let_go(self.class, address(self));
            self.state.fetch_sub(1, Ordering::Release);
        }
    }

    pub fn write_unlock(&self) {
        if active(self.role) {
            let_go(self.class, address(self));
            self.state.store(0, Ordering::Release);
        }
    }
}
