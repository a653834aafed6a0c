//! The checker rejects rewritten text that was tampered with: at random, and in ways that a planner
//! might get it wrong.

mod common;

use std::collections::HashMap;
use std::sync::Mutex;

use common::Random;
use fettle_check::{CheckError, Claim, Fault};
use fettle_code::{
    Context, Emitted, Fixup, Inserted, LandingBase, Mode, PartUnwind, PlannedEntry, PlannedTable,
    Pointers, ProbeFixup, Probing,
};
use fettle_image::{Image, LinkAddr};
use fettle_isa::{Flow, Insn, RegSet};
use fettle_lift::liveness::{Callees, ExitLiveness, Liveness, Memory};
use fettle_lift::summary::Summary;
use fettle_lift::{Exit, Lifted, Placement};
use fettle_rewrite::plan_checked_by;
use fettle_rewrite::unwind::RowReader;
use fettle_rewrite::{PlanOptions, emit};
use gimli::UnwindSection;
use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic};

/// A claim that can be changed.
#[derive(Clone)]
struct Draft {
    emitted: Emitted,
    unwind: Vec<PartUnwind>,
    tables: Vec<(u32, PlannedTable)>,
    entry_patches: Vec<(LinkAddr, u32)>,
}

impl Draft {
    fn of(claim: &Claim<'_>) -> Draft {
        Draft {
            emitted: claim.emitted.clone(),
            unwind: claim.unwind.to_vec(),
            tables: claim.tables.to_vec(),
            entry_patches: claim.entry_patches.to_vec(),
        }
    }

    fn check(&self, claim: &Claim<'_>, context: &Context<'_>) -> Result<(), CheckError> {
        let claim = Claim {
            emitted: &self.emitted,
            unwind: &self.unwind,
            tables: &self.tables,
            entry_patches: &self.entry_patches,
            ..*claim
        };
        fettle_check::check(claim, context)
    }
}

/// Calls `each` with the claim for every function of `path` that `wanted` says, in one thread.
fn for_each(
    (image, lifted): &(Image, Lifted),
    (probes, pointers): (Probing<'_>, Pointers<'_>),
    placement: Option<&Placement>,
    wanted: impl Fn(usize) -> bool + Sync,
    each: impl FnMut(&Image, &Claim<'_>, &Context<'_>) + Send,
) {
    let chosen: std::collections::HashSet<LinkAddr> = lifted
        .functions
        .iter()
        .enumerate()
        .filter(|(i, _)| wanted(*i))
        .map(|(_, f)| f.entry)
        .collect();
    let each = Mutex::new(each);
    let select = |f: &fettle_lift::Function| chosen.contains(&f.entry);
    plan_checked_by(
        image,
        lifted,
        PlanOptions {
            select: &select,
            placement,
            pointers,
            osr_map: true,
            ..PlanOptions::new(probes)
        },
        || {
            |claim: Claim<'_>, context: &Context<'_>| {
                let mut each = each.lock().expect("no panic before");
                fettle_check::check(claim, context)?;
                each(image, &claim, context);
                Ok(())
            }
        },
    );
}

fn decode(code: &[u8], at: u32) -> Option<Instruction> {
    let bytes = code.get(at as usize..)?;
    let insn = Decoder::with_ip(64, bytes, u64::from(at), DecoderOptions::NONE).decode();
    (!insn.is_invalid()).then_some(insn)
}

/// The offset after padding at `at`.
fn past_padding(code: &[u8], mut at: u32) -> u32 {
    while let Some(insn) = decode(code, at).filter(|i| i.mnemonic() == Mnemonic::Nop) {
        at += insn.len() as u32;
    }
    at
}

/// The offset that control comes to from `at`, past padding and over jumps that are only in the
/// way: a jump to a jump leads where that one does.
fn deopt_point(emitted: &Emitted, at: u32) -> u32 {
    let mut at = past_padding(&emitted.code, at);
    for _ in 0..8 {
        let Some(jump) =
            decode(&emitted.code, at).filter(iced_x86::Instruction::is_jmp_short_or_near)
        else {
            break;
        };
        let end = at + jump.len() as u32;
        let to = match emitted.fixups.iter().find(|(f, _)| *f == end - 4) {
            None => jump.near_branch_target() as u32,
            Some((_, Fixup::Across(to))) => *to,
            Some(_) => break,
        };
        at = past_padding(&emitted.code, to);
    }
    at
}

/// Where the copies of instructions are: offset and length, without padding.
fn copies(claim: &Claim<'_>) -> Vec<(u32, u32)> {
    let code = &claim.emitted.code;
    let mut all: Vec<(u32, u32)> = claim
        .function
        .insns
        .iter()
        .zip(&claim.emitted.insn_offsets)
        .zip(&claim.function.facts)
        .map(|((insn, at), facts)| (insn, at, facts))
        .filter(|(insn, ..)| !insn.is_nop())
        // In the place of a jump may be what it led to, with its probe.
        .filter(|(insn, at, facts)| {
            let jump = |i: Instruction| i.is_jmp_short_or_near();
            !matches!(facts.flow(insn), Flow::Jump(_)) || decode(code, **at).is_some_and(jump)
        })
        .map(|(_, at, _)| (*at, decode(code, *at).map_or(0, |i| i.len() as u32)))
        .collect();
    all.sort_unstable();
    all.dedup();
    all
}

fn is_field(emitted: &Emitted, at: u32) -> bool {
    emitted.fixups.iter().any(|(f, _)| (*f..*f + 4).contains(&at))
}

/// What became of mutations of one kind.
#[derive(Default, Debug)]
struct Tally {
    rejected: u64,
    equivalent: u64,
}

/// A random change of the code; `None` if it can make no difference. Says what it was, and
/// whether the code still does the same although it looks different.
fn change_code(
    draft: &mut Draft,
    claim: &Claim<'_>,
    random: &mut Random,
) -> Option<(String, bool)> {
    let copies = copies(claim);
    let (start, len) = *random.one(&copies)?;
    let at = start + random.below(len as usize) as u32;
    if len == 0 || is_field(&draft.emitted, at) {
        return None;
    }
    let before = draft.emitted.code[at as usize];
    let after = before ^ 1 << random.below(8);
    draft.emitted.code[at as usize] = after;
    // A jump to padding in front of where it went, or within that padding, goes to the same.
    let (old, new) = (decode(&claim.emitted.code, start)?, decode(&draft.emitted.code, start));
    let same = new.is_some_and(|new| {
        let jumps = |i: &Instruction| i.is_jcc_short_or_near() || i.is_jmp_short_or_near();
        jumps(&old)
            && old.code() == new.code()
            && u32::try_from(new.near_branch_target()).is_ok_and(|to| {
                deopt_point(claim.emitted, to)
                    == deopt_point(claim.emitted, old.near_branch_target() as u32)
            })
    });
    // A return that became a prefix of padding, with another return behind.
    let code = &draft.emitted.code;
    let behind = past_padding(code, start);
    let returns = old.mnemonic() == Mnemonic::Ret
        && behind != start
        && decode(code, behind).is_some_and(|i| i.code() == old.code());
    Some((
        format!("byte {at:#x} of the instruction at {start:#x}: {before:02x} to {after:02x}"),
        same || returns,
    ))
}

