//! Checks on the repository's own text: what a reviewer should not have to look for.

mod arrows;
mod figures;
mod identifiers;
mod length;
mod links;
mod modules;
mod numbers;
mod paths;
mod rooms;
mod size;
mod source;
mod text;
mod words;

use std::path::PathBuf;
use std::process::Command;

use anyhow::Result;

use crate::{proc, repo};
use source::{Problem, Source};

/// What to do besides checking.
#[derive(clap::Args, Debug, Clone, Default)]
pub struct Options {
    /// Write down the present length of long functions as the most that is allowed
    #[arg(long)]
    pub bless: bool,
}

/// Checks everything and prints what is wrong.
pub fn run(options: &Options) -> Result<bool> {
    let sources = sources()?;
    if options.bless {
        length::bless(&sources)?;
    }
    let problems = check(&sources)?;
    for problem in &problems {
        println!("{}: {}", problem.place, problem.what);
    }
    println!("tidy: {} files, {} problems", sources.len(), problems.len());
    Ok(problems.is_empty())
}

/// Every problem in these files.
pub fn check(sources: &[Source]) -> Result<Vec<Problem>> {
    let mut problems = Vec::new();
    for source in sources {
        text::check(source, &mut problems);
        paths::check(source, &mut problems);
        words::check(source, &mut problems);
        identifiers::check(source, &mut problems);
        numbers::check(source, &mut problems);
        size::check(source, &mut problems);
    }
    figures::check(sources, &mut problems);
    links::check(sources, &mut problems);
    rooms::check(sources, &mut problems);
    text::check_unsafe_is_forbidden(sources, &mut problems);
    length::check(sources, &mut problems)?;
    arrows::check(sources, &mut problems);
    modules::check(sources, &mut problems)?;
    Ok(problems)
}

/// What is wrong with the book: dead links, and pages that its contents do not list.
pub fn book() -> Result<Vec<Problem>> {
    let mut problems = Vec::new();
    links::check(&sources()?, &mut problems);
    Ok(problems)
}

/// The text files that git knows or would add.
pub fn sources() -> Result<Vec<Source>> {
    let mut git = Command::new("git");
    git.current_dir(repo::root());
    git.args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]);
    let list = proc::output_of(&mut git)?;
    let mut names: Vec<&str> = list.split('\0').filter(|name| !name.is_empty()).collect();
    names.sort_unstable();
    names.dedup();
    let read = |name: &str| {
        let path: PathBuf = repo::root().join(name);
        let text = String::from_utf8(std::fs::read(path).ok()?).ok()?;
        (!text.contains('\0')).then(|| Source { name: name.into(), text })
    };
    Ok(names.into_iter().filter_map(read).collect())
}
