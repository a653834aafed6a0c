//! The program's file: what is loaded where, and which functions it names.

use std::collections::BTreeMap;

use fettle_mips::{Insn, Kind, Reg};
use object::read::elf::{ElfFile32, FileHeader as _};
use object::{Object as _, ObjectSection as _, ObjectSegment as _, ObjectSymbol as _, elf};
use rustc_hash::FxHashSet;

use crate::convention::Convention;
use crate::error::Error;

/// Flags of the header: code in the shorter encodings, microMIPS and MIPS16.
const COMPRESSED_CODE: u32 = 0x0200_0000 | 0x0400_0000;

/// A flag of the header: code for floating-point registers that all have 64 bits.
const WIDE_REGISTERS: u32 = 0x200;

/// A flag of the header: code for RISC-V with half of the integer registers.
const FEW_REGISTERS: u32 = 0x8;

/// Heap and stack of a program that does not say how much it has.
const DEFAULT_HEAP: u32 = 16 << 20;

/// Instructions at the start among which the global pointer is set.
const GLOBAL_POINTER_SEARCH: usize = 16;

/// Sections that are lists of functions.
const LISTS: [&str; 5] = [".preinit_array", ".init_array", ".fini_array", ".ctors", ".dtors"];

/// The section with what a library offers to Java: names and functions.
const EXPORTS: &str = "fettle_exports";

const JR_T9: u32 = 0x0320_0008;
const LI_A1_0: u32 = 0x0000_2825;
const LI_A1_1: u32 = 0x2405_0001;
const MOVE_A2_SP: u32 = 0x03a0_3025;
const MOVE_A3_FP: u32 = 0x03c0_3825;
/// The upper halves of loads.
const LW_T9_GP: u32 = 0x8f99;
const LW_SP_A0: u32 = 0x8c9d;
const LW_T9_A0: u32 = 0x8c99;

/// Whether code passes on the stack and the frame pointer before it does anything else, which only
/// what fills a buffer for `longjmp` does.
fn passes_stack_pointer(code: &[u32]) -> bool {
    let jump = code.iter().take(8).position(|&word| word == JR_T9);
    jump.is_some_and(|jump| [MOVE_A2_SP, MOVE_A3_FP].iter().all(|m| code[..jump].contains(m)))
}

/// Whether code gets the stack pointer and where to go to from a buffer, as `longjmp` does.
fn takes_stack_pointer(code: &[u32]) -> bool {
    let jump = code.iter().position(|&word| word == JR_T9).unwrap_or(0);
    let loads = |half: u32| code[..jump].iter().any(|word| word >> 16 == half);
    loads(LW_SP_A0) && loads(LW_T9_A0)
}

/// Upper halves of stores of the first four arguments on the stack.
const SAVED_ARGUMENTS: [u32; 4] = [0xafa4, 0xafa5, 0xafa6, 0xafa7];
const MOVE_A2_RA: u32 = 0x03e0_3025;

/// The functions of libgcc's unwinder that return to another frame, in the order of its source.
const UNWINDER: [&str; 4] = [
    "_Unwind_RaiseException",
    "_Unwind_ForcedUnwind",
    "_Unwind_Resume",
    "_Unwind_Resume_or_Rethrow",
];

/// Whether code keeps the registers of a landing pad's values, and passes on where it is to return
/// to, as only these functions do.
fn returns_elsewhere(code: &[u32]) -> bool {
    let stores = |half: &u32| code.iter().any(|word| word >> 16 == *half);
    code.contains(&MOVE_A2_RA) && SAVED_ARGUMENTS.iter().all(stores)
}

/// A part of the program's memory that its file fills.
struct Piece {
    address: u32,
    bytes: Vec<u8>,
    writable: bool,
    executable: bool,
}

