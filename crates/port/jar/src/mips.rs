//! From one MIPS instruction to steps.
//!
//! Branches and their delay slots are `blocks`' below; here is what every other instruction does.

pub mod blocks;

use fettle_mips::{FpReg, Insn, Op, Reg};

use crate::helpers as help;
use crate::image::OddRegisters;
use crate::ir::{Bin, Cmp, Cond, Expr, Fp, Rep, Stmt, Un, Var, Width};

/// What an instruction means depends on this.
#[derive(Clone, Copy)]
pub struct Lifter {
    /// Byte order of memory.
    pub big_endian: bool,
    /// What odd floating-point registers are.
    pub odd: OddRegisters,
}

/// A general register as a variable.
pub fn var(reg: Reg) -> Var {
    Var(reg.number())
}

/// The content of a general register.
pub fn read(reg: Reg) -> Expr {
    if reg == Reg::ZERO { Expr::Int(0) } else { Expr::Var(var(reg)) }
}

fn add(a: Expr, constant: i32) -> Expr {
    match (a, constant) {
        (Expr::Int(a), _) => Expr::Int(a.wrapping_add(constant)),
        (a, 0) => a,
        (a, _) => Expr::bin(Bin::Add, a, Expr::Int(constant)),
    }
}

fn value_of(cond: Cond) -> Expr {
    Expr::Cond(Box::new(cond))
}

/// The address that a load or store has.
fn address(insn: Insn) -> Expr {
    add(read(insn.rs()), insn.imm())
}

fn help(helper: &'static crate::ir::Helper, arguments: Vec<Expr>) -> Expr {
    Expr::Help(helper, arguments)
}

/// Collects the steps of one instruction.
struct Out {
    steps: Vec<Stmt>,
}

impl Out {
    fn set(&mut self, reg: Reg, value: Expr) {
        if reg != Reg::ZERO {
            self.steps.push(Stmt::Set(var(reg), value));
        } else if value.has_effect() {
            self.steps.push(Stmt::Do(value));
        }
    }

    fn trap(&mut self, insn: Insn, cmp: Cmp, b: Expr) {
        let cond = Some(Cond::Int(cmp, read(insn.rs()), b));
        self.steps.push(Stmt::Trap { cond, code: insn.trap_code() });
    }
}

impl Lifter {
    /// The steps of an instruction that is no branch.
    pub fn lift(self, insn: Insn, pc: u32) -> Vec<Stmt> {
        let mut out = Out { steps: Vec::new() };
        let known = integer(insn, pc, &mut out)
            || product(insn, &mut out)
            || self.memory(insn, pc, &mut out)
            || self.transfer(insn, &mut out)
            || self.float(insn, &mut out);
        assert!(known, "an instruction of the table without a meaning: {}", insn.text(pc));
        out.steps
    }

    /// The variable of a floating-point register, and whether its high half is meant.
    fn fp(self, reg: FpReg) -> (Fp, bool) {
        let number = reg.number();
        match self.odd {
            OddRegisters::HighHalves => (Fp(number & !1), number & 1 == 1),
            OddRegisters::Registers => (Fp(number), false),
        }
    }

    fn read_int(self, reg: FpReg) -> Expr {
        match self.fp(reg) {
            (fp, false) => Expr::Fp(fp, Rep::Int),
            (fp, true) => Expr::un(Un::LHi, Expr::Fp(fp, Rep::Long)),
        }
    }

    fn write_int(self, reg: FpReg, value: Expr) -> Stmt {
        match (self.fp(reg), self.odd) {
            ((fp, false), OddRegisters::Registers) => Stmt::SetFp(fp, Rep::Int, value),
            ((fp, false), OddRegisters::HighHalves) => {
                let high = Expr::un(Un::LHi, Expr::Fp(fp, Rep::Long));
                Stmt::SetFp(fp, Rep::Long, Expr::bin(Bin::Pair, high, value))
            }
            ((fp, true), _) => write_high(fp, value),
        }
    }

