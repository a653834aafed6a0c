//! Batches as text for people, and as JSON and CSV for programs.

use arrow_array::cast::AsArray;
use arrow_array::types::{
    Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, UInt8Type, UInt16Type,
    UInt32Type, UInt64Type,
};
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_cast::display::{ArrayFormatter, FormatOptions};
use arrow_schema::{DataType, SchemaRef};
use serde_json::{Map, Value};

use crate::error::Result;

/// Characters of a cell in [`text`]; the rest is cut off, and shown to be.
const CELL_MAX: usize = 60;

/// A table with aligned columns and at most `rows_max` rows; a last line says if there are more, of
/// which `unseen` are not in `batches`.
pub fn text(
    schema: &SchemaRef,
    batches: &[RecordBatch],
    rows_max: usize,
    unseen: usize,
) -> Result<String> {
    let names = schema.fields().iter().map(|field| field.name().clone()).collect();
    let numeric: Vec<bool> =
        schema.fields().iter().map(|field| field.data_type().is_numeric()).collect();
    let mut lines: Vec<Vec<String>> = vec![names];
    let all = batches.iter().map(RecordBatch::num_rows).sum::<usize>() + unseen;
    for_each_row(batches, rows_max, &mut |cells| lines.push(cells.iter().map(shown).collect()))?;
    let width = |column: usize| {
        lines.iter().map(|line| line[column].chars().count()).max().unwrap_or_default()
    };
    let widths: Vec<usize> = (0..schema.fields().len()).map(width).collect();
    let mut out = String::new();
    for (n, line) in lines.iter().enumerate() {
        let mut whole = String::new();
        for ((cell, width), numeric) in line.iter().zip(&widths).zip(&numeric) {
            match numeric {
                true => whole.push_str(&format!("{cell:>width$}  ")),
                false => whole.push_str(&format!("{cell:<width$}  ")),
            }
        }
        out.push_str(whole.trim_end());
        out.push('\n');
        if n == 0 {
            let rules: Vec<String> = widths.iter().map(|width| "─".repeat(*width)).collect();
            out.push_str(&format!("{}\n", rules.join("  ")));
        }
    }
    if all > rows_max {
        out.push_str(&format!("… and {} more rows (--json and --csv have all)\n", all - rows_max));
    }
    Ok(out)
}

/// A cell on one line: texts in traces come from programs and may hold anything.
fn shown(cell: &Option<String>) -> String {
    let Some(cell) = cell else { return String::new() };
    let clean = |c: char| if c.is_control() { '\u{fffd}' } else { c };
    let mut text: String = cell.chars().take(CELL_MAX).map(clean).collect();
    if cell.chars().nth(CELL_MAX).is_some() {
        text.pop();
        text.push('…');
    }
    text
}

/// Lines of comma-separated values, the first with the names of the columns.
pub fn csv(schema: &SchemaRef, batches: &[RecordBatch]) -> Result<String> {
    let names: Vec<String> = schema.fields().iter().map(|field| quoted(field.name())).collect();
    Ok(format!("{}\r\n{}", names.join(","), csv_rows(batches)?))
}

fn quoted(text: &str) -> String {
    match text.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_owned(),
    }
}

/// The lines of [`csv`] but for the first.
pub fn csv_rows(batches: &[RecordBatch]) -> Result<String> {
    let mut out = String::new();
    for_each_row(batches, usize::MAX, &mut |cells| {
        let cells: Vec<String> =
            cells.iter().map(|cell| quoted(cell.as_deref().unwrap_or(""))).collect();
        out.push_str(&cells.join(","));
        out.push_str("\r\n");
    })?;
    Ok(out)
}

fn for_each_row(
    batches: &[RecordBatch],
    most: usize,
    with: &mut dyn FnMut(&[Option<String>]),
) -> Result<()> {
    let options = FormatOptions::default();
    let mut left = most;
    for batch in batches {
        let formatters = batch.columns().iter().map(|c| ArrayFormatter::try_new(c, &options));
        let formatters = formatters.collect::<std::result::Result<Vec<_>, _>>()?;
        for row in 0..batch.num_rows().min(left) {
            let cell = |(column, formatter): (&ArrayRef, &ArrayFormatter<'_>)| {
                (!column.is_null(row)).then(|| formatter.value(row).to_string())
            };
            let cells: Vec<_> = batch.columns().iter().zip(&formatters).map(cell).collect();
            with(&cells);
        }
        left = left.saturating_sub(batch.num_rows());
    }
    Ok(())
}

