//! What programs are made of: reading the kernel's structures, asking whether a process is
//! observed, writing records.
//!
//! Conventions: R6 is the program's context from the first instruction on, and R9 the record while
//! one is written. Everything here leaves R6 to R9 alone otherwise, and changes R0 to R5 and the
//! two slots at the stack's end.

use crate::asm::{Alu, Asm, FP, Helper, If, Insn, Label, R0, R1, R2, R3, R4, R6, R9, Reg, Size};
use crate::fields::{Fields, UringFields};
use crate::raw::{self, Kind};
use fettle_btf::{Field, TypeId};

/// What is known of a process: the value of the map of observed processes.
pub mod state {
    /// Its events are recorded, and those of its descendants.
    pub const OBSERVED: i32 = 1;
    /// Its children are observed from their first exec on.
    pub const PARENT: i32 = 2;
    /// It is observed from its first exec on.
    pub const PENDING: i32 = 4;
    /// Bytes of the value: one of these numbers, and from byte 8 on the process's `signal_struct` if it
    /// is known, which distinguishes it from a later process with the same number.
    pub const BYTES: u32 = 16;
}

/// What is counted for each processor.
pub mod counter {
    /// Records that found no room.
    pub const LOST: i32 = 0;
    /// System calls of 32-bit programs, whose numbers mean other calls.
    pub const COMPAT: i32 = 1;
    /// How many there are.
    pub const COUNT: u32 = 2;
}

/// Slots of the stack for programs; those before are used here.
pub const fn slot(n: i16) -> i16 {
    -24 - 8 * n
}

/// Keys of maps, and bytes that are read.
const KEY: i16 = -8;
const READ: i16 = -16;

/// What programs are written for: a kernel, and maps that exist.
#[derive(Clone, Copy, Debug)]
pub struct Env {
    /// Where fields lie.
    pub fields: Fields,
    /// `bpf_rdonly_cast`, which makes typed pointers (Linux 6.2); reading through them costs a
    /// tenth of a call that reads.
    pub cast: Option<TypeId>,
    /// Bytes of each message that are recorded; 0 for none.
    pub payload: u32,
    /// Descriptor of memory to gather them in.
    pub scratch: i32,
    /// Descriptor of the rings, by processor.
    pub rings: i32,
    /// Of the counters.
    pub counters: i32,
    /// Of the observed processes, by number.
    pub observed: i32,
    /// Of what system calls are, by number.
    pub calls: i32,
    /// Of transfers that observed processes began.
    pub transfers: i32,
    /// Of when what is being read came, by `sock`.
    pub arrivals: i32,
    /// Of where the tasks of a process's threads are, by its number: `runtimes::Layout`.
    pub runtimes: i32,
    /// What a file's count is with a single reference.
    pub single_reference: i32,
    /// Where it stands what is given to an `io_uring`, if the kernel says when that is.
    pub uring: Option<UringFields>,
    /// Whether programs can be attached to the kernel's functions.
    pub functions: bool,
    /// Whether calls are recorded by their numbers only, and nothing of what they do.
    pub only_calls: bool,
    /// All processes are observed but this one, if there is one.
    pub all_but: Option<u32>,
}

/// A program being written.
#[derive(Debug)]
pub struct Code<'a> {
    /// Its instructions.
    pub asm: Asm,
    /// What it is written for.
    pub env: &'a Env,
    /// Its end.
    pub out: Label,
}

