//! Functions that return in two processes.

use fettle_image::unversioned;

/// Functions whose callers go on in two processes.
pub(crate) const FORKS: [&str; 7] =
    ["fork", "_Fork", "__fork", "__libc_fork", "__GI___fork", "forkpty", "daemon"];

pub(crate) fn is_fork(name: &str) -> bool {
    FORKS.contains(&unversioned(name))
}
