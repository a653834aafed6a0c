//! The kernel's records of context switches, and of where threads are now and then, through
//! `perf_event_open`.
//!
//! One event per processor follows the program's first process and its descendants, at no cost to
//! probes: the kernel writes a record when it takes a thread off a processor or puts it back. Users may
//! do that to their own processes unless `kernel.perf_event_paranoid` is above 2.
//!
//! [`Counted`] counts what processors or the kernel can count of threads, without any records.
//!
//! Another one, if asked for, samples the PC of threads each time that they have run for so long
//! ([`PcSamples`]). Users may do that by the same rule, to their own code; where the kernel runs for it,
//! they may if `kernel.perf_event_paranoid` is not above 1.

use std::fs::File;
use std::io::{self, Read};
use std::ops::RangeInclusive;
use std::os::fd::{AsRawFd, FromRawFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use fettle_types::{Pid, Tid};
use memmap2::{MmapOptions, MmapRaw};

/// Bytes of records that a ring holds; for those of places, the first of these that is permitted.
/// Ordinary users may lock 516 KiB per processor.
const SWITCHES_RING: u64 = 256 << 10;
const PLACES_RINGS: [u64; 2] = [1 << 20, 128 << 10];

/// Nanoseconds of CPU time from one sample of a thread's PC to the next: no fewer and no more.
const PERIODS_NS: RangeInclusive<u64> = 200_000..=2_000_000;
/// How many times as long as a sample takes a thread runs from one to the next.
const SAMPLES_SHARE: u64 = 40;
/// Bytes of stack that come with each sample: the caller of code without probes is found there.
const STACK: u32 = 1024;

const TYPE_HARDWARE: u32 = 0;
const TYPE_SOFTWARE: u32 = 1;
const COUNT_CPU_CLOCK: u64 = 0;
const COUNT_DUMMY: u64 = 9;
const SAMPLE_TID: u64 = 1 << 1;
const SAMPLE_TIME: u64 = 1 << 2;
const SAMPLE_REGS_USER: u64 = 1 << 12;
const SAMPLE_STACK_USER: u64 = 1 << 13;
/// The instruction pointer among registers.
const REG_IP: u64 = 1 << 8;
const INHERIT: u64 = 1 << 1;
const EXCLUDE_KERNEL: u64 = 1 << 5;
const EXCLUDE_HV: u64 = 1 << 6;
const TASK: u64 = 1 << 13;
const SAMPLE_ID_ALL: u64 = 1 << 18;
const USE_CLOCKID: u64 = 1 << 25;
const CONTEXT_SWITCH: u64 = 1 << 26;
const TOTAL_TIME_ENABLED: u64 = 1;
const TOTAL_TIME_RUNNING: u64 = 2;
const FD_CLOEXEC: u64 = 8;
const IOC_SET_OUTPUT: libc::c_ulong = 0x2405;
const RECORD_LOST: u32 = 2;
const RECORD_EXIT: u32 = 4;
const RECORD_SAMPLE: u32 = 9;
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

/// What the kernel reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Edge {
    /// Thread.
    pub tid: Tid,
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

/// Where a thread was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Process.
    pub pid: Pid,
    /// Thread.
    pub tid: Tid,
    /// Its instruction pointer, that of its last system call if the kernel ran for it.
    pub instruction: u64,
    /// Words from its stack pointer on.
    pub stack: Vec<u64>,
}

/// One record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SwitchRecord {
    /// A thread was put on a processor, or taken off.
    Edge(Edge),
    /// Where its PC was, in a sample.
    Place(Place),
}

/// Rings of records, by processor. PC samples are many and may be lost, so they have rings of their own.
#[derive(Debug)]
pub struct Rings {
    switches: Vec<Ring>,
    places: Option<(PcSamples, Vec<Ring>)>,
}

/// Samples of threads' PCs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PcSamples {
    /// Nanoseconds of CPU time from one to the next.
    period_ns: u64,
    /// Bytes of stack that come with each.
    stack: u32,
    /// Whether the time in which the kernel works for a thread is sampled, too.
    kernel: bool,
}

impl PcSamples {
    /// As many as take little of a program's time, by what one takes here; `None` if the kernel would
    /// not sample threads of this user. Found out once.
    ///
    /// A sample is an interrupt of a timer. That is a microsecond or two, but some twenty on a virtual
    /// machine that is left to set the timer and when it goes off.
    pub fn affordable() -> Option<PcSamples> {
        static FOUND: OnceLock<Option<PcSamples>> = OnceLock::new();
        *FOUND.get_or_init(|| {
            let takes_ns = PcSamples::each(*PERIODS_NS.start()).take_ns().ok()?;
            let period_ns = takes_ns * SAMPLES_SHARE;
            Some(PcSamples::each(period_ns.clamp(*PERIODS_NS.start(), *PERIODS_NS.end())))
        })
    }

