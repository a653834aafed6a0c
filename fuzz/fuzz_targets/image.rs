//! Any bytes whatever give an image or an error.
#![no_main]

use std::path::Path;

use fettle_demangle::demangle;
use fettle_image::{Image, LinkAddr, debug_file_candidates};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Ok(text) = std::str::from_utf8(data) {
        demangle(text);
    }
    let Ok(image) = Image::parse(data.to_vec()) else { return };
    let functions = image.functions();
    assert!(functions.windows(2).all(|pair| pair[0].end <= pair[1].start));
    assert!(image.fdes().windows(2).all(|pair| pair[0].end <= pair[1].start));
    let lines = image.lines();
    for function in functions.iter().take(20) {
        image.name_at(function.start);
        image.signature(function.start);
        lines.line(function.start);
    }
    for addr in [0, 0x1000, 0x40_1000, u64::MAX].map(LinkAddr) {
        image.is_code(addr);
        image.read(addr, 16);
        image.signature(addr);
        lines.line(addr);
    }
    image.language();
    image.gnu_debugdata();
    debug_file_candidates(Path::new("/usr/bin/program"), &image);
    // The same bytes also as the debug file of themselves.
    let debug = image.clone();
    image.with_debug(&debug).functions();
});
