//! The report of `fettle locks` from a trace that has every use of a lock as an event: of a recording with `--locks`, of
//! an import, or of a program that reports its own.

use std::collections::HashMap;

use fettle_abi::locking::{Operation, PROBED};
use fettle_locks::classes::Kind;
use fettle_locks::events::{Events, FIRST_PLACE, Use};
use fettle_locks::{Names, Place, Report};
use fettle_trace::Trace;

use super::analysis::Wanted;
use super::each_event;
use crate::error::Result;
use crate::session::Context;

const EVENTS: [Wanted; 7] = [
    ("lock_wait", &["pid", "tid", "lock"]),
    ("lock_acquired", &["pid", "tid", "lock"]),
    ("lock_released", &["pid", "tid", "lock"]),
    ("lock_given_up", &["pid", "tid", "lock"]),
    ("lock_made", &["pid", "tid", "lock", "kind", "name"]),
    ("call", &["pid", "tid", "function", "depth"]),
    ("call_end", &["pid", "tid", "function", "depth"]),
];

/// What the report says, and what could not be read.
pub struct Contention {
    /// The report.
    pub report: Report,
    /// One sentence each.
    pub problems: Vec<String>,
}

/// Whether a trace has such events.
pub fn has_contention(trace: &Trace) -> Result<bool> {
    let (kinds, _) = trace.event_kinds()?;
    if kinds.iter().any(|kind| kind.name == "lock_acquired" && kind.rows > 0) {
        return Ok(true);
    }
    let functions = crate::calls::functions_with_arguments(trace)?;
    Ok(functions.values().any(|name| fettle_abi::locks::named(name).is_some()))
}

/// Makes the report; nothing where the trace has no such events. `variable` names what lies at an address of a process.
///
/// # Errors
///
/// Where the trace cannot be read.
pub fn contention(
    trace: &Trace,
    variable: &dyn Fn(u32, u64) -> Option<String>,
) -> Result<Option<Contention>> {
    if !has_contention(trace)? {
        return Ok(None);
    }
    let threads = trace.threads()?;
    let finish = |mut uses: Uses, context: &Context<'_>| {
        let names = EventNames {
            places: uses.places.iter().map(|code| place(context, *code)).collect(),
            made: uses.made.iter().map(|(lock, made)| (*lock, text(context, made.name))).collect(),
            variable,
            bare: uses.bare(),
        };
        for thread in &threads {
            uses.events.lived(thread.pid, thread.tid, thread.start_ns, thread.end_ns);
        }
        let mut added = uses.events.finish();
        let names_of: HashMap<(u32, u32), &str> =
            threads.iter().map(|thread| ((thread.pid, thread.tid), thread.name.as_str())).collect();
        for table in &mut added.tables {
            table.name = names_of.get(&(table.pid, table.tid)).copied().unwrap_or_default().into();
        }
        added.report(&names)
    };
    let (report, problems) = each_event(trace, &EVENTS, Uses::default(), &Uses::take, finish)?;
    Ok(Some(Contention { report, problems }))
}

fn text(context: &Context<'_>, code: u64) -> String {
    context.strings.of_value(code).to_owned()
}

fn place(context: &Context<'_>, function: Option<u64>) -> Place {
    let function = function.map_or_else(|| "(unknown)".to_owned(), |code| text(context, code));
    Place { function, ..Place::default() }
}

#[derive(Clone, Copy)]
struct Made {
    name: u64,
    kind: Operation,
}

#[derive(Default)]
struct Uses {
    events: Events,
    /// Functions that the places' numbers stand for.
    places: Vec<Option<u64>>,
    by_function: HashMap<Option<u64>, u64>,
    /// Calls that are open, by thread, outermost first.
    open: HashMap<u64, Vec<u64>>,
    /// What functions do with locks, by the code of their name; nothing for others.
    operations: HashMap<u64, Option<Operation>>,
    made: HashMap<(u32, u64), Made>,
}

