//! A paper, as the others describe it.

use anyhow::Result;

use super::sources::Sources;
use super::table::Table;

/// A paper.
pub struct Paper {
    /// Its name on the command line.
    pub name: &'static str,
    /// Its page's.
    pub page: &'static str,
    /// Its title.
    pub title: &'static str,
    /// Measures its tables.
    pub tables: fn(&Sources) -> Vec<Result<Table>>,
    /// Tables and figures without a counterpart here, and why.
    pub missing: &'static [(&'static str, &'static str)],
}
