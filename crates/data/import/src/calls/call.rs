//! A call in memory.

use fettle_abi::rpc;

use crate::spans::Found;

/// A call as one of its sides reported it.
#[derive(Debug)]
pub struct Call {
    /// When it began.
    pub began_ns: u64,
    /// When it ended.
    pub time_ns: u64,
    /// Which of the files it is in: a process has a number in one system only.
    pub file: u32,
    /// The process.
    pub pid: u32,
    /// The thread.
    pub tid: u32,
    /// Method, status and end.
    pub what: rpc::What,
    /// How many messages were received and sent.
    pub counts: u64,
    /// Bytes of the messages that were sent.
    pub sent_bytes: u64,
    /// Bytes of those that were received.
    pub received_bytes: u64,
    /// The trace's id, the upper half first.
    pub trace: [u64; 2],
    /// Its own id.
    pub span: u64,
    /// The id of the call that it belongs to; 0 if none is known.
    pub parent: u64,
    /// Words with the fields that are marked.
    pub values: Vec<u64>,
    /// How its parent was found, if not by an id.
    pub found: Option<Found>,
}

impl Call {
    /// Whether it is the server's side.
    pub fn is_server(&self) -> bool {
        self.what.flags & rpc::SERVER != 0
    }
}
