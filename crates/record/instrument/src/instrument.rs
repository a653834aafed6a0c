//! Making a file that records itself.
//!
//! The new file is the old one with one segment behind it, which the loader maps behind the old
//! ones for reading and executing:
//!
//! ```text
//! data       the agent's; it makes them writable when it records
//! text       the agent, the probes' agent, the functions, an entry guard for each, a stop for each
//!           call that forks
//! constants  jump tables, exception tables, .eh_frame, .eh_frame_hdr, what to write where, the
//!            map of functions, what made room
//! ```
//!
//! Program headers stay where they were, if `Room` can be made for one more, and sections cover
//! every byte of the segment: so tools that lay out the file again keep it.
//!
//! An *entry guard* is between an entry patch and the function's rewritten text: every thread's
//! first probed function is reached through one, so a thread without a block of its own is found
//! there, and probes themselves need not check. A forked child goes on in the middle of rewritten
//! text; so calls that fork go through a *stop*, which calls the agent before and after.
//!
//! The original text is not changed in the file: the entry patches are written at the start of a
//! run that is recorded, so that a run that is not recorded costs nothing.

use fettle_types::{FunctionIndex, LoadBias, PAGE};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};

use fettle_abi::block::{Accumulator, Clock};
use fettle_code::{Mode, PartUnwind, PlannedEntry, Probing};
use fettle_image::{Image, Kind, LinkAddr};
use fettle_lift::{Function, SkipReason, TableKind};
use fettle_record::modules::ModuleError;
use fettle_rewrite::link::LinkError;
use fettle_rewrite::plan::{PlanFixup, PlanFixupKind};
use fettle_rewrite::{LinkParameters, Plan, PlanOptions, PlannedFunction};

use crate::agent::{self, CODE_LEN, DATA_LEN, Entry, Parameters};
use crate::elf::{self, NewSection, Phdr, Sections};
use crate::forks::is_fork;
use crate::map::{self, FileMap};
use crate::object::{self, RECORDS, Refusal};
use crate::options::Options;
use crate::room::Room;
use crate::segment;
use crate::symbols::{self, NewFunction};

/// Bytes of a function's accumulator.
const ACCUMULATOR: u64 = size_of::<Accumulator>() as u64;

