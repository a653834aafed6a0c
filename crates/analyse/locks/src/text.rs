//! The report as text.

use std::fmt::Write as _;

use crate::classes::{Blocking, Class, HeldOver, Kind, Report, Sums};
use crate::hung::{Awaited, Waiting, cycles};
use crate::order::Deadlock;
use crate::time::time;

/// A number with its thousands apart.
fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

fn plural(n: u64, one: &str) -> String {
    format!("{} {one}{}", count(n), if n == 1 { "" } else { "s" })
}

/// The whole report; of classes the first `most`.
pub fn text(report: &Report, most: usize) -> String {
    let mut out = String::new();
    let waited: u64 =
        report.classes.iter().filter(|c| c.kind.is_lock()).map(|c| c.sums.waited_ns).sum();
    let _ = writeln!(
        out,
        "{} in {} of {}, {}; waited for locks: {}\n",
        plural(report.classes.len() as u64, "lock class").replace("classs", "classes"),
        plural(report.threads, "thread"),
        plural(report.processes, "process").replace("processs", "processes"),
        time(report.duration_ns),
        time(waited),
    );
    let _ = writeln!(
        out,
        "{:>10} {:>7} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>5}  lock",
        "acquired", "waits", "waited", "p50", "p99", "max", "held", "held p99", "queue"
    );
    for class in report.classes.iter().take(most) {
        one_class(&mut out, class, report.rate);
    }
    if report.classes.len() > most {
        let _ = writeln!(out, "\n{} more: --limit shows them", report.classes.len() - most);
    }
    semaphores(&mut out, report);
    blocked(&mut out, report);
    convoys(&mut out, report);
    held_over(&mut out, report);
    advice(&mut out, report);
    for (n, deadlock) in report.deadlocks.iter().enumerate() {
        possible(&mut out, n + 1, deadlock);
    }
    if report.deadlocks.is_empty() {
        out.push_str("\nno deadlock is possible in the orders that were seen\n");
    }
    losses(&mut out, report);
    out
}

fn row(out: &mut String, sums: &Sums, rate: f64, name: &str) {
    let quantile = |buckets: &crate::classes::Buckets, share: f64, most: u64| {
        let bound = buckets.quantile(share).map(|ticks| ((ticks as f64 * rate) as u64).min(most));
        bound.map_or_else(String::new, time)
    };
    let waits = match sums.contended {
        0 => String::new(),
        _ => format!("{:.1} %", sums.contention() * 100.0),
    };
    let shown = |ns: u64| if ns == 0 { String::new() } else { time(ns) };
    let _ = writeln!(
        out,
        "{:>10} {:>7} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>5}  {name}",
        count(sums.acquired),
        waits,
        shown(sums.waited_ns),
        quantile(&sums.waits, 0.5, sums.waited_ns_max),
        quantile(&sums.waits, 0.99, sums.waited_ns_max),
        shown(sums.waited_ns_max),
        shown(sums.held_ns),
        quantile(&sums.holds, 0.99, sums.held_ns_max),
        if sums.queue_max > 0 { sums.queue_max.to_string() } else { String::new() },
    );
}

fn one_class(out: &mut String, class: &Class, rate: f64) {
    let several = match class.locks {
        1 => String::new(),
        0 => ", many of them".to_owned(),
        n => format!(", {n} of them"),
    };
    row(out, &class.sums, rate, &format!("{} ({}{several})", class.name, class.kind.name()));
    const SITES: usize = 4;
    if class.sites.len() == 1 && class.name.contains(&class.sites[0].place.function) {
        return;
    }
    for site in class.sites.iter().take(SITES) {
        row(out, &site.sums, rate, &format!("  {} in {}", site.operation, site.place.text()));
    }
    if class.sites.len() > SITES {
        let more = plural((class.sites.len() - SITES) as u64, "more place");
        let _ = writeln!(out, "{:>94}{more}", "");
    }
}

/// How many of all accesses to semaphores wait, as the request-tracking thesis asks (5.2.4).
fn semaphores(out: &mut String, report: &Report) {
    let all = report.classes.iter().filter(|class| class.kind == Kind::Semaphore);
    let sum = |(asked, waited), class: &Class| {
        let sums = &class.sums;
        (asked + sums.acquired.max(sums.contended), waited + sums.contended)
    };
    let (asked, waited): (u64, u64) = all.fold((0, 0), sum);
    if asked > 0 {
        let share = waited as f64 / asked as f64 * 100.0;
        let _ =
            writeln!(out, "\nsemaphores: {share:.1} % of {} accesses had to wait", count(asked));
    }
}

