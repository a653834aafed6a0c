//! Registers and stacks of threads that run on afterwards as they were.

mod common;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::program;
use fettle_live::*;
use fettle_types::Pid;

const LIMITS: StateLimits =
    StateLimits { within: Duration::from_millis(200), stack_bytes: 64 << 10, total_bytes: 1 << 20 };

/// Ends with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Running {
    fn start(command: &mut Command) -> Running {
        Running(command.stdin(Stdio::null()).spawn().unwrap())
    }

    fn pid(&self) -> Pid {
        Pid::of_child(&self.0)
    }

    fn status(&self, name: &str) -> String {
        let text = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap_or_else(|| panic!("{name}: {text}")).trim().to_owned()
    }

    fn wait_for_state(&self, letter: &str) {
        let begun = Instant::now();
        while !self.status("State:").starts_with(letter) {
            assert!(begun.elapsed() < Duration::from_secs(20), "{}", self.status("State:"));
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    fn signal(&self, name: &str) {
        let mut kill = Command::new("kill");
        assert!(kill.args([name, &self.pid().to_string()]).status().unwrap().success());
    }
}

fn register(state: &ThreadState, name: &str) -> u64 {
    state.registers.iter().find(|(other, _)| *other == name).unwrap().1
}

#[test]
fn threads_go_on_after_they_were_looked_at() {
    let spinning = Running::start(Command::new("sh").args(["-c", "while :; do :; done"]));
    let sleeping = Running::start(Command::new("sleep").arg("60"));
    sleeping.wait_for_state("S");
    for (running, letter) in [(&spinning, "R"), (&sleeping, "S")] {
        running.wait_for_state(letter);
        let process = Process::open(running.pid()).unwrap();
        let states = process.thread_states(&LIMITS).unwrap();
        assert_eq!((states.threads.len(), states.missed.len()), (1, 0), "{states:?}");
        let state = &states.threads[0];
        assert_eq!(state.tid, running.pid().first_thread());
        let (pc, sp) = (register(state, "rip"), register(state, "rsp"));
        let maps = maps_of(running.pid()).unwrap();
        let lies_in = |at: u64| maps.iter().find(|map| map.contains(LiveAddr(at)));
        assert!(lies_in(pc).is_some_and(|map| map.executable), "{pc:#x}");
        assert!(lies_in(sp).is_some_and(|map| map.writable), "{sp:#x}");
        assert!(!state.stack.is_empty() && state.stack.len() <= LIMITS.stack_bytes);
        running.wait_for_state(letter);
        assert_eq!(running.status("TracerPid:"), "0");
    }
    // It still sleeps the sleep that it slept.
    let syscall = std::fs::read_to_string(format!("/proc/{}/syscall", sleeping.pid())).unwrap();
    assert!(!syscall.starts_with("running"), "{syscall}");
}

#[test]
fn what_is_stopped_stays_stopped() {
    let running = Running::start(Command::new("sh").args(["-c", "while :; do :; done"]));
    running.wait_for_state("R");
    running.signal("-STOP");
    running.wait_for_state("T");
    let process = Process::open(running.pid()).unwrap();
    let states = process.thread_states(&LIMITS).unwrap();
    assert_eq!(states.threads.len(), 1, "{states:?}");
    running.wait_for_state("T");
    std::thread::sleep(Duration::from_millis(20));
    assert!(running.status("State:").starts_with('T'), "{}", running.status("State:"));
    assert_eq!(running.status("TracerPid:"), "0");
    running.signal("-CONT");
    running.wait_for_state("R");
}

#[test]
fn what_another_one_traces_is_left_alone() {
    let running = Running::start(Command::new("sleep").arg("60"));
    running.wait_for_state("S");
    // This thread traces it until it ends.
    const PTRACE_SEIZE: libc::c_uint = 0x4206;
    // SAFETY: takes numbers only.
    let seized = unsafe { libc::ptrace(PTRACE_SEIZE, running.pid().get(), 0, 0) };
    assert_eq!(seized, 0, "{}", std::io::Error::last_os_error());
    let error = Process::open(running.pid()).unwrap_err();
    assert!(error.to_string().contains("trace"), "{error}");
}

#[test]
fn many_threads_and_their_ends_are_seen() {
    let mut command = Command::new(program("thread_churn"));
    let mut running = Running::start(command.stdout(Stdio::piped()));
    let mut line = String::new();
    BufReader::new(running.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let process = Process::open(running.pid()).unwrap();
    for _ in 0..20 {
        let states = process.thread_states(&LIMITS).unwrap();
        assert!(states.threads.len() >= 8, "{states:?}");
        let total: usize = states.threads.iter().map(|state| state.stack.len()).sum();
        assert!(total <= LIMITS.total_bytes, "{total}");
    }
    assert!(running.0.try_wait().unwrap().is_none());
    let pid = running.pid();
    drop(running);
    assert!(process.thread_states(&LIMITS).is_err(), "{pid} has ended");
}
