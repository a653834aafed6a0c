//! Requests in figures, as text.

use fettle_follow::{
    ClassSummary, Count, CriticalStep, Quantiles, RequestRow, SchemaSummary, SlowRequest, Summary,
    TimesNs,
};
use fettle_report::render::{
    BOLD, DIM, Table, Terminal, WARN, column, count, duration, may_go, one_line, paint, percent,
    plural, shortened,
};

use super::states::style;

/// Classes, messages, and steps of a path shown at most.
const CLASSES_MAX: usize = 15;
const PROBLEMS_MAX: usize = 10;
const STEPS_MAX: usize = 24;
/// Processes of a path that are named; the others are counted.
const PATH_MAX: usize = 8;
/// Characters of the bar that shows a step's share.
const BAR: usize = 12;

/// The summary of all schemas.
pub fn text(summary: &Summary, reason: Option<&str>, terminal: Terminal) -> String {
    let mut out = String::new();
    let command = one_line(summary.command.join(" "));
    paint(&mut out, &shortened(&command, terminal.width), BOLD, terminal.colour);
    out.push_str(&format!(
        "\n{} recorded, {} followed\n",
        duration(summary.duration_ns),
        plural(summary.events, "event", "events")
    ));
    let mut warn = |text: String| {
        paint(&mut out, &one_line(text), WARN, terminal.colour);
        out.push('\n');
    };
    if summary.lost > 0 {
        warn(format!(
            "! Lost: {} events found no room; requests may lack parts, or be in two",
            count(summary.lost)
        ));
    }
    for problem in summary.problems.iter().take(PROBLEMS_MAX) {
        warn(format!("! {problem}"));
    }
    if summary.problems.len() > PROBLEMS_MAX {
        warn(format!("! … and {} more", summary.problems.len() - PROBLEMS_MAX));
    }
    counts(&summary.counts, &mut out, terminal);
    for schema in &summary.schemas {
        out.push('\n');
        one_schema(schema, reason, terminal, &mut out);
    }
    out
}

/// What happens in every trace: at its edges, and to events of no request. JSON has it.
const USUAL: [&str; 6] =
    ["unbound", "unmatched_stops", "restarted", "bytes_unsent", "bytes_unread", "quiet"];

fn counts(counts: &[Count], out: &mut String, terminal: Terminal) {
    for Count { meaning, count: n, .. } in counts.iter().filter(|c| !USUAL.contains(&c.name)) {
        paint(out, &format!("note: {} {meaning}\n", count(*n)), DIM, terminal.colour);
    }
}

fn one_schema(schema: &SchemaSummary, reason: Option<&str>, terminal: Terminal, out: &mut String) {
    paint(out, &format!("schema {}", schema.name), BOLD, terminal.colour);
    if let Some(reason) = reason {
        out.push_str(&format!(", because {reason}; --schema chooses another"));
    }
    out.push('\n');
    if schema.requests == 0 {
        out.push_str(match schema.matched {
            0 => "No request: none of its events is in the trace.\n",
            _ => "No request: none of its events began one.\n",
        });
        counts(&schema.counts, out, terminal);
        return;
    }
    let mut parts = vec![plural(schema.requests, "request", "requests")];
    if schema.unfinished > 0 {
        parts.push(format!("{} still open at the end", count(schema.unfinished)));
    }
    if schema.shared > 0 {
        parts.push(format!("{} share work with others", count(schema.shared)));
    }
    out.push_str(&format!("{}\n", parts.join(", ")));
    certain(schema, terminal, out);
    if schema.response_ns != schema.wall_ns {
        out.push_str(&format!("answered   {}\n", quantiles(&schema.response_ns)));
    }
    out.push_str(&format!("wall time  {}\n", quantiles(&schema.wall_ns)));
    let times = times(&schema.times_ns, terminal);
    if !times.is_empty() {
        out.push_str(&format!("spent      {times}\n"));
    }
    counts(&schema.counts, out, terminal);
    out.push('\n');
    classes(&schema.classes, schema.requests, terminal, out);
    if !schema.slowest.is_empty() {
        out.push('\n');
        paint(out, "The slowest", BOLD, terminal.colour);
        out.push_str(" (--request NUMBER shows one whole)\n");
    }
    for slow in &schema.slowest {
        slowest(slow, terminal, out);
    }
}

/// How many requests rest on a choice, in a line.
fn certain(schema: &SchemaSummary, terminal: Terminal, out: &mut String) {
    if schema.chosen == 0 {
        return;
    }
    let share = percent(schema.chosen as f64 / schema.requests as f64);
    let mut text = format!(
        "! {} of {} requests ({share}) rest on a choice among several",
        count(schema.chosen),
        count(schema.requests)
    );
    if schema.doubtful > 0 {
        text += &format!("; {} of these are more likely wrong than right", count(schema.doubtful));
    }
    paint(out, &text, WARN, terminal.colour);
    out.push('\n');
}

