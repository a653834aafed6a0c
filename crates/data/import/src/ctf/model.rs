//! What the metadata of a CTF trace says, in either of its languages.
#![allow(missing_docs)] // Fields are named as the format's own documents name them.

use std::collections::BTreeMap;
use std::rc::Rc;

/// A trace's types.
#[derive(Clone, Debug, Default)]
pub struct Model {
    /// Header of packets.
    pub packet_header: Option<Rc<Type>>,
    /// Streams by number.
    pub streams: BTreeMap<u64, Stream>,
    /// Clocks by name.
    pub clocks: BTreeMap<String, Clock>,
    /// What the environment says, `hostname` and so on.
    pub env: BTreeMap<String, String>,
}

/// A kind of stream.
#[derive(Clone, Debug, Default)]
pub struct Stream {
    pub packet_context: Option<Rc<Type>>,
    pub event_header: Option<Rc<Type>>,
    pub event_context: Option<Rc<Type>>,
    /// Name of its clock.
    pub clock: Option<String>,
    /// Events by number.
    pub events: BTreeMap<u64, Event>,
}

/// A kind of event.
#[derive(Clone, Debug, Default)]
pub struct Event {
    pub name: String,
    pub context: Option<Rc<Type>>,
    pub payload: Option<Rc<Type>>,
}

/// A clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clock {
    /// Ticks per second.
    pub frequency: u64,
    /// Its zero, since 1970.
    pub offset_s: i64,
    /// And ticks besides.
    pub offset: i64,
}

impl Default for Clock {
    fn default() -> Clock {
        Clock { frequency: 1_000_000_000, offset_s: 0, offset: 0 }
    }
}

impl Clock {
    /// Nanoseconds since 1970 of a number of ticks; those before are 0.
    #[inline]
    pub fn ns(&self, ticks: u64) -> u64 {
        if self.frequency == 1_000_000_000 {
            let zero = self.offset_s.wrapping_mul(1_000_000_000).wrapping_add(self.offset);
            return ticks.saturating_add_signed(zero);
        }
        let second = i128::from(self.frequency.max(1));
        let ticks = i128::from(ticks) + i128::from(self.offset);
        let ns = i128::from(self.offset_s) * 1_000_000_000 + ticks * 1_000_000_000 / second;
        ns.clamp(0, i128::from(u64::MAX)) as u64
    }
}

/// What an integer is to the reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The clock's value, all of it or its lowest bits.
    Time,
    /// Number of the event's kind.
    Class,
    /// Number of the stream's kind.
    Stream,
    /// The magic number of packets.
    Magic,
    /// Bits of a packet, all and in use.
    PacketSize,
    ContentSize,
    /// The clock at the packet's beginning and end.
    Begin,
    End,
    /// Events that were discarded so far.
    Discarded,
    /// The packet's number.
    Sequence,
}

impl Role {
    /// How many there are.
    pub const COUNT: usize = 10;
}

/// Ranges of numbers, ends included.
pub type Ranges = Vec<(i128, i128)>;

/// An integer or enumeration.
#[derive(Clone, Debug, PartialEq)]
pub struct Integer {
    /// Bits; 0 if the number says itself where it ends (LEB128).
    pub size: u32,
    pub align: u32,
    pub signed: bool,
    pub little: bool,
    /// It is a letter, in arrays.
    pub letter: bool,
    /// Names of values.
    pub labels: Vec<(String, Ranges)>,
    /// It is of a clock.
    pub clock: Option<String>,
    pub roles: Vec<Role>,
}

/// A type.
#[derive(Clone, Debug, PartialEq)]
pub enum Type {
    Integer(Integer),
    Float {
        size: u32,
        align: u32,
        little: bool,
    },
    /// Ends with a zero.
    Text,
    Struct {
        fields: Vec<(String, Rc<Type>)>,
        align: u32,
    },
    Array {
        element: Rc<Type>,
        count: Count,
        align: u32,
    },
    /// Bytes: text, or anything.
    Bytes {
        count: Count,
        text: bool,
    },
    Variant {
        selector: Path,
        options: Vec<Choice>,
    },
    /// There if the selector's value is in the ranges.
    Optional {
        selector: Path,
        ranges: Ranges,
        of: Rc<Type>,
    },
}

/// One of a variant's types.
#[derive(Clone, Debug, PartialEq)]
pub struct Choice {
    pub name: String,
    /// For which values of the selector; `None`: those that its enumeration calls by this name.
    pub ranges: Option<Ranges>,
    pub of: Rc<Type>,
}

/// How many elements.
#[derive(Clone, Debug, PartialEq)]
pub enum Count {
    Static(u64),
    /// As a field before it says.
    Field(Path),
}

/// Where another field is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Path {
    /// Where to begin; otherwise where the path stands, then further and further out.
    pub scope: Option<Scope>,
    pub names: Vec<String>,
}

/// Parts of a packet and an event, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    PacketHeader,
    PacketContext,
    EventHeader,
    StreamEventContext,
    EventContext,
    Payload,
}

impl Type {
    /// Bits to whose multiple it is aligned.
    pub fn align(&self) -> u32 {
        match self {
            Type::Integer(integer) => integer.align.max(1),
            Type::Float { align, .. } => (*align).max(1),
            Type::Text | Type::Bytes { .. } => 8,
            Type::Struct { align, .. } => (*align).max(1),
            Type::Array { element, align, .. } => element.align().max(*align).max(1),
            Type::Variant { .. } | Type::Optional { .. } => 1,
        }
    }

    /// A structure; it is aligned as its fields are.
    pub fn structure(fields: Vec<(String, Rc<Type>)>, least: u32) -> Type {
        let align = fields.iter().map(|(_, of)| of.align()).fold(least.max(1), u32::max);
        Type::Struct { fields, align }
    }
}
