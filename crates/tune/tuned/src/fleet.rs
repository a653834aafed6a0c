//! What is to be done next with the process groups that rules mean. Decides by what it is shown, and by
//! the time that it is given; does nothing itself.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use fettle_live::GroupKey;

use crate::find::Found;
use crate::rules::Rule;

/// Waiting for a further try grows up to this.
const LONGEST_RETRY: Duration = Duration::from_secs(86_400);

/// Why tuned text is reverted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Reason {
    /// The rule's check failed, so often as the rule says.
    Check {
        /// What it said.
        said: String,
    },
    /// Threads were paused for longer than the rule allows.
    Paused {
        /// The longest time.
        longest: Duration,
        /// The rule's.
        limit: Duration,
    },
    /// It gains less than it did: it was laid out for another load.
    GainsLess {
        /// CPU time for a unit of work, rewritten over original.
        ratio: f64,
        /// What it was when it was tuned.
        before: f64,
    },
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::Check { said } => write!(f, "its check failed: {said}"),
            Reason::Paused { longest, limit } => {
                write!(f, "its threads were paused for {longest:?}; longest_pause is {limit:?}")
            }
            Reason::GainsLess { ratio, before } => {
                let percent = |ratio: f64| (ratio - 1.0) * 100.0;
                let (now, then) = (percent(*ratio), percent(*before));
                write!(
                    f,
                    "its load has changed: {now:+.1} % of CPU time, {then:+.1} % when it was tuned"
                )
            }
        }
    }
}

/// What a comparison has shown: CPU time for a unit of work, rewritten over original.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Gain {
    /// The mean of its rounds.
    pub ratio: f64,
    /// Lower end of its 95 % interval.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

impl Gain {
    /// Whether it is less of a gain than another, for certain.
    fn is_less_than(&self, other: &Gain) -> bool {
        self.low > other.high
    }
}

/// How a process group stands. Times are milliseconds since the machine was started.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum State {
    /// It runs its original text, and is to be tuned.
    Waiting,
    /// It runs rewritten text.
    Tuned(Tuned),
    /// It runs its original text, because tuning has failed, brought nothing, or was reverted.
    Resting {
        /// Until then; none if it is not to be tried again.
        until: Option<u64>,
        /// Why.
        why: String,
    },
}

/// A process group that runs rewritten text.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Tuned {
    /// Since when.
    pub since: u64,
    /// CPU time for a unit of work, rewritten over original, as last measured.
    pub ratio: Option<f64>,
    /// What the comparison has shown that kept the text.
    #[serde(default)]
    pub first: Option<Gain>,
    /// When it is compared again.
    pub recheck_at: u64,
    /// When it is checked, or reverted.
    pub check_at: u64,
    /// Checks that have failed since one succeeded.
    pub failures: u32,
    /// Why it is to be reverted.
    pub undo: Option<Reason>,
}

/// Something to be done.
#[derive(Clone, Debug, PartialEq)]
pub enum Act {
    /// Tune it.
    Tune,
    /// Compare again what is installed.
    Recheck,
    /// Run the rule's check.
    Check,
    /// Revert it.
    Undo {
        /// Why.
        why: Reason,
    },
}

/// What became of it.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// Text was compared, and stays or does not.
    Compared {
        /// Whether rewritten text is in place.
        kept: bool,
        /// *faster*, *slower*, *equal*, *undecided*, or *not compared*.
        verdict: String,
        /// The same, or why there was no comparison.
        why: String,
        /// What it has shown, if there was a comparison.
        gain: Option<Gain>,
        /// The longest time that threads were paused.
        longest_pause: Duration,
    },
    /// The check has succeeded, or the undo.
    Done,
    /// It was not done.
    Failed {
        /// Why.
        why: String,
    },
}

/// Whether tuning may begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Budget {
    /// It may.
    Free,
    /// It is one of the hours in which it may not.
    QuietHours,
    /// It has taken its share of the processor.
    Spent,
}

