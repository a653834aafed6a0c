//! Reads every field of every event of a CTF trace: `cargo run --release -p fettle-import --example ctf
//! FOLDER`. The sum of the values is printed so that nothing can be left out. `cargo xtask bench import
//! FOLDER` says how fast it is, next to babeltrace2.

use std::path::Path;
use std::rc::Rc;

use fettle_import::ctf::Trace;

fn main() -> anyhow::Result<()> {
    let folder = std::env::args().nth(1).unwrap_or_else(|| ".".to_owned());
    let trace = Rc::new(Trace::open(Path::new(&folder))?);
    let (mut events, mut sum) = (0_u64, 0_u64);
    for file in trace.files() {
        let mut stream = trace.stream(file)?;
        while let Some(some) = stream.next_events()? {
            for event in some {
                events += 1;
                sum = sum.wrapping_add(event.time_ns);
                for value in event.values {
                    sum = sum.wrapping_add(*value);
                }
            }
        }
    }
    println!("{events} events, sum {sum:x}");
    Ok(())
}
