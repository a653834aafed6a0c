//! All of it together.

use std::io::{Read, Seek};
use std::ops::Range;

use fettle_btf::Btf;

use crate::blacklist::Blacklist;
use crate::bytes::u64_at;
use crate::core::{Core, Memory};
use crate::error::Error;
use crate::functions::{FunctionRange, Functions};
use crate::modules::{Layout, Module};
use crate::orc::Orc;
use crate::symbols::{Symbol, Symbols};
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
    /// Modules whose text is among it, by address.
    pub modules: Vec<Module>,
    /// Modules whose text cannot be read, and why.
    pub unreadable: Vec<(Box<str>, Error)>,
    /// The kernel's own, then those of modules.
    memory: Vec<Memory>,
    text: Vec<Range<u64>>,
    sealed: Vec<Range<u64>>,
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
        let mut core = Core::new(sources.core)?;
        let memory = core.read(start, end)?;
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
        let mut image = Image {
            release: sources.release.trim().to_string(),
            key_type: types.field("static_key", "type")?.offset.into(),
            functions,
            tables,
            orc,
            blacklist: Blacklist::parse(sources.blacklist),
            modules: Vec::new(),
            unreadable: Vec::new(),
            symbols,
            types,
            text: vec![text],
            sealed: vec![sealed],
            memory: vec![Memory { start, bytes: memory }],
        };
        image.read_modules(&mut core);
        let notified = image.notified_of_breakpoints();
        image.blacklist = std::mem::take(&mut image.blacklist).with(notified);
        Ok(image)
    }

    /// Functions that are notified of breakpoints (`die_chain`). Where a jump is to replace several instructions, a breakpoint
    /// stands there alone for a while; one within the handling of breakpoints would have no end. The kernel forbids
    /// probes in most of them, but not in `hw_breakpoint_exceptions_notify`, since kprobes do not come that far.
    fn notified_of_breakpoints(&self) -> Vec<Range<u64>> {
        let field = |of: &str, path: &str| Some(u64::from(self.types.field(of, path).ok()?.offset));
        let next = |at: u64, of: &str, path: &str| self.word(at.checked_add(field(of, path)?)?);
        let mut functions: Vec<u64> =
            self.symbols.address("hw_breakpoint_exceptions_notify").into_iter().collect();
        let chain = self.symbols.address("die_chain");
        let mut node = chain.and_then(|at| next(at, "atomic_notifier_head", "head"));
        // Longer than any that is in order.
        for _ in 0..256 {
            let Some(at) = node.filter(|at| *at != 0) else { break };
            functions.extend(next(at, "notifier_block", "notifier_call"));
            node = next(at, "notifier_block", "next");
        }
        let range = |at: u64| Some(self.functions.containing(at)?.range.clone());
        functions.into_iter().filter_map(range).collect()
    }

    /// Takes the text of modules in. Those that cannot be read are left out.
    fn read_modules<R: Read + Seek>(&mut self, core: &mut Core<R>) {
        let layout = Layout::find(&self.types);
        for (name, symbols) in self.symbols.modules() {
            match layout.as_ref().map_err(Clone::clone).and_then(|of| of.read(core, name, symbols))
            {
                Ok(None) => {}
                Ok(Some(loaded)) => {
                    self.functions.extend(loaded.functions);
                    self.tables.extend(loaded.tables);
                    self.orc.extend(&loaded.orc);
                    self.text.push(loaded.module.text.clone());
                    self.sealed.push(loaded.sealed);
                    self.memory.extend(loaded.memory);
                    self.modules.push(loaded.module);
                }
                Err(why) => self.unreadable.push((name.clone(), why)),
            }
        }
        self.modules.sort_by_key(|module| module.text.start);
        // Few addresses are looked up in modules, and the kernel's own piece stays the first.
        self.memory[1..].sort_by_key(|memory| memory.start);
    }

    /// The module that has this address among its text.
    pub fn module_at(&self, address: u64) -> Option<&Module> {
        let behind = self.modules.partition_point(|module| module.text.start <= address);
        self.modules.get(behind.checked_sub(1)?).filter(|found| found.text.contains(&address))
    }

    /// Whether something of that name begins at `address`, in the kernel or a module.
    pub fn is_named(&self, address: u64, name: &str) -> bool {
        let is_it = |symbol: &Symbol| symbol.address == address && &*symbol.name == name;
        match self.module_at(address) {
            Some(module) => {
                self.symbols.modules().get(&module.name).is_some_and(|all| all.iter().any(is_it))
            }
            None => self.symbols.at(address).iter().any(is_it),
        }
    }

    /// Where the kernel begins, `_text`: in each boot elsewhere.
    pub fn start(&self) -> u64 {
        self.memory[0].start
    }

    /// The bytes from `address` on, if the image has so many.
    pub fn bytes(&self, address: u64, length: usize) -> Option<&[u8]> {
        let own = self.memory[0].bytes(address, length);
        own.or_else(|| {
            let behind = self.memory[1..].partition_point(|memory| memory.start <= address);
            // Behind the kernel's own.
            self.memory.get(behind).filter(|_| behind > 0)?.bytes(address, length)
        })
    }

    /// The eight bytes at `address` as a number.
    pub fn word(&self, address: u64) -> Option<u64> {
        u64_at(self.bytes(address, 8)?, 0)
    }

    /// Whether `address` lies in the kernel's text or a module's, that of their start not included.
    pub fn is_text(&self, address: u64) -> bool {
        self.text.iter().any(|text| text.contains(&address))
    }

    /// Whether `address` lies in what the kernel may only write while it boots: static keys there no
    /// longer change.
    pub fn is_sealed(&self, address: u64) -> bool {
        self.sealed.iter().any(|sealed| sealed.contains(&address))
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
