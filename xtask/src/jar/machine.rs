//! The machines whose programs are translated: how a test is compiled for one, and what runs it natively.

use std::ffi::OsStr;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result};

use crate::proc;

/// Options of the tests in `crates/port/jar`: a program that asks a debugger for files and for its end, where
/// QEMU's board has its memory, and that board.
const PICOLIBC: &str = include_str!("../../../crates/port/jar/tests/options/picolibc");
const BOARD: &str = include_str!("../../../crates/port/jar/tests/options/board");
const QEMU: &str = include_str!("../../../crates/port/jar/tests/options/qemu-board");

/// All extensions that programs for MIPS have a counterpart of.
const ISA: [&str; 2] = ["-march=rv32imafdc", "-mabi=ilp32d"];

/// A machine that programs are compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Machine {
    /// Little-endian MIPS with Linux; QEMU's user mode is right
    Mips,
    /// 32-bit RISC-V without a kernel, with picolibc; QEMU's board is right
    Riscv,
}

impl Machine {
    /// The packages with its compiler, library and emulator.
    pub fn packages(self) -> &'static [&'static str] {
        match self {
            Self::Mips => &["gcc-mipsel-linux-gnu", "libc6-dev-mipsel-cross", "qemu-user-static"],
            Self::Riscv => {
                &["gcc-riscv64-unknown-elf", "picolibc-riscv64-unknown-elf", "qemu-system-misc"]
            }
        }
    }

    fn compiler(self) -> &'static str {
        match self {
            Self::Mips => "mipsel-linux-gnu-gcc",
            Self::Riscv => "riscv64-unknown-elf-gcc",
        }
    }

    /// Its name in options of gcc's tests that are for some machines only.
    pub fn target(self) -> &'static str {
        match self {
            Self::Mips => "mips",
            Self::Riscv => "riscv",
        }
    }

    /// Compiles a program with as small a library as it can have. Whether that worked.
    pub fn compile(self, source: &Path, flags: &[String], level: &str, elf: &Path) -> Result<bool> {
        let small = elf.with_file_name("tiny.o");
        if self == Self::Mips && !small.exists() {
            let source = elf.with_file_name("tiny.c");
            std::fs::write(&source, include_str!("tiny.c"))?;
            let mut gcc = Command::new(self.compiler());
            gcc.args(["-c", "-O2", "-ffreestanding", "-fno-tree-loop-distribute-patterns", "-w"]);
            proc::step(gcc.arg(&source).arg("-o").arg(&small))?;
        }
        let bare = PICOLIBC.split_whitespace().chain(BOARD.split_whitespace()).chain(ISA);
        let bare: Vec<&OsStr> = bare.map(OsStr::new).collect();
        let tiny = ["-nostdlib".as_ref(), small.as_os_str(), "-lgcc".as_ref()];
        let (none, with_threads) = ([], ["-lm".as_ref(), "-pthread".as_ref()]);
        let with_numbers = ["-lm".as_ref()];
        // Options, and libraries behind the program.
        let ways: &[(&[&OsStr], &[&OsStr])] = match self {
            Self::Mips => &[(&none, &tiny), (&none, &with_threads)],
            Self::Riscv => &[(&bare, &with_numbers)],
        };
        for (options, libraries) in ways {
            let mut gcc = Command::new(self.compiler());
            gcc.args(*options).args(["-static", "-w", level]).args(flags);
            gcc.arg(source).arg("-o").arg(elf).args(*libraries).stderr(Stdio::null());
            if gcc.status().context("starting the compiler")?.success() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// What executes a program without Fettle.
    pub fn emulator(self, elf: &Path) -> Command {
        match self {
            Self::Mips => {
                let mut qemu = Command::new("qemu-mipsel-static");
                qemu.arg(elf);
                qemu
            }
            Self::Riscv => {
                let mut qemu = Command::new("qemu-system-riscv32");
                qemu.args(QEMU.split_whitespace()).arg(elf);
                qemu
            }
        }
    }

    /// Whether there is everything that running its programs needs.
    pub fn has_tools(self) -> bool {
        let emulator = self.emulator(Path::new(""));
        [OsStr::new(self.compiler()), emulator.get_program()]
            .into_iter()
            .filter_map(OsStr::to_str)
            .all(proc::on_path)
    }
}
