//! Which thread of a process waits for a mutex that which other thread holds, by what the kernel says of
//! its system call and what lies in its memory. Nothing is written, and no thread is stopped.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;

use crate::look::WaitLook;

const SYS_FUTEX: u64 = 202;
/// The part of a word that is a thread's number (`FUTEX_TID_MASK`).
const TID: u32 = 0x3fff_ffff;

/// Threads of a process that wait for mutexes of glibc's, or for ones that inherit priority, whose owner
/// is another thread of it. Threads that end meanwhile are left out.
pub(crate) fn of_process(pid: u32, tids: &BTreeSet<u32>) -> Vec<WaitLook> {
    let calls = tids.iter().filter_map(|tid| Some((*tid, futex_wait(pid, *tid)?)));
    let calls: Vec<(u32, FutexWait)> = calls.collect();
    if calls.is_empty() {
        return Vec::new();
    }
    let Ok(memory) = File::open(format!("/proc/{pid}/mem")) else { return Vec::new() };
    let word = |at: u64| {
        let mut bytes = [0; 4];
        memory.read_exact_at(&mut bytes, at).ok()?;
        Some(u32::from_le_bytes(bytes))
    };
    let owner = |call: &FutexWait| {
        if call.inherits_priority {
            return word(call.address).map(|value| value & TID);
        }
        // glibc's mutex: 2 where a thread waits, its owner eight bytes on, how many use it, its kind.
        let (owner, users) = (word(call.address + 8)?, word(call.address + 12)?);
        let kind = word(call.address + 16)? & !0x180;
        (call.value == 2 && users > 0 && kind <= 3).then_some(owner & TID)
    };
    calls
        .iter()
        .filter_map(|(tid, call)| {
            let owner = owner(call).filter(|owner| tids.contains(owner))?;
            Some(WaitLook { tid: *tid, mutex: call.address, owner })
        })
        .collect()
}

struct FutexWait {
    address: u64,
    value: u32,
    inherits_priority: bool,
}

/// The futex that a thread waits for without a time limit: one with a limit comes back by itself.
fn futex_wait(pid: u32, tid: u32) -> Option<FutexWait> {
    parse(&fs::read_to_string(format!("/proc/{pid}/task/{tid}/syscall")).ok()?)
}

fn parse(text: &str) -> Option<FutexWait> {
    let mut fields = text.split_ascii_whitespace();
    if fields.next()?.parse::<u64>().ok()? != SYS_FUTEX {
        return None;
    }
    let mut hex = || u64::from_str_radix(fields.next()?.strip_prefix("0x")?, 16).ok();
    let (address, operation, value, limit) = (hex()?, hex()?, hex()?, hex()?);
    let inherits_priority = match operation & 0x7f {
        // FUTEX_WAIT, FUTEX_WAIT_BITSET; FUTEX_LOCK_PI, FUTEX_LOCK_PI2.
        0 | 9 => false,
        6 | 13 => true,
        _ => return None,
    };
    (limit == 0).then_some(FutexWait { address, value: value as u32, inherits_priority })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_says_of_a_system_call() {
        let wait = parse("202 0x5581 0x80 0x2 0x0 0x0 0x0 0x7ffd 0x7f00\n").unwrap();
        assert!(wait.address == 0x5581 && wait.value == 2 && !wait.inherits_priority);
        for other in
            ["running\n", "-1 0x0 0x0\n", "202 0x1 0x81 0x2 0x0\n", "202 0x1 0x80 0x2 0x7f\n"]
        {
            assert!(parse(other).is_none(), "{other}");
        }
        assert!(parse("202").is_none() && parse("").is_none());
    }
}
