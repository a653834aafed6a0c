//! Options of `cargo xtask corpus`.

use std::path::{Path, PathBuf};

use super::spec::Kind;

/// What to run and how.
#[derive(clap::Args, Debug, Clone)]
pub struct Options {
    /// Only entries whose name contains this (comma-separated: any of these)
    #[arg(long, value_delimiter = ',')]
    pub filter: Vec<String>,
    /// Only the fast subset that CI runs
    #[arg(long)]
    pub smoke: bool,
    /// Only entries of this kind
    #[arg(long)]
    pub kind: Option<Kind>,
    /// Entries that run at a time
    #[arg(long, default_value_t = 1)]
    pub jobs: usize,
    /// Also write the results to this file
    #[arg(long)]
    pub json: Option<PathBuf>,
    /// What `fettle record` is to do (its `--mode`)
    #[arg(long)]
    pub mode: Option<String>,
    /// This binary instead of a fresh release build
    #[arg(long)]
    pub fettle: Option<PathBuf>,
    /// Do not ask for a summary of what was recorded: for wrappers that only run the program
    #[arg(long)]
    pub behaviour_only: bool,
    /// Run the plain side only, twice: tells whether the entries themselves are sound
    #[arg(long)]
    pub plain_only: bool,
    /// Keep the folders of entries that passed too
    #[arg(long)]
    pub keep: bool,
    /// Print the entries and run none
    #[arg(long)]
    pub list: bool,
}

impl Options {
    /// The smoke subset with everything else as it is by default.
    pub fn smoke(fettle: &Path) -> Options {
        Options {
            filter: Vec::new(),
            smoke: true,
            kind: None,
            jobs: 2,
            json: None,
            mode: None,
            fettle: Some(fettle.to_path_buf()),
            behaviour_only: false,
            plain_only: false,
            keep: false,
            list: false,
        }
    }
}
