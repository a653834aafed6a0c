//! A file whose hot code is in another order, without probes, and without Fettle when it runs.
//!
//! The new file is the old one with two segments behind it:
//!
//! ```text
//! text       functions in their new order                       read, execute
//! constants  jump tables, exception tables, .eh_frame,          read; and write, if jump tables
//!            .eh_frame_hdr, relocations, what made room,        hold addresses
//!            program headers if there is no room for them
//! ```
//!
//! Unlike a linker we do not know every reference to a function, so the original text stays: an
//! entry patch at each original entry leads to the rewritten text, and known calls are redirected
//! to it. Jump tables of absolute addresses need relocations in position-independent files: the
//! whole relocation table goes behind the rest, with more of them.

use fettle_types::{FunctionIndex, LoadBias, PAGE};
use std::collections::{HashMap, HashSet};
use std::path::Path;

use fettle_code::{Mode, Pointers, Probing};
use fettle_image::{Image, Kind, LinkAddr};
use fettle_lift::{Function, Lifted, Placement};
use fettle_record::modules::{LAID_OUT, must_stay};
use fettle_rewrite::{LinkParameters, Linked, Plan, PlanOptions};

use crate::elf::{self, NewSection, Phdr, Sections};
use crate::instrument::{self, InstrumentError, Sort};
use crate::room::Room;
use crate::segment;
use crate::symbols::{self, NewFunction};

const DT_RELA: u64 = 7;
const DT_RELASZ: u64 = 8;
const DT_RELACOUNT: u64 = 0x6fff_fff9;
const RELA: u64 = 24;
const R_X86_64_RELATIVE: u64 = 8;

/// Which functions are laid out, and how.
#[derive(Debug)]
pub struct Order {
    /// The order of their blocks.
    pub placement: Placement,
    /// Where the functions start.
    pub entries: HashSet<LinkAddr>,
    /// Indirect calls that are compared with a function first, which is then called directly.
    pub promoted: HashMap<LinkAddr, LinkAddr>,
}

/// The result.
#[derive(Clone, Debug)]
pub struct LaidOut {
    /// Functions with rewritten text.
    pub functions: u64,
    /// Calls in original text that were redirected to rewritten text.
    pub calls: u64,
    /// Functions left unmodified, by reason, without those that were not to be laid out.
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

/// Makes a file with the functions in the order that `decide` gives for its code; writes it to
/// `output`, if that is given.
///
/// # Errors
///
/// The reason; nothing was written then.
pub fn lay_out(
    input: &Path,
    output: Option<&Path>,
    decide: impl FnOnce(&Image, &[Function]) -> Result<Order, String>,
) -> Result<LaidOut, InstrumentError> {
    let failed = |why: String| InstrumentError::Layout { path: input.to_owned(), why };
    match instrument::sort(input) {
        Sort::Object => return Err(failed("an object file has no layout: link first".to_owned())),
        Sort::Foreign(what) => return Err(InstrumentError::Foreign(input.to_owned(), what)),
        Sort::Linked => {}
    }
    let image = fettle_record::modules::open_image(input)?;
    if instrument::is_instrumented(&image) {
        return Err(InstrumentError::Twice(input.to_owned()));
    }
    let lifted = fettle_lift::lift(&image);
    let Order { placement, entries, promoted } =
        decide(&image, &lifted.functions).map_err(failed)?;
    let select = |f: &Function| entries.contains(&f.entry) && !must_stay(&image, f);
    let probes = Probing::new(Mode::Plain);
    let options = PlanOptions {
        select: &select,
        placement: Some(&placement),
        pointers: Pointers::Promoted(&promoted),
        ..PlanOptions::new(probes)
    };
    let plan = fettle_rewrite::plan(&image, &lifted, options);
    if plan.functions.is_empty() {
        return Err(failed("none of the functions that ran can be moved".to_owned()));
    }
    let made = Maker { image: &image, input }.make(&plan, &lifted)?;
    if let Some(output) = output {
        instrument::write(output, input, &made.file)
            .map_err(|error| InstrumentError::Write { path: output.to_owned(), error })?;
    }
    Ok(LaidOut {
        functions: plan.functions.len() as u64,
        calls: made.calls,
        reasons: instrument::count(plan.skipped.iter().map(|s| s.reason)),
        text_bytes: plan.text.len() as u64,
        input_bytes: image.bytes().len() as u64,
        output_bytes: made.file.len() as u64,
        strippable: made.strippable,
    })
}

struct Made {
    file: Vec<u8>,
    calls: u64,
    strippable: bool,
}

struct Maker<'a> {
    image: &'a Image,
    input: &'a Path,
}

