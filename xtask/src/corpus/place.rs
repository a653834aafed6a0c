//! Folders of one entry, and what is in them afterwards.

use std::collections::BTreeMap;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use crate::proc;

/// Folders of one entry. The path is short, because some servers put sockets there.
pub struct Place {
    base: PathBuf,
}

impl Place {
    /// A fresh place for the entry of this name.
    pub fn fresh(name: &str) -> Result<Place> {
        let base = std::env::temp_dir().join("fettle-corpus").join(name);
        if base.exists() {
            remove(&base)?;
        }
        let place = Place { base };
        for folder in [place.template(), place.logs()] {
            std::fs::create_dir_all(&folder)?;
        }
        for folder in [place.base.as_path(), place.base.parent().unwrap_or(&place.base)] {
            std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o755))?;
        }
        Ok(place)
    }

    /// What both sides start from.
    pub fn template(&self) -> PathBuf {
        self.base.join("template")
    }

    /// Where both sides run, one after the other.
    pub fn run(&self) -> PathBuf {
        self.base.join("run")
    }

    /// Outputs of both sides.
    pub fn logs(&self) -> PathBuf {
        self.base.join("logs")
    }

    /// The trace of the recorded side.
    pub fn trace(&self) -> PathBuf {
        self.base.join("trace")
    }

    /// Makes the folder to run in anew from the template.
    pub fn make_run(&self, user: Option<&str>) -> Result<()> {
        for old in [self.run(), self.trace()] {
            if old.exists() {
                remove(&old)?;
            }
        }
        let mut copy = Command::new("cp");
        proc::output_of(copy.arg("-a").arg(self.template()).arg(self.run()))?;
        // The trace's parent must be writable for another user too.
        if let Some(user) = user {
            let mut chown = Command::new("chown");
            proc::output_of(chown.arg("-R").arg(user).arg(self.run()))?;
            let mut chown = Command::new("chown");
            proc::output_of(chown.arg(user).arg(&self.base))?;
        }
        Ok(())
    }

    /// Keeps what a side left, under another name.
    pub fn keep_run(&self, side: &str) -> Result<()> {
        let kept = self.base.join(side);
        if kept.exists() {
            remove(&kept)?;
        }
        std::fs::rename(self.run(), kept)?;
        Ok(())
    }

    /// Removes everything.
    pub fn clear(&self) {
        let _ = remove(&self.base);
    }
}

/// `rm -rf`, which unlike the standard library's function copes with read-only folders.
fn remove(path: &Path) -> Result<()> {
    proc::output_of(Command::new("rm").arg("-rf").arg(path)).map(drop)
}

/// Everything below a folder: relative path to what is there, in a form that is equal exactly
/// when the thing is.
pub type Contents = BTreeMap<String, Thing>;

/// A file, link, folder or other thing that a program left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Thing {
    /// Permission bits and bytes.
    File(u32, Vec<u8>),
    /// Where it points to.
    Link(PathBuf),
    /// Permission bits.
    Folder(u32),
    /// Socket, pipe or device.
    Special(String),
}

/// Reads a folder, leaving out what `ignored` says.
pub fn contents(root: &Path, ignored: &dyn Fn(&str) -> bool) -> Result<Contents> {
    let mut contents = Contents::new();
    let mut open = vec![root.to_path_buf()];
    while let Some(folder) = open.pop() {
        for item in std::fs::read_dir(&folder)? {
            let path = item?.path();
            let name = path.strip_prefix(root)?.to_string_lossy().into_owned();
            let meta = std::fs::symlink_metadata(&path)?;
            let kind = meta.file_type();
            let directory_name = format!("{name}/");
            if ignored(if kind.is_dir() { &directory_name } else { &name }) {
                continue;
            }
            let mode = meta.mode() & 0o7777;
            let thing = if kind.is_dir() {
                open.push(path);
                Thing::Folder(mode)
            } else if kind.is_symlink() {
                Thing::Link(std::fs::read_link(&path)?)
            } else if kind.is_file() {
                Thing::File(mode, std::fs::read(&path)?)
            } else {
                Thing::Special(format!("fifo {} socket {}", kind.is_fifo(), kind.is_socket()))
            };
            contents.insert(name, thing);
        }
    }
    Ok(contents)
}
