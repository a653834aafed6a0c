//! The new trace: events, calls, processes and threads of all, on one clock.

use std::path::Path;

use rustc_hash::{FxHashMap, FxHashSet};

use fettle_trace::{
    CallWriter, Clock, CpuLoss, EventKind, EventWriter, FieldType, Finish, KindId, Loss, Manifest,
    MergedMachine, ProbeMode, Process, TASKS_OF_A_MACHINE, Thread, Trace, TraceWriter,
};

use crate::calls::{self, Code, Measure, Threads};
use crate::clock::Line;
use crate::error::{Error, Result};
use crate::messages::{Pair, Texts, is_own};
use crate::{Aligned, merged_trace, remove};

/// Numbers of processors that a machine has in a trace of several: no Linux has more.
const CPUS_OF_A_MACHINE: u32 = 1 << 13;
/// Where the machine stands in the number of a socket, pipe or file.
const MACHINE_SHIFT: u32 = 56;

pub(crate) struct Writing<'a> {
    pub(crate) traces: &'a [Trace],
    /// By trace.
    pub(crate) machines: &'a [usize],
    /// By trace.
    pub(crate) aligned: &'a [Aligned],
    /// By trace: connections of which it has both sides.
    pub(crate) inner: &'a [FxHashSet<Pair>],
}

/// What becomes of a field.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Change {
    Keep,
    /// The number of a process or thread.
    Task,
    /// The number of a socket, pipe, file or place on a disk.
    Object,
}

impl Writing<'_> {
    pub(crate) fn run(
        &self,
        output: &Path,
        texts: &Texts,
        stop: &dyn Fn() -> bool,
    ) -> Result<Manifest> {
        let manifest = self.manifest();
        let writer = TraceWriter::create(output, &manifest)?;
        match self.fill(output, texts, stop, manifest) {
            Ok(finish) => Ok(writer.finish(finish, &mut |_, _| {})?),
            Err(error) => {
                drop(writer);
                remove(output);
                Err(error)
            }
        }
    }

    /// Nanoseconds from the new trace's beginning to the first one's.
    fn lead_ns(&self) -> f64 {
        let begins = self.aligned.iter().map(|aligned| aligned.line.map(0));
        -begins.fold(0.0, f64::min)
    }

    fn several(&self) -> bool {
        self.machines.iter().any(|machine| *machine > 0)
    }

    /// Names of the machines, each another one.
    fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        for (trace, machine) in self.traces.iter().zip(self.machines) {
            if *machine < names.len() {
                continue;
            }
            let host = trace.manifest().machine.host.replace(['/', ' '], "_");
            let host = if host.is_empty() { format!("machine{}", machine + 1) } else { host };
            let taken = |name: &String| names.contains(name);
            let others = (2..).map(|n| format!("{host}-{n}"));
            let name = std::iter::once(host.clone()).chain(others).find(|name| !taken(name));
            names.push(name.unwrap_or(host));
        }
        names
    }

    /// What the first trace with probes has measured, and others with it: a trace has one measure.
    fn measure(&self) -> Option<Measure> {
        self.traces.iter().find_map(Measure::of)
    }

    fn manifest(&self) -> Manifest {
        let first = self.traces[0].manifest();
        let lead_ns = self.lead_ns().round() as u64;
        let mut machines: Vec<MergedMachine> = self
            .names()
            .into_iter()
            .map(|name| MergedMachine { name, ..MergedMachine::default() })
            .collect();
        let mut manifest = Manifest {
            fettle_version: env!("CARGO_PKG_VERSION").to_owned(),
            start_unix_ns: first.start_unix_ns.saturating_sub(lead_ns),
            probe_mode: ProbeMode::None,
            // Times are nanoseconds already.
            clock: Clock { tsc_hz: 1_000_000_000, ..Clock::default() },
            ..Manifest::default()
        };
        let measure = self.measure();
        for ((trace, machine), aligned) in self.traces.iter().zip(self.machines).zip(self.aligned) {
            let of = trace.manifest();
            let MergedMachine { name, machine, traces } = &mut machines[*machine];
            *machine = of.machine.clone();
            traces.push(merged_trace(trace, aligned));
            manifest.command.push(format!("{name}: {}", of.command.join(" ")));
            let marked = |loss: &Loss| Loss { reason: format!("{name}: {}", loss.reason), ..*loss };
            manifest.losses.extend(of.losses.iter().map(marked));
            manifest.notes.extend(of.notes.iter().map(|note| format!("{name}: {note}")));
            if of.recovery.is_some() {
                manifest.notes.push(format!("{name}: its recording was cut off"));
            }
            let count = of.totals.calls.max(of.totals.records);
            if let (Some(own), Some(common)) = (Measure::of(trace), &measure)
                && own != *common
            {
                let (own, common) = (own.mode.name(), common.mode.name());
                let reason =
                    format!("{name}: call (of the mode {own}, another trace's is {common})");
                manifest.losses.push(Loss { reason, count });
            }
        }
        if let Some(measure) = &measure {
            let alike = |trace: &&Trace| Measure::of(trace).as_ref() == Some(measure);
            measure.describe(&mut manifest, self.traces.iter().filter(alike));
        }
        manifest.machines = machines;
        manifest
    }

    fn fill(
        &self,
        output: &Path,
        texts: &Texts,
        stop: &dyn Fn() -> bool,
        manifest: Manifest,
    ) -> Result<Finish> {
        let mut finish = Finish { manifest, ..Finish::default() };
        let mut events = EventWriter::create(output)?;
        let mut calls = CallWriter::create(output)?;
        let mut code = Code::default();
        let mut lost = Vec::new();
        let measure = self.measure();
        let names = self.names();
        for n in 0..self.traces.len() {
            let trace = &self.traces[n];
            let machine = self.machines[n] as u32;
            let name = self.several().then(|| names[machine as usize].as_str());
            let line = self.aligned[n].line.then(&Line { offset_ns: self.lead_ns(), drift: 0.0 });
            let mut one = One { trace, machine, name, line, end_ns: 0 };
            one.events(&mut events, texts, &self.inner[n], stop)?;
            let threads = one.tables(&mut finish.processes, &mut finish.threads)?;
            if measure.is_some() && Measure::of(trace) == measure {
                let unknown = calls::add(&one, &threads, &mut code, &mut calls, &mut finish, stop)?;
                if unknown > 0 {
                    let name = &names[machine as usize];
                    let reason =
                        format!("{name}: call (of a function or thread that is not listed)");
                    finish.manifest.losses.push(Loss { reason, count: unknown });
                }
            }
            let of = trace.manifest();
            let end_ns = one.end_ns.max(one.time(of.duration_ns));
            finish.manifest.duration_ns = finish.manifest.duration_ns.max(end_ns);
            let cpu = |loss: &CpuLoss| CpuLoss { cpu: one.cpu(loss.cpu), lost: loss.lost };
            lost.extend(of.events.lost.iter().map(cpu));
        }
        code.give(&mut finish);
        finish.calls = Some(calls.finish()?);
        finish.events = events.finish(lost)?;
        finish.manifest.totals.processes = finish.processes.len() as u64;
        finish.manifest.totals.threads = finish.threads.len() as u64;
        Ok(finish)
    }
}

