//! Where counters stand.
//!
//! A counter is one instruction, `incq %gs:…`, which no interrupt and no other processor can divide. It
//! changes the flags, so it stands where a block does not need them: before the first instruction that
//! finds them dead, as long as nothing before that may leave the block. Where there is no such place it
//! stands between `pushfq` and `popfq`.

use fettle_isa::Insn;
use fettle_kernel_image::orc::Base;
use fettle_kernel_lift::flags::{Callees, Flags};
use fettle_kernel_lift::step::Step;
use fettle_kernel_lift::{End, KernelFunction, Lifter, Reason};
use fettle_kernel_plan::OpenCounters;
use fettle_lift::BlockId;
use fettle_lift::edges::{EdgeGraph, Place};
use rustc_hash::FxHashMap;

/// What rewritten text counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counting {
    /// Nothing.
    Off,
    /// Calls alone: one counter at each entry.
    Calls,
    /// Each block.
    Blocks,
    /// Edges outside of a spanning tree: all others follow from them.
    Edges,
    /// Calls and their ends, and the time between.
    Times,
}

/// What a counter's value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// Executions of this place.
    Executions(Place),
    /// Calls that began, in [`Counting::Times`].
    Begun,
    /// Calls that ended.
    Ended,
    /// Calls that a thread was deoptimised in: their time counts until then. No instruction
    /// counts them.
    Deoptimised,
    /// Ticks of the time-stamp counter at all ends, less those at all begins, modulo 2^64. So it is the time
    /// of all calls, as soon as each has ended; no call needs a place of its own for it.
    Ticks,
    /// The same in virtual time, which stops while a thread does not run, and while an interrupt has its
    /// processor.
    VirtualTicks,
}

/// Where in a function time is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Clock {
    /// Number of the counter of begins or ends.
    pub count: u32,
    /// Number of the counter of ticks; that of virtual ticks.
    pub ticks: [u32; 2],
    /// A call ends here.
    pub ends: bool,
    /// The flags have to be put back.
    pub saves: bool,
}

/// `sti`: the instruction behind it is not interrupted.
const ALLOW_INTERRUPTS: u8 = 0xfb;
/// `mov` to a segment register; behind one to `ss` it is the same. The register's number is in the second
/// byte.
const LOAD_SEGMENT: u8 = 0x8e;
const STACK_SEGMENT: u8 = 2;
/// Numbers of the model-specific registers `GS_BASE` and `KERNEL_GS_BASE`, as bytes of an instruction.
const GS_BASES: [[u8; 4]; 2] = [[0x01, 0x01, 0x00, 0xc0], [0x02, 0x01, 0x00, 0xc0]];

/// Where in a block a counter stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CounterSite {
    /// Before this instruction; behind the block's last if it is the one after that.
    pub insn: u32,
    /// The flags have to be put back.
    pub saves: bool,
}

/// The counters of one function.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    meanings: Vec<Meaning>,
    /// By block: number from the function's first, and where.
    blocks: FxHashMap<BlockId, (u32, CounterSite)>,
    /// By edge between blocks, or out of the function from a block: the number, and whether the flags
    /// have to be put back.
    between: FxHashMap<(BlockId, Option<BlockId>), (u32, bool)>,
    /// Where calls begin: before this instruction of the entry block, and whether the flags have to be put
    /// back.
    begin: Option<CounterSite>,
    /// Blocks at whose last instruction calls end, and whether the flags have to be put back.
    ends: FxHashMap<BlockId, bool>,
    first: u32,
}

impl Meaning {
    /// The counters of a function whose time is taken, in order.
    const OF_TIMES: [Meaning; 5] = [
        Meaning::Begun,
        Meaning::Ended,
        Meaning::Deoptimised,
        Meaning::Ticks,
        Meaning::VirtualTicks,
    ];

    /// The place whose executions it is.
    pub fn place(self) -> Option<Place> {
        match self {
            Meaning::Executions(place) => Some(place),
            Meaning::Begun
            | Meaning::Ended
            | Meaning::Deoptimised
            | Meaning::Ticks
            | Meaning::VirtualTicks => None,
        }
    }
}

