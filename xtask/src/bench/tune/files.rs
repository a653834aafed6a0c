//! What the same layout does to files: how many instructions a bounded piece of the work takes, and
//! how many of them miss the cache, by callgrind.
//!
//! A process cannot be moved under callgrind while it runs, but `fettle instrument --layout` writes
//! the layout that the process was given into a copy of its files.

use std::fs::File;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::{apt, proc};

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

/// Instructions, and those of them that were not in the first cache.
struct Counted {
    instructions: u64,
    misses: u64,
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
    apt::ensure(&["valgrind".to_owned()])?;
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
    ensure!(before.1 == after.1, "{} says something else when laid out", original.display());
    let both = |of: fn(&Counted) -> u64| [of(&before.0), of(&after.0)];
    Ok(json!({ "instructions": both(|c| c.instructions), "misses": both(|c| c.misses) }))
}

/// Gives `new` the names beside it that lead to `module`: the loader looks for one of them.
fn link_names(module: &Path, new: &Path) -> Result<()> {
    let folder = module.parent().context("a folder")?;
    for entry in std::fs::read_dir(folder)?.flatten() {
        let here = new.with_file_name(entry.file_name());
        let leads_there = std::fs::canonicalize(entry.path()).is_ok_and(|path| path == module);
        if leads_there && !here.exists() {
            symlink(new, here)?;
        }
    }
    Ok(())
}

/// Runs `piece` as `program`, with libraries of `folder`; gives what was counted and what it printed.
fn run(
    piece: &Piece,
    program: &Path,
    libraries: Option<&Path>,
    folder: &Path,
) -> Result<(Counted, Vec<u8>)> {
    let counts = folder.join("callgrind");
    let mut command = Command::new("valgrind");
    command.args(["--quiet", "--tool=callgrind", "--cache-sim=yes", "--I1=32768,8,64"]);
    command.arg(format!("--callgrind-out-file={}", counts.display()));
    command.arg(program).args(&piece.arguments);
    command.stdin(piece.stdin()?);
    command.envs(libraries.map(|folder| ("LD_LIBRARY_PATH", folder)));
    let output = command.output().context("valgrind")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?}: {}: {said}", output.status);
    Ok((read(&std::fs::read_to_string(&counts)?).context("callgrind's totals")?, output.stdout))
}

/// The totals of callgrind's output.
fn read(counts: &str) -> Option<Counted> {
    let after = |head: &str| counts.lines().find_map(|line| line.strip_prefix(head));
    let events: Vec<&str> = after("events:")?.split_whitespace().collect();
    let totals: Vec<&str> = after("totals:")?.split_whitespace().collect();
    let total = |event: &str| {
        let i = events.iter().position(|known| *known == event)?;
        totals.get(i)?.parse().ok()
    };
    Some(Counted { instructions: total("Ir")?, misses: total("I1mr")? })
}
