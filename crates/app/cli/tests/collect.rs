//! `fettle collect` and `fettle record --to`, from outside: the trace on the other machine is the
//! one that would have been recorded there, whatever happens to the collector on the way.

mod common;

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::time::Duration;

use common::{calls, folder};
use serde_json::Value;

const PROGRAM: &str = "
#include <stdio.h>
#include <unistd.h>
volatile int sum;
__attribute__((noinline)) int leaf_of_all(int n) { sum += n; return sum; }
__attribute__((noinline)) void walks_leaves(int n) { for (int i = 0; i < n; i++) leaf_of_all(i); }
int main(void) {
    walks_leaves(300000);
    usleep(700000);
    puts(\"half\");
    fflush(stdout);
    getchar();
    walks_leaves(300000);
    return 7;
}
";

fn program(folder: &Path) -> PathBuf {
    let (source, program) = (folder.join("prog.c"), folder.join("prog"));
    std::fs::write(&source, PROGRAM).unwrap();
    let built = Command::new("cc").arg("-O1").arg(&source).arg("-o").arg(&program).status();
    assert!(built.unwrap().success());
    program
}

/// A collector, and what it says.
struct Collector {
    child: Child,
    says: BufReader<ChildStdout>,
    address: String,
    folder: PathBuf,
}

impl Collector {
    fn start(folder: &Path, listen: &str) -> Collector {
        let mut collect = Command::new(env!("CARGO_BIN_EXE_fettle"));
        collect.args(["collect", "--json", "--listen", listen, "--keys"]).arg(folder.join("keys"));
        collect.arg("-o").arg(folder.join("traces"));
        let mut child = collect.stdout(Stdio::piped()).spawn().unwrap();
        let mut says = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        says.read_line(&mut line).unwrap();
        let said: Value = serde_json::from_str(&line).expect(&line);
        let address = said["listening"].as_str().unwrap().to_owned();
        Collector { child, says, address, folder: folder.to_owned() }
    }

    /// Waits until it says that something of a kind has happened, and what.
    fn until(&mut self, kind: &str) -> Value {
        loop {
            let mut line = String::new();
            assert!(self.says.read_line(&mut line).unwrap() > 0, "it ended before any {kind}");
            let said: Value = serde_json::from_str(&line).unwrap();
            if let Some(what) = said["happened"].get(kind) {
                return what.clone();
            }
        }
    }

    /// `fettle record --to` this one.
    fn record(&self, arguments: &[&str], program: &Path) -> Command {
        let mut record = Command::new(env!("CARGO_BIN_EXE_fettle"));
        record.args(["record", "--to", &self.address, "--key"]);
        record.arg(self.folder.join("keys/recorder.key"));
        record.arg("-o").arg(self.folder.join("waiting")).args(arguments).arg("--").arg(program);
        record.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        record
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Lets the program go on after its first half, when `half_way` has been done.
fn run(mut record: Command, half_way: impl FnOnce()) -> Output {
    let mut child = record.spawn().unwrap();
    let mut half = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut half).unwrap();
    assert_eq!(half, "half\n");
    half_way();
    child.stdin.take().unwrap().write_all(b"\n").unwrap();
    child.wait_with_output().unwrap()
}

fn arrived(said: &Value) -> PathBuf {
    PathBuf::from(said["folder"].as_str().unwrap())
}

#[test]
fn a_collector_that_is_killed_half_way_has_the_whole_trace_in_the_end() {
    let folder = folder("collect-killed");
    let program = program(&folder);
    let mut first = Collector::start(&folder, "127.0.0.1:0");
    let address = first.address.clone();
    let record = first.record(&["--when-full", "wait"], &program);
    let mut second = None;
    let output = run(record, || {
        first.until("began");
        // With a part of it there.
        let traces = std::fs::read_dir(folder.join("traces")).unwrap();
        let trace = traces.map(|entry| entry.unwrap().path()).next().unwrap();
        while !trace.join("spool/0.calls").is_file() {
            std::thread::sleep(Duration::from_millis(10));
        }
        first.child.kill().unwrap();
        first.child.wait().unwrap();
        second = Some(Collector::start(&folder, &address));
    });
    let reported = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(7), "{reported}");
    assert!(reported.contains("the trace is at the collector"), "{reported}");
    let trace = arrived(&second.unwrap().until("arrived"));
    let calls = calls(&trace);
    assert_eq!((calls["leaf_of_all"], calls["walks_leaves"], calls["main"]), (600_000, 2, 1));
    let found = fettle_trace::Trace::open(&trace).unwrap();
    let manifest = found.manifest();
    assert!(manifest.complete && manifest.losses.is_empty(), "{:?}", manifest.losses);
    let totals = &manifest.totals;
    assert!(reported.contains(&format!("fettle: {} calls", totals.calls)), "{reported}");
    assert!(totals.records >= totals.calls && totals.calls > 600_000 && totals.lost == 0);
    assert_eq!(manifest.exit.and_then(|exit| exit.code), Some(7));
    assert!(!folder.join("waiting").exists(), "nothing stays at the recorder");
}

#[test]
fn without_a_collector_nothing_runs_and_what_it_never_takes_is_sent_later() {
    let folder = folder("collect-later");
    let program = program(&folder);
    let collector = Collector::start(&folder, "127.0.0.1:0");
    let address = collector.address.clone();
    // Away for longer than the spool holds, and away at the end.
    let record = collector.record(&["--spool", "1M", "--when-full", "wait"], &program);
    let mut record = record;
    let mut child = record.spawn().unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut half = String::new();
    out.read_line(&mut half).unwrap();
    drop(collector);
    child.stdin.take().unwrap().write_all(b"\n").unwrap();
    // It waits for the collector; Ctrl-C ends that.
    let mut err = BufReader::new(child.stderr.take().unwrap());
    let mut reported = String::new();
    while !reported.contains("waiting for the collector") {
        assert!(err.read_line(&mut reported).unwrap() > 0, "{reported}");
    }
    let interrupt = Command::new("kill").args(["-INT", &child.id().to_string()]).status();
    assert!(interrupt.unwrap().success());
    std::io::Read::read_to_string(&mut err, &mut reported).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(7), "{reported}");
    assert!(reported.contains("were dropped") && reported.contains("fettle send"), "{reported}");

    let mut collector = Collector::start(&folder, &address);
    let mut send = Command::new(env!("CARGO_BIN_EXE_fettle"));
    send.arg("send").arg(folder.join("waiting")).args(["--to", &address, "--key"]);
    let sent = send.arg(folder.join("keys/recorder.key")).output().unwrap();
    assert!(sent.status.success(), "{sent:?}");
    let trace = arrived(&collector.until("arrived"));
    let found = fettle_trace::Trace::open(&trace).unwrap();
    let manifest = found.manifest();
    let lost = manifest.totals.lost;
    assert!(lost > 0, "{reported}");
    // All that were made, and those that were open when the program left them.
    let calls_made = manifest.totals.calls;
    assert!(
        (calls_made..=calls_made + 3).contains(&(manifest.totals.records + lost)),
        "{reported}"
    );
    // Exact counts do not come from records.
    assert_eq!(calls(&trace)["leaf_of_all"], 600_000);

    drop(collector);
    let mut record = Command::new(env!("CARGO_BIN_EXE_fettle"));
    record.args(["record", "--to", &address, "--key"]).arg(folder.join("keys/recorder.key"));
    record.arg("-o").arg(folder.join("none")).args(["--", "touch"]).arg(folder.join("touched"));
    let refused = record.output().unwrap();
    assert_eq!(refused.status.code(), Some(2));
    let reported = String::from_utf8_lossy(&refused.stderr);
    assert!(reported.contains("no collector at"), "{reported}");
    assert!(!folder.join("touched").exists() && !folder.join("none").exists());
}

