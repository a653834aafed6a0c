//! What requests share: the trace, and what has been read of it.

use std::sync::Arc;

use fettle_follow::Findings;
use fettle_report::Analysis;
use fettle_trace::Trace;
use tokio::sync::OnceCell;
use tokio::task::spawn_blocking;

use crate::guard::Guard;
use crate::requests::{self, Requests};
use crate::timelines::Timelines;

/// A value that is read once, or why it cannot be.
type Once<T> = OnceCell<std::result::Result<Arc<T>, String>>;

/// A trace that is served.
pub(crate) struct App {
    pub(crate) guard: Guard,
    trace: Trace,
    timelines: Once<Timelines>,
    analysis: Once<Analysis>,
    requests: Once<Requests>,
    communication: Once<Option<Findings>>,
}

impl App {
    pub(crate) fn new(guard: Guard, trace: Trace) -> App {
        App {
            guard,
            trace,
            timelines: OnceCell::new(),
            analysis: OnceCell::new(),
            requests: OnceCell::new(),
            communication: OnceCell::new(),
        }
    }

    pub(crate) fn trace(&self) -> &Trace {
        &self.trace
    }

    /// Reads everything, what is seen first first. Run it to its end: whoever asks meanwhile waits
    /// for what this reads.
    pub(crate) async fn read(&self) {
        let timelines = self.timelines().await;
        // Who may be shown nothing at all is told so when asking.
        if timelines.is_ok() {
            let _ = self.analysis().await;
        }
        if requests::has_events(&self.trace) {
            let _ = self.requests().await;
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

    pub(crate) async fn requests(&self) -> std::result::Result<Arc<Requests>, String> {
        let trace = self.trace.clone();
        once(&self.requests, move || Requests::read(&trace)).await
    }

    pub(crate) async fn communication(&self) -> std::result::Result<Arc<Option<Findings>>, String> {
        let trace = self.trace.clone();
        once(&self.communication, move || requests::communication(&trace)).await
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