/// A process group that a rule means.
#[derive(Clone, Debug)]
pub struct Tracked {
    /// What it is.
    pub found: Found,
    /// When it was seen first.
    pub seen: u64,
    /// How it stands.
    pub state: State,
    /// What is being done with it.
    pub busy: Option<Act>,
    /// How often tuning has brought nothing, one time after the other.
    pub tries: u32,
}

/// What a rule has come to, since the daemon was started.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tally {
    /// Comparisons by their verdict.
    pub verdicts: BTreeMap<String, u64>,
    /// Groups that were reverted although they were tuned.
    pub undone: u64,
    /// Checks that failed.
    pub failed_checks: u64,
    /// Tunings that failed.
    pub failed: u64,
    /// The longest time that threads of its processes were paused.
    pub longest_pause: Duration,
}

/// The process groups that rules mean.
#[derive(Debug)]
pub struct Fleet {
    rules: Vec<Rule>,
    groups: BTreeMap<GroupKey, Tracked>,
    /// Until when no further group of a rule is tuned, because one of its first was reverted.
    paused: BTreeMap<usize, u64>,
    tallies: Vec<Tally>,
}

fn ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

impl Fleet {
    /// No group yet.
    pub fn new(rules: Vec<Rule>) -> Fleet {
        let tallies = vec![Tally::default(); rules.len()];
        Fleet { rules, groups: BTreeMap::new(), paused: BTreeMap::new(), tallies }
    }

    /// The rules.
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// The groups.
    pub fn groups(&self) -> &BTreeMap<GroupKey, Tracked> {
        &self.groups
    }

    /// What the rules have come to, in their order.
    pub fn tallies(&self) -> &[Tally] {
        &self.tallies
    }

    /// Takes in which groups there are now. `before` gives what was known of a group that is new here,
    /// and when it was seen first; `is_changed` says whether it has rewritten text.
    pub fn see(
        &mut self,
        now: u64,
        found: BTreeMap<GroupKey, Found>,
        before: &dyn Fn(&GroupKey) -> Option<(u64, State)>,
        is_changed: &dyn Fn(&Found) -> bool,
    ) {
        self.groups.retain(|key, group| found.contains_key(key) || group.busy.is_some());
        for (key, found) in found {
            let is_changed = is_changed(&found);
            let known = self.groups.get(&key).map(|group| (group.busy.is_some(), &group.state));
            let state = match (known, is_changed) {
                (Some((false, State::Tuned(_))), false) => self.reverted_by_hand(now, found.rule),
                (Some((false, State::Waiting | State::Resting { .. })), true) => {
                    self.tuned(now, found.rule, None)
                }
                (Some((_, state)), _) => state.clone(),
                (None, _) => {
                    let (seen, state) = before(&key).unwrap_or((now, State::Waiting));
                    let state = match (is_changed, self.at_the_latest(now, found.rule, state)) {
                        (true, state @ State::Tuned(_)) => state,
                        // Tuned by hand, or by a daemon that was killed.
                        (true, _) => self.tuned(now, found.rule, None),
                        (false, State::Tuned(_)) => State::Waiting,
                        (false, state) => state,
                    };
                    let new = Tracked { found, seen, state, busy: None, tries: 0 };
                    self.groups.insert(key, new);
                    continue;
                }
            };
            if let Some(group) = self.groups.get_mut(&key) {
                (group.found, group.state) = (found, state);
            }
        }
    }

    /// How an earlier daemon has left a group, by rules that may ask for more by now.
    fn at_the_latest(&self, now: u64, rule: usize, state: State) -> State {
        let rule = &self.rules[rule];
        match state {
            State::Tuned(tuned) => {
                let recheck_at = tuned.recheck_at.min(now.saturating_add(ms(rule.recheck)));
                let check_at = tuned.check_at.min(now.saturating_add(ms(rule.check_every)));
                State::Tuned(Tuned { recheck_at, check_at, ..tuned })
            }
            State::Resting { until: Some(until), why } => {
                let until = until.min(now.saturating_add(ms(rule.retry)));
                State::Resting { until: Some(until), why }
            }
            state => state,
        }
    }

