//! Times from sampled calls.
//!
//! Of a function that is called often only some calls are timed, and of its callees other ones, so no
//! activation gives its own time without its callees'. But every sample gives its caller, by the return
//! address: the time of a function's callees is the sum over samples whose return address lies in it,
//! each weighted by the calls it stands for (`estimate.rs`).
//!
//! That is what own times are where nothing better is known: where the kernel samples threads' PCs, they
//! follow from that (`places.rs`).
//!
//! Before it stands for others, a sample is cleaned of what happened to it alone: the ticks that its
//! thread was preempted in, or was stopped for a signal in, and the cost of probes below it. Samples
//! come by their ends, so what probes below a sample took is a difference of sums, and so is the off-CPU
//! time.
//!
//! Where few calls take most of a function's time, whether one of them is sampled is chance. So now and
//! then a *checkpoint frame* is pushed on the call-stack mirror (`fettle_sample_exit` in
//! `runtime/agent`), and every call that was in progress then and goes on for long leaves a record at
//! its end. Long calls stand for themselves; only the others are estimated.

use std::collections::{HashMap, VecDeque};

use fettle_abi::block::{Accumulator, TICKS_PER_MARK};
use fettle_abi::record::CallRecord;
use fettle_types::{FunctionIndex, ModuleIndex, Pid};

use crate::cost::SampleCost;
use crate::estimate::{Estimate, Sample};
use crate::fit::{Known, Thread, Times, fit};
use crate::modules::Module;
use crate::perf::Place;
use crate::places::{Code, Places};
use crate::switches::Out;

/// Where a module's rewritten text lies in a process.
#[derive(Clone, Copy, Debug)]
struct Region {
    start: u64,
    end: u64,
    module: ModuleIndex,
}

/// What samples have given so far.
#[derive(Debug)]
pub struct Sampled {
    cost: SampleCost,
    regions: HashMap<Pid, Vec<Region>>,
    threads: HashMap<u32, ThreadSamples>,
}

/// What samples of one thread have given.
#[derive(Debug, Default)]
struct ThreadSamples {
    /// The first half of a sample whose second half was not there yet.
    half: Option<CallRecord>,
    /// Samples of times for which it is not known yet whether the thread ran.
    waiting: VecDeque<Timed>,
    waited: Past,
    preempted: Past,
    probes: Past,
    signals: Past,
    by_function: HashMap<FunctionIndex, Estimate>,
    /// Calls that code without probes has made: in which function they lie is found later.
    orphans: Vec<Unattributed>,
    /// The last long call of each function that was not timed: when it began, by its checkpoint frame,
    /// and ended.
    marks: HashMap<FunctionIndex, (u64, u64)>,
    places: Places,
}

/// A call of which it is not known yet which function with probes was the last to call anything.
#[derive(Clone, Copy, Debug)]
struct Unattributed {
    function: FunctionIndex,
    end: u64,
    sample: Sample,
}

/// So many are remembered: a thread's outermost functions have no caller.
const ORPHANS_MAX: usize = 4096;

/// A sample as it was taken.
#[derive(Clone, Copy, Debug)]
struct Timed {
    function: FunctionIndex,
    caller: Option<FunctionIndex>,
    start: u64,
    /// It was in progress then, which is certain.
    since: u64,
    ticks: u64,
    /// Calls that it stands for; 0 if only for itself.
    weight: u32,
}

/// So many calls a sample stands for at most: no code lies at such addresses.
const WEIGHT_MAX: u32 = 1 << 15;
/// A long call that was not timed is taken to have begun so long before its checkpoint frame: half of
/// the time between two such frames.
const BEFORE_MARK: u64 = TICKS_PER_MARK / 2;
/// Time-stamps in records have so many bits.
const TIME_MASK: u64 = (1 << 52) - 1;

impl Sampled {
    /// No sample yet. `cost` is what probes take.
    pub fn new(cost: SampleCost) -> Sampled {
        Sampled { cost, regions: HashMap::new(), threads: HashMap::new() }
    }

    /// Rewritten text of `module` lies at `start` in process `pid`.
    pub fn add_code(&mut self, pid: Pid, start: u64, len: u64, module: ModuleIndex) {
        let regions = self.regions.entry(pid).or_default();
        // What lay there was closed.
        regions.retain(|r| r.end <= start || start + len <= r.start);
        regions.push(Region { start, end: start + len, module });
    }

