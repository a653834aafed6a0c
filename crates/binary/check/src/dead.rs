//! What probes change must be dead where they stand.
//!
//! The lifter solves liveness backwards over blocks; here each question is answered on its own,
//! by going forwards from the probe on every path until each changed register is written whole
//! or the path ends. Whatever such a search went through is dead there too, so later searches
//! stop at it.

use fettle_image::LinkAddr;
use fettle_isa::{Gpr, RegSet};
use iced_x86::{Instruction, Mnemonic, Register};

use crate::convention;
use crate::fault::{CheckError, Fault, fail};
use crate::pointer::SCRATCH;
use crate::seen::Step;
use crate::summary::Kind;
use crate::uses::{PASSED, PASSED_IF_SET};
use crate::walk::{PADDING, Walk};

/// Checks every probe that the walk came to.
pub(crate) fn check(walk: &mut Walk<'_, '_>) -> Result<(), CheckError> {
    walk.s.dead.clear();
    walk.s.dead.resize(walk.s.pairs.len(), RegSet::NONE);
    let mut changed = RegSet::NONE;
    let mut below = None;
    for i in 0..walk.s.promoted.len() {
        let at = walk.s.pairs[walk.s.promoted[i].0 as usize].insn.ip();
        changed = changed.union(SCRATCH);
        let compared = SCRATCH.union(RegSet::FLAGS);
        search(walk, at, compared, PASSED.union(PASSED_IF_SET))?;
    }
    for i in 0..walk.s.stretches.len() {
        let stretch = walk.s.stretches[i];
        // What no path comes to does nothing.
        let Some(at) = stretch.at else { continue };
        let summary = walk.shapes.summary(stretch.shape as usize);
        let clobbers = summary.clobbers.union(stretch.before);
        let uses_red_zone = summary.uses_red_zone;
        changed = changed.union(clobbers);
        match stretch.kind {
            Kind::Left => {
                if !clobbers.is_empty() {
                    return fail(at, Fault::Live(clobbers));
                }
            }
            // Nothing below the stack pointer is in use where control leaves.
            Kind::Block | Kind::Own | Kind::UserCall(_) if stretch.leaving => {
                at_exit(walk, at, clobbers)?;
            }
            Kind::CountExit
            | Kind::TimeExit { .. }
            | Kind::EventsExit { .. }
            | Kind::SampleExit
            | Kind::LockLeave
            | Kind::Leave(_) => at_exit(walk, at, clobbers)?,
            // Nothing below the stack pointer is in use where a call puts its own things.
            Kind::Target(_) => {
                search(walk, at, clobbers, PASSED.union(PASSED_IF_SET))?;
            }
            Kind::CountEntry
            | Kind::CountPass
            | Kind::TimedEntry(_)
            | Kind::SampleEntry
            | Kind::Enter(_)
            | Kind::Own
            | Kind::UserCall(_)
            | Kind::LockEnter => {
                search(walk, at, clobbers, PASSED)?;
            }
            Kind::Block => {
                search(walk, at, clobbers, PASSED.union(PASSED_IF_SET))?;
                if uses_red_zone {
                    below = Some(at);
                }
            }
        }
    }
    if let Some(at) = below
        && keeps_below(walk)
    {
        return fail(at, Fault::RedZone);
    }
    kept(walk, changed)
}

/// A probe that changes `clobbers` stands where control leaves, before the pair of `at`.
fn at_exit(walk: &Walk<'_, '_>, at: u64, clobbers: RegSet) -> Result<(), CheckError> {
    let needed = needed_at_exit(walk, at)?;
    let hurt = clobbers.intersection(needed);
    if !hurt.is_empty() {
        return fail(at, Fault::Live(hurt));
    }
    match convention::answer(walk, at, needed) {
        Some(_) if !clobbers.is_empty() => fail(at, Fault::Convention(clobbers)),
        _ => Ok(()),
    }
}

/// What is needed when control leaves at the pair of `at`.
fn needed_at_exit(walk: &Walk<'_, '_>, at: u64) -> Result<RegSet, CheckError> {
    let Some(index) = walk.pair_at(at) else { return fail(at, Fault::RunsOff) };
    let pair = &walk.s.pairs[index];
    Ok(match pair.step() {
        Some(Step::Return) => at_return(walk),
        Some(Step::JumpIndirect) => at_jump_anywhere(walk).union(pair.seen.uses.reads),
        Some(Step::Jump(to) | Step::Branch(to)) => at_jump_out(walk, to),
        // It falls through past its end.
        _ => at_jump_out(walk, pair.insn.next_ip()),
    })
}

