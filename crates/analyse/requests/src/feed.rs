//! Events on their way to the [`Run`] of a schema: cut into pieces, of which is found out first what
//! does not depend on what is open.

use crate::options::Options;
use crate::piece::{PIECE, Piece};
use crate::plain::{Passed, Plain};
use crate::program::{Rule, Schema};
use crate::request::Outcome;
use crate::requests::Complete;
use crate::run::{Now, Run};
use crate::setting::Setting;
use crate::simple::Simple;
use crate::steps::{Beside, Step, Steps};
use crate::transitions::Transition;

/// The ways through an event that are shorter than [`Run::apply`], for rules that do little.
#[derive(Default)]
#[repr(align(64))]
pub(crate) struct Ways {
    pub plain: Plain,
    pub simple: Option<Simple>,
}

impl Ways {
    fn new(rule: &Rule, transition: Option<Transition>, options: &Options) -> Ways {
        let Some(transition) = transition else { return Ways::default() };
        let simple = Simple::new(rule, transition, options);
        Ways { plain: Plain::new(rule, transition, options).unwrap_or_default(), simple }
    }
}

/// A schema and what it found.
pub(crate) struct Feed {
    pub run: Run,
    /// By rule.
    pub ways: Vec<Ways>,
    steps: Steps,
    /// Times and columns of what is less than a piece.
    rest: Vec<Vec<u64>>,
}

impl Feed {
    pub fn new(number: usize, schema: &Schema, options: &Options) -> Feed {
        let rules = schema.rules.iter().enumerate();
        Feed {
            run: Run::new(number, schema, options),
            ways: rules
                .map(|(n, rule)| Ways::new(rule, Transition::of(schema, n), options))
                .collect(),
            steps: Steps::new(schema),
            rest: Vec::new(),
        }
    }

    /// Takes each event to the first rule that wants it. `ordinal` is the first one's place among all.
    pub fn feed(
        &mut self,
        schema: &Schema,
        options: &Options,
        events: Piece<'_>,
        ordinal: u64,
        out: &mut dyn FnMut(Complete<'_>),
    ) {
        for first in (0..events.kinds.len()).step_by(PIECE) {
            let rows = first..events.kinds.len().min(first + PIECE);
            let kinds = &events.kinds[rows.clone()];
            let ordinal = ordinal + first as u64;
            if rows.len() == PIECE {
                let piece = Piece { kinds, first, ..events };
                self.piece(schema, options, piece, ordinal, out);
                continue;
            }
            // What is left is less than a piece: columns are made as long as one.
            let mut rest = std::mem::take(&mut self.rest);
            rest.resize(1 + events.columns.len(), vec![0; PIECE]);
            let columns = events.columns.iter().map(Vec::as_slice);
            for (rest, column) in rest.iter_mut().zip([events.times_ns].into_iter().chain(columns))
            {
                rest[..rows.len()].copy_from_slice(&column[rows.clone()]);
            }
            let piece = Piece { kinds, times_ns: &rest[0], columns: &rest[1..], first: 0 };
            self.piece(schema, options, piece, ordinal, out);
            self.rest = rest;
        }
    }

    fn piece(
        &mut self,
        schema: &Schema,
        options: &Options,
        piece: Piece<'_>,
        ordinal: u64,
        out: &mut dyn FnMut(Complete<'_>),
    ) {
        let Feed { run, ways, steps, .. } = self;
        let beside = |rule: u32| ways[rule as usize].plain.beside;
        steps.find(schema, beside, piece, &mut run.sections.keys, &mut run.streams.keys);
        run.sections.grow();
        run.streams.grow();
        run.counts.matched += steps.taken().len() as u64;
        let rules = &schema.rules;
        let options = *options;
        run.take(&Setting { rules, steps, piece, ordinal, options }, ways, out);
        run.sections.sweep();
        run.streams.sweep();
    }
}

impl Run {
    /// Takes the events of a piece in order of time.
    fn take(&mut self, setting: &Setting<'_>, ways: &[Ways], out: &mut dyn FnMut(Complete<'_>)) {
        let Setting { steps, piece, ref options, .. } = *setting;
        let times_ns = piece.times_ns();
        for step in steps.taken() {
            let row = step.row as usize;
            let ns = times_ns[row % PIECE];
            if self.alarms.next_ns <= ns {
                // Events that no rule takes are looked at only when an alarm waits for their time.
                self.pass(options, &times_ns[..=row], out);
            }
            let ways = &ways[step.rule as usize];
            if step.beside != Beside::Other {
                match self.plain(&ways.plain, setting, step, ns) {
                    Passed::Done => continue,
                    Passed::Full(slot) => {
                        self.too_long.push(slot);
                        self.complete(ns, out);
                        continue;
                    }
                    Passed::Not => {}
                }
            }
            if !ways.simple.as_ref().is_some_and(|simple| simple.take(self, setting, step, ns)) {
                self.generally(setting, step, setting.now(step, ns), out);
            }
            if !(self.loose.is_empty() && self.too_long.is_empty()) {
                self.complete(ns, out);
            }
        }
        self.pass(options, &times_ns[..piece.kinds.len()], out);
    }

    /// Time passes, from event to event, if anybody waits for it.
    #[cold]
    fn pass(&mut self, options: &Options, times_ns: &[u64], out: &mut dyn FnMut(Complete<'_>)) {
        let first = times_ns.partition_point(|now_ns| *now_ns < self.alarms.next_ns);
        for now_ns in &times_ns[first..] {
            if self.alarms.next_ns <= *now_ns {
                self.give_up_quiet(options, *now_ns, out);
            }
        }
    }

    /// The way that is always right.
    #[inline(never)]
    fn generally(
        &mut self,
        setting: &Setting<'_>,
        step: &Step,
        now: Now,
        out: &mut dyn FnMut(Complete<'_>),
    ) {
        let rule = &setting.rules[step.rule as usize];
        let looked = (setting.steps.places(step), setting.piece, step.row as usize);
        self.apply(rule, &setting.options, now, looked);
        if rule.end {
            for n in 0..self.owners.len() {
                self.end(self.owners[n], Outcome::Ended, now.ns, out);
            }
        }
    }
}
