//! Locks that threads add up in their slots: which functions are probed for that, and what is read
//! of each thread's table when it ends.

use std::collections::{HashMap, HashSet};

use fettle_abi::locking::{Convoy, MUSL, Operation, PROBED};
use fettle_code::Mode;
use fettle_demangle::demangle;
use fettle_image::{Image, LinkAddr, unversioned};
use fettle_lift::{Exit, Function};
use fettle_live::Mapping;
use fettle_trace::TickConverter;
use fettle_types::Pid;

pub use fettle_types::ThreadTable;

use crate::select::{Pattern, glob};

/// What came of a recording of locks.
#[derive(Clone, Debug, Default)]
pub struct Locking {
    /// What threads left.
    pub threads: Vec<ThreadTable>,
    /// Locks that went from thread to thread while others waited.
    pub convoys: Vec<Convoy>,
    /// What lay where in each process, when it was last seen.
    pub maps: HashMap<u32, Vec<Mapping>>,
    /// Length of the recording in ticks.
    pub ticks: u64,
    /// The same in nanoseconds.
    pub duration_ns: u64,
    /// Functions of locks that have probes.
    pub functions: u64,
}

impl Locking {
    /// With its length in nanoseconds.
    pub(crate) fn timed(self, clock: TickConverter) -> Locking {
        Locking { duration_ns: clock.duration_ns(self.ticks), ..self }
    }

    /// As [`Locking::map`], where nothing is known of that process yet: it may end before anything else is asked.
    pub(crate) fn map_first(&mut self, pid: Pid) {
        if !self.maps.contains_key(&pid.unsigned()) {
            self.map(pid);
        }
    }

    /// Takes down what lies where in a process, if that can still be read.
    pub(crate) fn map(&mut self, pid: Pid) {
        let Ok(maps) = fettle_live::maps_of(pid) else { return };
        if !maps.is_empty() {
            self.maps.insert(pid.unsigned(), maps);
        }
    }
}

/// Patterns for the functions that are probed.
pub fn patterns() -> Vec<Pattern> {
    let plain = PROBED.iter().map(|(name, _)| Pattern::Name(as_demangled(name)));
    let inner = PROBED.iter().filter(|(name, _)| !name.contains("::"));
    plain.chain(inner.map(|(name, _)| Pattern::Name(format!("__{name}")))).collect()
}

/// The pattern as demanglers may write the name: Rust's methods are `<Type>::method` or `Type::method`.
fn as_demangled(pattern: &str) -> String {
    match pattern.rsplit_once("::") {
        Some((before, method)) => format!("*{before}*::{method}"),
        None => pattern.to_owned(),
    }
}

/// Libraries in which they are looked for.
pub fn libraries() -> Vec<String> {
    ["libc.so*", "libpthread.so*", "libpthread-*.so", "libabsl_synchronization.so*"]
        .map(str::to_owned)
        .into()
}

/// The number of what the function at `entry` does; 0 if it is none of locks. All names that it has
/// count: C libraries have functions that do the same at one address.
pub fn operation(image: &Image, entry: LinkAddr, name: Option<&str>) -> u8 {
    let symbols = image.symbols_at(entry).iter().map(|symbol| symbol.name.as_str());
    let names: Vec<(&str, String)> = name
        .into_iter()
        .chain(symbols)
        .map(|name| (unversioned(name).trim_start_matches('_'), demangle(name)))
        .collect();
    let matches = |pattern: &str| {
        let wanted = as_demangled(pattern);
        names.iter().any(|(plain, readable)| *plain == pattern || glob(&wanted, readable))
    };
    let found = PROBED.iter().find(|(pattern, _)| matches(pattern));
    found.map_or(0, |(pattern, operation)| {
        let musl = !pattern.contains("::") && is_musl(image);
        *operation as u8 | if musl { MUSL } else { 0 }
    })
}

/// Functions that those which wait for locks go on in, by a jump at their end: a call of the one returns from the
/// other, whose exit needs a probe. None where locks are not counted.
pub fn goes_on_in(mode: Mode, image: &Image, functions: &[Function]) -> HashSet<LinkAddr> {
    use Operation as O;
    let mut found = HashSet::new();
    if mode != Mode::Locks {
        return found;
    }
    let answers = |f: &&Function| {
        let code = operation(image, f.entry, f.name.as_deref()) & !MUSL;
        let silent = [
            O::MutexUnlock,
            O::RwUnlock,
            O::SpinUnlock,
            O::SemPost,
            O::Init,
            O::Destroy,
            O::CondSignal,
        ];
        Operation::numbered(code.into()).is_some_and(|operation| !silent.contains(&operation))
    };
    let by_entry: HashMap<LinkAddr, &Function> = functions.iter().map(|f| (f.entry, f)).collect();
    let mut open: Vec<&Function> = functions.iter().filter(answers).collect();
    while let Some(function) = open.pop() {
        for block in &function.blocks {
            if let Some(Exit::TailJump(to) | Exit::TailBranch(to)) = block.exit
                && let Some(next) = by_entry.get(&to)
                && found.insert(to)
            {
                open.push(next);
            }
        }
    }
    found
}

/// Whether the C library in `image` is musl, which has system calls with cancellation in assembly.
fn is_musl(image: &Image) -> bool {
    image.symbols().iter().any(|symbol| symbol.name == "__syscall_cp_c")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn methods_are_known_in_either_spelling() {
        let pattern = as_demangled("std::sys::*mutex::futex::Mutex::lock_contended*");
        assert!(glob(&pattern, "<std::sys::sync::mutex::futex::Mutex>::lock_contended"));
        assert!(glob(&pattern, "std::sys::sync::mutex::futex::Mutex::lock_contended"));
        assert!(!glob(&pattern, "std::sys::sync::mutex::futex::Mutex::lock"));
        assert_eq!(as_demangled("pthread_mutex_lock"), "pthread_mutex_lock");
    }
}
