//! Traces of several machines become one, on one clock.
//!
//! ```text
//! messages ── bytes that one trace sent and another received ──> bounds on the clocks
//! clock ───── a line between the bounds, for each trace ────────> all times on one clock
//! write ───── events, processes, threads with numbers of their own machine's
//! calls ───── what probes recorded; a module that several machines have is one
//! ```
//!
//! The first trace's clock is that of the new one. Machines keep apart what each of them counts for
//! itself: processes and threads, sockets, pipes, files, addresses that lead nowhere else. Ends of
//! connections between machines have the same name on both, so that schemas follow requests across.
//!
//! I/O is `fettle-trace`'s alone.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::indexing_slicing))]

mod aligned;
mod calls;
pub mod clock;
mod error;
mod messages;
mod source;
mod write;

use std::path::PathBuf;

use fettle_trace::{Manifest, MergedTrace, Strings, Trace};
use rustc_hash::FxHashSet;

use crate::aligned::{Aligned, merged_trace};
use crate::clock::{Line, NoFit};
use crate::messages::{Between, Openings, Pair, Sides};

pub use error::{Error, Result};

/// Machines at most: numbers of processes have 32 bits, of which one needs 22, and numbers of
/// sockets differ by machine in their highest byte.
pub const MACHINES_MAX: usize = 255;

/// What to merge.
pub struct Merge<'a> {
    /// The traces. Times of the new one are by the first one's clock.
    pub traces: &'a [Trace],
    /// Nanoseconds that the user wants added to the clocks of the walls of all traces but the first,
    /// in their order. Those without one are aligned by messages.
    pub offsets_ns: &'a [i64],
    /// The new trace's folder; it must not exist.
    pub output: PathBuf,
}

/// What came of it.
#[derive(Debug)]
pub struct Merged {
    /// The new trace's manifest.
    pub manifest: Manifest,
    /// How each trace's clock was brought to the first one's.
    pub traces: Vec<MergedTrace>,
}

/// Merges. `stop` is asked now and then whether to give up.
///
/// # Errors
///
/// After an error there is no new trace.
pub fn merge(merge: &Merge<'_>, stop: &dyn Fn() -> bool) -> Result<Merged> {
    let Merge { traces, offsets_ns, output } = merge;
    check(traces)?;
    // The connections, and between which processes each is.
    let mut texts = Strings::default();
    let openings: Result<Vec<Openings>> =
        traces.iter().map(|trace| Openings::read(trace, &mut texts)).collect();
    let openings = openings?;
    let machines = machines(traces)?;
    // How clocks differ.
    let aligned = align(traces, &machines, offsets_ns, &openings, &mut texts)?;
    let inner: Vec<FxHashSet<Pair>> = openings.iter().map(Openings::inner).collect();
    // Beyond this point nothing is read but what is written.
    let writing = write::Writing { traces, machines: &machines, aligned: &aligned, inner: &inner };
    let manifest = writing.run(output, &texts, stop)?;
    let traces = traces.iter().zip(&aligned);
    Ok(Merged { manifest, traces: traces.map(|(trace, by)| merged_trace(trace, by)).collect() })
}

/// Refuses what cannot be merged.
fn check(traces: &[Trace]) -> Result<()> {
    if traces.len() < 2 {
        return Err(Error::Few);
    }
    for (n, trace) in traces.iter().enumerate() {
        let manifest = trace.manifest();
        if !manifest.machines.is_empty() {
            return Err(Error::Merged { path: trace.path().to_owned() });
        }
        if let Some(problem) = trace.warnings().first() {
            let (path, problem) = (trace.path().to_owned(), problem.clone());
            return Err(Error::Damaged { path, problem });
        }
        let same = |other: &&Trace| {
            let other = other.manifest();
            let begin = |m: &Manifest| (m.start_unix_ns, m.clock.tsc_at_start, m.command.clone());
            begin(other) == begin(manifest)
        };
        if let Some(other) = traces.iter().take(n).find(same) {
            let (a, b) = (other.path().to_owned(), trace.path().to_owned());
            return Err(Error::Twice { a, b });
        }
    }
    Ok(())
}

