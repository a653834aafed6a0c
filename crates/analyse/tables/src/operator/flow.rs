//! The third step: the flood fill, over the events that may matter.

use arrow_array::RecordBatch;
use fettle_follow::{Context, Follower, Place, Session};
use fettle_requests::Request;

use super::rows::{Layout, Rows};
use crate::BATCH_ROWS;
use crate::build::Builders;
use crate::error::Result;
use crate::schema::Table;

/// Finds requests and gives them as rows of a table.
pub struct Flow<'a> {
    follower: Follower<'a>,
    layout: Layout,
    builders: Builders,
    last: Option<(u64, Place)>,
    fed: usize,
}

impl<'a> Flow<'a> {
    /// Before the first event.
    pub fn new(session: &'a Session<'a>, table: Table) -> Result<Flow<'a>> {
        Ok(Flow {
            follower: session.follower()?,
            layout: Layout::new(session.program()),
            builders: Builders::new(&[table]),
            last: None,
            fed: 0,
        })
    }

    /// Takes rows in order of time and place; an event may come several times in a row.
    ///
    /// # Errors
    ///
    /// If the batch is not laid out as [`Layout`] says.
    pub fn feed(&mut self, batch: &RecordBatch) -> Result<()> {
        let rows = Rows::new(&self.layout, batch)?;
        let (input, strings) = self.follower.input();
        for row in 0..rows.len() {
            let name = rows.name(row);
            if self.last != Some(name) {
                self.last = Some(name);
                rows.push(row, input, strings);
                self.fed += 1;
            }
        }
        // The engine likes a good many at a time.
        if self.fed >= BATCH_ROWS {
            self.step(false);
        }
        Ok(())
    }

    /// There are no more events: whatever is open is complete.
    pub fn finish(&mut self) {
        self.step(true);
    }

    fn step(&mut self, is_last: bool) {
        self.fed = 0;
        let Flow { follower, builders, .. } = self;
        let mut push = |request: &Request, context: &Context<'_>| {
            builders.push(request, context);
            true
        };
        follower.step(is_last, &mut push);
    }

    /// The rows that there are, if they are enough for a batch, or `all` of them.
    pub fn take(&mut self, all: bool) -> Result<Option<RecordBatch>> {
        let taken = self.builders.take(if all { 1 } else { BATCH_ROWS })?;
        Ok(taken.into_iter().next().map(|(_, batch)| batch))
    }
}
