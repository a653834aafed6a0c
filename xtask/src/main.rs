//! Command line of the chores. Each subcommand is one module of the library.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use xtask::{
    attach, bench, census, ci, corpus, demo, dist, docs, examples, fleet, fuzz, jar, kernel,
    kernel_live, lab, papers, requests, rpc, smp, tidy, torture,
};

/// Chores of the Fettle repository.
#[derive(Parser)]
#[command(name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Subcommand)]
enum Chore {
    /// Everything that CI runs: format, lints, tests, torture, the corpus' smoke subset
    Ci(ci::Options),
    /// Lints and tests of SQL and the cluster, which take long to build
    Query,
    /// Checks on the repository's own text
    Tidy(tidy::Options),
    /// Runs real programs plain and recorded, and compares everything that can be seen
    Corpus(corpus::Options),
    /// Builds the torture program in many ways and compares plain and recorded runs
    Torture(torture::Options),
    /// Rewrites running servers and reverts them, again and again, under load
    Attach(attach::Options),
    /// Has `fettle tuned` look after servers under load, kills it again and again, and reverts all of it
    Fleet(fleet::Options),
    /// Compares the census of a kernel's locks with what coccinelle and unifdef find
    Census(census::Options),
    /// Translates gcc's tests and random programs to jars and compares them with QEMU
    JarTorture(jar::Options),
    /// Runs SQLite, Lua, tcc and the like as jars and compares them with QEMU
    JarPrograms(jar::real::Options),
    /// Runs a jar for small devices in MicroEmulator and one for Android through D8
    JarDevices(jar::devices::Options),
    /// Builds the sample of the Maven plugin, and a project that depends on an installed jar
    JarMaven(jar::maven::Options),
    /// Builds the kernel lab, boots it in QEMU, finds its races, and measures what locks cost it
    Lab(lab::Options),
    /// Benchmarks
    #[command(subcommand)]
    Bench(bench::Bench),
    /// Measures the headline results of the papers again, and writes a page for each
    Papers(papers::Options),
    /// Runs the fuzz targets for a while
    Fuzz(fuzz::Options),
    /// Runs every documented example, and compares what it prints
    Examples(examples::Options),
    /// Checks the book, writes the reference of all commands, and builds it where mdBook is installed
    Docs(docs::Options),
    /// Lends processors of guests with stock kernels, and runs programs there
    Smp(smp::Options),
    /// Takes snapshots of running kernels in guests, for tests without one
    Kernel(kernel::Options),
    /// Brings rewritten text into the kernels of guests and takes it out again, under load
    KernelLive(kernel_live::Options),
    /// Records servers of runtimes whose tasks share threads, and scores the requests found in them
    Requests(requests::Options),
    /// Runs gRPC programs with traced stubs, and checks that each call ends once in what they report
    Rpc(rpc::Options),
    /// Builds the release binary without debug information, and Debian packages of it
    Dist(dist::Options),
    /// Records a real server under load and shows what comes out
    Demo(demo::Options),
}

fn main() -> ExitCode {
    let outcome = match Arguments::parse().chore {
        Chore::Dist(options) => dist::run(&options),
        Chore::Ci(options) => ci::run(&options),
        Chore::Query => ci::query(),
        Chore::Tidy(options) => tidy::run(&options),
        Chore::Corpus(options) => corpus::run(&options).map(|tally| tally.passed()),
        Chore::Torture(options) => torture::run(&options).map(|tally| tally.passed()),
        Chore::Attach(options) => attach::run(&options),
        Chore::Fleet(options) => fleet::run(&options),
        Chore::Census(options) => census::run(&options),
        Chore::JarTorture(options) => jar::run(&options).map(|tally| tally.failed.is_empty()),
        Chore::JarPrograms(options) => {
            jar::real::run(&options).map(|tally| tally.failed.is_empty())
        }
        Chore::JarDevices(options) => jar::devices::run(&options),
        Chore::JarMaven(options) => jar::maven::run(&options).map(|outcome| outcome.is_good()),
        Chore::Lab(options) => lab::run(&options),
        Chore::Bench(which) => bench::run(&which),
        Chore::Papers(options) => papers::run(&options),
        Chore::Fuzz(options) => fuzz::run(&options),
        Chore::Examples(options) => examples::run(&options).map(|score| score.failed == 0),
        Chore::Docs(options) => docs::run(&options),
        Chore::Smp(options) => smp::run(&options).map(|score| score.is_good()),
        Chore::Kernel(options) => kernel::run(&options),
        Chore::KernelLive(options) => kernel_live::run(&options).map(|score| score.is_good()),
        Chore::Requests(options) => requests::run(&options),
        Chore::Rpc(options) => rpc::run(&options).map(|score| score.failed == 0),
        Chore::Demo(options) => demo::run(&options),
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(2)
        }
    }
}
