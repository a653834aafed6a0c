//! What memory depends on: requests that are open, not events that have passed.
//!
//! `cargo run --release -p fettle-requests --example memory [MILLIONS]`
//!
//! Events are made as they are fed, so that nothing but the engine keeps them: so many requests are
//! open at any time, each has twelve events, on a connection and a thread, and when one is complete
//! another begins. Peak memory is that of the process, as the kernel says, at each quarter of the way.

use fettle_requests::{Batch, Engine, Options, Source, compile};

const SCHEMA: &str = "
event received(tid: u32, connection: u64)
event work(tid: u32, connection: u64)
event sent(tid: u32, connection: u64)

actor thread(tid: u32)
timeline connection(n: u64)

on received { start connection(connection)  start thread(tid)  seed }
on work { basic connection(connection)  basic thread(tid) }
on sent { stop connection(connection)  stop thread(tid) }
";

const BATCH: u64 = 1 << 14;
/// Events of a request.
const STEPS: u8 = 12;

/// The most memory that this process has had, in bytes.
fn peak_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or_default();
    line.split_whitespace().next().and_then(|kb| kb.parse().ok()).unwrap_or(0u64) << 10
}

fn run(open: usize, events: u64) {
    let source = Source::new("memory", SCHEMA);
    let program = compile(&[source], &|_| None).unwrap_or_else(|report| panic!("{report}"));
    let kind = |name: &str| program.catalog().find(name).expect("it is declared");
    let [received, work, sent] = ["received", "work", "sent"].map(kind);
    let mut batch = Batch::new(program.catalog());
    let mut engine = Engine::new(program, Options::default());
    // How far the request of each thread is, and which connection it came over.
    let mut threads = vec![(0u8, 0u64); open];
    let (mut random, mut time_ns, mut fed, mut connections) = (0x1234_5678_9abc_def1u64, 0, 0, 0);
    let (mut found, mut most_open, mut peaks) = (0u64, 0, Vec::new());
    while fed < events {
        batch.clear();
        for _ in 0..BATCH {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            time_ns += random >> 54;
            let tid = random % open as u64;
            let (step, connection) = &mut threads[tid as usize];
            let event = match *step {
                0 => {
                    connections += 1;
                    *connection = connections;
                    received
                }
                step if step + 1 == STEPS => sent,
                _ => work,
            };
            batch.push(time_ns, event, &[tid, *connection]);
            *step = (*step + 1) % STEPS;
        }
        engine.feed(&batch, &mut |request| found += u64::from(request.events() == 12));
        most_open = most_open.max(engine.open().1);
        fed += BATCH;
        if fed * 4 / events > peaks.len() as u64 {
            peaks.push(format!("{}", peak_bytes() >> 20));
        }
    }
    println!(
        "{most_open:>7} requests open at most; {:>5} million events, {found} requests whole; peak \
         memory at each quarter {} MB",
        fed / 1_000_000,
        peaks.join(", ")
    );
}

fn main() {
    let millions: u64 = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(100);
    // The peak of a process does not fall, so fewer come first.
    for open in [100, 10_000, 500_000] {
        run(open, millions * 1_000_000);
    }
}
