//! The processes that a system consists of: how much CPU time they have used, and their end.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use fettle_types::{Pid, Tid};
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::time::ClockId;
use nix::unistd;
use rustix::process::{Signal, WaitOptions};

/// Ticks of `/proc/PID/stat` are hundredths of a second on every Linux.
const TICK_NS: u64 = 10_000_000;
/// How long killed processes may take to go.
const END: Duration = Duration::from_secs(5);

/// Makes this process the parent of all orphans among its descendants, so that none of a system's
/// processes escapes. To be called once, before the first system is started.
///
/// # Errors
///
/// When the kernel refuses.
pub fn adopt_orphans() -> io::Result<()> {
    Ok(rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?)
}

/// Children of a process, whichever of its threads has started them.
pub(crate) fn children(pid: Pid) -> Vec<Pid> {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    let mut all = Vec::new();
    for thread in threads.flatten() {
        let list = fs::read_to_string(thread.path().join("children")).unwrap_or_default();
        all.extend(list.split_whitespace().filter_map(|word| word.parse::<Pid>().ok()));
    }
    all
}

/// A process and all that descend from it.
pub(crate) fn tree(pid: Pid) -> BTreeSet<Pid> {
    let mut all = BTreeSet::new();
    let mut open = vec![pid];
    while let Some(pid) = open.pop() {
        if all.insert(pid) {
            open.extend(children(pid));
        }
    }
    all
}

/// CPU time of a process and all that descend from it, those that have ended and were waited for
/// included (to a hundredth of a second).
pub(crate) fn cpu_ns(pid: Pid) -> u64 {
    tree(pid).into_iter().map(|pid| clock_ns(pid) + ended_ns(pid)).sum()
}

fn clock_ns(pid: Pid) -> u64 {
    let time =
        ClockId::pid_cpu_clock_id(unistd::Pid::from_raw(pid.get())).and_then(|clock| clock.now());
    time.map_or(0, |time| (time.tv_sec() * 1_000_000_000 + time.tv_nsec()).unsigned_abs())
}

/// CPU time of a process's children that it has waited for.
fn ended_ns(pid: Pid) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The name, in parentheses, may hold anything.
    let Some((_, fields)) = stat.rsplit_once(')') else { return 0 };
    let fields: Vec<&str> = fields.split_whitespace().collect();
    let ticks = |at: usize| fields.get(at).and_then(|word| word.parse::<u64>().ok()).unwrap_or(0);
    (ticks(13) + ticks(14)) * TICK_NS
}

/// The processors that this process may use.
pub(crate) fn processors() -> Vec<u32> {
    let Ok(set) = sched_getaffinity(unistd::Pid::from_raw(0)) else { return Vec::new() };
    let may = |cpu: &usize| set.is_set(*cpu).unwrap_or(false);
    (0..CpuSet::count()).filter(may).map(|cpu| cpu as u32).collect()
}

/// Holds all threads of a process, and of all that descend from it, on some processors; those that they start
/// later, too.
pub(crate) fn hold(pid: Pid, cpus: &[u32]) {
    let mut set = CpuSet::new();
    if cpus.is_empty() || cpus.iter().any(|cpu| set.set(*cpu as usize).is_err()) {
        return;
    }
    for tid in tree(pid).into_iter().flat_map(threads) {
        // One that has ended meanwhile needs no processor.
        let _ = sched_setaffinity(unistd::Pid::from_raw(tid.get()), &set);
    }
}

/// Threads of a process.
pub(crate) fn threads(pid: Pid) -> Vec<Tid> {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    let number = |name: std::ffi::OsString| name.to_str()?.parse().ok();
    threads.flatten().filter_map(|thread| number(thread.file_name())).collect()
}

/// The file that a process has mapped at an address, and which of its bytes lies there.
pub(crate) fn mapped(pid: Pid, address: u64) -> Option<(PathBuf, u64)> {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).ok()?;
    maps.lines().find_map(|line| mapped_by(line, address))
}

