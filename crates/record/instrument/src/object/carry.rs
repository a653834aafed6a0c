//! Rewritten text in an object file.
//!
//! Rewritten text is appended to the section that the original text is in, so that it is kept,
//! discarded and moved with it, and the two need no linker to refer to each other. Copied
//! instructions keep their relocations; so whatever the linker makes of an instruction (it rewrites
//! some whole sequences) it makes of the copy.

use std::collections::{BTreeMap, HashMap};

use fettle_code::{PartUnwind, PlannedEntry};
use fettle_image::LinkAddr;
use fettle_isa::Flow;
use fettle_lift::{Function, Lifted, SkipReason, TableKind};
use fettle_rewrite::plan::PlanFixupKind;
use fettle_rewrite::{Plan, agent as probes};

use crate::elf::set;
use crate::forks::is_fork;
use crate::map::RING_BYTES;
use crate::object::elf::{
    Object, Reloc, SHF_ALLOC, SHF_EXECINSTR, SHF_LINK_ORDER, SHF_WRITE, SHT_NOTE, SHT_PROGBITS,
    STB_GLOBAL, STB_LOCAL, STT_FUNC, STV_HIDDEN, STV_INTERNAL, Section, Symbol, SymbolId,
};
use crate::object::layout::{self, Layout, Place};
use crate::object::records::{Fix, Record};
use crate::object::runtime::{self, Runtime};
use crate::object::unwind::{self, Common, TablePointer};

const R_64: u32 = 1;
const R_PC32: u32 = 2;
const R_PLT32: u32 = 4;
const R_32: u32 = 10;
const R_32S: u32 = 11;

/// Name of the sections of records.
pub const RECORDS: &str = ".fettle.functions";
/// Rewritten text refers to something without a symbol.
const NOWHERE: &str = "rewritten text refers to something that has no name";

/// An offset in a section.
type At = (usize, u64);

/// Relocations by the address of their field.
pub type Relocs = BTreeMap<LinkAddr, Vec<Reloc>>;

/// Relocations of all code.
pub fn code_relocs(object: &Object, layout: &Layout) -> Relocs {
    let mut all = Relocs::new();
    for (i, section) in object.sections.iter().enumerate() {
        if !section.is(SHF_EXECINSTR) {
            continue;
        }
        let Some(start) = layout.start(i) else { continue };
        for reloc in &section.relocs {
            all.entry(LinkAddr(start.0 + reloc.offset)).or_default().push(*reloc);
        }
    }
    all
}

/// Why a function cannot be carried over, if so.
pub fn obstacle(
    object: &Object,
    layout: &Layout,
    relocs: &Relocs,
    function: &Function,
) -> Option<(SkipReason, LinkAddr)> {
    for range in &function.ranges {
        for (at, list) in relocs.range(range.start..range.end) {
            let i = function.insns.partition_point(|insn| insn.next_ip() <= at.0);
            let Some(insn) = function.insns.get(i).filter(|insn| insn.ip() <= at.0) else {
                continue;
            };
            let jump = matches!(function.flow(i), Flow::Jump(_) | Flow::Branch(_));
            for reloc in list {
                let whole = layout::width(reloc.kind)
                    .is_some_and(|width| at.0 + u64::from(width) <= insn.next_ip());
                let plain = matches!(reloc.kind, R_PC32 | R_PLT32) && at.0 + 4 == insn.next_ip();
                if !whole || jump && !plain {
                    return Some((SkipReason::Relocation, *at));
                }
            }
        }
        let image = &layout.image;
        let from = image.fdes().partition_point(|f| f.end <= range.start);
        for fde in image.fdes()[from..].iter().take_while(|f| f.start < range.end) {
            match common_of(object, fde.offset) {
                None => return Some((SkipReason::Unwind, fde.start)),
                Some(common) if fde.lsda.is_some() && common.table.is_none() => {
                    return Some((SkipReason::ExceptionTable, fde.start));
                }
                Some(_) => {}
            }
        }
    }
    None
}

fn eh_frame(object: &Object) -> Option<usize> {
    object.sections.iter().position(|s| s.name == ".eh_frame" && s.is(SHF_ALLOC))
}

