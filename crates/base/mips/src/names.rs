//! Registers and the names that the o32 calling convention gives them.

use std::fmt;

/// A general-purpose register, 0 to 31.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Reg(u8);

impl Reg {
    /// Always reads as zero.
    pub const ZERO: Self = Self(0);
    /// The assembler's own.
    pub const AT: Self = Self(1);
    /// First result.
    pub const V0: Self = Self(2);
    /// Second result.
    pub const V1: Self = Self(3);
    /// First argument.
    pub const A0: Self = Self(4);
    /// Second argument.
    pub const A1: Self = Self(5);
    /// Third argument.
    pub const A2: Self = Self(6);
    /// Fourth argument, and the error flag of a system call.
    pub const A3: Self = Self(7);
    /// The called address in position-independent code.
    pub const T9: Self = Self(25);
    /// The global pointer, from which the global offset table is reached.
    pub const GP: Self = Self(28);
    /// The stack pointer.
    pub const SP: Self = Self(29);
    /// The return address.
    pub const RA: Self = Self(31);

    /// The register in the low five bits.
    pub const fn new(number: u32) -> Self {
        Self((number & 31) as u8)
    }

    /// 0 to 31.
    pub const fn number(self) -> u8 {
        self.0
    }

    /// Its name in the o32 calling convention.
    pub const fn name(self) -> &'static str {
        const NAMES: [&str; 32] = [
            "zero", "at", "v0", "v1", "a0", "a1", "a2", "a3", "t0", "t1", "t2", "t3", "t4", "t5",
            "t6", "t7", "s0", "s1", "s2", "s3", "s4", "s5", "s6", "s7", "t8", "t9", "k0", "k1",
            "gp", "sp", "s8", "ra",
        ];
        NAMES[self.0 as usize]
    }
}

impl fmt::Debug for Reg {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for Reg {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A floating-point register, 0 to 31.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FpReg(u8);

impl FpReg {
    /// The register in the low five bits.
    pub const fn new(number: u32) -> Self {
        Self((number & 31) as u8)
    }

    /// 0 to 31.
    pub const fn number(self) -> u8 {
        self.0
    }
}

impl fmt::Debug for FpReg {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "$f{}", self.0)
    }
}

impl fmt::Display for FpReg {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "$f{}", self.0)
    }
}
