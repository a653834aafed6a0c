//! Builds the agent (`runtime/agent`) to a flat piece of code.

use std::path::PathBuf;
use std::process::Command;
use std::{env, fs};

fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    let agent = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"))
        .join("../../../runtime/agent");
    for file in [
        "agent.c",
        "locks.c",
        "convoys.h",
        "entries.S",
        "agent.ld",
        "../save.inc",
        "../block.h",
        "../locks.h",
    ] {
        println!("cargo::rerun-if-changed={}", agent.join(file).display());
    }
    let compiler = cc::Build::new().get_compiler();
    let linked = out.join("agent.elf");
    let compile = || {
        let mut command = compiler.to_command();
        command
            .args(["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror"])
            .args(["-ffreestanding", "-nostdlib", "-static", "-fPIE", "-fvisibility=hidden"])
            .args([
                "-mgeneral-regs-only",
                "-mno-red-zone",
                "-fno-stack-protector",
                "-fcf-protection=none",
            ])
            .args(["-fno-asynchronous-unwind-tables", "-fno-tree-loop-distribute-patterns"])
            .arg(format!("-DTICKS_PER_MARK={}", fettle_abi::block::TICKS_PER_MARK))
            .arg(format!("-I{}", agent.join("..").display()))
            .arg(format!("-Wa,-I,{}", agent.join("..").display()));
        command
    };
    // What the entry of locks does not save first (entries.S) is not used there.
    let locks = out.join("locks.o");
    run(compile()
        .args(["-ffixed-r9", "-ffixed-r10", "-ffixed-r11", "-c"])
        .arg(agent.join("locks.c"))
        .arg("-o")
        .arg(&locks));
    run(compile()
        .args(["-Wl,--build-id=none", "-Wl,-e,0", "-Wl,-no-pie"])
        .arg(format!("-Wl,-T,{}", agent.join("agent.ld").display()))
        .args([agent.join("agent.c"), agent.join("entries.S"), locks])
        .arg("-o")
        .arg(&linked));
    let flat = out.join("agent.bin");
    run(Command::new("objcopy").args(["-O", "binary", "-j", ".text"]).arg(&linked).arg(&flat));
    assert!(fs::metadata(&flat).expect("objcopy wrote it").len() < 1 << 16);
}

fn run(command: &mut Command) {
    let status = command.status().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    assert!(status.success(), "{command:?}: {status}");
}
