//! Unwind information and exception tables for rewritten text.
//!
//! Whatever unwinds a program (libgcc, libunwind, gdb, profilers) finds a frame's caller through
//! `.eh_frame`. Rewritten text gets entries of its own, made of the original's rules row by row, so it
//! needs no cooperation of the program and leaves return addresses alone.

use fettle_code::unwind::{BASE, DATA_ALIGN, INDIRECT, OMIT, PCREL4, uleb5};
use fettle_code::{Emitted, LandingBase, NewLsda, PartUnwind};
use fettle_image::{Image, LinkAddr};
use fettle_isa::{Gpr, RegSet};
use fettle_lift::SkipReason;
use fettle_lift::function::Function;
use fettle_lift::lsda::Lsda;
use gimli::{CfaRule, Reader as _, RegisterRule, UnwindSection};
use rayon::prelude::*;

/// What a row of an unwind table says, in a form that can be compared and written.
#[derive(Clone, Copy, PartialEq, Debug)]
struct State {
    cfa: Cfa,
    /// Registers that have a rule, by bits.
    ruled: u64,
    /// By DWARF register number.
    rules: [Rule; COLUMNS],
    args_size: u64,
}

/// Registers that have rules: `rax` to `r15`, the return address and `xmm0` to `xmm15`, of which
/// functions of Microsoft's ABI save ten.
const COLUMNS: usize = 33;

#[derive(Clone, Copy, PartialEq, Debug)]
enum Cfa {
    Register(u16, i64),
    /// The number of the expression.
    Expression(u32),
}

/// The rule of one register.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Said {
    Undefined,
    SameValue,
    Offset(i64),
    ValOffset(i64),
    Register(u16),
    /// These have the number of the expression.
    Expression(u32),
    ValExpression(u32),
    /// Saved so far above the stack pointer, which is the one expression that goes with what is pushed:
    /// where a frame is aligned, its distance from the caller's is not known.
    AtStack(i64),
}

/// The same in one word, so that rows are compared fast: kind and operand.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Rule(i64);

impl Rule {
    /// Nothing is said.
    const NONE: Rule = Rule(0);

    const fn new(said: Said) -> Rule {
        let (kind, operand) = match said {
            Said::Undefined => (1, 0),
            Said::SameValue => (2, 0),
            Said::Offset(n) => (3, n),
            Said::ValOffset(n) => (4, n),
            Said::Register(r) => (5, r as i64),
            Said::Expression(e) => (6, e as i64),
            Said::ValExpression(e) => (7, e as i64),
            Said::AtStack(n) => (8, n),
        };
        Rule(operand << 4 | kind)
    }

    fn said(self) -> Option<Said> {
        let operand = self.0 >> 4;
        Some(match self.0 & 15 {
            1 => Said::Undefined,
            2 => Said::SameValue,
            3 => Said::Offset(operand),
            4 => Said::ValOffset(operand),
            5 => Said::Register(operand as u16),
            6 => Said::Expression(operand as u32),
            7 => Said::ValExpression(operand as u32),
            8 => Said::AtStack(operand),
            _ => return None,
        })
    }
}

const RSI: u16 = 4;
const RDI: u16 = 5;
const RSP: u16 = 7;
const RETURN_ADDRESS: u16 = 16;
const XMM0: u16 = 17;
const XMM15: u16 = 32;

type Slice<'a> = gimli::EndianSlice<'a, gimli::LittleEndian>;

/// Reads original rows; one per image and thread.
pub struct RowReader<'a> {
    image: &'a Image,
    section: gimli::EhFrame<Slice<'a>>,
    bases: gimli::BaseAddresses,
    context: gimli::UnwindContext<usize>,
    /// The common entry that was read last, and where it is.
    common: Option<(usize, gimli::CommonInformationEntry<Slice<'a>>)>,
    table: Table<'a>,
    /// A program that is being written.
    program: Vec<u8>,
}

