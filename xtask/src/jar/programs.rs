//! Where the programs come from.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, anyhow, ensure};

use super::machine::Machine;
use crate::{proc, repo};

/// The package with gcc's source as a whole, of which only one folder of tests is used.
const GCC_SOURCE: &str = "gcc-12-source";

/// What csmith's programs are compiled with: its header.
const CSMITH_INCLUDE: &str = "-I/usr/include/csmith";

/// How many of csmith's programs there are without a number.
const CSMITH_COUNT: usize = 100;

/// A kind of programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Suite {
    /// What gcc's own tests execute: each ends with status 0
    Gcc,
    /// Random programs that print a checksum of all their variables
    Csmith,
}

/// Which programs of the suites.
#[derive(clap::Args, Debug, Clone)]
pub struct Choice {
    /// The machine that programs are compiled for
    #[arg(long, value_enum, default_value = "mips")]
    pub machine: Machine,
    /// How many of each suite, drawn by the seed; without it all of gcc's and a hundred of csmith's
    #[arg(long)]
    pub count: Option<usize>,
    /// Which ones are drawn, and what csmith begins with
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Only programs whose name contains this
    #[arg(long, default_value = "")]
    pub filter: String,
}

/// A program.
pub struct Program {
    /// What it is called.
    pub name: String,
    /// Its source.
    pub source: PathBuf,
    /// Options of the compiler.
    pub flags: Vec<String>,
}

impl Suite {
    /// The programs of a suite: all of them, or so many drawn by the seed.
    pub fn programs(self, choice: &Choice, place: &Path) -> Result<Vec<Program>> {
        match self {
            Self::Gcc => gcc(choice),
            Self::Csmith => csmith(choice, place),
        }
    }
}

fn gcc(choice: &Choice) -> Result<Vec<Program>> {
    let folder = gcc_tests()?;
    let mut programs = Vec::new();
    for file in c_files(&folder)?.into_iter().chain(c_files(&folder.join("ieee"))?) {
        let name = file.strip_prefix(&folder)?.with_extension("").display().to_string();
        if !name.contains(&choice.filter) {
            continue;
        }
        let text = std::fs::read(&file)?;
        programs.push(Program {
            name,
            flags: flags(&String::from_utf8_lossy(&text), choice.machine),
            source: file,
        });
    }
    programs.sort_by(|a, b| a.name.cmp(&b.name));
    if let Some(count) = choice.count {
        let mut state = choice.seed;
        while programs.len() > count {
            programs.swap_remove((split_mix(&mut state) % programs.len() as u64) as usize);
        }
    }
    Ok(programs)
}

/// What a test says that it is to be compiled with.
fn flags(text: &str, machine: Machine) -> Vec<String> {
    let mut flags = Vec::new();
    for line in text.lines().filter(|line| line.contains("dg-options")) {
        // `{ dg-options "…" }`, for all machines unless a target follows.
        if line.contains("target") && !line.contains(machine.target()) {
            continue;
        }
        if let Some(quoted) = line.split('"').nth(1) {
            flags.extend(quoted.split_whitespace().map(str::to_owned));
        }
    }
    flags
}

fn c_files(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    let paths = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    Ok(paths.into_iter().filter(|path| path.extension().is_some_and(|e| e == "c")).collect())
}

/// The folder of gcc's tests, fetched and unpacked once per target folder.
fn gcc_tests() -> Result<PathBuf> {
    let place = repo::target_folder(&format!("sources/{GCC_SOURCE}"))?;
    let tests = place.join("execute");
    if tests.is_dir() {
        return Ok(tests);
    }
    proc::output_of(
        Command::new("apt-get")
            .args(["-oAPT::Sandbox::User=root", "download", "-q", GCC_SOURCE])
            .current_dir(&place),
    )?;
    let package = with_extension(&place, "deb")?;
    proc::output_of(
        Command::new("dpkg-deb").arg("--extract").arg(&package).arg(place.join("deb")),
    )?;
    // Beside GCC's own archive lies that of another front end.
    let archive = archive_of_gcc(&place.join("deb/usr/src/gcc-12"))?;
    let partial = place.join("partial");
    std::fs::create_dir_all(&partial)?;
    proc::output_of(
        Command::new("tar")
            .args(["-x", "--strip-components=4", "--wildcards", "-f"])
            .arg(&archive)
            .arg("-C")
            .arg(&partial)
            .arg("*/gcc/testsuite/gcc.c-torture/execute"),
    )?;
    std::fs::rename(partial.join("execute"), &tests)?;
    // What is left takes hundreds of megabytes.
    std::fs::remove_dir_all(place.join("deb"))?;
    std::fs::remove_file(package)?;
    Ok(tests)
}

fn archive_of_gcc(folder: &Path) -> Result<PathBuf> {
    std::fs::read_dir(folder)
        .with_context(|| folder.display().to_string())?
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .find(|path| {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            name.starts_with("gcc-") && name.ends_with(".tar.xz")
        })
        .ok_or_else(|| anyhow!("no gcc-*.tar.xz in {}", folder.display()))
}

fn with_extension(folder: &Path, extension: &str) -> Result<PathBuf> {
    std::fs::read_dir(folder)
        .with_context(|| folder.display().to_string())?
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .find(|path| path.extension().is_some_and(|e| e == extension))
        .ok_or_else(|| anyhow!("no .{extension} in {}", folder.display()))
}

fn csmith(choice: &Choice, place: &Path) -> Result<Vec<Program>> {
    let folder = place.join("csmith");
    std::fs::create_dir_all(&folder)?;
    let mut programs = Vec::new();
    let mut state = choice.seed;
    for _ in 0..choice.count.unwrap_or(CSMITH_COUNT) {
        let seed = split_mix(&mut state) as u32;
        let name = format!("csmith-{seed}");
        if !name.contains(&choice.filter) {
            continue;
        }
        let source = folder.join(format!("{seed}.c"));
        if !source.exists() {
            let output = std::fs::File::create(&source)?;
            let status = Command::new("csmith")
                .args(["--seed", &seed.to_string()])
                // It leaves a file where it runs.
                .current_dir(&folder)
                .stdout(output)
                .stderr(Stdio::null())
                .status()
                .context("starting csmith")?;
            ensure!(status.success(), "csmith --seed {seed}: {status}");
        }
        programs.push(Program { name, source, flags: vec![CSMITH_INCLUDE.into()] });
    }
    Ok(programs)
}

/// SplitMix64.
fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_a_test_is_compiled_with() {
        let text = "/* { dg-options \"-fwrapv -O1\" } */\nint main(){}\n\
                    /* { dg-options \"-mavx\" { target i?86-*-* } } */\n\
                    /* { dg-additional-options \"-std=gnu89\" } */\n";
        assert_eq!(flags(text, Machine::Mips), ["-fwrapv", "-O1"]);
    }
}
