//! What the recorder still has to send, on its disk.
//!
//! The recorder appends frames and never waits for anything but the disk; the sender reads behind.
//! The log is cut into *segments*, files of whole frames named by the offset of their first one, so
//! that space is freed by deleting files. The log may grow to a limit. Beyond it the oldest segment
//! is dropped whole, and its records are counted: a *gap*, which the sender reports to the
//! collector in its place.
//!
//! One rule keeps the counts right: a segment that may have been sent is never dropped. Whether the
//! collector has it is known only when it answers, and until then it is neither lost nor arrived.
//! So the log may exceed its limit by a segment.

use std::collections::VecDeque;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::frame::{Blob, Content, Counts, FIRST, HEAD, Head, LAST, Stream, THREADS_MAX};
use crate::kind::PAYLOAD_MAX;

/// Segments of a log that is full, about.
const SEGMENTS: u64 = 16;
/// Largest segment, except for one with a single larger frame: what is sent at once.
const SEGMENT_MAX: u64 = 4 << 20;
const SEGMENT_MIN: u64 = 64 << 10;

/// The sender's identity: the same whenever it connects again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// Version of this folder.
    pub version: u32,
    /// A random number that no other recording has, in hexadecimal digits.
    pub session: String,
    /// The name of the trace.
    pub name: String,
}

/// A stretch that was dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gap {
    /// Offset at which it begins.
    pub from: u64,
    /// Offset after it.
    pub to: u64,
    /// The records in it.
    pub counts: Counts,
}

#[derive(Clone, Debug)]
struct Segment {
    start: u64,
    bytes: u64,
    counts: Counts,
}

impl Segment {
    fn end(&self) -> u64 {
        self.start + self.bytes
    }
}

#[derive(Debug, Default)]
struct Inner {
    segments: VecDeque<Segment>,
    /// In order; adjacent ones are merged unless the earlier one may have been sent.
    gaps: VecDeque<Gap>,
    /// Of the last segment.
    file: Option<File>,
    /// Everything before this offset is at the collector.
    acked: u64,
    /// Everything before this offset may have been sent.
    sent: u64,
    /// Where the next frame goes.
    end: u64,
    /// Where the ending begins, which is not dropped.
    ending: Option<u64>,
    /// The ending is there, to its end.
    whole: bool,
    /// Everything is in the log.
    closed: bool,
    dropped: Counts,
}

/// The log of one recording.
#[derive(Debug)]
pub struct Log {
    folder: PathBuf,
    identity: Identity,
    begin: Vec<u8>,
    limit: u64,
    inner: Mutex<Inner>,
    grown: Condvar,
    _lock: File,
}

/// What comes next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// Whole frames: a part of a file.
    Frames {
        /// The file.
        path: PathBuf,
        /// Where in it.
        at: u64,
        /// How many bytes.
        bytes: u64,
        /// Offset after them.
        to: u64,
    },
    /// A stretch that is not there any more.
    Gap(Gap),
    /// Nothing yet.
    Nothing,
    /// All has been sent.
    End,
}

/// The state of a log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// Bytes that are not acknowledged.
    pub waiting_bytes: u64,
    /// What was dropped so far.
    pub dropped: Counts,
    /// Whether everything is in it.
    pub closed: bool,
}

