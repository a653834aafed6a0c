//! What an instruction reads and writes, as the checker finds it.

use fettle_isa::{Gpr, RegSet};
use iced_x86::{
    Code, Instruction, InstructionInfoFactory, InstructionInfoOptions, Mnemonic, OpAccess,
    Register, RflagsBits,
};

/// What an instruction reads, and what it writes whole or in part.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Uses {
    pub reads: RegSet,
    pub kills: RegSet,
    pub writes: RegSet,
}

const ALL_FLAGS: u32 =
    RflagsBits::OF | RflagsBits::SF | RflagsBits::ZF | RflagsBits::CF | RflagsBits::PF;

/// Arguments of a system call.
const SYSTEM_CALL: RegSet =
    RegSet::of(&[Gpr::Rax, Gpr::Rdi, Gpr::Rsi, Gpr::Rdx, Gpr::R10, Gpr::R8, Gpr::R9]);
/// What every call may read.
pub(crate) const PASSED: RegSet =
    RegSet::of(&[Gpr::Rdi, Gpr::Rsi, Gpr::Rdx, Gpr::Rcx, Gpr::R8, Gpr::R9])
        .union(RegSet::CALLEE_SAVED);
/// What a call reads if its caller wrote it: the number of vector arguments, the static chain.
pub(crate) const PASSED_IF_SET: RegSet = RegSet::of(&[Gpr::Rax, Gpr::R10]);

/// What `insn` itself does.
pub(crate) fn uses(insn: &Instruction, info: &mut InstructionInfoFactory) -> Uses {
    let mut uses = Uses::default();
    let used = info.info_options(insn, InstructionInfoOptions::NO_MEMORY_USAGE);
    for register in used.used_registers() {
        let full = register.register().full_register();
        if !full.is_gpr64() {
            continue;
        }
        let one = RegSet::from_bits(1 << (full as u32 - Register::RAX as u32));
        // Half a register written leaves the other half as it was.
        let whole = register.register().size() >= 4;
        match register.access() {
            OpAccess::Read | OpAccess::CondRead => uses.reads = uses.reads.union(one),
            OpAccess::Write if whole => {
                uses.kills = uses.kills.union(one);
                uses.writes = uses.writes.union(one);
            }
            OpAccess::Write => uses.writes = uses.writes.union(one),
            OpAccess::None | OpAccess::NoMemAccess => {}
            OpAccess::ReadWrite | OpAccess::ReadCondWrite | OpAccess::CondWrite => {
                uses.reads = uses.reads.union(one);
                uses.writes = uses.writes.union(one);
            }
        }
    }
    if insn.code() == Code::Syscall {
        uses.reads = uses.reads.union(SYSTEM_CALL);
    }
    // Its signal's handler sees registers as a function that is called does.
    if insn.code() == Code::Int3 {
        uses.reads = uses.reads.union(PASSED);
    }
    if insn.rflags_read() & (ALL_FLAGS | RflagsBits::AF) != 0 {
        uses.reads = uses.reads.union(RegSet::FLAGS);
    }
    if insn.rflags_modified() & ALL_FLAGS != 0 {
        uses.writes = uses.writes.union(RegSet::FLAGS);
    }
    if insn.rflags_modified() & ALL_FLAGS == ALL_FLAGS {
        // A count of zero leaves the flags alone.
        let by_count = (0..insn.op_count()).any(|i| insn.op_register(i) == Register::CL)
            && matches!(
                insn.mnemonic(),
                Mnemonic::Shl | Mnemonic::Shr | Mnemonic::Sar | Mnemonic::Shld | Mnemonic::Shrd
            );
        if repeats(insn) {
            uses.reads = uses.reads.union(RegSet::FLAGS);
        } else if !by_count {
            uses.kills = uses.kills.union(RegSet::FLAGS);
        }
    }
    uses
}

/// A string comparison that may compare nothing, and then leaves the flags as they were.
fn repeats(insn: &Instruction) -> bool {
    (insn.has_rep_prefix() || insn.has_repne_prefix())
        && matches!(
            insn.mnemonic(),
            Mnemonic::Cmpsb
                | Mnemonic::Cmpsw
                | Mnemonic::Cmpsd
                | Mnemonic::Cmpsq
                | Mnemonic::Scasb
                | Mnemonic::Scasw
                | Mnemonic::Scasd
                | Mnemonic::Scasq
        )
}
