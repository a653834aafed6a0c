//! The value that a register has before an instruction, followed backwards.

use fettle_image::LinkAddr;
use fettle_isa::{Flow, Gpr, RegSet};
use iced_x86::{ConditionCode, Instruction, Mnemonic, OpKind, Register};

use crate::function::Bound;
use crate::range_code::RangeCode;

use super::entries::MAX_ENTRIES;

/// Instructions that a search backwards looks at.
const MAX_STEPS: usize = 400;

/// The value of a register, as far as the instructions before it show.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Expr {
    Const { value: u64, named_at: u64 },
    Load { bytes: u8, address: Box<Expr>, at: u64 },
    Add(Box<Expr>, Box<Expr>),
    Scaled(u32),
    Other,
}

fn add(a: Expr, b: Expr) -> Expr {
    match (a, b) {
        (Expr::Const { value, named_at }, Expr::Const { value: other, .. }) => {
            Expr::Const { value: value.wrapping_add(other), named_at }
        }
        (Expr::Other, Expr::Other) => Expr::Other,
        (a, b) => Expr::Add(Box::new(a), Box::new(b)),
    }
}

pub(super) struct Evaluator<'a> {
    pub(super) code: &'a RangeCode,
    /// The bytes of the range.
    pub(super) bytes: &'a [u8],
    pub(super) steps: usize,
    /// What a comparison or mask on the way says of the number of entries.
    pub(super) bound: Option<Bound>,
}

