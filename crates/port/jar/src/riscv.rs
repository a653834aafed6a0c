//! From one RISC-V instruction to steps; `blocks` finds the instructions of a function.
//!
//! Registers get the numbers at which the rest of the translator expects their like: the stack pointer,
//! four arguments, what a function gives back to its caller. `a0` and `a1` are arguments and results:
//! results have variables of their own, to which a return copies them and from which a call does.

pub mod blocks;

use fettle_riscv::{Insn, Op, Reg};

use crate::helpers as help;
use crate::ir::{Bin, Cmp, Cond, Expr, Fp, Helper, Rep, Stmt, Un, Var, Width};

/// What a register is in the lifted form.
const VARS: [u8; 32] = [
    0, 31, 29, 28, 38, 12, 13, 15, // zero ra sp gp tp t0 t1 t2
    16, 17, 4, 5, 6, 7, 48, 49, // s0 s1 a0..a5
    50, 51, 18, 19, 20, 21, 22, 23, // a6 a7 s2..s7
    52, 53, 54, 55, 14, 24, 26, 27, // s8..s11 t3..t6
];

/// The same of floating-point registers: those of the caller have the highest numbers.
const FP_VARS: [u8; 32] = [
    0, 1, 2, 3, 4, 5, 6, 7, // ft0..ft7
    30, 31, 10, 11, 12, 13, 14, 15, // fs0 fs1 fa0..fa5
    16, 17, 20, 21, 22, 23, 24, 25, // fa6 fa7 fs2..fs7
    26, 27, 28, 29, 8, 9, 18, 19, // fs8..fs11 ft8..ft11
];

/// The arguments that are results, too, with the variables of results.
const RESULTS: [(Var, Var); 2] = [(Var(4), Var(2)), (Var(5), Var(3))];
const FP_RESULTS: [(Fp, Fp); 2] = [(Fp(10), Fp(32)), (Fp(11), Fp(33))];

/// What stands before and behind a call of the debugger, by which a program reaches files.
const SEMIHOSTING: [u32; 2] = [0x01f0_1013, 0x4070_5013];

fn var(reg: Reg) -> Var {
    Var(VARS[usize::from(reg.number())])
}

fn fp(reg: Reg) -> Fp {
    Fp(FP_VARS[usize::from(reg.number())])
}

fn read(reg: Reg) -> Expr {
    match reg {
        Reg::ZERO => Expr::Int(0),
        Reg::TP => Expr::Tls,
        _ => Expr::Var(var(reg)),
    }
}

fn add(a: Expr, constant: i32) -> Expr {
    match (a, constant) {
        (Expr::Int(a), _) => Expr::Int(a.wrapping_add(constant)),
        (a, 0) => a,
        (a, _) => Expr::bin(Bin::Add, a, Expr::Int(constant)),
    }
}

fn truth(cmp: Cmp, a: Expr, b: Expr) -> Expr {
    Expr::Cond(Box::new(Cond::Int(cmp, a, b)))
}

/// Copies what a function returns to the variables of results.
fn leave() -> Vec<Stmt> {
    let ints = RESULTS.map(|(own, result)| Stmt::Set(result, Expr::Var(own)));
    let fps =
        FP_RESULTS.map(|(own, result)| Stmt::SetFp(result, Rep::Long, Expr::Fp(own, Rep::Long)));
    ints.into_iter().chain(fps).collect()
}

/// Copies what a call has returned to the registers.
fn arrive() -> Vec<Stmt> {
    let ints = RESULTS.map(|(own, result)| Stmt::Set(own, Expr::Var(result)));
    let fps =
        FP_RESULTS.map(|(own, result)| Stmt::SetFp(own, Rep::Long, Expr::Fp(result, Rep::Long)));
    ints.into_iter().chain(fps).collect()
}

/// Lifts instructions.
#[derive(Clone, Copy)]
pub struct Lifter {
    /// Whether memory begins at 2 GB.
    pub high: bool,
}