    /// With stacks, and where the kernel works for a thread.
    fn each(period_ns: u64) -> PcSamples {
        PcSamples { period_ns, stack: STACK, kernel: true }
    }

    /// As many, of where threads are in their own code, and of nothing else.
    pub fn of_own_code(self) -> PcSamples {
        PcSamples { stack: 0, kernel: false, ..self }
    }

    /// Nanoseconds of CPU time from one to the next.
    pub fn period_ns(self) -> u64 {
        self.period_ns
    }

    /// Nanoseconds that one takes of a thread which does nothing but ask what time it is.
    fn take_ns(self) -> io::Result<u64> {
        const SPIN: Duration = Duration::from_millis(6);
        // Nothing else takes the thread off its processor for as long as a sample, as a rule, nor for as
        // short.
        const AWAY: Duration = Duration::from_nanos(500);
        let _event = self.event(None, None)?;
        let mut away = Vec::new();
        let begin = Instant::now();
        let mut before = begin;
        while before - begin < SPIN {
            let now = Instant::now();
            if now - before > AWAY {
                away.push((now - before).as_nanos() as u64);
            }
            before = now;
        }
        away.sort_unstable();
        Ok(away.get(away.len() / 2).copied().unwrap_or(0))
    }

    /// Samples the PC of a thread, or the calling one, and its descendants while they are on a processor,
    /// or on any.
    fn event(self, tid: Option<Tid>, processor: Option<i32>) -> io::Result<File> {
        let attributes = |kernel: u64| Attributes {
            kind: TYPE_SOFTWARE,
            size: size_of::<Attributes>() as u32,
            config: COUNT_CPU_CLOCK,
            sample_period: self.period_ns,
            sample_type: SAMPLE_TID | SAMPLE_TIME | SAMPLE_REGS_USER | SAMPLE_STACK_USER,
            sample_regs_user: REG_IP,
            sample_stack_user: self.stack,
            flags: INHERIT | EXCLUDE_HV | USE_CLOCKID | kernel,
            clock_id: libc::CLOCK_MONOTONIC,
            ..Attributes::default()
        };
        let own = || open(&attributes(EXCLUDE_KERNEL), tid, processor);
        // The kernel's time is a program's, too, but asking for it needs more rights.
        if self.kernel { open(&attributes(0), tid, processor).or_else(|_| own()) } else { own() }
    }
}

#[derive(Debug)]
struct Ring {
    map: MmapRaw,
    page: usize,
    /// Whose records these are.
    processor: i32,
    /// Bytes of records.
    size: u64,
    /// The event that has the ring, and those of other threads that write to it, live as long.
    events: Vec<File>,
}

impl Rings {
    /// Follows threads and their descendants; with `pc_samples`, samples their PC as well.
    ///
    /// # Errors
    ///
    /// When the kernel does not permit it or has no room.
    pub fn follow(threads: &[Tid], pc_samples: Option<PcSamples>) -> io::Result<Rings> {
        let switches = rings_of(threads, &switches_of, SWITCHES_RING)?;
        let places = pc_samples
            .and_then(|pc_samples| Some((pc_samples, rings_of_samples(threads, pc_samples).ok()?)));
        Ok(Rings { switches, places })
    }

    /// Samples the PC of threads and their descendants, and records nothing else.
    ///
    /// # Errors
    ///
    /// When the kernel does not permit it or has no room.
    pub fn of_places(threads: &[Tid], pc_samples: PcSamples) -> io::Result<Rings> {
        let rings = rings_of_samples(threads, pc_samples)?;
        Ok(Rings { switches: Vec::new(), places: Some((pc_samples, rings)) })
    }

    /// Follows further threads and their descendants.
    ///
    /// # Errors
    ///
    /// When the kernel has no room.
    pub fn add(&mut self, threads: &[Tid]) -> io::Result<()> {
        self.switches.iter_mut().try_for_each(|ring| ring.add_all(threads, &switches_of))?;
        let Some((pc_samples, rings)) = &mut self.places else { return Ok(()) };
        let event_of = |tid, processor| pc_samples.event(Some(tid), Some(processor));
        rings.iter_mut().try_for_each(|ring| ring.add_all(threads, &event_of))
    }

    /// Takes what there is. Within a processor it is in order of time. Returns the number of
    /// records of switches that found no room.
    pub fn drain(&mut self, mut take: impl FnMut(SwitchRecord)) -> u64 {
        for ring in self.places.iter_mut().flat_map(|(_, rings)| rings) {
            ring.drain(&mut take);
        }
        self.switches.iter_mut().map(|ring| ring.drain(&mut take)).sum()
    }
}

