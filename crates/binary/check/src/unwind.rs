//! Unwind rules and exception handlers of the rewritten text, against the original's.
//!
//! The original's rules are read with gimli, the new ones by the small interpreter here. Every
//! copy of an instruction must have the rules of its original, and inside probes the same with
//! what was pushed added to the stack pointer's distance. Exception tables are read on both
//! sides in the way that the personality routine does it: by the return address less one.

use fettle_image::{Fde, Image, LinkAddr};
use gimli::{CfaRule, RegisterRule, UnwindSection};

use crate::fault::{CheckError, Fault, fail};
use crate::walk::{PADDING, Pair, Walk};
use fettle_code::unwind::{DATA_ALIGN, INDIRECT, OMIT, PCREL4};
use fettle_code::{LandingBase, NewLsda, PartUnwind};

const RSP: u64 = 7;
const RETURN_ADDRESS: u64 = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cfa {
    Register(u64, i64),
    Expression(u32),
}

/// A rule in one word, so that rows are compared fast: kind and operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Rule(u32);

impl Rule {
    /// As the common entry has it, which is nothing but for the return address.
    const NONE: Rule = Rule(0);
    const UNDEFINED: Rule = Rule(1);
    const SAME_VALUE: Rule = Rule(2);
    const OFFSET: u32 = 1;
    const VALUE_OFFSET: u32 = 2;
    const REGISTER: u32 = 3;
    const EXPRESSION: u32 = 4;
    const VALUE_EXPRESSION: u32 = 5;
    /// Saved at this distance above the stack pointer.
    const AT_STACK: u32 = 6;

    const fn with(kind: u32, operand: i64) -> Option<Rule> {
        const LIMIT: i64 = 1 << 27;
        if operand < -LIMIT || operand >= LIMIT {
            return None;
        }
        Some(Rule(kind << 28 | operand as u32 & 0x0fff_ffff))
    }

    /// The rule of a register that is saved where `expression` says: a distance from the stack pointer
    /// grows with what is pushed.
    fn at<'e>(expression: &'e [u8], expressions: &mut Expressions<'e>) -> Option<Rule> {
        let mut b = Bytes { bytes: expression, at: 0 };
        if b.u8() == Some(0x77)
            && let Some(distance) = b.sleb()
            && b.at == expression.len()
        {
            return Rule::with(Rule::AT_STACK, distance);
        }
        Rule::with(Rule::EXPRESSION, i64::from(expressions.number(expression)))
    }

    /// The same with `pushed` bytes more on the stack.
    fn with_pushed(self, pushed: u32) -> Option<Rule> {
        if self.0 >> 28 != Rule::AT_STACK {
            return Some(self);
        }
        let distance = (self.0 << 4) as i32 >> 4;
        Rule::with(Rule::AT_STACK, i64::from(distance) + i64::from(pushed))
    }

    /// The number of its expression, if it is one.
    fn expression(self) -> Option<u32> {
        matches!(self.0 >> 28, Rule::EXPRESSION | Rule::VALUE_EXPRESSION)
            .then_some(self.0 & 0x0fff_ffff)
    }
}

/// The expressions of a function's rules; equal ones have one number.
#[derive(Default)]
struct Expressions<'a>(Vec<&'a [u8]>);

impl<'a> Expressions<'a> {
    fn number(&mut self, bytes: &'a [u8]) -> u32 {
        let known = self.0.iter().position(|e| *e == bytes);
        known.unwrap_or_else(|| {
            self.0.push(bytes);
            self.0.len() - 1
        }) as u32
    }
}

/// Registers that have rules: `rax` to `r15`, the return address and `xmm0` to `xmm15`.
const COLUMNS: usize = 33;

#[derive(Clone, Copy, Debug)]
struct Row {
    start: u64,
    end: u64,
    cfa: Cfa,
    rules: [Rule; COLUMNS],
    args_size: u64,
}

