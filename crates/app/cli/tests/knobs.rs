//! Knobs of a running program: set by hand, set by a rule, and given back however the setter ends.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// Says its knob's value whenever it changes.
const PROGRAM: &str = r#"
#include "fettle_knob.h"
#include <stdio.h>
#include <unistd.h>
FETTLE_KNOB(path, "test.path", 3, 1, 0, 0, 3);
FETTLE_SCALAR(beat, "test.beat", 3, 2);
int main(void) {
    long last = -1;
    FETTLE_ADD(beat, 1);
    for (;;) {
        long value = (long)FETTLE_VALUE(path);
        if (value != last) { printf("%ld\n", value); fflush(stdout); }
        last = value;
        usleep(500);
    }
}
"#;

/// Ends what it holds.
struct Running(Child);

impl Running {
    fn kill(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill();
    }
}

struct Bench {
    folder: TempDir,
    program: Running,
    values: BufReader<ChildStdout>,
}

impl Bench {
    fn new() -> Bench {
        let folder = TempDir::new().unwrap();
        let source = folder.path().join("knobbed.c");
        std::fs::write(&source, PROGRAM).unwrap();
        let program = folder.path().join("knobbed");
        let header = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../runtime/sensor");
        let mut cc = Command::new("cc");
        cc.args(["-Wall", "-Wextra", "-Werror", "-O2", "-I"]).arg(header);
        assert!(cc.arg("-o").args([&program, &source]).status().unwrap().success());
        let mut command = Command::new(&program);
        command.env("FETTLE_SENSORS", sensors(folder.path())).stdout(Stdio::piped());
        let mut program = Running(command.spawn().unwrap());
        let values = BufReader::new(program.0.stdout.take().unwrap());
        let mut bench = Bench { folder, program, values };
        assert_eq!(bench.next_value(), 0);
        bench
    }

    fn next_value(&mut self) -> i64 {
        let mut line = String::new();
        self.values.read_line(&mut line).unwrap();
        line.trim().parse().unwrap_or_else(|_| panic!("{line:?}"))
    }

    fn fettle(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fettle"));
        command.current_dir(self.folder.path()).args(arguments);
        command.env("FETTLE_SENSORS", sensors(self.folder.path()));
        command
    }

    fn run(&self, arguments: &[&str]) -> (Option<i32>, String) {
        let Output { status, stdout, stderr } = self.fettle(arguments).output().unwrap();
        let said = [stdout, stderr].concat();
        (status.code(), String::from_utf8(said).unwrap())
    }

    fn watch(&self, rules: &str, more: &[&str]) -> (Running, BufReader<ChildStdout>) {
        std::fs::write(self.folder.path().join("rules"), rules).unwrap();
        let pid = self.program.0.id().to_string();
        let arguments = ["watch", "rules", "--json", "--state", "state", "-p", &pid];
        let mut command = self.fettle(&arguments);
        let mut watcher = Running(command.args(more).stdout(Stdio::piped()).spawn().unwrap());
        let out = BufReader::new(watcher.0.stdout.take().unwrap());
        (watcher, out)
    }
}

fn sensors(folder: &Path) -> PathBuf {
    folder.join("sensors")
}

fn next(out: &mut impl BufRead) -> serde_json::Value {
    let mut line = String::new();
    out.read_line(&mut line).unwrap();
    serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"))
}

/// The processes that this one has started, by any of its threads.
fn children(of: u32) -> Vec<String> {
    let tasks = std::fs::read_dir(format!("/proc/{of}/task")).unwrap().flatten();
    let text = tasks.map(|task| std::fs::read_to_string(task.path().join("children")));
    let text: String = text.map(Result::unwrap_or_default).collect();
    text.split_ascii_whitespace().map(str::to_owned).collect()
}

const STILL: &str = "scalar \"test.beat\" of process of \"knobbed\" still for 50ms";

