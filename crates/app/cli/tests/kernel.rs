//! `fettle record --kernel` and what belongs to it, from outside.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
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
    let said = String::from_utf8_lossy(&check.stdout);
    // A busy machine may lose events.
    assert!(check.status.success() || said.contains("what is there is right"), "{check:?}");
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

/// A program that waits for the message that it records misses nothing.
#[test]
fn it_says_that_it_records_when_it_does() {
    let folder = tempfile::tempdir().unwrap();
    if !possible(folder.path()) {
        return;
    }
    let trace = folder.path().join("begun");
    let mut shell = echoing();
    let program = std::fs::read_link(format!("/proc/{}/exe", shell.id())).unwrap();
    let name = program.file_name().unwrap().to_str().unwrap();
    let mut record = fettle();
    record.args(["record", "-p", &shell.id().to_string(), "-o"]).arg(&trace);
    let mut record = record.stderr(Stdio::piped()).spawn().unwrap();
    let mut said = lines(record.stderr.take().unwrap());
    let first = said.next().unwrap().unwrap();
    assert!(first.contains("recording until"), "{first}");
    for _ in 0..100 {
        use std::io::Write as _;
        shell.stdin.as_mut().unwrap().write_all(b"line\n").unwrap();
        std::io::Read::read_exact(shell.stdout.as_mut().unwrap(), &mut [0; 5]).unwrap();
    }
    drop(shell.stdin.take());
    shell.wait().unwrap();
    assert!(record.wait().unwrap().success());
    assert!(said.all(|line| line.is_ok()));
    assert_eq!(events(&trace)["pipe_write"], 100);
    let manifest = fettle_trace::Trace::open(&trace).unwrap().manifest().clone();
    assert_eq!(manifest.command, [format!("{name} ({})", shell.id())]);
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

/// A web server that prints its port.
const SERVER: &str = "
import http.server, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = b'x' * 500
        self.send_response(200)
        self.send_header('Content-Length', str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *_): pass
server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), Handler)
print(server.server_port, flush=True)
server.serve_forever()
";

/// A process that is ended with this.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn lines(of: impl std::io::Read) -> std::io::Lines<std::io::BufReader<impl std::io::Read>> {
    std::io::BufRead::lines(std::io::BufReader::new(of))
}

fn get(port: u16) {
    use std::io::{Read, Write};
    let mut stream = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.ends_with("xxx"), "{answer}");
}

/// Follows a server's requests while it is recorded, until the recorder gets `signal`. Returns what
/// was printed, one object a line, how the follower ended, and what it said.
fn followed(trace: &Path, signal: &str) -> (Vec<Value>, Output) {
    let mut server = Command::new("python3");
    let server = server.args(["-c", SERVER]).stdout(Stdio::piped()).spawn().unwrap();
    let mut server = Killed(server);
    let port = lines(server.0.stdout.take().unwrap()).next().unwrap().unwrap().parse().unwrap();

    let pid = server.0.id().to_string();
    let mut record = fettle();
    record.args(["record", "-q", "-p", &pid, "-o"]).arg(trace).stderr(Stdio::null());
    let mut recorder = Killed(record.spawn().unwrap());
    while !trace.join("spool/kernel.events").is_file() {
        std::thread::sleep(Duration::from_millis(20));
    }
    let mut follow = fettle();
    follow.args(["requests", "--follow", "--json"]).arg(trace);
    let mut follower = follow.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut reported = lines(follower.stdout.take().unwrap())
        .map(|line| serde_json::from_str::<Value>(&line.unwrap()).unwrap());
    // Requests wait for the follower: each is printed while the recording goes on, and nothing else
    // happens until it is.
    let mut all = Vec::new();
    // Nor is anything reported of what came before the recorder saw the server.
    let seen = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !seen.load(Ordering::Relaxed) {
                get(port);
                std::thread::sleep(Duration::from_millis(200));
            }
        });
        let first = reported.next();
        seen.store(true, Ordering::Relaxed);
        all.push(first.expect("a request"));
    });
    for _ in 0..5 {
        get(port);
        all.push(reported.next().expect("a request"));
    }
    (0..20).for_each(|_| get(port));
    let kill = Command::new("kill").args([signal, &recorder.0.id().to_string()]).status();
    assert!(kill.unwrap().success());
    let _ = recorder.0.wait();
    all.extend(reported);
    (all, follower.wait_with_output().unwrap())
}

/// What was printed of requests while they were recorded is what is found afterwards, of so many at
/// least.
fn is_the_same(trace: &Path, mut reported: Vec<Value>, least: usize) {
    let summary = reported.pop().unwrap();
    assert_eq!(summary["summary"]["schemas"][0]["requests"], reported.len(), "{summary}");
    let list = fettle().args(["requests", "--list", "--json"]).arg(trace).output().unwrap();
    let whole: Value = serde_json::from_slice(&list.stdout).unwrap();
    let whole = whole["requests"].as_array().unwrap();
    assert!(
        reported.len() >= least && reported.len() == whole.len(),
        "{} of {}",
        reported.len(),
        whole.len()
    );
    reported.sort_by_key(|line| line["request"]["id"].as_u64());
    let mut whole: Vec<&Value> = whole.iter().collect();
    whole.sort_by_key(|row| row["id"].as_u64());
    for (live, whole) in reported.iter().zip(whole) {
        assert_eq!((&live["version"], &live["schema"]), (&1.into(), &"sockets".into()));
        let live = &live["request"];
        for same in ["schema", "id", "class", "path", "events", "actors", "outcome"] {
            assert_eq!(live[same], whole[same], "{same} of {live} and {whole}");
        }
        // The rate of the clock that dates events is known better in the end.
        for near in ["begin_ns", "wall_ns"] {
            let [live, whole] = [&live[near], &whole[near]].map(|ns| ns.as_f64().unwrap());
            assert!((live - whole).abs() <= 1e-3 * whole + 2000.0, "{near}: {live} and {whole}");
        }
    }
}

#[test]
fn requests_are_followed_while_they_are_recorded() {
    let folder = tempfile::tempdir().unwrap();
    if !possible(folder.path()) {
        return;
    }
    let trace = folder.path().join("live.fettle");
    let (reported, ended) = followed(&trace, "-INT");
    assert!(ended.status.success(), "{ended:?}");
    is_the_same(&trace, reported, 25);

    // A recorder that is killed ends it as well, and it says so.
    let trace = folder.path().join("killed.fettle");
    let (reported, ended) = followed(&trace, "-KILL");
    assert_eq!(ended.status.code(), Some(1));
    let said = String::from_utf8(ended.stderr).unwrap();
    assert!(said.contains("has gone without ending its recording"), "{said}");
    // What it had not stored yet is gone.
    is_the_same(&trace, reported, 5);

    // Of a recording that has ended it is a list.
    let again = fettle().args(["requests", "--follow", "--json"]).arg(&trace).output().unwrap();
    assert!(again.status.success());
    let again = lines(&again.stdout[..]).map(|line| serde_json::from_str(&line.unwrap()).unwrap());
    is_the_same(&trace, again.collect(), 5);
}
