//! A recorder that is killed: its program goes on to its end, undisturbed.

#[path = "common/programs.rs"]
mod programs;

use std::fs::{self, File};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use programs::{Bench, program_of};

impl Bench {
    /// Begins to record a program whose output goes to a file.
    fn record(&self, options: &[&str], command: &[&str]) -> Child {
        let _ = fs::remove_dir_all(self.path("trace"));
        Command::new(env!("CARGO_BIN_EXE_fettle"))
            .args(["record", "-q", "--output"])
            .arg(self.path("trace"))
            .arg("--cache")
            .arg(self.path("cache"))
            .args(options)
            .arg("--")
            .args(command)
            .stdout(File::create(self.path("output")).unwrap())
            .spawn()
            .unwrap()
    }

    fn output(&self) -> String {
        fs::read_to_string(self.path("output")).unwrap()
    }

    fn wait_for(&self, text: &str) {
        let end = Instant::now() + Duration::from_secs(60);
        while !self.output().contains(text) {
            assert!(Instant::now() < end, "it never wrote {text:?}, but {:?}", self.output());
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

fn kill(mut recorder: Child) {
    recorder.kill().unwrap();
    recorder.wait().unwrap();
}

#[test]
fn a_program_that_opens_libraries() {
    let bench = Bench::new();
    let plugin = bench.build("plugin.cpp", "libplugin.so", &["-fPIC", "-shared"]);
    let hooked = bench.build("doors.c", "doors", &[]);
    let options = ["--mode", "time", "--lib", "libc.so*", "--lib", "libplugin*"];
    for round in 0..10 {
        let recorder = bench.record(&options, &[&hooked, &plugin, "2000"]);
        bench.wait_for("begun");
        std::thread::sleep(Duration::from_millis(3 + 7 * round));
        kill(recorder);
        bench.wait_for("done");
        assert_eq!(bench.output(), "begun\ndone, urgent 0\n", "round {round}");
    }
}

/// Threads and processes that begin when no tracer is there to give them a block of their own.
#[test]
fn a_program_that_starts_threads_and_processes() {
    let bench = Bench::new();
    let thrower = bench.build("thrower.cpp", "thrower", &[]);
    for mode in ["time", "events", "sample", "cpu", "count", "edges"] {
        let recorder = bench.record(&["--mode", mode], &[&thrower]);
        bench.wait_for("ready");
        std::thread::sleep(Duration::from_millis(20));
        let program = program_of(&recorder);
        kill(recorder);
        std::thread::sleep(Duration::from_millis(1000));
        assert!(Command::new("kill").arg(&program).status().unwrap().success(), "{mode}");
        bench.wait_for("after");
        assert_eq!(bench.output(), "ready\nright after many rounds\n", "{mode}");
    }
}

/// Threads wait for room in their rings, but not for a dead consumer.
#[test]
fn a_program_that_waits_for_it() {
    let bench = Bench::new();
    let script =
        "print('begun', flush=True)\nfor i in range(300000): sum(range(20))\nprint('done')";
    let options = ["--when-full", "wait", "--ring", "1"];
    let recorder = bench.record(&options, &["/usr/bin/python3", "-c", script]);
    bench.wait_for("begun");
    kill(recorder);
    bench.wait_for("done");
}
