//! What CI runs, and in which order.

mod programs;
mod suite;

use std::fmt;
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::{
    bench, corpus, examples, jar, java, kernel_live, lab, page, proc, repo, rpc, smp, tidy, torture,
};

/// How much of it.
#[derive(clap::Args, Debug, Clone)]
pub struct Options {
    /// Only this part; all of them if it is not given
    #[arg(long, value_enum)]
    pub part: Option<Part>,
    /// The same as `--part quick`
    #[arg(long, conflicts_with = "part")]
    pub quick: bool,
}

/// A part that can be run alone.
#[derive(clap::ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// Format, lints, dependencies, documentation of the code, and unit tests: minutes
    Quick,
    /// Tests that build and run programs, the kernel lab, the Java runtime
    Integration,
    /// What knows the command line only: torture, real programs, guests, documented examples
    Corpus,
}

/// The tests, without the SQL engine, which takes a fresh checkout longer than all the rest:
/// [`query`] tests that. And without the fuzz targets, which have no tests and run for ever.
const TEST: [&str; 6] =
    ["test", "--workspace", "--exclude", "fettle-query", "--exclude", "fettle-fuzz"];

/// No test program begins later in a run, so that a slow machine comes to a result: .ci/run ends after 48 minutes.
const LAST_START: Duration = Duration::from_mins(41);

/// Lints and tests of SQL and the cluster.
const QUERY: [&[&str]; 3] = [
    &["clippy", "-p", "fettle-query", "-p", "fettle-cli", "--features", "fettle-cli/cluster"],
    &["test", "-p", "fettle-query", "--features", "cluster"],
    &[
        "test",
        "-p",
        "fettle-cli",
        "--features",
        "cluster",
        "--test",
        "cluster",
        "--test",
        "requests",
    ],
];

/// Tests what needs the SQL engine.
pub fn query() -> Result<bool> {
    QUERY.iter().try_for_each(|arguments| cargo(arguments))?;
    Ok(true)
}

/// Tests passed, failed and left out so far.
#[derive(Default)]
struct Score {
    passed: usize,
    failed: usize,
    ignored: usize,
    /// What failed, a line each: said again at the end, for a log is long and read from there.
    failures: Vec<String>,
}

impl Score {
    /// Adds what a step counted.
    fn add(&mut self, step: &str, [passed, failed, ignored]: [usize; 3]) {
        self.passed += passed;
        self.failed += failed;
        self.ignored += ignored;
        if failed > 0 {
            self.failures.push(format!("{step}: {failed} failed, see \"== {step}\" above"));
        }
    }

    /// Counts a step that cannot run here, and says why.
    fn skip(&mut self, why: &str) {
        println!("skipped: {why}");
        self.ignored += 1;
    }
}

/// A step that did not come to its end.
struct Broken {
    step: String,
    /// The error: a line, or all that a guest showed.
    why: String,
}

/// So many lines of an error are said again at the end.
const LAST_LINES: usize = 12;

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(&self.step)?;
        let lines: Vec<&str> = self.why.lines().filter(|line| !line.trim().is_empty()).collect();
        // The first line says what failed, the last ones how far it came.
        let skipped = lines.len().saturating_sub(LAST_LINES).max(1);
        lines
            .first()
            .into_iter()
            .chain(lines.iter().skip(skipped))
            .try_for_each(|line| write!(f, "\n    {line}"))
    }
}

/// Runs everything. A failing step does not hide what the later ones would say.
pub fn run(options: &Options) -> Result<bool> {
    elapsed();
    let mut score = Score::default();
    let mut broken = Vec::new();
    let part = if options.quick { Some(Part::Quick) } else { options.part };
    let wants = |this| part.is_none_or(|part| part == this);

    if wants(Part::Quick) {
        checks(&mut score, &mut broken);
    }
    if wants(Part::Corpus) || wants(Part::Integration) {
        say("build");
        // One build for all that follows: compiling is most of the time that a fresh checkout takes.
        note(&mut broken, "build", cargo(&[&TEST[..], &["--no-run", "--quiet"]].concat()));
    }
    if wants(Part::Corpus) && broken.iter().all(|broken| broken.step != "build") {
        outside(&repo::target().join("debug/fettle"), &mut score, &mut broken);
    }
    if wants(Part::Integration) {
        kernel_lab(&mut score, &mut broken);
        java_runtime(&mut score, &mut broken);
    }
    // All tests are one run, as one build is, unless a part is asked for.
    let tests: Option<(&str, &[&str])> = match part {
        None => Some(("unit and integration tests", &[])),
        Some(Part::Quick) => Some(("unit tests", &["--lib", "--bins"])),
        Some(Part::Integration) => Some(("integration tests", &["--tests"])),
        Some(Part::Corpus) => None,
    };
    if let Some((name, which)) = tests {
        say(name);
        note(&mut broken, "tests", tests_of(name, which, &mut score));
    }
    println!("skipped: SQL and the cluster, for the time that their build takes: make test-query");
    score.ignored += 1;

    for broken in &broken {
        println!("failed step: {broken}");
    }
    for failure in &score.failures {
        println!("failed: {failure}");
    }
    score.failed += usize::from(score.failed == 0 && !broken.is_empty());
    // The closing line has the form of the test runner's own, over all steps.
    println!(
        "\ntest result: {}. {} passed; {} failed; {} ignored; 0 measured; 0 filtered out; finished in {:.2}s",
        if score.failed == 0 { "ok" } else { "FAILED" },
        score.passed,
        score.failed,
        score.ignored,
        elapsed().as_secs_f64()
    );
    Ok(score.failed == 0)
}

