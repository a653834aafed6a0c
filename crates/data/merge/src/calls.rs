//! Calls, and the functions that they are of: a module of several traces is one in the new one, so
//! that a function's calls on all machines stand together.

use fettle_trace::{
    Call, CallWriter, Finish, Function, Manifest, Mapping, Module, Parameter, ProbeCost, ProbeMode,
    Skipped, Trace,
};
use fettle_types::{FunctionIndex, ModuleIndex};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::error::{Error, Result};
use crate::source::{SourceTrace, Threads};

/// What probes of a trace have measured, as far as it can go into one trace with others'.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Measure {
    pub(crate) mode: ProbeMode,
    user_fields: Vec<fettle_trace::Field>,
}

impl Measure {
    /// `None` of a trace without probes.
    pub(crate) fn of(trace: &Trace) -> Option<Measure> {
        let manifest = trace.manifest();
        let functions = |file: &&fettle_trace::FileEntry| file.path == "functions.parquet";
        let probed = manifest.files.iter().find(functions).is_some_and(|file| file.rows > 0);
        let Manifest { probe_mode: mode, user_fields, .. } = manifest;
        probed.then(|| Measure { mode: *mode, user_fields: user_fields.clone() })
    }

    /// What the manifest of the new trace says of those that were measured so.
    pub(crate) fn describe<'a>(
        &self,
        manifest: &mut Manifest,
        traces: impl Iterator<Item = &'a Trace>,
    ) {
        manifest.probe_mode = self.mode;
        manifest.user_fields.clone_from(&self.user_fields);
        manifest.switches = true;
        let (totals, cost) = (&mut manifest.totals, &mut manifest.probe_cost);
        for trace in traces {
            let of = trace.manifest();
            manifest.switches &= of.switches;
            let before = totals.calls as f64;
            totals.calls += of.totals.calls;
            totals.lost += of.totals.lost;
            totals.short += of.totals.short;
            totals.unwound_frames += of.totals.unwound_frames;
            totals.unmatched_exits += of.totals.unmatched_exits;
            totals.mirror_overflows += of.totals.mirror_overflows;
            // The mean over calls; machines differ.
            let share = of.totals.calls as f64 / (totals.calls as f64).max(1.0);
            let share = if before == 0.0 { 1.0 } else { share };
            let mean = |old: f64, new: f64| old + (new - old) * share;
            *cost = ProbeCost {
                inner_ns: mean(cost.inner_ns, of.probe_cost.inner_ns),
                outer_ns: mean(cost.outer_ns, of.probe_cost.outer_ns),
            };
        }
    }
}

/// Code of all traces, while it is numbered anew.
#[derive(Default)]
pub(crate) struct Code {
    modules: Vec<Module>,
    mappings: Vec<Mapping>,
    functions: Vec<Function>,
    parameters: Vec<Parameter>,
    skipped: Vec<Skipped>,
    module_of: FxHashMap<ModuleKey, ModuleIndex>,
    /// By module, address and name.
    function_of: FxHashMap<(ModuleIndex, u64, String), FunctionIndex>,
    parameter_of: FxHashSet<(FunctionIndex, i32)>,
    skipped_of: FxHashSet<(ModuleIndex, u64)>,
}

/// What makes two modules the same.
#[derive(PartialEq, Eq, Hash)]
struct ModuleKey {
    path: String,
    build_id: Option<String>,
    /// Files without a build id are only known to be the same on one machine.
    machine: Option<u32>,
}

/// A trace's numbers of functions in the new trace.
type Functions = FxHashMap<FunctionIndex, FunctionIndex>;

impl Code {
    /// Takes in the code of a trace.
    fn add(&mut self, one: &SourceTrace<'_>) -> Result<Functions> {
        let mut modules = FxHashMap::default();
        for module in one.trace.modules()? {
            modules.insert(module.id, self.module(module, one.machine));
        }
        for mapping in one.trace.mappings()? {
            let Some(module) = modules.get(&mapping.module) else { continue };
            self.mappings.push(Mapping { module: *module, pid: one.pid(mapping.pid), ..mapping });
        }
        let mut functions = Functions::default();
        for function in one.trace.functions()? {
            let Some(module) = modules.get(&function.module) else { continue };
            let old = function.id;
            functions.insert(old, self.function(Function { module: *module, ..function }));
        }
        for parameter in one.trace.parameters()? {
            let Some(function) = functions.get(&parameter.function) else { continue };
            // Where types were given by hand and differ, the first trace's are taken.
            if self.parameter_of.insert((*function, parameter.index)) {
                self.parameters.push(Parameter { function: *function, ..parameter });
            }
        }
        for skipped in one.trace.skipped()? {
            let Some(module) = modules.get(&skipped.module) else { continue };
            if self.skipped_of.insert((*module, skipped.address)) {
                self.skipped.push(Skipped { module: *module, ..skipped });
            }
        }
        Ok(functions)
    }