impl Log {
    /// Makes the folder of a recording that begins: `begin` tells the collector what it is.
    ///
    /// # Errors
    ///
    /// When the folder holds anything already, or cannot be written.
    pub fn create(folder: &Path, name: &str, begin: &[u8], limit: u64) -> Result<Log> {
        if fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_some()) {
            let reason = io::ErrorKind::AlreadyExists.into();
            return Err(Error::File { action: "create", path: folder.to_owned(), reason });
        }
        let segments = folder.join("log");
        fs::create_dir_all(&segments).map_err(Error::file("create", &segments))?;
        let lock = lock(folder)?;
        let session = crate::key::hex(&crate::key::random::<16>()?);
        let identity = Identity { version: 1, session, name: name.to_owned() };
        write_new(&folder.join("begin"), begin)?;
        let text = serde_json::to_vec_pretty(&identity).expect("plain data");
        write_new(&folder.join("relay.json"), &text)?;
        Ok(Log {
            folder: folder.to_owned(),
            identity,
            begin: begin.to_vec(),
            limit,
            inner: Mutex::default(),
            grown: Condvar::new(),
            _lock: lock,
        })
    }

    /// Opens the log of an earlier recorder, to send the rest of it. Nothing is appended any more.
    ///
    /// # Errors
    ///
    /// When the folder is none, is in use, or cannot be read.
    pub fn open(folder: &Path) -> Result<Log> {
        let path = folder.join("relay.json");
        let text = fs::read(&path).map_err(Error::file("read", &path))?;
        let broken = |problem: String| Error::Unusable { path: path.clone(), problem };
        let identity: Identity =
            serde_json::from_slice(&text).map_err(|error| broken(error.to_string()))?;
        if identity.version != 1 {
            let text = format!("written by another fettle, as version {}", identity.version);
            return Err(broken(text));
        }
        let lock = lock(folder)?;
        let begin = folder.join("begin");
        let begin = fs::read(&begin).map_err(Error::file("read", &begin))?;
        let mut inner = Inner { closed: true, ..Inner::default() };
        if let Ok(gaps) = fs::read(folder.join("gaps.json")) {
            inner.gaps = serde_json::from_slice(&gaps).map_err(|e| broken(e.to_string()))?;
        }
        let mut starts = Vec::new();
        let segments = folder.join("log");
        for entry in fs::read_dir(&segments).map_err(Error::file("list", &segments))? {
            let name = entry.map_err(Error::file("list", &segments))?.file_name();
            starts.extend(name.to_str().and_then(|name| name.parse::<u64>().ok()));
        }
        starts.sort_unstable();
        for start in starts {
            let path = segment_path(folder, start);
            let found = scan(&path)?;
            inner.whole |= found.whole;
            inner.segments.push_back(Segment { start, bytes: found.bytes, counts: found.counts });
        }
        let first_gap = inner.gaps.front().map(|gap| gap.from);
        let first = inner.segments.front().map(|segment| segment.start);
        inner.acked = first.into_iter().chain(first_gap).min().unwrap_or(0);
        inner.sent = inner.acked;
        let ends = inner.segments.back().map(Segment::end);
        inner.end = ends.into_iter().chain(inner.gaps.back().map(|gap| gap.to)).max().unwrap_or(0);
        inner.gaps.iter().for_each(|gap| inner.dropped.add_all(&gap.counts));
        Ok(Log {
            folder: folder.to_owned(),
            identity,
            begin,
            limit: u64::MAX,
            inner: Mutex::new(inner),
            grown: Condvar::new(),
            _lock: lock,
        })
    }

    /// Whether a folder holds one.
    pub fn is_one(folder: &Path) -> bool {
        folder.join("relay.json").is_file() && folder.join("log").is_dir()
    }

    /// Its folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Its identity.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// What the recording is.
    pub fn begin(&self) -> &[u8] {
        &self.begin
    }

    /// Its state.
    pub fn standing(&self) -> Standing {
        let inner = self.lock();
        let waiting_bytes =
            inner.segments.iter().map(|s| s.end() - s.start.max(inner.acked).min(s.end()));
        Standing {
            waiting_bytes: waiting_bytes.sum(),
            dropped: inner.dropped,
            closed: inner.closed,
        }
    }

    /// Appends whole records of a stream whose records have one size.
    ///
    /// # Errors
    ///
    /// When the disk is full. What was appended before is whole.
    pub fn append(&self, stream: Stream, bytes: &[u8]) -> Result<()> {
        if stream.thread >= THREADS_MAX {
            return Err(Error::Peer(format!("there are more than {THREADS_MAX} threads")));
        }
        let record = stream.content.record_bytes().unwrap_or(1);
        let most = (PAYLOAD_MAX.min(self.segment_bytes() as usize) / record).max(1) * record;
        for part in bytes.chunks(most) {
            let head = Head::append(stream, (part.len() / record) as u32, part.len());
            self.put(head, part)?;
        }
        Ok(())
    }

    /// Appends what counts as so many events of the kernel, at most [`PAYLOAD_MAX`] bytes.
    ///
    /// # Errors
    ///
    /// As [`Log::append`].
    pub fn append_kernel(&self, records: u32, bytes: &[u8]) -> Result<()> {
        let stream = Stream { content: Content::Kernel, thread: 0 };
        self.put(Head::append(stream, records, bytes.len()), bytes)
    }

    /// Appends something that has to arrive whole. After the [`Blob::Ending`] nothing comes.
    ///
    /// # Errors
    ///
    /// As [`Log::append`].
    pub fn append_blob(&self, blob: Blob, bytes: &[u8]) -> Result<()> {
        if blob == Blob::Ending {
            let mut inner = self.lock();
            inner.ending = Some(inner.end);
        }
        let count = bytes.len().div_ceil(PAYLOAD_MAX).max(1);
        for part in 0..count {
            let from = part * PAYLOAD_MAX;
            let payload = &bytes[from..bytes.len().min(from + PAYLOAD_MAX)];
            let first = if part == 0 { FIRST } else { 0 };
            let last = if part + 1 == count { LAST } else { 0 };
            self.put(Head::blob(blob, part as u32, first | last, payload.len()), payload)?;
        }
        Ok(())
    }

    /// Whether its recording ended properly.
    pub(crate) fn is_whole(&self) -> bool {
        self.lock().whole
    }

    /// Whether all of a recording that ended properly is before this offset.
    pub(crate) fn is_whole_at(&self, offset: u64) -> bool {
        let inner = self.lock();
        inner.whole && inner.end == offset
    }

    /// Nothing comes any more.
    pub fn close(&self) {
        self.lock().closed = true;
        self.grown.notify_all();
    }

    fn segment_bytes(&self) -> u64 {
        (self.limit / SEGMENTS).clamp(SEGMENT_MIN, SEGMENT_MAX)
    }

    fn put(&self, head: Head, payload: &[u8]) -> Result<()> {
        debug_assert_eq!(Head::decode(&head.encode()), Ok(head));
        let mut inner = self.lock();
        let inner = &mut *inner;
        let bytes = head.frame_bytes();
        self.make_room(inner, bytes)?;
        let room = inner
            .segments
            .back()
            .is_some_and(|last| inner.file.is_some() && last.bytes + bytes <= self.segment_bytes());
        if !room {
            let path = segment_path(&self.folder, inner.end);
            let file = OpenOptions::new().write(true).create_new(true).open(&path);
            inner.file = Some(file.map_err(Error::file("create", &path))?);
            let segment = Segment { start: inner.end, bytes: 0, counts: Counts::default() };
            inner.segments.push_back(segment);
        }
        let last = inner.segments.back_mut().expect("made above");
        let file = inner.file.as_mut().expect("made above");
        let written = file.write_all(&head.encode()).and_then(|()| file.write_all(payload));
        if let Err(reason) = written {
            // Truncated to the last whole frame. If that fails too, nothing more is written to this
            // file.
            let path = segment_path(&self.folder, last.start);
            let back = file
                .set_len(last.bytes)
                .and_then(|()| io::Seek::seek(file, io::SeekFrom::Start(last.bytes)).map(drop));
            if back.is_err() || last.bytes == 0 {
                inner.file = None;
            }
            if last.bytes == 0 {
                let _ = fs::remove_file(&path);
                inner.segments.pop_back();
            }
            return Err(Error::File { action: "write", path, reason });
        }
        last.bytes += bytes;
        last.counts.add(&head);
        inner.end += bytes;
        if head.blob_of() == Some(Blob::Ending) && head.flags & LAST != 0 {
            (inner.whole, inner.closed) = (true, true);
        }
        self.grown.notify_all();
        Ok(())
    }

    /// Drops the oldest segments until there is room.
    fn make_room(&self, inner: &mut Inner, more: u64) -> Result<()> {
        loop {
            let held: u64 = inner.segments.iter().map(|segment| segment.bytes).sum();
            if held + more <= self.limit {
                return Ok(());
            }
            let last = inner.segments.len().saturating_sub(1);
            let kept_from = inner.ending.unwrap_or(u64::MAX);
            let may_go = |(at, segment): &(usize, &Segment)| {
                let on_its_way = segment.start < inner.sent;
                *at < last && !on_its_way && segment.end() <= kept_from
            };
            let Some((at, _)) = inner.segments.iter().enumerate().find(may_go) else {
                return Ok(());
            };
            let gone = inner.segments.remove(at).expect("found above");
            let gap = Gap { from: gone.start, to: gone.end(), counts: gone.counts };
            inner.dropped.add_all(&gap.counts);
            match inner.gaps.back_mut().filter(|g| g.to == gap.from && g.from >= inner.sent) {
                Some(before) => {
                    before.to = gap.to;
                    before.counts.add_all(&gap.counts);
                }
                None => inner.gaps.push_back(gap),
            }
            self.keep_gaps(inner)?;
            remove(&segment_path(&self.folder, gone.start))?;
        }
    }

    /// Another process than this must know, too, what was dropped.
    fn keep_gaps(&self, inner: &Inner) -> Result<()> {
        let text = serde_json::to_vec(&inner.gaps).expect("plain data");
        let (path, partial) = (self.folder.join("gaps.json"), self.folder.join("gaps.partial"));
        let write = fs::write(&partial, text).and_then(|()| fs::rename(&partial, &path));
        write.map_err(Error::file("write", &path))
    }

    /// What to send next, which counts as sent from now on; waits at most `patience` for it.
    pub fn next(&self, patience: Duration) -> Next {
        let mut inner = self.lock();
        loop {
            let from = inner.sent;
            if let Some(gap) = inner.gaps.iter().find(|gap| gap.from == from).copied() {
                inner.sent = gap.to;
                return Next::Gap(gap);
            }
            let here = |segment: &&Segment| segment.start <= from && from < segment.end();
            if let Some(segment) = inner.segments.iter().find(here) {
                let path = segment_path(&self.folder, segment.start);
                let (at, to) = (from - segment.start, segment.end());
                inner.sent = to;
                return Next::Frames { path, at, bytes: to - from, to };
            }
            if inner.closed {
                return Next::End;
            }
            let (now, waited) =
                self.grown.wait_timeout(inner, patience).unwrap_or_else(PoisonError::into_inner);
            inner = now;
            if waited.timed_out() && inner.sent == inner.end && !inner.closed {
                return Next::Nothing;
            }
        }
    }

    /// The collector has everything up to here.
    ///
    /// # Errors
    ///
    /// When it claims what it cannot have, or files cannot be removed.
    pub fn acknowledge(&self, offset: u64) -> Result<()> {
        let mut inner = self.lock();
        if offset < inner.acked || offset > inner.sent {
            return Err(Error::Peer(format!(
                "the collector acknowledged offset {offset}, of {} to {} on the way",
                inner.acked, inner.sent
            )));
        }
        inner.acked = offset;
        inner.gaps.retain(|gap| gap.to > offset);
        while let Some(first) = inner.segments.front() {
            let whole = first.end() <= offset;
            // The last one still grows.
            let grows = inner.segments.len() == 1 && !inner.closed;
            if !whole || grows {
                break;
            }
            let first = inner.segments.pop_front().expect("seen above");
            remove(&segment_path(&self.folder, first.start))?;
        }
        Ok(())
    }

    /// A new connection: the collector has everything up to here, and what was on its way beyond
    /// has not arrived.
    ///
    /// # Errors
    ///
    /// When it has less than it acknowledged before, which is not here any more.
    pub fn resume(&self, offset: u64) -> Result<()> {
        let acked = self.lock().acked;
        if offset < acked {
            return Err(Error::Peer(format!(
                "the collector has lost what it had acknowledged: it has {offset} bytes of {acked}"
            )));
        }
        // What an earlier connection has read in the meantime cannot be more than this.
        let mut inner = self.lock();
        if inner.sent < offset {
            inner.sent = offset.min(inner.end);
        }
        drop(inner);
        self.acknowledge(offset)?;
        self.lock().sent = offset;
        Ok(())
    }

    /// Removes the folder: everything has arrived.
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn remove(&self) -> Result<()> {
        fs::remove_dir_all(&self.folder).map_err(Error::file("remove", &self.folder))
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // No thread panics with the lock held and a change half made.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn segment_path(folder: &Path, start: u64) -> PathBuf {
    folder.join("log").join(format!("{start:020}"))
}

