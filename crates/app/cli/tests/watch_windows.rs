//! `fettle watch` by conditions over windows, on a program that counts what it does; and actions that have
//! another Fettle do something about it.

mod watching;

use std::io::Write;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;
use watching::{Group, next, start, watch};

/// Serves a made-up request each tenth of a millisecond, in a way that letters choose.
const COUNTING: &str = r#"
#include "fettle.h"
#include <poll.h>
#include <stdlib.h>
#include <unistd.h>
FETTLE_HISTOGRAM(times, "shop.time", 8, 1);
FETTLE_SCALAR(all, "shop.all", 8, 2);
FETTLE_SCALAR(bad, "shop.bad", 8, 3);
static int compare(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }
int main(void) {
    char mode = 'f';
    struct pollfd in = { .fd = 0, .events = POLLIN };
    unsigned long seed = 1;
    static int values[2048];
    for (;;) {
        if (poll(&in, 1, mode == 'w' ? 0 : 1) > 0 && read(0, &mode, 1) != 1) return 0;
        for (int i = 0; i < 10; i++) {
            FETTLE_RECORD(times, mode == 's' ? 40000000 : mode == 'm' ? 15000000 : 1000000);
            FETTLE_ADD(all, 1);
            if (mode == 'b' && i == 0) FETTLE_ADD(bad, 1);
        }
        if (mode == 'w') {
            for (int i = 0; i < 2048; i++) values[i] = (int)((seed = seed * 1103515245u + 12345u) >> 8);
            qsort(values, 2048, sizeof values[0], compare);
        }
    }
}
"#;

const RULES: &str = r#"
rule slow { p99 of histogram "shop.time" of process of "counting" > 20ms over 100ms for 3 windows until 10ms -> ACTIONS at most 99 in 1m }
rule bad  { share of "shop.bad" in "shop.all" of process of "counting" > 2% over 100ms for 2 windows -> log }
"#;

fn rules(actions: &str) -> String {
    RULES.replace("ACTIONS", actions)
}

/// The program, and what makes it fast, slow or bad.
struct Counting {
    process: Group,
    input: ChildStdin,
}

impl Counting {
    fn start(folder: &Path, more: &[&str]) -> Counting {
        let (source, program) = (folder.join("counting.c"), folder.join("counting"));
        std::fs::write(&source, COUNTING).unwrap();
        let headers = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../runtime/sensor");
        let mut gcc = Command::new("gcc");
        gcc.args(["-std=gnu11", "-O2", "-I", headers]).args(more);
        assert!(gcc.arg("-o").arg(&program).arg(&source).status().unwrap().success());
        let mut command = Command::new(&program);
        command.env("FETTLE_SENSORS", sensors(folder)).stdin(Stdio::piped());
        let mut process = start(&mut command);
        let input = process.0.stdin.take().unwrap();
        Counting { process, input }
    }

    fn is_now(&mut self, letter: u8) {
        self.input.write_all(&[letter]).unwrap();
    }

    fn pid(&self) -> u32 {
        self.process.0.id()
    }
}

/// Where the sensors are of a test.
fn sensors(folder: &Path) -> PathBuf {
    let place = folder.join("sensors");
    fettle_sensor::Directory::create(&place).unwrap();
    place
}

/// In memory, as sensors are.
fn folder() -> TempDir {
    tempfile::tempdir_in("/dev/shm").unwrap()
}

fn pause() {
    std::thread::sleep(Duration::from_millis(600));
}

/// The next finding, and the rule that has found it.
fn found(out: &mut impl std::io::BufRead) -> (String, Value) {
    let found = next(out);
    assert_eq!(found["kind"], "found", "{found}");
    (found["entry"]["rule"].as_str().unwrap().to_owned(), found["entry"].clone())
}

