//! Functions that no path leaves: `panic`, `do_exit` and what leads to them in any case.
//!
//! Compilers know them by an attribute, and lay out nothing behind their calls. Here they are found by
//! their code: a function returns if some path through it comes to a return, a tail call of what
//! returns, or a jump to an address that is not known; a path goes on behind a call only if what is
//! called returns. What is not followed with certainty returns. The smallest solution of that is right:
//! functions that call each other in a circle without another way out do not return, either.

use std::collections::HashMap;

use fettle_isa::{FactsFactory, Insn};
use fettle_kernel_image::Image;
use rustc_hash::{FxBuildHasher, FxHashSet};

use crate::reason::Reason;
use crate::step::{Step, Steps};

/// The functions that do not return, by their entries.
#[derive(Clone, Debug, Default)]
pub struct NoReturn(FxHashSet<u64>);

impl NoReturn {
    /// Whether the function at `entry` never returns.
    pub fn contains(&self, entry: u64) -> bool {
        self.0.contains(&entry)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Finds them in all of the kernel's text.
    pub fn find(image: &Image, steps: &Steps<'_>) -> NoReturn {
        let mut search = Search {
            image,
            steps,
            facts: FactsFactory::default(),
            returns: FxHashSet::default(),
            seen: HashMap::default(),
            waiting: HashMap::default(),
            work: Vec::new(),
        };
        for function in image.functions.all().iter().filter(|function| !function.cold) {
            search.work.push((function.range.start, function.range.start));
            search.run();
        }
        let all = image.functions.all().iter().filter(|function| !function.cold);
        let entries = all.map(|function| function.range.start);
        NoReturn(entries.filter(|entry| !search.returns.contains(entry)).collect())
    }
}

struct Search<'a> {
    image: &'a Image,
    steps: &'a Steps<'a>,
    facts: FactsFactory,
    /// Functions of which it is known that they return.
    returns: FxHashSet<u64>,
    /// Which function's path came to an address first.
    seen: HashMap<u64, u64, FxBuildHasher>,
    /// Paths that stopped before a function of which it is not known: whose path, and where it would go
    /// on; nowhere behind a tail call.
    waiting: HashMap<u64, Vec<(u64, Option<u64>)>, FxBuildHasher>,
    /// Paths to follow: of which function, and from where.
    work: Vec<(u64, u64)>,
}

impl Search<'_> {
    fn run(&mut self) {
        while let Some((function, at)) = self.work.pop() {
            if !self.returns.contains(&function) {
                self.follow(function, at);
            }
        }
    }

    fn returns(&mut self, function: u64) {
        if !self.returns.insert(function) {
            return;
        }
        for (caller, at) in self.waiting.remove(&function).unwrap_or_default() {
            match at {
                Some(at) => self.work.push((caller, at)),
                None => self.returns(caller),
            }
        }
    }

    /// Follows the path of `function` from `at` to its first fork.
    fn follow(&mut self, function: u64, mut at: u64) {
        loop {
            match self.seen.insert(at, function) {
                Some(other) if other == function => return,
                // Code of two functions: one of them would see half of it.
                Some(other) => {
                    self.returns(other);
                    return self.returns(function);
                }
                None => {}
            }
            let Ok((insn, step)) = self.decode(at) else { return self.returns(function) };
            if let Some(exception) = self.image.tables.exception(at) {
                self.goes(function, exception.fixup);
            }
            let next = insn.next_ip();
            match step {
                Step::Next | Step::IndirectCall | Step::StaticCall(_) => at = next,
                Step::Branch(to)
                | Step::Label(fettle_kernel_image::JumpLabel { target: to, .. }) => {
                    self.goes(function, to);
                    at = next;
                }
                Step::Jump(to) => return self.goes(function, to),
                Step::Call(to) => match self.callee(to) {
                    Some(to) => return self.wait(to, function, Some(next)),
                    None => at = next,
                },
                Step::Return | Step::TailIndirect | Step::StaticTail(_) => {
                    return self.returns(function);
                }
                Step::Stop => return,
            }
        }
    }

    /// The path of `function` goes to `to`, which may be another function's entry.
    fn goes(&mut self, function: u64, to: u64) {
        let own = self.image.functions.containing(to);
        match own {
            Some(found) if found.range.start == function || found.cold => {
                self.work.push((function, to));
            }
            Some(found) if found.range.start == to => match self.callee(to) {
                Some(to) => self.wait(to, function, None),
                None => self.returns(function),
            },
            _ => self.returns(function),
        }
    }

    /// The function at `to`, if it is one of which it is not known that it returns.
    fn callee(&self, to: u64) -> Option<u64> {
        let known = self.image.functions.starting(to).is_some_and(|function| !function.cold);
        (known && !self.returns.contains(&to)).then_some(to)
    }

    fn wait(&mut self, callee: u64, caller: u64, at: Option<u64>) {
        self.waiting.entry(callee).or_default().push((caller, at));
    }

    fn decode(&mut self, at: u64) -> Result<(Insn, Step), Reason> {
        let bytes = self.image.bytes(at, 16).ok_or(Reason::NotText)?;
        let (insn, facts) = self.facts.decode(bytes, 0, at).ok_or(Reason::Undecodable)?;
        let step = self.steps.step(&insn, facts, &bytes[..insn.len()])?;
        Ok((insn, step))
    }
}