impl Counters {
    /// What they count, in order.
    pub fn meanings(&self) -> &[Meaning] {
        &self.meanings
    }

    /// The function's counters are numbered from here on.
    pub fn number_from(&mut self, first: u32) {
        self.first = first;
    }

    /// The counter in a block.
    pub fn of_block(&self, block: BlockId) -> Option<(u32, CounterSite)> {
        let (number, site) = self.blocks.get(&block)?;
        Some((self.first + number, *site))
    }

    /// Where calls begin, before which instruction of the entry block.
    pub fn begin(&self) -> Option<(u32, Clock)> {
        let site = self.begin?;
        Some((site.insn, self.clock(false, site.saves)))
    }

    /// Where calls end, before the last instruction of a block.
    pub fn end(&self, block: BlockId) -> Option<Clock> {
        let saves = *self.ends.get(&block)?;
        Some(self.clock(true, saves))
    }

    fn clock(&self, ends: bool, saves: bool) -> Clock {
        let count = self.first + u32::from(ends);
        Clock { count, ticks: [self.first + 3, self.first + 4], ends, saves }
    }

    /// The counters of calls that are open, where time is taken.
    pub fn open(&self) -> Option<OpenCounters> {
        let first = self.first;
        self.begin.map(|_| OpenCounters { deoptimised: first + 2, ticks: [first + 3, first + 4] })
    }

    /// The counter of a branch.
    pub fn of_branch(&self, from: BlockId, to: Option<BlockId>) -> Option<(u32, bool)> {
        let (number, saves) = self.between.get(&(from, to))?;
        Some((self.first + number, *saves))
    }
}

/// Finds where the counters of `function` stand.
pub(crate) fn place(
    lifter: &Lifter<'_>,
    function: &KernelFunction,
    counting: Counting,
) -> Result<Counters, (Reason, u64)> {
    let places: Vec<Place> = match counting {
        Counting::Off => return Ok(Counters::default()),
        Counting::Calls => calls(function).ok_or((Reason::EdgesHidden, function.entry()))?,
        Counting::Blocks => {
            (0..function.code.blocks.len() as u32).map(|b| Place::Block(BlockId(b))).collect()
        }
        Counting::Edges => spanning(function).ok_or((Reason::EdgesHidden, function.entry()))?,
        Counting::Times => return clocks(lifter, function),
    };
    let sites = CounterSites::of(lifter, function)?;
    let entry = function.code.entry_block();
    let mut counters = Counters::default();
    for (number, place) in places.iter().enumerate() {
        let number = number as u32;
        match *place {
            Place::Entry => {
                counters.blocks.insert(entry, (number, sites.in_block(entry)?));
            }
            Place::Block(block) => {
                counters.blocks.insert(block, (number, sites.in_block(block)?));
            }
            Place::Between(from, to) => {
                let saves = sites.flags.at_start(to);
                let first = function.code.blocks[to.index()].insns.start;
                sites.check(saves, first)?;
                counters.between.insert((from, Some(to)), (number, saves));
            }
            Place::Leaving(from) => {
                // What is behind the branch is another function: nothing is known of its flags.
                let last = function.code.blocks[from.index()].insns.end - 1;
                sites.check(true, last)?;
                counters.between.insert((from, None), (number, true));
            }
        }
    }
    counters.meanings = places.into_iter().map(Meaning::Executions).collect();
    Ok(counters)
}

