//! Where events come from: one source for each file or stream, merged by time.
//!
//! A source gives the time of its next event, and the event to the sink when its turn comes. So
//! memory holds one event of each source, and descriptors and threads are followed in the order of
//! time even where several files have events of one process.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::error::{Error, Result};
use crate::sink::Sink;
use crate::tracepoints::Tracepoints;

/// What sources share: where events go, and what is known of threads and descriptors.
#[derive(Debug)]
pub struct Context {
    /// Where events go.
    pub sink: Sink,
    /// What turns tracepoints and system calls into events.
    pub tracepoints: Tracepoints,
}

/// Gives events in order of time, or nearly so.
pub trait Source {
    /// The time of the next event by the foreign clock, in nanoseconds; `None` if there is none.
    /// Asking again without taking it gives the same.
    ///
    /// # Errors
    ///
    /// What makes it impossible to go on.
    fn next_ns(&mut self) -> Result<Option<u64>>;

    /// Gives that event to the sink.
    ///
    /// # Errors
    ///
    /// The sink's.
    fn take(&mut self, context: &mut Context) -> Result<()>;

    /// What could not be taken, as far as that is known before the first event.
    fn left_out(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }

    /// Reports what was lost, and what should be said, when no event is left.
    fn finish(&mut self, sink: &mut Sink);
}

/// What a source that has read its file before the first event will say in the end.
#[derive(Debug, Default)]
pub struct Remarks {
    /// What it could not take, and how many.
    pub losses: Vec<(&'static str, u64)>,
    /// What else should be said.
    pub notes: Vec<String>,
}

impl Remarks {
    /// For [`Source::left_out`].
    pub fn left_out(&self) -> Vec<(&'static str, u64)> {
        self.losses.iter().copied().filter(|(_, count)| *count > 0).collect()
    }

    /// For [`Source::finish`].
    pub fn report(&mut self, sink: &mut Sink) {
        for (reason, count) in self.losses.drain(..) {
            sink.lose(reason, count);
        }
        for note in self.notes.drain(..) {
            sink.note(note);
        }
    }
}

/// How many events pass between two checks for an interrupt.
const LOOK: u32 = 1 << 12;

/// Takes all events of all sources, merged by time.
pub(crate) fn drain(
    sources: &mut [Box<dyn Source>],
    context: &mut Context,
    stop: &dyn Fn() -> bool,
) -> Result<()> {
    let mut heads = BinaryHeap::new();
    for (place, source) in sources.iter_mut().enumerate() {
        if let Some(ns) = source.next_ns()? {
            heads.push(Reverse((ns, place)));
        }
    }
    let mut until_look = LOOK;
    while let Some(Reverse((_, place))) = heads.pop() {
        let Some(source) = sources.get_mut(place) else { continue };
        let limit = heads.peek().map_or((u64::MAX, usize::MAX), |Reverse(head)| *head);
        loop {
            source.take(context)?;
            until_look -= 1;
            if until_look == 0 {
                until_look = LOOK;
                if stop() {
                    return Err(Error::Interrupted);
                }
            }
            match source.next_ns()? {
                Some(ns) if (ns, place) > limit => {
                    heads.push(Reverse((ns, place)));
                    break;
                }
                Some(_) => {}
                None => break,
            }
        }
    }
    for source in sources {
        source.finish(&mut context.sink);
    }
    Ok(())
}