    fn module(&mut self, module: Module, machine: u32) -> ModuleIndex {
        let key = ModuleKey {
            path: module.path.clone(),
            build_id: module.build_id.clone(),
            machine: module.build_id.is_none().then_some(machine),
        };
        let next = ModuleIndex(self.modules.len() as u32);
        let id = *self.module_of.entry(key).or_insert(next);
        match self.modules.get_mut(id.place()) {
            None => self.modules.push(Module { id, ..module }),
            // Not everything need have been probed in each.
            Some(known) => {
                known.functions_seen = known.functions_seen.max(module.functions_seen);
                known.functions_probed = known.functions_probed.max(module.functions_probed);
                known.functions_skipped = known.functions_skipped.max(module.functions_skipped);
            }
        }
        id
    }

    fn function(&mut self, function: Function) -> FunctionIndex {
        let key = (function.module, function.address, function.name.clone());
        let next = FunctionIndex(self.functions.len() as u32);
        let id = *self.function_of.entry(key).or_insert(next);
        if id == next {
            self.functions.push(Function { id, ..function });
        }
        id
    }

    /// Gives all of it to the new trace.
    pub(crate) fn give(self, finish: &mut Finish) {
        finish.modules = self.modules;
        finish.mappings = self.mappings;
        finish.functions = self.functions;
        finish.parameters = self.parameters;
        finish.skipped = self.skipped;
    }
}

/// Takes in what probes of a trace have recorded. Answers how many calls it had of functions or
/// threads that it has not.
pub(crate) fn add(
    one: &SourceTrace<'_>,
    threads: &Threads,
    code: &mut Code,
    writer: &mut CallWriter,
    finish: &mut Finish,
    stop: &dyn Fn() -> bool,
) -> Result<u64> {
    let functions = code.add(one)?;
    let number = |thread: u32, function: FunctionIndex| {
        threads.get(&thread).copied().zip(functions.get(&function).copied())
    };
    let unknown = calls(one, &number, writer, stop)?;
    let trace = one.trace;
    for total in trace.totals()? {
        let Some((thread, function)) = number(total.thread, total.function) else { continue };
        finish.totals.push(fettle_trace::Total { thread, function, ..total });
    }
    for value in trace.user_values()? {
        let Some((thread, function)) = number(value.thread, value.function) else { continue };
        finish.user_values.push(fettle_trace::UserValue { thread, function, ..value });
    }
    for counter in trace.counters()? {
        let thread = counter.thread.map(|thread| threads.get(&thread).copied());
        let (None | Some(Some(_)), Some(function)) = (thread, functions.get(&counter.function))
        else {
            continue;
        };
        let (thread, function) = (thread.flatten(), *function);
        finish.counters.push(fettle_trace::Counter { thread, function, ..counter });
    }
    let mut result = Ok(());
    trace.for_each_argument(|arguments| {
        let known = arguments.iter().filter_map(|argument| {
            let (thread, function) = number(argument.thread, argument.function)?;
            let start_ns = one.time(argument.start_ns);
            Some(fettle_trace::Argument { thread, function, start_ns, ..argument.clone() })
        });
        if result.is_ok() {
            result = writer.arguments(known);
        }
    })?;
    result?;
    if finish.manifest.switches {
        switches(one, threads, writer)?;
    }
    Ok(unknown)
}

fn switches(one: &SourceTrace<'_>, threads: &Threads, writer: &mut CallWriter) -> Result<()> {
    let mut result = Ok(());
    one.trace.for_each_switch(|switches| {
        let known = switches.iter().filter_map(|switch| {
            let thread = *threads.get(&switch.thread)?;
            let (off_ns, on_ns) = (one.time(switch.off_ns), one.time(switch.on_ns));
            Some(fettle_trace::Switch { thread, off_ns, on_ns, preempted: switch.preempted })
        });
        if result.is_ok() {
            result = writer.switches(known);
        }
    })?;
    Ok(result?)
}

fn calls(
    one: &SourceTrace<'_>,
    number: &dyn Fn(u32, FunctionIndex) -> Option<(u32, FunctionIndex)>,
    writer: &mut CallWriter,
    stop: &dyn Fn() -> bool,
) -> Result<u64> {
    let (parts, damaged) = one.trace.parts()?;
    // What cannot be read would be missing in silence.
    if let Some(error) = damaged.into_iter().next() {
        return Err(error.into());
    }
    let mut unknown = 0;
    let mut calls = Vec::new();
    for part in parts {
        if stop() {
            return Err(Error::Stopped);
        }
        one.trace.read_part(&part, &mut calls)?;
        let all = calls.len();
        calls.retain_mut(|call| {
            let Some((thread, function)) = number(call.thread, call.function) else { return false };
            let (start_ns, end_ns) = (one.time(call.start_ns), one.time(call.end_ns()));
            // What nests in the old time nests in the new one: both ends are rounded alike.
            *call = Call {
                thread,
                function,
                start_ns,
                duration_ns: end_ns.saturating_sub(start_ns),
                ..*call
            };
            true
        });
        unknown += (all - calls.len()) as u64;
        writer.calls(&calls)?;
    }
    Ok(unknown)
}
