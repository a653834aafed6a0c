//! `fettle kernel count` and `fettle record --kernel-functions`: calls, blocks, edges and times of the kernel's
//! functions.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::bail;
use fettle_kernel_emit::Counting as Probe;
use fettle_kernel_lift::{Lifter, Skipped};
use fettle_kernel_live::check;
use fettle_kernel_tune::counted::mode;
use fettle_kernel_tune::{AllTimes, Count, Counted, Counting, Executions, Scope, Selected, Times};
use fettle_live::{ExitStatus, Launch};
use fettle_record::record::{begin_clock, end_clock, exit, new_manifest};
use fettle_report::render::duration;
use fettle_trace::{Finish, Manifest, TraceWriter};
use serde_json::json;

use super::{CountArgs, CountMode, JSON_VERSION};
use crate::mode::ModeArg;
use crate::output::{self, plural};
use crate::record::pass_on;

/// What is counted, how, and how long.
struct Counts<'a> {
    select: Select<'a>,
    probe: Probe,
    /// While this runs; without it, for a time.
    command: &'a [OsString],
    duration: Duration,
}

/// The functions that are counted.
#[derive(Clone, Copy)]
enum Select<'a> {
    Names(&'a [String]),
    Root(&'a str),
}

/// What came of it.
struct Done {
    counted: Counted,
    finish: Finish,
    /// How the command ended.
    status: Option<ExitStatus>,
}

impl Done {
    fn seconds(&self) -> f64 {
        self.finish.manifest.duration_ns as f64 / 1e9
    }

    /// Ends as the command did.
    fn pass_on(&self) -> anyhow::Result<ExitCode> {
        self.status.map_or(Ok(ExitCode::SUCCESS), pass_on)
    }
}

/// Counts functions for a time or while a command runs, and prints it.
pub fn count(args: &CountArgs) -> anyhow::Result<ExitCode> {
    let select = match &args.root {
        Some(root) => Select::Root(root),
        None => Select::Names(&args.patterns),
    };
    let (command, duration) = (&args.command[..], args.duration);
    let counts = Counts { select, probe: args.mode.probe(), command, duration };
    // What was counted is shown, whatever becomes of the trace.
    let mut show = |done: &Done| {
        output::print(&match args.json {
            true => as_json(done),
            false => as_text(done, args.all),
        })
    };
    let done = match &args.output {
        Some(output) => counts.write_trace(output, &mut show)?,
        None => {
            let done = counts.run(new_manifest(command))?;
            show(&done)?;
            done
        }
    };
    if let Some(output) = args.output.as_ref().filter(|_| !args.json) {
        say!("fettle: trace in {0}; next: fettle report {0}", output.display());
    }
    done.pass_on()
}

/// What `fettle record --kernel-functions` does: the patterns, counted into a trace for a time or while a program runs.
///
/// # Errors
///
/// When there is neither, or as `fettle kernel count`.
pub fn record(args: &crate::record::Args) -> anyhow::Result<ExitCode> {
    if args.duration.is_none() && args.command.is_empty() {
        bail!("--kernel-functions needs --duration or a program to run meanwhile");
    }
    let mode = match args.mode {
        None | Some(ModeArg::Count) => CountMode::Calls,
        Some(ModeArg::Blocks) => CountMode::Blocks,
        Some(ModeArg::Edges) => CountMode::Edges,
        Some(ModeArg::Time) => CountMode::Time,
        Some(_) => bail!("--kernel-functions has the modes count, blocks, edges and time"),
    };
    let name = args.command.first().map_or_else(|| "kernel".into(), OsString::clone);
    let output = args.output_for(&name)?;
    let counts = Counts {
        select: Select::Names(&args.kernel_functions),
        probe: mode.probe(),
        command: &args.command,
        duration: args.duration.unwrap_or_default(),
    };
    let done = counts.write_trace(&output, &mut |_| Ok(()))?;
    let totals = &done.finish.manifest.totals;
    let (functions, skipped) = (done.counted.calls.len() as u64, done.counted.skipped.len() as u64);
    if args.json {
        let duration = done.finish.manifest.duration_ns;
        let value = json!({
            "version": JSON_VERSION,
            "trace": output,
            "functions_seen": functions + skipped,
            "functions_lifted": functions,
            "functions_skipped": skipped,
            "calls": totals.calls,
            "duration_ns": duration,
        });
        say!("{value}");
    } else if !args.quiet {
        let left = match skipped {
            0 => String::new(),
            some => format!("; {some} left unmodified, see `fettle report`"),
        };
        let calls = plural(totals.calls, "call", "calls");
        say!("fettle: {calls} of {}{left}", plural(functions, "function", "functions"));
        say!("fettle: trace in {0}; next: fettle report {0}", output.display());
    }
    done.pass_on()
}

impl Counts<'_> {
    /// Counts, shows it, and writes a trace of it.
    fn write_trace(
        &self,
        output: &Path,
        show: &mut dyn FnMut(&Done) -> anyhow::Result<()>,
    ) -> anyhow::Result<Done> {
        let manifest = Manifest { probe_mode: mode(self.probe), ..new_manifest(self.command) };
        // The trace's folder is checked before anything is changed.
        let was_there = output.exists();
        let writer = TraceWriter::create(output, &manifest)?;
        let done = self.run(manifest).and_then(|mut done| {
            show(&done)?;
            done.finish.manifest = writer.finish(done.finish.clone(), &mut |_, _| {})?;
            Ok(done)
        });
        if done.is_err() && !was_there {
            let _ = std::fs::remove_dir_all(output);
        }
        done
    }

    /// Counts; `manifest` is that of the trace.
    fn run(&self, mut manifest: Manifest) -> anyhow::Result<Done> {
        let image = fettle_kernel_live::image()?;
        check::check(&image)?;
        let lifter = Lifter::new(&image);
        let (selected, scope) = match self.select {
            Select::Root(root) => (Selected::by_root(&lifter, root)?, Scope::Root(root)),
            Select::Names(names) => (Selected::by_names(&lifter, names)?, Scope::All),
        };
        let functions = match self.probe {
            Probe::Blocks | Probe::Edges => selected.functions.clone(),
            _ => Vec::new(),
        };
        let counting = Counting::start(&lifter, selected, self.probe, scope)?;
        begin_clock(&mut manifest);
        let status = self.wait()?;
        end_clock(&mut manifest);
        manifest.exit = status.map(exit);
        let counted = Counted::read(counting, self.probe, &functions)?;
        let finish = counted.trace(&image, manifest);
        Ok(Done { counted, finish, status })
    }

    /// Waits until the command or the time has ended, or the user ends it, whose signal is the command's too.
    fn wait(&self) -> anyhow::Result<Option<ExitStatus>> {
        /// Between two looks.
        const PERIOD: Duration = Duration::from_millis(10);
        let stop = fettle_live::catch_signals()?;
        let Some((program, arguments)) = self.command.split_first() else {
            let begin = Instant::now();
            while begin.elapsed() < self.duration && !stop.load(Ordering::Relaxed) {
                std::thread::sleep(PERIOD.min(self.duration.saturating_sub(begin.elapsed())));
            }
            return Ok(None);
        };
        let launch = Launch::new(program, arguments.iter().cloned());
        let mut ended = |status: Option<ExitStatus>| status.is_some();
        Ok(Some(fettle_live::run_untraced(&launch, PERIOD, &mut |_| (), &mut ended)?))
    }
}

