//! Leading a process from new code to old code and back, in an order that may end anywhere.
//!
//! Jumps in old code lead to new code, and gates, at the starts of functions in new code, back to
//! old code: for who stays in new code and calls others there. A function that had both would go
//! from the one to the other for ever, and whoever writes them may be killed between any two. So
//! ways into new code are shut before gates are opened, and the other way round. All of them are
//! shut, whoever seems to be in the middle of one: where a jump has been for a while is nobody.

use std::time::Duration;

use fettle_live::{LiveError, Patch, Places, Process};

use crate::new_code::NewCode;

/// What leads to new code, and what leads back out of it; both as they are to be written.
#[derive(Clone, Debug, Default)]
pub struct Ways {
    /// Jumps, calls, slots, and what leads into the middle of functions.
    pub(crate) into: Vec<Patch>,
    /// Gates.
    pub(crate) out: Vec<Patch>,
}

impl Ways {
    /// Adds others.
    pub(crate) fn extend(&mut self, other: &Ways) {
        self.into.extend(other.into.iter().cloned());
        self.out.extend(other.out.iter().cloned());
    }

    /// Adds all ways of some new code.
    pub(crate) fn add(&mut self, code: &NewCode) {
        self.into.extend(code.jumps.iter().chain(&code.calls).cloned());
        self.out.extend(code.gates.iter().cloned());
    }

    /// Adds what would have those functions of some new code run no more that are `chosen`, by their
    /// numbers: calls and slots may lead to their new code, and go on to the old one.
    pub(crate) fn add_only(&mut self, code: &NewCode, chosen: impl Fn(usize) -> bool) {
        let functions = &code.plan.functions;
        let of_jump = |patch: &&Patch| {
            let entry = patch.at.0.wrapping_sub(code.bias);
            let next = functions.partition_point(|f| f.entry.0 <= entry);
            next.checked_sub(1).is_some_and(&chosen)
        };
        let of_gate = |patch: &&Patch| {
            let offset = patch.at.0.wrapping_sub(code.text.at.0);
            code.plan.function_at(offset as u32).is_some_and(&chosen)
        };
        self.into.extend(code.jumps.iter().filter(of_jump).cloned());
        self.out.extend(code.gates.iter().filter(of_gate).cloned());
    }

    /// Where all of it lies.
    pub(crate) fn places(&self, process: &Process) -> Places {
        Places::look(process, &[&self.into[..], &self.out[..]].concat())
    }

    /// Has a process run new code, or old code. Gives how long threads stood still, each time.
    pub(crate) fn lead(
        &self,
        process: &Process,
        new: bool,
        places: &Places,
    ) -> Result<Vec<Duration>, LiveError> {
        let (back, forth) = match new {
            true => (&self.out, &self.into),
            false => (&self.into, &self.out),
        };
        let mut stops = process.restore(back, places)?.stops;
        stops.extend(process.patch(forth, places)?.stops);
        Ok(stops)
    }
}
