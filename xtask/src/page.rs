//! Types of the page in `ui`: plain scripts whose types stand in comments, checked by TypeScript.

use std::process::Command;

use anyhow::Result;

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
