//! Reads a CTF trace and says how fast: `cargo run --release -p fettle-import --example ctf FOLDER`.
//!
//! Every field of every event is decoded; the sum of the values is printed so that nothing can be left
//! out. `babeltrace2 FOLDER -o dummy` does the same.

use std::path::Path;
use std::rc::Rc;
use std::time::Instant;

use fettle_import::ctf::Trace;

fn main() -> anyhow::Result<()> {
    let folder = std::env::args().nth(1).unwrap_or_else(|| ".".to_owned());
    let trace = Rc::new(Trace::open(Path::new(&folder))?);
    for round in 1..=3 {
        let (mut events, mut sum) = (0_u64, 0_u64);
        let start = Instant::now();
        for file in trace.files() {
            let mut stream = trace.stream(file)?;
            while let Some(event) = stream.next()? {
                events += 1;
                sum = sum.wrapping_add(event.time_ns);
                for value in &event.slots[event.plan.first..] {
                    sum = sum.wrapping_add(*value);
                }
            }
        }
        let seconds = start.elapsed().as_secs_f64();
        println!(
            "round {round}: {events} events in {seconds:.3} s, {:.1} million a second (sum {sum:x})",
            events as f64 / seconds / 1e6
        );
    }
    Ok(())
}
