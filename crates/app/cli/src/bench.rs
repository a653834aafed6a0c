//! `fettle bench`: what systems offer to programs, and what it costs.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::{Args, Subcommand};
use fettle_compare::{
    MessageOptions, Observer, Options, Subject, System, Tools, Traced, adopt_orphans,
};
use fettle_report::render::json;

use crate::compare::{ToolArgs, shown};
use crate::output;

/// Measure what this machine offers to programs: messages between processes, making processes
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  fettle bench ipc
  fettle bench ipc --on native --on gvisor:ptrace --size 64,4k,64k,2m --json
  fettle bench probes
  fettle bench probes --only uprobe,strace null fork

Exit status: 0 done; 1 done, with something left out; 2 error.")]
pub struct BenchArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Messages between two processes by each way and size, and making processes
    Ipc(IpcArgs),
    /// What it costs a program to be observed, by several means
    Probes(ProbesArgs),
}

#[derive(Args, Debug)]
struct ProbesArgs {
    /// Operations to measure, or groups of them
    #[arg(value_name = "BENCHMARK", default_values = ["null", "read-1k", "fork", "vfork", "exec"])]
    benchmarks: Vec<String>,
    /// Another means: a name, and the command that starts programs under it. {dir} in it is a private folder
    #[arg(long = "by", value_name = "NAME=COMMAND", value_parser = parse_means)]
    by: Vec<(String, String)>,
    /// Only means whose name has one of these words in it; ratios are to native all the same
    #[arg(long, value_name = "WORD", value_delimiter = ',')]
    only: Vec<String>,
    /// Rounds; each has two turns of every means. Intervals need 6
    #[arg(long, value_name = "N", default_value = "20")]
    rounds: usize,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// No colours
    #[arg(long)]
    no_color: bool,
}

#[derive(Args, Debug)]
struct IpcArgs {
    /// A system (may be repeated): native, uml, gvisor:PLATFORM, or a command
    #[arg(long = "on", value_name = "SYSTEM", default_value = "native")]
    on: Vec<String>,
    /// Sizes of messages: bytes, or with k or m
    #[arg(
        long,
        value_name = "SIZE",
        value_delimiter = ',',
        value_parser = parse_size,
        default_value = "256,1k,4k,16k,64k,256k,1m,2m"
    )]
    size: Vec<u64>,
    /// How much is moved in messages of each size
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "2m")]
    total: u64,
    /// Memory that a process has touched when it makes another
    #[arg(
        long,
        value_name = "SIZE",
        value_delimiter = ',',
        value_parser = parse_size,
        default_value = "0,1m,10m,100m,500m"
    )]
    touched: Vec<u64>,
    /// How often each is measured, three times at once
    #[arg(long, value_name = "N", default_value = "5")]
    rounds: u32,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    tools: ToolArgs,
    /// No colours
    #[arg(long)]
    no_color: bool,
}

/// Largest message and largest total.
const BYTES_MAX: u64 = 1 << 30;

/// Runs `fettle bench`.
pub fn run(args: &BenchArgs) -> anyhow::Result<ExitCode> {
    match &args.what {
        What::Ipc(args) => ipc(args),
        What::Probes(args) => probes(args),
    }
}

fn ipc(args: &IpcArgs) -> anyhow::Result<ExitCode> {
    if args.rounds == 0 || args.rounds > 1000 {
        bail!("--rounds must be 1 to 1000");
    }
    let systems = args.on.iter().map(|name| name.parse()).collect::<Result<Vec<System>, _>>()?;
    if args.size.contains(&0) {
        bail!("--size 0: messages have at least one byte");
    }
    let options = MessageOptions {
        systems,
        tools: args.tools.tools(),
        sizes: args.size.clone(),
        total: args.total,
        touched: args.touched.clone(),
        rounds: args.rounds,
    };
    let stop = fettle_live::catch_signals().context("cannot catch signals")?;
    adopt_orphans().context("cannot become the parent of orphans")?;
    let found = fettle_compare::messages(&options, stop, &mut shown())?;
    output::clear_progress();
    output::print(&match args.json {
        true => json(&found)?,
        false => fettle_compare::messages_text(&found, output::terminal(args.no_color)),
    })?;
    Ok(ExitCode::from(u8::from(!found.skipped.is_empty())))
}

