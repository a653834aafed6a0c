//! Requests as a plan of three operators, for engines that partition and order rows.
//!
//! ```text
//! FlowExec                   one partition: the flood fill, requests come out
//!   (merge by time)          put in by DataFusion
//!     SectionsExec           a partition of keys: which sections can be open
//!       (sort by time)       put in by DataFusion
//!         (hash by key)      put in by DataFusion: a shuffle, on Ballista between machines
//!           BindExec         a part of the files: events, and the sections that they name
//! ```
//!
//! What each does stands in `fettle_tables::operator`. The operators only say what they need of their
//! input, and DataFusion's optimizer puts in what provides it. [`RequestsTable`] is the plan as a
//! table.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::TaskContext;
use datafusion::logical_expr::{Expr, TableType};
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::{
    Distribution, EquivalenceProperties, LexRequirement, OrderingRequirements, Partitioning,
    PhysicalExpr, PhysicalSortExpr, PhysicalSortRequirement,
};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::stream::{RecordBatchReceiverStream, RecordBatchStreamAdapter};
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, InputDistributionRequirements, PlanProperties,
    SendableRecordBatchStream,
};
use fettle_follow::Part;
use fettle_tables::Table;
use fettle_tables::operator::{Binder, Flow, KEY, Layout, ORDER, Sections};
use futures::StreamExt;

use crate::definition::Definition;
use crate::error::Error;

/// Batches that may wait between threads.
const AHEAD: usize = 2;

/// One of a trace's tables about requests, made by the plan of this module.
#[derive(Debug)]
pub struct RequestsTable {
    pub(crate) definition: Arc<Definition>,
    pub(crate) table: Table,
    pub(crate) parts: usize,
}

impl RequestsTable {
    /// Reads events in so many parts at a time.
    pub fn new(definition: Arc<Definition>, table: Table, parts: usize) -> RequestsTable {
        RequestsTable { definition, table, parts: parts.max(1) }
    }
}

#[async_trait]
impl TableProvider for RequestsTable {
    fn schema(&self) -> SchemaRef {
        plain(&self.table.schema())
    }

    fn table_type(&self) -> TableType {
        TableType::View
    }

    async fn scan(
        &self,
        _state: &dyn Session,
        projection: Option<&Vec<usize>>,
        _filters: &[Expr],
        _limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let bound = Arc::new(BindExec::try_new(self.definition.clone(), self.parts)?);
        let sections = Arc::new(SectionsExec::try_new(self.definition.clone(), bound)?);
        let definition = self.definition.clone();
        Ok(Arc::new(FlowExec::try_new(definition, self.table, projection.cloned(), sections)?))
    }
}

/// The same columns with texts in place of dictionaries, which Ballista sends as texts without saying
/// so.
pub(crate) fn plain(schema: &Schema) -> SchemaRef {
    let fields = schema.fields().iter().map(|field| match field.data_type() {
        DataType::Dictionary(_, of) => {
            Arc::new(field.as_ref().clone().with_data_type((**of).clone()))
        }
        _ => field.clone(),
    });
    Arc::new(Schema::new_with_metadata(fields.collect::<Vec<_>>(), schema.metadata().clone()))
}

/// The columns of a batch that are wanted, as a schema has them.
fn as_wanted(
    batch: &RecordBatch,
    columns: Option<&Vec<usize>>,
    schema: &SchemaRef,
) -> Result<RecordBatch> {
    let batch = match columns {
        Some(columns) => batch.project(columns)?,
        None => batch.clone(),
    };
    let cast = |(column, field): (&ArrayRef, &Arc<Field>)| cast(column, field.data_type());
    let columns = batch.columns().iter().zip(schema.fields()).map(cast);
    let columns = columns.collect::<std::result::Result<Vec<_>, _>>()?;
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    Ok(RecordBatch::try_new_with_options(schema.clone(), columns, &options)?)
}

/// Events in order of time and place.
fn order(schema: &Schema) -> Result<Vec<PhysicalSortExpr>> {
    let column = |name: &&str| -> Result<PhysicalSortExpr> {
        Ok(PhysicalSortExpr::new_default(Arc::new(Column::new_with_schema(name, schema)?)))
    };
    ORDER.iter().map(column).collect()
}

