//! Requests: the list of them, one of them whole, and which processes communicate.
//!
//! The questions are `fettle-follow`'s, and so are the answers; here they are read once, kept, and
//! cut to what a page can show.

use std::cmp::Ordering;
use std::collections::{BTreeMap, HashMap};

use fettle_follow::{Choice, Detail, Findings, RequestRow, Session, TimesNs, choose};
use fettle_requests::{SCHEMAS, Source, compile, shipped};
use fettle_trace::Trace;
use serde::{Deserialize, Serialize};

use crate::figures::{Figures, One, Way};
use crate::owners::Owners;

/// Requests listed at once at most.
const LISTED_MAX: usize = 1000;
/// Requests that one event is said to belong to at most.
const OWNERS_MAX: usize = 8;
/// Bars of the histogram for each doubling of the time.
const BARS_PER_DOUBLING: u32 = 6;

/// All requests of a trace, as a list is made of them.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    /// Names of the schemas, by place.
    schemas: Vec<String>,
    /// Why these, as the rest of a sentence.
    reason: String,
    requests: Vec<One>,
    /// What requests are called and where they go: few of these are different.
    ways: Vec<Way>,
    /// What could not be read, or not be used, one sentence each.
    problems: Vec<String>,
    /// Which events they have, by thread and time.
    owners: Owners,
}

/// What there is, without the requests themselves.
#[derive(Debug, Serialize)]
pub(crate) struct Overview<'a> {
    version: u32,
    schemas: &'a [String],
    reason: &'a str,
    /// How many there are.
    requests: usize,
    /// How many rest on a choice among several.
    chosen: usize,
    /// How many took how long: the logarithm to base two of nanoseconds, times `per_doubling`, rounded
    /// down, and how many.
    bars: Vec<(i32, u64)>,
    per_doubling: u32,
    problems: &'a [String],
}

/// Which requests are wanted, and in which order.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct Wanted {
    /// What they have in their class, path or number, whatever the letters' size.
    #[serde(default)]
    find: String,
    /// Nanoseconds until they were answered, both included.
    shortest: Option<u64>,
    longest: Option<u64>,
    #[serde(default)]
    order: Order,
    /// Whether the greatest are first.
    #[serde(default)]
    down: bool,
    /// How many are passed over.
    #[serde(default)]
    first: usize,
    #[serde(default)]
    limit: usize,
}

/// What they are in order of; of two alike, the one that began earlier is first.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Order {
    /// How long they took until they were answered.
    #[default]
    Wall,
    Begin,
    Class,
    Path,
}

/// Some of the requests that are wanted.
#[derive(Debug, Serialize)]
pub(crate) struct Page<'a> {
    version: u32,
    /// How many are wanted in all.
    found: usize,
    rows: Vec<Row<'a>>,
}

/// A request in a line.
#[derive(Debug, Serialize)]
struct Row<'a> {
    schema: u32,
    id: u64,
    class: &'a str,
    path: &'a [String],
    begin_ns: u64,
    response_ns: u64,
    times_ns: TimesNs,
    certainty: &'static str,
    likely: u16,
    candidates: u32,
}

/// The schema that is shipped under a name.
pub(crate) fn schema(name: &str) -> Option<&'static str> {
    SCHEMAS.iter().map(|(known, _)| *known).find(|known| *known == name)
}

/// The schemas that may be chosen.
#[derive(Debug, Serialize)]
pub(crate) struct Schemas {
    version: u32,
    /// Those whose requests begin with events that the trace has.
    schemas: Vec<&'static str>,
}

impl Schemas {
    pub(crate) fn of(trace: &Trace) -> fettle_trace::Result<Schemas> {
        let (kinds, _) = trace.event_kinds()?;
        let calls = trace.manifest().totals.records > 0;
        let suits = |name: &str, text: &str| {
            let Ok(program) = compile(&[Source::new(name, text)], &shipped) else { return false };
            let seeds = |event: &str| {
                let id = program.catalog().find(event);
                id.is_some_and(|id| program.schemas().iter().any(|schema| schema.seeds(id)))
            };
            let recorded = kinds.iter().any(|kind| kind.rows > 0 && seeds(&kind.name));
            recorded || (calls && (seeds("call") || seeds("call_end")))
        };
        let schemas = SCHEMAS.iter().filter(|(name, text)| suits(name, text));
        let schemas = schemas.map(|(name, _)| *name).collect();
        Ok(Schemas { version: fettle_follow::JSON_VERSION, schemas })
    }
}

