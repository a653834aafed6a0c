//! What in a halted process leads into some memory: whether new code can be returned to, and
//! whether a thread is at a place that is to be changed.
//!
//! A thread comes to code by its program counter, by a return address on its stack, by what a
//! signal's frame or `setjmp` has saved, or by the stack of a coroutine that sleeps on the heap.
//! Whether a word is one of these nobody can tell, so every word counts that could be.

use std::fs::File;
use std::os::unix::fs::FileExt;

use crate::error::LiveError;
use crate::halt::Halted;
use crate::maps::{LiveAddr, Mapping};
use crate::process::Process;
use crate::ptrace::Registers;

/// Ranges of addresses, in order and apart.
#[derive(Clone, Debug, Default)]
pub struct Ranges(Vec<(u64, u64)>);

impl Ranges {
    /// These; ends are not included.
    pub fn new(mut ranges: Vec<(u64, u64)>) -> Ranges {
        ranges.retain(|(start, end)| start < end);
        ranges.sort_unstable();
        Ranges(ranges)
    }

    /// Whether the address lies in one of them.
    pub fn contains(&self, address: u64) -> bool {
        let next = self.0.partition_point(|(start, _)| *start <= address);
        next > 0 && address < self.0[next - 1].1
    }

    fn hull(&self) -> (u64, u64) {
        (self.0.first().map_or(0, |r| r.0), self.0.iter().map(|r| r.1).max().unwrap_or(0))
    }
}

/// More than this is not searched while a process stands still.
const MOST: u64 = 64 << 20;
const PAGE: u64 = 4096;
/// Below the stack pointer a function may have more of its own.
const RED_ZONE: u64 = 128;
/// Where glibc keeps what it hides saved addresses with, from the thread's fs base.
const POINTER_GUARD: u64 = 0x30;

impl Halted<'_> {
    /// Addresses of code that threads stand at, or may return to by what is on their stacks, as
    /// far as they lie in `ranges`.
    ///
    /// # Errors
    ///
    /// When a stack cannot be read.
    pub fn on_stacks(&self, maps: &[Mapping], ranges: &Ranges) -> Result<Vec<LiveAddr>, LiveError> {
        let mut found = Vec::new();
        let (low, high) = ranges.hull();
        let mut bytes = Vec::new();
        for thread in &self.threads {
            for register in general(&thread.registers) {
                if ranges.contains(register) {
                    found.push(LiveAddr(register));
                }
            }
            // A signal handler may run on a stack of its own: its frame tells of the other.
            let mut stacks = vec![thread.registers.rsp];
            let mut seen: Vec<u64> = Vec::new();
            while let Some(pointer) = stacks.pop() {
                let from = pointer.wrapping_sub(RED_ZONE) & !7;
                let Some(mapping) = maps.iter().find(|m| m.contains(LiveAddr(pointer))) else {
                    continue;
                };
                if seen.contains(&mapping.start.0) {
                    continue;
                }
                seen.push(mapping.start.0);
                let from = from.max(mapping.start.0);
                bytes.resize((mapping.end.0 - from) as usize, 0);
                self.process.memory.read_exact(LiveAddr(from), &mut bytes).map_err(|source| {
                    LiveError::Memory {
                        action: "read",
                        pid: self.process.pid(),
                        address: LiveAddr(from),
                        len: bytes.len(),
                        source,
                    }
                })?;
                for (i, word) in words(&bytes).enumerate() {
                    if low <= word && word < high && ranges.contains(word) {
                        found.push(LiveAddr(word));
                    }
                    if let Some(pointer) = self.interrupted_stack(maps, &bytes, i, word) {
                        stacks.push(pointer);
                    }
                }
            }
        }
        found.sort_unstable();
        found.dedup();
        Ok(found)
    }

    /// The stack pointer that a signal handler's frame has saved, if `word`, at `index` of a
    /// stack, is the return address of one and that stack is another.
    fn interrupted_stack(
        &self,
        maps: &[Mapping],
        stack: &[u8],
        index: usize,
        word: u64,
    ) -> Option<u64> {
        // Behind it: uc_flags, uc_link, uc_stack (24 bytes), then r8 to r15, rdi, rsi, rbp, rbx,
        // rdx, rax, rcx, rsp.
        const RSP: usize = 1 + 5 + 15;
        let saved = words(stack.get((index + RSP) * 8..)?).next()?;
        let is_other = maps.iter().any(|m| m.writable && m.contains(LiveAddr(saved)));
        let code = maps.iter().any(|m| m.executable && m.contains(LiveAddr(word)));
        if !is_other || !code {
            return None;
        }
        // mov rax, 15; syscall: rt_sigreturn
        let mut restorer = [0; 9];
        self.process.memory.read_exact(LiveAddr(word), &mut restorer).ok()?;
        (restorer == [0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05]).then_some(saved)
    }

    /// What is needed to search all memory.
    pub(crate) fn view(&self) -> View {
        let guard = self.threads.iter().find_map(|thread| {
            let mut bytes = [0; 8];
            let at = LiveAddr(thread.registers.fs_base.wrapping_add(POINTER_GUARD));
            self.process.memory.read_exact(at, &mut bytes).ok()?;
            Some(u64::from_le_bytes(bytes))
        });
        let stacks = self.threads.iter().map(|thread| thread.registers.rsp).collect();
        View { stacks, guard: guard.unwrap_or(0) }
    }

    /// Whether a thread's program counter is in `ranges`.
    pub(crate) fn any_in(&self, ranges: &Ranges) -> bool {
        self.threads.iter().any(|thread| ranges.contains(thread.registers.rip))
    }
}

