//! Every documented example, run: those of README.md, of the users' pages and of help texts.
//!
//! A page that says what a command prints is wrong some day, and readers believe it. So each one
//! is run with real programs, and its status and the shape of its output are compared.

mod help;
mod page;
mod session;
mod shape;

use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::{apt, fettle, repo};
use page::{ANY_STATUS, Example, Page};
use session::Ran;

/// What to run.
#[derive(clap::Args, Debug, Clone, Default)]
pub struct Options {
    /// Only pages that take seconds
    #[arg(long)]
    pub quick: bool,
    /// Write what commands print into the pages where they say nothing, or something else
    #[arg(long)]
    pub bless: bool,
    /// This binary instead of a fresh release build
    #[arg(long)]
    pub fettle: Option<PathBuf>,
    /// Only pages whose names have one of these in them
    pub pages: Vec<String>,
}

impl Options {
    /// What CI runs.
    pub fn quick(binary: &Path) -> Options {
        Options { quick: true, fettle: Some(binary.into()), ..Options::default() }
    }
}

/// Passed, failed, skipped.
#[derive(Default, Debug)]
pub struct Score {
    /// Examples that did what their page says.
    pub passed: usize,
    /// Others.
    pub failed: usize,
    /// Pages for which something is missing.
    pub skipped: usize,
}

/// Most lines of output that are written into a page.
const MOST_LINES: usize = 12;

/// Runs them.
pub fn run(options: &Options) -> Result<Score> {
    let binary = fettle::binary(options.fettle.as_deref())?;
    let mut score = Score::default();
    for page in pages(&binary)? {
        let chosen = options.pages.is_empty()
            || options.pages.iter().any(|part| page.name.contains(part.as_str()));
        if !chosen || (options.quick && !page.quick) || page.steps.is_empty() {
            continue;
        }
        if let Some(why) = lacks(&page) {
            println!("skipped: {}: {why}", page.name);
            score.skipped += 1;
            continue;
        }
        let mut results = session::run(&page, &binary)?;
        // Pages show times and counts, which a busy machine changes: CI gives a page a second try, as it does tests.
        if options.quick && !all_wrong(&page, &results).is_empty() {
            println!("flaky: {}, unless it is wrong again", page.name);
            results = session::run(&page, &binary)?;
        }
        let wrong = all_wrong(&page, &results);
        for (example, ran, why) in &wrong {
            println!("{}:{}: {}\n  {why}", page.name, example.line + 1, example.command);
            ran.output.iter().take(20).for_each(|line| println!("  | {line}"));
        }
        println!("{}: {} of {} right", page.name, results.len() - wrong.len(), results.len());
        score.failed += wrong.len();
        score.passed += results.len() - wrong.len();
        if options.bless && page.name.ends_with(".md") {
            bless(&page, &results)?;
        }
    }
    println!(
        "examples: {} right, {} wrong, {} pages skipped",
        score.passed, score.failed, score.skipped
    );
    Ok(score)
}

/// README.md, the users' pages, and helps.
fn pages(binary: &Path) -> Result<Vec<Page>> {
    let mut names = vec!["README.md".to_owned()];
    for entry in std::fs::read_dir(repo::root().join("docs/user"))? {
        names.push(format!("docs/user/{}", entry?.file_name().to_string_lossy()));
    }
    names.sort();
    let read =
        |name: &String| Page::parse(name, &std::fs::read_to_string(repo::root().join(name))?);
    let mut pages = names.iter().map(read).collect::<Result<Vec<Page>>>()?;
    pages.extend(help::pages(binary)?);
    Ok(pages)
}

/// What a page needs and is not there.
fn lacks(page: &Page) -> Option<String> {
    let is_root = nix::unistd::geteuid().is_root();
    if page.needs.iter().any(|need| need == "root") && !is_root {
        return Some("needs root".into());
    }
    let packages: Vec<String> = page.needs.iter().filter(|need| *need != "root").cloned().collect();
    apt::ensure(&packages).err().map(|error| format!("{error:#}"))
}

/// The examples of a page that did something else than it says, and what.
fn all_wrong<'a>(page: &'a Page, results: &'a [Ran]) -> Vec<(&'a Example, &'a Ran, String)> {
    let examples = page.examples().zip(results);
    examples.filter_map(|(example, ran)| Some((example, ran, wrong(example, ran)?))).collect()
}

/// What is wrong with what a command did.
fn wrong(example: &Example, ran: &Ran) -> Option<String> {
    match ran.status {
        None => Some("the page did not come to it in time".into()),
        Some(0 | 1) if example.status == ANY_STATUS => None,
        Some(status) if status != example.status => {
            Some(format!("ended with status {status}, not {}", example.status))
        }
        Some(_) => shape::missing(&example.output, &ran.output)
            .map(|line| format!("the page says, and it does not print: {line}")),
    }
}

/// Writes into the page what its commands print, where it says nothing or something else.
fn bless(page: &Page, results: &[Ran]) -> Result<()> {
    let file = repo::root().join(&page.name);
    let text = std::fs::read_to_string(&file)?;
    let mut lines: Vec<String> = text.lines().map(String::from).collect();
    let pairs: Vec<(&Example, &Ran)> = page.examples().zip(results).collect();
    for (example, ran) in pairs.into_iter().rev() {
        if !example.output.is_empty() && wrong(example, ran).is_none() {
            continue;
        }
        let mut new: Vec<String> = ran.output.iter().take(MOST_LINES).cloned().collect();
        if ran.output.len() > new.len() {
            new.push("...".into());
        }
        let first = example.line + example.lines;
        lines.splice(first..first + example.output.len(), new);
    }
    std::fs::write(&file, lines.join("\n") + "\n")?;
    Ok(())
}
