//! `fettle tune`, `undo` and `status` on living processes: nothing in them goes wrong, whatever
//! becomes of fettle, and afterwards every byte of their code is the original.

#[path = "common/running.rs"]
mod running;

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use running::{Running, children, differing, leftovers};
use serde_json::Value;

struct Bench {
    folder: tempfile::TempDir,
}

impl Running {
    /// Sends it a signal, and waits until it is ready again.
    fn signal(&mut self, name: &str) {
        let pid = self.pid().to_string();
        assert!(Command::new("kill").args([name, &pid]).status().unwrap().success());
        let mut line = String::new();
        self.out.read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
    }
}

impl Bench {
    fn new() -> Bench {
        Bench { folder: tempfile::tempdir().unwrap() }
    }

    fn build(&self, source: &str, flags: &[&str]) -> PathBuf {
        running::build(self.folder.path(), source, flags)
    }

    fn start(&self, program: &Path) -> Running {
        Running::start(program, &[])
    }

    fn fettle(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fettle"));
        command.args(arguments).env("XDG_CACHE_HOME", self.folder.path().join("cache"));
        command
    }

    /// Runs fettle with `--json`; gives its exit status and what it printed.
    fn json(&self, arguments: &[&str]) -> (i32, Value) {
        let output = self.fettle(arguments).arg("--json").output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        let error = String::from_utf8_lossy(&output.stderr);
        let value = serde_json::from_str(&text).unwrap_or_else(|_| panic!("{text}\n{error}"));
        (output.status.code().unwrap(), value)
    }

    fn tune(&self, pid: i32, seed: u32, more: &[&str]) -> Value {
        let (pid, seed) = (pid.to_string(), seed.to_string());
        let arguments = [&["tune", "-p", &pid, "--shuffle", &seed], more].concat();
        let (status, value) = self.json(&arguments);
        assert_eq!(status, 0, "{value}");
        value
    }

    /// A program that has rewritten text, and was sent SIGUSR1 then.
    fn tuned_then_reported(&self, source: &str, flags: &[&str]) -> Running {
        let mut running = self.start(&self.build(source, flags));
        self.tune(running.pid(), 1, &[]);
        running.signal("-USR1");
        running
    }

    fn undo(&self, pid: i32) -> (i32, Value) {
        self.json(&["undo", &pid.to_string(), "--wait", "60"])
    }

    fn journal(&self, pid: i32) -> PathBuf {
        self.folder.path().join(format!("cache/fettle/live/{pid}.undo"))
    }
}

/// Installs and reverts again and again while the program works.
fn again_and_again(program: &str, flags: &[&str], more: &[&str], times: u32) {
    let bench = Bench::new();
    let running = bench.start(&bench.build(program, flags));
    let pid = running.pid();
    assert_eq!(differing(pid), Vec::<String>::new());
    for seed in 1..=times {
        let tuned = bench.tune(pid, seed, more);
        assert!(tuned["jumps"].as_u64().unwrap() > 5, "{tuned}");
        assert_ne!(differing(pid), Vec::<String>::new());
        let (status, state) = bench.json(&["status", &pid.to_string()]);
        assert_eq!((status, &state["processes"][0]["in_place"]), (0, &tuned["jumps"]));
        std::thread::sleep(Duration::from_millis(120));
        let (status, undone) = bench.undo(pid);
        if status == 1 {
            // A stale word that is not overwritten. It is reported, and what stays for unwinders is
            // no more than one place.
            assert!(is_kept_by_memory(&undone) && differing(pid).len() < 2, "{undone}");
            break;
        }
        assert_eq!(status, 0, "{undone}");
        assert_eq!(differing(pid), Vec::<String>::new());
        assert_eq!(leftovers(pid), Vec::<String>::new());
        assert!(!bench.journal(pid).exists());
    }
    let said = running.end();
    assert_eq!(said, "right after many rounds\nexit status: 0");
}

/// Every byte of its code is the original, and nothing of Fettle's is left in it.
fn assert_original(pid: i32) {
    assert_eq!(differing(pid), Vec::<String>::new());
    assert_eq!(leftovers(pid), Vec::<String>::new());
}

fn is_kept_by_memory(undone: &Value) -> bool {
    undone["why_kept"].as_str().is_some_and(|why| why.contains("--memory"))
}

#[test]
fn what_memory_keeps_of_rewritten_text_leads_to_the_original_where_that_is_wanted() {
    let bench = Bench::new();
    let running = bench.tuned_then_reported("keeper.c", &[]);
    let pid = running.pid();
    let (status, undone) = bench.json(&["undo", &pid.to_string(), "--wait", "2"]);
    assert!(status == 1 && is_kept_by_memory(&undone), "{undone}");
    let (status, undone) = bench.json(&["undo", &pid.to_string(), "--memory"]);
    assert_eq!(status, 0, "{undone}");
    // The callers, three times; and the coroutine, eleven deep.
    assert!(undone["changed"].as_u64().unwrap() >= 14, "{undone}");
    assert_original(pid);
    assert!(!bench.journal(pid).exists());
    assert_eq!(running.end(), "right\nexit status: 0");
}

/// An exception keeps the place of its handler in memory while destructors run.
#[test]
fn an_exception_on_its_way_finds_its_handler_in_the_original() {
    let bench = Bench::new();
    let running = bench.tuned_then_reported("cleaning.cpp", &["-O1"]);
    let pid = running.pid();
    let (status, undone) = bench.undo(pid);
    assert_eq!(status, 0, "{undone}");
    assert_eq!(undone["changed"], 1, "{undone}");
    assert_original(pid);
    assert_eq!(running.end(), "right\nexit status: 0");
}

/// A thread may be on a stack that the program has made, and another one that sleeps right below.
#[test]
fn a_stack_that_sleeps_below_the_one_in_use_is_not_forgotten() {
    let bench = Bench::new();
    let running = bench.tuned_then_reported("stacks.c", &["-O1"]);
    let pid = running.pid();
    let (status, undone) = bench.json(&["undo", &pid.to_string(), "--wait", "1"]);
    assert!(status == 1 && is_kept_by_memory(&undone), "{undone}");
    let (status, undone) = bench.json(&["undo", &pid.to_string(), "--memory"]);
    assert_eq!(status, 0, "{undone}");
    assert!(undone["changed"].as_u64().unwrap() >= 10, "{undone}");
    assert_original(pid);
    assert_eq!(running.end(), "right\nexit status: 0");
}

