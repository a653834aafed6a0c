//! Mapping memory in a running process, and reverting everything that was done to it.
//!
//! Every change is written to the [`Journal`] before it is made.

use std::fs::{File, OpenOptions};
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use fettle_types::Pid;

use crate::caller::{SystemCall, is_answer};
use crate::deopt::{deoptimise_one, redirect_dead_stack_of};
use crate::entry::{Entry, Names, Patch, Purpose, Region, is_as_made, is_memory_file, region_hash};
use crate::error::LiveError;
use crate::forked;
use crate::journal::Journal;
use crate::mapped_files::MappedFiles;
use crate::maps::{LiveAddr, Mapping, PAGE};
use crate::pause::{Paused, clear_gs_base};
use crate::perf_map;
use crate::process::{self, Process};
use crate::ranges::Ranges;
use crate::references::{CodePointer, Dead, OwnMemory, sleeper_returns_to, words_of_modules};
use crate::restore_stub;
use crate::return_table::ReturnTable;
use crate::thread::Thread;

const AT_PLATFORM: u64 = 15;

impl Process {
    /// Maps memory in the process, all zeros, at addresses that are free; all regions or none.
    /// Returns how long a thread was paused, each time.
    ///
    /// # Errors
    ///
    /// When the process cannot make the calls, or something is there already.
    pub fn map(
        &self,
        journal: &mut Journal,
        regions: &[Region],
    ) -> Result<Vec<Duration>, LiveError> {
        journal.add(regions.iter().map(|region| Entry::Map(*region)))?;
        let call = |region: &Region| SystemCall {
            action: "map memory",
            number: libc::SYS_mmap,
            arguments: region.mmap_arguments(),
        };
        let calls: Vec<SystemCall> = regions.iter().map(call).collect();
        let made = self.make_calls(journal, &[], &calls)?;
        let done = &regions[..made.results.len()];
        journal.add(done.iter().map(|region| Entry::Mapped(region.at)))?;
        let Some(error) = made.error else { return Ok(made.stops) };
        let _ = self.unmap(journal, done);
        // Regions after the failing call were not mapped. Whether an interrupted call mapped its
        // region is unknown.
        let unknown = usize::from(!is_answer(&error));
        let absent = regions.iter().skip(made.results.len() + unknown);
        journal.add(absent.map(|region| Entry::Unmapped(region.at)))?;
        Err(error)
    }

    /// Maps memory that we share with the process: that of a file without a name, which is
    /// returned, still empty. Forked children share it. `at` is free; core dumps leave it out. Also
    /// returns how long a thread was paused, each time.
    ///
    /// # Errors
    ///
    /// When the process cannot make the calls, or something is there already.
    pub fn map_file(
        &self,
        journal: &mut Journal,
        region: Region,
    ) -> Result<(File, Vec<Duration>), LiveError> {
        let pid = self.pid();
        // Any text will do for a name; the kernel has put this one into every process.
        let name = self.auxv(AT_PLATFORM).ok_or_else(|| LiveError::Unattachable {
            pid,
            why: "its auxiliary vector is not what Linux makes".to_owned(),
        })?;
        let call = |action, number, arguments| SystemCall { action, number, arguments };
        let cloexec = u64::from(libc::MFD_CLOEXEC);
        let create =
            call("make a memory file", libc::SYS_memfd_create, [name, cloexec, 0, 0, 0, 0]);
        let made = self.make_calls(journal, &[], &[create])?;
        let (descriptor, mut stops) = match (made.results.first(), made.error) {
            (Some(descriptor), None) => (*descriptor, made.stops),
            (_, error) => return Err(error.unwrap_or(LiveError::Gone { pid })),
        };
        let path = format!("/proc/{pid}/fd/{descriptor}");
        let opened = OpenOptions::new().read(true).write(true).open(path);
        let region = opened.is_ok().then_some(region);
        stops.extend(self.map_descriptor(journal, region, descriptor)?);
        let failed = |source| LiveError::Ptrace { action: "open its memory file", pid, source };
        Ok((opened.map_err(failed)?, stops))
    }

