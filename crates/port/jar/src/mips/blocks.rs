//! The blocks of MIPS code: branches and their delay slots.

use fettle_mips::{Insn, Kind, Op, Reg};

use super::{Lifter, flag_is, read, var};
use crate::blocks::{Builder, Leads, Machine, Onward, Unknown};
use crate::convention::Convention;
use crate::image::Image;
use crate::ir::{Block, Callee, Cmp, Cond, End, Expr, Stmt, Var};
use crate::unwind::{Passing, Regions};

/// MIPS, and what is known of a program's exceptions.
pub struct Mips<'a> {
    lifter: Lifter,
    regions: &'a Regions,
}

impl<'a> Mips<'a> {
    /// As a program needs it.
    pub fn new(image: &Image, regions: &'a Regions) -> Self {
        Self { lifter: Lifter { big_endian: image.big_endian, odd: image.odd }, regions }
    }
}

fn decode(image: &Image, pc: u32) -> Option<Insn> {
    image.is_code(pc).then(|| image.word(pc)).flatten().and_then(Insn::decode)
}

impl Machine for Mips<'_> {
    const CONVENTION: Convention = Convention::O32;

    fn leads(&self, image: &Image, pc: u32) -> Option<Leads> {
        let insn = decode(image, pc)?;
        let kind = insn.kind();
        let next = pc.wrapping_add(if kind == Kind::Plain { 4 } else { 8 });
        let mut to = Vec::new();
        if kind.is_call()
            && let Some(passing) = self.regions.passing(pc)
        {
            to.push(next);
            if let Passing::Lands(pad) = passing {
                to.push(pad);
            }
        }
        let onward = match kind {
            Kind::Plain | Kind::JumpAndLink => Onward::Next,
            Kind::Branch | Kind::BranchLikely => {
                to.extend(insn.target(pc));
                to.push(next);
                Onward::Elsewhere
            }
            Kind::BranchAndLink if insn.rs() != Reg::ZERO => {
                to.push(next);
                Onward::Elsewhere
            }
            Kind::BranchAndLink => Onward::Next,
            Kind::JumpRegisterAndLink if insn.rd() != Reg::ZERO => Onward::Next,
            Kind::JumpRegisterAndLink => Onward::Elsewhere,
            Kind::Jump => {
                to.extend(insn.target(pc));
                Onward::Elsewhere
            }
            Kind::JumpRegister => Onward::Computed,
        };
        Some(Leads { next, to, onward })
    }

    fn block(builder: &mut Builder<'_, Self>, start: u32) -> Block {
        builder.block(start)
    }

    fn unknown(&self, register: Var) -> Unknown {
        match register == var(Reg::T9) {
            true => Unknown::TailCall,
            false => Unknown::Label,
        }
    }

    fn is_shared(&self, _: &str) -> bool {
        false
    }
}

impl Builder<'_, Mips<'_>> {
    fn slot(&self, pc: u32) -> Option<Vec<(u32, Stmt)>> {
        let insn = decode(self.image(), pc)?;
        if insn.kind().has_delay_slot() {
            // A branch in a delay slot has no defined meaning.
            return None;
        }
        Some(self.machine().lifter.lift(insn, pc).into_iter().map(|step| (pc, step)).collect())
    }

    /// Whether a load from the stack gets the global pointer for a branch over more than 128 KB. That goes
    /// through the register that is the assembler's own: stores of the pointer are left out, of which
    /// loads elsewhere into its own register need nothing.
    fn is_saved_pointer(&self, insn: Insn, pc: u32) -> bool {
        let at = |after: u32| decode(self.image(), pc.wrapping_add(after));
        let uses_at = |insn: &Insn| insn.rs() == Reg::AT;
        let is = |insn: &Insn, op| insn.op == op && insn.rt() == Reg::AT;
        is(&insn, Op::Lw)
            && at(4).is_some_and(|insn| is(&insn, Op::Lw) && uses_at(&insn))
            && at(8).is_some_and(|insn| is(&insn, Op::Addiu) && uses_at(&insn))
            && at(12).is_some_and(|insn| insn.kind() == Kind::JumpRegister && uses_at(&insn))
    }

