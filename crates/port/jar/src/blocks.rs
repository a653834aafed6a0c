//! From a function's entry to its blocks, for every machine.
//!
//! A function is what branches reach from its entry, wherever that is: cold parts need no care.
//! Where a register decides, `constants` says what it may hold; new targets mean new blocks, so
//! both take turns until nothing new is found.

use std::collections::BTreeSet;

use rustc_hash::FxHashMap;

use crate::constants::{self, Value};
use crate::convention::Convention;
use crate::graph::Graph;
use crate::image::Image;
use crate::ir::{Block, BlockId, Callee, End, Expr, Function, Stmt, Var};
use crate::landing;
use crate::targets::{bound, labels, table};

/// More instructions than any function has: code that is none is not followed for ever.
const INSTRUCTIONS_MAX: usize = 400_000;

/// What finding blocks has to know of a machine.
pub trait Machine: Sized {
    /// Who passes what where.
    const CONVENTION: Convention;

    /// Where the instruction at an address leads. None if there is none.
    fn leads(&self, image: &Image, pc: u32) -> Option<Leads>;

    /// The block that begins at an address.
    fn block(builder: &mut Builder<'_, Self>, start: u32) -> Block;

    /// What a jump is of which nothing but its register is known.
    fn unknown(&self, register: Var) -> Unknown;

    /// Whether code that has a name is a part of each function that jumps there.
    fn is_shared(&self, name: &str) -> bool;
}

/// Where an instruction leads.
pub struct Leads {
    /// The code behind it and its delay slot.
    pub next: u32,
    /// Beginnings of blocks that it leads to.
    pub to: Vec<u32>,
    /// Whether the code behind it is executed as well.
    pub onward: Onward,
}

/// What comes after an instruction.
#[derive(PartialEq, Eq)]
pub enum Onward {
    /// The code behind it.
    Next,
    /// What it leads to.
    Elsewhere,
    /// What its register holds.
    Computed,
}

/// A jump of which nothing is known.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Unknown {
    /// It leaves the function.
    TailCall,
    /// It goes to a label.
    Label,
    /// It goes to a label if there are any that no table explains.
    Either,
}

/// Where a jump through a register leads.
#[derive(Clone, Debug, PartialEq)]
enum Jump {
    /// To one of these.
    Targets(BTreeSet<u32>),
    /// Out of the function: it is a call and a return.
    TailCall,
    /// To a label of a function further up, with its frame.
    Away,
}

struct Finder<'a, M> {
    image: &'a Image,
    machine: &'a M,
    entry: u32,
    starts: BTreeSet<u32>,
    jumps: FxHashMap<u32, Jump>,
    /// Labels that other functions jump to.
    landings: BTreeSet<u32>,
}

