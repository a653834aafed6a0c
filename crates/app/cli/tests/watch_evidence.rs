//! What `fettle watch` keeps of what a process did last: a trace that other commands open, of a program with sensors and
//! of a real server without.

mod watching;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use watching::{Group, next, start, watch};

/// Commits two events for each request, into a ring that is overwritten; the last request is not answered.
const SHOP: &str = r#"
#include "fettle.h"
#include <unistd.h>
FETTLE_LIST(requests, "shop.request", 8, 1, FETTLE_OVERWRITE);
FETTLE_SCALAR(open, "shop.open", 8, 2);
int main(void) {
    char go;
    unsigned long id;
    if (read(0, &go, 1) != 1) return 0;
    for (id = 0; id < 300000; id++) {
        FETTLE_COMMIT(requests, 1, id);
        FETTLE_COMMIT(requests, 2, id, 200);
    }
    FETTLE_ADD(open, 1);
    FETTLE_COMMIT(requests, 1, id);
    for (;;) __asm__ __volatile__("");
}
"#;

const SCHEMA: &str = r#"
event shop_request(pid: u32, tid: u32, number: u16, word_1: u64)
timeline item(pid: u32, item: u64)
on shop_request where number == 1 { start item(pid, word_1)  seed "shop" }
on shop_request where number == 2 { stop item(pid, word_1)  settle }
"#;

fn fettle(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fettle"));
    command.current_dir(folder).args(arguments).output().unwrap()
}

