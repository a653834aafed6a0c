//! Prints a hash of each file's plan, so that a change that should change nothing can be shown to
//! change nothing: run it before and after, and compare.
//!
//! `cargo run --release -p fettle-rewrite --example digest -- FILES`

use std::collections::hash_map::DefaultHasher;
use std::fmt::Write;
use std::hash::Hasher;

use fettle_code::{Mode, Probing};
use fettle_image::Image;
use fettle_rewrite::PlanOptions;

/// Hashes whatever is formatted into it.
struct Text(DefaultHasher);

impl Write for Text {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        self.0.write(text.as_bytes());
        Ok(())
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    for path in std::env::args().skip(1) {
        let Ok(image) = Image::parse(std::fs::read(&path)?) else { continue };
        let lifted = fettle_lift::lift(&image);
        for mode in Mode::ALL {
            if std::env::var("MODE").is_ok_and(|m| m != format!("{mode:?}")) {
                continue;
            }
            let options = PlanOptions { osr_map: true, ..PlanOptions::new(Probing::new(mode)) };
            let plan = fettle_rewrite::plan(&image, &lifted, options);
            let mut text = Text(DefaultHasher::new());
            text.0.write(&plan.text);
            write!(text, "{:?}{:?}{:?}", plan.functions, plan.skipped, plan.fixups)?;
            write!(text, "{:?}{:?}{:?}", plan.tables, plan.entry_patches, plan.unwind)?;
            let (functions, skipped) = (plan.functions.len(), plan.skipped.len());
            println!("{path} {mode:?} {functions} {skipped} {:016x}", text.0.finish());
        }
    }
    Ok(())
}
