//! The first step: events, and the sections that they name.

use std::hash::{BuildHasher, Hash, Hasher};

use arrow_array::RecordBatch;
use fettle_follow::{LATE_NS, Part, PartReader, Place, Session};
use fettle_requests::{Batch, FieldType, Footprint, Program, Reference, Strings};
use rustc_hash::FxBuildHasher;

use super::rows::{Head, Layout, Purpose, RowsBuilder, WHOLE};
use crate::BATCH_ROWS;
use crate::error::Result;

/// Reads a part of a trace's events.
pub struct Binder<'a> {
    session: &'a Session<'a>,
    reader: PartReader<'a>,
    out: RowsBuilder,
    batch: Batch,
    places: Vec<Place>,
    footprint: Footprint,
    /// Hashes of the sections that an event names.
    references: Vec<u64>,
    over: bool,
}

impl<'a> Binder<'a> {
    /// Reads one of several parts.
    pub fn new(session: &'a Session<'a>, part: Part) -> Result<Binder<'a>> {
        Ok(Binder {
            session,
            reader: session.read_part(part)?,
            out: RowsBuilder::new(Layout::new(session.program())),
            batch: Batch::new(session.program().catalog()),
            places: Vec::new(),
            footprint: Footprint::default(),
            references: Vec::new(),
            over: false,
        })
    }

    /// The next rows, nearly in order; nothing when there are no more.
    pub fn read(&mut self) -> Result<Option<RecordBatch>> {
        while self.out.len() < BATCH_ROWS && !self.over {
            if self.reader.next(&mut self.batch, &mut self.places)? {
                self.bind();
            } else {
                self.over = true;
            }
        }
        if self.out.len() == 0 { Ok(None) } else { self.out.take().map(Some) }
    }

    /// What could not be read so far.
    pub fn problems(&self) -> &[String] {
        self.reader.problems()
    }

    fn bind(&mut self) {
        let Binder { session, reader, out, batch, places, footprint, references, .. } = self;
        let program = session.program();
        for (row, place) in places.iter().copied().enumerate() {
            let time_ns = batch.time_ns(row);
            // The last event of each batch tells how late it is, when no other does: requests end
            // because they are quiet.
            let mut kept = reader.has_to_be_seen(batch, row) || row + 1 == batch.len();
            references.clear();
            for schema in 0..program.schemas().len() {
                if program.footprint(schema, batch, row, footprint) {
                    kept |= footprint.always;
                    let key = |r: &Reference| hash(program, schema, r, reader.strings());
                    references.extend(footprint.references.iter().map(key));
                }
            }
            let may_be_late = reader.may_be_late(batch, row);
            let strings = reader.strings();
            for (key, section) in references.iter().copied().zip(0..) {
                let purpose = if kept { Purpose::Tell } else { Purpose::Ask };
                out.push(Head { key, time_ns, place, section, purpose }, batch, row, strings);
                if may_be_late {
                    let time_ns = time_ns.saturating_sub(LATE_NS);
                    let purpose = Purpose::Foretell;
                    out.push(Head { key, time_ns, place, section, purpose }, batch, row, strings);
                }
            }
            if kept {
                // Which partition gets it makes no difference.
                let (key, section, purpose) = (place.row, WHOLE, Purpose::Tell);
                out.push(Head { key, time_ns, place, section, purpose }, batch, row, strings);
            }
        }
    }
}

/// The same for a key on all machines, whose texts have other codes on each.
fn hash(program: &Program, schema: usize, reference: &Reference, strings: &Strings) -> u64 {
    let mut hasher = FxBuildHasher.build_hasher();
    (schema, reference.timeline).hash(&mut hasher);
    let lane = program.schemas().get(schema).and_then(|s| s.timelines().get(reference.timeline));
    let has_text = lane.is_some_and(|lane| lane.key.iter().any(|f| f.ty == FieldType::Text));
    if !has_text {
        reference.key.hash(&mut hasher);
        return hasher.finish();
    }
    for (field, value) in program.key_values(schema, reference.timeline, reference.key) {
        match field.ty {
            FieldType::Text => strings.text(value as u32).hash(&mut hasher),
            _ => value.hash(&mut hasher),
        }
    }
    hasher.finish()
}
