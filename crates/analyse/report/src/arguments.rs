//! What calls of a function were given and gave back.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use fettle_trace::{Argument, Parameter, ParameterType, Trace};
use fettle_types::FunctionIndex;
use serde::Serialize;

use crate::error::{Error, Result};
use crate::report::Analysis;

/// Distinct values of one parameter that are counted each; further ones are counted together.
const VALUES_MAX: usize = 100_000;

/// Values of one function's calls.
#[derive(Clone, Debug, Serialize)]
pub struct ArgumentView {
    /// [`crate::JSON_VERSION`].
    pub version: u32,
    /// The function.
    pub function: String,
    /// Its parameters in order, the result last.
    pub parameters: Vec<ParameterView>,
    /// The calls that took longest.
    pub slowest: Vec<CallView>,
}

/// One parameter, or the result.
#[derive(Clone, Debug, Serialize)]
pub struct ParameterView {
    /// Its name; `None` for the result, and for one without a name its place.
    pub name: Option<String>,
    /// What its bits mean.
    pub kind: ParameterType,
    /// Recorded values.
    pub values: u64,
    /// Different ones; at least so many if they were too many to tell apart.
    pub distinct: u64,
    /// Those that occur most often.
    pub common: Vec<ValueView>,
}

/// One value of a parameter.
#[derive(Clone, Debug, Serialize)]
pub struct ValueView {
    /// The value, as shown.
    pub value: String,
    /// Calls that had it.
    pub calls: u64,
    /// Nanoseconds of those of them that are recorded, with what they called.
    pub total_ns: u64,
}

/// One call.
#[derive(Clone, Debug, Serialize)]
pub struct CallView {
    /// Thread.
    pub thread: u32,
    /// Nanoseconds since the start of the trace.
    pub start_ns: u64,
    /// Nanoseconds from entry to exit.
    pub duration_ns: u64,
    /// Arguments in order: name and value.
    pub arguments: Vec<(String, String)>,
    /// The result.
    pub result: Option<String>,
}

impl Analysis {
    /// What the calls of the function `wanted` were given and gave back; the `limit` most common
    /// values of each, and the `limit` slowest calls.
    ///
    /// # Errors
    ///
    /// When there is no such function, or nothing is recorded of its arguments.
    pub fn arguments(&self, trace: &Trace, wanted: &str, limit: usize) -> Result<ArgumentView> {
        let parameters = trace.parameters()?;
        // Among functions of like names, those with arguments are meant.
        let mut ids = self.names.find(wanted);
        ids.retain(|id| parameters.iter().any(|p| p.function == *id));
        let id = match ids.as_slice() {
            [id] => *id,
            [] => return Err(self.no_arguments(wanted, &parameters)),
            _ => *self.find(wanted)?.first().unwrap_or(&ids[0]),
        };
        let mut own: Vec<&Parameter> = parameters.iter().filter(|p| p.function == id).collect();
        // The result, -1, comes last.
        own.sort_by_key(|p| p.index as u32);
        let durations = durations(trace, id)?;
        let mut slowest = slowest(&durations, limit);
        let mut tallies: HashMap<i32, Tally> = HashMap::new();
        trace.for_each_argument(|rows| {
            for row in rows.iter().filter(|row| row.function == id) {
                let Some(parameter) = own.iter().find(|p| p.index == row.index) else { continue };
                let key = (row.thread, row.start_ns);
                let took = durations.get(&key).copied();
                tallies.entry(row.index).or_default().add(show(row, parameter.kind), took);
                if let Some(call) = slowest.iter_mut().find(|c| (c.thread, c.start_ns) == key) {
                    let value = show(row, parameter.kind);
                    match row.index {
                        -1 => call.result = Some(value),
                        _ => call.arguments.push((name_of(parameter), value)),
                    }
                }
            }
        })?;
        let parameters = own.iter().map(|p| {
            let tally = tallies.remove(&p.index).unwrap_or_default();
            ParameterView {
                name: (p.index >= 0).then(|| name_of(p)),
                kind: p.kind,
                values: tally.values,
                distinct: tally.by_value.len() as u64 + u64::from(tally.others > 0),
                common: tally.common(limit),
            }
        });
        Ok(ArgumentView {
            version: crate::JSON_VERSION,
            function: self.names.shown(id),
            parameters: parameters.collect(),
            slowest,
        })
    }
}

