//! Causes before effects.
//!
//! A kernel reports a transfer when its call returns. The send of bytes may be reported later than their
//! receive: the receiver is on another processor, or was given the sender's before the call could
//! return. Extraction must see a send before the receive that takes its bytes. So events wait here for a
//! while, and a send whose bytes were received already moves to just before that. Nothing of its thread
//! is overtaken that happened before the call: the receiver cannot have been earlier. Which task has sent is
//! reported when the call returns, too, so that event moves along.

use rustc_hash::FxHashMap;
use std::collections::VecDeque;

use fettle_requests::{Batch, Catalog, EventId};

/// How long after the receive a send may be reported. A thread that was preempted inside its call may
/// have to wait for all others.
pub(crate) const WAIT_NS: u64 = 100_000_000;
/// Events that wait at most, whatever their times.
const HELD_MAX: usize = 1 << 18;
/// Streams that are remembered before those are forgotten that have nothing to say.
const STREAMS_MAX: usize = 1 << 16;

/// Events whose time has not come.
pub(crate) struct Causal {
    held: Batch,
    /// Rows of `held` that were looked at.
    seen: usize,
    roles: Vec<Option<Role>>,
    /// The kind of event that says which task a thread runs, and where it has the thread.
    task: Option<(EventId, usize)>,
    streams: FxHashMap<(u16, u64, u64), Stream>,
    /// Streams at which to forget again.
    streams_max: usize,
    moved: bool,
}

/// What a kind of event does to a stream, and where its fields are.
#[derive(Clone, Copy)]
struct Role {
    sends: bool,
    /// Which kind of stream.
    transport: u16,
    from: usize,
    to: usize,
    bytes: usize,
    thread: Option<usize>,
}

/// Events before a send among which the one is looked for that says which task has sent.
const TASK_ROWS: usize = 1 << 10;

/// Bytes of one direction of a connection, or of a pipe.
#[derive(Default)]
struct Stream {
    sent: u64,
    received: u64,
    /// When bytes were received that were not sent yet, and up to which.
    early: VecDeque<(u64, u64)>,
}

impl Causal {
    pub(crate) fn new(catalog: &Catalog) -> Causal {
        let mut roles = vec![None; catalog.events().len()];
        let transfers = [
            ("sent", true, 0, "local", "remote"),
            ("received", false, 0, "remote", "local"),
            ("pipe_write", true, 1, "pipe", "pipe"),
            ("pipe_read", false, 1, "pipe", "pipe"),
        ];
        for (name, sends, transport, from, to) in transfers {
            let Some(id) = catalog.find(name) else { continue };
            let Some(kind) = catalog.get(id) else { continue };
            let places = (kind.place(from), kind.place(to), kind.place("bytes"));
            if let (Some(from), Some(to), Some(bytes)) = places {
                let thread = kind.place("tid");
                roles[id.index()] = Some(Role { sends, transport, from, to, bytes, thread });
            }
        }
        let task = catalog.find("task").and_then(|id| Some((id, catalog.get(id)?.place("tid")?)));
        Causal {
            held: Batch::new(catalog),
            seen: 0,
            roles,
            task,
            streams: FxHashMap::default(),
            streams_max: STREAMS_MAX,
            moved: false,
        }
    }

    /// Whether it has to see events of a kind, and whether it may move them to an earlier time.
    pub(crate) fn looks_at(&self, event: EventId) -> (bool, bool) {
        let role = self.roles.get(event.index()).copied().flatten();
        let is_task = self.task.is_some_and(|(task, _)| task == event);
        (role.is_some() || is_task, role.is_some_and(|role| role.sends) || is_task)
    }

    /// Where the next events go, in order of time.
    pub(crate) fn held(&mut self) -> &mut Batch {
        &mut self.held
    }

    /// Replaces `out` by the events that need not wait any longer: all, if no more will come.
    pub(crate) fn release(&mut self, all: bool, out: &mut Batch) {
        let rows = self.held.len();
        let last_ns = rows.checked_sub(1).map_or(0, |row| self.held.time_ns(row));
        self.release_before(if all { u64::MAX } else { last_ns }, out);
    }

    /// As [`Causal::release`], where it is known that nothing before `now_ns` will come any more.
    pub(crate) fn release_before(&mut self, now_ns: u64, out: &mut Batch) {
        for row in self.seen..self.held.len() {
            self.look(row);
        }
        self.seen = self.held.len();
        if std::mem::take(&mut self.moved) {
            self.held.sort();
        }
        let rows = self.held.len();
        let horizon_ns = now_ns.saturating_sub(WAIT_NS);
        let due = match now_ns {
            u64::MAX => rows,
            _ => self.held.before(horizon_ns).max(rows.saturating_sub(HELD_MAX)),
        };
        self.held.take_front(due, out);
        self.seen -= due;
        if self.streams.len() > self.streams_max {
            self.streams.retain(|_, stream| {
                stream.write_off(horizon_ns);
                stream.sent != stream.received
            });
            self.streams_max = (2 * self.streams.len()).max(STREAMS_MAX);
        }
    }

