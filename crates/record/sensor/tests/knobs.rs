//! Knobs: programs in C and Rust read what is set from here.

mod common;

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

use common::Bench;
use fettle_sensor::{Error, KnobState, Sensor};

/// A program that says its knob's value when it is asked (`c/knob.c`).
struct Program {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Program {
    fn start(bench: &Bench) -> Program {
        let mut command = bench.command(&common::compile("knob"));
        Program::spawn(&mut command)
    }

    fn spawn(command: &mut std::process::Command) -> Program {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let input = child.stdin.take().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Program { child, input, output }
    }

    fn tell(&mut self, letter: u8) {
        self.input.write_all(&[letter]).unwrap();
    }

    fn ask(&mut self, letter: u8) -> i64 {
        self.tell(letter);
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim().parse().unwrap_or_else(|_| panic!("{line:?}"))
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn knob_of(bench: &Bench, pid: u32) -> Sensor {
    bench.wait_for_where("test.knob", |sensor| sensor.description().producer.pid == pid)
}

#[test]
fn what_is_set_is_read_until_it_is_given_back() {
    let bench = Bench::new();
    let mut program = Program::start(&bench);
    assert_eq!(program.ask(b'r'), 1);
    let pid = program.child.id();
    let mut knob = knob_of(&bench, pid).into_knob().unwrap();
    for value in [5, -2, 0] {
        knob.set(value).unwrap();
        assert_eq!(program.ask(b'r'), value);
    }
    for value in [6, -3, i64::MAX, i64::MIN] {
        let error = knob.set(value).unwrap_err();
        assert!(matches!(error, Error::OutOfBounds { least: -2, greatest: 5, .. }), "{error}");
    }
    assert_eq!(program.ask(b'r'), 0);
    let state = knob_of(&bench, pid).knob().unwrap();
    let held =
        KnobState { value: 0, default: 1, least: -2, greatest: 5, resting: 1, is_held: true };
    assert_eq!(state, held);
    assert!(matches!(knob_of(&bench, pid).into_knob(), Err(Error::Held { .. })));
    drop(knob);
    assert_eq!(program.ask(b'r'), 1);
    // What was set for good is what it goes back to.
    knob_of(&bench, pid).into_knob().unwrap().set_for_good(3).unwrap();
    assert_eq!(program.ask(b'r'), 3);
    let mut knob = knob_of(&bench, pid).into_knob().unwrap();
    knob.set(4).unwrap();
    assert_eq!(program.ask(b'r'), 4);
    drop(knob);
    assert_eq!(program.ask(b'r'), 3);
}

#[test]
fn a_forked_child_has_a_knob_of_its_own() {
    let bench = Bench::new();
    let mut program = Program::start(&bench);
    assert_eq!(program.ask(b'r'), 1);
    let parent = program.child.id();
    let mut knob = knob_of(&bench, parent).into_knob().unwrap();
    knob.set(5).unwrap();
    assert_eq!(program.ask(b'r'), 5);
    program.tell(b'f');
    assert_eq!(program.ask(b'r'), 1, "nobody has set the child's");
    let is_child = |sensor: &Sensor| sensor.description().producer.pid != parent;
    let mut own = bench.wait_for_where("test.knob", is_child).into_knob().unwrap();
    own.set(2).unwrap();
    assert_eq!(program.ask(b'r'), 2);
    assert_eq!(knob_of(&bench, parent).knob().unwrap().value, 5);
    drop(knob);
    assert_eq!(program.ask(b'r'), 2);
    // A child that reads no knob makes no file.
    program.tell(b'f');
    assert_eq!(program.ask(b't'), 0);
    assert_eq!(bench.directory.find("test.knob").unwrap().sensors.len(), 3);
}

#[test]
fn a_program_that_is_executed_has_its_own_and_one_that_is_killed_leaves_it() {
    let bench = Bench::new();
    let mut program = Program::start(&bench);
    assert_eq!(program.ask(b'r'), 1);
    let pid = program.child.id();
    let first = knob_of(&bench, pid).path().to_path_buf();
    Sensor::open(&first).unwrap().into_knob().unwrap().set_for_good(4).unwrap();
    assert_eq!(program.ask(b'r'), 4);
    program.tell(b'x');
    assert_eq!(program.ask(b'r'), 1);
    let own = bench.wait_for_where("test.knob", |sensor| sensor.path() != first);
    let mut knob = own.into_knob().unwrap();
    knob.set(2).unwrap();
    assert_eq!(program.ask(b'r'), 2);
    program.child.kill().unwrap();
    program.child.wait().unwrap();
    assert!(!knob.is_alive());
    knob.set(3).unwrap();
    drop(knob);
    assert_eq!(knob_of(&bench, pid).knob().unwrap().resting, 4);
}

#[test]
fn threads_that_read_it_first_at_once_have_its_default() {
    let bench = Bench::new();
    for _ in 0..20 {
        assert_eq!(Program::start(&bench).ask(b't'), 0);
    }
    assert_eq!(bench.directory.find("test.knob").unwrap().sensors.len(), 20);
}

#[test]
fn without_sensors_it_has_its_default() {
    let bench = Bench::new();
    let mut command = bench.command(&common::compile("knob"));
    let mut program = Program::spawn(command.env_remove("FETTLE_SENSORS"));
    assert_eq!((program.ask(b'r'), program.ask(b't'), program.ask(b'r')), (1, 0, 1));
    let mut program = Program::spawn(command.env("FETTLE_SENSORS", "/dev/null/none"));
    assert_eq!(program.ask(b'r'), 1);
    assert!(bench.directory.sensors().unwrap().sensors.is_empty());
}

/// The Rust twin of `c/knob.c`, without its forks.
#[test]
fn rust_program() {
    static KNOB: fettle::Knob = fettle::Sensor::knob("test.rust", 3, 2).values(1, -2..=5);
    if std::env::var_os("FETTLE_TEST_KNOB").is_none() {
        return;
    }
    // The harness has used the line already.
    println!();
    for line in std::io::stdin().lines() {
        if line.unwrap() == "fork" {
            // SAFETY: the child goes on in this thread, allocates and prints as tests of one thread may.
            if unsafe { libc::fork() } != 0 {
                // SAFETY: waits for the child, and looks at nothing.
                unsafe { libc::wait(std::ptr::null_mut()) };
                return;
            }
        }
        println!("value {}", KNOB.get());
    }
}

#[test]
fn rust_reads_what_is_set() {
    let bench = Bench::new();
    let mut command = bench.command(&std::env::current_exe().unwrap());
    command.args(["--exact", "rust_program", "--nocapture", "--test-threads=1"]);
    let mut program = Program::spawn(command.env("FETTLE_TEST_KNOB", "1"));
    let mut ask = |line: &[u8]| {
        program.input.write_all(line).unwrap();
        let mut answer = String::new();
        while !answer.starts_with("value ") {
            answer.clear();
            assert_ne!(program.output.read_line(&mut answer).unwrap(), 0);
        }
        answer["value ".len()..].trim().parse::<i64>().unwrap()
    };
    assert_eq!(ask(b"\n"), 1);
    let parent = bench.wait_for("test.rust");
    let pid = parent.description().producer.pid;
    let mut knob = parent.into_knob().unwrap();
    knob.set(-2).unwrap();
    assert_eq!(ask(b"\n"), -2);
    assert_eq!(ask(b"fork\n"), 1);
    let is_child = |sensor: &Sensor| sensor.description().producer.pid != pid;
    bench.wait_for_where("test.rust", is_child).into_knob().unwrap().set_for_good(5).unwrap();
    assert_eq!(ask(b"\n"), 5);
    drop(knob);
    assert_eq!(ask(b"\n"), 5);
}
