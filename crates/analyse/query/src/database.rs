//! A trace as tables for SQL.

use std::future::Future;
use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::error::DataFusionError;
use datafusion::execution::memory_pool::FairSpillPool;
use datafusion::execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};
use datafusion::prelude::{SQLOptions, SessionConfig, SessionContext};
use fettle_tables::Table;
use fettle_trace::Trace;
use futures::StreamExt;
use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc::Receiver;
use tokio::task::JoinHandle;

use crate::definition::Definition;
use crate::embedded::{self, Which};
use crate::error::{Error, Result};
use crate::files;
use crate::plan::RequestsTable;
use crate::problems::Problems;

/// The least memory that the engine may use, however little the machine has left.
const MEMORY_MIN: u64 = 256 << 20;

/// Batches that may wait to be read.
const AHEAD: usize = 2;

/// Tables of a trace, and an engine that answers questions about them.
///
/// - About requests: `requests`, `spans`, `sections`, `steps`, `links`, `request_events`, and
///   `events`, if there are schemas. Each mention in a question is a pass over the trace.
/// - The trace's own files: `calls`, `threads` and the like, and each kind of event by its name.
pub struct Database {
    pub(crate) context: SessionContext,
    pub(crate) runtime: Workers,
    pub(crate) problems: Problems,
}

impl Database {
    /// The tables of a trace; without `definition`, none about requests. With `parts`, requests are
    /// found by the plan that a cluster runs, so many parts beside each other.
    ///
    /// # Errors
    ///
    /// If schemas are wrong, or the trace cannot be read.
    pub fn open(
        trace: &Trace,
        definition: Option<Definition>,
        parts: Option<usize>,
    ) -> Result<Database> {
        let runtime = runtime()?;
        let mut config = configured(SessionConfig::new());
        if let Some(parts) = parts {
            config = config.with_target_partitions(parts.max(1));
        }
        let context = SessionContext::new_with_config_rt(config, memory()?);
        let problems = Problems::default();
        problems.add(trace.warnings().to_vec());
        if let Some(definition) = definition {
            let definition = Arc::new(definition);
            for table in Table::ALL {
                match parts {
                    Some(parts) => {
                        let made = RequestsTable::new(definition.clone(), table, parts);
                        context.register_table(table.name(), Arc::new(made))?;
                    }
                    None => {
                        let which = Which::Requests(table);
                        let made = embedded::table(&definition, which, &problems)?;
                        context.register_table(table.name(), Arc::new(made))?;
                    }
                }
            }
            let events = embedded::table(&definition, Which::Events, &problems)?;
            context.register_table("events", Arc::new(events))?;
        }
        runtime.block_on(files::register(&context, trace, &problems))?;
        Ok(Database { context, runtime, problems })
    }

    /// What could not be read so far, one sentence each.
    pub fn problems(&self) -> Vec<String> {
        self.problems.all()
    }

    /// Answers a question. Only questions are answered: nothing is written, nothing is defined, and
    /// no other files are read. From here on, an interrupt (`SIGINT`) ends the answer and not the
    /// process.
    ///
    /// # Errors
    ///
    /// [`Error::Question`] points at what is wrong with it.
    pub fn ask(&self, sql: &str) -> Result<Answer<'_>> {
        let only_questions = SQLOptions::new()
            .with_allow_ddl(false)
            .with_allow_dml(false)
            .with_allow_statements(false);
        let waiting = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let waiting = waiting.map_err(Error::Start)?;
        let mut interrupts = {
            let _entered = waiting.enter();
            signal(SignalKind::interrupt()).map_err(Error::Start)?
        };
        let (context, question) = (self.context.clone(), sql.to_owned());
        let planning = self.runtime.spawn(async move {
            let frame = context.sql_with_options(&question, only_questions).await?;
            let schema: SchemaRef = Arc::new(frame.schema().as_arrow().clone());
            Ok((schema, frame.execute_stream().await?))
        });
        let failed = |e| Err(DataFusionError::External(Box::new(e)));
        let planned = async { planning.await.unwrap_or_else(failed) };
        let planned = wait(&waiting, &mut interrupts, planned);
        let (schema, mut rows) = planned?.map_err(|e| Error::question(&e, sql, &self.tables()))?;
        // On a thread of the engine's, for some of its loops run for long.
        let (notify, reported) = tokio::sync::mpsc::channel(AHEAD);
        let work = self.runtime.spawn(async move {
            while let Some(batch) = rows.next().await {
                if notify.send(batch).await.is_err() {
                    break;
                }
            }
        });
        Ok(Answer {
            schema,
            reported,
            work: Some(work),
            interrupts,
            waiting,
            _database: PhantomData,
        })
    }

    /// Names of all tables.
    fn tables(&self) -> Vec<String> {
        let catalogs = self.context.catalog_names().into_iter();
        let catalogs = catalogs.filter_map(|name| self.context.catalog(&name));
        let schemas = catalogs.flat_map(|catalog| {
            let names = catalog.schema_names().into_iter();
            let schemas: Vec<_> = names
                .filter(|name| name != "information_schema")
                .filter_map(|name| catalog.schema(&name))
                .collect();
            schemas
        });
        let mut names: Vec<String> = schemas.flat_map(|schema| schema.table_names()).collect();
        names.sort_unstable();
        names
    }
}

