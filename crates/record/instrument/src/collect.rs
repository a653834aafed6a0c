//! Making a trace of what programs that record themselves wrote into a folder.
//!
//! The files are not trusted: processes may have been killed at any instruction, and their code may
//! have written anything.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io;
use std::mem::offset_of;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use fettle_abi::block::{self, Accumulator, MirrorFrame, ThreadBlock};
use fettle_abi::record::{CallRecord, FunctionId};
use fettle_abi::ring::RingCursors;
use fettle_abi::{MAGIC, VERSION};
use fettle_code::Mode;
use fettle_record::sampled::{self, Sampled};
use fettle_record::{clock, cost, machine, rows};
use fettle_trace::{
    Clock, ClockPair, Counter, CounterKind, Finish, Loss, Manifest, Mapping, OpenCall, Process,
    Thread, Total, TraceWriter,
};
use fettle_types::{FunctionIndex, LoadBias};

use crate::callers::Callers;
use crate::map::{self, FileMap};
use crate::note::Note;
use crate::numbers::Numbers;
use crate::object::records;

/// Why there is no trace.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CollectError {
    /// A process still records into the folder.
    #[error("{path} is being recorded into by process {pid}; wait for its end")]
    Busy {
        /// The folder.
        path: PathBuf,
        /// The process.
        pid: u32,
    },
    /// No process wrote anything that can be read.
    #[error("{0}: no process has recorded anything here")]
    Empty(PathBuf),
    /// A file cannot be read or written.
    #[error("{path}: {error}")]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// The trace cannot be written.
    #[error(transparent)]
    Trace(#[from] fettle_trace::Error),
}

/// Whether `path` holds what programs recorded, and no trace has been made of it yet.
pub fn is_uncollected(path: &Path) -> bool {
    path.join("slots").is_dir() && !path.join("manifest.json").exists()
}

/// A slot file with its thread's spilled records.
struct Slot {
    path: PathBuf,
    file: File,
    pid: u32,
    tid: u32,
    start_tsc: u64,
    start_monotonic_ns: u64,
    process_tsc: u64,
    /// The nth frame that its parent was in, if it was forked, began at this and n in it.
    forked: u64,
    written_unix_ns: u64,
}

