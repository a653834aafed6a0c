//! stub
use anyhow::Result;
/// Run.
pub fn run() -> Result<bool> { Ok(true) }
