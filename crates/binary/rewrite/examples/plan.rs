//! Plans rewritten text for a file and prints one function of it.
//!
//! `cargo run --release -p fettle-rewrite --example plan -- FILE [MODE [ADDRESS]]`

use std::time::Instant;

use fettle_code::{Mode, Probing};
use fettle_rewrite::PlanOptions;
use iced_x86::{Decoder, DecoderOptions, Formatter, NasmFormatter};

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let image = fettle_image::Image::parse(std::fs::read(&args[1]).expect("file")).expect("image");
    let mode = match args.get(2).map(String::as_str) {
        Some("count") => Mode::Count,
        Some("time") => Mode::Time,
        Some("sample") => Mode::Sample,
        Some("blocks") => Mode::Blocks,
        Some("edges") => Mode::Edges,
        _ => Mode::Events,
    };
    let t = Instant::now();
    let lifted = fettle_lift::lift(&image);
    let lift = t.elapsed();
    let plan = fettle_rewrite::plan(&image, &lifted, PlanOptions::new(Probing::new(mode)));
    let all = t.elapsed();
    println!(
        "{} functions, {} skipped, {} bytes -> {}; lift {lift:.0?}, all {all:.0?}, {:.1} MB/s; {} fixups",
        plan.functions.len(),
        plan.skipped.len(),
        lifted.code_bytes,
        plan.text.len(),
        lifted.code_bytes as f64 / 1e6 / all.as_secs_f64(),
        plan.fixups.len(),
    );
    let mut reasons = std::collections::BTreeMap::new();
    for s in &plan.skipped {
        *reasons.entry(s.reason).or_insert(0) += 1;
    }
    println!("{reasons:?}");
    if let Some(addr) = args.get(3) {
        let addr = u64::from_str_radix(addr.trim_start_matches("0x"), 16).expect("address");
        let f = plan.functions.iter().find(|f| f.entry.0 == addr).expect("function");
        let range = f.text_offset as usize..(f.text_offset + f.text_size) as usize;
        let mut formatter = NasmFormatter::new();
        let mut text = String::new();
        for i in &mut Decoder::with_ip(
            64,
            &plan.text[range.clone()],
            range.start as u64,
            DecoderOptions::NONE,
        ) {
            text.clear();
            formatter.format(&i, &mut text);
            println!("{:6x}  {text}", i.ip());
        }
    }
}
