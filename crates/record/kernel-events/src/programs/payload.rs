//! The first bytes of a message: copied from where the program has them, when its call returns.
//!
//! They are gathered in memory of the processor, for they may lie in several buffers, and go into
//! the ring from there: a record takes as much room as there are bytes. The program at the end of
//! system calls is the only one that does so, and is never interrupted by itself.

use crate::asm::{Alu, FP, Helper, If, Label, R0, R1, R2, R3, R4, R7, R9, Reg, Size};
use crate::code::{Code, counter, slot};
use crate::programs::slots::{FIRST, INODE};
use crate::raw::{self, Kind};

/// Buffers of one call that are looked at.
const BUFFERS: usize = 64;
/// Bytes of `struct iovec`.
const VECTOR: i32 = 16;
/// Where `struct msghdr` has its buffers, and how many.
const MESSAGE_VECTORS: i32 = 16;
const MESSAGE_COUNT: i32 = 24;

/// Bytes before those of the message.
const HEAD: i32 = raw::word(Kind::Payload.words()) as i32;

/// The most bytes that can be asked for: what a processor's own memory may hold, twice.
pub const MOST: u32 = 16_000;

/// Bytes of memory that each processor needs for that many of a message.
pub const fn scratch_bytes(payload: u32) -> u32 {
    // The kernel sees that each of two numbers is not larger than that, not that their sum is.
    (HEAD as u32 + 2 * payload).next_multiple_of(8)
}

const SUM: i16 = slot(FIRST + 7);
const BASE: i16 = slot(FIRST + 8);
const VECTORS: i16 = slot(FIRST + 10);

// What is counted lies where the record's head will be: of a number that has been in memory the kernel
// forgets what it knew, so that after each buffer it finds what it has seen before. Otherwise there
// would be more ways through a few buffers than it has the patience to follow.
const LEFT: i16 = 0;
const AT: i16 = 8;
const LENGTH: i16 = 16;
const COUNT: i16 = 24;
const _: () = assert!(COUNT + 8 <= HEAD as i16);

/// Puts a number into memory.
fn put_down(c: &mut Code, at: i16, from: Reg) {
    c.asm.store(Size::B8, R9, at, from);
}

/// Takes a number from there.
fn pick_up(c: &mut Code, to: Reg, at: i16) {
    c.asm.load(Size::B8, to, R9, at);
}

/// Calls with one buffer; with several; with a message that has them.
const PLAIN: [i32; 4] = [0, 1, 44, 45];
const SEVERAL: [i32; 6] = [19, 20, 295, 296, 327, 328];
const MESSAGES: [i32; 4] = [46, 47, 299, 307];

/// Records what the call whose registers are in R7 moved, as its result in `result` says. Leaves R8
/// alone. Nothing is recorded of calls that have no bytes of the program's, such as `sendfile`.
pub fn message(c: &mut Code, flags: u16, result: i16) {
    let payload = c.env.payload as i32;
    if payload == 0 {
        return;
    }
    let (done, finish) = (c.asm.label(), c.asm.label());
    let (plain, several, vectors) = (c.asm.label(), c.asm.label(), c.asm.label());
    c.recall(R1, result);
    c.asm.jump_if(If::SignedLess, R1, 1, done);
    c.asm.store_imm(Size::B4, FP, -8, 0);
    c.key(c.env.scratch);
    c.asm.call(Helper::MapLookup);
    c.asm.jump_if(If::Eq, R0, 0, done);
    c.asm.mov(R9, R0);
    let fits = c.asm.label();
    c.recall(R1, result);
    c.asm.imm(R2, payload);
    c.asm.jump_if_reg(If::Ge, R1, R2, fits);
    c.asm.mov(R2, R1);
    c.asm.place(fits);
    put_down(c, LEFT, R2);
    c.asm.store_imm(Size::B8, R9, AT, 0);

    // Where the buffers are.
    c.direct(R2, R7, c.env.fields.regs_number);
    c.direct(R1, R7, c.env.fields.regs_1);
    c.keep(BASE, R1);
    c.keep(VECTORS, R1);
    let message = c.asm.label();
    for (numbers, label) in [(&PLAIN[..], plain), (&SEVERAL, several), (&MESSAGES, message)] {
        for number in numbers {
            c.asm.jump_if(If::Eq, R2, *number, label);
        }
    }
    c.asm.jump(done);
    c.asm.place(message);
    get(c, BASE, MESSAGE_VECTORS);
    c.keep(VECTORS, R1);
    get(c, BASE, MESSAGE_COUNT);
    put_down(c, COUNT, R1);
    c.asm.jump(vectors);
    c.asm.place(several);
    c.direct(R1, R7, c.env.fields.regs_2);
    put_down(c, COUNT, R1);
    c.asm.place(vectors);
    for _ in 0..BUFFERS {
        pick_up(c, R1, COUNT);
        c.asm.jump_if(If::Eq, R1, 0, finish);
        c.asm.alu_imm(Alu::Sub, R1, 1);
        put_down(c, COUNT, R1);
        get(c, VECTORS, 0);
        c.keep(BASE, R1);
        get(c, VECTORS, 8);
        put_down(c, LENGTH, R1);
        c.recall(R1, VECTORS);
        c.asm.alu_imm(Alu::Add, R1, VECTOR);
        c.keep(VECTORS, R1);
        copy(c, payload, finish);
    }
    c.asm.jump(finish);
    c.asm.place(plain);
    pick_up(c, R1, LEFT);
    put_down(c, LENGTH, R1);
    copy(c, payload, finish);
    c.asm.place(finish);
    put(c, flags, result, done);
    c.asm.place(done);
}

