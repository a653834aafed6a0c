//! `fettle ui`: a page in the browser for looking at a trace.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use clap::Args;
use fettle_server::{Grown, Server};

use crate::output::{self, Stand};

/// Look at a trace in the browser: timelines, functions, flame graphs, durations.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  fettle ui                          the newest trace in this folder
  fettle ui redis-server.fettle
  fettle ui run.fettle --no-open --port 8123
                                     from elsewhere: ssh -L 8123:127.0.0.1:8123 HOST

A trace that is still being recorded grows while it is looked at.
The page is served to this machine only, and only to who has the URL that is printed. Nothing is
loaded from the network. Ctrl-C ends it.")]
pub struct UiArgs {
    /// Trace folder [default: the newest *.fettle in this folder]
    trace: Option<PathBuf>,
    /// Port on 127.0.0.1 [default: any that is free]
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    port: u16,
    /// Print the URL and do not open a browser
    #[arg(long)]
    no_open: bool,
}

/// Runs `fettle ui` until it is interrupted.
pub fn run(args: &UiArgs) -> anyhow::Result<ExitCode> {
    let path = output::chosen(args.trace.as_deref())?;
    let something = |grown: &Grown| {
        let manifest = grown.trace.manifest();
        manifest.totals.records > 0 || manifest.events.rows() > 0
    };
    // Of a recording that has only just begun, not even the names may be known.
    let first = loop {
        let grown = now(&path)?;
        if !grown.live || something(&grown) {
            break grown;
        }
        std::thread::sleep(Duration::from_millis(300));
    };
    let server = Server::bind(args.port)?;
    let url = server.url();
    output::print(&format!("{url}\n"))?;
    let goes_on = if first.live { ", as it is being recorded" } else { "" };
    eprintln!("fettle: {} is shown there{goes_on}; Ctrl-C ends it", path.display());
    if !args.no_open {
        open(&url);
    }
    server.run_growing(first, Box::new(move || now(&path).ok()))?;
    Ok(ExitCode::SUCCESS)
}

/// How a trace stands that may still be recorded.
fn now(path: &Path) -> anyhow::Result<Grown> {
    let Stand { trace, live, folder } = output::stand(path)?;
    let keep = folder.map(|folder| Box::new(folder) as fettle_server::Keep);
    Ok(Grown { trace, live, keep })
}

/// Opens a browser where there is a desktop to show it on. The URL was printed all the same.
fn open(url: &str) {
    let shown = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    if !shown("DISPLAY") && !shown("WAYLAND_DISPLAY") {
        return;
    }
    let mut opener = Command::new("xdg-open");
    opener.arg(url).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    if opener.spawn().is_err() {
        eprintln!("fettle: no browser could be opened (there is no xdg-open): open the URL");
    }
}
