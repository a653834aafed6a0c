//! The book: its links, the reference of all commands, and mdBook where it is installed.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Result, ensure};

use crate::{fettle, proc, repo, tidy};

/// What to do.
#[derive(clap::Args, Debug, Clone)]
pub struct Options {
    /// This binary instead of a fresh release build
    #[arg(long)]
    pub fettle: Option<PathBuf>,
}

/// Checks and builds it.
pub fn run(options: &Options) -> Result<bool> {
    let problems = tidy::book()?;
    for problem in &problems {
        println!("{}: {}", problem.place, problem.what);
    }
    let binary = fettle::binary(options.fettle.as_deref())?;
    let pages = repo::target_folder("man")?;
    proc::output_of(Command::new(&binary).arg("man").arg(&pages))?;
    let count = std::fs::read_dir(&pages)?.count();
    ensure!(count > 1, "no manual page of a command in {}", pages.display());
    println!("docs: {count} manual pages in {}", pages.display());
    if proc::on_path("mdbook") {
        proc::step(Command::new("mdbook").arg("build").arg(repo::root().join("docs")))?;
        println!("docs: the book is {}", repo::target().join("book/index.html").display());
    } else {
        println!("docs: mdbook is not installed, so only links were checked");
    }
    Ok(problems.is_empty())
}
