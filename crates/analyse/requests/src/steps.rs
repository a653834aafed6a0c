//! What the events of a piece of a batch do, found out before anything is done: which rule takes each
//! of them, and which places its keys are.
//!
//! None of this depends on what is open, so it is done column by column, all events of one kind
//! together: short loops in which no branch depends on the event, over looks that do not wait for each
//! other. What has to be done in order of time is left with numbers.

use crate::event::EventId;
use crate::keys::{Keys, UNFIT};
use crate::piece::{PIECE, Piece, Rows};
use crate::places::Find;
use crate::program::{KeyId, LaneId, Rule, Schema, Scope};

/// No rule.
const NONE: u32 = u32::MAX;

/// Keys of an event that most rules have no more than.
pub(crate) const USUAL: usize = 2;

/// An event that a rule takes, or may take.
#[derive(Clone, Copy)]
pub(crate) struct Step {
    /// The places of its first keys; the same twice if it has one.
    pub places: [u32; USUAL],
    /// Place in [`Schema::rules`], or [`NONE`].
    pub rule: u32,
    /// Its place in the piece.
    pub row: u16,
    /// What the rule binds in addition to an actor.
    pub beside: Beside,
}

impl Step {
    /// A rule takes the event.
    #[inline(always)]
    fn take(&mut self, (rule, beside): (u32, Beside)) {
        (self.rule, self.beside) = (rule, beside);
    }
}

/// The places of an event's keys.
#[derive(Clone, Copy)]
pub(crate) struct Places<'a> {
    step: &'a Step,
    more: &'a [Rows<u32>],
}

impl Places<'_> {
    /// The place of a key, or [`UNFIT`].
    #[inline]
    pub fn of(self, key: KeyId) -> u32 {
        match key.checked_sub(USUAL) {
            None => self.step.places[key % USUAL],
            Some(key) => self.more[key][self.step.row as usize % PIECE],
        }
    }
}

/// What the events of a piece do.
pub(crate) struct Steps {
    /// One for each event, in order of time.
    all: Box<Rows<Step>>,
    /// Those that a rule takes, if not all are.
    some: Vec<Step>,
    number: usize,
    /// The places of what else keys there are: those of the third key of all events, and so on.
    more: Vec<Rows<u32>>,
    /// Events by kind, with room for [`PIECE`] of each, and where those of each end.
    kinds: Vec<u16>,
    ends: Vec<u32>,
    /// Room for events that a rule leaves.
    spare: Box<Rows<u16>>,
    /// Events whose key is not where it is looked for first.
    missed: Box<Rows<u16>>,
    locals: Vec<i128>,
}

impl Steps {
    /// For the rules of a schema.
    pub fn new(schema: &Schema) -> Steps {
        let width = schema.rules.iter().map(|rule| rule.keys.len()).max().unwrap_or(0);
        let kinds = schema.by_event.len();
        let step = |row| Step {
            places: [UNFIT; USUAL],
            rule: NONE,
            row: row as u16,
            beside: Beside::Other,
        };
        Steps {
            all: Box::new(std::array::from_fn(step)),
            some: Vec::with_capacity(PIECE),
            number: 0,
            more: vec![[UNFIT; PIECE]; width.max(MOST) - USUAL],
            kinds: vec![0; kinds * PIECE],
            ends: (0..kinds).map(|kind| (kind * PIECE) as u32).collect(),
            spare: Box::new([0; PIECE]),
            missed: Box::new([0; PIECE]),
            locals: Vec::new(),
        }
    }

    /// The events that a rule takes, in order of time.
    pub fn taken(&self) -> &[Step] {
        if self.some.is_empty() { &self.all[..self.number] } else { &self.some }
    }

    /// The places of an event's keys.
    #[inline]
    pub fn places<'a>(&'a self, step: &'a Step) -> Places<'a> {
        Places { step, more: &self.more }
    }

    /// Finds out what the events of a piece do. `beside` says what a rule binds in addition to an actor.
    pub fn find(
        &mut self,
        schema: &Schema,
        beside: impl Fn(u32) -> Beside,
        piece: Piece<'_>,
        timelines: &mut Keys,
        streams: &mut Keys,
    ) {
        let Steps { all, some, number, more, kinds, ends, spare, missed, locals } = self;
        if sort(piece.kinds, kinds, ends) < piece.kinds.len() {
            all.iter_mut().for_each(|step| step.rule = NONE);
        }
        let mut finds = Finds { all, more, missed, locals, timelines, streams };
        *number = 0;
        for (kind, rules) in schema.by_event.iter().enumerate() {
            let begin = kind * PIECE;
            let end = std::mem::replace(&mut ends[kind], begin as u32);
            let mut rest = &mut kinds[begin..end as usize];
            for rule_number in rules.0..rules.1 {
                if rest.is_empty() {
                    break;
                }
                let rule = &schema.rules[rule_number as usize];
                let number_taken = take(rule, piece, rest, spare);
                let (taken, left) = rest.split_at_mut(number_taken);
                finds.look_up(rule, (rule_number, beside(rule_number)), piece, taken);
                *number += number_taken;
                rest = left;
            }
            for row in rest {
                finds.all[usize::from(*row) % PIECE].rule = NONE;
            }
        }
        some.clear();
        if *number < piece.kinds.len() {
            some.extend(all[..piece.kinds.len()].iter().filter(|step| step.rule != NONE));
        }
    }
}

