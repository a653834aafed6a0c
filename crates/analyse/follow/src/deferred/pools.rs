//! Whose turn it is at a pool of connections.
//!
//! A client library has a limit of connections to a server (an agent of Node.js, a pool of a driver). What is asked
//! while all are in use waits in a queue, and the connection that becomes free next is for what has waited longest. An
//! event loop then sends, on a connection on which it has just read one request's answer, another request's question.
//!
//! Queues are not seen. What is seen is when a request may go on (its question was read, or all that was asked
//! for it is answered), that nothing was sent for it then, and that no connection was free. How much requests ask at
//! once is learned from those that did not have to wait.

use rustc_hash::FxHashMap;
use std::collections::BTreeMap;

use super::asker::Asker;

/// Names a question on a connection that is served.
type Number = u64;

/// A connection to a server.
struct Connection {
    /// The server.
    remote: u64,
    is_busy: bool,
    /// In which turn it became free.
    freed: Option<u64>,
    /// For which question it was opened, until that is sent.
    opener: Option<Number>,
    /// It has just turned out to be used for that.
    is_opened_for: bool,
    /// For which question it is busy.
    asker: Option<Number>,
}

/// A question, and what it asks before it can go on.
struct Waiter {
    socket: u64,
    stage: usize,
    /// How often it has asked in this stage, and how much of that is under way.
    asked: u32,
    under_way: u32,
    /// The last of that is on a connection that was opened for it.
    has_opened: bool,
    /// It waits for something else than a connection.
    is_elsewhere: bool,
    /// Since when it waits: its key in the queue.
    since: u64,
}

/// How many ask how much at once, by stage: a count for each number.
type Votes = Vec<[u32; ASKS_MAX]>;
const ASKS_MAX: usize = 9;
/// Stages of a request that are distinguished.
const STAGES_MAX: usize = 16;

/// Of a process.
#[derive(Default)]
struct Pools {
    connections: FxHashMap<u64, Connection>,
    /// Connections to each server, and how many are busy.
    servers: FxHashMap<u64, (u32, u32)>,
    waiters: FxHashMap<Number, Waiter>,
    /// Those that are expected to ask, by when they were able to.
    queue: BTreeMap<u64, Number>,
    /// Those whose stage has begun in this turn.
    fresh: Vec<Number>,
    votes: Votes,
    /// Threads ask for others: what is done in a turn says nothing.
    is_handed: bool,
    moments: u64,
    turn: u64,
}

/// What is remembered of a process; beyond, all of it is forgotten.
const KNOWN_MAX: usize = 1 << 16;

/// The pools of all processes.
#[derive(Default)]
pub(super) struct AllPools {
    processes: FxHashMap<u32, Pools>,
}

impl AllPools {
    fn of(&mut self, process: u32) -> &mut Pools {
        if self.processes.len() > KNOWN_MAX {
            self.processes.clear();
        }
        let pools = self.processes.entry(process).or_default();
        if pools.connections.len().max(pools.waiters.len()) > KNOWN_MAX {
            *pools = Pools::default();
        }
        pools
    }

    /// A question was read.
    pub fn question(&mut self, process: u32, number: Number, socket: u64) {
        let pools = self.of(process);
        let waiter = Waiter {
            socket,
            stage: 0,
            asked: 0,
            under_way: 0,
            has_opened: false,
            is_elsewhere: false,
            since: 0,
        };
        pools.waiters.insert(number, waiter);
        pools.enqueue(number);
    }

    /// A question is answered, or its client waits no longer.
    ///
    /// If something is under way for it, and an answer that was read in this turn led to nothing for another one, the two
    /// were taken for each other. Then what is under way is for the other one: the socket of the connection, and the
    /// number and the socket of the question.
    pub fn over(&mut self, process: u32, number: Number) -> Option<(u64, Number, u64)> {
        let pools = self.of(process);
        let waiter = pools.waiters.remove(&number)?;
        pools.queue.remove(&waiter.since);
        // It was answered as soon as it could go on.
        if waiter.asked == 0 && (pools.is_handed || pools.fresh.contains(&number)) {
            pools.vote(waiter.stage, 0);
        }
        if waiter.under_way != 1 {
            return None;
        }
        let is_idle = |other: &Number| {
            let found = pools.waiters.get(other);
            found.is_some_and(|other| other.stage > 0 && other.asked == 0)
        };
        let other = pools.fresh.iter().copied().find(is_idle)?;
        let of_it = |(_, of): &(&u64, &mut Connection)| of.is_busy && of.asker == Some(number);
        let (socket, connection) = pools.connections.iter_mut().find(of_it)?;
        connection.asker = Some(other);
        let socket = *socket;
        let waiter = Waiter { since: 0, ..waiter };
        let of_other = pools.waiters.get_mut(&other)?;
        pools.queue.remove(&of_other.since);
        *of_other = Waiter { socket: of_other.socket, ..waiter };
        Some((socket, other, of_other.socket))
    }

