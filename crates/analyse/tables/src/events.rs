//! Events as batches, one column for each field.

use std::sync::Arc;

use arrow_array::builder::{BooleanBuilder, Int64Builder, StringDictionaryBuilder, UInt64Builder};
use arrow_array::types::Int32Type;
use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use fettle_requests::{Batch, EventId, FieldType, Program, Strings};

use crate::error::Result;
use crate::schema::Kind;

/// What a column of events holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Holds {
    Signed,
    /// Addresses use all 64 bits.
    Unsigned,
    Flag,
    Text,
    /// Fields of one name are numbers in one kind of event and texts in another.
    Anything,
}

impl Holds {
    fn of(ty: FieldType) -> Holds {
        match ty {
            FieldType::Text => Holds::Text,
            FieldType::Bool => Holds::Flag,
            FieldType::U64 => Holds::Unsigned,
            _ => Holds::Signed,
        }
    }

    fn with(self, other: Holds) -> Holds {
        let number = |holds| matches!(holds, Holds::Signed | Holds::Unsigned);
        match (self, other) {
            (a, b) if a == b => a,
            (a, b) if number(a) && number(b) => Holds::Signed,
            _ => Holds::Anything,
        }
    }

    fn data_type(self) -> DataType {
        match self {
            Holds::Signed => DataType::Int64,
            Holds::Unsigned => DataType::UInt64,
            Holds::Flag => DataType::Boolean,
            Holds::Text | Holds::Anything => Kind::Text.data_type(),
        }
    }
}

/// A column, and where its values lie in events of each kind.
struct FieldColumn {
    name: String,
    holds: Holds,
    /// By kind of event: the place of the field and its type.
    places: Vec<Option<(usize, FieldType)>>,
}

/// A table of events: of one kind, with its fields, or of several, with the fields of all.
pub struct EventTable {
    schema: SchemaRef,
    columns: Vec<FieldColumn>,
    wanted: Vec<bool>,
}

impl EventTable {
    /// A table of the events of some kinds of a program.
    pub fn new(program: &Program, kinds: &[EventId]) -> EventTable {
        let catalog = program.catalog();
        let all = catalog.events().len();
        let mut wanted = vec![false; all];
        let mut columns: Vec<FieldColumn> = Vec::new();
        for event in kinds {
            let Some(declared) = catalog.get(*event) else { continue };
            wanted[event.index()] = true;
            for (place, field) in declared.fields.iter().enumerate() {
                let at = columns.iter().position(|column| column.name == field.name);
                let at = at.unwrap_or_else(|| {
                    let (name, holds) = (field.name.clone(), Holds::of(field.ty));
                    columns.push(FieldColumn { name, holds, places: vec![None; all] });
                    columns.len() - 1
                });
                let column = &mut columns[at];
                column.holds = column.holds.with(Holds::of(field.ty));
                column.places[event.index()] = Some((place, field.ty));
            }
        }
        // What the table itself has is not hidden by a field of the same name.
        columns.retain(|column| !["event", "time_ns", "kind"].contains(&column.name.as_str()));
        let mut fields = vec![
            Field::new("event", DataType::Int64, false),
            Field::new("time_ns", DataType::Int64, false),
            Field::new("kind", Kind::Text.data_type(), false),
        ];
        let field = |c: &FieldColumn| Field::new(&c.name, c.holds.data_type(), true);
        fields.extend(columns.iter().map(field));
        EventTable { schema: Arc::new(Schema::new(fields)), columns, wanted }
    }

    /// Its columns: `event`, the place among all events that were followed; `time_ns`; `kind`; and
    /// the fields.
    pub fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    /// Its events among those of a batch, the first of which has the place `first`.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Arrow`] if there are more texts than a dictionary can number.
    pub fn batch(
        &self,
        first: u64,
        batch: &Batch,
        program: &Program,
        strings: &Strings,
    ) -> Result<RecordBatch> {
        let is_wanted = |row: &usize| self.wanted.get(batch.kind(*row).index()) == Some(&true);
        let rows: Vec<usize> = (0..batch.len()).filter(is_wanted).collect();
        let signed = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
        let mut events = Int64Builder::with_capacity(rows.len());
        let mut times = Int64Builder::with_capacity(rows.len());
        let mut kinds = StringDictionaryBuilder::<Int32Type>::new();
        for row in &rows {
            events.append_value(signed(first + *row as u64));
            times.append_value(signed(batch.time_ns(*row)));
            let kind = program.catalog().get(batch.kind(*row));
            kinds.append_value(kind.map_or("", |kind| kind.name.as_str()));
        }
        let mut arrays: Vec<ArrayRef> =
            vec![Arc::new(events.finish()), Arc::new(times.finish()), Arc::new(kinds.finish())];
        for column in &self.columns {
            let values = rows.iter().map(|row| {
                let (place, ty) = column.places.get(batch.kind(*row).index()).copied().flatten()?;
                Some((batch.value(*row, place), ty))
            });
            arrays.push(array(column.holds, values, strings));
        }
        Ok(RecordBatch::try_new(self.schema.clone(), arrays)?)
    }
}

fn array(
    holds: Holds,
    values: impl Iterator<Item = Option<(u64, FieldType)>>,
    strings: &Strings,
) -> ArrayRef {
    let text = |code: u64| u32::try_from(code).ok().and_then(|code| strings.text(code));
    match holds {
        Holds::Signed => {
            let mut to = Int64Builder::new();
            values.for_each(|value| to.append_option(value.map(|(raw, _)| raw.cast_signed())));
            Arc::new(to.finish())
        }
        Holds::Unsigned => {
            let mut to = UInt64Builder::new();
            values.for_each(|value| to.append_option(value.map(|(raw, _)| raw)));
            Arc::new(to.finish())
        }
        Holds::Flag => {
            let mut to = BooleanBuilder::new();
            values.for_each(|value| to.append_option(value.map(|(raw, _)| raw != 0)));
            Arc::new(to.finish())
        }
        Holds::Text | Holds::Anything => {
            let mut to = StringDictionaryBuilder::<Int32Type>::new();
            for value in values {
                match value {
                    None => to.append_null(),
                    Some((code, FieldType::Text)) => to.append_option(text(code)),
                    Some((raw, FieldType::Bool)) => {
                        to.append_value(if raw != 0 { "true" } else { "false" });
                    }
                    Some((raw, ty)) if ty.signed() => {
                        to.append_value(raw.cast_signed().to_string());
                    }
                    Some((raw, _)) => to.append_value(raw.to_string()),
                }
            }
            Arc::new(to.finish())
        }
    }
}
