//! A paper's page.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use anyhow::Result;

use super::paper::Paper;
use super::sources::Sources;
use super::table::{Row, Table};
use crate::proc;

/// Writes the page, and a plot for each table.
/// `missed` are reasons of what could not be measured this time.
pub fn write(
    folder: &Path,
    paper: &Paper,
    tables: &[Table],
    missed: &[String],
    sources: &Sources,
) -> Result<()> {
    let Paper { name, page, title, missing, .. } = paper;
    let machine = sources.machine();
    let date = proc::output_of(Command::new("date").args(["-u", "+%F"]))?;
    let mut text = format!(
        "# {title}\n\nWritten by `cargo xtask papers {name}` on {}. Machine: {}, {} processors, Linux {}.\n",
        date.trim(),
        machine["processor"].as_str().unwrap_or("unknown"),
        machine["processors"],
        machine["kernel"].as_str().unwrap_or("unknown"),
    );
    if sources.quick {
        text.push_str("A first look with few rounds (`--quick`), not a figure.\n");
    }
    if sources.reuse {
        text.push_str("What benchmarks had left before (`--reuse`) was not measured again.\n");
    }
    for table in tables {
        let _ = write!(text, "\n{}", table.as_markdown());
        let short: String = table
            .name
            .to_lowercase()
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
            .collect();
        let file = format!("{page}-{short}.svg");
        if let Some(svg) = plot(&table.rows) {
            std::fs::write(folder.join(&file), svg)?;
            let _ = writeln!(text, "\n![{}]({file})", table.name);
        }
    }
    if !missing.is_empty() || !missed.is_empty() {
        text.push_str("\n## Not measured\n\n| | why |\n|---|---|\n");
        for (what, why) in *missing {
            let _ = writeln!(text, "| {what} | {why} |");
        }
        // The cause, not all that a program has said.
        for why in missed.iter().filter_map(|why| why.lines().next()) {
            let _ = writeln!(text, "| this time | {} |", why.replace('|', "/"));
        }
    }
    std::fs::write(folder.join(format!("{page}.md")), text)?;
    Ok(())
}

/// Bars on a logarithmic scale: the paper's, ours with its interval, the peer's. `None` if there is
/// nothing to show.
fn plot(rows: &[Row]) -> Option<String> {
    const WIDTH: f64 = 720.0;
    const LEFT: f64 = 190.0;
    const BAR: f64 = 9.0;
    const GAP: f64 = 8.0;
    let positive = positive(rows);
    let least = positive.iter().copied().fold(1.0f64, f64::min);
    let most = positive.iter().copied().fold(1.0f64, f64::max);
    if positive.len() < 2 || most <= least {
        return None;
    }
    let x = |value: f64| {
        let share = (value.max(least).ln() - least.ln()) / (most.ln() - least.ln());
        LEFT + share * (WIDTH - LEFT - 70.0)
    };
    let mut body = String::new();
    let mut y = 10.0;
    let one = x(1.0);
    for row in rows {
        let what = row.what.replace('&', "&amp;").replace('<', "&lt;");
        let _ = writeln!(
            body,
            "<text x='{}' y='{}' text-anchor='end'>{what}</text>",
            LEFT - 8.0,
            y + 18.0
        );
        let ours = row.ours.map(|v| v.value);
        let peer = row.peer.as_ref().map(|(_, v)| v.value);
        for (value, class) in [(row.paper, "paper"), (ours, "ours"), (peer, "peer")] {
            if let Some(value) = value.filter(|value| *value > 0.0) {
                let (from, to) = (one.min(x(value)), one.max(x(value)));
                let width = (to - from).max(1.0);
                let _ = writeln!(
                    body,
                    "<rect class='{class}' x='{from:.1}' y='{y}' width='{width:.1}' height='{BAR}'/>"
                );
                let _ = writeln!(
                    body,
                    "<text class='n' x='{:.1}' y='{}'>{value:.2}</text>",
                    to + 4.0,
                    y + 8.0
                );
            }
            if let Some((low, high)) = row.ours.and_then(|v| v.interval).filter(|_| class == "ours")
            {
                let _ = writeln!(
                    body,
                    "<path d='M{:.1} {}H{:.1}' stroke='currentColor'/>",
                    x(low),
                    y + BAR / 2.0,
                    x(high)
                );
            }
            y += BAR + 1.0;
        }
        y += GAP;
    }
    let style = "text{font:11px sans-serif;fill:currentColor}.n{font-size:9px}.paper{fill:#9aa}.ours{fill:#2a78c2}.peer{fill:#d98a2b}";
    let key = format!(
        "<text x='{LEFT}' y='{}'>grey: the paper; blue: here; orange: the peer; a logarithmic scale</text>",
        y + 12.0
    );
    Some(format!(
        "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {WIDTH} {}' color='#555'><style>{style}</style>\n{body}{key}\n</svg>\n",
        y + 20.0
    ))
}

/// All values that a logarithmic scale can show.
fn positive(rows: &[Row]) -> Vec<f64> {
    let values = rows.iter().flat_map(|row| {
        let ours = row.ours.map(|v| v.value);
        [row.paper, ours, row.peer.as_ref().map(|(_, v)| v.value)].into_iter().flatten()
    });
    values.filter(|value| *value > 0.0).collect()
}

#[cfg(test)]
mod tests {
    use super::super::table::Value;
    use super::*;

    #[test]
    fn a_plot_has_a_bar_for_each_value() {
        let row = Row {
            what: "a < b".to_owned(),
            paper: Some(8.3),
            ours: Some(Value { value: 2.0, interval: Some((1.9, 2.1)) }),
            peer: None,
        };
        let svg = plot(&[row]).unwrap();
        assert_eq!(svg.matches("<rect").count(), 2);
        assert!(svg.contains("a &lt; b") && svg.contains("8.30"), "{svg}");
        assert!(plot(&[]).is_none());
    }
}
