//! Which compilation unit of the debug information covers an address.

use std::sync::Arc;

use gimli::{DebugInfoOffset, EndianSlice, LittleEndian};

/// Bytes of a DWARF section.
pub(crate) type Slice<'a> = EndianSlice<'a, LittleEndian>;

/// Where units start and which code they cover.
#[derive(Clone, Debug, Default)]
pub(crate) struct UnitIndex {
    /// Offset of every unit in `.debug_info`, ascending.
    pub starts: Arc<[usize]>,
    /// Code ranges with their unit, sorted by start.
    ranges: Arc<[(u64, u64, usize)]>,
}

impl UnitIndex {
    pub(crate) fn build(dwarf: &gimli::Dwarf<Slice<'_>>) -> UnitIndex {
        let mut starts = Vec::new();
        let mut ranges = Vec::new();
        let mut headers = dwarf.units();
        while let Ok(Some(header)) = headers.next() {
            let Some(DebugInfoOffset(at)) = header.debug_info_offset() else { continue };
            starts.push(at);
            let Ok(unit) = dwarf.unit(header) else { continue };
            let Ok(mut unit_ranges) = dwarf.unit_ranges(&unit) else { continue };
            while let Ok(Some(range)) = unit_ranges.next() {
                if range.begin < range.end {
                    ranges.push((range.begin, range.end, at));
                }
            }
        }
        ranges.sort_unstable();
        UnitIndex { starts: starts.into(), ranges: ranges.into() }
    }

    /// Units that cover `addr`, by their offset; nearly always one.
    pub(crate) fn at(&self, addr: u64) -> impl Iterator<Item = usize> {
        let after = self.ranges.partition_point(|range| range.0 <= addr);
        // Units hardly ever overlap: a few steps back find all that cover the address.
        let near = self.ranges.get(..after).into_iter().flatten().rev().take(8);
        near.filter(move |range| addr < range.1).map(|range| range.2)
    }
}

/// Reads the unit at an offset in `.debug_info`.
pub(crate) fn load<'a>(
    dwarf: &gimli::Dwarf<Slice<'a>>,
    at: usize,
) -> Option<gimli::Unit<Slice<'a>>> {
    dwarf.unit(dwarf.unit_header(DebugInfoOffset(at)).ok()?).ok()
}
