//! From spans to places, and from what was chosen there to links.

use std::collections::BTreeMap;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::pairs::{rule_out, sweep, tightest};
use crate::place::{Chosen, Item, NONE, Place};
use crate::simple;
use crate::solve::solve;
use crate::span::{Link, Reconstruction, Side, Span};

/// Classes of one side of a place; rarer ones are one.
const CLASSES: usize = 48;
/// What is later than this after the first span is not told apart: sums of times stay numbers.
const LONGEST_NS: u64 = 1 << 60;
/// Calls by which it is found out how a place behaves.
const LOOK: usize = 4_000;
/// A call that ends later than its question by more than this is none of its.
const LATE_MOST_NS: i64 = 20_000_000;
/// Candidates of one of these calls that are looked at.
const LOOK_AT: usize = 256;

/// How parents are chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum How {
    /// All together, so that they are likeliest.
    #[default]
    Likeliest,
    /// To compare with: each call is the earliest open question's that has none of its kind.
    FirstCome,
    /// To compare with: each call is the question's that came last.
    Nearest,
}

/// Reconstructs traces.
pub fn reconstruct(spans: &[Span]) -> Reconstruction {
    reconstruct_by(spans, How::Likeliest)
}

/// As [`reconstruct`], in another way.
pub fn reconstruct_by(spans: &[Span], how: How) -> Reconstruction {
    let first = spans.iter().map(|span| span.begin_ns).min().unwrap_or(0);
    let plan = Plan::new(spans);
    let mut made = Reconstruction {
        links: vec![Link { likely: 1.0, ..Link::default() }; spans.len()],
        ..Reconstruction::default()
    };
    for draft in plan.places() {
        let time = |number: u32| {
            let span = spans.get(number as usize).copied().unwrap_or_default();
            item(&span, first, draft.joins)
        };
        let (draft, place) = draft.sorted(&time);
        let chosen = match how {
            How::Likeliest => solve(&place),
            How::FirstCome => simple::first_come(&place),
            How::Nearest => simple::nearest(&place),
        };
        for (number, chosen) in draft.calls.iter().zip(chosen) {
            let Some(link) = made.links.get_mut(number.span as usize) else { continue };
            *link = draft.link(chosen);
            made.alone += u64::from(link.candidates == 0);
        }
    }
    nest(spans, &mut made.links);
    unroll(&mut made.links);
    made
}

/// Which call of those that processes made each of those is that processes were asked, where it is known what each
/// process did in itself. Links are in the order of `asked`; parents are places in `asking`. Calls of one name are
/// on both sides; which process asks which shows in the times.
pub fn sides(asking: &[Span], asked: &[Span]) -> Vec<Link> {
    let all = || asking.iter().chain(asked);
    let first = all().map(|span| span.begin_ns).min().unwrap_or(0);
    let number = |at: usize| u32::try_from(at).unwrap_or(u32::MAX);
    let mut by_name: BTreeMap<u32, Draft> = BTreeMap::new();
    for (at, span) in all().enumerate() {
        let draft = by_name.entry(span.name).or_default();
        // Classes are processes; the second part says that no pair of them is ruled out.
        let (members, other) = match at < asking.len() {
            true => (&mut draft.questions, u32::MAX),
            false => (&mut draft.calls, 0),
        };
        members.push(Member { span: number(at), class: (span.process.into(), other) });
    }
    let item = |number: u32| {
        let at = number as usize;
        let span = asking.get(at).or_else(|| asked.get(at - asking.len()));
        item(&span.copied().unwrap_or_default(), first, true)
    };
    let mut links = vec![Link { likely: 1.0, ..Link::default() }; asked.len()];
    for (_, draft) in by_name {
        if draft.questions.is_empty() || draft.calls.is_empty() {
            continue;
        }
        let draft = Draft { joins: true, across: true, ..draft };
        let (draft, mut place) = draft.sorted(&item);
        place.allowed.fill(true);
        place.late_ns = late_of_tightest_ns(&place);
        rule_out(&mut place);
        let chosen = solve(&place);
        for (member, chosen) in draft.calls.iter().zip(chosen) {
            let at = (member.span as usize).checked_sub(asking.len());
            if let Some(link) = at.and_then(|at| links.get_mut(at)) {
                *link = draft.link(chosen);
            }
        }
    }
    links
}

