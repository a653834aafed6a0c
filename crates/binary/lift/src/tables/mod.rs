//! Jump tables: from an indirect jump back to the table it goes through.
//!
//! Compilers write a `switch` as a bound check, a load from a table of 32-bit distances or
//! 64-bit addresses, and an indirect jump; a computed `goto` is the same without the check. The
//! address jumped to is evaluated backwards as a small expression; tables and indirect tail calls
//! differ in its shape:
//!
//! ```text
//! lea  rdx, [rip + table]          Add(Load32(Add(Const(table), Scaled)), Const(table))
//! movsxd rax, [rdx + rax*4]
//! add  rax, rdx
//! jmp  rax
//! ```

mod context;
mod entries;
mod evaluator;
mod movable;

use fettle_image::LinkAddr;
use iced_x86::OpKind;

use crate::function::{JumpTable, TableKind};
use crate::range_code::RangeCode;
pub use context::TableContext;
pub use entries::read_address;
use entries::read_table;
use evaluator::{Evaluator, Expr};
pub use movable::find_movable;

/// What an indirect jump turned out to be.
#[derive(Debug)]
pub enum Resolution {
    /// A jump through this table.
    Table(JumpTable),
    /// A call whose frame is already gone.
    TailCall,
    /// Neither for certain.
    Unknown,
}

/// Says what the indirect jump with the number `jump` of `code`, whose bytes are `bytes`, is.
pub fn resolve(
    code: &RangeCode,
    bytes: &[u8],
    jump: usize,
    context: &TableContext<'_>,
) -> Resolution {
    let mut evaluator = Evaluator { code, bytes, steps: 0, bound: None };
    let jump = &evaluator.full(jump);
    let target = match jump.op0_kind() {
        OpKind::Register => evaluator.register_before(jump.op0_register(), jump.ip(), 0),
        OpKind::Memory => {
            Expr::Load { bytes: 8, address: Box::new(evaluator.address(jump, 0)), at: jump.ip() }
        }
        _ => return Resolution::Unknown,
    };
    let jump_at = LinkAddr(jump.ip());
    if let Some((start, kind, named_at)) = table_of(&target) {
        if let Some(access) = access_of(&target, code).map(|i| evaluator.full(i)) {
            // With a scale of 1 either register may be the table and the other the index.
            for index in [access.memory_index(), access.memory_base()] {
                if evaluator.bound.is_none() && index.is_gpr() {
                    evaluator.find_bound(&access, index);
                }
            }
        }
        if let Some(mut table) = read_table(code, context, start, kind, evaluator.bound) {
            table.jump = jump_at;
            table.named_at = LinkAddr(named_at);
            return Resolution::Table(table);
        }
        // A table of pointers to functions is no jump table, and nothing else is certain.
        let first = match kind {
            TableKind::Relative { .. } => return Resolution::Unknown,
            TableKind::Absolute => read_address(context.image, start),
        };
        if first.is_some_and(|to| code.range.contains(&to) && to != code.range.start) {
            return Resolution::Unknown;
        }
    }
    let scaled = mentions_scaled(&target);
    match context.at_entry_level(jump_at) {
        // The frame is still there: only labels inside can be meant.
        Some(false) => {}
        Some(true) if !scaled || table_of(&target).is_some() => return Resolution::TailCall,
        Some(true) => return Resolution::TailCall,
        None if !scaled => return Resolution::TailCall,
        None => return Resolution::Unknown,
    }
    let labels: Vec<LinkAddr> =
        context.labels_in(&code.range).iter().copied().filter(|a| *a != code.range.start).collect();
    if labels.len() >= 2 {
        // Threaded code: the addresses of labels went through memory that no analysis follows.
        return Resolution::Table(JumpTable {
            jump: jump_at,
            start: LinkAddr(0),
            kind: TableKind::Absolute,
            entries: labels.into_iter().map(Some).collect(),
            bound: None,
            named_at: jump_at,
            movable: false,
        });
    }
    Resolution::Unknown
}

/// The table that `target` is an entry of: its start, how it is read, and where it is named.
fn table_of(target: &Expr) -> Option<(LinkAddr, TableKind, u64)> {
    match target {
        Expr::Load { bytes: 8, address, at } => {
            let (start, named_at) = indexed(address, 8, *at)?;
            Some((start, TableKind::Absolute, named_at))
        }
        Expr::Add(a, b) => {
            let (load, base) = match (&**a, &**b) {
                (Expr::Load { bytes: 4, address, at }, Expr::Const { value, named_at })
                | (Expr::Const { value, named_at }, Expr::Load { bytes: 4, address, at }) => {
                    ((address, *at), (*value, *named_at))
                }
                _ => return None,
            };
            let (start, named_at) = indexed(load.0, 4, load.1)?;
            let named_at = if named_at == base.1 { named_at } else { 0 };
            Some((start, TableKind::Relative { base: LinkAddr(base.0) }, named_at))
        }
        _ => None,
    }
}

/// `Const + Scaled(scale)`, or a constant alone plus something of unknown scale.
fn indexed(address: &Expr, scale: u32, at: u64) -> Option<(LinkAddr, u64)> {
    let Expr::Add(a, b) = address else { return None };
    match (&**a, &**b) {
        (Expr::Const { value, named_at }, Expr::Scaled(s))
        | (Expr::Scaled(s), Expr::Const { value, named_at })
            if *s == scale =>
        {
            Some((LinkAddr(*value), if *named_at == 0 { at } else { *named_at }))
        }
        _ => None,
    }
}

/// The number of the instruction that reads the table's entry.
fn access_of(target: &Expr, code: &RangeCode) -> Option<usize> {
    match target {
        Expr::Load { at, .. } => code.index_at(LinkAddr(*at)),
        Expr::Add(a, b) => access_of(a, code).or_else(|| access_of(b, code)),
        _ => None,
    }
}

fn mentions_scaled(e: &Expr) -> bool {
    match e {
        Expr::Scaled(s) => *s > 1,
        Expr::Load { address, .. } => mentions_scaled(address),
        Expr::Add(a, b) => mentions_scaled(a) || mentions_scaled(b),
        Expr::Const { .. } | Expr::Other => false,
    }
}
