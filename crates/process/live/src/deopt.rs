//! Deoptimisation: return addresses in rewritten text become those of the original.
//!
//! Rewritten text keeps the original's stack frames, so what holds behind a call in one holds behind the same
//! call in the other. A thread that sleeps for hours in a callee of rewritten text need not be waited for: its
//! return addresses are patched to what they would be if the rewritten text had never been there. So are
//! addresses of jump tables, which a function may have kept for later (an interpreter's main loop), or left
//! behind on a stack.

use std::collections::HashSet;

use crate::error::LiveError;
use crate::maps::LiveAddr;
use crate::parked::halt;
use crate::pause::Paused;
use crate::process::{Process, has_shadow_stacks};
use crate::ptrace::{self, general};
use crate::ranges::Ranges;
use crate::references::{self, CodePointer, Dead, counts_on_stack, is_interrupted};
use crate::return_table::{LOWEST, ReturnTable, is_kept_by_exception};
use crate::stacks::{Stacks, words};
use crate::thread::Thread;

/// How much of dead stacks is redirected while the process is paused, of all threads together; and
/// at least of each.
const MOST_DEAD: u64 = 4 << 20;
const LEAST_DEAD: u64 = 16 << 10;

impl ReturnTable {
    /// What a word at `at` of memory becomes.
    fn original_in(&self, process: &Process, at: LiveAddr, word: u64) -> Option<u64> {
        // Where a signal has interrupted it, a function may be about to add an offset that it has
        // read from the table.
        let may_be_in_use = || self.is_table_of_distances(word) && is_saved_by_signal(process, at);
        let is_address =
            || word >= LOWEST || (self.is_pad(word) && is_kept_by_exception(process, at));
        self.original_of(word).filter(|_| is_address() && !may_be_in_use())
    }
}

impl Paused<'_> {
    /// Patches return addresses on stacks that lead to rewritten text, in the ranges that are given
    /// for each, so that they lead to the original. A thread that refers to rewritten text in
    /// another way is left unmodified: it may be on its way into it, or be searching for an
    /// exception's handler there. A sleeping thread gets the original's program headers in place of
    /// cached copies, which are left over from such a search. Nothing is done where the processor
    /// keeps return addresses of its own (CET's shadow stacks).
    ///
    /// # Errors
    ///
    /// When a stack cannot be read or written, or a thread was killed meanwhile.
    pub(crate) fn deoptimise<'r>(
        &mut self,
        returns: &ReturnTable,
        within: impl Fn(&Thread) -> &'r Ranges,
    ) -> Result<(), LiveError> {
        if returns.is_empty() || has_shadow_stacks(self.process.pid()) {
            return Ok(());
        }
        let mut stacks = Stacks::new(self.process);
        let mut threads = self.threads.iter_mut();
        threads.try_for_each(|thread| {
            let ranges = within(thread);
            deoptimise_thread(self.process, thread, &mut stacks, returns, ranges)
        })
    }
}

/// Does that to one thread, in these ranges, whatever others do: none of them reads what is changed.
///
/// # Errors
///
/// As [`Paused::deoptimise`].
pub(crate) fn deoptimise_one(
    process: &Process,
    thread: &mut Thread,
    returns: &ReturnTable,
    ranges: &Ranges,
) -> Result<(), LiveError> {
    if returns.is_empty() || has_shadow_stacks(process.pid()) {
        return Ok(());
    }
    deoptimise_thread(process, thread, &mut Stacks::new(process), returns, ranges)
}

fn deoptimise_thread(
    process: &Process,
    thread: &mut Thread,
    stacks: &mut Stacks<'_>,
    returns: &ReturnTable,
    ranges: &Ranges,
) -> Result<(), LiveError> {
    let failed = |source| LiveError::Ptrace {
        action: "lead out of rewritten text",
        pid: process.pid(),
        source,
    };
    let mut unknown = 0;
    let mut instead = |old: Option<u64>| {
        unknown += usize::from(old.is_none());
        old
    };
    // In a system call no function is between reading an entry of a table and adding it.
    let sleeps = thread.is_in_call();
    let mut registers = Vec::new();
    for (i, word) in general(&thread.registers).into_iter().enumerate() {
        if ranges.contains(word) {
            // The program counter, and rcx, in which a system call saves its return
            // address.
            let code_pointers = match returns.is_table(word) {
                true => sleeps || !returns.is_table_of_distances(word),
                false => i < 2,
            };
            let old = returns.original_of(word).filter(|_| word >= LOWEST && code_pointers);
            registers.extend(instead(old).map(|old| (i, old)));
        }
    }
    let (mut changes, mut headers) = (Vec::new(), Vec::new());
    stacks.search_of(thread, ranges, &mut |at, word| {
        if let Some(old) = returns.header_of(process, at, word) {
            headers.push((at, old));
        } else if counts_on_stack(process, returns, at, word) {
            let old = returns.original_in(process, at, word);
            changes.extend(instead(old).map(|old| (at, old)));
        }
    })?;
    // No sleeping thread is in the middle of a walk through program headers.
    if unknown > 0 || !sleeps && !headers.is_empty() {
        return Ok(());
    }
    if !registers.is_empty() {
        halt(thread).map_err(failed)?;
    }
    for (at, old) in changes.into_iter().chain(headers) {
        process.memory.write(at, &old.to_le_bytes())?;
        // What was read ahead is no longer so.
        thread.words = None;
    }
    for (i, old) in &registers {
        ptrace::set_general(thread.tid, *i, *old).map_err(failed)?;
    }
    if !registers.is_empty() {
        thread.registers = ptrace::registers(thread.tid).map_err(failed)?;
    }
    Ok(())
}

