//! `fettle watch` on real programs: a pre-forking server whose workers hang, and a deadlock.

mod watching;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use watching::{Group, next, python, start, watch};

const SERVER: &str = r#"
import os, socket, sys
s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.bind(("127.0.0.1", 0)); s.listen(64)
def work():
    while True:
        c, _ = s.accept()
        word = c.recv(100)
        if word == b"spin":
            while True: pass
        if word == b"think":
            sum(range(150000))
        c.sendall(b"done"); c.close()
def start():
    if os.fork() == 0: work()
start()
print(s.getsockname()[1], flush=True)
while True:
    os.wait(); start()
"#;

const DEADLOCK: &str = r#"
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>
static pthread_mutex_t a = PTHREAD_MUTEX_INITIALIZER, b = PTHREAD_MUTEX_INITIALIZER;
static void *other(void *p) {
    pthread_mutex_lock(&b); usleep(50000); pthread_mutex_lock(&a); return p;
}
int main(void) {
    pthread_t t;
    pthread_create(&t, NULL, other, NULL);
    pthread_mutex_lock(&a); usleep(50000); pthread_mutex_lock(&b);
    return 0;
}
"#;

fn server() -> (Group, u16) {
    let mut server = start(Command::new("python3").args(["-c", SERVER]));
    let mut line = String::new();
    BufReader::new(server.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
    (server, line.trim().parse().unwrap())
}

fn ask(port: u16, word: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.write_all(word).unwrap();
    stream
}

fn answer(mut stream: TcpStream) -> String {
    let mut text = String::new();
    let _ = stream.read_to_string(&mut text);
    text
}

#[test]
fn a_worker_that_spins_is_replaced_and_one_that_thinks_is_not() {
    let folder = TempDir::new().unwrap();
    let (server, port) = server();
    let rules = format!(
        "rule stuck {{ worker of {:?} spins exactly 200ms without progress -> keep evidence, restart kill }}",
        python()
    );
    let record = ["--act", "--record", "looks"];
    let (watcher, mut out) = watch(folder.path(), &rules, server.0.id(), &record);
    assert_eq!(next(&mut out)["kind"], "watching");
    for _ in 0..20 {
        assert_eq!(answer(ask(port, b"think")), "done");
    }
    let hung = ask(port, b"spin");
    let found = next(&mut out);
    assert_eq!(found["entry"]["finding"]["why"]["kind"], "spins", "{found}");
    let replaced = next(&mut out);
    assert_eq!(replaced["kind"], "replaced", "{replaced}");
    assert_eq!(replaced["old"], found["entry"]["finding"]["process"]["pid"]);
    assert_eq!(answer(hung), "");
    assert_eq!(answer(ask(port, b"hello")), "done", "its successor answers");
    let evidence = found["entry"]["done"][0]["result"].as_str().unwrap().to_owned();
    let evidence = folder.path().join(evidence);
    assert!(evidence.join("finding.json").exists() && evidence.join("status").exists());

    // One watcher at a time.
    let mut second = Command::new(env!("CARGO_BIN_EXE_fettle"));
    second.current_dir(folder.path()).args(["watch", "rules", "--state", "state", "-p"]);
    let second = second.arg(server.0.id().to_string()).output().unwrap();
    assert_eq!(second.status.code(), Some(2), "{second:?}");
    assert!(
        String::from_utf8_lossy(&second.stderr).contains("another fettle watches"),
        "{second:?}"
    );

    // What was seen leads to the same finding again.
    let mut watcher = watcher;
    Command::new("kill").args(["-INT", &watcher.0.id().to_string()]).status().unwrap();
    assert_eq!(watcher.0.wait().unwrap().code(), Some(1));
    let fettle = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fettle"));
        command.current_dir(folder.path()).args(arguments).output().unwrap()
    };
    let replayed = fettle(&["watch", "rules", "--replay", "looks"]);
    let said = String::from_utf8_lossy(&replayed.stdout).into_owned();
    assert!(replayed.status.code() == Some(1) && said.contains("stuck: held 1 time"), "{said}");
    let history = fettle(&["watch", "--history", "--state", "state"]);
    let said = String::from_utf8_lossy(&history.stdout).into_owned();
    assert!(said.contains("spins: thread") && said.contains("killed, for its parent"), "{said}");
}