    /// A group that was reverted by hand rests for a while.
    fn reverted_by_hand(&self, now: u64, rule: usize) -> State {
        let until = self.retry_at(At { now, rule, tries: 0 });
        State::Resting { until, why: "it was reverted by hand".to_owned() }
    }

    fn tuned(&self, now: u64, rule: usize, first: Option<Gain>) -> State {
        let rule = &self.rules[rule];
        State::Tuned(Tuned {
            since: now,
            ratio: first.map(|first| first.ratio),
            first,
            recheck_at: now.saturating_add(ms(rule.recheck)),
            check_at: now,
            failures: 0,
            undo: None,
        })
    }

    /// What is to be done now: at most one tuning or comparison at a time on the whole machine, and one
    /// thing at a time with each group. All of it counts as begun.
    pub fn next(&mut self, now: u64, budget: Budget) -> Vec<(GroupKey, Act)> {
        let mut acts = Vec::new();
        let is_long = |act: &Option<Act>| matches!(act, Some(Act::Tune | Act::Recheck));
        let mut is_free = !self.groups.values().any(|group| is_long(&group.busy));
        let keys: Vec<GroupKey> = self.groups.keys().copied().collect();
        for key in keys {
            let Some(act) = self.wanted(&key, now, budget == Budget::Free && is_free) else {
                continue;
            };
            let act_of = Some(act.clone());
            is_free &= !is_long(&act_of);
            if let Some(group) = self.groups.get_mut(&key) {
                group.busy = act_of;
            }
            acts.push((key, act));
        }
        acts
    }

    /// What is to be done with a group; comparisons only if they `may` begin.
    fn wanted(&self, key: &GroupKey, now: u64, may: bool) -> Option<Act> {
        let group = self.groups.get(key).filter(|group| group.busy.is_none())?;
        let rule = &self.rules[group.found.rule];
        match &group.state {
            State::Tuned(Tuned { undo: Some(why), check_at, .. }) => {
                (now >= *check_at).then(|| Act::Undo { why: why.clone() })
            }
            State::Tuned(tuned) if rule.check.is_some() && now >= tuned.check_at => {
                Some(Act::Check)
            }
            State::Tuned(tuned) => (may && now >= tuned.recheck_at).then_some(Act::Recheck),
            State::Resting { until, .. } if until.is_none_or(|until| now < until) => None,
            State::Waiting | State::Resting { .. } => {
                let is_old = now.saturating_sub(group.seen) >= ms(rule.after);
                (may && is_old && self.may_tune_another(group.found.rule, now)).then_some(Act::Tune)
            }
        }
    }

    /// Whether a further group of a rule may be tuned: the first ones must have done well.
    fn may_tune_another(&self, rule: usize, now: u64) -> bool {
        if self.paused.get(&rule).is_some_and(|until| now < *until) {
            return false;
        }
        let groups = || self.groups.values().filter(|group| group.found.rule == rule);
        let since: Vec<u64> = groups()
            .filter_map(|group| match &group.state {
                State::Tuned(tuned) => Some(tuned.since),
                _ => None,
            })
            .collect();
        let first = (groups().count() as f64 * self.rules[rule].canary).ceil() as usize;
        let canary_for = ms(self.rules[rule].canary_for);
        since.len() < first.max(1) || since.iter().all(|since| now - since >= canary_for)
    }

    /// Takes in what became of something.
    pub fn done(&mut self, now: u64, key: &GroupKey, outcome: &Outcome) {
        let Some(act) = self.groups.get_mut(key).and_then(|group| group.busy.take()) else {
            return;
        };
        let Some(group) = self.groups.get(key) else { return };
        let (number, tries, state) = (group.found.rule, group.tries, group.state.clone());
        self.count(number, &act, outcome);
        let at = At { now, rule: number, tries };
        let (state, tries) = match (act, state) {
            (Act::Tune, _) => self.after_tune(at, outcome),
            (Act::Recheck, State::Tuned(tuned)) => (self.after_recheck(at, tuned, outcome), tries),
            (Act::Check, State::Tuned(tuned)) => (self.after_check(at, tuned, outcome), tries),
            (Act::Undo { why }, State::Tuned(tuned)) => self.after_undo(at, tuned, &why, outcome),
            (_, state) => (state, tries),
        };
        if let Some(group) = self.groups.get_mut(key) {
            (group.state, group.tries) = (state, tries);
        }
    }