/// The rows of one function.
#[derive(Default)]
struct Table<'a> {
    rows: Vec<Row>,
    /// What rows say; equal ones have one number.
    states: Vec<State>,
    /// Expressions of rules; equal ones have one number.
    expressions: Vec<&'a [u8]>,
}

struct Row {
    start: u64,
    end: u64,
    /// Number of the state.
    state: u32,
}

impl Row {
    fn holds_at(&self, original: u64) -> bool {
        self.start <= original && original < self.end
    }
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
            common: None,
            table: Table::default(),
            program: Vec::new(),
        })
    }

    /// Reads all rows that cover code of `start..end`.
    fn read(&mut self, start: LinkAddr, end: LinkAddr) -> Option<()> {
        let fdes = self.image.fdes();
        let from = fdes.partition_point(|f| f.end <= start);
        for fde in fdes[from..].iter().take_while(|f| f.start < end) {
            let known = &mut self.common;
            let common =
                |section: &gimli::EhFrame<Slice<'a>>, bases: &_, at: gimli::EhFrameOffset| {
                    match known {
                        Some((known_at, common)) if *known_at == at.0 => Ok(common.clone()),
                        _ => {
                            let common = section.cie_from_offset(bases, at)?;
                            *known = Some((at.0, common.clone()));
                            Ok(common)
                        }
                    }
                };
            let offset = gimli::EhFrameOffset(fde.offset);
            let entry = self.section.fde_from_offset(&self.bases, offset, common).ok()?;
            if entry.cie().return_address_register().0 != RETURN_ADDRESS {
                return None;
            }
            let mut rows = entry.rows(&self.section, &self.bases, &mut self.context).ok()?;
            while let Some(row) = rows.next_row().ok()? {
                let state = self.table.state(row, &self.section)?;
                let (start, end) = (row.start_address(), row.end_address());
                self.table.rows.push(Row { start, end, state });
            }
        }
        Some(())
    }

    /// Unwind information for `function`'s rewritten text; empty if the original had none.
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
        self.table.rows.clear();
        self.table.states.clear();
        self.table.expressions.clear();
        for range in &function.ranges {
            self.read(range.start, range.end).ok_or(fail(SkipReason::Unwind))?;
        }
        let rows = &mut self.table.rows;
        if rows.is_empty() {
            return Ok(Vec::new());
        }
        rows.sort_by_key(|r| r.start);
        let mut parts = Vec::with_capacity(emitted.parts.len());
        for (i, part) in emitted.parts.iter().enumerate() {
            let next = emitted.parts.get(i + 1);
            let (start, end) = (part.start, next.map_or(emitted.code.len() as u32, |p| p.start));
            let range = &function.ranges[part.range as usize];
            let fde = self
                .image
                .fdes()
                .get(self.image.fdes().partition_point(|f| f.end <= range.start))
                .filter(|f| f.start < range.end);
            let whole = (start, end);
            let program = Program::of(&self.table, function, emitted, whole, &mut self.program)
                .ok_or(fail(SkipReason::Unwind))?;
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
    const INITIAL: State = {
        let mut rules = [Rule::NONE; COLUMNS];
        rules[RETURN_ADDRESS as usize] = Rule::new(Said::Offset(-8));
        State { cfa: Cfa::Register(RSP, 8), ruled: 1 << RETURN_ADDRESS, rules, args_size: 0 }
    };

    /// Registers that are saved at a distance from the stack pointer, by bits.
    fn at_stack(&self) -> u64 {
        let is = |register: &u8| {
            matches!(self.rules[usize::from(*register)].said(), Some(Said::AtStack(_)))
        };
        bits(self.ruled).filter(is).fold(0, |all, register| all | 1 << register)
    }

    /// Registers whose rules are others in `next`, by bits.
    fn changed(&self, next: &State) -> u64 {
        let differs = |register: &u8| {
            let register = usize::from(*register);
            self.rules[register] != next.rules[register]
        };
        bits(self.ruled | next.ruled).filter(differs).fold(0, |all, register| all | 1 << register)
    }
}