/// Makes a trace of the folder `path`, in place.
///
/// # Errors
///
/// When a process still runs that records into it, or the disk is full; the folder is not changed
/// then.
pub fn collect(path: &Path, progress: &mut dyn FnMut(u64, u64)) -> Result<Manifest, CollectError> {
    let folder = path.join("slots");
    let fail = |path: &Path| {
        let path = path.to_owned();
        move |error| CollectError::Io { path, error }
    };
    let (mut notes, mut slots, mut maps) = (Vec::new(), Vec::new(), HashMap::new());
    let mut objects = Vec::new();
    for entry in fs::read_dir(&folder).map_err(fail(&folder))? {
        let file = entry.map_err(fail(&folder))?.path();
        let bytes = || fs::read(&file).map_err(fail(&file));
        match file.extension().and_then(|e| e.to_str()) {
            Some("note") => notes.extend(Note::parse(&bytes()?)),
            Some("slot") => slots.extend(open_slot(&file).map_err(fail(&file))?),
            Some("map") => {
                if let Ok(map) = serde_json::from_slice::<FileMap>(&bytes()?) {
                    maps.insert(map.id, map);
                }
            }
            Some("objects") => objects.push(bytes()?),
            _ => {}
        }
    }
    if notes.is_empty() {
        return Err(CollectError::Empty(path.to_owned()));
    }
    // Notes of libraries come before those of the program they belong to; the forked come after.
    notes.sort_by_key(|n| n.tsc);
    slots.sort_by_key(|s| s.start_tsc);
    if let Some(pid) = running(&folder, &notes) {
        return Err(CollectError::Busy { path: path.to_owned(), pid });
    }
    for bytes in objects {
        let Some(mut map) = records::read(&bytes) else { continue };
        if let Some(note) = notes.iter().find(|n| n.kind == 1 && n.map_id == map.id) {
            map.module.path.clone_from(&note.path);
        }
        maps.insert(map.id, map);
    }
    let mut notes_of_trace = Vec::new();
    for note in notes.iter().filter(|n| n.kind == 1) {
        if maps.contains_key(&note.map_id) {
            continue;
        }
        // The copy is missing or torn: the file itself may still be there.
        match read_map(Path::new(&note.path)).filter(|m| m.id == note.map_id) {
            Some(map) => drop(maps.insert(map.id, map)),
            None => notes_of_trace.push(format!("the functions of {} are not known", note.path)),
        }
    }
    let numbers = Numbers::new(maps, &mut notes_of_trace);

    // The clock: from the first note to now, or to the last note if the machine was restarted.
    let first = notes[0].clone();
    let begin = ClockPair { tsc: first.tsc, monotonic_ns: first.monotonic_ns };
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let now = clock::now();
    let known = notes
        .iter()
        .flat_map(|n| {
            [Some(ClockPair { tsc: n.tsc, monotonic_ns: n.monotonic_ns }), n.end]
                .into_iter()
                .flatten()
        })
        .chain(
            slots
                .iter()
                .map(|s| ClockPair { tsc: s.start_tsc, monotonic_ns: s.start_monotonic_ns }),
        );
    let same_boot = boot.trim().as_bytes() == first.boot && now.tsc > begin.tsc;
    let end = match same_boot {
        true => now,
        false => known.max_by_key(|pair| pair.tsc).unwrap_or(begin),
    };
    let mut tsc_clock = Clock {
        tsc_hz: clock::hertz(begin, end),
        tsc_at_start: begin.tsc,
        begin: Some(begin),
        end: Some(end),
    };
    if end.monotonic_ns.saturating_sub(begin.monotonic_ns) < 1_000_000 {
        tsc_clock.tsc_hz = 0;
        notes_of_trace.push("the clock's rate is not known: times are in ticks".to_owned());
    }
    let converter = tsc_clock.converter();
    let since_start = |unix_ns: u64| {
        let ns = unix_ns.saturating_sub(first.unix_ns);
        begin.tsc + (ns as f64 / tsc_clock.ns_per_tick()) as u64
    };

    let mode = numbers.maps.first().and_then(|m| Mode::named(&m.mode)).unwrap_or(Mode::Events);
    let probe_mode = rows::probe_mode(mode);
    let mut manifest = Manifest {
        fettle_version: env!("CARGO_PKG_VERSION").to_owned(),
        command: notes
            .iter()
            .find(|n| n.pid == first.pid && n.kind == 1)
            .map(|n| n.command.split(' ').map(str::to_owned).collect())
            .unwrap_or_default(),
        machine: machine::describe(),
        start_unix_ns: first.unix_ns,
        clock: tsc_clock,
        probe_mode,
        probe_cost: cost::measure(mode),
        notes: notes_of_trace,
        ..Manifest::default()
    };

    // The trace is written to a folder within this folder, and moved up when it is whole.
    let partial = path.join("partial");
    let _ = fs::remove_dir_all(&partial);
    let mut writer = TraceWriter::create(&partial, &manifest)?;
    let mut finish = Finish::default();
    let mut block_counts: HashMap<(FunctionIndex, u64), u64> = HashMap::new();
    let mut ends: HashMap<(u32, u64), u64> = HashMap::new();
    for note in &notes {
        if let Some(end) = note.end {
            ends.insert((note.pid, note.process_tsc), end.tsc);
        }
    }
    let mut last_tsc = begin.tsc;
    let mut open_frames = Vec::new();
    for (index, slot) in slots.iter().enumerate() {
        let thread = index as u32;
        let mut read = read_slot(slot, &numbers, begin.tsc).map_err(fail(&slot.path))?;
        read.estimate(&Callers::new(&notes, &numbers, slot.pid, slot.process_tsc));
        for chunk in read.records.chunks(1 << 20) {
            writer.spool_append(thread, chunk)?;
        }
        let process = (slot.pid, slot.process_tsc);
        let known_end = ends.get(&process).copied();
        let end_tsc = known_end
            .unwrap_or(0)
            .max(read.last_tsc)
            .max(since_start(slot.written_unix_ns).min(end.tsc))
            .max(slot.start_tsc);
        last_tsc = last_tsc.max(end_tsc);
        let process_end = ends.entry(process).or_insert(end_tsc);
        if known_end.is_none() {
            *process_end = (*process_end).max(end_tsc);
        }
        finish.threads.push(Thread {
            index: thread,
            pid: slot.pid,
            tid: slot.tid,
            start_ns: converter.since_start_ns(slot.start_tsc),
            end_ns: converter.since_start_ns(end_tsc),
            lost: read.lost,
            ..Thread::default()
        });
        for (function, a) in &read.accumulators {
            let total = total_of(a, mode, &converter);
            manifest.totals.calls += total.calls;
            finish.totals.push(Total { thread, function: *function, ..total });
        }
        for (at, count) in read.counters {
            *block_counts.entry(at).or_default() += count;
        }
        open_frames.extend(read.open.into_iter().map(|(f, start)| (thread, process, f, start)));
        manifest.totals.lost += read.lost;
        manifest.totals.unmatched_exits += read.unmatched_exits;
        manifest.totals.unwound_frames += read.unwound_frames;
        manifest.totals.mirror_overflows += read.mirror_overflows;
        if read.unknown > 0 {
            let reason = "record of a function that no file knows".to_owned();
            manifest.losses.push(Loss { reason, count: read.unknown });
        }
    }
    if mode == Mode::Events {
        finish.open_calls.extend(open_frames.into_iter().map(
            |(thread, process, function, start)| {
                let end_tsc = ends.get(&process).copied().unwrap_or(last_tsc).max(start);
                OpenCall { thread, function, start_tsc: start, end_tsc }
            },
        ));
    }

    // Processes, and the load bias of their modules; a forked child's are its parent's.
    let mut biases: HashMap<(u32, u64), LoadBias> = HashMap::new();
    for note in &notes {
        if let Some(module) = numbers.module(note.map_id)
            && biases.insert((note.pid, note.map_id), note.bias) != Some(note.bias)
        {
            finish.mappings.push(Mapping { module, pid: note.pid, base: note.bias.get() });
        }
        let is_new = !finish
            .processes
            .iter()
            .any(|p: &Process| p.pid == note.pid && p.command == note.command);
        if is_new {
            let end = ends.get(&(note.pid, note.process_tsc)).copied().unwrap_or(last_tsc);
            let parent = notes.iter().any(|n| n.pid == note.parent).then_some(note.parent);
            finish.processes.push(Process {
                pid: note.pid,
                parent,
                command: note.command.clone(),
                start_ns: converter.since_start_ns(note.tsc),
                end_ns: converter.since_start_ns(end),
                exit_code: None,
                exit_signal: None,
            });
        }
        last_tsc = last_tsc.max(note.end.map_or(0, |e| e.tsc));
    }
    numbers.edge_rows(&block_counts, &mut finish.counters);
    for ((function, address), count) in block_counts.into_iter().filter(|_| mode != Mode::Edges) {
        finish.counters.push(Counter {
            thread: None,
            function,
            kind: CounterKind::Block,
            from_address: address,
            to_address: None,
            count,
        });
    }
    finish.counters.sort_by_key(|c| (c.function, c.from_address));
    numbers.tables(&mut finish);
    manifest.duration_ns = converter.since_start_ns(last_tsc);
    manifest.totals.threads = finish.threads.len() as u64;
    manifest.totals.processes = finish.processes.len() as u64;
    finish.manifest = manifest;
    let manifest = writer.finish(finish, progress)?;

    // Files are moved up; the manifest last, for it makes the folder a trace.
    for entry in fs::read_dir(&partial).map_err(fail(&partial))? {
        let entry = entry.map_err(fail(&partial))?;
        if entry.file_name() != "manifest.json" {
            fs::rename(entry.path(), path.join(entry.file_name())).map_err(fail(path))?;
        }
    }
    let whole = path.join("manifest.json");
    fs::rename(partial.join("manifest.json"), &whole).map_err(fail(&whole))?;
    let _ = fs::remove_dir_all(&partial);
    let _ = fs::remove_dir_all(&folder);
    Ok(manifest)
}