/// Takes to R1 what the program has behind the place that is in a slot.
fn get(c: &mut Code, slot: i16, behind: i32) {
    c.recall(R3, slot);
    c.asm.alu_imm(Alu::Add, R3, behind);
    c.get_user(Size::B8, R1);
}

/// Copies from a buffer as much as is wanted; goes to `finish` when that is all.
fn copy(c: &mut Code, payload: i32, finish: Label) {
    let fits = c.asm.label();
    pick_up(c, R2, LENGTH);
    pick_up(c, R1, LEFT);
    c.asm.jump_if_reg(If::Ge, R1, R2, fits);
    c.asm.mov(R2, R1);
    c.asm.place(fits);
    // For the kernel, which does not follow sums.
    c.asm.jump_if(If::Gt, R2, payload, finish);
    pick_up(c, R1, AT);
    c.asm.jump_if(If::Gt, R1, payload, finish);
    put_down(c, LENGTH, R2);
    c.asm.alu(Alu::Add, R1, R9);
    c.asm.alu_imm(Alu::Add, R1, HEAD);
    c.recall(R3, BASE);
    c.asm.call(Helper::ProbeReadUser);
    // What is not in memory is not waited for.
    c.asm.jump_if(If::Ne, R0, 0, finish);
    pick_up(c, R2, LENGTH);
    pick_up(c, R1, AT);
    c.asm.alu(Alu::Add, R1, R2);
    put_down(c, AT, R1);
    pick_up(c, R1, LEFT);
    c.asm.alu(Alu::Sub, R1, R2);
    put_down(c, LEFT, R1);
    c.asm.jump_if(If::Eq, R1, 0, finish);
}

/// Puts the record into the ring.
fn put(c: &mut Code, flags: u16, result: i16, done: Label) {
    const NO_WAKEUP: i32 = 1;
    let lost = c.asm.label();
    pick_up(c, R1, AT);
    c.asm.jump_if(If::Eq, R1, 0, done);
    c.keep(SUM, R1);
    c.head(Kind::Payload, flags);
    c.recall(R1, SUM);
    c.number(R1);
    c.word_from(0, INODE);
    c.word_from(1, result);
    c.asm.call(Helper::SmpProcessorId);
    c.asm.store(Size::B4, FP, -8, R0);
    c.key(c.env.rings);
    c.asm.call(Helper::MapLookup);
    c.asm.jump_if(If::Eq, R0, 0, lost);
    c.recall(R3, SUM);
    c.asm.jump_if(If::Gt, R3, c.env.payload as i32, done);
    c.asm.alu_imm(Alu::Add, R3, HEAD);
    c.asm.mov(R1, R0);
    c.asm.mov(R2, R9);
    c.asm.imm(R4, NO_WAKEUP);
    c.asm.call(Helper::RingbufOutput);
    c.asm.jump_if(If::Eq, R0, 0, done);
    c.asm.place(lost);
    c.count(counter::LOST);
}