    /// Counts what became of something.
    fn count(&mut self, rule: usize, act: &Act, outcome: &Outcome) {
        let tally = &mut self.tallies[rule];
        match (act, outcome) {
            (_, Outcome::Compared { kept, verdict, longest_pause, .. }) => {
                *tally.verdicts.entry(verdict.clone()).or_default() += 1;
                tally.longest_pause = tally.longest_pause.max(*longest_pause);
                tally.undone += u64::from(*act == Act::Recheck && !kept);
            }
            (Act::Check, Outcome::Failed { .. }) => tally.failed_checks += 1,
            (Act::Tune, Outcome::Failed { .. }) => tally.failed += 1,
            (Act::Undo { .. }, Outcome::Done) => tally.undone += 1,
            _ => {}
        }
    }

    /// When a group that has been tried so often is tried again.
    fn retry_at(&self, at: At) -> Option<u64> {
        let retry = self.rules[at.rule].retry;
        let longer = retry.saturating_mul(1 << at.tries.min(16));
        Some(at.now.saturating_add(ms(longer.min(LONGEST_RETRY.max(retry)))))
    }

    fn after_tune(&self, at: At, outcome: &Outcome) -> (State, u32) {
        match outcome {
            Outcome::Compared { kept: true, gain, longest_pause, .. } => {
                let longest = *longest_pause;
                let limit = self.rules[at.rule].longest_pause.filter(|limit| longest > *limit);
                let why = limit.map(|limit| Reason::Paused { longest, limit });
                let mut state = self.tuned(at.now, at.rule, *gain);
                if let State::Tuned(tuned) = &mut state {
                    tuned.undo = why;
                }
                (state, 0)
            }
            Outcome::Compared { why, .. } | Outcome::Failed { why } => {
                (State::Resting { until: self.retry_at(at), why: why.clone() }, at.tries + 1)
            }
            Outcome::Done => (State::Waiting, at.tries),
        }
    }

    fn after_recheck(&self, at: At, tuned: Tuned, outcome: &Outcome) -> State {
        let recheck_at = at.now.saturating_add(ms(self.rules[at.rule].recheck));
        let (ratio, undo) = match outcome {
            // The load has changed: tuned anew by what it is now.
            Outcome::Compared { kept: false, .. } => return State::Waiting,
            Outcome::Compared { gain: Some(now), .. } => {
                let first = tuned.first.filter(|first| now.is_less_than(first));
                let less =
                    |first: Gain| Reason::GainsLess { ratio: now.ratio, before: first.ratio };
                (Some(now.ratio), first.map(less))
            }
            _ => (tuned.ratio, None),
        };
        let check_at = if undo.is_some() { at.now } else { tuned.check_at };
        State::Tuned(Tuned { ratio, recheck_at, check_at, undo, ..tuned })
    }

    fn after_check(&self, at: At, tuned: Tuned, outcome: &Outcome) -> State {
        let rule = &self.rules[at.rule];
        let (failures, undo) = match outcome {
            Outcome::Failed { why } => {
                let is_often = tuned.failures + 1 >= rule.check_failures;
                (tuned.failures + 1, is_often.then(|| Reason::Check { said: why.clone() }))
            }
            _ => (0, None),
        };
        let pause = if undo.is_some() { 0 } else { ms(rule.check_every) };
        let check_at = at.now.saturating_add(pause);
        State::Tuned(Tuned { check_at, failures, undo, ..tuned })
    }

