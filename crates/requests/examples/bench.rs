//! How fast the engine is: million events per CPU-second through a schema of three timelines.
//!
//! `cargo run --release -p fettle-requests --example bench [MILLIONS [NAME]]`; with a name, only the
//! contenders whose names contain it.
//!
//! The events are those of a server with 64 threads, 1,024 connections and files that are opened,
//! read and closed in each request. In the first run every event belongs to a request, which is the
//! worst case: it is written down. In the second each request is also read when it is complete, with
//! all of its events, sections and spans. In the third one request of a hundred is asked for. By hand
//! is what a pass takes that knows these events and nothing else.
//!
//! The time is that of this thread on a processor. Events are made some batches at a time, and each
//! contender takes them in turn, so that what else the machine does disturbs all of them; the figure
//! is that of the median turn.

use nix::time::{ClockId, clock_gettime};

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
#[derive(Clone, Copy)]
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
/// Batches that are made, and fed, at once.
const ROUND: usize = 2;

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

/// Seconds that this thread was on a processor.
fn cpu_s() -> f64 {
    let now = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).expect("Linux has this clock");
    now.tv_sec() as f64 + now.tv_nsec() as f64 / 1e9
}

fn timed(work: impl FnOnce()) -> f64 {
    let start = cpu_s();
    work();
    cpu_s() - start
}

/// The same by hand: which request a thread, a connection and a file belong to lies in arrays that
/// need no search.
struct ByHand {
    kinds: [EventId; 7],
    threads: [u64; 128],
    files: Vec<u64>,
    connections: Vec<u64>,
    counts: Vec<u32>,
    requests: u64,
}

impl ByHand {
    fn new(kinds: [EventId; 7]) -> ByHand {
        let (files, connections, counts) = (vec![0; 8192], vec![0; 1024], vec![0; 1 << 24]);
        ByHand { kinds, threads: [0; 128], files, connections, counts, requests: 0 }
    }

    fn feed(&mut self, batch: &Batch) {
        let [request_read, reply_write, open, read, close, _, _] = self.kinds;
        for row in 0..batch.len() {
            let kind = batch.kind(row);
            let field = |n| batch.value(row, n) as usize;
            let request = if kind == request_read {
                self.requests += 1;
                self.connections[field(2) % 1024] = self.requests;
                self.threads[field(1) % 128] = self.requests;
                self.requests
            } else if kind == reply_write {
                std::mem::take(&mut self.threads[field(1) % 128])
            } else if kind == open {
                self.files[field(2) % 8192] = self.threads[field(1) % 128];
                self.threads[field(1) % 128]
            } else if kind == read {
                self.files[field(2) % 8192]
            } else if kind == close {
                std::mem::take(&mut self.files[field(2) % 8192])
            } else {
                self.threads[field(0) % 128]
            };
            self.counts[request as usize % (1 << 24)] += 1;
        }
    }
}

/// An engine with one of the schemas, and what it found.
struct Contender {
    name: &'static str,
    engine: Engine,
    /// Whether it reads the requests.
    reads: bool,
    found: u64,
    written: u64,
    seconds: Vec<f64>,
}

impl Contender {
    fn new(name: &'static str, program: &Program, reads: bool) -> Contender {
        let engine = Engine::new(program.clone(), Options::default());
        Contender { name, engine, reads, found: 0, written: 0, seconds: Vec::new() }
    }

    fn feed(&mut self, batches: &[Batch]) {
        let Contender { engine, reads, found, written, seconds, .. } = self;
        seconds.push(timed(|| {
            for batch in batches {
                engine.feed(batch, &mut |request| {
                    *found += 1;
                    *written += match reads {
                        true => request.read().events.len() as u64,
                        false => request.events() as u64,
                    };
                });
            }
        }));
    }
}

/// Million events per CPU-second: of the median round.
fn rate(seconds: &mut [f64]) -> f64 {
    seconds.sort_by(f64::total_cmp);
    (ROUND * BATCH) as f64 / 1e6 / seconds[seconds.len() / 2]
}

fn program(asked: &str) -> Program {
    let source = Source::new("bench", SCHEMA.replace("ASKED", asked));
    compile(&[source], &|_| None).unwrap_or_else(|report| panic!("{report}"))
}

fn main() {
    let millions: usize = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(20);
    let rounds = ((millions << 20) / (ROUND * BATCH)).max(1);
    let few = "bytes > 0 and fd in (5, 105, 205, 305, 405, 505, 605, 705, 805, 905)";
    let all = program("bytes > 0");
    let mut server = Server::new(&all);
    let mut by_hand = (ByHand::new(server.kinds.0), Vec::new());
    let mut batches = vec![Batch::new(all.catalog()); ROUND];
    let mut contenders = vec![
        Contender::new("every event in a request", &all, false),
        Contender::new("the same, and read", &all, true),
        Contender::new("1 % of requests", &program(few), false),
    ];
    let only = std::env::args().nth(2).unwrap_or_default();
    contenders.retain(|contender| contender.name.contains(&only));
    for _ in 0..rounds {
        batches.iter_mut().for_each(|batch| server.fill(batch));
        by_hand.1.push(timed(|| batches.iter().for_each(|batch| by_hand.0.feed(batch))));
        contenders.iter_mut().for_each(|contender| contender.feed(&batches));
    }
    let begun = server.requests;
    let floor = rate(&mut by_hand.1);
    println!("{:<26} {floor:>6.1} million events per CPU-second; {begun} requests", "by hand");
    for Contender { name, found, written, mut seconds, .. } in contenders {
        let rate = rate(&mut seconds);
        println!(
            "{name:<26} {rate:>6.1} million events per CPU-second, {:.2} of by hand; {found} of \
             {begun} requests, {:.1} events each",
            rate / floor,
            written as f64 / found as f64
        );
    }
}
