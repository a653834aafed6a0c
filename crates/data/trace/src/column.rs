//! Columns of plain values in Parquet, without Arrow.
//!
//! Parquet knows few physical types; what a column *means* is an annotation on them. A
//! [`Cell`] is a Rust type together with its physical type and annotation. The Parquet library
//! is used below its Arrow layer, which would double this workspace's compile time and would
//! only be converted to and from these structs.

use std::fs::File;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parquet::basic::{Compression, LogicalType, Repetition, Type as Physical, ZstdLevel};
use parquet::data_type::{
    BoolType, ByteArray, ByteArrayType, DataType, DoubleType, Int32Type, Int64Type,
};
use parquet::errors::ParquetError;
use parquet::file::metadata::RowGroupMetaData;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::reader::{FileReader, RowGroupReader, SerializedFileReader};
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::types::{Type, TypePtr};

use fettle_types::{FunctionIndex, ModuleIndex};

use crate::error::{Error, Result};
use crate::manifest::FileEntry;

/// Result with the Parquet library's error; callers add the file's path.
pub(crate) type Encoded<T> = std::result::Result<T, ParquetError>;

/// A file of more rows in one group than this is not read: 4 times what this crate writes.
const ROWS_PER_GROUP_MAX: i64 = 1 << 22;
/// A table of more rows than this is not read.
const ROWS_PER_TABLE_MAX: i64 = 1 << 26;
/// Bytes of one column of one row group, unpacked, that are believed.
const COLUMN_BYTES_MAX: i64 = 1 << 31;
/// Values decoded at a time: their buffers stay in the cache.
const BATCH: usize = 1 << 14;

/// A value that a column can hold.
pub(crate) trait Cell: Sized + Default {
    /// Parquet's type for it.
    type Stored: DataType;
    /// Whether it may be missing.
    const OPTIONAL: bool = false;
    /// Its annotation.
    fn annotation() -> Option<LogicalType>;
    /// To Parquet's value; `None` for a missing one.
    fn store(&self) -> Option<<Self::Stored as DataType>::T>;
    /// From Parquet's value, if it is one of this type's.
    fn load(stored: Option<&<Self::Stored as DataType>::T>) -> Option<Self>;
}

macro_rules! integer_cell {
    ($($rust:ty, $stored:ty, $physical:ty, $bits:literal, $signed:literal;)*) => { $(
        impl Cell for $rust {
            type Stored = $stored;
            fn annotation() -> Option<LogicalType> {
                Some(LogicalType::integer($bits, $signed))
            }
            fn store(&self) -> Option<$physical> {
                Some(*self as $physical)
            }
            fn load(stored: Option<&$physical>) -> Option<Self> {
                Some(*stored? as $rust)
            }
        }
    )* };
}

integer_cell! {
    u8, Int32Type, i32, 8, false;
    u16, Int32Type, i32, 16, false;
    u32, Int32Type, i32, 32, false;
    i32, Int32Type, i32, 32, true;
    u64, Int64Type, i64, 64, false;
    i64, Int64Type, i64, 64, true;
}

/// Indices that lie in columns as bare numbers do.
macro_rules! index_cell {
    ($($index:ty;)*) => { $(
        impl Cell for $index {
            type Stored = <u32 as Cell>::Stored;
            fn annotation() -> Option<LogicalType> {
                u32::annotation()
            }
            fn store(&self) -> Option<i32> {
                self.0.store()
            }
            fn load(stored: Option<&i32>) -> Option<Self> {
                u32::load(stored).map(Self)
            }
        }
    )* };
}

index_cell! {
    FunctionIndex;
    ModuleIndex;
}

/// Types that Parquet has as they are.
macro_rules! plain_cell {
    ($($rust:ty, $stored:ty;)*) => { $(
        impl Cell for $rust {
            type Stored = $stored;
            fn annotation() -> Option<LogicalType> {
                None
            }
            fn store(&self) -> Option<$rust> {
                Some(*self)
            }
            fn load(stored: Option<&$rust>) -> Option<Self> {
                stored.copied()
            }
        }
    )* };
}

plain_cell! {
    bool, BoolType;
    f64, DoubleType;
}

impl Cell for String {
    type Stored = ByteArrayType;
    fn annotation() -> Option<LogicalType> {
        Some(LogicalType::String)
    }
    fn store(&self) -> Option<ByteArray> {
        Some(ByteArray::from(self.as_str()))
    }
    fn load(stored: Option<&ByteArray>) -> Option<Self> {
        Some(String::from_utf8_lossy(stored?.data()).into_owned())
    }
}

