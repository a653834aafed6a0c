//! Events: what is written comes out, in order of time, whatever order and files it went in with.

use std::fs;
use std::path::Path;

use fettle_trace::{
    CpuLoss, Error, EventField, EventWriter, FieldType, Finish, Manifest, Trace, TraceWriter,
    open_or_recover,
};

/// Random numbers that are the same in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        (self.0 >> 33) % limit
    }
}

/// Time, kind, processor and values as text.
type Row = (u64, String, u64, Vec<String>);

fn fields(of: &[(&str, FieldType)]) -> Vec<EventField> {
    of.iter().map(|(name, ty)| EventField::new(*name, *ty)).collect()
}

fn finish(writer: TraceWriter, events: EventWriter, lost: Vec<CpuLoss>) -> Manifest {
    let events = events.finish(lost).unwrap();
    let finish = Finish { events, ..Finish::default() };
    writer.finish(finish, &mut |_, _| {}).unwrap()
}

/// All events, in the order in which they are read.
fn read(trace: &Trace) -> Vec<Row> {
    let everything = &mut |kind: &fettle_trace::EventKind| Some((0..kind.fields.len()).collect());
    let (mut stream, damaged) = trace.events(everything).unwrap();
    assert!(damaged.is_empty(), "{damaged:?}");
    let kinds: Vec<fettle_trace::EventKind> = stream.kinds().cloned().collect();
    let mut texts: Vec<String> = Vec::new();
    let mut rows: Vec<Row> = Vec::new();
    loop {
        let run = stream.next(u64::MAX, &mut |text| {
            texts.push(text.to_owned());
            texts.len() as u32 - 1
        });
        let Some(run) = run.unwrap() else { return rows };
        let kind = &kinds[run.kind];
        for (row, time_ns) in run.times_ns().iter().enumerate() {
            let values = kind.fields.iter().enumerate().skip(1).map(|(n, field)| {
                let value = run.values(n)[row];
                match field.ty {
                    FieldType::Text => texts[value as usize].clone(),
                    FieldType::I32 | FieldType::I64 => (value as i64).to_string(),
                    _ => value.to_string(),
                }
            });
            rows.push((*time_ns, kind.name.clone(), run.values(0)[row], values.collect()));
        }
    }
}

/// Writes `count` random events, out of order by `disorder` at most; returns them sorted.
fn write(folder: &Path, seed: u64, count: u64, disorder: u64, rows_per_part: usize) -> Vec<Row> {
    let mut random = Random(seed);
    let writer = TraceWriter::create(folder, &Manifest::default()).unwrap();
    let mut events = EventWriter::create(folder).unwrap().rows_per_part(rows_per_part);
    let kinds = [
        ("read", fields(&[("fd", FieldType::I32), ("bytes", FieldType::I64)])),
        ("open", fields(&[("path", FieldType::Text), ("ok", FieldType::Bool)])),
        ("wakeup", fields(&[("target", FieldType::U32), ("address", FieldType::U64)])),
        ("tick", Vec::new()),
        ("never", fields(&[("x", FieldType::U8)])),
    ];
    let ids: Vec<_> = kinds.iter().map(|(name, f)| events.kind(name, f).unwrap()).collect();
    let paths = ["/etc/passwd", "", "/tmp/ä", "socket:[7]"];
    let mut rows = Vec::new();
    for n in 0..count {
        let time_ns = n * 3 + random.below(disorder + 1);
        let (kind, cpu) = (random.below(4) as usize, random.below(3) as u32);
        let (values, texts) = match kind {
            0 => {
                let (fd, bytes) = (random.below(9) as i32 - 4, random.below(1 << 40) as i64 - 7);
                (vec![fd as u64, bytes as u64], vec![fd.to_string(), bytes.to_string()])
            }
            1 => {
                let path = paths[random.below(4) as usize];
                let ok = random.below(2);
                (vec![u64::from(events.text(path)), ok], vec![path.to_owned(), ok.to_string()])
            }
            2 => {
                let values = vec![random.below(1 << 32), u64::MAX - random.below(1 << 50)];
                let texts = values.iter().map(u64::to_string).collect();
                (values, texts)
            }
            _ => (Vec::new(), Vec::new()),
        };
        events.push(ids[kind], time_ns, cpu, &values).unwrap();
        rows.push((time_ns, kinds[kind].0.to_owned(), u64::from(cpu), texts));
    }
    let manifest = finish(writer, events, vec![CpuLoss { cpu: 1, lost: 5 }]);
    assert_eq!((manifest.events.rows(), manifest.events.lost()), (count, 5));
    rows.sort();
    rows
}

