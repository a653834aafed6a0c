//! Two traces as the bytes say, damaged as they say, and merged. The sister in `cargo test` is
//! `crates/data/merge/tests/hostile_one_second.rs`.
#![no_main]

#[path = "../../crates/data/merge/tests/bed/mod.rs"]
mod bed;
#[path = "../../crates/data/merge/tests/hostile/mod.rs"]
mod hostile;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let folder = std::env::temp_dir().join(format!("fettle-fuzz-merge-{}", std::process::id()));
    hostile::merge_what_they_say(&folder, data);
});
