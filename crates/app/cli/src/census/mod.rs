//! `fettle census`: lock operations in source code.

mod arguments;
mod as_json;
mod as_text;

use std::process::ExitCode;

use anyhow::{Context, bail};
use fettle_census::chart::{Line, svg};
use fettle_census::diff::{Diff, diff};
use fettle_census::kinds::Kinds;
use fettle_census::names::Names;
use fettle_census::source::{Options, Pattern, Reader, Tree};
use fettle_census::tally;

pub use arguments::Args;
use arguments::FailOn;

use crate::output::{self, terminal};

/// Runs the command.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    if args.hunks && !args.has_builds() {
        bail!("--hunks lists where builds differ: say which by --smp or --conditional NAME");
    }
    let mut reader = Reader::new(options(args)?, &args.repo);
    let mut names = Vec::new();
    for source in &args.sources {
        let expanded = reader.expand(source)?;
        if expanded.is_empty() {
            bail!("{source} holds no commit");
        }
        names.extend(expanded);
    }
    if args.diff {
        return compare(args, &mut reader, &names);
    }
    let trees = names.iter().map(|name| reader.read(name)).collect::<Result<Vec<_>, _>>()?;
    for tree in &trees {
        if tree.files.is_empty() {
            say!("fettle: {}: no file is of a language that is counted", tree.name);
        }
    }
    if let Some(path) = &args.svg {
        let picture = picture(&trees, reader.kinds());
        std::fs::write(path, picture).with_context(|| format!("writing {}", path.display()))?;
    }
    let text = match (args.json, &trees[..]) {
        (true, _) => as_json::trees(args, &trees, reader.kinds()),
        (false, [tree]) => as_text::tree(args, tree, &reader, terminal(args.no_color)),
        (false, _) => as_text::trend(args, &trees, reader.kinds(), terminal(args.no_color)),
    };
    output::print(&text)?;
    let skipped = trees.iter().any(|tree| !tree.skipped.is_empty() || tree.files.is_empty());
    Ok(ExitCode::from(u8::from(skipped)))
}

fn options(args: &Args) -> anyhow::Result<Options> {
    let mut kinds = Kinds::default();
    for name in &args.kinds {
        if !kinds.add_built_in(name)? {
            let text = std::fs::read_to_string(name).with_context(|| {
                let sets: Vec<_> = Kinds::built_in().collect();
                format!("{name} is none of the sets {}, and as a file", sets.join(", "))
            })?;
            kinds.add(name, &text)?;
        }
    }
    if args.kinds.is_empty() {
        kinds = Kinds::usual()?;
    }
    let mut names = Names::default();
    names.closed = args.closed;
    for name in &args.define {
        names.define(name);
    }
    for name in &args.undefine {
        names.undefine(name);
    }
    let mut builds = args.conditional.clone();
    if args.smp {
        builds.extend(["CONFIG_SMP".into(), "__SMP__".into()]);
    }
    let patterns = |texts: &[String]| texts.iter().map(|text| Pattern::new(text)).collect();
    let (only, except) = (patterns(&args.only), patterns(&args.except));
    Ok(Options { kinds, names, builds, only, except })
}

fn compare(args: &Args, reader: &mut Reader, names: &[String]) -> anyhow::Result<ExitCode> {
    let [before, after] = names else {
        bail!("--diff compares two sources, and there are {}", names.len());
    };
    let (before, after) = (reader.read(before)?, reader.read(after)?);
    let found = diff(&before, &after);
    let reasons = reasons(args, &found);
    let text = match args.json {
        true => as_json::diff(&before, &after, &found, &reasons, reader.kinds()),
        false => {
            as_text::diff(args, &before, &after, &found, reader.kinds(), terminal(args.no_color))
        }
    };
    output::print(&text)?;
    for reason in &reasons {
        say!("fettle: {reason}");
    }
    Ok(ExitCode::from(u8::from(!reasons.is_empty())))
}

/// Why a difference is refused.
fn reasons(args: &Args, found: &Diff) -> Vec<String> {
    let mut reasons = Vec::new();
    let mut add = |what: FailOn, count: usize, text: &str| {
        if args.fail_on.contains(&what) && count > 0 {
            reasons.push(format!("{count} {text}"));
        }
    };
    add(
        FailOn::Candidates,
        found.candidates.len(),
        "new: a function may leave with a lock held (--fail-on never accepts that)",
    );
    add(FailOn::Deeper, found.deeper.len(), "deeper: locks nest deeper in a function");
    add(FailOn::Changes, found.changes.len(), "changed: operations became more or fewer");
    reasons
}

fn picture(trees: &[Tree], kinds: &Kinds) -> String {
    let wholes: Vec<_> = trees.iter().map(tally::whole).collect();
    let mut found: Vec<_> = wholes.iter().flat_map(|whole| whole.kinds.keys().copied()).collect();
    found.sort();
    found.dedup();
    let lines: Vec<_> = found
        .into_iter()
        .map(|kind| Line {
            name: kinds.name(kind).into(),
            values: wholes
                .iter()
                .map(|whole| whole.kinds.get(&kind).map_or(0, tally::Counts::sum))
                .collect(),
        })
        .collect();
    let names: Vec<_> = trees.iter().map(|tree| tree.name.clone()).collect();
    svg("Operations on locks, by kind", &names, &lines)
}
