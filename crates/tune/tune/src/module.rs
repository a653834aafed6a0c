//! Rewritten text for one module of a process.
//!
//! A process that runs is not like one that starts: threads are in the original text, and go on in
//! it until they leave its functions. An entry patch may therefore not cover an address at which
//! original text can be resumed: no block but the first, and nothing behind a call. It may not
//! cross a page boundary either, for then it could be half written if we are killed.

use std::sync::Arc;

use fettle_code::{Pointers, Probing};
use fettle_image::{Image, LinkAddr};
use fettle_lift::{Function, Lifted, Placement, SkipReason, TableKind};
use fettle_live::{LiveAddr, Mapping, Patch, Process, Prot, Purpose, Region};
use fettle_record::Selection;
use fettle_record::libraries::headers_patch;
use fettle_record::modules::{FileId, SlotOffsets, must_stay, open_image};
use fettle_record::room::{AddressSpace, find_lasting_room};
use fettle_rewrite::{LinkParameters, Linked, Plan, PlanOptions};
use fettle_types::LoadBias;

use crate::own_tables;
use crate::patch_sites::{self, Callers};
use crate::profile::Subject;
use crate::rewritten::{LeftUnmodified, PAGE, Reason, Rewritten, deopt_jumps};
use crate::target::Loaded;

const CODE: Prot = Prot { read: true, write: false, exec: true };
const CONSTANTS: Prot = Prot { read: true, write: false, exec: false };

/// A module whose functions were lifted.
#[derive(Debug)]
pub struct Module {
    /// Its mapping in the process.
    pub loaded: Loaded,
    /// Its file.
    pub image: Image,
    /// The file's identity.
    file: Option<FileId>,
    /// Its functions.
    pub lifted: Lifted,
    /// For each function, whether its bytes in the process are those of the file.
    same: Vec<bool>,
    /// Addresses at which original text may be resumed: starts of blocks, ends of calls; sorted.
    returns: Vec<u64>,
}

/// How rewritten text is made.
#[derive(Clone, Copy)]
pub struct Recipe<'a> {
    /// The probes in it.
    pub probes: &'a Probing<'a>,
    /// Where probes find their memory, from the gs base.
    pub slot: SlotOffsets,
    /// How indirect calls are rewritten.
    pub pointers: Pointers<'a>,
    /// The order of its blocks, if it is another than that of the original text.
    pub placement: Option<&'a Placement>,
    /// The functions that are wanted.
    pub wants: &'a (dyn Fn(&Function) -> bool + Sync),
    /// The calls in original text that are redirected to it.
    pub callers: Callers<'a>,
}

impl Module {
    /// Lifts a module's functions and compares them with the process's memory.
    ///
    /// # Errors
    ///
    /// Why the module is left unmodified, as text.
    pub fn open(process: &Process, loaded: Loaded) -> Result<Module, String> {
        let file = FileId::of(&loaded.file).ok();
        let image = open_image(&loaded.file).map_err(|error| error.to_string())?;
        let lifted = fettle_lift::lift(&image);
        let same = compare(process, &image, loaded.bias, &lifted.functions);
        let mut returns: Vec<u64> = lifted.functions.iter().flat_map(comes_back_to).collect();
        returns.sort_unstable();
        Ok(Module { loaded, image, file, lifted, same, returns })
    }

    /// Its file, if the process has all functions as they are there: a plan for them holds for
    /// every process that has mapped that file.
    pub fn as_in_file(&self) -> Option<FileId> {
        self.file.filter(|_| self.same.iter().all(|same| *same))
    }