fn change_probe(
    draft: &mut Draft,
    claim: &Claim<'_>,
    random: &mut Random,
) -> Option<(String, bool)> {
    let stretch = *random.one(&draft.emitted.inserted)?;
    let at = stretch.start + random.below((stretch.end - stretch.start) as usize) as u32;
    if is_field(&draft.emitted, at) {
        return None;
    }
    let before = draft.emitted.code[at as usize];
    let after = before ^ 1 << random.below(8);
    draft.emitted.code[at as usize] = after;
    // Prefixes that mean nothing, and forms of one instruction that do the same.
    let old: Vec<Instruction> = stretch_of(&claim.emitted.code, stretch);
    let new: Vec<Instruction> = stretch_of(&draft.emitted.code, stretch);
    let code = (claim.emitted.code.as_slice(), draft.emitted.code.as_slice());
    let same = old.len() == new.len()
        && old.iter().zip(&new).all(|(a, b)| a == b || same_effect(a, b) || same_jump(a, b, code));
    Some((
        format!("byte {at:#x} of the probe at {:#x}: {before:02x} to {after:02x}", stretch.start),
        same,
    ))
}

fn stretch_of(code: &[u8], stretch: Inserted) -> Vec<Instruction> {
    let range = stretch.start as usize..stretch.end as usize;
    let ip = u64::from(stretch.start);
    Decoder::with_ip(64, &code[range], ip, DecoderOptions::NONE).iter().collect()
}

/// A jump into the byte before its target, where that happens to be a prefix that means nothing.
fn same_jump(a: &Instruction, b: &Instruction, (old, new): (&[u8], &[u8])) -> bool {
    if a.code() != b.code() || !(a.is_jcc_short_or_near() || a.is_jmp_short_or_near()) {
        return false;
    }
    let (to_a, to_b) = (a.near_branch_target(), b.near_branch_target());
    let at = |code, to| u32::try_from(to).ok().and_then(|to| decode(code, to));
    match (at(old, to_a), at(new, to_b)) {
        (Some(x), Some(y)) => x == y && x.next_ip() == y.next_ip(),
        _ => false,
    }
}

/// Whether two instructions do the same in a probe: the scale of an index that is not there says
/// nothing, and the bytes of call-stack mirror in use are a small number.
fn same_effect(a: &Instruction, b: &Instruction) -> bool {
    use iced_x86::{Formatter, NasmFormatter, OpKind, Register};
    let mut texts = [String::new(), String::new()];
    for (insn, text) in [a, b].into_iter().zip(&mut texts) {
        let mut insn = *insn;
        if insn.memory_index() == Register::None {
            insn.set_memory_index_scale(1);
        }
        if insn.mnemonic() == Mnemonic::Mov
            && insn.op1_kind() == OpKind::Memory
            && insn.memory_displacement64() == MIRROR_USED
            && insn.op0_register().is_gpr64()
        {
            insn = as_32_bits(&insn);
        }
        NasmFormatter::new().format(&insn, text);
    }
    texts[0] == texts[1]
}

const MIRROR_USED: u64 = std::mem::offset_of!(fettle_abi::block::ThreadBlock, mirror_used) as u64;

/// The 32-bit form of a 64-bit load.
fn as_32_bits(insn: &Instruction) -> Instruction {
    use iced_x86::{Code, Register};
    let mut insn = *insn;
    let number = insn.op0_register() as u32 - Register::RAX as u32;
    let small = Register::try_from(Register::EAX as usize + number as usize).expect("a register");
    insn.set_code(Code::Mov_r32_rm32);
    insn.set_op0_register(small);
    insn
}

fn change_fixup(
    draft: &mut Draft,
    claim: &Claim<'_>,
    random: &mut Random,
) -> Option<(String, bool)> {
    let fixups = &mut draft.emitted.fixups;
    if fixups.is_empty() {
        return None;
    }
    let i = random.below(fixups.len());
    let before = fixups[i];
    match random.below(4) {
        0 => {
            fixups.remove(i);
        }
        1 => fixups[i].0 = fixups[i].0.wrapping_add(1),
        2 => fixups[i].0 = fixups[i].0.wrapping_sub(1),
        _ => {
            use fettle_code::{AgentEntry, ProbeFixup as P};
            fixups[i].1 = match before.1 {
                Fixup::Original { to, after } if random.below(2) == 0 => {
                    Fixup::Original { to, after: after ^ 1 }
                }
                Fixup::Original { to, after } => {
                    Fixup::Original { to: LinkAddr(to.0 ^ 1 << random.below(20)), after }
                }
                Fixup::Function(to) => Fixup::Function(LinkAddr(to.0 ^ 1 << random.below(20))),
                Fixup::Across(to) => Fixup::Across(to ^ 1 << random.below(12)),
                Fixup::Table(t) => Fixup::TableAddress(t),
                Fixup::TableAddress(t) => Fixup::Table(t),
                Fixup::Probe(p) => Fixup::Probe(match p {
                    P::Accumulator(field) => P::Accumulator(field ^ 8),
                    P::Counter(n) => P::Counter(n ^ 1),
                    P::IdHigh => P::IdLow,
                    P::IdLow => P::IdHigh,
                    P::Number => P::RingMask,
                    P::Agent(AgentEntry::Exit) => P::Agent(AgentEntry::Ring),
                    P::Agent(_) => P::Agent(AgentEntry::Exit),
                    _ => P::Number,
                }),
            };
        }
    }
    let same = match (before.1, fixups.get(i).map(|f| f.1)) {
        (Fixup::Across(old), Some(Fixup::Across(new))) if fixups[i].0 == before.0 => {
            old != new && deopt_point(claim.emitted, old) == deopt_point(claim.emitted, new)
        }
        // Without it the jump leads to what is behind it.
        (Fixup::Across(old), _) if fixups.len() < claim.emitted.fixups.len() => {
            deopt_point(claim.emitted, old) == deopt_point(claim.emitted, before.0 + 4)
        }
        _ => false,
    };
    Some((format!("fixup {before:x?}"), same))
}