impl Uses {
    fn take(&mut self, which: usize, ns: u64, values: &[u64], context: &Context<'_>) {
        let (pid, tid) = (values[0] as u32, values[1] as u32);
        match which {
            4 => {
                let kind = match context.strings.of_value(values[3]) {
                    "spin" => Operation::SpinLock,
                    "rwlock" => Operation::WriteLock,
                    "semaphore" => Operation::SemWait,
                    _ => Operation::MutexLock,
                };
                self.events.made(pid, values[2]);
                self.made.insert((pid, values[2]), Made { name: values[4], kind });
            }
            5 => {
                let open = self.open.entry(values[1]).or_default();
                open.resize(values[3] as usize, 0);
                open.push(values[2]);
            }
            6 => {
                if let Some(open) = self.open.get_mut(&values[1]) {
                    open.truncate(values[3] as usize);
                }
            }
            _ => {
                let (place, operation) = self.place(tid, context);
                let made = self.made.get(&(pid, values[2])).map(|made| made.kind);
                let operation = operation.or(made).unwrap_or(Operation::MutexLock);
                let of = Use { ns, pid, tid, lock: values[2], place, operation };
                match which {
                    0 => self.events.wait(of),
                    1 => self.events.acquired(of),
                    2 => self.events.released(of),
                    _ => self.events.given_up(of),
                }
            }
        }
    }

    /// Whether no place is known but functions of locks.
    fn bare(&self) -> bool {
        let is_lock = |code: u64| matches!(self.operations.get(&code), Some(Some(_)));
        self.places.iter().all(|place| place.is_none_or(is_lock))
    }

    /// The innermost call of a thread that is none of a lock's own function, or else that; and what that function does.
    fn place(&mut self, tid: u32, context: &Context<'_>) -> (u64, Option<Operation>) {
        let none = Vec::new();
        let open = self.open.get(&u64::from(tid)).unwrap_or(&none);
        let mut operation = None;
        let mut function = open.last().copied();
        for code in open.iter().rev() {
            function = Some(*code);
            let name = || operation_of(context.strings.of_value(*code));
            match self.operations.entry(*code).or_insert_with(name) {
                Some(known) => operation = operation.or(Some(*known)),
                None => break,
            }
        }
        let next = FIRST_PLACE + self.places.len() as u64;
        let place = *self.by_function.entry(function).or_insert(next);
        if place == next {
            self.places.push(function);
        }
        (place, operation)
    }
}

/// What a function of this name does with a lock; a wait for a condition takes a mutex again.
fn operation_of(name: &str) -> Option<Operation> {
    let function = fettle_abi::locks::named(name)?.name();
    let (_, operation) = PROBED.iter().find(|(known, _)| *known == function)?;
    Some(match Kind::of(*operation) {
        Some(Kind::Condition) => Operation::MutexLock,
        _ => *operation,
    })
}

struct EventNames<'a> {
    places: Vec<Place>,
    made: HashMap<(u32, u64), String>,
    variable: &'a dyn Fn(u32, u64) -> Option<String>,
    bare: bool,
}

impl Names for EventNames<'_> {
    fn place(&self, _: u32, place: u64) -> Place {
        let at = place.checked_sub(FIRST_PLACE).and_then(|place| self.places.get(place as usize));
        at.cloned().unwrap_or_default()
    }

    fn variable(&self, pid: u32, address: u64) -> Option<String> {
        let made = self.made.get(&(pid, address)).filter(|name| !name.is_empty()).cloned();
        let known = made.or_else(|| (self.variable)(pid, address));
        // Where only the locks' own functions were recorded, nothing says which locks are of one sort.
        known.or_else(|| self.bare.then(|| format!("{address:#x}")))
    }

    fn system_call(&self, number: u32) -> String {
        format!("system call {number}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_of_locks_are_told_by_name() {
        assert_eq!(operation_of("__pthread_rwlock_rdlock@@GLIBC_2.34"), Some(Operation::ReadLock));
        assert_eq!(operation_of("pthread_cond_wait"), Some(Operation::MutexLock));
        assert_eq!(operation_of("read"), None);
    }
}
