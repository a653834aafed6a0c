//! Java's stack traces show files, lines and functions of C and C++, for programs with `-g`.

mod common;

use std::path::Path;
use std::process::Command;

use common::{BIG, LITTLE, MISSING, Machine, compile, output, translated};

/// The frames of the program that Java's stack had at its faults, the innermost first.
fn frames(machine: &Machine, file: &Path, options: &[&str], arguments: &[&str]) -> Vec<String> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let program = compile(machine, file.to_str().expect("a plain name"), options, folder.path());
    let path = folder.path().join("program.jar");
    std::fs::write(&path, translated(&program)).expect("the folder is writable");
    let mut java = Command::new("java");
    java.args(["-XX:TieredStopAtLevel=1", "-jar"]).arg(&path).args(arguments);
    let got = output(java.env("FETTLE_JAR_STRACE", "1"));
    let reported = String::from_utf8_lossy(&got.stderr).into_owned();
    let frames = reported.lines().filter_map(|line| line.trim().strip_prefix("at fettle.program."));
    let frames: Vec<String> = frames.map(str::to_owned).collect();
    assert!(!frames.is_empty(), "{reported}");
    frames
}

#[test]
fn functions_files_and_lines() {
    if let Some(reason) = &*MISSING {
        eprintln!("skipped: {reason}");
        return;
    }
    for (machine, options) in
        [(LITTLE, ["-O2", "-g"]), (BIG, ["-O0", "-g"]), (LITTLE, ["-O1", "-gdwarf-4"])]
    {
        let frames = frames(&machine, Path::new("lines.cpp"), &options, &[]);
        let expected = [
            // In a function of a header that was inlined: the line of its call.
            "lines_cpp.geo::Shape::corner(lines.cpp:16)",
            "lines_cpp.corner{int}(lines.cpp:21)",
            "lines_cpp.main(lines.cpp:27)",
        ];
        // Without optimisation the header's function is there itself.
        let inlined = !frames[0].starts_with("lines_h.");
        assert_eq!(inlined, options[0] != "-O0", "{frames:#?}");
        assert_eq!(frames[usize::from(!inlined)..][..3], expected, "{options:?} {frames:#?}");
    }
}

#[test]
fn without_debugging_information_there_are_names() {
    if let Some(reason) = &*MISSING {
        eprintln!("skipped: {reason}");
        return;
    }
    let frames = frames(&LITTLE, Path::new("lines.cpp"), &["-O2"], &[]);
    assert!(frames[0].ends_with(".geo::Shape::corner(Unknown Source)"), "{frames:#?}");
}

/// A class has 16 bits for a line: what they count from stands beside the name, and debuggers add it.
#[test]
fn more_lines_than_a_class_can_number() {
    if let Some(reason) = &*MISSING {
        eprintln!("skipped: {reason}");
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("large.c");
    let text = "\n".repeat(100_000)
        + "int main(int c, char **v) {\n *(volatile int *)(c << 30) = 1;\n return 0;\n}\n";
    std::fs::write(&file, text).expect("the folder is writable");
    let frames = frames(&LITTLE, &file, &["-O1", "-g"], &[]);
    assert_eq!(frames[0], "large_c.main(large.c+65536:34466)");
    assert_eq!(65_536 + 34_466, 100_002);
}
