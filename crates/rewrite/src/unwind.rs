//! Unwind information and exception tables for new code.
//!
//! Whatever unwinds a program (libgcc, libunwind, gdb, profilers) finds a frame's caller through
//! `.eh_frame`. New code gets entries of its own, made of the original's rules row by row, so it
//! needs no cooperation of the program and leaves return addresses alone.

use fettle_cfg::SkipReason;
use fettle_cfg::function::Function;
use fettle_cfg::lsda::Lsda;
use fettle_image::{Image, LinkAddr, Pointer};
use gimli::{CfaRule, RegisterRule, UnwindSection};
use serde::{Deserialize, Serialize};

use crate::emit::Emitted;

/// Unwind information of one part of a function's new code, without addresses.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PartUnwind {
    /// The part, as offsets in the function's new code.
    pub start: u32,
    /// Its end.
    pub end: u32,
    /// Call frame instructions (DWARF 5, 6.4.2).
    #[serde(with = "serde_bytes")]
    pub program: Vec<u8>,
    /// The function that decides about exceptions.
    pub personality: Option<Pointer>,
    /// The exception table.
    pub table: Option<NewLsda>,
    /// The frame is a signal handler's trampoline.
    pub signal_frame: bool,
}

/// What an exception table's landing pads are relative to. They can only lie behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LandingBase {
    /// The start of the function's new code.
    Function,
    /// The start of all new code: the function's chunks may lie in any order.
    Text,
}

/// An exception table for new code; its position-dependent fields are filled in when it has an
/// address.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NewLsda {
    /// Its bytes; 4-byte aligned where it is placed.
    #[serde(with = "serde_bytes")]
    pub bytes: Vec<u8>,
    /// Offset of the 32-bit distance to what landing pads are relative to.
    pub base_field: u32,
    /// What landing pads are relative to.
    pub base: LandingBase,
    /// Landing pads: the offset of each one's field, five bytes of LEB128, and what it holds.
    pub pads: Vec<(u32, u32)>,
    /// 32-bit distances to types: offset and link address.
    pub types: Vec<(u32, u64)>,
}

/// A row of an unwind table, in a form that can be compared and written.
#[derive(Clone, PartialEq, Debug)]
struct State {
    cfa: Cfa,
    /// By DWARF register number, in order.
    registers: Vec<(u16, Rule)>,
    args_size: u64,
}

#[derive(Clone, PartialEq, Debug)]
enum Cfa {
    Register(u16, i64),
    Expression(Vec<u8>),
}

#[derive(Clone, PartialEq, Debug)]
enum Rule {
    Undefined,
    SameValue,
    Offset(i64),
    ValOffset(i64),
    Register(u16),
    Expression(Vec<u8>),
    ValExpression(Vec<u8>),
}

const RSP: u16 = 7;
const RETURN_ADDRESS: u16 = 16;

/// Reads original rows; one per image and thread.
pub struct RowReader<'a> {
    image: &'a Image,
    section: gimli::EhFrame<gimli::EndianSlice<'a, gimli::LittleEndian>>,
    bases: gimli::BaseAddresses,
    context: gimli::UnwindContext<usize>,
}

struct Row {
    start: u64,
    end: u64,
    state: State,
}