impl Lifter {
    /// The steps of an instruction that is no branch. `around` are the words before and behind it.
    pub fn lift(self, insn: Insn, pc: u32, around: [Option<u32>; 2]) -> Vec<Stmt> {
        if insn.op == Op::Ebreak {
            return vec![match around == SEMIHOSTING.map(Some) {
                true => Stmt::Set(
                    Var(4),
                    Expr::Help(&help::SEMIHOST, [4, 5].map(|n| Expr::Var(Var(n))).to_vec()),
                ),
                false => Stmt::Trap { cond: None, code: 0 },
            }];
        }
        if let Some(step) = float(insn, pc) {
            return vec![step];
        }
        let set = |value: Expr| match insn.rd {
            Reg::ZERO if value.has_effect() => vec![Stmt::Do(value)],
            Reg::ZERO => Vec::new(),
            Reg::TP => vec![Stmt::Do(Expr::Help(&help::SET_TLS, vec![value]))],
            rd => vec![Stmt::Set(var(rd), value)],
        };
        if let Some(value) = value(insn, pc) {
            return set(value);
        }
        let address = add(read(insn.rs1), insn.imm);
        let store = |width| vec![Stmt::Store(width, address.clone(), read(insn.rs2))];
        match insn.op {
            Op::Sb => store(Width::S8),
            Op::Sh => store(Width::S16),
            Op::Sw => store(Width::I32),
            Op::Fence => vec![Stmt::Fence],
            Op::LrW => {
                let value = Expr::Help(&help::LOAD_LINKED, vec![self.index(insn)]);
                let mut steps = vec![Stmt::Set(Var::LINKED, value)];
                steps.extend(set(Expr::Var(Var::LINKED)));
                steps
            }
            Op::ScW => {
                let arguments = vec![self.index(insn), Expr::Var(Var::LINKED), read(insn.rs2)];
                let done = Expr::Help(&help::SWAP, arguments);
                set(Expr::bin(Bin::Xor, done, Expr::Int(1)))
            }
            Op::Csrrw | Op::Csrrs | Op::Csrrc | Op::Csrrwi | Op::Csrrsi | Op::Csrrci => {
                let mut steps = control(insn);
                steps.extend(set(Expr::Var(Var::SCRATCH)));
                steps
            }
            _ => match atomic(insn.op) {
                Some(kind) => {
                    let arguments = vec![self.index(insn), read(insn.rs2), Expr::Int(kind)];
                    set(Expr::Help(&help::ATOMIC, arguments))
                }
                None => vec![Stmt::Trap { cond: None, code: 0 }],
            },
        }
    }

    /// Where in the array the word is that an atomic instruction means.
    fn index(self, insn: Insn) -> Expr {
        match self.high {
            true => Expr::bin(Bin::Xor, read(insn.rs1), Expr::Int(i32::MIN)),
            false => read(insn.rs1),
        }
    }
}

/// The number that the runtime knows an atomic instruction by.
fn atomic(op: Op) -> Option<i32> {
    const ALL: [Op; 9] = [
        Op::AmoSwap,
        Op::AmoAdd,
        Op::AmoXor,
        Op::AmoAnd,
        Op::AmoOr,
        Op::AmoMin,
        Op::AmoMax,
        Op::AmoMinu,
        Op::AmoMaxu,
    ];
    ALL.iter().position(|&each| each == op).map(|at| at as i32)
}

/// Reads a control register to the scratch variable, and writes it.
fn control(insn: Insn) -> Vec<Stmt> {
    let number = Expr::Int(insn.imm);
    let old = Expr::Help(&help::READ_CSR, vec![number.clone()]);
    let mut steps = vec![Stmt::Set(Var::SCRATCH, old)];
    let by_number = matches!(insn.op, Op::Csrrwi | Op::Csrrsi | Op::Csrrci);
    let operand = match by_number {
        true => Expr::Int(i32::from(insn.rs1.number())),
        false => read(insn.rs1),
    };
    let scratch = Expr::Var(Var::SCRATCH);
    let new = match insn.op {
        Op::Csrrw | Op::Csrrwi => operand,
        _ if insn.rs1 == Reg::ZERO => return steps,
        Op::Csrrs | Op::Csrrsi => Expr::bin(Bin::Or, scratch, operand),
        _ => Expr::bin(Bin::And, scratch, Expr::bin(Bin::Xor, operand, Expr::Int(-1))),
    };
    steps.push(Stmt::Do(Expr::Help(&help::WRITE_CSR, vec![number, new])));
    steps
}

