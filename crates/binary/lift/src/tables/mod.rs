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

mod entries;
mod evaluator;
mod movable;

use std::ops::Range;

use fettle_image::{Image, LinkAddr, Reloc};
use gimli::UnwindSection;
use iced_x86::OpKind;

use crate::function::{JumpTable, TableKind};
use crate::range_code::RangeCode;

pub use entries::read_address;
use entries::read_table;
use evaluator::{Evaluator, Expr};
pub use movable::find_movable;

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
