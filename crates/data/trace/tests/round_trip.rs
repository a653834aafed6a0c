//! What goes in comes out: spools, columns, tables.

mod drawing;

use drawing::{Drawn, TSC, calls, finish, manifest, record, records};
use fettle_abi::record::{CallRecord, FunctionId};
use fettle_trace::{
    Call, ClockPair, Counter, CounterKind, Error, Finish, OpenCall, ProbeMode, Total, Trace,
    TraceWriter, open_or_recover,
};
use fettle_types::FunctionIndex;

const NESTED: &str = "
AAAAAAAAAA AA
 BBB BB BB A
 CD  C
";

fn read(trace: &Trace, thread: u32) -> Vec<Call> {
    let mut calls = Vec::new();
    trace.for_each_call(thread, |call| calls.push(*call)).unwrap();
    calls
}

/// The drawing as the rows it must become.
fn rows(thread: u32, drawn: &[Drawn]) -> Vec<Call> {
    let row = |call: &Drawn| Call {
        thread,
        function: call.function,
        start_ns: call.start,
        duration_ns: call.end - call.start,
        weight: 1,
        depth: call.depth as u16,
        flags: 0,
        off_cpu_ns: 0,
    };
    drawn.iter().map(row).collect()
}

#[test]
fn calls_and_tables_survive() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("t.fettle");
    let other = "  DDDD\n   E\n";
    record(&folder, &[NESTED, other], |finish| {
        finish.counters.push(Counter {
            thread: None,
            function: FunctionIndex(3),
            kind: CounterKind::Edge,
            from_address: 1,
            to_address: Some(u64::MAX),
            count: 1 << 63,
        });
    });
    let trace = Trace::open(&folder).unwrap();
    assert_eq!(trace.warnings(), &[] as &[String]);
    assert_eq!(read(&trace, 0), rows(0, &calls(NESTED)));
    assert_eq!(read(&trace, 1), rows(1, &calls(other)));
    assert!(trace.manifest().complete);
    assert_eq!(trace.manifest().start_time, "2026-03-01T09:30:00.250Z");
    assert_eq!(trace.manifest().totals.records, 11);
    assert!(!folder.join("spool").exists());

    let (first, second) = (calls(NESTED), calls(other));
    let wanted = finish(&[&first, &second]);
    assert_eq!(trace.modules().unwrap(), wanted.modules);
    assert_eq!(trace.functions().unwrap(), wanted.functions);
    assert_eq!(trace.skipped().unwrap(), wanted.skipped);
    assert_eq!(trace.processes().unwrap(), wanted.processes);
    assert_eq!(trace.totals().unwrap(), wanted.totals);
    assert_eq!(trace.mappings().unwrap(), []);
    let threads = trace.threads().unwrap();
    assert_eq!(threads.iter().map(|t| t.records).collect::<Vec<_>>(), [9, 2]);
    let counters = trace.counters().unwrap();
    assert_eq!((counters[0].count, counters[0].to_address), (1 << 63, Some(u64::MAX)));
}

/// Calls of two levels, some longer than thousands of switches, against a sum over all switches.
#[test]
fn time_off_the_processor_is_that_of_the_switches_inside() {
    let switches: Vec<(u64, u64)> =
        (0..20_000).map(|i| (i * 50 + 7, i * 50 + 7 + i % 31)).collect();
    let mut drawn = Vec::new();
    let mut seed = 1u64;
    let mut caller_start = 0;
    for i in 0..3000u64 {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let start = i * 333 + 1;
        let end = start + 1 + (seed >> 33) % 331;
        drawn.push(Drawn { function: FunctionIndex(1), depth: 1, start, end });
        if [4, 700, 2999].contains(&i) {
            drawn.push(Drawn {
                function: FunctionIndex(0),
                depth: 0,
                start: caller_start,
                end: end + 1,
            });
            caller_start = end + 2;
        }
    }
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("t.fettle");
    let mut writer = TraceWriter::create(&folder, &manifest()).unwrap();
    writer.spool_append(0, &records(&drawn)).unwrap();
    for &(off, on) in &switches {
        writer.switched_out(0, TSC + off, TSC + on, off % 2 == 0).unwrap();
    }
    let mut tables = finish(&[&drawn]);
    tables.manifest.switches = true;
    writer.finish(tables, &mut |_, _| {}).unwrap();

    let trace = Trace::open(&folder).unwrap();
    let inside = |call: &Drawn| -> u64 {
        let part = |&(off, on): &(u64, u64)| on.min(call.end).saturating_sub(off.max(call.start));
        switches.iter().map(part).sum()
    };
    let mut wanted = rows(0, &drawn);
    for (row, call) in wanted.iter_mut().zip(&drawn) {
        row.off_cpu_ns = inside(call);
    }
    assert_eq!(read(&trace, 0), wanted);
    let totals = trace.totals().unwrap();
    let sum = |of: u32| -> u64 {
        drawn.iter().filter(|call| call.function.get() == of).map(inside).sum()
    };
    for row in &totals {
        let (total, own) = match row.function.get() {
            0 => (sum(0), sum(0) - sum(1)),
            _ => (sum(1), sum(1)),
        };
        let cpu = (row.cpu_total_ns, row.cpu_self_ns);
        assert_eq!(cpu, (Some(row.total_ns - total), Some(row.self_ns - own)));
    }
    let mut read = Vec::new();
    trace.for_each_switch(|part| read.extend(part.iter().map(|s| (s.off_ns, s.on_ns)))).unwrap();
    assert_eq!(read, switches);
}

