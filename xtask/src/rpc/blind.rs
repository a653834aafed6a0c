//! The chain without ids: what `fettle import --without-ids` finds out of which call is which other one's, by what
//! calls say of themselves.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::matrix::{self, Report};
use super::trees::{self, Plan};
use crate::{proc, repo};

/// Words of a call before its fields.
const FIELDS: usize = 9;
/// Of 100 trees, so many have to be right where fields are there as they were recorded.
const WANTED: usize = 99;

/// What of calls is left to go by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Left {
    Times,
    /// And how long messages are.
    Lengths,
    /// And a key of so many values: trees that have the same one are many.
    Key(u64),
    /// And the field `tag`, which no two trees have in common.
    All,
}

const LEFT: [Left; 5] = [Left::Times, Left::Lengths, Left::Key(10), Left::Key(100), Left::All];
/// With the kernel's events beside.
const WITH_KERNEL: [Left; 3] = [Left::Times, Left::Lengths, Left::Key(10)];

impl Left {
    fn name(self) -> String {
        match self {
            Left::Times => "times alone".to_owned(),
            Left::Lengths => "and lengths".to_owned(),
            Left::Key(values) => format!("and one of {values} keys"),
            Left::All => "and a key of its own".to_owned(),
        }
    }

    /// An event with what is left.
    fn line(self, line: &str) -> Result<String> {
        let mut event: Value = serde_json::from_str(line)?;
        if event["type"] != "event" || self == Left::All {
            return Ok(line.to_owned());
        }
        let words = event["words"].as_array_mut().context("an event has no words")?;
        if self == Left::Times {
            words.iter_mut().skip(2).take(3).for_each(|word| *word = 0.into());
        }
        let tag = matrix::tag(words);
        words.truncate(FIELDS);
        if let Left::Key(values) = self {
            let number = tag.rsplit('/').next().and_then(|number| number.parse::<u64>().ok());
            words.push((number.context("a tag has no number")? % values + 1).into());
        }
        Ok(event.to_string())
    }
}

/// What is found of a call's parent.
#[derive(Clone, Debug, Default)]
struct Found {
    parent: u64,
    is_choice: bool,
    likely: f64,
}

/// What is right of what was found.
#[derive(Default)]
struct Score {
    trees: usize,
    parents: usize,
    wrong: usize,
    wrong_chosen: usize,
    wrong_doubtful: usize,
    chosen: usize,
}

/// Joins the calls in several ways, and compares; `trace` is a recording of the kernel's events. Gives how many trees
/// are right with all that was recorded, and how many there are.
pub fn run(
    fettle: &Path,
    names: &Path,
    events: &str,
    trace: Option<&Path>,
    plans: &[Plan],
) -> Result<(usize, usize)> {
    let mut reports = matrix::reports_of(events)?;
    let known: Vec<bool> = reports.iter().map(|report| report.parent == 0).collect();
    let truth = truth(&reports);
    set(&mut reports, &truth);
    let all = trees::right(plans, &reports);
    if all != plans.len() {
        bail!(
            "{all} of {} trees have the shape that was planned: the truth is not known",
            plans.len()
        );
    }
    println!(
        "{:28}{:>20}{:>22}   wrong: chosen, below 90 %; chosen in all",
        "", "trees", "parents"
    );
    let mut last = 0;
    let with_kernel =
        trace.into_iter().flat_map(|trace| WITH_KERNEL.map(|left| (left, Some(trace))));
    for (left, trace) in with_kernel.chain(LEFT.map(|left| (left, None))) {
        let inputs: Vec<&Path> = [names].into_iter().chain(trace).collect();
        let found = joined(fettle, &inputs, events, left)?;
        let mut score = Score::default();
        for ((report, true_parent), is_loose) in reports.iter_mut().zip(&truth).zip(&known) {
            let Some(found) = found.get(&report.span) else { bail!("a call got lost") };
            report.parent = found.parent;
            if !report.server || !is_loose {
                continue;
            }
            let is_right = found.parent == *true_parent;
            score.parents += usize::from(is_right);
            score.wrong += usize::from(!is_right);
            score.wrong_chosen += usize::from(!is_right && found.is_choice);
            score.wrong_doubtful += usize::from(!is_right && found.is_choice && found.likely < 0.9);
            score.chosen += usize::from(found.is_choice);
        }
        score.trees = trees::right(plans, &reports);
        let name = match trace {
            Some(_) => format!("kernel: {}", left.name()),
            None => left.name(),
        };
        println!("{}", score.line(&name, plans.len()));
        last = score.trees;
    }
    // Below what is wanted, all that are wrong count as failed.
    let enough = 100 * last >= WANTED * plans.len();
    Ok((if enough { plans.len() } else { last }, plans.len()))
}

