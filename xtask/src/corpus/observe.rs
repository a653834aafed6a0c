//! Running one side of an entry and seeing everything that it does.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::str::FromStr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::sys::signal::Signal;

use super::place::{self, Contents, Place};
use super::{input, spec};
use crate::fettle::{self, RecordSummary};
use crate::proc::{self, Ending};
use crate::{apt, repo};
use spec::Entry;

/// How the program is run.
pub enum Side {
    /// As it is.
    Plain,
    /// Under `fettle record`.
    Recorded {
        /// The tool.
        fettle: PathBuf,
        /// Its `--mode`, if not the default.
        mode: Option<String>,
    },
}

/// Everything that one run showed.
pub struct Observation {
    /// How it ended.
    pub ending: Ending,
    /// Its standard output.
    pub stdout: Vec<u8>,
    /// Its standard error, without the tool's summary.
    pub stderr: Vec<u8>,
    /// What the client of a server printed and how it ended.
    pub client: Vec<u8>,
    /// Files left behind.
    pub files: Contents,
    /// The tool's summary.
    pub summary: Option<RecordSummary>,
    /// Time from start to end.
    pub wall: Duration,
}

/// One entry with its template made, ready to be performed on either side.
pub struct Stage<'a> {
    entry: &'a Entry,
    place: Place,
}

