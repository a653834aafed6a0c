//! How long requests took: by class, and over time.

use std::collections::HashMap;

use fettle_follow::TimesNs;
use serde::Serialize;

/// Classes that are listed at most: those that took most time.
const CLASSES_MAX: usize = 200;
/// Stretches of time at most.
const STRETCHES: u64 = 120;

/// A request. There may be many millions of these.
#[derive(Clone, Copy, Debug)]
pub(crate) struct One {
    pub id: u64,
    pub begin_ns: u64,
    pub response_ns: u64,
    pub times_ns: TimesNs,
    pub schema: u32,
    /// Place among the ways.
    pub way: u32,
    pub certainty: &'static str,
    pub likely: u16,
    pub candidates: u32,
}

/// What requests are called and where they go.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Way {
    pub class: String,
    pub path: Vec<String>,
}

/// What requests took.
#[derive(Debug, Serialize)]
pub(crate) struct Figures<'a> {
    version: u32,
    /// How many there are of different class or path.
    ways: usize,
    /// The first of them, most time first.
    classes: Vec<Class<'a>>,
    /// Stretches of time in which requests began, one behind the other.
    from_ns: u64,
    step_ns: u64,
    stretches: Vec<Took>,
}

#[derive(Debug, Serialize)]
struct Class<'a> {
    class: &'a str,
    path: &'a [String],
    /// How many of them rest on a choice among several.
    chosen: usize,
    #[serde(flatten)]
    took: Took,
}

/// How long requests took until they were answered.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
struct Took {
    requests: usize,
    mean_ns: u64,
    p50_ns: u64,
    p90_ns: u64,
    p99_ns: u64,
    max_ns: u64,
}

impl Took {
    fn of(mut all_ns: Vec<u64>) -> Took {
        all_ns.sort_unstable();
        let Some(max_ns) = all_ns.last().copied() else { return Took::default() };
        let requests = all_ns.len();
        let sum: u128 = all_ns.iter().map(|ns| u128::from(*ns)).sum();
        // The smallest that so many hundredths do not exceed.
        let percentile =
            |hundredths: usize| all_ns[(requests * hundredths).div_ceil(100).max(1) - 1];
        Took {
            requests,
            mean_ns: (sum / requests as u128) as u64,
            p50_ns: percentile(50),
            p90_ns: percentile(90),
            p99_ns: percentile(99),
            max_ns,
        }
    }
}

impl<'a> Figures<'a> {
    /// Of requests in the order in which they began.
    pub(crate) fn new(found: &[&One], ways: &'a [Way]) -> Figures<'a> {
        let mut by_way: HashMap<u32, (usize, Vec<u64>)> = HashMap::new();
        for one in found {
            let (chosen, took) = by_way.entry(one.way).or_default();
            *chosen += usize::from(one.certainty == "chosen");
            took.push(one.response_ns);
        }
        let all = by_way.len();
        let class = |(way, (chosen, took)): (u32, (usize, Vec<u64>))| {
            let Way { class, path } = &ways[way as usize];
            Class { class, path, chosen, took: Took::of(took) }
        };
        let mut classes: Vec<Class<'_>> = by_way.into_iter().map(class).collect();
        classes.sort_by_key(|class| {
            let ns = u128::from(class.took.mean_ns) * class.took.requests as u128;
            (std::cmp::Reverse(ns), class.class, class.path)
        });
        classes.truncate(CLASSES_MAX);
        let from_ns = found.first().map_or(0, |one| one.begin_ns);
        let to_ns = found.last().map_or(0, |one| one.begin_ns);
        let step_ns = (to_ns - from_ns) / STRETCHES + 1;
        let mut stretches: Vec<Vec<u64>> = Vec::new();
        for one in found {
            let stretch = ((one.begin_ns - from_ns) / step_ns) as usize;
            if stretches.len() <= stretch {
                stretches.resize_with(stretch + 1, Vec::new);
            }
            stretches[stretch].push(one.response_ns);
        }
        let stretches = stretches.into_iter().map(Took::of).collect();
        Figures {
            version: fettle_follow::JSON_VERSION,
            ways: all,
            classes,
            from_ns,
            step_ns,
            stretches,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_exact() {
        let took = Took::of((1..=200).rev().collect());
        let expected = Took {
            requests: 200,
            mean_ns: 100,
            p50_ns: 100,
            p90_ns: 180,
            p99_ns: 198,
            max_ns: 200,
        };
        assert_eq!(took, expected);
        assert_eq!(Took::of(vec![7]).p99_ns, 7);
        assert_eq!(Took::of(vec![]), Took::default());
    }

    #[test]
    fn classes_with_most_time_are_first_and_stretches_follow_each_other() {
        let way = |class: &str| Way { class: class.to_owned(), path: vec!["nginx".to_owned()] };
        let ways = [way("GET"), way("PUT")];
        let one = |begin_ns, response_ns, way, certainty| One {
            id: begin_ns,
            begin_ns,
            response_ns,
            times_ns: TimesNs::default(),
            schema: 0,
            way,
            certainty,
            likely: 1000,
            candidates: 1,
        };
        let all =
            [one(1000, 5, 0, "seen"), one(1001, 7, 0, "chosen"), one(121_000, 100, 1, "seen")];
        let figures = Figures::new(&all.iter().collect::<Vec<_>>(), &ways);
        let classes: Vec<_> =
            figures.classes.iter().map(|it| (it.class, it.took.requests, it.chosen)).collect();
        assert_eq!(classes, [("PUT", 1, 0), ("GET", 2, 1)]);
        assert_eq!((figures.from_ns, figures.step_ns, figures.stretches.len()), (1000, 1001, 120));
        assert_eq!((figures.stretches[0].requests, figures.stretches[119].max_ns), (2, 100));
        assert!(Figures::new(&[], &ways).stretches.is_empty());
    }
}
