//! Libraries that processes open while they are recorded.
//!
//! As in a launched program, the loader's `r_debug` hook is patched to jump to a dlopen hook (see
//! [`fettle_record::libraries`]): the thread that opens a library reports it, and the library has its
//! rewritten text before any of it runs. The difference is that every step is written to an undo
//! log first. The tracing thread writes to these logs, so they belong to the dlopen hooks while
//! processes are followed.

use fettle_types::{PAGE, Pid};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use fettle_live::{
    DlopenHook, Entry, Journal, LiveAddr, LiveError, MappedFiles, Mapping, Member, Patch, Process,
    Record, Region, Undoing,
};
use fettle_record::libraries::{HookSite, Loader, Opened, REGIONS, Space, UndoRecorder};
use fettle_record::modules::open_image;
use fettle_record::room::AddressSpace;
use fettle_record::slots::ALIVE_AT;

use crate::error::TuneError;
use crate::install;
use crate::rewritten::Rewritten;
use crate::target::Target;

/// A longer undo log takes too much memory: a process may open and close libraries all the time.
const LONGEST_LOG: usize = 1 << 20;
/// How long a loader may be working on a library while its dlopen hook is opened.
const LOADING: Duration = Duration::from_secs(2);

/// The dlopen hooks of a process group: all at the same addresses.
#[derive(Clone)]
pub(crate) struct DlopenHooks {
    hook_site: Arc<HookSite>,
    /// The loader's list, as the processes' executable knows it.
    list: LiveAddr,
    folder: PathBuf,
    state: Arc<Mutex<State>>,
}

/// The share of time, one in so many, that undo logs of forked children may take: servers may fork
/// faster than logs are written, and wait for it.
const SHARE: u32 = 5;
/// The first ones may take longer in all.
const GRACE: Duration = Duration::from_secs(5);

#[derive(Default)]
struct State {
    /// Memory for libraries in processes whose hook was just opened, until the session takes it.
    spaces: HashMap<Pid, Space>,
    /// Undo logs of processes with open dlopen hooks.
    journals: HashMap<Pid, Journal>,
    /// Rewritten text that each of them has.
    codes: HashMap<Pid, Vec<Arc<Rewritten>>>,
    /// When the first forked child was reported.
    since: Option<Instant>,
    /// Time that was spent on logs of forked children.
    spent: Duration,
}

impl DlopenHooks {
    /// Finds room for dlopen hooks in all processes of a process group, whose mappings are `maps`;
    /// its slots will be at `slots`. Undo logs are in `folder`.
    ///
    /// # Errors
    ///
    /// As text, why there can be none.
    pub(crate) fn plan(
        target: &Target<'_>,
        (slots, maps): (Region, &[Mapping]),
        folder: &Path,
    ) -> Result<DlopenHooks, String> {
        let loader = target.loader().ok_or("its loader is not in its own list")?;
        let image = open_image(&loader.file).map_err(|error| error.to_string())?;
        let hook_site = Loader::of(image)?.hook_site(
            loader.bias,
            slots.at.0 + ALIVE_AT,
            AddressSpace::of(target.process.pid(), maps),
        )?;
        if target.list != hook_site.r_debug {
            return Err("its list of libraries is not its loader's".to_owned());
        }
        let (hook_site, list) = (Arc::new(hook_site), target.list);
        Ok(DlopenHooks { hook_site, list, folder: folder.to_owned(), state: Arc::default() })
    }

    /// Memory that each process needs for it, and how many libraries it may open.
    pub(crate) fn needs(&self) -> (&[Region], usize) {
        (&self.hook_site.regions, REGIONS)
    }

    /// Fills that memory.
    pub(crate) fn fill(&self, process: &Process) -> Result<(), LiveError> {
        let dlopen_hook = &self.hook_site.dlopen_hook;
        process.fill(dlopen_hook.code, &dlopen_hook.code())?;
        process.fill(dlopen_hook.table, &DlopenHook::empty_table())
    }

