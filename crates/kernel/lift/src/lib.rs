//! Functions of a running kernel in the lifted form of `fettle-lift`.
//!
//! Kernel text differs from a program's in what an instruction leads to: returns and indirect calls go
//! through thunks, static keys make branches of nops, a fault may go on at a fixup, a `ud2` may only
//! warn, and `hlt` comes back. On the other hand there are no jump tables (retpolines forbid them), no
//! unwinding exceptions, and no red zone. [`step`] says what one instruction leads to, [`follow`] lifts a
//! function by that, and [`noreturn`] finds the functions that no path leaves.
//!
//! What is not certain is left unmodified, with a [`Reason`].
#![forbid(unsafe_code)]

pub mod flags;
pub mod follow;
pub mod noreturn;
pub mod patch;
pub mod reason;
pub mod step;

pub use follow::{End, KernelFunction, Lifter};
pub use noreturn::NoReturn;
pub use patch::Room;
pub use reason::{Reason, Skipped};
