//! One file of events: its columns, written and read.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use parquet::basic::{Compression, Encoding, LogicalType, Repetition, Type as Physical, ZstdLevel};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, Int32Type, Int64Type};
use parquet::file::metadata::RowGroupMetaData;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::reader::FileReader;
use parquet::file::statistics::Statistics;
use parquet::file::writer::SerializedRowGroupWriter;
use parquet::schema::types::{ColumnPath, Type, TypePtr};

use super::FieldType;
use super::kind::{CPU, CPU_TYPE, EventField, TIME, check_kind, with_cpu};
use crate::column::{Encoded, guarded, open_file, rows_of, write_file, write_values};
use crate::error::{Error, Result};
use crate::values::{Column, field_type};

/// Rows of one page of a column: what is decoded at least to get one value.
const PAGE_ROWS: usize = 1 << 14;
/// Rows that a reader decodes at a time.
const WINDOW: usize = 1 << 13;

/// Events of one kind in memory.
#[derive(Debug)]
pub(super) struct Rows {
    times_ns: Vec<u64>,
    cpus: Vec<u32>,
    columns: Vec<Vec<u64>>,
}

impl Rows {
    pub fn new(width: usize) -> Rows {
        Rows { times_ns: Vec::new(), cpus: Vec::new(), columns: vec![Vec::new(); width] }
    }

    pub fn len(&self) -> usize {
        self.times_ns.len()
    }

    pub fn is_empty(&self) -> bool {
        self.times_ns.is_empty()
    }

    #[inline]
    pub fn push(&mut self, time_ns: u64, cpu: u32, values: &[u64]) {
        assert_eq!(values.len(), self.columns.len(), "one value for each declared field");
        self.times_ns.push(time_ns);
        self.cpus.push(cpu);
        for (column, value) in self.columns.iter_mut().zip(values) {
            column.push(*value);
        }
    }

    pub fn clear(&mut self) {
        self.times_ns.clear();
        self.cpus.clear();
        self.columns.iter_mut().for_each(Vec::clear);
    }

    /// Puts rows in order of time; those of one time keep theirs.
    pub fn sort(&mut self) {
        if self.times_ns.is_sorted() {
            return;
        }
        let mut order: Vec<usize> = (0..self.len()).collect();
        order.sort_by_key(|row| self.times_ns[*row]);
        self.times_ns = order.iter().map(|row| self.times_ns[*row]).collect();
        self.cpus = order.iter().map(|row| self.cpus[*row]).collect();
        for column in &mut self.columns {
            *column = order.iter().map(|row| column[*row]).collect();
        }
    }
}

/// A column of a file.
fn column_type(field: &EventField) -> TypePtr {
    let (physical, logical) = match field.ty {
        FieldType::U8 => (Physical::INT32, Some(LogicalType::integer(8, false))),
        FieldType::U16 => (Physical::INT32, Some(LogicalType::integer(16, false))),
        FieldType::U32 => (Physical::INT32, Some(LogicalType::integer(32, false))),
        FieldType::I8 => (Physical::INT32, Some(LogicalType::integer(8, true))),
        FieldType::I16 => (Physical::INT32, Some(LogicalType::integer(16, true))),
        FieldType::I32 => (Physical::INT32, Some(LogicalType::integer(32, true))),
        FieldType::U64 => (Physical::INT64, Some(LogicalType::integer(64, false))),
        FieldType::I64 => (Physical::INT64, Some(LogicalType::integer(64, true))),
        FieldType::Bool => (Physical::BOOLEAN, None),
        FieldType::Text => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
    };
    let column = Type::primitive_type_builder(&field.name, physical)
        .with_logical_type(logical)
        .with_repetition(Repetition::REQUIRED)
        .build();
    Arc::new(column.expect("these annotations fit their physical types"))
}

fn properties(fields: &[EventField]) -> WriterProperties {
    let mut properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        .set_statistics_enabled(EnabledStatistics::Chunk)
        .set_offset_index_disabled(true)
        .set_data_page_row_count_limit(PAGE_ROWS)
        .set_write_batch_size(PAGE_ROWS);
    // Times and addresses hardly repeat; differences between neighbours are small.
    let differ = |field: &&EventField| matches!(field.ty, FieldType::U64 | FieldType::I64);
    let wide = fields.iter().filter(differ).map(|field| field.name.as_str());
    for name in wide.chain([TIME]) {
        properties = properties
            .set_column_dictionary_enabled(ColumnPath::from(name), name != TIME)
            .set_column_encoding(ColumnPath::from(name), Encoding::DELTA_BINARY_PACKED);
    }
    properties.build()
}

