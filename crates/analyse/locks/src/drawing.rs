//! The report as a picture: who blocked whom as a matrix, and the orders in which locks were taken as a graph.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use crate::classes::Report;
use crate::time::time;

/// Places of a side of the matrix at most; the others are one.
const PLACES: usize = 12;
/// Orders that are drawn at most.
const ORDERS: usize = 60;
/// Letters of a name that are shown.
const LETTERS: usize = 44;
const LETTER: f64 = 6.6;
const CELL: (f64, f64) = (74.0, 26.0);
const MARGIN: f64 = 20.0;
const BOX: (f64, f64) = (270.0, 24.0);
const GAP: (f64, f64) = (110.0, 16.0);
const OTHERS: &str = "(other places)";

/// Waits of the places that waited for the places that held the locks.
pub struct Matrix {
    /// Places that waited, longest first.
    pub waiters: Vec<String>,
    /// Places that held locks meanwhile, longest first.
    pub holders: Vec<String>,
    /// Nanoseconds by waiter and holder.
    pub waited_ns: Vec<Vec<u64>>,
}

impl Matrix {
    /// Of all locks together, with so many places on a side at most.
    pub fn new(report: &Report, most: usize) -> Matrix {
        let mut pairs: BTreeMap<(String, String), u64> = BTreeMap::new();
        for class in report.classes.iter().filter(|class| class.kind.is_lock()) {
            for pair in class.blocking.iter().filter(|pair| pair.waited_ns > 0) {
                let holder = match pair.holder {
                    Some(_) => pair.holder_text(class.kind),
                    None => format!("({})", pair.holder_text(class.kind)),
                };
                *pairs.entry((pair.waiter.text(), holder)).or_default() += pair.waited_ns;
            }
        }
        let waiters = longest(pairs.iter().map(|((waiter, _), ns)| (waiter, *ns)), most);
        let holders = longest(pairs.iter().map(|((_, holder), ns)| (holder, *ns)), most);
        let mut waited_ns = vec![vec![0; holders.len()]; waiters.len()];
        let place = |names: &[String], name: &String| {
            names.iter().position(|known| known == name).unwrap_or(names.len() - 1)
        };
        for ((waiter, holder), ns) in &pairs {
            waited_ns[place(&waiters, waiter)][place(&holders, holder)] += ns;
        }
        Matrix { waiters, holders, waited_ns }
    }
}

/// Names by their sum, the largest first; where there are more than `most`, the last stands for all others.
fn longest<'a>(of: impl Iterator<Item = (&'a String, u64)>, most: usize) -> Vec<String> {
    let mut sums: BTreeMap<&String, u64> = BTreeMap::new();
    for (name, ns) in of {
        *sums.entry(name).or_default() += ns;
    }
    let mut sums: Vec<(&String, u64)> = sums.into_iter().collect();
    sums.sort_by_key(|(_, ns)| std::cmp::Reverse(*ns));
    let mut names: Vec<String> = sums.iter().take(most).map(|(name, _)| (*name).clone()).collect();
    if sums.len() > most {
        names.pop();
        names.push(OTHERS.to_owned());
    }
    names
}

/// Draws both, one above the other.
pub fn svg(report: &Report) -> String {
    let matrix = Matrix::new(report, PLACES);
    let graph = Layers::new(report);
    let mut body = String::new();
    let (wide, below) = draw_matrix(&mut body, &matrix);
    let (also_wide, end) = draw_graph(&mut body, &graph, below);
    let width = wide.max(also_wide);
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {end:.0}\" width=\"{width:.0}\" \
         height=\"{end:.0}\" font-family=\"monospace\" font-size=\"11\">\n<defs>{}{}</defs>\n<rect \
         width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n{body}</svg>\n",
        arrow("plain", "#5d6875"),
        arrow("red", "#c22"),
    )
}

