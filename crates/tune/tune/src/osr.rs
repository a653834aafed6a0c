//! On-stack replacement: jumps between original and rewritten text inside functions.
//!
//! A thread may stay in one function for as long as the program lives, in an interpreter's or a server's main
//! loop, and never reach an entry patch. So functions that are on a stack at installation get OSR entries: each
//! block of the original that has room becomes a jump to the same block of rewritten text, which in turn can
//! become a deopt jump. A loop may keep the address of its jump table for all its life, and would reach
//! original text by each of its entries. So such entries are patched as well, where they are whole addresses
//! of blocks that nothing but the jumps reads.
//!
//! What holds at the start of a block holds there in both texts. There is no OSR where probes keep frames of
//! their own, which begin where functions do.

use fettle_types::PAGE;
use std::collections::BTreeSet;
use std::time::Duration;

use fettle_code::{ENTRY_PATCH_SIZE, Mode, PlannedEntry};
use fettle_image::LinkAddr;
use fettle_isa::jump;
use fettle_live::{
    Entry, Journal, LiveAddr, LiveError, MappedFiles, Patch, Process, Purpose, Ranges, ReturnTable,
};
use fettle_rewrite::plan::PlannedFunction;

use crate::rewritten::Rewritten;
use crate::switching::PatchSet;
use crate::target::word;

/// The size of a whole address in a table.
const ENTRY: u64 = 8;

/// OSR: threads that are in the originals of functions, or return there, go on in rewritten text,
/// in each of some processes of a process group. Each is written to their undo logs first. Returns
/// the patches, and how many are written in most processes: one whose site a thread is in the
/// middle of is not.
pub(crate) fn osr_entries<'j>(
    codes: &[&Rewritten],
    processes: &[&Process],
    journals: impl Iterator<Item = &'j mut Journal>,
    stops: &mut Vec<Duration>,
) -> Result<(PatchSet, usize), LiveError> {
    let inside = inside(codes, processes, stops)?;
    let (mut patch_set, mut written) = (PatchSet::default(), 0);
    let Some(first) = processes.first().filter(|_| !inside.is_empty()) else {
        return Ok((patch_set, 0));
    };
    codes.iter().for_each(|code| patch_set.add_osr((first, code), &inside));
    let places = MappedFiles::look(first, &patch_set.into);
    let writes = patch_set.into.iter().chain(&patch_set.out).cloned().map(Entry::Write);
    let entries: Vec<Entry> = places.entries().chain(writes).collect();
    for journal in journals {
        journal.add(entries.clone())?;
    }
    for process in processes {
        match process.patch(&patch_set.into, &places) {
            Ok(patched) => {
                stops.extend(patched.stops);
                written = written.max(patched.written);
            }
            Err(_) if !process.is_same() => {}
            Err(error) => return Err(error),
        }
    }
    Ok((patch_set, written))
}

/// Where threads are, or return to, in the originals of functions that OSR is possible in.
fn inside(
    codes: &[&Rewritten],
    processes: &[&Process],
    stops: &mut Vec<Duration>,
) -> Result<Vec<LiveAddr>, LiveError> {
    let without_frames = codes.iter().filter(|code| has_no_frames(code.plan.mode));
    let old = Ranges::new(without_frames.flat_map(|code| parts(code)).collect());
    let mut inside = BTreeSet::new();
    for process in processes {
        let look =
            |paused: &mut fettle_live::Paused<'_>| paused.on_stacks(&old, &ReturnTable::default());
        match process.while_paused(look) {
            Ok((found, stop)) => {
                inside.extend(found);
                stops.push(stop);
            }
            Err(_) if !process.is_same() => {}
            Err(error) => return Err(error),
        }
    }
    Ok(inside.into_iter().collect())
}

/// Where threads at work were seen when rewritten text was in place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// In rewritten text, or at a jump to it.
    pub new: usize,
    /// In the originals of functions with rewritten text.
    pub old: usize,
    /// In other code.
    pub other: usize,
}

/// How often threads are sampled, and the time between samples.
const LOOKS: (usize, Duration) = (50, Duration::from_millis(3));

impl Seen {
    /// Samples the threads of some processes, one process after another.
    pub(crate) fn look(codes: &[Rewritten], processes: &[&Process]) -> Result<Seen, LiveError> {
        // A thread whose PC is at an entry patch is on its way: each indirect call meets one.
        let new = codes.iter().flat_map(|code| {
            let jumps = code.jumps.iter().map(|jump| (jump.at.0, jump.at.0 + 1));
            jumps.chain([(code.text.at.0, code.text.at.0 + code.text.len)])
        });
        let new = Ranges::new(new.collect());
        let old = Ranges::new(codes.iter().flat_map(parts).collect());
        let mut seen = Seen::default();
        for process in processes.iter().cycle().take(LOOKS.0) {
            std::thread::sleep(LOOKS.1);
            let places = match process.at_work() {
                Ok(places) => places,
                Err(_) if !process.is_same() => continue,
                Err(error) => return Err(error),
            };
            for at in places {
                match (new.contains(at.0), old.contains(at.0)) {
                    (true, _) => seen.new += 1,
                    (false, true) => seen.old += 1,
                    (false, false) => seen.other += 1,
                }
            }
        }
        Ok(seen)
    }

