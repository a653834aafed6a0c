//! CPython's contexts: which one makes another, and which one leaves bytes to uvloop.
//!
//! Each task of an event loop runs in a context of its own, which is a copy of the one that has made it. So does
//! each callback that is put off, and each function that is given to a thread.

use crate::asm::{Alu, If, Insn, Label, R1, R2, R3, R6, R8, R9, Size};
use crate::code::{Code, Env, slot};
use crate::programs::descriptors::{KIND, SOCKET, file_of};
use crate::programs::running::{FREE, TASK, current, field, layout, layout_of_current};
use crate::programs::slots::{INODE, MODE};
use crate::raw::{self, Kind};
use crate::runtimes::CONTEXTS;

const MADE: i16 = slot(FREE);
const CONTEXT: i16 = slot(FREE + 1);
const FD: i16 = slot(FREE + 2);

/// Places in `pt_regs`.
const RAX: i16 = 80;
const RSI: i16 = 104;

/// Puts the thread's context into its slot, if its process has contexts; otherwise goes to `no`.
fn context(c: &mut Code, no: Label) {
    layout_of_current(c, no);
    c.asm.load(Size::B8, R1, R9, layout::IDENTITY);
    c.asm.jump_if(If::Ne, R1, CONTEXTS as i32, no);
    current(c, no);
    field(c, Size::B8, R2, TASK, layout::NUMBER);
    c.keep(CONTEXT, R2);
}

/// Where `PyContext_CopyCurrent` returns a new context.
pub fn made(env: &Env) -> Vec<Insn> {
    let mut c = Code::new(env);
    let out = c.out;
    c.asm.load(Size::B8, R1, R6, RAX);
    c.asm.jump_if(If::Eq, R1, 0, out);
    c.keep(MADE, R1);
    context(&mut c, out);
    c.record(Kind::TaskMade, 0, out);
    c.asm.store_imm(Size::B4, R9, raw::NUMBER, 0);
    c.word_from(0, CONTEXT);
    c.word_from(1, MADE);
    c.submit();
    c.finish()
}

/// Where `PySet_Add(set, key)` begins: uvloop keeps the streams that have something to be sent in a set, and
/// sends it when the tasks that are ready have run.
pub fn queued(env: &Env) -> Vec<Insn> {
    /// Of `PyObject` and `PyTypeObject`.
    const TYPE: i32 = 8;
    const TYPE_NAME: i32 = 24;
    /// Of uvloop's `UVHandle` to libuv's handle, and of `uv_stream_t` to its descriptor.
    const HANDLE: i32 = 24;
    const DESCRIPTOR: i32 = 184;
    /// What the names of uvloop's types begin with.
    const NAME: [&[u8; 4]; 2] = [b"uvlo", b"op.l"];
    let mut c = Code::new(env);
    let out = c.out;
    c.asm.load(Size::B8, R8, R6, RSI);
    c.asm.mov(R3, R8);
    c.asm.alu_imm(Alu::Add, R3, TYPE);
    c.get_user(Size::B8, R3);
    c.asm.alu_imm(Alu::Add, R3, TYPE_NAME);
    c.get_user(Size::B8, R9);
    for (at, part) in (0..).step_by(4).zip(NAME) {
        c.asm.mov(R3, R9);
        c.asm.alu_imm(Alu::Add, R3, at);
        c.get_user(Size::B4, R1);
        c.asm.jump_if(If::Ne, R1, i32::from_le_bytes(*part), out);
    }
    c.asm.mov(R3, R8);
    c.asm.alu_imm(Alu::Add, R3, HANDLE);
    c.get_user(Size::B8, R3);
    c.asm.jump_if(If::Eq, R3, 0, out);
    c.asm.alu_imm(Alu::Add, R3, DESCRIPTOR);
    c.get_user(Size::B4, R1);
    c.keep(FD, R1);
    context(&mut c, out);
    file_of(&mut c, FD, out);
    c.recall(R1, MODE);
    c.asm.alu_imm(Alu::And, R1, KIND);
    c.asm.jump_if(If::Ne, R1, SOCKET, out);
    c.record(Kind::TaskSend, 0, out);
    c.asm.store_imm(Size::B4, R9, raw::NUMBER, 0);
    c.word_from(0, INODE);
    c.word_from(1, CONTEXT);
    c.submit();
    c.finish()
}
