//! Going through original and rewritten text of one function in step.

use fettle_isa::{Decides, FactsFactory, Flow};
use fettle_kernel_plan::{Plan, Target, Value};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::counter::{self, Clock, Counter};
use crate::gs;
use crate::new::{Found, Leads, New, Place};
use crate::original::{At, Original};
use crate::patch;
use crate::refusal::{Refusal, Why};

const TRAP: u8 = 0xcc;
const CALL: u8 = 0xe8;
const JUMP: u8 = 0xe9;
/// Bytes of a static call.
const SITE: usize = 5;
const NOP: [u8; 5] = [0x0f, 0x1f, 0x44, 0, 0];
/// The condition of `jne`.
const NOT_EQUAL: u8 = 5;

/// A pair still to compare.
#[derive(Clone, Copy, Debug)]
struct Pair {
    new: Place,
    original: u64,
    /// The instruction before protects this one from interrupts.
    shadow: bool,
}

/// What is known of the function being checked.
pub(crate) struct Walk<'a, 'o> {
    original: &'o Original<'a>,
    new: New<'o>,
    parts: &'o [u32],
    facts: FactsFactory,
    /// The instruction at a place of rewritten text is the one at this address of the original.
    seen: FxHashMap<Place, u64>,
    work: Vec<Pair>,
    /// Addresses of the original that control comes to otherwise than from the instruction before.
    targets: FxHashSet<u64>,
    /// By part: which bytes control comes to.
    reached: FxHashMap<u32, Vec<bool>>,
    /// References, origins and entries of tables that were used.
    used: Used,
    counters: Vec<u32>,
    /// Counters of what takes time: each has several places.
    clocks: Vec<u32>,
    changes_gs: bool,
    fentry: Option<Place>,
}

#[derive(Debug, Default)]
struct Used {
    references: usize,
    origins: FxHashSet<Place>,
    exceptions: usize,
    labels: usize,
    static_calls: usize,
    bugs: usize,
}

type Outcome<T = ()> = Result<T, (Why, Pair)>;

impl<'a, 'o> Walk<'a, 'o> {
    pub fn new(
        original: &'o Original<'a>,
        plan: &'o Plan,
        function: usize,
        parts: &'o [u32],
    ) -> Walk<'a, 'o> {
        Walk {
            original,
            new: New { plan, function: function as u32 },
            parts,
            facts: FactsFactory::default(),
            seen: FxHashMap::default(),
            work: Vec::new(),
            targets: FxHashSet::default(),
            reached: FxHashMap::default(),
            used: Used::default(),
            counters: Vec::new(),
            clocks: Vec::new(),
            changes_gs: false,
            fentry: None,
        }
    }

    /// Checks the function; its counters' numbers.
    pub fn run(mut self) -> Result<Vec<u32>, Refusal> {
        let of = &self.new.plan.functions[self.new.function as usize];
        match self.all() {
            Ok(()) => {
                self.clocks.sort_unstable();
                self.clocks.dedup();
                self.counters.append(&mut self.clocks);
                Ok(self.counters)
            }
            Err((why, pair)) => Err(Refusal {
                function: of.name.clone(),
                part: pair.new.part,
                offset: pair.new.offset,
                original: pair.original,
                why,
            }),
        }
    }

    fn all(&mut self) -> Outcome {
        let of = &self.new.plan.functions[self.new.function as usize];
        let entry = Place { part: of.entry, offset: 0 };
        let start = Pair { new: entry, original: of.original, shadow: false };
        let image = self.original.image;
        let known = image.functions.starting(of.original);
        let right = known.is_some_and(|f| f.size() == of.size)
            && image.is_named(of.original, &of.name)
            && self.new.part(of.entry).is_some()
            && !image.blacklist.contains(of.original);
        if !right {
            return Err((Why::Function, start));
        }
        for part in self.parts {
            let part_of = &self.new.plan.parts[*part as usize];
            let sorted = part_of.references.is_sorted_by_key(|reference| reference.at)
                && part_of.origins.is_sorted_by(|a, b| a.at < b.at)
                && part_of.orc.is_sorted_by(|a, b| a.at < b.at)
                && part_of.align.is_power_of_two();
            if !sorted {
                return Err((Why::Plan, start));
            }
            self.reached.insert(*part, vec![false; part_of.text.len()]);
        }
        self.work.push(start);
        self.finish()?;
        if let Some(patch) = &of.patch {
            let to = Place { part: of.entry, offset: patch.to };
            let pair = Pair { new: to, original: patch.at, shadow: false };
            if !patch::allows(self.original, patch, &self.targets, &mut self.facts) {
                return Err((Why::Patch, pair));
            }
            // Behind the fentry nop on both sides.
            let behind = self.fentry.map(|fentry| fentry.plus(NOP.len()));
            if behind != Some(to) {
                return Err((Why::Fentry, pair));
            }
            self.described(pair)?;
        }
        self.complete(start)
    }

