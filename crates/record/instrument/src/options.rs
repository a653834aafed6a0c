//! What is asked of `fettle instrument`.

use std::path::PathBuf;

use fettle_code::Mode;
use fettle_record::Selection;

/// What to make.
#[derive(Clone, Debug)]
pub struct Options {
    /// The program or library.
    pub input: PathBuf,
    /// The new file.
    pub output: PathBuf,
    /// What probes measure.
    pub mode: Mode,
    /// Which functions get them.
    pub selection: Selection,
    /// Make everything but the file.
    pub dry_run: bool,
}