    fn read_float(self, reg: FpReg) -> Expr {
        match self.fp(reg) {
            (fp, false) => Expr::Fp(fp, Rep::Float),
            (_, true) => help(&help::INT_TO_FLOAT, vec![self.read_int(reg)]),
        }
    }

    /// Where odd registers are halves, one half keeps its content when the other is written.
    fn write_float(self, reg: FpReg, value: Expr) -> Stmt {
        match self.odd {
            OddRegisters::Registers => Stmt::SetFp(Fp(reg.number()), Rep::Float, value),
            OddRegisters::HighHalves => self.write_int(reg, help(&help::FLOAT_TO_INT, vec![value])),
        }
    }

    fn double(self, reg: FpReg) -> Fp {
        self.fp(reg).0
    }

    fn read_double(self, reg: FpReg) -> Expr {
        Expr::Fp(self.double(reg), Rep::Double)
    }

    fn memory(self, insn: Insn, pc: u32, out: &mut Out) -> bool {
        let load = |width| Expr::Load(width, Box::new(address(insn)), pc);
        let indexed = || Expr::bin(Bin::Add, read(insn.rs()), read(insn.rt()));
        let rt = insn.rt();
        match insn.op {
            // Which functions use the global pointer decides where it is saved, not what it is.
            Op::Lw if rt == Reg::GP && matches!(insn.rs().number(), 29 | 30) => {}
            Op::Lb => out.set(rt, load(Width::S8)),
            Op::Lbu => out.set(rt, load(Width::U8)),
            Op::Lh => out.set(rt, load(Width::S16)),
            Op::Lhu => out.set(rt, load(Width::U16)),
            Op::Lw => out.set(rt, load(Width::I32)),
            Op::Lwl | Op::Lwr => {
                let helper = match (insn.op == Op::Lwl, self.big_endian) {
                    (true, false) => &help::LWL,
                    (false, false) => &help::LWR,
                    (true, true) => &help::LWL_BIG,
                    (false, true) => &help::LWR_BIG,
                };
                out.set(rt, help(helper, vec![address(insn), read(rt)]));
            }
            Op::Swl | Op::Swr => {
                let helper = match (insn.op == Op::Swl, self.big_endian) {
                    (true, false) => &help::SWL,
                    (false, false) => &help::SWR,
                    (true, true) => &help::SWL_BIG,
                    (false, true) => &help::SWR_BIG,
                };
                out.steps.push(Stmt::Do(help(helper, vec![address(insn), read(rt)])));
            }
            Op::Sb => out.steps.push(Stmt::Store(Width::S8, address(insn), read(rt))),
            Op::Sh => out.steps.push(Stmt::Store(Width::S16, address(insn), read(rt))),
            Op::Sw if rt == Reg::GP && matches!(insn.rs().number(), 29 | 30) => {}
            Op::Sw => out.steps.push(Stmt::Store(Width::I32, address(insn), read(rt))),
            Op::Ll => {
                let helper =
                    if self.big_endian { &help::LOAD_LINKED_BIG } else { &help::LOAD_LINKED };
                out.steps.push(Stmt::Set(Var::LINKED, help(helper, vec![address(insn)])));
                out.set(rt, Expr::Var(Var::LINKED));
            }
            Op::Sc => {
                let helper = if self.big_endian { &help::SWAP_BIG } else { &help::SWAP };
                let arguments = vec![address(insn), Expr::Var(Var::LINKED), read(rt)];
                out.set(rt, help(helper, arguments));
            }
            Op::Lwc1 => match self.fp(insn.ft()) {
                (fp, false) if self.odd == OddRegisters::Registers => {
                    out.steps.push(Stmt::SetFp(fp, Rep::Float, load(Width::F32)));
                }
                _ => out.steps.push(self.write_int(insn.ft(), load(Width::I32))),
            },
            Op::Ldc1 => {
                out.steps.push(Stmt::SetFp(self.double(insn.ft()), Rep::Double, load(Width::F64)));
            }
            Op::Swc1 => {
                let value = self.read_float(insn.ft());
                out.steps.push(Stmt::Store(Width::F32, address(insn), value));
            }
            Op::Sdc1 => {
                let value = self.read_double(insn.ft());
                out.steps.push(Stmt::Store(Width::F64, address(insn), value));
            }
            Op::Lwxc1 => {
                let value = Expr::Load(Width::F32, Box::new(indexed()), pc);
                out.steps.push(self.write_float(insn.fd(), value));
            }
            Op::Ldxc1 | Op::Luxc1 => {
                let value = Expr::Load(Width::F64, Box::new(indexed()), pc);
                out.steps.push(Stmt::SetFp(self.double(insn.fd()), Rep::Double, value));
            }
            Op::Swxc1 => {
                out.steps.push(Stmt::Store(Width::F32, indexed(), self.read_float(insn.fs())));
            }
            Op::Sdxc1 | Op::Suxc1 => {
                out.steps.push(Stmt::Store(Width::F64, indexed(), self.read_double(insn.fs())));
            }
            Op::Pref | Op::Prefx | Op::Synci => {}
            Op::Sync => out.steps.push(Stmt::Fence),
            _ => return false,
        }
        true
    }

