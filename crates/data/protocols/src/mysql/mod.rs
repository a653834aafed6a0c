//! MySQL's and MariaDB's protocol. The server greets, the client logs in, and then one exchange is a
//! command and all results that it has. Where packets end, and what they are, is known from the packets
//! themselves, so a connection may be old: what ends columns and rows (`EOF`, or a result) shows by its length.

mod packet;

use std::collections::VecDeque;

use rustc_hash::FxHashMap;

use crate::counts::Reason;
use crate::decoder::{Answer, Ask, Decoder, Input, Reply, Step};
use crate::fields::Fields;
use crate::ids::statement_with_id;
use crate::text::{named, reported, statement, zero_ended};

use self::packet::{PACKET_MAX, Packet, able, state};

pub use self::packet::HEAD;

/// Prepared statements that are remembered; beyond, all are forgotten.
const STATEMENTS: usize = 4096;
/// The number of the statement that was prepared last, in MariaDB.
const LAST: u32 = u32::MAX;
/// In place of an error's number, how far a statement is.
const PROGRESS: u16 = 0xffff;
/// Words that statements begin with, by which a connection is known that is old.
const WORDS: [&str; 32] = [
    "SELECT",
    "INSERT",
    "UPDATE",
    "DELETE",
    "REPLACE",
    "WITH",
    "CALL",
    "SET",
    "SHOW",
    "USE",
    "DO",
    "BEGIN",
    "START",
    "COMMIT",
    "ROLLBACK",
    "SAVEPOINT",
    "RELEASE",
    "XA",
    "CREATE",
    "ALTER",
    "DROP",
    "TRUNCATE",
    "LOAD",
    "LOCK",
    "UNLOCK",
    "EXPLAIN",
    "DESCRIBE",
    "ANALYZE",
    "PREPARE",
    "EXECUTE",
    "FLUSH",
    "KILL",
];
/// Commands that have one result without rows.
const PLAIN: [(u8, &str); 13] = [
    (0x02, "INIT_DB"),
    (0x05, "CREATE_DB"),
    (0x06, "DROP_DB"),
    (0x07, "REFRESH"),
    (0x08, "SHUTDOWN"),
    (0x0c, "KILL"),
    (0x0d, "DEBUG"),
    (0x0e, "PING"),
    (0x15, "REGISTER_REPLICA"),
    (0x1a, "RESET"),
    (0x1b, "SET_OPTION"),
    (0x1d, "DAEMON"),
    (0x1f, "RESET_CONNECTION"),
];

/// What a request is answered by.
#[derive(Debug)]
enum Expects {
    /// A result, perhaps after more questions.
    Login,
    /// One result.
    Result,
    /// Results one after the other, with rows or without.
    Results,
    /// A statement's number; that is what it says.
    Prepared(String),
    /// Descriptions of columns.
    Columns,
    /// Rows of columns that are known.
    Rows,
    /// A text.
    Text,
}

/// Where an answer is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum At {
    /// Its beginning, or the beginning of one of its results.
    #[default]
    Result,
    /// Before so many descriptions of columns, then rows.
    Columns(u64),
    /// Behind these.
    FirstRow,
    Rows,
    /// Before so many descriptions of parameters and columns, then nothing.
    Descriptions(u64),
}

/// A connection.
#[derive(Debug, Default)]
pub struct Mysql {
    /// The server has not greeted.
    greets: bool,
    /// The client has not logged in; and what the server can do.
    logs_in: Option<u32>,
    /// Whether columns end with a packet of their own, if that is known.
    eof: Option<bool>,
    /// It may still come.
    eof_may_follow: bool,
    /// The last packets were as long as they can be, and go on in the next.
    ask_goes_on: bool,
    answer_goes_on: bool,
    /// The client sends a file.
    sends_file: bool,
    /// What is to be answered, in order.
    expected: VecDeque<Expects>,
    at: At,
    /// Rows of the answer so far, if it has any; what it has changed.
    rows: Option<u64>,
    changed: u64,
    /// What prepared statements say, by number, and the last one.
    statements: FxHashMap<u32, String>,
    last: String,
}

