//! Addresses as a file states them, and addresses in a process.
//!
//! A link address is what the linker wrote into the file. A position-independent image is loaded
//! somewhere else: what the loader adds to every link address of it is its load bias. A link address is
//! never an address of a live process, and a bias is neither; the types keep the three apart.

use std::fmt;
use std::ops::{Add, AddAssign, Sub, SubAssign};

/// A virtual address of link time, as stated in the file itself.
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

/// Where an image with this load bias has the address.
impl Add<LoadBias> for LinkAddr {
    type Output = LiveAddr;
    fn add(self, bias: LoadBias) -> LiveAddr {
        LiveAddr(self.0.wrapping_add(bias.0))
    }
}

/// An address in a process, mostly another one: cheap to hold, checked by the kernel at each use.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct LiveAddr(pub u64);

impl LiveAddr {
    /// The address `bytes` further on, wrapping as the processor does.
    pub fn offset(self, bytes: u64) -> LiveAddr {
        LiveAddr(self.0.wrapping_add(bytes))
    }
}

impl fmt::Debug for LiveAddr {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:#x}", self.0)
    }
}

impl fmt::Display for LiveAddr {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:#x}", self.0)
    }
}

/// The link address of what an image with this load bias has there.
impl Sub<LoadBias> for LiveAddr {
    type Output = LinkAddr;
    fn sub(self, bias: LoadBias) -> LinkAddr {
        LinkAddr(self.0.wrapping_sub(bias.0))
    }
}

/// The load bias of an image that has the link address there.
impl Sub<LinkAddr> for LiveAddr {
    type Output = LoadBias;
    fn sub(self, at: LinkAddr) -> LoadBias {
        LoadBias(self.0.wrapping_sub(at.0))
    }
}

/// What the loader has added to the link addresses of an image, wrapping: an image may lie below where it was
/// linked. 0 for one that lies where it was linked.
#[derive(
    Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default, serde::Serialize, serde::Deserialize,
)]
#[serde(transparent)]
pub struct LoadBias(pub u64);

impl LoadBias {
    /// That of an image which lies where it was linked.
    pub const NONE: LoadBias = LoadBias(0);

    /// The bare number, as traces and the loader hold it.
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Debug for LoadBias {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:#x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_follows_from_the_other_two() {
        let (link, bias) = (LinkAddr(0x1139), LoadBias(0x5555_5555_4000));
        let live = link + bias;
        assert_eq!(live, LiveAddr(0x5555_5555_5139));
        assert_eq!(live - bias, link);
        assert_eq!(live - link, bias);
        assert_eq!(link + LoadBias::NONE, LiveAddr(0x1139));
    }

    #[test]
    fn an_image_may_lie_below_where_it_was_linked() {
        let (link, live) = (LinkAddr(0xffff_ffff_8000_0000), LiveAddr(0x1000));
        let bias = live - link;
        assert_eq!(link + bias, live);
        assert_eq!(live - bias, link);
    }

    #[test]
    fn a_bias_is_serialised_as_a_number() {
        assert_eq!(serde_json::to_string(&LoadBias(7)).unwrap(), "7");
        assert_eq!(serde_json::from_str::<LoadBias>("7").unwrap(), LoadBias(7));
    }
}
