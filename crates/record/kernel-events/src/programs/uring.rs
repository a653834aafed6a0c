//! What is given to an `io_uring`, so that one that moves no bytes is no gap in what was recorded: event loops use
//! one for `epoll_ctl` alone. A thread that gives one something else is remembered until its call is over.

use crate::asm::{Alu, FP, Helper, If, Insn, R0, R1, R2, R3, R4, R7, R8, Size};
use crate::code::{Code, Env, slot};
use crate::raw::Kind;

/// Operations that neither read nor write: `NOP`, `POLL_ADD`, `POLL_REMOVE`, `TIMEOUT`, `TIMEOUT_REMOVE`,
/// `ASYNC_CANCEL`, `LINK_TIMEOUT`, `EPOLL_CTL`.
const NO_BYTES: [i32; 8] = [0, 6, 7, 11, 12, 14, 15, 29];
/// Of a ring's flags: a thread of the kernel's takes what is given to it, whichever thread calls.
const POLLED: i32 = 1 << 1;

/// Something is given to a ring. Only where the kernel has this tracepoint (Linux 6.3).
pub fn submit(env: &Env) -> Vec<Insn> {
    let mut c = Code::new(env);
    let out = c.out;
    let Some(fields) = env.uring else { return c.finish() };
    c.argument(R7, 0);
    c.direct(R8, R7, fields.opcode);
    for operation in NO_BYTES {
        c.asm.jump_if(If::Eq, R8, operation, out);
    }
    c.current_observed(out);
    c.direct(R8, R7, fields.ring);
    c.get(R8, R8, fields.flags);
    c.asm.alu_imm(Alu::And, R8, POLLED);
    let called = c.asm.label();
    c.asm.jump_if(If::Eq, R8, 0, called);
    c.record(Kind::Uring, 0, out);
    c.asm.imm(R1, -1);
    c.number(R1);
    c.asm.imm(R1, 1);
    c.word(0, R1);
    c.submit();
    c.asm.jump(out);
    c.asm.place(called);
    c.asm.store_imm(Size::B8, FP, slot(1), 1);
    thread(&mut c);
    c.asm.mov(R3, FP);
    c.asm.alu_imm(Alu::Add, R3, i32::from(slot(1)));
    c.asm.imm(R4, 0);
    c.asm.call(Helper::MapUpdate);
    c.finish()
}

/// Goes to the end of the program unless the thread has given its ring something that moves bytes since it was
/// asked last.
pub fn gave(c: &mut Code) {
    let out = c.out;
    if c.env.uring.is_some() {
        thread(c);
        c.asm.call(Helper::MapDelete);
        c.asm.jump_if(If::Ne, R0, 0, out);
    }
}

/// The key is the thread, among those of transfers, which are addresses of the kernel's.
fn thread(c: &mut Code) {
    c.asm.call(Helper::CurrentPidTgid);
    c.asm.mov(R2, R0);
    c.asm.alu_imm(Alu::Shl, R2, 32);
    c.asm.alu_imm(Alu::Shr, R2, 32);
    c.wide_key(R2);
    c.key(c.env.transfers);
}
