//! Call durations as bars.

use std::fmt::Write;

use super::table::{BOLD, paint};
use super::text::latency_line;
use super::units::{count, duration};
use super::{Terminal, escaped, page};
use crate::histogram::{Bar, Histogram};

/// Characters of the longest bar where the terminal's width is not known.
const BAR_WIDTH: usize = 50;

fn most(bars: &[Bar]) -> u64 {
    bars.iter().map(|bar| bar.calls).max().unwrap_or(0).max(1)
}

/// The histogram in a terminal.
pub fn histogram_text(histogram: &Histogram, terminal: Terminal) -> String {
    let mut out = String::new();
    paint(&mut out, &histogram.name, BOLD, terminal.colour);
    out.push('\n');
    if histogram.partial {
        out.push_str("! Records are missing: this is of the calls whose records were kept.\n");
    }
    out.push_str(&latency_line(histogram.latency));
    out.push('\n');
    let most = most(&histogram.bars);
    let calls_width = count(most).len().max(5);
    let room = terminal.width.map_or(BAR_WIDTH, |width| width.saturating_sub(calls_width + 13));
    for bar in &histogram.bars {
        // Eighths of a character; a bar that is not empty is seen.
        let eighths = (bar.calls as f64 / most as f64 * room.max(10) as f64 * 8.0).round() as usize;
        let eighths = eighths.max(usize::from(bar.calls > 0));
        let mut drawn = "█".repeat(eighths / 8);
        drawn.extend(['▏', '▎', '▍', '▌', '▋', '▊', '▉'].get((eighths % 8).wrapping_sub(1)));
        let line =
            format!("{:>9}  {:>calls_width$}  {drawn}", duration(bar.from_ns), count(bar.calls));
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

/// The histogram as an HTML page.
pub fn histogram_html(histogram: &Histogram) -> String {
    let mut above = latency_line(histogram.latency).trim_end().to_owned();
    if histogram.partial {
        above.push_str(" Records are missing: this is of the calls whose records were kept.");
    }
    page::html(&histogram.name, &above, &histogram_svg(histogram))
}

/// The histogram as an SVG drawing. Durations grow to the right, on a logarithmic scale.
pub fn histogram_svg(histogram: &Histogram) -> String {
    const WIDTH: f64 = 900.0;
    const HEIGHT: f64 = 300.0;
    let bars = &histogram.bars;
    let most = most(bars);
    let step = WIDTH / bars.len().max(1) as f64;
    let mut svg = String::new();
    // Writing to a String cannot fail.
    let _ = write!(
        svg,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {}\" \
         font-family=\"system-ui,sans-serif\" font-size=\"11\">\n<title>{}</title>\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n",
        HEIGHT + 40.0,
        escaped(&histogram.name)
    );
    let labels_every = bars.len().div_ceil(12).max(1);
    for (at, bar) in bars.iter().enumerate() {
        let height = bar.calls as f64 / most as f64 * HEIGHT;
        let height = if bar.calls > 0 { height.max(1.0) } else { 0.0 };
        let x = at as f64 * step;
        let _ = writeln!(
            svg,
            "<g><title>{} to {}: {} calls</title><rect x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" \
             height=\"{height:.1}\" fill=\"#d9772b\"/></g>",
            duration(bar.from_ns),
            duration(bar.to_ns),
            count(bar.calls),
            x + 1.0,
            HEIGHT + 10.0 - height,
            (step - 2.0).max(0.5)
        );
        if at % labels_every == 0 {
            let y = HEIGHT + 28.0;
            let text = duration(bar.from_ns);
            let _ = writeln!(svg, "<text x=\"{x:.1}\" y=\"{y}\" fill=\"#555\">{text}</text>");
        }
    }
    svg.push_str("</svg>\n");
    svg
}
