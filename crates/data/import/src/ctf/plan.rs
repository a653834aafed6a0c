//! From types to plans: what to do, step by step, to read an event.
//!
//! The parts of an event that always lie at the same place are one step: one look at whether there are
//! enough bytes, then a load, two shifts and a store for each field, with nothing to decide. Only texts,
//! arrays, variants and alignments that are not known beforehand are steps of their own. Where a field
//! lies relative to a multiple of 8 bits is followed while the plan is made, so that in most traces
//! nothing is left to align when events are read.
#![allow(missing_docs)] // Fields are named as the format's own documents name them.

use std::rc::Rc;

use super::model::{Count, Integer, Model, Path, Ranges, Role, Scope, Type};
use super::pieces::{self, Piece, Stretch};
use super::steps::{Choose, Compact, CountOf, Fixed, Load, Op, Selector, within};

/// What a slot holds.
#[derive(Clone, Debug)]
pub struct Column {
    pub name: String,
    pub kind: Kind,
    /// It is of use to the reader only.
    pub hidden: bool,
}

/// How a slot is read.
#[derive(Clone, Debug)]
pub enum Kind {
    Unsigned,
    Signed,
    /// Bits of a number of 32 or 64 bits.
    Float32,
    Float64,
    /// Place (upper half) and length (lower half) in the packet.
    Text,
    Blob,
    /// A value that has a name.
    Label {
        signed: bool,
        labels: Rc<Vec<(String, Ranges)>>,
    },
    /// Place (upper half) among the elements' values, and number of elements.
    Array(Rc<Vec<Column>>),
}

/// Slots of one event at most.
const SLOTS_MAX: usize = 2048;
/// Types that are looked at for one event.
const VISITS_MAX: usize = 1 << 15;

/// The plans of a kind of stream.
#[derive(Clone, Debug)]
pub struct StreamPlan {
    pub header: Box<[Op]>,
    pub compact: Option<Compact>,
    /// Slots before those of an event's own.
    pub columns: Vec<Column>,
    pub packet: Box<[Op]>,
    pub events: Vec<(u64, EventPlan)>,
    /// Fields of all events that are loaded for many events at a time.
    pub stretches: Vec<Stretch>,
}

/// The plan of a kind of event.
#[derive(Clone, Debug)]
pub struct EventPlan {
    pub name: String,
    pub ops: Box<[Op]>,
    /// The same, if there are no others in it.
    pub pieces: Option<Box<[Piece]>>,
    /// What its values are; while it is read, they are in the slots from `first` on.
    pub columns: Vec<Column>,
    pub first: usize,
}

/// What cannot be planned, and why.
pub type Problem = String;

/// The plan for packets' headers, and how many slots it takes.
pub fn packet_header(model: &Model) -> Result<(Box<[Op]>, Vec<Column>), Problem> {
    let mut maker = Maker::default();
    maker.scope(Scope::PacketHeader, model.packet_header.as_ref())?;
    Ok((maker.done(), maker.columns))
}

/// The plans for a kind of stream; slots of the packet's header come first.
pub fn stream(model: &Model, id: u64) -> Result<StreamPlan, Problem> {
    let stream = model.streams.get(&id).ok_or_else(|| format!("no stream has the number {id}"))?;
    let mut maker = Maker::default();
    maker.scope(Scope::PacketHeader, model.packet_header.as_ref())?;
    maker.done();
    maker.scope(Scope::PacketContext, stream.packet_context.as_ref())?;
    let packet = maker.done();
    // An event begins anywhere.
    maker.known = Known { modulus: 1, offset: 0 };
    maker.scope(Scope::EventHeader, stream.event_header.as_ref())?;
    let header = maker.done();
    let (mut events, mut stretches) = (Vec::new(), Vec::new());
    for (id, event) in &stream.events {
        let mut maker = maker.clone();
        let first = maker.columns.len();
        let what = |problem| format!("event {:?}: {problem}", event.name);
        let common = maker.scope(Scope::StreamEventContext, stream.event_context.as_ref());
        common.map_err(what)?;
        maker.scope(Scope::EventContext, event.context.as_ref()).map_err(what)?;
        maker.scope(Scope::Payload, event.payload.as_ref()).map_err(what)?;
        let ops = maker.done();
        let columns = maker.columns.split_off(first);
        let pieces = pieces::of(&ops, first, &mut stretches);
        events.push((*id, EventPlan { name: event.name.clone(), ops, pieces, columns, first }));
    }
    let compact = Compact::of(&header);
    Ok(StreamPlan { header, compact, columns: maker.columns, packet, events, stretches })
}