/// A span as places have it.
fn item(span: &Span, first_ns: u64, with_connection: bool) -> Item {
    let at = |ns: u64| ns.saturating_sub(first_ns).min(LONGEST_NS) as i64;
    let begin = at(span.begin_ns);
    Item {
        begin,
        end: at(span.end_ns).max(begin),
        class: 0,
        thread: span.thread.unwrap_or(0),
        connection: if with_connection { span.connection.unwrap_or(0) } else { 0 },
    }
}

/// A span with what makes it alike others.
#[derive(Clone, Copy, Debug)]
struct Member {
    span: u32,
    class: (u64, u32),
}

/// A place before times are looked at.
#[derive(Debug, Default)]
struct Draft {
    questions: Vec<Member>,
    calls: Vec<Member>,
    /// Both are sides of the same calls.
    joins: bool,
    /// Questions and calls were reported by different processes.
    across: bool,
}

impl Draft {
    /// The same in order of time, and the place.
    fn sorted(&self, item: &dyn Fn(u32) -> Item) -> (Draft, Place) {
        let sorted = |members: &[Member]| {
            let mut members = members.to_vec();
            members.sort_by_cached_key(|member| {
                let item = item(member.span);
                (item.begin, std::cmp::Reverse(item.end), member.span)
            });
            members
        };
        let (questions, calls) = (sorted(&self.questions), sorted(&self.calls));
        let draft = Draft { questions, calls, ..*self };
        let place = draft.place(item);
        (draft, place)
    }

    fn place(&self, item: &dyn Fn(u32) -> Item) -> Place {
        let (asked, made) = (classes(&self.questions), classes(&self.calls));
        let items = |members: &[Member], classes: &FxHashMap<(u64, u32), u16>| -> Vec<Item> {
            let class = |member: &Member| classes.get(&member.class).copied().unwrap_or(0);
            let item = |member: &Member| Item { class: class(member), ..item(member.span) };
            members.iter().map(item).collect()
        };
        let count = |classes: &FxHashMap<(u64, u32), u16>| {
            classes.values().max().map_or(0, |most| usize::from(*most) + 1)
        };
        let mut place = Place {
            questions: items(&self.questions, &asked),
            calls: items(&self.calls, &made),
            allowed: vec![true; count(&asked) * count(&made)],
            once: self.joins,
            outlives: vec![false; count(&made)],
            late_ns: 0,
            same_thread: false,
        };
        if self.joins {
            self.allow(&mut place, &asked, &made);
        }
        if self.across {
            place.late_ns = late_ns(&place);
        }
        behaviour(&mut place);
        place
    }

    /// Sides of one call have the same service on either side, and one name if names are shared at all.
    fn allow(
        &self,
        place: &mut Place,
        asked: &FxHashMap<(u64, u32), u16>,
        made: &FxHashMap<(u64, u32), u16>,
    ) {
        let shared = |name: u32| {
            asked.keys().any(|key| key.1 == name) && made.keys().any(|key| key.1 == name)
        };
        place.allowed.fill(false);
        for (one, question) in asked {
            for (other, call) in made {
                let same = one.1 == other.1 || !shared(one.1) && !shared(other.1);
                // The service that asked: what was asked may not know it.
                let services = other.0 == u64::MAX || other.0 == one.0;
                let at = usize::from(*question) * place.outlives.len() + usize::from(*call);
                if let Some(allowed) = place.allowed.get_mut(at) {
                    *allowed |= same && services;
                }
            }
        }
    }

    fn link(&self, chosen: Chosen) -> Link {
        let parent = match chosen.question {
            NONE => None,
            question => self.questions.get(question as usize).map(|member| member.span),
        };
        let likely = if chosen.candidates <= 1 { 1.0 } else { chosen.likely };
        Link { parent, candidates: chosen.candidates, likely }
    }
}

/// Numbers for the classes of members, the most frequent first.
fn classes(members: &[Member]) -> FxHashMap<(u64, u32), u16> {
    let mut counts: BTreeMap<(u64, u32), usize> = BTreeMap::new();
    for member in members {
        *counts.entry(member.class).or_default() += 1;
    }
    let mut order: Vec<_> = counts.into_iter().collect();
    order.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let number =
        |(at, (class, _)): (usize, ((u64, u32), usize))| (class, at.min(CLASSES - 1) as u16);
    order.into_iter().enumerate().map(number).collect()
}