const INITIAL: Row = {
    let mut rules = [Rule::NONE; COLUMNS];
    rules[RETURN_ADDRESS as usize] = Rule::with(Rule::OFFSET, -8).expect("it is small");
    Row { start: 0, end: 0, cfa: Cfa::Register(RSP, 8), rules, args_size: 0 }
};

/// Reads the original's rows.
pub(crate) struct Rows<'a> {
    image: &'a Image,
    section: gimli::EhFrame<gimli::EndianSlice<'a, gimli::LittleEndian>>,
    bases: gimli::BaseAddresses,
    context: gimli::UnwindContext<usize>,
    /// Rows of the original and of the rewritten text.
    old: Vec<Row>,
    new: Vec<Row>,
}

impl<'a> Rows<'a> {
    /// A reader of `image`'s `.eh_frame`; `None` if it has none.
    pub(crate) fn new(image: &'a Image) -> Option<Rows<'a>> {
        let (_, bytes) = image.eh_frame()?;
        let mut section = gimli::EhFrame::new(bytes, gimli::LittleEndian);
        section.set_address_size(8);
        let bases = image.unwind_bases();
        Some(Rows {
            image,
            section,
            bases,
            context: gimli::UnwindContext::new(),
            old: Vec::new(),
            new: Vec::new(),
        })
    }

    fn read(&mut self, fde: &Fde, expressions: &mut Expressions<'a>) -> Option<()> {
        let offset = gimli::EhFrameOffset(fde.offset);
        let entry = self
            .section
            .fde_from_offset(&self.bases, offset, gimli::EhFrame::cie_from_offset)
            .ok()?;
        if u64::from(entry.cie().return_address_register().0) != RETURN_ADDRESS {
            return None;
        }
        let section = self.section;
        let mut table = entry.rows(&section, &self.bases, &mut self.context).ok()?;
        while let Some(row) = table.next_row().ok()? {
            let bytes = |e: &gimli::UnwindExpression<usize>| Some(e.get(&section).ok()?.0.slice());
            let cfa = match row.cfa() {
                CfaRule::RegisterAndOffset { register, offset } => {
                    Cfa::Register(u64::from(register.0), *offset)
                }
                CfaRule::Expression(e) => Cfa::Expression(expressions.number(bytes(e)?)),
            };
            let mut rules = [Rule::NONE; COLUMNS];
            for (register, rule) in row.registers() {
                *rules.get_mut(register.0 as usize)? = match rule {
                    RegisterRule::Undefined => Rule::UNDEFINED,
                    RegisterRule::SameValue => Rule::SAME_VALUE,
                    RegisterRule::Offset(n) => Rule::with(Rule::OFFSET, *n)?,
                    RegisterRule::ValOffset(n) => Rule::with(Rule::VALUE_OFFSET, *n)?,
                    RegisterRule::Register(r) => Rule::with(Rule::REGISTER, i64::from(r.0))?,
                    RegisterRule::Expression(e) => Rule::at(bytes(e)?, expressions)?,
                    RegisterRule::ValExpression(e) => {
                        let number = expressions.number(bytes(e)?);
                        Rule::with(Rule::VALUE_EXPRESSION, i64::from(number))?
                    }
                    _ => return None,
                };
            }
            self.old.push(Row {
                start: row.start_address(),
                end: row.end_address(),
                cfa,
                rules,
                args_size: row.saved_args_size(),
            });
        }
        Some(())
    }
}

/// A reader of bytes.
#[derive(Clone, Copy)]
struct Bytes<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Bytes<'a> {
    fn u8(&mut self) -> Option<u8> {
        self.at += 1;
        self.bytes.get(self.at - 1).copied()
    }

