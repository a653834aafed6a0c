//! Single calls and events: finding them, and what is around one.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;

use fettle_stats::Distribution;

use crate::timelines::{Timeline, Timelines};
use crate::track::Span;

/// Where a call is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CallId {
    /// Index of its thread.
    pub thread: u32,
    /// Its row ([`Timeline::row`]): for a call, how many are around it.
    pub depth: u32,
    /// Its number in that row.
    pub index: u32,
}

/// Which calls are meant.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// What they are.
    pub label: u32,
    /// The interval of trace time that they overlap.
    pub time_ns: Range<u64>,
    /// How long they took, both ends included.
    pub duration_ns: std::ops::RangeInclusive<u64>,
}

impl Timelines {
    /// A call.
    pub fn call(&self, id: CallId) -> Option<Span> {
        self.thread(id.thread)?.row(id.depth)?.span(id.index as usize)
    }

    /// Calls `with` on each call that is meant, depth after depth of thread after thread.
    pub fn for_each(&self, wanted: &Wanted, mut with: impl FnMut(CallId, Span)) {
        for timeline in &self.threads {
            for (depth, track) in timeline.rows() {
                let spans = track.between(wanted.time_ns.start, wanted.time_ns.end);
                let first = spans.start;
                for (at, label) in track.labels()[spans].iter().enumerate() {
                    let Some(span) = (*label == wanted.label).then(|| track.span(first + at))
                    else {
                        continue;
                    };
                    let Some(span) = span else { continue };
                    if wanted.duration_ns.contains(&span.duration_ns) {
                        let index = (first + at) as u32;
                        with(CallId { thread: timeline.thread.index, depth, index }, span);
                    }
                }
            }
        }
    }

    /// How long the calls took that are meant.
    pub fn durations(&self, wanted: &Wanted) -> Distribution {
        let mut durations = Distribution::default();
        self.for_each(wanted, |_, span| durations.add(span.duration_ns, u64::from(span.weight)));
        durations
    }

    /// The longest of the calls that are meant, longest first, and how many there are.
    pub fn longest(&self, wanted: &Wanted, limit: usize) -> (Vec<(CallId, Span)>, u64) {
        let mut count = 0;
        let mut longest = BinaryHeap::with_capacity(limit + 1);
        self.for_each(wanted, |id, span| {
            count += 1;
            longest.push(Reverse((span.duration_ns, Reverse(id))));
            if longest.len() > limit {
                longest.pop();
            }
        });
        let calls = longest.into_sorted_vec().into_iter();
        let calls = calls.filter_map(|Reverse((_, Reverse(id)))| Some((id, self.call(id)?)));
        (calls.collect(), count)
    }

    /// The first call of a function that begins after a time, or the last before it.
    pub fn next(&self, label: u32, from_ns: u64, backwards: bool) -> Option<(CallId, Span)> {
        let mut best: Option<(CallId, Span)> = None;
        for timeline in &self.threads {
            for (depth, track) in timeline.rows() {
                let labels = track.labels();
                let at = if backwards {
                    let end = track.between(0, from_ns).end;
                    labels[..end].iter().rposition(|found| *found == label)
                } else {
                    // A call that begins at exactly this time is the one that the caller is at.
                    let first = track.between(0, from_ns.saturating_add(1)).end;
                    let found = labels[first..].iter().position(|found| *found == label);
                    found.map(|at| first + at)
                };
                let Some((at, span)) = at.and_then(|at| Some((at, track.span(at)?))) else {
                    continue;
                };
                let better = best.is_none_or(|(_, known)| match backwards {
                    true => span.start_ns > known.start_ns,
                    false => span.start_ns < known.start_ns,
                });
                if better {
                    let index = at as u32;
                    best = Some((CallId { thread: timeline.thread.index, depth, index }, span));
                }
            }
        }
        best
    }
}

impl Timeline {
    /// The calls around a call, outermost first.
    pub fn callers(&self, depth: usize, span: Span) -> Vec<(usize, usize)> {
        let around = self.depths.iter().take(depth).enumerate();
        around.filter_map(|(depth, track)| Some((depth, track.around(span.start_ns)?))).collect()
    }

    /// The calls that a call made itself: their indices in the next depth.
    pub fn callees(&self, depth: usize, span: Span) -> Range<usize> {
        let Some(track) = self.depths.get(depth + 1) else { return 0..0 };
        let spans = track.between(span.start_ns, span.end_ns());
        // A call before may reach into the first nanosecond.
        let first = track.span(spans.start);
        let before = first.is_some_and(|first| first.start_ns < span.start_ns);
        spans.start + usize::from(before && !spans.is_empty())..spans.end
    }
}

#[cfg(test)]
mod tests {
    use fettle_trace::Thread;

    use super::*;
    use crate::track::Track;

    /// Two threads, each with calls of functions 0, 1, 2 in turn, of one to a hundred nanoseconds.
    fn timelines() -> Timelines {
        let mut timelines = Timelines::default();
        for index in 0..2 {
            let mut track = Track::default();
            for at in 0..300u64 {
                let (start_ns, duration_ns) = (at * 1000 + u64::from(index) * 10, at % 100 + 1);
                let label = (at % 3) as u32;
                track.push(Span { start_ns, duration_ns, label, weight: 1, off_cpu_ns: 0 });
            }
            track.finish();
            let thread = Thread { index, ..Thread::default() };
            let depths = vec![track];
            timelines.threads.push(Timeline { depths, ..Timeline::new(thread) });
        }
        timelines
    }

    #[test]
    fn the_longest_come_first_and_all_are_counted() {
        let timelines = timelines();
        let mut wanted = Wanted { label: 1, time_ns: 0..u64::MAX, duration_ns: 0..=u64::MAX };
        let (longest, count) = timelines.longest(&wanted, 3);
        let durations: Vec<u64> = longest.iter().map(|(_, span)| span.duration_ns).collect();
        assert_eq!((durations, count), (vec![100, 100, 99], 200));
        assert_eq!(timelines.durations(&wanted).count(), 200);
        wanted.duration_ns = 1..=10;
        assert!(timelines.longest(&wanted, 9).0.iter().all(|(_, span)| span.duration_ns <= 10));
        wanted.label = 7;
        assert_eq!(timelines.longest(&wanted, 9).1, 0);
    }

    #[test]
    fn next_and_previous_go_through_all_threads_in_time_order() {
        let timelines = timelines();
        let (mut now, mut seen) = (0, Vec::new());
        while let Some((id, span)) = timelines.next(2, now, false) {
            seen.push((span.start_ns, id.thread));
            now = span.start_ns;
        }
        assert_eq!(seen.len(), 200);
        assert!(seen.is_sorted());
        while let Some((id, span)) = timelines.next(2, now, true) {
            let last = seen.pop();
            now = span.start_ns;
            if seen.last() == Some(&(now, id.thread)) {
                seen.pop();
            }
            assert!(last.is_some_and(|(start, _)| start >= now));
        }
        assert!(seen.len() <= 1);
    }
}