    fn block(&mut self, start: u32) -> Block {
        let mut steps: Vec<(u32, Stmt)> = Vec::new();
        let mut pc = start;
        let end = loop {
            if pc != start
                && let Some(end) = self.falls_into(pc)
            {
                break end;
            }
            if pc != start && self.is_other_function(pc) {
                // Behind a call that does not return, the next function is not meant.
                if matches!(steps.last(), Some((_, Stmt::Call { .. } | Stmt::Trap { .. }))) {
                    break End::Nowhere(pc);
                }
                break End::Goto(self.leading_to(pc.wrapping_sub(4), pc));
            }
            let Some(insn) = decode(self.image(), pc) else { break End::Nowhere(pc) };
            if insn.kind() == Kind::Plain {
                let lifted = match self.is_saved_pointer(insn, pc) {
                    true => vec![Stmt::Set(var(Reg::AT), read(Reg::GP))],
                    false => self.machine().lifter.lift(insn, pc),
                };
                steps.extend(lifted.into_iter().map(|step| (pc, step)));
                pc = pc.wrapping_add(4);
                continue;
            }
            let Some(slot) = self.slot(pc.wrapping_add(4)) else { break End::Nowhere(pc) };
            match self.branch(insn, pc, slot, &mut steps) {
                Some(end) => break end,
                None => pc = pc.wrapping_add(8),
            }
            if let Some((call, Stmt::Call { .. })) = steps.last()
                && let Some(passing) = self.machine().regions.passing(*call)
            {
                break self.invoke(pc, passing);
            }
        };
        Block { pc: start, steps, end }
    }

    /// The end of a block with a call that an exception may leave another way.
    fn invoke(&mut self, next: u32, passing: Passing) -> End {
        let next = match self.is_other_function(next) {
            true => self.add(Block { pc: next, steps: Vec::new(), end: End::Nowhere(next) }),
            false => self.leading_to(next, next),
        };
        let pad = match passing {
            Passing::Lands(pad) => Some(self.leading_to(pad, pad)),
            Passing::Terminates => None,
        };
        End::Invoke { next, pad }
    }

    /// A branch or call with its delay slot. None for a call: the block goes on behind it.
    fn branch(
        &mut self,
        insn: Insn,
        pc: u32,
        slot: Vec<(u32, Stmt)>,
        steps: &mut Vec<(u32, Stmt)>,
    ) -> Option<End> {
        let next = pc.wrapping_add(8);
        let target = insn.target(pc);
        match insn.kind() {
            Kind::Plain => None,
            Kind::Branch => {
                let taken = self.leading_to(pc, target?);
                match condition(insn) {
                    None => {
                        steps.extend(slot);
                        Some(End::Goto(taken))
                    }
                    Some(cond) => {
                        let cond = before_slot(cond, pc, slot, steps);
                        let other = self.leading_to(pc, next);
                        Some(End::If(cond, taken, other))
                    }
                }
            }
            Kind::BranchLikely => {
                let taken = self.leading_to(pc, target?);
                let with_slot = self.add(Block { pc, steps: slot, end: End::Goto(taken) });
                let other = self.leading_to(pc, next);
                match condition(insn) {
                    None => Some(End::Goto(with_slot)),
                    Some(cond) => Some(End::If(cond, with_slot, other)),
                }
            }
            Kind::BranchAndLink => self.branch_and_link(insn, pc, slot, steps),
            Kind::Jump => {
                steps.extend(slot);
                Some(End::Goto(self.leading_to(pc, target?)))
            }
            Kind::JumpAndLink => call(Callee::Direct(target?), pc, slot, steps),
            Kind::JumpRegisterAndLink if insn.rd() != Reg::ZERO => {
                let to = target_before_slot(insn, pc, slot, steps);
                call(Callee::Indirect(to), pc, Vec::new(), steps)
            }
            Kind::JumpRegister | Kind::JumpRegisterAndLink if insn.rs() == Reg::RA => {
                steps.extend(slot);
                Some(End::Return)
            }
            Kind::JumpRegister | Kind::JumpRegisterAndLink => {
                let to = target_before_slot(insn, pc, slot, steps);
                Some(self.jump(pc, to, steps))
            }
        }
    }

