//! Makes a trace of a program that never ran, to measure conversion and reading.
//!
//! `cargo run --release -p fettle-trace --example synthetic -- FOLDER CALLS [THREADS]` writes a
//! folder with that many calls per thread and prints, for each step, records per second of time
//! and per second of CPU time (the machine may be busy with other things).

use std::path::Path;
use std::time::Instant;

use fettle_abi::record::{CallRecord, FunctionId};
use fettle_trace::{Clock, Finish, Function, Manifest, Module, Thread, Total, Trace, TraceWriter};
use fettle_types::FunctionIndex;

/// Functions of the program; each calls only ones of higher number.
const FUNCTIONS: u32 = 2000;

struct Program<'a> {
    writer: &'a mut TraceWriter,
    thread: u32,
    random: u64,
    tsc: u64,
    left: u64,
    buffer: Vec<u8>,
    totals: Vec<Total>,
}

impl Program<'_> {
    fn random(&mut self, below: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 20) % below
    }

    /// Calls a function and returns its ticks.
    fn call(&mut self, function: FunctionIndex, depth: u32) -> u64 {
        let start = self.tsc;
        let mut inside = 0;
        self.tsc += 20 + self.random(100);
        if depth < 24 {
            // Few children on average, so that shapes repeat like a real program's.
            let children = self.random(4);
            for nth in 0..children {
                if self.left > 0 && function.get() + 1 < FUNCTIONS {
                    let number = u64::from(function.get());
                    let step = 1 + (number * 7 + nth * 13) % 11 * (1 + u64::from(depth));
                    let callee = (number + step).min(u64::from(FUNCTIONS) - 1) as u32;
                    inside += self.call(FunctionIndex(callee), depth + 1);
                    self.tsc += 10 + self.random(50);
                }
            }
        }
        self.left = self.left.saturating_sub(1);
        let ticks = self.tsc - start;
        let id = FunctionId::from_index(function.get()).expect("few functions");
        let record = CallRecord::new(id, start, ticks);
        self.buffer.extend(record.start_and_id_high.to_le_bytes());
        self.buffer.extend(record.ticks_and_id_low.to_le_bytes());
        if self.buffer.len() >= 1 << 16 {
            self.writer.spool_append(self.thread, &self.buffer).expect("spool");
            self.buffer.clear();
        }
        let total = &mut self.totals[function.place()];
        total.calls += 1;
        total.total_ns += ticks / 2;
        total.self_ns += (ticks - inside) / 2;
        ticks
    }
}

/// Seconds of CPU time that this process has used.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split(' ').collect();
    // utime and stime, in the hundredths of a second that Linux shows.
    [12, 13].iter().filter_map(|&at| fields.get(at)?.parse::<f64>().ok()).sum::<f64>() / 100.0
}

fn main() {
    let mut args = std::env::args().skip(1);
    let folder = args.next().expect("FOLDER");
    let calls: u64 = args.next().and_then(|n| n.parse().ok()).expect("CALLS");
    let threads: u32 = args.next().and_then(|n| n.parse().ok()).unwrap_or(1);
    let folder = Path::new(&folder);
    let clock = Clock { tsc_hz: 2_000_000_000, tsc_at_start: 1 << 50, begin: None, end: None };
    let command = vec!["synthetic".to_owned()];
    let manifest = Manifest { command, clock, ..Manifest::default() };
    let mut writer = TraceWriter::create(folder, &manifest).expect("create");
    let mut finish = Finish { manifest, ..Finish::default() };
    finish.modules.push(Module { path: "synthetic".to_owned(), ..Module::default() });
    for id in 0..FUNCTIONS {
        let name = format!("function_{id}");
        finish.functions.push(Function { id: FunctionIndex(id), name, ..Function::default() });
    }
    for thread in 0..threads {
        let empty = |id| Total { thread, function: FunctionIndex(id), ..Total::default() };
        let mut program = Program {
            writer: &mut writer,
            thread,
            random: 0x9e37_79b9 + u64::from(thread),
            tsc: 1 << 50,
            left: calls,
            buffer: Vec::new(),
            totals: (0..FUNCTIONS).map(empty).collect(),
        };
        while program.left > 0 {
            let root = FunctionIndex(program.random(4) as u32);
            program.call(root, 0);
        }
        let (rest, end_ns) = (std::mem::take(&mut program.buffer), (program.tsc - (1 << 50)) / 2);
        finish.totals.extend(program.totals.into_iter().filter(|total| total.calls > 0));
        writer.spool_append(thread, &rest).expect("spool");
        finish.threads.push(Thread { index: thread, end_ns, ..Thread::default() });
        finish.manifest.duration_ns = finish.manifest.duration_ns.max(end_ns);
    }

    let (begin, cpu) = (Instant::now(), cpu_seconds());
    let manifest = writer.finish(finish, &mut |_, _| {}).expect("finish");
    let seconds = begin.elapsed().as_secs_f64();
    let cpu = cpu_seconds() - cpu;
    let records = manifest.totals.records;
    let bytes: u64 = manifest.files.iter().map(|file| file.bytes).sum();
    println!(
        "convert: {records} records, {:.1} M/s, {:.1} M per CPU second, {:.2} bytes each",
        records as f64 / seconds / 1e6,
        records as f64 / cpu / 1e6,
        bytes as f64 / records as f64
    );

    let trace = Trace::open(folder).expect("open");
    let (begin, cpu) = (Instant::now(), cpu_seconds());
    let (parts, _) = trace.parts().expect("parts");
    let mut calls = Vec::new();
    let mut sum = 0u64;
    for part in &parts {
        trace.read_part(part, &mut calls).expect("part");
        sum += calls.iter().map(|call| call.duration_ns).sum::<u64>();
    }
    let (seconds, cpu) = (begin.elapsed().as_secs_f64(), cpu_seconds() - cpu);
    println!(
        "read: {:.1} M/s, {:.1} M per CPU second ({sum} ns in all)",
        records as f64 / seconds / 1e6,
        records as f64 / cpu / 1e6
    );
}
