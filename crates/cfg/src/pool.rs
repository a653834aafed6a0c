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
        Lent { tool: Some(idle.unwrap_or_else(&self.make)), home: &self.idle }
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
