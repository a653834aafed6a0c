//! Transfers of block devices. The thread that gives one to the device is the one that runs, which may
//! be one of the kernel's; the thread that runs at its completion is any that the interrupt has hit.

use crate::asm::{Alu, FP, Helper, If, Insn, R0, R1, R2, R3, R4, R7, R8, Size};
use crate::code::{Code, Env, slot};
use crate::raw::Kind;

const DEVICE: i16 = slot(0);

/// A transfer is given to a device.
pub fn issue(env: &Env) -> Vec<Insn> {
    let mut c = Code::new(env);
    let out = c.out;
    let f = &env.fields;
    c.argument(R7, 0);
    c.current_observed(out);
    if env.all_but.is_none() {
        c.asm.store_imm(Size::B8, FP, slot(1), 1);
        c.wide_key(R7);
        c.key(env.transfers);
        c.asm.mov(R3, FP);
        c.asm.alu_imm(Alu::Add, R3, i32::from(slot(1)));
        c.asm.imm(R4, 0);
        c.asm.call(Helper::MapUpdate);
    }
    device(&mut c);
    // What it does is in the lowest bits; odd is to the device.
    c.direct(R8, R7, f.request_flags);
    c.asm.alu_imm(Alu::And, R8, 1);
    c.record(Kind::BlockIssue, 0, out);
    c.flags(R8);
    c.word_from(0, DEVICE);
    c.direct(R1, R7, f.request_sector);
    c.word(1, R1);
    c.direct(R1, R7, f.request_bytes);
    c.word(2, R1);
    c.submit();
    c.finish()
}

/// A transfer is done.
pub fn complete(env: &Env) -> Vec<Insn> {
    let mut c = Code::new(env);
    let out = c.out;
    let f = &env.fields;
    c.argument(R7, 0);
    if env.all_but.is_none() {
        c.wide_key(R7);
        c.key(env.transfers);
        c.asm.call(Helper::MapDelete);
        // It was not there.
        c.asm.jump_if(If::Ne, R0, 0, out);
    }
    device(&mut c);
    c.record(Kind::BlockComplete, 0, out);
    c.word_from(0, DEVICE);
    c.direct(R1, R7, f.request_sector);
    c.word(1, R1);
    c.submit();
    c.finish()
}

/// Puts the number of the device of the transfer in R7 into its slot, as the kernel makes it of
/// major and minor.
fn device(c: &mut Code) {
    let f = &c.env.fields;
    c.direct(R8, R7, f.request_queue);
    c.get(R8, R8, f.queue_disk);
    c.get(R1, R8, f.disk_major);
    c.asm.alu_imm(Alu::Shl, R1, 20);
    c.keep(DEVICE, R1);
    c.get(R2, R8, f.disk_minor);
    c.recall(R1, DEVICE);
    c.asm.alu(Alu::Or, R1, R2);
    c.keep(DEVICE, R1);
}
