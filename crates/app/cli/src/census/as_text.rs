//! The census for people.

use std::collections::BTreeMap;
use std::fmt::Write;

use fettle_census::diff::{Diff, by_kind};
use fettle_census::kinds::{Kind, Kinds};
use fettle_census::site::Leaving;
use fettle_census::source::{Reader, Tree};
use fettle_census::tally::{self, Tally, tally};
use fettle_report::render::{Column, Table, Terminal, column, count, may_go, percent};

use super::arguments::{Args, Rows};
use crate::output::plural;

/// The census of one source.
pub fn tree(args: &Args, tree: &Tree, reader: &Reader, terminal: Terminal) -> String {
    let kinds = reader.kinds();
    let whole = tally::whole(tree);
    let mut out = format!(
        "{}: {} files, {} lines of code, {} functions; {} operations on locks in {} of them, {:.1} in 1,000 lines\n",
        tree.name,
        count(whole.files.0),
        count(whole.code_lines),
        count(whole.functions.0),
        count(whole.sites()),
        count(whole.functions.1),
        whole.density(),
    );
    let sets: Vec<_> = kinds.sets().collect();
    let _ = writeln!(out, "kinds of {}", sets.join(", "));
    if whole.implementation > 0 {
        let _ = writeln!(
            out,
            "{} more are in functions and macros that are operations themselves: how a lock is made",
            count(whole.implementation)
        );
    }
    out.push('\n');
    kinds_table(&whole.kinds, kinds, terminal, &mut out);
    nesting(&whole, &mut out);
    builds(args, &whole, &mut out);
    rows(args, tree, terminal, &mut out);
    if args.candidates {
        candidates(args, tree, kinds, terminal, &mut out);
    }
    if args.sites {
        sites(tree, kinds, &mut out);
    }
    if args.hunks {
        hunks(tree, &mut out);
    }
    skipped(tree, &mut out);
    out
}

fn kinds_table(
    of: &BTreeMap<Kind, tally::Counts>,
    kinds: &Kinds,
    terminal: Terminal,
    out: &mut String,
) {
    if of.is_empty() {
        return;
    }
    let columns = [
        column("all"),
        column("lock"),
        column("unlock"),
        may_go("try", 1),
        may_go("scoped", 2),
        may_go("other", 3),
    ];
    let mut table = Table::new(&columns, "kind");
    let mut sorted: Vec<_> = of.iter().collect();
    sorted.sort_by_key(|(kind, counts)| (std::cmp::Reverse(counts.sum()), **kind));
    for (kind, counts) in sorted {
        let numbers =
            [counts.sum(), counts.lock, counts.unlock, counts.attempt, counts.scoped, counts.other];
        let cells = numbers.into_iter().map(count).chain([kinds.name(*kind).to_owned()]);
        table.row(cells);
    }
    table.render(terminal, out);
    out.push('\n');
}

fn nesting(whole: &Tally, out: &mut String) {
    let all: u64 = whole.depths.iter().sum();
    if all == 0 {
        return;
    }
    out.push_str("held behind an acquisition, by the function's text:");
    for (at, &number) in whole.depths.iter().enumerate().filter(|(_, number)| **number > 0) {
        let more = if at + 1 == tally::DEEPEST { " or more" } else { "" };
        let _ = write!(
            out,
            "{} {}{more} {} ({})",
            if at == 0 { "" } else { "," },
            at + 1,
            count(number),
            percent(number as f64 / all as f64)
        );
    }
    out.push('\n');
    let of = |leaving| whole.candidates.get(&leaving).copied().unwrap_or(0);
    let (always, sometimes) = (of(Leaving::Always), of(Leaving::OnOneWay));
    if always + sometimes > 0 {
        let _ = writeln!(
            out,
            "taken and not let go of: {} where the function lets go of none of that kind, {} on one way out \
             of several (--candidates)",
            count(always),
            count(sometimes)
        );
    }
}

fn builds(args: &Args, whole: &Tally, out: &mut String) {
    if !args.has_builds() {
        return;
    }
    let (lines, files) = &whole.builds;
    let share = lines.changed() as f64 / lines.without.max(1) as f64;
    let _ = writeln!(
        out,
        "builds: {} lines without, {} with; {} differ in {} of {} files ({}): {} modified, {} new, {} removed",
        count(lines.without),
        count(lines.with),
        count(lines.changed()),
        count(*files),
        count(whole.files.0),
        percent(share),
        count(lines.modified),
        count(lines.new),
        count(lines.removed),
    );
}

