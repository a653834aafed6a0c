//! Decides by looks, and by nothing else, which rules hold.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use crate::finding::{Finding, Why};
use crate::limit::Limit;
use crate::look::{Look, ProcessId, ProcessLook, Progress, ThreadLook, WaitLook};
use crate::rule::{Condition, Rule};
use crate::window::Watching;
use fettle_types::Tid;

/// A thread that has waited so many times has started.
const WAITS_OF_START: u64 = 8;
/// A process has started once it has rested for so long, ...
const REST: Duration = Duration::from_millis(2);
/// ... or was seen for the first time so long ago.
const START: Duration = Duration::from_secs(2);
/// A thread that is stopped for evidence waits for that, and again for what it waited for, and its call is begun anew.
const MARKS_OF_PAUSE: u64 = 3;
/// What a thread uses beside its last mark of progress, at most, before it rests: the way to the kernel that waits.
const HARDLY: u64 = 500_000;
/// Two looks in a row must show the same cycle.
const CYCLE_LOOKS: u32 = 2;

/// What is remembered of processes between looks.
#[derive(Debug)]
pub struct Judge {
    rules: Vec<Rule>,
    processes: HashMap<ProcessId, Known>,
    /// What is usual, by program.
    limits: BTreeMap<String, Limit>,
}

#[derive(Debug, Default)]
struct Known {
    threads: HashMap<Tid, Mark>,
    cycles: BTreeMap<Vec<(Tid, u64)>, (u32, u64)>,
    /// CPU time when it last changed, and when that was.
    cpu: Option<(u64, u64)>,
    start: Start,
    scalars: HashMap<String, (i64, u64)>,
    /// Windows, by rule.
    windows: HashMap<usize, Watching>,
    /// Rules that have fired and that have held since.
    holds: BTreeSet<usize>,
}

impl Known {
    /// Who has used nothing since the look before, and hardly anything since its mark, waits for work: it is from here on
    /// that it may fail to get on. Clocks that step cannot say so.
    fn rest(&mut self, now: u64, look: &ProcessLook) {
        if !look.is_exact || self.cpu.is_none_or(|(_, since)| since == now) {
            return;
        }
        for mark in self.threads.values_mut() {
            if look.cpu_ns.saturating_sub(mark.process_ns) < HARDLY {
                mark.at_ns = now;
            }
        }
    }

    /// A pause for evidence is no progress: what has held goes on to hold, and what is counted is counted from here on.
    fn go_on_from(&mut self, now: u64, look: &ProcessLook) {
        self.cpu = match self.cpu {
            Some((_, since)) if !look.is_awake => Some((look.cpu_ns, since)),
            _ => Some((look.cpu_ns, now)),
        };
        for thread in look.threads.iter().flatten() {
            let Some(mark) = self.threads.get_mut(&thread.tid) else { continue };
            let forgiven = mark.forgiven + thread.progress.since(mark.progress);
            *mark = match forgiven <= MARKS_OF_PAUSE {
                true => Mark { progress: thread.progress, forgiven, ..*mark },
                false => Mark::fresh(thread, now, look),
            };
        }
    }
}

/// What a process does before it has come to its work says nothing of how long work takes, and may take longer.
#[derive(Clone, Copy, Debug, Default)]
struct Start {
    seen_at: Option<u64>,
    is_over: bool,
}

impl Start {
    /// A look at a process that has used no CPU time since then.
    fn see(&mut self, now: u64, unchanged_since: u64) {
        let seen_at = *self.seen_at.get_or_insert(now);
        self.is_over |= now.saturating_sub(unchanged_since) >= nanos(REST)
            || now.saturating_sub(seen_at) >= nanos(START);
    }
}

/// A thread's last mark of progress.
#[derive(Clone, Copy, Debug)]
struct Mark {
    progress: Progress,
    cpu_ns: u64,
    /// When that was, or when it was last seen to rest since.
    at_ns: u64,
    /// Its CPU time in the look before this one. Where there are no exact clocks, all of these are as old as the
    /// scheduler's last tick, some milliseconds, so what a thread has used since its mark is known no better.
    last_cpu_ns: u64,
    /// Its process's CPU time at the mark.
    process_ns: u64,
    /// Marks that a pause for evidence is the reason of.
    forgiven: u64,
}

