//! When what a thread reads from a TCP connection came. The connection remembers when it received or
//! sent a segment last, but forgets it while it is read: it looks at the clock then, to see how large its
//! buffer should be. Just before that there is a tracepoint, within the call.

use crate::asm::{Alu, FP, Helper, If, Insn, R0, R1, R2, R3, R4, R8, R9, Size};
use crate::code::{Code, Env, slot};
use crate::raw;

/// `tcp_rcv_space_adjust(sock)`: something was read. Until the call says what, it is kept when the
/// connection's last segment came: a call may come by here several times, and the first time counts.
pub fn read(env: &Env) -> Vec<Insn> {
    /// `BPF_NOEXIST`.
    const FIRST: i32 = 1;
    const CAME: i16 = slot(0);
    let mut c = Code::new(env);
    let out = c.out;
    c.argument(R8, 0);
    c.current_observed(out);
    c.get(R1, R8, env.fields.tcp_mstamp);
    c.keep(CAME, R1);
    c.wide_key(R8);
    c.key(env.arrivals);
    c.asm.mov(R3, FP);
    c.asm.alu_imm(Alu::Add, R3, i32::from(CAME));
    c.asm.imm(R4, FIRST);
    c.asm.call(Helper::MapUpdate);
    c.finish()
}

/// The number of the record in R9 is for how many microseconds the last bytes had lain in the `sock` in
/// R8; 0 where nothing is known.
pub fn number(c: &mut Code) {
    let (known, fits, none) = (c.asm.label(), c.asm.label(), c.asm.label());
    c.asm.store_imm(Size::B4, R9, raw::NUMBER, 0);
    c.wide_key(R8);
    c.key(c.env.arrivals);
    c.asm.call(Helper::MapLookup);
    c.asm.jump_if(If::Eq, R0, 0, none);
    c.asm.load(Size::B8, R2, R0, 0);
    c.asm.jump_if(If::Eq, R2, 0, known);
    c.asm.load(Size::B8, R1, R9, raw::TIME);
    c.asm.alu_imm(Alu::Div, R1, 1000);
    // Segments come while the call returns, too.
    c.asm.jump_if_reg(If::Ge, R2, R1, known);
    c.asm.alu(Alu::Sub, R1, R2);
    c.asm.mov(R2, R1);
    c.asm.alu_imm(Alu::Shr, R2, 32);
    c.asm.jump_if(If::Eq, R2, 0, fits);
    c.asm.imm(R1, -1);
    c.asm.place(fits);
    c.number(R1);
    c.asm.place(known);
    forget(c);
    c.asm.place(none);
}

/// Nothing is known of the `sock` in R8 any more.
pub fn forget(c: &mut Code) {
    c.wide_key(R8);
    c.key(c.env.arrivals);
    c.asm.call(Helper::MapDelete);
}
