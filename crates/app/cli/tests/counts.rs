//! `fettle record --mode blocks` and `--mode edges` count the same, in two ways.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

/// Records `program`; gives its output and what the report says of its blocks.
fn blocks(folder: &Path, mode: &str, program: &[&str]) -> (Vec<u8>, Value) {
    let trace = folder.join(mode);
    // The same addresses each time: what programs do may depend on them.
    let mut record = Command::new("setarch");
    record.args(["-R", env!("CARGO_BIN_EXE_fettle"), "record", "--quiet", "--mode", mode]);
    record.arg("--output").arg(&trace).arg("--").args(program).stdin(Stdio::null());
    let output = record.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let mut report = Command::new(env!("CARGO_BIN_EXE_fettle"));
    report.arg("report").arg(&trace).args(["--json", "--blocks", "--limit", "100000000"]);
    let view = serde_json::from_slice(&report.output().unwrap().stdout).unwrap();
    // Calls are not counted; a report that asks for them says so.
    let mut report = Command::new(env!("CARGO_BIN_EXE_fettle"));
    let report = report.arg("report").arg(&trace).arg("--json").output().unwrap();
    let report: Value = serde_json::from_slice(&report.stdout).unwrap();
    let notes = report["notes"].as_array().unwrap();
    assert!(notes.iter().any(|n| n.as_str().unwrap().contains("--blocks")), "{notes:?}");
    (output.stdout, view)
}

fn counts(view: &Value) -> BTreeMap<u64, u64> {
    let rows = view["rows"].as_array().unwrap().iter();
    rows.map(|r| (r["address"].as_u64().unwrap(), r["count"].as_u64().unwrap())).collect()
}

#[test]
fn edges_tell_all_that_blocks_do() {
    let folder = tempfile::tempdir().unwrap();
    let text = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../Cargo.lock");
    for (i, program) in [
        vec!["gzip", "-9", "-c", text],
        vec!["sed", "-n", "/^name/{s/.*= //;p}", text],
        vec!["sort", "-k2,2", "-s", text],
    ]
    .iter()
    .enumerate()
    {
        let folder = folder.path().join(i.to_string());
        let plain = Command::new(program[0]).args(&program[1..]).output().unwrap().stdout;
        let (by_blocks, blocks_view) = blocks(&folder, "blocks", program);
        let (by_edges, edges_view) = blocks(&folder, "edges", program);
        assert_eq!(by_blocks, plain, "{program:?}");
        assert_eq!(by_edges, plain, "{program:?}");
        let (one, other) = (counts(&blocks_view), counts(&edges_view));
        assert_eq!(one.len(), other.len(), "{program:?}");
        // A program that ends by `exit` leaves each function on the way there in the middle.
        let differ =
            one.iter().filter(|(at, count)| other.get(at).is_none_or(|o| o.abs_diff(**count) > 1));
        assert_eq!(differ.collect::<Vec<_>>(), [], "{program:?}");
        let exact = one.iter().filter(|(at, count)| other.get(at) == Some(count)).count();
        assert!(exact * 100 >= one.len() * 95, "{program:?}: {exact} of {}", one.len());
        assert!(edges_view["executions"].as_u64().unwrap() > 10_000, "{program:?}");
        // As much leaves a block as enters it.
        for row in edges_view["rows"].as_array().unwrap() {
            let to = row["to"].as_array().unwrap();
            let left: u64 = to.iter().map(|edge| edge[1].as_u64().unwrap()).sum();
            assert!(left <= row["count"].as_u64().unwrap(), "{program:?}: {row}");
        }
    }
}

/// A function that throws, jumps far or ends the program does not pass one of its exits.
#[test]
fn exits_are_counted() {
    let folder = tempfile::tempdir().unwrap();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/exits.c");
    let program = folder.path().join("exits");
    let mut compile = Command::new("cc");
    compile.args(["-O1", "-fno-inline"]).arg(source).arg("-o").arg(&program);
    assert!(compile.status().unwrap().success());
    let trace = folder.path().join("trace");
    let fettle = || Command::new(env!("CARGO_BIN_EXE_fettle"));
    let mut record = fettle();
    record.args(["record", "--quiet", "--mode", "count", "-o"]).arg(&trace).arg("--").arg(&program);
    assert!(record.status().unwrap().success());
    let focus = fettle().args(["report", "--function", "main"]).arg(&trace).output().unwrap();
    let focus = String::from_utf8(focus.stdout).unwrap();
    assert!(focus.contains("not known") && !focus.contains("no recorded"), "{focus}");
    let report = fettle().args(["report", "--json"]).arg(&trace).output().unwrap();
    let report: Value = serde_json::from_slice(&report.stdout).unwrap();
    let of = |name: &str| {
        let rows = report["functions"].as_array().unwrap();
        let row = rows.iter().find(|row| row["name"] == name).unwrap();
        (row["calls"].as_u64().unwrap(), row["exits"].as_u64().unwrap())
    };
    assert_eq!(of("jumps_far"), (1000, 667));
    assert_eq!(of("calls_nothing"), (3000, 3000));
    assert_eq!(of("goes_on_elsewhere"), (500, 500));
    assert_eq!(of("ends"), (1, 0));
    assert_eq!(of("main"), (1, 0));
    let text = fettle().arg("report").arg(&trace).output().unwrap().stdout;
    let text = String::from_utf8(text).unwrap();
    let line = text.lines().find(|line| line.contains("jumps_far")).unwrap();
    assert!(line.trim_start().starts_with("1,000    667"), "{text}");
}