/// The value that an instruction on integers sets its register to.
fn value(insn: Insn, pc: u32) -> Option<Expr> {
    let (a, b) = (|| read(insn.rs1), || read(insn.rs2));
    let imm = || Expr::Int(insn.imm);
    let load = |width| Expr::Load(width, Box::new(add(a(), insn.imm)), pc);
    let high = |a: Expr, b: Expr| Expr::un(Un::LHi, Expr::bin(Bin::LMul, a, b));
    let (signed, unsigned) = (|e| Expr::un(Un::I2L, e), |e| Expr::un(Un::U2L, e));
    let help = |helper: &'static Helper| Expr::Help(helper, vec![a(), b()]);
    Some(match insn.op {
        Op::Lui => imm(),
        Op::Auipc => Expr::Int((pc as i32).wrapping_add(insn.imm)),
        Op::Lb => load(Width::S8),
        Op::Lbu => load(Width::U8),
        Op::Lh => load(Width::S16),
        Op::Lhu => load(Width::U16),
        Op::Lw => load(Width::I32),
        Op::Addi => add(a(), insn.imm),
        Op::Slti => truth(Cmp::Lt, a(), imm()),
        Op::Sltiu => truth(Cmp::LtU, a(), imm()),
        Op::Xori => Expr::bin(Bin::Xor, a(), imm()),
        Op::Ori => Expr::bin(Bin::Or, a(), imm()),
        Op::Andi => Expr::bin(Bin::And, a(), imm()),
        Op::Slli => Expr::bin(Bin::Shl, a(), imm()),
        Op::Srli => Expr::bin(Bin::Ushr, a(), imm()),
        Op::Srai => Expr::bin(Bin::Shr, a(), imm()),
        Op::Add if insn.rs1 == Reg::ZERO => b(),
        Op::Add if insn.rs2 == Reg::ZERO => a(),
        Op::Add => Expr::bin(Bin::Add, a(), b()),
        Op::Sub => Expr::bin(Bin::Sub, a(), b()),
        Op::Sll => Expr::bin(Bin::Shl, a(), b()),
        Op::Slt => truth(Cmp::Lt, a(), b()),
        Op::Sltu => truth(Cmp::LtU, a(), b()),
        Op::Xor => Expr::bin(Bin::Xor, a(), b()),
        Op::Srl => Expr::bin(Bin::Ushr, a(), b()),
        Op::Sra => Expr::bin(Bin::Shr, a(), b()),
        Op::Or => Expr::bin(Bin::Or, a(), b()),
        Op::And => Expr::bin(Bin::And, a(), b()),
        Op::Mul => Expr::bin(Bin::Mul, a(), b()),
        Op::Mulh => high(signed(a()), signed(b())),
        Op::Mulhsu => high(signed(a()), unsigned(b())),
        Op::Mulhu => high(unsigned(a()), unsigned(b())),
        Op::Div => help(&help::DIVIDE),
        Op::Divu => help(&help::DIVIDE_UNSIGNED),
        Op::Rem => help(&help::REMAINDER),
        Op::Remu => help(&help::REMAINDER_UNSIGNED),
        _ => return float_to_int(insn),
    })
}

