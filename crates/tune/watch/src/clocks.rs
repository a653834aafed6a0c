//! CPU time of a process and its threads as it is now: by a clock of each thread, where the kernel permits these.
//!
//! Otherwise it is known as of the scheduler's last tick, which is milliseconds ago for a thread that computes without a
//! pause. How long threads usually compute cannot be learned well from that.

use std::collections::{BTreeMap, BTreeSet};

use fettle_live::ThreadClock;
use fettle_types::{Pid, Tid};
use rustix::io::Errno;

use crate::look::ThreadLook;
use crate::threads::{progress, thread, tids};

/// Threads of a process that get clocks: each takes a file descriptor.
const CLOCKS_MAX: usize = 64;
/// Clocks that are read in each look: those of the threads that have computed last.
const HOT_MAX: usize = 8;

/// The clocks of a process's threads.
#[derive(Debug, Default)]
pub(crate) struct Clocks {
    of: BTreeMap<Tid, Clock>,
    /// Threads whose clocks are read in each look, those first that have computed last.
    hot: Vec<Tid>,
    /// What the process has used beside what its clocks have counted, as far as is known.
    others_ns: u64,
    total_ns: u64,
    /// The kernel permits none.
    refused: bool,
    /// All threads that there were in the last look at threads have clocks that are read in each look.
    is_complete: bool,
}

#[derive(Debug)]
struct Clock {
    clock: ThreadClock,
    /// What the thread had used when the clock was made.
    before_ns: u64,
    counted_ns: u64,
    /// The last look at the thread, and what its clock had counted then.
    last: Option<(u64, ThreadLook)>,
}

impl Clock {
    /// One that cannot be read does not go on.
    fn read(&mut self) -> u64 {
        self.counted_ns = self.clock.ns().unwrap_or(0).max(self.counted_ns);
        self.counted_ns
    }
}

impl Clocks {
    /// Whether all that the process uses is known as it is used.
    pub(crate) fn is_exact(&self) -> bool {
        self.is_complete
    }

    /// What the process has used until now. `process_ns` is what its own clock says, which may be old.
    pub(crate) fn total(&mut self, process_ns: u64) -> u64 {
        for tid in &self.hot {
            if let Some(clock) = self.of.get_mut(tid) {
                clock.read();
            }
        }
        self.total_ns = self.total_ns.max(self.counted() + self.others_ns).max(process_ns);
        self.total_ns
    }

    fn counted(&self) -> u64 {
        self.of.values().map(|clock| clock.counted_ns).sum()
    }

    /// Looks at all threads of a process. Those that have used nothing since the look before are not asked again what
    /// they have got done. `process_ns` as for [`Clocks::total`].
    pub(crate) fn threads(&mut self, pid: Pid, process_ns: u64) -> Vec<ThreadLook> {
        let tids = tids(pid);
        let ended = self.of.extract_if(.., |tid, _| !tids.contains(tid));
        self.others_ns += ended.map(|(_, clock)| clock.counted_ns).sum::<u64>();
        let mut looks = Vec::with_capacity(tids.len());
        let mut computed = Vec::new();
        for tid in &tids {
            let Some(clock) = self.of.get_mut(tid) else {
                let look = thread(pid, *tid);
                if let Some(look) = &look {
                    self.begin(look);
                }
                looks.extend(look);
                continue;
            };
            let counted_ns = clock.read();
            if let Some((at, look)) = &clock.last
                && *at == counted_ns
            {
                looks.push(*look);
                continue;
            }
            let Some(progress) = progress(pid, *tid) else { continue };
            let look = ThreadLook { tid: *tid, cpu_ns: clock.before_ns + counted_ns, progress };
            clock.last = Some((counted_ns, look));
            computed.push(*tid);
            looks.push(look);
        }
        // Between two looks at all threads a thread that is not read may have computed: that is in the process's own
        // clock, sooner or later.
        self.others_ns = self.others_ns.max(process_ns.saturating_sub(self.counted()));
        computed.extend(self.hot.iter().filter(|tid| self.of.contains_key(tid)));
        computed.extend(self.of.keys());
        let mut seen = BTreeSet::new();
        computed.retain(|tid| seen.insert(*tid));
        computed.truncate(HOT_MAX);
        self.hot = computed;
        self.is_complete = !tids.is_empty() && self.hot.len() == tids.len();
        looks
    }

    /// A thread gets a clock, if there is room.
    fn begin(&mut self, look: &ThreadLook) {
        if self.refused || self.of.len() >= CLOCKS_MAX {
            return;
        }
        match ThreadClock::of(look.tid) {
            Ok(clock) => {
                let (before_ns, last) = (look.cpu_ns, None);
                self.of.insert(look.tid, Clock { clock, before_ns, counted_ns: 0, last });
            }
            // It has ended meanwhile; all else goes for the others, too.
            Err(error) => {
                self.refused = error.raw_os_error() != Some(Errno::SRCH.raw_os_error());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A thread that computes is seen to compute, though its process's own clock may not go on.
    #[test]
    fn what_computes_is_seen_to() {
        use std::sync::atomic::{AtomicBool, Ordering};
        let over = AtomicBool::new(false);
        let (send, link) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                send.send(std::fs::read_link("/proc/thread-self").unwrap()).unwrap();
                while !over.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
            let link = link.recv().unwrap();
            let tid: Tid = link.file_name().unwrap().to_str().unwrap().parse().unwrap();
            let mut clocks = Clocks::default();
            let mut used = || {
                let looks = clocks.threads(Pid::own(), 7);
                looks.iter().find(|look| look.tid == tid).map(|look| look.cpu_ns)
            };
            let first = used().unwrap_or_default();
            let looks = (0..100_000).take_while(|_| used() < Some(first + 5_000_000)).count();
            let total = clocks.total(7);
            over.store(true, Ordering::Relaxed);
            if clocks.refused {
                return eprintln!("skipped 1 test: no clocks of threads are permitted here");
            }
            assert!(looks < 100_000 && total >= 5_000_000, "{looks} {total}");
            assert_eq!(clocks.total(1 << 60), 1 << 60, "what the process's clock says counts, too");
        });
    }
}
