//! Bytes on their way: ranges that were sent and not received yet, and whose they are.
//!
//! A stream whose bytes have all arrived has no state at all, so only what is in flight takes
//! memory. Offsets count from 0 unless events carry them.

use std::collections::VecDeque;

use crate::handles::{PeerMark, RequestRef};
use crate::keys::Keys;
use crate::small_set::SmallSet;

/// A range of bytes of requests.
pub(crate) struct Range {
    start: u64,
    end: u64,
    pub refs: SmallSet<RequestRef>,
    /// The actor that sent it, and when.
    pub from: PeerMark,
    pub sent_ns: u64,
}

/// Whose the bytes are that are sent.
pub(crate) struct Sent {
    pub refs: SmallSet<RequestRef>,
    /// The actor that sent them, and when.
    pub from: PeerMark,
    pub sent_ns: u64,
}

/// What is at a place: a stream with something to say, or nothing.
#[derive(Default)]
struct Stream {
    open: bool,
    /// Where the next bytes go that are sent, and come from that are received.
    sent: u64,
    received: u64,
    ranges: VecDeque<Range>,
    /// A reader that is not recorded has read the ranges and answers them: they stay until more is sent.
    answered: bool,
    /// No reader is recorded: what is sent there has left.
    leaving: bool,
}

/// Some bytes.
#[derive(Clone, Copy)]
pub(crate) struct Transfer {
    /// Where they lie, if that is known; otherwise behind those before.
    pub at: Option<u64>,
    /// How many.
    pub bytes: u64,
}

/// What a reader gets of a range.
#[derive(Clone, Copy)]
pub(crate) struct Arrival {
    /// Some of it is read.
    pub read: bool,
    /// Nothing of it is left.
    pub over: bool,
}

/// All streams of a schema.
pub(crate) struct Streams {
    pub keys: Keys,
    /// By place.
    all: Vec<Stream>,
    open: usize,
    leaving: usize,
}

/// Most streams of which it is remembered that their reader is not recorded.
const LEAVING_MAX: usize = 1 << 20;

/// What a transfer did besides moving bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Odd {
    /// Bytes received whose sending was not seen.
    pub unsent: u64,
    /// Bytes sent again, or whose range was given up because there were too many.
    pub dropped: u64,
}

impl Streams {
    /// For streams whose keys have so many bits.
    pub fn new(bits: impl IntoIterator<Item = u32>) -> Streams {
        Streams { keys: Keys::new(bits), all: Vec::new(), open: 0, leaving: 0 }
    }

    /// Number of streams with bytes in flight or offsets that differ.
    pub fn len(&self) -> usize {
        self.open
    }

    /// Makes room for all places.
    pub fn grow(&mut self) {
        if self.all.len() < self.keys.len() {
            self.all.resize_with(self.keys.len(), Stream::default);
        }
    }

    /// Gives up places where nothing is.
    pub fn sweep(&mut self) {
        if self.keys.has_many_idle(self.open + self.leaving) {
            self.keys.sweep(self.all.iter().map(|stream| stream.open | stream.leaving));
        }
    }

    /// A stream that begins here if it has nothing to say yet.
    fn opened(&mut self, place: u32) -> &mut Stream {
        let stream = &mut self.all[place as usize];
        self.open += usize::from(!stream.open);
        stream.open = true;
        stream
    }

    fn close(&mut self, place: u32) {
        let stream = &mut self.all[place as usize];
        *stream = Stream { leaving: stream.leaving, ..Stream::default() };
        self.open -= 1;
    }