/// What a command says that succeeds.
fn said(folder: &Path, arguments: &[&str]) -> String {
    let output = fettle(folder, arguments);
    assert!(output.status.success(), "{arguments:?} {output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Waits for the trace in a folder of evidence, which is written in the background.
fn written(evidence: &Path) -> Value {
    let begun = Instant::now();
    loop {
        let manifest =
            std::fs::read(evidence.join("last.fettle/manifest.json")).unwrap_or_default();
        match serde_json::from_slice::<Value>(&manifest) {
            Ok(manifest) if manifest["complete"] == true => return manifest,
            _ => {}
        }
        let why = std::fs::read_to_string(evidence.join("no-trace")).unwrap_or_default();
        assert!(why.is_empty() && begun.elapsed() < Duration::from_secs(60), "{why}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// How many events a trace has of a kind.
fn rows(manifest: &Value, kind: &str) -> u64 {
    let kinds = manifest["events"]["kinds"].as_array().unwrap();
    kinds.iter().find(|of| of["name"] == kind).map_or(0, |of| of["rows"].as_u64().unwrap())
}

fn kept(found: &Value, folder: &Path) -> PathBuf {
    let done = &found["entry"]["done"][0];
    assert!(done["error"].is_null(), "{found}");
    folder.join(done["result"].as_str().unwrap())
}

#[test]
fn the_last_events_of_sensors_are_a_trace() {
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let place = folder.path();
    let (source, program) = (place.join("shop.c"), place.join("shop"));
    std::fs::write(&source, SHOP).unwrap();
    let headers = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../runtime/sensor");
    let mut gcc = Command::new("gcc");
    gcc.args(["-std=gnu11", "-O2", "-I", headers]).arg("-o").arg(&program).arg(&source);
    assert!(gcc.status().unwrap().success());
    let sensors = place.join("sensors");
    fettle_sensor::Directory::create(&sensors).unwrap();
    let mut shop = Command::new(&program);
    let mut shop = start(shop.env("FETTLE_SENSORS", &sensors).stdin(Stdio::piped()));
    let rules =
        "rule stuck { process of \"shop\" spins exactly 200ms without progress -> keep evidence }";
    let (_watcher, mut out) = watch(place, rules, shop.0.id(), &["--act"]);
    assert_eq!(next(&mut out)["kind"], "watching");
    let mut input = shop.0.stdin.take().unwrap();
    input.write_all(b"g").unwrap();
    let evidence = kept(&next(&mut out), place);
    let manifest = written(&evidence);
    let committed = rows(&manifest, "shop_request");
    assert!((100..=2000).contains(&committed), "{manifest:#}");
    assert_eq!(rows(&manifest, "watch_found"), 1);
    assert!(rows(&manifest, "watch_look") > 0);

    let evidence = evidence.to_str().unwrap();
    let text = said(place, &["report", evidence]);
    for part in ["spins: thread", "no progress for", " of CPU time; ", "shop_request", "rule stuck"]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
    let json: Value = serde_json::from_str(&said(place, &["report", "--json", evidence])).unwrap();
    assert_eq!(json["evidence"]["finding"]["why"]["kind"], "spins", "{json}");
    let counted = &json["evidence"]["threads"][0]["counted"];
    assert!(counted["used_ns"].as_u64().unwrap() >= 200_000_000, "{counted}");
    assert!(said(place, &["trace", "check", evidence]).contains("nothing is wrong"));
    // The consumer of the sensor has lost nothing by it: all that was committed and not overwritten is there.
    let mut read = Command::new(env!("CARGO_BIN_EXE_fettle"));
    read.args(["sensors", "--directory"]).arg(&sensors).args(["read", "shop.request"]);
    let lines = String::from_utf8(read.output().unwrap().stdout).unwrap().lines().count() as u64;
    assert!(lines >= committed, "{lines} {committed}");
    // What was not answered is known from the trace alone.
    std::fs::write(place.join("shop.fettle-schema"), SCHEMA).unwrap();
    let arguments = ["requests", evidence, "--schema", "shop.fettle-schema", "--json"];
    let requests: Value = serde_json::from_str(&said(place, &arguments)).unwrap();
    let text = requests.to_string();
    assert!(text.contains("\"shop\""), "{text}");
}

/// An nginx with one worker, in which an expression has no end for some paths.
fn nginx(folder: &Path) -> Option<(Group, u16)> {
    let version = Command::new("nginx").arg("-v").stderr(Stdio::null()).status();
    if !version.is_ok_and(|status| status.success()) {
        return None;
    }
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let place = folder.display();
    let text = format!(
        "user root; worker_processes 1; daemon off; pid {place}/pid; error_log {place}/error.log crit;\n\
         events {{ worker_connections 64; }}\n\
         http {{ access_log off; client_body_temp_path {place}; proxy_temp_path {place};\n\
         server {{ listen 127.0.0.1:{port};\n\
         location ~ \"^/(a|aa|b+)+$\" {{ return 200 \"matched\"; }}\n\
         location / {{ return 200 \"done\"; }} }} }}\n"
    );
    let conf = folder.join("nginx.conf");
    std::fs::write(&conf, text).unwrap();
    let mut nginx = Command::new("nginx");
    let nginx = start(nginx.arg("-p").arg(folder).arg("-c").arg(&conf).stderr(Stdio::null()));
    let begun = Instant::now();
    while ask(port, "/").is_none() {
        assert!(begun.elapsed() < Duration::from_secs(20), "nginx does not answer");
        std::thread::sleep(Duration::from_millis(20));
    }
    Some((nginx, port))
}

/// What a server answers, if it does.
fn ask(port: u16, path: &str) -> Option<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    text.contains("done").then_some(text)
}

#[test]
fn the_request_that_hung_is_kept() {
    if fettle_live::user() != 0 {
        return eprintln!("skipped 1 test: the kernel's events are recorded by root alone");
    }
    let folder = tempfile::tempdir().unwrap();
    let Some((server, port)) = nginx(folder.path()) else {
        return eprintln!("skipped 1 test: there is no nginx (apt-get install nginx-light)");
    };
    let rules = "
        rule stuck { worker of \"nginx\" spins exactly 50ms without progress -> keep evidence, restart kill }
        rule bad { share of failed requests \"*\" of worker of \"nginx\" > 90% over 1s -> log }";
    let (_watcher, mut out) = watch(folder.path(), rules, server.0.id(), &["--act"]);
    assert_eq!(next(&mut out)["kind"], "watching");
    for _ in 0..20 {
        ask(port, "/fine").unwrap();
    }
    let path = "/aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!";
    let hung = std::thread::spawn(move || ask(port, path));
    let found = next(&mut out);
    let evidence = kept(&found, folder.path());
    let replaced = next(&mut out);
    assert_eq!(replaced["kind"], "replaced", "{replaced}");
    assert_eq!(hung.join().unwrap(), None);

    let manifest = written(&evidence);
    assert!(rows(&manifest, "ask") > 20 && rows(&manifest, "answer") >= 20, "{manifest:#}");
    let evidence = evidence.to_str().unwrap();
    let arguments = ["watch", "--evidence", evidence, "--json"];
    let json: Value = serde_json::from_str(&said(folder.path(), &arguments)).unwrap();
    let open = &json["requests"][0];
    assert_eq!(open["what"], format!("GET {path}"), "{json}");
    assert_eq!(open["tid"], found["entry"]["finding"]["process"]["pid"], "{json}");
    assert!(open["open_ns"].as_u64().unwrap() >= 50_000_000, "{json}");
    let steps = open["steps"].as_array().unwrap();
    assert!(steps.iter().any(|step| step["event"] == "ask"), "{json}");
    assert_eq!(json["requests"].as_array().unwrap().len(), 1, "{json}");
    let text = said(folder.path(), &["report", evidence]);
    assert!(text.contains(&format!("request GET {path}: not answered for ")), "{text}");
    // The requests that were answered are in the trace, and can be followed.
    let text = said(folder.path(), &["requests", evidence]);
    assert!(text.contains("requests"), "{text}");
}
