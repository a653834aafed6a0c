//! The local page for looking at a trace, or at a layout of hot code.
//!
//! [`Server::bind`] takes a port of the loopback interface, [`Server::url`] is what to open, and
//! [`Server::run`] answers until it is interrupted. Access control is in `guard.rs`; what may be
//! asked, in `api.rs`; how ten million calls become what fits on a screen, in `track.rs`. The page
//! itself is the folder `ui` of the repository, put into this crate as it is (`assets.rs`).
//!
//! Besides the trace folder that it was given, the crate reads no file, and it connects nowhere.
#![forbid(unsafe_code)]

mod api;
mod app;
mod assets;
pub mod calls;
mod error;
mod figures;
mod guard;
mod label;
mod layouts;
mod owners;
pub mod range;
mod reported;
mod requests;
pub mod timelines;
pub mod track;
mod views;
mod whole;
mod wire;

use std::net::{Ipv4Addr, TcpListener};
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::{Request, State};
use axum::http::HeaderValue;
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use fettle_trace::Trace;

use app::{App, Shown};
use guard::Guard;

pub use error::{Error, Result};
pub use guard::TOKEN_HEADER;

pub use app::{Keep, Variable, Variables};
pub use layouts::Layouts;

/// Threads that answer; what takes long is done by others.
const ANSWERING_THREADS: usize = 2;

/// A page that waits to be opened.
pub struct Server {
    listener: TcpListener,
    guard: Guard,
    variables: Variables,
}

impl Server {
    /// Takes a port of the loopback interface; 0 takes any that is free.
    ///
    /// # Errors
    ///
    /// [`Error::Listen`] if another program has it.
    pub fn bind(port: u16) -> Result<Server> {
        let failed = |source| Error::Listen { port, source };
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).map_err(failed)?;
        let port = listener.local_addr().map_err(failed)?.port();
        let variables: Variables = |_| Box::new(|_, _| None);
        Ok(Server { listener, guard: Guard::new(port)?, variables })
    }

    /// Has variables named by what `variables` makes; none is without.
    #[must_use]
    pub fn naming(self, variables: Variables) -> Server {
        Server { variables, ..self }
    }

    /// What to open in a browser; it holds the secret that lets in.
    pub fn url(&self) -> String {
        self.guard.url()
    }

    /// Shows a trace until the process is interrupted.
    pub fn run(self, trace: Trace) -> Result<()> {
        self.serve_trace(Shown::new(trace, 0, false, None), None)
    }

    /// Shows a trace whose recording goes on, as it grows: `grow` is asked for it again and again,
    /// with pauses of a few times what it takes, until it says that the recording has ended.
    pub fn run_growing(self, first: Grown, grow: Grow) -> Result<()> {
        let Grown { trace, live, keep } = first;
        self.serve_trace(Shown::new(trace, 0, live, keep), live.then_some(grow))
    }

    /// Shows layouts of hot code until the process is interrupted.
    pub fn run_layouts(self, layouts: Vec<Layouts>) -> Result<()> {
        self.serve(|| layouts::routes(layouts))
    }

    fn serve_trace(self, shown: Shown, grow: Option<Grow>) -> Result<()> {
        let variables = self.variables;
        self.serve(|| {
            let app = Arc::new(App::new(shown, variables));
            let reader = app.shown();
            tokio::spawn(async move { reader.read().await });
            if let Some(grow) = grow {
                tokio::spawn(grow_on(app.clone(), grow));
            }
            api::routes().with_state(app)
        })
    }

    /// Answers by what `api` makes once answering has begun.
    fn serve(self, api: impl FnOnce() -> axum::Router) -> Result<()> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(ANSWERING_THREADS)
            .enable_all()
            .build()
            .map_err(Error::Serve)?;
        let served = runtime.block_on(async {
            self.listener.set_nonblocking(true)?;
            let listener = tokio::net::TcpListener::from_std(self.listener)?;
            let router = router(Arc::new(self.guard), api());
            let interrupted = async {
                // Without a handler the signal ends the process, which serves as well.
                let _ = tokio::signal::ctrl_c().await;
            };
            tokio::select! {
                served = axum::serve(listener, router).into_future() => served,
                () = interrupted => Ok(()),
            }
        });
        // What is still being read is no longer needed.
        runtime.shutdown_background();
        served.map_err(Error::Serve)
    }
}

/// A recording at one time.
pub struct Grown {
    /// What there is of it.
    pub trace: Trace,
    /// Whether it goes on.
    pub live: bool,
    /// What has to be kept as long as the trace is read, such as a temporary folder.
    pub keep: Option<Keep>,
}

/// Reads the current state of a recording; `None` if it cannot be read just now.
pub type Grow = Box<dyn FnMut() -> Option<Grown> + Send>;

/// The least time between two states of a recording.
const GROW_PAUSE: Duration = Duration::from_secs(1);
/// Of the time that is not spent in reading a recording: so many times that which is.
const GROW_SHARE: u32 = 4;

/// Replaces what is shown by what it has become, which is read completely first.
async fn grow_on(app: Arc<App>, mut grow: Grow) {
    let mut generation = 0;
    loop {
        let begin = Instant::now();
        let answer = tokio::task::spawn_blocking(move || {
            let grown = grow();
            (grow, grown)
        });
        let Ok((again, grown)) = answer.await else { return };
        grow = again;
        if let Some(Grown { trace, live, keep }) = grown {
            generation += 1;
            let shown = Shown::new(trace, generation, live, keep);
            shown.read().await;
            app.show(shown);
            if !live {
                return;
            }
        }
        tokio::time::sleep(GROW_PAUSE.max(begin.elapsed() * GROW_SHARE)).await;
    }
}

fn router(guard: Arc<Guard>, api: axum::Router) -> axum::Router {
    let api = api.route_layer(middleware::from_fn_with_state(guard.clone(), token_guarded));
    axum::Router::new()
        .merge(api)
        .fallback(assets::serve)
        .layer(middleware::from_fn_with_state(guard, guarded))
}

/// Answers the page alone, with headers that say what a browser may do with the answer.
async fn guarded(State(guard): State<Arc<Guard>>, request: Request, next: Next) -> Response {
    let mut response = match guard.admit(request.headers()) {
        Ok(()) => next.run(request).await,
        Err(refusal) => refusal.reported().into_response(),
    };
    for (name, value) in guard::HEADERS {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

/// Answers no request for the trace without the token.
async fn token_guarded(State(guard): State<Arc<Guard>>, request: Request, next: Next) -> Response {
    match guard.admit_to_trace(request.headers()) {
        Ok(()) => next.run(request).await,
        Err(refusal) => refusal.reported().into_response(),
    }
}