    /// Bytes go into a stream. Returns a range that has no place in it: because it was there before,
    /// or because there are more than `most`.
    pub fn send(
        &mut self,
        place: u32,
        transfer: Transfer,
        what: Sent,
        most: usize,
        odd: &mut Odd,
    ) -> Option<Range> {
        let stream = self.opened(place);
        let first = transfer.at.unwrap_or(stream.sent);
        let end = first.saturating_add(transfer.bytes);
        // What was sent or received before is sent again: not by this request.
        let start = first.max(stream.sent.max(stream.received)).min(end);
        odd.dropped += start - first;
        let Sent { refs, from, sent_ns } = what;
        let range = Range { start, end, refs, from, sent_ns };
        let given_up = if range.refs.all().is_empty() {
            None
        } else if start == end {
            Some(range)
        } else {
            stream.ranges.push_back(range);
            let oldest = if stream.ranges.len() > most { stream.ranges.pop_front() } else { None };
            odd.dropped += oldest.as_ref().map_or(0, |range| range.end - range.start);
            oldest
        };
        stream.sent = stream.sent.max(end);
        self.settle(place);
        given_up
    }

    /// Bytes come out of a stream; `arrive` is called for each range that they end or are part of.
    pub fn receive(
        &mut self,
        place: u32,
        transfer: Transfer,
        odd: &mut Odd,
        mut arrive: impl FnMut(&Range, Arrival),
    ) {
        let stream = self.opened(place);
        let from = transfer.at.unwrap_or(stream.received);
        let to = from.saturating_add(transfer.bytes);
        while let Some(range) = stream.ranges.front_mut().filter(|range| range.start < to) {
            // Bytes in front of those that are read were skipped: they are over too.
            let arrival = Arrival { read: range.end > from, over: range.end <= to };
            arrive(range, arrival);
            if !arrival.over {
                range.start = to;
                break;
            }
            stream.ranges.pop_front();
        }
        stream.received = stream.received.max(to);
        if stream.received > stream.sent {
            odd.unsent += stream.received - stream.sent.max(from);
            stream.sent = stream.received;
        }
        self.settle(place);
    }

    /// Bytes come from a peer whose sending was not seen, and that would read this stream: they answer
    /// what is in flight, and `answer` is called for each such range. If nothing is, the peer is the one
    /// that asks, and what will be sent to it leaves.
    pub fn answer(&mut self, place: u32, answer: impl FnMut(&Range)) {
        let stream = &mut self.all[place as usize];
        if stream.ranges.is_empty() {
            self.leave(place);
            return;
        }
        stream.answered = true;
        stream.ranges.iter().for_each(answer);
    }

    /// The reader of this stream is not recorded.
    fn leave(&mut self, place: u32) {
        if self.leaving >= LEAVING_MAX {
            for place in 0..self.all.len() as u32 {
                self.is_read(place);
            }
        }
        let stream = &mut self.all[place as usize];
        self.leaving += usize::from(!stream.leaving);
        stream.leaving = true;
    }

    /// The reader of this stream is recorded after all.
    #[inline]
    pub fn is_read(&mut self, place: u32) {
        if std::mem::take(&mut self.all[place as usize].leaving) {
            self.leaving -= 1;
        }
    }

    /// Whether what is sent there has left.
    #[inline]
    pub fn leaves(&self, place: u32) -> bool {
        self.all[place as usize].leaving
    }

    /// Takes out ranges that have been answered, before more is sent.
    pub fn take_answered(&mut self, place: u32, mut gone: impl FnMut(&Range)) {
        let stream = &mut self.all[place as usize];
        if std::mem::take(&mut stream.answered) {
            stream.ranges.drain(..).for_each(|range| gone(&range));
            stream.received = stream.sent;
        }
    }

    /// What is in flight is gone; `gone` is called for each range.
    pub fn reset(&mut self, place: u32, mut gone: impl FnMut(&Range)) -> u64 {
        self.is_read(place);
        let stream = &self.all[place as usize];
        if !stream.open {
            return 0;
        }
        stream.ranges.iter().for_each(&mut gone);
        let bytes = stream.ranges.iter().map(|range| range.end - range.start).sum();
        self.close(place);
        bytes
    }

    /// Forgets a stream that has nothing to say.
    fn settle(&mut self, place: u32) {
        let stream = &self.all[place as usize];
        if stream.ranges.is_empty() && stream.sent == stream.received {
            self.close(place);
        }
    }
}
