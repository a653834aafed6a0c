//! CPU time of a process and its threads as it is now: by a clock of each thread, where the kernel permits these.
//!
//! Otherwise it is known as of the scheduler's last tick, which is milliseconds ago for a thread that computes without a
//! pause. How long threads usually compute cannot be learned well from that.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use fettle_live::{ThreadCounter, Tracepoint};
use fettle_types::{Pid, Tid};
use rustix::io::Errno;

use crate::look::{Progress, ThreadLook};
use crate::servers;
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
    clock: ThreadCounter,
    /// What the thread had used when the clock was made.
    before_ns: u64,
    counted_ns: u64,
    /// The last look at the thread, and what its clock had counted then.
    last: Option<(u64, ThreadLook)>,
    /// What counts its calls on sockets, once it has computed from one look to the next without another mark.
    sockets: Option<Sockets>,
    /// It is a run time's, by its name, which was looked at then.
    is_of_run_time: bool,
}

impl Drop for Clock {
    fn drop(&mut self) {
        OPEN.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Clocks of all processes.
static OPEN: AtomicUsize = AtomicUsize::new(0);

/// How many there may be: each takes up to three of the files that may be open, and looking takes some.
fn open_max() -> usize {
    static MAX: OnceLock<usize> = OnceLock::new();
    *MAX.get_or_init(|| {
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        usize::try_from(limit.unwrap_or(u64::MAX)).unwrap_or(usize::MAX) / 6
    })
}

impl Clock {
    /// One that cannot be read does not go on.
    fn read(&mut self) -> u64 {
        self.counted_ns = self.clock.count().unwrap_or(0).max(self.counted_ns);
        self.counted_ns
    }

    /// What the thread has got done, where `progress` is what `/proc` says of that.
    fn progress(&mut self, tid: Tid, progress: Progress) -> Progress {
        let sockets = self.sockets.as_ref().map_or(0, Sockets::calls);
        let progress = Progress { calls: progress.calls + sockets, ..progress };
        let is_still = self.last.is_some_and(|(_, last)| last.progress == progress);
        if is_still && self.sockets.is_none() {
            self.sockets = Some(Sockets::of(tid));
            let name = std::fs::read_to_string(format!("/proc/{tid}/comm")).unwrap_or_default();
            self.is_of_run_time = servers::is_of_run_time(name.trim_end());
        }
        progress
    }
}

/// Counts a thread's `send` and `recv` and all others of their kind, which `/proc/TID/io` does not. Counting makes each of
/// them some tenths of a microsecond longer, so only threads that need it are counted: those that always have more to
/// receive, and therefore never wait, look as if they were stuck without it.
#[derive(Debug, Default)]
struct Sockets(Vec<ThreadCounter>);

/// The tracepoints that count, each with a counter of our own: the kernel takes 36 ms to take a tracepoint's last counter
/// away, which would be in the middle of healing, whenever a process ends that was counted. A call of a thread that has no
/// counter takes some nanoseconds longer for that.
fn tracepoints() -> &'static [(Tracepoint, ThreadCounter)] {
    static TRACEPOINTS: OnceLock<Vec<(Tracepoint, ThreadCounter)>> = OnceLock::new();
    TRACEPOINTS.get_or_init(|| {
        let found = ["sock_recv_length", "sock_send_length"].map(|name| {
            let at = Tracepoint::find("sock", name)?;
            ThreadCounter::tracepoint(Pid::own().first_thread(), at).map(|kept| (at, kept))
        });
        found.into_iter().flatten().collect()
    })
}

impl Sockets {
    /// Nothing is counted where the kernel does not permit it.
    fn of(tid: Tid) -> Sockets {
        let counters = tracepoints().iter().map(|(at, _)| ThreadCounter::tracepoint(tid, *at));
        Sockets(counters.flatten().collect())
    }

