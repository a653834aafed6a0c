//! What the server answers, and to which requests: asked over a plain connection, as any program
//! could.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;

use fettle_abi::record::{CallRecord, FunctionId};
use fettle_server::Server;
use fettle_trace::{
    Clock, EventField, EventWriter, FieldType, Finish, Function, Manifest, Module, Thread, Trace,
    TraceWriter,
};
use fettle_types::FunctionIndex;

/// A thread that called function 0 a hundred times, which called function 1 each time.
fn make_trace(folder: &Path) -> Trace {
    let clock = Clock { tsc_hz: 1_000_000_000, tsc_at_start: 1 << 50, begin: None, end: None };
    let manifest = Manifest { command: vec!["prog".into()], clock, ..Manifest::default() };
    let mut writer = TraceWriter::create(folder, &manifest).unwrap();
    let mut bytes = Vec::new();
    for call in 0..100u64 {
        let start = (1 << 50) + call * 1000;
        for (function, start, ticks) in [(1, start + 100, 50 + call), (0, start, 900)] {
            let record = CallRecord::new(FunctionId::from_index(function).unwrap(), start, ticks);
            bytes.extend(record.start_and_id_high.to_le_bytes());
            bytes.extend(record.ticks_and_id_low.to_le_bytes());
        }
    }
    writer.spool_append(0, &bytes).unwrap();
    let mut finish = Finish { manifest, ..Finish::default() };
    finish.modules.push(Module { path: "/usr/bin/prog".into(), ..Module::default() });
    for (id, name) in [(0, "outer"), (1, "<script>alert(1)</script>")] {
        finish.functions.push(Function {
            id: FunctionIndex(id),
            name: name.into(),
            ..Function::default()
        });
    }
    finish.threads.push(Thread { end_ns: 100_000, name: "main".into(), ..Thread::default() });
    finish.manifest.duration_ns = 100_000;
    writer.finish(finish, &mut |_, _| {}).unwrap();
    Trace::open(folder).unwrap()
}

struct Served {
    address: String,
    token: String,
    _folder: tempfile::TempDir,
}

struct Answer {
    status: u16,
    head: String,
    body: Vec<u8>,
}

impl Answer {
    fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines();
        lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }

    fn json(&self) -> serde_json::Value {
        assert_eq!(self.status, 200, "{}", String::from_utf8_lossy(&self.body));
        serde_json::from_slice(&self.body).unwrap()
    }
}

fn served() -> Served {
    served_of(make_trace)
}

fn served_of(make: fn(&Path) -> Trace) -> Served {
    let folder = tempfile::tempdir().unwrap();
    let trace = make(&folder.path().join("prog.fettle"));
    let server = Server::bind(0).unwrap();
    let url = server.url();
    let (address, token) = url.split_once("/#token=").unwrap();
    let address = address.strip_prefix("http://").unwrap().to_owned();
    let token = token.to_owned();
    // Ends with the test's process.
    std::thread::spawn(move || server.run(trace));
    Served { address, token, _folder: folder }
}