fn change_ranges(
    draft: &mut Draft,
    claim: &Claim<'_>,
    random: &mut Random,
) -> Option<(String, bool)> {
    let inserted = &mut draft.emitted.inserted;
    if inserted.is_empty() {
        return None;
    }
    let i = random.below(inserted.len());
    let before = inserted[i];
    let what = random.below(4);
    match what {
        0 => {
            inserted.remove(i);
        }
        1 => inserted[i].start += 1,
        2 => inserted[i].end += 1,
        _ => inserted[i].end -= 1,
    }
    // A stretch that takes in padding that follows is none the worse for it.
    let code = &claim.emitted.code;
    let same = what == 2 && decode(code, before.end).is_some_and(|n| n.mnemonic() == Mnemonic::Nop);
    Some((format!("inserted range {before:x?}, change {what}"), same))
}

fn change_blocks(
    draft: &mut Draft,
    claim: &Claim<'_>,
    random: &mut Random,
) -> Option<(String, bool)> {
    let offsets = &mut draft.emitted.block_offsets;
    let (i, j) = (random.below(offsets.len()), random.below(offsets.len()));
    let before = offsets[i];
    offsets[i] = match random.below(3) {
        0 => offsets[j],
        1 => before + 1,
        _ => before.wrapping_sub(1),
    };
    let same = deopt_point(claim.emitted, before) == deopt_point(claim.emitted, offsets[i]);
    Some((format!("block {i}: {before:#x} to {:#x}", offsets[i]), same))
}

fn change_tables(draft: &mut Draft, _: &Claim<'_>, random: &mut Random) -> Option<(String, bool)> {
    let n = draft.tables.len();
    if n == 0 {
        return None;
    }
    let table = &mut draft.tables[random.below(n)].1;
    let (i, j) = (random.below(table.entries.len()), random.below(table.entries.len()));
    if table.entries[i] == table.entries[j] {
        return None;
    }
    table.entries.swap(i, j);
    Some((format!("table entries {i} and {j} swapped"), false))
}

fn change_entry_patches(
    draft: &mut Draft,
    _: &Claim<'_>,
    random: &mut Random,
) -> Option<(String, bool)> {
    let boards = &mut draft.entry_patches;
    let i = random.below(boards.len());
    let before = boards[i];
    match random.below(3) {
        0 => {
            boards.remove(i);
        }
        1 => boards[i].1 += 1,
        _ => boards[i].0 = LinkAddr(before.0.0 + 1),
    }
    Some((format!("entry patch {before:x?}"), false))
}

fn change_unwind(
    draft: &mut Draft,
    claim: &Claim<'_>,
    random: &mut Random,
) -> Option<(String, bool)> {
    let n = draft.unwind.len();
    if n == 0 {
        return None;
    }
    let i = random.below(n);
    let part = &mut draft.unwind[i];
    if part.program.is_empty() {
        return None;
    }
    let at = random.below(part.program.len());
    let before = part.program[at];
    part.program[at] ^= 1 << random.below(8);
    let after = part.program[at];
    let same = match (rules(&claim.unwind[i]), rules(part)) {
        (Some(old), Some(new)) => meaningful(claim, &claim.unwind[i]).all(|at| old(at) == new(at)),
        _ => false,
    };
    Some((format!("unwind program {i}, byte {at}: {before:02x} to {after:02x}"), same))
}

/// Offsets in a part where rules matter: where a thread can stand, or be looked for in the midst of a
/// call that it will return from, in copies of instructions that the original has rules for, and in
/// probes.
fn meaningful<'a>(claim: &'a Claim<'_>, part: &PartUnwind) -> impl Iterator<Item = u32> + use<'a> {
    let range = part.start..part.end;
    let copies = copies(claim).into_iter().map(|(at, len)| (at, at + len));
    let probes = claim.emitted.inserted.iter().map(|i| (i.start, i.end));
    // Out-of-line parts are in no list: what follows the last copy is taken to be theirs.
    let code = &claim.emitted.code;
    let last = claim.emitted.insn_offsets.iter().max().copied().unwrap_or(0);
    let cold = std::iter::once((last, code.len() as u32));
    copies
        .chain(probes)
        .chain(cold)
        .flat_map(|(start, end)| standing(code, start, end))
        .filter(move |at| range.contains(at))
}

/// Where a thread can stand in `start..end`, but for padding and the traps behind calls that never come
/// back: at instructions, and by its return address less one at all of a call.
fn standing(code: &[u8], start: u32, end: u32) -> impl Iterator<Item = u32> + use<'_> {
    let mut next = start;
    std::iter::from_fn(move || {
        let insn = decode(code, next).filter(|_| next < end)?;
        let at = next;
        next += insn.len() as u32;
        let is_call = matches!(insn.flow_control(), FlowControl::Call | FlowControl::IndirectCall);
        Some(match insn.mnemonic() {
            Mnemonic::Nop | Mnemonic::Int3 => at..at,
            _ if is_call => at..next,
            _ => at..at + 1,
        })
    })
    .flatten()
}

/// What the rules of a part are at an offset, by gimli.
fn rules(part: &PartUnwind) -> Option<impl Fn(u32) -> Option<String> + use<>> {
    // A common entry as the linker writes it, and an entry for the part.
    let mut section = Vec::new();
    let mut entry = |body: &[u8]| {
        let len = (body.len() + 4).next_multiple_of(8) - 4;
        section.extend_from_slice(&(len as u32).to_le_bytes());
        section.extend_from_slice(body);
        section.resize(section.len() + len - body.len(), 0);
    };
    entry(&[0, 0, 0, 0, 1, 0, 1, 0x78, 16, 0x0c, 7, 8, 0x90, 1]);
    let mut body = vec![0; 4];
    // Distance back to the common entry, which takes 24 bytes.
    body[0] = 28;
    body.extend_from_slice(&u64::from(part.start).to_le_bytes());
    body.extend_from_slice(&u64::from(part.end - part.start).to_le_bytes());
    body.extend_from_slice(&part.program);
    entry(&body);
    section.extend_from_slice(&[0; 4]);
    let mut frame = gimli::EhFrame::new(&section, gimli::LittleEndian);
    frame.set_address_size(8);
    let bases = gimli::BaseAddresses::default();
    let mut entries = frame.entries(&bases);
    let mut rows = Vec::new();
    while let Some(e) = entries.next().ok()? {
        let gimli::CieOrFde::Fde(fde) = e else { continue };
        let fde = fde.parse(gimli::EhFrame::cie_from_offset).ok()?;
        let mut context = gimli::UnwindContext::new();
        let mut table = fde.rows(&frame, &bases, &mut context).ok()?;
        while let Some(row) = table.next_row().ok()? {
            let expression = |e: &gimli::UnwindExpression<usize>| {
                e.get(&frame).map(|e| e.0.slice().to_vec()).unwrap_or_default()
            };
            let cfa = match row.cfa() {
                gimli::CfaRule::Expression(e) => format!("{:x?}", expression(e)),
                rule => format!("{rule:?}"),
            };
            let mut registers: Vec<String> = row
                .registers()
                .map(|(r, rule)| match rule {
                    gimli::RegisterRule::Expression(e) => format!("{r:?} at {:x?}", expression(e)),
                    gimli::RegisterRule::ValExpression(e) => {
                        format!("{r:?} is {:x?}", expression(e))
                    }
                    rule => format!("{r:?} {rule:?}"),
                })
                .collect();
            registers.sort_unstable();
            let text = format!("{cfa} {registers:?} {}", row.saved_args_size());
            rows.push((row.start_address()..row.end_address(), text));
        }
    }
    Some(move |at: u32| {
        rows.iter().find(|(r, _)| r.contains(&u64::from(at))).map(|(_, t)| t.clone())
    })
}

