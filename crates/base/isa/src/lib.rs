//! What Fettle needs to know of x86-64 instructions beyond decoding them: which registers and
//! flags they read and write, and how to write the few that probes are made of.
#![forbid(unsafe_code)]

pub mod asm;
pub mod effects;
pub mod facts;
pub mod forms;
pub mod insn;
pub mod jump;
pub mod regs;

pub use effects::{EffectsFactory, Flow, flow};
pub use facts::{Facts, FactsFactory};
pub use forms::{Forms, Learn};
pub use insn::{Decides, Insn};
pub use jump::Jump;
pub use regs::{Gpr, RegSet};
