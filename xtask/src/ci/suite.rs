//! Runs Cargo's test programs side by side, adds up what they say, and gives what failed a second try alone.
//!
//! Most tests wait for the programs that they observe, so as many test programs run at once as there are processors,
//! each with as many threads. Some tests record and move real servers; on a machine that other work slows, such a test
//! can run out of time. As `cargo nextest` with `--retries 1`, a test that fails beside others and passes alone counts
//! as passed and is named as *flaky*; one that fails twice has failed.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::mpsc;
use std::thread;

use anyhow::Result;

use super::programs::{self, Program, Ran};

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

    /// Adds what a program said.
    fn add(&mut self, target: &str, said: Reading, right: bool) {
        self.passed += said.passed;
        // What ended with success had no failed test, whatever a test of it may have printed.
        self.failed += if right { 0 } else { said.failed };
        self.ignored += said.ignored;
        for why in said.skipped {
            *self.skipped.entry(why).or_default() += 1;
        }
        if !right {
            self.by_target.insert(target.to_owned(), said.names);
        }
    }

    /// Shows what a program printed, and adds it.
    fn show(&mut self, program: &Program, ran: &Ran) {
        println!("\n     Ran {} in {:.1} s", program.target, ran.took.as_secs_f64());
        let mut reading = Reading::default();
        for line in ran.text.lines().filter(|line| reading.line(line)) {
            println!("{line}");
        }
        self.add(&program.target, reading, ran.right);
    }
}

/// Builds and runs those tests of the packages that `packages` of Cargo's arguments choose that `which` do, and those
/// that fail once more. Programs that have not begun when there is no time any more are left out, each counted.
///
/// # Errors
///
/// When something cannot be built or started.
pub fn run(
    packages: &[&str],
    which: &[&str],
    has_time: impl Fn() -> bool + Sync,
) -> Result<Outcome> {
    let mut programs = programs::build(&[packages, which].concat())?;
    if which.is_empty() {
        programs.push(Program::documentation(packages));
    }
    let mut outcome = side_by_side(&programs, &has_time)?;
    for (target, names) in std::mem::take(&mut outcome.by_target) {
        let program = programs.iter().find(|program| program.target == target);
        let Some(program) = program.filter(|_| has_time()) else {
            outcome.by_target.insert(target, names);
            continue;
        };
        println!("\n== once more, alone: {target} {}", names.join(" "));
        let mut arguments = vec!["--show-output", "--test-threads=1", "--exact"];
        arguments.extend(names.iter().map(String::as_str));
        let mut second = Outcome::default();
        second.show(program, &program.run(&arguments)?);
        if second.by_target.is_empty() {
            println!("flaky: {target}: {} failed beside others, passed alone", names.join(", "));
            outcome.failed = outcome.failed.saturating_sub(names.len());
            outcome.passed += if names.is_empty() { second.passed } else { names.len() };
        } else {
            outcome.by_target.insert(target, names);
        }
    }
    Ok(outcome)
}

/// Runs programs, several at once, and shows what each printed when it has ended.
fn side_by_side(programs: &[Program], has_time: &(impl Fn() -> bool + Sync)) -> Result<Outcome> {
    let lanes = thread::available_parallelism().map_or(1, usize::from);
    let rest = Mutex::new(programs.iter());
    // In a function, for a lock in the condition of a loop would be held while the program runs.
    let next = || rest.lock().ok()?.next();
    let (sender, ended) = mpsc::channel();
    thread::scope(|scope| {
        for _ in 0..lanes {
            let sender = sender.clone();
            let next = &next;
            scope.spawn(move || {
                while let Some(program) = next() {
                    let ran = has_time().then(|| program.run(&["--show-output"]));
                    // Who counts has given up: so does this.
                    if sender.send((program, ran)).is_err() {
                        break;
                    }
                }
            });
        }
        // The lanes' own ends are those to wait for.
        drop(sender);
        let mut outcome = Outcome::default();
        for (program, ran) in ended {
            match ran {
                Some(ran) => outcome.show(program, &ran?),
                None => {
                    outcome.ignored += 1;
                    outcome.skipped.insert(format!("no time was left for {}", program.target), 1);
                }
            }
        }
        Ok(outcome)
    })
}

/// Reads what the test runner prints.
#[derive(Default)]
struct Reading {
    passed: usize,
    failed: usize,
    ignored: usize,
    /// Names of failed tests.
    names: Vec<String>,
    /// Why tests have said that they were skipped, one reason a test.
    skipped: Vec<String>,
    /// How many of these are of the result that comes next.
    since_result: usize,
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
                    self.since_result += 1;
                    self.skipped.push(why.to_owned());
                }
                return true;
            }
            return false;
        }
        if let Some(name) =
            line.strip_prefix("test ").and_then(|rest| rest.strip_suffix(" ... FAILED"))
        {
            self.names.push(name.to_string());
        } else if let Some(result) = line.strip_prefix("test result: ") {
            let count = |what: &str| -> usize {
                result
                    .split([';', '.'])
                    .find_map(|part| part.trim().strip_suffix(what)?.trim().parse().ok())
                    .unwrap_or(0)
            };
            let skipped = std::mem::take(&mut self.since_result);
            self.passed += count("passed").saturating_sub(skipped);
            self.failed += count("failed");
            self.ignored += count("ignored") + skipped;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(printed: &[&str]) -> (Reading, Vec<String>) {
        let mut reading = Reading::default();
        let shown = printed.iter().filter(|line| reading.line(line)).map(|line| line.to_string());
        let shown = shown.collect();
        (reading, shown)
    }

    #[test]
    fn results_add_up_and_failures_belong_to_their_program() {
        let mut outcome = Outcome::default();
        let jar = ["test one ... ok", "test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured"];
        outcome.add("-p fettle-jar --lib", read(&jar).0, true);
        let ui =
            ["test page::opens ... FAILED", "test result: FAILED. 4 passed; 1 failed; 0 ignored"];
        outcome.add("-p fettle-cli --test ui", read(&ui).0, false);
        outcome.add("-p fettle-cli --test man", read(&[]).0, false);
        assert_eq!((outcome.passed, outcome.failed, outcome.ignored), (7, 1, 1));
        assert_eq!(
            outcome.failures(),
            [
                "cargo test -p fettle-cli --test man: ended before it could say its result",
                "cargo test -p fettle-cli --test ui: page::opens",
            ]
        );
    }

    #[test]
    fn tests_that_skip_themselves_did_not_pass() {
        let printed = [
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
        ];
        let (reading, shown) = read(&printed);
        let is_shown = |wanted: &str| shown.iter().any(|line| line == wanted);
        assert!(is_shown("skipped 1 test: no babeltrace2"), "{shown:?}");
        assert!(!is_shown("what it prints") && !is_shown("    alone"), "{shown:?}");
        assert_eq!((reading.passed, reading.failed, reading.ignored), (1, 0, 1));
        assert_eq!(reading.skipped, ["no babeltrace2"]);
    }

    #[test]
    fn programs_run_side_by_side_and_those_without_time_are_counted() {
        let programs = [Program::named("one"), Program::named("two")];
        let all = side_by_side(&programs, &|| true).unwrap();
        assert_eq!(all, Outcome::default());
        let none = side_by_side(&programs, &|| false).unwrap();
        assert_eq!(none.ignored, 2);
        assert_eq!(none.skipped.len(), 2);
    }
}
