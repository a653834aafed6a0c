//! `fettle merge` on real recordings: two servers that are recorded apart, one of them by a clock that is
//! made to be wrong, become what one recording of both says.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use fettle_trace::{EventWriter, Finish, Trace, TraceWriter};
use serde_json::Value;

fn fettle() -> Command {
    Command::new(env!("CARGO_BIN_EXE_fettle"))
}

/// An address of this machine that is not its loopback's, which no other machine can mean.
fn address() -> Option<String> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    // Nothing is sent by this.
    socket.connect("192.0.2.1:9").ok()?;
    let address = socket.local_addr().ok()?.ip();
    (!address.is_loopback() && !address.is_unspecified()).then(|| address.to_string())
}

/// A process that is ended with this.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn python(code: &str, argument: &str) -> (Killed, String) {
    let mut command = Command::new("python3");
    command.args(["-c", code, argument]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = Killed(command.spawn().unwrap());
    let mut line = String::new();
    BufReader::new(child.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
    (child, line.trim().to_owned())
}

const BACK: &str = "
import socket, sys, threading
listener = socket.create_server((sys.argv[1], 0))
print(listener.getsockname()[1], flush=True)
def serve(connection):
    with connection:
        while connection.recv(100):
            sum(range(2000))
            connection.sendall(b'answer' * 20)
while True:
    threading.Thread(target=serve, args=(listener.accept()[0],)).start()
";

/// Asks the server behind it for each question.
const FRONT: &str = "
import socket, sys, threading
host, port = sys.argv[1].split()
listener = socket.create_server(('127.0.0.1', 0))
print(listener.getsockname()[1], flush=True)
def serve(connection):
    with connection, socket.create_connection((host, int(port))) as back:
        while connection.recv(100):
            back.sendall(b'question')
            connection.sendall(back.recv(1000))
while True:
    threading.Thread(target=serve, args=(listener.accept()[0],)).start()
";

const CONNECTIONS: usize = 10;
const QUESTIONS: usize = 20;

/// The client is not recorded.
fn ask(port: u16) {
    for _ in 0..CONNECTIONS {
        // Over a second and a half, so that there are messages at all times that are looked at.
        std::thread::sleep(Duration::from_millis(150));
        let mut connection = TcpStream::connect(("127.0.0.1", port)).unwrap();
        for _ in 0..QUESTIONS {
            connection.write_all(b"question").unwrap();
            let mut answer = [0; 120];
            connection.read_exact(&mut answer).unwrap();
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

fn record(trace: &Path, pids: &[u32]) -> Killed {
    let mut command = fettle();
    command.args(["record", "-q", "-o"]).arg(trace);
    for pid in pids {
        command.args(["-p", &pid.to_string()]);
    }
    Killed(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
}

/// Writes a trace as another machine would have: by a clock of its own.
fn by_another_clock(trace: &Trace, folder: &Path, shift_ns: u64, ppm: f64) -> Trace {
    let time = |ns: u64| ns + shift_ns + (ns as f64 * ppm * 1e-6) as u64;
    let mut manifest = trace.manifest().clone();
    manifest.machine.boot = "another".into();
    manifest.machine.host = "other".into();
    manifest.duration_ns = time(manifest.duration_ns);
    let writer = TraceWriter::create(folder, &manifest).unwrap();
    let mut events = EventWriter::create(folder).unwrap();
    let mut ids = Vec::new();
    let (mut stream, damaged) = trace
        .events(&mut |kind| {
            ids.push(events.kind(&kind.name, &kind.fields[1..]).unwrap());
            Some((0..kind.fields.len()).collect())
        })
        .unwrap();
    assert!(damaged.is_empty());
    let fields: Vec<usize> = stream.kinds().map(|kind| kind.fields.len()).collect();
    while let Some(run) = stream.next(u64::MAX, &mut |text| events.text(text)).unwrap() {
        for (row, ns) in run.times_ns().iter().enumerate() {
            let values: Vec<u64> = (1..fields[run.kind]).map(|n| run.values(n)[row]).collect();
            events.push(ids[run.kind], time(*ns), run.values(0)[row] as u32, &values).unwrap();
        }
    }
    let (mut processes, mut threads) = (trace.processes().unwrap(), trace.threads().unwrap());
    for process in &mut processes {
        (process.start_ns, process.end_ns) = (time(process.start_ns), time(process.end_ns));
    }
    for thread in &mut threads {
        (thread.start_ns, thread.end_ns) = (time(thread.start_ns), time(thread.end_ns));
    }
    let events = events.finish(manifest.events.lost.clone()).unwrap();
    let finish = Finish { manifest, processes, threads, events, ..Finish::default() };
    writer.finish(finish, &mut |_, _| {}).unwrap();
    Trace::open(folder).unwrap()
}

/// What requests did, without times and numbers: how many events and threads they have, and on how
/// many machines.
fn requests(trace: &Path) -> Vec<(u64, u64, usize)> {
    let list = fettle().args(["requests", "--list", "--json"]).arg(trace).output().unwrap();
    let list: Value = serde_json::from_slice(&list.stdout).expect("JSON");
    let row = |row: &Value| {
        let path = row["path"].as_array().unwrap();
        (row["events"].as_u64().unwrap(), row["actors"].as_u64().unwrap(), path.len())
    };
    let mut rows: Vec<_> = list["requests"].as_array().unwrap().iter().map(row).collect();
    rows.sort_unstable();
    rows
}

/// How many of some requests have their like among others.
fn alike(some: &[(u64, u64, usize)], others: &[(u64, u64, usize)]) -> usize {
    let mut left: Vec<(u64, u64)> =
        others.iter().map(|(events, actors, _)| (*events, *actors)).collect();
    let same = |(events, actors, _): &&(u64, u64, usize)| {
        let found = left.iter().position(|other| *other == (*events, *actors));
        found.map(|at| left.swap_remove(at)).is_some()
    };
    some.iter().filter(same).count()
}

/// Two servers at work, and three recordings: of each of them, and of both.
fn record_all(path: &dyn Fn(&str) -> PathBuf, address: &str) {
    let (back, port) = python(BACK, address);
    let (front, port) = python(FRONT, &format!("{address} {port}"));
    let pids = [front.0.id(), back.0.id()];
    let mut recorders = vec![
        record(&path("front"), &pids[..1]),
        record(&path("back"), &pids[1..]),
        record(&path("one"), &pids),
    ];
    // The observed processes are written when the recording has begun.
    for trace in ["front", "back", "one"] {
        while !path(trace).join("processes.parquet").is_file() {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    ask(port.parse().unwrap());
    for recorder in &mut recorders {
        let id = recorder.0.id().to_string();
        assert!(Command::new("kill").args(["-INT", &id]).status().unwrap().success());
        recorder.0.wait().unwrap();
    }
}

#[test]
fn two_servers_that_were_recorded_apart() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| -> PathBuf { folder.path().join(name) };
    let Some(address) = address() else {
        eprintln!("skipped: this machine has no address but its loopback's");
        return;
    };
    let mut possible = fettle();
    possible.args(["record", "--kernel", "--no-probes", "-q", "-o"]).arg(path("possible"));
    let possible = possible.args(["--", "true"]).output().unwrap();
    if !possible.status.success() {
        eprintln!("skipped: {}", String::from_utf8_lossy(&possible.stderr).trim());
        return;
    }

    record_all(&path, &address);

    // By one clock, numbers are what they are.
    let mut merge = fettle();
    merge.arg("merge").args([path("front"), path("back")]).arg("-o").arg(path("same"));
    let said = merge.output().unwrap();
    assert!(said.status.success(), "{said:?}");
    let said = String::from_utf8(said.stdout).unwrap();
    assert!(said.contains("the same machine's clock"), "{said}");
    // Each recorder has read the clock for itself, so that one request or the other may differ.
    let all = CONNECTIONS * QUESTIONS;
    let most = all * 9 / 10;
    let expected = requests(&path("one"));
    let across = expected.iter().filter(|(_, threads, _)| *threads == 2).count();
    assert!(expected.len() == all && across >= most, "{} {across}", expected.len());
    let same = requests(&path("same"));
    assert!(same.len() == all && alike(&same, &expected) >= most, "{same:?}\n{expected:?}");

    // By another clock, messages say which one.
    let server = Trace::open(&path("back")).unwrap();
    by_another_clock(&server, &path("far"), 3_200_000_000, 50.0);
    let mut merge = fettle();
    merge.args(["merge", "--json"]).args([path("front"), path("far")]).arg("-o").arg(path("both"));
    let said = merge.output().unwrap();
    let said: Value = serde_json::from_slice(&said.stdout).expect("JSON");
    let far = &said["machines"][1]["traces"][0];
    let same = Trace::open(&path("front")).unwrap();
    let begin = |trace: &Trace| trace.manifest().clock.begin.unwrap().monotonic_ns as f64;
    let apart_ns = begin(&server) - begin(&same) - 3.2e9 * (1.0 - 50e-6);
    let (offset_ns, drift_ppm) =
        (far["offset_ns"].as_f64().unwrap(), far["drift_ppm"].as_f64().unwrap());
    let uncertainty_ns = far["uncertainty_ns"].as_f64().unwrap();
    assert_eq!(far["aligned_by"], "messages");
    assert!(uncertainty_ns < 2e6, "{far}");
    // Where messages were: some seconds after the beginning.
    for time_ns in [3.5e9, 4.5e9] {
        let expected = apart_ns - 50e-6 * time_ns;
        let found = offset_ns + drift_ppm * 1e-6 * time_ns;
        let off_ns = (found - expected).abs();
        assert!(off_ns <= uncertainty_ns + 2000.0, "{off_ns} of {far}");
    }
    let both = requests(&path("both"));
    assert!(both.len() == all && alike(&both, &expected) >= most, "{both:?}\n{expected:?}");
    let across = both.iter().filter(|(.., machines)| *machines == 2).count();
    assert!(across >= most, "{across}");
}
