//! A comparison as a page that needs nothing else.

use std::fmt::Write;

use fettle_report::render::{escaped, page_html};

use crate::result::{Cell, Comparison, Loaded};
use crate::text::{how, interval, label, load_name, ratio, time};

const STYLE: &str = "<style>table{border-collapse:collapse;margin:0 0 24px}\
    th,td{padding:2px 10px;text-align:right;white-space:nowrap}th{border-bottom:1px solid #999}\
    td.name,th.name,td.bar{text-align:left}tr.group td{border-top:1px solid #ddd}\
    td.bar{min-width:180px;padding:2px 0}td.bar i{display:block;height:10px;background:#4a7ebb}\
    td.dim{color:#777}h2{font-size:15px;margin:16px 0 4px}</style>\n";
/// Pixels of the longest bar.
const BAR: f64 = 180.0;

/// The page.
pub fn page(comparison: &Comparison) -> String {
    let names: Vec<&str> = comparison.systems.iter().map(|system| system.name.as_str()).collect();
    let mut content = STYLE.to_owned();
    let most = most(comparison);
    for loaded in &comparison.loads {
        let _ = writeln!(content, "<h2>{}</h2>", escaped(&load_name(loaded.spinners)));
        table(comparison, loaded, most, &mut content);
    }
    let changed = comparison.changed_by_load();
    if !changed.is_empty() {
        content.push_str("<h2>What other load changes</h2>\n<ul>\n");
        for change in changed {
            let _ = writeln!(
                content,
                "<li>{} on {}: {} with {}, {} with {}</li>",
                escaped(change.name),
                escaped(change.system),
                ratio(change.least.1.value),
                load_name(change.least.0),
                ratio(change.most.1.value),
                load_name(change.most.0),
            );
        }
        content.push_str("</ul>\n");
    }
    if !comparison.skipped.is_empty() {
        content.push_str("<h2>Not measured</h2>\n<ul>\n");
        for skipped in &comparison.skipped {
            let name = skipped.name.as_deref().map_or(String::new(), |name| format!("{name}: "));
            let line = format!("{}: {name}{}", skipped.system, skipped.why);
            let _ = writeln!(content, "<li>{}</li>", escaped(&line));
        }
        content.push_str("</ul>\n");
    }
    page_html(&names.join(" and "), &how(comparison), &content)
}

/// The largest ratio, which the longest bar stands for.
fn most(comparison: &Comparison) -> f64 {
    let rows = comparison.loads.iter().flat_map(|loaded| &loaded.rows);
    let ratios = rows.flat_map(|row| row.cells.iter().flatten()).filter_map(|cell| cell.ratio);
    ratios.map(|ratio| ratio.value).fold(2.0, f64::max)
}

fn table(comparison: &Comparison, loaded: &Loaded, most: f64, out: &mut String) {
    out.push_str("<table><tr><th class=name></th>");
    for (at, system) in comparison.systems.iter().enumerate() {
        let columns = if at == 0 { 1 } else { 4 };
        let _ = write!(out, "<th colspan={columns}>{}</th>", escaped(&system.name));
    }
    out.push_str("</tr>\n");
    let mut group = "";
    for row in &loaded.rows {
        let class = if row.group == group { "" } else { " class=group" };
        group = &row.group;
        let (name, what) = (escaped(&label(row)), escaped(&row.what));
        let _ = write!(out, "<tr{class}><td class=name title=\"{what}\">{name}</td>");
        for (at, cell) in row.cells.iter().enumerate() {
            let shown = cell.as_ref().map_or("-".to_owned(), |cell| time(cell.ns));
            let _ = write!(out, "<td>{shown}</td>");
            if at > 0 {
                compared(cell.as_ref(), most, out);
            }
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</table>\n");
}

/// Ratio, interval and bar. Bars grow with the ratio's logarithm; none is shorter than its edge.
fn compared(cell: Option<&Cell>, most: f64, out: &mut String) {
    let Some(found) = cell.and_then(|cell| cell.ratio) else {
        out.push_str("<td></td><td></td><td></td>");
        return;
    };
    let width = (found.value.max(1.0).ln() / most.ln() * BAR).max(1.0);
    let _ = write!(
        out,
        "<td>{}</td><td class=dim>{}</td><td class=bar><i style=\"width:{width:.0}px\"></i></td>",
        ratio(found.value),
        interval(found)
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::{Row, RowKind, SystemInfo};

    #[test]
    fn names_of_others_are_text() {
        let row = Row {
            kind: RowKind::Wall,
            name: "<script>".into(),
            group: "program".into(),
            what: "elapsed <b>".into(),
            cells: Row::cells_of(&[Some(vec![10.0; 6]), Some(vec![1000.0; 6])]),
        };
        let info = |name: &str| SystemInfo { name: name.into(), release: String::new() };
        let page = page(&Comparison {
            version: 1,
            machine: String::new(),
            systems: vec![info("native"), info("sh -c '<i>'")],
            rounds: 6,
            turn_ns: 0,
            loads: vec![Loaded { spinners: 0, rows: vec![row] }],
            skipped: Vec::new(),
        });
        assert!(!page.contains("<script>") && !page.contains("<b>"), "{page}");
        assert!(page.contains("×100") && page.contains("width:180px"), "{page}");
    }
}
