//! From a function's entry to its blocks.
//!
//! A function is what branches reach from its entry, wherever that is: cold parts need no care.
//! Where a register decides, `constants` says what it may hold; new targets mean new blocks, so
//! both take turns until nothing new is found.

use std::collections::BTreeSet;

use fettle_mips::{Insn, Kind, Op, Reg};
use rustc_hash::FxHashMap;

use crate::constants::{self, Value};
use crate::convention::Convention;
use crate::graph::Graph;
use crate::image::Image;
use crate::ir::{Bin, Block, BlockId, Callee, Cmp, Cond, End, Expr, Function, Stmt, Var};
use crate::landing;
use crate::lift::{Lifter, flag_is, read, var};
use crate::unwind::{Passing, Regions};

/// Where a jump through a register leads.
#[derive(Clone, Debug, PartialEq)]
pub enum Jump {
    /// To one of these.
    Targets(BTreeSet<u32>),
    /// Out of the function: it is a call and a return.
    TailCall,
    /// To a label of a function further up, with its frame.
    Away,
}

/// More instructions than any function has: code that is none is not followed for ever.
const INSTRUCTIONS_MAX: usize = 400_000;

struct Finder<'a> {
    image: &'a Image,
    regions: &'a Regions,
    lifter: Lifter,
    entry: u32,
    starts: BTreeSet<u32>,
    jumps: FxHashMap<u32, Jump>,
    /// Labels that other functions jump to.
    landings: BTreeSet<u32>,
}

/// The function at an address, with everything that does not change in it computed. Other functions jump to
/// some labels, and to those that its own code hands out.
pub fn function(
    image: &Image,
    regions: &Regions,
    entry: u32,
    landings: &BTreeSet<u32>,
) -> Function {
    let lifter = Lifter { big_endian: image.big_endian, odd: image.odd };
    let starts = landings.iter().copied().chain([entry]).collect();
    let (jumps, landings) = (FxHashMap::default(), landings.clone());
    let mut finder = Finder { image, regions, lifter, entry, starts, jumps, landings };
    loop {
        finder.follow();
        let mut function = finder.build();
        let known = constants::solve(image, &function);
        if !finder.resolve(&function, &known) {
            constants::apply(image, &mut function, &known);
            let stored = landing::stored(image, &function);
            if stored.is_subset(&finder.landings) {
                return function;
            }
            finder.starts.extend(&stored);
            finder.landings.extend(stored);
        }
    }
}