#[test]
fn what_was_learned_is_known_to_the_next_watcher() {
    let folder = TempDir::new().unwrap();
    let (server, port) = server();
    let rules =
        format!("rule stuck {{ worker of {:?} spins 200ms without progress -> log }}", python());
    let learned = |state: &str| folder.path().join(state).join("learned");
    let (mut watcher, mut out) = watch(folder.path(), &rules, server.0.id(), &["--act"]);
    assert_eq!(next(&mut out)["kind"], "watching");
    // Enough: it waits for most of them.
    for turn in 0..4000 {
        let word: &[u8] = if turn % 8 == 0 { b"think" } else { b"hello" };
        assert_eq!(answer(ask(port, word)), "done");
    }
    Command::new("kill").args(["-INT", &watcher.0.id().to_string()]).status().unwrap();
    // None of these computes nearly as long as the rule says, however busy the machine is.
    assert_eq!(watcher.0.wait().unwrap().code(), Some(0));
    let files: Vec<_> = std::fs::read_dir(learned("state")).unwrap().flatten().collect();
    assert!(!files.is_empty());

    // It knows at once, and so does who reads what it has seen.
    let record = ["--record", "looks"];
    let (mut watcher, mut out) = watch(folder.path(), &rules, server.0.id(), &record);
    assert_eq!(next(&mut out)["kind"], "watching");
    let hung = ask(port, b"spin");
    let found = next(&mut out);
    let marks = found["entry"]["finding"]["why"]["learned_from"].as_u64().unwrap();
    assert!(marks >= 1000, "{found}");
    Command::new("kill").args(["-INT", &watcher.0.id().to_string()]).status().unwrap();
    assert_eq!(watcher.0.wait().unwrap().code(), Some(1));
    let mut replay = Command::new(env!("CARGO_BIN_EXE_fettle"));
    replay.current_dir(folder.path()).args(["watch", "rules", "--replay", "looks"]);
    let said = String::from_utf8_lossy(&replay.output().unwrap().stdout).into_owned();
    assert!(said.contains(&format!("learned from {marks} marks")), "{said}");
    drop(hung);

    // What others could have written is learned anew.
    for file in files {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o666);
        std::fs::set_permissions(file.path(), mode).unwrap();
    }
    let (_watcher, mut out) = watch(folder.path(), &rules, server.0.id(), &[]);
    assert_eq!(next(&mut out)["kind"], "watching");
    let found = next(&mut out);
    let marks = found["entry"]["finding"]["why"]["learned_from"].as_u64().unwrap();
    assert!(marks < 1000, "{found}");
}

#[test]
fn nothing_is_done_without_being_asked_for() {
    let folder = TempDir::new().unwrap();
    let (server, port) = server();
    let rules = format!(
        "rule stuck {{ worker of {:?} spins exactly 50ms without progress -> restart kill }}",
        python()
    );
    let (_watcher, mut out) = watch(folder.path(), &rules, server.0.id(), &[]);
    let watching = next(&mut out);
    let hung = ask(port, b"spin");
    let found = next(&mut out);
    assert_eq!(found["entry"]["done"], serde_json::json!([]), "{watching} {found}");
    let pid = &found["entry"]["finding"]["process"]["pid"];
    assert!(Path::new(&format!("/proc/{pid}")).exists());
    drop(hung);
}

#[test]
fn a_deadlock_is_found_and_its_process_signalled() {
    let folder = TempDir::new().unwrap();
    let (source, program) = (folder.path().join("dead.c"), folder.path().join("dead"));
    std::fs::write(&source, DEADLOCK).unwrap();
    let built =
        Command::new("gcc").args(["-O1", "-pthread", "-o"]).arg(&program).arg(&source).status();
    assert!(built.unwrap().success());
    let mut process = start(&mut Command::new(&program));
    let rules = "rule dead { process of \"dead\" waits in a cycle -> signal TERM }";
    let (_watcher, mut out) = watch(folder.path(), rules, process.0.id(), &["--act"]);
    assert_eq!(next(&mut out)["kind"], "watching");
    let found = next(&mut out);
    let why = &found["entry"]["finding"]["why"];
    assert_eq!(why["kind"], "cycle", "{found}");
    assert_eq!(why["tids"].as_array().unwrap().len(), 2, "{found}");
    let begun = Instant::now();
    while process.0.try_wait().unwrap().is_none() {
        assert!(begun.elapsed() < Duration::from_secs(20));
        std::thread::sleep(Duration::from_millis(10));
    }
    use std::os::unix::process::ExitStatusExt;
    assert_eq!(process.0.wait().unwrap().signal(), Some(15));
}

