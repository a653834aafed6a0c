//! What tests of `fettle watch` share.
#![allow(dead_code)]

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

/// Ends what it holds, with all that it started.
pub struct Group(pub Child);

impl Drop for Group {
    fn drop(&mut self) {
        let group = format!("-{}", self.0.id());
        let _ = Command::new("kill").args(["-9", "--", &group]).stderr(Stdio::null()).status();
        let _ = self.0.wait();
    }
}

/// Starts a program in a process group of its own; its output is piped.
pub fn start(command: &mut Command) -> Group {
    use std::os::unix::process::CommandExt;
    Group(command.process_group(0).stdout(Stdio::piped()).spawn().unwrap())
}

/// Watches a process by rules, in a folder that has state and file of rules.
pub fn watch(
    folder: &Path,
    rules: &str,
    pid: u32,
    more: &[&str],
) -> (Group, BufReader<ChildStdout>) {
    std::fs::write(folder.join("rules"), rules).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_fettle"));
    command.current_dir(folder).args([
        "watch",
        "rules",
        "--json",
        "--state",
        "state",
        "-p",
        &pid.to_string(),
    ]);
    let sensors = folder.join("sensors");
    if sensors.is_dir() {
        command.env("FETTLE_SENSORS", sensors);
    }
    let mut watcher = start(command.args(more));
    let out = BufReader::new(watcher.0.stdout.take().unwrap());
    (watcher, out)
}

/// The next thing that a watcher says.
pub fn next(out: &mut impl BufRead) -> serde_json::Value {
    let mut line = String::new();
    out.read_line(&mut line).unwrap();
    serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"))
}

/// The name that a Python program goes by.
pub fn python() -> String {
    let mut python = Command::new("python3");
    python.args(["-c", "import os; print(os.path.basename(os.path.realpath('/proc/self/exe')))"]);
    String::from_utf8(python.output().unwrap().stdout).unwrap().trim().to_owned()
}
