//! Two systems side by side: the same schema over two traces, and where the time of a request goes in
//! each.
//!
//! Time is compared by pieces: classes of requests, steps of their critical paths, what requests do or
//! wait for, in which process, and system calls by process. Steps of critical paths add up to the
//! requests' wall time; what actors do in parallel is more. Of each piece there is the mean for a
//! request (or call) on both sides, and for the difference of the means an interval that holds it in 95
//! of 100 cases: 1.96 standard errors, those of both sides together (Welch). So it says whether a
//! difference is one.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use fettle_requests::State;
use serde::Serialize;

use crate::JSON_VERSION;
use crate::analyses::system_calls;
use crate::error::Result;
use crate::session::Session;
use crate::sums::Sums;
use crate::view::NOBODY;

/// Two traces compared.
#[derive(Clone, Debug, Serialize)]
pub struct Diff {
    /// [`crate::JSON_VERSION`].
    pub version: u32,
    /// What was recorded: before and after.
    pub commands: [Vec<String>; 2],
    /// Requests in each.
    pub requests: [u64; 2],
    /// Kinds of pieces.
    pub groups: Vec<DiffGroup>,
    /// What could not be read or used, with the side.
    pub problems: Vec<String>,
}

/// Pieces of one kind.
#[derive(Clone, Debug, Serialize)]
pub struct DiffGroup {
    /// What they are.
    pub title: &'static str,
    /// What times are the means of: `request` or `call`.
    pub per: &'static str,
    /// The pieces, those whose time changed most in all first.
    pub rows: Vec<DiffRow>,
}

/// A piece.
#[derive(Clone, Debug, Serialize)]
pub struct DiffRow {
    /// What it is called.
    pub name: String,
    /// In the first trace.
    pub before: DiffSide,
    /// In the second.
    pub after: DiffSide,
    /// The difference of the means, nanoseconds; `None` where one side has none.
    pub difference_ns: Option<f64>,
    /// The interval that holds it in 95 of 100 cases; `None` where a side has fewer than two.
    pub interval_ns: Option<(f64, f64)>,
    /// Mean after by mean before.
    pub ratio: Option<f64>,
}

/// A piece on one side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct DiffSide {
    /// How many requests or calls have it.
    pub count: u64,
    /// Mean time for a request or call, nanoseconds.
    pub mean_ns: f64,
    /// All of it, nanoseconds.
    pub total_ns: u64,
    /// Its part of the time of all pieces of its kind.
    pub share: f64,
}

/// All pieces of a trace.
#[derive(Default)]
struct Pieces {
    requests: u64,
    classes: BTreeMap<String, Sums>,
    /// Of critical paths, by process and what it does.
    paths: BTreeMap<String, Sums>,
    /// By what requests do, and by process besides.
    states: BTreeMap<String, Sums>,
    processes: BTreeMap<String, Sums>,
    calls: BTreeMap<String, Sums>,
    problems: Vec<String>,
}

/// Adds a request's pieces, and its time in which no actor had to do with it.
fn add(to: &mut BTreeMap<String, Sums>, of: BTreeMap<String, u64>, nobodys_ns: u64) {
    let nobodys = (nobodys_ns > 0).then(|| (NOBODY.to_owned(), nobodys_ns));
    for (name, ns) in of.into_iter().chain(nobodys) {
        to.entry(name).or_default().add(ns);
    }
}

fn pieces(session: &Session<'_>) -> Result<Pieces> {
    let mut pieces = Pieces::default();
    let ran = session.run(&mut |request, context| {
        let row = context.row(request);
        pieces.requests += 1;
        pieces.classes.entry(row.class.clone()).or_default().add(row.response_ns);
        let nobodys_ns = request.nobodys_ns(request.end_ns);
        let states = row.times_ns.by_state().map(|(state, ns)| (state.name(), ns));
        for (name, ns) in states.into_iter().chain([(NOBODY, nobodys_ns)]) {
            if ns > 0 {
                pieces.states.entry(name.to_owned()).or_default().add(ns);
            }
        }
        let piece = |section: u32, state: State| {
            let stay = request.sections.get(section as usize)?;
            let actor = context.actor(request, stay.timeline, stay.key, stay.joined_ns);
            Some(format!("{}  {}", actor.process.unwrap_or(actor.name), state.name()))
        };
        let mut of: BTreeMap<String, u64> = BTreeMap::new();
        for span in &request.spans {
            if let Some(name) = piece(span.section, span.state) {
                *of.entry(name).or_default() += span.to_ns.saturating_sub(span.from_ns);
            }
        }
        add(&mut pieces.processes, of, nobodys_ns);
        let mut of: BTreeMap<String, u64> = BTreeMap::new();
        let mut nobodys_ns = request.wall_ns();
        for step in request.critical_path() {
            if let Some(name) = piece(step.section, step.state) {
                let (from_ns, to_ns) = (step.from_ns.max(request.begin_ns), step.to_ns);
                let ns = to_ns.min(request.end_ns).saturating_sub(from_ns);
                *of.entry(name).or_default() += ns;
                nobodys_ns = nobodys_ns.saturating_sub(ns);
            }
        }
        add(&mut pieces.paths, of, nobodys_ns);
        true
    })?;
    pieces.problems = ran.problems;
    if pieces.requests == 0 {
        let schemas = session.program().schemas().iter().map(fettle_requests::Schema::name);
        let schemas = schemas.collect::<Vec<_>>().join(", ");
        pieces.problems.push(format!("no request is in it by the schema {schemas}"));
    }
    pieces.calls = system_calls(session.trace)?;
    Ok(pieces)
}

