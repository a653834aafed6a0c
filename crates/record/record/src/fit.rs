//! What samples say of functions, made to fit what is known of their thread.
//!
//! A short call that is timed takes longer than one that is not, as what it needs has left the caches
//! meanwhile; and one that happens to wait stands for many that do not. So sums over samples can be far
//! more than the thread had. Its CPU time and its off-CPU time are known, and where its PC was each time
//! that it had run a little longer.

use std::collections::{HashMap, HashSet};

use petgraph::algo::tarjan_scc;
use petgraph::graphmap::DiGraphMap;

use fettle_types::FunctionIndex;

use crate::estimate::{Share, Ticks};

/// What is known of a function in a thread.
#[derive(Debug, Default)]
pub struct Known {
    /// What its samples say of its calls.
    pub share: Share,
    /// Its calls.
    pub calls: f64,
    /// Ticks that its calls take to pass their probes, when they are not sampled.
    pub passed: f64,
    /// Its own ticks on a processor, by where the thread was.
    pub pc_samples: Option<f64>,
}

/// What is known of the thread, in ticks.
#[derive(Clone, Copy, Debug, Default)]
pub struct Thread {
    /// How long it ran.
    pub cpu: Option<f64>,
    /// How long it was off-CPU.
    pub off: Option<f64>,
}

/// A call that takes no longer than so many ticks is short: probes that are timed disturb it much.
const SHORT: f64 = 4096.0;
/// The part of a function's time that makes a caller of it one.
const LEAST: f64 = 0.02;
/// Calls are nested so deep, as far as bounds of callees become those of callers.
const ROUNDS: usize = 32;

/// Ticks of a function.
#[derive(Clone, Copy, Debug, Default)]
struct Part {
    cpu: f64,
    off: f64,
}

/// Times of one function in one thread, in ticks.
#[derive(Clone, Copy, Debug, Default)]
pub struct Times {
    /// With callees.
    pub total: u64,
    /// Without.
    pub own: u64,
    /// On a processor, with callees.
    pub cpu_total: u64,
    /// On a processor, without.
    pub cpu_own: u64,
}

/// Times of each function that fit together.
pub fn fit(
    functions: &HashMap<FunctionIndex, Known>,
    thread: Thread,
) -> HashMap<FunctionIndex, Times> {
    let own = own(functions, thread);
    let stands_for = own.waits_stand_for;
    let off = |ticks: &Ticks| ticks.off_once + ticks.waited * stands_for;
    let part = |known: &Known| {
        let total = &known.share.total;
        Part { cpu: total.cpu + known.passed, off: off(total) }
    };
    let mut totals: HashMap<FunctionIndex, Part> =
        functions.iter().map(|(f, k)| (*f, part(k))).collect();
    let again = recursive(functions);
    for (function, total) in &mut totals {
        // What calls itself counts more than once.
        if !again.contains(function) {
            total.cpu = total.cpu.min(thread.cpu.unwrap_or(f64::INFINITY));
            total.off = total.off.min(thread.off.unwrap_or(f64::INFINITY));
        }
    }
    bound_short(functions, &own.parts, &mut totals);
    let times = totals.into_iter().map(|(function, total)| {
        let own = own.parts[&function];
        let (cpu, off) = (total.cpu.max(own.cpu), total.off.max(own.off));
        // Conversion of what is below zero gives zero.
        let times = Times {
            total: (cpu + off).round() as u64,
            own: (own.cpu + own.off).round() as u64,
            cpu_total: cpu.round() as u64,
            cpu_own: own.cpu.round() as u64,
        };
        (function, times)
    });
    times.collect()
}

struct Own {
    parts: HashMap<FunctionIndex, Part>,
    /// What part of the calls that a waiting sample stands for waited as well.
    waits_stand_for: f64,
}

