//! Where things are in a `trace.dat`: versions 6 and 7.

use std::collections::HashMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use super::format::{EventFormat, parse};
use crate::error::{Error, Result};

/// What a file says about itself.
#[derive(Debug, Default)]
pub struct Layout {
    pub formats: HashMap<u16, EventFormat>,
    /// Names of threads.
    pub names: Vec<(u32, String)>,
    pub page_bytes: usize,
    /// Where a page's data begin, and the bytes of its length.
    pub data_at: usize,
    pub commit_bytes: usize,
    pub cpus: Vec<CpuData>,
    pub compressed: bool,
    pub clock: String,
    /// Multiplier, shift and offset of clocks that count cycles.
    pub cycles: Option<(u32, u32, u64)>,
    /// Events that the recorder says it lost, by processor.
    pub overruns: Vec<(u32, u64)>,
}

/// The pages of a processor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuData {
    pub cpu: u32,
    pub at: u64,
    pub bytes: u64,
}

/// Numbers of sections and options.
mod id {
    pub const DONE: u16 = 0;
    pub const CPUSTAT: u16 = 2;
    pub const BUFFER: u16 = 3;
    pub const TRACECLOCK: u16 = 4;
    pub const TSC2NSEC: u16 = 14;
    pub const HEADER_INFO: u16 = 16;
    pub const FTRACE_EVENTS: u16 = 17;
    pub const EVENT_FORMATS: u16 = 18;
    pub const CMDLINES: u16 = 21;
}

/// Bytes of a description or section at most.
const SECTION_MAX: u64 = 256 << 20;

/// Reads numbers and texts from a place on, with the place for messages.
pub struct Reader {
    input: Box<dyn Input>,
    pub at: u64,
    path: PathBuf,
    length: u64,
}

/// What is read.
pub trait Input: Read + Seek {}
impl<T: Read + Seek> Input for T {}

impl Reader {
    /// Reads a file.
    pub fn open(path: &Path) -> Result<Reader> {
        let file = File::open(path).map_err(|e| Error::io("open", path, e))?;
        let length = file.metadata().map_err(|e| Error::io("measure", path, e))?.len();
        Ok(Reader { input: Box::new(file), at: 0, path: path.to_owned(), length })
    }

    /// Reads bytes; `path` is for messages.
    pub fn of(bytes: Vec<u8>, path: &Path) -> Reader {
        let length = bytes.len() as u64;
        let input = Box::new(std::io::Cursor::new(bytes));
        Reader { input, at: 0, path: path.to_owned(), length }
    }

    pub fn wrong<T>(&self, problem: impl Into<String>) -> Result<T> {
        Err(Error::at_byte(&self.path, self.at, problem))
    }

    /// Bytes of the file.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Goes to a place.
    pub fn seek(&mut self, at: u64) -> Result<()> {
        self.input.seek(SeekFrom::Start(at)).map_err(|e| Error::io("read", &self.path, e))?;
        self.at = at;
        Ok(())
    }

    /// So many bytes.
    pub fn bytes(&mut self, count: u64) -> Result<Vec<u8>> {
        if count > SECTION_MAX || count > self.length.saturating_sub(self.at) {
            return self.wrong(format!("{count} bytes are said to be here, which are not"));
        }
        let mut bytes = vec![0; count as usize];
        self.input.read_exact(&mut bytes).map_err(|e| Error::io("read", &self.path, e))?;
        self.at += count;
        Ok(bytes)
    }

    /// So many bytes from a place on.
    pub fn bytes_at(&mut self, at: u64, count: u64) -> Result<Vec<u8>> {
        self.seek(at)?;
        self.bytes(count)
    }

