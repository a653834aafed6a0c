//! Copies of jump tables, and jumps from original to rewritten text.
//!
//! A table may be copied if nothing but its jump can tell: the address of the copy, and what is
//! loaded from it, must flow into that jump only. This follows them forwards, register by
//! register, from the instruction that names the table.

use fettle_image::{Image, Kind, LinkAddr, RelocKind};
use fettle_isa::{Gpr, RegSet};
use fettle_lift::TableKind;
use fettle_lift::function::JumpTable;
use iced_x86::{Code, Instruction, Mnemonic, OpKind, Register};

use crate::fault::{CheckError, Fault, fail};
use crate::seen::Step;
use crate::walk::Walk;
use fettle_code::{ENTRY_PATCH_SIZE, PlannedEntry};

pub(crate) fn check(walk: &mut Walk<'_, '_>) -> Result<(), CheckError> {
    let claim = walk.claim;
    let function = claim.function;
    for (t, planned) in claim.tables {
        let Some(table) = function.tables.get(*t as usize) else {
            return fail(function.entry.0, Fault::Table);
        };
        let same_kind = planned.kind == table.kind;
        if !same_kind || planned.entries.len() < table.entries.len() {
            return fail(table.jump.0, Fault::Table);
        }
        for (i, entry) in planned.entries.iter().enumerate() {
            let Some(to) = read_entry(walk.context.image, table, i as u64) else {
                return fail(table.jump.0, Fault::Table);
            };
            if table.entries.get(i).is_some_and(|t| *t != to) {
                return fail(table.jump.0, Fault::Table);
            }
            let right = match (entry, to, to.and_then(|to| block_offset(walk, to))) {
                (PlannedEntry::New(offset), _, Some(want)) => *offset == want,
                // Code that is not known stays where it is.
                (PlannedEntry::Original(original), Some(to), None) => *original == to,
                (PlannedEntry::Null, None, _) => true,
                _ => false,
            };
            if !right {
                return fail(table.jump.0, Fault::Table);
            }
        }
    }
    for (t, named_at) in &walk.s.moved {
        let planned = claim.tables.iter().any(|(p, _)| p == t);
        let Some(table) = function.tables.get(*t as usize).filter(|_| planned) else {
            return fail(*named_at, Fault::Table);
        };
        if !movable(walk, table, *named_at) {
            return fail(*named_at, Fault::Unmovable);
        }
    }
    entry_patches(walk)
}

/// Where the rewritten text for the block at `to` is; the walk has checked that it is there.
fn block_offset(walk: &Walk<'_, '_>, to: LinkAddr) -> Option<u32> {
    let block = walk.claim.function.block_at(to)?;
    walk.claim.emitted.block_offsets.get(block.index()).copied()
}

/// Where entry `i` of the original table leads, as a link address, or that it is null; `None` if that
/// is not known.
fn read_entry(image: &Image, table: &JumpTable, i: u64) -> Option<Option<LinkAddr>> {
    match table.kind {
        TableKind::Relative { base } => {
            let bytes = image.read(LinkAddr(table.start.0.checked_add(i * 4)?), 4)?;
            let distance = i32::from_le_bytes(bytes.try_into().ok()?);
            Some(Some(LinkAddr(base.0.wrapping_add_signed(i64::from(distance)))))
        }
        TableKind::Absolute => {
            let at = LinkAddr(table.start.0.checked_add(i * 8)?);
            if let Some(reloc) = image.relocs_at(at).first() {
                return match reloc.kind {
                    RelocKind::Relative => Some(Some(LinkAddr(reloc.addend as u64))),
                    RelocKind::Abs64 => {
                        Some(Some(LinkAddr(reloc.symbol_value.wrapping_add_signed(reloc.addend))))
                    }
                    _ => None,
                };
            }
            match u64::from_le_bytes(image.read(at, 8)?.try_into().ok()?) {
                0 => Some(None),
                // What is no address to the loader is none.
                word => (image.kind() == Kind::Executable).then_some(Some(LinkAddr(word))),
            }
        }
    }
}

/// What a register holds, as far as a copied table is concerned.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Holds {
    Other,
    /// The address of the copy.
    Table,
    /// The same after a call that might have changed it, if it were not known not to.
    Kept,
    /// A distance loaded from it. Added to the copy's address it is an address of rewritten text, which
    /// is as good as one of the original wherever it is used.
    Entry,
    /// An entry on some path.
    Unclear,
    /// The address of the copy on some path.
    UnclearTable,
}

type State = [Holds; 16];

fn gpr(register: Register) -> Option<usize> {
    Gpr::containing(register).map(|g| g.number() as usize)
}