fn rows(args: &Args, tree: &Tree, terminal: Terminal, out: &mut String) {
    let parts = tally(tree, args.by());
    let mut parts: Vec<_> =
        parts.iter().filter(|(_, part)| part.sites() > 0 || part.builds.1 > 0).collect();
    parts.sort_by_key(|(name, part)| (std::cmp::Reverse(part.sites()), *name));
    if parts.is_empty() {
        return;
    }
    out.push('\n');
    let by_function = args.by == Rows::Function;
    let mut columns: Vec<Column<'_>> = vec![column("sites")];
    if !by_function {
        columns.extend([column("per 1,000"), may_go("lines", 2), may_go("functions", 3)]);
        if args.has_builds() {
            columns.push(may_go("differ", 1));
        }
    }
    columns.extend([column("deepest"), column("candidates")]);
    let title = match args.by {
        Rows::Subsystem => "subsystem",
        Rows::File => "file",
        Rows::Function => "function",
    };
    let mut table = Table::new(&columns, title);
    for (name, part) in parts.iter().take(args.rows()) {
        let mut cells = vec![count(part.sites())];
        if !by_function {
            cells.extend([
                format!("{:.1}", part.density()),
                count(part.code_lines),
                count(part.functions.1),
            ]);
            if args.has_builds() {
                cells.push(count(part.builds.0.changed()));
            }
        }
        let deepest = part.depths.iter().rposition(|&number| number > 0).map_or(0, |at| at + 1);
        cells.extend([count(deepest as u64), count(part.candidates.values().sum())]);
        cells.push((*name).clone());
        table.row(cells);
    }
    table.render(terminal, out);
    more(parts.len(), args.rows(), out);
}

fn more(all: usize, shown: usize, out: &mut String) {
    if all > shown {
        let left = plural((all - shown) as u64, "more row", "more rows");
        let _ = writeln!(out, "… and {left} (--top 0 shows all)");
    }
}

fn candidates(args: &Args, tree: &Tree, kinds: &Kinds, terminal: Terminal, out: &mut String) {
    let mut found = Vec::new();
    for (path, counted) in &tree.files {
        for candidate in &counted.census.candidates {
            let function = counted.census.functions.get(candidate.function as usize);
            found.push((candidate, path, function.map_or("?", |function| &function.name)));
        }
    }
    // What a function forgets on one way is more likely a fault than what it is named for.
    found.sort_by_key(|(candidate, path, _)| {
        (std::cmp::Reverse(candidate.leaving), path.as_str(), candidate.line)
    });
    out.push('\n');
    let columns = [column("taken"), column("left"), column("how"), column("kind")];
    let mut table = Table::new(&columns, "lock and function");
    for (candidate, path, function) in found.iter().take(args.rows()) {
        table.row([
            candidate.line.to_string(),
            candidate.exit.to_string(),
            how(candidate.leaving).into(),
            kinds.name(candidate.kind).into(),
            format!("{} in {function} {path}", candidate.lock),
        ]);
    }
    table.render(terminal, out);
    more(found.len(), args.rows(), out);
}

fn how(leaving: Leaving) -> &'static str {
    match leaving {
        Leaving::Always => "always",
        Leaving::OnOneWay => "one way",
    }
}

fn sites(tree: &Tree, kinds: &Kinds, out: &mut String) {
    out.push('\n');
    for (path, counted) in &tree.files {
        for site in &counted.census.sites {
            let function = counted.census.functions.get(site.function as usize);
            let _ = writeln!(
                out,
                "{path}:{}: {} {} in {}{}",
                site.line,
                kinds.name(site.kind),
                format!("{:?}", site.operation).to_lowercase(),
                function.map_or("?", |function| &function.name),
                if site.implementation { ", which is one itself" } else { "" },
            );
        }
    }
}

