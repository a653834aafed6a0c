//! Messages that came over sockets that are not connected.
//!
//! Their senders are not recorded, so questions of several peers may be one request. That is no fault of
//! the trace, but has to be said.

use fettle_requests::{Batch, EventId, Program, Strings};

/// Counts them.
pub(crate) struct Unconnected {
    /// The event, and the places of its fields, if a schema does something with it.
    received: Option<(EventId, [usize; 3])>,
    pub messages: u64,
}

impl Unconnected {
    pub fn new(program: &Program) -> Unconnected {
        Unconnected { received: find(program), messages: 0 }
    }

    /// Looks at some events.
    pub fn look(&mut self, batch: &Batch, strings: &Strings) {
        let Some((received, [local, remote, bytes])) = self.received else { return };
        for row in (0..batch.len()).filter(|row| batch.kind(*row) == received) {
            let text = |field| strings.of_value(batch.value(row, field));
            let came = batch.value(row, bytes) as i64 > 0 && text(remote).is_empty();
            // Sockets of another `sa_family` (the kernel's own) have no addresses at all.
            self.messages += u64::from(came && !text(local).starts_with("socket:"));
        }
    }
}

fn find(program: &Program) -> Option<(EventId, [usize; 3])> {
    let received = program.catalog().find("received")?;
    program.schemas().iter().find(|schema| schema.uses(received))?;
    let kind = program.catalog().get(received)?;
    Some((received, [kind.place("local")?, kind.place("remote")?, kind.place("bytes")?]))
}
