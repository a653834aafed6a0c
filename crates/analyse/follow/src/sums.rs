//! Sums of times, and what their means are.

/// Sums of a piece.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sums {
    pub count: u64,
    pub sum: f64,
    pub squares: f64,
}

impl Sums {
    /// Takes in a time.
    pub fn add(&mut self, ns: u64) {
        self.count += 1;
        self.sum += ns as f64;
        self.squares += ns as f64 * ns as f64;
    }

    /// Takes in what another added up.
    pub fn merge(&mut self, other: Sums) {
        self.count += other.count;
        self.sum += other.sum;
        self.squares += other.squares;
    }

    /// Mean and its squared standard error, over `of` of which those not counted have none.
    pub(crate) fn mean(&self, of: u64) -> (f64, Option<f64>) {
        if of == 0 {
            return (0.0, None);
        }
        let mean = self.sum / of as f64;
        let spread = (self.squares - mean * self.sum).max(0.0);
        let error = (of > 1).then(|| spread / (of - 1) as f64 / of as f64);
        (mean, error)
    }
}
