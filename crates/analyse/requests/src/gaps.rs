//! Time in which a request lay there and no actor had it: bytes in a socket, an item in a queue, an
//! answer that an event loop has yet to get.
//!
//! It counts as time of the actor that took it in the end: so what it waited for is listed with all else
//! that takes its time.

use std::collections::{BTreeMap, HashMap};

use crate::request::{Link, Peer, Request, RequestSection, Span};
use crate::state::State;

/// Adds such times to those of a request whose sections and links are known, and whose first event was
/// then: where it lay before that, its first actor took it from.
pub(crate) fn fill(request: &mut Request, first_ns: u64) {
    let Request { begin_ns, sections, links, spans, .. } = request;
    let mut came: HashMap<u32, Link> = HashMap::default();
    for link in links.iter().filter(|link| brings(link, sections)) {
        let last = came.entry(link.to).or_insert(*link);
        if link.from_ns > last.from_ns {
            *last = *link;
        }
    }
    let (state, from_ns, to_ns) = (State::Queued, *begin_ns, first_ns);
    let mut first = sections.iter().zip(0..).filter(|(joined_section, _)| joined_section.actor);
    let first = first
        .next()
        .filter(|(joined_section, _)| from_ns < to_ns && joined_section.joined_ns == first_ns);
    let queued = first.map(|(_, section)| Span { section, state, from_ns, to_ns, shared: false });
    if came.is_empty() && queued.is_none() {
        return;
    }
    // When each actor had the request last, for it may have had it in the meantime.
    let mut left: HashMap<(usize, u128), u64> = HashMap::default();
    let mut gaps: BTreeMap<u32, Span> =
        queued.map(|span| (span.section, span)).into_iter().collect();
    for (joined_section, section) in sections.iter().zip(0..) {
        if !joined_section.actor {
            continue;
        }
        let left_ns = left.entry((joined_section.timeline, joined_section.key)).or_default();
        if let Some(link) = came.get(&section) {
            let (from_ns, to_ns) = (link.from_ns.max(*left_ns).max(first_ns), link.to_ns);
            if from_ns < to_ns {
                let state = link.between;
                gaps.insert(section, Span { section, state, from_ns, to_ns, shared: false });
            }
        }
        *left_ns = (*left_ns).max(joined_section.left_ns);
    }
    // They come before what the actor did then, which may go on in the same way.
    let mut filled: Vec<Span> = Vec::with_capacity(spans.len() + gaps.len());
    for span in spans.drain(..) {
        let mut gap = gaps.remove(&span.section);
        let is_one = gap.as_mut().is_some_and(|gap| gap.goes_on(&span));
        filled.extend(gap);
        if !is_one {
            filled.push(span);
        }
    }
    // It may have let it go at once.
    filled.extend(gaps.into_values());
    *spans = filled;
}

/// Whether an actor has the request by a link, from another that had it or from itself.
fn brings(link: &Link, sections: &[RequestSection]) -> bool {
    let taken_ns = sections.get(link.to as usize).map(|joined_section| joined_section.joined_ns);
    taken_ns == Some(link.to_ns) && matches!(link.from, Peer::Section(_))
}
