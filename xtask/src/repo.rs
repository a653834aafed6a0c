//! Where things are.

use std::path::{Path, PathBuf};

/// Root of the repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the root").to_path_buf()
}

/// Cargo's target folder; everything that chores produce goes below it.
pub fn target() -> PathBuf {
    match std::env::var_os("CARGO_TARGET_DIR") {
        Some(dir) => root().join(dir),
        None => root().join("target"),
    }
}

/// A folder below [`target`], made if it is not there.
pub fn target_folder(name: &str) -> anyhow::Result<PathBuf> {
    let dir = target().join(name);
    std::fs::create_dir_all(&dir)?;
    Ok(dir)
}
