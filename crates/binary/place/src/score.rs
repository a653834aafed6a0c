//! The value of an order of blocks: the objective of the extended travelling salesman problem (A.
//! Newell and S. Pupyrev, Improved Basic Block Reordering, IEEE Transactions on Computers 69,
//! 2020).
//!
//! An edge between blocks counts in full if control falls through, a tenth at most if it is a short
//! jump, less the longer it is, and nothing beyond a kilobyte.

/// The value of a jump over no distance at all.
const JUMP: f64 = 0.1;
/// Bytes forward and backward at which a jump has no value any more.
const FORWARD: f64 = 1024.0;
const BACKWARD: f64 = 640.0;

/// The value of one transition from a block that ends at `end` to one that starts at `start`.
pub fn worth(end: u64, start: u64) -> f64 {
    if end == start {
        1.0
    } else if start > end {
        JUMP * (1.0 - (start - end) as f64 / FORWARD).max(0.0)
    } else {
        JUMP * (1.0 - (end - start) as f64 / BACKWARD).max(0.0)
    }
}

/// What is ordered: sizes of blocks, and edges between them with their counts.
#[derive(Clone, Debug, Default)]
pub struct Graph {
    /// Bytes of each block.
    pub sizes: Vec<u64>,
    /// From, to, count.
    pub ways: Vec<(usize, usize, u64)>,
}

impl Graph {
    /// The value of `order`; blocks that are not in it do not count.
    pub fn score(&self, order: &[usize]) -> f64 {
        let mut at = vec![None; self.sizes.len()];
        let mut end = 0;
        for block in order {
            at[*block] = Some(end);
            end += self.sizes[*block];
        }
        let ways = self.ways.iter().filter_map(|(from, to, count)| {
            Some(worth(at[*from]? + self.sizes[*from], at[*to]?) * *count as f64)
        });
        ways.sum()
    }
}