    /// What profiles are matched with.
    pub fn subject(&self) -> Subject<'_> {
        let functions = &self.lifted.functions;
        Subject { path: &self.loaded.path, image: &self.image, functions }
    }

    /// Rewritten text by a recipe. `maps` are the process's, and what else is going to be mapped.
    ///
    /// # Errors
    ///
    /// As text, why there is none: no function is left, there is no room within reach, or the
    /// loader's record of the module has an unknown form.
    pub fn rewritten_text(
        &self,
        process: &Process,
        recipe: &Recipe<'_>,
        maps: &[Mapping],
    ) -> Result<Rewritten, String> {
        let Recipe { probes, slot, pointers, placement, wants, callers } = *recipe;
        let select = |f: &Function| wants(f) && self.is_same(f) && !must_stay(&self.image, f);
        let probes = probes.clone();
        let options = PlanOptions {
            select: &select,
            placement,
            pointers,
            osr_map: true,
            ..PlanOptions::new(probes)
        };
        let plan = Arc::new(fettle_rewrite::plan(&self.image, &self.lifted, options));
        if plan.functions.is_empty() {
            return Err("no function of it can be moved".to_owned());
        }
        let bias = self.loaded.bias;
        let size = fettle_rewrite::link::footprint(&plan, &self.image);
        // Making the plan takes a while, in which the process may have mapped memory.
        let maps = [maps, &process.maps().map_err(|error| error.to_string())?].concat();
        let text_at =
            find_lasting_room(&self.image, bias, size, AddressSpace::of(process.pid(), &maps))
                .ok_or("there is no room for rewritten text above it within its reach")?;
        let absolute = plan.tables.iter().any(|t| t.kind == TableKind::Absolute);
        let parameters = parameters(slot, text_at, if absolute { bias } else { LoadBias::NONE });
        let linked = fettle_rewrite::link(&plan, &self.image, parameters)
            .map_err(|error| error.to_string())?;
        let live = |at: LinkAddr| at + bias;
        let region = |at: LinkAddr, bytes: &[u8], prot| Region {
            at: live(at),
            len: (bytes.len() as u64).next_multiple_of(PAGE),
            prot,
            shared: false,
        };
        let read = |at, len| process.read_some(at, len).ok();
        let headers = headers_patch((self.loaded.link_map, bias), &self.image, &linked, read)
            .ok_or("the loader's record of it has a form that is not known")?;
        let (jumps, left) = self.jumps(&plan, &linked);
        let deopt_jumps = deopt_jumps(&plan, &linked, bias);
        let old = (&self.lifted, &self.same[..]);
        let calls =
            patch_sites::calls((&self.image, bias), old, (&plan, &linked), (callers, &jumps));
        let own_tables =
            own_tables::find((&self.image, bias), &self.lifted.functions, &plan.tables);
        Ok(Rewritten {
            own_tables,
            text: region(linked.text_at, &linked.text, CODE),
            constants: region(linked.constants_at, &linked.constants, CONSTANTS),
            headers,
            jumps,
            deopt_jumps,
            calls,
            left,
            link_map: self.loaded.link_map,
            eh_frame_hdr: live(linked.eh_frame_hdr),
            bias,
            path: self.loaded.path.clone(),
            opened: false,
            plan,
            linked,
        })
    }

    fn is_same(&self, function: &Function) -> bool {
        let index = self.lifted.functions.binary_search_by_key(&function.entry, |f| f.entry);
        index.is_ok_and(|i| self.same[i])
    }

    /// The jumps that may be written, and the functions that are left unmodified.
    fn jumps(&self, plan: &Plan, linked: &Linked) -> (Vec<Patch>, Vec<LeftUnmodified>) {
        let mut left: Vec<LeftUnmodified> = plan
            .skipped
            .iter()
            .filter(|skipped| skipped.reason != SkipReason::NotSelected)
            .map(|skipped| LeftUnmodified {
                entry: skipped.entry,
                name: skipped.name.clone(),
                reason: Reason::Skipped(skipped.reason),
            })
            .collect();
        let differing = self.lifted.functions.iter().zip(&self.same).filter(|(_, same)| !**same);
        left.extend(differing.map(|(function, _)| LeftUnmodified {
            entry: function.entry,
            name: function.name.clone(),
            reason: Reason::Differs,
        }));
        let mut jumps = Vec::with_capacity(linked.writes.len());
        for (at, bytes) in &linked.writes {
            let (live, len) = (*at + self.loaded.bias, bytes.len() as u64);
            let next = self.returns.partition_point(|point| *point <= at.0);
            let comes_back = self.returns.get(next).is_some_and(|point| *point < at.0 + len);
            let two_pages = live.0 / PAGE != (live.0 + len - 1) / PAGE;
            let before = self.image.read(*at, bytes.len()).filter(|_| !comes_back && !two_pages);
            match before {
                Some(before) => jumps.push(Patch {
                    at: live,
                    before: before.to_vec(),
                    after: bytes.clone(),
                    purpose: Purpose::Jump,
                }),
                None => {
                    let reason = if comes_back { Reason::ComesBack } else { Reason::TwoPages };
                    let name = self.image.name_at(*at).map(str::to_owned);
                    left.push(LeftUnmodified { entry: *at, name, reason });
                }
            }
        }
        (jumps, left)
    }
}

/// Where rewritten text goes, and where it finds its data.
fn parameters(slot: SlotOffsets, text_at: LinkAddr, load_bias: LoadBias) -> LinkParameters {
    LinkParameters {
        text_at,
        load_bias,
        first_function: slot.first_function,
        accumulators: slot.accumulators,
        counters: slot.counters,
        ring_bytes: slot.ring_bytes,
    }
}

/// Addresses in the middle of a function's original text at which a thread may be resumed.
fn comes_back_to(function: &Function) -> impl Iterator<Item = u64> {
    let starts = function.blocks.iter().map(|b| function.insns[b.insns.start as usize].ip());
    let calls = function.insns.iter().zip(&function.facts).filter(|(_, facts)| facts.calls());
    // The kernel restarts it for a thread that was stopped in it.
    let system_calls = function.insns.iter().filter(|insn| insn.is_syscall());
    let system_calls = system_calls.flat_map(|insn| [insn.ip(), insn.next_ip()]);
    starts.chain(calls.map(|(insn, _)| insn.next_ip())).chain(system_calls)
}

/// For each function, whether the process has the file's bytes.
fn compare(process: &Process, image: &Image, bias: LoadBias, functions: &[Function]) -> Vec<bool> {
    const WINDOW: u64 = 1 << 20;
    let mut window: (u64, Vec<u8>) = (0, Vec::new());
    let mut is_same = |start: LinkAddr, end: LinkAddr| -> bool {
        let (from, len) = ((start + bias).0, (end.0 - start.0) as usize);
        let inside = from >= window.0 && from + len as u64 <= window.0 + window.1.len() as u64;
        if !inside {
            let size = (len as u64).max(WINDOW) as usize;
            let bytes = process.read_some(LiveAddr(from), size).unwrap_or_default();
            window = (from, bytes);
        }
        let now = window.1.get((from - window.0) as usize..(from - window.0) as usize + len);
        now.is_some() && now == image.read(start, len)
    };
    // In order, so that one window after another is read: cold parts lie far from their functions.
    let each = functions.iter().enumerate();
    let mut ranges: Vec<_> = each.flat_map(|(i, f)| f.ranges.iter().map(move |r| (r, i))).collect();
    ranges.sort_unstable_by_key(|(range, _)| range.start);
    let mut same = vec![true; functions.len()];
    for (range, function) in ranges {
        same[function] = same[function] && is_same(range.start, range.end);
    }
    same
}

/// The functions that a selection wants.
pub fn wanted<'a>(
    image: &'a Image,
    selection: &'a Selection,
) -> impl Fn(&Function) -> bool + Sync + 'a {
    |function| selection.wants(image, function)
}
