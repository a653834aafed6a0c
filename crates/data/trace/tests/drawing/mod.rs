//! Timelines drawn as columns of letters.
//!
//! Each column is 100 ns, each row a depth, each letter a function: `A` is number 0. A letter that
//! goes on from one column to the next is one call, unless its caller changed.
//!
//! ```text
//! AAAAAA
//!  BB B      A calls B twice, the first B calls C
//!  C
//! ```
#![allow(dead_code, missing_docs)]

use std::path::Path;

use fettle_abi::record::{CallRecord, FunctionId};
use fettle_trace::{
    Clock, Finish, Function, Machine, Manifest, Module, ProbeCost, Process, Skipped, Thread, Total,
    TraceWriter,
};
use fettle_types::{FunctionIndex, ModuleIndex};

/// Time-stamp counter at the start of every drawn trace.
pub const TSC: u64 = 77_000_000;
/// Length of a column; a tick is a nanosecond.
pub const COLUMN: u64 = 100;

/// A drawn call: function, start and end in ticks after [`TSC`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drawn {
    pub function: FunctionIndex,
    pub depth: usize,
    pub start: u64,
    pub end: u64,
}

/// The calls of a drawing, in order of their ends.
pub fn calls(drawing: &str) -> Vec<Drawn> {
    let rows: Vec<&[u8]> =
        drawing.trim_matches('\n').lines().map(|row| row.trim_end().as_bytes()).collect();
    let width = rows.iter().map(|row| row.len()).max().unwrap_or(0);
    let mut open: Vec<Drawn> = Vec::new();
    let mut ended = Vec::new();
    for column in 0..=width {
        let time = column as u64 * COLUMN;
        let stack: Vec<FunctionIndex> = rows
            .iter()
            .map_while(|row| row.get(column).filter(|c| c.is_ascii_uppercase()))
            .map(|letter| FunctionIndex(u32::from(letter - b'A')))
            .collect();
        let same = open.iter().zip(&stack).take_while(|(a, b)| a.function == **b).count();
        while open.len() > same {
            let call = open.pop().unwrap();
            ended.push(Drawn { end: time, ..call });
        }
        for (depth, &function) in stack.iter().enumerate().skip(same) {
            open.push(Drawn { function, depth, start: time, end: 0 });
        }
    }
    ended
}

/// The bytes a probed thread would have committed.
pub fn records(calls: &[Drawn]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for call in calls {
        let id = FunctionId::from_index(call.function.get()).unwrap();
        let record = CallRecord::new(id, TSC + call.start, call.end - call.start);
        bytes.extend(record.start_and_id_high.to_le_bytes());
        bytes.extend(record.ticks_and_id_low.to_le_bytes());
    }
    bytes
}

/// Exact totals of one thread's calls.
pub fn totals(thread: u32, calls: &[Drawn]) -> Vec<Total> {
    let mut totals: Vec<Total> = Vec::new();
    let mut children = vec![0; 100];
    for call in calls {
        let ns = call.end - call.start;
        let inside = std::mem::take(&mut children[call.depth + 1]);
        children[call.depth] += ns;
        let known = totals.iter_mut().position(|t| t.function == call.function);
        let at = known.unwrap_or_else(|| {
            totals.push(Total { thread, function: call.function, ..Total::default() });
            totals.len() - 1
        });
        totals[at].calls += 1;
        totals[at].total_ns += ns;
        totals[at].self_ns += ns - inside;
    }
    totals
}

/// A manifest whose every field is the same on every machine.
pub fn manifest() -> Manifest {
    Manifest {
        fettle_version: "0.1.0".into(),
        command: vec!["./prog".into(), "--fast".into()],
        cwd: "/home/me".into(),
        machine: Machine {
            cpu_model: "Abacus 3000".into(),
            cores: 2,
            kernel: "6.1".into(),
            ..Machine::default()
        },
        start_unix_ns: 1_772_357_400_250_000_000,
        clock: Clock { tsc_hz: 1_000_000_000, tsc_at_start: TSC, begin: None, end: None },
        probe_cost: ProbeCost { inner_ns: 5.0, outer_ns: 10.0 },
        ..Manifest::default()
    }
}

/// Names of the functions `A`, `B`, …
pub const NAMES: [&str; 6] = [
    "main",
    "_ZN4core3fmt9Formatter9write_str17h0123456789abcdefE",
    "_Z7computeIiEvT_",
    "leaf",
    "qsort",
    "malloc",
];

/// What a recorder would hand over at the end for these threads.
pub fn finish(threads: &[&[Drawn]]) -> Finish {
    let mut finish = Finish { manifest: manifest(), ..Finish::default() };
    finish.modules.push(Module {
        id: ModuleIndex(0),
        path: "/home/me/prog".into(),
        build_id: Some("c0ffee".into()),
        functions_seen: 8,
        functions_probed: 6,
        functions_skipped: 2,
    });
    for (id, name) in NAMES.iter().enumerate() {
        finish.functions.push(Function {
            id: FunctionIndex(id as u32),
            module: ModuleIndex(0),
            name: (*name).into(),
            address: 0x1000 + id as u64 * 0x40,
            size: 0x40,
            file: Some("prog.c".into()),
            line: Some(10 * id as u32 + 1),
            ..Function::default()
        });
    }
    for (address, name, detail) in [(0x9000, "tiny", "3 bytes"), (0x9040, "stub", "4 bytes")] {
        finish.skipped.push(Skipped {
            module: ModuleIndex(0),
            address,
            name: name.into(),
            reason: "too short for an entry patch".into(),
            detail: detail.into(),
        });
    }
    finish.processes.push(Process {
        pid: 100,
        command: "./prog --fast".into(),
        exit_code: Some(0),
        ..Process::default()
    });
    let mut last = 0;
    for (index, calls) in threads.iter().enumerate() {
        let end_ns = calls.iter().map(|call| call.end).max().unwrap_or(0);
        last = last.max(end_ns);
        finish.threads.push(Thread {
            index: index as u32,
            pid: 100,
            tid: 100 + index as u32,
            name: if index == 0 { "prog".into() } else { format!("worker-{index}") },
            start_ns: 0,
            end_ns,
            cpu_ns: Some(end_ns / 2),
            ..Thread::default()
        });
        finish.totals.extend(totals(index as u32, calls));
    }
    finish.processes[0].end_ns = last;
    finish.manifest.duration_ns = last;
    finish.manifest.totals.calls = finish.totals.iter().map(|total| total.calls).sum();
    finish.manifest.totals.threads = threads.len() as u64;
    finish.manifest.totals.processes = 1;
    finish.manifest.exit = Some(fettle_trace::Exit { code: Some(0), signal: None });
    finish
}

/// Records a trace of drawings, one per thread, into `folder`.
pub fn record(folder: &Path, drawings: &[&str], change: impl FnOnce(&mut Finish)) {
    let threads: Vec<Vec<Drawn>> = drawings.iter().map(|drawing| calls(drawing)).collect();
    let slices: Vec<&[Drawn]> = threads.iter().map(Vec::as_slice).collect();
    let mut finish = finish(&slices);
    change(&mut finish);
    let mut writer = TraceWriter::create(folder, &manifest()).unwrap();
    for (index, calls) in threads.iter().enumerate() {
        writer.spool_append(index as u32, &records(calls)).unwrap();
    }
    writer.finish(finish, &mut |_, _| {}).unwrap();
}
