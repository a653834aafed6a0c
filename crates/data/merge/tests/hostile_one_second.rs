//! For one second, merges traces that are made from random bytes and damaged. `FETTLE_SEED` repeats
//! a run. The target `merge` in `fuzz/fuzz_targets` does the same for longer.

mod bed;
mod hostile;

use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

#[test]
fn what_two_traces_say_does_not_matter() {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64;
    let seed = std::env::var("FETTLE_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(now);
    println!("FETTLE_SEED={seed}");
    let mut state = seed | 1;
    let mut random = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 16) as u8
    };
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    // Nothing but a message each way.
    let good = [1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    assert_eq!(hostile::merge_what_they_say(&run, &good), "merged");
    let mut outcomes: BTreeMap<&str, u32> = BTreeMap::new();
    let end = Instant::now() + Duration::from_secs(1);
    while Instant::now() < end {
        let bytes: Vec<u8> = (0..12 + usize::from(random())).map(|_| random()).collect();
        let outcome = hostile::merge_what_they_say(&run, &bytes);
        *outcomes.entry(outcome).or_default() += 1;
    }
    println!("{outcomes:?}");
}
