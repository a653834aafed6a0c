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

mod lead;
mod loader;
mod space;

use fettle_types::PAGE;
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use fettle_image::LinkAddr;
use fettle_live::{
    DlopenHook, Entry, ExecStop, FileMap, HookStop, LiveAddr, LiveError, Mapping, Patch, Prot,
    Region, Request, mapped_file,
};
use fettle_rewrite::find_object::Region as Known;
use fettle_rewrite::{Linked, Plan};

use crate::modules::{Modules, Placed, open_image};
use crate::rewritten::Rewritten;
use crate::room::AddressSpace;
use crate::select::names_file;
use crate::unmatched::Unmatched;

pub use lead::headers_patch;
pub use loader::HookSite;
pub use loader::Loader;
use loader::symbol;
pub use space::Space;
use space::{Asked, Library, Listed, mapping_of, with_taken};

const CODE_LEN: u64 = PAGE;

/// Where in the helper's code page the code before `_dl_find_object` lies.
const FIND_OBJECT: u64 = 0x400;

const REGIONS_LEN: u64 = 4 * PAGE;

/// So many libraries with rewritten text may be open at once.
pub const REGIONS: usize = (REGIONS_LEN / Known::SIZE) as usize - 1;

/// Longer lists of libraries are taken for broken ones.
const LONGEST_LIST: usize = 4096;

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

/// The undo recorder: it has given processes that ran before their dlopen hook. All that is done to such
/// a process is recorded here first, so that it can be reverted even if Fettle is killed.
pub trait UndoRecorder: Send {
    /// What a process has for its libraries, once it may have its dlopen hook patched in.
    fn space(&mut self, pid: i32) -> Option<Space>;

    /// Something is about to be done, or was done.
    ///
    /// # Errors
    ///
    /// When it cannot be written down: then it must not be done.
    fn write_down(&mut self, pid: i32, entries: Vec<Entry>) -> Result<(), LiveError>;

    /// Entry patches are about to lead a library to its rewritten text. Gives those that may be written.
    ///
    /// # Errors
    ///
    /// When the undo log cannot be written: then no patch may be written.
    fn leading(&mut self, pid: i32, library: Opened<'_>) -> Result<Vec<Patch>, LiveError>;
}

/// A library that a process has opened, with the rewritten text that its entry patches will lead to.
#[derive(Clone, Copy)]
pub struct Opened<'a> {
    /// What it is called in the process.
    pub path: &'a Path,
    /// The loader's record of it.
    pub link_map: LiveAddr,
    /// Its dynamic section.
    pub dynamic: LiveAddr,
    /// What the loader has added to link addresses.
    pub bias: u64,
    /// Its rewritten text.
    pub plan: &'a Arc<Plan>,
    /// The same with addresses.
    pub linked: &'a Linked,
    /// Where that is.
    pub regions: [Region; 2],
    /// What the loader's record is to say of its program headers.
    pub headers: &'a Patch,
    /// The entry patches.
    pub jumps: &'a [Patch],
}

/// What a process is to be given at exec: mappings, and bytes to write.
pub type Prepared = (Space, Vec<FileMap>, Vec<(LiveAddr, Vec<u8>)>);

#[derive(Clone, Copy, PartialEq)]
enum FindObject {
    NotYet,
    Done,
    Failed,
}

#[derive(Clone)]
struct Candidate {
    link_map: u64,
    dynamic: u64,
    base: u64,
    path: PathBuf,
    module: usize,
    placed: Arc<Placed>,
    /// Its rewritten text is written into memory of the process's own, which could not open our file:
    /// another user's cannot, nor one that has given up rights.
    given: bool,
}

/// What becomes of a library, as a recording reports it.
pub enum LibraryEvent {
    /// A module's rewritten text is mapped.
    Mapped(Rewritten),
    /// A library runs without probes.
    Refused(String, String),
}

const CODE: Prot = Prot { read: true, write: false, exec: true };

const CONSTANTS: Prot = Prot { read: true, write: false, exec: false };

