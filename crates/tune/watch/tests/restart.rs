//! A thread that stops again and again, and begins anew each time.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use fettle_watch::{Notice, Watcher, WatcherOptions, parse};
use tempfile::TempDir;

/// Ends with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn build(folder: &Path) -> std::path::PathBuf {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../..");
    let program = folder.join("restarting");
    let mut gcc = Command::new("gcc");
    gcc.args(["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O2", "-pthread", "-I"]);
    gcc.arg(format!("{root}/runtime/sensor")).arg(format!("{root}/tests/watch/restarting.c"));
    assert!(gcc.arg("-o").arg(&program).status().unwrap().success());
    program
}

/// Watches a server whose thread has to begin anew so many times; returns what it has printed, and how
/// each action went, up to so many.
fn heals((times, most): (u32, usize), how: &str, rules: &str) -> (String, Vec<Option<String>>) {
    let folder = TempDir::new().unwrap();
    let program = build(folder.path());
    let sensors = fettle_sensor::Directory::default_path();
    fettle_sensor::Directory::create(&sensors).unwrap();
    let out = folder.path().join("out");
    let mut command = Command::new(&program);
    command.args([&times.to_string(), how]).env("FETTLE_SENSORS", &sensors);
    let server = command.stdout(std::fs::File::create(&out).unwrap()).stdin(Stdio::null()).spawn();
    let mut server = Running(server.unwrap());
    let options = WatcherOptions {
        pids: vec![server.0.id().to_string().parse().unwrap()],
        act: true,
        tick: Duration::from_millis(1),
        fettle: "/bin/false".into(),
        state: folder.path().to_owned(),
        record: None,
        metrics: None,
    };
    let rules = parse::parse("r", rules).unwrap_or_else(|report| panic!("{report}"));
    let mut watcher = Watcher::new(rules, options).unwrap();
    let (stop, seen) = (AtomicBool::new(false), AtomicUsize::new(0));
    let mut errors = Vec::new();
    std::thread::scope(|scope| {
        let stops = || {
            let began = Instant::now();
            while matches!(server.0.try_wait(), Ok(None))
                && seen.load(Ordering::Relaxed) < most
                && began.elapsed() < Duration::from_secs(60)
            {
                std::thread::sleep(Duration::from_millis(5));
            }
            stop.store(true, Ordering::Relaxed);
        };
        scope.spawn(stops);
        let notice = |notice| {
            if let Notice::Found(entry) = notice {
                errors.extend(entry.done.iter().map(|done| done.error.clone()));
                seen.store(errors.len(), Ordering::Relaxed);
            }
        };
        watcher.run(&stop, notice).unwrap();
    });
    drop(server);
    (std::fs::read_to_string(out).unwrap(), errors)
}

const STILL: &str = "rule beat { scalar \"restarting.ticks\" of process of \"restarting\" still for 4ms -> \
                     restart thread \"restarting.beat\" at most 1000 in 1m }";

#[test]
fn a_thread_that_stops_begins_anew() {
    for how in ["spins", "waits", "off"] {
        let (out, errors) = heals((20, 500), how, STILL);
        assert!(out.starts_with("ready\nrestarted 20 times after "), "{how}: {out} {errors:?}");
        assert!(errors.len() >= 20 && errors.iter().all(Option::is_none), "{how}: {errors:?}");
    }
}

#[test]
fn what_is_not_there_is_not_signalled() {
    let rule = STILL.replace("restarting.beat", "restarting.other");
    let (out, errors) = heals((1, 1), "waits", &rule);
    assert_eq!(out, "ready\n");
    assert!(errors[0].as_ref().unwrap().contains("has no thread restarting.other"), "{errors:?}");
}
