//! How fast the engine is: million events per CPU-second through a schema of three timelines.
//!
//! `cargo run --release -p fettle-requests --example bench [MILLIONS]`
//!
//! The events are those of a server with 64 threads, 1,024 connections and files that are opened,
//! read and closed in each request. In the first run every event belongs to a request, which is the
//! worst case: it is written down. In the second one request of a hundred is asked for. The third is
//! what a hand-written pass takes that knows these events and nothing else.
//!
//! The time is that of this thread on a processor, less what making the events takes: they are made
//! batch by batch, as a reader would, by a pass that is measured alone first.

use fettle_requests::{Batch, Engine, EventId, Options, Program, Source, compile};

const SCHEMA: &str = r#"
event request_read(pid: u32, tid: u32, fd: i32, bytes: i64)
event reply_write(pid: u32, tid: u32, fd: i32, bytes: i64)
event open(pid: u32, tid: u32, fd: i32)
event read(pid: u32, tid: u32, fd: i32, bytes: i64)
event close(pid: u32, tid: u32, fd: i32)
event switch_out(tid: u32, runnable: bool)
event switch_in(tid: u32)

actor thread(tid: u32)
timeline connection(pid: u32, fd: i32)
timeline file(pid: u32, fd: i32)

on request_read where ASKED {
  start connection(pid, fd) after reply_write, nothing
  start thread(tid)
  seed
}
on request_read where bytes > 0 {
  start connection(pid, fd) after reply_write, nothing
  start thread(tid)
}
on reply_write where bytes > 0 { basic connection(pid, fd)  stop thread(tid) }
on open { start file(pid, fd)  basic thread(tid) }
on read where bytes >= 0 { basic file(pid, fd)  basic thread(tid) expects disk }
on close { stop file(pid, fd)  basic thread(tid) }
on switch_out where runnable { basic thread(tid) is runnable }
on switch_out { basic thread(tid) is blocked }
on switch_in { basic thread(tid) is running }
"#;

/// Numbers of the events above, in their order.
struct Kinds([EventId; 7]);

/// What a thread does next.
#[derive(Clone, Copy, Default)]
struct Thread {
    step: u64,
    connection: u64,
    file: u64,
}

/// Makes the events.
struct Server {
    kinds: Kinds,
    random: u64,
    time_ns: u64,
    requests: u64,
    threads: [Thread; THREADS as usize],
}

const THREADS: u64 = 64;
const BATCH: usize = 1 << 14;

impl Server {
    fn new(program: &Program) -> Server {
        let mut ids = program.catalog().events().iter().map(|e| program.catalog().find(&e.name));
        let kinds = Kinds(std::array::from_fn(|_| ids.next().flatten().expect("seven events")));
        let threads = [Thread::default(); THREADS as usize];
        Server { kinds, random: 0x1234_5678_9abc_def1, time_ns: 0, requests: 0, threads }
    }

    fn fill(&mut self, batch: &mut Batch) {
        batch.clear();
        let [request_read, reply_write, open, read, close, switch_out, switch_in] = self.kinds.0;
        for _ in 0..BATCH {
            self.random ^= self.random << 13;
            self.random ^= self.random >> 7;
            self.random ^= self.random << 17;
            let random = self.random;
            self.time_ns += random >> 40 & 0x3ff;
            let n = random % THREADS;
            let thread = &mut self.threads[n as usize];
            let (time, pid, tid) = (self.time_ns, 100 + n % 4, 1000 + n);
            if thread.step == 0 {
                thread.connection = 16 * n + (random >> 20) % 16;
                thread.file = 2000 + n * 64 + (random >> 30) % 64;
                self.requests += 1;
            }
            let Thread { step, connection, file } = *thread;
            match step {
                0 => batch.push(time, request_read, &[pid, tid, connection, 300]),
                1 => batch.push(time, open, &[pid, tid, file]),
                3 | 7 => batch.push(time, switch_out, &[tid, 0]),
                4 | 8 => batch.push(time, switch_in, &[tid]),
                2 | 5 | 6 | 9 | 10 => batch.push(time, read, &[pid, tid, file, 4096]),
                11 => batch.push(time, close, &[pid, tid, file]),
                12 => batch.push(time, reply_write, &[pid, tid, connection, 900]),
                _ => batch.push(time, switch_out, &[tid, 1]),
            }
            thread.step = (step + 1) % 14;
        }
    }
}

