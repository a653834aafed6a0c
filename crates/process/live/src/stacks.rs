//! Stacks that are searched for addresses.

use crate::error::LiveError;
use crate::maps::{Extent, LiveAddr, PAGE};
use crate::pagemap::Pagemap;
use crate::process::Process;
use crate::ranges::Ranges;
use crate::thread::{Thread, USER_CS};

/// Stacks in larger mappings than this, used or mapped, are not searched at all: each thread waits
/// for it. Programs that make stacks themselves may have all of them in one mapping.
const MOST_ON_STACK: u64 = 64 << 20;
const MOST_AROUND_STACK: u64 = 4 << 30;
/// How much is read at once: it fits into the second-level cache.
pub(crate) const CHUNK: usize = 256 << 10;
/// Below the stack pointer a function may use so much (the red zone of the ABI).
pub(crate) const RED_ZONE: u64 = 128;
/// Addresses of programs: below are small numbers, above are the kernel's.
const ADDRESSES: (u64, u64) = (1 << 16, 1 << 47);
/// Of a stack with more words that may be addresses, none is kept.
const MOST_WORDS: usize = 4096;

/// Stacks that are searched for addresses.
pub(crate) struct Stacks<'a> {
    process: &'a Process,
    bytes: Vec<u8>,
    /// Of the process; opened when it is needed first.
    pagemap: Option<Pagemap>,
}