    /// Between general and floating-point registers.
    fn transfer(self, insn: Insn, out: &mut Out) -> bool {
        match insn.op {
            Op::Mfc1 => out.set(insn.rt(), self.read_int(insn.fs())),
            Op::Mtc1 => out.steps.push(self.write_int(insn.fs(), read(insn.rt()))),
            Op::Mfhc1 => {
                let whole = Expr::Fp(self.double(insn.fs()), Rep::Long);
                out.set(insn.rt(), Expr::un(Un::LHi, whole));
            }
            Op::Mthc1 => out.steps.push(write_high(self.double(insn.fs()), read(insn.rt()))),
            Op::Cfc1 => {
                let control = Expr::Int(i32::from(insn.rd().number()));
                out.set(insn.rt(), help(&help::READ_CONTROL, vec![control]));
            }
            Op::Ctc1 => {
                let control = Expr::Int(i32::from(insn.rd().number()));
                let write = help(&help::WRITE_CONTROL, vec![control, read(insn.rt())]);
                out.steps.push(Stmt::Do(write));
            }
            Op::Movf | Op::Movt => {
                let cond = flag_is(insn.cc(), insn.op == Op::Movt);
                if insn.rd() != Reg::ZERO {
                    out.steps.push(Stmt::SetIf(cond, var(insn.rd()), read(insn.rs())));
                }
            }
            _ => return false,
        }
        true
    }

