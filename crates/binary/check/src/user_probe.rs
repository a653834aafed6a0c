//! Straight-line code of a user probe.
//!
//! What it computes is the user's business. That the program does not notice is checked: the code
//! saves what it says it saves, gives it back in the reverse order, never jumps, and touches no
//! memory but the function's own counters. What it leaves changed the caller proves dead.

use fettle_abi::block::OWN_WORDS;
use fettle_isa::{Gpr, RegSet};
use iced_x86::{
    CpuidFeature, Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory,
    Mnemonic, OpAccess, OpKind, Register, RflagsBits,
};

use crate::summary::{Depth, Kind, ProbeFault, Summary};
use fettle_code::{Fixup, Inline, ProbeFixup};

/// Instructions that have these only know general-purpose registers, flags and memory: none looks
/// at, or leaves changed, what else a thread has (vector registers, how they round, segments' bases).
const PLAIN: [CpuidFeature; 18] = [
    CpuidFeature::INTEL8086,
    CpuidFeature::INTEL186,
    CpuidFeature::INTEL386,
    CpuidFeature::INTEL486,
    CpuidFeature::X64,
    CpuidFeature::ADX,
    CpuidFeature::BMI1,
    CpuidFeature::BMI2,
    CpuidFeature::CMOV,
    CpuidFeature::CMPXCHG16B,
    CpuidFeature::CX8,
    CpuidFeature::LZCNT,
    CpuidFeature::MOVBE,
    CpuidFeature::MULTIBYTENOP,
    CpuidFeature::POPCNT,
    CpuidFeature::RDTSCP,
    CpuidFeature::SSE4_2,
    CpuidFeature::TSC,
];

/// Flags that are known to be dead where flags are. Others steer: the direction of string
/// instructions, traps.
const STATUS: u32 = RflagsBits::OF
    | RflagsBits::SF
    | RflagsBits::ZF
    | RflagsBits::AF
    | RflagsBits::CF
    | RflagsBits::PF;

/// What a save puts on the stack.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Saved {
    Flags,
    Register(Register),
}

/// What the code has come to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Saving,
    Working,
    Restoring,
}

/// Whether this may be inlined. The emitter asks, so that a line which would be refused wherever
/// it stood is called instead; so is one of no bytes, which no search could find.
pub fn may_be_in_line(inline: &Inline) -> bool {
    let accumulator = |(at, byte): &(u32, u32)| (*at, ProbeFixup::Accumulator(*byte));
    let fixups: Vec<_> = inline.fixups.iter().map(accumulator).collect();
    !inline.code.is_empty() && summarize(&inline.code, &fixups).is_ok()
}

/// What is known of the code, if it is safe. `fixups` are offsets in `bytes`, in order.
///
/// # Errors
///
/// What is wrong with it.
pub(crate) fn summarize(bytes: &[u8], fixups: &[(u32, ProbeFixup)]) -> Result<Summary, ProbeFault> {
    let mut decoder = Decoder::with_ip(64, bytes, 0, DecoderOptions::NONE);
    let mut info = InstructionInfoFactory::new();
    let mut saved: Vec<Saved> = Vec::new();
    let mut kept = RegSet::NONE;
    let mut changed = RegSet::NONE;
    let mut left = fixups.iter();
    let mut depths: Vec<Depth> = Vec::new();
    let mut stage = Stage::Saving;
    let mut work = (0, 0);
    while decoder.can_decode() {
        let insn = decoder.decode();
        if insn.is_invalid() || insn.flow_control() != FlowControl::Next {
            return Err(ProbeFault::Undecodable);
        }
        let (start, end) = (insn.ip() as u32, insn.next_ip() as u32);
        depths.push(Depth { part: 0, start, end, pushed: saved.len() as u32 * 8 });
        let next = match insn.mnemonic() {
            Mnemonic::Push | Mnemonic::Pushfq => Stage::Saving,
            Mnemonic::Pop | Mnemonic::Popfq => Stage::Restoring,
            _ => Stage::Working,
        };
        if next < stage {
            return Err(ProbeFault::Stack);
        }
        stage = next;
        match stage {
            Stage::Saving => {
                work = (end, end);
                let (one, set) = on_stack(&insn)?;
                kept = kept.union(set);
                saved.push(one);
            }
            Stage::Restoring => {
                if saved.pop() != Some(on_stack(&insn)?.0) {
                    return Err(ProbeFault::Stack);
                }
            }
            Stage::Working => {
                work.1 = end;
                if let Some(field) = field_of(&insn, &decoder)? {
                    let end = |byte: u32| byte as usize + insn.memory_size().size();
                    match left.next() {
                        Some((place, ProbeFixup::Accumulator(byte)))
                            if *place == start + field && end(*byte) <= OWN_WORDS * 8 => {}
                        _ => return Err(ProbeFault::Memory),
                    }
                }
                changed = changed.union(changed_by(&insn, &mut info)?);
            }
        }
    }
    if !saved.is_empty() || left.next().is_some() {
        return Err(ProbeFault::Stack);
    }
    let (clobbers, uses_red_zone) = (changed.minus(kept), !kept.is_empty());
    Ok(Summary { kind: Kind::Own, clobbers, uses_red_zone, depths, work })
}

