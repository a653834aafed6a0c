//! Calls as columns: `calls/NNNNN.parquet`.
//!
//! One row group per file, about a million rows, in order of thread and then of end time.

use std::path::{Path, PathBuf};

use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::data_type::{Int32Type, Int64Type};
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::reader::{FileReader, RowGroupReader, SerializedFileReader};
use parquet::schema::types::{ColumnPath, TypePtr};

use fettle_types::FunctionIndex;

use crate::column::{self, Cell};
use crate::column::{field, guarded, read_column, rows_of, write_file, write_values};
use crate::error::Result;
use crate::manifest::FileEntry;

/// Rows of one file of calls.
pub const ROWS_PER_FILE: usize = 1 << 20;

/// One finished call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Call {
    /// [`crate::Thread::index`].
    pub thread: u32,
    /// [`crate::Function::id`].
    pub function: FunctionIndex,
    /// Entry, nanoseconds since the start of the trace.
    pub start_ns: u64,
    /// Nanoseconds from entry to exit.
    pub duration_ns: u64,
    /// How many calls it stands for: 1 unless calls were sampled.
    pub weight: u32,
    /// Recorded calls of its thread that were open around it; 65,535 stands for that or more.
    pub depth: u16,
    /// [`Call::OPEN`] or 0.
    pub flags: u8,
    /// Nanoseconds of `duration_ns` that its thread was switched out; 0 if not known
    /// ([`crate::Manifest::switches`]).
    pub off_cpu_ns: u64,
}

impl Call {
    /// The call had not ended when the recording did; its duration is what had passed by then.
    pub const OPEN: u8 = 2;

    /// Exit, nanoseconds since the start of the trace.
    #[inline]
    pub fn end_ns(&self) -> u64 {
        self.start_ns.saturating_add(self.duration_ns)
    }

    /// Nanoseconds that it ran on a processor.
    #[inline]
    pub fn cpu_ns(&self) -> u64 {
        self.duration_ns.saturating_sub(self.off_cpu_ns)
    }
}

/// The folder of calls within a trace.
pub(crate) fn folder(trace: &Path) -> PathBuf {
    trace.join("calls")
}

/// Rows of one file on their way there, as Parquet stores them, filled from the last row to the
/// first.
pub(crate) struct Columns {
    /// The first row that is filled.
    first: usize,
    thread: Vec<i32>,
    function: Vec<i32>,
    start_ns: Vec<i64>,
    duration_ns: Vec<i64>,
    depth: Vec<i32>,
    weight: Vec<i32>,
    flags: Vec<i32>,
    off_cpu_ns: Vec<i64>,
}

impl Columns {
    /// Room for [`ROWS_PER_FILE`] rows.
    pub(crate) fn new() -> Columns {
        let (narrow, wide) = (|| vec![0i32; ROWS_PER_FILE], || vec![0i64; ROWS_PER_FILE]);
        Columns {
            first: ROWS_PER_FILE,
            thread: narrow(),
            function: narrow(),
            start_ns: wide(),
            duration_ns: wide(),
            depth: narrow(),
            weight: narrow(),
            flags: narrow(),
            off_cpu_ns: wide(),
        }
    }

    /// Forgets all rows.
    pub(crate) fn clear(&mut self) {
        self.first = ROWS_PER_FILE;
    }

    /// Puts a row before the others; there must be room.
    #[inline]
    pub(crate) fn push_front(&mut self, call: &Call) {
        let at = self.first - 1;
        self.thread[at] = call.thread as i32;
        self.function[at] = call.function.get() as i32;
        self.start_ns[at] = call.start_ns as i64;
        self.duration_ns[at] = call.duration_ns as i64;
        self.depth[at] = i32::from(call.depth);
        self.weight[at] = call.weight as i32;
        self.flags[at] = i32::from(call.flags);
        self.off_cpu_ns[at] = call.off_cpu_ns as i64;
        self.first = at;
    }

    /// Number of rows.
    pub(crate) fn len(&self) -> usize {
        ROWS_PER_FILE - self.first
    }

    /// Threads in order, with how many rows each has.
    pub(crate) fn threads(&self) -> impl Iterator<Item = (u32, u64)> {
        let runs = self.thread[self.first..].chunk_by(|a, b| a == b);
        runs.map(|run| (run[0] as u32, run.len() as u64))
    }
}

fn fields() -> Vec<TypePtr> {
    vec![
        field::<u32>("thread"),
        field::<u32>("function"),
        field::<u64>("start_ns"),
        field::<u64>("duration_ns"),
        field::<u16>("depth"),
        field::<u32>("weight"),
        field::<u8>("flags"),
        field::<u64>("off_cpu_ns"),
    ]
}

