//! What is found, and what that rests on.

use fettle_types::Tid;
use serde::{Deserialize, Serialize};

use crate::look::ProcessId;
use crate::rule::Measure;

/// A rule that holds for a process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// The rule's place among the rules.
    pub rule: usize,
    /// For which process.
    pub process: ProcessId,
    /// Since when nothing has got on, as far as is known, in nanoseconds of CLOCK_MONOTONIC.
    pub since_ns: u64,
    /// What was seen.
    pub why: Why,
}

/// What a finding rests on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum Why {
    /// A thread computes, and nothing else.
    Spins {
        /// The thread.
        tid: Tid,
        /// CPU time since its last mark of progress, in nanoseconds.
        cpu_ns: u64,
        /// What was waited for, in nanoseconds.
        limit_ns: u64,
        /// Marks of progress by which that was learned; 0 where the rule says it.
        learned_from: u64,
    },
    /// Each of these threads waits for a mutex that the next one holds, the last for one of the first's.
    Cycle {
        /// The threads.
        tids: Vec<Tid>,
    },
    /// Bytes lie in connections, and all threads sleep.
    Unread {
        /// How many.
        bytes: u64,
    },
    /// A sensor keeps its value.
    Still {
        /// The sensor.
        sensor: String,
        /// The value.
        value: i64,
    },
    /// A measure was above its limit for as many windows as the rule says.
    Above {
        /// What was measured.
        measure: Measure,
        /// What it was in the last window.
        value: u64,
        /// What the rule says.
        limit: u64,
        /// How many values there were in that window.
        values: u64,
    },
}
