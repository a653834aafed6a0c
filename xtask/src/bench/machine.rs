//! What the numbers were measured on.

use std::process::Command;

use serde_json::{Value, json};

use crate::{apt, proc, repo};

/// Processor, kernel, compilers, tools and the commit that was measured.
pub fn describe() -> Value {
    let cpu = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpu
        .lines()
        .find_map(|line| line.strip_prefix("model name"))
        .map(|rest| rest.trim_start_matches([' ', '\t', ':']).to_string());
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut git = Command::new("git");
    git.current_dir(repo::root()).args(["describe", "--always", "--dirty", "--abbrev=12"]);
    json!({
        "processor": model,
        "processors": std::thread::available_parallelism().map_or(0, std::num::NonZero::get),
        "kernel": kernel.trim(),
        "fettle": proc::output_of(&mut git).unwrap_or_default().trim(),
        "gcc": apt::version("gcc-12"),
        "clang": apt::version("clang-14"),
        "uftrace": apt::version("uftrace"),
        "valgrind": apt::version("valgrind"),
        "lua5.4": apt::version("lua5.4"),
        "sqlite3": apt::version("sqlite3"),
    })
}
