//! `fettle kernel count`: calls, blocks and edges of the kernel's functions.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::process::{Command as Process, ExitCode};
use std::time::Instant;

use anyhow::Context;
use fettle_kernel_emit::Counting as What;
use fettle_kernel_lift::{KernelFunction, Lifter, Skipped};
use fettle_kernel_live::check;
use fettle_kernel_tune::{Count, Counting, Executions, Scope, Selected, Times};
use fettle_report::render::duration;
use serde_json::json;

use super::{CountArgs, CountMode, JSON_VERSION};
use crate::output::{self, plural};

/// What was counted.
#[derive(Default)]
struct Counted {
    calls: Vec<Count>,
    /// In the modes of blocks and edges.
    executions: Vec<Executions>,
    /// In the mode of times.
    times: Vec<Times>,
    skipped: Vec<Skipped>,
    seconds: f64,
}

/// Counts functions for a time or while a command runs.
pub fn count(args: &CountArgs) -> anyhow::Result<ExitCode> {
    let image = fettle_kernel_live::image()?;
    check::check(&image)?;
    let lifter = Lifter::new(&image);
    let selected = match &args.root {
        Some(root) => Selected::by_root(&lifter, root)?,
        None => Selected::by_names(&lifter, &args.patterns)?,
    };
    let scope = args.root.as_deref().map_or(Scope::All, Scope::Root);
    let (what, functions) = match args.mode {
        CountMode::Calls => (What::Calls, Vec::new()),
        CountMode::Blocks => (What::Blocks, selected.functions.clone()),
        CountMode::Edges => (What::Edges, selected.functions.clone()),
        CountMode::Time => (What::Times, Vec::new()),
    };
    let mut counting = Counting::start(&lifter, selected, what, scope)?;
    let skipped = std::mem::take(&mut counting.skipped);
    let begin = Instant::now();
    let ended = match args.command.split_first() {
        None => {
            std::thread::sleep(args.duration);
            ExitCode::SUCCESS
        }
        Some((program, arguments)) => run_command(program, arguments)?,
    };
    let counted = finish(counting, (args.mode, &functions), skipped, begin)?;
    match args.json {
        true => output::print(&as_json(&counted))?,
        false => output::print(&as_text(&counted, args.all))?,
    }
    Ok(ended)
}

/// Reads the counters and takes them out.
fn finish(
    counting: Counting,
    (mode, functions): (CountMode, &[KernelFunction]),
    skipped: Vec<Skipped>,
    begin: Instant,
) -> anyhow::Result<Counted> {
    let mut counted = Counted { skipped, ..Counted::default() };
    let now = || begin.elapsed().as_secs_f64();
    match mode {
        CountMode::Calls => {
            (counted.calls, counted.seconds) = (counting.calls()?, now());
            counting.finish()?;
        }
        CountMode::Blocks | CountMode::Edges => {
            (counted.executions, counted.seconds) = (counting.executions(functions)?, now());
            counted.calls = counted.executions.iter().map(Executions::calls).collect();
            counting.finish()?;
        }
        CountMode::Time => {
            counted.seconds = now();
            counted.times = counting.finish_times()?;
            let calls = counted.times.iter().map(|times| Count {
                name: times.name.clone(),
                entry: times.entry,
                calls: times.calls,
            });
            counted.calls = calls.collect();
        }
    }
    Ok(counted)
}

fn run_command(program: &OsString, arguments: &[OsString]) -> anyhow::Result<ExitCode> {
    let status = Process::new(program).args(arguments).status();
    let status = status.with_context(|| format!("cannot start {}", program.to_string_lossy()))?;
    Ok(match status.code() {
        Some(code) => ExitCode::from(code as u8),
        None => ExitCode::from(255),
    })
}

/// Functions that were left unmodified, by reason.
fn reasons(skipped: &[Skipped]) -> BTreeMap<&'static str, Vec<&str>> {
    let mut by: BTreeMap<&'static str, Vec<&str>> = BTreeMap::new();
    skipped.iter().for_each(|one| by.entry(one.reason.describe()).or_default().push(&one.name));
    by
}

fn as_text(counted: &Counted, all: bool) -> String {
    let seconds = counted.seconds;
    let mut text = match (&counted.executions[..], &counted.times[..]) {
        ([], []) => calls_as_text(&counted.calls, seconds, all),
        ([], times) => times_as_text(times, all),
        (executions, _) => executions_as_text(executions, all),
    };
    let idle = counted.calls.iter().filter(|count| count.calls == 0).count();
    text.push_str(&format!(
        "\n{} counted for {seconds:.1} s, {idle} of them not called\n",
        plural(counted.calls.len() as u64, "function", "functions")
    ));
    let edges = || counted.executions.iter().flat_map(|function| &function.edges);
    if edges().next().is_some() {
        let (exact, edges) = (edges().filter(|edge| edge.exact).count(), edges().count());
        let share = 100.0 * exact as f64 / edges as f64;
        text.push_str(&format!("counts of {exact} of {edges} edges are exact ({share:.1} %)\n"));
    }
    for (reason, names) in reasons(&counted.skipped) {
        let some = names[..names.len().min(3)].join(", ");
        let more = if names.len() > 3 { ", …" } else { "" };
        text.push_str(&format!("left unmodified: {} ({reason}): {some}{more}\n", names.len()));
    }
    text
}

