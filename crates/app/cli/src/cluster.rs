//! `fettle cluster`: requests found by several machines.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};
use fettle_types::parse_time;

/// Where schedulers are by default.
const SCHEDULER: &str = "127.0.0.1:50050";

/// Find requests on several machines (in a build with the feature `cluster`)
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  fettle cluster scheduler
  fettle cluster executor                          twice, or on two machines
  fettle requests big.fettle --schema sockets --cluster 127.0.0.1:50050 \\
      --sql 'SELECT class, count(*), avg(response_ns) FROM requests GROUP BY class'

This takes a fettle that was built with the feature `cluster`:
  cargo build --release --package fettle-cli --features cluster

All machines have to see the trace under the same name. Connections are neither encrypted nor
authenticated: bind to addresses of a network that is yours. docs/user/cluster.md has the rest.")]
pub struct ClusterArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Hand out work, until interrupted
    Scheduler {
        /// Address to listen at; with port 0, one that is free
        #[arg(long, value_name = "ADDRESS:PORT", default_value = SCHEDULER)]
        bind: SocketAddr,
    },
    /// Work for a scheduler, until interrupted
    Executor {
        /// The scheduler
        #[arg(long, value_name = "ADDRESS:PORT", default_value = SCHEDULER)]
        scheduler: SocketAddr,
        /// Address where other executors fetch rows; with port 0, one that is free
        #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:0")]
        bind: SocketAddr,
        /// Pieces worked on at a time [default: as many as processors]
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
        threads: Option<u16>,
        /// How long to wait for a scheduler that is not there yet
        #[arg(long, value_name = "TIME", value_parser = parse_time, default_value = "10s")]
        wait: Duration,
    },
}

/// Runs `fettle cluster`.
#[cfg(feature = "cluster")]
pub fn run(args: &ClusterArgs) -> anyhow::Result<ExitCode> {
    use fettle_query::cluster::{Executor, execute, schedule};
    match args.command {
        Command::Scheduler { bind } => {
            schedule(bind, |address| say!("scheduling at {address}; Ctrl-C ends it"))?;
        }
        Command::Executor { scheduler, bind, threads, wait } => {
            let all = || std::thread::available_parallelism().map_or(1, usize::from);
            let threads = threads.map_or_else(all, usize::from);
            say!("working for {scheduler}; Ctrl-C ends it");
            // Whole seconds: a scheduler is asked for once in each.
            let patience_s = wait.as_secs_f64().ceil() as u16;
            execute(&Executor { scheduler, address: bind, threads, patience_s })?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Runs `fettle cluster`.
#[cfg(not(feature = "cluster"))]
pub fn run(args: &ClusterArgs) -> anyhow::Result<ExitCode> {
    anyhow::bail!(
        "this fettle was built without the feature `cluster`, so it cannot be a {}: \
         cargo build --release --package fettle-cli --features cluster",
        match args.command {
            Command::Scheduler { .. } => "scheduler",
            Command::Executor { .. } => "executor",
        }
    )
}
