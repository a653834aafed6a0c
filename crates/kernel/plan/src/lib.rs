//! Rewritten text for a running kernel as data: what the emitter of kernel functions makes, and what the
//! module writer turns into a file that the kernel's own loader takes.
//!
//! Addresses of originals are those of this boot. Text is placed by the module's loader, so all that
//! depends on its place is a [`Reference`].
#![forbid(unsafe_code)]

use serde::{Deserialize, Serialize};

/// Everything that one module brings into the kernel.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// The kernel that it was made for, as `uname -r` says.
    pub release: String,
    /// The functions that get rewritten text.
    pub functions: Vec<Function>,
    /// Their parts in the order in which they lie in the module's text: hot ones first.
    pub parts: Vec<Part>,
    /// Modules that originals lie in: they must not go while the rewritten text is there.
    pub modules: Vec<HeldModule>,
    /// How many per-CPU counters the text increments: 64 bits each.
    pub counters: u32,
}

impl Plan {
    /// Has calls and jumps between functions of the plan go by the originals' entries, so that a tracer
    /// that is attached there sees them, too. A function that callers are not led to keeps its own.
    pub fn call_by_originals(&mut self) {
        let entries: std::collections::HashMap<u32, u64> = self
            .functions
            .iter()
            .filter(|function| function.patch.is_some())
            .map(|function| (function.entry, function.original))
            .collect();
        for part in &mut self.parts {
            let own = self.functions.get(part.function as usize).map(|function| function.entry);
            for reference in &mut part.references {
                let Value::Relative { target, .. } = &mut reference.value else { continue };
                let Target::Part { part: entry, offset: 0 } = *target else { continue };
                if let Some(original) = entries.get(&entry).filter(|_| own != Some(entry)) {
                    *target = Target::Kernel(*original);
                }
            }
        }
    }
}

/// A module of the kernel that originals of a plan lie in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldModule {
    /// Its name.
    pub name: String,
    /// Where its `struct module` lies in this boot.
    pub address: u64,
}

/// A function of the kernel that gets rewritten text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Function {
    /// Its symbol. The rewritten text bears the same name.
    pub name: String,
    /// Where the original begins, in this boot.
    pub original: u64,
    /// The original's length in bytes.
    pub size: u32,
    /// The part that its entry lies in, an index into [`Plan::parts`]; it lies at that part's begin.
    pub entry: u32,
    /// How callers outside the plan come to the rewritten text; `None` for a function that only calls
    /// inside the plan lead to.
    pub patch: Option<EntryPatch>,
}

/// The jump that leads from an original to its rewritten text.
///
/// It lies behind the original's fentry nop, so that a tracer that is attached to it still sees each
/// call, and leads behind the rewritten text's fentry nop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct EntryPatch {
    /// Where the five bytes of the jump go: an address of this boot.
    pub at: u64,
    /// What stands there, and must still stand there when it is installed.
    pub replaced: [u8; 5],
    /// Of the instructions that the five bytes replace, the offsets from [`EntryPatch::at`] at which
    /// the second and later ones begin: no thread may stand there when the jump is written.
    pub inside: [u8; 4],
    /// How many of [`EntryPatch::inside`] count.
    pub insides: u8,
    /// Where the jump leads: an offset in the function's entry part.
    pub to: u32,
}

/// A piece of rewritten text without gaps: a function's hot blocks, its cold ones, or all of it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// Which function it belongs to, an index into [`Plan::functions`].
    pub function: u32,
    /// Its bytes. Where a [`Reference`] lies, they are zero.
    pub text: Vec<u8>,
    /// A power of two, in bytes.
    pub align: u32,
    /// What depends on where it lies.
    pub references: Vec<Reference>,
    /// For each instruction and each return address that has a counterpart in the original: what it
    /// is there. By [`Origin::at`].
    pub origins: Vec<Origin>,
    /// Where a call of the function is open, if its time is taken: by [`OpenSpan::from`].
    pub open: Vec<OpenSpan>,
    /// Unwind rows, by [`OrcRow::at`]. Each holds until the next.
    pub orc: Vec<OrcRow>,
    /// The fentry nop of its function, which the kernel's tracer may turn into a call: an offset.
    pub fentry: Option<u32>,
    /// What happens to faults in its instructions.
    pub exceptions: Vec<Exception>,
    /// Branches that a static key switches.
    pub jump_labels: Vec<JumpLabel>,
    /// Calls that `static_call_update` changes.
    pub static_calls: Vec<StaticCall>,
    /// `ud2`s that are warnings or bugs.
    pub bugs: Vec<Bug>,
}