fn calls_as_text(calls: &[Count], seconds: f64, all: bool) -> String {
    let mut text = format!("{:>12} {:>12}  function\n", "calls", "a second");
    for count in calls.iter().filter(|count| all || count.calls > 0) {
        let rate = count.calls as f64 / seconds.max(1e-9);
        text.push_str(&format!("{:>12} {rate:>12.0}  {}\n", count.calls, count.name));
    }
    text
}

fn times_as_text(times: &[Times], all: bool) -> String {
    let mut text = format!("{:>12} {:>12} {:>12}  function\n", "time", "a call", "calls");
    for function in times.iter().filter(|function| all || function.calls > 0) {
        let each = duration(function.ns / function.calls.max(1));
        let time = duration(function.ns);
        let (calls, name) = (function.calls, &function.name);
        let open = match function.open {
            0 => String::new(),
            open => format!(" ({open} not ended)"),
        };
        text.push_str(&format!("{time:>12} {each:>12} {calls:>12}  {name}{open}\n"));
    }
    text
}

/// Blocks and edges by function, each as its distance from the function's begin.
fn executions_as_text(executions: &[Executions], all: bool) -> String {
    let mut text = format!("{:>12}  function, block, edges that leave it\n", "executions");
    for function in executions {
        if !all && function.blocks.iter().all(|block| block.count == 0) {
            continue;
        }
        let partly = if function.inconsistent { " (a thread was in it)" } else { "" };
        let calls = function.calls().calls;
        text.push_str(&format!("{calls:>12}  {}{partly}\n", function.name));
        let from_entry = |at: u64| match at.checked_sub(function.entry) {
            Some(distance) => format!("+{distance:#x}"),
            None => format!("-{:#x}", function.entry - at),
        };
        for block in function.blocks.iter().filter(|block| all || block.count > 0) {
            let edges = function.edges.iter().filter(|edge| edge.from == block.at);
            let edges = edges.filter(|edge| all || edge.count > 0).map(|edge| {
                let about = if edge.exact { "" } else { "≤" };
                format!(" {about}{} to {}", edge.count, from_entry(edge.to))
            });
            let edges = edges.collect::<Vec<_>>().join(",");
            let line = format!("{:>12}    {:<8}{edges}", block.count, from_entry(block.at));
            text.push_str(&format!("{}\n", line.trim_end()));
        }
    }
    text
}

fn as_json(counted: &Counted) -> String {
    let hex = |address: u64| format!("{address:#x}");
    let functions: Vec<_> = counted
        .calls
        .iter()
        .map(|count| json!({ "name": count.name, "address": hex(count.entry), "calls": count.calls }))
        .collect();
    let skipped: Vec<_> = counted
        .skipped
        .iter()
        .map(|one| json!({ "name": one.name, "reason": one.reason.describe() }))
        .collect();
    let mut value = json!({
        "version": JSON_VERSION,
        "seconds": counted.seconds,
        "functions": functions,
        "skipped": skipped,
    });
    if !counted.times.is_empty() {
        let of = |times: &Times| {
            json!({
                "name": times.name,
                "address": hex(times.entry),
                "calls": times.calls,
                "not_ended": times.open,
                "ns": times.ns,
            })
        };
        value["times"] = counted.times.iter().map(of).collect();
    }
    if !counted.executions.is_empty() {
        let of = |function: &Executions| {
            let blocks = function.blocks.iter().map(|block| {
                let (at, rewritten) = (hex(block.at), hex(block.rewritten));
                json!({ "address": at, "rewritten": rewritten, "count": block.count })
            });
            let edges = function.edges.iter().map(|edge| {
                let (from, to) = (hex(edge.from), hex(edge.to));
                json!({ "from": from, "to": to, "count": edge.count, "exact": edge.exact })
            });
            json!({
                "name": function.name,
                "address": hex(function.entry),
                "inconsistent": function.inconsistent,
                "blocks": blocks.collect::<Vec<_>>(),
                "edges": edges.collect::<Vec<_>>(),
            })
        };
        value["executions"] = counted.executions.iter().map(of).collect();
    }
    format!("{value}\n")
}
