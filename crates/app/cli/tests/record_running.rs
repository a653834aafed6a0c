//! `fettle record -p PID --mode …` on a real program that is at work: its answers stay the same,
//! what it executes is counted, and afterwards it is as it was.

mod common;
#[path = "common/running.rs"]
mod running;

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Output, Stdio};
use std::time::{Duration, UNIX_EPOCH};

use common::{calls, folder, text};
use fettle_trace::{CounterKind, ProbeMode, Thread, Trace};
use fettle_types::FunctionIndex;
use running::{Running, build, children, differing, leftovers};

const WORK: &str = r#"
$| = 1;
while (my $line = <STDIN>) {
    my ($sum, %seen) = (0);
    for my $n (1 .. 300) { $seen{($n * $line) % 97} .= chr(65 + $n % 26); $sum += $n ** 2 % 7 }
    print join(",", map { "$_$seen{$_}" } sort keys %seen), $sum, "\n";
}
"#;

/// Each question is answered by a thread and a child that are made for it.
const BIRTHS: &str = r#"
import os, sys, threading

def work(n, out):
    out.append(sum(hash((n, i)) % 7 for i in range(2000)))

for line in sys.stdin:
    n, out = int(line), []
    thread = threading.Thread(target=work, args=(n, out))
    thread.start()
    child = os.fork()
    if child == 0:
        work(n, out)
        os._exit(out[-1] % 100)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    thread.join()
    print(out, status, flush=True)
    if n == 4294967295:
        os.execv("/usr/bin/perl", ["perl", "-e", "print 'perl ', 6 * 7, chr(10)"])
"#;

/// Each question is answered by the same program, executed anew.
const AGAIN: &str = r#"
$| = 1;
while (my $line = <STDIN>) {
    chomp $line;
    open my $child, "-|", $^X, "-e", "print 6 * $line, chr(10)";
    print <$child>;
}
"#;

