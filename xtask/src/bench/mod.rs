//! stub
use anyhow::Result;
pub mod probe;
/// Benchmarks.
#[derive(clap::Subcommand, Debug, Clone)]
pub enum Bench {
    /// Probe effect
    Probe(probe::Options),
}
/// Run.
pub fn run(_: &Bench) -> Result<bool> { Ok(true) }
