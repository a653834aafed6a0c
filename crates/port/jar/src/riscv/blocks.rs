//! From a function's entry to its blocks, as `crate::blocks` does it for MIPS: no delay slots, but
//! instructions of two sizes.

use std::collections::BTreeSet;

use fettle_riscv::{Insn, Kind, Reg};
use rustc_hash::FxHashMap;

use super::{Lifter, add, arrive, condition, leave, read};
use crate::blocks::{Jump, bound, labels, table};
use crate::constants::{self, Value};
use crate::convention::Convention;
use crate::graph::Graph;
use crate::image::Image;
use crate::ir::{Block, BlockId, Callee, End, Expr, Function, Stmt, Var};
use crate::landing;

/// More instructions than any function has: code that is none is not followed for ever.
const INSTRUCTIONS_MAX: usize = 400_000;

/// Code that saves registers has no more instructions.
const PROLOGUE_MAX: usize = 64;

/// What the names of code begin with that gives registers back and returns.
const RESTORES: &str = "__riscv_restore_";

/// The register by which such code is called.
const OTHER_LINK: Reg = Reg::new(5);

struct Finder<'a> {
    image: &'a Image,
    lifter: Lifter,
    entry: u32,
    starts: BTreeSet<u32>,
    jumps: FxHashMap<u32, Jump>,
    /// Labels that other functions jump to.
    landings: BTreeSet<u32>,
}