/// Finds where time is taken: behind the entry, and before each way out.
fn clocks(lifter: &Lifter<'_>, function: &KernelFunction) -> Result<Counters, (Reason, u64)> {
    // Ends are those of calls that began there, and nothing inside leads to the begin.
    if function.fentry.is_none() {
        return Err((Reason::NoFentry, function.entry()));
    }
    calls(function).ok_or((Reason::EdgesHidden, function.entry()))?;
    let sites = CounterSites::of(lifter, function)?;
    let entry = function.code.entry_block();
    let begin = sites.in_block(entry)?;
    if begin.insn >= function.code.blocks[entry.index()].insns.end {
        return Err((Reason::Unwind, function.entry()));
    }
    let mut ends = FxHashMap::default();
    for (index, block) in function.code.blocks.iter().enumerate() {
        let (id, last) = (BlockId(index as u32), block.insns.end - 1);
        let at = function.code.insns[last as usize].ip();
        let leaves = match function.ends[index] {
            End::NoReturn => true,
            End::Falls => false,
            End::Step(Step::Stop) => false,
            End::Step(_) => block.exit.is_some(),
        };
        // The ways out of other instructions, by a fixup or a static key, have no place for it.
        let has_place = match function.ends[index] {
            End::Step(Step::Label(_)) => false,
            _ => leaves,
        };
        match (block.exit.is_some() || leaves, has_place) {
            (false, _) => {}
            (true, false) => return Err((Reason::EdgesHidden, at)),
            (true, true) => {
                let branches = matches!(function.ends[index], End::Step(Step::Branch(_)));
                let saves = branches || sites.flags.before(function, id, last, sites.callees);
                if sites.is_shadowed(last) || !sites.unwinds(last) {
                    return Err((Reason::Unwind, at));
                }
                ends.insert(id, saves);
            }
        }
    }
    let meanings = Meaning::OF_TIMES.to_vec();
    Ok(Counters { meanings, begin: Some(begin), ends, ..Counters::default() })
}

/// The places that determine all edges of a function.
/// The entry block runs as often as the function is called, unless something leads back to it.
fn calls(function: &KernelFunction) -> Option<Vec<Place>> {
    let entry = function.code.entry_block();
    let mut succs = function.code.blocks.iter().map(|block| &block.succs);
    (!succs.any(|succs| succs.contains(&entry))).then(|| vec![Place::Entry])
}

fn spanning(function: &KernelFunction) -> Option<Vec<Place>> {
    let graph = EdgeGraph::new(&function.code);
    let entry = function.code.entry_block();
    // A way back to the entry would be counted with the calls.
    if function.code.blocks.iter().any(|block| block.succs.contains(&entry)) {
        return None;
    }
    // A label's branch has no place for a counter between.
    let branches = |block: BlockId| {
        let last = function.code.blocks[block.index()].insns.end as usize - 1;
        matches!(function.steps[last], Step::Branch(_))
    };
    graph
        .counted()?
        .into_iter()
        .map(|edge| graph.places[edge])
        .map(|place| match place? {
            Place::Between(from, _) | Place::Leaving(from) if !branches(from) => None,
            place => Some(place),
        })
        .collect()
}

/// Why there is no place.
fn reason(shadowed: bool) -> Reason {
    if shadowed { Reason::InterruptShadow } else { Reason::Unwind }
}

struct CounterSites<'a, 'l> {
    lifter: &'l Lifter<'a>,
    function: &'l KernelFunction,
    flags: Flags,
    callees: Callees<'a>,
}

impl<'a, 'l> CounterSites<'a, 'l> {
    /// What is known of a function's instructions, if counters in it can reach their processor's own.
    fn of(lifter: &'l Lifter<'a>, function: &'l KernelFunction) -> Result<Self, (Reason, u64)> {
        if let Some(at) = changes_gs(lifter, function) {
            return Err((Reason::ChangesGs, at));
        }
        let callees = Callees::new(lifter);
        let flags = Flags::solve(function, callees);
        Ok(CounterSites { lifter, function, flags, callees })
    }

    fn in_block(&self, id: BlockId) -> Result<CounterSite, (Reason, u64)> {
        let function = self.function;
        let insns = function.code.blocks[id.index()].insns.clone();
        let behind = function.behind_fentry();
        let mut saving = None;
        let mut shadowed = false;
        for insn in insns.clone() {
            let at = function.code.insns[insn as usize].ip();
            // Callers come to a function's entry, or behind its fentry nop.
            let early = id == function.code.entry_block() && at < behind;
            if self.is_shadowed(insn) {
                shadowed = true;
            } else if !early {
                if !self.flags.before(function, id, insn, self.callees) {
                    return Ok(CounterSite { insn, saves: false });
                }
                if saving.is_none() && self.unwinds(insn) {
                    saving = Some(CounterSite { insn, saves: true });
                }
            }
            // A callee may not return, and a fault goes elsewhere.
            let leaves = function.steps[insn as usize] != Step::Next
                || self.lifter.image().tables.exception(at).is_some();
            if leaves {
                break;
            }
            if insn + 1 == insns.end && function.ends[id.index()] == End::Falls {
                return self.at_end(id, saving, reason(shadowed));
            }
        }
        saving.ok_or((reason(shadowed), function.code.insns[insns.start as usize].ip()))
    }

