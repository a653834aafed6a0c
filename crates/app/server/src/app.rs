//! What requests share: the trace, and what has been read of it.

use std::any::Any;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use fettle_follow::{Detail, Findings};
use fettle_report::Analysis;
use fettle_trace::Trace;
use serde_json::Value;
use tokio::sync::OnceCell;
use tokio::task::spawn_blocking;

use crate::requests::{self, Requests};
use crate::timelines::Timelines;

/// A value that is read once, or why it cannot be.
type Once<T> = OnceCell<std::result::Result<Arc<T>, String>>;

/// Requests that are kept whole: one, and one beside it.
const DETAILS_MAX: usize = 2;

/// By which schema a request was found, and the place of its schema and its number.
type Looked = (Option<&'static str>, usize, u64);

/// What is served.
pub(crate) struct App {
    shown: RwLock<Arc<Shown>>,
    /// Names variables.
    pub(crate) variables: Variables,
}

/// Names what lies at an address of a process.
pub type Variable = Box<dyn Fn(u32, u64) -> Option<String>>;

/// Makes what names a trace's variables, from the files that were recorded: the server itself reads none.
pub type Variables = fn(&Trace) -> Variable;

impl App {
    pub(crate) fn new(shown: Shown, variables: Variables) -> App {
        App { shown: RwLock::new(Arc::new(shown)), variables }
    }

    /// The current trace. A holder of this sees it unchanged.
    pub(crate) fn shown(&self) -> Arc<Shown> {
        self.shown.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Replaces the trace by its newer state.
    pub(crate) fn show(&self, shown: Shown) {
        *self.shown.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(shown);
    }
}

/// A trace as it is at one time.
pub(crate) struct Shown {
    trace: Trace,
    /// How often it had changed before.
    pub(crate) generation: u32,
    /// Whether its recording goes on.
    pub(crate) live: bool,
    timelines: Once<Timelines>,
    analysis: Once<Analysis>,
    /// By the schema's name; none for the one that suits.
    requests: Mutex<HashMap<Option<&'static str>, Arc<Once<Requests>>>>,
    /// The requests that were looked at last: they are asked for part by part.
    details: Mutex<VecDeque<(Looked, Arc<Detail>)>>,
    communication: Once<Option<Findings>>,
    locks: Once<Option<Value>>,
    /// What has to be kept as long as the trace is read.
    _keep: Option<Keep>,
}

/// Something that goes when it is dropped.
pub type Keep = Box<dyn Any + Send + Sync>;

impl Shown {
    pub(crate) fn new(trace: Trace, generation: u32, live: bool, keep: Option<Keep>) -> Shown {
        Shown {
            trace,
            generation,
            live,
            timelines: OnceCell::new(),
            analysis: OnceCell::new(),
            requests: Mutex::default(),
            details: Mutex::default(),
            communication: OnceCell::new(),
            locks: OnceCell::new(),
            _keep: keep,
        }
    }

    pub(crate) fn trace(&self) -> &Trace {
        &self.trace
    }

    /// Reads everything, in the order in which the page shows it. Run it to its end: requests
    /// meanwhile wait for what this reads.
    pub(crate) async fn read(&self) {
        let timelines = self.timelines().await;
        // If there is nothing to show, the error is reported when the page asks.
        if timelines.is_ok() {
            let _ = self.analysis().await;
        }
        if requests::has_events(&self.trace) {
            let _ = self.requests(None).await;
        }
    }

    pub(crate) async fn timelines(&self) -> std::result::Result<Arc<Timelines>, String> {
        let trace = self.trace.clone();
        once(&self.timelines, move || Timelines::read(&trace)).await
    }

    pub(crate) async fn analysis(&self) -> std::result::Result<Arc<Analysis>, String> {
        let trace = self.trace.clone();
        once(&self.analysis, move || Analysis::read(&trace, true)).await
    }

    /// The requests by a shipped schema, or by the one that suits.
    pub(crate) async fn requests(
        &self,
        schema: Option<&'static str>,
    ) -> std::result::Result<Arc<Requests>, String> {
        let cell = {
            let mut all = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
            all.entry(schema).or_default().clone()
        };
        let trace = self.trace.clone();
        once(&cell, move || Requests::read(&trace, schema)).await
    }

    /// One request whole; nothing if there is none of that number.
    pub(crate) async fn request(
        &self,
        by: Option<&'static str>,
        schema: usize,
        id: u64,
    ) -> std::result::Result<Option<Arc<Detail>>, String> {
        let looked = (by, schema, id);
        let known = || {
            let details = self.details.lock().unwrap_or_else(PoisonError::into_inner);
            details.iter().find(|(known, _)| *known == looked).map(|(_, detail)| detail.clone())
        };
        if let Some(detail) = known() {
            return Ok(Some(detail));
        }
        let trace = self.trace.clone();
        let read = move || requests::detail(&trace, by, schema, id);
        let read = spawn_blocking(read).await.map_err(|panic| panic.to_string())?;
        let Some(detail) = read.map_err(|error| error.to_string())?.map(Arc::new) else {
            return Ok(None);
        };
        let mut details = self.details.lock().unwrap_or_else(PoisonError::into_inner);
        details.push_front((looked, detail.clone()));
        details.truncate(DETAILS_MAX);
        Ok(Some(detail))
    }

    pub(crate) async fn communication(&self) -> std::result::Result<Arc<Option<Findings>>, String> {
        let trace = self.trace.clone();
        once(&self.communication, move || requests::communication(&trace)).await
    }

    /// The report of locks: as it was counted, or from events.
    pub(crate) async fn locks(
        &self,
        variables: Variables,
    ) -> std::result::Result<Arc<Option<Value>>, String> {
        let trace = self.trace.clone();
        once(&self.locks, move || requests::locks(&trace, &variables(&trace))).await
    }
}

async fn once<T: Send + Sync + 'static, E: std::error::Error + Send + 'static>(
    cell: &Once<T>,
    read: impl FnOnce() -> std::result::Result<T, E> + Send + 'static,
) -> std::result::Result<Arc<T>, String> {
    let init = || async {
        match spawn_blocking(read).await {
            Ok(Ok(value)) => Ok(Arc::new(value)),
            Ok(Err(error)) => Err(error.to_string()),
            Err(panic) => Err(panic.to_string()),
        }
    };
    cell.get_or_init(init).await.clone()
}
