//! Counters in rewritten text.

use fettle_isa::FactsFactory;
use fettle_kernel_plan::Value;

use crate::new::{Found, New, Place};

/// `incq %gs:…` with a distance of four bytes.
const INCREMENT: [u8; 5] = [0x65, 0x48, 0xff, 0x04, 0x25];
const PUSH_FLAGS: [u8; 1] = [0x9c];
const POP_FLAGS: [u8; 1] = [0x9d];

/// `push %rax; push %rdx; rdtsc; shl $32, %rdx; or %rdx, %rax`
const BEGINS: [u8; 11] = [0x50, 0x52, 0x0f, 0x31, 0x48, 0xc1, 0xe2, 0x20, 0x48, 0x09, 0xd0];
/// `sub %rax, %gs:…` and `add %rax, %gs:…`, with a distance of four bytes.
const TICKS: [[u8; 5]; 2] = [[0x65, 0x48, 0x29, 0x04, 0x25], [0x65, 0x48, 0x01, 0x04, 0x25]];
/// `pop %rdx; pop %rax`
const ENDS: [u8; 2] = [0x5a, 0x58];

/// What takes time, with what belongs to it: it leaves all registers as they were, but for the flags where it does
/// not put those back, too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Clock {
    /// The counters that it changes.
    pub numbers: [u32; 2],
    /// It puts the flags back.
    pub saves: bool,
    /// Offsets of its instructions, and how many bytes more are on the stack there; the end is the last.
    pub stack: Vec<(usize, i16)>,
}

/// What takes time at `place`, if that stands there.
pub(crate) fn clock(new: New<'_>, place: Place) -> Option<Clock> {
    let part = new.part(place.part)?;
    let text = part.text.get(place.offset as usize..)?;
    let saves = text.starts_with(&PUSH_FLAGS);
    let flags = i16::from(saves) * 8;
    let begin = usize::from(saves);
    let mut at = begin;
    let mut takes = |bytes: &[u8]| {
        let right = text.get(at..at + bytes.len()) == Some(bytes);
        at += bytes.len();
        right
    };
    if !takes(&BEGINS) || !takes(&INCREMENT) || !takes(&[0; 4]) {
        return None;
    }
    let ticks =
        TICKS.iter().find(|ticks| text.get(begin + 20..).is_some_and(|t| t.starts_with(*ticks)));
    if !takes(ticks?) || !takes(&[0; 4]) || !takes(&ENDS) || (saves && !takes(&POP_FLAGS)) {
        return None;
    }
    let end = at;
    let number = |field: usize| {
        let at = place.offset + (begin + field) as u32;
        let found = part.references.binary_search_by_key(&at, |reference| reference.at).ok()?;
        match part.references[found].value {
            Value::Counter(number) => Some(number),
            _ => None,
        }
    };
    let numbers = [number(16)?, number(25)?];
    let inside = part
        .references
        .iter()
        .filter(|reference| (place.offset..place.offset + end as u32).contains(&reference.at));
    if inside.count() != numbers.len() {
        return None;
    }
    let steps = [(1, 8), (2, 16), (4, 16), (8, 16), (11, 16), (20, 16), (29, 16), (30, 8), (31, 0)];
    let mut stack: Vec<(usize, i16)> =
        steps.iter().map(|(offset, bytes)| (begin + offset, bytes + flags)).collect();
    if saves {
        stack.insert(0, (1, 8));
        stack.push((end, 0));
    }
    Some(Clock { numbers, saves, stack })
}

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
