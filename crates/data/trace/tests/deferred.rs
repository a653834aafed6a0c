//! A long recording leaves its records as they are stored; its first reader converts them.

mod drawing;

use std::path::Path;

use drawing::{TSC, calls, finish, manifest, records};
use fettle_trace::{Call, Error, OpenCall, Trace, TraceWriter, open_or_recover};
use fettle_types::FunctionIndex;

const FIRST: &str = "AAAAAAAAAA AA\n BBB BB BB A\n CD  C\n";
const SECOND: &str = "  DDDD\n   E\n";

/// Records both drawings, and defers their records if there are more than `most`.
fn record(folder: &Path, most: u64) -> bool {
    let (first, second) = (calls(FIRST), calls(SECOND));
    let mut writer = TraceWriter::create(folder, &manifest()).unwrap();
    writer.spool_append(0, &records(&first)).unwrap();
    writer.spool_append(1, &records(&second)).unwrap();
    writer.switched_out(0, TSC + 150, TSC + 220, true).unwrap();
    let mut tables = finish(&[&first, &second]);
    tables.manifest.switches = true;
    tables.open_calls.push(OpenCall {
        thread: 1,
        function: FunctionIndex(4),
        start_tsc: TSC + 900,
        end_tsc: TSC + 1300,
    });
    let (manifest, deferred) = writer.finish_or_defer(tables, most, &mut |_, _| {}).unwrap();
    assert_eq!(manifest.totals.records, if deferred { 11 } else { 12 }, "an open call is a row");
    deferred
}

fn read(trace: &Trace) -> Vec<Call> {
    let mut all = Vec::new();
    (0..2).for_each(|thread| trace.for_each_call(thread, |call| all.push(*call)).unwrap());
    all
}

#[test]
fn the_first_reader_makes_the_same_trace() {
    let dir = tempfile::tempdir().unwrap();
    let (at_once, later) = (dir.path().join("at-once"), dir.path().join("later"));
    assert!(!record(&at_once, 11));
    assert!(record(&later, 10));
    assert!(matches!(Trace::open(&later), Err(Error::Deferred { .. })));
    // All readers that come at once get it.
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| open_or_recover(&later, &mut |_, _| {}).unwrap());
        }
    });
    let (at_once, later) = (Trace::open(&at_once).unwrap(), Trace::open(&later).unwrap());
    assert!(later.manifest().complete && later.manifest().recovery.is_none());
    assert_eq!(later.warnings(), &[] as &[String]);
    assert_eq!(read(&later), read(&at_once));
    assert_eq!(later.totals().unwrap(), at_once.totals().unwrap());
    assert_eq!(later.threads().unwrap(), at_once.threads().unwrap());
    assert_eq!(later.functions().unwrap(), at_once.functions().unwrap());
    assert_eq!(later.skipped().unwrap(), at_once.skipped().unwrap());
    assert_eq!(later.manifest().totals, at_once.manifest().totals);
    assert!(!later.path().join("spool").exists());
}

#[test]
fn an_ending_that_cannot_be_read_loses_no_record() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("t");
    record(&folder, 0);
    let ending = folder.join("spool/ending.json");
    let text = std::fs::read(&ending).unwrap();
    for damaged in [&b""[..], &text[..text.len() / 2], b"[1]", b"\xff{}"] {
        std::fs::write(&ending, damaged).unwrap();
        let error = open_or_recover(&folder, &mut |_, _| {}).unwrap_err().to_string();
        assert!(error.contains("ending.json is damaged"), "{error}");
    }
    std::fs::remove_file(&ending).unwrap();
    let trace = open_or_recover(&folder, &mut |_, _| {}).unwrap();
    assert_eq!(trace.manifest().recovery.unwrap().records, 11);
}
