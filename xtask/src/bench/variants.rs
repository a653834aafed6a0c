//! Everything that is compared: how it is compiled, and what runs it.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use super::programs::{self, Recipe, Subject};
use crate::{apt, fettle};

/// What starts the program.
#[derive(Clone, Debug)]
pub enum Runner {
    /// Nothing.
    Bare,
    /// `fettle record --mode` with this mode.
    Fettle(PathBuf, &'static str),
    /// `uftrace record` with these flags.
    Uftrace(&'static [&'static str]),
}

/// One line of the table.
#[derive(Clone, Debug)]
pub struct Variant {
    /// What it is, exactly.
    pub name: String,
    /// How the program is compiled.
    pub recipe: Recipe,
    /// What starts it.
    pub runner: Runner,
    /// The compiler whose plain build it is compared with.
    pub baseline: &'static str,
    /// Most rounds that it takes part in, for the very slow.
    pub rounds: usize,
}

const GCC: &str = "gcc";
const CLANG: &str = "clang-14";

/// Modes of `fettle record`, cheapest first.
pub const MODES: [&str; 6] = ["count", "blocks", "edges", "sample", "time", "events"];

fn recipe(name: &'static str, compiler: &'static str, flags: &[&str]) -> Recipe {
    Recipe {
        name,
        compiler,
        flags: flags.iter().map(std::string::ToString::to_string).collect(),
        ..Recipe::default()
    }
}

fn bare(name: &str, recipe: Recipe) -> Variant {
    let baseline = if recipe.compiler == CLANG { "clang, plain" } else { "gcc, plain" };
    Variant { name: name.into(), recipe, runner: Runner::Bare, baseline, rounds: usize::MAX }
}

/// The variants. `quick` keeps to gcc and to what takes no time.
pub fn all(recorder: Option<&Path>, quick: bool) -> Result<Vec<Variant>> {
    let mut variants = vec![bare("gcc, plain", recipe("gcc", GCC, &[]))];
    if let Some(recorder) = recorder {
        for mode in MODES.into_iter().filter(|mode| fettle::has(recorder, mode)) {
            let runner = Runner::Fettle(recorder.to_path_buf(), mode);
            let name = format!("fettle record --mode {mode}");
            let plain = recipe("gcc", GCC, &[]);
            variants.push(Variant { runner, ..bare(&name, plain) });
        }
    }
    variants.push(with_hooks(
        "gcc -finstrument-functions, time (before inlining)",
        recipe("gcc-finstrument", GCC, &["-finstrument-functions"]),
        &[],
    ));
    if !quick {
        variants.extend(of_clang()?);
        variants.extend(of_uftrace());
    }
    Ok(variants)
}

fn with_hooks(name: &str, mut recipe: Recipe, flags: &[&'static str]) -> Variant {
    recipe.hooks = vec![("hooks.c", flags.to_vec())];
    bare(name, recipe)
}

/// What clang can put in by itself, and the floor that a plug-in of ours puts in.
fn of_clang() -> Result<Vec<Variant>> {
    let packages = ["clang-14", "llvm-14-dev", "libclang-rt-14-dev", "lld-14", "g++"];
    if let Err(error) = apt::ensure(&packages.map(String::from)) {
        println!("left out: clang's variants: {error:#}");
        return Ok(Vec::new());
    }
    let plugin = format!("-fpass-plugin={}", programs::floor_plugin()?.display());
    let floor = |name, mode| {
        let mut recipe = recipe(name, CLANG, &[&plugin]);
        recipe.env = vec![("FETTLE_FLOOR", mode)];
        recipe
    };
    let after = "-finstrument-functions-after-inlining";
    let mut edges =
        recipe("clang-edges", CLANG, &["-fsanitize-coverage=edge,inline-8bit-counters"]);
    edges.hooks = vec![("sancov.c", vec![])];
    let xray = ["-fxray-instrument", "-fxray-instruction-threshold=1"];
    let mut sleds_off = recipe("clang-xray-off", CLANG, &xray);
    sleds_off.link = vec!["-fxray-instrument"];
    let mut sleds_on = Recipe { name: "clang-xray-time", ..sleds_off.clone() };
    sleds_on.link.push("-lstdc++");
    sleds_on.hooks = vec![("xray.cc", vec![])];
    Ok(vec![
        bare("clang, plain", recipe("clang", CLANG, &[])),
        bare("clang pass in line, counts (the floor)", floor("clang-floor-count", "count")),
        bare("clang pass in line, time (the floor)", floor("clang-floor-time", "time")),
        bare("clang edge counters in line", edges),
        with_hooks(
            "clang -finstrument-functions-after-inlining, count",
            recipe("clang-after-count", CLANG, &[after]),
            &["-DCOUNT"],
        ),
        with_hooks(
            "clang -finstrument-functions-after-inlining, time",
            recipe("clang-after-time", CLANG, &[after]),
            &[],
        ),
        bare("clang XRay, sleds off", sleds_off),
        bare("clang XRay, time", sleds_on),
    ])
}

/// uftrace as Debian has it, on code compiled for it.
fn of_uftrace() -> Vec<Variant> {
    if let Err(error) = apt::ensure(&["uftrace".into()]) {
        println!("left out: uftrace: {error:#}");
        return Vec::new();
    }
    let slow = |name: &str, recipe: Recipe, flags| Variant {
        runner: Runner::Uftrace(flags),
        rounds: 2,
        ..bare(name, recipe)
    };
    let mut profiled = recipe("gcc-pg", GCC, &["-pg"]);
    profiled.link = vec!["-pg"];
    let patchable = recipe("gcc-patchable", GCC, &["-fpatchable-function-entry=5"]);
    vec![
        slow("uftrace record, -pg", profiled, &[]),
        slow("uftrace record -P ., patchable entries", patchable, &["-P", "."]),
    ]
}

impl Variant {
    /// Whether it is measured on that program. uftrace writes each entry and exit to a file: a
    /// program of nothing but calls would fill the disk.
    pub fn fits(&self, subject: Subject) -> bool {
        subject != Subject::Fib || !matches!(self.runner, Runner::Uftrace(_))
    }

    /// The command that runs the compiled program.
    pub fn command(&self, program: &Path, arguments: &[String], folder: &Path) -> Command {
        let mut command = match &self.runner {
            Runner::Bare => Command::new(program),
            Runner::Fettle(fettle, mode) => {
                let mut command = Command::new(fettle);
                command.args(["record", "--quiet", "--json", "--mode", mode, "-o"]);
                command.arg(folder.join("trace")).args(fettle::cache_flags(fettle));
                command.arg("--").arg(program);
                command
            }
            Runner::Uftrace(flags) => {
                let mut command = Command::new("uftrace");
                command.arg("record").args(*flags).args(["--no-libcall", "-d"]);
                command.arg(folder.join("trace")).arg(program);
                command
            }
        };
        command.args(arguments);
        command
    }
}
