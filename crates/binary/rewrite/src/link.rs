//! Giving a plan its addresses.
//!
//! Rewritten text lies above the image, within reach of 32-bit distances of it, at an address that is
//! fixed relative to it:
//!
//! ```text
//! text       the agent and the functions         read, execute
//! constants  jump tables, exception tables,      read
//!            .eh_frame, .eh_frame_hdr, program headers
//! ```
//!
//! `.eh_frame_hdr` is a merged one: it lists the original's unwind entries and the new ones, so
//! that it can take the place of the original's in the program headers that the loader and
//! unwinders look at.
//!
//! Above, because the loader describes an image to unwinders by the address that all of its link
//! addresses count from, and LLVM's libunwind takes whatever lies below that for another image's.

use fettle_abi::block::Accumulator;
use fettle_abi::record::FunctionId;
use fettle_code::unwind::{INDIRECT, PCREL4};
use fettle_code::{LandingBase, PlannedEntry};
use fettle_image::{Image, LinkAddr, Pointer};
use fettle_isa::jump;
use fettle_lift::TableKind;
use fettle_types::{FunctionIndex, LoadBias, PAGE};

use crate::plan::{Plan, PlanFixupKind};

/// Where things are, for one use of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LinkParameters {
    /// Link address of the rewritten text, not "negative": below where link addresses count from.
    pub text_at: LinkAddr,
    /// What the loader adds to link addresses.
    pub load_bias: LoadBias,
    /// Number in the session of the plan's first function.
    pub first_function: FunctionIndex,
    /// Offset of the accumulators in a thread block.
    pub accumulators: u32,
    /// Offset in a thread block of the plan's first block counter.
    pub counters: u32,
    /// Size of rings in bytes.
    pub ring_bytes: u32,
}

/// A plan with addresses: bytes to be mapped and bytes to be written.
#[derive(Clone, Debug, Default)]
pub struct Linked {
    /// Rewritten text.
    pub text: Vec<u8>,
    /// Link address of `text`.
    pub text_at: LinkAddr,
    /// Constants.
    pub constants: Vec<u8>,
    /// Link address of `constants`, on the page after the text.
    pub constants_at: LinkAddr,
    /// Link addresses of the copied jump tables, as the plan has them.
    pub tables: Vec<LinkAddr>,
    /// Bytes to be written over original code.
    pub writes: Vec<(LinkAddr, Vec<u8>)>,
    /// Link address of the merged `.eh_frame_hdr`.
    pub eh_frame_hdr: LinkAddr,
    /// Its size.
    pub eh_frame_hdr_size: u64,
    /// Link address of the new program headers, and how many there are.
    pub program_headers: (LinkAddr, u64),
}

/// Why a plan could not be linked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LinkError {
    /// Something that rewritten text refers to is out of reach.
    #[error("{to} is out of reach of rewritten text at {from}")]
    OutOfReach {
        /// Where the reference is.
        from: LinkAddr,
        /// Where it should lead.
        to: LinkAddr,
    },
    /// Unwinders would not know the code.
    #[error("rewritten text at {0} would lie below the address that its image is announced by")]
    Below(LinkAddr),
    /// More functions than identifiers.
    #[error("too many functions for one session: {0}")]
    TooManyFunctions(u32),
    /// The image's program headers cannot be read.
    #[error("the program headers cannot be read")]
    ProgramHeaders,
}

/// Bytes of address space that a plan needs at `text_at`, an upper limit.
pub fn footprint(plan: &Plan, image: &Image) -> u64 {
    let tables: u64 = plan.tables.iter().map(|t| t.entries.len() as u64 * 8 + 8).sum();
    let unwind: u64 = plan
        .unwind
        .iter()
        .map(|(_, u)| {
            u.program.len() as u64 + 64 + u.table.as_ref().map_or(0, |t| t.bytes.len() as u64 + 8)
        })
        .sum();
    let header = (image.fdes().len() as u64 + plan.unwind.len() as u64) * 8 + 4096;
    (plan.text.len() as u64).next_multiple_of(PAGE)
        + (tables + unwind + header).next_multiple_of(PAGE)
        + PAGE
}

