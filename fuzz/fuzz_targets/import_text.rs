//! Lines of strace, perf and ftrace, and spans as JSON and as consoles print them, from bytes. The sister in `cargo test` is
//! `crates/data/import/tests/fuzz_one_second.rs`.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| fettle_import::read_text(data));
