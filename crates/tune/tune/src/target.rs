//! The modules of a running process, as its loader lists them.
//!
//! The loader's list is found as debuggers find it: the executable's dynamic section has an entry
//! (`DT_DEBUG`) for the address of `struct r_debug`. Where that section cannot be written
//! (`-z rodynamic`) there is no such entry, and the loader's own symbol says where it is.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use fettle_image::{Image, LinkAddr, unversioned};
use fettle_live::{FileId, LiveAddr, LiveError, Mapping, Process};
use fettle_record::modules::{ModuleError, open_image};
use fettle_record::select::names_file;
use fettle_record::session;
use fettle_types::{LoadBias, Pid};

use crate::error::TuneError;

const AT_PHDR: u64 = 3;
const AT_PHNUM: u64 = 5;
const AT_BASE: u64 = 7;
const AT_ENTRY: u64 = 9;
const PT_DYNAMIC: u32 = 2;
pub(crate) const PHDR_SIZE: usize = 56;
const DT_DEBUG: u64 = 21;
/// How long a loader may take that is working when a process is attached to.
pub const LOADING: Duration = Duration::from_secs(2);
/// So many times as long while it is seen to work, for it may get no processor.
const BUSY: u32 = 5;
/// The time between checks whether it is done.
const LOOK: Duration = Duration::from_millis(1);
/// Longer lists are taken for broken ones.
const LONGEST: usize = 4096;

/// An image where a process has it.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// As it is called in the process.
    pub path: PathBuf,
    /// A name by which the very file can be opened from here.
    pub file: PathBuf,
    /// That file's device and number.
    pub id: FileId,
    /// What the loader has added to link addresses.
    pub bias: LoadBias,
    /// The loader's record of it.
    pub link_map: LiveAddr,
    /// Its dynamic section.
    pub dynamic: u64,
    /// It is the executable.
    pub main: bool,
}

impl Loaded {
    /// Its name in a trace: of the program, the path that its process executed.
    pub fn called(&self, process: &Process) -> PathBuf {
        match process.executed_as().filter(|_| self.main) {
            Some(given) => session::called(process.pid(), &given, self.path.clone()),
            None => self.path.clone(),
        }
    }
}

/// A process with its modules.
#[derive(Debug)]
pub struct Target<'a> {
    /// The process.
    pub process: &'a Process,
    /// Executable and libraries, in the loader's order.
    pub loaded: Vec<Loaded>,
    /// What is left out, and why.
    pub refused: Vec<(PathBuf, String)>,
    /// The loader's list (`struct r_debug`).
    pub list: LiveAddr,
    /// The function by which unwinders find the module of some code, if the C library has one.
    pub find_object: Option<FindObject>,
    /// The code that walks the list of modules: start and end.
    pub iterates: Option<(LiveAddr, LiveAddr)>,
}

/// `_dl_find_object` of a process.
#[derive(Clone, Debug)]
pub struct FindObject {
    /// Its address.
    pub at: LiveAddr,
    /// What the loader has added to addresses of its image.
    pub image_bias: LoadBias,
    /// That image, for room near it.
    pub image: Arc<Image>,
}