/// A decoder, if the bytes are a server's greeting, or commands on a connection that is old.
pub fn recognise(bytes: &[u8]) -> Option<Mysql> {
    let packet = Packet::read(Input { bytes, last: true })?;
    if packet.greeting().is_some() && bytes.len() as u64 <= packet.bytes() {
        return Some(Mysql { greets: true, ..Mysql::default() });
    }
    is_commands(bytes).then(Mysql::default)
}

/// Whether these are commands, the last one perhaps cut.
fn is_commands(bytes: &[u8]) -> bool {
    let mut rest = bytes;
    while !rest.is_empty() {
        let Some(packet) = Packet::read(Input { bytes: rest, last: true }) else { return false };
        let certain = packet.number == 0
            && match (packet.length, packet.body) {
                (_, [0x03 | 0x16, text @ ..]) => WORDS
                    .contains(&statement(reported(query(text).unwrap_or(b""))).command.as_str()),
                (10.., [0x17, _, _, _, _, _, 1, 0, 0, 0, ..]) => true,
                (5, [0x19 | 0x1a, _, _, _, _]) => true,
                (1, [0x0e | 0x1f]) => true,
                _ => false,
            };
        if !certain {
            return false;
        }
        // What is longer goes on.
        if packet.length == PACKET_MAX {
            return true;
        }
        rest = rest.get(packet.bytes() as usize..).unwrap_or_default();
    }
    !bytes.is_empty()
}

/// The statement of a query. MySQL puts attributes before it: how many, and in how many sets. Where there are
/// any, the statement is not looked for.
fn query(body: &[u8]) -> Option<&[u8]> {
    match body {
        [0, 1, text @ ..] => Some(text),
        [1..b' ', 1, ..] => None,
        text => Some(text),
    }
}

impl Mysql {
    /// The first packet of a client.
    fn login(&mut self, packet: Packet<'_>, server: u32) -> Step {
        let Some((client, said)) = packet.login() else { return Step::Lost };
        if packet.number != 1 || client & able::PROTOCOL_41 == 0 {
            return Step::Lost;
        }
        if client & able::TLS != 0 && packet.length == 32 {
            return Step::Stop(Reason::Tls);
        }
        if client & server & able::COMPRESSED != 0 {
            return Step::Stop(Reason::Compressed);
        }
        self.eof = Some(client & server & able::NO_EOF == 0);
        self.expected.push_back(Expects::Login);
        Step::Ask(packet.bytes(), Ask { text: said, ..named("LOGIN") })
    }

    /// What the statement says whose number stands here.
    fn said(&self, body: &[u8]) -> Option<String> {
        match Fields(body).le32()? {
            LAST => Some(self.last.clone()),
            id => self.statements.get(&id).cloned(),
        }
    }

    fn command(&mut self, packet: Packet<'_>) -> Step {
        let Some((&code, body)) = packet.body.split_first() else { return Step::Lost };
        let text = |body| reported(zero_ended(body).map_or(body, |(text, _)| text));
        let of = |command, text: Option<String>| Ask {
            text: text.unwrap_or_default(),
            ..named(command)
        };
        let (ask, expects) = match code {
            // It ends the connection; parts of a parameter. Nothing answers these.
            0x01 | 0x18 => return Step::Skip(packet.bytes()),
            0x03 => {
                let ask = query(body).map_or_else(|| named("QUERY"), statement_with_id);
                (ask, Expects::Results)
            }
            0x04 => (of("FIELD_LIST", Some(text(body))), Expects::Columns),
            0x09 => (named("STATISTICS"), Expects::Text),
            0x0a => (named("PROCESS_INFO"), Expects::Results),
            0x11 => {
                self.statements.clear();
                (of("CHANGE_USER", Some(format!("user={}", text(body)))), Expects::Login)
            }
            0x12 | 0x13 | 0x1e => return Step::Stop(Reason::Unasked),
            0x16 => {
                self.last = reported(body);
                (of("PREPARE", Some(self.last.clone())), Expects::Prepared(self.last.clone()))
            }
            0x17 | 0xfa => {
                let said = self.said(body);
                (said.map_or_else(|| named("EXECUTE"), statement), Expects::Results)
            }
            0x19 => {
                let said = self.said(body);
                if let Some(id) = Fields(body).le32() {
                    self.statements.remove(&id);
                }
                return Step::Ask(packet.bytes(), Ask { reply: Reply::No, ..of("CLOSE", said) });
            }
            0x1c => (of("FETCH", self.said(body)), Expects::Rows),
            _ => {
                let Some((_, name)) = PLAIN.iter().find(|(known, _)| *known == code) else {
                    return Step::Lost;
                };
                let said = match code {
                    0x02 | 0x05 | 0x06 => Some(text(body)),
                    0x1a => self.said(body),
                    _ => None,
                };
                if code == 0x1f {
                    self.statements.clear();
                }
                (of(name, said), Expects::Result)
            }
        };
        self.expected.push_back(expects);
        Step::Ask(packet.bytes(), ask)
    }

