//! How large messages are, by what the kernel's events of a trace say: JSON with how many there are of each size.
//!
//! `cargo run -p fettle-follow --example sizes TRACE`
//!
//! A message is what one call sent or received on a socket, at either end that was recorded.

use std::collections::BTreeMap;
use std::path::Path;

use fettle_trace::Trace;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let trace = Trace::open(Path::new(&std::env::args().nth(1).ok_or("TRACE?")?))?;
    let (mut stream, _) = trace.events(&mut |kind| match kind.name.as_str() {
        "sent" | "received" => kind.places(&["bytes"]),
        _ => None,
    })?;
    let mut sizes: BTreeMap<u64, u64> = BTreeMap::new();
    while let Some(run) = stream.next(u64::MAX, &mut |_| 0)? {
        // What failed or met the end has no size.
        let moved = run.values(0).iter().filter(|bytes| bytes.cast_signed() > 0);
        moved.for_each(|bytes| *sizes.entry(*bytes).or_default() += 1);
    }
    let lost = trace.manifest().events.lost();
    println!("{}", serde_json::json!({ "lost": lost, "sizes": sizes }));
    Ok(())
}