    /// Behind the last instruction of a block that goes on with the next, if there is no better place.
    fn at_end(
        &self,
        id: BlockId,
        saving: Option<CounterSite>,
        reason: Reason,
    ) -> Result<CounterSite, (Reason, u64)> {
        let block = &self.function.code.blocks[id.index()];
        let insn = block.insns.end;
        let last = &self.function.code.insns[insn as usize - 1];
        let next = last.next_ip();
        if !self.shadows(last) && !self.flags.before(self.function, id, insn, self.callees) {
            return Ok(CounterSite { insn, saves: false });
        }
        let other = (!self.shadows(last) && self.unwinds_at(next))
            .then_some(CounterSite { insn, saves: true });
        saving.or(other).ok_or((reason, next))
    }

    /// Whether the instruction before lets interrupts in behind this one only.
    fn is_shadowed(&self, insn: u32) -> bool {
        let Some(before) = (insn as usize).checked_sub(1) else { return false };
        let insns = &self.function.code.insns;
        let before = &insns[before];
        self.shadows(before) && before.next_ip() == insns[insn as usize].ip()
    }

    /// Whether an instruction keeps interrupts off for the next one.
    fn shadows(&self, insn: &Insn) -> bool {
        match self.lifter.image().bytes(insn.ip(), insn.len()) {
            Some([ALLOW_INTERRUPTS]) => true,
            Some([LOAD_SEGMENT, register, ..]) => register >> 3 & 7 == STACK_SEGMENT,
            _ => false,
        }
    }

    /// Whether a frame with the flags on top can be unwound.
    fn unwinds(&self, insn: u32) -> bool {
        self.unwinds_at(self.function.code.insns[insn as usize].ip())
    }

    fn unwinds_at(&self, at: u64) -> bool {
        let row = self.lifter.image().orc.at(at);
        row.is_some_and(|row| matches!(row.base(), Base::StackPointer | Base::Other))
    }

    fn check(&self, saves: bool, insn: u32) -> Result<(), (Reason, u64)> {
        let at = self.function.code.insns[insn as usize].ip();
        if saves && !self.unwinds(insn) {
            return Err((Reason::Unwind, at));
        }
        Ok(())
    }
}

/// Where a function changes the segment `gs`, or may.
fn changes_gs(lifter: &Lifter<'_>, function: &KernelFunction) -> Option<u64> {
    let changes = |bytes: &[u8]| {
        let code = match bytes {
            // Prefixes of operand size, repeat and 64-bit operands.
            [0x66 | 0xf3 | 0x40..=0x4f, rest @ ..] => rest,
            code => code,
        };
        let code = match code {
            [0x40..=0x4f, rest @ ..] => rest,
            code => code,
        };
        let segment = match code {
            // swapgs; pop gs; lgs; mov gs; wrgsbase
            [0x0f, 0x01, 0xf8, ..] | [0x0f, 0xa9 | 0xb5, ..] => true,
            [0x8e, modrm, ..] => modrm >> 3 & 7 == 5,
            [0x0f, 0xae, modrm, ..] => {
                bytes.first() == Some(&0xf3) && *modrm >= 0xd8 && *modrm < 0xe0
            }
            _ => false,
        };
        segment || bytes.windows(4).any(|four| GS_BASES.iter().any(|base| four == base))
    };
    let insns = function.code.insns.iter();
    insns
        .map(|insn| (insn.ip(), lifter.image().bytes(insn.ip(), insn.len())))
        .find(|(_, bytes)| bytes.is_some_and(changes))
        .map(|(at, _)| at)
}
