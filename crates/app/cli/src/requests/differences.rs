//! Two traces compared, as text.

use fettle_follow::{Diff, DiffGroup, DiffRow};
use fettle_report::render::{count, duration, one_line};

/// Pieces of a kind shown at most.
const ROWS_MAX: usize = 25;

/// All groups.
pub fn text(diff: &Diff) -> String {
    let mut out = String::new();
    for problem in &diff.problems {
        out.push_str(&one_line(format!("! {problem}")));
        out.push('\n');
    }
    let [before, after] = &diff.commands;
    out.push_str(&one_line(format!("before  {}", before.join(" "))));
    out.push_str(&format!("\n        {} requests\n", count(diff.requests[0])));
    out.push_str(&one_line(format!("after   {}", after.join(" "))));
    out.push_str(&format!("\n        {} requests\n", count(diff.requests[1])));
    for group in &diff.groups {
        one_group(group, &mut out);
    }
    out.push_str(
        "\nMeans; the interval holds their difference in 95 of 100 cases. * it does not hold 0.\n",
    );
    out
}

fn one_group(group: &DiffGroup, out: &mut String) {
    out.push_str(&format!("\n{}, time for a {}\n", group.title, group.per));
    out.push_str(&format!(
        "{:>8} {:>9} {:>6}   {:>8} {:>9} {:>6}   {:>10} {:>24}  \n",
        "before", "mean", "%", "after", "mean", "%", "change", "interval"
    ));
    for row in group.rows.iter().take(ROWS_MAX) {
        out.push_str(&line(row));
    }
    let more = group.rows.len().saturating_sub(ROWS_MAX);
    if more > 0 {
        out.push_str(&format!("and {} more; --json has all\n", count(more as u64)));
    }
}

fn line(row: &DiffRow) -> String {
    let side = |side: &fettle_follow::DiffSide| {
        let mean = duration(side.mean_ns.round() as u64);
        format!("{:>8} {mean:>9} {:>6.1}", count(side.count), side.share * 100.0)
    };
    let change = row.difference_ns.map_or("-".into(), signed);
    let (interval, certain) = match row.interval_ns {
        Some((low, high)) => {
            (format!("{} to {}", signed(low), signed(high)), low > 0.0 || high < 0.0)
        }
        None => ("-".into(), false),
    };
    let mark = if certain { '*' } else { ' ' };
    let name = one_line(row.name.clone());
    let (before, after) = (side(&row.before), side(&row.after));
    format!("{before}   {after}   {change:>10} {interval:>24} {mark} {name}\n")
}

/// A duration with its sign.
fn signed(ns: f64) -> String {
    let sign = if ns < 0.0 { '-' } else { '+' };
    format!("{sign}{}", duration(ns.abs().round() as u64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use fettle_follow::DiffSide;

    #[test]
    fn a_change_that_is_certain_is_marked() {
        let side = |mean_ns| DiffSide { count: 10, mean_ns, total_ns: 100, share: 0.5 };
        let mut row = DiffRow {
            name: "nginx  lock".into(),
            before: side(1000.0),
            after: side(3000.0),
            difference_ns: Some(2000.0),
            interval_ns: Some((500.0, 3500.0)),
            ratio: Some(3.0),
        };
        let shown = line(&row);
        assert!(shown.contains("+2.00 µs"), "{shown}");
        assert!(shown.contains("+500 ns to +3.50 µs * nginx  lock"), "{shown}");
        row.interval_ns = Some((-500.0, 4500.0));
        assert!(!line(&row).contains('*'));
    }
}
