//! Decoding by remembering.
//!
//! What an instruction is depends on few of its bytes: prefixes, opcode, and those that name
//! registers. Constants, displacements and distances only have to be stepped over. And programs
//! use few *forms*, as those bytes are called here. So a table that remembers what a decoder and
//! its tables of effects once said of a form answers for all but some in a thousand instructions,
//! in a fraction of the time; the decoder is asked about the rest.
//!
//! The only thing that is known here of machine code is which bytes make up the form. Bytes too
//! many would cost time, bytes too few be wrong: a test compares every opcode with the decoder.

use iced_x86::{
    Code, ConstantOffsets, Decoder, DecoderOptions, Instruction, Mnemonic, OpKind, Register,
};

use crate::insn::{HALF, Insn, Marks};

/// Says of an instruction whatever is to be remembered: the same for all of one form.
pub trait Learn {
    /// What is remembered.
    type Known: Copy + Default;

    /// What is known of `instruction`.
    fn learn(&mut self, instruction: &Instruction) -> Self::Known;
}

/// How the bytes of a form become an [`Insn`].
#[derive(Clone, Copy, Debug, Default)]
struct Template {
    len: u8,
    field: u8,
    marks: Marks,
    jump: u8,
    /// Where the distance is, and its bytes: none, one or four.
    distance: (u8, u8),
    /// Where the highest byte of a displacement from `rsp` or `rbp` is; 0 if there is none.
    displacement: u8,
    /// The last byte is a constant that makes a difference, and a part of the form.
    by_constant: bool,
}

impl Template {
    #[inline(always)]
    fn at(&self, bytes: &[u8; 16], ip: u64) -> Insn {
        let from = usize::from(self.distance.0 & 15);
        let distance = match self.distance.1 {
            0 => 0,
            1 => i32::from(bytes[from] as i8),
            _ => {
                let whole = u128::from_le_bytes(*bytes);
                (whole >> (8 * from)) as i32
            }
        };
        let mut marks = self.marks;
        if self.displacement != 0 && bytes[usize::from(self.displacement & 15)] >= 0x80 {
            marks.0 |= Marks::BELOW;
        }
        Insn { ip, distance, len: self.len, field: self.field, marks, jump: self.jump }
    }

    /// The template of `instruction`, whose constants are at `offsets`; `None` for what is too
    /// unusual to have one.
    fn of(instruction: &Instruction, offsets: &ConstantOffsets) -> Option<Template> {
        let len = instruction.len() as u8;
        let mut template = Template { len, ..Template::default() };
        template.marks = marks(instruction);
        template.jump = jump(instruction);
        let (displacement, size) = (offsets.displacement_offset(), offsets.displacement_size());
        if template.marks.0 & Marks::BRANCH != 0 {
            template.distance = (offsets.immediate_offset() as u8, offsets.immediate_size() as u8);
        } else if template.marks.0 & Marks::IP_RELATIVE != 0 {
            template.field = displacement as u8;
            template.distance = (displacement as u8, size as u8);
        } else if matches!(instruction.memory_base(), Register::RSP | Register::RBP) && size != 0 {
            template.displacement = (displacement + size - 1) as u8;
        }
        if changes_by_constant(instruction) {
            template.by_constant = offsets.immediate_offset() + 1 == instruction.len();
            if !template.by_constant {
                return None;
            }
        }
        Some(template)
    }
}

fn marks(i: &Instruction) -> Marks {
    let mut marks = 0;
    let mut mark = |is: bool, mark: u8| marks |= if is { mark } else { 0 };
    mark(i.is_ip_rel_memory_operand(), Marks::IP_RELATIVE);
    mark(i.op0_kind() == OpKind::NearBranch64, Marks::BRANCH);
    mark(i.mnemonic() == Mnemonic::Nop, Marks::NOP);
    mark(i.mnemonic() == Mnemonic::Lea, Marks::LEA);
    mark(i.mnemonic() == Mnemonic::Syscall, Marks::SYSCALL);
    mark(i.has_lock_prefix(), Marks::LOCK);
    mark(i.segment_prefix() == Register::GS, Marks::GS);
    Marks(marks)
}

fn is_below(i: &Instruction) -> bool {
    matches!(i.memory_base(), Register::RSP | Register::RBP)
        && (i.memory_displacement64() as i64) < 0
}