/// An unwinder has left on the stack where it found unwind information of rewritten text, and that
/// is not overwritten.
#[test]
fn what_an_exception_has_left_keeps_rewritten_text_unless_that_is_not_wanted() {
    let bench = Bench::new();
    let running = bench.tuned_then_reported("remains.cpp", &["-O1"]);
    let pid = running.pid();
    let (status, undone) = bench.json(&["undo", &pid.to_string(), "--wait", "1"]);
    assert!(status == 1 && undone["why_kept"].is_string(), "{undone}");
    let (status, undone) = bench.json(&["undo", &pid.to_string(), "--memory"]);
    assert_eq!(status, 0, "{undone}");
    assert_original(pid);
    assert_eq!(running.end(), "right\nexit status: 0");
}

/// What `fettle undo` has to leave in a process does not prevent a recording: words of its memory
/// that are addresses of calls are redirected to the original. Where they may as well be numbers
/// they stay, for as long as they are there.
#[test]
fn what_was_left_is_taken_away_before_the_next_recording() {
    for fixed in [false, true] {
        let bench = Bench::new();
        let flags: &[&str] = if fixed { &["-no-pie"] } else { &[] };
        let mut running = bench.start(&bench.build("forgetful.c", flags));
        let pid = running.pid().to_string();
        bench.tune(running.pid(), 1, &[]);
        running.signal("-USR1");
        let (status, undone) = bench.json(&["undo", &pid, "--wait", "0.1"]);
        assert!(status == 1 && is_kept_by_memory(&undone), "{undone}");
        let record = |trace: &str| {
            let trace = bench.folder.path().join(trace);
            let how = ["record", "--mode", "count", "--duration", "0.3s", "-o"];
            let of = [trace.to_str().unwrap(), "-p", &pid];
            bench.fettle(&[&how[..], &of].concat()).output().unwrap()
        };
        if fixed {
            let refused = record("refused");
            let said = String::from_utf8_lossy(&refused.stderr).into_owned();
            assert_eq!(refused.status.code(), Some(2), "{said}");
            assert!(said.contains("it still has code of an earlier recording"), "{said}");
            running.signal("-USR2");
        }
        let recorded = record("recorded");
        assert!(recorded.status.success(), "{recorded:?}");
        assert_original(running.pid());
        assert!(!bench.journal(running.pid()).exists());
        assert_eq!(running.end(), "right\nexit status: 0");
    }
}

/// The caller is noted while it is recorded, and kept for good.
#[test]
fn a_recording_of_what_keeps_its_callers_can_be_followed_by_another() {
    let bench = Bench::new();
    let running = bench.start(&bench.build("keeps_callers.c", &["-O1"]));
    let pid = running.pid().to_string();
    for (index, mode) in ["time", "count", "events"].into_iter().enumerate() {
        let trace = bench.folder.path().join(format!("trace-{index}"));
        let how = ["record", "--mode", mode, "--duration", "0.3s", "-o"];
        let of = [trace.to_str().unwrap(), "-p", &pid];
        let recorded = bench.fettle(&[&how[..], &of].concat()).output().unwrap();
        let said = String::from_utf8_lossy(&recorded.stderr).into_owned();
        assert!(recorded.status.success(), "{said}");
        assert!(
            said.contains("has its own code again") && !said.contains("still mapped"),
            "{said}"
        );
        assert_original(running.pid());
        assert!(!bench.journal(running.pid()).exists());
    }
    assert_eq!(running.end(), "right\nexit status: 0");
}

#[test]
fn waits_are_not_cut_short() {
    again_and_again("sleepers.c", &[], &[], 6);
}

#[test]
fn waits_in_a_program_that_has_its_place() {
    again_and_again("sleepers.c", &["-no-pie"], &["--lib", "libc.so*"], 2);
}

/// They sleep in the middle of functions that are rewritten, and go on in rewritten text, or in the
/// original.
#[test]
fn a_thousand_threads() {
    let bench = Bench::new();
    let running = bench.start(&bench.build("thousand.c", &[]));
    for seed in 1..=2 {
        let tuned = bench.tune(running.pid(), seed, &[]);
        assert_eq!(tuned["threads"], 1002, "{tuned}");
        let (status, undone) = bench.undo(running.pid());
        assert_eq!(status, 0, "{undone}");
        assert_original(running.pid());
    }
    bench.tune(running.pid(), 3, &[]);
    assert_eq!(running.end(), "right\nexit status: 0");
}

#[test]
fn exceptions_threads_and_forks() {
    again_and_again("thrower.cpp", &[], &[], 6);
}

#[test]
fn exceptions_through_libraries() {
    let libraries = ["--lib", "libstdc++*", "--lib", "libgcc_s*", "--lib", "libc.so*"];
    again_and_again("thrower.cpp", &["-fcf-protection=full"], &libraries, 2);
}

/// A debugger has put a breakpoint where a jump to rewritten text is: as long as it may remove it,
/// that stays.
#[test]
fn what_somebody_else_has_changed_keeps_rewritten_text() {
    let bench = Bench::new();
    let running = bench.start(&bench.build("spinner.c", &[]));
    let pid = running.pid();
    bench.tune(pid, 1, &[]);
    let log = fs::read_to_string(bench.journal(pid)).unwrap();
    let jump = log.lines().find_map(|line| line.strip_prefix("jump ")).unwrap();
    let at = u64::from_str_radix(jump.split(' ').next().unwrap(), 16).unwrap();
    let memory = fs::OpenOptions::new().read(true).write(true).open(format!("/proc/{pid}/mem"));
    let memory = memory.unwrap();
    let mut before = [0];
    memory.read_exact_at(&mut before, at + 1).unwrap();
    memory.write_all_at(&[!before[0]], at + 1).unwrap();
    let (status, undone) = bench.undo(pid);
    assert_eq!((status, undone["conflicts"].as_array().unwrap().len()), (1, 1), "{undone}");
    assert!(undone["why_kept"].as_str().unwrap().contains("another program"), "{undone}");
    assert_ne!(leftovers(pid), Vec::<String>::new());

    memory.write_all_at(&before, at + 1).unwrap();
    let (status, undone) = bench.undo(pid);
    assert_eq!(status, 0, "{undone}");
    assert_original(pid);
    let said = running.end();
    assert!(said.ends_with("exit status: 0"), "{said}");
}

/// As libgcc does where the C library is older than 2.35.
#[test]
fn kept_program_headers() {
    again_and_again("keeps_headers.c", &[], &[], 3);
}