#[test]
fn a_cut_off_recording_is_recovered_and_its_torn_record_counted() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("t.fettle");
    let drawn = calls(NESTED);
    let mut writer = TraceWriter::create(&folder, &manifest()).unwrap();
    writer.checkpoint(&finish(&[&drawn])).unwrap();
    writer.spool_append(0, &records(&drawn)).unwrap();
    writer.spool_append(7, &records(&drawn[..1])).unwrap();
    writer.flush().unwrap();
    assert!(matches!(Trace::open(&folder), Err(Error::Busy { .. })));
    drop(writer);
    let spool = folder.join("spool/0.calls");
    let bytes = std::fs::read(&spool).unwrap();
    std::fs::write(&spool, &bytes[..bytes.len() - 5]).unwrap();

    assert!(matches!(Trace::open(&folder), Err(Error::CutOff { .. })));
    let trace = open_or_recover(&folder, &mut |_, _| {}).unwrap();
    let recovery = trace.manifest().recovery.unwrap();
    assert_eq!((recovery.records, recovery.torn_records), (9, 1));
    // The outermost last call was torn off; the call inside it stays, one level up.
    let mut wanted = rows(0, &drawn[..8]);
    wanted[7].depth = 0;
    assert_eq!(read(&trace, 0), wanted);
    assert_eq!(read(&trace, 7).len(), 1);
    assert_eq!(trace.functions().unwrap().len(), drawing::NAMES.len());
    assert_eq!(trace.threads().unwrap().len(), 2);
    // Once recovered, it is a trace like others.
    open_or_recover(&folder, &mut |_, _| panic!("nothing to convert")).unwrap();
}

#[test]
fn what_was_in_memory_only_is_said_to_be_gone() {
    for mode in [ProbeMode::Events, ProbeMode::Time, ProbeMode::Edges] {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("t.fettle");
        let manifest = fettle_trace::Manifest { probe_mode: mode, ..manifest() };
        drop(TraceWriter::create(&folder, &manifest).unwrap());
        let trace = open_or_recover(&folder, &mut |_, _| {}).unwrap();
        let said = trace.manifest().notes.iter().any(|note| note.contains("keeps its figures"));
        assert_eq!(said, mode != ProbeMode::Events, "{mode:?}");
    }
}

#[test]
fn a_clock_that_nobody_measured_is_estimated() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("t.fettle");
    let mut manifest = manifest();
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    // Began ten seconds ago; the last call ends after twenty thousand million ticks.
    manifest.start_unix_ns = now.as_nanos() as u64 - 10_000_000_000;
    manifest.clock.tsc_hz = 0;
    let mut writer = TraceWriter::create(&folder, &manifest).unwrap();
    let last = Drawn { function: FunctionIndex(0), depth: 0, start: 0, end: 20_000_000_000 };
    writer.spool_append(0, &records(&[last])).unwrap();
    writer.flush().unwrap();
    drop(writer);
    let trace = open_or_recover(&folder, &mut |_, _| {}).unwrap();
    let hz = trace.manifest().clock.tsc_hz;
    assert!((1_500_000_000..2_100_000_000).contains(&hz), "{hz}");
    assert_eq!(trace.manifest().notes.len(), 1);
}