impl<'a> Table<'a> {
    /// The number of what `row` says.
    fn state(
        &mut self,
        row: &gimli::UnwindTableRow<usize>,
        section: &gimli::EhFrame<Slice<'a>>,
    ) -> Option<u32> {
        let mut number = |e: &gimli::UnwindExpression<usize>| -> Option<u32> {
            let bytes = e.get(section).ok()?.0.slice();
            let known = self.expressions.iter().position(|e| *e == bytes);
            Some(known.unwrap_or_else(|| {
                self.expressions.push(bytes);
                self.expressions.len() - 1
            }) as u32)
        };
        let cfa = match row.cfa() {
            CfaRule::RegisterAndOffset { register, offset } => Cfa::Register(register.0, *offset),
            CfaRule::Expression(e) => Cfa::Expression(number(e)?),
        };
        let mut rules = [Rule::NONE; COLUMNS];
        let mut ruled = 0;
        for (register, rule) in row.registers() {
            *rules.get_mut(usize::from(register.0))? = Rule::new(match rule {
                RegisterRule::Undefined => Said::Undefined,
                RegisterRule::SameValue => Said::SameValue,
                RegisterRule::Offset(n) => Said::Offset(*n),
                RegisterRule::ValOffset(n) => Said::ValOffset(*n),
                RegisterRule::Register(r) => Said::Register(r.0),
                RegisterRule::Expression(e) => {
                    match register_and_offset(e.get(section).ok()?.0.slice()) {
                        Some((RSP, n)) if n.unsigned_abs() < 1 << 26 => Said::AtStack(n),
                        _ => Said::Expression(number(e)?),
                    }
                }
                RegisterRule::ValExpression(e) => Said::ValExpression(number(e)?),
                _ => return None,
            });
            ruled |= 1 << register.0;
        }
        let state = State { cfa, ruled, rules, args_size: row.saved_args_size() };
        let known = self.states.iter().position(|known| *known == state);
        Some(known.unwrap_or_else(|| {
            self.states.push(state);
            self.states.len() - 1
        }) as u32)
    }

    /// Whether what `state` says still holds, with the stack pointer lower by `pushed`: not if it
    /// is an expression of the stack pointer, or of where the code is.
    fn can_move(&self, state: &State, pushed: u32) -> bool {
        if self.expressions.is_empty() {
            return true;
        }
        // DW_OP_breg7 and DW_OP_breg16
        let depends = |e: u32| {
            let e = self.expressions[e as usize];
            let operators = if register_and_offset(e).is_some() { &e[..1] } else { e };
            operators.contains(&0x77) && pushed != 0 || operators.contains(&0x80)
        };
        let rules = state.rules.iter().filter_map(|rule| match rule.said() {
            Some(Said::Expression(e) | Said::ValExpression(e)) => Some(e),
            _ => None,
        });
        let cfa = match state.cfa {
            Cfa::Expression(e) => Some(e),
            Cfa::Register(..) => None,
        };
        !rules.chain(cfa).any(depends)
    }
}

impl Cfa {
    /// The same with the stack pointer lower by `pushed`.
    fn pushed(self, pushed: u32) -> Cfa {
        match self {
            Cfa::Register(RSP, offset) => Cfa::Register(RSP, offset + i64::from(pushed)),
            other => other,
        }
    }
}

/// The call frame program of a part: one change of state after another.
struct Program<'t> {
    table: &'t Table<'t>,
    out: &'t mut Vec<u8>,
    /// The offset that the program has come to.
    at: u32,
    /// The row that holds there, and what is pushed: none at first.
    last: Option<(usize, u32)>,
}

