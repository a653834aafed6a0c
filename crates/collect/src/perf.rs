//! The kernel's records of context switches, through `perf_event_open`.
//!
//! One event per processor follows the program's first process and whatever it begets, at no cost
//! to probes: the kernel writes a record when it takes a thread off a processor or puts it back.
//! Users may do that to their own processes unless `kernel.perf_event_paranoid` is above 2.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};
use std::sync::atomic::{AtomicU64, Ordering};

use memmap2::{MmapOptions, MmapRaw};

/// Bytes of records that one ring holds. Ordinary users may lock 516 KiB per processor.
const RING: u64 = 256 << 10;

const TYPE_SOFTWARE: u32 = 1;
const COUNT_DUMMY: u64 = 9;
const SAMPLE_TID: u64 = 1 << 1;
const SAMPLE_TIME: u64 = 1 << 2;
const INHERIT: u64 = 1 << 1;
const EXCLUDE_KERNEL: u64 = 1 << 5;
const EXCLUDE_HV: u64 = 1 << 6;
const TASK: u64 = 1 << 13;
const SAMPLE_ID_ALL: u64 = 1 << 18;
const USE_CLOCKID: u64 = 1 << 25;
const CONTEXT_SWITCH: u64 = 1 << 26;
const FD_CLOEXEC: u64 = 8;
const IOC_SET_OUTPUT: libc::c_ulong = 0x2405;
const RECORD_LOST: u32 = 2;
const RECORD_EXIT: u32 = 4;
const RECORD_SWITCH: u32 = 14;
const MISC_SWITCH_OUT: u16 = 1 << 13;
const MISC_PREEMPTED: u16 = 1 << 14;
/// Header, thread and time: every record that is looked at is at least as long.
const RECORD_MIN: usize = 24;

/// `struct perf_event_attr`, as far as version 5 of it.
#[repr(C)]
#[derive(Default)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup: u64,
    config1: u64,
    config2: u64,
    branch_sample_type: u64,
    sample_regs_user: u64,
    sample_stack_user: u32,
    clock_id: i32,
    sample_regs_intr: u64,
    aux_watermark: u64,
}

const _: () = assert!(size_of::<Attributes>() == 112);

/// What the kernel told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Edge {
    /// Thread.
    pub tid: i32,
    /// `CLOCK_MONOTONIC` in nanoseconds.
    pub time_ns: u64,
    /// What happened.
    pub kind: EdgeKind,
}

/// What happened to a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EdgeKind {
    /// It runs.
    In,
    /// It ends.
    Exit,
    /// It does not run.
    Out {
        /// It could have gone on.
        preempted: bool,
    },
}

/// One ring of records per processor.
#[derive(Debug)]
pub struct Rings {
    rings: Vec<Ring>,
}

#[derive(Debug)]
struct Ring {
    map: MmapRaw,
    page: usize,
    processor: i32,
    /// The event that has the ring, and those of other threads that write to it, live as long.
    events: Vec<File>,
}

impl Rings {
    /// Follows threads, and all that they beget.
    ///
    /// # Errors
    ///
    /// When the kernel does not permit it or has no room.
    pub fn follow(threads: &[i32]) -> io::Result<Rings> {
        let (first, others) = threads.split_first().ok_or(io::ErrorKind::NotFound)?;
        let mut rings = Rings::of(*first)?;
        for tid in others {
            for ring in &mut rings.rings {
                match ring.add(*tid) {
                    // It has ended.
                    Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {}
                    added => added?,
                }
            }
        }
        Ok(rings)
    }

    fn of(pid: i32) -> io::Result<Rings> {
        // SAFETY: takes a number only.
        let processors = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_CONF) };
        let mut rings = Vec::new();
        for processor in 0..processors as i32 {
            match Ring::open(pid, processor) {
                Ok(ring) => rings.push(ring),
                // A processor that is off.
                Err(error) if error.raw_os_error() == Some(libc::ENODEV) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Rings { rings })
    }

    /// Takes what there is. Within a processor it is in order of time. Returns the number of
    /// records that found no room.
    pub fn drain(&mut self, mut take: impl FnMut(Edge)) -> u64 {
        self.rings.iter_mut().map(|ring| ring.drain(&mut take)).sum()
    }
}