fn change_handlers(
    draft: &mut Draft,
    claim: &Claim<'_>,
    random: &mut Random,
) -> Option<(String, bool)> {
    let with: Vec<usize> =
        (0..draft.unwind.len()).filter(|i| draft.unwind[*i].table.is_some()).collect();
    let i = *random.one(&with)?;
    let table = draft.unwind[i].table.as_mut()?;
    let sites_at = call_sites(&table.bytes)?.0;
    let at = sites_at.start + random.below(sites_at.len());
    if sites_at.is_empty() {
        return None;
    }
    let before = table.bytes[at];
    table.bytes[at] ^= 1 << random.below(8);
    let after = table.bytes[at];
    let old = call_sites(&claim.unwind[i].table.as_ref()?.bytes)?.1;
    let new = call_sites(&table.bytes).map(|(_, s)| s);
    let find = |sites: &[[u64; 4]], place: u64| {
        let ordered = sites.iter().take_while(|s| place >= s[0]);
        ordered.map(|s| (place - s[0] < s[1]).then_some((s[2], s[3]))).find(Option::is_some)
    };
    let range = claim.unwind[i].start..claim.unwind[i].end;
    let same = new.is_some_and(|new| {
        let insns = claim.function.insns.iter().zip(&claim.emitted.insn_offsets);
        insns
            .zip(&claim.function.facts)
            .filter(|((_, at), facts)| facts.calls() && range.contains(at))
            .flat_map(|((insn, at), _)| ends_of_calls(&claim.emitted.code, insn, *at))
            .map(|end| u64::from(end - range.start) - 1)
            .all(|place| find(&old, place) == find(&new, place))
    });
    Some((format!("call sites of part {i}, byte {at}: {before:02x} to {after:02x}"), same))
}

const LEA_R11: [u8; 3] = [0x4c, 0x8d, 0x1d];

/// Where the copies of a call end that begin at `at`: two if it is promoted.
fn ends_of_calls(code: &[u8], insn: &Insn, at: u32) -> Vec<u32> {
    match guard_of(code, at) {
        // A call of another module's function is longer than the original.
        None => vec![at + decode(code, at).expect("a call").len() as u32],
        Some([_, jump, call]) => {
            let other = decode(code, jump).expect("a jump").near_branch_target() as u32;
            vec![call + 5, other + insn.len() as u32]
        }
    }
}

/// The comparison, jump and call behind the `lea` of a promoted call at `at`.
fn guard_of(code: &[u8], at: u32) -> Option<[u32; 3]> {
    code.get(at as usize..)?.starts_with(&LEA_R11).then_some(())?;
    let compare = at + 7;
    let jump = compare + decode(code, compare)?.len() as u32;
    let call = jump + decode(code, jump)?.len() as u32;
    Some([compare, jump, call])
}

/// Cuts an instruction in two pieces that may come to lie anywhere.
fn change_chunks(
    draft: &mut Draft,
    claim: &Claim<'_>,
    random: &mut Random,
) -> Option<(String, bool)> {
    let (start, len) = *random.one(&copies(claim))?;
    let starts = &mut draft.emitted.chunk_starts;
    let cut = start + 1;
    match random.below(2) {
        0 if len > 1 => starts.push(cut),
        1 if starts.len() > 1 => {
            let i = 1 + random.below(starts.len() - 1);
            starts[i] -= 1;
        }
        _ => return None,
    }
    starts.sort_unstable();
    Some((format!("chunks at {starts:x?}"), false))
}

/// Landing pads that are said to be elsewhere, or not said to be, or relative to something else.
fn change_pads(draft: &mut Draft, _: &Claim<'_>, random: &mut Random) -> Option<(String, bool)> {
    let with: Vec<usize> = (0..draft.unwind.len())
        .filter(|i| draft.unwind[*i].table.as_ref().is_some_and(|t| !t.pads.is_empty()))
        .collect();
    let table = draft.unwind[*random.one(&with)?].table.as_mut()?;
    let i = random.below(table.pads.len());
    match random.below(5) {
        3 => table.bytes[0] ^= 1 << random.below(8),
        4 => {
            let bases = [LandingBase::Part, LandingBase::Function, LandingBase::Text];
            let others: Vec<LandingBase> = bases.into_iter().filter(|b| *b != table.base).collect();
            table.base = *random.one(&others)?;
        }
        0 => table.pads[i].0 ^= 1 << random.below(6),
        1 => table.pads[i].1 ^= 1 << random.below(12),
        _ => {
            table.pads.remove(i);
        }
    }
    Some((format!("landing pad {i}"), false))
}

type Sites = (std::ops::Range<usize>, Vec<[u64; 4]>);