fn common_of(object: &Object, entry: usize) -> Option<Common> {
    let section = &object.sections[eh_frame(object)?].data;
    (!unwind::is_closed(section)).then(|| unwind::common(section, entry as u64))?
}

/// Whether a reference to the symbol is bound to the definition in this file, whatever it is linked
/// with.
fn is_bound(object: &Object, id: SymbolId) -> bool {
    let symbol = object.symbol(id);
    let hidden = matches!(symbol.other & 3, STV_HIDDEN | STV_INTERNAL);
    !layout::is_open(object, id)
        && match symbol.bind() {
            STB_LOCAL => true,
            STB_GLOBAL => hidden,
            _ => false,
        }
}

/// Adds the rewritten text of `plan` to `object`.
///
/// # Errors
///
/// What prevents it; `object` cannot be used then.
pub fn carry(
    object: &mut Object,
    layout: &Layout,
    lifted: &Lifted,
    relocs: &Relocs,
    plan: Plan,
) -> Result<(), &'static str> {
    let runtime = runtime::add(object);
    let mut carrier = Carrier {
        records: plan.functions.iter().map(|_| Record::default()).collect(),
        object,
        layout,
        relocs,
        plan,
        runtime,
        text: Vec::new(),
        branches: HashMap::new(),
        stops: BTreeMap::new(),
        entry_guards: BTreeMap::new(),
        addresses: HashMap::new(),
    };
    carrier.put_text()?;
    carrier.find_branches(lifted);
    let tables = carrier.put_tables()?;
    carrier.fix(&tables)?;
    carrier.put_boards()?;
    carrier.put_unwind(lifted)?;
    carrier.put_symbols();
    carrier.put_records()
}

struct Carrier<'a> {
    object: &'a mut Object,
    layout: &'a Layout,
    relocs: &'a Relocs,
    plan: Plan,
    runtime: Runtime,
    /// The place of each function's rewritten text.
    text: Vec<At>,
    records: Vec<Record<At>>,
    /// Relocations of jumps out of functions: by function and target.
    branches: HashMap<(u32, LinkAddr), Reloc>,
    /// Code around calls that fork: by section and symbol.
    stops: BTreeMap<(usize, SymbolId), u64>,
    /// Entry guards in each section: from, to.
    entry_guards: BTreeMap<usize, (u64, u64)>,
    /// Sections of addresses, by the section of code that uses them.
    addresses: HashMap<usize, usize>,
}

