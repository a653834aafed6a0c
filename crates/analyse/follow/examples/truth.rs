//! How well requests are found in a trace of `tests/requests/bed.py`.
//!
//! `cargo run --release -p fettle-follow --example truth FOLDER [SCHEMA-FILE]`

#[path = "../tests/truth/mod.rs"]
mod truth;

use std::path::Path;

use fettle_follow::{Session, choose};
use fettle_requests::{Source, shipped};
use fettle_trace::Trace;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let folder = Path::new(args.first().ok_or("FOLDER?")?);
    let trace = Trace::open(&folder.join("bed.fettle"))?;
    let sources = match args.get(1) {
        Some(file) => vec![Source::new(file, std::fs::read_to_string(file)?)],
        None => choose(&trace)?.sources,
    };
    let session = Session::open(&trace, &sources, &shipped)?;
    let score = truth::score(&session, &folder.join("truth"));
    println!("{} requests made, {} found, by {} events", score.made, score.found, score.events);
    println!("precision {:.4}, recall {:.4}", score.precision, score.recall);
    println!("exactly right: {:.2} %", score.exact * 100.0);
    println!(
        "marked as resting on a choice: {}; of {} that are wrong {}",
        score.marked, score.wrong, score.wrong_marked
    );
    println!("wrong, up to the first 20: {:?}", &score.wrong_numbers[..score.wrong.min(20)]);
    for (tenth, (all, right)) in score.choices.into_iter().enumerate().filter(|(_, of)| of.0 > 0) {
        let share = right as f64 / all as f64 * 100.0;
        println!(
            "  choices said to be {} to {} % likely: {all}, right {share:.1} %",
            tenth * 10,
            tenth * 10 + 9
        );
    }
    println!("{} events lost", trace.manifest().events.lost());
    Ok(())
}