    fn take(&mut self, n: u64) -> Option<&'a [u8]> {
        let end = self.at.checked_add(usize::try_from(n).ok()?)?;
        let bytes = self.bytes.get(self.at..end)?;
        self.at = end;
        Some(bytes)
    }

    fn unsigned(&mut self, n: u64) -> Option<u64> {
        Some(self.take(n)?.iter().rev().fold(0, |v, b| v << 8 | u64::from(*b)))
    }

    fn uleb(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..63).step_by(7) {
            let byte = self.u8()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }

    fn sleb(&mut self) -> Option<i64> {
        let mut value = 0i64;
        for shift in (0..63).step_by(7) {
            let byte = self.u8()?;
            value |= i64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                let unused = 64 - (shift + 7);
                return Some(value << unused >> unused);
            }
        }
        None
    }

    fn block(&mut self) -> Option<&'a [u8]> {
        let n = self.uleb()?;
        self.take(n)
    }
}

/// Executes a call frame program (DWARF 5, 6.4.2) that begins in the state of a common entry.
fn interpret<'p>(
    part: &'p PartUnwind,
    out: &mut Vec<Row>,
    expressions: &mut Expressions<'p>,
) -> Option<()> {
    let mut row = INITIAL;
    row.start = u64::from(part.start);
    let mut b = Bytes { bytes: &part.program, at: 0 };
    while b.at < b.bytes.len() {
        let op = b.u8()?;
        let low = u64::from(op & 0x3f);
        let advance = match op >> 6 {
            1 => Some(low),
            0 => match op {
                0x02 => Some(b.unsigned(1)?),
                0x03 => Some(b.unsigned(2)?),
                0x04 => Some(b.unsigned(4)?),
                _ => None,
            },
            _ => None,
        };
        if let Some(delta) = advance {
            let next = row.start + delta;
            out.push(Row { end: next, ..row });
            row.start = next;
            continue;
        }
        let mut rule = |register: u64, rule: Rule| -> Option<()> {
            *row.rules.get_mut(register as usize)? = rule;
            Some(())
        };
        match (op >> 6, op) {
            (2, _) => rule(
                low,
                Rule::with(Rule::OFFSET, i64::try_from(b.uleb()?).ok()?.checked_mul(DATA_ALIGN)?)?,
            )?,
            (3, _) => rule(low, INITIAL.rules.get(low as usize).copied()?)?,
            (0, 0x00) => {}
            (0, 0x06) => {
                let r = b.uleb()?;
                rule(r, INITIAL.rules.get(r as usize).copied()?)?;
            }
            (0, 0x07) => rule(b.uleb()?, Rule::UNDEFINED)?,
            (0, 0x08) => rule(b.uleb()?, Rule::SAME_VALUE)?,
            (0, 0x09) => {
                rule(b.uleb()?, Rule::with(Rule::REGISTER, i64::try_from(b.uleb()?).ok()?)?)?
            }
            (0, 0x10) => rule(b.uleb()?, Rule::at(b.block()?, expressions)?)?,
            (0, 0x11) => {
                rule(b.uleb()?, Rule::with(Rule::OFFSET, b.sleb()?.checked_mul(DATA_ALIGN)?)?)?
            }
            (0, 0x15) => rule(
                b.uleb()?,
                Rule::with(Rule::VALUE_OFFSET, b.sleb()?.checked_mul(DATA_ALIGN)?)?,
            )?,
            (0, 0x16) => rule(
                b.uleb()?,
                Rule::with(Rule::VALUE_EXPRESSION, i64::from(expressions.number(b.block()?)))?,
            )?,
            (0, 0x0c) => row.cfa = Cfa::Register(b.uleb()?, b.uleb()? as i64),
            (0, 0x12) => row.cfa = Cfa::Register(b.uleb()?, b.sleb()?.checked_mul(DATA_ALIGN)?),
            (0, 0x0d) => match &mut row.cfa {
                Cfa::Register(r, _) => *r = b.uleb()?,
                Cfa::Expression(_) => return None,
            },
            (0, 0x0e) => match &mut row.cfa {
                Cfa::Register(_, n) => *n = b.uleb()? as i64,
                Cfa::Expression(_) => return None,
            },
            (0, 0x0f) => row.cfa = Cfa::Expression(expressions.number(b.block()?)),
            (0, 0x2e) => row.args_size = b.uleb()?,
            _ => return None,
        }
    }
    out.push(Row { end: u64::from(part.end), ..row });
    Some(())
}

