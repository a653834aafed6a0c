//! What in a stopped process refers to some memory: whether rewritten text can be returned to, and
//! whether a thread is at a place that is to be changed.
//!
//! A thread reaches code by its program counter, by a return address on its stack, by what a signal
//! frame or `setjmp` has saved, or by the stack of a coroutine that sleeps on the heap.
//! It cannot be known whether a word is one of these, so every word counts that could be.

use std::ops::ControlFlow;

use crate::error::LiveError;
use crate::maps::{LiveAddr, Mapping, PAGE};
use crate::pagemap::Pagemap;
use crate::pause::Paused;
use crate::process::Process;
use crate::ptrace::general;
use crate::ranges::Ranges;
use crate::return_table::ReturnTable;
use crate::stacks::{CHUNK, RED_ZONE, Stacks, in_use, words};
use crate::thread::{Thread, USER_CS};

/// More memory than this is not searched while a process is paused: it takes a millisecond for
/// two or three megabytes.
const MAX_PAUSED: u64 = 1 << 20;
/// Nor is it where so much is mapped, used or not: asking the kernel which of it is used takes
/// long.
const MOST_MAPPED: u64 = 128 << 20;
/// What the kernel may write below that at any time: the smallest signal frame. So much is free on
/// any stack.
const SIGNAL_FRAME: u64 = 1024;
/// A guard below a thread's stack is no larger; the reserve of a `malloc` arena is, as a rule.
const LARGEST_GUARD: u64 = 1 << 20;
/// The pointer guard of glibc, with which it mangles saved addresses: offset from the thread's fs
/// base.
const POINTER_GUARD: u64 = 0x30;

impl Paused<'_> {
    /// Program counters of threads, and return addresses on their stacks, as far as they are in
    /// `ranges` and `returns` does not exclude them.
    ///
    /// # Errors
    ///
    /// When a stack cannot be read.
    pub fn on_stacks(
        &self,
        ranges: &Ranges,
        returns: &ReturnTable,
    ) -> Result<Vec<LiveAddr>, LiveError> {
        self.on_stacks_within(|_| ranges, returns)
    }

    /// The same in ranges that are given for each thread.
    pub(crate) fn on_stacks_within<'r>(
        &self,
        within: impl Fn(&Thread) -> &'r Ranges,
        returns: &ReturnTable,
    ) -> Result<Vec<LiveAddr>, LiveError> {
        let mut found = Vec::new();
        let mut stacks = Stacks::new(self.process);
        for thread in &self.threads {
            let ranges = within(thread);
            let registers = general(&thread.registers);
            found.extend(registers.iter().copied().filter(|r| ranges.contains(*r)).map(LiveAddr));
            stacks.search_of(thread, ranges, &mut |at, word| {
                let counts = counts_on_stack(self.process, returns, at, word);
                found.extend(counts.then_some(LiveAddr(word)));
            })?;
        }
        found.sort_unstable();
        found.dedup();
        Ok(found)
    }

    /// Snapshot of the threads' stacks that a search of all memory needs.
    pub(crate) fn view(&self) -> View {
        let guard = self.threads.iter().find_map(|thread| {
            let mut bytes = [0; 8];
            let at = LiveAddr(thread.registers.fs_base.wrapping_add(POINTER_GUARD));
            self.process.memory.read_exact(at, &mut bytes).ok()?;
            Some(u64::from_le_bytes(bytes))
        });
        let stacks = self.threads.iter().map(|thread| Stack {
            pointer: thread.registers.rsp,
            thread: thread.registers.fs_base,
            is_main: thread.tid.is_first_of(self.process.pid()),
        });
        let stacks = stacks.collect();
        View { stacks, guard: guard.unwrap_or(0) }
    }

    /// Whether a thread's program counter is in `ranges`.
    pub(crate) fn any_in(&self, ranges: &Ranges) -> bool {
        self.threads.iter().any(|thread| ranges.contains(thread.registers.rip))
    }
}

