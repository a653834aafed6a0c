//! What a comparison of original and rewritten text has shown, and when it has shown enough.
//!
//! Rounds are taken while the answer is open, so the interval is one that holds whenever they end.

use std::time::Duration;

use fettle_stats::{Interval, anytime_mean};

/// The unit of work that CPU time is related to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkUnit {
    /// A call that reads or writes.
    ReadOrWrite,
    /// A system call: servers may use others (`recvmsg`) for what they do.
    SystemCall,
    /// The unit of a command's number.
    Given,
}

/// The result of a comparison.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// CPU time for a unit of work, rewritten over original, of each round.
    pub ratios: Vec<f64>,
    /// Their geometric mean.
    pub ratio: f64,
    /// Lower end of its 95 % interval, which holds whenever rounds end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// What a unit of work was.
    pub unit: WorkUnit,
    /// Nanoseconds of CPU time for a unit of work, by the original text and by the rewritten.
    pub ns: (f64, f64),
    /// Rounds with too little work to be used.
    pub idle: usize,
    /// How long threads were paused for each switch.
    pub stops: Vec<Duration>,
}

impl Measured {
    /// Whether rewritten text is faster for certain, as far as the interval shows.
    pub fn is_gain(&self) -> bool {
        self.high < 1.0
    }

    /// The difference that rewritten text makes to CPU time, with its interval.
    pub fn percent(&self) -> String {
        let percent = |ratio: f64| (ratio - 1.0) * 100.0;
        let (ratio, low, high) = (percent(self.ratio), percent(self.low), percent(self.high));
        format!("{ratio:+.1} % of CPU time [95 % interval {low:+.1} to {high:+.1}]")
    }

    /// Whether rewritten text is slower for certain.
    pub fn is_loss(&self) -> bool {
        self.low > 1.0
    }

    /// The result of this and another comparison of the same code together.
    pub fn with(&self, other: &Measured) -> Measured {
        let ratios = self.ratios.iter().chain(&other.ratios);
        let rounds: Vec<(f64, f64)> = ratios.map(|ratio| (1.0, *ratio)).collect();
        let mean = |old: f64, new: f64| {
            let (many, more) = (self.ratios.len() as f64, other.ratios.len() as f64);
            (old * many + new * more) / (many + more)
        };
        Measured {
            ns: (mean(self.ns.0, other.ns.0), mean(self.ns.1, other.ns.1)),
            idle: self.idle + other.idle,
            stops: self.stops.iter().chain(&other.stops).copied().collect(),
            ..evaluate(&rounds, self.unit)
        }
    }

    /// What it says.
    pub fn verdict(&self) -> Verdict {
        if self.is_gain() {
            Verdict::Faster
        } else if self.is_loss() {
            Verdict::Slower
        } else if self.within() <= EQUAL {
            Verdict::Equal
        } else {
            Verdict::Undecided
        }
    }

    /// The largest difference that its interval leaves possible, as a share.
    pub fn within(&self) -> f64 {
        (1.0 - self.low).max(self.high - 1.0)
    }

    /// Whether rewritten text gains less than it did before, for certain.
    pub fn is_less_than(&self, before: &Measured) -> bool {
        self.low > before.high
    }
}

/// The word for what a comparison has shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// All of the interval is a gain.
    Faster,
    /// All of it is a loss.
    Slower,
    /// The difference, if there is one, is less than [`EQUAL`].
    Equal,
    /// The interval is wider than that, and has no difference in it.
    Undecided,
}

impl Verdict {
    /// The word in output for programs.
    pub fn code(self) -> &'static str {
        match self {
            Verdict::Faster => "faster",
            Verdict::Slower => "slower",
            Verdict::Equal => "equal",
            Verdict::Undecided => "undecided",
        }
    }
}

/// A smaller difference than this share counts as none.
pub const EQUAL: f64 = 0.01;
/// With fewer rounds the interval has no use.
pub const LEAST_ROUNDS: usize = 5;

/// How many rounds a comparison takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rounds {
    /// So many, unless the answer is clear earlier.
    pub enough: usize,
    /// So many at most, while a gain seems likely and is not certain.
    pub most: usize,
}

impl Rounds {
    /// So many turns of rounds at most, where one alone has too little work to be used.
    pub(crate) fn longest(self) -> usize {
        2 * self.enough.max(self.most)
    }

    /// Whether no further round is needed.
    pub fn are_over(&self, measured: &Measured) -> bool {
        let taken = measured.ratios.len();
        if taken < LEAST_ROUNDS {
            return false;
        }
        let is_promising = measured.ratio < 1.0 - EQUAL / 2.0;
        measured.verdict() != Verdict::Undecided
            || taken >= self.enough.max(self.most)
            || (taken >= self.enough && !is_promising)
    }
}