#[test]
fn what_goes_in_comes_out_in_order_of_time() {
    // Files of one row and of many; in order, nearly, and not at all.
    for (seed, disorder, rows_per_part) in
        [(1, 0, 1 << 18), (2, 40, 64), (3, 3000, 100), (4, 1 << 20, 50), (5, 5, 1)]
    {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("t.fettle");
        let count = if rows_per_part == 1 { 60 } else { 3000 };
        let expected = write(&folder, seed, count, disorder, rows_per_part);
        let trace = Trace::open(&folder).unwrap();
        assert!(trace.warnings().is_empty(), "{:?}", trace.warnings());
        let mut found = read(&trace);
        let in_order = |a: &Row, b: &Row| (a.0, &a.1) <= (b.0, &b.1);
        assert!(found.is_sorted_by(in_order), "seed {seed}");
        found.sort();
        assert_eq!(found, expected, "seed {seed}");
    }
}

#[test]
fn only_what_is_asked_for_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("t.fettle");
    let expected = write(&folder, 9, 500, 0, 1 << 18);
    let trace = Trace::open(&folder).unwrap();
    let bytes = &mut |kind: &fettle_trace::EventKind| (kind.name == "read").then(|| vec![2]);
    let (mut stream, _) = trace.events(bytes).unwrap();
    assert_eq!(stream.fields(0).map(|f| f.name.as_str()).collect::<Vec<_>>(), ["bytes"]);
    let mut found = Vec::new();
    let middle = 700;
    // A limit cuts the stream where it should, and no row is given out twice.
    for until_ns in [middle, u64::MAX] {
        while let Some(run) = stream.next(until_ns, &mut |_| 0).unwrap() {
            assert!(run.times_ns().iter().all(|ns| *ns <= until_ns));
            found.extend(run.values(0).iter().map(|value| (*value as i64).to_string()));
        }
        let due = |row: &&Row| row.1 == "read" && row.0 <= until_ns;
        assert_eq!(found.len(), expected.iter().filter(due).count());
    }
    let wanted = expected.iter().filter(|row| row.1 == "read").map(|row| row.3[1].clone());
    assert_eq!(found, wanted.collect::<Vec<_>>());
    let (kinds, _) = trace.event_kinds().unwrap();
    // A kind without events has no file, and is in the manifest.
    assert_eq!(kinds.len() + 1, trace.manifest().events.kinds.len());
    let beyond = &mut |_: &fettle_trace::EventKind| Some(vec![99]);
    assert!(matches!(trace.events(beyond), Err(Error::Event { .. })));
}

#[test]
fn a_recording_that_was_cut_off_keeps_the_files_that_were_written() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("t.fettle");
    let writer = TraceWriter::create(&folder, &Manifest::default()).unwrap();
    let mut events = EventWriter::create(&folder).unwrap().rows_per_part(10);
    let kind = events.kind("read", &fields(&[("fd", FieldType::I32)])).unwrap();
    for n in 0..25 {
        events.push(kind, n, 0, &[n]).unwrap();
    }
    drop((writer, events));
    let trace = open_or_recover(&folder, &mut |_, _| {}).unwrap();
    assert_eq!(read(&trace).len(), 20);
    assert_eq!(trace.manifest().events.rows(), 20);
    assert!(trace.manifest().notes.iter().any(|note| note.contains("events after")));
}

#[test]
fn kinds_and_folders_are_not_used_twice() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("t.fettle");
    let _writer = TraceWriter::create(&folder, &Manifest::default()).unwrap();
    let mut events = EventWriter::create(&folder).unwrap();
    let same = events.kind("read", &fields(&[("fd", FieldType::I32)])).unwrap();
    assert_eq!(events.kind("read", &fields(&[("fd", FieldType::I32)])).unwrap(), same);
    let other = events.kind("read", &fields(&[("fd", FieldType::I64)]));
    assert_eq!(other.unwrap_err().to_string(), "event \"read\": declared before with other fields");
    assert!(matches!(EventWriter::create(&folder), Err(Error::Exists { .. })));
}