fn required_order(schema: &Schema) -> Option<OrderingRequirements> {
    let order = order(schema).ok()?;
    let required = order.into_iter().map(PhysicalSortRequirement::from);
    LexRequirement::new(required).map(OrderingRequirements::new)
}

fn properties(
    schema: SchemaRef,
    partitioning: Partitioning,
    ordered: bool,
    emission: EmissionType,
) -> Result<Arc<PlanProperties>> {
    let mut equivalences = EquivalenceProperties::new(schema.clone());
    if ordered {
        equivalences.add_ordering(order(&schema)?);
    }
    let bounded = Boundedness::Bounded;
    Ok(Arc::new(PlanProperties::new(equivalences, partitioning, emission, bounded)))
}

fn layout(definition: &Definition) -> Result<SchemaRef> {
    Ok(Layout::new(&definition.program().map_err(Error::passed)?).schema())
}

/// An operator without an input was given one, or the other way round.
fn wrong_inputs(name: &str) -> DataFusionError {
    DataFusionError::Internal(format!("{name} got another number of inputs than it has"))
}

/// Reads events, each partition a part of the files.
#[derive(Debug)]
pub struct BindExec {
    pub(crate) definition: Arc<Definition>,
    pub(crate) parts: usize,
    properties: Arc<PlanProperties>,
}

impl BindExec {
    pub(crate) fn try_new(definition: Arc<Definition>, parts: usize) -> Result<BindExec> {
        let parts = parts.max(1);
        let partitioning = Partitioning::UnknownPartitioning(parts);
        let schema = layout(&definition)?;
        let properties = properties(schema, partitioning, false, EmissionType::Incremental)?;
        Ok(BindExec { definition, parts, properties })
    }
}

impl DisplayAs for BindExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BindExec: trace={}, parts={}", self.definition.trace.display(), self.parts)
    }
}

impl ExecutionPlan for BindExec {
    fn name(&self) -> &str {
        "BindExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        Vec::new()
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        if children.is_empty() { Ok(self) } else { Err(wrong_inputs("BindExec")) }
    }

    fn apply_expressions(
        &self,
        _f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn execute(&self, index: usize, _: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let mut builder = RecordBatchReceiverStream::builder(self.schema(), AHEAD);
        let (to, definition) = (builder.tx(), self.definition.clone());
        let part = Part { index, of: self.parts };
        builder.spawn_blocking(move || {
            let read = definition.with_session(|session| {
                let mut binder = Binder::new(session, part)?;
                while let Some(batch) = binder.read()? {
                    // It fails when the reader is gone.
                    if to.blocking_send(Ok(batch)).is_err() {
                        return Ok(());
                    }
                }
                match binder.problems() {
                    [] => Ok(()),
                    // Results that lack something must not look like those that do not.
                    [problem, ..] => Err(Error::Part(problem.clone())),
                }
            });
            read.map_err(Error::passed)
        });
        Ok(builder.build())
    }
}

/// Finds the events that may matter, each partition for some keys.
#[derive(Debug)]
pub struct SectionsExec {
    pub(crate) definition: Arc<Definition>,
    input: Arc<dyn ExecutionPlan>,
    properties: Arc<PlanProperties>,
}

impl SectionsExec {
    pub(crate) fn try_new(
        definition: Arc<Definition>,
        input: Arc<dyn ExecutionPlan>,
    ) -> Result<SectionsExec> {
        let partitions = input.properties().partitioning.partition_count();
        let partitioning = Partitioning::UnknownPartitioning(partitions);
        let schema = layout(&definition)?;
        let properties = properties(schema, partitioning, true, EmissionType::Incremental)?;
        Ok(SectionsExec { definition, input, properties })
    }
}

impl DisplayAs for SectionsExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SectionsExec")
    }
}

impl ExecutionPlan for SectionsExec {
    fn name(&self) -> &str {
        "SectionsExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn input_distribution_requirements(&self) -> InputDistributionRequirements {
        let key = Column::new_with_schema(KEY, &self.input.schema());
        let by_key = match key {
            Ok(key) => Distribution::KeyPartitioned(vec![Arc::new(key)]),
            Err(_) => Distribution::SinglePartition,
        };
        InputDistributionRequirements::new(vec![by_key])
    }

