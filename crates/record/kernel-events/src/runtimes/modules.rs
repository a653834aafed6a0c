//! The files that a process has mapped, and where in them functions lie.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use fettle_image::{Image, LinkAddr, Segment};
use fettle_types::Pid;

use super::layout::FILE_MAX;

/// A file that a process has mapped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Module {
    /// Its name without folders.
    pub name: String,
    /// The file, as it is seen from outside of the process.
    pub path: PathBuf,
    /// Where its beginning is mapped.
    pub start: u64,
}

/// What files say that processes have mapped. Each is read once.
#[derive(Debug)]
pub(super) struct Files<L> {
    known: BTreeMap<(u64, u64), L>,
}

impl<L> Default for Files<L> {
    fn default() -> Self {
        Files { known: BTreeMap::new() }
    }
}

impl<L: Default> Files<L> {
    /// What `read` finds in a file; nothing where it is too large or finds nothing. `None` if the file is gone.
    pub fn library(
        &mut self,
        module: &Module,
        read: impl FnOnce(&Image, &Module) -> Option<L>,
    ) -> Option<&L> {
        let metadata = fs::metadata(&module.path).ok()?;
        let name = (metadata.dev(), metadata.ino());
        let library = self.known.entry(name).or_insert_with(|| {
            let bytes = (metadata.len() <= FILE_MAX).then(|| fs::read(&module.path).ok()).flatten();
            let image = bytes.and_then(|bytes| Image::parse(bytes).ok());
            image.and_then(|image| read(&image, module)).unwrap_or_default()
        });
        Some(library)
    }
}

/// The files that a process has mapped from their beginning; none if it is gone.
pub(super) fn modules(pid: Pid) -> Vec<Module> {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    maps.lines().filter_map(|line| module(pid, line)).collect()
}

/// `START-END PERMISSIONS OFFSET DEVICE INODE PATH`
fn module(pid: Pid, line: &str) -> Option<Module> {
    let mut rest = line;
    let mut next = || {
        let (word, after) = rest.split_once(' ')?;
        rest = after.trim_start_matches(' ');
        Some(word)
    };
    let (range, _, offset) = (next()?, next()?, next()?);
    next()?;
    next()?;
    let start = u64::from_str_radix(range.split_once('-')?.0, 16).ok()?;
    let path = rest.strip_prefix('/')?;
    let is_first = u64::from_str_radix(offset, 16) == Ok(0);
    let name = path.rsplit('/').next()?.to_owned();
    let path = PathBuf::from(format!("/proc/{pid}/root")).join(path);
    is_first.then_some(Module { name, path, start })
}

/// Where a symbol is.
pub(super) fn symbol(image: &Image, name: &str) -> Option<LinkAddr> {
    image.symbols().iter().find(|symbol| symbol.name == name).map(|symbol| symbol.addr)
}

/// Where an address is in the file.
pub(super) fn file_offset(image: &Image, address: LinkAddr) -> Option<u64> {
    let holds = |segment: &&Segment| {
        address.checked_offset_from(segment.start).is_some_and(|at| at < segment.file_size)
    };
    let segment = image.segments().iter().find(holds)?;
    Some(segment.file_offset + address.checked_offset_from(segment.start)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_maps_are_read() {
        let line = "7f00-8000 r--p 00000000 fe:00 77     /usr/lib/a b.so";
        let pid = Pid::try_from(3).unwrap();
        let found = module(pid, line).unwrap();
        assert_eq!((found.name.as_str(), found.start), ("a b.so", 0x7f00));
        assert_eq!(found.path, PathBuf::from("/proc/3/root").join("usr/lib/a b.so"));
        for other in ["", "7f00-8000 r--p 00001000 fe:00 77 /a", "7f00-8000 rw-p 0 0:0 0 [heap]"] {
            assert_eq!(module(pid, other), None, "{other}");
        }
    }
}
