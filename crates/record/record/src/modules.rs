//! The modules of a session: lifted and rewritten once, linked for every place they lie at.

use fettle_types::{FunctionIndex, LoadBias, ModuleIndex, PAGE};
use std::borrow::Cow;
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use fettle_code::{Depth, Mode, Probing, UserProbe};
use fettle_image::{Bytes, Image, Language, unversioned};
use fettle_lift::{Function, Placement, SkipReason};
use fettle_live::LiveAddr;
use fettle_rewrite::{LinkParameters, Linked, Plan, PlanOptions};

use crate::ahead::{Ahead, Far, OnPreparing};
use crate::arguments::{self, ArgumentRequest, Recorded};
use crate::cache::{Plans, Wanted};
use crate::locking;
use crate::room::{AddressSpace, find_room, raised_heap};
use crate::segment_base;
use crate::select::Selection;

/// A module that was lifted and rewritten.
pub struct Module {
    /// Its number in the trace.
    pub id: ModuleIndex,
    /// Its file.
    pub path: PathBuf,
    /// The file's contents.
    pub image: Image,
    /// Its rewritten text.
    pub plan: Arc<Plan>,
    /// Number in the session of its first function.
    pub first_function: FunctionIndex,
    /// Number in the session of its first counter.
    pub first_counter: u32,
    /// What is recorded of its functions' arguments.
    pub arguments: Recorded,
    /// What was linked before, and the memory file that holds it.
    linked: HashMap<LinkParameters, Arc<Placed>>,
}

/// A module's rewritten text with addresses, in a memory file.
pub struct Placed {
    /// Addresses and bytes.
    pub linked: Linked,
    /// The memory file: text, then constants from the next page on.
    pub file: Arc<OwnedFd>,
    /// Bytes of text in the file, whole pages.
    pub text_len: u64,
    /// Bytes of constants, whole pages.
    pub constants_len: u64,
}

/// Which file it is, and which state of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileId {
    device: u64,
    inode: u64,
    changed: (i64, i64),
}

impl FileId {
    /// That of the file at `path`.
    ///
    /// # Errors
    ///
    /// When there is none.
    pub fn of(path: &Path) -> io::Result<FileId> {
        let meta = std::fs::metadata(path)?;
        let changed = (meta.mtime(), meta.mtime_nsec());
        Ok(FileId { device: meta.dev(), inode: meta.ino(), changed })
    }
}

/// Name of the section with the code of files whose code was laid out before.
pub const LAID_OUT: &str = ".fettle.laid_out";

/// Why a file is not recorded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ModuleError {
    /// It cannot be read.
    #[error("cannot read {path}: {error}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// It is not an image that Fettle understands.
    #[error("{path}: {error}")]
    Image {
        /// The file.
        path: PathBuf,
        /// Why.
        error: fettle_image::Error,
    },
    /// It is a Go program.
    #[error(
        "{0} is a Go program: its goroutine stacks move and its runtime walks them by tables of \
         its own, so its code cannot be rewritten"
    )]
    Go(PathBuf),
    /// It is Wine's loader.
    #[error(
        "{0} is Wine's loader: Windows programs have the gs base to themselves, through which probes \
         reach their memory"
    )]
    Wine(PathBuf),
    /// It, or a library that it opens, sets the `gs` base.
    #[error(
        "{setter} sets its gs base (`wrgsbase`, as WebAssembly that is compiled ahead of time does), \
         through which probes reach their memory{of}",
        setter = setter.display(),
        of = of_program(path, setter)
    )]
    SetsBase {
        /// The file.
        path: PathBuf,
        /// The file with the instruction.
        setter: PathBuf,
    },
    /// Its code was laid out before.
    #[error(
        "{0} was made by `fettle instrument --layout`: what unwinds its rewritten text is not where its \
         sections say, so take the file that it was made from"
    )]
    LaidOut(PathBuf),
    /// Rewritten text cannot be given an address.
    #[error("{path}: {error}")]
    Link {
        /// The file.
        path: PathBuf,
        /// Why.
        error: fettle_rewrite::link::LinkError,
    },
    /// The memory file for rewritten text cannot be had.
    #[error("{path}: no memory for its rewritten text: {error}{hint}", hint = size_hint(error))]
    Memory {
        /// The file that was rewritten.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// There is no room within reach of the image.
    #[error("{0}: no room for rewritten text within reach of the program")]
    NoRoom(PathBuf),
    /// What was said of the same file before.
    #[error("{0}")]
    Again(String),
    /// The session has no numbers left.
    #[error("{0}: the session has no room for more functions")]
    TooManyFunctions(PathBuf),
}