/// Fills in everything that depends on addresses.
///
/// # Errors
///
/// When `parameters` put the code out of reach of what it refers to.
pub fn link(plan: &Plan, image: &Image, parameters: LinkParameters) -> Result<Linked, LinkError> {
    let text_at = parameters.text_at;
    if (text_at.0 as i64) < 0 {
        return Err(LinkError::Below(text_at));
    }
    let constants_at =
        LinkAddr(text_at.0.wrapping_add((plan.text.len() as u64).next_multiple_of(PAGE)));
    let mut constants = Constants { bytes: Vec::new(), at: constants_at };
    let tables = write_tables(plan, &mut constants, parameters);
    let mut out = Linked { text: plan.text.clone(), text_at, constants_at, ..Linked::default() };
    fix_text(plan, &mut out, &tables, parameters)?;
    for board in &plan.entry_patches {
        let to = LinkAddr(text_at.0.wrapping_add(u64::from(board.to)));
        let jump = jump::near(board.at.0, to.0)
            .ok_or(LinkError::OutOfReach { from: LinkAddr(board.at.0 + jump::NEAR as u64), to })?;
        out.writes.push((board.at, jump.to_vec()));
    }
    out.tables = tables;
    let entries = write_unwind(plan, text_at, &mut constants)?;
    write_header(image, entries, &mut constants, &mut out);
    out.constants = constants.bytes;
    write_program_headers(image, &mut out)?;
    Ok(out)
}

fn reach(from: LinkAddr, to: LinkAddr) -> Result<i32, LinkError> {
    i32::try_from(to.0.wrapping_sub(from.0) as i64).map_err(|_| LinkError::OutOfReach { from, to })
}

/// Constants under construction.
struct Constants {
    bytes: Vec<u8>,
    at: LinkAddr,
}

impl Constants {
    fn here(&self) -> LinkAddr {
        LinkAddr(self.at.0.wrapping_add(self.bytes.len() as u64))
    }

    fn align(&mut self, to: usize) {
        self.bytes.resize(self.bytes.len().next_multiple_of(to), 0);
    }

    /// Appends the 32-bit distance from here to `to`.
    fn distance(&mut self, to: LinkAddr) -> Result<(), LinkError> {
        let distance = reach(self.here(), to)?;
        self.bytes.extend_from_slice(&distance.to_le_bytes());
        Ok(())
    }
}

/// Writes the jump tables; gives each one's address.
fn write_tables(
    plan: &Plan,
    constants: &mut Constants,
    parameters: LinkParameters,
) -> Vec<LinkAddr> {
    let mut addresses = Vec::with_capacity(plan.tables.len());
    for table in &plan.tables {
        constants.align(8);
        let start = constants.here();
        addresses.push(start);
        for entry in &table.entries {
            let to = match entry {
                PlannedEntry::New(offset) => {
                    Some(LinkAddr(parameters.text_at.0.wrapping_add(u64::from(*offset))))
                }
                PlannedEntry::Original(original) => Some(*original),
                PlannedEntry::Null => None,
            };
            match table.kind {
                TableKind::Absolute => {
                    let live = to.map_or(0, |to| (to + parameters.load_bias).0);
                    constants.bytes.extend_from_slice(&live.to_le_bytes());
                }
                TableKind::Relative { .. } => {
                    let to = to.expect("no distance is null");
                    let distance = to.0.wrapping_sub(start.0) as i32;
                    constants.bytes.extend_from_slice(&distance.to_le_bytes());
                }
            }
        }
    }
    addresses
}

