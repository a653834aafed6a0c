//! Changes code, tables and unwind entries of real files for one second and rewrites what is left.
//! Prints its seed; `FETTLE_SEED` repeats a run, and `FETTLE_FUZZ_SECONDS` makes it longer.

mod common;

use std::time::{Duration, Instant};

use common::Random;
use fettle_image::{Image, LinkAddr};
use fettle_rewrite::{LinkParameters, PlanOptions, link, plan};
use fettle_types::{FunctionIndex, LoadBias};

/// Small files: a second is short.
const FILES: [&str; 5] =
    ["/bin/cat", "/bin/ls", "/usr/bin/lua5.4", "/lib/x86_64-linux-gnu/libgcc_s.so.1", "/bin/sed"];

/// Sections that lifting and rewriting read.
fn hot_spots(image: &Image) -> Vec<(usize, usize)> {
    let wanted = |name: &str| {
        [".text", ".rodata", ".eh_frame", ".eh_frame_hdr", ".gcc_except_table", ".rela.dyn", ".plt"]
            .contains(&name)
    };
    let sections = image.sections().iter().filter(|s| wanted(&s.name) && s.size > 0);
    sections.map(|s| (s.file_offset as usize, (s.file_offset + s.size) as usize)).collect()
}

fn mutate(file: &mut [u8], spots: &[(usize, usize)], random: &mut Random) {
    for _ in 0..=random.below(64) {
        let (start, end) = spots[random.below(spots.len())];
        let at = start + random.below(end - start);
        let Some(byte) = file.get_mut(at) else { continue };
        match random.below(3) {
            0 => *byte ^= 1 << random.below(8),
            1 => *byte = random.below(256) as u8,
            _ => {
                let from = start + random.below(end - start);
                let size = random.below(16).min(file.len().saturating_sub(at.max(from)));
                file.copy_within(from..from + size, at);
            }
        }
    }
}

/// Lifts, rewrites, checks and links; how many functions there were.
fn rewrite(image: &Image, random: &mut Random) -> usize {
    let lifted = fettle_lift::lift(image);
    let variants = common::variants(&lifted);
    let probes = variants[random.below(variants.len())].clone();
    let plan = plan(image, &lifted, PlanOptions { osr_map: true, ..PlanOptions::new(probes) });
    let _ = link(
        &plan,
        image,
        LinkParameters {
            text_at: LinkAddr(0x1000_0000),
            load_bias: LoadBias::NONE,
            first_function: FunctionIndex(0),
            accumulators: 0x100_0000,
            counters: 0x200_0000,
            ring_bytes: 1 << 20,
        },
    );
    plan.functions.len()
}

#[test]
fn changed_code_never_stops_us() {
    let mut random = Random(common::seed());
    let files: Vec<Vec<u8>> = FILES.iter().filter_map(|path| std::fs::read(path).ok()).collect();
    assert!(!files.is_empty(), "none of the files is there");
    let spots: Vec<_> = files
        .iter()
        .map(|file| hot_spots(&Image::parse(file.clone()).expect("a file of the system")))
        .collect();
    let seconds = std::env::var("FETTLE_FUZZ_SECONDS").ok().and_then(|text| text.parse().ok());
    let limit = Duration::from_secs(seconds.unwrap_or(1));
    let started = Instant::now();
    let (mut runs, mut functions) = (0, 0);
    while started.elapsed() < limit {
        let which = random.below(files.len());
        let mut file = files[which].clone();
        // The state before the change repeats this very file.
        let state = random.0;
        mutate(&mut file, &spots[which], &mut random);
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            Image::parse(file).map_or(0, |image| rewrite(&image, &mut random))
        }));
        runs += 1;
        match result {
            Ok(n) => functions += n,
            Err(_) => panic!("stopped at run {runs}, {}, FETTLE_SEED={state}", FILES[which]),
        }
    }
    println!("{runs} files, {functions} functions");
    assert!(functions > 0);
}
