//! All of it together.

use std::io::{Read, Seek};

use fettle_btf::Btf;

use crate::blacklist::Blacklist;
use crate::bytes::u64_at;
use crate::core::Core;
use crate::error::Error;
use crate::functions::{FunctionRange, Functions};
use crate::orc::Orc;
use crate::symbols::Symbols;
use crate::tables::{Raw, Tables};

/// What a kernel's image is read from.
#[derive(Debug)]
pub struct Sources<'a, R> {
    /// `uname -r`.
    pub release: &'a str,
    /// `/proc/kcore`, or a copy of the kernel's image out of it.
    pub core: R,
    /// `/proc/kallsyms`, as root reads it.
    pub kallsyms: &'a str,
    /// `/sys/kernel/btf/vmlinux`.
    pub btf: Vec<u8>,
    /// `/sys/kernel/debug/kprobes/blacklist`.
    pub blacklist: &'a str,
}

/// The image of a running kernel.
#[derive(Debug)]
pub struct Image {
    /// `uname -r`.
    pub release: String,
    /// Its symbols.
    pub symbols: Symbols,
    /// Its structures.
    pub types: Btf,
    /// Its functions.
    pub functions: Functions,
    /// Its tables about text.
    pub tables: Tables,
    /// Its unwind table.
    pub orc: Orc,
    /// Text that is left unmodified.
    pub blacklist: Blacklist,
    memory: Vec<u8>,
    start: u64,
    text: std::ops::Range<u64>,
    sealed: std::ops::Range<u64>,
    /// Where `struct static_key` has its type.
    key_type: u64,
}

/// Structures whose layout [`Tables`] and [`Orc`] know.
const LAYOUTS: [(&str, u32); 5] = [
    ("exception_table_entry", 12),
    ("jump_entry", 16),
    ("static_call_site", 8),
    ("bug_entry", 12),
    ("orc_entry", 6),
];

impl Image {
    /// Reads the image of a kernel.
    ///
    /// # Errors
    /// If something that is needed is not there, or is not as known kernels have it.
    pub fn read<R: Read + Seek>(sources: Sources<'_, R>) -> Result<Image, Error> {
        let symbols = Symbols::parse(sources.kallsyms)?;
        let types = Btf::parse(sources.btf)?;
        for (structure, known) in LAYOUTS {
            let found = types.struct_size(structure)?;
            if found != known {
                return Err(Error::Layout { structure, found, known });
            }
        }
        let address = |name: &'static str| symbols.address(name).ok_or(Error::NoSymbol(name));
        let (start, end) = (address("_text")?, address("_end")?);
        let text = address("_stext")?..address("_etext")?;
        let sealed = address("__start_ro_after_init")?..address("__end_ro_after_init")?;
        let memory = Core::new(sources.core)?.read(start, end)?;
        let slice = |from: u64, to: u64, what| {
            let bounds = from.checked_sub(start).zip(to.checked_sub(start));
            bounds
                .and_then(|(from, to)| memory.get(from as usize..to as usize))
                .ok_or(Error::Table(what))
        };
        let table = |from, to, what| {
            let at = address(from)?;
            Ok::<_, Error>(Raw { bytes: slice(at, address(to)?, what)?, at })
        };
        let tables = Tables::parse(
            table("__start___ex_table", "__stop___ex_table", "exceptions")?,
            table("__start___jump_table", "__stop___jump_table", "jump labels")?,
            table("__start_static_call_sites", "__stop_static_call_sites", "static calls")?,
            table("__start___bug_table", "__stop___bug_table", "bugs")?,
        )?;
        let starts = table("__start_orc_unwind_ip", "__stop_orc_unwind_ip", "unwind rows")?;
        let rows = table("__start_orc_unwind", "__stop_orc_unwind", "unwind rows")?;
        let orc = Orc::parse(starts.bytes, starts.at, rows.bytes)?;
        let functions =
            Functions::find(&symbols, slice(text.start, text.end, "functions")?, text.start);
        Ok(Image {
            release: sources.release.trim().to_string(),
            key_type: types.field("static_key", "type")?.offset.into(),
            functions,
            tables,
            orc,
            blacklist: Blacklist::parse(sources.blacklist),
            symbols,
            types,
            start,
            text,
            sealed,
            memory,
        })
    }

    /// Where the kernel begins, `_text`: in each boot elsewhere.
    pub fn start(&self) -> u64 {
        self.start
    }

    /// The bytes from `address` on, if the image has so many.
    pub fn bytes(&self, address: u64, length: usize) -> Option<&[u8]> {
        let from = usize::try_from(address.checked_sub(self.start)?).ok()?;
        self.memory.get(from..from.checked_add(length)?)
    }

    /// The eight bytes at `address` as a number.
    pub fn word(&self, address: u64) -> Option<u64> {
        u64_at(self.bytes(address, 8)?, 0)
    }

    /// Whether `address` lies in the kernel's text, that of its init sections not included.
    pub fn is_text(&self, address: u64) -> bool {
        self.text.contains(&address)
    }

    /// Whether `address` lies in what the kernel may only write while it boots: static keys there no
    /// longer change.
    pub fn is_sealed(&self, address: u64) -> bool {
        self.sealed.contains(&address)
    }

    /// The function of that name, if there is one and only one; by any of its symbols.
    pub fn function(&self, name: &str) -> Option<&FunctionRange> {
        self.functions.starting(self.symbols.address(name)?)
    }

    /// Whether `lock` prefixes of the text are replaced, because the kernel runs on one processor only: it
    /// brings them back when a second one comes, but not in copies.
    pub fn lacks_locks(&self) -> bool {
        let flag = self.symbols.address("uniproc_patched");
        flag.and_then(|at| self.bytes(at, 1)).is_some_and(|byte| byte != [0])
    }

    /// Whether the static key at `address` was true when its kernel was built: then entries of its table
    /// count as jumps at first (`jump_label_init_type`).
    pub fn key_starts_true(&self, address: u64) -> Option<bool> {
        Some(self.word(address.checked_add(self.key_type)?)? & 1 != 0)
    }
}
