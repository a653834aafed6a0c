//! Metadata and a stream of the Common Trace Format: whatever they say, reading ends. The first two
//! bytes tell where the metadata ends. The sister in `cargo test` is
//! `crates/data/import/tests/fuzz_one_second.rs`.
#![no_main]

use std::path::Path;
use std::rc::Rc;

use fettle_import::ctf::{Trace, show};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((length, rest)) = data.split_first_chunk::<2>() else { return };
    let at = usize::from(u16::from_le_bytes(*length)).min(rest.len());
    let (metadata, stream) = rest.split_at(at);
    let Ok(trace) = Trace::of(metadata, Path::new("metadata")) else { return };
    let mut stream = Rc::new(trace).stream_of(stream.into(), Path::new("stream"));
    let mut scratch = String::new();
    for _ in 0..100_000 {
        let Ok(Some(event)) = stream.next() else { break };
        for (n, column) in event.plan.columns.iter().enumerate() {
            show(&event, column, n, &mut scratch);
        }
    }
});