/// Whether an expression depends on the stack pointer or on where the code is.
fn depends(expression: &[u8]) -> (bool, bool) {
    let mut b = Bytes { bytes: expression, at: 1 };
    let one = matches!(expression.first(), Some(0x70..=0x8f)) && b.sleb().is_some();
    // Of what is more than a register and a distance from it, a byte that looks like one of these
    // operators is taken for it.
    let operators = if one && b.at == expression.len() { &expression[..1] } else { expression };
    (operators.contains(&0x77), operators.contains(&0x80))
}

pub(crate) fn check<'a>(walk: &Walk<'_, 'a>, rows: &mut Rows<'a>) -> Result<(), CheckError> {
    let entry = walk.claim.function.entry.0;
    rows.old.clear();
    let mut expressions = Expressions::default();
    let image = rows.image;
    let fdes = image.fdes();
    for range in &walk.claim.function.ranges {
        let from = fdes.partition_point(|f| f.end <= range.start);
        for fde in fdes[from..].iter().take_while(|f| f.start < range.end) {
            if rows.read(fde, &mut expressions).is_none() {
                return fail(fde.start.0, Fault::Unwind);
            }
        }
    }
    rows.old.sort_by_key(|r| r.start);
    rows.old.dedup_by_key(|r| (r.start, r.end));
    let parts = walk.claim.unwind;
    if rows.old.is_empty() && parts.is_empty() {
        return Ok(());
    }
    let mut new = std::mem::take(&mut rows.new);
    new.clear();
    // From here on expressions of both codes are numbered together.
    let mut expressions = Expressions(expressions.0);
    let mut at = 0;
    for part in parts {
        if part.start != at || part.end < part.start {
            return fail(entry, Fault::Unwind);
        }
        at = part.end;
        if interpret(part, &mut new, &mut expressions).is_none() {
            return fail(entry, Fault::Unwind);
        }
    }
    // A part stays whole wherever its chunk goes.
    let whole = |chunk: &u32| parts.iter().any(|p| p.start == *chunk);
    if at as usize != walk.code.len() || !walk.claim.emitted.chunk_starts.iter().all(whole) {
        return fail(entry, Fault::Unwind);
    }
    new.retain(|r| r.start < r.end);
    if new.windows(2).any(|w| w[1].start < w[0].end) {
        return fail(entry, Fault::Unwind);
    }
    let mut compare = Compare::new(&rows.old, &new, &expressions.0);
    for pair in walk.s.pairs.iter().filter(|p| p.new < PADDING) {
        compare.at(pair.insn.ip(), u64::from(pair.new), u64::from(pair.len), 0)?;
    }
    for (a, n, len) in &walk.s.extra {
        compare.at(*a, u64::from(*n), u64::from(*len), 0)?;
    }
    for stretch in &walk.s.stretches {
        let Some(at) = stretch.at else { continue };
        let summary = walk.shapes.summary(stretch.shape as usize);
        for d in &summary.depths {
            let base = stretch.parts[d.part as usize];
            let len = u64::from(d.end - d.start);
            compare.at(at, u64::from(base + d.start), len, d.pushed)?;
        }
    }
    rows.new = new;
    handlers(walk, image)
}

struct Compare<'r> {
    old: &'r [Row],
    new: &'r [Row],
    expressions: &'r [&'r [u8]],
    /// Rows looked at last.
    i: usize,
    j: usize,
    pushed: u32,
    /// Whether any were found equal, and where those are that were last: of the original, and of
    /// the rewritten text.
    equal: bool,
    a: (u64, u64),
    n: (u64, u64),
}

