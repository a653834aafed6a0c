//! Switching a process from rewritten text to original text and back, in an order that may be
//! interrupted anywhere.
//!
//! Jumps in original text lead to rewritten text. Deopt jumps, at the starts of functions in
//! rewritten text, lead back to original text: for a thread that stays in rewritten text and calls
//! other functions there. A function that had both would loop between the two for ever, and Fettle
//! may be killed between any two writes. So entry patches are removed before deopt jumps are
//! written, and the other way round. An entry patch is removed even if a thread seems to be in the
//! middle of it: no thread can be in the middle of what has been a single jump for a while.

use std::time::Duration;

use fettle_live::{LiveError, MappedFiles, Patch, Process};

use crate::rewritten::Rewritten;

/// The patches that lead to rewritten text, and those that lead back out of it.
#[derive(Clone, Debug, Default)]
pub struct PatchSet {
    /// Entry patches, calls, GOT slots, and OSR entries.
    pub(crate) into: Vec<Patch>,
    /// Deopt jumps.
    pub(crate) out: Vec<Patch>,
}

impl PatchSet {
    /// Adds others.
    pub(crate) fn extend(&mut self, other: &PatchSet) {
        self.into.extend(other.into.iter().cloned());
        self.out.extend(other.out.iter().cloned());
    }

    /// Adds all patches of some rewritten text.
    pub(crate) fn add(&mut self, code: &Rewritten) {
        self.into.extend(code.jumps.iter().chain(&code.calls).cloned());
        self.out.extend(code.deopt_jumps.iter().cloned());
    }

    /// Adds the patches that stop those functions of some rewritten text from running that are
    /// `chosen`, by their numbers: redirected calls and slots may stay, and pass a deopt jump to
    /// the original.
    pub(crate) fn add_only(&mut self, code: &Rewritten, chosen: impl Fn(usize) -> bool) {
        let functions = &code.plan.functions;
        let of_jump = |patch: &&Patch| {
            let entry = patch.at - code.bias;
            let next = functions.partition_point(|f| f.entry <= entry);
            next.checked_sub(1).is_some_and(&chosen)
        };
        let of_deopt_jump = |patch: &&Patch| {
            let offset = patch.at.0.wrapping_sub(code.text.at.0);
            code.plan.function_at(offset as u32).is_some_and(&chosen)
        };
        self.into.extend(code.jumps.iter().filter(of_jump).cloned());
        self.out.extend(code.deopt_jumps.iter().filter(of_deopt_jump).cloned());
    }

    /// The mappings that all patch sites are in.
    pub(crate) fn places(&self, process: &Process) -> MappedFiles {
        MappedFiles::look(process, &[&self.into[..], &self.out[..]].concat())
    }

    /// Switches a process to rewritten text, or to original text; both steps share a pause, as far as that goes. Returns
    /// how long threads were paused, each time.
    pub(crate) fn switch(
        &self,
        process: &Process,
        new: bool,
        places: &MappedFiles,
    ) -> Result<Vec<Duration>, LiveError> {
        let (back, forth) = match new {
            true => (&self.out, &self.into),
            false => (&self.into, &self.out),
        };
        process.exchange(back, forth, places)
    }
}
