//! What packets of MySQL's protocol carry: a head of a length and a number, then numbers that lie the
//! least significant byte first, and texts behind their lengths or before a zero.

use crate::decoder::Input;
use crate::fields::Fields;
use crate::ids::STATEMENT;
use crate::text::{reported, zero_ended};

/// Bytes of a head: MariaDB reads them by a call of their own.
pub const HEAD: usize = 4;
/// The longest packet; what is longer goes on in the next.
pub const PACKET_MAX: u64 = 0xff_ffff;
/// Bytes of a packet that say what it is, at most.
const WANTED: u64 = 600;
/// The command that has a statement.
const QUERY: u8 = 3;
/// The version of the protocol, with which the server begins.
const VERSION: u8 = 10;
/// The longest greeting that is believed.
const GREETING_MAX: u64 = 1024;

/// What both ends can do.
pub mod able {
    pub const DATABASE: u32 = 1 << 3;
    pub const COMPRESSED: u32 = 1 << 5 | 1 << 26;
    pub const PROTOCOL_41: u32 = 1 << 9;
    pub const TLS: u32 = 1 << 11;
    pub const SHORT_SECRET: u32 = 1 << 15;
    pub const LONG_SECRET: u32 = 1 << 21;
    pub const NO_EOF: u32 = 1 << 24;
}

/// The state of the server, behind each result.
pub mod state {
    pub const MORE_RESULTS: u16 = 1 << 3;
    pub const CURSOR: u16 = 1 << 6;
}

/// A packet.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    /// Without the head.
    pub length: u64,
    pub number: u8,
    /// As much as there is, and is wanted.
    pub body: &'a [u8],
}

impl<'a> Packet<'a> {
    /// The packet that begins here, once all of it is there that says what it is.
    pub fn read(input: Input<'a>) -> Option<Packet<'a>> {
        Packet::read_most(input, WANTED)
    }

    /// The same of a client's, with more of a statement: at its end may be an id.
    pub fn read_command(input: Input<'a>) -> Option<Packet<'a>> {
        let is_statement = input.bytes.get(HEAD) == Some(&QUERY);
        Packet::read_most(input, if is_statement { STATEMENT } else { WANTED })
    }

    fn read_most(input: Input<'a>, wanted: u64) -> Option<Packet<'a>> {
        let &[a, b, c, number] = input.bytes.get(..HEAD)? else { return None };
        let length = u64::from(u32::from_le_bytes([a, b, c, 0]));
        let end = HEAD as u64 + length.min(wanted);
        let body = input.part(HEAD as u64, end);
        input.has(end).then_some(Packet { length, number, body })
    }

    /// With the head.
    pub fn bytes(self) -> u64 {
        HEAD as u64 + self.length
    }

    /// Whether it is the end of columns or rows, as it was before such ends were results.
    pub fn is_eof(self) -> bool {
        self.length == 5 && self.body.first() == Some(&0xfe)
    }

    /// Whether it describes a column.
    pub fn is_column(self) -> bool {
        self.body.starts_with(b"\x03def")
    }

    /// How many rows a result has changed, and the server's state.
    pub fn result(self) -> Option<(u64, u16)> {
        let mut fields = Fields(self.body.get(1..)?);
        if self.is_eof() {
            fields.take(2)?;
            return Some((0, fields.le16()?));
        }
        let changed = fields.sized_number()?;
        fields.sized_number()?;
        Some((changed, fields.le16()?))
    }

    /// The number of an error, and what it says.
    pub fn error(self) -> Option<(u16, String)> {
        let mut fields = Fields(self.body.get(1..)?);
        let code = fields.le16()?;
        if fields.0.first() == Some(&b'#') {
            fields.take(6)?;
        }
        Some((code, reported(fields.0)))
    }

    /// How many columns rows have, and whether descriptions of them follow: MariaDB leaves out those that
    /// its client has kept.
    pub fn columns(self) -> Option<(u64, bool)> {
        let mut fields = Fields(self.body);
        let count = fields.sized_number().filter(|count| (1..1 << 16).contains(count))?;
        let more = self.length - (self.body.len() - fields.0.len()) as u64;
        match (more, fields.0.first()) {
            (0, _) | (1, Some(1)) => Some((count, true)),
            (1, Some(0)) => Some((count, false)),
            _ => None,
        }
    }

    /// The number of a statement that was prepared, and how many parameters and columns are described.
    pub fn prepared(self) -> Option<(u32, u64)> {
        let mut fields = Fields(self.body.get(1..)?);
        let (id, columns, parameters) = (fields.le32()?, fields.le16()?, fields.le16()?);
        Some((id, u64::from(columns) + u64::from(parameters)))
    }

    /// What the server can do that greets.
    pub fn greeting(self) -> Option<u32> {
        let fits = self.number == 0 && self.length <= GREETING_MAX;
        let (&VERSION, rest) = self.body.split_first().filter(|_| fits)? else { return None };
        let (version, rest) = zero_ended(rest)?;
        let is_version = version.first().is_some_and(u8::is_ascii_digit);
        let mut fields = Fields(rest);
        let secret = fields.take(13)?;
        let low = fields.le16()?;
        fields.take(3)?;
        let high = fields.le16()?;
        let all = is_version && version.iter().all(|byte| (b' '..=b'~').contains(byte));
        (all && secret.last() == Some(&0)).then_some(u32::from(high) << 16 | u32::from(low))
    }

    /// What the client can do that logs in, and as whom and to which database it does.
    pub fn login(self) -> Option<(u32, String)> {
        let able = Fields(self.body).le32()?;
        Some((able, self.names(able).unwrap_or_default()))
    }

    fn names(self, able: u32) -> Option<String> {
        let (user, rest) = zero_ended(self.body.get(32..)?)?;
        let mut said = format!("user={}", reported(user));
        if able & able::DATABASE == 0 {
            return Some(said);
        }
        let mut fields = Fields(rest);
        let secret = match able {
            _ if able & able::LONG_SECRET != 0 => fields.sized_number(),
            _ if able & able::SHORT_SECRET != 0 => {
                fields.take(1).map(|one| one.iter().map(|n| u64::from(*n)).sum())
            }
            _ => zero_ended(fields.0).map(|(secret, _)| secret.len() as u64 + 1),
        };
        let secret = secret.and_then(|length| usize::try_from(length).ok());
        if let Some((database, _)) = secret.and_then(|length| zero_ended(fields.0.get(length..)?)) {
            said.push_str(" database=");
            said.push_str(&reported(database));
        }
        Some(said)
    }
}
