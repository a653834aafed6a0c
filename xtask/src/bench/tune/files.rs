//! What the same layout does to files: how many instructions a bounded piece of the work takes, and
//! how many of them miss the cache, by callgrind.
//!
//! A process cannot be moved under callgrind while it runs, but `fettle instrument --layout` writes
//! the layout that the process was given into a copy of its files.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::bench::callgrind::{self, Counted};
use crate::bench::packaged::link_names;
use crate::proc;

/// A piece of a program's work that ends by itself.
pub struct Piece {
    pub program: PathBuf,
    pub arguments: Vec<String>,
    /// Its standard input.
    pub input: Option<PathBuf>,
}

impl Piece {
    /// Its standard input, from the beginning.
    pub fn stdin(&self) -> Result<Stdio> {
        Ok(match &self.input {
            Some(input) => Stdio::from(File::open(input)?),
            None => Stdio::null(),
        })
    }
}

/// Counts `piece` with its files as they are, and with those of `modules` (their paths) laid out by
/// `profile`. The C library is left unmodified: its loader has to be of one piece with it.
///
/// # Errors
///
/// A file that cannot be laid out, and output that is not the original's.
pub fn count(
    piece: &Piece,
    modules: &[&str],
    profile: &Path,
    binary: &Path,
    folder: &Path,
) -> Result<Value> {
    let files = folder.join("files");
    let _ = std::fs::remove_dir_all(&files);
    std::fs::create_dir_all(&files)?;
    let original = std::fs::canonicalize(&piece.program)?;
    let mut program = original.clone();
    for module in modules.iter().map(Path::new) {
        let name = module.file_name().context("a module's file")?;
        if name.to_string_lossy().starts_with("libc.so") {
            continue;
        }
        let new = files.join(name);
        let mut instrument = Command::new(binary);
        instrument.args(["instrument", "--layout"]).arg(profile).arg(module);
        proc::output_of(instrument.arg("-o").arg(&new))?;
        match module == original {
            true => program = new,
            false => link_names(module, &new)?,
        }
    }
    let before = run(piece, &original, None, folder)?;
    let after = run(piece, &program, Some(&files), folder)?;
    ensure!(
        before.stdout == after.stdout,
        "{} says something else when laid out",
        original.display()
    );
    let both = |event: &str| [before.sum(&[event]), after.sum(&[event])];
    Ok(json!({ "instructions": both("Ir"), "misses": both("I1mr") }))
}

/// Runs `piece` as `program`, with libraries of `folder`.
fn run(piece: &Piece, program: &Path, libraries: Option<&Path>, folder: &Path) -> Result<Counted> {
    let mut command = Command::new(program);
    command.args(&piece.arguments);
    command.envs(libraries.map(|folder| ("LD_LIBRARY_PATH", folder)));
    let options = ["--cache-sim=yes", "--I1=32768,8,64"];
    callgrind::count(&command, &options, piece.stdin()?, &folder.join("callgrind"))
}
