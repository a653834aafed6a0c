//! Random numbers that can be repeated.
#![allow(dead_code)]

/// Marsaglia's xorshift64*.
pub struct Random(pub u64);

impl Random {
    /// A number below `n`.
    pub fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % n.max(1)
    }

    /// One of `all`.
    pub fn one<'a, T>(&mut self, all: &'a [T]) -> Option<&'a T> {
        (!all.is_empty()).then(|| &all[self.below(all.len())])
    }
}

/// The seed of this run; `FETTLE_SEED` repeats one.
pub fn seed() -> u64 {
    let clock = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(1, |d| d.as_nanos() as u64);
    let seed = std::env::var("FETTLE_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(clock);
    println!("FETTLE_SEED={seed}");
    seed.max(1)
}
