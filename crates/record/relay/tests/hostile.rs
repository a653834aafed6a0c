//! Malformed and hostile peers do not harm other connections.

mod support;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use fettle_relay::{Blob, Error, Limits, RecorderKey, Sender, To};
use support::{Running, calls, log, places, records, send};

fn key(line: &str) -> RecorderKey {
    RecorderKey::parse(line).unwrap()
}

/// The key's line with another digit in place of one.
fn changed(line: &str, at: usize) -> String {
    let mut line = line.to_owned();
    let other = if &line[at..=at] == "0" { "1" } else { "0" };
    line.replace_range(at..=at, other);
    line
}

#[test]
fn wrong_keys_are_told_apart_before_anything_is_recorded() {
    let root = tempfile::tempdir().unwrap();
    let collector = Running::start(root.path(), Limits::default());
    let line = collector.key.line();
    let fingerprint_at = line.find(':').unwrap() + 1;
    let tried = |key: RecorderKey, name: &str| -> Error {
        let to = To { address: collector.address.to_string(), key };
        Sender::start(to, log(root.path(), name, 1 << 20), Box::new(|_| {})).unwrap_err()
    };
    let other = tried(key(&changed(&line, fingerprint_at)), "a");
    assert!(other.to_string().starts_with("it is not the collector of this key"), "{other}");
    assert!(!other.is_passing());
    let secret = tried(key(&changed(&line, line.len() - 1)), "b");
    assert!(secret.to_string().contains("does not know the secret"), "{secret}");
    assert!(!secret.is_passing());
    assert_eq!(std::fs::read_dir(&collector.folder).unwrap().count(), 0);
    let gone = To { address: "127.0.0.1:1".into(), key: collector.key.clone() };
    let gone = Sender::start(gone, log(root.path(), "c", 1 << 20), Box::new(|_| {})).unwrap_err();
    assert!(gone.to_string().contains("no collector at 127.0.0.1:1"), "{gone}");
}

#[test]
fn rubbish_silence_and_crowds_leave_others_alone() {
    let root = tempfile::tempdir().unwrap();
    let limits = Limits { per_address: 6, hello: Duration::from_millis(500), ..Limits::default() };
    let collector = Running::start(root.path(), limits);
    let log = log(root.path(), "good", 16 << 20);
    let sender = send(collector.to(), &log);
    // Rubbish in place of a handshake.
    let mut rubbish = TcpStream::connect(collector.address).unwrap();
    let _ = rubbish.write_all(&[0x55; 100_000]);
    let mut answer = Vec::new();
    let _ = rubbish.read_to_end(&mut answer);
    collector.until_said("127.0.0.1");
    // Those who say nothing are cut off; as many as an address may have, and more.
    let silent: Vec<TcpStream> =
        (0..20).map(|_| TcpStream::connect(collector.address).unwrap()).collect();
    collector.until_said("as many connections as one address may");
    log.append(calls(0), &records(0, 1000)).unwrap();
    for mut silent in silent {
        silent.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let mut byte = [0];
        // The end, or a reset: either way the collector has hung up.
        assert!(!matches!(silent.read(&mut byte), Ok(1..)));
    }
    log.append_blob(Blob::Ending, b"end").unwrap();
    sender.finish(Duration::from_secs(60), &AtomicBool::new(false), || {}).unwrap();
    let arrived = places(&collector.folder.join("good.fettle/spool/0-Calls"));
    assert_eq!(arrived, (0..1000).collect::<Vec<_>>());
    // A crowd gets a few lines, not thousands.
    assert!(collector.said().lines().count() < 30, "{}", collector.said());
}

#[test]
fn a_recording_that_is_too_large_is_refused_for_good() {
    let root = tempfile::tempdir().unwrap();
    let limits = Limits { trace_bytes: 1 << 20, ..Limits::default() };
    let collector = Running::start(root.path(), limits);
    let log = log(root.path(), "large", 64 << 20);
    let sender = send(collector.to(), &log);
    for round in 0..20 {
        log.append(calls(0), &records(round * 5000, 5000)).unwrap();
    }
    log.close();
    let refused =
        sender.finish(Duration::from_secs(60), &AtomicBool::new(false), || {}).unwrap_err();
    assert!(refused.to_string().contains("larger than the 1 MiB"), "{refused}");
    assert_eq!(refused.to_string().matches("the collector refused").count(), 1, "{refused}");
    assert!(log.standing().waiting_bytes > 0, "the recorder keeps what it has");
}

#[test]
fn a_recording_that_was_cut_off_is_closed_as_far_as_it_came() {
    let root = tempfile::tempdir().unwrap();
    let collector = Running::start(root.path(), Limits::default());
    let log = log(root.path(), "short", 64 << 20);
    let sender = send(collector.to(), &log);
    log.append(calls(0), &records(0, 1000)).unwrap();
    log.close();
    sender.finish(Duration::from_secs(60), &AtomicBool::new(false), || {}).unwrap();
    assert!(collector.said().contains("did not end properly"), "{}", collector.said());
    let trace = collector.folder.join("short.fettle");
    assert_eq!(places(&trace.join("spool/0-Calls")).len(), 1000);
    assert!(!trace.join("ending").exists());
}
