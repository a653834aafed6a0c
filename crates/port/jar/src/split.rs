//! No method over 8,000 bytes of bytecode.
//!
//! HotSpot never compiles a larger one, which makes a program ten to a thousand times slower. A
//! function that is too large becomes several methods, and one that calls them in turn. Registers go
//! from one to the other through arrays, which costs: so loops are kept whole where they fit, and
//! what is cut apart is the largest loop first, never by address.

use rustc_hash::FxHashMap;

use crate::classfile::Class;
use crate::emit::{self, Again, Extent, PART, Program};
use crate::error::Error;
use crate::flow::{Liveness, Summaries};
use crate::ir::{Block, BlockId, End, Function, Stmt};

/// HotSpot's `HugeMethodLimit`: a method of more bytes is never compiled.
pub const METHOD_MAX: usize = 8000;

/// A block that is larger is cut, so that every part can be made small enough.
const BLOCK_MAX: usize = 1500;

/// The most that blocks of one part may have, without the ways in and out that come on top.
const PART_MAX: usize = 7000;

/// Loops that are larger are divided at first.
const UNIT_MAX: usize = 5200;

/// How large parts are to become with their ways in and out.
const AIM: usize = 7700;

/// How often parts are made smaller.
const ATTEMPTS: usize = 40;

/// What an access to memory adds to a method when C2 inlines it, which it does up to 8,000 bytes in all; behind
/// them each access is a call. By measurement: its 40 bytes make more parts, and these are no faster.
const ACCESS: usize = 30;

/// How often that is tried: a loop that is kept whole may have too many accesses.
const INLINING_ATTEMPTS: usize = 6;

/// What became of a function.
pub struct Added {
    /// How large its largest method is.
    pub largest: usize,
    /// Whether it has more than one.
    pub is_divided: bool,
}

/// Adds a function to a class, as one method or as many.
pub fn add(
    program: &Program,
    function: &Function,
    summaries: &Summaries,
    class: &mut Class,
) -> Result<Added, Error> {
    let method = &program.methods[&function.entry];
    let descriptor = method.signature.descriptor();
    let liveness = Liveness::of(function, summaries);
    let whole = emit::emit(program, function, &liveness, &Extent::Whole, &mut class.pool);
    let size = whole.code.len();
    let accesses: usize = function.blocks.iter().map(Block::accesses).sum();
    if size + ACCESS * accesses <= METHOD_MAX {
        class.method(&method.name, &descriptor, true, whole.code);
        return Ok(Added { largest: size, is_divided: false });
    }
    let mut function = function.clone();
    let mut sizes = whole.sizes;
    cut_blocks(&mut function, &mut sizes);
    cut_second_returns(program, &mut function, &mut sizes);
    let liveness = Liveness::of(&function, summaries);
    let agains = emit::agains(program, &function, &liveness);
    let mut unit = UNIT_MAX;
    let mut budgets = Vec::new();
    for attempt in 0..ATTEMPTS {
        if attempt == INLINING_ATTEMPTS && size <= METHOD_MAX {
            // No part would be better off than the whole.
            class.method(&method.name, &descriptor, true, whole.code);
            return Ok(Added { largest: size, is_divided: false });
        }
        let parts = partition(&function, &sizes, unit, &budgets);
        let divided = (&function, &sizes[..], &parts[..]);
        let inlined = if attempt < INLINING_ATTEMPTS { ACCESS } else { 0 };
        let lengths = match emit_parts(program, divided, summaries, &agains, inlined, class) {
            Ok(largest) => return Ok(Added { largest, is_divided: true }),
            Err(lengths) => lengths,
        };
        let first = budgets.is_empty();
        budgets.resize(parts.len(), PART_MAX);
        let mut is_stuck = false;
        for ((blocks, length), budget) in parts.iter().zip(lengths).zip(&mut budgets) {
            let size: usize = blocks.iter().map(|&id| sizes[id]).sum();
            is_stuck |= length > METHOD_MAX && size > *budget;
            // What comes on top of the blocks, by what it was. Later parts begin elsewhere next time.
            if first || length > METHOD_MAX {
                *budget = (size * AIM / length).min(PART_MAX);
            }
        }
        if is_stuck {
            unit = unit * 3 / 4;
            budgets.clear();
        }
    }
    Err(Error::Untranslatable {
        function: function.name,
        address: function.entry,
        reason: "no way was found to divide it into methods of 8,000 bytes".into(),
    })
}

