//! Leading threads out of new code: what they were called from there comes back to the original.
//!
//! New code keeps the frames of the original as they are, so whatever holds behind a call in one
//! holds behind the same call in the other. A thread that sleeps for hours in a function that new
//! code has called need not be waited for: its return addresses are made what they would be if the
//! new code had never been there. So are addresses of jump tables, which a function may have kept
//! for later (an interpreter's main loop), or left behind on a stack.

use crate::error::LiveError;
use crate::halt::{Halted, Thread};
use crate::journal::Region;
use crate::maps::{self, LiveAddr};
use crate::process::Process;
use crate::ptrace::{self, general};
use crate::references::{Lead, Ranges, Stacks, counts_on_stack, is_interrupted};

/// Below this, any number in memory may look like an address of code.
const LOWEST: u64 = 1 << 32;

/// Addresses behind calls and system calls in new code, each with that behind the same call of the
/// original; and jump tables that new code has copies of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Returns {
    /// Where the new code is, of which all of them are known.
    texts: Vec<(u64, u64)>,
    /// In order.
    pairs: Vec<(u64, u64)>,
}

impl Returns {
    /// All of new code in `texts`: the place, or the table, of new code, and that of the original.
    pub fn new(
        texts: impl IntoIterator<Item = Region>,
        places: impl IntoIterator<Item = (LiveAddr, LiveAddr)>,
    ) -> Returns {
        let texts = texts.into_iter().map(|text| (text.at.0, text.at.0 + text.len)).collect();
        let mut pairs: Vec<(u64, u64)> =
            places.into_iter().map(|(new, old)| (new.0, old.0)).collect();
        pairs.sort_unstable();
        Returns { texts, pairs }
    }

    /// Adds what is known of other new code.
    pub fn extend(&mut self, other: Returns) {
        self.texts.extend(other.texts);
        self.pairs.extend(other.pairs);
        self.pairs.sort_unstable();
    }

    /// As bytes, to be kept beside a log.
    pub fn to_bytes(&self) -> Vec<u8> {
        let count = (self.texts.len() as u64, 0);
        let all = [&[count][..], &self.texts, &self.pairs].concat();
        let body: Vec<u8> =
            all.iter().flat_map(|(a, b)| [a.to_le_bytes(), b.to_le_bytes()]).flatten().collect();
        [&crate::process::hash(&body).to_le_bytes()[..], &body].concat()
    }

    /// From such bytes; `None` if they were damaged.
    pub fn from_bytes(bytes: &[u8]) -> Option<Returns> {
        let (hash, body) = bytes.split_first_chunk()?;
        if u64::from_le_bytes(*hash) != crate::process::hash(body) {
            return None;
        }
        let word = |b: &[u8]| b.try_into().map(u64::from_le_bytes).ok();
        let pairs = body.chunks_exact(16).map(|pair| Some((word(&pair[..8])?, word(&pair[8..])?)));
        let pairs: Vec<(u64, u64)> = pairs.collect::<Option<_>>()?;
        let ((texts, _), rest) = pairs.split_first()?;
        let (texts, pairs) = rest.split_at_checked(usize::try_from(*texts).ok()?)?;
        pairs.is_sorted().then(|| Returns { texts: texts.to_vec(), pairs: pairs.to_vec() })
    }

    /// Whether nothing is known.
    pub fn is_empty(&self) -> bool {
        self.pairs.is_empty()
    }

    /// Whether a call comes back to an address; `None` if nothing is known of the code there.
    pub(crate) fn contains(&self, address: u64) -> Option<bool> {
        let known = self.texts.iter().any(|(start, end)| *start <= address && address < *end);
        known.then(|| self.original_of(address).is_some())
    }

    /// Whether it is where the copy of a jump table begins.
    pub(crate) fn is_table(&self, address: u64) -> bool {
        self.contains(address).is_none() && self.original_of(address).is_some()
    }

    /// Where copies of jump tables begin.
    pub(crate) fn tables(&self) -> impl Iterator<Item = u64> {
        self.pairs.iter().map(|pair| pair.0).filter(|at| self.is_table(*at))
    }

    /// What a word at `at` of memory becomes.
    fn original_in(&self, process: &Process, at: LiveAddr, word: u64) -> Option<u64> {
        // Where a signal has interrupted it, a function may be about to add a distance that it has read
        // from the table.
        let may_be_in_use = || self.is_table(word) && is_saved_by_signal(process, at);
        self.original_of(word).filter(|_| word >= LOWEST && !may_be_in_use())
    }

    fn original_of(&self, address: u64) -> Option<u64> {
        let at = self.pairs.binary_search_by_key(&address, |pair| pair.0).ok()?;
        Some(self.pairs[at].1)
    }
}