/// A process that has a slot of this folder mapped.
fn running(folder: &Path, notes: &[Note]) -> Option<u32> {
    let folder = fs::canonicalize(folder).ok()?;
    notes.iter().map(|n| n.pid).find(|pid| {
        let slot = format!("{}/{pid}.", folder.display());
        fs::read_to_string(format!("/proc/{pid}/maps")).is_ok_and(|maps| maps.contains(&slot))
    })
}

/// The map in an instrumented file.
fn read_map(path: &Path) -> Option<FileMap> {
    let image = fettle_record::modules::open_image(path).ok()?;
    let section = image.section(".fettle.map")?;
    serde_json::from_slice(image.section_data(section)?).ok()
}

fn open_slot(path: &Path) -> io::Result<Option<Slot>> {
    let file = File::open(path)?;
    let mut head = [0; 1024];
    if file.read_exact_at(&mut head, 0).is_err() {
        return Ok(None);
    }
    let word = |at: usize| u64::from_le_bytes(head[at..at + 8].try_into().expect("inside"));
    let half = |at: usize| u32::from_le_bytes(head[at..at + 4].try_into().expect("inside"));
    if word(0) != MAGIC || half(offset_of!(ThreadBlock, version)) != VERSION {
        return Ok(None);
    }
    let written = file.metadata()?.modified()?.duration_since(UNIX_EPOCH).unwrap_or_default();
    Ok(Some(Slot {
        path: path.to_owned(),
        pid: half(offset_of!(ThreadBlock, pid)),
        tid: half(offset_of!(ThreadBlock, tid)),
        start_tsc: word(512),
        start_monotonic_ns: word(520),
        process_tsc: word(528),
        forked: word(536),
        written_unix_ns: written.as_nanos() as u64,
        file,
    }))
}

