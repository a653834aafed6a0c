//! The layout of the helper that each process is given.

use fettle_types::PAGE;

use fettle_live::Prot;
use fettle_rewrite::find_object::Region as Known;

pub(super) const CODE_LEN: u64 = PAGE;

/// Where in the helper's code page the code before `_dl_find_object` lies.
pub(super) const FIND_OBJECT: u64 = 0x400;

pub(super) const REGIONS_LEN: u64 = 4 * PAGE;

/// So many libraries with rewritten text may be open at once.
pub const REGIONS: usize = (REGIONS_LEN / Known::SIZE) as usize - 1;

/// Longer lists of libraries are taken for broken ones.
pub(super) const LONGEST_LIST: usize = 4096;

pub(crate) const CODE: Prot = Prot { read: true, write: false, exec: true };

pub(crate) const CONSTANTS: Prot = Prot { read: true, write: false, exec: false };

pub(crate) const DATA: Prot = Prot { read: true, write: true, exec: false };