/// How modules are rewritten in this session.
pub struct ModuleOptions {
    /// What probes measure.
    pub mode: Mode,
    /// How deeply nested they measure.
    pub depth: Depth,
    /// Which functions get them.
    pub selection: Selection,
    /// The user probe, in the mode of that name.
    pub user_probe: Option<UserProbe>,
    /// Whose arguments are recorded.
    pub arguments: Vec<ArgumentRequest>,
    /// Functions that the session can number.
    pub functions: u32,
    /// Counters that the session can number.
    pub counters: u32,
    /// Size of rings in bytes.
    pub ring_bytes: u32,
    /// Offset of the accumulators in a slot.
    pub accumulators_at: u32,
    /// Offset of the counters in a slot.
    pub counters_at: u32,
    /// Blocks are laid out at random, by this seed: for tests.
    pub shuffle: Option<u64>,
    /// Whether plans have OSR entry points and deopt points: what is opened by a process that ran before
    /// is reverted, too.
    pub osr_map: bool,
    /// Plans of earlier recordings.
    pub cache: Option<Plans>,
    /// Notified of files that take long to rewrite.
    pub notify: Option<OnPreparing>,
}

/// Where the probes of a module find what is theirs in a thread's slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotOffsets {
    /// Number in the session of the module's first function.
    pub first_function: FunctionIndex,
    /// Offset of the accumulators.
    pub accumulators: u32,
    /// Offset of the module's first counter.
    pub counters: u32,
    /// Size of rings in bytes.
    pub ring_bytes: u32,
}

impl SlotOffsets {
    /// For code that has nothing but counters.
    pub const fn counters(at: u32) -> SlotOffsets {
        SlotOffsets {
            first_function: FunctionIndex(0),
            accumulators: 0,
            counters: at,
            ring_bytes: 1,
        }
    }
}

/// All modules of a session.
pub struct Modules {
    options: Arc<ModuleOptions>,
    ahead: Ahead<FileId, Result<Made, ModuleError>>,
    by_file: HashMap<FileId, Result<ModuleIndex, String>>,
    all: Vec<Module>,
    functions: u32,
    counters: u32,
    /// Seconds and bytes spent on lifting and rewriting.
    pub work: Work,
}

/// What lifting and rewriting took.
#[derive(Clone, Copy, Debug, Default)]
pub struct Work {
    /// Bytes of original code.
    pub code_bytes: u64,
    /// Wall-clock seconds, of each file by itself.
    pub seconds: f64,
    /// Files that needed none of it: their plans were kept from earlier.
    pub from_cache: u32,
}

impl Work {
    fn add(&mut self, more: Work) {
        self.code_bytes += more.code_bytes;
        self.seconds += more.seconds;
        self.from_cache += more.from_cache;
    }
}

/// Reads and parses the image at `path`, with the symbols of a separate debug file if there is
/// one.
///
/// # Errors
///
/// When it cannot be read, is no image for this machine, is a Go program, or was laid out before.
pub fn open_image(path: &Path) -> Result<Image, ModuleError> {
    Ok(Opened::open(path, path)?.image)
}

