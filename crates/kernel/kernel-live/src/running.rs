//! The kernel that runs here, read through its own files.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use fettle_btf::Btf;

use crate::error::{Error, Result};
use crate::kernel::Source;

const SYMBOLS: &str = "/proc/kallsyms";
const MEMORY: &str = "/proc/kcore";
const TYPES: &str = "/sys/kernel/btf/vmlinux";
const RELEASE: &str = "/proc/sys/kernel/osrelease";

/// A segment of the kernel's memory in `/proc/kcore`.
#[derive(Clone, Copy, Debug)]
struct Segment {
    begin: u64,
    bytes: u64,
    offset: u64,
}

/// The kernel that runs here.
#[derive(Debug)]
pub struct Running {
    /// As `uname -r` says.
    pub release: String,
    /// Its types.
    pub types: Btf,
    symbols: HashMap<String, u64>,
    memory: File,
    segments: Vec<Segment>,
}

impl Running {
    /// Reads symbols and types, and opens the memory.
    ///
    /// # Errors
    ///
    /// When one of the kernel's files is not there or not readable.
    pub fn open() -> Result<Running> {
        let release = read(RELEASE, "is /proc mounted?")?;
        let types = fs::read(TYPES).map_err(|error| Error::Unreadable {
            what: TYPES.into(),
            error,
            next: "a kernel with CONFIG_DEBUG_INFO_BTF is needed",
        })?;
        let symbols = symbols(&read(SYMBOLS, "a kernel with CONFIG_KALLSYMS is needed")?);
        if symbols.values().all(|address| *address == 0) {
            let what = "the kernel hides the addresses of its symbols: run as root, with \
                        kernel.kptr_restrict at 1 or 0";
            return Err(Error::Unfit(what.to_string()));
        }
        let unreadable = |error| Error::Unreadable {
            what: MEMORY.into(),
            error,
            next: "a kernel with CONFIG_PROC_KCORE is needed, and lockdown=confidentiality must be off",
        };
        let memory = File::open(MEMORY).map_err(unreadable)?;
        let segments = segments(&memory).map_err(unreadable)?;
        let release = release.trim().to_string();
        Ok(Running { release, types: Btf::parse(types)?, symbols, memory, segments })
    }
}

impl Source for Running {
    fn symbol(&self, name: &str) -> Option<u64> {
        self.symbols.get(name).copied()
    }

    fn read(&self, at: u64, into: &mut [u8]) -> Result<()> {
        let bytes = into.len() as u64;
        let holds = |s: &&Segment| at >= s.begin && at - s.begin + bytes <= s.bytes;
        let segment = self.segments.iter().find(holds);
        let outcome = match segment {
            Some(segment) => self.memory.read_exact_at(into, segment.offset + (at - segment.begin)),
            None => Err(io::Error::from(io::ErrorKind::NotFound)),
        };
        outcome.map_err(|error| Error::Unreadable {
            what: format!("{MEMORY} at {at:#x}").into(),
            error,
            next: "the kernel's memory has to be readable",
        })
    }
}

fn read(path: &str, next: &'static str) -> Result<String> {
    fs::read_to_string(path).map_err(|error| Error::Unreadable {
        what: Path::new(path).into(),
        error,
        next,
    })
}

/// The kernel's own symbols; a module's have its name behind them.
fn symbols(text: &str) -> HashMap<String, u64> {
    let mut found = HashMap::new();
    for line in text.lines() {
        let mut words = line.split_ascii_whitespace();
        let (Some(address), Some(_), Some(name), None) =
            (words.next(), words.next(), words.next(), words.next())
        else {
            continue;
        };
        if let Ok(address) = u64::from_str_radix(address, 16) {
            found.entry(name.to_string()).or_insert(address);
        }
    }
    found
}

fn segments(memory: &File) -> io::Result<Vec<Segment>> {
    let mut header = [0; 64];
    memory.read_exact_at(&mut header, 0)?;
    let half = |at: usize| u16::from_le_bytes([header[at], header[at + 1]]);
    let (table, size, count) = (word(&header, 32), u64::from(half(54)), u64::from(half(56)));
    if header[..5] != *b"\x7fELF\x02" || size != 56 {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "it is no core file"));
    }
    let mut found = Vec::new();
    for number in 0..count {
        let mut entry = [0; 56];
        memory.read_exact_at(&mut entry, table + size * number)?;
        if entry[..4] == [1, 0, 0, 0] {
            found.push(Segment {
                begin: word(&entry, 16),
                bytes: word(&entry, 40),
                offset: word(&entry, 8),
            });
        }
    }
    Ok(found)
}

fn word(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn symbols_of_modules_are_left_out() {
        let text = "ffffffff81000000 T vfs_read\nffffffffc0000000 t vfs_read\t[fettle_kernel]\n\
                    0000000000020000 A current_task\nbroken\n";
        let found = symbols(text);
        assert_eq!(found.get("vfs_read"), Some(&0xffff_ffff_8100_0000));
        assert_eq!(found.get("current_task"), Some(&0x20000));
        assert_eq!(found.len(), 2);
    }
}