/// A session that is asked one question, by a shipped schema or by that which suits.
fn session<'a>(
    trace: &'a Trace,
    schema: Option<&str>,
) -> fettle_follow::Result<(Session<'a>, Choice)> {
    let choice = match schema {
        Some(name) => Choice {
            sources: vec![Source::new(name, shipped(name).unwrap_or_default())],
            reason: "it was chosen".to_owned(),
            weak: false,
        },
        None => choose(trace)?,
    };
    Ok((Session::open(trace, &choice.sources, &shipped)?, choice))
}

/// Whether a trace has events to follow requests through. Calls by themselves are no requests: the
/// timelines show those.
pub(crate) fn has_events(trace: &Trace) -> bool {
    trace.manifest().events.rows() > 0
}

impl Requests {
    /// Follows all requests of a trace.
    pub(crate) fn read(trace: &Trace, schema: Option<&str>) -> fettle_follow::Result<Requests> {
        let (session, choice) = session(trace, schema)?;
        let mut ways = HashMap::new();
        let mut all = Requests {
            schemas: session.program().schemas().iter().map(|s| s.name().to_owned()).collect(),
            reason: choice.reason,
            problems: trace.warnings().to_vec(),
            ..Requests::default()
        };
        session.for_each(&mut |request, context| {
            all.owners.add(request, context, all.requests.len() as u32);
            all.add(context.row(request), &mut ways);
        })?;
        all.in_order();
        Ok(all)
    }

    /// Puts them in the order in which they began.
    fn in_order(&mut self) {
        let began = |place: &u32| {
            let one = &self.requests[*place as usize];
            (one.begin_ns, one.schema, one.id)
        };
        let mut order: Vec<u32> = (0..self.requests.len() as u32).collect();
        order.sort_unstable_by_key(began);
        let mut places = vec![0; order.len()];
        for (place, was) in (0..).zip(&order) {
            places[*was as usize] = place;
        }
        self.requests = order.iter().map(|was| self.requests[*was as usize]).collect();
        self.owners.finish(&places);
    }

