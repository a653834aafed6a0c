//! Columns of a row group as 64-bit values, decoded a stretch at a time.
//!
//! Integers of any width and flags become `u64`, signed ones extended; texts become codes of the
//! caller's.

use std::fs::File;
use std::path::Path;

use parquet::basic::{LogicalType, Type as Physical};
use parquet::column::reader::{ColumnReader, ColumnReaderImpl, get_typed_column_reader};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::schema::types::ColumnDescriptor;

use crate::column::{Encoded, guarded, rows_of};
use crate::error::{Error, Result};
use crate::events::FieldType;

/// Some columns of one row group, read together.
pub(crate) struct Values {
    columns: Vec<Column>,
}

impl Values {
    /// Before the first row.
    pub(crate) fn open(
        path: &Path,
        reader: &SerializedFileReader<File>,
        group: usize,
        names: &[&str],
    ) -> Result<Values> {
        if group >= reader.num_row_groups() {
            return Err(Error::file(path, "it changed while it was read"));
        }
        guarded(path, || {
            let metadata = reader.metadata().row_group(group);
            rows_of(metadata)?;
            let column = |name: &&str| {
                let mut columns = metadata.columns().iter();
                let at = columns.position(|column| column.column_path().string() == **name);
                let missing = || ParquetError::General(format!("column {name}: missing"));
                Column::open(reader, group, at.ok_or_else(missing)?)
            };
            Ok(Values { columns: names.iter().map(column).collect::<Encoded<_>>()? })
        })
    }

    /// Goes on to a row further on.
    pub(crate) fn skip(&mut self, path: &Path, rows: usize) -> Result<()> {
        guarded(path, || self.columns.iter_mut().try_for_each(|column| column.skip(rows)))
    }

    /// Replaces `out`, one list per column, by the next `rows` values.
    pub(crate) fn read(&mut self, path: &Path, rows: usize, out: &mut [Vec<u64>]) -> Result<()> {
        let mut columns = self.columns.iter_mut().zip(out);
        guarded(path, || columns.try_for_each(|(column, out)| column.read(rows, out, &mut |_| 0)))
    }
}

/// What a column of a file holds, if it can be a field.
pub(crate) fn field_type(column: &ColumnDescriptor) -> Option<FieldType> {
    if column.max_rep_level() != 0 || column.max_def_level() != 0 {
        return None;
    }
    let integer = match column.logical_type_ref() {
        Some(LogicalType::Integer(integer)) => Some((integer.bit_width, integer.is_signed)),
        _ => None,
    };
    Some(match (column.physical_type(), integer) {
        (Physical::BOOLEAN, _) => FieldType::Bool,
        (Physical::BYTE_ARRAY, _) => FieldType::Text,
        (Physical::INT32, Some((8, false))) => FieldType::U8,
        (Physical::INT32, Some((16, false))) => FieldType::U16,
        (Physical::INT32, Some((32, false))) => FieldType::U32,
        (Physical::INT32, Some((8, true))) => FieldType::I8,
        (Physical::INT32, Some((16, true))) => FieldType::I16,
        (Physical::INT32, _) => FieldType::I32,
        (Physical::INT64, Some((64, false))) => FieldType::U64,
        (Physical::INT64, _) => FieldType::I64,
        _ => return None,
    })
}

/// A column of one row group.
pub(crate) struct Column {
    name: String,
    ty: FieldType,
    reader: Typed,
}

enum Typed {
    Bits32(ColumnReaderImpl<Int32Type>, Vec<i32>),
    Bits64(ColumnReaderImpl<Int64Type>, Vec<i64>),
    Bool(ColumnReaderImpl<BoolType>, Vec<bool>),
    Text(ColumnReaderImpl<ByteArrayType>, Vec<ByteArray>, Recent),
}