    fn finish(&mut self) -> Outcome {
        while let Some(pair) = self.work.pop() {
            let mut pair = pair;
            while let Some(next) = self.step(pair)? {
                pair = next;
            }
        }
        Ok(())
    }

    /// Everything that the plan says of the function's parts was looked at.
    fn complete(&mut self, start: Pair) -> Outcome {
        let mut listed = Used::default();
        let mut origins = 0;
        for id in self.parts {
            let part = &self.new.plan.parts[*id as usize];
            listed.references += part.references.len();
            listed.exceptions += part.exceptions.len();
            listed.labels += part.jump_labels.len();
            listed.static_calls += part.static_calls.len();
            listed.bugs += part.bugs.len();
            origins += part.origins.len();
            let fentry = part.fentry.map(|offset| Place { part: *id, offset });
            if fentry.is_some() && fentry != self.fentry {
                return Err((Why::Fentry, start));
            }
            let reached = self.reached[id].iter().zip(&part.text);
            if let Some(offset) =
                reached.clone().position(|(reached, byte)| !reached && *byte != TRAP)
            {
                let new = Place { part: *id, offset: offset as u32 };
                return Err((Why::Unreached, Pair { new, ..start }));
            }
        }
        let used = &self.used;
        let stray = used.references != listed.references
            || used.exceptions != listed.exceptions
            || used.labels != listed.labels
            || used.static_calls != listed.static_calls
            || used.bugs != listed.bugs
            || used.origins.len() != origins;
        if stray {
            return Err((Why::Stray, start));
        }
        if self.changes_gs && !(self.counters.is_empty() && self.clocks.is_empty()) {
            return Err((Why::Counter, start));
        }
        Ok(())
    }

    /// Marks an instruction of rewritten text as one that control comes to; false if it was before.
    fn reach(&mut self, pair: Pair, found: &Found<'_>) -> Outcome<bool> {
        let reached = self.reached.get_mut(&pair.new.part).ok_or((Why::Outside, pair))?;
        let from = pair.new.offset as usize;
        let bytes = reached.get_mut(from..from + found.bytes.len()).ok_or((Why::Outside, pair))?;
        let first = !bytes[0];
        bytes.fill(true);
        if first {
            self.used.references += usize::from(found.reference.is_some());
        }
        Ok(first)
    }

    /// What the plan says of a place: what it is in the original, and how its frame is found.
    fn described(&mut self, pair: Pair) -> Outcome {
        let origin = self.new.origin(pair.new).ok_or((Why::Origin, pair))?;
        let same = origin == pair.original || {
            let own = self.original.chain(origin, &mut self.facts);
            let expected = self.original.chain(pair.original, &mut self.facts);
            own.end() == expected.end()
        };
        if !same {
            return Err((Why::Origin, pair));
        }
        self.used.origins.insert(pair.new);
        self.row(pair, origin, 0)
    }

    fn row(&self, pair: Pair, origin: u64, pushed: i16) -> Outcome {
        let row = self.original.image.orc.at(origin);
        let expected = match pushed {
            0 => row.map_or([0; 6], |row| row.0),
            pushed => row.and_then(|row| row.pushed(pushed)).ok_or((Why::Unwind, pair))?.0,
        };
        match self.new.row(pair.new) == Some(expected) {
            true => Ok(()),
            false => Err((Why::Unwind, pair)),
        }
    }

