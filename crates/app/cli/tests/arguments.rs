//! `fettle record --args`, `--depth` and `--mode cpu`.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

struct Bench {
    folder: tempfile::TempDir,
}

impl Bench {
    fn new() -> Bench {
        Bench { folder: tempfile::tempdir().unwrap() }
    }

    fn trace(&self) -> PathBuf {
        self.folder.path().join("trace")
    }

    fn build(&self, flags: &[&str]) -> String {
        self.build_from("arguments.c", flags)
    }

    fn build_from(&self, source: &str, flags: &[&str]) -> String {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs").join(source);
        let output = self.folder.path().join("program").display().to_string();
        let mut compiler = Command::new("cc");
        let status = compiler.args(flags).arg(source).args(["-o", &output]).status().unwrap();
        assert!(status.success());
        output
    }

    fn record(&self, options: &[&str], program: &[&str]) -> Output {
        let mut record = Command::new(env!("CARGO_BIN_EXE_fettle"));
        record.arg("record").arg("--output").arg(self.trace()).args(options).arg("--");
        record.args(program).stdin(Stdio::null()).output().unwrap()
    }

    fn report(&self, options: &[&str]) -> Value {
        let mut report = Command::new(env!("CARGO_BIN_EXE_fettle"));
        let output = report.arg("report").arg(self.trace()).arg("--json").args(options).output();
        let output = output.unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text} {output:?}"))
    }

    /// Calls of a function.
    fn calls(&self, name: &str) -> u64 {
        let report = self.report(&["--limit", "100000"]);
        let rows = report["functions"].as_array().unwrap();
        rows.iter().find(|r| r["name"] == name).map_or(0, |r| r["calls"].as_u64().unwrap())
    }
}

/// The values of a parameter, each with its number of calls, sorted.
fn values(view: &Value, name: Option<&str>) -> Vec<(String, u64)> {
    let parameters = view["parameters"].as_array().unwrap();
    let parameter = parameters.iter().find(|p| p["name"].as_str() == name).unwrap();
    let rows = parameter["common"].as_array().unwrap().iter();
    let mut all: Vec<_> = rows
        .map(|v| (v["value"].as_str().unwrap().to_owned(), v["calls"].as_u64().unwrap()))
        .collect();
    all.sort();
    all
}

fn one(value: &str, calls: u64) -> (String, u64) {
    (value.to_owned(), calls)
}

/// The program behaves as it does alone: its faults are its own, those of reading texts are not.
fn assert_unchanged(bench: &Bench, options: &[&str], program: &str) {
    let plain = Command::new(program).output().unwrap();
    let recorded = bench.record(options, &[program]);
    let reported = String::from_utf8_lossy(&recorded.stderr);
    assert_eq!(recorded.stdout, plain.stdout, "{reported}");
    assert_eq!(recorded.status.code(), Some(7), "{reported}");
}

#[test]
fn arguments_that_debug_information_describes() {
    let bench = Bench::new();
    let program = bench.build(&["-O1", "-g"]);
    assert_unchanged(&bench, &["--args", "mixed", "--args", "greet"], &program);
    let mixed = bench.report(&["--args", "mixed"]);
    assert_eq!(values(&mixed, Some("name")), [one("\"abcdefgh\"", 5)]);
    assert_eq!(
        values(&mixed, Some("n")),
        [one("-1", 1), one("-2", 1), one("0", 1), one("1", 1), one("2", 1)]
    );
    assert_eq!(values(&mixed, Some("x")), [one("1.5", 5)]);
    assert_eq!(values(&mixed, Some("c")), [one("200", 5)]);
    assert_eq!(values(&mixed, Some("stacked")), [one("4", 5)]);
    let cut = "\"a text of more than sixty-four bytes, which is as much as is tak\"…";
    assert_eq!(values(&mixed, Some("last")), [one(cut, 5)]);
    let text = "a text of more than sixty-four bytes, which is as much as is taken of one";
    let base = (8 + 200 + 1 + 2 + 3 + 4 + text.len()) as f64;
    let mut results: Vec<(String, u64)> =
        (-2..3).map(|n| ((f64::from(n) * 1.5 + base).to_string(), 1)).collect();
    results.sort();
    assert_eq!(values(&mixed, None), results);
    let greet = bench.report(&["--args", "greet"]);
    assert_eq!(
        values(&greet, Some("who")),
        [
            one("\"\"", 1),
            one("\"you\"", 1),
            one("0x500000000123 (unreadable)", 1),
            one("0x8000000000000000 (unreadable)", 1),
            one("NULL", 1)
        ]
    );
    assert_eq!(values(&greet, None), [one("\"hello\"", 3), one("\"nobody\"", 2)]);
    let slowest = greet["slowest"].as_array().unwrap();
    assert_eq!(slowest.len(), 5);
    assert!(slowest.iter().all(|call| call["result"].is_string()));
}

#[test]
fn arguments_that_the_user_describes() {
    let bench = Bench::new();
    let program = bench.build(&["-O1"]);
    let prototype = "double mixed(const char *, int n, double, u8, long, long, long, long s)";
    assert_unchanged(&bench, &["--args", prototype], &program);
    let mixed = bench.report(&["--args", "mixed"]);
    assert_eq!(values(&mixed, Some("argument 1")), [one("\"abcdefgh\"", 5)]);
    assert_eq!(values(&mixed, Some("s")), [one("4", 5)]);
}

