//! Tables that an analysis returns.

use arrow_array::RecordBatch;

/// A table that an analysis returned.
#[derive(Clone, Debug)]
pub struct Returned {
    /// What it shows; may be empty.
    pub title: String,
    /// Its rows.
    pub batches: Vec<RecordBatch>,
}
