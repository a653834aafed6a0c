//! Programs that end with what has started them.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

/// A program with all that it has started, which ends with it.
pub struct Group(Child);

impl Group {
    /// Starts it.
    pub fn start(command: &mut Command, log: &Path) -> Result<Group> {
        let log = std::fs::File::create(log)?;
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).process_group(0);
        let started = command.spawn();
        Ok(Group(started.with_context(|| format!("starting {:?}", command.get_program()))?))
    }

    /// Its first process.
    pub fn pid(&self) -> u32 {
        self.0.id()
    }

    /// Whether that runs.
    pub fn is_alive(&mut self) -> bool {
        matches!(self.0.try_wait(), Ok(None))
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Failure means that all have ended.
        let _ = killpg(Pid::from_raw(self.0.id().cast_signed()), Signal::SIGKILL);
        let _ = self.0.wait();
    }
}
