//! Following the code of one range from its known entries.

use std::ops::Range;

use fettle_image::{Image, LinkAddr};
use fettle_isa::{Facts, FactsFactory, Flow, Insn};
use iced_x86::{Instruction, Mnemonic, OpKind, Register};

use crate::function::SkipReason;
use crate::range_code::RangeCode;
use crate::tables::{self, Resolution, TableContext};

/// `mov $58,%eax`: the system call that comes next is `vfork`.
const NUMBER_OF_VFORK: [u8; 5] = [0xb8, 58, 0, 0, 0];

/// `mov %r11,8(%rsp)`, and behind the system call that comes next `ret`: so glibc (2.41 or newer) and musl
/// write the one call of a thread that waits and may be cancelled. The signal's handler asks whether the
/// thread is right there.
const BEFORE_CANCELLED: [u8; 5] = [0x4c, 0x89, 0x5c, 0x24, 8];
const CANCELLED: [u8; 3] = [0x0f, 0x05, 0xc3];

/// Functions of libraries that never return, by name: what linkers fill the room between functions
/// with may stand behind calls of them.
const NEVER_RETURN: [&str; 3] = ["__stack_chk_fail", "abort", "__assert_fail"];

/// `int3`: a trap, or what linkers fill the room between functions with.
const TRAP: u8 = 0xcc;
/// Where functions begin behind such room, as a rule.
const ALIGNMENT: u64 = 16;

impl RangeCode {
    /// Nothing followed yet. What is found is kept in `scratch` until [`RangeCode::settle`].
    pub fn new(range: Range<LinkAddr>, end_guessed: bool, scratch: &mut Scratch) -> RangeCode {
        let mut code = RangeCode {
            end_guessed,
            insns: Vec::new(),
            facts: Vec::new(),
            code_bytes: 0,
            at: Vec::new(),
            leaders: Vec::new(),
            outgoing: Vec::new(),
            tables: Vec::new(),
            tail_jumps: Vec::new(),
            calls: Vec::new(),
            named: Vec::new(),
            failure: None,
            runs: Vec::new(),
            work: std::mem::take(&mut scratch.work),
            unresolved: std::mem::take(&mut scratch.unresolved),
            overlap: None,
            unlocked: Vec::new(),
            range,
        };
        code.reopen(scratch);
        code
    }

    /// Bytes that belong to the function for certain: where its end is guessed, what was followed.
    pub fn known_bytes(&self) -> u64 {
        match self.end_guessed {
            true => self.code_bytes,
            false => self.range.end - self.range.start,
        }
    }

    /// Whether it is not known where the function ends, but only that it is no later than at `addr`.
    pub(crate) fn reaches_for_all_we_know(&self, addr: LinkAddr) -> bool {
        self.end_guessed && self.range.end == addr
    }

    /// The index of the instruction at `addr`, if it was found.
    pub fn index_at(&self, addr: LinkAddr) -> Option<usize> {
        let offset = addr.0.checked_sub(self.range.start.0)? as usize;
        (*self.at.get(offset)? as usize).checked_sub(1)
    }

    /// The index of the instruction that ends where `addr` begins, if it was found.
    pub fn index_before(&self, addr: LinkAddr) -> Option<usize> {
        (1..=15.min(addr.0.wrapping_sub(self.range.start.0)))
            .filter_map(|back| self.index_at(LinkAddr(addr.0 - back)))
            .find(|i| self.insns[*i].next_ip() == addr.0)
    }

    /// Says that control may come to `addr`; [`RangeCode::follow`] then goes there.
    pub fn add_entry(&mut self, addr: LinkAddr) {
        if !self.leaders.contains_sorted_or_recent(addr) {
            self.leaders.push(addr);
            self.work.push(addr);
        }
    }

    /// Says that control may come to `addr`, where an instruction was found already; false if none
    /// was. The code is decided.
    pub fn add_known_entry(&mut self, addr: LinkAddr) -> bool {
        let known = self.insns.binary_search_by_key(&addr.0, Insn::ip).is_ok();
        if known && !self.leaders.contains_sorted_or_recent(addr) {
            self.leaders.push(addr);
        }
        known
    }

    /// Follows control from all entries not yet followed.
    ///
    /// `code` holds the bytes from the start of the range; `context` answers what jump tables
    /// need to know of the image.
    pub fn follow(&mut self, code: &[u8], context: &TableContext<'_>, facts: &mut FactsFactory) {
        while self.failure.is_none() {
            if let Some(addr) = self.work.pop() {
                self.follow_from(addr, code, (context, facts));
            } else if let Some(index) = self.unresolved.pop() {
                self.resolve(index, code, context);
            } else {
                break;
            }
        }
    }

