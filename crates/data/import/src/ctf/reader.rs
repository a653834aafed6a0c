//! Packets of a stream's file, and the events in them.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use super::PACKET_MAGIC;
use super::batch::{Batch, Row};
use super::decode::Cursor;
use super::kinds::Kinds;
use super::model::{Model, Role};
use super::plan::{self, EventPlan};
use super::position::{PADDING, Position, Stuck};
use super::steps::Op;
use crate::error::{Error, Result};

/// A trace: its types, and the files of its streams.
#[derive(Debug)]
pub struct Trace {
    model: Model,
    packet_header: Box<[Op]>,
    packet_header_slots: usize,
    plans: Vec<(u64, Kinds)>,
    files: Vec<PathBuf>,
}

impl Trace {
    /// Reads a folder's metadata and makes its plans.
    ///
    /// # Errors
    ///
    /// [`Error::Malformed`] with the place in the metadata.
    pub fn open(folder: &Path) -> Result<Trace> {
        let path = folder.join("metadata");
        let bytes = std::fs::read(&path).map_err(|e| Error::io("read", &path, e))?;
        let mut trace = Trace::of(&bytes, &path)?;
        let entries = std::fs::read_dir(folder).map_err(|e| Error::io("list", folder, e))?;
        for entry in entries {
            let entry = entry.map_err(|e| Error::io("list", folder, e))?;
            let name = entry.file_name();
            let hidden = name.to_string_lossy().starts_with('.');
            if name != "metadata" && !hidden && entry.file_type().is_ok_and(|of| of.is_file()) {
                trace.files.push(entry.path());
            }
        }
        trace.files.sort();
        Ok(trace)
    }

    /// Makes the plans of metadata; `path` is for messages.
    ///
    /// # Errors
    ///
    /// As [`Trace::open`].
    pub fn of(metadata: &[u8], path: &Path) -> Result<Trace> {
        let model = super::parse(metadata)
            .map_err(|(at, problem)| Error::at_byte(path, at as u64, problem))?;
        let wrong = |problem| Error::at_byte(path, 0, problem);
        let (packet_header, columns) = plan::packet_header(&model).map_err(wrong)?;
        let mut plans = Vec::new();
        for id in model.streams.keys() {
            plans.push((*id, Kinds::of(&model, *id).map_err(wrong)?));
        }
        let packet_header_slots = columns.len();
        Ok(Trace { model, packet_header, packet_header_slots, plans, files: Vec::new() })
    }

    /// What the metadata says.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// The files of its streams.
    pub fn files(&self) -> &[PathBuf] {
        &self.files
    }

    /// Reads a file of a stream.
    ///
    /// # Errors
    ///
    /// If it cannot be opened.
    pub fn stream(self: &Rc<Trace>, path: &Path) -> Result<Stream> {
        let mut file = File::open(path).map_err(|e| Error::io("open", path, e))?;
        let length = file.seek(SeekFrom::End(0)).map_err(|e| Error::io("measure", path, e))?;
        Ok(self.read(Input::File(file), length, path))
    }

    /// Reads a stream from memory; `path` is for messages.
    pub fn stream_of(self: &Rc<Trace>, bytes: Rc<[u8]>, path: &Path) -> Stream {
        let length = bytes.len() as u64;
        self.read(Input::Memory(bytes), length, path)
    }

    fn read(self: &Rc<Trace>, input: Input, length: u64, path: &Path) -> Stream {
        let kinds = self.plans.iter().map(|(_, kinds)| kinds.slots).max().unwrap_or(0);
        Stream {
            trace: Rc::clone(self),
            input,
            path: path.to_owned(),
            length,
            packet_at: 0,
            bytes: Vec::new(),
            have: 0,
            at: 0,
            end: 0,
            time: 0,
            packet_bytes: 0,
            cut: false,
            kinds: None,
            batch: Batch::default(),
            row: 0,
            slots: vec![0; kinds.max(self.packet_header_slots)],
            roles: [0; Role::COUNT],
            discarded: None,
            lost: 0,
            torn: 0,
            cpu: 0,
        }
    }

