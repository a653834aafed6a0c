//! One of the traces on its way into the new one.

use fettle_trace::{
    EventKind, EventWriter, FieldType, KindId, Process, Strings, TASKS_OF_A_MACHINE, Thread, Trace,
};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::clock::Line;
use crate::error::{Error, Result};
use crate::messages::{Pair, is_own, value};

/// Numbers of processors that a machine has in a trace of several: no Linux has more.
pub(crate) const CPUS_OF_A_MACHINE: u32 = 1 << 13;

/// One of the traces on its way into the new one.
pub(crate) struct SourceTrace<'a> {
    pub(crate) trace: &'a Trace,
    pub(crate) machine: u32,
    /// Its machine's, if there are several.
    pub(crate) name: Option<&'a str>,
    /// To the new trace's time.
    pub(crate) line: Line,
    pub(crate) end_ns: u64,
}

impl SourceTrace<'_> {
    pub(crate) fn time(&self, time_ns: u64) -> u64 {
        // Negative ones cannot be: the earliest beginning is the new trace's.
        self.line.map(time_ns).round() as u64
    }

    pub(crate) fn pid(&self, pid: u32) -> u32 {
        pid.saturating_add(self.machine * TASKS_OF_A_MACHINE)
    }

    pub(crate) fn cpu(&self, cpu: u32) -> u32 {
        cpu.saturating_add(self.machine * CPUS_OF_A_MACHINE)
    }

    pub(crate) fn events(
        &mut self,
        writer: &mut EventWriter,
        texts: &Strings,
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
            let Some(kind) = kinds.get(run.kind) else { continue };
            for (row, time_ns) in run.times_ns().iter().enumerate() {
                let time_ns = self.time(*time_ns);
                self.end_ns = self.end_ns.max(time_ns);
                values.clear();
                for (n, change) in kind.changes.iter().enumerate() {
                    values.push(self.changed(*change, value(&run, n + 1, row), kind)?);
                }
                if let Some((local, remote)) = kind.ends
                    && let Ok([local, remote]) = values.get_disjoint_mut([local, remote])
                {
                    let (here, there) = ends.renamed((*local as u32, *remote as u32), writer);
                    (*local, *remote) = (here.into(), there.into());
                }
                let cpu = self.cpu(value(&run, 0, row) as u32);
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
    pub(crate) fn tables(
        &self,
        processes: &mut Vec<Process>,
        threads: &mut Vec<Thread>,
    ) -> Result<Threads> {
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

/// Where the machine stands in the number of a socket, pipe or file.
pub(crate) const MACHINE_SHIFT: u32 = 56;

/// What becomes of a field.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    Keep,
    /// The number of a process or thread.
    Task,
    /// The number of a socket, pipe, file or place on a disk.
    Object,
}

/// Ends of connections as the new trace names them.
pub(crate) struct Ends<'a> {
    name: Option<&'a str>,
    texts: &'a Strings,
    inner: &'a FxHashSet<Pair>,
    /// Texts by the writer's codes.
    known: Vec<String>,
    renamed: FxHashMap<(u32, u32), (u32, u32)>,
}

/// A kind of event of both traces.
pub(crate) struct Kind {
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
        let known = self.texts.find(here).zip(self.texts.find(there));
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
pub(crate) fn remember(known: &mut Vec<String>, code: u32, text: &str) {
    let at = code as usize;
    if at >= known.len() {
        known.resize(at + 1, String::new());
    }
    if let Some(kept) = known.get_mut(at).filter(|kept| kept.is_empty()) {
        text.clone_into(kept);
    }
}

/// A trace's numbers of threads in the new trace.
pub(crate) type Threads = FxHashMap<u32, u32>;
