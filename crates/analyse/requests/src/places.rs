//! Places of the keys of many events: loops over looks that do not wait for each other, in which no
//! branch depends on the event.

use crate::keys::{Lane, Lookup, UNFIT};
use crate::piece::{PIECE, Piece, Rows, scope};
use crate::program::{Key, Rule};
use crate::table::Word;

/// A key of a timeline that is a field, or two, and has 64 bits at most: its value always fits.
enum Small<'a> {
    One(One<'a>),
    Two(Two<'a>),
}

impl<'a> Small<'a> {
    fn new(key: &Key, piece: Piece<'a>) -> Option<Small<'a>> {
        match key {
            Key::Field { column, mask } => {
                Some(Small::One(One { column: piece.column(*column), mask: *mask }))
            }
            Key::Pair { columns, masks, shift } => {
                let columns = columns.map(|column| piece.column(column));
                Some(Small::Two(Two { columns, masks: *masks, factor: 1 << shift }))
            }
            Key::Parts(_) => None,
        }
    }
}

trait Packed {
    /// Its value in a row.
    fn of(&self, at: usize) -> u64;
}

struct One<'a> {
    column: &'a Rows<u64>,
    mask: u64,
}

impl Packed for One<'_> {
    #[inline(always)]
    fn of(&self, at: usize) -> u64 {
        self.column[at] & self.mask
    }
}

struct Two<'a> {
    columns: [&'a Rows<u64>; 2],
    masks: [u64; 2],
    /// What moves the first field up: to multiply is less work than to shift by what is not known.
    factor: u64,
}

impl Packed for Two<'_> {
    #[inline(always)]
    fn of(&self, at: usize) -> u64 {
        let [first, second] = self.columns.map(|column| column[at]);
        ((first & self.masks[0]) * self.factor) | (second & self.masks[1])
    }
}

/// Finds the places of a key, and puts them where they belong.
pub(crate) struct Find<'a> {
    pub lane: Lane<'a>,
    pub key: &'a Key,
    /// The events whose key it is, which a rule takes.
    pub rows: &'a [u16],
    pub piece: Piece<'a>,
    pub rule: &'a Rule,
    pub missed: &'a mut Rows<u16>,
    pub locals: &'a mut Vec<i128>,
}

impl Find<'_> {
    pub fn places(self, put: impl FnMut(usize, u32)) {
        let Find { lane, key, rows, piece, rule, missed, locals } = self;
        match (lane, Small::new(key, piece)) {
            (Lane::Narrow(lookup), Some(Small::One(key))) => find(lookup, key, rows, missed, put),
            (Lane::Narrow(lookup), Some(Small::Two(key))) => find(lookup, key, rows, missed, put),
            (Lane::Narrow(lookup), None) => find_fitting(lookup, rows, put, |row| {
                key.of(&scope(rule, piece, row, locals)).map(|key| key as u64)
            }),
            (Lane::Wide(lookup), _) => {
                find_fitting(lookup, rows, put, |row| key.of(&scope(rule, piece, row, locals)));
            }
        }
    }
}

/// Finds the place of each row's key.
#[inline(never)]
fn find(
    mut lookup: Lookup<'_, u64>,
    key: impl Packed,
    rows: &[u16],
    missed: &mut Rows<u16>,
    mut put: impl FnMut(usize, u32),
) {
    let first = lookup.first();
    let mut misses = 0;
    for row in rows {
        // The remainder is the number itself, and needs no check.
        let at = usize::from(*row) % PIECE;
        let (place, found) = first.look(key.of(at));
        put(at, place);
        missed[misses % PIECE] = *row;
        misses += usize::from(!found);
    }
    for row in &missed[..misses] {
        let at = usize::from(*row) % PIECE;
        put(at, lookup.place(key.of(at)));
    }
}

/// Finds the place of each row's key, if its value fits.
fn find_fitting<K: Word + Into<u128>>(
    mut lookup: Lookup<'_, K>,
    rows: &[u16],
    mut put: impl FnMut(usize, u32),
    mut key: impl FnMut(usize) -> Option<K>,
) {
    for row in rows {
        let at = usize::from(*row) % PIECE;
        put(at, key(at).map_or(UNFIT, |key| lookup.place(key)));
    }
}
