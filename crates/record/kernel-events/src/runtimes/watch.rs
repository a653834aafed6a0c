//! Which of the observed processes have a runtime that is known: found out by a thread of its own, for reading
//! a program's file takes longer than the rings may wait.

use std::collections::BTreeSet;
use std::ffi::CString;
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use fettle_types::Pid;

use crate::raw::{KIND, Kind, Record};
use crate::ring;
use crate::runtimes::layout::Place;
use crate::runtimes::{At, Found, Runtimes};
use crate::sys::{Map, Program, key_of};

/// What happens to a process.
#[derive(Clone, Copy, Debug)]
enum ProcessEvent {
    /// It runs a program: another one than before, perhaps.
    Runs(Pid),
    /// It was forked from one.
    Forked { parent: Pid, child: Pid },
}

/// What is attached to programs; nothing is any more once there is no list.
type Links = Arc<Mutex<Option<Vec<OwnedFd>>>>;

/// Notifies the thread of processes. When all clones are gone, it ends.
#[derive(Clone, Debug)]
pub(crate) struct Watch {
    events: Sender<ProcessEvent>,
    links: Links,
}

impl Watch {
    /// Begins to keep `runtimes`, and to attach `programs` where the observed processes have their places.
    ///
    /// # Errors
    ///
    /// When there can be no thread.
    pub fn start(runtimes: Arc<Map>, programs: Vec<(At, Program)>) -> std::io::Result<Watch> {
        let (events, receiver) = channel();
        let links = Arc::new(Mutex::new(Some(Vec::new())));
        let watcher = Watcher {
            runtimes,
            programs,
            links: links.clone(),
            attached: BTreeSet::new(),
            known: Runtimes::default(),
            later: Vec::new(),
        };
        std::thread::Builder::new().name("runtimes".into()).spawn(|| watcher.keep(receiver))?;
        Ok(Watch { events, links })
    }

    /// A process runs a program.
    pub fn runs(&self, pid: Pid) {
        // Should the thread be gone, tasks are not known: nothing else is lost.
        let _ = self.events.send(ProcessEvent::Runs(pid));
    }

    /// Looks for processes in what a ring holds.
    pub fn look(&self, bytes: &[u8]) {
        let kinds = [Kind::Exec as u16, Kind::Fork as u16].map(u16::to_le_bytes);
        for bytes in ring::records(bytes).filter_map(|range| bytes.get(range)) {
            let at = KIND as usize;
            if !bytes.get(at..at + 2).is_some_and(|kind| kinds.iter().any(|one| one == kind)) {
                continue;
            }
            let Some(record) = Record::read(bytes) else { continue };
            let Ok(pid) = Pid::try_from(record.pid) else { continue };
            let events = match record.kind {
                Kind::Exec => ProcessEvent::Runs(pid),
                Kind::Fork => match Pid::try_from(record.word(1) as u32) {
                    Ok(child) if child != pid => ProcessEvent::Forked { parent: pid, child },
                    _ => continue,
                },
                _ => continue,
            };
            let _ = self.events.send(events);
        }
    }

    /// Nothing is attached to programs any more.
    pub fn stop(&self) {
        self.links.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}

/// When a process is looked at again whose runtime has not begun: after this long, and each time after twice as
/// long as before, up to the last.
const AGAIN: Duration = Duration::from_millis(20);
const LAST: Duration = Duration::from_secs(10);

/// A process that is looked at again.
struct Later {
    pid: Pid,
    at: Instant,
    after: Duration,
}

/// What the thread has.
struct Watcher {
    runtimes: Arc<Map>,
    programs: Vec<(At, Program)>,
    links: Links,
    /// Files that have one: device, inode, place.
    attached: BTreeSet<(u64, u64, u64)>,
    known: Runtimes,
    later: Vec<Later>,
}

impl Watcher {
    fn keep(mut self, events: Receiver<ProcessEvent>) {
        loop {
            let now = Instant::now();
            for later in self.later.extract_if(.., |later| later.at <= now).collect::<Vec<_>>() {
                self.look(later.pid, later.after.saturating_mul(2));
            }
            let until = self.later.iter().map(|later| later.at).min();
            let wait = until.map_or(LAST, |until| until.saturating_duration_since(now));
            match events.recv_timeout(wait) {
                Ok(ProcessEvent::Runs(pid)) => self.runs(pid),
                Ok(ProcessEvent::Forked { parent, child }) => {
                    if let Ok(Some(layout)) = self.runtimes.get(&key_of(parent)) {
                        let _ = self.runtimes.set(&key_of(child), &layout);
                    }
                    // It may begin what its parent has not begun.
                    if self.later.iter().any(|later| later.pid == parent) {
                        self.look_again(child, AGAIN);
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    fn runs(&mut self, pid: Pid) {
        // What it was before it is no longer. That there was nothing is no error.
        let _ = self.runtimes.remove(&key_of(pid));
        self.later.retain(|later| later.pid != pid);
        self.look(pid, AGAIN);
    }

    fn look_again(&mut self, pid: Pid, after: Duration) {
        if after <= LAST {
            self.later.push(Later { pid, at: Instant::now() + after, after });
        }
    }

    fn look(&mut self, pid: Pid, after: Duration) {
        match self.known.identify(pid) {
            // The files that it runs are mapped a moment after its exec.
            Found::Nothing if after == AGAIN => self.look_again(pid, after),
            Found::Nothing => {}
            Found::NotYet => self.look_again(pid, after),
            Found::Known { runtime, is_whole } => {
                // Without what is seen at these places, the tasks of some are not known either.
                let is_seen = runtime.layout.identity == 0
                    || self.programs.iter().any(|(at, _)| *at == At::Made);
                if !is_seen {
                    return;
                }
                for place in &runtime.places {
                    self.attach(place);
                }
                // A map that is full knows the others; tasks of this one are not known then.
                let _ = self.runtimes.set(&key_of(pid), &runtime.layout.bytes());
                if !is_whole {
                    self.look_again(pid, after);
                }
            }
        }
    }

    /// Attaches a program to its place in a file, once. A kernel that cannot (before Linux 6.6) leaves unknown
    /// what is seen there.
    fn attach(&mut self, place: &Place) -> Option<()> {
        let (_, program) = self.programs.iter().find(|(at, _)| *at == place.at)?;
        let file = fs::metadata(&place.path).ok()?;
        let name = (file.dev(), file.ino(), place.offset);
        if self.attached.contains(&name) {
            return None;
        }
        let mut links = self.links.lock().unwrap_or_else(PoisonError::into_inner);
        let links = links.as_mut()?;
        let path = CString::new(Path::as_os_str(&place.path).as_bytes()).ok()?;
        let at_end = place.at == At::Made;
        links.push(program.attach_in(&path, place.offset, at_end).ok()?);
        self.attached.insert(name);
        Some(())
    }
}