/// How much later than their questions calls seem to end: a little more than what shows where no question
/// is as long as a call.
fn late_ns(place: &Place) -> i64 {
    let (mut open, mut next): (Vec<Item>, usize) = (Vec::new(), 0);
    let mut late: Vec<i64> = Vec::new();
    for call in place.calls.iter().take(LOOK) {
        while let Some(question) = place.questions.get(next).filter(|q| q.begin <= call.begin) {
            open.push(*question);
            next += 1;
        }
        open.retain(|question| question.end >= call.begin);
        let by =
            open.iter().rev().take(LOOK_AT).map(|question| (call.end - question.end).max(0)).min();
        late.extend(by);
    }
    late.sort_unstable();
    let most = late.get(late.len().saturating_sub(1 + late.len() / 500)).copied().unwrap_or(0);
    (most * 2).min(LATE_MOST_NS)
}

/// As [`late_ns`], where questions of those that asked for those that asked are open, too, and are longer than any
/// call: by the question of each call that is no longer than it has to be.
fn late_of_tightest_ns(place: &Place) -> i64 {
    let mut late: Vec<i64> = Vec::new();
    sweep(place, |open, call| {
        if late.len() < LOOK {
            late.extend(tightest(open, call).map(|question| (call.end - question.end).max(0)));
        }
    });
    late.sort_unstable();
    let most = late.get(late.len().saturating_sub(1 + late.len() / 500)).copied().unwrap_or(0);
    (most * 2).min(LATE_MOST_NS)
}

/// Finds out whether calls outlive their questions, and whether threads say whose they are.
fn behaviour(place: &mut Place) {
    let mut without = vec![(0_u32, 0_u32); place.call_classes()];
    let (mut known, mut one) = (0_u32, 0_u32);
    let (mut open, mut next): (Vec<Item>, usize) = (Vec::new(), 0);
    for call in place.calls.iter().take(LOOK) {
        while let Some(question) = place.questions.get(next).filter(|q| q.begin <= call.begin) {
            open.push(*question);
            next += 1;
        }
        open.retain(|question| question.end >= call.begin);
        let candidates = || open.iter().rev().take(LOOK_AT);
        let strict = candidates().filter(|question| place.can(question, call)).count();
        if let Some((all, none)) = without.get_mut(usize::from(call.class)) {
            *all += u32::from(!open.is_empty());
            *none += u32::from(!open.is_empty() && strict == 0);
        }
        if call.thread != 0 && strict > 1 {
            let same =
                |question: &&Item| question.thread == call.thread && place.can(question, call);
            known += 1;
            one += u32::from(candidates().filter(same).count() == 1);
        }
    }
    place.same_thread = !place.once && known >= 50 && f64::from(one) >= 0.99 * f64::from(known);
    for (outlives, (all, none)) in place.outlives.iter_mut().zip(without) {
        *outlives = !place.once && none >= 5 && f64::from(none) > 0.02 * f64::from(all);
    }
}

/// What is known of all spans before places are made.
struct Plan<'a> {
    spans: &'a [Span],
    /// Services that reported what they were asked.
    asked: FxHashSet<u32>,
    /// The service that each span of an asking side went to, as far as that reported what it was asked.
    targets: Vec<Option<u32>>,
}