    /// The answer is over.
    fn over(&mut self, packet: Packet<'_>, ok: bool, status: String) -> Step {
        self.expected.pop_front();
        self.at = At::Result;
        (self.rows, self.changed) = (None, 0);
        Step::Answer(packet.bytes(), Answer { ok, status, ..Answer::default() })
    }

    fn went_well(&mut self, packet: Packet<'_>) -> Step {
        let status = match (self.rows, self.changed) {
            (Some(rows), _) => format!("{rows} rows"),
            (None, 0) => "OK".to_owned(),
            (None, changed) => format!("OK {changed}"),
        };
        self.over(packet, true, status)
    }

    /// The end of one result; there may be more.
    fn result(&mut self, packet: Packet<'_>) -> Step {
        let Some((changed, server)) = packet.result() else { return Step::Lost };
        if self.at == At::Result {
            self.changed = self.changed.saturating_add(changed);
        }
        if server & state::MORE_RESULTS == 0
            || self.at == At::FirstRow && server & state::CURSOR != 0
        {
            return self.went_well(packet);
        }
        self.at = At::Result;
        Step::Skip(packet.bytes())
    }

    /// The beginning of an answer, or of one of its results.
    fn begins_result(&mut self, packet: Packet<'_>, first: u8) -> Step {
        let bytes = packet.bytes();
        match (self.expected.front_mut(), first) {
            (Some(Expects::Login | Expects::Result | Expects::Results), 0) => self.result(packet),
            (Some(Expects::Result | Expects::Columns), 0xfe) => self.went_well(packet),
            (Some(Expects::Login), 1 | 0xfe) => Step::Skip(bytes),
            (Some(Expects::Results), 0xfb) => {
                self.sends_file = true;
                Step::Skip(bytes)
            }
            (Some(Expects::Results), _) => {
                let Some((columns, described)) = packet.columns() else { return Step::Lost };
                self.rows.get_or_insert(0);
                self.at = if described { At::Columns(columns) } else { At::FirstRow };
                Step::Skip(bytes)
            }
            (Some(Expects::Columns), _) if packet.is_column() => Step::Skip(bytes),
            (Some(Expects::Rows), _) => {
                self.rows.get_or_insert(0);
                self.at = At::Rows;
                self.row(packet, first)
            }
            (Some(Expects::Text), _) => self.went_well(packet),
            (Some(Expects::Prepared(said)), 0) => {
                let Some((id, described)) = packet.prepared() else { return Step::Lost };
                if self.statements.len() >= STATEMENTS {
                    self.statements.clear();
                }
                self.statements.insert(id, std::mem::take(said));
                if described == 0 {
                    return self.went_well(packet);
                }
                self.at = At::Descriptions(described);
                Step::Skip(bytes)
            }
            _ => Step::Lost,
        }
    }

