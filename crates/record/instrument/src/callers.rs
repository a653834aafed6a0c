//! The rewritten text that an address of a process is in: return addresses in samples identify
//! callers.

use fettle_types::{FunctionIndex, LiveAddr, LoadBias};

use crate::note::Note;
use crate::numbers::{Code, Numbers};

/// The rewritten text in one process.
#[derive(Debug)]
pub struct Callers<'a> {
    /// What the loader added to a module's addresses, and its rewritten text in order of address.
    modules: Vec<(LoadBias, &'a [Code])>,
}

impl<'a> Callers<'a> {
    /// The rewritten text in process `pid` that began at `process_tsc`. A child of a fork has its
    /// parent's modules.
    pub fn new(notes: &[Note], numbers: &'a Numbers, pid: u32, process_tsc: u64) -> Callers<'a> {
        let mut modules: Vec<(LoadBias, &[Code])> = Vec::new();
        let mut add = |note: &Note| {
            if let Some(i) = numbers.maps.iter().position(|m| m.id == note.map_id) {
                modules.push((note.bias, &numbers.code[i]));
            }
        };
        // The program that the process ran when the thread began comes first: a later one may have
        // had other modules at the same addresses.
        notes.iter().filter(|n| n.pid == pid && n.process_tsc == process_tsc).for_each(&mut add);
        let mut line = vec![pid];
        while let Some(pid) = line.last().copied() {
            notes.iter().filter(|n| n.pid == pid).for_each(&mut add);
            let parent = notes.iter().find(|n| n.pid == pid).map(|n| n.parent);
            match parent.filter(|parent| !line.contains(parent)) {
                Some(parent) => line.push(parent),
                None => break,
            }
        }
        Callers { modules }
    }

    /// The number in the trace of the function whose rewritten text is at `address`.
    pub fn function_at(&self, address: u64) -> Option<FunctionIndex> {
        self.modules.iter().find_map(|(bias, code)| {
            let at = (LiveAddr(address) - *bias).0;
            let i = code.partition_point(|c| c.start <= at).checked_sub(1)?;
            // A return address may be the first byte after a function that ends with a call.
            (at - code[i].start <= code[i].size).then_some(code[i].function)
        })
    }
}
