//! Changing a halted process: giving it memory, leading it to new code, and taking both back.
//!
//! Everything is told to the [`Journal`] first. A jump never crosses from one page into the next,
//! so it is there wholly or not at all whenever we are killed.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::caller::SystemCall;
use crate::error::LiveError;
use crate::halt::Halted;
use crate::journal::{Entry, Journal, Patch, Purpose, Region};
use crate::maps::{LiveAddr, Mapping};
use crate::process::Process;
use crate::references::{Ranges, in_memory};

const PAGE: u64 = 4096;

/// Why a place was left as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// A thread stands in the middle of it.
    Inside,
    /// Other bytes are there than were expected: somebody else has changed them.
    Changed,
}

/// What became of patches.
#[derive(Debug, Default)]
pub struct Patched {
    /// How many were written.
    pub written: usize,
    /// Which were not, by index.
    pub left: Vec<(usize, Left)>,
}

impl Halted<'_> {
    /// Gives the process memory, all zeros, at places that are free; all of it or none.
    ///
    /// # Errors
    ///
    /// When the process cannot make the calls, or something is there already.
    pub fn map(&mut self, journal: &mut Journal, regions: &[Region]) -> Result<(), LiveError> {
        let maps = self.process.maps()?;
        journal.add(regions.iter().map(|region| Entry::Map(*region)))?;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
        let calls: Vec<SystemCall> = regions
            .iter()
            .map(|region| SystemCall {
                action: "map memory",
                number: libc::SYS_mmap,
                arguments: [region.at.0, region.len, region.prot.bits(), flags as u64, !0, 0],
            })
            .collect();
        let done = self.system_calls(journal, &maps, &calls, |journal, call| {
            journal.add([Entry::Mapped(LiveAddr(call.arguments[0]))])
        });
        if done.is_err() {
            let made = journal.regions().into_iter().filter(|(_, mapped)| *mapped);
            let made: Vec<Region> =
                made.map(|(region, _)| region).filter(|region| regions.contains(region)).collect();
            let _ = self.unmap(journal, &made);
            // Those that were not made are not there.
            let _ = journal.add(regions.iter().map(|region| Entry::Unmapped(region.at)));
        }
        done
    }

    /// Takes memory back.
    pub(crate) fn unmap(
        &mut self,
        journal: &mut Journal,
        regions: &[Region],
    ) -> Result<(), LiveError> {
        if regions.is_empty() {
            return Ok(());
        }
        let maps = self.process.maps()?;
        // Not where the call's own instructions go.
        let outside = |m: &Mapping| !regions.iter().any(|r| m.contains(r.at));
        let maps: Vec<Mapping> = maps.into_iter().filter(outside).collect();
        let calls: Vec<SystemCall> = regions
            .iter()
            .map(|region| SystemCall {
                action: "unmap memory",
                number: libc::SYS_munmap,
                arguments: [region.at.0, region.len, 0, 0, 0, 0],
            })
            .collect();
        self.system_calls(journal, &maps, &calls, |journal, call| {
            journal.add([Entry::Unmapped(LiveAddr(call.arguments[0]))])
        })
    }

    /// Writes patches, which the journal must have been told of, where no thread is in the middle
    /// of the bytes and they are what they should be. Those that unwinders need are all written,
    /// or none at all.
    ///
    /// # Errors
    ///
    /// When a thread is in one of the `guards` or where unwinders are to be changed, for the
    /// moment; or when memory cannot be written.
    pub fn patch(&mut self, patches: &[Patch], guards: &Ranges) -> Result<Patched, LiveError> {
        let pid = self.process.pid();
        let busy = |why: &str| LiveError::Busy { pid, why: why.to_owned() };
        if self.any_in(guards) {
            return Err(busy("a thread looks through the list of libraries"));
        }
        let maps = self.process.maps()?;
        let inner = |p: &Patch| (p.at.0 + 1, p.at.0 + p.after.len() as u64);
        let ranges = Ranges::new(patches.iter().map(inner).collect());
        let inside = self.on_stacks(&maps, &ranges)?;
        let mut out = Patched::default();
        let mut pages: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
        for (i, patch) in patches.iter().enumerate() {
            let (start, end) = inner(patch);
            let next = inside.partition_point(|at| at.0 < start);
            let occupied = inside.get(next).is_some_and(|at| at.0 < end);
            match patch.purpose {
                Purpose::Unwind => {
                    if occupied {
                        return Err(busy("a thread looks for the code of an exception"));
                    }
                    if self.process.read(patch.at, patch.before.len())? != patch.before {
                        let why = "its loader has been changed by somebody else".to_owned();
                        return Err(LiveError::Unattachable { pid, why });
                    }
                }
                Purpose::Jump if occupied => out.left.push((i, Left::Inside)),
                Purpose::Jump => pages.entry(patch.at.0 & !(PAGE - 1)).or_default().push(i),
            }
        }
        for patch in patches.iter().filter(|p| p.purpose == Purpose::Unwind) {
            self.process.memory.write(patch.at, &patch.after)?;
            out.written += 1;
        }
        for (page, mut indices) in pages {
            let of_page = |i: usize| (patches[i].at.0 - page) as usize;
            indices.sort_unstable_by_key(|i| patches[*i].at);
            let first = of_page(indices[0]);
            let end = indices.iter().map(|i| of_page(*i) + patches[*i].after.len()).max();
            let end = end.unwrap_or(first);
            assert!(end <= PAGE as usize, "a jump crosses into the next page");
            let mut bytes = self.process.read(LiveAddr(page + first as u64), end - first)?;
            let mut changed = false;
            for i in indices {
                let range = of_page(i) - first..of_page(i) - first + patches[i].after.len();
                if bytes[range.clone()] == patches[i].before {
                    bytes[range].copy_from_slice(&patches[i].after);
                    changed = true;
                    out.written += 1;
                } else {
                    out.left.push((i, Left::Changed));
                }
            }
            if changed {
                self.process.memory.write(LiveAddr(page + first as u64), &bytes)?;
            }
        }
        Ok(out)
    }

    /// Puts back what was there before `patch`, if it was written; false if somebody else has
    /// changed the place since.
    fn restore(&self, patch: &Patch) -> Result<bool, LiveError> {
        let Ok(now) = self.process.read_some(patch.at, patch.before.len()) else {
            // A library that was closed has taken its code with it.
            return Ok(true);
        };
        if now == patch.before {
            return Ok(true);
        }
        let ours = now.len() == patch.before.len()
            && (0..now.len()).all(|i| now[i] == patch.before[i] || now[i] == patch.after[i]);
        if ours {
            self.process.memory.write(patch.at, &patch.before)?;
        }
        Ok(ours)
    }
}

