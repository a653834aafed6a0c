//! Source lines, read from DWARF only where asked for.
//!
//! DWARF stores lines as a program for a small machine that emits rows: from this address on, it
//! is that line. Rows come in *sequences*, runs of ascending addresses that end explicitly; code
//! between sequences has no lines.

use std::cell::RefCell;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;

use crate::LinkAddr;
use crate::units::{self, Slice, UnitIndex};

/// A place in the source.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct SourceLine {
    /// Path of the file as the compiler recorded it, with the folder it ran in.
    pub file: String,
    /// Line, from one.
    pub line: u32,
    /// Column, from one, where recorded.
    pub column: Option<u32>,
}

/// Lookup from addresses to source lines. Units are read on first use and kept, so hold on to one
/// table for many lookups.
pub struct LineTable<'a> {
    dwarf: gimli::Dwarf<Slice<'a>>,
    index: UnitIndex,
    units: RefCell<HashMap<usize, Option<UnitLines<'a>>>>,
}

impl<'a> LineTable<'a> {
    pub(crate) fn new(dwarf: gimli::Dwarf<Slice<'a>>, index: UnitIndex) -> LineTable<'a> {
        LineTable { dwarf, index, units: RefCell::default() }
    }

    /// Source line of the instruction at `addr`.
    pub fn line(&self, addr: LinkAddr) -> Option<SourceLine> {
        let mut units = self.units.borrow_mut();
        self.index.at(addr.0).find_map(|at| {
            let lines = match units.entry(at) {
                Entry::Occupied(entry) => entry.into_mut(),
                Entry::Vacant(entry) => entry.insert(UnitLines::read(&self.dwarf, at)),
            };
            lines.as_ref()?.line(&self.dwarf, addr.0)
        })
    }
}

impl fmt::Debug for LineTable<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LineTable").finish_non_exhaustive()
    }
}

/// The rows of one unit.
struct UnitLines<'a> {
    unit: gimli::Unit<Slice<'a>>,
    rows: Vec<Row>,
    /// Sequences sorted by start.
    sequences: Vec<Sequence>,
}

struct Row {
    addr: u64,
    file: u64,
    line: u32,
    column: u32,
}

struct Sequence {
    start: u64,
    end: u64,
    rows: std::ops::Range<usize>,
}

impl<'a> UnitLines<'a> {
    fn read(dwarf: &gimli::Dwarf<Slice<'a>>, at: usize) -> Option<UnitLines<'a>> {
        let unit = units::load(dwarf, at)?;
        let mut program = unit.line_program.clone()?.rows();
        let mut rows: Vec<Row> = Vec::new();
        let mut sequences = Vec::new();
        let mut first = 0;
        // A damaged program is used up to where it breaks.
        while let Ok(Some((_, row))) = program.next_row() {
            let addr = row.address();
            if row.end_sequence() {
                if let Some(sequence @ [Row { addr: start, .. }, ..]) = rows.get(first..)
                    && sequence.is_sorted_by_key(|row| row.addr)
                {
                    let start = *start;
                    sequences.push(Sequence { start, end: addr, rows: first..rows.len() });
                }
                first = rows.len();
                continue;
            }
            rows.push(Row {
                addr,
                file: row.file_index(),
                line: row.line().map_or(0, |line| u32::try_from(line.get()).unwrap_or(0)),
                column: match row.column() {
                    gimli::ColumnType::LeftEdge => 0,
                    gimli::ColumnType::Column(column) => u32::try_from(column.get()).unwrap_or(0),
                },
            });
        }
        sequences.sort_by_key(|sequence| sequence.start);
        Some(UnitLines { unit, rows, sequences })
    }

    fn line(&self, dwarf: &gimli::Dwarf<Slice<'a>>, addr: u64) -> Option<SourceLine> {
        let after = self.sequences.partition_point(|sequence| sequence.start <= addr);
        let sequence = self.sequences.get(after.checked_sub(1)?)?;
        if addr >= sequence.end {
            return None;
        }
        let rows = self.rows.get(sequence.rows.clone())?;
        let row = rows.get(rows.partition_point(|row| row.addr <= addr).checked_sub(1)?)?;
        // Line zero marks instructions that belong to no line.
        if row.line == 0 {
            return None;
        }
        let file = self.path(dwarf, row.file)?;
        Some(SourceLine { file, line: row.line, column: Some(row.column).filter(|&c| c > 0) })
    }

    /// Path of a file of the unit: the compiler's folder, the file's folder, the file's name.
    fn path(&self, dwarf: &gimli::Dwarf<Slice<'a>>, index: u64) -> Option<String> {
        let header = self.unit.line_program.as_ref()?.header();
        let file = header.file(index)?;
        let text = |value| {
            let text = dwarf.attr_string(&self.unit, value).ok()?;
            Some(text.to_string_lossy().into_owned())
        };
        let mut path = String::new();
        let mut push = |part: &str| {
            if part.starts_with('/') {
                path.clear();
            } else if !path.is_empty() && !path.ends_with('/') {
                path.push('/');
            }
            path.push_str(part);
        };
        if let Some(folder) = &self.unit.comp_dir {
            push(&folder.to_string_lossy());
        }
        if let Some(folder) = file.directory(header).and_then(text) {
            push(&folder);
        }
        push(&text(file.path_name())?);
        Some(path)
    }
}