fn fix_text(
    plan: &Plan,
    out: &mut Linked,
    tables: &[LinkAddr],
    parameters: LinkParameters,
) -> Result<(), LinkError> {
    for fixup in &plan.fixups {
        let place = LinkAddr(out.text_at.0.wrapping_add(u64::from(fixup.at)));
        let number = parameters.first_function.plus(fixup.function).get();
        let id = || FunctionId::from_index(number).ok_or(LinkError::TooManyFunctions(number));
        let value: u32 = match fixup.kind {
            PlanFixupKind::Original { to, after } => {
                let from = LinkAddr(place.0.wrapping_add(4 + u64::from(after)));
                reach(from, to)? as u32
            }
            PlanFixupKind::New(to) => to.wrapping_sub(fixup.at + 4),
            PlanFixupKind::Table(t) => {
                reach(LinkAddr(place.0.wrapping_add(4)), tables[t as usize])? as u32
            }
            PlanFixupKind::TableAddress(t) => {
                let to = tables[t as usize] + parameters.load_bias;
                u32::try_from(to.0)
                    .ok()
                    .filter(|a| *a < 1 << 31)
                    .ok_or(LinkError::OutOfReach { from: place, to: LinkAddr(to.0) })?
            }
            PlanFixupKind::Accumulator(field) => {
                parameters.accumulators + number * size_of::<Accumulator>() as u32 + field
            }
            PlanFixupKind::Counter(n) => parameters.counters + n * 8,
            PlanFixupKind::IdHigh => id()?.high(),
            PlanFixupKind::IdLow => id()?.low(),
            PlanFixupKind::Number => number,
            PlanFixupKind::RingMask => parameters.ring_bytes - 1,
        };
        let at = fixup.at as usize;
        out.text[at..at + 4].copy_from_slice(&value.to_le_bytes());
    }
    Ok(())
}

/// What entries must have alike to share a common entry: personality, whether there is an
/// exception table, whether it is a signal frame.
type CommonKey = (Option<Pointer>, bool, bool);

/// Writes exception tables and `.eh_frame`; gives (start of code, address of entry) of each.
fn write_unwind(
    plan: &Plan,
    text_at: LinkAddr,
    constants: &mut Constants,
) -> Result<Vec<(LinkAddr, LinkAddr)>, LinkError> {
    let code_at = |function: u32, offset: u32| {
        let base = plan.functions[function as usize].text_offset;
        // A chunk may lie before the function's first.
        LinkAddr(text_at.0.wrapping_add(u64::from(base.wrapping_add(offset))))
    };
    let mut table_at = Vec::with_capacity(plan.unwind.len());
    for (function, part) in &plan.unwind {
        let Some(table) = &part.table else {
            table_at.push(None);
            continue;
        };
        constants.align(4);
        let start = constants.here();
        let offset = constants.bytes.len();
        constants.bytes.extend_from_slice(&table.bytes);
        let mut fill = |field: u32, to: LinkAddr| -> Result<(), LinkError> {
            let place = LinkAddr(start.0.wrapping_add(u64::from(field)));
            let at = offset + field as usize;
            constants.bytes[at..at + 4].copy_from_slice(&reach(place, to)?.to_le_bytes());
            Ok(())
        };
        if let Some(field) = table.base_field() {
            let base = match table.base {
                LandingBase::Text => text_at,
                LandingBase::Part | LandingBase::Function => code_at(*function, 0),
            };
            fill(field, base)?;
        }
        for (field, to) in &table.types {
            if *to != 0 {
                fill(*field, LinkAddr(*to))?;
            }
        }
        table_at.push(Some(start));
    }

    constants.align(8);
    let mut entries = Vec::with_capacity(plan.unwind.len());
    let mut commons: Vec<(CommonKey, LinkAddr)> = Vec::new();
    for ((function, part), table) in plan.unwind.iter().zip(table_at) {
        let key = (part.personality, table.is_some(), part.signal_frame);
        let common = match commons.iter().find(|(k, _)| *k == key) {
            Some((_, at)) => *at,
            None => {
                let at = write_common(key, constants)?;
                commons.push((key, at));
                at
            }
        };
        let start = code_at(*function, part.start);
        entries.push((start, constants.here()));
        entry(constants, |c| {
            // Distance back to the common entry.
            let back = c.here().0.wrapping_sub(common.0) as u32;
            c.bytes.extend_from_slice(&back.to_le_bytes());
            c.distance(start)?;
            c.bytes.extend_from_slice(&part.end.wrapping_sub(part.start).to_le_bytes());
            match table {
                Some(at) => {
                    c.bytes.push(4);
                    c.distance(at)?;
                }
                None => c.bytes.push(0),
            }
            c.bytes.extend_from_slice(&part.program);
            Ok(())
        })?;
    }
    // A length of 0 ends the section.
    constants.bytes.extend_from_slice(&[0; 4]);
    Ok(entries)
}

