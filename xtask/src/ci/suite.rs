//! Runs Cargo's tests, adds up what they say, and gives what failed a second try alone.
//!
//! Some tests record and move real servers; on a machine that other work slows, such a test can run out of
//! time. As `cargo nextest` with `--retries 1`, a test that fails beside others and passes alone counts as passed
//! and is named as *flaky*; one that fails twice has failed.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use anyhow::Result;

use crate::repo;

/// Kills a test program that hangs, with all that it has started, so that the others still run: so
/// many seconds is several times what the longest takes.
const RUNNER: &str = "timeout --kill-after=10 600";

/// Where Cargo takes the runner from.
const RUNNER_VARIABLE: &str = "CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER";

/// What a run of tests said.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Tests that passed.
    pub passed: usize,
    /// Tests that failed.
    pub failed: usize,
    /// Tests left out, and those that left out what they cannot do here.
    pub ignored: usize,
    /// Why they did, and how many for that reason.
    pub skipped: BTreeMap<String, usize>,
    /// Names of failed tests by the arguments of Cargo that run their program again (`-p fettle-cli --test
    /// ui`); no names where the program itself ended or was killed.
    pub by_target: BTreeMap<String, Vec<String>>,
    /// Whether Cargo said that all went well.
    pub right: bool,
}

impl Outcome {
    /// A line for each target with something that failed.
    #[must_use]
    pub fn failures(&self) -> Vec<String> {
        let line = |(target, names): (&String, &Vec<String>)| match names.is_empty() {
            true => format!("cargo test {target}: ended before it could say its result"),
            false => format!("cargo test {target}: {}", names.join(", ")),
        };
        self.by_target.iter().map(line).collect()
    }
}

/// Runs those tests of the packages that `packages` of Cargo's arguments choose that `which` do, and those that fail
/// once more.
pub fn run(packages: &[&str], which: &[&str]) -> Result<Outcome> {
    let mut first = run_once(&[packages, which, &["--", "--show-output"]].concat())?;
    // Without a failed test, what failed is the build: that is not tried again.
    let tried = !first.by_target.is_empty();
    for (target, names) in std::mem::take(&mut first.by_target) {
        println!("\n== once more, alone: {target} {}", names.join(" "));
        // With the same packages as at first: of one alone, everything would be built anew, with its features only.
        let program = target.split(' ').skip_while(|word| !word.starts_with("--"));
        let mut again = packages.to_vec();
        again.extend(program);
        again.extend(["--", "--show-output", "--test-threads=1", "--exact"]);
        again.extend(names.iter().map(String::as_str));
        let second = run_once(&again)?;
        if second.right {
            println!("flaky: {target}: {} failed beside others, passed alone", names.join(", "));
            first.failed = first.failed.saturating_sub(names.len());
            first.passed += if names.is_empty() { second.passed } else { names.len() };
        } else {
            first.by_target.insert(target, names);
        }
    }
    first.right |= tried && first.by_target.is_empty() && first.failed == 0;
    Ok(first)
}

/// Runs tests, and shows what they print.
fn run_once(arguments: &[&str]) -> Result<Outcome> {
    // One pipe for both, since only the order of lines says which program a failed test is of.
    let (reader, writer) = std::io::pipe()?;
    let mut command = Command::new("cargo");
    command
        .args(&arguments[..1])
        .arg("--no-fail-fast")
        .args(&arguments[1..])
        .env(RUNNER_VARIABLE, RUNNER)
        .current_dir(repo::root())
        .stdin(Stdio::null())
        .stderr(writer.try_clone()?)
        .stdout(writer);
    let mut child = command.spawn()?;
    // The command holds the other end of the pipe, which would never end.
    drop(command);
    let mut reading = Reading::default();
    for line in BufReader::new(reader).split(b'\n') {
        let line = line?;
        let line = String::from_utf8_lossy(&line);
        if reading.line(&line) {
            println!("{line}");
        }
    }
    let mut outcome = reading.outcome;
    outcome.right = child.wait()?.success();
    Ok(outcome)
}