    /// Compares the instructions of a pair; where both go on from there, if they go on straight ahead.
    fn step(&mut self, pair: Pair) -> Outcome<Option<Pair>> {
        let found = self.new.at(pair.new, &mut self.facts).ok_or((Why::Undecodable, pair))?;
        let chain = self.original.chain(pair.original, &mut self.facts);
        let end = chain.end();
        if let Some(before) = self.seen.insert(pair.new, end) {
            return if before == end { Ok(None) } else { Err((Why::TwoOriginals, pair)) };
        }
        self.reach(pair, &found)?;
        self.described(pair)?;
        self.targets.extend(chain.0.iter().skip(1));
        if let Some(clock) = counter::clock(self.new, pair.new) {
            return self.clock(pair, &clock).map(Some);
        }
        if let Some(counter) = counter::at(self.new, pair.new, &found, &mut self.facts) {
            return self.counter(pair, counter).map(Some);
        }
        let part = self.new.part(pair.new.part).ok_or((Why::Outside, pair))?;
        let is_site = part.jump_labels.iter().any(|label| label.at == pair.new.offset)
            || part.static_calls.iter().any(|site| site.at == pair.new.offset);
        if !is_site && matches!(found.facts.flow(&found.insn), Flow::Jump(_)) {
            let leads = self.new.branch(pair.new, &found).ok_or((Why::Reference, pair))?;
            return self.arrives(leads, pair).map(|()| None);
        }
        let at = self.original.at(end, &mut self.facts).ok_or((Why::Undecodable, pair))?;
        if let Some(with) = promoted(self.original.thunk_register(&at), pair, &found) {
            return self.promotion(Pair { original: end, ..pair }, &found, &at, with).map(Some);
        }
        self.changes_gs |= gs::may_change(&at.insn, at.bytes);
        self.same(pair, &found, &at)
    }

    /// Control comes to `leads` in rewritten text, and to `pair.original` in the original.
    fn arrives(&mut self, leads: Leads, pair: Pair) -> Outcome {
        match leads {
            Leads::Own(new) => {
                self.work.push(Pair { new, ..pair });
                Ok(())
            }
            Leads::Entry(address) | Leads::Kernel(address) => {
                let chain = self.original.chain(pair.original, &mut self.facts);
                match chain.0.contains(&address) {
                    true => Ok(()),
                    false => Err((Why::Way, pair)),
                }
            }
        }
    }

    /// The same for a target of a table.
    fn target(&mut self, target: Target, original: u64, pair: Pair) -> Outcome {
        let leads = self.new.leads(target).ok_or((Why::Reference, pair))?;
        self.targets.insert(original);
        self.arrives(leads, Pair { original, shadow: false, ..pair })
    }

    fn counter(&mut self, pair: Pair, counter: Counter) -> Outcome<Pair> {
        if pair.shadow || counter.number >= self.new.plan.counters {
            return Err((Why::Counter, pair));
        }
        self.counters.push(counter.number);
        if counter.saves {
            let origin = self.new.origin(pair.new).ok_or((Why::Origin, pair))?;
            let mut inside = pair;
            for size in [1, counter.size - 2] {
                inside.new = inside.new.plus(size);
                let found =
                    self.new.at(inside.new, &mut self.facts).ok_or((Why::Undecodable, pair))?;
                self.reach(inside, &found)?;
                self.row(inside, origin, 8)?;
                // No thread may be thought to be there: its stack is not the original's.
                if self.new.origin(inside.new).is_some() || self.seen.contains_key(&inside.new) {
                    return Err((Why::Origin, inside));
                }
            }
        } else if !self.original.flags_dead(pair.original, &mut self.facts) {
            return Err((Why::Flags, pair));
        }
        Ok(Pair { new: pair.new.plus(counter.size), ..pair })
    }

    /// What takes time: its stack is not the original's, so no thread may be thought to be in it.
    fn clock(&mut self, pair: Pair, clock: &Clock) -> Outcome<Pair> {
        if pair.shadow || clock.numbers.iter().any(|number| *number >= self.new.plan.counters) {
            return Err((Why::Counter, pair));
        }
        self.clocks.extend(&clock.numbers);
        if !clock.saves && !self.original.flags_dead(pair.original, &mut self.facts) {
            return Err((Why::Flags, pair));
        }
        let origin = self.new.origin(pair.new).ok_or((Why::Origin, pair))?;
        let mut inside = pair;
        for (offset, pushed) in &clock.stack {
            inside.new = pair.new.plus(*offset);
            if *pushed == 0 {
                break;
            }
            let found = self.new.at(inside.new, &mut self.facts).ok_or((Why::Undecodable, pair))?;
            self.reach(inside, &found)?;
            self.row(inside, origin, *pushed)?;
            if self.new.origin(inside.new).is_some() || self.seen.contains_key(&inside.new) {
                return Err((Why::Origin, inside));
            }
        }
        Ok(inside)
    }