/// The value of an instruction that makes an integer of floating-point numbers.
fn float_to_int(insn: Insn) -> Option<Expr> {
    let single = |reg| Expr::Fp(fp(reg), Rep::Float);
    let double = |reg| Expr::Fp(fp(reg), Rep::Double);
    let compare = |is_double, less, equal| {
        let of = |reg| if is_double { double(reg) } else { single(reg) };
        let (a, b) = (of(insn.rs1), of(insn.rs2));
        let (unordered, negated) = (false, false);
        Expr::Cond(Box::new(Cond::Float {
            double: is_double,
            less,
            equal,
            unordered,
            negated,
            a,
            b,
        }))
    };
    let rounded = |helper: &'static Helper, value| {
        Expr::Help(helper, vec![Expr::Int(i32::from(insn.rounding)), value])
    };
    let widened = |reg| Expr::un(Un::F2D, single(reg));
    Some(match insn.op {
        Op::FeqS => compare(false, false, true),
        Op::FltS => compare(false, true, false),
        Op::FleS => compare(false, true, true),
        Op::FeqD => compare(true, false, true),
        Op::FltD => compare(true, true, false),
        Op::FleD => compare(true, true, true),
        Op::FmvXW => Expr::Fp(fp(insn.rs1), Rep::Int),
        Op::FclassS => Expr::Help(&help::CLASS_S, vec![single(insn.rs1)]),
        Op::FclassD => Expr::Help(&help::CLASS_D, vec![double(insn.rs1)]),
        Op::FcvtWS => rounded(&help::TO_INT, widened(insn.rs1)),
        Op::FcvtWD => rounded(&help::TO_INT, double(insn.rs1)),
        Op::FcvtWuS => rounded(&help::TO_UNSIGNED, widened(insn.rs1)),
        Op::FcvtWuD => rounded(&help::TO_UNSIGNED, double(insn.rs1)),
        _ => return None,
    })
}

/// The step of an instruction that sets a floating-point register or stores one.
fn float(insn: Insn, pc: u32) -> Option<Stmt> {
    let address = || add(read(insn.rs1), insn.imm);
    let load = |width| Expr::Load(width, Box::new(address()), pc);
    let is_single = insn.op.name().ends_with(".s");
    let (rep, minus) = if is_single { (Rep::Float, Un::FNeg) } else { (Rep::Double, Un::DNeg) };
    let of = |reg| Expr::Fp(fp(reg), rep);
    let (a, b) = (|| of(insn.rs1), || of(insn.rs2));
    let pick = |single: Bin, double: Bin| if is_single { single } else { double };
    let binary = |single, double| Expr::bin(pick(single, double), a(), b());
    let choose = |single: &'static Helper, double| if is_single { single } else { double };
    let same = insn.rs1 == insn.rs2;
    let unsigned = || Expr::un(Un::U2L, read(insn.rs1));
    let value = match insn.op {
        Op::Flw => return Some(Stmt::SetFp(fp(insn.rd), Rep::Float, load(Width::F32))),
        Op::Fld => return Some(Stmt::SetFp(fp(insn.rd), Rep::Double, load(Width::F64))),
        Op::Fsw => {
            let value = Expr::Fp(fp(insn.rs2), Rep::Float);
            return Some(Stmt::Store(Width::F32, address(), value));
        }
        Op::Fsd => {
            let value = Expr::Fp(fp(insn.rs2), Rep::Double);
            return Some(Stmt::Store(Width::F64, address(), value));
        }
        Op::FmvWX => return Some(Stmt::SetFp(fp(insn.rd), Rep::Int, read(insn.rs1))),
        Op::FaddS | Op::FaddD => binary(Bin::FAdd, Bin::DAdd),
        Op::FsubS | Op::FsubD => binary(Bin::FSub, Bin::DSub),
        Op::FmulS | Op::FmulD => binary(Bin::FMul, Bin::DMul),
        Op::FdivS | Op::FdivD => binary(Bin::FDiv, Bin::DDiv),
        Op::FsqrtS => Expr::un(Un::FSqrt, a()),
        Op::FsqrtD => Expr::un(Un::DSqrt, a()),
        Op::FsgnjS | Op::FsgnjD if same => a(),
        Op::FsgnjnS | Op::FsgnjnD if same => Expr::un(minus, a()),
        Op::FsgnjxS if same => Expr::un(Un::FAbs, a()),
        Op::FsgnjxD if same => Expr::un(Un::DAbs, a()),
        Op::FsgnjS | Op::FsgnjD => Expr::Help(choose(&help::SIGN_S, &help::SIGN_D), vec![a(), b()]),
        Op::FsgnjnS | Op::FsgnjnD => {
            Expr::Help(choose(&help::SIGN_S, &help::SIGN_D), vec![a(), Expr::un(minus, b())])
        }
        Op::FsgnjxS | Op::FsgnjxD => {
            Expr::Help(choose(&help::SIGN_XOR_S, &help::SIGN_XOR_D), vec![a(), b()])
        }
        Op::FminS | Op::FminD => Expr::Help(choose(&help::MIN_S, &help::MIN_D), vec![a(), b()]),
        Op::FmaxS | Op::FmaxD => Expr::Help(choose(&help::MAX_S, &help::MAX_D), vec![a(), b()]),
        Op::FcvtSW => Expr::un(Un::I2F, read(insn.rs1)),
        Op::FcvtSWu => Expr::un(Un::L2F, unsigned()),
        Op::FcvtDW => Expr::un(Un::I2D, read(insn.rs1)),
        Op::FcvtDWu => Expr::un(Un::L2D, unsigned()),
        Op::FcvtSD => {
            let value = Expr::un(Un::D2F, Expr::Fp(fp(insn.rs1), Rep::Double));
            return Some(Stmt::SetFp(fp(insn.rd), Rep::Float, value));
        }
        Op::FcvtDS => {
            let value = Expr::un(Un::F2D, Expr::Fp(fp(insn.rs1), Rep::Float));
            return Some(Stmt::SetFp(fp(insn.rd), Rep::Double, value));
        }
        _ => return fused(insn, rep, minus),
    };
    let rep = match insn.op {
        Op::FcvtSW | Op::FcvtSWu => Rep::Float,
        Op::FcvtDW | Op::FcvtDWu => Rep::Double,
        _ => rep,
    };
    Some(Stmt::SetFp(fp(insn.rd), rep, value))
}

