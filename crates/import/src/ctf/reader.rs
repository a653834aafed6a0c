//! Packets of a stream's file, and the events in them.

use std::fs::File;
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use super::PACKET_MAGIC;
use super::decode::{Cursor, PADDING, Stuck};
use super::model::{Clock, Model, Role};
use super::plan::{self, EventPlan, Op, StreamPlan};
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

/// Plans of a stream, found by number.
#[derive(Debug)]
struct Kinds {
    plan: StreamPlan,
    /// For small numbers the place among the events, plus one.
    dense: Vec<u32>,
    slots: usize,
    clock: Clock,
}

/// Numbers of events that are looked up in a table.
const DENSE_MAX: u64 = 1 << 16;

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
        for (id, stream) in &model.streams {
            let plan = plan::stream(&model, *id).map_err(wrong)?;
            let clock = match &stream.clock {
                Some(name) => model.clocks.get(name),
                None => model.clocks.values().next().filter(|_| model.clocks.len() == 1),
            };
            let mut dense = Vec::new();
            let mut slots = plan.columns.len();
            for (place, (id, event)) in plan.events.iter().enumerate() {
                slots = slots.max(event.first + event.columns.len());
                if *id < DENSE_MAX {
                    let at = *id as usize;
                    dense.resize(dense.len().max(at + 1), 0);
                    dense[at] = place as u32 + 1;
                }
            }
            let clock = clock.copied().unwrap_or_default();
            plans.push((*id, Kinds { plan, dense, slots, clock }));
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
            at: 0,
            end: 0,
            time: 0,
            packet_bytes: 0,
            cut: false,
            kinds: None,
            current: Current::default(),
            slots: vec![0; kinds.max(self.packet_header_slots)],
            elements: Vec::new(),
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
    bytes: Vec<u8>,
    at: u64,
    end: u64,
    time: u64,
    /// The file ends within the packet.
    cut: bool,
    /// Place of the packet's plans.
    kinds: Option<usize>,
    current: Current,
    slots: Vec<u64>,
    elements: Vec<u64>,
    roles: [u64; Role::COUNT],
    discarded: Option<u64>,
    lost: u64,
    torn: u64,
    cpu: u32,
}

/// The event that was read last.
#[derive(Clone, Copy, Debug, Default)]
struct Current {
    time_ns: u64,
    id: u64,
    /// Place of its plan.
    place: usize,
}

/// An event.
#[derive(Debug)]
pub struct Event<'s> {
    /// Nanoseconds since 1970, as far as the clock knows.
    pub time_ns: u64,
    /// Its number among those of its stream.
    pub id: u64,
    /// What it is, and what its slots hold.
    pub plan: &'s EventPlan,
    /// Values by slot; its own are from [`EventPlan::first`] on.
    pub slots: &'s [u64],
    /// The packet, where texts are.
    pub bytes: &'s [u8],
    /// Elements of arrays.
    pub elements: &'s [u64],
    /// The processor that the packet is of.
    pub cpu: u32,
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
        let (_, kinds) = self.trace.plans.get(self.kinds?)?;
        let (_, plan) = kinds.plan.events.get(self.current.place)?;
        Some(Event {
            time_ns: self.current.time_ns,
            id: self.current.id,
            plan,
            slots: &self.slots,
            bytes: &self.bytes,
            elements: &self.elements,
            cpu: self.cpu,
        })
    }

    /// Reads the next event; `false` at the end.
    ///
    /// # Errors
    ///
    /// As [`Stream::next`].
    #[inline]
    pub fn advance(&mut self) -> Result<bool> {
        while self.at >= self.end {
            if !self.packet()? {
                return Ok(false);
            }
        }
        let Some((_, kinds)) = self.kinds.and_then(|place| self.trace.plans.get(place)) else {
            return Ok(false);
        };
        self.elements.clear();
        let mut cursor = Cursor {
            bytes: &self.bytes,
            at: self.at,
            end: self.end,
            time: self.time,
            roles: &mut self.roles,
            met: 0,
            slots: &mut self.slots,
            elements: &mut self.elements,
        };
        let header = match kinds.plan.compact.as_ref().and_then(|it| cursor.compact(it)) {
            Some(id) => Ok(id),
            None => {
                let read = cursor.run(&kinds.plan.header);
                read.map(|()| cursor.role(Role::Class).unwrap_or(0))
            }
        };
        let read = header.and_then(|id| {
            let place = match kinds.dense.get(id as usize) {
                Some(place) => (*place as usize).checked_sub(1),
                None => kinds.plan.events.iter().position(|(known, _)| *known == id),
            };
            let place = place.ok_or(Stuck::Wrong("no event has this number"))?;
            cursor.run(&kinds.plan.events[place].1.ops)?;
            Ok((id, place))
        });
        match read {
            Ok((id, place)) if cursor.at > self.at => {
                (self.at, self.time) = (cursor.at, cursor.time);
                self.current = Current { time_ns: kinds.clock.ns(self.time), id, place };
                Ok(true)
            }
            Ok(_) => Err(self.wrong("an event has no bits")),
            Err(stuck) => self.stuck(&stuck),
        }
    }

    /// What is to be done about an event that cannot be read.
    #[cold]
    fn stuck(&mut self, stuck: &Stuck) -> Result<bool> {
        match stuck {
            Stuck::Short if self.cut => {
                // The file was cut off: what is whole has been told.
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

    /// Reads so many bytes from a place on, as many as there are.
    fn fill(&mut self, from: u64, bytes: u64) -> Result<()> {
        let bytes = bytes.min(self.length - from.min(self.length));
        let have = usize::try_from(bytes).unwrap_or(usize::MAX - PADDING);
        self.bytes.clear();
        match &mut self.input {
            Input::Memory(all) => {
                self.bytes.extend_from_slice(&all[from as usize..from as usize + have]);
            }
            Input::File(file) => {
                let failed = |e| Error::io("read", &self.path, e);
                self.bytes.resize(have, 0);
                file.seek(SeekFrom::Start(from)).map_err(failed)?;
                match file.read_exact(&mut self.bytes) {
                    Err(e) if e.kind() == ErrorKind::UnexpectedEof => {
                        return Err(self.wrong("the file became shorter while it was read"));
                    }
                    result => result.map_err(failed)?,
                }
            }
        }
        self.bytes.resize(have + PADDING, 0);
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
        self.fill(self.packet_at, HEAD.min(left))?;
        let mut cursor = Cursor {
            bytes: &self.bytes,
            at: 0,
            end: HEAD.min(left) * 8,
            time: self.time,
            roles: &mut self.roles,
            met: 0,
            slots: &mut self.slots,
            elements: &mut self.elements,
        };
        let mut read = cursor.run(&trace.packet_header);
        let (magic, stream) = (cursor.role(Role::Magic), cursor.role(Role::Stream));
        if read.is_ok() && magic.is_some_and(|it| it != PACKET_MAGIC) {
            return Err(self.wrong("no packet begins here: its first number is another"));
        }
        let Some(place) = trace.kinds(stream) else {
            return Err(self.wrong("the packet is of a stream that the metadata does not have"));
        };
        let (_, kinds) = &trace.plans[place];
        read = read.and_then(|()| cursor.run(&kinds.plan.packet));
        let wanted = [Role::PacketSize, Role::ContentSize, Role::Begin, Role::Discarded];
        let at = cursor.at;
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
        self.cpu = cpu.map_or(0, |slot| self.slots[slot] as u32);
        self.kinds = Some(place);
        self.packet_bytes = packet / 8;
        self.cut = packet / 8 > left;
        self.fill(self.packet_at, packet / 8)?;
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
