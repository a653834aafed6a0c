//! The page in `ui`: plain scripts whose types stand in comments, checked by TypeScript; those that draw nothing
//! have tests in `tests/page`, for Node's own runner.

use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::{proc, repo};

/// The checker's version.
const TYPESCRIPT: &str = "typescript@7.0.2";

/// Checks the page's types. Gives the reason if there is nothing to check them with.
pub fn check() -> Result<Option<String>> {
    if !proc::on_path("npx") {
        return Ok(Some("there is no npx".into()));
    }
    let tsc = || {
        let mut npx = Command::new("npx");
        npx.args(["--yes", "--package", TYPESCRIPT, "tsc"]).current_dir(repo::root());
        npx
    };
    // Whether it can be had is one thing, what it says another.
    if let Err(error) = proc::output_of(tsc().arg("--version")) {
        return Ok(Some(format!("npx cannot get {TYPESCRIPT}: {error}")));
    }
    proc::step(tsc().args(["--project", "ui"]))?;
    Ok(None)
}

/// Runs the tests of those parts of the page that draw nothing; gives how many passed, or the reason if there is
/// nothing to run them with.
pub fn test() -> Result<Result<usize, String>> {
    if !proc::on_path("node") {
        return Ok(Err("there is no node".into()));
    }
    let mut node = Command::new("node");
    node.args(["--test", "--test-reporter=tap", "tests/page"]).current_dir(repo::root());
    let output = node.output().context("node")?;
    let text = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        print!("{text}");
        bail!("node --test tests/page: {}", output.status);
    }
    let passed = text.lines().find_map(|line| line.strip_prefix("# pass ")?.parse().ok());
    passed.map(Ok).context("Node's tests have no line `# pass`")
}
