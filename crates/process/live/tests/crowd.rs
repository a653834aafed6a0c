//! Pauses of programs with many threads, nearly all of which wait: they are parked, not stopped.

mod common;

use std::collections::BTreeSet;
use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use common::*;
use fettle_live::*;
use fettle_types::{Pid, Tid};

const THREADS: usize = 200;
const MARK: u64 = 0x1234_5678_9abc;

/// `crowd.c` while it runs.
struct Crowd {
    child: Child,
    lines: BufReader<ChildStdout>,
    process: Process,
    worked: LiveAddr,
    woken: LiveAddr,
    handled: LiveAddr,
    interrupted: LiveAddr,
    /// The end of a pipe at which each fourth thread waits for a byte.
    pipe: String,
}

impl Crowd {
    fn start() -> Crowd {
        let mut command = Command::new(program("crowd"));
        command.arg(THREADS.to_string()).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        lines.read_line(&mut line).unwrap();
        let words: Vec<&str> = line.split_whitespace().collect();
        let [worked, woken, handled, interrupted] =
            [0, 1, 2, 3].map(|i| LiveAddr(u64::from_str_radix(&words[i][2..], 16).unwrap()));
        let process = Process::open(Pid::of_child(&child)).unwrap();
        let pipe = format!("/proc/{}/fd/{}", child.id(), words[4]);
        Crowd { child, lines, process, worked, woken, handled, interrupted, pipe }
    }

    fn number(&self, at: LiveAddr) -> u64 {
        u64::from_le_bytes(self.process.read(at, 8).unwrap().try_into().unwrap())
    }

    /// Waits until a number is as wanted.
    fn becomes(&self, at: LiveAddr, wanted: u64) {
        let begun = Instant::now();
        while self.number(at) != wanted {
            assert!(begun.elapsed() < Duration::from_secs(20), "{} of {wanted}", self.number(at));
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn threads(&self) -> Vec<Tid> {
        let folder = std::fs::read_dir(format!("/proc/{}/task", self.child.id())).unwrap();
        folder.map(|task| task.unwrap().file_name().to_str().unwrap().parse().unwrap()).collect()
    }

    /// Ends it; whether all of its threads were woken as they should.
    fn end(mut self) -> bool {
        drop(self.child.stdin.take());
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        self.child.wait().unwrap().success() && line == "right\n"
    }
}

#[test]
fn stacks_of_threads_that_wait_are_searched() {
    let crowd = Crowd::start();
    let marks = Ranges::new(vec![(MARK, MARK + 16 * THREADS as u64)]);
    let look = |paused: &mut Paused<'_>| {
        let all = paused.on_stacks(&marks, &ReturnTable::default())?;
        Ok((paused.threads(), all))
    };
    for _ in 0..5 {
        let ((threads, all), _) = crowd.process.while_paused(look).unwrap();
        // And the first one, and one that works.
        assert_eq!(threads, THREADS + 2);
        let all: BTreeSet<u64> = all.iter().map(|at| at.0 - MARK).filter(|n| n % 16 == 0).collect();
        assert_eq!(all.len(), THREADS, "{all:?}");
    }
    assert_eq!(crowd.number(crowd.interrupted), 0, "waits without a limit go on");
    assert!(crowd.end());
}

#[test]
fn no_thread_runs_in_a_pause_even_if_it_is_woken() {
    let crowd = Crowd::start();
    let readers = THREADS.div_ceil(4) as u64;
    let mut pipe = OpenOptions::new().write(true).open(&crowd.pipe).unwrap();
    let work = |_: &mut Paused<'_>| {
        let before = [crowd.worked, crowd.woken].map(|at| crowd.number(at));
        pipe.write_all(&vec![0; readers as usize]).unwrap();
        std::thread::sleep(Duration::from_millis(20));
        let after = [crowd.worked, crowd.woken].map(|at| crowd.number(at));
        Ok((before, after))
    };
    let ((before, after), paused_for) = crowd.process.while_paused(work).unwrap();
    assert_eq!(before, after);
    assert_eq!(before[1], 0);
    assert!(paused_for >= Duration::from_millis(20));
    crowd.becomes(crowd.woken, readers);
    // They have ended; the others are found as before.
    let threads = |paused: &mut Paused<'_>| Ok(paused.threads());
    let mut left = 0;
    for _ in 0..1000 {
        left = crowd.process.while_paused(threads).unwrap().0;
        if left == THREADS + 2 - readers as usize {
            break;
        }
    }
    assert_eq!(left, THREADS + 2 - readers as usize);
    assert!(crowd.end());
}

#[test]
fn signals_of_a_pause_are_handled_behind_it() {
    let crowd = Crowd::start();
    let all = crowd.threads();
    let work = |_: &mut Paused<'_>| {
        for tid in &all {
            // SAFETY: takes numbers only.
            unsafe {
                libc::syscall(
                    libc::SYS_tgkill,
                    crowd.process.pid().get(),
                    tid.get(),
                    libc::SIGUSR1,
                );
            }
        }
        std::thread::sleep(Duration::from_millis(10));
        Ok(crowd.number(crowd.handled))
    };
    assert_eq!(crowd.process.while_paused(work).unwrap().0, 0);
    crowd.becomes(crowd.handled, all.len() as u64);
    // A signal that is handled ends such a wait, as it would without us.
    crowd.becomes(crowd.interrupted, THREADS.div_ceil(4) as u64);
    assert!(crowd.end());
}

#[test]
fn an_error_in_a_pause_lets_all_go() {
    let crowd = Crowd::start();
    let why = || LiveError::Busy { pid: crowd.process.pid(), why: "of a test".to_owned() };
    for _ in 0..3 {
        assert!(crowd.process.while_paused(|_| Err::<(), _>(why())).is_err());
    }
    let before = crowd.number(crowd.worked);
    std::thread::sleep(Duration::from_millis(50));
    assert_ne!(crowd.number(crowd.worked), before);
    let tracer = |tid: &Tid| {
        let status = format!("/proc/{}/task/{tid}/status", crowd.child.id());
        let status = std::fs::read_to_string(status).unwrap();
        status.lines().any(|line| line == "TracerPid:\t0")
    };
    assert!(crowd.threads().iter().all(tracer));
    assert!(crowd.end());
}

#[test]
fn each_thread_gets_a_gs_base() {
    let crowd = Crowd::start();
    let bases = [0x10_0000, 0x20_0000, 0x30_0000];
    for _ in 0..2 {
        let (threads, _) = crowd.process.give_gs_bases(&bases).unwrap();
        assert_eq!(threads, THREADS + 2);
        let all = |paused: &mut Paused<'_>| Ok(paused.gs_bases().collect::<Vec<u64>>());
        let (all, _) = crowd.process.while_paused(all).unwrap();
        let of = bases.map(|base| all.iter().filter(|other| **other == base).count());
        assert_eq!(of.iter().sum::<usize>(), threads, "{of:?}");
        assert!(of.iter().all(|count| *count > THREADS / 4), "{of:?}");
    }
    // Others than ours are the program's own.
    assert!(crowd.process.give_gs_bases(&[0x40_0000]).is_err());
    assert!(crowd.process.while_paused(|paused| paused.without_gs()).is_err());
    assert!(crowd.end());
}