/// Functions' own ticks: what is not their callees'.
fn own(functions: &HashMap<FunctionIndex, Known>, thread: Thread) -> Own {
    let mut below: HashMap<FunctionIndex, Ticks> = HashMap::new();
    for (caller, ticks) in functions.values().flat_map(|known| &known.share.of_callers) {
        let sum = below.entry(*caller).or_default();
        sum.cpu += ticks.cpu;
        sum.waited += ticks.waited;
        sum.off_once += ticks.off_once;
    }
    let above = |function: &FunctionIndex| {
        let total = functions[function].share.total;
        let below = below.get(function).copied().unwrap_or_default();
        Ticks {
            cpu: total.cpu - below.cpu,
            waited: (total.waited - below.waited).max(0.0),
            off_once: (total.off_once - below.off_once).max(0.0),
        }
    };
    let above: HashMap<FunctionIndex, Ticks> = functions.keys().map(|f| (*f, above(f))).collect();
    let once: f64 = above.values().map(|ticks| ticks.off_once).sum();
    let waited: f64 = above.values().map(|ticks| ticks.waited).sum();
    // A wait counts for its caller, too, where that called through code without probes and is unknown.
    let once_fits = thread.off.filter(|off| once > *off).map_or(1.0, |off| off / once);
    let left = thread.off.map_or(f64::INFINITY, |off| (off - once).max(0.0));
    let waits_stand_for = if waited > left { left / waited } else { 1.0 };
    let sampled: f64 = functions.iter().map(|(f, k)| (above[f].cpu + k.passed).max(0.0)).sum();
    let cpu = thread.cpu.filter(|cpu| sampled > *cpu);
    let ran_for = cpu.map_or(1.0, |cpu| cpu / sampled);
    let part = |(function, known): (&FunctionIndex, &Known)| {
        let ticks = above[function];
        let cpu = known.pc_samples.unwrap_or((ticks.cpu + known.passed).max(0.0) * ran_for);
        let off = ticks.off_once * once_fits + ticks.waited * waits_stand_for;
        (*function, Part { cpu, off })
    };
    Own { parts: functions.iter().map(part).collect(), waits_stand_for }
}

/// Functions whose calls are short take no more than their own time and their share of their callees'.
/// Of longer ones that is not certain: what calls them back through code without probes is unknown.
fn bound_short(
    functions: &HashMap<FunctionIndex, Known>,
    own: &HashMap<FunctionIndex, Part>,
    totals: &mut HashMap<FunctionIndex, Part>,
) {
    let is_short = |known: &Known| known.share.total.cpu < SHORT * known.calls;
    let short: HashSet<FunctionIndex> =
        functions.iter().filter(|(_, known)| is_short(known)).map(|(f, _)| *f).collect();
    for _ in 0..ROUNDS {
        let mut bounds: HashMap<FunctionIndex, f64> =
            short.iter().map(|f| (*f, own[f].cpu)).collect();
        for (callee, known) in functions {
            let all = known.share.total.cpu;
            for (caller, ticks) in &known.share.of_callers {
                if let Some(bound) = bounds.get_mut(caller).filter(|_| all > 0.0) {
                    *bound += totals[callee].cpu * (ticks.cpu / all).clamp(0.0, 1.0);
                }
            }
        }
        let mut changed = false;
        for (function, bound) in bounds {
            let Some(total) = totals.get_mut(&function).filter(|t| t.cpu > bound + 1.0) else {
                continue;
            };
            total.cpu = bound;
            changed = true;
        }
        if !changed {
            return;
        }
    }
}