    /// A part of all samples, as a share.
    pub fn share(&self, of: usize) -> f64 {
        of as f64 / (self.new + self.old + self.other).max(1) as f64
    }
}

/// Where the originals of functions with rewritten text lie.
fn parts(code: &Rewritten) -> impl Iterator<Item = (u64, u64)> {
    let parts = code.plan.functions.iter().flat_map(|function| &function.osr_map.parts);
    let live = |at: &LinkAddr| (*at + code.bias).0;
    parts.map(move |(start, end)| (live(start), live(end)))
}

/// Whether probes of this mode need no frame that is pushed at the function's start.
fn has_no_frames(mode: Mode) -> bool {
    matches!(mode, Mode::Plain | Mode::Blocks | Mode::Edges)
}

impl PatchSet {
    /// Adds OSR entries and deopt points in those functions that threads are `inside` of.
    fn add_osr(&mut self, (process, code): (&Process, &Rewritten), inside: &[LiveAddr]) {
        let is_in = |f: &PlannedFunction| {
            f.osr_map.parts.iter().any(|(start, end)| {
                let [start, end] = [start, end].map(|at| *at + code.bias);
                let next = inside.partition_point(|at| *at < start);
                inside.get(next).is_some_and(|at| *at < end)
            })
        };
        let functions = code.plan.functions.iter().enumerate();
        let entered: BTreeSet<usize> =
            functions.filter(|(_, f)| is_in(f)).map(|(i, _)| i).collect();
        let mut jumps: Vec<u64> = code.jumps.iter().map(|jump| jump.at.0).collect();
        jumps.sort_unstable();
        // The entry patch may be behind an `endbr64`, where a block begins.
        let is_free = |at: &LinkAddr| {
            let at = (*at + code.bias).0;
            let next = jumps.partition_point(|jump| jump + ENTRY_PATCH_SIZE <= at);
            jumps.get(next).is_none_or(|jump| *jump >= at + ENTRY_PATCH_SIZE)
        };
        for function in &entered {
            let function = &code.plan.functions[*function];
            let entries = function.osr_map.osr_entries.iter().filter(|(from, _)| is_free(from));
            self.into.extend(entries.filter_map(|entry| osr_entry(process, code, *entry)));
            let points =
                function.osr_map.deopt_points.iter().filter(|(_, at)| *at != function.text_offset);
            self.out.extend(points.filter_map(|point| code.deopt_jump(*point)));
        }
        self.add_tables(process, code, |function| entered.contains(&function));
        self.into.sort_by_key(|patch| patch.at);
        self.into.dedup_by_key(|patch| patch.at);
    }

    /// Adds entries of those functions' jump tables, and of their copies.
    fn add_tables(&mut self, process: &Process, code: &Rewritten, entered: impl Fn(usize) -> bool) {
        let live = |at: LinkAddr| at + code.bias;
        let tables = code.plan.tables.iter().zip(&code.linked.tables).zip(&code.own_tables);
        for ((table, copy), _) in tables.filter(|(_, own)| **own) {
            for (entry, i) in table.entries.iter().zip(0..) {
                let PlannedEntry::New(offset) = entry else { continue };
                let function = code.plan.function_at(*offset).filter(|f| entered(*f));
                let [old, new] = [table.original, *copy].map(|at| live(at).offset(i * ENTRY));
                let (Some(function), true) = (function, old.0.is_multiple_of(ENTRY)) else {
                    continue;
                };
                let Ok(original) = process.read(old, ENTRY as usize) else { continue };
                let to = LiveAddr(word(&original, 0)) - code.bias;
                let parts = &code.plan.functions[function].osr_map.parts;
                if !parts.iter().any(|(start, end)| *start <= to && to < *end) {
                    continue;
                }
                let copied = code.text.at.offset(u64::from(*offset)).0.to_le_bytes().to_vec();
                self.into.push(Patch {
                    at: old,
                    before: original.clone(),
                    after: copied.clone(),
                    purpose: Purpose::OsrEntry,
                });
                self.out.push(Patch {
                    at: new,
                    before: copied,
                    after: original,
                    purpose: Purpose::DeoptJump,
                });
            }
        }
    }
}

/// A jump from a block of the original to the same in rewritten text; `None` if there is one
/// already, or it would cross a page boundary.
fn osr_entry(process: &Process, code: &Rewritten, (from, to): (LinkAddr, u32)) -> Option<Patch> {
    let at = from + code.bias;
    if at.0 / PAGE != (at.0 + ENTRY_PATCH_SIZE - 1) / PAGE {
        return None;
    }
    let before = process.read(at, ENTRY_PATCH_SIZE as usize).ok()?;
    let after = jump::near(at.0, code.text.at.offset(u64::from(to)).0)?.to_vec();
    (before != after).then_some(Patch { at, before, after, purpose: Purpose::OsrEntry })
}