/// What the ABI wants, and whatever else is said to be needed.
fn at_tail_call(walk: &Walk<'_, '_>) -> RegSet {
    let said = walk.claim.exits.at_tail_call;
    said.union(RegSet::CALLEE_SAVED).union(RegSet::ARGUMENTS)
}

/// What is needed at a jump to the function at `to`.
fn at_jump_out(walk: &Walk<'_, '_>, to: u64) -> RegSet {
    let callees = walk.context.callees;
    match callees.index.contains_key(&LinkAddr(to)) {
        true => at_tail_call(walk).union(callees.inputs(LinkAddr(to))),
        false => at_jump_anywhere(walk),
    }
}

/// What is needed at a jump to a function that is not known: what others are passed through pointers,
/// and all that was passed to a function that only hands it on.
fn at_jump_anywhere(walk: &Walk<'_, '_>) -> RegSet {
    match convention::hands_on(walk) {
        true => RegSet::ALL,
        false => at_tail_call(walk).union(walk.context.callees.pointed),
    }
}

fn at_return(walk: &Walk<'_, '_>) -> RegSet {
    walk.claim.exits.at_return.union(RegSet::CALLEE_SAVED).union(RegSet::RESULTS)
}

/// Wants `changed` to be dead at `at`; calls read `passed`.
fn search(
    walk: &mut Walk<'_, '_>,
    at: u64,
    changed: RegSet,
    passed: RegSet,
) -> Result<(), CheckError> {
    let mut work = std::mem::take(&mut walk.s.search);
    work.clear();
    work.push((at, changed));
    let mut result = Ok(());
    while let Some((a, set)) = work.pop() {
        result = path(walk, a, set, passed, &mut work)
            .map_err(|hurt| CheckError { at: LinkAddr(at), what: Fault::Live(hurt) });
        if result.is_err() {
            break;
        }
    }
    walk.s.search = work;
    result
}

/// Goes on from `a` as far as control goes straight on.
fn path(
    walk: &mut Walk<'_, '_>,
    mut a: u64,
    mut set: RegSet,
    passed: RegSet,
    work: &mut Vec<(u64, RegSet)>,
) -> Result<(), RegSet> {
    let unless = |hurt: RegSet| if hurt.is_empty() { Ok(()) } else { Err(hurt) };
    loop {
        let Some(index) = walk.pair_at(a) else {
            return match walk.s.runs_on.contains(&a) {
                true => unless(set.intersection(at_jump_out(walk, a))),
                // Behind a noreturn call there may be nothing.
                false => Ok(()),
            };
        };
        set = set.minus(walk.s.dead[index]);
        if set.is_empty() {
            return Ok(());
        }
        walk.s.dead[index] = walk.s.dead[index].union(set);
        let pair = walk.s.pairs[index];
        let own = pair.seen.uses;
        unless(set.intersection(own.reads))?;
        set = set.minus(own.kills);
        match pair.step() {
            Some(Step::Next | Step::Trap) => {}
            Some(Step::Call(to)) => {
                let inputs = walk.context.callees.inputs(LinkAddr(to));
                unless(set.intersection(passed.union(inputs)))?;
                let clobbers = walk.context.callees.clobbers(LinkAddr(to));
                if !walk.claim.keeps && !convention::keeps(walk, index, clobbers) {
                    set = set.minus(clobbers.minus(RegSet::FLAGS));
                }
            }
            Some(Step::CallIndirect) => {
                unless(set.intersection(passed.union(walk.context.callees.pointed)))?;
                if !walk.claim.keeps && !convention::keeps(walk, index, RegSet::CALLER_SAVED) {
                    set = set.minus(RegSet::CALLER_SAVED);
                }
            }
            Some(Step::Jump(to)) if walk.contains(to) => {
                a = to;
                continue;
            }
            Some(Step::Branch(to)) if walk.contains(to) => work.push((to, set)),
            Some(Step::Branch(to)) => unless(set.intersection(at_jump_out(walk, to)))?,
            Some(Step::Jump(to)) => return unless(set.intersection(at_jump_out(walk, to))),
            Some(Step::JumpIndirect) => {
                let Some(table) = walk.table_of(pair.insn.ip()) else {
                    return unless(set.intersection(at_jump_anywhere(walk)));
                };
                let targets = walk.claim.function.tables[table].targets();
                work.extend(targets.map(|to| (to.0, set)));
                return Ok(());
            }
            Some(Step::Return) => return unless(set.intersection(at_return(walk))),
            Some(Step::Stop) | None => return Ok(()),
        }
        a = pair.insn.next_ip();
    }
}

