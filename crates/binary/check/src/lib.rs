//! The checker: does rewritten text do what the original did?
//!
//! It decodes the original again, walks both codes in step and takes nothing of what the planner
//! and emitter say for granted: what they say is a claim that is looked up and compared.
//!
//! 1. *Walk* (this file): from the entry and every block, each original instruction must meet
//!    its like. Only distances may differ, and those must be fixed up to the same address.
//!    Blocks may lie in any order: control that fell into a block may jump there and the reverse,
//!    and a conditional jump may be inverted. Control stays in one chunk unless a jump that
//!    waits for the chunks' places leads to another.
//! 2. *Probes* ([`probe`]): whatever stands between the instructions is executed symbolically.
//!    What it leaves changed must be dead there ([`dead`]).
//! 3. *Tables* ([`tables`]): copies of jump tables and entry patches lead to the same code.
//! 4. *Unwinding* ([`unwind`]): rules for finding the caller, and handlers of exceptions.
//!
//! What is trusted: how the function was lifted (its ranges, the targets of indirect jumps, that
//! a call at the end of a range does not return), what a callee may change
//! (`Context::clobbers`) and that it reads what the ABI says, what callers need beyond the ABI
//! (`ExitLiveness`), where exception tables put landing pads, and the fillers of fixups
//! (`fettle_rewrite::link`).
#![forbid(unsafe_code)]

mod calls;
mod claim;
mod convention;
mod dead;
mod fault;
mod pointer;
mod probe;
mod seen;
mod summary;
mod tables;
mod unwind;
pub mod user_probe;
mod uses;
mod walk;

use fettle_code::Context;
use fettle_image::Image;
use fettle_isa::Forms;

pub use claim::Claim;
pub use fault::{CheckError, Fault};
pub use summary::ProbeFault;

use probe::Shapes;
use seen::FormDecoder;
use walk::{Scratch, Walk};

/// Checks functions of one image; one per thread.
pub struct Checker<'a> {
    image: &'a Image,
    shapes: Shapes,
    scratch: Scratch,
    forms: Forms<FormDecoder>,
    rows: Option<unwind::Rows<'a>>,
}

impl<'a> Checker<'a> {
    /// A checker for `image`.
    pub fn new(image: &'a Image) -> Checker<'a> {
        Checker {
            image,
            shapes: Shapes::default(),
            scratch: Scratch { resolvers: pointer::has_resolvers(image), ..Scratch::default() },
            forms: Forms::default(),
            rows: unwind::Rows::new(image),
        }
    }

    /// Checks one function.
    ///
    /// # Errors
    ///
    /// The first difference that was found.
    pub fn check(&mut self, claim: Claim<'_>, context: &Context<'_>) -> Result<(), CheckError> {
        let mut scratch = std::mem::take(&mut self.scratch);
        let result = self.check_with(&mut scratch, claim, context);
        self.scratch = scratch;
        result
    }

    fn check_with(
        &mut self,
        scratch: &mut Scratch,
        claim: Claim<'_>,
        context: &Context<'_>,
    ) -> Result<(), CheckError> {
        let memory = (scratch, &mut self.shapes, &mut self.forms);
        let mut walk = Walk::new(self.image, memory, claim, context)?;
        walk.all()?;
        dead::check(&mut walk)?;
        tables::check(&mut walk)?;
        match &mut self.rows {
            Some(rows) => unwind::check(&walk, rows),
            None if claim.unwind.is_empty() => Ok(()),
            None => Err(CheckError { at: claim.function.entry, what: Fault::Unwind }),
        }
    }
}

/// Checks one function, without memory of others; for tests.
///
/// # Errors
///
/// The first difference that was found.
pub fn check(claim: Claim<'_>, context: &Context<'_>) -> Result<(), CheckError> {
    Checker::new(context.image).check(claim, context)
}
