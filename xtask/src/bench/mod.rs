//! Benchmarks: probe effect, lifting and reading speed. Every number is a ratio within one run.

use anyhow::Result;

mod callgrind;
pub mod census;
pub mod decisions;
pub mod import;
pub mod jar;
pub mod kernel;
pub mod kernel_tune;
pub mod lift;
pub mod locks;
pub mod machine;
pub mod measure;
pub mod misses;
pub mod packaged;
mod peers;
pub mod probe;
pub mod probes;
pub mod programs;
pub mod rpc;
pub mod sample;
pub mod smp;
pub mod spans;
pub mod transport;
pub mod tune;
pub mod variants;
pub mod watch;

/// Which benchmark.
#[derive(clap::Subcommand, Debug, Clone)]
pub enum Bench {
    /// What probes cost, next to what other tools' probes cost, in one interleaved run
    Probe(probe::Options),
    /// What it costs a program that its calls are observed, by each means, here and in a guest
    Probes(probes::Options),
    /// What probes cost programs as their packages have them: time, instructions, modelled misses
    Packaged(packaged::Options),
    /// What a system call misses in modelled caches and TLBs, natively and on a User-Mode Linux, in a guest
    Misses(misses::Options),
    /// How well sampled times agree with full timing
    Sample(sample::Options),
    /// How fast programs are lifted, and how much of them
    Lift(lift::Options),
    /// How fast traces in the Common Trace Format are read, next to babeltrace2
    Import(import::Options),
    /// What recording the kernel's events costs servers, next to other tools
    Kernel(kernel::Options),
    /// What counting locks costs programs, next to other tools
    Locks(locks::Options),
    /// How fast source code is counted
    Census(census::Options),
    /// How fast programs are as jars, next to native ones, QEMU and plain Java
    Jar(jar::Options),
    /// What traced RPC stubs cost a call, next to OpenTelemetry
    Rpc(rpc::Options),
    /// What laying out the hot code of running programs brings
    Tune(tune::Options),
    /// What a profile of many runs brings to a compiler, which ends soon, over the build of a project
    Compiler(tune::compiler::Options),
    /// How often comparisons say the right word, where the difference is known
    Decisions(decisions::Options),
    /// What laying out the hot code of the running kernel brings, by instructions counted in a guest
    KernelTune(kernel_tune::Options),
    /// What lent processors cost and bring, by instructions counted in a guest
    Smp(smp::Options),
    /// How soon servers that hang are healed, next to their own time-outs
    Watch(watch::Options),
    /// How well and how fast traces are reconstructed from spans without ids, next to simple ways
    Spans(spans::Options),
    /// How near to the best way the transport library comes, by size, on one processor and two
    Transport(transport::Options),
}

/// Runs one.
pub fn run(which: &Bench) -> Result<bool> {
    match which {
        Bench::Probe(options) => probe::run(options),
        Bench::Probes(options) => probes::run(options),
        Bench::Packaged(options) => packaged::run(options),
        Bench::Misses(options) => misses::run(options),
        Bench::Sample(options) => sample::run(options),
        Bench::Lift(options) => lift::run(options),
        Bench::Import(options) => import::run(options),
        Bench::Kernel(options) => kernel::run(options),
        Bench::Locks(options) => locks::run(options),
        Bench::Census(options) => census::run(options),
        Bench::Jar(options) => jar::run(options),
        Bench::Rpc(options) => rpc::run(options),
        Bench::Tune(options) => tune::run(options),
        Bench::Compiler(options) => tune::compiler::run(options),
        Bench::Decisions(options) => decisions::run(options),
        Bench::KernelTune(options) => kernel_tune::run(options),
        Bench::Smp(options) => smp::run(options),
        Bench::Watch(options) => watch::run(options),
        Bench::Spans(options) => spans::run(options),
        Bench::Transport(options) => transport::run(options),
    }
}
