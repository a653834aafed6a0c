//! LTTng's tracepoints in programs: the program of `runtime/bench` compiled with one, and a session that records it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use nix::sys::signal::Signal;

use crate::proc::Running;
use crate::{apt, proc, repo};

/// How long the daemon may take to start, and to end.
const PATIENCE: Duration = Duration::from_secs(20);
const NAME: &str = "fettle-bench";

/// A session that records. Its daemon ends with [`Session::finish`].
pub struct Session {
    daemon: Option<Running>,
    began: Instant,
    home: PathBuf,
    /// What starts the program with the tracepoint.
    pub traced: PathBuf,
    /// What starts the same program without.
    pub plain: PathBuf,
}

/// Builds both programs and begins to record.
pub fn start(place: &Path) -> Result<Session> {
    apt::ensure(&["lttng-tools", "liblttng-ust-dev", "gcc"].map(String::from))?;
    let traced = built(place, "traced", &["-DFETTLE_LTTNG", "-llttng-ust"])?;
    let plain = built(place, "plain", &[])?;
    let home = place.join("lttng");
    if home.exists() {
        std::fs::remove_dir_all(&home)?;
    }
    std::fs::create_dir_all(&home)?;
    let mut daemon = Command::new("lttng-sessiond");
    daemon.arg("--no-kernel").env("LTTNG_HOME", &home);
    let daemon = Some(proc::start(daemon, &home, "daemon", None)?);
    let mut session = Session { daemon, began: Instant::now(), home, traced, plain };
    let trace = format!("--output={}", session.home.join("trace").display());
    while let Err(error) = session.lttng(&["create", NAME, &trace]) {
        let alive = session.daemon.as_mut().is_some_and(Running::alive);
        if !alive || session.began.elapsed() > PATIENCE {
            bail!("its daemon does not serve (is another one running?): {error:#}");
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    session.lttng(&["enable-event", "-u", "fettle:passes", "-s", NAME])?;
    session.lttng(&["start", NAME])?;
    Ok(session)
}

/// A command that takes the place of the program that is put behind it.
fn built(place: &Path, name: &str, options: &[&str]) -> Result<PathBuf> {
    let sources = repo::root().join("runtime/bench");
    let program = place.join(format!("bench-{name}"));
    let files = std::fs::read_dir(&sources)?.filter_map(|entry| Some(entry.ok()?.path()));
    let mut gcc = Command::new("gcc");
    gcc.args(["-std=gnu11", "-O2", "-pthread", "-I"]).arg(&sources).arg("-o").arg(&program);
    gcc.args(files.filter(|file| file.extension().is_some_and(|extension| extension == "c")));
    proc::output_of(gcc.args(options))?;
    let script = place.join(format!("run-{name}"));
    std::fs::write(&script, format!("#!/bin/sh\nshift\nexec {} \"$@\"\n", program.display()))?;
    proc::output_of(Command::new("chmod").arg("+x").arg(&script))?;
    Ok(script)
}

impl Session {
    fn lttng(&self, arguments: &[&str]) -> Result<String> {
        // Else it starts a daemon of its own where ours is not ready, which would stay.
        let mut lttng = Command::new("lttng");
        lttng.arg("--no-sessiond").args(arguments).env("LTTNG_HOME", &self.home);
        proc::output_of(&mut lttng)
    }

    /// Ends it; how many bytes it has recorded.
    pub fn finish(mut self) -> Result<u64> {
        self.lttng(&["destroy", NAME])?;
        let trace = self.home.join("trace");
        let size = proc::output_of(Command::new("du").args(["-sb"]).arg(&trace))?;
        self.end();
        Ok(size.split_whitespace().next().and_then(|bytes| bytes.parse().ok()).unwrap_or(0))
    }

    fn end(&mut self) {
        if let Some(daemon) = self.daemon.take() {
            daemon.signal(Signal::SIGTERM);
            // By force at last, with what it has started.
            let _ = daemon.finish(self.began.elapsed() + PATIENCE);
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.end();
    }
}