    fn after_undo(
        &mut self,
        at: At,
        tuned: Tuned,
        why: &Reason,
        outcome: &Outcome,
    ) -> (State, u32) {
        let rule = &self.rules[at.rule];
        if let Outcome::Failed { .. } = outcome {
            // Once more, after a while.
            let again = at.now.saturating_add(ms(rule.check_every));
            let undo = Some(why.clone());
            let again = Tuned { recheck_at: again, check_at: again, failures: 0, undo, ..tuned };
            return (State::Tuned(again), at.tries);
        }
        let until = match why {
            // Tuned anew, by what its load is now.
            Reason::GainsLess { .. } => return (State::Waiting, at.tries),
            Reason::Check { .. } => self.retry_at(at),
            // It would pause them again.
            Reason::Paused { .. } => None,
        };
        if rule.canary < 1.0 {
            self.paused.insert(at.rule, until.unwrap_or(u64::MAX));
        }
        (State::Resting { until, why: why.to_string() }, at.tries + 1)
    }
}

/// What a decision depends on besides what became of something.
#[derive(Clone, Copy)]
struct At {
    now: u64,
    /// The place of the group's rule in the file.
    rule: usize,
    /// How often it was tried in vain.
    tries: u32,
}

#[cfg(test)]
mod tests {
    use fettle_types::Pid;

    use super::*;
    use crate::rules::Rules;

    const SECOND: u64 = 1000;

    fn fleet(more: &str) -> Fleet {
        let text = format!("[[rule]]\nname = \"a\"\nprogram = \"a\"\nafter = \"10s\"\n{more}");
        Fleet::new(Rules::parse(&text).unwrap().rules)
    }

    fn key(number: u64) -> GroupKey {
        GroupKey { space: number, device: 1, inode: 1 }
    }

    fn see(fleet: &mut Fleet, now: u64, numbers: &[u64]) {
        let found = |n: &u64| {
            let leader = Pid::try_from(*n).unwrap();
            let found =
                Found { leader, processes: 1, program: "a".to_owned(), unit: None, rule: 0 };
            (key(*n), found)
        };
        let changed: Vec<Pid> = fleet
            .groups
            .values()
            .filter(|group| matches!(group.state, State::Tuned(_)))
            .map(|group| group.found.leader)
            .collect();
        let is_changed = |found: &Found| changed.contains(&found.leader);
        fleet.see(now, numbers.iter().map(found).collect(), &|_| None, &is_changed);
    }

    fn compared(kept: bool, pause: u64) -> Outcome {
        let verdict = if kept { "faster" } else { "undecided" }.to_owned();
        let longest_pause = Duration::from_millis(pause);
        let gain = Some(GAIN);
        Outcome::Compared { kept, why: verdict.clone(), verdict, gain, longest_pause }
    }

    const GAIN: Gain = Gain { ratio: 0.9, low: 0.88, high: 0.92 };

    #[test]
    fn one_after_the_other_and_none_in_quiet_hours() {
        let mut fleet = fleet("");
        see(&mut fleet, 0, &[1, 2]);
        assert!(fleet.next(9 * SECOND, Budget::Free).is_empty(), "they are too young");
        assert!(fleet.next(10 * SECOND, Budget::QuietHours).is_empty());
        assert!(fleet.next(10 * SECOND, Budget::Spent).is_empty());
        assert_eq!(fleet.next(10 * SECOND, Budget::Free), [(key(1), Act::Tune)]);
        assert!(fleet.next(11 * SECOND, Budget::Free).is_empty(), "one at a time");
        fleet.done(20 * SECOND, &key(1), &compared(true, 1));
        assert_eq!(fleet.next(20 * SECOND, Budget::Free), [(key(2), Act::Tune)]);
        assert_eq!(fleet.tallies()[0].verdicts["faster"], 1);
    }

    #[test]
    fn what_brings_nothing_is_tried_later_and_later() {
        let mut fleet = fleet("retry = \"1m\"\n");
        see(&mut fleet, 0, &[1]);
        let mut now = 10 * SECOND;
        for minutes in [1, 2, 4] {
            assert_eq!(fleet.next(now, Budget::Free), [(key(1), Act::Tune)]);
            fleet.done(now, &key(1), &compared(false, 1));
            now += minutes * 60 * SECOND;
            assert!(fleet.next(now - 1, Budget::Free).is_empty());
        }
    }

