//! The code of one method: instructions, labels, frames.

use std::borrow::Cow;

use super::pool::Pool;
use crate::op;
use crate::target::Frames;

/// Verification types of locals and of the operand stack.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Type {
    /// Nothing that may be used.
    Top,
    /// int
    Int,
    /// float
    Float,
    /// double, in two slots
    Double,
    /// long, in two slots
    Long,
    /// A reference to this class or array.
    Object(Cow<'static, str>),
}

impl Type {
    /// How many slots it takes.
    pub fn slots(&self) -> u16 {
        match self {
            Self::Double | Self::Long => 2,
            _ => 1,
        }
    }

    fn write(&self, out: &mut Vec<u8>, pool: &mut Pool) {
        match self {
            Self::Top => out.push(0),
            Self::Int => out.push(1),
            Self::Float => out.push(2),
            Self::Double => out.push(3),
            Self::Long => out.push(4),
            Self::Object(class) => {
                out.push(7);
                out.extend(pool.class(class).to_be_bytes());
            }
        }
    }
}

/// A place in the code, which branches may lead to before it is placed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Label(usize);

struct Fixup {
    /// Where the offset is.
    at: usize,
    /// From where it counts.
    from: usize,
    label: Label,
    wide: bool,
}

struct Frame {
    at: usize,
    /// Types of locals, one entry a variable.
    locals: Vec<Type>,
    stack: Vec<Type>,
}

struct Handler {
    from: Label,
    to: Label,
    target: Label,
    class: u16,
}

/// The code of one method.
pub struct Code {
    bytes: Vec<u8>,
    labels: Vec<Option<usize>>,
    fixups: Vec<Fixup>,
    frames: Vec<Frame>,
    handlers: Vec<Handler>,
    /// Types of the parameters, which are the locals at the entry.
    parameters: Vec<Type>,
    stack: i32,
    stack_max: i32,
    locals_max: u16,
    calls: Vec<Call>,
    /// From which offset on which line, in order.
    lines: Vec<(u16, u16)>,
    /// From which offset on which instruction of the program, in order.
    places: Vec<(u16, u32)>,
}

/// Which bytes of a method are a call of the program's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Call {
    /// The first of them.
    pub from: u16,
    /// Behind the last.
    pub to: u16,
    /// Where the program has the call.
    pub pc: u32,
}

impl Code {
    /// Empty code of a method with these parameters.
    pub fn new(parameters: Vec<Type>) -> Self {
        let locals_max = parameters.iter().map(Type::slots).sum();
        Self {
            bytes: Vec::new(),
            labels: Vec::new(),
            fixups: Vec::new(),
            frames: Vec::new(),
            handlers: Vec::new(),
            parameters,
            stack: 0,
            stack_max: 0,
            locals_max,
            calls: Vec::new(),
            lines: Vec::new(),
            places: Vec::new(),
        }
    }

    /// Makes an object of a class, by its constructor without parameters.
    pub fn create(&mut self, pool: &mut Pool, class: &str) {
        let index = pool.class(class);
        self.op_index(op::NEW, index, 1);
        self.op(op::DUP, 1);
        let constructor = pool.method(class, "<init>", "()V");
        self.op_index(op::INVOKESPECIAL, constructor, -1);
    }

    /// Notes that what follows comes from an instruction of the program.
    pub fn note_place(&mut self, pc: u32) {
        self.places.push((self.bytes.len() as u16, pc));
    }

    /// The code as text: of each instruction where it is, and of which one of the program.
    pub fn listing(&mut self, pool: &Pool) -> Vec<(usize, Option<u32>, String)> {
        self.resolve();
        let lines = super::listing::listing(&self.bytes, pool).into_iter();
        let of = |at: usize| {
            let after = self.places.partition_point(|(place, _)| usize::from(*place) <= at);
            after.checked_sub(1).map(|index| self.places[index].1)
        };
        lines.map(|(at, text)| (at, of(at), text)).collect()
    }

    /// Notes that what follows comes from a line of the class's source file.
    pub fn line(&mut self, line: u16) {
        // Methods are much shorter than 64 KB.
        let at = self.bytes.len() as u16;
        match self.lines.last_mut() {
            Some((last_at, last)) if *last_at == at => *last = line,
            Some((_, last)) if *last == line => {}
            _ => self.lines.push((at, line)),
        }
    }