    /// A connection is being opened, for that question if it is known.
    pub fn opens(&mut self, process: u32, socket: u64, opener: Option<Number>) {
        let pools = self.of(process);
        pools.close(socket);
        let (remote, is_busy, freed) = (0, false, None);
        pools.connections.insert(
            socket,
            Connection { remote, is_busy, freed, opener, is_opened_for: false, asker: None },
        );
        if let Some(opener) = opener {
            pools.has_asked(opener, true);
        }
    }

    /// Which question is asked on a connection, and its socket: that for which it was opened, or that which has waited
    /// longest for one to be free. `None` if nothing says so.
    pub fn asker(&mut self, process: u32, socket: u64) -> Option<(Number, u64)> {
        let pools = self.of(process);
        let connection = pools.connections.get_mut(&socket)?;
        if let Some(opener) = connection.opener.take()
            && let Some(waiter) = pools.waiters.get(&opener)
        {
            connection.is_opened_for = true;
            return Some((opener, waiter.socket));
        }
        if connection.freed != Some(pools.turn) {
            return None;
        }
        let (_, number) = pools.queue.first_key_value()?;
        Some((*number, pools.waiters.get(number)?.socket))
    }

    /// The question for which a thread asks that has read none, and its socket: that of the thread that has tested the
    /// connection, that for which it was opened, or the one that is able to go on for longest of those that are expected
    /// to ask; of all, if none is.
    pub fn handed(
        &mut self,
        process: u32,
        socket: u64,
        tester: Option<Asker>,
    ) -> Option<(Number, u64)> {
        let opener = self.asker(process, socket);
        let known = tester.map(|asker| asker.number).or(opener.map(|(number, _)| number));
        let pools = self.of(process);
        pools.is_handed = true;
        let is_idle = |number: &&Number| {
            pools.waiters.get(number).is_some_and(|waiter| waiter.under_way == 0)
        };
        let expected = pools.queue.values().find(is_idle).copied();
        let longest = || {
            let idle = pools.waiters.iter().filter(|(_, waiter)| waiter.under_way == 0);
            idle.min_by_key(|(_, waiter)| waiter.since).map(|(number, _)| *number)
        };
        let found = known.or(expected).or_else(longest)?;
        let waiter = pools.waiters.get(&found)?;
        let (stage, socket) = (waiter.stage, waiter.socket);
        pools.vote(stage, 1);
        Some((found, socket))
    }

    /// A question is asked on a connection; of one that was opened for it, that is known already.
    pub fn asks(&mut self, process: u32, (socket, remote): (u64, u64), asker: Option<Number>) {
        let pools = self.of(process);
        let connection = pools.connections.entry(socket).or_insert(Connection {
            remote: 0,
            is_busy: false,
            freed: None,
            opener: None,
            is_opened_for: false,
            asker: None,
        });
        if connection.remote == 0 {
            connection.remote = remote;
            pools.servers.entry(remote).or_default().0 += 1;
        }
        connection.asker = asker;
        if !std::mem::replace(&mut connection.is_busy, true) {
            pools.servers.entry(remote).or_default().1 += 1;
        }
        // That it would be asked is known since the connection was opened.
        let is_opener = std::mem::take(&mut connection.is_opened_for);
        if let Some(asker) = asker.filter(|_| !is_opener) {
            pools.has_asked(asker, false);
        }
    }

    /// What was asked last on a connection turns out to be for this question.
    pub fn moved(&mut self, process: u32, socket: u64, to: Number) {
        let pools = self.of(process);
        let Some(connection) = pools.connections.get_mut(&socket) else { return };
        let from = connection.asker.replace(to).filter(|from| *from != to);
        if let Some(from) = from
            && let Some(waiter) = pools.waiters.get_mut(&from)
        {
            waiter.asked = waiter.asked.saturating_sub(1);
            waiter.under_way = waiter.under_way.saturating_sub(1);
            if waiter.asked < expected(&pools.votes, waiter.stage) {
                pools.queue.insert(waiter.since, from);
            }
        }
        pools.has_asked(to, false);
    }