/// One of the traces on its way into the new one.
pub(crate) struct One<'a> {
    pub(crate) trace: &'a Trace,
    pub(crate) machine: u32,
    /// Its machine's, if there are several.
    name: Option<&'a str>,
    /// To the new trace's time.
    line: Line,
    end_ns: u64,
}

/// Ends of connections as the new trace names them.
struct Ends<'a> {
    name: Option<&'a str>,
    texts: &'a Texts,
    inner: &'a FxHashSet<Pair>,
    /// Texts by the writer's codes.
    known: Vec<String>,
    renamed: FxHashMap<(u32, u32), (u32, u32)>,
}

impl One<'_> {
    pub(crate) fn time(&self, time_ns: u64) -> u64 {
        // Negative ones cannot be: the earliest beginning is the new trace's.
        self.line.map(time_ns).round() as u64
    }

    pub(crate) fn pid(&self, pid: u32) -> u32 {
        pid.saturating_add(self.machine * TASKS_OF_A_MACHINE)
    }

    fn cpu(&self, cpu: u32) -> u32 {
        cpu.saturating_add(self.machine * CPUS_OF_A_MACHINE)
    }

    fn events(
        &mut self,
        writer: &mut EventWriter,
        texts: &Texts,
        inner: &FxHashSet<Pair>,
        stop: &dyn Fn() -> bool,
    ) -> Result<()> {
        let mut kinds: Vec<Kind> = Vec::new();
        let mut failed = None;
        let (mut stream, damaged) = self.trace.events(&mut |kind| {
            match Kind::declare(kind, writer) {
                Ok(known) => kinds.push(known),
                Err(error) => {
                    failed.get_or_insert(error);
                    return None;
                }
            }
            Some((0..kind.fields.len()).collect())
        })?;
        if let Some(error) = failed {
            return Err(error.into());
        }
        // What cannot be read would be missing in silence.
        if let Some(error) = damaged.into_iter().next() {
            return Err(error.into());
        }
        let mut ends = Ends {
            name: self.name,
            texts,
            inner,
            known: Vec::new(),
            renamed: FxHashMap::default(),
        };
        let mut values = Vec::new();
        loop {
            if stop() {
                return Err(Error::Stopped);
            }
            let known = &mut ends.known;
            let run = stream.next(u64::MAX, &mut |text| {
                let code = writer.text(text);
                remember(known, code, text);
                code
            })?;
            let Some(run) = run else { break };
            let kind = &kinds[run.kind];
            for (row, time_ns) in run.times_ns().iter().enumerate() {
                let time_ns = self.time(*time_ns);
                self.end_ns = self.end_ns.max(time_ns);
                values.clear();
                for (n, change) in kind.changes.iter().enumerate() {
                    values.push(self.changed(*change, run.values(n + 1)[row], kind)?);
                }
                if let Some((local, remote)) = kind.ends {
                    let pair = (values[local] as u32, values[remote] as u32);
                    let (here, there) = ends.renamed(pair, writer);
                    values[local] = u64::from(here);
                    values[remote] = u64::from(there);
                }
                let cpu = self.cpu(run.values(0)[row] as u32);
                writer.push(kind.id, time_ns, cpu, &values)?;
            }
        }
        Ok(())
    }

    /// A value as the new trace has it.
    fn changed(&self, change: Change, value: u64, kind: &Kind) -> Result<u64> {
        match change {
            Change::Keep => Ok(value),
            Change::Task => self.task(value, kind),
            Change::Object => Ok(value.wrapping_add(u64::from(self.machine) << MACHINE_SHIFT)),
        }
    }

    /// The number of a process or thread.
    fn task(&self, number: u64, kind: &Kind) -> Result<u64> {
        if number >= u64::from(TASKS_OF_A_MACHINE) {
            let (path, kind) = (self.trace.path().to_owned(), kind.name.clone());
            return Err(Error::Number { path, kind, number });
        }
        Ok(number + u64::from(self.machine * TASKS_OF_A_MACHINE))
    }

    /// Takes in processes and threads.
    fn tables(&self, processes: &mut Vec<Process>, threads: &mut Vec<Thread>) -> Result<Threads> {
        for process in self.trace.processes()? {
            processes.push(Process {
                pid: self.pid(process.pid),
                parent: process.parent.map(|pid| self.pid(pid)),
                start_ns: self.time(process.start_ns),
                end_ns: self.time(process.end_ns),
                ..process
            });
        }
        let mut numbers = Threads::default();
        for thread in self.trace.threads()? {
            let index = threads.len() as u32;
            numbers.insert(thread.index, index);
            threads.push(Thread {
                index,
                pid: self.pid(thread.pid),
                tid: self.pid(thread.tid),
                name: match self.name {
                    Some(name) => format!("{name}:{}", thread.name),
                    None => thread.name,
                },
                start_ns: self.time(thread.start_ns),
                end_ns: self.time(thread.end_ns),
                ..thread
            });
        }
        Ok(numbers)
    }
}

