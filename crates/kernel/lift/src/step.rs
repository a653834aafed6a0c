//! What one instruction of the kernel leads to.

use fettle_isa::{Facts, Flow, Insn};
use fettle_kernel_image::{Image, JumpLabel, StaticCall};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::reason::Reason;

const HALT: u8 = 0xf4;
const UD2: [u8; 2] = [0x0f, 0x0b];
const CALL: u8 = 0xe8;
const JUMP: u8 = 0xe9;
const RETURN: u8 = 0xc3;
/// Static calls are five bytes in all their forms.
pub const STATIC_CALL: usize = 5;

/// Where control goes after an instruction, faults left aside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// To the next one.
    Next,
    /// Into a function whose address is known, and back.
    Call(u64),
    /// Into a function that a register or memory names, and back.
    IndirectCall,
    /// To this address.
    Jump(u64),
    /// To this address or the next one.
    Branch(u64),
    /// To the next one or the label's target, as a static key says.
    Label(JumpLabel),
    /// A static call that returns, or does nothing.
    StaticCall(StaticCall),
    /// A static call in a jump's place.
    StaticTail(StaticCall),
    /// To the caller.
    Return,
    /// To another function, which a register or memory names.
    TailIndirect,
    /// Nowhere: it traps, and is meant to.
    Stop,
}

/// Tells steps; knows the thunks.
#[derive(Debug)]
pub struct Steps<'a> {
    image: &'a Image,
    returns: FxHashSet<u64>,
    /// Thunks of indirect branches, with the number of the register that says where; `None` for one that has
    /// another name.
    indirect: FxHashMap<u64, Option<u8>>,
    /// Indirect target selection is mitigated: whether a return or indirect branch needs a thunk depends on
    /// the half of a cache line that it lies in.
    by_place: bool,
}

impl<'a> Steps<'a> {
    /// For the text of `image`.
    pub fn new(image: &'a Image) -> Steps<'a> {
        let named = |wanted: fn(&str) -> bool| {
            let thunks = image.symbols.all().iter().filter(|symbol| wanted(&symbol.name));
            thunks.map(|symbol| symbol.address).collect()
        };
        let thunk = image.symbols.address("x86_return_thunk").and_then(|at| image.word(at));
        Steps {
            image,
            by_place: thunk.is_some() && thunk == image.symbols.address("its_return_thunk"),
            returns: named(|name| name.ends_with("_return_thunk")),
            indirect: indirect_thunks(image),
        }
    }

    /// Whether a jump to `address` is a return.
    pub fn is_return_thunk(&self, address: u64) -> bool {
        self.returns.contains(&address)
    }

    /// The number of the register that says where an indirect call at `insn` leads, if it is one by a thunk.
    pub fn thunk_register(&self, insn: &Insn) -> Option<u8> {
        *self.indirect.get(&insn.near_branch_target())?
    }

    /// What `insn`, whose facts are `facts` and whose bytes are `bytes`, leads to.
    ///
    /// # Errors
    /// If that is not certain.
    pub fn step(&self, insn: &Insn, facts: Facts, bytes: &[u8]) -> Result<Step, Reason> {
        let tables = &self.image.tables;
        let flow = facts.flow(insn);
        let label = tables.jump_label(insn.ip());
        // Static keys that are sealed do not change any more: what stands there counts.
        if let Some(label) = label.filter(|label| !self.image.is_sealed(label.key_address())) {
            let key = self.image.key_starts_true(label.key_address());
            return match flow {
                _ if key.is_none() => Err(Reason::StrangeSite),
                Flow::Next if insn.is_nop() && matches!(insn.len(), 2 | 5) => {
                    Ok(Step::Label(*label))
                }
                Flow::Jump(to) if to == label.target => Ok(Step::Label(*label)),
                _ => Err(Reason::StrangeSite),
            };
        }
        if let Some(site) = tables.static_call(insn.ip()) {
            return static_call(*site, flow, bytes);
        }
        match flow {
            Flow::Return | Flow::IndirectJump | Flow::IndirectCall if self.by_place => {
                Err(Reason::SpeculationPlace)
            }
            Flow::Next => Ok(Step::Next),
            Flow::Stop if bytes.first() == Some(&HALT) => Ok(Step::Next),
            Flow::Stop => {
                let warns = bytes.starts_with(&UD2)
                    && tables.bug(insn.ip()).is_some_and(fettle_kernel_image::Bug::goes_on);
                Ok(if warns { Step::Next } else { Step::Stop })
            }
            Flow::Jump(to) if self.returns.contains(&to) => Ok(Step::Return),
            Flow::Jump(to) if self.indirect.contains_key(&to) => Ok(Step::TailIndirect),
            Flow::Call(to) if self.indirect.contains_key(&to) => Ok(Step::IndirectCall),
            Flow::Jump(to) | Flow::Branch(to) | Flow::Call(to) if !self.image.is_text(to) => {
                // A probe that replaces an instruction by a jump (optprobes) leads to memory of its own.
                let init = self.image.bytes(to, 1).is_some();
                Err(if init { Reason::InitText } else { Reason::Probed })
            }
            Flow::Branch(_) if !insn.is_jcc_short_or_near() => Err(Reason::CounterJump),
            Flow::Jump(to) => Ok(Step::Jump(to)),
            Flow::Branch(to) => Ok(Step::Branch(to)),
            Flow::Call(to) => Ok(Step::Call(to)),
            Flow::IndirectCall => Ok(Step::IndirectCall),
            Flow::IndirectJump if is_table_jump(insn, bytes) => Err(Reason::JumpTable),
            Flow::IndirectJump => Ok(Step::TailIndirect),
            Flow::Return => Ok(Step::Return),
            Flow::Trap => Err(Reason::Probed),
            Flow::Strange => Err(Reason::StrangeFlow),
        }
    }
}

/// 64-bit registers by their numbers.
const REGISTERS: [&str; 16] = [
    "rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12", "r13",
    "r14", "r15",
];
const THUNK: &str = "__x86_indirect_thunk_";

fn indirect_thunks(image: &Image) -> FxHashMap<u64, Option<u8>> {
    let mut thunks = FxHashMap::default();
    for symbol in image.symbols.all() {
        if !symbol.name.starts_with("__x86_indirect_") || symbol.name.ends_with("_thunk_array") {
            continue;
        }
        let named = symbol.name.strip_prefix(THUNK);
        let register = named.and_then(|name| REGISTERS.iter().position(|one| *one == name));
        let of: &mut Option<u8> = thunks.entry(symbol.address).or_default();
        *of = of.or(register.map(|number| number as u8));
    }
    thunks
}

fn static_call(site: StaticCall, flow: Flow, bytes: &[u8]) -> Result<Step, Reason> {
    let tail = site.key & 1 != 0;
    match (tail, bytes.first(), flow) {
        (false, Some(&CALL), _) => Ok(Step::StaticCall(site)),
        // Calls of nothing, or of what returns zero.
        (false, _, Flow::Next) if bytes.len() == STATIC_CALL => Ok(Step::StaticCall(site)),
        // Where it only returns, traps fill the room that a jump needs.
        (true, Some(&JUMP | &RETURN), _) => Ok(Step::StaticTail(site)),
        _ => Err(Reason::StrangeSite),
    }
}

/// Whether a jump takes its target out of a table: an index is scaled by the size of an address.
fn is_table_jump(insn: &Insn, bytes: &[u8]) -> bool {
    let full = insn.full(bytes);
    full.memory_index() != iced_x86::Register::None
}