/// Writes a file. Returns its size in bytes.
pub(super) fn write(
    path: &Path,
    fields: &[EventField],
    rows: &Rows,
    texts: &[ByteArray],
) -> Result<u64> {
    let time = EventField::new(TIME, FieldType::U64);
    let columns = std::iter::once(time).chain(with_cpu(fields));
    let columns = columns.map(|field| column_type(&field)).collect();
    write_file(path, columns, properties(fields), |writer| {
        let mut group = writer.next_row_group()?;
        put::<Int64Type>(&mut group, rows.times_ns.iter().map(|ns| *ns as i64))?;
        put::<Int32Type>(&mut group, rows.cpus.iter().map(|cpu| *cpu as i32))?;
        for (field, values) in fields.iter().zip(&rows.columns) {
            let values = values.iter().map(|value| field.ty.fitted(*value));
            match field.ty {
                FieldType::U64 | FieldType::I64 => {
                    put::<Int64Type>(&mut group, values.map(|value| value as i64))?;
                }
                FieldType::Bool => put::<BoolType>(&mut group, values.map(|value| value != 0))?,
                FieldType::Text => {
                    let none = ByteArray::from("");
                    let text = |code| texts.get(code as usize).unwrap_or(&none).clone();
                    put::<ByteArrayType>(&mut group, values.map(text))?;
                }
                _ => put::<Int32Type>(&mut group, values.map(|value| value as i32))?,
            }
        }
        group.close().map(|_| ())
    })
}

fn put<T: DataType>(
    group: &mut SerializedRowGroupWriter<'_, File>,
    values: impl Iterator<Item = T::T>,
) -> Encoded<()> {
    write_values::<T>(group, &values.collect::<Vec<T::T>>())
}

/// What the footer of a file claims.
#[derive(Debug)]
pub(super) struct Footer {
    pub fields: Vec<EventField>,
    pub groups: Vec<GroupClaim>,
}

/// What a footer claims of one row group.
#[derive(Clone, Copy, Debug)]
pub(super) struct GroupClaim {
    pub rows: u64,
    /// Its earliest time, 0 if the file does not say.
    pub first_ns: u64,
}

/// Reads the footer of a file.
pub(super) fn footer(path: &Path) -> Result<Footer> {
    let reader = open_file(path)?;
    let metadata = reader.metadata();
    let schema = metadata.file_metadata().schema_descr();
    let mut fields = Vec::new();
    for column in schema.columns() {
        let name = column.path().string();
        let Some(ty) = field_type(column) else {
            let problem = format!("column {name} has a type that no field of an event has");
            return Err(Error::file(path, problem));
        };
        fields.push(EventField { name, ty });
    }
    let expected = |place: usize, name: &str, ty: FieldType| {
        fields.get(place).is_some_and(|field| field.name == name && field.ty == ty)
    };
    if !expected(0, TIME, FieldType::U64) || !expected(1, CPU, CPU_TYPE) {
        let problem = format!("events begin with the columns {TIME} (u64) and {CPU} (u32)");
        return Err(Error::file(path, problem));
    }
    fields.remove(0);
    check_kind("event", &fields[1..]).map_err(|e| Error::file(path, e))?;
    let claim = |group: &RowGroupMetaData| GroupClaim {
        rows: group.num_rows().max(0) as u64,
        first_ns: match group.columns().first().and_then(|column| column.statistics()) {
            Some(Statistics::Int64(times)) => times.min_opt().map_or(0, |ns| *ns as u64),
            _ => 0,
        },
    };
    let groups = metadata.row_groups().iter().map(claim).collect();
    Ok(Footer { fields, groups })
}

/// One row group, decoded a window at a time.
pub(super) struct Cursor {
    left: usize,
    last_ns: u64,
    times: Column,
    columns: Vec<Column>,
    /// The times of the window.
    pub times_ns: Vec<u64>,
    /// The values of the window, of the fields that were asked for.
    pub values: Vec<Vec<u64>>,
    /// The first row of the window that is not used up; kept by the merge.
    pub at: usize,
}

impl Cursor {
    /// Before the first window. `fields` are places among the fields that readers see.
    pub fn open(path: &Path, group: usize, fields: &[usize]) -> Result<Cursor> {
        let reader = open_file(path)?;
        if group >= reader.num_row_groups() {
            return Err(Error::file(path, "it changed while it was read"));
        }
        guarded(path, || {
            let rows = rows_of(reader.metadata().row_group(group))?;
            let times = Column::open(&reader, group, 0)?;
            let columns: Encoded<Vec<_>> =
                fields.iter().map(|field| Column::open(&reader, group, field + 1)).collect();
            Ok(Cursor {
                left: rows,
                last_ns: 0,
                times,
                columns: columns?,
                times_ns: Vec::new(),
                values: vec![Vec::new(); fields.len()],
                at: 0,
            })
        })
    }

    /// Decodes the next window; `false` when there is none.
    pub fn advance(&mut self, path: &Path, code: &mut dyn FnMut(&str) -> u32) -> Result<bool> {
        let rows = self.left.min(WINDOW);
        self.at = 0;
        self.left -= rows;
        let Cursor { times, columns, times_ns, values, .. } = self;
        guarded(path, || {
            times.read(rows, times_ns, code)?;
            columns.iter_mut().zip(values).try_for_each(|(c, out)| c.read(rows, out, code))
        })?;
        let sorted = self.times_ns.is_sorted();
        if !sorted || self.times_ns.first().is_some_and(|first| *first < self.last_ns) {
            return Err(Error::file(path, "its events are not in order of time"));
        }
        self.last_ns = self.times_ns.last().copied().unwrap_or(self.last_ns);
        Ok(rows > 0)
    }
}
