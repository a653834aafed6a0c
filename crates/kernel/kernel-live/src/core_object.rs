//! The module's core as the compiler left it, and how it comes into a module.

use std::collections::HashMap;

use object::elf::{R_X86_64_PC32 as OBJECT_PC32, R_X86_64_PLT32};
use object::read::elf::ElfFile64;
use object::{
    Object as _, ObjectSection, ObjectSymbol, RelocationFlags, RelocationTarget, SectionFlags,
    SectionIndex, SectionKind, SymbolKind,
};

use crate::elf::{
    Object, R_X86_64_PC32, Relocation, SHF_ALLOC, SHF_EXECINSTR, SHF_WRITE, SHT_PROGBITS, STT_FUNC,
    STT_NOTYPE, STT_OBJECT, SectionId, SymbolId,
};

/// What `build.rs` compiled.
static BYTES: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/core.o"));

/// The compiled core.
#[derive(Debug)]
pub struct Core {
    file: ElfFile64<'static>,
}

impl Core {
    /// Reads it.
    pub fn new() -> Core {
        Core { file: ElfFile64::parse(BYTES).expect("the compiler wrote it") }
    }

    /// Names that it does not define itself.
    pub fn needed(&self) -> impl Iterator<Item = &'static str> {
        let named = self.file.symbols().filter(object::ObjectSymbol::is_undefined);
        named.filter_map(|symbol| symbol.name().ok()).filter(|name| !name.is_empty())
    }

    /// Its `.eh_frame`, relocated as if it and the text lay at address 0.
    pub fn eh_frame(&self) -> Vec<u8> {
        let Some(section) = self.file.section_by_name(".eh_frame") else { return Vec::new() };
        let mut bytes = section.data().unwrap_or_default().to_vec();
        for (at, relocation) in section.relocations() {
            let RelocationTarget::Symbol(symbol) = relocation.target() else { continue };
            let Ok(symbol) = self.file.symbol_by_index(symbol) else { continue };
            let value = (symbol.address() as i64 + relocation.addend() - at as i64) as i32;
            if let Some(place) = bytes.get_mut(at as usize..at as usize + 4) {
                place.copy_from_slice(&value.to_le_bytes());
            }
        }
        bytes
    }

    /// Adds its sections, and its relocations to names that are in `known`, to which its own global ones
    /// are added. Gives its text.
    ///
    /// # Errors
    ///
    /// With the name that is defined nowhere.
    pub fn add_to(
        &self,
        object: &mut Object,
        known: &mut HashMap<String, SymbolId>,
    ) -> Result<SectionId, String> {
        let mut sections: HashMap<SectionIndex, SectionId> = HashMap::new();
        let mut text = None;
        for section in self.file.sections() {
            let SectionFlags::Elf { sh_flags, .. } = section.flags() else { continue };
            let name = section.name().unwrap_or_default();
            let skip = [".eh_frame", ".note", ".comment"].iter().any(|own| name.starts_with(own));
            if sh_flags.0 & SHF_ALLOC == 0 || skip {
                continue;
            }
            let flags = sh_flags.0 & (SHF_ALLOC | SHF_WRITE | SHF_EXECINSTR);
            let id = if section.kind() == SectionKind::UninitializedData {
                object.empty_section(name, section.align(), section.size())
            } else {
                let id = object.section(name, SHT_PROGBITS, flags, section.align());
                object.get(id).data = section.data().unwrap_or_default().to_vec();
                id
            };
            if name == ".text" {
                text = Some(id);
            }
            sections.insert(section.index(), id);
        }
        let symbols = self.symbols(object, &sections, known);
        for (index, id) in &sections {
            let Ok(section) = self.file.section_by_index(*index) else { continue };
            for (at, relocation) in section.relocations() {
                let RelocationTarget::Symbol(target) = relocation.target() else { continue };
                let named = || {
                    let symbol = self.file.symbol_by_index(target).ok();
                    symbol.and_then(|s| s.name().ok()).unwrap_or_default().to_string()
                };
                let symbol = *symbols.get(&target).ok_or_else(named)?;
                let RelocationFlags::Elf { r_type, .. } = relocation.flags() else { continue };
                // There is no table of procedures in the kernel: a call is a distance.
                let kind = match r_type {
                    R_X86_64_PLT32 | OBJECT_PC32 => R_X86_64_PC32,
                    other => other.0,
                };
                let addend = relocation.addend();
                object.get(*id).relocations.push(Relocation { at, kind, symbol, addend });
            }
        }
        text.ok_or_else(|| ".text".to_string())
    }

    /// All its symbols, by their numbers in its own file.
    fn symbols(
        &self,
        object: &mut Object,
        sections: &HashMap<SectionIndex, SectionId>,
        known: &mut HashMap<String, SymbolId>,
    ) -> HashMap<object::SymbolIndex, SymbolId> {
        let mut found = HashMap::new();
        for symbol in self.file.symbols() {
            let name = symbol.name().unwrap_or_default();
            let home = symbol.section_index().and_then(|index| sections.get(&index));
            let id = match home {
                Some(home) if symbol.kind() == SymbolKind::Section => Some(object.start(*home)),
                Some(home) => {
                    let kind = match symbol.kind() {
                        SymbolKind::Text => STT_FUNC,
                        SymbolKind::Data => STT_OBJECT,
                        _ => STT_NOTYPE,
                    };
                    let is_global = symbol.is_global();
                    let id = object.symbol(
                        name,
                        *home,
                        symbol.address(),
                        symbol.size(),
                        kind,
                        is_global,
                    );
                    if is_global {
                        known.insert(name.to_string(), id);
                    }
                    Some(id)
                }
                None => known.get(name).copied(),
            };
            found.extend(id.map(|id| (symbol.index(), id)));
        }
        found
    }
}

impl Default for Core {
    fn default() -> Core {
        Core::new()
    }
}