fn jump(i: &Instruction) -> u8 {
    let half = match i.code() {
        Code::Jecxz_rel8_64
        | Code::Loop_rel8_64_ECX
        | Code::Loope_rel8_64_ECX
        | Code::Loopne_rel8_64_ECX => HALF,
        _ => 0,
    };
    match i.mnemonic() {
        Mnemonic::Loopne => 0xe0 ^ half,
        Mnemonic::Loope => 0xe1 ^ half,
        Mnemonic::Loop => 0xe2 ^ half,
        Mnemonic::Jrcxz | Mnemonic::Jecxz => 0xe3 ^ half,
        // Conditions are in the order of machine code, behind one for none.
        _ if i.is_jcc_short_or_near() => 0x70 | CONDITIONS[i.condition_code() as usize],
        _ => 0,
    }
}

/// By iced's number of a condition: that in machine code.
const CONDITIONS: [u8; 17] = {
    use iced_x86::ConditionCode as C;
    let order = [
        C::o,
        C::no,
        C::b,
        C::ae,
        C::e,
        C::ne,
        C::be,
        C::a,
        C::s,
        C::ns,
        C::p,
        C::np,
        C::l,
        C::ge,
        C::le,
        C::g,
    ];
    let mut numbers = [0; 17];
    let mut n = 0;
    while n < order.len() {
        numbers[order[n] as usize] = n as u8;
        n += 1;
    }
    numbers
};

/// Shifts and rotations by a constant: by none they do nothing.
fn changes_by_constant(i: &Instruction) -> bool {
    use Mnemonic as M;
    let constant = (0..i.op_count()).any(|op| i.op_kind(op) == OpKind::Immediate8);
    constant
        && matches!(
            i.mnemonic(),
            M::Shl
                | M::Shr
                | M::Sar
                | M::Sal
                | M::Rol
                | M::Ror
                | M::Rcl
                | M::Rcr
                | M::Shld
                | M::Shrd
        )
}

/// Decodes instructions; keep one per thread, it remembers.
pub struct Forms<L: Learn> {
    learner: L,
    /// Pairs of forms that have the same place, the newer one first.
    table: Box<[[Remembered<L::Known>; 2]]>,
}

/// A form, and what is remembered of it.
type Remembered<K> = (u64, Template, K);

/// Bits of an index of the table.
const TABLE_BITS: u32 = 13;

impl<L: Learn + Default> Default for Forms<L> {
    fn default() -> Self {
        Forms::new(L::default())
    }
}

impl<L: Learn> Forms<L> {
    /// One that remembers nothing yet.
    pub fn new(learner: L) -> Forms<L> {
        let none = (NO_FORM, Template::default(), L::Known::default());
        Forms { learner, table: vec![[none; 2]; 1 << TABLE_BITS].into_boxed_slice() }
    }

    /// What is remembered of `form`, or of another form that was remembered in its place.
    #[inline(always)]
    fn remembered(&self, form: u64) -> &Remembered<L::Known> {
        let [newer, older] = &self.table[place(form)];
        if newer.0 == form { newer } else { older }
    }

    fn remember(&mut self, remembered: Remembered<L::Known>) {
        let pair = &mut self.table[place(remembered.0)];
        if pair[0].0 != remembered.0 {
            pair[1] = pair[0];
        }
        pair[0] = remembered;
    }

    /// The instruction at `offset` of `code`, whose address is `ip`, and what is known of it;
    /// `None` if there is none.
    #[inline]
    pub fn decode(&mut self, code: &[u8], offset: usize, ip: u64) -> Option<(Insn, L::Known)> {
        let rest = code.get(offset..)?;
        let padded;
        let bytes = match rest.first_chunk::<16>() {
            Some(bytes) => bytes,
            None => {
                padded = at_the_end(rest);
                &padded
            }
        };
        let mut form = form(first8(bytes));
        let mut known = self.remembered(form);
        if known.0 == form && known.1.by_constant {
            form = with_constant(form, bytes, known.1.len);
            known = self.remembered(form);
        }
        if known.0 == form && form != NO_FORM && usize::from(known.1.len) <= rest.len() {
            return Some((known.1.at(bytes, ip), known.2));
        }
        self.learn(rest, bytes, ip)
    }

    #[cold]
    fn learn(&mut self, rest: &[u8], bytes: &[u8; 16], ip: u64) -> Option<(Insn, L::Known)> {
        let rest = &rest[..rest.len().min(15)];
        let mut decoder = Decoder::with_ip(64, rest, ip, DecoderOptions::NONE);
        let instruction = decoder.decode();
        if instruction.is_invalid() {
            return None;
        }
        let known = self.learner.learn(&instruction);
        let offsets = decoder.get_constant_offsets(&instruction);
        let insn = described(&instruction, &offsets);
        // Whatever a template would get wrong has none.
        if let Some(template) = Template::of(&instruction, &offsets)
            && template.at(bytes, ip) == insn
        {
            let mut form = form(first8(bytes));
            if template.by_constant {
                self.remember((form, template, known));
                form = with_constant(form, bytes, template.len);
            }
            let template = Template { by_constant: false, ..template };
            if form != NO_FORM {
                self.remember((form, template, known));
            }
        }
        Some((insn, known))
    }
}

