//! Variables of the lifted form, by number.

/// An integer variable: general registers are 0 to 31; the others have names below.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Var(pub u8);

impl Var {
    /// High word of a product, remainder of a division.
    pub const HI: Self = Self(32);
    /// Low word of a product, quotient of a division.
    pub const LO: Self = Self(33);
    /// What the last load-linked saw.
    pub const LINKED: Self = Self(34);
    /// A condition or target that must be known before its delay slot.
    pub const BEFORE_SLOT: Self = Self(35);
    /// A value needed within one instruction only.
    pub const SCRATCH: Self = Self(36);

    /// Which entry of a table is jumped to.
    pub const INDEX: Self = Self(37);

    /// What tells the frame from others, for jumps of other functions to labels.
    pub const FRAME: Self = Self(56);

    /// The label that another function has jumped to; 0 before.
    pub const LANDED: Self = Self(57);

    /// One of eight floating-point condition flags.
    pub const fn flag(number: u8) -> Self {
        Self(40 + number)
    }

    /// Its bit in a set.
    pub const fn bit(self) -> u64 {
        1 << self.0
    }
}

/// A floating-point variable: a register, which holds up to 64 bits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Fp(pub u8);
