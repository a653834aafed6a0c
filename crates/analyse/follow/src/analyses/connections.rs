//! Which process has which end of a connection, when.
//!
//! Names of ends are used again: ports after a while, those of local sockets, which are where the kernel
//! keeps them, within milliseconds. So a connection is identified by both names and by the sockets that
//! have them, and what is said on it is never another's.

use std::collections::HashMap;

/// An end as it names itself, and how it names the other: codes of addresses.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Names {
    pub local: u64,
    pub remote: u64,
}

impl Names {
    fn reversed(self) -> Names {
        Names { local: self.remote, remote: self.local }
    }
}

/// An end of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct End {
    connection: usize,
    /// Which of the two.
    side: usize,
}

/// All connections that were seen.
#[derive(Default)]
pub(super) struct Connections {
    /// The processes at both ends.
    all: Vec<[Option<u64>; 2]>,
    /// The ends that have these names now, and their sockets.
    now: HashMap<Names, (u64, End)>,
    /// The end that had such names last.
    last: HashMap<Names, u64>,
}

impl Connections {
    /// A process has an end of a connection; returns which.
    pub fn seen(&mut self, names: Names, socket: u64, pid: u64) -> End {
        let end = match self.now.get(&names) {
            Some((known, end)) if *known == socket => *end,
            _ => self.begin(names, socket),
        };
        self.all[end.connection][end.side] = Some(pid);
        self.last.insert(names, pid);
        end
    }

    /// The end of a socket that is not known by these names yet.
    fn begin(&mut self, names: Names, socket: u64) -> End {
        let other = self.now.get(&names.reversed()).map(|(_, end)| *end);
        // No process was at that end so far; otherwise it is of a connection before.
        let free = other.map(|end| End { side: 1 - end.side, ..end });
        let free = free.filter(|end| self.all[end.connection][end.side].is_none());
        let end = free.unwrap_or_else(|| {
            self.all.push([None; 2]);
            End { connection: self.all.len() - 1, side: 0 }
        });
        self.now.insert(names, (socket, end));
        end
    }

    /// An end is gone: its names are free.
    pub fn closed(&mut self, names: Names, socket: u64) {
        if self.now.get(&names).is_some_and(|(known, _)| *known == socket) {
            self.now.remove(&names);
        }
    }

    /// The process at the other end.
    pub fn peer(&self, end: End) -> Option<u64> {
        self.all[end.connection][1 - end.side]
    }

    /// Sockets that are not connected, by their names: they receive from any peer. `is_nobody` says of a
    /// name that it is of no end.
    pub fn open(&self, is_nobody: impl Fn(u64) -> bool) -> HashMap<u64, u64> {
        let open = self.last.iter().filter(|(names, _)| is_nobody(names.remote));
        open.map(|(names, pid)| (names.local, *pid)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(local: u64, remote: u64) -> Names {
        Names { local, remote }
    }

    #[test]
    fn names_that_are_used_again_are_of_other_connections() {
        let mut all = Connections::default();
        let (a, b) = (names(1, 2), names(2, 1));
        let first = [all.seen(a, 10, 100), all.seen(b, 11, 200)];
        all.closed(a, 10);
        // The other end still reads what was sent to it.
        assert!(all.seen(b, 11, 200) == first[1]);
        // The same names swapped, before that end is closed, and after.
        let second = all.seen(a, 12, 300);
        assert!(all.peer(second).is_none());
        all.closed(b, 11);
        let answer = all.seen(b, 13, 100);
        assert_eq!(first.map(|end| all.peer(end)), [Some(200), Some(100)]);
        assert_eq!([second, answer].map(|end| all.peer(end)), [Some(100), Some(300)]);
        // One whose end was not seen is no other's.
        all.closed(a, 12);
        all.closed(b, 13);
        let third = all.seen(a, 14, 400);
        assert_eq!(all.peer(third), None);
    }

    #[test]
    fn a_port_may_be_that_of_several_connections() {
        // A proxy has the port 1 for its connection to 2; a client outside has it for one to 3.
        let (proxy, server, resolver, nobody) = (100, 200, 300, 0);
        let mut all = Connections::default();
        let asks = all.seen(names(1, 2), 10, proxy);
        let answers = all.seen(names(2, 1), 11, server);
        let outside = all.seen(names(3, 1), 12, proxy);
        all.seen(names(4, nobody), 13, resolver);
        assert_eq!(
            [asks, answers, outside].map(|end| all.peer(end)),
            [Some(server), Some(proxy), None]
        );
        assert_eq!(all.open(|name| name == nobody), [(4, resolver)].into());
    }
}
