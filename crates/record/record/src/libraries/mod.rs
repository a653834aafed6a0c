//! Shared libraries: found when the loader says that its list has changed, rewritten before
//! their code runs, forgotten when they are closed.
//!
//! At `exec` a process is given a *helper*: a few pages near the loader with a dlopen hook (see
//! [`fettle_live::DlopenHook`]), to which the loader's empty debug function (`r_brk` of its `r_debug`)
//! is patched to jump, and a table for unwinders (see [`fettle_rewrite::find_object`]). When a thread
//! stops at the hook (a library event), we read the loader's list from the process and
//!
//! 1. map the rewritten text of each new library that is wanted, within reach of it;
//! 2. enter the rewritten text into the table, and give the loader's record of the library program
//!    headers that know it, as the main program's are given through the auxiliary vector;
//! 3. write the entry patches that lead to it. Nothing of the library has run yet: at a program's start
//!    only what chooses between versions of functions (IFUNC resolvers), with `dlopen` nothing.
//!
//! A process that ran before it was recorded gets its hook from a [`UndoRecorder`], the undo recorder, which
//! also guarantees that all of this is reverted.

mod candidate;
mod layout;
mod lead;
mod loader;
mod space;
mod visit;

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use fettle_image::LinkAddr;
use fettle_live::{
    DlopenHook, ExecStop, FileMap, HookStop, LiveError, Mapping, Region, Request, mapped_file,
};

use crate::modules::{Modules, open_image};
use crate::room::AddressSpace;
use crate::select::names_file;
use crate::unmatched::Unmatched;

pub use layout::REGIONS;
pub(crate) use layout::{CODE, CONSTANTS, DATA};
use layout::{CODE_LEN, REGIONS_LEN};
pub use lead::headers_patch;
use loader::symbol;
pub use loader::{HookSite, Loader};
pub use space::Space;
use space::{Asked, FindObject, Library, Listed, mapping_of, with_taken};
use visit::Visit;
pub use visit::{LibraryEvent, Opened, Prepared, UndoRecorder};

/// Which libraries are wanted, and what is known of loaders.
pub struct Libraries {
    patterns: Vec<String>,
    /// What the user has asked for that has not been met.
    unmatched: Unmatched,
    loaders: HashMap<(u64, u64), Rc<Result<Loader, String>>>,
    zeros: Option<Arc<OwnedFd>>,
    /// Where `_dl_find_object` is in C libraries, by device and inode.
    find_object: HashMap<(u64, u64), Option<LinkAddr>>,
}

impl Libraries {
    /// Those whose path or file name one of `patterns` matches, some of which the user has asked for.
    pub fn new(patterns: Vec<String>, unmatched: Unmatched) -> Libraries {
        let (loaders, find_object) = Default::default();
        Libraries { patterns, unmatched, loaders, zeros: None, find_object }
    }

    /// Whether any are wanted.
    pub fn wanted(&self) -> bool {
        !self.patterns.is_empty()
    }

    /// Whether a library is wanted that is there.
    pub fn wants(&mut self, path: &Path) -> bool {
        self.unmatched.meets_library(path);
        self.patterns.iter().any(|pattern| names_file(pattern, path))
    }

    /// What the user has asked for that has not been met.
    pub fn unmatched(self) -> Unmatched {
        self.unmatched
    }

    fn loader(&mut self, stop: &ExecStop<'_>) -> Result<Rc<Result<Loader, String>>, String> {
        let mapping = stop
            .maps
            .iter()
            .find(|m| m.contains(stop.auxv.base))
            .ok_or("its loader is not mapped where the kernel says")?;
        let key = (mapping.inode, u64::from(mapping.device.0) << 32 | u64::from(mapping.device.1));
        let pid = stop.pid;
        let made = self.loaders.entry(key).or_insert_with(|| {
            let file = mapped_file(pid, mapping).ok_or("the file of its loader cannot be opened");
            let image = file
                .map_err(str::to_owned)
                .and_then(|file| open_image(&file).map_err(|e| e.to_string()));
            Rc::new(image.and_then(Loader::of))
        });
        Ok(made.clone())
    }

