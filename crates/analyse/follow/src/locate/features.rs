//! Requests as sets of components.

use std::collections::{BTreeMap, BTreeSet};

use fettle_requests::{Batch, EventId, Outcome, Program, Request};
use rustc_hash::FxHashMap;

use super::located::{Limit, LocateOptions};
use crate::numbers::Numbers;
use crate::session::{Context, Observer};

/// Most characters of a statement or path: what comes behind hardly distinguishes it.
const LONGEST: usize = 100;
/// Fewest requests of a class of which some can be slower than the others.
const CLASS_MIN: usize = 20;
/// Parts of what is too long that a component has to have taken: half.
const PART: u64 = 2;
/// Ports from which systems choose those of clients.
const EPHEMERAL: u32 = 32768;

/// A component.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Feature {
    /// A question got an answer that says that it failed: the service, and what it said.
    Failed(String, String),
    /// A file was opened.
    File(String),
    /// A statement or path was asked for.
    Statement(String),
    /// A function was called.
    Function(String),
    /// It took most of what is too long: who, and in which state.
    Time(String, &'static str),
    /// A thread worked for it.
    Thread(String),
    /// A service was spoken to.
    Peer(String),
    /// A process worked for it.
    Process(String),
    /// The request is of this class.
    Class(String),
}

impl Feature {
    fn service(address: &str) -> String {
        format!("service {address}")
    }

    /// How specific its kind is, the most specific first.
    pub fn kind(&self) -> u8 {
        match self {
            Feature::Failed(..) => 0,
            Feature::File(_) => 1,
            Feature::Statement(_) => 2,
            Feature::Function(_) => 3,
            Feature::Time(..) => 4,
            Feature::Thread(_) => 5,
            Feature::Peer(_) => 6,
            Feature::Process(_) => 7,
            Feature::Class(_) => 8,
        }
    }

    pub fn name(&self) -> String {
        match self {
            Feature::Failed(peer, said) => format!("{peer} fails: {said}"),
            Feature::File(path) => format!("file {path}"),
            Feature::Statement(text) => format!("statement {text}"),
            Feature::Function(name) => format!("function {name}"),
            Feature::Time(who, state) => format!("{who}  {state}"),
            Feature::Thread(name) => format!("thread {name}"),
            Feature::Peer(address) => format!("service {address}"),
            Feature::Process(name) => format!("process {name}"),
            Feature::Class(name) => format!("class {name}"),
        }
    }
}

/// A request.
#[derive(Debug, Default)]
pub(super) struct One {
    pub schema: usize,
    pub id: u64,
    class: u32,
    response_ns: u64,
    answered: bool,
    failed: bool,
    /// Its features, ascending.
    pub features: Vec<u32>,
    /// Times on the critical path, of features that are such.
    times: Vec<(u32, u64)>,
    /// Whether it is bad, once that was judged.
    pub is_bad: bool,
}

/// Requests that were judged.
#[derive(Debug, Default)]
pub(super) struct Judged {
    pub requests: Vec<One>,
    pub features: Vec<Feature>,
    /// By feature: how late in requests it comes on average, of answers that say that something failed. The first was
    /// there before the others could follow from it.
    pub lateness: Vec<u64>,
    pub limits: Vec<Limit>,
    pub failed: u64,
    pub unanswered: u64,
}

/// What an event says.
#[derive(Clone, Copy, Debug)]
enum Noted {
    Feature(u32),
    /// An answer that the thread sent, and whether that said that something failed.
    Answered {
        failed: bool,
        /// The code of its own address.
        local: u64,
    },
}

/// The events that are looked at, with the places of their fields.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kinds {
    open: Option<(EventId, [usize; 2])>,
    call: Option<(EventId, [usize; 2])>,
    connect: Option<(EventId, [usize; 2])>,
    ask: Option<(EventId, [usize; 4])>,
    answer: Option<(EventId, [usize; 6])>,
}

impl Kinds {
    pub fn of(program: &Program) -> Kinds {
        Kinds {
            open: find(program, "open", ["tid", "path"]),
            call: find(program, "call", ["tid", "function"]),
            connect: find(program, "connect", ["tid", "remote"]),
            ask: find(program, "ask", ["tid", "sent", "command", "detail"]),
            answer: find(program, "answer", ["tid", "sent", "local", "remote", "ok", "status"]),
        }
    }