    #[test]
    fn a_check_that_fails_reverts_it() {
        let mut fleet = fleet("check = \"x\"\ncheck_every = \"5s\"\n");
        see(&mut fleet, 0, &[1]);
        fleet.next(10 * SECOND, Budget::Free);
        fleet.done(10 * SECOND, &key(1), &compared(true, 1));
        let failed = Outcome::Failed { why: "exit status: 1".to_owned() };
        for (at, outcome) in [(10, &failed), (15, &Outcome::Done), (20, &failed), (25, &failed)] {
            assert_eq!(fleet.next(at * SECOND, Budget::Spent), [(key(1), Act::Check)], "{at}");
            fleet.done(at * SECOND, &key(1), outcome);
        }
        let why = Reason::Check { said: "exit status: 1".to_owned() };
        let undo = [(key(1), Act::Undo { why })];
        assert_eq!(fleet.next(25 * SECOND, Budget::Spent), undo);
        // It could not be reverted: once more, later.
        fleet.done(25 * SECOND, &key(1), &failed);
        assert!(fleet.next(26 * SECOND, Budget::Spent).is_empty());
        assert_eq!(fleet.next(30 * SECOND, Budget::Spent), undo);
        fleet.done(30 * SECOND, &key(1), &Outcome::Done);
        assert!(matches!(&fleet.groups()[&key(1)].state, State::Resting { until: Some(_), .. }));
        assert_eq!((fleet.tallies()[0].undone, fleet.tallies()[0].failed_checks), (1, 3));
    }

    #[test]
    fn long_pauses_are_reverted_for_good() {
        let mut fleet = fleet("longest_pause = \"20ms\"\n");
        see(&mut fleet, 0, &[1]);
        fleet.next(10 * SECOND, Budget::Free);
        fleet.done(10 * SECOND, &key(1), &compared(true, 21));
        let acts = fleet.next(10 * SECOND, Budget::Free);
        assert!(matches!(&acts[..], [(_, Act::Undo { why: Reason::Paused { .. } })]), "{acts:?}");
        fleet.done(11 * SECOND, &key(1), &Outcome::Done);
        assert!(fleet.next(u64::MAX, Budget::Free).is_empty());
    }

    #[test]
    fn a_load_that_has_changed_is_tuned_for_anew() {
        let mut fleet = fleet("recheck = \"1m\"\n");
        see(&mut fleet, 0, &[1]);
        fleet.next(10 * SECOND, Budget::Free);
        fleet.done(10 * SECOND, &key(1), &compared(true, 1));
        assert!(fleet.next(69 * SECOND, Budget::Free).is_empty());
        for (at, kept) in [(70, true), (130, false)] {
            assert_eq!(fleet.next(at * SECOND, Budget::Free), [(key(1), Act::Recheck)]);
            fleet.done(at * SECOND, &key(1), &compared(kept, 1));
        }
        assert_eq!(fleet.next(131 * SECOND, Budget::Free), [(key(1), Act::Tune)]);
    }

    #[test]
    fn what_gains_less_than_it_did_is_tuned_for_anew() {
        let mut fleet = fleet("recheck = \"1m\"\n");
        see(&mut fleet, 0, &[1]);
        fleet.next(10 * SECOND, Budget::Free);
        fleet.done(10 * SECOND, &key(1), &compared(true, 1));
        // Within the first interval, then above it.
        for (at, ratio) in [(70, 0.93), (130, 0.97)] {
            assert_eq!(fleet.next(at * SECOND, Budget::Free), [(key(1), Act::Recheck)]);
            let mut outcome = compared(true, 1);
            if let Outcome::Compared { gain, .. } = &mut outcome {
                *gain = Some(Gain { ratio, low: ratio - 0.02, high: ratio + 0.02 });
            }
            fleet.done(at * SECOND, &key(1), &outcome);
        }
        let why = Reason::GainsLess { ratio: 0.97, before: 0.9 };
        assert!(why.to_string().contains("-3.0 % of CPU time, -10.0 % when"), "{why}");
        assert_eq!(fleet.next(130 * SECOND, Budget::Spent), [(key(1), Act::Undo { why })]);
        fleet.done(131 * SECOND, &key(1), &Outcome::Done);
        assert_eq!(fleet.next(131 * SECOND, Budget::Free), [(key(1), Act::Tune)]);
    }

