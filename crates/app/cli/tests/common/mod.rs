//! What tests of programs that record themselves share.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use fettle_trace::Trace;

/// An empty folder for the test `name`.
pub fn folder(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&path);
    std::fs::create_dir_all(&path).expect("a folder for the test");
    path
}

/// Runs the command.
pub fn fettle(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_fettle")).args(args).output().expect("fettle runs")
}

/// A path as an argument.
pub fn text(path: &Path) -> &str {
    path.to_str().expect("plain name")
}

/// `fettle trace check` finds a trace right. A busy machine may lose records.
pub fn assert_right(trace: &Path) {
    let check = fettle(&["trace", "check", text(trace)]);
    let said = String::from_utf8_lossy(&check.stdout);
    assert!(check.status.success() || said.contains("what is there is right"), "{said}");
}

/// Calls by function, of a trace that is found right.
pub fn calls(trace: &Path) -> HashMap<String, u64> {
    let report = fettle(&["report", text(trace)]);
    assert!(report.status.success(), "{}", String::from_utf8_lossy(&report.stderr));
    assert_right(trace);
    let trace = Trace::open(trace).expect("a trace");
    let functions = trace.functions().expect("functions");
    let names: HashMap<_, String> = functions.into_iter().map(|f| (f.id, f.name)).collect();
    let mut calls = HashMap::new();
    for total in trace.totals().expect("totals") {
        *calls.entry(names[&total.function].clone()).or_default() += total.calls;
    }
    calls
}