    /// Whether it has to see an event, whatever the schemas do with it.
    pub fn wants(&self, event: EventId) -> bool {
        let Kinds { open, call, connect, ask, answer } = self;
        let one = [open, call, connect].into_iter().flatten().any(|(kind, _)| *kind == event);
        let is = |kind: Option<EventId>| kind == Some(event);
        one || is(ask.map(|(kind, _)| kind)) || is(answer.map(|(kind, _)| kind))
    }
}

/// What threads said while they worked for a request.
struct Said {
    /// Thread and process that it came to first.
    entry: Option<(u32, Option<u32>)>,
    /// When, which thread, what; in order of time.
    events: Vec<(u64, u32, Noted)>,
}

/// Collects them.
#[derive(Debug)]
pub(super) struct Collected {
    kinds: Kinds,
    features: Numbers<Feature>,
    /// By thread, what its events say, in order of time. Schemas that follow bytes do not look at these events, so they
    /// are of the request that the thread worked for then.
    noted: FxHashMap<u32, Vec<(u64, Noted)>>,
    classes: Vec<String>,
    requests: Vec<One>,
    /// Processes that were seen under each name, and the names of features that are of one process.
    called: FxHashMap<String, BTreeSet<u32>>,
    of_one: FxHashMap<u32, String>,
    /// Of failures: the sum of their places among those of their requests, and how many.
    places: FxHashMap<u32, (u64, u64)>,
}

fn find<const N: usize>(
    program: &Program,
    name: &str,
    fields: [&str; N],
) -> Option<(EventId, [usize; N])> {
    let event = program.catalog().find(name)?;
    let declared = &program.catalog().get(event)?.fields;
    let mut places = [0; N];
    for (place, field) in places.iter_mut().zip(fields) {
        *place = declared.iter().position(|one| one.name == field)?;
    }
    Some((event, places))
}

/// A text without what differs from one request to the next: numbers, and what is long.
fn normal(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars().take(LONGEST) {
        match c {
            '0'..='9' if out.ends_with('?') => {}
            '0'..='9' => out.push('?'),
            c => out.push(c),
        }
    }
    out
}

/// A service, by its address; none if that is a client's.
fn service(address: &str) -> Option<&str> {
    let port = address.rsplit_once(':').and_then(|(_, port)| port.parse::<u32>().ok());
    (!address.is_empty() && port.is_none_or(|port| port < EPHEMERAL)).then_some(address)
}

impl Collected {
    pub fn new(kinds: Kinds) -> Collected {
        Collected {
            kinds,
            features: Numbers::default(),
            noted: FxHashMap::default(),
            classes: Vec::new(),
            requests: Vec::new(),
            called: FxHashMap::default(),
            of_one: FxHashMap::default(),
            places: FxHashMap::default(),
        }
    }

    /// The number of a feature of one process among those that have its name.
    fn of_one(
        &mut self,
        name: String,
        pid: Option<u32>,
        feature: impl Fn(String) -> Feature,
    ) -> Option<u32> {
        let pid = pid?;
        let number = self.features.number(feature(format!("{name}/{pid}")));
        self.called.entry(name.clone()).or_default().insert(pid);
        self.of_one.insert(number, name);
        Some(number)
    }

    /// Adds the threads and processes that worked for a request; what they said meanwhile, in order of time.
    fn components(&mut self, one: &mut One, request: &Request, context: &Context<'_>) -> Said {
        let mut entry = None;
        let mut said: Vec<(u64, u32, Noted)> = Vec::new();
        for section in request.sections.iter().filter(|section| section.actor) {
            let actor = context.actor(request, section.timeline, section.key, section.joined_ns);
            one.features.push(self.features.number(Feature::Thread(actor.name)));
            if let Some(name) = actor.process {
                one.features.push(self.features.number(Feature::Process(name.clone())));
                one.features.extend(self.of_one(name, actor.pid, Feature::Process));
            }
            let Some(tid) = actor.tid else { continue };
            entry = entry.or(Some((tid, actor.pid)));
            let noted = self.noted.get(&tid).map_or(&[][..], Vec::as_slice);
            let from = noted.partition_point(|(ns, _)| *ns < section.joined_ns);
            let within = noted[from..].iter().take_while(|(ns, _)| *ns <= section.left_ns);
            said.extend(within.map(|(ns, noted)| (*ns, tid, *noted)));
        }
        said.sort_unstable_by_key(|(ns, ..)| *ns);
        Said { entry, events: said }
    }