impl<'a> Stage<'a> {
    /// Makes the template: generated inputs, shipped files, sources, the set-up script.
    pub fn prepare(entry: &'a Entry) -> Result<Stage<'a>> {
        let stage = Stage { entry, place: Place::fresh(&entry.name)? };
        let template = stage.place.template();
        for request in &entry.input {
            input::generate(request, &template)?;
        }
        for name in &entry.files {
            let mut copy = Command::new("cp");
            proc::output_of(copy.arg("-a").arg(spec::files().join(name)).arg(&template))?;
        }
        if let Some(package) = &entry.source {
            let source = apt::source(package)?;
            let mut copy = Command::new("cp");
            proc::output_of(copy.arg("-a").arg(source).arg(template.join("source")))?;
        }
        if let Some(script) = &entry.setup {
            let mut shell = Command::new("sh");
            shell.args(["-e", "-c", &stage.fill(script, &template)]);
            stage.dress(&mut shell, &template);
            let outcome = proc::start(shell, &stage.place.logs(), "setup", None)?
                .finish(Duration::from_secs(900))?;
            if outcome.ending != Ending::Exit(0) {
                bail!(
                    "set-up: {}: {}",
                    outcome.ending,
                    String::from_utf8_lossy(&outcome.stderr).trim()
                );
            }
        }
        Ok(stage)
    }

    /// Runs one side in a fresh folder. What it leaves is kept under `name`.
    pub fn perform(&self, side: &Side, name: &str) -> Result<Observation> {
        let entry = self.entry;
        self.place.make_run(entry.user.as_deref())?;
        let run = self.place.run();
        let logs = self.place.logs();
        let command = self.command(side, &run);
        let stdin = entry.stdin.as_ref().map(|name| run.join(name));
        let mut running = proc::start(command, &logs, name, stdin.as_deref())?;
        let mut client = Vec::new();
        if let Some(script) = &entry.client {
            client = self.talk(&mut running, script, &run, name)?;
            let signal = Signal::from_str(&format!("SIG{}", entry.stop))
                .with_context(|| format!("stop = {}", entry.stop))?;
            running.signal(signal);
        }
        let outcome = running.finish(Duration::from_secs(entry.seconds))?;
        let files = match entry.compare.iter().any(|part| part == "files") {
            true => place::contents(&run, &|name| self.ignored(name))?,
            false => Contents::new(),
        };
        self.place.keep_run(name)?;
        let (stderr, summary) = match side {
            Side::Plain => (outcome.stderr, None),
            Side::Recorded { .. } => fettle::split_summary(&outcome.stderr),
        };
        Ok(Observation {
            ending: outcome.ending,
            stdout: outcome.stdout,
            stderr,
            client,
            files,
            summary,
            wall: outcome.wall,
        })
    }

    /// Removes all folders.
    pub fn clear(&self) {
        self.place.clear();
    }

    /// Waits until the server is ready, runs the client, returns what it showed.
    fn talk(
        &self,
        running: &mut proc::Running,
        script: &str,
        run: &Path,
        name: &str,
    ) -> Result<Vec<u8>> {
        let start = Instant::now();
        let limit = Duration::from_secs(self.entry.seconds);
        let ready = self.entry.ready.as_deref().unwrap_or("true");
        let logs = self.place.logs();
        loop {
            let outcome = proc::start(self.shell(ready, run), &logs, "ready", None)?
                .finish(Duration::from_secs(5))?;
            if outcome.ending == Ending::Exit(0) {
                break;
            }
            if !running.alive() || start.elapsed() > limit {
                return Ok(b"the server was never ready".to_vec());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        let outcome = proc::start(self.shell(script, run), &logs, &format!("{name}-client"), None)?
            .finish(limit)?;
        let mut shown = outcome.stdout;
        shown.extend(outcome.stderr);
        shown.extend(format!("[client: {}]", outcome.ending).into_bytes());
        Ok(shown)
    }

    /// The entry's command for one side.
    fn command(&self, side: &Side, run: &Path) -> Command {
        let entry = self.entry;
        let mut words: Vec<String> = Vec::new();
        if let Some(user) = &entry.user {
            let group = group_of(user);
            let become_user = ["setpriv", "--reuid", user, "--regid", &group, "--clear-groups"];
            words.extend(become_user.map(String::from));
        }
        if let Side::Recorded { fettle, mode } = side {
            words.extend([fettle.display().to_string(), "record".into(), "--quiet".into()]);
            words.extend(["--json".into(), "-o".into(), self.place.trace().display().to_string()]);
            // An entry that chooses its own mode keeps it.
            let chosen = entry.record.iter().any(|flag| flag == "--mode");
            if let (Some(mode), false) = (mode, chosen) {
                words.extend(["--mode".into(), mode.clone()]);
            }
            words.extend(fettle::cache_flags(fettle));
            words.extend(entry.record.iter().cloned());
            words.push("--".into());
        }
        match &entry.shell {
            Some(line) => words.extend(["sh".into(), "-c".into(), self.fill(line, run)]),
            None => {
                let own = entry.command.iter().chain(&entry.server);
                words.extend(own.map(|word| self.fill(word, run)));
            }
        }
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]);
        self.dress(&mut command, run);
        command
    }

    fn shell(&self, script: &str, run: &Path) -> Command {
        let mut shell = Command::new("sh");
        shell.args(["-c", &self.fill(script, run)]);
        self.dress(&mut shell, run);
        shell
    }

    /// Folder and environment: the same everywhere, nothing inherited.
    fn dress(&self, command: &mut Command, folder: &Path) {
        command.current_dir(folder).env_clear();
        command
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin:/usr/games")
            .env("HOME", folder)
            .env("LC_ALL", "C.UTF-8")
            .env("TZ", "UTC")
            .env("TERM", "dumb")
            .env("SOURCE_DATE_EPOCH", "1000000000")
            .env("PYTHONHASHSEED", "0")
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .env("PERL_HASH_SEED", "0")
            .envs(self.entry.env.iter().map(|(k, v)| (k, self.fill(v, folder))));
    }

    fn fill(&self, text: &str, folder: &Path) -> String {
        let mut filled = text
            .replace("{port}", &self.entry.port().to_string())
            .replace("{dir}", &folder.display().to_string())
            .replace("{files}", &spec::files().display().to_string())
            .replace("{source}", &folder.join("source").display().to_string());
        if filled.contains("{toolchain}") {
            filled = filled.replace("{toolchain}", &toolchain_programs());
        }
        filled
    }

    fn ignored(&self, name: &str) -> bool {
        self.entry.ignore.iter().any(|pattern| name.ends_with(pattern.as_str()))
    }
}

/// Folder with `rustc` and `cargo` themselves, not their launchers.
fn toolchain_programs() -> String {
    let mut rustc = Command::new("rustc");
    rustc.args(["--print", "sysroot"]).current_dir(repo::root());
    let root = proc::output_of(&mut rustc).unwrap_or_default();
    format!("{}/bin", root.trim())
}

/// Number of a user's own group.
fn group_of(user: &str) -> String {
    proc::output_of(Command::new("id").args(["-g", user])).unwrap_or_default().trim().to_string()
}
