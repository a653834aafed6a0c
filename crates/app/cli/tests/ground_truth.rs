//! Requests of real servers, against what these wrote down: nginx before an application server that
//! asks Redis, with 16 clients, or haproxy, which holds questions back. The application server is Python with a thread for each connection,
//! which asks PostgreSQL as well where there is one, Python with an event loop, or C++ with a queue
//! between threads.
//!
//! Needs root, and a kernel that lets itself be observed; installs nothing.

#[path = "../../../analyse/follow/tests/truth/mod.rs"]
mod truth;

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use fettle_follow::{Session, choose};
use fettle_requests::{Source, shipped};
use fettle_trace::Trace;

/// Whether a program can be started.
fn there_is(program: &str) -> bool {
    let found = Command::new("sh").args(["-c", &format!("command -v {program}")]).output();
    found.is_ok_and(|output| output.status.success())
}

/// Why there is nothing to be seen here, if so.
fn in_the_way(programs: &[&str]) -> Option<String> {
    if let Some(name) = programs.iter().find(|name| !there_is(name)) {
        return Some(format!("there is no {name} (apt-get install nginx-light redis-server)"));
    }
    let dir = tempfile::tempdir().unwrap();
    let tried = Command::new(env!("CARGO_BIN_EXE_fettle"))
        .args(["record", "--kernel", "--no-probes", "-o"])
        .arg(dir.path().join("try.fettle"))
        .args(["--", "true"])
        .output()
        .unwrap();
    let why = String::from_utf8_lossy(&tried.stderr);
    (!tried.status.success()).then(|| format!("the kernel's events cannot be recorded here: {why}"))
}

/// A schema of the beds, a shipped one, or the one that suits the trace.
enum By<'a> {
    File(&'a str),
    Shipped(&'a str),
    Choice,
}

/// Records 1,000 requests of 16 clients to an application server of this kind, and looks for them by
/// each of these schemas.
fn assert_found(kind: &str, programs: &[&str], schemas: &[By<'_>], events: usize) {
    static ALONE: Mutex<()> = Mutex::new(());
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(why) = in_the_way(&[&["nginx", "redis-server", "python3"], programs].concat()) {
        eprintln!("skipped 1 test: {why}");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    // PostgreSQL runs as a user of its own.
    std::fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
    let folder = dir.path().join("bed");
    let beds = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../tests/requests");
    let ran = Command::new("timeout")
        .args(["120", "python3"])
        .arg(beds.join("bed.py"))
        .args([Path::new(env!("CARGO_BIN_EXE_fettle")), &folder])
        .args([kind, "16", "1000"])
        .output()
        .unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));

    let trace = Trace::open(&folder.join("bed.fettle")).unwrap();
    let lost = trace.manifest().events.lost();
    for schema in schemas {
        let sources = match schema {
            By::File(name) => {
                vec![Source::new(*name, std::fs::read_to_string(beds.join(name)).unwrap())]
            }
            By::Shipped(name) => vec![Source::new(*name, shipped(name).unwrap())],
            By::Choice => choose(&trace).unwrap().sources,
        };
        let session = Session::open(&trace, &sources, &shipped).unwrap();
        let score = truth::score(&session, &folder.join("truth"));
        println!("{score:?}, {lost} events lost");
        assert!(score.made == 1000 && score.events >= events, "{score:?}");
        // Without probes, it is not known of all answers where they go; nor, of the first that a proxy holds
        // back while it opens its connections, on some machines.
        let is_held = kind == "held";
        let least = if is_held || matches!(schema, By::Shipped(_)) { 0.95 } else { 0.99 };
        let later = score.wrong_numbers.iter().filter(|number| **number >= 100).count();
        assert!(
            !is_held || lost > 0 || later <= 9,
            "{later} wrong behind the first 100: {score:?}"
        );
        if lost == 0 {
            assert!(score.exact >= least && score.recall >= least, "{score:?}");
        }
    }
}

#[test]
fn requests_of_a_server_with_threads_are_found_exactly() {
    assert_found("threads", &[], &[By::Choice], 10_000);
}

#[test]
fn requests_that_wait_in_a_queue_are_found_exactly_by_what_its_functions_are_given() {
    assert_found("queue", &["g++"], &[By::File("queue.fettle-schema")], 10_000);
}

#[test]
fn requests_of_an_event_loop_are_found_by_the_steps_of_its_tasks_and_without() {
    let known = "import sys; sys.exit(not (3, 10) <= sys.version_info < (3, 13))";
    if !Command::new("python3").args(["-c", known]).status().is_ok_and(|status| status.success()) {
        eprintln!("skipped 1 test: this python3 has other functions for its tasks");
        return;
    }
    assert_found("loop", &[], &[By::Choice, By::Shipped("sockets")], 10_000);
}

#[test]
fn requests_that_ask_two_data_bases_are_found_exactly() {
    let programs = std::fs::read_dir("/usr/lib/postgresql");
    if !programs.is_ok_and(|mut versions| versions.next().is_some()) {
        eprintln!("skipped 1 test: there is no PostgreSQL (apt-get install postgresql)");
        return;
    }
    assert_found("postgres", &["setpriv"], &[By::Choice], 14_000);
}

#[test]
fn requests_that_a_proxy_holds_back_are_found_exactly() {
    assert_found("held", &["haproxy"], &[By::Choice], 10_000);
}

/// A pool of threads asks for others, over whichever connection is free: the kernel's events do not say for whom, the
/// `traceparent` that is passed on does.
#[test]
fn requests_that_a_pool_asks_for_are_found_exactly_by_their_ids() {
    if let Some(why) = in_the_way(&["python3"]) {
        eprintln!("skipped 1 test: {why}");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("bed");
    let bed = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../tests/requests/pool.py");
    let ran = Command::new("timeout")
        .args(["120", "python3"])
        .arg(bed)
        .args([Path::new(env!("CARGO_BIN_EXE_fettle")), &folder])
        .args(["16", "1000"])
        .output()
        .unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let trace = Trace::open(&folder.join("bed.fettle")).unwrap();
    let sources = [Source::new("sockets", shipped("sockets").unwrap())];
    let scores = [true, false].map(|has_ids| {
        let without = |text: String| text.replace("optional trace_id: u64, ", "");
        let library = |name: &str| shipped(name).map(|of| if has_ids { of } else { without(of) });
        let session = Session::open(&trace, &sources, &library).unwrap();
        let noted = session.summary(0).unwrap().counts;
        let noted = |name: &str| noted.iter().find(|of| of.name == name).map_or(0, |of| of.count);
        let by_id = (noted("by_trace_id"), noted("trace_id_contradicts"));
        (truth::score(&session, &folder.join("truth")), by_id)
    });
    let [(by_ids, (all, moved)), (without, none)] = scores;
    println!("exactly right: {} with ids, {} without; {moved} moved", by_ids.exact, without.exact);
    assert!(by_ids.made == 1000 && by_ids.events >= 6_000 && none == (0, 0), "{by_ids:?}");
    if trace.manifest().events.lost() == 0 {
        assert!(by_ids.exact == 1.0 && by_ids.marked == 0 && all == 1000, "{by_ids:?}");
        // Chance is right of a few.
        assert!(without.exact < 0.8 && moved > 200, "{without:?}");
    }
}
