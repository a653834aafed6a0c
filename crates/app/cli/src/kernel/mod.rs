//! `fettle kernel`: functions of the kernel that runs here.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args as ClapArgs, Subcommand, ValueEnum};
use fettle_kernel_emit::Counting;
use fettle_kernel_live::journal::Journal;
use fettle_kernel_live::{Error, Installed, State, Status, check, load};
use serde_json::json;

use crate::output::{self, plural};

mod counts;
mod tuning;

pub use counts::{count, record};
pub use tuning::{TuneArgs, tune, tune_with};

use fettle_types::parse_time;

/// Version of the JSON that these commands write.
const JSON_VERSION: u32 = 1;

/// Count functions of the running kernel, lay its hot code out anew, take all of it out again
///
/// The kernel is the distribution's own: no source, no compiler, no reboot. Fettle makes a module for it from
/// what the kernel shows of itself. Needs root, and a kernel that loads unsigned modules.
#[derive(ClapArgs, Debug)]
#[command(
    after_help = "Examples:\n  fettle kernel check\n  fettle kernel count 'tcp_*' --duration 10s\n  fettle kernel count vfs_read,vfs_write -- make\n  fettle kernel tune --root tcp_v4_rcv --no-compare\n  fettle kernel status\n  fettle kernel undo"
)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Say whether functions of this kernel can be rewritten; changes nothing
    Check {
        /// Print as JSON
        #[arg(long)]
        json: bool,
    },
    /// Count calls of the kernel's functions, of all processes and on all processors
    #[command(
        after_help = "Examples:\n  fettle kernel count 'tcp_*' --duration 10s\n  fettle kernel count vfs_read,vfs_write -- make\n  fettle kernel count --mode edges --root tcp_v4_rcv\n  fettle kernel count --json schedule -- sleep 1"
    )]
    Count(CountArgs),
    /// Lay hot code of the kernel out anew, compare, keep what is faster for certain
    #[command(
        after_help = "Examples:\n  fettle kernel tune --root tcp_v4_rcv --work-counter 'cat /var/lib/server/requests'\n  fettle kernel tune --only 'vfs_*,pipe_*' --no-compare\n  fettle kernel tune --save kernel.profile --work-counter 'cat /var/lib/server/requests' --watch 10m\n  fettle kernel tune --profile kernel.profile --no-compare"
    )]
    Tune(TuneArgs),
    /// Take all rewritten text out of the kernel
    Undo {
        /// Wait at most so long for tracers and probes of others to go
        #[arg(long, value_name = "TIME", value_parser = parse_time, default_value = "10s")]
        wait: Duration,
        /// Print as JSON
        #[arg(long)]
        json: bool,
    },
    /// Show what rewritten text is in the kernel
    Status {
        /// Print as JSON
        #[arg(long)]
        json: bool,
    },
}

/// Arguments of `fettle kernel count`.
#[derive(ClapArgs, Debug)]
pub struct CountArgs {
    /// Names of functions, with * and ?
    #[arg(required_unless_present = "root", value_delimiter = ',')]
    pub patterns: Vec<String>,
    /// Count this function and all that it leads to, where it leads there
    #[arg(long, value_name = "FUNCTION", conflicts_with = "patterns")]
    pub root: Option<String>,
    /// What to count
    #[arg(long, value_enum, default_value_t)]
    pub mode: CountMode,
    /// Count for so long, such as 10s, 500ms or 2m, where there is no command
    #[arg(long, value_name = "TIME", value_parser = parse_time, default_value = "10s")]
    pub duration: Duration,
    /// Also print functions that were not called
    #[arg(long)]
    pub all: bool,
    /// Keep a trace here, too, for `fettle report` and `fettle ui`
    #[arg(short, long, value_name = "FOLDER")]
    pub output: Option<PathBuf>,
    /// Print as JSON
    #[arg(long)]
    pub json: bool,
    /// Count while this command runs; its status is passed on
    #[arg(last = true)]
    pub command: Vec<OsString>,
}

/// What is counted of the kernel's functions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum CountMode {
    /// Calls
    #[default]
    Calls,
    /// Executions of blocks; edges follow from them for the most part
    Blocks,
    /// Executions of edges, from which those of blocks follow
    Edges,
    /// Calls and the time from their begin to their end, and how much of it is without waiting and interrupts
    Time,
}

impl CountMode {
    /// What probes do for it.
    fn probe(self) -> Counting {
        match self {
            CountMode::Calls => Counting::Calls,
            CountMode::Blocks => Counting::Blocks,
            CountMode::Edges => Counting::Edges,
            CountMode::Time => Counting::Times,
        }
    }
}