    /// The answer on a connection was read, which was for this question.
    pub fn answered(&mut self, process: u32, socket: u64, asker: Option<Number>) {
        let pools = self.of(process);
        let turn = pools.turn;
        if let Some(connection) = pools.connections.get_mut(&socket) {
            connection.freed = Some(turn);
            if std::mem::take(&mut connection.is_busy)
                && let Some((_, busy)) = pools.servers.get_mut(&connection.remote)
            {
                *busy = busy.saturating_sub(1);
            }
        }
        let Some(number) = asker else { return };
        let Some(waiter) = pools.waiters.get_mut(&number) else { return };
        waiter.under_way = waiter.under_way.saturating_sub(1);
        let is_all = waiter.is_elsewhere || waiter.asked >= expected(&pools.votes, waiter.stage);
        if waiter.under_way == 0 && is_all {
            waiter.stage += 1;
            (waiter.asked, waiter.has_opened, waiter.is_elsewhere) = (0, false, false);
            pools.enqueue(number);
        }
    }

    /// A connection is gone.
    pub fn closed(&mut self, process: u32, socket: u64) {
        self.of(process).close(socket);
    }

    /// A turn is over: what has not been asked by now waits. Where a connection is free, it waits for
    /// something else.
    pub fn waits(&mut self, process: u32) {
        let pools = self.of(process);
        pools.turn += 1;
        let is_full = |(all, busy): &(u32, u32)| all <= busy;
        let is_any_free = !pools.is_handed && !pools.servers.values().any(is_full);
        for number in std::mem::take(&mut pools.fresh) {
            let Some(waiter) = pools.waiters.get(&number) else { continue };
            if waiter.asked > 0 && (is_any_free || waiter.has_opened) {
                let (stage, asked) = (waiter.stage, waiter.asked);
                pools.vote(stage, asked);
            }
        }
        if is_any_free {
            for number in std::mem::take(&mut pools.queue).into_values() {
                if let Some(waiter) = pools.waiters.get_mut(&number) {
                    waiter.is_elsewhere = true;
                }
            }
        }
    }
}

impl Pools {
    /// A question may go on.
    fn enqueue(&mut self, number: Number) {
        self.moments += 1;
        let since = self.moments;
        let Some(waiter) = self.waiters.get_mut(&number) else { return };
        waiter.since = since;
        self.fresh.push(number);
        if expected(&self.votes, waiter.stage) > 0 {
            self.queue.insert(since, number);
        }
    }

    fn has_asked(&mut self, number: Number, has_opened: bool) {
        let Some(waiter) = self.waiters.get_mut(&number) else { return };
        waiter.asked += 1;
        waiter.under_way += 1;
        waiter.has_opened = has_opened;
        if waiter.asked >= expected(&self.votes, waiter.stage) {
            self.queue.remove(&waiter.since);
        }
    }

    /// A request has asked so much at once.
    fn vote(&mut self, stage: usize, asked: u32) {
        if stage >= STAGES_MAX {
            return;
        }
        if self.votes.len() <= stage {
            self.votes.resize(stage + 1, [0; ASKS_MAX]);
        }
        self.votes[stage][(asked as usize).min(ASKS_MAX - 1)] += 1;
    }

    fn close(&mut self, socket: u64) {
        let Some(connection) = self.connections.remove(&socket) else { return };
        if let Some((all, busy)) = self.servers.get_mut(&connection.remote) {
            *all = all.saturating_sub(1);
            *busy = busy.saturating_sub(u32::from(connection.is_busy));
            if *all == 0 {
                self.servers.remove(&connection.remote);
            }
        }
    }
}