const DATA: Prot = Prot { read: true, write: true, exec: false };

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
        let base = stop.auxv.base.0;
        let maps = with_taken(&stop.maps, taken);
        let hook_site = loader.hang(base, alive, AddressSpace::of(stop.pid, &maps))?;
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
            loader: loader.find_object.map(|at| (at, base)),
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
            space.known.insert(new.link_map, Library { base: new.base, probed: None });
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

/// A thread at its dlopen hook, with the undo recorder, if the process has one.
struct Visit<'a> {
    stop: &'a HookStop,
    undo_recorder: Option<&'a mut (dyn UndoRecorder + 'static)>,
}

impl Visit<'_> {
    fn write_down(&mut self, entries: impl Iterator<Item = Entry>) -> Result<(), LiveError> {
        match &mut self.undo_recorder {
            Some(undo_recorder) => undo_recorder.write_down(self.stop.pid, entries.collect()),
            None => Ok(()),
        }
    }

    /// Whether rewritten text is written into memory of the process's own: for one that ran before,
    /// always.
    fn gives(&self, library: &Candidate) -> bool {
        library.given || self.undo_recorder.is_some()
    }

    /// What maps a library's rewritten text.
    fn map(&mut self, library: &Candidate) -> Result<[Request; 2], LiveError> {
        if !self.gives(library) {
            return Ok(library.maps());
        }
        let regions = library.regions();
        self.write_down(regions.into_iter().map(Entry::Map))?;
        Ok(regions.map(Request::Give))
    }

    /// Fills memory that has been mapped for a library, if it is not mapped with its contents.
    fn mapped(&mut self, library: &Candidate) -> Result<(), LiveError> {
        if !self.gives(library) {
            return Ok(());
        }
        let (regions, linked) = (library.regions(), &library.placed.linked);
        self.write_down(regions.iter().map(|region| Entry::Mapped(region.at)))?;
        let contents = [&linked.text, &linked.constants];
        let fill = regions.iter().zip(contents).map(|(region, bytes)| (region.at, bytes.clone()));
        self.stop.write(&fill.collect::<Vec<_>>())
    }

    /// What unmaps regions; nothing if that cannot be written down.
    fn unmap(&mut self, regions: &[Region]) -> Vec<Request> {
        let stop = self.stop;
        let written = self.write_down(regions.iter().map(|region| stop.unmapping(region)));
        // They stay until the recording is over.
        let regions = if written.is_ok() { regions } else { &[] };
        regions.iter().map(|region| Request::Unmap(region.at, region.len)).collect()
    }

    /// The patches that lead a library to its rewritten text.
    fn leading(&mut self, library: Opened<'_>) -> Result<Vec<Patch>, LiveError> {
        match &mut self.undo_recorder {
            Some(undo_recorder) => undo_recorder.leading(self.stop.pid, library),
            None => Ok(library.jumps.to_vec()),
        }
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
                return Some(l.base.wrapping_add(at.0));
            }
        }
        space.loader.map(|(at, base)| base.wrapping_add(at.0))
    }
}

impl Candidate {
    fn live(&self, at: LinkAddr) -> u64 {
        at.0.wrapping_add(self.base)
    }

    /// Where its text goes, and its constants.
    fn regions(&self) -> [Region; 2] {
        let Placed { linked, text_len, constants_len, .. } = &*self.placed;
        let region = |at, len: &u64, prot| Region {
            at: LiveAddr(self.live(at)),
            len: *len,
            prot,
            shared: false,
        };
        [
            region(linked.text_at, text_len, CODE),
            region(linked.constants_at, constants_len, CONSTANTS),
        ]
    }

    fn maps(&self) -> [Request; 2] {
        let mut offset = 0;
        self.regions().map(|Region { at: addr, len, prot, shared }| {
            let fd = self.placed.file.clone();
            let map = FileMap { fd, offset, len, addr, prot, shared, dont_dump: false };
            offset += len;
            Request::Map(map)
        })
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