    /// Adds what was said for a request, and whether its own answer says that it failed.
    fn take_in(&mut self, one: &mut One, said: &Said, context: &Context<'_>) {
        let Said { entry, events: said } = said;
        // How the last answer of the process that it came to went.
        let is_entry = |tid: u32| {
            entry.is_some_and(|(own, pid)| {
                own == tid || (pid.is_some() && context.process_number(tid) == pid)
            })
        };
        let mut own = None;
        for (_, tid, noted) in said {
            if let Noted::Answered { failed, local } = noted
                && is_entry(*tid)
            {
                one.failed = *failed;
                own = Some(Feature::service(context.text(*local)));
            }
        }
        // A client that is recorded, too, says only that it failed.
        let is_own = |feature: u32| matches!(&self.features.all()[feature as usize], Feature::Failed(peer, _) if own.as_ref() == Some(peer));
        for (.., noted) in said {
            if let Noted::Feature(feature) = noted
                && !is_own(*feature)
            {
                one.features.push(*feature);
            }
        }
        let failures: Vec<u32> = one
            .features
            .iter()
            .copied()
            .filter(|f| matches!(self.features.all()[*f as usize], Feature::Failed(..)))
            .collect();
        for (place, feature) in failures.into_iter().enumerate() {
            let (sum, n) = self.places.entry(feature).or_default();
            (*sum, *n) = (*sum + place as u64, *n + 1);
        }
    }

    /// Adds how long its critical path is in each process and state.
    fn times(&mut self, one: &mut One, request: &Request, context: &Context<'_>) {
        let mut times: BTreeMap<u32, u64> = BTreeMap::new();
        for step in request.critical_path() {
            let Some(section) = request.sections.get(step.section as usize) else { continue };
            let actor = context.actor(request, section.timeline, section.key, step.from_ns);
            let (state, ns) = (step.state.name(), step.to_ns.saturating_sub(step.from_ns));
            let who = actor.process.clone().unwrap_or(actor.name);
            let mut numbers = vec![self.features.number(Feature::Time(who, state))];
            if let Some(name) = actor.process {
                numbers.extend(self.of_one(name, actor.pid, |who| Feature::Time(who, state)));
            }
            for number in numbers {
                *times.entry(number).or_default() += ns;
            }
        }
        one.times = times.into_iter().collect();
    }

    /// Which thread an event is of, and what it says.
    fn note(&mut self, row: usize, batch: &Batch, context: &Context<'_>) -> Option<(u32, Noted)> {
        let kind = batch.kind(row);
        let text = |place: usize| context.text(batch.value(row, place));
        let (tid, feature) = match self.kinds {
            Kinds { open: Some((event, [tid, path])), .. } if event == kind => {
                (tid, Feature::File(normal(text(path))))
            }
            Kinds { call: Some((event, [tid, function])), .. } if event == kind => {
                (tid, Feature::Function(text(function).to_owned()))
            }
            Kinds { connect: Some((event, [tid, remote])), .. } if event == kind => {
                (tid, Feature::Peer(service(text(remote))?.to_owned()))
            }
            Kinds { ask: Some((event, [tid, sent, command, detail])), .. } if event == kind => {
                // Who is asked says the same.
                if batch.value(row, sent) == 0 {
                    return None;
                }
                let words = format!("{} {}", text(command), text(detail));
                (tid, Feature::Statement(normal(words.trim())))
            }
            Kinds { answer: Some((event, [tid, sent, local, remote, ok, status])), .. }
                if event == kind =>
            {
                let failed = batch.value(row, ok) == 0;
                if batch.value(row, sent) != 0 {
                    return Some((
                        batch.value(row, tid) as u32,
                        Noted::Answered { failed, local: batch.value(row, local) },
                    ));
                }
                if !failed {
                    return None;
                }
                let peer = Feature::service(service(text(remote))?);
                (tid, Feature::Failed(peer, text(status).to_owned()))
            }
            _ => return None,
        };
        Some((batch.value(row, tid) as u32, Noted::Feature(self.features.number(feature))))
    }

