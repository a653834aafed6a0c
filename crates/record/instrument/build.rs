//! Builds the agent of programs that record themselves (`runtime/file`) to a flat piece of code.

use std::path::PathBuf;
use std::process::Command;
use std::{env, fs};

fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    let agent = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"))
        .join("../../../runtime/file");
    let runtime = agent.join("..");
    for file in [
        "file.c",
        "objects.h",
        "forks.h",
        "entries.S",
        "file.ld",
        "object.ld",
        "../save.inc",
        "../block.h",
    ] {
        println!("cargo::rerun-if-changed={}", agent.join(file).display());
    }
    let compile = || {
        let mut command = cc::Build::new().get_compiler().to_command();
        command
            .args(["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror"])
            .args(["-ffreestanding", "-nostdlib", "-fvisibility=hidden"])
            .args(["-mgeneral-regs-only", "-mno-red-zone", "-fno-stack-protector"])
            .args(["-fcf-protection=none", "-fno-asynchronous-unwind-tables", "-fno-jump-tables"])
            .args(["-fno-tree-loop-distribute-patterns"])
            .arg(format!("-I{}", runtime.display()))
            .arg(format!("-Wa,-I,{}", runtime.display()));
        command
    };
    let script = |name| format!("-Wl,-T,{}", agent.join(name).display());
    let linked = out.join("file.elf");
    run(compile()
        .args(["-static", "-fPIE", "-Wl,--build-id=none", "-Wl,-e,0", "-Wl,-no-pie"])
        .arg(script("file.ld"))
        .args([agent.join("file.c"), agent.join("entries.S")])
        .arg("-o")
        .arg(&linked));
    let flat = out.join("file.bin");
    run(Command::new("objcopy").args(["-O", "binary", "-j", ".text"]).arg(&linked).arg(&flat));
    assert!(fs::metadata(&flat).expect("objcopy wrote it").len() <= 0x4000);
    // The same as a part of object files.
    run(compile()
        .args(["-fPIC", "-DFETTLE_OBJECT", "-fno-asynchronous-unwind-tables", "-r"])
        .arg(script("object.ld"))
        .args([agent.join("file.c"), agent.join("entries.S")])
        .arg("-o")
        .arg(out.join("object.o")));
}

fn run(command: &mut Command) {
    let status = command.status().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    assert!(status.success(), "{command:?}: {status}");
}
