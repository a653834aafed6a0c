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

use fettle_image::{Image, LinkAddr, unversioned};
use fettle_lift::SkipReason;
use fettle_live::{
    DlopenHook, Entry, ExecStop, FileMap, HookStop, LiveAddr, LiveError, Mapping, Patch, Prot,
    Purpose, Region, Request, mapped_file,
};
use fettle_rewrite::find_object::{self, Region as Known};
use fettle_rewrite::{Linked, Plan};

use crate::modules::{Module, Modules, Placed, open_image};
use crate::rewritten::Rewritten;
use crate::room::{AddressSpace, find_lasting_room_beside};
use crate::select::names_file;
use crate::unmatched::Unmatched;

const CODE_LEN: u64 = PAGE;
/// Where in the helper's code page the code before `_dl_find_object` lies.
const FIND_OBJECT: u64 = 0x400;
const REGIONS_LEN: u64 = 4 * PAGE;
/// So many libraries with rewritten text may be open at once.
pub const REGIONS: usize = (REGIONS_LEN / Known::SIZE) as usize - 1;
/// Longer lists of libraries are taken for broken ones.
const LONGEST_LIST: usize = 4096;

/// Where a dlopen hook goes in a process, near its loader, and the patch that leads there.
pub struct HookSite {
    /// The dlopen hook.
    pub dlopen_hook: DlopenHook,
    /// Its code, and its table with room for unwinders' behind it.
    pub regions: [Region; 2],
    /// That room.
    pub regions_at: LiveAddr,
    /// The loader's `r_debug`, which holds its list of libraries.
    pub r_debug: LiveAddr,
    /// Leads the loader there.
    pub jump: Patch,
}

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

