//! Lifts, rewrites and checks files in every mode; says what the checker rejected and how fast
//! it was.
//!
//! `cargo run --release -p fettle-rewrite --example check -- FILES`

use std::time::{Duration, Instant};

use fettle_check::Checker;
use fettle_code::{Mode, Pointers, Probing};
use fettle_image::Image;
use fettle_rewrite::{PlanOptions, plan_checked_by};
use std::sync::Mutex;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // For profiles: `MODE` leaves out other modes, `REPEAT` checks everything so many times.
    let repeat = std::env::var("REPEAT").ok().and_then(|r| r.parse().ok()).unwrap_or(1);
    for path in std::env::args().skip(1) {
        let image = Image::parse(std::fs::read(&path)?)?;
        let lifted = fettle_lift::lift(&image);
        for mode in Mode::ALL {
            if std::env::var("MODE").is_ok_and(|m| m != format!("{mode:?}")) {
                continue;
            }
            let errors = Mutex::new(Vec::new());
            let spent = Mutex::new((Duration::ZERO, 0u64));
            let begin = Instant::now();
            let options =
                PlanOptions { pointers: pointers(mode), ..PlanOptions::new(Probing::new(mode)) };
            let plan = plan_checked_by(&image, &lifted, options, || {
                let mut checker = Checker::new(&image);
                let (errors, spent) = (&errors, &spent);
                move |claim, context| {
                    let begin = Instant::now();
                    let mut result = checker.check(claim, context);
                    for _ in 1..repeat {
                        result = checker.check(claim, context);
                    }
                    let time = begin.elapsed() / repeat;
                    let mut s = spent.lock().expect("no panic");
                    s.0 += time;
                    s.1 += claim.function.code_bytes();
                    let entry = format!("{:x}", claim.function.entry.0);
                    if std::env::var("DUMP").is_ok_and(|d| d == entry) {
                        dump(&claim.emitted.code);
                    }
                    if let Err(e) = result {
                        errors.lock().expect("no panic").push((claim.function.entry, e));
                    }
                    result
                }
            });
            let seconds = begin.elapsed().as_secs_f64();
            let (time, bytes) = *spent.lock().expect("no panic");
            let errors = errors.into_inner().expect("no panic");
            println!(
                "{path} {mode:?}: {} functions, {} rejected, {:.1} MB, check {:.0} MB/s per core, plan {seconds:.2} s",
                plan.functions.len(),
                errors.len(),
                bytes as f64 / 1e6,
                bytes as f64 / 1e6 / time.as_secs_f64(),
            );
            for (entry, error) in errors.iter().take(12) {
                println!("  {entry} {}: {error}", image.name_at(*entry).unwrap_or("?"));
            }
        }
    }
    Ok(())
}

/// Targets are counted along with edges.
fn pointers(mode: Mode) -> Pointers<'static> {
    if mode == Mode::Edges { Pointers::Counted } else { Pointers::Kept }
}

fn dump(code: &[u8]) {
    use iced_x86::Formatter;
    let mut text = String::new();
    let mut formatter = iced_x86::NasmFormatter::new();
    for insn in &mut iced_x86::Decoder::with_ip(64, code, 0, 0) {
        text.clear();
        formatter.format(&insn, &mut text);
        println!("    {:5x} {text}", insn.ip());
    }
}
