//! Self time from sampled calls.
//!
//! Of a function that is called often only some calls are timed, and of its callees other ones,
//! so no activation tells its own time without its callees'. But every sample tells its caller,
//! by the return address: the time of a function's callees is the sum over samples whose return
//! address lies in it, each weighted by the calls it stands for.

use std::collections::HashMap;

use fettle_abi::record::CallRecord;

use crate::modules::Module;
use crate::switches::Out;

/// Where a module's new code lies in a process.
#[derive(Clone, Copy, Debug)]
struct Region {
    start: u64,
    end: u64,
    module: usize,
}

/// What samples told so far.
#[derive(Debug, Default)]
pub struct Sampled {
    regions: HashMap<i32, Vec<Region>>,
    /// Ticks in callees, by thread and function number.
    in_callees: HashMap<(u32, u32), u64>,
    /// First halves of samples whose second half was not there yet, by thread.
    halves: HashMap<u32, CallRecord>,
}

impl Sampled {
    /// New code of `module` lies at `start` in process `pid`.
    pub fn add_code(&mut self, pid: i32, start: u64, len: u64, module: usize) {
        self.regions.entry(pid).or_default().push(Region { start, end: start + len, module });
    }

    /// Process `child` has the memory of `parent`.
    pub fn fork(&mut self, parent: i32, child: i32) {
        if let Some(regions) = self.regions.get(&parent).cloned() {
            self.regions.insert(child, regions);
        }
    }

    /// Process `pid` has another program now, or is gone.
    pub fn forget(&mut self, pid: i32) {
        self.regions.remove(&pid);
    }

    /// A thread was off the processor.
    pub fn switched_out(&mut self, _thread: u32, _out: Out) {}

    /// Takes samples of a thread: pairs of a call record and its caller (`runtime/agent`).
    pub fn feed(&mut self, thread: u32, pid: i32, records: &[u8], modules: &[Module]) {
        for bytes in records.chunks_exact(size_of::<CallRecord>()) {
            let word = |at: usize| u64::from_ne_bytes(bytes[at..at + 8].try_into().expect("8"));
            let record = CallRecord { start_and_id_high: word(0), ticks_and_id_low: word(8) };
            let Some(call) = self.halves.remove(&thread) else {
                self.halves.insert(thread, record);
                continue;
            };
            let (return_address, weight) = (record.start_and_id_high, record.ticks());
            if let Some(caller) = self.function_at(pid, return_address, modules) {
                let ticks = call.ticks().saturating_mul(weight);
                let sum = self.in_callees.entry((thread, caller)).or_default();
                *sum = sum.saturating_add(ticks);
            }
        }
    }

    /// Ticks that `function` spent in probed callees, in `thread`.
    pub fn in_callees(&self, thread: u32, function: u32) -> u64 {
        self.in_callees.get(&(thread, function)).copied().unwrap_or(0)
    }

    /// The number of the function whose new code is at `address`.
    fn function_at(&self, pid: i32, address: u64, modules: &[Module]) -> Option<u32> {
        let region =
            self.regions.get(&pid)?.iter().find(|r| r.start <= address && address < r.end)?;
        let module = modules.get(region.module)?;
        let offset = u32::try_from(address - region.start).ok()?;
        let functions = &module.plan.functions;
        let i = functions.partition_point(|f| f.text_offset <= offset).checked_sub(1)?;
        // A return address may be the first byte after a function that ends with a call.
        let inside = offset <= functions[i].text_offset + functions[i].text_size;
        inside.then_some(module.first_function + i as u32)
    }
}
