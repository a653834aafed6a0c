//! Kinds of frames.

/// The kind of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// Recorder: its identity.
    Hello = 1,
    /// Collector: the offset to start at.
    Welcome = 2,
    /// Recorder: the manifest of a recording that is new to the collector.
    Begin = 3,
    /// Recorder: a stretch that was dropped, and the records in it.
    Gap = 4,
    /// Recorder: records of a stream.
    Append = 5,
    /// Recorder: a part of something larger.
    Blob = 6,
    /// Recorder: asks for an `Ack`.
    Sync = 7,
    /// Collector: the offset up to which all is on disk.
    Ack = 8,
    /// Recorder: there will be no more, though the recording did not end properly.
    Bye = 9,
    /// Collector: the result of a whole recording.
    Done = 10,
    /// Collector: why it ends the connection.
    Refused = 11,
}

impl Kind {
    pub(crate) const ALL: [Kind; 11] = [
        Kind::Hello,
        Kind::Welcome,
        Kind::Begin,
        Kind::Gap,
        Kind::Append,
        Kind::Blob,
        Kind::Sync,
        Kind::Ack,
        Kind::Bye,
        Kind::Done,
        Kind::Refused,
    ];

    /// Most bytes of its payload.
    pub(crate) fn payload_max(self) -> usize {
        match self {
            Kind::Hello | Kind::Welcome | Kind::Gap | Kind::Sync | Kind::Ack | Kind::Bye => 4096,
            Kind::Append | Kind::Blob => PAYLOAD_MAX,
            Kind::Begin | Kind::Done => MANIFEST_MAX,
            Kind::Refused => 4096,
        }
    }
}

/// Most bytes of a stored frame's payload.
pub const PAYLOAD_MAX: usize = 1 << 20;

/// Most bytes of the payload of `Begin` and `Done`, which hold a manifest.
pub const MANIFEST_MAX: usize = 8 << 20;
