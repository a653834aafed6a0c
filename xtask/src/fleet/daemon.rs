//! `fettle tuned` at work, as seen from outside: by its lines, by Prometheus, and by `fettle undo`.

use std::cell::RefCell;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use super::clients::{free_port, get};
use crate::proc::{self, Group};

/// The `fettle` command with a state of its own.
pub struct Fettle {
    /// The binary.
    pub binary: PathBuf,
    /// The bed's folder.
    pub folder: PathBuf,
}

impl Fettle {
    /// A command that is not run yet.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.binary);
        command.args(arguments).env("XDG_CACHE_HOME", self.folder.join("cache"));
        command
    }

    /// Runs it; its status is to be one of these.
    pub fn run(&self, arguments: &[&str], statuses: &[i32]) -> Result<String> {
        let output = self.command(arguments).output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        let is_right = output.status.code().is_some_and(|code| statuses.contains(&code));
        ensure!(is_right, "fettle {arguments:?}: {}: {said}", output.status);
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// The file with the token for the metrics.
    pub fn token(&self) -> PathBuf {
        self.folder.join("cache/fettle/tuned/metrics-token")
    }
}

/// A daemon.
pub struct Daemon {
    child: Child,
    lines: Receiver<Value>,
    /// All lines that it has printed so far.
    said: RefCell<Vec<Value>>,
}

impl Daemon {
    /// Starts it with these rules.
    pub fn start(fettle: &Fettle, rules: &str) -> Result<Daemon> {
        let path = fettle.folder.join("tuned.toml");
        std::fs::write(&path, rules)?;
        let mut command = fettle.command(&["tuned", "--json"]);
        let log = std::fs::File::create(fettle.folder.join("tuned.log"))?;
        command.arg(path).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log).process_group(0);
        let mut child = command.spawn()?;
        let out = child.stdout.take().context("no output")?;
        let lines = proc::json_lines(out);
        Ok(Daemon { child, lines, said: RefCell::default() })
    }

    /// All that it has said so far.
    pub fn said(&self) -> Vec<Value> {
        let mut said = self.said.borrow_mut();
        said.extend(self.lines.try_iter());
        said.clone()
    }

    /// Waits for a line, from the `from`th on; its number.
    pub fn wait(
        &self,
        from: usize,
        limit: Duration,
        is_it: impl Fn(&Value) -> bool,
    ) -> Result<usize> {
        let begun = Instant::now();
        loop {
            let said = self.said();
            if let Some(at) = said.iter().skip(from).position(&is_it) {
                return Ok(from + at);
            }
            let last = said.last().map(ToString::to_string).unwrap_or_default();
            ensure!(begun.elapsed() < limit, "not within {limit:?}; its last line: {last}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Kills it, and nothing that it has started.
    pub fn kill(mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// Asks it to end.
    pub fn end(mut self) -> Result<()> {
        kill(Pid::from_raw(self.child.id().cast_signed()), Signal::SIGTERM)?;
        let begun = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait()? {
                ensure!(status.success(), "fettle tuned: {status}");
                return Ok(());
            }
            ensure!(begun.elapsed() < Duration::from_secs(90), "fettle tuned does not end");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A Prometheus that reads the daemon's metrics each second.
pub struct Prometheus {
    _server: Group,
    port: u16,
}

impl Prometheus {
    /// Starts one.
    pub fn start(fettle: &Fettle, metrics: u16) -> Result<Prometheus> {
        let folder = fettle.folder.join("prometheus");
        std::fs::create_dir_all(&folder)?;
        let port = free_port()?;
        let conf = folder.join("prometheus.yml");
        // As docs/user/tuned.md has it.
        let text = format!(
            "global: {{ scrape_interval: 1s, scrape_timeout: 1s }}\nscrape_configs:\n\
             \x20 - job_name: fettle\n    authorization: {{ credentials_file: {} }}\n\
             \x20   static_configs: [{{ targets: [\"127.0.0.1:{metrics}\"] }}]\n",
            fettle.token().display()
        );
        std::fs::write(&conf, text)?;
        let mut command = Command::new("prometheus");
        command.arg(format!("--config.file={}", conf.display()));
        command.arg(format!("--storage.tsdb.path={}", folder.join("data").display()));
        command.arg(format!("--web.listen-address=127.0.0.1:{port}"));
        let server = Group::logged(&mut command, &folder.join("log"))?;
        Ok(Prometheus { _server: server, port })
    }

    /// The one value that a query has now.
    pub fn value(&self, query: &str) -> Result<Option<f64>> {
        let path = format!("/api/v1/query?query={}", encoded(query));
        let answer: Value = serde_json::from_str(&get(self.port, &path, "")?)?;
        let value = answer["data"]["result"][0]["value"][1].as_str();
        Ok(value.and_then(|value| value.parse().ok()))
    }

    /// Waits until a query has this value.
    pub fn shows(&self, query: &str, expected: f64) -> Result<()> {
        let begun = Instant::now();
        loop {
            let now = self.value(query);
            if matches!(now, Ok(Some(now)) if (now - expected).abs() < 1e-9) {
                return Ok(());
            }
            let limit = Duration::from_secs(15);
            ensure!(begun.elapsed() < limit, "{query} is {now:?} to Prometheus, not {expected}");
            std::thread::sleep(Duration::from_millis(200));
        }
    }
}

fn encoded(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte);
    let one = |byte: u8| match plain(byte) {
        true => char::from(byte).to_string(),
        false => format!("%{byte:02X}"),
    };
    text.bytes().map(one).collect()
}

/// Processes of this binary that run, other than a given one.
pub fn at_work(binary: &Path) -> Vec<u32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let is_it =
        |pid: &u32| std::fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|path| path == binary);
    pids.filter(is_it).collect()
}