/// What opens the event of a thread on a processor.
type EventOf<'a> = &'a dyn Fn(Tid, i32) -> io::Result<File>;

/// A ring per processor for samples of threads, of the first size that is permitted.
fn rings_of_samples(threads: &[Tid], pc_samples: PcSamples) -> io::Result<Vec<Ring>> {
    let event_of = |tid, processor| pc_samples.event(Some(tid), Some(processor));
    let [first, second] = PLACES_RINGS;
    rings_of(threads, &event_of, first).or_else(|_| rings_of(threads, &event_of, second))
}

/// A ring per processor for events of threads.
fn rings_of(threads: &[Tid], event_of: EventOf<'_>, size: u64) -> io::Result<Vec<Ring>> {
    let (first, others) = threads.split_first().ok_or(io::ErrorKind::NotFound)?;
    // SAFETY: takes a number only.
    let processors = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_CONF) };
    let mut rings = Vec::new();
    for processor in 0..processors as i32 {
        let event = match event_of(*first, processor) {
            // A processor that is off.
            Err(error) if error.raw_os_error() == Some(libc::ENODEV) => continue,
            event => event?,
        };
        let mut ring = Ring::new(event, processor, size)?;
        ring.add_all(others, event_of)?;
        rings.push(ring);
    }
    Ok(rings)
}

/// The switches of a thread on a processor, and those of its descendants.
fn switches_of(tid: Tid, processor: i32) -> io::Result<File> {
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
    open(&attributes, Some(tid), Some(processor))
}

/// Opens an event of a thread, or of the calling one; on a processor, or on all.
fn open(attributes: &Attributes, tid: Option<Tid>, processor: Option<i32>) -> io::Result<File> {
    let (number, processor) = (tid.map_or(0, Tid::get), processor.unwrap_or(-1));
    // SAFETY: the kernel reads as much of `attributes` as it says itself to be long; the rest
    // are numbers.
    let fd = unsafe {
        let at = std::ptr::from_ref(attributes);
        libc::syscall(libc::SYS_perf_event_open, at, number, processor, -1, FD_CLOEXEC)
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: `fd` was just made and has no other owner.
    Ok(unsafe { File::from_raw_fd(fd as i32) })
}

/// What the kernel or the processor counts while threads run their own code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Count {
    kind: u32,
    config: u64,
}

impl Count {
    /// The processor's cycles.
    pub const CYCLES: Count = Count { kind: TYPE_HARDWARE, config: 0 };
    /// Cycles in which the front end gave the rest of the processor nothing to do.
    pub const FETCH_STALLS: Count = Count { kind: TYPE_HARDWARE, config: 7 };
    /// Nanoseconds of CPU time, which every kernel counts.
    pub const TASK_CLOCK: Count = Count { kind: TYPE_SOFTWARE, config: 1 };
    /// The same by another clock.
    pub const CPU_CLOCK: Count = Count { kind: TYPE_SOFTWARE, config: COUNT_CPU_CLOCK };

    fn attributes(self) -> Attributes {
        Attributes {
            kind: self.kind,
            size: size_of::<Attributes>() as u32,
            config: self.config,
            read_format: TOTAL_TIME_ENABLED | TOTAL_TIME_RUNNING,
            flags: INHERIT | EXCLUDE_KERNEL | EXCLUDE_HV,
            ..Attributes::default()
        }
    }
}

/// Counts of threads and their descendants, from now on.
#[derive(Debug)]
pub struct Counted {
    events: Vec<File>,
}

impl Counted {
    /// Counts for threads.
    ///
    /// # Errors
    ///
    /// When nothing here counts that, or the kernel does not permit it.
    pub fn of(threads: &[Tid], count: Count) -> io::Result<Counted> {
        let mut events = Vec::new();
        for tid in threads {
            match open(&count.attributes(), Some(*tid), None) {
                // It has ended.
                Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {}
                event => events.push(event?),
            }
        }
        Ok(Counted { events })
    }

    /// Counts for the thread that calls.
    ///
    /// # Errors
    ///
    /// When nothing here counts that, or the kernel does not permit it.
    pub fn of_this_thread(count: Count) -> io::Result<Counted> {
        Ok(Counted { events: vec![open(&count.attributes(), None, None)?] })
    }

