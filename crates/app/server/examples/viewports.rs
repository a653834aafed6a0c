//! Measures how fast a trace can be looked at.
//!
//! `cargo run --release -p fettle-server --example viewports -- TRACE [TRACKS]` reads a trace and
//! draws a thousand viewports of 2,000 pixels, at all zooms and at random places, over its first
//! TRACKS tracks (64). Says how long reading took, and quantiles of the answers' times and sizes.
//! Each is drawn five times and the fastest counts: the machine may be busy with other things.

use std::path::Path;
use std::time::Instant;

use fettle_server::timelines::Timelines;
use fettle_server::track::{Track, Viewport};
use fettle_trace::Trace;

const PIXELS: f64 = 2000.0;
const REPEATS: usize = 5;
const VIEWPORTS: u64 = 1000;

fn main() {
    let mut args = std::env::args().skip(1);
    let folder = args.next().expect("TRACE");
    let wanted: usize = args.next().and_then(|n| n.parse().ok()).unwrap_or(64);
    let begin = Instant::now();
    let trace = Trace::open(Path::new(&folder)).expect("open");
    let timelines = Timelines::read(&trace).expect("read");
    let tracks: Vec<&Track> =
        timelines.threads.iter().flat_map(|thread| &thread.depths).take(wanted).collect();
    println!(
        "read: {} calls in {:.2} s; {} tracks looked at",
        timelines.calls,
        begin.elapsed().as_secs_f64(),
        tracks.len()
    );

    let mut random = 0x9e37_79b9_7f4a_7c15u64;
    let (mut times_us, mut sizes) = (Vec::new(), Vec::new());
    let mut pieces = Vec::new();
    for number in 0..VIEWPORTS {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        // From everything down to two nanoseconds a cell.
        let zooms = timelines.end_ns.ilog2().saturating_sub(12).max(1);
        let width_ns = timelines.end_ns >> (number as u32 % zooms);
        let from_ns = random % (timelines.end_ns - width_ns + 1);
        // As the page asks.
        let cell_bits = (width_ns as f64 / PIXELS).log2().round().max(0.0) as u32;
        let viewport = Viewport { from_ns, to_ns: from_ns + width_ns, cell_bits };
        let mut fastest = f64::MAX;
        for _ in 0..REPEATS {
            let begin = Instant::now();
            pieces.clear();
            tracks.iter().for_each(|track| track.pieces(viewport, &mut pieces));
            fastest = fastest.min(begin.elapsed().as_secs_f64() * 1e6);
        }
        times_us.push(fastest);
        sizes.push(pieces.len() as f64);
    }
    for (what, values) in [("microseconds", &mut times_us), ("pieces", &mut sizes)] {
        values.sort_by(f64::total_cmp);
        let at = |share: f64| values[(share * (values.len() - 1) as f64) as usize];
        println!("{what}: median {:.0}, p99 {:.0}, most {:.0}", at(0.5), at(0.99), at(1.0));
    }
}