/// Waits until the journal of `pid` has `count` lines that begin with `kind`, or fettle has ended.
fn await_stage(journal: &Path, fettle: &mut Child, kind: &str, count: usize) {
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_secs(60) {
        let text = fs::read_to_string(journal).unwrap_or_default();
        if text.lines().filter(|line| line.starts_with(kind)).count() >= count {
            return;
        }
        if fettle.try_wait().unwrap().is_some() {
            return;
        }
    }
    panic!("fettle does not end");
}

#[test]
fn killed_at_any_stage() {
    let bench = Bench::new();
    let running = bench.start(&bench.build("thrower.cpp", &["-O1"]));
    let pid = running.pid();
    let stages = [
        ("fettle", 1),
        ("process", 1),
        ("map ", 1),
        ("code", 1),
        ("mapped", 1),
        ("mapped", 3),
        ("cleared", 1),
        ("guard", 1),
        ("jump", 1),
        ("note", 1),
    ];
    let mut survived = 0;
    for round in 0..2 {
        for (kind, count) in stages {
            let mut tune = bench.fettle(&["tune", "-p", &pid.to_string(), "--shuffle", "9"]);
            let mut fettle = tune.stdout(Stdio::null()).spawn().unwrap();
            await_stage(&bench.journal(pid), &mut fettle, kind, count);
            // A little later each round.
            std::thread::sleep(Duration::from_micros(round * 300));
            fettle.kill().unwrap();
            survived += u32::from(fettle.wait().unwrap().success());
            if bench.journal(pid).exists() {
                let (status, undone) = bench.undo(pid);
                assert_eq!(status, 0, "{kind} {count}: {undone}");
            }
            assert_eq!(differing(pid), Vec::<String>::new(), "{kind} {count}");
            assert_eq!(leftovers(pid), Vec::<String>::new(), "{kind} {count}");
        }
    }
    assert!(survived < 10, "most were to be killed before their end: {survived} were not");
    assert_eq!(running.end(), "right after many rounds\nexit status: 0");
}

#[test]
fn an_undo_that_was_killed_goes_on() {
    let bench = Bench::new();
    let running = bench.start(&bench.build("thrower.cpp", &["-O3"]));
    let pid = running.pid();
    for delay in [0, 1, 2, 4, 8, 16, 32, 64] {
        bench.tune(pid, delay, &[]);
        let mut undo = bench.fettle(&["undo", &pid.to_string()]).stdout(Stdio::null()).spawn();
        std::thread::sleep(Duration::from_millis(delay.into()));
        let undo = undo.as_mut().unwrap();
        undo.kill().unwrap();
        undo.wait().unwrap();
        if bench.journal(pid).exists() {
            let (status, undone) = bench.undo(pid);
            assert_eq!(status, 0, "{undone}");
        }
        assert_eq!(differing(pid), Vec::<String>::new());
        assert_eq!(leftovers(pid), Vec::<String>::new());
    }
    assert_eq!(running.end(), "right after many rounds\nexit status: 0");
}

/// Killed before any of the steps by which it changes the program: that is right all the time, and takes
/// its signals.
#[test]
fn killed_before_any_step() {
    let bench = Bench::new();
    let killer = bench.build("killed_at.c", &["-shared", "-fPIC"]);
    let running = bench.start(&bench.build("thrower.cpp", &["-O3"]));
    let pid = running.pid();
    let number = pid.to_string();
    let tune = ["tune", "-p", &number, "--shuffle", "5"];
    let undo = ["undo", &number];
    let mut killed = 0;
    for (arguments, is_tuned) in [(&tune[..], false), (&undo[..], true)] {
        // Some of them; there are up to two hundred.
        for step in (1..).step_by(13) {
            if is_tuned {
                bench.tune(pid, 5, &[]);
            }
            let mut fettle = bench.fettle(arguments);
            fettle.env("LD_PRELOAD", &killer).env("KILLED_AT", step.to_string());
            let status = fettle.stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap();
            let what = format!("{arguments:?}, before step {step}");
            assert!(status.success() || status.signal() == Some(9), "{what}: {status}");
            if bench.journal(pid).exists() {
                let (status, undone) = bench.undo(pid);
                assert_eq!(status, 0, "{what}: {undone}");
            }
            assert_eq!(differing(pid), Vec::<String>::new(), "{what}");
            assert_eq!(leftovers(pid), Vec::<String>::new(), "{what}");
            let main = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
            assert!(main.contains("SigBlk:\t0000000000000000"), "{what}:\n{main}");
            if status.success() {
                break;
            }
            killed += 1;
        }
    }
    assert!(killed > 15, "{killed}");
    assert_eq!(running.end(), "right after many rounds\nexit status: 0");
}