/// Reads what Cargo and the test runner print.
#[derive(Default)]
struct Reading {
    outcome: Outcome,
    /// Tests of the program that runs which have failed.
    failed: Vec<String>,
    /// Tests of the program that runs which have said that they were skipped.
    skipped: usize,
    /// Where what tests print that passed is read: whether the present one has said that it was skipped.
    successes: Option<bool>,
}

impl Reading {
    /// Takes a line, and says whether it is to be shown. Of what tests print that passed, that is why they were
    /// skipped: the test runner knows no other way for a test to say so while it runs.
    fn line(&mut self, line: &str) -> bool {
        if line == "successes:" {
            self.successes = Some(false);
            return false;
        }
        if line == "failures:" || line.starts_with("test result: ") {
            self.successes = None;
        }
        if let Some(is_skipped) = &mut self.successes {
            if line.starts_with("---- ") && line.ends_with(" stdout ----") {
                *is_skipped = false;
            } else if let Some(why) = line.strip_prefix("skipped") {
                let why = why.split_once(": ").map_or(why, |(_, why)| why);
                if !std::mem::replace(is_skipped, true) {
                    self.skipped += 1;
                    *self.outcome.skipped.entry(why.to_owned()).or_default() += 1;
                }
                return true;
            }
            return false;
        }
        if line.trim_start().starts_with("Running ") || line.trim_start().starts_with("Doc-tests ")
        {
            self.failed.clear();
        } else if let Some(name) =
            line.strip_prefix("test ").and_then(|rest| rest.strip_suffix(" ... FAILED"))
        {
            self.failed.push(name.to_string());
        } else if let Some(target) = line
            .strip_prefix("error: test failed, to rerun pass `")
            .or_else(|| line.strip_prefix("error: doctest failed, to rerun pass `"))
            .and_then(|rest| rest.strip_suffix('`'))
        {
            self.outcome.by_target.insert(target.to_string(), std::mem::take(&mut self.failed));
        } else if let Some(result) = line.strip_prefix("test result: ") {
            let count = |what: &str| -> usize {
                result
                    .split([';', '.'])
                    .find_map(|part| part.trim().strip_suffix(what)?.trim().parse().ok())
                    .unwrap_or(0)
            };
            let skipped = std::mem::take(&mut self.skipped);
            self.outcome.passed += count("passed").saturating_sub(skipped);
            self.outcome.failed += count("failed");
            self.outcome.ignored += count("ignored") + skipped;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_add_up_and_failures_belong_to_their_program() {
        let mut reading = Reading::default();
        let printed = [
            "     Running unittests src/lib.rs (target/debug/deps/fettle_jar-0)",
            "test one ... ok",
            "test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured",
            "     Running tests/others.rs (target/debug/deps/others-0)",
            "test with_babeltrace ... ok",
            "test alone ... ok",
            "",
            "successes:",
            "",
            "---- with_babeltrace stdout ----",
            "what it prints",
            "skipped 1 test: no babeltrace2",
            "skipped: and no other reader",
            "",
            "successes:",
            "    alone",
            "    with_babeltrace",
            "",
            "test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured",
            "     Running tests/ui.rs (target/debug/deps/ui-0)",
            "test page::opens ... FAILED",
            "test result: FAILED. 4 passed; 1 failed; 0 ignored; 0",
            "error: test failed, to rerun pass `-p fettle-cli --test ui`",
            "     Running tests/man.rs (target/debug/deps/man-0)",
            "error: test failed, to rerun pass `-p fettle-cli --test man`",
        ];
        let shown: Vec<&str> = printed.into_iter().filter(|line| reading.line(line)).collect();
        assert!(shown.contains(&"skipped 1 test: no babeltrace2"), "{shown:?}");
        assert!(!shown.contains(&"what it prints") && !shown.contains(&"    alone"), "{shown:?}");
        let outcome = reading.outcome;
        assert_eq!((outcome.passed, outcome.failed, outcome.ignored), (8, 1, 2));
        assert_eq!(outcome.skipped, BTreeMap::from([("no babeltrace2".to_owned(), 1)]));
        assert_eq!(
            outcome.failures(),
            [
                "cargo test -p fettle-cli --test man: ended before it could say its result",
                "cargo test -p fettle-cli --test ui: page::opens",
            ]
        );
    }
}
