//! From pieces to bytes: short and long jumps, references, and the kernel's tables about instructions.

use fettle_isa::{Insn, Jump};
use fettle_kernel_lift::KernelFunction;
use fettle_kernel_lift::step::{STATIC_CALL, Step};
use fettle_kernel_plan::{
    Bug, Exception, JumpLabel, OpenSpan, OrcRow, Origin, Part, Reference, StaticCall, Target, Value,
};
use fettle_lift::BlockId;
use smallvec::SmallVec;

use crate::counters::Clock;
use crate::items::{Context, Item, Items, To};
use crate::place::BlockPlace;

const TRAP: u8 = 0xcc;
/// `incq %gs:…`
const INCREMENT: [u8; 5] = [0x65, 0x48, 0xff, 0x04, 0x25];
/// `mov %gs:…, %rcx` and `cmp %rcx, %gs:…`
const READ_BASE: [u8; 5] = [0x65, 0x48, 0x8b, 0x0c, 0x25];
const COMPARE_BASE: [u8; 5] = [0x65, 0x48, 0x39, 0x0c, 0x25];
/// `jne`, to the instruction that reads the base.
const AGAIN: [u8; 2] = [0x75, 0xe3];
/// `sub %rcx, %rax`
const SUBTRACT_BASE: [u8; 3] = [0x48, 0x29, 0xc8];
/// `sub %rax, %gs:…` and `add %rax, %gs:…`
const SUBTRACT: [u8; 5] = [0x65, 0x48, 0x29, 0x04, 0x25];
const ADD: [u8; 5] = [0x65, 0x48, 0x01, 0x04, 0x25];
/// `rdtsc; shl $32, %rdx; or %rdx, %rax`
const TAKE_TIME: [u8; 9] = [0x0f, 0x31, 0x48, 0xc1, 0xe2, 0x20, 0x48, 0x09, 0xd0];
const PUSH_RAX: u8 = 0x50;
const PUSH_RCX: u8 = 0x51;
const PUSH_RDX: u8 = 0x52;
const POP_RAX: u8 = 0x58;
const POP_RCX: u8 = 0x59;
const POP_RDX: u8 = 0x5a;
/// Bytes of an instruction that reaches a processor's own memory.
const REACH: usize = INCREMENT.len() + 4;
/// Bytes of all that takes time, but for the flags.
const CLOCK: u32 = (6 + TAKE_TIME.len() + AGAIN.len() + SUBTRACT_BASE.len() + 5 * REACH) as u32;
const PUSH_FLAGS: u8 = 0x9c;
const POP_FLAGS: u8 = 0x9d;
const NOP: [u8; 5] = [0x0f, 0x1f, 0x44, 0, 0];
const SITE: u32 = 5;
/// Bytes of a comparison of a register with an address, and of a call.
const COMPARE: u32 = 7;
const CALL: u32 = 5;

/// A part whose references to other parts are not known yet.
#[derive(Debug)]
pub(crate) struct Encoded {
    part: Part,
    /// Where its blocks begin.
    blocks: Vec<(BlockId, u32)>,
    references: Vec<(u32, To, u8)>,
    fixups: Vec<(u32, To, u32)>,
    labels: Vec<(u32, To, u64)>,
}

/// Where blocks lie.
pub(crate) struct Labels {
    blocks: Vec<SmallVec<[(u32, u32); 8]>>,
    entries: Vec<BlockId>,
}

impl Labels {
    /// For functions with these entry blocks.
    pub fn new(entries: Vec<BlockId>) -> Labels {
        Labels { blocks: vec![SmallVec::new(); entries.len()], entries }
    }

    /// Part `part` is one of a function.
    pub fn add(&mut self, function: usize, part: u32, encoded: &Encoded) {
        let blocks = &mut self.blocks[function];
        for (block, offset) in &encoded.blocks {
            if blocks.len() <= block.index() {
                blocks.resize(block.index() + 1, (0, 0));
            }
            blocks[block.index()] = (part, *offset);
        }
    }

    /// The part and offset of a block.
    pub fn block(&self, function: usize, block: BlockId) -> (u32, u32) {
        self.blocks[function][block.index()]
    }

    /// Where all blocks of a function are; `entry` names it.
    pub fn blocks_of(&self, function: usize, entry: u64) -> impl Iterator<Item = BlockPlace> {
        let blocks = self.blocks[function].iter().enumerate();
        blocks.map(move |(block, (part, offset))| BlockPlace {
            function: entry,
            block: BlockId(block as u32),
            part: *part,
            offset: *offset,
        })
    }

