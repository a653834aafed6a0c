//! What a process has for its libraries: rewritten text, regions, and what is asked of it.

use std::collections::HashMap;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use fettle_image::LinkAddr;
use fettle_lift::SkipReason;
use fettle_live::{DlopenHook, HookStop, LiveAddr, Mapping, Region, mapped_file};
use fettle_rewrite::find_object::{self, Region as Known};
use fettle_types::LoadBias;

use crate::modules::Modules;
use crate::room::AddressSpace;

use super::candidate::Candidate;
use super::layout::{CODE_LEN, FIND_OBJECT, LONGEST_LIST, REGIONS};
use super::loader::{R_MAP, R_NEXT, R_STATE};

/// Whether unwinders ask the helper for the object of an address.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum FindObject {
    NotYet,
    Done,
    Failed,
}

/// What a process has been given for its libraries.
#[derive(Clone)]
pub struct Space {
    pub(super) dlopen_hook: DlopenHook,
    /// An undo recorder is responsible for it.
    pub(super) kept: bool,
    pub(super) helper: u64,
    pub(super) regions_at: u64,
    pub(super) r_debug: u64,
    pub(super) loader: Option<(LinkAddr, LoadBias)>,
    pub(super) find_object: FindObject,
    pub(super) regions: Vec<bool>,
    pub(super) known: HashMap<u64, Library>,
    pub(super) asked: Asked,
}

/// A library that has been seen.
#[derive(Clone)]
pub(super) struct Library {
    pub(super) bias: LoadBias,
    pub(super) probed: Option<Probed>,
}

#[derive(Clone, Copy)]
pub(super) struct Probed {
    pub(super) region: usize,
    pub(super) parts: [Region; 2],
}

/// What the process has been asked to unmap and to map.
#[derive(Clone, Default)]
pub(super) struct Asked {
    pub(super) unmaps: Vec<Region>,
    pub(super) libraries: Vec<Candidate>,
}

/// An entry of the loader's list.
pub(super) struct Listed {
    pub(super) link_map: u64,
    pub(super) bias: LoadBias,
    dynamic: u64,
}

pub(super) fn with_taken(maps: &[Mapping], taken: &[(u64, u64)]) -> Vec<Mapping> {
    let mut maps = maps.to_vec();
    maps.extend(taken.iter().map(|(start, len)| Mapping {
        start: LiveAddr(*start),
        end: LiveAddr(start + len),
        readable: false,
        writable: false,
        executable: false,
        shared: false,
        offset: 0,
        device: (0, 0),
        inode: 0,
        path: None,
        deleted: false,
        name: None,
    }));
    maps
}

/// Where a library of the loader's list has its dynamic section: a mapping of its file.
pub(super) fn mapping_of<'a>(listed: &Listed, maps: &'a [Mapping]) -> Option<&'a Mapping> {
    maps.iter().find(|m| m.contains(LiveAddr(listed.dynamic)))
}

impl Space {
    /// What a process that ran before has for the libraries that it opens from now on: its dlopen hook
    /// `dlopen_hook`, and a table for unwinders of which `used` regions are in use. Its loader's `r_debug`
    /// lists those that it has already: in that list, by record and load bias, are `known`.
    pub fn of_running(
        dlopen_hook: DlopenHook,
        (regions_at, used): (LiveAddr, usize),
        r_debug: LiveAddr,
        known: impl IntoIterator<Item = (LiveAddr, LoadBias)>,
    ) -> Space {
        let known = known.into_iter();
        Space {
            dlopen_hook,
            kept: true,
            helper: dlopen_hook.code.0,
            regions_at: regions_at.0,
            r_debug: r_debug.0,
            loader: None,
            find_object: FindObject::Done,
            regions: (0..REGIONS).map(|index| index < used).collect(),
            known: known.map(|(at, bias)| (at.0, Library { bias, probed: None })).collect(),
            asked: Asked::default(),
        }
    }

    /// The dlopen hook, if its stopped threads have their PC at `at`.
    pub fn dlopen_hook(&self, at: LiveAddr) -> Option<DlopenHook> {
        (self.dlopen_hook.hook_address() == at).then_some(self.dlopen_hook)
    }

    /// The loader's list of libraries, of all its namespaces; `None` while it changes.
    pub(super) fn list(&self, stop: &HookStop) -> Option<Vec<Listed>> {
        let mut all: Vec<Listed> = Vec::new();
        let mut r_debug = self.r_debug;
        let mut namespaces = 0;
        // What reverts it could not know whether a record of another namespace is still there.
        let most = if self.kept { 1 } else { 64 };
        while r_debug != 0 && namespaces < most {
            let bytes = stop.read(LiveAddr(r_debug), 48).ok()?;
            let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8"));
            if word(R_STATE as usize) as u32 != 0 {
                return None;
            }
            let mut at = word(R_MAP);
            while at != 0 && all.len() < LONGEST_LIST {
                let entry = stop.read(LiveAddr(at), 32).ok()?;
                let word = |at: usize| u64::from_le_bytes(entry[at..at + 8].try_into().expect("8"));
                all.push(Listed { link_map: at, bias: LoadBias(word(0)), dynamic: word(16) });
                at = word(24);
            }
            r_debug = if word(0) as u32 >= 2 { word(R_NEXT) } else { 0 };
            namespaces += 1;
        }
        Some(all)
    }