impl<'r> Compare<'r> {
    fn new(old: &'r [Row], new: &'r [Row], expressions: &'r [&'r [u8]]) -> Compare<'r> {
        let nowhere = (0, 0);
        Compare {
            old,
            new,
            expressions,
            i: 0,
            j: 0,
            pushed: 0,
            equal: false,
            a: nowhere,
            n: nowhere,
        }
    }

    /// Wants the rules at `a` to hold, with `pushed` bytes more on the stack, for the `len` bytes
    /// from `n`.
    #[inline(always)]
    fn at(&mut self, a: u64, n: u64, len: u64, pushed: u32) -> Result<(), CheckError> {
        let same = self.equal && self.pushed == pushed;
        let inside = a >= self.a.0 && a < self.a.1 && n >= self.n.0 && n + len <= self.n.1;
        if same && inside { Ok(()) } else { self.look(a, n, len, pushed) }
    }

    fn look(&mut self, a: u64, mut n: u64, len: u64, pushed: u32) -> Result<(), CheckError> {
        if !self.old.get(self.i).is_some_and(|r| r.start <= a && a < r.end) {
            self.i = self.old.partition_point(|r| r.end <= a);
            if self.old.get(self.i).is_none_or(|r| r.start > a) {
                // The original has no rules here, and needs none.
                return Ok(());
            }
        }
        let end = n + len;
        while n < end {
            if !self.new.get(self.j).is_some_and(|r| r.start <= n && n < r.end) {
                self.j = self.new.partition_point(|r| r.end <= n);
                if self.new.get(self.j).is_none_or(|r| r.start > n) {
                    return fail(a, Fault::Unwind);
                }
            }
            let (old, new) = (&self.old[self.i], &self.new[self.j]);
            if !same(old, new, pushed, self.expressions) {
                return fail(a, Fault::Unwind);
            }
            (self.a, self.n) = ((old.start, old.end), (new.start, new.end));
            (self.equal, self.pushed) = (true, pushed);
            n = new.end;
        }
        Ok(())
    }
}

fn same(old: &Row, new: &Row, pushed: u32, expressions: &[&[u8]]) -> bool {
    let portable = |e: u32| {
        let (stack, place) = depends(expressions[e as usize]);
        !place && (!stack || pushed == 0)
    };
    let cfa = match (old.cfa, new.cfa) {
        (Cfa::Register(RSP, a), Cfa::Register(RSP, b)) => a + i64::from(pushed) == b,
        (Cfa::Expression(a), Cfa::Expression(b)) => a == b && portable(a),
        (a, b) => a == b,
    };
    let rules = old.rules.iter().zip(&new.rules);
    cfa && rules.into_iter().all(|(old, new)| old.with_pushed(pushed) == Some(*new))
        && old.args_size == new.args_size
        && (expressions.is_empty() || old.rules.iter().filter_map(|r| r.expression()).all(portable))
}

/// An exception table.
struct Handlers<'a> {
    bytes: Bytes<'a>,
    /// Where call sites, actions and (end of) types begin.
    sites: usize,
    actions: usize,
    types: Option<usize>,
    site_encoding: u8,
    type_encoding: u8,
    /// What landing pads are relative to.
    pad_base: u64,
    /// Address of the first byte; 0 for a new table.
    address: u64,
}

/// What an exception that passes a call meets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Handler {
    /// No entry: the program is terminated.
    None,
    Found {
        pad: Option<u64>,
        action: u64,
    },
}

