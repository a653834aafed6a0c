//! Rows of unwind tables as this crate reads them by itself.

use fettle_image::{Fde, Image};
use gimli::{CfaRule, RegisterRule, UnwindSection};

use fettle_code::PartUnwind;
use fettle_code::unwind::DATA_ALIGN;

pub(super) const RSP: u64 = 7;

const RETURN_ADDRESS: u64 = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cfa {
    Register(u64, i64),
    Expression(u32),
}

/// A rule in one word, so that rows are compared fast: kind and operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rule(u32);

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

    pub(super) const fn with(kind: u32, operand: i64) -> Option<Rule> {
        const LIMIT: i64 = 1 << 27;
        if operand < -LIMIT || operand >= LIMIT {
            return None;
        }
        Some(Rule(kind << 28 | operand as u32 & 0x0fff_ffff))
    }

    /// The rule of a register that is saved where `expression` says: a distance from the stack pointer
    /// grows with what is pushed.
    pub(super) fn at<'e>(expression: &'e [u8], expressions: &mut Expressions<'e>) -> Option<Rule> {
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
    pub(super) fn with_pushed(self, pushed: u32) -> Option<Rule> {
        if self.0 >> 28 != Rule::AT_STACK {
            return Some(self);
        }
        let distance = (self.0 << 4) as i32 >> 4;
        Rule::with(Rule::AT_STACK, i64::from(distance) + i64::from(pushed))
    }

    /// The number of its expression, if it is one.
    pub(super) fn expression(self) -> Option<u32> {
        matches!(self.0 >> 28, Rule::EXPRESSION | Rule::VALUE_EXPRESSION)
            .then_some(self.0 & 0x0fff_ffff)
    }
}

/// The expressions of a function's rules; equal ones have one number.
#[derive(Default)]
pub(super) struct Expressions<'a>(pub(super) Vec<&'a [u8]>);

impl<'a> Expressions<'a> {
    pub(super) fn number(&mut self, bytes: &'a [u8]) -> u32 {
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
pub(super) struct Row {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) cfa: Cfa,
    pub(super) rules: [Rule; COLUMNS],
    pub(super) args_size: u64,
}

const INITIAL: Row = {
    let mut rules = [Rule::NONE; COLUMNS];
    rules[RETURN_ADDRESS as usize] = Rule::with(Rule::OFFSET, -8).expect("it is small");
    Row { start: 0, end: 0, cfa: Cfa::Register(RSP, 8), rules, args_size: 0 }
};

/// Reads the original's rows.
pub(crate) struct Rows<'a> {
    pub(super) image: &'a Image,
    section: gimli::EhFrame<gimli::EndianSlice<'a, gimli::LittleEndian>>,
    bases: gimli::BaseAddresses,
    context: gimli::UnwindContext<usize>,
    /// Rows of the original and of the rewritten text.
    pub(super) old: Vec<Row>,
    pub(super) new: Vec<Row>,
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

    pub(super) fn read(&mut self, fde: &Fde, expressions: &mut Expressions<'a>) -> Option<()> {
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
pub(super) struct Bytes<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) at: usize,
}

impl<'a> Bytes<'a> {
    pub(super) fn u8(&mut self) -> Option<u8> {
        self.at += 1;
        self.bytes.get(self.at - 1).copied()
    }

    pub(super) fn take(&mut self, n: u64) -> Option<&'a [u8]> {
        let end = self.at.checked_add(usize::try_from(n).ok()?)?;
        let bytes = self.bytes.get(self.at..end)?;
        self.at = end;
        Some(bytes)
    }

    pub(super) fn unsigned(&mut self, n: u64) -> Option<u64> {
        Some(self.take(n)?.iter().rev().fold(0, |v, b| v << 8 | u64::from(*b)))
    }

    pub(super) fn uleb(&mut self) -> Option<u64> {
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

    pub(super) fn sleb(&mut self) -> Option<i64> {
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

    pub(super) fn block(&mut self) -> Option<&'a [u8]> {
        let n = self.uleb()?;
        self.take(n)
    }
}

/// Executes a call frame program (DWARF 5, 6.4.2) that begins in the state of a common entry.
pub(super) fn interpret<'p>(
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
                rule(b.uleb()?, Rule::with(Rule::REGISTER, i64::try_from(b.uleb()?).ok()?)?)?;
            }
            (0, 0x10) => rule(b.uleb()?, Rule::at(b.block()?, expressions)?)?,
            (0, 0x11) => {
                rule(b.uleb()?, Rule::with(Rule::OFFSET, b.sleb()?.checked_mul(DATA_ALIGN)?)?)?;
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
pub(super) fn depends(expression: &[u8]) -> (bool, bool) {
    let mut b = Bytes { bytes: expression, at: 1 };
    let one = matches!(expression.first(), Some(0x70..=0x8f)) && b.sleb().is_some();
    // Of what is more than a register and a distance from it, a byte that looks like one of these
    // operators is taken for it.
    let operators = if one && b.at == expression.len() { &expression[..1] } else { expression };
    (operators.contains(&0x77), operators.contains(&0x80))
}