impl Program<'_> {
    /// The program of the part at `start..end`; `None` if a rule cannot hold where probe code
    /// pushes.
    fn of(
        table: &Table<'_>,
        function: &Function,
        emitted: &Emitted,
        (start, end): (u32, u32),
        out: &mut Vec<u8>,
    ) -> Option<Vec<u8>> {
        out.clear();
        let mut program = Program { table, out, at: start, last: None };
        let points = &emitted.unwind;
        let from = points.partition_point(|p| p.offset < start);
        let to = points.partition_point(|p| p.offset < end);
        for point in &points[from..to] {
            let original = point.original.0;
            program.point(point.offset, original, point.pushed)?;
            // What is copied in one piece may go through several rows.
            let stop = original + u64::from(point.in_step);
            let whole = |row: &Row| row.start <= original && stop <= row.end;
            let row = program.last.and_then(|(i, _)| table.rows.get(i));
            if point.in_step == 0 || row.is_some_and(whole) {
                continue;
            }
            let next = table.rows.partition_point(|r| r.start <= original);
            for row in table.rows[next..].iter().take_while(|r| r.start < stop) {
                // A row holds from the first instruction on that begins in it.
                let i = function.insns.partition_point(|insn| insn.ip() < row.start);
                let Some(insn) = function.insns.get(i).filter(|i| i.ip() < stop) else { break };
                program.point(point.offset + (insn.ip() - original) as u32, insn.ip(), 0)?;
            }
        }
        Some(program.out.as_slice().into())
    }

    /// From `offset` on what the original has at `original` holds, with `pushed` bytes pushed.
    #[inline(always)]
    fn point(&mut self, offset: u32, original: u64, pushed: u32) -> Option<()> {
        match self.last {
            Some((last, before))
                if before == pushed && self.table.rows[last].holds_at(original) =>
            {
                Some(())
            }
            _ => self.new_row(offset, original, pushed),
        }
    }

    /// The row that holds at `original`; as a rule one next to the last.
    fn row_at(&self, original: u64) -> Option<usize> {
        let rows = &self.table.rows;
        let holds = |i: &usize| rows.get(*i).is_some_and(|row| row.holds_at(original));
        let near = self.last.and_then(|(last, _)| [last, last + 1].into_iter().find(holds));
        near.or_else(|| Some(rows.partition_point(|r| r.end <= original)).filter(holds))
    }

    #[inline(never)]
    fn new_row(&mut self, offset: u32, original: u64, pushed: u32) -> Option<()> {
        let Some(i) = self.row_at(original) else { return Some(()) };
        let (rows, states) = (&self.table.rows, &self.table.states);
        let last = self.last.replace((i, pushed));
        let same = last.is_some_and(|(last, _)| rows[last].state == rows[i].state);
        if same && last.is_some_and(|(_, before)| before == pushed) {
            return Some(());
        }
        let next = &states[rows[i].state as usize];
        if !self.table.can_move(next, pushed) {
            return None;
        }
        let (current, before) = match last {
            Some((last, before)) => (&states[rows[last].state as usize], before),
            None => (&State::INITIAL, 0),
        };
        let cfa = (current.cfa.pushed(before), next.cfa.pushed(pushed));
        let mut changed = if same { 0 } else { current.changed(next) };
        if pushed != last.map_or(0, |(_, before)| before) {
            changed |= next.at_stack();
        }
        let same = changed == 0 && current.args_size == next.args_size;
        if cfa.0 != cfa.1 || !same {
            advance(self.out, offset - self.at);
            self.at = offset;
            change_cfa(self.out, cfa, &self.table.expressions);
            change(self.out, (next, pushed), changed, &self.table.expressions);
            if current.args_size != next.args_size {
                self.out.push(0x2e);
                uleb(self.out, next.args_size);
            }
        }
        Some(())
    }
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

fn change_cfa(out: &mut Vec<u8>, (from, to): (Cfa, Cfa), expressions: &[&[u8]]) {
    if from != to {
        match (from, to) {
            (Cfa::Register(a, _), Cfa::Register(b, offset)) if a == b && offset >= 0 => {
                out.push(0x0e);
                uleb(out, offset as u64);
            }
            (_, Cfa::Register(r, offset)) if offset >= 0 => {
                out.push(0x0c);
                uleb(out, u64::from(r));
                uleb(out, offset as u64);
            }
            (_, Cfa::Register(r, offset)) => {
                // A negative offset is factored; offsets of the stack are multiples of 8.
                out.push(0x12);
                uleb(out, u64::from(r));
                sleb(out, offset / DATA_ALIGN);
            }
            (_, Cfa::Expression(e)) => {
                out.push(0x0f);
                block(out, expressions[e as usize]);
            }
        }
    }
}