/// How certain a request is, in words; nothing if all of it was seen.
pub(super) fn certainty(name: &str, likely: u16, candidates: u32) -> Option<String> {
    match (name, candidates) {
        ("seen", _) => None,
        (_, 2..) => Some(format!("{} likely, of {}", share(likely), count(candidates.into()))),
        _ => Some(name.to_owned()),
    }
}

/// Thousandths as a share.
fn share(likely: u16) -> String {
    percent(f64::from(likely) / 1000.0)
}

/// A distribution in a line.
fn quantiles(of: &Quantiles) -> String {
    let Quantiles { mean, min, p50, p90, p99, max, .. } = *of;
    let parts = [("min", min), ("p50", p50), ("p90", p90), ("p99", p99), ("max", max)];
    let parts = parts.map(|(name, ns)| format!("{name} {}", duration(ns)));
    format!("{}   mean {}", parts.join("  "), duration(mean))
}

/// Shares of the states, those that there are.
pub(super) fn times(times: &TimesNs, terminal: Terminal) -> String {
    let all: u64 = times.by_state().iter().map(|(_, ns)| ns).sum();
    let some = times.by_state().into_iter().filter(|(_, ns)| *ns > 0);
    let part = |(state, ns): (fettle_requests::State, u64)| {
        let mut text = String::new();
        paint(&mut text, state.name(), style(state.name()), terminal.colour);
        format!("{text} {} ({})", duration(ns), percent(ns as f64 / all as f64))
    };
    some.map(part).collect::<Vec<_>>().join("  ")
}

fn classes(classes: &[ClassSummary], all: u64, terminal: Terminal, out: &mut String) {
    let columns = [
        column("requests"),
        may_go("%", 6).dim(),
        may_go("mean", 5),
        column("p50"),
        may_go("p90", 4),
        column("p99"),
        may_go("max", 3),
        may_go("running", 2).dim(),
        may_go("waiting", 1).dim(),
    ];
    let mut table = Table::new(&columns, "class and path");
    for class in classes.iter().take(CLASSES_MAX) {
        let each = |ns: u64| duration(ns / class.requests.max(1));
        let times = &class.times_ns;
        let waiting = times.by_state().iter().map(|(_, ns)| ns).sum::<u64>() - times.running;
        let response = &class.response_ns;
        table.row([
            count(class.requests),
            percent(class.requests as f64 / all as f64),
            duration(response.mean),
            duration(response.p50),
            duration(response.p90),
            duration(response.p99),
            duration(response.max),
            each(times.running),
            each(waiting),
            what(&class.name, &class.path),
        ]);
    }
    table.render(terminal, out);
    if classes.len() > CLASSES_MAX {
        let more = (classes.len() - CLASSES_MAX) as u64;
        out.push_str(&format!("… and {}\n", plural(more, "more class", "more classes")));
    }
}

/// A class and the processes it goes through.
pub(super) fn what(class: &str, path: &[String]) -> String {
    let more = path.len().saturating_sub(PATH_MAX);
    let mut path = one_line(path[..path.len() - more].join(" → "));
    if more > 0 {
        path += &format!(" → … {more} more");
    }
    let class = one_line(class.to_owned());
    match (class.is_empty(), path.is_empty()) {
        (_, true) => class,
        (true, _) => path,
        _ => format!("{class}  {path}"),
    }
}

/// How long a request goes on behind its answer.
pub(super) fn beyond(request: &RequestRow) -> Option<String> {
    let more = request.wall_ns - request.response_ns;
    (more > 0).then(|| format!("goes on for {} behind its answer", duration(more)))
}

fn slowest(slow: &SlowRequest, terminal: Terminal, out: &mut String) {
    let SlowRequest { request, critical } = slow;
    let mut head = String::new();
    paint(
        &mut head,
        &format!("#{}  {}", request.id, duration(request.response_ns)),
        BOLD,
        terminal.colour,
    );
    out.push_str(&format!("\n{head}  {}\n", what(&request.class, &request.path)));
    let mut parts = vec![
        format!("began at {}", duration(request.begin_ns)),
        plural(request.events, "event", "events"),
        plural(request.actors, "thread", "threads"),
    ];
    parts.extend(beyond(request));
    if request.shared_with > 0 {
        let others = plural(request.shared_with, "other", "others");
        parts.push(format!("shares {} of its work with {others}", duration(request.shared_ns)));
    }
    if !matches!(request.outcome, "ended" | "drained") {
        parts.push(request.outcome.to_owned());
    }
    parts.extend(certainty(request.certainty, request.likely, request.candidates));
    out.push_str(&format!("    {}\n", parts.join(", ")));
    let times = times(&request.times_ns, terminal);
    if !times.is_empty() {
        out.push_str(&format!("    {times}\n"));
    }
    steps(critical, request, terminal, out);
}