    /// The instructions must be the same, and lead to the same.
    fn same(&mut self, pair: Pair, found: &Found<'_>, at: &At<'_>) -> Outcome<Option<Pair>> {
        let address = at.insn.ip();
        let shadow = gs::shadows(&at.insn, at.bytes);
        let next =
            Pair { new: pair.new.plus(found.bytes.len()), original: at.insn.next_ip(), shadow };
        self.exception(pair, address)?;
        self.bug(pair, address)?;
        if let Some(label) = self.original.label(address) {
            self.label(pair, found, label)?;
            self.targets.insert(next.original);
            return Ok(Some(next));
        }
        if let Some(tail) = self.static_call(pair, found, address)? {
            return self.calls(next, tail);
        }
        match (at.flow(), found.facts.flow(&found.insn)) {
            (Flow::Branch(to), Flow::Branch(_)) => return self.branch(pair, found, at, (to, next)),
            (Flow::Call(to), Flow::Call(_)) => {
                let leads = self.new.branch(pair.new, found);
                let same_call = at.bytes.len() == found.bytes.len()
                    && at.bytes[..at.bytes.len() - 4] == found.bytes[..at.bytes.len() - 4];
                match leads {
                    Some(Leads::Entry(address) | Leads::Kernel(address))
                        if address == to && same_call => {}
                    // A function that calls itself.
                    Some(Leads::Own(place))
                        if place == self.entry() && to == self.entry_address() && same_call => {}
                    _ => return Err((Why::Reference, pair)),
                }
            }
            (Flow::Jump(_) | Flow::Branch(_) | Flow::Trap | Flow::Strange, _) => {
                return Err((Why::Instruction, pair));
            }
            _ => self.same_bytes(pair, found, at)?,
        }
        if address == self.fentry_address() {
            self.fentry = Some(pair.new);
        }
        match at.flow() {
            Flow::Call(_) | Flow::IndirectCall => self.calls(next, false),
            Flow::Next => Ok(Some(next)),
            Flow::Stop => {
                let halts = at.bytes == [0xf4];
                let warns = self
                    .original
                    .image
                    .tables
                    .bug(address)
                    .is_some_and(fettle_kernel_image::Bug::goes_on);
                Ok((halts || warns).then_some(next))
            }
            _ => Ok(None),
        }
    }

    /// A comparison of the register that says where the call leads with `with`, and a direct call of that, if it is the
    /// one; else the call as it is. Behind it the flags are of no use: the callee has changed them.
    fn promotion(
        &mut self,
        pair: Pair,
        found: &Found<'_>,
        at: &At<'_>,
        with: u64,
    ) -> Outcome<Pair> {
        if pair.shadow || !self.original.flags_dead(pair.original, &mut self.facts) {
            return Err((Why::Flags, pair));
        }
        let mut inside = Pair { new: pair.new.plus(found.bytes.len()), ..pair };
        let mut next = |walk: &mut Self, flow: fn(Flow) -> bool| {
            let here = inside;
            let found = walk.new.at(here.new, &mut walk.facts).ok_or((Why::Undecodable, here))?;
            if !flow(found.facts.flow(&found.insn)) {
                return Err((Why::Instruction, here));
            }
            walk.seen.insert(here.new, here.original);
            walk.reach(here, &found)?;
            walk.described(here)?;
            inside.new = here.new.plus(found.bytes.len());
            let leads = walk.new.branch(here.new, &found).ok_or((Why::Reference, here))?;
            Ok((leads, found))
        };
        let (other, branch) = next(self, |flow| matches!(flow, Flow::Branch(_)))?;
        let (callee, _) = next(self, |flow| matches!(flow, Flow::Call(_)))?;
        let is_callee = match callee {
            Leads::Entry(address) | Leads::Kernel(address) => address == with,
            Leads::Own(place) => place == self.entry() && with == self.entry_address(),
        };
        if branch.insn.decides() != Some(Decides::Flags(NOT_EQUAL)) || !is_callee {
            return Err((Why::Condition, pair));
        }
        self.arrives(other, pair)?;
        Ok(Pair { original: at.insn.next_ip(), shadow: false, ..inside })
    }