/// Says the rules of the registers `changed`, by bits, in `to`, with `pushed` bytes on the stack.
fn change(out: &mut Vec<u8>, (to, pushed): (&State, u32), changed: u64, expressions: &[&[u8]]) {
    // Back to what the common entry says, which is nothing but for the return address.
    bits(changed & !to.ruled).for_each(|register| out.push(0xc0 | register));
    for register in bits(changed & to.ruled) {
        match to.rules[usize::from(register)].said() {
            Some(Said::AtStack(n)) => at_stack(out, register, n + i64::from(pushed)),
            Some(said) => rule(out, register, said, expressions),
            None => {}
        }
    }
}

/// The numbers of the bits that are set, the lowest first.
fn bits(mut set: u64) -> impl Iterator<Item = u8> {
    std::iter::from_fn(move || {
        let lowest = (set != 0).then_some(set.trailing_zeros() as u8)?;
        set &= set - 1;
        Some(lowest)
    })
}

/// `DW_OP_breg0`; those of the other registers follow.
const FROM_REGISTER: u8 = 0x70;
const FROM_STACK_POINTER: u8 = FROM_REGISTER + RSP as u8;

/// The register and the distance from it, if an expression says no more.
fn register_and_offset(expression: &[u8]) -> Option<(u16, i64)> {
    let mut operand = gimli::EndianSlice::new(expression, gimli::LittleEndian);
    let register = operand.read_u8().ok()?.checked_sub(FROM_REGISTER).filter(|r| *r < 32)?;
    let n = operand.read_sleb128().ok()?;
    operand.is_empty().then_some((register.into(), n))
}

/// Says that a register is saved so far above the stack pointer.
fn at_stack(out: &mut Vec<u8>, register: u8, n: i64) {
    let mut expression = vec![FROM_STACK_POINTER];
    sleb(&mut expression, n);
    out.extend_from_slice(&[0x10, register]);
    block(out, &expression);
}

