//! What one instruction reads and writes.

use iced_x86::{
    FlowControl, Instruction, InstructionInfoFactory, InstructionInfoOptions, OpAccess, RflagsBits,
};

use crate::regs::{Gpr, RegSet};

/// What an instruction reads and writes of the general-purpose registers and flags.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Effects {
    /// Read before anything is written. A register that is written in part, or only under a
    /// condition, counts as read: its old value matters.
    pub reads: RegSet,
    /// Written whole, whatever happens.
    pub kills: RegSet,
    /// Perhaps written.
    pub writes: RegSet,
}

const STATUS: u32 = RflagsBits::OF
    | RflagsBits::SF
    | RflagsBits::ZF
    | RflagsBits::AF
    | RflagsBits::CF
    | RflagsBits::PF;
/// `AF` is left out: no instruction in 64-bit mode reads it but through `pushf` and `lahf`, and
/// those that define all others leave it undefined or defined.
const NEEDED_FOR_KILL: u32 = STATUS & !RflagsBits::AF;

/// What the kernel reads at a system call; the decoder knows of none of it.
const SYSTEM_CALL: RegSet =
    RegSet::of(&[Gpr::Rax, Gpr::Rdi, Gpr::Rsi, Gpr::Rdx, Gpr::R10, Gpr::R8, Gpr::R9]);

/// What the handler of a trap may look at: what a function that was called in its place would.
const TRAP: RegSet = RegSet::of(&[Gpr::Rdi, Gpr::Rsi, Gpr::Rdx, Gpr::Rcx, Gpr::R8, Gpr::R9])
    .union(RegSet::CALLEE_SAVED);

/// A string comparison with a repeat count.
fn may_repeat_never(instruction: &Instruction) -> bool {
    use iced_x86::Mnemonic as M;
    (instruction.has_rep_prefix() || instruction.has_repne_prefix())
        && matches!(
            instruction.mnemonic(),
            M::Cmpsb | M::Cmpsw | M::Cmpsd | M::Cmpsq | M::Scasb | M::Scasw | M::Scasd | M::Scasq
        )
}

/// Makes [`Effects`]; keep one, it holds a buffer.
#[derive(Debug)]
pub struct EffectsFactory(InstructionInfoFactory);

impl Default for EffectsFactory {
    fn default() -> Self {
        EffectsFactory::new()
    }
}

impl EffectsFactory {
    /// A factory with an empty buffer.
    pub fn new() -> EffectsFactory {
        EffectsFactory(InstructionInfoFactory::new())
    }

    /// What `instruction` itself does; for a call, without what the callee does.
    pub fn effects(&mut self, instruction: &Instruction) -> Effects {
        let mut effects = Effects::default();
        let info = self.0.info_options(instruction, InstructionInfoOptions::NO_MEMORY_USAGE);
        for used in info.used_registers() {
            let Some(register) = Gpr::containing(used.register()) else { continue };
            let one = RegSet::of(&[register]);
            let whole = used.register().size() >= 4;
            let (read, write, always) = match used.access() {
                OpAccess::Read | OpAccess::CondRead => (true, false, false),
                OpAccess::Write => (!whole, true, whole),
                OpAccess::ReadWrite | OpAccess::ReadCondWrite => (true, true, false),
                OpAccess::CondWrite => (true, true, false),
                OpAccess::None | OpAccess::NoMemAccess => (false, false, false),
            };
            if read {
                effects.reads = effects.reads.union(one);
            }
            if write {
                effects.writes = effects.writes.union(one);
            }
            if always || (write && whole && used.access() == OpAccess::ReadWrite) {
                effects.kills = effects.kills.union(one);
            }
        }
        match instruction.mnemonic() {
            iced_x86::Mnemonic::Syscall => effects.reads = effects.reads.union(SYSTEM_CALL),
            iced_x86::Mnemonic::Int3 => effects.reads = effects.reads.union(TRAP),
            _ => {}
        }
        // A write to `rax` replaces the number of vector registers in it.
        if effects.writes.contains(Gpr::Rax) {
            effects.kills = effects.kills.union(RegSet::VECTOR_COUNT);
        }
        let modified = instruction.rflags_modified() & STATUS;
        if instruction.rflags_read() & STATUS != 0 {
            effects.reads = effects.reads.union(RegSet::FLAGS);
        }
        if modified != 0 {
            effects.writes = effects.writes.union(RegSet::FLAGS);
            // Shifts by a register count may leave the flags as they are; iced reports that as
            // undefined, which is a modification but not a definition.
            let certain = modified & !instruction.rflags_undefined();
            let undefined = instruction.rflags_undefined() & STATUS;
            let conditional = matches!(
                instruction.mnemonic(),
                iced_x86::Mnemonic::Shl
                    | iced_x86::Mnemonic::Shr
                    | iced_x86::Mnemonic::Sar
                    | iced_x86::Mnemonic::Rol
                    | iced_x86::Mnemonic::Ror
                    | iced_x86::Mnemonic::Rcl
                    | iced_x86::Mnemonic::Rcr
                    | iced_x86::Mnemonic::Shld
                    | iced_x86::Mnemonic::Shrd
            );
            // `repe cmpsb` with a count of zero compares nothing; compilers set the flags for that
            // case before it.
            if may_repeat_never(instruction) {
                effects.reads = effects.reads.union(RegSet::FLAGS);
            } else if !conditional && (certain | undefined) & NEEDED_FOR_KILL == NEEDED_FOR_KILL {
                effects.kills = effects.kills.union(RegSet::FLAGS);
            }
        }
        effects
    }
}