/// One damaged log is no reason to leave the others as they are.
#[test]
fn all_are_reverted_but_those_whose_log_is_damaged() {
    let bench = Bench::new();
    let program = bench.build("thrower.cpp", &["-O3"]);
    let mut both = [bench.start(&program), bench.start(&program)];
    both.sort_by_key(Running::pid);
    let [damaged, good] = both;
    for (seed, running) in (1..).zip([&damaged, &good]) {
        bench.tune(running.pid(), seed, &[]);
    }
    let log = bench.journal(damaged.pid());
    let text = fs::read_to_string(&log).unwrap();
    fs::write(&log, text.replacen("map", "nap", 1)).unwrap();
    let run = |arguments: &[&str]| {
        let output = bench.fettle(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(error.contains(&log.display().to_string()), "{error}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    assert!(run(&["status"]).contains(&format!("{}: ", good.pid())));
    assert!(run(&["undo", "--all", "--wait", "60"]).contains(&format!("{}: ", good.pid())));
    assert_eq!(differing(good.pid()), Vec::<String>::new());
    assert_eq!(good.end(), "right after many rounds\nexit status: 0");

    fs::write(&log, text).unwrap();
    assert_eq!(bench.undo(damaged.pid()).0, 0);
    assert_eq!(damaged.end(), "right after many rounds\nexit status: 0");
}

#[test]
fn what_cannot_be_tuned_says_why() {
    let bench = Bench::new();
    let refused = |pid: i32| {
        let pid = pid.to_string();
        let output = bench.fettle(&["tune", "-p", &pid, "--shuffle", "1"]).output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(text.lines().count(), 1, "{text}");
        text
    };
    assert!(refused(i32::MAX).contains("there is no process"));

    let mut zombie = Command::new("true").spawn().unwrap();
    std::thread::sleep(Duration::from_millis(200));
    assert!(refused(zombie.id() as i32).contains("it has ended"));
    zombie.wait().unwrap();

    let fixed = bench.start(&bench.build("sleepers.c", &["-static"]));
    assert!(refused(fixed.pid()).contains("a static program"));
    let said = fixed.end();
    assert!(said.ends_with("rounds\nexit status: 0"), "{said}");

    let running = bench.start(&bench.build("sleepers.c", &[]));
    bench.tune(running.pid(), 1, &[]);
    assert!(refused(running.pid()).contains("changed already"));
    assert_eq!(bench.undo(running.pid()).0, 0);
    let (status, value) = bench.json(&["status"]);
    assert_eq!((status, value["processes"].as_array().unwrap().len()), (1, 0));
    running.end();
}

/// One works on a process at a time, and the next one says so before it does anything.
#[test]
fn another_fettle_is_at_work() {
    let bench = Bench::new();
    let running = bench.start(&bench.build("sleepers.c", &[]));
    let pid = running.pid().to_string();
    let mut first = bench.fettle(&["tune", "-p", &pid, "--time", "60", "--dry-run"]);
    let mut first = first.stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let mut step = String::new();
    BufReader::new(first.stderr.as_mut().unwrap()).read_line(&mut step).unwrap();
    let output = bench.fettle(&["tune", "-p", &pid]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("another fettle is at work on this process"), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    let id = first.id().to_string();
    assert!(Command::new("kill").args(["-INT", &id]).status().unwrap().success());
    first.wait().unwrap();
    assert_original(running.pid());
    running.end();
}

/// The command that reports work is tried before anything is counted.
#[test]
fn a_command_that_says_nothing_is_reported_at_once() {
    let bench = Bench::new();
    let running = bench.start(&bench.build("sleepers.c", &[]));
    let (pid, work) = (running.pid().to_string(), "echo oops >&2; exit 3");
    let tune = bench.fettle(&["tune", "-p", &pid, "--work", work]).output().unwrap();
    let said = String::from_utf8_lossy(&tune.stderr);
    assert_eq!(tune.status.code(), Some(2), "{said}");
    assert!(said.contains("exit status: 3") && said.contains("it said: oops"), "{said}");
    assert!(!said.contains("counting"), "{said}");
    assert_original(running.pid());
    running.end();
}

#[test]
fn a_process_that_has_ended_leaves_nothing() {
    let bench = Bench::new();
    let running = bench.start(&bench.build("sleepers.c", &[]));
    let pid = running.pid();
    bench.tune(pid, 1, &[]);
    running.end();
    let (status, undone) = bench.undo(pid);
    assert_eq!((status, &undone["gone"]), (0, &Value::Bool(true)));
    assert!(!bench.journal(pid).exists());
}

/// A user that cannot see a process does not take it for one that has ended: its log stays.
#[test]
fn undo_in_another_pid_namespace_keeps_the_log() {
    let can = Command::new("unshare").args(["--fork", "--pid", "--mount", "true"]).output();
    if !can.is_ok_and(|output| output.status.success()) {
        return eprintln!("skipped 1 test: no PID namespace can be made here (root)");
    }
    let bench = Bench::new();
    let running = bench.start(&bench.build("sleepers.c", &[]));
    let pid = running.pid();
    bench.tune(pid, 1, &[]);
    let inside = |how: &[&str], arguments: &[&str]| {
        let mut command = Command::new("unshare");
        command.args(how).arg(env!("CARGO_BIN_EXE_fettle")).args(arguments);
        command.env("XDG_CACHE_HOME", bench.folder.path().join("cache"));
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert!(bench.journal(pid).exists());
        String::from_utf8(output.stderr).unwrap()
    };
    let own_proc = ["--fork", "--pid", "--mount-proc"];
    let named = pid.to_string();
    for arguments in [&["undo", "--all"], &["undo", &named], &["status", &named]] {
        assert!(inside(&own_proc, arguments).contains("in another PID namespace"));
        assert!(inside(&own_proc[..2], arguments).contains("/proc is not mounted"));
    }
    assert_eq!(bench.undo(pid).0, 0);
    assert_original(pid);
    running.end();
}

/// The state of each of a process's threads.
fn states(pid: i32) -> Vec<char> {
    let state = |task: fs::DirEntry| {
        let stat = fs::read_to_string(task.path().join("stat")).ok()?;
        stat.rsplit_once(") ")?.1.chars().next()
    };
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten();
    tasks.filter_map(|task| state(task.ok()?)).collect()
}

/// A process that is paused then would stay so until Fettle goes on.
#[test]
fn fettle_stops_between_moments_only() {
    let bench = Bench::new();
    let running = bench.start(&bench.build("sleepers.c", &[]));
    let pid = running.pid();
    let (mut stops, mut stood) = (0, 0);
    for round in 0..12 {
        let named = pid.to_string();
        let mut fettle = match round % 2 {
            0 => bench.fettle(&["tune", "-p", &named, "--shuffle", "1"]),
            _ => bench.fettle(&["undo", &named, "--wait", "60"]),
        };
        // A shell's job is a group of its own.
        let mut fettle = fettle.stdout(Stdio::null()).process_group(0).spawn().unwrap();
        let own = fettle.id() as i32;
        let signal = |name: &str| {
            let mut kill = Command::new("kill");
            // It may have ended.
            kill.args([name, &own.to_string()]).stderr(Stdio::null()).status().unwrap()
        };
        while fettle.try_wait().unwrap().is_none() {
            std::thread::sleep(Duration::from_micros(300 + 170 * round));
            signal("-TSTP");
            let deadline = Instant::now() + Duration::from_millis(300);
            while Instant::now() < deadline && fettle.try_wait().unwrap().is_none() {
                let of_fettle = states(own);
                if !of_fettle.is_empty() && of_fettle.iter().all(|state| *state == 'T') {
                    stops += 1;
                    stood += u32::from(states(pid).contains(&'t'));
                    break;
                }
            }
            signal("-CONT");
        }
        assert!(fettle.wait().unwrap().success());
    }
    assert!(stops > 20 && stood == 0, "stood still {stood} of {stops} times");
    assert_original(pid);
    assert!(running.end().contains("exit status: 0"));
}

#[test]
fn a_dry_run_changes_nothing() {
    let bench = Bench::new();
    let running = bench.start(&bench.build("sleepers.c", &[]));
    let value = bench.tune(running.pid(), 1, &["--dry-run"]);
    assert!(value["jumps"].as_u64().unwrap() > 5 && value["changed"] == Value::Bool(false));
    assert_eq!(differing(running.pid()), Vec::<String>::new());
    assert!(!bench.journal(running.pid()).exists());
    assert!(running.end().contains("exit status: 0"));
}

/// A function of the group table, by the end of its name.
fn row<'a>(value: &'a Value, name: &str) -> &'a Value {
    let rows = value["modules"][0]["functions"].as_array().unwrap();
    rows.iter().find(|row| row["name"] == name).unwrap_or_else(|| panic!("{name}: {rows:?}"))
}

#[test]
fn hot_code_is_found_and_laid_out() {
    let bench = Bench::new();
    let running = bench.start(&bench.build("busy.c", &[]));
    let pid = running.pid().to_string();

    let (status, plan) = bench.json(&["tune", "-p", &pid, "--time", "0.5", "--dry-run"]);
    // It found a layout, which was all that was asked for.
    assert_eq!((status, &plan["kept"]), (0, &Value::Bool(false)), "{plan}");
    // What never ran is cold, whatever the rest of the function does.
    let run = row(&plan, "run");
    assert!(run["hot_bytes"].as_u64() > Some(50) && run["cold_bytes"].as_u64() > Some(10), "{run}");
    assert!(plan["counted"]["passages"].as_u64().unwrap() > 10_000);
    assert!(
        !plan["modules"][0]["functions"].as_array().unwrap().iter().any(|r| r["name"] == "rare")
    );
    assert_eq!(differing(running.pid()), Vec::<String>::new());
    assert_eq!(leftovers(running.pid()), Vec::<String>::new());
    assert!(!bench.journal(running.pid()).exists());

    let (status, kept) =
        bench.json(&["tune", "-p", &pid, "--time", "0.5", "--keep", "--root", "run"]);
    assert_eq!((status, &kept["kept"]), (0, &Value::Bool(true)), "{kept}");
    assert!(row(&kept, "mix")["hot_bytes"].as_u64() > Some(5));
    assert_ne!(differing(running.pid()), Vec::<String>::new());
    assert_eq!(bench.undo(running.pid()).0, 0);
    assert_eq!(differing(running.pid()), Vec::<String>::new());
    assert_eq!(running.end(), "right after many rounds\nexit status: 0");
}

#[test]
fn old_and_rewritten_text_are_compared() {
    let bench = Bench::new();
    let running = bench.start(&bench.build("busy.c", &["-no-pie"]));
    let pid = running.pid().to_string();
    let compare = ["--time", "0.3", "--pairs", "6", "--max-rounds", "8", "--turn", "0.1"];
    let (status, value) = bench.json(&[&["tune", "-p", &pid], &compare[..]].concat());
    let measured = &value["measured"];
    let number = |name: &str| measured[name].as_f64().unwrap();
    assert!(number("low") <= number("ratio") && number("ratio") <= number("high"), "{measured}");
    // As many as the answer needs.
    assert!((5..=8).contains(&measured["ratios"].as_array().unwrap().len()), "{measured}");
    assert_eq!(value["kept"], Value::Bool(number("high") < 1.0), "{value}");
    assert_eq!(status, i32::from(number("high") >= 1.0));
    if status == 0 {
        assert_eq!(bench.undo(running.pid()).0, 0);
    }
    assert_eq!(differing(running.pid()), Vec::<String>::new());
    assert_eq!(running.end(), "right after many rounds\nexit status: 0");

    // An idle process has no work to compare by.
    let idle = bench.start(&bench.build("sleepers.c", &["-O0"]));
    let pid = idle.pid().to_string();
    let none = ["--time", "0.3", "--pairs", "5", "--turn", "0.01", "--work", "echo 7"];
    let output = bench.fettle(&[&["tune", "-p", &pid], &none[..]].concat()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(2) && said.contains("too little work"), "{said}");
    // What was counted and laid out is reported all the same.
    let reported = String::from_utf8_lossy(&output.stdout);
    assert!(
        reported.contains("functions ran") && reported.contains("not compared: "),
        "{reported}"
    );
    assert_eq!(differing(idle.pid()), Vec::<String>::new());
    idle.end();
}

/// Fettle may be killed between any two writes of a comparison; the program goes on, by original or
/// by rewritten text.
#[test]
fn killed_between_old_and_rewritten_text() {
    let bench = Bench::new();
    let running = bench.start(&bench.build("busy.c", &[]));
    let pid = running.pid();
    let written = || {
        let io = std::fs::read_to_string(format!("/proc/{pid}/io")).unwrap();
        let line = io.lines().find_map(|line| line.strip_prefix("syscw: ")).unwrap();
        line.parse::<u64>().unwrap()
    };
    for round in 0..8 {
        let how = ["--time", "0.2", "--threshold", "0", "--pairs", "1000", "--turn", "0.001"];
        let mut tune = bench.fettle(&[&["tune", "-p", &pid.to_string()], &how[..]].concat());
        let mut fettle = tune.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let stages = BufReader::new(fettle.stderr.take().unwrap()).lines();
        let measuring = |line: String| line.ends_with("measuring");
        assert!(stages.map_while(Result::ok).any(measuring), "round {round}");
        std::thread::sleep(Duration::from_micros(5_000 + round * 1_100));
        fettle.kill().unwrap();
        fettle.wait().unwrap();
        let begun = Instant::now();
        let before = written();
        while written() < before + 100 {
            assert!(begun.elapsed() < Duration::from_secs(60), "round {round}: it stands still");
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(bench.undo(pid).0, 0);
        assert_eq!(differing(pid), Vec::<String>::new(), "{round}");
    }
    assert_eq!(running.end(), "right after many rounds\nexit status: 0");
}

/// What runs often counts for a part of the time only; its counts are those of all of it.
#[test]
fn what_has_counted_enough_counts_no_more() {
    let bench = Bench::new();
    let running = bench.start(&bench.build("seldom.c", &["-O1"]));
    let profile = bench.folder.path().join("profile");
    let pid = running.pid().to_string();
    let save = ["--dry-run", "--time", "2", "--save", profile.to_str().unwrap()];
    let (_, value) = bench.json(&[&["tune", "-p", &pid], &save[..]].concat());
    // And the loop that calls it, which is never left.
    assert_eq!(value["counted"]["early_functions"], 2, "{value}");
    let saved: Value = serde_json::from_slice(&std::fs::read(&profile).unwrap()).unwrap();
    let blocks = |name: &str| -> Vec<u64> {
        let functions = saved["modules"][0]["functions"].as_array().unwrap();
        let function = functions.iter().find(|function| function["name"] == name).unwrap();
        let blocks = function["blocks"].as_array().unwrap().iter();
        blocks.map(|block| block[1].as_u64().unwrap()).collect()
    };
    let (often, seldom) = (blocks("often"), blocks("seldom"));
    // An eighth of the time stands for all of it.
    assert!(often.iter().all(|count| count.is_multiple_of(8)), "{often:?}");
    // A hundred thousand to one, but for what else the machine did at that time.
    let times = often.iter().max().unwrap() / seldom.iter().max().unwrap();
    assert!((1_000..10_000_000).contains(&times), "{often:?} {seldom:?}");
    assert_eq!(differing(running.pid()), Vec::<String>::new());
    assert_eq!(leftovers(running.pid()), Vec::<String>::new());
    assert_eq!(running.end(), "right after many rounds\nexit status: 0");
}

/// A child that has run for long: the kernel lists them by start. Its number says nothing, as
/// numbers are reused.
fn staying(pid: i32) -> i32 {
    children(pid)[0]
}

/// Everything that reverting a process group has printed, one line of JSON for each process.
fn undo_group(bench: &Bench, pid: i32) -> Vec<Value> {
    let arguments = ["undo", "--group", &pid.to_string(), "--wait", "60", "--json"];
    let output = bench.fettle(&arguments).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{text}\n{error}");
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn forked_processes_have_rewritten_text_together() {
    let bench = Bench::new();
    let running = bench.start(&bench.build("forker.c", &[]));
    let pid = running.pid();
    let worker = staying(pid);
    for seed in 1..=4 {
        // Now named by the parent, now by a worker.
        let named = if seed % 2 == 0 { pid } else { worker };
        bench.tune(named, seed, if seed == 3 { &["--lib", "libc.so*"] } else { &[] });
        for process in [pid, worker] {
            assert_ne!(differing(process), Vec::<String>::new(), "{process}");
            assert!(bench.journal(process).exists());
        }
        // A process that is forked later inherits it, and has no log.
        std::thread::sleep(Duration::from_millis(100));
        let (status, state) = bench.json(&["status", &pid.to_string()]);
        assert_eq!(status, 0, "{state}");
        let undone = undo_group(&bench, named);
        assert!(undone.iter().any(|u| u["pid"] == worker), "{undone:?}");
        for process in [pid, worker].into_iter().chain(children(pid)) {
            if !Path::new(&format!("/proc/{process}/maps")).exists() {
                continue;
            }
            assert!(!bench.journal(process).exists(), "{process}: {undone:?}");
        }
        for process in [pid, worker] {
            assert_eq!(differing(process), Vec::<String>::new(), "{process}");
            assert_eq!(leftovers(process), Vec::<String>::new(), "{process}");
        }
    }
    assert_eq!(running.end(), "right after many rounds\nexit status: 0");
}

#[test]
fn inherited_patches_are_reverted() {
    let bench = Bench::new();
    let running = bench.start(&bench.build("forker.c", &["-O1"]));
    let pid = running.pid();
    // The parent alone: its workers are left unmodified, and those to come have rewritten text.
    bench.tune(pid, 5, &["--alone"]);
    assert_eq!(differing(staying(pid)), Vec::<String>::new());
    let begin = Instant::now();
    let forked_child = loop {
        assert!(begin.elapsed() < Duration::from_secs(60), "no child was seen");
        let (_, state) = bench.json(&["status", &pid.to_string()]);
        let forked_children = state["processes"][0]["heirs"].as_array().unwrap().clone();
        if let Some(forked_child) = forked_children.first() {
            break forked_child.as_i64().unwrap() as i32;
        }
    };
    // It may have ended when we come to it: then there is nothing to revert.
    let output =
        bench.fettle(&["undo", &forked_child.to_string(), "--wait", "60"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    let gone = !Path::new(&format!("/proc/{forked_child}/maps")).exists();
    assert!(output.status.success() || gone, "{said}");
    assert!(undo_group(&bench, pid).iter().any(|undone| undone["pid"] == pid));
    assert_original(pid);
    assert_eq!(running.end(), "right after many rounds\nexit status: 0");
}

#[test]
fn who_was_forked_keeps_nothing_when_its_parent_has_its_own_code_again() {
    // Perl forks when it is signalled; the child works for as long as its parent waits for more.
    let script = r#"$| = 1; $SIG{USR1} = sub { $fork = 1 }; print "ready\n";
        while (1) {
            select undef, undef, undef, 0.005;
            next unless $fork;
            $fork = 0;
            if (fork) { print "ready\n"; next }
            while (getppid != 1) { $x += $_ for 1 .. 500; select undef, undef, undef, 0.002 }
            exit
        }"#;
    let bench = Bench::new();
    let arguments = ["-e".into(), script.into()];
    let mut parent = Running::start(Path::new("/usr/bin/perl"), &arguments);
    let pid = parent.pid();
    bench.tune(pid, 1, &[]);
    parent.signal("-USR1");
    let child = staying(pid);
    let (status, undone) = bench.undo(pid);
    assert!(status == 0 && undone["heirs"][0] == child, "{undone}");
    let (status, state) = bench.json(&["status", &child.to_string()]);
    assert_eq!(status, 0, "{state}");
    let (status, undone) = bench.undo(child);
    assert!(status == 0 && undone["freed"].as_u64() > Some(100_000), "{undone}");
    for process in [pid, child] {
        assert_eq!(differing(process), Vec::<String>::new(), "{process}");
        assert_eq!(leftovers(process), Vec::<String>::new(), "{process}");
    }
}

#[test]
fn who_neither_reads_nor_writes_is_compared_by_its_other_calls() {
    // As root, on a kernel with type information (BTF).
    let uid = Command::new("id").arg("-u").output().unwrap().stdout;
    if uid != b"0\n" || !Path::new("/sys/kernel/btf/vmlinux").exists() {
        return eprintln!("skipped 1 test: nobody may count system calls here");
    }
    let script = r#"use Socket; $| = 1; print "ready\n";
        socketpair($a, $b, AF_UNIX, SOCK_DGRAM, 0);
        while (1) {
            $x += $_ * 3 for 1 .. 20;
            send $a, $x, 0; recv $b, $y, 100, 0;
            exit 1 if $x ne $y
        }"#;
    let bench = Bench::new();
    let server = Running::start(Path::new("/usr/bin/perl"), &["-e".into(), script.into()]);
    let pid = server.pid();
    let compare = ["--time", "0.5", "--rounds", "8", "--max-rounds", "8", "--turn", "0.1"];
    let compare = [&compare[..], &["--threshold", "0"]].concat();
    let (status, value) = bench.json(&[&["tune", "-p", &pid.to_string()], &compare[..]].concat());
    assert!(status < 2, "{value}");
    assert_eq!(value["measured"]["unit"], "system call", "{value}");
    let rounds = value["measured"]["ratios"].as_array().unwrap().len();
    assert!((5..=8).contains(&rounds), "{value}");
    if status == 0 {
        assert_eq!(bench.undo(pid).0, 0);
    }
    assert_eq!(differing(pid), Vec::<String>::new());
}

#[test]
fn a_process_group_counts_and_is_compared_together() {
    let bench = Bench::new();
    let running = bench.start(&bench.build("forker.c", &["-no-pie"]));
    let pid = running.pid();
    let compare = ["--time", "0.5", "--pairs", "5", "--max-rounds", "5", "--turn", "0.1"];
    let worker = staying(pid);
    let (status, value) =
        bench.json(&[&["tune", "-p", &worker.to_string()], &compare[..]].concat());
    assert!(value["counted"]["processes"].as_u64().unwrap() >= 3, "{value}");
    assert!(value["processes"].as_u64().unwrap() >= 3, "{value}");
    assert!(row(&value, "run")["hot_bytes"].as_u64() > Some(50));
    assert_eq!(value["measured"]["ratios"].as_array().unwrap().len(), 5);
    if status == 0 {
        undo_group(&bench, pid);
    }
    for process in [pid, worker] {
        assert_eq!(differing(process), Vec::<String>::new());
        assert_eq!(leftovers(process), Vec::<String>::new());
    }
    assert_eq!(running.end(), "right after many rounds\nexit status: 0");
}

/// Whether a tool is there; root gets it.
fn has(tool: &str) -> bool {
    let there = |tool: &str| Command::new(tool).arg("--version").output().is_ok();
    if !there(tool) {
        let _ = Command::new("apt-get").args(["install", "-qqy", tool]).output();
    }
    there(tool)
}

#[test]
fn debuggers_and_perf_know_rewritten_text() {
    let bench = Bench::new();
    let running = bench.start(&bench.build("busy.c", &["-g0"]));
    let pid = running.pid().to_string();
    let output = bench.fettle(&["symbols", &pid]).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "nothing is changed yet");
    bench.tune(running.pid(), 1, &[]);

    let (status, value) = bench.json(&["symbols", &pid]);
    let names: Vec<&str> =
        value["symbols"].as_array().unwrap().iter().filter_map(|s| s["name"].as_str()).collect();
    assert!(status == 0 && names.contains(&"run.fettle"), "{names:?}");
    if has("gdb") {
        let script = bench.fettle(&["symbols", &pid, "--gdb"]).output().unwrap();
        let script = String::from_utf8(script.stdout).unwrap();
        let mut gdb = Command::new("gdb");
        gdb.args(["-nx", "-batch", "-p", &pid, "-x", script.trim()]);
        let output = gdb.args(["-ex", "thread apply all bt"]).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        // Threads run in it all the time, and it was called by what was called by the C library.
        // gdb takes a suffix for a note about the function.
        let named = |trace: &str| trace.contains("run.fettle") || trace.contains("run[fettle]");
        let whole = |trace: &str| named(trace) && trace.contains("clone");
        assert!(said.split("\nThread ").any(whole), "{said}");
    } else {
        eprintln!("skipped gdb: there is none (apt-get install gdb)");
    }

    // What others have put there is neither followed nor written to.
    let map = PathBuf::from(format!("/tmp/perf-{pid}.map"));
    let planted = bench.folder.path().join("planted");
    fs::write(&planted, "mine").unwrap();
    std::os::unix::fs::symlink(&planted, &map).unwrap();
    assert_eq!(bench.fettle(&["symbols", &pid, "--perf"]).status().unwrap().code(), Some(2));
    // Without an option gdb gets its names all the same.
    let by_itself = || String::from_utf8(bench.fettle(&["symbols", &pid]).output().unwrap().stdout);
    assert!(by_itself().unwrap().contains("perf does not: "));
    assert_eq!(fs::read_to_string(&planted).unwrap(), "mine");
    fs::remove_file(&map).unwrap();
    assert!(by_itself().unwrap().contains(&format!("perf finds them in {}", map.display())));
    let (status, value) = bench.json(&["symbols", &pid, "--perf"]);
    assert_eq!((status, value["perf_map"].as_str()), (0, map.to_str()));
    assert!(fs::read_to_string(&map).unwrap().lines().any(|line| line.ends_with(" run.fettle")));

    assert_eq!(bench.undo(running.pid()).0, 0);
    assert!(!map.exists(), "it goes with the rewritten text");
    let beside = fs::read_dir(bench.journal(running.pid()).parent().unwrap()).unwrap();
    assert_eq!(beside.count(), 0, "so do the files for gdb");
    assert_eq!(running.end(), "right after many rounds\nexit status: 0");
}

/// What gdb says of a process without knowing anything of Fettle: output and warnings.
fn debugged(pid: i32) -> (String, String) {
    let mut gdb = Command::new("gdb");
    gdb.args(["-nx", "-batch", "-p", &pid.to_string(), "-ex", "thread apply all bt"]);
    let output = gdb.args(["-ex", "break 'run.fettle'"]).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}

/// Whether gdb knows rewritten text of its own accord, and has nothing to complain of.
fn is_known(pid: i32) -> bool {
    let (said, warned) = debugged(pid);
    let named = said.contains("[fettle] ()") || said.contains(".fettle ()");
    assert!(!warned.contains("arning"), "{warned}");
    assert_eq!(named, said.contains("Breakpoint 1 at"), "{said}");
    assert_eq!(named, said.contains(".symbols"), "{said}");
    named
}

#[test]
fn debuggers_find_names_of_rewritten_text_by_themselves() {
    if !has("gdb") {
        eprintln!("skipped: there is no gdb (apt-get install gdb)");
        return;
    }
    let bench = Bench::new();
    let mut running = bench.start(&bench.build("namespaces.c", &[]));
    let pid = running.pid();
    let notify = |running: &mut Running, pid: i32, signal: &str| {
        assert!(Command::new("kill").args([signal, &pid.to_string()]).status().unwrap().success());
        let mut line = String::new();
        running.out.read_line(&mut line).unwrap();
        line
    };
    assert_eq!(notify(&mut running, pid, "-USR1"), "version 1, 1\n");
    bench.tune(pid, 1, &[]);
    assert_eq!(notify(&mut running, pid, "-USR1"), "version 2, 2\n");
    assert!(is_known(pid));
    // A forked child has it, too, also when its parent has it no more.
    assert_eq!(notify(&mut running, pid, "-HUP"), "ready\n");
    let child = children(pid)[0];
    assert!(is_known(child));
    assert_eq!(bench.undo(pid).0, 0);
    assert_eq!(notify(&mut running, pid, "-USR1"), "version 1, 1\n");
    assert!(!is_known(pid) && is_known(child));
    // The loader opens another namespace, which it hangs behind ours; that stays when ours goes.
    assert_eq!(notify(&mut running, child, "-USR2"), "version 2, 3\n");
    assert!(is_known(child));
    assert_eq!(bench.undo(child).0, 0);
    assert_eq!(notify(&mut running, child, "-USR1"), "version 2, 2\n");
    assert!(!is_known(child));
    // Ours comes behind those that are there.
    bench.tune(child, 2, &["--alone"]);
    assert_eq!(notify(&mut running, child, "-USR1"), "version 2, 3\n");
    assert!(is_known(child));
    assert_eq!(bench.undo(child).0, 0);
    assert_eq!(notify(&mut running, child, "-USR1"), "version 2, 2\n");
    assert!(Command::new("kill").arg(child.to_string()).status().unwrap().success());
    assert_eq!(running.end(), "right\nright\nexit status: 0");
}

#[test]
fn libraries_come_and_go() {
    let bench = Bench::new();
    let libraries: Vec<PathBuf> = (1..=2)
        .map(|n| bench.build("opened.c", &["-shared", "-fPIC", &format!("-DFACTOR={n}")]))
        .collect();
    let mut running = Running::start(&bench.build("opener.c", &["-ldl"]), &libraries);
    let pid = running.pid();
    let tuned = bench.tune(pid, 1, &["--lib", "opened*"]);
    assert!(tuned["slots"].as_u64() > Some(0), "the library calls itself by slots: {tuned}");

    // Another library takes the place of the one that was changed.
    running.signal("-USR1");
    let (_, state) = bench.json(&["status", &pid.to_string()]);
    let since = state["processes"][0]["loaded_since"].as_array().unwrap();
    assert_eq!(since.len(), 1, "{state}");
    std::thread::sleep(Duration::from_millis(50));
    let (status, undone) = bench.undo(pid);
    assert_eq!(status, 0, "{undone}");
    assert!(undone["closed"].as_u64() > Some(0), "{undone}");
    assert_original(pid);

    // The same comes back to its place, with its own code.
    bench.tune(pid, 2, &["--lib", "opened*"]);
    running.signal("-USR1");
    running.signal("-USR1");
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(bench.undo(pid).0, 0);
    assert_original(pid);

    // Another program, by exec, has nothing of it.
    bench.tune(pid, 3, &["--lib", "opened*"]);
    running.signal("-USR2");
    assert_eq!(differing(pid), Vec::<String>::new());
    let (status, undone) = bench.undo(pid);
    assert_eq!((status, &undone["gone"]), (0, &Value::Bool(true)));
    bench.tune(pid, 4, &[]);
    assert_eq!(bench.undo(pid).0, 0);
    assert_eq!(differing(pid), Vec::<String>::new());
    assert_eq!(running.end(), "right after many rounds\nexit status: 0");
}

#[test]
fn a_profile_is_used_another_time() {
    let bench = Bench::new();
    let program = bench.build("busy.c", &["-O2"]);
    let profile = bench.folder.path().join("busy.profile");
    let file = profile.to_str().unwrap();
    let counted = bench.start(&program);
    let pid = counted.pid().to_string();
    let (_, value) =
        bench.json(&["tune", "-p", &pid, "--time", "0.5", "--dry-run", "--save", file]);
    assert!(value["counted"]["passages"].as_u64() > Some(10_000), "{value}");
    assert_eq!(differing(counted.pid()), Vec::<String>::new());
    counted.end();

    // Another process of the same build, which does not count.
    let running = bench.start(&program);
    let pid = running.pid().to_string();
    let (status, value) = bench.json(&["tune", "-p", &pid, "--profile", file, "--keep"]);
    assert_eq!((status, &value["profile"]["differing"]), (0, &Value::from(0)), "{value}");
    assert!(row(&value, "mix")["hot_bytes"].as_u64() > Some(5));
    assert_ne!(differing(running.pid()), Vec::<String>::new());
    assert_eq!(bench.undo(running.pid()).0, 0);
    assert_eq!(running.end(), "right after many rounds\nexit status: 0");

    // Of another build it says nothing.
    let other = bench.start(&bench.build("busy.c", &["-O1"]));
    let pid = other.pid().to_string();
    let output = bench.fettle(&["tune", "-p", &pid, "--profile", file]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.code() == Some(2) && said.contains("the profile cannot be used"),
        "{said}"
    );
    assert_eq!(differing(other.pid()), Vec::<String>::new());
    other.end();

    // Laid out from the start: status and signals are the program's.
    let mut command = bench.fettle(&["tune", "--apply", file, "--", program.to_str().unwrap()]);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    out.read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    let begin = Instant::now();
    let started = children(child.id() as i32)[0];
    while differing(started).is_empty() {
        assert!(begin.elapsed() < Duration::from_secs(60), "it was not laid out");
        std::thread::sleep(Duration::from_millis(20));
    }
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(Running { child, out }.end(), "right after many rounds\nexit status: 0");
}

/// What runs nothing is known before it is counted.
#[test]
fn a_process_that_runs_nothing_is_told_why() {
    use std::process::{Command, Stdio};
    let tune = |pid: u32| {
        let output = Command::new(env!("CARGO_BIN_EXE_fettle"))
            .args(["tune", "--time", "1", "-p", &pid.to_string()])
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    // The shell waits for `sleep`, and does not become it.
    let mut shell =
        Command::new("bash").args(["-c", "sleep 60; true"]).stdout(Stdio::null()).spawn().unwrap();
    let children = format!("/proc/{0}/task/{0}/children", shell.id());
    let sleep = loop {
        let child = std::fs::read_to_string(&children).unwrap();
        if !child.trim().is_empty() {
            break child.trim().to_owned();
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    };
    std::thread::sleep(std::time::Duration::from_millis(200));
    let said = tune(shell.id());
    assert!(said.contains(&format!("it waits for what it started: sleep ({sleep})")), "{said}");
    Command::new("kill").args(["-STOP", &sleep]).status().unwrap();
    let said = tune(sleep.parse().unwrap());
    assert!(said.contains("it is stopped, as by SIGSTOP"), "{said}");
    assert!(!said.contains("counting"), "{said}");
    Command::new("kill").args(["-KILL", &sleep]).status().unwrap();
    assert!(shell.wait().unwrap().success());
}