impl Paused<'_> {
    /// Redirects words of memory that hold a return address in rewritten text, or the address of a
    /// copied table, to the same place in the original; returns how many. It cannot be known
    /// whether such a word is on the stack of a sleeping coroutine or is a copy of a stack that the
    /// program kept: in both cases it becomes what it would have been.
    ///
    /// # Errors
    ///
    /// When one cannot be written; it may have been given back just now.
    pub(crate) fn redirect_memory(
        &mut self,
        returns: &ReturnTable,
        code_pointers: &[CodePointer],
        guard: u64,
    ) -> Result<usize, LiveError> {
        if has_shadow_stacks(self.process.pid()) {
            return Ok(0);
        }
        let mut count = 0;
        for code_pointer in code_pointers {
            let Some(original) =
                returns.original_in(self.process, code_pointer.at, code_pointer.to)
            else {
                continue;
            };
            // The process has gone on since it was searched.
            let now = self.process.read(code_pointer.at, 8);
            if now.is_ok_and(|now| now == code_pointer.word.to_le_bytes()) {
                let word = code_pointer.instead(original, guard);
                self.process.memory.write(code_pointer.at, &word.to_le_bytes())?;
                count += 1;
            }
        }
        Ok(count)
    }
}

impl Paused<'_> {
    /// Redirects return addresses to the original that are below the stack pointers of threads' own
    /// stacks. A frame that is made there later may contain some of them in bytes that it never
    /// writes: they would be taken for references to whatever rewritten text is there then. And if
    /// it is not dead, but a stack that the program has made within a thread's own, they become
    /// what they would have been.
    ///
    /// # Errors
    ///
    /// When one cannot be written.
    pub(crate) fn redirect_dead_stack(
        &mut self,
        returns: &ReturnTable,
        dead: &Dead,
    ) -> Result<(), LiveError> {
        if returns.is_empty() || has_shadow_stacks(self.process.pid()) {
            return Ok(());
        }
        let most = (MOST_DEAD / self.threads.len().max(1) as u64).max(LEAST_DEAD);
        // Those of parked threads were, each when it was parked.
        let parked = self.threads.iter().filter(|thread| thread.is_parked);
        let done: HashSet<u64> =
            parked.map(|thread| references::dead_below(thread.registers.rsp)).collect();
        let mut stacks = dead.own_stacks().filter(|stack| !done.contains(&stack.end));
        stacks.try_for_each(|stack| redirect_dead(self.process, returns, &stack, most))
    }
}

/// The same below the stack pointer of one thread that is stopped, where the own stack of a thread began before, by
/// `dead`.
///
/// # Errors
///
/// When one cannot be written.
pub(crate) fn redirect_dead_stack_of(
    process: &Process,
    thread: &Thread,
    returns: &ReturnTable,
    dead: &Dead,
) -> Result<(), LiveError> {
    let pointer = thread.registers.rsp;
    let Some(extent) = process.extent(LiveAddr(pointer)) else { return Ok(()) };
    let end = references::dead_below(pointer);
    if returns.is_empty() || has_shadow_stacks(process.pid()) || end <= extent.start.0 {
        return Ok(());
    }
    match dead.own_at(extent.start) {
        Some(own) => redirect_dead(process, returns, &(own.start..end), LEAST_DEAD),
        None => Ok(()),
    }
}

fn redirect_dead(
    process: &Process,
    returns: &ReturnTable,
    stack: &std::ops::Range<u64>,
    most: u64,
) -> Result<(), LiveError> {
    for (start, end) in references::written_to(process, stack, most) {
        let bytes = process.read(LiveAddr(start), (end - start) as usize)?;
        for (i, word) in words(&bytes).enumerate() {
            let original = returns.original_of(word).filter(|_| word >= LOWEST);
            if let Some(original) = original {
                process.memory.write(LiveAddr(start + i as u64 * 8), &original.to_le_bytes())?;
            }
        }
    }
    Ok(())
}

impl Paused<'_> {
    /// Redirects words from copied to original program headers; false if a thread has just read
    /// one.
    ///
    /// # Errors
    ///
    /// When a stack cannot be read, or a word cannot be written.
    pub(crate) fn redirect_headers(
        &self,
        returns: &ReturnTable,
        code_pointers: &[(LiveAddr, u64)],
        within: &Ranges,
    ) -> Result<bool, LiveError> {
        if !self.on_stacks(within, returns)?.is_empty() {
            return Ok(false);
        }
        for (at, word) in code_pointers {
            let now = self.process.read(*at, 8);
            let original = returns.header_of(self.process, *at, *word);
            if let (Ok(now), Some(original)) = (now, original)
                && now == word.to_le_bytes()
            {
                self.process.memory.write(*at, &original.to_le_bytes())?;
            }
        }
        Ok(true)
    }
}

/// Whether a word at `at` may be a register that a signal frame has saved: up to 15 others follow
/// it, and then the program counter.
fn is_saved_by_signal(process: &Process, at: LiveAddr) -> bool {
    (1..=16).any(|behind| is_interrupted(process, at.0 + behind * 8))
}
