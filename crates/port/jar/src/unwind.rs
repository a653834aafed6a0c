//! What an exception of C++ does at a call.
//!
//! Compilers leave two tables for the unwinder: `.eh_frame` says which code has a *language-specific
//! data area*, and which *personality* reads it; the area (`.gcc_except_table`) says for every call
//! where its *landing pad* is, the code that handles an exception or cleans up behind it. The form of
//! both is in the "Exception Handling ABI for C++" of the Itanium processor.
//!
//! Here they say which calls of a function have a second successor. Which exceptions are handled is
//! decided while the program runs, by its own personality.

use std::collections::BTreeMap;
use std::ops::Range;

use gimli::{
    BaseAddresses, CieOrFde, EhFrame, EndianSlice, Pointer, RunTimeEndian, UnwindSection as _,
};

use crate::classfile::Call;
use crate::image::Image;

/// Encodings of values in an area (`DW_EH_PE_*`).
const ABSOLUTE: u8 = 0x00;
const ULEB128: u8 = 0x01;
const UDATA2: u8 = 0x02;
const UDATA4: u8 = 0x03;
const SDATA4: u8 = 0x0b;
const RELATIVE_TO_PLACE: u8 = 0x10;
const OMITTED: u8 = 0xff;

/// Entries of an area beyond which nothing is believed.
const SITES_MAX: usize = 1 << 16;

/// A range of code with one language-specific data area.
#[derive(Clone, Debug)]
pub struct Region {
    /// Its code.
    pub code: Range<u32>,
    /// Where its area is.
    pub area: u32,
    /// The function that reads the area.
    pub personality: u32,
    sites: Vec<(Range<u32>, Option<u32>)>,
}

/// What an exception does that passes a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Passing {
    /// It may be handled or cleaned up behind at this address.
    Lands(u32),
    /// It ends the program.
    Terminates,
}

/// All such code of a program.
#[derive(Clone, Debug, Default)]
pub struct Regions {
    by_start: BTreeMap<u32, Region>,
}

impl Regions {
    /// Reads the tables of a program. What is damaged in them is left out.
    pub fn read(image: &Image) -> Self {
        let endian = if image.big_endian { RunTimeEndian::Big } else { RunTimeEndian::Little };
        let mut section = EhFrame::new(image.bytes(image.frames.clone()), endian);
        section.set_address_size(4);
        let bases = BaseAddresses::default().set_eh_frame(u64::from(image.frames.start));
        let mut entries = section.entries(&bases);
        let mut regions = Self::default();
        while let Ok(Some(entry)) = entries.next() {
            let CieOrFde::Fde(partial) = entry else { continue };
            let Ok(fde) = partial.parse(EhFrame::cie_from_offset) else { continue };
            if let Some(region) = region(image, &fde) {
                regions.by_start.insert(region.code.start, region);
            }
        }
        regions
    }

    /// The region that an address is in.
    pub fn at(&self, address: u32) -> Option<&Region> {
        let (_, region) = self.by_start.range(..=address).next_back()?;
        region.code.contains(&address).then_some(region)
    }

    /// What an exception does that passes the call at an address; none if it just goes on.
    pub fn passing(&self, call: u32) -> Option<Passing> {
        let region = self.at(call)?;
        match region.site(call) {
            Some((_, pad)) => pad.map(Passing::Lands),
            None => Some(Passing::Terminates),
        }
    }

    /// An address that stands for all calls of a region for which the area says the same.
    pub fn same(&self, call: u32) -> u32 {
        let Some(region) = self.at(call) else { return call };
        region.site(call).map_or(region.code.start, |(range, _)| range.start)
    }
}

impl Region {
    /// The entry of a call: the unwinder looks for the byte before the address to return to.
    fn site(&self, call: u32) -> Option<&(Range<u32>, Option<u32>)> {
        self.sites.iter().find(|(range, _)| range.contains(&call.wrapping_add(7)))
    }
}

/// The calls of a class, by method.
pub type ClassCalls = (String, Vec<(String, Vec<Call>)>);

/// The file beside the classes with what the runtime needs to know of all this.
pub const TABLE: &str = "unwind.bin";