    fn required_input_ordering(&self) -> Vec<Option<OrderingRequirements>> {
        vec![required_order(&self.input.schema())]
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![true]
    }

    fn with_new_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let (Some(input), true) = (children.pop(), children.is_empty()) else {
            return Err(wrong_inputs("SectionsExec"));
        };
        Ok(Arc::new(SectionsExec::try_new(self.definition.clone(), input)?))
    }

    fn apply_expressions(
        &self,
        _f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let mut sections = Sections::new(&self.definition.program().map_err(Error::passed)?);
        let rows = self.input.execute(partition, context)?;
        let kept = rows
            .map(move |batch| sections.feed(&batch?).map_err(|error| Error::from(error).passed()));
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), kept)))
    }
}

/// Finds requests.
#[derive(Debug)]
pub struct FlowExec {
    pub(crate) definition: Arc<Definition>,
    pub(crate) table: Table,
    pub(crate) projection: Option<Vec<usize>>,
    input: Arc<dyn ExecutionPlan>,
    properties: Arc<PlanProperties>,
}

impl FlowExec {
    pub(crate) fn try_new(
        definition: Arc<Definition>,
        table: Table,
        projection: Option<Vec<usize>>,
        input: Arc<dyn ExecutionPlan>,
    ) -> Result<FlowExec> {
        let schema = match &projection {
            Some(columns) => Arc::new(plain(&table.schema()).project(columns)?),
            None => plain(&table.schema()),
        };
        let one = Partitioning::UnknownPartitioning(1);
        let properties = properties(schema, one, false, EmissionType::Incremental)?;
        Ok(FlowExec { definition, table, projection, input, properties })
    }
}

impl DisplayAs for FlowExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FlowExec: table={}", self.table.name())
    }
}

impl ExecutionPlan for FlowExec {
    fn name(&self) -> &str {
        "FlowExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn input_distribution_requirements(&self) -> InputDistributionRequirements {
        InputDistributionRequirements::new(vec![Distribution::SinglePartition])
    }

    fn required_input_ordering(&self) -> Vec<Option<OrderingRequirements>> {
        vec![required_order(&self.input.schema())]
    }

    fn with_new_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let (Some(input), true) = (children.pop(), children.is_empty()) else {
            return Err(wrong_inputs("FlowExec"));
        };
        let (definition, projection) = (self.definition.clone(), self.projection.clone());
        Ok(Arc::new(FlowExec::try_new(definition, self.table, projection, input)?))
    }

    fn apply_expressions(
        &self,
        _f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let mut rows = self.input.execute(partition, context)?;
        let mut builder = RecordBatchReceiverStream::builder(self.schema(), AHEAD);
        let to = builder.tx();
        // The engine stays on a thread; rows come to it from whichever thread has them.
        let (hand_over, mut taken) = tokio::sync::mpsc::channel(AHEAD);
        builder.spawn(async move {
            while let Some(batch) = rows.next().await {
                if hand_over.send(batch).await.is_err() {
                    break;
                }
            }
            Ok(())
        });
        let (definition, table) = (self.definition.clone(), self.table);
        let (projection, schema) = (self.projection.clone(), self.schema());
        builder.spawn_blocking(move || {
            let mut failed = None;
            let followed = definition.with_session(|session| {
                let mut flow = Flow::new(session, table)?;
                let send = |batch: RecordBatch| {
                    to.blocking_send(as_wanted(&batch, projection.as_ref(), &schema))
                };
                while let Some(batch) = taken.blocking_recv() {
                    match batch {
                        Ok(batch) => flow.feed(&batch)?,
                        Err(error) => {
                            failed = Some(error);
                            return Ok(());
                        }
                    }
                    if flow.take(false)?.is_some_and(|batch| send(batch).is_err()) {
                        return Ok(());
                    }
                }
                if to.is_closed() {
                    return Ok(());
                }
                flow.finish();
                // Whether the reader is still there makes no difference any more.
                let _ = flow.take(true)?.map(send);
                Ok(())
            });
            failed.map_or(Ok(()), Err)?;
            followed.map_err(Error::passed)
        });
        Ok(builder.build())
    }
}