impl<'a> RowReader<'a> {
    /// A reader of `image`'s `.eh_frame`; `None` if it has none.
    pub fn new(image: &'a Image) -> Option<RowReader<'a>> {
        let (_, bytes) = image.eh_frame()?;
        let mut section = gimli::EhFrame::new(bytes, gimli::LittleEndian);
        section.set_address_size(8);
        Some(RowReader {
            image,
            section,
            bases: image.unwind_bases(),
            context: gimli::UnwindContext::new(),
        })
    }

    /// All rows that cover code of `start..end`.
    fn rows(&mut self, start: LinkAddr, end: LinkAddr) -> Option<Vec<Row>> {
        let fdes = self.image.fdes();
        let mut rows = Vec::new();
        let from = fdes.partition_point(|f| f.end <= start);
        for fde in fdes[from..].iter().take_while(|f| f.start < end) {
            let entry = self
                .section
                .fde_from_offset(
                    &self.bases,
                    gimli::EhFrameOffset(fde.offset),
                    gimli::EhFrame::cie_from_offset,
                )
                .ok()?;
            if entry.cie().return_address_register().0 != RETURN_ADDRESS {
                return None;
            }
            let mut table = entry.rows(&self.section, &self.bases, &mut self.context).ok()?;
            while let Some(row) = table.next_row().ok()? {
                let state = State::of(row, &self.section)?;
                rows.push(Row { start: row.start_address(), end: row.end_address(), state });
            }
        }
        Some(rows)
    }

    /// Unwind information for `function`'s new code; empty if the original had none.
    ///
    /// # Errors
    ///
    /// A rule or exception table that cannot be carried over.
    pub fn carry_over(
        &mut self,
        function: &Function,
        emitted: &Emitted,
        tables: &std::collections::HashMap<LinkAddr, Lsda>,
    ) -> Result<Vec<PartUnwind>, (SkipReason, LinkAddr)> {
        let fail = |reason| (reason, function.entry);
        let mut rows = Vec::new();
        for range in &function.ranges {
            rows.extend(self.rows(range.start, range.end).ok_or(fail(SkipReason::Unwind))?);
        }
        if rows.is_empty() {
            return Ok(Vec::new());
        }
        rows.sort_by_key(|r| r.start);
        let mut parts = Vec::new();
        for (i, part) in emitted.parts.iter().enumerate() {
            let next = emitted.parts.get(i + 1);
            let (start, end) = (part.start, next.map_or(emitted.code.len() as u32, |p| p.start));
            let range = &function.ranges[part.range as usize];
            let fde = self
                .image
                .fdes()
                .get(self.image.fdes().partition_point(|f| f.end <= range.start))
                .filter(|f| f.start < range.end);
            let program = program(&rows, emitted, start, end).ok_or(fail(SkipReason::Unwind))?;
            let personality = fde.and_then(|f| f.personality);
            let table = match fde.and_then(|f| tables.get(&f.start)) {
                Some(lsda) => Some(
                    new_table(self.image, lsda, function, emitted, (start, end))
                        .ok_or(fail(SkipReason::ExceptionTable))?,
                ),
                None => None,
            };
            parts.push(PartUnwind {
                start,
                end,
                program,
                personality,
                table,
                signal_frame: fde.is_some_and(|f| f.signal_frame),
            });
        }
        Ok(parts)
    }
}

impl State {
    /// What holds at a function's entry, and in every entry before its first instruction.
    fn initial() -> State {
        State {
            cfa: Cfa::Register(RSP, 8),
            registers: vec![(RETURN_ADDRESS, Rule::Offset(-8))],
            args_size: 0,
        }
    }

    fn of<R: gimli::Reader<Offset = usize>>(
        row: &gimli::UnwindTableRow<usize>,
        section: &gimli::EhFrame<R>,
    ) -> Option<State> {
        let bytes = |e: &gimli::UnwindExpression<usize>| -> Option<Vec<u8>> {
            Some(e.get(section).ok()?.0.to_slice().ok()?.into_owned())
        };
        let cfa = match row.cfa() {
            CfaRule::RegisterAndOffset { register, offset } => Cfa::Register(register.0, *offset),
            CfaRule::Expression(e) => Cfa::Expression(bytes(e)?),
        };
        let mut registers = Vec::new();
        for (register, rule) in row.registers() {
            let rule = match rule {
                RegisterRule::Undefined => Rule::Undefined,
                RegisterRule::SameValue => Rule::SameValue,
                RegisterRule::Offset(n) => Rule::Offset(*n),
                RegisterRule::ValOffset(n) => Rule::ValOffset(*n),
                RegisterRule::Register(r) => Rule::Register(r.0),
                RegisterRule::Expression(e) => Rule::Expression(bytes(e)?),
                RegisterRule::ValExpression(e) => Rule::ValExpression(bytes(e)?),
                _ => return None,
            };
            registers.push((register.0, rule));
        }
        registers.sort_by_key(|(r, _)| *r);
        Some(State { cfa, registers, args_size: row.saved_args_size() })
    }

    /// The state after probe code pushed `bytes`; `None` if it is an expression of the stack
    /// pointer, or of where the code is.
    fn pushed(&self, bytes: u32) -> Option<State> {
        // DW_OP_breg7 and DW_OP_breg16
        let depends = |e: &[u8]| e.contains(&0x77) && bytes != 0 || e.contains(&0x80);
        let expressions = self.registers.iter().filter_map(|(_, rule)| match rule {
            Rule::Expression(e) | Rule::ValExpression(e) => Some(e),
            _ => None,
        });
        let cfa = match &self.cfa {
            Cfa::Expression(e) => Some(e),
            Cfa::Register(..) => None,
        };
        if expressions.chain(cfa).any(|e| depends(e)) {
            return None;
        }
        let mut state = self.clone();
        if let Cfa::Register(RSP, offset) = &mut state.cfa {
            *offset += i64::from(bytes);
        }
        Some(state)
    }
}

/// The call frame program of a part: one change of state after another; `None` if a rule cannot
/// hold where probe code pushes.
fn program(rows: &[Row], emitted: &Emitted, start: u32, end: u32) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    let mut at = start;
    let mut current = State::initial();
    let mut last_row = usize::MAX;
    let mut last_pushed = u32::MAX;
    let points = &emitted.unwind;
    let from = points.partition_point(|p| p.offset < start);
    let to = points.partition_point(|p| p.offset < end);
    for point in &points[from..to] {
        let at_row = |r: &Row| r.start <= point.original.0 && point.original.0 < r.end;
        let i = match rows.get(last_row) {
            Some(row) if at_row(row) && point.pushed == last_pushed => continue,
            Some(row) if at_row(row) => last_row,
            _ => rows.partition_point(|r| r.end <= point.original.0),
        };
        let Some(row) = rows.get(i).filter(|r| at_row(r)) else { continue };
        (last_row, last_pushed) = (i, point.pushed);
        let next = row.state.pushed(point.pushed)?;
        if next == current {
            continue;
        }
        advance(&mut out, point.offset - at);
        at = point.offset;
        change(&mut out, &current, &next);
        current = next;
    }
    Some(out)
}