/// The machine of each trace: those of one boot are of one machine.
#[expect(
    clippy::indexing_slicing,
    reason = "numbers of traces, of which each of these lists has one entry"
)]
fn machines(traces: &[Trace]) -> Result<Vec<usize>> {
    let mut machines: Vec<usize> = Vec::new();
    let mut count = 0;
    for (n, trace) in traces.iter().enumerate() {
        let boot = |trace: &Trace| {
            let manifest = trace.manifest();
            manifest.clock.begin.map(|_| manifest.machine.boot.clone()).filter(|b| !b.is_empty())
        };
        let same = |other: &usize| boot(&traces[*other]).is_some_and(|b| boot(trace) == Some(b));
        for other in (0..n).filter(same) {
            apart(&traces[other], trace)?;
        }
        let machine = (0..n).find(same).map_or(count, |other| machines[other]);
        count += usize::from(machine == count);
        machines.push(machine);
    }
    if count > MACHINES_MAX { Err(Error::Many(count)) } else { Ok(machines) }
}

/// Refuses two traces of one machine that have a process in common.
fn apart(a: &Trace, b: &Trace) -> Result<()> {
    let line = same_clock(b, a);
    let others = a.processes()?;
    for process in b.processes()? {
        let from = line.map(process.start_ns);
        let until = line.map(process.end_ns.max(process.start_ns));
        let meets = |other: &&fettle_trace::Process| {
            let end = other.end_ns.max(other.start_ns);
            other.pid == process.pid && from <= end as f64 && other.start_ns as f64 <= until
        };
        if others.iter().find(meets).is_some() {
            let (a, b) = (a.path().to_owned(), b.path().to_owned());
            return Err(Error::SameProcess { a, b, pid: process.pid });
        }
    }
    Ok(())
}

/// From one trace's time to another's of the same clock.
fn same_clock(from: &Trace, to: &Trace) -> Line {
    let begin =
        |trace: &Trace| i128::from(trace.manifest().clock.begin.unwrap_or_default().monotonic_ns);
    Line { offset_ns: (begin(from) - begin(to)) as f64, drift: 0.0 }
}

/// Brings all traces to the first one's clock: over the same clock, by what the user says, or by
/// messages, the most certain first.
#[expect(
    clippy::indexing_slicing,
    reason = "numbers of traces, of which each of these lists has one entry"
)]
fn align(
    traces: &[Trace],
    machines: &[usize],
    offsets_ns: &[i64],
    openings: &[Openings],
    texts: &mut Strings,
) -> Result<Vec<Aligned>> {
    let mut aligned: Vec<Option<Aligned>> = vec![None; traces.len()];
    aligned[0] = Some(Aligned { by: "reference", ..Aligned::default() });
    let wall_ns = |trace: &Trace| i128::from(trace.manifest().start_unix_ns);
    for (trace, offset_ns) in (1..traces.len()).zip(offsets_ns) {
        let apart_ns = wall_ns(&traces[trace]) - wall_ns(&traces[0]) + i128::from(*offset_ns);
        let line = Line { offset_ns: apart_ns as f64, drift: 0.0 };
        aligned[trace] = Some(Aligned { line, by: "given", ..Aligned::default() });
    }
    let links = links(traces, machines, openings, texts, &aligned)?;
    let mut contradiction = None;
    while aligned.iter().any(Option::is_none) {
        // Of the machines that are reached, the one with the shortest way to one that is not.
        let mut best: Option<(usize, Aligned)> = None;
        for link in &links {
            for (from, to, turned) in [(link.a, link.b, false), (link.b, link.a, true)] {
                let (None, Some(base)) = (&aligned[from], &aligned[to]) else { continue };
                let (line, uncertainty_ns) = match &link.fit {
                    Ok(fit) => (fit.line, fit.uncertainty_ns),
                    Err(by_ns) => {
                        contradiction = Some((link.a, link.b, *by_ns));
                        continue;
                    }
                };
                let line = if turned { line.inverse() } else { line }.then(&base.line);
                let uncertainty_ns = uncertainty_ns + base.uncertainty_ns.unwrap_or(0.0);
                let nearer = |(_, best): &(usize, Aligned)| {
                    best.uncertainty_ns.is_some_and(|best_ns| uncertainty_ns < best_ns)
                };
                if best.as_ref().is_none_or(nearer) {
                    let Link { by, messages, left_out, .. } = *link;
                    let uncertainty_ns = Some(uncertainty_ns);
                    let aligned = Aligned { line, by, uncertainty_ns, messages, left_out };
                    best = Some((from, aligned));
                }
            }
        }
        let Some((trace, found)) = best else {
            return Err(unreached(traces, &aligned, &links, contradiction));
        };
        aligned[trace] = Some(found);
    }
    Ok(aligned.into_iter().flatten().collect())
}