impl Mark {
    /// Where a thread is now.
    fn fresh(thread: &ThreadLook, now: u64, look: &ProcessLook) -> Mark {
        Mark {
            progress: thread.progress,
            cpu_ns: thread.cpu_ns,
            at_ns: now,
            last_cpu_ns: thread.cpu_ns,
            process_ns: look.cpu_ns,
            forgiven: 0,
        }
    }
}

/// A thread that has passed no mark.
#[derive(Clone, Copy, Debug)]
struct Stuck {
    tid: Tid,
    /// CPU time since its last mark.
    used_ns: u64,
    /// The same in the look before.
    used_before_ns: u64,
    since_ns: u64,
}

impl Stuck {
    /// Whether it has used that much, and not only since the look before: what a hypervisor takes from the machine, or
    /// interrupts, counts as its CPU time, too, and may be over.
    fn has_used(&self, limit_ns: u64) -> bool {
        self.used_ns >= limit_ns && self.used_before_ns >= limit_ns
    }
}

impl Judge {
    /// Nothing is known yet.
    pub fn new(rules: Vec<Rule>) -> Judge {
        Judge { rules, processes: HashMap::new(), limits: BTreeMap::new() }
    }

    /// The rules.
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// Since when a process's threads have passed no mark of progress, and what CPU time they had then.
    pub fn marks(&self, id: ProcessId) -> BTreeMap<Tid, (u64, u64)> {
        let threads = self.processes.get(&id).map(|known| known.threads.iter());
        let mark = |(tid, mark): (&Tid, &Mark)| (*tid, (mark.at_ns, mark.cpu_ns));
        threads.into_iter().flatten().map(mark).collect()
    }

    /// A rule that holds of a process is found to anew, if it still does.
    pub fn find_again(&mut self, rule: usize, process: ProcessId) {
        if let Some(known) = self.processes.get_mut(&process) {
            known.holds.remove(&rule);
        }
    }

    /// What is usual for processes of a program.
    pub fn limit_of(&self, program: &str) -> Limit {
        self.limits.get(program).cloned().unwrap_or_default()
    }

    /// What the next look shows: the rules that hold now and did not before, in their order.
    pub fn see(&mut self, look: &Look) -> Vec<Finding> {
        let mut findings = Vec::new();
        for learned in &look.learned {
            let known = self.limits.entry(learned.program.clone());
            known.or_insert_with(|| Limit::recalled(learned));
        }
        for process in &look.processes {
            self.process(look.at_ns, process, &mut findings);
        }
        let living: BTreeSet<ProcessId> = look.processes.iter().map(|p| p.id).collect();
        self.processes.retain(|id, _| living.contains(id));
        findings.sort_by_key(|finding| (finding.rule, finding.process));
        findings
    }