/// Adds the methods of a divided function: how large the largest is. If one is too large, how large the parts
/// are. An access to memory counts `inlined` bytes.
fn emit_parts(
    program: &Program,
    (function, sizes, parts): (&Function, &[usize], &[Vec<BlockId>]),
    summaries: &Summaries,
    agains: &[Again],
    inlined: usize,
    class: &mut Class,
) -> Result<usize, Vec<usize>> {
    let method = &program.methods[&function.entry];
    let (mut function, mut sizes, mut parts) = (function.clone(), sizes.to_vec(), parts.to_vec());
    repeat_hubs(&mut function, &mut sizes, &mut parts);
    let liveness = Liveness::of(&function, summaries);
    let numbers = numbers(&function, &parts, agains);
    let mut codes = Vec::new();
    for blocks in &parts {
        let entries: Vec<BlockId> =
            blocks.iter().copied().filter(|id| numbers.contains_key(id)).collect();
        let extent = Extent::Part { blocks, numbers: &numbers, entries: &entries, agains };
        let part = emit::emit(program, &function, &liveness, &extent, &mut class.pool);
        let entries = entries.iter().map(|id| numbers[id]).collect();
        codes.push((format!("{}$part{}", method.name, codes.len()), entries, part.code));
    }
    let accesses = |part: &Vec<BlockId>| -> usize {
        part.iter().map(|&id| function.blocks[id].accesses()).sum()
    };
    let lengths: Vec<usize> = codes
        .iter()
        .zip(&parts)
        .map(|((.., code), part)| code.len() + inlined * accesses(part))
        .collect();
    if lengths.iter().any(|&length| length > METHOD_MAX) {
        return Err(lengths);
    }
    let names: Vec<(String, Vec<i32>)> =
        codes.iter().map(|(name, entries, _)| (name.clone(), Vec::clone(entries))).collect();
    let driver = emit::emit_driver(program, &function, &names, &numbers, agains, &mut class.pool);
    if driver.len() > METHOD_MAX {
        return Err(lengths);
    }
    let mut largest = driver.len();
    class.method(&method.name, &method.signature.descriptor(), true, driver);
    for (name, _, code) in codes {
        largest = largest.max(code.len());
        class.method(&name, PART, true, code);
    }
    Ok(largest)
}

/// Cuts blocks that are too large into pieces that follow one another.
fn cut_blocks(function: &mut Function, sizes: &mut Vec<usize>) {
    for id in 0..function.blocks.len() {
        let pieces = sizes[id].div_ceil(BLOCK_MAX);
        let count = function.blocks[id].steps.len();
        if pieces < 2 || count < pieces {
            continue;
        }
        let each = count.div_ceil(pieces);
        let block = &mut function.blocks[id];
        let mut rest = block.steps.split_off(each);
        let last_end = std::mem::replace(&mut block.end, End::Goto(0));
        sizes[id] = sizes[id] * each / count;
        let mut before = id;
        while !rest.is_empty() {
            let more = if rest.len() > each { rest.split_off(each) } else { Vec::new() };
            let next = function.blocks.len();
            let pc = rest[0].0;
            sizes.push(sizes[id]);
            function.blocks.push(Block { pc, steps: rest, end: End::Goto(0) });
            function.blocks[before].end = End::Goto(next);
            before = next;
            rest = more;
        }
        function.blocks[before].end = last_end;
    }
}

/// Steps of a block that is repeated, and targets of the jump that makes it worth it.
const HUB_STEPS_MAX: usize = 8;
const HUB_TARGETS: usize = 8;