/// The calling convention of a static executable; why it is none that can be translated.
fn convention_of(elf: &ElfFile32<object::Endianness>) -> Result<Convention, Error> {
    let endian = elf.endian();
    let header = elf.elf_header();
    let machine = header.e_machine(endian);
    let convention = match machine {
        elf::EM_MIPS => Convention::O32,
        elf::EM_RISCV if elf.is_little_endian() => Convention::RiscV,
        _ => return Err(Error::NotMips32(format!("machine {machine}"))),
    };
    if elf.elf_program_headers().iter().any(|p| p.p_type.get(endian) == elf::PT_INTERP) {
        return Err(Error::Dynamic);
    }
    match header.e_type(endian) {
        elf::ET_EXEC => {}
        elf::ET_REL => return Err(Error::NotLinked),
        _ => return Err(Error::Dynamic),
    }
    let flags = header.e_flags(endian);
    if convention == Convention::O32 && flags.0 & COMPRESSED_CODE != 0 {
        return Err(Error::NotMips32("microMIPS or MIPS16 code".into()));
    }
    Ok(convention)
}

/// How the program uses odd floating-point registers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OddRegisters {
    /// An odd register is the high half of the even one before it.
    HighHalves,
    /// An odd register is a register.
    Registers,
}

/// A program, or why it is none that can be translated.
pub struct Image {
    /// Where it starts.
    pub entry: u32,
    /// Its byte order.
    pub big_endian: bool,
    /// Functions by address, with their sizes.
    pub functions: BTreeMap<u32, (String, u32)>,
    /// The value of the global pointer.
    pub gp: u32,
    /// What odd floating-point registers are.
    pub odd: OddRegisters,
    /// Its calling convention, which says the machine, too.
    pub convention: Convention,
    /// Whether it has six registers for integer arguments where others of its machine have eight.
    pub few_arguments: bool,
    /// Whether all of it lies from 2 GB on, as on boards that have their memory there.
    pub high: bool,
    /// One past the last address that a program without a kernel uses; 0 where a kernel says that.
    pub memory_top: u32,
    pieces: Vec<Piece>,
    /// Parts of functions that the compiler put elsewhere, because they are seldom executed.
    cold: Vec<std::ops::Range<u32>>,
    /// Places in code that words of data lead to, absolute or from the global pointer, in order.
    labels: Vec<u32>,
    /// The global offset table, whose entries never change in a static program.
    got: std::ops::Range<u32>,
    /// What is constant once it is relocated; a C library also keeps there what it sets at its start.
    relocated: std::ops::Range<u32>,
    /// Functions that Java calls.
    pub exports: FxHashSet<u32>,
    /// Lists of functions that are called when the program starts and ends.
    lists: Vec<std::ops::Range<u32>>,
    /// Sections, by address: data among them are searched for pointers.
    data: Vec<std::ops::Range<u32>>,
    /// Where the unwinder's table is.
    pub frames: std::ops::Range<u32>,
    file: Vec<u8>,
}

impl Image {
    /// Reads a static MIPS executable.
    pub fn parse(file: &[u8]) -> Result<Self, Error> {
        let kind = object::FileKind::parse(file).map_err(|_| Error::NotElf)?;
        match kind {
            object::FileKind::Elf32 => {}
            object::FileKind::Elf64 => return Err(Error::NotMips32("a 64-bit file".into())),
            _ => return Err(Error::NotElf),
        }
        let elf = ElfFile32::<object::Endianness>::parse(file)
            .map_err(|e| Error::Damaged(e.to_string()))?;
        let endian = elf.endian();
        let convention = convention_of(&elf)?;
        let header = elf.elf_header();
        let flags = header.e_flags(endian);
        let mut pieces = Vec::new();
        // Linkers leave empty segments at address 0.
        for segment in elf.segments().filter(|segment| segment.size() > 0) {
            let bytes = segment.data().map_err(|e| Error::Damaged(e.to_string()))?;
            let object::SegmentFlags::Elf { p_flags, .. } = segment.flags() else { continue };
            pieces.push(Piece {
                address: segment.address() as u32,
                bytes: bytes.to_vec(),
                writable: p_flags.0 & elf::PF_W.0 != 0,
                executable: p_flags.0 & elf::PF_X.0 != 0,
            });
        }
        let mut image = Self {
            entry: header.e_entry(endian),
            big_endian: !elf.is_little_endian(),
            functions: BTreeMap::new(),
            gp: 0,
            // Unless the section that says so is there: older compilers wrote none.
            odd: match flags.0 & WIDE_REGISTERS {
                0 => OddRegisters::HighHalves,
                _ => OddRegisters::Registers,
            },
            convention,
            few_arguments: convention == Convention::RiscV && flags.0 & FEW_REGISTERS != 0,
            high: !pieces.is_empty() && pieces.iter().all(|piece| piece.address >= 1 << 31),
            memory_top: 0,
            pieces,
            cold: Vec::new(),
            labels: Vec::new(),
            got: 0..0,
            relocated: 0..0,
            exports: FxHashSet::default(),
            lists: Vec::new(),
            data: Vec::new(),
            frames: 0..0,
            file: file.to_vec(),
        };
        image.read_sections(&elf);
        image.read_symbols(&elf);
        if image.gp == 0 && image.got.start != 0 {
            image.gp = image.got.start.wrapping_add(0x7ff0);
        }
        image.labels = image.find_labels();
        match convention {
            Convention::O32 => {
                if !image.functions.values().any(|(name, _)| !name.starts_with("function_")) {
                    image.guess_functions();
                }
                image.name_jumps();
            }
            Convention::RiscV => image.finish_bare(&elf)?,
        }
        if !image.is_code(image.entry) {
            return Err(Error::Damaged(format!("the entry {:#x} is not code", image.entry)));
        }
        Ok(image)
    }

