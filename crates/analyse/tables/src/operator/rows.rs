//! Events on their way between machines.
//!
//! Texts travel as texts: codes are a reader's own. Everything else travels as the 64 bits that the
//! engine computes with.

use std::sync::Arc;

use arrow_array::builder::{
    StringBuilder, UInt8Builder, UInt16Builder, UInt32Builder, UInt64Builder,
};
use arrow_array::cast::AsArray;
use arrow_array::types::{UInt8Type, UInt16Type, UInt32Type, UInt64Type};
use arrow_array::{Array, ArrayRef, PrimitiveArray, RecordBatch, StringArray};
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef};
use fettle_follow::Place;
use fettle_requests::{Batch, EventId, FieldType, Program, Strings};

use crate::error::Result;

/// The column to partition by between the first step and the second.
pub const KEY: &str = "key";
/// The columns to order by between steps.
pub const ORDER: [&str; 3] = ["time_ns", "source", "row"];
/// Columns in front of the fields.
const FIXED: usize = 7;
/// In place of the number of a section: the event matters whatever is open.
pub(super) const WHOLE: u16 = u16::MAX;

/// How events of a program lie in batches.
#[derive(Clone, Debug)]
pub struct Layout {
    schema: SchemaRef,
    width: usize,
    /// Fields that are texts in some kind of event.
    texts: Vec<usize>,
    kinds: Vec<EventId>,
    /// For each kind, which of its fields are texts.
    text_fields: Vec<Vec<usize>>,
}

impl Layout {
    /// The layout for a program's events.
    pub fn new(program: &Program) -> Layout {
        let catalog = program.catalog();
        let used = |event: &EventId| program.schemas().iter().any(|schema| schema.uses(*event));
        let all = catalog.events().iter();
        let kinds: Vec<EventId> = all.filter_map(|kind| catalog.find(&kind.name)).collect();
        let fields = |event: &EventId| catalog.get(*event).map_or(&[][..], |kind| &kind.fields);
        let width = kinds.iter().filter(|k| used(k)).map(|k| fields(k).len()).max().unwrap_or(0);
        let text_fields: Vec<Vec<usize>> = kinds
            .iter()
            .map(|event| {
                let fields = fields(event).iter().enumerate();
                fields.filter(|(_, f)| f.ty == FieldType::Text).map(|(n, _)| n).collect()
            })
            .collect();
        let of_used = kinds.iter().zip(&text_fields).filter(|(event, _)| used(event));
        let mut texts: Vec<usize> = of_used.flat_map(|(_, fields)| fields.clone()).collect();
        texts.sort_unstable();
        texts.dedup();
        let mut columns = vec![
            Field::new(KEY, DataType::UInt64, false),
            Field::new(ORDER[0], DataType::UInt64, false),
            Field::new(ORDER[1], DataType::UInt32, false),
            Field::new(ORDER[2], DataType::UInt64, false),
            Field::new("section", DataType::UInt16, false),
            Field::new("purpose", DataType::UInt8, false),
            Field::new("kind", DataType::UInt16, false),
        ];
        columns.extend((0..width).map(|n| Field::new(format!("v{n}"), DataType::UInt64, false)));
        columns.extend(texts.iter().map(|n| Field::new(format!("t{n}"), DataType::Utf8, true)));
        Layout { schema: Arc::new(Schema::new(columns)), width, texts, kinds, text_fields }
    }

    /// The columns.
    pub fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }
}

/// What a row says besides the event.
#[derive(Clone, Copy, Debug)]
pub(super) struct Head {
    pub key: u64,
    pub time_ns: u64,
    pub place: Place,
    /// Which of the sections that the event names, or [`WHOLE`].
    pub section: u16,
    /// What it is for.
    pub purpose: Purpose,
}

/// What a row is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// The event is kept if the section may be open.
    Ask,
    /// The section has to be told of the event, which is kept anyway.
    Tell,
    /// The event may turn out to have happened at this time already.
    Foretell,
}

impl Purpose {
    fn number(self) -> u8 {
        self as u8
    }

    fn of(number: u8) -> Purpose {
        match number {
            0 => Purpose::Ask,
            1 => Purpose::Tell,
            _ => Purpose::Foretell,
        }
    }
}

/// Rows on their way out.
pub(super) struct RowsBuilder {
    layout: Layout,
    keys: UInt64Builder,
    times: UInt64Builder,
    sources: UInt32Builder,
    rows: UInt64Builder,
    sections: UInt16Builder,
    purposes: UInt8Builder,
    kinds: UInt16Builder,
    values: Vec<UInt64Builder>,
    texts: Vec<StringBuilder>,
    len: usize,
}

impl RowsBuilder {
    pub fn new(layout: Layout) -> RowsBuilder {
        RowsBuilder {
            keys: UInt64Builder::new(),
            times: UInt64Builder::new(),
            sources: UInt32Builder::new(),
            rows: UInt64Builder::new(),
            sections: UInt16Builder::new(),
            purposes: UInt8Builder::new(),
            kinds: UInt16Builder::new(),
            values: (0..layout.width).map(|_| UInt64Builder::new()).collect(),
            texts: layout.texts.iter().map(|_| StringBuilder::new()).collect(),
            layout,
            len: 0,
        }
    }

