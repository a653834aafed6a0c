//! Values of calls, from spools of cells to rows.
//!
//! A thread's cells are read in the order in which it stored them. What does not begin with a
//! head, because a flight recorder went over it, is left out; so is what follows a head that is
//! cut off.

use std::collections::HashMap;
use std::path::Path;

use fettle_abi::record::{Piece, RESULT, TEXT_CELLS, ValueCell};
use fettle_types::FunctionIndex;

use crate::calls::ROWS_PER_FILE;
use crate::column::TableWriter;
use crate::error::Result;
use crate::finish::Finish;
use crate::manifest::{FileEntry, TickConverter};
use crate::spool::{self, Content, SpoolReader};
use crate::tables::{Argument, ParameterType};

/// By function and index.
type Types = HashMap<(FunctionIndex, i32), ParameterType>;

/// Makes the table of values; none if nothing asked for any.
pub(crate) fn convert(folder: &Path, finish: &Finish) -> Result<Option<FileEntry>> {
    if finish.parameters.is_empty() {
        return Ok(None);
    }
    let types: Types = finish.parameters.iter().map(|p| ((p.function, p.index), p.kind)).collect();
    let clock = finish.manifest.clock.converter();
    let mut writer = TableWriter::<Argument>::create(folder)?;
    for spool in spool::all(folder, Content::Values)? {
        let cells = spool.open()?;
        let mut reader = Reader::new(spool.thread, &types, clock);
        let mut rows = Vec::new();
        let mut first = 0;
        while first < spool.records {
            first += reader.read(&cells, first, &mut rows)?;
            rows.drain(..).try_for_each(|row| writer.push(row))?;
        }
        reader.row.take().into_iter().try_for_each(|row| writer.push(row))?;
    }
    writer.finish().map(Some)
}

/// Reads one thread's cells.
struct Reader<'a> {
    types: &'a Types,
    clock: TickConverter,
    thread: u32,
    /// Function and start of the call whose values are read.
    call: Option<(FunctionIndex, u64)>,
    /// The value read last; its text may follow.
    row: Option<Argument>,
    /// Bytes of its text so far.
    text: Vec<u8>,
    /// Its text goes on.
    open: bool,
}

impl<'a> Reader<'a> {
    fn new(thread: u32, types: &'a Types, clock: TickConverter) -> Reader<'a> {
        let (call, row, text) = (None, None, Vec::new());
        Reader { types, clock, thread, call, row, text, open: false }
    }

    /// Takes cells from `first` on; how many.
    fn read(&mut self, spool: &SpoolReader, first: u64, rows: &mut Vec<Argument>) -> Result<u64> {
        let count = (spool.records - first).min(ROWS_PER_FILE as u64);
        let mut words = Vec::new();
        spool.read(first, count as usize, &mut words)?;
        for word in &words {
            let cell = ValueCell::decode(word.start_and_id_high, word.ticks_and_id_low);
            match cell {
                Some(ValueCell::Text { piece, bytes }) => self.piece(piece, bytes),
                other => {
                    rows.extend(self.row.take());
                    self.begin(other);
                }
            }
        }
        Ok(count)
    }

    fn begin(&mut self, cell: Option<ValueCell>) {
        match cell {
            Some(ValueCell::Head { function, start }) => {
                self.call = Some((FunctionIndex(function), self.clock.since_start_ns(start)));
            }
            Some(ValueCell::Value { index, bits }) => {
                let index = if index == RESULT { -1 } else { i32::from(index) };
                let Some((function, start_ns)) = self.call else { return };
                let Some(kind) = self.types.get(&(function, index)) else { return };
                let base = Argument {
                    thread: self.thread,
                    function,
                    start_ns,
                    index,
                    ..Argument::default()
                };
                self.text.clear();
                self.open = *kind == ParameterType::Text && bits != 0;
                self.row = Some(with_value(base, *kind, bits));
            }
            _ => self.call = None,
        }
    }

    fn piece(&mut self, piece: Piece, bytes: [u8; 8]) {
        let Some(row) = self.row.as_mut().filter(|_| self.open) else { return };
        let taken = match piece {
            Piece::End(n) => usize::from(n).min(8),
            Piece::More => 8,
            Piece::Fault => {
                self.open = false;
                return;
            }
        };
        self.text.extend_from_slice(&bytes[..taken]);
        // A text that fills all its room need not end there.
        row.cut = self.text.len() == TEXT_CELLS * 8;
        self.open = taken == 8 && !row.cut;
        row.text = Some(String::from_utf8_lossy(&self.text).into_owned());
    }
}

/// `row` with what `bits` mean.
fn with_value(row: Argument, kind: ParameterType, bits: u64) -> Argument {
    use ParameterType::*;
    let integer = |integer: i64| Argument { integer: Some(integer), ..row.clone() };
    let float = |float: f64| Argument { float: Some(float), ..row.clone() };
    match kind {
        I8 => integer(i64::from(bits as i8)),
        I16 => integer(i64::from(bits as i16)),
        I32 => integer(i64::from(bits as i32)),
        U8 => integer(i64::from(bits as u8)),
        U16 => integer(i64::from(bits as u16)),
        U32 => integer(i64::from(bits as u32)),
        I64 | U64 | Pointer | Text => integer(bits as i64),
        F32 => float(f64::from(f32::from_bits(bits as u32))),
        F64 => float(f64::from_bits(bits)),
    }
}