impl Evaluator<'_> {
    /// All that a decoder knows of instruction `index`.
    pub(super) fn full(&self, index: usize) -> Instruction {
        let insn = &self.code.insns[index];
        let from = (insn.ip() - self.code.range.start.0) as usize;
        insn.full(&self.bytes[from..])
    }

    /// The instruction that control comes from to the one at `at`; by falling through where it may.
    pub(super) fn before(&mut self, at: u64) -> Option<usize> {
        self.steps += 1;
        if self.steps > MAX_STEPS {
            return None;
        }
        if let Some(previous) = self.code.index_before(LinkAddr(at))
            && !matches!(
                self.flow(previous),
                Flow::Jump(_) | Flow::IndirectJump | Flow::Return | Flow::Stop
            )
        {
            return Some(previous);
        }
        self.steps += 8;
        let leads_here = |i: &usize| {
            let insn = &self.code.insns[*i];
            insn.near_branch_target() == at && !matches!(self.flow(*i), Flow::Call(_))
        };
        (0..self.code.insns.len()).find(leads_here)
    }

    fn flow(&self, index: usize) -> Flow {
        self.code.facts[index].flow(&self.code.insns[index])
    }

    pub(super) fn writes(&self, index: usize, register: Register) -> bool {
        let writes = self.code.facts[index].writes();
        Gpr::containing(register).is_some_and(|r| writes.contains(r))
    }

    /// What `register` holds before the instruction at `at`.
    pub(super) fn register_before(&mut self, register: Register, at: u64, depth: u32) -> Expr {
        let register = register.full_register();
        let Some(gpr) = Gpr::containing(register) else { return Expr::Other };
        if depth > 8 {
            return Expr::Other;
        }
        let mut here = at;
        while let Some(index) = self.before(here) {
            here = self.code.insns[index].ip();
            if self.code.facts[index].calls() {
                if RegSet::CALLER_SAVED.contains(gpr) {
                    return Expr::Other;
                }
            } else if self.writes(index, register) {
                return self.value_written(&self.full(index), register, depth + 1);
            }
        }
        self.only_constant(register)
    }

    /// A register that holds one address wherever the function names one for it: a table's
    /// address taken out of a loop.
    fn only_constant(&self, register: Register) -> Expr {
        let mut found = None;
        for (i, insn) in self.code.insns.iter().enumerate() {
            if insn.is_lea()
                && insn.is_ip_rel_memory_operand()
                && self.writes(i, register)
                && self.full(i).op0_register() == register
            {
                match found {
                    None => found = Some((insn.ip_rel_memory_address(), insn.ip())),
                    Some((value, _)) if value == insn.ip_rel_memory_address() => {}
                    Some(_) => return Expr::Other,
                }
            }
        }
        found.map_or(Expr::Other, |(value, named_at)| Expr::Const { value, named_at })
    }

    fn value_written(&mut self, insn: &Instruction, register: Register, depth: u32) -> Expr {
        if insn.op0_kind() != OpKind::Register
            || insn.op0_register().full_register() != register
            || insn.op0_register().size() < 4
        {
            return if insn.mnemonic() == Mnemonic::Cdqe && register == Register::RAX {
                match self.register_before(register, insn.ip(), depth) {
                    load @ Expr::Load { bytes: 4, .. } => load,
                    _ => Expr::Scaled(1),
                }
            } else {
                Expr::Other
            };
        }
        match insn.mnemonic() {
            Mnemonic::Mov | Mnemonic::Movsxd | Mnemonic::Movzx => match insn.op1_kind() {
                OpKind::Register if insn.op1_register().size() >= 4 => {
                    // A 32-bit copy clears the upper half: fine for an index, not for an address.
                    match self.register_before(insn.op1_register(), insn.ip(), depth) {
                        e if insn.op1_register().size() == 8 => e,
                        load @ Expr::Load { bytes: 4, .. } => load,
                        _ => Expr::Scaled(1),
                    }
                }
                OpKind::Memory => {
                    let bytes = insn.memory_size().size() as u8;
                    let slot = insn.memory_base();
                    if matches!(slot, Register::RBP | Register::RSP)
                        && insn.memory_index() == Register::None
                    {
                        return self.spilled(insn, depth);
                    }
                    let address = Box::new(self.address(insn, depth));
                    Expr::Load { bytes, address, at: insn.ip() }
                }
                OpKind::Immediate32 | OpKind::Immediate64 | OpKind::Immediate32to64 => {
                    Expr::Const { value: insn.immediate(1), named_at: insn.ip() }
                }
                _ => Expr::Other,
            },
            Mnemonic::Lea => self.address(insn, depth),
            Mnemonic::Add => {
                let left = self.register_before(insn.op0_register(), insn.ip(), depth);
                let right = match insn.op1_kind() {
                    OpKind::Register => self.register_before(insn.op1_register(), insn.ip(), depth),
                    OpKind::Memory => Expr::Load {
                        bytes: insn.memory_size().size() as u8,
                        address: Box::new(self.address(insn, depth)),
                        at: insn.ip(),
                    },
                    _ => Expr::Const { value: insn.immediate(1), named_at: insn.ip() },
                };
                add(left, right)
            }
            Mnemonic::Shl if insn.op1_kind() == OpKind::Immediate8 => {
                match self.register_before(insn.op0_register(), insn.ip(), depth) {
                    Expr::Const { .. } => Expr::Other,
                    _ => Expr::Scaled(1 << insn.immediate8().min(8)),
                }
            }
            _ => Expr::Other,
        }
    }

    /// A value that the stack holds: whatever was stored to the same place last.
    fn spilled(&mut self, load: &Instruction, depth: u32) -> Expr {
        let mut here = load.ip();
        while let Some(index) = self.before(here) {
            let insn = self.full(index);
            here = insn.ip();
            if insn.op0_kind() == OpKind::Memory
                && insn.memory_base() == load.memory_base()
                && insn.memory_index() == Register::None
                && insn.memory_displacement64() == load.memory_displacement64()
            {
                return if insn.mnemonic() == Mnemonic::Mov && insn.op1_kind() == OpKind::Register {
                    self.register_before(insn.op1_register(), insn.ip(), depth + 1)
                } else {
                    Expr::Other
                };
            }
            if load.memory_base() == Register::RSP && self.writes(index, Register::RSP) {
                return Expr::Other;
            }
        }
        Expr::Other
    }

    pub(super) fn address(&mut self, insn: &Instruction, depth: u32) -> Expr {
        if insn.segment_prefix() != Register::None {
            return Expr::Other;
        }
        if insn.is_ip_rel_memory_operand() {
            return Expr::Const { value: insn.ip_rel_memory_address(), named_at: insn.ip() };
        }
        let disp = Expr::Const { value: insn.memory_displacement64(), named_at: insn.ip() };
        let mut sum = match insn.memory_base() {
            Register::None => disp,
            base => match self.register_before(base, insn.ip(), depth) {
                // The register names the table; a displacement moves it.
                Expr::Const { value, named_at } => Expr::Const {
                    value: value.wrapping_add(insn.memory_displacement64()),
                    named_at,
                },
                e if insn.memory_displacement64() == 0 => e,
                e => add(e, disp),
            },
        };
        if insn.memory_index() != Register::None {
            let scale = insn.memory_index_scale();
            let index = match scale {
                // With scale 1 either register may be the base.
                1 => match self.register_before(insn.memory_index(), insn.ip(), depth) {
                    Expr::Other => Expr::Scaled(1),
                    e => e,
                },
                _ => Expr::Scaled(scale),
            };
            sum = match (sum, index) {
                (Expr::Other, index) => Expr::Add(Box::new(Expr::Other), Box::new(index)),
                // `lea rdx, [rax*4 + 0]` is an index, not an address.
                (Expr::Const { value: 0, .. }, index) => index,
                (sum, index) => Expr::Add(Box::new(sum), Box::new(index)),
            };
        }
        sum
    }

    /// Looks for `cmp index, n` with a jump away above it, or `and index, n`, before the
    /// instruction at `access`, which reads the table with register `index`.
    ///
    /// A bound counts only if it is one of the index itself: of the register, of the one it was
    /// copied from, or of the place on the stack it was loaded from.
    pub(super) fn find_bound(&mut self, access: &Instruction, index: Register) {
        self.steps = 0;
        let mut here = access.ip();
        // What holds the index: a register, or a place on the stack.
        let mut register = index.full_register();
        let mut slot = None;
        let mut above = None;
        for _ in 0..24 {
            let Some(index) = self.before(here) else { return };
            let insn = self.full(index);
            let on_register = insn.op0_kind() == OpKind::Register
                && insn.op0_register().full_register() == register;
            let on_slot = insn.op0_kind() == OpKind::Memory && slot == Some(place(&insn));
            match insn.mnemonic() {
                Mnemonic::Cmp if on_register || on_slot => {
                    let (Some(n), Some(inclusive)) = (immediate(&insn), above) else { return };
                    if n < MAX_ENTRIES as u64 {
                        self.bound = Some(Bound::Exact(if inclusive { n + 1 } else { n }));
                    }
                    return;
                }
                Mnemonic::And if on_register => {
                    let mask = immediate(&insn).filter(|m| *m < 1024);
                    self.bound =
                        mask.filter(|m| (m + 1).is_power_of_two()).map(|m| Bound::AtMost(m + 1));
                    return;
                }
                Mnemonic::Mov | Mnemonic::Movzx | Mnemonic::Movsxd if on_register => {
                    match insn.op1_kind() {
                        OpKind::Register if insn.op1_register().is_gpr() => {
                            register = insn.op1_register().full_register();
                        }
                        OpKind::Memory => {
                            slot = Some(place(&insn));
                            register = Register::None;
                        }
                        _ => return,
                    }
                }
                // `lea rdx, [rax*4]`: the index in steps of the entries' size.
                Mnemonic::Lea
                    if on_register
                        && insn.memory_base() == Register::None
                        && insn.memory_displacement64() == 0 =>
                {
                    register = insn.memory_index().full_register();
                }
                _ if on_slot => return,
                _ if register != Register::None && self.writes(index, register) => return,
                _ => {}
            }
            // Which way round the check is depends on whether this path jumped or fell through.
            let fell_through = insn.next_ip() == here;
            match (insn.condition_code(), fell_through) {
                (ConditionCode::a, true) | (ConditionCode::be, false) => above = Some(true),
                (ConditionCode::ae, true) | (ConditionCode::b, false) => above = Some(false),
                // Another jump that was not taken, on the same comparison or an earlier one.
                (_, true) => {}
                _ if insn.is_jcc_short_or_near() => return,
                _ => {}
            }
            if insn.is_call_near() || insn.is_call_near_indirect() {
                return;
            }
            here = insn.ip();
        }
    }
}

/// The place in memory that an instruction's operand names.
fn place(insn: &Instruction) -> (Register, Register, u32, u64) {
    let (base, index) = (insn.memory_base(), insn.memory_index());
    (base, index, insn.memory_index_scale(), insn.memory_displacement64())
}

fn immediate(insn: &Instruction) -> Option<u64> {
    (insn.op_count() == 2 && !matches!(insn.op1_kind(), OpKind::Register | OpKind::Memory))
        .then(|| insn.immediate(1))
}
