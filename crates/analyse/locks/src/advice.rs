//! Advice that follows from the figures, on how to wait less.

use crate::classes::{Class, Report};
use crate::kind::Kind;
use crate::lines::SharedLine;
use crate::time::time;

/// Names in functions of heaps.
const HEAP: [&str; 9] =
    ["malloc", "free", "calloc", "realloc", "arena", "tcache", "jemalloc", "tcmalloc", "je_"];
/// Waits that matter are at least so many, and one part in so many of the time; or a larger part.
const WAITS: u64 = 100;
const PART: u64 = 100;
const LARGE_PART: u64 = 10;
/// A heap's lock that fewer of its claims wait for is none to care for.
const HEAP_SHARE: f64 = 0.3;

/// One sentence each.
pub fn advice(report: &Report) -> Vec<String> {
    let locks = report.classes.iter().filter(|class| class.kind.is_lock());
    let mut out: Vec<String> = locks.clone().filter_map(convoy).collect();
    let matters = |class: &&Class| {
        let part = if class.sums.contended >= WAITS { PART } else { LARGE_PART };
        class.sums.waited_ns * part > report.duration_ns
    };
    out.extend(locks.filter(matters).flat_map(|class| [heap(class), writers(class)]).flatten());
    out.extend(report.shared_lines.iter().map(SharedLine::advice));
    out
}

fn convoy(class: &Class) -> Option<String> {
    class.convoy.as_ref().map(|convoy| convoy.advice(&class.sentence_name()))
}

/// The heap's lock is waited for.
fn heap(class: &Class) -> Option<String> {
    let share = class.sums.contention();
    let is_heap = |name: &str| HEAP.iter().any(|heap| name.contains(heap));
    let named = class.sites.iter().take(2).any(|site| is_heap(&site.place.function));
    if share <= HEAP_SHARE || !named {
        return None;
    }
    // Of a slow path only waits are counted.
    let waits = match class.kind {
        Kind::SlowPath => {
            let (waits, waited) = (class.sums.contended, time(class.sums.waited_ns));
            format!("{waits} waits for the heap's lock, {waited}")
        }
        _ => format!("{:.0} % of claims of the heap's lock block", share * 100.0),
    };
    Some(format!(
        "{}: {waits}: a heap per thread, such as jemalloc, tcmalloc or mimalloc, or fewer allocations",
        class.sentence_name()
    ))
}

/// A reader-writer lock that is written more than read.
fn writers(class: &Class) -> Option<String> {
    let (reads, writes) = (of_sites(class, "read"), of_sites(class, "write"));
    (class.kind == Kind::Rwlock && writes > reads).then(|| {
        let all = reads + writes;
        format!("{}: {writes} of {all} are writers: a mutex costs less", class.sentence_name())
    })
}

fn of_sites(class: &Class, operation: &str) -> u64 {
    let sites = class.sites.iter().filter(|site| site.operation.contains(operation));
    sites.map(|site| site.sums.acquired).sum()
}
