//! stub
/// Options.
#[derive(clap::Args, Debug, Clone)]
pub struct Options {}
impl Options {
/// Quick.
pub fn quick() -> Options { Options {} } }
