//! How fast the engine is: million events per CPU-second through a schema of three timelines.
//!
//! `cargo run --release -p fettle-requests --example bench [MILLIONS [NAME]]`; with a name, only the
//! contenders whose names contain it.
//!
//! In the first run every event belongs to a request, which is the worst case: it is written down. In
//! the second each request is also read when it is complete, with all of its events, sections and
//! spans. In the third it is only found out which request each event belongs to, as where one request
//! of all is asked for (`Options::only`). In the fourth one of a hundred is a request. By hand is what
//! a pass takes that knows these events and nothing else, and DuckDB, if it is there, what a data base
//! takes to say which request each event belongs to.
//!
//! The time is that of this thread on a processor. Contenders take turns, so that what else the machine
//! does disturbs all of them, and the figure is that of the median turn. A turn is long enough for a
//! contender to have the caches to itself, and a batch is fed when it has just been made, as one is
//! that comes from a trace.

mod by_hand;
mod duckdb;
mod server;

use nix::time::{ClockId, clock_gettime};

use by_hand::ByHand;
use fettle_requests::{Batch, Complete, Engine, Options, Program};
use server::{BATCH, Server, program};

/// Batches of a turn.
const TURN: usize = 16;
/// Million events that a data base is asked about, at most: it gets them as text.
const JOINED: usize = 8;

/// Seconds that this thread was on a processor.
fn cpu_s() -> f64 {
    let now = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).expect("Linux has this clock");
    now.tv_sec() as f64 + now.tv_nsec() as f64 / 1e9
}

/// What takes events.
enum Who {
    ByHand(Box<ByHand>),
    Engine(Box<Engine>),
    /// It also reads the requests.
    Reader(Box<Engine>),
}

/// What takes events, those that it gets, and what it found.
struct Contender {
    name: &'static str,
    who: Who,
    server: Server,
    found: u64,
    written: u64,
    seconds: Vec<f64>,
}

impl Contender {
    fn new(name: &'static str, server: &Server, who: Who) -> Contender {
        let server = server.clone();
        Contender { name, who, server, found: 0, written: 0, seconds: Vec::new() }
    }

    fn turn(&mut self, batch: &mut Batch) {
        let Contender { who, server, found, written, seconds, .. } = self;
        let mut sum_s = 0.0;
        for _ in 0..TURN {
            server.fill(batch);
            let start_s = cpu_s();
            let mut count = |request: Complete<'_>| {
                *found += 1;
                *written += request.events() as u64;
            };
            match who {
                Who::ByHand(by_hand) => by_hand.feed(batch),
                Who::Engine(engine) => engine.feed(batch, &mut count),
                Who::Reader(engine) => engine.feed(batch, &mut |request| {
                    *found += 1;
                    *written += request.read().events.len() as u64;
                }),
            }
            sum_s += cpu_s() - start_s;
        }
        seconds.push(sum_s);
    }

    /// Million events per CPU-second: of the median turn.
    fn rate(&mut self) -> f64 {
        self.seconds.sort_by(f64::total_cmp);
        (TURN * BATCH) as f64 / 1e6 / self.seconds[self.seconds.len() / 2]
    }

    fn print(&mut self) {
        let (rate, Contender { name, server, found, written, .. }) = (self.rate(), &*self);
        print!("{name:<26} {rate:>6.1} million events per CPU-second");
        match found {
            0 => println!("; {} requests", server.requests),
            _ => println!(
                "; {found} of {} requests, {:.1} events each",
                server.requests,
                *written as f64 / *found as f64
            ),
        }
    }
}

/// How many events belong to requests, as the engine finds it.
fn in_requests(program: &Program, mut server: Server, batch: &mut Batch, batches: usize) -> u64 {
    let mut engine = Engine::new(program.clone(), Options::default());
    let mut events = 0;
    for _ in 0..batches {
        server.fill(batch);
        engine.feed(batch, &mut |request| events += request.events() as u64);
    }
    engine.finish(&mut |request| events += request.events() as u64);
    events
}

fn main() {
    let millions: usize = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(20);
    let only = std::env::args().nth(2).unwrap_or_default();
    let small_set = "bytes > 0 and fd in (5, 105, 205, 305, 405, 505, 605, 705, 805, 905)";
    let all = program("bytes > 0");
    let server = Server::new(&all);
    let mut batch = Batch::new(all.catalog());
    let engine = |program: &Program| Box::new(Engine::new(program.clone(), Options::default()));
    let bound = Options { only: Some(u64::MAX), ..Options::default() };
    let bound = Box::new(Engine::new(all.clone(), bound));
    let by_hand = Box::new(ByHand::new(server.kinds.0));
    let mut contenders = vec![
        Contender::new("by hand", &server, Who::ByHand(by_hand)),
        Contender::new("every event in a request", &server, Who::Engine(engine(&all))),
        Contender::new("the same, and read", &server, Who::Reader(engine(&all))),
        Contender::new("bound only", &server, Who::Engine(bound)),
        Contender::new("1 % of requests", &server, Who::Engine(engine(&program(small_set)))),
    ];
    contenders.retain(|contender| contender.name.contains(&only));
    for _ in 0..((millions << 20) / (TURN * BATCH)).max(1) {
        contenders.iter_mut().for_each(|contender| contender.turn(&mut batch));
    }
    contenders.iter_mut().for_each(Contender::print);
    if !"DuckDB".contains(&only) {
        return;
    }
    let batches = (millions.min(JOINED) << 20) / BATCH;
    match duckdb::join(server.clone(), &mut batch, batches) {
        None => println!("DuckDB is not installed, neither the command nor Python's module"),
        Some(duckdb::Joined { rate, in_requests: joined }) => {
            let found = in_requests(&all, server, &mut batch, batches);
            assert_eq!(joined, found, "DuckDB and the engine do not agree");
            println!(
                "{:<26} {rate:>6.1} million events per CPU-second; {joined} events in requests, \
                 as the engine says",
                "DuckDB, ASOF join"
            );
        }
    }
}
