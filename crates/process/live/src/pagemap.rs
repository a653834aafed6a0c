//! What the kernel reports of the pages of a process (`/proc/PID/pagemap`).

use std::fs::File;
use std::os::unix::fs::FileExt;

use fettle_types::Pid;

use crate::maps::{LiveAddr, PAGE};

/// Pages of a process.
#[derive(Debug)]
pub(crate) struct Pagemap(Option<File>);

/// A page.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Page(u64);

impl Pagemap {
    /// Those of process `pid`.
    pub fn of(pid: Pid) -> Pagemap {
        Pagemap(File::open(format!("/proc/{pid}/pagemap")).ok())
    }

    /// The pages from that of `start` up to that of the last byte before `end`; `None` if the
    /// kernel does not say.
    pub fn read(&self, start: LiveAddr, end: LiveAddr) -> Option<Vec<Page>> {
        let (first, behind) = (start.0 / PAGE, end.0.div_ceil(PAGE));
        let mut entries = vec![0; behind.checked_sub(first)? as usize * 8];
        self.0.as_ref()?.read_exact_at(&mut entries, first * 8).ok()?;
        let entry = |bytes: &[u8]| Page(u64::from_le_bytes(bytes.try_into().expect("eight bytes")));
        Some(entries.chunks_exact(8).map(entry).collect())
    }
}

impl Page {
    const OF_A_FILE: u64 = 1 << 61;
    const IN_MEMORY_OR_SWAPPED: u64 = 3 << 62;

    /// Whether it was used: other pages hold what is in their file, or zeros.
    pub fn is_used(self) -> bool {
        self.0 & Self::IN_MEMORY_OR_SWAPPED != 0
    }

    /// Whether it is the process's own: written to, and not shared.
    pub fn is_own(self) -> bool {
        self.is_used() && self.0 & Self::OF_A_FILE == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_to_is_our_own() {
        let pages = Pagemap::of(Pid::own());
        let own = vec![1u8; 3 * PAGE as usize];
        let start = LiveAddr(own.as_ptr() as u64);
        let of_three = pages.read(start, LiveAddr(start.0 + 3 * PAGE)).unwrap();
        assert!(of_three.len() >= 3 && of_three.iter().all(|page| page.is_own()));
        let code = LiveAddr(what_was_written_to_is_our_own as *const () as u64);
        let of_code = pages.read(code, LiveAddr(code.0 + 1)).unwrap();
        assert!(of_code.len() == 1 && of_code[0].is_used() && !of_code[0].is_own());
    }
}