impl Finder<'_> {
    fn insn(&self, pc: u32) -> Option<Insn> {
        if !self.image.is_code(pc) {
            return None;
        }
        self.image.word(pc).and_then(Insn::decode)
    }

    /// Whether a branch there leaves the function.
    fn is_other_function(&self, target: u32) -> bool {
        target != self.entry && self.image.function_at(target).is_some()
    }

    /// Finds the beginnings of blocks.
    fn follow(&mut self) {
        let mut work: Vec<u32> = self.starts.iter().copied().collect();
        let mut seen = BTreeSet::new();
        while let Some(start) = work.pop() {
            let mut pc = start;
            while seen.insert(pc) && seen.len() < INSTRUCTIONS_MAX {
                let Some(insn) = self.insn(pc) else { break };
                let next = pc.wrapping_add(8);
                let mut reached = Vec::new();
                if insn.kind().is_call()
                    && let Some(passing) = self.regions.passing(pc)
                {
                    reached.push(next);
                    if let Passing::Lands(pad) = passing {
                        reached.push(pad);
                    }
                }
                let goes_on = match insn.kind() {
                    Kind::Plain => {
                        pc = pc.wrapping_add(4);
                        if self.is_other_function(pc) {
                            break;
                        }
                        continue;
                    }
                    Kind::Branch | Kind::BranchLikely => {
                        reached.extend(insn.target(pc));
                        reached.push(next);
                        false
                    }
                    Kind::BranchAndLink if insn.rs() != Reg::ZERO => {
                        reached.push(next);
                        false
                    }
                    Kind::JumpAndLink | Kind::BranchAndLink => true,
                    Kind::JumpRegisterAndLink => insn.rd() != Reg::ZERO,
                    Kind::Jump => {
                        reached.extend(insn.target(pc));
                        false
                    }
                    Kind::JumpRegister => {
                        if let Some(Jump::Targets(targets)) = self.jumps.get(&pc) {
                            reached.extend(targets);
                        }
                        false
                    }
                };
                for target in reached {
                    if !self.is_other_function(target) && self.starts.insert(target) {
                        work.push(target);
                    }
                }
                if !goes_on || self.is_other_function(next) {
                    break;
                }
                pc = next;
            }
        }
    }

    fn build(&self) -> Function {
        let graph = Graph::new(self.entry, self.starts.iter().copied());
        let mut builder = Builder { finder: self, graph };
        for &start in &self.starts {
            builder.block(start);
        }
        let name = self.image.function_at(self.entry).map(str::to_owned);
        let landings = self.landings.iter().map(|&at| (at, builder.graph.id(at))).collect();
        let mut function = Function {
            entry: self.entry,
            name: name.unwrap_or_else(|| format!("function_{:x}", self.entry)),
            blocks: builder.graph.finish(),
            convention: Convention::O32,
        };
        landing::insert(&mut function, landings);
        function
    }

    /// Gives jumps their targets. Whether there is anything new.
    fn resolve(&mut self, function: &Function, known: &constants::Known) -> bool {
        let mut new = false;
        for (id, block) in function.blocks.iter().enumerate() {
            let End::Jump { to: Expr::Var(register), targets } = &block.end else { continue };
            if !known.is_reached(id) || *register == Var::LANDED {
                continue;
            }
            let Some(&(pc, _)) = block.steps.last() else { continue };
            let jump = match known.at_end(self.image, function, id, *register) {
                _ if landing::leaves_frame(block) => Jump::Away,
                Value::Const(to) if self.is_other_function(to) => Jump::TailCall,
                Value::Const(to) if self.image.is_code(to) => Jump::Targets(BTreeSet::from([to])),
                Value::Const(_) => Jump::TailCall,
                Value::Table { base, add } => {
                    let bound = bound(function, id);
                    Jump::Targets(table(self.image, self.entry, base, add, bound))
                }
                _ if *register == var(Reg::T9) => Jump::TailCall,
                _ => Jump::Targets(labels(self.image, self.entry, function)),
            };
            let jump = match (jump, targets) {
                (Jump::Targets(mut found), _) => {
                    if let Some(Jump::Targets(before)) = self.jumps.get(&pc) {
                        found.extend(before);
                    }
                    Jump::Targets(found)
                }
                (jump, _) => jump,
            };
            if self.jumps.get(&pc) != Some(&jump) {
                if let Jump::Targets(targets) = &jump {
                    let inside = targets.iter().filter(|&&t| !self.is_other_function(t));
                    self.starts.extend(inside.copied().collect::<Vec<_>>());
                }
                self.jumps.insert(pc, jump);
                new = true;
            }
        }
        new
    }
}

/// The entries of a function's jump table. How many there are is known from the comparison before the
/// jump, else from the first word that does not lead into the function.
pub fn table(image: &Image, entry: u32, base: u32, add: u32, bound: Option<u32>) -> BTreeSet<u32> {
    let function = entry..image.end_of(entry);
    let mut targets = BTreeSet::new();
    for index in 0..bound.unwrap_or(1 << 16) {
        let Some(word) = image.word(base.wrapping_add(index * 4)) else { break };
        let target = word.wrapping_add(add);
        let inside = function.contains(&target) || image.is_cold(target);
        if !inside || !image.is_code(target) {
            break;
        }
        targets.insert(target);
    }
    targets
}

/// Addresses within a function that data or its own code hold: where a computed jump may go.
pub fn labels(image: &Image, entry: u32, function: &Function) -> BTreeSet<u32> {
    let range = entry + 1..image.end_of(entry);
    let mut labels: BTreeSet<u32> = image.labels(range.clone()).iter().copied().collect();
    let known = constants::solve(image, function);
    let mut folded = function.clone();
    constants::apply(image, &mut folded, &known);
    for (_, step) in folded.blocks.iter().flat_map(|block| &block.steps) {
        step.visit(&mut |e| {
            if let Expr::Int(value) = e
                && range.contains(&(*value as u32))
                && image.is_code(*value as u32)
            {
                labels.insert(*value as u32);
            }
        });
    }
    labels
}

/// Blocks before a jump in which its bound is looked for.
const GUARDS_MAX: usize = 4;

/// What the index of a table is compared with, in a block that must be passed on the way to the jump.
/// Other comparisons stand there too: only one of the register that is scaled counts.
pub fn bound(function: &Function, jump: BlockId) -> Option<u32> {
    let mut index = None;
    let mut at = jump;
    for _ in 0..GUARDS_MAX {
        let block = &function.blocks[at];
        index = index.or_else(|| scaled(block));
        let limit = index.and_then(|index| limit_of(block, index));
        if let Some(limit) = limit.filter(|&limit| limit < 1 << 16) {
            return Some(limit);
        }
        let before: Vec<BlockId> = (0..function.blocks.len())
            .filter(|&id| function.blocks[id].end.successors().contains(&at))
            .collect();
        let [only] = before[..] else { return None };
        at = only;
    }
    None
}

