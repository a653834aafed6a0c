//! Tasks of runtimes: which one a thread runs, and which one makes another go on.

use crate::asm::{Alu, Helper, If, Insn, R0, R1, R2, R3, R6, R8, R9, Reg, Size};
use crate::code::{Code, Env, slot};
use crate::raw::{self, Kind};

/// Where fields of `runtimes::Layout` stand in the map's values.
mod layout {
    pub const SLOT: i16 = 0;
    pub const NUMBER: i16 = 8;
    pub const PARENT: i16 = 16;
    pub const RUNNING: i16 = 24;
    pub const REASON: i16 = 32;
    pub const THREAD: i16 = 40;
    pub const TAKES: i16 = 48;
    pub const GIVES: i16 = 56;
}

/// Places of the stack that no program at calls uses.
const TASK: i16 = slot(40);
const NUMBER: i16 = slot(41);
const PARENT: i16 = slot(42);
const OTHER: i16 = slot(43);
const OTHER_NUMBER: i16 = slot(44);
const OTHER_PARENT: i16 = slot(45);
const GIVES: i16 = slot(46);

/// R9 is the layout of the process that runs, if it has one; otherwise goes to `no`.
fn layout_of_current(c: &mut Code, no: crate::asm::Label) {
    c.asm.call(Helper::CurrentPidTgid);
    c.asm.alu_imm(Alu::Shr, R0, 32);
    c.find(c.env.runtimes, R0);
    c.asm.jump_if(If::Eq, R0, 0, no);
    c.asm.mov(R9, R0);
}

/// `to` is what the pointer in a slot leads to, at an offset that the layout in R9 has.
fn field(c: &mut Code, size: Size, to: Reg, base: i16, distance: i16) {
    c.recall(R3, base);
    c.asm.load(Size::B8, R1, R9, distance);
    c.asm.alu(Alu::Add, R3, R1);
    c.get_user(size, to);
}

/// Puts the number of a task, and that of the one that made it, into slots.
fn numbers(c: &mut Code, task: i16, number: i16, parent: i16) {
    field(c, Size::B8, R2, task, layout::NUMBER);
    c.keep(number, R2);
    let none = c.asm.label();
    c.asm.imm(R2, 0);
    c.keep(parent, R2);
    c.asm.load(Size::B8, R1, R9, layout::PARENT);
    c.asm.jump_if(If::Eq, R1, 0, none);
    field(c, Size::B8, R2, task, layout::PARENT);
    c.keep(parent, R2);
    c.asm.place(none);
}

/// Reports which task the thread runs whose system call has returned, if its process is known to have
/// any. Leaves R6 to R8 unmodified.
pub fn tell_task(c: &mut Code) {
    let none = c.asm.label();
    layout_of_current(c, none);
    c.asm.call(Helper::CurrentTaskBtf);
    c.direct(R3, R0, c.env.fields.task_fs);
    c.asm.load(Size::B8, R1, R9, layout::SLOT);
    c.asm.alu(Alu::Add, R3, R1);
    c.get_user(Size::B8, R1);
    c.asm.jump_if(If::Eq, R1, 0, none);
    c.keep(TASK, R1);
    numbers(c, TASK, NUMBER, PARENT);
    c.record(Kind::Task, 0, none);
    c.asm.store_imm(Size::B4, R9, raw::NUMBER, 0);
    c.word_from(0, NUMBER);
    c.word_from(1, PARENT);
    c.submit();
    c.asm.place(none);
}

/// At `runtime.ready(g)`, which executes on a thread's own stack: R14 is the scheduler's task there, RAX
/// the task that is made runnable. The one that does so is the one that the thread has stopped running
/// for that.
pub fn ready(env: &Env) -> Vec<Insn> {
    /// Places in `pt_regs`.
    const R14: i16 = 8;
    const RAX: i16 = 80;
    let mut c = Code::new(env);
    let out = c.out;
    let (wanted, takes) = (c.asm.label(), c.asm.label());
    layout_of_current(&mut c, out);
    c.asm.load(Size::B8, R1, R6, RAX);
    c.keep(OTHER, R1);
    // What it has waited for says whether it gets something.
    field(&mut c, Size::B1, R8, OTHER, layout::REASON);
    c.asm.jump_if(If::Ge, R8, 64, out);
    c.asm.imm(R2, 1);
    c.asm.alu(Alu::Shl, R2, R8);
    c.asm.imm(R1, 0);
    c.keep(GIVES, R1);
    c.asm.load(Size::B8, R1, R9, layout::TAKES);
    c.asm.alu(Alu::And, R1, R2);
    c.asm.jump_if(If::Ne, R1, 0, takes);
    c.asm.load(Size::B8, R1, R9, layout::GIVES);
    c.asm.alu(Alu::And, R1, R2);
    c.asm.jump_if(If::Eq, R1, 0, out);
    c.asm.jump(wanted);
    c.asm.place(takes);
    c.asm.imm(R1, 1);
    c.keep(GIVES, R1);
    c.asm.place(wanted);
    c.asm.load(Size::B8, R1, R6, R14);
    c.keep(TASK, R1);
    field(&mut c, Size::B8, R1, TASK, layout::THREAD);
    c.asm.jump_if(If::Eq, R1, 0, out);
    c.keep(TASK, R1);
    field(&mut c, Size::B8, R1, TASK, layout::RUNNING);
    // A timer, or the network.
    c.asm.jump_if(If::Eq, R1, 0, out);
    c.keep(TASK, R1);
    numbers(&mut c, TASK, NUMBER, PARENT);
    numbers(&mut c, OTHER, OTHER_NUMBER, OTHER_PARENT);
    c.record(Kind::TaskWake, 0, out);
    c.asm.store_imm(Size::B4, R9, raw::NUMBER, 0);
    for (word, from) in [NUMBER, PARENT, OTHER_NUMBER, OTHER_PARENT, GIVES].into_iter().enumerate()
    {
        c.word_from(word as i16, from);
    }
    c.submit();
    c.finish()
}