impl Maker<'_> {
    fn headers(&self, why: &'static str) -> InstrumentError {
        InstrumentError::Headers(self.input.to_owned(), why)
    }

    fn make(&self, plan: &Plan, lifted: &Lifted) -> Result<Made, InstrumentError> {
        let old = segment::headers(self.image).map_err(|why| self.headers(why))?;
        let mut sections = Sections::read(self.image.bytes())
            .ok_or_else(|| self.headers("the section headers make no sense"))?;
        // Two segments, and the unwinder's table if there is none.
        let more = 2 + usize::from(!old.iter().any(|h| h.kind() == elf::PT_GNU_EH_FRAME));
        let room = Room::find(self.image.bytes(), &old, &sections, more);
        let (text_at, text_offset) =
            segment::place(self.image, &old, room.is_some()).map_err(|why| self.headers(why))?;
        let offset_of = |at: u64| at - text_at + text_offset;
        let parameters = LinkParameters {
            text_at: LinkAddr(text_at),
            load_bias: LoadBias::NONE,
            first_function: FunctionIndex(0),
            accumulators: 0,
            counters: 0,
            ring_bytes: 1,
        };
        let linked = fettle_rewrite::link(plan, self.image, parameters)
            .map_err(|error| InstrumentError::Link { path: self.input.to_owned(), error })?;

        // The original text, with patches that lead to the rewritten.
        let mut file = self.image.bytes().to_vec();
        let calls = calls(self.image, lifted, plan, &linked);
        for (at, bytes) in linked.writes.iter().chain(&calls) {
            self.patch(&mut file, &old, *at, bytes)?;
        }

        // Constants, without the program headers that are meant for processes.
        let constants_at = linked.constants_at.0;
        let mut constants = linked.constants.clone();
        constants.truncate((linked.program_headers.0.0 - constants_at) as usize);
        let relocs = match self.image.kind() {
            Kind::Executable => Vec::new(),
            _ => instrument::absolute_entries(plan, constants_at),
        };
        let mut new = room.as_ref().map_or_else(|| old.clone(), |room| room.keep(&old));
        if !relocs.is_empty() {
            self.add_relocs(&mut file, &old, (&mut constants, constants_at), &relocs)?;
        }
        let here = |constants: &Vec<u8>| constants_at + constants.len() as u64;
        // What is moved gets sections of its own.
        let mut end = here(&constants);
        let moved = room.as_ref().map(|room| {
            while here(&constants) % Room::ALIGN != room.phase() {
                constants.push(0);
            }
            let at = here(&constants);
            constants.extend_from_slice(room.bytes(&file));
            room.refer(&mut file, &mut new, &mut sections, at, offset_of(at))
        });
        let count = new.len() + more;
        let (phdr_at, phdr_offset) = match &room {
            Some(_) => {
                let offset = elf::get(&file, 32, 8).unwrap_or(0);
                (segment::first_address(&old) + offset, offset)
            }
            None => {
                let at = here(&constants).next_multiple_of(16);
                constants.resize((at - constants_at) as usize + count * elf::PHDR, 0);
                end = here(&constants);
                (at, offset_of(at))
            }
        };

        // PF_R is 4, PF_W 2, PF_X 1.
        let writable = if relocs.is_empty() { 4 } else { 6 };
        let (text_len, constants_len) = (linked.text.len() as u64, constants.len() as u64);
        let load = |flags, at, len| Phdr::new(elf::PT_LOAD, flags, offset_of(at), at, len, PAGE);
        let last = new.iter().rposition(|h| h.kind() == elf::PT_LOAD).expect("has segments");
        new.insert(last + 1, load(5, text_at, text_len));
        new.insert(last + 2, load(writable, constants_at, constants_len));
        let (frame, frame_len) = (linked.eh_frame_hdr.0, linked.eh_frame_hdr_size);
        segment::set_frame_header(&mut new, offset_of(frame), frame, frame_len);
        debug_assert_eq!(new.len(), count);
        file.resize(text_offset as usize, 0);
        file.extend_from_slice(&linked.text);
        file.resize(offset_of(constants_at) as usize, 0);
        file.extend_from_slice(&constants);
        segment::write_headers(&mut file, &mut new, phdr_offset, phdr_at);

        // Sections cover every byte of the segments, so that tools keep them.
        let mut section = |name, flags, from: u64, to: u64, align| {
            let (at, offset, size, kind) = (from, offset_of(from), to - from, elf::SHT_PROGBITS);
            sections.add(&NewSection { name, kind, flags, at, offset, size, align })
        };
        // SHF_ALLOC is 2, SHF_WRITE 1, SHF_EXECINSTR 4.
        let data = if relocs.is_empty() { 2 } else { 3 };
        let text = section(LAID_OUT, 6, text_at, text_at + text_len, PAGE);
        section(".fettle.tables", data, constants_at, frame, 16);
        section(".fettle.eh_frame_hdr", data, frame, frame + frame_len, 4);
        section(".fettle.rest", data, frame + frame_len, end, 1);
        symbols::add(&mut file, &mut sections, &names(plan, text_at), text, moved);
        symbols::add_frames(&mut file, &mut sections, plan, text_at);
        sections.write(&mut file).ok_or_else(|| self.headers("there are too many sections"))?;
        Ok(Made { file, calls: calls.len() as u64, strippable: room.is_some() })
    }

    /// Patches original text.
    fn patch(
        &self,
        file: &mut [u8],
        headers: &[Phdr],
        at: LinkAddr,
        bytes: &[u8],
    ) -> Result<(), InstrumentError> {
        let place = headers.iter().filter(|h| h.kind() == elf::PT_LOAD).find_map(|h| {
            let inside = at.0.checked_sub(h.at()).filter(|inside| *inside < h.file_size())?;
            let from = h.offset().checked_add(inside)? as usize;
            Some(from..from.checked_add(bytes.len())?)
        });
        let place = place.and_then(|place| file.get_mut(place));
        let place = place.ok_or_else(|| self.headers("its code lies outside of the file"))?;
        place.copy_from_slice(bytes);
        Ok(())
    }

    /// Has the loader add the load address to the words at `relocs`, too: all relocations are moved
    /// to the constants.
    fn add_relocs(
        &self,
        file: &mut [u8],
        headers: &[Phdr],
        (constants, constants_at): (&mut Vec<u8>, u64),
        relocs: &[u64],
    ) -> Result<(), InstrumentError> {
        let dynamic = headers
            .iter()
            .find(|h| h.kind() == elf::PT_DYNAMIC)
            .and_then(|h| file.get_mut(h.offset() as usize..)?.get_mut(..h.file_size() as usize))
            .ok_or_else(|| self.headers("there is no dynamic section"))?;
        let mut entries: HashMap<u64, usize> = HashMap::new();
        for (i, entry) in dynamic.chunks_exact(16).enumerate() {
            match elf::get(entry, 0, 8).expect("inside") {
                elf::DT_NULL => break,
                tag => entries.entry(tag).or_insert(i * 16 + 8),
            };
        }
        let value = |dynamic: &[u8], tag: u64| {
            let at = *entries.get(&tag)?;
            Some((at, elf::get(dynamic, at, 8)?))
        };
        let table = value(dynamic, DT_RELA).zip(value(dynamic, DT_RELASZ)).and_then(|(at, len)| {
            let old = self.image.read(LinkAddr(at.1), len.1 as usize)?;
            (len.1 % RELA == 0).then_some((at.0, len, old))
        });
        let Some((at_entry, (len_entry, len), old)) = table else {
            return Err(self.headers("there is no table of relocations"));
        };
        constants.resize(constants.len().next_multiple_of(8), 0);
        let at = constants_at + constants.len() as u64;
        // Those that `DT_RELACOUNT` counts come first.
        for place in relocs {
            let offset = (place - constants_at) as usize;
            let addend = elf::get(constants, offset, 8).expect("a table's entry");
            constants
                .extend([*place, R_X86_64_RELATIVE, addend].iter().flat_map(|w| w.to_le_bytes()));
        }
        constants.extend_from_slice(old);
        elf::set(dynamic, at_entry, 8, at);
        elf::set(dynamic, len_entry, 8, len + relocs.len() as u64 * RELA);
        if let Some((entry, count)) = value(dynamic, DT_RELACOUNT) {
            elf::set(dynamic, entry, 8, count + relocs.len() as u64);
        }
        Ok(())
    }
}

/// Calls and jumps in original text to functions with rewritten text: the place, and the distance
/// that redirects it.
fn calls(image: &Image, lifted: &Lifted, plan: &Plan, linked: &Linked) -> Vec<(LinkAddr, Vec<u8>)> {
    let calls =
        fettle_rewrite::calls_to_new(image, lifted.functions.iter(), (plan, linked), &|_, _, _| {
            true
        });
    calls.into_iter().map(|(at, bytes)| (at, bytes.to_vec())).collect()
}

/// The pieces of rewritten text with their names.
fn names(plan: &Plan, text_at: u64) -> Vec<NewFunction<'_>> {
    let named = plan.chunks.iter().filter_map(|chunk| {
        let function = plan.functions.get(chunk.function as usize)?;
        let is_first = chunk.start == function.text_offset;
        Some(NewFunction {
            name: function.name.as_deref()?,
            suffix: if is_first { ".fettle" } else { ".fettle.cold" },
            old: if is_first { (function.entry.0, function.size) } else { (0, 0) },
            new: (text_at + u64::from(chunk.start), u64::from(chunk.end - chunk.start)),
        })
    });
    named.collect()
}
