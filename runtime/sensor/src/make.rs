//! Makes a sensor: its file in the directory and its memory. Runs once, maybe in a signal handler:
//! allocates nothing, takes no locks.

use std::ffi::CStr;
use std::fmt::Write;
use std::mem::offset_of;
use std::sync::atomic::Ordering::*;

use fettle_abi::sensor::{Head, MAKING_LIMIT_NS, SLOTS, VERSION, VERSION_MIN};

use crate::inject::{self, point};
use crate::origin::{OFF, ON, OPENING, Origin, new_index};
use crate::process::{Process, Writer};
use crate::shared::Shared;
use crate::sys::{self, Fd};

/// How long to sleep between two looks at a sensor that another thread makes.
const SLEEP_NS: u64 = 20_000;

impl Origin {
    /// The process's part, after making it where that is still to be done; `None` if the sensor
    /// is off, or if we are a signal handler that interrupted the making.
    pub(crate) fn made(&self) -> Option<&'static Process> {
        let mut turns = 0;
        loop {
            let state = self.state.load(Acquire);
            if state == OFF {
                return None;
            }
            if state == ON {
                let process = self.process()?;
                if !process.is_wiped() {
                    return Some(process);
                }
            }
            let tid = sys::tid();
            let opening = tid << 2 | OPENING;
            if state & OPENING == OPENING && sys::thread_lives(state >> 2) {
                // Wait for the other thread; not if it is this thread, interrupted by a signal handler,
                // and not for ever, as a handler may have left the making by `siglongjmp`.
                if state != opening && turns < MAKING_LIMIT_NS / SLEEP_NS {
                    turns += 1;
                    sys::sleep_ns(SLEEP_NS as i64);
                    continue;
                }
                self.lost_opening.fetch_add(1, Relaxed);
                return None;
            }
            // Ours to make: never made, or made before a fork, or by a thread that a fork left
            // behind.
            if self.state.compare_exchange(state, opening, AcqRel, Relaxed).is_ok() {
                self.make();
            }
        }
    }

    fn make(&self) {
        let Some(process) = process(self) else {
            return self.state.store(OFF, Release);
        };
        point(inject::MAKING);
        if self.index.load(Relaxed) == 0 {
            self.index.store(new_index(), Relaxed);
        }
        self.process.store(std::ptr::from_ref(process).cast_mut(), Release);
        self.state.store(ON, Release);
        // After `ON`, so that from here on no handler adds to it.
        let lost = self.lost_opening.swap(0, Relaxed);
        let head = std::mem::offset_of!(fettle_abi::sensor::Head, lost_opening);
        process.head().word(head).fetch_add(lost, Relaxed);
    }
}

/// Makes this process's part of a sensor; `None` if no monitor asked for it or it cannot be made.
fn process(origin: &Origin) -> Option<&'static Process> {
    with_file(origin, |file| make(origin, file))
}

/// Makes a sensor's file and something of it; without that, the file is deleted.
pub(crate) fn with_file<T>(origin: &Origin, make: impl FnOnce(&Fd) -> Option<T>) -> Option<T> {
    let directory = directory()?;
    let mut name = Text::new();
    write!(name, "{}.{}.{:x}", origin.name, sys::pid(), sys::rdtsc()).ok()?;
    let file = sys::create(&directory, name.c_str())?;
    let made = make(&file);
    if made.is_none() {
        sys::unlink(&directory, name.c_str());
    }
    made
}

fn make(origin: &Origin, file: &Fd) -> Option<&'static Process> {
    let shape = &origin.shape;
    let base = Shared::new(sys::map_file(file, shape.file_bytes())?)?;
    if !sys::populate(base.start(), u64::from(SLOTS) + shape.slot_bytes())
        || !sys::can_populate() && !sys::allocate(file, shape.file_bytes())
    {
        return None;
    }
    let bytes = size_of::<Process>() + shape.slots() as usize * size_of::<Writer>();
    // SAFETY: a page-aligned mapping of zeros with room for a `Process`, of which zeros are one,
    // and for the writers behind it; never unmapped.
    let process: &Process = unsafe { &*sys::map_wiped(bytes)?.cast::<Process>() };
    fill_head(origin, base);
    process.fill(base, shape.slots());
    process.writer(0).fill(shape, base.at(u64::from(SLOTS)), 0, true);
    // Last, as it says that all the rest is there.
    base.word(offset_of!(Head, magic)).store(fettle_abi::MAGIC, Release);
    Some(process)
}

