//! Jump tables: from an indirect jump back to the table it goes through.
//!
//! Compilers write a `switch` as a bound check, a load from a table of 32-bit distances or
//! 64-bit addresses, and an indirect jump; a computed `goto` is the same without the check. The
//! address jumped to is evaluated backwards as a small expression; tables and indirect tail calls
//! differ in its shape:
//!
//! ```text
//! lea  rdx, [rip + table]          Add(Load32(Add(Const(table), Scaled)), Const(table))
//! movsxd rax, [rdx + rax*4]
//! add  rax, rdx
//! jmp  rax
//! ```

use std::ops::Range;

use fettle_image::{Image, LinkAddr, Reloc};
use fettle_isa::{Facts, Flow, Gpr, Insn, RegSet};
use gimli::UnwindSection;
use iced_x86::{
    ConditionCode, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register,
};
use rustc_hash::FxHashMap;

use crate::function::{Bound, Exit, Function, JumpTable, TableKind};
use crate::range_code::RangeCode;

/// Entries that one table may have at most.
const MAX_ENTRIES: usize = 1 << 16;
/// Instructions that a search backwards looks at.
const MAX_STEPS: usize = 400;

/// What resolving a jump needs to know of the image.
#[derive(Debug)]
pub struct TableContext<'a> {
    pub(crate) image: &'a Image,
    /// Code addresses that data holds, sorted.
    labels: Vec<LinkAddr>,
    /// Ranges that only ever are a part of another function, sorted.
    cold: Vec<Range<LinkAddr>>,
    /// Where tables of addresses begin, for they are named by instructions of fixed-address code;
    /// sorted.
    named: Vec<LinkAddr>,
}

/// What an indirect jump turned out to be.
#[derive(Debug)]
pub enum Resolution {
    /// A jump through this table.
    Table(JumpTable),
    /// A call whose frame is already gone.
    TailCall,
    /// Neither for certain.
    Unknown,
}