/// Whether nothing but the jump of `table` uses what `named_at` puts in a register.
fn movable(walk: &Walk<'_, '_>, table: &JumpTable, named_at: u64) -> bool {
    let Some(index) = walk.pair_at(named_at) else { return false };
    let first = walk.full(index);
    let mut state = [Holds::Other; 16];
    let named = match (first.code(), table.kind) {
        // The access itself.
        (Code::Jmp_rm64 | Code::Mov_r64_rm64, TableKind::Absolute) => {
            return direct_access(&first, table);
        }
        (Code::Lea_r64_m, kind) => {
            if !first.is_ip_rel_memory_operand()
                || first.ip_rel_memory_address() != table.start.0
                || matches!(kind, TableKind::Relative { base } if base != table.start)
            {
                return false;
            }
            let Some(to) = gpr(first.op0_register()) else { return false };
            to
        }
        _ => return false,
    };
    state[named] = Holds::Table;
    let mut states: Vec<Option<State>> = vec![None; walk.s.pairs.len()];
    let mut work = vec![(first.next_ip(), state)];
    while let Some((mut a, mut state)) = work.pop() {
        loop {
            if state.iter().all(|h| *h == Holds::Other) {
                break;
            }
            let Some(index) = walk.pair_at(a) else { break };
            match &mut states[index] {
                Some(known) => {
                    let joined = join(known, &state);
                    if joined == *known {
                        break;
                    }
                    *known = joined;
                    state = joined;
                }
                unknown => *unknown = Some(state),
            }
            if !transfer(walk, index, table, &mut state) {
                return false;
            }
            let pair = &walk.s.pairs[index];
            let insn = &pair.insn;
            // This one, or another that names the same.
            if insn.is_lea()
                && insn.ip_rel_memory_address() == table.start.0
                && let named = walk.full(index)
                && named.code() == Code::Lea_r64_m
                && let Some(to) = gpr(named.op0_register())
                && walk.s.moved.iter().any(|(_, a)| *a == insn.ip())
            {
                state[to] = Holds::Table;
            }
            match pair.step() {
                Some(Step::Next | Step::Trap) => {}
                Some(Step::Call(to)) => {
                    kill(&mut state, walk.context.callees.clobbers(LinkAddr(to)));
                    for register in RegSet::CALLER_SAVED.registers() {
                        let holds = &mut state[register.number() as usize];
                        if *holds == Holds::Table {
                            *holds = Holds::Kept;
                        }
                    }
                    to_pads(walk, &state, &mut work);
                }
                Some(Step::CallIndirect) => {
                    kill(&mut state, RegSet::CALLER_SAVED);
                    to_pads(walk, &state, &mut work);
                }
                Some(Step::Jump(to)) => {
                    if walk.contains(to) {
                        a = to;
                        continue;
                    }
                    break;
                }
                Some(Step::Branch(to)) => {
                    if walk.contains(to) {
                        work.push((to, state));
                    }
                }
                Some(Step::JumpIndirect) => {
                    if let Some(t) = walk.table_of(insn.ip()) {
                        let targets = walk.claim.function.tables[t].targets();
                        work.extend(targets.map(|to| (to.0, state)));
                    }
                    break;
                }
                Some(Step::Return) => {
                    // A table of distances is the compiler's own, and no function's result.
                    if table.kind == TableKind::Absolute && returned(&state) {
                        return false;
                    }
                    break;
                }
                Some(Step::Stop) | None => break,
            }
            a = insn.next_ip();
        }
    }
    true
}

/// `[table + index*8]`
fn direct_access(insn: &Instruction, table: &JumpTable) -> bool {
    insn.memory_base() == Register::None
        && insn.memory_index() != Register::None
        && insn.memory_index_scale() == 8
        && insn.memory_displacement64() == table.start.0
        && insn.memory_segment() == Register::DS
}

fn join(a: &State, b: &State) -> State {
    let has_table = |h| matches!(h, Holds::Table | Holds::Kept | Holds::UnclearTable);
    std::array::from_fn(|i| match (a[i], b[i]) {
        (a, b) if a == b => a,
        (Holds::Table, Holds::Kept) | (Holds::Kept, Holds::Table) => Holds::Kept,
        (a, b) if has_table(a) || has_table(b) => Holds::UnclearTable,
        _ => Holds::Unclear,
    })
}

fn kill(state: &mut State, set: RegSet) {
    for register in set.registers() {
        state[register.number() as usize] = Holds::Other;
    }
}

/// A call may throw, and handlers see the registers that calls keep.
fn to_pads(walk: &Walk<'_, '_>, state: &State, work: &mut Vec<(u64, State)>) {
    let mut kept = *state;
    kill(&mut kept, RegSet::CALLER_SAVED);
    work.extend(walk.pads.iter().map(|pad| (*pad, kept)));
}

/// A result register holds the address of the copy. (At tail calls any argument might; that no
/// call takes the address of a table is trusted, there as for calls.) What was loaded from it is no result: a
/// function that returns nothing leaves it behind.
fn returned(state: &State) -> bool {
    RegSet::RESULTS
        .registers()
        .map(|r| state[r.number() as usize])
        .any(|h| matches!(h, Holds::Table | Holds::UnclearTable))
}