/// What `instruction`, whose constants are at `offsets`, is.
fn described(instruction: &Instruction, offsets: &ConstantOffsets) -> Insn {
    let mut marks = marks(instruction);
    let named = match () {
        () if marks.0 & Marks::BRANCH != 0 => instruction.near_branch64(),
        () if marks.0 & Marks::IP_RELATIVE != 0 => instruction.ip_rel_memory_address(),
        () => instruction.next_ip(),
    };
    if is_below(instruction) {
        marks.0 |= Marks::BELOW;
    }
    let relative = marks.0 & Marks::IP_RELATIVE != 0 && marks.0 & Marks::BRANCH == 0;
    Insn {
        ip: instruction.ip(),
        distance: named.wrapping_sub(instruction.next_ip()) as i32,
        len: instruction.len() as u8,
        field: if relative { offsets.displacement_offset() as u8 } else { 0 },
        marks,
        jump: jump(instruction),
    }
}

/// The last bytes of code, with zeros behind them.
#[cold]
fn at_the_end(rest: &[u8]) -> [u8; 16] {
    let mut padded = [0; 16];
    padded[..rest.len()].copy_from_slice(rest);
    padded
}

fn first8(bytes: &[u8; 16]) -> u64 {
    u128::from_le_bytes(*bytes) as u64
}

/// The form of an instruction of the form `form` whose last byte counts, too. No instruction's
/// bytes begin like this: those of its form are followed by zeros and a mark.
fn with_constant(form: u64, bytes: &[u8; 16], len: u8) -> u64 {
    if form == NO_FORM || form >> 48 != 0 {
        return NO_FORM;
    }
    form | 1 << 48 | u64::from(bytes[usize::from(len - 1) & 15]) << 56
}

fn place(form: u64) -> usize {
    (form.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - TABLE_BITS)) as usize
}

/// The form of instructions that are not remembered: too many prefixes, or another kind of
/// opcode. No form is that large.
const NO_FORM: u64 = u64::MAX;

/// What a byte is where an opcode or a prefix is expected.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Byte {
    Prefix,
    /// An opcode whose form ends with it.
    Alone,
    /// An opcode with a byte of registers behind it.
    Registers,
    /// The first byte of an opcode of two or three.
    Escape,
    /// A prefix of as many bytes, the opcode included, before a byte of registers.
    Vector(u8),
    /// Its form is not known here.
    Other,
}

/// Opcodes of one byte with a byte of registers behind them, by their upper half; bit `n` stands
/// for the lower half `n` (Intel's Software Developer's Manual, volume 2, table A-2).
const REGISTERS: [u16; 16] =
    [0x0f0f, 0x0f0f, 0x0f0f, 0x0f0f, 0, 0, 0x0a08, 0, 0xffff, 0, 0, 0, 0x00c3, 0xff0f, 0, 0xc0c0];

/// The same of opcodes behind `0f` (table A-3).
const REGISTERS_0F: [u16; 16] = [
    0x200f, 0xffff, 0xff0f, 0, 0xffff, 0xffff, 0xffff, 0xff7f, 0, 0xffff, 0xf8f8, 0xffff, 0x00ff,
    0xffff, 0xffff, 0xffff,
];

const BYTES: [Byte; 256] = {
    let mut bytes = [Byte::Alone; 256];
    let mut n = 0;
    while n < 256 {
        bytes[n] = match n {
            0x26 | 0x2e | 0x36 | 0x3e | 0x40..=0x4f | 0x64..=0x67 | 0xf0 | 0xf2 | 0xf3 => {
                Byte::Prefix
            }
            0x0f => Byte::Escape,
            0xc5 => Byte::Vector(3),
            0xc4 => Byte::Vector(4),
            0x62 => Byte::Vector(5),
            // XOP, and levels of `enter`.
            0x8f | 0xc8 => Byte::Other,
            _ if REGISTERS[n >> 4] >> (n & 15) & 1 != 0 => Byte::Registers,
            _ => Byte::Alone,
        };
        n += 1;
    }
    bytes
};

const BYTES_0F: [Byte; 256] = {
    let mut bytes = [Byte::Alone; 256];
    let mut n = 0;
    while n < 256 {
        bytes[n] = match n {
            0x38 | 0x3a => Byte::Escape,
            // 3DNow! has its opcode at the end.
            0x0f => Byte::Other,
            _ if REGISTERS_0F[n >> 4] >> (n & 15) & 1 != 0 => Byte::Registers,
            _ => Byte::Alone,
        };
        n += 1;
    }
    bytes
};

