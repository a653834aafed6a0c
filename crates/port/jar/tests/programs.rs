//! Translated programs do what the same files do under QEMU.

mod common;

use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::Command;

use common::{BIG, LITTLE, MISSING, Machine, compile, output, translated};
use fettle_jar::{Image, Options, translate};

/// Compiles a program, translates it, runs both, and compares what they say and how they end.
fn same(machine: &Machine, file: &str, options: &[&str], arguments: &[&str]) {
    if let Some(reason) = &*MISSING {
        eprintln!("skipped: {reason}");
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let program = compile(machine, file, options, folder.path());
    let jar = translated(&program);
    let path = folder.path().join("program.jar");
    std::fs::write(&path, jar).expect("the folder is writable");
    let expected = output(Command::new(machine.emulator).arg(&program).args(arguments));
    let got = output(
        Command::new("java")
            .args(["-XX:TieredStopAtLevel=1", "-Xshare:auto", "-Xverify:all", "-jar"])
            .arg(&path)
            .args(arguments),
    );
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let warning = "warning: Options -Xverify";
    let reported: Vec<String> = text(&got.stderr)
        .lines()
        .filter(|line| !line.contains(warning))
        .map(str::to_owned)
        .collect();
    assert_eq!(text(&got.stdout), text(&expected.stdout), "{file} {options:?}: {reported:#?}");
    let status = expected.status.code().or(expected.status.signal().map(|signal| 128 + signal));
    assert_eq!(got.status.code(), status, "{file} {options:?}: {reported:#?}");
    let native = text(&expected.stderr);
    // The emulator itself says something of a program that a signal ends.
    let native: Vec<&str> = native.lines().filter(|line| !line.starts_with("qemu: ")).collect();
    assert_eq!(reported, native, "{file} {options:?}");
}

#[test]
fn the_same_file_gives_the_same_jar() {
    if let Some(reason) = &*MISSING {
        eprintln!("skipped: {reason}");
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let program = compile(&LITTLE, "hello.c", &["-O2"], folder.path());
    assert!(translated(&program) == translated(&program), "two jars differ");
}

/// Translates a program of which one thing cannot be executed: in which function, and why.
fn problem(file: &str) -> Option<(String, String)> {
    if let Some(reason) = &*MISSING {
        eprintln!("skipped: {reason}");
        return None;
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let program = compile(&LITTLE, file, &["-O1"], folder.path());
    let bytes = std::fs::read(&program).expect("the compiler wrote it");
    let image = Image::parse(&bytes).expect("a static program");
    let report =
        translate(&image, &Options::default()).expect("every function can be translated").summary;
    let [problem] = &report.problems[..] else { panic!("{report:?}") };
    Some((problem.function.clone(), problem.reason.clone()))
}

#[test]
fn setjmp_in_a_function_of_several_methods() {
    same(&LITTLE, "large_setjmp.c", &["-O1"], &[]);
}

#[test]
fn a_table_beside_another_comparison() {
    same(&LITTLE, "two_limits.c", &["-O2", "-fno-pic", "-mno-abicalls"], &[]);
}

#[test]
fn halves_of_addresses_that_wait_on_the_stack() {
    same(&LITTLE, "spilled_pages.c", &["-O2"], &[]);
}

#[test]
fn setjmp_through_a_pointer_is_a_problem() {
    let Some((function, reason)) = problem("pointer_setjmp.c") else { return };
    assert_eq!(function, "_setjmp");
    assert!(reason.contains("indirect call"), "{reason}");
}

#[test]
fn hello() {
    same(&LITTLE, "hello.c", &["-O2"], &["one", "two words"]);
}

#[test]
fn hello_big_endian() {
    same(&BIG, "hello.c", &["-O2"], &["one"]);
}

#[test]
fn hello_stripped() {
    same(&LITTLE, "hello.c", &["-O2", "-s"], &[]);
}

#[test]
fn arithmetic() {
    same(&LITTLE, "arithmetic.c", &["-O2"], &[]);
}

#[test]
fn arithmetic_unoptimised() {
    same(&LITTLE, "arithmetic.c", &["-O0"], &[]);
}

#[test]
fn arithmetic_big_endian() {
    same(&BIG, "arithmetic.c", &["-O3", "-funroll-loops"], &[]);
}

/// Odd registers are the high halves of doubles, and hold floats of their own.
#[test]
fn arithmetic_narrow_registers() {
    same(&LITTLE, "arithmetic.c", &["-O2", "-mfp32"], &[]);
}

#[test]
fn control() {
    same(&LITTLE, "control.c", &["-O2"], &[]);
}

/// Nothing says which function is `setjmp`.
#[test]
fn control_stripped() {
    same(&LITTLE, "control.c", &["-O2", "-s"], &[]);
}

#[test]
fn control_unoptimised_big_endian() {
    same(&BIG, "control.c", &["-O0"], &[]);
}

#[test]
fn jumps_to_a_buffer_that_was_filled_again() {
    same(&LITTLE, "jumps.c", &["-O2"], &[]);
    same(&BIG, "jumps.c", &["-O0"], &[]);
}

#[test]
fn far_branches() {
    same(&LITTLE, "far_branches.c", &["-O2"], &[]);
    same(&BIG, "far_branches.c", &["-O0"], &[]);
}

#[test]
fn spilled_addresses_of_functions() {
    same(&LITTLE, "spilled.c", &["-O2"], &[]);
}

/// Their addresses are those of code on the stack.
#[test]
fn nested_functions() {
    same(&LITTLE, "nested.c", &["-O2"], &[]);
    same(&BIG, "nested.c", &["-O0"], &[]);
}

#[test]
fn jumps_to_labels_of_other_functions() {
    same(&LITTLE, "landings.c", &["-O2"], &[]);
    same(&BIG, "landings.c", &["-O0"], &[]);
}

#[test]
fn exceptions() {
    same(&LITTLE, "exceptions.cpp", &["-O2"], &[]);
}

#[test]
fn exceptions_unoptimised() {
    same(&LITTLE, "exceptions.cpp", &["-O0"], &[]);
}

/// Nothing says which functions are the unwinder's.
#[test]
fn exceptions_stripped() {
    same(&LITTLE, "exceptions.cpp", &["-O3", "-s"], &[]);
}

#[test]
fn exceptions_big_endian() {
    same(&BIG, "exceptions.cpp", &["-O2"], &[]);
}

/// Each of these ends the program in another way.
#[test]
fn exceptions_that_nobody_handles() {
    for way in ["1", "2", "3", "4", "5"] {
        same(&LITTLE, "terminate.cpp", &["-O2", "-Wno-terminate"], &[way]);
    }
}

#[test]
fn ends_of_threads() {
    same(&LITTLE, "thread_ends.c", &["-O2"], &[]);
    same(&BIG, "thread_ends.c", &["-O2", "-s"], &[]);
}

#[test]
fn ends_of_threads_clean_up() {
    same(&LITTLE, "thread_ends.cpp", &["-O2"], &[]);
}

/// Exceptions between a library and the Java program that uses it, both ways.
#[test]
fn exceptions_between_cpp_and_java() {
    if let Some(reason) = &*MISSING {
        eprintln!("skipped: {reason}");
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let include = format!("-I{}", here.join("../../../runtime/jvm/include").display());
    for machine in [LITTLE, BIG] {
        let program = compile(&machine, "library.cpp", &["-O2", &include], folder.path());
        let path = folder.path().join("library.jar");
        std::fs::write(&path, translated(&program)).expect("the folder is writable");
        let got = output(
            Command::new("java")
                .arg("--add-exports=java.base/jdk.internal.misc=ALL-UNNAMED")
                .arg("-cp")
                .arg(&path)
                .arg(here.join("tests/java/Exceptions.java")),
        );
        let reported = String::from_utf8_lossy(&got.stderr);
        assert_eq!(String::from_utf8_lossy(&got.stdout), BETWEEN, "{reported}");
    }
}

const BETWEEN: &str = "\
type and text: Special, special 7, thrown in a function of C: true
cleaned up: 4
no class: int, null, thrown in a function of C: true
a callback: 16
Java's through C++: java.lang.ArrayIndexOutOfBoundsException: index 5
from the host: java.lang.IllegalStateException: from the host
not from the host: 9
cleaned up: 8
Java's caught in C++: -2
Java's thrown again: java.lang.ArrayIndexOutOfBoundsException: index 6
C++'s through Java: -1
C++'s through Java and out: Special, special 7, thrown in a function of C: true
cleaned up: 117
after many: 157
double: 1.75
float: 0.5
";