    /// Maps memory that another process has by [`Process::map_file`]: the same file. `at` is free;
    /// core dumps leave it out. Returns how long a thread was paused, each time.
    ///
    /// # Errors
    ///
    /// When the kernel is older than 5.6, the process cannot make the calls, or something is there
    /// already.
    pub fn map_same(
        &self,
        journal: &mut Journal,
        region: Region,
        file: BorrowedFd<'_>,
    ) -> Result<Vec<Duration>, LiveError> {
        // Not at the begin of the region: the log identifies memory by that.
        let page = region.at.offset(region.len - PAGE);
        let (descriptor, mut stops) = self.receive(journal, page, file)?;
        stops.extend(self.map_descriptor(journal, Some(region), descriptor)?);
        Ok(stops)
    }

    /// Has the process map a file that it has open, if there is a `region` for it, and close it.
    fn map_descriptor(
        &self,
        journal: &mut Journal,
        region: Option<Region>,
        descriptor: u64,
    ) -> Result<Vec<Duration>, LiveError> {
        let call = |action, number, arguments| SystemCall { action, number, arguments };
        let mut stops = Vec::new();
        let mut failed = None;
        if let Some(region) = region {
            let (at, len) = (region.at.0, region.len);
            let flags = (libc::MAP_SHARED | libc::MAP_FIXED_NOREPLACE) as u64;
            let map = [at, len, region.prot.bits(), flags, descriptor, 0];
            let map = call("map memory", libc::SYS_mmap, map);
            let advise = [at, len, libc::MADV_DONTDUMP as u64, 0, 0, 0];
            let advise = call("keep memory out of dumps", libc::SYS_madvise, advise);
            journal.add([Entry::Map(region)])?;
            let made = self.make_calls(journal, &[], &[map, advise])?;
            stops.extend(made.stops);
            journal.add([match made.results.is_empty() {
                true => Entry::Unmapped(region.at),
                false => Entry::Mapped(region.at),
            }])?;
            failed = made.error;
        }
        let close = call("close a memory file", libc::SYS_close, [descriptor, 0, 0, 0, 0, 0]);
        stops.extend(self.make_calls(journal, &[], &[close])?.stops);
        failed.map_or(Ok(stops), Err)
    }

    /// Unmaps memory.
    pub(crate) fn unmap(
        &self,
        journal: &mut Journal,
        regions: &[Region],
    ) -> Result<Vec<Duration>, LiveError> {
        let call = |region: &Region| SystemCall {
            action: "unmap memory",
            number: libc::SYS_munmap,
            arguments: [region.at.0, region.len, 0, 0, 0, 0],
        };
        let calls: Vec<SystemCall> = regions.iter().map(call).collect();
        let going = regions.iter().map(|r| Entry::Unmapping(r.at, first_page(self, r)));
        journal.add(going.collect::<Vec<_>>())?;
        let made = self.make_calls(journal, regions, &calls)?;
        journal
            .add(regions[..made.results.len()].iter().map(|region| Entry::Unmapped(region.at)))?;
        made.error.map_or(Ok(made.stops), Err)
    }
}

/// A hash of a region's first page.
fn first_page(process: &Process, region: &Region) -> u64 {
    region_hash(region, |at, len| process.read_some(at, len))
}

/// The result of an undo.
#[derive(Debug, Default)]
pub struct Undone {
    /// Patch sites that have their original bytes, or never had others.
    pub restored: usize,
    /// Patch sites that are no longer there: their library was closed.
    pub closed: usize,
    /// Patch sites that something else has changed since, and that were not touched.
    pub conflicts: Vec<LiveAddr>,
    /// Bytes of memory that were unmapped.
    pub freed: u64,
    /// Bytes that stay mapped, and why.
    pub kept: Option<(u64, String)>,
    /// How long threads were paused, each time.
    pub stops: Vec<Duration>,
    /// The process has ended, or executed another program: there was nothing to do.
    pub gone: bool,
    /// Words of its memory that were return addresses or landing pads in rewritten text, and were
    /// redirected.
    pub changed: usize,
    /// Processes that it forked while it was patched: they have inherited its patches, and from now
    /// on have undo logs of their own.
    pub forked_children: Vec<Pid>,
}

/// Why rewritten text stays mapped.
const ON_A_STACK: &str = "a thread is in it, or returns to it";
/// At most so many words of memory are changed in one pause, which is to be short.
const MAX_POINTERS: usize = 1000;
/// How long an undo waits between checks whether rewritten text can be unmapped, first and at most.
const PAUSES: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(500));

