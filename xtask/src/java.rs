//! The Java runtime of translated programs: its own build and tests, by Maven.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::{apt, proc, repo};

/// What the tests compile guests with, and what they compare them with.
const PACKAGES: [&str; 7] = [
    "default-jdk-headless",
    "maven",
    "g++-mips-linux-gnu",
    "g++-mipsel-linux-gnu",
    "gcc-mips-linux-gnu",
    "gcc-mipsel-linux-gnu",
    "qemu-user-static",
];

/// What came of it.
pub enum Outcome {
    /// Tests that ran, and how they ended.
    Ran {
        /// Those that passed.
        passed: usize,
        /// Those that did not.
        failed: usize,
        /// Those that lacked a tool.
        skipped: usize,
    },
    /// Why none could run.
    Skipped(String),
}

/// Why nothing can be built, after what is missing was installed if that is possible.
pub fn missing() -> Option<String> {
    let packages: Vec<String> = PACKAGES.iter().map(|name| String::from(*name)).collect();
    let installed = apt::ensure(&packages);
    let there = proc::on_path("mvn") && proc::on_path("javac");
    installed.err().filter(|_| !there).map(|error| format!("{error:#}"))
}

/// Why Maven failed, if it is that something could not be fetched.
pub fn cannot_fetch(said: &str) -> Option<String> {
    let line = said.lines().find(|line| line.contains("ould not transfer artifact"))?;
    Some(format!("Maven cannot get what it needs: {line}"))
}

impl Outcome {
    /// Says what came of it. Whether nothing failed.
    pub fn is_good(&self) -> bool {
        match self {
            Self::Ran { passed, failed, skipped } => {
                println!("{passed} passed; {failed} failed; {skipped} left out");
                *failed == 0
            }
            Self::Skipped(why) => {
                println!("skipped: {why}");
                true
            }
        }
    }
}

/// Runs the tests.
pub fn test() -> Result<Outcome> {
    if let Some(why) = missing() {
        return Ok(Outcome::Skipped(why));
    }
    let project = repo::root().join("runtime/jvm");
    // Whether Maven gets what the build needs is one thing, what the tests say another.
    let offline = maven(&project, "test-compile").output().context("starting mvn")?;
    if !offline.status.success() {
        let text = String::from_utf8_lossy(&offline.stdout).into_owned();
        return match cannot_fetch(&text) {
            Some(why) => Ok(Outcome::Skipped(why)),
            None => bail!("mvn test-compile in {} failed:\n{text}", project.display()),
        };
    }
    let reports = project.join("target/surefire-reports");
    if reports.exists() {
        std::fs::remove_dir_all(&reports)?;
    }
    let status = maven(&project, "test").status().context("starting mvn")?;
    let outcome = count(&reports)?;
    if !status.success() && matches!(outcome, Outcome::Ran { failed: 0, .. }) {
        bail!("mvn test in {} failed without a failing test", project.display());
    }
    Ok(outcome)
}

fn maven(project: &Path, goal: &str) -> Command {
    let mut maven = Command::new("mvn");
    maven.args(["-q", "-B", goal]).current_dir(project);
    maven
}

/// Adds up what the test runner wrote, a file a class.
pub fn count(reports: &Path) -> Result<Outcome> {
    let (mut passed, mut failed, mut skipped) = (0, 0, 0);
    for entry in std::fs::read_dir(reports).context("the test runner left no reports")? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "xml") {
            let text = std::fs::read_to_string(&path)?;
            let bad = attribute(&text, "errors") + attribute(&text, "failures");
            let left_out = attribute(&text, "skipped");
            passed += attribute(&text, "tests") - bad - left_out;
            failed += bad;
            skipped += left_out;
        }
    }
    Ok(Outcome::Ran { passed, failed, skipped })
}

/// A number in the opening tag of the suite; 0 where it has none.
fn attribute(text: &str, name: &str) -> usize {
    let suite = text.find("<testsuite ").map_or("", |at| &text[at..]);
    let suite = suite.split('>').next().unwrap_or_default();
    suite
        .split_once(&format!(" {name}=\""))
        .and_then(|(_, rest)| rest.split('"').next())
        .and_then(|digits| digits.parse().ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_a_report() {
        let text = "<?xml version=\"1.0\"?>\n<testsuite xmlns:x=\"y\" name=\"a\" tests=\"12\" \
                    errors=\"1\" skipped=\"2\" failures=\"0\">\n<testcase tests=\"9\"/>";
        assert_eq!(attribute(text, "tests"), 12);
        assert_eq!(attribute(text, "errors"), 1);
        assert_eq!(attribute(text, "skipped"), 2);
        assert_eq!(attribute(text, "failures"), 0);
        assert_eq!(attribute("nothing", "tests"), 0);
    }
}