/// The clock was read when the tables were written, long before the last records.
#[test]
fn a_cut_off_recording_lasts_until_its_last_record() {
    for read_at in [None, Some(300), Some(1 << 40)] {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("t.fettle");
        let mut manifest = fettle_trace::Manifest { duration_ns: 0, ..manifest() };
        let pair = |ns| ClockPair { tsc: TSC + ns, monotonic_ns: 5 + ns };
        (manifest.clock.begin, manifest.clock.end) = (Some(pair(0)), read_at.map(pair));
        let mut writer = TraceWriter::create(&folder, &manifest).unwrap();
        let call = |start, end| Drawn { function: FunctionIndex(0), depth: 0, start, end };
        writer.spool_append(0, &records(&[call(100, 200), call(300, 5_000_000)])).unwrap();
        writer.spool_append(1, &records(&[call(100, 4_000)])).unwrap();
        writer.flush().unwrap();
        drop(writer);
        let trace = open_or_recover(&folder, &mut |_, _| {}).unwrap();
        assert_eq!(trace.manifest().duration_ns, 5_000_000, "{read_at:?}");
        let ends: Vec<_> = trace.threads().unwrap().iter().map(|thread| thread.end_ns).collect();
        assert_eq!(ends, [5_000_000, 4_000], "{read_at:?}");
    }
}

#[test]
fn nothing_is_overwritten() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("thesis.tex"), "ten years of work").unwrap();
    let result = TraceWriter::create(dir.path(), &manifest());
    assert!(matches!(result, Err(Error::Exists { .. })));
    let file = dir.path().join("thesis.tex");
    assert!(matches!(TraceWriter::create(&file, &manifest()), Err(Error::Exists { .. })));
}

#[test]
fn half_records_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = TraceWriter::create(&dir.path().join("t"), &manifest()).unwrap();
    let result = writer.spool_append(3, &[0; 24]);
    assert!(matches!(result, Err(Error::NotRecords { thread: 3, bytes: 24 })));
}

#[test]
fn the_clock_may_wrap_its_52_bits() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("t.fettle");
    let start = (5 << 52) - 1000;
    let mut finish = Finish { manifest: manifest(), ..Finish::default() };
    finish.manifest.clock.tsc_at_start = start;
    for end in [None, Some(ClockPair { tsc: start + 500_000, monotonic_ns: 0 })] {
        let _ = std::fs::remove_dir_all(&folder);
        finish.manifest.clock.end = end;
        let mut writer = TraceWriter::create(&folder, &finish.manifest).unwrap();
        let id = FunctionId::from_index(4095).unwrap();
        for (at, ticks) in [(10, 20), (40, 5000), (6000, 1)] {
            let record = CallRecord::new(id, start + at, ticks);
            let mut bytes = record.start_and_id_high.to_le_bytes().to_vec();
            bytes.extend(record.ticks_and_id_low.to_le_bytes());
            writer.spool_append(0, &bytes).unwrap();
        }
        writer.finish(finish.clone(), &mut |_, _| {}).unwrap();
        let calls = read(&Trace::open(&folder).unwrap(), 0);
        let times: Vec<_> = calls.iter().map(|c| (c.start_ns, c.duration_ns)).collect();
        assert_eq!(times, [(10, 20), (40, 5000), (6000, 1)]);
        assert!(calls.iter().all(|call| call.function == FunctionIndex(4095)));
    }
}

#[test]
fn a_signal_between_clock_and_commit_does_not_disturb_the_order() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("t.fettle");
    // C has read the clock at 3; D, a signal handler, runs from 3 to 5 and commits first.
    let mut drawn = calls("AAAAAAA\n BC D\n");
    drawn.swap(1, 2);
    let mut writer = TraceWriter::create(&folder, &manifest()).unwrap();
    writer.spool_append(0, &records(&drawn)).unwrap();
    writer.finish(finish(&[&drawn]), &mut |_, _| {}).unwrap();
    drawn.swap(1, 2);
    assert_eq!(read(&Trace::open(&folder).unwrap(), 0), rows(0, &drawn));
}

#[test]
fn open_calls_stand_around_the_recorded_ones() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("t.fettle");
    let drawn = calls("  C D\n");
    let mut finish = finish(&[&drawn]);
    for (function, start) in [(0, 0), (1, 100)] {
        let (start_tsc, end_tsc) = (TSC + start, TSC + 900);
        let function = FunctionIndex(function);
        finish.open_calls.push(OpenCall { thread: 0, function, start_tsc, end_tsc });
    }
    let mut writer = TraceWriter::create(&folder, &manifest()).unwrap();
    writer.spool_append(0, &records(&drawn)).unwrap();
    writer.finish(finish, &mut |_, _| {}).unwrap();
    let calls = read(&Trace::open(&folder).unwrap(), 0);
    let shape: Vec<_> = calls.iter().map(|c| (c.function.get(), c.depth, c.flags)).collect();
    assert_eq!(shape, [(2, 2, 0), (3, 2, 0), (1, 1, Call::OPEN), (0, 0, Call::OPEN)]);
}

