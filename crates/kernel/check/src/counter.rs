//! Counters in rewritten text.

use fettle_isa::FactsFactory;
use fettle_kernel_plan::Value;

use crate::new::{Found, New, Place};

/// `incq %gs:…` with a distance of four bytes.
const INCREMENT: [u8; 5] = [0x65, 0x48, 0xff, 0x04, 0x25];
const PUSH_FLAGS: [u8; 1] = [0x9c];
const POP_FLAGS: [u8; 1] = [0x9d];

/// A counter, with what belongs to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Counter {
    /// Which.
    pub number: u32,
    /// It puts the flags back: `pushfq` and `popfq` stand around it.
    pub saves: bool,
    /// Bytes of it all.
    pub size: usize,
}

fn increment(place: Place, found: &Found<'_>) -> Option<u32> {
    let reference = found.reference?;
    let Value::Counter(number) = reference.value else { return None };
    let right = found.bytes.starts_with(&INCREMENT)
        && found.bytes.len() == INCREMENT.len() + 4
        && reference.at == place.offset + INCREMENT.len() as u32;
    right.then_some(number)
}

/// The counter at `place`, where `found` stands, if it is one.
pub(crate) fn at(
    new: New<'_>,
    place: Place,
    found: &Found<'_>,
    facts: &mut FactsFactory,
) -> Option<Counter> {
    if let Some(number) = increment(place, found) {
        return Some(Counter { number, saves: false, size: found.bytes.len() });
    }
    if found.bytes != PUSH_FLAGS {
        return None;
    }
    let second = place.plus(1);
    let counter = new.at(second, facts)?;
    let number = increment(second, &counter)?;
    let size = 1 + counter.bytes.len();
    let last = new.at(place.plus(size), facts)?;
    (last.bytes == POP_FLAGS).then_some(Counter { number, saves: true, size: size + 1 })
}
