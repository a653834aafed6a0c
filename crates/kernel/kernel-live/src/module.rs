//! A plan as a module: the file that the kernel's own loader takes.
//!
//! The loader then does everything that later code in the kernel needs and that has no other way in: it
//! registers unwind rows, exceptions, static keys, static calls, warnings, places for the tracer, and
//! names. Text keeps the kernel's final bytes (alternatives, retpolines), so those tables are not needed
//! again.

use std::collections::{BTreeSet, HashMap};

use fettle_kernel_plan::{Part, Plan, Target, Value};

use crate::core_object::Core;
use crate::elf::{
    NOTHING, Object, R_X86_64_32S, R_X86_64_64, R_X86_64_PC32, R_X86_64_PC64, Relocation,
    SHF_ALLOC, SHF_EXECINSTR, SHF_WRITE, SHT_PROGBITS, STT_FUNC, STT_NOTYPE, STT_OBJECT, SectionId,
    SymbolId,
};
use crate::error::{Error, Result};
use crate::kernel::{Kernel, OPERATIONS};
use crate::orc;

/// The module's name, which stands behind symbols in stack traces.
pub const NAME: &str = fettle_kernel_image::modules::OWN;

/// What the module says of itself. Copies of kernel text never leave the machine; the rest is Fettle's.
const LICENSE: &str = "Dual MIT/GPL";

/// What the core refers to and the writer defines; everything else is the kernel's.
pub const DEFINED: [&str; 12] = [
    "facts",
    "patches",
    "origins",
    "held_modules",
    "open_spans",
    "text_begin",
    "text_end",
    "cpu_counters",
    "cpu_clock",
    "shared_counters",
    "control_operations",
    "current_offset",
];

const NOP: [u8; 5] = [0x0f, 0x1f, 0x44, 0, 0];
const INT3: u8 = 0xcc;
/// Room for a module's name in `struct held` of the core, as `struct module` has it.
const HELD_NAME: usize = 56;
/// `incq %gs:disp32`, and the same with `sub %rax` and `add %rax`. With the first byte replaced by a lock it is
/// `lock incq disp32`.
const COUNT: [[u8; 5]; 3] = [
    [0x65, 0x48, 0xff, 0x04, 0x25],
    [0x65, 0x48, 0x29, 0x04, 0x25],
    [0x65, 0x48, 0x01, 0x04, 0x25],
];
const COUNT_BYTES: usize = COUNT[0].len();
const LOCK: u8 = 0xf0;

/// Where a counter of the plan is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counter {
    /// One word for each processor: its index in each row.
    PerCpu(u32),
    /// One word for all, counted with the bus locked.
    Shared(u32),
}

/// Where what is in a plan is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Placed {
    /// Each of its counters.
    pub counters: Vec<Counter>,
    /// Each of its parts, from where the rewritten text begins.
    pub parts: Vec<u64>,
}

/// A module, ready to be loaded.
#[derive(Clone, Debug)]
pub struct Module {
    /// The file.
    pub bytes: Vec<u8>,
    /// Where what is in the plan is.
    pub placed: Placed,
    /// How many of them are per CPU.
    pub per_cpu: u32,
}

/// Most counters that may be per CPU: `gs` with four bytes of displacement reaches only what the kernel set
/// aside for modules, 8 KiB for all of them together. Memory that `__alloc_percpu` gives lies farther away.
pub const MOST_PER_CPU: u32 = 1000 - VIRTUAL_WORDS;

/// Words of each processor's own memory that virtual time takes: `struct clock` in `runtime/kmod/clock.c`.
const VIRTUAL_WORDS: u32 = 7;

/// Writes the module for a plan.
///
/// At most `per_cpu` counters get a word for each processor, those that cannot be locked first.
///
/// # Errors
///
/// When the plan contradicts itself, or the kernel lacks something.
pub fn write(plan: &Plan, kernel: &Kernel, core: &Core, per_cpu: u32) -> Result<Module> {
    let counters = place_counters(plan, per_cpu)?;
    let mut writer = Writer::new(plan, kernel, &counters);
    writer.place_parts()?;
    for index in 0..plan.parts.len() {
        writer.references(index)?;
        writer.tables(index)?;
    }
    writer.patches()?;
    writer.origins()?;
    writer.held_modules()?;
    writer.open_spans()?;
    writer.facts();
    writer.about();
    writer.core(core)?;
    let per_cpu = writer.per_cpu;
    let parts = std::mem::take(&mut writer.starts);
    let bytes = writer.object.write();
    Ok(Module { bytes, placed: Placed { counters, parts }, per_cpu })
}