#[test]
fn a_webhook_is_told_and_metrics_are_read() {
    let folder = TempDir::new().unwrap();
    let (server, port) = server();
    let receiver = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/hung", receiver.local_addr().unwrap());
    let rules = format!(
        "rule stuck {{ worker of {:?} spins exactly 50ms without progress -> webhook \"{url}\" }}",
        python()
    );
    let more = ["--act", "--metrics", "127.0.0.1:0"];
    let (_watcher, mut out) = watch(folder.path(), &rules, server.0.id(), &more);
    assert_eq!(next(&mut out)["kind"], "watching");
    let metrics = next(&mut out);
    let _hung = ask(port, b"spin");
    let (mut stream, _) = receiver.accept().unwrap();
    let (mut request, mut bytes) = (String::new(), [0; 4096]);
    while !request.contains("\"done\":") {
        let n = stream.read(&mut bytes).unwrap();
        assert!(n > 0, "{request}");
        request.push_str(std::str::from_utf8(&bytes[..n]).unwrap());
    }
    assert!(request.contains("\"rule\":\"stuck\""), "{request}");
    stream.write_all(b"HTTP/1.1 204 Fine\r\n\r\n").unwrap();
    drop(stream);
    assert_eq!(next(&mut out)["kind"], "found");
    let sent = next(&mut out);
    assert_eq!((&sent["kind"], &sent["sent"]["status"]), (&"sent".into(), &204.into()), "{sent}");

    let token = folder.path().join(metrics["token_file"].as_str().unwrap());
    let token = std::fs::read_to_string(token).unwrap();
    let mut stream = TcpStream::connect(metrics["address"].as_str().unwrap()).unwrap();
    let header = format!("Connection: close\r\nAuthorization: Bearer {token}");
    write!(stream, "GET /metrics HTTP/1.1\r\nHost: x\r\n{header}\r\n\r\n").unwrap();
    let text = answer(stream);
    assert!(text.contains("fettle_watch_webhooks_total{result=\"taken\"} 1\n"), "{text}");
}

#[test]
fn webhooks_are_checked_and_said_before_they_are_sent() {
    let folder = TempDir::new().unwrap();
    let fettle = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fettle"));
        let out = command.current_dir(folder.path()).args(arguments).output().unwrap();
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        (out.status.code(), text(&out.stdout), text(&out.stderr))
    };
    let rule = |url: &str| {
        let text = format!("rule a {{ process of \"x\" waits in a cycle -> webhook {url:?} }}");
        std::fs::write(folder.path().join("rules"), text).unwrap();
    };
    rule("https://example.org/");
    let (status, _, said) = fettle(&["watch", "rules", "--check"]);
    assert!(status == Some(2) && said.contains("rules:1:53") && said.contains("https"), "{said}");
    rule("http://127.0.0.1:9000/");
    assert_eq!(fettle(&["watch", "rules", "--check"]).0, Some(0));
    let pid = std::process::id().to_string();
    let (status, _, said) = fettle(&["watch", "rules", "-p", &pid, "--metrics", "0.0.0.0:1"]);
    assert!(status == Some(2) && said.contains("this machine alone"), "{said}");

    // A dry run shows the message.
    let (server, port) = server();
    let receiver = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    receiver.set_nonblocking(true).unwrap();
    let url = format!("http://{}/hung", receiver.local_addr().unwrap());
    let rules = format!(
        "rule stuck {{ worker of {:?} spins exactly 50ms without progress -> webhook \"{url}\" }}",
        python()
    );
    let (_watcher, mut out) = watch(folder.path(), &rules, server.0.id(), &[]);
    assert_eq!(next(&mut out)["kind"], "watching");
    let _hung = ask(port, b"spin");
    assert_eq!(next(&mut out)["kind"], "found");
    let would = next(&mut out);
    assert_eq!((&would["kind"], &would["webhook"]), (&"would-send".into(), &url.into()), "{would}");
    assert_eq!(would["message"]["rule"], "stuck");
    assert!(receiver.accept().is_err());
}