    #[test]
    fn rules_that_ask_for_more_hold_for_what_an_earlier_daemon_has_left() {
        let fleet = fleet("recheck = \"1m\"\nretry = \"10s\"\ncheck_every = \"5s\"\n");
        let hour = 3600 * SECOND;
        let State::Tuned(tuned) = fleet.tuned(hour, 0, None) else { panic!("it is tuned") };
        let left = |state| fleet.at_the_latest(9 * SECOND, 0, state);
        let State::Tuned(tuned) = left(State::Tuned(tuned)) else { panic!("it is tuned") };
        assert_eq!((tuned.recheck_at, tuned.check_at), (69 * SECOND, 14 * SECOND));
        let resting = |until| State::Resting { until, why: String::new() };
        assert_eq!(left(resting(Some(hour))), resting(Some(19 * SECOND)));
        assert_eq!(left(resting(None)), resting(None));
    }

    #[test]
    fn what_is_done_by_hand_is_seen() {
        let mut fleet = fleet("retry = \"1m\"\n");
        see(&mut fleet, 0, &[1]);
        fleet.next(10 * SECOND, Budget::Free);
        fleet.done(10 * SECOND, &key(1), &compared(true, 1));
        let found = |fleet: &Fleet| BTreeMap::from([(key(1), fleet.groups[&key(1)].found.clone())]);
        let now = found(&fleet);
        fleet.see(20 * SECOND, now.clone(), &|_| None, &|_| false);
        let resting = &fleet.groups[&key(1)].state;
        assert!(matches!(resting, State::Resting { until: Some(80_000), .. }), "{resting:?}");
        assert!(fleet.next(79 * SECOND, Budget::Free).is_empty());
        fleet.see(79 * SECOND, now, &|_| None, &|_| true);
        assert!(matches!(fleet.groups[&key(1)].state, State::Tuned(Tuned { ratio: None, .. })));
    }

    #[test]
    fn the_first_ones_must_do_well_before_the_others_are_tuned() {
        let rule = "canary = 0.3\ncanary_for = \"1m\"\ncheck = \"x\"\ncheck_failures = 1\n";
        let mut fleet = fleet(rule);
        see(&mut fleet, 0, &[1, 2, 3]);
        fleet.next(10 * SECOND, Budget::Free);
        fleet.done(10 * SECOND, &key(1), &compared(true, 1));
        fleet.next(11 * SECOND, Budget::Free);
        fleet.done(11 * SECOND, &key(1), &Outcome::Done);
        assert!(fleet.next(20 * SECOND, Budget::Free).is_empty(), "the first is too young");
        // It fails: the others have to wait.
        fleet.next(61 * SECOND, Budget::Free);
        fleet.done(61 * SECOND, &key(1), &Outcome::Failed { why: "slow".to_owned() });
        fleet.next(61 * SECOND, Budget::Free);
        fleet.done(61 * SECOND, &key(1), &Outcome::Done);
        assert!(fleet.next(80 * SECOND, Budget::Free).is_empty());
    }

    #[test]
    fn what_is_changed_already_is_known() {
        let mut fleet = fleet("");
        let [one, two] = [1, 2].map(|number: i32| Pid::try_from(number).unwrap());
        let program = "a".to_owned();
        let found = Found { leader: one, processes: 1, program, unit: None, rule: 0 };
        let tuned = State::Tuned(Tuned {
            since: 3,
            ratio: Some(0.8),
            first: None,
            recheck_at: 4,
            check_at: 5,
            failures: 0,
            undo: None,
        });
        let both =
            BTreeMap::from([(key(1), found.clone()), (key(2), Found { leader: two, ..found })]);
        fleet.see(9, both, &|_| Some((1, tuned.clone())), &|found| found.leader == one);
        assert_eq!(fleet.groups()[&key(1)].state, tuned);
        // Its patches are gone, whatever the file says.
        assert_eq!(fleet.groups()[&key(2)].state, State::Waiting);
        assert_eq!(fleet.groups()[&key(2)].seen, 1);
    }
}