impl<C: Cell> Cell for Option<C> {
    type Stored = C::Stored;
    const OPTIONAL: bool = true;
    fn annotation() -> Option<LogicalType> {
        C::annotation()
    }
    fn store(&self) -> Option<<C::Stored as DataType>::T> {
        self.as_ref().and_then(C::store)
    }
    fn load(stored: Option<&<C::Stored as DataType>::T>) -> Option<Self> {
        match stored {
            None => Some(None),
            some => C::load(some).map(Some),
        }
    }
}

/// One column of a schema.
pub(crate) fn field<C: Cell>(name: &str) -> TypePtr {
    let repetition = if C::OPTIONAL { Repetition::OPTIONAL } else { Repetition::REQUIRED };
    let physical: Physical = C::Stored::get_physical_type();
    let column = Type::primitive_type_builder(name, physical)
        .with_logical_type(C::annotation())
        .with_repetition(repetition)
        .build();
    Arc::new(column.expect("annotations above fit their physical types"))
}

/// Rows of one struct, as a Parquet file. Implemented by the `table!` macro.
pub(crate) trait Table: Sized {
    /// File name within the folder.
    const FILE: &'static str;
    /// The columns.
    fn fields() -> Vec<TypePtr>;
    /// Writes the columns of one row group, in the order of [`Table::fields`].
    fn write_columns(rows: &[Self], group: &mut SerializedRowGroupWriter<'_, File>) -> Encoded<()>;
    /// Reads the rows of one row group.
    fn read_columns(group: &dyn RowGroupReader, out: &mut Vec<Self>) -> Encoded<()>;
}

/// Writes a table's file, durable when this returns. Returns its size in bytes.
pub(crate) fn write_table<T: Table>(folder: &Path, rows: &[T]) -> Result<u64> {
    let path = folder.join(T::FILE);
    write_file(&path, T::fields(), table_properties(), |writer| {
        for rows in rows.chunks(TABLE_GROUP) {
            let mut group = writer.next_row_group()?;
            T::write_columns(rows, &mut group)?;
            group.close()?;
        }
        Ok(())
    })
}

/// How tables are encoded.
pub(crate) fn table_properties() -> WriterProperties {
    WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        .set_statistics_enabled(EnabledStatistics::Chunk)
        .build()
}

/// Rows of one row group of a table.
pub(crate) const TABLE_GROUP: usize = 1 << 17;

/// Creates a Parquet file and lets `fill` write its row groups. The file appears under its name
/// only when it is whole. Returns its size in bytes.
pub(crate) fn write_file(
    path: &Path,
    fields: Vec<TypePtr>,
    properties: WriterProperties,
    fill: impl FnOnce(&mut SerializedFileWriter<File>) -> Encoded<()>,
) -> Result<u64> {
    let write = || {
        let mut writer = begin_file(path, fields, properties)?;
        fill(&mut writer).map_err(|e| Error::encode(path, e))?;
        end_file(path, writer)
    };
    write().inspect_err(|_| give_up_file(path))
}

/// The name of a file that is not whole yet.
fn partial(path: &Path) -> PathBuf {
    path.with_extension("partial")
}

fn begin_file(
    path: &Path,
    fields: Vec<TypePtr>,
    properties: WriterProperties,
) -> Result<SerializedFileWriter<File>> {
    let partial = partial(path);
    let file = File::create(&partial).map_err(|e| Error::io("create", &partial, e))?;
    let schema = Type::group_type_builder("row").with_fields(fields).build();
    let encoded = schema
        .and_then(|schema| SerializedFileWriter::new(file, Arc::new(schema), Arc::new(properties)));
    encoded.map_err(|e| Error::encode(path, e))
}

/// Returns the file's size in bytes.
fn end_file(path: &Path, mut writer: SerializedFileWriter<File>) -> Result<u64> {
    let partial = partial(path);
    // `into_inner` would make a text of what the system says.
    writer.finish().map_err(|e| Error::encode(path, e))?;
    let bytes = writer.inner().metadata().map_err(|e| Error::io("measure", &partial, e))?.len();
    std::fs::rename(&partial, path).map_err(|e| Error::io("rename", &partial, e))?;
    Ok(bytes)
}

/// A half-written file is of no use and takes the space that is missing.
fn give_up_file(path: &Path) {
    let _ = std::fs::remove_file(partial(path));
}

/// Writes a table whose rows come one after another, a row group in memory at a time. Unless it is
/// finished there is no file.
pub(crate) struct TableWriter<T: Table> {
    path: PathBuf,
    /// Until the end.
    writer: Option<SerializedFileWriter<File>>,
    pending: Vec<T>,
    rows: u64,
}

impl<T: Table> TableWriter<T> {
    pub(crate) fn create(folder: &Path) -> Result<TableWriter<T>> {
        let path = folder.join(T::FILE);
        let writer = begin_file(&path, T::fields(), table_properties())
            .inspect_err(|_| give_up_file(&path))?;
        Ok(TableWriter { path, writer: Some(writer), pending: Vec::new(), rows: 0 })
    }