/// The places that were waited for, over all classes.
fn blocked(out: &mut String, report: &Report) {
    const PAIRS: usize = 10;
    let pairs = report.classes.iter().filter(|class| class.kind.is_lock());
    let mut pairs: Vec<(&Class, &Blocking)> =
        pairs.flat_map(|class| class.blocking.iter().map(move |pair| (class, pair))).collect();
    pairs.sort_by_key(|(_, pair)| std::cmp::Reverse(pair.waited_ns));
    let all: u64 = pairs.iter().map(|(_, pair)| pair.waited_ns).sum();
    if all == 0 {
        return;
    }
    let _ = writeln!(out, "\nwho blocked whom\n{:>9} {:>6}  holder -> waiter", "waited", "share");
    for (class, pair) in pairs.iter().take(PAIRS) {
        let holder = match pair.holder {
            Some(_) => pair.holder_text(class.kind),
            None => format!("({})", pair.holder_text(class.kind)),
        };
        let share = pair.waited_ns as f64 / all as f64 * 100.0;
        let waited = time(pair.waited_ns);
        let (waiter, name) = (pair.waiter.text(), class.sentence_name());
        let _ = writeln!(out, "{waited:>9} {share:>4.1} %  {holder} -> {waiter}, for {name}");
    }
    if pairs.len() > PAIRS {
        let _ = writeln!(out, "{:>18}{} more pairs: --json has them", "", pairs.len() - PAIRS);
    }
}

/// Locks that threads queue for all the time, for short sections.
fn convoys(out: &mut String, report: &Report) {
    let classes = report.classes.iter();
    let mut all: Vec<_> =
        classes.filter_map(|class| class.convoy.as_ref().map(|convoy| (class, convoy))).collect();
    all.sort_by_key(|(_, convoy)| std::cmp::Reverse(convoy.lasted_ns));
    if all.is_empty() {
        return;
    }
    let _ = writeln!(
        out,
        "\nconvoys: at each release a thread waits, and the way to it takes longer than a section\n\
         {:>9} {:>10} {:>7} {:>5} {:>9} {:>9}  lock",
        "lasted", "releases", "waited", "queue", "section", "way"
    );
    for (class, convoy) in all {
        let times = plural(convoy.stretches, "time");
        let _ = writeln!(
            out,
            "{:>9} {:>10} {:>5.1} % {:>5} {:>9} {:>9}  {} ({times})",
            time(convoy.lasted_ns),
            count(convoy.releases),
            convoy.share() * 100.0,
            queue(convoy.queue_median),
            time(convoy.section_ns),
            time(convoy.passing_ns),
            class.name
        );
    }
}

/// The last number of waiting threads stands for all above it.
fn queue(threads: u32) -> String {
    let more = if threads as usize >= fettle_abi::locking::QUEUES { "+" } else { "" };
    format!("{threads}{more}")
}

/// Locks that were held while their holder waited in a system call.
fn held_over(out: &mut String, report: &Report) {
    const SHOWN: usize = 8;
    let classes = report.classes.iter();
    let mut all: Vec<(&Class, &HeldOver)> =
        classes.flat_map(|class| class.held_over.iter().map(move |over| (class, over))).collect();
    all.sort_by_key(|(_, over)| std::cmp::Reverse(over.held_ns));
    if all.is_empty() {
        return;
    }
    let _ = writeln!(
        out,
        "\nheld while waiting in a system call, estimated\n{:>9} {:>6}  call",
        "held", "looks"
    );
    for (class, over) in all.iter().take(SHOWN) {
        let (held, looks, place) = (time(over.held_ns), over.looks, over.place.text());
        let _ = writeln!(
            out,
            "{held:>9} {looks:>6}  {}, with {}, taken in {place}",
            over.call,
            class.sentence_name()
        );
    }
    if all.len() > SHOWN {
        let _ = writeln!(out, "{:>18}{} more: --json has them", "", all.len() - SHOWN);
    }
}

/// Advice that follows from the figures.
fn advice(out: &mut String, report: &Report) {
    let advice = crate::advice::advice(report);
    if advice.is_empty() {
        return;
    }
    out.push_str("\nadvice\n");
    for line in advice {
        let _ = writeln!(out, "  {line}");
    }
}