/// Compares the requests of two traces, which are to be found by the same schemas.
///
/// # Errors
///
/// If a trace cannot be read.
pub fn diff(before: &Session<'_>, after: &Session<'_>) -> Result<Diff> {
    let (mut a, mut b) = (pieces(before)?, pieces(after)?);
    let side = |name, problems: Vec<String>| {
        problems.into_iter().map(move |problem| format!("{name}: {problem}"))
    };
    let problems = side("before", std::mem::take(&mut a.problems));
    let problems = problems.chain(side("after", std::mem::take(&mut b.problems))).collect();
    // Of each class's own requests; of states over all requests, as a part of each.
    let all = Some((a.requests, b.requests));
    let groups = vec![
        group("classes of requests", "request", &a.classes, &b.classes, None),
        group("critical paths, which add up to the wall time", "request", &a.paths, &b.paths, all),
        group("what requests do and wait for", "request", &a.states, &b.states, all),
        group("in which process", "request", &a.processes, &b.processes, all),
        group("system calls, waits included", "call", &a.calls, &b.calls, None),
    ];
    Ok(Diff {
        version: JSON_VERSION,
        commands: [before, after].map(|session| session.trace.manifest().command.clone()),
        requests: [a.requests, b.requests],
        groups: groups.into_iter().filter(|group| !group.rows.is_empty()).collect(),
        problems,
    })
}

/// Pairs pieces of the same name. `of`: how many requests there are, if means are over all.
fn group(
    title: &'static str,
    per: &'static str,
    before: &BTreeMap<String, Sums>,
    after: &BTreeMap<String, Sums>,
    of: Option<(u64, u64)>,
) -> DiffGroup {
    let total = |pieces: &BTreeMap<String, Sums>| pieces.values().map(|sums| sums.sum).sum::<f64>();
    let totals = (total(before), total(after));
    let mut names: Vec<&String> = before.keys().chain(after.keys()).collect();
    names.sort();
    names.dedup();
    let rows = names.into_iter().map(|name| {
        let sums = [before, after].map(|side| side.get(name).copied().unwrap_or_default());
        let of = of.unwrap_or((sums[0].count, sums[1].count));
        row(name, sums, of, totals)
    });
    let mut rows: Vec<DiffRow> = rows.collect();
    let changed = |row: &DiffRow| {
        let each = row.difference_ns.unwrap_or(row.after.mean_ns - row.before.mean_ns).abs();
        each * row.before.count.max(row.after.count) as f64
    };
    rows.sort_by(|a, b| changed(b).partial_cmp(&changed(a)).unwrap_or(Ordering::Equal));
    DiffGroup { title, per, rows }
}

fn row(name: &str, sums: [Sums; 2], of: (u64, u64), totals: (f64, f64)) -> DiffRow {
    let (mean_a, error_a) = sums[0].mean(of.0);
    let (mean_b, error_b) = sums[1].mean(of.1);
    let side = |sums: Sums, mean_ns, total: f64| DiffSide {
        count: sums.count,
        mean_ns,
        total_ns: sums.sum as u64,
        share: if total > 0.0 { sums.sum / total } else { 0.0 },
    };
    let both = of.0 > 0 && of.1 > 0;
    let difference = mean_b - mean_a;
    DiffRow {
        name: name.to_owned(),
        before: side(sums[0], mean_a, totals.0),
        after: side(sums[1], mean_b, totals.1),
        difference_ns: both.then_some(difference),
        interval_ns: error_a.zip(error_b).map(|(a, b)| {
            let reach = 1.96 * (a + b).sqrt();
            (difference - reach, difference + reach)
        }),
        ratio: (both && mean_a > 0.0).then(|| mean_b / mean_a),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sums(times_ns: &[u64]) -> Sums {
        let mut sums = Sums::default();
        times_ns.iter().for_each(|ns| sums.add(*ns));
        sums
    }

    #[test]
    fn means_and_intervals() {
        // Means 20 and 40; variances 100 and 100; standard error sqrt(100/3 + 100/3) = 8.165.
        let (a, b) = (sums(&[10, 20, 30]), sums(&[30, 40, 50]));
        let row = row("x", [a, b], (3, 3), (120.0, 120.0));
        assert_eq!((row.before.mean_ns, row.after.mean_ns, row.ratio), (20.0, 40.0, Some(2.0)));
        let (low, high) = row.interval_ns.unwrap();
        assert!((low - 3.997).abs() < 0.01 && (high - 36.003).abs() < 0.01, "{low} {high}");
        assert_eq!((row.before.share, row.after.share), (0.5, 1.0));
    }

    #[test]
    fn who_has_none_of_a_piece_counts_too() {
        // One of four requests waits 40: the mean of all is 10.
        let row = row("lock", [sums(&[40]), Sums::default()], (4, 4), (40.0, 0.0));
        assert_eq!((row.before.mean_ns, row.after.mean_ns), (10.0, 0.0));
        assert_eq!((row.difference_ns, row.ratio, row.after.share), (Some(-10.0), Some(0.0), 0.0));
    }

    #[test]
    fn what_one_side_lacks_has_no_difference() {
        let before =
            BTreeMap::from([("a".to_owned(), sums(&[5, 5])), ("b".to_owned(), sums(&[1]))]);
        let after = BTreeMap::from([("b".to_owned(), sums(&[9, 9, 9]))]);
        let group = group("t", "call", &before, &after, None);
        let names: Vec<&str> = group.rows.iter().map(|row| row.name.as_str()).collect();
        assert_eq!(names, ["b", "a"]);
        assert_eq!((group.rows[1].difference_ns, group.rows[1].interval_ns), (None, None));
        assert_eq!(group.rows[0].interval_ns, None);
    }
}
