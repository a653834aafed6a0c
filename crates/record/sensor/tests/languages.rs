//! Producers in Go, Python and Java keep what those in C and Rust do: killed at any instant they leave whole
//! records, and what was read and lost adds up to what was produced. A language whose tools are not there is
//! skipped.

mod common;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use common::{Bench, Check, Plan, Random};
use fettle_sensor::Policy;

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

fn go(folder: &Path) -> Result<Vec<String>, String> {
    let module = format!(
        "module producer\n\ngo 1.22\n\nrequire fettle.dev/sensor v0.0.0\n\nreplace fettle.dev/sensor => {}\n",
        runtime("go").canonicalize().map_err(|error| error.to_string())?.display()
    );
    std::fs::write(folder.join("go.mod"), module).map_err(|error| error.to_string())?;
    std::fs::copy(sources().join("producer.go"), folder.join("main.go"))
        .map_err(|error| error.to_string())?;
    let mut build = Command::new("go");
    ran(build.args(["build", "-o", "producer", "."]).current_dir(folder))?;
    Ok(vec![folder.join("producer").display().to_string()])
}

fn python(folder: &Path) -> Result<Vec<String>, String> {
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
    std::fs::copy(sources().join("producer.py"), folder.join("producer.py"))
        .map_err(|error| error.to_string())?;
    Ok(vec!["python3".to_owned(), folder.join("producer.py").display().to_string()])
}

fn java(folder: &Path) -> Result<Vec<String>, String> {
    let package = runtime("java").join("src/main/java/dev/fettle/sensor");
    let mut javac = Command::new("javac");
    javac.arg("-d").arg(folder).arg(sources().join("Producer.java"));
    let files = std::fs::read_dir(package).map_err(|error| error.to_string())?;
    javac.args(files.flatten().map(|file| file.path()));
    ran(&mut javac)?;
    Ok(["java", "-Xint", "-cp", &folder.display().to_string(), "Producer"]
        .map(str::to_owned)
        .to_vec())
}

/// Kills a producer again and again, under each policy.
fn is_killed(build: fn(&Path) -> Result<Vec<String>, String>, in_order: bool, turns: usize) {
    let folder = tempfile::tempdir().unwrap();
    let program = match build(folder.path()) {
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
    let program = match python(folder.path()) {
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