/// Decides for each counter where it is. Only a single increment can be locked.
fn place_counters(plan: &Plan, most: u32) -> Result<Vec<Counter>> {
    let (mut must, mut changed) = (BTreeSet::new(), BTreeSet::new());
    for part in &plan.parts {
        for reference in &part.references {
            let Value::Counter(counter) = reference.value else { continue };
            if counter >= plan.counters {
                return Err(unsound(plan, part, reference.at, "there is no such counter"));
            }
            changed.insert(counter);
            if !is_single_increment(part, reference.at) {
                must.insert(counter);
            }
        }
    }
    if must.len() as u64 > u64::from(most) {
        let what = format!(
            "{} counters need memory of each processor's own, and there is room for {most}: name fewer functions",
            must.len()
        );
        return Err(Error::Unfit(what));
    }
    let mut free = most - must.len() as u32;
    let (mut own, mut shared) = (0, 0);
    let next = |number: &mut u32| std::mem::replace(number, *number + 1);
    Ok((0..plan.counters)
        .map(|counter| {
            let is_must = must.contains(&counter);
            // The core changes those that no text does, rarely.
            if is_must || (free > 0 && changed.contains(&counter)) {
                free -= u32::from(!is_must);
                Counter::PerCpu(next(&mut own))
            } else {
                Counter::Shared(next(&mut shared))
            }
        })
        .collect())
}

fn is_single_increment(part: &Part, at: u32) -> bool {
    let before =
        (at as usize).checked_sub(COUNT_BYTES).and_then(|from| part.text.get(from..at as usize));
    before.is_some_and(|before| COUNT.iter().any(|count| before == count))
}

fn unsound(plan: &Plan, part: &Part, at: u32, what: &'static str) -> Error {
    let function = plan.functions.get(part.function as usize);
    Error::Plan { function: function.map_or("?", |f| &f.name).to_string(), at: at.into(), what }
}

struct Writer<'a> {
    plan: &'a Plan,
    kernel: &'a Kernel,
    counters: &'a [Counter],
    per_cpu: u32,
    object: Object,
    text: SectionId,
    /// Offsets of the plan's parts in the text.
    starts: Vec<u64>,
    orc: [SectionId; 2],
    /// Zeros for each processor, and for all.
    counter_sections: [SectionId; 2],
    /// Names that the core refers to.
    known: HashMap<String, SymbolId>,
    tables: HashMap<&'static str, SectionId>,
}

