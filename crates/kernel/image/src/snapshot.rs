//! A kernel's image in files, as `cargo xtask kernel --snapshot` takes it in a guest. This module reads
//! files; the rest of the crate does not.

use std::fs::File;
use std::path::{Path, PathBuf};

use crate::error::Error;
use crate::image::{Image, Sources};

fn unreadable(path: &Path, why: impl ToString) -> Error {
    Error::Unreadable { what: path.display().to_string(), why: why.to_string() }
}

/// The folders of all snapshots in the target folder of the repository at `root`. Says why tests skip if there
/// is none.
pub fn kept(root: &Path) -> Vec<PathBuf> {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or("target".into(), PathBuf::from);
    let folders = std::fs::read_dir(root.join(target).join("kernel/snapshot"));
    let found = folders.into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path()));
    let found: Vec<PathBuf> = found.filter(|folder| folder.join("release").exists()).collect();
    if found.is_empty() {
        eprintln!("skipped: no snapshot of a kernel; `cargo xtask kernel --snapshot` takes one");
    }
    found
}

/// Reads the files `core`, `kallsyms`, `btf`, `blacklist` and `release` of a folder.
///
/// # Errors
/// If one is not there, or is not what it should be.
pub fn read(folder: &Path) -> Result<Image, Error> {
    let bytes = |name: &str| {
        let path = folder.join(name);
        std::fs::read(&path).map_err(|why| unreadable(&path, why))
    };
    let text = |name: &str| {
        String::from_utf8(bytes(name)?).map_err(|why| unreadable(&folder.join(name), why))
    };
    let core = folder.join("core");
    Image::read(Sources {
        release: &text("release")?,
        core: File::open(&core).map_err(|why| unreadable(&core, why))?,
        kallsyms: &text("kallsyms")?,
        btf: bytes("btf")?,
        blacklist: &text("blacklist")?,
    })
}
