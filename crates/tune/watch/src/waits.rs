//! Which thread of a process waits for a mutex that which other thread holds, by what the kernel says of
//! its system call and what lies in its memory. Nothing is written, and no thread is stopped.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;

use fettle_locks::futex::FutexWait;
use fettle_types::{Pid, Tid};

use crate::look::WaitLook;

/// Threads of a process that wait for mutexes of glibc's, or for ones that inherit priority, whose owner
/// is another thread of it. Threads that end meanwhile are left out.
pub(crate) fn of_process(pid: Pid, tids: &BTreeSet<Tid>) -> Vec<WaitLook> {
    let calls = tids.iter().filter_map(|tid| Some((*tid, futex_wait(pid, *tid)?)));
    let calls: Vec<(Tid, FutexWait)> = calls.collect();
    if calls.is_empty() {
        return Vec::new();
    }
    let Ok(memory) = File::open(format!("/proc/{pid}/mem")) else { return Vec::new() };
    let word = |at: u64| {
        let mut bytes = [0; 4];
        memory.read_exact_at(&mut bytes, at).ok()?;
        Some(u32::from_le_bytes(bytes))
    };
    calls
        .iter()
        .filter_map(|(tid, call)| {
            let owner = Tid::try_from(call.owner(word)?).ok()?;
            tids.contains(&owner).then_some(())?;
            Some(WaitLook { tid: *tid, mutex: call.address, owner })
        })
        .collect()
}

/// The futex that a thread waits for without a time limit: one with a limit comes back by itself.
fn futex_wait(pid: Pid, tid: Tid) -> Option<FutexWait> {
    without_limit(&fs::read_to_string(format!("/proc/{pid}/task/{tid}/syscall")).ok()?)
}

fn without_limit(text: &str) -> Option<FutexWait> {
    FutexWait::parse(text).filter(|wait| wait.limit == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_with_a_limit_is_in_no_cycle() {
        let text = |limit: &str| format!("202 0x1 0x80 0x2 {limit} 0x0 0x0 0x7ffd 0x7f00\n");
        assert!(without_limit(&text("0x0")).is_some());
        assert!(without_limit(&text("0x7f")).is_none());
    }
}