fn write_new(path: &Path, bytes: &[u8]) -> Result<()> {
    fs::write(path, bytes).map_err(Error::file("write", path))
}

fn remove(path: &Path) -> Result<()> {
    fs::remove_file(path).map_err(Error::file("remove", path))
}

/// Makes sure that a log has one user.
fn lock(folder: &Path) -> Result<File> {
    let path = folder.join("lock");
    let file = OpenOptions::new().create(true).truncate(false).write(true).open(&path);
    let file = file.map_err(Error::file("create", &path))?;
    match file.try_lock() {
        Err(fs::TryLockError::WouldBlock) => {
            let reason = io::Error::other("a recording still uses it");
            Err(Error::File { action: "open", path: folder.to_owned(), reason })
        }
        _ => Ok(file),
    }
}

/// What a segment holds.
#[derive(Debug, Default)]
struct Scan {
    /// Bytes of its whole frames. What follows them was cut off with its recording.
    bytes: u64,
    counts: Counts,
    /// Whether the last part of an ending is among them.
    whole: bool,
}

fn scan(path: &Path) -> Result<Scan> {
    let bytes = fs::read(path).map_err(Error::file("read", path))?;
    let mut found = Scan::default();
    let mut at = 0;
    while let Some(head) = bytes.get(at..).and_then(|rest| rest.first_chunk::<HEAD>()) {
        let Ok(head) = Head::decode(head) else { break };
        let end = at + head.frame_bytes() as usize;
        if end > bytes.len() {
            break;
        }
        found.counts.add(&head);
        found.whole |= head.blob_of() == Some(Blob::Ending) && head.flags & LAST != 0;
        at = end;
    }
    found.bytes = at as u64;
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALLS: Stream = Stream { content: Content::Calls, thread: 1 };

    fn log(folder: &Path, limit: u64) -> Log {
        Log::create(&folder.join("log"), "test", b"begin", limit).unwrap()
    }

    /// Offsets and what is dropped before each.
    fn drain(log: &Log) -> (u64, Counts) {
        let (mut read, mut lost) = (0, Counts::default());
        loop {
            match log.next(Duration::ZERO) {
                Next::Frames { path, at, bytes, .. } => {
                    let file = fs::read(path).unwrap();
                    assert!(file.len() as u64 >= at + bytes);
                    read += bytes;
                }
                Next::Gap(gap) => lost.add_all(&gap.counts),
                Next::Nothing | Next::End => return (read, lost),
            }
        }
    }

    #[test]
    fn what_has_arrived_is_given_back() {
        let folder = tempfile::tempdir().unwrap();
        let log = log(folder.path(), 1 << 30);
        for _ in 0..100 {
            log.append(CALLS, &[7; 1 << 16]).unwrap();
        }
        let all = 100 * ((1 << 16) + 16);
        assert_eq!(drain(&log), (all, Counts::default()));
        assert_eq!(log.standing().waiting_bytes, all);
        log.acknowledge(all).unwrap();
        assert_eq!(log.standing().waiting_bytes, 0);
        assert_eq!(fs::read_dir(log.folder().join("log")).unwrap().count(), 1);
        assert!(log.acknowledge(all + 1).is_err());
    }

    #[test]
    fn the_oldest_goes_when_there_is_no_room_and_is_counted() {
        let folder = tempfile::tempdir().unwrap();
        let log = log(folder.path(), 1 << 20);
        let appended = 400;
        for _ in 0..appended {
            log.append(CALLS, &[7; 16 * 1000]).unwrap();
        }
        let Standing { dropped, waiting_bytes, .. } = log.standing();
        assert!(waiting_bytes <= 1 << 20);
        let (read, lost) = drain(&log);
        assert_eq!(lost, dropped);
        assert_eq!(read / 16_016 * 1000 + lost.sum(), appended * 1000);
    }

    #[test]
    fn what_is_on_its_way_is_neither_dropped_nor_counted_before_it_is_known() {
        let folder = tempfile::tempdir().unwrap();
        let log = log(folder.path(), 1 << 20);
        let frame = 16_016;
        log.append(CALLS, &[7; 16 * 1000]).unwrap();
        let Next::Frames { to, .. } = log.next(Duration::ZERO) else { panic!() };
        assert_eq!(to, frame);
        for _ in 0..400 {
            log.append(CALLS, &[7; 16 * 1000]).unwrap();
        }
        let dropped = log.standing().dropped;
        // It had arrived after all.
        log.resume(to).unwrap();
        let (read, lost) = drain(&log);
        assert_eq!((read + frame) / frame * 1000 + lost.sum(), 401 * 1000);
        assert_eq!(lost, dropped);
        // It had not.
        log.resume(to).unwrap();
        assert_eq!(drain(&log), (read, lost));
        assert!(log.resume(to - 1).is_err());
    }

    #[test]
    fn the_rest_is_found_again_with_what_was_dropped() {
        let folder = tempfile::tempdir().unwrap();
        let first = log(folder.path(), 1 << 20);
        for _ in 0..200 {
            first.append(CALLS, &[7; 16 * 1000]).unwrap();
        }
        first.append_blob(Blob::Ending, &vec![1; 3 << 20]).unwrap();
        let standing = first.standing();
        let path = first.folder().to_owned();
        assert!(Log::open(&path).is_err(), "it is in use");
        drop(first);
        // A frame that was cut off.
        let last = fs::read_dir(path.join("log")).unwrap().map(|e| e.unwrap().path()).max();
        let mut file = OpenOptions::new().append(true).open(last.unwrap()).unwrap();
        file.write_all(&Head::append(CALLS, 1, 16).encode()).unwrap();
        let log = Log::open(&path).unwrap();
        assert_eq!(log.standing(), standing);
        let (_, lost) = drain(&log);
        assert_eq!(lost, standing.dropped);
        assert_eq!(log.next(Duration::ZERO), Next::End);
    }
}