/// Totals of some function in some thread, from its accumulator.
fn total_of(a: &Accumulator, mode: Mode, converter: &fettle_trace::TickConverter) -> Total {
    // The clock of CPU time counts nanoseconds.
    let ns = |time| if mode == Mode::Cpu { time } else { converter.duration_ns(time) };
    let (child_calls, calls_below) = mode.counts_below().then_some((a.children, a.below)).unzip();
    if mode.counts_exits() {
        let (calls, exits) = a.entries_and_exits();
        return Total { calls, exits: Some(exits), ..Total::default() };
    }
    let (total_ns, self_ns) = (ns(a.total_ticks), ns(a.own_ticks()));
    Total { calls: a.calls, total_ns, self_ns, child_calls, calls_below, ..Total::default() }
}

/// The content of a slot, in the trace's numbers.
#[derive(Default)]
struct SlotContents {
    records: Vec<u8>,
    /// Pairs of records, if calls were sampled.
    samples: Option<Vec<u8>>,
    last_tsc: u64,
    accumulators: Vec<(FunctionIndex, Accumulator)>,
    /// By function and address of the block.
    counters: Vec<((FunctionIndex, u64), u64)>,
    open: Vec<(FunctionIndex, u64)>,
    lost: u64,
    unknown: u64,
    unmatched_exits: u64,
    unwound_frames: u64,
    mirror_overflows: u64,
}

/// Functions and starts of the frames in progress, of which `used` bytes are in use.
fn read_frames(slot: &Slot, used: u64) -> io::Result<Vec<(u32, u64)>> {
    let frame = size_of::<MirrorFrame>() as u64;
    let used = used.min(u64::from(block::MIRROR_BYTES));
    let mut mirror = vec![0; (used / frame * frame) as usize];
    slot.file.read_exact_at(&mut mirror, u64::from(block::MIRROR))?;
    let read = |f: &[u8]| {
        let field = |at: usize| u64::from_le_bytes(f[at..at + 8].try_into().expect("inside"));
        let function = field(offset_of!(MirrorFrame, function)) as u32;
        (function, field(offset_of!(MirrorFrame, start)))
    };
    // The lowest frame is of no function.
    Ok(mirror.chunks_exact(frame as usize).skip(1).map(read).collect())
}