    pub fn len(&self) -> usize {
        self.len
    }

    /// Adds an event of a batch.
    pub fn push(&mut self, head: Head, batch: &Batch, row: usize, strings: &Strings) {
        self.len += 1;
        self.keys.append_value(head.key);
        self.times.append_value(head.time_ns);
        self.sources.append_value(head.place.source);
        self.rows.append_value(head.place.row);
        self.sections.append_value(head.section);
        self.purposes.append_value(head.purpose.number());
        let kind = batch.kind(row).index();
        self.kinds.append_value(kind as u16);
        for (n, column) in self.values.iter_mut().enumerate() {
            column.append_value(batch.value(row, n));
        }
        let is_text = self.layout.text_fields.get(kind).map_or(&[][..], Vec::as_slice);
        for (n, column) in self.layout.texts.iter().zip(&mut self.texts) {
            match is_text.contains(n) {
                true => column.append_option(strings.text(batch.value(row, *n) as u32)),
                false => column.append_null(),
            }
        }
    }

    /// Takes out what there is.
    pub fn take(&mut self) -> Result<RecordBatch> {
        self.len = 0;
        let mut columns: Vec<ArrayRef> = vec![
            Arc::new(self.keys.finish()),
            Arc::new(self.times.finish()),
            Arc::new(self.sources.finish()),
            Arc::new(self.rows.finish()),
            Arc::new(self.sections.finish()),
            Arc::new(self.purposes.finish()),
            Arc::new(self.kinds.finish()),
        ];
        columns.extend(self.values.iter_mut().map(|c| Arc::new(c.finish()) as ArrayRef));
        columns.extend(self.texts.iter_mut().map(|c| Arc::new(c.finish()) as ArrayRef));
        Ok(RecordBatch::try_new(self.layout.schema(), columns)?)
    }
}

/// Rows that came in.
pub(super) struct Rows<'a> {
    layout: &'a Layout,
    times: &'a PrimitiveArray<UInt64Type>,
    sources: &'a PrimitiveArray<UInt32Type>,
    rows: &'a PrimitiveArray<UInt64Type>,
    sections: &'a PrimitiveArray<UInt16Type>,
    purposes: &'a PrimitiveArray<UInt8Type>,
    kinds: &'a PrimitiveArray<UInt16Type>,
    values: Vec<&'a PrimitiveArray<UInt64Type>>,
    texts: Vec<&'a StringArray>,
}

impl<'a> Rows<'a> {
    /// # Errors
    ///
    /// If the batch is not laid out so.
    pub fn new(layout: &'a Layout, batch: &'a RecordBatch) -> Result<Rows<'a>> {
        let types = |schema: &SchemaRef| -> Vec<DataType> {
            schema.fields().iter().map(|field| field.data_type().clone()).collect()
        };
        if types(&batch.schema()) != types(&layout.schema) {
            let problem = format!("these are no events: {:?}", batch.schema());
            return Err(ArrowError::SchemaError(problem).into());
        }
        let (values, texts) = batch.columns()[FIXED..].split_at(layout.width);
        Ok(Rows {
            layout,
            times: batch.column(1).as_primitive(),
            sources: batch.column(2).as_primitive(),
            rows: batch.column(3).as_primitive(),
            sections: batch.column(4).as_primitive(),
            purposes: batch.column(5).as_primitive(),
            kinds: batch.column(6).as_primitive(),
            values: values.iter().map(arrow_array::cast::AsArray::as_primitive).collect(),
            texts: texts.iter().map(arrow_array::cast::AsArray::as_string).collect(),
        })
    }

    pub fn len(&self) -> usize {
        self.times.len()
    }

    /// Time and place of an event: what it is known by.
    pub fn name(&self, row: usize) -> (u64, Place) {
        let place = Place { source: self.sources.value(row), row: self.rows.value(row) };
        (self.times.value(row), place)
    }

    pub fn section(&self, row: usize) -> u16 {
        self.sections.value(row)
    }

    pub fn purpose(&self, row: usize) -> Purpose {
        Purpose::of(self.purposes.value(row))
    }

    /// Adds the event of a row to a batch; nothing if it is of a kind that there is not.
    pub fn push(&self, row: usize, batch: &mut Batch, strings: &mut Strings) -> bool {
        let kind = usize::from(self.kinds.value(row));
        let Some(event) = self.layout.kinds.get(kind) else { return false };
        let mut values: Vec<u64> = self.values.iter().map(|column| column.value(row)).collect();
        for (n, column) in self.layout.texts.iter().zip(&self.texts) {
            if !column.is_null(row) {
                values[*n] = u64::from(strings.code(column.value(row)));
            }
        }
        batch.push(self.times.value(row), *event, &values);
        true
    }
}
