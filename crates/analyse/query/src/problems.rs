//! What could not be read, reported once.

use std::sync::{Arc, Mutex, PoisonError};

/// Sentences about what could not be read. Several passes over a trace find the same.
#[derive(Clone, Debug, Default)]
pub(crate) struct Problems(Arc<Mutex<Vec<String>>>);

impl Problems {
    pub fn add(&self, problems: impl IntoIterator<Item = String>) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for problem in problems {
            if !known.contains(&problem) {
                known.push(problem);
            }
        }
    }

    pub fn all(&self) -> Vec<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
