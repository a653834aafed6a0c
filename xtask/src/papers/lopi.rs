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
    tables: |sources| {
        let caches = [
            ("Table 6.2, branches", "branches", [1.30, 1.30]),
            ("Table 6.2, mispredicted branches", "mispredicted", [1.66, 1.01]),
            ("Table 6.2, references to data", "data_references", [1.48, 1.80]),
            ("Table 6.2, data misses", "data_misses", [1.07, 1.01]),
            ("Table 6.2, code misses", "code_misses", [1.28, 1.11]),
        ];
        let caches = caches.map(|(name, field, paper)| modelled(sources, name, field, paper));
        let rest = [overhead(sources)];
        [times(sources), instructions(sources)].into_iter().chain(caches).chain(rest).collect()
    },
    missing: &[
        (
            "SPEC 2000",
            "SPEC is not free; gzip, GCC and bzip2 are today's, and four other programs stand for the rest",
        ),
        (
            "Dyninst",
            "no package of it runs here; the paper's own averages with it are in the notes",
        ),
        ("Figure 6.8", "profiles of single instructions in a simulator, without numbers"),
    ],
};

/// The paper's programs that are measured here, too, with LOPI's time and instructions.
const SAME: [(&str, [f64; 2]); 3] =
    [("gzip", [1.17, 1.16]), ("gcc", [1.37, 1.42]), ("bzip2", [1.21, 1.22])];
/// The averages of the paper's seven programs.
const AVERAGE: [f64; 2] = [1.22, 1.36];
const PACKAGED: &str = "cargo xtask bench packaged";
const PROBES: [&str; 2] = ["80 % of the time", "each function"];

/// Table 6.2: time over that without probes.
fn times(sources: &Sources) -> Result<Table> {
    let value = |variant: &Json| {
        let interval = &variant["time_interval"];
        let interval = interval[0].as_f64().zip(interval[1].as_f64());
        Some(Value { value: variant["time"].as_f64()?, interval })
    };
    Ok(Table {
        name: "Table 6.2, time",
        about: "CPU time of a program with probes that time each call, over that without",
        note: "The paper has probes in the functions that make up 80 % of the time, and adds up a counter between entry and exit; so it is \
               here, with the time-stamp counter. Start and end of the recording are included. The paper's averages: LOPI 1.22, Dyninst 1.28, calls in the source 1.06.",
        less_is_better: true,
        command: PACKAGED.to_owned(),
        rows: packaged(sources, 0, &value)?,
    })
}

/// Table 6.2: instructions over those without probes.
fn instructions(sources: &Sources) -> Result<Table> {
    Ok(Table {
        name: "Table 6.2, instructions",
        about: "Instructions of a program with probes that time each call, over those without",
        note: "Counted by callgrind. The paper's averages: LOPI 1.36, Dyninst 1.49, calls in the source 1.13.",
        less_is_better: true,
        command: PACKAGED.to_owned(),
        rows: packaged(sources, 1, &|variant| variant["instructions"].as_f64().map(Value::of))?,
    })
}

/// Rows of a figure of each program and each choice of functions; the paper's is of the first choice.
fn packaged(
    sources: &Sources,
    paper: usize,
    value: &dyn Fn(&Json) -> Option<Value>,
) -> Result<Vec<Row>> {
    let programs = sources.packaged()?["programs"].as_array().context("no program was measured")?;
    let rows = programs.iter().flat_map(|program| {
        let name = program["name"].as_str().unwrap_or_default();
        let same = SAME.iter().find(|(known, _)| *known == name).map(|(_, of)| of[paper]);
        PROBES.into_iter().map(move |probes| Row {
            what: format!("{name}, {probes}"),
            paper: same.filter(|_| probes == PROBES[0]),
            ours: variant(program, probes).and_then(value),
            peer: None,
        })
    });
    let means = PROBES.map(|probes| {
        let of = |program| Some(value(variant(program, probes)?)?.value);
        let ours = mean(programs.iter().filter_map(of));
        let paper = Some(AVERAGE[paper]).filter(|_| probes == PROBES[0]);
        Row { what: format!("mean, {probes}"), paper, ours, peer: None }
    });
    Ok(rows.chain(means).collect())
}

/// The geometric mean.
fn mean(ratios: impl Iterator<Item = f64>) -> Option<Value> {
    let logarithms: Vec<f64> = ratios.map(f64::ln).collect();
    let sum: f64 = logarithms.iter().sum();
    (!logarithms.is_empty()).then(|| Value::of((sum / logarithms.len() as f64).exp()))
}

fn variant<'a>(program: &'a Json, probes: &str) -> Option<&'a Json> {
    program["variants"].as_array()?.iter().find(|variant| variant["name"] == probes)
}

/// Table 6.2: what a model of caches and branches says, as the geometric mean of all programs.
fn modelled(
    sources: &Sources,
    name: &'static str,
    field: &str,
    [lopi, dyninst]: [f64; 2],
) -> Result<Table> {
    let programs = sources.packaged()?["programs"].as_array().context("no program was measured")?;
    let rows = PROBES.map(|probes| {
        let of = |program| variant(program, probes)?[field].as_f64();
        let first = probes == PROBES[0];
        Row {
            what: format!("mean, {probes}"),
            paper: Some(lopi).filter(|_| first),
            ours: mean(programs.iter().filter_map(of)),
            peer: Some(("Dyninst, in the paper".to_owned(), Value::of(dyninst))).filter(|_| first),
        }
    });
    Ok(Table {
        name,
        about: "What callgrind counts or models of programs with probes, over those without",
        note: "A model of this processor's caches, and of a simple predictor of branches.",
        less_is_better: true,
        command: PACKAGED.to_owned(),
        rows: rows.into(),
    })
}

/// Time with probes over that without, next to what compilers put in.
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
        name: "Compilers",
        about: "CPU time of a program with probes in each function, over that without",
        note: "Next to what compilers put in. The paper's average is of its programs; `fib` does nothing but call, which is the worst case.",
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
