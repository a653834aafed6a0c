//! Why a function of the kernel is left unmodified.

/// Why a function of the kernel is left unmodified.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Reason {
    /// There is no such function, or several have the name.
    NoFunction,
    /// It does not begin with the nop of the kernel's tracer: assembly, or code that must not be traced.
    NoFentry,
    /// A tracer is attached to it.
    Attached,
    /// The kernel forbids probes there (noinstr, kprobe blacklist).
    Blacklisted,
    /// It lies outside of the kernel's text.
    NotText,
    /// It leads into the text of the kernel's start, which is gone.
    InitText,
    /// Bytes that are no instruction.
    Undecodable,
    /// A jump into the middle of an instruction.
    OverlappingInstructions,
    /// Control runs past its end.
    RunsOffEnd,
    /// A far transfer, transaction or interrupt.
    StrangeFlow,
    /// A jump through a table.
    JumpTable,
    /// A breakpoint, or a jump out of the kernel's text: a probe is in it.
    Probed,
    /// A static key's branch or a static call in a form that is not known.
    StrangeSite,
    /// A return or indirect branch that is safe from speculation only where it lies now (indirect target
    /// selection).
    SpeculationPlace,
    /// A fault's fixup at an instruction that also jumps.
    StrangeFixup,
    /// A cold part that several functions lead to.
    SharedCold,
    /// `loop`, `jrcxz` or their like, which reach no further than 127 bytes.
    CounterJump,
    /// Behind its fentry nop there is no room for a jump: control comes to its middle.
    CrowdedEntry,
    /// Its counters would need a stack slot where unwinding could not follow.
    Unwind,
    /// It changes the segment `gs`, through which counters are reached.
    ChangesGs,
    /// A counter would separate `sti` from the instruction that it protects.
    InterruptShadow,
    /// Its edges cannot all be counted.
    EdgesHidden,
    /// The order of blocks does not have each of its blocks once, the entry at the begin of a chunk.
    Order,
    /// The checker did not agree with the rewritten text.
    CheckFailed,
}

impl Reason {
    /// One short phrase for tables.
    pub const fn describe(self) -> &'static str {
        match self {
            Reason::NoFunction => "no function, or several, of that name",
            Reason::NoFentry => "no tracer nop at its entry (assembly, or not traceable)",
            Reason::Attached => "a tracer is attached to it",
            Reason::Blacklisted => "the kernel forbids probes in it",
            Reason::NotText => "it lies outside of the kernel's text",
            Reason::InitText => "it leads into text of the kernel's start",
            Reason::Undecodable => "bytes that are no instruction",
            Reason::OverlappingInstructions => "a jump into the middle of an instruction",
            Reason::RunsOffEnd => "control runs past its end",
            Reason::StrangeFlow => "a far transfer, transaction or interrupt",
            Reason::JumpTable => "a jump through a table",
            Reason::Probed => "a probe is in it",
            Reason::StrangeSite => "a static key or static call in an unknown form",
            Reason::SpeculationPlace => "a branch that is safe from speculation only in its place",
            Reason::StrangeFixup => "a fault's fixup at a jump",
            Reason::SharedCold => "a cold part that several functions lead to",
            Reason::CounterJump => "a jump that cannot reach far (loop, jrcxz)",
            Reason::CrowdedEntry => "no room for a jump at its entry",
            Reason::Unwind => "unwinding could not follow its counters",
            Reason::ChangesGs => "it changes the segment that counters are reached through",
            Reason::InterruptShadow => "a counter would stand in the shadow of sti",
            Reason::EdgesHidden => "edges that cannot be counted",
            Reason::Order => "an order of blocks that is not one of its own",
            Reason::CheckFailed => "the checker did not agree with the rewritten text",
        }
    }
}

/// A function that is left unmodified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skipped {
    /// Its symbol.
    pub name: String,
    /// Where it begins.
    pub entry: u64,
    /// Why.
    pub reason: Reason,
    /// The address that decided it.
    pub at: u64,
}
