//! OSR entries and deopt points: where a thread in the middle of a function can go from the original text to
//! the rewritten text, and back.

use fettle_code::{ENTRY_PATCH_SIZE, Emitted};
use fettle_image::LinkAddr;
use fettle_isa::{Flow, Insn};
use fettle_lift::function::{Block, Function};
use serde::{Deserialize, Serialize};

/// One line of an OSR map: an address of the original, and the offset of rewritten text that goes with it: in
/// the function's code first, in [`crate::Plan::text`] when that has its place.
pub type OsrPoint = (LinkAddr, u32);

/// The crossings of one function: whatever holds in one place holds in the other.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct OsrMap {
    /// Deopt points, where a thread may be led from rewritten text to the original: starts of blocks, before
    /// their probes, that have at least [`ENTRY_PATCH_SIZE`] bytes of rewritten text that nothing comes to in
    /// their middle.
    pub deopt_points: Vec<OsrPoint>,
    /// OSR entries, where a thread may be led from the original to rewritten text: starts of blocks, and what
    /// calls return to, where the original has that many bytes that nothing comes to in their middle.
    pub osr_entries: Vec<OsrPoint>,
    /// Where calls and system calls return to: behind one of the original, and behind its copy, or
    /// one of two.
    pub returns: Vec<OsrPoint>,
    /// Landing pads of exceptions, before their probes.
    pub pads: Vec<OsrPoint>,
    /// Where the original's code lies: its own, then its cold parts; start and end of each.
    pub parts: Vec<(LinkAddr, LinkAddr)>,
}

impl OsrMap {
    /// Those of `function`; `targets` are what anything leads to, in order.
    pub(crate) fn of(function: &Function, emitted: &Emitted, targets: &[LinkAddr]) -> OsrMap {
        OsrMap {
            deopt_points: deopt_points(function, emitted),
            osr_entries: osr_entries(function, emitted, targets),
            returns: returns(function, emitted),
            pads: pads(function, emitted),
            parts: function.ranges.iter().map(|part| (part.start, part.end)).collect(),
        }
    }

    /// The same where `place` says that rewritten text came to lie.
    pub(crate) fn placed(mut self, place: impl Fn(u32) -> u32) -> OsrMap {
        for all in
            [&mut self.deopt_points, &mut self.osr_entries, &mut self.returns, &mut self.pads]
        {
            all.iter_mut().for_each(|(_, offset)| *offset = place(*offset));
        }
        self
    }
}

/// Blocks with room for a jump back to the original, and where they are in the function's code.
fn deopt_points(function: &Function, emitted: &Emitted) -> Vec<OsrPoint> {
    const ROOM: u32 = ENTRY_PATCH_SIZE as u32;
    let mut all = Vec::with_capacity(function.blocks.len() + 1);
    let returned_to = returned_to(function, emitted);
    let comes_back = |label: u32| {
        let next = returned_to.partition_point(|offset| *offset <= label);
        returned_to.get(next).is_some_and(|offset| *offset < label + ROOM)
    };
    let places = emitted.block_offsets.iter().zip(&emitted.block_ends);
    for (block, (label, end)) in function.blocks.iter().zip(places) {
        // What is left of a block may be nothing, or a short jump.
        if *end >= label + ROOM && !comes_back(*label) {
            all.push((block.start, *label));
        }
        // Callers come to where the entry is counted.
        if block.start == function.entry && *label >= ROOM {
            all.push((block.start, 0));
        }
    }
    all
}

/// Where control returns to in the function's code, in order: behind calls, to which stacks that sleep
/// may lead, wherever they are; and to system calls that the kernel makes again, and behind them.
fn returned_to(function: &Function, emitted: &Emitted) -> Vec<u32> {
    let again = |(insn, behind): &(u32, u32)| {
        let insn = &function.insns[*insn as usize];
        insn.is_syscall().then(|| behind - insn.len() as u32)
    };
    let returns = &emitted.returns;
    let behind = returns.iter().map(|(_, offset)| *offset);
    let mut all: Vec<u32> = behind.chain(returns.iter().filter_map(again)).collect();
    all.sort_unstable();
    all
}

/// Blocks with room for a jump to rewritten text, what lies behind calls likewise, and where each is in the
/// function's code. `targets` are what anything leads to, in order.
fn osr_entries(function: &Function, emitted: &Emitted, targets: &[LinkAddr]) -> Vec<OsrPoint> {
    // What else is written to in original text leads elsewhere: calls, and jumps out of the function. And a
    // thread that is in a system call returns to it, which may be made again.
    let covers = |insn: &Insn, flow: Flow| match flow {
        Flow::Next => !insn.is_syscall(),
        Flow::Jump(to) | Flow::Branch(to) => function.contains(LinkAddr(to)),
        Flow::Return | Flow::IndirectJump => true,
        _ => false,
    };
    let has_room = |block: &Block, first: usize| {
        let insns = first..block.insns.end as usize;
        let Some(start) = insns.clone().next().map(|i| function.insns[i].ip()) else {
            return false;
        };
        let end = start + ENTRY_PATCH_SIZE;
        let next = targets.get(targets.partition_point(|t| t.0 <= start));
        function.insns[insns.end - 1].next_ip() >= end
            && next.is_none_or(|t| t.0 >= end)
            && insns
                .take_while(|i| function.insns[*i].ip() < end)
                .all(|i| covers(&function.insns[i], function.flow(i)))
    };
    let labels = function.blocks.iter().zip(&emitted.block_offsets);
    let with_room = labels.filter(|(b, label)| {
        let is_entry = b.start == function.entry;
        !is_entry && **label != u32::MAX && has_room(b, b.insns.start as usize)
    });
    let mut all: Vec<_> = with_room.map(|(block, label)| (block.start, *label)).collect();
    for (insn, offset) in &emitted.returns {
        let next = function.blocks.partition_point(|b| b.insns.start <= *insn);
        if has_room(&function.blocks[next - 1], *insn as usize + 1) {
            all.push((LinkAddr(function.insns[*insn as usize].next_ip()), *offset));
        }
    }
    // A call may have two copies.
    all.sort_unstable();
    all.dedup_by_key(|(from, _)| *from);
    all
}

/// Behind each call and system call, and where that is in the function's code.
fn returns(function: &Function, emitted: &Emitted) -> Vec<OsrPoint> {
    let behind = |insn: u32| LinkAddr(function.insns[insn as usize].next_ip());
    emitted.returns.iter().map(|(insn, offset)| (behind(*insn), *offset)).collect()
}

/// Landing pads, and where they are in the function's code, before their probes.
fn pads(function: &Function, emitted: &Emitted) -> Vec<OsrPoint> {
    let labels = function.blocks.iter().zip(&emitted.block_offsets);
    labels.filter(|(b, _)| b.landing_pad).map(|(b, label)| (b.start, *label)).collect()
}
