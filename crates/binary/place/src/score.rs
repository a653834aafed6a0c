//! What an order of blocks is worth: the objective of the extended travelling salesman problem
//! (A. Newell and S. Pupyrev, Improved Basic Block Reordering, IEEE Transactions on Computers 69,
//! 2020).
//!
//! A way between blocks is worth all its passages if control falls through, a tenth of them at
//! most if it is a short jump, less the longer it is, and nothing beyond a kilobyte.

/// Worth of a passage that jumps over no distance at all.
const JUMP: f64 = 0.1;
/// Bytes forward and backward at which a jump is worth nothing any more.
const FORWARD: f64 = 1024.0;
const BACKWARD: f64 = 640.0;

/// What one passage is worth from a block that ends at `end` to one that starts at `start`.
pub fn worth(end: u64, start: u64) -> f64 {
    if end == start {
        1.0
    } else if start > end {
        JUMP * (1.0 - (start - end) as f64 / FORWARD).max(0.0)
    } else {
        JUMP * (1.0 - (end - start) as f64 / BACKWARD).max(0.0)
    }
}

/// What is ordered: sizes of blocks, and ways between them with the number of passages.
#[derive(Clone, Debug, Default)]
pub struct Graph {
    /// Bytes of each block.
    pub sizes: Vec<u64>,
    /// From, to, passages.
    pub ways: Vec<(usize, usize, u64)>,
}

impl Graph {
    /// What `order` is worth; blocks that are not in it are nowhere.
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
