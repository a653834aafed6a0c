//! Findings of `fettle watch`, for people.

use fettle_types::Tid;
use fettle_watch::{Finding, Measure, Why};

/// Nanoseconds as milliseconds.
pub(crate) fn ms(ns: u64) -> String {
    format!("{:.1} ms", ns as f64 / 1e6)
}

/// What was seen, as the rest of a sentence.
pub(crate) fn why(finding: &Finding) -> String {
    match &finding.why {
        Why::Spins { tid, cpu_ns, limit_ns, learned_from } => {
            let limit = match learned_from {
                0 => "as the rule says".to_owned(),
                marks => format!("learned from {marks} marks of progress"),
            };
            let (cpu, limit_ms) = (ms(*cpu_ns), ms(*limit_ns));
            format!(
                "spins: thread {tid} has computed for {cpu} without a call that reads, writes or waits (limit {limit_ms}, {limit})"
            )
        }
        Why::Cycle { tids } => {
            let tids: Vec<String> = tids.iter().map(Tid::to_string).collect();
            format!("is deadlocked: threads {} wait for each other's mutexes", tids.join(", "))
        }
        Why::Unread { bytes } => {
            format!("sleeps, while {bytes} bytes lie unread in its connections")
        }
        Why::Still { sensor, value } => {
            format!("does not change its sensor {sensor}, which stands at {value}")
        }
        Why::Above { measure: Measure::Quantile { histogram, share }, value, limit, values } => {
            let percentile = f64::from(*share) / 1e4;
            format!(
                "has p{percentile} of {histogram} at {value} (limit {limit}, {values} values in the last window)"
            )
        }
        Why::Above { measure: Measure::Requests { pattern, share }, value, limit, values } => {
            let percentile = f64::from(*share) / 1e4;
            let [value, limit] = [value, limit].map(|ns| ms(*ns));
            format!(
                "has p{percentile} of requests {pattern:?} at {value} (limit {limit}, {values} requests in the last window)"
            )
        }
        Why::Above { measure: Measure::Failures { pattern }, value, limit, values } => {
            let [value, limit] = [value, limit].map(|share| *share as f64 / 1e4);
            format!(
                "has failed {value:.2} % of requests {pattern:?} (limit {limit:.2} %, {values} in the last window)"
            )
        }
        Why::Above { measure: Measure::Share { part, whole }, value, limit, values } => {
            let [value, limit] = [value, limit].map(|share| *share as f64 / 1e4);
            format!(
                "has {value:.2} % of {whole} in {part} (limit {limit:.2} %, {values} in the last window)"
            )
        }
    }
}