/// Executes the original of pair `index`; false if it uses what it should not.
fn transfer(walk: &Walk<'_, '_>, index: usize, table: &JumpTable, state: &mut State) -> bool {
    let own = walk.s.pairs[index].seen.uses;
    if walk.s.pairs[index].step() == Some(Step::Trap) {
        // A handler that looks at registers sees a table's address as it is.
        return true;
    }
    let touched = |set: RegSet| set.registers().any(|r| state[r.number() as usize] != Holds::Other);
    if !touched(own.reads) {
        // What is left of an address whose lowest byte was written is of no use.
        kill(state, own.writes);
        return true;
    }
    let insn = &walk.full(index);
    let holds = |r: Register| match gpr(r).map_or(Holds::Other, |i| state[i]) {
        Holds::Kept => Holds::Table,
        holds => holds,
    };
    let relative = matches!(table.kind, TableKind::Relative { .. });
    let entry = insn.memory_index() != Register::None
        && holds(insn.memory_base()) == Holds::Table
        && holds(insn.memory_index()) == Holds::Other
        && insn.memory_displacement64() == 0
        && insn.memory_index_scale() == if relative { 4 } else { 8 };
    let (to, value) = match (insn.mnemonic(), insn.op0_kind(), insn.op1_kind()) {
        (Mnemonic::Jmp, OpKind::Memory, _) => return entry && !relative,
        (Mnemonic::Mov | Mnemonic::Movsxd, OpKind::Register, OpKind::Memory) if entry => {
            let size = insn.memory_size().size();
            match relative {
                true if size == 4 => (insn.op0_register(), Holds::Entry),
                false if size == 8 => (insn.op0_register(), Holds::Other),
                _ => return false,
            }
        }
        (Mnemonic::Movsxd | Mnemonic::Mov, OpKind::Register, OpKind::Register) => {
            (insn.op0_register(), holds(insn.op1_register()))
        }
        (Mnemonic::Cdqe, ..) => (Register::RAX, state[0]),
        // To make room on the stack compilers push whatever there is, what a call has left as it was
        // among it. Else it is an argument, of which is trusted what [`returned`] finds.
        (Mnemonic::Push, OpKind::Register, _) if relative => return true,
        (Mnemonic::Add, OpKind::Register, OpKind::Register) if insn.op0_register().size() == 8 => {
            match (holds(insn.op0_register()), holds(insn.op1_register())) {
                (Holds::Entry, Holds::Table) | (Holds::Table, Holds::Entry) => {
                    (insn.op0_register(), Holds::Other)
                }
                _ => return false,
            }
        }
        _ => return false,
    };
    if matches!(value, Holds::Unclear | Holds::UnclearTable) {
        return false;
    }
    if let Some(to) = gpr(to) {
        kill(state, own.writes);
        state[to] = value;
    }
    true
}

/// Original code must lead to rewritten text at the entry, and wherever a table leads that was not
/// copied.
fn entry_patches(walk: &Walk<'_, '_>) -> Result<(), CheckError> {
    let claim = walk.claim;
    let function = claim.function;
    let entry = function.entry.0;
    let endbr = walk
        .pair_at(entry)
        .map(|i| walk.full(i))
        .is_some_and(|i| i.ip() == entry && i.code() == Code::Endbr64);
    let is_entry = |at: u64| at == entry || endbr && at == entry + 4;
    let mut entries = 0;
    for (at, to) in claim.entry_patches {
        let right = match block_offset(walk, *at) {
            _ if is_entry(at.0) && *to == 0 => {
                entries += 1;
                true
            }
            Some(want) => *to == want,
            None => false,
        };
        let fits = walk.slot(at.0).is_some()
            && walk.context.image.read(*at, ENTRY_PATCH_SIZE as usize).is_some();
        if !right || !fits {
            return fail(at.0, Fault::EntryPatch);
        }
    }
    if entries != 1 {
        return fail(entry, Fault::EntryPatch);
    }
    for (t, table) in function.tables.iter().enumerate() {
        // Several jumps may go through one table that is named once.
        let copy = walk.s.moved.iter().find(|(m, a)| *m as usize == t || *a == table.named_at.0);
        if let Some((m, _)) = copy {
            let same = function.tables[*m as usize].start == table.start;
            let entries = claim.tables.iter().find(|(p, _)| p == m).map(|(_, p)| p.entries.len());
            if !same || entries.is_none_or(|n| n < table.entries.len()) {
                return fail(table.jump.0, Fault::Table);
            }
            continue;
        }
        for to in table.targets() {
            let boarded = claim.entry_patches.iter().any(|(at, _)| *at == to);
            if function.block_at(to).is_some() && !boarded {
                return fail(to.0, Fault::EntryPatch);
            }
        }
    }
    let mut places: Vec<u64> = claim.entry_patches.iter().map(|(at, _)| at.0).collect();
    places.sort_unstable();
    if places.windows(2).any(|w| w[1] - w[0] < ENTRY_PATCH_SIZE) {
        return fail(entry, Fault::EntryPatch);
    }
    Ok(())
}
