//! Writing patches into a process that runs: in as many short pauses as it takes, each of them
//! leaving a consistent state.
//!
//! What can be done before threads are stopped is done before. Most of all, a page of code that is
//! mapped from a file becomes the process's own at the first write; the kernel copies it, which
//! takes longer than all the rest. So one byte of each such page is written before, with the same
//! value.
//!
//! A jump never crosses a page boundary, so it is there completely or not at all whenever we are
//! killed. Original text and rewritten text can call each other, so any of the jumps may be there
//! without the others. Only what unwinders and debuggers need is written all at once, and first.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::entry::{Names, Patch, Purpose};
use crate::error::LiveError;
use crate::mapped_files::MappedFiles;
use crate::maps::{LiveAddr, Mapping, PAGE};
use crate::pagemap::Pagemap;
use crate::pause::{PauseBudget, Paused};
use crate::process::Process;
use crate::ranges::Ranges;
use crate::return_table::ReturnTable;

/// Pauses until all is written: threads may be in the middle of patch sites.
const TRIES: usize = 8;
const PAUSE: Duration = Duration::from_millis(3);

/// Why a patch site was left unmodified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// A thread is in the middle of it.
    Inside,
    /// Its bytes are not those expected: something else has changed them.
    Changed,
    /// The library that it is in has been closed.
    Gone,
}

/// How unwinders and debuggers are notified of rewritten text, before anything leads to it.
#[derive(Clone, Copy)]
pub struct Known<'a> {
    /// No thread is in one of these ranges while unwinders are notified.
    pub guards: &'a Ranges,
    /// The names for debuggers.
    pub names: Option<Names>,
}

/// The result of writing patches.
#[derive(Debug, Default)]
pub struct Patched {
    /// How many were written, or were there already.
    pub written: usize,
    /// Which were not, by index.
    pub left: Vec<(usize, Left)>,
    /// How long threads were paused, each time.
    pub stops: Vec<Duration>,
    /// Most threads that were paused at once.
    pub threads: usize,
}

/// The result of restoring patch sites.
#[derive(Debug, Default)]
pub struct Restored {
    /// How many have their original bytes.
    pub count: usize,
    /// How many are no longer there: their library was closed.
    pub gone: usize,
    /// Patch sites whose bytes something other than Fettle has changed.
    pub conflicts: Vec<LiveAddr>,
    /// How long threads were paused, each time.
    pub stops: Vec<Duration>,
}

/// In which direction bytes are changed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way<'a> {
    /// From the original bytes to the patched ones, except where threads are in the middle: their
    /// program counters are these, in order.
    Forth { occupied: &'a [LiveAddr] },
    /// Restores the original bytes, from the patched ones or a mixture of both. No thread can be in
    /// the middle of what has been a single jump for a while.
    Back,
}

impl Way<'_> {
    /// Whether a thread is in the middle of a patch.
    fn is_occupied(self, patch: &Patch) -> bool {
        let Way::Forth { occupied } = self else { return false };
        let (start, end) = inner(patch);
        let next = occupied.partition_point(|at| at.0 < start);
        occupied.get(next).is_some_and(|at| at.0 < end)
    }
}

/// Patches by page, in order.
type Pages = Vec<(u64, Vec<usize>)>;

/// The result of one pause.
#[derive(Default)]
struct Part {
    left: Vec<(usize, Left)>,
    /// How many pages were handled.
    pages: usize,
    written: usize,
    threads: usize,
}

impl Process {
    /// Writes patches, which must be in the journal already, where no thread is in the middle of
    /// the bytes and the original bytes are there. Those whose mapping is no longer what `places`
    /// say are not written. None is for unwinders.
    ///
    /// # Errors
    ///
    /// When the process cannot be stopped, or memory cannot be written.
    pub fn patch(&self, patches: &[Patch], places: &MappedFiles) -> Result<Patched, LiveError> {
        self.notify_and_patch(None, (&[], patches), places)
    }

    /// Restores the original bytes of `back` as [`Process::restore`] does, then writes `forth` as [`Process::patch`]
    /// does, in the same pauses as far as they go. Returns how long threads were paused, each time.
    ///
    /// # Errors
    ///
    /// When the process cannot be stopped, or memory cannot be written.
    pub fn exchange(
        &self,
        back: &[Patch],
        forth: &[Patch],
        places: &MappedFiles,
    ) -> Result<Vec<Duration>, LiveError> {
        Ok(self.notify_and_patch(None, (back, forth), places)?.stops)
    }

    /// As [`Process::patch`], once unwinders and debuggers were notified of rewritten text. What
    /// unwinders need is all written, or nothing at all.
    ///
    /// # Errors
    ///
    /// When the process cannot be stopped, threads do not leave what must not be changed under
    /// them, or memory cannot be written.
    pub fn patch_known(
        &self,
        known: Known<'_>,
        patches: &[Patch],
        places: &MappedFiles,
    ) -> Result<Patched, LiveError> {
        self.notify_and_patch(Some(known), (&[], patches), places)
    }

