//! Perfetto: one packet per entry and exit, on a track per thread; names are sent once and referred
//! to by number. Off-CPU times are on tracks below the threads'.

use std::io::Write;

use fettle_trace::perfetto::{self, Edge, SEQUENCE, field};
use fettle_trace::proto::Message;
use fettle_trace::{Switch, Trace};
use fettle_types::FunctionIndex;

use super::cast::Cast;
use crate::error::{Error, Result};
use crate::hash::FastMap;
use crate::timeline::{Event, Filter, Kind, Sink, notify};

/// The packet starts a sequence: nothing was sent before it.
const STATE_CLEARED: u64 = 1;
/// The packet refers to names sent before.
const NEEDS_STATE: u64 = 2;
/// Tracks of processes have numbers from here, tracks of threads from 1.
const PROCESS_TRACKS: u64 = 1 << 33;
/// Tracks of threads' off-CPU times, from here.
const OFF_CPU_TRACKS: u64 = 1 << 34;

pub(super) fn write(
    trace: &Trace,
    filter: Filter,
    cast: Cast,
    out: &mut dyn Write,
) -> Result<Vec<String>> {
    let mut writer =
        Writer { out, cast, sent: FastMap::default(), track: 0, packet: Message::default() };
    writer.begin()?;
    let warnings = notify(trace, filter, &mut writer)?;
    writer.off_cpu(trace)?;
    Ok(warnings)
}

struct Writer<'a> {
    out: &'a mut dyn Write,
    cast: Cast,
    /// Numbers of names that were sent, by function.
    sent: FastMap<FunctionIndex, u64>,
    track: u64,
    /// Reused for every packet.
    packet: Message,
}

impl Writer<'_> {
    /// Writes the packet, with its place in the trace.
    fn send(&mut self) -> Result<()> {
        let packet = perfetto::in_file(&self.packet);
        self.packet.0.clear();
        Ok(self.out.write_all(&packet.0)?)
    }

    fn begin(&mut self) -> Result<()> {
        self.packet
            .number(field::PACKET_SEQUENCE, SEQUENCE)
            .number(field::PACKET_FLAGS, STATE_CLEARED);
        self.send()?;
        for process in std::mem::take(&mut self.cast.processes) {
            let mut description = Message::default();
            description.number(field::PROCESS_PID, u64::from(process.pid));
            description.bytes(field::PROCESS_NAME, process.program().as_bytes());
            let mut track = Message::default();
            track.number(field::TRACK_UUID, PROCESS_TRACKS + u64::from(process.pid));
            track.message(field::TRACK_PROCESS, &description);
            self.packet.message(field::PACKET_TRACK, &track);
            self.send()?;
        }
        Ok(())
    }

    /// Writes when threads were off-CPU, if the trace has it.
    fn off_cpu(&mut self, trace: &Trace) -> Result<()> {
        let mut last = None;
        let mut result = Ok(());
        trace.for_each_switch(|switches| {
            for switch in switches {
                if result.is_ok() {
                    result = self.switched_out(switch, last != Some(switch.thread));
                    last = Some(switch.thread);
                }
            }
        })?;
        result
    }

    fn switched_out(&mut self, switch: &Switch, new_thread: bool) -> Result<()> {
        let number = OFF_CPU_TRACKS + u64::from(switch.thread);
        if new_thread {
            let thread = u64::from(switch.thread) + 1;
            let track = perfetto::track(number, Some(thread), "off-CPU");
            self.packet.message(field::PACKET_TRACK, &track);
            self.send()?;
        }
        let name: &[u8] = if switch.preempted { b"preempted" } else { b"waiting" };
        for (edge, time_ns) in [(Edge::Begin, switch.off_ns), (Edge::End, switch.on_ns)] {
            let mut event = perfetto::event(number, edge);
            if edge == Edge::Begin {
                event.bytes(field::EVENT_NAME_TEXT, name);
            }
            perfetto::at(&mut self.packet, time_ns, &event);
            self.send()?;
        }
        Ok(())
    }

    /// The number of a function's name, after sending it if it is new.
    fn name(&mut self, function: FunctionIndex) -> u64 {
        let next = self.sent.len() as u64 + 1;
        let number = *self.sent.entry(function).or_insert(next);
        if number == next {
            let mut name = Message::default();
            name.number(field::NAME_IID, number);
            name.bytes(field::NAME_NAME, self.cast.names.shown(function).as_bytes());
            let mut interned = Message::default();
            interned.message(field::INTERNED_EVENT_NAMES, &name);
            self.packet.message(field::PACKET_INTERNED, &interned);
        }
        number
    }
}

impl Sink for Writer<'_> {
    type Error = Error;

    fn thread(&mut self, index: u32) -> Result<()> {
        self.track = u64::from(index) + 1;
        let thread = self.cast.thread(index);
        let name = Cast::thread_name(&thread);
        let mut track = Message::default();
        track.number(field::TRACK_UUID, self.track);
        if thread.tid == 0 {
            // A cut-off recording knows only the thread's number.
            track.bytes(field::TRACK_NAME, name.as_bytes());
        } else {
            let mut description = Message::default();
            description.number(field::THREAD_PID, u64::from(thread.pid));
            description.number(field::THREAD_TID, u64::from(thread.tid));
            description.bytes(field::THREAD_NAME, name.as_bytes());
            track.message(field::TRACK_THREAD, &description);
        }
        self.packet.message(field::PACKET_TRACK, &track);
        self.send()
    }

    fn event(&mut self, event: &Event) -> Result<()> {
        let track_event = match event.kind {
            Kind::Entry => {
                let name = self.name(event.function);
                let mut begin = perfetto::event(self.track, Edge::Begin);
                begin.number(field::EVENT_NAME, name);
                begin
            }
            Kind::Exit => perfetto::event(self.track, Edge::End),
        };
        perfetto::at(&mut self.packet, event.time_ns, &track_event)
            .number(field::PACKET_FLAGS, NEEDS_STATE);
        self.send()
    }
}
