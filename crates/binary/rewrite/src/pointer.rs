//! Calls and jumps through pointers: the instructions that look at where one leads.
//!
//! Compilers make such a call of a register or of a word of memory. What is put before it may use
//! `r11` and the flags: no call passes anything in them to a function that is not known.

use fettle_image::{Image, LinkAddr, RelocKind};
use fettle_isa::{Flow, Gpr, Insn, RegSet};
use fettle_lift::function::{Exit, Function};
use iced_x86::{Code, OpKind, Register};

/// What an indirect call reads its target from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    Register(Gpr),
    Memory,
}

/// What may be written before an indirect call.
pub(crate) const FREE: RegSet = RegSet::of(&[Gpr::R11]).union(RegSet::FLAGS);

/// `R_X86_64_TLSDESC`
const TLS_DESCRIPTOR: RelocKind = RelocKind::Other(36);

/// Whether the loader makes descriptors of thread-local variables in this image: functions are
/// called by them that change no register but `rax`, and whose callers count on it.
pub(crate) fn has_descriptors(image: &Image) -> bool {
    image.relocs().iter().any(|reloc| reloc.kind == TLS_DESCRIPTOR)
}

/// Whether a word of memory is filled by the loader with a function of some name: what a call
/// through it leads to is known.
pub(crate) fn is_known(image: &Image, slot: LinkAddr) -> bool {
    image.relocs_at(slot).iter().any(|reloc| {
        matches!(reloc.kind, RelocKind::GlobDat | RelocKind::JumpSlot | RelocKind::Irelative)
    })
}

/// The source of the target of instruction `index`, if that is an indirect call or
/// tail call which something can be put before.
pub(crate) fn source(
    function: &Function,
    index: usize,
    exit: Option<Exit>,
    (image, descriptors): (&Image, bool),
) -> Option<Source> {
    let flow = function.flow(index);
    if !matches!(flow, Flow::IndirectCall | Flow::IndirectJump) {
        return None;
    }
    let insn = function.full(image, index);
    let tail = exit == Some(Exit::TailIndirect);
    match flow {
        Flow::IndirectCall if insn.code() == Code::Call_rm64 => {}
        Flow::IndirectJump if tail && insn.code() == Code::Jmp_rm64 => {}
        _ => return None,
    }
    if insn.op0_kind() == OpKind::Register {
        let register = Gpr::containing(insn.op0_register())?;
        return (register != Gpr::Rsp).then_some(Source::Register(register));
    }
    let uses = |register: Register| {
        [insn.memory_base(), insn.memory_index()].iter().any(|r| r.full_register() == register)
    };
    let describes = descriptors
        && insn.memory_base() == Register::RAX
        && insn.memory_index() == Register::None
        && insn.memory_displacement64() == 0;
    let known =
        insn.is_ip_rel_memory_operand() && is_known(image, LinkAddr(insn.ip_rel_memory_address()));
    let fits = insn.op0_kind() == OpKind::Memory
        && insn.memory_segment() != Register::GS
        && insn.memory_base() != Register::EIP
        && !uses(Register::R11)
        && !describes
        && !known;
    fits.then_some(Source::Memory)
}

/// `opcode r11, [..]` with the operand of the call through memory whose bytes these are, and where
/// its 32-bit displacement is if it depends on the place. `None` for forms that no compiler makes.
pub(crate) fn with_operand(call: &[u8], insn: &Insn, opcode: u8) -> Option<(Vec<u8>, Option<u8>)> {
    let mut out = Vec::with_capacity(call.len() + 1);
    let mut rest = call;
    while let [prefix @ (0x26 | 0x2e | 0x36 | 0x3e | 0x64 | 0x67), tail @ ..] = rest {
        // Segments that mean nothing, and `notrack`, are left out.
        if matches!(prefix, 0x64 | 0x67) {
            out.push(*prefix);
        }
        rest = tail;
    }
    let mut rex = 0;
    if let [byte @ 0x40..=0x4f, tail @ ..] = rest {
        (rex, rest) = (*byte, tail);
    }
    let [0xff, modrm, tail @ ..] = rest else { return None };
    // 64 bits wide, and the register is `r11`; base and index stay.
    out.push(0x4c | rex & 3);
    out.push(opcode);
    out.push(modrm & 0xc7 | (Gpr::R11.number() & 7) << 3);
    out.extend_from_slice(tail);
    let field = insn.is_ip_rel_memory_operand().then(|| out.len() as u8 - 4);
    Some((out, field))
}
