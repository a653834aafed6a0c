//! HotSpot: virtual threads, many of which share a thread of the kernel's (a carrier).
//!
//! `libjvm.so` says for debuggers where its structures have what (`gHotSpotVMStructs`, which the serviceability
//! agent reads): a table of types, fields and offsets, and addresses of static fields. By that, the list of
//! the JVM's threads is read from the process, and each thread's `JavaThread`. It is also a thread-specific
//! value of pthreads: the key is the one under which the first thread of the list has its own. From JDK 24 on
//! a `JavaThread` has the number of the thread that owns monitors there, which is the virtual thread's as long as a
//! continuation is mounted. These are plain words: no collector moves them.

use fettle_image::Image;
use fettle_types::Pid;

use super::layout::{Found, Layout, Runtime};
use super::memory::Memory;
use super::modules::{Files, Module, symbol};
use super::pthread::{self, FIRST_KEYS};

/// Symbols that say where the table is, how long its entries are, and where in one are: the names of type and
/// field, offset and address.
const SYMBOLS: [&str; 6] = [
    "gHotSpotVMStructs",
    "gHotSpotVMStructEntryArrayStride",
    "gHotSpotVMStructEntryTypeNameOffset",
    "gHotSpotVMStructEntryFieldNameOffset",
    "gHotSpotVMStructEntryOffsetOffset",
    "gHotSpotVMStructEntryAddressOffset",
];

/// No JVM has more entries: 25 has 585.
const ENTRIES_MAX: u64 = 4096;
const ENTRY_MAX: u64 = 256;

/// What is asked of the table: types and fields.
const FIELDS: [(&str, &str); 6] = [
    ("ThreadsSMRSupport", "_java_thread_list"),
    ("ThreadsList", "_threads"),
    ("Thread", "_osthread"),
    ("OSThread", "_pthread_id"),
    ("JavaThread", "_monitor_owner_id"),
    ("JavaThread", "_cont_entry"),
];

/// What a file of a JVM's, or of the C library, says.
#[derive(Clone, Debug, Default)]
struct Library {
    /// [`SYMBOLS`], from where the file's beginning is mapped on.
    table: Option<[u64; 6]>,
    /// The C library's: where a thread's structure leads to its values.
    specific: Option<u64>,
}

/// What files say, which are read once each.
#[derive(Debug, Default)]
pub(super) struct Java {
    files: Files<Library>,
}

impl Java {
    /// The runtime of a running process that has these files mapped.
    pub fn identify(&mut self, pid: Pid, modules: &[Module]) -> Found {
        let Some(jvm) = modules.iter().find(|module| module.name == "libjvm.so") else {
            // The launcher opens it some milliseconds later.
            let is_launcher = modules.iter().any(|module| module.name == "java");
            return if is_launcher { Found::NotYet } else { Found::Nothing };
        };
        let table = self.files.library(jvm, read).and_then(|library| library.table);
        let specific =
            modules.iter().filter(|module| pthread::is_library(&module.name)).find_map(|module| {
                self.files.library(module, read).and_then(|library| library.specific)
            });
        let (Some(table), Some(specific)) = (table, specific) else { return Found::Nothing };
        let Some(memory) = Memory::of(pid) else { return Found::Nothing };
        let process = Process { memory };
        // The table itself is filled in when the library is loaded.
        let Some(fields) = process.fields(jvm.start, table) else { return Found::NotYet };
        let Some(fields) = complete(fields) else { return Found::Nothing };
        let Some((thread, base)) = process.first_thread(&fields) else { return Found::NotYet };
        let key = (0..FIRST_KEYS).find(|key| {
            let slot = base.wrapping_add_signed(pthread::slot(specific, *key));
            process.memory.word(slot) == Some(thread)
        });
        let Some(key) = key else { return Found::Nothing };
        let [.., number, mounted] = fields;
        let slot = pthread::slot(specific, key);
        let layout = Layout { slot, number, mounted, ..Layout::default() };
        Found::Known { runtime: Runtime { layout, places: Vec::new() }, is_whole: true }
    }
}

fn read(image: &Image, _: &Module) -> Option<Library> {
    let first = image.segments().iter().find(|segment| segment.file_offset == 0)?.start;
    let at = |name| symbol(image, name)?.checked_offset_from(first);
    let mut table = [0; SYMBOLS.len()];
    let is_there =
        table.iter_mut().zip(SYMBOLS).all(|(word, name)| at(name).map(|at| *word = at).is_some());
    Some(Library { table: is_there.then_some(table), specific: pthread::specific(image) })
}

/// What each field of [`FIELDS`] stands for, if the JVM has them all.
fn complete(fields: [Option<u64>; FIELDS.len()]) -> Option<[u64; FIELDS.len()]> {
    let mut words = [0; FIELDS.len()];
    for (word, field) in words.iter_mut().zip(fields) {
        *word = field?;
    }
    Some(words)
}