#[test]
fn sampled_calls_stand_for_others() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("t.fettle");
    record(&folder, &["A A A A\n"], |finish| {
        finish.manifest.probe_mode = ProbeMode::Sampled;
        finish.totals = vec![Total { calls: 41, ..Total::default() }];
    });
    let calls = read(&Trace::open(&folder).unwrap(), 0);
    assert!(calls.iter().all(|call| call.weight == 10));
}

#[test]
fn many_threads_fill_many_files_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("t.fettle");
    let mut writer = TraceWriter::create(&folder, &manifest()).unwrap();
    let deep = calls(NESTED);
    let bytes = records(&deep);
    // More threads than spools kept open, small appends and one large thread.
    for thread in 0..600 {
        writer.spool_append(thread, &bytes).unwrap();
        writer.spool_append(thread, &vec![0x11; 16 << 12]).unwrap();
    }
    writer.finish(finish(&[]), &mut |_, _| {}).unwrap();
    let trace = Trace::open(&folder).unwrap();
    let (parts, damaged) = trace.parts().unwrap();
    assert!(damaged.is_empty());
    assert_eq!(parts.len(), (600 * 4105usize).div_ceil(1 << 20));
    let mut all = Vec::new();
    let mut part = Vec::new();
    for p in &parts {
        trace.read_part(p, &mut part).unwrap();
        all.extend_from_slice(&part);
    }
    assert_eq!(all.len(), 600 * 4105);
    assert!(all.is_sorted_by_key(|call| call.thread));
}

#[test]
fn a_newer_trace_and_other_folders_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    assert!(matches!(Trace::open(dir.path()), Err(Error::NotATrace { .. })));
    let manifest = dir.path().join("manifest.json");
    std::fs::write(&manifest, r#"{"min_reader_version": 99, "clock": 3}"#).unwrap();
    assert!(matches!(Trace::open(dir.path()), Err(Error::Version { found: 99, .. })));
    std::fs::write(&manifest, r#"{"min_reader_version": 1, "clock": 3}"#).unwrap();
    assert!(matches!(Trace::open(dir.path()), Err(Error::Manifest { .. })));
    std::fs::write(&manifest, "{").unwrap();
    assert!(matches!(Trace::open(dir.path()), Err(Error::Manifest { .. })));
}

/// It has no writer, so a reader that opened it would wait for ever.
#[test]
fn a_named_pipe_is_no_part_of_a_trace() {
    for file in ["manifest.json", "functions.parquet"] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t");
        let writer = TraceWriter::create(&path, &manifest()).unwrap();
        writer.finish(finish(&[]), &mut |_, _| {}).unwrap();
        std::fs::remove_file(path.join(file)).unwrap();
        let made = std::process::Command::new("mkfifo").arg(path.join(file)).status().unwrap();
        assert!(made.success());
        let error = Trace::open(&path).and_then(|trace| trace.functions()).unwrap_err();
        assert!(format!("{error:?}").contains("no regular file"), "{file}: {error:?}");
    }
}

/// A recorder may have 1,024 files open, on most systems; a build has more processes than that.
#[test]
fn there_may_be_more_threads_than_files() {
    const THREADS: u32 = 1500;
    if std::env::var_os("FETTLE_FEW_FILES").is_none() {
        let limited = r#"ulimit -n 1024; exec "$0" --exact there_may_be_more_threads_than_files"#;
        let test = std::env::current_exe().unwrap();
        let mut shell = std::process::Command::new("sh");
        shell.args(["-c", limited]).arg(test).env("FETTLE_FEW_FILES", "1");
        let output = shell.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("t.fettle");
    let drawn = calls(NESTED);
    let write = || {
        let mut writer = TraceWriter::create(&folder, &manifest()).unwrap();
        for thread in 0..THREADS {
            writer.spool_append(thread, &records(&drawn)).unwrap();
            writer.switched_out(thread, TSC + 1, TSC + 3, false).unwrap();
        }
        writer
    };
    let all = vec![&drawn[..]; THREADS as usize];
    let check = || {
        let trace = open_or_recover(&folder, &mut |_, _| {}).unwrap();
        assert_eq!(trace.manifest().totals.threads, u64::from(THREADS));
        let starts =
            |thread| read(&trace, thread).iter().map(|call| call.start_ns).collect::<Vec<_>>();
        assert!([700, THREADS - 1].into_iter().all(|thread| starts(thread) == starts(0)));
        assert_eq!(starts(0).len(), drawn.len());
    };
    let mut tables = finish(&all);
    tables.manifest.switches = true;
    write().finish(tables, &mut |_, _| {}).unwrap();
    check();

    std::fs::remove_dir_all(&folder).unwrap();
    let mut writer = write();
    writer.checkpoint(&finish(&all)).unwrap();
    drop(writer);
    check();
}
