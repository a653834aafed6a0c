//! Which requests events belong to.

use fettle_follow::Context;
use fettle_requests::Request;

/// Events held at most: those of later requests are not known.
const EVENTS_MAX: usize = 1 << 27;
/// What is in the place of a thread where an event has none.
const NO_THREAD: u32 = u32::MAX;

/// Requests by thread and time of their events.
#[derive(Debug, Default)]
pub(crate) struct Owners {
    /// In order, when all are there.
    events: Vec<Owned>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Owned {
    tid: u32,
    time_ns: u64,
    /// Place of the request.
    place: u32,
}

impl Owners {
    /// Adds the events of a request.
    pub(crate) fn add(&mut self, request: &Request, context: &Context<'_>, place: u32) {
        if self.events.len() + request.events.len() > EVENTS_MAX {
            return;
        }
        let thread = |section: &fettle_requests::RequestSection| {
            let at_ns = section.joined_ns;
            let actor = context.actor(request, section.timeline, section.key, at_ns);
            actor.tid.unwrap_or(NO_THREAD)
        };
        let threads: Vec<u32> = request
            .sections
            .iter()
            .map(|section| match section.actor {
                true => thread(section),
                false => NO_THREAD,
            })
            .collect();
        self.events.extend(request.events.iter().map(|event| {
            let actor = event.actor().and_then(|section| threads.get(section as usize));
            Owned { tid: actor.copied().unwrap_or(NO_THREAD), time_ns: event.time_ns, place }
        }));
    }

    /// All are there; requests are elsewhere now, by their places before.
    pub(crate) fn finish(&mut self, places: &[u32]) {
        for event in &mut self.events {
            event.place = places.get(event.place as usize).copied().unwrap_or(event.place);
        }
        self.events.sort_unstable();
        self.events.dedup();
        self.events.shrink_to_fit();
    }

    /// Places of the requests with an event of a thread at a time. What is of no thread counts where it is of one
    /// request alone.
    pub(crate) fn at(&self, tid: u32, time_ns: u64) -> Vec<u32> {
        let of = |tid: u32| {
            let from =
                self.events.partition_point(|event| (event.tid, event.time_ns) < (tid, time_ns));
            let rest = self.events.get(from..).unwrap_or_default();
            let there =
                rest.iter().take_while(|event| (event.tid, event.time_ns) == (tid, time_ns));
            there.map(|event| event.place).collect::<Vec<u32>>()
        };
        let found = of(tid);
        if !found.is_empty() {
            return found;
        }
        let found = of(NO_THREAD);
        if found.len() == 1 { found } else { Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_lead_to_their_requests() {
        let event = |tid, time_ns, place| Owned { tid, time_ns, place };
        let mut owners = Owners {
            events: vec![
                event(7, 20, 0),
                event(7, 10, 1),
                event(7, 10, 0),
                event(7, 10, 1),
                event(NO_THREAD, 30, 1),
                event(NO_THREAD, 40, 0),
                event(NO_THREAD, 40, 1),
            ],
        };
        // The second began first.
        owners.finish(&[1, 0]);
        assert_eq!(owners.at(7, 10), [0, 1]);
        assert_eq!(owners.at(7, 20), [1]);
        assert_eq!((owners.at(7, 11), owners.at(8, 10)), (vec![], vec![]));
        assert_eq!((owners.at(8, 30), owners.at(8, 40)), (vec![0], vec![]));
    }
}