impl Column {
    pub(crate) fn open(
        reader: &SerializedFileReader<File>,
        group: usize,
        at: usize,
    ) -> Encoded<Column> {
        let group = reader.get_row_group(group)?;
        if at >= group.num_columns() {
            return Err(ParquetError::General("it changed while it was read".into()));
        }
        let description = group.metadata().column(at).column_descr_ptr();
        let name = description.path().string();
        let ty = field_type(&description)
            .ok_or_else(|| ParquetError::General(format!("column {name} is of another type")))?;
        let reader = match group.get_column_reader(at)? {
            reader @ ColumnReader::Int32ColumnReader(_) => {
                Typed::Bits32(get_typed_column_reader(reader), Vec::new())
            }
            reader @ ColumnReader::Int64ColumnReader(_) => {
                Typed::Bits64(get_typed_column_reader(reader), Vec::new())
            }
            reader @ ColumnReader::BoolColumnReader(_) => {
                Typed::Bool(get_typed_column_reader(reader), Vec::new())
            }
            reader @ ColumnReader::ByteArrayColumnReader(_) => {
                Typed::Text(get_typed_column_reader(reader), Vec::new(), Recent::default())
            }
            _ => return Err(ParquetError::General(format!("column {name} is of another type"))),
        };
        Ok(Column { name, ty, reader })
    }

    fn skip(&mut self, rows: usize) -> Encoded<()> {
        let skipped = match &mut self.reader {
            Typed::Bits32(reader, _) => reader.skip_records(rows),
            Typed::Bits64(reader, _) => reader.skip_records(rows),
            Typed::Bool(reader, _) => reader.skip_records(rows),
            Typed::Text(reader, ..) => reader.skip_records(rows),
        };
        if skipped? == rows {
            return Ok(());
        }
        Err(ParquetError::General(format!("column {} ends too early", self.name)))
    }

    /// Replaces `out` by the next `rows` values.
    pub(crate) fn read(
        &mut self,
        rows: usize,
        out: &mut Vec<u64>,
        code: &mut dyn FnMut(&str) -> u32,
    ) -> Encoded<()> {
        out.clear();
        let ty = self.ty;
        let whole = match &mut self.reader {
            Typed::Bits32(reader, values) => {
                let whole = fill(reader, rows, values)?;
                out.extend(values.iter().map(|value| ty.fitted(*value as u64)));
                whole
            }
            Typed::Bits64(reader, values) => {
                let whole = fill(reader, rows, values)?;
                out.extend(values.iter().map(|value| *value as u64));
                whole
            }
            Typed::Bool(reader, values) => {
                let whole = fill(reader, rows, values)?;
                out.extend(values.iter().map(|value| u64::from(*value)));
                whole
            }
            Typed::Text(reader, values, recent) => {
                let whole = fill(reader, rows, values)?;
                out.extend(values.iter().map(|value| u64::from(recent.code(value, code))));
                whole
            }
        };
        if whole && out.len() == rows {
            return Ok(());
        }
        Err(ParquetError::General(format!("column {} ends too early", self.name)))
    }
}

/// Replaces `values` by the next `rows` ones; `false` if there are fewer.
fn fill<T: DataType>(
    reader: &mut ColumnReaderImpl<T>,
    rows: usize,
    values: &mut Vec<T::T>,
) -> Encoded<bool> {
    values.clear();
    let mut left = rows;
    while left > 0 {
        let (read, ..) = reader.read_records(left, None, None, values)?;
        if read == 0 || read > left {
            return Ok(false);
        }
        left -= read;
    }
    Ok(true)
}

/// Codes of texts seen recently, by their address: rows with the same entry of a dictionary have
/// the same bytes in memory, which stay there as long as this keeps them.
struct Recent {
    slots: Vec<(ByteArray, u32)>,
}

impl Default for Recent {
    fn default() -> Recent {
        Recent { slots: vec![(ByteArray::from(""), u32::MAX); Recent::SLOTS] }
    }
}

impl Recent {
    const SLOTS: usize = 512;

    fn code(&mut self, text: &ByteArray, code: &mut dyn FnMut(&str) -> u32) -> u32 {
        let bytes = text.data();
        // Multiplying spreads the address over the upper bits.
        let spread = (bytes.as_ptr() as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 55;
        let slot = &mut self.slots[spread as usize % Recent::SLOTS];
        let same = std::ptr::eq(slot.0.data(), bytes);
        // An empty text may lie anywhere, the one of an empty slot too.
        if !same || bytes.is_empty() {
            *slot = (text.clone(), code(&String::from_utf8_lossy(bytes)));
        }
        slot.1
    }
}