impl<'a> TableContext<'a> {
    /// Gathers code addresses in data.
    pub fn new(image: &'a Image, cold: Vec<Range<LinkAddr>>) -> TableContext<'a> {
        let filled = image.relocs().iter().filter_map(Reloc::address);
        let mut labels: Vec<LinkAddr> = filled.filter(|value| image.is_code(*value)).collect();
        if image.kind() == fettle_image::Kind::Executable {
            // No relocations are left to go by; every aligned word that could be a code address
            // may be one.
            for segment in image.segments().iter().filter(|s| !s.executable) {
                let len = usize::try_from(segment.file_size).unwrap_or(0);
                let Some(bytes) = image.read(segment.start, len) else { continue };
                let skew = segment.start.0.wrapping_neg() as usize & 7;
                for word in bytes.get(skew..).unwrap_or_default().chunks_exact(8) {
                    let value = LinkAddr(u64::from_le_bytes(word.try_into().unwrap()));
                    if value.0 != 0 && image.is_code(value) {
                        labels.push(value);
                    }
                }
            }
        }
        labels.sort_unstable();
        labels.dedup();
        TableContext { image, labels, cold, named: named_tables(image) }
    }

    /// Code addresses that data holds, sorted.
    pub fn labels(&self) -> &[LinkAddr] {
        &self.labels
    }

    /// Code addresses that data holds and that lie in `range`.
    pub fn labels_in(&self, range: &Range<LinkAddr>) -> &[LinkAddr] {
        let from = self.labels.partition_point(|a| *a < range.start);
        let to = self.labels.partition_point(|a| *a < range.end);
        &self.labels[from..to.max(from)]
    }

    /// Whether a table of `range` may lead to `target`.
    fn may_lead(&self, range: &Range<LinkAddr>, target: LinkAddr) -> bool {
        // A cold part leads back to the function that it belongs to, wherever that is.
        let from_cold = || self.cold.binary_search_by_key(&range.start, |r| r.start).is_ok();
        range.contains(&target) || (from_cold() && self.image.is_code(target)) || {
            let i = self.cold.partition_point(|r| r.end <= target);
            self.cold.get(i).is_some_and(|r| r.contains(&target))
        }
    }

    fn read_u32(&self, at: LinkAddr) -> Option<u32> {
        Some(u32::from_le_bytes(self.image.read(at, 4)?.try_into().ok()?))
    }

    /// Whether the stack pointer at `at` is where it was at the function's entry, by the unwind
    /// table; `None` where that does not say.
    fn at_entry_level(&self, at: LinkAddr) -> Option<bool> {
        let fdes = self.image.fdes();
        let i = fdes.partition_point(|f| f.end <= at);
        let fde = fdes.get(i).filter(|f| f.start <= at)?;
        let (_, bytes) = self.image.eh_frame()?;
        let mut section = gimli::EhFrame::new(bytes, gimli::LittleEndian);
        section.set_address_size(8);
        let bases = self.image.unwind_bases();
        let entry = section
            .fde_from_offset(
                &bases,
                gimli::EhFrameOffset(fde.offset),
                gimli::EhFrame::cie_from_offset,
            )
            .ok()?;
        let mut context = gimli::UnwindContext::new();
        let row = entry.unwind_info_for_address(&section, &bases, &mut context, at.0).ok()?;
        match row.cfa() {
            gimli::CfaRule::RegisterAndOffset { register, offset } => {
                Some(*register == gimli::X86_64::RSP && *offset == 8)
            }
            gimli::CfaRule::Expression(_) => None,
        }
    }
}

/// The addresses of tables that instructions of fixed-address code name: `jmp [table + index*8]`, or
/// `mov` with the same operand. They are looked for at every byte: one too many would have to look
/// like the very place where a table seems to end.
fn named_tables(image: &Image) -> Vec<LinkAddr> {
    if image.kind() != fettle_image::Kind::Executable {
        return Vec::new();
    }
    let mut named = Vec::new();
    for segment in image.segments().iter().filter(|s| s.executable) {
        let len = usize::try_from(segment.file_size).unwrap_or(0);
        let code = image.read(segment.start, len).unwrap_or_default();
        // Hardly any stretch has such an operand, which many bytes at once can be asked for.
        for from in (0..code.len()).step_by(STRETCH) {
            let modrm = &code[from..code.len().min(from + STRETCH)];
            let sib = &code[code.len().min(from + 1)..];
            let any = modrm.iter().zip(sib).fold(false, |any, (m, s)| any | is_scaled(*m, *s));
            if any {
                named.extend((from..from + STRETCH).filter_map(|at| table_named(code, at)));
            }
        }
    }
    named.sort_unstable();
    named.dedup();
    named
}

/// Bytes of code that are looked at together.
const STRETCH: usize = 64;

/// Whether the bytes behind an opcode show an operand at an index times eight, and no base.
fn is_scaled(modrm: u8, sib: u8) -> bool {
    (modrm & 0xc7 == 0x04) & (sib & 0xc7 == 0xc5)
}

/// The table that a jump or load names whose opcode is before `at`.
fn table_named(code: &[u8], at: usize) -> Option<LinkAddr> {
    const JUMP: u8 = 0xff;
    const LOAD: u8 = 0x8b;
    let instruction = code.get(at.checked_sub(1)?..at + 6)?;
    let [opcode, modrm, sib, displacement @ ..] = instruction else { return None };
    let names = (*opcode, *modrm) == (JUMP, 0x24) || *opcode == LOAD;
    let displacement = i32::from_le_bytes(displacement.try_into().ok()?);
    let at = LinkAddr(i64::from(displacement) as u64);
    (names && is_scaled(*modrm, *sib)).then_some(at)
}

/// Whether the array of labels that is named at `start` begins before that, and is used with negative
/// numbers, too: labels of `code` stand there, and no table of them is known to begin among them.
fn begins_before(code: &RangeCode, context: &TableContext<'_>, start: LinkAddr) -> bool {
    let mut at = start;
    let mut own = false;
    loop {
        at = LinkAddr(at.0.wrapping_sub(8));
        let leads = |to: &LinkAddr| context.may_lead(&code.range, *to);
        let Some(to) = read_address(context.image, at).filter(leads) else { return own };
        own |= code.range.contains(&to);
        let named = |i: &Insn| i.is_ip_rel_memory_operand() && i.ip_rel_memory_address() == at.0;
        if context.named.binary_search(&at).is_ok() || code.insns.iter().any(named) {
            return false;
        }
    }
}

/// How many words from `at` on are null, in front of one that leads to `code`, or, in a table that is
/// known to have so many `left`, up to its end: values that mean nothing have no label in an array of
/// them. `None` if a table ends here.
fn hole(
    code: &RangeCode,
    context: &TableContext<'_>,
    at: LinkAddr,
    left: usize,
    exact: bool,
) -> Option<usize> {
    let image = context.image;
    for len in 0..left {
        let at = LinkAddr(at.0.checked_add(len as u64 * 8)?);
        if image.relocs_at(at).is_empty() && image.read(at, 8)? == [0; 8] {
            continue;
        }
        let to = read_address(image, at)?;
        let leads = context.may_lead(&code.range, to) || (exact && image.is_code(to));
        // Another table may begin there, behind what fills the space between them.
        let begins = context.named.binary_search(&at).is_ok();
        return (leads && !begins && len > 0).then_some(len);
    }
    exact.then_some(left)
}

/// The address that the word at `at` will hold once `image` is loaded at its link address.
pub fn read_address(image: &Image, at: LinkAddr) -> Option<LinkAddr> {
    let relocs = image.relocs();
    if let Ok(i) = relocs.binary_search_by_key(&at, |r| r.addr) {
        return relocs[i].address();
    }
    if image.kind() != fettle_image::Kind::Executable {
        return None;
    }
    Some(LinkAddr(u64::from_le_bytes(image.read(at, 8)?.try_into().ok()?)))
}

/// The value of a register, as far as the instructions before it show.
#[derive(Clone, Debug, PartialEq)]
enum Expr {
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

struct Evaluator<'a> {
    code: &'a RangeCode,
    /// The bytes of the range.
    bytes: &'a [u8],
    steps: usize,
    /// What a comparison or mask on the way says of the number of entries.
    bound: Option<Bound>,
}

/// Says what the indirect jump with the number `jump` of `code`, whose bytes are `bytes`, is.
pub fn resolve(
    code: &RangeCode,
    bytes: &[u8],
    jump: usize,
    context: &TableContext<'_>,
) -> Resolution {
    let mut evaluator = Evaluator { code, bytes, steps: 0, bound: None };
    let jump = &evaluator.full(jump);
    let target = match jump.op0_kind() {
        OpKind::Register => evaluator.register_before(jump.op0_register(), jump.ip(), 0),
        OpKind::Memory => {
            Expr::Load { bytes: 8, address: Box::new(evaluator.address(jump, 0)), at: jump.ip() }
        }
        _ => return Resolution::Unknown,
    };
    let jump_at = LinkAddr(jump.ip());
    if let Some((start, kind, named_at)) = table_of(&target) {
        if let Some(access) = access_of(&target, code).map(|i| evaluator.full(i)) {
            // With a scale of 1 either register may be the table and the other the index.
            for index in [access.memory_index(), access.memory_base()] {
                if evaluator.bound.is_none() && index.is_gpr() {
                    evaluator.find_bound(&access, index);
                }
            }
        }
        if let Some(mut table) = read_table(code, context, start, kind, evaluator.bound) {
            table.jump = jump_at;
            table.named_at = LinkAddr(named_at);
            return Resolution::Table(table);
        }
        // A table of pointers to functions is no jump table, and nothing else is certain.
        let first = match kind {
            TableKind::Relative { .. } => return Resolution::Unknown,
            TableKind::Absolute => read_address(context.image, start),
        };
        if first.is_some_and(|to| code.range.contains(&to) && to != code.range.start) {
            return Resolution::Unknown;
        }
    }
    let scaled = mentions_scaled(&target);
    match context.at_entry_level(jump_at) {
        // The frame is still there: only labels inside can be meant.
        Some(false) => {}
        Some(true) if !scaled || table_of(&target).is_some() => return Resolution::TailCall,
        Some(true) => return Resolution::TailCall,
        None if !scaled => return Resolution::TailCall,
        None => return Resolution::Unknown,
    }
    let labels: Vec<LinkAddr> =
        context.labels_in(&code.range).iter().copied().filter(|a| *a != code.range.start).collect();
    if labels.len() >= 2 {
        // Threaded code: the addresses of labels went through memory that no analysis follows.
        return Resolution::Table(JumpTable {
            jump: jump_at,
            start: LinkAddr(0),
            kind: TableKind::Absolute,
            entries: labels.into_iter().map(Some).collect(),
            bound: None,
            named_at: jump_at,
            movable: false,
        });
    }
    Resolution::Unknown
}

/// The table that `target` is an entry of: its start, how it is read, and where it is named.
fn table_of(target: &Expr) -> Option<(LinkAddr, TableKind, u64)> {
    match target {
        Expr::Load { bytes: 8, address, at } => {
            let (start, named_at) = indexed(address, 8, *at)?;
            Some((start, TableKind::Absolute, named_at))
        }
        Expr::Add(a, b) => {
            let (load, base) = match (&**a, &**b) {
                (Expr::Load { bytes: 4, address, at }, Expr::Const { value, named_at })
                | (Expr::Const { value, named_at }, Expr::Load { bytes: 4, address, at }) => {
                    ((address, *at), (*value, *named_at))
                }
                _ => return None,
            };
            let (start, named_at) = indexed(load.0, 4, load.1)?;
            let named_at = if named_at == base.1 { named_at } else { 0 };
            Some((start, TableKind::Relative { base: LinkAddr(base.0) }, named_at))
        }
        _ => None,
    }
}

/// `Const + Scaled(scale)`, or a constant alone plus something of unknown scale.
fn indexed(address: &Expr, scale: u32, at: u64) -> Option<(LinkAddr, u64)> {
    let Expr::Add(a, b) = address else { return None };
    match (&**a, &**b) {
        (Expr::Const { value, named_at }, Expr::Scaled(s))
        | (Expr::Scaled(s), Expr::Const { value, named_at })
            if *s == scale =>
        {
            Some((LinkAddr(*value), if *named_at == 0 { at } else { *named_at }))
        }
        _ => None,
    }
}

/// The number of the instruction that reads the table's entry.
fn access_of(target: &Expr, code: &RangeCode) -> Option<usize> {
    match target {
        Expr::Load { at, .. } => code.index_at(LinkAddr(*at)),
        Expr::Add(a, b) => access_of(a, code).or_else(|| access_of(b, code)),
        _ => None,
    }
}

fn mentions_scaled(e: &Expr) -> bool {
    match e {
        Expr::Scaled(s) => *s > 1,
        Expr::Load { address, .. } => mentions_scaled(address),
        Expr::Add(a, b) => mentions_scaled(a) || mentions_scaled(b),
        Expr::Const { .. } | Expr::Other => false,
    }
}

fn read_table(
    code: &RangeCode,
    context: &TableContext<'_>,
    start: LinkAddr,
    kind: TableKind,
    bound: Option<Bound>,
) -> Option<JumpTable> {
    let limit = match bound {
        Some(Bound::Exact(n) | Bound::AtMost(n)) => (n as usize).min(MAX_ENTRIES),
        None => MAX_ENTRIES,
    };
    // Every `goto *` of an interpreter goes through the same table. (0 stands for no table.)
    let same = |t: &&JumpTable| (t.start, t.kind, t.bound) == (start, kind, bound);
    if let Some(known) = code.tables.last().filter(same).filter(|t| t.start != LinkAddr(0)) {
        return Some(known.clone());
    }
    if bound.is_none() && kind == TableKind::Absolute && begins_before(code, context, start) {
        return None;
    }
    let exact = matches!(bound, Some(Bound::Exact(_)));
    let entries = read_entries(code, context, (start, kind), limit, exact)?;
    // A table that never leads here is one of functions.
    if !entries.iter().flatten().any(|t| context.may_lead(&code.range, *t)) {
        return None;
    }
    // A table of one entry without a bound is as well a pointer to somewhere.
    let enough = if exact { entries.len() == limit && limit > 0 } else { entries.len() >= 2 };
    enough.then_some(JumpTable {
        jump: LinkAddr(0),
        start,
        kind,
        bound,
        entries: entries.into(),
        named_at: LinkAddr(0),
        movable: false,
    })
}

/// Up to `limit` entries of the table at `start`; all of them lead somewhere, or are null, where their
/// number is `exact`. `None` if it is not known where it ends.
fn read_entries(
    code: &RangeCode,
    context: &TableContext<'_>,
    (start, kind): (LinkAddr, TableKind),
    limit: usize,
    exact: bool,
) -> Option<Vec<Option<LinkAddr>>> {
    let mut entries: Vec<Option<LinkAddr>> = Vec::new();
    while entries.len() < limit {
        let i = entries.len() as u64;
        let target = match kind {
            TableKind::Relative { base } => context
                .read_u32(LinkAddr(start.0.wrapping_add(i * 4)))
                .map(|d| LinkAddr(base.0.wrapping_add(d as i32 as u64))),
            TableKind::Absolute => {
                read_address(context.image, LinkAddr(start.0.wrapping_add(i * 8)))
            }
        };
        let Some(target) = target.filter(|target| target.0 != 0) else {
            let left = limit - entries.len();
            let hole = (kind == TableKind::Absolute)
                .then(|| hole(code, context, LinkAddr(start.0.wrapping_add(i * 8)), left, exact));
            match hole.flatten() {
                Some(len) => entries.extend(std::iter::repeat_n(None, len)),
                None => break,
            }
            continue;
        };
        // Where the number of entries is known, one may lead to a part of the function that
        // nothing else shows to be one.
        let plausible = exact && context.image.is_code(target);
        if !plausible && !context.may_lead(&code.range, target) {
            // Where a value cannot occur that has others on both sides, compilers write an entry
            // that leads to the function's end: the table goes on, it is not known how far.
            if target == code.range.end {
                return None;
            }
            // A copy that ends where another table begins is complete; one that ends where entries
            // lead to a part of the function that nothing else leads to is not. Distances stay where
            // they are ([`is_movable`]).
            if kind == TableKind::Absolute && context.image.is_code(target) {
                let entry = LinkAddr(start.0.wrapping_add(i * 8));
                context.named.binary_search(&entry).ok()?;
            }
            break;
        }
        entries.push(Some(target));
    }
    Some(entries)
}

impl Evaluator<'_> {
    /// All that a decoder knows of instruction `index`.
    fn full(&self, index: usize) -> Instruction {
        let insn = &self.code.insns[index];
        let from = (insn.ip() - self.code.range.start.0) as usize;
        insn.full(&self.bytes[from..])
    }

    /// The instruction that control comes from to the one at `at`; by falling through where it may.
    fn before(&mut self, at: u64) -> Option<usize> {
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

    fn writes(&self, index: usize, register: Register) -> bool {
        let writes = self.code.facts[index].writes();
        Gpr::containing(register).is_some_and(|r| writes.contains(r))
    }

    /// What `register` holds before the instruction at `at`.
    fn register_before(&mut self, register: Register, at: u64, depth: u32) -> Expr {
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

    fn address(&mut self, insn: &Instruction, depth: u32) -> Expr {
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
    fn find_bound(&mut self, access: &Instruction, index: Register) {
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
fn names(insn: &Insn, table: &JumpTable) -> bool {
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
    function.insns.binary_search_by_key(&at.0, |i| i.ip()).ok()
}

fn register_of(gpr: Gpr) -> Register {
    use Register::*;
    [RAX, RCX, RDX, RBX, RSP, RBP, RSI, RDI, R8, R9, R10, R11, R12, R13, R14, R15]
        [gpr.number() as usize]
}