    /// Moves a send that is late.
    fn look(&mut self, row: usize) {
        let kind: EventId = self.held.kind(row);
        let Some(role) = self.roles.get(kind.index()).copied().flatten() else { return };
        let bytes = self.held.value(row, role.bytes);
        if bytes as i64 <= 0 {
            return;
        }
        let now_ns = self.held.time_ns(row);
        let ends = (self.held.value(row, role.from), self.held.value(row, role.to));
        let name = (role.transport, ends.0, ends.1);
        let stream = self.streams.entry(name).or_default();
        stream.write_off(now_ns.saturating_sub(WAIT_NS));
        if role.sends {
            if let Some((received_ns, _)) = stream.early.front() {
                let before_ns = received_ns.saturating_sub(1);
                self.held.set_time_ns(row, before_ns);
                self.moved = true;
                if let Some(thread) = role.thread.map(|column| self.held.value(row, column)) {
                    move_task(&mut self.held, self.task, (row, thread), before_ns);
                }
            }
            stream.sent += bytes;
            let sent = stream.sent;
            while stream.early.pop_front_if(|(_, until)| *until <= sent).is_some() {}
        } else {
            stream.received += bytes;
            if stream.received > stream.sent {
                stream.early.push_back((now_ns, stream.received));
            }
        }
        if stream.sent == stream.received {
            self.streams.remove(&name);
        }
    }
}

/// What says that a thread's task has sent what is at `row` is no later than that.
fn move_task(
    held: &mut Batch,
    task: Option<(EventId, usize)>,
    (row, thread): (usize, u64),
    before_ns: u64,
) {
    let Some((kind, column)) = task else { return };
    let mut rows = (row.saturating_sub(TASK_ROWS)..row).rev();
    let found = rows.find(|at| held.kind(*at) == kind && held.value(*at, column) == thread);
    if let Some(at) = found.filter(|at| held.time_ns(*at) > before_ns) {
        held.set_time_ns(at, before_ns);
    }
}

impl Stream {
    /// Bytes that were received before that time came from where no sender is recorded.
    fn write_off(&mut self, horizon_ns: u64) {
        while let Some((_, until)) = self.early.pop_front_if(|(ns, _)| *ns < horizon_ns) {
            self.sent = self.sent.max(until);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fettle_requests::{Source, compile, shipped};

    /// Events as (time, kind, bytes), on one connection; out they come as (kind, bytes).
    fn reported(events: &[(u64, &str, u64)]) -> Vec<(String, u64)> {
        let program = compile(&[Source::new("t", "use kernel")], &shipped).unwrap();
        let catalog = program.catalog();
        let mut causal = Causal::new(catalog);
        let mut batch = Batch::new(catalog);
        let mut out = Vec::new();
        let mut take = |batch: &Batch| {
            for row in 0..batch.len() {
                let kind = catalog.get(batch.kind(row)).unwrap();
                let bytes = kind.place("bytes");
                out.push((kind.name.clone(), bytes.map_or(0, |column| batch.value(row, column))));
            }
        };
        for (ns, name, bytes) in events {
            let kind = catalog.find(name).unwrap();
            // pid, tid, socket, local, remote, bytes: 1 and 2 are the ends.
            let (local, remote) = if *name == "sent" { (1, 2) } else { (2, 1) };
            causal.held().push(*ns, kind, &[7, 7, 3, local, remote, *bytes]);
            causal.release(false, &mut batch);
            take(&batch);
        }
        causal.release(true, &mut batch);
        take(&batch);
        out
    }

    fn names(events: &[(u64, &str, u64)]) -> Vec<String> {
        reported(events).into_iter().map(|(name, bytes)| format!("{name} {bytes}")).collect()
    }

    #[test]
    fn a_send_told_of_late_comes_before_the_receive() {
        let late = [(10, "poll", 0), (20, "received", 100), (30, "sent", 100)];
        assert_eq!(names(&late), ["poll 0", "sent 100", "received 100"]);
        let in_parts = [(20, "received", 90), (30, "sent", 50), (40, "sent", 40), (50, "sent", 1)];
        assert_eq!(names(&in_parts), ["sent 50", "sent 40", "received 90", "sent 1"]);
        let in_order = [(10, "sent", 10), (20, "received", 10), (30, "sent", 5)];
        assert_eq!(names(&in_order), ["sent 10", "received 10", "sent 5"]);
    }

    #[test]
    fn the_task_that_sends_moves_along() {
        let late = [(20, "received", 100), (25, "task", 0), (26, "poll", 0), (30, "sent", 100)];
        assert_eq!(names(&late), ["task 0", "sent 100", "received 100", "poll 0"]);
        let before = [(10, "task", 0), (15, "poll", 0), (20, "received", 100), (30, "sent", 100)];
        assert_eq!(names(&before), ["task 0", "poll 0", "sent 100", "received 100"]);
    }

    #[test]
    fn bytes_from_outside_are_not_waited_for_forever() {
        let events = [
            (10, "received", 100),
            (10 + WAIT_NS * 2, "sent", 30),
            (20 + WAIT_NS * 2, "received", 30),
            (30 + WAIT_NS * 2, "received", 7),
            (40 + WAIT_NS * 2, "sent", 7),
        ];
        let expected = ["received 100", "sent 30", "received 30", "sent 7", "received 7"];
        assert_eq!(names(&events), expected);
    }
}
