//! Reading a table: its entries, and where it ends.

use fettle_image::{Image, LinkAddr};
use fettle_isa::Insn;

use crate::function::{Bound, JumpTable, TableKind};
use crate::range_code::RangeCode;

use super::context::TableContext;

/// Entries that one table may have at most.
pub(super) const MAX_ENTRIES: usize = 1 << 16;

/// Whether the array of labels that is named at `start` begins before that, and is used with negative
/// numbers, too: labels of `code` stand there, and no table of them is known to begin among them.
fn begins_before(code: &RangeCode, context: &TableContext<'_>, start: LinkAddr) -> bool {
    let mut at = start;
    let mut own = false;
    loop {
        at = LinkAddr(at.0.wrapping_sub(8));
        let leads = |to: &LinkAddr| context.may_lead(&code.range, *to);
        let Some(to) = read_address(context.image, at).filter(leads) else { return own };
        own |= code.range.contains(&to);
        let named = |i: &Insn| i.is_ip_rel_memory_operand() && i.ip_rel_memory_address() == at.0;
        if context.named.binary_search(&at).is_ok() || code.insns.iter().any(named) {
            return false;
        }
    }
}

/// How many words from `at` on are null, in front of one that leads to `code`, or, in a table that is
/// known to have so many `left`, up to its end: values that mean nothing have no label in an array of
/// them. `None` if a table ends here.
fn hole(
    code: &RangeCode,
    context: &TableContext<'_>,
    at: LinkAddr,
    left: usize,
    exact: bool,
) -> Option<usize> {
    let image = context.image;
    for len in 0..left {
        let at = LinkAddr(at.0.checked_add(len as u64 * 8)?);
        if image.relocs_at(at).is_empty() && image.read(at, 8)? == [0; 8] {
            continue;
        }
        let to = read_address(image, at)?;
        let leads = context.may_lead(&code.range, to) || (exact && image.is_code(to));
        // Another table may begin there, behind what fills the space between them.
        let begins = context.named.binary_search(&at).is_ok();
        return (leads && !begins && len > 0).then_some(len);
    }
    exact.then_some(left)
}

/// The address that the word at `at` will hold once `image` is loaded at its link address.
pub fn read_address(image: &Image, at: LinkAddr) -> Option<LinkAddr> {
    let relocs = image.relocs();
    if let Ok(i) = relocs.binary_search_by_key(&at, |r| r.addr) {
        return relocs[i].address();
    }
    if image.kind() != fettle_image::Kind::Executable {
        return None;
    }
    Some(LinkAddr(u64::from_le_bytes(image.read(at, 8)?.try_into().ok()?)))
}

pub(super) fn read_table(
    code: &RangeCode,
    context: &TableContext<'_>,
    start: LinkAddr,
    kind: TableKind,
    bound: Option<Bound>,
) -> Option<JumpTable> {
    let limit = match bound {
        Some(Bound::Exact(n) | Bound::AtMost(n)) => (n as usize).min(MAX_ENTRIES),
        None => MAX_ENTRIES,
    };
    // Every `goto *` of an interpreter goes through the same table. (0 stands for no table.)
    let same = |t: &&JumpTable| (t.start, t.kind, t.bound) == (start, kind, bound);
    if let Some(known) = code.tables.last().filter(same).filter(|t| t.start != LinkAddr(0)) {
        return Some(known.clone());
    }
    if bound.is_none() && kind == TableKind::Absolute && begins_before(code, context, start) {
        return None;
    }
    let exact = matches!(bound, Some(Bound::Exact(_)));
    let entries = read_entries(code, context, (start, kind), limit, exact)?;
    // A table that never leads here is one of functions.
    if !entries.iter().flatten().any(|t| context.may_lead(&code.range, *t)) {
        return None;
    }
    // A table of one entry without a bound is as well a pointer to somewhere.
    let enough = if exact { entries.len() == limit && limit > 0 } else { entries.len() >= 2 };
    enough.then_some(JumpTable {
        jump: LinkAddr(0),
        start,
        kind,
        bound,
        entries: entries.into(),
        named_at: LinkAddr(0),
        movable: false,
    })
}

/// Up to `limit` entries of the table at `start`; all of them lead somewhere, or are null, where their
/// number is `exact`. `None` if it is not known where it ends.
fn read_entries(
    code: &RangeCode,
    context: &TableContext<'_>,
    (start, kind): (LinkAddr, TableKind),
    limit: usize,
    exact: bool,
) -> Option<Vec<Option<LinkAddr>>> {
    let mut entries: Vec<Option<LinkAddr>> = Vec::new();
    while entries.len() < limit {
        let i = entries.len() as u64;
        let target = match kind {
            TableKind::Relative { base } => context
                .read_u32(LinkAddr(start.0.wrapping_add(i * 4)))
                .map(|d| LinkAddr(base.0.wrapping_add(d as i32 as u64))),
            TableKind::Absolute => {
                read_address(context.image, LinkAddr(start.0.wrapping_add(i * 8)))
            }
        };
        let Some(target) = target.filter(|target| target.0 != 0) else {
            let left = limit - entries.len();
            let hole = (kind == TableKind::Absolute)
                .then(|| hole(code, context, LinkAddr(start.0.wrapping_add(i * 8)), left, exact));
            match hole.flatten() {
                Some(len) => entries.extend(std::iter::repeat_n(None, len)),
                None => break,
            }
            continue;
        };
        // Where the number of entries is known, one may lead to a part of the function that
        // nothing else shows to be one.
        let plausible = exact && context.image.is_code(target);
        if !plausible && !context.may_lead(&code.range, target) {
            // Where a value cannot occur that has others on both sides, compilers write an entry
            // that leads to the function's end: the table goes on, it is not known how far.
            if target == code.range.end {
                return None;
            }
            // A copy that ends where another table begins is complete; one that ends where entries
            // lead to a part of the function that nothing else leads to is not. Distances stay where
            // they are ([`is_movable`]).
            if kind == TableKind::Absolute && context.image.is_code(target) {
                let entry = LinkAddr(start.0.wrapping_add(i * 8));
                context.named.binary_search(&entry).ok()?;
            }
            break;
        }
        entries.push(Some(target));
    }
    Some(entries)
}