/// How calls are encoded.
///
/// Functions are a dictionary; everything else is differences to the row before, which packs as
/// well for what hardly ever changes and takes no look into a table for each cell. Zstandard's
/// fastest level finds what the encodings have not.
fn properties() -> WriterProperties {
    let column = |name: &str| ColumnPath::from(name);
    let mut properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        .set_statistics_enabled(EnabledStatistics::None)
        .set_offset_index_disabled(true)
        .set_data_page_row_count_limit(1 << 17)
        .set_write_batch_size(1 << 14);
    for name in ["thread", "start_ns", "duration_ns", "depth", "weight", "flags", "off_cpu_ns"] {
        properties = properties
            .set_column_dictionary_enabled(column(name), false)
            .set_column_encoding(column(name), Encoding::DELTA_BINARY_PACKED);
    }
    // What readers may want to skip files by.
    for name in ["thread", "function", "start_ns", "duration_ns"] {
        properties =
            properties.set_column_statistics_enabled(column(name), EnabledStatistics::Chunk);
    }
    properties.build()
}

/// A file of calls, and how many of them each thread has.
pub(crate) type Encoded = (FileEntry, Vec<(u32, u64)>);

/// Writes the file of calls with this number.
pub(crate) fn encode(trace: &Path, number: usize, calls: &Columns) -> Result<Encoded> {
    let name = format!("{number:05}.parquet");
    let bytes = write(&folder(trace).join(&name), calls)?;
    let entry = FileEntry { path: format!("calls/{name}"), bytes, rows: calls.len() as u64 };
    Ok((entry, calls.threads().collect()))
}

/// Writes one file of calls. Returns its size in bytes.
fn write(path: &Path, calls: &Columns) -> Result<u64> {
    write_file(path, fields(), properties(), |writer| {
        let mut group = writer.next_row_group()?;
        let rows = calls.first..;
        write_values::<Int32Type>(&mut group, &calls.thread[rows.clone()])?;
        write_values::<Int32Type>(&mut group, &calls.function[rows.clone()])?;
        write_values::<Int64Type>(&mut group, &calls.start_ns[rows.clone()])?;
        write_values::<Int64Type>(&mut group, &calls.duration_ns[rows.clone()])?;
        write_values::<Int32Type>(&mut group, &calls.depth[rows.clone()])?;
        write_values::<Int32Type>(&mut group, &calls.weight[rows.clone()])?;
        write_values::<Int32Type>(&mut group, &calls.flags[rows.clone()])?;
        write_values::<Int64Type>(&mut group, &calls.off_cpu_ns[rows])?;
        group.close()?;
        Ok(())
    })
}

/// Reads one row group of calls into `out`, which is emptied first.
pub(crate) fn read(
    path: &Path,
    reader: &SerializedFileReader<std::fs::File>,
    group: usize,
    out: &mut Vec<Call>,
) -> Result<()> {
    out.clear();
    let result = guarded(path, || {
        let group = reader.get_row_group(group)?;
        let group = group.as_ref();
        let rows = rows_of(group.metadata())?;
        read_column::<u32>(group, "thread", |thread| out.push(Call { thread, ..Call::default() }))?;
        debug_assert_eq!(out.len(), rows);
        fill::<u32>(group, "function", out, |call, v| call.function = FunctionIndex(v))?;
        fill::<u64>(group, "start_ns", out, |call, v| call.start_ns = v)?;
        fill::<u64>(group, "duration_ns", out, |call, v| call.duration_ns = v)?;
        fill::<u16>(group, "depth", out, |call, v| call.depth = v)?;
        fill::<u32>(group, "weight", out, |call, v| call.weight = v)?;
        fill::<u8>(group, "flags", out, |call, v| call.flags = v)?;
        // Traces of before there was this column do not know.
        fill::<Option<u64>>(group, "off_cpu_ns", out, |call, v| call.off_cpu_ns = v.unwrap_or(0))
    });
    if result.is_err() {
        out.clear();
    }
    result
}

fn fill<C: Cell>(
    group: &dyn RowGroupReader,
    name: &str,
    calls: &mut [Call],
    set: impl Fn(&mut Call, C),
) -> column::Encoded<()> {
    let mut calls = calls.iter_mut();
    read_column::<C>(group, name, |value| {
        if let Some(call) = calls.next() {
            set(call, value);
        }
    })
}
