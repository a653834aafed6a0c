//! Messages between processes, and making processes: times by way and size.
//!
//! What is fastest depends on the size of messages, on whether both processes have a processor for
//! themselves, and on how much of the data stays in caches; so all of these are varied.

use std::fmt::Write;
use std::sync::atomic::AtomicBool;

use fettle_report::render::{Column, Table, Terminal, column};
use serde::Serialize;

use crate::agent::Agent;
use crate::compare::Progress;
use crate::error::CompareError;
use crate::folder::Folder;
use crate::processes::{Orphans, processors};
use crate::result::Skipped;
use crate::system::{System, Tools};
use crate::text::{ratio, skipped as skipped_text, time};

/// Times that are taken at one request. The first warms up and does not count.
const AT_ONCE: u32 = 4;

/// What to measure.
#[derive(Clone, Debug)]
pub struct MessageOptions {
    /// The systems.
    pub systems: Vec<System>,
    /// What starts them.
    pub tools: Tools,
    /// Sizes of messages in bytes.
    pub sizes: Vec<u64>,
    /// Bytes that are moved in messages of each size.
    pub total: u64,
    /// Memory that a process has touched when it makes another, in bytes.
    pub touched: Vec<u64>,
    /// How often each is measured, thrice at once.
    pub rounds: u32,
}

/// Where the two processes run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Placement {
    /// Each has a processor.
    Two,
    /// They share one.
    One,
}

/// Times of one way, by size.
#[derive(Clone, Debug, Serialize)]
pub struct Series {
    /// The way.
    pub name: String,
    /// What it does.
    pub what: String,
    /// Median of each size in nanoseconds; `None` where that cannot be done.
    pub ns: Vec<Option<f64>>,
}

/// What was found on one system.
#[derive(Clone, Debug, Serialize)]
pub struct SystemMessages {
    /// The system.
    pub system: String,
    /// Moving all bytes, by placement.
    pub moved: Vec<(Placement, Vec<Series>)>,
    /// One message of each size.
    pub single: Vec<Series>,
    /// Making processes.
    pub made: Vec<Series>,
}

/// What was found.
#[derive(Clone, Debug, Serialize)]
pub struct Messages {
    /// Of this form of data.
    pub version: u32,
    /// Sizes of messages in bytes.
    pub sizes: Vec<u64>,
    /// Bytes that were moved in them.
    pub total: u64,
    /// Memory of the processes that made others, in bytes.
    pub touched: Vec<u64>,
    /// By system.
    pub systems: Vec<SystemMessages>,
    /// What could not be measured.
    pub skipped: Vec<Skipped>,
}

/// Measures.
///
/// # Errors
///
/// When no system starts, when the user ends it, or when files of ours cannot be written.
pub fn messages(
    options: &MessageOptions,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(&Progress<'_>),
) -> Result<Messages, CompareError> {
    let folder = Folder::new()?;
    let _orphans = Orphans::watch();
    let mut found = Messages {
        version: 1,
        sizes: options.sizes.clone(),
        total: options.total,
        touched: options.touched.clone(),
        systems: Vec::new(),
        skipped: Vec::new(),
    };
    for (number, system) in options.systems.iter().enumerate() {
        progress(&Progress { what: &format!("starting {system}"), done: 0, all: 1 });
        match Agent::start(system, &options.tools, &folder, number, stop) {
            Ok(agent) => {
                let mut skipped = std::mem::take(&mut found.skipped);
                let mut session = Session { agent, options, progress, skipped: &mut skipped };
                found.systems.push(session.measure()?);
                found.skipped = skipped;
            }
            Err(CompareError::Stopped) => return Err(CompareError::Stopped),
            Err(error) => {
                let why = error.to_string();
                found.skipped.push(Skipped { system: system.to_string(), name: None, why });
            }
        }
    }
    if found.systems.is_empty() {
        let why = found.skipped.first().map_or(String::new(), |skipped| skipped.why.clone());
        return Err(CompareError::Nothing { why });
    }
    Ok(found)
}

struct Session<'a, 'b, 'c> {
    agent: Agent<'a>,
    options: &'a MessageOptions,
    progress: &'b mut dyn FnMut(&Progress<'_>),
    skipped: &'c mut Vec<Skipped>,
}

/// What is measured once: a way, and a size.
type Case<'a> = (&'a str, u64);
type Measure<'a> = dyn FnMut(&mut Agent<'_>, Case<'_>) -> Result<Vec<f64>, CompareError> + 'a;