impl Halted<'_> {
    /// Has threads come back to the original where they would come back to new code, which lies in the
    /// ranges that are given for each. A thread that knows of new code in another way stays as it is: it may be on its way
    /// into it, or look for the handler of an exception there. Nothing is done where the processor
    /// keeps return addresses of its own (shadow stacks).
    ///
    /// # Errors
    ///
    /// When a stack cannot be read or written, or a thread was killed meanwhile.
    pub(crate) fn lead_back<'r>(
        &mut self,
        returns: &Returns,
        within: impl Fn(&Thread) -> &'r Ranges,
    ) -> Result<(), LiveError> {
        if returns.is_empty() || has_shadow_stacks(self.process.pid()) {
            return Ok(());
        }
        let mut stacks = Stacks::new(self.process);
        for thread in &mut self.threads {
            let ranges = within(thread);
            let tid = thread.tid;
            let failed =
                |source| LiveError::Ptrace { action: "lead out of new code", pid: tid, source };
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
                    // The program counter, and rcx, where a system call leaves where it comes back to.
                    let leads = if returns.is_table(word) { sleeps } else { i < 2 };
                    let old = returns.original_of(word).filter(|_| word >= LOWEST && leads);
                    registers.extend(instead(old).map(|old| (i, old)));
                }
            }
            let mut changes = Vec::new();
            stacks.search(thread.registers.rsp, ranges, &mut |at, word| {
                if counts_on_stack(self.process, returns, at, word) {
                    let old = returns.original_in(self.process, at, word);
                    changes.extend(instead(old).map(|old| (at, old)));
                }
            })?;
            if unknown > 0 {
                continue;
            }
            for (at, old) in changes {
                self.process.memory.write(at, &old.to_le_bytes())?;
            }
            for (i, old) in &registers {
                ptrace::set_general(tid, *i, *old).map_err(failed)?;
            }
            if !registers.is_empty() {
                thread.registers = ptrace::registers(tid).map_err(failed)?;
            }
        }
        Ok(())
    }
}

impl Halted<'_> {
    /// Has words of memory that lead to where calls in new code come back to, or to a copied table,
    /// lead to the same in the original; gives how many. Whether they are on stacks that sleep, or
    /// what a program has kept of a stack, nobody can tell: in both cases they become what they would
    /// have been.
    ///
    /// # Errors
    ///
    /// When one cannot be written; it may have been given back just now.
    pub(crate) fn lead_memory_back(
        &mut self,
        returns: &Returns,
        leads: &[Lead],
        guard: u64,
    ) -> Result<usize, LiveError> {
        if has_shadow_stacks(self.process.pid()) {
            return Ok(0);
        }
        let mut count = 0;
        for lead in leads {
            let Some(original) = returns.original_in(self.process, lead.at, lead.to) else {
                continue;
            };
            // The process has gone on since it was searched.
            let now = self.process.read(lead.at, 8);
            if now.is_ok_and(|now| now == lead.word.to_le_bytes()) {
                let word = lead.instead(original, guard);
                self.process.memory.write(lead.at, &word.to_le_bytes())?;
                count += 1;
            }
        }
        Ok(count)
    }
}

/// Whether a word at `at` may be a register that a signal has saved: behind it come up to 15 others,
/// and then the program counter.
fn is_saved_by_signal(process: &Process, at: LiveAddr) -> bool {
    (1..=16).any(|behind| is_interrupted(process, at.0 + behind * 8))
}

/// Whether some thread has a shadow stack, which would not agree with changed return addresses.
fn has_shadow_stacks(pid: i32) -> bool {
    let status = maps::read_proc(&format!("/proc/{pid}/status")).unwrap_or_default();
    let status = String::from_utf8_lossy(&status);
    let features = status.lines().find_map(|line| line.strip_prefix("x86_Thread_features:"));
    features.is_some_and(|features| features.contains("shstk"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_and_back() {
        let prot = crate::Prot { read: true, write: false, exec: true };
        let text = Region { at: LiveAddr(0x1000), len: 0x2000, prot, shared: false };
        let place = |new: u64, old: u64| (LiveAddr(new), LiveAddr(old));
        let returns = Returns::new([text], [place(0x2000, 7), place(0x1000, 5)]);
        assert_eq!(returns.original_of(0x1000), Some(5));
        assert_eq!(
            [0x1000, 0x1001, 0x3000].map(|at| returns.contains(at)),
            [Some(true), Some(false), None]
        );
        let mut bytes = returns.to_bytes();
        assert_eq!(Returns::from_bytes(&bytes), Some(returns));
        assert_eq!(Returns::from_bytes(&bytes[..bytes.len() - 1]), None);
        *bytes.last_mut().unwrap() ^= 1;
        assert_eq!(Returns::from_bytes(&bytes), None);
        assert_eq!(Returns::from_bytes(&[]), None);
        assert_eq!(Returns::from_bytes(&Returns::default().to_bytes()), Some(Returns::default()));
    }
}