    /// Drops libraries that are no longer listed.
    pub(super) fn forget(&mut self, listed: &[Listed], stop: &HookStop, unmaps: &mut Vec<Region>) {
        let gone: Vec<u64> = self
            .known
            .iter()
            .filter(|(at, known)| {
                !listed.iter().any(|l| l.link_map == **at && l.bias == known.bias)
            })
            .map(|(at, _)| *at)
            .collect();
        for at in gone {
            if unmaps.len() + 2 > DlopenHook::REQUESTS {
                break;
            }
            let Some(Library { probed: Some(probed), .. }) = self.known.remove(&at) else {
                continue;
            };
            self.drop_region(probed.region, stop);
            unmaps.extend(probed.parts);
        }
    }

    fn region_at(&self, index: usize) -> LiveAddr {
        LiveAddr(self.regions_at + (index as u64 + 1) * Known::SIZE)
    }

    pub(super) fn drop_region(&mut self, index: usize, stop: &HookStop) {
        let at = self.region_at(index);
        // If the process is gone there is nothing to drop.
        let _ = stop.write(&[(at, Known::UNUSED.to_bytes()[..8].to_vec())]);
        self.regions[index] = false;
    }

    /// Enters a region; readers see it whole or not at all.
    pub(super) fn add_region(&mut self, region: Known, stop: &HookStop) -> Result<usize, String> {
        let index = self
            .regions
            .iter()
            .position(|used| !used)
            .ok_or_else(|| "too many libraries at once".to_owned())?;
        let at = self.region_at(index);
        let bytes = region.to_bytes();
        let write = |at: LiveAddr, bytes: &[u8]| {
            stop.write(&[(at, bytes.to_vec())]).map_err(|e| e.to_string())
        };
        write(at, &u64::MAX.to_le_bytes())?;
        write(at.offset(8), &bytes[8..])?;
        write(at, &bytes[..8])?;
        self.regions[index] = true;
        let highest = self.regions.iter().rposition(|used| *used).map_or(0, |i| i as u64 + 1);
        write(LiveAddr(self.regions_at), &highest.to_le_bytes())?;
        Ok(index)
    }

    /// Puts our code before the C library's `_dl_find_object`, if there is such a function.
    pub(super) fn redirect_find_object(&mut self, target: Option<u64>, stop: &HookStop) {
        let Some(target) = target else {
            self.find_object = FindObject::Done;
            return;
        };
        let done = (|| {
            let original = stop.read_some(LiveAddr(target), 32).ok()?;
            let skip = find_object::kept_bytes(&original);
            let at = self.helper + FIND_OBJECT;
            let target = target + skip as u64;
            let made = find_object::code(at, self.regions_at, target, original.get(skip..)?, 5)?;
            if made.0.len() as u64 > CODE_LEN - FIND_OBJECT {
                return None;
            }
            let jump = fettle_isa::jump::near(target, at)?;
            stop.write(&[(LiveAddr(at), made.0)]).ok()?;
            stop.write(&[(LiveAddr(target), jump.to_vec())]).ok()
        })();
        self.find_object = match done {
            Some(()) => FindObject::Done,
            None => FindObject::Failed,
        };
    }

    /// Where the file of a new library can be read. `None` for what is no library.
    pub(super) fn file_of(
        &self,
        new: &Listed,
        path: &Path,
        stop: &HookStop,
        maps: &[Mapping],
    ) -> Result<Option<PathBuf>, String> {
        let name = path.file_name().unwrap_or_default().as_bytes();
        if new.bias == LoadBias::NONE
            || name.starts_with(b"ld-linux")
            || name.starts_with(b"ld-musl")
        {
            return Ok(None);
        }
        if std::fs::read_link(format!("/proc/{}/exe", stop.pid)).is_ok_and(|exe| exe == path) {
            return Ok(None);
        }
        if self.find_object == FindObject::Failed {
            return Err("exceptions could not be led through rewritten text".to_owned());
        }
        let mapping = mapping_of(new, maps).filter(|mapping| !mapping.deleted);
        let file = mapping.and_then(|mapping| mapped_file(stop.pid, mapping));
        file.map(Some).ok_or_else(|| "its file has been replaced since it was loaded".to_owned())
    }

    /// Finds an address-space gap for a library's rewritten text. `None` for what is no library.
    pub(super) fn place(
        &self,
        new: &Listed,
        path: &Path,
        modules: &mut Modules,
        stop: &HookStop,
        maps: &[Mapping],
        taken: &mut Vec<(u64, u64)>,
    ) -> Result<Option<Candidate>, String> {
        let Some(file) = self.file_of(new, path, stop, maps)? else { return Ok(None) };
        let module = modules.get(path, &file).map_err(|e| e.to_string())?;
        let plan = &modules.at(module).plan;
        if plan.functions.is_empty() {
            // Data only, or nothing that the user asked for, is no reason to say something.
            let left_out = plan.skipped.iter().any(|s| s.reason == SkipReason::NotSelected);
            return match left_out || plan.skipped.is_empty() {
                true => Ok(None),
                false => Err("it has no function to probe".to_owned()),
            };
        }
        let maps = with_taken(maps, taken);
        let space = AddressSpace::of(stop.pid, &maps);
        let placed = modules.place(module, new.bias, space).map_err(|e| e.to_string())?;
        let candidate = Candidate {
            link_map: new.link_map,
            dynamic: new.dynamic,
            bias: new.bias,
            path: path.to_owned(),
            module,
            placed,
            given: false,
        };
        taken.extend(candidate.regions().map(|region| (region.at.0, region.len)));
        Ok(Some(candidate))
    }
}