impl Carrier<'_> {
    /// Where an address of the layout is in the file.
    fn at(&self, addr: LinkAddr) -> Result<At, &'static str> {
        match self.layout.place(addr) {
            Some(Place::In { section, offset }) => Ok((section, offset)),
            _ => Err(NOWHERE),
        }
    }

    /// Where an offset of the plan's text is in the file, and the function it is in.
    fn new_place(&self, offset: u32) -> (At, usize) {
        let i = self.plan.functions.partition_point(|f| f.text_offset <= offset) - 1;
        let (section, base) = self.text[i];
        ((section, base + u64::from(offset - self.plan.functions[i].text_offset)), i)
    }

    fn put_text(&mut self) -> Result<(), &'static str> {
        for f in &self.plan.functions {
            let (section, _) = self.at(f.entry)?;
            let code = &self.plan.text[f.text_offset as usize..][..f.text_size as usize];
            let offset = self.object.sections[section].append(16, 0xcc, code);
            self.text.push((section, offset));
        }
        Ok(())
    }

    fn find_branches(&mut self, lifted: &Lifted) {
        for (i, planned) in self.plan.functions.iter().enumerate() {
            let function = lifted.functions.binary_search_by_key(&planned.entry, |f| f.entry);
            let Ok(function) = function.map(|k| &lifted.functions[k]) else { continue };
            for (insn, facts) in function.insns.iter().zip(&function.facts) {
                if let Flow::Jump(to) | Flow::Branch(to) = facts.flow(insn)
                    && let Some(list) = self.relocs.get(&LinkAddr(insn.next_ip() - 4))
                    && let [reloc] = list[..]
                {
                    self.branches.insert((i as u32, LinkAddr(to)), reloc);
                }
            }
        }
    }

    fn set4(&mut self, (section, offset): At, value: u32) {
        set(&mut self.object.sections[section].data, offset as usize, 4, u64::from(value));
    }

    /// Fills in the distance from `at` to `to`, plus `addend`.
    fn distance(&mut self, at: At, to: Place, addend: i64) {
        let (symbol, addend) = match to {
            Place::In { section, offset } if section == at.0 => {
                let value = offset.wrapping_sub(at.1).wrapping_add_signed(addend);
                return self.set4(at, value as u32);
            }
            Place::In { section, offset } => {
                (self.object.section_symbol(section), addend + offset as i64)
            }
            Place::Symbol(symbol) => (symbol, addend),
        };
        self.object.sections[at.0].reloc(at.1, R_PC32, symbol, addend);
    }

    /// A section for addresses that code of a section uses: the loader fills them in, which it must
    /// not do in code.
    fn address_section(&mut self, text: usize) -> usize {
        if let Some(section) = self.addresses.get(&text) {
            return *section;
        }
        let section = Section {
            name: ".data.rel.ro.fettle".to_owned(),
            kind: SHT_PROGBITS,
            flags: SHF_ALLOC | SHF_WRITE,
            align: 8,
            ..Section::default()
        };
        let section = self.object.add_section(self.object.sections[text].group, section);
        self.addresses.insert(text, section);
        section
    }

    /// Copies of jump tables go behind the code that uses them, if they hold offsets.
    fn put_tables(&mut self) -> Result<Vec<At>, &'static str> {
        let mut owners = vec![None; self.plan.tables.len()];
        for fixup in &self.plan.fixups {
            if let PlanFixupKind::Table(t) | PlanFixupKind::TableAddress(t) = fixup.kind {
                owners[t as usize] = Some(fixup.function);
            }
        }
        let mut places = Vec::with_capacity(owners.len());
        for (t, owner) in owners.into_iter().enumerate() {
            let Some(owner) = owner else {
                places.push((0, 0));
                continue;
            };
            let kind = self.plan.tables[t].kind;
            let text = self.text[owner as usize].0;
            let (section, size) = match kind {
                TableKind::Absolute => (self.address_section(text), 8),
                TableKind::Relative { .. } => (text, 4),
            };
            let entries = self.plan.tables[t].entries.clone();
            let zeros = vec![0; entries.len() * size];
            let start = self.object.sections[section].append(8, 0xcc, &zeros);
            places.push((section, start));
            for (i, entry) in entries.into_iter().enumerate() {
                let to = match entry {
                    PlannedEntry::New(offset) => {
                        let ((section, offset), _) = self.new_place(offset);
                        Place::In { section, offset }
                    }
                    PlannedEntry::Original(addr) => self.layout.place(addr).ok_or(NOWHERE)?,
                    PlannedEntry::Null => continue,
                };
                let at = (section, start + (i * size) as u64);
                match (kind, to) {
                    (TableKind::Relative { .. }, to) => self.distance(at, to, (i * 4) as i64),
                    (TableKind::Absolute, Place::In { section: home, offset }) => {
                        let symbol = self.object.section_symbol(home);
                        self.object.sections[section].reloc(at.1, R_64, symbol, offset as i64);
                    }
                    (TableKind::Absolute, Place::Symbol(_)) => return Err(NOWHERE),
                }
            }
        }
        Ok(places)
    }

    /// Fills in what depends on addresses: by relocations of copied instructions, and by the plan's
    /// own fixups, which replace some.
    fn fix(&mut self, tables: &[At]) -> Result<(), &'static str> {
        let mut carried: BTreeMap<u32, Vec<Reloc>> = BTreeMap::new();
        for f in &self.plan.functions {
            for (from, to) in &f.places {
                carried.entry(*to).or_default().extend(&self.relocs[from]);
            }
        }
        let fixups = std::mem::take(&mut self.plan.fixups);
        for fixup in &fixups {
            let (at, function) = self.new_place(fixup.at);
            debug_assert_eq!(function, fixup.function as usize);
            let here = fixup.at - self.plan.functions[function].text_offset;
            let mut note = |fix, field| self.records[function].fixups.push((here, fix, field));
            match fixup.kind {
                PlanFixupKind::Accumulator(field) => note(Fix::Accumulator, field),
                PlanFixupKind::Counter(n) => {
                    note(Fix::Counter, n - self.plan.functions[function].counters.0);
                }
                PlanFixupKind::IdHigh => note(Fix::IdHigh, 0),
                PlanFixupKind::IdLow => note(Fix::IdLow, 0),
                PlanFixupKind::Number => note(Fix::Number, 0),
                PlanFixupKind::RingMask => self.set4(at, RING_BYTES - 1),
                PlanFixupKind::New(to) if (to as usize) < probes::CODE.len() => {
                    let addend = i64::from(to) - 4;
                    let symbol = self.runtime.probes;
                    self.object.sections[at.0].reloc(at.1, R_PC32, symbol, addend);
                }
                PlanFixupKind::New(to) => {
                    let ((section, offset), callee) = self.new_place(to);
                    let entry = self.plan.functions[callee].entry;
                    let original = carried
                        .remove(&fixup.at)
                        .and_then(|list| list.first().copied())
                        .or_else(|| self.branches.get(&(fixup.function, entry)).copied());
                    match original.filter(|r| !is_bound(self.object, r.symbol)) {
                        Some(reloc) => self.call(function, here, reloc),
                        None => self.distance(at, Place::In { section, offset }, -4),
                    }
                }
                PlanFixupKind::Original { to, after } => {
                    let branch = self.branches.get(&(fixup.function, to)).copied();
                    if let Some(list) = carried.get(&fixup.at) {
                        let opcode = self.plan.text[fixup.at as usize - 1];
                        if let ([reloc], 0xe8 | 0xe9, 0) = (&list[..], opcode, after) {
                            let reloc = *reloc;
                            carried.remove(&fixup.at);
                            self.call(function, here, reloc);
                        }
                    } else if let (Some(reloc), 0) = (branch, after) {
                        self.call(function, here, reloc);
                    } else {
                        let to = self.layout.place(to).ok_or(NOWHERE)?;
                        self.distance(at, to, -4 - i64::from(after));
                    }
                }
                PlanFixupKind::Table(t) => {
                    carried.remove(&fixup.at);
                    let (section, offset) = tables[t as usize];
                    self.distance(at, Place::In { section, offset }, -4);
                }
                PlanFixupKind::TableAddress(t) => {
                    carried.remove(&fixup.at);
                    let (section, offset) = tables[t as usize];
                    let symbol = self.object.section_symbol(section);
                    self.object.sections[at.0].reloc(at.1, R_32S, symbol, offset as i64);
                }
            }
        }
        for (to, list) in carried {
            let (at, _) = self.new_place(to);
            for reloc in list {
                let section = &mut self.object.sections[at.0];
                section.reloc(at.1, reloc.kind, reloc.symbol, reloc.addend);
            }
        }
        Ok(())
    }

    /// A call or jump to another function, by its original relocation.
    fn call(&mut self, function: usize, here: u32, reloc: Reloc) {
        let (section, base) = self.text[function];
        let at = (section, base + u64::from(here));
        if reloc.addend == -4 && is_fork(&self.object.name(self.object.symbol(reloc.symbol))) {
            let offset = self.stop(section, reloc);
            return self.distance(at, Place::In { section, offset }, -4);
        }
        self.object.sections[section].reloc(at.1, reloc.kind, reloc.symbol, reloc.addend);
        self.records[function].fixups.push((here, Fix::Call, 0));
    }

    /// Code that makes a call that forks, and calls the agent before and after.
    fn stop(&mut self, section: usize, fork: Reloc) -> u64 {
        if let Some(stop) = self.stops.get(&(section, fork.symbol)) {
            return *stop;
        }
        // sub rsp, 8; call before; call fork; call after; add rsp, 8; ret
        let mut code = vec![0x48, 0x83, 0xec, 0x08];
        for _ in 0..3 {
            code.extend_from_slice(&[0xe8, 0, 0, 0, 0]);
        }
        code.extend_from_slice(&[0x48, 0x83, 0xc4, 0x08, 0xc3]);
        let (before, after) = (self.runtime.before, self.runtime.after);
        let text = &mut self.object.sections[section];
        let start = text.append(16, 0xcc, &code);
        text.reloc(start + 5, R_PLT32, before, -4);
        text.reloc(start + 10, fork.kind, fork.symbol, fork.addend);
        text.reloc(start + 15, R_PLT32, after, -4);
        self.stops.insert((section, fork.symbol), start);
        start
    }

    /// Entry patches are written when a recorded run begins; those at function entries lead to an
    /// entry guard.
    fn put_boards(&mut self) -> Result<(), &'static str> {
        for board in std::mem::take(&mut self.plan.entry_patches) {
            let ((section, mut to), function) = self.new_place(board.to);
            let base = self.text[function].1;
            if to == base {
                let check = self.runtime.check;
                let text = &mut self.object.sections[section];
                let entry_guard = text.append(1, 0xcc, &[0xe8, 0, 0, 0, 0, 0xe9, 0, 0, 0, 0]);
                text.reloc(entry_guard + 1, R_PLT32, check, -4);
                self.entry_guards.entry(section).or_insert((entry_guard, 0)).1 = entry_guard + 10;
                self.distance((section, entry_guard + 6), Place::In { section, offset: to }, -4);
                to = entry_guard;
            }
            let at = self.at(board.at)?;
            self.records[function].boards.push((at, (to - base) as u32));
        }
        Ok(())
    }

    /// Exception tables go behind the code, unwind entries to the others.
    fn put_unwind(&mut self, lifted: &Lifted) -> Result<(), &'static str> {
        let Some(frame) = eh_frame(self.object) else { return Ok(()) };
        let mut part_of = HashMap::new();
        for (function, part) in std::mem::take(&mut self.plan.unwind) {
            let number = part_of.entry(function).or_insert(0usize);
            let planned = &self.plan.functions[function as usize];
            let original = lifted.functions.binary_search_by_key(&planned.entry, |f| f.entry);
            let original = original.map_err(|_| NOWHERE)?;
            let range = lifted.functions[original].ranges[*number].clone();
            *number += 1;
            let fdes = self.layout.image.fdes();
            let fde = fdes.get(fdes.partition_point(|f| f.end <= range.start));
            let Some(fde) = fde.filter(|f| f.start < range.end) else { continue };
            let common = common_of(self.object, fde.offset).ok_or(NOWHERE)?;
            let table = self.put_table(function as usize, &part)?;
            let (section, base) = self.text[function as usize];
            let start = base + u64::from(part.start);
            let len = part.end - part.start;
            self.entry(frame, common, (section, start, len), table, &part.program);
        }
        if unwind::is_closed(&self.object.sections[frame].data) {
            return Ok(());
        }
        let at = self.object.sections[frame].append(1, 0, &unwind::PLAIN);
        let common = Common { at, augmented: true, table: None };
        for ((section, _), start) in self.stops.clone() {
            // DW_CFA_advance_loc 4, DW_CFA_def_cfa_offset 16, and back for the return.
            let program = [0x44, 0x0e, 16, 0x40 | 19, 0x0e, 8];
            self.entry(frame, common, (section, start, 24), None, &program);
        }
        for (section, (start, end)) in self.entry_guards.clone() {
            self.entry(frame, common, (section, start, (end - start) as u32), None, &[]);
        }
        Ok(())
    }

    fn put_table(
        &mut self,
        function: usize,
        part: &PartUnwind,
    ) -> Result<Option<At>, &'static str> {
        let Some(table) = &part.table else { return Ok(None) };
        let (section, base) = self.text[function];
        let start = self.object.sections[section].append(4, 0xcc, &table.bytes);
        let field = |at: u32| (section, start + u64::from(at));
        if let Some(at) = table.base_field() {
            self.distance(field(at), Place::In { section, offset: base }, 0);
        }
        for (at, to) in table.types.iter().filter(|(_, to)| *to != 0) {
            let to = self.layout.place(LinkAddr(*to)).ok_or(NOWHERE)?;
            self.distance(field(*at), to, 0);
        }
        Ok(Some((section, start)))
    }

    fn entry(
        &mut self,
        frame: usize,
        common: Common,
        (section, start, len): (usize, u64, u32),
        table: Option<At>,
        program: &[u8],
    ) {
        let at = self.object.sections[frame].data.len() as u64;
        let mut bytes = vec![0; 16];
        set(&mut bytes, 4, 4, at + 4 - common.at);
        set(&mut bytes, 12, 4, u64::from(len));
        let code = self.object.section_symbol(section);
        let mut relocs = vec![(at + 8, R_PC32, code, start as i64)];
        if common.augmented {
            bytes.push(if common.table.is_some() { 4 } else { 0 });
        }
        if let Some(pointer) = common.table {
            if let Some((home, offset)) = table {
                let kind = match pointer {
                    TablePointer::Distance => R_PC32,
                    TablePointer::Address => R_32,
                };
                let symbol = self.object.section_symbol(home);
                relocs.push((at + bytes.len() as u64, kind, symbol, offset as i64));
            }
            bytes.extend_from_slice(&[0; 4]);
        }
        bytes.extend_from_slice(program);
        // DW_CFA_nop is 0.
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        let len = bytes.len() as u64 - 4;
        set(&mut bytes, 0, 4, len);
        let section = &mut self.object.sections[frame];
        section.append(1, 0, &bytes);
        for (at, kind, symbol, addend) in relocs {
            section.reloc(at, kind, symbol, addend);
        }
    }

    /// Names for debuggers and profilers.
    fn put_symbols(&mut self) {
        for (f, (section, offset)) in self.plan.functions.iter().zip(&self.text) {
            let Some(name) = &f.name else { continue };
            let symbol = Symbol {
                name: 0,
                info: STB_LOCAL << 4 | STT_FUNC,
                other: 0,
                section: *section as u16,
                value: *offset,
                size: u64::from(f.text_size),
            };
            self.object.add_symbol(&format!("{name}.fettle"), symbol);
        }
    }

    /// Records and a note for each section of code, kept and discarded with it.
    fn put_records(&mut self) -> Result<(), &'static str> {
        let lines = self.layout.image.lines();
        let mut chunks: BTreeMap<usize, Vec<Record<At>>> = BTreeMap::new();
        let records = std::mem::take(&mut self.records);
        for (i, (f, record)) in self.plan.functions.iter().zip(records).enumerate() {
            let place = lines.line(f.entry);
            let blocks = f.blocks.iter().map(|block| self.at(*block));
            let entry = self.at(f.entry)?;
            let record = Record {
                entry,
                code: Some(self.text[i]),
                size: f.size,
                code_size: f.text_size,
                line: place.as_ref().map_or(0, |p| p.line),
                blocks: blocks.collect::<Result<_, _>>()?,
                name: f.name.clone().unwrap_or_else(|| format!("sub_{:x}", entry.1)),
                text: place.map(|p| p.file).unwrap_or_default(),
                ..record
            };
            chunks.entry(entry.0).or_default().push(record);
        }
        for skipped in &self.plan.skipped {
            let Ok(entry) = self.at(skipped.entry) else { continue };
            chunks.entry(entry.0).or_default().push(Record {
                entry,
                size: skipped.size,
                name: skipped.name.clone().unwrap_or_default(),
                text: skipped.reason.describe().to_owned(),
                ..Record::default()
            });
        }
        for (text, records) in chunks {
            self.put_chunk(text, &records);
        }
        Ok(())
    }

    fn put_chunk(&mut self, text: usize, records: &[Record<At>]) {
        let mut data = Vec::new();
        let mut distances = Vec::new();
        for record in records {
            distances.extend(record.write(self.plan.mode, &mut data));
        }
        let group = self.object.sections[text].group;
        let companion = |name: &str, kind, align, data| Section {
            name: name.to_owned(),
            kind,
            flags: SHF_ALLOC | SHF_LINK_ORDER,
            link: text as u32,
            align,
            data,
            ..Section::default()
        };
        let len = data.len() as u32;
        let chunk = companion(RECORDS, SHT_PROGBITS, 8, data);
        let chunk = self.object.add_section(group, chunk);
        for (at, (section, offset)) in distances {
            self.distance((chunk, at), Place::In { section, offset }, 0);
        }
        let mut note = Vec::new();
        for word in [7, 8, runtime::version()] {
            note.extend_from_slice(&word.to_le_bytes());
        }
        note.extend_from_slice(b"Fettle\0\0\0\0\0\0");
        note.extend_from_slice(&len.to_le_bytes());
        let note = companion(".note.fettle", SHT_NOTE, 4, note);
        let note = self.object.add_section(group, note);
        self.distance((note, 20), Place::In { section: chunk, offset: 0 }, 0);
    }
}
