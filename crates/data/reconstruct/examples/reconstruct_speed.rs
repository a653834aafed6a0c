//! How fast traces are reconstructed, and how well, from simulated spans: `reconstruct_speed REQUESTS LOADS…`, where a
//! load is how many requests begin in a second.

#[path = "../tests/simulated/mod.rs"]
mod simulated;

use std::time::Instant;

use fettle_reconstruct::{How, reconstruct_by};

fn main() {
    let mut args = std::env::args().skip(1).filter_map(|arg| arg.parse::<usize>().ok());
    let requests = args.next().unwrap_or(10_000);
    for load in args {
        let made = simulated::shop(1, requests, 1e9 / load as f64);
        for how in [How::Likeliest, How::FirstCome, How::Nearest] {
            let begin = Instant::now();
            let found = reconstruct_by(&made.spans, how);
            let seconds = begin.elapsed().as_secs_f64();
            let pairs = || found.links.iter().zip(&made.parents);
            let links = pairs().filter(|(_, parent)| parent.is_some()).count();
            let right = pairs()
                .filter(|(link, parent)| parent.is_some() && link.parent == **parent)
                .count();
            let chosen = found.links.iter().filter(|link| link.candidates > 1).count();
            println!(
                "{load:>6} a second, {how:?}: {} spans in {seconds:.2} s ({:.0} a second), {:.2} % of {links} links right, {chosen} chosen",
                made.spans.len(),
                made.spans.len() as f64 / seconds,
                100.0 * right as f64 / links as f64,
            );
        }
    }
}
