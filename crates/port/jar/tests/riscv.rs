//! RV32 programs that were linked for a board without a kernel do what they do in QEMU's board.

mod common;

use std::process::Command;

use common::{BOARD, LOW, compile_riscv, output};
use fettle_jar::{Image, METHOD_MAX, Options, translate, write};

const ISAS: [[&str; 2]; 2] =
    [["-march=rv32imac", "-mabi=ilp32"], ["-march=rv32imafdc", "-mabi=ilp32d"]];

fn same(file: &str, options: &[&str]) {
    if let Some(reason) = &*common::RISCV_MISSING {
        eprintln!("skipped: {reason}");
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    for isa in ISAS {
        let board = folder.path().join("board");
        compile_riscv(file, isa, options, BOARD, &board);
        let expected = output(common::board().arg(&board));
        let low = folder.path().join("low");
        compile_riscv(file, isa, options, LOW, &low);
        for program in [board, low] {
            let bytes = std::fs::read(&program).expect("the compiler wrote it");
            let image = Image::parse(&bytes).expect("a static program");
            let translated = translate(&image, &Options::default()).expect("it can be translated");
            let report = &translated.summary;
            assert!(report.largest_method <= METHOD_MAX, "{report:?}");
            assert!(report.problems.is_empty(), "{report:?}");
            let jar = folder.path().join("program.jar");
            let bytes = write(&image, &translated).expect("there is a runtime");
            std::fs::write(&jar, bytes).expect("the folder is writable");
            let mut java = Command::new("java");
            java.args(["-XX:TieredStopAtLevel=1", "-Xshare:auto", "-Xverify:all", "-jar"]);
            let got = output(java.arg(&jar));
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            let (want, have) = (text(&expected.stdout), text(&got.stdout));
            let different = want.lines().zip(have.lines()).find(|(a, b)| a != b);
            let said = text(&got.stderr);
            assert_eq!(different, None, "{file} {isa:?} {options:?}: {said}");
            assert_eq!(have.len(), want.len(), "{file} {isa:?} {options:?}: {said}");
            assert_eq!(got.status.code(), expected.status.code(), "{file} {isa:?}: {said}");
        }
    }
}

#[test]
fn integers_and_floating_point() {
    same("arithmetic.c", &["-O2"]);
}

#[test]
fn control_flow() {
    same("control.c", &["-O2"]);
    same("large_setjmp.c", &["-O1"]);
}

#[test]
fn nested_functions_and_labels() {
    same("nested.c", &["-O2"]);
    same("landings.c", &["-O2"]);
    same("landings.c", &["-O0"]);
}
