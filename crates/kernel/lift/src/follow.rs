//! Lifting a function: its code and that of its cold parts, followed from the entry.

use std::collections::BTreeSet;

use fettle_image::LinkAddr;
use fettle_isa::{Facts, FactsFactory, Insn};
use fettle_kernel_image::orc::{Base, Row};
use fettle_kernel_image::{Entry, FunctionRange, Image};
use fettle_lift::function::{Ranges, Succs};
use fettle_lift::{Block, BlockId, Exit, Function};
use rayon::prelude::*;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::noreturn::NoReturn;
use crate::patch::{self, Room};
use crate::reason::{Reason, Skipped};
use crate::step::{Step, Steps};

/// How control leaves a block at its end, apart from faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// To the instruction behind it.
    Falls,
    /// By a noreturn call.
    NoReturn,
    /// As its last instruction says.
    Step(Step),
}

/// A lifted function of the kernel.
#[derive(Clone, Debug)]
pub struct KernelFunction {
    /// The lifted form. A branch of a static key, and an instruction whose fault has a fixup, end blocks;
    /// the label's target and the fixup are among the successors.
    pub code: Function,
    /// What each instruction leads to.
    pub steps: Vec<Step>,
    /// How each block ends.
    pub ends: Vec<End>,
    /// The symbol.
    pub name: String,
    /// Where the fentry nop is, from the entry on. Without one, only calls from other rewritten text lead to
    /// the function's.
    pub fentry: Option<u32>,
    /// Where a jump to rewritten text goes, if there is room.
    pub room: Option<Room>,
}

impl KernelFunction {
    /// Where it begins.
    pub fn entry(&self) -> u64 {
        self.code.entry.0
    }

    /// The address behind its fentry nop; its entry if there is none.
    pub fn behind_fentry(&self) -> u64 {
        self.entry() + self.fentry.map_or(0, |fentry| u64::from(fentry) + 5)
    }

    /// The block at an address.
    pub fn block_at(&self, at: u64) -> Option<BlockId> {
        self.code.block_at(LinkAddr(at))
    }
}

/// Lifts functions of one kernel.
#[derive(Debug)]
pub struct Lifter<'a> {
    image: &'a Image,
    steps: Steps<'a>,
    noreturn: NoReturn,
}

/// Why a function was not lifted, and the address that decided it.
type Failure = (Reason, u64);

impl<'a> Lifter<'a> {
    /// Reads all of the kernel's text once, for the functions that never return.
    pub fn new(image: &'a Image) -> Lifter<'a> {
        let steps = Steps::new(image);
        let noreturn = NoReturn::find(image, &steps);
        Lifter { image, steps, noreturn }
    }

    /// The kernel.
    pub fn image(&self) -> &'a Image {
        self.image
    }

    /// What instructions lead to.
    pub fn steps(&self) -> &Steps<'a> {
        &self.steps
    }

    /// Functions that never return.
    pub fn noreturn(&self) -> &NoReturn {
        &self.noreturn
    }

    /// Lifts the functions that begin at `entries`. A cold part that two of *all* functions lead to belongs
    /// to none of them, so each is lifted with what it leads to, whatever is asked for.
    pub fn lift(&self, entries: &[u64]) -> (Vec<KernelFunction>, Vec<Skipped>) {
        let results: Vec<Result<KernelFunction, Skipped>> = entries
            .par_iter()
            .map_init(FactsFactory::default, |facts, entry| {
                self.lift_one(*entry, facts).map_err(|(reason, at)| Skipped {
                    name: self.name_of(*entry),
                    entry: *entry,
                    reason,
                    at,
                })
            })
            .collect();
        let mut skipped = Vec::new();
        let lifted = results.into_iter().filter_map(|one| one.map_err(|s| skipped.push(s)).ok());
        let mut lifted: Vec<KernelFunction> = lifted.collect();
        // Cold parts belong to one function each.
        let mut owners: FxHashMap<u64, u32> = FxHashMap::default();
        for range in lifted.iter().flat_map(|function| &function.code.ranges[1..]) {
            *owners.entry(range.start.0).or_default() += 1;
        }
        lifted.retain(|function| {
            let shared = function.code.ranges[1..].iter().find(|range| owners[&range.start.0] > 1);
            if let Some(range) = shared {
                let (name, entry) = (function.name.clone(), function.entry());
                skipped.push(Skipped {
                    name,
                    entry,
                    reason: Reason::SharedCold,
                    at: range.start.0,
                });
            }
            shared.is_none()
        });
        skipped.sort_by_key(|skipped| skipped.entry);
        (lifted, skipped)
    }

    /// Entries of all functions that begin with a fentry nop, and are no cold parts.
    pub fn traceable(&self) -> Vec<u64> {
        let all = self.image.functions.all().iter();
        let traceable = all.filter(|f| !f.cold && matches!(f.entry, Entry::Fentry(_)));
        traceable.map(|function| function.range.start).collect()
    }

    fn name_of(&self, entry: u64) -> String {
        let found = self.image.functions.starting(entry);
        found.map_or_else(|| format!("sub_{entry:x}"), |function| function.name.to_string())
    }

    fn lift_one(&self, entry: u64, facts: &mut FactsFactory) -> Result<KernelFunction, Failure> {
        let found = self.image.functions.starting(entry).ok_or((Reason::NoFunction, entry))?;
        let fentry = match found.entry {
            Entry::Fentry(behind) => Some(behind),
            Entry::Attached => return Err((Reason::Attached, entry)),
            Entry::Plain if self.is_called(found) => None,
            Entry::Plain => return Err((Reason::NoFentry, entry)),
        };
        if self.image.blacklist.contains(entry) {
            return Err((Reason::Blacklisted, entry));
        }
        let mut walk = Walk::new(self, found);
        walk.follow(facts)?;
        let mut function = walk.close(entry, found.name.to_string(), fentry)?;
        if fentry.is_some() {
            function.room =
                patch::room(self.image, &function.code, &function.steps, function.behind_fentry());
        }
        Ok(function)
    }

    /// Whether a function without a place for tracers is one that calls lead to as to any other: one of C's
    /// that must not be traced, or one in assembly with the frame that a call leaves. Thunks are what a
    /// processor's mitigations hang on, and trampolines the kernel itself writes to.
    fn is_called(&self, found: &FunctionRange) -> bool {
        let is_thunk = found.name.starts_with("__x86_")
            || found.name.starts_with("__SCT__")
            || found.name.contains("trampoline")
            || found.name.ends_with("_thunk")
            || found.name.ends_with("_ret");
        let called = |row: Row| row.base() == Base::StackPointer && row.offset() == 8;
        !found.cold && !is_thunk && self.image.orc.at(found.range.start).is_some_and(called)
    }
}

