//! Ranges of addresses.

/// Ranges of addresses, in order and apart.
#[derive(Clone, Debug, Default)]
pub struct Ranges(Vec<(u64, u64)>);

impl Ranges {
    /// These; ends are not included.
    pub fn new(mut ranges: Vec<(u64, u64)>) -> Ranges {
        ranges.retain(|(start, end)| start < end);
        ranges.sort_unstable();
        Ranges(ranges)
    }

    /// These, and places that lie outside of them.
    pub(crate) fn with(self, places: impl Iterator<Item = u64>) -> Ranges {
        let outside: Vec<u64> = places.filter(|at| !self.contains(*at)).collect();
        Ranges::new(self.0.into_iter().chain(outside.into_iter().map(|at| (at, at + 1))).collect())
    }

    /// Whether the address lies in one of them.
    pub fn contains(&self, address: u64) -> bool {
        let next = self.0.partition_point(|(start, _)| *start <= address);
        next > 0 && address < self.0[next - 1].1
    }

    /// From the first to behind the last.
    pub(crate) fn hull(&self) -> (u64, u64) {
        (self.0.first().map_or(0, |r| r.0), self.0.iter().map(|r| r.1).max().unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_in_ranges() {
        let ranges = Ranges::new(vec![(30, 40), (10, 20), (5, 5)]);
        let inside: Vec<u64> = (0..50).filter(|n| ranges.contains(*n)).collect();
        assert_eq!(inside, (10..20).chain(30..40).collect::<Vec<_>>());
        assert_eq!(ranges.hull(), (10, 40));
        assert!(!Ranges::default().contains(0));
    }
}
