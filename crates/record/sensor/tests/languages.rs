//! Producers in Go, Python and Java keep what those in C and Rust do: killed at any instant they leave whole
//! records, and what was read and lost adds up to what was produced. A language whose tools are not there is
//! skipped.

mod common;

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use common::{Bench, Check, Plan, Random};
use fettle_sensor::{Error, KnobState, Policy, Sensor};

/// What a test needs of the outcome of a command: that it ended well.
fn ran(command: &mut Command) -> Result<String, String> {
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    match output.status.success() {
        true => Ok(text(&output.stdout)),
        false => Err(format!("{command:?}: {}", text(&output.stderr))),
    }
}

fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/languages")
}

fn runtime(language: &str) -> PathBuf {
    common::header_folder().join(language)
}

/// What a program does.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Does {
    Produce,
    ReadKnob,
}

fn go(folder: &Path, does: Does) -> Result<Vec<String>, String> {
    let source = if does == Does::Produce { "producer.go" } else { "knob.go" };
    let module = format!(
        "module producer\n\ngo 1.22\n\nrequire fettle.dev/sensor v0.0.0\n\nreplace fettle.dev/sensor => {}\n",
        runtime("go").canonicalize().map_err(|error| error.to_string())?.display()
    );
    std::fs::write(folder.join("go.mod"), module).map_err(|error| error.to_string())?;
    std::fs::copy(sources().join(source), folder.join("main.go"))
        .map_err(|error| error.to_string())?;
    let mut build = Command::new("go");
    ran(build.args(["build", "-o", "producer", "."]).current_dir(folder))?;
    Ok(vec![folder.join("producer").display().to_string()])
}

fn python(folder: &Path, does: Does) -> Result<Vec<String>, String> {
    let include = "import sysconfig; print(sysconfig.get_path('include'))";
    let include = ran(Command::new("python3").args(["-c", include]))?;
    let package = folder.join("fettle");
    std::fs::create_dir_all(&package).map_err(|error| error.to_string())?;
    let source = runtime("python").join("fettle");
    std::fs::copy(source.join("__init__.py"), package.join("__init__.py"))
        .map_err(|error| error.to_string())?;
    let mut build = Command::new("cc");
    build.args([
        "-O2",
        "-std=c99",
        "-Wall",
        "-Wextra",
        "-shared",
        "-fPIC",
        "-DPy_LIMITED_API=0x03080000",
    ]);
    build.arg(format!("-I{include}")).arg(format!("-I{}", common::header_folder().display()));
    ran(build.arg(source.join("_sensor.c")).arg("-o").arg(package.join("_sensor.abi3.so")))?;
    let script = if does == Does::Produce { "producer.py" } else { "knob.py" };
    std::fs::copy(sources().join(script), folder.join(script))
        .map_err(|error| error.to_string())?;
    Ok(vec!["python3".to_owned(), folder.join(script).display().to_string()])
}

fn java(folder: &Path, does: Does) -> Result<Vec<String>, String> {
    let class = if does == Does::Produce { "Producer" } else { "KnobProgram" };
    let package = runtime("java").join("src/main/java/dev/fettle/sensor");
    let mut javac = Command::new("javac");
    javac.arg("-d").arg(folder).arg(sources().join(class).with_extension("java"));
    let files = std::fs::read_dir(package).map_err(|error| error.to_string())?;
    javac.args(files.flatten().map(|file| file.path()));
    ran(&mut javac)?;
    Ok(["java", "-Xint", "-cp", &folder.display().to_string(), class].map(str::to_owned).to_vec())
}

/// Builds a program that does so in a folder; returns how it is run, or why it cannot be built here.
type Build = fn(&Path, Does) -> Result<Vec<String>, String>;

/// Kills a producer again and again, under each policy.
fn is_killed(build: Build, in_order: bool, turns: usize) {
    let folder = tempfile::tempdir().unwrap();
    let program = match build(folder.path(), Does::Produce) {
        Ok(program) => program,
        Err(reason) => return eprintln!("skipped: {reason}"),
    };
    let bench = Bench::new();
    let mut random = Random::new();
    for turn in 0..turns {
        let policy = [Policy::Drop, Policy::Overwrite, Policy::Wait][turn % 3];
        let slots = if turn % 5 == 4 { 1 } else { 4 };
        let threads = 1 + random.below(4);
        let plan = Plan { policy, slots, ring_log2: 12 + random.below(5), threads, events: 0 };
        let mut producer = bench.produce_by(&program, plan);
        let mut list = bench.wait_for("test.events").into_list().unwrap();
        let mut check = Check::with_order(in_order);
        for _ in 0..random.below(40) {
            if turn % 4 < 3 {
                check.drain(&mut list);
            }
            std::thread::sleep(Duration::from_micros(random.below(1000)));
        }
        producer.kill();
        check.finish(&mut list, &producer);
        list.sensor().remove().unwrap();
    }
}

