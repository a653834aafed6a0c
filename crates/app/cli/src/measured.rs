//! What a comparison has shown, as text and for programs.

use std::time::Duration;

use fettle_tune::{Measured, Verdict, WorkUnit};
use serde_json::json;

pub(crate) fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// The longest of some stops, in milliseconds.
pub(crate) fn longest(stops: &[Duration]) -> f64 {
    stops.iter().map(|stop| milliseconds(*stop)).fold(0.0, f64::max)
}

/// A comparison in a line.
pub(crate) fn measured_text(measured: &Measured) -> String {
    let unit = unit(measured.unit);
    format!(
        "{}; measured in {} rounds: {:.2} us of CPU time for a {unit}, now {:.2}: {:+.1} % \
         [95 % interval {:+.1} to {:+.1}]; {} switches, at most {:.2} ms each\n",
        verdict(measured),
        measured.ratios.len(),
        measured.ns.0 / 1e3,
        measured.ns.1 / 1e3,
        (measured.ratio - 1.0) * 100.0,
        (measured.low - 1.0) * 100.0,
        (measured.high - 1.0) * 100.0,
        measured.stops.len(),
        longest(&measured.stops),
    )
}

/// What a comparison has shown, for the audit log.
pub(crate) fn result(measured: Option<&Measured>, not_compared: Option<&str>) -> String {
    match (measured, not_compared) {
        (Some(measured), _) => format!("{}: {}", verdict(measured), measured.percent()),
        (None, why) => {
            format!("not compared{}", why.map_or_else(String::new, |w| format!(": {w}")))
        }
    }
}

/// The verdict in words.
pub(crate) fn verdict(measured: &Measured) -> String {
    match measured.verdict() {
        Verdict::Faster => "faster".to_owned(),
        Verdict::Slower => "slower".to_owned(),
        Verdict::Equal => format!("equal within {:.1} %", measured.within() * 100.0),
        Verdict::Undecided => "undecided".to_owned(),
    }
}

fn unit(unit: WorkUnit) -> &'static str {
    match unit {
        WorkUnit::ReadOrWrite => "read or write call",
        WorkUnit::SystemCall => "system call",
        WorkUnit::Given => "unit of work",
    }
}

/// A comparison for programs.
pub(crate) fn measured_json(m: &Measured) -> serde_json::Value {
    let stops: Vec<f64> = m.stops.iter().map(|stop| milliseconds(*stop)).collect();
    json!({
        "verdict": m.verdict().code(), "within": m.within(), "ratio": m.ratio, "low": m.low,
        "high": m.high, "ratios": m.ratios, "unit": unit(m.unit), "old_ns": m.ns.0,
        "new_ns": m.ns.1, "idle_rounds": m.idle, "pauses_ms": stops,
    })
}
