//! Interruption by the user.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use fettle_types::Pid;

use crate::error::TuneError;

/// Whether the user has interrupted the work.
#[derive(Clone, Copy, Debug)]
pub struct Stop<'a>(pub &'a AtomicBool);

impl Stop<'_> {
    /// Whether the user has interrupted us.
    pub fn is_wanted(self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Nothing, unless we are interrupted.
    ///
    /// # Errors
    ///
    /// When we are interrupted.
    pub fn check(self, pid: Pid) -> Result<(), TuneError> {
        if self.is_wanted() { Err(TuneError::Interrupted { pid }) } else { Ok(()) }
    }

    /// Waits, unless we are interrupted.
    ///
    /// # Errors
    ///
    /// When we are interrupted.
    pub fn wait(self, pid: Pid, time: Duration) -> Result<(), TuneError> {
        let end = Instant::now() + time;
        loop {
            self.check(pid)?;
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            std::thread::sleep(left.min(Duration::from_millis(50)));
        }
    }
}