impl Served {
    /// Sends a request line and headers as they are.
    fn raw(&self, line: &str, headers: &[(&str, &str)]) -> Answer {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        let mut text = format!("{line} HTTP/1.1\r\nConnection: close\r\n");
        for (name, value) in headers {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        stream.write_all(format!("{text}\r\n").as_bytes()).unwrap();
        let mut all = Vec::new();
        stream.read_to_end(&mut all).unwrap();
        let end = all.windows(4).position(|four| four == b"\r\n\r\n").expect("a head");
        let head = String::from_utf8(all[..end].to_vec()).unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Answer { status, head, body: all[end + 4..].to_vec() }
    }

    /// Asks as the page does.
    fn get(&self, path: &str) -> Answer {
        let headers = [("Host", self.address.as_str()), ("x-fettle-token", &self.token)];
        self.raw(&format!("GET {path}"), &headers)
    }
}

#[test]
fn nobody_learns_of_the_trace_without_the_token() {
    let served = served();
    let host = served.address.as_str();
    let wrong = "0".repeat(served.token.len());
    let paths = [
        "trace",
        "locks",
        "report",
        "viewport",
        "range",
        "call",
        "calls",
        "durations",
        "next",
        "requests",
        "requests/listed",
        "request",
        "communication",
    ];
    for path in paths {
        let line = format!("GET /api/{path}");
        for headers in [vec![("Host", host)], vec![("Host", host), ("x-fettle-token", &wrong)]] {
            let answer = served.raw(&line, &headers);
            assert_eq!(answer.status, 401, "{path}");
            assert!(String::from_utf8_lossy(&answer.body).contains("fettle ui"));
        }
        // A token in the address is none: addresses are kept and shown.
        let line = format!("GET /api/{path}?token={}", served.token);
        assert_eq!(served.raw(&line, &[("Host", host)]).status, 401);
    }
    assert_eq!(served.get("/api/trace").json()["calls"], 200);
}

#[test]
fn other_names_and_other_pages_are_not_heard() {
    let served = served();
    let host = served.address.as_str();
    let token = ("x-fettle-token", served.token.as_str());
    let port = host.split_once(':').unwrap().1;
    let rebound = format!("evil.example:{port}");
    for line in ["GET /", "GET /api/trace"] {
        assert_eq!(served.raw(line, &[("Host", &rebound), token]).status, 421);
        assert_eq!(served.raw(line, &[("Host", "127.0.0.1"), token]).status, 421);
        for origin in ["http://evil.example", "null", "https://127.0.0.1"] {
            let answer = served.raw(line, &[("Host", host), token, ("Origin", origin)]);
            assert_eq!(answer.status, 403, "{origin}");
            assert_eq!(answer.header("access-control-allow-origin"), None);
        }
        let elsewhere = [("Host", host), token, ("Sec-Fetch-Site", "cross-site")];
        assert_eq!(served.raw(line, &elsewhere).status, 403);
        let own = format!("http://{host}");
        let own = [("Host", host), token, ("Origin", &own), ("Sec-Fetch-Site", "same-origin")];
        assert_eq!(served.raw(line, &own).status, 200);
    }
    // A link may stand elsewhere; a frame, a script or an image may not.
    let follow = |dest| {
        let mode = if dest == "document" || dest == "iframe" { "navigate" } else { "no-cors" };
        let site = ("Sec-Fetch-Site", "cross-site");
        let headers = [("Host", host), site, ("Sec-Fetch-Mode", mode), ("Sec-Fetch-Dest", dest)];
        served.raw("GET /", &headers).status
    };
    assert_eq!(["document", "iframe", "script", "image"].map(follow), [200, 403, 403, 403]);
    // A browser asks first before it sends a header of its own to another origin.
    let ask = [
        ("Host", host),
        ("Origin", "http://evil.example"),
        ("Access-Control-Request-Headers", "x-fettle-token"),
    ];
    assert_eq!(served.raw("OPTIONS /api/trace", &ask).status, 403);
}

#[test]
fn every_answer_says_what_a_browser_may_do_with_it() {
    let served = served();
    for path in ["/", "/main.js", "/nothing", "/api/trace", "/api/nothing"] {
        let answer = served.get(path);
        let policy = answer.header("content-security-policy").expect(path);
        assert!(policy.contains("default-src 'none'") && policy.contains("script-src 'self'"));
        assert!(policy.contains("frame-ancestors 'none'") && !policy.contains("unsafe"));
        assert_eq!(answer.header("x-content-type-options"), Some("nosniff"));
        assert_eq!(answer.header("cache-control"), Some("no-store"));
        assert_eq!(answer.header("set-cookie"), None);
    }
    let page = served.get("/");
    assert_eq!(page.header("content-type"), Some("text/html; charset=utf-8"));
    let page = String::from_utf8(page.body).unwrap();
    assert!(!page.contains("<script>") && !page.contains(" style=") && !page.contains(" onclick"));
}

#[test]
fn a_path_names_no_file() {
    let served = served();
    let paths = [
        "/../Cargo.toml",
        "/../../../../etc/passwd",
        "/..%2f..%2fetc/passwd",
        "/%2e%2e/Cargo.toml",
        "//etc/passwd",
        "/etc/passwd",
        "/manifest.json",
    ];
    for path in paths {
        let answer = served.get(path);
        assert!(answer.status == 404 || answer.status == 400, "{path}: {}", answer.status);
    }
    assert_eq!(served.raw("POST /", &[("Host", &served.address)]).status, 405);
}

#[test]
fn answers_are_what_the_trace_says() {
    let served = served();
    let trace = served.get("/api/trace").json();
    assert_eq!(trace["threads"][0]["depths"], 2);
    let names = trace["labels"].as_array().unwrap();
    let label = |name: &str| names.iter().position(|known| known["name"] == name).unwrap();
    let (outer, inner) = (label("outer"), label("<script>alert(1)</script>"));

    let range = served.get("/api/range?from=0&to=100000").json();
    assert_eq!(range["total_ns"], 90_000);
    let inner_ns: u64 = (0..100).map(|call| 50 + call).sum();
    for (at, calls, total, own) in
        [(outer, 100, 90_000, 90_000 - inner_ns), (inner, 100, inner_ns, inner_ns)]
    {
        let rows = range["functions"].as_array().unwrap();
        let row = rows.iter().find(|row| row["label"] == at).unwrap();
        assert_eq!((&row["calls"], &row["total_ns"]), (&calls.into(), &total.into()));
        assert_eq!(row["self_ns"], own);
    }

    let calls = served.get(&format!("/api/calls?function={inner}&shortest=100&limit=2")).json();
    assert_eq!((&calls["count"], calls["calls"].as_array().unwrap().len()), (&50.into(), 2));
    assert_eq!(calls["calls"][0]["duration_ns"], 149);
    let call = served.get("/api/call?thread=0&depth=1&index=99").json();
    assert_eq!((&call["duration_ns"], &call["callers"][0]["label"]), (&149.into(), &outer.into()));
    let call = served.get("/api/call?thread=0&depth=0&index=3").json();
    assert_eq!((&call["self_ns"], &call["callee_calls"]), (&(900 - 53).into(), &1.into()));

    let next = served.get(&format!("/api/next?function={inner}&from=5100")).json();
    assert_eq!(next["calls"][0]["start_ns"], 6100);
    let last = served.get(&format!("/api/next?function={inner}&from=5100&backwards=true")).json();
    assert_eq!(last["calls"][0]["start_ns"], 4100);

    let viewport = served.get("/api/viewport?from=0&to=100000&cell_bits=1&tracks=0:0-2");
    // A head; the thread's empty track of off-CPU times; two tracks of 100 pieces.
    assert_eq!(viewport.body.len(), 16 + 16 + 2 * (16 + 100 * 32));
}

/// A thread that waited for what it received, and was woken for it twice at once.
fn make_events(folder: &Path) -> Trace {
    let manifest = Manifest::default();
    let writer = TraceWriter::create(folder, &manifest).unwrap();
    let mut events = EventWriter::create(folder).unwrap();
    let thread = [("pid", FieldType::U32), ("tid", FieldType::U32), ("socket", FieldType::U64)];
    let said = [("local", FieldType::Text), ("remote", FieldType::Text), ("bytes", FieldType::I64)];
    let fields = |more: &[(&str, FieldType)]| -> Vec<EventField> {
        thread.iter().chain(more).map(|(name, ty)| EventField::new(*name, *ty)).collect()
    };
    let begin = events.kind("receive_begin", &fields(&[])).unwrap();
    let received = events.kind("received", &fields(&said)).unwrap();
    let [local, remote] = ["here:1", "there:2"].map(|name| u64::from(events.text(name)));
    events.push(begin, 1000, 0, &[7, 8, 99]).unwrap();
    events.push(received, 4000, 0, &[7, 8, 99, local, remote, 5]).unwrap();
    events.push(received, 4000, 0, &[7, 8, 99, local, remote, 6]).unwrap();
    let mut finish = Finish { manifest, ..Finish::default() };
    finish.events = events.finish(Vec::new()).unwrap();
    let thread = Thread { pid: 7, tid: 8, end_ns: 9000, name: "main".into(), ..Thread::default() };
    finish.threads.push(thread);
    finish.manifest.duration_ns = 9000;
    writer.finish(finish, &mut |_, _| {}).unwrap();
    Trace::open(folder).unwrap()
}

#[test]
fn events_are_rows_down_to_one_of_them() {
    let served = served_of(make_events);
    let trace = served.get("/api/trace").json();
    let thread = &trace["threads"][0];
    assert_eq!(
        (&thread["depths"], &thread["reported"], &thread["events"]),
        (&0.into(), &3.into(), &3.into())
    );
    let name = |call: &serde_json::Value| {
        let label = &trace["labels"][call["label"].as_u64().unwrap() as usize];
        (label["what"].as_str().unwrap().to_owned(), label["name"].as_str().unwrap().to_owned())
    };
    let call = |row: u32, index: u32| {
        let depth = 0x10000 + row;
        served.get(&format!("/api/call?thread=0&depth={depth}&index={index}")).json()
    };
    // What it did: it waited until it received.
    let waited = call(0, 0);
    assert_eq!(name(&waited), ("state".into(), "network".into()));
    assert_eq!((&waited["start_ns"], &waited["duration_ns"]), (&1000.into(), &3000.into()));
    // From the beginning to the end.
    let lasted = call(1, 0);
    assert_eq!(name(&lasted), ("lasting".into(), "received".into()));
    assert_eq!(lasted["fields"][6], serde_json::json!(["bytes", "5"]));
    // Each event, also of two at one time.
    for (index, bytes) in [(1, "5"), (2, "6")] {
        let event = call(2, index);
        assert_eq!(name(&event), ("event".into(), "received".into()));
        assert_eq!(event["fields"][5], serde_json::json!(["remote", "there:2"]));
        assert_eq!(event["fields"][6], serde_json::json!(["bytes", bytes]));
    }
    assert_eq!(call(2, 0)["behind"]["index"], 1);
    let viewport = served.get("/api/viewport?from=0&to=9000&cell_bits=1&tracks=0:0-65540");
    // A head; the empty track of off-CPU times; two states, what lasted, and two pieces.
    assert_eq!(viewport.body.len(), 16 + 16 + (16 + 2 * 32) + (16 + 32) + (16 + 2 * 32));
}

#[test]
fn nonsense_is_refused_in_words() {
    let served = served();
    for path in [
        "/api/viewport?from=0&to=1000&cell_bits=0&tracks=what",
        "/api/viewport?from=5&to=5&cell_bits=0&tracks=0:0-1",
        "/api/viewport?from=0&to=18446744073709551615&cell_bits=0&tracks=0:0-1",
        "/api/viewport?from=-1&to=5&cell_bits=0&tracks=0:0-1",
        "/api/range?from=9&to=3",
        "/api/calls",
        "/api/calls?function=x",
    ] {
        let answer = served.get(path);
        assert_eq!(answer.status, 400, "{path}");
        assert!(!answer.body.is_empty());
    }
    assert_eq!(served.get("/api/call?thread=0&depth=9&index=0").status, 404);
    let none = served.get("/api/viewport?from=0&to=10&cell_bits=0&tracks=77:0-4294967295");
    assert_eq!((none.status, none.body.len()), (200, 16));
}

#[test]
fn requests_are_those_of_the_schema_that_suits() {
    let served = served();
    // No events: each outermost call is what a request is.
    let list = served.get("/api/requests").json();
    assert_eq!(list["schemas"], serde_json::json!(["calls"]));
    assert_eq!(list["requests"], 100);
    let bars = list["bars"].as_array().unwrap();
    assert_eq!(bars.iter().map(|bar| bar[1].as_u64().unwrap()).sum::<u64>(), 100);
    let page = served.get("/api/requests/listed?order=wall&down=true&first=90&limit=20").json();
    assert_eq!((&page["found"], page["rows"].as_array().unwrap().len()), (&100.into(), 10));
    let row = &page["rows"][7];
    let (schema, id) = (&row["schema"], &row["id"]);
    let whole = served.get(&format!("/api/request?schema={schema}&id={id}")).json();
    for field in row.as_object().unwrap().keys() {
        assert_eq!(whole["request"][field], row[field], "{field}");
    }
    let found = served.get(&format!("/api/requests/listed?find=%23{id}&limit=9")).json();
    assert!(found["rows"].as_array().unwrap().contains(row), "{found}");
    let long = served.get("/api/requests/listed?shortest=18446744073709551615&limit=9").json();
    assert_eq!(long["found"], 0);
    for wrong in ["order=taste", "first=-1", "shortest=x", "schema=../x"] {
        assert_eq!(served.get(&format!("/api/requests/listed?{wrong}")).status, 400, "{wrong}");
    }
    assert_eq!(whole["actors"].as_array().unwrap().len(), 1);
    for path in ["/api/request?schema=0&id=123456", "/api/request?schema=9&id=0"] {
        assert_eq!(served.get(path).status, 404, "{path}");
    }
    assert_eq!(served.get("/api/request?schema=0").status, 400);
    assert_eq!(served.get("/api/communication").json()["tables"], serde_json::json!([]));
}