/// Functions that call themselves, by others perhaps. Callers that a function spends next to nothing
/// for do not count: long calls through code without probes are not certain.
fn recursive(functions: &HashMap<FunctionIndex, Known>) -> HashSet<FunctionIndex> {
    let calls = functions.iter().flat_map(|(callee, known)| {
        let least = known.share.total.cpu * LEAST;
        let callers = known.share.of_callers.iter().filter(move |(_, ticks)| ticks.cpu > least);
        callers.map(|(caller, _)| (*caller, *callee))
    });
    let calls = DiGraphMap::<FunctionIndex, ()>::from_edges(calls);
    let cycle =
        |group: &Vec<FunctionIndex>| group.len() > 1 || calls.contains_edge(group[0], group[0]);
    tarjan_scc(&calls).into_iter().filter(cycle).flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ticks(cpu: f64) -> Ticks {
        Ticks { cpu, ..Ticks::default() }
    }

    fn known(cpu: f64, calls: f64, callers: &[(u32, f64)]) -> Known {
        let of_callers =
            callers.iter().map(|(caller, cpu)| (FunctionIndex(*caller), ticks(*cpu))).collect();
        let share = Share { total: ticks(cpu), of_callers };
        Known { share, calls, ..Known::default() }
    }

    fn looked(known: Known, pc_samples: f64) -> Known {
        Known { pc_samples: Some(pc_samples), ..known }
    }

    #[test]
    fn a_short_function_takes_its_own_time_and_its_callees() {
        // 1 calls 2, which calls 3: samples say five times too much of both.
        let functions = HashMap::from([
            (FunctionIndex(1), looked(known(1e6, 1.0, &[]), 800_000.0)),
            (FunctionIndex(2), looked(known(1e6, 1000.0, &[(1, 1e6)]), 100_000.0)),
            (FunctionIndex(3), looked(known(5e5, 1000.0, &[(2, 5e5)]), 100_000.0)),
        ]);
        let times = fit(&functions, Thread { cpu: Some(1e6), off: Some(0.0) });
        let (leaf, middle) = (times[&FunctionIndex(3)], times[&FunctionIndex(2)]);
        assert_eq!((leaf.cpu_own, leaf.cpu_total), (100_000, 100_000));
        assert_eq!((middle.cpu_own, middle.cpu_total), (100_000, 200_000));
        assert_eq!(
            (times[&FunctionIndex(1)].cpu_own, times[&FunctionIndex(1)].cpu_total),
            (800_000, 1_000_000)
        );
    }

    #[test]
    fn nothing_runs_for_longer_than_its_thread_but_what_calls_itself() {
        let functions = HashMap::from([
            (FunctionIndex(1), known(9e6, 2.0, &[])),
            (FunctionIndex(2), known(8e6, 3.0, &[(1, 4e6), (2, 4e6)])),
            (FunctionIndex(3), known(4e6, 5.0, &[(1, 4e6)])),
        ]);
        let times = fit(&functions, Thread { cpu: Some(3e6), off: None });
        assert_eq!(
            (times[&FunctionIndex(1)].cpu_total, times[&FunctionIndex(3)].cpu_total),
            (3_000_000, 3_000_000)
        );
        assert_eq!(times[&FunctionIndex(2)].cpu_total, 8_000_000);
        let own: u64 = times.values().map(|times| times.cpu_own).sum();
        assert!(own.abs_diff(3_000_000) < 3, "{own}");
    }

    #[test]
    fn a_wait_is_one_functions_own_although_its_caller_is_unknown() {
        let waits = |off_once| {
            let total = Ticks { off_once, ..Ticks::default() };
            Known { share: Share { total, ..Share::default() }, calls: 1.0, ..Known::default() }
        };
        // 1 called 2 through code without probes.
        let functions =
            HashMap::from([(FunctionIndex(1), waits(1000.0)), (FunctionIndex(2), waits(1000.0))]);
        let times = fit(&functions, Thread { cpu: None, off: Some(1000.0) });
        let own: u64 = times.values().map(|times| times.own).sum();
        assert_eq!(
            (own, times[&FunctionIndex(1)].total, times[&FunctionIndex(2)].total),
            (1000, 1000, 1000)
        );
    }

    #[test]
    fn waits_stand_for_others_as_far_as_the_thread_waited() {
        let waits = |waited, off_once| {
            let total = Ticks { cpu: 10.0, waited, off_once };
            Known { share: Share { total, ..Share::default() }, calls: 9.0, ..Known::default() }
        };
        let functions = HashMap::from([
            (FunctionIndex(1), waits(90_000.0, 0.0)),
            (FunctionIndex(2), waits(0.0, 700.0)),
        ]);
        let times = fit(&functions, Thread { cpu: None, off: Some(1000.0) });
        assert_eq!((times[&FunctionIndex(1)].own, times[&FunctionIndex(2)].own), (310, 710));
        let times = fit(&functions, Thread::default());
        assert_eq!((times[&FunctionIndex(1)].own, times[&FunctionIndex(2)].own), (90_010, 710));
    }
}