/// Rows of an answer, as they come.
pub struct Answer<'a> {
    schema: SchemaRef,
    reported: Receiver<Observed<RecordBatch>>,
    work: Option<JoinHandle<()>>,
    interrupts: Signal,
    /// Whose only task is to wait: the engine's own threads may all be too busy to see a signal.
    waiting: Runtime,
    _database: PhantomData<&'a Database>,
}

impl Answer<'_> {
    /// Its columns.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// The next rows; nothing when there are no more.
    ///
    /// # Errors
    ///
    /// [`Error::Interrupted`], or whatever keeps the engine from going on.
    pub fn read(&mut self) -> Result<Option<RecordBatch>> {
        let (reported, work) = (&mut self.reported, &mut self.work);
        let next = async {
            match reported.recv().await {
                Some(batch) => batch.map(Some),
                // That there are no more rows must not be what a thread that failed says.
                None => match work.take() {
                    Some(work) => {
                        let ended = work.await;
                        ended.map(|()| None).map_err(|e| DataFusionError::External(Box::new(e)))
                    }
                    None => Ok(None),
                },
            }
        };
        Ok(wait(&self.waiting, &mut self.interrupts, next)??)
    }

    /// All rows.
    ///
    /// # Errors
    ///
    /// Those of [`Answer::read`].
    pub fn all(mut self) -> Result<Vec<RecordBatch>> {
        let mut batches = Vec::new();
        while let Some(batch) = self.read()? {
            batches.push(batch);
        }
        Ok(batches)
    }
}

/// What the engine said.
type Observed<T> = std::result::Result<T, DataFusionError>;

/// Waits for work, or for an interrupt.
fn wait<T>(
    runtime: &Runtime,
    interrupts: &mut Signal,
    work: impl Future<Output = Observed<T>>,
) -> Result<Observed<T>> {
    runtime.block_on(async {
        tokio::select! {
            biased;
            _ = interrupts.recv() => Err(Error::Interrupted),
            done = work => Ok(done),
        }
    })
}

/// What a session needs wherever it runs.
pub(crate) fn configured(config: SessionConfig) -> SessionConfig {
    let mut config = config.with_information_schema(true);
    // So that errors know their place.
    config.options_mut().sql_parser.collect_spans = true;
    config
}

/// How long the engine's threads may take to notice that their result is no longer wanted.
const PATIENCE: Duration = Duration::from_secs(2);

/// The engine's threads.
///
/// Some of its loops check for that after minutes only, and a user who has interrupted a query does
/// not wait for them: what then still runs ends with the process.
pub(crate) struct Workers(Option<Runtime>);

impl Deref for Workers {
    type Target = Runtime;

    fn deref(&self) -> &Runtime {
        self.0.as_ref().expect("only dropping takes it")
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_timeout(PATIENCE);
        }
    }
}

pub(crate) fn runtime() -> Result<Workers> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    Ok(Workers(Some(builder.enable_all().build().map_err(Error::Start)?)))
}

/// Half of the memory that is free now; what needs more goes to temporary files where it can.
fn memory() -> Result<Arc<RuntimeEnv>> {
    let info = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = info.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok());
    let bytes = kib.map_or(MEMORY_MIN, |kib| kib.saturating_mul(512).max(MEMORY_MIN));
    let pool = FairSpillPool::new(usize::try_from(bytes).unwrap_or(usize::MAX));
    Ok(RuntimeEnvBuilder::new().with_memory_pool(Arc::new(pool)).build_arc()?)
}