    fn fail(&mut self, reason: SkipReason, at: LinkAddr) {
        self.failure.get_or_insert((reason, at));
    }

    fn follow_from(
        &mut self,
        addr: LinkAddr,
        code: &[u8],
        (context, factory): (&TableContext<'_>, &mut FactsFactory),
    ) {
        let start = self.range.start.0;
        let offset = (addr.0 - start) as usize;
        if self.at[offset] != 0 {
            return;
        }
        if self.is_behind_lock(offset) {
            self.unlocked.push(addr);
            return self.leaders.push(LinkAddr(addr.0 - 1));
        }
        let (mut ip, mut offset) = (addr.0, offset);
        self.runs.push(self.insns.len() as u32);
        let mut may_be_last = false;
        loop {
            if ip >= self.range.end.0 {
                // Nothing comes after a call that does not return, or a trap without a handler.
                if !may_be_last && !self.runs_on(code, context.image) {
                    self.fail(SkipReason::RunsOffEnd, LinkAddr(ip));
                }
                return;
            }
            if self.at[offset] != 0 {
                return;
            }
            match self.behind_trap(offset, code, context) {
                Behind::Code => {}
                Behind::Nothing => return,
                Behind::Unclear => return self.fail(SkipReason::StrangeFlow, LinkAddr(ip)),
            }
            let Some((insn, facts)) = factory.decode(code, offset, ip) else {
                if !may_be_last {
                    self.fail(SkipReason::Undecodable, LinkAddr(ip));
                }
                return;
            };
            if let Some(reason) = keeps(&insn, code, offset) {
                return self.fail(reason, LinkAddr(ip));
            }
            if insn.is_ip_rel_lea() {
                self.name(LinkAddr(insn.ip_rel_memory_address()), context.image);
            }
            let index = self.insns.len() as u32;
            self.at[offset] = index + 1;
            self.insns.push(insn);
            self.facts.push(facts);
            self.code_bytes += insn.len() as u64;
            may_be_last = facts.may_return();
            offset += insn.len();
            let at = LinkAddr(ip);
            ip = insn.next_ip();
            match facts.flow(&insn) {
                Flow::Next | Flow::Trap | Flow::IndirectCall => {}
                Flow::Jump(to) => return self.jump(at, LinkAddr(to)),
                Flow::Branch(to) => self.jump(at, LinkAddr(to)),
                Flow::Call(to) => self.calls.push(LinkAddr(to)),
                Flow::IndirectJump => return self.unresolved.push(index),
                Flow::Return | Flow::Stop => return,
                Flow::Strange => return self.fail(SkipReason::StrangeFlow, at),
            }
        }
    }

    /// What stands at `offset` if a trap was found last: where a function's end is not known, traps
    /// fill the room to the next one, too.
    fn behind_trap(&self, offset: usize, code: &[u8], context: &TableContext<'_>) -> Behind {
        let followed = self.runs.last().map_or(0, |start| *start as usize)..self.insns.len();
        let flow = |i: usize| self.facts[i].flow(&self.insns[i]);
        let mut last = followed.rev().map(flow);
        if !self.end_guessed || last.next() != Some(Flow::Trap) {
            return Behind::Code;
        }
        let aligned =
            |offset: usize| (self.range.start.0 + offset as u64).is_multiple_of(ALIGNMENT);
        let traps = code[offset..].iter().take_while(|byte| **byte == TRAP).count();
        if traps > 0 && (offset + traps == code.len() || aligned(offset + traps)) {
            return Behind::Nothing;
        }
        match last.next() {
            Some(Flow::Call(to)) if aligned(offset) && never_returns(context.image, to) => {
                Behind::Nothing
            }
            Some(Flow::Call(_) | Flow::IndirectCall) if aligned(offset) => Behind::Unclear,
            _ => Behind::Code,
        }
    }

    /// Whether the instruction that was found last is one to fault, behind which compilers let a
    /// function end; if it does not, control goes on behind the function. In an object file it is not known
    /// what a section's end is followed by.
    fn runs_on(&self, code: &[u8], image: &Image) -> bool {
        let Some(last) = self.insns.last() else { return false };
        let section = |addr| image.section_at(addr).map(|section| section.start);
        let (at, behind) = (LinkAddr(last.ip()), LinkAddr(last.next_ip()));
        let offset = (at.0 - self.range.start.0) as usize;
        image.is_code(behind)
            && section(at) == section(behind)
            && writes_to_first_page(&last.full(&code[offset..]))
    }

    /// Whether the byte before is the `lock` prefix of an instruction that was found.
    fn is_behind_lock(&self, offset: usize) -> bool {
        let index = offset.checked_sub(1).and_then(|before| self.at[before].checked_sub(1));
        index.is_some_and(|index| self.insns[index as usize].has_lock_prefix())
    }

    fn name(&mut self, addr: LinkAddr, image: &Image) {
        if image.is_code(addr) && !self.range.contains(&addr) {
            self.named.push(addr);
        }
    }

    fn jump(&mut self, from: LinkAddr, to: LinkAddr) {
        if self.range.contains(&to) {
            self.add_entry(to);
        } else {
            self.outgoing.push((from, to));
        }
    }

    fn resolve(&mut self, index: u32, code: &[u8], context: &TableContext<'_>) {
        let insn = self.insns[index as usize];
        match tables::resolve(self, code, index as usize, context) {
            Resolution::Table(table) => {
                for target in table.targets() {
                    if self.range.contains(&target) {
                        self.add_entry(target);
                    }
                }
                self.tables.push(table);
            }
            Resolution::TailCall => self.tail_jumps.push(LinkAddr(insn.ip())),
            Resolution::Unknown => self.fail(SkipReason::UnresolvedJump, LinkAddr(insn.ip())),
        }
    }

    /// Puts instructions in order of address, in no more memory than they need, and gives up what
    /// is known of each byte.
    pub fn settle(&mut self, scratch: &mut Scratch) {
        let mut runs = self.runs_in_order();
        let overlapping = runs.windows(2).any(|w| w[0].end > w[1].start);
        if overlapping {
            // One instruction in the middle of another: none lies in one run with its neighbours.
            let alone = |i: usize| Run::of(&self.insns[i..=i], i);
            runs = (0..self.insns.len()).filter_map(alone).collect();
            runs.sort_unstable_by_key(|run| run.start);
        }
        let mut insns = Vec::with_capacity(self.insns.len());
        let mut facts = Vec::with_capacity(self.facts.len());
        for run in &runs {
            insns.extend_from_slice(&self.insns[run.insns.clone()]);
            facts.extend_from_slice(&self.facts[run.insns.clone()]);
        }
        if !self.unlocked.is_empty() {
            self.jump_to_locks(&mut insns, &facts);
        }
        if overlapping {
            let overlap = insns.windows(2).find(|pair| pair[0].next_ip() > pair[1].ip());
            self.overlap = overlap.map(|pair| LinkAddr(pair[1].ip()));
        }
        // What a failure left to do is not done.
        self.work.clear();
        self.unresolved.clear();
        scratch.runs = std::mem::take(&mut self.runs);
        scratch.work = std::mem::take(&mut self.work);
        scratch.unresolved = std::mem::take(&mut self.unresolved);
        scratch.insns = std::mem::replace(&mut self.insns, insns);
        scratch.facts = std::mem::replace(&mut self.facts, facts);
        scratch.at = std::mem::take(&mut self.at);
    }

    fn runs_in_order(&self) -> Vec<Run> {
        let ends = self.runs.iter().skip(1).copied().chain([self.insns.len() as u32]);
        let runs = self.runs.iter().zip(ends);
        let run = |(from, to): (&u32, u32)| {
            let from = *from as usize;
            Run::of(&self.insns[from..to as usize], from)
        };
        let mut runs: Vec<Run> = runs.filter_map(run).collect();
        runs.sort_unstable_by_key(|run| run.start);
        runs
    }

    fn jump_to_locks(&mut self, insns: &mut [Insn], facts: &[Facts]) {
        for (insn, facts) in insns.iter_mut().zip(facts) {
            if let Flow::Jump(to) | Flow::Branch(to) = facts.flow(insn)
                && self.unlocked.contains(&LinkAddr(to))
            {
                insn.jump_shorter(1);
            }
        }
        self.leaders.retain(|leader| !self.unlocked.contains(leader));
    }

    /// The reverse of [`RangeCode::settle`]: entries can be followed again.
    pub fn reopen(&mut self, scratch: &mut Scratch) {
        self.at = std::mem::take(&mut scratch.at);
        self.at.clear();
        self.at.resize((self.range.end.0 - self.range.start.0) as usize, 0);
        for (i, insn) in self.insns.iter().enumerate() {
            self.at[(insn.ip() - self.range.start.0) as usize] = i as u32 + 1;
        }
        scratch.insns.clear();
        scratch.insns.append(&mut self.insns);
        self.insns = std::mem::take(&mut scratch.insns);
        scratch.facts.clear();
        scratch.facts.append(&mut self.facts);
        self.facts = std::mem::take(&mut scratch.facts);
        // What is known is in order, but has gaps.
        let starts = (0..self.insns.len() as u32).filter(|i| {
            let i = *i as usize;
            i == 0 || self.insns[i - 1].next_ip() != self.insns[i].ip()
        });
        self.runs = std::mem::take(&mut scratch.runs);
        self.runs.clear();
        self.runs.extend(starts);
    }

    /// Checks what can be checked only when all is followed: no two instructions overlap.
    pub fn close(&mut self) {
        if self.failure.is_some() {
            return;
        }
        self.leaders.sort_unstable();
        self.leaders.dedup();
        self.failure = self.overlap.map(|at| (SkipReason::OverlappingInstructions, at));
    }
}

/// Whether a function begins with the question whether there is room for it on the stack
/// (`-fsplit-stack`), as GCC and LLVM ask it, or as gold has it answered.
pub(crate) fn splits_stack(code: &[u8]) -> bool {
    /// `endbr64`
    const LANDING: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];
    let code = code.strip_prefix(&LANDING).unwrap_or(code);
    // `lea -N(%rsp),%r11` comes before it where much room is needed.
    let code = match code {
        [0x4c, 0x8d, _, 0x24, _, _, _, _, rest @ ..] => rest,
        _ => code,
    };
    match code {
        // `cmp %fs:0x70,%rsp` or another register.
        [0x64, 0x48 | 0x4c, 0x3b, modrm, 0x25, 0x70, 0, 0, 0, ..] => modrm & 0xc7 == 0x04,
        // `stc` and a long `nop` in its place: what it calls needs more room than is known.
        [0xf9, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0, ..] => true,
        _ => false,
    }
}

