//! Short forms: two bytes that stand for an instruction of four.

use crate::insn::{Insn, Op, Reg};

/// Bits of a half word: `count` from `low` on, put at `to`.
fn bits(half: u16, low: u32, count: u32, to: u32) -> u32 {
    (u32::from(half) >> low & ((1 << count) - 1)) << to
}

fn signed(value: u32, count: u32) -> i32 {
    let left = 32 - count;
    (value << left) as i32 >> left
}

/// The instruction that a half word stands for.
pub fn expand(half: u16) -> Option<Insn> {
    let rd = Reg::new(bits(half, 7, 5, 0));
    let rs2 = Reg::new(bits(half, 2, 5, 0));
    // Three bits name the registers from the eighth on.
    let low = Reg::new(8 + bits(half, 2, 3, 0));
    let high = Reg::new(8 + bits(half, 7, 3, 0));
    let six = signed(bits(half, 12, 1, 5) | bits(half, 2, 5, 0), 6);
    let word = bits(half, 10, 3, 3) | bits(half, 6, 1, 2) | bits(half, 5, 1, 6);
    let pair = bits(half, 10, 3, 3) | bits(half, 5, 2, 6);
    let of = |op, rd, rs1, rs2, imm: i32| {
        Some(Insn { op, rd, rs1, rs2, rs3: Reg::ZERO, imm, rounding: 0, size: 2 })
    };
    let zero = Reg::ZERO;
    match (half & 3, half >> 13) {
        (0, 0) => {
            let imm = bits(half, 11, 2, 4)
                | bits(half, 7, 4, 6)
                | bits(half, 6, 1, 2)
                | bits(half, 5, 1, 3);
            if imm == 0 { None } else { of(Op::Addi, low, Reg::SP, zero, imm as i32) }
        }
        (0, 1) => of(Op::Fld, low, high, zero, pair as i32),
        (0, 2) => of(Op::Lw, low, high, zero, word as i32),
        (0, 3) => of(Op::Flw, low, high, zero, word as i32),
        (0, 5) => of(Op::Fsd, zero, high, low, pair as i32),
        (0, 6) => of(Op::Sw, zero, high, low, word as i32),
        (0, 7) => of(Op::Fsw, zero, high, low, word as i32),
        (1, 0) => of(Op::Addi, rd, rd, zero, six),
        (1, 1) => of(Op::Jal, Reg::RA, zero, zero, jump(half)),
        (1, 2) => of(Op::Addi, rd, zero, zero, six),
        (1, 3) if rd == Reg::SP => {
            let imm = bits(half, 12, 1, 9)
                | bits(half, 6, 1, 4)
                | bits(half, 5, 1, 6)
                | bits(half, 3, 2, 7)
                | bits(half, 2, 1, 5);
            let imm = signed(imm, 10);
            if imm == 0 { None } else { of(Op::Addi, rd, rd, zero, imm) }
        }
        (1, 3) if six != 0 => of(Op::Lui, rd, zero, zero, six << 12),
        (1, 4) => arithmetic(half, high, low, six),
        (1, 5) => of(Op::Jal, zero, zero, zero, jump(half)),
        (1, 6) => of(Op::Beq, zero, high, zero, branch(half)),
        (1, 7) => of(Op::Bne, zero, high, zero, branch(half)),
        (2, 0) if half & 0x1000 == 0 => of(Op::Slli, rd, rd, zero, six),
        (2, 1) => {
            let imm = bits(half, 12, 1, 5) | bits(half, 5, 2, 3) | bits(half, 2, 3, 6);
            of(Op::Fld, rd, Reg::SP, zero, imm as i32)
        }
        (2, number @ (2 | 3)) => {
            let imm = bits(half, 12, 1, 5) | bits(half, 4, 3, 2) | bits(half, 2, 2, 6);
            match number {
                2 if rd == zero => None,
                2 => of(Op::Lw, rd, Reg::SP, zero, imm as i32),
                _ => of(Op::Flw, rd, Reg::SP, zero, imm as i32),
            }
        }
        (2, 4) => match (half & 0x1000 != 0, rd == zero, rs2 == zero) {
            (false, true, true) => None,
            (false, _, true) => of(Op::Jalr, zero, rd, zero, 0),
            (false, ..) => of(Op::Add, rd, zero, rs2, 0),
            (true, true, true) => of(Op::Ebreak, zero, zero, zero, 0),
            (true, _, true) => of(Op::Jalr, Reg::RA, rd, zero, 0),
            (true, ..) => of(Op::Add, rd, rd, rs2, 0),
        },
        (2, 5) => {
            let imm = bits(half, 10, 3, 3) | bits(half, 7, 3, 6);
            of(Op::Fsd, zero, Reg::SP, rs2, imm as i32)
        }
        (2, number @ (6 | 7)) => {
            let imm = bits(half, 9, 4, 2) | bits(half, 7, 2, 6);
            let op = if number == 6 { Op::Sw } else { Op::Fsw };
            of(op, zero, Reg::SP, rs2, imm as i32)
        }
        _ => None,
    }
}

fn arithmetic(half: u16, rd: Reg, rs2: Reg, imm: i32) -> Option<Insn> {
    let long = half & 0x1000 != 0;
    let (op, rs2, imm) = match (half >> 10 & 3, half >> 5 & 3) {
        (0, _) if !long => (Op::Srli, Reg::ZERO, imm),
        (1, _) if !long => (Op::Srai, Reg::ZERO, imm),
        (2, _) => (Op::Andi, Reg::ZERO, imm),
        (3, 0) if !long => (Op::Sub, rs2, 0),
        (3, 1) if !long => (Op::Xor, rs2, 0),
        (3, 2) if !long => (Op::Or, rs2, 0),
        (3, 3) if !long => (Op::And, rs2, 0),
        _ => return None,
    };
    Some(Insn { op, rd, rs1: rd, rs2, rs3: Reg::ZERO, imm, rounding: 0, size: 2 })
}

fn jump(half: u16) -> i32 {
    let distance = bits(half, 12, 1, 11)
        | bits(half, 11, 1, 4)
        | bits(half, 9, 2, 8)
        | bits(half, 8, 1, 10)
        | bits(half, 7, 1, 6)
        | bits(half, 6, 1, 7)
        | bits(half, 3, 3, 1)
        | bits(half, 2, 1, 5);
    signed(distance, 12)
}

fn branch(half: u16) -> i32 {
    let distance = bits(half, 12, 1, 8)
        | bits(half, 10, 2, 3)
        | bits(half, 5, 2, 6)
        | bits(half, 3, 2, 1)
        | bits(half, 2, 1, 5);
    signed(distance, 9)
}
