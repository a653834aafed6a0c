//! `cargo xtask requests`: servers of runtimes whose tasks share threads, recorded under load, and how many of
//! their requests Fettle finds exactly, against what the servers wrote down.
//!
//! Each request asks two questions at once and then a third one (`tests/requests/runtimes`).

use std::path::PathBuf;
use std::process::Command;

use anyhow::Result;
use clap::{Args, ValueEnum};

use crate::{fettle, proc, repo};

/// What to record.
#[derive(Args)]
pub struct Options {
    /// Runtimes [default: all]
    #[arg(value_enum)]
    kinds: Vec<Kind>,
    /// Clients at once
    #[arg(long, value_delimiter = ',', default_value = "8,32")]
    clients: Vec<u32>,
    /// Requests of each
    #[arg(long, default_value_t = 1000)]
    requests: u32,
    /// The binary to test, instead of a new release build
    #[arg(long)]
    fettle: Option<PathBuf>,
}

/// A server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// Go's `net/http`: two goroutines, then a third question
    Go,
    /// FastAPI under uvicorn with uvloop, asking by httpx
    Uvicorn,
    /// The same on asyncio's own loop
    Asyncio,
    /// aiohttp: Redis, then HTTP, then Redis twice at once
    AiohttpTasks,
    /// aiohttp: two questions in turn, by threads of a pool
    AiohttpThreads,
    /// aiohttp: one question, by tasks that take what is to be asked from a queue
    AiohttpQueue,
    /// The JDK's HTTP server and client: one question
    #[value(name = "java-1")]
    JavaOne,
    /// The same: two questions in turn
    #[value(name = "java-2")]
    JavaTwo,
    /// The JDK's virtual threads, one for each request: two questions in turn, then a third one
    VirtualTurns,
    /// The same: two at once, by virtual threads of their own, then a third one
    VirtualBoth,
    /// Go and a NATS server: two questions at once and then a third one, by one connection, and two workers
    Nats,
    /// Ruby's async-http: two fibers, then a third question
    Ruby,
    /// Apache, PHP-FPM, and MariaDB with a connection for each request: three statements
    Php,
    /// Node.js: two promises, then a third question
    Node,
    /// Node.js: two questions in turn, over six connections
    NodeTurns,
    /// Node.js: two questions at once, over six connections
    NodeBoth,
}

impl Kind {
    fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }
}

/// Records and scores; all that went wrong is a server that answers wrongly, for figures are what they are.
pub fn run(options: &Options) -> Result<bool> {
    let binary = fettle::binary(options.fettle.as_deref())?;
    let truth = fettle::example("fettle-follow", "truth")?;
    let bed = repo::root().join("tests/requests/runtimes/bed.py");
    let kinds = match options.kinds.is_empty() {
        true => Kind::value_variants(),
        false => &options.kinds,
    };
    let mut all_answered = true;
    for kind in kinds {
        for clients in &options.clients {
            let folder = repo::target().join("requests").join(format!("{}-{clients}", kind.name()));
            let _ = std::fs::remove_dir_all(&folder);
            std::fs::create_dir_all(&folder)?;
            println!("{}, {clients} clients", kind.name());
            let mut record = Command::new("python3");
            record.arg(&bed).arg(&binary).arg(&folder).arg(kind.name());
            record.args([clients.to_string(), options.requests.to_string()]);
            all_answered &= record.status()?.success();
            proc::step(Command::new(&truth).arg(&folder))?;
        }
    }
    Ok(all_answered)
}
