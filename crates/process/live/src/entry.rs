//! The entries of an undo log: one for each step of a change.

use std::io;
use std::path::Path;

use fettle_types::Pid;

use crate::maps::{LiveAddr, Mapping, PAGE, Prot};
use crate::process::hash;

/// What a write is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Leads control to rewritten text.
    Jump,
    /// Redirects a call, or a jump out of a function, in original text to rewritten text.
    Call,
    /// Redirects PLT calls of other modules to rewritten text: a GOT/PLT slot.
    Slot,
    /// An OSR entry: the start of a block, or an entry of a jump table, through which a thread in
    /// the middle of a function goes on in rewritten text.
    OsrEntry,
    /// Makes rewritten text known to unwinders and the loader: stays as long as that can be
    /// returned to.
    Unwind,
    /// A deopt jump, from the start of a rewritten function, or of a block of it, to the original:
    /// written when entry patches are reverted, for threads that stay in rewritten text for long.
    DeoptJump,
}

impl Purpose {
    /// Whether it leads control to rewritten text.
    pub fn leads(self) -> bool {
        matches!(self, Purpose::Jump | Purpose::Call | Purpose::Slot | Purpose::OsrEntry)
    }

    const ALL: [(Purpose, &str); 6] = [
        (Purpose::Jump, "jump"),
        (Purpose::Call, "call"),
        (Purpose::Slot, "slot"),
        (Purpose::OsrEntry, "midway"),
        (Purpose::Unwind, "unwind"),
        (Purpose::DeoptJump, "gate"),
    ];

    fn name(self) -> &'static str {
        Purpose::ALL.iter().find(|(purpose, _)| *purpose == self).map_or("", |(_, name)| name)
    }

    fn named(name: &str) -> Option<Purpose> {
        Some(Purpose::ALL.iter().find(|(_, other)| *other == name)?.0)
    }
}

/// Bytes that replace others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Patch {
    /// Where.
    pub at: LiveAddr,
    /// What must be there.
    pub before: Vec<u8>,
    /// What is to be there; as long.
    pub after: Vec<u8>,
    /// What for.
    pub purpose: Purpose,
}

/// Memory that is mapped in a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// Where: a multiple of the page size, and free.
    pub at: LiveAddr,
    /// Bytes, whole pages.
    pub len: u64,
    /// What the process may do with it.
    pub prot: Prot,
    /// Children that are forked write to the same memory, not to copies.
    pub shared: bool,
}

impl Region {
    /// The arguments of the `mmap` that maps it, if the addresses are free.
    pub(crate) fn mmap_arguments(&self) -> [u64; 6] {
        let kind = if self.shared { libc::MAP_SHARED } else { libc::MAP_PRIVATE };
        let flags = (kind | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE) as u64;
        [self.at.0, self.len, self.prot.bits(), flags, !0, 0]
    }

    /// Whether programs map memory just like it themselves, so that its presence does not show that
    /// a process inherited it.
    pub(crate) fn is_usual(&self) -> bool {
        self.prot.write && !self.shared
    }

    /// Bytes of rewritten text: shared memory is its data, of which little is ever used.
    pub fn code_len(&self) -> u64 {
        if self.shared { 0 } else { self.len }
    }
}

/// The bit of [`Region::shared`] in the log, behind those of [`Prot`].
const SHARED: u64 = 8;

/// A mapping of a file that patches lie in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Its first address.
    pub start: LiveAddr,
    /// One past its last.
    pub end: LiveAddr,
    /// Where in the file it begins.
    pub offset: u64,
    /// The file's device: major and minor number.
    pub device: (u32, u32),
    /// The file's number there.
    pub inode: u64,
}

/// The loader's record of a library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// The loader's list (`struct r_debug`).
    pub list: LiveAddr,
    /// The record (`struct link_map`).
    pub at: LiveAddr,
    /// The library's dynamic section, as the record has it.
    pub dynamic: LiveAddr,
}