#[test]
fn windows_are_judged_with_hysteresis_and_again_on_the_recording() {
    let folder = folder();
    let mut program = Counting::start(folder.path(), &[]);
    let pid = program.pid();
    let more = ["--act", "--record", "looks"];
    let (mut watcher, mut out) = watch(folder.path(), &rules("log"), pid, &more);
    assert_eq!(next(&mut out)["kind"], "watching");
    pause();
    program.is_now(b's');
    let (rule, entry) = found(&mut out);
    let why = &entry["finding"]["why"];
    assert_eq!((rule.as_str(), &why["kind"]), ("slow", &Value::from("above")), "{entry}");
    assert_eq!(why["measure"]["quantile"]["histogram"], "shop.time", "{entry}");
    // A bucket is an eighth of its value wide.
    let value = why["value"].as_u64().unwrap();
    assert!((35_000_000..=40_000_000).contains(&value), "{entry}");
    assert_eq!(why["limit"], 20_000_000, "{entry}");
    assert!(why["values"].as_u64().unwrap() >= 10, "{entry}");
    // Three windows have to pass first.
    let since = entry["finding"]["since_ns"].as_u64().unwrap();
    // Below the limit, and not below what it is to fall to: it goes on to hold.
    program.is_now(b'm');
    pause();
    program.is_now(b's');
    pause();
    program.is_now(b'b');
    let (rule, entry) = found(&mut out);
    assert_eq!(rule, "bad", "{entry}");
    let why = &entry["finding"]["why"];
    assert_eq!(why["measure"]["share"]["whole"], "shop.all", "{entry}");
    let share = why["value"].as_u64().unwrap();
    assert!((20_000..=100_000).contains(&share) && why["limit"] == 20_000, "{entry}");
    pause();
    program.is_now(b's');
    let (rule, entry) = found(&mut out);
    assert_eq!(rule, "slow", "{entry}");
    assert!(entry["finding"]["since_ns"].as_u64().unwrap() > since + 300_000_000, "{entry}");

    Command::new("kill").args(["-INT", &watcher.0.id().to_string()]).status().unwrap();
    assert_eq!(watcher.0.wait().unwrap().code(), Some(1));
    let fettle = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fettle"));
        let out = command.current_dir(folder.path()).args(arguments).output().unwrap();
        String::from_utf8_lossy(&out.stdout).into_owned()
    };
    let said = fettle(&["watch", "rules", "--replay", "looks"]);
    assert!(said.contains("slow: held 2 times") && said.contains("bad: held 1 time"), "{said}");
    let said = fettle(&["watch", "--history", "--state", "state"]);
    assert!(said.contains("has p99 of shop.time at ") && said.contains(" % of shop.all"), "{said}");
}

/// Waits for what has come of a job of this kind.
fn ended(out: &mut impl std::io::BufRead, job: &str) -> Value {
    loop {
        let said = next(out);
        if said["kind"] == "ended" {
            assert_eq!(said["ended"]["job"], job, "{said}");
            return said["ended"].clone();
        }
    }
}

#[test]
fn a_process_is_tuned_because_a_rule_says_so() {
    let folder = folder();
    let mut program = Counting::start(folder.path(), &[]);
    let count = "cut -d' ' -f1 /proc/uptime | tr -d .";
    let (_watcher, mut out) = watch(
        folder.path(),
        &rules(&format!("tune by {count:?}, tune")),
        program.pid(),
        &["--act"],
    );
    assert_eq!(next(&mut out)["kind"], "watching");
    program.is_now(b's');
    let (_, entry) = found(&mut out);
    program.is_now(b'w');
    let done = &entry["done"];
    assert_eq!((&done[0]["error"], done[0]["result"].is_string()), (&Value::Null, true), "{entry}");
    // One at a time.
    let second = done[1]["error"].as_str().unwrap();
    assert!(second.contains("`tune` by rule slow goes on"), "{entry}");
    let ended = ended(&mut out, "tune");
    assert_eq!(ended["error"], Value::Null, "{ended}");
    let result = ended["result"].as_str().unwrap();
    assert!(["faster", "no certain gain", "nothing was"].iter().any(|w| result.starts_with(w)));
    let place = PathBuf::from(ended["folder"].as_str().unwrap());
    let text = std::fs::read_to_string(place.join("tune.json")).unwrap();
    let tuned: Value = serde_json::from_str(text.trim()).unwrap();
    assert_eq!(tuned["pid"], program.pid(), "{text}");
    // The journal has it, too.
    let mut history = Command::new(env!("CARGO_BIN_EXE_fettle"));
    history.current_dir(folder.path()).args(["watch", "--history", "--state", "state"]);
    let said = String::from_utf8_lossy(&history.output().unwrap().stdout).into_owned();
    assert!(said.contains(&format!("slow: tune of process {}: {result}", program.pid())), "{said}");
    assert!(program.process.0.try_wait().unwrap().is_none());
}

#[test]
fn what_cannot_be_tuned_is_said_and_ends_with_the_watcher() {
    let folder = folder();
    let mut program = Counting::start(folder.path(), &["-static"]);
    let (_watcher, mut out) = watch(folder.path(), &rules("tune"), program.pid(), &["--act"]);
    assert_eq!(next(&mut out)["kind"], "watching");
    program.is_now(b's');
    let refused = ended(&mut out, "tune");
    assert!(refused["error"].as_str().unwrap().contains("static"), "{refused}");

    // A job that goes on when the watcher is to end is interrupted, and its end is written down.
    let other = self::folder();
    let mut program = Counting::start(other.path(), &[]);
    let (mut watcher, mut out) = watch(other.path(), &rules("tune"), program.pid(), &["--act"]);
    assert_eq!(next(&mut out)["kind"], "watching");
    program.is_now(b's');
    found(&mut out);
    Command::new("kill").args(["-INT", &watcher.0.id().to_string()]).status().unwrap();
    let interrupted = ended(&mut out, "tune");
    assert!(interrupted["error"].as_str().unwrap().contains("watcher ended"), "{interrupted}");
    assert_eq!(watcher.0.wait().unwrap().code(), Some(1));
    assert!(program.process.0.try_wait().unwrap().is_none());
}