/// A process that has a JVM.
struct Process {
    memory: Memory,
}

impl Process {
    /// Offsets of [`FIELDS`], and addresses of those that are static.
    fn fields(&self, start: u64, table: [u64; 6]) -> Option<[Option<u64>; FIELDS.len()]> {
        let mut words = [0; SYMBOLS.len()];
        for (word, at) in words.iter_mut().zip(table) {
            *word = self.memory.word(start.checked_add(at)?)?;
        }
        let [first, bytes, type_at, name_at, offset_at, address_at] = words;
        if first == 0 || bytes == 0 || bytes > ENTRY_MAX {
            return None;
        }
        let mut found = [None; FIELDS.len()];
        for entry in (0..ENTRIES_MAX).map_while(|n| first.checked_add(n * bytes)) {
            let word = |at: u64| self.memory.word(entry.checked_add(at)?);
            let of = word(type_at)?;
            if of == 0 {
                return Some(found);
            }
            let name = word(name_at)?;
            for (found, (of_what, what)) in found.iter_mut().zip(FIELDS) {
                if self.memory.is_text(name, what) && self.memory.is_text(of, of_what) {
                    let address = word(address_at)?;
                    *found = Some(if address == 0 { word(offset_at)? } else { address });
                }
            }
        }
        None
    }

    /// The first thread of the JVM's list, and its `fs` base, which is how pthreads knows it.
    fn first_thread(&self, fields: &[u64; FIELDS.len()]) -> Option<(u64, u64)> {
        let [list, threads, of_system, of_library, ..] = *fields;
        let list = self.memory.word(list)?;
        let threads = self.memory.word(list.checked_add(threads)?)?;
        let thread = self.memory.word(threads)?;
        let of_system = self.memory.word(thread.checked_add(of_system)?)?;
        let base = self.memory.word(of_system.checked_add(of_library)?)?;
        (base != 0).then_some((thread, base))
    }
}

#[cfg(test)]
mod tests {
    use super::super::modules::modules;
    use super::*;
    use std::fs;
    use std::process::{Command, Stdio};

    fn identify(pid: Pid) -> Found {
        Java::default().identify(pid, &modules(pid))
    }

    #[test]
    fn a_process_without_a_jvm_has_none() {
        assert_eq!(identify(Pid::own()), Found::Nothing);
    }

    #[test]
    fn a_table_without_an_end_is_none() {
        let process = Process { memory: Memory::of(Pid::own()).unwrap() };
        // Every entry is this word's neighbourhood, which never ends with a null.
        let words: Vec<u64> = vec![words_of_itself(); 1];
        let at = words.as_ptr() as u64;
        assert_eq!(process.fields(at, [0; 6]), None);
    }

    /// Longer than any entry.
    fn words_of_itself() -> u64 {
        ENTRY_MAX + 1
    }

    /// A real JVM: known from 24 on; of older ones the words are not there.
    #[test]
    fn a_jvm_that_runs_is_found_if_it_is_new_enough() {
        let Some(java) = newest_java() else {
            eprintln!("skipped: there is no JDK of version 24 or newer");
            return;
        };
        let program = "class Wait { public static void main(String[] a) throws Exception {\
                       System.out.println(1); System.in.read(); } }";
        let folder = std::env::temp_dir().join(format!("fettle-jvm-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let source = folder.join("Wait.java");
        fs::write(&source, program).unwrap();
        let mut jvm = Command::new(java);
        jvm.arg("-Xmx64m").arg(&source).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = jvm.spawn().unwrap();
        let mut line = [0; 2];
        std::io::Read::read_exact(&mut child.stdout.take().unwrap(), &mut line).unwrap();
        let found = identify(Pid::of_child(&child));
        drop(child.stdin.take());
        child.wait().unwrap();
        fs::remove_dir_all(&folder).unwrap();
        let Found::Known { runtime, is_whole: true } = found else { panic!("{found:?}") };
        assert_ne!(runtime.layout.number, 0);
        assert_ne!(runtime.layout.mounted, 0);
    }

    fn newest_java() -> Option<std::path::PathBuf> {
        let folders = fs::read_dir("/usr/lib/jvm").ok()?;
        folders.flatten().map(|folder| folder.path()).find_map(|home| {
            let release = fs::read_to_string(home.join("release")).ok()?;
            let rest = release.split("JAVA_VERSION=\"").nth(1)?;
            let major = rest.split(|c: char| !c.is_ascii_digit()).next()?;
            let is_new = major.parse::<u32>().is_ok_and(|major| major >= 24);
            is_new.then(|| home.join("bin/java"))
        })
    }
}