/// A link-map list of ours among those of the loader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Names {
    /// The loader's first list (`struct r_debug_extended`).
    pub list: LiveAddr,
    /// Ours: the beginning of a page that the process may write to.
    pub at: LiveAddr,
}

/// A line of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    /// Whose log it is: number, start time, address space.
    Process(Pid, u64, u64),
    /// Memory is about to be mapped.
    Map(Region),
    /// It was mapped.
    Mapped(LiveAddr),
    /// It is about to be unmapped; a hash of its first page.
    Unmapping(LiveAddr, u64),
    /// It was unmapped.
    Unmapped(LiveAddr),
    /// Instructions that are between zeros while calls are made.
    Code(LiveAddr, usize),
    /// They are zeros again.
    Cleared(LiveAddr),
    /// Bytes are about to be changed.
    Write(Patch),
    /// Writes lie in this mapping of a file.
    Place(Place),
    /// Writes lie in this record of the loader.
    Record(Record),
    /// While bytes are changed, no thread may be in this range.
    Guard(LiveAddr, LiveAddr),
    /// Threads have gs bases in this range, and had none.
    GsBases(LiveAddr, LiveAddr),
    /// Names are about to be made visible to debuggers.
    Names(Names),
    /// A file in the process's `/tmp` names rewritten text for perf: its name, device and number.
    PerfMap(String, u64, u64),
    /// A module that the process had when it was changed.
    Loaded(String),
    /// For people: what was installed.
    Note(String),
}

/// Writes an entry as a line of the log, without the line's check.
pub(crate) fn print(entry: &Entry, out: &mut String) {
    use std::fmt::Write;
    let _ = match entry {
        Entry::Process(pid, start, space) => write!(out, "process {pid} {start} {space:x}"),
        Entry::Map(Region { at, len, prot, shared }) => {
            let bits = prot.bits() | if *shared { SHARED } else { 0 };
            write!(out, "map {:x} {len:x} {bits:x}", at.0)
        }
        Entry::Mapped(at) => write!(out, "mapped {:x}", at.0),
        Entry::Unmapping(at, hash) => write!(out, "unmapping {:x} {hash:x}", at.0),
        Entry::Unmapped(at) => write!(out, "unmapped {:x}", at.0),
        Entry::Cleared(at) => write!(out, "cleared {:x}", at.0),
        Entry::Code(at, len) => write!(out, "code {:x} {len:x}", at.0),
        Entry::Write(patch) => {
            let _ = write!(out, "{} {:x} ", patch.purpose.name(), patch.at.0);
            hex(&patch.before, out);
            out.push(' ');
            hex(&patch.after, out);
            Ok(())
        }
        Entry::Place(Place { start, end, offset, device: (major, minor), inode }) => {
            let (start, end) = (start.0, end.0);
            write!(out, "place {start:x} {end:x} {offset:x} {major:x} {minor:x} {inode:x}")
        }
        Entry::Record(Record { list, at, dynamic }) => {
            write!(out, "record {:x} {:x} {:x}", list.0, at.0, dynamic.0)
        }
        Entry::Names(Names { list, at }) => write!(out, "names {:x} {:x}", list.0, at.0),
        Entry::PerfMap(name, device, inode) => write!(out, "perf {device:x} {inode:x} {name}"),
        Entry::Guard(start, end) => write!(out, "guard {:x} {:x}", start.0, end.0),
        Entry::GsBases(start, end) => write!(out, "gs {:x} {:x}", start.0, end.0),
        Entry::Loaded(path) => write!(out, "loaded {}", path.replace('\n', " ")),
        Entry::Note(text) => write!(out, "note {}", text.replace('\n', " ")),
    };
}

fn hex(bytes: &[u8], out: &mut String) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for byte in bytes {
        out.push(DIGITS[usize::from(byte >> 4)] as char);
        out.push(DIGITS[usize::from(byte & 15)] as char);
    }
}

