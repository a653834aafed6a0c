//! `fettle ui`: a page in the browser for looking at a trace, or at layouts of hot code.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use anyhow::{Context, anyhow};
use clap::Args;
use fettle_server::{Grown, Layouts, Server};

use crate::locks::names;
use crate::output::{self, Stand};

/// Look at a trace in the browser: timelines, functions, flame graphs, durations, requests
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  fettle ui                          the newest trace in this folder
  fettle ui redis-server.fettle
  fettle tune -p 4711 --json > tuned.json; fettle ui tuned.json
                                     layouts before and after, and what was measured
  fettle ui run.fettle --no-open --port 8123
                                     from elsewhere: ssh -L 8123:127.0.0.1:8123 HOST

A trace that is still being recorded grows while it is looked at.
The page is served to this machine only, and only to who has the URL that is printed. Nothing is
loaded from the network. Ctrl-C ends it.")]
pub struct UiArgs {
    /// Trace folder [default: the newest *.fettle in this folder], or a file of what `fettle tune
    /// --json` or `fettle layout --json` printed
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
    match &args.trace {
        Some(file) if file.is_file() => {
            let layouts = layouts(file).with_context(|| format!("{}", file.display()))?;
            announce(args, file, "")?.run_layouts(layouts)?;
        }
        trace => {
            let path = output::chosen(trace.as_deref())?;
            let first = begun(&path)?;
            let goes_on = if first.live { ", as it is being recorded" } else { "" };
            let server = announce(args, &path, goes_on)?;
            server
                .naming(names::variables)
                .run_growing(first, Box::new(move || now(&path).ok()))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Reports where the page is.
fn announce(args: &UiArgs, subject: &Path, how: &str) -> anyhow::Result<Server> {
    let server = Server::bind(args.port)?;
    let url = server.url();
    output::print(&format!("{url}\n"))?;
    say!("fettle: {} is shown there{how}; Ctrl-C ends it", subject.display());
    if !args.no_open {
        open(&url);
    }
    Ok(server)
}

/// The layouts in a file.
fn layouts(file: &Path) -> anyhow::Result<Vec<Layouts>> {
    const BYTES_MAX: u64 = 256 << 20;
    let bytes = file.metadata()?.len();
    if bytes > BYTES_MAX {
        return Err(anyhow!("{bytes} bytes are too many for a layout's figures"));
    }
    Layouts::read(&std::fs::read(file)?).map_err(|problem| anyhow!("{problem}"))
}

/// A recording as soon as there is something of it: of one that has only just begun, not even the
/// names may be known.
fn begun(path: &Path) -> anyhow::Result<Grown> {
    let something = |grown: &Grown| {
        let manifest = grown.trace.manifest();
        manifest.totals.records > 0 || manifest.events.rows() > 0
    };
    loop {
        let grown = now(path)?;
        if !grown.live || something(&grown) {
            return Ok(grown);
        }
        std::thread::sleep(Duration::from_millis(300));
    }
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
        say!("fettle: no browser could be opened (there is no xdg-open): open the URL");
    }
}
