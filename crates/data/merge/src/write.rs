//! The new trace: events, calls, processes and threads of all, on one clock.

use std::path::Path;

use fettle_trace::{
    CallWriter, Clock, CpuLoss, EventWriter, Finish, Loss, Manifest, MergedMachine, ProbeMode,
    Strings, Trace, TraceWriter,
};
use rustc_hash::FxHashSet;

use crate::aligned::{Aligned, merged_trace};
use crate::calls::{self, Code, Measure};
use crate::clock::Line;
use crate::error::Result;
use crate::messages::Pair;
use crate::source::SourceTrace;

pub(crate) struct Writing<'a> {
    pub(crate) traces: &'a [Trace],
    /// By trace.
    pub(crate) machines: &'a [usize],
    /// By trace.
    pub(crate) aligned: &'a [Aligned],
    /// By trace: connections of which it has both sides.
    pub(crate) inner: &'a [FxHashSet<Pair>],
}

impl Writing<'_> {
    pub(crate) fn run(
        &self,
        output: &Path,
        texts: &Strings,
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

    #[expect(
        clippy::indexing_slicing,
        reason = "numbers of traces, of which each of these lists has one entry"
    )]
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

    #[expect(
        clippy::indexing_slicing,
        reason = "numbers of traces, of which each of these lists has one entry"
    )]
    fn fill(
        &self,
        output: &Path,
        texts: &Strings,
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
            let mut one = SourceTrace { trace, machine, name, line, end_ns: 0 };
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

/// Removes a trace whose merge failed.
pub(crate) fn remove(folder: &Path) {
    // The error that is reported is the one that made the merge fail.
    let _ = std::fs::remove_dir_all(folder);
}
