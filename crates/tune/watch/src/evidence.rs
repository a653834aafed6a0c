//! What is known of a process, kept in a folder before anything is done to it.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use crate::finding::Finding;
use crate::look::Look;

/// What `/proc` has of a process.
const OF_PROCESS: [&str; 6] = ["cmdline", "status", "maps", "limits", "cgroup", "io"];
/// What it has of each thread. The kernel's stack needs root.
const OF_THREAD: [&str; 7] = ["comm", "status", "stat", "syscall", "wchan", "stack", "schedstat"];
/// Threads of which it is kept: those of the finding come first.
const THREADS_MAX: usize = 256;

/// Makes a folder below `place` and writes into it what is known; returns it. What cannot be read is left
/// out.
///
/// # Errors
///
/// When the folder cannot be made or written to.
pub fn keep(
    place: &Path,
    rule: &str,
    finding: &Finding,
    looks: &[Look],
    at_ms: u64,
) -> io::Result<PathBuf> {
    let pid = finding.process.pid;
    let folder = place.join(format!("{rule}-{pid}-{at_ms}"));
    // It may hold command lines, which other users must not read.
    DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
    fs::write(folder.join("finding.json"), serde_json::to_vec_pretty(finding)?)?;
    fs::write(folder.join("looks.json"), serde_json::to_vec(looks)?)?;
    let process = PathBuf::from(format!("/proc/{pid}"));
    for name in OF_PROCESS {
        copy(&process.join(name), &folder.join(name))?;
    }
    let mut sockets = String::new();
    for file in fs::read_dir(process.join("fd")).into_iter().flatten().flatten() {
        if let (Some(number), Ok(target)) = (file.file_name().to_str(), fs::read_link(file.path()))
        {
            sockets.push_str(&format!("{number} {}\n", target.display()));
        }
    }
    fs::write(folder.join("files"), sockets)?;
    let tasks = fs::read_dir(process.join("task")).into_iter().flatten().flatten();
    for task in tasks.take(THREADS_MAX) {
        let thread = folder.join(format!("thread-{}", task.file_name().to_string_lossy()));
        DirBuilder::new().mode(0o700).create(&thread)?;
        for name in OF_THREAD {
            copy(&task.path().join(name), &thread.join(name))?;
        }
    }
    Ok(folder)
}

fn copy(from: &Path, to: &Path) -> io::Result<()> {
    match fs::read(from) {
        Ok(bytes) => fs::write(to, bytes),
        Err(_) => Ok(()),
    }
}