impl<'a> Stacks<'a> {
    pub fn new(process: &'a Process) -> Stacks<'a> {
        Stacks { process, bytes: Vec::new(), pagemap: None }
    }

    /// Searches a stack from its pointer upward for addresses in `ranges`. A signal handler may run
    /// on a stack of its own: its frame holds the interrupted stack's pointer. `found` gets where
    /// an address is, and which.
    pub fn search(
        &mut self,
        pointer: u64,
        ranges: &Ranges,
        found: &mut dyn FnMut(LiveAddr, u64),
    ) -> Result<(), LiveError> {
        let (low, high) = ranges.hull();
        let mut pointers = vec![pointer];
        let mut seen: Vec<u64> = Vec::new();
        while let Some(pointer) = pointers.pop() {
            let Some(extent) = self.process.extent(LiveAddr(pointer)) else { continue };
            if seen.contains(&extent.start.0) {
                continue;
            }
            seen.push(extent.start.0);
            let from = (pointer.wrapping_sub(RED_ZONE) & !7).max(extent.start.0);
            for (mut at, end) in self.runs(from, &extent)? {
                while at < end {
                    let count = self.read(at, end)?;
                    for (i, word) in words(&self.bytes[..count]).enumerate() {
                        if low <= word && word < high && ranges.contains(word) {
                            found(LiveAddr(at + i as u64 * 8), word);
                        }
                        pointers.extend(self.interrupted(i, word));
                    }
                    at += count as u64;
                }
            }
        }
        Ok(())
    }

    /// Searches the stack of a thread, as [`Stacks::search`] does, by what was read ahead of it if anything was.
    pub fn search_of(
        &mut self,
        thread: &Thread,
        ranges: &Ranges,
        found: &mut dyn FnMut(LiveAddr, u64),
    ) -> Result<(), LiveError> {
        let Some(words) = &thread.words else {
            return self.search(thread.registers.rsp, ranges, found);
        };
        let (low, high) = ranges.hull();
        for (at, word) in words {
            if low <= *word && *word < high && ranges.contains(*word) {
                found(*at, *word);
            }
        }
        Ok(())
    }

    /// What a stack holds that may be addresses; `None` if that is much, or cannot be read.
    pub fn addresses(&mut self, pointer: u64) -> Option<Vec<(LiveAddr, u64)>> {
        let (mut words, mut all) = (Vec::new(), true);
        let keep = &mut |at, word| {
            all &= words.len() < MOST_WORDS;
            if all {
                words.push((at, word));
            }
        };
        self.search(pointer, &Ranges::new(vec![ADDRESSES]), keep).ok()?;
        all.then_some(words)
    }

    /// The memory from an address to the end of its mapping that may hold anything.
    fn runs(&mut self, from: u64, extent: &Extent) -> Result<Vec<(u64, u64)>, LiveError> {
        let end = extent.end.0;
        let too_much = |bytes: u64, what: &str| LiveError::Unattachable {
            pid: self.process.pid(),
            why: format!(
                "a thread's stack lies in memory of which {} MB are {what}: to search that would take long",
                bytes >> 20
            ),
        };
        let mut runs = Vec::new();
        // Pages that the process has not touched yet may have content in a file all the same.
        if end - from <= CHUNK as u64 || extent.inode != 0 {
            runs.push((from, end));
        } else if end - from > MOST_AROUND_STACK {
            return Err(too_much(end - from, "mapped"));
        } else {
            let pagemap = self.pagemap.get_or_insert_with(|| Pagemap::of(self.process.pid()));
            let mut at = from & !(PAGE - 1);
            while at < end {
                let next = end.min(at + MOST_ON_STACK);
                in_use(pagemap, at, next, &mut runs);
                at = next;
            }
            runs.first_mut().into_iter().for_each(|first| first.0 = first.0.max(from));
        }
        let used = runs.iter().map(|(start, end)| end - start).sum();
        if used > MOST_ON_STACK {
            return Err(too_much(used, "in use"));
        }
        Ok(runs)
    }

    /// Reads a piece of the memory up to `end`; returns how many bytes are to be searched. The
    /// words of a signal frame behind its first one are read in addition.
    fn read(&mut self, at: u64, end: u64) -> Result<usize, LiveError> {
        const BEHIND: usize = 256;
        let len = ((end - at) as usize).min(CHUNK + BEHIND);
        self.bytes.resize(len, 0);
        let (pid, address) = (self.process.pid(), LiveAddr(at));
        let failed = |source| LiveError::Memory { action: "read", pid, address, len, source };
        self.process.memory.read_exact(address, &mut self.bytes).map_err(failed)?;
        Ok(if len < CHUNK + BEHIND { len } else { CHUNK })
    }

    /// The stack pointer that a signal handler's frame has saved, if `word`, at `index` of the
    /// stack, is the return address of one.
    fn interrupted(&self, index: usize, word: u64) -> Option<u64> {
        // Behind it: uc_flags, uc_link, uc_stack (24 bytes), then r8 to r15, rdi, rsi, rbp, rbx,
        // rdx, rax, rcx, rsp, rip, flags, and cs with other segments.
        const RSP: usize = 1 + 5 + 15;
        let at = |i: usize| words(self.bytes.get((index + i) * 8..)?).next();
        if at(RSP + 3)? & 0xffff != USER_CS {
            return None;
        }
        // mov rax, 15; syscall: rt_sigreturn
        let mut restorer = [0; 9];
        self.process.memory.read_exact(LiveAddr(word), &mut restorer).ok()?;
        let is_frame = restorer == [0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05];
        at(RSP).filter(|_| is_frame)
    }
}

/// The parts of `start..end` that have memory of their own: untouched pages hold what is in the
/// file, or nothing.
pub(crate) fn in_use(pagemap: &Pagemap, start: u64, end: u64, runs: &mut Vec<(u64, u64)>) {
    let Some(pages) = pagemap.read(LiveAddr(start), LiveAddr(end)) else {
        return runs.push((start, end));
    };
    let pages = (start..end).step_by(PAGE as usize).zip(pages);
    for (at, _) in pages.filter(|(_, page)| page.is_used()) {
        match runs.last_mut() {
            Some((_, end)) if *end == at => *end += PAGE,
            _ => runs.push((at, at + PAGE)),
        }
    }
}

/// Some bytes as words.
pub(crate) fn words(bytes: &[u8]) -> impl Iterator<Item = u64> {
    bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().expect("eight bytes")))
}
