//! Instructions of four bytes, and which form a word begins with.

use crate::compressed::expand;
use crate::insn::{Insn, Op, Reg};

impl Insn {
    /// The instruction whose first bytes are in a word, the lowest first; none if it is none of these.
    pub fn decode(word: u32) -> Option<Self> {
        match word & 3 {
            3 => whole(word),
            _ => expand(word as u16),
        }
    }
}

/// Bits of a word: `count` from `low` on.
fn bits(word: u32, low: u32, count: u32) -> u32 {
    word >> low & ((1 << count) - 1)
}

/// Sign-extends the low bits of a number.
fn signed(value: u32, count: u32) -> i32 {
    let left = 32 - count;
    (value << left) as i32 >> left
}

/// The instruction in a word.
fn whole(word: u32) -> Option<Insn> {
    let funct3 = bits(word, 12, 3);
    let funct7 = bits(word, 25, 7);
    let i = signed(word >> 20, 12);
    let s = signed(bits(word, 25, 7) << 5 | bits(word, 7, 5), 12);
    let (op, imm) = match word & 0x7f {
        0x37 => (Op::Lui, (word & 0xffff_f000) as i32),
        0x17 => (Op::Auipc, (word & 0xffff_f000) as i32),
        0x6f => (Op::Jal, jump(word)),
        0x67 if funct3 == 0 => (Op::Jalr, i),
        0x63 => (branch(funct3)?, branch_distance(word)),
        0x03 => (load(funct3)?, i),
        0x23 => ([Op::Sb, Op::Sh, Op::Sw].get(funct3 as usize).copied()?, s),
        0x13 => immediate(funct3, funct7, i)?,
        0x33 => (register(funct3, funct7)?, 0),
        0x0f if funct3 <= 1 => (Op::Fence, 0),
        0x73 => system(word, funct3)?,
        0x2f if funct3 == 2 => (atomic(funct7 >> 2)?, 0),
        0x07 => (if funct3 == 2 { Op::Flw } else { double(funct3, Op::Fld)? }, i),
        0x27 => (if funct3 == 2 { Op::Fsw } else { double(funct3, Op::Fsd)? }, s),
        0x43 => (of_width(funct7, Op::FmaddS, Op::FmaddD)?, 0),
        0x47 => (of_width(funct7, Op::FmsubS, Op::FmsubD)?, 0),
        0x4b => (of_width(funct7, Op::FnmsubS, Op::FnmsubD)?, 0),
        0x4f => (of_width(funct7, Op::FnmaddS, Op::FnmaddD)?, 0),
        0x53 => (float(funct7, funct3, bits(word, 20, 5))?, 0),
        _ => return None,
    };
    Some(Insn {
        op,
        rd: Reg::new(word >> 7),
        rs1: Reg::new(word >> 15),
        rs2: Reg::new(word >> 20),
        rs3: Reg::new(word >> 27),
        imm,
        rounding: funct3 as u8,
        size: 4,
    })
}

fn jump(word: u32) -> i32 {
    let distance = bits(word, 31, 1) << 20
        | bits(word, 12, 8) << 12
        | bits(word, 20, 1) << 11
        | bits(word, 21, 10) << 1;
    signed(distance, 21)
}

fn branch_distance(word: u32) -> i32 {
    let distance = bits(word, 31, 1) << 12
        | bits(word, 7, 1) << 11
        | bits(word, 25, 6) << 5
        | bits(word, 8, 4) << 1;
    signed(distance, 13)
}

fn branch(funct3: u32) -> Option<Op> {
    Some(match funct3 {
        0 => Op::Beq,
        1 => Op::Bne,
        4 => Op::Blt,
        5 => Op::Bge,
        6 => Op::Bltu,
        7 => Op::Bgeu,
        _ => return None,
    })
}

fn load(funct3: u32) -> Option<Op> {
    Some(match funct3 {
        0 => Op::Lb,
        1 => Op::Lh,
        2 => Op::Lw,
        4 => Op::Lbu,
        5 => Op::Lhu,
        _ => return None,
    })
}

fn immediate(funct3: u32, funct7: u32, imm: i32) -> Option<(Op, i32)> {
    Some(match (funct3, funct7) {
        (0, _) => (Op::Addi, imm),
        (2, _) => (Op::Slti, imm),
        (3, _) => (Op::Sltiu, imm),
        (4, _) => (Op::Xori, imm),
        (6, _) => (Op::Ori, imm),
        (7, _) => (Op::Andi, imm),
        (1, 0) => (Op::Slli, imm & 31),
        (5, 0) => (Op::Srli, imm & 31),
        (5, 0x20) => (Op::Srai, imm & 31),
        _ => return None,
    })
}

