//! Reading events: all runs merged by time.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::{fmt, fs};

use super::WrittenEvents;
use super::kind::{EventField, EventKind, FOLDER, good_name};
use super::part::{self, Cursor};
use crate::error::{Error, Result};
use crate::manifest::FileEntry;
use crate::read::Trace;

/// A row group: events in order of time.
#[derive(Clone, Debug)]
struct Run {
    path: PathBuf,
    group: usize,
    first_ns: u64,
    rows_of_file: u64,
}

/// A kind with the runs that hold its events.
#[derive(Clone, Debug)]
struct Series {
    kind: EventKind,
    runs: Vec<Run>,
}

impl Trace {
    /// The kinds of events, by name, as the files say. Reads only the files' footers.
    ///
    /// Files that cannot be read are left out and named in the second list.
    pub fn event_kinds(&self) -> Result<(Vec<EventKind>, Vec<Error>)> {
        let (series, damaged) = all_series(self.path())?;
        Ok((series.into_iter().map(|series| series.kind).collect(), damaged))
    }

    /// All events in order of time; those of one time in order of their kinds' names. `select` gives for
    /// each kind the places of the fields to read, in the order in which they are wanted, or nothing to
    /// leave the kind out.
    ///
    /// Files whose footers cannot be read are left out and named in the second list.
    pub fn events(
        &self,
        select: &mut dyn FnMut(&EventKind) -> Option<Vec<usize>>,
    ) -> Result<(EventStream, Vec<Error>)> {
        let (series, damaged) = all_series(self.path())?;
        let mut stream = EventStream {
            kinds: Vec::new(),
            sources: Vec::new(),
            heads: BinaryHeap::new(),
            current: None,
        };
        for Series { kind, runs } in series {
            let Some(fields) = select(&kind) else { continue };
            if let Some(place) = fields.iter().find(|place| **place >= kind.fields.len()) {
                let problem = format!("it has {} fields, none at {place}", kind.fields.len());
                return Err(Error::Event { kind: kind.name, problem });
            }
            let place = stream.kinds.len();
            stream.kinds.push((kind, fields));
            for run in runs {
                stream.heads.push(Reverse((run.first_ns, stream.sources.len() as u32)));
                stream.sources.push(Source { kind: place, run, state: State::Waiting, given: 0 });
            }
        }
        Ok((stream, damaged))
    }
}

/// The runs of all kinds, by name of kind and then by time.
fn all_series(trace: &Path) -> Result<(Vec<Series>, Vec<Error>)> {
    let folder = trace.join(FOLDER);
    let mut paths = Vec::new();
    match fs::read_dir(&folder) {
        Ok(entries) => {
            for entry in entries {
                paths.push(entry.map_err(|e| Error::io("list", &folder, e))?.path());
            }
        }
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
        Err(e) => return Err(Error::io("list", &folder, e)),
    }
    paths.sort();
    let mut series: BTreeMap<String, Series> = BTreeMap::new();
    let mut damaged = Vec::new();
    for path in paths.into_iter().filter(|path| path.extension().is_some_and(|e| e == "parquet")) {
        if let Err(error) = add(&path, &mut series) {
            damaged.push(error);
        }
    }
    let mut series: Vec<Series> = series.into_values().collect();
    for one in &mut series {
        one.runs.sort_by_key(|run| run.first_ns);
    }
    Ok((series, damaged))
}

/// What lies in the folder of a recording that did not get to writing its manifest.
pub(crate) fn found(trace: &Path) -> Result<(WrittenEvents, Vec<Error>)> {
    let (series, damaged) = all_series(trace)?;
    let mut written = WrittenEvents::default();
    for Series { kind, runs } in series {
        for run in runs.iter().filter(|run| run.group == 0) {
            let bytes = fs::metadata(&run.path).map_err(|e| Error::io("measure", &run.path, e))?;
            let name = run.path.file_name().map(|name| name.to_string_lossy().into_owned());
            let path = format!("{FOLDER}/{}", name.unwrap_or_default());
            written.files.push(FileEntry { path, bytes: bytes.len(), rows: run.rows_of_file });
        }
        written.events.kinds.push(kind);
    }
    Ok((written, damaged))
}

/// Takes in one file.
fn add(path: &Path, series: &mut BTreeMap<String, Series>) -> Result<()> {
    let stem = path.file_stem().map(|stem| stem.to_string_lossy().into_owned());
    let name = stem.as_deref().and_then(|stem| stem.rsplit_once('-'));
    let number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let Some((name, _)) = name.filter(|(name, text)| good_name(name) && number(text)) else {
        return Err(Error::file(path, "files of events are called NAME-NUMBER.parquet"));
    };
    let footer = part::footer(path)?;
    let one = series.entry(name.to_owned()).or_insert_with(|| Series {
        kind: EventKind { name: name.to_owned(), fields: footer.fields.clone(), rows: 0 },
        runs: Vec::new(),
    });
    if one.kind.fields != footer.fields {
        return Err(Error::file(path, format!("other files of {name} have other columns")));
    }
    let rows_of_file = footer.groups.iter().fold(0u64, |sum, g| sum.saturating_add(g.rows));
    for (group, claim) in footer.groups.into_iter().enumerate() {
        one.kind.rows = one.kind.rows.saturating_add(claim.rows);
        one.runs.push(Run { path: path.to_owned(), group, first_ns: claim.first_ns, rows_of_file });
    }
    Ok(())
}

/// Events of a trace, merged by time, a run of one kind at a time.
///
/// What is in memory is a window of each file whose times include the present.
pub struct EventStream {
    kinds: Vec<(EventKind, Vec<usize>)>,
    sources: Vec<Source>,
    /// The time of the first row of each source that is not used up, and which source it is.
    heads: BinaryHeap<Reverse<(u64, u32)>>,
    /// The source whose rows were given out last, which is not among the heads.
    current: Option<u32>,
}

