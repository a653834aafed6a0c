//! The trend as a picture: a line for each kind of lock, over revisions.

use std::fmt::Write;

/// A line of the picture.
#[derive(Debug, Clone)]
pub struct Line {
    /// What it is of.
    pub name: String,
    /// A value for each revision.
    pub values: Vec<u64>,
}

const COLOURS: [&str; 8] =
    ["#4269d0", "#efb118", "#ff725c", "#6cc5b0", "#3ca951", "#ff8ab7", "#a463f2", "#97bbf5"];
const WIDTH: f64 = 900.0;
const HEIGHT: f64 = 460.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 170.0;
const TOP: f64 = 40.0;
const BOTTOM: f64 = 70.0;
/// Most revisions that have their names below.
const MOST_NAMES: usize = 12;

/// Draws lines over revisions. One revision has bars instead.
pub fn svg(title: &str, revisions: &[String], lines: &[Line]) -> String {
    let mut lines: Vec<&Line> =
        lines.iter().filter(|line| line.values.iter().any(|&value| value > 0)).collect();
    lines.sort_by_key(|line| std::cmp::Reverse(line.values.last().copied().unwrap_or(0)));
    let most = lines.iter().flat_map(|line| &line.values).copied().max().unwrap_or(0).max(1);
    let top = nice(most);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" \
         fill=\"#fff\"/>\n<text x=\"{LEFT}\" y=\"22\" font-size=\"15\">{}</text>\n",
        escape(title)
    );
    let (width, height) = (WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM);
    let y = |value: u64| TOP + height - value as f64 / top as f64 * height;
    for step in 0..=4 {
        let value = top * step / 4;
        let at = y(value);
        let _ = write!(
            out,
            "<path d=\"M{LEFT} {at:.1}h{width}\" stroke=\"#ddd\"/>\n<text x=\"{:.1}\" y=\"{:.1}\" \
             text-anchor=\"end\">{value}</text>\n",
            LEFT - 8.0,
            at + 4.0
        );
    }
    if revisions.len() < 2 {
        bars(&mut out, &lines, width, height, &y);
    } else {
        let x = |at: usize| LEFT + width * at as f64 / (revisions.len() - 1) as f64;
        let every = revisions.len().div_ceil(MOST_NAMES);
        for (at, name) in revisions.iter().enumerate().filter(|(at, _)| at % every == 0) {
            let (x, y) = (x(at), TOP + height + 16.0);
            let _ = writeln!(
                out,
                "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"end\" \
                 transform=\"rotate(-30 {x:.1} {y:.1})\">{}</text>",
                escape(name)
            );
        }
        polylines(&mut out, &lines, &x, &y);
    }
    out.push_str("</svg>\n");
    out
}

fn polylines(
    out: &mut String,
    lines: &[&Line],
    x: &impl Fn(usize) -> f64,
    y: &impl Fn(u64) -> f64,
) {
    // Names at the right keep their distance.
    let mut lowest: Option<f64> = None;
    for (line, colour) in lines.iter().zip(COLOURS.iter().cycle()) {
        let points: Vec<String> = line
            .values
            .iter()
            .enumerate()
            .map(|(at, &value)| format!("{:.1},{:.1}", x(at), y(value)))
            .collect();
        let last = line.values.last().copied().unwrap_or(0);
        let label = lowest.map_or(y(last), |lowest| y(last).max(lowest + 14.0));
        lowest = Some(label);
        let name = escape(&line.name);
        let _ = write!(
            out,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\">\
             <title>{name}</title></polyline>\n<text x=\"{:.1}\" y=\"{:.1}\" \
             fill=\"{colour}\">{name} {last}</text>\n",
            points.join(" "),
            WIDTH - RIGHT + 8.0,
            label + 4.0
        );
    }
}

fn bars(out: &mut String, lines: &[&Line], width: f64, height: f64, y: &impl Fn(u64) -> f64) {
    let each = width / lines.len().max(1) as f64;
    for (at, (line, colour)) in lines.iter().zip(COLOURS.iter().cycle()).enumerate() {
        let value = line.values.last().copied().unwrap_or(0);
        let (x, top) = (LEFT + each * at as f64, y(value));
        let middle = x + each / 2.0;
        let name = escape(&line.name);
        let _ = write!(
            out,
            "<rect x=\"{:.1}\" y=\"{top:.1}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"{colour}\">\
             <title>{name}: {value}</title></rect>\n<text x=\"{middle:.1}\" y=\"{:.1}\" \
             text-anchor=\"middle\">{value}</text>\n<text x=\"{middle:.1}\" y=\"{:.1}\" \
             text-anchor=\"end\" transform=\"rotate(-30 {middle:.1} {:.1})\">{name}</text>\n",
            x + each * 0.15,
            each * 0.7,
            TOP + height - top,
            top - 5.0,
            TOP + height + 16.0,
            TOP + height + 16.0,
        );
    }
}

/// The least of 1, 2 and 5 times a power of ten that is no less, and divisible by four.
fn nice(most: u64) -> u64 {
    let mut step: u64 = 1;
    loop {
        for factor in [4, 8, 20] {
            let top = step.saturating_mul(factor);
            if top >= most {
                return top;
            }
        }
        step = step.saturating_mul(10);
    }
}

fn escape(text: &str) -> String {
    let text: String = text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_for_each_kind() {
        let lines = [
            Line { name: "a<b".into(), values: vec![1, 70] },
            Line { name: "never".into(), values: vec![0, 0] },
        ];
        let text = svg("t", &["x".into(), "y".into()], &lines);
        assert!(text.contains("a&lt;b 70") && !text.contains("never"), "{text}");
        assert_eq!(text.matches("<polyline").count(), 1);
        assert_eq!(svg("t", &["x".into()], &lines).matches("<rect").count(), 2);
        assert_eq!((nice(1), nice(5), nice(9), nice(70), nice(801)), (4, 8, 20, 80, 2000));
        assert!(nice(u64::MAX) > 0);
    }
}