/// Whether a sleeping thread returns into `ranges`, as far as can be seen while the process runs: a
/// check that needs no pause.
pub(crate) fn sleeper_returns_to(process: &Process, ranges: &Ranges) -> bool {
    let pid = process.pid();
    let Ok(tasks) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return false };
    let mut stacks = Stacks::new(process);
    for task in tasks.flatten() {
        // The call's number, six arguments, the stack pointer, the program counter; "running" if
        // the thread is.
        let text = std::fs::read_to_string(task.path().join("syscall")).unwrap_or_default();
        let mut fields = text
            .split_ascii_whitespace()
            .rev()
            .map_while(|field| u64::from_str_radix(field.strip_prefix("0x")?, 16).ok());
        if let (Some(instruction), Some(pointer)) = (fields.next(), fields.next()) {
            let mut there = ranges.contains(instruction);
            // A stack that cannot be read is searched again when its thread is paused.
            let _ = stacks.search(pointer, ranges, &mut |_, _| there = true);
            if there {
                return true;
            }
        }
    }
    false
}

/// A stack that a thread is on.
#[derive(Clone, Copy, Debug)]
struct Stack {
    pointer: u64,
    /// Where glibc has the thread's descriptor (TCB): at the top of the stack that it allocated.
    thread: u64,
    /// The kernel gave the main thread its stack.
    is_main: bool,
}

impl Stack {
    /// The begin of the memory, with these mappings, that is nothing but this thread's own stack.
    /// There is none while it is on a stack that the program made: another one may be right below,
    /// and sleep.
    fn own(&self, maps: &[Mapping], pointers: &[u64]) -> Option<u64> {
        let of = |address: u64| {
            let next = maps.partition_point(|m| m.start.0 <= address);
            maps[..next].last().filter(|m| m.contains(LiveAddr(address)))
        };
        let mapping = of(self.pointer)?;
        let is_guard = |m: &Mapping| !m.readable && m.end.0 - m.start.0 <= LARGEST_GUARD;
        let is_own = if self.is_main && mapping.name.as_deref() == Some("stack") {
            true
        } else {
            self.pointer < self.thread
                && mapping.contains(LiveAddr(self.thread))
                && of(mapping.start.0.wrapping_sub(1)).is_some_and(is_guard)
        };
        let below = |end: LiveAddr| pointers.partition_point(|pointer| *pointer < end.0);
        let here = below(mapping.end) - below(mapping.start);
        (is_own && here == 1).then_some(mapping.start.0)
    }
}

/// Which memory of a process is live, and the pointer guard of saved addresses.
#[derive(Clone, Debug, Default)]
pub(crate) struct View {
    stacks: Vec<Stack>,
    guard: u64,
}

impl View {
    /// Memory whose content is dead, with these mappings: it is written before it is read. That is
    /// what lies below stack pointers, all of it where that is the thread's own stack, else as far
    /// as a signal's frame goes.
    pub(crate) fn dead(&self, maps: &[Mapping]) -> Dead {
        let mut pointers: Vec<u64> = self.stacks.iter().map(|stack| stack.pointer).collect();
        pointers.sort_unstable();
        let ranges = self.stacks.iter().map(|stack| {
            let end = dead_below(stack.pointer);
            let own = stack.own(maps, &pointers);
            let start = own.unwrap_or(end.saturating_sub(SIGNAL_FRAME));
            (start..end, own.is_some())
        });
        let ranges = ranges.filter(|(range, _)| !range.is_empty());
        let mut ranges: Vec<(std::ops::Range<u64>, bool)> = ranges.collect();
        ranges.sort_unstable_by_key(|(range, _)| range.start);
        Dead(ranges)
    }
}

/// Where the dead part of a stack with this pointer ends.
pub(crate) fn dead_below(pointer: u64) -> u64 {
    pointer.saturating_sub(RED_ZONE) & !7
}

/// Ranges of dead memory, written before it is read, and which of them begin where a thread's own
/// stack does; in order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Dead(Vec<(std::ops::Range<u64>, bool)>);

impl Dead {
    fn contains(&self, at: u64) -> bool {
        self.0.iter().any(|(range, _)| range.contains(&at))
    }

    /// Where a mapping's live memory begins, to the page.
    fn skipped(&self, mapping: &Mapping) -> u64 {
        let own = self.own_at(mapping.start);
        own.map_or(mapping.start.0, |range| range.end & !(PAGE - 1))
    }

    /// The dead part of the thread's own stack that begins at an address.
    pub(crate) fn own_at(&self, start: LiveAddr) -> Option<std::ops::Range<u64>> {
        let first = self.0.partition_point(|(range, _)| range.start < start.0);
        let mut these = self.0[first..].iter().take_while(|(range, _)| range.start == start.0);
        these.find(|(_, own)| *own).map(|(range, _)| range.clone())
    }

