//! One connection: two lanes of bytes, and the requests that wait for answers.

use std::collections::VecDeque;

use crate::counts::{Counts, Reason};
use crate::decoder::{Answer, Ask, Decoder, Input, MARK, Open, Reply, Step};
use crate::message::{Ids, Message, NO_REPLY, Side, What};
use crate::recognise::{may_begin, recognise};
use crate::websocket::WebSocket;

/// Bytes that are kept of a head that is not whole.
const HEAD: usize = 64 << 10;
/// Transfers after which no protocol is looked for any longer.
const TRIES: u32 = 64;
/// Requests that wait at once.
const WAITING: usize = 1 << 14;

/// One direction.
#[derive(Debug, Default)]
struct Lane {
    /// The beginning of something that is not whole.
    head: Vec<u8>,
    /// Bytes to come that say nothing.
    skip: u64,
    /// What is reported when they have come.
    then: Vec<Answer>,
}

impl Lane {
    /// Whether nothing that has begun has still to come.
    fn is_between(&self) -> bool {
        self.head.is_empty() && self.skip == 0
    }
}

/// A request that waits.
#[derive(Debug)]
struct Waiting {
    exchange: u64,
    command: String,
    key: Option<u64>,
    perhaps: bool,
}

/// A connection.
#[derive(Debug, Default)]
pub struct Connection {
    decoder: Option<Box<dyn Decoder>>,
    /// Which way requests go.
    asks: Option<Side>,
    /// Of requests, and of answers.
    lanes: [Lane; 2],
    waiting: VecDeque<Waiting>,
    exchanges: u64,
    /// A request was once asked before the one before was answered.
    pipelined: bool,
    /// Messages are missed until the next request after an answer.
    out_of_step: bool,
    answered: bool,
    given_up: bool,
    tries: u32,
    /// A head that was read alone, before it was known what it is the head of.
    alone: Option<(Side, Vec<u8>)>,
}

/// How a lane goes on.
enum End {
    Fine,
    Lost,
    Stop(Reason),
}

