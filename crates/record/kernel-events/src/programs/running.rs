//! Tasks of runtimes: which one a thread runs.

use crate::asm::{Alu, Helper, If, Label, R0, R1, R2, R3, R9, Reg, Size};
use crate::code::{Code, slot};
use crate::raw::Kind;
use crate::runtimes::FIBERS;

/// Where fields of `runtimes::Layout` stand in the map's values.
pub(super) mod layout {
    pub const SLOT: i16 = 0;
    pub const NUMBER: i16 = 8;
    pub const PARENT: i16 = 16;
    pub const RUNNING: i16 = 24;
    pub const REASON: i16 = 32;
    pub const THREAD: i16 = 40;
    pub const TAKES: i16 = 48;
    pub const GIVES: i16 = 56;
    pub const IDENTITY: i16 = 64;
    pub const MOUNTED: i16 = 72;
    pub const PART: i16 = 80;
}

/// Places of the stack that no program at calls uses.
pub(super) const TASK: i16 = slot(40);
pub(super) const NUMBER: i16 = slot(41);
pub(super) const PARENT: i16 = slot(42);
const IDENTITY: i16 = slot(43);
/// The first that is free for programs that use these.
pub(super) const FREE: i16 = 44;

/// R9 is the layout of the process that runs, if it has one; otherwise goes to `no`.
pub(super) fn layout_of_current(c: &mut Code, no: Label) {
    c.asm.call(Helper::CurrentPidTgid);
    c.asm.alu_imm(Alu::Shr, R0, 32);
    c.find(c.env.runtimes, R0);
    c.asm.jump_if(If::Eq, R0, 0, no);
    c.asm.mov(R9, R0);
}

/// `to` is what the pointer in a slot leads to, at an offset that the layout in R9 has.
pub(super) fn field(c: &mut Code, size: Size, to: Reg, base: i16, distance: i16) {
    c.recall(R3, base);
    c.asm.load(Size::B8, R1, R9, distance);
    c.asm.alu(Alu::Add, R3, R1);
    c.get_user(size, to);
}

/// Puts what the thread's slot points to into [`TASK`], by the layout in R9; goes to `no` if there is nothing.
pub(super) fn current(c: &mut Code, no: Label) {
    c.asm.call(Helper::CurrentTaskBtf);
    c.direct(R3, R0, c.env.fields.task_fs);
    c.asm.load(Size::B8, R1, R9, layout::SLOT);
    c.asm.alu(Alu::Add, R3, R1);
    c.get_user(Size::B8, R1);
    c.asm.jump_if(If::Eq, R1, 0, no);
    c.keep(TASK, R1);
}

/// Puts the number of a task, and that of the one that made it, into slots: -1 where the runtime does not say it.
pub(super) fn numbers(c: &mut Code, task: i16, number: i16, parent: i16) {
    field(c, Size::B8, R2, task, layout::NUMBER);
    c.keep(number, R2);
    let none = c.asm.label();
    c.asm.imm(R2, -1);
    c.keep(parent, R2);
    c.asm.load(Size::B8, R1, R9, layout::PARENT);
    c.asm.jump_if(If::Eq, R1, 0, none);
    field(c, Size::B8, R2, task, layout::PARENT);
    c.keep(parent, R2);
    c.asm.place(none);
}

/// Goes to `no` if what is in [`TASK`] says that no task runs there.
fn mounted(c: &mut Code, no: Label) {
    let always = c.asm.label();
    c.asm.load(Size::B8, R1, R9, layout::MOUNTED);
    c.asm.jump_if(If::Eq, R1, 0, always);
    field(c, Size::B8, R2, TASK, layout::MOUNTED);
    c.asm.jump_if(If::Eq, R2, 0, no);
    c.asm.place(always);
}

/// Of fibers, what is in [`PARENT`] has resumed the one that runs. It stays if it is one with work of its own, and becomes
/// -1 if there is none, or if it is the fiber with which a thread begins, and which runs a scheduler. What is in
/// [`TASK`] is another's afterwards.
fn resumed_by(c: &mut Code) {
    let (done, none) = (c.asm.label(), c.asm.label());
    c.asm.load(Size::B8, R1, R9, layout::IDENTITY);
    c.asm.jump_if(If::Ne, R1, FIBERS as i32, done);
    c.recall(R1, PARENT);
    c.asm.jump_if(If::Eq, R1, 0, none);
    c.asm.load(Size::B8, R2, R9, layout::PART);
    c.asm.alu(Alu::Add, R1, R2);
    c.keep(TASK, R1);
    field(c, Size::B8, R2, TASK, layout::MOUNTED);
    c.asm.jump_if(If::Eq, R2, 0, none);
    field(c, Size::B8, R2, TASK, layout::NUMBER);
    c.keep(PARENT, R2);
    c.asm.jump(done);
    c.asm.place(none);
    c.asm.imm(R2, -1);
    c.keep(PARENT, R2);
    c.asm.place(done);
}

/// Reports which task the thread runs whose system call has returned, if its process is known to have
/// any. Leaves R6 to R8 unmodified.
pub fn report_task(c: &mut Code) {
    let none = c.asm.label();
    layout_of_current(c, none);
    current(c, none);
    mounted(c, none);
    numbers(c, TASK, NUMBER, PARENT);
    resumed_by(c);
    c.asm.load(Size::B8, R1, R9, layout::IDENTITY);
    c.keep(IDENTITY, R1);
    c.record(Kind::Task, 0, none);
    c.recall(R1, IDENTITY);
    c.number(R1);
    c.word_from(0, NUMBER);
    c.word_from(1, PARENT);
    c.submit();
    c.asm.place(none);
}
