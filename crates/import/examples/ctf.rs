//! Reads a CTF trace and says how fast: `cargo run --release -p fettle-import --example ctf FOLDER`.
//!
//! Every field of every event is decoded; the sum of the values is printed so that nothing can be left
//! out. `babeltrace2 FOLDER -o dummy` does the same. The time is that of the process on processors.

use std::path::Path;
use std::rc::Rc;

use fettle_import::ctf::Trace;
use nix::time::{ClockId, clock_gettime};

/// Seconds that this process was on processors.
fn cpu_s() -> anyhow::Result<f64> {
    let now = clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID)?;
    Ok(now.tv_sec() as f64 + now.tv_nsec() as f64 / 1e9)
}

fn main() -> anyhow::Result<()> {
    let folder = std::env::args().nth(1).unwrap_or_else(|| ".".to_owned());
    let trace = Rc::new(Trace::open(Path::new(&folder))?);
    for round in 1..=3 {
        let (mut events, mut sum) = (0_u64, 0_u64);
        let start = cpu_s()?;
        for file in trace.files() {
            let mut stream = trace.stream(file)?;
            while let Some(batch) = stream.next_events()? {
                for event in batch {
                    events += 1;
                    sum = sum.wrapping_add(event.time_ns);
                    for value in event.values {
                        sum = sum.wrapping_add(*value);
                    }
                }
            }
        }
        let seconds = cpu_s()? - start;
        println!(
            "round {round}: {events} events in {seconds:.3} s of processor time, {:.1} million a second \
             (sum {sum:x})",
            events as f64 / seconds / 1e6
        );
    }
    Ok(())
}