#[test]
fn a_knob_is_set_by_hand() {
    let mut bench = Bench::new();
    let pid = bench.program.0.id().to_string();
    let (code, said) = bench.run(&["sensors", "set", "test.path", "2", "-p", &pid]);
    assert_eq!((code, said), (Some(0), format!("test.path of process {pid} is 2\n")));
    assert_eq!(bench.next_value(), 2);
    let (_, said) = bench.run(&["sensors", "list"]);
    assert!(said.contains("knob") && said.contains("2 (0 to 3, default 0)"), "{said}");
    for (arguments, code, what) in [
        (["test.path", "4"], 2, "4 is out of its bounds, 0 to 3"),
        (["test.path", "-1"], 2, "-1 is out of its bounds, 0 to 3"),
        (["test.path", "much"], 2, "neither a whole number nor `default`"),
        (["test.beat", "1"], 2, "test.beat is a scalar"),
        (["test.none", "1"], 1, "no knob test.none"),
    ] {
        let (found, said) = bench.run(&[&["sensors", "set"][..], &arguments].concat());
        assert!(found == Some(code) && said.contains(what), "{arguments:?}: {found:?} {said}");
    }
    let (code, said) = bench.run(&["sensors", "set", "test.path", "3", "--for", "100ms"]);
    assert_eq!((code, said), (Some(0), format!("test.path of process {pid} is 3 for 100ms\n")));
    assert_eq!((bench.next_value(), bench.next_value()), (3, 2));
    assert_eq!(bench.run(&["sensors", "set", "test.path", "default"]).0, Some(0));
    assert_eq!(bench.next_value(), 0);
    let long = ["sensors", "set", "test.path", "1", "--for", "100s"];
    let mut holder = Running(bench.fettle(&long).stdout(Stdio::null()).spawn().unwrap());
    assert_eq!(bench.next_value(), 1);
    let (code, said) = bench.run(&["sensors", "set", "test.path", "2"]);
    assert!(code == Some(2) && said.contains("another process holds this knob"), "{said}");
    holder.kill();
    assert_eq!(bench.next_value(), 0, "its holder was killed");
}

#[test]
fn a_rule_sets_a_knob_for_some_time() {
    let mut bench = Bench::new();
    let set = format!("rule slow {{ {STILL} -> set \"test.path\" to 2 for 200ms }}");
    let dry = ["--duration", "300ms"];
    let (mut watcher, _) = bench.watch(&set, &dry);
    assert_eq!(watcher.0.wait().unwrap().code(), Some(1));
    let (mut watcher, mut out) = bench.watch(&set, &["--act"]);
    assert_eq!(next(&mut out)["kind"], "watching");
    let found = next(&mut out);
    assert_eq!(found["entry"]["done"][0]["error"], serde_json::Value::Null, "{found}");
    assert_eq!((bench.next_value(), bench.next_value()), (2, 0), "and nothing before that");
    assert_eq!(next(&mut out)["given_back"]["knob"], "test.path");
    watcher.kill();
    let (_, said) = bench.run(&["watch", "--history", "--state", "state"]);
    assert!(
        said.contains("set test.path to 2 for 200ms") && said.contains("is what it was"),
        "{said}"
    );

    let wrong = format!(
        "rule high {{ {STILL} -> set \"test.path\" to 9 }}\nrule none {{ {STILL} -> set \"test.nope\" to 1 }}"
    );
    let (_watcher, mut out) = bench.watch(&wrong, &["--act"]);
    next(&mut out);
    for what in ["9 is out of its bounds, 0 to 3", "it has no knob test.nope"] {
        let found = next(&mut out);
        let error = found["entry"]["done"][0]["error"].as_str().unwrap_or_default();
        assert!(error.contains(what), "{found}");
    }
}

#[test]
fn a_killed_watcher_s_knobs_are_given_back() {
    let mut bench = Bench::new();
    let set = format!("rule slow {{ {STILL} -> set \"test.path\" to 3 }}");
    let (mut watcher, _out) = bench.watch(&set, &["--act"]);
    assert_eq!(bench.next_value(), 3);
    let killed = Instant::now();
    watcher.kill();
    assert_eq!(bench.next_value(), 0);
    assert!(killed.elapsed() < Duration::from_secs(2), "{:?}", killed.elapsed());

    // Where the guard is killed with it, the next process that looks puts it right.
    let (mut watcher, _out) = bench.watch(&set, &["--act"]);
    assert_eq!(bench.next_value(), 3);
    let guards = children(watcher.0.id());
    assert_eq!(guards.len(), 1);
    assert!(Command::new("kill").arg("-9").args(&guards).status().unwrap().success());
    watcher.kill();
    let (_, said) = bench.run(&["sensors", "list"]);
    assert!(said.contains("0 (0 to 3, default 0)"), "{said}");
    assert_eq!(bench.next_value(), 0);

    // A watcher whose guard alone was killed starts another one.
    let (mut watcher, _out) = bench.watch(&set, &["--act"]);
    assert_eq!(bench.next_value(), 3);
    let guards = children(watcher.0.id());
    assert!(Command::new("kill").arg("-9").args(&guards).status().unwrap().success());
    let begun = Instant::now();
    while children(watcher.0.id()).iter().all(|pid| guards.contains(pid)) {
        assert!(begun.elapsed() < Duration::from_secs(10), "no other guard");
        std::thread::sleep(Duration::from_millis(20));
    }
    // What it is to guard may still wait in its pipe.
    watcher.kill();
    assert_eq!(bench.next_value(), 0);
}
