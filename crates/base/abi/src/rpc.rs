//! The events by which generated RPC stubs report calls.
//!
//! All services of a process share one list, [`SENSOR`]. In the mode `performance` a call is one event,
//! [`CALL`], which is committed when the call ends:
//!
//! ```text
//! word 0    when the call began, on the clock of the event's own time stamp
//! word 1    what it was: service 32 | method 16 | status 8 | ended 4 | flags 4
//! word 2    messages: received 32 | sent 32
//! word 3    bytes of the messages that were sent
//! word 4    bytes of the messages that were received
//! word 5,6  trace id, the upper half first
//! word 7    the call's span id
//! word 8    the span that it belongs to; 0 if there is none
//! word 9…   the fields that the service's description marks, as the names file says
//! ```
//!
//! In the mode `cflow` there are, besides, events of the hooks: [`HOOK`] plus the hook's number, with the
//! span, word 1 and the trace id. `runtime/rpc` has the producers.

/// Name of the list.
pub const SENSOR: &str = "rpc.calls";
/// Its major number.
pub const MAJOR: u32 = 17;
/// Its minor number.
pub const MINOR: u32 = 1;
/// Its cells hold 256 bytes.
pub const CELL_LOG2: u32 = 8;
/// Its rings hold 1 MiB: 4,096 calls.
pub const RING_LOG2: u32 = 20;

/// Number of the event that is a whole call.
pub const CALL: u16 = 1;
/// Number of the first hook's event.
pub const HOOK: u16 = 16;

/// Words of a call before its fields.
pub const FIELDS: usize = 9;
/// Words that fields can take.
pub const FIELD_WORDS: usize = 30 - FIELDS;
/// Words of a text, zero-padded; what is longer is cut.
pub const TEXT_WORDS: usize = 4;

/// Flag: this is the server's side.
pub const SERVER: u64 = 1;
/// Flag: the client sends a stream.
pub const CLIENT_STREAMS: u64 = 2;
/// Flag: the server sends a stream.
pub const SERVER_STREAMS: u64 = 4;

/// Status of a call that has none: see how it ended.
pub const NO_STATUS: u8 = 255;

/// How a call ended, by number.
pub const ENDED: [&str; 7] = [
    "unknown",
    // Its status says how.
    "finished",
    // By the program at this end, or on its behalf.
    "cancelled",
    // Its time was over.
    "deadline",
    // The program let go of it without waiting for its end.
    "dropped",
    // The handler panicked, or raised what is no status.
    "raised",
    // The other end cancelled, or is gone.
    "left",
];

/// Names of gRPC's status codes, by number.
pub const STATUS: [&str; 17] = [
    "OK",
    "CANCELLED",
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
    "UNAUTHENTICATED",
];

/// Names of the hooks, by number.
pub const HOOKS: [&str; 17] = [
    "default_includes",
    "init_server",
    "variable_declaration",
    "before_call",
    "after_call",
    "before_dispatch",
    "after_dispatch",
    "before_reply_only",
    "after_reply_only",
    "before_reply_wait",
    "after_reply_wait",
    "before_component",
    "after_component",
    "before_unmarshal",
    "after_unmarshal",
    "before_marshal",
    "after_marshal",
];

/// What a call was: word 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct What {
    /// Number of the service: [`service_number`] of its full name.
    pub service: u32,
    /// Place of the method in its service.
    pub method: u16,
    /// gRPC's status code, or [`NO_STATUS`].
    pub status: u8,
    /// Place in [`ENDED`].
    pub ended: u8,
    /// [`SERVER`] and the like.
    pub flags: u64,
}

impl What {
    /// From the word.
    pub const fn from_word(word: u64) -> What {
        What {
            service: (word >> 32) as u32,
            method: (word >> 16) as u16,
            status: (word >> 8) as u8,
            ended: (word >> 4 & 15) as u8,
            flags: word & 15,
        }
    }

    /// As the word.
    pub const fn to_word(self) -> u64 {
        (self.service as u64) << 32
            | (self.method as u64) << 16
            | (self.status as u64) << 8
            | (self.ended as u64 & 15) << 4
            | self.flags & 15
    }
}

/// Number of a service: FNV-1a of its full name, such as `shop.v1.Shop`.
pub const fn service_number(name: &str) -> u32 {
    let bytes = name.as_bytes();
    let (mut hash, mut at) = (0x811c_9dc5_u32, 0);
    while at < bytes.len() {
        hash = (hash ^ bytes[at] as u32).wrapping_mul(0x0100_0193);
        at += 1;
    }
    hash
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_a_word_and_back() {
        let what = What { service: 0xdead_beef, method: 77, status: 14, ended: 6, flags: 5 };
        assert_eq!(What::from_word(what.to_word()), what);
        assert_eq!(service_number(""), 0x811c_9dc5);
        assert_eq!(service_number("a"), 0xe40c_292c);
    }
}
