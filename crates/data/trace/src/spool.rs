//! Spools: raw records of one thread each, appended while the program runs.
//!
//! A spool only ever grows by whole records. When the system takes just a part of a write (disk
//! full, quota), the file is cut back to the last whole record at once; when Fettle itself is
//! killed between, the reader does the same and counts it.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use fettle_abi::record::CallRecord;

use crate::column::open_regular;
use crate::error::{Error, Result};
use crate::finish::Finish;
use crate::switched_out::SwitchedOut;

/// Bytes kept back before they are written: few system calls, and little lost if Fettle dies.
const BUFFER: usize = 64 << 10;
/// Spools kept open at once, below the usual limit of 1024 files per process.
const OPEN_MAX: usize = 256;

/// What the records of a spool are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Content {
    /// Calls.
    Calls,
    /// Values that calls were given and gave back.
    Values,
    /// When the thread was switched out: three words each.
    Switches,
}

/// Where the records of a recording go instead of a folder on this machine.
pub trait Outlet: Send + Sync + fmt::Debug {
    /// Whole records of one thread, in order.
    ///
    /// # Errors
    ///
    /// Why they were not stored; none of them is then.
    fn append(&self, content: Content, thread: u32, records: &[u8]) -> io::Result<()>;

    /// What gives records their names, as far as it is known.
    ///
    /// # Errors
    ///
    /// Why it was not stored.
    fn checkpoint(&self, tables: &Finish) -> io::Result<()>;
}

/// The file of a thread's spool, within the trace's folder.
pub fn spool_file(content: Content, thread: u32) -> String {
    format!("spool/{thread}{}", content.suffix())
}

impl Content {
    fn suffix(self) -> &'static str {
        match self {
            Content::Calls => ".calls",
            Content::Values => ".values",
            Content::Switches => ".switches",
        }
    }

    /// Bytes of one record.
    fn record(self) -> usize {
        match self {
            Content::Calls | Content::Values => size_of::<CallRecord>(),
            Content::Switches => 24,
        }
    }
}

/// The folder of spools within a trace.
pub(crate) fn folder(trace: &Path) -> PathBuf {
    trace.join("spool")
}

/// What a recording that ended properly left besides its tables; it is there until the records are
/// converted.
pub(crate) fn ending_path(trace: &Path) -> PathBuf {
    folder(trace).join("ending.json")
}

/// The file that is locked while a recorder writes into a trace.
fn lock_path(trace: &Path) -> PathBuf {
    folder(trace).join("lock")
}

/// Takes the recording lock; the kernel gives it back when the holder ends, however it ends.
pub(crate) fn lock(trace: &Path) -> Result<File> {
    let path = lock_path(trace);
    let file = OpenOptions::new().create(true).truncate(false).write(true).open(&path);
    let file = file.map_err(|e| Error::io("create", &path, e))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(fs::TryLockError::WouldBlock) => Err(Error::Busy { path: trace.to_owned() }),
        // A file system without locks: recording into it is allowed, at the user's care.
        Err(fs::TryLockError::Error(_)) => Ok(file),
    }
}

/// All spools of one kind of a recording.
#[derive(Debug)]
pub(crate) struct Spools {
    folder: PathBuf,
    content: Content,
    outlet: Option<Arc<dyn Outlet>>,
    /// By thread index.
    spools: Vec<Option<Spool>>,
    open: usize,
    /// Counts appends, to find the spool that has rested longest.
    clock: u64,
    /// Bytes of all appends.
    appended: u64,
}

/// One thread's spool.
#[derive(Debug)]
struct Spool {
    path: PathBuf,
    outlet: Option<(Arc<dyn Outlet>, Content, u32)>,
    file: Option<File>,
    buffer: Vec<u8>,
    /// Bytes safely in the file, whole records.
    stored: u64,
    last_used: u64,
}

impl Spools {
    pub(crate) fn new(trace: &Path, content: Content) -> Spools {
        let folder = folder(trace);
        Spools { folder, content, outlet: None, spools: Vec::new(), open: 0, clock: 0, appended: 0 }
    }

