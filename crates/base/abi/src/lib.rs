//! Layouts shared between Fettle and the code it puts into other processes.
//!
//! Everything here is `#[repr(C)]`, read and written by more than one process, and sometimes by
//! machine code that `fettle-rewrite` emits: a field's offset is part of the format. Each layout
//! has size and offset assertions, and [`VERSION`] changes with any of them.
//!
//! The memory a probed thread writes to is its *thread block*, one slot of the session's shared
//! memory. The thread's `gs` base points at the block, so that probe code reaches every field by
//! one segment-relative operand and needs no register:
//!
//! ```text
//! gs:0            ThreadBlock: ring cursors, depth of the call-stack mirror, losses
//! gs:MIRROR       call-stack mirror: one MirrorFrame per probed activation in progress
//! gs:RING         ring of records, a power of two in size
//! gs:COUNTERS     accumulators and counters, indexed by the identifiers in the code
//! ```
#![no_std]
#![forbid(unsafe_code)]

pub mod block;
pub mod events;
mod field;
pub mod locking;
pub mod locks;
pub mod record;
pub mod ring;
pub mod rpc;
pub mod sensor;

pub use field::FieldType;

/// Version of every layout in this crate; a reader refuses other versions.
pub const VERSION: u32 = 1;

/// First eight bytes of a thread block and of a sensor: `FETTLE\0\1`, little-endian.
pub const MAGIC: u64 = u64::from_le_bytes(*b"FETTLE\0\x01");
