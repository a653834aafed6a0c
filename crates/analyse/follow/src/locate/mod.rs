//! Where failed and slow requests come from: components that they have in common and that good ones have not.
//!
//! After M. Chen, E. Kıcıman and others, *Pinpoint: Problem Determination in Large, Dynamic Internet Services* (2002): each
//! finished request is a set of components that it came to (`features`), and is good or bad; the components that go
//! with the bad ones are ranked (`cover`), by how alike both sets are and by exact log-odds. A request that is slow came
//! to the same components as one that is not: there a component counts that took at least half of what is too long, on
//! the critical path, so that one that only waits for it is not suspected.

mod cover;
mod features;
mod located;

use crate::JSON_VERSION;
use crate::error::Result;
use crate::session::Session;
use features::{Collected, Kinds};
pub use located::{Component, Fault, Limit, LocateOptions, Located, Odds};

/// Finds out where bad requests come from.
///
/// # Errors
///
/// When the trace cannot be read.
pub fn locate(session: &Session<'_>, options: &LocateOptions) -> Result<Located> {
    let kinds = Kinds::of(&session.program);
    let mut collected = Collected::new(kinds);
    let problems = session.observe(&|event| kinds.wants(event), &mut collected)?;
    let judged = collected.judge(options);
    let found = cover::explain(&judged);
    Ok(Located {
        version: JSON_VERSION,
        requests: judged.requests.len() as u64,
        failed: judged.failed,
        unanswered: judged.unanswered,
        slow: judged.limits.iter().map(|limit| limit.slow).sum(),
        limits: judged.limits,
        faults: found.faults,
        unexplained: found.unexplained,
        ranking: found.ranking,
        problems,
    })
}
