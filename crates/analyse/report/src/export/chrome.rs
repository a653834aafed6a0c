//! Chrome's trace events: a begin and an end event per call, times in microseconds.

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
    mut cast: Cast,
    out: &mut dyn Write,
) -> Result<Vec<String>> {
    out.write_all(b"{\"displayTimeUnit\":\"ns\",\"traceEvents\":[")?;
    let mut comma = "";
    for process in std::mem::take(&mut cast.processes) {
        let (pid, name) = (process.pid, json!(process.command));
        write!(
            out,
            "{comma}\n{{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":{pid},\
             \"args\":{{\"name\":{name}}}}}"
        )?;
        comma = ",";
    }
    let quoted = FastMap::default();
    let mut writer = Writer { out, cast, quoted, place: String::new(), comma };
    let warnings = notify(trace, filter, &mut writer)?;
    out.write_all(b"\n]}\n")?;
    Ok(warnings)
}

struct Writer<'a> {
    out: &'a mut dyn Write,
    cast: Cast,
    /// Names as JSON text, by function.
    quoted: FastMap<FunctionIndex, String>,
    /// The thread being written, as members of an event.
    place: String,
    comma: &'static str,
}

impl Sink for Writer<'_> {
    type Error = Error;

    fn thread(&mut self, index: u32) -> Result<()> {
        let thread = self.cast.thread(index);
        // A cut-off recording knows only the thread's number.
        let tid = if thread.tid == 0 { index } else { thread.tid };
        self.place = format!("\"pid\":{},\"tid\":{tid}", thread.pid);
        let name = json!(Cast::thread_name(&thread));
        write!(
            self.out,
            "{}\n{{\"ph\":\"M\",\"name\":\"thread_name\",{},\"args\":{{\"name\":{name}}}}}",
            self.comma, self.place
        )?;
        self.comma = ",";
        Ok(())
    }

    fn event(&mut self, event: &Event) -> Result<()> {
        let (micros, nanos) = (event.time_ns / 1000, event.time_ns % 1000);
        let place = &self.place;
        match event.kind {
            Kind::Entry => {
                let cast = &self.cast;
                let name = self
                    .quoted
                    .entry(event.function)
                    .or_insert_with(|| json!(cast.names.shown(event.function)).to_string());
                write!(
                    self.out,
                    ",\n{{\"ph\":\"B\",{place},\"ts\":{micros}.{nanos:03},\"name\":{name}}}"
                )?;
            }
            Kind::Exit => {
                write!(self.out, ",\n{{\"ph\":\"E\",{place},\"ts\":{micros}.{nanos:03}}}")?;
            }
        }
        Ok(())
    }
}
