//! How much more often one thing comes with another: tables of two by two, exactly.

/// How many things are bad or good, and have a feature or not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TwoByTwo {
    /// Bad ones with the feature.
    pub bad_with: u64,
    /// Good ones with it.
    pub good_with: u64,
    /// Bad ones without it.
    pub bad_without: u64,
    /// Good ones without it.
    pub good_without: u64,
}

/// The odds of being bad with a feature, over those without it, as natural logarithms.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LogOdds {
    /// The estimate, with half a thing added to each cell (Haldane), so that it is always finite.
    pub value: f64,
    /// It is not less than this in 97.5 of 100 cases; minus infinity if nothing says so.
    pub low: f64,
    /// It is not more than this in 97.5 of 100 cases; infinity if nothing says so.
    pub high: f64,
}

/// Bounds between which exact ones are searched: odds of e^±40 are as good as infinite.
const FARTHEST: f64 = 40.0;

impl TwoByTwo {
    fn with(&self) -> u64 {
        self.bad_with + self.good_with
    }

    fn without(&self) -> u64 {
        self.bad_without + self.good_without
    }

    fn bad(&self) -> u64 {
        self.bad_with + self.bad_without
    }

    /// How alike the bad ones and those with the feature are: 1 if they are the same, 0 if none is both (Ochiai).
    pub fn ochiai(&self) -> f64 {
        let both = self.bad_with as f64;
        let of = (self.bad() as f64 * self.with() as f64).sqrt();
        if of == 0.0 { 0.0 } else { both / of }
    }

    /// How probable so many bad ones with the feature are, or more, if it has nothing to do with them: Fisher's exact
    /// test, one-sided.
    pub fn probability(&self) -> f64 {
        let table = Margins::of(self);
        table.tail(0.0, self.bad_with, true)
    }

    /// The log-odds with exact bounds: those of the noncentral hypergeometric distribution (Cornfield 1956).
    pub fn log_odds(&self) -> LogOdds {
        let half = |n: u64| n as f64 + 0.5;
        let value = ((half(self.bad_with) * half(self.good_without))
            / (half(self.good_with) * half(self.bad_without)))
        .ln();
        let margins = Margins::of(self);
        let at = self.bad_with;
        // The more the odds, the more probable so many or more, and the less probable so many or fewer.
        let low = match at == margins.least {
            true => f64::NEG_INFINITY,
            false => cross(|odds| margins.tail(odds, at, true) < 0.025),
        };
        let high = match at == margins.most {
            true => f64::INFINITY,
            false => cross(|odds| margins.tail(odds, at, false) > 0.025),
        };
        LogOdds { value, low, high }
    }
}

/// Where `holds` ends to hold, going up.
fn cross(holds: impl Fn(f64) -> bool) -> f64 {
    let (mut low, mut high) = (-FARTHEST, FARTHEST);
    for _ in 0..60 {
        let middle = f64::midpoint(low, high);
        if holds(middle) { low = middle } else { high = middle }
    }
    f64::midpoint(low, high)
}

/// All tables with the same sums of rows and columns, by how many bad ones have the feature.
struct Margins {
    least: u64,
    most: u64,
    /// Logarithms of how many ways there are, of each number from the least on.
    ways: Vec<f64>,
}

impl Margins {
    fn of(table: &TwoByTwo) -> Margins {
        let (with, without, bad) = (table.with(), table.without(), table.bad());
        let (least, most) = (bad.saturating_sub(without), with.min(bad));
        let mut ways = Vec::with_capacity((most - least) as usize + 1);
        let mut now = 0.0;
        ways.push(now);
        for x in least..most {
            // From x to x + 1: with choose x times without choose bad - x.
            let up = (with - x) as f64 * (bad - x) as f64;
            let down = (x + 1) as f64 * (without + x + 1 - bad) as f64;
            now += (up / down).ln();
            ways.push(now);
        }
        Margins { least, most, ways }
    }

    /// How probable at least (or at most) `at` bad ones with the feature are, at these odds.
    fn tail(&self, log_odds: f64, at: u64, at_least: bool) -> f64 {
        let weight = |n: usize| self.ways[n] + log_odds * n as f64;
        let largest = (0..self.ways.len()).map(weight).fold(f64::NEG_INFINITY, f64::max);
        let (mut part, mut all) = (0.0, 0.0);
        for n in 0..self.ways.len() {
            let value = (weight(n) - largest).exp();
            let x = self.least + n as u64;
            all += value;
            if (at_least && x >= at) || (!at_least && x <= at) {
                part += value;
            }
        }
        part / all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fisher's tea: three of four cups right. R's `fisher.test(matrix(c(3,1,1,3),2))` has the bounds 0.2117 and 622
    /// (by a search that is not exact: at 626.2 the probability of four cups is 0.975), and with
    /// `alternative = "greater"` the probability 0.2429.
    #[test]
    fn bounds_are_those_of_fishers_test() {
        let tea = TwoByTwo { bad_with: 3, good_with: 1, bad_without: 1, good_without: 3 };
        let odds = tea.log_odds();
        assert!((odds.low.exp() - 0.2117).abs() < 1e-4, "{odds:?}");
        let (high, ways) = (odds.high.exp(), [1.0, 16.0, 36.0, 16.0, 1.0]);
        let all: f64 = (0..5).map(|n| ways[n as usize] * high.powi(n)).sum();
        assert!((high.powi(4) / all - 0.975).abs() < 1e-9, "{odds:?}");
        assert!((tea.probability() - 17.0 / 70.0).abs() < 1e-9);
        assert!((odds.value - (3.5f64 * 3.5 / (1.5 * 1.5)).ln()).abs() < 1e-12);
    }

    #[test]
    fn empty_cells_have_open_bounds() {
        let all = TwoByTwo { bad_with: 20, good_with: 0, bad_without: 0, good_without: 500 };
        let odds = all.log_odds();
        assert!(odds.high.is_infinite() && odds.low > 5.0, "{odds:?}");
        assert!(all.ochiai() > 0.999 && all.probability() < 1e-30);
        let none = TwoByTwo { bad_with: 0, good_with: 20, bad_without: 20, good_without: 500 };
        assert!(none.log_odds().low.is_infinite() && none.ochiai() == 0.0);
        assert!((none.probability() - 1.0).abs() < 1e-9);
        let empty = TwoByTwo::default();
        assert_eq!((empty.ochiai(), empty.probability()), (0.0, 1.0));
    }
}
