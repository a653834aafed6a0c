//! A MIPS program: whatever the file says, its translation ends with classes or an error. The sister in
//! `cargo test` is `crates/port/jar/tests/fuzz_one_second.rs`.
#![no_main]

use fettle_jar::{Image, translate};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Ok(image) = Image::parse(data) {
        let _ = translate(&image);
    }
});
