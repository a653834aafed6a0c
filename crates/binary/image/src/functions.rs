//! Where the functions are, from everything that gives them away.
//!
//! No single source is enough. Symbols may be stripped, and those of assembly may lack sizes;
//! unwind entries survive but are missing for some assembly; tables of pointers name functions
//! that nothing else does. The sources are merged in order of trust: an unwind entry's bounds
//! win, then a sized symbol's; every other known start lies inside one of those or begins a
//! function that is guessed to reach to the next known start.

use std::ops::Range;

use crate::dynamic::RelocKind;
use crate::elf::SectionKind;
use crate::function_range::{Evidence, FunctionRange};
use crate::image::Image;
use crate::symbols::{is_nameworthy, preference};
use crate::{Fde, LinkAddr, Symbol, SymbolKind, plt, raw};

/// A place where a function is said to start.
struct Start<'a> {
    addr: LinkAddr,
    size: u64,
    name: Option<&'a str>,
    evidence: Evidence,
}

impl Image {
    /// All functions, sorted, without overlap; see [`FunctionRange`].
    pub fn functions(&self) -> Vec<FunctionRange> {
        self.function_list().to_vec()
    }

    /// The best symbol of each address where symbols say that a function begins, in order; also of those
    /// that begin in the middle of another function, which are no [`FunctionRange`].
    pub fn function_symbols(&self) -> impl Iterator<Item = &Symbol> {
        let groups = self.symbols.chunk_by(|a, b| a.addr == b.addr);
        let of_code = groups
            .filter(|group| group.first().is_some_and(|symbol| self.elf.is_code(symbol.addr)));
        of_code.filter_map(|group| {
            group.iter().filter(|symbol| symbol.is_function()).min_by_key(|s| preference(s))
        })
    }

    fn function_list(&self) -> &[FunctionRange] {
        self.functions.get_or_init(|| find(self))
    }

    /// The function that holds `addr`.
    pub fn function_at(&self, addr: LinkAddr) -> Option<&FunctionRange> {
        let list = self.function_list();
        let after = list.partition_point(|function| function.start <= addr);
        list.get(after.checked_sub(1)?).filter(|function| addr < function.end)
    }

    /// Name of the function that holds `addr`, mangled.
    pub fn name_at(&self, addr: LinkAddr) -> Option<&str> {
        let function = self.function_at(addr)?;
        if let Some(name) = &function.name {
            return Some(name);
        }
        // A signal trampoline's entry starts one byte early; other entries may hold several
        // functions of assembly. The nearest symbol below tells which.
        let interior = &function.interior;
        let after = interior.partition_point(|&start| start <= addr);
        let start = interior.get(after.saturating_sub(1))?;
        let symbols = self.symbols_at(*start).iter();
        let best = symbols.filter(|s| s.is_function()).min_by_key(|s| preference(s))?;
        Some(&best.name)
    }
}

/// All functions, sorted and without overlap.
fn find(image: &Image) -> Vec<FunctionRange> {
    if image.elf.debug_only {
        return Vec::new();
    }
    let excluded = excluded_ranges(image);
    let mut functions = from_unwind(image, &excluded);
    let starts = starts(image, &excluded);
    let orphans = absorb(&mut functions, starts);
    let rest = from_starts(image, &functions, &excluded, orphans);
    functions.extend(rest);
    functions.sort_by_key(|function| function.start);
    functions
}

/// Code that is not functions: the PLT. Sorted, without overlap.
fn excluded_ranges(image: &Image) -> Vec<Range<LinkAddr>> {
    let elf = &image.elf;
    let mut ranges: Vec<Range<LinkAddr>> = elf
        .sections
        .iter()
        .filter(|section| section.is_alloc() && section.is_executable())
        .filter(|section| plt::is_plt_section(&section.name))
        .map(|section| section.start..section.end())
        .collect();
    ranges.extend(image.plt.iter().map(|entry| entry.start..entry.start + entry.size));
    ranges.sort_by_key(|range| range.start);
    let mut merged: Vec<Range<LinkAddr>> = Vec::new();
    for range in ranges {
        match merged.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => merged.push(range),
        }
    }
    merged
}

