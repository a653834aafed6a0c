//! Where programs at calls keep what they have found out: places of the stack.

use crate::code::slot;

/// Number of the inode.
pub const INODE: i16 = slot(0);

/// Its mode.
pub const MODE: i16 = slot(1);

/// Flags that are found out.
pub(crate) const FOUND: i16 = slot(2);

/// The first slot that is free.
pub const FIRST: i16 = 3;