/// The function at an address, with everything that does not change in it computed. Other functions jump to
/// some labels, and to those that its own code hands out.
pub fn function(image: &Image, entry: u32, landings: &BTreeSet<u32>) -> Function {
    let lifter = Lifter { high: image.high };
    let starts = landings.iter().copied().chain([entry]).collect();
    let (jumps, landings) = (FxHashMap::default(), landings.clone());
    let mut finder = Finder { image, lifter, entry, starts, jumps, landings };
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
        // The last instruction may be a short one.
        let low = self.image.half(pc)?;
        let high = self.image.half(pc.wrapping_add(2)).unwrap_or(0);
        Insn::decode(u32::from(high) << 16 | u32::from(low))
    }

    /// Whether a branch there leaves the function.
    fn is_other_function(&self, target: u32) -> bool {
        let name = self.image.function_at(target);
        // What gives registers back and returns is the end of each function that jumps there.
        target != self.entry && name.is_some_and(|name| !name.starts_with(RESTORES))
    }

    /// The steps of code that is called by the other link register, and saves registers on the stack: it
    /// is no function, since it moves the stack pointer. None if it is anything else.
    fn prologue(&self, target: u32) -> Option<Vec<(u32, Stmt)>> {
        let mut steps = Vec::new();
        let mut pc = target;
        for _ in 0..PROLOGUE_MAX {
            let insn = self.insn(pc)?;
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

    /// Finds the beginnings of blocks.
    fn follow(&mut self) {
        let mut work: Vec<u32> = self.starts.iter().copied().collect();
        let mut seen = BTreeSet::new();
        while let Some(start) = work.pop() {
            let mut pc = start;
            while seen.insert(pc) && seen.len() < INSTRUCTIONS_MAX {
                let Some(insn) = self.insn(pc) else { break };
                let next = pc.wrapping_add(u32::from(insn.size));
                let mut reached = Vec::new();
                let goes_on = match insn.kind() {
                    Kind::Plain => true,
                    _ if insn.is_call() => true,
                    Kind::Branch => {
                        reached.extend([insn.target(pc), next]);
                        false
                    }
                    Kind::Jump => {
                        reached.push(insn.target(pc));
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
            convention: Convention::RiscV,
        };
        landing::insert(&mut function, landings);
        function
    }

    /// Gives jumps their targets. Whether there is anything new.
    fn resolve(&mut self, function: &Function, known: &constants::Known) -> bool {
        let mut unknown = Vec::new();
        let mut new = false;
        for (id, block) in function.blocks.iter().enumerate() {
            let End::Jump { to: Expr::Var(register), .. } = &block.end else { continue };
            if *register == Var::LANDED {
                continue;
            }
            let Some(&(pc, _)) = block.steps.last() else { continue };
            if !known.is_reached(id) {
                continue;
            }
            match known.at_end(self.image, function, id, *register) {
                _ if landing::leaves_frame(block) => new |= self.add(pc, Jump::Away),
                Value::Const(to) if self.image.is_code(to) && !self.is_other_function(to) => {
                    new |= self.add(pc, Jump::Targets(BTreeSet::from([to])));
                }
                Value::Const(_) => new |= self.add(pc, Jump::TailCall),
                Value::Table { base, add } => {
                    let targets = table(self.image, self.entry, base, add, bound(function, id));
                    new |= self.add(pc, Jump::Targets(targets));
                }
                _ => unknown.push(pc),
            }
        }
        if new {
            return true;
        }
        // What tables do not explain are labels of the program's own; without such a jump leaves.
        let mut free = labels(self.image, self.entry, function);
        for jump in self.jumps.iter().filter(|(pc, _)| !unknown.contains(pc)) {
            if let (_, Jump::Targets(targets)) = jump {
                free.retain(|label| !targets.contains(label));
            }
        }
        for pc in unknown {
            let jump = match free.is_empty() {
                true => Jump::TailCall,
                false => Jump::Targets(free.clone()),
            };
            new |= self.add(pc, jump);
        }
        new
    }

    /// Adds what is known of a jump. Whether that is new.
    fn add(&mut self, pc: u32, jump: Jump) -> bool {
        let jump = match (jump, self.jumps.get(&pc)) {
            (Jump::Targets(mut found), Some(Jump::Targets(before))) => {
                found.extend(before);
                Jump::Targets(found)
            }
            (jump, _) => jump,
        };
        if self.jumps.get(&pc) == Some(&jump) {
            return false;
        }
        if let Jump::Targets(targets) = &jump {
            let inside = targets.iter().copied().filter(|&target| !self.is_other_function(target));
            let inside: Vec<u32> = inside.collect();
            self.starts.extend(inside);
        }
        self.jumps.insert(pc, jump);
        true
    }
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

    fn block(&mut self, start: u32) {
        let mut steps: Vec<(u32, Stmt)> = Vec::new();
        let mut pc = start;
        let mut called = false;
        let end = loop {
            if pc != start && self.finder.starts.contains(&pc) {
                break End::Goto(self.graph.id(pc));
            }
            if pc != start && self.finder.is_other_function(pc) {
                // Behind a call that does not return, the next function is not meant.
                break match called {
                    true => End::Nowhere(pc),
                    false => End::Goto(self.leading_to(pc.wrapping_sub(2), pc)),
                };
            }
            let Some(insn) = self.finder.insn(pc) else { break End::Nowhere(pc) };
            let next = pc.wrapping_add(u32::from(insn.size));
            called = insn.is_call();
            match insn.kind() {
                Kind::Plain => {
                    let image = self.finder.image;
                    let around = [pc.wrapping_sub(4), next].map(|at| image.word(at));
                    let lifted = self.finder.lifter.lift(insn, pc, around);
                    steps.extend(lifted.into_iter().map(|step| (pc, step)));
                }
                Kind::Branch => {
                    let taken = self.leading_to(pc, insn.target(pc));
                    let other = self.leading_to(pc, next);
                    break End::If(condition(insn), taken, other);
                }
                Kind::Jump if insn.rd == OTHER_LINK => {
                    called = false;
                    match self.finder.prologue(insn.target(pc)) {
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
                Kind::Jump => break End::Goto(self.leading_to(pc, insn.target(pc))),
                Kind::JumpRegister if insn.rs1 == Reg::RA && insn.imm == 0 => {
                    steps.extend(leave().into_iter().map(|step| (pc, step)));
                    break End::Return;
                }
                Kind::JumpRegister => break self.jump(insn, pc, &mut steps),
            }
            pc = next;
        };
        self.graph.fill(Block { pc: start, steps, end });
    }

    fn jump(&mut self, insn: Insn, pc: u32, steps: &mut Vec<(u32, Stmt)>) -> End {
        let to = add(read(insn.rs1), insn.imm);
        match self.finder.jumps.get(&pc) {
            Some(Jump::TailCall) => {
                steps.push((pc, Stmt::Call { callee: Callee::Indirect(to), pc }));
                End::Return
            }
            Some(Jump::Away) => {
                steps.push((pc, landing::jump(Convention::RiscV, to)));
                End::Nowhere(pc)
            }
            known => {
                let targets: Vec<u32> = match known {
                    Some(Jump::Targets(targets)) => targets.iter().copied().collect(),
                    _ => Vec::new(),
                };
                let targets = targets.into_iter().map(|to| (to, self.leading_to(pc, to))).collect();
                // Where the jump is must be known where it is resolved: its last step has the address.
                steps.push((pc, Stmt::Set(Var::BEFORE_SLOT, to)));
                End::Jump { to: Expr::Var(Var::BEFORE_SLOT), targets }
            }
        }
    }
}