    fn branch_and_link(
        &mut self,
        insn: Insn,
        pc: u32,
        slot: Vec<(u32, Stmt)>,
        steps: &mut Vec<(u32, Stmt)>,
    ) -> Option<End> {
        let next = pc.wrapping_add(8);
        let target = insn.target(pc)?;
        match (insn.op, insn.rs()) {
            (Op::Bgezal, Reg::ZERO) if target != next => {
                call(Callee::Direct(target), pc, slot, steps)
            }
            // The usual way to learn one's own address; the other one never branches.
            (Op::Bgezal | Op::Bltzal, Reg::ZERO) => {
                steps.push((pc, Stmt::Set(var(Reg::RA), Expr::Int(next as i32))));
                steps.extend(slot);
                None
            }
            (op, rs) => {
                let cmp = if op == Op::Bgezal { Cmp::Ge } else { Cmp::Lt };
                let cond = Cond::Int(cmp, read(rs), Expr::Int(0));
                let cond = before_slot(cond, pc, slot, steps);
                let other = self.leading_to(pc, next);
                let mut calls = Vec::new();
                call(Callee::Direct(target), pc, Vec::new(), &mut calls);
                let calls = self.add(Block { pc, steps: calls, end: End::Goto(other) });
                Some(End::If(cond, calls, other))
            }
        }
    }
}

/// A call behind its delay slot. It ends no block by itself.
fn call(
    callee: Callee,
    pc: u32,
    slot: Vec<(u32, Stmt)>,
    steps: &mut Vec<(u32, Stmt)>,
) -> Option<End> {
    steps.extend(slot);
    steps.push((pc, Stmt::Call { callee, pc }));
    None
}

/// The condition of a branch, if it is none that always holds.
fn condition(insn: Insn) -> Option<Cond> {
    let zero = || Expr::Int(0);
    let (s, t) = (read(insn.rs()), read(insn.rt()));
    Some(match insn.op {
        Op::Beq | Op::Beql if insn.rs() == insn.rt() => return None,
        Op::Beq | Op::Beql => Cond::Int(Cmp::Eq, s, t),
        Op::Bne | Op::Bnel => Cond::Int(Cmp::Ne, s, t),
        Op::Blez | Op::Blezl => Cond::Int(Cmp::Le, s, zero()),
        Op::Bgtz | Op::Bgtzl => Cond::Int(Cmp::Gt, s, zero()),
        Op::Bltz | Op::Bltzl => Cond::Int(Cmp::Lt, s, zero()),
        Op::Bgez | Op::Bgezl if insn.rs() == Reg::ZERO => return None,
        Op::Bgez | Op::Bgezl => Cond::Int(Cmp::Ge, s, zero()),
        Op::Bc1t | Op::Bc1tl => flag_is(insn.cc(), true),
        _ => flag_is(insn.cc(), false),
    })
}

fn sets(steps: &[(u32, Stmt)], reads: u64) -> bool {
    steps.iter().any(|(_, step)| match step {
        Stmt::Set(var, _) | Stmt::SetIf(_, var, _) => reads & var.bit() != 0,
        Stmt::Syscall { .. } => true,
        _ => false,
    })
}

/// Puts the delay slot before a condition that was evaluated before it.
fn before_slot(cond: Cond, pc: u32, slot: Vec<(u32, Stmt)>, steps: &mut Vec<(u32, Stmt)>) -> Cond {
    let mut reads = 0;
    cond.visit(&mut |e| {
        if let Expr::Var(var) = e {
            reads |= var.bit();
        }
    });
    if !sets(&slot, reads) {
        steps.extend(slot);
        return cond;
    }
    steps.push((pc, Stmt::Set(Var::BEFORE_SLOT, Expr::Cond(Box::new(cond)))));
    steps.extend(slot);
    Cond::Int(Cmp::Ne, Expr::Var(Var::BEFORE_SLOT), Expr::Int(0))
}

/// Puts the delay slot before a jump whose target was read before it.
fn target_before_slot(
    insn: Insn,
    pc: u32,
    slot: Vec<(u32, Stmt)>,
    steps: &mut Vec<(u32, Stmt)>,
) -> Expr {
    let to = read(insn.rs());
    if !sets(&slot, var(insn.rs()).bit()) {
        steps.extend(slot);
        return to;
    }
    steps.push((pc, Stmt::Set(Var::BEFORE_SLOT, to)));
    steps.extend(slot);
    Expr::Var(Var::BEFORE_SLOT)
}
