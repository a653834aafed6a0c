//! A piece of a batch: the events that are worked on together.

use crate::event::EventId;
use crate::program::{Rule, Scope};

/// Events of a piece. What belongs to one stays in the first caches while it is worked on, and places
/// of sections that were open in between are soon used again; but the loops over events of one kind
/// should not be too short.
pub(crate) const PIECE: usize = 1024;

/// Something for each event of a piece. Its length is known, so what is in a piece is in bounds.
pub(crate) type Rows<T> = [T; PIECE];

/// Some events, column by column.
#[derive(Clone, Copy)]
pub(crate) struct Piece<'a> {
    pub kinds: &'a [EventId],
    /// Those of the whole batch, or of more: not shorter than a whole piece from here.
    pub times_ns: &'a [u64],
    /// The same.
    pub columns: &'a [Vec<u64>],
    /// Where the piece begins in them.
    pub first: usize,
}

impl<'a> Piece<'a> {
    /// The piece's part of a column.
    #[inline]
    pub fn column(&self, column: usize) -> &'a Rows<u64> {
        self.whole(&self.columns[column])
    }

    /// The times of its events, and of what else there is.
    #[inline]
    pub fn times_ns(&self) -> &'a Rows<u64> {
        self.whole(self.times_ns)
    }

    #[inline]
    fn whole(&self, column: &'a [u64]) -> &'a Rows<u64> {
        column[self.first..].first_chunk().expect("columns are as long as a piece")
    }
}

/// Values that expressions of a rule can name.
pub(crate) fn scope<'a>(
    rule: &Rule,
    piece: Piece<'a>,
    row: usize,
    locals: &'a mut Vec<i128>,
) -> Scope<'a> {
    let (columns, row) = (piece.columns, piece.first + row);
    locals.clear();
    for local in &rule.locals {
        let value = local.of(&Scope { columns, row, locals });
        locals.push(value);
    }
    Scope { columns, row, locals }
}
