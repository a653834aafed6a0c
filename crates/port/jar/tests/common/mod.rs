//! Compilers, emulators and Java, and what they make of the programs beside this folder.

#![allow(dead_code, reason = "each test file uses some of it")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::LazyLock;

use fettle_jar::{Image, METHOD_MAX, Options, translate, write};

const PACKAGES: [&str; 8] = [
    "default-jdk-headless",
    "gcc-mipsel-linux-gnu",
    "g++-mipsel-linux-gnu",
    "gcc-mips-linux-gnu",
    "g++-mips-linux-gnu",
    "libc6-dev-mipsel-cross",
    "libc6-dev-mips-cross",
    "qemu-user-static",
];

/// What tests of RISC-V need besides Java.
const RISCV_PACKAGES: [&str; 3] =
    ["gcc-riscv64-unknown-elf", "picolibc-riscv64-unknown-elf", "qemu-system-misc"];

/// What the tests need, installed if that is possible; otherwise why there are none.
pub static MISSING: LazyLock<Option<String>> = LazyLock::new(|| {
    let tools = [
        "java",
        "mipsel-linux-gnu-g++",
        "mips-linux-gnu-g++",
        "qemu-mipsel-static",
        "qemu-mips-static",
    ];
    missing(&tools, &PACKAGES)
});

/// The same for RISC-V.
pub static RISCV_MISSING: LazyLock<Option<String>> = LazyLock::new(|| {
    let library = || Path::new("/usr/lib/picolibc/riscv64-unknown-elf").exists();
    let tools = ["java", "riscv64-unknown-elf-gcc", "qemu-system-riscv32"];
    if !library() {
        install(&RISCV_PACKAGES);
    }
    missing(&tools, &RISCV_PACKAGES)
        .or_else(|| (!library()).then(|| "no picolibc-riscv64-unknown-elf".into()))
});

/// Which tools are missing when what can be installed is.
fn missing(tools: &[&str], packages: &[&str]) -> Option<String> {
    let there = |name: &str| {
        let path = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&path).any(|folder| folder.join(name).exists())
    };
    if !tools.iter().all(|tool| there(tool)) {
        install(packages);
    }
    if !fettle_jar::has_runtime() {
        return Some("built without a JDK".into());
    }
    let missing: Vec<&str> = tools.iter().copied().filter(|tool| !there(tool)).collect();
    (!missing.is_empty()).then(|| format!("no {}", missing.join(", ")))
}

/// Installs Debian's packages. Whether it worked is seen by what is there then.
fn install(packages: &[&str]) {
    let mut apt = Command::new("apt-get");
    apt.args(["-o", "DPkg::Lock::Timeout=600", "install", "-q", "-y"]);
    apt.arg("--no-install-recommends").args(packages).env("DEBIAN_FRONTEND", "noninteractive");
    let _ = apt.output();
}

pub struct Machine {
    pub compiler: &'static str,
    pub emulator: &'static str,
}

pub const LITTLE: Machine =
    Machine { compiler: "mipsel-linux-gnu-", emulator: "qemu-mipsel-static" };
pub const BIG: Machine = Machine { compiler: "mips-linux-gnu-", emulator: "qemu-mips-static" };

fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c").join(name)
}

pub fn output(command: &mut Command) -> Output {
    command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"))
}

pub fn compile(machine: &Machine, file: &str, options: &[&str], folder: &Path) -> PathBuf {
    let program = folder.join("program");
    let compiler = if file.ends_with(".c") { "gcc" } else { "g++" };
    let compiled = output(
        Command::new(format!("{}{compiler}", machine.compiler))
            .args(["-static", "-o"])
            .arg(&program)
            .arg(source(file))
            .args(options)
            .args(["-lm", "-pthread"]),
    );
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    program
}

/// Options for a program that asks a debugger for files and for its end.
const PICOLIBC: &str = include_str!("../options/picolibc");

/// Where QEMU's board has its memory: the first 4 MB are the program's, the rest is heap and stack.
pub const BOARD: &str = include_str!("../options/board");

/// The same below 2 GB.
pub const LOW: &str = include_str!("../options/low");

/// QEMU's board, for a program that follows.
pub fn board() -> Command {
    let mut qemu = Command::new("qemu-system-riscv32");
    qemu.args(include_str!("../options/qemu-board").split_whitespace());
    qemu
}

/// Compiles a program for a board of RISC-V.
pub fn compile_riscv(file: &str, isa: [&str; 2], options: &[&str], place: &str, program: &Path) {
    let compiled = output(
        Command::new("riscv64-unknown-elf-gcc")
            .args(PICOLIBC.split_whitespace())
            .args(["-std=gnu17", "-w", "-DPICOLIBC_DOUBLE_PRINTF_SCANF"])
            .args(isa)
            .args(options)
            .args(place.split_whitespace())
            .arg(source(file))
            .arg("-o")
            .arg(program)
            .arg("-lm"),
    );
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
}

pub fn translated(program: &Path) -> Vec<u8> {
    let bytes = std::fs::read(program).expect("the compiler wrote it");
    let image = Image::parse(&bytes).expect("a static program");
    let translated =
        translate(&image, &Options::default()).expect("every function can be translated");
    let report = &translated.summary;
    assert!(report.largest_method <= METHOD_MAX, "{report:?}");
    assert!(report.problems.is_empty(), "{report:?}");
    write(&image, &translated).expect("there is a runtime")
}
