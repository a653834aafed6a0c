//! Speedscope: the functions first, then for each thread its entries and exits.

use std::io::Write;

use fettle_trace::Trace;
use fettle_types::FunctionIndex;
use serde_json::json;

use super::cast::Cast;
use crate::error::{Error, Result};
use crate::hash::FastMap;
use crate::timeline::{Event, Filter, Kind, Sink, notify};

pub(super) fn write(
    trace: &Trace,
    filter: Filter,
    cast: Cast,
    out: &mut dyn Write,
) -> Result<Vec<String>> {
    let name = trace.manifest().command.join(" ");
    write!(
        out,
        "{{\"$schema\":\"https://www.speedscope.app/file-format-schema.json\",\n\
         \"name\":{},\"exporter\":\"fettle\",\n\"profiles\":[",
        json!(name)
    )?;
    let mut writer = Writer {
        out,
        cast,
        frames: FastMap::default(),
        names: Vec::new(),
        open: None,
        first: true,
    };
    let warnings = notify(trace, filter, &mut writer)?;
    writer.close()?;
    // Frames are known only now; the order of keys is free.
    let Writer { out, names, .. } = writer;
    write!(out, "],\n\"shared\":{{\"frames\":[")?;
    for (at, name) in names.iter().enumerate() {
        let comma = if at == 0 { "" } else { "," };
        write!(out, "{comma}\n{{\"name\":{}}}", json!(name))?;
    }
    out.write_all(b"]}}\n")?;
    Ok(warnings)
}

struct Writer<'a> {
    out: &'a mut dyn Write,
    cast: Cast,
    /// Numbers of frames, by function.
    frames: FastMap<FunctionIndex, u64>,
    names: Vec<String>,
    /// Time of the last event of the thread being written.
    open: Option<u64>,
    /// Whether no event of the thread has been written yet.
    first: bool,
}

impl Writer<'_> {
    /// Ends the thread being written.
    fn close(&mut self) -> Result<()> {
        if let Some(end) = self.open.take() {
            write!(self.out, "],\"startValue\":0,\"endValue\":{end}}}")?;
        }
        Ok(())
    }
}

impl Sink for Writer<'_> {
    type Error = Error;

    fn thread(&mut self, index: u32) -> Result<()> {
        let comma = if self.open.is_some() { "," } else { "" };
        self.close()?;
        let thread = self.cast.thread(index);
        let name = format!("{} ({})", Cast::thread_name(&thread), thread.tid);
        write!(
            self.out,
            "{comma}\n{{\"type\":\"evented\",\"name\":{},\"unit\":\"nanoseconds\",\"events\":[",
            json!(name)
        )?;
        (self.open, self.first) = (Some(0), true);
        Ok(())
    }

    fn event(&mut self, event: &Event) -> Result<()> {
        let next = self.names.len() as u64;
        let frame = *self.frames.entry(event.function).or_insert(next);
        if frame == next {
            self.names.push(self.cast.names.shown(event.function));
        }
        let kind = match event.kind {
            Kind::Entry => 'O',
            Kind::Exit => 'C',
        };
        let comma = if std::mem::take(&mut self.first) { "" } else { "," };
        let at = event.time_ns;
        self.open = Some(at);
        Ok(write!(self.out, "{comma}\n{{\"type\":\"{kind}\",\"frame\":{frame},\"at\":{at}}}")?)
    }
}