    /// The place of a stream's plans.
    fn kinds(&self, id: Option<u64>) -> Option<usize> {
        match id {
            Some(id) => self.plans.iter().position(|(known, _)| *known == id),
            None => (!self.plans.is_empty()).then_some(0),
        }
    }
}

#[derive(Debug)]
enum Input {
    File(File),
    Memory(Rc<[u8]>),
}

/// Reads the events of one file, packet by packet. What is in memory is a packet.
#[derive(Debug)]
pub struct Stream {
    trace: Rc<Trace>,
    input: Input,
    path: PathBuf,
    length: u64,
    /// Where the packet begins in the file, and its length.
    packet_at: u64,
    packet_bytes: u64,
    /// The packet or its beginning, how much of it, and some zeros.
    bytes: Vec<u8>,
    have: usize,
    at: u64,
    end: u64,
    time: u64,
    /// The file ends within the packet.
    cut: bool,
    /// Place of the packet's plans.
    kinds: Option<usize>,
    /// Events that were read, and which of them is the current one.
    batch: Batch,
    row: usize,
    slots: Vec<u64>,
    roles: [u64; Role::COUNT],
    discarded: Option<u64>,
    lost: u64,
    torn: u64,
    cpu: u32,
}

/// An event.
#[derive(Debug)]
pub struct Event<'s> {
    /// Nanoseconds since 1970, as far as the clock knows.
    pub time_ns: u64,
    /// What it is, and what its values are.
    pub plan: &'s EventPlan,
    /// Values of [`EventPlan::columns`].
    pub values: &'s [u64],
    /// The packet, where texts are.
    pub bytes: &'s [u8],
    /// Elements of arrays.
    pub elements: &'s [u64],
    /// The processor that the packet is of.
    pub cpu: u32,
}

/// Events that were read.
#[derive(Debug)]
pub struct Events<'s> {
    plans: &'s [(u64, EventPlan)],
    rows: std::slice::Iter<'s, Row>,
    batch: &'s Batch,
    bytes: &'s [u8],
    cpu: u32,
}

impl<'s> Events<'s> {
    #[inline]
    fn event(&self, row: Row) -> Option<Event<'s>> {
        let (_, plan) = self.plans.get(row.place as usize)?;
        Some(Event {
            time_ns: row.time_ns,
            plan,
            values: self.batch.values(row, plan),
            bytes: self.bytes,
            elements: &self.batch.elements,
            cpu: self.cpu,
        })
    }
}

impl<'s> Iterator for Events<'s> {
    type Item = Event<'s>;

    #[inline]
    fn next(&mut self) -> Option<Event<'s>> {
        let row = *self.rows.next()?;
        self.event(row)
    }
}

/// How much is read to learn how long a packet is.
const HEAD: u64 = 64 << 10;