/// Two services that speak HTTP: the first asks the second, which fails for one of five.
const SHOP: &str = r#"
import http.server, random, sys, time, urllib.error, urllib.request
class Stock(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def answer(self, status):
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()
    def do_GET(self):
        if self.path.endswith("slow"):
            time.sleep(0.4)
        self.answer(500 if self.path.endswith("7") or self.path.endswith("2") else 200)
    def log_message(self, *_):
        pass
class Front(Stock):
    def do_GET(self):
        try:
            with urllib.request.urlopen("http://127.0.0.1:%s/stock%s" % (sys.argv[2], self.path)) as answer:
                answer.read()
            self.answer(200)
        except urllib.error.HTTPError as error:
            error.close()
            self.answer(502)
http.server.ThreadingHTTPServer.request_queue_size = 128
# Ports that clients get by themselves are no service's.
while True:
    try:
        port = random.randrange(15000, 30000)
        server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Front if len(sys.argv) > 2 else Stock)
        break
    except OSError:
        pass
print(server.server_port, flush=True)
server.serve_forever()
"#;

fn service(folder: &Path, asks: Option<u16>) -> (Group, u16) {
    let script = folder.join("shop.py");
    std::fs::write(&script, SHOP).unwrap();
    let mut command = Command::new("python3");
    command.arg(script).arg("serve").args(asks.map(|port| port.to_string()));
    let mut process = start(&mut command);
    let mut line = String::new();
    let mut out = std::io::BufReader::new(process.0.stdout.take().unwrap());
    std::io::BufRead::read_line(&mut out, &mut line).unwrap();
    (process, line.trim().parse().unwrap())
}

/// Says so when it is dropped, whatever happens meanwhile.
struct Over<'a>(&'a std::sync::atomic::AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, std::sync::atomic::Ordering::Relaxed);
    }
}