    fn target(&self, function: u32, to: To) -> Target {
        match to {
            To::Kernel(address) => Target::Kernel(address),
            To::Block(block) => {
                let (part, offset) = self.block(function as usize, block);
                Target::Part { part, offset }
            }
            To::Function(function) => {
                let function = function as usize;
                let (part, offset) = self.block(function, self.entries[function]);
                Target::Part { part, offset }
            }
            To::Stub(_) => unreachable!("a stub is reached in its own part only"),
        }
    }
}

impl Encoded {
    /// The part, its references to all others resolved.
    pub fn link(self, function: u32, align: u32, labels: &Labels) -> Part {
        let mut part = self.part;
        part.function = function;
        part.align = align;
        let target = |to| labels.target(function, to);
        part.references.extend(self.references.iter().map(|(at, to, tail)| Reference {
            at: *at,
            value: Value::Relative { target: target(*to), tail: *tail },
        }));
        part.references.sort_unstable_by_key(|reference| reference.at);
        let exceptions = self.fixups.iter();
        part.exceptions.extend(exceptions.map(|(at, to, data)| Exception {
            at: *at,
            fixup: target(*to),
            data: *data,
        }));
        let labels = self.labels.iter();
        part.jump_labels.extend(labels.map(|(at, to, key)| JumpLabel {
            at: *at,
            target: target(*to),
            key: *key,
        }));
        part
    }
}

/// Bytes of an instruction. A static call has the room of a call, whatever it is now.
fn copied(function: &KernelFunction, insn: usize) -> usize {
    match function.steps[insn] {
        Step::StaticTail(_) => STATIC_CALL,
        _ => function.code.insns[insn].len(),
    }
}

fn size(function: &KernelFunction, item: &Item) -> u32 {
    match item {
        Item::Block(_) | Item::Stub(_) => 0,
        Item::Copy(insn) => copied(function, *insn as usize) as u32,
        Item::Jump { jump, short, .. } => jump.size(*short),
        Item::Label { .. } => SITE,
        Item::Counter { saves, .. } => REACH as u32 + 2 * u32::from(*saves),
        Item::Clock { clock, .. } => CLOCK + 2 * u32::from(clock.saves),
        Item::Compare { .. } => COMPARE,
        Item::Call { .. } => CALL,
        Item::Trap { .. } => 1,
    }
}

impl Items {
    /// Decides which jumps are short: all that can be, found by growing those that cannot.
    fn relax(&mut self, context: &Context<'_, '_>) -> Places {
        let blocks = context.function.code.blocks.len();
        let mut places = Places { blocks: vec![None; blocks], stubs: vec![0; self.stubs as usize] };
        loop {
            let mut offset = 0;
            for item in &self.items {
                match item {
                    Item::Block(block) => places.blocks[block.index()] = Some(offset),
                    Item::Stub(stub) => places.stubs[*stub as usize] = offset,
                    _ => {}
                }
                offset += size(context.function, item);
            }
            let mut grown = false;
            let mut offset = 0;
            for item in &mut self.items {
                offset += size(context.function, item);
                if let Item::Jump { to, short, .. } = item
                    && *short
                {
                    let near = |to: u32| i8::try_from(i64::from(to) - i64::from(offset)).is_ok();
                    *short = places.of(*to).is_some_and(near);
                    grown |= !*short;
                }
            }
            if !grown {
                return places;
            }
        }
    }

    /// Writes the part.
    pub fn encode(mut self, context: &Context<'_, '_>) -> Encoded {
        let places = self.relax(context);
        let mut writer = Writer {
            context,
            places: &places,
            open_from: None,
            out: Encoded {
                part: Part::default(),
                blocks: Vec::new(),
                references: Vec::new(),
                fixups: Vec::new(),
                labels: Vec::new(),
            },
        };
        for item in &self.items {
            writer.item(item);
        }
        writer.open(false);
        writer.out
    }
}

/// Where pieces of one part lie.
struct Places {
    blocks: Vec<Option<u32>>,
    stubs: Vec<u32>,
}

impl Places {
    fn of(&self, to: To) -> Option<u32> {
        match to {
            To::Block(block) => self.blocks[block.index()],
            To::Stub(stub) => self.stubs.get(stub as usize).copied(),
            To::Function(_) | To::Kernel(_) => None,
        }
    }
}

struct Writer<'c, 'a, 'l> {
    context: &'c Context<'a, 'l>,
    places: &'c Places,
    /// From where on a call is open, where time is taken.
    open_from: Option<u32>,
    out: Encoded,
}