/// How often each function is among the calls that a parent was in and its child still is. Each
/// that ended in the child was counted once too often, and the agent has subtracted all of them.
fn still_copied(forked: u64, frames: &[(u32, u64)]) -> HashMap<u32, u64> {
    let mut copied: HashMap<u32, u64> = HashMap::new();
    let is_copied = |(nth, frame): &(u64, &(u32, u64))| frame.1 == forked.wrapping_add(*nth);
    for (_, (function, _)) in (1..).zip(frames).filter(|_| forked != 0).filter(is_copied) {
        *copied.entry(*function).or_default() += 1;
    }
    copied
}

fn read_slot(slot: &Slot, numbers: &Numbers, origin: u64) -> io::Result<SlotContents> {
    let mut head = [0; 256];
    slot.file.read_exact_at(&mut head, 0)?;
    let word = |at: usize| u64::from_le_bytes(head[at..at + 8].try_into().expect("inside"));
    let ring = offset_of!(ThreadBlock, ring);
    let mut out = SlotContents {
        unmatched_exits: word(offset_of!(ThreadBlock, unmatched_exits)),
        unwound_frames: word(offset_of!(ThreadBlock, unwound_frames)),
        mirror_overflows: word(offset_of!(ThreadBlock, mirror_overflows)),
        ..SlotContents::default()
    };

    // Records: those in the file of spilled ones, whose offsets are positions in the ring, then
    // those still in the ring.
    let spilled = fs::read(slot.path.with_extension("calls")).unwrap_or_default();
    // Samples are pairs of records, here and in the ring.
    out.samples = (word(offset_of!(ThreadBlock, top_stack_pointer)) != 0).then(Vec::new);
    let whole = if out.samples.is_some() { 32 } else { 16 };
    let spilled = &spilled[..spilled.len() / whole * whole];
    out.take_records(spilled, numbers, origin);
    let size = u64::from(map::RING_BYTES);
    let reserved = word(ring + offset_of!(RingCursors, reserved)) & !15;
    let consumed = word(ring + offset_of!(RingCursors, consumed)) & !15;
    let mut ring_bytes = vec![0; size as usize];
    slot.file.read_exact_at(&mut ring_bytes, u64::from(block::RING))?;
    let mut rest = Vec::new();
    let mut at = consumed.max(spilled.len() as u64).max(reserved.saturating_sub(size));
    while at < reserved {
        let index = (at & (size - 1)) as usize;
        rest.extend_from_slice(&ring_bytes[index..index + 16]);
        at += 16;
    }
    out.take_records(&rest, numbers, origin);

    let frames = read_frames(slot, word(offset_of!(ThreadBlock, mirror_used)))?;
    // Samples include calls that have not ended.
    let frames = if out.samples.is_some() { &[][..] } else { &frames };
    let copied = still_copied(slot.forked, frames);
    for (function, start) in frames.iter().filter(|(_, start)| *start != 0) {
        out.open.extend(numbers.function(*function).map(|function| (function, *start)));
    }

    let size = size_of::<Accumulator>();
    for (map, first) in numbers.maps.iter().zip(&numbers.first) {
        let mut bytes = vec![0; map.functions.len() * size];
        let at = u64::from(map::ACCUMULATORS) + u64::from(map.first_function) * size as u64;
        slot.file.read_exact_at(&mut bytes, at)?;
        for (i, a) in bytes.chunks_exact(size).enumerate() {
            let word = |k: usize| u64::from_le_bytes(a[k * 8..][..8].try_into().expect("8"));
            let mut a = Accumulator::new(std::array::from_fn(word));
            let open = copied.get(&(map.first_function + i as u32)).copied().unwrap_or_default();
            a.calls = a.calls.wrapping_add(open);
            if (a.calls as i64) < 0 {
                // It was killed just as one of them ended.
                a.calls = 0;
            }
            if a.calls | a.total_ticks | a.self_ticks != 0 {
                out.accumulators.push((first.plus(i as u32), a));
            }
        }
        let mut bytes = vec![0; map.counters.len() * 8];
        let at = u64::from(map::COUNTERS_AT) + u64::from(map.first_counter) * 8;
        slot.file.read_exact_at(&mut bytes, at)?;
        for (count, (function, address)) in bytes.chunks_exact(8).zip(&map.counters) {
            let count = u64::from_le_bytes(count.try_into().expect("eight bytes"));
            if count != 0 {
                out.counters.push(((first.plus(*function), *address), count));
            }
        }
    }
    out.lost += word(ring + offset_of!(RingCursors, lost));
    Ok(out)
}

