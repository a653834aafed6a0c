//! Records on disk while a recording runs, and in order of time afterwards.
//!
//! A spool is a row of frames: processor, number of bytes, and records as they lay in the processor's
//! ring. After each round over all rings comes a *mark*, with both clocks as they were before the round.
//! What was written before that time is in the spool by then, so records older than the mark before can
//! be reported: nothing older comes any more. That takes the memory of two rounds, however long the
//! recording.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::Path;

use crate::raw;
use crate::ring;

/// One time on two clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// Time-stamp counter.
    pub tsc: u64,
    /// `CLOCK_MONOTONIC` in nanoseconds.
    pub monotonic_ns: u64,
}

/// The processor of a mark.
const MARK: u32 = u32::MAX;
/// No ring is larger.
const FRAME_MAX: u32 = 1 << 30;
/// Memory is given back in pieces of so many records.
const BUFFER: usize = 1 << 20;

/// Takes whole frames with the number of records in them, in place of a file. At most
/// [`FRAMES_MAX`] bytes at a time.
pub type TakeFrames = Box<dyn FnMut(u32, &[u8]) -> io::Result<()> + Send>;

/// Most bytes that [`TakeFrames`] is given at once.
pub const FRAMES_MAX: usize = 512 << 10;

enum Place {
    File(BufWriter<File>),
    Elsewhere {
        take: TakeFrames,
        /// Whole frames that are kept back, and the records in them.
        frames: Vec<u8>,
        records: u32,
    },
}

/// A spool being written.
pub struct SpoolWriter {
    place: Place,
}

impl std::fmt::Debug for SpoolWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.place {
            Place::File(file) => write!(f, "SpoolWriter({:?})", file.get_ref()),
            Place::Elsewhere { .. } => write!(f, "SpoolWriter(elsewhere)"),
        }
    }
}

/// The head of a frame.
fn head(cpu: u32, len: usize) -> [u8; 8] {
    let mut head = [0; 8];
    head[..4].copy_from_slice(&cpu.to_le_bytes());
    head[4..].copy_from_slice(&(len as u32).to_le_bytes());
    head
}

impl SpoolWriter {
    /// Creates the file.
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn create(path: &Path) -> io::Result<SpoolWriter> {
        let file = BufWriter::with_capacity(BUFFER, File::create_new(path)?);
        Ok(SpoolWriter { place: Place::File(file) })
    }

    /// Hands frames to `take`. Those that are put one behind the other in this order are a spool, and
    /// still one when some in between are missing.
    pub fn to(take: TakeFrames) -> SpoolWriter {
        SpoolWriter { place: Place::Elsewhere { take, frames: Vec::new(), records: 0 } }
    }

    /// Appends what a processor's ring held.
    ///
    /// # Errors
    ///
    /// The system's; a disk that is full.
    pub fn append(&mut self, cpu: u32, records: &[u8]) -> io::Result<()> {
        if let Place::File(file) = &mut self.place {
            file.write_all(&head(cpu, records.len()))?;
            return file.write_all(records);
        }
        // A ring may hold more than is handed on at once: it is cut between two records.
        let (mut first, mut end, mut count) = (0, 0, 0);
        for range in ring::records(records) {
            let next = range.end.next_multiple_of(8).min(records.len());
            if next - first > FRAMES_MAX / 2 && end > first {
                self.frame(cpu, count, &records[first..end])?;
                (first, count) = (end, 0);
            }
            (end, count) = (next, count + 1);
        }
        if end > first { self.frame(cpu, count, &records[first..end]) } else { Ok(()) }
    }

    fn frame(&mut self, cpu: u32, count: u32, bytes: &[u8]) -> io::Result<()> {
        if let Place::Elsewhere { frames, .. } = &self.place
            && frames.len() + 8 + bytes.len() > FRAMES_MAX
        {
            self.flush()?;
        }
        match &mut self.place {
            Place::File(file) => {
                file.write_all(&head(cpu, bytes.len()))?;
                file.write_all(bytes)
            }
            Place::Elsewhere { frames, records, .. } => {
                frames.extend_from_slice(&head(cpu, bytes.len()));
                frames.extend_from_slice(bytes);
                *records += count;
                Ok(())
            }
        }
    }

