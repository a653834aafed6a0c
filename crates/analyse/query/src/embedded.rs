//! Tables that one engine makes while they are read.

use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::streaming::StreamingTable;
use datafusion::error::DataFusionError;
use datafusion::execution::TaskContext;
use datafusion::physical_plan::SendableRecordBatchStream;
use datafusion::physical_plan::stream::RecordBatchReceiverStream;
use datafusion::physical_plan::streaming::PartitionStream;
use fettle_follow::{Context, Observer};
use fettle_requests::{Batch, EventId, Request};
use fettle_tables::{BATCH_ROWS, Builders, EventTable, Table};
use tokio::sync::mpsc::Sender;

use crate::definition::Definition;
use crate::error::{Error, Result};
use crate::problems::Problems;

/// Batches that may wait to be looked at.
const AHEAD: usize = 2;

/// Which table.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Which {
    /// One about requests.
    Requests(Table),
    /// The events that the schemas use.
    Events,
}

/// A table that is made by a pass over the trace, each time that it is read.
#[derive(Debug)]
struct Followed {
    definition: Arc<Definition>,
    which: Which,
    schema: SchemaRef,
    problems: Problems,
}

/// The table for DataFusion. What cannot be read is added to `problems`.
pub(crate) fn table(
    definition: &Arc<Definition>,
    which: Which,
    problems: &Problems,
) -> Result<StreamingTable> {
    let schema = match which {
        Which::Requests(table) => table.schema(),
        Which::Events => {
            let program = definition.program()?;
            EventTable::new(&program, &used(&program)).schema()
        }
    };
    let definition = definition.clone();
    let problems = problems.clone();
    let stream = Followed { definition, which, schema: schema.clone(), problems };
    Ok(StreamingTable::try_new(schema, vec![Arc::new(stream)])?)
}

fn used(program: &fettle_requests::Program) -> Vec<EventId> {
    let all = program.catalog().events().iter();
    let ids = all.filter_map(|kind| program.catalog().find(&kind.name));
    ids.filter(|id| program.schemas().iter().any(|schema| schema.uses(*id))).collect()
}

impl PartitionStream for Followed {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, _context: Arc<TaskContext>) -> SendableRecordBatchStream {
        let mut builder = RecordBatchReceiverStream::builder(self.schema.clone(), AHEAD);
        let (to, which, definition) = (builder.tx(), self.which, self.definition.clone());
        let problems = self.problems.clone();
        builder.spawn_blocking(move || {
            let followed = definition.with_session(|session| {
                let mut teller = Reporter::new(session.program(), which, to);
                problems.add(session.observe(&|_| false, &mut teller)?);
                teller.finish()
            });
            followed.map_err(Error::passed)
        });
        builder.build()
    }
}

/// Sends what is observed to the reader of the table.
struct Reporter {
    to: Sender<std::result::Result<RecordBatch, DataFusionError>>,
    builders: Option<Builders>,
    events: Option<EventTable>,
    failed: Option<Error>,
}

impl Reporter {
    fn new(
        program: &fettle_requests::Program,
        which: Which,
        to: Sender<std::result::Result<RecordBatch, DataFusionError>>,
    ) -> Reporter {
        let (builders, events) = match which {
            Which::Requests(table) => (Some(Builders::new(&[table])), None),
            Which::Events => (None, Some(EventTable::new(program, &used(program)))),
        };
        Reporter { to, builders, events, failed: None }
    }

    /// `false` when the reader is gone.
    fn send(&self, batch: RecordBatch) -> bool {
        self.to.blocking_send(Ok(batch)).is_ok()
    }

    fn drain(&mut self, rows: usize) -> bool {
        let Some(builders) = &mut self.builders else { return true };
        match builders.take(rows) {
            Ok(batches) => batches.into_iter().all(|(_, batch)| self.send(batch)),
            Err(error) => {
                self.failed = Some(error.into());
                false
            }
        }
    }

    fn finish(mut self) -> Result<()> {
        if self.failed.is_none() {
            self.drain(1);
        }
        self.failed.map_or(Ok(()), Err)
    }
}

impl Observer for Reporter {
    fn events(&mut self, first: u64, events: &Batch, context: &Context<'_>) -> bool {
        let Some(table) = &self.events else { return !self.to.is_closed() };
        match table.batch(first, events, context.program(), context.strings()) {
            Ok(batch) => self.send(batch),
            Err(error) => {
                self.failed = Some(error.into());
                false
            }
        }
    }

    fn request(&mut self, request: &Request, context: &Context<'_>) -> bool {
        if let Some(builders) = &mut self.builders {
            builders.push(request, context);
        }
        self.drain(BATCH_ROWS)
    }
}
