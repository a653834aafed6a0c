//! One parsed image, and what can be asked of it.

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use crate::dwarf::DwarfSource;
use crate::dynamic::{self, Dynamic};
use crate::elf::{Elf, Kind, Section, Segment};
use crate::error::Warnings;
use crate::members::{self, Holder};
use crate::signature::{self, Signature, SignatureCache};
use crate::unwind::{self, Fde, UnwindTables};
use crate::{
    Bytes, Error, FunctionRange, LineTable, LinkAddr, PltEntry, Reloc, Symbol, SymbolSource,
    Warning, debug, plt, symbols,
};

/// An ELF image for x86-64.
#[derive(Clone, Debug)]
pub struct Image {
    pub(crate) elf: Arc<Elf>,
    pub(crate) dynamic: Option<Dynamic>,
    pub(crate) symbols: Vec<Symbol>,
    pub(crate) relocs: Vec<Reloc>,
    pub(crate) plt: Vec<PltEntry>,
    pub(crate) fdes: Vec<Fde>,
    unwind: UnwindTables,
    build_id: Option<Range<usize>>,
    dwarf: DwarfSource,
    signatures: SignatureCache,
    warnings: Warnings,
    pub(crate) functions: OnceLock<Vec<FunctionRange>>,
}

impl Image {
    /// Reads a whole file. Only what leaves nothing to work with is an error; lesser damage is
    /// listed by [`Image::warnings`].
    pub fn parse(bytes: impl Into<Bytes>) -> Result<Image, Error> {
        let mut warnings = Warnings::default();
        // Headers, and the map from addresses to bytes; beyond this point nothing fails.
        let elf = Arc::new(Elf::parse(bytes.into(), &mut warnings)?);
        // The dynamic section.
        let dynamic = Dynamic::parse(&elf, &mut warnings);
        // Names.
        let mut symbols = symbols::read(&elf, dynamic.as_ref(), &mut warnings);
        debug::merge_gnu_debugdata(&elf, &mut symbols, &mut warnings);
        // Places that are filled in at load time, and the jumps through them.
        let relocs = dynamic::relocs(&elf, dynamic.as_ref(), &mut warnings);
        let plt = plt::entries(&elf, &relocs);
        // Frames.
        let pltgot = dynamic.as_ref().and_then(|dynamic| dynamic.pltgot);
        let unwind = UnwindTables::find(&elf, pltgot);
        let fdes = unwind::fdes(&elf, &unwind, &mut warnings);
        // Identity.
        let build_id = debug::build_id(&elf);
        let dwarf = DwarfSource::new(elf.clone());
        Ok(Image {
            elf,
            dynamic,
            symbols,
            relocs,
            plt,
            fdes,
            unwind,
            build_id,
            dwarf,
            signatures: SignatureCache::default(),
            warnings,
            functions: OnceLock::new(),
        })
    }

    /// The whole file.
    pub fn bytes(&self) -> &[u8] {
        &self.elf.bytes
    }

    /// What sort of file it is.
    pub fn kind(&self) -> Kind {
        self.elf.kind
    }

    /// Where execution starts; zero in most libraries.
    pub fn entry(&self) -> LinkAddr {
        self.elf.entry
    }

    /// What the loader calls before and after the program: `DT_INIT` and `DT_FINI`. Stripped, these
    /// have no other name.
    pub fn initializers(&self) -> impl Iterator<Item = LinkAddr> {
        let dynamic = self.dynamic.as_ref();
        dynamic.and_then(|d| d.init).into_iter().chain(dynamic.and_then(|d| d.fini))
    }

    /// Path of the dynamic linker.
    pub fn interpreter(&self) -> Option<&str> {
        self.elf.interpreter.as_deref()
    }

    /// The hash that identifies this build.
    pub fn build_id(&self) -> Option<&[u8]> {
        self.elf.bytes.get(self.build_id.clone()?)
    }

    /// Name under which a library is loaded.
    pub fn soname(&self) -> Option<&str> {
        self.dynamic.as_ref()?.soname.as_deref()
    }

    /// Names of the libraries it needs.
    pub fn needed(&self) -> &[String] {
        self.dynamic.as_ref().map_or(&[], |dynamic| &dynamic.needed)
    }

