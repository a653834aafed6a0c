//! What has arrived, at the collector: one folder for each recording.
//!
//! Records are appended to the files of their streams as they come; `relay.json` says how long each
//! file was at the last checkpoint. It is replaced in one step, after the files are on disk, and
//! only then is the offset acknowledged. What a crash leaves beyond it is cut off when the
//! recording resumes, and sent again: nothing is there twice, and nothing is missing.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::frame::{Blob, Counts, Head, LAST, Stream};

/// Files that a recording keeps open.
const OPEN_MAX: usize = 64;
/// Files that a recording may have: three for each thread.
const FILES_MAX: usize = 1 << 18;
/// A larger blob is given up.
const BLOB_MAX: u64 = 1 << 30;
/// The file that says what has arrived.
const STATE: &str = "relay.json";

/// What the maker of a trace does with a recording's pieces.
pub trait Arrivals: Send + Sync {
    /// A recording begins, in a folder that is there and empty.
    ///
    /// # Errors
    ///
    /// Why there can be no trace, as a sentence.
    fn begin(&self, folder: &Path, begin: &[u8]) -> std::result::Result<Box<dyn Arriving>, String>;

    /// A recording goes on that has begun before.
    ///
    /// # Errors
    ///
    /// As [`Arrivals::begin`].
    fn reopen(&self, folder: &Path) -> std::result::Result<Box<dyn Arriving>, String>;

    /// The file of a stream, within the folder.
    fn file_of(&self, stream: Stream) -> String;
}

/// A trace that is arriving. While this exists, it is not taken for one whose recording has ended.
pub trait Arriving: Send {
    /// What names things is known by now.
    ///
    /// # Errors
    ///
    /// Why it cannot be stored, as a sentence.
    fn checkpoint(&mut self, tables: &[u8]) -> std::result::Result<(), String>;

    /// Everything has arrived. Returns the answer for the recorder.
    ///
    /// # Errors
    ///
    /// Why there is no whole trace.
    fn finish(
        self: Box<Self>,
        ending: &[u8],
        dropped: &Counts,
    ) -> std::result::Result<Vec<u8>, String>;
}

/// The progress of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Phase {
    /// More may arrive.
    Arriving,
    /// Everything is there and has to become a trace.
    Ended,
    /// It is a trace.
    Done,
    /// No more will arrive, and the ending is missing.
    Closed,
}

/// What is certain.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct State {
    version: u32,
    session: String,
    phase: Phase,
    offset: u64,
    dropped: Counts,
    /// Lengths by name.
    files: BTreeMap<String, u64>,
    /// The part of each blob that is expected next; none if its beginning is missing.
    parts: [Option<u32>; 2],
}

/// A recording that arrives.
pub(crate) struct Session {
    folder: PathBuf,
    state: State,
    /// Lengths, with what is not certain yet.
    lengths: HashMap<String, u64>,
    open: HashMap<String, File>,
    /// Files with bytes that are not on disk for certain.
    touched: Vec<String>,
    offset: u64,
    dropped: Counts,
    parts: [Option<u32>; 2],
    ended: bool,
    arriving: Option<Box<dyn Arriving>>,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Session({}, {:?})", self.folder.display(), self.state)
    }
}

fn part_name(blob: Blob) -> String {
    match blob {
        Blob::Checkpoint => "checkpoint.part".to_owned(),
        Blob::Ending => "ending.part".to_owned(),
    }
}

/// The sessions whose folders are in `folder`: folder and number, and their progress.
pub(crate) fn found(folder: &Path) -> Result<Vec<(PathBuf, String, Phase)>> {
    let mut all = Vec::new();
    for entry in fs::read_dir(folder).map_err(Error::file("list", folder))? {
        let path = entry.map_err(Error::file("list", folder))?.path();
        // Other folders are none of ours.
        if let Ok(state) = read_state(&path) {
            all.push((path, state.session, state.phase));
        }
    }
    Ok(all)
}