    /// Process `child` has the memory of `parent`.
    pub fn fork(&mut self, parent: Pid, child: Pid) {
        if let Some(regions) = self.regions.get(&parent).cloned() {
            self.regions.insert(child, regions);
        }
    }

    /// Process `pid` has another program now, or is gone.
    pub fn forget(&mut self, pid: Pid) {
        self.regions.remove(&pid);
    }

    /// A thread was off-CPU. What it waits for is a function's own; that others were given its processor
    /// is not.
    pub fn switched_out(&mut self, thread: u32, out: Out) {
        let samples = self.threads.entry(thread).or_default();
        // It was stopped for us to pass its signal on.
        let stopped = samples.signals.between(out.off & TIME_MASK, out.on & TIME_MASK) > 0;
        let alone = out.preempted || stopped;
        let past = if alone { &mut samples.preempted } else { &mut samples.waited };
        past.add(out.on & TIME_MASK, out.on.saturating_sub(out.off));
    }

    /// A thread is given a signal at this time.
    pub fn signalled(&mut self, thread: u32, tick: u64) {
        self.threads.entry(thread).or_default().signals.add(tick & TIME_MASK, 1);
    }

    /// Takes samples of a thread of process `pid`.
    pub fn feed(&mut self, thread: u32, pid: Pid, records: &[u8], modules: &[Module]) {
        let regions = self.regions.get(&pid).map_or(&[][..], |regions| regions);
        let samples = self.threads.entry(thread).or_default();
        samples.feed(records, |address| code_at(regions, address, modules).function());
    }

    /// Takes where a thread of process `pid` was.
    pub fn was_at(&mut self, thread: u32, pid: Pid, place: &Place, modules: &[Module]) {
        let regions = self.regions.get(&pid).map_or(&[][..], |regions| regions);
        let code_at = |address| code_at(regions, address, modules);
        self.threads.entry(thread).or_default().places.add(place, code_at);
    }

    /// Takes samples of a thread; `function_at` gives the function whose rewritten text is at an
    /// address.
    pub fn feed_with(
        &mut self,
        thread: u32,
        records: &[u8],
        function_at: impl Fn(u64) -> Option<FunctionIndex>,
    ) {
        self.threads.entry(thread).or_default().feed(records, function_at);
    }

    /// It is known of all threads when they ran, up to `tick`.
    pub fn settle(&mut self, tick: u64) {
        for samples in self.threads.values_mut() {
            samples.settle(&self.cost, Some(tick & TIME_MASK));
        }
    }

    /// What the samples of a thread that has ended say of its functions, given how often each was
    /// called, and for how many nanoseconds it ran, if that is known.
    pub fn times(
        &mut self,
        thread: u32,
        calls: &HashMap<FunctionIndex, u64>,
        cpu_ns: Option<u64>,
    ) -> HashMap<FunctionIndex, Times> {
        let Some(mut samples) = self.threads.remove(&thread) else { return HashMap::new() };
        samples.settle(&self.cost, None);
        let cpu = cpu_ns.map(|ns| ns as f64 / self.cost.ns_per_tick);
        let known = |(function, estimate): (FunctionIndex, Estimate)| {
            let calls = calls.get(&function).copied().unwrap_or(0);
            let known = Known {
                share: estimate.share(calls),
                calls: calls as f64,
                // A sample of the PC has what passing a probe takes, which reports take out.
                passed: calls as f64 * self.cost.passed,
                pc_samples: cpu.and_then(|cpu| Some(samples.places.share_of(function)? * cpu)),
            };
            (function, known)
        };
        let functions = samples.by_function.into_iter().map(known).collect();
        let off = samples.waited.sum() + samples.preempted.sum();
        // Where no switches are reported, nothing is known.
        fit(&functions, Thread { cpu, off: (off > 0).then_some(off as f64) })
    }
}

/// Calls of a function that are counted where they are sampled, with those since the last sample
/// (`fettle_sample_entry` in `runtime/agent`).
pub fn calls(a: &Accumulator) -> u64 {
    let (countdown, drawn) = (a.sampling as u32 as i32, (a.sampling >> 48) as i32);
    let since = drawn.saturating_sub(1).saturating_sub(countdown).clamp(0, drawn);
    a.calls.saturating_add(since as u64)
}

