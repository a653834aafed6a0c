//! Page faults: the kernel looks for memory, on disk perhaps.

use crate::asm::{Insn, R1};
use crate::code::{Code, Env};
use crate::raw::Kind;

/// The tracepoint of a fault of the program's own code: no event says when it is done.
pub fn fault_of_program(env: &Env) -> Vec<Insn> {
    let mut c = Code::new(env);
    let out = c.out;
    c.current_observed(out);
    c.record(Kind::Fault, 0, out);
    c.argument(R1, 0);
    c.word(0, R1);
    c.submit();
    c.finish()
}

/// `handle_mm_fault(area, address, …)` begins, or is `done`. The thread that runs is the one that
/// wants the memory, in its own code or in a system call.
pub fn fault(env: &Env, done: bool) -> Vec<Insn> {
    let mut c = Code::new(env);
    let out = c.out;
    c.current_observed(out);
    c.record(Kind::Fault, u16::from(done), out);
    c.argument(R1, 1);
    c.word(0, R1);
    c.submit();
    c.finish()
}
