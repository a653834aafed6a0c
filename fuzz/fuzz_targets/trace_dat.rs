//! A `trace.dat` of trace-cmd from bytes: all of its records, or what is wrong. The sister in
//! `cargo test` is `crates/data/import/tests/fuzz_one_second.rs`.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| drop(fettle_import::tracedat::count(data)));
