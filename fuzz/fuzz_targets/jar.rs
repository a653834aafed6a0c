//! A MIPS program: whatever the file says, its translation ends with classes or an error. The sister in
//! `cargo test` is `crates/port/jar/tests/fuzz_one_second.rs`.
#![no_main]

use fettle_jar::{Image, Interface, Options, translate};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Ok(image) = Image::parse(data) {
        // Its prototypes are read as well.
        let interface = Some(Interface { name: "Jumps".into(), outputs: Vec::new() });
        let options = Options { exports: vec!["jumps".into()], interface, ..Options::default() };
        let _ = translate(&image, &Options::default());
        let _ = translate(&image, &options);
    }
});
