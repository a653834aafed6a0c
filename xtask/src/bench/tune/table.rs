//! What was measured, as a table.

use serde_json::Value;

/// Names of the columns.
pub fn head(bolt: bool) -> String {
    let head = format!(
        "{:<16} {:>8} {:>17} {:>7} {:>15} {:>10} {:>9}  {:>17} {:>18}",
        "program",
        "speed-up",
        "95 % interval",
        "rounds",
        "modelled misses",
        "functions",
        "stop, ms",
        "M instructions",
        "K misses"
    );
    head + &if bolt { format!(" {:>8} {:>17}", "BOLT's", "95 % interval") } else { String::new() }
}

/// One program's line.
pub fn line(measured: &Value, bolt: bool) -> String {
    let (value, counted) = (&measured["tune"], &measured["callgrind"]);
    let name = measured["program"].as_str().unwrap_or_default();
    // How many times as fast.
    let gain = |field: &str| 1.0 / value["measured"][field].as_f64().unwrap_or(f64::NAN);
    let misses = |when: &str| -> f64 {
        let cost = |m: &Value| {
            let number = |field: &str| m[when]["cost"][field].as_f64().unwrap_or(0.0);
            (number("misses"), number("insns"))
        };
        let costs: Vec<(f64, f64)> =
            value["modules"].as_array().into_iter().flatten().map(cost).collect();
        let (misses, insns) = costs.iter().fold((0.0, 0.0), |sum, c| (sum.0 + c.0, sum.1 + c.1));
        misses * 1000.0 / f64::max(insns, 1.0)
    };
    let functions: usize = value["modules"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|m| m["functions"].as_array().map_or(0, Vec::len))
        .sum();
    let stops =
        ["counted", "measured"].iter().filter_map(|part| value[part]["stops_ms"].as_array());
    let longest = stops.flatten().filter_map(Value::as_f64).fold(0.0, f64::max);
    let counted = |what: &str, unit: f64| -> String {
        let count = |i: usize| Some(counted[what][i].as_f64()? / unit);
        let both = count(0).zip(count(1));
        both.map_or_else(|| "-".to_owned(), |(a, b)| format!("{a:.1} to {b:.1}"))
    };
    let line = format!(
        "{name:<16} {:>8.3} {:>8.3} to {:>5.3} {:>7} {:>6.2} to {:>5.2} {functions:>10} {longest:>9.1}  {:>17} {:>18}",
        gain("ratio"),
        gain("high"),
        gain("low"),
        value["measured"]["ratios"].as_array().map_or(0, Vec::len),
        misses("model_before"),
        misses("model_after"),
        counted("instructions", 1e6),
        counted("misses", 1e3),
    );
    line + &if bolt { bolt_columns(&measured["bolt"]["speed_up"]) } else { String::new() }
}

fn bolt_columns(speed_up: &Value) -> String {
    let number = |field: &str| speed_up[field].as_f64();
    match (number("value"), number("low"), number("high")) {
        (Some(mean), Some(low), Some(high)) => format!(" {mean:>8.3} {low:>8.3} to {high:>5.3}"),
        _ => format!(" {:>8} {:>17}", "-", "-"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn columns_stand_below_their_names() {
        let mut measured = json!({ "program": "x" });
        for bolt in [false, true] {
            assert_eq!(line(&measured, bolt).len(), head(bolt).len());
        }
        measured["bolt"] = json!({ "speed_up": { "value": 1.1, "low": 1.05, "high": 1.15 } });
        let line = line(&measured, true);
        assert!(line.ends_with("   1.100    1.050 to 1.150"), "{line}");
        assert_eq!(line.len(), head(true).len());
    }
}