fn hunks(tree: &Tree, out: &mut String) {
    out.push('\n');
    for (path, counted) in &tree.files {
        for hunk in counted.builds.iter().flat_map(|builds| &builds.hunks) {
            let list = |lines: &[u32]| {
                let (first, last) = (lines.first(), lines.last());
                match (first, last) {
                    (Some(first), Some(last)) if first != last => {
                        format!("{} ({first} to {last})", lines.len())
                    }
                    (Some(only), _) => format!("1 ({only})"),
                    _ => "0".into(),
                }
            };
            let _ = writeln!(
                out,
                "{path}:{}: lines without {}, with {}",
                hunk.line,
                list(&hunk.without),
                list(&hunk.with)
            );
        }
    }
}

fn skipped(tree: &Tree, out: &mut String) {
    for (path, why) in &tree.skipped {
        let _ = writeln!(out, "skipped {path}: {why}");
    }
}

/// Several sources, a row for each.
pub fn trend(args: &Args, trees: &[Tree], kinds: &Kinds, terminal: Terminal) -> String {
    let wholes: Vec<Tally> = trees.iter().map(tally::whole).collect();
    let mut sums: BTreeMap<Kind, u64> = BTreeMap::new();
    for (kind, counts) in wholes.iter().flat_map(|whole| &whole.kinds) {
        *sums.entry(*kind).or_default() += counts.sum();
    }
    let mut sorted: Vec<_> = sums.into_iter().collect();
    sorted.sort_by_key(|(kind, sum)| (std::cmp::Reverse(*sum), *kind));
    let mut columns = vec![column("sites"), column("per 1,000"), may_go("lines", 100)];
    if args.has_builds() {
        columns.extend([column("differ"), may_go("files", 99)]);
    }
    for (rank, (kind, _)) in sorted.iter().enumerate() {
        columns.push(may_go(kinds.name(*kind), rank.min(98) as u8 + 1));
    }
    let mut table = Table::new(&columns, "source");
    for (tree, whole) in trees.iter().zip(&wholes) {
        let mut cells =
            vec![count(whole.sites()), format!("{:.1}", whole.density()), count(whole.code_lines)];
        if args.has_builds() {
            cells.extend([count(whole.builds.0.changed()), count(whole.builds.1)]);
        }
        let of = |kind| whole.kinds.get(kind).map_or(0, tally::Counts::sum);
        cells.extend(sorted.iter().map(|(kind, _)| count(of(kind))));
        cells.push(tree.name.clone());
        table.row(cells);
    }
    let mut out = String::new();
    table.render(terminal, &mut out);
    trees.iter().for_each(|tree| skipped(tree, &mut out));
    out
}

/// What changed.
pub fn diff(
    args: &Args,
    before: &Tree,
    after: &Tree,
    found: &Diff,
    kinds: &Kinds,
    terminal: Terminal,
) -> String {
    let (old, new) = (tally::whole(before), tally::whole(after));
    let mut out = format!(
        "{} to {}: {} operations on locks, then {}\n",
        before.name,
        after.name,
        count(old.sites()),
        count(new.sites()),
    );
    for (kind, (more, fewer)) in by_kind(found, kinds) {
        let _ = writeln!(out, "  {kind}: {} more, {} fewer", count(more), count(fewer));
    }
    if !found.changes.is_empty() {
        out.push('\n');
        let columns = [column("before"), column("after"), column("kind"), column("operation")];
        let mut table = Table::new(&columns, "function");
        for change in found.changes.iter().take(args.rows()) {
            table.row([
                count(change.before),
                count(change.after),
                kinds.name(change.kind).into(),
                format!("{:?}", change.operation).to_lowercase(),
                format!("{} {}", change.function, change.path),
            ]);
        }
        table.render(terminal, &mut out);
        more(found.changes.len(), args.rows(), &mut out);
    }
    for new in &found.candidates {
        let candidate = &new.candidate;
        let _ = writeln!(
            out,
            "{}:{}: {} takes {} and may leave with it in line {} ({})",
            new.path,
            candidate.line,
            new.function,
            candidate.lock,
            candidate.exit,
            how(candidate.leaving),
        );
    }
    for deeper in &found.deeper {
        let _ = writeln!(
            out,
            "{}: {} holds up to {} locks, before {}",
            deeper.path, deeper.function, deeper.after, deeper.before
        );
    }
    skipped(before, &mut out);
    skipped(after, &mut out);
    out
}