/// Longest that a turn takes, about: short, since observers keep what they record.
const TURN: Duration = Duration::from_millis(5);

/// The same operations on this kernel, observed by each means.
fn probes(args: &ProbesArgs) -> anyhow::Result<ExitCode> {
    if args.rounds == 0 || args.rounds > 1000 {
        bail!("--rounds must be 1 to 1000");
    }
    let own = std::env::current_exe().context("cannot find this program")?;
    let own = own.to_str().context("this program's path is no text")?;
    if own.contains(|c: char| c.is_whitespace() || "'\"$`\\".contains(c)) {
        bail!("this program's path, {own}, has characters that a shell changes");
    }
    let record = |mode: &str| {
        let command = format!("{own} record -q --mode {mode} -o {{dir}}/{mode}.fettle --");
        System::Named(format!("fettle {mode}"), command)
    };
    let named = |name: &str, command: &str| System::Named(name.to_owned(), command.to_owned());
    let mut means = vec![
        record("count"),
        record("time"),
        record("events"),
        System::Observed(Observer::Calls),
        System::Observed(Observer::Events),
        System::Observed(Observer::Uprobe),
        System::Observed(Observer::Ftrace(Traced::Uprobe)),
        System::Observed(Observer::Ftrace(Traced::Calls)),
        System::Observed(Observer::Ftrace(Traced::Function)),
        System::Observed(Observer::Ftrace(Traced::Kprobe)),
        named("strace -c", "strace -f -c -o /dev/null"),
        named("strace", "strace -f -qq -o /dev/null"),
    ];
    means.extend(args.by.iter().map(|(name, command)| named(name, command)));
    let is_asked = |means: &System| {
        let name = means.to_string();
        args.only.is_empty() || args.only.iter().any(|word| name.contains(word.as_str()))
    };
    means.retain(is_asked);
    if means.is_empty() {
        bail!("--only {}: no means has such a name", args.only.join(","));
    }
    let systems = [System::Native].into_iter().chain(means).collect();
    let options = Options {
        systems,
        tools: Tools::default(),
        subject: Subject::Benchmarks(args.benchmarks.clone()),
        loads: vec![0],
        rounds: args.rounds,
        turn: TURN,
        hold: false,
    };
    let stop = fettle_live::catch_signals().context("cannot catch signals")?;
    adopt_orphans().context("cannot become the parent of orphans")?;
    let found = fettle_compare::compare(&options, stop, &mut shown())?;
    output::clear_progress();
    output::print(&match args.json {
        true => json(&found)?,
        false => fettle_compare::text_by_system(&found, output::terminal(args.no_color)),
    })?;
    Ok(ExitCode::from(u8::from(!found.skipped.is_empty())))
}

/// A name and a command.
fn parse_means(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, command)) if !name.trim().is_empty() && !command.trim().is_empty() => {
            Ok((name.trim().to_owned(), command.trim().to_owned()))
        }
        _ => Err("a name and a command, as in ltrace='ltrace -f -o /dev/null'".to_owned()),
    }
}

/// Bytes, with an optional unit.
fn parse_size(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(char::is_alphabetic);
    let unit = match &text[digits.len()..] {
        "" => 1,
        "k" | "K" | "KiB" => 1 << 10,
        "m" | "M" | "MiB" => 1 << 20,
        _ => return Err("units are k and m".to_owned()),
    };
    let number: u64 = digits.parse().map_err(|_| "a number, as in 64k".to_owned())?;
    let bytes = number.checked_mul(unit).filter(|bytes| *bytes <= BYTES_MAX);
    bytes.ok_or_else(|| "at most 1024m".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_have_a_name_and_a_command() {
        let both = ("a b".to_owned(), "x=1 y".to_owned());
        assert_eq!(parse_means("a b=x=1 y"), Ok(both));
        for bad in ["", "a", "=x", "a= "] {
            assert!(parse_means(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn sizes_have_units() {
        assert_eq!(
            (parse_size("64"), parse_size("4k"), parse_size("2m")),
            (Ok(64), Ok(4096), Ok(2 << 20))
        );
        for bad in ["", "k", "4g", "-1", "2000m", "99999999999999999999m"] {
            assert!(parse_size(bad).is_err(), "{bad}");
        }
    }
}
