//! How fast the engine is over a trace's events, by a schema: million events per CPU-second.
//!
//! `cargo run --release -p fettle-follow --example rate TRACE [SCHEMA…]`
//!
//! Events are read first, so the time is the engine's alone; of 15 turns the median counts.

use std::path::Path;

use fettle_follow::{Context, Observer, Session};
use fettle_requests::{Batch, Engine, Options, Request, Source, shipped};
use fettle_trace::Trace;
use nix::time::{ClockId, clock_gettime};

/// Seconds that this thread was on a processor.
fn cpu_s() -> f64 {
    let now = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).expect("Linux has this clock");
    now.tv_sec() as f64 + now.tv_nsec() as f64 / 1e9
}

#[derive(Default)]
struct Batches(Vec<Batch>);

impl Observer for Batches {
    fn events(&mut self, _first: u64, batch: &Batch, _context: &Context<'_>) -> bool {
        self.0.push(batch.clone());
        true
    }

    fn request(&mut self, _request: &Request, _context: &Context<'_>) -> bool {
        true
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let trace = Trace::open(Path::new(&args.next().ok_or("TRACE?")?))?;
    let mut schemas: Vec<String> = args.collect();
    if schemas.is_empty() {
        schemas = ["sockets", "http1", "files"].map(str::to_string).into();
    }
    for schema in schemas {
        let text = shipped(&schema).ok_or("there is no such schema")?;
        let session = Session::open(&trace, &[Source::new(&schema, text)], &shipped)?;
        let mut batches = Batches::default();
        session.observe(&|_| false, &mut batches)?;
        let events: usize = batches.0.iter().map(Batch::len).sum();
        let mut found = 0;
        let mut seconds: Vec<f64> = Vec::new();
        for _ in 0..15 {
            let mut engine = Engine::new(session.program().clone(), Options::default());
            found = 0;
            let start = cpu_s();
            for batch in &batches.0 {
                engine.feed(batch, &mut |_| found += 1);
            }
            seconds.push(cpu_s() - start);
        }
        seconds.sort_by(f64::total_cmp);
        let rate = events as f64 / 1e6 / seconds[seconds.len() / 2];
        println!(
            "{schema:<10} {rate:>6.1} million events per CPU-second; {events} events, {found} requests"
        );
    }
    Ok(())
}
