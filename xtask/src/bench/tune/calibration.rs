//! How the model's gain relates to the measured one, over programs: what a gain of the model's is worth.
//!
//! The model knows how long the front end delivers nothing, before and after, in the modules that were laid out. What it
//! does not know, prefetching and all other time among it, is one factor here: measured gains are that factor times
//! the model's, by least squares. How far a program's gain may be off is found by leaving each program out in turn.

use std::fmt::Write as _;

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

/// A dot for each program, and the range that gains lie in by calibration. `None` where there is no calibration.
pub fn plot(programs: &[(String, Gains)]) -> Option<String> {
    const SIDE: f64 = 480.0;
    const EDGE: f64 = 46.0;
    let all: Vec<Gains> = programs.iter().map(|(_, gains)| *gains).collect();
    let Calibration { factor, off } = calibrate(&all)?;
    let most = |of: fn(&Gains) -> f64| all.iter().map(of).fold(0.05, f64::max) * 1.1;
    let (right, top) = (most(|gains| gains.modelled), most(|gains| gains.measured));
    let bottom = all.iter().map(|gains| gains.measured).fold(0.0, f64::min) - 0.02;
    let x = |share: f64| EDGE + share / right * (SIDE - EDGE - 10.0);
    let y = |share: f64| 10.0 + (top - share) / (top - bottom) * (SIDE - EDGE - 10.0);
    let mut body = String::new();
    let corners =
        [(0.0, off), (right, factor * right + off), (right, factor * right - off), (0.0, -off)];
    let band = corners
        .map(|(at, gain)| format!("{:.1},{:.1}", x(at), y(gain.clamp(bottom, top))))
        .join(" ");
    let _ = writeln!(body, "<polygon class='band' points='{band}'/>");
    let line = |from: (f64, f64), to: (f64, f64)| {
        format!(
            "<path d='M{:.1} {:.1}L{:.1} {:.1}' stroke='currentColor'/>\n",
            x(from.0),
            y(from.1),
            x(to.0),
            y(to.1)
        )
    };
    body += &line((0.0, 0.0), (right, 0.0));
    body += &line((0.0, bottom), (0.0, top));
    for tick in (-1..=6).map(|tenth| f64::from(tenth) / 10.0) {
        if (0.0..=right).contains(&tick) {
            let _ = writeln!(
                body,
                "<text x='{:.1}' y='{:.1}'>{:.0} %</text>",
                x(tick),
                SIDE - EDGE + 14.0,
                tick * 100.0
            );
        }
        if (bottom..=top).contains(&tick) {
            let _ =
                writeln!(body, "<text x='6' y='{:.1}'>{:.0} %</text>", y(tick) + 4.0, tick * 100.0);
        }
    }
    for (name, gains) in programs {
        let (x, y) = (x(gains.modelled), y(gains.measured));
        let _ = writeln!(
            body,
            "<circle cx='{x:.1}' cy='{y:.1}' r='3'/><text class='n' x='{:.1}' y='{:.1}'>{name}</text>",
            x + 5.0,
            y + 3.0
        );
    }
    let style = "text{font:11px sans-serif;fill:currentColor}.n{font-size:9px}.band{fill:#2a78c2;opacity:.2}circle{fill:#2a78c2}";
    Some(format!(
        "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {} {SIDE}' color='#555'><style>{style}</style>\n{body}\
         <text x='{EDGE}' y='{}'>across: the model's gain; up: the measured one; shaded: nine of ten programs</text>\n</svg>\n",
        SIDE + 70.0,
        SIDE - 6.0
    ))
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
        assert_eq!(plot(&named).unwrap().matches("<circle").count(), named.len());
        assert_eq!(plot(&named[..2]), None);
    }
}
