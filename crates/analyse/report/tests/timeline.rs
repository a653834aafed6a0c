//! Entries and exits in the order of time, also where the calls of one thread fill several files.

#[path = "../../../data/trace/tests/drawing/mod.rs"]
mod drawing;

use std::path::Path;

use fettle_report::timeline::{Event, Filter, Kind, Sink, notify};
use fettle_report::{Analysis, Error};
use fettle_trace::{ROWS_PER_FILE, Trace, TraceWriter};
use fettle_types::FunctionIndex;

/// Checks that events are nested and ordered, and draws the first of them.
#[derive(Default)]
struct Check {
    open: Vec<FunctionIndex>,
    last_ns: u64,
    events: u64,
    depth_max: usize,
    drawn: String,
}

impl Sink for Check {
    type Error = Error;

    fn thread(&mut self, thread: u32) -> Result<(), Error> {
        assert!(self.open.is_empty(), "calls left open: {:?}", self.open);
        self.last_ns = 0;
        self.drawn.push_str(&format!("{thread}: "));
        Ok(())
    }

    fn event(&mut self, event: &Event) -> Result<(), Error> {
        assert!(event.time_ns >= self.last_ns);
        self.last_ns = event.time_ns;
        self.events += 1;
        let letter = char::from(b'A' + event.function.get() as u8);
        match event.kind {
            Kind::Entry => self.open.push(event.function),
            Kind::Exit => assert_eq!(self.open.pop(), Some(event.function)),
        }
        self.depth_max = self.depth_max.max(self.open.len());
        if self.events < 40 {
            self.drawn.push(if event.kind == Kind::Entry { '(' } else { ')' });
            self.drawn.push(letter);
        }
        Ok(())
    }
}

fn reported(folder: &Path, filter: Filter) -> Check {
    let mut check = Check::default();
    let warnings = notify(&Trace::open(folder).unwrap(), filter, &mut check).unwrap();
    assert_eq!(warnings, [] as [String; 0]);
    assert!(check.open.is_empty());
    check
}

#[test]
fn small() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("t");
    drawing::record(&folder, &["AAAA A\n BC\n D\n", "B\n"], |_| {});
    assert_eq!(reported(&folder, Filter::default()).drawn, "0: (A(B(D)D)B(C)C)A(A)A1: (B)B");
    let long = Filter { duration_ns_min: 200 };
    assert_eq!(reported(&folder, long).drawn, "0: (A)A");
}

#[test]
fn calls_that_span_files() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("t");
    // A calls B for ever; each B calls C a number of times that does not divide a file.
    let mut calls = Vec::new();
    let mut time = 0;
    let rounds = ROWS_PER_FILE as u64 / 4;
    for _ in 0..rounds {
        let start = time;
        for _ in 0..8 {
            let (start, end) = (time + 1, time + 3);
            calls.push(drawing::Drawn { function: FunctionIndex(2), depth: 2, start, end });
            time += 3;
        }
        time += 1;
        calls.push(drawing::Drawn { function: FunctionIndex(1), depth: 1, start, end: time });
    }
    calls.push(drawing::Drawn { function: FunctionIndex(0), depth: 0, start: 0, end: time });
    let mut writer = TraceWriter::create(&folder, &drawing::manifest()).unwrap();
    // Two threads, so that the second begins in the middle of a file.
    for thread in [0, 1] {
        writer.spool_append(thread, &drawing::records(&calls)).unwrap();
    }
    writer.finish(drawing::finish(&[&[], &[]]), &mut |_, _| {}).unwrap();

    let all = 2 * calls.len() as u64;
    let check = reported(&folder, Filter::default());
    assert_eq!((check.events, check.depth_max), (2 * all, 3));
    let few = reported(&folder, Filter { duration_ns_min: 3 });
    assert_eq!((few.events, few.depth_max), (2 * 2 * (rounds + 1), 2));

    let analysis = Analysis::read(&Trace::open(&folder).unwrap(), true).unwrap();
    let tree = analysis.tree(0.0, 100);
    let shape: Vec<_> = tree.rows.iter().map(|row| (row.depth, row.calls)).collect();
    assert_eq!(shape, [(0, 2), (1, 2 * rounds), (2, 16 * rounds)]);
}
