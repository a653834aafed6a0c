//! The kernel's tracepoints, of any tracer, as the catalogue's events.
//!
//! ftrace, perf and LTTng record the same tracepoints under nearly the same names, with nearly the
//! same fields. What the catalogue knows becomes its events; everything else keeps its name.

use std::collections::HashMap;

use fettle_abi::events::Event;

use crate::error::Result;
use crate::sink::{At, Sink};
use crate::syscalls::args::Args;
use crate::syscalls::{Calls, name_of};
use crate::value::{Field, Value, find};

/// Translates tracepoints.
#[derive(Debug, Default)]
pub struct Tracepoints {
    /// System calls under way, and descriptors.
    pub calls: Calls,
    /// Where threads have faulted, until they do something else.
    faults: HashMap<u32, u64>,
    /// The trace has `sched_waking`; then `sched_wakeup` adds nothing.
    waking: bool,
    /// Flags of the calls that `task_newtask` reported, by child.
    children: HashMap<u32, bool>,
}

/// How many children are remembered whose fork is not reported.
const CHILDREN_MAX: usize = 1 << 16;

impl Tracepoints {
    /// Takes an event: its thread, its name (`sched_switch`, or `sched:sched_switch`), and its
    /// fields. `interrupt`: it happened in one.
    pub fn event(
        &mut self,
        sink: &mut Sink,
        mut at: At,
        full_name: &str,
        fields: &[Field<'_>],
        interrupt: bool,
    ) -> Result<()> {
        if at.pid == 0 {
            at.pid = sink.tasks.pid_of(at.tid);
        }
        let name = full_name.rsplit(':').next().unwrap_or(full_name);
        let number = |names: &[&str]| find(fields, names).and_then(Value::bits);
        match name {
            "sched_switch" => return self.switch(sink, at, fields),
            "sched_waking" | "sched_wakeup" => {
                self.waking |= name == "sched_waking";
                let Some(target) = number(&["pid", "tid"]) else {
                    return unclear(sink, at, full_name, fields);
                };
                if self.waking != (name == "sched_waking") {
                    return Ok(());
                }
                // An idle processor only wakes threads in interrupts.
                let interrupt = u64::from(interrupt || at.tid == 0);
                return sink.kernel(Event::Wakeup, at, &[u64::from(at.tid), target, interrupt]);
            }
            // A new thread is reported by its fork.
            "sched_wakeup_new" => return Ok(()),
            "block_rq_issue" | "block_rq_complete" => return block(sink, at, name, fields),
            _ => {}
        }
        if !interrupt {
            self.fault_is_over(sink, at)?;
        }
        if let Some((entry, call)) = call_of(name) {
            return self.call(sink, at, entry, call, fields);
        }
        let task = [u64::from(at.pid), u64::from(at.tid)];
        match name {
            "task_newtask" => {
                /// `CLONE_THREAD`.
                const THREAD: u64 = 0x1_0000;
                let flags = number(&["clone_flags"]).unwrap_or(0);
                if let Some(child) = number(&["pid", "tid"]) {
                    if self.children.len() >= CHILDREN_MAX {
                        self.children.clear();
                    }
                    self.children.insert(child as u32, flags & THREAD != 0);
                }
                Ok(())
            }
            "sched_process_fork" => {
                let Some(child) = number(&["child_tid"]).or_else(|| number(&["child_pid"])) else {
                    return unclear(sink, at, full_name, fields);
                };
                let thread = self.children.remove(&(child as u32)).unwrap_or(false);
                let reported = number(&["child_tid"]).and_then(|_| number(&["child_pid"]));
                let pid = reported.unwrap_or(if thread { u64::from(at.pid) } else { child });
                self.calls.fork(sink, at, pid as u32, child as u32)
            }
            "sched_process_exec" => {
                let path = match find(fields, &["filename"]) {
                    Some(Value::Text(path)) => path,
                    _ => "",
                };
                self.calls.exec(sink, at, path)
            }
            "sched_process_exit" => {
                let last = (at.pid == at.tid).then_some(None);
                self.calls.thread_exit(sink, at, last)
            }
            "signal_generate" => {
                /// The receiver ignores it, or has it already.
                const SENT: u64 = 0;
                if number(&["res", "result"]).unwrap_or(SENT) != SENT {
                    return Ok(());
                }
                match (number(&["pid", "tid"]), number(&["sig"])) {
                    (Some(target), Some(signal)) => {
                        sink.kernel(Event::Signal, at, &[task[1], target, signal])
                    }
                    _ => unclear(sink, at, full_name, fields),
                }
            }
            "signal_deliver" => match number(&["sig"]) {
                Some(signal) => {
                    sink.kernel(Event::SignalDelivered, at, &[task[0], task[1], signal])
                }
                None => unclear(sink, at, full_name, fields),
            },
            "page_fault_user" => match number(&["address"]) {
                Some(address) => {
                    self.faults.insert(at.tid, address);
                    sink.kernel(Event::PageFault, at, &[task[0], task[1], address])
                }
                None => unclear(sink, at, full_name, fields),
            },
            _ => sink.foreign(full_name, at, fields),
        }
    }

    /// No event says that a fault is over: the thread does something else.
    fn fault_is_over(&mut self, sink: &mut Sink, at: At) -> Result<()> {
        match self.faults.remove(&at.tid) {
            Some(address) => {
                let values = [u64::from(at.pid), u64::from(at.tid), address];
                sink.kernel(Event::PageFaultDone, at, &values)
            }
            None => Ok(()),
        }
    }

    fn switch(&mut self, sink: &mut Sink, at: At, fields: &[Field<'_>]) -> Result<()> {
        let number = |names: &[&str]| find(fields, names).and_then(Value::bits);
        let previous = number(&["prev_pid", "prev_tid"]);
        let next = number(&["next_pid", "next_tid"]);
        let (Some(previous), Some(next)) = (previous, next) else {
            return unclear(sink, at, "sched_switch", fields);
        };
        for (tid, name) in [(previous, "prev_comm"), (next, "next_comm")] {
            let name = match find(fields, &[name]) {
                Some(Value::Text(name)) => name,
                _ => "",
            };
            sink.tasks.seen(0, tid as u32, name, at.time_ns);
        }
        if previous != 0 {
            let runnable = match find(fields, &["prev_state"]) {
                Some(Value::Text(state)) => state.starts_with('R'),
                // The kernel's highest bit of a state says that the thread was preempted.
                Some(state) => {
                    state.bits().is_some_and(|bits| bits & 0xff == 0 || bits as i64 > 0xff)
                }
                None => false,
            };
            let at = At { pid: sink.tasks.pid_of(previous as u32), tid: previous as u32, ..at };
            sink.kernel(Event::SwitchOut, at, &[previous, u64::from(runnable)])?;
        }
        if next != 0 {
            let at = At { pid: sink.tasks.pid_of(next as u32), tid: next as u32, ..at };
            sink.kernel(Event::SwitchIn, at, &[next])?;
        }
        Ok(())
    }

    fn call(
        &mut self,
        sink: &mut Sink,
        at: At,
        entry: bool,
        call: &str,
        fields: &[Field<'_>],
    ) -> Result<()> {
        let number = |names: &[&str]| find(fields, names).and_then(Value::bits);
        // `raw_syscalls` give a number.
        let of_number = number(&["id", "NR"]).filter(|_| call.is_empty());
        if entry {
            let unknown;
            let name = match of_number {
                Some(number) => match name_of(number) {
                    Some(name) => name,
                    None => {
                        unknown = format!("syscall_{}", number as i64);
                        &unknown
                    }
                },
                None => call,
            };
            let args: Vec<Field<'_>> = fields
                .iter()
                .filter(|(name, _)| !matches!(*name, "id" | "NR" | "__syscall_nr"))
                .map(|(name, value)| match of_number.is_some() {
                    // By place.
                    true => ("", *value),
                    false => (*name, *value),
                })
                .collect();
            return self.calls.enter(sink, at, name, Args(&args));
        }
        match number(&["ret"]) {
            Some(result) => self.calls.exit(sink, at, result as i64, "", Args(fields)),
            None => unclear(sink, at, "sys_exit", fields),
        }
    }
}

/// Whether a tracepoint is of a system call: its beginning, and the call's name if it says so.
fn call_of(name: &str) -> Option<(bool, &str)> {
    match name {
        "sys_enter" => return Some((true, "")),
        "sys_exit" => return Some((false, "")),
        _ => {}
    }
    let entry = name.strip_prefix("sys_enter_").or_else(|| name.strip_prefix("syscall_entry_"));
    let exit = name.strip_prefix("sys_exit_").or_else(|| name.strip_prefix("syscall_exit_"));
    let kernel_name = |call| match call {
        // As the tracepoints have it, and as the table has it.
        "newstat" => "stat",
        "newfstat" => "fstat",
        "newlstat" => "lstat",
        "newfstatat" => "newfstatat",
        "sendfile64" => "sendfile",
        call => call,
    };
    let entry = entry.map(|call| (true, kernel_name(call)));
    entry.or_else(|| exit.map(|call| (false, kernel_name(call))))
}

fn block(sink: &mut Sink, at: At, name: &str, fields: &[Field<'_>]) -> Result<()> {
    let number = |names: &[&str]| find(fields, names).and_then(Value::bits);
    let (Some(device), Some(sector)) = (number(&["dev"]), number(&["sector"])) else {
        return unclear(sink, at, name, fields);
    };
    if name == "block_rq_complete" {
        return sink.kernel(Event::BlockComplete, at, &[device, sector]);
    }
    let sectors = number(&["nr_sector"]).unwrap_or(0);
    let bytes = number(&["bytes"]).filter(|bytes| *bytes > 0).unwrap_or(sectors * 512);
    let writes = match find(fields, &["rwbs"]) {
        Some(Value::Text(what)) => what.contains('W'),
        // LTTng's bits: the lowest is that it writes.
        Some(what) => what.bits().is_some_and(|bits| bits & 1 != 0),
        None => false,
    };
    let values = [u64::from(at.tid), device, sector, bytes, u64::from(writes)];
    sink.kernel(Event::BlockIssue, at, &values)
}

/// An event of the catalogue's without what it takes: it is kept under its own name.
fn unclear(sink: &mut Sink, at: At, name: &str, fields: &[Field<'_>]) -> Result<()> {
    sink.lose(format!("`{name}` without the usual fields: kept as it is"), 1);
    sink.foreign(name, at, fields)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tracepoints_of_calls_are_known_by_any_name() {
        assert_eq!(call_of("sys_enter"), Some((true, "")));
        assert_eq!(call_of("sys_enter_openat"), Some((true, "openat")));
        assert_eq!(call_of("syscall_exit_read"), Some((false, "read")));
        assert_eq!(call_of("sys_enter_newstat"), Some((true, "stat")));
        assert_eq!(call_of("sched_switch"), None);
    }
}