    fn float(self, insn: Insn, out: &mut Out) -> bool {
        let single = |reg| self.read_float(reg);
        let double = |reg| self.read_double(reg);
        let (s, t) = (insn.fs(), insn.ft());
        if let Some((is_double, less, equal, unordered)) = comparison(insn.op) {
            let (a, b) = if is_double { (double(s), double(t)) } else { (single(s), single(t)) };
            let cond =
                Cond::Float { double: is_double, less, equal, unordered, negated: false, a, b };
            out.steps.push(Stmt::Set(Var::flag(insn.compared_cc()), value_of(cond)));
            return true;
        }
        if let Some((op, is_double)) = arithmetic(insn.op) {
            let step = if is_double {
                let value = Expr::bin(op, double(s), double(t));
                Stmt::SetFp(self.double(insn.fd()), Rep::Double, value)
            } else {
                self.write_float(insn.fd(), Expr::bin(op, single(s), single(t)))
            };
            out.steps.push(step);
            return true;
        }
        if self.conditional_move(insn, out) {
            return true;
        }
        let set_double = |value| Stmt::SetFp(self.double(insn.fd()), Rep::Double, value);
        let set_single = |value| self.write_float(insn.fd(), value);
        let set_word = |value| self.write_int(insn.fd(), value);
        let set_long = |value| Stmt::SetFp(self.double(insn.fd()), Rep::Long, value);
        let rounded = |mode: i32, value: Expr| vec![Expr::Int(mode), value];
        let long = || Expr::Fp(self.double(s), Rep::Long);
        let step = match insn.op {
            Op::SqrtS => set_single(Expr::un(Un::FSqrt, single(s))),
            Op::SqrtD => set_double(Expr::un(Un::DSqrt, double(s))),
            Op::AbsS => set_single(Expr::un(Un::FAbs, single(s))),
            Op::AbsD => set_double(Expr::un(Un::DAbs, double(s))),
            Op::NegS => set_single(Expr::un(Un::FNeg, single(s))),
            Op::NegD => set_double(Expr::un(Un::DNeg, double(s))),
            Op::MovS => set_single(single(s)),
            Op::MovD => set_double(double(s)),
            Op::RecipS => set_single(Expr::bin(Bin::FDiv, Expr::Float(0x3f80_0000), single(s))),
            Op::RecipD => set_double(Expr::bin(Bin::DDiv, Expr::Double(0x3ff0 << 48), double(s))),
            Op::RsqrtS => {
                let root = Expr::un(Un::FSqrt, single(s));
                set_single(Expr::bin(Bin::FDiv, Expr::Float(0x3f80_0000), root))
            }
            Op::RsqrtD => {
                let root = Expr::un(Un::DSqrt, double(s));
                set_double(Expr::bin(Bin::DDiv, Expr::Double(0x3ff0 << 48), root))
            }
            Op::CvtSD => set_single(Expr::un(Un::D2F, double(s))),
            Op::CvtDS => set_double(Expr::un(Un::F2D, single(s))),
            Op::CvtSW => set_single(Expr::un(Un::I2F, self.read_int(s))),
            Op::CvtDW => set_double(Expr::un(Un::I2D, self.read_int(s))),
            Op::CvtSL => set_single(Expr::un(Un::L2F, long())),
            Op::CvtDL => set_double(Expr::un(Un::L2D, long())),
            Op::CvtWS => set_word(help(&help::CVT_W_S, vec![single(s)])),
            Op::CvtWD => set_word(help(&help::CVT_W_D, vec![double(s)])),
            Op::CvtLS => set_long(help(&help::CVT_L_S, vec![single(s)])),
            Op::CvtLD => set_long(help(&help::CVT_L_D, vec![double(s)])),
            Op::RoundWS => set_word(help(&help::ROUND_W_S, rounded(0, single(s)))),
            Op::TruncWS => set_word(help(&help::TRUNC_W_S, vec![single(s)])),
            Op::CeilWS => set_word(help(&help::ROUND_W_S, rounded(2, single(s)))),
            Op::FloorWS => set_word(help(&help::ROUND_W_S, rounded(3, single(s)))),
            Op::RoundWD => set_word(help(&help::ROUND_W_D, rounded(0, double(s)))),
            Op::TruncWD => set_word(help(&help::TRUNC_W_D, vec![double(s)])),
            Op::CeilWD => set_word(help(&help::ROUND_W_D, rounded(2, double(s)))),
            Op::FloorWD => set_word(help(&help::ROUND_W_D, rounded(3, double(s)))),
            Op::RoundLS => set_long(help(&help::ROUND_L_S, rounded(0, single(s)))),
            Op::TruncLS => set_long(help(&help::ROUND_L_S, rounded(1, single(s)))),
            Op::CeilLS => set_long(help(&help::ROUND_L_S, rounded(2, single(s)))),
            Op::FloorLS => set_long(help(&help::ROUND_L_S, rounded(3, single(s)))),
            Op::RoundLD => set_long(help(&help::ROUND_L_D, rounded(0, double(s)))),
            Op::TruncLD => set_long(help(&help::ROUND_L_D, rounded(1, double(s)))),
            Op::CeilLD => set_long(help(&help::ROUND_L_D, rounded(2, double(s)))),
            Op::FloorLD => set_long(help(&help::ROUND_L_D, rounded(3, double(s)))),
            _ => return self.fused(insn, out),
        };
        out.steps.push(step);
        true
    }