    /// Patches a process's `r_debug` hook to jump to its dlopen hook. From then on its log is kept
    /// here; `table` is the one for unwinders, and `codes` is the rewritten text of the process.
    ///
    /// # Errors
    ///
    /// When that cannot be done: the log as it is then, and why.
    pub(crate) fn open(
        &self,
        process: &Process,
        mut journal: Journal,
        (table, codes): (Option<(LiveAddr, usize)>, &[Arc<Rewritten>]),
    ) -> Result<(), (Journal, String)> {
        let patches = [self.hook_site.jump.clone()];
        let places = MappedFiles::look(process, &patches);
        let written =
            journal.add(places.entries().chain(patches.iter().cloned().map(Entry::Write)));
        let opened = written.and_then(|()| process.patch(&patches, &places));
        let why = match opened {
            Ok(patched) if patched.left.is_empty() => None,
            Ok(_) => Some("its loader has been changed by another program".to_owned()),
            Err(error) => Some(error.to_string()),
        };
        if let Some(why) = why {
            return Err((journal, why));
        }
        let begun = Instant::now();
        loop {
            // A thread that reports waits for this lock. A library that is in the list by now may
            // have begun to run; one that is not has not.
            let mut state = self.state();
            if let Some(known) = Target::listed(process, self.list) {
                let table = table.unwrap_or((self.hook_site.regions_at, 0));
                let space = Space::of_running(self.hook_site.dlopen_hook, table, self.list, known);
                state.spaces.insert(process.pid(), space);
                state.journals.insert(process.pid(), journal);
                state.codes.insert(process.pid(), codes.to_vec());
                return Ok(());
            }
            drop(state);
            if begun.elapsed() > LOADING || !process.is_alive() {
                return Err((journal, "its loader is at work all the time".to_owned()));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// A log for what a process has inherited over fork, if it was forked by one whose log is kept
    /// here.
    pub(crate) fn inherit(
        &self,
        process: &Process,
    ) -> Result<Option<(Journal, Member)>, TuneError> {
        let state = self.state();
        let Some((journal, forked_child)) =
            fettle_live::inherited_from(state.journals.values(), process)
        else {
            return Ok(None);
        };
        Ok(Some((fettle_live::inherit(journal, &forked_child)?, forked_child)))
    }

    /// The undo logs, and rewritten text by process.
    pub(crate) fn take(&self) -> (Vec<Journal>, HashMap<Pid, Vec<Arc<Rewritten>>>) {
        let state = std::mem::take(&mut *self.state());
        (state.journals.into_values().collect(), state.codes)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// The log of a process, with its rewritten text. A forked child of a process with a dlopen
    /// hook gets its own log now.
    fn of(
        &mut self,
        pid: Pid,
        folder: &Path,
    ) -> Result<(&mut Journal, &mut Vec<Arc<Rewritten>>), LiveError> {
        if !self.journals.contains_key(&pid) {
            let begun = Instant::now();
            let since = *self.since.get_or_insert(begun);
            if self.spent * SHARE > begun.duration_since(since) + GRACE * SHARE {
                let what = "processes come faster than logs for them are written".to_owned();
                return Err(LiveError::Journal { path: folder.to_owned(), what });
            }
            let process = Process::open_followed(pid)?;
            let gone = || LiveError::NoProcess { pid };
            // Its siblings have inherited much the same, but may have ended.
            let parent = fettle_live::parent_of(pid).and_then(|parent| self.journals.get(&parent));
            let all = parent.into_iter().chain(self.journals.values());
            let (journal, forked_child) =
                fettle_live::inherited_from(all, &process).ok_or_else(gone)?;
            let codes = self.codes.get(&journal.pid()).cloned().unwrap_or_default();
            let journal = fettle_live::inherit(journal, &forked_child)?;
            self.insert(journal, &codes);
            self.forget_ended(folder);
            self.spent += begun.elapsed();
        }
        let journal = self.journals.get_mut(&pid).ok_or(LiveError::NoProcess { pid })?;
        Ok((journal, self.codes.entry(pid).or_default()))
    }

    /// Keeps an inherited log; the process has those of `codes` that are in memory of its log.
    fn insert(&mut self, journal: Journal, codes: &[Arc<Rewritten>]) {
        let regions = journal.regions();
        let has = |code: &&Arc<Rewritten>| {
            regions.iter().any(|(region, mapped)| *mapped && region.at == code.text.at)
        };
        self.codes.insert(journal.pid(), codes.iter().filter(has).cloned().collect());
        self.journals.insert(journal.pid(), journal);
    }

    /// Finishes the logs of processes that have ended.
    fn forget_ended(&mut self, folder: &Path) {
        let ended: Vec<Pid> =
            self.journals.keys().copied().filter(|pid| fettle_live::has_ended(*pid)).collect();
        for pid in ended {
            let codes = self.codes.remove(&pid).unwrap_or_default();
            let Some(journal) = self.journals.remove(&pid) else { continue };
            // What cannot be reverted now stays for `fettle undo`.
            let Ok(undone) = fettle_live::undo(journal, Undoing::within(Duration::ZERO)) else {
                continue;
            };
            for forked_child in undone.forked_children {
                if let Ok(Some(journal)) = Journal::open(folder, forked_child) {
                    self.insert(journal, &codes);
                }
            }
        }
    }
}

impl UndoRecorder for DlopenHooks {
    fn space(&mut self, pid: Pid) -> Option<Space> {
        self.state().spaces.remove(&pid)
    }

    fn write_down(&mut self, pid: Pid, entries: Vec<Entry>) -> Result<(), LiveError> {
        if entries.is_empty() {
            return Ok(());
        }
        let mut state = self.state();
        let (journal, codes) = state.of(pid, &self.folder)?;
        for entry in &entries {
            if let Entry::Unmapped(at) = entry {
                codes.retain(|code| code.text.at != *at);
            }
        }
        journal.add(entries)
    }

    fn leading(&mut self, pid: Pid, library: Opened<'_>) -> Result<Vec<Patch>, LiveError> {
        // A write across two pages could be half done if we are killed.
        let in_one_page = |jump: &&Patch| {
            let last = jump.at.0 + jump.after.len() as u64 - 1;
            jump.at.0 / PAGE == last / PAGE
        };
        let jumps: Vec<Patch> = library.jumps.iter().filter(in_one_page).cloned().collect();
        let (at, dynamic) = (library.link_map, library.dynamic);
        let record = Record { list: self.list, at, dynamic };
        let code = Arc::new(Rewritten::of_opened(library, jumps.clone()));
        let process = Process::open_followed(pid)?;
        let mut state = self.state();
        let (journal, codes) = state.of(pid, &self.folder)?;
        if journal.entries().len() > LONGEST_LOG {
            let why = "libraries come and go too often in it".to_owned();
            return Err(LiveError::Unattachable { pid, why });
        }
        codes.retain(|other| other.text.at != code.text.at);
        codes.push(code.clone());
        let all: Vec<&Rewritten> = codes.iter().map(|code| &**code).collect();
        install::write_down_opened(&process, journal, (&code, record), &all)?;
        Ok(jumps)
    }
}