fn read_state(folder: &Path) -> Result<State> {
    let path = folder.join(STATE);
    let text = fs::read(&path).map_err(Error::file("read", &path))?;
    let state: State = serde_json::from_slice(&text)
        .map_err(|e| Error::Unusable { path: path.clone(), problem: e.to_string() })?;
    if state.version != 1 {
        let problem = format!("written by another fettle, as version {}", state.version);
        return Err(Error::Unusable { path, problem });
    }
    Ok(state)
}

impl Session {
    /// A recording begins, in a new folder whose name is `name` or one like it.
    pub(crate) fn begin(
        all: &Path,
        name: &str,
        session: &str,
        begin: &[u8],
        arrivals: &dyn Arrivals,
    ) -> Result<Session> {
        let folder = new_folder(all, name)?;
        let arriving = match arrivals.begin(&folder, begin) {
            Ok(arriving) => arriving,
            Err(why) => {
                let _ = fs::remove_dir_all(&folder);
                return Err(Error::Trace(why));
            }
        };
        let state = State {
            version: 1,
            session: session.to_owned(),
            phase: Phase::Arriving,
            offset: 0,
            dropped: Counts::default(),
            files: BTreeMap::new(),
            parts: [None; 2],
        };
        let mut session = Session::of(folder, state, Some(arriving));
        session.store()?;
        Ok(session)
    }

    fn of(folder: PathBuf, state: State, arriving: Option<Box<dyn Arriving>>) -> Session {
        let lengths = state.files.iter().map(|(name, len)| (name.clone(), *len)).collect();
        let (offset, dropped, parts) = (state.offset, state.dropped, state.parts);
        let (open, touched, ended) = (HashMap::new(), Vec::new(), state.phase != Phase::Arriving);
        Session { folder, state, lengths, open, touched, offset, dropped, parts, ended, arriving }
    }

    /// A recording goes on.
    pub(crate) fn reopen(folder: &Path, arrivals: &dyn Arrivals) -> Result<Session> {
        let state = read_state(folder)?;
        let unfinished = matches!(state.phase, Phase::Arriving | Phase::Ended);
        let arriving = match unfinished {
            true => Some(arrivals.reopen(folder).map_err(Error::Trace)?),
            false => None,
        };
        let mut session = Session::of(folder.to_owned(), state, arriving);
        if unfinished {
            session.check()?;
            session.roll_back()?;
        }
        Ok(session)
    }

    /// What is certain has to be there.
    fn check(&self) -> Result<()> {
        for (name, len) in &self.state.files {
            let path = self.folder.join(name);
            let found = fs::metadata(&path).map(|found| found.len());
            let short = found.map_or_else(
                |_| Some("it is gone: the trace was opened and closed here".to_owned()),
                |found| (found < *len).then(|| format!("{found} bytes where {len} had arrived")),
            );
            if let Some(problem) = short {
                return Err(Error::Unusable { path, problem });
            }
        }
        Ok(())
    }

    /// Its folder.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Its progress.
    pub(crate) fn phase(&self) -> Phase {
        self.state.phase
    }

    /// Where the next frame belongs.
    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    /// Bytes that are not certain yet.
    pub(crate) fn uncertain(&self) -> u64 {
        self.offset - self.state.offset
    }

    /// What never arrived.
    pub(crate) fn dropped(&self) -> &Counts {
        &self.dropped
    }

    /// Stores a frame.
    pub(crate) fn put(
        &mut self,
        arrivals: &dyn Arrivals,
        head: &Head,
        payload: &[u8],
    ) -> Result<()> {
        if self.ended {
            return Err(Error::Peer("it sent more after its ending".to_owned()));
        }
        if let Some(stream) = head.stream() {
            self.append(&arrivals.file_of(stream), payload)?;
        } else if let Some(blob) = head.blob_of() {
            self.part(blob, head, payload)?;
        }
        self.offset += head.frame_bytes();
        Ok(())
    }