/// Nanoseconds that this thread was on a processor.
fn cpu_ns() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split(' ').next().and_then(|field| field.parse().ok()).unwrap_or(0)
}

/// Processor time of a pass over all batches, and the number of requests made.
fn pass(program: &Program, batches: usize, mut each: impl FnMut(&Batch)) -> (f64, u64) {
    let mut server = Server::new(program);
    let mut batch = Batch::new(program.catalog());
    let start = cpu_ns();
    for _ in 0..batches {
        server.fill(&mut batch);
        each(&batch);
    }
    ((cpu_ns() - start) as f64 / 1e9, server.requests)
}

/// The same by hand: which request a thread, a connection and a file belong to lies in arrays that
/// need no search.
fn by_hand(program: &Program, batches: usize) -> (f64, u64) {
    let Kinds([request_read, reply_write, open, read, close, _, _]) = Server::new(program).kinds;
    let (mut threads, mut files) = ([0u64; 128], vec![0u64; 8192]);
    let mut connections = vec![0u64; 1024];
    let (mut counts, mut next) = (vec![0u32; 1 << 24], 0u64);
    let (seconds, _) = pass(program, batches, |batch| {
        for row in 0..batch.len() {
            let kind = batch.kind(row);
            let field = |n| batch.value(row, n) as usize;
            let request = if kind == request_read {
                next += 1;
                connections[field(2) % 1024] = next;
                threads[field(1) % 128] = next;
                next
            } else if kind == reply_write {
                std::mem::take(&mut threads[field(1) % 128])
            } else if kind == open {
                files[field(2) % 8192] = threads[field(1) % 128];
                threads[field(1) % 128]
            } else if kind == read {
                files[field(2) % 8192]
            } else if kind == close {
                std::mem::take(&mut files[field(2) % 8192])
            } else {
                threads[field(0) % 128]
            };
            counts[request as usize % (1 << 24)] += 1;
        }
    });
    (seconds, counts.iter().skip(1).filter(|count| **count > 0).count() as u64)
}

fn main() {
    let millions: usize = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(10);
    let batches = (millions << 20) / BATCH;
    let events = (batches * BATCH) as f64 / 1e6;
    let few = "bytes > 0 and fd in (5, 105, 205, 305, 405, 505, 605, 705, 805, 905)";
    for (name, asked) in [("every event in a request", "bytes > 0"), ("1 % of requests", few)] {
        let source = Source::new("bench", SCHEMA.replace("ASKED", asked));
        let program = compile(&[source], &|_| None).unwrap_or_else(|report| panic!("{report}"));
        let (making, _) = pass(&program, batches, |_| {});
        let mut engine = Engine::new(program.clone(), Options::default());
        let (mut found, mut written) = (0u64, 0u64);
        let (seconds, begun) = pass(&program, batches, |batch| {
            engine.feed(batch, &mut |request| {
                found += 1;
                written += request.events.len() as u64;
            });
        });
        engine.finish(&mut |_| found += 1);
        let rate = events / (seconds - making);
        println!(
            "{name:<26} {rate:>6.1} million events per CPU-second; {found} of {begun} requests, \
             {:.1} events each",
            written as f64 / found as f64
        );
        if asked != few {
            let (seconds, found) = by_hand(&program, batches);
            let rate = events / (seconds - making);
            println!(
                "{:<26} {rate:>6.1} million events per CPU-second; {found} requests",
                "by hand"
            );
        }
    }
}
