//! The processes and threads of a trace, by their numbers in an exported one.

use fettle_trace::{Process, Thread, Trace};

use crate::hash::FastMap;
use crate::names::Names;

/// Who plays in a timeline: names of functions, threads, processes.
pub(crate) struct Cast {
    pub(crate) names: Names,
    threads: FastMap<u32, Thread>,
    pub(crate) processes: Vec<Process>,
}

impl Cast {
    pub(crate) fn read(trace: &Trace, demangle: bool, warnings: &mut Vec<String>) -> Cast {
        fn rows<T>(result: fettle_trace::Result<Vec<T>>, warnings: &mut Vec<String>) -> Vec<T> {
            result.unwrap_or_else(|error| {
                warnings.push(error.to_string());
                Vec::new()
            })
        }
        let functions = rows(trace.functions(), warnings);
        let modules = rows(trace.modules(), warnings);
        let threads = rows(trace.threads(), warnings);
        Cast {
            names: Names::new(&functions, &modules, demangle),
            threads: threads.into_iter().map(|thread| (thread.index, thread)).collect(),
            processes: rows(trace.processes(), warnings),
        }
    }

    /// A thread's row, or one made up for a thread that has none.
    pub(crate) fn thread(&self, index: u32) -> Thread {
        let unknown = || Thread { index, ..Thread::default() };
        self.threads.get(&index).cloned().unwrap_or_else(unknown)
    }

    /// A thread's name, never empty.
    pub(crate) fn thread_name(thread: &Thread) -> String {
        if thread.name.is_empty() {
            return format!("thread {}", thread.index);
        }
        crate::names::one_line(thread.name.clone())
    }
}