/// Where a position is, as far as it is known: `offset` beyond a multiple of `modulus` bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Known {
    modulus: u32,
    offset: u32,
}

impl Default for Known {
    /// A packet's beginning is aligned to everything.
    fn default() -> Known {
        Known { modulus: 1 << 16, offset: 0 }
    }
}

impl Known {
    fn after(self, bits: u64) -> Known {
        let offset = (u64::from(self.offset) + bits) % u64::from(self.modulus);
        Known { modulus: self.modulus, offset: offset as u32 }
    }

    /// What is known of a position that is one of two.
    fn or(self, other: Known) -> Known {
        let mut modulus = self.modulus.min(other.modulus);
        while modulus > 1 && self.offset % modulus != other.offset % modulus {
            modulus /= 2;
        }
        Known { modulus, offset: self.offset % modulus }
    }
}

/// A field that others may refer to.
#[derive(Clone, Debug)]
struct Named {
    scope: Scope,
    path: Vec<String>,
    slot: u16,
    integer: Rc<Integer>,
}

#[derive(Clone, Debug, Default)]
struct Maker {
    ops: Vec<Op>,
    columns: Vec<Column>,
    named: Vec<Named>,
    known: Known,
    /// Loads of the stretch that is under way, its length, and where in a byte it began.
    loads: Vec<Load>,
    bits: u32,
    skip: u32,
    scope_now: Option<Scope>,
    path: Vec<String>,
    visits: usize,
}

impl Maker {
    fn scope(&mut self, scope: Scope, of: Option<&Rc<Type>>) -> Result<(), Problem> {
        self.scope_now = Some(scope);
        self.path.clear();
        match of {
            Some(of) => self.add(of),
            None => Ok(()),
        }
    }

    /// The steps so far.
    fn done(&mut self) -> Box<[Op]> {
        self.close();
        std::mem::take(&mut self.ops).into()
    }

    /// Ends the stretch that is under way.
    fn close(&mut self) {
        if self.bits > 0 {
            let loads: Box<[Load]> = std::mem::take(&mut self.loads).into();
            let (bits, skip) = (self.bits, self.skip);
            self.ops.push(Op::Fixed(Fixed { bits, skip, loads }));
            self.bits = 0;
        }
    }

    fn step(&mut self, op: Op) {
        self.close();
        self.ops.push(op);
    }

    /// Makes the stretch that is under way longer.
    fn extend(&mut self, bits: u32) {
        if self.bits == 0 {
            self.skip = self.known.offset % 8;
        }
        self.bits += bits;
        self.known = self.known.after(bits.into());
    }

    fn align(&mut self, to: u32) {
        if self.known.modulus >= to {
            let beyond = self.known.offset % to;
            if beyond != 0 {
                self.extend(to - beyond);
            }
        } else {
            self.step(Op::Align(to));
            self.known = Known { modulus: to, offset: 0 };
        }
    }

    fn slot(&mut self, kind: Kind) -> Result<u16, Problem> {
        if self.columns.len() >= SLOTS_MAX {
            return Err("it has too many fields".into());
        }
        self.columns.push(Column { name: self.path.join("_"), kind, hidden: false });
        Ok((self.columns.len() - 1) as u16)
    }

