//! What was counted, and its trace.
//!
//! A trace of the kernel has a module for the kernel itself and one for each of its modules. Addresses are distances
//! from the first byte of its text, so that they are the same in each boot. One process with one thread stand for
//! all: the counters belong to the kernel, not to a thread.

use std::ops::Range;

use fettle_kernel_emit::Counting as Probe;
use fettle_kernel_image::Image;
use fettle_kernel_lift::{KernelFunction, Skipped};
use fettle_trace::{
    Counter, CounterKind, Finish, Function, Manifest, Mapping, Module, ProbeMode, Process, Thread,
    Total,
};
use fettle_types::{FunctionIndex, ModuleIndex};

use crate::Result;
use crate::count::{AllTimes, Count, Counting, Executions, Times};

/// What was counted.
#[derive(Clone, Debug)]
pub struct Counted {
    /// What the probes did.
    pub probe: Probe,
    /// Calls of all functions.
    pub calls: Vec<Count>,
    /// Where blocks or edges were counted.
    pub executions: Vec<Executions>,
    /// Where times were taken.
    pub times: AllTimes,
    /// Functions that were left unmodified.
    pub skipped: Vec<Skipped>,
}

impl Counted {
    /// Reads the counters and takes them out; `functions` are those that were to be counted.
    ///
    /// # Errors
    ///
    /// When counters cannot be read, or threads cannot leave counted functions now.
    pub fn read(
        mut counting: Counting,
        probe: Probe,
        functions: &[KernelFunction],
    ) -> Result<Counted> {
        let skipped = std::mem::take(&mut counting.skipped);
        let (calls, executions, times) = match probe {
            Probe::Off | Probe::Calls => {
                let calls = counting.calls()?;
                counting.finish()?;
                (calls, Vec::new(), AllTimes::default())
            }
            Probe::Blocks | Probe::Edges => {
                let executions = counting.executions(functions)?;
                counting.finish()?;
                let calls = executions.iter().map(Executions::calls).collect();
                (calls, executions, AllTimes::default())
            }
            Probe::Times => {
                let times = counting.finish_times()?;
                (times.functions.iter().map(Times::begun).collect(), Vec::new(), times)
            }
        };
        Ok(Counted { probe, calls, executions, times, skipped })
    }

    /// The tables of a trace whose clock has ended.
    pub fn trace(&self, image: &Image, mut manifest: Manifest) -> Finish {
        let places = Places::of(image);
        let ids = || FunctionIndex::default().on();
        let mut finish = Finish { modules: places.modules(image), ..Finish::default() };
        for (id, count) in ids().zip(&self.calls) {
            let size = image.functions.starting(count.entry).map_or(0, |found| found.size());
            let (module, address) = places.find(count.entry);
            finish.modules[module.place()].functions_probed += 1;
            finish.functions.push(Function {
                id,
                module,
                name: count.name.clone(),
                address,
                size: size.into(),
                ..Function::default()
            });
            let calls = count.calls;
            finish.totals.push(Total { function: id, calls, ..Total::default() });
        }
        for (total, times) in finish.totals.iter_mut().zip(&self.times.functions) {
            total.total_ns = times.spent.unwrap_or_default().wall_ns;
            total.cpu_total_ns = times.spent.map(|spent| spent.virtual_ns);
            // A function's own time is not taken, and 0 everywhere.
            total.cpu_self_ns = times.spent.map(|_| 0);
        }
        for (id, function) in ids().zip(&self.executions) {
            finish.counters.extend(counters(id, function, &places));
        }
        for skipped in &self.skipped {
            let row = left(skipped, &places);
            finish.modules[row.module.place()].functions_skipped += 1;
            finish.skipped.push(row);
        }
        for module in &mut finish.modules {
            module.functions_seen = module.functions_probed + module.functions_skipped;
        }
        finish.mappings = places.mappings();
        let command = format!("Linux {}", image.release);
        let end_ns = manifest.duration_ns;
        finish.processes.push(Process { command, end_ns, ..Process::default() });
        finish.threads.push(Thread {
            name: "all processors".to_owned(),
            end_ns,
            ..Thread::default()
        });
        manifest.probe_mode = mode(self.probe);
        manifest.totals.calls = self.calls.iter().map(|count| count.calls).sum();
        (manifest.totals.threads, manifest.totals.processes) = (1, 1);
        manifest.notes.extend(self.notes());
        finish.manifest = manifest;
        finish
    }