    /// Spools that lie elsewhere.
    pub(crate) fn elsewhere(outlet: Arc<dyn Outlet>, content: Content) -> Spools {
        Spools { outlet: Some(outlet), ..Spools::new(Path::new(""), content) }
    }

    /// Records that were appended so far.
    pub(crate) fn records(&self) -> u64 {
        self.appended / self.content.record() as u64
    }

    /// Appends whole records.
    pub(crate) fn append(&mut self, thread: u32, bytes: &[u8]) -> Result<()> {
        if !bytes.len().is_multiple_of(self.content.record()) {
            return Err(Error::NotRecords { thread, bytes: bytes.len() });
        }
        let slot = thread as usize;
        if slot >= self.spools.len() {
            self.spools.resize_with(slot + 1, || None);
        }
        let spool = self.spools[slot].get_or_insert_with(|| Spool {
            path: self.folder.join(format!("{thread}{}", self.content.suffix())),
            outlet: self.outlet.clone().map(|outlet| (outlet, self.content, thread)),
            file: None,
            buffer: Vec::new(),
            stored: 0,
            last_used: 0,
        });
        self.clock += 1;
        self.appended += bytes.len() as u64;
        spool.last_used = self.clock;
        if spool.buffer.len() + bytes.len() < BUFFER {
            spool.buffer.extend_from_slice(bytes);
            return Ok(());
        }
        if spool.file.is_none() && spool.outlet.is_none() {
            self.make_room()?;
            self.open += 1;
        }
        let spool = self.spools[slot].as_mut().expect("made above");
        spool.flush()?;
        if bytes.len() < BUFFER {
            spool.buffer.extend_from_slice(bytes);
            return Ok(());
        }
        spool.write(bytes)
    }

    /// Hands everything kept back to the system.
    pub(crate) fn flush(&mut self) -> Result<()> {
        for slot in 0..self.spools.len() {
            let Some(spool) = &self.spools[slot] else { continue };
            if spool.buffer.is_empty() {
                continue;
            }
            if spool.file.is_none() && spool.outlet.is_none() {
                self.make_room()?;
                self.open += 1;
            }
            self.spools[slot].as_mut().expect("checked above").flush()?;
        }
        Ok(())
    }

    /// Closes the spool that has rested longest if too many are open.
    fn make_room(&mut self) -> Result<()> {
        if self.open < OPEN_MAX {
            return Ok(());
        }
        let open = self.spools.iter_mut().flatten().filter(|spool| spool.file.is_some());
        if let Some(rested) = open.min_by_key(|spool| spool.last_used) {
            rested.flush()?;
            rested.file = None;
            self.open -= 1;
        }
        Ok(())
    }
}

impl Spool {
    fn flush(&mut self) -> Result<()> {
        let buffer = std::mem::take(&mut self.buffer);
        let result = self.write(&buffer);
        self.buffer = buffer;
        if result.is_ok() {
            self.buffer.clear();
        }
        result
    }

    /// Writes whole records or, after an error, none: the file is cut back.
    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        if let Some((outlet, content, thread)) = &self.outlet {
            let stored = outlet.append(*content, *thread, bytes);
            return stored.map_err(|e| Error::io("write", &self.path, e));
        }
        if self.file.is_none() {
            let file = OpenOptions::new().create(true).append(true).open(&self.path);
            self.file = Some(file.map_err(|e| Error::io("create", &self.path, e))?);
        }
        let file = self.file.as_mut().expect("opened above");
        if let Err(e) = file.write_all(bytes) {
            // Cutting needs no space. If even that fails, the reader cuts.
            let _ = file.set_len(self.stored);
            return Err(Error::io("write", &self.path, e));
        }
        self.stored += bytes.len() as u64;
        Ok(())
    }
}

/// A spool that lies in a trace. There may be more of them than files may be open.
#[derive(Clone, Debug)]
pub(crate) struct SpoolFile {
    path: PathBuf,
    record: usize,
    /// Thread index, from its name.
    pub(crate) thread: u32,
    /// Whole records in it.
    pub(crate) records: u64,
    /// Whether bytes of a torn record follow them.
    pub(crate) torn: bool,
    /// When it was last written to, nanoseconds since 1970; 0 if not known.
    pub(crate) written_unix_ns: u64,
}