const SPINNING: &str = r#"
#include <pthread.h>
#include <stdio.h>
#include <sys/poll.h>
#include <unistd.h>
static volatile long turns;
__attribute__((noinline)) static void spins_here(void) { for (;;) turns++; }
__attribute__((noinline)) static void serves(void) { spins_here(); turns = 0; }
static void *waits(void *p) {
    if (poll(NULL, 0, 600000) == 0) return p;
    puts("woken");
    fflush(stdout);
    return p;
}
int main(void) {
    pthread_t t;
    pthread_create(&t, NULL, waits, NULL);
    usleep(20000);
    serves();
    return 0;
}
"#;

#[test]
fn evidence_says_what_threads_were_executing_and_disturbs_nothing() {
    // A thread that gets no processor does not stop in time: then it is tried again.
    assert!((0..6).any(|_| evidence_is_whole()), "no thread has stopped in time");
}

fn evidence_is_whole() -> bool {
    let folder = TempDir::new().unwrap();
    let (source, program) = (folder.path().join("spinning.c"), folder.path().join("spinning"));
    std::fs::write(&source, SPINNING).unwrap();
    let built =
        Command::new("gcc").args(["-O1", "-pthread", "-o"]).arg(&program).arg(&source).status();
    assert!(built.unwrap().success());
    let mut process = start(&mut Command::new(&program));
    let rules = "rule stuck { process of \"spinning\" spins exactly 30ms without progress -> keep evidence }";
    let more = ["--act", "--duration", "3s", "--record", "looks"];
    let (mut watcher, mut out) = watch(folder.path(), rules, process.0.id(), &more);
    assert_eq!(next(&mut out)["kind"], "watching");
    let found = next(&mut out);
    let done = &found["entry"]["done"][0];
    assert!(done["error"].is_null() && done["note"].is_null(), "{found}");
    let evidence = done["result"].as_str().unwrap().to_owned();
    // The pause is no progress, so it is found once.
    let mut rest = String::new();
    out.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "");
    assert_eq!(watcher.0.wait().unwrap().code(), Some(1));
    let fettle = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fettle"));
        let out = command.current_dir(folder.path()).args(arguments).output().unwrap();
        assert!(out.stderr.is_empty(), "{out:?}");
        String::from_utf8_lossy(&out.stdout).into_owned()
    };
    let said = fettle(&["watch", "rules", "--replay", "looks"]);
    assert!(said.contains("stuck: held 1 time\n"), "{said}");
    if Path::new(&evidence).join("no-registers").exists() {
        return false;
    }
    // By now it was named in the background.
    let named = std::fs::read_to_string(Path::new(&evidence).join("callers.txt")).unwrap();
    let text = fettle(&["watch", "--evidence", &evidence]);
    assert_eq!(named, text);
    let stack = ["spins_here [spinning]", "serves [spinning]", "main [spinning]"].join("\n    ");
    assert!(text.contains(&stack), "{text}");
    assert!(text.contains("in poll") && text.contains("waits [spinning]"), "{text}");
    let json = fettle(&["watch", "--evidence", &evidence, "--json"]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["threads"][0]["callers"][0]["function"], "spins_here", "{json}");
    assert_eq!(json["threads"].as_array().unwrap().len(), 2, "{json}");
    // Nothing has noticed: the poll goes on.
    assert!(process.0.try_wait().unwrap().is_none());
    process.0.kill().unwrap();
    let mut woken = String::new();
    process.0.stdout.take().unwrap().read_to_string(&mut woken).unwrap();
    assert_eq!(woken, "");

    let none = TempDir::new().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_fettle"));
    let out = command.args(["watch", "--evidence"]).arg(none.path()).output().unwrap();
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(out.status.code() == Some(2) && said.contains("no folder of evidence"), "{said}");
    true
}
