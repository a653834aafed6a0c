//! How the model's gain relates to the measured one, over programs: what a gain of the model's is worth.
//!
//! The model knows how long the front end delivers nothing, before and after, in the modules that were laid out. What it
//! does not know, prefetching and all other time among it, is one factor here: measured gains are that factor times
//! the model's, by least squares. How far a program's gain may be off is found by leaving each program out in turn.

use serde_json::Value;

/// A program's gains, as shares of its time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gains {
    /// By the model.
    pub modelled: f64,
    /// Measured.
    pub measured: f64,
}

/// The share of the time of laid-out modules that the model says is gained, and what was measured.
pub fn gains(tuned: &Value) -> Option<Gains> {
    let (mut before, mut after) = (0.0, 0.0);
    for module in tuned["modules"].as_array()? {
        // The time of an instruction without stalls is the same in both.
        let run = module["model_before"]["run"].as_f64()?;
        before += run / (1.0 - module["model_before"]["stall_share"].as_f64()?);
        after += run / (1.0 - module["model_after"]["stall_share"].as_f64()?);
    }
    let measured = 1.0 - tuned["measured"]["ratio"].as_f64()?;
    (before > 0.0).then(|| Gains { modelled: 1.0 - after / before, measured })
}

/// What measured gains are, over the model's, and how far nine of ten programs are from that at most.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Calibration {
    /// Measured over modelled.
    pub factor: f64,
    /// The absolute error of a gain.
    pub off: f64,
}

/// By least squares; `None` for fewer than three programs.
pub fn calibrate(all: &[Gains]) -> Option<Calibration> {
    if all.len() < 3 {
        return None;
    }
    let factor = |without: Option<usize>| {
        let kept = all.iter().enumerate().filter(|(at, _)| Some(*at) != without);
        let (products, squares) = kept.fold((0.0, 0.0), |(products, squares), (_, gains)| {
            (products + gains.modelled * gains.measured, squares + gains.modelled * gains.modelled)
        });
        if squares > 0.0 { products / squares } else { 0.0 }
    };
    let off =
        |(at, gains): (usize, &Gains)| (gains.measured - factor(Some(at)) * gains.modelled).abs();
    let offs: Vec<f64> = all.iter().enumerate().map(off).collect();
    Some(Calibration { factor: factor(None), off: fettle_stats::quantile(&offs, 0.9) })
}

/// A line for each program, and what follows.
pub fn text(programs: &[(String, Gains)]) -> String {
    let all: Vec<Gains> = programs.iter().map(|(_, gains)| *gains).collect();
    let Some(calibration) = calibrate(&all) else { return String::new() };
    let percent = |share: f64| format!("{:.1} %", share * 100.0);
    let mut out =
        format!("\n{:<16} {:>9} {:>9} {:>17}\n", "gain", "modelled", "measured", "by calibration");
    for (name, gains) in programs {
        let expected = calibration.factor * gains.modelled;
        let (low, high) = (expected - calibration.off, expected + calibration.off);
        let range = format!("{} to {}", percent(low), percent(high));
        out += &format!(
            "{name:<16} {:>9} {:>9} {range:>17}\n",
            percent(gains.modelled),
            percent(gains.measured)
        );
    }
    out += &format!(
        "measured gains are {:.2} of the model's; nine of ten programs are within {} of that\n",
        calibration.factor,
        percent(calibration.off)
    );
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn gains_are_of_all_modules() {
        let model = |share: f64| json!({ "run": 100, "stall_share": share });
        let tuned = json!({
            "modules": [{ "model_before": model(0.5), "model_after": model(0.0) }],
            "measured": { "ratio": 0.9 },
        });
        let found = gains(&tuned).unwrap();
        assert!((found.modelled - 0.5).abs() < 1e-9 && (found.measured - 0.1).abs() < 1e-9);
        assert_eq!(gains(&json!({ "modules": [], "measured": { "ratio": 1.0 } })), None);
    }

    #[test]
    fn a_factor_and_its_error_are_found() {
        let of = |modelled: f64, measured: f64| Gains { modelled, measured };
        let exact: Vec<Gains> =
            (1..6).map(|n| of(f64::from(n) / 10.0, f64::from(n) / 20.0)).collect();
        let found = calibrate(&exact).unwrap();
        assert!((found.factor - 0.5).abs() < 1e-9 && found.off < 1e-9, "{found:?}");
        let mut wrong = exact.clone();
        wrong.push(of(0.3, 0.0));
        assert!(calibrate(&wrong).unwrap().off > 0.05);
        assert_eq!(calibrate(&exact[..2]), None);
        let named: Vec<(String, Gains)> =
            exact.iter().map(|gains| ("x".to_owned(), *gains)).collect();
        assert!(text(&named).contains("0.50 of the model's"), "{}", text(&named));
    }
}