impl Stream {
    /// The next event; `None` at the end.
    ///
    /// # Errors
    ///
    /// [`Error::Malformed`] with the byte where the file makes no sense.
    #[expect(clippy::should_implement_trait, reason = "an event borrows from the stream")]
    #[inline]
    pub fn next(&mut self) -> Result<Option<Event<'_>>> {
        Ok(if self.advance()? { self.event() } else { None })
    }

    /// The event that was read last.
    #[inline]
    pub fn event(&self) -> Option<Event<'_>> {
        self.events().event(self.batch.row(self.row)?)
    }

    /// The next events, as many as are read at a time, with those that [`Stream::next`] has not given
    /// yet; `None` at the end. To take all of them like this is the fastest way.
    ///
    /// # Errors
    ///
    /// As [`Stream::next`].
    pub fn next_events(&mut self) -> Result<Option<Events<'_>>> {
        if !self.advance()? {
            return Ok(None);
        }
        let from = std::mem::replace(&mut self.row, self.batch.rows().len());
        let mut events = self.events();
        events.rows = self.batch.rows().get(from..).unwrap_or_default().iter();
        Ok(Some(events))
    }

    fn events(&self) -> Events<'_> {
        let kinds = self.kinds.and_then(|place| self.trace.plans.get(place));
        Events {
            plans: kinds.map_or(&[], |(_, kinds)| &kinds.plan.events),
            rows: [].iter(),
            batch: &self.batch,
            bytes: &self.bytes,
            cpu: self.cpu,
        }
    }

    /// Reads the next event; `false` at the end.
    ///
    /// # Errors
    ///
    /// As [`Stream::next`].
    #[inline]
    pub fn advance(&mut self) -> Result<bool> {
        self.row += 1;
        match self.batch.row(self.row) {
            Some(_) => Ok(true),
            None => self.refill(),
        }
    }

    /// Reads some events, of the next packet if there is none left in this one; `false` at the end.
    #[inline(never)]
    fn refill(&mut self) -> Result<bool> {
        self.row = 0;
        self.batch.clear();
        while self.at >= self.end {
            if !self.packet()? {
                return Ok(false);
            }
        }
        let Some((_, kinds)) = self.kinds.and_then(|place| self.trace.plans.get(place)) else {
            return Ok(false);
        };
        let mut cursor = Cursor {
            now: Position { bytes: &self.bytes, at: self.at, end: self.end, time: self.time },
            roles: &mut self.roles,
            met: 0,
            slots: &mut self.slots,
            elements: Vec::new(),
            elements_before: 0,
        };
        let result = self.batch.fill(kinds, &mut cursor);
        (self.at, self.time) = (cursor.now.at, cursor.now.time);
        match result {
            // What is wrong behind them is found again when they have been given.
            Err(stuck) if self.batch.row(0).is_none() => self.stuck(&stuck),
            _ => Ok(true),
        }
    }

    /// What is to be done about an event that cannot be read.
    #[cold]
    fn stuck(&mut self, stuck: &Stuck) -> Result<bool> {
        match stuck {
            Stuck::Short if self.cut => {
                // The file was cut off: what is whole has been given.
                self.torn += 1;
                (self.at, self.end) = (0, 0);
                (self.packet_at, self.packet_bytes) = (self.length, 0);
                Ok(false)
            }
            Stuck::Short => Err(self.wrong("an event reaches beyond its packet")),
            Stuck::Wrong(problem) => Err(self.wrong(*problem)),
        }
    }

    fn wrong(&self, problem: impl Into<String>) -> Error {
        Error::at_byte(&self.path, self.packet_at + self.at / 8, problem)
    }

    /// Events that the recorder lost, by its own count.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Events and packets that were cut off at the end.
    pub fn torn(&self) -> u64 {
        self.torn
    }

    /// The processor of the packet.
    pub fn cpu(&self) -> u32 {
        self.cpu
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Has so many bytes of the packet in memory, as many as there are, and reads what is missing.
    fn fill(&mut self, bytes: u64) -> Result<()> {
        let bytes = bytes.min(self.length - self.packet_at.min(self.length));
        let want = usize::try_from(bytes).unwrap_or(usize::MAX - PADDING);
        let have = self.have.min(want);
        let from = self.packet_at + have as u64;
        self.bytes.truncate(have);
        match &mut self.input {
            Input::Memory(all) => {
                let from = from as usize;
                let more = all.get(from..from + want - have).unwrap_or_default();
                self.bytes.extend_from_slice(more);
            }
            Input::File(file) => {
                let failed = |e| Error::io("read", &self.path, e);
                file.seek(SeekFrom::Start(from)).map_err(failed)?;
                self.bytes.reserve(want - have + PADDING);
                let mut more = file.take((want - have) as u64);
                if more.read_to_end(&mut self.bytes).map_err(failed)? < want - have {
                    return Err(self.wrong("the file became shorter while it was read"));
                }
            }
        }
        self.have = want;
        self.bytes.resize(want + PADDING, 0);
        Ok(())
    }

    /// Goes to the next packet that has events; `false` at the end.
    fn packet(&mut self) -> Result<bool> {
        let trace = Rc::clone(&self.trace);
        self.packet_at += self.packet_bytes;
        (self.at, self.end, self.packet_bytes) = (0, 0, 0);
        let left = self.length - self.packet_at.min(self.length);
        if left == 0 {
            return Ok(false);
        }
        self.have = 0;
        self.fill(HEAD.min(left))?;
        let mut cursor = Cursor {
            now: Position { bytes: &self.bytes, at: 0, end: HEAD.min(left) * 8, time: self.time },
            roles: &mut self.roles,
            met: 0,
            slots: &mut self.slots,
            elements: Vec::new(),
            elements_before: 0,
        };
        let mut read = cursor.run(&trace.packet_header);
        let (magic, stream) = (cursor.role(Role::Magic), cursor.role(Role::Stream));
        if read.is_ok() && magic.is_some_and(|it| it != PACKET_MAGIC) {
            return Err(self.wrong("no packet begins here: its first number is another"));
        }
        let place = trace.kinds(stream);
        let found = place.and_then(|place| Some((place, trace.plans.get(place)?)));
        let Some((place, (_, kinds))) = found else {
            return Err(self.wrong("the packet is of a stream that the metadata does not have"));
        };
        read = read.and_then(|()| cursor.run(&kinds.plan.packet));
        let wanted = [Role::PacketSize, Role::ContentSize, Role::Begin, Role::Discarded];
        let at = cursor.now.at;
        let [packet, content, begin, discarded] = wanted.map(|role| cursor.role(role));
        if read.is_err() {
            if left < HEAD {
                self.torn += 1;
                self.packet_at = self.length;
                return Ok(false);
            }
            return Err(self.wrong("the packet's header makes no sense"));
        }
        let packet = packet.or(content).unwrap_or(left * 8);
        let content = content.unwrap_or(packet);
        if content > packet || content < at || !packet.is_multiple_of(8) || packet / 8 > MOST_BYTES
        {
            return Err(self.wrong("the packet's sizes make no sense"));
        }
        let cpu = kinds.plan.columns.iter().position(|column| column.name == "cpu_id");
        self.cpu = cpu.and_then(|slot| self.slots.get(slot)).copied().unwrap_or(0) as u32;
        self.kinds = Some(place);
        self.packet_bytes = packet / 8;
        self.cut = packet / 8 > left;
        self.fill(packet / 8)?;
        (self.at, self.end) = (at, content.min(left * 8));
        if self.cut && self.at >= self.end {
            self.torn += 1;
        }
        self.time = begin.unwrap_or(self.time);
        if let Some(now) = discarded {
            // It counts from the beginning of the recording on; the first packet's are lost, too.
            self.lost += now.saturating_sub(self.discarded.unwrap_or(0));
            self.discarded = Some(now);
        }
        Ok(true)
    }
}

