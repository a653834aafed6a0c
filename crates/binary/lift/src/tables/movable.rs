//! Tables that only their own function uses, and that can be written anew elsewhere.

use fettle_image::{Image, LinkAddr};
use fettle_isa::{Facts, Gpr, Insn, RegSet};
use iced_x86::{Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register};
use rustc_hash::FxHashMap;

use crate::function::{Exit, Function, JumpTable, TableKind};

/// Notes which tables of `function` a copy may take the place of: every use of the address that
/// [`JumpTable::named_at`] or any other instruction like it puts in a register is the load of an
/// entry or the addition that makes an entry an address.
pub fn find_movable(image: &Image, function: &mut Function) {
    if function.tables.is_empty() {
        return;
    }
    let tables = std::mem::take(&mut function.tables);
    let insns = function.insns.iter().enumerate();
    let leas: Vec<usize> = insns.filter(|(_, i)| i.is_ip_rel_lea()).map(|(i, _)| i).collect();
    // Of tables in one place (every `goto *` of an interpreter has the same) one is looked at.
    let mut used_well: FxHashMap<(LinkAddr, TableKind), bool> = FxHashMap::default();
    let is_movable = |table: &JumpTable| {
        // Distances go on looking like distances past the end of their table; a copy that ends too
        // early would be read past its own. Addresses are known by their relocations.
        if !table.is_bounded() && matches!(table.kind, TableKind::Relative { .. }) {
            return false;
        }
        let Some(index) = insn_index(function, table.named_at) else { return false };
        let insn = function.full(image, index);
        if insn.op0_kind() == OpKind::Memory || insn.mnemonic() == Mnemonic::Mov {
            // The access itself holds the address, as a 32-bit displacement.
            return table.kind == TableKind::Absolute
                && !insn.is_ip_rel_memory_operand()
                && insn.memory_base() == Register::None
                && insn.memory_index_scale() == 8
                && insn.memory_displacement64() == table.start.0;
        }
        let names = |i: &&usize| names(&function.insns[**i], table);
        names(&&index)
            && *used_well.entry((table.start, table.kind)).or_insert_with(|| {
                leas.iter().filter(names).all(|i| used_as_table(image, function, table, *i))
            })
    };
    let movable: Vec<bool> = tables.iter().map(is_movable).collect();
    function.tables = tables;
    function.tables.iter_mut().zip(movable).for_each(|(table, movable)| table.movable = movable);
}

/// Whether `insn` puts the address of `table` in a register.
pub(super) fn names(insn: &Insn, table: &JumpTable) -> bool {
    insn.is_ip_rel_lea() && insn.ip_rel_memory_address() == table.start.0
}

/// Whether what instruction `index` puts in a register is used for `table` only.
fn used_as_table(image: &Image, function: &Function, table: &JumpTable, index: usize) -> bool {
    let register = function.full(image, index).op0_register();
    let Some(register) = Gpr::containing(register) else { return false };
    let mut info = InstructionInfoFactory::new();
    let mut seen = vec![false; function.insns.len()];
    let mut work = vec![index + 1];
    let block_of = |i: usize| function.blocks.partition_point(|b| b.insns.end as usize <= i);
    while let Some(mut i) = work.pop() {
        let Some(block) = function.blocks.get(block_of(i)) else { continue };
        while !std::mem::replace(&mut seen[i], true) {
            let uses = |facts: Facts| facts.reads().union(facts.writes()).contains(register);
            let mut writes = false;
            if uses(function.facts[i]) {
                let insn = function.full(image, i);
                let reads;
                (reads, writes) = accesses(&insn, register, &mut info);
                if reads && !takes_entry(&insn, register, table) {
                    return false;
                }
            }
            let calls = function.facts[i].calls();
            if calls {
                // The call may throw, and the handler has the registers that calls keep.
                let pads = function.blocks.iter().filter(|b| b.landing_pad);
                work.extend(pads.map(|b| b.insns.start as usize));
            }
            if writes || calls && RegSet::CALLER_SAVED.contains(register) {
                break;
            }
            if i + 1 == block.insns.end as usize {
                // A table of distances is the compiler's own, and no function's result; one of
                // labels may be the program's.
                if block.exit == Some(Exit::Return)
                    && table.kind == TableKind::Absolute
                    && RegSet::RESULTS.contains(register)
                {
                    return false;
                }
                work.extend(
                    block.succs.iter().map(|s| function.blocks[s.index()].insns.start as usize),
                );
                break;
            }
            i += 1;
        }
    }
    true
}

/// Whether `insn` reads `register`, and whether it writes it.
fn accesses(insn: &Instruction, register: Gpr, info: &mut InstructionInfoFactory) -> (bool, bool) {
    let (mut reads, mut writes) = (false, false);
    for used in info.info(insn).used_registers() {
        if Gpr::containing(used.register()) == Some(register) {
            match used.access() {
                OpAccess::Read | OpAccess::CondRead => reads = true,
                OpAccess::Write => writes = true,
                _ => (reads, writes) = (true, true),
            }
        }
    }
    (reads, writes)
}

/// Whether `insn` reads an entry of `table`, whose address is in `register`, or adds the one to
/// the other.
fn takes_entry(insn: &Instruction, register: Gpr, table: &JumpTable) -> bool {
    let full = register_of(register);
    let entry_load = insn.op_count() >= 1
        && insn.memory_base() == full
        && insn.memory_index() != full
        && insn.memory_displacement64() == 0
        && insn.memory_index_scale() == if table.kind == TableKind::Absolute { 8 } else { 4 }
        && insn.memory_index() != Register::None
        && (insn.op0_kind() != OpKind::Memory || insn.is_jmp_near_indirect())
        && !(insn.op0_kind() == OpKind::Register && insn.op1_kind() == OpKind::Register);
    let sum = insn.mnemonic() == Mnemonic::Add
        && insn.op0_kind() == OpKind::Register
        && insn.op1_kind() == OpKind::Register
        && (insn.op1_register() == full) != (insn.op0_register() == full)
        && matches!(table.kind, TableKind::Relative { .. });
    entry_load || sum
}

fn insn_index(function: &Function, at: LinkAddr) -> Option<usize> {
    function.insns.binary_search_by_key(&at.0, fettle_isa::Insn::ip).ok()
}

fn register_of(gpr: Gpr) -> Register {
    use Register::*;
    [RAX, RCX, RDX, RBX, RSP, RBP, RSI, RDI, R8, R9, R10, R11, R12, R13, R14, R15]
        [gpr.number() as usize]
}
