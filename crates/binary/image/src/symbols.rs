//! Symbols of all tables, in one list sorted by address.

use object::elf;

use crate::dynamic::Dynamic;
use crate::elf::{Elf, Kind, SectionKind};
use crate::error::Warnings;
use crate::{LinkAddr, Warning, raw};

/// What a symbol names.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum SymbolKind {
    /// A function.
    Function,
    /// A resolver, which returns the address of the function to use.
    Ifunc,
    /// A variable.
    Object,
    /// A thread-local variable; its address is an offset in the thread's block.
    Tls,
    /// Anything else, such as a label in assembly.
    Other,
}

/// Where a symbol was found.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum SymbolSource {
    /// The full symbol table, which stripping removes.
    Symtab,
    /// The table for the dynamic linker.
    Dynsym,
    /// The compressed symbols that some distributions embed.
    MiniDebugInfo,
    /// A separate debug file.
    DebugFile,
}

/// A symbol that is defined in this file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Symbol {
    /// Address.
    pub addr: LinkAddr,
    /// Size in bytes; zero when unknown.
    pub size: u64,
    /// Name, mangled.
    pub name: String,
    /// What it names.
    pub kind: SymbolKind,
    /// Visible to other files when linked (global or weak).
    pub global: bool,
    /// Where it was found.
    pub source: SymbolSource,
}

impl Symbol {
    /// Whether it names code that is entered from its start.
    pub fn is_function(&self) -> bool {
        matches!(self.kind, SymbolKind::Function | SymbolKind::Ifunc)
    }
}

/// A symbol's name without the version that may stand behind it (`memcpy@@GLIBC_2.14`).
pub fn unversioned(name: &str) -> &str {
    name.split_once('@').map_or(name, |(plain, _)| plain)
}

const ENTRY_SIZE: usize = 24;

/// Reads `.symtab` and `.dynsym`.
pub(crate) fn read(elf: &Elf, dynamic: Option<&Dynamic>, warnings: &mut Warnings) -> Vec<Symbol> {
    let mut symbols = Vec::new();
    let mut dynsym_seen = false;
    for section in &elf.sections {
        let source = match section.kind {
            SectionKind::Symtab => SymbolSource::Symtab,
            SectionKind::Dynsym => SymbolSource::Dynsym,
            _ => continue,
        };
        let strings =
            elf.sections.get(section.link as usize).and_then(|strings| elf.section_data(strings));
        let (Some(table), Some(strings)) = (elf.section_data(section), strings) else {
            warnings.push(Warning::Symbols {
                table: section.name.clone(),
                count: usize::try_from(section.size).unwrap_or(usize::MAX) / ENTRY_SIZE,
                why: "the table or its names lie outside of the file".into(),
            });
            continue;
        };
        dynsym_seen |= source == SymbolSource::Dynsym;
        read_table(elf, table, strings, source, &section.name, &mut symbols, warnings);
    }
    if !dynsym_seen
        && let Some(dynamic) = dynamic
        && let Some(table) = dynamic.symtab.and_then(|at| elf.read_from(at))
    {
        let table = raw::first(table, dynamic.symbol_count(elf).saturating_mul(ENTRY_SIZE));
        let strings = dynamic.strings(elf);
        let source = SymbolSource::Dynsym;
        read_table(elf, table, strings, source, ".dynsym", &mut symbols, warnings);
    }
    sort(&mut symbols);
    symbols
}

fn read_table(
    elf: &Elf,
    table: &[u8],
    strings: &[u8],
    source: SymbolSource,
    table_name: &str,
    symbols: &mut Vec<Symbol>,
    warnings: &mut Warnings,
) {
    let mut names = raw::Names::new(strings);
    let mut bad_names = 0;
    symbols.reserve(table.len() / ENTRY_SIZE);
    for entry in table.as_chunks::<ENTRY_SIZE>().0 {
        let [_, _, _, _, info, ..] = *entry;
        let section = raw::u16(entry, 6).unwrap_or_default();
        let kind = match elf::SymbolType(info & 0xf) {
            elf::STT_FUNC => SymbolKind::Function,
            elf::STT_GNU_IFUNC => SymbolKind::Ifunc,
            elf::STT_OBJECT | elf::STT_COMMON => SymbolKind::Object,
            elf::STT_TLS => SymbolKind::Tls,
            elf::STT_SECTION | elf::STT_FILE => continue,
            _ => SymbolKind::Other,
        };
        let name_at = raw::u32(entry, 0).unwrap_or_default() as usize;
        if section == elf::SHN_UNDEF.0 || section == elf::SHN_COMMON.0 || name_at == 0 {
            continue;
        }
        let Some(name) = names.get(name_at) else {
            bad_names += 1;
            continue;
        };
        if name.is_empty() {
            continue;
        }
        let mut addr = LinkAddr(raw::u64(entry, 8).unwrap_or_default());
        if elf.kind == Kind::Relocatable
            && section < elf::SHN_LORESERVE
            && let Some(section) = elf.sections.get(section as usize)
        {
            addr += section.start.0;
        }
        symbols.push(Symbol {
            addr,
            size: raw::u64(entry, 16).unwrap_or_default(),
            name,
            kind,
            global: info >> 4 != elf::STB_LOCAL.0,
            source,
        });
    }
    if bad_names > 0 {
        warnings.push(Warning::Symbols {
            table: table_name.to_owned(),
            count: bad_names,
            why: "their names lie outside of the string table".into(),
        });
    }
}

/// Adds the symbols of another file of the same program.
pub(crate) fn merge(symbols: &mut Vec<Symbol>, more: &[Symbol], source: SymbolSource) {
    symbols.extend(more.iter().map(|symbol| Symbol { source, ..symbol.clone() }));
    sort(symbols);
}

/// Sorts by address, and keeps one of several symbols with the same address and name: the first
/// source's, which is global if any was, with the largest size.
fn sort(symbols: &mut Vec<Symbol>) {
    symbols.sort_unstable_by(|a, b| {
        (a.addr, &a.name, a.source, a.kind).cmp(&(b.addr, &b.name, b.source, b.kind))
    });
    symbols.dedup_by(|next, kept| {
        let same = next.addr == kept.addr
            && next.name == kept.name
            && (next.kind == SymbolKind::Tls) == (kept.kind == SymbolKind::Tls);
        if same {
            kept.size = kept.size.max(next.size);
            kept.global |= next.global;
            kept.kind = kept.kind.min(next.kind);
        }
        same
    });
}

/// Whether a name is worth showing: not a mapping or section symbol.
pub(crate) fn is_nameworthy(name: &str) -> bool {
    !name.is_empty() && !name.starts_with(['$', '.'])
}

/// Order of preference between names of one address: global before local, unversioned before
/// versioned, then the shortest, then by letters so that the choice is always the same.
pub(crate) fn preference(symbol: &Symbol) -> (bool, bool, bool, usize, &str) {
    let name = symbol.name.as_str();
    (!symbol.is_function(), !symbol.global, name.contains('@'), name.len(), name)
}
