//! What Prometheus reads: how the groups stand, and what tuning has come to.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::{Arc, RwLock};

use fettle_metrics::{AmountCounter, AmountGauge, Labels, LocalAddress, labels};
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

use crate::fleet::{Act, Fleet, State, Tuned};

/// The text of the metrics. `busy_seconds` is the CPU time that tuning has taken so far.
///
/// # Errors
///
/// When it cannot be formatted.
pub fn text(fleet: &Fleet, busy_seconds: f64) -> Result<String, std::fmt::Error> {
    let mut registry = Registry::with_prefix("fettle_tuned");
    let groups = Family::<Labels, Gauge>::default();
    let ratio = Family::<Labels, AmountGauge>::default();
    let verdicts = Family::<Labels, Counter>::default();
    let undone = Family::<Labels, Counter>::default();
    let failed_checks = Family::<Labels, Counter>::default();
    let failed = Family::<Labels, Counter>::default();
    let pause = Family::<Labels, AmountGauge>::default();
    let busy = AmountCounter::default();
    busy.inc_by(busy_seconds);
    let rule_of = |number: usize| fleet.rules()[number].name.as_str();
    let mut counts: BTreeMap<(&str, &str), i64> = BTreeMap::new();
    for rule in fleet.rules() {
        for state in ["waiting", "tuning", "tuned", "resting"] {
            counts.insert((&rule.name, state), 0);
        }
    }
    for group in fleet.groups().values() {
        let rule = rule_of(group.found.rule);
        let state = match (&group.state, &group.busy) {
            (_, Some(Act::Tune)) => "tuning",
            (State::Waiting, _) => "waiting",
            (State::Tuned(_), _) => "tuned",
            (State::Resting { .. }, _) => "resting",
        };
        *counts.entry((rule, state)).or_default() += 1;
        if let State::Tuned(Tuned { ratio: Some(of), .. }) = group.state {
            let pid = group.found.leader.to_string();
            let labels = labels([("rule", rule), ("pid", &pid), ("program", &group.found.program)]);
            ratio.get_or_create(&labels).set(of);
        }
    }
    for ((rule, state), count) in counts {
        groups.get_or_create(&labels([("rule", rule), ("state", state)])).set(count);
    }
    for (rule, tally) in fleet.rules().iter().zip(fleet.tallies()) {
        let of_rule = labels([("rule", &rule.name)]);
        for (verdict, count) in &tally.verdicts {
            let labels = labels([("rule", &rule.name), ("verdict", verdict)]);
            verdicts.get_or_create(&labels).inc_by(*count);
        }
        undone.get_or_create(&of_rule).inc_by(tally.undone);
        failed_checks.get_or_create(&of_rule).inc_by(tally.failed_checks);
        failed.get_or_create(&of_rule).inc_by(tally.failed);
        pause.get_or_create(&of_rule).set(tally.longest_pause.as_secs_f64());
    }
    registry.register("groups", "Process groups by rule and state", groups);
    registry.register("time_ratio", "CPU time per unit of work, tuned over original", ratio);
    registry.register("comparisons", "Comparisons by what they have shown", verdicts);
    registry.register("undone", "Tuned groups that were reverted", undone);
    registry.register("failed_checks", "Checks that failed", failed_checks);
    registry.register("failures", "Tunings that failed", failed);
    let longest = "The longest time that threads were paused";
    registry.register_with_unit("longest_pause", longest, Unit::Seconds, pause);
    registry.register_with_unit("processor_time", "What tuning has taken", Unit::Seconds, busy);
    let mut text = String::new();
    encode(&mut text, &registry)?;
    Ok(text)
}

/// The port that metrics are read from, and what it shows.
#[derive(Clone, Debug, Default)]
pub struct Metrics(Arc<RwLock<String>>);

impl Metrics {
    /// Listens, and answers in a thread of its own as long as this process lives. The token that readers
    /// need is written to a file that only its owner can read.
    ///
    /// # Errors
    ///
    /// When the port is taken, or the file cannot be written.
    pub fn serve(address: LocalAddress, token_file: &Path) -> io::Result<Metrics> {
        let metrics = Metrics::default();
        let shown = Arc::clone(&metrics.0);
        let text = move || shown.read().map(|text| text.clone()).unwrap_or_default();
        fettle_metrics::serve(address.listen()?, token_file, text)?;
        Ok(metrics)
    }

    /// What is shown from now on.
    pub fn show(&self, text: String) {
        if let Ok(mut shown) = self.0.write() {
            *shown = text;
        }
    }
}