/// Reads everything and returns how much, and what was said about the rest.
fn survive(folder: &Path) -> (usize, Vec<String>) {
    let trace = Trace::open(folder).unwrap();
    let everything = &mut |kind: &fettle_trace::EventKind| Some((0..kind.fields.len()).collect());
    let (mut stream, damaged) = match trace.events(everything) {
        Ok(found) => found,
        Err(error) => return (0, vec![error.to_string()]),
    };
    let mut messages: Vec<String> = damaged.iter().map(ToString::to_string).collect();
    let mut rows = 0;
    loop {
        match stream.next(u64::MAX, &mut |_| 0) {
            Ok(Some(run)) => rows += run.times_ns().len(),
            Ok(None) => return (rows, messages),
            Err(error) => messages.push(error.to_string()),
        }
    }
}

#[test]
fn damaged_files_are_named_and_the_others_are_read() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("t.fettle");
    write(&folder, 11, 2000, 50, 200);
    let path = folder.join("events/open-0001.parquet");
    let whole = fs::read(&path).unwrap();
    for length in [0, 3, whole.len() / 2, whole.len() - 1] {
        fs::write(&path, &whole[..length]).unwrap();
        let (rows, messages) = survive(&folder);
        assert_eq!(rows, 1800, "{messages:?}");
        assert!(messages.len() == 1 && messages[0].contains("open-0001.parquet"), "{messages:?}");
        assert!(!Trace::open(&folder).unwrap().warnings().is_empty());
    }
    let mut random = Random(5);
    for _ in 0..400 {
        let mut bytes = whole.clone();
        let at = random.below(bytes.len() as u64) as usize;
        bytes[at] ^= 1 << random.below(8);
        fs::write(&path, &bytes).unwrap();
        let (rows, messages) = survive(&folder);
        assert!(rows <= 2000 && (rows >= 1800 || !messages.is_empty()), "{rows} {messages:?}");
    }
    fs::write(&path, &whole).unwrap();
    fs::write(folder.join("events/..-0.parquet"), &whole).unwrap();
    let (rows, messages) = survive(&folder);
    assert!(rows == 2000 && messages[0].contains("NAME-NUMBER"), "{messages:?}");
    // The columns of another kind.
    fs::remove_file(folder.join("events/..-0.parquet")).unwrap();
    fs::write(folder.join("events/read-9999.parquet"), &whole).unwrap();
    let (rows, messages) = survive(&folder);
    assert!(rows == 2000 && messages[0].contains("other columns"), "{messages:?}");
}

#[test]
fn files_by_others_that_are_not_in_order_are_refused() {
    use parquet::data_type::{Int32Type, Int64Type};
    use parquet::file::writer::SerializedFileWriter;
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("t.fettle");
    let writer = TraceWriter::create(&folder, &Manifest::default()).unwrap();
    let events = EventWriter::create(&folder).unwrap();
    finish(writer, events, Vec::new());
    let foreign = |name: &str, columns: &str, times: [i64; 3]| {
        let schema = parquet::schema::parser::parse_message_type(columns).unwrap();
        let file = fs::File::create(folder.join("events").join(name)).unwrap();
        let properties = std::sync::Arc::default();
        let mut file = SerializedFileWriter::new(file, schema.into(), properties).unwrap();
        let mut group = file.next_row_group().unwrap();
        let mut column = group.next_column().unwrap().unwrap();
        column.typed::<Int64Type>().write_batch(&times, None, None).unwrap();
        column.close().unwrap();
        let mut column = group.next_column().unwrap().unwrap();
        column.typed::<Int32Type>().write_batch(&[0, 0, 0], None, None).unwrap();
        column.close().unwrap();
        group.close().unwrap();
        file.close().unwrap();
    };
    let columns = "message row { required int64 time_ns (integer(64,false)); \
                   required int32 cpu (integer(32,false)); }";
    foreign("a-0.parquet", columns, [1, 2, 2]);
    foreign("b-0.parquet", columns, [1, 3, 2]);
    foreign("c-0.parquet", "message row { required int64 t; required int32 cpu; }", [1, 2, 3]);
    let (rows, messages) = survive(&folder);
    assert_eq!(rows, 3);
    assert!(messages[0].contains("time_ns"), "{messages:?}");
    assert!(messages[1].contains("b-0.parquet") && messages[1].contains("order of time"));
}
