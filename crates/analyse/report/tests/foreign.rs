//! Exports read by the formats' own definitions, where Python has them (`pip install perfetto`).
//! `FETTLE_PYTHON` names another interpreter than `python3`.

#[path = "../../../data/trace/tests/drawing/mod.rs"]
mod drawing;

use std::io::Read;
use std::process::Command;

use fettle_report::export::{ExportOptions, Format, export};
use fettle_trace::Trace;

fn exported(format: Format) -> Vec<u8> {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("t");
    drawing::record(&folder, &["AAAAA\n BBB\n  D\n", "E\n"], |_| {});
    let mut out = Vec::new();
    let trace = Trace::open(&folder).unwrap();
    export(&trace, format, ExportOptions::default(), &mut out).unwrap();
    out
}

#[test]
fn perfetto() {
    let python = std::env::var("FETTLE_PYTHON").unwrap_or_else(|_| "python3".into());
    let import = "from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as p\n";
    let has = Command::new(&python).args(["-c", import]).output();
    if !has.is_ok_and(|output| output.status.success()) {
        eprintln!("skipped 1 test: {python} has no module perfetto (pip install perfetto)");
        return;
    }
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), exported(Format::Perfetto)).unwrap();
    let script = format!(
        "{import}{}",
        r#"
import sys
trace = p.Trace(); trace.ParseFromString(open(sys.argv[1], "rb").read())
names, tracks = {}, {}
for packet in trace.packet:
    for name in packet.interned_data.event_names: names[name.iid] = name.name
    d = packet.track_descriptor
    if packet.HasField("track_descriptor"):
        if d.HasField("thread"): tracks[d.uuid] = f"{d.thread.pid}/{d.thread.tid} {d.thread.thread_name}"
        else: print("process", d.process.pid, d.process.process_name)
    if packet.HasField("track_event"):
        e = packet.track_event
        kind = {1: "begin", 2: "end"}[e.type]
        print(tracks[e.track_uuid], packet.timestamp, kind, names.get(e.name_iid, ""))
"#
    );
    let output = Command::new(&python).args(["-c", &script]).arg(file.path()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
    assert_eq!(
        lines,
        [
            "process 100 prog",
            "100/100 prog 0 begin main",
            "100/100 prog 100 begin core::fmt::Formatter::write_str",
            "100/100 prog 200 begin leaf",
            "100/100 prog 300 end",
            "100/100 prog 400 end",
            "100/100 prog 500 end",
            "100/101 worker-1 0 begin qsort",
            "100/101 worker-1 100 end",
        ]
    );
}

fn varint(bytes: &mut &[u8]) -> u64 {
    let mut value = 0;
    for shift in (0..).step_by(7) {
        let byte = *bytes.split_off_first().unwrap();
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            break;
        }
    }
    value
}

/// Splits a message into its fields: number, and value or bytes.
fn fields(mut bytes: &[u8]) -> Vec<(u64, u64, Vec<u8>)> {
    let mut out = Vec::new();
    while !bytes.is_empty() {
        let tag = varint(&mut bytes);
        let value = varint(&mut bytes);
        let content = if tag & 7 == 2 { bytes.split_off(..value as usize).unwrap() } else { &[] };
        out.push((tag >> 3, value, content.to_vec()));
    }
    out
}

#[test]
fn pprof() {
    let mut profile = Vec::new();
    let packed = exported(Format::Pprof);
    flate2::read::GzDecoder::new(packed.as_slice()).read_to_end(&mut profile).unwrap();
    let all = fields(&profile);
    let of = |number: u64| all.iter().filter(move |field| field.0 == number);
    let strings: Vec<String> =
        of(6).map(|field| String::from_utf8(field.2.clone()).unwrap()).collect();
    assert_eq!(strings[0], "");
    let number = |message: &[u8], wanted: u64| {
        fields(message).iter().find(|field| field.0 == wanted).map_or(0, |field| field.1) as usize
    };
    let types: Vec<_> = of(1).map(|field| strings[number(&field.2, 1)].as_str()).collect();
    assert_eq!(types, ["calls", "time"]);
    let functions: Vec<_> = of(5).map(|field| strings[number(&field.2, 2)].as_str()).collect();
    // Locations have the functions' numbers, from 1. Each sample: its stack, calls, nanoseconds.
    let mut samples: Vec<String> = of(2)
        .map(|field| {
            let packed = fields(&field.2);
            let numbers = |mut bytes: &[u8]| {
                let mut values = Vec::new();
                while !bytes.is_empty() {
                    values.push(varint(&mut bytes));
                }
                values
            };
            let stack = numbers(&packed[0].2);
            let stack: Vec<_> = stack.iter().map(|&n| functions[n as usize - 1]).collect();
            format!("{} {:?}", stack.join("<"), numbers(&packed[1].2))
        })
        .collect();
    samples.sort();
    assert_eq!(
        samples,
        [
            "core::fmt::Formatter::write_str<main [1, 200]",
            "leaf<core::fmt::Formatter::write_str<main [1, 100]",
            "main [1, 200]",
            "qsort [1, 100]",
        ]
    );
}
