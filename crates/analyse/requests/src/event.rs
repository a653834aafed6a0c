//! Events: what they are called, which fields they have, and how many of them lie in memory.
//!
//! A [`Batch`] is a structure of arrays: times, kinds, and as many columns of numbers as the widest
//! event has fields. Field *n* of an event lies in column *n*, whatever its kind, so a batch maps
//! onto an Arrow record batch column by column. Texts are numbers too: codes of a [`Strings`]. A reader starts with
//! the program's ([`crate::Program::strings`]), so that texts in filters and texts in events have the same codes.

use std::collections::HashMap;

pub use fettle_abi::FieldType;
pub use fettle_types::Strings;

/// A named and typed field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// Its name.
    pub name: String,
    /// What it holds.
    pub ty: FieldType,
    /// Whether there may be events without it: there it is 0. No other field comes behind.
    pub optional: bool,
}

/// A kind of event, as declared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventType {
    /// Its name.
    pub name: String,
    /// Its fields; the place of a field is its column.
    pub fields: Vec<Field>,
}

impl EventType {
    /// The place of a field.
    pub fn place(&self, field: &str) -> Option<usize> {
        self.fields.iter().position(|known| known.name == field)
    }
}

/// The number of a kind of event in its [`Catalog`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventId(pub(crate) u16);

impl EventId {
    /// Its place in [`Catalog::events`].
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// All kinds of events of a program.
#[derive(Clone, Debug, Default)]
pub struct Catalog {
    events: Vec<EventType>,
    by_name: HashMap<String, EventId>,
}

impl Catalog {
    /// Most kinds of events.
    pub const MAX: usize = 4096;

    /// The kind of that name.
    pub fn find(&self, name: &str) -> Option<EventId> {
        self.by_name.get(name).copied()
    }

    /// A kind by number; `None` for a number of another catalog.
    pub fn get(&self, event: EventId) -> Option<&EventType> {
        self.events.get(event.index())
    }

    /// All kinds, in order of their numbers: what an editor would complete.
    pub fn events(&self) -> &[EventType] {
        &self.events
    }

    /// Fields of the widest event.
    pub fn width(&self) -> usize {
        self.events.iter().map(|event| event.fields.len()).max().unwrap_or(0)
    }

    /// Takes in a kind that is not there yet. The caller sees to [`Catalog::MAX`].
    pub(crate) fn add(&mut self, event: EventType) -> EventId {
        assert!(self.events.len() < Catalog::MAX);
        let id = EventId(self.events.len() as u16);
        self.by_name.insert(event.name.clone(), id);
        self.events.push(event);
        id
    }
}

/// Some events in order of time.
#[derive(Clone, Debug)]
pub struct Batch {
    pub(crate) times_ns: Vec<u64>,
    pub(crate) kinds: Vec<EventId>,
    pub(crate) columns: Vec<Vec<u64>>,
}

impl Batch {
    /// An empty batch for the events of a catalog.
    pub fn new(catalog: &Catalog) -> Batch {
        let columns = vec![Vec::new(); catalog.width()];
        Batch { times_ns: Vec::new(), kinds: Vec::new(), columns }
    }

    /// Adds an event. `values` are its fields in the order of their declaration, signed ones
    /// extended to 64 bits; those left out are 0.
    ///
    /// # Panics
    ///
    /// If there are more values than the catalog's widest event has fields.
    #[inline]
    pub fn push(&mut self, time_ns: u64, event: EventId, values: &[u64]) {
        assert!(values.len() <= self.columns.len());
        self.times_ns.push(time_ns);
        self.kinds.push(event);
        for (n, column) in self.columns.iter_mut().enumerate() {
            column.push(values.get(n).copied().unwrap_or(0));
        }
    }

    /// Adds events of one kind, column by column: their times, and the values of each field in the
    /// order of declaration. Fields that are left out are 0.
    ///
    /// # Panics
    ///
    /// If there are more fields than the catalog's widest event has, or columns of another length
    /// than there are times.
    pub fn extend<'a>(
        &mut self,
        event: EventId,
        times_ns: &[u64],
        fields: impl IntoIterator<Item = &'a [u64]>,
    ) {
        let rows = self.times_ns.len() + times_ns.len();
        self.times_ns.extend_from_slice(times_ns);
        self.kinds.resize(rows, event);
        let mut columns = self.columns.iter_mut();
        for values in fields {
            assert_eq!(values.len(), times_ns.len(), "a column of another length");
            let column = columns.next().expect("more fields than the widest event has");
            column.extend_from_slice(values);
        }
        columns.for_each(|column| column.resize(rows, 0));
    }

    /// Puts events in order of time; those of one time keep theirs.
    pub fn sort(&mut self) {
        if self.times_ns.is_sorted() {
            return;
        }
        let mut order: Vec<usize> = (0..self.len()).collect();
        order.sort_by_key(|row| self.times_ns[*row]);
        self.times_ns = order.iter().map(|row| self.times_ns[*row]).collect();
        self.kinds = order.iter().map(|row| self.kinds[*row]).collect();
        for column in &mut self.columns {
            *column = order.iter().map(|row| column[*row]).collect();
        }
    }