/// A spool that is being read.
#[derive(Debug)]
pub(crate) struct SpoolReader {
    path: PathBuf,
    file: File,
    record: usize,
    /// Whole records in it.
    pub(crate) records: u64,
}

impl SpoolFile {
    /// Opens it.
    pub(crate) fn open(&self) -> Result<SpoolReader> {
        let SpoolFile { path, record, records, .. } = self.clone();
        let file = open_regular(&path).map_err(|e| Error::io("open", &path, e))?;
        Ok(SpoolReader { path, file, record, records })
    }
}

impl SpoolReader {
    /// Reads `count` records of `WORDS` words from `first` on, which must exist.
    fn words<const WORDS: usize, T>(
        &self,
        first: u64,
        count: usize,
        make: impl Fn([u64; WORDS]) -> T,
        out: &mut Vec<T>,
    ) -> Result<()> {
        debug_assert_eq!(WORDS * 8, self.record);
        out.clear();
        out.reserve(count);
        let mut bytes = [0; 1 << 14];
        let most = bytes.len() / self.record;
        let mut at = first * self.record as u64;
        let mut left = count;
        while left > 0 {
            let part = &mut bytes[..left.min(most) * self.record];
            self.file.read_exact_at(part, at).map_err(|e| Error::io("read", &self.path, e))?;
            out.extend(part.chunks_exact(self.record).map(|record| {
                let words = record.as_chunks::<8>().0;
                make(std::array::from_fn(|i| u64::from_le_bytes(words[i])))
            }));
            at += part.len() as u64;
            left -= part.len() / self.record;
        }
        Ok(())
    }

    /// Reads records of calls.
    pub(crate) fn read(&self, first: u64, count: usize, out: &mut Vec<CallRecord>) -> Result<()> {
        let make = |[start_and_id_high, ticks_and_id_low]: [u64; 2]| CallRecord {
            start_and_id_high,
            ticks_and_id_low,
        };
        self.words(first, count, make, out)
    }

    /// Reads records of switches.
    pub(crate) fn switches(
        &self,
        first: u64,
        count: usize,
        out: &mut Vec<SwitchedOut>,
    ) -> Result<()> {
        self.words(first, count, SwitchedOut::from_words, out)
    }
}

/// Every spool of a trace with this content, by thread index.
pub(crate) fn all(trace: &Path, content: Content) -> Result<Vec<SpoolFile>> {
    let folder = folder(trace);
    let mut spools = Vec::new();
    let entries = match fs::read_dir(&folder) {
        Ok(entries) => entries,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(spools),
        Err(e) => return Err(Error::io("list", &folder, e)),
    };
    for entry in entries {
        let path = entry.map_err(|e| Error::io("list", &folder, e))?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let Some(thread) = name.strip_suffix(content.suffix()).and_then(|n| n.parse().ok()) else {
            continue;
        };
        let metadata = fs::metadata(&path).map_err(|e| Error::io("measure", &path, e))?;
        let bytes = metadata.len();
        let written = metadata.modified().ok().and_then(|t| t.duration_since(UNIX_EPOCH).ok());
        let written_unix_ns = written.map_or(0, |since| since.as_nanos() as u64);
        let record = content.record();
        let (records, rest) = (bytes / record as u64, bytes % record as u64);
        let torn = rest != 0;
        spools.push(SpoolFile { path, record, thread, records, torn, written_unix_ns });
    }
    spools.sort_by_key(|spool| spool.thread);
    Ok(spools)
}

/// Removes the spools, once their records are in columns.
pub(crate) fn remove_all(trace: &Path) -> Result<()> {
    let folder = folder(trace);
    match fs::remove_dir_all(&folder) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(Error::io("remove", &folder, e)),
        _ => Ok(()),
    }
}

/// Fails with [`Error::Busy`] if a recorder is writing into the trace.
pub(crate) fn try_lock_existing(trace: &Path) -> Result<()> {
    let Ok(file) = File::open(lock_path(trace)) else { return Ok(()) };
    match file.try_lock() {
        Err(fs::TryLockError::WouldBlock) => Err(Error::Busy { path: trace.to_owned() }),
        _ => Ok(()),
    }
}
