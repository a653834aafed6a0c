//! The auxiliary vector: what the kernel passes to a new program's loader about the program.
//!
//! At exec the kernel leaves on the new stack, from the stack pointer upward: the argument count,
//! the arguments' addresses, a null, the environment strings' addresses, a null, and then pairs
//! of type and value up to the type `AT_NULL`. The loader reads the vector there and nowhere else,
//! so a tracer that changes a value on the stack before the first instruction changes what the
//! loader sees. (`/proc/PID/auxv` keeps showing the kernel's copy.)

use crate::maps::LiveAddr;

const AT_NULL: u64 = 0;
/// Type of the pair with the program headers' address.
pub const AT_PHDR: u64 = 3;
/// Type of the pair with the number of program headers.
pub const AT_PHNUM: u64 = 5;
const AT_PAGESZ: u64 = 6;
const AT_BASE: u64 = 7;
const AT_ENTRY: u64 = 9;
const AT_SECURE: u64 = 23;
const AT_EXECFN: u64 = 31;

/// The auxiliary vector of a process that has just exec'ed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Auxv {
    /// All pairs of type and value, without the final `AT_NULL`.
    pub entries: Vec<(u64, u64)>,
    /// Where on the stack the first pair lies.
    pub address: LiveAddr,
    /// The program's own headers, 0 if the kernel did not say.
    pub phdr: LiveAddr,
    /// How many program headers there are.
    pub phnum: u64,
    /// The program's entry point, where its loader will jump.
    pub entry: LiveAddr,
    /// Where the loader (the ELF interpreter) was mapped, 0 for a program without one.
    pub base: LiveAddr,
    /// The path that execve was given, as a string in the process.
    pub execfn: LiveAddr,
    /// The program gained privileges at exec (set-user-ID, file capabilities).
    pub secure: bool,
    /// The page size in bytes.
    pub pagesize: u64,
}

impl Auxv {
    /// The value of the first pair of a type.
    pub fn get(&self, kind: u64) -> Option<u64> {
        self.entries.iter().find(|entry| entry.0 == kind).map(|entry| entry.1)
    }

    /// Where on a 64-bit stack the value of the first pair of a type lies.
    pub(crate) fn value_address(&self, kind: u64) -> Option<LiveAddr> {
        let index = self.entries.iter().position(|entry| entry.0 == kind)?;
        Some(self.address.offset(index as u64 * 16 + 8))
    }

    fn new(entries: Vec<(u64, u64)>, address: LiveAddr) -> Auxv {
        let mut auxv = Auxv { entries, address, ..Auxv::default() };
        let value = |kind| auxv.get(kind).unwrap_or(0);
        let (phdr, phnum, entry) = (value(AT_PHDR), value(AT_PHNUM), value(AT_ENTRY));
        let (base, execfn) = (value(AT_BASE), value(AT_EXECFN));
        let (secure, pagesize) = (value(AT_SECURE) != 0, value(AT_PAGESZ));
        (auxv.phdr, auxv.phnum, auxv.entry) = (LiveAddr(phdr), phnum, LiveAddr(entry));
        (auxv.base, auxv.execfn) = (LiveAddr(base), LiveAddr(execfn));
        (auxv.secure, auxv.pagesize) = (secure, pagesize);
        auxv
    }
}

/// Finds the vector in the bytes of an initial stack that begin at the stack pointer. `None` when
/// the bytes end before the vector does. `word` is the size of an address: 8, or 4 in a 32-bit
/// program.
pub(crate) fn parse_stack(stack: &[u8], stack_pointer: LiveAddr, word: usize) -> Option<Auxv> {
    let mut words = stack.chunks_exact(word).map(|bytes| {
        let mut padded = [0; 8];
        padded[..word].copy_from_slice(bytes);
        u64::from_le_bytes(padded)
    });
    let argc = words.next()?;
    let mut skipped = 1;
    // The arguments and their null, then the environment and its null.
    for _ in 0..argc.checked_add(1)? {
        words.next()?;
        skipped += 1;
    }
    loop {
        skipped += 1;
        if words.next()? == 0 {
            break;
        }
    }
    let mut entries = Vec::new();
    loop {
        let (kind, value) = (words.next()?, words.next()?);
        if kind == AT_NULL {
            return Some(Auxv::new(entries, stack_pointer.offset((skipped * word) as u64)));
        }
        entries.push((kind, value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    #[test]
    fn a_small_stack() {
        let stack = bytes(&[2, 10, 11, 0, 20, 0, 3, 0x40, 5, 7, 9, 0x99, 23, 1, 0, 0]);
        let auxv = parse_stack(&stack, LiveAddr(0x1000), 8).unwrap();
        assert_eq!((auxv.phdr, auxv.phnum, auxv.entry), (LiveAddr(0x40), 7, LiveAddr(0x99)));
        assert!(auxv.secure);
        assert_eq!(auxv.address, LiveAddr(0x1000 + 6 * 8));
        assert_eq!(auxv.value_address(AT_PHNUM), Some(LiveAddr(0x1000 + 9 * 8)));
        assert_eq!(auxv.base, LiveAddr(0));
    }

    #[test]
    fn cut_short_anywhere() {
        let stack = bytes(&[1, 10, 0, 20, 0, 3, 0x40, 0, 0]);
        for len in 0..stack.len() {
            assert_eq!(parse_stack(&stack[..len], LiveAddr(0), 8), None, "{len}");
        }
        assert!(parse_stack(&stack, LiveAddr(0), 8).is_some());
    }

    #[test]
    fn absurd_count() {
        assert_eq!(parse_stack(&bytes(&[u64::MAX, 0, 0]), LiveAddr(0), 8), None);
    }

    #[test]
    fn narrow_words() {
        let stack: Vec<u8> =
            [1u32, 10, 0, 0, 9, 0x99, 0, 0].iter().flat_map(|word| word.to_le_bytes()).collect();
        let auxv = parse_stack(&stack, LiveAddr(0x1000), 4).unwrap();
        assert_eq!((auxv.entry, auxv.address), (LiveAddr(0x99), LiveAddr(0x1010)));
    }
}
