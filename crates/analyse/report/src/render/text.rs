//! Reports as text.

use fettle_trace::{Exit, ProbeMode};

use super::Terminal;
use super::table::{BOLD, Table, WARN, column, may_go, paint, shortened};
use super::units::{count, duration, percent, plural};
use crate::arguments::ArgumentView;
use crate::counts::BlockView;
use crate::diff::Diff;
use crate::focus::{Focus, Neighbour};
use crate::report::{EventRow, Latency, OffCpu, Report, Run, SkippedRow, ThreadRow};
use crate::tree_view::TreeView;
use crate::user_probe::UserView;

/// Warnings or notes shown at most.
const NOTES_MAX: usize = 10;
/// The reason that a trace gives for functions that were not asked for.
const NOT_SELECTED: &str = "not selected";

/// The report: run, losses, functions, skipped functions.
pub fn report_text(report: &Report, terminal: Terminal) -> String {
    let mut out = String::new();
    run(&report.run, &report.events, terminal, &mut out);
    losses(report, terminal, &mut out);
    warnings(&report.warnings, terminal, &mut out);
    for note in report.notes.iter().take(NOTES_MAX) {
        out.push_str(&format!("note: {}\n", crate::names::one_line(note.clone())));
    }
    out.push('\n');
    if report.functions.is_empty() && !report.events.is_empty() {
        events(&report.events, terminal, &mut out);
    } else if report.functions.is_empty() {
        out.push_str("No calls of probed functions.\n");
    } else {
        functions(report, terminal, &mut out);
        more_functions(report.functions_called, report.functions.len(), &mut out);
        legend(&report.run, &mut out);
    }
    skipped(&report.skipped, terminal, &mut out);
    out
}

/// How many events of each kind.
fn events(rows: &[EventRow], terminal: Terminal, out: &mut String) {
    let mut table = Table::new(&[column("events")], "kind");
    for row in rows {
        table.row([count(row.count), crate::names::one_line(row.name.clone())]);
    }
    table.render(terminal, out);
    out.push_str("`fettle requests` follows requests through them\n");
}

/// How many of `all` functions are not among those `shown`.
fn more_functions(all: u64, shown: usize, out: &mut String) {
    let more = all.saturating_sub(shown as u64);
    if more > 0 {
        let more = plural(more, "more function", "more functions");
        out.push_str(&format!("… and {more} (--limit N shows N)\n"));
    }
}

/// What ran, when, for how long, and how it ended.
fn run(run: &Run, events: &[EventRow], terminal: Terminal, out: &mut String) {
    let command = crate::names::command_line(&run.command);
    paint(out, &shortened(&command, terminal.width), BOLD, terminal.colour);
    out.push('\n');
    let mut parts = vec![format!("{} wall", duration(run.duration_ns))];
    parts.extend(run.cpu_ns.map(|ns| format!("{} CPU", duration(ns))));
    parts.push(plural(run.threads, "thread", "threads"));
    if run.processes > 1 {
        parts.push(plural(run.processes, "process", "processes"));
    }
    match run.exit {
        Some(Exit { signal: Some(signal), .. }) => parts.push(format!("ended by signal {signal}")),
        Some(Exit { code: Some(code), .. }) => parts.push(format!("exit status {code}")),
        _ => {}
    }
    let text = |text: &String| crate::names::one_line(text.clone());
    parts.push(text(&run.start_time));
    if !run.cpu_model.is_empty() {
        parts.push(text(&run.cpu_model));
    }
    out.push_str(&parts.join(", "));
    out.push('\n');
    let calls = plural(run.calls, "call", "calls");
    if !events.is_empty() {
        let all = events.iter().fold(0u64, |sum, row| sum.saturating_add(row.count));
        let (all, kinds) = (plural(all, "event", "events"), events.len() as u64);
        out.push_str(&format!("{all} of {}\n", plural(kinds, "kind", "kinds")));
    }
    out.push_str(&match run.probe_mode {
        ProbeMode::None => String::new(),
        ProbeMode::Events => format!("{calls}, {} recorded\n", count(run.records)),
        ProbeMode::Sampled => format!("{calls}; times are estimated from samples\n"),
        mode => format!("{calls}; probe mode {}\n", mode.name()),
    });
}

