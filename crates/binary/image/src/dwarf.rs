//! DWARF sections, decompressed where they have to be.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use gimli::{EndianSlice, LittleEndian, SectionId};
use object::elf;

use crate::elf::Elf;
use crate::raw;
use crate::units::{Slice, UnitIndex};

/// The file that has the DWARF sections of an image: itself or its debug file.
#[derive(Clone, Debug)]
pub(crate) struct DwarfSource {
    elf: Arc<Elf>,
    /// Decompressed sections by name, filled on first use.
    owned: Arc<OnceLock<HashMap<&'static str, Vec<u8>>>>,
    units: Arc<OnceLock<UnitIndex>>,
}

/// Every section that is read.
const SECTIONS: &[SectionId] = &[
    SectionId::DebugAbbrev,
    SectionId::DebugAddr,
    SectionId::DebugAranges,
    SectionId::DebugInfo,
    SectionId::DebugLine,
    SectionId::DebugLineStr,
    SectionId::DebugLoc,
    SectionId::DebugLocLists,
    SectionId::DebugRanges,
    SectionId::DebugRngLists,
    SectionId::DebugStr,
    SectionId::DebugStrOffsets,
    SectionId::DebugTypes,
];

/// Most that one compressed section may expand to.
const SECTION_SIZE_MAX: u64 = 4 << 30;

impl DwarfSource {
    pub(crate) fn new(elf: Arc<Elf>) -> DwarfSource {
        DwarfSource { elf, owned: Arc::default(), units: Arc::default() }
    }

    /// Whether there is any DWARF.
    pub(crate) fn has_debug_info(&self) -> bool {
        self.elf.sections.iter().any(|s| matches!(&*s.name, ".debug_info" | ".zdebug_info"))
    }

    /// Which unit covers an address.
    pub(crate) fn units(&self) -> &UnitIndex {
        self.units.get_or_init(|| {
            let mut dwarf = self.load();
            // Optimised links share one table of abbreviations between thousands of units.
            dwarf.populate_abbreviations_cache(gimli::AbbreviationsCacheStrategy::Duplicates);
            UnitIndex::build(&dwarf)
        })
    }

    /// The sections for gimli; missing and damaged ones are empty.
    pub(crate) fn load(&self) -> gimli::Dwarf<Slice<'_>> {
        let owned = self.owned.get_or_init(|| {
            let names = SECTIONS.iter().map(|id| id.name());
            names.filter_map(|name| Some((name, decompress(&self.elf, name)?))).collect()
        });
        let load = |id: SectionId| -> Result<Slice<'_>, gimli::Error> {
            let name = id.name();
            let plain = || {
                let section = self.elf.section(name).filter(|section| !section.is_compressed())?;
                self.elf.section_data(section)
            };
            let data = match owned.get(name) {
                Some(data) => data,
                None if SECTIONS.contains(&id) => plain().unwrap_or_default(),
                None => &[],
            };
            Ok(EndianSlice::new(data, LittleEndian))
        };
        gimli::Dwarf::load(load).unwrap_or_default()
    }
}

/// The contents of a compressed section, or `None` if it is not compressed or is damaged.
fn decompress(elf: &Elf, name: &str) -> Option<Vec<u8>> {
    use object::read::{CompressedData, CompressionFormat};
    let section = elf.section(name)?;
    if !section.is_compressed() {
        return None;
    }
    let data = elf.section_data(section)?;
    let uncompressed_size = raw::u64(data, 8)?;
    let (format, ratio_max) = match elf::CompressionType(raw::u32(data, 0)?) {
        // A byte of deflate data can stand for no more than 1032; Zstandard has no such bound.
        elf::ELFCOMPRESS_ZLIB => (CompressionFormat::Zlib, 1100),
        elf::ELFCOMPRESS_ZSTD => (CompressionFormat::Zstandard, 20_000),
        _ => return None,
    };
    let data = data.get(24..)?;
    let bound = (data.len() as u64).saturating_mul(ratio_max).min(SECTION_SIZE_MAX);
    if uncompressed_size > bound {
        return None;
    }
    let compressed = CompressedData { format, data, uncompressed_size };
    compressed.decompress().ok().map(Cow::into_owned)
}
