//! The lab's event log as lines that `fettle import` reads, those of ftrace: a thread for each CPU, kernel calls as
//! recorded calls, and what becomes of locks as the events that `fettle locks` knows.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

/// Sorts and names of the classes of locks, in the kernel's order (`lab/src/lock.rs`).
const CLASSES: [(&str, &str); 10] = [
    ("mutex", "giant"),
    ("spin", "ipc"),
    ("rwlock", "database"),
    ("spin", "ready"),
    ("spin", "pages"),
    ("spin", "timers"),
    ("spin", "tables"),
    ("spin", "semaphore"),
    ("spin", "mailbox"),
    ("spin", "bucket"),
];

/// Names of calls, by number (`lab/src/call.rs`).
const CALLS: [&str; 20] = [
    "exit",
    "spawn",
    "spawn_thread",
    "exit_thread",
    "yield",
    "sem_set",
    "sem_claim",
    "sem_give",
    "send",
    "receive",
    "db_read",
    "db_update",
    "timed_work",
    "self",
    "work",
    "shut_down",
    "begin",
    "live",
    "end",
    "tick",
];
/// From here on a call's number is that of a fault.
const FAULT: u64 = 1000;
/// The process that all CPUs are threads of.
const PID: u32 = 1000;

/// An event of the log.
struct Logged<'a> {
    ticks: u64,
    cpu: u32,
    event: &'a str,
    a: u64,
    b: u64,
}

fn logged(line: &str) -> Option<Logged<'_>> {
    let words: Vec<&str> = line.strip_prefix("E ")?.split_whitespace().collect();
    let [ticks, cpu, event, a, b] = words[..] else { return None };
    let number = |word: &str| word.parse::<u64>().ok();
    let cpu = cpu.parse().ok()?;
    Some(Logged { ticks: number(ticks)?, cpu, event, a: number(a)?, b: number(b)? })
}

fn call_name(number: u64) -> String {
    let known = usize::try_from(number).ok().and_then(|number| CALLS.get(number));
    match known {
        Some(name) => (*name).to_owned(),
        None if number >= FAULT => format!("fault_{}", number - FAULT),
        None => format!("call_{number}"),
    }
}

/// The lines. A tick is a nanosecond.
pub fn lines(log: &str) -> String {
    let mut events: Vec<Logged<'_>> = log.lines().filter_map(logged).collect();
    // Each CPU keeps its last events only: before all of them have begun, holders of locks would be missing.
    let mut begun = BTreeMap::new();
    for event in &events {
        begun.entry(event.cpu).or_insert(event.ticks);
    }
    let begin = begun.values().max().copied().unwrap_or(0);
    events.retain(|event| event.ticks >= begin);
    events.sort_by_key(|event| event.ticks);
    let mut out = String::new();
    let mut line = |ticks: u64, cpu: u32, what: &str| {
        let (seconds, ns) = (ticks / 1_000_000_000, ticks % 1_000_000_000);
        let tid = PID + 1 + cpu;
        let _ =
            writeln!(out, "cpu{cpu}-{tid} ({PID:>6}) [{cpu:03}] .... {seconds}.{ns:09}: {what}");
    };
    // Before anything happens to them.
    let first = begin.saturating_sub(1);
    let locks = events.iter().filter(|e| matches!(e.event, "spin" | "lock" | "unlock"));
    let locks: BTreeSet<(u64, u64)> = locks.map(|event| (event.a, event.b)).collect();
    for (class, lock) in locks {
        let at = usize::try_from(class).ok().and_then(|class| CLASSES.get(class));
        let (kind, name) = at.copied().unwrap_or(("spin", "?"));
        line(first, 0, &format!("lock_made: lock={lock:#x} kind={kind} name={name}"));
    }
    // What each CPU is in the middle of: calls do not nest.
    let mut inside: Vec<Option<String>> = vec![None; 64];
    for Logged { ticks, cpu, event, a, b } in events {
        let Some(inside) = inside.get_mut(cpu as usize) else { continue };
        let end = |name: &str| format!("call_end: function={name} depth=0");
        let what = match event {
            "call" => {
                let name = call_name(a);
                if let Some(before) = inside.replace(name.clone()) {
                    line(ticks, cpu, &end(&before));
                }
                format!("call: function={name} depth=0")
            }
            "leave" => match inside.take() {
                Some(name) => end(&name),
                // It began before the log.
                None => continue,
            },
            "spin" => format!("lock_wait: lock={b:#x}"),
            "lock" => format!("lock_acquired: lock={b:#x}"),
            "unlock" => format!("lock_released: lock={b:#x}"),
            other => format!("lab:{other}: first={a} second={b}"),
        };
        line(ticks, cpu, &what);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_and_locks_become_events() {
        let log = "lab: build\nE 1000 0 call 8 3\nE 1500 0 spin 1 4096\nE 1750 0 lock 1 4096\n\
                   E 900 1 leave 9 0\nE 1900 0 unlock 1 4096\nE 2000 0 leave 3 0\nE 1950 1 idle 0 0\nE broken\n";
        let text = lines(log);
        let of = |line: &str| line.split_once(": ").unwrap().1.to_owned();
        let events: Vec<String> = text.lines().map(of).collect();
        let wanted = [
            "lock_made: lock=0x1000 kind=spin name=ipc",
            "call: function=send depth=0",
            "lock_wait: lock=0x1000",
            "lock_acquired: lock=0x1000",
            "lock_released: lock=0x1000",
            "lab:idle: first=0 second=0",
            "call_end: function=send depth=0",
        ];
        assert_eq!(events, wanted);
        assert!(text.starts_with("cpu0-1001 (  1000) [000] .... 0.000000999: "), "{text}");
        assert_eq!(call_name(FAULT + 14), "fault_14");
    }
}