    fn notify_and_patch(
        &self,
        mut known: Option<Known<'_>>,
        (back, patches): (&[Patch], &[Patch]),
        places: &MappedFiles,
    ) -> Result<Patched, LiveError> {
        let mut patched = Patched::default();
        let (mut back_pages, mut pages) = (by_page(back, |_| true), by_page(patches, |_| true));
        self.make_private(&pages)?;
        let mut tries = 0;
        while known.is_some() || !back_pages.is_empty() || !pages.is_empty() {
            let inside = inside_of(patches, &pages);
            let done = self.while_paused(|paused| {
                if let Some(known) = known {
                    paused.notify(known, patches)?;
                }
                let budget = PauseBudget::begin();
                let restored =
                    paused.patch_pages((back, &back_pages), places, Way::Back, &budget)?.pages;
                if restored < back_pages.len() || (restored > 0 && budget.is_over()) {
                    return Ok((restored, Part::default()));
                }
                let occupied = paused.on_stacks(&inside, &ReturnTable::default())?;
                let way = Way::Forth { occupied: &occupied };
                Ok((restored, paused.patch_pages((patches, &pages), places, way, &budget)?))
            });
            let last = tries + 1 == TRIES;
            let ((restored, part), stop) = match done {
                Ok(done) => done,
                Err(LiveError::Busy { .. }) if !last && known.is_some() => {
                    tries += 1;
                    std::thread::sleep(PAUSE);
                    continue;
                }
                Err(error) => return Err(error),
            };
            if known.take().is_some() {
                patched.written += patches.iter().filter(|p| p.purpose == Purpose::Unwind).count();
            }
            patched.stops.push(stop);
            back_pages.drain(..restored);
            patched.threads = patched.threads.max(part.threads);
            patched.written += part.written;
            pages.drain(..part.pages);
            patched.left.extend(part.left);
            if pages.is_empty() && !last {
                // Those that a thread was in the middle of, once more.
                let (inside, left) = patched.left.iter().partition(|(_, why)| *why == Left::Inside);
                let inside: Vec<(usize, Left)> = inside;
                patched.left = left;
                pages = by_page(patches, |i| inside.iter().any(|(other, _)| *other == i));
                tries += 1;
                if !pages.is_empty() {
                    std::thread::sleep(PAUSE);
                }
            }
        }
        Ok(patched)
    }

    /// Restores the original bytes of `patches`, where they were written and the mappings are still
    /// what `places` say.
    ///
    /// # Errors
    ///
    /// When the process cannot be stopped, or memory cannot be written.
    pub fn restore(&self, patches: &[Patch], places: &MappedFiles) -> Result<Restored, LiveError> {
        let mut pages = by_page(patches, |_| true);
        let mut restored = Restored::default();
        while !pages.is_empty() {
            let (part, stop) = self.while_paused(|paused| {
                let budget = PauseBudget::begin();
                paused.patch_pages((patches, &pages), places, Way::Back, &budget)
            })?;
            restored.stops.push(stop);
            pages.drain(..part.pages);
            restored.count += part.written;
            for (i, why) in part.left {
                match why {
                    Left::Gone => restored.gone += 1,
                    _ => restored.conflicts.push(patches[i].at),
                }
            }
        }
        Ok(restored)
    }

    /// Gives the process its own copies of pages of files, while it runs: one byte of each page is
    /// written, with the value that it has. Only Fettle writes to such a page.
    fn make_private(&self, pages: &Pages) -> Result<(), LiveError> {
        let maps = self.maps()?;
        let pagemap = Pagemap::of(self.pid());
        let constant = |m: &Mapping| !m.writable && !m.shared && m.path.is_some();
        let mut rest = &pages[..];
        while let Some((first, _)) = rest.first() {
            let mapping = maps.iter().find(|m| m.contains(LiveAddr(*first)));
            let inside =
                |(page, _): &(u64, _)| mapping.is_some_and(|m| m.contains(LiveAddr(*page)));
            let of_mapping = rest.partition_point(inside).max(1);
            let (these, others) = rest.split_at(of_mapping);
            rest = others;
            if !mapping.is_some_and(constant) {
                continue;
            }
            let last = these.last().map_or(*first, |(page, _)| *page);
            let known = pagemap.read(LiveAddr(*first), LiveAddr(last + PAGE));
            let is_own = |page: u64| {
                let known =
                    known.as_ref().and_then(|known| known.get(((page - first) / PAGE) as usize));
                known.is_some_and(|page| page.is_own())
            };
            for (page, _) in these.iter().filter(|(page, _)| !is_own(*page)) {
                let (at, mut byte) = (LiveAddr(*page), [0]);
                // Where that is not possible it only takes longer later.
                if self.memory.read_exact(at, &mut byte).is_ok() {
                    let _ = self.memory.write_running(at, &byte);
                }
            }
        }
        Ok(())
    }
}