#[test]
fn arguments_of_a_library_of_the_system() {
    let bench = Bench::new();
    let prototype = "char *getenv(const char *name)";
    let program = ["env", "FETTLE_TEST=here", "/bin/ls", "/"];
    let options = ["--lib", "libc.so*", "--only", "getenv", "--args", prototype];
    let recorded = bench.record(&options, &program);
    assert!(recorded.status.success(), "{recorded:?}");
    let getenv = bench.report(&["--args", "getenv", "--limit", "1000"]);
    let names = values(&getenv, Some("name"));
    assert!(names.iter().any(|(name, _)| name == "\"LC_ALL\""), "{names:?}");
}

#[test]
fn locks_of_the_library_of_the_system() {
    let bench = Bench::new();
    let program = bench.build_from("locked.c", &["-O2", "-pthread"]);
    let output = bench.record(&["--locks"], &[&program]);
    let (out, reported) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(7), "{reported}");
    let addresses: Vec<&str> = out.split_whitespace().collect();

    let mut requests = Command::new(env!("CARGO_BIN_EXE_fettle"));
    requests.arg("requests").arg(bench.trace()).args(["--analysis", "locks", "--json"]);
    let found: Value = serde_json::from_slice(&requests.output().unwrap().stdout).unwrap();
    let table = &found["tables"][0];
    let column = |name: &str| {
        let columns = table["columns"].as_array().unwrap();
        columns.iter().position(|column| column["name"] == name).unwrap()
    };
    let (waits, queue, threads) = (column("waits"), column("queue"), column("threads"));
    let lock = |address: &str| {
        let rows = table["rows"].as_array().unwrap();
        let of = |row: &&Value| {
            row.as_array().unwrap().last().unwrap().as_str().unwrap().ends_with(address)
        };
        rows.iter().find(of).unwrap_or_else(|| panic!("{address} in {found}"))
    };
    let kind = |row: &Value| {
        let last = row.as_array().unwrap().last().unwrap().as_str().unwrap().to_owned();
        last.split("  ").next().unwrap().to_owned()
    };
    // Both threads asked while it was held; the one that tried did not wait.
    let mutex = lock(addresses[0]);
    assert_eq!(
        (kind(mutex).as_str(), &mutex[waits], &mutex[queue]),
        ("mutex", &2.into(), &1.into())
    );
    assert_eq!(mutex[threads], 3);
    assert_eq!(kind(lock(addresses[1])), "producer-consumer");
    let shared = lock(addresses[2]);
    assert_eq!((kind(shared).as_str(), &shared[waits]), ("counter", &0.into()));

    // Without the values nothing is known of locks, and that is said.
    let values = bench.trace().join("arguments.parquet");
    std::fs::write(&values, &std::fs::read(&values).unwrap()[..100]).unwrap();
    let mut requests = Command::new(env!("CARGO_BIN_EXE_fettle"));
    let output =
        requests.arg("requests").arg(bench.trace()).args(["--analysis", "locks", "--json"]);
    let output = output.output().unwrap();
    let found = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(found.contains("arguments.parquet"), "{output:?}");
}

#[test]
fn wrong_requests_are_refused() {
    let bench = Bench::new();
    let refused = |options: &[&str], words: &str| {
        let output = bench.record(options, &["/bin/true"]);
        let reported = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{reported}");
        assert!(reported.contains(words), "{reported}");
        assert!(!bench.trace().exists());
    };
    refused(&["--args", "int f(frob x)"], "column 7");
    refused(&["--args", "main", "--mode", "time"], "--args");
    refused(&["--depth", "2", "--mode", "count"], "--depth");
    refused(&["--depth", "0"], "0");
    // A name that matches nothing is reported, and the program runs.
    let output = bench.record(&["--args", "no_such_function"], &["/bin/true"]);
    assert!(output.status.success());
    let reported = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(reported.contains("no function has the name"), "{reported}");
}

#[test]
fn only_the_outermost_calls() {
    for mode in ["events", "time"] {
        let bench = Bench::new();
        let program = bench.build(&["-O1"]);
        assert_unchanged(&bench, &["--depth", "4", "--mode", mode], &program);
        // main is at some depth below the start of the program; nested is called in it.
        let nested = bench.calls("nested");
        assert!((1..=4).contains(&nested), "{mode}: {nested}");
        assert_eq!(bench.calls("greet"), 5, "{mode}");
        let deeper = Bench::new();
        let program = deeper.build(&["-O1"]);
        assert_unchanged(&deeper, &["--depth", "6", "--mode", mode], &program);
        assert_eq!(deeper.calls("nested"), nested + 2, "{mode}");
    }
}

#[test]
fn processor_time() {
    let bench = Bench::new();
    let program = bench.build(&["-O1"]);
    assert_unchanged(&bench, &["--mode", "cpu"], &program);
    assert_eq!(bench.calls("nested"), 10);
    // Sleeping takes time and no processor.
    let bench = Bench::new();
    let sleep = bench.record(&["--mode", "cpu"], &["sleep", "0.4"]);
    assert!(sleep.status.success());
    let report = bench.report(&["--limit", "1000", "--sort", "total"]);
    let longest = report["functions"][0]["total_ns"].as_u64().unwrap();
    assert!((1..200_000_000).contains(&longest), "{longest}");
}