/// A program that answers line by line.
struct Worker {
    program: (&'static str, [&'static str; 2]),
    child: Child,
    ask: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Worker {
    /// Perl.
    fn start() -> Worker {
        Worker::of(("/usr/bin/perl", ["-e", WORK]))
    }

    /// Python, which makes threads and children.
    fn with_births() -> Worker {
        Worker::of(("/usr/bin/python3", ["-c", BIRTHS]))
    }

    fn of(program: (&'static str, [&'static str; 2])) -> Worker {
        let mut command = Command::new(program.0);
        // What Python's hashes are must not depend on the run.
        command.args(program.1).env("PYTHONHASHSEED", "1");
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let ask = child.stdin.take().unwrap();
        let answers = BufReader::new(child.stdout.take().unwrap());
        Worker { program, child, ask, answers }
    }

    fn answer(&mut self, question: u32) -> String {
        let asked = writeln!(self.ask, "{question}");
        let mut line = String::new();
        self.answers.read_line(&mut line).unwrap();
        if asked.is_err() || line.is_empty() {
            panic!("the worker has ended at {question}: {:?}", self.child.wait());
        }
        line
    }

    fn pid(&self) -> String {
        self.child.id().to_string()
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

struct Bench {
    folder: PathBuf,
}

impl Bench {
    fn new(name: &str) -> Bench {
        Bench { folder: folder(name) }
    }

    fn fettle(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fettle"));
        command.args(arguments).env("XDG_CACHE_HOME", self.folder.join("cache"));
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Records while the worker works; gives what fettle said and how many answers came meanwhile.
    fn record(&self, worker: &mut Worker, output: &Path, more: &[&str]) -> (Output, u32) {
        let pid = worker.pid();
        let mut arguments = vec!["record", "-p", &pid, "-o", text(output)];
        arguments.extend(more);
        let mut fettle = self.fettle(&arguments).spawn().unwrap();
        let mut reference = Worker::of(worker.program);
        let mut asked = 0;
        while fettle.try_wait().unwrap().is_none() {
            assert_eq!(worker.answer(asked), reference.answer(asked), "{asked}");
            asked += 1;
        }
        (fettle.wait_with_output().unwrap(), asked)
    }

    /// Begins to record, and waits until the worker is changed.
    fn begin(&self, arguments: &[&str], worker: &Worker) -> Child {
        self.begin_with(arguments, &worker.pid())
    }

    /// Begins to record, and waits until a process is changed.
    fn begin_with(&self, arguments: &[&str], pid: &str) -> Child {
        let mut fettle = self.fettle(arguments).spawn().unwrap();
        let status = || self.fettle(&["status", pid]).output().unwrap().status;
        while !status().success() {
            let ended = fettle.try_wait().unwrap();
            assert!(ended.is_none(), "{}", said(&fettle.wait_with_output().unwrap()));
            std::thread::sleep(Duration::from_millis(20));
        }
        fettle
    }

    fn assert_unchanged(&self, worker: &Worker) {
        let status = self.fettle(&["status", &worker.pid()]).output().unwrap();
        assert_eq!(status.status.code(), Some(1), "{status:?}");
    }
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn what_a_running_program_executes_is_counted() {
    let bench = Bench::new("record_running");
    let mut worker = Worker::start();
    let trace = bench.folder.join("calls");
    let more = ["--mode", "count", "--duration", "1500ms"];
    let (output, asked) = bench.record(&mut worker, &trace, &more);
    assert!(output.status.success(), "{}", said(&output));
    assert!(asked > 0);
    bench.assert_unchanged(&worker);
    let by_name = calls(&trace);
    // An addition is a call of its own.
    let additions = by_name.iter().find(|(name, _)| name.starts_with("Perl_pp_add"));
    assert!(additions.is_some_and(|(_, calls)| *calls > 0), "{by_name:?}");
    let manifest = Trace::open(&trace).unwrap().manifest().clone();
    assert_eq!(manifest.probe_mode, ProbeMode::Count);
    assert!(manifest.command[0].contains("perl"), "{:?}", manifest.command);
    let report = bench.fettle(&["report", text(&trace)]).output().unwrap();
    let report = String::from_utf8_lossy(&report.stdout).into_owned();
    assert!(report.contains("[perl]") && !report.contains("self"), "{report}");
    assert_eq!(manifest.totals.calls, by_name.values().sum::<u64>());
    // It began when counting did: Perl was lifted and changed before. Not every file system knows when a
    // folder was made.
    if let Ok(created) = std::fs::metadata(&trace).unwrap().created() {
        let begun = UNIX_EPOCH + Duration::from_nanos(manifest.start_unix_ns);
        assert!(begun > created, "{created:?} {begun:?}");
    }
    assert!(manifest.duration_ns >= 1_500_000_000, "{}", manifest.duration_ns);

    // Edges, of some functions only; a layout can be made of them.
    let trace = bench.folder.join("edges");
    let more = ["--mode", "edges", "--duration", "1", "--only", "Perl_pp_*"];
    let (output, _) = bench.record(&mut worker, &trace, &more);
    assert!(output.status.success(), "{}", said(&output));
    bench.assert_unchanged(&worker);
    let counted = Trace::open(&trace).unwrap();
    assert!(counted.functions().unwrap().iter().all(|f| f.name.starts_with("Perl_pp_")));
    let counters = counted.counters().unwrap();
    let of =
        |kind| counters.iter().filter(|row| row.kind == kind).map(|row| row.count).sum::<u64>();
    assert!(of(CounterKind::Block) > 0 && of(CounterKind::Edge) > 0);
    let layout = bench.fettle(&["layout", text(&trace)]).output().unwrap();
    assert!(layout.status.success(), "{}", said(&layout));
    let report = bench.fettle(&["report", text(&trace), "--blocks"]).output().unwrap();
    assert!(String::from_utf8_lossy(&report.stdout).contains("Perl_pp_"), "{}", said(&report));
}

/// A process that ends leaves what it has counted.
#[test]
fn what_was_counted_is_there_when_the_process_has_ended() {
    let bench = Bench::new("record_running_ended");
    let mut worker = Worker::start();
    let trace = bench.folder.join("calls");
    let pid = worker.pid();
    let arguments = ["record", "-p", &pid, "--mode", "count", "-o", text(&trace)];
    let recorder = bench.begin(&arguments, &worker);
    // It is changed by now in one pause or in a few.
    std::thread::sleep(Duration::from_millis(300));
    (0..200).for_each(|question| drop(worker.answer(question)));
    worker.child.kill().unwrap();
    worker.child.wait().unwrap();
    let recorded = recorder.wait_with_output().unwrap();
    assert!(recorded.status.success(), "{}", said(&recorded));
    assert!(said(&recorded).contains("the process has ended"), "{}", said(&recorded));
    let by_name = calls(&trace);
    let additions = by_name.iter().find(|(name, _)| name.starts_with("Perl_pp_add"));
    assert!(additions.is_some_and(|(_, calls)| *calls > 0), "{by_name:?}");
    let processes = Trace::open(&trace).unwrap().processes().unwrap();
    assert!(processes[0].command.contains("perl"), "{processes:?}");
}

#[test]
fn calls_and_times_of_a_running_program_are_recorded() {
    let bench = Bench::new("record_running_times");
    let mut worker = Worker::start();
    for mode in ["events", "time", "cpu", "sample"] {
        let trace = bench.folder.join(mode);
        let more = ["--mode", mode, "--duration", "1s", "--when-full", "wait"];
        let (output, asked) = bench.record(&mut worker, &trace, &more);
        assert!(output.status.success() && asked > 0, "{mode}: {}", said(&output));
        assert!(!said(&output).contains("fettle undo"), "{}", said(&output));
        bench.assert_unchanged(&worker);
        let by_name = calls(&trace);
        let opened = Trace::open(&trace).unwrap();
        let totals = opened.manifest().totals;
        assert_eq!((totals.threads, totals.processes), (1, 1), "{mode}");
        // Samples are never waited for.
        assert!(totals.lost == 0 || mode == "sample", "{mode}: {totals:?}");
        assert_eq!(totals.calls, by_name.values().sum::<u64>(), "{mode}");
        let additions = by_name.iter().find(|(name, _)| name.starts_with("Perl_pp_add"));
        assert!(additions.is_some_and(|(_, calls)| *calls > 0), "{mode}: {by_name:?}");
        // A record of every call that has ended; it was detached anywhere, in a probe perhaps.
        let open = totals.calls.abs_diff(totals.records);
        assert!(if mode == "events" { open < 100 } else { totals.records == 0 }, "{totals:?}");
        let times = opened.totals().unwrap();
        let own: u64 = times.iter().map(|total| total.self_ns).sum();
        // The call that the only thread was in when it was detached is not recorded. Samples are
        // estimates.
        let most = opened.manifest().duration_ns * if mode == "sample" { 10 } else { 1 };
        assert!(own > 0 && own <= most * 21 / 20, "{mode}: {own}");
    }
}

#[test]
fn threads_and_children_that_are_born_meanwhile_are_recorded() {
    let bench = Bench::new("record_running_births");
    let mut worker = Worker::with_births();
    let trace = bench.folder.join("births");
    let more = ["--mode", "time", "--duration", "2s"];
    let (output, asked) = bench.record(&mut worker, &trace, &more);
    assert!(output.status.success() && asked > 2, "{}", said(&output));
    assert_as_they_were(&bench, &[worker.child.id() as i32]);
    let opened = Trace::open(&trace).unwrap();
    let (threads, processes) = (opened.threads().unwrap(), opened.processes().unwrap());
    assert!(threads.len() > 4 && processes.len() > 2, "{threads:?} {processes:?}");
    // Each has worked.
    let totals = opened.totals().unwrap();
    let worked = |index: u32| totals.iter().any(|t| t.thread == index && t.calls > 100);
    // Not those that came before all was in place.
    let idle: Vec<_> = threads.iter().filter(|thread| !worked(thread.index)).collect();
    // Nor the last.
    let early = |thread: &&&Thread| (thread.index as usize) < threads.len() / 2;
    let late = idle.len() - idle.iter().filter(early).count();
    assert!(late <= 2, "{idle:?} of {}", threads.len());
    let children = processes.iter().filter(|p| p.parent == Some(worker.child.id()));
    assert_eq!(children.count(), processes.len() - 1);

    // It executes another program, which is recorded from its start.
    let trace = bench.folder.join("exec");
    let arguments = ["record", "-p", &worker.pid(), "-o", text(&trace), "--mode", "time"];
    let fettle = bench.begin(&arguments, &worker);
    let mut reference = Worker::with_births();
    for question in [1, 2, u32::MAX] {
        assert_eq!(worker.answer(question), reference.answer(question));
    }
    let mut line = String::new();
    worker.answers.read_line(&mut line).unwrap();
    assert_eq!(line, "perl 42\n");
    let output = fettle.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    assert!(said(&output).contains("has ended"), "{}", said(&output));
    let by_name = calls(&trace);
    assert!(by_name.get("perl_run").is_some_and(|calls| *calls == 1), "{by_name:?}");
}

#[test]
fn a_program_that_executes_itself_is_recorded_as_one() {
    let bench = Bench::new("record_running_again");
    let mut worker = Worker::of(("/usr/bin/perl", ["-e", AGAIN]));
    let trace = bench.folder.join("again");
    let more = ["--mode", "time", "--lib", "*", "--duration", "1s"];
    let (output, asked) = bench.record(&mut worker, &trace, &more);
    assert!(output.status.success() && asked > 2, "{}", said(&output));
    let opened = Trace::open(&trace).unwrap();
    let mut paths: Vec<_> = opened.modules().unwrap().into_iter().map(|m| m.path).collect();
    paths.sort();
    let all = paths.len();
    paths.dedup();
    assert_eq!(paths.len(), all, "{paths:?}");
    let by_name = calls(&trace);
    // Once for each process that began meanwhile.
    let runs = by_name.get("perl_run").copied().unwrap_or(0);
    let begun = opened.processes().unwrap().len() as u64 - 1;
    assert!(runs > 1 && begun.abs_diff(runs) <= 1, "{runs} of {begun}");
}

/// Asserts that processes run their original text, but those that have ended. Where a stale word on
/// a stack looks like a return to rewritten text, that stays, unused, with its unwind information.
fn assert_as_they_were(bench: &Bench, pids: &[i32]) {
    for pid in pids.iter().filter(|pid| Path::new(&format!("/proc/{pid}/maps")).exists()) {
        let status = bench.fettle(&["status", &pid.to_string()]).output().unwrap();
        let differing = differing(*pid);
        if status.status.success() {
            let shown = String::from_utf8_lossy(&status.stdout);
            assert!(shown.contains(": 0 of ") && differing.len() < 2, "{shown}{differing:?}");
            continue;
        }
        assert_eq!(differing, Vec::<String>::new(), "{pid}");
        assert_eq!(leftovers(*pid), Vec::<String>::new(), "{pid}");
        let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
        assert!(!maps.contains("memfd"), "{pid}: {maps}");
    }
}

/// A server with its workers that stay: their numbers, its own first.
fn server(bench: &Bench, flags: &[&str]) -> (Running, [i32; 3]) {
    let server = Running::start(&build(&bench.folder, "forker.c", flags), &[]);
    let workers = children(server.pid());
    let all = [server.pid(), workers[0], workers[1]];
    (server, all)
}

/// Calls of each of these processes in a trace, and how many processes made many.
fn calls_of(trace: &Trace, pids: &[i32]) -> (Vec<u64>, usize) {
    let (threads, totals) = (trace.threads().unwrap(), trace.totals().unwrap());
    let calls = |pid: u32| -> u64 {
        let own = threads.iter().filter(|thread| thread.pid == pid).map(|thread| thread.index);
        let own: Vec<u32> = own.collect();
        totals.iter().filter(|total| own.contains(&total.thread)).map(|total| total.calls).sum()
    };
    let processes = trace.processes().unwrap();
    let worked = processes.iter().filter(|process| calls(process.pid) > MANY).count();
    (pids.iter().map(|pid| calls(*pid as u32)).collect(), worked)
}

/// More calls than a process makes that does not work.
const MANY: u64 = 1000;

/// Records a server, named by one of its processes; gives the trace and what fettle said.
fn record_server(bench: &Bench, which: usize, more: &[&str]) -> (Trace, [i32; 3], String) {
    let (server, all) = server(bench, &[]);
    let trace = bench.folder.join(format!("{which}{}", more.concat()));
    let pid = all[which].to_string();
    let arguments = ["record", "-p", &pid, "-o", text(&trace), "--duration", "1s"];
    let output = bench.fettle(&arguments).args(more).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    assert!(!said(&output).contains("was not recorded"), "{}", said(&output));
    assert_as_they_were(bench, &all);
    assert_eq!(server.end(), "right after many rounds\nexit status: 0");
    assert!(calls(&trace)["mix"] > MANY);
    (Trace::open(&trace).unwrap(), all, said(&output))
}

#[test]
fn a_server_is_recorded_with_those_that_it_has_forked() {
    let bench = Bench::new("record_running_family");
    // Now named by the server, now by a worker.
    for which in [0, 1] {
        let (trace, all, _) = record_server(&bench, which, &["--mode", "time"]);
        let (calls, worked) = calls_of(&trace, &all[1..]);
        assert!(calls.iter().all(|calls| *calls > MANY), "{calls:?}");
        // And those that it forks meanwhile, one after the other.
        assert!(worked > 4, "{worked} of {:?}", trace.processes());
        let parents = trace.processes().unwrap();
        let forked = parents.iter().filter(|process| process.parent == Some(all[0] as u32));
        assert!(forked.count() > 4, "{parents:?}");
    }
    // One alone, although the others are there.
    let (trace, all, _) = record_server(&bench, 2, &["--mode", "time", "--alone"]);
    assert_eq!(trace.processes().unwrap().len(), 1);
    assert!(calls_of(&trace, &all[2..]).0[0] > MANY);
    // Counting takes them all, too.
    let (_, _, said) = record_server(&bench, 0, &["--mode", "count"]);
    assert!(said.contains("processes that were forked"), "{said}");
}

#[test]
fn processes_of_a_group_end_while_it_is_recorded() {
    let bench = Bench::new("record_running_family_ends");
    let (server, all) = server(&bench, &[]);
    let (pid, trace) = (all[1].to_string(), bench.folder.join("ends"));
    let arguments = ["record", "-p", &pid, "-o", text(&trace), "--mode", "time"];
    let fettle = bench.begin_with(&arguments, &all[0].to_string());
    std::thread::sleep(Duration::from_millis(300));
    // First another one, then the one that was named, with which the recording ends.
    for ending in [all[2], all[1]] {
        std::thread::sleep(Duration::from_millis(200));
        let ended = Command::new("kill").args(["-TERM", &ending.to_string()]).status();
        assert!(ended.unwrap().success());
    }
    let output = fettle.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    assert!(said(&output).contains("has ended"), "{}", said(&output));
    assert_as_they_were(&bench, &all[..1]);
    let trace = Trace::open(&trace).unwrap();
    assert!(calls_of(&trace, &all[1..]).0.iter().all(|calls| *calls > MANY));
    let ended = |pid: i32| {
        let processes = trace.processes().unwrap();
        processes.iter().any(|p| p.pid == pid as u32 && p.exit_code == Some(0))
    };
    assert!(ended(all[1]) && ended(all[2]), "{:?}", trace.processes());
    assert_eq!(server.end(), "right after many rounds\nexit status: 0");
}

#[test]
fn a_killed_recorder_of_a_group_leaves_what_undo_reverts() {
    let bench = Bench::new("record_running_family_killed");
    // As the first is changed, in the middle, and when all are.
    for (round, pause) in [0, 30, 500].into_iter().enumerate() {
        let (server, all) = server(&bench, &["-O1"]);
        let trace = bench.folder.join(format!("killed-{round}"));
        let pid = all[0].to_string();
        let arguments = ["record", "-p", &pid, "-o", text(&trace), "--mode", "events"];
        let mut fettle = bench.begin_with(&arguments, &pid);
        std::thread::sleep(Duration::from_millis(pause));
        fettle.kill().unwrap();
        fettle.wait().unwrap();
        let undone = bench.fettle(&["undo", "--group", &pid, "--wait", "2"]).output().unwrap();
        assert_ne!(undone.status.code(), Some(2), "{}", said(&undone));
        assert_as_they_were(&bench, &all);
        assert_eq!(server.end(), "right after many rounds\nexit status: 0");
    }
}

#[test]
fn a_killed_recorder_leaves_a_program_that_works_and_a_trace() {
    let bench = Bench::new("record_running_killed");
    kill_recorder(&bench, Worker::start(), true);
    kill_recorder(&bench, Worker::with_births(), false);
}

/// Kills a recorder, and undoes what it has left; all of it if the program can be `moved`.
fn kill_recorder(bench: &Bench, mut worker: Worker, moved: bool) {
    let mut reference = Worker::of(worker.program);
    let trace = bench.folder.join(format!("killed-{moved}"));
    let arguments = ["record", "-p", &worker.pid(), "-o", text(&trace), "--mode", "events"];
    let mut fettle = bench.begin(&arguments, &worker);
    // The undo log is there before the trace.
    while !trace.join("manifest.json").exists() {
        std::thread::sleep(Duration::from_millis(20));
    }
    for question in 0..20 {
        assert_eq!(worker.answer(question), reference.answer(question));
    }
    fettle.kill().unwrap();
    fettle.wait().unwrap();
    // Its threads share the memory of theirs that made them from now on.
    for question in 20..60 {
        assert_eq!(worker.answer(question), reference.answer(question));
    }
    // What is left on a stack may look like code until the program goes on.
    let pid = worker.pid();
    let undo = || bench.fettle(&["undo", &pid]).output().unwrap();
    let mut undone = undo();
    for question in 60..80 {
        assert_eq!(worker.answer(question), reference.answer(question));
        if undone.status.success() || !moved {
            break;
        }
        undone = undo();
    }
    // Debian's Python is at a fixed address, where it may for long.
    if !moved {
        return;
    }
    assert!(undone.status.success(), "{}", said(&undone));
    bench.assert_unchanged(&worker);
    let maps = std::fs::read_to_string(format!("/proc/{}/maps", worker.pid())).unwrap();
    assert!(!maps.contains("memfd"), "{maps}");
    assert_eq!(worker.answer(80), reference.answer(80));
    let report = bench.fettle(&["report", text(&trace)]).output().unwrap();
    assert!(report.status.success(), "{}", said(&report));
    // It can be recorded again.
    let trace = bench.folder.join("again");
    let (output, _) = bench.record(&mut worker, &trace, &["--mode", "time", "--duration", "500ms"]);
    assert!(output.status.success(), "{}", said(&output));
    assert!(calls(&trace).values().sum::<u64>() > 0);
}

#[test]
fn signals_arrive_whenever_the_recorder_is_killed() {
    let bench = Bench::new("record_running_signalled");
    let running = Running::start(&build(&bench.folder, "signalled.c", &[]), &[]);
    let pid = running.pid().to_string();
    for round in 0..8 {
        let trace = bench.folder.join(format!("{round}"));
        let mode = ["time", "count"][round % 2];
        let arguments = ["record", "-p", &pid, "-o", text(&trace), "--mode", mode];
        let mut fettle = bench.begin_with(&arguments, &pid);
        std::thread::sleep(Duration::from_micros(3700 * round as u64));
        fettle.kill().unwrap();
        fettle.wait().unwrap();
        let undone = bench.fettle(&["undo", &pid, "--wait", "60"]).output().unwrap();
        assert!(undone.status.success(), "{round}: {}", said(&undone));
        assert_as_they_were(&bench, &[running.pid()]);
    }
    assert_eq!(running.end(), "right after many rounds\nexit status: 0");
}

#[test]
fn what_is_thrown_past_probes_fills_nothing_up() {
    let bench = Bench::new("record_running_thrown");
    let catcher = Running::start(&build(&bench.folder, "catcher.cpp", &[]), &[]);
    let trace = bench.folder.join("thrown");
    let pid = catcher.pid().to_string();
    // The catching function was entered before and has no probes: it is not seen that the calls are
    // over.
    let arguments =
        ["record", "-p", &pid, "-o", text(&trace), "--mode", "time", "--duration", "3s"];
    let output = bench.fettle(&arguments).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    assert_eq!(catcher.end(), "right after many rounds\nexit status: 0");
    let trace = Trace::open(&trace).unwrap();
    let manifest = trace.manifest();
    assert!(manifest.totals.unwound_frames > 110_000, "{:?}", manifest.totals);
    assert!(manifest.totals.mirror_overflows < 1000, "{:?}", manifest.totals);
    // What was left long ago has not lasted until now.
    for thread in trace.threads().unwrap() {
        let totals = trace.totals().unwrap();
        let own = totals.iter().filter(|total| total.thread == thread.index);
        let own: u64 = own.map(|total| total.self_ns).sum();
        assert!(own <= (thread.end_ns - thread.start_ns) * 11 / 10, "{own} of {thread:?}");
    }
}

/// Has a program open its next library, so often.
fn open_more(running: &mut Running, times: usize) {
    for _ in 0..times {
        let opens = Command::new("kill").args(["-USR1", &running.pid().to_string()]).status();
        assert!(opens.unwrap().success());
        let mut line = String::new();
        running.out.read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A program with three libraries, one of which is open at a time.
fn opener(bench: &Bench) -> Running {
    let shared = |n: u32| ["-shared".to_owned(), "-fPIC".to_owned(), format!("-DFACTOR={n}")];
    let libraries = (1..=3).map(|n| {
        let flags = shared(n);
        build(&bench.folder, "opened.c", &flags.each_ref().map(String::as_str))
    });
    let libraries: Vec<PathBuf> = libraries.collect();
    Running::start(&build(&bench.folder, "opener.c", &["-ldl"]), &libraries)
}

#[test]
fn libraries_that_are_opened_meanwhile_are_recorded() {
    let bench = Bench::new("record_running_opened");
    let mut running = opener(&bench);
    let pid = running.pid().to_string();
    for (round, mode) in ["time", "sample"].into_iter().enumerate() {
        let trace = bench.folder.join(mode);
        let arguments =
            ["record", "-p", &pid, "-o", text(&trace), "--mode", mode, "--lib", "opened*"];
        let fettle = bench.begin_with(&arguments, &pid);
        // Opened and closed all the time, also while all is being put in its place.
        open_more(&mut running, 40);
        assert!(
            Command::new("kill")
                .args(["-INT", &fettle.id().to_string()])
                .status()
                .unwrap()
                .success()
        );
        let output = fettle.wait_with_output().unwrap();
        assert!(output.status.success(), "{round}: {}", said(&output));
        assert!(!said(&output).contains("ran without probes"), "{}", said(&output));
        assert_as_they_were(&bench, &[running.pid()]);
        let by_name = calls(&trace);
        for name in ["twice", "work", "add_up", "step"] {
            assert!(by_name.get(name).is_some_and(|calls| *calls > MANY), "{name}: {by_name:?}");
        }
        // Each of the three was there.
        let trace = Trace::open(&trace).unwrap();
        let (functions, totals) = (trace.functions().unwrap(), trace.totals().unwrap());
        let work = functions.iter().enumerate().filter(|(_, function)| function.name == "work");
        let modules: std::collections::BTreeSet<_> = work
            .filter(|(index, _)| totals.iter().any(|t| t.function.place() == *index && t.calls > 0))
            .map(|(_, function)| function.module)
            .collect();
        assert!(modules.len() >= 3, "{modules:?}");
    }
    open_more(&mut running, 3);
    assert_eq!(running.end(), "right after many rounds\nexit status: 0");
}

#[test]
fn a_recorder_that_is_killed_among_libraries_leaves_what_undo_reverts() {
    let bench = Bench::new("record_running_opened_killed");
    for round in 0..6 {
        let mut running = opener(&bench);
        let (pid, trace) = (running.pid().to_string(), bench.folder.join(format!("{round}")));
        let arguments =
            ["record", "-p", &pid, "-o", text(&trace), "--mode", "time", "--lib", "opened*"];
        let mut fettle = bench.begin_with(&arguments, &pid);
        open_more(&mut running, 2 + 3 * round);
        let opens = Command::new("kill").args(["-USR1", &pid]).status();
        assert!(opens.unwrap().success());
        std::thread::sleep(Duration::from_micros(700 * round as u64));
        fettle.kill().unwrap();
        fettle.wait().unwrap();
        let mut line = String::new();
        running.out.read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        // It works, with or without what has been put in its place, whatever it opens.
        open_more(&mut running, round % 3);
        let undone = bench.fettle(&["undo", &pid, "--wait", "60"]).output().unwrap();
        let reported = String::from_utf8_lossy(&undone.stdout);
        assert!(undone.status.success(), "{round}: {reported}{}", said(&undone));
        assert_as_they_were(&bench, &[running.pid()]);
        open_more(&mut running, 2);
        assert_eq!(running.end(), "right after many rounds\nexit status: 0");
    }
}

/// Each question is answered by a child, and the last by the program itself, with a library that is
/// not open yet.
const IMPORTS: &str = r#"
import os, sys

def work(n):
    from decimal import Decimal
    return str(sum(Decimal(n + i) / 7 for i in range(200)))

for line in sys.stdin:
    n = int(line)
    out, into = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(into, work(n).encode())
        os._exit(0)
    os.close(into)
    print(os.read(out, 1000).decode(), os.waitpid(child, 0)[1], work(n) if n >= 30 else "", flush=True)
    os.close(out)
"#;

#[test]
fn children_open_libraries_of_their_own() {
    let bench = Bench::new("record_running_imports");
    let program = ("/usr/bin/python3", ["-c", IMPORTS]);
    let (mut worker, mut reference) = (Worker::of(program), Worker::of(program));
    let trace = bench.folder.join("imports");
    let pid = worker.pid();
    let arguments =
        ["record", "-p", &pid, "-o", text(&trace), "--mode", "time", "--lib", "_decimal*"];
    let fettle = bench.begin(&arguments, &worker);
    let mut ask = |question: u32| assert_eq!(worker.answer(question), reference.answer(question));
    // Until all is in its place, and a little longer: the dlopen hook comes last.
    let status = || bench.fettle(&["status", &pid]).output().unwrap().stdout;
    while String::from_utf8_lossy(&status()).contains(": 0 of ") {
        ask(0);
    }
    std::thread::sleep(Duration::from_secs(2));
    // The last is answered by the program, too.
    (0..=30).for_each(ask);
    assert!(
        Command::new("kill").args(["-INT", &fettle.id().to_string()]).status().unwrap().success()
    );
    let output = fettle.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    assert_eq!(worker.answer(50), reference.answer(50));
    assert_as_they_were(&bench, &[worker.child.id() as i32]);
    let opened = Trace::open(&trace).unwrap();
    let (threads, totals) = (opened.threads().unwrap(), opened.totals().unwrap());
    let modules = opened.modules().unwrap();
    assert!(modules.iter().any(|module| module.path.contains("_decimal")), "{modules:?}");
    let functions = opened.functions().unwrap();
    let of_decimal = |index: FunctionIndex| {
        modules[functions[index.place()].module.place()].path.contains("_decimal")
    };
    let who: std::collections::BTreeSet<u32> = totals
        .iter()
        .filter(|total| of_decimal(total.function) && total.calls > 10)
        .map(|total| threads[total.thread as usize].pid)
        .collect();
    assert!(!said(&output).contains("ran without probes"), "{}", said(&output));
    assert!(who.len() > 20 && who.contains(&worker.child.id()), "{who:?}");
}

#[test]
fn it_ends_when_it_is_told_to_and_the_trace_is_whole() {
    let bench = Bench::new("record_running_ends");
    let mut worker = Worker::start();
    let trace = bench.folder.join("blocks");
    let arguments = ["record", "-p", &worker.pid(), "-o", text(&trace), "--mode", "blocks"];
    let fettle = bench.begin(&arguments, &worker);
    for question in 0..50 {
        worker.answer(question);
    }
    let recorder = fettle.id().to_string();
    assert!(Command::new("kill").args(["-INT", &recorder]).status().unwrap().success());
    let mut reference = Worker::start();
    let output = fettle.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    assert_eq!(worker.answer(7), reference.answer(7));
    // It waited for a question in a call of a copy with counters, and was deoptimised.
    assert!(!said(&output).contains("fettle undo"), "{}", said(&output));
    assert_eq!(worker.answer(8), reference.answer(8));
    bench.assert_unchanged(&worker);
    let manifest = Trace::open(&trace).unwrap().manifest().clone();
    assert!(manifest.complete && manifest.probe_mode == ProbeMode::Blocks);

    // A process that ends takes its counts along.
    let trace = bench.folder.join("gone");
    let arguments = ["record", "-p", &worker.pid(), "-o", text(&trace), "--mode", "count"];
    let fettle = bench.begin(&arguments, &worker);
    drop(worker);
    let output = fettle.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(said(&output).contains(" ended"), "{}", said(&output));
    assert!(!trace.exists());
}

#[test]
fn what_cannot_be_is_refused_before_anything_is_changed() {
    let bench = Bench::new("record_running_refused");
    let worker = Worker::start();
    let there = bench.folder.join("there");
    std::fs::create_dir_all(there.join("something")).unwrap();
    let other = bench.folder.join("other");
    let pid = worker.pid();
    for (arguments, says) in [
        (vec!["-p", &pid, "--mode", "time", "--payload", "9"], "without probes"),
        (vec!["-p", &pid, "--mode", "time", "--args", "main"], "the mode events"),
        (vec!["-p", &pid, "--mode", "events", "-o", text(&there)], "there"),
        (vec!["-p", &pid, "--mode", "count", "--kernel"], "kernel's events"),
        (vec!["-p", &pid, "--mode", "count", "--depth", "2"], "--depth"),
        (vec!["-p", &pid, "-p", "1", "--mode", "count"], "one --pid"),
        (vec!["-p", &pid, "--mode", "count", "-o", text(&there)], "there"),
        (vec!["-p", "4194303", "--mode", "count"], "4194303"),
    ] {
        let mut all = vec!["record"];
        all.extend(&arguments);
        if !arguments.contains(&"-o") {
            all.extend(["-o", text(&other)]);
        }
        let output = bench.fettle(&all).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", said(&output));
        assert!(said(&output).contains(says), "{arguments:?}: {}", said(&output));
        assert!(!other.exists(), "{arguments:?}");
    }
    assert!(there.join("something").is_dir());
    bench.assert_unchanged(&worker);
}
