//! The Firefox Profiler's processed profile format, for `profiler.firefox.com`.
//!
//! Its profiles are samples with weights. Here every stretch of time between two events of a thread is
//! one, of the calls that were open then, and its weight is how long it lasted: the format's kind
//! `tracing-ms`, which shows sums as time, not as numbers of samples. Held in memory until the end.

use std::io::Write;
use std::time::Duration;

use fettle_trace::Trace;
use fettle_types::FunctionIndex;
use fxprof_processed_profile::{
    CategoryHandle, CpuDelta, Frame, FrameFlags, FrameHandle, FrameInfo, ProcessHandle, Profile,
    ReferenceTimestamp, SamplingInterval, StackHandle, ThreadHandle, Timestamp,
};
use serde_json::{Value, json};

use super::cast::Cast;
use crate::error::{Error, Result};
use crate::hash::FastMap;
use crate::timeline::{Event, Filter, Kind, Sink, notify};

/// Weights are 32 bits of nanoseconds while the profile is made: longer stretches are several samples.
const LONGEST_NS: u64 = 2_000_000_000;

pub(super) fn write(
    trace: &Trace,
    filter: Filter,
    cast: Cast,
    out: &mut dyn Write,
) -> Result<Vec<String>> {
    let name = trace.manifest().command.join(" ");
    let start = trace.manifest().clock.begin.map_or(0, |begin| begin.monotonic_ns);
    let start = ReferenceTimestamp::from_duration_since_unix_epoch(Duration::from_nanos(start));
    // Nothing is sampled; the profiler scales its graphs by this.
    let profile = Profile::new(&name, start, SamplingInterval::from_nanos(100_000));
    let mut writer = Writer { profile, cast, processes: FastMap::default(), open: None };
    let warnings = notify(trace, filter, &mut writer)?;
    writer.close();
    let mut profile = serde_json::to_value(&writer.profile).map_err(std::io::Error::from)?;
    weigh_by_time(&mut profile);
    serde_json::to_writer(out, &profile).map_err(std::io::Error::from)?;
    Ok(warnings)
}

/// Lets weights be milliseconds with a fraction, which the library's type for them does not hold.
fn weigh_by_time(profile: &mut Value) {
    let threads = profile.get_mut("threads").and_then(Value::as_array_mut);
    for thread in threads.into_iter().flatten() {
        let Some(samples) = thread.get_mut("samples") else { continue };
        for weight in samples.get_mut("weight").and_then(Value::as_array_mut).into_iter().flatten()
        {
            *weight = json!(weight.as_f64().unwrap_or(0.0) / 1e6);
        }
        samples["weightType"] = json!("tracing-ms");
    }
}

struct Writer {
    profile: Profile,
    cast: Cast,
    processes: FastMap<u32, ProcessHandle>,
    open: Option<Open>,
}

/// The thread being written.
struct Open {
    thread: ThreadHandle,
    frames: FastMap<FunctionIndex, FrameHandle>,
    /// The calls that are open, outermost first, each with all around it.
    stacks: Vec<StackHandle>,
    last_ns: u64,
}

impl Writer {
    fn close(&mut self) {
        if let Some(open) = self.open.take() {
            let end = Timestamp::from_nanos_since_reference(open.last_ns);
            self.profile.set_thread_end_time(open.thread, end);
        }
    }

    fn process(&mut self, pid: u32) -> ProcessHandle {
        let process = self.cast.processes.iter().find(|process| process.pid == pid);
        let command =
            process.map_or_else(String::new, |p| crate::names::one_line(p.command.clone()));
        let start_ns = process.map_or(0, |process| process.start_ns);
        let profile = &mut self.profile;
        *self.processes.entry(pid).or_insert_with(|| {
            profile.add_process(&command, pid, Timestamp::from_nanos_since_reference(start_ns))
        })
    }
}

impl Sink for Writer {
    type Error = Error;

    fn thread(&mut self, index: u32) -> Result<()> {
        self.close();
        let row = self.cast.thread(index);
        let process = self.process(row.pid);
        let start = Timestamp::from_nanos_since_reference(row.start_ns);
        let thread = self.profile.add_thread(process, row.tid, start, row.tid == row.pid);
        self.profile.set_thread_name(thread, &Cast::thread_name(&row));
        self.open = Some(Open {
            thread,
            frames: FastMap::default(),
            stacks: Vec::new(),
            last_ns: row.start_ns,
        });
        Ok(())
    }

    fn event(&mut self, event: &Event) -> Result<()> {
        let Some(open) = &mut self.open else { return Ok(()) };
        let stack = open.stacks.last().copied();
        // Outside of all calls nothing is known, and nothing is said.
        while stack.is_some() && open.last_ns < event.time_ns {
            let ns = (event.time_ns - open.last_ns).min(LONGEST_NS);
            let at = Timestamp::from_nanos_since_reference(open.last_ns);
            self.profile.add_sample(open.thread, at, stack, CpuDelta::ZERO, ns as i32);
            open.last_ns += ns;
        }
        open.last_ns = event.time_ns;
        match event.kind {
            Kind::Exit => {
                open.stacks.pop();
            }
            Kind::Entry => {
                let (profile, names) = (&mut self.profile, &self.cast.names);
                let frame = *open.frames.entry(event.function).or_insert_with(|| {
                    let name = profile.intern_string(&names.shown(event.function));
                    let category_pair = CategoryHandle::OTHER.into();
                    let flags = FrameFlags::empty();
                    let info = FrameInfo { frame: Frame::Label(name), category_pair, flags };
                    profile.intern_frame(open.thread, info)
                });
                open.stacks.push(self.profile.intern_stack(open.thread, stack, frame));
            }
        }
        Ok(())
    }
}
