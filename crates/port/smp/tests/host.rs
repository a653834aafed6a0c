//! Parts of the application kernel, compiled for this machine, and the module's source text.

use std::path::Path;
use std::process::Command;

const APPKERNEL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../runtime/appkernel");

/// Runs the C compiler; false, with the reason, where there is none.
fn compile(arguments: &[&str]) -> bool {
    match Command::new("cc").args(arguments).output() {
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(output.status.success(), "{arguments:?}: {said}");
            true
        }
        Err(why) => {
            println!("skipped: no C compiler ({why})");
            false
        }
    }
}

#[test]
fn threads_take_turns_and_have_one_owner() {
    let folder = tempfile::tempdir().expect("a folder");
    let program = folder.path().join("ready");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/ready.c");
    let program = program.to_str().expect("a plain name");
    if compile(&["-O2", "-Wall", "-Werror", "-pthread", "-I", APPKERNEL, "-o", program, source]) {
        let output = Command::new(program).output().expect("it starts");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    }
}

/// The image has no writable data, so it can be mapped without the right to write, and needs no
/// function of anybody else.
#[test]
fn the_application_kernel_stands_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut objects = Vec::new();
    for part in [
        "boot.S",
        "entry.S",
        "setup.c",
        "schedule.c",
        "trap.c",
        "local.c",
        "futex.c",
        "apic.c",
        "log.c",
    ] {
        let object = folder.path().join(format!("{part}.o"));
        let object = object.to_str().expect("a plain name").to_string();
        let source = format!("{APPKERNEL}/kernel/{part}");
        let flags = "-O2 -std=gnu11 -ffreestanding -fno-pic -mcmodel=kernel -mno-red-zone \
                     -mgeneral-regs-only -fno-stack-protector -fcf-protection=branch \
                     -fno-jump-tables -fno-asynchronous-unwind-tables -Wall -Wextra -Werror -c";
        let mut arguments: Vec<&str> = flags.split_whitespace().collect();
        arguments.extend(["-o", &object, &source]);
        if !compile(&arguments) {
            return;
        }
        objects.push(object);
    }
    let image = folder.path().join("image");
    let linked = Command::new("ld")
        .args(["-n", "--no-warn-rwx-segments", "-T"])
        .arg(Path::new(APPKERNEL).join("kernel/link.ld"))
        .arg("-o")
        .arg(&image)
        .args(&objects)
        .output()
        .expect("a C compiler has a linker");
    assert!(linked.status.success(), "{}", String::from_utf8_lossy(&linked.stderr));
}

#[test]
fn the_source_text_is_whole() {
    let folder = tempfile::tempdir().expect("a folder");
    fettle_smp::source::write(folder.path()).expect("writable");
    for file in ["Kbuild", "Makefile", "shared.h", "kernel/entry.S", "linux/proxy.c"] {
        let written = std::fs::read(folder.path().join(file)).expect("written");
        let original = std::fs::read(Path::new(APPKERNEL).join(file)).expect("it is there");
        assert_eq!(written, original, "{file}");
    }
}