/// What is at `address`.
fn code_at(regions: &[Region], address: u64, modules: &[Module]) -> Code {
    let inside = |region: &&Region| region.start <= address && address < region.end;
    let Some(region) = regions.iter().find(inside) else { return Code::Other };
    let function = || {
        let module = modules.get(region.module.place())?;
        let offset = u32::try_from(address - region.start).ok()?;
        Some(module.first_function.plus(module.plan.function_at(offset)? as u32))
    };
    function().map_or(Code::Agent, Code::Function)
}

impl ThreadSamples {
    /// Takes pairs of a call record and its caller (`runtime/agent`).
    fn feed(&mut self, records: &[u8], function_at: impl Fn(u64) -> Option<FunctionIndex>) {
        for bytes in records.chunks_exact(size_of::<CallRecord>()) {
            let word = |at: usize| u64::from_ne_bytes(bytes[at..at + 8].try_into().expect("8"));
            let record = CallRecord { start_and_id_high: word(0), ticks_and_id_low: word(8) };
            let Some(call) = self.half.take() else {
                self.half = Some(record);
                continue;
            };
            let (return_address, weight) = (record.start_and_id_high, record.ticks());
            let Some(id) = call.id() else { continue };
            let caller = function_at(return_address);
            let (function, start, ticks) = (id.into(), call.start(), call.ticks());
            let timed = Timed { function, caller, start, since: start, ticks, weight: 0 };
            let timed = match u32::try_from(weight) {
                Ok(weight) if weight <= WEIGHT_MAX => Timed { weight, ..timed },
                // An address: it was long if that is its own.
                _ if function_at(weight) == Some(function) => self.by_mark(timed),
                _ => continue,
            };
            self.waiting.push_back(timed);
        }
    }

    /// A long call that was not timed. One that ended before, and is dated by the same checkpoint frame,
    /// was over when this one began.
    fn by_mark(&mut self, timed: Timed) -> Timed {
        let end = timed.start + timed.ticks;
        let last = self.marks.insert(timed.function, (timed.start, end));
        let begun = match last {
            Some((start, last_end)) if start == timed.start => last_end.min(end),
            _ => timed.start,
        };
        let since = begun.max(timed.start + BEFORE_MARK).min(end);
        Timed { start: begun, since, ticks: end - begun, ..timed }
    }

    /// Takes the samples that ended before `tick`; all if there is none.
    fn settle(&mut self, cost: &SampleCost, tick: Option<u64>) {
        while let Some(timed) = self.waiting.front().copied() {
            let end = (timed.start + timed.ticks) & TIME_MASK;
            if tick.is_some_and(|tick| end > tick) {
                return;
            }
            self.waiting.pop_front();
            let preempted = self.preempted.between(timed.start, end).min(timed.ticks);
            let waited = self.waited.between(timed.start, end).min(timed.ticks - preempted);
            let probes = self.probes.between(timed.start, end);
            let ticks = (timed.ticks - preempted - waited).saturating_sub(probes);
            let Timed { caller, weight, .. } = timed;
            let (busy, interrupted) = (probes > 0, self.signals.between(timed.start, end) > 0);
            let sample = Sample { ticks, waited, preempted, caller, weight, busy, interrupted };
            self.by_function.entry(timed.function).or_default().add(sample, cost.inner);
            // What stands for other calls as well may have made them another time.
            if weight <= 1 {
                self.adopt(&timed, cost.inner);
                if caller.is_none() && self.orphans.len() < ORPHANS_MAX {
                    self.orphans.push(Unattributed { function: timed.function, end, sample });
                }
            }
            // Every sample stands for calls below it that were not timed. A long call that was not
            // sampled costs an exit, which is half of a sample.
            let own = match weight {
                0 => cost.sampled / 2.0,
                _ => cost.sampled + f64::from(weight) * cost.passed,
            };
            self.probes.add(end, own.round() as u64);
        }
    }

    /// Calls by code without probes that ended while this one was in progress are within it.
    fn adopt(&mut self, timed: &Timed, inner: f64) {
        while let Some(unattributed) =
            self.orphans.pop_if(|unattributed| unattributed.end > timed.since)
        {
            let estimate = self.by_function.entry(unattributed.function).or_default();
            estimate.called_by(timed.function, &unattributed.sample, inner);
        }
    }
}

