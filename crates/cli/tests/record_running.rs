//! `fettle record -p PID --mode …` on a real program that is at work: its answers stay the same,
//! what it executes is counted, and afterwards it is as it was.

mod common;

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Output, Stdio};
use std::time::Duration;

use common::{calls, folder, text};
use fettle_trace::{CounterKind, ProbeMode, Trace};

const WORK: &str = r#"
$| = 1;
while (my $line = <STDIN>) {
    my ($sum, %seen) = (0);
    for my $n (1 .. 300) { $seen{($n * $line) % 97} .= chr(65 + $n % 26); $sum += $n ** 2 % 7 }
    print join(",", map { "$_$seen{$_}" } sort keys %seen), $sum, "\n";
}
"#;

/// Perl, which answers line by line.
struct Worker {
    child: Child,
    ask: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Worker {
    fn start() -> Worker {
        let mut command = Command::new("/usr/bin/perl");
        command.args(["-e", WORK]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let ask = child.stdin.take().unwrap();
        let answers = BufReader::new(child.stdout.take().unwrap());
        Worker { child, ask, answers }
    }

    fn answer(&mut self, question: u32) -> String {
        writeln!(self.ask, "{question}").unwrap();
        let mut line = String::new();
        self.answers.read_line(&mut line).unwrap();
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
        let mut reference = Worker::start();
        let mut asked = 0;
        while fettle.try_wait().unwrap().is_none() {
            assert_eq!(worker.answer(asked), reference.answer(asked), "{asked}");
            asked += 1;
        }
        (fettle.wait_with_output().unwrap(), asked)
    }

    /// Begins to record, and waits until the worker is changed.
    fn begin(&self, arguments: &[&str], worker: &Worker) -> Child {
        let mut fettle = self.fettle(arguments).spawn().unwrap();
        let status = || self.fettle(&["status", &worker.pid()]).output().unwrap().status;
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
    assert_eq!(manifest.totals.calls, by_name.values().sum::<u64>());

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
    // It waited for a question in a call of a copy with counters, and was led out.
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
        (vec!["-p", &pid, "--mode", "time"], "count, blocks or edges"),
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
