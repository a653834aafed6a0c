//! Records of an object file's functions, which its program finds when it runs.
//!
//! `runtime/file/objects.h` has the same layout. Offsets are relative to their own address, so that
//! they need no relocation by the loader.

use fettle_abi::block::Accumulator;
use fettle_code::Mode;
use fettle_record::rows;
use fettle_trace::{Module, Skipped};
use fettle_types::ModuleIndex;

use crate::elf::get;
use crate::map::{self, FileMap};

/// First word of a copy of all records.
const MAGIC: u64 = u64::from_le_bytes(*b"FETTOBJS");
const HEAD: usize = 48;
/// Bytes of a record in front of its lists.
const RECORD: usize = 48;
const PROBED: u8 = 1;
const LEFT: u8 = 2;

/// What the agent fills in when it numbers functions.
#[derive(Clone, Copy, Debug)]
#[repr(u32)]
pub enum Fix {
    Accumulator = 0,
    Counter = 1,
    IdHigh = 2,
    IdLow = 3,
    Number = 4,
    /// A call that may be redirected behind an entry guard.
    Call = 5,
}

/// A record to be written. Addresses are named by an index that the writer of the file knows.
#[derive(Clone, Debug, Default)]
pub struct Record<A> {
    /// Where the function is.
    pub entry: A,
    /// Its rewritten text; `None` if it is left unmodified.
    pub code: Option<A>,
    pub size: u64,
    /// Size of the rewritten text.
    pub code_size: u32,
    pub line: u32,
    /// Entry patches: their site, and the distance from the rewritten text to their target.
    pub boards: Vec<(A, u32)>,
    /// Offset in the rewritten text, what, field.
    pub fixups: Vec<(u32, Fix, u32)>,
    /// Blocks that have counters.
    pub blocks: Vec<A>,
    pub name: String,
    /// Source file, or why it is left unmodified.
    pub text: String,
}

fn mode_number(mode: Mode) -> u8 {
    match mode {
        Mode::Count => 0,
        Mode::Time => 1,
        Mode::Events => 2,
        Mode::Sample => 3,
        Mode::Blocks => 4,
        Mode::Cpu => 5,
        Mode::Edges => 6,
        Mode::User => 7,
        Mode::Plain => 8,
        Mode::Locks => 9,
    }
}

impl<A: Copy> Record<A> {
    /// Appends the record; gives the places of distances and to what they are.
    pub fn write(&self, mode: Mode, out: &mut Vec<u8>) -> Vec<(u64, A)> {
        let start = out.len();
        let mut distances = vec![(start as u64 + 8, self.entry)];
        distances.extend(self.code.map(|code| (start as u64 + 12, code)));
        let kind = if self.code.is_some() { PROBED } else { LEFT };
        out.extend_from_slice(&[0, 0, 0, 0, kind, mode_number(mode), 0, 0]);
        let word = |out: &mut Vec<u8>, n: u32| out.extend_from_slice(&n.to_le_bytes());
        let counts = [self.boards.len(), self.fixups.len(), self.blocks.len()];
        for n in [0, 0, self.size as u32, self.line] {
            word(out, n);
        }
        for n in
            counts.into_iter().chain([self.name.len(), self.text.len(), self.code_size as usize])
        {
            word(out, n as u32);
        }
        for (at, to) in &self.boards {
            distances.push((out.len() as u64, *at));
            word(out, 0);
            word(out, *to);
        }
        for (at, fix, field) in &self.fixups {
            word(out, *at);
            word(out, (*fix as u32) << 24 | field);
        }
        for block in &self.blocks {
            distances.push((out.len() as u64, *block));
            word(out, 0);
        }
        out.extend_from_slice(self.name.as_bytes());
        out.extend_from_slice(self.text.as_bytes());
        out.resize(out.len().next_multiple_of(8), 0);
        let len = (out.len() - start) as u32;
        out[start..start + 4].copy_from_slice(&len.to_le_bytes());
        distances
    }
}