impl Writer<'_, '_, '_> {
    fn here(&self) -> u32 {
        self.out.part.text.len() as u32
    }

    fn item(&mut self, item: &Item) {
        match *item {
            Item::Block(block) => {
                let here = self.here();
                self.out.blocks.push((block, here));
                self.open(block != self.context.function.code.entry_block());
            }
            Item::Stub(_) => self.open(true),
            Item::Copy(index) => self.copy(index as usize),
            Item::Jump { jump, to, origin, short } => {
                self.stands(origin);
                self.jump(jump, to, short);
            }
            Item::Label { label, jumps, to } => {
                self.stands(label.at);
                let here = self.here();
                self.out.labels.push((here, to, label.key));
                match jumps {
                    true => self.jump(Jump::Always, to, false),
                    false => self.out.part.text.extend_from_slice(&NOP),
                }
            }
            Item::Counter { number, saves, origin } => self.counter(number, saves, origin),
            Item::Clock { clock, origin } => self.clock(clock, origin),
            Item::Compare { register, with, origin } => self.compare(register, with, origin),
            Item::Call { to, origin, behind } => {
                self.call(to, origin);
                self.stands(behind);
            }
            Item::Trap { origin } => {
                self.row(origin, 0);
                self.out.part.text.push(TRAP);
            }
        }
    }

    /// What is written next is `origin` in the original.
    fn stands(&mut self, origin: u64) {
        let at = self.here();
        match self.out.part.origins.last_mut() {
            // What is behind a call that does not return, and something else stands there: the return
            // address counts.
            Some(last) if last.at == at => {}
            _ => self.out.part.origins.push(Origin { at, original: origin }),
        }
        self.row(origin, 0);
    }

    /// The frame is that of `origin` with `pushed` bytes more.
    fn row(&mut self, origin: u64, pushed: i16) {
        let at = self.here();
        let row = self.context.lifter.image().orc.at(origin);
        let row = row.and_then(|row| row.pushed(pushed).or((pushed == 0).then_some(row)));
        // Six zeros: no frame is known.
        let entry = row.map_or([0; 6], |row| row.0);
        let rows = &mut self.out.part.orc;
        if rows.last().is_some_and(|last| last.at == at) {
            rows.pop();
        }
        if rows.last().is_none_or(|last| last.entry != entry) {
            rows.push(OrcRow { at, entry });
        }
    }

    fn jump(&mut self, jump: Jump, to: To, short: bool) {
        let end = self.here() + jump.size(short);
        let distance = self.places.of(to).map(|to| to.wrapping_sub(end));
        jump.write(&mut self.out.part.text, short, distance.unwrap_or(0));
        if distance.is_none() {
            self.out.references.push((end - 4, to, 0));
        }
    }

    /// `cmp $with, %register`: an address of the kernel's text is a number of four bytes, sign-extended.
    fn compare(&mut self, register: u8, with: u64, origin: u64) {
        self.stands(origin);
        let (high, low) = (register >> 3, register & 7);
        self.out.part.text.extend_from_slice(&[0x48 | high, 0x81, 0xf8 | low]);
        let at = self.here();
        let value = Value::Absolute32(Target::Kernel(with));
        self.out.part.references.push(Reference { at, value });
        self.out.part.text.extend_from_slice(&[0; 4]);
    }

    fn call(&mut self, to: To, origin: u64) {
        self.stands(origin);
        self.out.part.text.push(0xe8);
        self.out.references.push((self.here(), to, 0));
        self.out.part.text.extend_from_slice(&[0; 4]);
    }

    fn counter(&mut self, number: u32, saves: bool, origin: u64) {
        self.stands(origin);
        if saves {
            self.out.part.text.push(PUSH_FLAGS);
            self.row(origin, 8);
        }
        self.reaches(&INCREMENT, Value::Counter(number));
        if saves {
            self.out.part.text.push(POP_FLAGS);
            self.row(origin, 0);
        }
    }

    /// From here on a call of the function is open, or not, where that matters: where its time is taken.
    fn open(&mut self, is_open: bool) {
        let (Some(counters), here) = (self.context.counters.open(), self.here()) else { return };
        match (self.open_from, is_open) {
            (None, true) => self.open_from = Some(here),
            (Some(from), false) => {
                self.out.part.open.push(OpenSpan { from, to: here, counters });
                self.open_from = None;
            }
            (None, false) | (Some(_), true) => {}
        }
    }

    /// Takes time: that of the time-stamp counter, and that less the processor's base, which is virtual time
    /// (`runtime/kmod/clock.c`). Where the base changes meanwhile, the thread was interrupted or did not run,
    /// and both are read again. Inside of it nothing has a counterpart in the original, so no thread is
    /// deoptimised there: a call that has begun has both counted and taken its time.
    fn clock(&mut self, clock: Clock, origin: u64) {
        self.stands(origin);
        let mut pushed = 0;
        let saves = if clock.saves { &[PUSH_FLAGS][..] } else { &[] };
        for push in saves.iter().chain(&[PUSH_RAX, PUSH_RCX, PUSH_RDX]) {
            self.out.part.text.push(*push);
            pushed += 8;
            self.row(origin, pushed);
        }
        self.reaches(&READ_BASE, Value::VirtualBase);
        self.out.part.text.extend_from_slice(&TAKE_TIME);
        self.reaches(&COMPARE_BASE, Value::VirtualBase);
        self.out.part.text.extend_from_slice(&AGAIN);
        let sum = if clock.ends { &ADD } else { &SUBTRACT };
        let [ticks, virtual_ticks] = clock.ticks;
        self.reaches(&INCREMENT, Value::Counter(clock.count));
        self.reaches(sum, Value::Counter(ticks));
        self.out.part.text.extend_from_slice(&SUBTRACT_BASE);
        self.reaches(sum, Value::Counter(virtual_ticks));
        let saves = if clock.saves { &[POP_FLAGS][..] } else { &[] };
        for pop in [POP_RDX, POP_RCX, POP_RAX].iter().chain(saves) {
            self.out.part.text.push(*pop);
            pushed -= 8;
            self.row(origin, pushed);
        }
        self.open(!clock.ends);
    }

    /// An instruction that reaches the processor's own memory.
    fn reaches(&mut self, instruction: &[u8; 5], value: Value) {
        self.out.part.text.extend_from_slice(instruction);
        let at = self.here();
        self.out.part.references.push(Reference { at, value });
        self.out.part.text.extend_from_slice(&[0; 4]);
    }

    fn copy(&mut self, index: usize) {
        let function = self.context.function;
        let insn = &function.code.insns[index];
        let at = insn.ip();
        self.stands(at);
        let here = self.here();
        self.tables(at, here);
        if function.fentry.is_some_and(|fentry| at == function.entry() + u64::from(fentry)) {
            self.out.part.fentry = Some(here);
        }
        let bytes =
            self.context.lifter.image().bytes(at, copied(function, index)).unwrap_or_default();
        self.out.part.text.extend_from_slice(bytes);
        if let Some((field, to)) = self.field(insn) {
            let tail = insn.len() as u8 - field - 4;
            let from = here as usize + usize::from(field);
            self.out.part.text[from..from + 4].fill(0);
            self.out.references.push((here + u32::from(field), to, tail));
        }
        let comes_back = matches!(
            function.steps[index],
            Step::Call(_) | Step::IndirectCall | Step::StaticCall(_)
        );
        if comes_back {
            self.stands(insn.next_ip());
        }
    }

    /// The four bytes of an instruction that depend on where it stands, and what they lead to.
    fn field(&self, insn: &Insn) -> Option<(u8, To)> {
        if insn.is_ip_rel_memory_operand() {
            return Some((insn.ip_rel_field(), To::Kernel(insn.ip_rel_memory_address())));
        }
        let target = insn.near_branch_target();
        // Calls, and jumps that static calls are: all have four bytes, the last ones.
        (target != 0).then(|| {
            let site = self.context.lifter.image().tables.static_call(insn.ip()).is_some();
            let to = if site { To::Kernel(target) } else { self.context.to(target) };
            (insn.len() as u8 - 4, to)
        })
    }

    /// Entries of the kernel's tables for the instruction at `at`.
    fn tables(&mut self, at: u64, here: u32) {
        let tables = &self.context.lifter.image().tables;
        if let Some(exception) = tables.exception(at) {
            let to = self.context.to(exception.fixup);
            self.out.fixups.push((here, to, exception.data));
        }
        if let Some(site) = tables.static_call(at) {
            self.out.part.static_calls.push(StaticCall { at: here, key: site.key });
        }
        if let Some(bug) = tables.bug(at) {
            let (file, line, flags) = (bug.file, bug.line, bug.flags);
            self.out.part.bugs.push(Bug { at: here, file, line, flags });
        }
    }
}
