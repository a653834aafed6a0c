//! What Prometheus reads: how the groups stand, and what tuning has come to.
//!
//! The port is of the loopback interface, which all users of the machine reach, so a reader shows a
//! token: `authorization: { credentials_file: … }` in Prometheus' configuration.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::{Arc, RwLock};

use axum::Router;
use axum::extract::State as Shared;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

use crate::fleet::{Act, Fleet, State};

const TOKEN_BYTES: usize = 16;

type Labels = Vec<(String, String)>;

fn labels<const N: usize>(pairs: [(&str, &str); N]) -> Labels {
    pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec()
}

/// The text of the metrics. `busy_seconds` is the CPU time that tuning has taken so far.
///
/// # Errors
///
/// When it cannot be formatted.
pub fn text(fleet: &Fleet, busy_seconds: f64) -> Result<String, std::fmt::Error> {
    let mut registry = Registry::with_prefix("fettle_tuned");
    let groups = Family::<Labels, Gauge>::default();
    let ratio = Family::<Labels, Gauge<f64, std::sync::atomic::AtomicU64>>::default();
    let verdicts = Family::<Labels, Counter>::default();
    let undone = Family::<Labels, Counter>::default();
    let failed_checks = Family::<Labels, Counter>::default();
    let failed = Family::<Labels, Counter>::default();
    let pause = Family::<Labels, Gauge<f64, std::sync::atomic::AtomicU64>>::default();
    let busy = Counter::<f64, std::sync::atomic::AtomicU64>::default();
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
            (State::Tuned { .. }, _) => "tuned",
            (State::Resting { .. }, _) => "resting",
        };
        *counts.entry((rule, state)).or_default() += 1;
        if let State::Tuned { ratio: Some(of), .. } = group.state {
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

/// What a reader is shown, and the token that it needs.
#[derive(Debug)]
struct Page {
    text: RwLock<String>,
    token: String,
}

/// The port that metrics are read from.
#[derive(Clone, Debug)]
pub struct Metrics(Arc<Page>);

impl Metrics {
    /// Listens, and answers in a thread of its own as long as this process lives. The token is written
    /// to a file that only its owner can read.
    ///
    /// # Errors
    ///
    /// When the port is taken, or the file cannot be written.
    pub fn serve(address: SocketAddr, token_file: &Path) -> io::Result<Metrics> {
        let mut bytes = [0; TOKEN_BYTES];
        getrandom::fill(&mut bytes).map_err(|error| io::Error::other(error.to_string()))?;
        let token: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let listener = std::net::TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        // One that is there may be readable for others.
        let _ = std::fs::remove_file(token_file);
        let mut file =
            OpenOptions::new().write(true).create_new(true).mode(0o600).open(token_file)?;
        file.write_all(token.as_bytes())?;
        let page = Arc::new(Page { text: RwLock::default(), token });
        let router = Router::new().route("/metrics", get(answer)).with_state(Arc::clone(&page));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
        std::thread::Builder::new().name("metrics".to_owned()).spawn(move || {
            runtime.block_on(async {
                let listener = tokio::net::TcpListener::from_std(listener)?;
                axum::serve(listener, router).await
            })
        })?;
        Ok(Metrics(page))
    }

    /// What is shown from now on.
    pub fn show(&self, text: String) {
        if let Ok(mut shown) = self.0.text.write() {
            *shown = text;
        }
    }
}

async fn answer(Shared(page): Shared<Arc<Page>>, headers: HeaderMap) -> impl IntoResponse {
    const TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    let shown = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let shown = shown.and_then(|value| value.strip_prefix("Bearer ")).unwrap_or_default();
    if !is_same(shown.trim(), &page.token) {
        return (StatusCode::UNAUTHORIZED, [(header::CONTENT_TYPE, "text/plain")], String::new());
    }
    let text = page.text.read().map(|text| text.clone()).unwrap_or_default();
    (StatusCode::OK, [(header::CONTENT_TYPE, TYPE)], text)
}

/// Compares in a time that does not depend on where they differ.
fn is_same(shown: &str, token: &str) -> bool {
    let pairs = shown.bytes().zip(token.bytes());
    shown.len() == token.len() && pairs.fold(0, |all, (a, b)| all | (a ^ b)) == 0
}
