//! Makes the names of rewritten text visible to debuggers.
//!
//! Debuggers find libraries by the loader's list. Since version 2.35 of the C library that leads on
//! to one list for each further namespace (`dlmopen`), and gdb 13 and newer look at all of them. So
//! a process with rewritten text gets one more list, of a single library: the file with names and
//! unwind entries. The loader itself follows the lists only to append another one behind the last,
//! which may be ours.
//!
//! When ours is removed, others may have been appended behind it; or it may be gone already, since
//! a list that the loader was just appending took its place. So it is looked for, and its
//! neighbours are linked to one another: the links from before cannot be used.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use fettle_types::Pid;

use crate::entry::{Entry, Names, Region};
use crate::error::LiveError;
use crate::journal::Journal;
use crate::maps::{LiveAddr, PAGE, Prot};
use crate::memory::Memory;
use crate::pause::Paused;
use crate::process::Process;

// struct r_debug_extended: version, libraries, function that is called for debuggers, state, base of
// the loader, next list.
const LIBRARIES: usize = 8;
const FUNCTION: usize = 16;
const NEXT: usize = 40;
/// Behind it its library, a struct link_map: what is added to addresses, name, dynamic section, next,
/// previous.
const LIBRARY: usize = 48;
/// And behind that the name.
const NAME: usize = LIBRARY + 40;
/// The version of a list that has a successor.
const WITH_NEXT: u32 = 2;
/// There are 16 namespaces.
const MOST: usize = 64;

impl Names {
    /// A list at `at` that leads to `file`, and its bytes; `None` if the loader's first `list`
    /// cannot lead to others, or if debuggers would not find the file: they look for it where the
    /// process would.
    pub fn new(
        process: &Process,
        (list, at): (LiveAddr, LiveAddr),
        file: &Path,
    ) -> Option<(Names, Vec<u8>)> {
        lists(process, list)?;
        let name = name_of(file).filter(|_| process.has_our_mounts())?;
        let mut bytes = vec![0; NAME];
        let mut put = |at: usize, word: u64| bytes[at..at + 8].copy_from_slice(&word.to_le_bytes());
        // Older debuggers know another successor, and take ours for a library without a name: its
        // base would be that of the loader's `r_debug` entry before. The first list gives it.
        put(0, WITH_NEXT.into());
        put(LIBRARIES, at.0 + LIBRARY as u64);
        put(FUNCTION, word(process, list.offset(FUNCTION as u64))?);
        put(LIBRARY + 8, at.0 + NAME as u64);
        bytes.extend(name);
        Some((Names { list, at }, bytes))
    }

    /// The memory that it needs.
    pub fn region(at: LiveAddr) -> Region {
        let prot = Prot { read: true, write: true, exec: false };
        Region { at, len: PAGE, prot, shared: false }
    }

    /// Those that a journal records.
    pub(crate) fn of(journal: &Journal) -> impl Iterator<Item = Names> {
        journal.entries().iter().filter_map(|entry| match entry {
            Entry::Names(names) => Some(*names),
            _ => None,
        })
    }

    /// Whether a process has it, linked or not, by the content of its memory.
    pub(crate) fn is_in(&self, pid: Pid) -> bool {
        let library = self.at.0 + LIBRARY as u64;
        let leads = |memory: Memory| memory.read(self.at.offset(LIBRARIES as u64), 8);
        Memory::open(pid).is_ok_and(|m| leads(m).is_ok_and(|word| word == library.to_le_bytes()))
    }

    /// Makes it name another file, in a process that has it.
    pub(crate) fn lead_to(&self, pid: Pid, file: &Path) {
        if let (Some(name), Ok(memory)) = (name_of(file), Memory::open(pid)) {
            // Only debuggers read it.
            let _ = memory.write_running(self.at.offset(NAME as u64), &name);
        }
    }
}

impl Paused<'_> {
    /// Appends it behind the last list.
    pub(crate) fn show(&self, names: Names) -> Result<(), LiveError> {
        let Some(lists) = lists(self.process, names.list) else { return Ok(()) };
        let Some(last) = lists.last().filter(|_| !lists.contains(&names.at)) else { return Ok(()) };
        let memory = &self.process.memory;
        memory.write(last.offset(NEXT as u64), &names.at.0.to_le_bytes())?;
        memory.write(names.list, &WITH_NEXT.to_le_bytes())
    }

    /// Unlinks it, if it is there.
    pub(crate) fn hide(&self, names: Names) -> Result<(), LiveError> {
        let Some(lists) = lists(self.process, names.list) else { return Ok(()) };
        let memory = &self.process.memory;
        let next = |list: LiveAddr| list.offset(NEXT as u64);
        if let Some(i) = lists.iter().position(|list| *list == names.at).filter(|i| *i > 0) {
            let behind = self.process.read(next(names.at), 8)?;
            memory.write(next(lists[i - 1]), &behind)?;
        }
        // The loader's lists have no successor until there is a second one, and from then on always.
        let alone = word(self.process, next(names.list)) == Some(0);
        if alone && version(self.process, names.list) == Some(WITH_NEXT) {
            memory.write(names.list, &1u32.to_le_bytes())?;
        }
        Ok(())
    }
}

/// The path of a file as it is stored in memory, if there is room for it.
fn name_of(file: &Path) -> Option<Vec<u8>> {
    let name = [file.as_os_str().as_bytes(), &[0]].concat();
    (file.is_absolute() && NAME + name.len() <= PAGE as usize).then_some(name)
}

/// All lists, from the first on; `None` if they are of a version without successors.
fn lists(process: &Process, first: LiveAddr) -> Option<Vec<LiveAddr>> {
    if !matches!(version(process, first)?, 1 | WITH_NEXT) {
        return None;
    }
    let mut all = vec![first];
    loop {
        match word(process, all.last()?.offset(NEXT as u64))? {
            0 => return Some(all),
            next => all.push(LiveAddr(next)),
        }
        if all.len() > MOST {
            return None;
        }
    }
}

fn version(process: &Process, list: LiveAddr) -> Option<u32> {
    let bytes = process.read(list, 4).ok()?;
    Some(u32::from_le_bytes(bytes.try_into().ok()?))
}

fn word(process: &Process, at: LiveAddr) -> Option<u64> {
    let bytes = process.read(at, 8).ok()?;
    Some(u64::from_le_bytes(bytes.try_into().ok()?))
}