impl<'a> Writer<'a> {
    fn new(plan: &'a Plan, kernel: &'a Kernel, counters: &'a [Counter]) -> Writer<'a> {
        let mut object = Object::default();
        let text = object.section(".text.fettle", SHT_PROGBITS, SHF_ALLOC | SHF_EXECINSTR, 64);
        let orc = [".orc_unwind_ip", ".orc_unwind"]
            .map(|name| object.section(name, SHT_PROGBITS, SHF_ALLOC, 4));
        let per_cpu = counters.iter().filter(|c| matches!(c, Counter::PerCpu(_))).count() as u32;
        let shared = counters.len() as u64 - u64::from(per_cpu);
        let own = object.section(".data..percpu", SHT_PROGBITS, SHF_ALLOC | SHF_WRITE, 64);
        object.get(own).data = vec![0; 8 * (per_cpu + VIRTUAL_WORDS) as usize];
        let all = object.empty_section(".bss.counters", 64, 8 * shared.max(1));
        let mut writer = Writer {
            plan,
            kernel,
            counters,
            per_cpu,
            object,
            text,
            starts: Vec::new(),
            orc,
            counter_sections: [own, all],
            known: HashMap::new(),
            tables: HashMap::new(),
        };
        writer.define("cpu_counters", own, 0, STT_OBJECT);
        writer.define("cpu_clock", own, 8 * u64::from(per_cpu), STT_OBJECT);
        writer.define("shared_counters", all, 0, STT_OBJECT);
        for (name, value) in &kernel.symbols {
            let symbol = writer.object.absolute(name, *value);
            writer.known.insert(name.clone(), symbol);
        }
        let current = writer.object.absolute("current_offset", kernel.current);
        writer.known.insert("current_offset".to_string(), current);
        writer
    }

    fn define(&mut self, name: &str, section: SectionId, offset: u64, kind: u8) -> SymbolId {
        let symbol = self.object.symbol(name, section, offset, 0, kind, true);
        self.known.insert(name.to_string(), symbol);
        symbol
    }

    fn error(&self, part: usize, at: u32, what: &'static str) -> Error {
        unsound(self.plan, &self.plan.parts[part], at, what)
    }

    /// Puts the bytes of all parts into the text, hot ones first as the plan has them, with their names.
    fn place_parts(&mut self) -> Result<()> {
        for (index, part) in self.plan.parts.iter().enumerate() {
            if !part.align.is_power_of_two() || part.align > 4096 {
                return Err(self.error(index, 0, "its alignment is no power of two"));
            }
            let function = self.plan.functions.get(part.function as usize);
            let function = function.ok_or_else(|| self.error(index, 0, "it has no function"))?;
            let start = self.object.get(self.text).pad(part.align as usize, INT3);
            let mut bytes = part.text.clone();
            if let Some(at) = part.fentry {
                let place = bytes.get_mut(at as usize..at as usize + NOP.len());
                match place {
                    // The loader wants the call that the compiler would have made, and makes a nop of it.
                    Some(place) if *place == NOP => place.copy_from_slice(&[0xe8, 0, 0, 0, 0]),
                    _ => return Err(self.error(index, at, "there is no fentry nop")),
                }
            }
            let is_entry = function.entry as usize == index;
            let name =
                if is_entry { function.name.clone() } else { format!("{}.cold", function.name) };
            self.object.symbol(&name, self.text, start, bytes.len() as u64, STT_FUNC, false);
            self.object.get(self.text).data.extend_from_slice(&bytes);
            self.starts.push(start);
        }
        let end = self.object.get(self.text).bytes();
        self.define("text_begin", self.text, 0, STT_NOTYPE);
        self.define("text_end", self.text, end, STT_NOTYPE);
        // Behind the end nothing is unwound.
        self.object.get(self.text).data.push(INT3);
        self.row(self.text, end, orc::UNKNOWN);
        Ok(())
    }

    /// A place as a symbol and what is to be added to it.
    fn target(&self, from: usize, at: u32, target: Target) -> Result<(SymbolId, i64)> {
        match target {
            Target::Kernel(address) => Ok((NOTHING, address as i64)),
            Target::Part { part, offset } => {
                let found = self.plan.parts.get(part as usize);
                match found {
                    Some(found) if offset as usize <= found.text.len() => {
                        let start = self.starts[part as usize];
                        Ok((self.object.start(self.text), (start + u64::from(offset)) as i64))
                    }
                    _ => Err(self.error(from, at, "it refers to nothing")),
                }
            }
        }
    }

    fn references(&mut self, index: usize) -> Result<()> {
        let part = &self.plan.parts[index];
        for reference in &part.references {
            let at = reference.at;
            let (kind, (symbol, addend), bytes) = match reference.value {
                Value::Relative { target, tail } => {
                    let (symbol, addend) = self.target(index, at, target)?;
                    (R_X86_64_PC32, (symbol, addend.wrapping_sub(4 + i64::from(tail))), 4)
                }
                Value::Absolute32(target) => (R_X86_64_32S, self.target(index, at, target)?, 4),
                Value::Absolute64(target) => (R_X86_64_64, self.target(index, at, target)?, 8),
                Value::Counter(counter) => (R_X86_64_32S, self.counter(index, at, counter), 4),
                Value::VirtualBase => (R_X86_64_32S, (self.known["cpu_clock"], 0), 4),
            };
            // The loader refuses to relocate what is not zero.
            if part
                .text
                .get(at as usize..at as usize + bytes)
                .is_none_or(|b| b.iter().any(|b| *b != 0))
            {
                return Err(self.error(index, at, "a reference's bytes are not zero"));
            }
            let at = self.starts[index] + u64::from(at);
            let text = self.object.get(self.text);
            text.relocations.push(Relocation { at, kind, symbol, addend });
        }
        Ok(())
    }

    fn counter(&mut self, part: usize, at: u32, counter: u32) -> (SymbolId, i64) {
        let [own, all] = self.counter_sections;
        match self.counters[counter as usize] {
            Counter::PerCpu(slot) => (self.object.start(own), 8 * i64::from(slot)),
            Counter::Shared(slot) => {
                let prefix = self.starts[part] as usize + at as usize - COUNT_BYTES;
                self.object.get(self.text).data[prefix] = LOCK;
                (self.object.start(all), 8 * i64::from(slot))
            }
        }
    }

    /// One row of the unwind table.
    fn row(&mut self, section: SectionId, at: u64, entry: [u8; 6]) {
        let symbol = self.object.start(section);
        let [places, entries] = self.orc;
        let places = self.object.get(places);
        let own = places.bytes();
        places.data.extend_from_slice(&[0; 4]);
        places.relocations.push(Relocation {
            at: own,
            kind: R_X86_64_PC32,
            symbol,
            addend: at as i64,
        });
        self.object.get(entries).data.extend_from_slice(&entry);
    }

    /// A table that the loader knows by its name.
    fn table(&mut self, name: &'static str, flags: u64) -> SectionId {
        *self
            .tables
            .entry(name)
            .or_insert_with(|| self.object.section(name, SHT_PROGBITS, SHF_ALLOC | flags, 8))
    }

    /// Adds a distance of four or eight bytes, or an address, to a table.
    fn cell(&mut self, table: SectionId, kind: u32, (symbol, addend): (SymbolId, i64)) {
        let bytes = if matches!(kind, R_X86_64_64 | R_X86_64_PC64) { 8 } else { 4 };
        let section = self.object.get(table);
        let at = section.bytes();
        section.data.resize(section.data.len() + bytes, 0);
        section.relocations.push(Relocation { at, kind, symbol, addend });
    }

    /// What the kernel keeps about places in text, for one part.
    fn tables(&mut self, index: usize) -> Result<()> {
        let part = &self.plan.parts[index];
        let start = self.starts[index];
        let place = (self.object.start(self.text), start as i64);
        let own = |at: u32| (place.0, place.1 + i64::from(at));
        let inside = |at: u32| match at as usize {
            at if at < part.text.len() => Ok(()),
            _ => Err(unsound(self.plan, part, at, "a table names a place behind its end")),
        };
        for row in &part.orc {
            inside(row.at)?;
            self.row(self.text, start + u64::from(row.at), row.entry);
        }
        if let Some(at) = part.fentry {
            let fentry = (self.known["__fentry__"], -4);
            let call = Relocation {
                at: start + u64::from(at) + 1,
                kind: R_X86_64_PC32,
                symbol: fentry.0,
                addend: fentry.1,
            };
            self.object.get(self.text).relocations.push(call);
            let table = self.table("__mcount_loc", 0);
            self.cell(table, R_X86_64_64, own(at));
        }
        for exception in &part.exceptions {
            inside(exception.at)?;
            let fixup = self.target(index, exception.at, exception.fixup)?;
            let table = self.table("__ex_table", 0);
            self.cell(table, R_X86_64_PC32, own(exception.at));
            self.cell(table, R_X86_64_PC32, fixup);
            self.object.get(table).data.extend_from_slice(&exception.data.to_le_bytes());
        }
        for label in &part.jump_labels {
            inside(label.at)?;
            let target = self.target(index, label.at, label.target)?;
            let table = self.table("__jump_table", SHF_WRITE);
            self.cell(table, R_X86_64_PC32, own(label.at));
            self.cell(table, R_X86_64_PC32, target);
            self.cell(table, R_X86_64_PC64, (NOTHING, label.key as i64));
        }
        for call in &part.static_calls {
            inside(call.at)?;
            let table = self.table(".static_call_sites", SHF_WRITE);
            self.cell(table, R_X86_64_PC32, own(call.at));
            self.cell(table, R_X86_64_PC32, (NOTHING, call.key as i64));
        }
        for bug in &part.bugs {
            inside(bug.at)?;
            let table = self.table("__bug_table", SHF_WRITE);
            self.cell(table, R_X86_64_PC32, own(bug.at));
            match bug.file {
                0 => self.object.get(table).data.extend_from_slice(&[0; 4]),
                file => self.cell(table, R_X86_64_PC32, (NOTHING, file as i64)),
            }
            let table = self.object.get(table);
            table.data.extend_from_slice(&bug.line.to_le_bytes());
            table.data.extend_from_slice(&bug.flags.to_le_bytes());
        }
        Ok(())
    }

    /// `struct patch` of the core: by address, as writing them in batches asks for.
    fn patches(&mut self) -> Result<()> {
        let flags = SHF_ALLOC | SHF_WRITE;
        let section = self.object.section(".data.patches", SHT_PROGBITS, flags, 8);
        let symbol = self.object.start(self.text);
        for (function, patch) in patched(self.plan) {
            let part = function.entry as usize;
            let length = self.plan.parts.get(part).map_or(0, |part| part.text.len());
            if patch.to as usize >= length || usize::from(patch.insides) > patch.inside.len() {
                return Err(Error::Plan {
                    function: function.name.clone(),
                    at: patch.at,
                    what: "its jump leads nowhere",
                });
            }
            let to = (self.starts[part] + u64::from(patch.to)) as i64;
            let section = self.object.get(section);
            section.data.extend_from_slice(&patch.at.to_le_bytes());
            let at = section.bytes();
            section.relocations.push(Relocation { at, kind: R_X86_64_64, symbol, addend: to });
            section.data.extend_from_slice(&[0; 8]);
            section.data.extend_from_slice(&patch.replaced);
            section.data.extend_from_slice(&[patch.insides, 0, 0]);
        }
        self.define("patches", section, 0, STT_OBJECT);
        Ok(())
    }

    /// `struct origin` of the core: by place in the text.
    fn origins(&mut self) -> Result<()> {
        let section = self.object.section(".rodata.origins", SHT_PROGBITS, SHF_ALLOC, 8);
        let mut last = None;
        for (index, part) in self.plan.parts.iter().enumerate() {
            for origin in &part.origins {
                let at = self.starts[index] as u32 + origin.at;
                if last.is_some_and(|last| at <= last) || origin.at as usize > part.text.len() {
                    // Behind a part's last call begins the next part, where only the first counts.
                    if last == Some(at) && origin.at == 0 {
                        continue;
                    }
                    return Err(self.error(index, origin.at, "its origins are not in order"));
                }
                let low = origin.original as i32;
                if low >= 0 || i64::from(low) as u64 != origin.original {
                    return Err(self.error(
                        index,
                        origin.at,
                        "its origin is not in the kernel's text",
                    ));
                }
                last = Some(at);
                let data = &mut self.object.get(section).data;
                data.extend_from_slice(&at.to_le_bytes());
                data.extend_from_slice(&low.to_le_bytes());
            }
        }
        self.define("origins", section, 0, STT_OBJECT);
        Ok(())
    }

    /// `struct held` of the core.
    fn held_modules(&mut self) -> Result<()> {
        let section = self.object.section(".rodata.held", SHT_PROGBITS, SHF_ALLOC, 8);
        for module in &self.plan.modules {
            let mut name = [0; HELD_NAME];
            // One byte at least is left, which ends it.
            let room = name[..HELD_NAME - 1].get_mut(..module.name.len());
            let room = room.ok_or_else(|| {
                Error::Unfit(format!("the module {}'s name is too long", module.name))
            })?;
            room.copy_from_slice(module.name.as_bytes());
            let data = &mut self.object.get(section).data;
            data.extend_from_slice(&module.address.to_le_bytes());
            data.extend_from_slice(&name);
        }
        self.define("held_modules", section, 0, STT_OBJECT);
        Ok(())
    }

    /// `struct open_span` of the core: by place in the text.
    fn open_spans(&mut self) -> Result<()> {
        let section = self.object.section(".rodata.open", SHT_PROGBITS, SHF_ALLOC, 8);
        for (index, part) in self.plan.parts.iter().enumerate() {
            let mut behind = 0;
            for span in &part.open {
                let [ticks, virtual_ticks] = span.counters.ticks;
                let numbers = [span.counters.deoptimised, ticks, virtual_ticks];
                let places = numbers.map(|number| self.counters.get(number as usize));
                let is_inside = behind <= span.from && span.to as usize <= part.text.len();
                let (true, [Some(deoptimised), Some(ticks), Some(virtual_ticks)]) =
                    (is_inside, places)
                else {
                    return Err(self.error(index, span.from, "its open calls have no place"));
                };
                behind = span.to;
                let data = &mut self.object.get(section).data;
                for offset in [span.from, span.to] {
                    let at = self.starts[index] as u32 + offset;
                    data.extend_from_slice(&at.to_le_bytes());
                }
                for place in [deoptimised, ticks, virtual_ticks] {
                    let place = match *place {
                        Counter::PerCpu(slot) => slot as i32,
                        Counter::Shared(slot) => !(slot as i32),
                    };
                    data.extend_from_slice(&place.to_le_bytes());
                }
            }
        }
        self.define("open_spans", section, 0, STT_OBJECT);
        Ok(())
    }

    /// `struct facts` of the core.
    fn facts(&mut self) {
        let section = self.object.section(".rodata.facts", SHT_PROGBITS, SHF_ALLOC, 8);
        let origins: usize = self.plan.parts.iter().map(|part| part.origins.len()).sum();
        let shared = self.counters.len() as u64 - u64::from(self.per_cpu);
        let patches = patched(self.plan).len() as u64;
        let held = self.plan.modules.len() as u64;
        let open: usize = self.plan.parts.iter().map(|part| part.open.len()).sum();
        let per_cpu = u64::from(self.per_cpu);
        let amounts = [patches, origins as u64, per_cpu, shared, held, open as u64];
        let tracepoints = &self.kernel.tracepoints;
        for value in self.kernel.fields.iter().chain(&amounts).chain(tracepoints) {
            self.object.get(section).data.extend_from_slice(&value.to_le_bytes());
        }
        self.define("facts", section, 0, STT_OBJECT);
    }

    /// What the loader wants to know of the module, but for its two functions.
    fn about(&mut self) {
        let about = self.object.section(".modinfo", SHT_PROGBITS, SHF_ALLOC, 1);
        let text = format!(
            "license={LICENSE}\0name={NAME}\0retpoline=Y\0description=Rewritten text for functions of the \
             kernel, by Fettle\0vermagic={}\0",
            self.kernel.vermagic
        );
        self.object.get(about).data = text.into_bytes();
        let versions = self.object.section("__versions", SHT_PROGBITS, SHF_ALLOC, 8);
        let mut entry = [0; 64];
        entry[..4].copy_from_slice(&self.kernel.layout_checksum.to_le_bytes());
        entry[8..21].copy_from_slice(b"module_layout");
        self.object.get(versions).data = entry.to_vec();
    }

    /// Adds the core, with its unwind rows, and what names its functions.
    fn core(&mut self, core: &Core) -> Result<()> {
        let (size, at) = self.kernel.operations;
        let operations = self.object.section(".rodata.control", SHT_PROGBITS, SHF_ALLOC, 8);
        self.object.get(operations).data = vec![0; size as usize];
        self.define("control_operations", operations, 0, STT_OBJECT);
        let text = core.add_to(&mut self.object, &mut self.known).map_err(Error::NoSymbol)?;
        for (offset, (_, name)) in at.iter().zip(OPERATIONS) {
            self.pointer(operations, *offset, name)?;
        }
        for (at, row) in orc::rows(&core.eh_frame(), self.kernel.orc) {
            self.row(text, at, row);
        }
        let layout = self.kernel.module;
        let flags = SHF_ALLOC | SHF_WRITE;
        let this = self.object.section(".gnu.linkonce.this_module", SHT_PROGBITS, flags, 64);
        let mut data = vec![0; layout.size as usize];
        data[layout.name as usize..][..NAME.len()].copy_from_slice(NAME.as_bytes());
        self.object.get(this).data = data;
        self.define("__this_module", this, 0, STT_OBJECT);
        self.pointer(this, layout.init, "init_module")?;
        self.pointer(this, layout.exit, "cleanup_module")
    }

    fn pointer(&mut self, section: SectionId, at: u32, name: &str) -> Result<()> {
        let symbol = self.known.get(name).copied();
        let symbol = symbol.ok_or_else(|| Error::NoSymbol(name.to_string()))?;
        let at = u64::from(at);
        let relocation = Relocation { at, kind: R_X86_64_64, symbol, addend: 0 };
        self.object.get(section).relocations.push(relocation);
        Ok(())
    }
}

/// The functions that callers outside of the plan are led to, by the address of the jump.
fn patched(plan: &Plan) -> Vec<(&fettle_kernel_plan::Function, &fettle_kernel_plan::EntryPatch)> {
    let mut all: Vec<_> =
        plan.functions.iter().filter_map(|f| f.patch.as_ref().map(|patch| (f, patch))).collect();
    all.sort_by_key(|(_, patch)| patch.at);
    all
}