/// An image with the files that it was made of.
struct Opened {
    image: Image,
    file: Bytes,
    debug_file: Option<Bytes>,
}

impl Opened {
    /// The image of the file that goes by `path`, read through `open_at`.
    fn open(path: &Path, open_at: &Path) -> Result<Opened, ModuleError> {
        Opened::of(File::open(open_at), path, open_at)
    }

    /// As [`Opened::open`], where the file was opened already.
    fn of(file: io::Result<File>, path: &Path, open_at: &Path) -> Result<Opened, ModuleError> {
        let read = |error| ModuleError::Read { path: path.to_owned(), error };
        let file = file.map_err(read)?;
        // SAFETY: the map is private to us; a file that shrinks while it is mapped would fault, as it
        // would for the program that runs from it.
        let map = unsafe { memmap2::Mmap::map(&file) }.map_err(read)?;
        let file = Bytes::new(map);
        let image = Image::parse(file.clone())
            .map_err(|error| ModuleError::Image { path: path.to_owned(), error })?;
        if image.language() == Language::Go {
            return Err(ModuleError::Go(path.to_owned()));
        }
        // What its loader calls in the library that it opens; all versions have that in common.
        if fettle_lift::runtime::has_c_text(&image, b"__wine_main") {
            return Err(ModuleError::Wine(path.to_owned()));
        }
        if let Some(setter) = segment_base::setter(&image, path) {
            return Err(ModuleError::SetsBase { path: path.to_owned(), setter });
        }
        if image.section(LAID_OUT).is_some() {
            return Err(ModuleError::LaidOut(path.to_owned()));
        }
        let (image, debug_file) = with_debug_file(image, open_at);
        Ok(Opened { image, file, debug_file })
    }
}

/// A file's rewritten text, with what it was made of.
pub(crate) struct Made {
    image: Image,
    plan: Arc<Plan>,
    arguments: Recorded,
    work: Work,
}

impl Made {
    /// A file's rewritten text, from the cache or made anew, and what it records of arguments.
    fn of(opened: Opened, options: &ModuleOptions, far: &Far) -> Made {
        // A new option says here whether plans depend on it.
        let ModuleOptions {
            mode,
            depth,
            selection,
            user_probe,
            arguments,
            shuffle,
            osr_map,
            cache,
            functions: _,
            counters: _,
            ring_bytes: _,
            accumulators_at: _,
            counters_at: _,
            notify: _,
        } = options;
        let Opened { image, file, debug_file } = opened;
        // What functions take is said by debug information, wherever that is, and a probe of the
        // user's own changes all the time.
        let cache = cache
            .as_ref()
            .filter(|_| arguments.is_empty() && user_probe.is_none() && shuffle.is_none());
        let wanted = Wanted {
            file,
            build_id: image.build_id().unwrap_or_default().to_vec(),
            debug_file,
            mode: *mode,
            depth: *depth,
            selection: selection.clone(),
            osr_map: *osr_map,
        };
        let key = cache.as_ref().map(|c| c.key(&wanted));
        if let (Some(cache), Some(key)) = (&cache, &key)
            && let Some(plan) = cache.get(key)
        {
            let work = Work { from_cache: 1, ..Work::default() };
            return Made { image, plan: Arc::new(plan), arguments: Recorded::default(), work };
        }
        let begin = Instant::now();
        let lifted = fettle_lift::lift(&image);
        far.all.store(lifted.functions.len(), Ordering::Relaxed);
        let behind = locking::goes_on_in(*mode, &image, &lifted.functions);
        let wants = |f: &Function| selection.wants(&image, f) || behind.contains(&f.entry);
        let select = |f: &Function| wants(f) && !must_stay(&image, f);
        let arguments = arguments::recorded(&image, &lifted.functions, arguments);
        let probes = Probing {
            mode: *mode,
            depth: *depth,
            arguments: Cow::Borrowed(&arguments.classes),
            user_probe: user_probe.as_ref(),
        };
        let shuffled = shuffle.map(|seed| Placement::shuffled(&lifted.functions, seed));
        let options = PlanOptions {
            select: &select,
            placement: shuffled.as_ref(),
            osr_map: *osr_map,
            done: Some(&far.done),
            ..PlanOptions::new(probes)
        };
        let plan = Arc::new(fettle_rewrite::plan(&image, &lifted, options));
        let seconds = begin.elapsed().as_secs_f64();
        let work = Work { code_bytes: lifted.code_bytes, seconds, from_cache: 0 };
        if let (Some(cache), Some(key)) = (cache, key) {
            cache.put(key, wanted, plan.clone());
        }
        Made { image, plan, arguments, work }
    }
}

