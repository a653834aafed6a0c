//! Which jump tables are read by nothing but the jumps of their function, so that their entries may
//! be redirected.
//!
//! A copy may take a table's place where its function clearly uses the table. But other code may
//! read the original: an interpreter may give the addresses of its labels to a translator to
//! threaded code, and what that stores of them would outlive the rewritten text.

use std::collections::BTreeSet;

use fettle_code::PlannedTable;
use fettle_image::{Image, LinkAddr};
use fettle_lift::{Function, TableKind};
use fettle_types::LoadBias;
use rustc_hash::FxHashMap;

/// For each table, whether it has absolute addresses, and is referred to only by the instructions
/// whose copies refer to the copied table.
pub(crate) fn find(
    (image, bias): (&Image, LoadBias),
    functions: &[Function],
    tables: &[PlannedTable],
) -> Vec<bool> {
    let whole = tables.iter().filter(|table| table.kind == TableKind::Absolute);
    let starts: FxHashMap<u64, u64> = whole
        .map(|table| (table.original.0, table.original.0 + table.entries.len() as u64 * 8))
        .collect();
    if starts.is_empty() {
        return vec![false; tables.len()];
    }
    let known = named_by_functions(functions, &starts);
    let all = named_by_bytes((image, bias), &starts);
    let is_in = |at: u64| starts.iter().any(|(start, end)| (*start..*end).contains(&at));
    let pointers: BTreeSet<u64> =
        image.relocs().iter().map(|reloc| reloc.addend as u64).filter(|at| is_in(*at)).collect();
    let is_own = |table: &PlannedTable| {
        let start = table.original.0;
        let count = |of: &FxHashMap<u64, usize>| of.get(&start).copied().unwrap_or(0);
        table.kind == TableKind::Absolute
            && count(&known) > 0
            && count(&known) == count(&all)
            && pointers.range(start..starts[&start]).next().is_none()
    };
    tables.iter().map(is_own).collect()
}

/// How many instructions refer to each table in functions that use it only as a table.
fn named_by_functions(
    functions: &[Function],
    starts: &FxHashMap<u64, u64>,
) -> FxHashMap<u64, usize> {
    let mut known = FxHashMap::default();
    for function in functions {
        let whole = |start: LinkAddr| starts.contains_key(&start.0);
        let tables = function.tables.iter().filter(|table| table.movable && whole(table.start));
        let mut named: BTreeSet<(u64, u64)> = tables.map(|t| (t.start.0, t.named_at.0)).collect();
        let used: BTreeSet<u64> = named.iter().map(|(start, _)| *start).collect();
        if used.is_empty() {
            continue;
        }
        for insn in function.insns.iter().filter(|insn| insn.is_ip_rel_lea()) {
            let to = insn.ip_rel_memory_address();
            named.extend(used.contains(&to).then_some((to, insn.ip())));
        }
        named.iter().for_each(|(start, _)| *known.entry(*start).or_default() += 1);
    }
    known
}

/// How many references to each table there are anywhere in code, as far as bytes show: by a
/// relative offset, or in a module at a fixed address by the address itself, in data too.
fn named_by_bytes(
    (image, bias): (&Image, LoadBias),
    starts: &FxHashMap<u64, u64>,
) -> FxHashMap<u64, usize> {
    let mut all = FxHashMap::default();
    for segment in image.segments() {
        let len = usize::try_from(segment.file_size).unwrap_or(0);
        let Some(bytes) = image.read(segment.start, len) else { continue };
        for (at, word) in (segment.start.0..).zip(bytes.windows(4)) {
            let word = i32::from_le_bytes(word.try_into().expect("four bytes"));
            let by_distance = (at + 4).wrapping_add_signed(word.into());
            let by_address = u64::from(word as u32);
            let named = [(segment.executable, by_distance), (bias == LoadBias::NONE, by_address)];
            for (_, to) in named.iter().filter(|(may, to)| *may && starts.contains_key(to)) {
                *all.entry(*to).or_default() += 1;
            }
        }
    }
    all
}
