//! Spans whose ids are dropped.

mod common;

use std::path::{Path, PathBuf};

use common::golden;
use fettle_import::{Import, Result, import};
use fettle_trace::Trace;

/// Two services: each question to `front` asks `store` once. Ids say nothing: all are the same.
fn spans(folder: &Path, requests: u64) -> Vec<PathBuf> {
    let line = |service: &str, spans: String| {
        format!(
            r#"{{"resourceSpans":[{{"resource":{{"attributes":[{{"key":"service.name","value":{{"stringValue":"{service}"}}}}]}},"scopeSpans":[{{"spans":[{spans}]}}]}}]}}"#
        )
    };
    let span = |name: &str, kind: u64, from: u64, to: u64| {
        format!(
            r#"{{"traceId":"1","spanId":"2","parentSpanId":"3","name":"{name}","kind":{kind},"startTimeUnixNano":"{from}","endTimeUnixNano":"{to}","attributes":[{{"key":"peer.service","value":{{"stringValue":"store"}}}}]}}"#
        )
    };
    let begin = |number: u64| 1_700_000_000_000_000_000 + number * 10_000_000;
    let all = |of: &dyn Fn(u64) -> String| (0..requests).map(of).collect::<Vec<_>>().join(",");
    let front = all(&|number| {
        let at = begin(number);
        [span("GET /", 2, at, at + 8_000_000), span("get", 3, at + 1_000_000, at + 7_000_000)]
            .join(",")
    });
    let store = all(&|number| span("get", 2, begin(number) + 2_000_000, begin(number) + 6_000_000));
    [("front", front), ("store", store)]
        .into_iter()
        .map(|(service, spans)| {
            let path = folder.join(format!("{service}.json"));
            std::fs::write(&path, line(service, spans)).unwrap();
            path
        })
        .collect()
}

fn imported(inputs: Vec<PathBuf>, output: &Path) -> Result<Vec<String>> {
    let wanted = Import { inputs, output: output.to_owned(), format: None, without_ids: true };
    Ok(import(&wanted, &|| false)?.manifest.notes)
}

#[test]
fn files_of_several_services_are_one_trace_for_each_request() {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("t.fettle");
    let notes = imported(spans(folder.path(), 30), &output).unwrap();
    assert!(
        notes.iter().any(|note| note.contains("of 90 spans, 60 had one possible cause, 0 several")),
        "{notes:?}"
    );
    // What every import says of spans is said, too.
    assert!(
        notes.iter().any(|note| note.ends_with("have numbers of their own here: 2")),
        "{notes:?}"
    );
    assert!(Trace::open(&output).unwrap().manifest().events.rows() == 180);
}

#[test]
fn what_has_no_spans_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("t.fettle");
    let error = imported(vec![golden("net.strace")], &output).unwrap_err().to_string();
    assert!(error.contains("has no spans"), "{error}");
    assert!(!output.exists());
}