/// Why a function with this instruction at `offset` of its code has to stay, if it has to.
fn keeps(insn: &Insn, code: &[u8], offset: usize) -> Option<SkipReason> {
    if insn.has_gs_prefix() {
        return Some(SkipReason::UsesGs);
    }
    if !insn.is_syscall() {
        return None;
    }
    let (before, rest) = code.split_at(offset);
    if before.ends_with(&NUMBER_OF_VFORK) {
        return Some(SkipReason::ReturnsTwice);
    }
    let cancelled = before.ends_with(&BEFORE_CANCELLED) && rest.starts_with(&CANCELLED);
    cancelled.then_some(SkipReason::NamedInside)
}

/// What stands behind a trap.
enum Behind {
    /// What its handler goes on with.
    Code,
    /// Room to the next function.
    Nothing,
    /// One or the other.
    Unclear,
}

/// Whether an instruction writes to a fixed address that nothing is at in most processes: a null
/// pointer's, or that of a member of it.
fn writes_to_first_page(insn: &Instruction) -> bool {
    const PAGE: u64 = 4096;
    insn.mnemonic() == Mnemonic::Mov
        && insn.op0_kind() == OpKind::Memory
        && insn.memory_base() == Register::None
        && insn.memory_index() == Register::None
        && insn.memory_segment() == Register::DS
        && insn.memory_displacement64() < PAGE
}