    pub(crate) fn push(&mut self, row: T) -> Result<()> {
        self.pending.push(row);
        if self.pending.len() < TABLE_GROUP { Ok(()) } else { self.write_pending() }
    }

    fn write_pending(&mut self) -> Result<()> {
        let Some(writer) = &mut self.writer else { return Ok(()) };
        let mut write = || {
            let mut group = writer.next_row_group()?;
            T::write_columns(&self.pending, &mut group)?;
            group.close()
        };
        write().map_err(|e| Error::encode(&self.path, e))?;
        self.rows += self.pending.len() as u64;
        self.pending.clear();
        Ok(())
    }

    pub(crate) fn finish(mut self) -> Result<FileEntry> {
        if !self.pending.is_empty() {
            self.write_pending()?;
        }
        let writer = self.writer.take().expect("nobody else takes it");
        let bytes = end_file(&self.path, writer).inspect_err(|_| give_up_file(&self.path))?;
        Ok(FileEntry { path: T::FILE.to_owned(), bytes, rows: self.rows })
    }
}

impl<T: Table> Drop for TableWriter<T> {
    fn drop(&mut self) {
        if self.writer.take().is_some() {
            give_up_file(&self.path);
        }
    }
}

/// Writes one column of a row group.
pub(crate) fn write_column<C: Cell>(
    group: &mut SerializedRowGroupWriter<'_, File>,
    cells: impl Iterator<Item = Option<<C::Stored as DataType>::T>>,
) -> Encoded<()> {
    let mut levels = Vec::new();
    let mut values = Vec::new();
    for cell in cells {
        if C::OPTIONAL {
            levels.push(i16::from(cell.is_some()));
        }
        values.extend(cell);
    }
    let levels = C::OPTIONAL.then_some(levels.as_slice());
    write_levels::<C::Stored>(group, &values, levels)
}

/// Writes one column of a row group in which nothing is missing.
pub(crate) fn write_values<T: DataType>(
    group: &mut SerializedRowGroupWriter<'_, File>,
    values: &[T::T],
) -> Encoded<()> {
    write_levels::<T>(group, values, None)
}

fn write_levels<T: DataType>(
    group: &mut SerializedRowGroupWriter<'_, File>,
    values: &[T::T],
    levels: Option<&[i16]>,
) -> Encoded<()> {
    let mut column = group
        .next_column()?
        .ok_or_else(|| ParquetError::General("more columns than in the schema".into()))?;
    column.typed::<T>().write_batch(values, levels, None)?;
    column.close()
}

/// Calls `with` on each cell of the column `name` of a row group.
///
/// A column that is missing is read as its type's missing value or refused.
pub(crate) fn read_column<C: Cell>(
    group: &dyn RowGroupReader,
    name: &str,
    mut with: impl FnMut(C),
) -> Encoded<()> {
    let bad = |problem: String| ParquetError::General(format!("column {name}: {problem}"));
    let metadata = group.metadata();
    let rows = rows_of(metadata)?;
    let index = metadata.columns().iter().position(|c| c.column_path().string() == name);
    let Some(index) = index else {
        if !C::OPTIONAL {
            return Err(bad("missing".into()));
        }
        (0..rows).for_each(|_| with(C::default()));
        return Ok(());
    };
    let description = metadata.column(index).column_descr();
    let physical = C::Stored::get_physical_type();
    if description.physical_type() != physical {
        return Err(bad(format!("{} instead of {physical}", description.physical_type())));
    }
    let levels_max = description.max_def_level();
    if description.max_rep_level() != 0 || levels_max > 1 {
        return Err(bad("nested".into()));
    }
    let reader = group.get_column_reader(index)?;
    let mut reader = parquet::column::reader::get_typed_column_reader::<C::Stored>(reader);
    let mut left = rows;
    let mut levels = Vec::new();
    let mut values = Vec::new();
    while left > 0 {
        levels.clear();
        values.clear();
        let wanted = left.min(BATCH);
        let some_levels = (levels_max > 0).then_some(&mut levels);
        let (read, _, _) = reader.read_records(wanted, some_levels, None, &mut values)?;
        if read == 0 || read > wanted {
            return Err(bad(format!("ends {left} rows too early")));
        }
        left -= read;
        if levels_max == 0 {
            if values.len() != read {
                return Err(bad("holds another number of values than rows".into()));
            }
            for value in &values {
                with(C::load(Some(value)).ok_or_else(|| bad("unknown value".into()))?);
            }
            continue;
        }
        let mut present = values.iter();
        for level in levels.iter().take(read) {
            let value = if *level > 0 { present.next() } else { None };
            with(C::load(value).ok_or_else(|| bad("missing value".into()))?);
        }
    }
    Ok(())
}

/// Number of rows of a row group, after checking the sizes that its reader would allocate.
pub(crate) fn rows_of(metadata: &RowGroupMetaData) -> Encoded<usize> {
    let rows = metadata.num_rows();
    if !(0..=ROWS_PER_GROUP_MAX).contains(&rows) {
        return Err(ParquetError::General(format!("a row group claims {rows} rows")));
    }
    for column in metadata.columns() {
        let bytes = column.uncompressed_size();
        if !(0..=COLUMN_BYTES_MAX).contains(&bytes) || column.num_values() != rows {
            return Err(ParquetError::General("a column's size is nonsense".into()));
        }
    }
    Ok(rows as usize)
}

/// Opens a file of a trace, which another program may have put together: a named pipe or a device
/// in its place is refused, not waited for.
pub(crate) fn open_regular(path: &Path) -> io::Result<File> {
    match std::fs::metadata(path)?.is_file() {
        true => File::open(path),
        false => Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file")),
    }
}

/// Opens a Parquet file after cheap checks of what its footer claims.
pub(crate) fn open_file(path: &Path) -> Result<SerializedFileReader<File>> {
    let file = open_regular(path).map_err(|e| Error::io("open", path, e))?;
    guarded(path, || SerializedFileReader::new(file))
}

/// Reads a whole table.
pub(crate) fn read_table<T: Table>(folder: &Path) -> Result<Vec<T>> {
    let path = folder.join(T::FILE);
    let reader = open_file(&path)?;
    guarded(&path, || {
        let claimed = reader.metadata().file_metadata().num_rows();
        if !(0..=ROWS_PER_TABLE_MAX).contains(&claimed) {
            return Err(ParquetError::General(format!("it claims {claimed} rows")));
        }
        let mut rows = Vec::new();
        for index in 0..reader.num_row_groups() {
            let group = reader.get_row_group(index)?;
            T::read_columns(group.as_ref(), &mut rows)?;
            if rows.len() as i64 > ROWS_PER_TABLE_MAX {
                return Err(ParquetError::General("more rows than any recording makes".into()));
            }
        }
        Ok(rows)
    })
}

/// Reads a table row group after row group; nothing if there is no such file.
pub(crate) fn read_groups<T: Table>(folder: &Path, mut with: impl FnMut(&[T])) -> Result<()> {
    let path = folder.join(T::FILE);
    if !path.exists() {
        return Ok(());
    }
    let reader = open_file(&path)?;
    for index in 0..reader.num_row_groups() {
        let rows = guarded(&path, || {
            let mut rows = Vec::new();
            T::read_columns(reader.get_row_group(index)?.as_ref(), &mut rows)?;
            Ok(rows)
        })?;
        with(&rows);
    }
    Ok(())
}

/// Runs a decoder over untrusted bytes.
///
/// The Parquet library reports most damage as an error, but some of it by panicking (an index
/// out of a page, an arithmetic overflow in a debug build). Such a panic means the same thing:
/// this file cannot be read. Everything the closure touched is thrown away with it.
pub(crate) fn guarded<T>(path: &Path, decode: impl FnOnce() -> Encoded<T>) -> Result<T> {
    match catch_unwind(AssertUnwindSafe(decode)) {
        Ok(result) => result.map_err(|e| Error::file(path, e)),
        Err(_) => Err(Error::file(path, "its contents make no sense to the Parquet decoder")),
    }
}
