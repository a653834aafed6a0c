//! One request as a page can draw it: of a large one, what can be taken apart on a screen.

use std::collections::HashSet;

use fettle_follow::{Detail, EventRow, LinkRow, SpanRow};
use serde::Serialize;

/// As many events, spans or links are sent as they are.
const FEW: usize = 20_000;
/// Of more, one is sent for each of so many parts of the time, for each actor.
const CELLS: u64 = 4096;

/// A request, or what can be taken apart of a part of it.
#[derive(Debug, Serialize)]
pub(crate) struct Whole {
    #[serde(flatten)]
    detail: Detail,
    /// Whether there is more in parts of it.
    thinned: bool,
}

/// What is sent of a request: of all of it, or of what lies between two times.
pub(crate) fn whole(detail: &Detail, part: Option<(u64, u64)>) -> Whole {
    let all = (detail.request.begin_ns, detail.request.end_ns);
    let (from_ns, to_ns) = part.unwrap_or(all);
    let cell_ns = (to_ns.saturating_sub(from_ns) / CELLS).max(1);
    let cell = |ns: u64| ns.saturating_sub(from_ns) / cell_ns;
    let within = |begin: u64, end: u64| end >= from_ns && begin <= to_ns;

    let mut thinned = false;
    let mut taken = HashSet::new();
    let events: Vec<&EventRow> =
        detail.events.iter().filter(|event| within(event.time_ns, event.time_ns)).collect();
    let many = events.len() > FEW;
    thinned |= many;
    let apart = |event: &&&EventRow| !many || taken.insert((event.actor, cell(event.time_ns)));
    let events = events.iter().filter(apart).map(|event| (*event).clone()).collect();

    let spans: Vec<&SpanRow> =
        detail.spans.iter().filter(|span| within(span.from_ns, span.to_ns)).collect();
    let many = spans.len() > FEW;
    thinned |= many;
    let spans = match many {
        true => by_cell(&spans, cell_ns, &cell),
        false => spans.into_iter().cloned().collect(),
    };

    let mut taken = HashSet::new();
    let links: Vec<&LinkRow> =
        detail.links.iter().filter(|link| within(link.from_ns, link.to_ns)).collect();
    let many = links.len() > FEW;
    thinned |= many;
    let apart = |link: &&&LinkRow| {
        !many || taken.insert((link.from_actor, link.to_actor, cell(link.to_ns)))
    };
    let links = links.iter().filter(apart).map(|link| (*link).clone()).collect();

    let detail = Detail {
        version: detail.version,
        schema: detail.schema.clone(),
        request: detail.request.clone(),
        actors: detail.actors.clone(),
        // The page draws actors.
        sections: Vec::new(),
        spans,
        links,
        events,
        critical: detail.critical.clone(),
        named: detail.named.clone(),
        named_critical: detail.named_critical.clone(),
        shared_with: detail.shared_with.clone(),
        problems: detail.problems.clone(),
    };
    Whole { detail, thinned }
}

/// Spans, those shorter than a cell put together: a cell gets the state that most of it was spent in.
fn by_cell(spans: &[&SpanRow], cell_ns: u64, cell: &dyn Fn(u64) -> u64) -> Vec<SpanRow> {
    let mut found: Vec<SpanRow> = Vec::new();
    // Of the cell that is being added up: its first and its last moment, and times by state.
    let mut sums: Vec<(&'static str, u64)> = Vec::new();
    let mut now: Option<(usize, u64, SpanRow)> = None;
    let mut done = |now: &mut Option<(usize, u64, SpanRow)>,
                    sums: &mut Vec<(&'static str, u64)>| {
        if let Some((_, _, mut span)) = now.take() {
            let most = sums.iter().max_by_key(|(_, ns)| *ns);
            span.state = most.map_or(span.state, |(state, _)| *state);
            found.push(span);
        }
        sums.clear();
    };
    let mut long = Vec::new();
    for span in spans {
        let ns = span.to_ns.saturating_sub(span.from_ns);
        if ns >= cell_ns {
            long.push((*span).clone());
            continue;
        }
        let place = (span.actor, cell(span.from_ns));
        match &mut now {
            Some((actor, at, whole)) if (*actor, *at) == place => {
                whole.to_ns = whole.to_ns.max(span.to_ns);
                whole.shared &= span.shared;
            }
            _ => {
                done(&mut now, &mut sums);
                now = Some((place.0, place.1, (*span).clone()));
            }
        }
        match sums.iter_mut().find(|(state, _)| *state == span.state) {
            Some((_, sum)) => *sum += ns,
            None => sums.push((span.state, ns)),
        }
    }
    done(&mut now, &mut sums);
    found.extend(long);
    found.sort_by_key(|span| (span.actor, span.from_ns));
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use fettle_follow::{RequestRow, TimesNs};

    fn request(events: u64) -> Detail {
        let event = |time_ns| EventRow {
            time_ns,
            name: "tick".to_owned(),
            actor: Some((time_ns % 2) as usize),
            fields: Vec::new(),
            shared: false,
        };
        // Most of the time it runs; every hundredth nanosecond it waits.
        let span = |from_ns| SpanRow {
            actor: 0,
            state: if from_ns % 100 == 0 { "disk" } else { "running" },
            from_ns,
            to_ns: from_ns + 1,
            shared: false,
        };
        Detail {
            version: 1,
            schema: "s".to_owned(),
            request: RequestRow {
                schema: 0,
                id: 0,
                class: String::new(),
                path: Vec::new(),
                begin_ns: 0,
                end_ns: events,
                wall_ns: events,
                answered_ns: None,
                response_ns: events,
                times_ns: TimesNs::default(),
                shared_ns: 0,
                events,
                actors: 2,
                shared_with: 0,
                outcome: "ended",
                certainty: "seen",
                likely: 1000,
                candidates: 1,
            },
            actors: Vec::new(),
            sections: Vec::new(),
            spans: (0..events).map(span).collect(),
            links: Vec::new(),
            events: (0..events).map(event).collect(),
            critical: Vec::new(),
            named: Vec::new(),
            named_critical: Vec::new(),
            shared_with: Vec::new(),
            problems: Vec::new(),
        }
    }

    #[test]
    fn of_a_large_request_what_a_screen_can_show_is_sent() {
        let large = request(1_000_000);
        let sent = whole(&large, None);
        assert!(sent.thinned);
        assert!((8_000..8_400).contains(&sent.detail.events.len()), "{}", sent.detail.events.len());
        assert!((4_000..4_200).contains(&sent.detail.spans.len()), "{}", sent.detail.spans.len());
        assert!(sent.detail.spans.iter().all(|span| span.state == "running"));
        // A part has all that there is.
        let part = whole(&large, Some((100, 300)));
        assert_eq!((part.detail.events.len(), part.thinned), (201, false));
        assert_eq!(part.detail.spans.iter().filter(|span| span.state == "disk").count(), 3);
        let small = whole(&request(1000), None);
        assert_eq!((small.detail.events.len(), small.thinned), (1000, false));
    }
}
