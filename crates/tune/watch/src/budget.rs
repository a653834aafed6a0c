//! How often rules may still act.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::rule::{Budget, Rule};

/// Budgets of rules, and when those acted.
#[derive(Debug)]
pub struct Budgets(Vec<(String, Budget, Mutex<VecDeque<Instant>>)>);

impl Budgets {
    /// None of the rules has acted yet.
    pub fn new(rules: &[Rule]) -> Budgets {
        let whole = |rule: &Rule| (rule.name.clone(), rule.budget, Mutex::default());
        Budgets(rules.iter().map(whole).collect())
    }

    /// Whether a rule may act now; if so, it has.
    pub fn take(&self, rule: &str, now: Instant) -> bool {
        let Some((_, budget, acted)) = self.0.iter().find(|(name, ..)| name == rule) else {
            return false;
        };
        let mut acted = acted.lock().unwrap_or_else(PoisonError::into_inner);
        while acted.front().is_some_and(|at| now.duration_since(*at) > budget.within) {
            acted.pop_front();
        }
        let allowed = acted.len() < budget.times as usize;
        if allowed {
            acted.push_back(now);
        }
        allowed
    }

    /// How long a rule may not act from now on.
    pub fn wait(&self, rule: &str, now: Instant) -> Duration {
        let Some((_, budget, acted)) = self.0.iter().find(|(name, ..)| name == rule) else {
            return Duration::ZERO;
        };
        let acted = acted.lock().unwrap_or_else(PoisonError::into_inner);
        match acted.front().filter(|_| acted.len() >= budget.times as usize) {
            Some(first) => (*first + budget.within).saturating_duration_since(now),
            None => Duration::ZERO,
        }
    }

    /// How often each rule may still act now.
    pub fn left(&self) -> Vec<(String, u32)> {
        let now = Instant::now();
        let left = |(name, budget, acted): &(String, Budget, Mutex<VecDeque<Instant>>)| {
            let acted = acted.lock().unwrap_or_else(PoisonError::into_inner);
            let counts = |at: &&Instant| now.duration_since(**at) <= budget.within;
            let recent = acted.iter().filter(counts).count();
            let recent = u32::try_from(recent).unwrap_or(u32::MAX);
            (name.clone(), budget.times.saturating_sub(recent))
        };
        self.0.iter().map(left).collect()
    }
}