/// What tells live memory of a process from dead, and what saved addresses are hidden with.
#[derive(Clone, Debug, Default)]
pub(crate) struct View {
    stacks: Vec<u64>,
    guard: u64,
}

/// The parts of `start..end` that have memory of their own: untouched pages hold what is in the
/// file, or nothing.
fn in_use(pagemap: Option<&File>, start: u64, end: u64, runs: &mut Vec<(u64, u64)>) {
    const IN_MEMORY_OR_SWAPPED: u64 = 3 << 62;
    let mut entries = vec![0; ((end - start) / PAGE * 8) as usize];
    let read = pagemap.map(|file| file.read_exact_at(&mut entries, start / PAGE * 8));
    if !matches!(read, Some(Ok(()))) {
        return runs.push((start, end));
    }
    for (i, entry) in words(&entries).enumerate() {
        let at = start + i as u64 * PAGE;
        if entry & IN_MEMORY_OR_SWAPPED == 0 {
            continue;
        }
        match runs.last_mut() {
            Some((_, end)) if *end == at => *end += PAGE,
            _ => runs.push((at, at + PAGE)),
        }
    }
}

/// Whether any word of a process's own memory may lead into `ranges`, as it is or as `setjmp`
/// hides it, but for those in `known`; what hinders, in words. Counts only while the process is
/// halted; else it tells what would be found.
pub(crate) fn in_memory(
    process: &Process,
    maps: &[Mapping],
    view: &View,
    ranges: &Ranges,
    known: &Ranges,
) -> Option<&'static str> {
    let inside = |m: &Mapping| ranges.0.iter().any(|r| r.0 <= m.start.0 && m.start.0 < r.1);
    let own = |m: &&Mapping| m.readable && m.writable && !m.shared && !inside(m);
    let pagemap = File::open(format!("/proc/{}/pagemap", process.pid())).ok();
    let mut runs = Vec::new();
    for mapping in maps.iter().filter(own) {
        // What lies below a stack pointer is dead.
        let pointer = view.stacks.iter().copied().filter(|p| mapping.contains(LiveAddr(*p))).min();
        let dead = pointer.map_or(0, |pointer| pointer.saturating_sub(RED_ZONE) & !(PAGE - 1));
        let from = mapping.start.0.max(dead);
        in_use(pagemap.as_ref(), from, mapping.end.0, &mut runs);
    }
    if runs.iter().map(|(start, end)| end - start).sum::<u64>() > MOST {
        return Some("the process has too much memory to be searched for ways into it");
    }
    let (low, high) = ranges.hull();
    let leads = |word: u64| low <= word && word < high && ranges.contains(word);
    let is_dead = |at: u64| {
        let below = |pointer: &u64| pointer / PAGE == at / PAGE && at < pointer - RED_ZONE;
        view.stacks.iter().any(below)
    };
    let mut bytes = vec![0; 1 << 20];
    for (mut at, end) in runs {
        while at < end {
            let len = (end - at).min(bytes.len() as u64) as usize;
            let count = process.memory.read_some(LiveAddr(at), &mut bytes[..len]).unwrap_or(0);
            let found = words(&bytes[..count]).enumerate().any(|(i, word)| {
                let here = at + i as u64 * 8;
                (leads(word) || leads(word.rotate_right(17) ^ view.guard))
                    && !known.contains(here)
                    && !is_dead(here)
            });
            if found {
                return Some("something in its memory may lead to it");
            }
            if count < len {
                break;
            }
            at += count as u64;
        }
    }
    None
}

fn words(bytes: &[u8]) -> impl Iterator<Item = u64> {
    bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().expect("eight bytes")))
}

fn general(registers: &Registers) -> [u64; 16] {
    let r = registers;
    [
        r.rip, r.rax, r.rbx, r.rcx, r.rdx, r.rsi, r.rdi, r.rbp, r.r8, r.r9, r.r10, r.r11, r.r12,
        r.r13, r.r14, r.r15,
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges() {
        let ranges = Ranges::new(vec![(30, 40), (10, 20), (5, 5)]);
        let inside: Vec<u64> = (0..50).filter(|n| ranges.contains(*n)).collect();
        assert_eq!(inside, (10..20).chain(30..40).collect::<Vec<_>>());
        assert_eq!(ranges.hull(), (10, 40));
        assert!(!Ranges::default().contains(0));
    }
}
