//! Which format a file is in, by what is in it.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use crate::error::{Error, Result};
use crate::spans::console;
use crate::text;

/// A format of traces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Format {
    /// What `strace -f -ttt -T` writes.
    Strace,
    /// What `perf script`, ftrace and `trace-cmd report` write.
    Events,
    /// `trace.dat` of trace-cmd.
    TraceDat,
    /// A folder in the Common Trace Format, of LTTng or another tracer.
    Ctf,
    /// Spans of OpenTelemetry as JSON.
    Otlp,
    /// Spans of Jaeger as JSON.
    Jaeger,
    /// Zipkin's spans, version 2 of its JSON.
    Zipkin,
    /// What OpenTelemetry's console exporters print.
    Console,
    /// Chrome's trace events as JSON.
    Chrome,
    /// Calls that stubs of protoc-gen-fettle reported, as `fettle sensors read --json` writes them.
    Calls,
}

impl Format {
    /// All.
    pub const ALL: [Format; 10] = [
        Format::Strace,
        Format::Events,
        Format::TraceDat,
        Format::Ctf,
        Format::Otlp,
        Format::Jaeger,
        Format::Zipkin,
        Format::Console,
        Format::Chrome,
        Format::Calls,
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Format::Strace => "strace",
            Format::Events => "events",
            Format::TraceDat => "trace-dat",
            Format::Ctf => "ctf",
            Format::Otlp => "otlp",
            Format::Jaeger => "jaeger",
            Format::Zipkin => "zipkin",
            Format::Console => "console",
            Format::Chrome => "chrome",
            Format::Calls => "calls",
        }
    }
}

/// How much of a file is looked at.
const LOOK: u64 = 64 << 10;
/// The first bytes of `trace.dat`.
pub(crate) const TRACE_DAT: &[u8] = b"\x17\x08\x44tracing";
/// Those of a Fettle trace's manifest are `{`; of `perf.data`: what `perf script` has to read first.
const PERF_DATA: &[u8] = b"PERFILE2";

/// What a file or folder is.
///
/// # Errors
///
/// [`Error::Unknown`] with a hint, if it is nothing that can be imported.
pub fn detect(path: &Path) -> Result<Format> {
    let unknown = |hint| Err(Error::Unknown { path: path.to_owned(), hint });
    let about = std::fs::metadata(path).map_err(|e| Error::io("open", path, e))?;
    if about.is_dir() {
        if !crate::ctf::folders(path)?.is_empty() {
            return Ok(Format::Ctf);
        }
        if path.join("manifest.json").exists() {
            return unknown("it is a Fettle trace already");
        }
        return unknown("a folder is a trace if there is a file `metadata` in it or below it");
    }
    let mut head = Vec::new();
    let file = File::open(path).map_err(|e| Error::io("open", path, e))?;
    file.take(LOOK).read_to_end(&mut head).map_err(|e| Error::io("read", path, e))?;
    if head.starts_with(TRACE_DAT) {
        return Ok(Format::TraceDat);
    }
    if head.starts_with(PERF_DATA) {
        return unknown("turn it into text first: perf script -i FILE > FILE.txt");
    }
    if crate::ctf::is_metadata(&head) {
        return unknown("it is a part of a trace: name its folder");
    }
    if head.is_empty() {
        return unknown("it is empty");
    }
    let text = String::from_utf8_lossy(&head);
    let trimmed = text.trim_start();
    if trimmed.starts_with(['{', '[']) {
        return match of_json(trimmed) {
            Some(format) => Ok(format),
            None if console::is_in(&text) => Ok(Format::Console),
            None => unknown(
                "it is JSON, but has no `traceEvents`, `resourceSpans`, Zipkin's `traceId` or Jaeger's \
                 `data`; --format says what it is",
            ),
        };
    }
    // The last line may be cut.
    let lines = || text.lines().take(2000);
    let strace = lines().filter(|line| text::strace::is_line(line)).count();
    let events = lines().filter(|line| text::events::is_line(line)).count();
    match (strace, events) {
        (0, 0) if lines().any(text::strace::is_time_of_day) => {
            unknown("strace -t and -tt tell times without a day; use -ttt")
        }
        // Behind what the program itself has printed.
        (0, 0) if console::is_in(&text) => Ok(Format::Console),
        (0, 0) => unknown(
            "known are: strace -f -ttt -T, perf script, ftrace, trace.dat, CTF, OTLP, Jaeger, Zipkin, \
             OpenTelemetry's console, Chrome",
        ),
        (strace, events) if strace >= events => Ok(Format::Strace),
        _ => Ok(Format::Events),
    }
}

/// What stands in each event of calls.
const CALLS: &str = "\"sensor\":\"rpc.calls\"";

fn of_json(text: &str) -> Option<Format> {
    let first = |mark: &str| text.find(mark).unwrap_or(usize::MAX);
    let marks = [
        (first("\"resourceSpans\""), Format::Otlp),
        (first("\"traceEvents\""), Format::Chrome),
        (first("\"resource_spans\""), Format::Otlp),
        (first("\"traceID\""), Format::Jaeger),
        (first("\"ph\""), Format::Chrome),
        (first(CALLS), Format::Calls),
    ];
    // What others may have, too, as an attribute.
    let common = [
        (first("\"traceId\""), Format::Zipkin),
        (first("\"trace_id\""), Format::Console),
        (first("\"SpanContext\""), Format::Console),
    ];
    let least = |marks: &[(usize, Format)]| {
        let found = marks.iter().filter(|(at, _)| *at < usize::MAX);
        found.min_by_key(|(at, _)| *at).map(|(_, format)| *format)
    };
    least(&marks).or_else(|| least(&common))
}
