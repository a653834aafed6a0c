//! Options of `cargo xtask attach`.

use std::path::PathBuf;

/// What to run.
#[derive(clap::Args, Debug, Clone)]
pub struct Options {
    /// Only programs whose name contains this
    #[arg(long, default_value = "")]
    pub filter: String,
    /// Seconds for each program
    #[arg(long, default_value_t = 60)]
    pub seconds: u64,
    /// End after so many rounds, if that is sooner
    #[arg(long, default_value_t = usize::MAX, hide_default_value = true)]
    pub rounds: usize,
    /// Only functions whose name matches, or in this range of addresses (may be repeated)
    #[arg(long)]
    pub only: Vec<String>,
    /// Seed of the first order
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// This binary instead of a fresh release build
    #[arg(long)]
    pub fettle: Option<PathBuf>,
}