    fn process(&mut self, now: u64, look: &ProcessLook, findings: &mut Vec<Finding>) {
        let known = self.processes.entry(look.id).or_default();
        if look.disturbed && look.held.is_none() {
            known.go_on_from(now, look);
            return;
        }
        if look.is_awake || known.cpu.is_none_or(|(cpu_ns, _)| cpu_ns != look.cpu_ns) {
            known.cpu = Some((look.cpu_ns, now));
        }
        known.start.see(now, known.cpu.map_or(now, |(_, since)| since));
        known.rest(now, look);
        if look.held.is_some() {
            // What it does not get done now is not its fault: all counts anew when it goes on.
            let (cpu, start) = (known.cpu.map(|(cpu_ns, _)| (cpu_ns, now)), known.start);
            *known = Known { cpu, start, ..Known::default() };
            return;
        }
        let limit = self.limits.entry(look.program.clone()).or_default();
        let stuck = spinning(known, limit, now, look);
        let cycle = cycle(known, now, look);
        for (number, rule) in self.rules.iter().enumerate() {
            if !rule.target.fits(&look.program, look.is_worker) {
                continue;
            }
            let found = match &rule.condition {
                Condition::Spins { least, exactly } => {
                    let learned = (!exactly).then_some((&*limit, known.start));
                    Some(longest(&stuck, *least, learned)).filter(|_| look.threads.is_some())
                }
                Condition::WaitsInCycle => look.waits.as_ref().map(|_| cycle.clone()),
                Condition::SleepsOnBytes { least } => look.unread.map(|bytes| {
                    let since = known.cpu.map_or(now, |(_, since)| since);
                    let long = now.saturating_sub(since) >= nanos(*least);
                    (bytes > 0 && long).then_some((since, Why::Unread { bytes }))
                }),
                Condition::ScalarStill { sensor, least } => {
                    still(known, now, look, sensor).map(|(value, since)| {
                        let long = now.saturating_sub(since) >= nanos(*least);
                        long.then(|| (since, Why::Still { sensor: sensor.clone(), value }))
                    })
                }
                Condition::Above(windows) => {
                    known.windows.entry(number).or_default().see(windows, now, look)
                }
            };
            // What was not looked at this time is as it was.
            let Some(found) = found else { continue };
            match found {
                None => {
                    known.holds.remove(&number);
                }
                Some((since_ns, why)) => {
                    if known.holds.insert(number) {
                        findings.push(Finding { rule: number, process: look.id, since_ns, why });
                    }
                }
            }
        }
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// The threads that have passed no mark since the look before, with what they have used since.
fn spinning(known: &mut Known, limit: &mut Limit, now: u64, look: &ProcessLook) -> Vec<Stuck> {
    let Some(threads) = &look.threads else { return Vec::new() };
    let mut stuck = Vec::new();
    let mut marks = HashMap::with_capacity(threads.len());
    for thread in threads {
        let mark = known.threads.get(&thread.tid).copied();
        let ThreadLook { tid, cpu_ns, progress } = *thread;
        let fresh = Mark::fresh(thread, now, look);
        let mark = match mark {
            Some(mark) if progress == mark.progress => {
                stuck.push(Stuck {
                    tid,
                    used_ns: cpu_ns.saturating_sub(mark.cpu_ns),
                    used_before_ns: mark.last_cpu_ns.saturating_sub(mark.cpu_ns),
                    since_ns: mark.at_ns,
                });
                Mark { last_cpu_ns: cpu_ns, forgiven: 0, ..mark }
            }
            Some(mark) => {
                if known.start.is_over && mark.progress.waits >= WAITS_OF_START {
                    let passed = progress.since(mark.progress);
                    limit.passed(cpu_ns.saturating_sub(mark.cpu_ns), passed);
                }
                fresh
            }
            None => fresh,
        };
        marks.insert(tid, mark);
    }
    known.threads = marks;
    stuck
}

/// The thread that has used most, if that is more than it may.
fn longest(
    stuck: &[Stuck],
    least: Duration,
    learned: Option<(&Limit, Start)>,
) -> Option<(u64, Why)> {
    let limit_ns = nanos(match learned {
        None => least,
        Some((limit, start)) if start.is_over => limit.limit(least),
        Some((limit, _)) => limit.limit_of_start(least),
    });
    let most = *stuck.iter().max_by_key(|thread| thread.used_ns)?;
    let Stuck { tid, used_ns: cpu_ns, since_ns, .. } = most;
    let learned_from = learned.map_or(0, |(limit, _)| limit.marks());
    let holds = match learned {
        None => cpu_ns >= limit_ns,
        Some(_) => most.has_used(limit_ns),
    };
    holds.then_some((since_ns, Why::Spins { tid, cpu_ns, limit_ns, learned_from }))
}

/// A cycle that was there in the look before, too.
fn cycle(known: &mut Known, now: u64, look: &ProcessLook) -> Option<(u64, Why)> {
    let waits = look.waits.as_ref()?;
    let mutex = |tid: Tid| waits.iter().find(|wait| wait.tid == tid).map_or(0, |wait| wait.mutex);
    let mut seen = BTreeMap::new();
    for tids in cycles(waits) {
        let key: Vec<(Tid, u64)> = tids.iter().map(|tid| (*tid, mutex(*tid))).collect();
        let (looks, since) = known.cycles.get(&key).copied().unwrap_or((0, now));
        seen.insert(key, (looks + 1, since));
    }
    known.cycles = seen;
    let (key, (_, since)) = known.cycles.iter().find(|(_, (looks, _))| *looks >= CYCLE_LOOKS)?;
    Some((*since, Why::Cycle { tids: key.iter().map(|(tid, _)| *tid).collect() }))
}

fn cycles(waits: &[WaitLook]) -> Vec<Vec<Tid>> {
    let waiting: Vec<fettle_locks::hung::Waiting> = waits
        .iter()
        .map(|wait| fettle_locks::hung::Waiting {
            tid: wait.tid.unsigned(),
            thread: String::new(),
            awaited: fettle_locks::hung::Awaited::Lock {
                kind: "mutex",
                address: wait.mutex,
                name: None,
            },
            holder: Some(wait.owner.unsigned()),
            stack: Vec::new(),
        })
        .collect();
    let numbers = |cycle: Vec<u32>| -> Vec<Tid> {
        cycle.into_iter().filter_map(|tid| Tid::try_from(tid).ok()).collect()
    };
    fettle_locks::hung::cycles(&waiting).into_iter().map(numbers).collect()
}

/// A scalar's value, and since when it has had it.
fn still(known: &mut Known, now: u64, look: &ProcessLook, sensor: &str) -> Option<(i64, u64)> {
    let (_, value) = look.scalars.iter().find(|(name, _)| name == sensor)?;
    let entry = known.scalars.entry(sensor.to_owned()).or_insert((*value, now));
    if entry.0 != *value {
        *entry = (*value, now);
    }
    Some(*entry)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::look::{Held, HistogramLook};
    use crate::parse::parse;

    const MS: u64 = 1_000_000;

    fn judge(text: &str) -> Judge {
        Judge::new(parse("rules", text).unwrap_or_else(|report| panic!("{report}")))
    }

    fn tid(number: u32) -> Tid {
        number.try_into().unwrap()
    }

    fn spins(why: &Why, number: u32) -> bool {
        matches!(why, Why::Spins { tid: found, .. } if *found == tid(number))
    }

    fn process(threads: &[(u32, u64, u64)]) -> ProcessLook {
        let thread = |&(number, cpu_ns, calls): &(u32, u64, u64)| ThreadLook {
            tid: tid(number),
            cpu_ns,
            progress: Progress { calls, waits: 0 },
        };
        ProcessLook::working(tid(7), threads.iter().map(thread).collect())
    }

    fn at(ms: u64, process: ProcessLook) -> Look {
        Look { at_ns: ms * MS, processes: vec![process], ..Look::default() }
    }

    #[test]
    fn what_computes_without_progress_is_found_once() {
        let mut judge =
            judge("rule a { worker of \"app\" spins exactly 3ms without progress -> log }");
        assert_eq!(judge.see(&at(0, process(&[(7, 0, 5)]))), []);
        assert_eq!(judge.see(&at(1, process(&[(7, MS, 5)]))), []);
        let found = judge.see(&at(4, process(&[(7, 3 * MS, 5)])));
        let [finding] = &found[..] else { panic!("{found:?}") };
        assert_eq!(finding.since_ns, 0);
        assert!(spins(&finding.why, 7), "{finding:?}");
        assert_eq!(judge.see(&at(5, process(&[(7, 4 * MS, 5)]))), [], "it still holds");
        assert_eq!(judge.see(&at(6, process(&[(7, 5 * MS, 6)]))), [], "it got on");
        assert_eq!(judge.see(&at(9, process(&[(7, 8 * MS, 6)]))).len(), 1, "and is stuck again");
    }

    #[test]
    fn a_start_teaches_nothing() {
        let mut judge = judge("rule a { worker of \"app\" spins 3ms without progress -> log }");
        let look = |cpu_ns, calls, waits| {
            let mut process = process(&[(7, cpu_ns, calls)]);
            process.threads.as_mut().unwrap()[0].progress.waits = waits;
            process
        };
        judge.see(&at(0, look(0, 5, 0)));
        judge.see(&at(1, look(9 * MS, 6, WAITS_OF_START)));
        assert_eq!(judge.limit_of("app").marks(), 0);
        judge.see(&at(2, look(10 * MS, 8, WAITS_OF_START + 1)));
        assert_eq!(judge.limit_of("app").marks(), 0, "it has not rested");
        judge.see(&at(5, look(10 * MS, 8, WAITS_OF_START + 1)));
        judge.see(&at(6, look(11 * MS, 10, WAITS_OF_START + 2)));
        assert_eq!(judge.limit_of("app").marks(), 3);
        // It would have been late for one that has just started.
        let other = |cpu_ns| {
            let mut other = look(cpu_ns, 1, 0);
            other.id = ProcessId { pid: tid(8).as_process(), start: 2 };
            other
        };
        assert_eq!(judge.see(&at(10, other(0))), []);
        assert_eq!(judge.see(&at(30, other(20 * MS))), []);
        assert_eq!(judge.see(&at(71, other(61 * MS))), []);
        assert_eq!(judge.see(&at(72, other(62 * MS))).len(), 1);
    }

    #[test]
    fn what_has_just_come_counts_if_the_next_look_shows_the_same() {
        let stuck =
            |used_ns, used_before_ns| Stuck { tid: tid(7), used_ns, used_before_ns, since_ns: 0 };
        assert!(stuck(4 * MS, 3 * MS).has_used(3 * MS));
        assert!(!stuck(3 * MS, 2 * MS).has_used(3 * MS), "it may be over");
    }

    #[test]
    fn a_hang_begins_when_a_rest_has_ended() {
        let found = |is_exact| {
            let mut judge =
                judge("rule a { worker of \"app\" spins exactly 3ms without progress -> log }");
            let look = |ns| ProcessLook { is_exact, ..process(&[(7, ns, 5)]) };
            let rests = |ns| ProcessLook { threads: None, ..look(ns) };
            assert_eq!(judge.see(&at(0, look(0))), []);
            // It goes on to wait for work after its last mark, and rests.
            (1..=20).for_each(|ms| assert_eq!(judge.see(&at(ms, rests(MS / 10))), []));
            assert_eq!(judge.see(&at(21, look(MS))), []);
            judge.see(&at(24, look(4 * MS)))[0].since_ns
        };
        assert_eq!((found(true), found(false)), (20 * MS, 0));
    }

    #[test]
    fn another_thread_s_progress_is_not_its_own() {
        let mut judge =
            judge("rule a { worker of \"app\" spins exactly 3ms without progress -> log }");
        for ms in 0..3 {
            assert_eq!(judge.see(&at(ms, process(&[(7, ms * MS, 5), (8, ms * MS, ms)]))), []);
        }
        let found = judge.see(&at(3, process(&[(7, 3 * MS, 5), (8, 3 * MS, 3)])));
        assert!(found.len() == 1 && spins(&found[0].why, 7), "{found:?}");
    }

    #[test]
    fn what_is_stopped_or_traced_is_at_no_fault() {
        let mut judge =
            judge("rule a { worker of \"app\" spins exactly 3ms without progress -> log }");
        judge.see(&at(0, process(&[(7, 0, 5)])));
        for held in [Held::Stopped, Held::Traced, Held::Uninterruptible] {
            let held = ProcessLook { held: Some(held), ..process(&[(7, 9 * MS, 5)]) };
            assert_eq!(judge.see(&at(9, held)), []);
        }
        assert_eq!(judge.see(&at(10, process(&[(7, 10 * MS, 5)]))), [], "it counts anew");
    }

    #[test]
    fn a_pid_that_is_used_again_is_another_process() {
        let mut judge =
            judge("rule a { worker of \"app\" spins exactly 3ms without progress -> log }");
        judge.see(&at(0, process(&[(7, 0, 5)])));
        let other = ProcessLook {
            id: ProcessId { pid: tid(7).as_process(), start: 2 },
            ..process(&[(7, 9 * MS, 5)])
        };
        assert_eq!(judge.see(&at(9, other)), []);
    }

    #[test]
    fn a_cycle_is_believed_at_the_second_look() {
        let mut judge = judge("rule a { process of \"app\" waits in a cycle -> log }");
        let wait = |waits, mutex, owner| WaitLook { tid: tid(waits), mutex, owner: tid(owner) };
        let look = |waits: &[WaitLook]| ProcessLook {
            waits: Some(waits.to_vec()),
            threads: None,
            ..process(&[])
        };
        let dead = [wait(1, 0x10, 2), wait(2, 0x20, 1), wait(3, 0x20, 1)];
        assert_eq!(judge.see(&at(0, look(&dead))), []);
        assert_eq!(judge.see(&at(1, look(&[wait(1, 0x10, 2)]))), [], "it was none");
        assert_eq!(judge.see(&at(2, look(&dead))), []);
        let found = judge.see(&at(3, look(&dead)));
        assert_eq!(found[0].why, Why::Cycle { tids: vec![tid(1), tid(2)] });
        assert_eq!(found[0].since_ns, 2 * MS);
        assert_eq!(judge.see(&at(4, look(&dead))), []);
    }

    #[test]
    fn what_is_slow_for_three_windows_is_found_until_it_is_fast() {
        let mut judge = judge(
            "rule a { p90 of histogram \"t\" of process of \"app\" > 1000 over 10ms for 3 windows until 500 -> log }",
        );
        let (mut counts, mut ms) = (std::collections::BTreeMap::new(), 0);
        let mut window = |values: &[(u64, u64)]| {
            for (low, count) in values {
                *counts.entry(*low).or_insert(0) += count;
            }
            ms += 10;
            let counts = counts.iter().map(|(low, count)| (*low, *count)).collect();
            let histograms = vec![HistogramLook { name: "t".into(), counts }];
            judge.see(&at(ms, ProcessLook { histograms, threads: None, ..process(&[]) })).len()
        };
        let (slow, fast, between) = ([(64, 80), (2048, 20)], [(64, 99)], [(768, 99)]);
        assert_eq!(window(&slow), 0, "nothing is known of what came before");
        assert_eq!([window(&slow), window(&slow), window(&fast)], [0; 3]);
        assert_eq!([window(&slow), window(&slow), window(&slow)], [0, 0, 1]);
        assert_eq!([window(&slow), window(&between), window(&[]), window(&slow)], [0; 4]);
        assert_eq!(window(&fast), 0, "it holds no longer");
        assert_eq!(
            [window(&slow), window(&slow), window(&[(4096, 9)]), window(&slow)],
            [0, 0, 0, 1]
        );
    }

    #[test]
    fn a_pause_for_evidence_is_no_progress() {
        let rule =
            "rule a { worker of \"app\" spins exactly 3ms without progress -> keep evidence }";
        let mut judge = judge(rule);
        assert_eq!(judge.see(&at(0, process(&[(7, 0, 10)]))), []);
        assert_eq!(judge.see(&at(5, process(&[(7, 5 * MS, 10)]))).len(), 1);
        let paused = |ns, marks| ProcessLook { disturbed: true, ..process(&[(7, ns, marks)]) };
        // It has waited for the pause: it goes on to be stuck, and that is not found again.
        assert_eq!(judge.see(&at(6, paused(6 * MS, 12))), []);
        assert_eq!(judge.see(&at(7, paused(7 * MS, 13))), []);
        assert_eq!(judge.see(&at(12, process(&[(7, 12 * MS, 13)]))), []);
        // More than that is its work.
        assert_eq!(judge.see(&at(13, paused(13 * MS, 20))), []);
        assert_eq!(judge.see(&at(14, process(&[(7, 14 * MS, 20)]))), []);
        assert_eq!(judge.see(&at(17, process(&[(7, 17 * MS, 20)]))).len(), 1);
    }

    #[test]
    fn sleeping_on_bytes_and_still_scalars() {
        let mut judge = judge(
            "rule a { worker of \"app\" sleeps 5ms while it holds bytes -> log }
             rule b { scalar \"ticks\" of process of \"app\" still for 4ms -> log }",
        );
        let look = |unread, ticks| ProcessLook {
            unread: Some(unread),
            is_awake: false,
            scalars: vec![("ticks".into(), ticks)],
            threads: None,
            ..process(&[])
        };
        assert_eq!(judge.see(&at(0, look(9, 1))), []);
        assert_eq!(judge.see(&at(3, look(9, 2))), []);
        let found = judge.see(&at(6, look(9, 2)));
        assert!(matches!(found[..], [Finding { rule: 0, .. }]), "{found:?}");
        let found = judge.see(&at(7, look(0, 2)));
        assert_eq!(found[0].why, Why::Still { sensor: "ticks".into(), value: 2 });
    }
}
