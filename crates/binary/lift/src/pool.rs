//! Tools that threads take and give back.
//!
//! Work is split into many more pieces than there are threads, and a tool that remembers (forms of
//! instructions, buffers) has to learn again in each piece that gets one of its own.

use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, PoisonError};

/// Tools that are not in use.
pub struct Pool<T, F> {
    idle: Mutex<Vec<T>>,
    make: F,
}

impl<T, F: Fn() -> T> Pool<T, F> {
    /// Where there is none that is idle, `make` makes one.
    pub fn new(make: F) -> Pool<T, F> {
        Pool { idle: Mutex::default(), make }
    }

    /// A tool, until it is dropped.
    pub fn take(&self) -> Lent<'_, T> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let made = || {
            widen_heap();
            (self.make)()
        };
        Lent { tool: Some(idle.unwrap_or_else(made)), home: &self.idle }
    }
}

/// Memory that a thread is about to need, as a rule.
const HEAP: usize = 16 << 20;

/// Gives the thread's heap room at one go. The C library otherwise lets those of all threads but the
/// first grow page by page, each with a system call: a tenth of the time. What is taken here and given
/// back stays with the heap, and costs nothing before it is used. The first time it is mapped on its
/// own; that it was given back says that it should not be, from then on.
fn widen_heap() {
    for _ in 0..2 {
        let mut room = Vec::<u8>::new();
        // Where there is no such room, it goes page by page.
        let _ = room.try_reserve_exact(HEAP);
        std::hint::black_box(room);
    }
}

/// A tool of a [`Pool`].
pub struct Lent<'p, T> {
    tool: Option<T>,
    home: &'p Mutex<Vec<T>>,
}

impl<T> Deref for Lent<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.tool.as_ref().expect("it is there until it is dropped")
    }
}

impl<T> DerefMut for Lent<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.tool.as_mut().expect("it is there until it is dropped")
    }
}

impl<T> Drop for Lent<'_, T> {
    fn drop(&mut self) {
        let mut home = self.home.lock().unwrap_or_else(PoisonError::into_inner);
        home.extend(self.tool.take());
    }
}