#[test]
fn what_is_at_fault_is_located_because_a_rule_says_so() {
    if fettle_live::user() != 0 {
        return eprintln!("skipped 1 test: the kernel's events are recorded by root alone");
    }
    let folder = folder();
    let (stock, stock_port) = service(folder.path(), None);
    let (front, port) = service(folder.path(), Some(stock_port));
    let mut program = Counting::start(folder.path(), &[]);
    let pids = format!("{},{}", stock.0.id(), front.0.id());
    let text = rules("keep evidence, locate over 3s");
    let (_watcher, mut out) = watch(folder.path(), &text, program.pid(), &["--act", "-p", &pids]);
    assert_eq!(next(&mut out)["kind"], "watching");
    program.is_now(b's');
    let (_, entry) = found(&mut out);
    let done = &entry["done"];
    assert_eq!(done[1]["error"], Value::Null, "{entry}");
    // It is asked for as long as that is recorded.
    let is_over = std::sync::atomic::AtomicBool::new(false);
    let ask = || {
        for n in (0..).take_while(|_| !is_over.load(std::sync::atomic::Ordering::Relaxed)) {
            let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
            let close = "Connection: close";
            write!(stream, "GET /cart/{n} HTTP/1.1\r\nHost: x\r\n{close}\r\n\r\n").unwrap();
            std::io::copy(&mut stream, &mut std::io::sink()).unwrap();
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    let ended = std::thread::scope(|scope| {
        scope.spawn(ask);
        let _over = Over(&is_over);
        ended(&mut out, "locate")
    });
    let result = ended["result"].as_str().unwrap_or_else(|| panic!("{ended}"));
    assert!(result.contains(&format!("127.0.0.1:{stock_port} fails: 500")), "{ended}");
    // All of it is in the folder with the evidence, and can be opened.
    let place = PathBuf::from(ended["folder"].as_str().unwrap());
    assert_eq!(done[0]["result"], ended["folder"], "{entry}");
    for name in ["finding.json", "located.json", "located.txt", "requests.fettle"] {
        assert!(place.join(name).exists(), "{name}");
    }
    let text = std::fs::read_to_string(place.join("located.txt")).unwrap();
    assert!(text.contains("fault 1") && text.contains("fails: 500"), "{text}");
}

/// Asks a service all the time what this says, by many clients at once, until it is dropped.
struct Load {
    path: std::sync::Arc<std::sync::Mutex<&'static str>>,
    clients: Vec<std::thread::JoinHandle<()>>,
}

impl Load {
    fn start(port: u16) -> Load {
        let path = std::sync::Arc::new(std::sync::Mutex::new("/cart/1"));
        let ask = move |path: std::sync::Arc<std::sync::Mutex<&'static str>>| loop {
            let now = *path.lock().unwrap();
            if now.is_empty() {
                return;
            }
            let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
            write!(stream, "GET {now} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
            std::io::copy(&mut stream, &mut std::io::sink()).unwrap();
            std::thread::sleep(Duration::from_millis(100));
        };
        let client = |_| {
            let path = path.clone();
            std::thread::spawn(move || ask(path))
        };
        let clients = (0..24).map(client).collect();
        Load { path, clients }
    }

    fn asks(&self, path: &'static str) {
        *self.path.lock().unwrap() = path;
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.asks("");
        for client in self.clients.drain(..) {
            let _ = client.join();
        }
    }
}

#[test]
fn requests_that_a_program_answers_are_judged_without_its_help() {
    if fettle_live::user() != 0 {
        return eprintln!("skipped 1 test: the kernel's events are recorded by root alone");
    }
    let folder = folder();
    let (stock, port) = service(folder.path(), None);
    let python = watching::python();
    let rules = format!(
        "rule late {{ p99 of requests \"GET /cart/*\" of process of {python:?} > 250ms over 500ms for 2 windows -> log }}
         rule bad {{ share of failed requests \"*\" of process of {python:?} > 20% over 500ms -> log }}
         rule none {{ p50 of requests \"POST *\" of process of {python:?} > 1us over 500ms -> log }}"
    );
    let record = ["--record", "looks"];
    let (mut watcher, mut out) = watch(folder.path(), &rules, stock.0.id(), &record);
    assert_eq!(next(&mut out)["kind"], "watching");
    let load = Load::start(port);
    pause();
    load.asks("/cart/slow");
    let (rule, entry) = found(&mut out);
    let why = &entry["finding"]["why"];
    assert_eq!((rule.as_str(), &why["limit"]), ("late", &Value::from(250_000_000)), "{entry}");
    assert_eq!(why["measure"]["requests"]["pattern"], "GET /cart/*", "{entry}");
    // It sleeps for 400 ms; a bucket is a 32nd of its value wide.
    assert!(why["value"].as_u64().unwrap() >= 380_000_000, "{entry}");
    assert_eq!(entry["finding"]["process"]["pid"], stock.0.id(), "{entry}");
    load.asks("/cart/7");
    let (rule, entry) = found(&mut out);
    let why = &entry["finding"]["why"];
    assert_eq!((rule.as_str(), &why["limit"]), ("bad", &Value::from(200_000)), "{entry}");
    assert_eq!(why["measure"]["failures"]["pattern"], "*", "{entry}");
    drop(load);

    Command::new("kill").args(["-INT", &watcher.0.id().to_string()]).status().unwrap();
    assert_eq!(watcher.0.wait().unwrap().code(), Some(1));
    let mut replay = Command::new(env!("CARGO_BIN_EXE_fettle"));
    replay.current_dir(folder.path()).args(["watch", "rules", "--replay", "looks"]);
    let said = String::from_utf8_lossy(&replay.output().unwrap().stdout).into_owned();
    for part in ["has p99 of requests \"GET /cart/*\" at ", "of requests \"*\"", "none: did not"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    // Nothing of the recording is left; what is left by a watcher that is killed goes with the next one.
    let state = folder.path().join("state");
    let left = || {
        let all = std::fs::read_dir(&state).unwrap().flatten();
        let is_left =
            |e: &std::fs::DirEntry| e.file_name().to_string_lossy().starts_with("requests-");
        all.filter(is_left).count()
    };
    assert_eq!(left(), 0);
    let (mut killed, mut out) = watch(folder.path(), &rules, stock.0.id(), &[]);
    assert_eq!(next(&mut out)["kind"], "watching");
    assert_eq!((left(), recorders_in(&state)), (1, 1));
    killed.0.kill().unwrap();
    killed.0.wait().unwrap();
    let begun = Instant::now();
    while recorders_in(&state) > 0 {
        assert!(begun.elapsed() < Duration::from_secs(20), "the recorder goes on");
        std::thread::sleep(Duration::from_millis(20));
    }
    let more = ["--duration", "100ms"];
    let (mut last, _out) = watch(folder.path(), &rules, stock.0.id(), &more);
    assert_eq!(last.0.wait().unwrap().code(), Some(0));
    assert_eq!(left(), 0);
}

/// Processes that record into a folder below this one.
fn recorders_in(state: &Path) -> usize {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let place = state.canonicalize().unwrap().display().to_string();
    let records = |entry: &std::fs::DirEntry| {
        let command = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let command = String::from_utf8_lossy(&command).into_owned();
        command.contains(&place) && command.contains("--with-parent")
    };
    processes.filter(records).count()
}