/// What is missing, before any figure that lacks it.
fn losses(report: &Report, terminal: Terminal, out: &mut String) {
    let mut line = |text: &str| {
        paint(out, text, WARN, terminal.colour);
        out.push('\n');
    };
    if report.run.cut_off {
        line("! The recording was cut off; this is what had been stored by then.");
    }
    for loss in &report.losses {
        line(&format!(
            "! Lost: {} {}",
            count(loss.count),
            crate::names::one_line(loss.what.clone())
        ));
    }
    let missing = report.run.unrecorded;
    if missing > 0 {
        let share = missing as f64 / missing.saturating_add(report.run.records) as f64;
        line(&format!(
            "! {} of all records are missing: calls and times are exact; latencies, callers and \
             trees are partial.",
            percent(share)
        ));
    }
}

fn warnings(warnings: &[String], terminal: Terminal, out: &mut String) {
    for warning in warnings.iter().take(NOTES_MAX) {
        paint(out, &crate::names::one_line(format!("! {warning}")), WARN, terminal.colour);
        out.push('\n');
    }
    if warnings.len() > NOTES_MAX {
        out.push_str(&format!("! … and {} more\n", warnings.len() - NOTES_MAX));
    }
}

/// The functions; what was not measured, in any of them, has no columns.
fn functions(report: &Report, terminal: Terminal, out: &mut String) {
    let rows = &report.functions;
    let times = rows.iter().any(|row| row.total_ns > 0);
    let own = rows.iter().any(|row| row.self_ns > 0);
    let cpu = times && rows.iter().any(|row| row.cpu_self_ns.is_some());
    let exits = rows.iter().any(|row| row.exits.is_some());
    let latencies = rows.iter().any(|row| row.latency.is_some());
    let columns = [
        (column("self"), own),
        (column("%"), own),
        (may_go("CPU", 2), own && cpu),
        (may_go("raw", 4).dim(), own),
        (column("total"), times),
        (may_go("CPU", 3), cpu),
        (may_go("raw", 5).dim(), times),
        (column("calls"), true),
        (column("exits"), exits),
        (column("%"), !times),
        (may_go("p50", 1), latencies),
        (may_go("p90", 6), latencies),
        (may_go("p99", 1), latencies),
        (may_go("max", 3), latencies),
    ];
    let shown = columns.map(|(_, shown)| shown);
    let columns = columns.into_iter().filter_map(|(column, shown)| shown.then_some(column));
    let mut table = Table::new(&columns.collect::<Vec<_>>(), "function");
    for row in rows {
        let quantile = |get: fn(&Latency) -> u64| match &row.latency {
            Some(latency) => duration(get(latency)),
            None => "-".to_owned(),
        };
        let on_cpu = |ns: Option<u64>| ns.map_or("-".to_owned(), duration);
        let cells = [
            duration(row.self_corrected_ns),
            percent(row.self_corrected_ns as f64 / report.self_corrected_ns as f64),
            on_cpu(row.cpu_self_ns),
            duration(row.self_ns),
            duration(row.total_corrected_ns),
            on_cpu(row.cpu_total_ns),
            duration(row.total_ns),
            count(row.calls),
            row.exits.map_or("-".to_owned(), count),
            percent(row.calls as f64 / report.run.calls as f64),
            quantile(|latency| latency.p50_ns),
            quantile(|latency| latency.p90_ns),
            quantile(|latency| latency.p99_ns),
            quantile(|latency| latency.max_ns),
        ];
        let cells = cells.into_iter().zip(shown).filter_map(|(cell, shown)| shown.then_some(cell));
        table.row(cells.chain([named(&row.name, &row.module)]));
    }
    table.render(terminal, out);
}