    /// Notes that the code between an offset and here is a call of the program's.
    pub fn note_call(&mut self, from: usize, pc: u32) {
        // Methods are much shorter than 64 KB.
        let (from, to) = (from as u16, self.bytes.len() as u16);
        self.calls.push(Call { from, to, pc });
    }

    /// Its size in bytes.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    fn depth(&mut self, change: i32) {
        self.stack += change;
        debug_assert!(self.stack >= 0, "the operand stack is empty");
        self.stack_max = self.stack_max.max(self.stack);
    }

    /// An instruction of one byte that changes the depth of the operand stack by so much.
    pub fn op(&mut self, op: u8, change: i32) {
        self.bytes.push(op);
        self.depth(change);
    }

    /// An instruction with an index of a constant.
    pub fn op_index(&mut self, op: u8, index: u16, change: i32) {
        self.bytes.push(op);
        self.bytes.extend(index.to_be_bytes());
        self.depth(change);
    }

    /// A load or store of a local: the opcode is that of `xload` or `xstore`.
    pub fn local(&mut self, op: u8, slot: u16, change: i32) {
        let slots = if matches!(op, LLOAD | DLOAD | LSTORE | DSTORE) { 2 } else { 1 };
        self.locals_max = self.locals_max.max(slot + slots);
        match slot {
            // Of each there are four short forms.
            0..4 => {
                let (first, base) =
                    if op >= ISTORE { (ISTORE_0, ISTORE) } else { (ILOAD_0, ILOAD) };
                self.bytes.push(first + (op - base) * 4 + slot as u8);
            }
            4..256 => self.bytes.extend([op, slot as u8]),
            _ => {
                self.bytes.extend([WIDE, op]);
                self.bytes.extend(slot.to_be_bytes());
            }
        }
        self.depth(change);
    }

    /// Pushes a constant.
    pub fn int(&mut self, pool: &mut Pool, value: i32) {
        match value {
            -1..=5 => self.bytes.push((3 + value) as u8),
            -128..=127 => self.bytes.extend([0x10, value as u8]),
            -32768..=32767 => {
                self.bytes.push(0x11);
                self.bytes.extend((value as i16).to_be_bytes());
            }
            _ => {
                let index = pool.int(value);
                self.ldc(index);
            }
        }
        self.depth(1);
    }

    fn ldc(&mut self, index: u16) {
        match u8::try_from(index) {
            Ok(index) => self.bytes.extend([0x12, index]),
            Err(_) => {
                self.bytes.push(0x13);
                self.bytes.extend(index.to_be_bytes());
            }
        }
    }

    /// Pushes a string or class of the pool.
    pub fn constant(&mut self, index: u16) {
        self.ldc(index);
        self.depth(1);
    }

    /// Pushes a constant by its bits.
    pub fn float(&mut self, pool: &mut Pool, bits: u32) {
        match bits {
            0 => self.bytes.push(0x0b),
            0x3f80_0000 => self.bytes.push(0x0c),
            0x4000_0000 => self.bytes.push(0x0d),
            _ => {
                let index = pool.float(bits);
                self.ldc(index);
            }
        }
        self.depth(1);
    }

    /// Pushes a constant.
    pub fn long(&mut self, pool: &mut Pool, value: i64) {
        match value {
            0 => self.op(0x09, 2),
            1 => self.op(0x0a, 2),
            _ => {
                let index = pool.long(value);
                self.op_index(0x14, index, 2);
            }
        }
    }

    /// Pushes a constant by its bits.
    pub fn double(&mut self, pool: &mut Pool, bits: u64) {
        match bits {
            0 => self.op(0x0e, 2),
            0x3ff0_0000_0000_0000 => self.op(0x0f, 2),
            _ => {
                let index = pool.double(bits);
                self.op_index(0x14, index, 2);
            }
        }
    }

    /// A label that is placed later.
    pub fn label(&mut self) -> Label {
        self.labels.push(None);
        Label(self.labels.len() - 1)
    }

    /// Places a label where something may branch to: with these locals and this operand stack.
    pub fn place(&mut self, label: Label, mut locals: Vec<Type>, stack: Vec<Type>) {
        while locals.last() == Some(&Type::Top) {
            locals.pop();
        }
        self.mark(label);
        self.stack = stack.iter().map(|t| i32::from(t.slots())).sum();
        self.stack_max = self.stack_max.max(self.stack);
        let frame = Frame { at: self.bytes.len(), locals, stack };
        match self.frames.last_mut() {
            Some(last) if last.at == frame.at => *last = frame,
            _ => self.frames.push(frame),
        }
    }

    /// Places a label that only handlers' ranges use.
    pub fn mark(&mut self, label: Label) {
        self.labels[label.0] = Some(self.bytes.len());
    }

    /// A branch.
    pub fn branch(&mut self, op: u8, label: Label, change: i32) {
        let from = self.bytes.len();
        self.bytes.push(op);
        self.fixups.push(Fixup { at: self.bytes.len(), from, label, wide: false });
        self.bytes.extend([0, 0]);
        self.depth(change);
    }

    fn wide(&mut self, from: usize, label: Label) {
        self.fixups.push(Fixup { at: self.bytes.len(), from, label, wide: true });
        self.bytes.extend([0; 4]);
    }

    /// A switch over keys, which must be in order.
    pub fn switch(&mut self, keys: &[(i32, Label)], default: Label) {
        self.depth(-1);
        let from = self.bytes.len();
        let dense = match keys {
            [(low, _), .., (high, _)] => {
                let span = i64::from(*high) - i64::from(*low) + 1;
                span * 4 <= keys.len() as i64 * 8
            }
            _ => false,
        };
        self.bytes.push(if dense { 0xaa } else { 0xab });
        while !self.bytes.len().is_multiple_of(4) {
            self.bytes.push(0);
        }
        self.wide(from, default);
        if dense {
            let (low, high) = (keys[0].0, keys[keys.len() - 1].0);
            self.bytes.extend(low.to_be_bytes());
            self.bytes.extend(high.to_be_bytes());
            let mut keys = keys.iter().peekable();
            for key in low..=high {
                let label =
                    keys.next_if(|(next, _)| *next == key).map_or(default, |(_, label)| *label);
                self.wide(from, label);
            }
        } else {
            self.bytes.extend((keys.len() as u32).to_be_bytes());
            for (key, label) in keys {
                self.bytes.extend(key.to_be_bytes());
                self.wide(from, *label);
            }
        }
    }

    /// Exceptions of a class between two labels lead to a third.
    pub fn handler(&mut self, from: Label, to: Label, target: Label, class: u16) {
        self.handlers.push(Handler { from, to, target, class });
    }

    /// The calls that were noted, in order.
    pub fn take_calls(&mut self) -> Vec<Call> {
        std::mem::take(&mut self.calls)
    }

    /// Puts the places of labels into branches.
    fn resolve(&mut self) {
        for fixup in std::mem::take(&mut self.fixups) {
            let target = self.labels[fixup.label.0].expect("every label is placed");
            let offset = target as i64 - fixup.from as i64;
            if fixup.wide {
                self.bytes[fixup.at..fixup.at + 4].copy_from_slice(&(offset as i32).to_be_bytes());
            } else {
                let short = i16::try_from(offset).expect("methods are short");
                self.bytes[fixup.at..fixup.at + 2].copy_from_slice(&short.to_be_bytes());
            }
        }
    }

    /// Bytes of the `Code` attribute. The code must be shorter than 32 KB.
    pub fn attribute(mut self, pool: &mut Pool) -> Vec<u8> {
        self.resolve();
        let mut out = Vec::new();
        out.extend((self.stack_max as u16 + 1).to_be_bytes());
        out.extend(self.locals_max.to_be_bytes());
        out.extend((self.bytes.len() as u32).to_be_bytes());
        out.extend(&self.bytes);
        out.extend((self.handlers.len() as u16).to_be_bytes());
        for handler in &self.handlers {
            for label in [handler.from, handler.to, handler.target] {
                let at = self.labels[label.0].expect("every label is placed");
                out.extend((at as u16).to_be_bytes());
            }
            out.extend(handler.class.to_be_bytes());
        }
        let table = pool.target().frames() == Frames::Table;
        let frames = if table { self.frame_bytes(pool) } else { self.frame_map(pool) };
        // Javac writes no entry behind the last instruction, and some readers believe that.
        let end = self.bytes.len();
        self.lines.retain(|(at, _)| usize::from(*at) < end);
        let attributes = u16::from(frames.is_some()) + u16::from(!self.lines.is_empty());
        out.extend(attributes.to_be_bytes());
        if !self.lines.is_empty() {
            out.extend(pool.utf8("LineNumberTable").to_be_bytes());
            out.extend((2 + 4 * self.lines.len() as u32).to_be_bytes());
            out.extend((self.lines.len() as u16).to_be_bytes());
            for (at, line) in &self.lines {
                out.extend(at.to_be_bytes());
                out.extend(line.to_be_bytes());
            }
        }
        if let Some(frames) = frames {
            let name = if table { "StackMapTable" } else { "StackMap" };
            out.extend(pool.utf8(name).to_be_bytes());
            out.extend((frames.len() as u32).to_be_bytes());
            out.extend(frames);
        }
        out
    }

    /// Frames that are written: one behind the last instruction is of a label that nothing follows.
    fn written_frames(&self) -> Option<Vec<&Frame>> {
        let frames: Vec<&Frame> =
            self.frames.iter().filter(|frame| frame.at < self.bytes.len()).collect();
        (!frames.is_empty()).then_some(frames)
    }

    /// Whole frames, each with its place.
    fn frame_map(&self, pool: &mut Pool) -> Option<Vec<u8>> {
        let frames = self.written_frames()?;
        let mut out = (frames.len() as u16).to_be_bytes().to_vec();
        for frame in frames {
            out.extend((frame.at as u16).to_be_bytes());
            for types in [&frame.locals, &frame.stack] {
                out.extend((types.len() as u16).to_be_bytes());
                types.iter().for_each(|each| each.write(&mut out, pool));
            }
        }
        Some(out)
    }

    fn frame_bytes(&self, pool: &mut Pool) -> Option<Vec<u8>> {
        let frames = self.written_frames()?;
        let mut out = (frames.len() as u16).to_be_bytes().to_vec();
        let mut last_at: i64 = -1;
        let mut last_locals = &self.parameters;
        for frame in frames {
            let delta = (frame.at as i64 - last_at - 1) as u16;
            frame.write(&mut out, pool, delta, last_locals);
            last_at = frame.at as i64;
            last_locals = &frame.locals;
        }
        Some(out)
    }
}