/// Steps of a critical path that are printed together.
#[derive(Default)]
struct StepGroup<'a> {
    /// Whose they are.
    actor: Option<&'a str>,
    lines: Vec<Line<'a>>,
    /// What is too short to be printed by itself, of any actor.
    short: Line<'a>,
}

/// Steps that are printed in one line.
#[derive(Default)]
struct Line<'a> {
    from_ns: u64,
    ns: u64,
    steps: u64,
    state: &'a str,
    who: String,
}

impl Line<'_> {
    fn add(&mut self, from_ns: u64, ns: u64) {
        if self.steps == 0 {
            self.from_ns = from_ns;
        }
        self.ns += ns;
        self.steps += 1;
    }
}

impl<'a> StepGroup<'a> {
    /// Adds a step to the line of those that are like it; whether there is such a line.
    fn joins(&mut self, step: &CriticalStep, ns: u64) -> bool {
        let like = |line: &&mut Line<'_>| line.state == step.state && line.who == who(step);
        let line = self.lines.iter_mut().find(like);
        line.map(|line| line.add(step.from_ns, ns)).is_some()
    }

    /// Adds a step that is printed.
    fn add(&mut self, step: &'a CriticalStep, ns: u64) {
        if !self.joins(step, ns) {
            let mut line = Line { state: step.state, who: who(step), ..Line::default() };
            line.add(step.from_ns, ns);
            self.lines.push(line);
        }
    }
}

fn who(step: &CriticalStep) -> String {
    match &step.waited_for {
        Some(other) => format!("{}, until {other}", step.actor),
        None => step.actor.clone(),
    }
}

/// What is printed of a critical path: each step by itself. Of a long path the longest are, and
/// steps of one thread that follow each other are merged, a line for each of its states: under
/// load, a thread waits for a processor again and again. What lies between is one line.
fn reported(critical: &[CriticalStep]) -> Vec<StepGroup<'_>> {
    let length = |step: &CriticalStep| step.to_ns.saturating_sub(step.from_ns);
    let mut places: Vec<usize> = (0..critical.len()).collect();
    places.sort_by_key(|place| std::cmp::Reverse(length(&critical[*place])));
    let folds = places.len() > STEPS_MAX;
    let mut is_long = vec![!folds; critical.len()];
    places.iter().take(STEPS_MAX).for_each(|place| is_long[*place] = true);
    let mut reported: Vec<StepGroup<'_>> = Vec::new();
    for (step, is_long) in critical.iter().zip(is_long) {
        let ns = length(step);
        let last = reported.last_mut();
        let of_last = folds && last.as_ref().is_some_and(|last| last.actor == Some(&step.actor));
        match last {
            Some(last) if is_long && of_last => last.add(step, ns),
            Some(last) if !is_long => {
                if !(of_last && last.joins(step, ns)) {
                    last.short.add(step.from_ns, ns);
                }
            }
            _ => {
                let mut new = StepGroup::default();
                if is_long {
                    new.actor = Some(&step.actor);
                    new.add(step, ns);
                } else {
                    new.short.add(step.from_ns, ns);
                }
                reported.push(new);
            }
        }
    }
    reported
}

/// The critical path: a line per step, or for several, with their share as a bar.
pub(super) fn steps(
    critical: &[CriticalStep],
    request: &RequestRow,
    terminal: Terminal,
    out: &mut String,
) {
    let mut table = Table::new(
        &[column("    after"), column("for"), column("%"), may_go("", 1), column("")],
        "critical path",
    );
    for StepGroup { lines, short, .. } in reported(critical) {
        for Line { from_ns, ns, steps, state, who } in lines {
            let pieces =
                if steps > 1 { format!(", in {} pieces", count(steps)) } else { String::new() };
            table.row(row(request, from_ns, ns, state, one_line(format!("{who}{pieces}"))));
        }
        if short.steps > 0 {
            let steps = plural(short.steps, "short step", "short steps");
            table.row(row(request, short.from_ns, short.ns, "", steps));
        }
    }
    if let Some(last) = critical.last().filter(|last| last.to_ns < request.end_ns) {
        let ns = request.end_ns - last.to_ns;
        table.row(row(request, last.to_ns, ns, "", "nobody that is recorded works on it".into()));
    }
    if !critical.is_empty() {
        table.render(terminal, out);
    }
}

