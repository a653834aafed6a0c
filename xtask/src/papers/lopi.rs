//! S. Kågström, *Tools, Techniques, and Trade-Offs when Porting Large Software Systems to New
//! Environments*, 2008: chapter 6, LOPI.

use anyhow::{Context, Result};
use serde_json::Value as Json;

use super::paper::Paper;
use super::sources::Sources;
use super::table::{Row, Table, Value};

pub const PAPER: Paper = Paper {
    name: "lopi",
    page: "lopi",
    title: "LOPI: low-perturbation binary instrumentation (2008)",
    tables: |sources| vec![overhead(sources)],
    missing: &[
        ("Table 6.2, caches", "references and misses need a counter of the processor"),
        (
            "Table 6.2, SPEC 2000",
            "SPEC is not free; Lua, SQLite and a call that does nothing stand for it",
        ),
        ("Dyninst", "no package of it runs here"),
    ],
};

/// Table 6.2: execution time over that without instrumentation.
fn overhead(sources: &Sources) -> Result<Table> {
    let report = sources.probes()?;
    let programs = report["programs"].as_object().context("no program was measured")?;
    let mut rows = Vec::new();
    for (program, series) in programs {
        let of = |variant: &str| Some(Value::of(time_ratio(series.as_array()?, variant)?));
        let compiler = "gcc -finstrument-functions, time (before inlining)";
        for (mode, what) in [("count", "a count"), ("time", "a time")] {
            rows.push(Row {
                what: format!("{program}, {what} at entry and exit"),
                // The average of seven programs of SPEC.
                paper: Some(1.22),
                ours: of(&format!("fettle record --mode {mode}")),
                peer: of(compiler)
                    .filter(|_| mode == "time")
                    .map(|v| ("gcc -finstrument-functions".to_owned(), v)),
            });
        }
    }
    Ok(Table {
        name: "Table 6.2",
        about: "CPU time of a program with probes in each function, over that without",
        note: "The paper's programs run some 500 probes, ours each function: `fib` does nothing but call, which is the worst case.",
        less_is_better: true,
        command: "cargo xtask bench probe".to_owned(),
        rows,
    })
}

/// The median of a variant's ratios to its baseline, round by round.
fn time_ratio(series: &[Json], variant: &str) -> Option<f64> {
    let times = |name: &str| -> Option<Vec<f64>> {
        let one = series.iter().find(|s| s["variant"] == name)?;
        Some(one["runs"].as_array()?.iter().filter_map(|run| run["program"].as_f64()).collect())
    };
    let baseline = series.iter().find(|s| s["variant"] == variant)?["baseline"].as_str()?;
    let ratios = fettle_stats::ratios(&times(variant)?, &times(baseline)?);
    Some(fettle_stats::median(&ratios)).filter(|ratio| ratio.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_to_the_baseline() {
        let run = |seconds: f64| serde_json::json!({ "program": seconds });
        let series = serde_json::json!([
            { "variant": "plain", "baseline": "plain", "runs": [run(1.0), run(2.0)] },
            { "variant": "probed", "baseline": "plain", "runs": [run(1.5), run(3.0)] },
        ]);
        assert_eq!(time_ratio(series.as_array().unwrap(), "probed"), Some(1.5));
        assert_eq!(time_ratio(series.as_array().unwrap(), "other"), None);
    }
}