impl SlotContents {
    /// Times from samples, in place of what the accumulators have while calls are sampled.
    fn estimate(&mut self, callers: &Callers<'_>) {
        let Some(samples) = self.samples.take() else { return };
        let mut sampled = Sampled::new(cost::of_samples());
        sampled.feed_with(0, &samples, |address| callers.function_at(address));
        for (_, a) in &mut self.accumulators {
            a.calls = sampled::calls(a);
        }
        let calls = self.accumulators.iter().map(|(f, a)| (*f, a.calls)).collect();
        let times = sampled.times(0, &calls, None);
        for (function, a) in &mut self.accumulators {
            let times = times.get(function).copied().unwrap_or_default();
            (a.total_ticks, a.self_ticks) = (times.total, times.own);
        }
    }

    fn take_records(&mut self, bytes: &[u8], numbers: &Numbers, origin: u64) {
        if let Some(samples) = &mut self.samples {
            for pair in bytes.chunks_exact(32) {
                let (call, caller) = pair.split_at(16);
                match renumbered(call, numbers) {
                    Ok(call) => {
                        samples.extend_from_slice(&call);
                        samples.extend_from_slice(caller);
                    }
                    Err(Torn::Hole) => self.lost += 1,
                    Err(Torn::Unknown) => self.unknown += 1,
                }
            }
            return;
        }
        const MASK: u64 = (1 << 52) - 1;
        for record in bytes.chunks_exact(16) {
            let record = match renumbered(record, numbers) {
                Ok(record) => record,
                Err(Torn::Hole) => {
                    self.lost += 1;
                    continue;
                }
                Err(Torn::Unknown) => {
                    self.unknown += 1;
                    continue;
                }
            };
            let call = call_record(&record);
            let since = call.start().wrapping_sub(origin & MASK) & MASK;
            if since < MASK / 2 {
                self.last_tsc = self.last_tsc.max(origin + since + call.ticks());
            }
            self.records.extend_from_slice(&record);
        }
    }
}

/// Why a record cannot be used.
enum Torn {
    /// It was never stored.
    Hole,
    /// No file knows its function.
    Unknown,
}

fn call_record(bytes: &[u8]) -> CallRecord {
    let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("sixteen bytes"));
    CallRecord { start_and_id_high: word(0), ticks_and_id_low: word(8) }
}

/// A call record with the trace's number of its function.
fn renumbered(bytes: &[u8], numbers: &Numbers) -> Result<[u8; 16], Torn> {
    let record = call_record(bytes);
    let id = record.id().ok_or(Torn::Hole)?;
    let new = numbers.function(id.index());
    let new = new.and_then(|function| FunctionId::from_index(function.get()));
    let new = CallRecord::new(new.ok_or(Torn::Unknown)?, record.start(), record.ticks());
    let mut out = [0; 16];
    out[..8].copy_from_slice(&new.start_and_id_high.to_le_bytes());
    out[8..].copy_from_slice(&new.ticks_and_id_low.to_le_bytes());
    Ok(out)
}
