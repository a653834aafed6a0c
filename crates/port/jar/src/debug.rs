//! What a file's DWARF says, where the compiler was given `-g`.
//!
//! All of it is a claim: what is damaged is left out, and the program is translated without it.

mod lines;
mod prototypes;

pub use lines::{Lines, Place};
pub use prototypes::{CType, Parameter, Prototype, Prototypes, Struct};

use gimli::{Dwarf, EndianSlice, RunTimeEndian};
use object::read::elf::ElfFile32;
use object::{Object as _, ObjectSection as _};
use std::borrow::Cow;

use crate::image::Image;

/// Bytes of a section.
pub type Slice<'a> = EndianSlice<'a, RunTimeEndian>;

/// The debugging sections of a file, decompressed where they are compressed.
pub struct Sections<'a> {
    sections: gimli::DwarfSections<Cow<'a, [u8]>>,
    endian: RunTimeEndian,
}

impl<'a> Sections<'a> {
    /// Finds them; empty ones where the file has none.
    pub fn of(image: &'a Image) -> Self {
        let elf = ElfFile32::<object::Endianness>::parse(image.file()).ok();
        let load = |id: gimli::SectionId| -> Result<Cow<'a, [u8]>, gimli::Error> {
            let section = elf.as_ref().and_then(|elf| elf.section_by_name(id.name()));
            let bytes = section.and_then(|section| section.uncompressed_data().ok());
            Ok(bytes.unwrap_or_default())
        };
        let sections = gimli::DwarfSections::load(load).unwrap_or_default();
        let endian = if image.big_endian { RunTimeEndian::Big } else { RunTimeEndian::Little };
        Self { sections, endian }
    }

    /// Them, to be read.
    pub fn dwarf(&self) -> Dwarf<Slice<'_>> {
        self.sections.borrow(|bytes| EndianSlice::new(bytes, self.endian))
    }
}