    /// What a process that has just exec'ed is to be given: mappings and bytes. `taken` is room
    /// that something else of ours is going to lie in. `None` for a static program.
    ///
    /// # Errors
    ///
    /// When its loader is none that we understand, or there is no room.
    pub fn prepare(
        &mut self,
        stop: &ExecStop<'_>,
        alive: u64,
        taken: &[(u64, u64)],
    ) -> Result<Option<Prepared>, String> {
        if !self.wanted() || stop.auxv.base.0 == 0 {
            return Ok(None);
        }
        let loader = self.loader(stop)?;
        let loader = loader.as_ref().as_ref().map_err(Clone::clone)?;
        // The loader is linked at 0.
        let bias = stop.auxv.base - LinkAddr(0);
        let maps = with_taken(&stop.maps, taken);
        let hook_site = loader.hook_site(bias, alive, AddressSpace::of(stop.pid, &maps))?;
        let HookSite { dlopen_hook, regions, regions_at, r_debug, jump } = hook_site;
        let helper = dlopen_hook.code;
        let zeros = self.zeros().map_err(|e| e.to_string())?;
        let map = |Region { at, len, prot, shared }| FileMap {
            fd: zeros.clone(),
            offset: at.0 - helper.0,
            len,
            addr: at,
            prot,
            shared,
            dont_dump: false,
        };
        let maps = regions.map(map).to_vec();
        let writes = vec![
            (dlopen_hook.code, dlopen_hook.code()),
            (dlopen_hook.table, DlopenHook::empty_table().to_vec()),
            (jump.at, jump.after),
        ];
        let space = Space {
            dlopen_hook,
            kept: false,
            helper: helper.0,
            regions_at: regions_at.0,
            r_debug: r_debug.0,
            loader: loader.find_object.map(|at| (at, bias)),
            find_object: FindObject::NotYet,
            regions: vec![false; REGIONS],
            known: HashMap::new(),
            asked: Asked::default(),
        };
        Ok(Some((space, maps, writes)))
    }

