//! The blocks of RISC-V code: no delay slots, but instructions of two sizes.

use fettle_riscv::{Insn, Kind, Reg};

use super::{Lifter, add, arrive, condition, leave, read};
use crate::blocks::{Builder, Leads, Machine, Onward, Unknown};
use crate::convention::Convention;
use crate::image::Image;
use crate::ir::{Block, Callee, End, Stmt, Var};

/// Code that saves registers has no more instructions.
const PROLOGUE_MAX: usize = 64;

/// What the names of code begin with that gives registers back and returns.
const RESTORES: &str = "__riscv_restore_";

/// The register by which such code is called.
const OTHER_LINK: Reg = Reg::new(5);

/// RISC-V.
pub struct RiscV {
    lifter: Lifter,
}

fn decode(image: &Image, pc: u32) -> Option<Insn> {
    if !image.is_code(pc) {
        return None;
    }
    // The last instruction may be a short one.
    let low = image.half(pc)?;
    let high = image.half(pc.wrapping_add(2)).unwrap_or(0);
    Insn::decode(u32::from(high) << 16 | u32::from(low))
}

impl RiscV {
    /// As a program needs it.
    pub fn new(image: &Image) -> Self {
        Self { lifter: Lifter { high: image.high } }
    }

    /// The steps of code that is called by the other link register, and saves registers on the stack: it
    /// is no function, since it moves the stack pointer. None if it is anything else.
    fn prologue(&self, image: &Image, target: u32) -> Option<Vec<(u32, Stmt)>> {
        let mut steps = Vec::new();
        let mut pc = target;
        for _ in 0..PROLOGUE_MAX {
            let insn = decode(image, pc)?;
            match insn.kind() {
                Kind::Plain => {
                    let lifted = self.lifter.lift(insn, pc, [None, None]);
                    steps.extend(lifted.into_iter().map(|step| (pc, step)));
                    pc = pc.wrapping_add(u32::from(insn.size));
                }
                Kind::Jump if !insn.is_call() => pc = insn.target(pc),
                Kind::JumpRegister if insn.rs1 == OTHER_LINK && !insn.is_call() => {
                    return Some(steps);
                }
                _ => return None,
            }
        }
        None
    }
}

impl Machine for RiscV {
    const CONVENTION: Convention = Convention::RiscV;

    fn leads(&self, image: &Image, pc: u32) -> Option<Leads> {
        let insn = decode(image, pc)?;
        let next = pc.wrapping_add(u32::from(insn.size));
        let (to, onward) = match insn.kind() {
            Kind::Plain => (Vec::new(), Onward::Next),
            _ if insn.is_call() => (Vec::new(), Onward::Next),
            Kind::Branch => (vec![insn.target(pc), next], Onward::Elsewhere),
            Kind::Jump => (vec![insn.target(pc)], Onward::Elsewhere),
            Kind::JumpRegister => (Vec::new(), Onward::Computed),
        };
        Some(Leads { next, to, onward })
    }

    fn block(builder: &mut Builder<'_, Self>, start: u32) -> Block {
        let mut steps: Vec<(u32, Stmt)> = Vec::new();
        let mut pc = start;
        let mut called = false;
        let end = loop {
            if pc != start
                && let Some(end) = builder.falls_into(pc)
            {
                break end;
            }
            if pc != start && builder.is_other_function(pc) {
                // Behind a call that does not return, the next function is not meant.
                break match called {
                    true => End::Nowhere(pc),
                    false => End::Goto(builder.leading_to(pc.wrapping_sub(2), pc)),
                };
            }
            let Some(insn) = decode(builder.image(), pc) else { break End::Nowhere(pc) };
            let next = pc.wrapping_add(u32::from(insn.size));
            called = insn.is_call();
            match insn.kind() {
                Kind::Plain => {
                    let image = builder.image();
                    let around = [pc.wrapping_sub(4), next].map(|at| image.word(at));
                    let lifted = builder.machine().lifter.lift(insn, pc, around);
                    steps.extend(lifted.into_iter().map(|step| (pc, step)));
                }
                Kind::Branch => {
                    let taken = builder.leading_to(pc, insn.target(pc));
                    let other = builder.leading_to(pc, next);
                    break End::If(condition(insn), taken, other);
                }
                Kind::Jump if insn.rd == OTHER_LINK => {
                    called = false;
                    match builder.machine().prologue(builder.image(), insn.target(pc)) {
                        Some(prologue) => steps.extend(prologue),
                        None => break End::Nowhere(pc),
                    }
                }
                _ if insn.is_call() => {
                    let callee = match insn.kind() {
                        Kind::Jump => Callee::Direct(insn.target(pc)),
                        _ => Callee::Indirect(add(read(insn.rs1), insn.imm)),
                    };
                    steps.push((pc, Stmt::Call { callee, pc }));
                    steps.extend(arrive().into_iter().map(|step| (pc, step)));
                }
                Kind::Jump => break End::Goto(builder.leading_to(pc, insn.target(pc))),
                Kind::JumpRegister if insn.rs1 == Reg::RA && insn.imm == 0 => {
                    steps.extend(leave().into_iter().map(|step| (pc, step)));
                    break End::Return;
                }
                Kind::JumpRegister => {
                    let to = add(read(insn.rs1), insn.imm);
                    break builder.jump(pc, to, &mut steps);
                }
            }
            pc = next;
        };
        Block { pc: start, steps, end }
    }

    fn unknown(&self, _: Var) -> Unknown {
        Unknown::Either
    }

    /// What gives registers back and returns is the end of each function that jumps there.
    fn is_shared(&self, name: &str) -> bool {
        name.starts_with(RESTORES)
    }
}