impl Score {
    fn line(&self, name: &str, trees: usize) -> String {
        let share = |part: usize, all: usize| {
            format!("{part} of {all} ({:.1} %)", 100.0 * part as f64 / all.max(1) as f64)
        };
        format!(
            "{name:28}{:>20}{:>22}   {:>5}: {:>6}, {:>9}; {:>13}",
            share(self.trees, trees),
            share(self.parents, self.parents + self.wrong),
            self.wrong,
            self.wrong_chosen,
            self.wrong_doubtful,
            self.chosen
        )
    }
}

fn set(reports: &mut [Report], parents: &[u64]) {
    for (report, parent) in reports.iter_mut().zip(parents) {
        report.parent = *parent;
    }
}

/// Each call's true parent. A tree makes one call after the other, each within the one before: so a server's call
/// is that of the client of the same tree which was asked last.
fn truth(reports: &[Report]) -> Vec<u64> {
    let mut clients: BTreeMap<&str, Vec<(u64, u64)>> = BTreeMap::new();
    for report in reports.iter().filter(|report| !report.server) {
        clients.entry(&report.tag).or_default().push((report.begin_ns, report.span));
    }
    clients.values_mut().for_each(|calls| calls.sort_unstable());
    let parent = |report: &Report| {
        let calls = clients.get(report.tag.as_str()).filter(|_| report.server)?;
        let before = calls.partition_point(|(begin_ns, _)| *begin_ns <= report.begin_ns);
        calls.get(before.checked_sub(1)?).map(|(_, span)| *span)
    };
    reports.iter().map(|report| parent(report).unwrap_or(report.parent)).collect()
}

/// What `fettle import --without-ids` finds, by span.
fn joined(
    fettle: &Path,
    inputs: &[&Path],
    events: &str,
    left: Left,
) -> Result<BTreeMap<u64, Found>> {
    let folder = repo::target_folder("rpc/blind")?;
    let (calls, trace) = (folder.join("calls.jsonl"), folder.join("calls.fettle"));
    let lines: Vec<String> = events.lines().map(|line| left.line(line)).collect::<Result<_>>()?;
    std::fs::write(&calls, lines.join("\n") + "\n")?;
    let _ = std::fs::remove_dir_all(&trace);
    let mut import = Command::new(fettle);
    import.args(["import", "--without-ids", "-o"]).arg(&trace).arg(&calls).args(inputs);
    let said = proc::output_of(&mut import)?;
    said.lines().filter(|line| line.contains("without an id")).for_each(|line| println!("{line}"));
    let mut export = Command::new(fettle);
    export.arg("export").arg(&trace).args(["--format", "otlp", "-o", "-"]);
    let text = proc::output_of(&mut export)?;
    let mut found = BTreeMap::new();
    for line in text.lines() {
        let value: Value = serde_json::from_str(line)?;
        let span = &value["resourceSpans"][0]["scopeSpans"][0]["spans"][0];
        let id = |name: &str| span[name].as_str().and_then(|id| u64::from_str_radix(id, 16).ok());
        let attributes = span["attributes"].as_array().context("a span has no attributes")?;
        let attribute = |key: &str| {
            let of = attributes.iter().find(|attribute| attribute["key"] == key);
            of.map_or(&Value::Null, |attribute| &attribute["value"])
        };
        let of = Found {
            parent: id("parentSpanId").unwrap_or(0),
            is_choice: attribute("fettle.certainty")["stringValue"] == "chosen",
            likely: attribute("fettle.likely")["doubleValue"].as_f64().unwrap_or(1.0),
        };
        found.insert(id("spanId").context("a span has no id")?, of);
    }
    Ok(found)
}
