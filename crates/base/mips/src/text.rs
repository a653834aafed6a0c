//! The text of an instruction, as GNU's disassembler writes it without aliases.

use std::fmt::{self, Write as _};

use crate::insn::Insn;
use crate::names::Reg;
use crate::table::Op;

impl Insn {
    /// Its text when it is at `pc`.
    pub fn text(self, pc: u32) -> String {
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = self.write(&mut text, pc);
        text
    }

    fn write(self, out: &mut String, pc: u32) -> fmt::Result {
        let line = self.op.line();
        if self.op == Op::Subu && self.rs() == Reg::ZERO {
            return write!(out, "negu {},{}", self.rd(), self.rt());
        }
        let mut operands = String::new();
        let mut letters = line.operands.chars();
        while let Some(letter) = letters.next() {
            match letter {
                '+' => self.field(&mut operands, letters.next())?,
                _ => self.operand(&mut operands, letter, pc)?,
            }
        }
        // What is left out takes its comma with it.
        let operands = operands.trim_matches(',');
        match operands {
            "" => out.write_str(line.name),
            _ => write!(out, "{} {operands}", line.name),
        }
    }

    fn field(self, out: &mut String, letter: Option<char>) -> fmt::Result {
        match letter {
            Some('A') => write!(out, "{:#x}", self.sa()),
            _ => write!(out, "{:#x}", self.field_width()),
        }
    }

    fn operand(self, out: &mut String, letter: char, pc: u32) -> fmt::Result {
        match letter {
            'd' if matches!(self.op, Op::Jalr | Op::JalrHb) && self.rd() == Reg::RA => Ok(()),
            'd' => write!(out, "{}", self.rd()),
            's' | 'b' => write!(out, "{}", self.rs()),
            't' => write!(out, "{}", self.rt()),
            'z' => out.write_str("zero"),
            '<' => write!(out, "{:#x}", self.sa()),
            'j' | 'o' => write!(out, "{}", self.imm()),
            'i' => write!(out, "{:#x}", self.uimm()),
            'p' | 'a' => write!(out, "{:x}", self.target(pc).unwrap_or_default()),
            'D' => write!(out, "{}", self.fd()),
            'S' => write!(out, "{}", self.fs()),
            'T' => write!(out, "{}", self.ft()),
            'R' => write!(out, "{}", self.fr()),
            'M' => condition(out, self.compared_cc(), true),
            'N' => condition(
                out,
                self.cc(),
                matches!(self.op, Op::Bc1f | Op::Bc1t | Op::Bc1fl | Op::Bc1tl),
            ),
            'q' => optional(out, self.trap_code()),
            'c' => optional(out, (self.word >> 16) & 0x3ff),
            'B' => optional(out, (self.word >> 6) & 0xf_ffff),
            '1' => optional(out, self.sa()),
            'h' | 'k' => write!(out, "{:#x}", self.rt().number()),
            'H' => write!(out, "{:#x}", self.rd().number()),
            'K' => write!(out, "${}", self.rd().number()),
            'G' => match self.rd().number() {
                31 => out.write_str("c1_fcsr"),
                other => write!(out, "${other}"),
            },
            other => out.write_char(other),
        }
    }
}

/// A condition flag; the first is left out where that is usual.
fn condition(out: &mut String, flag: u8, leave_out_first: bool) -> fmt::Result {
    match flag {
        0 if leave_out_first => Ok(()),
        _ => write!(out, "$fcc{flag}"),
    }
}

/// A code that is left out when it is nought.
fn optional(out: &mut String, code: u32) -> fmt::Result {
    match code {
        0 => Ok(()),
        _ => write!(out, "{code:#x}"),
    }
}
