//! Rules of `fettle watch` from bytes: they are read or refused with messages that can be shown. The sister
//! in `cargo test` is `crates/tune/watch/tests/fuzz_one_second.rs`.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let text = String::from_utf8_lossy(data);
    if let Err(report) = fettle_watch::parse::parse("fuzz", &text) {
        assert!(!report.to_string().is_empty());
    }
    fettle_watch::recording::read(data).for_each(drop);
});
