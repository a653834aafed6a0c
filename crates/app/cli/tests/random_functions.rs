//! Functions that no compiler wrote compute the same with probes of every mode, and blocks are counted the same
//! in two ways. `crates/binary/rewrite/tests/random_functions.rs` puts such functions in random orders, too.

#[path = "../../../binary/rewrite/tests/common/functions.rs"]
mod functions;
#[path = "../../../binary/rewrite/tests/common/random.rs"]
mod random;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;
use std::process::{Command, Output};

use random::Random;
use serde_json::Value;

/// Functions of a run.
const COUNT: usize = 200;

/// A program that prints what each function makes of some numbers.
fn build(folder: &Path) -> String {
    let mut random = Random(random::seed());
    let assembly = folder.join("functions.s");
    std::fs::write(&assembly, functions::assembly(&mut random, COUNT)).unwrap();
    let mut main = String::from("#include <stdio.h>\n");
    let names: Vec<String> = (0..COUNT).map(|n| format!("f{n}")).collect();
    for name in &names {
        writeln!(main, "long {name}(long, long);").unwrap();
    }
    let all = names.join(", ");
    writeln!(main, "static long (*const all[])(long, long) = {{{all}}};").unwrap();
    main.push_str(
        "int main(void) {
            for (int f = 0; f < sizeof all / sizeof *all; f++) {
                unsigned long sum = 0;
                for (long n = -8; n < 8; n++) sum = sum * 31 + all[f](n * n * n, f);
                printf(\"f%d %lx\\n\", f, sum);
            }
        }",
    );
    let source = folder.join("main.c");
    std::fs::write(&source, main).unwrap();
    let program = folder.join("program");
    let mut compile = Command::new("cc");
    compile.arg("-O1").arg(&source).arg(&assembly).arg("-o").arg(&program);
    assert!(compile.status().unwrap().success());
    program.to_str().unwrap().to_owned()
}

fn fettle(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_fettle")).args(arguments).output().unwrap()
}

fn json(arguments: &[&str]) -> Value {
    serde_json::from_slice(&fettle(arguments).stdout).unwrap()
}

/// How often each block ran, by address.
fn counts(trace: &str) -> BTreeMap<u64, u64> {
    let view = json(&["report", trace, "--json", "--blocks", "--limit", "100000000"]);
    let rows = view["rows"].as_array().unwrap().iter();
    rows.map(|r| (r["address"].as_u64().unwrap(), r["count"].as_u64().unwrap())).collect()
}

#[test]
fn they_compute_the_same_in_every_mode() {
    let folder = tempfile::tempdir().unwrap();
    let program = build(folder.path());
    let plain = Command::new(&program).output().unwrap();
    assert!(plain.status.success(), "{plain:?}");
    let trace = |mode: &str| folder.path().join(mode).to_str().unwrap().to_owned();
    for mode in ["count", "blocks", "edges", "time", "sample", "events"] {
        let trace = trace(mode);
        // Addresses that are the same each time, so that counts can be compared.
        let recorded = Command::new("setarch")
            .args(["-R", env!("CARGO_BIN_EXE_fettle"), "record", "-q", "--mode", mode])
            .args(["-o", &trace, "--", &program])
            .output()
            .unwrap();
        assert_eq!(recorded, plain, "{mode}: {}", String::from_utf8_lossy(&recorded.stderr));
        let report = json(&["report", &trace, "--json"]);
        let left = report["skipped"].as_array().unwrap().iter();
        let of_ours = left.filter(|f| {
            f["name"]
                .as_str()
                .is_some_and(|n| n.starts_with('f') && n[1..].parse::<usize>().is_ok())
        });
        assert_eq!(of_ours.collect::<Vec<_>>(), Vec::<&Value>::new(), "{mode}");
    }
    let (blocks, edges) = (counts(&trace("blocks")), counts(&trace("edges")));
    let differ: Vec<_> = blocks
        .iter()
        .filter(|(at, count)| edges.get(at).is_none_or(|other| other.abs_diff(**count) > 1))
        .collect();
    assert!(blocks.len() > COUNT && differ.is_empty(), "{} blocks; {differ:?}", blocks.len());
}