fn advance(out: &mut Vec<u8>, delta: u32) {
    match delta {
        0 => {}
        1..=63 => out.push(0x40 | delta as u8),
        64..=0xff => out.extend_from_slice(&[0x02, delta as u8]),
        0x100..=0xffff => {
            out.push(0x03);
            out.extend_from_slice(&(delta as u16).to_le_bytes());
        }
        _ => {
            out.push(0x04);
            out.extend_from_slice(&delta.to_le_bytes());
        }
    }
}

/// Data alignment factor of all entries written here.
pub const DATA_ALIGN: i64 = -8;

fn change(out: &mut Vec<u8>, from: &State, to: &State) {
    if from.cfa != to.cfa {
        match (&from.cfa, &to.cfa) {
            (Cfa::Register(a, _), Cfa::Register(b, offset)) if a == b && *offset >= 0 => {
                out.push(0x0e);
                uleb(out, *offset as u64);
            }
            (_, Cfa::Register(r, offset)) if *offset >= 0 => {
                out.push(0x0c);
                uleb(out, u64::from(*r));
                uleb(out, *offset as u64);
            }
            (_, Cfa::Register(r, offset)) => {
                // A negative offset is factored; offsets of the stack are multiples of 8.
                out.push(0x12);
                uleb(out, u64::from(*r));
                sleb(out, offset / DATA_ALIGN);
            }
            (_, Cfa::Expression(bytes)) => {
                out.push(0x0f);
                block(out, bytes);
            }
        }
    }
    for (register, _) in &from.registers {
        if !to.registers.iter().any(|(r, _)| r == register) {
            // Back to what the common entry says, which is nothing but for the return address.
            if *register < 64 {
                out.push(0xc0 | *register as u8);
            } else {
                out.push(0x06);
                uleb(out, u64::from(*register));
            }
        }
    }
    for (register, rule) in &to.registers {
        if from.registers.iter().any(|(r, old)| r == register && old == rule) {
            continue;
        }
        let reg = u64::from(*register);
        match rule {
            Rule::Undefined => {
                out.push(0x07);
                uleb(out, reg);
            }
            Rule::SameValue => {
                out.push(0x08);
                uleb(out, reg);
            }
            Rule::Offset(n) if n % DATA_ALIGN == 0 && *n <= 0 && reg < 64 => {
                out.push(0x80 | reg as u8);
                uleb(out, (n / DATA_ALIGN) as u64);
            }
            Rule::Offset(n) => {
                out.push(0x11);
                uleb(out, reg);
                sleb(out, n / DATA_ALIGN);
            }
            Rule::ValOffset(n) => {
                out.push(0x15);
                uleb(out, reg);
                sleb(out, n / DATA_ALIGN);
            }
            Rule::Register(other) => {
                out.push(0x09);
                uleb(out, reg);
                uleb(out, u64::from(*other));
            }
            Rule::Expression(bytes) => {
                out.push(0x10);
                uleb(out, reg);
                block(out, bytes);
            }
            Rule::ValExpression(bytes) => {
                out.push(0x16);
                uleb(out, reg);
                block(out, bytes);
            }
        }
    }
    if from.args_size != to.args_size {
        out.push(0x2e);
        uleb(out, to.args_size);
    }
}

