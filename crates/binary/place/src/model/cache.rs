//! A set-associative cache with least-recently-used replacement.

/// The shape of a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Geometry {
    /// Bytes in all.
    pub size: u64,
    /// Lines that one set holds.
    pub ways: usize,
    /// Bytes of a line.
    pub line: u64,
}

impl Geometry {
    /// 32 KiB, 8 ways, lines of 64 bytes: the first-level instruction cache of most x86-64
    /// processors.
    pub const L1I: Geometry = Geometry { size: 32 << 10, ways: 8, line: 64 };

    /// How many sets there are.
    pub fn sets(&self) -> u64 {
        (self.size / self.line / self.ways as u64).max(1)
    }
}

/// A cache of lines, by their numbers.
#[derive(Clone, Debug)]
pub struct Cache {
    /// For each set its lines, the one used last first.
    lines: Vec<u64>,
    ways: usize,
    sets: u64,
}

const EMPTY: u64 = u64::MAX;

impl Cache {
    /// An empty cache.
    pub fn new(geometry: Geometry) -> Cache {
        let (sets, ways) = (geometry.sets(), geometry.ways.max(1));
        Cache { lines: vec![EMPTY; sets as usize * ways], ways, sets }
    }

    /// Fetches a line; whether it was in the cache.
    pub fn fetch(&mut self, line: u64) -> bool {
        let start = (line % self.sets) as usize * self.ways;
        let set = &mut self.lines[start..start + self.ways];
        let found = set.iter().position(|l| *l == line);
        set[..=found.unwrap_or(self.ways - 1)].rotate_right(1);
        set[0] = line;
        found.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gives_up_the_least_recently_used() {
        let mut cache = Cache::new(Geometry { size: 256, ways: 2, line: 64 });
        // Two sets: even lines share one.
        let mut hits = |lines: &[u64]| lines.iter().map(|l| cache.fetch(*l)).collect::<Vec<_>>();
        assert_eq!(hits(&[0, 2, 1, 0, 4, 0, 2]), [false, false, false, true, false, true, false]);
        assert_eq!(hits(&[1, 4]), [true, false]);
    }

    #[test]
    fn as_a_list_of_all_lines_would_have_it() {
        let geometry = Geometry { size: 1 << 12, ways: 4, line: 64 };
        let mut cache = Cache::new(geometry);
        let mut last: Vec<u64> = Vec::new();
        let mut random = 12345u64;
        for _ in 0..20_000 {
            random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let line = (random >> 40) % 150;
            let set = |l: &u64| l % geometry.sets() == line % geometry.sets();
            let newest: Vec<u64> = last.iter().rev().copied().filter(set).take(4).collect();
            assert_eq!(cache.fetch(line), newest.contains(&line));
            last.retain(|l| *l != line);
            last.push(line);
        }
    }
}