/// Where the call sites of a new exception table are, and what they say.
fn call_sites(bytes: &[u8]) -> Option<Sites> {
    fn uleb(bytes: &[u8], at: &mut usize) -> Option<u64> {
        let mut value = 0;
        for shift in (0..63).step_by(7) {
            let byte = *bytes.get(*at)?;
            *at += 1;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }
    // With a base of landing pads, or without.
    let mut at = if *bytes.first()? == 0xff { 1 } else { 5 };
    let encoding = *bytes.get(at)?;
    at += 1;
    if encoding != 0xff {
        uleb(bytes, &mut at)?;
    }
    at += 1;
    let len = uleb(bytes, &mut at)? as usize;
    let range = at..at + len;
    let mut sites = Vec::new();
    while at < range.end {
        sites.push([
            uleb(bytes, &mut at)?,
            uleb(bytes, &mut at)?,
            uleb(bytes, &mut at)?,
            uleb(bytes, &mut at)?,
        ]);
    }
    (at == range.end).then_some((range, sites))
}

type Change = fn(&mut Draft, &Claim<'_>, &mut Random) -> Option<(String, bool)>;

const CHANGES: [(&str, Change); 11] = [
    ("code", change_code),
    ("probe", change_probe),
    ("fixup", change_fixup),
    ("range", change_ranges),
    ("block", change_blocks),
    ("table", change_tables),
    ("entry patch", change_entry_patches),
    ("unwind", change_unwind),
    ("handler", change_handlers),
    ("chunk", change_chunks),
    ("pad", change_pads),
];

/// Every mutation that changes what the program does must be found.
#[test]
fn random_changes() {
    let seed = common::seed();
    let mut tallies: HashMap<&str, Tally> = HashMap::new();
    let mut missed = Vec::new();
    let binaries = [
        "/bin/bash",
        "/usr/lib/x86_64-linux-gnu/libstdc++.so.6",
        "/lib/x86_64-linux-gnu/libc.so.6",
        "/usr/bin/python3.11",
    ];
    let mut found = 0;
    let mut random = Random(seed);
    for path in binaries {
        let Some(opened) = common::open(path) else { continue };
        found += 1;
        for (probes, pointers, what) in common::with_pointers(&opened.1) {
            let probed = format!("{}, {what}", common::describe(&probes));
            let step = if cfg!(debug_assertions) { 61 } else { 17 };
            let each = |_: &Image, claim: &Claim<'_>, context: &Context<'_>| {
                let mut random =
                    Random(seed ^ claim.function.entry.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
                for (name, change) in CHANGES {
                    for round in 0..4 {
                        let mut draft = Draft::of(claim);
                        let Some((what, same)) = change(&mut draft, claim, &mut random) else {
                            continue;
                        };
                        let tally = tallies.entry(name).or_default();
                        match draft.check(claim, context) {
                            Err(_) => tally.rejected += 1,
                            Ok(()) if same => tally.equivalent += 1,
                            Ok(()) => missed.push(format!(
                                "{path} {probed} {} round {round}: {name}: {what}",
                                claim.function.entry
                            )),
                        }
                    }
                }
            };
            // Every second time in another order.
            let order = random.below(1 << 30) as u64;
            let shuffled = Placement::shuffled(&opened.1.functions, order);
            let placement = order.is_multiple_of(2).then_some(&shuffled);
            for_each(&opened, (probes, pointers), placement, |i| i % step == 0, each);
        }
    }
    assert!(found > 0, "none of the binaries is there");
    println!("{tallies:#?}");
    for m in missed.iter().take(40) {
        println!("missed: {m}");
    }
    assert!(missed.is_empty(), "{} mutations were not found", missed.len());
}

/// A small program with what the named mistakes need; built by the system's compiler.
fn example() -> Option<Image> {
    let dir = tempfile::tempdir().expect("a directory");
    let (source, binary) = (dir.path().join("a.c"), dir.path().join("a.so"));
    std::fs::write(
        &source,
        r#"
        extern int work(int, const char *);
        int value;
        int plain(int a) { return a * 3 + value; }
        int traps(int a) { if (a < 0) __builtin_trap(); return a * 5 + value; }
        int breaks(int a) { if (a < 0) __asm__ volatile("int3"); return a * 7 + value; }
        int runs_on(int a) {
            if (a < 0) { *(volatile int *)1 = a; __builtin_unreachable(); }
            return a * 9 + value;
        }
        int tail(int a) { return work(a + 1, "x"); }
        int branch(int a, int b) {
            while (a < b) { if (work(a, "y")) return b; a += 2; }
            return a - b;
        }
        int table(int a) {
            switch (a) {
            case 0: return work(7, "a") + 2; case 1: return work(1, "b") + 1;
            case 2: return work(4, "c") - 8; case 3: return work(2, "d") * 3;
            case 4: return a - work(8, "e");
            case 5: return work(3, "f") ^ 9; case 6: return work(9, "g") / 7;
            }
            return 0;
        }
        struct ops { int (*first)(int); int (*second)(int); };
        int pointed(int (*f)(int), int a) { return f(a) + 1; }
        int by_memory(struct ops *o, int a) { return o->second(a) * 2; }
        int by_table(struct ops *o, int n, int a) { return (&o->first)[n](a) * 2; }
        static int (*variable)(int) = plain;
        void set(int (*f)(int)) { variable = f; }
        int by_variable(int a) { return variable(a) - 1; }
        int tail_pointed(int (*f)(int), int a) { return f(a + 1); }
        int tail_by_memory(struct ops *o, int a) { return o->second(a + 2); }
        #define BY_HAND(name, code) __asm__(".text\n.globl " #name "\n.type " #name \
            ",@function\n" #name ":\n.cfi_startproc\nendbr64\nlea 1(%rdi), %eax\n" code \
            "ret\n.cfi_endproc\n.size " #name ", . - " #name "\n")
        BY_HAND(in_carry, "stc\n");
        BY_HAND(in_r11, "mov %rdi, %r11\n");
        BY_HAND(saves_rcx, "push %rcx\n.cfi_adjust_cfa_offset 8\nmov %edi, %ecx\nadd %ecx, %eax\n"
            "pop %rcx\n.cfi_adjust_cfa_offset -8\n");
        "#,
    )
    .expect("a file");
    let built = std::process::Command::new("cc")
        .args(["-O2", "-fno-ipa-ra", "-shared", "-fPIC", "-fcf-protection=full", "-o"])
        .args([&binary, &source])
        .status()
        .ok()?;
    built.success().then(|| Image::parse(std::fs::read(&binary).expect("built")).expect("an ELF"))
}

/// Calls `each` for the function `name` of the example.
fn with_example(
    name: &str,
    mode: Mode,
    each: impl FnMut(&Image, &fettle_lift::Lifted, &Claim<'_>, &Context<'_>) + Send,
) {
    with_pointers(name, mode, |_| Pointers::Kept, each);
}

/// The same, with something made of its indirect calls.
fn with_pointers(
    name: &str,
    mode: Mode,
    pointers: impl Fn(&Lifted) -> Pointers<'static>,
    mut each: impl FnMut(&Image, &fettle_lift::Lifted, &Claim<'_>, &Context<'_>) + Send,
) {
    let image = example().expect("a C compiler");
    let lifted = fettle_lift::lift(&image);
    let mut met = false;
    {
        let each = Mutex::new((&mut met, &mut each));
        let select = |f: &fettle_lift::Function| f.name.as_deref() == Some(name);
        let options = PlanOptions {
            select: &select,
            pointers: pointers(&lifted),
            osr_map: true,
            ..PlanOptions::new(Probing::new(mode))
        };
        plan_checked_by(&image, &lifted, options, || {
            |claim: Claim<'_>, context: &Context<'_>| {
                fettle_check::check(claim, context).unwrap_or_else(|e| {
                    panic!(
                        "{name}: as planned it is right: {e} {:x?} {:x?}",
                        claim.emitted.code, claim.emitted.fixups
                    )
                });
                let mut each = each.lock().expect("no panic before");
                *each.0 = true;
                (each.1)(&image, &lifted, &claim, context);
                Ok(())
            }
        });
    }
    assert!(met, "{name} was not planned");
}

fn nops(code: &mut [u8]) {
    code.fill(0x90);
}

#[test]
fn missing_exit_probe() {
    for name in ["plain", "tail", "branch", "runs_on"] {
        with_example(name, Mode::Time, |_, _, claim, context| {
            let mut draft = Draft::of(claim);
            let last = draft.emitted.inserted.pop().expect("an exit probe");
            nops(&mut draft.emitted.code[last.start as usize..last.end as usize]);
            draft.emitted.fixups.retain(|(at, _)| !(last.start..last.end).contains(at));
            let error = draft.check(claim, context).expect_err("no exit probe");
            assert!(matches!(error.what, Fault::NoProbe(_)), "{error}");
        });
    }
}

#[test]
fn missing_entry_probe() {
    with_example("plain", Mode::Time, |_, _, claim, context| {
        let mut draft = Draft::of(claim);
        let first = draft.emitted.inserted.remove(0);
        nops(&mut draft.emitted.code[first.start as usize..first.end as usize]);
        draft.emitted.fixups.retain(|(at, _)| !(first.start..first.end).contains(at));
        assert!(draft.check(claim, context).is_err());
    });
}

/// Calls alone are counted of functions that are always left, and of no others.
#[test]
fn exits_that_follow_from_entries() {
    // As if only an entry were counted.
    with_example("plain", Mode::Count, |_, _, claim, context| {
        let mut draft = Draft::of(claim);
        assert_eq!(draft.emitted.inserted.len(), 1, "none at the exit");
        let calls = Fixup::Probe(ProbeFixup::Accumulator(0));
        let counts = |f: &Fixup| matches!(f, Fixup::Probe(ProbeFixup::Accumulator(_)));
        let counter = draft.emitted.fixups.iter_mut().find(|(_, f)| counts(f));
        counter.expect("a counter").1 = calls;
        let error = draft.check(claim, context).expect_err("exits are counted nowhere");
        assert!(matches!(error.what, Fault::OtherProbe { .. }), "{error}");
    });
    // As if `ud2`, and the handler of `int3`, went on for certain.
    for (name, flow) in [("traps", Flow::Stop), ("breaks", Flow::Trap)] {
        with_example(name, Mode::Count, |_, lifted, claim, context| {
            assert!(claim.emitted.inserted.len() > 1, "exits of {name} are counted");
            let mut function = claim.function.clone();
            let stops = (0..function.insns.len()).filter(|i| function.flow(*i) == flow);
            for stop in stops.collect::<Vec<_>>() {
                function.facts[stop] = fettle_isa::Facts::default();
            }
            let claim = Claim { function: &function, ..*claim };
            let draft = emit_again(lifted, &claim, context, claim.exits.at_return);
            assert_eq!(draft.emitted.inserted.len(), 1);
            let error = draft.check(&claim, context).expect_err("it may not be left");
            assert_eq!(error.what, Fault::NotLeft);
        });
    }
}

/// Control falls through past an instruction that is there to fault, if it does not.
#[test]
fn another_way_on_from_the_end() {
    with_example("runs_on", Mode::Count, |_, _, claim, context| {
        assert!(claim.emitted.inserted.len() > 2, "exits are counted");
        let function = claim.function;
        let to = function.blocks.iter().find_map(|block| function.runs_on(block));
        let to = to.expect("it runs on");
        let leads_there = |f: &Fixup| *f == Fixup::Function(to);
        let mut draft = Draft::of(claim);
        let jump = draft.emitted.fixups.iter_mut().find(|(_, f)| leads_there(f));
        jump.expect("a jump").1 = Fixup::Function(function.entry);
        let error = draft.check(claim, context).expect_err("it leads elsewhere");
        assert_eq!(error.what, Fault::Address);

        let mut draft = Draft::of(claim);
        let jump = draft.emitted.fixups.iter().position(|(_, f)| leads_there(f));
        let (field, _) = draft.emitted.fixups.remove(jump.expect("a jump"));
        nops(&mut draft.emitted.code[field as usize - 1..field as usize + 4]);
        assert!(draft.check(claim, context).is_err(), "it leads nowhere");
    });
    // As if it were always left.
    with_example("runs_on", Mode::Count, |_, lifted, claim, context| {
        let mut function = claim.function.clone();
        for block in &mut function.blocks {
            if block.exit.is_some_and(|exit| matches!(exit, Exit::TailJump(_))) {
                block.exit = None;
            }
        }
        let claim = Claim { function: &function, ..*claim };
        let draft = emit_again(lifted, &claim, context, claim.exits.at_return);
        let error = draft.check(&claim, context).expect_err("it may not be left");
        assert_eq!(error.what, Fault::NotLeft);
    });
}

/// Emits again with less said to be live than is.
fn emit_again(
    lifted: &fettle_lift::Lifted,
    claim: &Claim<'_>,
    context: &Context<'_>,
    at_return: RegSet,
) -> Draft {
    let exits = ExitLiveness { at_return, at_tail_call: RegSet::NONE };
    // As if calls changed everything.
    let functions = lifted.functions.len();
    let (all, none) = (vec![RegSet::ALL; functions], vec![RegSet::NONE; functions]);
    let callees = Callees { clobbers: &all, inputs: &none, ..context.callees };
    let summary = Summary::of(context.image, claim.function, callees.index);
    let mut memory = Memory::default();
    let liveness = Liveness::solve(&summary, exits, callees, &mut memory);
    let emitted =
        emit::emit(claim.function, exits, &liveness, context, &mut emit::Tools::default())
            .expect("as before");
    let unwind = RowReader::new(context.image)
        .expect("unwind information")
        .carry_over(claim.function, &emitted, &lifted.exception_tables)
        .expect("as before");
    Draft {
        emitted,
        unwind,
        tables: claim.tables.to_vec(),
        entry_patches: claim.entry_patches.to_vec(),
    }
}

#[test]
fn probe_changes_what_is_live() {
    // The result, at a return.
    with_example("plain", Mode::Time, |_, lifted, claim, context| {
        let draft = emit_again(lifted, claim, context, RegSet::NONE);
        let error = draft.check(claim, context).expect_err("rax is the result");
        assert!(matches!(error.what, Fault::Live(_)), "{error}");
    });
    // Arguments, at a tail call.
    with_example("tail", Mode::Time, |_, lifted, claim, context| {
        let draft = emit_again(lifted, claim, context, RegSet::ALL);
        let error = draft.check(claim, context).expect_err("rdi is an argument");
        assert!(matches!(error.what, Fault::Live(_)), "{error}");
    });
}

#[test]
fn probe_changes_what_a_convention_of_its_own_may_need() {
    let by_the_abi = ExitLiveness::new(RegSet::CALLER_SAVED);
    for name in ["in_carry", "in_r11", "saves_rcx"] {
        with_example(name, Mode::Time, |_, lifted, claim, context| {
            assert_eq!(claim.exits.at_return, RegSet::ALL, "{name}");
            // As if it kept to the ABI.
            let claim = Claim { exits: by_the_abi, ..*claim };
            let draft = emit_again(lifted, &claim, context, by_the_abi.at_return);
            let error = draft.check(&claim, context).expect_err("callers may read more");
            assert!(matches!(error.what, Fault::Convention(_)), "{name}: {error}");
        });
    }
}

#[test]
fn wrong_branch_target() {
    with_example("branch", Mode::Count, |_, _, claim, context| {
        let mut wrong = 0;
        for (insn, at) in claim.function.insns.iter().zip(&claim.emitted.insn_offsets) {
            if !insn.is_jcc_short_or_near() {
                continue;
            }
            for to in &claim.emitted.block_offsets {
                let mut draft = Draft::of(claim);
                let jump = decode(&draft.emitted.code, *at).expect("a jump");
                let end = at + jump.len() as u32;
                let code = &mut draft.emitted.code;
                if past_padding(code, *to) == past_padding(code, jump.near_branch_target() as u32) {
                    continue;
                }
                let distance = to.wrapping_sub(end);
                if jump.len() == 2 {
                    code[end as usize - 1] = distance as u8;
                } else {
                    code[end as usize - 4..end as usize].copy_from_slice(&distance.to_le_bytes());
                }
                wrong += 1;
                assert!(draft.check(claim, context).is_err(), "{:#x} to {to:#x}", insn.ip());
            }
        }
        assert!(wrong > 0);
    });
}

#[test]
fn wrong_displacement() {
    with_example("plain", Mode::Count, |_, _, claim, context| {
        let mut draft = Draft::of(claim);
        let mut changed = false;
        for (_, fixup) in &mut draft.emitted.fixups {
            if let Fixup::Original { to, .. } = fixup {
                to.0 += 4;
                changed = true;
            }
        }
        assert!(changed);
        let error = draft.check(claim, context).expect_err("another variable");
        assert_eq!(error.what, Fault::Address);
    });
}

#[test]
fn dropped_and_added_instruction() {
    with_example("branch", Mode::Count, |_, _, claim, context| {
        let mut dropped = 0;
        for (at, len) in copies(claim) {
            let range = at as usize..(at + len) as usize;
            if claim.emitted.fixups.iter().any(|(f, _)| range.contains(&(*f as usize))) {
                continue;
            }
            let mut draft = Draft::of(claim);
            nops(&mut draft.emitted.code[range]);
            dropped += 1;
            assert!(draft.check(claim, context).is_err(), "instruction at {at:#x}");
        }
        assert!(dropped > 5);
        // Padding that does something: inc eax, two bytes at a time.
        let ends: Vec<u32> = copies(claim).iter().map(|(at, len)| at + len).collect();
        for at in ends {
            let to = past_padding(&claim.emitted.code, at);
            let gap = claim.emitted.code.get(at as usize..to as usize).unwrap_or_default();
            // Behind a jump, control does not come to padding.
            let reached =
                claim.function.facts.iter().zip(&claim.emitted.insn_offsets).any(|(facts, o)| {
                    decode(&claim.emitted.code, *o).is_some_and(|n| o + n.len() as u32 == at)
                        && facts.goes_on()
                });
            if gap.len() < 2 || !reached {
                continue;
            }
            let mut draft = Draft::of(claim);
            nops(&mut draft.emitted.code[at as usize..to as usize]);
            draft.emitted.code[at as usize..at as usize + 2].copy_from_slice(&[0xff, 0xc0]);
            assert!(draft.check(claim, context).is_err(), "padding at {at:#x}");
        }
    });
}

#[test]
fn swapped_table_entries() {
    with_example("table", Mode::Count, |_, _, claim, context| {
        let mut draft = Draft::of(claim);
        let table = &mut draft.tables.first_mut().expect("a table").1;
        table.entries.swap(0, 1);
        let error = draft.check(claim, context).expect_err("another case");
        assert_eq!(error.what, Fault::Table);
        let mut draft = Draft::of(claim);
        draft.tables[0].1.entries[0] = PlannedEntry::Null;
        assert_eq!(draft.check(claim, context).expect_err("nowhere").what, Fault::Table);
        // One entry too few.
        let mut draft = Draft::of(claim);
        draft.tables[0].1.entries.pop();
        while draft.tables[0].1.entries.len() >= claim.function.tables[0].entries.len() {
            draft.tables[0].1.entries.pop();
        }
        assert_eq!(draft.check(claim, context).expect_err("too short").what, Fault::Table);
        // The copy's address in the place of some other one.
        let mut draft = Draft::of(claim);
        let t = draft.tables[0].0;
        let other = draft
            .emitted
            .fixups
            .iter()
            .position(|(_, f)| matches!(f, Fixup::Original { after: 0, .. }));
        draft.emitted.fixups[other.expect("an address")].1 = Fixup::Table(t);
        assert!(draft.check(claim, context).is_err());
    });
}

#[test]
fn wrong_rules_after_push() {
    with_example("branch", Mode::Events, |image, lifted, claim, context| {
        let mut draft = Draft::of(claim);
        let pushes = draft.emitted.unwind.iter().filter(|p| p.pushed > 0).count();
        assert!(pushes > 0, "the probes of this function push nothing");
        for point in &mut draft.emitted.unwind {
            point.pushed = 0;
        }
        draft.unwind = RowReader::new(image)
            .expect("unwind information")
            .carry_over(claim.function, &draft.emitted, &lifted.exception_tables)
            .expect("as before");
        assert_eq!(draft.check(claim, context).expect_err("no rules").what, Fault::Unwind);
    });
}

#[test]
fn missing_entry_patch_and_unwind() {
    with_example("table", Mode::Time, |_, _, claim, context| {
        let mut draft = Draft::of(claim);
        draft.entry_patches.clear();
        assert_eq!(draft.check(claim, context).expect_err("no way in").what, Fault::EntryPatch);
        let mut draft = Draft::of(claim);
        draft.unwind.clear();
        assert_eq!(draft.check(claim, context).expect_err("no rules").what, Fault::Unwind);
    });
}

const POINTED: [&str; 6] =
    ["pointed", "by_memory", "by_table", "by_variable", "tail_pointed", "tail_by_memory"];

/// Every change of a bit in `range` must be found, but for those that change nothing.
fn every_bit(claim: &Claim<'_>, context: &Context<'_>, range: std::ops::Range<u32>) {
    let code = &claim.emitted.code;
    for at in range.clone() {
        if is_field(claim.emitted, at) {
            continue;
        }
        for bit in 0..8 {
            let mut draft = Draft::of(claim);
            draft.emitted.code[at as usize] ^= 1 << bit;
            if draft.check(claim, context).is_err() {
                continue;
            }
            let stretch = Inserted { start: range.start, end: range.end };
            let (old, new) = (stretch_of(code, stretch), stretch_of(&draft.emitted.code, stretch));
            let same = old.len() == new.len()
                && old.iter().zip(&new).all(|(a, b)| {
                    a == b || same_effect(a, b) || same_jump(a, b, (code, &draft.emitted.code))
                });
            assert!(same, "bit {bit} of {at:#x} in {range:x?}: {code:x?}");
        }
    }
}

/// Every fixup that is left out, or is another's, must be found.
fn every_fixup(claim: &Claim<'_>, context: &Context<'_>) {
    let fixups = &claim.emitted.fixups;
    for i in 0..fixups.len() {
        let mut draft = Draft::of(claim);
        draft.emitted.fixups.remove(i);
        assert!(draft.check(claim, context).is_err(), "without {:x?}", fixups[i]);
        for j in 0..fixups.len() {
            let mut draft = Draft::of(claim);
            draft.emitted.fixups[i].1 = fixups[j].1;
            let found = draft.check(claim, context).is_err();
            assert!(found || fixups[i].1 == fixups[j].1, "{:x?} as {:x?}", fixups[i], fixups[j]);
        }
    }
}

/// Its agent gets the function at the entry and at exits, and how far the stack pointer is away.
#[test]
fn probes_that_sample() {
    for name in ["plain", "tail"] {
        with_example(name, Mode::Sample, |_, _, claim, context| {
            every_bit(claim, context, 0..claim.emitted.code.len() as u32);
            every_fixup(claim, context);
        });
    }
}

#[test]
fn counters_of_targets() {
    for name in POINTED {
        with_pointers(
            name,
            Mode::Edges,
            |_| Pointers::Counted,
            |_, _, claim, context| {
                assert_eq!(claim.emitted.pointers.len(), 1, "{name}");
                let code = claim.emitted.code.len() as u32;
                every_bit(claim, context, 0..code);
                every_fixup(claim, context);
                // Another call's table, and none.
                let mut draft = Draft::of(claim);
                for (_, fixup) in &mut draft.emitted.fixups {
                    use fettle_code::ProbeFixup;
                    if let Fixup::Probe(ProbeFixup::Counter(n)) = fixup {
                        *n += 2;
                    }
                }
                let error = draft.check(claim, context).expect_err("another table");
                assert_eq!(error.what, Fault::Counter);
                let mut draft = Draft::of(claim);
                draft.emitted.pointers.clear();
                assert!(draft.check(claim, context).is_err(), "a probe that nobody knows of");
            },
        );
    }
}

/// Calls of other modules' functions, and jumps to them, by the address that the PLT entry
/// jumps to.
#[test]
fn calls_through_slots() {
    for (name, want) in [("branch", [0xff, 0x15]), ("tail", [0xff, 0x25])] {
        with_example(name, Mode::Plain, |image, _, claim, context| {
            let Emitted { code, fixups, .. } = claim.emitted;
            let slots: Vec<LinkAddr> = image.plt().iter().filter_map(|entry| entry.slot).collect();
            let through = |(at, fixup): &&(u32, Fixup)| {
                let is_slot =
                    matches!(fixup, Fixup::Original { to, after: 0 } if slots.contains(to));
                is_slot && code[*at as usize - 2..].starts_with(&want)
            };
            let (at, _) = *fixups.iter().find(through).expect("it calls by the slot");
            every_bit(claim, context, at - 2..at + 4);
            every_fixup(claim, context);
            // Another word.
            let mut draft = Draft::of(claim);
            let fixup = draft.emitted.fixups.iter_mut().find(|(other, _)| *other == at);
            if let Some((_, Fixup::Original { to, .. })) = fixup {
                *to += 8;
            }
            let error = draft.check(claim, context).expect_err("another word");
            assert_eq!(error.what, Fault::Address);
            // A function that returns twice, and a call that is no such.
            let entries: Vec<LinkAddr> = image.plt().iter().map(|entry| entry.start).collect();
            let strange = Context { returns_twice: &entries, ..*context };
            assert!(fettle_check::check(*claim, &strange).is_err());
            let mut draft = Draft::of(claim);
            draft.emitted.code[at as usize - 1] ^= 0x30;
            assert!(draft.check(claim, context).is_err());
        });
    }
}

#[test]
fn promoted_calls() {
    let to_plain = |lifted: &Lifted| -> Pointers<'static> {
        let plain = lifted.functions.iter().find(|f| f.name.as_deref() == Some("plain"));
        let plain = plain.expect("it is there").entry;
        let calls = common::targets(lifted).into_keys();
        Pointers::Promoted(Box::leak(Box::new(calls.map(|call| (call, plain)).collect())))
    };
    for name in POINTED {
        with_pointers(name, Mode::Plain, to_plain, |_, lifted, claim, context| {
            assert_eq!(claim.emitted.pointers.len(), 1, "{name}");
            let code = claim.emitted.code.len() as u32;
            every_bit(claim, context, 0..code);
            every_fixup(claim, context);
            // A comparison with one function, and a call of another.
            let other = lifted.functions.iter().find(|f| f.name.as_deref() == Some("tail"));
            let other = other.expect("it is there").entry;
            for (i, (_, fixup)) in claim.emitted.fixups.iter().enumerate() {
                let mut draft = Draft::of(claim);
                draft.emitted.fixups[i].1 = match fixup {
                    Fixup::Function(_) => Fixup::Function(other),
                    Fixup::Original { after, .. } => Fixup::Original { to: other, after: *after },
                    _ => continue,
                };
                assert!(draft.check(claim, context).is_err(), "{name}: {fixup:?}");
            }
            // A function that reads what the comparison has written.
            let inputs = vec![RegSet::FLAGS; lifted.functions.len()];
            let callees = Callees { inputs: &inputs, ..context.callees };
            let strange = Context { callees, ..*context };
            let error = fettle_check::check(*claim, &strange).expect_err("flags are passed");
            assert!(matches!(error.what, Fault::Live(_)), "{error}");
            // It was not asked for.
            let strange = Context { pointers: Pointers::Kept, ..*context };
            assert!(fettle_check::check(*claim, &strange).is_err());
        });
    }
}
