//! A schema from bytes: it compiles or is refused with messages that can be shown. The sister in
//! `cargo test` is `crates/analyse/requests/tests/fuzz_one_second.rs`.
#![no_main]

use fettle_requests::{Source, compile, shipped};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let text = String::from_utf8_lossy(data);
    match compile(&[Source::new("fuzz", text)], &shipped) {
        Ok(program) => drop(program.warnings().to_string()),
        Err(report) => assert!(!report.to_string().is_empty()),
    }
});
