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

/// An event that a rule takes.
#[derive(Clone, Copy)]
pub(crate) struct Step {
    /// Its place in the piece.
    pub row: u32,
    /// Place in [`Schema::rules`].
    pub rule: u32,
    /// Where the places of its keys are: see [`Places`].
    first: u32,
    stride: u32,
}

/// The places of an event's keys, by [`crate::program::KeyId`].
#[derive(Clone, Copy)]
pub(crate) struct Places<'a> {
    all: &'a [u32],
    stride: usize,
}

impl Places<'_> {
    /// The place of a key, or [`UNFIT`].
    #[inline]
    pub fn of(self, key: KeyId) -> u32 {
        self.all[key * self.stride]
    }
}

/// What the events of a piece do.
#[derive(Default)]
pub(crate) struct Steps {
    /// The events that a rule takes, in order of time.
    pub all: Vec<Step>,
    /// Places of keys: for each rule, those of its first key for all events that it takes, then
    /// those of its second, and so on.
    places: Vec<u32>,
    /// Number of events that a rule takes.
    matched: usize,
    /// Events by kind.
    kinds: Vec<Vec<u32>>,
    /// Kinds that there are.
    present: Vec<usize>,
    /// Events of a kind that no rule has taken yet, those that the rule at hand takes, and those it leaves.
    rest: Vec<u32>,
    taken: Vec<u32>,
    left: Vec<u32>,
    locals: Vec<i128>,
}

impl Steps {
    /// The places of an event's keys.
    #[inline]
    pub fn places(&self, step: &Step) -> Places<'_> {
        // A rule without keys has none, and may be the last.
        let all = self.places.get(step.first as usize..).unwrap_or_default();
        Places { all, stride: step.stride as usize }
    }

    /// Finds out what the events of a piece do.
    pub fn find(
        &mut self,
        schema: &Schema,
        piece: Piece<'_>,
        timelines: &mut Keys,
        streams: &mut Keys,
    ) {
        self.all.clear();
        self.all.resize(piece.kinds.len(), Step { row: 0, rule: NONE, first: 0, stride: 0 });
        self.places.clear();
        self.matched = 0;
        self.sort(schema, piece.kinds);
        let mut present = std::mem::take(&mut self.present);
        for kind in present.drain(..) {
            let (first, end) = schema.by_event[kind];
            self.rest.clear();
            self.rest.append(&mut self.kinds[kind]);
            for number in first..end {
                let rule = &schema.rules[number as usize];
                self.take(rule, piece);
                if !self.taken.is_empty() {
                    self.look_up(rule, number, piece, timelines, streams);
                }
                if self.rest.is_empty() {
                    break;
                }
            }
        }
        self.present = present;
        if self.matched < piece.kinds.len() {
            self.order();
        }
    }

    /// Puts events of a kind together.
    fn sort(&mut self, schema: &Schema, kinds: &[EventId]) {
        self.kinds.resize_with(schema.by_event.len(), Vec::new);
        for (kind, row) in kinds.iter().zip(0u32..) {
            // Events of other programs have no rules here.
            let Some(rows) = self.kinds.get_mut(kind.index()) else { continue };
            if rows.is_empty() {
                self.present.push(kind.index());
            }
            rows.push(row);
        }
    }

    /// Splits the rest into what a rule takes and what it leaves.
    fn take(&mut self, rule: &Rule, piece: Piece<'_>) {
        let Steps { rest, taken, left, .. } = self;
        if rule.tests.is_empty() && rule.filter.is_none() {
            std::mem::swap(rest, taken);
            rest.clear();
            return;
        }
        let columns = piece.columns;
        match (&*rule.tests, &rule.filter) {
            ([test], None) => {
                let column = &columns[test.column][piece.first..];
                split(rest, taken, left, |row| test.holds(column[row as usize]));
            }
            _ => split(rest, taken, left, |row| rule.takes(columns, piece.first + row as usize)),
        }
        std::mem::swap(rest, left);
    }

    /// Finds the places of the keys of all events that a rule takes.
    fn look_up(
        &mut self,
        rule: &Rule,
        number: u32,
        piece: Piece<'_>,
        timelines: &mut Keys,
        streams: &mut Keys,
    ) {
        let Steps { all, places, taken, locals, .. } = self;
        let (begin, stride) = (places.len(), taken.len());
        self.matched += stride;
        places.resize(begin + stride * rule.keys.len(), UNFIT);
        for (row, first) in taken.iter().zip(begin as u32..) {
            all[*row as usize] = Step { row: *row, rule: number, first, stride: stride as u32 };
        }
        for ((lane, key), out) in rule.keys.iter().zip(places[begin..].chunks_exact_mut(stride)) {
            let rows = taken.iter().copied().zip(out);
            let lane = match lane {
                LaneId::Timeline(lane) => timelines.lane(*lane),
                LaneId::Stream(lane) => streams.lane(*lane),
            };
            match (lane, key) {
                (Lane::Narrow(lookup), Key::Field { column, mask }) => {
                    let column = &piece.columns[*column][piece.first..];
                    each(lookup, rows, |row| Some(column[row as usize] & mask));
                }
                (Lane::Narrow(lookup), Key::Pair { columns: [a, b], masks, shift }) => {
                    let [a, b] = [a, b].map(|column| &piece.columns[*column][piece.first..]);
                    each(lookup, rows, |row| {
                        let (a, b) = (a[row as usize] & masks[0], b[row as usize] & masks[1]);
                        Some(a << shift | b)
                    });
                }
                (Lane::Narrow(lookup), key) => each(lookup, rows, |row| {
                    key.of(&scope(rule, piece, row, locals)).map(|key| key as u64)
                }),
                (Lane::Wide(lookup), key) => {
                    each(lookup, rows, |row| key.of(&scope(rule, piece, row, locals)));
                }
            }
        }
    }

    /// Leaves out events that no rule takes.
    fn order(&mut self) {
        let mut len = 0;
        for n in 0..self.all.len() {
            let step = self.all[n];
            self.all[len] = step;
            len += usize::from(step.rule != NONE);
        }
        self.all.truncate(len);
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

/// Splits rows by a question, without a branch that depends on the answer.
fn split(rows: &[u32], yes: &mut Vec<u32>, no: &mut Vec<u32>, holds: impl Fn(u32) -> bool) {
    yes.resize(rows.len(), 0);
    no.resize(rows.len(), 0);
    let (mut taken, mut left) = (0, 0);
    for row in rows {
        let holds = holds(*row);
        yes[taken] = *row;
        no[left] = *row;
        taken += usize::from(holds);
        left += usize::from(!holds);
    }
    yes.truncate(taken);
    no.truncate(left);
}

/// Finds the place of each row's key.
#[inline(always)]
fn each<'a, K: Word + Into<u128>>(
    mut lookup: Lookup<'_, K>,
    rows: impl Iterator<Item = (u32, &'a mut u32)>,
    mut key: impl FnMut(u32) -> Option<K>,
) {
    for (row, place) in rows {
        if let Some(key) = key(row) {
            *place = lookup.place(key);
        }
    }
}
