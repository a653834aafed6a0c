//! The `fettle` command.
#![forbid(unsafe_code)]
// `say!` and `output::print` are used instead: the parent may have closed these streams.
#![deny(clippy::print_stderr, clippy::print_stdout)]

#[macro_use]
mod output;

mod alias;
mod annotate;
mod apply;
mod attach;
mod bench;
mod cache;
mod census;
mod cluster;
mod collect;
mod compare;
mod evidence;
mod export;
mod finding;
mod import;
mod instrument;
mod jar;
mod kernel;
mod knobs;
mod layout;
mod lift;
mod locate;
mod locks;
mod measured;
mod merge;
mod mode;
mod old_keys;
mod own;
mod profile;
mod record;
mod replay;
mod report;
mod requests;
mod schema;
mod select;
mod sensors;
mod smp;
mod status;
mod symbols;
mod threads;
mod trace;
mod tune;
mod tuned;
mod ui;
mod undo;
mod watch;
mod watch_requests;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::output::reported;

/// Lifting allocates much in many threads: with this allocator it takes a fifth less CPU time than
/// with glibc's.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Observe, tune and move native programs as they are.
#[derive(Debug, Parser)]
#[command(
    name = "fettle",
    version = env!("FETTLE_VERSION"),
    max_term_width = 100,
    after_help = "Examples:\n  fettle record -- redis-server --port 7777\n  fettle report redis-server.fettle\n  fettle lift /usr/bin/python3\n\nExit status: 0 done; 1 done, with something skipped or not found; 2 error.\n`fettle record` passes on the program's own status; as in shells it is 126 where the program\ncannot be executed, and 127 where there is none."
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a program with a probe in each of its functions and write a trace
    Record(record::Args),
    /// Receive the traces of recorders on other machines, while they record
    Collect(collect::CollectArgs),
    /// Send what a recorder could not send to its collector
    Send(collect::SendArgs),
    /// Make a program, library or object file that records itself, without the fettle command
    Instrument(instrument::Args),
    /// Show what a trace says: functions by time, callers, trees, latencies
    Report(report::ReportArgs),
    /// Show the calls of a trace as they happened, in the order of time
    Replay(replay::ReplayArgs),
    /// Show a function's instructions, with how often each of its blocks ran
    Annotate(annotate::AnnotateArgs),
    /// Show the requests in a trace, and where their time went
    Requests(requests::RequestsArgs),
    Locate(locate::LocateArgs),
    /// Find requests on several machines (in a build with the feature `cluster`)
    Cluster(cluster::ClusterArgs),
    /// Show which locks threads wait for, who holds them, and which deadlocks are possible
    Locks(locks::LocksArgs),
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
    /// Tune the servers of this machine by rules, as a daemon
    Tuned(tuned::TunedArgs),
    /// Put profiles together, make them of traces, show what is in them
    Profile(profile::ProfileArgs),
    /// Watch running processes by rules, and heal those that hang
    Watch(watch::WatchArgs),
    /// Revert what was changed in a running process
    Undo(undo::Args),
    /// Show which running processes are changed, and how
    Status(status::Args),
    /// Give gdb and perf the names of rewritten text in a running process
    Symbols(symbols::Args),
    /// Show how much of a file can be lifted, and why the rest cannot
    Lift(lift::Args),
    /// Count functions of the running kernel, lay its hot code out anew, take all of it out again
    Kernel(kernel::Args),
    /// Make a jar of a MIPS program: Java bytecode that runs wherever Java does
    Jar(jar::Args),
    /// Measure what this machine offers to programs: messages between processes, making processes
    Bench(bench::BenchArgs),
    /// Run the same program on several systems, and compare what they make of it
    Compare(compare::CompareArgs),
    /// Count lock operations in source code: by kind, function and revision
    Census(census::Args),
    /// Lend processors to the application kernel, run programs there, take the processors back
    Smp(smp::Args),
    /// Show or clear the rewritten code kept for later recordings
    Cache(cache::Args),
    /// Print a shell's completions
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Print the manual page, or write those of all commands into a folder
    Man {
        /// The folder, which is made if it is not there
        dir: Option<PathBuf>,
    },
}

/// The commands by what people want, as `fettle --help` lists them.
const JOBS: [(&str, &[&str]); 5] = [
    ("Observe", &["record", "instrument", "sensors", "import", "lift"]),
    (
        "Understand",
        &[
            "report", "replay", "annotate", "requests", "locate", "locks", "ui", "export",
            "schema", "census", "compare", "bench", "cluster",
        ],
    ),
    ("Tune", &["tune", "tuned", "kernel", "undo", "status", "symbols", "profile", "layout"]),
    ("Move", &["collect", "send", "merge", "jar", "smp"]),
    ("Look after", &["trace", "watch", "cache", "completions", "man", "help"]),
];