struct Source {
    kind: usize,
    run: Run,
    state: State,
    /// Rows that were given out.
    given: u64,
}

enum State {
    /// Not opened yet.
    Waiting,
    Open(Box<Cursor>),
    Over,
}

impl fmt::Debug for EventStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kinds, runs) = (self.kinds.len(), self.sources.len());
        write!(f, "EventStream {{ kinds: {kinds}, runs: {runs} }}")
    }
}

/// Consecutive events of one kind.
pub struct EventRun<'a> {
    /// Place of their kind in [`EventStream::kinds`].
    pub kind: usize,
    source: u32,
    first_row: u64,
    cursor: &'a Cursor,
    rows: Range<usize>,
}

impl EventRun<'_> {
    /// Where the first of them lies: the number of its row group among all that are read, and its
    /// row there. Events of one time are in the order of their places.
    pub fn place(&self) -> (u32, u64) {
        (self.source, self.first_row)
    }

    /// Their times, nanoseconds of trace time.
    #[inline]
    pub fn times_ns(&self) -> &[u64] {
        &self.cursor.times_ns[self.rows.clone()]
    }

    /// Their values of the `n`th of the fields that were asked for.
    ///
    /// # Panics
    ///
    /// If fewer were asked for.
    #[inline]
    pub fn values(&self, n: usize) -> &[u64] {
        &self.cursor.values[n][self.rows.clone()]
    }
}

impl EventStream {
    /// The kinds that are read.
    pub fn kinds(&self) -> impl ExactSizeIterator<Item = &EventKind> {
        self.kinds.iter().map(|(kind, _)| kind)
    }

    /// The fields that are read of a kind, in the order that was asked for.
    pub fn fields(&self, kind: usize) -> impl Iterator<Item = &EventField> {
        let (kind, places) = &self.kinds[kind];
        places.iter().map(|place| &kind.fields[*place])
    }

    /// Leaves out the row groups whose numbers ([`EventRun::place`]) are not `wanted`. Before the
    /// first event is read.
    pub fn keep(&mut self, wanted: &dyn Fn(u32) -> bool) {
        self.heads.retain(|Reverse((_, source))| wanted(*source));
    }

    /// The time of the next event; a lower bound where that takes reading a file.
    pub fn next_ns(&mut self, code: &mut dyn FnMut(&str) -> u32) -> Result<Option<u64>> {
        self.settle(code)?;
        Ok(self.heads.peek().map(|Reverse((ns, _))| *ns))
    }

    /// The next events, all of one kind, none later than `until_ns`. `code` gives the code by which a
    /// text is to be named. After an error the file that it names is given up, and the events of the
    /// others can still be read.
    pub fn next(
        &mut self,
        until_ns: u64,
        code: &mut dyn FnMut(&str) -> u32,
    ) -> Result<Option<EventRun<'_>>> {
        self.settle(code)?;
        let Some(Reverse((now_ns, at))) = self.heads.peek().copied() else { return Ok(None) };
        if now_ns > until_ns {
            return Ok(None);
        }
        self.heads.pop();
        self.current = Some(at);
        // Until the next head's turn: it has the same time, or a lower number.
        let limit = self.heads.peek().map_or((u64::MAX, u32::MAX), |Reverse(head)| *head);
        let Source { kind, state, given, .. } = &mut self.sources[at as usize];
        let State::Open(cursor) = state else { return Ok(None) };
        let first = cursor.at;
        let times = &cursor.times_ns[first..];
        let run = times.iter().take_while(|ns| **ns <= until_ns && (**ns, at) < limit).count();
        cursor.at = first + run;
        let first_row = *given;
        *given += run as u64;
        let rows = first..first + run;
        Ok(Some(EventRun { kind: *kind, source: at, first_row, cursor, rows }))
    }

    /// Sees to it that the first head is a row in memory.
    fn settle(&mut self, code: &mut dyn FnMut(&str) -> u32) -> Result<()> {
        if let Some(at) = self.current.take() {
            self.requeue(at, code)?;
        }
        while let Some(Reverse((_, at))) = self.heads.peek().copied() {
            let source = &mut self.sources[at as usize];
            if !matches!(source.state, State::Waiting) {
                break;
            }
            self.heads.pop();
            source.state = State::Over;
            let fields = &self.kinds[source.kind].1;
            let mut cursor = Box::new(Cursor::open(&source.run.path, source.run.group, fields)?);
            if !cursor.advance(&source.run.path, code)? {
                continue;
            }
            if cursor.times_ns.first().is_some_and(|first| *first < source.run.first_ns) {
                let problem = "its events are earlier than its footer says";
                return Err(Error::file(&source.run.path, problem));
            }
            source.state = State::Open(cursor);
            self.requeue(at, code)?;
        }
        Ok(())
    }

    /// Puts a source back among the heads if it has more rows.
    fn requeue(&mut self, at: u32, code: &mut dyn FnMut(&str) -> u32) -> Result<()> {
        let source = &mut self.sources[at as usize];
        let State::Open(cursor) = &mut source.state else { return Ok(()) };
        if cursor.at >= cursor.times_ns.len() {
            match cursor.advance(&source.run.path, code) {
                Ok(true) => {}
                Ok(false) => {
                    source.state = State::Over;
                    return Ok(());
                }
                Err(error) => {
                    source.state = State::Over;
                    return Err(error);
                }
            }
        }
        if let Some(ns) = cursor.times_ns.get(cursor.at) {
            self.heads.push(Reverse((*ns, at)));
        }
        Ok(())
    }
}
