//! Jumps through tables become switches over the index.
//!
//! What a table holds are addresses, which are far apart: comparing them takes a search. The index is a
//! small number, for which the host has a jump of its own.

use rustc_hash::FxHashMap;

use crate::flow::{Liveness, Summaries};
use crate::image::Image;
use crate::ir::{Bin, Block, BlockId, Cmp, Cond, End, Expr, Function, Stmt, Var, Width};

/// Entries of one table; a larger one keeps its addresses.
const ENTRIES_MAX: u32 = 1024;

/// An entry of a table: which one, where the table is, and what is added to what it holds.
struct Entry {
    index: Expr,
    base: u32,
    add: u32,
}

/// Replaces addresses by indexes wherever a table cannot change.
pub fn by_index(image: &Image, function: &mut Function, summaries: &Summaries) {
    let mut found = Vec::new();
    let liveness = Liveness::of(function, summaries);
    for (id, block) in function.blocks.iter().enumerate() {
        let End::Jump { to, targets } = &block.end else { continue };
        let (at, address) = match to {
            Expr::Var(var) => {
                let Some(at) = only_for_the_end(function, &liveness, id, *var) else { continue };
                let (_, Stmt::Set(_, address)) = &block.steps[at] else { continue };
                (Some(at), address)
            }
            address => (None, address),
        };
        let Some(entry) = entry(address) else { continue };
        let by_address: FxHashMap<u32, BlockId> = targets.iter().copied().collect();
        let before = &block.steps[..at.unwrap_or(block.steps.len())];
        let Some(count) = limit(function, &liveness, id, before, &entry.index) else { continue };
        let target = |index: u32| {
            let word = image.label(entry.base.wrapping_add(index * 4))?;
            Some((index, *by_address.get(&word.wrapping_add(entry.add))?))
        };
        // A mask may let through more than the table has: nothing known is there.
        let keys: Vec<(u32, BlockId)> = (0..count).filter_map(target).collect();
        if keys.len() > 1 {
            found.push((id, at, entry.index, keys));
        }
    }
    for (id, at, index, targets) in found {
        let block = &mut function.blocks[id];
        let to = match at {
            Some(at) => {
                block.steps[at].1 = Stmt::Set(Var::INDEX, index);
                Expr::Var(Var::INDEX)
            }
            None => index,
        };
        block.end = End::Jump { to, targets };
    }
}

/// How many values an index can have: what it is masked by, or compared with before the block.
fn limit(
    function: &Function,
    liveness: &Liveness,
    id: BlockId,
    before: &[(u32, Stmt)],
    index: &Expr,
) -> Option<u32> {
    let in_range = |count: u32| (2..=ENTRIES_MAX).contains(&count).then_some(count);
    if let Expr::Bin(Bin::And, _, mask) = index
        && let Expr::Int(mask) = **mask
    {
        return in_range((mask as u32).saturating_add(1));
    }
    let Expr::Var(var) = index else { return None };
    let sets = |(_, step): &(u32, Stmt)| {
        let sometimes = matches!(step, Stmt::SetIf(_, set, _) if set == var);
        sometimes || liveness.kills(step) & var.bit() != 0
    };
    if before.iter().any(sets) {
        return None;
    }
    let leads_here = |block: &&Block| block.end.successors().contains(&id);
    let mut earlier = function.blocks.iter().filter(leads_here);
    let (Some(only), None) = (earlier.next(), earlier.next()) else { return None };
    let End::If(Cond::Int(cmp, compared, Expr::Int(count)), yes, no) = &only.end else {
        return None;
    };
    let inside = match cmp {
        Cmp::LtU => *yes == id && *no != id,
        Cmp::GeU => *no == id && *yes != id,
        _ => false,
    };
    if inside && compared == index { in_range(*count as u32) } else { None }
}

/// The step that sets a variable which nothing but the end of the block reads.
fn only_for_the_end(
    function: &Function,
    liveness: &Liveness,
    id: BlockId,
    var: Var,
) -> Option<usize> {
    if liveness.at_end(function, id).has(var) {
        return None;
    }
    let steps = &function.blocks[id].steps;
    let at = steps.iter().rposition(|(_, step)| liveness.kills(step) & var.bit() != 0)?;
    let mut read = false;
    for (_, step) in &steps[at + 1..] {
        step.visit(&mut |e| read |= *e == Expr::Var(var));
        read |= liveness.hidden_reads(step) & var.bit() != 0;
        read |= matches!(step, Stmt::SetIf(_, set, _) if *set == var);
    }
    (!read).then_some(at)
}

fn entry(address: &Expr) -> Option<Entry> {
    let (load, add) = match address {
        Expr::Bin(Bin::Add, load, add) => match **add {
            Expr::Int(add) => (&**load, add as u32),
            _ => return None,
        },
        load => (load, 0),
    };
    let Expr::Load(Width::I32, place, _) = load else { return None };
    let Expr::Bin(Bin::Add, scaled, base) = &**place else { return None };
    let (Expr::Bin(Bin::Shl, index, by), Expr::Int(base)) = (&**scaled, &**base) else {
        return None;
    };
    (**by == Expr::Int(2)).then(|| Entry { index: (**index).clone(), base: *base as u32, add })
}
