//! Addresses as the file itself states them.
//!
//! A link-time address is what the linker wrote into the file. A position-independent image is
//! loaded somewhere else, so a link-time address is never an address of a live process; the
//! newtype keeps the two apart.

use std::fmt;
use std::ops::{Add, AddAssign, Sub, SubAssign};

/// Link-time virtual address, as stated in the file itself.
///
/// Arithmetic wraps: addresses come from files, and a hostile one must not stop the program.
#[derive(
    Copy,
    Clone,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Debug,
    Default,
    serde::Serialize,
    serde::Deserialize,
)]
pub struct LinkAddr(pub u64);

impl LinkAddr {
    /// The bare number.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The address `n` bytes on, unless that is past the end of the address space.
    pub fn checked_add(self, n: u64) -> Option<LinkAddr> {
        self.0.checked_add(n).map(LinkAddr)
    }

    /// Distance from `base` up to here, unless `base` lies above.
    pub fn checked_offset_from(self, base: LinkAddr) -> Option<u64> {
        self.0.checked_sub(base.0)
    }

    /// The address `n` bytes on, or the last address there is.
    pub fn saturating_add(self, n: u64) -> LinkAddr {
        LinkAddr(self.0.saturating_add(n))
    }

    /// The address displaced by a signed number of bytes, wrapping.
    pub fn offset(self, by: i64) -> LinkAddr {
        LinkAddr(self.0.wrapping_add_signed(by))
    }
}

impl fmt::Display for LinkAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

impl fmt::LowerHex for LinkAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::LowerHex::fmt(&self.0, f)
    }
}

impl From<u64> for LinkAddr {
    fn from(value: u64) -> Self {
        LinkAddr(value)
    }
}

impl From<LinkAddr> for u64 {
    fn from(value: LinkAddr) -> Self {
        value.0
    }
}

impl Add<u64> for LinkAddr {
    type Output = LinkAddr;
    fn add(self, n: u64) -> LinkAddr {
        LinkAddr(self.0.wrapping_add(n))
    }
}

impl AddAssign<u64> for LinkAddr {
    fn add_assign(&mut self, n: u64) {
        *self = *self + n;
    }
}

impl Sub<u64> for LinkAddr {
    type Output = LinkAddr;
    fn sub(self, n: u64) -> LinkAddr {
        LinkAddr(self.0.wrapping_sub(n))
    }
}

impl SubAssign<u64> for LinkAddr {
    fn sub_assign(&mut self, n: u64) {
        *self = *self - n;
    }
}

/// Distance between two addresses, wrapping.
impl Sub for LinkAddr {
    type Output = u64;
    fn sub(self, other: LinkAddr) -> u64 {
        self.0.wrapping_sub(other.0)
    }
}
