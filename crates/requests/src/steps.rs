//! What the events of a piece of a batch do, found out before anything is done: which rule takes each
//! of them, and which places its keys are.
//!
//! None of this depends on what is open, so it is done column by column, all events of one kind
//! together: short loops in which no branch depends on the event, over looks that do not wait for each
//! other. What has to be done in order of time is left with numbers.

use crate::event::EventId;
use crate::keys::{Keys, Lane, Lookup, UNFIT};
use crate::program::{Key, KeyId, LaneId, Rule, Schema, Scope};
use crate::table::Word;

/// Events of a piece. What belongs to one stays in the first caches while it is worked on, and places
/// of sections that were open in between are soon used again.
pub(crate) const PIECE: usize = 512;

/// No rule.
const NONE: u32 = u32::MAX;

/// Some events, column by column.
#[derive(Clone, Copy)]
pub(crate) struct Piece<'a> {
    pub times_ns: &'a [u64],
    pub kinds: &'a [EventId],
    /// Those of the whole batch.
    pub columns: &'a [Vec<u64>],
    /// Where the piece begins in them.
    pub first: usize,
}

impl<'a> Piece<'a> {
    /// The piece's part of a column.
    #[inline]
    fn column(&self, column: usize) -> &'a [u64] {
        &self.columns[column][self.first..self.first + self.kinds.len()]
    }
}

/// An event that a rule takes.
#[derive(Clone, Copy)]
pub(crate) struct Step {
    /// Its place in the piece.
    pub row: u32,
    /// Place in [`Schema::rules`].
    pub rule: u32,
}

/// The places of an event's keys.
#[derive(Clone, Copy)]
pub(crate) struct Places<'a> {
    all: &'a [u32],
    row: usize,
}

impl Places<'_> {
    /// The place of a key, or [`UNFIT`].
    #[inline]
    pub fn of(self, key: KeyId) -> u32 {
        self.all[key * PIECE + self.row]
    }
}

/// What the events of a piece do.
#[derive(Default)]
pub(crate) struct Steps {
    /// The events that a rule takes, in order of time.
    pub all: Vec<Step>,
    /// Places of keys: those of the first key of all events, then those of the second, and so on.
    places: Vec<u32>,
    /// Events by kind, with room for [`PIECE`] of each, and where those of each end.
    kinds: Vec<u32>,
    ends: Vec<u32>,
    /// Room for events that a rule leaves.
    spare: Vec<u32>,
    /// Events whose key is not where it is looked for first.
    missed: Vec<u32>,
    locals: Vec<i128>,
}

impl Steps {
    /// For the rules of a schema.
    pub fn new(schema: &Schema) -> Steps {
        let width = schema.rules.iter().map(|rule| rule.keys.len()).max().unwrap_or(0);
        let kinds = schema.by_event.len();
        Steps {
            all: Vec::new(),
            places: vec![UNFIT; width * PIECE],
            kinds: vec![0; kinds * PIECE],
            ends: (0..kinds).map(|kind| (kind * PIECE) as u32).collect(),
            spare: vec![0; PIECE],
            missed: vec![0; PIECE],
            locals: Vec::new(),
        }
    }

    /// The places of an event's keys.
    #[inline]
    pub fn places(&self, step: &Step) -> Places<'_> {
        Places { all: &self.places, row: step.row as usize }
    }

    /// Finds out what the events of a piece do.
    pub fn find(
        &mut self,
        schema: &Schema,
        piece: Piece<'_>,
        timelines: &mut Keys,
        streams: &mut Keys,
    ) {
        let Steps { all, places, kinds, ends, spare, missed, locals } = self;
        all.clear();
        all.extend((0..piece.kinds.len() as u32).map(|row| Step { row, rule: NONE }));
        sort(piece.kinds, kinds, ends);
        let mut finds = Finds { all, places, missed, locals, timelines, streams };
        let mut matched = 0;
        for (kind, rules) in schema.by_event.iter().enumerate() {
            let begin = kind * PIECE;
            let end = std::mem::replace(&mut ends[kind], begin as u32);
            let mut rest = &mut kinds[begin..end as usize];
            for number in rules.0..rules.1 {
                if rest.is_empty() {
                    break;
                }
                let rule = &schema.rules[number as usize];
                let number_taken = take(rule, piece, rest, spare);
                let (taken, left) = rest.split_at_mut(number_taken);
                finds.look_up(rule, number, piece, taken);
                matched += taken.len();
                rest = left;
            }
        }
        if matched < piece.kinds.len() {
            self.all.retain(|step| step.rule != NONE);
        }
    }
}

/// Puts events of a kind together.
#[inline(never)]
fn sort(kinds: &[EventId], rows: &mut [u32], ends: &mut [u32]) {
    for (kind, row) in kinds.iter().zip(0u32..) {
        // Events of other programs have no rules here.
        let Some(end) = ends.get_mut(kind.index()) else { continue };
        rows[*end as usize] = row;
        *end += 1;
    }
}

