//! Threads that Fettle is about to need.

use std::sync::mpsc::channel;
use std::thread::{self, Builder};

use anyhow::Context;

/// So many run in addition to those that lift and write, one for each processor.
const BESIDE: usize = 6;

/// Starts as many threads as a recording takes, and ends them: a limit on processes is reported
/// before a program runs, not when its trace is to be written.
pub fn can_be_started() -> anyhow::Result<()> {
    let count = thread::available_parallelism().map_or(1, |count| count.get()) + BESIDE;
    let mut threads = Vec::with_capacity(count);
    for _ in 0..count {
        let (end, wait) = channel::<()>();
        let started = Builder::new().stack_size(1 << 16).spawn(move || {
            // Until the other end is dropped.
            let _ = wait.recv();
        });
        let why = "cannot start a thread: allow this user more processes (`ulimit -u`)";
        threads.push((end, started.context(why)?));
    }
    for (end, thread) in threads {
        drop(end);
        let _ = thread.join();
    }
    Ok(())
}
