//! Perfetto's packets, as far as exports need them: tracks, and slices that begin and end on them.
//!
//! A file is a list of packets. All of ours belong to one sequence, so they are read in the order in which
//! they are written. Field numbers are those of Perfetto's `protos/perfetto/trace/*.proto`.

use crate::proto::Message;

/// Field numbers that exports use.
pub mod field {
    /// `Trace.packet`
    pub const TRACE_PACKET: u32 = 1;
    /// `TracePacket.timestamp`, in nanoseconds
    pub const PACKET_TIMESTAMP: u32 = 8;
    /// `TracePacket.trusted_packet_sequence_id`
    pub const PACKET_SEQUENCE: u32 = 10;
    /// `TracePacket.track_event`
    pub const PACKET_TRACK_EVENT: u32 = 11;
    /// `TracePacket.interned_data`
    pub const PACKET_INTERNED: u32 = 12;
    /// `TracePacket.sequence_flags`
    pub const PACKET_FLAGS: u32 = 13;
    /// `TracePacket.track_descriptor`
    pub const PACKET_TRACK: u32 = 60;
    /// `TrackDescriptor.uuid`
    pub const TRACK_UUID: u32 = 1;
    /// `TrackDescriptor.name`
    pub const TRACK_NAME: u32 = 2;
    /// `TrackDescriptor.process`
    pub const TRACK_PROCESS: u32 = 3;
    /// `TrackDescriptor.thread`
    pub const TRACK_THREAD: u32 = 4;
    /// `TrackDescriptor.parent_uuid`
    pub const TRACK_PARENT: u32 = 5;
    /// `ProcessDescriptor.pid`
    pub const PROCESS_PID: u32 = 1;
    /// `ProcessDescriptor.process_name`
    pub const PROCESS_NAME: u32 = 6;
    /// `ThreadDescriptor.pid`
    pub const THREAD_PID: u32 = 1;
    /// `ThreadDescriptor.tid`
    pub const THREAD_TID: u32 = 2;
    /// `ThreadDescriptor.thread_name`
    pub const THREAD_NAME: u32 = 5;
    /// `TrackEvent.debug_annotations`
    pub const EVENT_ANNOTATION: u32 = 4;
    /// `TrackEvent.type`
    pub const EVENT_TYPE: u32 = 9;
    /// `TrackEvent.name_iid`
    pub const EVENT_NAME: u32 = 10;
    /// `TrackEvent.track_uuid`
    pub const EVENT_TRACK: u32 = 11;
    /// `TrackEvent.name`
    pub const EVENT_NAME_TEXT: u32 = 23;
    /// `DebugAnnotation.bool_value`
    pub const ANNOTATION_BOOL: u32 = 2;
    /// `DebugAnnotation.uint_value`
    pub const ANNOTATION_UINT: u32 = 3;
    /// `DebugAnnotation.string_value`
    pub const ANNOTATION_TEXT: u32 = 6;
    /// `DebugAnnotation.name`
    pub const ANNOTATION_NAME: u32 = 10;
    /// `InternedData.event_names`
    pub const INTERNED_EVENT_NAMES: u32 = 2;
    /// `EventName.iid`
    pub const NAME_IID: u32 = 1;
    /// `EventName.name`
    pub const NAME_NAME: u32 = 2;
}

/// All packets belong to one sequence.
pub const SEQUENCE: u64 = 1;

/// Which end of a slice an event is: `TrackEvent.Type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edge {
    /// `TYPE_SLICE_BEGIN`
    Begin = 1,
    /// `TYPE_SLICE_END`
    End = 2,
}

/// A track with a name, which may lie below another.
pub fn track(uuid: u64, parent: Option<u64>, name: &str) -> Message {
    let mut track = Message::default();
    track.number(field::TRACK_UUID, uuid).bytes(field::TRACK_NAME, name.as_bytes());
    if let Some(parent) = parent {
        track.number(field::TRACK_PARENT, parent);
    }
    track
}

/// An end of a slice; the name of one that begins is the caller's to add.
pub fn event(track: u64, edge: Edge) -> Message {
    let mut event = Message(Vec::with_capacity(32));
    event.number(field::EVENT_TYPE, edge as u64).number(field::EVENT_TRACK, track);
    event
}

/// Adds an event and its time to a packet.
pub fn at<'a>(packet: &'a mut Message, time_ns: u64, event: &Message) -> &'a mut Message {
    packet
        .number(field::PACKET_TIMESTAMP, time_ns)
        .number(field::PACKET_SEQUENCE, SEQUENCE)
        .message(field::PACKET_TRACK_EVENT, event)
}

/// A packet as it stands in a file.
pub fn in_file(packet: &Message) -> Message {
    let mut file = Message::default();
    file.message(field::TRACE_PACKET, packet);
    file
}
