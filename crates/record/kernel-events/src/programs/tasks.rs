//! Starts and ends of processes and threads, and which processes are observed.

use crate::asm::{Alu, FP, Helper, If, Insn, R0, R1, R2, R3, R7, R8, R9, Size};
use crate::code::{Code, Env, slot, state};
use crate::raw::{FLAGS, Kind, word};

/// A thread or process begins. A child of an observed process is observed before it runs, so that no
/// child is missed, however quick.
pub fn fork(env: &Env) -> Vec<Insn> {
    const CHILD_STATE: i16 = slot(2);
    let mut c = Code::new(env);
    let out = c.out;
    let f = &env.fields;
    c.argument(R7, 0);
    c.argument(R8, 1);
    if env.all_but.is_none() {
        let (decided, unobserved, thread) = (c.asm.label(), c.asm.label(), c.asm.label());
        c.direct(R1, R7, f.task_tgid);
        c.state_of(R1);
        c.asm.jump_if(If::Eq, R0, 0, unobserved);
        c.asm.load(Size::B4, R1, R0, 0);
        c.keep(CHILD_STATE, R1);
        c.asm.jump_if(If::Ne, R1, state::PARENT, decided);
        c.asm.store_imm(Size::B8, FP, CHILD_STATE, state::PENDING);
        c.asm.place(decided);
        // A thread has its process's state.
        c.direct(R1, R7, f.task_tgid);
        c.direct(R3, R8, f.task_tgid);
        c.asm.jump_if_reg(If::Eq, R1, R3, thread);
        c.asm.store(Size::B4, FP, -8, R3);
        c.direct(R3, R8, f.task_signal);
        c.recall(R1, CHILD_STATE);
        c.set_state(R1, R3);
        c.asm.place(thread);
        c.recall(R1, CHILD_STATE);
        c.asm.jump_if(If::Ne, R1, state::OBSERVED, out);
        let record = c.asm.label();
        c.asm.jump(record);
        // A process with the number of one that was observed, and has only just ended.
        c.asm.place(unobserved);
        c.direct(R1, R8, f.task_tgid);
        c.asm.store(Size::B4, FP, -8, R1);
        c.key(env.observed);
        c.asm.call(Helper::MapDelete);
        c.asm.jump(out);
        c.asm.place(record);
    } else {
        c.direct(R1, R7, f.task_tgid);
        c.observed(R1, out);
    }
    c.record(Kind::Fork, 0, out);
    c.direct(R1, R8, f.task_pid);
    c.word(0, R1);
    c.direct(R1, R8, f.task_tgid);
    c.word(1, R1);
    c.submit();
    c.finish()
}

/// A program begins.
pub fn exec(env: &Env) -> Vec<Insn> {
    let mut c = Code::new(env);
    let out = c.out;
    let f = &env.fields;
    c.argument(R7, 0);
    c.direct(R1, R7, f.task_tgid);
    if env.all_but.is_some() {
        c.observed(R1, out);
    } else {
        let known = c.asm.label();
        c.state_of(R1);
        c.asm.jump_if(If::Eq, R0, 0, out);
        c.asm.load(Size::B4, R1, R0, 0);
        c.asm.jump_if(If::Eq, R1, state::OBSERVED, known);
        c.asm.jump_if(If::Ne, R1, state::PENDING, out);
        c.asm.store_imm(Size::B4, R0, 0, state::OBSERVED);
        c.asm.place(known);
    }
    c.argument(R8, 2);
    c.direct(R8, R8, f.bprm_filename);
    c.record(Kind::Exec, 0, out);
    c.asm.mov(R3, R8);
    c.text(Kind::Exec, Helper::ProbeReadKernelStr);
    c.submit();
    c.finish()
}