    fn read_sections(&mut self, elf: &ElfFile32<object::Endianness>) {
        let mut sections = false;
        for section in elf.sections() {
            let (Ok(name), Ok(bytes)) = (section.name(), section.data()) else { continue };
            let start = section.address() as u32;
            let range = start..start.saturating_add(bytes.len() as u32);
            let object::SectionFlags::Elf { sh_flags, .. } = section.flags() else { continue };
            let allocated = sh_flags.0 & elf::SHF_ALLOC.0 != 0;
            let executable = sh_flags.0 & elf::SHF_EXECINSTR.0 != 0;
            if name == ".data.rel.ro" {
                self.relocated = range.clone();
            }
            match name {
                ".got" => self.got = range,
                // The kind of floating-point calling convention is byte 7; 1 is "double".
                ".MIPS.abiflags" if bytes.len() > 7 => {
                    self.odd = match bytes[7] {
                        1 => OddRegisters::HighHalves,
                        _ => OddRegisters::Registers,
                    };
                }
                ".reginfo" if bytes.len() >= 24 => self.gp = self.word_of(&bytes[20..24]),
                ".pdr" => self.read_procedures(bytes),
                ".eh_frame" => self.frames = range,
                ".gcc_except_table" | ".eh_frame_hdr" => {}
                // Programs for boards have their constants among the code.
                _ if allocated && (!executable || self.convention == Convention::RiscV) => {
                    if name == EXPORTS {
                        let functions =
                            bytes.chunks_exact(8).map(|record| self.word_of(&record[4..]));
                        self.exports = functions.collect();
                    }
                    if LISTS.contains(&name) {
                        self.lists.push(range.clone());
                    }
                    sections = true;
                    self.data.push(range);
                }
                _ => {}
            }
        }
        if !sections {
            let loaded = self.pieces.iter().filter(|p| p.writable || !p.executable);
            self.data =
                loaded.map(|p| p.address..p.address.saturating_add(p.bytes.len() as u32)).collect();
        }
    }