    fn row(&mut self, packet: Packet<'_>, first: u8) -> Step {
        let ends = first == 0xfe && packet.length < PACKET_MAX;
        if ends && packet.is_eof() && self.at == At::FirstRow {
            let Some((_, server)) = packet.result() else { return Step::Lost };
            self.eof = Some(true);
            if server & state::CURSOR != 0 {
                return self.went_well(packet);
            }
            self.at = At::Rows;
            return Step::Skip(packet.bytes());
        }
        if ends {
            return self.result(packet);
        }
        self.at = At::Rows;
        self.rows = self.rows.map(|rows| rows.saturating_add(1));
        Step::Skip(packet.bytes())
    }

    /// A description of a parameter or a column of a statement that is prepared, or the end of some.
    fn description(&mut self, packet: Packet<'_>, left: u64) -> Step {
        let left = match left.checked_sub(1) {
            _ if packet.is_eof() => {
                self.eof = Some(true);
                if left == 0 {
                    return self.went_well(packet);
                }
                left
            }
            Some(left) if packet.is_column() => left,
            _ => return Step::Lost,
        };
        self.at = At::Descriptions(left);
        // Whether one more packet comes is not known of a connection that is old.
        if left > 0 || self.eof == Some(true) {
            return Step::Skip(packet.bytes());
        }
        self.eof_may_follow = self.eof.is_none();
        self.went_well(packet)
    }
}

impl Decoder for Mysql {
    fn protocol(&self) -> &'static str {
        "mysql"
    }

    fn server_began(&self) -> bool {
        self.greets
    }

    fn begins(&self, bytes: &[u8]) -> bool {
        // A head that is read alone is the next command's: what went before is answered.
        let head = Packet::read(Input { bytes, last: true });
        let alone = head.is_some_and(|head| head.number == 0 && head.length > 0);
        is_commands(bytes) || (alone && bytes.len() == HEAD)
    }

    fn ask(&mut self, input: Input<'_>) -> Step {
        let Some(packet) = Packet::read_command(input) else { return Step::More };
        let goes_on = std::mem::replace(&mut self.ask_goes_on, packet.length == PACKET_MAX);
        if self.sends_file {
            self.sends_file = packet.length > 0;
            return Step::Skip(packet.bytes());
        }
        if goes_on {
            return Step::Skip(packet.bytes());
        }
        if let Some(server) = self.logs_in.take() {
            return self.login(packet, server);
        }
        match (packet.number, self.expected.front()) {
            (0, _) => self.command(packet),
            (_, Some(Expects::Login)) => Step::Skip(packet.bytes()),
            _ => Step::Lost,
        }
    }

    fn answer(&mut self, input: Input<'_>, _: Option<&str>) -> Step {
        let Some(packet) = Packet::read(input) else { return Step::More };
        let bytes = packet.bytes();
        if std::mem::replace(&mut self.answer_goes_on, packet.length == PACKET_MAX) {
            return Step::Skip(bytes);
        }
        if std::mem::take(&mut self.greets) {
            self.logs_in = packet.greeting();
            return if self.logs_in.is_some() { Step::Skip(bytes) } else { Step::Lost };
        }
        if std::mem::take(&mut self.eof_may_follow) {
            let follows = packet.is_eof() && packet.number != 1;
            self.eof = Some(follows);
            if follows {
                return Step::Skip(bytes);
            }
        }
        let Some(&first) = packet.body.first() else { return Step::Lost };
        if first == 0xff {
            return match packet.error() {
                Some((PROGRESS, _)) => Step::Skip(bytes),
                // That the connection is ended.
                Some(_) if self.expected.is_empty() => Step::Skip(bytes),
                Some((code, text)) => self.over(packet, false, format!("{code} {text}")),
                None => Step::Lost,
            };
        }
        match self.at {
            At::Result => self.begins_result(packet, first),
            At::Columns(left) if packet.is_column() => {
                self.at = if left > 1 { At::Columns(left - 1) } else { At::FirstRow };
                Step::Skip(bytes)
            }
            At::Columns(_) => Step::Lost,
            At::FirstRow | At::Rows => self.row(packet, first),
            At::Descriptions(left) => self.description(packet, left),
        }
    }

    fn restart(&mut self) -> bool {
        let Mysql { statements, last, eof, .. } = std::mem::take(self);
        *self = Mysql { statements, last, eof, ..Mysql::default() };
        true
    }
}
