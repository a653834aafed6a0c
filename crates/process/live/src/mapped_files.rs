//! Whether an address still has what was patched there: the identity of mapped files.
//!
//! A closed library takes its code with it, and something else may be mapped at the same addresses afterwards,
//! perhaps with the same bytes. So a patch site is identified by the file that is mapped there. The loader's
//! record of a library lies on the heap; it is identified by being in the loader's list.

use std::collections::HashSet;

use crate::entry::{Entry, Patch, Place, Record};
use crate::journal::Journal;
use crate::maps::{Extent, FileId, LiveAddr};
use crate::process::Process;

impl Record {
    fn contains(&self, at: LiveAddr) -> bool {
        self.at <= at && at.0 < self.at.0 + RECORD_SIZE
    }
}

/// The size of a record, as far as it is compared.
const RECORD_SIZE: u64 = 0x500;
/// Longer lists are taken for broken ones.
const LONGEST: usize = 4096;

/// The mappings that patch sites are in, as they were when the patches were planned.
#[derive(Clone, Debug, Default)]
pub struct MappedFiles {
    places: Vec<Place>,
    records: Vec<Record>,
}

impl Place {
    fn of(extent: &Extent) -> Option<Place> {
        let Extent { start, end, offset, device, inode } = *extent;
        (inode != 0).then_some(Place { start, end, offset, device, inode })
    }

    fn contains(&self, at: LiveAddr) -> bool {
        self.start <= at && at < self.end
    }

    /// Whether this mapping has the same part of the same file at the same addresses.
    fn is_in(&self, extent: &Extent) -> bool {
        let begins = |start: LiveAddr, offset: u64| start.0.wrapping_sub(offset);
        (self.device, self.inode) == (extent.device, extent.inode)
            && begins(self.start, self.offset) == begins(extent.start, extent.offset)
    }
}

impl MappedFiles {
    /// The files that patch sites are in now.
    pub fn look(process: &Process, patches: &[Patch]) -> MappedFiles {
        let mut places: Vec<Place> = Vec::new();
        let mut near: Option<Extent> = None;
        for patch in patches {
            if near.is_some_and(|extent| extent.contains(patch.at)) {
                continue;
            }
            near = process.extent(patch.at);
            places.extend(near.as_ref().and_then(Place::of).filter(|new| !places.contains(new)));
        }
        MappedFiles { places, records: Vec::new() }
    }

    /// The files that a journal records.
    pub(crate) fn of(journal: &Journal) -> MappedFiles {
        let mut places = MappedFiles::default();
        journal.entries().iter().for_each(|entry| places.add(entry));
        places
    }

    /// Adds what an entry records.
    fn add(&mut self, entry: &Entry) {
        match entry {
            Entry::Place(place) => self.places.push(*place),
            Entry::Record(record) => self.records.push(*record),
            _ => {}
        }
    }

    /// The patches that were written to a process, the newest first, without those that are
    /// certainly gone: something else was written to the same address later, since a library was
    /// closed and another opened there.
    pub(crate) fn writes_of(journal: &Journal) -> Vec<&Patch> {
        let (last, mut then, mut writes) =
            (MappedFiles::of(journal), MappedFiles::default(), Vec::new());
        let mut seen = HashSet::new();
        for entry in journal.entries() {
            then.add(entry);
            if let Entry::Write(patch) = entry
                && then.lies_in(patch.at) == last.lies_in(patch.at)
            {
                writes.push(patch);
            }
        }
        writes.reverse();
        // The same library may have been opened again, too.
        writes.retain(|patch| seen.insert((patch.at, &patch.before)));
        writes
    }

    /// What an address is in, by the newest entries: where its file would begin, or which of the
    /// loader's records at that place it is.
    fn lies_in(&self, at: LiveAddr) -> (Option<(u64, FileId)>, usize) {
        let place = self.places.iter().rev().find(|place| place.contains(at));
        let begin = |p: &Place| (p.start.0.wrapping_sub(p.offset), (p.device, p.inode));
        let records = self.records.iter().filter(|record| record.contains(at));
        (place.map(begin), records.count())
    }

    /// Entries for a journal.
    pub fn entries(&self) -> impl Iterator<Item = Entry> {
        self.places.iter().map(|place| Entry::Place(*place))
    }

    /// Whether an address still is in the same file or record.
    pub(crate) fn is_same(&self, process: &Process, at: LiveAddr) -> bool {
        if let Some(place) = self.places.iter().rev().find(|place| place.contains(at)) {
            return process.extent(at).is_some_and(|now| place.is_in(&now));
        }
        let record = self.records.iter().rev().find(|record| record.contains(at));
        record.is_none_or(|record| is_listed(process, record))
    }
}

/// Whether the loader's list has a record.
fn is_listed(process: &Process, record: &Record) -> bool {
    let word = |at: u64| -> Option<u64> {
        let bytes = process.read(LiveAddr(at), 8).ok()?;
        Some(u64::from_le_bytes(bytes.try_into().ok()?))
    };
    // struct r_debug: version, list. struct link_map: difference, name, dynamic section, next.
    let mut at = word(record.list.0 + 8).unwrap_or(0);
    for _ in 0..LONGEST {
        if at == 0 {
            break;
        }
        if at == record.at.0 {
            return word(at + 16) == Some(record.dynamic.0);
        }
        at = word(at.wrapping_add(24)).unwrap_or(0);
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_its_file() {
        let process = LiveAddr(a_place_is_its_file as *const () as u64);
        let extents = crate::maps::Extents::open(fettle_types::Pid::own()).unwrap();
        let extent = extents.of(process).unwrap();
        let place = Place::of(&extent).unwrap();
        assert!(place.is_in(&extent) && place.contains(process));
        // A part of it is still the same file; another file, or another part, is not.
        let later = LiveAddr(extent.start.0 + 4096);
        let part = Extent { start: later, offset: extent.offset + 4096, ..extent };
        assert!(place.is_in(&part));
        assert!(!place.is_in(&Extent { start: later, ..extent }));
        assert!(!place.is_in(&Extent { inode: extent.inode + 1, ..extent }));
        let stack = 0u8;
        let stack = extents.of(LiveAddr(&raw const stack as u64)).unwrap();
        assert_eq!(Place::of(&stack), None);
    }
}