impl<'a> Plan<'a> {
    fn new(spans: &'a [Span]) -> Plan<'a> {
        let mut asked = FxHashSet::default();
        // Services that were asked by a name; `None` if there are several.
        let mut by_name: FxHashMap<u32, Option<u32>> = FxHashMap::default();
        for span in spans.iter().filter(|span| span.side == Side::Callee) {
            asked.insert(span.service);
            let known = by_name.entry(span.name).or_insert(Some(span.service));
            if *known != Some(span.service) {
                *known = None;
            }
        }
        let target = |span: &Span| match (span.side, span.peer) {
            (Side::Caller, Some(peer)) if asked.contains(&peer) => Some(peer),
            (Side::Caller, _) => by_name.get(&span.name).copied().flatten(),
            _ => None,
        };
        let targets = spans.iter().map(target).collect();
        Plan { spans, asked, targets }
    }

    /// The places where something is to be assigned, in a fixed order.
    fn places(&self) -> Vec<Draft> {
        // Which service asks which, by spans of the asking side.
        let mut edges: FxHashSet<(u32, u32)> = FxHashSet::default();
        let mut reached: FxHashSet<u32> = FxHashSet::default();
        for (span, target) in self.spans.iter().zip(&self.targets) {
            if let Some(target) = target {
                edges.insert((span.service, *target));
                reached.insert(*target);
            }
        }
        let mut inner: BTreeMap<u32, Draft> = BTreeMap::new();
        let mut between: BTreeMap<u32, Draft> = BTreeMap::new();
        let mut outer: BTreeMap<u32, Draft> = BTreeMap::new();
        for (number, span) in (0_u32..).zip(self.spans) {
            let target = self.targets.get(number as usize).copied().flatten();
            let member = |of: u64| Member { span: number, class: (of, span.name) };
            let service = u64::from(span.service);
            if span.side != Side::Callee {
                let inside = u64::from(span.side == Side::Inside) << 40;
                let of = span.peer.or(target).map_or(u64::from(u32::MAX), u64::from) | inside;
                inner.entry(span.process).or_default().calls.push(member(of));
                if let Some(target) = target {
                    between.entry(target).or_default().questions.push(member(service));
                }
                continue;
            }
            inner.entry(span.process).or_default().questions.push(member(0));
            outer.entry(span.service).or_default().questions.push(member(0));
            let joins = span.peer.map_or(reached.contains(&span.service), |peer| {
                edges.contains(&(peer, span.service))
            });
            match span.peer {
                _ if joins => {
                    let of = span.peer.map_or(u64::MAX, u64::from);
                    between.entry(span.service).or_default().calls.push(member(of));
                }
                Some(peer) if self.asked.contains(&peer) => {
                    outer.entry(peer).or_default().calls.push(member(service));
                }
                _ => {}
            }
        }
        for draft in between.values_mut() {
            draft.joins = true;
        }
        for draft in between.values_mut().chain(outer.values_mut()) {
            draft.across = true;
        }
        let all = inner.into_values().chain(between.into_values()).chain(outer.into_values());
        all.filter(|draft| !draft.calls.is_empty() && !draft.questions.is_empty()).collect()
    }
}

/// Puts what lies within a part of a process's work into that part.
fn nest(spans: &[Span], links: &mut [Link]) {
    let mut by_parent: FxHashMap<u32, Vec<u32>> = FxHashMap::default();
    for (number, (span, link)) in (0_u32..).zip(spans.iter().zip(links.iter())) {
        if let (Side::Caller | Side::Inside, Some(parent)) = (span.side, link.parent) {
            by_parent.entry(parent).or_default().push(number);
        }
    }
    let span = |number: u32| spans.get(number as usize).copied().unwrap_or_default();
    for mut children in by_parent.into_values() {
        children.sort_by_key(|number| {
            let span = span(*number);
            (span.begin_ns, std::cmp::Reverse(span.end_ns), *number)
        });
        let mut open: Vec<u32> = Vec::new();
        for child in children {
            let inner = span(child);
            while open.last().is_some_and(|outer| span(*outer).end_ns < inner.end_ns) {
                open.pop();
            }
            if let (Some(outer), Some(link)) = (open.last(), links.get_mut(child as usize)) {
                link.parent = Some(*outer);
            }
            if inner.side == Side::Inside {
                open.push(child);
            }
        }
    }
}

/// Cuts circles, which spans of no length can make.
fn unroll(links: &mut [Link]) {
    // By which walk a span was visited, from 1.
    let mut visited = vec![0_u32; links.len()];
    for start in 0..links.len() {
        let walk = start as u32 + 1;
        let mut at = start;
        loop {
            match visited.get_mut(at) {
                Some(known) if *known == 0 => *known = walk,
                Some(known) if *known == walk => {
                    if let Some(link) = links.get_mut(at) {
                        link.parent = None;
                    }
                    break;
                }
                _ => break,
            }
            match links.get(at).and_then(|link| link.parent) {
                Some(parent) => at = parent as usize,
                None => break,
            }
        }
    }
}