    fn append(&mut self, name: &str, payload: &[u8]) -> Result<()> {
        let path = self.folder.join(name);
        if !self.open.contains_key(name) {
            if !self.lengths.contains_key(name) && self.lengths.len() >= FILES_MAX {
                return Err(Error::Peer(format!("it has more than {FILES_MAX} streams")));
            }
            if self.open.len() >= OPEN_MAX {
                self.sync_files()?;
                self.open.clear();
            }
            let file = OpenOptions::new().create(true).append(true).open(&path);
            self.open.insert(name.to_owned(), file.map_err(Error::file("open", &path))?);
            // From now on it is cut back if what follows fails half-way.
            self.lengths.entry(name.to_owned()).or_default();
        }
        let file = self.open.get_mut(name).expect("opened above");
        if !self.touched.iter().any(|touched| touched == name) {
            self.touched.push(name.to_owned());
        }
        file.write_all(payload).map_err(Error::file("write", &path))?;
        *self.lengths.entry(name.to_owned()).or_default() += payload.len() as u64;
        Ok(())
    }

    /// A part of something larger. When one is missing, the rest is of no use.
    fn part(&mut self, blob: Blob, head: &Head, payload: &[u8]) -> Result<()> {
        let name = part_name(blob);
        if head.number == 0 {
            self.cut(&name, 0)?;
        } else if self.parts[blob as usize] != Some(head.number) {
            self.parts[blob as usize] = None;
            return match blob {
                Blob::Checkpoint => Ok(()),
                Blob::Ending => Err(Error::Peer("parts of its ending are missing".to_owned())),
            };
        }
        let before = self.lengths.get(&name).copied().unwrap_or(0);
        if before + payload.len() as u64 > BLOB_MAX {
            return Err(Error::Peer(format!("it sent more than {BLOB_MAX} bytes in one piece")));
        }
        self.append(&name, payload)?;
        self.parts[blob as usize] = head.number.checked_add(1);
        if head.flags & LAST == 0 {
            return Ok(());
        }
        self.parts[blob as usize] = None;
        match blob {
            Blob::Ending => self.ended = true,
            Blob::Checkpoint => {
                let path = self.folder.join(&name);
                let bytes = fs::read(&path).map_err(Error::file("read", &path))?;
                if let Some(arriving) = &mut self.arriving {
                    arriving.checkpoint(&bytes).map_err(Error::Trace)?;
                }
                self.cut(&name, 0)?;
            }
        }
        Ok(())
    }

    /// Cuts a file back.
    fn cut(&mut self, name: &str, len: u64) -> Result<()> {
        let path = self.folder.join(name);
        self.open.remove(name);
        match OpenOptions::new().write(true).open(&path) {
            Ok(file) => file.set_len(len).map_err(Error::file("cut", &path))?,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound && len == 0 => {}
            Err(e) => return Err(Error::file("cut", &path)(e)),
        }
        self.lengths.insert(name.to_owned(), len);
        Ok(())
    }

    /// A stretch never arrives.
    pub(crate) fn gap(&mut self, from: u64, to: u64, counts: &Counts) -> Result<()> {
        if from != self.offset || to <= from || self.ended {
            return Err(Error::Peer(format!(
                "it says that {from} to {to} is missing, at offset {}",
                self.offset
            )));
        }
        self.offset = to;
        self.dropped.add_all(counts);
        Ok(())
    }

    fn sync_files(&mut self) -> Result<()> {
        for name in self.touched.drain(..) {
            if let Some(file) = self.open.get(&name) {
                let path = self.folder.join(&name);
                file.sync_data().map_err(Error::file("write", &path))?;
            }
        }
        Ok(())
    }

