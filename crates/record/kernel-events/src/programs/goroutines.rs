//! Goroutines: which one makes another go on.

use crate::asm::{Alu, If, Insn, R1, R2, R6, R8, R9, Size};
use crate::code::{Code, Env, slot};
use crate::programs::running::{
    FREE, NUMBER, PARENT, TASK, field, layout, layout_of_current, numbers,
};
use crate::raw::{self, Kind};

const OTHER: i16 = slot(FREE);
const OTHER_NUMBER: i16 = slot(FREE + 1);
const OTHER_PARENT: i16 = slot(FREE + 2);
const GIVES: i16 = slot(FREE + 3);

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
