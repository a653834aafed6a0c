//! Damaged files for a second each: no panic, and an end, whatever they say. The targets in
//! `fuzz/fuzz_targets` do the same for longer.

mod common;

use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, Instant};

use common::golden;
use fettle_import::ctf::{Trace, show};
use fettle_import::{read_text, tracedat};

fn random(state: &mut u64) -> usize {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    (*state >> 16) as usize
}

fn damaged(bytes: &[u8], state: &mut u64) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for _ in 0..=random(state) % 6 {
        if bytes.is_empty() {
            break;
        }
        let at = random(state) % bytes.len();
        match random(state) % 5 {
            0 => drop(bytes.drain(at..(at + random(state) % 20).min(bytes.len()))),
            1 => bytes.truncate(at.max(8)),
            2 => {
                let piece: Vec<u8> = bytes[at..(at + random(state) % 60).min(bytes.len())].to_vec();
                let to = random(state) % bytes.len();
                bytes.splice(to..to, piece);
            }
            3 => bytes[at] = [0, 0xff, 0x7f, b'}', b'9'][random(state) % 5],
            _ => bytes[at] = random(state) as u8,
        }
    }
    bytes
}

fn for_a_second(mut with: impl FnMut(&mut u64)) {
    let mut state = 0x2545_f491_4f6c_dd1d ^ u64::from(std::process::id());
    println!("seed {state:#x}");
    let end = Instant::now() + Duration::from_secs(1);
    while Instant::now() < end {
        with(&mut state);
    }
}

/// Reads all of a stream, and shows every value.
fn read(metadata: &[u8], stream: &[u8]) {
    let Ok(trace) = Trace::of(metadata, Path::new("metadata")) else { return };
    let mut stream = Rc::new(trace).stream_of(stream.into(), Path::new("stream"));
    let mut scratch = String::new();
    for _ in 0..100_000 {
        let Ok(Some(event)) = stream.next() else { break };
        for (n, column) in event.plan.columns.iter().enumerate() {
            show(&event, column, n, &mut scratch);
        }
    }
}

#[test]
fn ctf() {
    let metadata = std::fs::read(golden("ctf/metadata")).unwrap();
    let text = String::from_utf8_lossy(&metadata);
    // Without its packet's header it is text, which damage reaches.
    let plain = text[text.find("/* CTF").unwrap()..].trim_end_matches('\0').as_bytes().to_vec();
    let json = std::fs::read(golden("ctf2.metadata")).unwrap();
    let streams = ["channel0_0", "channel0_1"].map(|name| golden("ctf").join(name));
    let streams = streams.map(|path| std::fs::read(path).unwrap());
    for_a_second(|state| {
        let stream = &streams[random(state) % 2];
        match random(state) % 4 {
            0 => read(&damaged(&plain, state), stream),
            1 => read(&plain, &damaged(stream, state)),
            2 => read(&damaged(&json, state), stream),
            _ => read(&damaged(&metadata, state), &damaged(stream, state)),
        }
    });
}

#[test]
fn trace_dat() {
    let whole = std::fs::read(golden("net.dat")).unwrap();
    for_a_second(|state| drop(tracedat::count(&damaged(&whole, state))));
}

/// Spans and events as JSON: whole files, which damage reaches in the middle.
#[test]
fn json() {
    let console = ["console.python", "console.node", "console.go"].map(golden);
    let mut files = console.map(|path| std::fs::read(path).unwrap()).to_vec();
    files.extend([
        br#"[{"traceId":"a","id":"1","kind":"CLIENT","name":"get","timestamp":17,"duration":9,"localEndpoint":{"serviceName":"w","ipv4":"1.2.3.4"},"tags":{"error":"x"}},{"traceId":"a","id":"1","shared":true,"timestamp":18,"duration":2.5},[{"traceId":"a","parentId":"1","id":"2"}]]"#.to_vec(),
        br#"{"resourceSpans":[{"resource":{"attributes":[{"key":"service.name","value":{"stringValue":"s"}}]},"scopeSpans":[{"spans":[{"traceId":"t","spanId":"1","name":"q","kind":3,"startTimeUnixNano":"20","endTimeUnixNano":"30","status":{"code":2}}]}]}]}"#.to_vec(),
        br#"{"data":[{"traceID":"t","spans":[{"spanID":"1","operationName":"G","references":[{"refType":"CHILD_OF","spanID":"2"}],"startTime":17,"duration":5,"processID":"p"}],"processes":{"p":{"serviceName":"s"}}}]}"#.to_vec(),
        br#"[{"ph":"X","name":"o","pid":1,"tid":2,"ts":10,"dur":5.5},{"ph":"B","name":"i","pid":1,"tid":2,"ts":11},{"ph":"E","pid":1,"tid":2,"ts":12},{"ph":"C","name":"c","ts":1,"args":{"a":1}},"#.to_vec(),
    ]);
    for_a_second(|state| read_text(&damaged(&files[random(state) % files.len()], state)));
}

#[test]
fn texts() {
    let files = ["net.strace", "net.ftrace", "net.perf"].map(golden);
    let files = files.map(|path| std::fs::read(path).unwrap());
    for_a_second(|state| {
        let file = &files[random(state) % files.len()];
        let from = random(state) % file.len();
        read_text(&damaged(&file[from..(from + 2000).min(file.len())], state));
    });
}
