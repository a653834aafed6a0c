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
use crate::references::{self, Dead, Lead, Ranges, Stacks, counts_on_stack, is_interrupted};

/// Below this, any number in memory may look like an address of code.
const LOWEST: u64 = 1 << 32;

/// So much of dead stacks is looked at while the process stands still, of all threads together; and of each
/// at least so much.
const MOST_DEAD: u64 = 4 << 20;
const LEAST_DEAD: u64 = 16 << 10;

/// Addresses behind calls and system calls in new code, each with that behind the same call of the
/// original; jump tables that new code has copies of; and landing pads of exceptions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Returns {
    /// Where the new code is, of which all of them are known.
    texts: Vec<(u64, u64)>,
    /// In order.
    pairs: Vec<(u64, u64)>,
    /// Tables with whole addresses for entries, in order. Whatever is read of either table leads to the
    /// same place, in old code or in new.
    whole: Vec<(u64, u64)>,
    /// Landing pads of new code, with those of the original, in order. An exception on its way to a handler
    /// keeps the address of the one that was found in memory, while others clean up.
    pads: Vec<(u64, u64)>,
    /// Copies of program headers, with the originals, in order. Unwinders keep where those are that they
    /// need.
    headers: Vec<(u64, u64)>,
}

impl Returns {
    /// All of new code in `texts`: the place, or the table, of new code, and that of the original;
    /// tables with `whole` addresses for entries, landing pads and program headers likewise.
    pub fn new(
        texts: impl IntoIterator<Item = Region>,
        places: impl IntoIterator<Item = (LiveAddr, LiveAddr)>,
        whole: impl IntoIterator<Item = (LiveAddr, LiveAddr)>,
        pads: impl IntoIterator<Item = (LiveAddr, LiveAddr)>,
        headers: impl IntoIterator<Item = (LiveAddr, LiveAddr)>,
    ) -> Returns {
        fn sorted(all: impl IntoIterator<Item = (LiveAddr, LiveAddr)>) -> Vec<(u64, u64)> {
            let mut all: Vec<_> = all.into_iter().map(|(new, old)| (new.0, old.0)).collect();
            all.sort_unstable();
            all
        }
        let texts = texts.into_iter().map(|text| (text.at.0, text.at.0 + text.len)).collect();
        let (pairs, whole) = (sorted(places), sorted(whole));
        Returns { texts, pairs, whole, pads: sorted(pads), headers: sorted(headers) }
    }

    /// Adds what is known of other new code.
    pub fn extend(&mut self, other: Returns) {
        self.texts.extend(other.texts);
        self.pairs.extend(other.pairs);
        self.pairs.sort_unstable();
        self.whole.extend(other.whole);
        self.whole.sort_unstable();
        self.pads.extend(other.pads);
        self.pads.sort_unstable();
        self.headers.extend(other.headers);
        self.headers.sort_unstable();
    }

    /// As bytes, to be kept beside a log.
    pub fn to_bytes(&self) -> Vec<u8> {
        let counts = [
            (self.texts.len() as u64, self.pads.len() as u64),
            (self.whole.len() as u64, self.pairs.len() as u64),
            (self.headers.len() as u64, 0),
        ];
        let lists = [&self.texts, &self.pads, &self.whole, &self.pairs, &self.headers];
        let all = [&counts[..], &lists.map(|list| list.as_slice()).concat()].concat();
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
        let ([texts, others, headers], mut rest) = pairs.split_first_chunk()?;
        let mut next = |count: u64| -> Option<Vec<(u64, u64)>> {
            let (these, others) = rest.split_at_checked(usize::try_from(count).ok()?)?;
            rest = others;
            Some(these.to_vec())
        };
        let (texts, pads) = (next(texts.0)?, next(texts.1)?);
        let (whole, pairs) = (next(others.0)?, next(others.1)?);
        let headers = next(headers.0)?;
        let sorted = [&pairs, &whole, &pads, &headers].iter().all(|all| all.is_sorted());
        sorted.then_some(Returns { texts, pairs, whole, pads, headers })
    }

