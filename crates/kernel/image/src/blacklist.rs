//! Functions that must not be probed: what `kprobes/blacklist` lists.

use std::ops::Range;

/// Ranges of text that are left unmodified: code that runs where the kernel's own state is not whole yet,
/// or that handles probes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Blacklist(Vec<Range<u64>>);

impl Blacklist {
    /// Parses lines such as `0xffffffff81000000-0xffffffff81000040  name`. Others are left out.
    pub fn parse(text: &str) -> Blacklist {
        Blacklist::of(text.lines().filter_map(range).collect())
    }

    /// The same with more ranges.
    pub(crate) fn with(self, more: impl IntoIterator<Item = Range<u64>>) -> Blacklist {
        Blacklist::of(self.0.into_iter().chain(more).collect())
    }

    fn of(mut ranges: Vec<Range<u64>>) -> Blacklist {
        ranges.sort_by_key(|range| (range.start, range.end));
        // One that lies within another would hide it from a search.
        let mut merged: Vec<Range<u64>> = Vec::with_capacity(ranges.len());
        for range in ranges {
            match merged.last_mut() {
                Some(last) if range.start < last.end => last.end = last.end.max(range.end),
                _ => merged.push(range),
            }
        }
        Blacklist(merged)
    }

    /// Whether `address` lies in one of the ranges.
    pub fn contains(&self, address: u64) -> bool {
        let behind = self.0.partition_point(|range| range.start <= address);
        behind.checked_sub(1).is_some_and(|i| self.0[i].contains(&address))
    }

    /// The ranges, in order, none overlapping another.
    pub fn ranges(&self) -> &[Range<u64>] {
        &self.0
    }
}

fn range(line: &str) -> Option<Range<u64>> {
    let word = line.split_ascii_whitespace().next()?;
    let (start, end) = word.split_once('-')?;
    let number = |text: &str| u64::from_str_radix(text.strip_prefix("0x")?, 16).ok();
    let range = number(start)?..number(end)?;
    (range.start < range.end).then_some(range)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_in_ranges_are_found() {
        let list = Blacklist::parse(
            "0x100-0x400\tsection\n0x120-0x140\tone\n0x500-0x4ff\tbad\n0x600-0x610\ttwo\nrubbish\n",
        );
        assert_eq!(list.ranges(), [0x100..0x400, 0x600..0x610]);
        assert!(list.contains(0x300) && list.contains(0x600));
        assert!(!list.contains(0x400) && !list.contains(0x4ff) && !list.contains(0x610));
    }
}
