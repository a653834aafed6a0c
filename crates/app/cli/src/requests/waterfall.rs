//! One request as text: what its threads did as bars, and its events below each other.

use std::collections::BTreeMap;

use fettle_follow::{Detail, EventRow, SpanRow};
use fettle_report::render::{
    BOLD, DIM, Terminal, WARN, duration, one_line, paint, plural, shortened,
};

use super::states::{STATES, style};
use super::summary;

/// Characters of a bar where the terminal's width is not known.
const BAR: usize = 60;
/// Narrowest and widest bar.
const BAR_MIN: usize = 20;
const BAR_MAX: usize = 100;
/// Threads whose bars are drawn, and events that are shown.
const ACTORS_MAX: usize = 40;
const EVENTS_MAX: usize = 2000;
/// Most steps by which events of later threads are moved to the right.
const INDENT_MAX: usize = 8;

/// A request whole.
pub fn text(detail: &Detail, terminal: Terminal) -> String {
    let mut out = String::new();
    let request = &detail.request;
    let head = format!("Request {} of schema {}", request.id, detail.schema);
    paint(&mut out, &head, BOLD, terminal.colour);
    out.push_str(&format!(
        ": {}  {}\n",
        duration(request.response_ns),
        summary::what(&request.class, &request.path)
    ));
    let mut parts = vec![
        format!("began at {}", duration(request.begin_ns)),
        plural(request.events, "event", "events"),
        plural(request.actors, "thread", "threads"),
        request.outcome.to_owned(),
    ];
    parts.extend(summary::beyond(request));
    parts.extend(summary::certainty(request.certainty, request.likely, request.candidates));
    if !detail.shared_with.is_empty() {
        let others: Vec<String> =
            detail.shared_with.iter().take(8).map(|id| format!("#{id}")).collect();
        let more = if detail.shared_with.len() > 8 { ", …" } else { "" };
        parts.push(format!(
            "shares {} of its work with {}{more}",
            duration(request.shared_ns),
            others.join(", ")
        ));
    }
    out.push_str(&format!("{}\n", parts.join(", ")));
    let times = summary::times(&request.times_ns, terminal);
    if !times.is_empty() {
        out.push_str(&format!("{times}\n"));
    }
    for problem in &detail.problems {
        paint(&mut out, &one_line(format!("! {problem}")), WARN, terminal.colour);
        out.push('\n');
    }
    bars(detail, terminal, &mut out);
    if !detail.critical.is_empty() {
        out.push('\n');
        summary::steps(&detail.critical, request, terminal, &mut out);
    }
    events(detail, terminal, &mut out);
    out
}

/// A bar for each thread.
fn bars(detail: &Detail, terminal: Terminal, out: &mut String) {
    let request = &detail.request;
    let shown = detail.actors.iter().take(ACTORS_MAX);
    let names: Vec<String> = shown.map(|actor| one_line(actor.name.clone())).collect();
    let name_width = names.iter().map(|name| name.chars().count()).max().unwrap_or(0).min(32);
    let width = terminal.width.map_or(BAR, |width| width.saturating_sub(name_width + 3));
    let width = width.clamp(BAR_MIN, BAR_MAX);
    let mut used = [false; STATES.len()];
    let mut lines = String::new();
    for (actor, name) in names.iter().enumerate() {
        let spans: Vec<&SpanRow> = detail.spans.iter().filter(|span| span.actor == actor).collect();
        let name = shortened(name, Some(name_width));
        lines.push_str(&format!("{name:<name_width$}  "));
        for cell in 0..width {
            let at = |cell: usize| {
                let part = u128::from(request.wall_ns) * cell as u128 / width as u128;
                request.begin_ns + part as u64
            };
            match longest(&spans, at(cell), at(cell + 1).max(at(cell) + 1)) {
                Some(state) => {
                    used[state] = true;
                    let (_, letter, style) = STATES[state];
                    paint(&mut lines, &letter.to_string(), style, terminal.colour);
                }
                None => lines.push(' '),
            }
        }
        lines.truncate(lines.trim_end_matches(' ').len());
        lines.push('\n');
    }
    if !used.contains(&true) {
        return;
    }
    out.push('\n');
    out.push_str(&lines);
    if detail.actors.len() > ACTORS_MAX {
        let more = (detail.actors.len() - ACTORS_MAX) as u64;
        out.push_str(&format!("… and {}\n", plural(more, "more thread", "more threads")));
    }
    let end = format!("+{}", duration(request.wall_ns));
    let fill = width.saturating_sub(1 + end.chars().count());
    let axis = format!("{:name_width$}  0{}{end}", "", " ".repeat(fill));
    paint(out, &axis, DIM, terminal.colour);
    out.push('\n');
    let legend = STATES.iter().zip(used).filter(|(_, used)| *used);
    let legend = legend.map(|((name, letter, _), _)| format!("{letter} {name}"));
    let legend = format!("{:name_width$}  {}\n", "", legend.collect::<Vec<_>>().join("   "));
    paint(out, &legend, DIM, terminal.colour);
}