/// The map of a program from the copy of its records that it left. `None` if that is torn.
pub fn read(bytes: &[u8]) -> Option<FileMap> {
    let word = |at: usize| get(bytes, at, 8);
    if word(0)? != MAGIC || word(8)? != 1 {
        return None;
    }
    let mut map = FileMap {
        version: 1,
        id: word(16)?,
        first_function: u32::try_from(word(24)?).ok()?,
        first_counter: u32::try_from(word(32)?).ok()?,
        ..FileMap::default()
    };
    let mut at = HEAD;
    for _ in 0..word(40)? {
        let (address, len) = (word(at)?, usize::try_from(word(at + 8)?).ok()?);
        at = at.checked_add(16)?;
        let chunk = bytes.get(at..at.checked_add(len)?)?;
        read_chunk(chunk, address, &mut map)?;
        at += len;
    }
    let too_many = map.functions.len() as u64 + u64::from(map.first_function)
        > u64::from(map::FUNCTIONS)
        || map.counters.len() as u64 + u64::from(map.first_counter) > u64::from(map::COUNTERS);
    if too_many {
        return None;
    }
    map.module = Module {
        id: ModuleIndex(0),
        path: String::new(),
        build_id: None,
        functions_seen: (map.functions.len() + map.skipped.len()) as u64,
        functions_probed: map.functions.len() as u64,
        functions_skipped: map.skipped.len() as u64,
    };
    Some(map)
}

fn read_chunk(chunk: &[u8], address: u64, map: &mut FileMap) -> Option<()> {
    let mut rest = chunk;
    while !rest.is_empty() {
        let here = address.wrapping_add((chunk.len() - rest.len()) as u64);
        let half = |at: usize| get(rest, at, 4).map(|n| n as u32);
        let to = |at: usize| {
            let distance = i64::from(half(at)? as i32);
            Some(here.wrapping_add(at as u64).wrapping_add_signed(distance))
        };
        let len = half(0)? as usize;
        let record = rest.get(..len).filter(|_| len >= RECORD && len.is_multiple_of(8))?;
        let (kind, mode) = (record[4], record[5]);
        let count = |at: usize| half(at).map(|n| n as usize);
        let (boards, fixups, blocks) = (count(24)?, count(28)?, count(32)?);
        let blocks_at = RECORD + (boards.checked_add(fixups)?).checked_mul(8)?;
        let name_at = blocks_at.checked_add(blocks.checked_mul(4)?)?;
        let text_at = name_at.checked_add(count(36)?)?;
        let text = |from: usize, to: usize| {
            record.get(from..to).map(|b| String::from_utf8_lossy(b).into_owned())
        };
        let name = text(name_at, text_at)?;
        let file = text(text_at, text_at.checked_add(count(40)?)?)?;
        let entry = to(8)?;
        if kind == PROBED {
            let index = map.functions.len() as u32;
            for i in 0..blocks {
                map.counters.push((index, to(blocks_at + i * 4)?));
            }
            let sampled = mode_of(mode) == Some(Mode::Sample);
            map.code.extend(sampled.then_some((to(12)?, u64::from(half(44)?))));
            let line = half(20).filter(|line| *line != 0);
            let file = (!file.is_empty()).then_some(file);
            let size = u64::from(half(16)?);
            map.functions.push(rows::function(name, entry, size, file.zip(line)));
            if map.mode.is_empty() {
                map.mode = mode_of(mode)?.name().to_owned();
            }
        } else {
            map.skipped.push(Skipped {
                module: ModuleIndex(0),
                address: entry,
                name,
                reason: file,
                detail: String::new(),
            });
        }
        rest = &rest[len..];
    }
    Some(())
}

fn mode_of(number: u8) -> Option<Mode> {
    Mode::ALL.into_iter().find(|mode| mode_number(*mode) == number)
}

/// The field of a fixup has 24 bits.
const _: () = assert!(size_of::<Accumulator>() < 1 << 24);
