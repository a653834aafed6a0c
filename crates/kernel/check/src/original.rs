//! The original: what stands at an address, and where jumps lead in the end.

use fettle_isa::{Facts, FactsFactory, Flow, Insn};
use fettle_kernel_image::{Entry, Image, JumpLabel};
use rustc_hash::{FxHashMap, FxHashSet};

/// Jumps to jumps are followed so far.
const LONGEST_CHAIN: usize = 64;
/// So many instructions are looked at to find the flags dead.
const FLAGS_SEARCH: usize = 4096;

/// The kernel as it is.
#[derive(Debug)]
pub(crate) struct Original<'a> {
    pub image: &'a Image,
    /// Thunks of returns and indirect branches: they leave the flags undefined.
    thunks: FxHashSet<u64>,
    /// Of those of indirect calls: the register that says where.
    registers: FxHashMap<u64, u8>,
}

/// An instruction with its bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct At<'a> {
    pub insn: Insn,
    pub facts: Facts,
    pub bytes: &'a [u8],
}

impl At<'_> {
    /// Where control goes by the instruction alone.
    pub fn flow(&self) -> Flow {
        self.facts.flow(&self.insn)
    }
}

/// The addresses that are the same place, since all but the last only jump on.
#[derive(Debug, Default)]
pub(crate) struct Chain(pub Vec<u64>);

impl Chain {
    /// The last.
    pub fn end(&self) -> u64 {
        self.0.last().copied().unwrap_or(0)
    }
}

impl<'a> Original<'a> {
    pub fn new(image: &'a Image) -> Original<'a> {
        let is_thunk =
            |name: &str| name.ends_with("_return_thunk") || name.starts_with("__x86_indirect_");
        let thunks = image.symbols.all().iter().filter(|symbol| is_thunk(&symbol.name));
        let registers = image.symbols.all().iter().filter_map(|symbol| {
            let name = symbol.name.strip_prefix("__x86_indirect_thunk_r")?;
            let number = match name {
                "ax" => 0,
                "cx" => 1,
                "dx" => 2,
                "bx" => 3,
                "bp" => 5,
                "si" => 6,
                "di" => 7,
                number => number.parse().ok().filter(|number| (8..16).contains(number))?,
            };
            Some((symbol.address, number))
        });
        Original {
            image,
            thunks: thunks.map(|symbol| symbol.address).collect(),
            registers: registers.collect(),
        }
    }

    /// What stands at `address`.
    pub fn at(&self, address: u64, facts: &mut FactsFactory) -> Option<At<'a>> {
        let bytes = self.image.bytes(address, 16)?;
        let (insn, facts) = facts.decode(bytes, 0, address)?;
        Some(At { insn, facts, bytes: &bytes[..insn.len()] })
    }

    /// The register that says where the call at `at` leads, if it is one of a thunk.
    pub fn thunk_register(&self, at: &At<'_>) -> Option<u8> {
        match at.flow() {
            Flow::Call(to) => self.registers.get(&to).copied(),
            _ => None,
        }
    }

    /// The branch of a static key at `address` that can still change.
    pub fn label(&self, address: u64) -> Option<&'a JumpLabel> {
        let label = self.image.tables.jump_label(address)?;
        (!self.image.is_sealed(label.key_address())).then_some(label)
    }

    /// Where control is that comes to `address`, jumps followed.
    pub fn chain(&self, address: u64, facts: &mut FactsFactory) -> Chain {
        let mut chain = vec![address];
        while chain.len() < LONGEST_CHAIN {
            let at = chain[chain.len() - 1];
            let next = self.at(at, facts).and_then(|found| self.goes_on(&found));
            match next {
                Some(next) if !chain.contains(&next) => chain.push(next),
                _ => break,
            }
        }
        Chain(chain)
    }

    /// Where an instruction leads that does nothing but lead there.
    fn goes_on(&self, found: &At<'_>) -> Option<u64> {
        let at = found.insn.ip();
        if self.label(at).is_some() || self.image.tables.static_call(at).is_some() {
            return None;
        }
        match found.flow() {
            Flow::Jump(to) => Some(to),
            _ => None,
        }
    }

    /// Whether the function at `address` gives the flags no meaning: a compiler made it.
    fn is_compiled(&self, address: u64) -> bool {
        let function = self.image.functions.starting(address);
        function.is_some_and(|function| function.entry != Entry::Plain)
    }

    /// Whether the code at `address` is that of such a function, or the cold part of one.
    fn is_compiled_around(&self, address: u64) -> bool {
        let function = self.image.functions.containing(address);
        function.is_some_and(|function| function.cold || function.entry != Entry::Plain)
    }

    /// Whether the flags are of no use to what comes from `address` on.
    pub fn flags_dead(&self, address: u64, facts: &mut FactsFactory) -> bool {
        let mut seen = FxHashSet::default();
        let mut work = vec![address];
        while let Some(at) = work.pop() {
            if !seen.insert(at) {
                continue;
            }
            if seen.len() > FLAGS_SEARCH {
                return false;
            }
            let Some(found) = self.at(at, facts) else { return false };
            if found.facts.reads().has_flags() {
                return false;
            }
            if let Some(exception) = self.image.tables.exception(at) {
                work.push(exception.fixup);
            }
            if let Some(label) = self.label(at) {
                work.extend([label.target, found.insn.next_ip()]);
                continue;
            }
            let calls_out = self.image.tables.static_call(at).is_some();
            let sets = found.facts.kills().has_flags();
            match found.flow() {
                _ if sets || calls_out => {}
                Flow::Next => work.push(found.insn.next_ip()),
                Flow::Jump(to) if self.thunks.contains(&to) && !self.is_compiled_around(at) => {
                    return false;
                }
                Flow::Call(to) | Flow::Jump(to) if self.thunks.contains(&to) => {}
                Flow::Call(to) if self.is_compiled(to) => {}
                Flow::Jump(to) if self.is_compiled(to) => {}
                Flow::Jump(to) => work.push(to),
                // Assembly may give something in the flags.
                Flow::IndirectJump | Flow::Return if !self.is_compiled_around(at) => return false,
                Flow::IndirectCall | Flow::IndirectJump | Flow::Return => {}
                // Halted or trapped: control goes on behind it, or nowhere.
                Flow::Stop if found.bytes == [0xf4] => work.push(found.insn.next_ip()),
                Flow::Stop => {
                    let bug = self.image.tables.bug(at);
                    work.extend(bug.filter(|bug| bug.goes_on()).map(|_| found.insn.next_ip()));
                }
                Flow::Call(_) | Flow::Branch(_) | Flow::Trap | Flow::Strange => return false,
            }
        }
        true
    }
}
