//! Builds the agent of programs that record themselves (`runtime/file`) to a flat piece of code.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    let agent = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../runtime/file");
    for file in ["file.c", "entries.S", "file.ld"] {
        println!("cargo::rerun-if-changed={}", agent.join(file).display());
    }
    let compiler = cc::Build::new().get_compiler();
    let linked = out.join("file.elf");
    run(compiler
        .to_command()
        .args(["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror"])
        .args(["-ffreestanding", "-nostdlib", "-static", "-fPIE", "-fvisibility=hidden"])
        .args(["-mgeneral-regs-only", "-mno-red-zone", "-fno-stack-protector"])
        .args(["-fcf-protection=none", "-fno-asynchronous-unwind-tables", "-fno-jump-tables"])
        .args(["-fno-tree-loop-distribute-patterns"])
        .args(["-Wl,--build-id=none", "-Wl,-e,0", "-Wl,-no-pie"])
        .arg(format!("-Wl,-T,{}", agent.join("file.ld").display()))
        .args([agent.join("file.c"), agent.join("entries.S")])
        .arg("-o")
        .arg(&linked));
    let flat = out.join("file.bin");
    run(Command::new("objcopy").args(["-O", "binary", "-j", ".text"]).arg(&linked).arg(&flat));
    assert!(fs::metadata(&flat).expect("objcopy wrote it").len() <= 0x4000);
}

fn run(command: &mut Command) {
    let status = command.status().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    assert!(status.success(), "{command:?}: {status}");
}
