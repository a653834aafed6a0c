//! General-purpose registers and sets of them.

use std::fmt;

use iced_x86::Register;

/// A 64-bit general-purpose register; the discriminant is its number in machine code.
#[allow(missing_docs)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Gpr {
    Rax,
    Rcx,
    Rdx,
    Rbx,
    Rsp,
    Rbp,
    Rsi,
    Rdi,
    R8,
    R9,
    R10,
    R11,
    R12,
    R13,
    R14,
    R15,
}

impl Gpr {
    /// All registers, in machine-code order.
    pub const ALL: [Gpr; 16] = {
        use Gpr::*;
        [Rax, Rcx, Rdx, Rbx, Rsp, Rbp, Rsi, Rdi, R8, R9, R10, R11, R12, R13, R14, R15]
    };

    /// The register's number in machine code, 0 to 15.
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// The general-purpose register that `register` is a part of, if it is one.
    pub fn containing(register: Register) -> Option<Gpr> {
        if !register.is_gpr() {
            return None;
        }
        let full = register.full_register();
        let index = full as usize - Register::RAX as usize;
        Gpr::ALL.get(index).copied()
    }
}

/// A set of general-purpose registers, with the arithmetic flags as one more member.
#[derive(Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct RegSet(u32);

impl RegSet {
    /// No register.
    pub const NONE: RegSet = RegSet(0);
    /// The arithmetic flags: carry, parity, adjust, zero, sign, overflow.
    pub const FLAGS: RegSet = RegSet(1 << 16);
    /// `al` as the number of vector registers of a variadic call. It is apart from `rax` because
    /// a call reads it only if its caller set it: at a function's entry it means nothing.
    pub const VECTOR_COUNT: RegSet = RegSet(1 << 17);
    /// Every register and the flags.
    pub const ALL: RegSet = RegSet(0x3ffff);
    /// What a call may change, by the System V ABI (x86-64 psABI, 3.2.1).
    pub const CALLER_SAVED: RegSet = RegSet::of(&[
        Gpr::Rax,
        Gpr::Rcx,
        Gpr::Rdx,
        Gpr::Rsi,
        Gpr::Rdi,
        Gpr::R8,
        Gpr::R9,
        Gpr::R10,
        Gpr::R11,
    ])
    .with_flags();
    /// What a call must leave as it was: `rbx`, `rsp`, `rbp`, `r12` to `r15`.
    pub const CALLEE_SAVED: RegSet = RegSet(0xffff & !RegSet::CALLER_SAVED.0);
    /// What may carry arguments into a function: six integer registers, `al` with the number of
    /// vector registers of a variadic call, `r10` with the static chain.
    pub const ARGUMENTS: RegSet =
        RegSet::of(&[Gpr::Rdi, Gpr::Rsi, Gpr::Rdx, Gpr::Rcx, Gpr::R8, Gpr::R9, Gpr::Rax, Gpr::R10]);
    /// What may carry a result out of a call.
    pub const RESULTS: RegSet = RegSet::of(&[Gpr::Rax, Gpr::Rdx]);

    /// The set of these registers.
    pub const fn of(registers: &[Gpr]) -> RegSet {
        let mut bits = 0;
        let mut i = 0;
        while i < registers.len() {
            bits |= 1 << registers[i] as u8;
            i += 1;
        }
        RegSet(bits)
    }

    const fn with_flags(self) -> RegSet {
        RegSet(self.0 | RegSet::FLAGS.0)
    }

    /// Members of either set.
    pub const fn union(self, other: RegSet) -> RegSet {
        RegSet(self.0 | other.0)
    }

    /// Members of both sets.
    pub const fn intersection(self, other: RegSet) -> RegSet {
        RegSet(self.0 & other.0)
    }

    /// Members of this set that are not in `other`.
    pub const fn minus(self, other: RegSet) -> RegSet {
        RegSet(self.0 & !other.0)
    }

    /// Whether `register` is a member.
    pub const fn contains(self, register: Gpr) -> bool {
        self.0 & 1 << register as u8 != 0
    }

    /// Whether the flags are a member.
    pub const fn has_flags(self) -> bool {
        self.0 & RegSet::FLAGS.0 != 0
    }

    /// Whether every member of `other` is in this set.
    pub const fn is_superset(self, other: RegSet) -> bool {
        other.0 & !self.0 == 0
    }

    /// Whether the set has no member.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Puts `register` in.
    pub fn insert(&mut self, register: Gpr) {
        self.0 |= 1 << register as u8;
    }

    /// The members that are registers, in machine-code order.
    pub fn registers(self) -> impl Iterator<Item = Gpr> {
        Gpr::ALL.into_iter().filter(move |r| self.contains(*r))
    }

    /// The set as bits: register `n` at bit `n`, the flags at bit 16, [`RegSet::VECTOR_COUNT`] at bit 17.
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// The inverse of [`RegSet::bits`]; other bits are dropped.
    pub const fn from_bits(bits: u32) -> RegSet {
        RegSet(bits & RegSet::ALL.0)
    }
}

impl fmt::Debug for RegSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut set = f.debug_set();
        for register in self.registers() {
            set.entry(&format_args!("{register:?}"));
        }
        if self.has_flags() {
            set.entry(&format_args!("flags"));
        }
        set.finish()
    }
}