/// The code of one function as far as it is followed.
struct Walk<'a, 'l> {
    lifter: &'l Lifter<'a>,
    parts: Vec<&'a FunctionRange>,
    insns: Vec<(Insn, Facts, Step)>,
    seen: FxHashSet<u64>,
    leaders: BTreeSet<u64>,
    work: Vec<u64>,
}

impl<'a, 'l> Walk<'a, 'l> {
    fn new(lifter: &'l Lifter<'a>, found: &'a FunctionRange) -> Walk<'a, 'l> {
        let start = found.range.start;
        Walk {
            lifter,
            parts: vec![found],
            insns: Vec::new(),
            seen: FxHashSet::default(),
            leaders: BTreeSet::from([start]),
            work: vec![start],
        }
    }

    /// Whether `at` lies in the function; in a cold part that becomes one of it, too.
    fn owns(&mut self, at: u64) -> bool {
        if self.parts.iter().any(|part| part.range.contains(&at)) {
            return true;
        }
        let found = self.lifter.image.functions.containing(at);
        let cold = found.filter(|part| part.cold);
        self.parts.extend(cold);
        cold.is_some()
    }

    /// Control may come to `to`.
    fn leads_to(&mut self, to: u64) {
        if self.owns(to) && self.leaders.insert(to) {
            self.work.push(to);
        }
    }

    fn follow(&mut self, facts: &mut FactsFactory) -> Result<(), Failure> {
        while let Some(at) = self.work.pop() {
            self.follow_from(at, facts)?;
        }
        Ok(())
    }

    fn follow_from(&mut self, mut at: u64, facts: &mut FactsFactory) -> Result<(), Failure> {
        let image = self.lifter.image;
        loop {
            if !self.parts.iter().any(|part| part.range.contains(&at)) {
                return Err((Reason::RunsOffEnd, at));
            }
            if !self.seen.insert(at) {
                return Ok(());
            }
            let bytes = image.bytes(at, 16).ok_or((Reason::NotText, at))?;
            let decoded = facts.decode(bytes, 0, at).ok_or((Reason::Undecodable, at))?;
            let (insn, known) = decoded;
            let step = self.lifter.steps.step(&insn, known, &bytes[..insn.len()]);
            let step = step.map_err(|reason| (reason, at))?;
            self.insns.push((insn, known, step));
            let next = insn.next_ip();
            if let Some(exception) = image.tables.exception(at) {
                if !matches!(
                    step,
                    Step::Next | Step::Call(_) | Step::IndirectCall | Step::StaticCall(_)
                ) {
                    return Err((Reason::StrangeFixup, at));
                }
                self.leads_to(exception.fixup);
                self.leaders.insert(next);
            }
            match step {
                Step::Next | Step::IndirectCall | Step::StaticCall(_) => {}
                Step::Call(to) if self.lifter.noreturn.contains(to) => return Ok(()),
                Step::Call(_) => {}
                Step::Branch(to) => {
                    self.leads_to(to);
                    self.leaders.insert(next);
                }
                Step::Label(label) => {
                    self.leads_to(label.target);
                    self.leaders.insert(next);
                }
                Step::Jump(to) => {
                    self.leads_to(to);
                    return Ok(());
                }
                Step::Return | Step::TailIndirect | Step::StaticTail(_) | Step::Stop => {
                    return Ok(());
                }
            }
            at = next;
        }
    }