/// Puts the rows that a rule takes before the others, and says how many they are. Each part of a
/// filter is asked about those that are left by the parts before.
fn take(rule: &Rule, piece: Piece<'_>, rows: &mut [u32], spare: &mut [u32]) -> usize {
    let mut taken = rows.len();
    for test in &rule.tests {
        let (rows, column) = (&mut rows[..taken], piece.column(test.column));
        taken = match test.among.is_empty() {
            true => part(rows, spare, |row| test.within(column[row as usize])),
            false => part(rows, spare, |row| test.holds(column[row as usize])),
        };
    }
    if let Some(filter) = &rule.filter {
        // Derived fields are not known yet.
        let scope = |row| Scope { columns: piece.columns, row, locals: &[] };
        taken =
            part(&mut rows[..taken], spare, |row| filter.holds(&scope(piece.first + row as usize)));
    }
    taken
}

/// Puts the rows for which something holds before the others, without a branch that depends on it.
#[inline(never)]
fn part(rows: &mut [u32], spare: &mut [u32], holds: impl Fn(u32) -> bool) -> usize {
    let mut yes = 0;
    for n in 0..rows.len() {
        let row = rows[n];
        rows[yes] = row;
        spare[n - yes] = row;
        yes += usize::from(holds(row));
    }
    let no = rows.len() - yes;
    rows[yes..].copy_from_slice(&spare[..no]);
    yes
}

/// Where what is found goes.
struct Finds<'a> {
    all: &'a mut [Step],
    places: &'a mut [u32],
    missed: &'a mut [u32],
    locals: &'a mut Vec<i128>,
    timelines: &'a mut Keys,
    streams: &'a mut Keys,
}

impl Finds<'_> {
    /// Finds the places of the keys of all events that a rule takes.
    fn look_up(&mut self, rule: &Rule, number: u32, piece: Piece<'_>, rows: &[u32]) {
        for row in rows {
            self.all[*row as usize].rule = number;
        }
        let Finds { places, missed, locals, timelines, streams, .. } = self;
        for ((lane, key), places) in rule.keys.iter().zip(places.chunks_exact_mut(PIECE)) {
            let out = Out { places, rows, missed };
            let lane = match lane {
                LaneId::Timeline(lane) => timelines.lane(*lane),
                LaneId::Stream(lane) => streams.lane(*lane),
            };
            match (lane, key) {
                (Lane::Narrow(lookup), Key::Field { column, mask }) => {
                    let (column, mask) = (piece.column(*column), *mask);
                    out.find(lookup, move |row| column[row as usize] & mask);
                }
                (Lane::Narrow(lookup), Key::Pair { columns, masks, shift }) => {
                    let [a, b] = columns.map(|column| piece.column(column));
                    let ([first, second], shift) = (*masks, *shift);
                    out.find(lookup, move |row| {
                        (a[row as usize] & first) << shift | (b[row as usize] & second)
                    });
                }
                (Lane::Narrow(lookup), key) => out.find_fitting(lookup, |row| {
                    key.of(&scope(rule, piece, row, locals)).map(|key| key as u64)
                }),
                (Lane::Wide(lookup), key) => {
                    out.find_fitting(lookup, |row| key.of(&scope(rule, piece, row, locals)));
                }
            }
        }
    }
}

/// Values that expressions of a rule can name.
pub(crate) fn scope<'a>(
    rule: &Rule,
    piece: Piece<'a>,
    row: u32,
    locals: &'a mut Vec<i128>,
) -> Scope<'a> {
    let (columns, row) = (piece.columns, piece.first + row as usize);
    locals.clear();
    for local in &rule.locals {
        let value = local.of(&Scope { columns, row, locals });
        locals.push(value);
    }
    Scope { columns, row, locals }
}

/// Where the places of one key go.
struct Out<'a> {
    places: &'a mut [u32],
    rows: &'a [u32],
    missed: &'a mut [u32],
}

impl Out<'_> {
    /// Finds the place of each row's key.
    #[inline(never)]
    fn find<K: Word + Into<u128>>(self, mut lookup: Lookup<'_, K>, key: impl Fn(u32) -> K) {
        let Out { places, rows, missed } = self;
        let (places, missed) = (&mut places[..PIECE], &mut missed[..PIECE]);
        let first = lookup.first();
        let mut misses = 0;
        for row in rows {
            let (place, found) = first.look(key(*row));
            // The remainder is the number itself, and needs no check.
            places[*row as usize % PIECE] = place;
            missed[misses % PIECE] = *row;
            misses += usize::from(!found);
        }
        for row in &missed[..misses] {
            places[*row as usize] = lookup.place(key(*row));
        }
    }

    /// Finds the place of each row's key, if its value fits.
    fn find_fitting<K: Word + Into<u128>>(
        self,
        mut lookup: Lookup<'_, K>,
        mut key: impl FnMut(u32) -> Option<K>,
    ) {
        for row in self.rows {
            let place = key(*row).map_or(UNFIT, |key| lookup.place(key));
            self.places[*row as usize] = place;
        }
    }
}
