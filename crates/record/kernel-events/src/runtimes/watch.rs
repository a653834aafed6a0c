//! Which of the observed processes have a runtime that is known: found out by a thread of its own, for reading
//! a program's file takes longer than the rings may wait.

use std::collections::BTreeSet;
use std::ffi::CString;
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};

use crate::raw::{KIND, Kind, Record};
use crate::ring;
use crate::runtimes::identify;
use crate::sys::{Map, Program};

/// What happens to a process.
#[derive(Clone, Copy, Debug)]
enum News {
    /// It runs a program: another one than before, perhaps.
    Runs(u32),
    /// It was forked from one.
    Forked { parent: u32, child: u32 },
}

/// What is attached to programs; nothing is any more once there is no list.
type Links = Arc<Mutex<Option<Vec<OwnedFd>>>>;

/// Notifies the thread of processes. When all clones are gone, it ends.
#[derive(Clone, Debug)]
pub(crate) struct Watch {
    news: Sender<News>,
    links: Links,
}

impl Watch {
    /// Begins to keep `runtimes`, and to attach `ready` to the programs that have its place.
    ///
    /// # Errors
    ///
    /// When there can be no thread.
    pub fn start(runtimes: Arc<Map>, ready: Option<Program>) -> std::io::Result<Watch> {
        let (news, receiver) = channel();
        let links = Arc::new(Mutex::new(Some(Vec::new())));
        let keeper = Keeper { runtimes, ready, links: links.clone(), attached: BTreeSet::new() };
        std::thread::Builder::new().name("runtimes".into()).spawn(|| keeper.keep(receiver))?;
        Ok(Watch { news, links })
    }

    /// A process runs a program.
    pub fn runs(&self, pid: u32) {
        // Should the thread be gone, tasks are not known: nothing else is lost.
        let _ = self.news.send(News::Runs(pid));
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
            let child = match record.kind {
                Kind::Fork => record.word(1) as u32,
                _ => record.pid,
            };
            let news = match record.kind {
                Kind::Exec => News::Runs(record.pid),
                Kind::Fork if child != record.pid => News::Forked { parent: record.pid, child },
                _ => continue,
            };
            let _ = self.news.send(news);
        }
    }

    /// Nothing is attached to programs any more.
    pub fn stop(&self) {
        self.links.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}

/// What the thread has.
struct Keeper {
    runtimes: Arc<Map>,
    ready: Option<Program>,
    links: Links,
    /// Files that have it: device, inode, place.
    attached: BTreeSet<(u64, u64, u64)>,
}

impl Keeper {
    fn keep(mut self, news: Receiver<News>) {
        while let Ok(news) = news.recv() {
            match news {
                News::Runs(pid) => self.runs(pid),
                News::Forked { parent, child } => {
                    if let Ok(Some(layout)) = self.runtimes.get(&parent.to_le_bytes()) {
                        let _ = self.runtimes.set(&child.to_le_bytes(), &layout);
                    }
                }
            }
        }
    }

    fn runs(&mut self, pid: u32) {
        let key = pid.to_le_bytes();
        // What it was before it is no longer. That there was nothing is no error.
        let _ = self.runtimes.remove(&key);
        let Some(runtime) = identify(pid) else { return };
        // A map that is full knows the others; tasks of this one are not known then.
        let _ = self.runtimes.set(&key, &runtime.layout.bytes());
        if let Some(place) = runtime.ready {
            self.attach(pid, place);
        }
    }

    /// Attaches the program to the file that a process runs, once. A kernel that cannot (before Linux 6.6)
    /// leaves wake-ups of tasks unknown.
    fn attach(&mut self, pid: u32, place: u64) -> Option<()> {
        let program = self.ready.as_ref()?;
        let path = format!("/proc/{pid}/exe");
        let file = fs::metadata(&path).ok()?;
        let name = (file.dev(), file.ino(), place);
        if self.attached.contains(&name) {
            return None;
        }
        let mut links = self.links.lock().unwrap_or_else(PoisonError::into_inner);
        let links = links.as_mut()?;
        links.push(program.attach_in(&CString::new(path).ok()?, place).ok()?);
        self.attached.insert(name);
        Some(())
    }
}
