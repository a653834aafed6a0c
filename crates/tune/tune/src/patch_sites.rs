//! Patch sites besides entries: direct calls in original text, and the GOT slots through which other modules
//! call. Patching them saves the jump at the original entry, and reaches functions whose entry has no room for
//! an entry patch.
//!
//! Function pointers stay. Programs compare them, pass them on and keep them, so a changed value could outlive
//! the rewritten text. A GOT slot of the PLT is read by nothing but its PLT entry, which jumps to what it
//! holds; so these can be patched, and no others. Slots that are not bound yet lead to the loader and stay; when
//! the loader binds one, it leads to the original entry, and from there on.
//!
//! A call that never runs is left unmodified: hot functions are called from all over a program, and each page
//! that is written to is one more private page.

use fettle_types::{LoadBias, PAGE};
use std::collections::{HashMap, HashSet};

use fettle_image::{Image, LinkAddr};
use fettle_lift::{Block, Function, Lifted};
use fettle_live::{LiveAddr, Patch, Process, Purpose};
use fettle_rewrite::{Linked, Plan};

use crate::profile::ByFunction;
use crate::rewritten::Rewritten;
use crate::target::{Loaded, word};

const DT_PLTRELSZ: u64 = 2;
const DT_PLTGOT: u64 = 3;
const DT_PLTREL: u64 = 20;
const DT_JMPREL: u64 = 23;
const DT_RELA: u64 = 7;
const RELA_SIZE: usize = 24;
const R_X86_64_JUMP_SLOT: u32 = 7;
const R_X86_64_IRELATIVE: u32 = 37;
/// Longer tables are taken for broken ones.
const MOST_ENTRIES: usize = 1 << 12;
const MOST_SLOTS: usize = 1 << 20;

/// Which calls in original text are redirected to rewritten text. Others get there by the entry
/// patch, and calls of a function without one are always redirected.
#[derive(Clone, Copy, Debug)]
pub enum Callers<'a> {
    /// All of them.
    All,
    /// Those of functions without rewritten text: few run original text once it is there.
    Others,
    /// Those in blocks that ran.
    Ran(&'a ByFunction),
}

/// Calls and jumps in original text to the entries of functions of `plan`. `same` says for each
/// function whether its bytes are the file's; `jumps` are the entry patches.
pub(crate) fn calls(
    (image, bias): (&Image, LoadBias),
    (lifted, same): (&Lifted, &[bool]),
    (plan, linked): (&Plan, &Linked),
    (callers, jumps): (Callers<'_>, &[Patch]),
) -> Vec<Patch> {
    let known = lifted.functions.iter().zip(same).filter(|(_, same)| **same);
    let new: HashSet<LinkAddr> = plan.functions.iter().map(|f| f.entry).collect();
    let led: HashSet<LinkAddr> = jumps.iter().map(|jump| jump.at - bias).collect();
    let wants = |function: &Function, block: &Block, entry: LinkAddr| {
        let ran = |counts: &ByFunction| {
            let count = counts.get(&function.entry)?.blocks.get(&block.start)?;
            Some(*count > 0)
        };
        !led.contains(&entry)
            || match callers {
                Callers::All => true,
                Callers::Others => !new.contains(&function.entry),
                Callers::Ran(counts) => ran(counts) == Some(true),
            }
    };
    let known = known.map(|(function, _)| function);
    let calls = fettle_rewrite::calls_to_new(image, known, (plan, linked), &wants);
    let patches = calls.into_iter().filter_map(|(at, after)| {
        let live = at + bias;
        let before = image.read(at, 4).filter(|_| live.0 / PAGE == (live.0 + 3) / PAGE)?;
        let (before, after) = (before.to_vec(), after.to_vec());
        Some(Patch { at: live, before, after, purpose: Purpose::Call })
    });
    patches.collect()
}

/// GOT/PLT slots that hold the entry of a function with rewritten text.
pub(crate) fn slots(process: &Process, loaded: &[Loaded], all: &[&Rewritten]) -> Vec<Patch> {
    let mut new: HashMap<u64, u64> = HashMap::new();
    for code in all {
        for f in &code.plan.functions {
            let to = code.text.at.0 + u64::from(f.text_offset);
            new.insert((f.entry + code.bias).0, to);
        }
    }
    let mut patches = Vec::new();
    for module in loaded {
        let slots = slots_of(process, module).unwrap_or_default();
        let Some(table) = Table::read(process, &slots) else { continue };
        for slot in slots {
            let before = table.slot(slot);
            let Some(to) = new.get(&word(before, 0)) else { continue };
            let (at, after) = (LiveAddr(slot), to.to_le_bytes().to_vec());
            patches.push(Patch { at, before: before.to_vec(), after, purpose: Purpose::Slot });
        }
    }
    patches.sort_by_key(|patch| patch.at);
    patches.dedup_by_key(|patch| patch.at);
    patches
}

/// The content of a table of slots.
struct Table {
    start: u64,
    bytes: Vec<u8>,
}

impl Table {
    /// From the first of some slots to the last: they are adjacent.
    fn read(process: &Process, slots: &[u64]) -> Option<Table> {
        let (start, last) = (*slots.iter().min()?, *slots.iter().max()?);
        let len = (last - start) as usize + 8;
        let bytes = (len <= MOST_SLOTS * 8).then(|| process.read(LiveAddr(start), len))?;
        Some(Table { start, bytes: bytes.ok()? })
    }

    /// One of them.
    fn slot(&self, slot: u64) -> &[u8] {
        &self.bytes[(slot - self.start) as usize..][..8]
    }
}

/// The slots of a module that only its PLT reads.
fn slots_of(process: &Process, module: &Loaded) -> Option<Vec<u64>> {
    let mut values: HashMap<u64, u64> = HashMap::new();
    for index in 0..MOST_ENTRIES as u64 {
        let entry = process.read(LiveAddr(module.dynamic + index * 16), 16).ok()?;
        match word(&entry, 0) {
            0 => break,
            tag => values.insert(tag, word(&entry, 8)),
        };
    }
    if values.get(&DT_PLTREL) != Some(&DT_RELA) {
        return None;
    }
    let (table, size) = (*values.get(&DT_JMPREL)?, *values.get(&DT_PLTRELSZ)? as usize);
    let first = values.get(&DT_PLTGOT)?.wrapping_add(24);
    let count = size / RELA_SIZE;
    if count > MOST_SLOTS {
        return None;
    }
    // The loader has made the addresses in the dynamic section live ones.
    let relocations = process.read(LiveAddr(table), count * RELA_SIZE).ok()?;
    let slots = relocations.chunks_exact(RELA_SIZE).filter_map(|relocation| {
        let slot = (LinkAddr(word(relocation, 0)) + module.bias).0;
        let own = match word(relocation, 8) as u32 {
            R_X86_64_JUMP_SLOT => true,
            // The loader's resolver chose the function. Other code may read such a slot, except
            // those in the PLT's own part.
            R_X86_64_IRELATIVE => slot.wrapping_sub(first) < count as u64 * 8,
            _ => false,
        };
        (own && slot.is_multiple_of(8)).then_some(slot)
    });
    Some(slots.collect())
}
