//! Requests found in parts are those that are found in one piece.

#[path = "../../follow/tests/shop/mod.rs"]
#[allow(dead_code)]
mod shop;

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_array::types::{UInt32Type, UInt64Type};
use fettle_follow::{Part, Session};
use fettle_requests::{Source, shipped};
use fettle_tables::operator::{Binder, Flow, Layout, Sections};
use fettle_tables::{Builders, Table, render};
use fettle_trace::Trace;

/// A row's time and place, and which batch it is in.
type Order = (u64, u32, u64, usize, usize);

/// Rows of some batches that a test lets, in order.
fn in_order(batches: &[RecordBatch], wanted: &dyn Fn(u64) -> bool) -> Vec<Order> {
    let mut rows = Vec::new();
    for (n, batch) in batches.iter().enumerate() {
        let keys = batch.column(0).as_primitive::<UInt64Type>();
        let times = batch.column(1).as_primitive::<UInt64Type>();
        let sources = batch.column(2).as_primitive::<UInt32Type>();
        let places = batch.column(3).as_primitive::<UInt64Type>();
        for row in (0..batch.num_rows()).filter(|row| wanted(keys.value(*row))) {
            rows.push((times.value(row), sources.value(row), places.value(row), n, row));
        }
    }
    rows.sort_unstable();
    rows
}

/// What an engine does between the steps, a row at a time.
fn slices(batches: &[RecordBatch], order: &[Order]) -> Vec<RecordBatch> {
    order.iter().map(|(.., n, row)| batches[*n].slice(*row, 1)).collect()
}

struct Distributed {
    rows: Vec<serde_json::Value>,
    named: usize,
    kept: usize,
}

fn distributed(session: &Session<'_>, table: Table, parts: usize, keys: u64) -> Distributed {
    let mut bound = Vec::new();
    for index in 0..parts {
        let mut binder = Binder::new(session, Part { index, of: parts }).unwrap();
        while let Some(batch) = binder.read().unwrap() {
            assert_eq!(batch.schema(), Layout::new(session.program()).schema());
            bound.push(batch);
        }
        assert!(binder.problems().is_empty());
    }
    let mut kept = Vec::new();
    for partition in 0..keys {
        let mut sections = Sections::new(session.program());
        let order = in_order(&bound, &|key| key % keys == partition);
        for row in slices(&bound, &order) {
            let some = sections.feed(&row).unwrap();
            kept.extend((some.num_rows() > 0).then_some(some));
        }
    }
    let mut flow = Flow::new(session, table).unwrap();
    let order = in_order(&kept, &|_| true);
    let mut found = Vec::new();
    for row in slices(&kept, &order) {
        flow.feed(&row).unwrap();
        found.extend(flow.take(false).unwrap());
    }
    flow.finish();
    found.extend(flow.take(true).unwrap());
    let named = bound.iter().map(RecordBatch::num_rows).sum();
    Distributed { rows: as_json(&table, &found), named, kept: order.len() }
}

fn embedded(session: &Session<'_>, table: Table) -> Vec<serde_json::Value> {
    let mut builders = Builders::new(&[table]);
    session.for_each(&mut |request, context| builders.push(request, context)).unwrap();
    let batches: Vec<RecordBatch> =
        builders.take(1).unwrap().into_iter().map(|(_, batch)| batch).collect();
    as_json(&table, &batches)
}

/// Rows without the places of events, which count what was read.
fn as_json(table: &Table, batches: &[RecordBatch]) -> Vec<serde_json::Value> {
    let mut rows = render::json(&table.schema(), batches).unwrap();
    for row in &mut rows {
        row.as_object_mut().unwrap().remove("event");
    }
    rows
}

#[test]
fn parts_and_keys_make_no_difference() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("shop.fettle");
    shop::write(&folder, 6, 60);
    let trace = Trace::open(&folder).unwrap();
    for schema in ["sockets", "http1", "files", "threads"] {
        let source = Source::new(schema, shipped(schema).unwrap());
        let session = Session::open(&trace, &[source], &shipped).unwrap();
        for (table, parts, keys) in
            [(Table::Requests, 3, 4), (Table::Steps, 1, 2), (Table::RequestEvents, 7, 3)]
        {
            let expected = embedded(&session, table);
            let Distributed { rows, named, kept } = distributed(&session, table, parts, keys);
            assert_eq!(rows.len(), expected.len(), "{schema}, {table:?}");
            assert_eq!(rows, expected, "{schema}, {table:?}, {parts} parts, {keys} keys");
            assert!(kept <= named);
        }
    }
}
