//! What an analysis found, as text.

use fettle_follow::{Cell, Findable, Findings, Unit};
use fettle_report::render::{
    BOLD, Table, Terminal, WARN, column, count, duration, may_go, one_line, paint, percent, plural,
};

/// Rows of a table shown at most.
const ROWS_MAX: usize = 40;

/// All tables.
pub fn text(findings: &Findings, terminal: Terminal) -> String {
    let mut out = String::new();
    for problem in &findings.problems {
        paint(&mut out, &one_line(format!("! {problem}")), WARN, terminal.colour);
        out.push('\n');
    }
    let found = &findings.found;
    if found.tables.iter().all(|table| table.rows.is_empty()) {
        out.push_str(&format!("Nothing about {}.\n", findings.purpose));
        return out;
    }
    for (n, table) in found.tables.iter().enumerate() {
        if n > 0 {
            out.push('\n');
        }
        one_table(table, terminal, &mut out);
    }
    for note in &found.notes {
        out.push_str(&format!("\nnote: {}\n", one_line(note.clone())));
    }
    out
}

fn one_table(of: &Findable, terminal: Terminal, out: &mut String) {
    if !of.title.is_empty() {
        paint(out, &one_line(of.title.clone()), BOLD, terminal.colour);
        out.push('\n');
    }
    let Some((names, numbers)) = of.columns.split_last() else { return };
    // The first number is what rows are in order of; on a narrow terminal later ones go first.
    let columns: Vec<_> = numbers
        .iter()
        .enumerate()
        .map(|(n, c)| if n == 0 { column(c.name) } else { may_go(c.name, n.min(255) as u8) })
        .collect();
    let mut table = Table::new(&columns, names.name);
    for row in of.rows.iter().take(ROWS_MAX) {
        table.row(row.iter().zip(&of.columns).map(|(cell, column)| shown(cell, column.unit)));
    }
    table.render(terminal, out);
    if of.rows.len() > ROWS_MAX {
        let more = (of.rows.len() - ROWS_MAX) as u64;
        let more = plural(more, "more row", "more rows");
        out.push_str(&format!("… and {more} (--json has all)\n"));
    }
}

fn shown(cell: &Cell, unit: Unit) -> String {
    match (cell, unit) {
        (Cell::Number(n), Unit::Ns) => duration(*n),
        (Cell::Number(n), _) => count(*n),
        (Cell::Share(mean), Unit::Mean) => format!("{mean:.1}"),
        (Cell::Share(share), _) => percent(*share),
        (Cell::Text(text), _) => one_line(text.clone()),
        (Cell::None, _) => String::new(),
    }
}
