//! `fettle requests` and `fettle schema` from outside, on a trace whose requests are known.

#[path = "../../../analyse/follow/tests/shop/mod.rs"]
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

/// Spans of two services without an id: each of 40 questions to `front` asks `store` twice, the second time
/// when it has the first answer, and the next question comes before.
fn spans(folder: &Path) -> Vec<String> {
    let mut files = Vec::new();
    for service in ["front", "store"] {
        let mut spans = Vec::new();
        for n in 0..40_u64 {
            let begin = 1_700_000_000_000_000_000 + n * 9_000_000 + n * n % 7 * 900_000;
            let mut span = |kind: &str, name: &str, from: u64, to: u64| {
                let (from, to) = (begin + from * 1000, begin + to * 1000);
                spans.push(format!(
                    r#"{{"name":"{name}","kind":"SPAN_KIND_{kind}","startTimeUnixNano":"{from}","endTimeUnixNano":"{to}"}}"#
                ));
            };
            for first in [100, 10_000] {
                match service {
                    "front" => span("CLIENT", "store/get", first, first + 9_000),
                    _ => span("SERVER", "store/get", first + 500, first + 8_500),
                }
            }
            if service == "front" {
                span("SERVER", "GET /", 0, 20_000);
            }
        }
        let resource = format!(
            r#"{{"attributes":[{{"key":"service.name","value":{{"stringValue":"{service}"}}}}]}}"#
        );
        let spans = spans.join(",");
        let text = format!(
            r#"{{"resourceSpans":[{{"resource":{resource},"scopeSpans":[{{"spans":[{spans}]}}]}}]}}"#
        );
        let path = folder.join(format!("{service}.json"));
        std::fs::write(&path, text).unwrap();
        files.push(path.display().to_string());
    }
    files
}

#[test]
fn spans_without_ids_are_requests() {
    let folder = tempfile::tempdir().unwrap();
    let files = spans(folder.path());
    let mut args = vec!["requests", "--list", "--json", "--without-ids"];
    args.extend(files.iter().map(String::as_str));
    let output = fettle(&args);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(said.contains("ids were dropped: of 200 spans"), "{said}");
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let requests = json["requests"].as_array().unwrap();
    assert_eq!(requests.len(), 40);
    for request in requests {
        // Five spans, each with its begin and its end.
        assert_eq!((&request["class"], &request["events"]), (&"GET /".into(), &10.into()));
        assert_eq!(request["certainty"], "chosen");
    }

    // What is kept as a trace says the same.
    let trace = folder.path().join("kept.fettle").display().to_string();
    let mut args = vec!["import", "--without-ids", "-o", &trace];
    args.extend(files.iter().map(String::as_str));
    assert_eq!(fettle(&args).status.code(), Some(0));
    let kept = fettle(&["requests", "--list", "--json", &trace]);
    assert_eq!(kept.stdout, output.stdout);

    let wrong = fettle(&["requests", "--without-ids", "/dev/null"]);
    let said = String::from_utf8_lossy(&wrong.stderr).into_owned();
    assert_eq!((wrong.status.code(), said.lines().count()), (Some(2), 1), "{said}");
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

    // A file of events that is cut: the others are used, and the exit status says so.
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

/// A trace without calls has nothing for formats of calls.
#[test]
fn what_has_no_calls_is_exported_as_requests_or_not_at_all() {
    let (dir, trace) = trace();
    let file = dir.path().join("exported");
    let export = |format: &str| {
        fettle(&["export", &trace, "--format", format, "-o", file.to_str().unwrap()])
    };
    for format in ["chrome", "speedscope", "pprof", "collapsed"] {
        let output = export(format);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{format}: {said}");
        assert!(said.contains("no readable records of single calls"), "{format}: {said}");
        assert!(!file.exists(), "{format}");
    }
    let output = export("perfetto");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("300 requests"), "{said}");
}

