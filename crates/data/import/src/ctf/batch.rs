//! Some events of a packet at a time.

use super::decode::{Cursor, NO_PLACE};
use super::kinds::{Brief, Kinds};
use super::pieces::{Piece, Start};
use super::plan::EventPlan;
use super::position::{Position, Stuck};
use super::steps::Compact;

/// Events that are read at a time: few enough that bytes, starts and values stay in the first caches.
const ROWS: usize = 512;
/// Values, those of arrays included, after which no further event is read.
const VALUES: usize = 1 << 13;

/// Events in order, and their values.
#[derive(Debug, Default)]
pub struct Batch {
    rows: Vec<Row>,
    /// Values of all events, those of one together.
    values: Vec<u64>,
    used: usize,
    /// Elements of all arrays.
    pub elements: Vec<u64>,
    /// Where each stretch of fields lies, in each event that has it.
    starts: Vec<Vec<Start>>,
}

/// An event.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// Nanoseconds since 1970.
    pub time_ns: u64,
    /// Place of its plan.
    pub place: u32,
    /// Where its values begin.
    pub values: u32,
}

impl Batch {
    /// All events.
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// An event.
    #[inline]
    pub fn row(&self, n: usize) -> Option<Row> {
        self.rows.get(n).copied()
    }

    /// An event's values.
    #[inline]
    pub fn values(&self, row: Row, plan: &EventPlan) -> &[u64] {
        let from = row.values as usize;
        self.values.get(from..from + plan.columns.len()).unwrap_or_default()
    }

    /// Forgets all events.
    pub fn clear(&mut self) {
        self.rows.clear();
        self.elements.clear();
        self.used = 0;
    }

    /// Reads events until there are enough, or none is left in the packet. After an error the cursor
    /// stands before the event that cannot be read, and those before it have been.
    pub fn fill(&mut self, kinds: &Kinds, cursor: &mut Cursor<'_>) -> Result<(), Stuck> {
        self.clear();
        self.starts.resize_with(kinds.plan.stretches.len(), Vec::new);
        self.values.resize(VALUES + kinds.slots, 0);
        std::mem::swap(&mut self.elements, &mut cursor.elements);
        let mut result = Ok(());
        while result.is_ok() && cursor.now.at < cursor.now.end && self.has_room(cursor) {
            let before = cursor.now;
            if let Some(compact) = &kinds.plan.compact {
                cursor.now = self.plain(kinds, compact, before);
            }
            if cursor.now.at == before.at {
                result = self.other(kinds, cursor).inspect_err(|_| cursor.now = before);
            }
        }
        std::mem::swap(&mut self.elements, &mut cursor.elements);
        for row in &mut self.rows {
            row.time_ns = kinds.clock.ns(row.time_ns);
        }
        for (stretch, starts) in kinds.plan.stretches.iter().zip(&mut self.starts) {
            if !starts.is_empty() {
                stretch.load(starts, cursor.now.bytes, &mut self.values);
                starts.clear();
            }
        }
        result
    }

    fn has_room(&self, cursor: &Cursor<'_>) -> bool {
        self.rows.len() < ROWS && self.used + cursor.elements.len() < VALUES
    }

    /// Goes through events in pieces behind compact headers, as nearly all are, until one is not or
    /// cannot be read. No call sees the position, so that it stays in registers.
    #[inline(never)]
    fn plain<'a>(
        &mut self,
        kinds: &Kinds,
        compact: &Compact,
        mut now: Position<'a>,
    ) -> Position<'a> {
        while now.at < now.end && self.rows.len() < ROWS && self.used < VALUES {
            let mut next = now;
            let Some((id, _)) = next.compact(compact) else { break };
            let Some(brief) = kinds.small(id) else { break };
            match brief.only {
                Some((bits, stretch)) => {
                    let Ok(byte) = next.stretch(bits.get(), 0) else { break };
                    let Some(starts) = self.starts.get_mut(stretch as usize) else { break };
                    starts.push(Start { byte, values: self.used as u32 });
                }
                None => match self.pieces(kinds, brief, next) {
                    Some(after) => next = after,
                    None => break,
                },
            }
            (now.at, now.time) = (next.at, next.time);
            self.add(brief, now.time);
        }
        now
    }

    /// Reads one event of any kind.
    fn other(&mut self, kinds: &Kinds, cursor: &mut Cursor<'_>) -> Result<(), Stuck> {
        let before = cursor.now.at;
        let id = cursor.header(&kinds.plan)?;
        let brief = kinds.find(id).ok_or(Stuck::Wrong("no event has this number"))?;
        match self.pieces(kinds, &brief, cursor.now) {
            Some(after) => cursor.now = after,
            None => {
                let events = &kinds.plan.events;
                let (_, plan) = events.get(brief.place as usize).ok_or(NO_PLACE)?;
                cursor.elements_before = cursor.elements.len();
                cursor.run(&plan.ops)?;
                let own = plan.first..plan.first + plan.columns.len();
                let own = cursor.slots.get(own).ok_or(NO_PLACE)?;
                let values = self.values.get_mut(self.used..self.used + own.len());
                values.ok_or(NO_PLACE)?.copy_from_slice(own);
            }
        }
        if cursor.now.at == before {
            return Err(Stuck::Wrong("an event has no bits"));
        }
        self.add(&brief, cursor.now.time);
        Ok(())
    }

    /// Goes over an event's pieces; its values are the next ones. `None` if it is not in pieces, or not
    /// whole.
    #[inline(never)]
    fn pieces<'a>(
        &mut self,
        kinds: &Kinds,
        brief: &Brief,
        mut now: Position<'a>,
    ) -> Option<Position<'a>> {
        let (_, plan) = kinds.plan.events.get(brief.place as usize)?;
        let values = self.values.get_mut(self.used..self.used + brief.width as usize)?;
        for piece in plan.pieces.as_ref()? {
            match piece {
                Piece::Fields { bits, skip, stretch } => {
                    let byte = now.stretch(*bits, *skip).ok()?;
                    let starts = self.starts.get_mut(*stretch as usize)?;
                    starts.push(Start { byte, values: self.used as u32 });
                }
                Piece::Align(to) => now.align(*to).ok()?,
                Piece::Text { value } => *values.get_mut(usize::from(*value))? = now.text().ok()?,
            }
        }
        Some(now)
    }

    /// Adds an event whose values are the next ones.
    #[inline(always)]
    fn add(&mut self, brief: &Brief, time: u64) {
        // Ticks, until the batch is whole.
        self.rows.push(Row { time_ns: time, place: brief.place, values: self.used as u32 });
        self.used += brief.width as usize;
    }
}
