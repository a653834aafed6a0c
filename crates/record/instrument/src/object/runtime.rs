//! The agent as a part of an object file: a COMDAT group, so that it need not be asked for when
//! files are linked, and a program has it once.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use fettle_rewrite::agent as probes;

use crate::object::elf::{
    Object, Reloc, SHF_ALLOC, SHF_EXECINSTR, SHT_PROGBITS, STB_LOCAL, STT_FUNC, STT_OBJECT,
    STT_SECTION, STV_HIDDEN, Section, Symbol, SymbolId,
};

/// `runtime/file`, compiled to be linked.
const AGENT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/object.o"));
const STB_WEAK: u8 = 2;

/// Symbols of the agent in an object file that it was put into.
pub struct Runtime {
    /// The code of `runtime/agent`; its entries are at offsets in it.
    pub probes: SymbolId,
    /// What an entry guard calls.
    pub check: SymbolId,
    /// Around calls that fork.
    pub before: SymbolId,
    pub after: SymbolId,
}

/// Names this version of the agent: files of different versions may be linked together, and
/// each version then looks after its own functions.
pub fn version() -> u32 {
    let mut hasher = DefaultHasher::new();
    (AGENT, probes::CODE, env!("CARGO_PKG_VERSION")).hash(&mut hasher);
    hasher.finish() as u32
}

/// Puts the agent into `object`.
pub fn add(object: &mut Object) -> Runtime {
    let name = |what: &str| format!("fettle.{:08x}.{what}", version());
    let agent = Object::parse(AGENT).expect("compiled with this program");
    let blank =
        Symbol { name: 0, info: STB_WEAK << 4, other: STV_HIDDEN, section: 0, value: 0, size: 0 };
    let signature = object.add_symbol(&name("group"), blank.clone());
    let group = object.add_comdat(signature);

    // Sections, then symbols, then what refers to them.
    let mut sections = HashMap::new();
    for (i, section) in agent.sections.iter().enumerate() {
        if section.is(SHF_ALLOC) && section.size > 0 {
            let copy = Section { rela: None, relocs: Vec::new(), ..section.clone() };
            sections.insert(i, object.add_section(Some(group), copy));
        }
    }
    let define = |object: &mut Object, what: &str, kind, data: Vec<u8>, flags, section: &str| {
        let section = Section {
            name: section.to_owned(),
            kind: SHT_PROGBITS,
            flags: SHF_ALLOC | flags,
            align: 16,
            data,
            ..Section::default()
        };
        let section = object.add_section(Some(group), section) as u16;
        object.add_symbol(
            &name(what),
            Symbol { info: STB_WEAK << 4 | kind, section, ..blank.clone() },
        )
    };
    let code = probes::CODE.to_vec();
    let probes = define(object, "probes", STT_FUNC, code, SHF_EXECINSTR, ".text.fettle.probes");
    let version = version().to_le_bytes().to_vec();
    let version = define(object, "version", STT_OBJECT, version, 0, ".rodata.fettle.version");
    let mut symbols: HashMap<u32, SymbolId> = HashMap::new();
    let mut named = HashMap::new();
    for (i, symbol) in agent.symbols.iter().enumerate().skip(1) {
        let text = agent.name(symbol);
        let home = symbol.home().and_then(|home| sections.get(&home).copied());
        let id = match (symbol.kind(), home) {
            (_, None) if symbol.bind() == STB_LOCAL => continue,
            (STT_SECTION, Some(home)) => object.section_symbol(home),
            (_, None) if text == "fettle_note_type" => version,
            // The linker's.
            (_, None) => {
                let (info, other) = (symbol.info, symbol.other);
                object.add_symbol(&text, Symbol { info, other, ..blank.clone() })
            }
            (kind, Some(home)) => {
                let local = symbol.bind() == STB_LOCAL;
                let copy = Symbol {
                    info: if local { kind } else { STB_WEAK << 4 | kind },
                    other: if local { 0 } else { STV_HIDDEN },
                    section: home as u16,
                    value: symbol.value,
                    size: symbol.size,
                    name: 0,
                };
                object.add_symbol(&if local { text.clone() } else { name(&text) }, copy)
            }
        };
        symbols.insert(i as u32, id);
        named.insert(text, id);
    }
    for (from, to) in sections {
        for reloc in &agent.sections[from].relocs {
            let SymbolId::Old(symbol) = reloc.symbol else { unreachable!("as parsed") };
            object.sections[to].relocs.push(Reloc { symbol: symbols[&symbol], ..*reloc });
        }
    }
    // A group's symbol is where its first member is.
    object.set_home(signature, probes);
    Runtime {
        probes,
        check: named["entry_check_library"],
        before: named["entry_before"],
        after: named["entry_after"],
    }
}