    fn calls(&self) -> u64 {
        self.0.iter().filter_map(ThreadCounter::count).sum()
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
                looks.extend((!clock.is_of_run_time).then_some(*look));
                continue;
            }
            let Some(progress) = progress(pid, *tid) else { continue };
            let progress = clock.progress(*tid, progress);
            let look = ThreadLook { tid: *tid, cpu_ns: clock.before_ns + counted_ns, progress };
            clock.last = Some((counted_ns, look));
            computed.push(*tid);
            looks.extend((!clock.is_of_run_time).then_some(look));
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
        let open = OPEN.load(Ordering::Relaxed);
        if self.refused || self.of.len() >= CLOCKS_MAX || open >= open_max() {
            return;
        }
        match ThreadCounter::clock(look.tid) {
            Ok(clock) => {
                // The first counter takes milliseconds, so it is made before something hangs.
                tracepoints();
                let (before_ns, last) = (look.cpu_ns, None);
                let (counted_ns, sockets, is_of_run_time) = (0, None, false);
                let clock = Clock { clock, before_ns, counted_ns, last, sockets, is_of_run_time };
                self.of.insert(look.tid, clock);
                OPEN.fetch_add(1, Ordering::Relaxed);
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

    /// Has a thread do that again and again until `looks` has looked at it often enough.
    fn while_it_goes_on<T>(
        mut work: impl FnMut() + Send,
        looks: impl FnOnce(&mut Clocks, Tid) -> T,
    ) -> (T, Clocks) {
        use std::sync::atomic::{AtomicBool, Ordering};
        let over = AtomicBool::new(false);
        let (send, link) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                send.send(std::fs::read_link("/proc/thread-self").unwrap()).unwrap();
                while !over.load(Ordering::Relaxed) {
                    work();
                }
            });
            let link = link.recv().unwrap();
            let tid: Tid = link.file_name().unwrap().to_str().unwrap().parse().unwrap();
            let mut clocks = Clocks::default();
            let seen = looks(&mut clocks, tid);
            over.store(true, Ordering::Relaxed);
            (seen, clocks)
        })
    }

    fn look_at(clocks: &mut Clocks, tid: Tid) -> Option<ThreadLook> {
        clocks.threads(Pid::own(), 7).into_iter().find(|look| look.tid == tid)
    }

    /// A thread that computes is seen to compute, though its process's own clock may not go on.
    #[test]
    fn what_computes_is_seen_to() {
        let ((looks, total), mut clocks) = while_it_goes_on(std::hint::spin_loop, |clocks, tid| {
            let mut used = || look_at(clocks, tid).map(|look| look.cpu_ns);
            let first = used().unwrap_or_default();
            let looks = (0..100_000).take_while(|_| used() < Some(first + 5_000_000)).count();
            (looks, clocks.total(7))
        });
        if clocks.refused {
            return eprintln!("skipped 1 test: no clocks of threads are permitted here");
        }
        assert!(looks < 100_000 && total >= 5_000_000, "{looks} {total}");
        assert_eq!(clocks.total(1 << 60), 1 << 60, "what the process's clock says counts, too");
    }

    /// What a thread sends and receives without ever waiting is progress.
    #[test]
    fn what_is_received_is_progress() {
        use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
        let (one, other) = rustix::net::socketpair(
            AddressFamily::UNIX,
            SocketType::STREAM,
            SocketFlags::CLOEXEC,
            None,
        )
        .unwrap();
        let echo = || {
            rustix::net::send(&one, b"x", SendFlags::empty()).unwrap();
            rustix::net::recv(&other, &mut [0u8; 1], RecvFlags::empty()).unwrap();
        };
        let (most, clocks) = while_it_goes_on(echo, |clocks, tid| {
            let calls = |clocks: &mut Clocks| look_at(clocks, tid).map(|look| look.progress.calls);
            let first = calls(clocks).unwrap_or_default();
            (0..100_000).map(|_| calls(clocks)).find(|now| *now > Some(first + 1000))
        });
        let counts = clocks
            .of
            .values()
            .any(|clock| clock.sockets.as_ref().is_some_and(|sockets| !sockets.0.is_empty()));
        match counts {
            true => assert!(most.is_some()),
            false => eprintln!("skipped 1 test: no counts of tracepoints are permitted here"),
        }
    }
}