/// Whether a function must be left unmodified because others rely on its bytes: debuggers and unwinders
/// know a signal handler's return by its bytes, and we redirect `_dl_find_object` ourselves (see
/// [`crate::libraries`]).
pub fn must_stay(image: &Image, function: &Function) -> bool {
    function.name.as_deref().is_some_and(|name| unversioned(name) == "_dl_find_object")
        || image.fde_at(function.entry).is_some_and(|fde| fde.signal_frame)
}

fn with_debug_file(image: Image, path: &Path) -> (Image, Option<Bytes>) {
    for candidate in fettle_image::debug_file_candidates(path, &image) {
        let Ok(bytes) = std::fs::read(&candidate) else { continue };
        let bytes = Bytes::new(bytes);
        let Ok(debug) = Image::parse(bytes.clone()) else { continue };
        if debug.build_id().is_some() && debug.build_id() == image.build_id() {
            return (image.with_debug(&debug), Some(bytes));
        }
    }
    (image, None)
}

impl Modules {
    /// None yet.
    pub fn new(options: ModuleOptions) -> Modules {
        Modules {
            ahead: Ahead::new(options.notify),
            options: Arc::new(options),
            by_file: HashMap::new(),
            all: Vec::new(),
            functions: 0,
            counters: 0,
            work: Work::default(),
        }
    }

    /// One of them.
    pub fn at(&self, module: ModuleIndex) -> &Module {
        &self.all[module.place()]
    }

    /// All modules so far.
    pub fn all(&self) -> &[Module] {
        &self.all
    }

    /// Whether a function is where its program starts, which no program comes back from.
    pub fn is_start(&self, function: FunctionIndex) -> bool {
        self.all.iter().any(|module| {
            let index = function.since(module.first_function);
            let planned = index.and_then(|index| module.plan.functions.get(index as usize));
            planned.is_some_and(|planned| planned.entry == module.image.entry())
        })
    }

    /// Numbers in use: functions and counters.
    pub fn numbers(&self) -> (u32, u32) {
        (self.functions, self.counters)
    }

    /// What is recorded of the arguments of a module's functions.
    pub fn recorded(&self, image: &Image, functions: &[Function]) -> Recorded {
        arguments::recorded(image, functions, &self.options.arguments)
    }

    /// What probes do in a module.
    pub fn probing<'a>(&'a self, recorded: &'a Recorded) -> Probing<'a> {
        let ModuleOptions { mode, depth, user_probe, .. } = &*self.options;
        let arguments = Cow::Borrowed(&recorded.classes);
        Probing { mode: *mode, depth: *depth, arguments, user_probe: user_probe.as_ref() }
    }

    /// Where in a thread's slot the next module's probes find what is theirs.
    pub fn next_offsets(&self) -> SlotOffsets {
        let options = &self.options;
        SlotOffsets {
            first_function: FunctionIndex(self.functions),
            accumulators: options.accumulators_at,
            counters: options.counters_at + self.counters * 8,
            ring_bytes: options.ring_bytes,
        }
    }

    /// Whether arguments of any function are recorded.
    pub fn has_arguments(&self) -> bool {
        !self.options.arguments.is_empty()
    }

