//! How a trace's times become those of the new one.

use fettle_trace::{MergedTrace, Trace};

use crate::clock::Line;

/// How a trace's times become those of the new one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Aligned {
    /// To the first trace's clock.
    pub(crate) line: Line,
    /// For the manifest.
    pub(crate) by: &'static str,
    pub(crate) uncertainty_ns: Option<f64>,
    pub(crate) messages: u64,
    pub(crate) left_out: u64,
}

/// For the manifest.
pub(crate) fn merged_trace(trace: &Trace, aligned: &Aligned) -> MergedTrace {
    let manifest = trace.manifest();
    MergedTrace {
        command: manifest.command.clone(),
        start_unix_ns: manifest.start_unix_ns,
        aligned_by: aligned.by.to_owned(),
        offset_ns: aligned.line.offset_ns.round() as i64,
        drift_ppm: aligned.line.drift * 1e6,
        uncertainty_ns: aligned.uncertainty_ns.map(|ns| ns.ceil() as u64),
        messages: aligned.messages,
        left_out: aligned.left_out,
    }
}