/// The variable that a block multiplies by the size of a word, if it is one.
fn scaled(block: &Block) -> Option<Var> {
    block.steps.iter().rev().find_map(|(_, step)| match step {
        Stmt::Set(_, Expr::Bin(Bin::Shl, index, by)) if **by == Expr::Int(2) => match **index {
            Expr::Var(index) => Some(index),
            _ => None,
        },
        _ => None,
    })
}

/// What a block compares a variable with.
fn limit_of(block: &Block, index: Var) -> Option<u32> {
    let mut found = None;
    let mut look = |e: &Expr| {
        if let Expr::Cond(cond) = e
            && let Cond::Int(Cmp::LtU, Expr::Var(var), Expr::Int(limit)) = &**cond
            && *var == index
        {
            found = Some(*limit as u32);
        }
    };
    block.steps.iter().for_each(|(_, step)| step.visit(&mut look));
    block.end.visit(&mut look);
    found
}

struct Builder<'a, 'b> {
    finder: &'b Finder<'a>,
    graph: Graph,
}

impl Builder<'_, '_> {
    /// The block that a branch to an address leads to.
    fn leading_to(&mut self, from: u32, target: u32) -> BlockId {
        let is_other_function = self.finder.is_other_function(target);
        self.graph.leading_to(from, target, is_other_function)
    }

    fn slot(&self, pc: u32) -> Option<Vec<(u32, Stmt)>> {
        let insn = self.finder.insn(pc)?;
        if insn.kind().has_delay_slot() {
            // A branch in a delay slot has no defined meaning.
            return None;
        }
        Some(self.finder.lifter.lift(insn, pc).into_iter().map(|step| (pc, step)).collect())
    }

    fn block(&mut self, start: u32) {
        let mut steps: Vec<(u32, Stmt)> = Vec::new();
        let mut pc = start;
        let end = loop {
            if pc != start && self.finder.starts.contains(&pc) {
                break End::Goto(self.graph.id(pc));
            }
            if pc != start && self.finder.is_other_function(pc) {
                // Behind a call that does not return, the next function is not meant.
                if matches!(steps.last(), Some((_, Stmt::Call { .. } | Stmt::Trap { .. }))) {
                    break End::Nowhere(pc);
                }
                break End::Goto(self.leading_to(pc.wrapping_sub(4), pc));
            }
            let Some(insn) = self.finder.insn(pc) else { break End::Nowhere(pc) };
            if insn.kind() == Kind::Plain {
                let lifted = self.finder.lifter.lift(insn, pc);
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
                && let Some(passing) = self.finder.regions.passing(*call)
            {
                break self.invoke(pc, passing);
            }
        };
        self.graph.fill(Block { pc: start, steps, end });
    }

    /// The end of a block with a call that an exception may leave another way.
    fn invoke(&mut self, next: u32, passing: Passing) -> End {
        let next = match self.finder.is_other_function(next) {
            true => self.graph.add(Block { pc: next, steps: Vec::new(), end: End::Nowhere(next) }),
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
                let with_slot = self.graph.add(Block { pc, steps: slot, end: End::Goto(taken) });
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
                self.jump_register(insn, pc, slot, steps)
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
                let calls = self.graph.add(Block { pc, steps: calls, end: End::Goto(other) });
                Some(End::If(cond, calls, other))
            }
        }
    }

    fn jump_register(
        &mut self,
        insn: Insn,
        pc: u32,
        slot: Vec<(u32, Stmt)>,
        steps: &mut Vec<(u32, Stmt)>,
    ) -> Option<End> {
        let to = target_before_slot(insn, pc, slot, steps);
        match self.finder.jumps.get(&pc) {
            Some(Jump::TailCall) => {
                call(Callee::Indirect(to), pc, Vec::new(), steps);
                Some(End::Return)
            }
            Some(Jump::Away) => {
                steps.push((pc, landing::jump(Convention::O32, to)));
                Some(End::Nowhere(pc))
            }
            Some(Jump::Targets(targets)) => {
                let targets: Vec<(u32, BlockId)> =
                    targets.iter().map(|&target| (target, self.leading_to(pc, target))).collect();
                self.remember(pc, &to, steps);
                Some(End::Jump { to, targets })
            }
            None => {
                self.remember(pc, &to, steps);
                Some(End::Jump { to, targets: Vec::new() })
            }
        }
    }

    /// Where the jump is must be known where it is resolved: its last step has the address.
    fn remember(&self, pc: u32, to: &Expr, steps: &mut Vec<(u32, Stmt)>) {
        if let Expr::Var(register) = to {
            steps.push((pc, Stmt::Set(*register, to.clone())));
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