/// The same by one line of `/proc/PID/maps`.
fn mapped_by(line: &str, address: u64) -> Option<(PathBuf, u64)> {
    let mut words = line.split_ascii_whitespace();
    let number = |text: &str| u64::from_str_radix(text, 16).ok();
    let (begin, end) = words.next()?.split_once('-')?;
    let (begin, end) = (number(begin)?, number(end)?);
    let offset = number(words.nth(1)?)?;
    let path = words.nth(2).filter(|path| path.starts_with('/'))?;
    let is_in = (begin..end).contains(&address);
    is_in.then(|| (PathBuf::from(path), address - begin + offset))
}

/// Descendants of this process that come to it while a value of this type lives end with it: orphans of
/// systems that did not end properly.
#[derive(Debug)]
pub(crate) struct Orphans {
    others: BTreeSet<Pid>,
}

impl Orphans {
    /// The children that there are now are left unmodified.
    pub(crate) fn watch() -> Orphans {
        Orphans { others: children(Pid::own()).into_iter().collect() }
    }
}

impl Drop for Orphans {
    fn drop(&mut self) {
        let begin = Instant::now();
        while begin.elapsed() < END {
            let new = children(Pid::own()).into_iter().filter(|pid| !self.others.contains(pid));
            let new: BTreeSet<Pid> = new.flat_map(tree).collect();
            if new.is_empty() {
                return;
            }
            end(new);
        }
    }
}

/// Kills those of the processes that descend from this one, and returns when they are gone. Others may
/// have their numbers by now.
pub(crate) fn end(mut left: BTreeSet<Pid>) {
    let begin = Instant::now();
    while begin.elapsed() < END {
        let ours = tree(Pid::own());
        left.retain(|pid| ours.contains(pid) && *pid != Pid::own());
        if left.is_empty() {
            return;
        }
        for pid in left.iter().filter_map(|pid| rustix_pid(*pid)) {
            let _ = rustix::process::kill_process(pid, Signal::KILL);
        }
        std::thread::sleep(Duration::from_millis(5));
        left.retain(|&pid| !is_gone(pid));
    }
}

/// Whether a process has ended; a child of ours is waited for, so that its number is free.
fn is_gone(pid: Pid) -> bool {
    let waited =
        rustix_pid(pid).map(|pid| rustix::process::waitpid(Some(pid), WaitOptions::NOHANG));
    match waited {
        Some(Ok(Some(_))) => true,
        // No child of ours: that of one that is ending, too, and waited for by it or by us later.
        _ => fs::read_to_string(format!("/proc/{pid}/stat")).is_err(),
    }
}

fn rustix_pid(pid: Pid) -> Option<rustix::process::Pid> {
    rustix::process::Pid::from_raw(pid.get())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn a_line_says_what_is_mapped() {
        let line = "00401000-0044f000 r-xp 00001000 fe:00 1234                   /tmp/fettle-bench";
        let found = mapped_by(line, 0x402010).unwrap();
        assert_eq!((found.0.to_str().unwrap(), found.1), ("/tmp/fettle-bench", 0x2010));
        assert!(mapped_by(line, 0x44f000).is_none());
        let anonymous = "7f0000000000-7f0000001000 rw-p 00000000 00:00 0";
        assert!(mapped_by(anonymous, 0x7f0000000000).is_none());
    }

    #[test]
    fn a_tree_is_found_timed_and_ended() {
        // The inner shell computes, its parent waits.
        adopt_orphans().unwrap();
        let script = "sh -c 'while :; do :; done' & sleep 100 & wait";
        let mut child =
            Command::new("sh").args(["-c", script]).stdin(Stdio::null()).spawn().unwrap();
        let pid = Pid::of_child(&child);
        let deadline = Instant::now() + Duration::from_secs(20);
        while tree(pid).len() < 3 || cpu_ns(pid) < 20_000_000 {
            assert!(Instant::now() < deadline, "{:?} {}", tree(pid), cpu_ns(pid));
            std::thread::sleep(Duration::from_millis(5));
        }
        let all = tree(pid);
        end(all.clone());
        let _ = child.wait();
        for pid in all {
            assert!(fs::read_to_string(format!("/proc/{pid}/stat")).is_err(), "{pid}");
        }
    }
}