fn arrow(name: &str, colour: &str) -> String {
    format!(
        "<marker id=\"{name}\" viewBox=\"0 0 8 8\" refX=\"8\" refY=\"4\" markerWidth=\"7\" markerHeight=\"7\" \
         orient=\"auto-start-reverse\"><path d=\"M0 0 8 4 0 8z\" fill=\"{colour}\"/></marker>"
    )
}

fn title(out: &mut String, y: f64, text: &str) {
    let _ = writeln!(
        out,
        "<text x=\"{MARGIN}\" y=\"{y:.0}\" font-family=\"sans-serif\" font-size=\"15\">{text}</text>"
    );
}

/// The matrix; how wide it is, and where it ends.
fn draw_matrix(out: &mut String, matrix: &Matrix) -> (f64, f64) {
    title(out, 28.0, "Who blocked whom: time waited, by waiter (rows) and holder (columns)");
    let all: u64 = matrix.waited_ns.iter().flatten().sum();
    if all == 0 {
        let _ = writeln!(out, "<text x=\"{MARGIN}\" y=\"52\">no thread waited for a lock</text>");
        return (620.0, 76.0);
    }
    let letters = |names: &[String]| {
        names.iter().map(|name| shortened(name).chars().count()).max().unwrap_or(0) as f64
    };
    let left = MARGIN + letters(&matrix.waiters) * LETTER + 10.0;
    // Names of columns go up at an angle of 45 degrees.
    let slant = letters(&matrix.holders) * LETTER * 0.71;
    let top = 48.0 + slant;
    for (column, holder) in matrix.holders.iter().enumerate() {
        let x = left + (column as f64 + 0.5) * CELL.0;
        let y = top - 6.0;
        let _ = writeln!(
            out,
            "<text transform=\"translate({x:.1} {y:.1}) rotate(-45)\">{}</text>",
            escaped(&shortened(holder))
        );
    }
    let most = matrix.waited_ns.iter().flatten().copied().max().unwrap_or(1);
    for (row, (waiter, cells)) in matrix.waiters.iter().zip(&matrix.waited_ns).enumerate() {
        let y = top + row as f64 * CELL.1;
        let _ = writeln!(
            out,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            left - 8.0,
            y + 17.0,
            escaped(&shortened(waiter))
        );
        for (column, &ns) in cells.iter().enumerate() {
            let x = left + column as f64 * CELL.0;
            let shade = (ns as f64 / most as f64).sqrt();
            let _ = writeln!(
                out,
                "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{}\" height=\"{}\" fill=\"#b8476a\" \
                 fill-opacity=\"{shade:.3}\" stroke=\"#dfe3e8\"><title>{} waited {} for {}</title></rect>",
                CELL.0,
                CELL.1,
                escaped(waiter),
                time(ns),
                escaped(&matrix.holders[column])
            );
            if ns > 0 {
                let ink = if shade > 0.6 { "#fff" } else { "#1d232b" };
                let (x, y) = (x + CELL.0 / 2.0, y + 17.0);
                let _ = writeln!(
                    out,
                    "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"middle\" fill=\"{ink}\">{}</text>",
                    time(ns)
                );
            }
        }
    }
    let wide = left + matrix.holders.len() as f64 * CELL.0 + slant + MARGIN;
    (wide.max(620.0), top + matrix.waiters.len() as f64 * CELL.1 + 30.0)
}

/// The orders of locks in columns: a lock stands to the right of those that were held when it was asked for, as far
/// as circles let it.
struct Layers {
    /// Names, with column and place in it.
    locks: BTreeMap<String, (usize, usize)>,
    /// From, to, how often, and whether a possible deadlock has it.
    orders: Vec<(String, String, u64, bool)>,
    left_out: usize,
}

