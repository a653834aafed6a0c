//! Runs a program under the tracer, with a small injection into each program that it executes,
//! and ends as the program ends. With FOLLOW_LOG=FILE, writes what happened into the file; with
//! FOLLOW_PLAIN=1, injects nothing; with FOLLOW_FIRST=1, ends with the first process.
//!
//! ```text
//! cargo run --example follow -- bash -c '/bin/echo hello | cat'
//! ```

#[path = "../tests/common/mod.rs"]
mod common;

use std::io::Write;
use std::time::Duration;

use common::{Recorder, counting_recorder, counts};
use fettle_live::{ExitStatus, Launch, RunOptions, WaitFor, catch_signals, run};

fn main() {
    let mut args = std::env::args_os().skip(1);
    let Some(program) = args.next() else {
        eprintln!("usage: follow PROGRAM [ARGUMENTS]");
        std::process::exit(2);
    };
    let (counting, counter) = counting_recorder();
    let plain = std::env::var_os("FOLLOW_PLAIN").is_some();
    let mut recorder = if plain { Recorder::new(|_| None) } else { counting };
    let first = std::env::var_os("FOLLOW_FIRST").is_some();
    let options = RunOptions {
        period: Duration::from_millis(10),
        stop: catch_signals().expect("handlers for signals"),
        wait_for: if first { WaitFor::FirstProcess } else { WaitFor::All },
    };
    let result = run(&Launch::new(program, args), &mut recorder, options);
    if let Some(path) = std::env::var_os("FOLLOW_LOG") {
        let mut log = std::fs::File::create(path).expect("the log");
        for event in &recorder.events {
            writeln!(log, "{event:?}").expect("a line in the log");
        }
        writeln!(log, "counts {:?}", counts(&counter)).expect("a line in the log");
        writeln!(log, "ticks {}", recorder.ticks).expect("a line in the log");
    }
    match result {
        Ok(ExitStatus::Code(code)) => std::process::exit(code),
        Ok(ExitStatus::Signal { signal, .. }) => {
            // SAFETY: these take numbers and a default action.
            unsafe {
                libc::prctl(libc::PR_SET_DUMPABLE, 0);
                libc::signal(signal, libc::SIG_DFL);
                libc::raise(signal);
            }
        }
        Err(error) => {
            eprintln!("follow: {error}");
            std::process::exit(125);
        }
    }
}