/// The switches of a thread on a processor, and those of all that it begets.
fn switches_of(tid: i32, processor: i32) -> io::Result<File> {
    let attributes = Attributes {
        kind: TYPE_SOFTWARE,
        size: size_of::<Attributes>() as u32,
        config: COUNT_DUMMY,
        sample_type: SAMPLE_TID | SAMPLE_TIME,
        flags: INHERIT
            | EXCLUDE_KERNEL
            | EXCLUDE_HV
            | TASK
            | SAMPLE_ID_ALL
            | USE_CLOCKID
            | CONTEXT_SWITCH,
        clock_id: libc::CLOCK_MONOTONIC,
        ..Attributes::default()
    };
    // SAFETY: the kernel reads as much of `attributes` as it says itself to be long; the rest
    // are numbers.
    let fd = unsafe {
        let at = &raw const attributes;
        libc::syscall(libc::SYS_perf_event_open, at, tid, processor, -1, FD_CLOEXEC)
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: `fd` was just made and belongs to nobody else.
    Ok(unsafe { File::from_raw_fd(fd as i32) })
}

impl Ring {
    fn open(tid: i32, processor: i32) -> io::Result<Ring> {
        let event = switches_of(tid, processor)?;
        // SAFETY: takes a number only.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
        // One page of cursors in front.
        let map = MmapOptions::new().len(page + RING as usize).map_raw(&event)?;
        Ok(Ring { map, page, processor, events: vec![event] })
    }

    /// Has the switches of another thread come to this ring, too.
    fn add(&mut self, tid: i32) -> io::Result<()> {
        let event = switches_of(tid, self.processor)?;
        // SAFETY: takes numbers only; both descriptors are ours.
        let done =
            unsafe { libc::ioctl(event.as_raw_fd(), IOC_SET_OUTPUT, self.events[0].as_raw_fd()) };
        if done < 0 {
            return Err(io::Error::last_os_error());
        }
        self.events.push(event);
        Ok(())
    }

    /// A cursor on the first page.
    fn cursor(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: `struct perf_event_mmap_page` has both cursors aligned at these offsets on its
        // page, which is mapped as long as `self` is. The kernel writes it at any time, which
        // atomics allow.
        unsafe { &*self.map.as_mut_ptr().add(offset).cast::<AtomicU64>() }
    }

    /// The word at a position of the stream.
    fn word(&self, position: u64) -> u64 {
        let at = self.page + (position & (RING - 1) & !7) as usize;
        // SAFETY: in the ring, behind the first page, and aligned. The kernel does not write what
        // has not been given back to it; should it, atomics allow that.
        unsafe { (*self.map.as_mut_ptr().add(at).cast::<AtomicU64>()).load(Ordering::Relaxed) }
    }

    fn drain(&mut self, take: &mut impl FnMut(Edge)) -> u64 {
        const HEAD: usize = 1024;
        const TAIL: usize = 1032;
        let head = self.cursor(HEAD).load(Ordering::Acquire);
        let mut tail = self.cursor(TAIL).load(Ordering::Relaxed);
        let mut lost = 0;
        while tail < head {
            let header = self.word(tail);
            let (kind, misc, size) =
                (header as u32, (header >> 32) as u16, (header >> 48) as usize);
            if size < RECORD_MIN {
                // Never seen; without a length there is no next record.
                tail = head;
                break;
            }
            match kind {
                RECORD_SWITCH => {
                    let kind = if misc & MISC_SWITCH_OUT == 0 {
                        EdgeKind::In
                    } else {
                        EdgeKind::Out { preempted: misc & MISC_PREEMPTED != 0 }
                    };
                    let tid = (self.word(tail + 8) >> 32) as i32;
                    take(Edge { tid, time_ns: self.word(tail + 16), kind });
                }
                RECORD_EXIT => {
                    let tid = self.word(tail + 16) as i32;
                    take(Edge { tid, time_ns: self.word(tail + 24), kind: EdgeKind::Exit });
                }
                RECORD_LOST => lost += self.word(tail + 16),
                _ => {}
            }
            tail += size as u64;
        }
        self.cursor(TAIL).store(tail, Ordering::Release);
        lost
    }
}