impl<'a> Target<'a> {
    /// The paths of its modules in the process, those that are left out among them.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        let refused = self.refused.iter().map(|(path, _)| path.as_path());
        self.loaded.iter().map(|loaded| loaded.path.as_path()).chain(refused)
    }

    /// Reads the modules of a process.
    ///
    /// # Errors
    ///
    /// When it is a static program, or its loader's list cannot be read now.
    pub fn new(process: &'a Process) -> Result<Target<'a>, TuneError> {
        let pid = process.pid();
        let unfit = |why: &str| TuneError::Unfit { pid, why: why.to_owned() };
        let image = match open_image(&process.executable()) {
            Ok(image) => image,
            Err(error) => return Err(unfit(&no_program(process, &error))),
        };
        if process.auxv(AT_BASE).unwrap_or(0) == 0 {
            return Err(unfit("it is a static program, which has no list of its modules"));
        }
        let maps = process.maps()?;
        let (r_debug, list) = list(process, &image).ok_or(TuneError::Loading { pid })?;
        let mut target = Target {
            process,
            loaded: Vec::new(),
            refused: Vec::new(),
            list: LiveAddr(r_debug),
            find_object: None,
            iterates: None,
        };
        for (index, entry) in list.iter().enumerate() {
            let main = index == 0;
            let Some(mapping) = maps.iter().find(|m| m.contains(LiveAddr(entry.dynamic))) else {
                continue;
            };
            // The kernel's own library has no file.
            let Some(path) = mapping.path.clone() else { continue };
            let file = if main { Some(process.executable()) } else { process.file_of(mapping) };
            match file {
                Some(file) => target.loaded.push(Loaded {
                    path,
                    file,
                    id: (mapping.device, mapping.inode),
                    bias: entry.bias,
                    link_map: LiveAddr(entry.link_map),
                    dynamic: entry.dynamic,
                    main,
                }),
                None => {
                    let why = "its file has been removed or replaced since it was loaded";
                    target.refused.push((path, why.to_owned()));
                }
            }
        }
        if !target.loaded.first().is_some_and(|first| first.main) {
            return Err(unfit("its loader's list does not begin with its executable"));
        }
        target.look_into_c_library()?;
        Ok(target)
    }

    /// Reads the modules of a process when its loader is done, which may be working on the
    /// program's start or on another library: after `patience` at most, or when `enough` says so.
    ///
    /// # Errors
    ///
    /// As [`Target::new`].
    pub fn when_loaded(
        process: &'a Process,
        patience: Duration,
        enough: &dyn Fn() -> bool,
    ) -> Result<Target<'a>, TuneError> {
        let begun = Instant::now();
        loop {
            let target = Target::new(process);
            // Just before the loader begins, its list looks complete without any library.
            let unfinished =
                matches!(target, Err(TuneError::Loading { .. } | TuneError::NoCLibrary { .. }));
            let waits = unfinished && process.is_same();
            // A loader that is working will be done, however busy the machine; a C library that
            // Fettle does not know will never become one that it knows.
            let patience = match target {
                Err(TuneError::Loading { .. }) => patience * BUSY,
                _ => patience,
            };
            if !waits || begun.elapsed() > patience || enough() {
                return target;
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Opens a process that may be about to execute another program, or has just done so, once the
    /// loader of that program is done. Other problems are reported later.
    ///
    /// # Errors
    ///
    /// When there is no such process, or it cannot be opened.
    pub fn open_settled(pid: Pid) -> Result<Process, LiveError> {
        let begun = Instant::now();
        loop {
            let process = Process::open(pid)?;
            let looked = Target::when_loaded(&process, LOADING, &|| false);
            let settled = looked.is_ok() || process.is_same();
            drop(looked);
            if settled || begun.elapsed() > LOADING * BUSY {
                return Ok(process);
            }
        }
    }

    /// Finds the functions of the C library that matter for unwinding.
    fn look_into_c_library(&mut self) -> Result<(), TuneError> {
        let pid = self.process.pid();
        for loaded in &self.loaded {
            let name = loaded.path.file_name().unwrap_or_default().to_string_lossy();
            if !name.starts_with("libc.so") && !name.starts_with("libc-") {
                continue;
            }
            let image = open_image(&loaded.file)
                .map_err(|error| TuneError::Unfit { pid, why: error.to_string() })?;
            let image = Arc::new(image);
            let live = |at: LinkAddr| at + loaded.bias;
            if let Some(at) = symbol(&image, "_dl_find_object") {
                self.find_object = Some(FindObject {
                    at: live(at),
                    image_bias: loaded.bias,
                    image: image.clone(),
                });
            }
            let iterates = symbol(&image, "dl_iterate_phdr").and_then(|at| {
                let function = image.function_at(at)?;
                Some((live(function.start), live(function.end)))
            });
            self.iterates = iterates;
            return Ok(());
        }
        Err(TuneError::NoCLibrary { pid })
    }

    /// The records of all modules that a process has now, by its loader's list at `r_debug`, with what the
    /// loader has added to link addresses; `None` while that changes.
    pub fn listed(process: &Process, r_debug: LiveAddr) -> Option<Vec<(LiveAddr, LoadBias)>> {
        let list = list_at(process, r_debug.0)?;
        Some(list.iter().map(|entry| (LiveAddr(entry.link_map), entry.bias)).collect())
    }

    /// The loader itself.
    pub fn loader(&self) -> Option<&Loaded> {
        let base = self.process.auxv(AT_BASE)?;
        self.loaded.iter().find(|loaded| loaded.bias == LoadBias(base))
    }

    /// The same modules in another process of the same process group, as far as it has them where
    /// this one does.
    pub fn of_member<'b>(&self, process: &'b Process) -> Target<'b> {
        let has = |loaded: &Loaded| {
            // struct link_map begins with the difference.
            process
                .read(loaded.link_map, 8)
                .is_ok_and(|head| LoadBias(word(&head, 0)) == loaded.bias)
        };
        Target {
            process,
            loaded: self.loaded.iter().filter(|loaded| has(loaded)).cloned().collect(),
            refused: self.refused.clone(),
            list: self.list,
            find_object: self.find_object.clone(),
            iterates: self.iterates,
        }
    }

    /// What is mapped in the process now.
    ///
    /// # Errors
    ///
    /// When it has ended.
    pub fn maps(&self) -> Result<Vec<Mapping>, TuneError> {
        Ok(self.process.maps()?)
    }
}

/// The error for a process whose program cannot be opened.
fn no_program(process: &Process, error: &ModuleError) -> String {
    match (error, std::fs::read_link(process.executable())) {
        // Its path here is in `/proc`.
        (ModuleError::Go(_), Ok(path)) => ModuleError::Go(path).to_string(),
        _ => error.to_string(),
    }
}

