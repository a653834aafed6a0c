//! A process whose injection takes long to make is held, and no other.

mod common;
use std::path::Path;
use std::time::Duration;

use common::*;
use fettle_live::*;
use fettle_types::{Pid, Tid};

/// A session that has nothing for `/bin/true` until so many others have executed something.
struct Slow {
    recorder: Recorder,
    others: usize,
    wanted: usize,
    /// How often it said that it is not ready.
    asked: usize,
}

impl Slow {
    fn new(wanted: usize) -> Slow {
        let recorder = counting_recorder().0;
        Slow { recorder, others: 0, wanted, asked: 0 }
    }

    fn is_slow(stop: &ExecStop<'_>) -> bool {
        stop.executable.file_name() == Path::new("/bin/true").canonicalize().unwrap().file_name()
    }
}

impl Session for Slow {
    fn is_prepared(&mut self, stop: &ExecStop<'_>) -> bool {
        let ready = !Slow::is_slow(stop) || self.others >= self.wanted;
        self.asked += usize::from(!ready);
        ready
    }

    fn exec(&mut self, stop: &ExecStop<'_>) -> Option<Injection> {
        self.others += usize::from(!Slow::is_slow(stop));
        self.recorder.exec(stop)
    }

    fn injected(&mut self, pid: Pid, result: Result<(), LiveError>) {
        self.recorder.injected(pid, result);
    }

    fn born(&mut self, parent: Option<Tid>, pid: Pid, tid: Tid, birth: Birth) -> Option<u64> {
        self.recorder.born(parent, pid, tid, birth)
    }

    fn thread_exit(&mut self, pid: Pid, tid: Tid) {
        self.recorder.thread_exit(pid, tid);
    }

    fn process_exit(&mut self, pid: Pid, status: ExitStatus, cpu: Duration) {
        self.recorder.process_exit(pid, status, cpu);
    }

    fn tick(&mut self) {
        self.recorder.tick();
    }
}

fn shell(script: &str, wanted: usize, wait_for: WaitFor) -> (ExitStatus, Slow) {
    let mut slow = Slow::new(wanted);
    let status = run(&launch("/bin/sh", &["-c", script]), &mut slow, options(wait_for)).unwrap();
    (status, slow)
}

#[test]
fn others_go_on() {
    let script = "/bin/true & for i in 1 2 3 4 5 6 7 8 9; do /bin/echo $i > /dev/null; done; \
                  wait $! && exit 4";
    let (status, slow) = shell(script, 10, WaitFor::All);
    assert_eq!(status, ExitStatus::Code(4));
    assert!(slow.asked > 0, "it had to wait");
    assert_eq!(slow.recorder.execs("echo"), 9);
    assert_eq!(slow.recorder.errors(), Vec::<String>::new());
    slow.recorder.assert_lives_are_whole();
}

#[test]
fn who_waits_can_be_killed() {
    let script = "/bin/true & sleep 0.3; kill -KILL $!; wait $!; exit 5";
    let (status, slow) = shell(script, usize::MAX, WaitFor::All);
    assert_eq!(status, ExitStatus::Code(5));
    assert!(slow.asked > 0, "it had to wait");
}

#[test]
fn who_waits_is_let_go_of() {
    let script = "(/bin/true; echo ran > $0) & sleep 0.3; exit 6";
    let output = temporary("let-go");
    let _ = std::fs::remove_file(&output);
    let mut slow = Slow::new(usize::MAX);
    let program = launch("/bin/sh", &["-c", script, output.to_str().unwrap()]);
    let status = run(&program, &mut slow, options(WaitFor::FirstProcess)).unwrap();
    assert_eq!(status, ExitStatus::Code(6));
    assert!(slow.asked > 0, "it had to wait");
    let ran = || std::fs::read_to_string(&output).is_ok_and(|text| text == "ran\n");
    let deadline = std::time::Instant::now() + Duration::from_secs(10);
    while !ran() {
        assert!(std::time::Instant::now() < deadline, "it stands still for ever");
        std::thread::sleep(Duration::from_millis(10));
    }
}
