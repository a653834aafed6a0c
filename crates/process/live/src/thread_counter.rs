//! Counts of a thread that is not ours, as they are now: its CPU time, and how often it came past a tracepoint.
//!
//! What `/proc` and the clocks of other processes say of CPU time is as old as the last time that the scheduler has
//! looked at the thread: its last switch, or its processor's last tick, which is 4 ms ago or 10. An event of
//! `perf_event_open` that counts CPU time by software, which needs no counters of the processor, is brought up to date
//! when it is read: by an interrupt of the thread's processor if it runs. Users may do that to their own threads unless
//! `kernel.perf_event_paranoid` is above 2. Tracepoints are in the kernel, so that counting them takes root, or 1.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::FromRawFd;

use fettle_types::Tid;

use crate::tracefs::Tracepoint;

const TYPE_SOFTWARE: u64 = 1;
const TYPE_TRACEPOINT: u64 = 2;
const TASK_CLOCK: u64 = 1;
/// Ordinary users may not count what the kernel does. The clock makes no difference between the two.
const EXCLUDE_KERNEL: u64 = 1 << 5;
const EXCLUDE_HYPERVISOR: u64 = 1 << 6;
const FD_CLOEXEC: libc::c_ulong = 8;
/// `struct perf_event_attr` as its first version had it: eight words.
const WORDS: usize = 8;

/// Counts what one thread does.
#[derive(Debug)]
pub struct ThreadCounter(File);

impl ThreadCounter {
    /// Counts nanoseconds of CPU time from now on.
    ///
    /// # Errors
    ///
    /// When the thread has ended, or the kernel does not permit it.
    pub fn clock(tid: Tid) -> io::Result<ThreadCounter> {
        ThreadCounter::of(tid, TYPE_SOFTWARE, TASK_CLOCK, EXCLUDE_KERNEL | EXCLUDE_HYPERVISOR)
    }

    /// Counts how often the thread comes past a tracepoint from now on. Each time costs it some tenths of a
    /// microsecond.
    ///
    /// # Errors
    ///
    /// As for [`ThreadCounter::clock`].
    pub fn tracepoint(tid: Tid, tracepoint: Tracepoint) -> io::Result<ThreadCounter> {
        ThreadCounter::of(tid, TYPE_TRACEPOINT, tracepoint.number(), 0)
    }

    fn of(tid: Tid, kind: u64, what: u64, exclude: u64) -> io::Result<ThreadCounter> {
        let size = (WORDS * size_of::<u64>()) as u64;
        let mut attributes = [0u64; WORDS];
        // Kind and size share a word, and the flags are the sixth.
        attributes[0] = kind | size << 32;
        attributes[1] = what;
        attributes[5] = exclude;
        // SAFETY: the kernel reads as much of `attributes` as they say themselves to be long; the rest are numbers:
        // of a thread, on any processor, in no group.
        let fd = unsafe {
            let at = attributes.as_ptr();
            libc::syscall(libc::SYS_perf_event_open, at, tid.get(), -1, -1, FD_CLOEXEC)
        };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: `fd` was just made and has no other owner.
        Ok(ThreadCounter(unsafe { File::from_raw_fd(fd as i32) }))
    }

    /// What was counted since it was made; none if it cannot be read.
    pub fn count(&self) -> Option<u64> {
        let mut bytes = [0; 8];
        (&self.0).read_exact(&mut bytes).ok()?;
        Some(u64::from_ne_bytes(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Looks at a clock that has to go on.
    const MOST: usize = 5_000_000;

    /// While a thread computes, its clock goes on from look to look.
    #[test]
    fn a_thread_that_computes_has_its_clock_go_on() {
        use std::sync::atomic::{AtomicBool, Ordering};
        let over = AtomicBool::new(false);
        let (send, tid) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                // SAFETY: takes nothing and cannot fail.
                send.send(unsafe { libc::gettid() }).unwrap();
                while !over.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
            let tid = Tid::try_from(tid.recv().unwrap().cast_unsigned()).unwrap();
            let mut seen = Vec::new();
            let clock = ThreadCounter::clock(tid);
            if let Ok(clock) = &clock {
                while seen.last().is_none_or(|last| *last < Some(20_000_000)) && seen.len() < MOST {
                    seen.push(clock.count());
                }
            }
            over.store(true, Ordering::Relaxed);
            match clock {
                Err(error) => eprintln!("skipped 1 test: no clocks of threads here ({error})"),
                Ok(_) => assert!(seen.is_sorted() && seen.len() < MOST, "{:?}", seen.last()),
            }
        });
    }

    #[test]
    fn a_thread_that_is_not_there_has_none() {
        assert!(ThreadCounter::clock(Tid::try_from(0x3fff_ffffu32).unwrap()).is_err());
    }

    /// What a thread sends and receives by calls that `/proc/TID/io` does not count.
    #[test]
    fn what_a_thread_sends_is_counted() {
        use std::io::{Read, Write};
        // SAFETY: takes nothing and cannot fail.
        let tid = Tid::try_from(unsafe { libc::gettid() }.cast_unsigned()).unwrap();
        let counter = |name| ThreadCounter::tracepoint(tid, Tracepoint::find("sock", name)?);
        let counters = ["sock_send_length", "sock_recv_length"].map(counter);
        let [Ok(sent), Ok(received)] = counters else {
            return eprintln!("skipped 1 test: {counters:?}");
        };
        let (mut one, mut other) = std::os::unix::net::UnixStream::pair().unwrap();
        for _ in 0..100 {
            one.write_all(b"x").unwrap();
            other.read_exact(&mut [0]).unwrap();
        }
        assert_eq!((sent.count(), received.count()), (Some(100), Some(100)));
    }
}
