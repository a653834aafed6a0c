//! Which functions call which, by the kernel's own function tracer.
//!
//! It is there in every kernel whose functions have the fentry nop, sees calls by function pointers too, and
//! names the place of each call. A tracing instance of Fettle's own does it, so that no other tracing is
//! changed. What it saw last is enough to know which functions run: it is no count.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::error::{Error, Result};

/// Where the kernel's tracer is spoken to.
const FOLDERS: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];
/// What each processor's buffer holds, KiB: some hundred thousand calls.
const BUFFER_KIB: u32 = 4096;
/// A busy processor fills its buffer in less. So the tracer looks on again and again, and what it saw is taken
/// in between, instead of running on over what it saw before.
const WINDOW: Duration = Duration::from_millis(50);
/// So many windows show which functions run: a kernel whose functions are all traced is several times slower.
const WINDOWS: u32 = 10;
/// A page of the tracer's buffer.
const PAGE: usize = 4096;
/// A page begins with its time and how much of it is used.
const PAGE_HEADER: usize = 16;
const USED: u64 = 0xf_ffff;
/// The type of the record of a function's call, `TRACE_FN`, and its size: eight bytes that all records have, the
/// function, and where the call returns to.
const FUNCTION: u64 = 1;
const RECORD: usize = 24;

/// Calls that were seen: the address that the call returns to, an address at the function's begin, how often.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen(pub BTreeMap<(u64, u64), u64>);

/// Lets the tracer run in ten short windows, and reads what it saw; in more, for `time` at most, until it saw
/// what is `awaited`.
///
/// # Errors
///
/// When the kernel's tracer is not there, or another tool uses it in a way that excludes this.
pub fn watch(time: Duration, awaited: &dyn Fn(&Seen) -> bool) -> Result<Seen> {
    let folder =
        FOLDERS.map(Path::new).into_iter().find(|folder| folder.join("instances").is_dir());
    let folder = folder.ok_or_else(|| Error::Unreadable {
        what: PathBuf::from(FOLDERS[0]),
        error: io::Error::from(io::ErrorKind::NotFound),
        next: "mount -t tracefs none /sys/kernel/tracing",
    })?;
    let instance = Instance::new(folder.join(format!("instances/fettle-{}", std::process::id())))?;
    instance.set("tracing_on", "0")?;
    instance.set("buffer_size_kb", &BUFFER_KIB.to_string())?;
    instance.set("current_tracer", "function")?;
    let mut seen = Seen::default();
    let begin = Instant::now();
    for window in 1.. {
        instance.set("tracing_on", "1")?;
        std::thread::sleep(WINDOW.min(time));
        instance.set("tracing_on", "0")?;
        instance.read(&mut seen)?;
        let is_over = begin.elapsed() >= time;
        if is_over || (window >= WINDOWS && awaited(&seen)) {
            break;
        }
    }
    instance.set("current_tracer", "nop")?;
    Ok(seen)
}

/// A tracing instance, which goes away with this value.
struct Instance(PathBuf);

impl Instance {
    fn new(folder: PathBuf) -> Result<Instance> {
        match fs::create_dir(&folder) {
            Ok(()) => Ok(Instance(folder)),
            Err(error) => Err(unusable(folder, error)),
        }
    }

    fn set(&self, name: &str, value: &str) -> Result<()> {
        let path = self.0.join(name);
        fs::write(&path, value).map_err(|error| unusable(path, error))
    }

    /// Takes all that the buffers hold.
    fn read(&self, seen: &mut Seen) -> Result<()> {
        let processors = self.0.join("per_cpu");
        let all = fs::read_dir(&processors).map_err(|error| unusable(processors.clone(), error))?;
        for processor in all.filter_map(std::result::Result::ok) {
            let path = processor.path().join("trace_pipe_raw");
            let mut file = open(&path).map_err(|error| unusable(path.clone(), error))?;
            let mut page = [0; PAGE];
            loop {
                match file.read(&mut page) {
                    Ok(0) => break,
                    Ok(bytes) => seen.add(&page[..bytes]),
                    // Nothing is left.
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    Err(error) => return Err(unusable(path, error)),
                }
            }
        }
        Ok(())
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        let _ = fs::write(self.0.join("current_tracer"), "nop");
        let _ = fs::remove_dir(&self.0);
    }
}