    /// Names the functions behind `setjmp` and `longjmp` by their code where the file does not: no
    /// translation of that code alone is right.
    fn name_jumps(&mut self) {
        let unnamed = self.functions.iter().filter(|(_, (name, _))| name.starts_with("function_"));
        let unnamed: Vec<u32> = unnamed.map(|(address, _)| *address).collect();
        let code = |from: u32| -> Vec<u32> {
            let words = (self.end_of(from).wrapping_sub(from) / 4).min(64);
            (0..words).map_while(|i| self.word(from.wrapping_add(4 * i))).collect()
        };
        let fills: Vec<u32> =
            unnamed.iter().copied().filter(|&at| passes_stack_pointer(&code(at))).collect();
        let calls_one = |&at: &u32| {
            let &[_, _, _, load, JR_T9, LI_A1_0 | LI_A1_1, ..] = &code(at)[..] else {
                return false;
            };
            let entry = self.gp.wrapping_add_signed(i32::from(load as i16));
            load >> 16 == LW_T9_GP && self.word(entry).is_some_and(|to| fills.contains(&to))
        };
        let mut names = vec![("__sigsetjmp", fills.clone())];
        names.push(("_setjmp", unnamed.iter().copied().filter(calls_one).collect()));
        let jumps = |&at: &u32| takes_stack_pointer(&code(at));
        names.push(("__longjmp", unnamed.iter().copied().filter(jumps).collect()));
        let unwinder: Vec<u32> =
            unnamed.iter().copied().filter(|&at| returns_elsewhere(&code(at))).collect();
        if unwinder.len() == UNWINDER.len() {
            names.extend(UNWINDER.into_iter().zip(unwinder.into_iter().map(|at| vec![at])));
        }
        for (name, addresses) in names {
            for address in addresses {
                if let Some((old, _)) = self.functions.get_mut(&address) {
                    *old = name.to_owned();
                }
            }
        }
    }

    /// Whether a place is in the global offset table, from which direct calls get their targets.
    pub fn in_offset_table(&self, address: u32) -> bool {
        self.got.contains(&address)
    }

    /// Procedure descriptors, which stripped files still have: 32 bytes each, the address first.
    fn read_procedures(&mut self, bytes: &[u8]) {
        for descriptor in bytes.chunks_exact(32) {
            let address = self.word_of(&descriptor[..4]);
            if self.is_code(address) {
                self.functions.insert(address, (format!("function_{address:x}"), 0));
            }
        }
    }

    fn read_symbols(&mut self, elf: &ElfFile32<object::Endianness>) {
        for symbol in elf.symbols() {
            let Ok(name) = symbol.name() else { continue };
            let address = symbol.address() as u32;
            if name == "_gp" {
                self.gp = address;
            }
            if name == "__global_pointer$" {
                self.gp = address;
            }
            // What is written in assembly often has no type; nor have ends of sections.
            let untyped = self.convention == Convention::RiscV
                && matches!(symbol.kind(), object::SymbolKind::Unknown | object::SymbolKind::Label)
                && symbol.is_global()
                && !name.starts_with("__")
                && self.word(address).is_some_and(|word| self.is_insn(word));
            if symbol.is_undefined() || symbol.kind() != object::SymbolKind::Text && !untyped {
                continue;
            }
            // Cold parts are reached by branches and are no functions by themselves.
            if name.contains(".cold") {
                self.cold.push(address..address.saturating_add(symbol.size() as u32));
                continue;
            }
            if name.is_empty() || !self.is_code(address) {
                continue;
            }
            let entry = self.functions.entry(address).or_insert_with(|| (String::new(), 0));
            let better = entry.0.is_empty()
                || entry.0.starts_with("function_")
                || (symbol.is_global(), std::cmp::Reverse(name.len()))
                    > (entry.1 & 1 << 31 != 0, std::cmp::Reverse(entry.0.len()));
            let size = (symbol.size() as u32 & 0x7fff_ffff).max(entry.1 & 0x7fff_ffff);
            if better {
                entry.0 = name.to_owned();
                entry.1 = size | u32::from(symbol.is_global()) << 31;
            } else {
                entry.1 = size | entry.1 & 1 << 31;
            }
        }
        for (_, size) in self.functions.values_mut() {
            *size &= 0x7fff_ffff;
        }
    }