/// An export that fails leaves the file of that name as it was, and what is no file is never replaced.
#[test]
fn an_export_is_there_whole_or_not_at_all() {
    let (dir, trace) = trace();
    let file = dir.path().join("spans.json");
    std::fs::write(&file, "an older one").unwrap();
    let link = dir.path().join("link");
    std::os::unix::fs::symlink(&file, &link).unwrap();
    let export = |to: &Path, before: &str| {
        let script = format!("{before} exec \"$@\"");
        let mut command = Command::new("sh");
        command.args(["-c", &script, "sh", env!("CARGO_BIN_EXE_fettle")]);
        command.args(["export", &trace, "--format", "otlp", "-o"]).arg(to).output().unwrap()
    };
    let names = || std::fs::read_dir(dir.path()).unwrap().count();
    let before = names();

    // A disk that is full looks the same.
    let output = export(&file, "trap '' XFSZ; ulimit -f 1;");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("cannot write") && said.contains("spans.json"), "{said}");
    assert_eq!(std::fs::read(&file).unwrap(), b"an older one");
    assert_eq!(names(), before);

    // The temporary file next to it was not named by the user.
    let output = export(&dir.path().join("no/such/spans.json"), "");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("No such file") && !said.contains(".partial"), "{said}");

    // What a link leads to is what was meant.
    let output = export(&link, "");
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(link.is_symlink());
    let whole = std::fs::read(&file).unwrap();
    assert_eq!(whole.iter().filter(|byte| **byte == b'\n').count(), 300);
    assert_eq!(names(), before);

    // A named pipe is written to, and stays one though its reader ends early.
    let pipe = dir.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let read = |script: &str| Command::new("sh").args(["-c", script, "sh"]).arg(&pipe).spawn();
    let mut reader = read("exec wc -c < \"$1\" > \"$1.count\"").unwrap();
    assert_eq!(export(&pipe, "").status.code(), Some(0));
    assert!(reader.wait().unwrap().success());
    let count = std::fs::read_to_string(dir.path().join("pipe.count")).unwrap();
    assert_eq!(count.trim(), whole.len().to_string());
    let mut reader = read("exec head -c 1 \"$1\" > /dev/null").unwrap();
    assert_eq!(export(&pipe, "").status.code(), Some(2));
    reader.wait().unwrap();
    use std::os::unix::fs::FileTypeExt;
    assert!(std::fs::symlink_metadata(&pipe).unwrap().file_type().is_fifo());
}

/// Traces that were imported show what they have; of those with nothing to follow it is said what there is.
#[test]
fn imported_spans_are_requests() {
    let dir = tempfile::tempdir().unwrap();
    let span = |id: &str, parent: &str, name: &str, from: u64, to: u64| {
        format!(
            r#"{{"traceId":"t","spanId":"{id}","parentSpanId":"{parent}","name":"{name}",
                "startTimeUnixNano":"{from}","endTimeUnixNano":"{to}"}}"#
        )
    };
    let spans = [span("a", "", "GET /shop", 1000, 9000), span("b", "a", "SELECT", 2000, 5000)];
    let otlp =
        format!(r#"{{"resourceSpans":[{{"scopeSpans":[{{"spans":[{}]}}]}}]}}"#, spans.join(","));
    let chrome = r#"{"traceEvents":[{"name":"f","ph":"X","pid":1,"tid":1,"ts":1,"dur":9},
        {"name":"g","ph":"X","pid":1,"tid":1,"ts":2,"dur":3}]}"#;
    let wait = r#"[{"name":"f","ph":"i","pid":1,"tid":1,"ts":1,"s":"t"}]"#;
    let shown = |name: &str, text: &str| {
        let [file, trace] = ["json", "fettle"].map(|end| dir.path().join(format!("{name}.{end}")));
        std::fs::write(&file, text).unwrap();
        let [file, trace] = [file, trace].map(|path| path.display().to_string());
        let imported = fettle(&["import", &file, "-o", &trace]);
        assert!(imported.status.success(), "{imported:?}");
        let output = fettle(&["requests", &trace]);
        stdout(&output) + &String::from_utf8(output.stderr).unwrap()
    };
    let text = shown("spans", &otlp);
    assert!(text.contains("schema spans") && text.contains("GET /shop"), "{text}");
    let text = shown("calls", chrome);
    assert!(text.contains("schema calls") && text.contains("1 request\n"), "{text}");
    let text = shown("moment", wait);
    assert!(text.contains("fettle schema events --trace"), "{text}");
}