/// Whether the code at `start..end` is `wanted`, each counter its own.
pub(crate) fn is_code(
    wanted: &Inline,
    code: &[u8],
    fixups: &[(u32, Fixup)],
    (start, end): (u32, u32),
) -> bool {
    let from = fixups.partition_point(|(at, _)| *at < start);
    let to = fixups.partition_point(|(at, _)| *at < end);
    let same_fixups = fixups[from..to].len() == wanted.fixups.len()
        && fixups[from..to].iter().zip(&wanted.fixups).all(|((at, fixup), (place, byte))| {
            *at == start + place && *fixup == Fixup::Probe(ProbeFixup::Accumulator(*byte))
        });
    // The fields that are filled in hold zeros in both.
    same_fixups && code.get(start as usize..end as usize) == Some(wanted.code.as_slice())
}

/// What a push or pop is of.
fn on_stack(insn: &Instruction) -> Result<(Saved, RegSet), ProbeFault> {
    if matches!(insn.mnemonic(), Mnemonic::Pushfq | Mnemonic::Popfq) {
        return Ok((Saved::Flags, RegSet::FLAGS));
    }
    let register = insn.op0_register();
    let whole = insn.op0_kind() == OpKind::Register && register.is_gpr64();
    match Gpr::containing(register) {
        Some(Gpr::Rsp) | None => Err(ProbeFault::Stack),
        Some(gpr) if whole => Ok((Saved::Register(register), RegSet::of(&[gpr]))),
        Some(_) => Err(ProbeFault::Stack),
    }
}

/// The offset in the instruction of the displacement of its operand in memory, if it has one; it
/// must be relative to `gs` and nothing else, and be all of memory that the instruction reaches.
fn field_of(insn: &Instruction, decoder: &Decoder<'_>) -> Result<Option<u32>, ProbeFault> {
    let mut memory = 0;
    for kind in insn.op_kinds() {
        match kind {
            OpKind::Memory => memory += 1,
            OpKind::Register
            | OpKind::Immediate8
            | OpKind::Immediate16
            | OpKind::Immediate32
            | OpKind::Immediate64
            | OpKind::Immediate8to16
            | OpKind::Immediate8to32
            | OpKind::Immediate8to64
            | OpKind::Immediate32to64 => {}
            _ => return Err(ProbeFault::Memory),
        }
    }
    let is_bit =
        matches!(insn.mnemonic(), Mnemonic::Bt | Mnemonic::Btc | Mnemonic::Btr | Mnemonic::Bts);
    // A bit whose number is in a register may lie anywhere.
    if memory != 0 && is_bit && insn.op1_kind() == OpKind::Register {
        return Err(ProbeFault::Memory);
    }
    if memory == 0 {
        return Ok(None);
    }
    let offsets = decoder.get_constant_offsets(insn);
    let plain = insn.memory_segment() == Register::GS
        && insn.memory_base() == Register::None
        && insn.memory_index() == Register::None
        && offsets.displacement_size() == 4
        && memory == 1;
    if plain { Ok(Some(offsets.displacement_offset() as u32)) } else { Err(ProbeFault::Memory) }
}

/// What an instruction may change; only general-purpose registers and flags may be among it.
fn changed_by(insn: &Instruction, info: &mut InstructionInfoFactory) -> Result<RegSet, ProbeFault> {
    let plain = insn.cpuid_features().iter().all(|feature| PLAIN.contains(feature));
    if !plain || insn.rflags_modified() & !STATUS != 0 {
        return Err(ProbeFault::Instruction);
    }
    let mut changed = RegSet::NONE;
    for used in info.info(insn).used_registers() {
        let reads = matches!(used.access(), OpAccess::Read | OpAccess::CondRead);
        match Gpr::containing(used.register()) {
            Some(Gpr::Rsp) => return Err(ProbeFault::Stack),
            Some(register) if !reads => changed.insert(register),
            Some(_) => {}
            None if used.register().is_segment_register() && reads => {}
            None => return Err(ProbeFault::Instruction),
        }
    }
    if insn.rflags_modified() != 0 {
        changed = changed.union(RegSet::FLAGS);
    }
    Ok(changed)
}
