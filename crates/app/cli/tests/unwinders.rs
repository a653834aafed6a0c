//! Programs that throw by another unwinder than libgcc's: LLVM's looks code up in its own way, and
//! finds rewritten text only if it lies above the image that it belongs to.

// These programs have no children.
#[allow(dead_code, unused_imports)]
#[path = "common/running.rs"]
mod running;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use running::{Running, differing, leftovers};

/// The program, with C++'s library and unwinder from LLVM; `None`, with a word about it, where they
/// cannot be had.
fn with_llvm(folder: &Path, flags: &[&str], libraries: &[&str]) -> Option<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/unwinder.cpp");
    let program = folder.join(format!("unwinder{}", flags.concat()));
    let build = || {
        let mut command = Command::new("clang++");
        command.args(["-O2", "-stdlib=libc++"]).args(flags).arg(&source).arg("-o").arg(&program);
        command.args(libraries).output().is_ok_and(|output| output.status.success())
    };
    let install = || {
        let mut command = Command::new("apt-get");
        command.args(["install", "-qqy", "clang", "libc++-dev", "libc++abi-dev"]).output()
    };
    if build() || install().is_ok() && build() {
        return Some(program);
    }
    eprintln!("skipped 1 test: no libc++ (apt-get install clang libc++-dev libc++abi-dev)");
    None
}

fn fettle(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fettle"));
    command.env("XDG_CACHE_HOME", folder.join("cache"));
    command
}

fn said(output: &Output) -> String {
    let (out, error) = (&output.stdout, &output.stderr);
    format!("{}{}", String::from_utf8_lossy(out), String::from_utf8_lossy(error))
}

/// Records a program that throws 2,000 times as a shell's line begins it: `before` stands in front.
fn records(program: &Path, before: &str, more: &[&str]) {
    let plain = Command::new(program).arg("30").output().unwrap();
    assert!(plain.status.success(), "{}", said(&plain));
    let folder = tempfile::tempdir().unwrap();
    for mode in ["count", "time"] {
        let line = format!("{before} \"$0\" \"$@\"");
        let mut command = Command::new("sh");
        command.args(["-c", &line]).arg(env!("CARGO_BIN_EXE_fettle"));
        command.args(["record", "--mode", mode, "-o"]).arg(folder.path().join(mode)).args(more);
        command.arg("--").arg(program).arg("30");
        let recorded = command.env("XDG_CACHE_HOME", folder.path()).output().unwrap();
        assert!(recorded.status.success(), "{before} {mode}: {}", said(&recorded));
        assert_eq!(recorded.stdout, plain.stdout, "{before} {mode}: {}", said(&recorded));
        assert!(!said(&recorded).contains("without probes"), "{}", said(&recorded));
    }
}

#[test]
fn exceptions_of_llvm_are_caught_while_recorded() {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = with_llvm(folder.path(), &[], &["-lc++abi"]) else { return };
    records(&program, "", &[]);
    // Its heap begins right behind the program, and its libraries end right below the stack; or they
    // are mapped from the bottom up.
    records(&program, "setarch -R", &[]);
    records(&program, "ulimit -s unlimited;", &[]);
    // The unwinder itself has functions without symbols.
    records(&program, "", &["--lib", "libunwind*", "--lib", "libc++*"]);
    records(&program, "setarch -R", &["--lib", "libunwind*", "--lib", "libc++*"]);
}

#[test]
fn exceptions_of_llvm_are_caught_in_static_and_fixed_programs() {
    let folder = tempfile::tempdir().unwrap();
    let llvm = ["-lc++abi", "-lunwind", "-pthread"];
    let Some(program) = with_llvm(folder.path(), &["-static-pie", "-fPIE"], &llvm) else { return };
    records(&program, "", &[]);
    records(&program, "setarch -R", &[]);
    let fixed = with_llvm(folder.path(), &["-no-pie", "-fno-pie"], &["-lc++abi"]);
    records(&fixed.unwrap(), "", &[]);
}

/// Installs rewritten text in a program that runs, and reverts it, several times.
fn tunes(running: Running, folder: &Path, more: &[&str]) {
    let pid = running.pid().to_string();
    for seed in ["1", "2"] {
        let mut tune = fettle(folder);
        let tuned = tune.args(["tune", "-p", &pid, "--shuffle", seed]).args(more).output().unwrap();
        assert!(tuned.status.success(), "{}", said(&tuned));
        assert_ne!(differing(running.pid()), Vec::<String>::new());
        std::thread::sleep(Duration::from_millis(100));
        let undone = fettle(folder).args(["undo", &pid, "--wait", "60"]).output().unwrap();
        assert!(undone.status.success(), "{}", said(&undone));
        assert_eq!(differing(running.pid()), Vec::<String>::new());
        assert_eq!(leftovers(running.pid()), Vec::<String>::new());
    }
    let trace = folder.join("trace");
    let _ = std::fs::remove_dir_all(&trace);
    let mut record = fettle(folder);
    record.args(["record", "-p", &pid, "--mode", "time", "--duration", "200ms", "-o"]).arg(trace);
    let recorded = record.output().unwrap();
    assert!(recorded.status.success(), "{}", said(&recorded));
    assert_eq!(running.end(), "0 wrong, many rounds\nexit status: 0");
}

#[test]
fn exceptions_of_llvm_are_caught_in_a_running_program() {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = with_llvm(folder.path(), &[], &["-lc++abi"]) else { return };
    tunes(Running::start(&program, &[]), folder.path(), &[]);
    // The heap is behind the program, where rewritten text would go.
    let close = ["-R".into(), program];
    tunes(Running::start(Path::new("setarch"), &close), folder.path(), &["--lib", "libunwind*"]);
}

/// Rewritten text lies between a program and its heap, also where the kernel leaves no room there.
#[test]
fn a_heap_has_room_to_grow() {
    let folder = tempfile::tempdir().unwrap();
    for flags in [&["-pie", "-fPIE"][..], &["-no-pie", "-fno-pie"]] {
        let program = running::build(folder.path(), "grows_heap.c", flags);
        for before in ["", "setarch -R"] {
            let trace = folder.path().join("trace");
            let _ = std::fs::remove_dir_all(&trace);
            let mut command = Command::new("sh");
            command.args(["-c", &format!("{before} \"$0\" \"$@\"")]);
            command.args([env!("CARGO_BIN_EXE_fettle"), "record", "-q", "--mode", "count", "-o"]);
            command.arg(trace).arg("--").arg(&program).env("XDG_CACHE_HOME", folder.path());
            let recorded = command.output().unwrap();
            assert_eq!(said(&recorded), "4 GiB more\n", "{before} {flags:?}");
        }
    }
}