/// How rewritten text is reverted.
#[derive(Clone, Copy)]
pub struct Undoing<'a> {
    /// How long to wait until nothing leads to rewritten text. What stays then stays in the
    /// journal.
    pub patience: Duration,
    /// Deopt jumps for functions that threads stay in, given addresses in rewritten text that are
    /// on stacks.
    pub escapes: &'a (dyn Fn(&[LiveAddr]) -> Vec<Patch> + Sync),
    /// What is done with references to rewritten text in its memory.
    pub memory: InMemory,
}

/// What is done with return addresses in rewritten text that are in a process's memory, but not on
/// its threads' stacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InMemory {
    /// They stay, and rewritten text with them.
    Kept,
    /// They are redirected to the return address of the same call in the original. That is right
    /// for a stack that sleeps, and for copies of one. A program that looks something up by such a
    /// word does not find it again; nor would it if the word stayed, for calls return to the
    /// original now.
    Deoptimised,
    /// And a reference to unwind information on the stack of a thread in a system call is taken to
    /// be left from an exception that was caught: the thread does not sleep while it unwinds.
    LedBackAndCaught,
}

impl InMemory {
    fn is_redirected(self) -> bool {
        self != InMemory::Kept
    }

    fn is_caught(self) -> bool {
        self == InMemory::LedBackAndCaught
    }
}

impl Undoing<'static> {
    /// Without changes to memory, and without deopt jumps.
    pub fn within(patience: Duration) -> Undoing<'static> {
        Undoing { patience, escapes: &|_| Vec::new(), memory: InMemory::Kept }
    }
}

/// Reverts everything that a journal records. Original bytes are restored first; rewritten text and
/// its unwinding tables are unmapped once nothing leads to them any more.
///
/// # Errors
///
/// When the process cannot be stopped or changed. The journal is kept.
pub fn undo(mut journal: Journal, how: Undoing<'_>) -> Result<Undone, LiveError> {
    let pid = match journal.entries().first() {
        Some(Entry::Process(pid, ..)) => *pid,
        _ => {
            journal.remove()?;
            return Ok(Undone { gone: true, ..Undone::default() });
        }
    };
    let undone = match Process::open(pid) {
        Ok(process) if journal.is_of(&process) => undo_living(&mut journal, &process, how),
        Ok(_) => Ok(Undone { gone: true, ..Undone::default() }),
        Err(error) => Err(error),
    };
    let mut undone = match undone {
        // It may end at any time, and then there is nothing to revert.
        Err(_) if is_gone(&journal)? => Undone { gone: true, ..Undone::default() },
        undone => undone?,
    };
    undone.forked_children = forked::pass_on(&journal)?;
    if undone.gone || undone.kept.is_none() && undone.conflicts.is_empty() {
        perf_map::remove(&journal, pid);
        journal.remove()?;
    }
    Ok(undone)
}