/// What reads the repository without running what it builds.
fn checks(score: &mut Score, broken: &mut Vec<Broken>) {
    say("format");
    note(broken, "format", cargo(&["fmt", "--all", "--check"]));
    say("lints");
    let clippy = [
        "clippy",
        "--workspace",
        "--exclude",
        "fettle-query",
        "--all-targets",
        "--",
        "-D",
        "warnings",
    ];
    note(broken, "lints", cargo(&clippy));
    say("tidy");
    note(
        broken,
        "tidy",
        tidy::run(&tidy::Options::default())
            .and_then(|clean| clean.then_some(()).context("see above")),
    );

    say("types of the page");
    note_or_skip((score, broken), "types of the page", page::check());
    say("tests of the page");
    match page::test() {
        Ok(Ok(passed)) => score.passed += passed,
        Ok(Err(why)) => {
            score.skip(&why);
        }
        Err(error) => note(broken, "tests of the page", Err(error)),
    }

    say("documentation of the code");
    note(broken, "documentation", documentation());
    say("dependencies");
    note_or_skip((score, broken), "dependencies", dependencies());
}

/// Builds the documentation of all crates, in which no link may be dead.
fn documentation() -> Result<()> {
    let mut doc = Command::new("cargo");
    doc.args(["doc", "--quiet", "--workspace", "--no-deps", "--exclude", "fettle-query"]);
    // Links to private items are for those who read the code.
    doc.env("RUSTDOCFLAGS", "-D warnings -A rustdoc::private-intra-doc-links");
    proc::step(doc.current_dir(repo::root()))
}

/// Checks licences and origins of dependencies by `deny.toml`. Gives the reason if there is nothing to check
/// them with.
fn dependencies() -> Result<Option<String>> {
    if !proc::on_path("cargo-deny") {
        return Ok(Some("there is no cargo-deny; `cargo install cargo-deny` gets it".into()));
    }
    // Advisories are another matter: they change while nothing here does, and need the network.
    cargo(&["deny", "check", "bans", "licenses", "sources"])?;
    Ok(None)
}

/// Builds the kernel lab in two ways and boots it.
fn kernel_lab(score: &mut Score, broken: &mut Vec<Broken>) {
    say("kernel lab");
    if let Some(why) = lab::missing() {
        score.skip(&why);
        return;
    }
    let options = lab::Options { quick: true, ..lab::Options::default() };
    match lab::run(&options).and_then(|right| right.then_some(()).context("see above")) {
        Ok(()) => score.passed += 1,
        Err(error) => note(broken, "kernel lab", Err(error)),
    }
}

/// Tests the Java runtime of translated programs.
fn java_runtime(score: &mut Score, broken: &mut Vec<Broken>) {
    java_tests("Java runtime", (score, broken), java::test);
}

/// Tests of Java's side, in which Maven takes part.
fn java_tests(
    step: &str,
    (score, broken): (&mut Score, &mut Vec<Broken>),
    test: impl Fn() -> Result<java::Outcome>,
) {
    say(step);
    match test() {
        Ok(java::Outcome::Ran { passed, failed, skipped }) => {
            score.add(step, [passed, failed, skipped]);
        }
        Ok(java::Outcome::Skipped(why)) => score.skip(&why),
        Err(error) => note(broken, step, Err(error)),
    }
}

/// Runs gRPC programs with traced stubs.
fn rpc_calls(binary: &Path, score: &mut Score, broken: &mut Vec<Broken>) {
    say("ends of RPC calls");
    match rpc::run(&rpc::Options::brief(binary)) {
        Ok(ran) => score.add("ends of RPC calls", [ran.passed, ran.failed, ran.skipped.len()]),
        Err(error) => note(broken, "ends of RPC calls", Err(error)),
    }
}