    /// A memory file as long as a helper.
    fn zeros(&mut self) -> io::Result<Arc<OwnedFd>> {
        if let Some(zeros) = &self.zeros {
            return Ok(zeros.clone());
        }
        // SAFETY: the name is a C string; the result is checked.
        let fd = unsafe { libc::memfd_create(c"fettle-helper".as_ptr(), libc::MFD_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: `fd` was just made and has no other owner.
        let file = unsafe { File::from_raw_fd(fd) };
        file.set_len(CODE_LEN + DlopenHook::TABLE_LEN + REGIONS_LEN)?;
        let zeros: Arc<OwnedFd> = Arc::new(file.into());
        self.zeros = Some(zeros.clone());
        Ok(zeros)
    }

    /// Begins to rewrite the libraries that a thread at its hook reports. Whether all rewritten text is
    /// there, so that [`Libraries::library_event`] waits for nothing.
    pub fn is_ready(&mut self, space: &Space, modules: &mut Modules, stop: &HookStop) -> bool {
        let listed = space.list(stop).unwrap_or_default();
        let fresh = listed.iter().filter(|l| !space.known.contains_key(&l.link_map));
        let fresh: Vec<&Listed> = fresh.collect();
        if fresh.is_empty() {
            return true;
        }
        let Ok(maps) = stop.maps() else { return true };
        let mut ready = true;
        for new in fresh {
            let path = mapping_of(new, &maps).and_then(|mapping| mapping.path.as_deref());
            let Some(path) = path.filter(|path| self.wants(path)) else { continue };
            if let Ok(Some(file)) = space.file_of(new, path, stop, &maps) {
                // All of them begin.
                ready &= modules.begin(path, &file);
            }
        }
        ready
    }

    /// A thread is at the dlopen hook: takes in what became of our requests, if there were any, and what
    /// the loader's list says now; gives the next requests.
    pub fn library_event(
        &mut self,
        space: &mut Space,
        modules: &mut Modules,
        (stop, undo_recorder): (&HookStop, &mut Option<Box<dyn UndoRecorder>>),
        done: Option<Vec<Result<(), LiveError>>>,
        events: &mut Vec<LibraryEvent>,
    ) -> Vec<Request> {
        let mut visit =
            Visit { stop, undo_recorder: undo_recorder.as_deref_mut().filter(|_| space.kept) };
        let asked = std::mem::take(&mut space.asked);
        let mut unmaps = Vec::new();
        let again = match done {
            Some(done) => space.finish(asked, &done, modules, &mut visit, &mut unmaps, events),
            None => Vec::new(),
        };
        let listed = space.list(stop);
        if let Some(listed) = &listed {
            space.forget(listed, stop, &mut unmaps);
        }
        let mut requests = visit.unmap(&unmaps);
        if requests.len() == unmaps.len() {
            space.asked.unmaps = unmaps;
        }
        for library in again {
            let asked = space.ask(library, &mut visit, &mut requests);
            events.extend(asked.err());
        }
        let Some(listed) = listed else { return requests };
        let fresh: Vec<&Listed> =
            listed.iter().filter(|l| !space.known.contains_key(&l.link_map)).collect();
        if fresh.is_empty() {
            return requests;
        }
        let Ok(maps) = stop.maps() else { return requests };
        if space.find_object == FindObject::NotYet {
            let target = self.find_object(space, &listed, &maps, stop);
            space.redirect_find_object(target, stop);
        }
        let mut taken = Vec::new();
        for new in fresh {
            if requests.len() + 2 > DlopenHook::REQUESTS {
                // The rest when these are mapped.
                break;
            }
            space.known.insert(new.link_map, Library { bias: new.bias, probed: None });
            let path = mapping_of(new, &maps).and_then(|mapping| mapping.path.clone());
            let Some(path) = path else { continue };
            if !self.wants(&path) {
                continue;
            }
            let asked = match space.place(new, &path, modules, stop, &maps, &mut taken) {
                Ok(Some(library)) => space.ask(library, &mut visit, &mut requests),
                Ok(None) => Ok(()),
                Err(reason) => Err(LibraryEvent::Refused(path.display().to_string(), reason)),
            };
            events.extend(asked.err());
        }
        requests
    }
}

impl Libraries {
    /// Where a process has `_dl_find_object`: in the C library, or in the loader.
    fn find_object(
        &mut self,
        space: &Space,
        listed: &[Listed],
        maps: &[Mapping],
        stop: &HookStop,
    ) -> Option<u64> {
        for l in listed {
            let Some(mapping) = mapping_of(l, maps) else { continue };
            let Some(path) = &mapping.path else { continue };
            let name = path.file_name().unwrap_or_default().as_bytes();
            if !name.starts_with(b"libc.so") && !name.starts_with(b"libc-") {
                continue;
            }
            let Some(file) = mapped_file(stop.pid, mapping) else { continue };
            let Ok(meta) = std::fs::metadata(&file) else { continue };
            let known = self.find_object.entry((meta.dev(), meta.ino()));
            let at = known.or_insert_with(|| {
                let image = open_image(&file).ok()?;
                symbol(&image, "_dl_find_object")
            });
            if let Some(at) = at {
                return Some((*at + l.bias).0);
            }
        }
        space.loader.map(|(at, bias)| (at + bias).0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_and_names() {
        let patterns = vec!["libc.so*".into(), "/opt/*".into()];
        let mut libraries = Libraries::new(patterns, Unmatched::default());
        assert!(libraries.wants(Path::new("/lib/x86_64-linux-gnu/libc.so.6")));
        assert!(libraries.wants(Path::new("/opt/x/liby.so")));
        assert!(!libraries.wants(Path::new("/lib/libm.so.6")));
    }
}