/// The function at an address, with everything that does not change in it computed. Other functions jump to
/// some labels, and to those that its own code hands out.
pub fn function<M: Machine>(
    image: &Image,
    machine: &M,
    entry: u32,
    landings: &BTreeSet<u32>,
) -> Function {
    let starts = landings.iter().copied().chain([entry]).collect();
    let (jumps, landings) = (FxHashMap::default(), landings.clone());
    let mut finder = Finder { image, machine, entry, starts, jumps, landings };
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

impl<M: Machine> Finder<'_, M> {
    /// Whether a branch there leaves the function.
    fn is_other_function(&self, target: u32) -> bool {
        let name = self.image.function_at(target);
        target != self.entry && name.is_some_and(|name| !self.machine.is_shared(name))
    }

    /// Finds the beginnings of blocks.
    fn follow(&mut self) {
        let mut work: Vec<u32> = self.starts.iter().copied().collect();
        let mut seen = BTreeSet::new();
        while let Some(start) = work.pop() {
            let mut pc = start;
            while seen.insert(pc) && seen.len() < INSTRUCTIONS_MAX {
                let Some(mut leads) = self.machine.leads(self.image, pc) else { break };
                if leads.onward == Onward::Computed
                    && let Some(Jump::Targets(targets)) = self.jumps.get(&pc)
                {
                    leads.to.extend(targets);
                }
                for target in leads.to {
                    if !self.is_other_function(target) && self.starts.insert(target) {
                        work.push(target);
                    }
                }
                if leads.onward != Onward::Next || self.is_other_function(leads.next) {
                    break;
                }
                pc = leads.next;
            }
        }
    }

    fn build(&self) -> Function {
        let graph = Graph::new(self.entry, self.starts.iter().copied());
        let mut builder = Builder { finder: self, graph };
        for &start in &self.starts {
            let block = M::block(&mut builder, start);
            builder.graph.fill(block);
        }
        let name = self.image.function_at(self.entry).map(str::to_owned);
        let landings = self.landings.iter().map(|&at| (at, builder.graph.id(at))).collect();
        let mut function = Function {
            entry: self.entry,
            name: name.unwrap_or_else(|| format!("function_{:x}", self.entry)),
            blocks: builder.graph.finish(),
            convention: M::CONVENTION,
        };
        landing::insert(&mut function, landings);
        function
    }

    /// Gives jumps their targets. Whether there is anything new.
    fn resolve(&mut self, function: &Function, known: &constants::Known) -> bool {
        let mut to_labels = Vec::new();
        let mut new = false;
        for (id, block) in function.blocks.iter().enumerate() {
            let End::Jump { to: Expr::Var(register), .. } = &block.end else { continue };
            if !known.is_reached(id) || *register == Var::LANDED {
                continue;
            }
            let Some(&(pc, _)) = block.steps.last() else { continue };
            let jump = match known.at_end(self.image, function, id, *register) {
                _ if landing::leaves_frame(block) => Jump::Away,
                Value::Const(to) if self.image.is_code(to) && !self.is_other_function(to) => {
                    Jump::Targets(BTreeSet::from([to]))
                }
                Value::Const(_) => Jump::TailCall,
                Value::Table { base, add } => {
                    let bound = bound(function, id);
                    Jump::Targets(table(self.image, self.entry, base, add, bound))
                }
                _ => match self.machine.unknown(*register) {
                    Unknown::TailCall => Jump::TailCall,
                    unknown => {
                        to_labels.push((pc, unknown));
                        continue;
                    }
                },
            };
            new |= self.add(pc, jump);
        }
        if !new && !to_labels.is_empty() {
            new = self.resolve_to_labels(function, &to_labels);
        }
        new
    }

    /// Gives those jumps their targets that no table explains.
    fn resolve_to_labels(&mut self, function: &Function, jumps: &[(u32, Unknown)]) -> bool {
        let all = labels(self.image, self.entry, function);
        let mut free = all.clone();
        for (pc, jump) in &self.jumps {
            if let Jump::Targets(targets) = jump
                && jumps.iter().all(|(other, _)| other != pc)
            {
                free.retain(|label| !targets.contains(label));
            }
        }
        let mut new = false;
        for &(pc, unknown) in jumps {
            let jump = match unknown {
                Unknown::Either if free.is_empty() => Jump::TailCall,
                Unknown::Either => Jump::Targets(free.clone()),
                Unknown::Label | Unknown::TailCall => Jump::Targets(all.clone()),
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

/// Makes the blocks of a function whose beginnings are known.
pub struct Builder<'a, M> {
    finder: &'a Finder<'a, M>,
    graph: Graph,
}

impl<M: Machine> Builder<'_, M> {
    /// The program.
    pub fn image(&self) -> &Image {
        self.finder.image
    }

    /// What its code is for.
    pub fn machine(&self) -> &M {
        self.finder.machine
    }

    /// The block that a branch to an address leads to.
    pub fn leading_to(&mut self, from: u32, target: u32) -> BlockId {
        let is_other_function = self.finder.is_other_function(target);
        self.graph.leading_to(from, target, is_other_function)
    }

    /// Adds a block that only others lead to.
    pub fn add(&mut self, block: Block) -> BlockId {
        self.graph.add(block)
    }

    /// Whether the code at an address is another function's.
    pub fn is_other_function(&self, pc: u32) -> bool {
        self.finder.is_other_function(pc)
    }

    /// The end of a block before the next one, if that begins at an address.
    pub fn falls_into(&mut self, pc: u32) -> Option<End> {
        self.finder.starts.contains(&pc).then(|| End::Goto(self.graph.id(pc)))
    }

    /// The end of a block with a jump through a register.
    pub fn jump(&mut self, pc: u32, to: Expr, steps: &mut Vec<(u32, Stmt)>) -> End {
        let targets = match self.finder.jumps.get(&pc) {
            Some(Jump::TailCall) => {
                steps.push((pc, Stmt::Call { callee: Callee::Indirect(to), pc }));
                return End::Return;
            }
            Some(Jump::Away) => {
                steps.push((pc, landing::jump(M::CONVENTION, to)));
                return End::Nowhere(pc);
            }
            Some(Jump::Targets(targets)) => {
                targets.iter().map(|&target| (target, self.leading_to(pc, target))).collect()
            }
            None => Vec::new(),
        };
        // Where the jump is must be known where it is resolved: its last step has the address.
        let register = match to {
            Expr::Var(register) => register,
            _ => Var::BEFORE_SLOT,
        };
        steps.push((pc, Stmt::Set(register, to)));
        End::Jump { to: Expr::Var(register), targets }
    }
}