/// Everything that knows the tool from outside only.
fn outside(binary: &Path, score: &mut Score, broken: &mut Vec<Broken>) {
    say("torture");
    match torture::run(&torture::Options::quick(binary)) {
        Ok(tally) => score.add("torture", [tally.succeeded(), tally.failed(), tally.skipped()]),
        Err(error) => note(broken, "torture", Err(error)),
    }
    say("corpus, smoke subset");
    match corpus::run(&corpus::Options::smoke(binary)) {
        Ok(tally) => {
            score.add("corpus, smoke subset", [tally.succeeded(), tally.failed(), tally.skipped()]);
        }
        Err(error) => note(broken, "corpus", Err(error)),
    }
    rpc_calls(binary, score, broken);
    guest("lent processors, in a guest", (score, broken), || {
        smp::run(&smp::Options::brief(binary))
    });
    guest("rewritten text in a running kernel, in a guest", (score, broken), || {
        kernel_live::run(&kernel_live::Options::brief(binary))
    });
    for (machine, what) in [
        (jar::Machine::Mips, "gcc's tests and random programs as jars, a few"),
        (jar::Machine::Riscv, "the same for RISC-V"),
    ] {
        say(what);
        match jar::run(&jar::Options::quick(binary, machine)) {
            Ok(tally) => score.add(what, [tally.passed, tally.failed.len(), tally.left_out]),
            Err(error) if jar::has_tools(machine) => note(broken, what, Err(error)),
            Err(error) => {
                score.skip(&format!("{error:#}"));
            }
        }
    }
    java_tests("projects of Maven with jars", (score, broken), || {
        jar::maven::run(&jar::maven::Options { fettle: Some(binary.to_path_buf()) })
    });
    say("documented examples, those that take seconds");
    match examples::run(&examples::Options::quick(binary)) {
        Ok(ran) => score.add(
            "documented examples, those that take seconds",
            [ran.passed, ran.failed, ran.skipped],
        ),
        Err(error) => note(broken, "documented examples", Err(error)),
    }
    say(
        "probe effect (by the tests' build: what the recorder takes beside the program is not a release's)",
    );
    let quick = bench::Bench::Probe(bench::probe::Options::quick(binary));
    note(broken, "probe effect", bench::run(&quick).map(drop));
}

/// Runs cases in a guest. One that does not come to its end has a second try, as tests have: another load of
/// the machine may have taken its time. Both are named.
fn guest(
    step: &str,
    (score, broken): (&mut Score, &mut Vec<Broken>),
    run: impl Fn() -> Result<smp::Score>,
) {
    say(step);
    let ran = run().or_else(|error| {
        println!("{step}: {error:#}\n== once more: {step}");
        let again = run()?;
        println!("flaky: {step}: did not come to its end at first, see above");
        anyhow::Ok(again)
    });
    match ran {
        Ok(ran) => {
            score.add(step, [ran.passed, ran.failed, 0]);
            score.failures.extend(ran.wrong);
            if let Some(why) = ran.skipped {
                score.skip(&why);
            }
        }
        Err(error) => note(broken, step, Err(error)),
    }
}

/// Begins a step, and says how long all before it took: what makes a run long is found by that.
fn say(step: &str) {
    println!("\n== {step} (after {} s)", elapsed().as_secs());
}

/// Since this was asked for the first time, which is when the run begins.
fn elapsed() -> Duration {
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed()
}

/// Notes what came of a step that gives a reason where something is missing that it needs.
fn note_or_skip(
    (score, broken): (&mut Score, &mut Vec<Broken>),
    step: &str,
    outcome: Result<Option<String>>,
) {
    match outcome {
        Ok(None) => {}
        Ok(Some(why)) => {
            score.skip(&why);
        }
        Err(error) => note(broken, step, Err(error)),
    }
}

fn note(broken: &mut Vec<Broken>, step: &str, outcome: Result<()>) {
    if let Err(error) = outcome {
        println!("{step}: {error:#}");
        broken.push(Broken { step: step.to_string(), why: format!("{error:#}") });
    }
}

fn cargo(arguments: &[&str]) -> Result<()> {
    proc::step(Command::new("cargo").args(arguments).current_dir(repo::root()))
}

/// Runs all tests, or those of the kinds that arguments name.
fn tests_of(step: &str, which: &[&str], score: &mut Score) -> Result<()> {
    let ran = suite::run(&TEST, which, || elapsed() < LAST_START)?;
    score.passed += ran.passed;
    score.failed += ran.failed;
    score.ignored += ran.ignored;
    for (why, tests) in &ran.skipped {
        println!("skipped: {tests} of {step}: {why}");
    }
    let failures = ran.failures();
    if !failures.is_empty() {
        score.failures.extend(failures);
        bail!("{step}: see what failed");
    }
    Ok(())
}
