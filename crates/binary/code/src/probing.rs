//! What probes measure, and how a module is probed.

use std::borrow::Cow;
use std::collections::HashMap;

use fettle_abi::block::{MIRROR_BYTES, MirrorFrame};
use fettle_image::LinkAddr;
use fettle_lift::Function;

use crate::arguments::Arguments;
use crate::user_probe::UserProbe;

/// Bytes of a frame of the call-stack mirror.
const FRAME: i32 = size_of::<MirrorFrame>() as i32;

/// What probes measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub enum Mode {
    /// How often functions are entered and left.
    Count,
    /// Calls, total and self time of functions.
    Time,
    /// As [`Mode::Time`], and a record of every call.
    Events,
    /// As [`Mode::Time`] for one call in about 64 of functions that are called often.
    Sample,
    /// As [`Mode::Time`], in CPU time of the thread.
    Cpu,
    /// How often each basic block runs.
    Blocks,
    /// How often control goes along each edge between blocks.
    Edges,
    /// What the user probe makes of it.
    User,
    /// Locks, added up by the agent; only functions of locks have probes.
    Locks,
    /// Nothing: there are no probes, code is only laid out anew.
    Plain,
}

impl Mode {
    /// Every mode.
    pub const ALL: [Mode; 10] = [
        Mode::Events,
        Mode::Time,
        Mode::Cpu,
        Mode::Count,
        Mode::Sample,
        Mode::Blocks,
        Mode::Edges,
        Mode::User,
        Mode::Locks,
        Mode::Plain,
    ];

    /// Its name, for people and in files.
    pub const fn name(self) -> &'static str {
        match self {
            Mode::Count => "count",
            Mode::Time => "time",
            Mode::Cpu => "cpu",
            Mode::Events => "events",
            Mode::Sample => "sample",
            Mode::Blocks => "blocks",
            Mode::Edges => "edges",
            Mode::User => "own",
            Mode::Locks => "locks",
            Mode::Plain => "plain",
        }
    }

    /// The mode of that name.
    pub fn named(name: &str) -> Option<Mode> {
        Mode::ALL.into_iter().find(|mode| mode.name() == name)
    }

    /// Whether functions are measured from entry to exit, on the call-stack mirror.
    pub const fn is_timed(self) -> bool {
        matches!(self, Mode::Time | Mode::Events | Mode::Sample | Mode::Cpu)
    }

    /// Whether it is counted how many calls were made below each.
    pub const fn counts_below(self) -> bool {
        matches!(self, Mode::Time | Mode::Events | Mode::Cpu)
    }

    /// Whether exits are counted beside entries: `Accumulator::entries_and_exits`.
    pub const fn counts_exits(self) -> bool {
        matches!(self, Mode::Count)
    }

    /// Whether there are counters in the middle of functions.
    pub const fn has_counters(self) -> bool {
        matches!(self, Mode::Blocks | Mode::Edges)
    }

    /// Whether [`Depth`] can limit it.
    pub const fn has_depth(self) -> bool {
        matches!(self, Mode::Time | Mode::Events)
    }
}

/// How deeply calls are nested that are measured; deeper ones are as if they had no probes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Depth(u32);

impl Depth {
    /// As deep as the call-stack mirror has room.
    pub const ALL: Depth = Depth(MIRROR_BYTES - FRAME as u32);

    /// So many calls; at least one.
    pub fn new(calls: u32) -> Depth {
        // One frame's room is in use from the start on.
        let bytes = calls.max(1).saturating_add(1).saturating_mul(FRAME as u32);
        Depth(bytes.min(Depth::ALL.0))
    }

    /// Bytes of call-stack mirror in use from which on no frame is pushed.
    pub const fn limit(self) -> u32 {
        self.0
    }
}

/// What the probes of one function do.
#[derive(Clone, Copy, Debug)]
pub struct Probes<'a> {
    /// What they measure.
    pub mode: Mode,
    /// How deeply nested it is measured.
    pub depth: Depth,
    /// What they record of its arguments and result.
    pub arguments: Arguments,
    /// The user probe.
    pub user_probe: Option<&'a UserProbe>,
}

impl Probes<'_> {
    /// Probes that measure everything, without arguments.
    pub const fn new(mode: Mode) -> Probes<'static> {
        Probes { mode, depth: Depth::ALL, arguments: Arguments::NONE, user_probe: None }
    }

    /// Whether the agent does all of it, because it is too long to be inlined.
    pub fn by_agent(&self) -> bool {
        self.mode == Mode::Cpu || (self.mode == Mode::Events && !self.arguments.is_none())
    }
}

/// What probes do in a module.
#[derive(Clone, Debug)]
pub struct Probing<'a> {
    /// What they measure.
    pub mode: Mode,
    /// How deeply nested it is measured.
    pub depth: Depth,
    /// Functions whose arguments are recorded, by entry.
    pub arguments: Cow<'a, HashMap<LinkAddr, Arguments>>,
    /// The user probe, in the mode of that name.
    pub user_probe: Option<&'a UserProbe>,
}

impl Probing<'_> {
    /// Probes that measure everything, without arguments.
    pub fn new(mode: Mode) -> Probing<'static> {
        Probing { mode, depth: Depth::ALL, arguments: Cow::default(), user_probe: None }
    }

    /// Whether calls of `function` are counted once for entry and exit: every call that enters it
    /// leaves it.
    pub fn counts_once(&self, function: &Function) -> bool {
        self.mode.counts_exits() && function.is_always_left()
    }

    /// What the probes of the function at `entry` do.
    pub fn of(&self, entry: LinkAddr) -> Probes<'_> {
        let arguments = self.arguments.get(&entry).copied().unwrap_or_default();
        Probes { mode: self.mode, depth: self.depth, arguments, user_probe: self.user_probe }
    }
}