/// Gives each part its own copy of the blocks that choose between many: in an interpreter's loop
/// the way from one case to the next then leads out of a part once, or not at all.
fn repeat_hubs(function: &mut Function, sizes: &mut Vec<usize>, parts: &mut [Vec<BlockId>]) {
    let small = |block: &Block| {
        let plain = |(_, step): &(u32, Stmt)| !matches!(step, Stmt::Call { .. });
        block.steps.len() <= HUB_STEPS_MAX && block.steps.iter().all(plain)
    };
    let chooses = |block: &Block| match &block.end {
        End::Jump { targets, .. } => small(block) && targets.len() >= HUB_TARGETS,
        _ => false,
    };
    let leads_to_choice = |block: &Block| match &block.end {
        End::If(_, yes, no) => {
            small(block) && [yes, no].into_iter().any(|&next| chooses(&function.blocks[next]))
        }
        End::Goto(next) => small(block) && chooses(&function.blocks[*next]),
        _ => false,
    };
    let is_hub: Vec<bool> =
        function.blocks.iter().map(|block| chooses(block) || leads_to_choice(block)).collect();
    for part in parts {
        let mut copies: FxHashMap<BlockId, BlockId> = FxHashMap::default();
        let mut at = 0;
        // Copies are looked at as well: they may lead to others.
        while at < part.len() {
            let id = part[at];
            for next in function.blocks[id].end.successors() {
                if !is_hub.get(next).is_some_and(|&hub| hub) || part.contains(&next) {
                    continue;
                }
                let copy = *copies.entry(next).or_insert_with(|| {
                    let copy = function.blocks.len();
                    let block = function.blocks[next].clone();
                    function.blocks.push(block);
                    sizes.push(sizes[next]);
                    part.push(copy);
                    copy
                });
                function.blocks[id].end.redirect(next, copy);
            }
            at += 1;
        }
    }
}

/// Ends blocks with calls of `setjmp`: where its second return goes on is a block of its own.
fn cut_second_returns(program: &Program, function: &mut Function, sizes: &mut Vec<usize>) {
    let mut id = 0;
    // New blocks are looked at as well.
    while id < function.blocks.len() {
        let steps = &function.blocks[id].steps;
        let call = steps.iter().position(|(_, step)| program.returns_again(function, step));
        if let Some(call) = call
            && call + 1 < steps.len()
        {
            let next = function.blocks.len();
            let size = sizes[id] / steps.len();
            let block = &mut function.blocks[id];
            let rest = block.steps.split_off(call + 1);
            let end = std::mem::replace(&mut block.end, End::Goto(next));
            sizes[id] = size * block.steps.len();
            sizes.push(size * rest.len());
            function.blocks.push(Block { pc: rest[0].0, steps: rest, end });
        } else if call.is_some()
            && !matches!(function.blocks[id].end, End::Goto(_) | End::Invoke { .. })
        {
            let next = function.blocks.len();
            let block = &mut function.blocks[id];
            let end = std::mem::replace(&mut block.end, End::Goto(next));
            let pc = block.pc;
            sizes.push(sizes[id]);
            function.blocks.push(Block { pc, steps: Vec::new(), end });
        }
        id += 1;
    }
}

/// Numbers for the first block, for those that are reached from other parts, and for those that a
/// second return reaches.
fn numbers(
    function: &Function,
    parts: &[Vec<BlockId>],
    agains: &[Again],
) -> FxHashMap<BlockId, i32> {
    let mut part_of = vec![usize::MAX; function.blocks.len()];
    for (part, blocks) in parts.iter().enumerate() {
        blocks.iter().for_each(|&id| part_of[id] = part);
    }
    let mut reached = vec![false; function.blocks.len()];
    reached[0] = true;
    agains.iter().for_each(|again| reached[again.block] = true);
    for (id, block) in function.blocks.iter().enumerate() {
        for next in block.end.successors() {
            reached[next] |= part_of[id] != part_of[next];
        }
    }
    let reached = parts.iter().flatten().filter(|&&id| reached[id]);
    reached.enumerate().map(|(number, &id)| (id, number as i32)).collect()
}

