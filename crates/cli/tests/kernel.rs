//! `fettle record --kernel` and its kin, from outside.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

fn fettle() -> Command {
    Command::new(env!("CARGO_BIN_EXE_fettle"))
}

/// Whether kernel events can be recorded here; says why not.
fn possible(folder: &Path) -> bool {
    let trace = folder.join("possible");
    let mut record = fettle();
    record.args(["record", "--kernel", "--no-probes", "-q", "-o"]).arg(&trace).args(["--", "true"]);
    let output = record.output().unwrap();
    if !output.status.success() {
        eprintln!("skipped: {}", String::from_utf8_lossy(&output.stderr).trim());
        assert_eq!(output.status.code(), Some(2));
        assert!(!trace.exists());
    }
    output.status.success()
}

/// Rows of each kind of event.
fn events(trace: &Path) -> Value {
    let manifest = std::fs::read(trace.join("manifest.json")).unwrap();
    let manifest: Value = serde_json::from_slice(&manifest).unwrap();
    let kinds = manifest["events"]["kinds"].as_array().unwrap();
    kinds
        .iter()
        .map(|kind| (kind["name"].as_str().unwrap().to_owned(), kind["rows"].clone()))
        .collect()
}

fn is_whole(trace: &Path) {
    let check = fettle().args(["trace", "check"]).arg(trace).output().unwrap();
    assert!(check.status.success(), "{check:?}");
}

const PIPELINE: &str =
    "dd if=/dev/zero bs=1000 count=100 2>/dev/null | cat >/dev/null; echo out; exit 3";

fn pipeline(trace: &Path, arguments: &[&str]) -> Output {
    let mut record = fettle();
    record.arg("record").args(arguments).arg("-o").arg(trace).args(["--", "sh", "-c", PIPELINE]);
    record.output().unwrap()
}

#[test]
fn with_and_without_probes() {
    let folder = tempfile::tempdir().unwrap();
    if !possible(folder.path()) {
        return;
    }
    for (name, arguments) in [
        ("alone", &["--kernel", "--no-probes"][..]),
        ("both", &["--kernel"]),
        ("system", &["--system", "--no-probes"]),
    ] {
        let trace = folder.path().join(name);
        let output = pipeline(&trace, arguments);
        assert_eq!(output.status.code(), Some(3), "{output:?}");
        assert_eq!(output.stdout, b"out\n");
        is_whole(&trace);
        let events = events(&trace);
        let least = |kind: &str| events[kind].as_u64().unwrap();
        if name == "system" {
            assert!(least("pipe_write") >= 100 && least("exec") >= 3, "{events}");
            continue;
        }
        // The last is what echo says to us.
        assert_eq!((least("pipe_write"), least("exec"), least("process_exit")), (101, 3, 3));
        let report = fettle().args(["report", "--json"]).arg(&trace).output().unwrap();
        let report: Value = serde_json::from_slice(&report.stdout).unwrap();
        assert_eq!(report["run"]["calls"].as_u64().unwrap() > 0, name == "both");
        assert_eq!(report["run"]["processes"], 3);
    }
}

/// A shell that answers lines, and so never ends by itself.
fn echoing() -> Child {
    let mut shell = Command::new("sh");
    shell.args(["-c", "while read line; do echo $line; done"]);
    shell.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap()
}

#[test]
fn a_running_process_for_a_time() {
    let folder = tempfile::tempdir().unwrap();
    if !possible(folder.path()) {
        return;
    }
    let trace = folder.path().join("pid");
    let mut shell = echoing();
    let mut record = fettle();
    record.args(["record", "-p", &shell.id().to_string(), "--duration", "1h", "-q", "-o"]);
    let mut record = record.arg(&trace).spawn().unwrap();
    // Until it is observed, every line may be the first.
    let spool = trace.join("spool/kernel.events");
    let long = |path: &PathBuf| std::fs::metadata(path).is_ok_and(|m| m.len() > 100_000);
    let start = Instant::now();
    while !long(&spool) && start.elapsed() < Duration::from_secs(60) {
        use std::io::Write as _;
        shell.stdin.as_mut().unwrap().write_all(b"line\n").unwrap();
        std::io::Read::read_exact(shell.stdout.as_mut().unwrap(), &mut [0; 5]).unwrap();
    }
    // It ends with the process.
    drop(shell.stdin.take());
    shell.wait().unwrap();
    assert!(record.wait().unwrap().success());
    is_whole(&trace);
    let events = events(&trace);
    assert!(events["pipe_read"].as_u64().unwrap() > 100, "{events}");
    assert_eq!(events["process_exit"], 1);
}

#[test]
fn killed_it_leaves_a_trace_that_can_be_read() {
    let folder = tempfile::tempdir().unwrap();
    if !possible(folder.path()) {
        return;
    }
    let trace = folder.path().join("killed");
    let mut record = fettle();
    record.args(["record", "--system", "-q", "-o"]).arg(&trace);
    let mut record = record.spawn().unwrap();
    let spool = trace.join("spool/kernel.events");
    while !std::fs::metadata(&spool).is_ok_and(|m| m.len() > 10_000) {
        assert!(Command::new("true").status().unwrap().success());
    }
    record.kill().unwrap();
    record.wait().unwrap();
    let report = fettle().args(["report", "--json"]).arg(&trace).output().unwrap();
    let report: Value = serde_json::from_slice(&report.stdout).unwrap();
    assert_eq!(report["run"]["cut_off"], true);
    assert!(report["events"].as_array().unwrap().len() > 5, "{report}");
}

#[test]
fn what_cannot_be_is_said_and_nothing_runs() {
    let folder = tempfile::tempdir().unwrap();
    let ran = folder.path().join("ran");
    let touch = ["--", "touch", ran.to_str().unwrap()];
    let output = fettle().args(["record", "--no-probes"]).args(touch).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("goes with --kernel"), "{output:?}");
    for wrong in [&["-p", "1", "--system"][..], &["-p", "1", "--duration", "5y"], &["-p", "x"]] {
        let output = fettle().arg("record").args(wrong).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{output:?}");
    }
    let output = fettle().args(["record", "-p", "4194303"]).current_dir(&folder).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("process 4194303"), "{said}");
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0);

    // Without privileges, which root gives up here.
    let root = Command::new("id").arg("-u").output().unwrap().stdout == b"0\n";
    if !root {
        return;
    }
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    std::fs::set_permissions(&folder, open).unwrap();
    let mut record = Command::new("setpriv");
    record.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
    record.arg(env!("CARGO_BIN_EXE_fettle")).args(["record", "--kernel"]).args(touch);
    let output = record.current_dir(&folder).output().unwrap();
    if output.status.code() == Some(127) || output.status.code() == Some(126) {
        eprintln!("skipped: the executable is not for everybody");
        return;
    }
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("need root"), "{output:?}");
    assert!(!ran.exists());
}