/// A product and a sum, rounded once.
fn fused(insn: Insn, rep: Rep, minus: Un) -> Option<Stmt> {
    let (first, third) = match insn.op {
        Op::FmaddS | Op::FmaddD => (false, false),
        Op::FmsubS | Op::FmsubD => (false, true),
        Op::FnmsubS | Op::FnmsubD => (true, false),
        Op::FnmaddS | Op::FnmaddD => (true, true),
        _ => return None,
    };
    let of = |reg, negated| {
        let value = Expr::Fp(fp(reg), rep);
        if negated { Expr::un(minus, value) } else { value }
    };
    let helper = if rep == Rep::Float { &help::FMA_S } else { &help::FMA_D };
    let arguments = vec![of(insn.rs1, first), of(insn.rs2, false), of(insn.rs3, third)];
    Some(Stmt::SetFp(fp(insn.rd), rep, Expr::Help(helper, arguments)))
}

/// The condition of a branch.
fn condition(insn: Insn) -> Cond {
    let (a, b) = (read(insn.rs1), read(insn.rs2));
    match insn.op {
        Op::Beq => Cond::Int(Cmp::Eq, a, b),
        Op::Bne => Cond::Int(Cmp::Ne, a, b),
        Op::Blt if insn.rs1 == Reg::ZERO => Cond::Int(Cmp::Gt, b, Expr::Int(0)),
        Op::Bge if insn.rs1 == Reg::ZERO => Cond::Int(Cmp::Le, b, Expr::Int(0)),
        Op::Blt => Cond::Int(Cmp::Lt, a, b),
        Op::Bge => Cond::Int(Cmp::Ge, a, b),
        Op::Bltu => Cond::Int(Cmp::LtU, a, b),
        _ => Cond::Int(Cmp::GeU, a, b),
    }
}
