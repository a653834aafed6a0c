//! Writing events.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use parquet::data_type::ByteArray;

use super::kind::{self, CpuLoss, EventField, EventKind, Events, FOLDER, check_kind};
use super::part::{self, Rows};
use crate::error::{Error, Result};
use crate::manifest::FileEntry;

/// Rows of one file.
pub(super) const ROWS_PER_PART: usize = 1 << 18;
/// Rows of all kinds that are kept until their files are written.
const ROWS_KEPT: usize = 1 << 20;

/// A kind of event of one [`EventWriter`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KindId(usize);

/// Writes the events of a trace.
///
/// Rows are kept in memory, at most a million in all, until there are enough of a kind for a file.
/// They may come out of order; see the module.
#[derive(Debug)]
pub struct EventWriter {
    folder: PathBuf,
    kinds: Vec<Kind>,
    texts: Vec<ByteArray>,
    codes: HashMap<String, u32>,
    kept: usize,
    rows_per_part: usize,
    files: Vec<FileEntry>,
}

#[derive(Debug)]
struct Kind {
    name: String,
    /// Without `cpu`.
    fields: Vec<EventField>,
    rows: Rows,
    written: u64,
    parts: u32,
}

impl EventWriter {
    /// A writer into the folder of a trace, such as [`crate::TraceWriter::path`]. Its result
    /// belongs into [`crate::Finish::events`].
    ///
    /// # Errors
    ///
    /// [`Error::Exists`] if there are events already.
    pub fn create(trace: &Path) -> Result<EventWriter> {
        let folder = trace.join(FOLDER);
        fs::create_dir(&folder).map_err(|e| match e.kind() {
            std::io::ErrorKind::AlreadyExists => Error::Exists { path: folder.clone() },
            _ => Error::io("create", &folder, e),
        })?;
        Ok(EventWriter {
            folder,
            kinds: Vec::new(),
            texts: Vec::new(),
            codes: HashMap::new(),
            kept: 0,
            rows_per_part: ROWS_PER_PART,
            files: Vec::new(),
        })
    }

    /// Makes files of fewer rows, for tests of what happens between files.
    pub fn rows_per_part(mut self, rows: usize) -> EventWriter {
        self.rows_per_part = rows.clamp(1, ROWS_PER_PART);
        self
    }

    /// Declares a kind of event. Every event has `cpu` besides, which is not declared. A kind that
    /// is declared again with the same fields is the same kind.
    pub fn kind(&mut self, name: &str, fields: &[EventField]) -> Result<KindId> {
        check_kind(name, fields)?;
        if let Some(known) = self.kinds.iter().position(|kind| kind.name == name) {
            if self.kinds[known].fields == fields {
                return Ok(KindId(known));
            }
            let problem = "declared before with other fields".to_owned();
            return Err(Error::Event { kind: name.to_owned(), problem });
        }
        self.kinds.push(Kind {
            name: name.to_owned(),
            fields: fields.to_vec(),
            rows: Rows::new(fields.len()),
            written: 0,
            parts: 0,
        });
        Ok(KindId(self.kinds.len() - 1))
    }

    /// The code of a text, as values name it. Each different text takes its size in memory as long as
    /// the writer exists.
    pub fn text(&mut self, text: &str) -> u32 {
        if let Some(code) = self.codes.get(text) {
            return *code;
        }
        let code = self.texts.len() as u32;
        self.texts.push(ByteArray::from(text));
        self.codes.insert(text.to_owned(), code);
        code
    }

    /// Number of different texts that are kept.
    pub fn texts(&self) -> usize {
        self.texts.len()
    }

    /// Writes all events that are kept and forgets their texts: codes that were given out are void.
    /// For inputs whose texts hardly repeat.
    pub fn forget_texts(&mut self) -> Result<()> {
        self.flush()?;
        self.texts.clear();
        self.codes.clear();
        Ok(())
    }

    /// Adds an event: nanoseconds of trace time, the processor, and the declared fields in their
    /// order. Signed values are extended to 64 bits, texts are codes of [`EventWriter::text`];
    /// what does not fit its type is cut to it.
    ///
    /// # Errors
    ///
    /// What writing a full file may run into. The event is kept, and the next one tries again.
    ///
    /// # Panics
    ///
    /// If the kind is another writer's, or the number of values is not that of its fields.
    #[inline]
    pub fn push(&mut self, kind: KindId, time_ns: u64, cpu: u32, values: &[u64]) -> Result<()> {
        let of = &mut self.kinds[kind.0];
        of.rows.push(time_ns, cpu, values);
        self.kept += 1;
        if of.rows.len() >= self.rows_per_part {
            return self.write(kind.0);
        }
        if self.kept >= ROWS_KEPT {
            return self.write_largest();
        }
        Ok(())
    }

    /// Writes all events that are kept, so that they survive whatever happens to this process.
    /// Makes small files: not for every second.
    pub fn flush(&mut self) -> Result<()> {
        (0..self.kinds.len()).try_for_each(|kind| self.write(kind))
    }

    /// Writes what is left. `lost` is what the manifest is to say about losses.
    pub fn finish(mut self, lost: Vec<CpuLoss>) -> Result<WrittenEvents> {
        self.flush()?;
        let kind = |kind: Kind| EventKind {
            name: kind.name,
            fields: kind::with_cpu(&kind.fields),
            rows: kind.written,
        };
        let mut kinds: Vec<EventKind> = self.kinds.into_iter().map(kind).collect();
        kinds.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(WrittenEvents { events: Events { kinds, lost }, files: self.files })
    }

    fn write_largest(&mut self) -> Result<()> {
        let largest = (0..self.kinds.len()).max_by_key(|kind| self.kinds[*kind].rows.len());
        largest.map_or(Ok(()), |kind| self.write(kind))
    }

    fn write(&mut self, kind: usize) -> Result<()> {
        let of = &mut self.kinds[kind];
        if of.rows.is_empty() {
            return Ok(());
        }
        of.rows.sort();
        let name = format!("{}-{:04}.parquet", of.name, of.parts);
        let bytes = part::write(&self.folder.join(&name), &of.fields, &of.rows, &self.texts)?;
        let rows = of.rows.len();
        self.files.push(FileEntry { path: format!("{FOLDER}/{name}"), bytes, rows: rows as u64 });
        self.kept -= rows;
        of.written += rows as u64;
        of.parts += 1;
        of.rows.clear();
        Ok(())
    }
}

/// What an [`EventWriter`] wrote, for the manifest.
#[derive(Clone, Debug, Default)]
pub struct WrittenEvents {
    pub(crate) events: Events,
    pub(crate) files: Vec<FileEntry>,
}

impl WrittenEvents {
    /// What the manifest will say.
    pub fn events(&self) -> &Events {
        &self.events
    }
}