    fn add(&mut self, of: &Type) -> Result<(), Problem> {
        self.visits += 1;
        if self.visits > VISITS_MAX {
            return Err("it has too many types".into());
        }
        match of {
            Type::Integer(integer) => self.integer(integer),
            Type::Float { size, align, little } => {
                self.align(*align);
                let slot = self.slot(if *size == 32 { Kind::Float32 } else { Kind::Float64 })?;
                self.load(slot, *size, false, *little);
                Ok(())
            }
            Type::Text => {
                self.align(8);
                let slot = self.slot(Kind::Text)?;
                self.step(Op::Text { slot });
                self.known = Known { modulus: 8, offset: 0 };
                Ok(())
            }
            Type::Bytes { count, text } => {
                self.align(8);
                let count = self.count(count)?;
                let slot = self.slot(if *text { Kind::Text } else { Kind::Blob })?;
                self.step(Op::Bytes { slot, count });
                self.known = match count {
                    CountOf::Static(count) => self.known.after(count.saturating_mul(8)),
                    CountOf::Slot(_) => Known { modulus: 8, offset: 0 },
                };
                Ok(())
            }
            Type::Struct { fields, .. } => {
                self.align(of.align());
                for (name, of) in fields {
                    self.path.push(name.clone());
                    self.add(of)?;
                    self.path.pop();
                }
                Ok(())
            }
            Type::Array { element, count, align } => self.array(element, count, *align),
            Type::Variant { selector, options } => {
                let (selector, integer) = self.find(selector)?;
                let mut branches = Vec::new();
                for choice in options {
                    let labels = || {
                        let label = integer.labels.iter().find(|(name, _)| *name == choice.name);
                        label.map(|(_, ranges)| ranges.clone())
                    };
                    let ranges = choice.ranges.clone().or_else(labels).unwrap_or_default();
                    branches.push((ranges, choice.name.as_str(), &choice.of));
                }
                self.choose(selector, branches, true)
            }
            Type::Optional { selector, ranges, of } => {
                let (selector, _) = self.find(selector)?;
                self.choose(selector, vec![(ranges.clone(), "", of)], false)
            }
        }
    }

    fn integer(&mut self, integer: &Integer) -> Result<(), Problem> {
        self.align(integer.align);
        let labels = integer.labels.clone();
        let signed = integer.signed;
        let slot = self.slot(match (labels.is_empty(), signed) {
            (false, _) => Kind::Label { signed, labels: Rc::new(labels) },
            (true, true) => Kind::Signed,
            (true, false) => Kind::Unsigned,
        })?;
        if integer.size == 0 {
            self.step(Op::Varint { slot, signed });
            self.known = Known { modulus: 8, offset: 0 };
        } else {
            self.load(slot, integer.size, signed, integer.little);
        }
        if let Some(scope) = self.scope_now {
            let integer = Rc::new(integer.clone());
            self.named.push(Named { scope, path: self.path.clone(), slot, integer });
        }
        for role in &integer.roles {
            // A packet's beginning is a time that events' times are not counted from yet.
            let role = match (role, self.scope_now) {
                (Role::Time, Some(Scope::PacketContext | Scope::PacketHeader)) => Role::Begin,
                (role, _) => *role,
            };
            let size = if integer.size == 0 { 64 } else { integer.size as u8 };
            self.step(Op::Note { slot, size, role });
        }
        Ok(())
    }

    /// Takes an integer of so many bits, 64 at most.
    fn load(&mut self, slot: u16, size: u32, signed: bool, little: bool) {
        if self.known.modulus < 8 {
            self.step(Op::Bits { slot, size: size as u8, signed, little });
            self.known = self.known.after(size.into());
            return;
        }
        if self.bits == 0 {
            self.skip = self.known.offset % 8;
        }
        let at = self.skip + self.bits;
        let within = at % 8;
        let ninth = (within + size).saturating_sub(64);
        let (left, right) = match (little, ninth) {
            (true, 0) => (64 - within - size, 64 - size),
            (false, 0) => (within, 64 - size),
            // All bits of the first eight bytes from `within` on; the ninth's are put to them.
            (true, _) => (0, within),
            (false, _) => (within, 64 - size),
        };
        self.loads.push(Load {
            byte: at / 8,
            slot,
            left: left as u8,
            right: right as u8,
            signed,
            little,
            ninth: ninth as u8,
        });
        self.extend(size);
    }

