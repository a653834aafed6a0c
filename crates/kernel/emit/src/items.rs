//! A part as a list of pieces, before their sizes are known.

use fettle_isa::{Decides, Insn, Jump};
use fettle_kernel_image::JumpLabel;
use fettle_kernel_lift::step::Step;
use fettle_kernel_lift::{End, KernelFunction, Lifter};
use fettle_lift::{BlockId, Chunk};
use rustc_hash::FxHashMap;

use crate::counters::{Clock, Counters};
use crate::promotions::Promotions;

const TRAP: u8 = 0xcc;
/// The condition of `jne`.
const NOT_EQUAL: u8 = 5;

/// What the pieces of a function are made of.
pub(crate) struct Context<'a, 'l> {
    pub lifter: &'l Lifter<'a>,
    pub function: &'l KernelFunction,
    pub counters: &'l Counters,
    /// Numbers of the plan's functions by their entries.
    pub index: &'l FxHashMap<u64, u32>,
    pub promotions: &'l Promotions,
}

impl Context<'_, '_> {
    /// Where `to` is in rewritten text.
    pub fn to(&self, to: u64) -> To {
        match (self.function.block_at(to), self.index.get(&to)) {
            (Some(block), _) => To::Block(block),
            (None, Some(function)) => To::Function(*function),
            (None, None) => To::Kernel(to),
        }
    }
}

/// Where something leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum To {
    /// To a block of the same function.
    Block(BlockId),
    /// To a piece of the same part.
    Stub(u32),
    /// To the entry of a function of the plan.
    Function(u32),
    /// To the kernel as it is.
    Kernel(u64),
}

/// A piece.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Item {
    /// A block begins.
    Block(BlockId),
    /// A stub begins, by its number in the part.
    Stub(u32),
    /// An instruction as it is, but for what depends on its address.
    Copy(u32),
    /// A jump that is written anew. `origin` is its counterpart in the original, or where it leads.
    Jump { jump: Jump, to: To, origin: u64, short: bool },
    /// A branch of a static key.
    Label { label: JumpLabel, jumps: bool, to: To },
    /// A counter before what `origin` is in the original.
    Counter { number: u32, saves: bool, origin: u64 },
    /// Time is taken before what `origin` is in the original.
    Clock { clock: Clock, origin: u64 },
    /// A register is compared with the address of a function of the kernel, before what `origin` is in the original.
    Compare { register: u8, with: u64, origin: u64 },
    /// A call that is written anew in the place of one that is `origin` in the original.
    Call { to: To, origin: u64, behind: u64 },
    /// Nothing comes here. `origin` is what unwinders find here.
    Trap { origin: u64 },
}

/// The pieces of a part.
pub(crate) struct Items {
    pub items: Vec<Item>,
    pub stubs: u32,
}

impl Items {
    /// The pieces of a chunk.
    pub fn of(context: &Context<'_, '_>, chunk: &Chunk) -> Items {
        let mut writer = Writer { context, items: Vec::new(), stubs: Vec::new(), marks: 0 };
        for (i, block) in chunk.blocks.iter().enumerate() {
            writer.block(*block, chunk.blocks.get(i + 1).copied());
        }
        for (mark, stub) in std::mem::take(&mut writer.stubs) {
            writer.items.push(Item::Stub(mark));
            writer.items.extend(stub);
        }
        Items { items: writer.items, stubs: writer.marks }
    }
}

struct Writer<'c, 'a, 'l> {
    context: &'c Context<'a, 'l>,
    items: Vec<Item>,
    /// What stands behind everything else, with its number: counters of branches, calls that were not promoted.
    stubs: Vec<(u32, [Item; 2])>,
    /// Numbers that were given to stubs, and to places that they return to.
    marks: u32,
}

