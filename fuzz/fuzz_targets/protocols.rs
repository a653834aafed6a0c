//! A conversation from bytes: each piece has a head of three bytes, for its side, its length, and how
//! much of it is missing. The sister in `cargo test` is `crates/data/protocols/tests/fuzz_one_second.rs`.
#![no_main]

use fettle_protocols::{Connections, Side};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let mut connections = Connections::new();
    let mut rest = data;
    while let [side, length, missing, behind @ ..] = rest {
        let (known, more) = behind.split_at(behind.len().min(usize::from(*length) * 4));
        rest = more;
        let side = if side & 1 == 0 { Side::Received } else { Side::Sent };
        let missing = u64::from(missing.saturating_sub(128)) * 64;
        connections.transfer(1, side, known, known.len() as u64 + missing, &mut |message| {
            drop(format!("{message:?}"));
        });
    }
});
