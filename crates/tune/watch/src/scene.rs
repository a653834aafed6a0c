//! What actions are given of a finding.

use std::collections::BTreeMap;
use std::sync::Arc;

use fettle_types::{Pid, Tid};

use crate::finding::Finding;
use crate::look::Look;
use crate::proc::Watched;
use crate::requests::Recent;

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
    /// Since when each of its threads has passed no mark of progress, and what CPU time it had then, if a rule asks for
    /// that.
    pub marks: BTreeMap<Tid, (u64, u64)>,
    /// The kernel's events, if they are recorded.
    pub recent: Option<Arc<dyn Recent>>,
    /// When, in nanoseconds of CLOCK_MONOTONIC.
    pub at_ns: u64,
    /// When, in milliseconds since 1970.
    pub at_ms: u64,
}
