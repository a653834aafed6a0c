//! Spans of tracing libraries that a request is made of: which called which, and which of them would have had to
//! be faster for the request to be over earlier.

use rustc_hash::FxHashMap;

use crate::view::{EventRow, NamedSpan, NamedStep};

/// The spans that events report, each before its children, those of one parent in order of time.
pub(crate) fn spans(events: &[EventRow], end_ns: u64) -> Vec<NamedSpan> {
    let mut found: Vec<NamedSpan> = Vec::new();
    let mut parents: Vec<String> = Vec::new();
    let mut known: FxHashMap<&str, usize> = FxHashMap::default();
    for event in events {
        let text = |wanted: &str| {
            let field = event.fields.iter().find(|(name, _)| name == wanted);
            field.map(|(_, value)| value.as_str()).unwrap_or_default()
        };
        match event.name.as_str() {
            "span_begin" => {
                known.insert(text("span"), found.len());
                parents.push(text("parent").to_owned());
                found.push(NamedSpan {
                    service: text("service").to_owned(),
                    name: text("name").to_owned(),
                    from_ns: event.time_ns,
                    to_ns: end_ns.max(event.time_ns),
                    candidates: text("candidates").parse().unwrap_or(0),
                    likely: text("likely").parse().unwrap_or(0),
                    ..NamedSpan::default()
                });
            }
            "span_end" => {
                if let Some(span) = known.get(text("span")).and_then(|at| found.get_mut(*at)) {
                    span.to_ns = event.time_ns.max(span.from_ns);
                    span.status = text("status").to_owned();
                }
            }
            _ => {}
        }
    }
    let parents = parents
        .iter()
        .enumerate()
        .map(|(at, parent)| known.get(parent.as_str()).copied().filter(|parent| *parent != at));
    in_order(found, &parents.collect::<Vec<_>>())
}

/// Spans, each before its children. What is in a circle begins at one of its spans.
fn in_order(found: Vec<NamedSpan>, parents: &[Option<usize>]) -> Vec<NamedSpan> {
    let mut children: Vec<Vec<usize>> = vec![Vec::new(); found.len()];
    for (at, parent) in parents.iter().enumerate() {
        if let Some(parent) = parent {
            children[*parent].push(at);
        }
    }
    let mut places: Vec<Option<usize>> = vec![None; found.len()];
    let mut spans: Vec<Option<NamedSpan>> = found.into_iter().map(Some).collect();
    let mut ordered: Vec<NamedSpan> = Vec::with_capacity(spans.len());
    let roots = (0..spans.len()).filter(|at| parents[*at].is_none());
    for start in roots.chain(0..parents.len()) {
        let mut open = vec![(start, None)];
        while let Some((at, parent)) = open.pop() {
            let Some(mut span) = spans[at].take() else { continue };
            span.parent = parent;
            span.depth = parent.map_or(0, |parent: usize| ordered[parent].depth + 1);
            places[at] = Some(ordered.len());
            open.extend(children[at].iter().rev().map(|child| (*child, places[at])));
            ordered.push(span);
        }
    }
    ordered
}

/// The critical path of spans: backwards from the last end, always into the child that ended last before.
pub(crate) fn critical(spans: &[NamedSpan]) -> Vec<NamedStep> {
    // When all that a span began was over: children may outlive it.
    let mut over: Vec<u64> = spans.iter().map(|span| span.to_ns).collect();
    let mut children: Vec<Vec<usize>> = vec![Vec::new(); spans.len()];
    for (at, span) in spans.iter().enumerate().rev() {
        if let Some(parent) = span.parent {
            over[parent] = over[parent].max(over[at]);
            children[parent].push(at);
        }
    }
    let latest_first =
        |places: &mut Vec<usize>| places.sort_by_key(|at| std::cmp::Reverse(over[*at]));
    children.iter_mut().for_each(latest_first);
    let mut roots: Vec<usize> = (0..spans.len()).filter(|at| spans[*at].parent.is_none()).collect();
    latest_first(&mut roots);
    let mut steps = Vec::new();
    let mut now_ns = u64::MAX;
    for root in roots {
        // What ran beside the one that ended later did not hold it up.
        if over[root] > now_ns {
            continue;
        }
        let mut open = vec![(root, over[root], 0)];
        while let Some((at, until_ns, next)) = open.pop() {
            let span = &spans[at];
            let mut step = |from_ns: u64, to_ns: u64| {
                if from_ns < to_ns {
                    steps.push(NamedStep { span: at, from_ns, to_ns });
                }
            };
            match children[at].get(next) {
                Some(child) if over[*child] <= until_ns => {
                    step(over[*child].max(span.from_ns), until_ns.min(span.to_ns));
                    open.push((at, spans[*child].from_ns.min(until_ns), next + 1));
                    open.push((*child, over[*child], 0));
                }
                Some(_) => open.push((at, until_ns, next + 1)),
                None => step(span.from_ns, until_ns.min(span.to_ns)),
            }
        }
        now_ns = spans[root].from_ns;
    }
    steps.reverse();
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(time_ns: u64, name: &str, fields: &[(&str, &str)]) -> EventRow {
        let fields = fields.iter().map(|(name, value)| (name.to_string(), value.to_string()));
        let fields = fields.collect();
        EventRow { time_ns, name: name.to_owned(), actor: None, fields, shared: false }
    }

    /// Spans by name: begin, end, parent.
    fn story(spans: &[(&str, u64, u64, &str)]) -> Vec<NamedSpan> {
        let mut events = Vec::new();
        for (name, from, to, parent) in spans {
            events.push(event(
                *from,
                "span_begin",
                &[("span", name), ("parent", parent), ("name", name)],
            ));
            events.push(event(*to, "span_end", &[("span", name), ("status", "ok")]));
        }
        events.sort_by_key(|event| event.time_ns);
        super::spans(&events, 100)
    }

    fn shown(spans: &[NamedSpan]) -> String {
        let step =
            |step: NamedStep| format!("{}{}-{}", spans[step.span].name, step.from_ns, step.to_ns);
        critical(spans).into_iter().map(step).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn each_span_comes_before_its_children() {
        let spans =
            story(&[("a", 0, 10, ""), ("c", 6, 9, "a"), ("b", 1, 5, "a"), ("d", 2, 3, "b")]);
        let order: Vec<_> = spans.iter().map(|span| (span.name.as_str(), span.depth)).collect();
        assert_eq!(order, [("a", 0), ("b", 1), ("d", 2), ("c", 1)]);
        assert_eq!(spans[3].parent, Some(0));
        // Circles and parents that are not there end the search all the same.
        assert_eq!(story(&[("a", 0, 1, "b"), ("b", 2, 3, "a"), ("c", 4, 5, "x")]).len(), 3);
        assert_eq!(story(&[("a", 0, 1, "a")]).len(), 1);
    }

    #[test]
    fn the_critical_path_goes_into_the_child_that_ended_last() {
        // Two at once: the longer one counts.
        let spans =
            story(&[("a", 0, 20, ""), ("b", 2, 8, "a"), ("c", 3, 12, "a"), ("d", 14, 18, "a")]);
        assert_eq!(shown(&spans), "a0-3 c3-12 a12-14 d14-18 a18-20");
        // A child that outlives its parent holds the request up.
        let spans = story(&[("a", 0, 6, ""), ("b", 5, 9, "a")]);
        assert_eq!(shown(&spans), "a0-5 b5-9");
        // One after the other, without a parent.
        assert_eq!(shown(&story(&[("a", 0, 2, ""), ("b", 3, 4, "x")])), "a0-2 b3-4");
    }
}