    fn number(&mut self, bytes: u64) -> Result<u64> {
        let read = self.bytes(bytes)?;
        Ok(read.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }

    fn u16(&mut self) -> Result<u16> {
        Ok(self.number(2)? as u16)
    }

    pub fn u32(&mut self) -> Result<u32> {
        Ok(self.number(4)? as u32)
    }

    fn u64(&mut self) -> Result<u64> {
        self.number(8)
    }

    /// A text that a zero ends.
    fn text(&mut self) -> Result<String> {
        let mut text = Vec::new();
        loop {
            match self.number(1)? as u8 {
                0 => break,
                byte if text.len() < 4096 => text.push(byte),
                _ => return self.wrong("a name has no end"),
            }
        }
        Ok(String::from_utf8_lossy(&text).into_owned())
    }

    /// A text behind its length of eight bytes.
    fn long_text(&mut self) -> Result<String> {
        let count = self.u64()?;
        let bytes = self.bytes(count)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    fn expect(&mut self, wanted: &[u8]) -> Result<()> {
        match self.bytes(wanted.len() as u64)? == wanted {
            true => Ok(()),
            false => self.wrong(format!("{:?} is expected here", String::from_utf8_lossy(wanted))),
        }
    }
}

/// Reads what a file says about itself.
pub fn layout(reader: &mut Reader) -> Result<Layout> {
    let mut layout = Layout { page_bytes: 4096, data_at: 16, commit_bytes: 8, ..Layout::default() };
    reader.expect(crate::detect::TRACE_DAT)?;
    let version = reader.text()?;
    if reader.number(1)? != 0 {
        return reader.wrong("traces of big-endian machines are not read; use trace-cmd report");
    }
    layout.commit_bytes = reader.number(1)? as usize;
    layout.data_at = 8 + layout.commit_bytes;
    layout.page_bytes = reader.u32()? as usize;
    match version.as_str() {
        "6" => version_6(reader, &mut layout)?,
        "7" => version_7(reader, &mut layout)?,
        other => return reader.wrong(format!("version {other:?} is not known; 6 and 7 are")),
    }
    if !(64..=1 << 20).contains(&layout.page_bytes) || layout.data_at >= layout.page_bytes {
        return reader.wrong("pages have a size that makes no sense");
    }
    Ok(layout)
}

fn version_6(reader: &mut Reader, layout: &mut Layout) -> Result<()> {
    header_info(reader, layout)?;
    ftrace_events(reader, layout)?;
    event_formats(reader, layout)?;
    for _ in 0..2 {
        // Addresses of functions, and formats of printk.
        let bytes = reader.u32()?;
        let at = reader.at + u64::from(bytes);
        reader.seek(at)?;
    }
    command_lines(reader, layout)?;
    let cpus = reader.u32()?;
    let mut section = reader.bytes(10)?;
    if section == b"options  \0" {
        while option_6(reader, layout)? {}
        section = reader.bytes(10)?;
    }
    if section != b"flyrecord\0" {
        return reader.wrong("only recordings of events can be read (`flyrecord`)");
    }
    if cpus > 1 << 16 {
        return reader.wrong("there are more processors than can be");
    }
    for cpu in 0..cpus {
        let (at, bytes) = (reader.u64()?, reader.u64()?);
        layout.cpus.push(CpuData { cpu, at, bytes });
    }
    Ok(())
}

/// An option of version 6; `false` for the last.
fn option_6(reader: &mut Reader, layout: &mut Layout) -> Result<bool> {
    let option = reader.u16()?;
    if option == id::DONE {
        return Ok(false);
    }
    let bytes = reader.u32()?;
    let data = reader.bytes(bytes.into())?;
    common_option(option, &data, layout);
    Ok(true)
}

fn common_option(option: u16, data: &[u8], layout: &mut Layout) {
    let text = || String::from_utf8_lossy(data).into_owned();
    match option {
        // All clocks there are, the chosen one in brackets.
        id::TRACECLOCK => {
            let text = text();
            let chosen = text.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
            layout.clock = chosen.map_or("", |(chosen, _)| chosen).to_owned();
        }
        id::TSC2NSEC => {
            if let ([factor, shift, low, high, ..], _) = data.as_chunks::<4>() {
                let [factor, shift, low, high] =
                    [factor, shift, low, high].map(|word| u32::from_le_bytes(*word));
                layout.cycles = Some((factor, shift, u64::from(low) | u64::from(high) << 32));
            }
        }
        id::CPUSTAT => {
            let text = text();
            let value = |key: &str| {
                let line = text.lines().find_map(|line| line.trim().strip_prefix(key))?;
                line.trim_matches([':', ' ', '\0']).parse::<u64>().ok()
            };
            if let Some(cpu) = value("CPU") {
                let lost = ["overrun", "commit overrun", "dropped events"].map(value);
                let lost = lost.iter().flatten().sum();
                layout.overruns.push((cpu as u32, lost));
            }
        }
        _ => {}
    }
}

fn version_7(reader: &mut Reader, layout: &mut Layout) -> Result<()> {
    let algorithm = reader.text()?;
    reader.text()?;
    if !matches!(algorithm.as_str(), "none" | "zstd") {
        return reader.wrong(format!(
            "compression by {algorithm:?} is not read; `trace-cmd convert --compression none` \
             takes it away"
        ));
    }
    let mut options_at = reader.u64()?;
    // Sections of options are a linked list; a cyclic one would never end.
    for _ in 0..1000 {
        if options_at == 0 {
            return Ok(());
        }
        reader.seek(options_at)?;
        let (mut options, _) = section(reader, 0)?;
        options_at = 0;
        while options.at + 6 <= options.length() {
            let (option, bytes) = (options.u16()?, options.u32()?);
            let data = options.bytes(bytes.into())?;
            let mut data_of = Reader::of(data.clone(), &reader.path);
            match option {
                id::DONE => {
                    options_at = data_of.u64()?;
                    break;
                }
                id::BUFFER => buffer(reader, &mut data_of, layout)?,
                id::HEADER_INFO | id::FTRACE_EVENTS | id::EVENT_FORMATS | id::CMDLINES => {
                    let at = data_of.u64()?;
                    reader.seek(at)?;
                    let (mut data, _) = section(reader, option)?;
                    match option {
                        id::HEADER_INFO => header_info(&mut data, layout)?,
                        id::FTRACE_EVENTS => ftrace_events(&mut data, layout)?,
                        id::EVENT_FORMATS => event_formats(&mut data, layout)?,
                        _ => command_lines(&mut data, layout)?,
                    }
                }
                _ => common_option(option, &data, layout),
            }
        }
    }
    reader.wrong("sections of options lead to each other")
}

/// A section's data, unpacked; and whether what it describes is compressed.
fn section(reader: &mut Reader, wanted: u16) -> Result<(Reader, bool)> {
    const COMPRESSED: u16 = 1;
    let (section, flags) = (reader.u16()?, reader.u16()?);
    reader.u32()?;
    let bytes = reader.u64()?;
    if section != wanted {
        return reader.wrong(format!("section {wanted} is expected here, and it is {section}"));
    }
    let compressed = flags & COMPRESSED != 0;
    if wanted == id::BUFFER {
        return Ok((Reader::of(Vec::new(), &reader.path), compressed));
    }
    let data = match compressed {
        true => chunk(reader)?,
        false => reader.bytes(bytes)?,
    };
    Ok((Reader::of(data, &reader.path), compressed))
}

/// A compressed piece: its length, that of what it holds, and it.
pub fn chunk(reader: &mut Reader) -> Result<Vec<u8>> {
    let (packed, unpacked) = (reader.u32()?, reader.u32()?);
    let data = reader.bytes(packed.into())?;
    if u64::from(unpacked) > SECTION_MAX {
        return reader.wrong("a compressed piece is said to be larger than can be");
    }
    match zstd::bulk::decompress(&data, unpacked as usize) {
        Ok(data) => Ok(data),
        Err(error) => reader.wrong(format!("a compressed piece is damaged: {error}")),
    }
}

/// Where a buffer's pages are.
fn buffer(reader: &mut Reader, data: &mut Reader, layout: &mut Layout) -> Result<()> {
    let at = data.u64()?;
    let name = data.text()?;
    let clock = data.text()?;
    let page_bytes = data.u32()? as usize;
    if !name.is_empty() {
        // Other buffers than the first are other recordings.
        return Ok(());
    }
    (layout.clock, layout.page_bytes) = (clock, page_bytes);
    let cpus = data.u32()?;
    for _ in 0..cpus.min(1 << 16) {
        let (cpu, at, bytes) = (data.u32()?, data.u64()?, data.u64()?);
        layout.cpus.push(CpuData { cpu, at, bytes });
    }
    reader.seek(at)?;
    let (_, compressed) = section(reader, id::BUFFER)?;
    layout.compressed = compressed;
    Ok(())
}

fn header_info(reader: &mut Reader, layout: &mut Layout) -> Result<()> {
    reader.expect(b"header_page\0")?;
    let page = reader.long_text()?;
    for field in page.lines().filter_map(|line| super::format::field(line.trim())) {
        match field.name.as_str() {
            "commit" => layout.commit_bytes = field.size,
            "data" => layout.data_at = field.offset,
            _ => {}
        }
    }
    reader.expect(b"header_event\0")?;
    reader.long_text()?;
    Ok(())
}

fn ftrace_events(reader: &mut Reader, layout: &mut Layout) -> Result<()> {
    for _ in 0..reader.u32()? {
        let text = reader.long_text()?;
        add(layout, &text, "ftrace");
    }
    Ok(())
}

fn event_formats(reader: &mut Reader, layout: &mut Layout) -> Result<()> {
    for _ in 0..reader.u32()? {
        let system = reader.text()?;
        for _ in 0..reader.u32()? {
            let text = reader.long_text()?;
            add(layout, &text, &system);
        }
    }
    Ok(())
}

fn add(layout: &mut Layout, text: &str, system: &str) {
    if let Some(format) = parse(text, system) {
        layout.formats.insert(format.id, format);
    }
}

fn command_lines(reader: &mut Reader, layout: &mut Layout) -> Result<()> {
    for line in reader.long_text()?.lines() {
        if let Some((tid, name)) = line.trim().split_once(' ')
            && let Ok(tid) = tid.parse()
        {
            layout.names.push((tid, name.trim_end_matches('\0').to_owned()));
        }
    }
    Ok(())
}