    /// The module of the file at `path` (read through `open_at`, which may be a more reliable
    /// name of it, such as `/proc/PID/exe`).
    ///
    /// # Errors
    ///
    /// When it cannot be recorded. A file that failed once fails again.
    pub fn get(&mut self, path: &Path, open_at: &Path) -> Result<ModuleIndex, ModuleError> {
        let read = |error| ModuleError::Read { path: path.to_owned(), error };
        let file = FileId::of(open_at).map_err(read)?;
        if let Some(known) = self.by_file.get(&file) {
            return known.clone().map_err(ModuleError::Again);
        }
        let made = self.make(file, path, open_at);
        self.by_file.insert(file, made.as_ref().map(|i| *i).map_err(ToString::to_string));
        made
    }

    /// Requests for the module of a file get this one from now on: it is what [`Modules::get`] would
    /// make of it.
    pub fn is_of(&mut self, module: ModuleIndex, file: FileId) {
        self.by_file.insert(file, Ok(module));
    }

    /// As [`Modules::get`] for a program that was executed as `called`. The module goes by that
    /// name, unless the same file is executed by several.
    ///
    /// # Errors
    ///
    /// As those of [`Modules::get`].
    pub fn get_as(
        &mut self,
        path: &Path,
        called: &Path,
        open_at: &Path,
    ) -> Result<ModuleIndex, ModuleError> {
        let before = self.all.len();
        let module = self.get(path, open_at)?;
        let row = &mut self.all[module.place()];
        if module.place() == before {
            row.path = called.to_owned();
        } else if row.path != called {
            row.path = path.to_owned();
        }
        Ok(module)
    }

    /// Begins to rewrite a file, unless that has begun: a later request for it waits less. Whether it
    /// need not wait at all, whatever [`Modules::get`] says.
    pub fn begin(&mut self, path: &Path, open_at: &Path) -> bool {
        let Ok(file) = FileId::of(open_at) else { return true };
        if self.by_file.contains_key(&file) {
            return true;
        }
        self.begin_file(file, path, open_at);
        self.ahead.is_ready(file)
    }

    fn begin_file(&mut self, file: FileId, path: &Path, open_at: &Path) {
        let options = self.options.clone();
        let of_job = path.to_owned();
        // The process that has it open may be gone when its turn comes.
        let opened = File::open(open_at);
        let open_at = open_at.to_owned();
        let make = move |far: &Far| {
            let opened = Opened::of(opened, &of_job, &open_at)?;
            Ok(Made::of(opened, &options, far))
        };
        self.ahead.begin(file, path, make);
    }

    fn make(
        &mut self,
        file: FileId,
        path: &Path,
        open_at: &Path,
    ) -> Result<ModuleIndex, ModuleError> {
        self.begin_file(file, path, open_at);
        let made = self.ahead.take(file).expect("it has begun")?;
        self.work.add(made.work);
        self.add(path, made.image, made.plan, made.arguments)
    }

    /// Takes in a module with its rewritten text, and what that records of arguments. Its functions and
    /// counters have the [next numbers](Modules::numbers).
    ///
    /// # Errors
    ///
    /// When there are no more numbers.
    pub fn add(
        &mut self,
        path: &Path,
        image: Image,
        plan: Arc<Plan>,
        arguments: Recorded,
    ) -> Result<ModuleIndex, ModuleError> {
        let (first_function, first_counter) = (FunctionIndex(self.functions), self.counters);
        let functions = self.functions + plan.functions.len() as u32;
        let counters = first_counter.saturating_add(plan.counters);
        if functions > self.options.functions || counters > self.options.counters {
            return Err(ModuleError::TooManyFunctions(path.to_owned()));
        }
        (self.functions, self.counters) = (functions, counters);
        let module = ModuleIndex(self.all.len() as u32);
        self.all.push(Module {
            id: module,
            path: path.to_owned(),
            image,
            plan,
            first_function,
            first_counter,
            arguments,
            linked: HashMap::new(),
        });
        Ok(module)
    }