/// Bytes of a packet at most: places of texts have 32 bits.
const MOST_BYTES: u64 = u32::MAX as u64 - PADDING as u64;

#[cfg(test)]
mod tests {
    use super::*;

    /// Fields of every form, in events of every kind: numbers 0 to 30 take turns.
    fn metadata() -> String {
        let shapes = [
            "u8 a; s8 b; s16 c; u32 d; s32 e; u64 f; s64 g; u16 h;",
            "integer { size = 3; align = 1; } a; integer { size = 13; align = 1; signed = true; } b;
             integer { size = 64; align = 1; } c; integer { size = 61; align = 1; signed = true; } d;",
            "integer { size = 32; align = 8; byte_order = be; signed = true; } a; letter b[17]; s16 c;
             letter d[3]; integer { size = 5; align = 1; } e; integer { size = 64; align = 32; } f;",
            "s32 a; string b; u16 c; string d; letter e[9]; u64 f;",
            "u8 a; u16 b[a]; u8 c;",
            "enum : u8 { x = 0 ... 99, y = 100 ... 255 } a; variant <a> { string x; u16 y; } b; s8 c;",
            "",
        ];
        let mut text = String::from(
            "/* CTF 1.8 */ trace { major = 1; minor = 8; byte_order = le; };
             clock { name = c; freq = 1000000000; offset = 7; };
             typealias integer { size = 8; align = 8; encoding = UTF8; } := letter;
             stream { event.header := struct {
               enum : integer { size = 5; align = 1; } { compact = 0 ... 30, extended = 31 } id;
               variant <id> {
                 struct { integer { size = 27; align = 1; map = clock.c.value; } t; } compact;
                 struct { integer { size = 8; align = 8; } id;
                          integer { size = 64; align = 8; map = clock.c.value; } t; } extended;
               } v; } align(8); };",
        );
        for size in [8, 16, 32, 64] {
            for (name, signed) in [('u', false), ('s', true)] {
                let of = format!("integer {{ size = {size}; align = 8; signed = {signed}; }}");
                text += &format!("typealias {of} := {name}{size};");
            }
        }
        for id in 0..31 {
            let fields = shapes[id % shapes.len()];
            text +=
                &format!("event {{ name = e{id}; id = {id}; fields := struct {{ {fields} }}; }};");
        }
        text
    }