    /// Threads' own stacks, as far as they are dead.
    pub(crate) fn own_stacks(&self) -> impl Iterator<Item = std::ops::Range<u64>> {
        self.0.iter().filter(|(_, own)| *own).map(|(range, _)| range.clone())
    }
}

/// The written pages among the uppermost `most` bytes of a range.
pub(crate) fn written_to(
    process: &Process,
    range: &std::ops::Range<u64>,
    most: u64,
) -> Vec<(u64, u64)> {
    let from = range.start.max(range.end.saturating_sub(most));
    let mut runs = Vec::new();
    in_use(&Pagemap::of(process.pid()), from & !(PAGE - 1), range.end, &mut runs);
    runs.iter().map(|(start, end)| (*start.max(&from), *end.min(&range.end))).collect()
}

/// A process's own memory that may hold addresses in `ranges`: which addresses, and which parts are
/// dead.
pub(crate) struct OwnMemory {
    runs: Vec<(u64, u64)>,
    /// How many bytes are mapped there.
    mapped: u64,
    dead: Dead,
    guard: u64,
}

impl OwnMemory {
    /// That of a process with these mappings.
    pub fn of(process: &Process, maps: &[Mapping], view: &View, ranges: &Ranges) -> OwnMemory {
        let inside = |m: &Mapping| ranges.contains(m.start.0);
        let own = |m: &&Mapping| m.readable && m.writable && !m.shared && !inside(m);
        let pagemap = Pagemap::of(process.pid());
        let dead = view.dead(maps);
        let (mut runs, mut mapped) = (Vec::new(), 0);
        for mapping in maps.iter().filter(own) {
            let start = dead.skipped(mapping);
            mapped += mapping.end.0.saturating_sub(start);
            in_use(&pagemap, start, mapping.end.0, &mut runs);
        }
        OwnMemory { runs, mapped, dead, guard: view.guard }
    }

    /// Whether it is too much to be searched while the process is paused.
    pub fn is_large(&self) -> bool {
        let used: u64 = self.runs.iter().map(|(start, end)| end - start).sum();
        used > MAX_PAUSED || self.mapped > MOST_MAPPED
    }

    /// A word that may lead into `ranges`, plain or as `setjmp` mangles it, if there is any but
    /// those in `known`. Addresses saved in memory are return addresses, or the PC at which a
    /// signal interrupted a stack that was then switched away from.
    ///
    /// This holds for a process that is paused, and also for one that runs if no thread of it was
    /// in `ranges` when this began, nor returns there, and the only references are those searched
    /// for. For a sleeping stack stays at its address, and so do its words; and when it is resumed,
    /// calls that it has made from there have left their return addresses below the stack pointer,
    /// where nothing else is written before the next call.
    pub fn pointer_into(
        &self,
        process: &Process,
        to: (&Ranges, &ReturnTable),
        known: &Ranges,
    ) -> Option<CodePointer> {
        self.code_pointers(process, to, known, 1, |_| true).first().copied()
    }