impl Connection {
    /// See [`crate::Connections::transfer`].
    pub fn transfer(
        &mut self,
        side: Side,
        known: &[u8],
        bytes: u64,
        counts: &mut Counts,
        notify: &mut dyn FnMut(Message<'_>),
    ) -> Option<Reason> {
        if self.given_up || bytes == 0 {
            return None;
        }
        let (mut known, mut bytes) = (known, bytes);
        let joined;
        if self.decoder.is_none() {
            if let Some((of, mut head)) = self.alone.take()
                && of == side
            {
                bytes = bytes.saturating_add(head.len() as u64);
                head.extend_from_slice(known);
                joined = head;
                known = &joined;
            }
            match recognise(known) {
                Ok(decoder) => {
                    self.asks = Some(if decoder.server_began() { side.other() } else { side });
                    self.decoder = Some(decoder);
                }
                Err(None) if bytes == known.len() as u64 && may_begin(known) => {
                    self.alone = Some((side, known.to_vec()));
                    return None;
                }
                Err(Some(reason)) => return Some(self.give_up(reason)),
                Err(None) => {
                    self.tries += 1;
                    return (self.tries >= TRIES).then(|| self.give_up(Reason::Unknown));
                }
            }
        }
        let lane = usize::from(self.asks != Some(side));
        if self.out_of_step && !self.again(lane, known) {
            return None;
        }
        match self.run(lane, known, bytes - known.len() as u64, counts, notify) {
            End::Fine => None,
            End::Stop(reason) => {
                self.lose(counts, notify);
                Some(self.give_up(reason))
            }
            End::Lost => {
                counts.out_of_step += 1;
                self.lose(counts, notify);
                let restarts = self.decoder.as_mut().is_some_and(|decoder| decoder.restart());
                if self.pipelined || !restarts {
                    return Some(self.give_up(Reason::Cut));
                }
                self.lanes = Default::default();
                self.out_of_step = true;
                self.answered = false;
                None
            }
        }
    }

    /// Nothing will be known any more of the requests that are not answered.
    fn lose(&mut self, counts: &mut Counts, notify: &mut dyn FnMut(Message<'_>)) {
        let (Some(decoder), Some(asked)) = (&mut self.decoder, self.asks) else { return };
        let protocol = decoder.protocol();
        let waiting = self.waiting.drain(..).map(|waiting| waiting.exchange);
        let waiting = waiting.map(|exchange| Open { exchange, protocol, by_server: false });
        for Open { exchange, protocol, by_server } in waiting.chain(decoder.take_open()) {
            counts.unanswered += 1;
            let asked = if by_server { asked.other() } else { asked };
            let (ids, what) = (Ids::default(), What::Unseen { asked });
            notify(Message { protocol, exchange, ids, what });
        }
    }

    fn give_up(&mut self, reason: Reason) -> Reason {
        *self = Connection { given_up: true, ..Connection::default() };
        reason
    }

    /// Whether the connection, out of step, is in step again: the client has waited for each
    /// answer so far, so a request behind an answer begins an exchange.
    fn again(&mut self, lane: usize, known: &[u8]) -> bool {
        self.answered |= lane == 1;
        let begins = self.decoder.as_ref().is_some_and(|decoder| decoder.begins(known));
        if lane == 1 || !self.answered || !begins {
            return false;
        }
        self.out_of_step = false;
        true
    }

    /// The direction from the client (0), or the other.
    fn lane(&mut self, n: usize) -> &mut Lane {
        let [asks, answers] = &mut self.lanes;
        if n == 0 { asks } else { answers }
    }

    /// Takes bytes of a lane, behind which `missing` ones follow that are not known.
    fn run(
        &mut self,
        n: usize,
        mut known: &[u8],
        mut missing: u64,
        counts: &mut Counts,
        notify: &mut dyn FnMut(Message<'_>),
    ) -> End {
        let skipped = self.lane(n).skip.min(known.len() as u64);
        known = known.get(skipped as usize..).unwrap_or_default();
        if let Err(end) = self.skipped(n, skipped, counts, notify) {
            return end;
        }
        self.lane(n).head.extend_from_slice(known);
        let mut head = std::mem::take(&mut self.lane(n).head);
        let mut at = 0;
        while at < head.len() {
            let Some(decoder) = &mut self.decoder else { return End::Fine };
            let input = Input { bytes: head.get(at..).unwrap_or_default(), last: missing > 0 };
            let step = match n {
                0 => decoder.ask(input),
                _ => decoder.answer(input, self.waiting.front().map(|w| w.command.as_str())),
            };
            let (bytes, then) = match step {
                Step::More if missing > 0 || head.len() - at > HEAD => return End::Lost,
                Step::More => break,
                Step::Skip(bytes) => (bytes, Vec::new()),
                Step::Rest => {
                    (at, missing) = (head.len(), 0);
                    break;
                }
                Step::Ask(bytes, ask) => {
                    if let Err(end) = self.asked(ask, counts, notify) {
                        return end;
                    }
                    (bytes, Vec::new())
                }
                Step::Answer(bytes, answer) => (bytes, vec![answer]),
                Step::Answers(bytes, answers) => (bytes, answers),
                Step::WebSocket(bytes, answer, path) => {
                    // The client waits for this before it says more, and nothing else waits.
                    if self.waiting.len() > 1 || !self.lane(1 - n).is_between() {
                        return End::Stop(Reason::Upgraded);
                    }
                    if let Err(end) = self.answers(answer, counts, notify) {
                        return end;
                    }
                    self.decoder = Some(Box::new(WebSocket::new(path)));
                    (bytes, Vec::new())
                }
                Step::Lost => return End::Lost,
                Step::Stop(reason) => return End::Stop(reason),
            };
            // What has no length would go on for ever.
            if bytes == 0 {
                return End::Lost;
            }
            let here = bytes.min((head.len() - at) as u64);
            at += here as usize;
            let lane = self.lane(n);
            (lane.skip, lane.then) = (bytes, then);
            if let Err(end) = self.skipped(n, here, counts, notify) {
                return end;
            }
        }
        head.drain(..at);
        self.lane(n).head = head;
        if missing == 0 {
            return End::Fine;
        }
        let skipped = self.lane(n).skip.min(missing);
        missing -= skipped;
        // What begins within missing bytes is not seen.
        if missing > 0 || !self.lane(n).head.is_empty() {
            return End::Lost;
        }
        self.skipped(n, skipped, counts, notify).err().unwrap_or(End::Fine)
    }

    /// Bytes that say nothing have come.
    fn skipped(
        &mut self,
        n: usize,
        bytes: u64,
        counts: &mut Counts,
        notify: &mut dyn FnMut(Message<'_>),
    ) -> Result<(), End> {
        let lane = self.lane(n);
        lane.skip -= bytes;
        if lane.skip > 0 {
            return Ok(());
        }
        let then = std::mem::take(&mut lane.then);
        then.into_iter().try_for_each(|answer| self.answers(answer, counts, notify))
    }

    fn asked(
        &mut self,
        ask: Ask,
        counts: &mut Counts,
        notify: &mut dyn FnMut(Message<'_>),
    ) -> Result<(), End> {
        let own = self.decoder.as_ref().map_or("", |decoder| decoder.protocol());
        let exchange = ask.exchange.unwrap_or(self.exchanges);
        self.exchanges += 1;
        counts.asks += 1;
        let what = What::Ask { command: &ask.command, text: &ask.text };
        let protocol = ask.protocol.unwrap_or(own);
        let ids = ask.ids;
        notify(Message { protocol, exchange, ids, what });
        if ask.reply == Reply::No {
            notify(Message { protocol, exchange, ids, what: What::Unanswered });
        }
        if ask.exchange.is_some() || ask.reply == Reply::No {
            return Ok(());
        }
        if self.waiting.len() >= WAITING {
            return Err(End::Stop(Reason::Cut));
        }
        self.pipelined |= !self.waiting.is_empty();
        let perhaps = ask.reply == Reply::Perhaps;
        self.waiting.push_back(Waiting { exchange, command: ask.command, key: ask.key, perhaps });
        Ok(())
    }

    fn answers(
        &mut self,
        answer: Answer,
        counts: &mut Counts,
        notify: &mut dyn FnMut(Message<'_>),
    ) -> Result<(), End> {
        let own = self.decoder.as_ref().map_or("", |decoder| decoder.protocol());
        let exchange = match answer.exchange {
            Some(exchange) => exchange,
            None => match self.first(&answer, notify)? {
                Some(exchange) => exchange,
                // Asked before the recording began.
                None => return Ok(()),
            },
        };
        counts.answers += 1;
        let what = What::Answer { ok: answer.ok, status: &answer.status };
        let protocol = answer.protocol.unwrap_or(own);
        notify(Message { protocol, exchange, ids: answer.ids, what });
        Ok(())
    }

    /// The request that is answered: the first that waits, or the first with the answer's key if
    /// those before may have been left unanswered. These are over, then.
    fn first(
        &mut self,
        answer: &Answer,
        notify: &mut dyn FnMut(Message<'_>),
    ) -> Result<Option<u64>, End> {
        let protocol = self.decoder.as_ref().map_or("", |decoder| decoder.protocol());
        while let Some(waiting) = self.waiting.pop_front() {
            let same = match answer.key {
                Some(_) => waiting.key == answer.key,
                None => !(answer.needed && waiting.perhaps),
            };
            if same && !waiting.perhaps {
                return Ok(Some(waiting.exchange));
            }
            if same {
                // It is not known which of several it is.
                let twins = self.waiting.iter().any(|other| match answer.key {
                    Some(_) => other.key == answer.key,
                    None => other.key != Some(MARK),
                });
                let stop = Err(End::Stop(Reason::Quiet));
                return if twins { stop } else { Ok(Some(waiting.exchange)) };
            }
            if !waiting.perhaps {
                return Err(End::Lost);
            }
            let what = What::Answer { ok: true, status: NO_REPLY };
            notify(Message { protocol, exchange: waiting.exchange, ids: Ids::default(), what });
        }
        Ok(None)
    }
}
