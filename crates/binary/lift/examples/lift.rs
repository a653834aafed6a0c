//! Lifts the files named and prints what could not be lifted, and why.
//!
//! `cargo run --release -p fettle-lift --example lift -- [-v] FILE...`

use std::collections::BTreeMap;
use std::time::Instant;

fn main() {
    let mut verbose = false;
    for path in std::env::args().skip(1) {
        if path == "-v" {
            verbose = true;
            continue;
        }
        let bytes = std::fs::read(&path).expect("readable file");
        let t = Instant::now();
        let image = match fettle_image::Image::parse(bytes) {
            Ok(image) => image,
            Err(e) => {
                println!("{path}: {e}");
                continue;
            }
        };
        let parsed = t.elapsed();
        let t = Instant::now();
        let lifted = fettle_lift::lift(&image);
        let lift = t.elapsed();
        let t = Instant::now();
        let functions = lifted.functions.iter().enumerate();
        let index = functions.map(|(i, f)| (f.entry, i)).collect();
        let summaries = fettle_lift::summary::summaries(&image, &lifted.functions, &index);
        let clobbers =
            fettle_lift::clobbers::solve(&summaries, &fettle_lift::summary::callers(&summaries));
        let limited = clobbers.iter().filter(|c| **c != fettle_isa::RegSet::CALLER_SAVED).count();
        let clob = t.elapsed();
        let total = lifted.functions.len() + lifted.skipped.len();
        println!(
            "{path}: {} of {total} functions ({:.2} %), {} bytes, parse {parsed:.0?}, lift {lift:.0?} ({:.0} MB/s), clobbers {clob:.0?} {limited} limited",
            lifted.functions.len(),
            100.0 * lifted.functions.len() as f64 / total.max(1) as f64,
            lifted.code_bytes,
            lifted.code_bytes as f64 / 1e6 / lift.as_secs_f64(),
        );
        let mut reasons: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for s in &lifted.skipped {
            reasons.entry(s.reason).or_default().push(s);
        }
        for (reason, list) in reasons {
            println!("  {:5} {}", list.len(), reason.describe());
            for s in list.iter().take(if verbose { 12 } else { 0 }) {
                println!("        {} {:?} at {}", s.entry, s.name, s.at);
            }
        }
        let tables: Vec<_> = lifted.functions.iter().flat_map(|f| &f.tables).collect();
        println!(
            "  {} jump tables, {} bounded, {} movable",
            tables.len(),
            tables.iter().filter(|t| t.is_bounded()).count(),
            tables.iter().filter(|t| t.movable).count()
        );
    }
}