/// Whether a call of `to` leaves the image for a function that is known not to return.
fn never_returns(image: &Image, to: u64) -> bool {
    let stubs = image.plt();
    let stub = stubs.binary_search_by_key(&LinkAddr(to), |stub| stub.start);
    stub.is_ok_and(|i| NEVER_RETURN.contains(&stubs[i].target.as_str()))
}

/// Instructions that lie one behind the other.
struct Run {
    /// Address of the first.
    start: u64,
    /// Where the last one ends.
    end: u64,
    insns: Range<usize>,
}

impl Run {
    /// The run of `insns`, the first of which has this index; `None` if there are none.
    fn of(insns: &[Insn], first: usize) -> Option<Run> {
        let (start, end) = (insns.first()?.ip(), insns.last()?.next_ip());
        Some(Run { start, end, insns: first..first + insns.len() })
    }
}

/// Memory that is used again for the next range.
#[derive(Debug, Default)]
pub struct Scratch {
    insns: Vec<Insn>,
    facts: Vec<Facts>,
    at: Vec<u32>,
    runs: Vec<u32>,
    work: Vec<LinkAddr>,
    unresolved: Vec<u32>,
}

/// Leaders come in bursts of the same few; the exact check happens at the `at` table.
trait RecentlySeen {
    fn contains_sorted_or_recent(&self, addr: LinkAddr) -> bool;
}

impl RecentlySeen for Vec<LinkAddr> {
    fn contains_sorted_or_recent(&self, addr: LinkAddr) -> bool {
        self.iter().rev().take(4).any(|a| *a == addr)
    }
}