    /// Makes blocks of what was found.
    fn close(
        mut self,
        entry: u64,
        name: String,
        fentry: Option<u32>,
    ) -> Result<KernelFunction, Failure> {
        self.insns.sort_unstable_by_key(|(insn, ..)| insn.ip());
        for pair in self.insns.windows(2) {
            if pair[0].0.next_ip() > pair[1].0.ip() {
                return Err((Reason::OverlappingInstructions, pair[1].0.ip()));
            }
        }
        if let Some(stray) = self.leaders.iter().find(|leader| !self.seen.contains(leader)) {
            return Err((Reason::RunsOffEnd, *stray));
        }
        let leaders: Vec<u64> = self.leaders.iter().copied().collect();
        let id = |at: u64| leaders.binary_search(&at).ok().map(|i| BlockId(i as u32));
        let mut blocks = Vec::with_capacity(leaders.len());
        let mut ends = Vec::with_capacity(leaders.len());
        let mut from = 0;
        while let Some((first, ..)) = self.insns.get(from) {
            let mut to = from + 1;
            while let Some((insn, ..)) = self.insns.get(to) {
                if self.leaders.contains(&insn.ip()) || insn.ip() != self.insns[to - 1].0.next_ip()
                {
                    break;
                }
                to += 1;
            }
            let (block, end) = self.block(from as u32..to as u32, &id);
            debug_assert_eq!(block.start.0, first.ip());
            blocks.push(block);
            ends.push(end);
            from = to;
        }
        if blocks.len() != leaders.len() {
            // Code that follows a call without return, and that nothing leads to, was not followed.
            return Err((Reason::RunsOffEnd, entry));
        }
        let ranges: Ranges = self
            .parts
            .iter()
            .map(|part| LinkAddr(part.range.start)..LinkAddr(part.range.end))
            .collect();
        let code = Function {
            entry: LinkAddr(entry),
            name: Some(name.clone()),
            ranges,
            insns: self.insns.iter().map(|(insn, ..)| *insn).collect(),
            facts: self.insns.iter().map(|(_, facts, _)| *facts).collect(),
            blocks,
            tables: Vec::new(),
        };
        let steps = self.insns.iter().map(|(.., step)| *step).collect();
        Ok(KernelFunction { code, steps, ends, name, fentry, room: None })
    }

    /// The block of these instructions.
    fn block(
        &self,
        insns: std::ops::Range<u32>,
        id: &impl Fn(u64) -> Option<BlockId>,
    ) -> (Block, End) {
        let (last, _, step) = &self.insns[insns.end as usize - 1];
        let next = last.next_ip();
        let fixup = self.lifter.image.tables.exception(last.ip()).map(|e| e.fixup);
        let mut succs = Succs::new();
        let mut exit = None;
        let falls = |succs: &mut Succs| {
            succs.extend(id(next));
            !succs.is_empty()
        };
        let (falls_through, end) = match step {
            Step::Call(to) if self.lifter.noreturn.contains(*to) => (false, End::NoReturn),
            Step::Next | Step::Call(_) | Step::IndirectCall | Step::StaticCall(_) => {
                (falls(&mut succs), End::Falls)
            }
            Step::Branch(to) => {
                let falls = falls(&mut succs);
                match id(*to) {
                    Some(to) => succs.push(to),
                    None => exit = Some(Exit::TailBranch(LinkAddr(*to))),
                }
                (falls, End::Step(*step))
            }
            Step::Label(label) => {
                let falls = falls(&mut succs);
                match id(label.target) {
                    Some(to) => succs.push(to),
                    None => exit = Some(Exit::TailBranch(LinkAddr(label.target))),
                }
                (falls, End::Step(*step))
            }
            Step::Jump(to) => {
                match id(*to) {
                    Some(to) => succs.push(to),
                    None => exit = Some(Exit::TailJump(LinkAddr(*to))),
                }
                (false, End::Step(*step))
            }
            Step::Return => {
                exit = Some(Exit::Return);
                (false, End::Step(*step))
            }
            Step::TailIndirect | Step::StaticTail(_) => {
                exit = Some(Exit::TailIndirect);
                (false, End::Step(*step))
            }
            Step::Stop => (false, End::Step(*step)),
        };
        match fixup.map(|fixup| (fixup, id(fixup))) {
            Some((_, Some(block))) => succs.push(block),
            Some((fixup, None)) => exit = Some(Exit::TailBranch(LinkAddr(fixup))),
            None => {}
        }
        let block = Block {
            start: LinkAddr(self.insns[insns.start as usize].0.ip()),
            insns,
            succs,
            falls_through,
            exit,
            landing_pad: false,
            switches: false,
        };
        (block, end)
    }
}