/// The state that most of a stretch of time was spent in.
fn longest(spans: &[&SpanRow], from_ns: u64, to_ns: u64) -> Option<usize> {
    let mut times: BTreeMap<usize, u64> = BTreeMap::new();
    for span in spans {
        let overlap = span.to_ns.min(to_ns).saturating_sub(span.from_ns.max(from_ns));
        if overlap > 0 {
            let state = STATES.iter().position(|(name, ..)| *name == span.state)?;
            *times.entry(state).or_default() += overlap;
        }
    }
    times.into_iter().max_by_key(|(_, ns)| *ns).map(|(state, _)| state)
}

/// What stands below each other: events, and waits from when they begin.
enum Line<'a> {
    Event(&'a EventRow),
    Wait(&'a SpanRow),
}

/// Events and waits in order of time, further right for each further thread.
fn events(detail: &Detail, terminal: Terminal, out: &mut String) {
    let mut lines: Vec<(u64, Line<'_>)> =
        detail.events.iter().map(|event| (event.time_ns, Line::Event(event))).collect();
    let waits = detail.spans.iter().filter(|span| span.state != "running");
    lines.extend(waits.map(|span| (span.from_ns, Line::Wait(span))));
    lines.sort_by_key(|(ns, _)| *ns);
    out.push('\n');
    let begin_ns = detail.request.begin_ns;
    let more = lines.len().saturating_sub(EVENTS_MAX);
    let mut last: Option<usize> = None;
    for (ns, line) in lines.iter().take(EVENTS_MAX) {
        let (actor, text, style) = match line {
            Line::Event(event) => {
                let fields = event.fields.iter().filter(|(name, _)| name != "pid" && name != "tid");
                let fields: Vec<String> =
                    fields.map(|(name, value)| format!("{name}={value}")).collect();
                let shared = if event.shared { "  (shared)" } else { "" };
                (event.actor, format!("{} {}{shared}", event.name, fields.join(" ")), "")
            }
            Line::Wait(span) => {
                let length = duration(span.to_ns.saturating_sub(span.from_ns));
                let text = match span.state {
                    "runnable" => format!("ready, but off-CPU {length}"),
                    "queued" => format!("it lies here {length}: queued"),
                    state => format!("waits {length}: {state}"),
                };
                (Some(span.actor), text, style(span.state))
            }
        };
        let indent = "  ".repeat(actor.unwrap_or(0).min(INDENT_MAX));
        if actor.is_some() && actor != last {
            let name = actor.and_then(|actor| detail.actors.get(actor));
            let name = name.map(|actor| one_line(actor.name.clone())).unwrap_or_default();
            out.push_str(&format!("{:>11}  {indent}", ""));
            paint(out, &name, BOLD, terminal.colour);
            out.push('\n');
        }
        last = actor.or(last);
        let after = format!("+{}", duration(ns.saturating_sub(begin_ns)));
        paint(out, &format!("{after:>11}"), DIM, terminal.colour);
        out.push_str(&format!("    {indent}"));
        let room = terminal.width.map(|width| width.saturating_sub(15 + indent.len()).max(20));
        paint(out, &shortened(one_line(text).trim_end(), room), style, terminal.colour);
        out.push('\n');
    }
    if more > 0 {
        out.push_str(&format!(
            "… and {} (--json has all)\n",
            plural(more as u64, "more line", "more lines")
        ));
    }
}