/// Layouts by what a trace counted: every way of them, and none of a trace without counts.
#[test]
fn layouts_of_a_trace() {
    let folder = tempfile::tempdir().unwrap();
    let text = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../Cargo.lock");
    let program = ["bzip2", "-9", "-c", text];
    for mode in ["edges", "count"] {
        let mut record = Command::new(env!("CARGO_BIN_EXE_fettle"));
        record
            .args(["record", "--quiet", "--mode", mode, "--output"])
            .arg(folder.path().join(mode));
        assert!(record.arg("--").args(program).stdout(Stdio::null()).status().unwrap().success());
    }
    let layout = |mode: &str, arguments: &[&str]| {
        let mut layout = Command::new(env!("CARGO_BIN_EXE_fettle"));
        layout.arg("layout").arg(folder.path().join(mode)).args(arguments).output().unwrap()
    };
    let output = layout("edges", &["--json"]);
    assert!(output.status.success(), "{output:?}");
    let view: Value = serde_json::from_slice(&output.stdout).unwrap();
    let [module] = view["modules"].as_array().unwrap().as_slice() else { panic!("{view}") };
    assert!(module["path"].as_str().unwrap().ends_with("bzip2"));
    assert!(module["exact_edges"].as_u64() > Some(100), "{module}");
    assert_eq!(module["choices"].as_array().unwrap().len(), 4);
    // It was not laid out by what runs, so there is something to gain.
    let taken = |model: &str| {
        let ways = &module[model]["ways"];
        ways["branches"].as_u64().unwrap() + ways["jumps"].as_u64().unwrap()
    };
    assert!(taken("model_after") < taken("model_before"), "{module}");
    // A cache of one line misses more than one of 32 KiB.
    let small = layout("edges", &["--json", "--cache", "64", "--ways", "1"]);
    let small: Value = serde_json::from_slice(&small.stdout).unwrap();
    let misses = |view: &Value| view["modules"][0]["model_before"]["cost"]["misses"].as_u64();
    assert!(misses(&small) > misses(&view), "{small}");

    let refused = layout("count", &[]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("--mode edges"), "{refused:?}");
    let odd = layout("edges", &["--ways", "0"]);
    assert_eq!(odd.status.code(), Some(2), "{odd:?}");
    let nothing = layout("edges", &["--module", "no-such-module"]);
    assert_eq!(nothing.status.code(), Some(2), "{nothing:?}");
}

/// What hand-written functions are passed outside of the ABI, probes keep.
#[test]
fn hidden_inputs_of_hand_written_code() {
    let folder = tempfile::tempdir().unwrap();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/hidden.c");
    let program = folder.path().join("hidden");
    let built = Command::new("cc").arg("-O1").arg(source).arg("-o").arg(&program).status();
    assert!(built.unwrap().success());
    let plain = Command::new(&program).output().unwrap().stdout;
    for mode in ["blocks", "edges", "count", "time", "events", "sample", "cpu"] {
        let trace = folder.path().join(mode);
        let mut record = Command::new(env!("CARGO_BIN_EXE_fettle"));
        record.args(["record", "--quiet", "--mode", mode, "--output"]).arg(&trace).arg("--");
        let output = record.arg(&program).output().unwrap();
        assert!(output.stdout == plain, "{mode}: {}", String::from_utf8_lossy(&output.stdout));
    }
}

/// A jump over a `lock` prefix leads to the instruction with it.
#[test]
fn jumps_over_lock_prefixes() {
    let folder = tempfile::tempdir().unwrap();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/unlocked.c");
    let program = folder.path().join("unlocked");
    let mut build = Command::new("cc");
    let built = build.args(["-O1", "-pthread"]).arg(source).arg("-o").arg(&program).status();
    assert!(built.unwrap().success());
    let program = program.to_str().unwrap();
    for mode in ["blocks", "edges"] {
        let (output, view) = blocks(folder.path(), mode, &[program]);
        assert_eq!(output, b"300000 300005\n", "{mode}");
        let rows = view["rows"].as_array().unwrap();
        let of_add = rows.iter().filter(|row| row["function"].as_str() == Some("add"));
        let most = of_add.map(|row| row["count"].as_u64().unwrap()).max();
        assert_eq!(most, Some(300_001), "{mode}");
    }
}