    /// Where the heap of a program that has not run yet is to begin, so that a module's rewritten text
    /// gets its best address; `None` if it has that.
    pub fn raised_heap(
        &self,
        module: ModuleIndex,
        load_bias: LoadBias,
        space: AddressSpace<'_>,
    ) -> Option<LiveAddr> {
        let module = &self.all[module.place()];
        let size = fettle_rewrite::link::footprint(&module.plan, &module.image);
        raised_heap(&module.image, load_bias, size, space)
    }

    /// Links a module for a process that has it at `load_bias`.
    ///
    /// # Errors
    ///
    /// When there is no room or a memory file cannot be had.
    pub fn place(
        &mut self,
        module: ModuleIndex,
        load_bias: LoadBias,
        space: AddressSpace<'_>,
    ) -> Result<Arc<Placed>, ModuleError> {
        let options = &self.options;
        let module = &mut self.all[module.place()];
        let size = fettle_rewrite::link::footprint(&module.plan, &module.image);
        let text_at = find_room(&module.image, load_bias, size, space)
            .ok_or_else(|| ModuleError::NoRoom(module.path.clone()))?;
        let absolute =
            module.plan.tables.iter().any(|t| t.kind == fettle_lift::TableKind::Absolute);
        let parameters = LinkParameters {
            text_at,
            // Only absolute tables depend on it; without them one file serves every process.
            load_bias: if absolute { load_bias } else { LoadBias::NONE },
            first_function: module.first_function,
            accumulators: options.accumulators_at,
            counters: options.counters_at + module.first_counter * 8,
            ring_bytes: options.ring_bytes,
        };
        if let Some(placed) = module.linked.get(&parameters) {
            return Ok(placed.clone());
        }
        let linked = fettle_rewrite::link(&module.plan, &module.image, parameters)
            .map_err(|error| ModuleError::Link { path: module.path.clone(), error })?;
        let placed = to_file(linked)
            .map_err(|error| ModuleError::Memory { path: module.path.clone(), error })?;
        let placed = Arc::new(placed);
        module.linked.insert(parameters, placed.clone());
        Ok(placed)
    }
}

/// What limits the sizes of files, if that is the error.
fn size_hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::FileTooLarge => " (the limit on files' sizes, RLIMIT_FSIZE, `ulimit -f`)",
        _ => "",
    }
}

/// The end of a sentence about `setter`: whose library it is, if it is not the file itself.
fn of_program(path: &Path, setter: &Path) -> String {
    match path == setter {
        true => String::new(),
        false => format!("; {} opens it, and is not recorded", path.display()),
    }
}

fn to_file(linked: Linked) -> io::Result<Placed> {
    // SAFETY: the name is a C string; the result is checked.
    let fd = unsafe { libc::memfd_create(c"fettle-code".as_ptr(), libc::MFD_CLOEXEC) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: `fd` was just made and has no other owner.
    let file = unsafe { File::from_raw_fd(fd) };
    let text_len = (linked.text.len() as u64).next_multiple_of(PAGE);
    let constants_len = (linked.constants.len() as u64).next_multiple_of(PAGE);
    file.set_len(text_len + constants_len)?;
    file.write_all_at(&linked.text, 0)?;
    file.write_all_at(&linked.constants, text_len)?;
    Ok(Placed { linked, file: Arc::new(file.into()), text_len, constants_len })
}

/// Counts of functions left unmodified, by reason, without what the user left out.
pub fn reasons(modules: &[Module]) -> std::collections::BTreeMap<SkipReason, u64> {
    let mut counts = std::collections::BTreeMap::new();
    for skipped in modules.iter().flat_map(|m| &m.plan.skipped) {
        if skipped.reason != SkipReason::NotSelected {
            *counts.entry(skipped.reason).or_insert(0) += 1;
        }
    }
    counts
}