impl Session<'_, '_, '_> {
    fn measure(&mut self) -> Result<SystemMessages, CompareError> {
        let total = self.options.total;
        let sizes: Vec<u64> = self.options.sizes.clone();
        let ways = self.agent.ways()?;
        let mut moved = Vec::new();
        for placement in [Placement::Two, Placement::One] {
            let processors = match placement {
                Placement::Two => two_processors(),
                Placement::One => two_processors().map(|(first, _)| (first, first)),
            };
            if placement == Placement::Two && processors.is_none() {
                continue;
            }
            let series = self.series(&ways, &sizes, "messages", &mut |agent, (way, size)| {
                agent.move_messages(way, (size, total.max(size)), processors, AT_ONCE)
            })?;
            moved.push((placement, series));
        }
        let processors = two_processors();
        let single = self.series(&ways, &sizes, "one message", &mut |agent, (way, size)| {
            agent.move_messages(way, (size, size), processors, AT_ONCE)
        })?;
        let makers = self.agent.makers()?;
        let touched = self.options.touched.clone();
        let made = self.series(&makers, &touched, "processes", &mut |agent, (maker, bytes)| {
            agent.make_processes(maker, bytes, AT_ONCE)
        })?;
        Ok(SystemMessages { system: self.agent.system().to_string(), moved, single, made })
    }

    /// Measures all ways with all sizes, round by round.
    fn series(
        &mut self,
        names: &[(String, String)],
        sizes: &[u64],
        what: &str,
        measure: &mut Measure<'_>,
    ) -> Result<Vec<Series>, CompareError> {
        let mut times = vec![vec![Some(Vec::new()); sizes.len()]; names.len()];
        let all = names.len() * self.options.rounds as usize;
        for round in 0..self.options.rounds as usize {
            for (at, (name, _)) in names.iter().enumerate() {
                let done = round * names.len() + at;
                let system = self.agent.system().clone();
                let what = format!("{what} by {name} on {system}, round {}", round + 1);
                (self.progress)(&Progress { what: &what, done, all });
                for (&size, times) in sizes.iter().zip(&mut times[at]) {
                    let Some(known) = times else { continue };
                    match measure(&mut self.agent, (name, size)) {
                        Ok(found) => known.extend(found.into_iter().skip(1)),
                        Err(CompareError::Broken { why, .. }) => {
                            *times = None;
                            let system = system.to_string();
                            self.skipped.push(Skipped { system, name: Some(name.clone()), why });
                        }
                        Err(error) => return Err(error),
                    }
                }
            }
        }
        let series = names.iter().zip(times).map(|((name, what), times)| Series {
            name: name.clone(),
            what: what.clone(),
            ns: times.into_iter().map(|known| Some(fettle_stats::median(&known?))).collect(),
        });
        Ok(series.collect())
    }
}

/// The first two processors that this process may use.
fn two_processors() -> Option<(u32, u32)> {
    let mut all = processors().into_iter();
    Some((all.next()?, all.next()?))
}

/// Tables for people.
pub fn messages_text(found: &Messages, terminal: Terminal) -> String {
    let mut out = String::new();
    for system in &found.systems {
        let _ = writeln!(out, "{}", system.system);
        for (placement, series) in &system.moved {
            let where_ = match placement {
                Placement::Two => "a processor each",
                Placement::One => "one processor for both",
            };
            let _ = writeln!(out, "\n{} in messages of a size, {where_}:", bytes(found.total));
            table(series, &found.sizes, terminal, &mut out);
            for series in series {
                out.extend(best(series, &found.sizes).map(|line| format!("  {line}\n")));
            }
        }
        let _ = writeln!(out, "\none message of a size, until the receiver has it:");
        table(&system.single, &found.sizes, terminal, &mut out);
        let _ =
            writeln!(out, "\na process made, until it has ended, by one that has touched so much:");
        table(&system.made, &found.touched, terminal, &mut out);
        out.push('\n');
    }
    skipped_text(&found.skipped, &mut out);
    out
}

fn table(series: &[Series], sizes: &[u64], terminal: Terminal, out: &mut String) {
    let columns: Vec<Column<'_>> = series.iter().map(|series| column(&series.name)).collect();
    let mut table = Table::new(&columns, "");
    for (at, size) in sizes.iter().enumerate() {
        let cells = series.iter().map(|series| series.ns[at].map_or("-".to_owned(), time));
        table.row(cells.chain([bytes(*size)]));
    }
    table.render(terminal, out);
}

/// The size that is fastest, where larger ones are slower again: then all of the data does not stay in
/// caches between its copies.
fn best(series: &Series, sizes: &[u64]) -> Option<String> {
    let mut known = series.ns.iter().zip(sizes).filter_map(|(ns, size)| Some(((*ns)?, *size)));
    let (ns, size) = known.clone().min_by(|a, b| a.0.total_cmp(&b.0))?;
    let (last_ns, last) = known.next_back()?;
    let factor = last_ns / ns;
    (size < last && factor >= 1.1).then(|| {
        format!(
            "{}: fastest with {}; messages of {} take {}",
            series.name,
            bytes(size),
            bytes(last),
            ratio(factor)
        )
    })
}

/// A number of bytes, in the largest unit that it is a multiple of.
pub(crate) fn bytes(n: u64) -> String {
    match n {
        0 => "0".to_owned(),
        n if n.is_multiple_of(1 << 20) => format!("{} MiB", n >> 20),
        n if n.is_multiple_of(1 << 10) => format!("{} KiB", n >> 10),
        n => format!("{n} B"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_caches_do_is_said() {
        let series = |ns: &[f64]| Series {
            name: "pipe".into(),
            what: String::new(),
            ns: ns.iter().copied().map(Some).collect(),
        };
        let sizes = [256, 65_536, 2 << 20];
        let said = best(&series(&[1000.0, 100.0, 160.0]), &sizes).unwrap();
        assert_eq!(said, "pipe: fastest with 64 KiB; messages of 2 MiB take ×1.60");
        assert_eq!(best(&series(&[1000.0, 160.0, 100.0]), &sizes), None);
        assert_eq!(best(&series(&[1000.0, 100.0, 101.0]), &sizes), None);
    }
}
