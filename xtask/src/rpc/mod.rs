//! `cargo xtask rpc`: real gRPC programs with stubs of `protoc-gen-fettle`, and whether each of their calls is
//! reported once, with the right end, however it ends.

mod blind;
mod chain;
pub mod language;
mod matrix;
mod proxy;
mod trees;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;
use clap::{Args, ValueEnum};

use chain::Ids;
use language::Missing;
pub use language::{Aim, Language, Stubs};

use crate::{fettle, proc, repo};

/// What to run.
#[derive(Args, Debug, Clone)]
pub struct Options {
    /// Languages [default: all]
    #[arg(value_enum)]
    languages: Vec<Language>,
    /// What stubs record
    #[arg(long, default_value = "performance")]
    mode: String,
    /// Run a chain of servers in all languages instead, with so many calls of the first
    #[arg(long, value_name = "CALLS")]
    chain: Option<u32>,
    /// Calls of the chain carry no ids: `fettle import --without-ids` has to find what belongs together
    #[arg(long, requires = "chain")]
    without_ids: bool,
    /// With the kernel's events beside, which need root
    #[arg(long, requires = "without_ids")]
    kernel: bool,
    /// The fettle to test [default: built from this tree]
    #[arg(long, value_name = "FILE")]
    fettle: Option<PathBuf>,
}

/// Cases, and why there are none.
#[derive(Debug, Default)]
pub struct Score {
    /// As they should be.
    pub passed: usize,
    /// Not so.
    pub failed: usize,
    /// Why a language was left out.
    pub skipped: Vec<String>,
}

impl Options {
    /// What CI runs.
    pub fn brief(binary: &Path) -> Options {
        Options {
            languages: Vec::new(),
            mode: "performance".to_owned(),
            chain: None,
            without_ids: false,
            kernel: false,
            fettle: Some(binary.to_owned()),
        }
    }
}

/// Runs the matrix in each language.
pub fn run(options: &Options) -> Result<Score> {
    let binary = match &options.fettle {
        Some(binary) => binary.clone(),
        None => fettle::binary(None)?,
    };
    let plugin = plugin()?;
    if let Some(roots) = options.chain {
        let id = if options.without_ids { "none" } else { "traceparent" };
        let stubs = Stubs::Woven(format!("mode={},id={id}", options.mode));
        let build = |language: Language| language.build(&plugin, &stubs, Aim::Speed);
        let ids = match (options.without_ids, options.kernel) {
            (false, _) => Ids::Sent,
            (true, false) => Ids::None,
            (true, true) => Ids::Kernel,
        };
        let (right, all) = chain::run(&build, &binary, roots, ids)?;
        return Ok(Score { passed: right, failed: all - right, ..Score::default() });
    }
    let languages = match options.languages.is_empty() {
        true => Language::value_variants(),
        false => &options.languages,
    };
    let mut score = Score::default();
    for language in languages {
        let name = language.name();
        let stubs = format!("mode={},id=traceparent", options.mode);
        let programs = match language.build(&plugin, &Stubs::Woven(stubs), Aim::Calls) {
            Ok(programs) => programs,
            Err(error) if error.is::<Missing>() => {
                let why = format!("calls in {name}: {error:#}");
                println!("skipped: {why}");
                score.skipped.push(why);
                continue;
            }
            Err(error) => {
                println!("failed: calls in {name}: {error:#}");
                score.failed += 1;
                continue;
            }
        };
        let cells = matrix::run(&programs, &binary, *language)?;
        matrix::print(&name, &cells);
        let right = cells.iter().flatten().filter(|cell| cell.right).count();
        score.passed += right;
        score.failed += cells.iter().flatten().count() - right;
    }
    println!("\n{} of {} cells are right", score.passed, score.passed + score.failed);
    Ok(score)
}

/// The plugin, built from this tree.
pub fn plugin() -> Result<PathBuf> {
    proc::step(Command::new("cargo").args(["build", "--quiet", "-p", "fettle-rpc"]))?;
    Ok(repo::target().join("debug/protoc-gen-fettle"))
}
