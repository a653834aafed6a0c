//! Functions that the runtime replaces: what they do to the stack, no translation of their code can.

use crate::convention::Convention;
use crate::helpers;
use crate::image::Image;
use crate::ir::{Block, End, Expr, Function, Helper, Stmt, Var};

const V0: Var = Var(2);
const SP: Var = Var(29);

/// `_URC_END_OF_STACK`: what the unwinder says when there is nothing more to see.
const END_OF_STACK: i32 = 5;

/// What a function of this name is instead of its code; none if its code is translated.
pub fn function(image: &Image, entry: u32, library: bool) -> Option<Function> {
    let name = image.function_at(entry)?;
    let arguments = |count: u8| (4..4 + count).map(|number| Expr::Var(Var(number))).collect();
    let with_stack = |count: u8| {
        let mut values: Vec<Expr> = arguments(count);
        values.push(Expr::Var(SP));
        values
    };
    let (step, end) = match name {
        "longjmp" if image.convention == Convention::RiscV => {
            leaves(entry, &helpers::LONG_JUMP, arguments(2))
        }
        "__longjmp" | "____longjmp" => leaves(entry, &helpers::LONG_JUMP, arguments(2)),
        "_Unwind_RaiseException" => returns(&helpers::RAISE, with_stack(1)),
        "_Unwind_Resume_or_Rethrow" => returns(&helpers::RETHROW, with_stack(1)),
        "_Unwind_Resume" => leaves(entry, &helpers::RESUME, arguments(1)),
        "_Unwind_ForcedUnwind" => leaves(entry, &helpers::FORCE, with_stack(3)),
        "_Unwind_Backtrace" => (Stmt::Set(V0, Expr::Int(END_OF_STACK)), End::Return),
        "main" if library => leaves(entry, &helpers::READY, Vec::new()),
        _ => return None,
    };
    let block = Block { pc: entry, steps: vec![(entry, step)], end };
    Some(Function {
        entry,
        name: name.to_owned(),
        blocks: vec![block],
        convention: image.convention,
    })
}

fn leaves(entry: u32, helper: &'static Helper, arguments: Vec<Expr>) -> (Stmt, End) {
    (Stmt::Do(Expr::Help(helper, arguments)), End::Nowhere(entry))
}

fn returns(helper: &'static Helper, arguments: Vec<Expr>) -> (Stmt, End) {
    (Stmt::Set(V0, Expr::Help(helper, arguments)), End::Return)
}
