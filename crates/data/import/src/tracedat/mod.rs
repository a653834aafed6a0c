//! `trace.dat`, the binary traces of trace-cmd.

mod file;
mod format;
mod pages;

use std::path::{Path, PathBuf};
use std::rc::Rc;

use file::{CpuData, Layout, Reader, chunk, layout};
use format::{EventFormat, FieldFormat, FieldKind};
use pages::{Page, Record};

use crate::error::{Error, Result};
use crate::sink::{At, Sink};
use crate::source::{Context, Source};
use crate::value::{Field, Value};

/// Opens a file: a source for each processor.
pub fn open(path: &Path) -> Result<Vec<Box<dyn Source>>> {
    let sources = cpus(Reader::open(path)?, || Reader::open(path), path)?;
    Ok(sources.into_iter().map(|cpu| Box::new(cpu) as Box<dyn Source>).collect())
}

/// Reads all records of a file in memory, and returns how many there are: for fuzzing.
///
/// # Errors
///
/// What is wrong with it.
pub fn count(bytes: &[u8]) -> Result<u64> {
    let path = Path::new("trace.dat");
    let again = || Ok(Reader::of(bytes.to_vec(), path));
    let mut records = 0;
    for mut cpu in cpus(again()?, again, path)? {
        while cpu.next_ns()?.is_some() {
            if let Some((_, record)) = cpu.next.take() {
                drop(values(&cpu.layout, cpu.page.data(record)));
                records += 1;
            }
        }
    }
    Ok(records)
}

fn cpus(
    mut reader: Reader,
    again: impl Fn() -> Result<Reader>,
    path: &Path,
) -> Result<Vec<CpuRecords>> {
    let layout = Rc::new(layout(&mut reader)?);
    let mut sources = Vec::new();
    for data in &layout.cpus {
        let mut reader = again()?;
        let mut chunks = 0;
        if layout.compressed && data.bytes > 0 {
            reader.seek(data.at)?;
            chunks = reader.u32()?;
        }
        sources.push(CpuRecords {
            layout: Rc::clone(&layout),
            data: *data,
            at: data.at + if layout.compressed { 4 } else { 0 },
            chunks,
            unpacked: Vec::new(),
            unpacked_at: 0,
            reader,
            path: path.to_owned(),
            page: Page::default(),
            next: None,
            lost: 0,
            torn: 0,
            unknown: 0,
        });
    }
    Ok(sources)
}

/// The records of one processor.
struct CpuRecords {
    layout: Rc<Layout>,
    reader: Reader,
    path: PathBuf,
    data: CpuData,
    /// Where the next page or compressed piece is.
    at: u64,
    /// Compressed pieces that are left, and what the last one held.
    chunks: u32,
    unpacked: Vec<u8>,
    unpacked_at: usize,
    page: Page,
    /// When the next record was, in nanoseconds, and where it is.
    next: Option<(u64, Record)>,
    lost: u64,
    torn: u64,
    unknown: u64,
}

impl CpuRecords {
    /// The next page's bytes.
    fn page_bytes(&mut self) -> Result<Option<Vec<u8>>> {
        let size = self.layout.page_bytes;
        if !self.layout.compressed {
            let end = self.data.at.saturating_add(self.data.bytes);
            let left = end.min(self.reader.length()).saturating_sub(self.at);
            if left < size as u64 {
                if end > self.reader.length() {
                    self.torn += 1;
                    self.at = end;
                    self.data.bytes = 0;
                }
                return Ok(None);
            }
            let bytes = self.reader.bytes_at(self.at, size as u64)?;
            self.at += size as u64;
            return Ok(Some(bytes));
        }
        loop {
            if let Some(page) = self.unpacked.get(self.unpacked_at..self.unpacked_at + size) {
                self.unpacked_at += size;
                return Ok(Some(page.to_vec()));
            }
            if self.chunks == 0 {
                return Ok(None);
            }
            self.chunks -= 1;
            // Goes to the piece.
            self.reader.bytes_at(self.at, 0)?;
            if self.at >= self.reader.length() {
                self.torn += 1;
                self.chunks = 0;
                return Ok(None);
            }
            self.unpacked = chunk(&mut self.reader)?;
            self.unpacked_at = 0;
            self.at = self.reader.at;
        }
    }

    fn ns(&self, time: u64) -> u64 {
        match self.layout.cycles.filter(|_| self.layout.clock.contains("tsc")) {
            Some((multiplier, shift, offset)) => {
                let ns = (u128::from(time) * u128::from(multiplier)) >> shift.min(127);
                (ns as u64).saturating_sub(offset)
            }
            None => time,
        }
    }
}

impl Source for CpuRecords {
    fn next_ns(&mut self) -> Result<Option<u64>> {
        while self.next.is_none() {
            let wrong = |problem, at| Error::at_byte(&self.path, at, problem);
            let record = self.page.next().map_err(|problem| wrong(problem, self.at))?;
            if let Some(record) = record {
                self.next = Some((self.ns(record.time), record));
                break;
            }
            let at = self.at;
            let Some(bytes) = self.page_bytes()? else { return Ok(None) };
            let page = Page::new(bytes, self.layout.data_at, self.layout.commit_bytes);
            let (page, lost) = page.map_err(|problem| Error::at_byte(&self.path, at, problem))?;
            self.page = page;
            // One that says no number has lost one at least.
            self.lost = self.lost.saturating_add(lost.unwrap_or(1));
        }
        Ok(self.next.map(|(ns, _)| ns))
    }

