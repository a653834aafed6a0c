//! The `fettle` command.
#![forbid(unsafe_code)]
// `say!` and `output::print`: whoever started us may have closed these.
#![deny(clippy::print_stderr, clippy::print_stdout)]

#[macro_use]
mod output;

mod apply;
mod attach;
mod cache;
mod cluster;
mod collect;
mod export;
mod import;
mod instrument;
mod jar;
mod layout;
mod lift;
mod merge;
mod mode;
mod record;
mod report;
mod requests;
mod schema;
mod select;
mod sensors;
mod symbols;
mod threads;
mod trace;
mod tune;
mod ui;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

use crate::output::told;

/// Lifting allocates much in many threads: with this it takes a fifth less processor time than with
/// glibc's.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Observe, tune and move native programs as they are.
#[derive(Debug, Parser)]
#[command(
    name = "fettle",
    version,
    max_term_width = 100,
    after_help = "Examples:\n  fettle record -- redis-server --port 7777\n  fettle report redis-server.fettle\n  fettle lift /usr/bin/python3\n\nExit status: 0 done; 1 done, with something skipped or not found; 2 error.\n`fettle record` passes on the program's own status, and tells as shells do of one that\ncannot be executed (126) or is not there (127)."
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a program with a probe in each of its functions and write a trace
    Record(record::Args),
    /// Take in the traces of recorders on other machines, while they record
    Collect(collect::CollectArgs),
    /// Send what a recorder could not send to its collector
    Send(collect::SendArgs),
    /// Make a program, library or object file that records itself, without the fettle command
    Instrument(instrument::Args),
    /// Show what a trace says: functions by time, callers, trees, latencies
    Report(report::ReportArgs),
    /// Show the requests in a trace, and where their time went
    Requests(requests::RequestsArgs),
    /// Find requests on several machines
    Cluster(cluster::ClusterArgs),
    /// Look at schemas, which say what a request is
    Schema(schema::SchemaArgs),
    /// Look at a trace in the browser: timelines, functions, flame graphs, durations
    Ui(ui::UiArgs),
    /// Write a trace in another program's format
    Export(export::ExportArgs),
    /// Turn traces of strace, perf, ftrace, LTTng and others into one of Fettle's
    Import(import::ImportArgs),
    /// Make one trace of those of several machines, on one clock
    Merge(merge::MergeArgs),
    /// Look after trace folders
    Trace(trace::TraceArgs),
    /// Look at the sensors of running programs
    Sensors(sensors::Args),
    /// Show how hot code lies, and how it could, by what a trace has counted
    Layout(layout::LayoutArgs),
    /// Lay the hot code of a running process out anew
    Tune(tune::Args),
    /// Take back what was changed in a running process
    Undo(tune::UndoArgs),
    /// Show which running processes are changed, and how
    Status(tune::StatusArgs),
    /// Tell gdb and perf the names of new code in a running process
    Symbols(symbols::Args),
    /// Show how much of a file can be lifted, and why the rest cannot
    Lift(lift::Args),
    /// Make a jar of a MIPS program: Java bytecode that runs wherever Java does
    Jar(jar::Args),
    /// Show or clear the rewritten code kept for later recordings
    Cache(cache::Args),
    /// Print a shell's completions
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Print the manual page
    Man,
}

fn main() -> ExitCode {
    fettle_live::on_own_stack(run)
}

fn run() -> ExitCode {
    let cli = Cli::parse();
    let result = match cli.command {
        Command::Record(args) => record(args),
        Command::Collect(args) => collect::run(&args),
        Command::Send(args) => collect::send(&args),
        Command::Instrument(args) => instrument::run(&args),
        Command::Report(args) => report::run(args),
        Command::Requests(args) => requests::run(args),
        Command::Cluster(args) => cluster::run(&args),
        Command::Schema(args) => schema::run(args),
        Command::Ui(args) => ui::run(&args),
        Command::Export(args) => export::run(args),
        Command::Import(args) => import::run(args),
        Command::Merge(args) => merge::run(&args),
        Command::Trace(args) => trace::run(args),
        Command::Sensors(args) => sensors::run(args),
        Command::Layout(args) => layout::run(args),
        Command::Tune(args) => tune::run(&args),
        Command::Undo(args) => tune::undo(&args),
        Command::Status(args) => tune::status(&args),
        Command::Symbols(args) => symbols::run(&args),
        Command::Lift(args) => lift::run(&args),
        Command::Jar(args) => jar::run(&args),
        Command::Cache(args) => cache::run(&args),
        Command::Completions { shell } => {
            let mut command = Cli::command();
            clap_complete::generate(shell, &mut command, "fettle", &mut std::io::stdout());
            Ok(ExitCode::SUCCESS)
        }
        Command::Man => man(),
    };
    result.unwrap_or_else(|error| {
        if is_broken_pipe(&error) {
            return ExitCode::SUCCESS;
        }
        say!("fettle: {}", told(&error));
        ExitCode::from(2)
    })
}

/// Records a program that it starts, or one that runs already.
fn record(args: record::Args) -> anyhow::Result<ExitCode> {
    let quiet = args.quiet;
    let recorded = args.probed_pid().and_then(|pid| match pid {
        Some(pid) => attach::run(&args, pid),
        None => record::run(args),
    });
    recorded.or_else(|error| record::failed(error, quiet))
}

fn man() -> anyhow::Result<ExitCode> {
    clap_mangen::Man::new(Cli::command()).render(&mut std::io::stdout())?;
    Ok(ExitCode::SUCCESS)
}

/// Whether whoever reads our output stopped reading, which is no error of ours.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .chain()
        .filter_map(|e| e.downcast_ref::<std::io::Error>())
        .any(|e| e.kind() == std::io::ErrorKind::BrokenPipe)
}