    /// Words that may lead into `ranges`, as [`OwnMemory::pointer_into`] has them: `most` at most, and none
    /// behind one that is `enough`.
    pub fn code_pointers(
        &self,
        process: &Process,
        (ranges, returns): (&Ranges, &ReturnTable),
        known: &Ranges,
        most: usize,
        enough: impl Fn(&CodePointer) -> bool,
    ) -> Vec<CodePointer> {
        let OwnMemory { runs, dead, guard, .. } = self;
        let (low, high) = ranges.hull();
        let code_pointers = |word: u64| low <= word && word < high && ranges.contains(word);
        let mut found = Vec::new();
        let _ = each_word(process, runs, &mut |at, word| {
            if !code_pointers(word) && !code_pointers(shown(word, *guard)) {
                return ControlFlow::Continue(());
            }
            let to = if code_pointers(word) { word } else { shown(word, *guard) };
            let code_pointer = CodePointer { at, word, to };
            let counts = !known.contains(at.0)
                && !dead.contains(at.0)
                && (returns.is_table(to) || may_lead(process, returns, at, to));
            if counts {
                found.push(code_pointer);
            }
            match counts && (found.len() == most || enough(&code_pointer)) {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        });
        found
    }

    /// The pointer guard by which `setjmp` mangles words.
    pub fn guard(&self) -> u64 {
        self.guard
    }
}

/// Calls `of` on the words of some memory, with their addresses, until it has enough. Memory that
/// cannot be read is left out.
fn each_word(
    process: &Process,
    runs: &[(u64, u64)],
    of: &mut impl FnMut(LiveAddr, u64) -> ControlFlow<()>,
) -> ControlFlow<()> {
    let mut bytes = vec![0; CHUNK];
    for (mut at, end) in runs.iter().copied() {
        while at < end {
            let len = (end - at).min(CHUNK as u64) as usize;
            let count = process.memory.read_some(LiveAddr(at), &mut bytes[..len]).unwrap_or(0);
            for (i, word) in words(&bytes[..count]).enumerate() {
                of(LiveAddr(at + i as u64 * 8), word)?;
            }
            at += len as u64;
        }
    }
    ControlFlow::Continue(())
}

/// All words in modules' own data that are `wanted`, and their addresses: in writable mappings of
/// files, with these mappings, and right behind.
pub(crate) fn words_of_modules(
    process: &Process,
    maps: &[Mapping],
    wanted: impl Fn(u64) -> bool,
) -> Vec<(LiveAddr, u64)> {
    let own = |m: &Mapping| m.readable && m.writable && !m.shared;
    let is_data = |m: &Mapping| own(m) && m.path.is_some();
    let behind = |m: &Mapping| {
        let before = maps.iter().find(|before| before.end == m.start);
        own(m) && m.path.is_none() && before.is_some_and(is_data)
    };
    let pagemap = Pagemap::of(process.pid());
    let mut runs = Vec::new();
    for mapping in maps.iter().filter(|m| is_data(m) || behind(m)) {
        in_use(&pagemap, mapping.start.0, mapping.end.0, &mut runs);
    }
    let mut found = Vec::new();
    let _ = each_word(process, &runs, &mut |at, word| {
        found.extend(wanted(word).then_some((at, word)));
        ControlFlow::Continue(())
    });
    found
}

/// A word of a process's memory that may lead somewhere.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CodePointer {
    /// Where it is.
    pub at: LiveAddr,
    /// What is there.
    pub word: u64,
    /// Where that leads: the word itself, or the address that `setjmp` has mangled in it.
    pub to: u64,
}

impl CodePointer {
    /// The word that leads to `to` in the same way.
    pub fn instead(&self, to: u64, guard: u64) -> u64 {
        if self.word == self.to { to } else { (to ^ guard).rotate_left(17) }
    }
}

/// The address that `setjmp` of the GNU C library has mangled in a word.
fn shown(word: u64, guard: u64) -> u64 {
    word.rotate_right(17) ^ guard
}

/// Whether a word at `at` may be a return address or an interrupted PC. A number that was written
/// over a part of an old address may look like another.
fn may_lead(process: &Process, returns: &ReturnTable, at: LiveAddr, word: u64) -> bool {
    let behind = returns.contains(word).unwrap_or_else(|| is_behind_call(process, word));
    behind || is_interrupted(process, at.0)
}

/// Whether a word at `at` of a stack refers to rewritten text. Nothing is known of data, and of
/// code that has no returns: it always does.
pub(crate) fn counts_on_stack(
    process: &Process,
    returns: &ReturnTable,
    at: LiveAddr,
    word: u64,
) -> bool {
    returns.contains(word).is_none() || may_lead(process, returns, at, word)
}

/// Whether the instruction in front of `address` may be a call. Rewritten text is searched for, so its
/// bytes are there.
fn is_behind_call(process: &Process, address: u64) -> bool {
    let mut bytes = [0; 8];
    let read = process.memory.read_exact(LiveAddr(address.wrapping_sub(8)), &mut bytes);
    read.is_err() || ends_in_call(&bytes)
}