    /// Whether nothing is known.
    pub fn is_empty(&self) -> bool {
        self.pairs.is_empty() && self.whole.is_empty()
    }

    /// Whether a call comes back to an address, or an exception lands there; `None` if nothing is known of
    /// the code there.
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
        let all = self.pairs.iter().chain(&self.whole);
        all.map(|pair| pair.0).filter(|at| self.is_table(*at))
    }

    /// Whether it is where the copy of a table with distances begins: who has read one of them will add it
    /// to the address of the same table.
    fn is_table_of_distances(&self, address: u64) -> bool {
        self.is_table(address) && find(&self.whole, address).is_none()
    }

    /// What a word at `at` of memory becomes.
    fn original_in(&self, process: &Process, at: LiveAddr, word: u64) -> Option<u64> {
        // Where a signal has interrupted it, a function may be about to add a distance that it has read
        // from the table.
        let may_be_in_use = || self.is_table_of_distances(word) && is_saved_by_signal(process, at);
        let is_address =
            || word >= LOWEST || (self.is_pad(word) && is_kept_by_exception(process, at));
        self.original_of(word).filter(|_| is_address() && !may_be_in_use())
    }

    /// Whether the copy of a program header is there.
    pub(crate) fn is_header(&self, address: u64) -> bool {
        find(&self.headers, address).is_some()
    }

    /// The original of a program header that `word` at `at` leads to. Where addresses are small numbers the
    /// word before or behind leads to another, as in a record of libgcc's: it has two side by side.
    pub(crate) fn header_of(&self, process: &Process, at: LiveAddr, word: u64) -> Option<u64> {
        let is_header = |at: LiveAddr| {
            let mut bytes = [0; 8];
            let read = process.memory.read_exact(at, &mut bytes);
            read.is_ok() && self.is_header(u64::from_le_bytes(bytes))
        };
        let original = find(&self.headers, word)?;
        let beside = [at.offset(8), LiveAddr(at.0.wrapping_sub(8))];
        (word >= LOWEST || beside.into_iter().any(is_header)).then_some(original)
    }

    /// Whether an exception lands there, and no call comes back to it.
    pub(crate) fn is_pad(&self, address: u64) -> bool {
        find(&self.pairs, address).is_none() && find(&self.pads, address).is_some()
    }

    fn original_of(&self, address: u64) -> Option<u64> {
        [&self.pairs, &self.whole, &self.pads].iter().find_map(|pairs| find(pairs, address))
    }
}

fn find(pairs: &[(u64, u64)], address: u64) -> Option<u64> {
    let at = pairs.binary_search_by_key(&address, |pair| pair.0).ok()?;
    Some(pairs[at].1)
}

