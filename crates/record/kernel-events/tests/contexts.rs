//! Contexts of a real Python program are reported: in which one bytes are sent, and which one has made it.

mod common;

use std::collections::HashMap;
use std::process::{Command, Stdio};

use common::{Recorded, alone, observed, scratch};
use fettle_kernel_events::Event;

/// A task that makes others, each of which writes, and one that has a thread write.
const PROGRAM: &str = r#"
import asyncio, contextvars, os, time

async def write():
    await asyncio.sleep(0.001)
    os.write(1, b"x")

async def main():
    loop = asyncio.get_running_loop()
    # Until it is known that this is Python.
    await asyncio.sleep(0.7)
    for _ in range(50):
        os.write(1, b"m")
        await asyncio.gather(write(), write())
        context = contextvars.copy_context()
        await loop.run_in_executor(None, context.run, os.write, 1, b"t")

asyncio.run(main())
"#;

/// What the program does, or `None` where there is no Python that is known, or no kernel that reports it.
fn recorded() -> Option<Recorded> {
    let folder = scratch();
    std::fs::create_dir_all(&folder).unwrap();
    let program = folder.join("program.py");
    std::fs::write(&program, PROGRAM).unwrap();
    // Another version is tried by naming it.
    let python = std::env::var("FETTLE_TEST_PYTHON");
    let mut python = Command::new(python.as_deref().unwrap_or("/usr/bin/python3"));
    let recorded = observed(|| {
        let child = python.arg(&program).stdout(Stdio::null()).spawn();
        child.inspect_err(|_| eprintln!("skipped: there is no Python")).ok()
    });
    std::fs::remove_dir_all(&folder).unwrap();
    recorded
}

#[test]
fn what_writes_was_made_by_main() {
    let _alone = alone();
    let Some(recorded) = recorded() else { return };
    // In order of time: what runs where, what made what, and who writes.
    let mut running = HashMap::new();
    let mut makers = HashMap::new();
    let (mut main, mut mains, mut others, mut threads) = (0, 0, 0, 0);
    for reported in &recorded.reported {
        match reported.event {
            Event::Task => _ = running.insert(reported.number("tid"), reported.number("task")),
            Event::TaskMade => _ = makers.insert(reported.number("made"), reported.number("task")),
            Event::Write if reported.number("fd") == 1 => {
                let context = running.get(&reported.number("tid")).copied().unwrap_or(0);
                let is_first = reported.number("tid") == reported.number("pid");
                let maker = makers.get(&context).copied().unwrap_or(0);
                match (context == main, maker == main) {
                    (true, _) => mains += 1,
                    (_, true) if is_first => others += 1,
                    (_, true) => threads += 1,
                    _ => main = context,
                }
            }
            _ => {}
        }
    }
    assert!(mains >= 40 && others >= 90 && threads >= 40, "{mains} {others} {threads}");
}