    fn entry(&self) -> Place {
        let of = &self.new.plan.functions[self.new.function as usize];
        Place { part: of.entry, offset: 0 }
    }

    fn entry_address(&self) -> u64 {
        self.new.plan.functions[self.new.function as usize].original
    }

    /// Where the original's place for tracers is.
    fn fentry_address(&self) -> u64 {
        use fettle_kernel_image::Entry;
        let entry = self.entry_address();
        match self.original.image.functions.starting(entry).map(|function| function.entry) {
            Some(Entry::Fentry(behind)) => entry + u64::from(behind),
            _ => u64::MAX,
        }
    }

    /// Behind a call. Where the original has nothing, rewritten text has a trap.
    fn calls(&mut self, next: Pair, tail: bool) -> Outcome<Option<Pair>> {
        if tail {
            return Ok(None);
        }
        let image = self.original.image;
        let caller = image.functions.containing(next.original.wrapping_sub(1));
        let behind = caller.is_some_and(|function| function.range.contains(&next.original));
        let part = self.new.part(next.new.part).ok_or((Why::Outside, next))?;
        if part.text.get(next.new.offset as usize) == Some(&TRAP) {
            if behind {
                return Err((Why::Way, next));
            }
            return self.described(next).map(|()| None);
        }
        Ok(Some(next))
    }

    /// Both have the same bytes but for a distance, which leads to the same.
    fn same_bytes(&self, pair: Pair, found: &Found<'_>, at: &At<'_>) -> Outcome {
        if found.bytes.len() != at.bytes.len() {
            return Err((Why::Instruction, pair));
        }
        if !at.insn.is_ip_rel_memory_operand() {
            if found.reference.is_some() || found.bytes != at.bytes {
                return Err((Why::Instruction, pair));
            }
            return Ok(());
        }
        let field = usize::from(at.insn.ip_rel_field());
        let behind = field + 4;
        let same = found.bytes[..field] == at.bytes[..field]
            && found.bytes[behind..] == at.bytes[behind..];
        if !same {
            return Err((Why::Instruction, pair));
        }
        let expected = Value::Relative {
            target: Target::Kernel(at.insn.ip_rel_memory_address()),
            tail: (at.bytes.len() - behind) as u8,
        };
        let place = pair.new.offset + field as u32;
        match found.reference.filter(|r| r.at == place && r.value == expected) {
            Some(_) => Ok(()),
            None => Err((Why::Reference, pair)),
        }
    }

    fn branch(
        &mut self,
        pair: Pair,
        found: &Found<'_>,
        at: &At<'_>,
        (to, next): (u64, Pair),
    ) -> Outcome<Option<Pair>> {
        let (Some(Decides::Flags(new)), Some(Decides::Flags(old))) =
            (found.insn.decides(), at.insn.decides())
        else {
            return Err((Why::Condition, pair));
        };
        let leads = self.new.branch(pair.new, found).ok_or((Why::Reference, pair))?;
        let (taken, falls) = match new ^ old {
            0 => (to, next.original),
            // The lowest bit of a condition inverts it.
            1 => (next.original, to),
            _ => return Err((Why::Condition, pair)),
        };
        self.targets.extend([to, next.original]);
        self.arrives(leads, Pair { original: taken, shadow: false, ..pair })?;
        Ok(Some(Pair { original: falls, ..next }))
    }

