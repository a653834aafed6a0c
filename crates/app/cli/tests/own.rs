//! `fettle record --probe`: the user probe, in C and in Rust, inlined and called.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

const IN_LINE: &str = r#"
#include <fettle_probe.h>
FETTLE_COUNTERS("calls, first");
void fettle_enter(struct fettle_state *state, const struct fettle_call *call)
{
    state->counter[0]++;
    state->counter[1] += call->argument[0];
}
"#;

const CALLED: &str = r#"
#include <fettle_probe.h>
FETTLE_COUNTERS("calls, first, returned, max:greatest");
void fettle_enter(struct fettle_state *state, const struct fettle_call *call)
{
    if (call->moment == FETTLE_ENTERED) {
        state->counter[0]++;
        state->counter[1] += call->argument[0];
    }
}
void fettle_leave(struct fettle_state *state, const struct fettle_call *call)
{
    if (call->moment != FETTLE_RETURNS)
        return;
    state->counter[2]++;
    if (call->result > state->counter[3])
        state->counter[3] = call->result;
}
"#;

const RUST: &str = r#"
counters!("calls, first");
#[unsafe(no_mangle)]
pub extern "C" fn fettle_enter(state: &mut State, call: &Call) {
    state.counter[0] = state.counter[0].wrapping_add(1);
    let scaled = call.argument[0] as f64 * 1.0;
    state.counter[1] = state.counter[1].wrapping_add(scaled as u64);
}
"#;

/// The probe of docs/user/probes.md, which is a single instruction.
const RUST_COUNT: &str = r#"
counters!("calls");

#[no_mangle]
pub extern "C" fn fettle_enter(state: &mut State, call: &Call) {
    state.counter[0] += 1;
}
"#;

fn record(folder: &Path, probe: &Path, options: &[&str], program: &[&str]) -> Output {
    let _ = std::fs::remove_dir_all(folder.join("trace"));
    let mut record = Command::new(env!("CARGO_BIN_EXE_fettle"));
    record.arg("record").arg("--probe").arg(probe).arg("--output").arg(folder.join("trace"));
    record.args(options).arg("--").args(program).stdin(Stdio::null()).output().unwrap()
}

fn report(folder: &Path) -> Value {
    let mut report = Command::new(env!("CARGO_BIN_EXE_fettle"));
    report.arg("report").arg(folder.join("trace")).args(["--json", "--limit", "100000"]);
    serde_json::from_slice(&report.output().unwrap().stdout).unwrap()
}

fn values(folder: &Path, name: &str) -> Vec<u64> {
    let view = report(folder);
    let rows = view["rows"].as_array().unwrap();
    let row = rows.iter().find(|r| r["name"] == name).unwrap_or_else(|| panic!("{name}: {view}"));
    row["values"].as_array().unwrap().iter().map(|v| v.as_u64().unwrap()).collect()
}

fn write(folder: &Path, name: &str, text: &str) -> PathBuf {
    let path = folder.join(name);
    std::fs::write(&path, text).unwrap();
    path
}

/// A program whose calls are known.
fn program(folder: &Path) -> String {
    let source = write(
        folder,
        "program.c",
        "#include <stdio.h>\n\
         __attribute__((noinline)) double mix(long a, double x) { return x * a; }\n\
         __attribute__((noinline)) long triple(long a) { return a * 3; }\n\
         int main(void) { double s = 0; long t = 0;\n\
         for (long i = 0; i < 1000; i++) { t += triple(i); s += mix(i, 0.5); }\n\
         printf(\"%g %ld\\n\", s, t); return 3; }\n",
    );
    let output = folder.join("program");
    let mut compiler = Command::new("cc");
    let built = compiler.args(["-O2", "-o"]).arg(&output).arg(&source).status().unwrap();
    assert!(built.success());
    output.display().to_string()
}

#[test]
fn in_line_and_called() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let program = program(folder);
    let sum = 999 * 1000 / 2;
    for (name, text, how, expected) in [
        ("in_line.c", IN_LINE, "fettle_enter is put in line", vec![1000, sum]),
        ("called.c", CALLED, "fettle_enter is called", vec![1000, sum, 1000, 999 * 3]),
        ("count.rs", RUST_COUNT, "fettle_enter is put in line", vec![1000]),
        ("probe.rs", RUST, "fettle_enter is called", vec![1000, sum]),
    ] {
        let probe = write(folder, name, text);
        let output = record(folder, &probe, &[], &[&program]);
        let reported = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(3), "{name}: {reported}");
        assert_eq!(output.stdout, b"249750 1498500\n", "{name}");
        assert!(reported.contains(how), "{name}: {reported}");
        assert_eq!(values(folder, "triple"), expected, "{name}");
        let all = 2.min(expected.len());
        assert_eq!(values(folder, "mix")[..all], expected[..all], "{name}");
    }
}

/// A distribution's own compiler is older than the one that Fettle is built with.
#[test]
fn older_compilers_will_do() {
    let old = Path::new("/usr/bin/rustc");
    if !old.exists() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let probe = write(folder, "count.rs", RUST_COUNT);
    let mut record = Command::new(env!("CARGO_BIN_EXE_fettle"));
    record.arg("record").arg("--probe").arg(&probe).arg("--output").arg(folder.join("trace"));
    let recorded = record.args(["--", "/bin/true"]).env("RUSTC", old).output().unwrap();
    let reported = String::from_utf8_lossy(&recorded.stderr);
    assert_eq!(recorded.status.code(), Some(0), "{reported}");
    assert!(reported.contains("fettle_enter is"), "{reported}");
}

#[test]
fn real_programs_behave_as_alone() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let text = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../Cargo.lock");
    let programs: [&[&str]; 4] = [
        &["gzip", "-9", "-c", text],
        &["sort", "-k2,2", text],
        &["sed", "s/a\\(.\\)/\\1b/g", text],
        &["bash", "-c", "for i in 1 2 3; do (echo $((i * 7)) | cat); done; exit 5"],
    ];
    for (name, source) in [("a.c", IN_LINE), ("b.c", CALLED), ("c.rs", RUST), ("d.rs", RUST_COUNT)]
    {
        let probe = write(folder, name, source);
        for program in programs {
            let plain = Command::new(program[0]).args(&program[1..]).output().unwrap();
            let recorded = record(folder, &probe, &["--lib", "libc.so*"], program);
            let reported = String::from_utf8_lossy(&recorded.stderr);
            assert_eq!(recorded.status.code(), plain.status.code(), "{program:?}: {reported}");
            assert!(recorded.stdout == plain.stdout, "{program:?} with {name}");
        }
    }
}

#[test]
fn errors_say_what_is_wrong() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let refused = |probe: &Path, words: &str| {
        let output = record(folder, probe, &[], &["/bin/true"]);
        let reported = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{reported}");
        assert!(reported.contains(words), "{reported}");
        assert!(!folder.join("trace").exists());
    };
    refused(&folder.join("none.c"), "none.c");
    refused(&write(folder, "a.txt", ""), "C source");
    refused(&write(folder, "b.c", "int x = ;"), "does not compile");
    refused(&write(folder, "c.c", "int f(void) { return 1; }"), "neither fettle_enter");
    refused(&write(folder, "d.rs", "fn f() {}"), "neither fettle_enter");
}