/// A thread ends. Its descriptors are closed after this.
pub fn exit(env: &Env) -> Vec<Insn> {
    let mut c = Code::new(env);
    let out = c.out;
    let f = &env.fields;
    let (last, done) = (c.asm.label(), c.asm.label());
    c.argument(R7, 0);
    c.direct(R1, R7, f.task_tgid);
    c.observed(R1, out);
    c.record(Kind::Exit, 0, out);
    c.direct(R8, R7, f.task_signal);
    c.get(R1, R8, f.signal_live);
    c.asm.jump_if(If::Eq, R1, 0, last);
    c.direct(R1, R7, f.task_exit_code);
    c.word(0, R1);
    c.asm.jump(done);
    c.asm.place(last);
    c.asm.store_imm(Size::B2, R9, FLAGS, 1);
    // The process's status, if all threads ended at once; otherwise the thread's is.
    let group = c.asm.label();
    c.get(R0, R8, f.signal_group_exit_code);
    c.asm.mov(R1, R0);
    c.asm.jump_if(If::Ne, R1, 0, group);
    c.direct(R1, R7, f.task_exit_code);
    c.asm.place(group);
    c.word(0, R1);
    c.asm.place(done);
    c.asm.mov(R1, R9);
    c.asm.alu_imm(Alu::Add, R1, i32::from(word(1)));
    c.asm.imm(R2, 16);
    c.asm.mov(R3, R7);
    c.asm.alu_imm(Alu::Add, R3, f.task_name.offset as i32);
    c.asm.call(Helper::ProbeReadKernel);
    c.submit();
    c.finish()
}

/// The kernel forgets a thread: its number may be used again. A process is forgotten with its
/// first thread; after an exec by another thread the old first thread is one, too, but its process
/// has live threads.
pub fn free(env: &Env) -> Vec<Insn> {
    let mut c = Code::new(env);
    let out = c.out;
    let f = &env.fields;
    if env.all_but.is_some() {
        return c.finish();
    }
    c.argument(R7, 0);
    c.direct(R1, R7, f.task_tgid);
    c.direct(R3, R7, f.task_pid);
    c.asm.jump_if_reg(If::Ne, R1, R3, out);
    c.state_of(R1);
    c.asm.jump_if(If::Eq, R0, 0, out);
    c.asm.mov(R8, R0);
    c.direct(R9, R7, f.task_signal);
    c.get(R1, R9, f.signal_live);
    c.asm.jump_if(If::Ne, R1, 0, out);
    // A later process with this number has another structure.
    let same = c.asm.label();
    c.asm.load(Size::B8, R1, R8, 8);
    c.asm.jump_if(If::Eq, R1, 0, same);
    c.asm.jump_if_reg(If::Ne, R1, R9, out);
    c.asm.place(same);
    c.key(env.observed);
    c.asm.call(Helper::MapDelete);
    c.finish()
}

/// A signal is sent, by or to an observed process.
pub fn signal(env: &Env) -> Vec<Insn> {
    /// The receiver ignores it.
    const IGNORED: i32 = 1;
    let mut c = Code::new(env);
    let out = c.out;
    let f = &env.fields;
    let (yes, other) = (c.asm.label(), c.asm.label());
    c.argument(R1, 4);
    c.asm.alu_imm(Alu::Shl, R1, 32);
    c.asm.alu_imm(Alu::Shr, R1, 32);
    c.asm.jump_if(If::Eq, R1, IGNORED, out);
    c.argument(R7, 2);
    c.direct(R1, R7, f.task_tgid);
    c.observed(R1, other);
    c.asm.jump(yes);
    c.asm.place(other);
    c.current_observed(out);
    c.asm.place(yes);
    c.record(Kind::Signal, 0, out);
    c.argument(R1, 0);
    c.number(R1);
    c.direct(R1, R7, f.task_pid);
    c.word(0, R1);
    c.submit();
    c.finish()
}

/// A signal arrives at the thread that runs.
pub fn signal_delivered(env: &Env) -> Vec<Insn> {
    let mut c = Code::new(env);
    let out = c.out;
    c.current_observed(out);
    c.record(Kind::SignalDelivered, 0, out);
    c.argument(R1, 0);
    c.number(R1);
    c.submit();
    c.finish()
}
