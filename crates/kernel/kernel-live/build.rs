//! Compiles the module's core (`runtime/kmod`) to one relocatable object.

use std::path::PathBuf;
use std::{env, fs};

/// As the kernel compiles its own text, where that matters: no vector register, no red zone, upper half of
/// the address space, landing pads for indirect branches. Unwind tables become ORC rows.
const FLAGS: [&str; 22] = [
    "-std=gnu11",
    "-O2",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-ffreestanding",
    "-mcmodel=kernel",
    "-mno-red-zone",
    "-mgeneral-regs-only",
    "-fno-stack-protector",
    "-fcf-protection=branch",
    "-fno-pic",
    "-fno-jump-tables",
    "-fno-function-sections",
    "-fno-data-sections",
    "-fasynchronous-unwind-tables",
    "-fno-strict-aliasing",
    "-fno-tree-loop-distribute-patterns",
    "-fno-tree-vectorize",
    "-r",
    "-nostdlib",
    "-no-pie",
];

fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    let sources = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"))
        .join("../../../runtime/kmod");
    println!("cargo::rerun-if-changed={}", sources.display());
    let mut files: Vec<PathBuf> = fs::read_dir(&sources)
        .expect("runtime/kmod is there")
        .map(|entry| entry.expect("it is readable").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "c"))
        .collect();
    files.sort();
    let mut command = cc::Build::new().get_compiler().to_command();
    command.args(FLAGS).args(files).arg("-o").arg(out.join("core.o"));
    let status = command.status().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(status.success(), "{command:?}: {status}");
}
