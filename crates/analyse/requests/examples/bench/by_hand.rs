//! What a pass takes that knows these events and nothing else.

use fettle_requests::{Batch, EventId};

/// The same by hand: which request a thread, a connection and a file belong to lies in arrays that
/// need no search.
pub struct ByHand {
    kinds: [EventId; 7],
    threads: [u64; 128],
    files: Vec<u64>,
    connections: Vec<u64>,
    counts: Vec<u32>,
    requests: u64,
}

impl ByHand {
    pub fn new(kinds: [EventId; 7]) -> ByHand {
        let (files, connections, counts) = (vec![0; 8192], vec![0; 1024], vec![0; 1 << 24]);
        ByHand { kinds, threads: [0; 128], files, connections, counts, requests: 0 }
    }

    pub fn feed(&mut self, batch: &Batch) {
        let [request_read, reply_write, open, read, close, _, _] = self.kinds;
        for row in 0..batch.len() {
            let kind = batch.kind(row);
            let field = |n| batch.value(row, n) as usize;
            let request = if kind == request_read {
                self.requests += 1;
                self.connections[field(2) % 1024] = self.requests;
                self.threads[field(1) % 128] = self.requests;
                self.requests
            } else if kind == reply_write {
                std::mem::take(&mut self.threads[field(1) % 128])
            } else if kind == open {
                self.files[field(2) % 8192] = self.threads[field(1) % 128];
                self.threads[field(1) % 128]
            } else if kind == read {
                self.files[field(2) % 8192]
            } else if kind == close {
                std::mem::take(&mut self.files[field(2) % 8192])
            } else {
                self.threads[field(0) % 128]
            };
            self.counts[request as usize % (1 << 24)] += 1;
        }
    }
}