fn block(out: &mut Vec<u8>, bytes: &[u8]) {
    uleb(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Appends an unsigned LEB128 number.
pub fn uleb(out: &mut Vec<u8>, mut value: u64) {
    loop {
        let byte = (value & 0x7f) as u8;
        value >>= 7;
        if value == 0 {
            out.push(byte);
            return;
        }
        out.push(byte | 0x80);
    }
}

fn sleb(out: &mut Vec<u8>, mut value: i64) {
    loop {
        let byte = (value & 0x7f) as u8;
        value >>= 7;
        if (value == 0 && byte & 0x40 == 0) || (value == -1 && byte & 0x40 != 0) {
            out.push(byte);
            return;
        }
        out.push(byte | 0x80);
    }
}

/// An unsigned LEB128 number in exactly five bytes, for fields written before their value.
fn uleb5(value: u32) -> [u8; 5] {
    let mut bytes = std::array::from_fn(|i| (value >> (7 * i)) as u8 | 0x80);
    bytes[4] &= 0x7f;
    bytes
}

impl NewLsda {
    /// Gives landing pads other offsets.
    pub(crate) fn move_pads(&mut self, place: impl Fn(u32) -> u32) {
        for (field, offset) in &mut self.pads {
            *offset = place(*offset);
            let at = *field as usize;
            self.bytes[at..at + 5].copy_from_slice(&uleb5(*offset));
        }
    }
}

/// `DW_EH_PE_pcrel | DW_EH_PE_sdata4`
pub const PCREL4: u8 = 0x1b;
/// `DW_EH_PE_indirect`
pub const INDIRECT: u8 = 0x80;

/// Bytes of a list of call sites, and landing pads: the offset of each one's field, and the pad's
/// offset in the function's new code.
type CallSites = (Vec<u8>, Vec<(u32, u32)>);

/// The list of call sites for one part, with the places of landing pads in it. Neighbours in the
/// original may have come apart, so it is made anew: a site for each run of instructions that
/// were in the same one.
fn call_sites(
    lsda: &Lsda,
    function: &Function,
    emitted: &Emitted,
    (start, end): (u32, u32),
) -> Option<CallSites> {
    let site_at = |addr: LinkAddr| {
        let i = lsda.call_sites.partition_point(|s| s.end <= addr);
        lsda.call_sites.get(i).filter(|s| s.start <= addr).map(|_| i)
    };
    let mut runs: Vec<(u32, Option<usize>)> = Vec::new();
    let from = emitted.unwind.partition_point(|p| p.offset < start);
    for point in emitted.unwind[from..].iter().take_while(|p| p.offset < end) {
        let site = site_at(point.original);
        match runs.last_mut() {
            Some((_, last)) if *last == site => {}
            // Nothing lies between.
            Some((at, last)) if *at == point.offset => *last = site,
            _ => runs.push((point.offset, site)),
        }
    }
    let (mut sites, mut pads) = (Vec::new(), Vec::new());
    for (i, (from, site)) in runs.iter().enumerate() {
        let Some(site) = site.map(|i| &lsda.call_sites[i]) else { continue };
        let to = runs.get(i + 1).map_or(end, |(at, _)| *at);
        uleb(&mut sites, u64::from(from - start));
        uleb(&mut sites, u64::from(to - from));
        match site.landing_pad {
            None => sites.push(0),
            // Control comes to the pad's probe first.
            Some(pad) => {
                let offset = emitted.block_offsets[function.block_at(pad)?.index()];
                pads.push((sites.len() as u32, offset));
                sites.extend_from_slice(&uleb5(offset));
            }
        }
        uleb(&mut sites, site.action);
    }
    Some((sites, pads))
}

/// The exception table `lsda` for the new code of one part.
fn new_table(
    image: &Image,
    lsda: &Lsda,
    function: &Function,
    emitted: &Emitted,
    (start, end): (u32, u32),
) -> Option<NewLsda> {
    if lsda.type_encoding & 0x0f == 0
        && lsda.type_encoding != 0xff
        && image.kind() != fettle_image::Kind::Executable
    {
        // Absolute addresses that only the loader knows.
        return None;
    }
    let (sites, mut pads) = call_sites(lsda, function, emitted, (start, end))?;
    let mut bytes = vec![PCREL4, 0, 0, 0, 0];
    let base_field = 1;
    let has_types = lsda.type_encoding != 0xff;
    let distance_at = bytes.len() + 1;
    if has_types {
        bytes.push(PCREL4 | lsda.type_encoding & INDIRECT);
        bytes.extend_from_slice(&[0; 5]);
    } else {
        bytes.push(0xff);
    }
    bytes.push(0x01);
    uleb(&mut bytes, sites.len() as u64);
    for (field, _) in &mut pads {
        *field += bytes.len() as u32;
    }
    bytes.extend_from_slice(&sites);
    bytes.extend_from_slice(&lsda.actions);
    let mut types = Vec::new();
    if has_types {
        while !bytes.len().is_multiple_of(4) {
            bytes.push(0);
        }
        // Actions count types backwards from the end.
        for target in lsda.types.iter().rev() {
            types.push((bytes.len() as u32, *target));
            bytes.extend_from_slice(&[0; 4]);
        }
        let distance = u32::try_from(bytes.len() - (distance_at + 5)).ok()?;
        bytes[distance_at..distance_at + 5].copy_from_slice(&uleb5(distance));
        bytes.extend_from_slice(&lsda.specifications);
    }
    Some(NewLsda { bytes, base_field, base: LandingBase::Function, pads, types })
}