impl<'a> Code<'a> {
    /// A program that keeps its context.
    pub fn new(env: &'a Env) -> Code<'a> {
        let mut asm = Asm::new();
        let out = asm.label();
        asm.mov(R6, R1);
        Code { asm, env, out }
    }

    /// The program, ended.
    pub fn finish(mut self) -> Vec<Insn> {
        self.asm.place(self.out);
        self.asm.exit();
        self.asm.finish()
    }

    /// `to` is argument `n` of the tracepoint or function.
    pub fn argument(&mut self, to: Reg, n: i16) {
        self.asm.load(Size::B8, to, R6, 8 * n);
    }

    /// `to` is a field of what `base` points to, an argument, whose type the kernel knows.
    pub fn direct(&mut self, to: Reg, base: Reg, field: Field) {
        let size = Size::of(field.size).expect("a field of a machine word");
        let offset = i16::try_from(field.offset).expect("a field within 32 KiB");
        self.asm.load(size, to, base, offset);
    }

    /// `to` is a field of what `base` points to, whatever the kernel knows of `base`; 0 if there
    /// is nothing.
    pub fn get(&mut self, to: Reg, base: Reg, field: Field) {
        let size = Size::of(field.size).expect("a field of a machine word");
        let offset = field.offset as i32;
        if let Some(cast) = self.env.cast {
            self.asm.mov(R1, base);
            self.asm.imm(R2, field.of as i32);
            self.asm.call_kernel(cast);
            match i16::try_from(offset) {
                Ok(offset) => self.asm.load(size, to, R0, offset),
                Err(_) => {
                    self.asm.alu_imm(Alu::Add, R0, offset);
                    self.asm.load(size, to, R0, 0);
                }
            }
        } else {
            self.asm.mov(R3, base);
            self.asm.alu_imm(Alu::Add, R3, offset);
            self.read(Helper::ProbeReadKernel, size, to);
        }
    }

    /// `to` is what R3 points to.
    fn read(&mut self, helper: Helper, size: Size, to: Reg) {
        self.asm.mov(R1, FP);
        self.asm.alu_imm(Alu::Add, R1, i32::from(READ));
        self.asm.imm(R2, size.bytes());
        self.asm.call(helper);
        // What cannot be read is 0.
        self.asm.load(size, to, FP, READ);
    }

    /// `to` is what R3 points to in the program's memory; 0 if there is nothing.
    pub fn get_user(&mut self, size: Size, to: Reg) {
        self.read(Helper::ProbeReadUser, size, to);
    }

    /// Goes to `no` unless the process with the number in `pid` is observed; otherwise R0 is its
    /// state, unless all processes are observed.
    pub fn observed(&mut self, pid: Reg, no: Label) {
        if let Some(own) = self.env.all_but {
            self.asm.jump_if(If::Eq, pid, own as i32, no);
            return;
        }
        self.state_of(pid);
        self.asm.jump_if(If::Eq, R0, 0, no);
        self.asm.load(Size::B4, R1, R0, 0);
        self.asm.jump_if(If::Ne, R1, state::OBSERVED, no);
    }

    /// R0 points to the state of the process with the number in `pid`, or is 0. The key stays.
    pub fn state_of(&mut self, pid: Reg) {
        self.asm.store(Size::B4, FP, KEY, pid);
        self.key(self.env.observed);
        self.asm.call(Helper::MapLookup);
    }

    /// R0 points to what a map has under the number in `key`, of 32 bits, or is 0.
    pub fn find(&mut self, map: i32, key: Reg) {
        self.asm.store(Size::B4, FP, KEY, key);
        self.key(map);
        self.asm.call(Helper::MapLookup);
    }

    /// R1 and R2 are a map and the key on the stack.
    pub fn key(&mut self, map: i32) {
        self.asm.mov(R2, FP);
        self.asm.alu_imm(Alu::Add, R2, i32::from(KEY));
        self.asm.map(R1, map);
    }

    /// The key is `from`, of eight bytes.
    pub fn wide_key(&mut self, from: Reg) {
        self.asm.store(Size::B8, FP, KEY, from);
    }

    /// Goes to `no` unless the process that runs is observed.
    pub fn current_observed(&mut self, no: Label) {
        self.asm.call(Helper::CurrentPidTgid);
        self.asm.alu_imm(Alu::Shr, R0, 32);
        self.observed(R0, no);
    }

    /// Counts something.
    pub fn count(&mut self, counter: i32) {
        let none = self.asm.label();
        self.asm.store_imm(Size::B4, FP, KEY, counter);
        self.key(self.env.counters);
        self.asm.call(Helper::MapLookup);
        self.asm.jump_if(If::Eq, R0, 0, none);
        self.asm.imm(R1, 1);
        self.asm.atomic_add(R0, 0, R1);
        self.asm.place(none);
    }

    /// Begins a record, which R9 points to, with everything before its words but the number. If
    /// there is no room, counts that and goes to `no`.
    pub fn record(&mut self, kind: Kind, flags: u16, no: Label) {
        let (lost, have) = (self.asm.label(), self.asm.label());
        self.asm.call(Helper::SmpProcessorId);
        self.asm.store(Size::B4, FP, KEY, R0);
        self.key(self.env.rings);
        self.asm.call(Helper::MapLookup);
        self.asm.jump_if(If::Eq, R0, 0, lost);
        self.asm.mov(R1, R0);
        self.asm.imm(R2, kind.size());
        self.asm.imm(R3, 0);
        self.asm.call(Helper::RingbufReserve);
        self.asm.jump_if(If::Ne, R0, 0, have);
        self.asm.place(lost);
        self.count(counter::LOST);
        self.asm.jump(no);
        self.asm.place(have);
        self.asm.mov(R9, R0);
        self.head(kind, flags);
    }

    /// Everything of the record in R9 before its words but the number.
    pub fn head(&mut self, kind: Kind, flags: u16) {
        self.asm.call(Helper::KtimeGetNs);
        self.asm.store(Size::B8, R9, raw::TIME, R0);
        self.asm.call(Helper::CurrentPidTgid);
        self.asm.store(Size::B8, R9, raw::TID, R0);
        let head = i32::from(kind as u16) | i32::from(flags) << 16;
        self.asm.store_imm(Size::B4, R9, raw::KIND, head);
    }

    /// The record's number is `from`.
    pub fn number(&mut self, from: Reg) {
        self.asm.store(Size::B4, R9, raw::NUMBER, from);
    }

    /// The record's word `n` is `from`.
    pub fn word(&mut self, n: i16, from: Reg) {
        self.asm.store(Size::B8, R9, raw::word(n), from);
    }

    /// The record's word `n` is what was put into a slot.
    pub fn word_from(&mut self, n: i16, slot: i16) {
        self.asm.load(Size::B8, R1, FP, slot);
        self.word(n, R1);
    }

    /// The record's flags are `from`.
    pub fn flags(&mut self, from: Reg) {
        self.asm.store(Size::B2, R9, raw::FLAGS, from);
    }

    /// The record's text is what R3 points to; after it come no words.
    pub fn text(&mut self, kind: Kind, helper: Helper) {
        let at = raw::word(kind.words());
        self.asm.store_imm(Size::B1, R9, at, 0);
        self.asm.mov(R1, R9);
        self.asm.alu_imm(Alu::Add, R1, i32::from(at));
        self.asm.imm(R2, raw::TEXT);
        self.asm.call(helper);
    }

    /// Ends the record. No reader is woken: it polls.
    pub fn submit(&mut self) {
        const NO_WAKEUP: i32 = 1;
        self.asm.mov(R1, R9);
        self.asm.imm(R2, NO_WAKEUP);
        self.asm.call(Helper::RingbufSubmit);
    }

    /// Puts `from` into a slot.
    pub fn keep(&mut self, slot: i16, from: Reg) {
        self.asm.store(Size::B8, FP, slot, from);
    }

    /// Takes `to` from a slot.
    pub fn recall(&mut self, to: Reg, slot: i16) {
        self.asm.load(Size::B8, to, FP, slot);
    }

    /// Sets the state under the key to `state`, with the `signal_struct` that `signal` points to;
    /// uses the slots 0 and 1.
    pub fn set_state(&mut self, state: Reg, signal: Reg) {
        self.keep(slot(1), state);
        self.keep(slot(0), signal);
        self.key(self.env.observed);
        self.asm.mov(R3, FP);
        self.asm.alu_imm(Alu::Add, R3, i32::from(slot(1)));
        self.asm.imm(R4, 0);
        self.asm.call(Helper::MapUpdate);
    }
}
