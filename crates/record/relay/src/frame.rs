//! The wire format: frames of sixteen bytes and a payload.
//!
//! ```text
//! 0  kind     u8     what it is
//! 1  content  u8     of `Append`: whose records; of `Blob`: which
//! 2  flags    u16    of `Blob`: first and last part; of `Refused`: come again
//! 4  number   u32    of `Append`: the thread; of `Blob`: the part; of `Hello`: the version
//! 8  records  u32    of `Append`: how many
//! 12 len      u32    bytes of the payload
//! ```
//!
//! All little-endian. `Append` and `Blob` are what a recording consists of. Their bytes, heads
//! included, are numbered from the recording's first on: an *offset* is a position between two of
//! them, the same on both sides. `docs/internals/relay.md` has the rest.

use std::io::{self, Read};

use crate::error::FrameError;
pub use crate::kind::Kind;

/// Version of the protocol. A collector refuses recorders of another one.
pub const VERSION: u32 = 1;
/// Bytes of a frame's head.
pub const HEAD: usize = 16;
/// Threads of a recording are numbered below this.
pub const THREADS_MAX: u32 = 1 << 20;

/// The kind of a stream's records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Content {
    /// Calls of one thread.
    Calls = 0,
    /// Arguments and results of calls.
    Values = 1,
    /// When the thread was switched out.
    Switches = 2,
    /// Events of the kernel.
    Kernel = 3,
}

impl Content {
    /// All of them, by number.
    pub const ALL: [Content; 4] =
        [Content::Calls, Content::Values, Content::Switches, Content::Kernel];

    /// Bytes of a record, if all have as many.
    pub fn record_bytes(self) -> Option<usize> {
        match self {
            Content::Calls | Content::Values => Some(16),
            Content::Switches => Some(24),
            Content::Kernel => None,
        }
    }

    /// Its records, for people.
    pub fn noun(self) -> &'static str {
        match self {
            Content::Calls => "records of calls",
            Content::Values => "cells of arguments",
            Content::Switches => "records of switches",
            Content::Kernel => "kernel events",
        }
    }
}

/// One series of records: a file of the trace that is being recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Stream {
    /// What its records are.
    pub content: Content,
    /// The thread; 0 for the kernel's.
    pub thread: u32,
}

/// Something that has to arrive whole before it can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Blob {
    /// Names that records refer to, as far as they are known.
    Checkpoint = 0,
    /// All that is known when the recording has ended.
    Ending = 1,
}

/// The first part of a blob.
pub const FIRST: u16 = 1;
/// The last part of a blob.
pub const LAST: u16 = 2;
/// The collector may accept it later.
pub const AGAIN: u16 = 1;

/// A frame's head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// What it is.
    pub kind: Kind,
    /// Number of a [`Content`] or [`Blob`], 0 otherwise.
    pub content: u8,
    /// See [`FIRST`], [`LAST`] and [`AGAIN`].
    pub flags: u16,
    /// Thread, part or version.
    pub number: u32,
    /// Records in the payload.
    pub records: u32,
    /// Bytes of the payload.
    pub len: u32,
}

impl Head {
    /// A head without anything but a payload.
    pub fn new(kind: Kind, len: usize) -> Head {
        Head { kind, content: 0, flags: 0, number: 0, records: 0, len: len as u32 }
    }

    /// Records of a stream.
    pub fn append(stream: Stream, records: u32, len: usize) -> Head {
        let (content, number) = (stream.content as u8, stream.thread);
        Head { content, number, records, ..Head::new(Kind::Append, len) }
    }

    /// A part of a blob.
    pub fn blob(blob: Blob, part: u32, flags: u16, len: usize) -> Head {
        Head { content: blob as u8, number: part, flags, ..Head::new(Kind::Blob, len) }
    }

    /// Whether the frame is part of the recording.
    pub fn is_stored(&self) -> bool {
        matches!(self.kind, Kind::Append | Kind::Blob)
    }

    /// Bytes of the whole frame.
    pub fn frame_bytes(&self) -> u64 {
        HEAD as u64 + u64::from(self.len)
    }

    /// The stream that records belong to.
    pub fn stream(&self) -> Option<Stream> {
        if self.kind != Kind::Append {
            return None;
        }
        let content = *Content::ALL.get(usize::from(self.content))?;
        Some(Stream { content, thread: self.number })
    }

    /// The blob that this is a part of.
    pub fn blob_of(&self) -> Option<Blob> {
        match (self.kind, self.content) {
            (Kind::Blob, 0) => Some(Blob::Checkpoint),
            (Kind::Blob, 1) => Some(Blob::Ending),
            _ => None,
        }
    }

    /// Its bytes.
    pub fn encode(&self) -> [u8; HEAD] {
        let mut bytes = [0; HEAD];
        bytes[0] = self.kind as u8;
        bytes[1] = self.content;
        bytes[2..4].copy_from_slice(&self.flags.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.number.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.records.to_le_bytes());
        bytes[12..].copy_from_slice(&self.len.to_le_bytes());
        bytes
    }

