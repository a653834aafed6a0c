//! Calls that stubs reported, as spans with the ids that the stubs gave them.

use std::process::Command;

use serde_json::Value;

/// `shop.Shop/Buy` at its client and at its server, which has no such thing; and one that the server breaks at.
const EVENTS: &str = r#"{"event":1,"ns_per_tick":0.5,"pid":10,"sensor":"rpc.calls","thread":11,"ticks":5000,"time_ns":1700000000000009000,"type":"event","version":1,"words":[1000,CLIENT,1,5,7,1,2,77,0]}
{"event":1,"ns_per_tick":0.5,"pid":20,"sensor":"rpc.calls","thread":20,"ticks":4000,"time_ns":1700000000000008000,"type":"event","version":1,"words":[3000,SERVER,4294967297,5,7,1,2,78,77]}
{"event":1,"ns_per_tick":0.5,"pid":20,"sensor":"rpc.calls","thread":20,"ticks":4000,"time_ns":1700000000000008500,"type":"event","version":1,"words":[3500,BROKEN,4294967297,5,7,1,3,79,0]}
"#;

const NAMES: &str = r#"{"fettle_calls":1,"services":[{"name":"shop.Shop","methods":[{"name":"Buy","fields":[]}]}]}"#;

#[test]
fn spans_of_calls_have_the_ids_of_the_calls() {
    let folder = tempfile::tempdir().unwrap();
    let fettle = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fettle"));
        let out = command.current_dir(folder.path()).args(arguments).output().unwrap();
        assert!(out.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8_lossy(&out.stdout).into_owned()
    };
    let number = u64::from(fettle_abi::rpc::service_number("shop.Shop")) << 32;
    let what = |status: u64, flags: u64| (number | status << 8 | 1 << 4 | flags).to_string();
    let events = EVENTS
        .replace("CLIENT", &what(5, 0))
        .replace("SERVER", &what(5, 1))
        .replace("BROKEN", &what(13, 1));
    std::fs::write(folder.path().join("calls.jsonl"), events).unwrap();
    std::fs::write(folder.path().join("shop.fettle-calls"), NAMES).unwrap();
    fettle(&["import", "calls.jsonl", "shop.fettle-calls", "-o", "calls.fettle"]);
    let text = fettle(&["export", "calls.fettle", "--format", "otlp", "-o", "-"]);
    let requests: Vec<Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let spans: Vec<&Value> = requests
        .iter()
        .map(|request| &request["resourceSpans"][0]["scopeSpans"][0]["spans"][0])
        .collect();
    assert_eq!(spans.len(), 3, "{text}");
    let by_id = |id: &str| spans.iter().find(|span| span["spanId"] == id).unwrap();
    let (client, server) = (by_id("000000000000004d"), by_id("000000000000004e"));
    for span in [client, server] {
        assert_eq!(span["traceId"], "00000000000000010000000000000002");
        assert_eq!(span["name"], "shop.Shop/Buy");
    }
    assert_eq!((&client["kind"], &server["kind"]), (&3.into(), &2.into()));
    assert_eq!(
        (client["parentSpanId"].as_str(), &server["parentSpanId"]),
        (None, &client["spanId"])
    );
    // 4,000 ticks of half a nanosecond.
    assert_eq!(client["startTimeUnixNano"], "1700000000000007000");
    assert_eq!(client["endTimeUnixNano"], "1700000000000009000");
    // What was not found is an error of who asked; what broke is one of the server.
    assert_eq!(client["status"]["code"], 2);
    assert_eq!(server["status"], serde_json::json!({}));
    assert_eq!(by_id("000000000000004f")["status"]["message"], "INTERNAL");
    let code = |span: &Value| {
        let all = span["attributes"].as_array().unwrap().iter();
        let one = all.clone().find(|one| one["key"] == "rpc.grpc.status_code").unwrap();
        one["value"]["intValue"].clone()
    };
    assert_eq!((code(client), code(server)), ("5".into(), "5".into()));
    // With a schema, requests are spans.
    let refused = Command::new(env!("CARGO_BIN_EXE_fettle"))
        .current_dir(folder.path())
        .args(["export", "calls.fettle", "--format", "otlp", "--schema", "sockets", "-o", "-"])
        .output()
        .unwrap();
    assert!(!String::from_utf8_lossy(&refused.stdout).contains("000000000000004d"));
}