/// What two traces know of each other's clocks.
struct Link {
    a: usize,
    b: usize,
    /// From the first one's to the second one's, or by how many nanoseconds bounds contradict.
    fit: std::result::Result<clock::Fit, f64>,
    by: &'static str,
    messages: u64,
    left_out: u64,
}

/// How certain a reading of two clocks at the begin of a recording is.
const READING_NS: f64 = 1000.0;

#[expect(
    clippy::indexing_slicing,
    reason = "numbers of traces, of which each of these lists has one entry"
)]
fn links(
    traces: &[Trace],
    machines: &[usize],
    openings: &[Openings],
    texts: &mut Strings,
    known: &[Option<Aligned>],
) -> Result<Vec<Link>> {
    // What both sides of have been seen, of traces whose clocks are to be compared.
    let mut between = Vec::new();
    let mut wanted: Vec<FxHashSet<Pair>> = vec![FxHashSet::default(); traces.len()];
    let mut links = Vec::new();
    for b in 0..traces.len() {
        for a in 0..b {
            if known[a].is_some() && known[b].is_some() {
                continue;
            }
            if machines[a] == machines[b] {
                let line = same_clock(&traces[a], &traces[b]);
                let fit = clock::Fit { line, uncertainty_ns: READING_NS, messages: 0 };
                let (by, messages, left_out) = ("same clock", 0, 0);
                links.push(Link { a, b, fit: Ok(fit), by, messages, left_out });
                continue;
            }
            let to = openings[a].shared(&openings[b], texts);
            let from = openings[b].shared(&openings[a], texts);
            let turned = |pairs: &[Pair]| -> Vec<Pair> {
                pairs.iter().map(|(here, there)| (*there, *here)).collect()
            };
            wanted[a].extend(to.iter().copied().chain(turned(&from)));
            wanted[b].extend(from.iter().copied().chain(turned(&to)));
            between.push((a, b, to, from));
        }
    }
    if between.is_empty() {
        return Ok(links);
    }
    let mut sides = Vec::new();
    for (trace, wanted) in traces.iter().zip(&wanted) {
        sides.push(Sides::read(trace, wanted, texts)?);
    }
    for (a, b, to, from) in between {
        let lossy = [a, b].into_iter().any(|n| traces[n].manifest().events.lost() > 0);
        let messages = Between::of(&sides[a], &sides[b], (&to, &from), lossy);
        let count = messages.lower.count() + messages.upper.count();
        let fit = match clock::fit(&messages.lower, &messages.upper) {
            Err(NoFit::OneWay) => continue,
            Err(NoFit::Contradiction(by_ns)) => Err(by_ns),
            Ok(fit) => Ok(fit),
        };
        let (by, left_out) = ("messages", messages.unclear);
        links.push(Link { a, b, fit, by, messages: count, left_out });
    }
    Ok(links)
}

/// Why a trace is not reached.
#[expect(
    clippy::indexing_slicing,
    reason = "numbers of traces, of which each of these lists has one entry"
)]
fn unreached(
    traces: &[Trace],
    aligned: &[Option<Aligned>],
    links: &[Link],
    contradiction: Option<(usize, usize, f64)>,
) -> Error {
    let path = |n: usize| traces[n].path().to_owned();
    if let Some((a, b, by_ns)) = contradiction {
        let by_ns = by_ns.ceil() as u64;
        return Error::Contradiction { a: path(a), b: path(b), by_ns };
    }
    let lost = aligned.iter().position(Option::is_none).unwrap_or_default();
    let why = if links.iter().any(|link| link.a == lost || link.b == lost) {
        "the traces that it has messages with are not reached either"
    } else if has_sockets(&traces[lost]) {
        "no connection was opened on the one side and accepted on the other, while both were \
         recorded, over which whole messages went both ways"
    } else {
        "it has no events of sockets (`fettle record --kernel`)"
    };
    Error::NoMessages { path: path(lost), why: why.to_owned() }
}

fn has_sockets(trace: &Trace) -> bool {
    let kinds = &trace.manifest().events.kinds;
    kinds.iter().any(|kind| matches!(kind.name.as_str(), "sent" | "received") && kind.rows > 0)
}