    /// Multiplication and addition, rounded in between.
    fn fused(self, insn: Insn, out: &mut Out) -> bool {
        let (add, subtract, is_double, negate) = match insn.op {
            Op::MaddS => (true, false, false, false),
            Op::MaddD => (true, false, true, false),
            Op::MsubS => (false, true, false, false),
            Op::MsubD => (false, true, true, false),
            Op::NmaddS => (true, false, false, true),
            Op::NmaddD => (true, false, true, true),
            Op::NmsubS => (false, true, false, true),
            Op::NmsubD => (false, true, true, true),
            _ => return false,
        };
        debug_assert!(add != subtract, "one of both");
        let (r, s, t) = (insn.fr(), insn.fs(), insn.ft());
        let step = if is_double {
            let product = Expr::bin(Bin::DMul, self.read_double(s), self.read_double(t));
            let op = if add { Bin::DAdd } else { Bin::DSub };
            let sum = Expr::bin(op, product, self.read_double(r));
            let value = if negate { Expr::un(Un::DNeg, sum) } else { sum };
            Stmt::SetFp(self.double(insn.fd()), Rep::Double, value)
        } else {
            let product = Expr::bin(Bin::FMul, self.read_float(s), self.read_float(t));
            let op = if add { Bin::FAdd } else { Bin::FSub };
            let sum = Expr::bin(op, product, self.read_float(r));
            let value = if negate { Expr::un(Un::FNeg, sum) } else { sum };
            self.write_float(insn.fd(), value)
        };
        out.steps.push(step);
        true
    }

    fn conditional_move(self, insn: Insn, out: &mut Out) -> bool {
        let zero = |cmp| Cond::Int(cmp, read(insn.rt()), Expr::Int(0));
        let (cond, is_double) = match insn.op {
            Op::MovfS => (flag_is(insn.cc(), false), false),
            Op::MovtS => (flag_is(insn.cc(), true), false),
            Op::MovfD => (flag_is(insn.cc(), false), true),
            Op::MovtD => (flag_is(insn.cc(), true), true),
            Op::MovzS => (zero(Cmp::Eq), false),
            Op::MovnS => (zero(Cmp::Ne), false),
            Op::MovzD => (zero(Cmp::Eq), true),
            Op::MovnD => (zero(Cmp::Ne), true),
            _ => return false,
        };
        let step = if is_double {
            let value = self.read_double(insn.fs());
            Stmt::SetFpIf(cond, self.double(insn.fd()), Rep::Double, value)
        } else {
            match self.write_float(insn.fd(), self.read_float(insn.fs())) {
                Stmt::SetFp(fp, rep, value) => Stmt::SetFpIf(cond, fp, rep, value),
                _ => unreachable!("it sets a floating-point variable"),
            }
        };
        out.steps.push(step);
        true
    }
}

fn write_high(fp: Fp, value: Expr) -> Stmt {
    Stmt::SetFp(fp, Rep::Long, Expr::bin(Bin::Pair, value, Expr::Fp(fp, Rep::Int)))
}

/// The condition that a flag has this value.
pub fn flag_is(flag: u8, value: bool) -> Cond {
    let cmp = if value { Cmp::Ne } else { Cmp::Eq };
    Cond::Int(cmp, Expr::Var(Var::flag(flag)), Expr::Int(0))
}

