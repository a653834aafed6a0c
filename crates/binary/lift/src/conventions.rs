//! Which functions keep to a calling convention of their own.
//!
//! What the ABI says of registers and flags holds for code that compilers made. Code written by hand
//! may answer in the carry flag, take an argument in `r11`, or keep `rcx` for a caller that counts on
//! it, and its callers may be in another file, or come through a pointer. Then nothing but the code
//! itself shows. It does so by instructions that would be pointless under the ABI: those that write
//! only what is dead by it. A compiler removes such an instruction; an author who wrote it knows a function
//! that reads what it writes. Restoring a register that the ABI lets a call change is of that kind.
//!
//! Of such a function nothing is known to be dead, so its probes keep everything.

use fettle_image::{Image, LinkAddr};
use fettle_isa::{Facts, Flow, Gpr, Insn, RegSet};
use iced_x86::{Code, ConditionCode, Instruction, Mnemonic, OpKind, Register};

use crate::function::{BlockId, Function};
use crate::liveness::{Callees, Liveness, Memory, read_at_once};
use crate::summary::Summary;

/// Registers that a function which saves them keeps for callers; pushing `rax`, and popping whatever, is
/// how compilers move the stack pointer.
const SAVED_FOR_CALLERS: RegSet =
    RegSet::CALLER_SAVED.minus(RegSet::of(&[Gpr::Rax])).minus(RegSet::FLAGS);

/// The instruction of `function` that shows that it keeps to a convention of its own, if one does.
/// `liveness` is what the ABI, and callers that are known, leave alive.
pub fn evidence(
    image: &Image,
    function: &Function,
    liveness: &Liveness,
    callees: Callees<'_>,
) -> Option<LinkAddr> {
    let mut pushed: Option<RegSet> = None;
    for (number, block) in function.blocks.iter().enumerate() {
        // Where control ends, nothing is live: what is done there is to be seen in a debugger.
        let last = block.insns.end as usize - 1;
        if function.flow(last) == Flow::Stop {
            continue;
        }
        let mut live = liveness.at_end(BlockId(number as u32));
        for i in block.insns.clone().rev() {
            let (insn, facts) = (&function.insns[i as usize], function.facts[i as usize]);
            if is_dead(facts, live) {
                let full = function.full(image, i as usize);
                let restores = popped(&full).is_some_and(|register| {
                    let pushed = pushed.get_or_insert_with(|| pushed_in(image, function));
                    pushed.contains(register)
                });
                if restores || is_deliberate(&full) {
                    return Some(LinkAddr(insn.ip()));
                }
            }
            live = liveness.before_one(function, i, live, callees);
        }
    }
    None
}

/// Whether an instruction writes registers or flags, and none that is live behind it; that `pop` moves
/// the stack pointer does not count.
fn is_dead(facts: Facts, live: RegSet) -> bool {
    let mut writes = facts.writes();
    if facts.kills().minus(RegSet::of(&[Gpr::Rsp])) != RegSet::NONE {
        writes = writes.minus(RegSet::of(&[Gpr::Rsp]));
    }
    // `al` is read as the number of vector registers where `rax` is not.
    let live = match live.is_superset(RegSet::VECTOR_COUNT) {
        true => live.union(RegSet::of(&[Gpr::Rax])),
        false => live,
    };
    facts.goes_on() && !writes.is_empty() && writes.intersection(live).is_empty()
}

/// The register that an instruction pops.
fn popped(insn: &Instruction) -> Option<Gpr> {
    let pops = insn.code() == Code::Pop_r64;
    pops.then(|| Gpr::containing(insn.op0_register())).flatten()
}

/// Registers that a function pushes, of those that are kept for callers by that.
fn pushed_in(image: &Image, function: &Function) -> RegSet {
    let mut pushed = RegSet::NONE;
    let is_push = |insn: &Insn, facts: &Facts| insn.len() <= 2 && facts.writes().contains(Gpr::Rsp);
    for (i, (insn, facts)) in function.insns.iter().zip(&function.facts).enumerate() {
        if is_push(insn, facts) {
            let full = function.full(image, i);
            let register = Gpr::containing(full.op0_register());
            if let Some(register) = register.filter(|_| full.code() == Code::Push_r64) {
                pushed.insert(register);
            }
        }
    }
    pushed.intersection(SAVED_FOR_CALLERS)
}

