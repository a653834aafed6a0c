//! The memory of the counters that copies increment.
//!
//! Copies reach their counters through the gs base. Threads that run at the same time and increment
//! the same words would contend for the cache lines, and lose counts; so there are several banks of
//! counters, and each thread has one of them. Threads that it creates inherit it, so the process
//! need not be traced.

use fettle_types::PAGE;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use fettle_live::{Journal, LiveAddr, LiveError, Mapping, Process, Prot, Region};

use crate::rewritten::Rewritten;

/// Far from what loaders and allocators use, and a number that programs do not use otherwise.
const FROM: u64 = 0x2b5c_9d3a_7000;
/// With more threads than this, two that run at the same time seldom share a bank.
const MOST_BANKS: usize = 8;

/// Banks of counters.
#[derive(Clone, Copy, Debug)]
pub struct Counters {
    region: Region,
    banks: u64,
}

/// The memory of a process's counters, if we have mapped it, too.
#[derive(Debug)]
pub(crate) struct Counts(Option<File>);

impl Counters {
    /// Banks with so many words each, for a process with so many threads; `None` if there is no
    /// room.
    pub(crate) fn new(words: u64, threads: usize, maps: &[Mapping]) -> Option<Counters> {
        let bank = (words * 8).max(1).next_multiple_of(PAGE);
        let banks = threads.clamp(1, MOST_BANKS) as u64;
        let at = fettle_record::room::find_gap(FROM, bank * banks, maps)?;
        let prot = Prot { read: true, write: true, exec: false };
        // Forked children add to the same counters, and may end before they are read.
        Some(Counters { region: Region { at, len: bank * banks, prot, shared: true }, banks })
    }

    /// The memory of all banks.
    pub(crate) fn region(&self) -> Region {
        self.region
    }

    /// The address of each bank.
    pub(crate) fn bases(&self) -> Vec<u64> {
        (0..self.banks).map(|bank| self.region.at.0 + bank * self.bank_bytes()).collect()
    }

    /// Maps the memory of all banks in a process. Also returns how long a thread was paused, each
    /// time.
    ///
    /// # Errors
    ///
    /// When it cannot be mapped.
    pub(crate) fn map(
        &self,
        process: &Process,
        journal: &mut Journal,
    ) -> Result<(Counts, Vec<Duration>), LiveError> {
        let shared = process.map_file(journal, self.region).and_then(|(file, stops)| {
            let sized = file.set_len(self.region.len);
            sized.map_err(|source| LiveError::Os { action: "make room for counters", source })?;
            Ok((Counts(Some(file)), stops))
        });
        match shared {
            // If the process may not have a shared file, it may have private memory all the same.
            Err(_) if process.is_same() && self.is_free(process) => {
                Ok((Counts(None), process.map(journal, &[self.region])?))
            }
            shared => shared,
        }
    }

    /// Whether nothing is where the banks are to be.
    fn is_free(&self, process: &Process) -> bool {
        let taken = |m: &Mapping| m.contains(self.region.at);
        process.maps().is_ok_and(|maps| !maps.iter().any(taken))
    }

    /// Passes the content of each bank of a process to `take`. Counts remain when a process ends,
    /// except in one that has private counters.
    pub(crate) fn read(&self, process: &Process, counts: &Counts, mut take: impl FnMut(&[u8])) {
        for base in self.bases() {
            let len = self.bank_bytes() as usize;
            let bytes = match &counts.0 {
                Some(file) => {
                    let mut bytes = vec![0; len];
                    file.read_exact_at(&mut bytes, base - self.region.at.0).map(|()| bytes).ok()
                }
                None => process.read(LiveAddr(base), len).ok(),
            };
            let Some(bytes) = bytes else { return };
            take(&bytes);
        }
    }

    /// Words of a bank.
    pub(crate) fn words(&self) -> usize {
        (self.bank_bytes() / 8) as usize
    }

    fn bank_bytes(&self) -> u64 {
        self.region.len / self.banks
    }
}

/// Copies with counters, for all processes of a process group.
pub(crate) struct Copies {
    pub(crate) codes: Vec<Rewritten>,
    /// Of each, the module and its first counter.
    pub(crate) places: Vec<(usize, u64)>,
    pub(crate) counters: Counters,
}