impl Analysis {
    fn no_arguments(&self, wanted: &str, parameters: &[Parameter]) -> Error {
        let mut names: Vec<String> =
            parameters.iter().map(|p| self.names.shown(p.function)).collect();
        names.dedup();
        names.truncate(8);
        let recorded = match names.as_slice() {
            [] => String::new(),
            names => format!("; this trace has those of {}", names.join(", ")),
        };
        Error::NoArguments { wanted: wanted.to_owned(), recorded }
    }
}

fn name_of(parameter: &Parameter) -> String {
    match parameter.name.as_str() {
        "" => format!("argument {}", parameter.index + 1),
        name => name.to_owned(),
    }
}

/// How long each call of a function took, by thread and start.
fn durations(trace: &Trace, function: FunctionIndex) -> Result<HashMap<(u32, u64), u64>> {
    let mut all = HashMap::new();
    let mut calls = Vec::new();
    let (parts, _) = trace.parts()?;
    for part in parts {
        trace.read_part(&part, &mut calls)?;
        let own = calls.iter().filter(|c| c.function == function);
        all.extend(own.map(|c| ((c.thread, c.start_ns), c.duration_ns)));
    }
    Ok(all)
}

fn slowest(durations: &HashMap<(u32, u64), u64>, limit: usize) -> Vec<CallView> {
    let mut heap = BinaryHeap::with_capacity(limit + 1);
    for ((thread, start_ns), took) in durations {
        heap.push(Reverse((*took, *thread, *start_ns)));
        if heap.len() > limit {
            heap.pop();
        }
    }
    let sorted = heap.into_sorted_vec().into_iter();
    sorted
        .map(|Reverse((duration_ns, thread, start_ns))| CallView {
            thread,
            start_ns,
            duration_ns,
            arguments: Vec::new(),
            result: None,
        })
        .collect()
}

/// Values of one parameter, added up.
#[derive(Default)]
struct Tally {
    values: u64,
    by_value: HashMap<String, (u64, u64)>,
    /// Values that were too many to tell apart.
    others: u64,
}

impl Tally {
    fn add(&mut self, value: String, took: Option<u64>) {
        self.values += 1;
        if self.by_value.len() >= VALUES_MAX && !self.by_value.contains_key(&value) {
            self.others += 1;
            return;
        }
        let sum = self.by_value.entry(value).or_default();
        sum.0 += 1;
        sum.1 = sum.1.saturating_add(took.unwrap_or(0));
    }

    fn common(self, limit: usize) -> Vec<ValueView> {
        let rows = self.by_value.into_iter();
        let mut rows: Vec<ValueView> =
            rows.map(|(value, (calls, total_ns))| ValueView { value, calls, total_ns }).collect();
        rows.sort_by(|a, b| b.calls.cmp(&a.calls).then_with(|| a.value.cmp(&b.value)));
        rows.truncate(limit);
        rows
    }
}

/// A value as a person reads it.
fn show(row: &Argument, kind: ParameterType) -> String {
    let bits = row.integer.unwrap_or(0);
    match (kind, &row.text, row.float) {
        (_, Some(text), _) => format!("{text:?}{}", if row.cut { "…" } else { "" }),
        (_, _, Some(float)) => format!("{float}"),
        (ParameterType::Pointer | ParameterType::Text, ..) if bits == 0 => "NULL".to_owned(),
        (ParameterType::Text, ..) => format!("{bits:#x} (unreadable)"),
        (ParameterType::Pointer, ..) => format!("{bits:#x}"),
        (ParameterType::U64, ..) => format!("{}", bits as u64),
        _ => format!("{bits}"),
    }
}