/// The form of the instruction that begins with these bytes, the first one lowest: the bytes
/// themselves as far as they belong to it.
#[inline(always)]
fn form(bytes: u64) -> u64 {
    let mut rest = bytes;
    let mut len = 0;
    while BYTES[rest as u8 as usize] == Byte::Prefix {
        rest >>= 8;
        len += 1;
        if len > 4 {
            return NO_FORM;
        }
    }
    let opcode = match BYTES[rest as u8 as usize] {
        Byte::Alone => return first(bytes, len + 1),
        Byte::Registers => 1,
        Byte::Escape => match BYTES_0F[(rest >> 8) as u8 as usize] {
            Byte::Alone => return first(bytes, len + 2),
            Byte::Registers => 2,
            Byte::Escape => 3,
            _ => return NO_FORM,
        },
        Byte::Vector(bytes) => u32::from(bytes),
        Byte::Prefix | Byte::Other => return NO_FORM,
    };
    let registers = (rest >> (8 * opcode)) as u8;
    // An operand in memory may have a second byte of registers.
    let second = registers < 0xc0 && registers & 7 == 4;
    first(bytes, len + opcode + 1 + u32::from(second))
}

/// The first `len` bytes.
fn first(bytes: u64, len: u32) -> u64 {
    if len > 8 { NO_FORM } else { bytes & u64::MAX >> (64 - 8 * len) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Remembers all that tests compare.
    #[derive(Default)]
    struct Text;

    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    struct Seen(u64);

    impl Learn for Text {
        type Known = Seen;

        fn learn(&mut self, i: &Instruction) -> Seen {
            let registers = [i.op0_register(), i.op1_register(), i.memory_base(), i.memory_index()];
            let packed = registers.iter().fold(i.code() as u64, |all, r| all << 8 | *r as u64);
            Seen(packed)
        }
    }

    /// Bytes at random, but for those that the round asks for: every opcode of every map,
    /// behind common prefixes.
    fn bytes(round: u32, seed: &mut u64) -> [u8; 20] {
        let mut bytes = [0; 20];
        for byte in &mut bytes {
            *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            *byte = (*seed >> 33) as u8;
        }
        let prefix: &[u8] = match round % 8 {
            0..=2 => &[],
            3 => &[0x48],
            4 => &[0x66],
            5 => &[0x67, 0x41],
            6 => &[0xf3],
            _ => &[0x2e, 0xf0],
        };
        let opcode = (round / 64) as u8;
        let escape: &[u8] = match round / 8 % 8 {
            0..=2 => &[],
            3 => &[0x0f],
            4 => &[0x0f, 0x38],
            5 => &[0x0f, 0x3a],
            6 => &[0xc5, 0xfa],
            _ => &[0xc4, 0xe2, 0x78],
        };
        let head: Vec<u8> = [prefix, escape, &[opcode]].concat();
        bytes[..head.len()].copy_from_slice(&head);
        bytes
    }

    #[test]
    fn what_is_remembered_is_what_the_decoder_says() {
        let mut forms = Forms::<Text>::default();
        let (mut seed, mut seen) = (1, 0);
        for round in 0..16384 * 64 {
            // Twice in a row, with other constants: the second time from memory.
            let mut bytes = bytes(round, &mut seed);
            for _ in 0..2 {
                let ip = 0x40_0000 + u64::from(round);
                let mut decoder = Decoder::with_ip(64, &bytes, ip, DecoderOptions::NONE);
                let want = decoder.decode();
                let got = forms.decode(&bytes, 0, ip);
                assert_eq!(got.is_some(), !want.is_invalid(), "{want} {bytes:x?}");
                let Some((insn, known)) = got else { continue };
                seen += 1;
                let offsets = decoder.get_constant_offsets(&want);
                assert_eq!(insn, described(&want, &offsets), "{want} {bytes:x?}");
                assert_eq!(known, Text.learn(&want), "{want} {bytes:x?}");
                bytes[want.len().min(19) - 1] ^= round as u8 | 1;
            }
        }
        assert!(seen > 800_000, "{seen}");
    }

    #[test]
    fn the_end_is_the_end() {
        // mov rax, [rip + ..], whole and cut short.
        let code = [0x48, 0x8b, 0x05, 1, 2, 0, 0];
        let mut forms = Forms::<Text>::default();
        for _ in 0..2 {
            let (insn, _) = forms.decode(&code, 0, 0x1000).unwrap();
            assert_eq!((insn.len(), insn.ip_rel_memory_address()), (7, 0x1000 + 7 + 0x201));
            assert!(forms.decode(&code[..6], 0, 0x1000).is_none());
        }
        assert!(forms.decode(&code, 7, 0x1007).is_none());
    }
}
