//! The operators as bytes, for Ballista: to the scheduler travels the table, to executors the plan.

use std::sync::Arc;

use ballista_core::serde::{BallistaLogicalExtensionCodec, BallistaPhysicalExtensionCodec};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::TableProvider;
use datafusion::common::TableReference;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::TaskContext;
use datafusion::logical_expr::{Extension, LogicalPlan};
use datafusion::physical_plan::ExecutionPlan;
use datafusion_proto::logical_plan::LogicalExtensionCodec;
use datafusion_proto::physical_plan::{PhysicalExtensionCodec, PhysicalProtoConverterExtension};
use fettle_tables::Table;
use serde::{Deserialize, Serialize};

use crate::definition::Definition;
use crate::plan::{BindExec, FlowExec, RequestsTable, SectionsExec};

/// What all of ours begin with; Ballista's own begin otherwise.
const MAGIC: &[u8] = b"fettle:1:";

/// One of ours.
#[derive(Debug, Serialize, Deserialize)]
enum Node {
    Table { definition: Definition, table: String, parts: usize },
    Bind { definition: Definition, parts: usize },
    Sections { definition: Definition },
    Flow { definition: Definition, table: String, projection: Option<Vec<usize>> },
}

fn write(node: &Node, to: &mut Vec<u8>) -> Result<()> {
    to.extend_from_slice(MAGIC);
    serde_json::to_writer(to, node).map_err(|e| DataFusionError::External(Box::new(e)))
}

/// Nothing if it is none of ours.
fn read(bytes: &[u8]) -> Result<Option<Node>> {
    let Some(ours) = bytes.strip_prefix(MAGIC) else { return Ok(None) };
    let node = serde_json::from_slice(ours);
    node.map(Some).map_err(|e| DataFusionError::External(Box::new(e)))
}

fn table(name: &str) -> Result<Table> {
    let unknown = || DataFusionError::Plan(format!("there is no table {name}"));
    Table::from_name(name).ok_or_else(unknown)
}

/// For what the client sends.
#[derive(Debug, Default)]
pub(crate) struct LogicalCodec(BallistaLogicalExtensionCodec);

impl LogicalExtensionCodec for LogicalCodec {
    fn try_decode(
        &self,
        buf: &[u8],
        inputs: &[LogicalPlan],
        context: &TaskContext,
    ) -> Result<Extension> {
        self.0.try_decode(buf, inputs, context)
    }

    fn try_encode(&self, node: &Extension, buf: &mut Vec<u8>) -> Result<()> {
        self.0.try_encode(node, buf)
    }

    fn try_decode_table_provider(
        &self,
        buf: &[u8],
        name: &TableReference,
        schema: SchemaRef,
        context: &TaskContext,
    ) -> Result<Arc<dyn TableProvider>> {
        match read(buf)? {
            Some(Node::Table { definition, table: name, parts }) => {
                Ok(Arc::new(RequestsTable::new(Arc::new(definition), table(&name)?, parts)))
            }
            _ => self.0.try_decode_table_provider(buf, name, schema, context),
        }
    }

    fn try_encode_table_provider(
        &self,
        name: &TableReference,
        node: Arc<dyn TableProvider>,
        buf: &mut Vec<u8>,
    ) -> Result<()> {
        let any: &dyn std::any::Any = node.as_ref();
        let Some(ours) = any.downcast_ref::<RequestsTable>() else {
            return self.0.try_encode_table_provider(name, node, buf);
        };
        let definition = (*ours.definition).clone();
        let table = ours.table.name().to_owned();
        write(&Node::Table { definition, table, parts: ours.parts }, buf)
    }

    fn try_decode_file_format(
        &self,
        buf: &[u8],
        context: &TaskContext,
    ) -> Result<Arc<dyn datafusion::datasource::file_format::FileFormatFactory>> {
        self.0.try_decode_file_format(buf, context)
    }

    fn try_encode_file_format(
        &self,
        buf: &mut Vec<u8>,
        node: Arc<dyn datafusion::datasource::file_format::FileFormatFactory>,
    ) -> Result<()> {
        self.0.try_encode_file_format(buf, node)
    }
}

/// For what the scheduler sends to executors.
#[derive(Debug, Default)]
pub(crate) struct PhysicalCodec(BallistaPhysicalExtensionCodec);

impl PhysicalExtensionCodec for PhysicalCodec {
    fn try_decode(
        &self,
        buf: &[u8],
        inputs: &[Arc<dyn ExecutionPlan>],
        context: &TaskContext,
        converter: &dyn PhysicalProtoConverterExtension,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let Some(node) = read(buf)? else {
            return self.0.try_decode(buf, inputs, context, converter);
        };
        let input = || {
            let missing = || DataFusionError::Plan("an operator without its input came".into());
            inputs.first().cloned().ok_or_else(missing)
        };
        Ok(match node {
            Node::Bind { definition, parts } => {
                Arc::new(BindExec::try_new(Arc::new(definition), parts)?)
            }
            Node::Sections { definition } => {
                Arc::new(SectionsExec::try_new(Arc::new(definition), input()?)?)
            }
            Node::Flow { definition, table: name, projection } => {
                let definition = Arc::new(definition);
                Arc::new(FlowExec::try_new(definition, table(&name)?, projection, input()?)?)
            }
            Node::Table { .. } => {
                return Err(DataFusionError::Plan("a table came in place of a plan".into()));
            }
        })
    }

    fn try_encode(
        &self,
        node: Arc<dyn ExecutionPlan>,
        buf: &mut Vec<u8>,
        converter: &dyn PhysicalProtoConverterExtension,
    ) -> Result<()> {
        let ours = if let Some(bind) = node.downcast_ref::<BindExec>() {
            Node::Bind { definition: (*bind.definition).clone(), parts: bind.parts }
        } else if let Some(sections) = node.downcast_ref::<SectionsExec>() {
            Node::Sections { definition: (*sections.definition).clone() }
        } else if let Some(flow) = node.downcast_ref::<FlowExec>() {
            Node::Flow {
                definition: (*flow.definition).clone(),
                table: flow.table.name().to_owned(),
                projection: flow.projection.clone(),
            }
        } else {
            return self.0.try_encode(node, buf, converter);
        };
        write(&ours, buf)
    }
}