/// A dynamic loader's places.
pub struct Loader {
    image: Image,
    /// The empty function that it calls after each change.
    debug_state: LinkAddr,
    /// Its `struct r_debug`.
    r_debug: LinkAddr,
    /// `_dl_find_object`, if it is here.
    find_object: Option<LinkAddr>,
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

/// What a process has been given for its libraries.
#[derive(Clone)]
pub struct Space {
    dlopen_hook: DlopenHook,
    /// An undo recorder is responsible for it.
    kept: bool,
    helper: u64,
    regions_at: u64,
    r_debug: u64,
    loader: Option<(LinkAddr, u64)>,
    find_object: FindObject,
    regions: Vec<bool>,
    known: HashMap<u64, Library>,
    asked: Asked,
}

/// What a process is to be given at exec: mappings, and bytes to write.
pub type Prepared = (Space, Vec<FileMap>, Vec<(LiveAddr, Vec<u8>)>);

#[derive(Clone, Copy, PartialEq)]
enum FindObject {
    NotYet,
    Done,
    Failed,
}

/// A library that has been seen.
#[derive(Clone)]
struct Library {
    base: u64,
    probed: Option<Probed>,
}

#[derive(Clone, Copy)]
struct Probed {
    region: usize,
    parts: [Region; 2],
}

/// What the process has been asked to unmap and to map.
#[derive(Clone, Default)]
struct Asked {
    unmaps: Vec<Region>,
    libraries: Vec<Candidate>,
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

/// An entry of the loader's list.
struct Listed {
    link_map: u64,
    base: u64,
    dynamic: u64,
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

/// The address of a symbol, whatever its version.
fn symbol(image: &Image, name: &str) -> Option<LinkAddr> {
    image.symbols().iter().find(|s| unversioned(&s.name) == name).map(|s| s.addr)
}

fn with_taken(maps: &[Mapping], taken: &[(u64, u64)]) -> Vec<Mapping> {
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

/// `jmp` from one address to another.
fn jump(from: u64, to: u64) -> Option<[u8; 5]> {
    let distance = i32::try_from(to.wrapping_sub(from + 5) as i64).ok()?;
    let [a, b, c, d] = distance.to_le_bytes();
    Some([0xe9, a, b, c, d])
}

// struct r_debug: version, list, function, state, loader; since glibc 2.35 another namespace's.
const R_MAP: usize = 8;
const R_STATE: u64 = 24;
const R_NEXT: usize = 40;

impl Loader {
    /// Finds what dlopen hooks need.
    ///
    /// # Errors
    ///
    /// In words, what is missing.
    pub fn of(image: Image) -> Result<Loader, String> {
        let debug_state =
            symbol(&image, "_dl_debug_state").ok_or("its loader tells debuggers nothing")?;
        let r_debug =
            symbol(&image, "_r_debug").ok_or("its loader does not show its list of libraries")?;
        let find_object = symbol(&image, "_dl_find_object");
        let empty = image
            .read(debug_state, 16)
            .is_some_and(|bytes| is_empty_function(bytes, debug_state.0));
        if !empty {
            return Err("its loader's function for debuggers is not an empty one".to_owned());
        }
        Ok(Loader { image, debug_state, r_debug, find_object })
    }

    /// Finds an address-space gap for a dlopen hook in a process that has the loader at `base`; `alive`
    /// is where it sees whether a tracer is alive.
    ///
    /// # Errors
    ///
    /// When there is no room.
    pub fn hang(&self, base: u64, alive: u64, space: AddressSpace<'_>) -> Result<HookSite, String> {
        let no_room = "no room near its loader";
        let data_len = DlopenHook::TABLE_LEN + REGIONS_LEN;
        let code = find_lasting_room_beside(&self.image, base, CODE_LEN + data_len, space)
            .ok_or(no_room)?;
        let code = LiveAddr(code.0.wrapping_add(base));
        let (table, debug_state) = (code.offset(CODE_LEN), base.wrapping_add(self.debug_state.0));
        let after = jump(debug_state, code.0).ok_or(no_room)?.to_vec();
        let before = self.image.read(self.debug_state, after.len()).ok_or(no_room)?.to_vec();
        let r_debug = LiveAddr(base.wrapping_add(self.r_debug.0));
        let region = |at, len, prot| Region { at, len, prot, shared: false };
        let (alive, state) = (LiveAddr(alive), Some(r_debug.offset(R_STATE)));
        Ok(HookSite {
            dlopen_hook: DlopenHook { code, table, alive, state },
            regions: [region(code, CODE_LEN, CODE), region(table, data_len, DATA)],
            regions_at: table.offset(DlopenHook::TABLE_LEN),
            r_debug,
            jump: Patch { at: LiveAddr(debug_state), before, after, purpose: Purpose::Jump },
        })
    }
}

/// Whether code does nothing but return, with padding behind that a jump fits over.
fn is_empty_function(bytes: &[u8], at: u64) -> bool {
    let bytes = match bytes.strip_prefix(&[0xf3, 0x0f, 0x1e, 0xfa]) {
        Some(rest) => rest,
        None => bytes,
    };
    // Functions begin at multiples of 16; long no-operations begin with 66, 0f 1f or 2e.
    let padding = bytes.get(1).is_some_and(|b| matches!(b, 0x66 | 0x0f | 0x2e | 0x90 | 0xcc));
    bytes.first() == Some(&0xc3) && at % 16 <= 11 && padding
}

/// Where a library of the loader's list has its dynamic section: a mapping of its file.
fn mapping_of<'a>(listed: &Listed, maps: &'a [Mapping]) -> Option<&'a Mapping> {
    maps.iter().find(|m| m.contains(LiveAddr(listed.dynamic)))
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

impl Space {
    /// What a process that ran before has for the libraries that it opens from now on: its dlopen hook
    /// `door`, and a table for unwinders of which `used` regions are in use. Its loader's `r_debug`
    /// lists those that it has already: in that list, by record and base, are `known`.
    pub fn of_running(
        dlopen_hook: DlopenHook,
        (regions_at, used): (LiveAddr, usize),
        r_debug: LiveAddr,
        known: impl IntoIterator<Item = (LiveAddr, u64)>,
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
            known: known.map(|(at, base)| (at.0, Library { base, probed: None })).collect(),
            asked: Asked::default(),
        }
    }

