//! What stays the same from event to event of a piece.

use crate::options::Options;
use crate::piece::Piece;
use crate::program::Rule;
use crate::run::Now;
use crate::steps::{Step, Steps};

/// What stays the same from event to event of a piece.
#[derive(Clone, Copy)]
pub(crate) struct Setting<'a> {
    pub rules: &'a [Rule],
    pub steps: &'a Steps,
    pub piece: Piece<'a>,
    /// The place of the piece's first event among all.
    pub ordinal: u64,
    pub options: Options,
}

impl Setting<'_> {
    #[inline]
    pub fn now(&self, step: &Step, ns: u64) -> Now {
        let event = self.rules[step.rule as usize].event;
        Now { ns, ordinal: self.ordinal + u64::from(step.row), event }
    }
}
