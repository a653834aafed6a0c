//! Foreign traces as Fettle's: what strace, perf, ftrace, LTTng and tracing libraries recorded becomes
//! the events of an ordinary trace folder.
//!
//! ```text
//! detect ── which format ──> one source for each file or stream ──┐
//!                                                    merged by time│
//!             tracepoints, system calls ── translated to the catalogue's events
//!             everything else ──────────── a series of its own name │
//!                                                                   v
//!                                                   sink: events/NAME-NNNN.parquet
//! ```
//!
//! What the kernel's tracepoints and system calls report becomes the same events that `fettle record
//! --kernel` writes, so that schemas, `fettle requests` and `fettle ui` work on them unchanged. Memory
//! does not grow with the input, but for what JSON files without line ends hold.
//!
//! Nothing in a file makes the crate panic. What cannot be read is counted, with its reason; what makes
//! it impossible to go on is an error with the file and the place in it.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::indexing_slicing))]

mod calls;
pub mod ctf;
mod detect;
mod error;
mod lines;
mod sink;
mod source;
mod spans;
mod syscalls;
mod tasks;
mod text;
pub mod tracedat;
mod tracepoints;
mod value;

use std::path::{Path, PathBuf};

use fettle_trace::{Clock, Finish, Manifest, ProbeMode, TraceWriter};

pub use detect::{Format, detect};
pub use error::{Error, Place, Result};
pub use spans::without_ids::{plain, read as read_spans};
pub use spans::{About, Found, Span, Spans};
pub use syscalls::name_of as name_of_call;
pub use syscalls::name_of as system_call_name;
pub use value::Value;

use crate::source::{Context, Source};

/// What to import, and where to.
#[derive(Clone, Debug)]
pub struct Import {
    /// Files and folders. Several are parts of one trace, on one clock.
    pub inputs: Vec<PathBuf>,
    /// The trace's folder; it must not exist.
    pub output: PathBuf,
    /// Their format, if it is not to be found out.
    pub format: Option<Format>,
    /// The inputs are spans, whose ids are dropped, or calls that stubs reported, without ids: traces are
    /// reconstructed from times, names, and what calls say of themselves.
    pub without_ids: bool,
}

/// What came of it.
#[derive(Debug)]
pub struct Imported {
    /// The trace's manifest.
    pub manifest: Manifest,
    /// Format of each input.
    pub formats: Vec<Format>,
}

/// Imports. `stop` is asked now and then whether to give up.
///
/// # Errors
///
/// After an error there is no trace.
pub fn import(import: &Import, stop: &dyn Fn() -> bool) -> Result<Imported> {
    let mut formats = Vec::new();
    let mut sources: Vec<Box<dyn Source>> = Vec::new();
    if import.without_ids {
        formats = open_without_ids(import, &mut sources)?;
    } else {
        let (names, inputs) = calls::names_of(&import.inputs)?;
        for input in &inputs {
            let format = import.format.map_or_else(|| detect(input), Ok)?;
            formats.push(format);
            open(input, format, &names, &mut sources)?;
        }
    }
    // The first event is the trace's beginning.
    let mut first_ns: Option<u64> = None;
    for source in &mut sources {
        if let Some(ns) = source.next_ns()? {
            first_ns = Some(first_ns.map_or(ns, |first| first.min(ns)));
        }
    }
    let Some(base_ns) = first_ns else {
        let path = import.inputs.first().cloned().unwrap_or_default();
        return Err(Error::Empty { path, left_out: left_out(&sources) });
    };
    let mut manifest = Manifest {
        fettle_version: env!("CARGO_PKG_VERSION").to_owned(),
        command: import.inputs.iter().map(|input| input.display().to_string()).collect(),
        start_unix_ns: base_ns,
        probe_mode: ProbeMode::None,
        // Times are nanoseconds already.
        clock: Clock { tsc_hz: 1_000_000_000, ..Clock::default() },
        ..Manifest::default()
    };
    let writer = TraceWriter::create(&import.output, &manifest)?;
    let result = fill(&mut sources, &import.output, base_ns, stop, &mut manifest);
    match result {
        Ok(finish) => {
            let manifest = writer.finish(finish, &mut |_, _| {})?;
            Ok(Imported { manifest, formats })
        }
        Err(error) => {
            drop(writer);
            remove(&import.output);
            Err(error)
        }
    }
}

