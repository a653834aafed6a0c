//! Messages in the bytes that go over connections.
//!
//! A read is not a message: one read brings several, and a message comes in several reads. Besides,
//! recordings keep only the first bytes of each. [`Connections`] takes what was sent and received
//! on each socket, with as many bytes as are known, finds out which protocol it is, and reports which
//! side *asks* what and when it is *answered*, under a number that both have: the *exchange*.
//!
//! ```text
//! bytes of a call ──> lane (one direction) ──> decoder: a step ──> asks and answers
//!                     what is in between              │
//!                     is skipped by its length        └ or: more bytes, lost, given up
//! ```
//!
//! Nothing is guessed. Where bytes that matter are missing, the connection is *out of step*: what
//! waits for an answer is forgotten and counted, and messages are reported again from where a request
//! begins for certain. Where that cannot be known (requests that do not wait for answers, tables
//! that both ends keep) the connection is given up, with its [`Reason`].
//!
//! No I/O; bytes in, messages out, whatever the bytes.
#![forbid(unsafe_code)]
// Bytes from the network are never trusted to be as many as they say.
#![cfg_attr(not(test), warn(clippy::indexing_slicing))]

mod amqp;
mod connection;
mod counts;
mod decoder;
mod exchanges;
mod fastcgi;
mod fields;
mod hpack;
mod http1;
mod http2;
mod huffman;
mod ids;
mod kafka;
mod memcached;
mod message;
mod mqtt;
mod mysql;
mod nats;
mod postgres;
mod recognise;
mod resp;
mod text;
mod websocket;

use rustc_hash::FxHashMap;

use crate::connection::Connection;

pub use counts::{Counts, Reason};
pub use message::{Ids, Message, NO_REPLY, Side, UNSEEN, What};

/// Connections at once; beyond, one that nothing waits on is forgotten.
const CONNECTIONS: usize = 1 << 16;

/// The connections of a recording.
#[derive(Debug, Default)]
pub struct Connections {
    open: FxHashMap<u64, Connection>,
    counts: Counts,
}

impl Connections {
    /// None so far.
    pub fn new() -> Connections {
        Connections::default()
    }

    /// Bytes went over a socket: `bytes` of them, of which the first are `known`. Tells the messages
    /// that they begin or complete. Returns why the connection is given up, if that is now.
    pub fn transfer(
        &mut self,
        socket: u64,
        side: Side,
        known: &[u8],
        bytes: u64,
        notify: &mut dyn FnMut(Message<'_>),
    ) -> Option<Reason> {
        if self.open.len() >= CONNECTIONS && !self.open.contains_key(&socket) {
            self.counts.forgotten += self.open.len() as u64;
            self.open.clear();
        }
        let most = usize::try_from(bytes).unwrap_or(usize::MAX);
        let known = known.get(..most).unwrap_or(known);
        let connection = self.open.entry(socket).or_default();
        let given_up = connection.transfer(side, known, bytes, &mut self.counts, notify);
        if let Some(reason) = given_up {
            let count = self.counts.given_up.get_mut(reason as usize);
            *count.expect("there is one for each reason") += 1;
        }
        given_up
    }

    /// The socket is closed, or another connection has its number.
    pub fn close(&mut self, socket: u64) {
        self.open.remove(&socket);
    }

    /// What was reported so far.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }
}