    /// Judges all requests, and adds what took too long to the features of slow ones.
    pub fn judge(self, options: &LocateOptions) -> Judged {
        let Collected { features, classes, mut requests, places, called, of_one, .. } = self;
        // Where one process alone has a name, that says as much.
        let is_needless = |f: &u32| {
            of_one.get(f).is_some_and(|name| called.get(name).is_none_or(|c| c.len() < 2))
        };
        for one in &mut requests {
            one.features.retain(|feature| !is_needless(feature));
            one.times.retain(|(feature, _)| !is_needless(feature));
        }
        let late = |feature: u32| places.get(&feature).map_or(0, |(sum, n)| 1000 * sum / n);
        let features = features.all().to_vec();
        let lateness = (0..features.len() as u32).map(late).collect();
        let mut judged = Judged { features, lateness, ..Judged::default() };
        let mut by_class: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
        for (n, one) in requests.iter().enumerate() {
            by_class.entry(one.class).or_default().push(n);
        }
        for (class, members) in by_class {
            let answered = members.iter().filter(|n| requests[**n].answered).count();
            let mut responses: Vec<u64> = members
                .iter()
                .filter(|n| requests[**n].answered || answered == 0)
                .map(|n| requests[*n].response_ns)
                .collect();
            responses.sort_unstable();
            let at = |part: usize| responses.get(responses.len() * part / 4).copied().unwrap_or(0);
            let (low, median) = (at(1), at(2));
            // Of the lower half alone: nearly half of the requests may be slow.
            let far = median.saturating_add((median - low).saturating_mul(12));
            let fence = median.saturating_mul(3).max(far);
            let limit = match options.slower_than_ns {
                Some(limit) => limit,
                None if members.len() < CLASS_MIN => u64::MAX,
                None => fence,
            };
            let usual = usual_times(&requests, &members);
            let mut slow = 0;
            for n in &members {
                let one = &mut requests[*n];
                let is_slow = one.response_ns > limit;
                let is_unanswered = !one.answered && answered * 2 > members.len();
                judged.failed += u64::from(one.failed);
                judged.unanswered += u64::from(is_unanswered && !one.failed);
                slow += u64::from(is_slow);
                one.is_bad = one.failed || is_unanswered || is_slow;
                // Of a good one it would have to be as much.
                let excess = one.response_ns.saturating_sub(median);
                let least = excess.max(limit.saturating_sub(median).min(excess.max(median)));
                for (feature, ns) in &one.times {
                    let more = ns.saturating_sub(usual.get(feature).copied().unwrap_or(0));
                    if more > 0 && more >= least / PART {
                        one.features.push(*feature);
                    }
                }
                one.features.sort_unstable();
                one.features.dedup();
            }
            if limit != u64::MAX {
                let (class, requests) = (classes[class as usize].clone(), members.len() as u64);
                let (median_ns, slower_than_ns) = (median, limit);
                judged.limits.push(Limit { class, requests, median_ns, slower_than_ns, slow });
            }
        }
        judged.requests = requests;
        judged
    }
}

/// The median of each component's time, of a class; requests without it took none.
fn usual_times(requests: &[One], members: &[usize]) -> FxHashMap<u32, u64> {
    let mut times: FxHashMap<u32, Vec<u64>> = FxHashMap::default();
    for (feature, ns) in members.iter().flat_map(|n| &requests[*n].times) {
        times.entry(*feature).or_default().push(*ns);
    }
    let median = |(feature, mut times): (u32, Vec<u64>)| {
        times.sort_unstable();
        // Zeros come first.
        let zeros = members.len() - times.len();
        let at = (members.len() / 2).checked_sub(zeros);
        (feature, at.and_then(|at| times.get(at)).copied().unwrap_or(0))
    };
    times.into_iter().map(median).collect()
}

impl Observer for Collected {
    fn events(&mut self, _: u64, batch: &Batch, context: &Context<'_>) -> bool {
        for row in 0..batch.len() {
            if let Some((tid, noted)) = self.note(row, batch, context) {
                self.noted.entry(tid).or_default().push((batch.time_ns(row), noted));
            }
        }
        true
    }

    fn request(&mut self, request: &Request, context: &Context<'_>) -> bool {
        let row = context.row(request);
        let class = match self.classes.iter().position(|known| *known == row.class) {
            Some(class) => class,
            None => {
                self.classes.push(row.class.clone());
                self.classes.len() - 1
            }
        };
        let mut one = One {
            schema: row.schema,
            id: row.id,
            class: class as u32,
            response_ns: row.response_ns,
            answered: request.answered_ns.is_some()
                || !matches!(request.outcome, Outcome::Quiet | Outcome::Unfinished),
            ..One::default()
        };
        one.features.push(self.features.number(Feature::Class(row.class)));
        let said = self.components(&mut one, request, context);
        self.take_in(&mut one, &said, context);
        self.times(&mut one, request, context);
        self.requests.push(one);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_lose_what_differs() {
        assert_eq!(normal("GET /cart/17?a=205"), "GET /cart/??a=?");
        assert_eq!(normal(&"x".repeat(300)).len(), LONGEST);
        assert_eq!(service("10.0.0.3:6379"), Some("10.0.0.3:6379"));
        assert_eq!(service("10.0.0.9:40000"), None);
        assert_eq!((service("/run/db.sock"), service("")), (Some("/run/db.sock"), None));
    }
}
