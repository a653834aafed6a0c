//! Source text in each language. The sister in `cargo test` is
//! `crates/source/census/tests/fuzz_one_second.rs`.
#![no_main]

use std::sync::LazyLock;

use fettle_census::file::census;
use fettle_census::kinds::Kinds;
use fettle_census::lines::compare;
use fettle_census::names::Names;
use fettle_census::token::Language;
use libfuzzer_sys::fuzz_target;

static KINDS: LazyLock<Kinds> =
    LazyLock::new(|| Kinds::usual().expect("the built-in sets are right"));

fuzz_target!(|data: &[u8]| {
    let (mut with, mut without) = (Names::default(), Names::default());
    with.define("A");
    without.undefine("A");
    without.closed = true;
    for language in [Language::C, Language::Cpp, Language::Assembler, Language::Rust] {
        census(data, language, &KINDS, &with);
        compare(data, language, &without, &with);
    }
});