fn register(funct3: u32, funct7: u32) -> Option<Op> {
    const PLAIN: [Op; 8] = [Op::Add, Op::Sll, Op::Slt, Op::Sltu, Op::Xor, Op::Srl, Op::Or, Op::And];
    const PRODUCTS: [Op; 8] =
        [Op::Mul, Op::Mulh, Op::Mulhsu, Op::Mulhu, Op::Div, Op::Divu, Op::Rem, Op::Remu];
    match (funct7, funct3) {
        (0, _) => PLAIN.get(funct3 as usize).copied(),
        (1, _) => PRODUCTS.get(funct3 as usize).copied(),
        (0x20, 0) => Some(Op::Sub),
        (0x20, 5) => Some(Op::Sra),
        _ => None,
    }
}

fn system(word: u32, funct3: u32) -> Option<(Op, i32)> {
    let number = (word >> 20) as i32;
    Some(match funct3 {
        0 if word == 0x0000_0073 => (Op::Ecall, 0),
        0 if word == 0x0010_0073 => (Op::Ebreak, 0),
        1 => (Op::Csrrw, number),
        2 => (Op::Csrrs, number),
        3 => (Op::Csrrc, number),
        5 => (Op::Csrrwi, number),
        6 => (Op::Csrrsi, number),
        7 => (Op::Csrrci, number),
        _ => return None,
    })
}

fn atomic(funct5: u32) -> Option<Op> {
    Some(match funct5 {
        0x02 => Op::LrW,
        0x03 => Op::ScW,
        0x01 => Op::AmoSwap,
        0x00 => Op::AmoAdd,
        0x04 => Op::AmoXor,
        0x0c => Op::AmoAnd,
        0x08 => Op::AmoOr,
        0x10 => Op::AmoMin,
        0x14 => Op::AmoMax,
        0x18 => Op::AmoMinu,
        0x1c => Op::AmoMaxu,
        _ => return None,
    })
}

fn double(funct3: u32, op: Op) -> Option<Op> {
    (funct3 == 3).then_some(op)
}

/// Which of two operations the format of floating-point numbers means.
fn of_width(funct7: u32, single: Op, double: Op) -> Option<Op> {
    match funct7 & 3 {
        0 => Some(single),
        1 => Some(double),
        _ => None,
    }
}

fn float(funct7: u32, funct3: u32, rs2: u32) -> Option<Op> {
    let pick = |single, double| of_width(funct7, single, double);
    match (funct7 >> 2, funct3, rs2) {
        (0x00, ..) => pick(Op::FaddS, Op::FaddD),
        (0x01, ..) => pick(Op::FsubS, Op::FsubD),
        (0x02, ..) => pick(Op::FmulS, Op::FmulD),
        (0x03, ..) => pick(Op::FdivS, Op::FdivD),
        (0x0b, _, 0) => pick(Op::FsqrtS, Op::FsqrtD),
        (0x04, 0, _) => pick(Op::FsgnjS, Op::FsgnjD),
        (0x04, 1, _) => pick(Op::FsgnjnS, Op::FsgnjnD),
        (0x04, 2, _) => pick(Op::FsgnjxS, Op::FsgnjxD),
        (0x05, 0, _) => pick(Op::FminS, Op::FminD),
        (0x05, 1, _) => pick(Op::FmaxS, Op::FmaxD),
        (0x08, _, 1) => (funct7 & 3 == 0).then_some(Op::FcvtSD),
        (0x08, _, 0) => (funct7 & 3 == 1).then_some(Op::FcvtDS),
        (0x14, 2, _) => pick(Op::FeqS, Op::FeqD),
        (0x14, 1, _) => pick(Op::FltS, Op::FltD),
        (0x14, 0, _) => pick(Op::FleS, Op::FleD),
        (0x18, _, 0) => pick(Op::FcvtWS, Op::FcvtWD),
        (0x18, _, 1) => pick(Op::FcvtWuS, Op::FcvtWuD),
        (0x1a, _, 0) => pick(Op::FcvtSW, Op::FcvtDW),
        (0x1a, _, 1) => pick(Op::FcvtSWu, Op::FcvtDWu),
        (0x1c, 0, 0) => (funct7 & 3 == 0).then_some(Op::FmvXW),
        (0x1c, 1, 0) => pick(Op::FclassS, Op::FclassD),
        (0x1e, 0, 0) => (funct7 & 3 == 0).then_some(Op::FmvWX),
        _ => None,
    }
}
