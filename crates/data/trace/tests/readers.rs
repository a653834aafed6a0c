//! Independent programs read the files: DuckDB and Polars, where Python has them. `FETTLE_PYTHON`
//! names another interpreter than `python3`.

mod drawing;

use std::process::Command;

/// Runs a script with the trace as its argument; `None` if the module is not installed.
fn python(module: &str, trace: &std::path::Path, script: &str) -> Option<String> {
    let python = std::env::var("FETTLE_PYTHON").unwrap_or_else(|_| "python3".into());
    let has = Command::new(&python).args(["-c", &format!("import {module}")]).output();
    if !has.is_ok_and(|output| output.status.success()) {
        eprintln!("skipped 1 test: {python} has no module {module} (pip install {module})");
        return None;
    }
    let output = Command::new(&python).args(["-c", script]).arg(trace).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{module} failed:\n{errors}");
    Some(String::from_utf8(output.stdout).unwrap())
}

fn recorded() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let drawings = ["AAAAAAAA\n BBB BB\n C\n", "DDD\n"];
    drawing::record(&dir.path().join("t"), &drawings, |_| {});
    dir
}

/// Joins calls with names, and opens every table, empty ones too.
#[test]
fn duckdb_reads_every_table() {
    let dir = recorded();
    let script = r#"
import sys, glob, duckdb
t = sys.argv[1]
for f in sorted(glob.glob(t + "/*.parquet")):
    duckdb.sql(f"select * from '{f}'").fetchall()
print(duckdb.sql(f"""
    select f.name, count(*), sum(c.duration_ns), max(c.depth)
    from '{t}/calls/*.parquet' c join '{t}/functions.parquet' f on c.function = f.id
    group by 1 order by 3 desc, 1 limit 2""").fetchall())
"#;
    if let Some(output) = python("duckdb", &dir.path().join("t"), script) {
        assert_eq!(
            output,
            "[('main', 1, 800, 0), \
             ('_ZN4core3fmt9Formatter9write_str17h0123456789abcdefE', 2, 500, 1)]\n"
        );
    }
}

#[test]
fn polars_reads_every_table() {
    let dir = recorded();
    let script = r#"
import sys, glob, polars
t = sys.argv[1]
for f in sorted(glob.glob(t + "/*.parquet")):
    polars.read_parquet(f)
calls = polars.scan_parquet(t + "/calls/*.parquet")
print(calls.group_by("thread").agg(polars.col("duration_ns").sum()).sort("thread").collect().rows())
"#;
    if let Some(output) = python("polars", &dir.path().join("t"), script) {
        assert_eq!(output, "[(0, 1400), (1, 300)]\n");
    }
}
