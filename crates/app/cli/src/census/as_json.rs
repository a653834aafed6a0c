//! The census for programs.

use fettle_census::diff::Diff;
use fettle_census::kinds::Kinds;
use fettle_census::source::Tree;
use fettle_census::tally::{self, Tally, tally};
use serde_json::{Map, Value, json};

use super::arguments::{Args, Rows};

/// One object for all sources.
pub fn trees(args: &Args, trees: &[Tree], kinds: &Kinds) -> String {
    let sources: Vec<_> = trees.iter().map(|tree| of_tree(args, tree, kinds)).collect();
    let sets: Vec<_> = kinds.sets().collect();
    format!("{}\n", json!({"version": 1, "sets": sets, "sources": sources}))
}

fn of_tree(args: &Args, tree: &Tree, kinds: &Kinds) -> Value {
    let by_function = args.by == Rows::Function;
    let rows: Vec<_> = tally(tree, args.by())
        .iter()
        .map(|(name, part)| {
            let mut row = of_tally(part, kinds, !by_function, args.has_builds());
            row.insert("name".into(), json!(name));
            row
        })
        .collect();
    let mut object = of_tally(&tally::whole(tree), kinds, true, args.has_builds());
    object.insert("source".into(), json!(tree.name));
    let title = match args.by {
        Rows::Subsystem => "subsystems",
        Rows::File => "by_file",
        Rows::Function => "by_function",
    };
    object.insert(title.into(), json!(rows));
    let skipped: Vec<_> =
        tree.skipped.iter().map(|(path, why)| json!({"path": path, "reason": why})).collect();
    object.insert("skipped".into(), json!(skipped));
    if args.candidates {
        object.insert("candidate_list".into(), json!(candidates(tree, kinds)));
    }
    if args.sites {
        object.insert("sites".into(), json!(sites(tree, kinds)));
    }
    if args.hunks {
        let hunks: Vec<_> = tree
            .files
            .iter()
            .flat_map(|(path, counted)| {
                let hunks = counted.builds.iter().flat_map(|builds| &builds.hunks);
                hunks.map(move |hunk| json!({"path": path, "hunk": hunk}))
            })
            .collect();
        object.insert("hunks".into(), json!(hunks));
    }
    Value::Object(object)
}

fn of_tally(part: &Tally, kinds: &Kinds, with_lines: bool, builds: bool) -> Map<String, Value> {
    let by_kind: Map<_, _> = part
        .kinds
        .iter()
        .map(|(kind, counts)| (kinds.name(*kind).to_owned(), json!(counts)))
        .collect();
    let candidates: Vec<_> = part
        .candidates
        .iter()
        .map(|(leaving, number)| json!({"leaving": leaving, "number": number}))
        .collect();
    let mut object = Map::new();
    let mut add = |key: &str, value: Value| drop(object.insert(key.into(), value));
    add("operations", json!(part.sites()));
    add("kinds", json!(by_kind));
    add("implementation", json!(part.implementation));
    add("held_after_acquisition", json!(part.depths));
    add("candidates", json!(candidates));
    if with_lines {
        add("files", json!(part.files.0));
        add("files_with_operations", json!(part.files.1));
        add("bytes", json!(part.bytes));
        add("lines", json!(part.lines));
        add("code_lines", json!(part.code_lines));
        add("functions", json!(part.functions.0));
        add("functions_with_operations", json!(part.functions.1));
        add("operations_in_1000_lines", json!(part.density()));
        if builds {
            add("builds", json!({"lines": part.builds.0, "files_that_differ": part.builds.1}));
        }
    }
    object
}

fn candidates(tree: &Tree, kinds: &Kinds) -> Vec<Value> {
    let mut found = Vec::new();
    for (path, counted) in &tree.files {
        for candidate in &counted.census.candidates {
            let function = counted.census.functions.get(candidate.function as usize);
            found.push(json!({
                "path": path,
                "function": function.map(|function| &*function.name),
                "kind": kinds.name(candidate.kind),
                "lock": &*candidate.lock,
                "line": candidate.line,
                "exit_line": candidate.exit,
                "leaving": candidate.leaving,
            }));
        }
    }
    found
}

fn sites(tree: &Tree, kinds: &Kinds) -> Vec<Value> {
    let mut found = Vec::new();
    for (path, counted) in &tree.files {
        for site in &counted.census.sites {
            let function = counted.census.functions.get(site.function as usize);
            found.push(json!({
                "path": path,
                "line": site.line,
                "kind": kinds.name(site.kind),
                "operation": site.operation,
                "function": function.map(|function| &*function.name),
                "in_macro": function.is_some_and(|function| function.is_macro),
                "held": site.depth,
                "implementation": site.implementation,
            }));
        }
    }
    found
}

/// What changed.
pub fn diff(
    before: &Tree,
    after: &Tree,
    found: &Diff,
    reasons: &[String],
    kinds: &Kinds,
) -> String {
    let changes: Vec<_> = found
        .changes
        .iter()
        .map(|change| {
            json!({
                "path": change.path,
                "function": change.function,
                "kind": kinds.name(change.kind),
                "operation": change.operation,
                "before": change.before,
                "after": change.after,
            })
        })
        .collect();
    let candidates: Vec<_> = found
        .candidates
        .iter()
        .map(|new| {
            json!({
                "path": new.path,
                "function": new.function,
                "kind": kinds.name(new.candidate.kind),
                "lock": &*new.candidate.lock,
                "line": new.candidate.line,
                "exit_line": new.candidate.exit,
                "leaving": new.candidate.leaving,
            })
        })
        .collect();
    let deeper: Vec<_> = found
        .deeper
        .iter()
        .map(|deeper| {
            json!({
                "path": deeper.path,
                "function": deeper.function,
                "before": deeper.before,
                "after": deeper.after,
            })
        })
        .collect();
    let object = json!({
        "version": 1,
        "before": before.name,
        "after": after.name,
        "operations": [tally::whole(before).sites(), tally::whole(after).sites()],
        "changes": changes,
        "new_candidates": candidates,
        "deeper": deeper,
        "refused_for": reasons,
    });
    format!("{object}\n")
}
