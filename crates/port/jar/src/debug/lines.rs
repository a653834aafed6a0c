//! Which line of which file an instruction comes from.
//!
//! An instruction of an inlined function comes from several: its own line, the line of the call that was
//! inlined, and so on out to the function that has a method. The line table knows the first, the tree
//! of entries in `.debug_info` the others.

use std::ops::Range;

use rustc_hash::FxHashMap;

use super::{Sections, Slice};
use crate::image::Image;

/// A line of a source file.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Place {
    /// Which file, as an index for [`Lines::file`].
    pub file: usize,
    /// Which line, from one.
    pub line: u32,
}

struct Row {
    address: u32,
    /// None behind a sequence, and where an instruction belongs to no line.
    place: Option<Place>,
}

/// A call that was inlined: which code it became, and where the call was.
struct Inlined {
    code: Range<u32>,
    depth: usize,
    call: Place,
}

/// The lines of a program.
#[derive(Default)]
pub struct Lines {
    rows: Vec<Row>,
    /// By the start of their code.
    inlined: Vec<Inlined>,
    /// The furthest end of all up to each of them.
    ends: Vec<u32>,
    files: Vec<String>,
    numbers: FxHashMap<String, usize>,
}

/// Entries nested deeper are not looked at.
const DEPTH_MAX: usize = 64;

impl Lines {
    /// Reads them; none where the file has no debugging information.
    pub fn read(image: &Image) -> Self {
        let sections = Sections::of(image);
        let dwarf = sections.dwarf();
        let mut lines = Self::default();
        let mut headers = dwarf.units();
        while let Ok(Some(header)) = headers.next() {
            if let Ok(unit) = dwarf.unit(header) {
                lines.unit(&dwarf, &unit);
            }
        }
        // Of rows with one address the last one holds; a sequence may begin where another ends.
        lines.rows.sort_by_key(|row| (row.address, row.place.is_some()));
        lines.rows.dedup_by(|next, row| {
            let same = next.address == row.address;
            if same {
                row.place = next.place;
            }
            same
        });
        lines.inlined.sort_by_key(|inlined| inlined.code.start);
        let ends = lines.inlined.iter().scan(0, |end, inlined| {
            *end = inlined.code.end.max(*end);
            Some(*end)
        });
        lines.ends = ends.collect();
        lines
    }

    /// The name of a file, with its folder as the compiler has it.
    pub fn file(&self, file: usize) -> &str {
        &self.files[file]
    }

    /// Where an instruction comes from: the innermost function first.
    pub fn places(&self, address: u32) -> Vec<Place> {
        let after = self.rows.partition_point(|row| row.address <= address);
        let row = after.checked_sub(1).and_then(|at| self.rows.get(at));
        let Some(first) = row.and_then(|row| row.place) else { return Vec::new() };
        let after = self.inlined.partition_point(|inlined| inlined.code.start <= address);
        let before = self.inlined[..after].iter().zip(&self.ends).rev();
        let mut around: Vec<&Inlined> = before
            .take_while(|(_, end)| **end > address)
            .filter(|(inlined, _)| inlined.code.contains(&address))
            .map(|(inlined, _)| inlined)
            .collect();
        around.sort_by_key(|inlined| std::cmp::Reverse(inlined.depth));
        std::iter::once(first).chain(around.into_iter().map(|inlined| inlined.call)).collect()
    }

    fn unit(&mut self, dwarf: &gimli::Dwarf<Slice<'_>>, unit: &gimli::Unit<Slice<'_>>) {
        let Some(program) = unit.line_program.clone() else { return };
        let mut files: FxHashMap<u64, Option<usize>> = FxHashMap::default();
        let mut rows = program.rows();
        let mut sequence: Vec<Row> = Vec::new();
        while let Ok(Some((_, row))) = rows.next_row() {
            let address = row.address() as u32;
            if row.end_sequence() {
                // Compilers also write rows for what takes no instruction.
                sequence.retain(|row| row.address < address);
                sequence.push(Row { address, place: None });
                // The linker leaves sequences of functions that it dropped at address zero.
                if sequence[0].address != 0 && sequence.is_sorted_by_key(|row| row.address) {
                    self.rows.append(&mut sequence);
                }
                sequence.clear();
                continue;
            }
            let index = row.file_index();
            let file = *files.entry(index).or_insert_with(|| self.number(dwarf, unit, index));
            let line = row.line().and_then(|line| u32::try_from(line.get()).ok());
            let place = file.zip(line).map(|(file, line)| Place { file, line });
            sequence.push(Row { address, place });
        }
        self.calls(dwarf, unit, &mut files);
    }

    /// Calls that were inlined in a unit.
    fn calls(
        &mut self,
        dwarf: &gimli::Dwarf<Slice<'_>>,
        unit: &gimli::Unit<Slice<'_>>,
        files: &mut FxHashMap<u64, Option<usize>>,
    ) {
        let mut entries = unit.entries();
        while let Ok(Some(entry)) = entries.next_dfs() {
            let depth = usize::try_from(entry.depth()).unwrap_or(0);
            if entry.tag() != gimli::DW_TAG_inlined_subroutine || depth > DEPTH_MAX {
                continue;
            }
            let number = |name| entry.attr(name).and_then(gimli::Attribute::udata_value);
            let (Some(index), Some(line)) =
                (number(gimli::DW_AT_call_file), number(gimli::DW_AT_call_line))
            else {
                continue;
            };
            let file = *files.entry(index).or_insert_with(|| self.number(dwarf, unit, index));
            let (Some(file), Ok(line)) = (file, u32::try_from(line)) else { continue };
            let Ok(mut ranges) = dwarf.die_ranges(unit, entry) else { continue };
            while let Ok(Some(range)) = ranges.next() {
                let code = range.begin as u32..range.end as u32;
                if code.start != 0 && code.start < code.end {
                    self.inlined.push(Inlined { code, depth, call: Place { file, line } });
                }
            }
        }
    }

    /// The number of a file of a unit.
    fn number(
        &mut self,
        dwarf: &gimli::Dwarf<Slice<'_>>,
        unit: &gimli::Unit<Slice<'_>>,
        index: u64,
    ) -> Option<usize> {
        let header = unit.line_program.as_ref()?.header();
        let file = header.file(index)?;
        let text =
            |value| Some(dwarf.attr_string(unit, value).ok()?.to_string_lossy().into_owned());
        let name = text(file.path_name())?;
        let folder = file.directory(header).and_then(text).unwrap_or_default();
        let path = match name.starts_with('/') || folder.is_empty() {
            true => name,
            false => format!("{folder}/{name}"),
        };
        if let Some(&number) = self.numbers.get(&path) {
            return Some(number);
        }
        let number = self.files.len();
        self.files.push(path.clone());
        self.numbers.insert(path, number);
        Some(number)
    }
}