fn integer(insn: Insn, pc: u32, out: &mut Out) -> bool {
    let (s, t) = (|| read(insn.rs()), || read(insn.rt()));
    let low_five = || Expr::bin(Bin::And, read(insn.rs()), Expr::Int(31));
    let immediate = || Expr::Int(insn.imm());
    let unsigned = || Expr::Int(insn.uimm() as i32);
    let (rd, rt) = (insn.rd(), insn.rt());
    match insn.op {
        Op::Sll => out.set(rd, shift(Bin::Shl, t(), insn.sa())),
        Op::Srl => out.set(rd, shift(Bin::Ushr, t(), insn.sa())),
        Op::Sra => out.set(rd, shift(Bin::Shr, t(), insn.sa())),
        Op::Ror => out.set(rd, shift(Bin::Rotr, t(), insn.sa())),
        // Java masks amounts as MIPS does.
        Op::Sllv => out.set(rd, Expr::bin(Bin::Shl, t(), s())),
        Op::Srlv => out.set(rd, Expr::bin(Bin::Ushr, t(), s())),
        Op::Srav => out.set(rd, Expr::bin(Bin::Shr, t(), s())),
        Op::Rorv => out.set(rd, Expr::bin(Bin::Rotr, t(), low_five())),
        Op::Movz | Op::Movn => {
            let cmp = if insn.op == Op::Movz { Cmp::Eq } else { Cmp::Ne };
            if rd != Reg::ZERO {
                out.steps.push(Stmt::SetIf(Cond::Int(cmp, t(), Expr::Int(0)), var(rd), s()));
            }
        }
        Op::Add => out.set(rd, help(&help::ADD_EXACT, vec![s(), t()])),
        Op::Sub => out.set(rd, help(&help::SUB_EXACT, vec![s(), t()])),
        Op::Addi => out.set(rt, help(&help::ADD_EXACT, vec![s(), immediate()])),
        Op::Addu => out.set(rd, sum(s(), t())),
        Op::Subu => out.set(rd, Expr::bin(Bin::Sub, s(), t())),
        Op::And => out.set(rd, Expr::bin(Bin::And, s(), t())),
        Op::Or if insn.rt() == Reg::ZERO => out.set(rd, s()),
        Op::Or if insn.rs() == Reg::ZERO => out.set(rd, t()),
        Op::Or => out.set(rd, Expr::bin(Bin::Or, s(), t())),
        Op::Xor => out.set(rd, Expr::bin(Bin::Xor, s(), t())),
        Op::Nor => {
            let or = match (insn.rs(), insn.rt()) {
                (Reg::ZERO, _) => t(),
                (_, Reg::ZERO) => s(),
                _ => Expr::bin(Bin::Or, s(), t()),
            };
            out.set(rd, Expr::bin(Bin::Xor, or, Expr::Int(-1)));
        }
        Op::Slt => out.set(rd, value_of(Cond::Int(Cmp::Lt, s(), t()))),
        Op::Sltu => out.set(rd, below(s(), t())),
        Op::Slti => out.set(rt, value_of(Cond::Int(Cmp::Lt, s(), immediate()))),
        Op::Sltiu => out.set(rt, below(s(), immediate())),
        Op::Addiu => out.set(rt, add(s(), insn.imm())),
        Op::Andi => out.set(rt, Expr::bin(Bin::And, s(), unsigned())),
        Op::Ori if insn.rs() == Reg::ZERO => out.set(rt, unsigned()),
        Op::Ori => out.set(rt, Expr::bin(Bin::Or, s(), unsigned())),
        Op::Xori => out.set(rt, Expr::bin(Bin::Xor, s(), unsigned())),
        Op::Lui => out.set(rt, Expr::Int(insn.imm() << 16)),
        Op::Clz => out.set(rd, Expr::un(Un::Clz, s())),
        Op::Clo => {
            out.set(rd, Expr::un(Un::Clz, Expr::bin(Bin::Xor, s(), Expr::Int(-1))));
        }
        Op::Seb => out.set(rd, Expr::un(Un::I2B, t())),
        Op::Seh => out.set(rd, Expr::un(Un::I2S, t())),
        Op::Wsbh => {
            let bytes = help(&help::REVERSE_BYTES, vec![t()]);
            out.set(rd, Expr::bin(Bin::Rotr, bytes, Expr::Int(16)));
        }
        Op::Ext => {
            let shifted = shift(Bin::Ushr, s(), insn.sa());
            let width = insn.field_width();
            let whole = width + insn.sa() >= 32;
            let mask = Expr::Int(low_bits(width));
            out.set(rt, if whole { shifted } else { Expr::bin(Bin::And, shifted, mask) });
        }
        Op::Ins => {
            let mask = low_bits(insn.field_width()) << insn.sa();
            let kept = Expr::bin(Bin::And, t(), Expr::Int(!mask));
            let new = Expr::bin(Bin::And, shift(Bin::Shl, s(), insn.sa()), Expr::Int(mask));
            // Setting bits to zero is usual.
            out.set(rt, if insn.rs() == Reg::ZERO { kept } else { Expr::bin(Bin::Or, kept, new) });
        }
        Op::Rdhwr if insn.rd().number() == 29 => out.set(rt, Expr::Tls),
        Op::Rdhwr => {
            let number = Expr::Int(i32::from(insn.rd().number()));
            out.set(rt, help(&help::HARDWARE, vec![number]));
        }
        Op::Syscall => {
            out.steps.push(Stmt::Syscall { number: read(Reg::V0), pc });
        }
        Op::Break => {
            let code = (insn.word >> 16) & 0x3ff;
            out.steps.push(Stmt::Trap { cond: None, code });
        }
        Op::Teq => out.trap(insn, Cmp::Eq, t()),
        Op::Tne => out.trap(insn, Cmp::Ne, t()),
        Op::Tge => out.trap(insn, Cmp::Ge, t()),
        Op::Tgeu => out.trap(insn, Cmp::GeU, t()),
        Op::Tlt => out.trap(insn, Cmp::Lt, t()),
        Op::Tltu => out.trap(insn, Cmp::LtU, t()),
        Op::Teqi => out.trap(insn, Cmp::Eq, immediate()),
        Op::Tnei => out.trap(insn, Cmp::Ne, immediate()),
        Op::Tgei => out.trap(insn, Cmp::Ge, immediate()),
        Op::Tgeiu => out.trap(insn, Cmp::GeU, immediate()),
        Op::Tlti => out.trap(insn, Cmp::Lt, immediate()),
        Op::Tltiu => out.trap(insn, Cmp::LtU, immediate()),
        _ => return false,
    }
    true
}