fn row(request: &RequestRow, from_ns: u64, ns: u64, state: &str, who: String) -> [String; 6] {
    let share = ns as f64 / request.wall_ns.max(1) as f64;
    let filled = (share * BAR as f64).round() as usize;
    let bar: String = (0..BAR).map(|n| if n < filled.min(BAR) { '█' } else { '·' }).collect();
    let after = from_ns.saturating_sub(request.begin_ns);
    [format!("    {}", duration(after)), duration(ns), percent(share), bar, state.to_owned(), who]
}

/// All requests, one line each.
pub fn list(rows: &[RequestRow], terminal: Terminal) -> String {
    let columns = [
        column("request"),
        column("began"),
        column("answered"),
        may_go("wall", 2),
        may_go("running", 1),
        may_go("runnable", 4).dim(),
        may_go("queued", 3).dim(),
        may_go("lock", 4).dim(),
        may_go("disk", 4).dim(),
        may_go("network", 3).dim(),
        may_go("sleeping", 5).dim(),
        may_go("events", 2),
        may_go("shared", 2),
        column("certain"),
    ];
    let mut table = Table::new(&columns, "class and path");
    for row in rows {
        let times = row.times_ns.by_state().map(|(_, ns)| duration(ns));
        let times_ns = [row.begin_ns, row.response_ns, row.wall_ns];
        let mut cells = vec![format!("#{}", row.id)];
        cells.extend(times_ns.map(duration));
        cells.extend(times);
        cells.push(count(row.events));
        cells.push(if row.shared_with > 0 { count(row.shared_with) } else { String::new() });
        cells.push(match row.certainty {
            "chosen" => share(row.likely),
            "only candidate" => "only".into(),
            seen => seen.into(),
        });
        cells.push(what(&row.class, &row.path));
        table.row(cells);
    }
    let mut out = String::new();
    table.render(terminal, &mut out);
    out
}

/// What the columns of [`line`] are.
pub fn line_head() -> String {
    format!("{:>8}  {:>8}  {:>8}  class and path\n", "request", "began", "answered")
}

/// A request in a line that stands by itself.
pub fn line(row: &RequestRow, terminal: Terminal) -> String {
    let [began, answered] = [row.begin_ns, row.response_ns].map(duration);
    let id = format!("#{}", row.id);
    let what = what(&row.class, &row.path);
    let line = format!("{id:>8}  {began:>8}  {answered:>8}  {what}  ");
    format!("{line}{}\n", times(&row.times_ns, terminal))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Steps one behind the other: actor, state, microseconds.
    fn path(steps: &[(&str, &'static str, u64)]) -> Vec<CriticalStep> {
        let mut now_ns = 0;
        let step = |&(actor, state, us): &(&str, &'static str, u64)| {
            let from_ns = now_ns;
            now_ns += us * 1000;
            let actor = actor.to_owned();
            CriticalStep { actor, state, from_ns, to_ns: now_ns, waited_for: None }
        };
        steps.iter().map(step).collect()
    }

    /// What is printed, a line each: state, actor, microseconds, steps.
    fn lines(critical: &[CriticalStep]) -> Vec<(String, u64, u64)> {
        let mut lines = Vec::new();
        for StepGroup { lines: of, short, .. } in reported(critical) {
            let reported = of.into_iter().chain((short.steps > 0).then_some(short));
            lines
                .extend(reported.map(|l| (format!("{} {}", l.state, l.who), l.ns / 1000, l.steps)));
        }
        lines
    }

    #[test]
    fn a_thread_that_waits_for_a_cpu_time_and_again_is_a_line_for_each_state() {
        let mut steps = vec![("nginx/1", "running", 50)];
        for _ in 0..40 {
            steps.extend([
                ("fpm/2", "runnable", 900),
                ("fpm/2", "running", 100),
                ("nginx/1", "running", 1),
            ]);
        }
        steps.push(("nginx/1", "network", 700));
        let line = |text: &str, us, steps| (text.to_owned(), us, steps);
        let reported = lines(&path(&steps));
        let wanted =
            [line(" ", 50, 1), line("runnable fpm/2", 40 * 900, 40), line(" ", 40 * 101 + 700, 81)];
        assert_eq!(reported, wanted);

        // A short path is printed step by step.
        let few = path(&[("a", "running", 5), ("a", "runnable", 9), ("a", "running", 6)]);
        let wanted = [line("running a", 5, 1), line("runnable a", 9, 1), line("running a", 6, 1)];
        assert_eq!(lines(&few), wanted);
    }
}
