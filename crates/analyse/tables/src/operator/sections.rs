//! The second step: which sections can be open.

use arrow_array::{BooleanArray, RecordBatch};
use arrow_select::filter::filter_record_batch;
use fettle_follow::LATE_NS;
use fettle_requests::{Batch, Footprint, MayBeOpen, Program, Strings};

use super::rows::{Layout, Purpose, Rows, WHOLE};
use crate::error::Result;

/// Finds the events that may matter because of some keys.
pub struct Sections {
    program: Program,
    layout: Layout,
    strings: Strings,
    open: Vec<MayBeOpen>,
    batch: Batch,
    footprint: Footprint,
}

impl Sections {
    /// Before the first event.
    pub fn new(program: &Program) -> Sections {
        Sections {
            layout: Layout::new(program),
            strings: program.strings().clone(),
            open: program.schemas().iter().map(|_| MayBeOpen::default()).collect(),
            batch: Batch::new(program.catalog()),
            footprint: Footprint::default(),
            program: program.clone(),
        }
    }

    /// Takes rows of its keys, in order, and gives those whose events may matter.
    ///
    /// # Errors
    ///
    /// If the batch is not laid out as [`Layout`] says.
    pub fn feed(&mut self, batch: &RecordBatch) -> Result<RecordBatch> {
        let layout = self.layout.clone();
        let rows = Rows::new(&layout, batch)?;
        let matters: BooleanArray = (0..rows.len()).map(|row| Some(self.row(&rows, row))).collect();
        Ok(filter_record_batch(batch, &matters)?)
    }

    fn row(&mut self, rows: &Rows<'_>, row: usize) -> bool {
        if rows.section(row) == WHOLE {
            return true;
        }
        self.batch.clear();
        if !rows.push(row, &mut self.batch, &mut self.strings) {
            return false;
        }
        let mut number = usize::from(rows.section(row));
        for (schema, open) in self.open.iter_mut().enumerate() {
            if !self.program.footprint(schema, &self.batch, 0, &mut self.footprint) {
                continue;
            }
            if let Some(reference) = self.footprint.references.get(number) {
                let (now_ns, _) = rows.name(row);
                return match rows.purpose(row) {
                    Purpose::Ask => open.matters(reference, now_ns),
                    // An event that is kept anyway has a row for that.
                    Purpose::Tell => {
                        open.matters(reference, now_ns);
                        false
                    }
                    Purpose::Foretell => {
                        open.foresee(reference, now_ns.saturating_add(LATE_NS));
                        false
                    }
                };
            }
            number -= self.footprint.references.len();
        }
        false
    }
}
