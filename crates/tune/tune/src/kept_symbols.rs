//! Names of rewritten text for the time after its process: a core file has the text, and what was beside
//! the undo log is gone.
//!
//! A process is known by a hash of its auxiliary vector, which holds random bytes and which core files
//! have, too (`NT_AUXV`). Forked processes share it, as they share rewritten text.

use std::fs::{DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use object::elf::{FileHeader64, NT_AUXV, NT_PRPSINFO};
use object::read::elf::{FileHeader, ProgramHeader};
use object::{Endianness, elf};

/// So many are kept; the oldest go first.
const MOST: usize = 64;
/// Where the command line's beginning stands in `struct elf_prpsinfo` of x86-64, and how long it is.
const ARGUMENTS: std::ops::Range<usize> = 56..136;

/// Keeps the object file that has the names of rewritten text in the processes of an address space.
///
/// # Errors
///
/// Those of the folder. The process is none the worse for them.
pub fn keep(folder: &Path, space: u64, object: &[u8]) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let path = path_of(folder, space);
    let new = path.with_extension(format!("{}.new", std::process::id()));
    let mut file =
        OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
    file.write_all(object)?;
    std::fs::rename(&new, &path)?;
    forget_oldest(folder)
}

fn path_of(folder: &Path, space: u64) -> PathBuf {
    folder.join(format!("{space:016x}.so"))
}

fn forget_oldest(folder: &Path) -> io::Result<()> {
    let mut all: Vec<(SystemTime, PathBuf)> = std::fs::read_dir(folder)?
        .flatten()
        .filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry.path())))
        .collect();
    all.sort();
    let many = all.len().saturating_sub(MOST);
    all.drain(..many).try_for_each(|(_, path)| std::fs::remove_file(path))
}

/// What a core file says of its process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Core {
    /// Identifies the process.
    pub space: u64,
    /// How its command line begins.
    pub command: String,
}

impl Core {
    /// Reads a core file.
    ///
    /// # Errors
    ///
    /// As text, when it is none of x86-64.
    pub fn parse(bytes: &[u8]) -> Result<Core, String> {
        let no_core = "it is no core file of a 64-bit program";
        let header = FileHeader64::<Endianness>::parse(bytes).map_err(|_| no_core.to_owned())?;
        let endian = header.endian().map_err(|_| no_core.to_owned())?;
        if header.e_type(endian) != elf::ET_CORE {
            return Err(no_core.to_owned());
        }
        let segments = header.program_headers(endian, bytes).map_err(|e| e.to_string())?;
        let (mut space, mut command) = (None, String::new());
        for segment in segments {
            let Ok(Some(mut notes)) = segment.notes(endian, bytes) else { continue };
            while let Ok(Some(note)) = notes.next() {
                match note.n_type(endian) {
                    kind if kind == NT_AUXV => {
                        space = Some(fettle_live::space_of_auxv(note.desc()));
                    }
                    kind if kind == NT_PRPSINFO => {
                        let text = note.desc().get(ARGUMENTS).unwrap_or_default();
                        let text = text.split(|byte| *byte == 0).next().unwrap_or_default();
                        command = String::from_utf8_lossy(text).trim().to_owned();
                    }
                    _ => {}
                }
            }
        }
        let space = space.ok_or("it has no auxiliary vector (NT_AUXV)")?;
        Ok(Core { space, command })
    }

    /// The object file with the names of its rewritten text, if it is kept.
    pub fn symbols(&self, folder: &Path) -> Option<PathBuf> {
        Some(path_of(folder, self.space)).filter(|path| path.is_file())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_core_file_is_refused() {
        for bytes in [&b""[..], b"\x7fELF", &[0; 100]] {
            assert!(Core::parse(bytes).unwrap_err().contains("no core file"));
        }
        let own = std::fs::read("/proc/self/exe").unwrap();
        assert!(Core::parse(&own).unwrap_err().contains("no core file"));
    }

    #[test]
    fn the_oldest_are_forgotten() {
        let folder = tempfile::tempdir().unwrap();
        for number in 0..MOST as u64 + 3 {
            let path = path_of(folder.path(), number);
            std::fs::write(&path, b"x").unwrap();
            let then = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(number);
            std::fs::File::open(&path).unwrap().set_modified(then).unwrap();
        }
        keep(folder.path(), u64::MAX, b"object").unwrap();
        let left = std::fs::read_dir(folder.path()).unwrap().count();
        assert_eq!(left, MOST);
        assert!(!path_of(folder.path(), 0).exists());
        let core = Core { space: u64::MAX, command: String::new() };
        assert_eq!(std::fs::read(core.symbols(folder.path()).unwrap()).unwrap(), b"object");
    }
}