/// Functions that were left unmodified, by reason.
fn reasons(skipped: &[Skipped]) -> BTreeMap<&'static str, Vec<&str>> {
    let mut by: BTreeMap<&'static str, Vec<&str>> = BTreeMap::new();
    skipped.iter().for_each(|one| by.entry(one.reason.describe()).or_default().push(&one.name));
    by
}

fn as_text(done: &Done, all: bool) -> String {
    let (counted, seconds) = (&done.counted, done.seconds());
    let mut text = match (&counted.executions[..], &counted.times.functions[..]) {
        ([], []) => calls_as_text(&counted.calls, seconds, all),
        ([], _) => times_as_text(&counted.times, all),
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

fn times_as_text(times: &AllTimes, all: bool) -> String {
    let mut text = format!(
        "{:>12} {:>12} {:>12} {:>12}  function\n",
        "time", "virtual", "virtual/call", "calls"
    );
    for function in times.functions.iter().filter(|function| all || function.calls > 0) {
        let (calls, name) = (function.calls, &function.name);
        let spent = function.spent.map(|spent| {
            [spent.wall_ns, spent.virtual_ns, spent.virtual_ns / calls.max(1)].map(duration)
        });
        let [time, own, each] = spent.unwrap_or_else(|| ["?", "?", "?"].map(str::to_owned));
        let mut about = Vec::new();
        about.extend((function.open > 0).then(|| format!("{} not ended", function.open)));
        let abandoned = (function.abandoned > 0).then(|| {
            format!("threads ended in {} calls, so times are not known", function.abandoned)
        });
        about.extend(abandoned);
        let about =
            if about.is_empty() { String::new() } else { format!(" ({})", about.join("; ")) };
        text.push_str(&format!("{time:>12} {own:>12} {each:>12} {calls:>12}  {name}{about}\n"));
    }
    text.push_str(&format!(
        "\nvirtual time stops while a thread does not run, and in interrupts: {} on all processors\n",
        duration(times.interrupts_ns)
    ));
    if times.lost > 0 {
        text.push_str(&format!(
            "virtual time is not exact: {} times it was not known how long a thread had run\n",
            times.lost
        ));
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

fn as_json(done: &Done) -> String {
    let counted = &done.counted;
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
        "seconds": done.seconds(),
        "functions": functions,
        "skipped": skipped,
    });
    if !counted.times.functions.is_empty() {
        let of = |times: &Times| {
            json!({
                "name": times.name,
                "address": hex(times.entry),
                "calls": times.calls,
                "not_ended": times.open,
                "abandoned": times.abandoned,
                "ns": times.spent.map(|spent| spent.wall_ns),
                "virtual_ns": times.spent.map(|spent| spent.virtual_ns),
            })
        };
        value["times"] = counted.times.functions.iter().map(of).collect();
        value["interrupts_ns"] = counted.times.interrupts_ns.into();
        value["virtual_time_unknown"] = counted.times.lost.into();
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