/// Where control goes after an instruction, as far as one instruction tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// To the next instruction.
    Next,
    /// To this address.
    Jump(u64),
    /// To this address or the next instruction.
    Branch(u64),
    /// To an address in a register or memory.
    IndirectJump,
    /// Into the function at this address, and as a rule back to the next instruction.
    Call(u64),
    /// Into a function whose address is in a register or memory, and as a rule back.
    IndirectCall,
    /// Back to the caller.
    Return,
    /// Nowhere: the instruction faults (`ud2`, `hlt` in user mode).
    Stop,
    /// To the next instruction, if a handler of its signal returns (`int3`). Where none would, there
    /// may be nothing.
    Trap,
    /// Somewhere that Fettle does not follow (far transfers, transactions, `int n`).
    Strange,
}

/// Where control goes after `instruction`.
pub fn flow(instruction: &Instruction) -> Flow {
    match instruction.flow_control() {
        FlowControl::Next => match instruction.mnemonic() {
            iced_x86::Mnemonic::Hlt => Flow::Stop,
            _ => Flow::Next,
        },
        FlowControl::UnconditionalBranch if instruction.is_jmp_short_or_near() => {
            Flow::Jump(instruction.near_branch_target())
        }
        FlowControl::ConditionalBranch => Flow::Branch(instruction.near_branch_target()),
        FlowControl::IndirectBranch if instruction.is_jmp_near_indirect() => Flow::IndirectJump,
        FlowControl::Call if instruction.is_call_near() => {
            Flow::Call(instruction.near_branch_target())
        }
        // `syscall` is a call for iced; control comes back to the next instruction.
        FlowControl::Call if instruction.mnemonic() == iced_x86::Mnemonic::Syscall => Flow::Next,
        FlowControl::IndirectCall if instruction.is_call_near_indirect() => Flow::IndirectCall,
        FlowControl::Return if instruction.mnemonic() == iced_x86::Mnemonic::Ret => Flow::Return,
        FlowControl::Exception => Flow::Stop,
        FlowControl::Interrupt if instruction.mnemonic() == iced_x86::Mnemonic::Int3 => Flow::Trap,
        _ => Flow::Strange,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use iced_x86::{Decoder, DecoderOptions};

    fn effects(bytes: &[u8]) -> Effects {
        let mut decoder = Decoder::with_ip(64, bytes, 0x1000, DecoderOptions::NONE);
        EffectsFactory::new().effects(&decoder.decode())
    }

    #[test]
    fn partial_writes_read() {
        // mov al, 1
        let e = effects(&[0xb0, 1]);
        assert!(e.reads.contains(Gpr::Rax) && !e.kills.contains(Gpr::Rax));
        // mov eax, 1
        let e = effects(&[0xb8, 1, 0, 0, 0]);
        assert!(!e.reads.contains(Gpr::Rax) && e.kills.contains(Gpr::Rax));
        // cmovne eax, edx: the upper half is cleared whatever happens, the lower is kept perhaps
        let e = effects(&[0x0f, 0x45, 0xc2]);
        assert!(e.reads.contains(Gpr::Rax) && e.reads.contains(Gpr::Rdx) && e.reads.has_flags());
    }

    #[test]
    fn flags() {
        // add eax, edx
        assert!(effects(&[0x01, 0xd0]).kills.has_flags());
        // inc eax leaves carry
        let e = effects(&[0xff, 0xc0]);
        assert!(e.writes.has_flags() && !e.kills.has_flags());
        // shl eax, cl may leave them all
        assert!(!effects(&[0xd3, 0xe0]).kills.has_flags());
        // xor eax, eax reads nothing
        let e = effects(&[0x31, 0xc0]);
        assert!(e.kills.contains(Gpr::Rax) && e.kills.has_flags() && !e.reads.contains(Gpr::Rax));
        // adc reads them
        assert!(effects(&[0x11, 0xd0]).reads.has_flags());
        // bt writes carry only
        assert!(!effects(&[0x0f, 0xa3, 0xd0]).kills.has_flags());
    }

    #[test]
    fn repeated_comparison_keeps_flags() {
        // repe cmpsb; cmpsb
        let e = effects(&[0xf3, 0xa6]);
        assert!(e.reads.has_flags() && e.writes.has_flags() && !e.kills.has_flags());
        assert!(effects(&[0xa6]).kills.has_flags());
    }

    #[test]
    fn only_a_breakpoint_goes_on() {
        let decode = |bytes| Decoder::with_ip(64, bytes, 0, DecoderOptions::NONE).decode();
        assert_eq!(flow(&decode(&[0xcc])), Flow::Trap);
        // int 3 in two bytes, int 0x80, int1
        for strange in [&[0xcd, 3][..], &[0xcd, 0x80], &[0xf1]] {
            assert_eq!(flow(&decode(strange)), Flow::Strange, "{strange:x?}");
        }
        let e = effects(&[0xcc]);
        assert!(e.reads.is_superset(TRAP) && !e.reads.contains(Gpr::Rax));
        assert!(e.kills.is_empty() && e.writes.is_empty());
    }

    #[test]
    fn syscall_goes_on() {
        let mut d = Decoder::with_ip(64, &[0x0f, 0x05], 0, DecoderOptions::NONE);
        let instruction = d.decode();
        assert_eq!(flow(&instruction), Flow::Next);
        let e = EffectsFactory::new().effects(&instruction);
        assert!(e.writes.contains(Gpr::Rcx) && e.writes.contains(Gpr::R11));
        assert!(e.reads.is_superset(SYSTEM_CALL) && !e.reads.contains(Gpr::Rcx));
    }
}