fn low_bits(width: u32) -> i32 {
    if width >= 32 { -1 } else { ((1_u32 << width) - 1) as i32 }
}

fn sum(a: Expr, b: Expr) -> Expr {
    match (a, b) {
        (a, Expr::Int(0)) | (Expr::Int(0), a) => a,
        (a, b) => Expr::bin(Bin::Add, a, b),
    }
}

fn shift(op: Bin, a: Expr, amount: u32) -> Expr {
    match amount {
        0 => a,
        _ => Expr::bin(op, a, Expr::Int(amount as i32)),
    }
}

/// Less, as unsigned numbers: against 0 and 1 this is the usual way to ask for zero.
fn below(a: Expr, b: Expr) -> Expr {
    let cond = match (&a, &b) {
        (Expr::Int(0), _) => Cond::Int(Cmp::Ne, b, Expr::Int(0)),
        (_, Expr::Int(1)) => Cond::Int(Cmp::Eq, a, Expr::Int(0)),
        _ => Cond::Int(Cmp::LtU, a, b),
    };
    value_of(cond)
}

/// Multiplication and division, which have registers of their own for their results.
fn product(insn: Insn, out: &mut Out) -> bool {
    let (s, t) = (|| read(insn.rs()), || read(insn.rt()));
    let long = |signed: bool, e: Expr| Expr::un(if signed { Un::I2L } else { Un::U2L }, e);
    let product = |signed| Expr::bin(Bin::LMul, long(signed, s()), long(signed, t()));
    let accumulator = || Expr::bin(Bin::Pair, Expr::Var(Var::HI), Expr::Var(Var::LO));
    let mut both = |high: Expr, low: Expr| {
        // The low word is read for the high one: it is set last.
        out.steps.push(Stmt::Set(Var::SCRATCH, high));
        out.steps.push(Stmt::Set(Var::LO, low));
        out.steps.push(Stmt::Set(Var::HI, Expr::Var(Var::SCRATCH)));
    };
    let low_product = || Expr::bin(Bin::Mul, s(), t());
    match insn.op {
        Op::Mul => out.set(insn.rd(), low_product()),
        Op::Mult | Op::Multu => {
            let high = Expr::un(Un::LHi, product(insn.op == Op::Mult));
            out.steps.push(Stmt::Set(Var::LO, low_product()));
            out.steps.push(Stmt::Set(Var::HI, high));
        }
        Op::Madd | Op::Maddu => {
            let total = Expr::bin(Bin::LAdd, accumulator(), product(insn.op == Op::Madd));
            let low = Expr::bin(Bin::Add, Expr::Var(Var::LO), low_product());
            both(Expr::un(Un::LHi, total), low);
        }
        Op::Msub | Op::Msubu => {
            let total = Expr::bin(Bin::LSub, accumulator(), product(insn.op == Op::Msub));
            let low = Expr::bin(Bin::Sub, Expr::Var(Var::LO), low_product());
            both(Expr::un(Un::LHi, total), low);
        }
        Op::Div | Op::Divu => {
            let (div, rem) =
                if insn.op == Op::Div { (Bin::Div, Bin::Rem) } else { (Bin::DivU, Bin::RemU) };
            out.steps.push(Stmt::Set(Var::LO, Expr::bin(div, s(), t())));
            out.steps.push(Stmt::Set(Var::HI, Expr::bin(rem, s(), t())));
        }
        Op::Mfhi => out.set(insn.rd(), Expr::Var(Var::HI)),
        Op::Mflo => out.set(insn.rd(), Expr::Var(Var::LO)),
        Op::Mthi => out.steps.push(Stmt::Set(Var::HI, s())),
        Op::Mtlo => out.steps.push(Stmt::Set(Var::LO, s())),
        _ => return false,
    }
    true
}

fn arithmetic(op: Op) -> Option<(Bin, bool)> {
    Some(match op {
        Op::AddS => (Bin::FAdd, false),
        Op::SubS => (Bin::FSub, false),
        Op::MulS => (Bin::FMul, false),
        Op::DivS => (Bin::FDiv, false),
        Op::AddD => (Bin::DAdd, true),
        Op::SubD => (Bin::DSub, true),
        Op::MulD => (Bin::DMul, true),
        Op::DivD => (Bin::DDiv, true),
        _ => return None,
    })
}

/// Of a comparison: whether it is of doubles, and whether less, equal and unordered make it true.
/// The eight that signal differ in nothing else, and no exception is enabled here.
fn comparison(op: Op) -> Option<(bool, bool, bool, bool)> {
    let name = op.name().strip_prefix("c.")?;
    let (cond, format) = name.rsplit_once('.')?;
    let conditions = [
        "f", "un", "eq", "ueq", "olt", "ult", "ole", "ule", "sf", "ngle", "seq", "ngl", "lt",
        "nge", "le", "ngt",
    ];
    let number = conditions.iter().position(|&c| c == cond)?;
    Some((format == "d", number & 4 != 0, number & 2 != 0, number & 1 != 0))
}