#[test]
fn go_is_killed() {
    // A goroutine takes a slot for each event, so the rings have no order among them.
    is_killed(go, false, 20);
}

#[test]
fn python_is_killed() {
    is_killed(python, true, 15);
}

#[test]
fn java_is_killed() {
    is_killed(java, true, 12);
}

#[test]
fn a_child_of_pythons_has_a_sensor_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let program = match python(folder.path(), Does::Produce) {
        Ok(program) => program,
        Err(reason) => return eprintln!("skipped: {reason}"),
    };
    let bench = Bench::new();
    let plan = Plan { policy: Policy::Drop, slots: 4, ring_log2: 16, threads: 2, events: 500 };
    let mut producer = bench.produce_with(&program, plan, &["fork"]);
    producer.child.wait().unwrap();
    let found = bench.directory.find("test.events").unwrap().sensors;
    let mut produced: Vec<u64> =
        found.iter().map(|sensor| sensor.account().unwrap().produced).collect();
    produced.sort();
    assert_eq!(produced, [1, 1000]);
}

/// A program that says its knob's value when it is asked.
struct Reader {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Reader {
    fn start(command: &mut Command) -> Reader {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let input = child.stdin.take().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Reader { child, input, output }
    }

    fn ask(&mut self, line: &str) -> i64 {
        writeln!(self.input, "{line}").unwrap();
        let mut answer = String::new();
        self.output.read_line(&mut answer).unwrap();
        answer.trim().parse().unwrap_or_else(|_| panic!("{answer:?}"))
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What C and Rust keep of knobs is kept.
fn reads_what_is_set(build: Build, forks: bool) {
    let folder = tempfile::tempdir().unwrap();
    let program = match build(folder.path(), Does::ReadKnob) {
        Ok(program) => program,
        Err(reason) => return eprintln!("skipped: {reason}"),
    };
    let bench = Bench::new();
    let command = || {
        let mut command = bench.command(Path::new(&program[0]));
        command.args(&program[1..]);
        command
    };
    let mut reader = Reader::start(&mut command());
    assert_eq!(reader.ask(""), 1);
    let parent = reader.child.id();
    let own = || bench.wait_for_where("test.knob", |s| s.description().producer.pid == parent);
    let mut knob = own().into_knob().unwrap();
    for value in [5, -2, 0] {
        knob.set(value).unwrap();
        assert_eq!(reader.ask(""), value);
    }
    for value in [6, -3, i64::MAX, i64::MIN] {
        let error = knob.set(value).unwrap_err();
        assert!(matches!(error, Error::OutOfBounds { least: -2, greatest: 5, .. }), "{error}");
    }
    let held =
        KnobState { value: 0, default: 1, least: -2, greatest: 5, resting: 1, is_held: true };
    assert_eq!(own().knob().unwrap(), held);
    drop(knob);
    assert_eq!(reader.ask(""), 1, "its holder has gone");
    own().into_knob().unwrap().set_for_good(3).unwrap();
    assert_eq!(reader.ask(""), 3);
    if forks {
        assert_eq!(reader.ask("fork"), 1, "nothing was set in the child");
        let is_child = |sensor: &Sensor| sensor.description().producer.pid != parent;
        let child = bench.wait_for_where("test.knob", is_child);
        child.into_knob().unwrap().set_for_good(4).unwrap();
        assert_eq!(reader.ask(""), 4);
        assert_eq!(own().knob().unwrap().value, 3);
    }
    drop(reader);
    let mut reader = Reader::start(command().env_remove("FETTLE_SENSORS"));
    assert_eq!((reader.ask(""), reader.ask("")), (1, 1));
    let mut reader = Reader::start(command().env("FETTLE_SENSORS", "/dev/null/none"));
    assert_eq!(reader.ask(""), 1);
}

#[test]
fn go_reads_what_is_set() {
    reads_what_is_set(go, false);
}

#[test]
fn python_reads_what_is_set() {
    reads_what_is_set(python, true);
}

#[test]
fn java_reads_what_is_set() {
    reads_what_is_set(java, false);
}