fn named(name: &str, module: &str) -> String {
    if module.is_empty() { name.to_owned() } else { format!("{name}  [{module}]") }
}

/// What the columns mean.
fn legend(run: &Run, out: &mut String) {
    let cost = run.probe_cost;
    if cost.inner_ns > 0.0 || cost.outer_ns > 0.0 {
        out.push_str(&format!(
            "self and total are without the probes' own cost ({:.1} ns inside and {:.1} ns around \
             each call); raw and quantiles are as measured\n",
            cost.inner_ns, cost.outer_ns
        ));
    }
}

fn skipped(rows: &[SkippedRow], terminal: Terminal, out: &mut String) {
    if rows.is_empty() {
        return;
    }
    // What the user left out was not left unmodified for a reason of Fettle's, and `fettle record`
    // counts it in the same way.
    let (chosen, rows): (Vec<&SkippedRow>, Vec<&SkippedRow>) =
        rows.iter().partition(|row| row.reason == NOT_SELECTED);
    let sum =
        |rows: &[&SkippedRow]| rows.iter().fold(0u64, |sum, row| sum.saturating_add(row.functions));
    if !chosen.is_empty() {
        out.push_str(&format!(
            "\n{} not selected\n",
            plural(sum(&chosen), "function", "functions")
        ));
    }
    if rows.is_empty() {
        return;
    }
    let all = sum(&rows);
    let (was, so) = if all == 1 {
        ("function was", "its time counts as its callers'")
    } else {
        ("functions were", "their time counts as their callers'")
    };
    out.push_str(&format!("\n{} {was} left unmodified, so {so}:\n", count(all)));
    let mut table = Table::new(&[column("functions")], "reason");
    for row in rows {
        let reason = crate::names::one_line(row.reason.clone());
        let examples = row.examples.join(", ");
        table.row([count(row.functions), format!("{reason}: {examples}")]);
    }
    table.render(terminal, out);
}

/// The threads.
pub fn threads_text(threads: &[ThreadRow], terminal: Terminal) -> String {
    let mut table = Table::new(
        &[
            column("probed"),
            column("CPU"),
            column("wall"),
            may_go("waiting", 3),
            may_go("preempted", 3),
            column("calls"),
            may_go("records", 2),
            column("lost"),
            may_go("pid", 1),
            column("tid"),
        ],
        "thread",
    );
    for thread in threads {
        let off_cpu = |get: fn(&OffCpu) -> u64| match &thread.off_cpu {
            Some(off_cpu) => duration(get(off_cpu)),
            None => "-".to_owned(),
        };
        table.row([
            duration(thread.probed_ns),
            thread.cpu_ns.map_or("-".to_owned(), duration),
            duration(thread.wall_ns),
            off_cpu(|off| off.waited_ns),
            off_cpu(|off| off.preempted_ns),
            count(thread.calls),
            count(thread.records),
            count(thread.lost),
            thread.pid.to_string(),
            thread.tid.to_string(),
            format!("#{} {}", thread.index, crate::names::one_line(thread.name.clone())),
        ]);
    }
    let mut out = String::new();
    table.render(terminal, &mut out);
    out
}

/// The call tree.
pub fn tree_text(view: &TreeView, terminal: Terminal) -> String {
    let mut table =
        Table::new(&[column("total"), column("%"), column("self"), column("calls")], "call tree");
    for row in &view.rows {
        // Deep trees go on to the right; a number says how far they have come.
        let indent = match row.depth {
            depth if depth <= 40 => "  ".repeat(depth as usize),
            depth => format!("{}{depth}: ", "  ".repeat(40)),
        };
        table.row([
            duration(row.total_ns),
            percent(row.share),
            duration(row.self_ns),
            count(row.calls),
            format!("{indent}{}", row.name),
        ]);
    }
    let mut out = String::new();
    partial(view.partial, terminal, &mut out);
    table.render(terminal, &mut out);
    if view.left_out > 0 {
        let left_out = plural(view.left_out, "smaller branch", "smaller branches");
        out.push_str(&format!("… and {left_out}\n"));
    }
    out
}

