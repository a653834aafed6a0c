//! Stacks that are searched while a process is paused.

mod common;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

use common::*;
use fettle_live::*;
use fettle_types::Pid;

/// Where `wide_stack.c` leads by its stack, with so many megabytes in use, and how long it was paused.
fn found_on_stack(megabytes: &str) -> Result<(Vec<LiveAddr>, Duration), LiveError> {
    const MARK: u64 = 0x1234_5678_9abc;
    let mut command = Command::new(program("wide_stack"));
    let mut child = command.arg(megabytes).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    let process = Process::open(Pid::of_child(&child)).unwrap();
    let marks = Ranges::new(vec![(MARK, MARK + 2)]);
    let found = process.while_paused(|paused| paused.on_stacks(&marks, &ReturnTable::default()));
    child.kill().unwrap();
    child.wait().unwrap();
    found.map(|(found, paused_for)| {
        (found.iter().map(|at| LiveAddr(at.0 - MARK)).collect(), paused_for)
    })
}

#[test]
fn a_stack_in_large_memory_is_searched_where_that_is_in_use() {
    let (found, paused_for) = found_on_stack("3").unwrap();
    assert_eq!(found, [LiveAddr(0), LiveAddr(1)]);
    // All of it took more than a second.
    assert!(paused_for < Duration::from_millis(300), "{paused_for:?}");
}

#[test]
fn a_stack_among_much_that_is_in_use_is_refused() {
    let error = found_on_stack("80").unwrap_err();
    assert!(error.to_string().contains("MB are in use"), "{error}");
}