/// Whether an instruction that writes no live register has no other purpose. Those not listed may have:
/// memory, vector registers, the time, a fault.
fn is_deliberate(insn: &Instruction) -> bool {
    use Mnemonic as M;
    let compares = matches!(
        insn.mnemonic(),
        M::Cmp
            | M::Test
            | M::Bt
            | M::Stc
            | M::Clc
            | M::Cmc
            | M::Sahf
            | M::Ptest
            | M::Vptest
            | M::Comiss
            | M::Comisd
            | M::Ucomiss
            | M::Ucomisd
            | M::Vcomiss
            | M::Vcomisd
            | M::Vucomiss
            | M::Vucomisd
    );
    if compares {
        return true;
    }
    let computes = matches!(
        insn.mnemonic(),
        M::Mov
            | M::Movzx
            | M::Movsx
            | M::Movsxd
            | M::Movd
            | M::Movq
            | M::Lea
            | M::Add
            | M::Sub
            | M::And
            | M::Or
            | M::Xor
            | M::Not
            | M::Neg
            | M::Inc
            | M::Dec
            | M::Adc
            | M::Sbb
            | M::Shl
            | M::Shr
            | M::Sar
            | M::Rol
            | M::Ror
            | M::Imul
            | M::Bts
            | M::Btr
            | M::Btc
            | M::Bsf
            | M::Bsr
            | M::Popcnt
            | M::Lzcnt
            | M::Tzcnt
            | M::Bswap
            | M::Seta
            | M::Setae
            | M::Setb
            | M::Setbe
            | M::Sete
            | M::Setne
            | M::Setg
            | M::Setge
            | M::Setl
            | M::Setle
            | M::Sets
            | M::Setns
            | M::Seto
            | M::Setno
            | M::Setp
            | M::Setnp
    );
    let to_register = insn.op0_kind() == OpKind::Register
        && Gpr::containing(insn.op0_register()).is_some_and(|to| to != Gpr::Rsp);
    computes && to_register && !is_idle(insn)
}

/// Padding, room for patches, and clearing of registers so that their values do not leak
/// (`-fzero-call-used-regs`): compilers write it although nothing reads it.
fn is_idle(insn: &Instruction) -> bool {
    let to = insn.op0_register();
    match insn.mnemonic() {
        Mnemonic::Mov | Mnemonic::Xor | Mnemonic::Sub => {
            insn.op1_kind() == OpKind::Register && insn.op1_register() == to
        }
        Mnemonic::Lea => {
            insn.memory_base() == to
                && insn.memory_displacement64() == 0
                && matches!(insn.memory_index(), Register::None)
        }
        _ => false,
    }
}

/// What no function that keeps to the ABI reads at its entry.
pub const OWN_INPUTS: RegSet = RegSet::of(&[Gpr::R11]).union(RegSet::FLAGS);

/// What functions read beyond what the ABI passes to those that are called indirectly, as any
/// of them may be; `inputs` is what each reads, or lives through it. Only what it reads before it calls
/// another was certainly passed to it. `rax` and `r10` are for the number of vector registers and the
/// static chain, which each caller sets itself.
pub fn pointed(
    image: &Image,
    functions: &[Function],
    summaries: &[Summary],
    inputs: &[RegSet],
) -> RegSet {
    let mut memory = Memory::default();
    let mut all = RegSet::NONE;
    for ((function, summary), inputs) in functions.iter().zip(summaries).zip(inputs) {
        if inputs.intersection(OWN_INPUTS).is_empty() {
            continue;
        }
        let mut own = read_at_once(summary, &mut memory).intersection(OWN_INPUTS);
        if !own.is_empty() {
            own = own.intersection(reads_first(image, function, own));
        }
        all = all.union(own);
    }
    all
}

/// What an instruction reads that has no bearing on what it does: `syscall` puts flags by, `sete` leaves
/// the rest of its register as it was, `or reg, -1` is how to write that number in few bytes, and `push`
/// is how to move the stack pointer. A push that saves the register for callers shows by its pop.
fn read_for_nothing(insn: &Instruction) -> RegSet {
    let r11 = RegSet::of(&[Gpr::R11]);
    let to_register = insn.op0_kind() == OpKind::Register;
    match insn.mnemonic() {
        Mnemonic::Syscall => RegSet::FLAGS,
        Mnemonic::Push => r11,
        Mnemonic::Or
            if insn.op1_kind() == OpKind::Immediate8to64 && insn.immediate8to64() == -1 =>
        {
            r11
        }
        Mnemonic::Or
            if insn.op1_kind() == OpKind::Immediate8to32 && insn.immediate8to32() == -1 =>
        {
            r11
        }
        _ if insn.condition_code() != ConditionCode::None
            && insn.op_count() == 1
            && to_register =>
        {
            r11
        }
        _ => RegSet::NONE,
    }
}

/// Of `wanted`, what something in a function reads that nothing in it has written before, not even a part
/// of it: flags are one register elsewhere, of which some instructions write a part (`bt`), and so do some
/// of `r11` (`sete r11b`).
fn reads_first(image: &Image, function: &Function, wanted: RegSet) -> RegSet {
    let mut found = RegSet::NONE;
    // What nothing has written yet, by block, when control last came there.
    let mut open = vec![RegSet::NONE; function.blocks.len()];
    let mut work = vec![(function.entry_block(), wanted)];
    while let Some((id, mut unwritten)) = work.pop() {
        if open[id.index()].is_superset(unwritten) {
            continue;
        }
        open[id.index()] = open[id.index()].union(unwritten);
        let block = &function.blocks[id.index()];
        for i in block.insns.clone() {
            let facts = function.facts[i as usize];
            let mut read = facts.reads().intersection(unwritten);
            if !read.is_empty() {
                read = read.minus(read_for_nothing(&function.full(image, i as usize)));
            }
            found = found.union(read);
            unwritten = match function.flow(i as usize) {
                Flow::Call(_) | Flow::IndirectCall => RegSet::NONE,
                _ => unwritten.minus(facts.writes()),
            };
        }
        if !unwritten.is_empty() {
            work.extend(block.succs.iter().map(|succ| (*succ, unwritten)));
        }
    }
    found
}