/// Writes an entry of `.eh_frame`: its length, `body`, padding.
fn entry(
    constants: &mut Constants,
    body: impl FnOnce(&mut Constants) -> Result<(), LinkError>,
) -> Result<(), LinkError> {
    let at = constants.bytes.len();
    constants.bytes.extend_from_slice(&[0; 4]);
    body(constants)?;
    // DW_CFA_nop is 0.
    constants.bytes.resize(at + 4 + (constants.bytes.len() - at - 4).next_multiple_of(8) + 4, 0);
    let length = (constants.bytes.len() - at - 4) as u32;
    constants.bytes[at..at + 4].copy_from_slice(&length.to_le_bytes());
    Ok(())
}

/// Writes a common entry (CIE): return address in column 16, data alignment -8, the state at a
/// function's entry.
fn write_common(
    (personality, table, signal): CommonKey,
    constants: &mut Constants,
) -> Result<LinkAddr, LinkError> {
    let at = constants.here();
    entry(constants, |c| {
        c.bytes.extend_from_slice(&[0; 4]);
        c.bytes.push(1);
        c.bytes.push(b'z');
        if personality.is_some() {
            c.bytes.push(b'P');
        }
        if table {
            c.bytes.push(b'L');
        }
        c.bytes.push(b'R');
        if signal {
            c.bytes.push(b'S');
        }
        c.bytes.push(0);
        // Code alignment 1, data alignment -8, return address in column 16.
        c.bytes.extend_from_slice(&[1, 0x78, 16]);
        let size = personality.map_or(0, |_| 5) + u8::from(table) + 1;
        c.bytes.push(size);
        if let Some(personality) = personality {
            let (encoding, to) = match personality {
                Pointer::Direct(to) => (PCREL4, to),
                Pointer::Indirect(to) => (PCREL4 | INDIRECT, to),
            };
            c.bytes.push(encoding);
            c.distance(to)?;
        }
        if table {
            c.bytes.push(PCREL4);
        }
        c.bytes.push(PCREL4);
        // DW_CFA_def_cfa rsp, 8; DW_CFA_offset 16, 1
        c.bytes.extend_from_slice(&[0x0c, 7, 8, 0x90, 1]);
        Ok(())
    })?;
    Ok(at)
}

/// Writes a `.eh_frame_hdr` over the original's entries and the new ones.
fn write_header(
    image: &Image,
    new: Vec<(LinkAddr, LinkAddr)>,
    constants: &mut Constants,
    out: &mut Linked,
) {
    constants.align(4);
    let at = constants.here();
    let mut entries = new;
    if let Some((section, _)) = image.eh_frame() {
        entries.extend(
            image
                .fdes()
                .iter()
                .map(|f| (f.start, LinkAddr(section.0.wrapping_add(f.offset as u64)))),
        );
    }
    // Distances are from the header, and searched as signed numbers.
    let distance = |to: LinkAddr| to.0.wrapping_sub(at.0) as i64;
    entries.retain(|(code, fde)| {
        i32::try_from(distance(*code)).is_ok() && i32::try_from(distance(*fde)).is_ok()
    });
    entries.sort_by_key(|(code, _)| distance(*code));
    // Version 1; pointer to .eh_frame: pcrel sdata4; count: udata4; table: datarel sdata4.
    constants.bytes.extend_from_slice(&[1, PCREL4, 0x03, 0x3b]);
    let first = entries.first().map_or(at, |(_, fde)| *fde);
    let to_frame = first.0.wrapping_sub(constants.here().0) as i32;
    constants.bytes.extend_from_slice(&to_frame.to_le_bytes());
    constants.bytes.extend_from_slice(&(entries.len() as u32).to_le_bytes());
    for (code, fde) in entries {
        constants.bytes.extend_from_slice(&(distance(code) as i32).to_le_bytes());
        constants.bytes.extend_from_slice(&(distance(fde) as i32).to_le_bytes());
    }
    out.eh_frame_hdr = at;
    out.eh_frame_hdr_size = constants.here().0.wrapping_sub(at.0);
}

