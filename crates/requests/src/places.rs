//! Places of the keys of many events: loops over looks that do not wait for each other, in which no
//! branch depends on the event.

use crate::keys::{Keys, Lane, Lookup, UNFIT};
use crate::program::{Key, Rule};
use crate::steps::{PIECE, Piece, Rows, Step, USUAL, scope};
use crate::table::Word;

/// A key of a timeline that is a field, or two, and has 64 bits at most: its value always fits.
pub(crate) enum Small<'a> {
    One(One<'a>),
    Two(Two<'a>),
}

impl<'a> Small<'a> {
    pub fn new(key: &Key, piece: Piece<'a>) -> Option<Small<'a>> {
        match key {
            Key::Field { column, mask } => {
                Some(Small::One(One { column: piece.column(*column), mask: *mask }))
            }
            Key::Pair { columns, masks, shift } => {
                let columns = columns.map(|column| piece.column(column));
                Some(Small::Two(Two { columns, masks: *masks, shift: *shift }))
            }
            Key::Parts(_) => None,
        }
    }
}

pub(crate) trait Packed {
    /// Its value in a row.
    fn of(&self, at: usize) -> u64;
}

pub(crate) struct One<'a> {
    column: &'a Rows<u64>,
    mask: u64,
}

impl Packed for One<'_> {
    #[inline(always)]
    fn of(&self, at: usize) -> u64 {
        self.column[at] & self.mask
    }
}

pub(crate) struct Two<'a> {
    columns: [&'a Rows<u64>; 2],
    masks: [u64; 2],
    shift: u32,
}

impl Packed for Two<'_> {
    #[inline(always)]
    fn of(&self, at: usize) -> u64 {
        let [first, second] = self.columns.map(|column| column[at]);
        (first & self.masks[0]) << self.shift | (second & self.masks[1])
    }
}

/// Puts down what some rows do: the rule that takes them, and the places of their first keys.
pub(crate) struct Put<'a> {
    pub all: &'a mut Rows<Step>,
    pub missed: &'a mut Rows<u16>,
    pub rule: u32,
    pub rows: &'a [u16],
}

impl Put<'_> {
    #[inline(never)]
    pub fn one(&mut self, keys: &mut Keys, (lane, key): (usize, impl Packed)) {
        let Put { all, missed, rule, rows } = self;
        let first = keys.first(lane);
        let mut misses = 0;
        for row in *rows {
            // The remainder is the number itself, and needs no check.
            let at = usize::from(*row) % PIECE;
            let (place, found) = first.look(key.of(at));
            all[at] = Step { places: [place; USUAL], rule: *rule, row: at as u32 };
            missed[misses % PIECE] = *row;
            misses += usize::from(!found);
        }
        for row in &missed[..misses] {
            let at = usize::from(*row) % PIECE;
            all[at].places = [keys.place(lane, key.of(at)); USUAL];
        }
    }

    #[inline(never)]
    pub fn two(
        &mut self,
        keys: &mut Keys,
        (lane, key): (usize, impl Packed),
        (other_lane, other): (usize, impl Packed),
    ) {
        let Put { all, missed, rule, rows } = self;
        let [first, second] = [keys.first(lane), keys.first(other_lane)];
        let mut misses = 0;
        for row in *rows {
            let at = usize::from(*row) % PIECE;
            let (one, found) = first.look(key.of(at));
            let (two, both) = second.look(other.of(at));
            all[at] = Step { places: [one, two], rule: *rule, row: at as u32 };
            missed[misses % PIECE] = *row;
            misses += usize::from(!(found & both));
        }
        for row in &missed[..misses] {
            let at = usize::from(*row) % PIECE;
            let one = keys.place(lane, key.of(at));
            all[at].places = [one, keys.place(other_lane, other.of(at))];
        }
    }
}

/// Finds places of one key, and puts them where they belong.
pub(crate) struct Out<'a, P> {
    pub put: P,
    pub rows: &'a [u16],
    pub missed: &'a mut Rows<u16>,
}

impl<P: FnMut(usize, u32)> Out<'_, P> {
    pub fn find_places(
        self,
        lane: Lane<'_>,
        key: &Key,
        piece: Piece<'_>,
        locals: &mut Vec<i128>,
        rule: &Rule,
    ) {
        match (lane, Small::new(key, piece)) {
            (Lane::Narrow(lookup), Some(Small::One(key))) => self.find(lookup, key),
            (Lane::Narrow(lookup), Some(Small::Two(key))) => self.find(lookup, key),
            (Lane::Narrow(lookup), None) => self.find_fitting(lookup, |row| {
                key.of(&scope(rule, piece, row, locals)).map(|key| key as u64)
            }),
            (Lane::Wide(lookup), _) => {
                self.find_fitting(lookup, |row| key.of(&scope(rule, piece, row, locals)));
            }
        }
    }

    /// Finds the place of each row's key.
    #[inline(never)]
    fn find(self, mut lookup: Lookup<'_, u64>, key: impl Packed) {
        let Out { mut put, rows, missed } = self;
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
        mut self,
        mut lookup: Lookup<'_, K>,
        mut key: impl FnMut(usize) -> Option<K>,
    ) {
        for row in self.rows {
            let at = usize::from(*row) % PIECE;
            (self.put)(at, key(at).map_or(UNFIT, |key| lookup.place(key)));
        }
    }
}