#[test]
fn kernel_events_arrive_too() {
    let folder = folder("collect-kernel");
    let here = folder.join("here");
    let local = common::fettle(&[
        "record",
        "--kernel",
        "--no-probes",
        "-q",
        "-o",
        common::text(&here),
        "--",
        "true",
    ]);
    if !local.status.success() {
        return eprintln!("skipped: {}", String::from_utf8_lossy(&local.stderr).trim());
    }
    let mut collector = Collector::start(&folder, "127.0.0.1:0");
    let program = program(&folder);
    for arguments in [&["--kernel", "--no-probes"][..], &["--kernel"]] {
        let output = run(collector.record(arguments, &program), || ());
        assert_eq!(output.status.code(), Some(7), "{output:?}");
        let trace = arrived(&collector.until("arrived"));
        common::assert_right(&trace);
        let found = fettle_trace::Trace::open(&trace).unwrap();
        let kinds = &found.manifest().events.kinds;
        let rows = |name: &str| kinds.iter().find(|kind| kind.name == name).map_or(0, |k| k.rows);
        assert!(rows("switch_out") > 0 && rows("sleep") + rows("sleep_done") > 0, "{kinds:?}");
        let reported = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(reported.contains(&format!("{} kernel events", found.manifest().events.rows())));
        let threads = found.threads().unwrap();
        assert!(threads.iter().any(|thread| thread.name == "prog"), "{threads:?}");
    }
}
