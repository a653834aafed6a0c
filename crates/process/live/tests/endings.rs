//! How a run ends: by itself, by a signal to the tracer, by the tracer's death.

mod common;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use common::*;
use fettle_live::*;
use fettle_types::Pid;

fn state_of(pid: Pid) -> Option<char> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    text.rsplit_once(") ")?.1.chars().next()
}

fn tracer_of(pid: Pid) -> Option<Pid> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    text.lines().find_map(|line| line.strip_prefix("TracerPid:"))?.trim().parse().ok()
}

fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < Duration::from_secs(60), "{what} does not happen");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn signal(pid: Pid, number: i32) {
    // SAFETY: takes numbers only.
    assert_eq!(unsafe { libc::kill(pid.get(), number) }, 0, "{pid} {number}");
}

/// Starts `follow` with a script, and reads the first line that it prints.
fn begin(script: &str, first: bool) -> (Child, String, BufReader<std::process::ChildStdout>) {
    let mut command = Command::new(follow());
    command.args(["/bin/bash", "-c", script]).stdout(Stdio::piped()).stdin(Stdio::null());
    if first {
        command.env("FOLLOW_FIRST", "1");
    }
    let mut child = command.spawn().unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    (child, line.trim().to_owned(), output)
}

#[test]
fn the_program_outlives_a_killed_tracer() {
    // Killed while the program does all that it can be stopped for.
    let script = "echo $$; for i in {1..300}; do /bin/echo x | cat > /dev/null; (true) & done; \
                  wait; echo end";
    for delay in [0, 1, 3, 10, 30, 47, 71, 100] {
        let (mut child, _, mut output) = begin(script, false);
        std::thread::sleep(Duration::from_millis(delay));
        child.kill().unwrap();
        child.wait().unwrap();
        let mut rest = String::new();
        output.read_to_string(&mut rest).unwrap();
        assert_eq!(rest, "end\n", "after {delay} ms");
    }
}

#[test]
fn a_daemon_is_let_go() {
    for first in [true, false] {
        let script = "(for i in {1..100}; do /bin/true; done; echo late) & echo $!; exit 5";
        let (mut child, daemon, mut output) = begin(script, first);
        let daemon: Pid = daemon.parse().unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(5));
        if first {
            assert!(tracer_of(daemon).is_none());
        } else {
            assert!(matches!(state_of(daemon), None | Some('Z')), "all were waited for");
        }
        let mut rest = String::new();
        output.read_to_string(&mut rest).unwrap();
        assert_eq!(rest, "late\n");
    }
}

#[test]
fn detached_ones_go_on_in_the_state_they_were_in() {
    // One computes, one sleeps, one is stopped, one has threads.
    let script = "sleep 100 & A=$!; (while :; do :; done) & B=$!; sleep 100 & C=$!; \
        python3 -c 'import threading, time\nfor i in range(5): threading.Thread(target=time.sleep, args=(100,)).start()' & D=$!; \
        kill -STOP $C; sleep 0.5; echo $A $B $C $D; exit 0";
    let (mut child, pids, _output) = begin(script, true);
    assert_eq!(child.wait().unwrap().code(), Some(0));
    let pids: Vec<Pid> = pids.split(' ').map(|pid| pid.parse().unwrap()).collect();
    for pid in &pids {
        assert_eq!(tracer_of(*pid), None, "{pid}");
        assert!(state_of(*pid).is_some(), "{pid}");
    }
    until("running", || state_of(pids[1]) == Some('R'));
    until("sleeping", || state_of(pids[0]) == Some('S') && state_of(pids[3]) == Some('S'));
    until("stopped", || state_of(pids[2]) == Some('T'));
    signal(pids[2], libc::SIGCONT);
    until("continued", || state_of(pids[2]) == Some('S'));
    for pid in pids {
        signal(pid, libc::SIGKILL);
    }
}

#[test]
fn in_process_detaching_tells_the_session() {
    let mut recorder = Recorder::new(|_| None);
    let script = "sleep 100 & sleep 100 & exit 0";
    let launch = launch("/bin/sh", &["-c", script]);
    let status = run(&launch, &mut recorder, options(WaitFor::FirstProcess)).unwrap();
    assert_eq!(status, ExitStatus::Code(0));
    assert_eq!(end_the_detached(&recorder), 2);
}

/// Ends those that went on alone; gives how many.
fn end_the_detached(recorder: &Recorder) -> usize {
    let detached = recorder.events.iter().filter_map(|event| match event {
        Event::Detached { pid, .. } => Some(*pid),
        _ => None,
    });
    detached.inspect(|pid| signal(*pid, libc::SIGKILL)).count()
}

#[test]
fn the_stop_flag_ends_the_wait_for_daemons() {
    static STOP: AtomicBool = AtomicBool::new(false);
    let mut recorder = Recorder::new(|_| None);
    recorder.on_tick = Box::new(|tick, _| STOP.store(tick > 20, Ordering::Relaxed));
    let launch = launch("/bin/sh", &["-c", "sleep 100 & exit 1"]);
    let options = RunOptions { stop: &STOP, ..options(WaitFor::All) };
    assert_eq!(run(&launch, &mut recorder, options).unwrap(), ExitStatus::Code(1));
    assert_eq!(end_the_detached(&recorder), 1);
}