    /// Where its libraries are looked for first (`DT_RUNPATH` or `DT_RPATH`), as written.
    pub fn runpath(&self) -> Option<&str> {
        self.dynamic.as_ref()?.runpath.as_deref()
    }

    /// Loadable segments, sorted by address; none in an object file.
    pub fn segments(&self) -> &[Segment] {
        &self.elf.segments
    }

    /// All sections in file order, so that an index in the file is an index here.
    pub fn sections(&self) -> &[Section] {
        &self.elf.sections
    }

    /// The first section of that name.
    pub fn section(&self, name: &str) -> Option<&Section> {
        self.elf.section(name)
    }

    /// The section that holds `addr` in memory.
    pub fn section_at(&self, addr: LinkAddr) -> Option<&Section> {
        self.elf.section_at(addr)
    }

    /// The loadable segment that holds `addr`.
    pub fn segment_at(&self, addr: LinkAddr) -> Option<&Segment> {
        self.elf.segment_at(addr)
    }

    /// The bytes of a section of this image as they stand in the file.
    pub fn section_data(&self, section: &Section) -> Option<&[u8]> {
        self.elf.section_data(section)
    }

    /// Symbols defined here, of all tables, sorted by address.
    pub fn symbols(&self) -> &[Symbol] {
        &self.symbols
    }

    /// Symbols at exactly `addr`.
    pub fn symbols_at(&self, addr: LinkAddr) -> &[Symbol] {
        equal_run(&self.symbols, addr, |symbol| symbol.addr)
    }

    /// Dynamic relocations, sorted by the address of the place they fill in.
    pub fn relocs(&self) -> &[Reloc] {
        &self.relocs
    }

    /// Dynamic relocations of exactly the place at `addr`.
    pub fn relocs_at(&self, addr: LinkAddr) -> &[Reloc] {
        equal_run(&self.relocs, addr, |reloc| reloc.addr)
    }

    /// PLT entries, sorted by address.
    pub fn plt(&self) -> &[PltEntry] {
        &self.plt
    }

    /// The PLT entry that holds `addr`.
    pub fn plt_at(&self, addr: LinkAddr) -> Option<&PltEntry> {
        let after = self.plt.partition_point(|entry| entry.start <= addr);
        self.plt.get(after.checked_sub(1)?).filter(|entry| addr - entry.start < entry.size)
    }

    /// Unwind entries, sorted by start, without overlap.
    pub fn fdes(&self) -> &[Fde] {
        &self.fdes
    }

    /// The unwind entry that covers `addr`.
    pub fn fde_at(&self, addr: LinkAddr) -> Option<&Fde> {
        let after = self.fdes.partition_point(|fde| fde.start <= addr);
        self.fdes.get(after.checked_sub(1)?).filter(|fde| addr < fde.end)
    }

    /// `len` bytes at `addr`, if the file has all of them. `None` for zero-filled memory.
    pub fn read(&self, addr: LinkAddr, len: usize) -> Option<&[u8]> {
        self.elf.read(addr, len)
    }

    /// Whether `addr` holds machine code.
    #[inline]
    pub fn is_code(&self, addr: LinkAddr) -> bool {
        self.elf.is_code(addr)
    }

    /// Whether `addr` is mapped at all.
    pub fn is_mapped(&self, addr: LinkAddr) -> bool {
        self.elf.is_mapped(addr)
    }

    /// Whether the program may write to `addr`, at least while it is being loaded.
    pub fn is_writable(&self, addr: LinkAddr) -> bool {
        self.elf.is_writable(addr)
    }

    /// The unwind entries as bytes, for gimli; those of an object file with relocations applied.
    pub fn eh_frame(&self) -> Option<(LinkAddr, &[u8])> {
        let (addr, range) = self.unwind.eh_frame.clone()?;
        let relocated = self.unwind.relocated.as_deref();
        Some((addr, relocated.or_else(|| self.elf.bytes.get(range))?))
    }

    /// The index of the unwind entries, also when the section headers are stripped.
    pub fn eh_frame_hdr(&self) -> Option<(LinkAddr, &[u8])> {
        let (addr, range) = self.unwind.eh_frame_hdr.clone()?;
        Some((addr, self.elf.bytes.get(range)?))
    }

