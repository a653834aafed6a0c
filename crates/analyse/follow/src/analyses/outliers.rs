//! What is different about the slowest requests of a class.
//!
//! The slowest 1 % of each class are compared with the others: which state of which process, and which
//! kinds of events, they have more of. What explains most of the additional time comes first. Time is
//! counted until the answer, as what is compared is; also that in which no actor had to do with a
//! request.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use fettle_requests::Request;

use super::analysis::Analysis;
use super::found::{Cell, Findable, Found, Unit, share};
use crate::numbers::Numbers;
use crate::session::Context;
use crate::view::NOBODY;

/// One of so many is slow.
const ONE_OF: usize = 100;
/// Fewest requests of a class whose slowest are compared with the others.
const REQUESTS_MIN: usize = 20;
/// Differences shown of each class.
const SHOWN: usize = 8;

/// What a request can have more of: time in a state of a process, or events.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Feature {
    Time(String, &'static str),
    Nobodys,
    Events(String),
}

/// A class: what its seed says, and its path.
type Class = (usize, String, Vec<String>);

/// The analysis.
#[derive(Default)]
pub(super) struct Outliers {
    features: Numbers<Feature>,
    classes: BTreeMap<Class, Vec<One>>,
}

/// A request: its number, how long its answer took, and features.
struct One {
    id: u64,
    response_ns: u64,
    features: Vec<(u32, u64)>,
}

impl Analysis for Outliers {
    fn wants_requests(&self) -> bool {
        true
    }

    fn request(&mut self, request: &Request, context: &Context<'_>) {
        let row = context.row(request);
        let mut sums: BTreeMap<u32, u64> = BTreeMap::new();
        let until_ns = request.begin_ns.saturating_add(row.response_ns);
        for span in &request.spans {
            let Some(section) = request.sections.get(span.section as usize) else { continue };
            let actor = context.actor(request, section.timeline, section.key, span.from_ns);
            let who = actor.process.unwrap_or(actor.name);
            let number = self.features.number(Feature::Time(who, span.state.name()));
            let ns = span.to_ns.min(until_ns).saturating_sub(span.from_ns);
            *sums.entry(number).or_default() += ns;
        }
        let number = self.features.number(Feature::Nobodys);
        sums.insert(number, request.nobodys_ns(until_ns));
        for event in &request.events {
            let Some(kind) = context.program.catalog().get(event.kind) else { continue };
            let number = self.features.number(Feature::Events(kind.name.clone()));
            *sums.entry(number).or_default() += 1;
        }
        let class = (row.schema, row.class, row.path);
        let features = sums.into_iter().collect();
        let one = One { id: row.id, response_ns: row.response_ns, features };
        self.classes.entry(class).or_default().push(one);
    }

    fn finish(self: Box<Self>, _: &Context<'_>) -> Found {
        let mut found = Found::default();
        let mut few = 0;
        let mut classes: Vec<(Class, Vec<One>)> = self.classes.into_iter().collect();
        classes.sort_by_key(|(_, ones)| Reverse(ones.len()));
        for ((_, name, path), mut ones) in classes {
            if ones.len() < REQUESTS_MIN {
                few += ones.len();
                continue;
            }
            ones.sort_by_key(|one| (Reverse(one.response_ns), one.id));
            let slow = (ones.len() / ONE_OF).max(1);
            let title = format!("{name}  {}", path.join(" → "));
            let (slow, others) = ones.split_at(slow);
            found.tables.extend(differences(self.features.all(), title.trim(), slow, others));
        }
        if few > 0 {
            let text = format!("{few} requests are of classes with fewer than {REQUESTS_MIN}");
            found.notes.push(text);
        }
        found
    }
}

/// Sums of features over some requests.
fn sums(of: &[One], features: usize) -> Vec<u64> {
    let mut sums = vec![0u64; features];
    for (feature, value) in of.iter().flat_map(|one| &one.features) {
        sums[*feature as usize] = sums[*feature as usize].saturating_add(*value);
    }
    sums
}

/// Tables of what the slow have more of: time, and events.
fn differences(features: &[Feature], title: &str, slow: &[One], others: &[One]) -> Vec<Findable> {
    let mean = |sum: u64, of: &[One]| sum / (of.len() as u64).max(1);
    let response = |of: &[One]| mean(of.iter().map(|one| one.response_ns).sum(), of);
    let ids: Vec<String> = slow.iter().take(5).map(|one| format!("#{}", one.id)).collect();
    let more = if slow.len() > 5 { ", …" } else { "" };
    let (few, all) = (slow.len(), slow.len() + others.len());
    let title = format!("{title}: the {few} slowest of {all} ({}{more})", ids.join(", "));
    let columns = [
        ("slow", Unit::Ns),
        ("others", Unit::Ns),
        ("of the difference", Unit::Share),
        ("time of a request, on average", Unit::Text),
    ];
    let mut times = Findable::new(title, &columns);
    let more_ns = response(slow).saturating_sub(response(others));
    let row = |a: u64, b: u64, what: String| {
        let more = share(a.saturating_sub(b), more_ns);
        vec![Cell::Number(a), Cell::Number(b), more, Cell::Text(what)]
    };
    times.rows.push(row(response(slow), response(others), "until it was answered".into()));
    let columns = [
        ("slow", Unit::Mean),
        ("others", Unit::Mean),
        ("events of a request, on average", Unit::Text),
    ];
    let mut counts = Findable::new("", &columns);
    let (slow_sums, others_sums) = (sums(slow, features.len()), sums(others, features.len()));
    let mut time_rows = Vec::new();
    let mut count_rows = Vec::new();
    for (n, feature) in features.iter().enumerate() {
        let (a, b) = (slow_sums[n], others_sums[n]);
        match feature {
            Feature::Time(..) | Feature::Nobodys => {
                let (a, b) = (mean(a, slow), mean(b, others));
                let what = match feature {
                    Feature::Time(who, state) => format!("{who}  {state}"),
                    _ => NOBODY.to_owned(),
                };
                if a > b {
                    time_rows.push((a - b, row(a, b, what)));
                }
            }
            Feature::Events(kind) => {
                let each = |sum: u64, of: &[One]| sum as f64 / of.len().max(1) as f64;
                let (a, b) = (each(a, slow), each(b, others));
                // A tenth of an event is chance.
                if a - b >= 0.1 {
                    let row = vec![Cell::Share(a), Cell::Share(b), Cell::Text(kind.clone())];
                    count_rows.push((a - b, row));
                }
            }
        }
    }
    time_rows.sort_by_key(|(more, _)| Reverse(*more));
    count_rows.sort_by(|(a, _), (b, _)| b.total_cmp(a));
    times.rows.extend(time_rows.into_iter().take(SHOWN).map(|(_, row)| row));
    counts.rows.extend(count_rows.into_iter().take(SHOWN).map(|(_, row)| row));
    if counts.rows.is_empty() { vec![times] } else { vec![times, counts] }
}