    fn word_of(&self, bytes: &[u8]) -> u32 {
        let bytes = [bytes[0], bytes[1], bytes[2], bytes[3]];
        if self.big_endian { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) }
    }

    fn piece(&self, address: u32) -> Option<&Piece> {
        self.pieces.iter().find(|p| {
            address.checked_sub(p.address).is_some_and(|at| (at as usize) < p.bytes.len())
        })
    }

    /// The word that the file has for an address.
    pub fn word(&self, address: u32) -> Option<u32> {
        let piece = self.piece(address)?;
        let at = (address - piece.address) as usize;
        piece.bytes.get(at..at + 4).map(|bytes| self.word_of(bytes))
    }

    /// What the file has for a range of addresses; nothing if it has not all of it.
    pub fn bytes(&self, range: std::ops::Range<u32>) -> &[u8] {
        let piece = self.piece(range.start);
        let bytes = piece.and_then(|piece| {
            let from = (range.start - piece.address) as usize;
            piece.bytes.get(from..from.checked_add(range.len())?)
        });
        bytes.unwrap_or_default()
    }

    /// The byte that the file has for an address.
    pub fn byte(&self, address: u32) -> Option<u8> {
        let piece = self.piece(address)?;
        piece.bytes.get((address - piece.address) as usize).copied()
    }

    /// The word at an address, if the program can never change it.
    pub fn constant(&self, address: u32) -> Option<u32> {
        if !address.is_multiple_of(4) {
            return None;
        }
        let constant = self.got.contains(&address) || !self.piece(address)?.writable;
        if constant { self.word(address) } else { None }
    }

    /// The word at an address in a table of labels: compilers put such tables also where constants
    /// are that need relocation.
    pub fn label(&self, address: u32) -> Option<u32> {
        match self.relocated.contains(&address) && address.is_multiple_of(4) {
            true => self.word(address),
            false => self.constant(address),
        }
    }

    /// The half word that the file has for an address.
    pub fn half(&self, address: u32) -> Option<u16> {
        let piece = self.piece(address)?;
        let at = (address - piece.address) as usize;
        piece.bytes.get(at..at + 2).map(|bytes| u16::from_le_bytes([bytes[0], bytes[1]]))
    }

    /// Whether a word begins with an instruction.
    pub fn is_insn(&self, word: u32) -> bool {
        self.text(word, 0).is_some()
    }

    /// The text of the instruction that a word begins with, at an address.
    pub fn text(&self, word: u32, pc: u32) -> Option<String> {
        match self.convention {
            Convention::O32 => Insn::decode(word).map(|insn| insn.text(pc)),
            Convention::RiscV => fettle_riscv::Insn::decode(word).map(fettle_riscv::Insn::text),
        }
    }

    /// What is left to say of a program without a kernel.
    fn finish_bare(&mut self, elf: &ElfFile32<object::Endianness>) -> Result<(), Error> {
        let named = |wanted: &str| {
            elf.symbols().find(|symbol| symbol.name() == Ok(wanted)).map(|s| s.address() as u32)
        };
        let segments = elf.segments().map(|s| (s.address() + s.size()) as u32);
        let end = segments.max().unwrap_or(0);
        let top = ["__stack", "__heap_end"].into_iter().filter_map(named).max();
        self.memory_top = match top {
            Some(top) if top >= end => top,
            _ => end.saturating_add(DEFAULT_HEAP),
        };
        if self.gp == 0 {
            self.gp = self.set_at_start().unwrap_or(0);
        }
        let split = self.pieces.iter().any(|piece| piece.address >= 1 << 31) && !self.high;
        if split || !self.high && self.memory_top >= 1 << 31 {
            return Err(Error::Damaged(
                "its memory is on both sides of 2 GB; link it to one of them".into(),
            ));
        }
        Ok(())
    }

    /// The global pointer as the first instructions set it.
    fn set_at_start(&self) -> Option<u32> {
        let mut pc = self.entry;
        let mut page = None;
        for _ in 0..GLOBAL_POINTER_SEARCH {
            let insn = fettle_riscv::Insn::decode(self.word(pc)?)?;
            match insn.op {
                fettle_riscv::Op::Auipc if insn.rd == fettle_riscv::Reg::GP => {
                    page = Some(insn.target(pc));
                }
                fettle_riscv::Op::Addi if insn.rd == fettle_riscv::Reg::GP => {
                    return page.map(|page| page.wrapping_add_signed(insn.imm));
                }
                _ => {}
            }
            pc = pc.wrapping_add(u32::from(insn.size));
        }
        None
    }

    /// Whether an instruction may be there.
    pub fn is_code(&self, address: u32) -> bool {
        let unit = if self.convention == Convention::RiscV { 2 } else { 4 };
        address.is_multiple_of(unit) && self.piece(address).is_some_and(|p| p.executable)
    }

    /// Where the function begins that an address is in, as far as is known.
    pub fn function_around(&self, address: u32) -> Option<u32> {
        let (&entry, _) = self.functions.range(..=address).next_back()?;
        (address < self.end_of(entry)).then_some(entry)
    }

    /// The function that begins at an address.
    pub fn function_at(&self, address: u32) -> Option<&str> {
        self.functions.get(&address).map(|(name, _)| name.as_str())
    }

    /// The address of a function by any of its names.
    pub fn function_named(&self, name: &str) -> Option<u32> {
        let elf = ElfFile32::<object::Endianness>::parse(&*self.file).ok()?;
        let named = elf.symbols().find(|symbol| {
            let is_function = !symbol.is_undefined() && symbol.kind() == object::SymbolKind::Text;
            is_function && symbol.name() == Ok(name)
        });
        named.map(|symbol| symbol.address() as u32).filter(|&address| self.is_code(address))
    }

    /// Where the function at an address ends, as far as is known.
    pub fn end_of(&self, start: u32) -> u32 {
        let next = self.functions.range(start + 1..).next().map(|(&address, _)| address);
        match self.size_of(start) {
            Some(size) => start.saturating_add(size),
            None => next.unwrap_or(start.saturating_add(1 << 20)),
        }
    }

    /// How large the function at an address is, if the file says so.
    pub fn size_of(&self, start: u32) -> Option<u32> {
        self.functions.get(&start).map(|(_, size)| *size).filter(|&size| size > 0)
    }

    /// Aligned words of data that are addresses of code: where, and what.
    pub fn code_pointers(&self) -> Vec<(u32, u32)> {
        let mut found = Vec::new();
        for range in &self.data {
            for address in (range.start.next_multiple_of(4)..range.end.saturating_sub(3)).step_by(4)
            {
                if let Some(word) = self.word(address).filter(|&word| self.is_code(word)) {
                    found.push((address, word));
                }
            }
        }
        found
    }

    /// Functions of the start-up code have no descriptors, but lists of functions name them. Where
    /// there are no descriptors at all, what data point at is a function if another ends before it.
    fn guess_functions(&mut self) {
        let described = !self.functions.is_empty();
        for (at, to) in self.code_pointers() {
            let listed = self.lists.iter().any(|list| list.contains(&at));
            if listed || (!described && self.is_behind_return(to)) {
                self.functions.entry(to).or_insert_with(|| (format!("function_{to:x}"), 0));
            }
        }
    }

    fn is_behind_return(&self, address: u32) -> bool {
        let mut before = address.wrapping_sub(4);
        while self.is_code(before) && self.word(before) == Some(0) {
            before = before.wrapping_sub(4);
        }
        // The last two instructions are a return and what is in its delay slot, which may be a nop.
        [before, before.wrapping_sub(4)].into_iter().any(|at| {
            let insn = self.word(at).and_then(Insn::decode);
            insn.is_some_and(|i| i.kind() == Kind::JumpRegister && i.rs() == Reg::RA)
        })
    }

    /// Whether an address is in a part of a function that was put elsewhere.
    pub fn is_cold(&self, address: u32) -> bool {
        self.cold.iter().any(|range| range.contains(&address))
    }

    fn find_labels(&self) -> Vec<u32> {
        let mut labels = Vec::new();
        for range in &self.data {
            for at in (range.start.next_multiple_of(4)..range.end.saturating_sub(3)).step_by(4) {
                let Some(word) = self.word(at) else { continue };
                let both = [word, word.wrapping_add(self.gp)];
                labels.extend(both.into_iter().filter(|&to| self.is_code(to)));
            }
        }
        labels.sort_unstable();
        labels.dedup();
        labels
    }

    /// Places within a range of code that words of data lead to.
    pub fn labels(&self, range: std::ops::Range<u32>) -> &[u32] {
        let from = self.labels.partition_point(|&label| label < range.start);
        let to = self.labels.partition_point(|&label| label < range.end);
        self.labels.get(from..to).unwrap_or_default()
    }

    /// The file, from which the runtime loads the program.
    pub fn file(&self) -> &[u8] {
        &self.file
    }
}
