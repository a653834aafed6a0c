//! A kind of stream with everything that reading its packets takes.

use std::num::NonZero;

use super::model::{Clock, Model};
use super::pieces::Piece;
use super::plan::{self, EventPlan, StreamPlan};

/// Plans of a stream, found by number.
#[derive(Debug)]
pub struct Kinds {
    /// What to do.
    pub plan: StreamPlan,
    /// Values of an event at most, with those of its header and its packet.
    pub slots: usize,
    /// What its times are counted by.
    pub clock: Clock,
    /// Of events with small numbers.
    dense: Vec<Option<Brief>>,
}

/// What is asked first about an event.
#[derive(Clone, Copy, Debug)]
pub struct Brief {
    /// Place among the stream's events.
    pub place: u32,
    /// How many values it has.
    pub width: u32,
    /// If it is nothing but a stretch that begins with a byte: its length and its number.
    pub only: Option<(NonZero<u32>, u32)>,
}

impl Brief {
    fn of(place: usize, event: &EventPlan) -> Brief {
        let only = match event.pieces.as_deref() {
            Some(&[Piece::Fields { bits, skip: 0, stretch }]) => {
                NonZero::new(bits).map(|bits| (bits, stretch))
            }
            _ => None,
        };
        Brief { place: place as u32, width: event.columns.len() as u32, only }
    }
}

/// Numbers of events that are looked up in a table.
const DENSE_MAX: u64 = 1 << 16;

impl Kinds {
    /// Makes the plans of the stream of a number.
    pub fn of(model: &Model, id: u64) -> Result<Kinds, plan::Problem> {
        let plan = plan::stream(model, id)?;
        let clock = match model.streams.get(&id).and_then(|stream| stream.clock.as_ref()) {
            Some(name) => model.clocks.get(name),
            None => model.clocks.values().next().filter(|_| model.clocks.len() == 1),
        };
        let clock = clock.copied().unwrap_or_default();
        let mut dense = Vec::new();
        let mut slots = plan.columns.len();
        for (place, (id, event)) in plan.events.iter().enumerate() {
            slots = slots.max(event.first + event.columns.len());
            if *id < DENSE_MAX {
                let at = *id as usize;
                dense.resize(dense.len().max(at + 1), None);
                if let Some(known) = dense.get_mut(at) {
                    *known = Some(Brief::of(place, event));
                }
            }
        }
        Ok(Kinds { plan, slots, clock, dense })
    }

    /// Has all events read step by step, as the plans say, for comparison.
    #[cfg(test)]
    pub fn without_pieces(&mut self) {
        self.plan.compact = None;
        for (_, event) in &mut self.plan.events {
            event.pieces = None;
        }
        for brief in self.dense.iter_mut().flatten() {
            brief.only = None;
        }
    }

    /// The event of a number that is small.
    #[inline]
    pub fn small(&self, id: u64) -> Option<&Brief> {
        self.dense.get(id as usize)?.as_ref()
    }

    /// The event of a number.
    pub fn find(&self, id: u64) -> Option<Brief> {
        let rare = || {
            let mut events = self.plan.events.iter().enumerate();
            let (place, (_, event)) = events.find(|(_, (known, _))| *known == id)?;
            Some(Brief::of(place, event))
        };
        self.small(id).copied().or_else(rare)
    }
}