    /// Makes all of it certain. Returns the offset that may be acknowledged.
    pub(crate) fn commit(&mut self) -> Result<u64> {
        if self.state.phase != Phase::Arriving || self.offset == self.state.offset {
            return Ok(self.offset);
        }
        self.sync_files()?;
        self.state.offset = self.offset;
        self.state.dropped = self.dropped;
        self.state.parts = self.parts;
        self.state.files = self.lengths.iter().map(|(name, len)| (name.clone(), *len)).collect();
        if self.ended {
            self.state.phase = Phase::Ended;
        }
        self.store()?;
        Ok(self.offset)
    }

    fn store(&mut self) -> Result<()> {
        let (path, partial) = (self.folder.join(STATE), self.folder.join("relay.partial"));
        let text = serde_json::to_vec(&self.state).expect("plain data");
        let write = || {
            let mut file = File::create(&partial)?;
            file.write_all(&text)?;
            file.sync_data()?;
            fs::rename(&partial, &path)
        };
        write().map_err(Error::file("write", &path))
    }

    /// Forgets what is not certain: it will be sent again.
    pub(crate) fn roll_back(&mut self) -> Result<()> {
        if matches!(self.state.phase, Phase::Done | Phase::Closed) {
            return Ok(());
        }
        // What `relay.json` says counts, whatever this process believed it had written.
        self.state = read_state(&self.folder)?;
        self.open.clear();
        let mut names: Vec<String> = self.lengths.keys().cloned().collect();
        names.extend([Blob::Checkpoint, Blob::Ending].map(part_name));
        for name in names {
            let len = self.state.files.get(&name).copied().unwrap_or(0);
            self.cut(&name, len)?;
        }
        self.touched.clear();
        self.lengths = self.state.files.iter().map(|(name, len)| (name.clone(), *len)).collect();
        self.offset = self.state.offset;
        self.dropped = self.state.dropped;
        self.parts = self.state.parts;
        self.ended = self.state.phase != Phase::Arriving;
        Ok(())
    }

    /// Makes the trace of what has arrived. Returns the answer for the recorder.
    pub(crate) fn finish(&mut self, arrivals: &dyn Arrivals) -> Result<Vec<u8>> {
        let path = self.folder.join(part_name(Blob::Ending));
        let ending = fs::read(&path).map_err(Error::file("read", &path))?;
        self.open.clear();
        // It is gone after an attempt that failed, when the disk was full.
        let arriving = match self.arriving.take() {
            Some(arriving) => arriving,
            None => arrivals.reopen(&self.folder).map_err(Error::Trace)?,
        };
        let reported = arriving.finish(&ending, &self.dropped).map_err(Error::Trace)?;
        self.end(Phase::Done)?;
        Ok(reported)
    }

    /// Nothing comes any more, and there is no ending: readers make of it what they can.
    pub(crate) fn close(&mut self) -> Result<()> {
        self.arriving = None;
        if self.offset == 0 {
            // Its recorder could not run the program: there never was a recording.
            self.state.phase = Phase::Closed;
            let removed = fs::remove_dir_all(&self.folder);
            return removed.map_err(Error::file("remove", &self.folder));
        }
        self.end(Phase::Closed)
    }

    fn end(&mut self, phase: Phase) -> Result<()> {
        self.state.phase = phase;
        self.state.files.clear();
        self.open.clear();
        self.store()?;
        for blob in [Blob::Checkpoint, Blob::Ending] {
            let _ = fs::remove_file(self.folder.join(part_name(blob)));
        }
        Ok(())
    }
}

/// A folder that was not there before.
fn new_folder(all: &Path, name: &str) -> Result<PathBuf> {
    for number in 1..10_000 {
        let suffix = if number == 1 { String::new() } else { format!("-{number}") };
        let path = all.join(format!("{name}{suffix}.fettle"));
        match fs::create_dir(&path) {
            Ok(()) => return Ok(path),
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(e) => return Err(Error::file("create", &path)(e)),
        }
    }
    Err(Error::Trace(format!("there are 10,000 traces called {name} in {}", all.display())))
}
