//! Instructions that change the segment through which counters are reached.

use fettle_isa::Insn;
use iced_x86::{Mnemonic, OpKind, Register};

/// The model-specific registers that hold the base of `gs`, now and behind the next `swapgs`.
const BASES: [u64; 2] = [0xc000_0101, 0xc000_0102];

/// Whether an instruction changes the base of `gs`, or names a register that does.
pub(crate) fn may_change(insn: &Insn, bytes: &[u8]) -> bool {
    let full = insn.full(bytes);
    let writes = matches!(full.mnemonic(), Mnemonic::Mov | Mnemonic::Pop | Mnemonic::Lgs)
        && full.op0_kind() == OpKind::Register
        && full.op0_register() == Register::GS;
    let named = (0..full.op_count()).any(|i| match full.op_kind(i) {
        OpKind::Immediate32 | OpKind::Immediate32to64 | OpKind::Immediate64 => {
            BASES.contains(&(full.immediate(i) & 0xffff_ffff))
        }
        _ => false,
    });
    writes || named || matches!(full.mnemonic(), Mnemonic::Swapgs | Mnemonic::Wrgsbase)
}

/// Whether an instruction protects the one behind it from interrupts.
pub(crate) fn shadows(insn: &Insn, bytes: &[u8]) -> bool {
    let full = insn.full(bytes);
    full.mnemonic() == Mnemonic::Sti
        || matches!(full.mnemonic(), Mnemonic::Mov | Mnemonic::Pop)
            && full.op0_kind() == OpKind::Register
            && full.op0_register() == Register::SS
}
