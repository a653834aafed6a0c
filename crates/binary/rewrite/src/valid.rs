//! Plans that come from elsewhere than the planner.
//!
//! A plan that is read from a file has a checksum; this makes sure beyond it that
//! linking cannot fail on indices and offsets that lead nowhere. It cannot say whether the code
//! is right.

use fettle_code::{PlannedEntry, PlannedTable};
use fettle_lift::edges::Place;
use fettle_lift::{BlockId, TableKind};

use crate::plan::{Plan, PlanFixupKind};

/// Whether every index and offset in `plan` leads to something in it.
pub fn is_valid(plan: &Plan) -> bool {
    let len = plan.text.len();
    // Offsets are 32 bits wide, and so must be the distances between them.
    if i32::try_from(len).is_err() {
        return false;
    }
    let field = |at: u32, len: usize| at as usize + 4 <= len;
    let function = |index: u32| plan.functions.get(index as usize);
    let functions = plan.functions.iter().all(|f| {
        let (first, places) = (f.counters.0 as usize, &f.counters.1);
        let block = |b: BlockId| b.index() < f.blocks.len();
        let place = |p: &Place| match *p {
            Place::Entry => true,
            Place::Block(b) | Place::Leaving(b) => block(b),
            Place::Between(a, b) => block(a) && block(b),
        };
        let edges = f.edges.iter().all(|(edge, at)| {
            edge.from.is_none_or(block) && edge.to.is_none_or(block) && at.iter().all(place)
        });
        f.text_offset as usize + f.text_size as usize <= len
            && first + places.len() <= plan.counters as usize
            && places.iter().all(place)
            && edges
    });
    let fixups = plan.fixups.iter().all(|f| {
        let leads = match f.kind {
            PlanFixupKind::Table(t) | PlanFixupKind::TableAddress(t) => {
                (t as usize) < plan.tables.len()
            }
            PlanFixupKind::New(to) => (to as usize) < len,
            PlanFixupKind::Counter(n) => n < plan.counters,
            PlanFixupKind::Accumulator(field) => field < 4096,
            PlanFixupKind::Original { .. }
            | PlanFixupKind::IdHigh
            | PlanFixupKind::IdLow
            | PlanFixupKind::Number
            | PlanFixupKind::RingMask => true,
        };
        leads && field(f.at, len) && function(f.function).is_some()
    });
    let unwind = plan.unwind.iter().all(|(index, part)| {
        let inside = function(*index).is_some_and(|f| {
            let (start, end) = (part.start, part.end);
            let [start, end] = [start, end].map(|at| f.text_offset.wrapping_add(at) as usize);
            start <= end && end <= len
        });
        let table = part.table.as_ref().is_none_or(|t| {
            let len = t.bytes.len();
            t.base_field().is_none_or(|at| field(at, len))
                && t.types.iter().all(|(at, _)| field(*at, len))
        });
        inside && table
    });
    let chunks = plan
        .chunks
        .iter()
        .all(|c| function(c.function).is_some() && c.start <= c.end && c.end as usize <= len);
    functions
        && chunks
        && plan.chunks.is_sorted_by_key(|c| c.start)
        && fixups
        && unwind
        && plan.tables.iter().all(|table| is_valid_table(table, len))
        && plan.entry_patches.iter().all(|b| (b.to as usize) < len)
        && plan.functions.is_sorted_by_key(|f| f.entry)
}

/// Whether a table's entries lead to something in `len` bytes of code. No distance is null.
fn is_valid_table(table: &PlannedTable, len: usize) -> bool {
    table.entries.iter().all(|entry| match entry {
        PlannedEntry::New(to) => (*to as usize) < len,
        PlannedEntry::Original(_) => true,
        PlannedEntry::Null => table.kind == TableKind::Absolute,
    })
}