    fn label(
        &mut self,
        pair: Pair,
        found: &Found<'_>,
        label: &fettle_kernel_image::JumpLabel,
    ) -> Outcome {
        let refused = (Why::JumpLabel, pair);
        let part = self.new.part(pair.new.part).ok_or(refused)?;
        let mut own = part.jump_labels.iter().filter(|own| own.at == pair.new.offset);
        let own = own.next().filter(|_| own.next().is_none()).ok_or(refused)?;
        if own.key != label.key {
            return Err(refused);
        }
        self.used.labels += 1;
        let starts_true =
            self.original.image.key_starts_true(label.key_address()).ok_or(refused)?;
        if starts_true == (label.key & 1 != 0) {
            if found.bytes != NOP || found.reference.is_some() {
                return Err(refused);
            }
        } else {
            let long = found.bytes.first() == Some(&JUMP) && found.bytes.len() == 5;
            let leads = self.new.branch(pair.new, found);
            if !long || leads.is_none() || leads != self.new.leads(own.target) {
                return Err(refused);
            }
        }
        self.target(own.target, label.target, pair)
    }

    /// Whether the original has a static call there, and whether it is a tail call; rewritten text must have
    /// the same.
    fn static_call(
        &mut self,
        pair: Pair,
        found: &Found<'_>,
        address: u64,
    ) -> Outcome<Option<bool>> {
        let refused = (Why::StaticCall, pair);
        let part = self.new.part(pair.new.part).ok_or(refused)?;
        let mut own = part.static_calls.iter().filter(|own| own.at == pair.new.offset);
        let (own, second) = (own.next(), own.next());
        let Some(site) = self.original.image.tables.static_call(address) else {
            return if own.is_none() { Ok(None) } else { Err(refused) };
        };
        if second.is_some() || own.is_none_or(|own| own.key != site.key) {
            return Err(refused);
        }
        self.used.static_calls += 1;
        let tail = site.key & 1 != 0;
        let at = self.original.at(address, &mut self.facts).ok_or(refused)?;
        let same = match at.bytes.first() {
            Some(&CALL | &JUMP) => {
                let to = Leads::Kernel(at.insn.near_branch_target());
                found.bytes.len() == SITE
                    && found.bytes[0] == at.bytes[0]
                    && self.new.branch(pair.new, found) == Some(to)
            }
            // It returns, or does nothing. Either way the site has the room of a call.
            _ => {
                let from = pair.new.offset as usize;
                found.reference.is_none()
                    && part.text.get(from..from + SITE) == self.original.image.bytes(address, SITE)
                    && (tail || found.bytes.len() == SITE)
            }
        };
        if same { Ok(Some(tail)) } else { Err(refused) }
    }

    fn exception(&mut self, pair: Pair, address: u64) -> Outcome {
        let refused = (Why::Exception, pair);
        let part = self.new.part(pair.new.part).ok_or(refused)?;
        let mut own = part.exceptions.iter().filter(|own| own.at == pair.new.offset);
        let (own, second) = (own.next(), own.next());
        match (self.original.image.tables.exception(address), own) {
            (None, None) => Ok(()),
            (Some(theirs), Some(own)) if theirs.data == own.data && second.is_none() => {
                self.used.exceptions += 1;
                self.target(own.fixup, theirs.fixup, pair)
            }
            _ => Err(refused),
        }
    }

    fn bug(&mut self, pair: Pair, address: u64) -> Outcome {
        let refused = (Why::Bug, pair);
        let part = self.new.part(pair.new.part).ok_or(refused)?;
        let mut own = part.bugs.iter().filter(|own| own.at == pair.new.offset);
        let (own, second) = (own.next(), own.next());
        match (self.original.image.tables.bug(address), own) {
            (None, None) => Ok(()),
            (Some(theirs), Some(own)) => {
                self.used.bugs += 1;
                let same =
                    (theirs.file, theirs.line, theirs.flags) == (own.file, own.line, own.flags);
                if same && second.is_none() { Ok(()) } else { Err(refused) }
            }
            _ => Err(refused),
        }
    }
}

/// The function that `found` compares a register with, if that register says where the original calls.
fn promoted(register: Option<u8>, pair: Pair, found: &Found<'_>) -> Option<u64> {
    let register = register?;
    let compares = [0x48 | register >> 3, 0x81, 0xf8 | register & 7, 0, 0, 0, 0];
    let reference = found.reference.filter(|_| found.bytes == compares)?;
    match reference.value {
        Value::Absolute32(Target::Kernel(with)) if reference.at == pair.new.offset + 3 => {
            Some(with)
        }
        _ => None,
    }
}