/// Writes a sensor's head, all but the magic number, which says that all the rest is there.
pub(crate) fn fill_head(origin: &Origin, head: Shared) {
    let half = |offset: usize, value: u32| head.half(offset).store(value, Relaxed);
    let word = |offset: usize, value: u64| head.word(offset).store(value, Relaxed);
    let shape = &origin.shape;
    half(offset_of!(Head, version), VERSION);
    half(offset_of!(Head, version_min), VERSION_MIN);
    half(offset_of!(Head, kind), shape.kind() as u32);
    half(offset_of!(Head, policy), shape.policy() as u32);
    half(offset_of!(Head, major), origin.numbers[0]);
    half(offset_of!(Head, minor), origin.numbers[1]);
    half(offset_of!(Head, instance), origin.numbers[2]);
    half(offset_of!(Head, pid), sys::pid());
    half(offset_of!(Head, slots), shape.slots());
    half(offset_of!(Head, cell_log2), shape.cell_log2());
    half(offset_of!(Head, ring_log2), shape.ring_log2());
    word(offset_of!(Head, start_time), start_time().unwrap_or(0));
    word(offset_of!(Head, tsc_at_open), sys::rdtsc());
    word(offset_of!(Head, monotonic_ns_at_open), sys::clock_ns(libc::CLOCK_MONOTONIC));
    word(offset_of!(Head, realtime_ns_at_open), sys::clock_ns(libc::CLOCK_REALTIME));
    for (i, part) in origin.name.as_bytes().chunks(8).enumerate() {
        let mut bytes = [0; 8];
        bytes[..part.len()].copy_from_slice(part);
        word(offset_of!(Head, name) + 8 * i, u64::from_le_bytes(bytes));
    }
}

/// Opens the sensor directory, if `FETTLE_SENSORS` asks for one and it is ours alone.
fn directory() -> Option<Fd> {
    let wish = sys::environment(c"FETTLE_SENSORS")?.to_str().ok()?;
    if wish.is_empty() || wish == "0" || sys::is_privileged() {
        return None;
    }
    let run = sys::environment(c"XDG_RUNTIME_DIR").and_then(|run| run.to_str().ok());
    let mut path = Text::new();
    match run {
        _ if wish.starts_with('/') => path.write_str(wish).ok()?,
        Some(run) if run.starts_with('/') => write!(path, "{run}/fettle").ok()?,
        _ => write!(path, "/dev/shm/fettle-{}", sys::uid()).ok()?,
    }
    sys::open_directory(path.c_str())
}

/// When this process started, in ticks since boot.
fn start_time() -> Option<u64> {
    let mut buffer = [0; 1024];
    let stat = sys::read_file(c"/proc/self/stat", &mut buffer)?;
    // The second field is the program's name, which may hold anything, in parentheses.
    let end = stat.iter().rposition(|&b| b == b')')?;
    let fields = std::str::from_utf8(&stat[end + 1..]).ok()?;
    fields.split_ascii_whitespace().nth(19)?.parse().ok()
}

/// A zero-terminated text on the stack.
struct Text {
    bytes: [u8; 512],
    length: usize,
}

impl Text {
    fn new() -> Text {
        Text { bytes: [0; 512], length: 0 }
    }

    fn c_str(&self) -> &CStr {
        CStr::from_bytes_until_nul(&self.bytes).expect("the last byte is never written")
    }
}

impl Write for Text {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        let end = self.length + text.len();
        if end >= self.bytes.len() {
            return Err(std::fmt::Error);
        }
        self.bytes[self.length..end].copy_from_slice(text.as_bytes());
        self.length = end;
        Ok(())
    }
}