/// Reverts what a journal records of its process, as far as that is possible.
fn undo_living(
    journal: &mut Journal,
    process: &Process,
    how: Undoing<'_>,
) -> Result<Undone, LiveError> {
    let mut undone = Undone::default();
    clear_code(journal, process, &mut undone.stops)?;
    let leading = patches(journal, Purpose::leads);
    let restored = process.restore(&leading, &MappedFiles::of(journal))?;
    undone.stops.extend(restored.stops);
    (undone.restored, undone.closed) = (restored.count, restored.gone);
    undone.conflicts = restored.conflicts;
    if still_leads(process, &leading, &undone.conflicts) {
        let why =
            "another program has changed what leads to it, and left a part of that".to_owned();
        undone.kept = Some((code_bytes(journal), why));
        return Ok(undone);
    }
    let deadline = Instant::now() + how.patience;
    let mut pause = PAUSES.0;
    let mut tries = 0u32;
    let returns = journal.returns();
    while let Some(why) = take_away(journal, process, (&returns, how.memory), &mut undone)? {
        // Mostly a thread only passes through.
        tries += 1;
        if tries.is_power_of_two() && tries > 1 {
            disable_deopt_jumps(journal, process, how.escapes, &mut undone.stops)?;
        }
        if Instant::now() > deadline {
            undone.kept = Some((code_bytes(journal), why));
            break;
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(PAUSES.1);
    }
    Ok(undone)
}

/// Whether the process that a journal is of has ended, as far as can be seen without rights.
fn is_gone(journal: &Journal) -> Result<bool, LiveError> {
    match journal.entries().first() {
        Some(Entry::Process(pid, start, _)) if !journal.is_past() => process::is_gone(*pid, *start),
        _ => Ok(true),
    }
}

/// Whether one of the patch sites that another process has changed has bytes of ours: that process
/// may restore the others, as debuggers do.
fn still_leads(process: &Process, patches: &[Patch], changed: &[LiveAddr]) -> bool {
    let has_ours = |patch: &Patch| {
        let now = process.read_some(patch.at, patch.after.len()).unwrap_or_default();
        let bytes = now.iter().zip(&patch.before).zip(&patch.after);
        bytes.filter(|((_, before), after)| before != after).any(|((now, _), after)| now == after)
    };
    patches.iter().any(|patch| changed.contains(&patch.at) && has_ours(patch))
}

/// Bytes of rewritten text in a process, by its log.
fn code_bytes(journal: &Journal) -> u64 {
    journal.regions().iter().map(|(region, _)| region.code_len()).sum()
}

fn patches(journal: &Journal, wanted: impl Fn(Purpose) -> bool) -> Vec<Patch> {
    let writes = MappedFiles::writes_of(journal).into_iter();
    writes.filter(|patch| wanted(patch.purpose)).cloned().collect()
}

/// Has functions of the rewritten text begin with a jump to their originals, for a thread that
/// stays in rewritten text and calls from there: a main loop may never return. Rewritten text is
/// ours, so nothing needs to be restored.
fn disable_deopt_jumps(
    journal: &Journal,
    process: &Process,
    escapes: &(dyn Fn(&[LiveAddr]) -> Vec<Patch> + Sync),
    stops: &mut Vec<Duration>,
) -> Result<(), LiveError> {
    let regions = journal.regions();
    let code = ranges_of(&regions, |(region, mapped)| *mapped && region.prot.exec);
    let (inside, stop) =
        process.while_paused(|paused| paused.on_stacks(&code, &ReturnTable::default()))?;
    stops.push(stop);
    let mut deopt_jumps = escapes(&inside);
    deopt_jumps.extend(patches(journal, |purpose| purpose == Purpose::DeoptJump));
    // Jump tables lead out, too.
    let new = ranges_of(&regions, |(region, mapped)| *mapped && !region.shared);
    deopt_jumps.retain(|patch| new.contains(patch.at.0));
    stops.extend(process.patch(&deopt_jumps, &MappedFiles::default())?.stops);
    Ok(())
}

/// Zeros the instructions for calls of ours, in all places: the library may have been closed, and
/// another be there.
fn clear_code(
    journal: &mut Journal,
    process: &Process,
    stops: &mut Vec<Duration>,
) -> Result<(), LiveError> {
    let mut codes: Vec<(LiveAddr, usize)> = Vec::new();
    for entry in journal.entries() {
        match entry {
            Entry::Code(at, len) => codes.push((*at, *len)),
            Entry::Cleared(at) => codes.retain(|(other, _)| other != at),
            _ => {}
        }
    }
    let stands = |(at, len): &&(LiveAddr, usize)| {
        process.read_some(*at, *len).is_ok_and(|bytes| restore_stub::is_ours(&bytes))
    };
    let standing: Vec<(LiveAddr, usize)> = codes.iter().filter(stands).copied().collect();
    if !standing.is_empty() {
        clear_standing(process, &standing, stops)?;
    }
    journal.add(codes.iter().map(|(at, _)| Entry::Cleared(*at)).collect::<Vec<_>>())
}

/// Zeros the instructions for calls of ours that are there now.
fn clear_standing(
    process: &Process,
    codes: &[(LiveAddr, usize)],
    stops: &mut Vec<Duration>,
) -> Result<(), LiveError> {
    let ranges = Ranges::new(codes.iter().map(|(at, len)| (at.0, at.0 + *len as u64)).collect());
    // After so many tries, an address that is still on a stack is a leftover, not a return address
    // in use.
    const PASSING: u32 = 50;
    for tries in 0u32.. {
        let (done, stop) = process.while_paused(|paused| {
            // It is on its way out of there, or in a signal handler that returns there.
            let comes_back = || paused.on_stacks(&ranges, &ReturnTable::default());
            if paused.any_in(&ranges) || tries < PASSING && !comes_back()?.is_empty() {
                return Ok(false);
            }
            for (at, len) in codes {
                let now = paused.process.read_some(*at, *len).unwrap_or_default();
                if restore_stub::is_ours(&now) {
                    paused.process.memory.write(*at, &vec![0; *len])?;
                }
            }
            Ok(true)
        })?;
        stops.push(stop);
        if done {
            break;
        }
        if tries > 100 {
            let why = "a thread of it waits in a call of ours".to_owned();
            return Err(LiveError::Busy { pid: process.pid(), why });
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// The ranges of the `wanted` regions.
fn ranges_of(regions: &[(Region, bool)], wanted: impl Fn(&(Region, bool)) -> bool) -> Ranges {
    let wanted = regions.iter().filter(|region| wanted(region));
    Ranges::new(wanted.map(|(r, _)| (r.at.0, r.at.0 + r.len)).collect())
}

/// Unmaps rewritten text and its unwinding tables, if nothing leads to it. Else why not.
fn take_away(
    journal: &mut Journal,
    process: &Process,
    (returns, in_memory): (&ReturnTable, InMemory),
    undone: &mut Undone,
) -> Result<Option<String>, LiveError> {
    let regions = journal.regions();
    // Shared memory is data of rewritten text: no register has its address for longer.
    let ranges = ranges_of(&regions, |(region, _)| !region.shared);
    // Addresses saved in memory are of code. Data is reached from code alone, and from stacks.
    let code = ranges_of(&regions, |(region, _)| region.prot.exec);
    // But a stack that is deoptimised must not keep the address of a table.
    let code = if in_memory.is_redirected() { code.with(returns.tables()) } else { code };
    let within = |t: &Thread| if in_memory.is_caught() && t.is_in_call() { &code } else { &ranges };
    let guards = guards(journal);
    let places = MappedFiles::of(journal);
    let unwind = patches(journal, |purpose| purpose == Purpose::Unwind);
    let known = known(&regions, &unwind);
    // The cheapest checks come first: as a rule it is a thread that prevents it.
    if returns.is_empty() && sleeper_returns_to(process, &ranges) {
        return Ok(Some(ON_A_STACK.to_owned()));
    }
    // One by one, those that are parked.
    let lead_out = |process: &Process, thread: &mut Thread| {
        let ranges = within(thread);
        deoptimise_one(process, thread, returns, ranges)
    };
    let (view, stop) = process.while_paused_after(&mut { lead_out }, |paused| {
        Ok(are_deoptimised(paused, returns, within)?.then(|| paused.view()))
    })?;
    undone.stops.push(stop);
    let Some(view) = view else { return Ok(Some(ON_A_STACK.to_owned())) };
    let maps = process.maps()?;
    let memory = OwnMemory::of(process, &maps, &view, &code);
    let large = memory.is_large();
    // Twice, where it cannot be searched once more while the process is paused.
    for _ in 0..if large { 2 } else { 1 } {
        let to = (&code, returns);
        if let Some(code_pointer) =
            memory_points_into(process, &memory, to, &known, in_memory, undone)?
        {
            return Ok(Some(word_keeps(&code_pointer, &process.maps()?, in_memory)));
        }
    }
    let (dead, mut gs_stays) = (view.dead(&maps), false);
    let mut lead_out_all = |process: &Process, thread: &mut Thread| {
        lead_out(process, thread)?;
        redirect_dead_stack_of(process, thread, returns, &dead)
    };
    let (hindrance, stop) = process.while_paused_after(&mut lead_out_all, |paused| {
        if paused.any_in(&guards) {
            return Ok(Some("a thread looks through the list of libraries".to_owned()));
        }
        if !are_deoptimised(paused, returns, within)? {
            return Ok(Some(ON_A_STACK.to_owned()));
        }
        // Reading its mappings, too, takes long for a process with much memory.
        let dead = match large {
            true => paused.view().dead(&maps),
            false => match look_once_more(paused, (&code, returns), &known, in_memory)? {
                Ok(dead) => dead,
                Err(hindrance) => return Ok(Some(hindrance)),
            },
        };
        paused.redirect_dead_stack(returns, &dead)?;
        forget(journal, paused, (&unwind, &places), (&mut undone.conflicts, &mut gs_stays))
    })?;
    undone.stops.push(stop);
    let read = if in_memory.is_caught() { &code } else { &ranges };
    let hindrance = match hindrance {
        None => redirect_headers(process, returns, read, undone)?,
        hindrance => hindrance,
    };
    let None = hindrance else { return Ok(hindrance) };
    // Nothing leads there any more, and nothing will.
    let regions = still_there(journal, process)?;
    undone.stops.extend(process.unmap(journal, &regions)?);
    undone.freed = regions.iter().map(Region::code_len).sum();
    if gs_stays {
        clear_gs_bases(journal, process, &mut undone.stops)?;
    }
    Ok(None)
}

/// Deoptimises threads; whether none refers to rewritten text then.
fn are_deoptimised<'r>(
    paused: &mut Paused<'_>,
    returns: &ReturnTable,
    within: impl Fn(&Thread) -> &'r Ranges + Copy,
) -> Result<bool, LiveError> {
    paused.deoptimise(returns, within)?;
    Ok(paused.on_stacks_within(within, returns)?.is_empty())
}

/// Points unwinders that cache program headers (libgcc before `_dl_find_object`) at the originals;
/// returns what prevents it. No entry of a cache becomes one of rewritten text meanwhile: the
/// loader reports the originals already.
fn redirect_headers(
    process: &Process,
    returns: &ReturnTable,
    ranges: &Ranges,
    undone: &mut Undone,
) -> Result<Option<String>, LiveError> {
    let maps = process.maps()?;
    let mut code_pointers = words_of_modules(process, &maps, |word| returns.is_header(word));
    code_pointers.retain(|(at, word)| returns.header_of(process, *at, *word).is_some());
    if code_pointers.is_empty() {
        return Ok(None);
    }
    let deoptimise =
        |paused: &mut Paused<'_>| paused.redirect_headers(returns, &code_pointers, ranges);
    let (done, stop) = process.while_paused(deoptimise)?;
    undone.stops.push(stop);
    Ok((!done).then(|| "a thread looks for the code of an exception".to_owned()))
}

/// Searches the memory of a process that is paused: returns what is dead of it, or what prevents
/// unmapping.
fn look_once_more(
    paused: &Paused<'_>,
    (code, returns): (&Ranges, &ReturnTable),
    known: &Ranges,
    in_memory: InMemory,
) -> Result<Result<Dead, String>, LiveError> {
    let maps = paused.process.maps()?;
    let view = paused.view();
    let memory = OwnMemory::of(paused.process, &maps, &view, code);
    if memory.is_large() {
        return Ok(Err("its memory grows just now".to_owned()));
    }
    let code_pointer = memory.pointer_into(paused.process, (code, returns), known);
    Ok(code_pointer.map_or_else(
        || Ok(view.dead(&maps)),
        |code_pointer| Err(word_keeps(&code_pointer, &maps, in_memory)),
    ))
}

/// Where words refer to rewritten text without leading to it. The loader's record of a library
/// points at our headers as long as it is ours; what we had the process map is written in memory of
/// ours.
fn known(regions: &[(Region, bool)], unwind: &[Patch]) -> Ranges {
    let unwind = unwind.iter().map(|p| (p.at.0 & !7, p.at.0 + p.after.len() as u64));
    let own = regions.iter().map(|(region, _)| (region.at.0, region.at.0 + region.len));
    Ranges::new(unwind.chain(own).collect())
}

/// Why rewritten text stays mapped that a word of memory may lead to.
fn word_keeps(code_pointer: &CodePointer, maps: &[Mapping], in_memory: InMemory) -> String {
    let mapping = maps.iter().find(|mapping| mapping.contains(code_pointer.at));
    let file = mapping.and_then(|mapping| mapping.path.as_ref());
    let of_kernel = mapping.and_then(|mapping| mapping.name.as_ref());
    let place = match (file, of_kernel) {
        (Some(file), _) => file.display().to_string(),
        (None, Some(name)) => format!("its {name}"),
        (None, None) => "memory of its own".to_owned(),
    };
    let and = match in_memory.is_redirected() {
        true => "it is not certain to be an address, and so it is left unmodified",
        false => "`fettle undo --memory` changes such words",
    };
    format!(
        "the word at {} in {place} may lead to {} in it ({and})",
        code_pointer.at,
        LiveAddr(code_pointer.to)
    )
}

/// A word of a process's memory that may lead to rewritten text. Landing pads that exceptions in
/// flight have saved are redirected, for no program looks anything up by them; return addresses are
/// if that is wanted.
fn memory_points_into(
    process: &Process,
    memory: &OwnMemory,
    (code, returns): (&Ranges, &ReturnTable),
    known: &Ranges,
    in_memory: InMemory,
    undone: &mut Undone,
) -> Result<Option<CodePointer>, LiveError> {
    let may_change =
        |code_pointer: &CodePointer| in_memory.is_redirected() || returns.is_pad(code_pointer.to);
    let stays = |code_pointer: &CodePointer| !may_change(code_pointer);
    let code_pointers = memory.code_pointers(process, (code, returns), known, MAX_POINTERS, stays);
    let changing: Vec<CodePointer> = code_pointers.iter().copied().filter(may_change).collect();
    if !changing.is_empty() {
        let guard = memory.guard();
        let (changed, stop) =
            process.while_paused(|paused| paused.redirect_memory(returns, &changing, guard))?;
        undone.changed += changed;
        undone.stops.push(stop);
    }
    Ok(code_pointers.first().copied())
}

/// Removes rewritten text from the tables of unwinders and debuggers, and the threads' gs bases: not those of parked
/// threads, which stay until it is gone, and do no harm. Returns what prevents it.
fn forget(
    journal: &Journal,
    paused: &mut Paused<'_>,
    (unwind, places): (&[Patch], &MappedFiles),
    (conflicts, gs_stays): (&mut Vec<LiveAddr>, &mut bool),
) -> Result<Option<String>, LiveError> {
    for patch in unwind {
        if !paused.restore_unwind(patch, places)? {
            conflicts.push(patch.at);
            return Ok(Some("its loader has been changed by another program".to_owned()));
        }
    }
    for names in Names::of(journal) {
        paused.hide(names)?;
    }
    for (start, end) in gs_bases(journal) {
        *gs_stays |= paused.clear_gs_bases(start, end)?;
    }
    Ok(None)
}

/// The ranges of gs bases that threads were given.
fn gs_bases(journal: &Journal) -> impl Iterator<Item = (LiveAddr, LiveAddr)> {
    journal.entries().iter().filter_map(|entry| match entry {
        Entry::GsBases(start, end) => Some((*start, *end)),
        _ => None,
    })
}

/// Resets gs bases that parked threads have kept, each when it is parked again.
fn clear_gs_bases(
    journal: &Journal,
    process: &Process,
    stops: &mut Vec<Duration>,
) -> Result<(), LiveError> {
    for range in gs_bases(journal) {
        let mut clear =
            |process: &Process, thread: &mut Thread| clear_gs_base(process.pid(), thread, range);
        let ((), stop) = process.while_paused_after(&mut clear, |paused| {
            paused.clear_gs_bases(range.0, range.1).map(drop)
        })?;
        stops.push(stop);
    }
    Ok(())
}

/// Memory in a journal that the process still has. A Fettle that was killed may have unmapped it
/// without recording that, and something else may be mapped there now.
fn still_there(journal: &Journal, process: &Process) -> Result<Vec<Region>, LiveError> {
    let maps = process.maps()?;
    let there = |region: &Region, mapped: bool| match (mapped, journal.unmapping(region.at)) {
        (true, None) => true,
        (true, Some(hash)) => is_as_made(&maps, region) && first_page(process, region) == hash,
        (false, _) => is_untouched(&maps, region, process),
    };
    let all = journal.regions();
    Ok(all.iter().filter(|(r, mapped)| there(r, *mapped)).map(|(r, _)| *r).collect())
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
/// ours if it is just as we ask for them, and empty; and if programs do not ask for the like.
fn is_untouched(maps: &[Mapping], region: &Region, process: &Process) -> bool {
    if region.is_usual() {
        return false;
    }
    let empty = |bytes: Vec<u8>| bytes.iter().all(|byte| *byte == 0);
    let there = |m: &&Mapping| m.start == region.at && m.end.0 == region.at.0 + region.len;
    let Some(mapping) = maps.iter().find(there).filter(|_| is_as_made(maps, region)) else {
        return false;
    };
    // A memory file that is still empty has no pages to be read.
    is_memory_file(mapping) || process.read(region.at, region.len as usize).is_ok_and(empty)
}
