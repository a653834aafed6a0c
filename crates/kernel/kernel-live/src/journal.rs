//! What is installed in the kernel, for `status` and `undo` of another fettle.
//!
//! The kernel needs none of it: closing the control file or removing the module undoes everything. It says
//! what no counter in the kernel does: which functions, and why.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use fettle_kernel_plan::Plan;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// Where it is: gone with the next boot, as what it describes.
const FOLDER: &str = "/run/fettle";
const FILE: &str = "kernel.json";

/// Why rewritten text is in the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Purpose {
    /// It counts.
    Count,
    /// It is laid out anew.
    Tune,
}

/// What was installed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Journal {
    /// Version of this record.
    pub version: u32,
    /// The kernel, as `uname -r` says.
    pub release: String,
    /// The process that installed it.
    pub pid: u32,
    /// Why.
    pub purpose: Purpose,
    /// Names of the functions.
    pub functions: Vec<String>,
    /// Bytes of rewritten text.
    pub text_bytes: u64,
}

impl Journal {
    /// Of a plan that is about to be installed.
    pub fn new(plan: &Plan, purpose: Purpose) -> Journal {
        Journal {
            version: 1,
            release: plan.release.clone(),
            pid: std::process::id(),
            purpose,
            functions: plan.functions.iter().map(|f| f.name.clone()).collect(),
            text_bytes: plan.parts.iter().map(|part| part.text.len() as u64).sum(),
        }
    }

    /// Writes it down.
    ///
    /// # Errors
    ///
    /// When the file cannot be written.
    pub fn write(&self) -> Result<()> {
        self.write_to(Path::new(FOLDER))
    }

    fn write_to(&self, folder: &Path) -> Result<()> {
        let path = folder.join(FILE);
        let failed = |error| Error::Journal { what: path.clone(), error };
        fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(failed)?;
        let text = serde_json::to_vec(self).map_err(|error| failed(io::Error::from(error)))?;
        let partial = folder.join(format!("{FILE}.new"));
        let mut options = fs::OpenOptions::new();
        let mut file = options
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&partial)
            .map_err(failed)?;
        io::Write::write_all(&mut file, &text).map_err(failed)?;
        fs::rename(&partial, &path).map_err(failed)
    }

    /// What was written down, if anything was.
    ///
    /// # Errors
    ///
    /// When the file is there and not readable.
    pub fn read() -> Result<Option<Journal>> {
        Journal::read_from(Path::new(FOLDER))
    }

    fn read_from(folder: &Path) -> Result<Option<Journal>> {
        let path: PathBuf = folder.join(FILE);
        match fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes)
                .map(Some)
                .map_err(|error| Error::Journal { what: path, error: error.into() }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Error::Journal { what: path, error }),
        }
    }

    /// Forgets it, when nothing is installed any more.
    ///
    /// # Errors
    ///
    /// When the file cannot be removed.
    pub fn forget() -> Result<()> {
        let path = Path::new(FOLDER).join(FILE);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(Error::Journal { what: path, error })
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("run");
        assert_eq!(Journal::read_from(&place).unwrap(), None);
        let journal = Journal::new(&Plan::default(), Purpose::Count);
        journal.write_to(&place).unwrap();
        assert_eq!(Journal::read_from(&place).unwrap(), Some(journal));
        fs::write(place.join(FILE), "{").unwrap();
        assert!(Journal::read_from(&place).is_err());
    }
}
