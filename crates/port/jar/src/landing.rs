//! Labels to which other functions jump: GCC's `__builtin_setjmp`, and `goto` out of nested functions.
//!
//! Both leave the frames in between without a call of any library. What jumps has three values: the label,
//! the frame pointer that the code at the label expects, and the stack pointer. That code counts on
//! nothing else, so that the function's state just behind the set-up of its frame is right for it: there
//! the function gets a step that returns again, as a call of `setjmp` does.

use std::collections::BTreeSet;

use crate::convention::Convention;
use crate::helpers;
use crate::image::Image;
use crate::ir::{Bin, Block, BlockId, Cmp, Cond, End, Expr, Function, Stmt, Var, Width};

const SP: Var = Var(29);

/// Whether a block takes the stack pointer from memory before its jump: it leaves its own frame.
pub fn leaves_frame(block: &Block) -> bool {
    let mut loaded = 0_u64;
    let mut leaves = false;
    for (_, step) in &block.steps {
        let Stmt::Set(var, value) = step else { continue };
        let is_loaded = match value {
            Expr::Load(Width::I32, ..) => true,
            Expr::Var(from) => loaded & from.bit() != 0,
            _ => false,
        };
        loaded = if is_loaded { loaded | var.bit() } else { loaded & !var.bit() };
        leaves |= *var == SP && is_loaded;
    }
    leaves
}

/// The step that jumps to a label of another function's frame.
pub fn jump(convention: Convention, to: Expr) -> Stmt {
    let arguments = vec![to, Expr::Var(convention.frame()), Expr::Var(SP)];
    Stmt::Do(Expr::Help(&helpers::JUMP_AWAY, arguments))
}

/// Where a function jumps to with a frame of another one, as far as its code says.
pub fn targets(function: &Function) -> BTreeSet<u32> {
    let steps = function.blocks.iter().flat_map(|block| &block.steps);
    let target = |(_, step): &(u32, Stmt)| match step {
        Stmt::Do(Expr::Help(helper, arguments)) if **helper == helpers::JUMP_AWAY => {
            match arguments[0] {
                Expr::Int(to) => Some(to as u32),
                _ => None,
            }
        }
        _ => None,
    };
    steps.filter_map(target).collect()
}

/// Labels that a function stores beside its stack pointer, for others to jump to.
pub fn stored(image: &Image, function: &Function) -> BTreeSet<u32> {
    let range = function.entry + 1..image.end_of(function.entry);
    let inside = |label: u32| {
        let named = image.function_at(label).is_some();
        !named && image.is_code(label) && (range.contains(&label) || image.is_cold(label))
    };
    let mut found = BTreeSet::new();
    for block in &function.blocks {
        let stores = block.steps.iter().filter_map(|(_, step)| match step {
            Stmt::Store(Width::I32, _, value) => Some(value),
            _ => None,
        });
        let (mut stack, mut labels) = (false, Vec::new());
        for value in stores {
            match value {
                Expr::Var(SP) => stack = true,
                Expr::Int(label) if inside(*label as u32) => labels.push(*label as u32),
                _ => {}
            }
        }
        if stack {
            found.extend(labels);
        }
    }
    found
}

/// Whether a step moves the stack pointer by what only the frame pointer undoes.
fn allocates(function: &Function, id: BlockId, step: &Stmt) -> bool {
    let Stmt::Set(SP, value) = step else { return false };
    let frame = Expr::Var(function.convention.frame());
    match value {
        Expr::Bin(Bin::Add, base, by) if **base == Expr::Var(SP) => match **by {
            // The function's own frame is made in its first block.
            Expr::Int(by) => by < 0 && id != 0,
            _ => true,
        },
        Expr::Bin(Bin::Add, base, by) => **base != frame || !matches!(**by, Expr::Int(_)),
        value => *value != frame,
    }
}

/// Behind which step of the first block its function knows its frame, and the number that tells this
/// frame from others: the stack pointer, or the frame pointer where the other one is moved again.
fn anchor(function: &Function) -> Option<(usize, Expr)> {
    let frame = function.convention.frame();
    let mut blocks = function.blocks.iter().enumerate();
    let moves = blocks.any(|(id, b)| b.steps.iter().any(|(_, s)| allocates(function, id, s)));
    let (pointer, mark) = if moves { (frame, 1) } else { (SP, 2) };
    let steps = &function.blocks[0].steps;
    let calls = steps.iter().position(|(_, step)| matches!(step, Stmt::Call { .. }));
    let before = &steps[..calls.unwrap_or(steps.len())];
    let last = |pointer: Var| {
        let sets = |(_, step): &(u32, Stmt)| matches!(step, Stmt::Set(var, _) if *var == pointer);
        before.iter().rposition(sets)
    };
    last(pointer)?;
    // What comes to a label finds both.
    let at = last(SP).max(last(frame))?;
    // Buffers of `setjmp` and both pointers are multiples of four.
    Some((at, Expr::bin(Bin::Or, Expr::Var(pointer), Expr::Int(mark))))
}

/// Lets jumps of others come to blocks. A function without a frame has no place that such a jump could mean.
pub fn insert(function: &mut Function, labels: Vec<(u32, BlockId)>) {
    if labels.is_empty() {
        return;
    }
    let Some((at, key)) = anchor(function) else { return };
    let count = function.blocks.len();
    let (check, landed, rest) = (count, count + 1, count + 2);
    let block = &mut function.blocks[0];
    let pc = block.steps[at].0;
    let behind = block.steps.split_off(at + 1);
    block.steps.push((pc, Stmt::Set(Var::FRAME, key)));
    block.steps.push((pc, Stmt::Land { pc }));
    let end = std::mem::replace(&mut block.end, End::Goto(check));
    let is_landed = Cond::Int(Cmp::Ne, Expr::Var(Var::LANDED), Expr::Int(0));
    let stack = Stmt::Set(SP, Expr::Help(&helpers::LANDED_STACK, Vec::new()));
    function.blocks.extend([
        Block { pc, steps: Vec::new(), end: End::If(is_landed, landed, rest) },
        Block {
            pc,
            steps: vec![(pc, stack)],
            end: End::Jump { to: Expr::Var(Var::LANDED), targets: labels },
        },
        Block { pc, steps: behind, end },
    ]);
}

/// By which variable a step that returns again, which is this or a call of `setjmp`, knows its buffer, and
/// in which it has its result.
pub fn second_return(step: &Stmt) -> (Var, Var) {
    match step {
        Stmt::Land { .. } => (Var::FRAME, Var::LANDED),
        _ => (Var(4), Var(2)),
    }
}
