//! Kernel events of a recording that goes on, as they are stored.
//!
//! What the recorder has emptied the kernel's rings into is read while it is written, and decoded
//! by the same code that makes the trace of it in the end: the same events in the same order.
//! Calls have no such end to hold on to: they are stored when they end.

use std::io;
use std::path::Path;

use fettle_kernel_events::Event;
use fettle_kernel_events::decode::{Decoder, Sink};
use fettle_kernel_events::spool::{Moment, Reader};
use fettle_trace::{Clock, EventKind};

use crate::kernel;

/// Takes events as they come, in order of time.
pub trait Listener {
    /// The code of a text, for values.
    fn text(&mut self, text: &str) -> u32;

    /// An event: its kind's place in [`kinds`], nanoseconds of trace time, and the values of its
    /// fields, `cpu` first.
    fn event(&mut self, kind: usize, time_ns: u64, values: &[u64]);
}

/// The kinds that may come, as a trace has them.
pub fn kinds() -> Vec<EventKind> {
    let kind = |event: &Event| EventKind::declared(event.name(), &kernel::fields(*event));
    Event::ALL.iter().map(kind).collect()
}

/// The kernel events of a recording that goes on.
pub struct Tail {
    reader: Reader,
    decoder: Decoder,
    begin_ns: u64,
    order: Order,
}

impl Tail {
    /// Begins with the first event. `None` if the recording stores none, or none yet.
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn open(trace: &Path, clock: &Clock) -> io::Result<Option<Tail>> {
        let begin = clock.begin.unwrap_or_default();
        let begin = Moment { tsc: begin.tsc, monotonic_ns: begin.monotonic_ns };
        let reader = match Reader::open(&kernel::spool_path(trace), begin) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            reader => reader?,
        };
        let (decoder, begin_ns) = (Decoder::new(), begin.monotonic_ns);
        Ok(Some(Tail { reader, decoder, begin_ns, order: Order::default() }))
    }

    /// Reports what has come since the last time and is in order for certain. Returns before when, in
    /// nanoseconds of trace time, nothing else will come.
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn poll(&mut self, listener: &mut dyn Listener) -> io::Result<u64> {
        let Tail { reader, decoder, begin_ns, order } = self;
        let mut sink = ToListener { listener, begin_ns: *begin_ns, order };
        reader.poll(|_, cpu, record| decoder.record(cpu, record, &mut sink))?;
        let reported_ns = reader.reported_ns().saturating_sub(*begin_ns);
        sink.before(reported_ns);
        Ok(reported_ns)
    }

    /// Reports all of the rest: nothing is written any more.
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn finish(&mut self, listener: &mut dyn Listener) -> io::Result<()> {
        let Tail { reader, decoder, begin_ns, order } = self;
        let mut sink = ToListener { listener, begin_ns: *begin_ns, order };
        reader.finish(|_, cpu, record| decoder.record(cpu, record, &mut sink))?;
        sink.before(u64::MAX);
        Ok(())
    }
}

/// Events of one time are reported in order of their kinds' names, as in a trace. So they wait for those
/// that may still come with the same time.
#[derive(Default)]
struct Order {
    waiting: Vec<(u64, Event, Vec<u64>)>,
}

struct ToListener<'a> {
    listener: &'a mut dyn Listener,
    begin_ns: u64,
    order: &'a mut Order,
}

impl ToListener<'_> {
    /// Reports what happened before a time.
    fn before(&mut self, time_ns: u64) {
        let waiting = &mut self.order.waiting;
        if waiting.iter().all(|(ns, ..)| *ns >= time_ns) {
            return;
        }
        waiting.sort_by_key(|(ns, event, _)| (*ns, event.name()));
        let ready = waiting.partition_point(|(ns, ..)| *ns < time_ns);
        for (ns, event, values) in waiting.drain(..ready) {
            self.listener.event(event as usize, ns, &values);
        }
    }
}

impl Sink for ToListener<'_> {
    type Error = io::Error;

    fn text(&mut self, text: &str) -> u32 {
        self.listener.text(text)
    }

    fn event(
        &mut self,
        event: Event,
        time_ns: u64,
        cpu: u32,
        values: &[u64],
    ) -> Result<(), io::Error> {
        let now_ns = time_ns.saturating_sub(self.begin_ns);
        self.before(now_ns);
        let values = std::iter::once(u64::from(cpu)).chain(values.iter().copied()).collect();
        self.order.waiting.push((kernel::reported_ns(event, now_ns), event, values));
        Ok(())
    }
}