impl Linked {
    /// Where the copies of the image's program headers are, in their order.
    pub fn header_copies(&self) -> impl Iterator<Item = LinkAddr> {
        let (at, count) = self.program_headers;
        let from = at.0.wrapping_sub(self.constants_at.0) as usize;
        // The one of the rewritten text is no copy.
        let is_copy = move |place: &u64| {
            let header = from + *place as usize;
            let address = self.constants.get(header + 16..header + 24);
            address.is_some_and(|address| address != self.text_at.0.to_le_bytes())
        };
        let places = (0..count).map(|i| i * PHDR_SIZE as u64).filter(is_copy);
        places.map(move |place| LinkAddr(at.0.wrapping_add(place)))
    }
}

const PT_LOAD: u32 = 1;
const PT_PHDR: u32 = 6;
const PT_GNU_EH_FRAME: u32 = 0x6474_e550;
const PHDR_SIZE: usize = 56;

/// Writes program headers like the image's, with one more segment for the rewritten text and the
/// merged `.eh_frame_hdr`: the loader and unwinders then know the rewritten text as the program's own.
fn write_program_headers(image: &Image, out: &mut Linked) -> Result<(), LinkError> {
    let (offset, count) = image.phdr_bytes();
    let from = usize::try_from(offset).map_err(|_| LinkError::ProgramHeaders)?;
    let bytes =
        image.bytes().get(from..from + count * PHDR_SIZE).ok_or(LinkError::ProgramHeaders)?;
    out.constants.resize(out.constants.len().next_multiple_of(16), 0);
    let at = LinkAddr(out.constants_at.0.wrapping_add(out.constants.len() as u64));
    let mut headers: Vec<[u8; PHDR_SIZE]> =
        bytes.chunks_exact(PHDR_SIZE).map(|c| c.try_into().expect("exact")).collect();
    let kind = |h: &[u8; PHDR_SIZE]| u32::from_le_bytes(h[0..4].try_into().expect("four"));
    let last_load =
        headers.iter().rposition(|h| kind(h) == PT_LOAD).ok_or(LinkError::ProgramHeaders)?;
    let total = out.constants.len() + (headers.len() + 2) * PHDR_SIZE;
    let span = out.constants_at.0.wrapping_sub(out.text_at.0) + total as u64;
    let span = span.next_multiple_of(PAGE);
    let load = header(PT_LOAD, 5, 0, out.text_at.0, span, PAGE);
    headers.insert(last_load + 1, load);
    let frame = header(PT_GNU_EH_FRAME, 4, 0, out.eh_frame_hdr.0, out.eh_frame_hdr_size, 4);
    match headers.iter_mut().find(|h| kind(h) == PT_GNU_EH_FRAME) {
        Some(h) => *h = frame,
        None => headers.push(frame),
    }
    let size = (headers.len() * PHDR_SIZE) as u64;
    for h in headers.iter_mut().filter(|h| kind(h) == PT_PHDR) {
        // The loader derives the load bias from this one.
        *h = header(PT_PHDR, 4, 0, at.0, size, 8);
    }
    out.program_headers = (at, headers.len() as u64);
    out.constants.extend(headers.iter().flatten());
    Ok(())
}

fn header(kind: u32, flags: u32, offset: u64, at: u64, size: u64, align: u64) -> [u8; PHDR_SIZE] {
    let mut h = [0; PHDR_SIZE];
    h[0..4].copy_from_slice(&kind.to_le_bytes());
    h[4..8].copy_from_slice(&flags.to_le_bytes());
    for (i, value) in [offset, at, at, size, size, align].into_iter().enumerate() {
        h[8 + i * 8..16 + i * 8].copy_from_slice(&value.to_le_bytes());
    }
    h
}
