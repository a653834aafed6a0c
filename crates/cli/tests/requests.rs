//! `fettle requests` and `fettle schema` from outside, on a trace whose requests are known.

#[path = "../../follow/tests/shop/mod.rs"]
mod shop;

use std::path::Path;
use std::process::{Command, Output};

use tempfile::TempDir;

fn fettle(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_fettle")).args(args).output().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// A trace of a shop.
fn trace() -> (TempDir, String) {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("shop.fettle");
    shop::write(&folder, 8, 300);
    let path = folder.display().to_string();
    (dir, path)
}

#[test]
fn the_summary_names_the_schema_the_class_and_the_slowest() {
    let (_dir, trace) = trace();
    let output = fettle(&["requests", &trace, "--slowest", "2"]);
    let text = stdout(&output);
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert!(text.contains("schema sockets, because the trace has the events"), "{text}");
    assert!(text.contains("300 requests"), "{text}");
    assert!(text.contains("message  nginx → python3 → redis-server"), "{text}");
    assert_eq!(text.matches("critical path").count(), 2, "{text}");
    assert!(!text.contains('\x1b'));

    let output = fettle(&["requests", &trace, "--json", "--slowest", "1"]);
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&json["version"], &json["schemas"][0]["requests"]), (&1.into(), &300.into()));
    let id = json["schemas"][0]["slowest"][0]["request"]["id"].to_string();

    let text = stdout(&fettle(&["requests", &trace, "--request", &id]));
    assert!(text.contains("received socket=") && text.contains("nginx/100"), "{text}");
    let list = stdout(&fettle(&["requests", &trace, "--list"]));
    assert_eq!(list.lines().count(), 301, "{list}");
    assert_eq!(fettle(&["requests", &trace, "--request", "99999"]).status.code(), Some(2));
    assert_eq!(fettle(&["requests", &trace, "--request", "x"]).status.code(), Some(2));
}

#[test]
fn analyses_answer() {
    let (_dir, trace) = trace();
    let text = stdout(&fettle(&["requests", &trace, "--analysis", "communication"]));
    assert!(text.contains("nginx/100 → python3/200  socket"), "{text}");
    let dot = stdout(&fettle(&["requests", &trace, "--analysis", "communication", "--dot"]));
    assert!(
        dot.starts_with("digraph") && dot.contains("\"nginx/100\" -> \"python3/200\""),
        "{dot}"
    );
    let text = stdout(&fettle(&["requests", &trace, "--analysis", "syscalls"]));
    assert!(text.contains("redis-server/300  poll"), "{text}");
    let text = stdout(&fettle(&["requests", &trace, "--analysis", "messages"]));
    assert!(text.contains("nginx/100  sent"), "{text}");
    let output = fettle(&["requests", &trace, "--analysis", "locks"]);
    assert_eq!(output.status.code(), Some(1), "there are no locks in it");
    assert_eq!(fettle(&["requests", &trace, "--analysis", "taste"]).status.code(), Some(2));
}

#[test]
fn schemas_are_checked_where_they_are_wrong() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let wrong =
        file("wrong.fettle-schema", "use kernel\ntimeline t(pid: u32)\non raed { start t(pid) }\n");
    let output = fettle(&["schema", "check", &wrong]);
    let text = stdout(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("wrong.fettle-schema:3:4: error"), "{text}");
    assert!(text.contains("did you mean `read`?"), "{text}");
    let output = fettle(&["schema", "check", "--json", &wrong]);
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let message = &json["files"][0]["messages"][0];
    assert_eq!((&message["line"], &message["column"]), (&3.into(), &4.into()), "{json}");

    file("mine.fettle-schema", "event taste(tid: u32)\n");
    let uses = "use mine\ntimeline t(tid: u32)\non taste { start t(tid) seed }\n";
    let fine = file("uses.fettle-schema", uses);
    let output = fettle(&["schema", "check", &fine]);
    assert_eq!(output.status.code(), Some(0), "{}", stdout(&output));
    assert_eq!(fettle(&["schema", "check", "/no/such/file"]).status.code(), Some(2));

    let list = stdout(&fettle(&["schema", "list"]));
    assert!(list.lines().any(|line| line.starts_with("sockets ")), "{list}");
    let shown = stdout(&fettle(&["schema", "show", "sockets"]));
    assert!(shown.contains("stream bytes("), "{shown}");
    let events = stdout(&fettle(&["schema", "events", "rec"]));
    assert!(events.contains("event received(pid: u32, tid: u32, socket: u64"), "{events}");
}

#[test]
fn what_there_is_nothing_about_is_said() {
    let dir = tempfile::tempdir().unwrap();
    let empty = dir.path().join("empty.fettle");
    let manifest = fettle_trace::Manifest::default();
    let writer = fettle_trace::TraceWriter::create(&empty, &manifest).unwrap();
    writer.finish(fettle_trace::Finish::default(), &mut |_, _| {}).unwrap();
    let output = fettle(&["requests", &empty.display().to_string()]);
    assert_eq!(output.status.code(), Some(2));
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(text.contains("--kernel"), "{text}");

    // A file of events that is cut: the others are used, and the exit status tells.
    let (_dir, trace) = trace();
    let file = Path::new(&trace).join("events/wakeup-0000.parquet");
    let bytes = std::fs::read(&file).unwrap();
    std::fs::write(&file, &bytes[..bytes.len() / 2]).unwrap();
    let output = fettle(&["requests", &trace]);
    let text = stdout(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("wakeup-0000.parquet") && text.contains("300 requests"), "{text}");
    let output = fettle(&["requests", &trace, "--schema", "sokets"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("sockets"));
}
