//! A simulation as Verilator makes it: a 64-bit RISC-V core (Rocket, with caches, an MMU and
//! floating point) in C++, compiled as `verilator --exe --build` does. Its code is far larger than
//! any first cache, and runs through from one end to the other in each cycle.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::proc;

/// Packages that it takes.
pub const PACKAGES: [&str; 4] = ["verilator", "g++", "make", "gcc-riscv64-unknown-elf"];

/// The core, generated from its sources, as a Python package has it.
const CORE: &str = "pythondata-cpu-rocket==0.0.post7146";
const TOP: &str = "ExampleRocketSystem";

/// The simulator, and what it simulates.
pub struct Simulation {
    /// `simulation FIRMWARE PROGRESS [CYCLES]`
    pub program: PathBuf,
    /// What the core runs.
    pub firmware: PathBuf,
}

/// Builds both in `folder`, or finds them there.
pub fn build(folder: &Path) -> Result<Simulation> {
    std::fs::create_dir_all(folder)?;
    let (program, firmware) = (folder.join("model/simulation"), folder.join("firmware.bin"));
    if !firmware.exists() {
        build_firmware(folder, &firmware)?;
    }
    if !program.exists() {
        build_model(folder)?;
    }
    Ok(Simulation { program, firmware })
}

fn build_firmware(folder: &Path, firmware: &Path) -> Result<()> {
    let sources = [
        ("firmware.S", include_str!("firmware.S")),
        ("firmware.c", include_str!("firmware.c")),
        ("firmware.ld", include_str!("firmware.ld")),
    ];
    for (name, text) in sources {
        std::fs::write(folder.join(name), text)?;
    }
    let mut compile = Command::new("riscv64-unknown-elf-gcc");
    compile.current_dir(folder).args(["-O2", "-march=rv64gc", "-mabi=lp64d", "-mcmodel=medany"]);
    compile.args(["-nostdlib", "-ffreestanding", "-T", "firmware.ld", "-o", "firmware.elf"]);
    proc::output_of(compile.args(["firmware.S", "firmware.c"]))?;
    let mut copy = Command::new("riscv64-unknown-elf-objcopy");
    copy.current_dir(folder).args(["-O", "binary", "firmware.elf"]).arg(firmware);
    proc::output_of(&mut copy).map(drop)
}

fn build_model(folder: &Path) -> Result<()> {
    let mut download = Command::new("pip");
    download.args(["download", "-q", "--no-deps", "-d"]).arg(folder).arg(CORE);
    proc::output_of(&mut download).context("a Python package with the core")?;
    let wheel = std::fs::read_dir(folder)?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .find(|path| path.extension().is_some_and(|e| e == "whl"))
        .context("pip has left no package")?;
    let mut unpack = Command::new("python3");
    proc::output_of(unpack.args(["-m", "zipfile", "-e"]).arg(wheel).arg(folder))?;
    std::fs::write(folder.join("simulation.cpp"), include_str!("simulation.cpp"))?;
    let verilog = folder.join("pythondata_cpu_rocket/verilog");
    let generated = |end: &str| {
        verilog.join(format!("generated-src/freechips.rocketchip.system.LitexFullConfig.{end}"))
    };
    let library = |name: &str| verilog.join("vsrc").join(name);
    let mut translate = Command::new("verilator");
    translate.current_dir(folder).args(["--cc", "--exe", "--build", "-j", "2", "-O3"]);
    translate.args(["--Mdir", "model", "-o", "simulation", "--top-module", TOP]);
    translate.args(["-Wno-fatal", "-Wno-lint", "-Wno-UNOPTFLAT"]);
    translate.args(["-DPRINTF_COND=0", "-DSTOP_COND=0"]);
    translate.args([generated("v"), generated("behav_srams.v")]);
    translate.args([library("plusarg_reader.v"), library("EICG_wrapper.v")]);
    translate.args([library("AsyncResetReg.v"), folder.join("simulation.cpp")]);
    proc::output_of(&mut translate).map(drop)
}