/// Blocks by parts, each with a budget of its own: none is over it, unless one unit alone is.
fn partition(
    function: &Function,
    sizes: &[usize],
    unit: usize,
    budgets: &[usize],
) -> Vec<Vec<BlockId>> {
    let all: Vec<BlockId> = (0..function.blocks.len()).collect();
    let mut units = Vec::new();
    divide(function, sizes, unit, &all, 0, &mut units);
    let mut parts: Vec<Vec<BlockId>> = Vec::new();
    let mut size = usize::MAX;
    for unit in units {
        let more: usize = unit.iter().map(|&id| sizes[id]).sum();
        let index = parts.len().saturating_sub(1);
        let budget = budgets.get(index).copied().unwrap_or(PART_MAX);
        match parts.last_mut() {
            Some(last) if size.saturating_add(more) <= budget => {
                last.extend(unit);
                size += more;
            }
            _ => {
                parts.push(unit);
                size = more;
            }
        }
    }
    parts
}

/// Loops that fit are units; of others the first block is one, and what remains is divided again.
fn divide(
    function: &Function,
    sizes: &[usize],
    budget: usize,
    blocks: &[BlockId],
    first: BlockId,
    units: &mut Vec<Vec<BlockId>>,
) {
    for component in components(function, blocks, first) {
        let size: usize = component.iter().map(|&id| sizes[id]).sum();
        if component.len() == 1 || size <= budget {
            units.push(component);
            continue;
        }
        let head = entry_of(function, &component, first);
        units.push(vec![head]);
        let rest: Vec<BlockId> = component.into_iter().filter(|&id| id != head).collect();
        let next =
            rest.iter().copied().find(|id| function.blocks[head].end.successors().contains(id));
        divide(function, sizes, budget, &rest, next.unwrap_or(rest[0]), units);
    }
}

/// The block through which a loop is entered: the first that something outside leads to.
fn entry_of(function: &Function, component: &[BlockId], first: BlockId) -> BlockId {
    if component.contains(&first) {
        return first;
    }
    let inside: std::collections::BTreeSet<BlockId> = component.iter().copied().collect();
    let mut entered: Vec<BlockId> = Vec::new();
    for (id, block) in function.blocks.iter().enumerate() {
        if !inside.contains(&id) {
            entered.extend(block.end.successors().iter().filter(|next| inside.contains(next)));
        }
    }
    entered.into_iter().min_by_key(|&id| function.blocks[id].pc).unwrap_or(component[0])
}

/// Strongly connected components in an order in which none leads back to an earlier one.
fn components(function: &Function, blocks: &[BlockId], first: BlockId) -> Vec<Vec<BlockId>> {
    const NONE: usize = usize::MAX;
    let count = function.blocks.len();
    let mut inside = vec![false; count];
    blocks.iter().for_each(|&id| inside[id] = true);
    let (mut index, mut low) = (vec![NONE; count], vec![NONE; count]);
    let mut on_stack = vec![false; count];
    let (mut stack, mut found, mut next_index) = (Vec::new(), Vec::new(), 0);
    let roots = std::iter::once(first).chain(blocks.iter().copied());
    for root in roots {
        if index[root] != NONE || !inside[root] {
            continue;
        }
        // Without recursion: a block, its successors, and how many of them are done.
        let successors = |id: BlockId| {
            let mut next = function.blocks[id].end.successors();
            next.retain(|id| inside[*id]);
            next
        };
        let mut work = vec![(root, successors(root), 0)];
        index[root] = next_index;
        low[root] = next_index;
        next_index += 1;
        stack.push(root);
        on_stack[root] = true;
        while let Some((id, next, done)) = work.last_mut() {
            let id = *id;
            if let Some(&to) = next.get(*done) {
                *done += 1;
                if index[to] == NONE {
                    index[to] = next_index;
                    low[to] = next_index;
                    next_index += 1;
                    stack.push(to);
                    on_stack[to] = true;
                    work.push((to, successors(to), 0));
                } else if on_stack[to] {
                    low[id] = low[id].min(index[to]);
                }
                continue;
            }
            work.pop();
            if let Some((parent, ..)) = work.last() {
                low[*parent] = low[*parent].min(low[id]);
            }
            if low[id] == index[id] {
                let at = stack.iter().rposition(|&each| each == id).unwrap_or(0);
                let mut component = stack.split_off(at);
                component.iter().for_each(|&each| on_stack[each] = false);
                component.sort_by_key(|&each| (function.blocks[each].pc, each));
                found.push(component);
            }
        }
    }
    found.reverse();
    found
}