/// A kind of event of both traces.
struct Kind {
    name: String,
    id: KindId,
    /// By field, without `cpu`.
    changes: Vec<Change>,
    /// Places of `local` and `remote`.
    ends: Option<(usize, usize)>,
}

impl Kind {
    fn declare(kind: &EventKind, writer: &mut EventWriter) -> fettle_trace::Result<Kind> {
        let declared = kind.fields.get(1..).unwrap_or_default();
        let change = |name: &str, ty: FieldType| match (name, ty) {
            (_, FieldType::Text | FieldType::Bool) => Change::Keep,
            ("pid" | "tid" | "child_pid" | "child_tid", _) => Change::Task,
            ("target", _) if matches!(kind.name.as_str(), "wakeup" | "signal") => Change::Task,
            ("socket" | "peer" | "pipe" | "inode" | "sector", FieldType::U64) => Change::Object,
            _ => Change::Keep,
        };
        let place = |name: &str| {
            declared.iter().position(|field| field.name == name && field.ty == FieldType::Text)
        };
        Ok(Kind {
            name: kind.name.clone(),
            id: writer.kind(&kind.name, declared)?,
            changes: declared.iter().map(|field| change(&field.name, field.ty)).collect(),
            ends: place("local").zip(place("remote")),
        })
    }
}

impl Ends<'_> {
    /// Ends that only their machine knows are marked with its name: others have the same.
    fn renamed(&mut self, pair: (u32, u32), writer: &mut EventWriter) -> (u32, u32) {
        let Some(name) = self.name else { return pair };
        if let Some(renamed) = self.renamed.get(&pair) {
            return *renamed;
        }
        let text = |code: u32| self.known.get(code as usize).map_or("", String::as_str);
        let (here, there) = (text(pair.0), text(pair.1));
        let known = self.texts.get(here).zip(self.texts.get(there));
        let own = is_own(here) || is_own(there) || known.is_some_and(|p| self.inner.contains(&p));
        let marked = |text: &str| match text.is_empty() {
            true => String::new(),
            false => format!("{name}/{text}"),
        };
        let renamed = match own {
            false => pair,
            true => {
                let (here, there) = (marked(here), marked(there));
                let mut code = |text: String| {
                    let code = writer.text(&text);
                    remember(&mut self.known, code, &text);
                    code
                };
                (code(here), code(there))
            }
        };
        self.renamed.insert(pair, renamed);
        renamed
    }
}

/// Keeps a text by its code.
fn remember(known: &mut Vec<String>, code: u32, text: &str) {
    let at = code as usize;
    if at >= known.len() {
        known.resize(at + 1, String::new());
    }
    if known[at].is_empty() {
        text.clone_into(&mut known[at]);
    }
}