    /// What a reader of the trace should know.
    fn notes(&self) -> Vec<String> {
        let mut notes =
            vec!["functions of the kernel, called by all processes on all processors".to_owned()];
        let open: u64 = self.times.functions.iter().map(|times| times.open).sum();
        if !self.times.functions.is_empty() {
            notes.push(format!(
                "times are from the begin of calls to their end, with all that was called, waiting and \
                 interrupts, which are not in the time on a processor; {open} calls had not ended, and count until then"
            ));
        }
        let unknown = self.times.functions.iter().filter(|times| times.spent.is_none());
        if unknown.clone().next().is_some() {
            let names: Vec<&str> = unknown.map(|times| times.name.as_str()).collect();
            notes.push(format!(
                "times of {} are not known: threads ended in them, which never left",
                names.join(", ")
            ));
        }
        let edges = || self.executions.iter().flat_map(|function| &function.edges);
        let about = edges().filter(|edge| !edge.exact).count();
        if about > 0 {
            notes.push(format!(
                "counts of {about} of {} edges are the most that there can have been: they do not follow \
                 from those of blocks",
                edges().count()
            ));
        }
        let entered = self.executions.iter().filter(|function| function.inconsistent).count();
        if entered > 0 {
            notes.push(format!(
                "counts of {entered} functions do not add up: threads were in them when they were read"
            ));
        }
        notes
    }
}

/// Where text begins: the kernel's, then that of each module.
struct Places(Vec<Range<u64>>);

impl Places {
    fn of(image: &Image) -> Places {
        let kernel = image.start()..u64::MAX;
        let modules = image.modules.iter().map(|module| module.text.clone());
        Places(std::iter::once(kernel).chain(modules).collect())
    }

    fn ids() -> impl Iterator<Item = ModuleIndex> {
        (0..).map(ModuleIndex)
    }

    /// The module of an address, and how far from its begin it is.
    fn find(&self, address: u64) -> (ModuleIndex, u64) {
        let all = Places::ids().zip(&self.0);
        // The kernel's range has all.
        let found = all.skip(1).find(|(_, text)| text.contains(&address));
        let (id, begin) =
            found.map_or((ModuleIndex::default(), self.0[0].start), |(id, text)| (id, text.start));
        (id, address.wrapping_sub(begin))
    }

    fn modules(&self, image: &Image) -> Vec<Module> {
        let kernel = format!("vmlinux-{}", image.release);
        let modules = image.modules.iter().map(|module| module.name.to_string());
        let paths = std::iter::once(kernel).chain(modules);
        let row = |(id, path)| Module { id, path, ..Module::default() };
        Places::ids().zip(paths).map(row).collect()
    }

    fn mappings(&self) -> Vec<Mapping> {
        let row = |(module, text): (ModuleIndex, &Range<u64>)| Mapping {
            module,
            pid: 0,
            base: text.start,
        };
        Places::ids().zip(&self.0).map(row).collect()
    }
}

/// Rows of a function's blocks and edges.
fn counters(
    function: FunctionIndex,
    counted: &Executions,
    places: &Places,
) -> impl Iterator<Item = Counter> {
    let of = |address| places.find(address).1;
    let blocks = counted.blocks.iter().map(move |block| Counter {
        function,
        kind: CounterKind::Block,
        from_address: of(block.at),
        count: block.count,
        ..Counter::default()
    });
    let edges = counted.edges.iter().map(move |edge| Counter {
        function,
        kind: CounterKind::Edge,
        from_address: of(edge.from),
        to_address: Some(of(edge.to)),
        count: edge.count,
        ..Counter::default()
    });
    blocks.chain(edges)
}

fn left(skipped: &Skipped, places: &Places) -> fettle_trace::Skipped {
    let (module, address) = places.find(skipped.entry);
    fettle_trace::Skipped {
        module,
        address,
        name: skipped.name.clone(),
        reason: skipped.reason.describe().to_owned(),
        detail: format!("at {:#x}", places.find(skipped.at).1),
    }
}

/// How the trace names what the probes did.
pub fn mode(probe: Probe) -> ProbeMode {
    match probe {
        Probe::Off => ProbeMode::None,
        Probe::Calls => ProbeMode::Count,
        Probe::Blocks => ProbeMode::Blocks,
        Probe::Edges => ProbeMode::Edges,
        Probe::Times => ProbeMode::Time,
    }
}