/// How much is asked at once in a stage, by what most did; once, if that is not known.
fn expected(votes: &Votes, stage: usize) -> u32 {
    let Some(votes) = votes.get(stage) else { return 1 };
    // Of several, the least.
    let most = votes.iter().max().copied().filter(|most| *most > 0);
    most.and_then(|most| votes.iter().position(|of| *of == most)).map_or(1, |at| at as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    const P: u32 = 1;
    /// The only server that is asked.
    const SERVER: u64 = 7;
    const CONNECTIONS: [u64; 2] = [200, 201];

    /// What waits longest asks on a connection, if anything says so.
    fn asks(pools: &mut AllPools, connection: u64, last: Option<Number>) -> Option<Number> {
        let asker = pools.asker(P, connection).map(|(number, _)| number);
        pools.asks(P, (connection, SERVER), asker.or(last));
        asker
    }

    /// A pool of two connections, which question 1 has opened to ask twice at once.
    fn two_at_once() -> AllPools {
        let mut pools = AllPools::default();
        pools.question(P, 1, 101);
        CONNECTIONS.iter().for_each(|connection| pools.opens(P, *connection, Some(1)));
        pools.waits(P);
        for connection in CONNECTIONS {
            assert_eq!(asks(&mut pools, connection, None), Some(1));
        }
        pools
    }

    #[test]
    fn a_free_connection_is_for_what_has_waited_longest() {
        let mut pools = two_at_once();
        pools.question(P, 2, 102);
        pools.question(P, 3, 103);
        pools.waits(P);
        // The first one asks twice, as has been learned.
        for connection in CONNECTIONS {
            pools.answered(P, connection, Some(1));
            assert_eq!(asks(&mut pools, connection, Some(1)), Some(2));
        }
        assert_eq!(pools.over(P, 1), None);
        pools.waits(P);
        // It does not ask again: it was seen that requests answer then.
        for connection in CONNECTIONS {
            pools.answered(P, connection, Some(2));
            assert_eq!(asks(&mut pools, connection, Some(2)), Some(3));
        }
    }

    #[test]
    fn what_waits_while_a_connection_is_free_waits_for_something_else() {
        let mut pools = two_at_once();
        pools.question(P, 2, 102);
        pools.waits(P);
        CONNECTIONS.iter().for_each(|connection| pools.answered(P, *connection, Some(1)));
        pools.over(P, 1);
        pools.waits(P);
        // Nothing says who asks on a connection that was free before.
        pools.question(P, 3, 103);
        assert_eq!(asks(&mut pools, CONNECTIONS[0], Some(3)), None);
        pools.answered(P, CONNECTIONS[0], Some(3));
        assert_eq!(asks(&mut pools, CONNECTIONS[0], None), Some(3), "2 is not in the queue");
    }

    #[test]
    fn what_is_handed_to_threads_is_asked_in_order() {
        let mut pools = AllPools::default();
        (1..=3).for_each(|number| pools.question(P, number, 100 + number));
        for (connection, number) in [(200, 1), (201, 2), (202, 3)] {
            assert_eq!(pools.handed(P, connection, None), Some((number, 100 + number)));
            pools.asks(P, (connection, SERVER), Some(number));
        }
        // The first has its answer and is slow; a fourth one asks, as those do that have just been read.
        pools.answered(P, 201, Some(2));
        pools.over(P, 2);
        pools.answered(P, 200, Some(1));
        pools.question(P, 4, 104);
        assert_eq!(pools.handed(P, 201, None), Some((4, 104)));
        // The one that opens a connection is the first to use it.
        pools.opens(P, 203, Some(1));
        assert_eq!(pools.handed(P, 203, None), Some((1, 101)));
    }

    #[test]
    fn two_that_were_taken_for_each_other_are_put_right() {
        let mut pools = AllPools::default();
        pools.question(P, 2, 102);
        pools.question(P, 3, 103);
        // 3's was taken for 2's, and the other way round; 3 is answered when "2's" answer comes.
        for (connection, number) in CONNECTIONS.into_iter().zip([2, 3]) {
            pools.asks(P, (connection, SERVER), Some(number));
        }
        pools.waits(P);
        pools.answered(P, CONNECTIONS[0], Some(2));
        assert_eq!(pools.over(P, 3), Some((CONNECTIONS[1], 2, 102)));
        pools.answered(P, CONNECTIONS[1], Some(2));
        assert_eq!(pools.over(P, 2), None);
    }

    #[test]
    fn what_nobody_ends_is_forgotten() {
        let mut pools = AllPools::default();
        for n in 0..3 * KNOWN_MAX as u64 {
            pools.question(P, n, n);
            pools.opens(P, n, None);
        }
        let of = &pools.processes[&P];
        assert!(of.waiters.len().max(of.connections.len()) <= KNOWN_MAX + 1);
    }
}