fn partial(partial: bool, terminal: Terminal, out: &mut String) {
    if partial {
        let text = "! Records are missing: this is of the calls whose records were kept.";
        paint(out, text, WARN, terminal.colour);
        out.push('\n');
    }
}

/// A function with callers and callees.
pub fn focus_text(focus: &Focus, terminal: Terminal) -> String {
    let mut out = String::new();
    partial(focus.partial, terminal, &mut out);
    warnings(&focus.warnings, terminal, &mut out);
    for row in &focus.functions {
        paint(&mut out, &named(&row.name, &row.module), BOLD, terminal.colour);
        if let Some(place) = &row.place {
            out.push_str(&format!("  {}", crate::names::one_line(place.clone())));
        }
        out.push_str(&format!(
            "\n{}: self {} (raw {}), total {} (raw {})\n",
            plural(row.calls, "call", "calls"),
            duration(row.self_corrected_ns),
            duration(row.self_ns),
            duration(row.total_corrected_ns),
            duration(row.total_ns)
        ));
        if let (Some(user_probe), Some(total)) = (row.cpu_self_ns, row.cpu_total_ns) {
            let (user_probe, total) = (duration(user_probe), duration(total));
            out.push_str(&format!("on a processor: self {user_probe}, total {total}\n"));
        }
        if let Some(latency) = row.latency {
            out.push_str(&latency_line(latency));
        }
    }
    if let Some(why) = &focus.unknown {
        out.push_str(&format!("\ncallers and callees are not known: {why}\n"));
        return out;
    }
    neighbours("caller", "outside the probed functions", &focus.callers, terminal, &mut out);
    neighbours("callee", "", &focus.callees, terminal, &mut out);
    out
}

/// How often blocks ran.
pub fn blocks_text(view: &BlockView, terminal: Terminal) -> String {
    let mut out = format!(
        "{} of {}\n\n",
        plural(view.executions, "execution", "executions"),
        plural(view.blocks, "block", "blocks")
    );
    let mut table = Table::new(&[column("count"), column("%"), column("address")], "function");
    for row in &view.rows {
        let share = row.count as f64 / view.executions.max(1) as f64 * 100.0;
        let mut name = named(&row.function, &row.module);
        for (to, taken) in &row.to {
            name.push_str(&format!("  → {to:#x} {}", count(*taken)));
        }
        table.row([count(row.count), format!("{share:.1} %"), format!("{:#x}", row.address), name]);
    }
    table.render(terminal, &mut out);
    out
}

/// What a user probe counted.
pub fn user_text(view: &UserView, terminal: Terminal) -> String {
    let mut out = String::new();
    let columns: Vec<_> = view.fields.iter().map(|name| column(name)).collect();
    let mut table = Table::new(&columns, "function");
    for row in &view.rows {
        let values = row.values.iter().map(|v| count(*v));
        table.row(values.chain([named(&row.name, &row.module)]));
    }
    table.render(terminal, &mut out);
    more_functions(view.functions, view.rows.len(), &mut out);
    out
}