    /// What was counted until now. Where there are more events than counters the kernel multiplexes
    /// them: then it is what would have been counted all the time.
    pub fn read(&self) -> f64 {
        let of = |event: &File| {
            let mut words = [0; 24];
            (&mut &*event).read_exact(&mut words).ok()?;
            let word =
                |i: usize| words[8 * i..].first_chunk().map_or(0, |w| u64::from_le_bytes(*w));
            let [count, enabled, running] = [0, 1, 2].map(word);
            (running > 0).then(|| count as f64 * enabled as f64 / running as f64)
        };
        self.events.iter().filter_map(of).sum()
    }
}

impl Ring {
    fn new(event: File, processor: i32, size: u64) -> io::Result<Ring> {
        // SAFETY: takes a number only.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
        // One page of cursors in front.
        let map = MmapOptions::new().len(page + size as usize).map_raw(&event)?;
        Ok(Ring { map, page, processor, size, events: vec![event] })
    }

    /// Has the records of further threads come to this ring, too.
    fn add_all(&mut self, threads: &[Tid], event_of: EventOf<'_>) -> io::Result<()> {
        for tid in threads {
            match event_of(*tid, self.processor) {
                // It has ended.
                Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {}
                event => self.add(event?)?,
            }
        }
        Ok(())
    }

    /// Has another event's records come to this ring, too.
    fn add(&mut self, event: File) -> io::Result<()> {
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
        let at = self.page + (position & (self.size - 1) & !7) as usize;
        // SAFETY: in the ring, behind the first page, and aligned. The kernel does not write what
        // has not been given back to it; should it, atomics allow that.
        unsafe { (*self.map.as_mut_ptr().add(at).cast::<AtomicU64>()).load(Ordering::Relaxed) }
    }

    /// The place in a record of so many bytes: thread and process, time, whether there are registers,
    /// the only register, bytes of stack, the stack, how many of them are the thread's.
    fn place(&self, at: u64, size: usize) -> Option<Place> {
        let word = |i: u64| self.word(at + i * 8);
        let words = size as u64 / 8;
        let (pid, tid) = numbers(word(1))?;
        if words < 6 || word(3) == 0 {
            return None;
        }
        let room = word(5) / 8;
        let used = if room == 0 || words < 7 + room { 0 } else { (word(6 + room) / 8).min(room) };
        let stack = (0..used).map(|i| word(6 + i)).collect();
        Some(Place { pid, tid, instruction: word(4), stack })
    }

    fn drain(&mut self, take: &mut impl FnMut(SwitchRecord)) -> u64 {
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
                    let time_ns = self.word(tail + 16);
                    if let Some((_, tid)) = numbers(self.word(tail + 8)) {
                        take(SwitchRecord::Edge(Edge { tid, time_ns, kind }));
                    }
                }
                RECORD_EXIT => {
                    let time_ns = self.word(tail + 24);
                    if let Ok(tid) = Tid::try_from(self.word(tail + 16) as u32) {
                        take(SwitchRecord::Edge(Edge { tid, time_ns, kind: EdgeKind::Exit }));
                    }
                }
                RECORD_SAMPLE => {
                    self.place(tail, size).into_iter().for_each(|p| take(SwitchRecord::Place(p)));
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

/// The process and the thread of a record, which are in one word; `None` if the thread has ended.
fn numbers(word: u64) -> Option<(Pid, Tid)> {
    let pid = Pid::try_from(word as u32).ok()?;
    Some((pid, Tid::try_from((word >> 32) as u32).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the kernel counts of a thread by two clocks is the same.
    #[test]
    fn counts_grow_with_work() {
        let counts = [Count::TASK_CLOCK, Count::CPU_CLOCK];
        let Ok(counted) = counts.iter().map(|count| Counted::of_this_thread(*count)).collect()
        else {
            return;
        };
        let counted: Vec<Counted> = counted;
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_millis(20) {}
        let [task, cpu] = [&counted[0], &counted[1]].map(Counted::read);
        assert!(task > 0.0 && (0.5..2.0).contains(&(task / cpu)), "{task} {cpu}");
        assert_eq!(Counted::of(&[], Count::TASK_CLOCK).unwrap().read(), 0.0);
    }

    /// Where the kernel samples threads, a sample takes some time, and samples are no rarer and no more
    /// frequent than they may be.
    #[test]
    fn looks_are_affordable() {
        let Some(pc_samples) = PcSamples::affordable() else {
            assert!(PcSamples::each(1_000_000).event(None, None).is_err());
            return;
        };
        assert!(PERIODS_NS.contains(&pc_samples.period_ns), "{pc_samples:?}");
        assert_eq!(PcSamples::affordable(), Some(pc_samples), "found out once");
        let often = PcSamples::each(*PERIODS_NS.start());
        assert!(often.take_ns().unwrap() > 0);
    }
}