/// Runs `fettle kernel`.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    match &args.command {
        Command::Check { json } => check_kernel(*json),
        Command::Count(args) => count(args),
        Command::Tune(args) => tune(args),
        Command::Undo { wait, json } => undo(*wait, *json),
        Command::Status { json } => status(*json),
    }
}

fn check_kernel(json: bool) -> anyhow::Result<ExitCode> {
    let outcome = fettle_kernel_live::image().and_then(|image| {
        check::check(&image)?;
        Ok(image)
    });
    let text = match (&outcome, json) {
        (Ok(image), false) => {
            let modules = match image.modules.len() {
                0 => String::new(),
                some => format!(", and of {}", plural(some as u64, "module", "modules")),
            };
            let left =
                image.unreadable.iter().map(|(name, why)| format!("\n{name} is left out: {why}"));
            let left = left.collect::<String>();
            format!(
                "{}: functions of this kernel{modules} can be counted and tuned{left}",
                image.release
            )
        }
        (Err(why), false) => format!("functions of this kernel cannot be rewritten: {why}"),
        (Ok(image), true) => {
            let left = image.unreadable.iter();
            let left = left.map(|(name, why)| json!({ "module": name, "reason": why.to_string() }));
            json!({
                "version": JSON_VERSION,
                "fit": true,
                "release": image.release,
                "modules": image.modules.iter().map(|module| &module.name).collect::<Vec<_>>(),
                "modules_left": left.collect::<Vec<_>>(),
            })
            .to_string()
        }
        (Err(why), true) => {
            json!({ "version": JSON_VERSION, "fit": false, "reason": why.to_string() }).to_string()
        }
    };
    output::print(&format!("{text}\n"))?;
    Ok(ExitCode::from(u8::from(outcome.is_err())))
}

/// Takes all rewritten text out of the kernel.
pub fn undo(wait: Duration, json: bool) -> anyhow::Result<ExitCode> {
    let mut installed = match Installed::open() {
        Err(Error::NotLoaded) => {
            match json {
                true => {
                    output::print(&format!(
                        "{}\n",
                        json!({ "version": JSON_VERSION, "undone": false })
                    ))?;
                }
                false => output::print("no rewritten text is in the kernel\n")?,
            }
            return Ok(ExitCode::from(1));
        }
        installed => installed?,
    };
    let status = installed.undo(wait)?;
    drop(installed);
    load::unload()?;
    if json {
        let value = json!({ "version": JSON_VERSION, "undone": true, "status": status });
        output::print(&format!("{value}\n"))?;
        return Ok(ExitCode::SUCCESS);
    }
    output::print(&format!(
        "taken out of the kernel: {}; {} patched in {}, stopped for {:.2} ms\n",
        plural(status.entries, "entry", "entries"),
        plural(status.moved, "return address", "return addresses"),
        plural(status.tasks, "thread", "threads"),
        status.stopped_ns as f64 / 1e6,
    ))?;
    Ok(ExitCode::SUCCESS)
}

/// Shows what rewritten text is in the kernel.
pub fn status(json: bool) -> anyhow::Result<ExitCode> {
    let status = match Installed::open() {
        Err(Error::NotLoaded) => None,
        installed => Some(installed?.status()?),
    };
    let journal = Journal::read()?;
    if json {
        let value = json!({ "version": JSON_VERSION, "module": status, "journal": journal });
        output::print(&format!("{value}\n"))?;
    } else {
        output::print(&status_as_text(status.as_ref(), journal.as_ref()))?;
    }
    Ok(if status.is_some() { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

fn status_as_text(status: Option<&Status>, journal: Option<&Journal>) -> String {
    let Some(status) = status else { return "no rewritten text is in the kernel\n".to_string() };
    let state = match status.state {
        State::Out => "loaded, not installed",
        State::Installed => "installed",
        State::Leaving => "reverted; threads are still in it",
    };
    let bytes = status.text_end.saturating_sub(status.text_begin);
    let mut text = format!(
        "kernel: {} of rewritten text, {:.1} KB, {state}{}\n",
        plural(status.entries, "entry", "entries"),
        bytes as f64 / 1024.0,
        if status.keep { ", kept" } else { "" },
    );
    if let Some(journal) = journal {
        let some = journal.functions[..journal.functions.len().min(8)].join(", ");
        let more = if journal.functions.len() > 8 { ", …" } else { "" };
        text.push_str(&format!("functions: {some}{more}\n"));
    }
    text
}