/// Says the rule of one register.
fn rule(out: &mut Vec<u8>, register: u8, said: Said, expressions: &[&[u8]]) {
    let mut with = |opcode: u8| out.extend_from_slice(&[opcode, register]);
    match said {
        Said::Undefined => with(0x07),
        Said::SameValue => with(0x08),
        Said::Offset(n) if n % DATA_ALIGN == 0 && n <= 0 => {
            out.push(0x80 | register);
            uleb(out, (n / DATA_ALIGN) as u64);
        }
        Said::Offset(n) => {
            with(0x11);
            sleb(out, n / DATA_ALIGN);
        }
        Said::ValOffset(n) => {
            with(0x15);
            sleb(out, n / DATA_ALIGN);
        }
        Said::Register(other) => {
            with(0x09);
            uleb(out, u64::from(other));
        }
        Said::AtStack(n) => at_stack(out, register, n),
        Said::Expression(e) => {
            with(0x10);
            block(out, expressions[e as usize]);
        }
        Said::ValExpression(e) => {
            with(0x16);
            block(out, expressions[e as usize]);
        }
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

/// What callers of an image's functions may read after them: `results`, by function, and what they may
/// count on beyond the ABI.
pub(crate) fn with_kept(image: &Image, mut results: Vec<RegSet>) -> Vec<RegSet> {
    let kept = kept_beyond_abi(image);
    results.iter_mut().for_each(|results| *results = results.union(kept));
    results
}

/// What callers of an image's functions may count on although the System V ABI lets calls change it.
/// Microsoft's does not, and unwind tables say where functions have saved `rsi`, `rdi` or a vector
/// register for it. Which functions follow it is not known: some only call others through pointers.
fn kept_beyond_abi(image: &Image) -> RegSet {
    let Some((_, bytes)) = image.eh_frame() else { return RegSet::NONE };
    let mut section = gimli::EhFrame::new(bytes, gimli::LittleEndian);
    section.set_address_size(8);
    let bases = image.unwind_bases();
    let saves = |fde: &fettle_image::Fde| -> Option<bool> {
        let offset = gimli::EhFrameOffset(fde.offset);
        let entry =
            section.fde_from_offset(&bases, offset, gimli::EhFrame::cie_from_offset).ok()?;
        let mut instructions = entry.instructions(&section, &bases);
        while let Some(instruction) = instructions.next().ok()? {
            let (gimli::CallFrameInstruction::Offset { register, .. }
            | gimli::CallFrameInstruction::OffsetExtendedSf { register, .. }
            | gimli::CallFrameInstruction::Expression { register, .. }) = instruction
            else {
                continue;
            };
            if matches!(register.0, RSI | RDI | XMM0..=XMM15) {
                return Some(true);
            }
        }
        Some(false)
    };
    // What a signal's frame holds, no function has saved.
    let any = image.fdes().par_iter().any(|fde| !fde.signal_frame && saves(fde) == Some(true));
    // No probe changes a vector register.
    if any { RegSet::of(&[Gpr::Rsi, Gpr::Rdi]) } else { RegSet::NONE }
}

/// Whether an image has a personality routine that knows no other base of landing pads than the start of
/// the part that a table is for: those of the D compiler LDC and of Crystal.
pub(crate) fn omits_base(image: &Image) -> bool {
    const ROUTINES: [&str; 2] = ["_d_eh_personality", "__crystal_personality"];
    // What Crystal's says of any other, with symbols or without.
    const REFUSAL: &[u8] = b"Unexpected encoding for LPStart";
    // D's list of modules.
    image.section("__minfo").is_some()
        || image.symbols().iter().any(|s| ROUTINES.contains(&s.name.as_str()))
        || fettle_lift::runtime::has_constant(image, REFUSAL)
}

/// Bytes of a list of call sites, and landing pads: the offset of each one's field, and the pad's
/// offset in the function's rewritten text.
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
    let sites = &lsda.call_sites;
    let mut runs: Vec<(u32, Option<usize>)> = Vec::new();
    let mut point = |offset: u32, site: Option<usize>| match runs.last_mut() {
        Some((_, last)) if *last == site => {}
        // Nothing lies between.
        Some((at, last)) if *at == offset => *last = site,
        _ => runs.push((offset, site)),
    };
    // The site that was found last, or that comes next.
    let mut site = 0;
    let from = emitted.unwind.partition_point(|p| p.offset < start);
    for p in emitted.unwind[from..].iter().take_while(|p| p.offset < end) {
        let (first, stop) = (p.original.0, p.original.0 + u64::from(p.in_step));
        let mut at = first;
        loop {
            let holds = |i: usize| sites.get(i).is_some_and(|s| s.start.0 <= at && at < s.end.0);
            if !holds(site) {
                site = sites.partition_point(|s| s.end.0 <= at);
            }
            point(p.offset + (at - first) as u32, holds(site).then_some(site));
            // What begins there goes on up to the next border.
            let border = match sites.get(site) {
                Some(site) if site.start.0 <= at => site.end.0,
                Some(site) => site.start.0,
                None => break,
            };
            if border >= stop {
                break;
            }
            let next = function.insns.partition_point(|insn| insn.ip() < border);
            match function.insns.get(next).map(fettle_isa::Insn::ip) {
                Some(next) if next < stop => at = next,
                _ => break,
            }
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

/// The exception table `lsda` for the rewritten text of one part.
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
    let (base, mut bytes) = match start {
        0 => (LandingBase::Part, vec![OMIT]),
        _ => (LandingBase::Function, BASE.to_vec()),
    };
    let has_types = lsda.type_encoding != 0xff;
    let distance_at = bytes.len() + 1;
    if has_types {
        bytes.push(PCREL4 | lsda.type_encoding & INDIRECT);
        bytes.extend_from_slice(&[0; 5]);
    } else {
        bytes.push(OMIT);
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
    // They are aligned where a base is added, too: it has four bytes more.
    Some(NewLsda { bytes, base, pads, types })
}