    /// The dlopen hook, if its stopped threads have their PC at `at`.
    pub fn dlopen_hook(&self, at: LiveAddr) -> Option<DlopenHook> {
        (self.dlopen_hook.hook_address() == at).then_some(self.dlopen_hook)
    }

    /// The loader's list of libraries, of all its namespaces; `None` while it changes.
    fn list(&self, stop: &HookStop) -> Option<Vec<Listed>> {
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
                all.push(Listed { link_map: at, base: word(0), dynamic: word(16) });
                at = word(24);
            }
            r_debug = if word(0) as u32 >= 2 { word(R_NEXT) } else { 0 };
            namespaces += 1;
        }
        Some(all)
    }

    /// Drops libraries that are no longer listed.
    fn forget(&mut self, listed: &[Listed], stop: &HookStop, unmaps: &mut Vec<Region>) {
        let gone: Vec<u64> = self
            .known
            .iter()
            .filter(|(at, known)| {
                !listed.iter().any(|l| l.link_map == **at && l.base == known.base)
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

    fn drop_region(&mut self, index: usize, stop: &HookStop) {
        let at = self.region_at(index);
        // If the process is gone there is nothing to drop.
        let _ = stop.write(&[(at, Known::UNUSED.to_bytes()[..8].to_vec())]);
        self.regions[index] = false;
    }

    /// Enters a region; readers see it whole or not at all.
    fn add_region(&mut self, region: Known, stop: &HookStop) -> Result<usize, String> {
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
    fn redirect_find_object(&mut self, target: Option<u64>, stop: &HookStop) {
        let Some(target) = target else {
            self.find_object = FindObject::Done;
            return;
        };
        let done = (|| {
            let original = stop.read_some(LiveAddr(target), 32).ok()?;
            // Behind `endbr64`, which indirect calls want to see.
            let skip = if original.starts_with(&[0xf3, 0x0f, 0x1e, 0xfa]) { 4 } else { 0 };
            let at = self.helper + FIND_OBJECT;
            let target = target + skip as u64;
            let made = find_object::code(at, self.regions_at, target, original.get(skip..)?, 5)?;
            if made.0.len() as u64 > CODE_LEN - FIND_OBJECT {
                return None;
            }
            let jump = jump(target, at)?;
            stop.write(&[(LiveAddr(at), made.0)]).ok()?;
            stop.write(&[(LiveAddr(target), jump.to_vec())]).ok()
        })();
        self.find_object = match done {
            Some(()) => FindObject::Done,
            None => FindObject::Failed,
        };
    }

    /// Where the file of a new library can be read. `None` for what is no library.
    fn file_of(
        &self,
        new: &Listed,
        path: &Path,
        stop: &HookStop,
        maps: &[Mapping],
    ) -> Result<Option<PathBuf>, String> {
        let name = path.file_name().unwrap_or_default().as_bytes();
        if new.base == 0 || name.starts_with(b"ld-linux") || name.starts_with(b"ld-musl") {
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
    fn place(
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
        let plan = &modules.all()[module].plan;
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
        let placed = modules.place(module, new.base, space).map_err(|e| e.to_string())?;
        let candidate = Candidate {
            link_map: new.link_map,
            dynamic: new.dynamic,
            base: new.base,
            path: path.to_owned(),
            module,
            placed,
            given: false,
        };
        taken.extend(candidate.regions().map(|region| (region.at.0, region.len)));
        Ok(Some(candidate))
    }

    /// Asks for a library's rewritten text to be mapped.
    fn ask(
        &mut self,
        library: Candidate,
        visit: &mut Visit<'_>,
        requests: &mut Vec<Request>,
    ) -> Result<(), LibraryEvent> {
        let refused = |error: LiveError| {
            LibraryEvent::Refused(library.path.display().to_string(), error.to_string())
        };
        requests.extend(visit.map(&library).map_err(refused)?);
        self.asked.libraries.push(library);
        Ok(())
    }

    /// Writes the entry patches of libraries whose rewritten text could be mapped; gives those for which
    /// that failed from our file, and into which it is to be written.
    fn finish(
        &mut self,
        asked: Asked,
        done: &[Result<(), LiveError>],
        modules: &Modules,
        visit: &mut Visit<'_>,
        unmaps: &mut Vec<Region>,
        events: &mut Vec<LibraryEvent>,
    ) -> Vec<Candidate> {
        let mut again = Vec::new();
        let (unmapped, mapped) = done.split_at(asked.unmaps.len());
        let gone = asked.unmaps.iter().zip(unmapped).filter(|(_, result)| result.is_ok());
        // If it cannot be written down, it shows in the process.
        let _ = visit.write_down(gone.map(|(region, _)| Entry::Unmapped(region.at)));
        for (library, mapped) in asked.libraries.iter().zip(mapped.chunks(2)) {
            if !visit.gives(library) && mapped.iter().all(Result::is_err) {
                again.push(Candidate { given: true, ..library.clone() });
                continue;
            }
            let failed = mapped.iter().find_map(|result| result.as_ref().err());
            let result = match failed {
                Some(error) => Err(error.to_string()),
                None => self.lead(library, &modules.all()[library.module], visit),
            };
            let parts = library.regions();
            match result {
                Ok(region) => {
                    let probed = Some(Probed { region, parts });
                    self.known.insert(library.link_map, Library { base: library.base, probed });
                    let (module, bias, [text, _]) = (library.module, library.base, parts);
                    let (text, text_len) = (text.at, text.len);
                    events.push(LibraryEvent::Mapped(Rewritten { module, text, text_len, bias }));
                }
                Err(reason) => {
                    events.push(LibraryEvent::Refused(library.path.display().to_string(), reason));
                    let made = parts.into_iter().zip(mapped);
                    let (made, not): (Vec<_>, Vec<_>) =
                        made.partition(|(_, result)| result.is_ok());
                    let _ = visit.write_down(not.iter().map(|(r, _)| Entry::Unmapped(r.at)));
                    unmaps.extend(made.into_iter().map(|(region, _)| region));
                }
            }
        }
        again
    }

    /// Makes unwinders and the loader know a library's rewritten text, and patches the library to enter
    /// it.
    fn lead(
        &mut self,
        library: &Candidate,
        module: &Module,
        visit: &mut Visit<'_>,
    ) -> Result<usize, String> {
        let (linked, image, stop) = (&library.placed.linked, &module.image, visit.stop);
        let failed = |error: LiveError| error.to_string();
        visit.mapped(library).map_err(failed)?;
        let jumps = jumps(library, image, stop)?;
        let (link_map, bias) = (LiveAddr(library.link_map), library.base);
        let read = |at, len| stop.read_some(at, len).ok();
        let headers = headers_patch((link_map, bias), image, linked, read)
            .ok_or("the loader's record of it has a form that is not known")?;
        let regions = library.regions();
        let opened = Opened {
            path: &library.path,
            link_map,
            dynamic: LiveAddr(library.dynamic),
            bias,
            plan: &module.plan,
            linked,
            regions,
            headers: &headers,
            jumps: &jumps,
        };
        let jumps = visit.leading(opened).map_err(failed)?;
        let [text, constants] = regions;
        let region = self.add_region(
            Known {
                start: text.at.0,
                end: constants.at.0 + constants.len,
                link_map: library.link_map,
                eh_frame_hdr: library.live(linked.eh_frame_hdr),
            },
            stop,
        )?;
        let writes = [headers].into_iter().chain(jumps).map(|patch| (patch.at, patch.after));
        stop.write(&writes.collect::<Vec<_>>()).map_err(|error| {
            self.drop_region(region, stop);
            failed(error)
        })?;
        Ok(region)
    }
}

/// What the loader's record of a module is to say of its program headers. The place is found by the
/// values there, for the record's layout differs between versions: the headers' address, the entry
/// point, the number of headers. `read` reads the process's memory, as much as there is.
pub fn headers_patch(
    (link_map, bias): (LiveAddr, u64),
    image: &Image,
    linked: &Linked,
    read: impl Fn(LiveAddr, usize) -> Option<Vec<u8>>,
) -> Option<Patch> {
    const RECORD: usize = 0x500;
    let record = read(link_map, RECORD)?;
    let live = |at: LinkAddr| at.0.wrapping_add(bias);
    let (offset, count) = image.phdr_bytes();
    let segment = image
        .segments()
        .iter()
        .find(|s| s.file_offset <= offset && offset < s.file_offset + s.file_size)?;
    let headers = live(LinkAddr(segment.start.0 + (offset - segment.file_offset)));
    let entry = live(image.entry());
    let word =
        |at: usize| record.get(at..at + 8).map(|b| u64::from_le_bytes(b.try_into().expect("8")));
    let at = (0..record.len().saturating_sub(24)).step_by(8).find(|at| {
        word(*at) == Some(headers)
            && word(at + 8) == Some(entry)
            && word(at + 16).map(|w| w & 0xffff) == Some(count as u64)
    })?;
    let before = record[at..at + 18].to_vec();
    let mut after = before.clone();
    let (new, new_count) = linked.program_headers;
    after[..8].copy_from_slice(&live(new).to_le_bytes());
    after[16..].copy_from_slice(&(new_count as u16).to_le_bytes());
    Some(Patch { at: link_map.offset(at as u64), before, after, purpose: Purpose::Unwind })
}

/// The patches that lead a library to its rewritten text. The library's code in memory must be what its
/// file says there.
fn jumps(library: &Candidate, image: &Image, stop: &HookStop) -> Result<Vec<Patch>, String> {
    let mut page = (u64::MAX, Vec::new());
    let mut jumps = Vec::with_capacity(library.placed.linked.writes.len());
    for (at, bytes) in &library.placed.linked.writes {
        let live = library.live(*at);
        let start = live & !(PAGE - 1);
        if page.0 != start {
            let read = stop.read_some(LiveAddr(start), 2 * PAGE as usize);
            page = (start, read.map_err(|e| e.to_string())?);
        }
        let from = (live - start) as usize;
        let now = page.1.get(from..from + bytes.len());
        let Some(before) = now.filter(|now| Some(*now) == image.read(*at, bytes.len())) else {
            return Err(format!("its code at {at} is not what its file says"));
        };
        let (before, after) = (before.to_vec(), bytes.clone());
        jumps.push(Patch { at: LiveAddr(live), before, after, purpose: Purpose::Jump });
    }
    Ok(jumps)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_functions() {
        let padded = [0xc3, 0x66, 0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0, 0x0f, 0x1f, 0x40, 0];
        assert!(is_empty_function(&padded, 0x2060));
        assert!(!is_empty_function(&padded, 0x206d));
        let marked = [0xf3, 0x0f, 0x1e, 0xfa, 0xc3, 0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0, 0];
        assert!(is_empty_function(&marked, 0x2060));
        assert!(!is_empty_function(&[0xc3, 0x55, 0x48], 0x2060));
    }

    #[test]
    fn jumps() {
        assert_eq!(jump(0x1000, 0x2000), Some([0xe9, 0xfb, 0x0f, 0, 0]));
        assert_eq!(jump(0x1000, 0x2_0000_0000), None);
    }

    #[test]
    fn paths_and_names() {
        let patterns = vec!["libc.so*".into(), "/opt/*".into()];
        let mut libraries = Libraries::new(patterns, Unmatched::default());
        assert!(libraries.wants(Path::new("/lib/x86_64-linux-gnu/libc.so.6")));
        assert!(libraries.wants(Path::new("/opt/x/liby.so")));
        assert!(!libraries.wants(Path::new("/lib/libm.so.6")));
    }
}