    fn array(&mut self, element: &Type, count: &Count, align: u32) -> Result<(), Problem> {
        self.align(align.max(element.align()));
        let count = self.count(count)?;
        let slot = self.slot(Kind::Unsigned)?;
        self.close();
        let before = std::mem::take(&mut self.ops);
        let first = self.columns.len();
        let named = self.named.len();
        // Each element begins where the one before ended: only its alignment is known.
        let align = element.align();
        self.known = Known { modulus: align, offset: 0 };
        let path = std::mem::take(&mut self.path);
        self.add(element)?;
        self.path = path;
        let mut body = self.done().into_vec();
        if body.is_empty() {
            return Err("an array's elements have no bits".into());
        }
        if align > 1 {
            body.insert(0, Op::Align(align));
        }
        self.ops = before;
        self.named.truncate(named);
        let columns = self.columns.split_off(first);
        let width = columns.len() as u16;
        // Their slots stay taken: values are there while an element is read.
        let hidden = |column: &Column| Column { hidden: true, ..column.clone() };
        self.columns.extend(columns.iter().map(hidden));
        self.column(slot)?.kind = Kind::Array(Rc::new(columns));
        let first = first as u16;
        self.step(Op::Array { slot, count, body: body.into(), first, width });
        // The count is not known here.
        self.known = Known { modulus: 1, offset: 0 };
        Ok(())
    }

    fn choose(
        &mut self,
        selector: Selector,
        branches: Vec<(Ranges, &str, &Rc<Type>)>,
        must: bool,
    ) -> Result<(), Problem> {
        self.close();
        let before = std::mem::take(&mut self.ops);
        let first = self.columns.len();
        let begin = self.known;
        let mut end = (!must).then_some(begin);
        let mut options = Vec::new();
        for (ranges, name, of) in branches {
            self.known = begin;
            if !name.is_empty() {
                self.path.push(name.to_owned());
            }
            self.add(of)?;
            if !name.is_empty() {
                self.path.pop();
            }
            options.push((ranges, self.done()));
            end = Some(end.map_or(self.known, |end| end.or(self.known)));
        }
        self.ops = before;
        self.known = end.unwrap_or(begin);
        let shown = self.scope_now > Some(Scope::EventHeader);
        let width = if shown { (self.columns.len() - first) as u16 } else { 0 };
        let first = first as u16;
        let dense = std::array::from_fn(|value| {
            let place = options.iter().position(|(ranges, _)| within(ranges, value as i128));
            place.map_or(0, |place| u8::try_from(place + 1).unwrap_or(0))
        });
        if options.len() >= 255 {
            return Err("a variant has too many options".into());
        }
        let choose = Choose { selector, options, dense, first, width, must };
        self.step(Op::Choose(Box::new(choose)));
        Ok(())
    }

    fn column(&mut self, slot: u16) -> Result<&mut Column, Problem> {
        self.columns.get_mut(usize::from(slot)).ok_or_else(|| "a value has no column".into())
    }

    fn count(&mut self, count: &Count) -> Result<CountOf, Problem> {
        match count {
            Count::Static(count) => Ok(CountOf::Static(*count)),
            Count::Field(path) => {
                let (selector, _) = self.find(path)?;
                self.column(selector.slot)?.hidden = true;
                Ok(CountOf::Slot(selector.slot))
            }
        }
    }

    /// The field that a path leads to: within the structure that it stands in, or one further out,
    /// or a part of the event before.
    fn find(&self, path: &Path) -> Result<(Selector, Rc<Integer>), Problem> {
        let of = |named: &Named| {
            let selector = Selector { slot: named.slot, signed: named.integer.signed };
            (selector, Rc::clone(&named.integer))
        };
        let problem = || format!("there is no integer {:?} before it", path.names.join("."));
        if let Some(scope) = path.scope {
            let mut found = self.named.iter().rev();
            let same = |named: &&Named| named.scope == scope && named.path == path.names;
            return found.find(same).map(of).ok_or_else(problem);
        }
        for depth in (0..self.path.len().max(1)).rev() {
            let (outer, _) = self.path.split_at(depth.min(self.path.len()));
            let same = |named: &&Named| {
                Some(named.scope) == self.scope_now
                    && named.path.len() == outer.len() + path.names.len()
                    && named.path.starts_with(outer)
                    && named.path.ends_with(&path.names)
            };
            if let Some(named) = self.named.iter().rev().find(same) {
                return Ok(of(named));
            }
        }
        let mut before = self.named.iter().rev();
        before.find(|named| named.path == path.names).map(of).ok_or_else(problem)
    }
}
