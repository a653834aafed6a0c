//! What recorded calls were given and gave back, by call.

use std::collections::HashMap;

use fettle_trace::{Argument, Trace};
use fettle_types::FunctionIndex;

use crate::error::Result;

/// Arguments that events can name.
pub(crate) const ARGUMENTS: usize = 6;

/// The integers and pointers of one call; what is not known is 0.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Given {
    /// Its arguments, from the first.
    pub arguments: [u64; ARGUMENTS],
    /// What it returned, once it did.
    pub result: Option<u64>,
}

/// The values of all calls that were not reported yet. Takes about 120 bytes a call.
#[derive(Default)]
pub(crate) struct GivenCalls {
    by_call: HashMap<(u32, FunctionIndex, u64), Given>,
}

impl GivenCalls {
    /// Reads a trace's.
    pub(crate) fn read(trace: &Trace) -> Result<GivenCalls> {
        let mut by_call: HashMap<_, Given> = HashMap::new();
        trace.for_each_argument(|rows| {
            for row in rows {
                add(by_call.entry((row.thread, row.function, row.start_ns)).or_default(), row);
            }
        })?;
        Ok(GivenCalls { by_call })
    }

    /// Takes out what a call was given that began then; `None` if nothing is known of it.
    pub(crate) fn take(
        &mut self,
        thread: u32,
        function: FunctionIndex,
        start_ns: u64,
    ) -> Option<Given> {
        self.by_call.remove(&(thread, function, start_ns))
    }
}

fn add(given: &mut Given, row: &Argument) {
    let value = row.integer.unwrap_or(0) as u64;
    match usize::try_from(row.index) {
        Ok(index) if index < ARGUMENTS => given.arguments[index] = value,
        Ok(_) => {}
        Err(_) => given.result = Some(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_found_by_call() {
        let row = |index, integer| Argument {
            thread: 1,
            function: FunctionIndex(2),
            start_ns: 3,
            index,
            integer: Some(integer),
            ..Argument::default()
        };
        let mut given = Given::default();
        for row in [row(0, 7), row(5, -1), row(9, 4)] {
            add(&mut given, &row);
        }
        assert_eq!((given.arguments, given.result), ([7, 0, 0, 0, 0, u64::MAX], None));
        add(&mut given, &row(-1, 8));
        assert_eq!(given.result, Some(8));
    }
}