impl Layers {
    fn new(report: &Report) -> Layers {
        let steps = report.deadlocks.iter().flat_map(|deadlock| &deadlock.steps);
        let dangerous: BTreeSet<(&str, &str)> =
            steps.map(|step| (step.holds.as_str(), step.wants.as_str())).collect();
        let mut orders: Vec<(String, String, u64, bool)> = report
            .orders
            .iter()
            .map(|order| {
                let red = dangerous.contains(&(order.outer.as_str(), order.inner.as_str()));
                (order.outer.clone(), order.inner.clone(), order.count, red)
            })
            .collect();
        orders.sort_by_key(|(.., count, red)| std::cmp::Reverse((*red, *count)));
        let left_out = orders.len().saturating_sub(ORDERS);
        orders.truncate(ORDERS);
        let mut column: BTreeMap<&str, usize> = BTreeMap::new();
        for (outer, inner, ..) in &orders {
            column.entry(outer).or_default();
            column.entry(inner).or_default();
        }
        // An order that would move a lock behind all others is part of a circle, and leads back.
        let last = column.len().saturating_sub(1);
        for _ in 0..column.len() {
            for (outer, inner, ..) in orders.iter().filter(|(outer, inner, ..)| outer != inner) {
                let wanted = column[outer.as_str()] + 1;
                if column[inner.as_str()] < wanted
                    && wanted <= last
                    && !leads(&orders, inner, outer)
                {
                    column.insert(inner, wanted);
                }
            }
        }
        let mut heights: BTreeMap<usize, usize> = BTreeMap::new();
        let mut locks = BTreeMap::new();
        for (name, column) in column {
            let height = heights.entry(column).or_default();
            locks.insert(name.to_owned(), (column, *height));
            *height += 1;
        }
        Layers { locks, orders, left_out }
    }

    /// Upper left corner of a lock's box.
    fn place(&self, name: &str, top: f64) -> (f64, f64) {
        let (column, height) = self.locks[name];
        (
            MARGIN + column as f64 * (BOX.0 + GAP.0),
            // Neighbours are set off from each other, so that lines between them do not hide others.
            top + height as f64 * (BOX.1 + GAP.1) + if column % 2 == 1 { GAP.1 } else { 0.0 },
        )
    }
}

/// Whether orders lead from one lock to another.
fn leads(orders: &[(String, String, u64, bool)], from: &str, to: &str) -> bool {
    let mut seen = BTreeSet::from([from]);
    let mut open = vec![from];
    while let Some(at) = open.pop() {
        if at == to {
            return true;
        }
        for (_, inner, ..) in orders.iter().filter(|(outer, ..)| outer == at) {
            if seen.insert(inner) {
                open.push(inner);
            }
        }
    }
    false
}

/// The graph; how wide it is, and where it ends.
fn draw_graph(out: &mut String, graph: &Layers, above: f64) -> (f64, f64) {
    title(
        out,
        above,
        "Orders: an arrow leads from a lock to one that was asked for while it was held",
    );
    let top = above + 24.0;
    if graph.orders.is_empty() {
        let y = above + 24.0;
        let _ = writeln!(
            out,
            "<text x=\"{MARGIN}\" y=\"{y:.0}\">no lock was asked for while another was held</text>"
        );
        return (620.0, y + MARGIN);
    }
    for (outer, inner, count, red) in &graph.orders {
        let ((from_x, from_y), (to_x, to_y)) = (graph.place(outer, top), graph.place(inner, top));
        let (from_y, to_y) = (from_y + BOX.1 / 2.0, to_y + BOX.1 / 2.0);
        // Forward from the right side to the left one; back, and within a column, around the right side.
        let path = if to_x > from_x {
            let (start, bend) = (from_x + BOX.0, GAP.0 / 2.0);
            format!(
                "M{start:.1} {from_y:.1}C{:.1} {from_y:.1} {:.1} {to_y:.1} {to_x:.1} {to_y:.1}",
                start + bend,
                to_x - bend
            )
        } else {
            let (start, end) = (from_x + BOX.0, to_x + BOX.0);
            let out = start.max(end) + GAP.0 * 0.6;
            format!(
                "M{start:.1} {from_y:.1}C{out:.1} {:.1} {out:.1} {:.1} {end:.1} {:.1}",
                from_y + 4.0,
                to_y + 4.0,
                to_y + 6.0
            )
        };
        let (colour, marker, wide) =
            if *red { ("#c22", "red", 2.0) } else { ("#5d6875", "plain", 1.0) };
        let _ = writeln!(
            out,
            "<path d=\"{path}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"{wide}\" \
             marker-end=\"url(#{marker})\"><title>{} then {}: {count} times</title></path>",
            escaped(outer),
            escaped(inner)
        );
    }
    let (wide, mut end) = draw_locks(out, graph, top);
    if graph.left_out > 0 {
        end += 22.0;
        let n = graph.left_out;
        let _ = writeln!(
            out,
            "<text x=\"{MARGIN}\" y=\"{end:.0}\">{n} more orders, taken less often</text>"
        );
    }
    (wide, end + MARGIN)
}