    /// The requests that a thread's event at a time belongs to.
    pub(crate) fn at(&self, tid: u32, time_ns: u64) -> Page<'_> {
        let places = self.owners.at(tid, time_ns);
        let rows = places.iter().take(OWNERS_MAX).map(|place| self.row(*place)).collect();
        Page { version: fettle_follow::JSON_VERSION, found: places.len(), rows }
    }

    /// What those that are wanted took, by class and over time.
    pub(crate) fn figures(&self, wanted: &Wanted) -> Figures<'_> {
        let found: Vec<&One> =
            self.find(wanted).iter().map(|place| &self.requests[*place as usize]).collect();
        Figures::new(&found, &self.ways)
    }

    fn add(&mut self, row: RequestRow, ways: &mut HashMap<Way, u32>) {
        let RequestRow { id, begin_ns, response_ns, times_ns, class, path, .. } = row;
        let (certainty, likely, candidates) = (row.certainty, row.likely, row.candidates);
        let way = Way { class, path };
        let known = ways.get(&way).copied();
        let way = known.unwrap_or_else(|| {
            let place = self.ways.len() as u32;
            self.ways.push(way.clone());
            ways.insert(way, place);
            place
        });
        let schema = row.schema as u32;
        self.requests.push(One {
            id,
            begin_ns,
            response_ns,
            times_ns,
            schema,
            way,
            certainty,
            likely,
            candidates,
        });
    }

    pub(crate) fn overview(&self) -> Overview<'_> {
        let mut bars = BTreeMap::new();
        for one in &self.requests {
            let doublings = (one.response_ns.max(1) as f64).log2();
            let bar = (doublings * f64::from(BARS_PER_DOUBLING)).floor() as i32;
            *bars.entry(bar).or_default() += 1;
        }
        Overview {
            version: fettle_follow::JSON_VERSION,
            schemas: &self.schemas,
            reason: &self.reason,
            requests: self.requests.len(),
            chosen: self.requests.iter().filter(|one| one.certainty == "chosen").count(),
            bars: bars.into_iter().collect(),
            per_doubling: BARS_PER_DOUBLING,
            problems: &self.problems,
        }
    }

    /// The requests that are wanted, as far as they are listed.
    pub(crate) fn page(&self, wanted: &Wanted) -> Page<'_> {
        let mut found = self.find(wanted);
        let (first, limit) = (wanted.first, wanted.limit.min(LISTED_MAX));
        let end = first.saturating_add(limit).min(found.len());
        let ranks = self.ranks(wanted.order);
        let order = |a: &u32, b: &u32| {
            let (one, other) = (&self.requests[*a as usize], &self.requests[*b as usize]);
            let order = match wanted.order {
                Order::Wall => one.response_ns.cmp(&other.response_ns),
                Order::Begin => Ordering::Equal,
                Order::Class | Order::Path => {
                    ranks[one.way as usize].cmp(&ranks[other.way as usize])
                }
            };
            // They lie in the order in which they began.
            let began = a.cmp(b);
            match (wanted.order, wanted.down) {
                (Order::Begin, true) => began.reverse(),
                (_, true) => order.reverse().then(began),
                (_, false) => order.then(began),
            }
        };
        // Only those that are listed, and those before them, have to be in order.
        let count = found.len();
        if end < count {
            found.select_nth_unstable_by(end, order);
            found.truncate(end);
        }
        found.sort_unstable_by(order);
        let rows = found.get(first..end).unwrap_or_default();
        let rows = rows.iter().map(|place| self.row(*place)).collect();
        Page { version: fettle_follow::JSON_VERSION, found: count, rows }
    }

    /// Places of those that are wanted, in the order in which they began.
    fn find(&self, wanted: &Wanted) -> Vec<u32> {
        let query = wanted.find.trim().to_lowercase();
        let called: Vec<bool> = self.ways.iter().map(|way| way.has(&query)).collect();
        let number = query.bytes().all(|byte| byte == b'#' || byte.is_ascii_digit());
        let (shortest, longest) =
            (wanted.shortest.unwrap_or(0), wanted.longest.unwrap_or(u64::MAX));
        let is_wanted = |one: &One| {
            (shortest..=longest).contains(&one.response_ns)
                && (called[one.way as usize] || number && numbered(one.id, &query))
        };
        let places = (0..).zip(&self.requests);
        places.filter(|(_, one)| is_wanted(one)).map(|(place, _)| place).collect()
    }

    /// The place of each way among all, in the order that is wanted.
    fn ranks(&self, order: Order) -> Vec<usize> {
        let by = |way: &Way| match order {
            Order::Path => way.path.iter().map(|name| name.to_lowercase()).collect(),
            _ => vec![way.class.to_lowercase()],
        };
        let keys: Vec<Vec<String>> = self.ways.iter().map(by).collect();
        let mut sorted: Vec<&Vec<String>> = keys.iter().collect();
        sorted.sort_unstable();
        sorted.dedup();
        keys.iter().map(|key| sorted.binary_search(&key).unwrap_or_default()).collect()
    }

    fn row(&self, place: u32) -> Row<'_> {
        let One { id, begin_ns, response_ns, times_ns, schema, way, certainty, likely, candidates } =
            self.requests[place as usize];
        let Way { class, path } = &self.ways[way as usize];
        Row {
            schema,
            id,
            class,
            path,
            begin_ns,
            response_ns,
            times_ns,
            certainty,
            likely,
            candidates,
        }
    }
}

impl Way {
    /// Whether it has a text, in small letters, in its class or path.
    fn has(&self, query: &str) -> bool {
        self.class.to_lowercase().contains(query)
            || self.path.join(" ").to_lowercase().contains(query)
    }
}