impl Halted<'_> {
    /// Has threads come back to the original where they would come back to new code, which lies in the
    /// ranges that are given for each. A thread that knows of new code in another way stays as it is: it may be on its way
    /// into it, or look for the handler of an exception there. Who sleeps has the original's program headers
    /// where it had copies, which are left over from such a look. Nothing is done where the processor
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
                    let leads = match returns.is_table(word) {
                        true => sleeps || !returns.is_table_of_distances(word),
                        false => i < 2,
                    };
                    let old = returns.original_of(word).filter(|_| word >= LOWEST && leads);
                    registers.extend(instead(old).map(|old| (i, old)));
                }
            }
            let (mut changes, mut headers) = (Vec::new(), Vec::new());
            stacks.search(thread.registers.rsp, ranges, &mut |at, word| {
                if let Some(old) = returns.header_of(self.process, at, word) {
                    headers.push((at, old));
                } else if counts_on_stack(self.process, returns, at, word) {
                    let old = returns.original_in(self.process, at, word);
                    changes.extend(instead(old).map(|old| (at, old)));
                }
            })?;
            // Nobody who goes through headers one by one sleeps meanwhile.
            if unknown > 0 || !sleeps && !headers.is_empty() {
                continue;
            }
            for (at, old) in changes.into_iter().chain(headers) {
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

impl Halted<'_> {
    /// Has return addresses lead to the original that lie below what is in use of threads' own stacks.
    /// A frame that is made there later may have some of them in room that it never writes to: they would
    /// be taken for ways into what new code may lie there then. And were it not dead, but a stack that the
    /// program has made within a thread's own, they become what they would have been.
    ///
    /// # Errors
    ///
    /// When one cannot be written.
    pub(crate) fn lead_dead_back(
        &mut self,
        returns: &Returns,
        dead: &Dead,
    ) -> Result<(), LiveError> {
        if returns.is_empty() || has_shadow_stacks(self.process.pid()) {
            return Ok(());
        }
        let most = (MOST_DEAD / self.threads.len().max(1) as u64).max(LEAST_DEAD);
        for stack in dead.own_stacks() {
            for (start, end) in references::written_to(self.process, &stack, most) {
                let bytes = self.process.read(LiveAddr(start), (end - start) as usize)?;
                for (i, word) in references::words(&bytes).enumerate() {
                    let original = returns.original_of(word).filter(|_| word >= LOWEST);
                    if let Some(original) = original {
                        let at = LiveAddr(start + i as u64 * 8);
                        self.process.memory.write(at, &original.to_le_bytes())?;
                    }
                }
            }
        }
        Ok(())
    }
}

impl Halted<'_> {
    /// Has words lead to original program headers that lead to copies; false if a thread has just read one.
    ///
    /// # Errors
    ///
    /// When a stack cannot be read, or a word cannot be written.
    pub(crate) fn lead_headers_back(
        &self,
        returns: &Returns,
        leads: &[(LiveAddr, u64)],
        within: &Ranges,
    ) -> Result<bool, LiveError> {
        if !self.on_stacks(within, returns)?.is_empty() {
            return Ok(false);
        }
        for (at, word) in leads {
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

/// Whether a word at `at` may be a register that a signal has saved: behind it come up to 15 others,
/// and then the program counter.
fn is_saved_by_signal(process: &Process, at: LiveAddr) -> bool {
    (1..=16).any(|behind| is_interrupted(process, at.0 + behind * 8))
}

/// Whether a word at `at` is where an exception of C++ keeps its landing pad: behind it come the object's
/// address, and what the Itanium C++ ABI, 2.2.1, has for the class of exceptions of GCC or Clang.
fn is_kept_by_exception(process: &Process, at: LiveAddr) -> bool {
    // The last byte says whether the object is another exception's.
    const CLASSES: [u64; 2] =
        [u64::from_be_bytes(*b"GNUCC++\0"), u64::from_be_bytes(*b"CLNGC++\0")];
    let mut class = [0; 8];
    let read = process.memory.read_exact(at.offset(16), &mut class);
    read.is_ok() && CLASSES.contains(&(u64::from_le_bytes(class) & !1))
}

/// Whether some thread has a shadow stack, which would not agree with changed return addresses.
pub(crate) fn has_shadow_stacks(pid: i32) -> bool {
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
        let places = [place(0x2000, 7), place(0x1000, 5)];
        let pads = [place(0x1800, 6), place(0x2000, 7)];
        let headers = [place(0x6000, 0x40), place(0x6038, 0x78)];
        let returns = Returns::new([text], places, [place(0x5000, 8)], pads, headers);
        assert!(returns.is_header(0x6038) && !returns.is_header(0x6039));
        let original = |at| returns.original_of(at);
        assert_eq!([0x1000, 0x1800, 0x5000].map(original), [Some(5), Some(6), Some(8)]);
        assert_eq!([0x1000, 0x5000].map(|at| returns.is_table(at)), [false, true]);
        assert!(!returns.is_table_of_distances(0x5000));
        assert_eq!([0x1000, 0x1800, 0x2000].map(|at| returns.is_pad(at)), [false, true, false]);
        assert_eq!(
            [0x1000, 0x1800, 0x1001, 0x3000].map(|at| returns.contains(at)),
            [Some(true), Some(true), Some(false), None]
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