/// Whether some bytes may end in a call: `e8` with a distance, or `ff /2` with any operand.
fn ends_in_call(bytes: &[u8; 8]) -> bool {
    /// Whether an operand of this kind has that length.
    type Fits = fn(u8) -> bool;
    const LENGTHS: [(usize, Fits); 5] = [
        // A register, or memory at a register.
        (2, |modrm| modrm >> 6 == 3 || modrm >> 6 == 0),
        // One byte of displacement, or an index.
        (3, |modrm| modrm >> 6 == 1 || modrm & 7 == 4),
        // Both.
        (4, |modrm| modrm >> 6 == 1),
        // Four bytes of displacement.
        (6, |modrm| modrm >> 6 == 2 || modrm >> 6 == 0),
        // And an index.
        (7, |modrm| modrm & 7 == 4),
    ];
    let direct = bytes[3] == 0xe8;
    direct
        || LENGTHS.iter().any(|(len, fits)| {
            let (opcode, modrm) = (bytes[8 - len], bytes[9 - len]);
            opcode == 0xff && modrm >> 3 & 7 == 2 && fits(modrm)
        })
}

/// Whether the word at `at` is the program counter in a signal frame: flags and segments follow it.
pub(crate) fn is_interrupted(process: &Process, at: u64) -> bool {
    let mut bytes = [0; 16];
    if process.memory.read_exact(LiveAddr(at + 8), &mut bytes).is_err() {
        return false;
    }
    let mut next = words(&bytes);
    let (flags, segments) = (next.next().unwrap_or(0), next.next().unwrap_or(0));
    // Bit 1 of the flags is always set; those above 21 never are.
    segments & 0xffff == USER_CS && flags & 2 != 0 && flags >> 22 == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_known_by_their_bytes() {
        let ends = |tail: &[u8]| {
            let mut bytes = [0x90; 8];
            bytes[8 - tail.len()..].copy_from_slice(tail);
            ends_in_call(&bytes)
        };
        assert!(ends(&[0xe8, 1, 2, 3, 4]), "call somewhere");
        assert!(ends(&[0xff, 0xd0]), "call rax");
        assert!(ends(&[0x41, 0xff, 0xd4]), "call r12");
        assert!(ends(&[0xff, 0x10]), "call [rax]");
        assert!(ends(&[0xff, 0x50, 0x18]), "call [rax + 24]");
        assert!(ends(&[0xff, 0x54, 0x24, 0x18]), "call [rsp + 24]");
        assert!(ends(&[0xff, 0x15, 1, 2, 3, 4]), "call [rip + distance]");
        assert!(ends(&[0xff, 0x93, 1, 2, 3, 4]), "call [rbx + distance]");
        assert!(ends(&[0xff, 0x94, 0xc5, 1, 2, 3, 4]), "call [rbp + rax * 8 + distance]");
        assert!(ends(&[0xff, 0x14, 0xc5, 1, 2, 3, 4]), "call [rax * 8 + distance]");
        assert!(!ends(&[0xff, 0xe0]), "jmp rax");
        assert!(!ends(&[0x48, 0x89, 0xc3]), "mov rbx, rax");
    }

    #[test]
    fn what_is_below_a_stack_is_dead() {
        let maps = crate::maps::parse(
            b"100000-200000 rw-p 00000000 00:00 0 [heap]\n\
              300000-301000 ---p 00000000 00:00 0\n\
              301000-400000 rw-p 00000000 00:00 0\n\
              500000-600000 rw-p 00000000 00:00 0 [stack]\n",
        );
        let dead = |pointers: &[u64], at: u64| {
            let stacks = pointers.iter().enumerate();
            let stack = |(i, pointer): (usize, &u64)| Stack {
                pointer: *pointer,
                thread: if i == 0 { 0x7f_0000 } else { 0x3f_f000 },
                is_main: i == 0,
            };
            let view = View { stacks: stacks.map(stack).collect(), guard: 0 };
            view.dead(&maps).contains(at)
        };
        // Dead are the kernel's and glibc's stacks, all of them but the part in use.
        let both = [0x58_0060, 0x38_0060];
        for (stack, start) in [(0x58_0000, 0x50_0000), (0x38_0000, 0x30_1000)] {
            assert!(dead(&both, start) && dead(&both, stack - 0x28));
            assert!(!dead(&both, stack - 0x20) && !dead(&both, stack + 0x100));
        }
        // Of stacks that the program made, a little.
        let made = [0x18_0080, 0x1c_0080];
        assert!(dead(&made, 0x17_fff8) && dead(&made, 0x1b_fff8));
        assert!(!dead(&made, 0x17_fbf8) && !dead(&made, 0x10_0000) && !dead(&made, 0x38_0000));
        // A stack that two threads are on.
        assert!(!dead(&[0x58_0060, 0x38_0060, 0x3c_0000], 0x30_1000));
    }
}
