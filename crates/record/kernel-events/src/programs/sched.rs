//! Which threads run.

use crate::asm::{Alu, FP, Helper, If, Insn, Label, R0, R1, R2, R7, R8, R9, Reg, Size};
use crate::code::{Code, Env, slot};
use crate::programs::calls;
use crate::raw::{self, Kind};
use fettle_btf::Field;

/// A processor goes from one thread to another. `state_given`: the state of the one before is an
/// argument, which says what it was when it went; the field may have been changed by the thread that
/// wakes it.
pub fn switch(env: &Env, state_given: bool) -> Vec<Insn> {
    const FOUND: i16 = slot(30);
    let mut c = Code::new(env);
    let out = c.out;
    c.argument(R7, 1);
    c.argument(R8, 2);
    c.asm.store_imm(Size::B8, FP, FOUND, 0);
    for (task, flag) in [(R7, 2), (R8, 4)] {
        let no = c.asm.label();
        thread_observed(&mut c, task, no);
        c.recall(R1, FOUND);
        c.asm.alu_imm(Alu::Or, R1, flag);
        c.keep(FOUND, R1);
        c.asm.place(no);
    }
    c.recall(R1, FOUND);
    c.asm.jump_if(If::Eq, R1, 0, out);
    // Preempted, or ready to go on for another reason.
    let (ready, waits) = (c.asm.label(), c.asm.label());
    c.argument(R1, 0);
    c.asm.alu_imm(Alu::And, R1, 1);
    c.asm.jump_if(If::Ne, R1, 0, ready);
    if state_given {
        c.argument(R1, 3);
        // An unsigned int: the upper half is not guaranteed.
        c.asm.alu_imm(Alu::Shl, R1, 32);
    } else {
        c.direct(R1, R7, env.fields.task_state);
    }
    c.asm.jump_if(If::Ne, R1, 0, waits);
    c.asm.place(ready);
    c.recall(R1, FOUND);
    c.asm.alu_imm(Alu::Or, R1, 1);
    c.keep(FOUND, R1);
    let (noted, notify) = (c.asm.label(), c.asm.label());
    c.asm.jump(noted);
    c.asm.place(waits);
    // It waits: in a system call, or for memory?
    c.asm.mov(R1, R7);
    c.asm.call(Helper::TaskPtRegs);
    c.direct(R1, R0, env.fields.regs_number);
    c.asm.jump_if(If::SignedLess, R1, 0, noted);
    c.recall(R2, FOUND);
    c.asm.alu_imm(Alu::Or, R2, i32::from(raw::SWITCH_IN_CALL));
    c.keep(FOUND, R2);
    if !env.only_calls {
        c.asm.jump_if(If::Set, R2, 2, notify);
        c.asm.jump(noted);
        c.asm.place(notify);
        calls::waits(&mut c, noted);
    }
    c.asm.place(noted);
    c.record(Kind::Switch, 0, out);
    c.recall(R1, FOUND);
    c.flags(R1);
    c.argument(R7, 1);
    c.argument(R8, 2);
    c.direct(R1, R7, env.fields.task_pid);
    c.word(0, R1);
    c.direct(R1, R8, env.fields.task_pid);
    c.word(1, R1);
    if env.only_calls {
        c.asm.mov(R1, R7);
        c.asm.call(Helper::TaskPtRegs);
        c.direct(R1, R0, env.fields.regs_number);
        c.asm.alu_imm(Alu::Add, R1, 1);
        c.number(R1);
    }
    c.submit();
    c.finish()
}

/// Goes to `no` if the thread is a processor's idle one, or its process is not observed.
fn thread_observed(c: &mut Code, task: Reg, no: Label) {
    let Env { fields, .. } = c.env;
    let (pid, tgid): (Field, Field) = (fields.task_pid, fields.task_tgid);
    c.direct(R1, task, pid);
    c.asm.jump_if(If::Eq, R1, 0, no);
    c.direct(R1, task, tgid);
    c.observed(R1, no);
}

/// A thread is woken, as the thread that wakes it reports: later, when it is put into a queue, another
/// thread may be the one that runs.
pub fn wake(env: &Env) -> Vec<Insn> {
    let mut c = Code::new(env);
    let out = c.out;
    c.argument(R7, 0);
    thread_observed(&mut c, R7, out);
    c.record(Kind::Wake, 1, out);
    c.direct(R1, R7, env.fields.task_pid);
    c.number(R1);
    let interrupt = c.asm.label();
    in_interrupt(&mut c, interrupt);
    c.asm.store_imm(Size::B2, R9, raw::FLAGS, 0);
    c.asm.place(interrupt);
    c.submit();
    c.finish()
}

/// Goes to `yes` if the thread that runs is not the one that does this, but was interrupted by it.
///
/// The kernel counts interrupts, but lets programs read that only if it was built to know its
/// variables by name. So: an interrupt of the kernel has a stack of its own; one of the program is
/// on the thread's, but then what the thread last did was no system call.
fn in_interrupt(c: &mut Code, yes: Label) {
    /// Bytes of a thread's stack.
    const STACK: i32 = 16 << 10;
    let f = &c.env.fields;
    c.asm.call(Helper::CurrentTaskBtf);
    c.asm.mov(R7, R0);
    c.direct(R2, R7, f.task_stack);
    // Where this program's own stack is, as a number: addresses cannot be calculated with.
    c.asm.store(Size::B8, R9, raw::word(0), FP);
    c.asm.load(Size::B8, R1, R9, raw::word(0));
    c.asm.alu(Alu::Sub, R1, R2);
    c.asm.jump_if(If::Ge, R1, STACK, yes);
    c.asm.mov(R1, R7);
    c.asm.call(Helper::TaskPtRegs);
    c.direct(R1, R0, f.regs_number);
    c.asm.jump_if(If::SignedLess, R1, 0, yes);
}