    /// The events of a stream, as text.
    fn reported(trace: &Rc<Trace>, bytes: &[u8]) -> Vec<String> {
        let mut stream = trace.stream_of(bytes.into(), Path::new("stream"));
        let mut reported = Vec::new();
        loop {
            match stream.next() {
                Ok(Some(Event { time_ns, plan, values, elements, .. })) => {
                    // Elements lie elsewhere when several events are read at a time.
                    let (mut values, mut of_arrays) = (values.to_vec(), Vec::new());
                    for (column, value) in plan.columns.iter().zip(&mut values) {
                        if let plan::Kind::Array(_) = column.kind {
                            let (place, count) = ((*value >> 32) as usize, *value as u32 as usize);
                            of_arrays.extend_from_slice(&elements[place..place + count]);
                            *value = count as u64;
                        }
                        // Of elements that were not read, what was there before is left.
                        if column.hidden {
                            *value = 0;
                        }
                    }
                    reported.push(format!("{time_ns} {} {values:?} {of_arrays:?}", plan.name));
                }
                Ok(None) => return reported,
                Err(error) => {
                    reported.push(error.to_string());
                    return reported;
                }
            }
        }
    }

    #[test]
    fn events_in_pieces_are_what_their_steps_say() {
        let metadata = metadata();
        let open = || Trace::of(metadata.as_bytes(), Path::new("metadata")).unwrap();
        let (fast, mut slow) = (open(), open());
        assert!(fast.plans[0].1.plan.compact.is_some());
        for (_, kinds) in &mut slow.plans {
            kinds.without_pieces();
        }
        let (fast, slow) = (Rc::new(fast), Rc::new(slow));
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut events = 0;
        for _ in 0..1000 {
            let bytes: Vec<u8> = std::iter::repeat_with(|| {
                state = state.wrapping_mul(0xd134_2543_de82_ef95).wrapping_add(1);
                // Zeros end texts.
                if state >> 62 == 0 { 0 } else { (state >> 40) as u8 }
            })
            .take(6000)
            .collect();
            let (fast, slow) = (reported(&fast, &bytes), reported(&slow, &bytes));
            events += fast.len();
            for (fast, slow) in fast.iter().zip(&slow) {
                assert_eq!(fast, slow);
            }
            assert_eq!(fast.len(), slow.len());
        }
        assert!(events > 10_000, "{events}");
    }
}