/// What calls of a function were given and gave back.
pub fn arguments_text(view: &ArgumentView, terminal: Terminal) -> String {
    let mut out = String::new();
    paint(&mut out, &view.function, BOLD, terminal.colour);
    out.push('\n');
    for parameter in &view.parameters {
        out.push('\n');
        let name = parameter.name.as_deref().unwrap_or("result");
        paint(&mut out, name, BOLD, terminal.colour);
        out.push_str(&format!(
            "  {}, {}, {} different\n",
            parameter.kind.name(),
            plural(parameter.values, "value", "values"),
            count(parameter.distinct)
        ));
        let mut table =
            Table::new(&[column("calls"), column("total"), column("per call")], "value");
        for row in &parameter.common {
            table.row([
                count(row.calls),
                duration(row.total_ns),
                duration(row.total_ns / row.calls.max(1)),
                crate::names::one_line(row.value.clone()),
            ]);
        }
        table.render(terminal, &mut out);
    }
    out.push_str("\nslowest calls\n");
    let mut table = Table::new(&[column("start"), column("took"), column("thread")], "call");
    for call in &view.slowest {
        let arguments: Vec<String> =
            call.arguments.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let result = call.result.as_ref().map(|r| format!(" = {r}")).unwrap_or_default();
        table.row([
            duration(call.start_ns),
            duration(call.duration_ns),
            call.thread.to_string(),
            crate::names::one_line(format!("({}){result}", arguments.join(", "))),
        ]);
    }
    table.render(terminal, &mut out);
    out
}

/// Quantiles in one line.
pub(super) fn latency_line(latency: Latency) -> String {
    format!(
        "of {} recorded: min {}, p50 {}, p90 {}, p99 {}, max {}\n",
        count(latency.calls),
        duration(latency.min_ns),
        duration(latency.p50_ns),
        duration(latency.p90_ns),
        duration(latency.p99_ns),
        duration(latency.max_ns)
    )
}

fn neighbours(
    title: &'static str,
    nobody: &str,
    rows: &[Neighbour],
    terminal: Terminal,
    out: &mut String,
) {
    out.push('\n');
    if rows.is_empty() {
        out.push_str(&format!("no recorded {title}\n"));
        return;
    }
    let mut table = Table::new(&[column("total"), column("calls"), column("per call")], title);
    for row in rows {
        table.row([
            duration(row.total_ns),
            count(row.calls),
            duration(row.total_ns / row.calls.max(1)),
            row.name.clone().unwrap_or_else(|| format!("({nobody})")),
        ]);
    }
    table.render(terminal, out);
}

/// Two traces side by side.
pub fn diff_text(diff: &Diff, terminal: Terminal) -> String {
    let mut out = String::new();
    warnings(&diff.warnings, terminal, &mut out);
    let pair = |(before, after): (u64, u64), show: fn(u64) -> String| {
        format!("{} → {} ({})", show(before), show(after), ratio(before, after))
    };
    out.push_str(&format!("wall   {}\n", pair(diff.duration_ns, duration)));
    out.push_str(&format!("self   {}\n", pair(diff.self_corrected_ns, duration)));
    out.push_str(&format!("calls  {}\n\n", pair(diff.calls, count)));
    let mut table = Table::new(
        &[
            column("change"),
            column("ratio"),
            column("self before"),
            column("after"),
            may_go("total before", 2),
            may_go("after", 2),
            may_go("calls before", 1),
            may_go("after", 1),
        ],
        "function",
    );
    for row in &diff.rows {
        let (before, after) = (row.before, row.after);
        let (a, b) = (before.self_corrected_ns, after.self_corrected_ns);
        let sign = if b > a {
            "+"
        } else if b < a {
            "-"
        } else {
            ""
        };
        table.row([
            format!("{sign}{}", duration(a.abs_diff(b))),
            ratio(a, b),
            duration(a),
            duration(b),
            duration(before.total_corrected_ns),
            duration(after.total_corrected_ns),
            count(before.calls),
            count(after.calls),
            named(&row.name, &row.module),
        ]);
    }
    table.render(terminal, &mut out);
    more_functions(diff.functions, diff.rows.len(), &mut out);
    out
}

/// `×1.25`; `new` and `gone` where there is nothing to divide.
fn ratio(before: u64, after: u64) -> String {
    match (before, after) {
        (0, 0) => "=".to_owned(),
        (0, _) => "new".to_owned(),
        (_, 0) => "gone".to_owned(),
        (a, b) => format!("×{:.2}", b as f64 / a as f64),
    }
}