/// Sums over a thread's past, by time.
#[derive(Debug, Default)]
struct Past {
    /// Times, and what had come together by then.
    sums: Vec<(u64, u64)>,
}

impl Past {
    /// Times kept apart at most. Beyond that older ones are merged, two into one: samples that begin so
    /// long ago are long, and do not mind.
    const MOMENTS_MAX: usize = 1 << 16;

    fn add(&mut self, tick: u64, amount: u64) {
        let (last, sum) = self.sums.last().copied().unwrap_or_default();
        self.sums.push((tick.max(last), sum.saturating_add(amount)));
        if self.sums.len() >= Past::MOMENTS_MAX {
            let recent = self.sums.split_off(Past::MOMENTS_MAX / 2);
            self.sums = self.sums.drain(..).skip(1).step_by(2).collect();
            self.sums.extend(recent);
        }
    }

    /// All that came together.
    fn sum(&self) -> u64 {
        self.sums.last().map_or(0, |(_, sum)| *sum)
    }

    /// What came together after `start`, up to `end`.
    fn between(&self, start: u64, end: u64) -> u64 {
        let until = |tick| match self.sums.partition_point(|&(at, _)| at <= tick) {
            0 => 0,
            n => self.sums[n - 1].1,
        };
        until(end).saturating_sub(until(start))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALLER: FunctionIndex = FunctionIndex(1);
    const CALLEE: FunctionIndex = FunctionIndex(2);

    #[test]
    fn the_past_is_summed_and_thinned() {
        let mut past = Past::default();
        for tick in 1..=200_000 {
            past.add(tick * 10, 3);
        }
        assert!(past.sums.len() < Past::MOMENTS_MAX);
        assert_eq!(past.between(0, 2_000_000), 600_000);
        assert_eq!(past.between(1_999_000, 2_000_000), 300);
        // Long ago: right to a few of the times that are kept.
        let half = past.between(1_000_000, 2_000_000);
        assert!(half.abs_diff(300_000) < 300, "{half}");
    }

    #[test]
    fn preemption_and_probes_below_are_taken_out_of_samples() {
        let cost = SampleCost { inner: 10.0, sampled: 100.0, passed: 2.0, ns_per_tick: 0.5 };
        let mut sampled = Sampled::new(cost);
        sampled.switched_out(7, Out { off: 2_000, on: 5_000, preempted: true });
        let samples = sampled.threads.get_mut(&7).unwrap();
        // The caller calls from 1,500 to 5,100, of which 3,000 preempted; it stands for 64 calls.
        let timed = |function, caller, start, ticks, weight| Timed {
            function,
            caller,
            start,
            since: start,
            ticks,
            weight,
        };
        samples.waiting.push_back(timed(CALLEE, Some(CALLER), 1_500, 3_600, 64));
        samples.waiting.push_back(timed(CALLER, None, 1_000, 9_000, 1));
        let times = sampled.times(7, &HashMap::from([(CALLER, 1), (CALLEE, 64)]), None);
        // A sample has 10 of the probe's own in it; passing one takes 2.
        let callee = 64 * (600 - 10 + 2);
        assert_eq!((times[&CALLEE].total, times[&CALLEE].cpu_total), (callee + 3_000, callee));
        // Its own sample costs 100, and 64 calls at 2.
        assert_eq!(times[&CALLER].total, 9_000 - 100 - 128 - 10 + 2);
    }

    #[test]
    fn a_long_call_is_one_if_the_mark_lies_in_its_own_frame() {
        let long = |at: u64| [1_000 << 12, 500_000 << 12 | 2, 0x7000, at << 12 | 0xfff];
        let feed = |records: Vec<[u64; 4]>| {
            let mut samples = ThreadSamples::default();
            let bytes: Vec<u8> =
                records.concat().iter().flat_map(|word| word.to_ne_bytes()).collect();
            samples.feed(&bytes, |at| (0x10_0000..0x10_1000).contains(&at).then_some(CALLER));
            samples
                .waiting
                .iter()
                .map(|timed| (timed.function.get(), timed.weight))
                .collect::<Vec<_>>()
        };
        // In its own code, in another's, and a call that was timed.
        assert_eq!(feed(vec![long(0x10_0040), long(0x20_0000), long(0)]), [(1, 0), (1, 0)]);
        assert_eq!(feed(vec![long(64)]), [(1, 64)]);
    }
}
