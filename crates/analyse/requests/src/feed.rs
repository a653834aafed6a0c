//! Events on their way to the [`Run`] of a schema: cut into pieces, of which is found out first what
//! does not depend on what is open.

use crate::deeds::Deed;
use crate::engine::Options;
use crate::plain::Plain;
use crate::program::{Rule, Schema};
use crate::requests::Complete;
use crate::run::{Now, Run};
use crate::simple::Simple;
use crate::steps::{PIECE, Piece, Step, Steps};

/// What stays the same from event to event of a piece.
#[derive(Clone, Copy)]
pub(crate) struct Setting<'a> {
    pub rules: &'a [Rule],
    /// By rule.
    pub ways: &'a [Ways],
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

/// The ways through an event that are shorter than [`Run::apply`], for rules that do little.
#[derive(Default)]
#[repr(align(64))]
pub(crate) struct Ways {
    pub plain: Plain,
    pub simple: Option<Simple>,
}

impl Ways {
    fn new(rule: &Rule, deed: Option<Deed>, options: &Options) -> Ways {
        let Some(deed) = deed else { return Ways::default() };
        let simple = Simple::new(rule, deed, options);
        Ways { plain: Plain::new(rule, deed, options).unwrap_or_default(), simple }
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
            ways: rules.map(|(n, rule)| Ways::new(rule, Deed::of(schema, n), options)).collect(),
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
        steps.find(schema, ways, piece, &mut run.sections.keys, &mut run.streams.keys);
        run.sections.grow();
        run.streams.grow();
        run.counts.matched += steps.taken().len() as u64;
        let rules = &schema.rules;
        let options = *options;
        run.take(&Setting { rules, ways, steps, piece, ordinal, options }, out);
        run.sections.sweep();
        run.streams.sweep();
    }
}