/// Whether `#` and a number have a text in them.
fn numbered(id: u64, query: &str) -> bool {
    let mut text = [0; 21];
    let (mut at, mut rest) = (text.len(), id);
    loop {
        at -= 1;
        text[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    at -= 1;
    text[at] = b'#';
    query.is_empty() || text[at..].windows(query.len()).any(|part| part == query.as_bytes())
}

/// One request whole; nothing if there is none of that number.
pub(crate) fn detail(
    trace: &Trace,
    by: Option<&str>,
    schema: usize,
    id: u64,
) -> fettle_follow::Result<Option<Detail>> {
    let (session, _) = session(trace, by)?;
    if schema >= session.program().schemas().len() {
        return Ok(None);
    }
    session.request(schema, id)
}

/// Which processes communicate.
pub(crate) fn communication(trace: &Trace) -> fettle_follow::Result<Option<Findings>> {
    Session::open(trace, &[], &shipped)?.analyse("communication")
}

/// The report of locks, if there is one.
pub(crate) fn locks(
    trace: &Trace,
    variable: &dyn Fn(u32, u64) -> Option<String>,
) -> fettle_follow::Result<Option<serde_json::Value>> {
    if let Some(counted) = trace.locks()? {
        return Ok(Some(counted));
    }
    let found = fettle_follow::contention(trace, variable)?;
    Ok(found.map(|found| serde_json::json!(found.report)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One in four took a millisecond and as many nanoseconds as its number, the others 100.
    fn many(count: u64) -> Requests {
        let mut all = Requests::default();
        let mut ways = HashMap::new();
        for id in 0..count {
            let response_ns = if id % 4 == 0 { 1_000_000 + id } else { 100 };
            let (class, way) = if id % 1000 == 7 { ("Rare", "redis") } else { ("GET", "nginx") };
            all.add(
                RequestRow {
                    schema: 0,
                    id,
                    class: class.to_owned(),
                    path: vec![way.to_owned(), "backend".to_owned()],
                    begin_ns: id,
                    end_ns: id,
                    wall_ns: response_ns,
                    answered_ns: None,
                    response_ns,
                    times_ns: TimesNs::default(),
                    shared_ns: 0,
                    events: 1,
                    actors: 1,
                    shared_with: 0,
                    outcome: "ended",
                    certainty: "seen",
                    likely: 1000,
                    candidates: 1,
                },
                &mut ways,
            );
        }
        all
    }

    fn ids(page: &Page<'_>) -> Vec<u64> {
        page.rows.iter().map(|row| row.id).collect()
    }

    #[test]
    fn all_requests_are_plotted_found_and_sorted_however_many_there_are() {
        let all = many(400_000);
        let overview = all.overview();
        assert_eq!(overview.requests, 400_000);
        assert_eq!(overview.bars.first(), Some(&(39, 300_000)), "2^(39/6) is 90.5");
        assert_eq!(overview.bars.iter().map(|(_, count)| count).sum::<u64>(), 400_000);

        let wanted = Wanted { down: true, limit: 3, ..Wanted::default() };
        let page = all.page(&wanted);
        assert_eq!((page.found, ids(&page)), (400_000, vec![399_996, 399_992, 399_988]));
        // The fastest of all, and those behind the first hundred thousand.
        let up = Wanted { limit: 3, ..Wanted::default() };
        assert_eq!(ids(&all.page(&up)), [1, 2, 3]);
        let behind = Wanted { first: 100_000, ..wanted.clone() };
        assert_eq!(ids(&all.page(&behind)), [1, 2, 3], "of those alike, the earliest are first");
        let last = Wanted { first: 399_998, ..wanted.clone() };
        assert_eq!(ids(&all.page(&last)), [399_998, 399_999]);
        assert_eq!(ids(&all.page(&Wanted { first: 400_000, ..wanted.clone() })), [0; 0]);
        assert_eq!(ids(&all.page(&Wanted { first: usize::MAX, ..wanted.clone() })), [0; 0]);

        let find = |find: &str| Wanted { find: find.to_owned(), ..wanted.clone() };
        let page = all.page(&find("rare"));
        assert_eq!((page.found, ids(&page)), (400, vec![7, 1007, 2007]));
        assert_eq!(all.page(&find("REDIS back")).found, 400);
        assert_eq!(all.page(&find("#399998")).found, 1);
        assert_eq!(all.page(&find("99999")).found, 4);
        assert_eq!(all.page(&find("postgres")).found, 0);
        let begin = Wanted { order: Order::Begin, ..wanted.clone() };
        assert_eq!(ids(&all.page(&begin)), [399_999, 399_998, 399_997]);
        let class = Wanted { order: Order::Class, ..wanted.clone() };
        assert_eq!(ids(&all.page(&class)), [7, 1007, 2007]);
        let path = Wanted { order: Order::Path, down: false, ..wanted.clone() };
        assert_eq!(ids(&all.page(&path)), [0, 1, 2]);
        let short = Wanted { shortest: Some(0), longest: Some(100), ..wanted };
        assert_eq!(all.page(&short).found, 300_000);
    }

    #[test]
    fn numbers_are_found_by_their_parts() {
        assert!(
            numbered(0, "#0") && numbered(0, "") && numbered(u64::MAX, "#18446744073709551615")
        );
        assert!(numbered(1234, "23") && numbered(1234, "#1") && numbered(1234, "4"));
        assert!(!numbered(1234, "#2") && !numbered(1234, "13") && !numbered(1234, "12345"));
        assert!(!numbered(1, "#18446744073709551615#1"));
    }
}