/// The command line, with a help that is grouped by job.
fn command() -> clap::Command {
    let mut command = Cli::command();
    // Adds `help`.
    command.build();
    let mut jobs = String::new();
    for (job, names) in JOBS {
        jobs.push_str(&format!("{job}:\n"));
        for command in names.iter().filter_map(|name| command.find_subcommand(name)) {
            let about = command.get_about().map(ToString::to_string).unwrap_or_default();
            jobs.push_str(&format!("  {:11}  {about}\n", command.get_name()));
        }
        jobs.push('\n');
    }
    Cli::command().help_template(format!(
        "{{about}}\n\n{{usage-heading}} {{usage}}\n\n{jobs}Options:\n{{options}}{{after-help}}"
    ))
}

fn main() -> ExitCode {
    fettle_live::on_own_stack(run)
}

fn run() -> ExitCode {
    let cli = Cli::from_arg_matches(&command().get_matches()).unwrap_or_else(|error| error.exit());
    let result = match cli.command {
        Command::Record(args) => record(args),
        Command::Collect(args) => collect::run(&args),
        Command::Send(args) => collect::send(&args),
        Command::Instrument(args) => instrument::run(&args),
        Command::Report(args) => report::run(args),
        Command::Requests(args) => requests::run(args),
        Command::Locate(args) => locate::run(&args),
        Command::Cluster(args) => cluster::run(&args),
        Command::Locks(args) => locks::run(args),
        Command::Schema(args) => schema::run(args),
        Command::Ui(args) => ui::run(&args),
        Command::Export(args) => export::run(args),
        Command::Replay(args) => replay::run(&args),
        Command::Annotate(args) => annotate::run(&args),
        Command::Import(args) => import::run(args),
        Command::Merge(args) => merge::run(&args),
        Command::Trace(args) => trace::run(args),
        Command::Sensors(args) => sensors::run(args),
        Command::Layout(args) => layout::run(args),
        Command::Tune(args) => tune::run(&args),
        Command::Profile(args) => profile::run(&args),
        Command::Tuned(args) => tuned::run(&args),
        Command::Undo(args) => undo::run(&args),
        Command::Watch(args) => watch::run(&args),
        Command::Status(args) => status::run(&args),
        Command::Symbols(args) => symbols::run(&args),
        Command::Lift(args) => lift::run(&args),
        Command::Kernel(args) => kernel::run(&args),
        Command::Jar(args) => jar::run(&args),
        Command::Census(args) => census::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Compare(args) => compare::run(&args),
        Command::Smp(args) => smp::run(&args),
        Command::Cache(args) => cache::run(&args),
        Command::Completions { shell } => {
            let mut command = Cli::command();
            clap_complete::generate(shell, &mut command, "fettle", &mut std::io::stdout());
            Ok(ExitCode::SUCCESS)
        }
        Command::Man { dir } => man(dir.as_deref()),
    };
    result.unwrap_or_else(|error| {
        if is_broken_pipe(&error) {
            return ExitCode::SUCCESS;
        }
        say!("fettle: {}", reported(&error));
        ExitCode::from(2)
    })
}

/// Records a program that it starts, or one that runs already.
fn record(args: record::Args) -> anyhow::Result<ExitCode> {
    if !args.kernel_functions.is_empty() {
        return kernel::record(&args);
    }
    let quiet = args.quiet;
    let recorded = args.probed_pid().and_then(|pid| match pid {
        Some(pid) => attach::run(&args, pid),
        None => record::run(args),
    });
    recorded.or_else(|error| record::failed(error, quiet))
}

fn man(dir: Option<&Path>) -> anyhow::Result<ExitCode> {
    match dir {
        None => clap_mangen::Man::new(Cli::command()).render(&mut std::io::stdout())?,
        Some(dir) => {
            let what = || format!("cannot write manual pages to {}", dir.display());
            std::fs::create_dir_all(dir).with_context(what)?;
            clap_mangen::generate_to(Cli::command(), dir).with_context(what)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Whether the reader of our output stopped reading, which is no error of ours.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .chain()
        .filter_map(|e| e.downcast_ref::<std::io::Error>())
        .any(|e| e.kind() == std::io::ErrorKind::BrokenPipe)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_help_lists_each_command_once() {
        let mut built = Cli::command();
        built.build();
        for command in built.get_subcommands().filter(|command| !command.is_hide_set()) {
            let name = command.get_name();
            let listed = JOBS.iter().flat_map(|(_, names)| *names).filter(|n| **n == name).count();
            assert_eq!(listed, 1, "{name}");
        }
        let listed: usize = JOBS.iter().map(|(_, names)| names.len()).sum();
        assert_eq!(listed, built.get_subcommands().count());
        let help = command().render_help().to_string();
        assert!(help.contains("Look after:\n  trace "), "{help}");
    }
}