/// The result.
#[derive(Clone, Debug)]
pub struct Instrumented {
    /// Functions with probes.
    pub functions: u64,
    /// Functions left unmodified, by reason, without what the user left out.
    pub reasons: Vec<(&'static str, u64)>,
    /// Bytes of rewritten text.
    pub text_bytes: u64,
    /// Bytes of the input.
    pub input_bytes: u64,
    /// Bytes of the new file.
    pub output_bytes: u64,
    /// Whether the new file works after `strip` and the like.
    pub strippable: bool,
}

/// Why there is no new file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InstrumentError {
    /// The input is not a file that Fettle understands.
    #[error(transparent)]
    Input(#[from] ModuleError),
    /// It is not a file that has code of its own.
    #[error("{0} is {1}")]
    Foreign(PathBuf, &'static str),
    /// It was instrumented before.
    #[error("{0} is instrumented already: instrument the file it was made from")]
    Twice(PathBuf),
    /// Its headers make no sense.
    #[error("{0}: its headers cannot be changed: {1}")]
    Headers(PathBuf, &'static str),
    /// It is an object file that cannot be carried.
    #[error("{0}: {1}")]
    ObjectFile(PathBuf, &'static str),
    /// Nothing of it would be probed.
    #[error("{0} has no function to probe")]
    Nothing(PathBuf),
    /// More functions than there are numbers for.
    #[error("{0} has too many functions")]
    TooMany(PathBuf),
    /// Rewritten text cannot be given an address.
    #[error("{path}: {error}")]
    Link {
        /// The file.
        path: PathBuf,
        /// Why.
        error: LinkError,
    },
    /// The mode is for `fettle record` only.
    #[error("mode {0} needs `fettle record`")]
    Mode(&'static str),
    /// The mode is not for object files.
    #[error("mode {0} is for programs and libraries: link first")]
    ModeOfObject(&'static str),
    /// There is no layout for it.
    #[error("{path}: {why}")]
    Layout {
        /// The file.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// The output cannot be written.
    #[error("cannot write {path}: {error}")]
    Write {
        /// The file.
        path: PathBuf,
        /// What the system said.
        error: std::io::Error,
    },
}

/// Makes the new file.
///
/// # Errors
///
/// The reason; nothing was written then.
pub fn instrument(options: &Options) -> Result<Instrumented, InstrumentError> {
    let path = &options.input;
    if matches!(options.mode, Mode::User | Mode::Locks | Mode::Plain) {
        return Err(InstrumentError::Mode(options.mode.name()));
    }
    match sort(path) {
        Sort::Object => return instrument_object(options),
        Sort::Foreign(what) => return Err(InstrumentError::Foreign(path.clone(), what)),
        Sort::Linked => {}
    }
    let image = fettle_record::modules::open_image(path)?;
    if is_instrumented(&image) {
        return Err(InstrumentError::Twice(path.clone()));
    }
    // Functions: lifted, rewritten and checked as for a process.
    let plan = plan(&image, options);
    if plan.functions.is_empty() {
        return Err(InstrumentError::Nothing(path.clone()));
    }
    let output = std::path::absolute(&options.output).unwrap_or_else(|_| options.output.clone());
    let mut map = FileMap::new(&image, &plan, &output)
        .ok_or_else(|| InstrumentError::TooMany(path.clone()))?;
    let reasons = count(plan.skipped.iter().map(|s| s.reason));
    let functions = plan.functions.len() as u64;
    let text_bytes = plan.text.len() as u64;
    let Made { file, strippable } = Maker { image: &image, path, map: &mut map }.make(plan)?;
    if !options.dry_run {
        write(&options.output, path, &file)
            .map_err(|error| InstrumentError::Write { path: options.output.clone(), error })?;
    }
    Ok(Instrumented {
        functions,
        reasons,
        text_bytes,
        input_bytes: image.bytes().len() as u64,
        output_bytes: file.len() as u64,
        strippable,
    })
}

/// The kind of a file.
pub(crate) enum Sort {
    Object,
    Linked,
    Foreign(&'static str),
}

pub(crate) fn sort(path: &Path) -> Sort {
    use std::io::Read;
    let mut head = [0; 20];
    let read = std::fs::File::open(path).and_then(|mut file| file.read_exact(&mut head));
    if read.is_err() {
        return Sort::Linked;
    }
    match &head {
        [0x7f, b'E', b'L', b'F', ..] if elf::get(&head, 16, 2) == Some(1) => Sort::Object,
        head if head.starts_with(b"!<arch>\n") => {
            Sort::Foreign("an archive: instrument the object files before it is made of them")
        }
        head if head.starts_with(b"!<thin>\n") => {
            Sort::Foreign("a thin archive: instrument the object files that it names")
        }
        head if head.starts_with(b"BC\xc0\xde") => Sort::Foreign(
            "LLVM bitcode, from which the linker makes other code: compile without -flto",
        ),
        _ => Sort::Linked,
    }
}

fn instrument_object(options: &Options) -> Result<Instrumented, InstrumentError> {
    let path = &options.input;
    if options.mode == Mode::Edges {
        return Err(InstrumentError::ModeOfObject(options.mode.name()));
    }
    let bytes = std::fs::read(path)
        .map_err(|error| InstrumentError::Input(ModuleError::Read { path: path.clone(), error }))?;
    let made = object::instrument(&bytes, options).map_err(|why| match why {
        Refusal::Headers(why) => InstrumentError::ObjectFile(path.clone(), why),
        Refusal::Twice => InstrumentError::Twice(path.clone()),
    })?;
    if !options.dry_run {
        write(&options.output, path, &made.file)
            .map_err(|error| InstrumentError::Write { path: options.output.clone(), error })?;
    }
    Ok(Instrumented {
        functions: made.functions,
        reasons: count(made.skipped.into_iter()),
        text_bytes: made.text_bytes,
        input_bytes: bytes.len() as u64,
        output_bytes: made.file.len() as u64,
        strippable: true,
    })
}

/// Counts reasons, without what the user left out.
pub(crate) fn count(reasons: impl Iterator<Item = SkipReason>) -> Vec<(&'static str, u64)> {
    let mut counts: BTreeMap<SkipReason, u64> = BTreeMap::new();
    for reason in reasons.filter(|r| *r != SkipReason::NotSelected) {
        *counts.entry(reason).or_default() += 1;
    }
    counts.into_iter().map(|(r, n)| (r.describe(), n)).collect()
}

/// Whether `image` was made by [`instrument`], or is linked from object files that were.
pub fn is_instrumented(image: &Image) -> bool {
    let ours = |at: u64| elf::get(image.bytes(), at as usize, 8) == Some(agent::MAGIC);
    image.segments().iter().any(|s| ours(s.file_offset)) || image.section(RECORDS).is_some()
}

/// All or nothing: the file appears under its name when it is whole.
pub(crate) fn write(output: &Path, input: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let folder = match output.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    match std::fs::metadata(output) {
        Ok(there) if there.is_dir() => return Err(std::io::ErrorKind::IsADirectory.into()),
        // The new file would replace it, and a program is no device.
        Ok(there) if !there.is_file() => {
            return Err(std::io::Error::other("it is there, and is no regular file"));
        }
        _ => {}
    }
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    file.write_all(bytes)?;
    // Without set-user-ID and set-group-ID: rewritten, they would grant more than the input did.
    let mut mode = std::fs::metadata(input)?.permissions();
    use std::os::unix::fs::PermissionsExt;
    mode.set_mode(mode.mode() & 0o777);
    file.as_file().set_permissions(mode)?;
    file.persist(output).map_err(|e| e.error)?;
    Ok(())
}

fn plan(image: &Image, options: &Options) -> Plan {
    let lifted = fettle_lift::lift(image);
    let forks = fork_targets(image);
    let selection = &options.selection;
    // Functions that fork have no probes: their frames would be open in two processes.
    let select = |f: &Function| selection.wants(image, f) && forks.binary_search(&f.entry).is_err();
    fettle_rewrite::plan(
        image,
        &lifted,
        PlanOptions { select: &select, ..PlanOptions::new(Probing::new(options.mode)) },
    )
}

/// Targets of calls that fork, sorted.
fn fork_targets(image: &Image) -> Vec<LinkAddr> {
    let plt = image.plt().iter().filter(|p| is_fork(&p.target)).map(|p| p.start);
    let own =
        image.symbols().iter().filter(|s| s.is_function() && is_fork(&s.name)).map(|s| s.addr);
    let mut all: Vec<LinkAddr> = plt.chain(own).collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// A new file.
struct Made {
    file: Vec<u8>,
    /// Whether tools may lay it out again.
    strippable: bool,
}

struct Maker<'a> {
    image: &'a Image,
    path: &'a Path,
    map: &'a mut FileMap,
}

impl Maker<'_> {
    fn headers(&self, why: &'static str) -> InstrumentError {
        InstrumentError::Headers(self.path.to_owned(), why)
    }

    fn make(self, mut plan: Plan) -> Result<Made, InstrumentError> {
        let headers = segment::headers(self.image).map_err(|why| self.headers(why))?;
        let library = self.image.kind() == Kind::SharedLibrary;

        let mut sections = Sections::read(self.image.bytes())
            .ok_or_else(|| self.headers("the section headers make no sense"))?;
        // The segment, and the unwinder's table if there is none.
        let more = 1 + usize::from(!headers.iter().any(|h| h.kind() == elf::PT_GNU_EH_FRAME));
        let room = Room::find(self.image.bytes(), &headers, &sections, more);

        // Where: behind everything, in memory and in the file.
        let (data_at, data_offset) = segment::place(self.image, &headers, room.is_some())
            .map_err(|why| self.headers(why))?;
        let agent_at = data_at + DATA_LEN;
        let text_at = agent_at + CODE_LEN;
        let offset_of = |at: u64| at - data_at + data_offset;

        // Rewritten text: entry guards and stops, then addresses.
        let check = if library { Entry::CheckLibrary } else { Entry::Check };
        add_entry_guards(&mut plan, check);
        add_stops(&mut plan, &fork_targets(self.image), LinkAddr(text_at));
        let linked = fettle_rewrite::link(
            &plan,
            self.image,
            LinkParameters {
                text_at: LinkAddr(text_at),
                load_bias: LoadBias::NONE,
                first_function: FunctionIndex(self.map.first_function),
                accumulators: map::ACCUMULATORS,
                counters: map::COUNTERS_AT + self.map.first_counter * 8,
                ring_bytes: map::RING_BYTES,
            },
        )
        .map_err(|error| InstrumentError::Link { path: self.path.to_owned(), error })?;

        // Constants: the linked ones without their program headers, what the agent has to do.
        let constants_at = linked.constants_at.0;
        let mut constants = linked.constants;
        constants.truncate((linked.program_headers.0.0 - constants_at) as usize);
        let mut list = |words: Vec<u64>| -> u64 {
            constants.resize(constants.len().next_multiple_of(16), 0);
            let at = constants_at + constants.len() as u64;
            constants.extend(words.iter().flat_map(|w| w.to_le_bytes()));
            at
        };
        let writes = linked.writes.iter().flat_map(|(at, bytes)| {
            let mut word = [0; 8];
            word[..bytes.len()].copy_from_slice(bytes);
            [at.0, u64::from_le_bytes(word)]
        });
        // Two words in front show the agent that the constants are where it looks for them: tools
        // that lay out files again do not know these references.
        let seal = [agent::MAGIC, self.map.id];
        let sealed = list(seal.into_iter().chain(writes).collect());
        let writes = (sealed + 16, linked.writes.len() as u64);
        let relocs = match self.image.kind() {
            Kind::Executable => Vec::new(),
            _ => absolute_entries(&plan, constants_at),
        };
        let relocs = (list(relocs.clone()), relocs.len() as u64);
        let ranges: Vec<u64> = headers
            .iter()
            .filter(|h| h.kind() == elf::PT_LOAD && h.flags() & 1 != 0)
            .flat_map(|h| {
                let start = h.at() & !(PAGE - 1);
                let end = (h.at() + h.mem_size()).next_multiple_of(PAGE);
                let f = u64::from(h.flags());
                // PF_X, PF_W, PF_R are 1, 2, 4; PROT_READ, PROT_WRITE, PROT_EXEC are 1, 2, 4.
                [start, end - start, f >> 2 & 1 | f & 2 | (f & 1) << 2]
            })
            .collect();
        let ranges = (list(ranges.clone()), ranges.len() as u64 / 3);
        let lists_end = list(Vec::new());
        let map_at = lists_end;
        if plan.mode == Mode::Sample {
            let code =
                |f: &PlannedFunction| (text_at + u64::from(f.text_offset), u64::from(f.text_size));
            self.map.code = plan.functions.iter().map(code).collect();
        }
        let map_json = serde_json::to_vec(&*self.map).expect("plain data");
        constants.extend_from_slice(&map_json);
        let here = |constants: &Vec<u8>| constants_at + constants.len() as u64;

        // The file: the old one, the segments, section headers. Program headers stay where they
        // are, or all go behind the rest.
        let mut file = self.image.bytes().to_vec();
        let mut new = room.as_ref().map_or_else(|| headers.clone(), |room| room.keep(&headers));
        let moved = room.as_ref().map(|room| {
            while here(&constants) % Room::ALIGN != room.phase() {
                constants.push(0);
            }
            let at = here(&constants);
            constants.extend_from_slice(room.bytes(&file));
            room.refer(&mut file, &mut new, &mut sections, at, offset_of(at))
        });
        let phdr_at = match &room {
            Some(_) => segment::first_address(&headers) + elf::get(&file, 32, 8).unwrap_or(0),
            None => here(&constants).next_multiple_of(16),
        };
        let phdrs = new.len() + more;
        if room.is_none() {
            constants.resize((phdr_at - constants_at) as usize + phdrs * elf::PHDR, 0);
        }
        let len = here(&constants) - data_at;
        let segment = Phdr::new(elf::PT_LOAD, 5, data_offset, data_at, len, PAGE);
        let last = new.iter().rposition(|h| h.kind() == elf::PT_LOAD).expect("has segments");
        new.insert(last + 1, segment);
        let frame = linked.eh_frame_hdr.0;
        let frame_len = linked.eh_frame_hdr_size;
        segment::set_frame_header(&mut new, offset_of(frame), frame, frame_len);
        let phdr_offset = match &room {
            Some(_) => phdr_at - segment::first_address(&headers),
            None => offset_of(phdr_at),
        };
        debug_assert_eq!(new.len(), phdrs);

        let start_at =
            agent_at + u64::from(agent::offset(if library { Entry::Init } else { Entry::Start }));
        let original = if library {
            self.take_init(&mut file, &headers, start_at)?
        } else {
            elf::set(&mut file, 24, 8, start_at);
            Some(self.image.entry().0)
        };
        let (reserve, slot_size) = match plan.mode {
            Mode::Blocks | Mode::Edges => (
                (
                    u64::from(map::COUNTERS_AT) + u64::from(self.map.first_counter) * 8,
                    u64::from(plan.counters) * 8,
                ),
                u64::from(map::COUNTERS_AT) + u64::from(map::COUNTERS) * 8,
            ),
            _ => (
                (
                    u64::from(map::ACCUMULATORS) + u64::from(self.map.first_function) * ACCUMULATOR,
                    plan.functions.len() as u64 * ACCUMULATOR,
                ),
                u64::from(map::COUNTERS_AT),
            ),
        };
        let parameters = Parameters {
            original: original.unwrap_or(0),
            data_at,
            has_original: original.is_some(),
            writes,
            relocs,
            ranges,
            constants: (constants_at, (lists_end - constants_at).next_multiple_of(PAGE)),
            map_id: self.map.id,
            map: (map_at, map_json.len() as u64),
            // Files of all modes may meet in one process.
            slot_size: slot_size.max(u64::from(map::COUNTERS_AT) + u64::from(map::COUNTERS) * 8),
            accumulators: u64::from(map::ACCUMULATORS),
            records: plan.mode == Mode::Events,
            reserve,
            is_library: library,
            timed: plan.mode.is_timed(),
            samples: plan.mode == Mode::Sample,
            clock: if plan.mode == Mode::Cpu { Clock::Cpu } else { Clock::Ticks },
        };
        file.resize(data_offset as usize, 0);
        file.extend_from_slice(&parameters.data());
        file.extend_from_slice(agent::CODE);
        file.resize(offset_of(text_at) as usize, 0xcc);
        file.extend_from_slice(&linked.text);
        file.resize(offset_of(constants_at) as usize, 0);
        file.extend_from_slice(&constants);
        segment::write_headers(&mut file, &mut new, phdr_offset, phdr_at);
        let mut section = |name, flags, from, to, align| {
            let (at, offset, size) = (from, offset_of(from), to - from);
            sections.add(&NewSection {
                name,
                kind: elf::SHT_PROGBITS,
                flags,
                at,
                offset,
                size,
                align,
            })
        };
        let text_end = text_at + linked.text.len() as u64;
        section(".fettle.data", 2, data_at, data_at + DATA_LEN, PAGE);
        let text = section(".fettle.text", 6, agent_at, text_end, PAGE);
        section(".fettle.tables", 2, constants_at, frame, 16);
        // A section of its own: tools know no other way to keep a program header's place.
        section(".fettle.eh_frame_hdr", 2, frame, frame + frame_len, 4);
        section(".fettle.lists", 2, frame + frame_len, lists_end, 1);
        section(".fettle.map", 2, map_at, map_at + map_json.len() as u64, 16);
        if room.is_none() {
            section(".fettle.phdrs", 2, phdr_at, phdr_at + (phdrs * elf::PHDR) as u64, 8);
        }
        let functions: Vec<NewFunction<'_>> = plan
            .functions
            .iter()
            .zip(&self.map.functions)
            .map(|(f, row)| NewFunction {
                name: &row.name,
                suffix: ".fettle",
                old: (f.entry.0, f.size),
                new: (text_at + u64::from(f.text_offset), u64::from(f.text_size)),
            })
            .collect();
        symbols::add(&mut file, &mut sections, &functions, text, moved);
        symbols::add_frames(&mut file, &mut sections, &plan, text_at);
        sections.write(&mut file).ok_or_else(|| self.headers("there are too many sections"))?;
        Ok(Made { file, strippable: room.is_some() })
    }

    /// Makes `start` the library's first instruction; returns the one before.
    fn take_init(
        &self,
        file: &mut [u8],
        headers: &[Phdr],
        start: u64,
    ) -> Result<Option<u64>, InstrumentError> {
        let dynamic = headers
            .iter()
            .find(|h| h.kind() == elf::PT_DYNAMIC)
            .ok_or_else(|| self.headers("there is no dynamic section"))?;
        let from = dynamic.offset() as usize;
        let count = dynamic.file_size() as usize / 16;
        let mut null = None;
        for i in 0..count {
            let at = from + i * 16;
            match elf::get(file, at, 8) {
                Some(elf::DT_INIT) => {
                    let old = elf::get(file, at + 8, 8).filter(|old| *old != 0);
                    elf::set(file, at + 8, 8, start);
                    return Ok(old);
                }
                Some(elf::DT_NULL) => {
                    null = Some(i);
                    break;
                }
                Some(_) => {}
                None => return Err(self.headers("the dynamic section lies outside of the file")),
            }
        }
        match null {
            // Linkers leave some padding behind the end.
            Some(i) if i + 1 < count && elf::get(file, from + i * 16 + 16, 8) == Some(0) => {
                elf::set(file, from + i * 16, 8, elf::DT_INIT);
                elf::set(file, from + i * 16 + 8, 8, start);
                Ok(None)
            }
            _ => Err(self.headers("its dynamic section has no room for an initialiser")),
        }
    }
}

/// Offset from `at` in the plan's text to an entry of the agent in front of it.
fn to_agent(entry: Entry, at: u32) -> [u8; 4] {
    let to = i64::from(agent::offset(entry)) - CODE_LEN as i64;
    ((to - i64::from(at) - 4) as i32).to_le_bytes()
}

/// Adds unwind information for code whose instructions do not move the stack pointer otherwise.
fn add_unwind(plan: &mut Plan, start: u32, program: Vec<u8>) {
    let base = plan.functions[0].text_offset;
    let end = plan.text.len() as u32;
    plan.unwind.push((
        0,
        PartUnwind {
            start: start - base,
            end: end - base,
            program,
            personality: None,
            table: None,
            signal_frame: false,
        },
    ));
}

/// Leads every entry patch to its function through an entry guard.
fn add_entry_guards(plan: &mut Plan, check: Entry) {
    plan.text.resize(plan.text.len().next_multiple_of(16), 0xcc);
    let start = plan.text.len() as u32;
    let entries: std::collections::HashSet<u32> =
        plan.functions.iter().map(|f| f.text_offset).collect();
    for board in plan.entry_patches.iter_mut().filter(|b| entries.contains(&b.to)) {
        let entry_guard = plan.text.len() as u32;
        plan.text.push(0xe8);
        plan.text.extend_from_slice(&to_agent(check, entry_guard + 1));
        plan.text.push(0xe9);
        let distance = board.to.wrapping_sub(entry_guard + 10);
        plan.text.extend_from_slice(&distance.to_le_bytes());
        board.to = entry_guard;
    }
    if plan.text.len() as u32 > start {
        add_unwind(plan, start, Vec::new());
    }
}

/// Redirects calls of `forks` to stops.
fn add_stops(plan: &mut Plan, forks: &[LinkAddr], text_at: LinkAddr) {
    let mut stops: BTreeMap<LinkAddr, u32> = BTreeMap::new();
    for i in 0..plan.fixups.len() {
        let fixup = plan.fixups[i];
        let PlanFixupKind::Original { to, after: 0 } = fixup.kind else { continue };
        let opcode = plan.text[fixup.at as usize - 1];
        if !matches!(opcode, 0xe8 | 0xe9) || forks.binary_search(&to).is_err() {
            continue;
        }
        let stop = match stops.get(&to) {
            Some(stop) => *stop,
            None => {
                let stop = add_stop(plan, to);
                stops.insert(to, stop);
                stop
            }
        };
        let to = LinkAddr(text_at.0.wrapping_add(u64::from(stop)));
        plan.fixups[i].kind = PlanFixupKind::Original { to, after: 0 };
    }
}

fn add_stop(plan: &mut Plan, to: LinkAddr) -> u32 {
    plan.text.resize(plan.text.len().next_multiple_of(16), 0xcc);
    let start = plan.text.len() as u32;
    // sub rsp, 8; call before; call TO; call after; add rsp, 8; ret
    plan.text.extend_from_slice(&[0x48, 0x83, 0xec, 0x08, 0xe8]);
    plan.text.extend_from_slice(&to_agent(Entry::Before, start + 5));
    plan.text.extend_from_slice(&[0xe8, 0, 0, 0, 0, 0xe8]);
    plan.text.extend_from_slice(&to_agent(Entry::After, start + 15));
    plan.text.extend_from_slice(&[0x48, 0x83, 0xc4, 0x08, 0xc3]);
    let kind = PlanFixupKind::Original { to, after: 0 };
    plan.fixups.push(PlanFixup { at: start + 10, function: 0, kind });
    // DW_CFA_advance_loc 4, DW_CFA_def_cfa_offset 16, and back for the return.
    add_unwind(plan, start, vec![0x44, 0x0e, 16, 0x40 | 19, 0x0e, 8]);
    start
}

/// Link addresses of the words of jump tables that hold addresses. The tables come first among
/// the constants, each aligned to eight bytes.
pub(crate) fn absolute_entries(plan: &Plan, constants_at: u64) -> Vec<u64> {
    let mut at = constants_at;
    let mut all = Vec::new();
    for table in &plan.tables {
        at = at.next_multiple_of(8);
        let count = table.entries.len() as u64;
        if table.kind == TableKind::Absolute {
            let places = (at..).step_by(8).zip(&table.entries);
            let places = places.filter(|(_, entry)| **entry != PlannedEntry::Null);
            all.extend(places.map(|(at, _)| at));
            at += count * 8;
        } else {
            at += count * 4;
        }
    }
    all
}
