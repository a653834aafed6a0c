//! BOLT beside Fettle: a program of the same sources, linked as BOLT needs it, trained on the same
//! work by BOLT's own instrumentation; CPU time of the file as it was linked and of BOLT's file, in
//! turns.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::files::Piece;
use crate::bench::measure;
use crate::{apt, proc};

pub mod builds;

const BOLT: &str = "/usr/lib/llvm-19/bin/llvm-bolt";

/// What its manual has for the best result; relocations let it move functions.
const OPTIMISE: [&str; 6] = [
    "-reorder-blocks=ext-tsp",
    "-reorder-functions=cdsort",
    "-split-functions",
    "-split-all-cold",
    "-split-eh",
    "-icf=1",
];

/// What BOLT is given in the place of Debian's file.
pub struct Peer {
    /// Builds the program with relocations, or finds it.
    pub build: fn() -> Result<PathBuf>,
    /// Rounds of the work that take half a second or more.
    pub rounds: u32,
    /// Functions that it does not work with.
    pub skip: &'static [&'static str],
}

/// Has BOLT optimise the program of `peer` for `piece`, and compares the two for so many rounds.
///
/// # Errors
///
/// A program that cannot be built, or that BOLT breaks.
pub fn measure(peer: &Peer, name: &str, piece: &Piece, rounds: usize) -> Result<Value> {
    apt::ensure(&["bolt-19".to_owned()])?;
    let plain = (peer.build)()?;
    let bolted = optimise(&plain, name, piece, peer.skip)?;
    let say =
        |program: &Path| -> Result<Vec<u8>> { Ok(run(piece, (program, None), Stdio::piped())?.0) };
    ensure!(say(&plain)? == say(&bolted)?, "{} says something else", bolted.display());
    let seconds = in_turns(rounds, |is_new| {
        Ok(run(piece, (if is_new { &bolted } else { &plain }, None), Stdio::null())?.1)
    })?;
    let ratios: Vec<f64> = seconds.iter().map(|(plain, bolted)| plain / bolted).collect();
    Ok(
        json!({ "seconds": seconds, "ratios": ratios, "speed_up": fettle_stats::geometric_mean(&ratios) }),
    )
}

/// The new file, beside the old one: Python finds its library from there.
fn optimise(plain: &Path, name: &str, piece: &Piece, skip: &[&str]) -> Result<PathBuf> {
    let beside = |end: &str| plain.with_file_name(format!("{name}.{end}"));
    let skip = (!skip.is_empty()).then(|| format!("-skip-funcs={}", skip.join(",")));
    trained(plain, beside, skip.as_deref(), piece)
}

/// BOLT's file of a program without symbols and relocations, trained on `piece`; beside it in `folder`.
///
/// # Errors
///
/// With what BOLT says.
pub(super) fn optimise_stripped(plain: &Path, piece: &Piece, folder: &Path) -> Result<PathBuf> {
    apt::ensure(&["bolt-19".to_owned()])?;
    let beside = |end: &str| folder.join(format!("bolt.{end}"));
    trained(plain, beside, Some("--allow-stripped"), piece)
}

/// BOLT's file of a program, trained on `piece`; files lie where `beside` says by their endings.
fn trained(
    plain: &Path,
    beside: impl Fn(&str) -> PathBuf,
    option: Option<&str>,
    piece: &Piece,
) -> Result<PathBuf> {
    let (counting, counts, bolted) = (beside("counting"), beside("fdata"), beside("bolt"));
    let _ = std::fs::remove_file(&counts);
    let bolt = |new: &Path| {
        let mut command = Command::new(BOLT);
        command.arg(plain).arg("-o").arg(new).args(option);
        command
    };
    let file = format!("-instrumentation-file={}", counts.display());
    proc::output_of(bolt(&counting).args(["-instrument", &file]))?;
    run(piece, (&counting, None), Stdio::null())?;
    proc::output_of(bolt(&bolted).arg(format!("-data={}", counts.display())).args(OPTIMISE))?;
    Ok(bolted)
}

/// What the piece's work prints, and the seconds of CPU time that it takes, in `program`, with a library preloaded.
pub(super) fn run(
    piece: &Piece,
    (program, library): (&Path, Option<&Path>),
    stdout: Stdio,
) -> Result<(Vec<u8>, f64)> {
    let mut command = Command::new(program);
    command.envs(library.map(|library| ("LD_PRELOAD", library)));
    command.args(&piece.arguments).stdin(piece.stdin()?).stdout(stdout);
    // Else each run of a Python that was just built begins with compiling its library.
    command.env_remove("PYTHONDONTWRITEBYTECODE");
    let before = measure::children()?;
    let child = command.stderr(Stdio::piped()).spawn().with_context(|| format!("{command:?}"))?;
    let output = child.wait_with_output()?;
    let used = measure::children()? - before;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?}: {}: {said}", output.status);
    Ok((output.stdout, used.as_secs_f64()))
}

/// What old and new take in each round: old, new, new, old, and the other way in the next, so that
/// what changes slowly weighs on both alike.
pub(super) fn in_turns(
    rounds: usize,
    mut run: impl FnMut(bool) -> Result<f64>,
) -> Result<Vec<(f64, f64)>> {
    let mut round = |begins_new: bool| {
        let mut seconds = (0.0, 0.0);
        for is_new in [begins_new, !begins_new, !begins_new, begins_new] {
            let sum = if is_new { &mut seconds.1 } else { &mut seconds.0 };
            *sum += run(is_new)?;
        }
        Ok(seconds)
    };
    (0..rounds).map(|n| round(n % 2 == 1)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_are_balanced() {
        let mut order = String::new();
        let seconds = in_turns(2, |is_new| {
            order.push(if is_new { 'n' } else { 'o' });
            Ok(order.len() as f64)
        });
        assert_eq!(order, "onnonoon");
        assert_eq!(seconds.unwrap(), [(5.0, 5.0), (13.0, 13.0)]);
    }
}