    /// Moves an event to another time; [`Batch::sort`] then puts it where it belongs.
    pub fn set_time_ns(&mut self, row: usize, time_ns: u64) {
        self.times_ns[row] = time_ns;
    }

    /// Number of events before a time, if they are in order of time.
    pub fn before(&self, time_ns: u64) -> usize {
        self.times_ns.partition_point(|time| *time < time_ns)
    }

    /// Replaces `out` by the first `rows` events, which are taken out.
    ///
    /// # Panics
    ///
    /// If there are fewer, or `out` is for the events of another catalog.
    pub fn take_front(&mut self, rows: usize, out: &mut Batch) {
        out.clear();
        if rows == self.len() {
            std::mem::swap(self, out);
            return;
        }
        assert_eq!(self.columns.len(), out.columns.len());
        out.times_ns.extend(self.times_ns.drain(..rows));
        out.kinds.extend(self.kinds.drain(..rows));
        for (column, out) in self.columns.iter_mut().zip(&mut out.columns) {
            out.extend(column.drain(..rows));
        }
    }

    /// All events, which are taken out.
    #[must_use]
    pub fn take(&mut self) -> Batch {
        let columns = vec![Vec::new(); self.columns.len()];
        let empty = Batch { times_ns: Vec::new(), kinds: Vec::new(), columns };
        std::mem::replace(self, empty)
    }

    /// Adds the events of another batch.
    ///
    /// # Panics
    ///
    /// If that is for the events of another catalog.
    pub fn append(&mut self, other: &Batch) {
        assert_eq!(self.columns.len(), other.columns.len());
        self.times_ns.extend_from_slice(&other.times_ns);
        self.kinds.extend_from_slice(&other.kinds);
        for (column, other) in self.columns.iter_mut().zip(&other.columns) {
            column.extend_from_slice(other);
        }
    }

    /// Replaces a field of an event.
    pub fn set_value(&mut self, row: usize, field: usize, value: u64) {
        self.columns[field][row] = value;
    }

    /// Takes all events out and keeps the memory.
    pub fn clear(&mut self) {
        self.times_ns.clear();
        self.kinds.clear();
        self.columns.iter_mut().for_each(Vec::clear);
    }

    /// Number of events.
    pub fn len(&self) -> usize {
        self.times_ns.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.times_ns.is_empty()
    }

    /// Kind of an event.
    pub fn kind(&self, row: usize) -> EventId {
        self.kinds[row]
    }

    /// Time of an event.
    pub fn time_ns(&self, row: usize) -> u64 {
        self.times_ns[row]
    }

    /// A field of an event.
    pub fn value(&self, row: usize, field: usize) -> u64 {
        self.columns[field][row]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_added_as_rows_are() {
        let mut catalog = Catalog::default();
        let field = |name: &str| Field { name: name.into(), ty: FieldType::U8, optional: false };
        let wide = EventType { name: "wide".into(), fields: vec![field("x"), field("y")] };
        let wide = catalog.add(wide);
        let narrow = catalog.add(EventType { name: "narrow".into(), fields: Vec::new() });
        let (mut rows, mut columns) = (Batch::new(&catalog), Batch::new(&catalog));
        rows.push(1, wide, &[10, 20]);
        rows.push(2, wide, &[11, 21]);
        rows.push(3, narrow, &[]);
        columns.extend(wide, &[1, 2], [&[10, 11][..], &[20, 21][..]]);
        columns.extend(narrow, &[3], []);
        assert_eq!((&rows.times_ns, &rows.kinds), (&columns.times_ns, &columns.kinds));
        assert_eq!(rows.columns, columns.columns);
    }

    #[test]
    fn the_front_is_taken_out() {
        let mut catalog = Catalog::default();
        let field = Field { name: "x".into(), ty: FieldType::U8, optional: false };
        let event = catalog.add(EventType { name: "e".into(), fields: vec![field] });
        let (mut batch, mut out) = (Batch::new(&catalog), Batch::new(&catalog));
        (0..5).for_each(|n| batch.push(n * 10, event, &[n]));
        assert_eq!((batch.before(0), batch.before(20), batch.before(99)), (0, 2, 5));
        batch.take_front(2, &mut out);
        assert_eq!((out.times_ns.as_slice(), batch.value(0, 0)), (&[0, 10][..], 2));
        batch.take_front(3, &mut out);
        assert_eq!((out.len(), out.value(0, 0), batch.len()), (3, 2, 0));
    }

    #[test]
    fn sorting_keeps_rows_together() {
        let mut catalog = Catalog::default();
        let fields = vec![Field { name: "x".into(), ty: FieldType::U8, optional: false }];
        let event = catalog.add(EventType { name: "e".into(), fields });
        let mut batch = Batch::new(&catalog);
        for (time, value) in [(3, 30), (1, 10), (3, 31), (2, 20)] {
            batch.push(time, event, &[value]);
        }
        batch.sort();
        let rows: Vec<_> = (0..4).map(|row| (batch.time_ns(row), batch.value(row, 0))).collect();
        assert_eq!(rows, [(1, 10), (2, 20), (3, 30), (3, 31)]);
    }
}
