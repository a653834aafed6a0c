//! Holds knobs for some time, and has them put right when this process dies.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use crate::{Description, Error, Knob, Sensor};

/// Holds knobs. When it is dropped, and when this process is killed, they go back to what they rest at.
///
/// For the second, there is a *guard*: a small process that waits for the end of a pipe from this one.
#[derive(Debug)]
pub struct Holder {
    fettle: PathBuf,
    guard: Option<Guard>,
    held: Vec<Held>,
}

#[derive(Debug)]
struct Held {
    knob: Knob,
    until: Option<Instant>,
}

#[derive(Debug)]
struct Guard {
    process: Child,
    pipe: ChildStdin,
}

impl Holder {
    /// Holds nothing yet. `fettle` is a program that calls [`guard`] with its standard input when it is started
    /// with `sensors guard`, which it is when there is something to hold.
    pub fn new(fettle: PathBuf) -> Holder {
        Holder { fettle, guard: None, held: Vec::new() }
    }

    /// Sets a knob, for so long if that is said, else for as long as this lives. A knob that is held already is set
    /// anew, and its time begins again.
    ///
    /// # Errors
    ///
    /// When another process holds it, the value is out of bounds, or no guard can be started.
    pub fn set(&mut self, path: &Path, value: i64, hold: Option<Duration>) -> Result<(), Error> {
        let until = hold.and_then(|time| Instant::now().checked_add(time));
        let known = self.held.iter_mut().find(|held| held.knob.path() == path);
        if let Some(held) = known {
            held.knob.set(value)?;
            held.until = until;
            return Ok(());
        }
        let mut knob = Sensor::open(path)?.into_knob()?;
        self.tell(b'+', path).map_err(|source| Error::NoGuard { source })?;
        knob.set(value)?;
        self.held.push(Held { knob, until });
        Ok(())
    }

    /// Gives back what was to be held until now; returns what that is.
    pub fn give_back(&mut self, now: Instant) -> Vec<Description> {
        let is_over = |held: &Held| held.until.is_some_and(|until| until <= now);
        self.take(is_over)
    }

    /// Forgets knobs of programs that have ended, and starts the guard anew if it has died.
    pub fn look_after(&mut self) {
        self.take(|held| !held.knob.is_alive());
        let has_died = |guard: &mut Guard| !matches!(guard.process.try_wait(), Ok(None));
        if !self.held.is_empty() && self.guard.as_mut().is_some_and(has_died) {
            self.guard = None;
            // Without one they are put right by the next process that looks.
            let _ = self.start_guard();
        }
    }

    /// How many are held.
    pub fn len(&self) -> usize {
        self.held.len()
    }

    /// Whether nothing is held.
    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    fn take(&mut self, is_over: impl Fn(&Held) -> bool) -> Vec<Description> {
        let mut over = Vec::new();
        let mut at = 0;
        while at < self.held.len() {
            if !is_over(&self.held[at]) {
                at += 1;
                continue;
            }
            let Held { knob, .. } = self.held.swap_remove(at);
            let (path, description) = (knob.path().to_path_buf(), knob.description().clone());
            drop(knob);
            // A guard that has died has nothing to forget.
            let _ = self.tell(b'-', &path);
            over.push(description);
        }
        over
    }

    /// Tells the guard. One that has died is started anew, and told everything.
    fn tell(&mut self, what: u8, path: &Path) -> io::Result<()> {
        if let Some(guard) = &mut self.guard {
            if guard.tell(what, path).is_ok() {
                return Ok(());
            }
            let _ = guard.process.wait();
        }
        self.start_guard()?.tell(what, path)
    }

    fn start_guard(&mut self) -> io::Result<&mut Guard> {
        let mut guard = Guard::start(&self.fettle)?;
        for held in &self.held {
            guard.tell(b'+', held.knob.path())?;
        }
        Ok(self.guard.insert(guard))
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        self.held.clear();
        if let Some(Guard { mut process, pipe }) = self.guard.take() {
            drop(pipe);
            let _ = process.wait();
        }
    }
}

impl Guard {
    fn start(fettle: &Path) -> io::Result<Guard> {
        let mut command = Command::new(fettle);
        command.args(["sensors", "guard"]).stdin(Stdio::piped()).stdout(Stdio::null());
        // A group of its own: what ends us at a terminal is not to end the guard.
        let mut process = command.process_group(0).spawn()?;
        let pipe = process.stdin.take().ok_or_else(|| io::Error::other("it has no pipe"))?;
        Ok(Guard { process, pipe })
    }

    fn tell(&mut self, what: u8, path: &Path) -> io::Result<()> {
        let message = [&[what][..], path.as_os_str().as_bytes(), &[0]].concat();
        self.pipe.write_all(&message)
    }
}

/// What a [`Holder`]'s guard does: waits until its input ends, then puts right what is still held.
pub fn guard(input: &mut impl Read) {
    let mut text = Vec::new();
    let mut held: BTreeSet<PathBuf> = BTreeSet::new();
    let mut bytes = [0; 4096];
    loop {
        match input.read(&mut bytes) {
            Ok(0) => break,
            Ok(length) => text.extend_from_slice(&bytes[..length]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => break,
        }
        while let Some(end) = text.iter().position(|&byte| byte == 0) {
            let message: Vec<u8> = text.drain(..=end).collect();
            let path = PathBuf::from(OsStr::from_bytes(&message[1.min(end)..end]));
            match message.first() {
                Some(b'+') => held.insert(path),
                _ => held.remove(&path),
            };
        }
    }
    // A process that has taken one over since then keeps it.
    held.iter().filter_map(|path| Sensor::open(path).ok()).for_each(|sensor| {
        let _ = sensor.knob();
    });
}