fn open(path: &Path) -> io::Result<fs::File> {
    use std::os::unix::fs::OpenOptionsExt;
    fs::OpenOptions::new().read(true).custom_flags(nix::libc::O_NONBLOCK).open(path)
}

fn unusable(what: PathBuf, error: io::Error) -> Error {
    let next = "which functions run is found by the kernel's function tracer; name them with --only instead";
    Error::Unreadable { what, error, next }
}

impl Seen {
    /// Whether a function was called that begins there.
    pub fn is_called(&self, range: &Range<u64>) -> bool {
        self.0.keys().any(|(_, function)| range.contains(function))
    }

    /// Adds what a page of the tracer's buffer says. Records that are cut off are left out.
    fn add(&mut self, page: &[u8]) {
        let used = word(page, 8, 8).map_or(0, |used| (used & USED) as usize);
        let mut at = PAGE_HEADER;
        let end = page.len().min(PAGE_HEADER + used);
        while let Some(head) = word(page, at, 4).filter(|_| at < end) {
            let (kind, distance) = (head & 31, head >> 5);
            let (from, length) = match kind {
                // Padding: to the page's end, or of a record that was discarded.
                29 if distance == 0 => return,
                29 => (at + 4, word(page, at + 4, 4).unwrap_or(u64::MAX)),
                // Times alone.
                30 | 31 => (at + 4, 4),
                // The length stands in front, and counts itself.
                0 => (at + 8, word(page, at + 4, 4).unwrap_or(u64::MAX).saturating_sub(4)),
                words => (at + 4, words * 4),
            };
            let Some(next) =
                usize::try_from(length).ok().and_then(|length| from.checked_add(length))
            else {
                return;
            };
            let is_call =
                kind < 29 && next - from >= RECORD && word(page, from, 2) == Some(FUNCTION);
            if let (true, Some(function), Some(back)) =
                (is_call, word(page, from + 8, 8), word(page, from + 16, 8))
            {
                *self.0.entry((back, function)).or_default() += 1;
            }
            at = next;
        }
    }
}

fn word(bytes: &[u8], at: usize, width: usize) -> Option<u64> {
    let bytes = bytes.get(at..at.checked_add(width)?)?;
    Some(bytes.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(function: u64, back: u64) -> Vec<u8> {
        let mut record = (6u32 | 100 << 5).to_le_bytes().to_vec();
        record.extend_from_slice(&[1, 0, 0, 0, 9, 0, 0, 0]);
        record.extend_from_slice(&function.to_le_bytes());
        record.extend_from_slice(&back.to_le_bytes());
        record
    }

    fn page(records: &[Vec<u8>]) -> Vec<u8> {
        let records = records.concat();
        let mut page = vec![0; 8];
        page.extend_from_slice(&(records.len() as u64 | 1 << 31).to_le_bytes());
        page.extend_from_slice(&records);
        page.resize(PAGE, 0xff);
        page
    }

    #[test]
    fn calls_are_read_between_other_records() {
        let time = [(30u32 | 5 << 5).to_le_bytes(), [0; 4]].concat();
        let discarded = [(29u32 | 1 << 5).to_le_bytes(), 8u32.to_le_bytes(), [7; 4]].concat();
        let other = [(2u32).to_le_bytes(), [3, 0, 0, 0], [0; 4]].concat();
        let mut seen = Seen::default();
        seen.add(&page(&[call(0x10, 0x99), time, other, call(0x10, 0x99)]));
        seen.add(&page(&[discarded, call(0x20, 0x77)]));
        assert_eq!(seen.0, [((0x99, 0x10), 2), ((0x77, 0x20), 1)].into());
    }

    #[test]
    fn damaged_pages_end_early() {
        let mut seen = Seen::default();
        seen.add(&[]);
        seen.add(&page(&[call(0x10, 0x99)])[..30]);
        let endless = [0u32.to_le_bytes(), u32::MAX.to_le_bytes()].concat();
        seen.add(&page(&[endless, call(1, 2)]));
        assert_eq!(seen, Seen::default());
    }
}