    /// Base addresses that encoded pointers in the unwind tables are relative to.
    pub fn unwind_bases(&self) -> gimli::BaseAddresses {
        self.unwind.bases.clone()
    }

    /// File offset and number of the program headers.
    pub fn phdr_bytes(&self) -> (u64, usize) {
        self.elf.program_headers
    }

    /// Template of the thread-local block (`PT_TLS`).
    pub fn tls(&self) -> Option<Segment> {
        self.elf.tls.clone()
    }

    /// Adds the symbols and the DWARF of a separate debug file. One of another build is left out,
    /// with a warning.
    pub fn with_debug(mut self, debug: &Image) -> Image {
        if let Some(why) = mismatch(&self, debug) {
            self.warnings.push(Warning::DebugFile(why));
            return self;
        }
        symbols::merge(&mut self.symbols, &debug.symbols, SymbolSource::DebugFile);
        if debug.dwarf.has_debug_info() {
            self.dwarf = debug.dwarf.clone();
            self.signatures = SignatureCache::default();
        }
        self.functions = OnceLock::new();
        self
    }

    /// Name and CRC-32 of the separate debug file.
    pub fn debug_link(&self) -> Option<(String, u32)> {
        debug::debug_link(&self.elf)
    }

    /// Name and build ID of the file with debug information shared between programs.
    pub fn debug_alt(&self) -> Option<(String, Vec<u8>)> {
        debug::debug_alt(&self.elf)
    }

    /// The embedded symbols (MiniDebugInfo), decompressed: an ELF file of its own. They are
    /// already among [`Image::symbols`].
    pub fn gnu_debugdata(&self) -> Option<Vec<u8>> {
        debug::gnu_debugdata(&self.elf)?.ok()
    }

    /// Whether DWARF debug information is available.
    pub fn has_debug_info(&self) -> bool {
        self.dwarf.has_debug_info()
    }

    /// What was wrong with the file but left the rest usable.
    pub fn warnings(&self) -> &[Warning] {
        self.warnings.as_slice()
    }

    /// Parameters and result of the function that starts at `addr`, if DWARF has them. `None`
    /// where the arguments are not those of the source: for copies that the compiler specialised,
    /// and for Rust closures, which DWARF describes without their captured state.
    pub fn signature(&self, addr: LinkAddr) -> Option<Signature> {
        // The newer and the older Rust scheme write closures differently.
        let misleading = |name: &str| {
            [".isra.", ".constprop.", ".part."].iter().any(|mark| name.contains(mark))
                || name.starts_with("_R") && fettle_demangle::demangle(name).contains("{closure")
                || name.contains("$u7b$$u7b$closure")
        };
        if self.symbols_at(addr).iter().any(|symbol| misleading(&symbol.name)) {
            return None;
        }
        signature::find(&self.dwarf, &self.signatures, addr)
    }

    /// The lock that lies `offset` bytes behind what is held at `holder` when the instruction at `at` runs, if a variable
    /// that lies there points to a structure with it, by DWARF: the structure's name and the member's.
    pub fn lock_member(
        &self,
        at: LinkAddr,
        holder: Holder,
        offset: i64,
    ) -> Option<(String, String)> {
        members::find(&self.dwarf, at, holder, offset)
    }

    /// Lookup from addresses to source lines.
    pub fn lines(&self) -> LineTable<'_> {
        LineTable::new(self.dwarf.load(), self.dwarf.units().clone())
    }
}

fn equal_run<T>(sorted: &[T], addr: LinkAddr, key: impl Fn(&T) -> LinkAddr) -> &[T] {
    let first = sorted.partition_point(|item| key(item) < addr);
    let (_, rest) = sorted.split_at(first);
    rest.split_at(rest.partition_point(|item| key(item) == addr)).0
}

/// Why `debug` cannot be the debug file of `image`, if it cannot.
fn mismatch(image: &Image, debug: &Image) -> Option<String> {
    let (ours, theirs) = (image.build_id()?, debug.build_id()?);
    (ours != theirs).then(|| {
        let hex = |id: &[u8]| id.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        format!("its build ID is {}, but {} is wanted", hex(theirs), hex(ours))
    })
}
