//! What actions are given of a finding.

use fettle_types::Pid;

use crate::finding::Finding;
use crate::look::Look;
use crate::proc::Watched;

/// What a rule has found, and where.
#[derive(Debug)]
pub struct Scene<'a> {
    /// What was found.
    pub finding: &'a Finding,
    /// The process that it is about.
    pub process: &'a Watched,
    /// The last looks.
    pub looks: &'a [Look],
    /// All processes that are watched, without those that one of them has started.
    pub pids: Vec<Pid>,
    /// When, in milliseconds since 1970.
    pub at_ms: u64,
}
