//! Requests found by several machines: a Ballista scheduler, its executors, and the client.
//!
//! The scheduler cuts the plan of [`crate::plan`] where rows are partitioned anew, and gives the
//! pieces to executors, which ask it for work. Between pieces rows lie in files of the executor that
//! made them, and those who need them fetch them over Arrow Flight. All machines have to see the trace
//! under the same name. Ballista's connections are neither encrypted nor authenticated: any process
//! that reaches a port can have plans run. So everything binds to the loopback interface by
//! default.

use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ballista_core::config::TaskSchedulingPolicy;
use ballista_core::extension::{SessionConfigExt, SessionStateExt};
use ballista_executor::executor_process::{ExecutorProcessConfig, start_executor_process};
use ballista_scheduler::cluster::BallistaCluster;
use ballista_scheduler::config::SchedulerConfig;
use ballista_scheduler::scheduler_process::{create_scheduler, start_grpc_service_with_listener};
use datafusion::execution::SessionStateBuilder;
use datafusion::prelude::{SessionConfig, SessionContext};
use datafusion_proto::protobuf::{LogicalPlanNode, PhysicalPlanNode};
use fettle_tables::Table;
use fettle_trace::Trace;

use crate::codec::{LogicalCodec, PhysicalCodec};
use crate::database::{self, Database};
use crate::definition::Definition;
use crate::error::{Error, Result};
use crate::files;
use crate::plan::RequestsTable;
use crate::problems::Problems;

/// In how many parts requests are found by default. More parts than there are executors are fair to
/// all of them, and the machine that asks does not know how many those are.
const PARTS: usize = 8;

/// How long a client waits for a scheduler to be there.
const PATIENCE: Duration = Duration::from_secs(5);

/// An executor that is silent for so many seconds is dead, and others do its work again. It asks for
/// work every five seconds at least.
const SILENCE_S: u64 = 20;

fn wrong(doing: &str, problem: impl std::fmt::Display) -> Error {
    Error::Cluster(format!("cannot {doing}: {problem}"))
}

/// Hands out work until the process ends. `ready` gets the address once work can come; with port 0
/// it is one that was free.
///
/// # Errors
///
/// [`Error::Cluster`] if nothing can listen there.
pub fn schedule(address: SocketAddr, ready: impl FnOnce(SocketAddr)) -> Result<()> {
    let runtime = database::runtime()?;
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::bind(address).await;
        let listener = listener.map_err(|e| wrong(&format!("listen at {address}"), e))?;
        let bound = listener.local_addr().map_err(|e| wrong("listen", e))?;
        let config = SchedulerConfig {
            bind_host: bound.ip().to_string(),
            bind_port: bound.port(),
            external_host: bound.ip().to_string(),
            scheduling_policy: TaskSchedulingPolicy::PullStaged,
            override_logical_codec: Some(Arc::new(LogicalCodec::default())),
            override_physical_codec: Some(Arc::new(PhysicalCodec::default())),
            executor_timeout_seconds: SILENCE_S,
            expire_dead_executor_interval_seconds: 2,
            no_executors_grace_period_seconds: SILENCE_S,
            ..SchedulerConfig::default()
        };
        let cluster = BallistaCluster::new_from_config(&config).await;
        let cluster = cluster.map_err(|e| wrong("start the scheduler", e))?;
        let scheduler =
            create_scheduler::<LogicalPlanNode, PhysicalPlanNode>(cluster, Arc::new(config)).await;
        let scheduler = scheduler.map_err(|e| wrong("start the scheduler", e))?;
        ready(bound);
        let served = start_grpc_service_with_listener(listener, scheduler).await;
        served.map_err(|e| wrong("go on scheduling", e))
    })
}

/// What an executor should be.
#[derive(Clone, Debug)]
pub struct Executor {
    /// Its scheduler.
    pub scheduler: SocketAddr,
    /// Where others fetch its rows; with port 0, one that is free.
    pub address: SocketAddr,
    /// How many pieces it works on at a time.
    pub threads: usize,
    /// How many seconds to wait for a scheduler that is not there yet.
    pub patience_s: u16,
}

