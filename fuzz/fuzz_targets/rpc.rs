//! Requests of protoc and responses of generators from bytes. The sister in `cargo test` is
//! `crates/record/rpc/tests/requests.rs`.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| fettle_rpc::read_request(data));
