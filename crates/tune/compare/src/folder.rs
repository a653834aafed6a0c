//! The private folder of a comparison: our program, files that benchmarks write, what systems keep.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::error::{CompareError, file};

/// The program that measures from inside, `runtime/bench`.
const PROGRAM: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/fettle-bench"));
/// Where files lie in memory, on nearly every Linux.
const MEMORY: &str = "/dev/shm";

/// The folder; it goes with this value.
#[derive(Debug)]
pub struct Folder {
    folder: TempDir,
    /// Where files lie in memory, as they do in the other systems; without such a place they lie in the
    /// folder.
    memory: Option<TempDir>,
}

impl Folder {
    /// Makes the folder and writes our program into it.
    ///
    /// # Errors
    ///
    /// Where that cannot be written, or has a path that systems cannot be given.
    pub fn new() -> Result<Folder, CompareError> {
        let made = |at: &Path| tempfile::Builder::new().prefix("fettle-compare-").tempdir_in(at);
        let temporary = std::env::temp_dir();
        let folder = made(&temporary).map_err(file("cannot make a temporary folder"))?;
        if folder.path().to_str().is_none_or(|path| path.contains(char::is_whitespace)) {
            let why = std::io::Error::other("set TMPDIR to a path without spaces");
            return Err(file(temporary.display().to_string())(why));
        }
        let program = folder.path().join("fettle-bench");
        fs::write(&program, PROGRAM)
            .and_then(|()| fs::set_permissions(&program, Permissions::from_mode(0o755)))
            .map_err(file(format!("cannot write {}", program.display())))?;
        Ok(Folder { folder, memory: made(Path::new(MEMORY)).ok() })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Our program.
    pub fn program(&self) -> PathBuf {
        self.path().join("fettle-bench")
    }

    /// Makes a folder in it.
    pub(crate) fn make(&self, name: &str) -> Result<PathBuf, CompareError> {
        let path = self.path().join(name);
        fs::create_dir_all(&path).map_err(file(format!("cannot make {}", path.display())))?;
        Ok(path)
    }

    /// Makes a folder for the files of benchmarks that run on this kernel: in memory, as those of the
    /// other systems are.
    pub(crate) fn make_in_memory(&self, name: &str) -> Result<PathBuf, CompareError> {
        let Some(memory) = &self.memory else { return self.make(name) };
        let path = memory.path().join(name);
        fs::create_dir_all(&path).map_err(file(format!("cannot make {}", path.display())))?;
        Ok(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_left_behind() {
        let folder = Folder::new().unwrap();
        let (path, memory) = (folder.path().to_owned(), folder.make_in_memory("scratch").unwrap());
        assert!(folder.program().is_file() && memory.is_dir());
        drop(folder);
        assert!(!path.exists() && !memory.exists());
    }
}