/// Patches by page, in order, except those for unwinders.
fn by_page(patches: &[Patch], wanted: impl Fn(usize) -> bool) -> Pages {
    let mut pages: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
    for (i, patch) in patches.iter().enumerate() {
        if patch.purpose != Purpose::Unwind && wanted(i) {
            let page = patch.at.0 & !(PAGE - 1);
            assert!(
                patch.at.0 + patch.after.len() as u64 <= page + PAGE,
                "a patch crosses into the next page"
            );
            pages.entry(page).or_default().push(i);
        }
    }
    let mut pages: Pages = pages.into_iter().collect();
    pages.iter_mut().for_each(|(_, of_page)| of_page.sort_unstable_by_key(|i| patches[*i].at));
    pages
}

/// Where no thread may be while the patches of these pages are written.
fn inside_of(patches: &[Patch], pages: &Pages) -> Ranges {
    let all = pages.iter().flat_map(|(_, of_page)| of_page);
    Ranges::new(all.map(|i| inner(&patches[*i])).collect())
}

/// The bytes of a patch but the first: no thread may be there.
fn inner(patch: &Patch) -> (u64, u64) {
    (patch.at.0 + 1, patch.at.0 + patch.after.len() as u64)
}

impl Paused<'_> {
    /// Writes what unwinders need, all of it or nothing, and makes names visible to debuggers.
    fn notify(&self, known: Known<'_>, patches: &[Patch]) -> Result<(), LiveError> {
        let pid = self.process.pid();
        let busy = |why: &str| LiveError::Busy { pid, why: why.to_owned() };
        if self.any_in(known.guards) {
            return Err(busy("a thread looks through the list of libraries"));
        }
        let unwind: Vec<&Patch> = patches.iter().filter(|p| p.purpose == Purpose::Unwind).collect();
        let inside = Ranges::new(unwind.iter().map(|p| inner(p)).collect());
        if !self.on_stacks(&inside, &ReturnTable::default())?.is_empty() {
            return Err(busy("a thread looks for the code of an exception"));
        }
        for patch in &unwind {
            if self.process.read(patch.at, patch.before.len())? != patch.before {
                let why = "its loader has been changed by another program".to_owned();
                return Err(LiveError::Unattachable { pid, why });
            }
        }
        for patch in unwind {
            self.process.memory.write(patch.at, &patch.after)?;
        }
        known.names.map_or(Ok(()), |names| self.show(names))
    }

    /// Writes the patches of some pages, one at least, until threads were paused for long enough.
    fn patch_pages(
        &self,
        (patches, pages): (&[Patch], &Pages),
        places: &MappedFiles,
        way: Way<'_>,
        budget: &PauseBudget,
    ) -> Result<Part, LiveError> {
        let mut part = Part { threads: self.threads.len(), ..Part::default() };
        for (page, of_page) in pages {
            let end = of_page.iter().map(|i| patches[*i].at.0 + patches[*i].after.len() as u64);
            let from = patches[of_page[0]].at;
            part.pages += 1;
            if !places.is_same(self.process, LiveAddr(*page)) {
                part.left.extend(of_page.iter().map(|i| (*i, Left::Gone)));
                continue;
            }
            let len = (end.max().unwrap_or(from.0) - from.0) as usize;
            let mut bytes = self.process.read(from, len)?;
            let mut changed = false;
            for i in of_page {
                let patch = &patches[*i];
                let at = (patch.at.0 - from.0) as usize;
                let now = &mut bytes[at..at + patch.after.len()];
                let to = match way {
                    Way::Forth { .. } => &patch.after,
                    Way::Back => &patch.before,
                };
                if *now == to[..] {
                    part.written += 1;
                } else if way.is_occupied(patch) {
                    part.left.push((*i, Left::Inside));
                } else if is_ours(patch, now, way) {
                    now.copy_from_slice(to);
                    changed = true;
                    part.written += 1;
                } else {
                    part.left.push((*i, Left::Changed));
                }
            }
            if changed {
                self.process.memory.write(from, &bytes)?;
            }
            if budget.is_over() {
                break;
            }
        }
        Ok(part)
    }

    /// Restores the bytes before a patch for unwinders, if it was written; false if something else
    /// has changed them since.
    pub(crate) fn restore_unwind(
        &self,
        patch: &Patch,
        places: &MappedFiles,
    ) -> Result<bool, LiveError> {
        if !places.is_same(self.process, patch.at) {
            return Ok(true);
        }
        let now = self.process.read_some(patch.at, patch.before.len()).unwrap_or_default();
        if now.is_empty() || now == patch.before {
            return Ok(true);
        }
        let ours = now.len() == patch.before.len() && is_ours(patch, &now, Way::Back);
        if ours {
            self.process.memory.write(patch.at, &patch.before)?;
        }
        Ok(ours)
    }
}

/// Whether these bytes may be changed by a patch.
fn is_ours(patch: &Patch, now: &[u8], way: Way<'_>) -> bool {
    match way {
        Way::Forth { .. } => now == patch.before,
        // A Fettle may have been killed while it wrote the patch.
        Way::Back => (0..now.len()).all(|i| now[i] == patch.before[i] || now[i] == patch.after[i]),
    }
}
