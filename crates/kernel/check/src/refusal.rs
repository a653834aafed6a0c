//! What the checker does not agree with.

use std::fmt;

use fettle_kernel_plan::Plan;

/// What is not certain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Why {
    /// The plan is of another kernel, or its parts belong to no function.
    Plan,
    /// What it says of a function is not what the kernel has.
    Function,
    /// The jump to rewritten text does not lie where it may.
    Patch,
    /// Control leaves a part's text.
    Outside,
    /// Bytes that are no instruction, or one that is not followed.
    Undecodable,
    /// Another instruction than the original's.
    Instruction,
    /// A reference that is missing, or leads elsewhere.
    Reference,
    /// A branch on another condition.
    Condition,
    /// Control goes elsewhere than in the original.
    Way,
    /// One place of rewritten text for two of the original.
    TwoOriginals,
    /// An origin that is missing, or another.
    Origin,
    /// An unwind row that is not the original's.
    Unwind,
    /// An entry of the exception table that is missing, or another.
    Exception,
    /// A branch of a static key that is missing, or another.
    JumpLabel,
    /// A static call that is missing, or another.
    StaticCall,
    /// An entry of the bug table that is missing, or another.
    Bug,
    /// The place for tracers is not where it should be.
    Fentry,
    /// A counter that is not the plan's, counts twice, or stands where it may not.
    Counter,
    /// A counter where the flags are needed.
    Flags,
    /// Bytes that control does not come to, and that are no traps.
    Unreached,
    /// The plan says something of a place that control does not come to.
    Stray,
}

impl Why {
    /// One short phrase.
    pub const fn describe(self) -> &'static str {
        match self {
            Why::Plan => "the plan is not one of this kernel",
            Why::Function => "the function is not what the kernel has",
            Why::Patch => "the jump to rewritten text lies where it may not",
            Why::Outside => "control leaves the text",
            Why::Undecodable => "an instruction that is not known",
            Why::Instruction => "another instruction than the original's",
            Why::Reference => "a reference that leads elsewhere",
            Why::Condition => "a branch on another condition",
            Why::Way => "control goes elsewhere than in the original",
            Why::TwoOriginals => "two places of the original in one",
            Why::Origin => "an origin that is not the place's",
            Why::Unwind => "an unwind row that is not the original's",
            Why::Exception => "a fault that goes on elsewhere",
            Why::JumpLabel => "a static key's branch that is not the original's",
            Why::StaticCall => "a static call that is not the original's",
            Why::Bug => "a trap that is not the original's",
            Why::Fentry => "the place for tracers is elsewhere",
            Why::Counter => "a counter that may not stand there",
            Why::Flags => "a counter where the flags are needed",
            Why::Unreached => "code that nothing leads to",
            Why::Stray => "an entry for a place that nothing leads to",
        }
    }
}

/// A place that is not certain to be right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The function.
    pub function: String,
    /// The part.
    pub part: u32,
    /// Offset in it.
    pub offset: u32,
    /// What the place should be in the original.
    pub original: u64,
    /// What is not certain.
    pub why: Why,
}

impl Refusal {
    /// All of a function.
    pub(crate) fn of(plan: &Plan, function: usize, why: Why) -> Refusal {
        let of = &plan.functions[function];
        Refusal { function: of.name.clone(), part: of.entry, offset: 0, original: of.original, why }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Refusal { function, part, offset, original, why } = self;
        let why = why.describe();
        write!(f, "{function}: {why} (part {part} + {offset:#x}, original {original:#x})")
    }
}

impl std::error::Error for Refusal {}