    /// Reads and checks a head. What it claims is not trusted beyond that.
    ///
    /// # Errors
    ///
    /// When no recorder or collector of this version can have sent it.
    pub fn decode(bytes: &[u8; HEAD]) -> Result<Head, FrameError> {
        let word = |at: usize| u32::from_le_bytes([0, 1, 2, 3].map(|n| bytes[at + n]));
        let kind = Kind::ALL.into_iter().find(|kind| *kind as u8 == bytes[0]);
        let kind = kind.ok_or(FrameError::Kind(bytes[0]))?;
        let flags = u16::from_le_bytes([bytes[2], bytes[3]]);
        let (number, records, len) = (word(4), word(8), word(12));
        let head = Head { kind, content: bytes[1], flags, number, records, len };
        if len as usize > kind.payload_max() {
            return Err(FrameError::Long { kind, len });
        }
        let bad = |field, value| Err(FrameError::Field { kind, field, value });
        match kind {
            Kind::Append => {
                let Some(stream) = head.stream() else {
                    return bad("content", head.content.into());
                };
                if number >= THREADS_MAX || (stream.content == Content::Kernel && number != 0) {
                    return bad("thread", number.into());
                }
                let fits = match stream.content.record_bytes() {
                    Some(bytes) => u64::from(records) * bytes as u64 == u64::from(len),
                    None => records <= len,
                };
                if !fits {
                    return bad("number of records", records.into());
                }
                if flags != 0 {
                    return bad("flags", flags.into());
                }
            }
            Kind::Blob => {
                if head.blob_of().is_none() {
                    return bad("content", head.content.into());
                }
                if (flags & FIRST != 0) != (number == 0) || flags & !(FIRST | LAST) != 0 {
                    return bad("part", number.into());
                }
            }
            _ if head.content != 0 => return bad("content", head.content.into()),
            _ => {}
        }
        Ok(head)
    }
}

/// Reads a frame; its payload replaces what is in `payload`.
///
/// # Errors
///
/// Those of the reader as [`io::Error`], those of the frame inside of one.
pub fn read_frame(from: &mut impl Read, payload: &mut Vec<u8>) -> crate::Result<Head> {
    let mut head = [0; HEAD];
    from.read_exact(&mut head).map_err(crate::Error::Cut)?;
    let head = Head::decode(&head)?;
    payload.clear();
    // The buffer grows with what arrives, not with what is claimed.
    let read = from.by_ref().take(u64::from(head.len)).read_to_end(payload);
    if read.map_err(crate::Error::Cut)? < head.len as usize {
        return Err(crate::Error::Cut(io::ErrorKind::UnexpectedEof.into()));
    }
    Ok(head)
}

/// Numbers of records by content.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Counts(pub [u64; 4]);

impl Counts {
    /// Adds those of a frame.
    pub fn add(&mut self, head: &Head) {
        if let Some(stream) = head.stream() {
            let of = &mut self.0[stream.content as usize];
            *of = of.saturating_add(u64::from(head.records));
        }
    }

    /// Adds others.
    pub fn add_all(&mut self, other: &Counts) {
        for (of, more) in self.0.iter_mut().zip(other.0) {
            *of = of.saturating_add(more);
        }
    }

    /// All together.
    pub fn sum(&self) -> u64 {
        self.0.iter().fold(0, |sum, n| sum.saturating_add(*n))
    }

    /// Those that are not 0.
    pub fn some(&self) -> impl Iterator<Item = (Content, u64)> {
        Content::ALL.into_iter().zip(self.0).filter(|(_, count)| *count > 0)
    }
}

impl std::fmt::Display for Counts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (place, (content, count)) in self.some().enumerate() {
            let comma = if place == 0 { "" } else { ", " };
            write!(f, "{comma}{count} {}", content.noun())?;
        }
        if self.sum() == 0 { write!(f, "no records") } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kind::PAYLOAD_MAX;

    #[test]
    fn what_is_encoded_is_decoded() {
        let stream = Stream { content: Content::Switches, thread: 7 };
        let heads = [
            Head::append(stream, 3, 72),
            Head::blob(Blob::Ending, 0, FIRST, 100),
            Head::blob(Blob::Checkpoint, 5, LAST, PAYLOAD_MAX),
            Head { number: VERSION, ..Head::new(Kind::Hello, 60) },
        ];
        for head in heads {
            assert_eq!(Head::decode(&head.encode()), Ok(head));
        }
        assert_eq!(heads[0].stream(), Some(stream));
        assert_eq!(heads[1].blob_of(), Some(Blob::Ending));
    }

    #[test]
    fn what_nobody_can_have_sent_is_refused() {
        let calls = Stream { content: Content::Calls, thread: 0 };
        let good = Head::append(calls, 2, 32);
        let kernel = Stream { content: Content::Kernel, thread: 1 };
        let bad = [
            Head { len: PAYLOAD_MAX as u32 + 1, ..good },
            Head { records: 3, ..good },
            Head { number: THREADS_MAX, ..good },
            Head { content: 4, ..good },
            Head { flags: 1, ..good },
            Head::append(kernel, 1, 30),
            Head::blob(Blob::Ending, 1, FIRST, 10),
            Head::blob(Blob::Ending, 0, 0, 10),
            Head::new(Kind::Sync, 5000),
        ];
        for head in bad {
            assert!(Head::decode(&head.encode()).is_err(), "{head:?}");
        }
        assert_eq!(Head::decode(&[0; HEAD]), Err(FrameError::Kind(0)));
        assert_eq!(Head::decode(&[200; HEAD]), Err(FrameError::Kind(200)));
    }
}