impl Writer<'_, '_, '_> {
    fn block(&mut self, id: BlockId, next: Option<BlockId>) {
        let function = self.context.function;
        let block = &function.code.blocks[id.index()];
        let counter = self.context.counters.of_block(id);
        let begin = self.context.counters.begin().filter(|_| id == function.code.entry_block());
        self.items.push(Item::Block(id));
        for index in block.insns.clone() {
            let insn = &function.code.insns[index as usize];
            if let Some((number, site)) = counter.filter(|(_, site)| site.insn == index) {
                self.items.push(Item::Counter { number, saves: site.saves, origin: insn.ip() });
            }
            if let Some((_, clock)) = begin.filter(|(before, _)| *before == index) {
                self.items.push(Item::Clock { clock, origin: insn.ip() });
            }
            if index + 1 == block.insns.end {
                self.end(id, index, insn, next);
            } else {
                self.copy(index, insn);
            }
        }
    }

    /// An instruction that control goes on behind, a call perhaps, which may be promoted.
    fn copy(&mut self, index: u32, insn: &Insn) {
        let Context { lifter, function, promotions, .. } = self.context;
        let is_indirect = function.steps[index as usize] == Step::IndirectCall;
        let register = lifter.steps().thunk_register(insn).filter(|_| is_indirect);
        let (Some(register), Some(with)) = (register, promotions.0.get(&insn.ip())) else {
            return self.items.push(Item::Copy(index));
        };
        let (origin, behind) = (insn.ip(), self.mark());
        let back = Item::Jump {
            jump: Jump::Always,
            to: To::Stub(behind),
            origin: insn.next_ip(),
            short: true,
        };
        let other = self.stub([Item::Copy(index), back]);
        self.items.push(Item::Compare { register, with: *with, origin });
        self.jump(Jump::If(NOT_EQUAL), other, origin);
        self.items.push(Item::Call { to: self.context.to(*with), origin, behind: insn.next_ip() });
        self.items.push(Item::Stub(behind));
    }

    fn mark(&mut self) -> u32 {
        self.marks += 1;
        self.marks - 1
    }

    fn stub(&mut self, items: [Item; 2]) -> To {
        let mark = self.mark();
        self.stubs.push((mark, items));
        To::Stub(mark)
    }

    /// The last instruction of block `id`.
    fn end(&mut self, id: BlockId, index: u32, insn: &Insn, next: Option<BlockId>) {
        let function = self.context.function;
        let behind = insn.next_ip();
        let is_branch = matches!(function.ends[id.index()], End::Step(Step::Branch(_)));
        if let Some(clock) = self.context.counters.end(id).filter(|_| !is_branch) {
            self.items.push(Item::Clock { clock, origin: insn.ip() });
        }
        match function.ends[id.index()] {
            End::Falls => {
                self.copy(index, insn);
                let counter = self.context.counters.of_block(id);
                if let Some((number, site)) = counter.filter(|(_, site)| site.insn == index + 1) {
                    self.items.push(Item::Counter { number, saves: site.saves, origin: behind });
                }
                self.go(behind, next);
            }
            End::NoReturn => {
                self.items.push(Item::Copy(index));
                if function.code.contains(fettle_image::LinkAddr(behind)) {
                    // Should the call return after all, the original goes on.
                    self.go(behind, next);
                } else {
                    self.items.push(Item::Trap { origin: behind });
                }
            }
            End::Step(Step::Branch(to)) => self.branch(id, (insn, to), next),
            End::Step(Step::Label(label)) => self.label(insn, label, next),
            End::Step(Step::Jump(to)) => {
                let to = self.context.to(to);
                if !next.is_some_and(|next| to == To::Block(next)) {
                    self.jump(Jump::Always, to, insn.ip());
                }
            }
            End::Step(Step::Return | Step::TailIndirect) if insn.near_branch_target() != 0 => {
                // By a thunk.
                self.jump(Jump::Always, To::Kernel(insn.near_branch_target()), insn.ip());
                self.speculation_stop(behind);
            }
            End::Step(_) => {
                self.items.push(Item::Copy(index));
                self.speculation_stop(behind);
            }
        }
    }

    /// A trap where the original has one, so that no processor guesses its way past.
    fn speculation_stop(&mut self, at: u64) {
        if self.context.lifter.image().bytes(at, 1) == Some(&[TRAP]) {
            self.items.push(Item::Trap { origin: at });
        }
    }

    /// Control goes on at `to`, and `next` comes next.
    fn go(&mut self, to: u64, next: Option<BlockId>) {
        let destination = self.context.to(to);
        if !next.is_some_and(|next| destination == To::Block(next)) {
            self.jump(Jump::Always, destination, to);
        }
    }

    fn jump(&mut self, jump: Jump, to: To, origin: u64) {
        let short = matches!(to, To::Block(_) | To::Stub(_));
        self.items.push(Item::Jump { jump, to, origin, short });
    }

    /// Where the branch from `id` to `to` leads: to its counter, if it has one.
    fn counted(&mut self, id: BlockId, to: To, origin: u64) -> To {
        let key = match to {
            To::Block(block) => Some(block),
            _ => None,
        };
        if let Some(clock) = self.context.counters.end(id).filter(|_| key.is_none()) {
            let jump = Item::Jump { jump: Jump::Always, to, origin, short: false };
            return self.stub([Item::Clock { clock, origin }, jump]);
        }
        match self.context.counters.of_branch(id, key) {
            None => to,
            Some((number, saves)) => {
                let short = matches!(to, To::Block(_));
                let counter = Item::Counter { number, saves, origin };
                let jump = Item::Jump { jump: Jump::Always, to, origin, short };
                self.stub([counter, jump])
            }
        }
    }

    fn branch(&mut self, id: BlockId, (insn, to): (&Insn, u64), next: Option<BlockId>) {
        let Some(Decides::Flags(condition)) = insn.decides() else {
            // No other is lifted.
            return self.items.push(Item::Trap { origin: insn.ip() });
        };
        let (jump, behind) = (Jump::If(condition), insn.next_ip());
        let at = |to: To, address: u64| match to {
            To::Block(_) => address,
            // Outside of the function its frame is not known, but the branch has the same.
            _ => insn.ip(),
        };
        let taken = self.context.to(to);
        let taken = self.counted(id, taken, at(taken, to));
        let falls = self.context.to(behind);
        let falls = self.counted(id, falls, at(falls, behind));
        let is_next = |to: To| next.is_some_and(|next| to == To::Block(next));
        let inverted = jump.inverted().filter(|_| is_next(taken) && !is_next(falls));
        if let Some(inverted) = inverted {
            return self.jump(inverted, falls, insn.ip());
        }
        self.jump(jump, taken, insn.ip());
        if !is_next(falls) {
            self.jump(Jump::Always, falls, behind);
        }
    }

    fn label(&mut self, insn: &Insn, label: JumpLabel, next: Option<BlockId>) {
        let image = self.context.lifter.image();
        // Only labels with a key that can be read are lifted.
        let starts_true = image.key_starts_true(label.key_address()).unwrap_or_default();
        let jumps = starts_true != (label.key & 1 != 0);
        let to = self.context.to(label.target);
        self.items.push(Item::Label { label, jumps, to });
        self.go(insn.next_ip(), next);
    }
}