    /// Ends a round over all rings, which began after `moment`.
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn mark(&mut self, moment: Moment) -> io::Result<()> {
        let clocks = [moment.tsc, moment.monotonic_ns].map(u64::to_le_bytes);
        self.frame(MARK, 0, clocks.as_flattened())
    }

    /// Hands everything to the system.
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn flush(&mut self) -> io::Result<()> {
        match &mut self.place {
            Place::File(file) => file.flush(),
            Place::Elsewhere { take, frames, records } => {
                let (bytes, count) = (std::mem::take(frames), std::mem::take(records));
                if bytes.is_empty() { Ok(()) } else { take(count, &bytes) }
            }
        }
    }
}

/// What was found besides the records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Records.
    pub records: u64,
    /// Whether the end was cut off.
    pub torn: bool,
}

/// A record with its place in the round's bytes.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    time_ns: u64,
    cpu: u32,
    start: u32,
    len: u32,
}

/// Reads a spool and hands its records to `take`, in order of time: their time in ticks of the
/// time-stamp counter, the processor, and the record. `begin` was read before the first record.
///
/// # Errors
///
/// What `take` answers, and the system's as `E`.
pub fn read<E: From<io::Error>>(
    path: &Path,
    begin: Moment,
    take: impl FnMut(u64, u32, &[u8]) -> Result<(), E>,
) -> Result<Found, E> {
    Reader::open(path, begin)?.finish(take)
}

/// Reads a spool that may still be written.
///
/// It keeps the file open, so it can still be read to its end when the recording has removed it.
#[derive(Debug)]
pub struct Reader {
    file: BufReader<File>,
    /// Where the next frame begins.
    at: u64,
    found: Found,
    /// Records that have not been reported, and where they lie in `bytes`.
    waiting: Vec<Waiting>,
    bytes: Vec<u8>,
    /// The last mark but one, and the last.
    segment: (Moment, Moment),
}

impl Reader {
    /// Begins to read. `begin` was read before the first record.
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn open(path: &Path, begin: Moment) -> io::Result<Reader> {
        Ok(Reader {
            file: BufReader::with_capacity(BUFFER, File::open(path)?),
            at: 0,
            found: Found::default(),
            waiting: Vec::new(),
            bytes: Vec::new(),
            segment: (begin, begin),
        })
    }