impl<'a> Handlers<'a> {
    fn read(bytes: &'a [u8], address: u64, function: u64) -> Option<Handlers<'a>> {
        let mut b = Bytes { bytes, at: 0 };
        let pad_base = match b.u8()? {
            0xff => function,
            // A new table's base is filled in with the start of the function's rewritten text.
            PCREL4 if address == 0 => {
                b.take(4)?;
                0
            }
            encoding => encoded(&mut b, encoding, address)?,
        };
        let type_encoding = b.u8()?;
        let types = match type_encoding {
            0xff => None,
            _ => {
                let distance = usize::try_from(b.uleb()?).ok()?;
                Some(b.at.checked_add(distance)?)
            }
        };
        let site_encoding = b.u8()?;
        let len = usize::try_from(b.uleb()?).ok()?;
        let sites = b.at;
        let actions = sites.checked_add(len).filter(|a| *a <= bytes.len())?;
        let bytes = b;
        let h = Handlers {
            bytes,
            sites,
            actions,
            types,
            site_encoding,
            type_encoding,
            pad_base,
            address,
        };
        let mut b = h.at(sites);
        while b.at < actions {
            for _ in 0..3 {
                encoded(&mut b, site_encoding, address)?;
            }
            b.uleb()?;
        }
        (b.at == actions).then_some(h)
    }

    fn at(&self, offset: usize) -> Bytes<'a> {
        Bytes { bytes: self.bytes.bytes, at: offset }
    }

    /// Whether `table` lists the landing pads with their fields, and nothing else: they are
    /// filled in again where the code lies in several chunks.
    fn pads_are_listed(&self, table: &NewLsda) -> Option<bool> {
        let mut b = self.at(self.sites);
        let mut listed = table.pads.iter();
        while b.at < self.actions {
            for _ in 0..2 {
                encoded(&mut b, self.site_encoding, self.address)?;
            }
            let field = b.at;
            let pad = encoded(&mut b, self.site_encoding, self.address)?;
            let whole = b.at - field == 5;
            b.uleb()?;
            if pad == 0 {
                continue;
            }
            let entry = (u32::try_from(field).ok()?, u32::try_from(pad).ok()?);
            if listed.next() != Some(&entry) || !whole || self.site_encoding != 0x01 {
                return Some(false);
            }
        }
        Some(listed.next().is_none())
    }

    /// What the personality routine finds for `place` bytes past the function's start.
    fn find(&self, place: u64) -> Option<Handler> {
        let mut b = self.at(self.sites);
        while b.at < self.actions {
            let mut field = || encoded(&mut b, self.site_encoding, self.address);
            let (start, len, pad) = (field()?, field()?, field()?);
            let action = b.uleb()?;
            // The list is in order.
            if place < start {
                break;
            }
            if place - start < len {
                let pad = (pad != 0).then(|| self.pad_base.wrapping_add(pad));
                return Some(Handler::Found { pad, action });
            }
        }
        Some(Handler::None)
    }
}

/// A pointer as exception tables encode it.
fn encoded(b: &mut Bytes<'_>, encoding: u8, address: u64) -> Option<u64> {
    let place = address.wrapping_add(b.at as u64);
    let value = match encoding & 0x0f {
        0x00 | 0x04 | 0x0c => b.unsigned(8)?,
        0x01 => b.uleb()?,
        0x02 => b.unsigned(2)?,
        0x03 => b.unsigned(4)?,
        0x09 => b.sleb()? as u64,
        0x0a => b.unsigned(2)? as i16 as u64,
        0x0b => b.unsigned(4)? as i32 as u64,
        _ => return None,
    };
    match encoding & 0x70 {
        0x00 => Some(value),
        0x10 if value == 0 => Some(0),
        0x10 => Some(place.wrapping_add(value)),
        _ => None,
    }
}

fn original_handlers<'a>(image: &'a Image, fde: &Fde) -> Option<Handlers<'a>> {
    let at = fde.lsda?;
    let segment = image.segments().iter().find(|s| s.contains(at))?;
    let end = segment.start.0 + segment.file_size.min(segment.mem_size);
    let len = usize::try_from(end.checked_sub(at.0)?).ok()?.min(1 << 24);
    Handlers::read(image.read(at, len)?, at.0, fde.start.0)
}