fn possible(out: &mut String, n: usize, deadlock: &Deadlock) {
    let _ = writeln!(out, "\npossible deadlock {n}: each of these threads can wait for the next");
    for step in &deadlock.steps {
        let name =
            if step.thread.is_empty() { String::new() } else { format!(" ({})", step.thread) };
        let _ = writeln!(
            out,
            "  thread {}{name} has {}, taken in {},\n    and asks for {} in {}",
            step.tid,
            step.holds,
            step.taken.text(),
            step.wants,
            step.asked.text(),
        );
    }
}

fn losses(out: &mut String, report: &Report) {
    let l = report.losses;
    let mut notify = |n: u64, what: &str| {
        if n > 0 {
            let _ = writeln!(out, "not seen: {} {what}", count(n));
        }
    };
    notify(l.missed, "calls in signal handlers that interrupted the counting");
    notify(l.no_row, "calls, for want of room in a thread's table");
    notify(l.no_edge, "orders of two locks, for want of room: deadlocks may be missing");
    notify(l.no_hold, "holds, of threads that have more than 64 locks at once");
    notify(l.no_blame, "waits' holders, for want of room");
    notify(l.unseen, "ends of calls that went on in another function: these waits have no time");
}

/// What a hung process waits for.
pub fn hung(threads: u64, waiting: &[Waiting]) -> String {
    let mut out = String::new();
    let circles = cycles(waiting);
    let of = |tid: u32| waiting.iter().find(|thread| thread.tid == tid);
    let name = |tid: u32| match of(tid).map(|thread| thread.thread.as_str()) {
        Some(name) if !name.is_empty() => format!("thread {tid} ({name})"),
        _ => format!("thread {tid}"),
    };
    let step = |out: &mut String, thread: &Waiting| {
        let what = match &thread.awaited {
            Awaited::Lock { kind, address, name } => match name {
                Some(name) => format!("the {kind} {name}"),
                None => format!("the {kind} at {address:#x}"),
            },
            Awaited::End => "the end".to_owned(),
            Awaited::Unknown { kind, address, name } => {
                let what = kind.unwrap_or("something that does not say who has it");
                match name {
                    Some(name) => format!("{what}: {name}"),
                    None => format!("{what}, at {address:#x}"),
                }
            }
        };
        let holder = match (&thread.awaited, thread.holder) {
            (Awaited::End, Some(holder)) => format!(" of {}", self::holder(holder, &name)),
            (_, Some(holder)) => format!(" of {}", self::holder(holder, &name)),
            (_, None) => String::new(),
        };
        let _ = writeln!(out, "  {} waits for {what}{holder}", name(thread.tid));
        for place in &thread.stack {
            let _ = writeln!(out, "    in {}", place.text());
        }
    };
    for (n, circle) in circles.iter().enumerate() {
        let _ = writeln!(
            out,
            "deadlock {}: {}",
            n + 1,
            match circle.len() {
                1 => "a thread waits for itself".to_owned(),
                n => format!("{n} threads wait for each other"),
            }
        );
        circle.iter().filter_map(|tid| of(*tid)).for_each(|thread| step(&mut out, thread));
        out.push('\n');
    }
    let others: Vec<&Waiting> =
        waiting.iter().filter(|t| !circles.iter().any(|circle| circle.contains(&t.tid))).collect();
    if !others.is_empty() {
        let _ = writeln!(out, "{}", if circles.is_empty() { "waiting" } else { "waiting besides" });
        others.iter().for_each(|thread| step(&mut out, thread));
        out.push('\n');
    }
    let _ = writeln!(
        out,
        "{} of {} wait for locks or each other; {}",
        count(waiting.len() as u64),
        plural(threads, "thread"),
        match circles.len() {
            0 if waiting.iter().any(|thread| matches!(thread.awaited, Awaited::Unknown { .. })) => {
                "no circle is known, but nothing says who has to wake some of them".to_owned()
            }
            0 => "none of them in a circle".to_owned(),
            n => plural(n as u64, "deadlock"),
        }
    );
    out
}

fn holder(tid: u32, name: &dyn Fn(u32) -> String) -> String {
    name(tid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_stand_apart() {
        assert_eq!(count(1_234_567), "1,234,567");
        assert_eq!(count(12), "12");
    }
}
