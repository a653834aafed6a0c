//! `fettle cluster` from outside: a scheduler and two executors, each a process of its own, answer
//! what one process answers.
#![cfg(feature = "cluster")]

#[path = "../../../analyse/follow/tests/shop/mod.rs"]
#[allow(dead_code)]
mod shop;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;

/// A process that ends with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn fettle(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fettle"));
    command.args(args);
    command
}

fn start(args: &[&str]) -> (Running, impl Iterator<Item = String> + use<>) {
    let mut child = fettle(args).stderr(Stdio::piped()).spawn().unwrap();
    let said = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
    (Running(child), said)
}

/// A scheduler at a port that was free.
fn scheduler() -> (Running, String) {
    let (running, mut said) = start(&["cluster", "scheduler", "--bind", "127.0.0.1:0"]);
    let line = said.next().expect("it says where it is");
    let address = line.split([' ', ';']).find(|word| word.starts_with("127.0.0.1:"));
    (running, address.unwrap_or_else(|| panic!("{line}")).to_owned())
}

fn ask(trace: &Path, more: &[&str], sql: &str) -> Output {
    let trace = trace.to_str().unwrap();
    let question = [&["requests", trace, "--json", "--sql", sql], more].concat();
    fettle(&question).output().unwrap()
}

fn rows(output: &Output, what: &str) -> Vec<Value> {
    let said = String::from_utf8_lossy(&output.stderr);
    let shown = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{what}: {said}{shown}");
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    json["rows"].as_array().unwrap().clone()
}

#[test]
fn two_executors_find_what_one_process_finds() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("shop.fettle");
    shop::write(&folder, 6, 200);
    let (_scheduler, address) = scheduler();
    let executor = ["cluster", "executor", "--scheduler", &address, "--threads", "1"];
    let executors = [start(&executor), start(&executor)];
    for schema in ["sockets", "http1"] {
        for sql in [
            "SELECT * FROM requests ORDER BY schema, id",
            "SELECT * FROM spans ORDER BY request, from_ns, to_ns, actor, state",
            "SELECT request, kind, count(*) AS n, min(time_ns) AS first FROM request_events
             GROUP BY request, kind ORDER BY request, kind",
            "SELECT count(*) AS n, sum(bytes) AS bytes FROM sent",
            "SHOW TABLES",
        ] {
            let what = format!("{schema}: {sql}");
            let embedded = rows(&ask(&folder, &["--schema", schema], sql), &what);
            let more = ["--schema", schema, "--cluster", &address, "--parts", "4"];
            let found = rows(&ask(&folder, &more, sql), &what);
            if sql == "SHOW TABLES" {
                let missing: Vec<&Value> =
                    embedded.iter().filter(|row| !found.contains(row)).collect();
                assert_eq!(missing.len(), 1, "{missing:?}");
                assert_eq!(missing[0]["table_name"], "events");
                continue;
            }
            assert!(!embedded.is_empty(), "{what}");
            assert_eq!(found, embedded, "{what}");
        }
    }

    // What only the executors notice comes back as an error, and says what.
    let sent = std::fs::read_dir(folder.join("events")).unwrap().flatten();
    let sent =
        sent.map(|entry| entry.path()).find(|path| path.to_str().unwrap().contains("/sent-"));
    let sent = sent.unwrap();
    let mut bytes = std::fs::read(&sent).unwrap();
    let footer = bytes.len() * 3 / 4;
    bytes[4..footer].fill(0x5a);
    std::fs::write(&sent, bytes).unwrap();
    let output = ask(&folder, &["--cluster", &address], "SELECT count(*) FROM requests");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains(sent.file_name().unwrap().to_str().unwrap()), "{said}");
    drop(executors);
}

#[test]
fn a_scheduler_that_is_not_there_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("shop.fettle");
    shop::write(&folder, 2, 5);
    // A port that was free just before.
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let address = free.to_string();
    let output = ask(&folder, &["--cluster", &address], "SELECT 1");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("cannot reach a scheduler") && said.contains(&address), "{said}");
    let executor = ["cluster", "executor", "--scheduler", &address, "--wait", "1"];
    let output = fettle(&executor).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains(&address), "{said}");
}
