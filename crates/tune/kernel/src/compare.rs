//! Original and rewritten text of the kernel in turns.
//!
//! The kernel works for all programs, so what is compared is the time that all processors were busy, for a
//! unit of the work that a command counts.

use std::fs;
use std::time::Duration;

use fettle_kernel_live::Installed;
use fettle_tune::comparison::{LEAST_ROUNDS, Measured, Rounds, WorkUnit, evaluate};
use fettle_tune::work::printed;

use crate::{Error, Result};

/// How to compare.
#[derive(Clone, Debug)]
pub struct Turns {
    /// A command that prints a number which grows with the work.
    pub work: String,
    /// How many rounds of four turns.
    pub rounds: Rounds,
    /// How long a turn is.
    pub turn: Duration,
}

/// Compares; the jumps are written now, and are again afterwards.
///
/// # Errors
///
/// When the work cannot be counted, or none is done.
pub fn compare(installed: &mut Installed, turns: &Turns) -> Result<Measured> {
    compare_by(turns, &mut |new| write(installed, new))
}

/// Changes to original text by `false` and to rewritten text by `true`.
pub type Switch<'a> = &'a mut dyn FnMut(bool) -> Result<()>;

/// Compares whatever `switch` changes; rewritten text is in place now, and is again afterwards.
///
/// # Errors
///
/// When the work cannot be counted, or none is done, or `switch` fails.
pub fn compare_by(turns: &Turns, switch: Switch<'_>) -> Result<Measured> {
    let mut rounds = Vec::new();
    let taken = take_rounds(switch, turns, &mut rounds);
    switch(true)?;
    taken?;
    if rounds.len() < LEAST_ROUNDS {
        let what =
            format!("`{}` counted no work in most turns: put the kernel under load", turns.work);
        return Err(Error::Work(what));
    }
    Ok(evaluate(&rounds, WorkUnit::Given))
}

/// Takes rounds until they have shown enough.
fn take_rounds(switch: Switch<'_>, turns: &Turns, rounds: &mut Vec<(f64, f64)>) -> Result<()> {
    for number in 0..turns.rounds.enough.max(turns.rounds.most) {
        rounds.extend(take_round(switch, turns, number % 2 == 1)?);
        let is_over = |rounds: &Vec<_>| turns.rounds.are_over(&evaluate(rounds, WorkUnit::Given));
        if !rounds.is_empty() && is_over(rounds) {
            break;
        }
    }
    Ok(())
}

/// What a unit of work costs by original and by rewritten text, where any was done.
fn take_round(switch: Switch<'_>, turns: &Turns, begins_new: bool) -> Result<Option<(f64, f64)>> {
    let mut costs = [(0.0, 0); 2];
    for new in [begins_new, !begins_new, !begins_new, begins_new] {
        switch(new)?;
        let before = (busy_ns()?, work_done(&turns.work)?);
        std::thread::sleep(turns.turn);
        let after = (busy_ns()?, work_done(&turns.work)?);
        let (time, work) = &mut costs[usize::from(new)];
        *time += (after.0.saturating_sub(before.0)) as f64;
        *work += after.1.saturating_sub(before.1);
    }
    let [(old, old_work), (new, new_work)] = costs;
    let any = old_work > 0 && new_work > 0 && old > 0.0 && new > 0.0;
    Ok(any.then(|| (old / old_work as f64, new / new_work as f64)))
}

/// Writes the jumps to rewritten text, or the originals' bytes.
///
/// # Errors
///
/// When the kernel does not take them.
pub fn write(installed: &mut Installed, new: bool) -> Result<()> {
    match new {
        true => installed.write_jumps(&|address| format!("{address:#x}"))?,
        false => installed.remove_jumps()?,
    };
    Ok(())
}

/// Nanoseconds that all processors were busy since the machine's start.
fn busy_ns() -> Result<u64> {
    let text = fs::read_to_string("/proc/stat").unwrap_or_default();
    busy_in(&text)
        .ok_or_else(|| Error::Work("/proc/stat does not say how busy processors are".into()))
}

/// `/proc/stat`: user, nice, system, idle, iowait, irq, softirq, in hundredths of a second.
fn busy_in(text: &str) -> Option<u64> {
    const TICK_NS: u64 = 10_000_000;
    let line = text.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let fields: Vec<u64> = line.split_whitespace().map_while(|field| field.parse().ok()).collect();
    let [user, nice, system, _, _, irq, softirq, ..] = fields[..] else { return None };
    Some((user + nice + system + irq + softirq) * TICK_NS)
}

/// The amount of work that a command prints.
///
/// # Errors
///
/// When it prints no number.
pub fn work_done(command: &str) -> Result<u64> {
    let failed = |why: String| Error::Work(format!("--work-counter `{command}`: {why}"));
    printed(command).map(|printed| printed.number).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn busy_time_leaves_idle_out() {
        let text = "cpu  10 1 5 1000 50 2 3 0 0 0\ncpu0 10 1 5 1000 50 2 3 0 0 0\n";
        assert_eq!(busy_in(text), Some(21 * 10_000_000));
        assert_eq!(busy_in("intr 5\n"), None);
    }

    /// Turns are A B B A, then B A A B; what was switched is new afterwards, also when a switch failed.
    #[test]
    fn whatever_is_switched_is_new_afterwards() {
        let turns = Turns {
            work: "date +%s%N".into(),
            rounds: Rounds { enough: 5, most: 5 },
            turn: Duration::from_millis(30),
        };
        let mut switched = Vec::new();
        let measured = compare_by(&turns, &mut |new| {
            switched.push(new);
            Ok(())
        });
        assert_eq!(switched[..8], [false, true, true, false, true, false, false, true]);
        assert_eq!(switched.last(), Some(&true));
        // All of it runs the same: a machine that is not idle shows that, an idle one has no round.
        if let Ok(measured) = measured {
            assert!(measured.low <= measured.ratio && measured.ratio <= measured.high);
        }
        let mut last = false;
        let failed = compare_by(&turns, &mut |new| {
            let fails = last && !new;
            last = new;
            if fails { Err(Error::Work("cannot switch".into())) } else { Ok(()) }
        });
        assert!(failed.is_err() && last);
    }

    #[test]
    fn work_is_the_first_number() {
        assert_eq!(work_done("echo done 12 of 30").unwrap(), 12);
        assert!(work_done("echo none").is_err());
    }
}