#[test]
fn who_gives_its_memory_back_has_ended() {
    // That takes long, and it has none any more, but is no zombie yet.
    let script = "$x = 'x' x (3 << 28); print \"here\\n\"; sleep 100";
    for _ in 0..3 {
        let mut perl = Command::new("perl");
        let mut child =
            perl.args(["-e", &format!("$| = 1; {script}")]).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let pid = Pid::of_child(&child);
        let process = Process::open(pid).unwrap();
        assert!(process.is_alive() && !has_ended(pid));
        signal(pid, libc::SIGKILL);
        let why = loop {
            if let Err(why) = Process::open(pid) {
                break why;
            }
        };
        assert!(!why.to_string().contains("kernel"), "{why}");
        assert!(has_ended(pid) && !process.is_alive());
        child.wait().unwrap();
    }
}

#[test]
fn signals_to_the_tracer_reach_the_program() {
    let script = "trap 'echo got INT' INT; trap 'echo got TERM; exit 6' TERM; echo $$; \
                  while :; do sleep 0.02; done";
    let (mut child, _, mut output) = begin(script, false);
    signal(Pid::of_child(&child), libc::SIGINT);
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    assert_eq!(line, "got INT\n");
    signal(Pid::of_child(&child), libc::SIGTERM);
    line.clear();
    output.read_line(&mut line).unwrap();
    assert_eq!(line, "got TERM\n");
    assert_eq!(child.wait().unwrap().code(), Some(6));
}

#[test]
fn stopping_and_continuing_the_program_alone() {
    let (mut child, pid, mut output) =
        begin("echo $$; for i in {1..20}; do sleep 0.01; done; echo end", false);
    let pid: Pid = pid.parse().unwrap();
    for _ in 0..3 {
        signal(pid, libc::SIGSTOP);
        until("stop", || matches!(state_of(pid), Some('T' | 't')));
        std::thread::sleep(Duration::from_millis(30));
        assert!(matches!(state_of(pid), Some('T' | 't')));
        signal(pid, libc::SIGCONT);
        until("go on", || !matches!(state_of(pid), Some('T' | 't')));
    }
    let mut rest = String::new();
    output.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "end\n");
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn the_keyboard() {
    // In a terminal of its own, with a shell that has job control: Ctrl-Z stops the job and gives
    // the terminal back, fg goes on, Ctrl-C ends the program once.
    let script = r#"
import os, pty, sys, time, select, signal
follow = sys.argv[1]
pid, terminal = pty.fork()
if pid == 0:
    os.environ['PS1'] = '$ '
    os.execv('/bin/bash', ['bash', '--norc', '--noprofile', '-i'])
seen = b''
def expect(text):
    global seen
    end = time.time() + 15
    while text not in seen:
        if time.time() > end:
            print('no', text, 'in', seen); os.kill(pid, signal.SIGKILL); sys.exit(1)
        if select.select([terminal], [], [], 0.1)[0]: seen += os.read(terminal, 4096)
    seen = seen[seen.index(text) + len(text):]
def send(text): os.write(terminal, text)
expect(b'$ ')
send(b'stty -echo\n'); expect(b'$ ')
program = '''import signal, time, os
n = 0
def tstp(s, f):
    print("tidy", flush=True); signal.signal(signal.SIGTSTP, signal.SIG_DFL); os.kill(0, signal.SIGTSTP)
    signal.signal(signal.SIGTSTP, tstp); print("back", flush=True)
def interrupt(s, f):
    global n
    n += 1; print("interrupt", n, flush=True)
signal.signal(signal.SIGTSTP, tstp); signal.signal(signal.SIGINT, interrupt)
print("ready", flush=True)
while n < 2: time.sleep(0.01)
time.sleep(0.3); print("n is", n, flush=True)
'''
open(sys.argv[2], 'w').write(program)
send(f'{follow} python3 {sys.argv[2]}; echo status $?\n'.encode())
expect(b'ready'); send(b'\x1a')
expect(b'tidy'); expect(b'Stopped'); expect(b'$ ')
send(b'fg\n'); expect(b'back')
send(b'\x03'); expect(b'interrupt 1'); time.sleep(0.1)
send(b'\x03'); expect(b'interrupt 2'); expect(b'n is 2')
expect(b'$ ')
send(f'{follow} sleep 100\n'.encode()); time.sleep(0.5)
send(b'\x1a'); expect(b'Stopped'); expect(b'$ ')
send(b'bg\n'); expect(b'$ '); send(b'jobs\n'); expect(b'Running'); expect(b'$ ')
send(b'fg\n'); time.sleep(0.2); send(b'\x03'); expect(b'$ ')
send(b'echo status $?\n'); expect(b'status 130')
send(b'exit 0\n')
print('good')
"#;
    let output = Command::new("python3")
        .arg("-c")
        .arg(script)
        .arg(follow())
        .arg(temporary("keyboard.py"))
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(text, "good\n", "{}", String::from_utf8_lossy(&output.stderr));
}