/// Rows as objects, for `{"version": 1, "rows": […]}`. Numbers stay numbers; whatever JSON has
/// nothing for becomes text.
pub fn json(schema: &SchemaRef, batches: &[RecordBatch]) -> Result<Vec<Value>> {
    let mut rows = Vec::new();
    for batch in batches {
        let columns: Result<Vec<Vec<Value>>> = batch.columns().iter().map(values).collect();
        let mut columns: Vec<_> = columns?.into_iter().map(Vec::into_iter).collect();
        for _ in 0..batch.num_rows() {
            let fields = schema.fields().iter().zip(&mut columns);
            let object: Map<String, Value> = fields
                .map(|(field, column)| (field.name().clone(), column.next().unwrap_or_default()))
                .collect();
            rows.push(Value::Object(object));
        }
    }
    Ok(rows)
}

fn values(column: &ArrayRef) -> Result<Vec<Value>> {
    macro_rules! numbers {
        ($type:ty) => {
            column
                .as_primitive::<$type>()
                .iter()
                .map(|value| value.map_or(Value::Null, Value::from))
                .collect()
        };
    }
    Ok(match column.data_type() {
        DataType::Int8 => numbers!(Int8Type),
        DataType::Int16 => numbers!(Int16Type),
        DataType::Int32 => numbers!(Int32Type),
        DataType::Int64 => numbers!(Int64Type),
        DataType::UInt8 => numbers!(UInt8Type),
        DataType::UInt16 => numbers!(UInt16Type),
        DataType::UInt32 => numbers!(UInt32Type),
        DataType::UInt64 => numbers!(UInt64Type),
        DataType::Float32 => numbers!(Float32Type),
        DataType::Float64 => numbers!(Float64Type),
        DataType::Boolean => {
            column.as_boolean().iter().map(|v| v.map_or(Value::Null, Value::from)).collect()
        }
        _ => {
            let options = FormatOptions::default();
            let formatter = ArrayFormatter::try_new(column, &options)?;
            let value = |row: usize| match column.is_null(row) {
                true => Value::Null,
                false => Value::from(formatter.value(row).to_string()),
            };
            (0..column.len()).map(value).collect()
        }
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{Float64Array, Int64Array, StringArray};
    use arrow_schema::{Field, Schema};

    use super::*;

    fn sample() -> (SchemaRef, Vec<RecordBatch>) {
        let schema = Arc::new(Schema::new(vec![
            Field::new("class", DataType::Utf8, true),
            Field::new("n", DataType::Int64, false),
            Field::new("mean", DataType::Float64, false),
        ]));
        let classes = StringArray::from(vec![Some("GET, \"all\""), None, Some("a\u{1b}[2Jb")]);
        let columns: Vec<ArrayRef> = vec![
            Arc::new(classes),
            Arc::new(Int64Array::from(vec![7, 1234, -1])),
            Arc::new(Float64Array::from(vec![0.5, 1.0, f64::NAN])),
        ];
        (schema.clone(), vec![RecordBatch::try_new(schema, columns).unwrap()])
    }

    #[test]
    fn text_is_aligned_and_harmless() {
        let (schema, batches) = sample();
        let expected = "class          n  mean\n─────────── ".len();
        let text = text(&schema, &batches, 2, 0).unwrap();
        assert!(text.len() > expected);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "class          n  mean");
        assert_eq!(lines[2], "GET, \"all\"     7   0.5");
        assert_eq!(lines[4], "… and 1 more rows (--json and --csv have all)");
        let text = super::text(&schema, &batches, 2, 5).unwrap();
        assert!(text.ends_with("… and 6 more rows (--json and --csv have all)\n"), "{text}");
        let whole = super::text(&schema, &batches, 9, 0).unwrap();
        assert!(!whole.contains('\u{1b}'), "{whole:?}");
    }

    #[test]
    fn csv_and_json_keep_everything() {
        let (schema, batches) = sample();
        let csv = csv(&schema, &batches).unwrap();
        assert!(csv.starts_with("class,n,mean\r\n\"GET, \"\"all\"\"\",7,0.5\r\n,1234,1.0\r\n"));
        let rows = json(&schema, &batches).unwrap();
        assert_eq!(rows[0], serde_json::json!({"class": "GET, \"all\"", "n": 7, "mean": 0.5}));
        assert_eq!(rows[1]["class"], Value::Null);
        // JSON has no such number.
        assert_eq!(rows[2]["mean"], Value::Null);
    }
}
