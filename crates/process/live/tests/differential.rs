//! Programs behave under the tracer, with code injected into each, as they do without: what they
//! print and how they end is the same.

mod common;
use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use common::*;

fn output(command: &mut Command) -> Output {
    command.stdin(Stdio::null()).output().unwrap()
}

/// Runs a command plainly and under the tracer. Answers the tracer's log.
fn compare(program: impl Into<PathBuf>, args: &[&str]) -> String {
    let program = program.into();
    let plain = output(Command::new(&program).args(args));
    // Tests run side by side, of the same program perhaps.
    static LOGS: AtomicUsize = AtomicUsize::new(0);
    let log = temporary(&format!("log-{}", LOGS.fetch_add(1, Ordering::Relaxed)));
    let mut command = Command::new("timeout");
    command.arg("60").arg(follow()).arg(&program).args(args).env("FOLLOW_LOG", &log);
    let traced = output(&mut command);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert_eq!(text(&traced.stdout), text(&plain.stdout), "{program:?} {args:?}");
    assert_eq!(text(&traced.stderr), text(&plain.stderr), "{program:?} {args:?}");
    // timeout answers 128 and the signal for a program that a signal ended.
    let code = |output: &Output| {
        use std::os::unix::process::ExitStatusExt;
        output.status.code().unwrap_or_else(|| 128 + output.status.signal().unwrap())
    };
    assert_eq!(code(&traced), code(&plain), "{program:?} {args:?}");
    let log = std::fs::read_to_string(log).unwrap();
    let not_injected: Vec<&str> = log.lines().filter(|line| line.contains("error: Some")).collect();
    assert!(not_injected.is_empty(), "{not_injected:?}");
    // Each program that was executed has run the injected code, once through each address.
    let execs = log.lines().filter(|line| line.starts_with("Exec")).count();
    assert!(log.contains(&format!("counts ({execs}, {execs})")), "{log}");
    log
}

#[test]
fn signals() {
    compare(program("signals"), &[]);
}

#[test]
fn births() {
    let log = compare(program("births"), &[]);
    for kind in ["Thread", "Fork", "Vfork"] {
        assert!(log.contains(&format!("birth: {kind}")), "{kind}");
    }
}

#[test]
fn births_again_and_again() {
    for _ in 0..5 {
        compare(program("births"), &[]);
    }
}

#[test]
fn exec_by_another_thread() {
    for rounds in ["1", "2", "7"] {
        compare(program("exec_thread"), &[rounds]);
    }
}

#[test]
fn state_at_the_start() {
    compare(program("state"), &[]);
}

#[test]
fn pipelines() {
    compare("/bin/bash", &["-c", "for i in 1 2 3; do /bin/echo $i | cat; done"]);
    compare("/bin/bash", &["-c", "seq 1 20000 | sort -rn | head -3; echo ${PIPESTATUS[@]}", "x"]);
    compare(
        "/bin/bash",
        &["-c", "trap 'echo caught' USR1; kill -USR1 $$; (exit 9); echo $?; kill -9 $$", "x", "y"],
    );
    compare("/bin/sh", &["-c", "yes | head -1; sleep 0.05 & wait; exit 3"]);
}

#[test]
fn static_programs() {
    for name in ["/usr/bin/busybox", "/bin/busybox"] {
        if PathBuf::from(name).exists() {
            compare(name, &["sh", "-c", "echo a; busybox echo b | busybox cat; exit 5"]);
            return;
        }
    }
    eprintln!("no busybox: not tested");
}

#[test]
fn python() {
    compare(
        "python3",
        &[
            "-c",
            r"
import multiprocessing, threading, subprocess, os, signal, sys
def square(x): return x * x
if __name__ == '__main__':
    with multiprocessing.Pool(3) as pool: print(sum(pool.map(square, range(1000))))
    total = []
    threads = [threading.Thread(target=lambda i=i: total.append(i)) for i in range(50)]
    [t.start() for t in threads]; [t.join() for t in threads]
    print(len(total), sum(total))
    print(subprocess.run(['sh', '-c', 'exit 6']).returncode)
    print(subprocess.run('kill -11 $$', shell=True).returncode)
    print(subprocess.check_output(['printf', 'hello']))
    p = subprocess.Popen(['sh', '-c', 'echo; while :; do :; done'], stdout=subprocess.PIPE)
    p.stdout.readline(); p.send_signal(signal.SIGTERM); print(p.wait())
    pid = os.fork()
    if pid == 0: os.kill(os.getpid(), signal.SIGKILL)
    print(os.waitpid(pid, 0)[1])
    sys.exit(44)
",
        ],
    );
}

#[test]
fn compilers() {
    let object = temporary("object.o");
    let source = "void f(void){} int main(){return 0;}";
    let script = format!("echo '{source}' | cc -O2 -x c -c -o {} - && echo ok", object.display());
    compare("/bin/sh", &["-c", &script]);
}

#[test]
fn many_short_processes() {
    compare("/bin/bash", &["-c", "for i in {1..200}; do (true); /bin/true; done; echo done", "a"]);
}

/// Starts what tells that it is ready by a line, which is returned.
fn started(command: &mut Command) -> (Child, String) {
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    (child, line)
}

fn kill(signal: &str, pid: &str) {
    let kill = format!("kill -{signal} {pid}");
    assert!(Command::new("sh").args(["-c", &kill]).status().unwrap().success());
}

#[test]
fn a_program_that_is_killed_from_outside() {
    for (signal, code) in [("KILL", 137), ("TERM", 143), ("SEGV", 139)] {
        let log = temporary(&format!("killed-{signal}"));
        let mut command = Command::new(follow());
        command.args(["sh", "-c", "echo $$; exec sleep 100"]).env("FOLLOW_LOG", &log);
        let (mut child, line) = started(&mut command);
        std::thread::sleep(Duration::from_millis(50));
        kill(signal, line.trim());
        assert_eq!(child.wait().unwrap().signal(), Some(code - 128));
    }
}

#[test]
fn what_was_ignored_at_the_start_reaches_who_has_a_handler() {
    // The program inherits both; it has a handler of its own for one of them.
    let perl = r#"$SIG{QUIT} = sub { exit 7 }; $| = 1; print "ready\n"; sleep 1 while 1"#;
    let script = r#"trap '' INT QUIT; exec "$0" perl -e "$1""#;
    let mut command = Command::new("sh");
    command.args([OsStr::new("-c"), script.as_ref(), follow().as_ref(), perl.as_ref()]);
    let (mut child, line) = started(command.env("FOLLOW_LOG", temporary("ignored")));
    assert_eq!(line, "ready\n");
    for signal in ["INT", "QUIT"] {
        kill(signal, &child.id().to_string());
    }
    assert_eq!(child.wait().unwrap().code(), Some(7));
}
