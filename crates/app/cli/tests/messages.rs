//! Messages of real servers and clients, recorded: what is reported of both ends of each connection, against what a proxy
//! between them wrote down (`crates/data/protocols/tests/capture.py`).
//!
//! Needs root, and a kernel that lets itself be observed; installs nothing.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use fettle_follow::Session;
use fettle_protocols::{Connections, Message, Side, What};
use fettle_requests::{Source, shipped};
use fettle_trace::Trace;

/// What was said on a connection, in any order: both ends hear what is under way at once in another one.
type Heard = Vec<String>;

fn asked(protocol: &str, command: &str, detail: &str) -> String {
    format!("{protocol} asks {command} {detail}").trim_end().to_owned()
}

fn answered(protocol: &str, status: &str) -> String {
    format!("{protocol} answers {status}").trim_end().to_owned()
}

/// What a proxy's file says, by connection.
fn captured(file: &Path) -> Vec<Heard> {
    let text = std::fs::read_to_string(file).unwrap();
    let mut connections = Connections::new();
    let mut heard: Vec<Heard> = Vec::new();
    for line in text.lines() {
        let Some((sign, hex)) = line.split_once(' ') else {
            heard.push(Heard::new());
            continue;
        };
        let byte = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
        let bytes: Vec<u8> = (0..hex.len()).step_by(2).map(byte).collect();
        let side = if sign == ">" { Side::Received } else { Side::Sent };
        let (socket, length) = (heard.len() as u64, bytes.len() as u64);
        let of = heard.last_mut().unwrap();
        let mut notify = |message: Message<'_>| match message.what {
            What::Ask { command, text } => of.push(asked(message.protocol, command, text)),
            What::Answer { status, .. } => of.push(answered(message.protocol, status)),
            What::Unanswered => of.push(answered(message.protocol, fettle_protocols::NO_REPLY)),
            What::Unseen { .. } => panic!("a proxy sees all"),
        };
        assert_eq!(connections.transfer(socket, side, &bytes, length, &mut notify), None);
    }
    heard.iter_mut().for_each(|of| of.sort());
    heard
}

/// What is recorded, by process and socket.
fn recorded(trace: &Trace) -> Vec<Heard> {
    let sources = [Source::new("messages", shipped("messages").unwrap())];
    let session = Session::open(trace, &sources, &shipped).unwrap();
    let mut heard: BTreeMap<(String, String), Heard> = BTreeMap::new();
    session
        .for_each_event(&mut |_, event| {
            let field = |name: &str| {
                let found = event.fields.iter().find(|(known, _)| known == name);
                found.map_or("", |(_, value)| value.as_str())
            };
            let line = match event.name.as_str() {
                "ask" => asked(field("protocol"), field("command"), field("detail")),
                "answer" => answered(field("protocol"), field("status")),
                _ => return,
            };
            let end = (field("pid").to_owned(), field("socket").to_owned());
            heard.entry(end).or_default().push(line);
        })
        .unwrap();
    let mut heard: Vec<Heard> = heard.into_values().collect();
    heard.iter_mut().for_each(|of| of.sort());
    heard
}

/// A Python that has these modules.
fn python(modules: &str) -> Option<&'static str> {
    let has = |python: &&str| {
        let tried = Command::new(python).args(["-c", &format!("import {modules}")]).output();
        tried.is_ok_and(|tried| tried.status.success())
    };
    ["python3", "/usr/bin/python3"].into_iter().find(has)
}

/// Records a conversation, and looks for each connection at so many ends: the client's, both of the proxy's and the
/// server's. `messages` is how many have to be in it at least.
fn assert_heard(name: &str, modules: &str, packages: &str, (messages, all_ends): (usize, usize)) {
    static ALONE: Mutex<()> = Mutex::new(());
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let there_is = |program: &str| {
        Command::new("sh")
            .args(["-c", &format!("command -v {program}")])
            .output()
            .unwrap()
            .status
            .success()
    };
    let missing = packages.split(' ').find(|package| {
        let program = package.split_once('=').map(|(_, program)| program);
        program.is_some_and(|program| !there_is(program))
    });
    let python = python(modules).filter(|_| missing.is_none());
    let Some(python) = python else {
        let names = packages.split(' ').map(|package| package.split('=').next().unwrap_or(""));
        let names: Vec<&str> = names.collect();
        eprintln!("skipped 1 test: it needs (apt-get install) {}", names.join(" "));
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let trace = dir.path().join("said.fettle");
    let script =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data/protocols/tests/capture.py");
    let output = Command::new(env!("CARGO_BIN_EXE_fettle"))
        .args(["record", "--kernel", "--no-probes", "--payload", "16000", "-o"])
        .arg(&trace)
        .args(["--", "timeout", "60", python])
        .args([&script, dir.path()])
        .arg(name)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    if said.contains("cannot be recorded") || said.contains("needs root") {
        eprintln!("skipped 1 test: {said}");
        return;
    }
    assert!(output.status.success(), "{said}");
    let expected = captured(&dir.path().join(name));
    let trace = Trace::open(&trace).unwrap();
    let found = recorded(&trace);
    let lost = trace.manifest().events.lost();
    let all: usize = expected.iter().map(Vec::len).sum();
    assert!(all >= messages, "{all} messages");
    for heard in expected.iter().filter(|heard| !heard.is_empty()) {
        let ends = found.iter().filter(|found| *found == heard).count();
        let alike = expected.iter().filter(|other| *other == heard).count();
        assert!(
            lost > 0 || ends >= all_ends * alike,
            "{ends} ends of {alike}: {heard:#?} in {found:#?}"
        );
    }
    println!("{name}: {all} messages of {} connections, {lost} events lost", expected.len());
}

#[test]
fn mqtt_is_heard_at_every_end() {
    assert_heard("mqtt", "paho.mqtt.client", "mosquitto=mosquitto python3-paho-mqtt", (40, 4));
}

#[test]
fn amqp_is_heard_at_every_end() {
    let packages = "rabbitmq-server=/usr/lib/rabbitmq/bin/rabbitmq-server python3-pika";
    assert_heard("amqp", "pika", packages, (70, 4));
}

#[test]
fn websocket_is_heard_at_every_end() {
    assert_heard("websocket", "websockets", "python3-websockets", (40, 4));
}

#[test]
fn fastcgi_is_heard_at_every_end() {
    let packages = "php-fpm=/usr/sbin/php-fpm* nginx=nginx curl=curl";
    assert_heard("fastcgi", "socket", packages, (14, 4));
}

/// A broker that is in the client's own library: there is no proxy. What waits when a connection ends may be answered at
/// one end only.
#[test]
fn kafka_is_heard_by_the_broker() {
    let packages = "strace=strace python3-confluent-kafka";
    assert_heard("kafka", "confluent_kafka", packages, (60, 1));
}
