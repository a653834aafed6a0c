//! What `fettle tune --json` and `fettle layout --json` print, as far as the page shows it: the
//! figures of a layout of hot code, and what was measured.
//!
//! The file is not trusted. Only what is named here goes to the page.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use axum::routing::get;
use fettle_types::Pid;
use serde::{Deserialize, Serialize};

use crate::api::{Answered, Subject, json};

/// Version of those documents that the page knows.
const VERSION: u32 = 1;
/// Sets of a cache that are drawn at most; the largest that `fettle layout` takes has as many.
const SETS_MAX: usize = 1 << 22;

/// One document: the output of one run of a command.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub struct Layouts {
    version: u32,
    /// The process that was tuned; none if the layout was only computed.
    pid: Option<Pid>,
    processes: Option<u64>,
    /// Whether rewritten text stays.
    kept: Option<bool>,
    modules: Vec<Module>,
    /// Modules that are left unmodified.
    refused: Vec<Refused>,
    counted: Option<Counted>,
    installed: Option<Installed>,
    measured: Option<Measured>,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default)]
struct Module {
    path: String,
    /// Why there is no layout.
    why: Option<String>,
    /// In the order of their hot parts.
    functions: Vec<Function>,
    choice: Option<Choice>,
    exact_edges: u64,
    edges: u64,
    cache_before: CacheMap,
    cache_after: CacheMap,
    model_before: Modelled,
    model_after: Modelled,
    /// What each way to lay the code out costs.
    choices: Vec<(Choice, Modelled)>,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default)]
struct Refused {
    path: String,
    why: String,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default)]
struct Function {
    name: String,
    demangled: Option<String>,
    executed: Option<f64>,
    table_bytes: u64,
    hot_bytes: u64,
    cold_bytes: u64,
    chains: u64,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default)]
struct Choice {
    method: String,
    unit: String,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default)]
struct CacheMap {
    sets: Vec<u32>,
    ways: u32,
    lines: u64,
    share: f64,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default)]
struct Modelled {
    cost: Cost,
    ways: Ways,
    /// Share of the time in which the front end delivers nothing.
    stall_share: Option<f64>,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default)]
struct Cost {
    insns: u64,
    misses: u64,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default)]
struct Ways {
    branches: u64,
    jumps: u64,
    straight: u64,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default)]
struct Counted {
    processes: u64,
    passages: u64,
    looks: Option<SampleCounts>,
    jumps: u64,
    stops_ms: Vec<f64>,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default)]
struct SampleCounts {
    all: u64,
    in_functions: u64,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default)]
struct Installed {
    jumps: u64,
    calls: u64,
    slots: u64,
    bytes: u64,
    threads: u64,
    stops_ms: Vec<f64>,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default)]
struct Measured {
    verdict: Option<String>,
    ratio: f64,
    low: f64,
    high: f64,
    ratios: Vec<f64>,
    old_ns: f64,
    new_ns: f64,
    stops_ms: Vec<f64>,
}

impl Layouts {
    /// Reads the documents in a file, one after another.
    ///
    /// # Errors
    ///
    /// In words, with line and column where that is known.
    pub fn read(text: &[u8]) -> Result<Vec<Layouts>, String> {
        let documents = serde_json::Deserializer::from_slice(text).into_iter::<Layouts>();
        let documents: Vec<Layouts> =
            documents.collect::<Result<_, _>>().map_err(|e| e.to_string())?;
        for document in &documents {
            document.check()?;
        }
        if documents.is_empty() { Err("it is empty".to_owned()) } else { Ok(documents) }
    }

    fn check(&self) -> Result<(), String> {
        if self.version != VERSION || self.modules.is_empty() && self.refused.is_empty() {
            let says = "it is not what `fettle tune --json` or `fettle layout --json` prints";
            return Err(says.to_owned());
        }
        let maps = self.modules.iter().flat_map(|m| [&m.cache_before, &m.cache_after]);
        match maps.map(|map| map.sets.len()).max() {
            Some(sets) if sets > SETS_MAX => Err(format!("a cache of {sets} sets is too large")),
            _ => Ok(()),
        }
    }
}

/// The routes below `/api/` when layouts are shown.
pub(crate) fn routes(layouts: Vec<Layouts>) -> axum::Router {
    axum::Router::new()
        .route("/api/subject", get(async || json(&Subject::Layouts)))
        .route("/api/layouts", get(all))
        .with_state(Arc::new(layouts))
}

async fn all(State(layouts): State<Arc<Vec<Layouts>>>) -> Answered {
    let answer: Response = json(&*layouts)?;
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use super::Layouts;

    #[test]
    fn documents_are_read_one_after_another() {
        let one = r#"{"version":1,"pid":7,"modules":[{"path":"/bin/a"}],"measured":null}"#;
        assert_eq!(Layouts::read(format!("{one}\n{one}\n").as_bytes()).unwrap().len(), 2);
        for (text, says) in [
            ("", "empty"),
            ("{}", "fettle tune --json"),
            (r#"{"version":2,"modules":[{}]}"#, "fettle tune --json"),
            (r#"{"version":1,"modules":[{"path":3}]}"#, "line 1 column 33"),
            (&one[..40], "EOF"),
        ] {
            let error = Layouts::read(text.as_bytes()).unwrap_err();
            assert!(error.contains(says), "{text}: {error}");
        }
    }
}
