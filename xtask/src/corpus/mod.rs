//! The differential corpus: independent programs, run plain and recorded.
//!
//! Each entry of `tests/corpus/*.toml` names Debian packages and one deterministic command with
//! real input. The command runs twice, plain and under `fettle record`, in the same folder path
//! made anew from the same template, and everything that can be seen from outside must be the
//! same: both outputs, the exit status or signal, and every file left behind. When something
//! differs, the plain command runs once more: if it differs from itself, the entry is at fault.

mod input;
mod observe;
mod options;
mod place;
mod spec;
mod tally;
mod verdict;

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, Result, ensure};

use crate::{apt, fettle, proc};
use observe::{Side, Stage};
pub use options::Options;
pub use spec::{Entry, Expectation, Kind, load};
pub use tally::Tally;
use verdict::{Finding, Verdict};

/// Runs the corpus and prints its table.
pub fn run(options: &Options) -> Result<Tally> {
    let entries: Vec<Entry> = load()?.into_iter().filter(|e| wanted(e, options)).collect();
    ensure!(!entries.is_empty(), "no entry of the corpus matches");
    if options.list {
        for entry in &entries {
            println!("{:<24} {:<8} {}", entry.name, entry.kind(), entry.command_line());
        }
        return Ok(Tally::default());
    }
    let binary = match options.plain_only {
        true => PathBuf::new(),
        false => fettle::binary(options.fettle.as_deref())?,
    };
    proc::no_core_files();

    let next = AtomicUsize::new(0);
    let tally = Mutex::new(Tally::default());
    std::thread::scope(|scope| {
        for _ in 0..options.jobs.max(1) {
            scope.spawn(|| {
                while let Some(entry) = entries.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let finding = examine(entry, &binary, options);
                    println!("{}", finding.line());
                    tally.lock().unwrap_or_else(std::sync::PoisonError::into_inner).add(finding);
                }
            });
        }
    });
    let tally = tally.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    tally.print();
    if let Some(path) = &options.json {
        std::fs::write(path, tally.to_json()?).with_context(|| path.display().to_string())?;
    }
    Ok(tally)
}

fn wanted(entry: &Entry, options: &Options) -> bool {
    // A refusal has no plain side, and a wrapper refuses nothing.
    if entry.expect == Expectation::Refusal && (options.plain_only || options.behaviour_only) {
        return false;
    }
    let named =
        options.filter.is_empty() || options.filter.iter().any(|f| entry.name.contains(f.as_str()));
    named && (entry.smoke || !options.smoke) && options.kind.is_none_or(|k| k == entry.kind())
}

/// Runs one entry on both sides. Trouble of our own (a package that cannot be had, a set-up that
/// fails) is a finding too.
fn examine(entry: &Entry, binary: &Path, options: &Options) -> Finding {
    if let Err(error) = apt::ensure(&entry.packages) {
        return Finding::new(entry, Verdict::Skipped(format!("{error:#}")));
    }
    let compares = !options.plain_only && !options.behaviour_only;
    let unknown = entry.record.iter().find(|f| f.starts_with("--") && !fettle::has(binary, f));
    if let (true, Some(flag)) = (compares, unknown) {
        let reason = format!("fettle record has no {flag} yet");
        return Finding::new(entry, Verdict::Skipped(reason));
    }
    match compare(entry, binary, options) {
        Ok(finding) => finding,
        Err(error) => Finding::new(entry, Verdict::Broken(format!("{error:#}"))),
    }
}

fn compare(entry: &Entry, binary: &Path, options: &Options) -> Result<Finding> {
    let stage = Stage::prepare(entry)?;
    if entry.expect == Expectation::Refusal {
        let side = Side::Recorded { fettle: binary.to_path_buf(), mode: options.mode.clone() };
        return Ok(Finding::new(
            entry,
            verdict::judge_refusal(entry, &stage.perform(&side, "recorded")?),
        ));
    }
    let plain = stage.perform(&Side::Plain, "plain")?;
    if let Some(trouble) = verdict::unsound(entry, &plain) {
        return Ok(Finding::new(entry, Verdict::Broken(trouble)));
    }
    let other_side = match options.plain_only {
        true => Side::Plain,
        false => Side::Recorded { fettle: binary.to_path_buf(), mode: options.mode.clone() },
    };
    let other = stage.perform(&other_side, "recorded")?;
    let mut verdict = verdict::judge(entry, &plain, &other, options);
    if let Verdict::Differs(_) = verdict {
        let again = stage.perform(&Side::Plain, "again")?;
        let differences = verdict::differences(entry, &plain, &again);
        if !differences.is_empty() {
            verdict = Verdict::Unstable(differences);
        }
    }
    if verdict.passed() && !options.keep {
        stage.clear();
    }
    Ok(Finding::measured(entry, verdict, &plain, &other))
}
