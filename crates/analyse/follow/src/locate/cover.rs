//! Which components explain the bad requests: the best one, then the best one for what is left.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use fettle_stats::odds::TwoByTwo;

use super::features::{Judged, One};
use super::located::{Component, Fault, Odds};

/// Faults that are distinguished at most.
const FAULTS_MAX: usize = 8;
/// Components in the ranking at most.
const RANKING_MAX: usize = 20;
/// What is more probable by chance, for as many components as there are, is no fault.
const CHANCE: f64 = 0.01;
/// Fewest bad requests that are a pattern.
const BAD_MIN: u64 = 3;
/// Of the requests with a component, so many at least are bad: a fault that most requests pass unharmed needs another
/// one to go with it, which is then the component.
const PRECISION: f64 = 0.5;

/// What was found.
#[derive(Debug, Default)]
pub(super) struct Explained {
    pub faults: Vec<Fault>,
    pub unexplained: u64,
    pub ranking: Vec<Component>,
}

/// A component's requests among those that are left.
struct Candidate {
    feature: u32,
    table: TwoByTwo,
    probability: f64,
}

pub(super) fn explain(judged: &Judged) -> Explained {
    let good: Vec<&One> = judged.requests.iter().filter(|one| !one.is_bad).collect();
    let mut bad: Vec<&One> = judged.requests.iter().filter(|one| one.is_bad).collect();
    let mut explained = Explained::default();
    let all = candidates(judged, &bad, &good);
    explained.ranking = all
        .iter()
        .filter(|one| one.probability < CHANCE && one.table.bad_with >= BAD_MIN)
        .take(RANKING_MAX)
        .map(|one| Component {
            name: judged.features[one.feature as usize].name(),
            odds: odds(&one.table, one.probability),
        })
        .collect();
    while explained.faults.len() < FAULTS_MAX && bad.len() as u64 >= BAD_MIN {
        let left = candidates(judged, &bad, &good);
        let is_fault = |one: &&Candidate| {
            let TwoByTwo { bad_with, good_with, .. } = one.table;
            one.probability < CHANCE
                && bad_with >= BAD_MIN
                && bad_with as f64 >= PRECISION * (bad_with + good_with) as f64
        };
        let Some(best) = left.iter().find(is_fault) else { break };
        let has = |one: &One, feature: u32| one.features.binary_search(&feature).is_ok();
        // Those that the same requests have, the bad ones and as many good ones.
        let same = |other: &&Candidate| {
            other.table == best.table
                && bad.iter().all(|one| has(one, other.feature) == has(one, best.feature))
        };
        let components =
            left.iter().filter(same).map(|one| judged.features[one.feature as usize].name());
        let example = bad.iter().find(|one| has(one, best.feature));
        explained.faults.push(Fault {
            components: components.collect(),
            odds: odds(&best.table, best.probability),
            example: example.map_or((0, 0), |one| (one.schema, one.id)),
        });
        bad.retain(|one| !has(one, best.feature));
    }
    explained.unexplained = bad.len() as u64;
    explained
}

/// All components of bad requests, the most alike first; of equal ones the more specific.
fn candidates(judged: &Judged, bad: &[&One], good: &[&One]) -> Vec<Candidate> {
    let count = |of: &[&One]| {
        let mut counts: BTreeMap<u32, u64> = BTreeMap::new();
        of.iter().flat_map(|one| &one.features).for_each(|f| *counts.entry(*f).or_default() += 1);
        counts
    };
    let (bad_counts, good_counts) = (count(bad), count(good));
    let tests = bad_counts.len() as f64;
    let mut candidates: Vec<Candidate> = bad_counts
        .into_iter()
        .map(|(feature, bad_with)| {
            let good_with = good_counts.get(&feature).copied().unwrap_or(0);
            let table = TwoByTwo {
                bad_with,
                good_with,
                bad_without: bad.len() as u64 - bad_with,
                good_without: good.len() as u64 - good_with,
            };
            let probability = (table.probability() * tests).min(1.0);
            Candidate { feature, table, probability }
        })
        .collect();
    let alike = |one: &Candidate| (one.table.ochiai() * 1e9) as u64;
    candidates.sort_by_cached_key(|one| {
        let feature = &judged.features[one.feature as usize];
        let late = judged.lateness[one.feature as usize];
        (Reverse(alike(one)), feature.kind(), late, feature.name())
    });
    candidates
}

fn odds(table: &TwoByTwo, probability: f64) -> Odds {
    let log = table.log_odds();
    let finite = |bound: f64| bound.is_finite().then_some(bound);
    Odds {
        bad_with: table.bad_with,
        bad: table.bad_with + table.bad_without,
        good_with: table.good_with,
        good: table.good_with + table.good_without,
        ochiai: table.ochiai(),
        log_odds: log.value,
        interval: (finite(log.low), finite(log.high)),
        probability,
    }
}
