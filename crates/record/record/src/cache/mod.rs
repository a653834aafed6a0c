//! Plans kept on disk, so that a file is lifted, rewritten and checked once and not once a
//! recording.
//!
//! [`folder`] keeps entries of bytes; [`plans`] says what makes a plan the one that is wanted,
//! and turns plans into bytes and back. Whatever goes wrong with the folder or an entry only
//! means that the work is done again.

pub mod folder;
pub mod plans;

pub use folder::{Entry, Folder, default_path};
pub use plans::{Plans, Wanted};