#[test]
fn calls_without_an_id_are_joined_and_say_how_certain_that_is() {
    let folder = tempfile::tempdir().unwrap();
    let fettle = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fettle"));
        let out = command.current_dir(folder.path()).args(arguments).output().unwrap();
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        assert!(out.status.success(), "{arguments:?}: {said}");
        (String::from_utf8_lossy(&out.stdout).into_owned(), said)
    };
    let number = u64::from(fettle_abi::rpc::service_number("shop.Shop")) << 32;
    // Two calls at once, from 5 to 9 microseconds; their servers' from 5.5 to 8.5. Only lengths tell them apart.
    let line = |server: u64, bytes: u64, id: u64| {
        let (what, pid) = (number | 1 << 4 | server, 10 + server);
        let times = ["9000,\"time_ns\":9000", "8000,\"time_ns\":8500"][server as usize];
        let begin = [1000, 2000][server as usize];
        let lengths = if server == 1 { [3, bytes] } else { [bytes, 3] };
        let counts = 1_u64 << 32 | 1;
        format!(
            r#"{{"event":1,"ns_per_tick":0.5,"pid":{pid},"sensor":"rpc.calls","thread":1,"ticks":{times},"type":"event","version":1,"words":[{begin},{what},{counts},{},{},{id},1,{id},0]}}"#,
            lengths[0], lengths[1]
        )
    };
    let write = |other: u64| {
        let lines =
            [line(0, 10, 77), line(0, other, 78), line(1, other, 80), line(1, 10, 79)].join("\n");
        std::fs::write(folder.path().join("calls.jsonl"), lines + "\n").unwrap();
        let _ = std::fs::remove_dir_all(folder.path().join("calls.fettle"));
    };
    std::fs::write(folder.path().join("shop.fettle-calls"), NAMES).unwrap();
    let inputs = ["calls.jsonl", "shop.fettle-calls"];
    let spans = || -> Vec<Value> {
        let without = ["import", "--without-ids", "-o", "calls.fettle"];
        fettle(&[&without[..], &inputs].concat());
        let (text, _) = fettle(&["export", "calls.fettle", "--format", "otlp", "-o", "-"]);
        let span = |line: &str| serde_json::from_str::<Value>(line).unwrap();
        text.lines()
            .map(|line| span(line)["resourceSpans"][0]["scopeSpans"][0]["spans"][0].clone())
            .collect()
    };
    let said = |span: &Value, key: &str| -> Value {
        let all = span["attributes"].as_array().unwrap();
        let one = all.iter().find(|one| one["key"] == key);
        one.map_or(Value::Null, |one| one["value"].clone())
    };

    write(20);
    let (list, notes) = fettle(&[&["import", "-o", "apart.fettle"], &inputs[..]].concat());
    let hint =
        "2 calls came to servers without an id: --without-ids looks for their clients' calls";
    assert!((list + &notes).contains(hint));
    let found = spans();
    let by_id = |id: &str| found.iter().find(|span| span["spanId"] == id).unwrap();
    for (server, client) in [("004f", "004d"), ("0050", "004e")] {
        let [server, client] = [server, client].map(|id| by_id(&format!("000000000000{id}")));
        assert_eq!(server["parentSpanId"], client["spanId"]);
        assert_eq!(server["traceId"], client["traceId"]);
        assert_eq!(said(server, "fettle.certainty")["stringValue"], "only candidate");
        assert_eq!(said(client, "fettle.certainty"), Value::Null);
    }

    write(10);
    let found = spans();
    for server in found.iter().filter(|span| span["kind"] == 2) {
        assert_eq!(said(server, "fettle.certainty")["stringValue"], "chosen");
        assert_eq!(said(server, "fettle.candidates")["intValue"], "2");
        assert!(said(server, "fettle.likely")["doubleValue"].as_f64().unwrap() < 1.0);
    }
}