/// Whether a table says what its pads are relative to: the function's start,
/// which the personality routine takes from the unwind entry if the table does not say.
fn has_base(table: &NewLsda, part: &PartUnwind) -> bool {
    let encoding = table.bytes.first().copied();
    match table.base {
        LandingBase::Part => encoding == Some(OMIT) && part.start == 0,
        LandingBase::Function => encoding == Some(PCREL4) && table.base_field() == Some(1),
        LandingBase::Text => false,
    }
}

/// Checks handlers and personality at every call.
fn handlers(walk: &Walk<'_, '_>, image: &Image) -> Result<(), CheckError> {
    let parts = walk.claim.unwind;
    let mut tables: Vec<(&Fde, Option<Handlers<'_>>)> = Vec::new();
    let news: Vec<Option<Handlers<'_>>> = parts
        .iter()
        .map(|p| p.table.as_ref().and_then(|t| Handlers::read(&t.bytes, 0, 0)))
        .collect();
    if parts.iter().all(|p| p.table.is_none() && p.personality.is_none() && !p.signal_frame)
        && !has_handlers(walk, image)
    {
        return Ok(());
    }
    let listed = |(new, part): (&Option<Handlers<'_>>, &PartUnwind)| match (new, &part.table) {
        (Some(new), Some(table)) => {
            has_base(table, part) && new.pads_are_listed(table) == Some(true)
        }
        (None, None) => true,
        _ => false,
    };
    if !news.iter().zip(parts).all(listed) {
        return fail(walk.claim.function.entry.0, Fault::Handler);
    }
    let mut actions: Vec<(usize, u64, usize, u64)> = Vec::new();
    for (pair, start, end) in copies(walk) {
        let a = pair.insn.ip();
        let Some(fde) = image.fde_at(LinkAddr(a)) else { continue };
        let Some(i) = parts.iter().position(|p| (p.start..p.end).contains(&start)) else {
            return fail(a, Fault::Unwind);
        };
        let part = &parts[i];
        if part.personality != fde.personality
            || part.signal_frame != fde.signal_frame
            || part.table.is_some() != fde.lsda.is_some()
        {
            return fail(a, Fault::Handler);
        }
        if fde.lsda.is_none() || !pair.seen.is_call() {
            continue;
        }
        let t = match tables.iter().position(|(f, _)| f.start == fde.start) {
            Some(t) => t,
            None => {
                tables.push((fde, original_handlers(image, fde)));
                tables.len() - 1
            }
        };
        let (Some(old), Some(new)) = (&tables[t].1, &news[i]) else {
            return fail(a, Fault::Handler);
        };
        let last = pair.insn.len() as u64 - 1;
        let was = old.find(a + last - fde.start.0);
        // The unwinder finds a handler by the last byte of the call.
        let is = new.find(u64::from(end) - 1 - u64::from(part.start));
        let (was, is) = match (was, is) {
            (Some(Handler::None), Some(Handler::None)) => continue,
            (
                Some(Handler::Found { pad: p, action: x }),
                Some(Handler::Found { pad: q, action: y }),
            ) => ((p, x), (q, y)),
            _ => return fail(a, Fault::Handler),
        };
        let same_pad = match (was.0, is.0) {
            (None, None) => true,
            (Some(p), Some(q)) => block_offset(walk, p) == u32::try_from(q).ok(),
            _ => false,
        };
        if !same_pad {
            return fail(a, Fault::Handler);
        }
        let key = (t, was.1, i, is.1);
        if actions.contains(&key) {
            continue;
        }
        let table = part.table.as_ref().expect("it was read");
        if same_actions(old, was.1, new, table, is.1) != Some(true) {
            return fail(a, Fault::Handler);
        }
        actions.push(key);
    }
    Ok(())
}

/// Where each copy begins and ends; of a promoted call both calls.
fn copies<'s>(walk: &'s Walk<'_, '_>) -> impl Iterator<Item = (&'s Pair, u32, u32)> {
    let pairs = &walk.s.pairs;
    let copies = pairs.iter().filter(|p| p.new < PADDING && p.len > 0);
    let others = walk.s.promoted.iter().map(|(i, end)| (&pairs[*i as usize], end - 1, *end));
    copies.map(|p| (p, p.new, p.new + p.len)).chain(others)
}

