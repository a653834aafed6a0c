//! Calls as columns: `calls/NNNNN.parquet`.
//!
//! One row group per file, about a million rows, in order of thread and then of end time. Threads
//! hardly change from row to row and functions are few, so both are dictionaries of a few bits;
//! times are differences to the row before. See [`properties`] for what that is worth.

use std::path::{Path, PathBuf};

use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::reader::{FileReader, RowGroupReader, SerializedFileReader};
use parquet::schema::types::{ColumnPath, TypePtr};

use crate::column::Cell;
use crate::column::{Encoded, field, guarded, read_column, rows_of, write_column, write_file};
use crate::error::Result;

/// Rows of one file of calls.
pub const ROWS_PER_FILE: usize = 1 << 20;

/// One finished call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Call {
    /// [`crate::Thread::index`].
    pub thread: u32,
    /// [`crate::Function::id`].
    pub function: u32,
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
/// Measured with the example `synthetic` on 20 million calls (Rocket Lake, one run each, all
/// encodings the same): not packed 5.91 bytes per call, LZ4 5.78, Zstandard's fastest level 5.64,
/// and the same 2.7 seconds of processor time. Most of what a packer could find, the encodings
/// have found; real traces repeat more than that program's random numbers do.
fn properties() -> WriterProperties {
    let column = |name: &str| ColumnPath::from(name);
    let mut properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        .set_statistics_enabled(EnabledStatistics::Chunk)
        .set_offset_index_disabled(true)
        .set_data_page_row_count_limit(1 << 17)
        .set_write_batch_size(1 << 14);
    for name in ["start_ns", "duration_ns", "off_cpu_ns"] {
        properties = properties
            .set_column_dictionary_enabled(column(name), false)
            .set_column_encoding(column(name), Encoding::DELTA_BINARY_PACKED);
    }
    properties.build()
}

/// Writes one file of calls. Returns its size in bytes.
pub(crate) fn write(path: &Path, calls: &[Call]) -> Result<u64> {
    write_file(path, fields(), properties(), |writer| {
        let mut group = writer.next_row_group()?;
        let calls = || calls.iter();
        write_column::<u32>(&mut group, calls().map(|c| c.thread.store()))?;
        write_column::<u32>(&mut group, calls().map(|c| c.function.store()))?;
        write_column::<u64>(&mut group, calls().map(|c| c.start_ns.store()))?;
        write_column::<u64>(&mut group, calls().map(|c| c.duration_ns.store()))?;
        write_column::<u16>(&mut group, calls().map(|c| c.depth.store()))?;
        write_column::<u32>(&mut group, calls().map(|c| c.weight.store()))?;
        write_column::<u8>(&mut group, calls().map(|c| c.flags.store()))?;
        write_column::<u64>(&mut group, calls().map(|c| c.off_cpu_ns.store()))?;
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
        fill::<u32>(group, "function", out, |call, v| call.function = v)?;
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
) -> Encoded<()> {
    let mut calls = calls.iter_mut();
    read_column::<C>(group, name, |value| {
        if let Some(call) = calls.next() {
            set(call, value);
        }
    })
}