fn is_excluded(excluded: &[Range<LinkAddr>], addr: LinkAddr) -> bool {
    let after = excluded.partition_point(|range| range.start <= addr);
    let below = after.checked_sub(1).and_then(|below| excluded.get(below));
    below.is_some_and(|range| range.contains(&addr))
}

/// Start of the first excluded range at or above `addr`.
fn next_excluded(excluded: &[Range<LinkAddr>], addr: LinkAddr) -> Option<LinkAddr> {
    excluded.get(excluded.partition_point(|range| range.start < addr)).map(|range| range.start)
}

fn from_unwind(image: &Image, excluded: &[Range<LinkAddr>]) -> Vec<FunctionRange> {
    let mut functions = Vec::with_capacity(image.fdes.len());
    for fde in &image.fdes {
        let end = next_excluded(excluded, fde.start).map_or(fde.end, |next| fde.end.min(next));
        if is_excluded(excluded, fde.start) || end <= fde.start || is_plt(image, fde) {
            continue;
        }
        functions.push(FunctionRange {
            start: fde.start,
            end,
            name: None,
            evidence: Evidence { unwind: true, ..Evidence::default() },
            interior: Vec::new(),
            address_taken: Vec::new(),
        });
    }
    functions
}

/// Whether an unwind entry covers a PLT, where no section names say so. One entry covers a whole
/// PLT, and its first part, which calls the lazy binder, has no entry of its own in our list.
fn is_plt(image: &Image, fde: &Fde) -> bool {
    if !image.elf.sections.is_empty() {
        return false;
    }
    let next = image.plt.partition_point(|entry| entry.start < fde.start);
    if image.plt.get(next).is_some_and(|entry| entry.start < fde.end) {
        return true;
    }
    let size = usize::try_from(fde.end - fde.start).unwrap_or(usize::MAX);
    let code = image.elf.read(fde.start, size);
    code.is_some_and(|code| plt::looks_like_plt(code, fde.start, &image.relocs))
}

/// Every address where something says that a function starts; sorted, one entry an address.
fn starts<'a>(image: &'a Image, excluded: &[Range<LinkAddr>]) -> Vec<Start<'a>> {
    let symbols = &image.symbols;
    let init_fini = image.dynamic.as_ref().map_or([None; 2], |d| [d.init, d.fini]);
    let has_sections = !image.elf.sections.is_empty();
    let mut starts = Vec::new();
    // Most of what relocations put into memory is data.
    let mut push = |start: Start<'a>| {
        let is_start = image.elf.is_code(start.addr)
            && !is_excluded(excluded, start.addr)
            && (has_sections || !init_fini.contains(&Some(start.addr)));
        starts.extend(is_start.then_some(start));
    };
    for group in symbols.chunk_by(|a, b| a.addr == b.addr) {
        let Some(addr) = group.first().map(|symbol| symbol.addr) else { continue };
        // Assembly often leaves the type out. A local label may be anything; a global one is
        // there for others to call.
        let usable = |symbol: &&Symbol| {
            symbol.is_function() || (symbol.kind == SymbolKind::Other && symbol.global)
        };
        let Some(best) = group.iter().filter(usable).min_by_key(|symbol| preference(symbol)) else {
            continue;
        };
        let size = group.iter().filter(|s| s.is_function()).map(|s| s.size).max().unwrap_or(0);
        let name = Some(best.name.as_str()).filter(|name| is_nameworthy(name));
        let evidence = Evidence { symbol: true, ..Evidence::default() };
        push(Start { addr, size, name, evidence });
    }
    let mut push = |addr, evidence| push(Start { addr, size: 0, name: None, evidence });
    let entry = Evidence { entry: true, ..Evidence::default() };
    if image.elf.entry.0 != 0 {
        push(image.elf.entry, entry);
    }
    let reloc_target = Evidence { reloc_target: true, ..Evidence::default() };
    for reloc in &image.relocs {
        match reloc.kind {
            RelocKind::Relative | RelocKind::Irelative => {
                push(LinkAddr(reloc.addend as u64), reloc_target);
            }
            RelocKind::Abs64 if reloc.symbol_value != 0 => {
                push(LinkAddr(reloc.symbol_value).offset(reloc.addend), reloc_target);
            }
            _ => {}
        }
    }
    let init_array = Evidence { init_array: true, ..Evidence::default() };
    // What `DT_INIT` and `DT_FINI` name is put together by the linker, from pieces of several files, but
    // runs like any other function.
    for target in init_targets(image).into_iter().chain(init_fini.into_iter().flatten()) {
        push(target, init_array);
    }

    // Stable: the symbol, which has the name and the size, stays first.
    starts.sort_by_key(|start| start.addr);
    starts.dedup_by(|next, kept| {
        let same = next.addr == kept.addr;
        if same {
            kept.evidence.merge(next.evidence);
        }
        same
    });
    starts
}