impl Frame {
    fn write(&self, out: &mut Vec<u8>, pool: &mut Pool, delta: u16, last: &[Type]) {
        let same = self.locals == last;
        match &self.stack[..] {
            [] if same && delta < 64 => out.push(delta as u8),
            [] if same => {
                out.push(251);
                out.extend(delta.to_be_bytes());
            }
            [one] if same => {
                if delta < 64 {
                    out.push(64 + delta as u8);
                } else {
                    out.push(247);
                    out.extend(delta.to_be_bytes());
                }
                one.write(out, pool);
            }
            [] if self.locals.starts_with(last) && self.locals.len() - last.len() <= 3 => {
                let more = &self.locals[last.len()..];
                out.push(251 + more.len() as u8);
                out.extend(delta.to_be_bytes());
                more.iter().for_each(|local| local.write(out, pool));
            }
            [] if last.starts_with(&self.locals) && last.len() - self.locals.len() <= 3 => {
                out.push(251 - (last.len() - self.locals.len()) as u8);
                out.extend(delta.to_be_bytes());
            }
            stack => {
                out.push(255);
                out.extend(delta.to_be_bytes());
                for types in [&self.locals[..], stack] {
                    out.extend((types.len() as u16).to_be_bytes());
                    types.iter().for_each(|each| each.write(out, pool));
                }
            }
        }
    }
}

/// Opcodes that code here is compared with.
pub const ILOAD: u8 = 0x15;
const LLOAD: u8 = 0x16;
const DLOAD: u8 = 0x18;
const ISTORE: u8 = 0x36;
const LSTORE: u8 = 0x37;
const DSTORE: u8 = 0x39;
const ILOAD_0: u8 = 0x1a;
const ISTORE_0: u8 = 0x3b;
const WIDE: u8 = 0xc4;