/// The boxes of the graph; how wide it is, and where they end.
fn draw_locks(out: &mut String, graph: &Layers, top: f64) -> (f64, f64) {
    let mut end = top;
    let mut wide: f64 = 620.0;
    for name in graph.locks.keys() {
        let (x, y) = graph.place(name, top);
        (end, wide) = (end.max(y + BOX.1), wide.max(x + BOX.0 + GAP.0));
        let _ = writeln!(
            out,
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{}\" height=\"{}\" rx=\"3\" fill=\"#f6f7f9\" \
             stroke=\"#5d6875\"/><text x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            BOX.0,
            BOX.1,
            x + 8.0,
            y + 16.0,
            escaped(&shortened(name).chars().take(38).collect::<String>())
        );
    }
    (wide, end)
}

/// A name with its middle left out if it is long: both ends tell names apart.
fn shortened(name: &str) -> String {
    let letters: Vec<char> = name.chars().collect();
    if letters.len() <= LETTERS {
        return name.to_owned();
    }
    let half = (LETTERS - 1) / 2;
    let (begin, end) = (&letters[..half], &letters[letters.len() - half..]);
    format!("{}…{}", begin.iter().collect::<String>(), end.iter().collect::<String>())
}

/// A text as XML has it.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            letter if letter.is_control() => out.push('\u{fffd}'),
            letter => out.push(letter),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn orders(pairs: &[(&str, &str)]) -> Vec<(String, String, u64, bool)> {
        pairs.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned(), 1, false)).collect()
    }

    #[test]
    fn the_last_name_stands_for_all_that_have_no_room() {
        let names = ["a", "b", "c", "d"].map(str::to_owned);
        let of = |most| longest(names.iter().zip([4, 1, 3, 2]), most);
        assert_eq!(of(4), ["a", "c", "d", "b"]);
        assert_eq!(of(3), ["a", "c", OTHERS]);
    }

    #[test]
    fn orders_lead_on() {
        let orders = orders(&[("a", "b"), ("b", "c"), ("c", "b")]);
        assert!(leads(&orders, "a", "c") && leads(&orders, "c", "b"));
        assert!(!leads(&orders, "b", "a"));
    }

    #[test]
    fn the_picture_has_waits_and_orders() {
        let drawn = svg(&crate::graph::tests::report());
        assert!(drawn.contains("<title>short;er waited 70 ns for longer</title>"), "{drawn}");
        let red = drawn.lines().filter(|line| line.contains("url(#red)"));
        assert_eq!(red.count(), 2, "{drawn}");
        assert!(drawn.contains("<title>b then &quot;c&quot;: 3 times</title>"), "{drawn}");
    }

    #[test]
    fn names_are_text() {
        assert_eq!(
            escaped("std::map<a, \"b\">&\n"),
            "std::map&lt;a, &quot;b&quot;&gt;&amp;\u{fffd}"
        );
        let long = "x".repeat(60) + "end";
        assert_eq!(shortened(&long).chars().count(), 43);
        assert!(shortened(&long).ends_with("end"));
    }
}
