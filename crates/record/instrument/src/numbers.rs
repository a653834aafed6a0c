//! The numbers that functions have in a trace, and the addresses of their rewritten text.

use std::collections::HashMap;

use fettle_record::counts;
use fettle_trace::{Counter, Finish};
use fettle_types::{FunctionIndex, ModuleIndex};

use crate::map::FileMap;

/// Rewritten text of a function.
#[derive(Clone, Copy, Debug)]
pub struct Code {
    pub(crate) start: u64,
    pub(crate) size: u64,
    pub(crate) function: FunctionIndex,
}

/// The rewritten text in `map`, in order of address; `first` is its first number in the trace.
pub fn code(map: &FileMap, first: FunctionIndex) -> Vec<Code> {
    let numbered = map.code.iter().zip(first.on());
    let mut code: Vec<Code> =
        numbered.map(|(&(start, size), function)| Code { start, size, function }).collect();
    code.sort_by_key(|c| c.start);
    code
}

/// All files' maps, and the trace's own numbers of their functions.
#[derive(Debug)]
pub(crate) struct Numbers {
    pub(crate) maps: Vec<FileMap>,
    /// First number in the trace of each map.
    pub(crate) first: Vec<FunctionIndex>,
    /// Rewritten text of each map, if its calls are sampled.
    pub(crate) code: Vec<Vec<Code>>,
}

impl Numbers {
    pub(crate) fn new(maps: HashMap<u64, FileMap>, notes: &mut Vec<String>) -> Numbers {
        let mut maps: Vec<FileMap> = maps.into_values().collect();
        maps.sort_by_key(|m| m.first_function);
        for pair in maps.windows(2) {
            if pair[0].collides(&pair[1]) {
                notes.push(format!(
                    "{} and {} happen to use the same numbers: where one process ran both, \
                     their calls are mixed up",
                    pair[0].module.path, pair[1].module.path
                ));
            }
        }
        let mut next = FunctionIndex(0);
        let first: Vec<FunctionIndex> = maps
            .iter()
            .map(|m| {
                let first = next;
                next = next.plus(m.functions.len() as u32);
                first
            })
            .collect();
        let code = maps.iter().zip(&first).map(|(m, first)| code(m, *first)).collect();
        Numbers { maps, first, code }
    }

    pub(crate) fn module(&self, id: u64) -> Option<ModuleIndex> {
        self.maps.iter().position(|m| m.id == id).map(|i| ModuleIndex(i as u32))
    }

    /// The number in the trace of a function's number in processes.
    pub(crate) fn function(&self, number: u32) -> Option<FunctionIndex> {
        let after = self.maps.partition_point(|m| m.first_function <= number);
        let i = after.checked_sub(1)?;
        let index = number - self.maps[i].first_function;
        ((index as usize) < self.maps[i].functions.len()).then(|| self.first[i].plus(index))
    }

    /// The counts of edges; `counts` are by function and index in it.
    pub(crate) fn edge_rows(
        &self,
        counts: &HashMap<(FunctionIndex, u64), u64>,
        rows: &mut Vec<Counter>,
    ) {
        for (map, first) in self.maps.iter().zip(&self.first) {
            for (counted, function) in map.counted.iter().zip(first.on()) {
                let count = |k: usize| counts.get(&(function, k as u64)).copied().unwrap_or(0);
                if (0..counted.counters()).any(|k| count(k) != 0) {
                    counts::rows(function, counted, count, rows);
                }
            }
        }
    }

    pub(crate) fn tables(self, finish: &mut Finish) {
        for (i, (map, first)) in self.maps.into_iter().zip(self.first).enumerate() {
            let module = ModuleIndex(i as u32);
            finish.modules.push(fettle_trace::Module { id: module, ..map.module });
            finish.functions.extend(
                map.functions.into_iter().zip(first.on()).map(|(f, id)| fettle_trace::Function {
                    id,
                    module,
                    ..f
                }),
            );
            finish
                .skipped
                .extend(map.skipped.into_iter().map(|s| fettle_trace::Skipped { module, ..s }));
        }
    }
}