/// Puts events of a kind together; returns how many are of kinds that are known.
#[inline(never)]
fn sort(kinds: &[EventId], rows: &mut [u16], ends: &mut [u32]) -> usize {
    let mut unknown = 0;
    for (kind, row) in kinds.iter().zip(0u16..) {
        // Events of other programs have no rules here.
        let Some(end) = ends.get_mut(kind.index()) else {
            unknown += 1;
            continue;
        };
        rows[*end as usize] = row;
        *end += 1;
    }
    kinds.len() - unknown
}

/// Puts the rows that a rule takes before the others, and says how many they are. Each part of a
/// filter is asked about those that are left by the parts before.
fn take(rule: &Rule, piece: Piece<'_>, rows: &mut [u16], spare: &mut Rows<u16>) -> usize {
    let mut taken = rows.len();
    for test in &rule.tests {
        let (rows, column) = (&mut rows[..taken], piece.column(test.column));
        let within = |row: &u16| test.within(column[usize::from(*row) % PIECE]);
        taken = match test.among.is_empty() {
            // Many a filter is there for what hardly ever happens.
            true if rows.iter().fold(true, |all, row| all & within(row)) => taken,
            true => part(rows, spare, |row| test.within(column[row])),
            false => part(rows, spare, |row| test.holds(column[row])),
        };
    }
    if let Some(filter) = &rule.filter {
        // Derived fields are not known yet.
        let scope = |row| Scope { columns: piece.columns, row, locals: &[] };
        taken = part(&mut rows[..taken], spare, |row| filter.holds(&scope(piece.first + row)));
    }
    taken
}

/// Puts the rows for which something holds before the others, without a branch that depends on it.
#[inline(never)]
fn part(rows: &mut [u16], spare: &mut Rows<u16>, holds: impl Fn(usize) -> bool) -> usize {
    let (mut yes, mut no) = (0, 0);
    for n in 0..rows.len() {
        let row = rows[n];
        rows[yes] = row;
        spare[no % PIECE] = row;
        let held = holds(usize::from(row) % PIECE);
        yes += usize::from(held);
        no += usize::from(!held);
    }
    rows[yes..].copy_from_slice(&spare[..no]);
    yes
}

/// Where what is found goes.
struct Finds<'a> {
    all: &'a mut Rows<Step>,
    more: &'a mut [Rows<u32>],
    missed: &'a mut Rows<u16>,
    locals: &'a mut Vec<i128>,
    timelines: &'a mut Keys,
    streams: &'a mut Keys,
}

impl Finds<'_> {
    /// Finds the places of the keys of all events that a rule takes: key by key, so that the
    /// processor has to keep little in mind at a time.
    fn look_up(&mut self, rule: &Rule, is: (u32, Beside), piece: Piece<'_>, rows: &[u16]) {
        let Finds { all, more, missed, locals, timelines, streams } = self;
        if rule.keys.is_empty() {
            rows.iter().for_each(|row| all[usize::from(*row) % PIECE].take(is));
        }
        for (n, (lane, key)) in rule.keys.iter().enumerate() {
            let lane = match lane {
                LaneId::Timeline(lane) => timelines.lane(*lane),
                LaneId::Stream(lane) => streams.lane(*lane),
            };
            let find = Find { lane, key, rows, piece, rule, missed, locals };
            match n.checked_sub(USUAL) {
                // If it has one key, both places are the same.
                None if rule.keys.len() == 1 => {
                    find.places(|at, place| {
                        all[at].take(is);
                        all[at].places = [place; USUAL];
                    });
                }
                None if n == 0 => find.places(|at, place| {
                    all[at].take(is);
                    all[at].places[0] = place;
                }),
                None => find.places(|at, place| all[at].places[1] = place),
                Some(n) => find.places(|at, place| more[n][at] = place),
            }
        }
    }
}

/// What is bound in addition to the actor. Events get what their rules say here as soon as these are
/// known: which way an event goes can be predicted least, so nothing should have to be waited for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Beside {
    /// Nothing, and where the actor's section is not open, the event does nothing.
    Nothing,
    /// Something that is there, if anything.
    Known,
    /// Something that begins.
    Begun,
    /// Something that ends.
    Ended,
    /// There is no such actor, or the rule does more.
    Other,
}

/// Most bindings of a rule that [`crate::simple`] takes.
pub(crate) const MOST: usize = 3;