/// Reads such a line.
pub(crate) fn parse(line: &str) -> Option<Entry> {
    let (kind, rest) = line.split_once(' ')?;
    if kind == "note" {
        return Some(Entry::Note(rest.to_owned()));
    }
    if kind == "loaded" {
        return Some(Entry::Loaded(rest.to_owned()));
    }
    let fields: Vec<&str> = rest.split(' ').collect();
    let number = |i: usize| u64::from_str_radix(fields.get(i)?, 16).ok();
    let at = |i: usize| number(i).map(LiveAddr);
    let bytes = |i: usize| -> Option<Vec<u8>> {
        let text = fields.get(i)?.as_bytes();
        let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
        text.chunks(2).map(byte).collect()
    };
    Some(match kind {
        "process" => {
            Entry::Process(fields.first()?.parse().ok()?, fields.get(1)?.parse().ok()?, number(2)?)
        }
        "map" => {
            let bits = number(2)?;
            let prot = Prot { read: bits & 1 != 0, write: bits & 2 != 0, exec: bits & 4 != 0 };
            Entry::Map(Region { at: at(0)?, len: number(1)?, prot, shared: bits & SHARED != 0 })
        }
        "mapped" => Entry::Mapped(at(0)?),
        "unmapping" => Entry::Unmapping(at(0)?, number(1)?),
        "unmapped" => Entry::Unmapped(at(0)?),
        "cleared" => Entry::Cleared(at(0)?),
        "code" => Entry::Code(at(0)?, number(1)? as usize),
        "place" => Entry::Place(Place {
            start: at(0)?,
            end: at(1)?,
            offset: number(2)?,
            device: (number(3)? as u32, number(4)? as u32),
            inode: number(5)?,
        }),
        "record" => Entry::Record(Record { list: at(0)?, at: at(1)?, dynamic: at(2)? }),
        "names" => Entry::Names(Names { list: at(0)?, at: at(1)? }),
        "perf" => Entry::PerfMap(fields.get(2)?.to_string(), number(0)?, number(1)?),
        "guard" => Entry::Guard(at(0)?, at(1)?),
        "gs" => Entry::GsBases(at(0)?, at(1).or_else(|| at(0).map(|base| base.offset(1)))?),
        _ => {
            let purpose = Purpose::named(kind)?;
            let patch = Patch { at: at(0)?, before: bytes(1)?, after: bytes(2)?, purpose };
            if patch.before.len() != patch.after.len() {
                return None;
            }
            Entry::Write(patch)
        }
    })
}

/// A hash of the first page of a region, in a process that is read by `read`.
pub(crate) fn region_hash(
    region: &Region,
    read: impl Fn(LiveAddr, usize) -> io::Result<Vec<u8>>,
) -> u64 {
    let len = region.len.min(PAGE) as usize;
    hash(&read(region.at, len).unwrap_or_default())
}

/// Whether memory is mapped just as we ask for it.
pub(crate) fn is_as_made(maps: &[Mapping], region: &Region) -> bool {
    maps.iter().any(|m| {
        let prot = (m.readable, m.writable, m.executable);
        m.start <= region.at
            && m.end.0 >= region.at.0 + region.len
            && prot == (region.prot.read, region.prot.write, region.prot.exec)
            && (m.shared, m.name.is_none()) == (region.shared, true)
            && (m.inode == 0 || is_shared_memory(m) || is_memory_file(m))
    })
}

/// Whether it is memory that forked processes share: the kernel has a file for it, without a name.
fn is_shared_memory(mapping: &Mapping) -> bool {
    let zero = |path: &Path| path == Path::new("/dev/zero");
    mapping.shared && mapping.deleted && mapping.path.as_deref().is_some_and(zero)
}

/// Whether it is memory that we have, too ([`Process::map_file`]).
pub(crate) fn is_memory_file(mapping: &Mapping) -> bool {
    let memory = |path: &Path| path.to_string_lossy().starts_with("/memfd:");
    mapping.shared && mapping.deleted && mapping.path.as_deref().is_some_and(memory)
}