    fn take(&mut self, context: &mut Context) -> Result<()> {
        let Some((time_ns, record)) = self.next.take() else { return Ok(()) };
        let data = self.page.data(record);
        let layout = Rc::clone(&self.layout);
        let Some((format, fields)) = values(&layout, data) else {
            self.unknown += 1;
            return Ok(());
        };
        let Context { sink, tracepoints } = context;
        let common = |name: &str| {
            let field = format.common.iter().find(|field| field.name == name)?;
            number(data, field)
        };
        let tid = common("common_pid").and_then(Value::bits).unwrap_or(0) as u32;
        let flags = common("common_flags").and_then(Value::bits).unwrap_or(0);
        // Hard and soft interrupts.
        let interrupt = flags & 0x18 != 0;
        let name = layout.names.iter().find(|(known, _)| *known == tid);
        sink.tasks.seen(0, tid, name.map_or("", |(_, name)| name), time_ns);
        let pid = if tid == 0 { 0 } else { sink.tasks.pid_of(tid) };
        let at = At { time_ns, cpu: self.data.cpu, pid, tid };
        let list: Vec<Field<'_>> = fields.iter().map(|(name, it)| (*name, it.value())).collect();
        let name = format!("{}:{}", format.system, format.name);
        tracepoints.event(sink, at, &name, &list, interrupt)
    }

    fn finish(&mut self, sink: &mut Sink) {
        let overrun = self.layout.overruns.iter().find(|(cpu, _)| *cpu == self.data.cpu);
        sink.lose_on(self.data.cpu, self.lost.max(overrun.map_or(0, |(_, lost)| *lost)));
        sink.lose("pages that were cut off at the end of a file", self.torn);
        sink.lose("records of kinds that the file does not describe", self.unknown);
        sink.note(
            "trace-cmd does not tell which threads are of one process, but for those that it saw \
             begin: the others count as processes of their own",
        );
    }
}

/// A value that may have had to be made.
enum Made<'a> {
    Value(Value<'a>),
    Text(String),
}

impl Made<'_> {
    fn value(&self) -> Value<'_> {
        match self {
            Made::Value(value) => *value,
            Made::Text(text) => Value::Text(text),
        }
    }
}

/// A record's kind and fields.
fn values<'a>(
    layout: &'a Layout,
    data: &'a [u8],
) -> Option<(&'a EventFormat, Vec<(&'a str, Made<'a>)>)> {
    let kind = u16::from_le_bytes(data.get(..2)?.try_into().ok()?);
    let format = layout.formats.get(&kind)?;
    let mut values = Vec::with_capacity(format.fields.len());
    for field in &format.fields {
        let name = field.name.as_str();
        match field.kind {
            FieldKind::Number => {
                let value = number(data, field).unwrap_or(Value::Unsigned(0));
                values.push((name, Made::Value(value)));
            }
            FieldKind::Letters => {
                let end = field.offset.checked_add(field.size)?;
                values.push((name, letters(data.get(field.offset..end).unwrap_or_default())));
            }
            // What a call was given is by place.
            FieldKind::Numbers(size) if format.name == "sys_enter" => {
                let each = numbers(data, field.offset, field.size, size);
                values.extend(each.map(|value| ("", Made::Value(Value::Unsigned(value)))));
            }
            FieldKind::Numbers(size) => {
                values.push((name, list(numbers(data, field.offset, field.size, size))));
            }
            FieldKind::Elsewhere { letters: is_text, relative } => {
                let place = number(data, field).and_then(Value::bits).unwrap_or(0);
                let (mut from, length) =
                    ((place & 0xffff) as usize, (place >> 16 & 0xffff) as usize);
                if relative {
                    from += field.offset + field.size;
                }
                values.push((
                    name,
                    match is_text {
                        true => letters(data.get(from..from + length).unwrap_or_default()),
                        false => list(numbers(data, from, length, 8)),
                    },
                ));
            }
        }
    }
    Some((format, values))
}

fn number(data: &[u8], field: &FieldFormat) -> Option<Value<'static>> {
    let bytes = data.get(field.offset..field.offset.checked_add(field.size)?)?;
    if bytes.is_empty() || bytes.len() > 8 {
        return None;
    }
    let value = bytes.iter().rev().fold(0_u64, |number, byte| number << 8 | u64::from(*byte));
    let unused = 64 - 8 * bytes.len() as u32;
    Some(match field.signed {
        true => Value::Signed((value << unused) as i64 >> unused),
        false => Value::Unsigned(value),
    })
}

fn numbers(data: &[u8], from: usize, bytes: usize, size: usize) -> impl Iterator<Item = u64> {
    let bytes = from.checked_add(bytes).and_then(|to| data.get(from..to)).unwrap_or_default();
    let number = |bytes: &[u8]| bytes.iter().rev().fold(0, |n, byte| n << 8 | u64::from(*byte));
    bytes.chunks(size.max(1)).map(number)
}

fn letters(bytes: &[u8]) -> Made<'_> {
    let text = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
    match std::str::from_utf8(text) {
        Ok(text) => Made::Value(Value::Text(text)),
        Err(_) => Made::Text(String::from_utf8_lossy(text).into_owned()),
    }
}

fn list(numbers: impl Iterator<Item = u64>) -> Made<'static> {
    let numbers: Vec<String> = numbers.take(256).map(|number| number.to_string()).collect();
    Made::Text(format!("[{}]", numbers.join(", ")))
}