/// The address of a symbol, whatever its version.
fn symbol(image: &Image, name: &str) -> Option<LinkAddr> {
    image.symbols().iter().find(|s| unversioned(&s.name) == name).map(|s| s.addr)
}

/// An entry of the loader's list.
struct Listed {
    link_map: u64,
    bias: LoadBias,
    dynamic: u64,
}

/// Where the loader's list is, and what is in it.
fn list(process: &Process, image: &Image) -> Option<(u64, Vec<Listed>)> {
    let read = |at: u64, len: usize| process.read(LiveAddr(at), len).ok();
    let phdr = process.auxv(AT_PHDR)?;
    let count = process.auxv(AT_PHNUM)? as usize;
    let headers = read(phdr, count.min(512) * PHDR_SIZE)?;
    let dynamic = headers.chunks_exact(PHDR_SIZE).find_map(|header| {
        let kind = u32::from_le_bytes(header[..4].try_into().expect("four bytes"));
        (kind == PT_DYNAMIC).then(|| word(header, 16))
    })?;
    let bias = LiveAddr(process.auxv(AT_ENTRY)?) - image.entry();
    let mut at = (LinkAddr(dynamic) + bias).0;
    let r_debug = loop {
        let entry = read(at, 16)?;
        match word(&entry, 0) {
            0 => break loaders_own(process)?,
            DT_DEBUG => break word(&entry, 8),
            _ => at += 16,
        }
    };
    Some((r_debug, list_at(process, r_debug)?))
}

/// Where the loader itself has `struct r_debug`.
fn loaders_own(process: &Process) -> Option<u64> {
    let base = process.auxv(AT_BASE)?;
    let maps = process.maps().ok()?;
    let mapping = maps.iter().find(|mapping| mapping.contains(LiveAddr(base)))?;
    let loader = open_image(&process.file_of(mapping)?).ok()?;
    Some((symbol(&loader, "_r_debug")? + LoadBias(base)).0)
}

/// What is in the loader's list.
fn list_at(process: &Process, r_debug: u64) -> Option<Vec<Listed>> {
    let read = |at: u64, len: usize| process.read(LiveAddr(at), len).ok();
    // struct r_debug: version, list, function, state. 0 says that the list is whole.
    let head = read(r_debug, 32)?;
    if word(&head, 24) as u32 != 0 {
        return None;
    }
    let mut all = Vec::new();
    let mut at = word(&head, 8);
    while at != 0 && all.len() < LONGEST {
        // struct link_map: difference, name, dynamic section, next, previous.
        let entry = read(at, 32)?;
        all.push(Listed {
            link_map: at,
            bias: LoadBias(word(&entry, 0)),
            dynamic: word(&entry, 16),
        });
        at = word(&entry, 24);
    }
    Some(all)
}

pub(crate) fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

/// Whether a module matches one of `patterns`: by its path or its file's name.
pub fn is_meant(path: &Path, patterns: &[String]) -> bool {
    patterns.iter().any(|pattern| names_file(pattern, path))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn programs_that_have_just_been_started_are_waited_for() {
        for _ in 0..50 {
            let mut child = Command::new("sleep").arg("60").spawn().unwrap();
            // Until its exec the child of a `vfork` runs this very program, and so it seems shortly
            // after we go on.
            let program = format!("/proc/{}/exe", child.id());
            while std::fs::read_link(&program).ok() == std::env::current_exe().ok() {
                std::thread::yield_now();
            }
            let process = Process::open(Pid::of_child(&child)).unwrap();
            let target = Target::when_loaded(&process, LOADING, &|| false);
            let found = target.map(|target| target.loaded.len());
            child.kill().unwrap();
            child.wait().unwrap();
            assert!(found.unwrap() >= 3, "the program, its C library and its loader");
        }
    }

    /// As `-z rodynamic` makes programs: without an entry for debuggers.
    #[test]
    fn the_loader_knows_its_list_too() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("sleep");
        let mut bytes = std::fs::read("/bin/sleep").unwrap();
        let entry = [DT_DEBUG.to_le_bytes(), [0; 8]].concat();
        let at = bytes.chunks_exact(8).map(|word| word == &entry[..8]).collect::<Vec<_>>();
        let is_entry = |i: &usize| at[*i] && bytes[i * 8..].starts_with(&entry);
        let at = (0..at.len()).find(is_entry).unwrap() * 8;
        // A tag that the loader does not know.
        bytes[at..at + 8].copy_from_slice(&0x6000_000du64.to_le_bytes());
        std::fs::write(&program, &bytes).unwrap();
        let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&program, executable).unwrap();
        let mut child = Command::new(&program).arg("60").spawn().unwrap();
        while std::fs::read_link(format!("/proc/{}/exe", child.id())).unwrap() != program {
            std::thread::yield_now();
        }
        let process = Process::open(Pid::of_child(&child)).unwrap();
        let target = Target::when_loaded(&process, LOADING, &|| false);
        let found = target.map(|target| target.loaded.len());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(found.unwrap() >= 3, "the program, its C library and its loader");
    }
}