fn has_handlers(walk: &Walk<'_, '_>, image: &Image) -> bool {
    let fdes = image.fdes();
    walk.claim.function.ranges.iter().any(|range| {
        let from = fdes.partition_point(|f| f.end <= range.start);
        fdes[from..]
            .iter()
            .take_while(|f| f.start < range.end)
            .any(|f| f.lsda.is_some() || f.personality.is_some() || f.signal_frame)
    })
}

fn block_offset(walk: &Walk<'_, '_>, at: u64) -> Option<u32> {
    let block = walk.claim.function.block_at(LinkAddr(at))?;
    walk.claim.emitted.block_offsets.get(block.index()).copied()
}

/// Whether two chains of actions catch the same types in the same order.
fn same_actions(
    old: &Handlers<'_>,
    was: u64,
    new: &Handlers<'_>,
    table: &NewLsda,
    is: u64,
) -> Option<bool> {
    if was == 0 || is == 0 {
        return Some(was == is);
    }
    if (old.type_encoding == 0xff) != (new.type_encoding == 0xff) {
        return Some(false);
    }
    let mut a = old.at(old.actions.checked_add(usize::try_from(was - 1).ok()?)?);
    let mut b = new.at(new.actions.checked_add(usize::try_from(is - 1).ok()?)?);
    for _ in 0..4096 {
        let (filter, other) = (a.sleb()?, b.sleb()?);
        // How types are numbered is kept, which compares lists of types, too.
        if filter != other {
            return Some(false);
        }
        if filter > 0 && !same_type(old, new, table, filter as u64)? {
            return Some(false);
        }
        if filter < 0 {
            let skip = usize::try_from(-filter - 1).ok()?;
            let mut s = old.at(old.types?.checked_add(skip)?);
            let mut t = new.at(new.types?.checked_add(skip)?);
            loop {
                let (n, m) = (s.uleb()?, t.uleb()?);
                if n != m {
                    return Some(false);
                }
                if n == 0 {
                    break;
                }
                if !same_type(old, new, table, n)? {
                    return Some(false);
                }
            }
        }
        let (from_a, from_b) = (a.at, b.at);
        let (x, y) = (a.sleb()?, b.sleb()?);
        if x == 0 || y == 0 {
            return Some(x == y);
        }
        a = old.at(from_a.checked_add_signed(isize::try_from(x).ok()?)?);
        b = new.at(from_b.checked_add_signed(isize::try_from(y).ok()?)?);
    }
    None
}

/// Whether type number `n` is the same in both tables.
fn same_type(old: &Handlers<'_>, new: &Handlers<'_>, table: &NewLsda, n: u64) -> Option<bool> {
    if new.type_encoding & !INDIRECT != PCREL4
        || (new.type_encoding ^ old.type_encoding) & INDIRECT != 0
    {
        return Some(false);
    }
    let size: u64 = match old.type_encoding & 0x0f {
        0x00 | 0x04 | 0x0c => 8,
        0x02 | 0x0a => 2,
        0x03 | 0x0b => 4,
        _ => return None,
    };
    let n = usize::try_from(n).ok()?;
    let mut a = old.at(old.types?.checked_sub(n.checked_mul(size as usize)?)?);
    let was = encoded(&mut a, old.type_encoding & !INDIRECT, old.address)?;
    let field = new.types?.checked_sub(n.checked_mul(4)?)?;
    let is = table.types.iter().find(|(at, _)| *at as usize == field)?.1;
    // What is zero is not filled in.
    let bytes = new.at(field).take(4)?;
    Some(was == is && (is != 0 || bytes == [0; 4]))
}
