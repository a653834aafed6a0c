//! Requests of real servers, against what these wrote down: nginx, a Python program with a thread for
//! each connection and a pool of connections to Redis, and 16 clients.
//!
//! Needs root, and a kernel that lets itself be observed; installs nothing.

#[path = "../../follow/tests/truth/mod.rs"]
mod truth;

use std::path::Path;
use std::process::Command;

use fettle_follow::{Session, choose};
use fettle_requests::shipped;
use fettle_trace::Trace;

/// Whether a program can be started.
fn there_is(program: &str) -> bool {
    let found = Command::new("sh").args(["-c", &format!("command -v {program}")]).output();
    found.is_ok_and(|output| output.status.success())
}

#[test]
fn requests_of_a_server_with_threads_are_found_exactly() {
    let missing = ["nginx", "redis-server", "python3"].into_iter().find(|name| !there_is(name));
    if let Some(name) = missing {
        eprintln!("skipped 1 test: there is no {name} (apt-get install nginx-light redis-server)");
        return;
    }
    let fettle = env!("CARGO_BIN_EXE_fettle");
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("try.fettle");
    let tried = Command::new(fettle)
        .args(["record", "--kernel", "--no-probes", "-o"])
        .arg(&folder)
        .args(["--", "true"])
        .output()
        .unwrap();
    if !tried.status.success() {
        let why = String::from_utf8_lossy(&tried.stderr);
        eprintln!("skipped 1 test: the kernel's events cannot be recorded here: {why}");
        return;
    }
    let bed = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/requests/bed.py");
    let folder = dir.path().join("bed");
    let ran = Command::new("timeout")
        .args(["120", "python3"])
        .arg(bed)
        .args([Path::new(fettle), &folder])
        .args(["threads", "16", "1000"])
        .output()
        .unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));

    let trace = Trace::open(&folder.join("bed.fettle")).unwrap();
    let session = Session::open(&trace, &choose(&trace).unwrap().sources, &shipped).unwrap();
    let score = truth::score(&session, &folder.join("truth"));
    let lost = trace.manifest().events.lost();
    println!("{score:?}, {lost} events lost");
    assert!(score.made == 1000 && score.events >= 10_000, "{score:?}");
    if lost == 0 {
        assert!(score.exact >= 0.99 && score.recall >= 0.99, "{score:?}");
    }
}