/// Opens inputs that are put together by what they say beside ids; gives the format of each.
fn open_without_ids(import: &Import, sources: &mut Vec<Box<dyn Source>>) -> Result<Vec<Format>> {
    let (names, inputs) = calls::names_of(&import.inputs)?;
    let (traces, inputs): (Vec<PathBuf>, Vec<PathBuf>) =
        inputs.into_iter().partition(|input| calls::wires::is_trace(input));
    let (mut reported, mut spans, mut formats) = (Vec::new(), Vec::new(), Vec::new());
    for input in inputs {
        match import.format.map_or_else(|| detect(&input), Ok)? {
            Format::Calls => reported.push(input),
            _ => spans.push(input),
        }
    }
    if let (Some(trace), true) = (traces.first(), reported.is_empty()) {
        // It says why a trace is no input.
        detect(trace)?;
    }
    if !reported.is_empty() {
        formats.resize(reported.len(), Format::Calls);
        sources.push(Box::new(calls::open_without_ids(&reported, &traces, &names)?));
    }
    if !spans.is_empty() {
        let (moments, found) = spans::without_ids::open(&spans, import.format)?;
        formats.extend(found);
        sources.push(Box::new(moments));
    }
    Ok(formats)
}

/// What sources without any event left out, as the rest of a sentence.
fn left_out(sources: &[Box<dyn Source>]) -> String {
    let losses = sources.iter().flat_map(|source| source.left_out());
    let losses: Vec<String> = losses.map(|(what, count)| format!("{count} {what}")).collect();
    if losses.is_empty() { String::new() } else { format!("; left out: {}", losses.join(", ")) }
}

/// Reads lines in every way that texts are read in, and forgets them: for fuzzing. Values of JSON, too.
pub fn read_text(bytes: &[u8]) {
    text::read_all(&String::from_utf8_lossy(bytes));
    calls::read_all(&String::from_utf8_lossy(bytes));
    drop(spans::console::spans(&String::from_utf8_lossy(bytes)).moments());
    if let Ok((values, torn)) = spans::parse(bytes, Path::new("text")) {
        for mut read in [
            spans::otlp::spans(&values, torn),
            spans::jaeger::spans(&values, torn),
            spans::zipkin::spans(&values, torn),
        ] {
            spans::without_ids::reconstruct(&mut read.spans);
            drop(read.moments());
        }
        drop(spans::chrome::moments(&values, torn));
    }
}

fn fill(
    sources: &mut [Box<dyn Source>],
    output: &Path,
    base_ns: u64,
    stop: &dyn Fn() -> bool,
    manifest: &mut Manifest,
) -> Result<Finish> {
    let sink = sink::Sink::create(output, base_ns)?;
    let mut context = Context { sink, tracepoints: tracepoints::Tracepoints::default() };
    source::drain(sources, &mut context, stop)?;
    if base_ns < YEAR_2000_NS {
        context.sink.note("the trace's clock is not that of the wall: its date means nothing");
    }
    let sunk = context.sink.finish()?;
    manifest.duration_ns = sunk.duration_ns;
    manifest.losses = sunk.losses;
    manifest.notes.push(format!("{} events were imported", sunk.count));
    manifest.notes.extend(sunk.notes);
    manifest.totals.processes = sunk.processes.len() as u64;
    manifest.totals.threads = sunk.threads.len() as u64;
    Ok(Finish {
        manifest: manifest.clone(),
        processes: sunk.processes,
        threads: sunk.threads,
        events: sunk.events,
        ..Finish::default()
    })
}

/// What is earlier on a clock that counts from 1970 is no wall clock's time.
const YEAR_2000_NS: u64 = 946_684_800_000_000_000;

/// Removes a trace whose import failed.
fn remove(folder: &Path) {
    // The error that is reported is the one that made the import fail.
    let _ = std::fs::remove_dir_all(folder);
}

fn open(
    input: &Path,
    format: Format,
    names: &calls::Names,
    sources: &mut Vec<Box<dyn Source>>,
) -> Result<()> {
    match format {
        Format::Calls => sources.push(Box::new(calls::open(input, names)?)),
        Format::Strace => sources.push(Box::new(text::strace::Strace::open(input)?)),
        Format::Events => sources.push(Box::new(text::events::EventLines::open(input)?)),
        Format::TraceDat => sources.extend(tracedat::open(input)?),
        Format::Ctf => sources.extend(ctf::import::open(input)?),
        Format::Otlp => sources.push(Box::new(spans::otlp::open(input)?)),
        Format::Jaeger => sources.push(Box::new(spans::jaeger::open(input)?)),
        Format::Zipkin => sources.push(Box::new(spans::zipkin::open(input)?)),
        Format::Console => sources.push(Box::new(spans::console::open(input)?)),
        Format::Chrome => sources.push(Box::new(spans::chrome::open(input)?)),
    }
    Ok(())
}
