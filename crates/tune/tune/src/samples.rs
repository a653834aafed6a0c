//! What runs in a process, from samples of its threads' program counters instead of counters:
//! nothing is patched for it, and it costs a fortieth of the process's time at most.
//!
//! Samples contain less. Code that seldom runs is not seen, edges are inferred from blocks
//! (`fettle_place::samples`), and targets of indirect calls are not known.

use std::collections::{BTreeMap, HashSet};
use std::time::{Duration, Instant};

use fettle_image::LinkAddr;
use fettle_lift::BlockId;
use fettle_live::Process;
use fettle_place::samples;
use fettle_record::Selection;
use fettle_record::perf::{PcSamples, Rings, SwitchRecord};
use fettle_types::Pid;

use crate::count::{self, Profile};
use crate::error::TuneError;
use crate::group::ProcessGroup;
use crate::module::{self, Module};
use crate::profile::ByFunction;
use crate::stop::Stop;
use crate::target::Target;

/// How often the kernel's samples are read.
const TAKEN: Duration = Duration::from_millis(100);
/// A thread at work runs roughly so many instructions a nanosecond: it scales all counts, and no
/// layout depends on it.
const INSNS_PER_NS: u64 = 2;
/// With fewer samples in the code of all modules there is no profile.
const FEWEST: u64 = 100;

/// Samples for `time` the threads of those processes of a process group that use most CPU time, and
/// of the children that they fork.
///
/// # Errors
///
/// When the kernel gives no samples, when there were too few, or when it is interrupted.
pub fn sample(
    (target, process_group): (&Target<'_>, &ProcessGroup<'_>),
    modules: &[Module],
    selection: &Selection,
    time: Duration,
    stop: Stop<'_>,
) -> Result<Profile, TuneError> {
    let pid = target.process.pid();
    let unfit = |why: String| TuneError::Unfit { pid, why };
    let pc_samples = PcSamples::affordable().ok_or_else(|| {
        unfit(
            "the kernel does not tell where its threads are (kernel.perf_event_paranoid above 2)"
                .into(),
        )
    })?;
    let pc_samples = pc_samples.of_own_code();
    let workers = count::workers(process_group, stop)?;
    let threads = process_group.threads_of(&workers);
    let mut rings = Rings::of_places(&threads, pc_samples).map_err(|error| {
        unfit(format!("the kernel does not tell where its threads are: {error}"))
    })?;
    let mut tally = Tally::new(modules, selection, process_group);
    let end = Instant::now() + time;
    while Instant::now() < end {
        stop.wait(pid, TAKEN.min(end.saturating_duration_since(Instant::now())))?;
        rings.drain(|reported| {
            if let SwitchRecord::Place(place) = reported {
                tally.take(place.pid, place.instruction);
            }
        });
    }
    let profile = tally.profile(modules, pc_samples.period_ns() * INSNS_PER_NS);
    let (seen, here) = profile.pc_samples.unwrap_or_default();
    if here < FEWEST {
        return Err(unfit(format!(
            "its threads were seen at work {seen} times, {here} of them in code that can be laid out, \
             which is too little: give it --time, or count"
        )));
    }
    Ok(Profile { processes: workers.len(), ..profile })
}

/// A block in a process.
struct Placed {
    start: u64,
    end: u64,
    module: usize,
    function: usize,
    block: BlockId,
    pc_samples: u64,
}

/// Samples of functions of a module, by block.
type ByBlock = BTreeMap<usize, Vec<u64>>;

/// The samples so far.
struct Tally<'a> {
    process_group: &'a ProcessGroup<'a>,
    /// Processes that have the process group's code at its addresses, and processes that have not.
    known: (HashSet<Pid>, HashSet<Pid>),
    /// In order of address.
    blocks: Vec<Placed>,
    seen: u64,
}

impl<'a> Tally<'a> {
    fn new(
        modules: &[Module],
        selection: &Selection,
        process_group: &'a ProcessGroup<'a>,
    ) -> Tally<'a> {
        let mut blocks = Vec::new();
        for (m, module) in modules.iter().enumerate() {
            let wants = module::wanted(&module.image, selection);
            let live = |at: LinkAddr| (at + module.loaded.bias).0;
            let functions = module.lifted.functions.iter().enumerate();
            for (f, function) in functions.filter(|(_, function)| wants(function)) {
                blocks.extend(function.blocks.iter().enumerate().map(|(b, block)| {
                    let last = &function.insns[block.insns.end as usize - 1];
                    Placed {
                        start: live(block.start),
                        end: live(LinkAddr(last.next_ip())),
                        module: m,
                        function: f,
                        block: BlockId(b as u32),
                        pc_samples: 0,
                    }
                }));
            }
        }
        blocks.sort_unstable_by_key(|block| block.start);
        let known = process_group.members().map(Process::pid).collect();
        Tally { process_group, known: (known, HashSet::new()), blocks, seen: 0 }
    }

    /// Adds a sample of a thread.
    fn take(&mut self, pid: Pid, at: u64) {
        if !self.is_known(pid) {
            return;
        }
        self.seen += 1;
        let next = self.blocks.partition_point(|block| block.start <= at);
        if let Some(block) = self.blocks[..next].last_mut().filter(|block| at < block.end) {
            block.pc_samples += 1;
        }
    }

    /// Whether a process runs the process group's code; one that it has forked and that runs another program
    /// does not.
    fn is_known(&mut self, pid: Pid) -> bool {
        let (members, others) = &mut self.known;
        if !members.contains(&pid) && !others.contains(&pid) {
            members.extend(self.process_group.all().iter().map(|member| member.pid));
            if !members.contains(&pid) {
                others.insert(pid);
            }
        }
        members.contains(&pid)
    }

    /// The counts that the samples stand for, each of so many instructions.
    fn profile(&self, modules: &[Module], insns: u64) -> Profile {
        let mut seen: Vec<ByBlock> = modules.iter().map(|_| ByBlock::new()).collect();
        let mut here = 0;
        for block in self.blocks.iter().filter(|block| block.pc_samples > 0) {
            let function = &modules[block.module].lifted.functions[block.function];
            let none = || vec![0; function.blocks.len()];
            let pc_samples = seen[block.module].entry(block.function).or_insert_with(none);
            pc_samples[block.block.index()] += block.pc_samples;
            here += block.pc_samples;
        }
        let by_function = |(module, seen): (&Module, ByBlock)| {
            let counts = |(f, pc_samples): (usize, Vec<u64>)| {
                let function = &module.lifted.functions[f];
                (function.entry, samples::counts(function, &pc_samples, insns))
            };
            seen.into_iter().map(counts).collect::<ByFunction>()
        };
        let modules: Vec<ByFunction> = modules.iter().zip(seen).map(by_function).collect();
        let counts = modules.iter().flat_map(|module| module.values());
        let events = counts.flat_map(|counts| counts.edges.values()).sum();
        Profile { modules, events, pc_samples: Some((self.seen, here)), ..Profile::default() }
    }
}