    /// Reads what has been added, and reports what is in order for certain: what is older than the last
    /// mark but one. [`read`] reports the same records first when the spool is whole.
    ///
    /// # Errors
    ///
    /// As [`read`].
    pub fn poll<E: From<io::Error>>(
        &mut self,
        mut take: impl FnMut(u64, u32, &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let end = self.file.get_ref().metadata()?.len();
        let mut frame = Vec::new();
        while let Some(cpu) = self.frame(end, &mut frame)? {
            if cpu != MARK {
                self.keep(cpu, &frame);
            } else if let [tsc, monotonic_ns] = frame.as_chunks::<8>().0 {
                let moment = Moment {
                    tsc: u64::from_le_bytes(*tsc),
                    monotonic_ns: u64::from_le_bytes(*monotonic_ns),
                };
                self.notify(self.segment.1.monotonic_ns, &mut take)?;
                self.segment = (self.segment.1, moment);
            }
        }
        Ok(())
    }

    /// Reads to the end, and reports all of the rest.
    ///
    /// # Errors
    ///
    /// As [`read`].
    pub fn finish<E: From<io::Error>>(
        &mut self,
        mut take: impl FnMut(u64, u32, &[u8]) -> Result<(), E>,
    ) -> Result<Found, E> {
        self.poll(&mut take)?;
        self.notify(u64::MAX, &mut take)?;
        Ok(self.found)
    }

    /// Before when everything has been reported, by the monotonic clock.
    pub fn reported_ns(&self) -> u64 {
        self.segment.0.monotonic_ns
    }

    /// Reads the next frame if the file, which ends at `end`, has all of it: whose it is.
    fn frame(&mut self, end: u64, frame: &mut Vec<u8>) -> io::Result<Option<u32>> {
        let left = end.saturating_sub(self.at);
        self.found.torn = left > 0;
        let mut head = [0; 8];
        if left < head.len() as u64 || read_whole(&mut self.file, &mut head)? < head.len() {
            return Ok(None);
        }
        let word = |at: usize| u32::from_le_bytes(head[at..at + 4].try_into().expect("four"));
        let (cpu, len) = (word(0), word(4));
        // A frame claims its length, which the file cannot exceed.
        let whole = head.len() as u64 + u64::from(len);
        if len > FRAME_MAX || whole > left {
            // The rest may follow.
            self.file.seek_relative(-(head.len() as i64))?;
            return Ok(None);
        }
        frame.resize(len as usize, 0);
        self.file.read_exact(frame)?;
        self.at += whole;
        Ok(Some(cpu))
    }

    fn keep(&mut self, cpu: u32, frame: &[u8]) {
        for range in ring::records(frame) {
            let record = &frame[range];
            self.found.records += 1;
            let time_ns = raw::time_of(record).unwrap_or(0);
            let (start, len) = (self.bytes.len() as u32, record.len() as u32);
            self.waiting.push(Waiting { time_ns, cpu, start, len });
            self.bytes.extend_from_slice(record);
        }
    }

    /// Reports the records that are older than `until_ns`.
    fn notify<E>(
        &mut self,
        until_ns: u64,
        take: &mut impl FnMut(u64, u32, &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        // Rings are in order but for interrupts, and this kind of sort knows what is.
        self.waiting.sort_by_key(|record| record.time_ns);
        let ready = self.waiting.partition_point(|record| record.time_ns < until_ns);
        for record in &self.waiting[..ready] {
            let range = record.start as usize..(record.start + record.len) as usize;
            take(ticks(self.segment, record.time_ns), record.cpu, &self.bytes[range])?;
        }
        // What stays moves to the front.
        let mut kept = Vec::new();
        self.waiting.drain(..ready);
        for record in &mut self.waiting {
            let range = record.start as usize..(record.start + record.len) as usize;
            record.start = kept.len() as u32;
            kept.extend_from_slice(&self.bytes[range]);
        }
        self.bytes = kept;
        Ok(())
    }
}

/// The last mark of a spool: when its recording was last seen to live.
///
/// # Errors
///
/// The system's.
pub fn last_mark(path: &Path) -> io::Result<Option<Moment>> {
    let mut file = BufReader::new(File::open(path)?);
    let mut last = None;
    let mut head = [0; 8];
    while read_whole(&mut file, &mut head)? == head.len() {
        let word = |at: usize| u32::from_le_bytes(head[at..at + 4].try_into().expect("four"));
        let (cpu, len) = (word(0), word(4));
        if cpu != MARK || len != 16 {
            file.seek_relative(i64::from(len))?;
            continue;
        }
        let mut clocks = [[0; 8]; 2];
        if read_whole(&mut file, clocks.as_flattened_mut())? < 16 {
            break;
        }
        let [tsc, monotonic_ns] = clocks.map(u64::from_le_bytes);
        last = Some(Moment { tsc, monotonic_ns });
    }
    Ok(last)
}

/// As much as there is.
fn read_whole(file: &mut impl Read, to: &mut [u8]) -> io::Result<usize> {
    let mut done = 0;
    while done < to.len() {
        match file.read(&mut to[done..]) {
            Ok(0) => break,
            Ok(n) => done += n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

/// The tick at a time of the monotonic clock, at the rate between two known times near it.
fn ticks((from, to): (Moment, Moment), time_ns: u64) -> u64 {
    let distance = time_ns as i64 - to.monotonic_ns as i64;
    let ns = to.monotonic_ns.saturating_sub(from.monotonic_ns);
    if ns == 0 {
        // Only before the first round: both clocks were read just before.
        return to.tsc.saturating_add_signed(distance);
    }
    let rate = to.tsc.saturating_sub(from.tsc) as f64 / ns as f64;
    to.tsc.saturating_add_signed((distance as f64 * rate) as i64)
}
