//! stub
use fettle_cfg::function::Function;
use fettle_cfg::liveness::ExitLiveness;
use fettle_image::LinkAddr;

use crate::emit::{Context, Emitted};

/// What the checker found.
#[derive(Clone, Debug)]
pub struct CheckError {
    /// Original address.
    pub at: LinkAddr,
}

/// Checks.
pub fn check(
    _function: &Function,
    _emitted: &Emitted,
    _exits: ExitLiveness,
    _context: &Context<'_>,
) -> Result<(), CheckError> {
    Ok(())
}