/// Works for a scheduler until it is interrupted. Its files lie in a temporary folder, which is
/// removed then.
///
/// # Errors
///
/// [`Error::Cluster`] if the scheduler is not there, or nothing can listen at the address.
pub fn execute(executor: &Executor) -> Result<()> {
    wait_for(executor.scheduler, executor.patience_s)?;
    let folder = tempfile::Builder::new().prefix("fettle-executor-").tempdir();
    let folder = folder.map_err(|e| wrong("make a folder for rows", e))?;
    let ip = executor.address.ip();
    let port = match executor.address.port() {
        0 => free_port(ip)?,
        port => port,
    };
    let config = ExecutorProcessConfig {
        bind_host: ip.to_string(),
        external_host: (!ip.is_unspecified()).then(|| ip.to_string()),
        port,
        grpc_port: free_port(ip)?,
        scheduler_host: executor.scheduler.ip().to_string(),
        scheduler_port: executor.scheduler.port(),
        // It was there just before, and Ballista itself would retry for ever.
        scheduler_connect_timeout_seconds: 0,
        vcores: executor.threads.max(1),
        task_scheduling_policy: TaskSchedulingPolicy::PullStaged,
        work_dir: Some(folder.path().to_string_lossy().into_owned()),
        override_logical_codec: Some(Arc::new(LogicalCodec::default())),
        override_physical_codec: Some(Arc::new(PhysicalCodec::default())),
        ..ExecutorProcessConfig::default()
    };
    let runtime = database::runtime()?;
    let worked = runtime.block_on(start_executor_process(Arc::new(config)));
    worked.map_err(|e| wrong(&format!("work for the scheduler at {}", executor.scheduler), e))
}

/// Waits for a scheduler to be there.
fn wait_for(scheduler: SocketAddr, patience_s: u16) -> Result<()> {
    let begun = Instant::now();
    loop {
        match TcpStream::connect_timeout(&scheduler, PATIENCE) {
            Ok(_) => return Ok(()),
            Err(error) if begun.elapsed().as_secs() >= u64::from(patience_s) => {
                return Err(wrong(&format!("reach a scheduler at {scheduler}"), error));
            }
            Err(_) => std::thread::sleep(Duration::from_millis(200)),
        }
    }
}

/// A port that is not in use.
fn free_port(ip: IpAddr) -> Result<u16> {
    let listener = TcpListener::bind((ip, 0)).and_then(|listener| listener.local_addr());
    listener.map(|address| address.port()).map_err(|e| wrong(&format!("listen at {ip}"), e))
}

/// The tables of a trace, read by a cluster: all but `events`. Requests are found in so many parts.
///
/// # Errors
///
/// [`Error::Cluster`] if the scheduler is not there; otherwise those of [`Database::open`].
pub fn connect(
    scheduler: SocketAddr,
    trace: &Trace,
    definition: Option<Definition>,
    parts: Option<usize>,
) -> Result<Database> {
    let there = TcpStream::connect_timeout(&scheduler, PATIENCE);
    there.map_err(|e| wrong(&format!("reach a scheduler at {scheduler}"), e))?;
    let runtime = database::runtime()?;
    let parts = parts.unwrap_or(PARTS).max(1);
    let config = database::configured(SessionConfig::new_with_ballista())
        .with_target_partitions(parts)
        // Rows that are in order within a partition have to stay partitions.
        .with_ballista_coalesce_enabled(false)
        .with_ballista_logical_extension_codec(Arc::new(LogicalCodec::default()))
        .with_ballista_physical_extension_codec(Arc::new(PhysicalCodec::default()));
    let state = SessionStateBuilder::new().with_default_features().with_config(config).build();
    let state = state.upgrade_for_ballista(format!("http://{scheduler}"))?;
    let context = SessionContext::new_with_state(state);
    let problems = Problems::default();
    problems.add(trace.warnings().to_vec());
    if let Some(definition) = definition {
        let definition = Arc::new(definition);
        for table in Table::ALL {
            let made = RequestsTable::new(definition.clone(), table, parts);
            context.register_table(table.name(), Arc::new(made))?;
        }
    }
    runtime.block_on(files::register(&context, trace, &problems))?;
    Ok(Database { context, runtime, problems })
}