/// Mean and interval of what rounds have shown, one at least: cost by original text, cost by rewritten
/// text.
pub fn evaluate(rounds: &[(f64, f64)], unit: WorkUnit) -> Measured {
    let count = rounds.len() as f64;
    let ratios: Vec<f64> = rounds.iter().map(|(old, new)| new / old).collect();
    let Interval { value: ratio, low, high } = anytime_mean(&ratios);
    let average = |values: &mut dyn Iterator<Item = f64>| values.sum::<f64>() / count;
    let ns = (
        average(&mut rounds.iter().map(|round| round.0)),
        average(&mut rounds.iter().map(|round| round.1)),
    );
    Measured { ratios, ratio, low, high, unit, ns, idle: 0, stops: Vec::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Normally distributed numbers (Box and Muller) by a generator of Lehmer's kind.
    struct Noise(u64);

    impl Noise {
        fn uniform(&mut self) -> f64 {
            self.0 = self.0 * 48_271 % 0x7fff_ffff;
            self.0 as f64 / f64::from(0x7fff_ffff)
        }

        fn next(&mut self) -> f64 {
            let (a, b) = (self.uniform(), self.uniform());
            (-2.0 * a.ln()).sqrt() * (std::f64::consts::TAU * b).cos()
        }
    }

    /// Takes rounds of a change with noise until they are over.
    fn compared(gain: f64, noise: f64, by: &mut Noise) -> Measured {
        let limit = Rounds { enough: 20, most: 60 };
        let mut rounds = Vec::new();
        loop {
            rounds.push((1.0, (gain + noise * by.next()).exp()));
            let measured = evaluate(&rounds, WorkUnit::Given);
            if limit.are_over(&measured) {
                return measured;
            }
        }
    }

    #[test]
    fn who_looks_after_each_round_errs_as_seldom_as_is_said() {
        let mut by = Noise(20_261_126);
        for noise in [0.01, 0.03, 0.08] {
            let wrong = (0..1000).filter(|_| {
                let verdict = compared(0.0, noise, &mut by).verdict();
                matches!(verdict, Verdict::Faster | Verdict::Slower)
            });
            let wrong = wrong.count();
            assert!(wrong <= 50, "{wrong} of 1000 at {noise}");
        }
        for (change, word) in [(-0.05, Verdict::Faster), (0.05, Verdict::Slower)] {
            let right =
                (0..200).filter(|_| compared(change, 0.02, &mut by).verdict() == word).count();
            assert!(right >= 190, "{right} of 200 are {word:?}");
        }
        let equal =
            (0..200).filter(|_| compared(0.0, 0.005, &mut by).verdict() == Verdict::Equal).count();
        assert!(equal >= 180, "{equal} of 200 are equal");
    }

    #[test]
    fn clear_answers_need_few_rounds_and_likely_ones_more() {
        let mut by = Noise(7);
        assert!(compared(-0.2, 0.01, &mut by).ratios.len() <= 6);
        let many = (0..50).map(|_| compared(-0.02, 0.03, &mut by).ratios.len()).max();
        assert!(many.is_some_and(|many| many > 20));
        let hopeless = compared(0.02, 0.2, &mut by);
        assert!(hopeless.ratios.len() >= 20 && hopeless.verdict() == Verdict::Undecided);
    }

    #[test]
    fn one_round_says_nothing() {
        let one = evaluate(&[(1.0, 0.5)], WorkUnit::Given);
        assert_eq!((one.low, one.high, one.verdict()), (0.0, f64::INFINITY, Verdict::Undecided));
    }

    #[test]
    fn gains_are_told_from_noise() {
        let noisy = |gain: f64| -> Vec<(f64, f64)> {
            (0..20)
                .map(|i| {
                    let noise = 1.0 + 0.01 * f64::from(i % 5 - 2);
                    (100.0, 100.0 * gain * noise)
                })
                .collect()
        };
        let gain = evaluate(&noisy(0.95), WorkUnit::Given);
        assert!(gain.is_gain() && (gain.ratio - 0.95).abs() < 0.001, "{gain:?}");
        assert!(gain.low < gain.ratio && gain.ratio < gain.high);
        let none = evaluate(&noisy(1.0), WorkUnit::Given);
        assert!(!none.is_gain() && none.low < 1.0 && none.high > 1.0, "{none:?}");
        let loss = evaluate(&noisy(1.05), WorkUnit::Given);
        assert!(loss.is_loss() && !loss.is_gain() && !none.is_loss());
    }

    #[test]
    fn a_disturbed_comparison_is_outweighed_by_another() {
        let disturbed =
            [(100.0, 60.0), (100.0, 95.0), (100.0, 130.0), (100.0, 80.0), (100.0, 75.0)];
        let disturbed = evaluate(&disturbed, WorkUnit::Given);
        assert!(!disturbed.is_gain() && !disturbed.is_loss(), "{disturbed:?}");
        let more = evaluate(&[(100.0, 78.0); 10], WorkUnit::Given);
        let both = disturbed.with(&more);
        assert!(both.is_gain() && both.ratios.len() == 15, "{both:?}");
        assert!((both.ns.1 - (disturbed.ns.1 + 2.0 * more.ns.1) / 3.0).abs() < 1e-9);
    }
}