/// A place in the rewritten text or in the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Target {
    /// An address of this boot.
    Kernel(u64),
    /// A place in the plan's own text.
    Part {
        /// An index into [`Plan::parts`].
        part: u32,
        /// Bytes from its begin.
        offset: u32,
    },
}

/// Bytes of the text that depend on where it lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reference {
    /// Where they begin, as an offset in the part.
    pub at: u32,
    /// What goes there.
    pub value: Value,
}

/// What goes into a [`Reference`]'s bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Value {
    /// Four bytes: the distance from the end of the instruction, which lies `tail` bytes behind the
    /// four, to the target.
    Relative {
        /// Where it leads.
        target: Target,
        /// Bytes of the instruction behind the four.
        tail: u8,
    },
    /// Four bytes, sign-extended: the target's address.
    Absolute32(Target),
    /// Eight bytes: the target's address.
    Absolute64(Target),
    /// Four bytes, sign-extended: the per-CPU offset of a counter, for an instruction that reaches
    /// it through `gs`.
    Counter(u32),
    /// The same of what the time-stamp counter exceeds virtual time by on that processor.
    VirtualBase,
}

/// Text where a call of its function has begun and has not ended: a thread that is deoptimised there leaves a call
/// whose time nothing else takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenSpan {
    /// From this offset in the part on.
    pub from: u32,
    /// Up to this one, which does not belong to it.
    pub to: u32,
    /// What takes the time of such a call.
    pub counters: OpenCounters,
}

/// Numbers of the counters of calls that are open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenCounters {
    /// Calls that threads were deoptimised in.
    pub deoptimised: u32,
    /// Ticks; virtual ticks.
    pub ticks: [u32; 2],
}

/// An instruction or return address of the rewritten text, and what it is in the original.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// An offset in the part.
    pub at: u32,
    /// The counterpart's address in this boot.
    pub original: u64,
}

/// One row of the kernel's unwind table: `struct orc_entry`, six bytes, as the running kernel has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct OrcRow {
    /// From which offset in the part on it holds.
    pub at: u32,
    /// Copied from the original's row, bit for bit.
    pub entry: [u8; 6],
}

/// One `struct exception_table_entry`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exception {
    /// The instruction that may fault: an offset in the part.
    pub at: u32,
    /// Where to go on.
    pub fixup: Target,
    /// The entry's `data`, which says how; copied.
    pub data: u32,
}

/// One `struct jump_entry`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct JumpLabel {
    /// The nop or jump: an offset in the part.
    pub at: u32,
    /// Where it jumps when it is switched.
    pub target: Target,
    /// The static key's address, with the two flag bits of `jump_entry.key`.
    pub key: u64,
}

/// One `struct static_call_site`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct StaticCall {
    /// The call or jump: an offset in the part.
    pub at: u32,
    /// The key's address, with the two flag bits of `static_call_site.key`.
    pub key: u64,
}

/// One `struct bug_entry`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bug {
    /// The `ud2`: an offset in the part.
    pub at: u32,
    /// Address of the file's name in the kernel, or 0.
    pub file: u64,
    /// Line in that file.
    pub line: u16,
    /// Its flags, copied, done-flag included: what has warned once stays silent.
    pub flags: u16,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_go_by_originals_that_lead_back() {
        let patch = EntryPatch { at: 5, replaced: [0; 5], inside: [0; 4], insides: 0, to: 5 };
        let function = |entry: u32, patch| Function {
            name: String::new(),
            original: 0x1000 * u64::from(entry + 1),
            size: 16,
            entry,
            patch,
        };
        let to = |part| Reference {
            at: 4 * part,
            value: Value::Relative { target: Target::Part { part, offset: 0 }, tail: 0 },
        };
        let caller = Part { references: vec![to(0), to(1), to(2)], ..Part::default() };
        let mut plan = Plan {
            functions: vec![function(0, Some(patch)), function(1, Some(patch)), function(2, None)],
            parts: vec![caller, Part::default(), Part::default()],
            ..Plan::default()
        };
        plan.call_by_originals();
        let targets: Vec<Target> = plan.parts[0]
            .references
            .iter()
            .map(|reference| match reference.value {
                Value::Relative { target, .. } => target,
                _ => panic!("they are relative"),
            })
            .collect();
        let own = |part| Target::Part { part, offset: 0 };
        assert_eq!(targets, [own(0), Target::Kernel(0x2000), own(2)]);
    }
}