/// Whether the function keeps anything below the stack pointer. Compilers do so in functions
/// that call nothing; in others only an explicit operand says so.
fn keeps_below(walk: &Walk<'_, '_>) -> bool {
    let pairs = || (0..walk.s.pairs.len()).filter(|i| walk.s.pairs[*i].new < PADDING);
    let calls = pairs().any(|i| walk.s.pairs[i].seen.is_call());
    let insns: Vec<Instruction> = pairs().map(|i| walk.full(i)).collect();
    // Registers that may hold an address of the stack, whatever the path.
    let mut stack = RegSet::of(&[Gpr::Rsp]);
    if !calls {
        loop {
            let before = stack;
            for insn in &insns {
                if !matches!(insn.mnemonic(), Mnemonic::Mov | Mnemonic::Lea | Mnemonic::Add) {
                    continue;
                }
                let Some(to) = Gpr::containing(insn.op0_register()) else { continue };
                let from = match insn.mnemonic() {
                    Mnemonic::Lea => [insn.memory_base(), insn.memory_index()],
                    _ => [insn.op1_register(), Register::None],
                };
                let tainted = |r: Register| Gpr::containing(r).is_some_and(|r| stack.contains(r));
                if from.into_iter().any(tainted) {
                    stack.insert(to);
                }
            }
            if stack == before {
                break;
            }
        }
    }
    insns.iter().any(|insn| {
        Gpr::containing(insn.memory_base()).is_some_and(|b| stack.contains(b))
            && (insn.memory_displacement64() as i64) < 0
    })
}

/// Callers that know the function (`-fipa-ra`) may count on registers that it does not write:
/// of those, probes may change none.
fn kept(walk: &Walk<'_, '_>, changed: RegSet) -> Result<(), CheckError> {
    let mut kept = changed.minus(RegSet::FLAGS);
    for pair in walk.s.pairs.iter().filter(|p| p.new < PADDING) {
        if kept.is_empty() {
            return Ok(());
        }
        kept = kept.minus(match pair.step() {
            Some(Step::CallIndirect) => RegSet::CALLER_SAVED,
            Some(Step::JumpIndirect) if walk.table_of(pair.insn.ip()).is_none() => {
                RegSet::CALLER_SAVED
            }
            Some(Step::Call(to)) => walk.context.callees.clobbers(LinkAddr(to)),
            Some(Step::Jump(to) | Step::Branch(to)) if !walk.contains(to) => {
                walk.context.callees.clobbers(LinkAddr(to))
            }
            _ => pair.seen.uses.writes,
        });
    }
    for to in &walk.s.runs_on {
        kept = kept.minus(walk.context.callees.clobbers(LinkAddr(*to)));
    }
    // A noreturn function keeps no promise.
    for i in 0..walk.s.stretches.len() {
        let stretch = walk.s.stretches[i];
        let Some(at) = stretch.at else { continue };
        let clobbers = walk.shapes.summary(stretch.shape as usize).clobbers;
        let hurt = clobbers.union(stretch.before).intersection(kept);
        if !hurt.is_empty() && leaves(walk, at) {
            return fail(at, Fault::Kept(hurt));
        }
    }
    Ok(())
}

/// Whether control can leave the function from `at` on.
fn leaves(walk: &Walk<'_, '_>, at: u64) -> bool {
    let mut seen = vec![false; walk.s.pairs.len()];
    let mut work = vec![at];
    while let Some(a) = work.pop() {
        let Some(index) = walk.pair_at(a) else {
            if walk.s.runs_on.contains(&a) {
                return true;
            }
            continue;
        };
        if std::mem::replace(&mut seen[index], true) {
            continue;
        }
        let pair = &walk.s.pairs[index];
        let (insn, next) = (&pair.insn, pair.insn.next_ip());
        match pair.step() {
            Some(Step::Next | Step::Trap | Step::Call(_) | Step::CallIndirect) => work.push(next),
            Some(Step::Jump(to)) if walk.contains(to) => work.push(to),
            Some(Step::Branch(to)) if walk.contains(to) => work.extend([next, to]),
            Some(Step::JumpIndirect) => match walk.table_of(insn.ip()) {
                Some(t) => {
                    let targets = walk.claim.function.tables[t].targets();
                    work.extend(targets.map(|to| to.0));
                }
                None => return true,
            },
            Some(Step::Stop) | None => {}
            Some(Step::Return | Step::Jump(_) | Step::Branch(_)) => return true,
        }
        // A handler may return, too.
        if pair.seen.is_call() {
            work.extend_from_slice(&walk.pads);
        }
    }
    false
}