/// What an undo has done.
#[derive(Debug, Default)]
pub struct Undone {
    /// Places that have their original bytes, or never had others.
    pub restored: usize,
    /// Places that somebody else has changed since, and that were left so.
    pub conflicts: Vec<LiveAddr>,
    /// Bytes of memory taken back.
    pub freed: u64,
    /// Bytes that stay mapped, and why.
    pub kept: Option<(u64, String)>,
    /// How long threads stood still, each time.
    pub stops: Vec<Duration>,
    /// The process has ended, or executed another program: there was nothing to do.
    pub gone: bool,
}

/// So long an undo waits between looks whether new code can be taken away, first and at most.
const PAUSES: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(500));

/// Takes back everything that a journal tells of. Original bytes come first; new code and what
/// lets unwinders know it go when nothing leads to it any more. Waits up to `patience` for that;
/// what stays then stays in the journal.
///
/// # Errors
///
/// When the process cannot be stopped or changed. The journal is kept.
pub fn undo(mut journal: Journal, patience: Duration) -> Result<Undone, LiveError> {
    let mut undone = Undone::default();
    let pid = match journal.entries().first() {
        Some(Entry::Process(pid, ..)) => *pid,
        _ => {
            journal.remove()?;
            return Ok(Undone { gone: true, ..undone });
        }
    };
    let process = match Process::open(pid) {
        Ok(process) if journal.is_of(&process) => process,
        Err(error @ (LiveError::Unattachable { .. } | LiveError::NotPermitted { .. }))
            if is_alive(&journal) =>
        {
            return Err(error);
        }
        _ => {
            journal.remove()?;
            return Ok(Undone { gone: true, ..undone });
        }
    };
    let jumps = restore_jumps(&journal, &process, &mut undone.stops)?;
    (undone.restored, undone.conflicts) = jumps;
    let deadline = Instant::now() + patience;
    let mut pause = PAUSES.0;
    loop {
        let why = match take_away(&mut journal, &process, &mut undone)? {
            None if undone.conflicts.is_empty() => {
                journal.remove()?;
                return Ok(undone);
            }
            None => return Ok(undone),
            Some(why) => why,
        };
        if Instant::now() > deadline {
            let bytes = journal.regions().iter().map(|(region, _)| region.len).sum();
            undone.kept = Some((bytes, why));
            return Ok(undone);
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(PAUSES.1);
    }
}

/// Whether the process that a journal is of still runs, as far as can be seen without rights.
fn is_alive(journal: &Journal) -> bool {
    match journal.entries().first() {
        Some(Entry::Process(pid, start, _)) => crate::process::start_time(*pid) == Some(*start),
        _ => false,
    }
}

fn patches(journal: &Journal, purpose: Purpose) -> impl Iterator<Item = &Patch> {
    journal.entries().iter().rev().filter_map(move |entry| match entry {
        Entry::Write(patch) if patch.purpose == purpose => Some(patch),
        _ => None,
    })
}

/// Original bytes wherever control was led to new code, and zeros where calls of ours stood.
fn restore_jumps(
    journal: &Journal,
    process: &Process,
    stops: &mut Vec<Duration>,
) -> Result<(usize, Vec<LiveAddr>), LiveError> {
    let mut codes: Vec<(LiveAddr, usize)> = Vec::new();
    for entry in journal.entries() {
        match entry {
            Entry::Code(at, len) => codes.push((*at, *len)),
            Entry::Cleared(at) => codes.retain(|(other, _)| other != at),
            _ => {}
        }
    }
    let ranges = Ranges::new(codes.iter().map(|(at, len)| (at.0, at.0 + *len as u64)).collect());
    let mut tries = 0;
    loop {
        let (done, stop) = process.while_halted(|halted| {
            // It is on its way out of there.
            if halted.any_in(&ranges) {
                return Ok(None);
            }
            for (at, len) in &codes {
                let now = halted.process.read_some(*at, *len).unwrap_or_default();
                if now.iter().any(|byte| *byte != 0) {
                    halted.process.memory.write(*at, &vec![0; *len])?;
                }
            }
            let mut restored = 0;
            let mut conflicts = Vec::new();
            for patch in patches(journal, Purpose::Jump) {
                match halted.restore(patch)? {
                    true => restored += 1,
                    false => conflicts.push(patch.at),
                }
            }
            Ok(Some((restored, conflicts)))
        })?;
        stops.push(stop);
        tries += 1;
        match done {
            Some(done) => return Ok(done),
            None if tries > 100 => {
                let why = "a thread of it waits in a call of ours".to_owned();
                return Err(LiveError::Busy { pid: process.pid(), why });
            }
            None => std::thread::sleep(Duration::from_millis(5)),
        }
    }
}

/// Takes new code away, and what unwinders know of it, if nothing leads to it. Else why not.
fn take_away(
    journal: &mut Journal,
    process: &Process,
    undone: &mut Undone,
) -> Result<Option<String>, LiveError> {
    let regions = journal.regions();
    let ranges = regions.iter().map(|(r, _)| (r.at.0, r.at.0 + r.len)).collect();
    let ranges = Ranges::new(ranges);
    // What is saved in memory leads to code. Data is reached from code alone, and from stacks.
    let code = regions.iter().filter(|(r, _)| r.prot.exec);
    let code = Ranges::new(code.map(|(r, _)| (r.at.0, r.at.0 + r.len)).collect());
    let guards = guards(journal);
    let unwind: Vec<Patch> = patches(journal, Purpose::Unwind).cloned().collect();
    // The loader's record of a library leads to our headers as long as it is ours.
    let known = unwind.iter().map(|p| (p.at.0 & !7, p.at.0 + p.after.len() as u64)).collect();
    let known = Ranges::new(known);
    const ON_A_STACK: &str = "a thread is in it, or returns to it";
    // A short look first: as a rule it is a thread that hinders.
    let (view, stop) = process.while_halted(|halted| {
        let maps = halted.process.maps()?;
        let found = halted.on_stacks(&maps, &ranges)?;
        Ok(found.is_empty().then(|| halted.view()))
    })?;
    undone.stops.push(stop);
    let Some(view) = view else { return Ok(Some(ON_A_STACK.to_owned())) };
    if let Some(why) = in_memory(process, &process.maps()?, &view, &code, &known) {
        return Ok(Some(why.to_owned()));
    }
    let conflicts = &mut undone.conflicts;
    let (outcome, stop) = process.while_halted(|halted| {
        if halted.any_in(&guards) {
            return Ok(Err("a thread looks through the list of libraries"));
        }
        let maps = halted.process.maps()?;
        if !halted.on_stacks(&maps, &ranges)?.is_empty() {
            return Ok(Err(ON_A_STACK));
        }
        if let Some(why) = in_memory(process, &maps, &halted.view(), &code, &known) {
            return Ok(Err(why));
        }
        for patch in &unwind {
            if !halted.restore(patch)? {
                conflicts.push(patch.at);
                return Ok(Err("its loader has been changed by somebody else"));
            }
        }
        for entry in journal.entries() {
            if let Entry::GsBase(base) = entry {
                halted.set_gs_base(*base, 0)?;
            }
        }
        let mapped: Vec<Region> = regions
            .iter()
            .filter(|(region, mapped)| *mapped || is_untouched(&maps, region, process))
            .map(|(region, _)| *region)
            .collect();
        halted.unmap(journal, &mapped)?;
        Ok(Ok(mapped.iter().map(|region| region.len).sum::<u64>()))
    })?;
    undone.stops.push(stop);
    Ok(match outcome {
        Ok(freed) => {
            undone.freed = freed;
            None
        }
        Err(why) => Some(why.to_owned()),
    })
}

/// Ranges that no thread may be in while bytes change.
pub(crate) fn guards(journal: &Journal) -> Ranges {
    let guards = journal.entries().iter().filter_map(|entry| match entry {
        Entry::Guard(start, end) => Some((start.0, end.0)),
        _ => None,
    });
    Ranges::new(guards.collect())
}

/// Whether a region is there that the journal does not know to have been made: it can only be
/// ours if it is just as we ask for them, and empty.
fn is_untouched(maps: &[Mapping], region: &Region, process: &Process) -> bool {
    let same = maps.iter().any(|m| {
        let prot = (m.readable, m.writable, m.executable);
        m.start == region.at
            && m.end.0 == region.at.0 + region.len
            && prot == (region.prot.read, region.prot.write, region.prot.exec)
            && (m.inode, m.shared, m.name.is_none()) == (0, false, true)
    });
    let empty = |bytes: Vec<u8>| bytes.iter().all(|byte| *byte == 0);
    same && process.read(region.at, region.len as usize).is_ok_and(empty)
}
