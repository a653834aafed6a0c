//! What a watcher counts, for Prometheus.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use fettle_metrics::{Labels, labels};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::{Registry, Unit};
use rustix::time::{ClockId, clock_gettime};

use crate::budget::Budgets;
use crate::rule::{Action, Rule};

/// What came of an action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ActionResult {
    /// It was done.
    Done,
    /// It failed.
    Failed,
    /// The rule has acted as often as it may.
    OverBudget,
}

impl ActionResult {
    fn name(self) -> &'static str {
        match self {
            ActionResult::Done => "done",
            ActionResult::Failed => "failed",
            ActionResult::OverBudget => "over-budget",
        }
    }
}

/// Counters of a watcher. Clones count together.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    looks: Counter,
    findings: Family<Labels, Counter>,
    actions: Family<Labels, Counter>,
    webhooks: Family<Labels, Counter>,
}

impl Tally {
    /// Nothing was counted yet. Rules and their actions are there from the beginning, at 0.
    pub fn new(rules: &[Rule]) -> Tally {
        let tally = Tally::default();
        for rule in rules {
            let _ = tally.findings.get_or_create(&labels([("rule", &rule.name)]));
            for action in &rule.actions {
                let _ = tally.actions.get_or_create(&of_action(rule, action, ActionResult::Done));
            }
        }
        for result in ["taken", "dropped"] {
            let _ = tally.webhooks.get_or_create(&labels([("result", result)]));
        }
        tally
    }

    /// A look was taken.
    pub fn look(&self) {
        self.looks.inc();
    }

    /// A rule holds.
    pub fn finding(&self, rule: &Rule) {
        self.findings.get_or_create(&labels([("rule", &rule.name)])).inc();
    }

    /// An action was tried.
    pub fn action(&self, rule: &Rule, action: &Action, result: ActionResult) {
        self.actions.get_or_create(&of_action(rule, action, result)).inc();
    }

    /// A message was taken by its receiver, or dropped.
    pub fn webhook(&self, is_taken: bool) {
        let result = if is_taken { "taken" } else { "dropped" };
        self.webhooks.get_or_create(&labels([("result", result)])).inc();
    }

    /// All of it as Prometheus reads it, with what is known only when it is asked for.
    pub fn page(
        &self,
        budgets: Arc<Budgets>,
        queue: Arc<AtomicUsize>,
    ) -> impl Fn() -> String + use<> {
        let mut registry = Registry::with_prefix("fettle_watch");
        registry.register("looks", "Looks at the processes", self.looks.clone());
        registry.register("findings", "Findings by rule", self.findings.clone());
        let actions = "Actions by rule, kind and what came of them";
        registry.register("actions", actions, self.actions.clone());
        let webhooks = "Messages that were taken by their receiver, or dropped";
        registry.register("webhooks", webhooks, self.webhooks.clone());
        registry.register_collector(Box::new(AtScrape { budgets, queue }));
        move || {
            let mut text = String::new();
            match encode(&mut text, &registry) {
                Ok(()) => text,
                Err(_) => String::new(),
            }
        }
    }
}

fn of_action(rule: &Rule, action: &Action, result: ActionResult) -> Labels {
    labels([("rule", &rule.name), ("action", action.kind()), ("result", result.name())])
}

/// What is looked up when it is asked for.
#[derive(Debug)]
struct AtScrape {
    budgets: Arc<Budgets>,
    queue: Arc<AtomicUsize>,
}

impl Collector for AtScrape {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let queue = ConstGauge::new(self.queue.load(Ordering::Relaxed) as i64);
        let kind = queue.metric_type();
        let help = "Messages that wait for their receivers";
        queue.encode(encoder.encode_descriptor("webhook_queue", help, None, kind)?)?;
        let busy = ConstCounter::new(processor_seconds());
        let (kind, help) = (busy.metric_type(), "CPU time of the watcher");
        let unit = Unit::Seconds;
        busy.encode(encoder.encode_descriptor("processor_time", help, Some(&unit), kind)?)?;
        let left = self.budgets.left();
        let Some((_, first)) = left.first() else { return Ok(()) };
        let kind = ConstGauge::new(i64::from(*first)).metric_type();
        let help = "How often a rule may still act by its budget";
        let mut family = encoder.encode_descriptor("budget_left", help, None, kind)?;
        for (rule, left) in left {
            let labels = labels([("rule", &rule)]);
            ConstGauge::new(i64::from(left)).encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }
}

/// Of all its threads, so far.
fn processor_seconds() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}