/// That: regions, and by class and method which bytes are which call. None where nothing can catch.
pub fn table(regions: &Regions, classes: &[ClassCalls]) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    let number = |out: &mut Vec<u8>, value: u32| out.extend(value.to_be_bytes());
    number(&mut out, regions.by_start.len() as u32);
    for region in regions.by_start.values() {
        let Range { start, end } = region.code;
        for value in [start, end, region.area, region.personality] {
            number(&mut out, value);
        }
    }
    let methods = classes.iter().map(|(_, methods)| methods.len()).sum::<usize>();
    number(&mut out, methods as u32);
    for (class, methods) in classes {
        for (method, calls) in methods {
            text(&mut out, &format!("{}.{method}", class.replace('/', ".")));
            number(&mut out, calls.len() as u32);
            for call in calls {
                number(&mut out, u32::from(call.from) << 16 | u32::from(call.to));
                number(&mut out, call.pc);
            }
        }
    }
    (methods > 0).then_some(out)
}

/// Text with its length in front.
fn text(out: &mut Vec<u8>, text: &str) {
    out.extend((text.len() as u32).to_be_bytes());
    out.extend(text.as_bytes());
}

type Fde<'a> = gimli::FrameDescriptionEntry<EndianSlice<'a, RunTimeEndian>>;

fn region(image: &Image, fde: &Fde<'_>) -> Option<Region> {
    let start = fde.initial_address() as u32;
    let code = start..start.checked_add(fde.len() as u32)?;
    let area = address(image, fde.lsda()?)?;
    let personality = address(image, fde.cie().personality()?)?;
    if area == 0 || !image.is_code(personality) {
        return None;
    }
    let sites = sites(image, area, start)?;
    Some(Region { code, area, personality, sites })
}

fn address(image: &Image, pointer: Pointer) -> Option<u32> {
    match pointer {
        Pointer::Direct(address) => Some(address as u32),
        Pointer::Indirect(address) => image.word(address as u32),
    }
}

/// Reads values from the image, one after the other.
struct Cursor<'a> {
    image: &'a Image,
    at: u32,
}

impl Cursor<'_> {
    fn byte(&mut self) -> Option<u8> {
        let byte = self.image.byte(self.at)?;
        self.at = self.at.checked_add(1)?;
        Some(byte)
    }

    fn unsigned(&mut self) -> Option<u32> {
        let (mut value, mut shift) = (0_u32, 0);
        loop {
            let byte = self.byte()?;
            if shift < 32 {
                value |= u32::from(byte & 0x7f) << shift;
            }
            shift += 7;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
    }

    fn bytes(&mut self, count: u32) -> Option<u32> {
        let mut value = 0_u32;
        for index in 0..count {
            let byte = u32::from(self.byte()?);
            value = match self.image.big_endian {
                true => value << 8 | byte,
                false => value | byte << (8 * index),
            };
        }
        Some(value)
    }

    /// A value by its encoding.
    fn encoded(&mut self, encoding: u8) -> Option<u32> {
        let place = self.at;
        let value = match encoding & 0x0f {
            ABSOLUTE | UDATA4 | SDATA4 => self.bytes(4)?,
            UDATA2 => self.bytes(2)?,
            ULEB128 => self.unsigned()?,
            _ => return None,
        };
        match encoding & 0x70 {
            0 => Some(value),
            RELATIVE_TO_PLACE => Some(value.wrapping_add(place)),
            _ => None,
        }
    }
}

/// The entries of an area: code, and the landing pad of calls in it.
fn sites(image: &Image, area: u32, start: u32) -> Option<Vec<(Range<u32>, Option<u32>)>> {
    let mut cursor = Cursor { image, at: area };
    let base = match cursor.byte()? {
        OMITTED => start,
        encoding => cursor.encoded(encoding)?,
    };
    if cursor.byte()? != OMITTED {
        cursor.unsigned()?;
    }
    let encoding = cursor.byte()?;
    let length = cursor.unsigned()?;
    let end = cursor.at.checked_add(length)?;
    let mut sites = Vec::new();
    while cursor.at < end && sites.len() < SITES_MAX {
        let from = start.wrapping_add(cursor.encoded(encoding)?);
        let to = from.checked_add(cursor.encoded(encoding)?)?;
        let pad = cursor.encoded(encoding)?;
        cursor.unsigned()?;
        let pad = (pad != 0).then(|| base.wrapping_add(pad));
        if pad.is_some_and(|pad| !image.is_code(pad)) {
            return None;
        }
        sites.push((from..to, pad));
    }
    Some(sites)
}