/// Functions that the arrays of initialisers and finalisers point to.
fn init_targets(image: &Image) -> Vec<LinkAddr> {
    let arrays: Vec<(LinkAddr, u64)> = match &image.dynamic {
        Some(dynamic) => dynamic.arrays.to_vec(),
        None => {
            let is_array = |kind| {
                use SectionKind::{FiniArray, InitArray, PreinitArray};
                matches!(kind, InitArray | FiniArray | PreinitArray)
            };
            let sections = image.elf.sections.iter().filter(|section| is_array(section.kind));
            sections.map(|section| (section.start, section.size)).collect()
        }
    };
    let mut targets = Vec::new();
    for (start, size) in arrays {
        let Some(rest) = image.elf.read_from(start) else { continue };
        let array = raw::first(rest, usize::try_from(size).unwrap_or(usize::MAX));
        for (slot, word) in (0u64..).zip(array.chunks_exact(8)) {
            let word = raw::u64(word, 0).unwrap_or_default();
            let reloc = image.relocs_at(start + slot * 8).first();
            let relative = reloc.filter(|reloc| reloc.kind == RelocKind::Relative);
            targets.push(LinkAddr(relative.map_or(word, |reloc| reloc.addend as u64)));
        }
    }
    targets
}

/// Gives each start to the known function that it lies in; returns those that lie in none.
fn absorb<'a>(functions: &mut [FunctionRange], starts: Vec<Start<'a>>) -> Vec<Start<'a>> {
    let mut orphans = Vec::new();
    let mut index = 0;
    for start in starts {
        while functions.get(index).is_some_and(|function| function.end <= start.addr) {
            index += 1;
        }
        match functions.get_mut(index) {
            Some(function) if function.start == start.addr => {
                function.name = start.name.map(str::to_owned);
                function.evidence.merge(start.evidence);
            }
            Some(function) if function.contains(start.addr) => add_interior(function, &start),
            _ => orphans.push(start),
        }
    }
    orphans
}

fn add_interior(function: &mut FunctionRange, start: &Start<'_>) {
    if start.evidence.symbol || start.evidence.entry {
        function.interior.push(start.addr);
    }
    if start.evidence.reloc_target || start.evidence.init_array {
        function.address_taken.push(start.addr);
    }
}

/// Makes functions of starts that no unwind entry covers.
fn from_starts(
    image: &Image,
    known: &[FunctionRange],
    excluded: &[Range<LinkAddr>],
    orphans: Vec<Start<'_>>,
) -> Vec<FunctionRange> {
    let mut functions: Vec<FunctionRange> = Vec::new();
    for (index, start) in orphans.iter().enumerate() {
        // Nothing may reach past the next known function, the PLT, or the end of the code.
        let next_known = known.get(known.partition_point(|function| function.start <= start.addr));
        let limit = [
            next_known.map(|function| function.start),
            next_excluded(excluded, start.addr),
            image.elf.code_end(start.addr),
        ];
        let limit = limit.into_iter().flatten().min().unwrap_or(start.addr);
        if let Some(last) = functions.last_mut()
            && last.contains(start.addr)
        {
            add_interior(last, start);
            last.end = last.end.max(start.addr.saturating_add(start.size).min(limit));
            continue;
        }
        let mut evidence = start.evidence;
        let end = if start.size > 0 {
            start.addr.saturating_add(start.size).min(limit)
        } else {
            evidence.size_guessed = true;
            orphans.get(index + 1).map_or(limit, |next| next.addr.min(limit))
        };
        if end > start.addr {
            functions.push(FunctionRange {
                start: start.addr,
                end,
                name: start.name.map(str::to_owned),
                evidence,
                interior: Vec::new(),
                address_taken: Vec::new(),
            });
        }
    }
    functions
}
