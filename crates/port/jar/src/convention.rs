//! Calling conventions: which variables of the lifted form pass arguments and results.

use crate::vars::{Fp, Var};

/// How many floating-point variables there are: registers, and results of a convention whose
/// arguments are in the same registers.
pub const FPS: usize = 34;

/// A calling convention.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Convention {
    /// MIPS o32: four integers, `v0` and `v1`; two floating-point arguments.
    #[default]
    O32,
    /// RISC-V: eight integers and eight floating-point arguments. The first two of each are results,
    /// too; what a function returns is lifted as copies to variables of their own.
    RiscV,
}

const SP: u64 = 1 << 29;
/// What a nested function gets of the one around it.
const CHAIN: u64 = 1 << 15;
const V0: u64 = 1 << 2;
/// The first four arguments.
const FOUR: u64 = 0xf << 4;
/// The fifth to the eighth.
const MORE: u64 = 0xf << 48;

impl Convention {
    /// Integer variables of arguments.
    pub fn arguments(self) -> u64 {
        match self {
            Self::O32 => FOUR,
            Self::RiscV => FOUR | MORE,
        }
    }

    /// Arguments behind the fourth, which indirect calls leave in the thread.
    pub fn arguments_in_thread(self) -> impl Iterator<Item = Var> {
        let count = if self == Self::RiscV { 4 } else { 0 };
        (48..48 + count).map(Var)
    }

    /// All that a function may read of its caller: arguments, the stack pointer, the static chain, and the
    /// system call's error, which the function that stores it gets in `v0`.
    pub fn passed(self) -> u64 {
        self.arguments() | SP | CHAIN | V0
    }

    /// Floating-point variables of arguments.
    pub fn fp_arguments(self) -> &'static [Fp] {
        const RISC_V: [Fp; 8] = [Fp(10), Fp(11), Fp(12), Fp(13), Fp(14), Fp(15), Fp(16), Fp(17)];
        match self {
            Self::O32 => &[Fp(12), Fp(14)],
            Self::RiscV => &RISC_V,
        }
    }

    /// Whether a function may read a floating-point variable of its caller.
    pub fn passes_fp(self, fp: Fp) -> bool {
        match self {
            Self::O32 => matches!(fp.0, 12..=15),
            Self::RiscV => matches!(fp.0, 10..=17),
        }
    }

    /// Floating-point variables of results.
    pub fn fp_results(self) -> [Fp; 2] {
        match self {
            Self::O32 => [Fp(0), Fp(2)],
            Self::RiscV => [Fp(32), Fp(33)],
        }
    }

    /// The frame pointer, where a function has one.
    pub fn frame(self) -> Var {
        match self {
            Self::O32 => Var(30),
            Self::RiscV => Var(16),
        }
    }

    /// The runtime's class for what single instructions do.
    pub fn class(self) -> &'static str {
        match self {
            Self::O32 => "Mips",
            Self::RiscV => "RiscV",
        }
    }
}
