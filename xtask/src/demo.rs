//! stub
use anyhow::Result;
/// Options.
#[derive(clap::Args, Debug, Clone)]
pub struct Options {}
/// Run.
pub fn run(_: &Options) -> Result<bool> { Ok(true) }
