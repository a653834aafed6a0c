//! Counters in rewritten text.

use fettle_isa::FactsFactory;
use fettle_kernel_plan::Value;

use crate::new::{Found, New, Place};

/// `incq %gs:…` with a distance of four bytes.
const INCREMENT: [u8; 5] = [0x65, 0x48, 0xff, 0x04, 0x25];
const PUSH_FLAGS: [u8; 1] = [0x9c];
const POP_FLAGS: [u8; 1] = [0x9d];

/// What takes time: its instructions, each with what it leaves on the stack.
const CLOCK: [(Piece, i16); 17] = [
    (Piece::Bytes(&[0x50]), 8),                        // push %rax
    (Piece::Bytes(&[0x51]), 16),                       // push %rcx
    (Piece::Bytes(&[0x52]), 24),                       // push %rdx
    (Piece::Base([0x65, 0x48, 0x8b, 0x0c, 0x25]), 24), // mov %gs:base, %rcx
    (Piece::Bytes(&[0x0f, 0x31]), 24),                 // rdtsc
    (Piece::Bytes(&[0x48, 0xc1, 0xe2, 0x20]), 24),     // shl $32, %rdx
    (Piece::Bytes(&[0x48, 0x09, 0xd0]), 24),           // or %rdx, %rax
    (Piece::Base([0x65, 0x48, 0x39, 0x0c, 0x25]), 24), // cmp %rcx, %gs:base
    (Piece::Bytes(&[0x75, 0xe3]), 24),                 // jne to where the base is read
    (Piece::Count, 24),                                // incq %gs:…
    (Piece::Ticks, 24),                                // sub or add %rax, %gs:…
    (Piece::Bytes(&[0x48, 0x29, 0xc8]), 24),           // sub %rcx, %rax
    (Piece::Ticks, 24),                                // sub or add %rax, %gs:…
    (Piece::Bytes(&[0x5a]), 16),                       // pop %rdx
    (Piece::Bytes(&[0x59]), 8),                        // pop %rcx
    (Piece::Bytes(&[0x58]), 0),                        // pop %rax
    (Piece::Flags, 0),
];
/// `sub %rax, %gs:…` and `add %rax, %gs:…`, with a distance of four bytes.
const TICKS: [[u8; 5]; 2] = [[0x65, 0x48, 0x29, 0x04, 0x25], [0x65, 0x48, 0x01, 0x04, 0x25]];

/// An instruction of what takes time.
#[derive(Clone, Copy)]
enum Piece {
    /// These bytes.
    Bytes(&'static [u8]),
    /// These, and the place of the base of virtual time.
    Base([u8; 5]),
    /// A counter is incremented.
    Count,
    /// Ticks are added to a counter or subtracted, the same for all.
    Ticks,
    /// The flags, if they are put back.
    Flags,
}

/// What takes time, with what belongs to it: it leaves all registers as they were, but for the flags where it does
/// not put those back, too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Clock {
    /// The counters that it changes.
    pub numbers: Vec<u32>,
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
    let mut at = usize::from(saves);
    let mut stack = Vec::with_capacity(CLOCK.len() + 1);
    let mut numbers = Vec::new();
    let mut sum: Option<[u8; 5]> = None;
    if saves {
        stack.push((at, flags));
    }
    for (piece, pushed) in CLOCK {
        let (bytes, is_reach) = match piece {
            Piece::Bytes(bytes) => (bytes, false),
            Piece::Base(ref bytes) => (&bytes[..], true),
            Piece::Count => (&INCREMENT[..], true),
            Piece::Ticks => {
                let found = TICKS.iter().find(|ticks| text[at..].starts_with(*ticks))?;
                (&sum.get_or_insert(*found)[..], true)
            }
            Piece::Flags if saves => (&POP_FLAGS[..], false),
            Piece::Flags => break,
        };
        if !text.get(at..)?.starts_with(bytes) {
            return None;
        }
        at += bytes.len();
        if is_reach {
            let field = place.offset + at as u32;
            let found = part.references.binary_search_by_key(&field, |r| r.at).ok()?;
            match (piece, part.references[found].value) {
                (Piece::Base(_), Value::VirtualBase) => {}
                (Piece::Count | Piece::Ticks, Value::Counter(number)) => numbers.push(number),
                _ => return None,
            }
            if text.get(at..at + 4) != Some(&[0; 4]) {
                return None;
            }
            at += 4;
        }
        let flags = if matches!(piece, Piece::Flags) { 0 } else { flags };
        stack.push((at, pushed + flags));
    }
    let inside = place.offset..place.offset + at as u32;
    let references = part.references.iter().filter(|reference| inside.contains(&reference.at));
    // Two more are those of the base.
    (references.count() == numbers.len() + 2).then_some(Clock { numbers, saves, stack })
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
