//! One clock by another, from messages between them.
//!
//! A message cannot arrive before it was sent. So each message from a machine bounds from above what
//! has to be added to that machine's clock to get the other's, and each message to it bounds that
//! from below. Clocks of two machines do not run at the same rate; over the time of a trace, what has
//! to be added is a line. It passes below all upper bounds and above all lower ones: only the hulls
//! of these matter, and the lines that pass between the hulls say how certain it is (Zhang, Liu and
//! Xia: Clock synchronization algorithms for network measurements, INFOCOM 2002). Nothing is supposed
//! of how long messages take, and no message counts more than another.

/// No two clocks run at rates that differ by more: parts per million. Crystals keep to some 100, and
/// kernels that steer a clock change its rate by 500 at most.
pub const DRIFT_PPM_MAX: f64 = 1000.0;

/// How far the rates of most clocks are apart at most.
const CRYSTAL_PPM: f64 = 100.0;

/// Times are whole nanoseconds, rounded down.
const ROUNDING_NS: f64 = 1.0;
/// Points that are kept before all but the hull's are forgotten.
const POINTS_MAX: usize = 1 << 16;
/// Halvings of an interval: as fine as numbers are.
const STEPS: usize = 200;
const NS: f64 = 1e9;

/// What is added to a clock's nanoseconds to get another's.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Line {
    /// At time 0.
    pub offset_ns: f64,
    /// More by this for each nanosecond.
    pub drift: f64,
}

impl Line {
    /// A time of the one clock by the other.
    pub fn map(&self, time_ns: u64) -> f64 {
        time_ns as f64 + self.offset_ns + self.drift * time_ns as f64
    }

    /// By the clock that `next` leads to, of which `self` leads to the one that it begins with.
    pub fn then(&self, next: &Line) -> Line {
        Line {
            offset_ns: self.offset_ns + next.offset_ns + next.drift * self.offset_ns,
            drift: self.drift + next.drift + self.drift * next.drift,
        }
    }

    /// The inverse mapping.
    pub fn inverse(&self) -> Line {
        let rate = 1.0 + self.drift;
        Line { offset_ns: -self.offset_ns / rate, drift: 1.0 / rate - 1.0 }
    }
}

/// Bounds on one side of a line: what lies outside their hull forgets itself.
#[derive(Clone, Debug)]
pub struct Bounds {
    /// 1 for bounds from below, of which the upper hull counts; -1 for bounds from above.
    side: f64,
    points: Vec<(u64, i64)>,
    count: u64,
    span: Option<(u64, u64)>,
}

impl Bounds {
    /// What the line must not be below.
    pub fn lower() -> Bounds {
        Bounds { side: 1.0, points: Vec::new(), count: 0, span: None }
    }

    /// What the line must not be above.
    pub fn upper() -> Bounds {
        Bounds { side: -1.0, ..Bounds::lower() }
    }

    /// Adds a bound: at a time of the one clock, nanoseconds to be added.
    pub fn add(&mut self, time_ns: u64, add_ns: i64) {
        self.count += 1;
        let (first, last) = self.span.unwrap_or((time_ns, time_ns));
        self.span = Some((first.min(time_ns), last.max(time_ns)));
        self.points.push((time_ns, add_ns));
        if self.points.len() > POINTS_MAX {
            self.points = self.hull();
        }
    }

    /// How many were added.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The points that a line can touch, in order of time.
    fn hull(&self) -> Vec<(u64, i64)> {
        let mut points = self.points.clone();
        points.sort_unstable();
        let mut hull: Vec<(u64, i64)> = Vec::new();
        for point in points {
            // The middle one of three stays if it lies outside of the line through the others.
            while let [.., a, b] = hull.as_slice() {
                let (bx, by) = ((b.0 - a.0) as f64, (i128::from(b.1) - i128::from(a.1)) as f64);
                let (px, py) =
                    ((point.0 - a.0) as f64, (i128::from(point.1) - i128::from(a.1)) as f64);
                if self.side * (by * px - py * bx) > 0.0 {
                    break;
                }
                hull.pop();
            }
            hull.push(point);
        }
        hull
    }
}

/// A line between bounds, and how certain it is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fit {
    /// The line.
    pub line: Line,
    /// By how many nanoseconds it can be wrong at most, at any time between the first message and
    /// the last.
    pub uncertainty_ns: f64,
    /// Messages that bound it.
    pub messages: u64,
}

/// Why there is no line.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum NoFit {
    /// No message, or messages one way only.
    OneWay,
    /// No line fits: at least so many nanoseconds are missing.
    Contradiction(f64),
}

/// The line in the middle of those that keep to all bounds.
///
/// # Errors
///
/// Where there is none, or where nothing bounds it on one side.
pub fn fit(lower: &Bounds, upper: &Bounds) -> Result<Fit, NoFit> {
    let (Some(low), Some(high)) = (lower.span, upper.span) else { return Err(NoFit::OneWay) };
    let (first, last) = (low.0.min(high.0), low.1.max(high.1));
    // Seconds from the middle, and nanoseconds from any of the bounds, so that numbers are small.
    let middle = first + (last - first) / 2;
    let Some((_, zero)) = upper.points.first().copied() else { return Err(NoFit::OneWay) };
    let from_middle = |ns: u64| (ns as f64 - middle as f64) / NS;
    let near = |hull: Vec<(u64, i64)>, margin: f64| -> Vec<(f64, f64)> {
        let point = |(x, y): (u64, i64)| {
            (from_middle(x), (i128::from(y) - i128::from(zero)) as f64 + margin)
        };
        hull.into_iter().map(point).collect()
    };
    let lower_hull = near(lower.hull(), -ROUNDING_NS);
    let upper_hull = near(upper.hull(), ROUNDING_NS);
    // With a slope, how low and how high the line may pass in the middle.
    let least = |slope: f64| {
        lower_hull.iter().map(|(x, y)| y - slope * x).fold(f64::NEG_INFINITY, f64::max)
    };
    let most =
        |slope: f64| upper_hull.iter().map(|(x, y)| y - slope * x).fold(f64::INFINITY, f64::min);
    let room = |slope: f64| most(slope) - least(slope);
    let steepest = DRIFT_PPM_MAX * 1e-6 * NS;
    let best = highest(&room, -steepest, steepest);
    if room(best) < 0.0 {
        return Err(NoFit::Contradiction(-room(best)));
    }
    let (flat, steep) = (edge(&room, best, -steepest), edge(&room, best, steepest));
    // Where messages say little of the rate, what crystals are like says more.
    let slope = match steep - flat > 2.0 * CRYSTAL_PPM * 1e-6 * NS {
        true => 0_f64.clamp(flat, steep),
        false => f64::midpoint(flat, steep),
    };
    let height = f64::midpoint(least(slope), most(slope));
    // How far a line can be from this one is a convex function of time: it is most at an end.
    let wrong = |x: f64| {
        let at = height + slope * x;
        let above = highest(&|slope: f64| most(slope) + slope * x, flat, steep);
        let below = highest(&|slope: f64| -(least(slope) + slope * x), flat, steep);
        f64::max(most(above) + above * x - at, at - (least(below) + below * x))
    };
    let uncertainty_ns = f64::max(wrong(from_middle(first)), wrong(from_middle(last)));
    let drift = slope / NS;
    let offset_ns = height + zero as f64 - drift * middle as f64;
    let messages = lower.count + upper.count;
    Ok(Fit { line: Line { offset_ns, drift }, uncertainty_ns, messages })
}

/// Where a function that rises and then falls is highest.
fn highest(of: &dyn Fn(f64) -> f64, mut from: f64, mut to: f64) -> f64 {
    for _ in 0..STEPS {
        let third = (to - from) / 3.0;
        let (a, b) = (from + third, to - third);
        match of(a) < of(b) {
            true => from = a,
            false => to = b,
        }
    }
    f64::midpoint(from, to)
}

/// How far one can go from `inside` toward `end` with the function not below 0.
fn edge(of: &dyn Fn(f64) -> f64, mut inside: f64, mut end: f64) -> f64 {
    if of(end) >= 0.0 {
        return end;
    }
    for _ in 0..STEPS {
        let middle = f64::midpoint(inside, end);
        match of(middle) >= 0.0 {
            true => inside = middle,
            false => end = middle,
        }
    }
    inside
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Messages of two machines whose clocks differ by a line, with delays that vary.
    fn bounds(line: Line, seconds: u64, delay: impl Fn(u64) -> u64) -> (Bounds, Bounds) {
        let (mut lower, mut upper) = (Bounds::lower(), Bounds::upper());
        for n in 0..seconds * 100 {
            let sent_ns = 1_000_000_000 + n * 10_000_000;
            let there = line.map(sent_ns + delay(2 * n)) as i64;
            upper.add(sent_ns, there - sent_ns as i64);
            let back_ns = sent_ns + 3_000_000 + delay(2 * n + 1);
            let sent_there = line.map(sent_ns + 3_000_000) as i64;
            lower.add(back_ns, sent_there - back_ns as i64);
        }
        (lower, upper)
    }

    /// Between 20 and 500 µs.
    fn varied(n: u64) -> u64 {
        20_000 + n.wrapping_mul(0x9e37_79b9_7f4a_7c15) % 480_000
    }

    #[test]
    fn the_line_is_found_within_what_is_said() {
        for (offset_ns, ppm) in
            [(3.2e9, 50.0), (-7.1e12, -80.0), (0.0, 0.0), (12.0, 400.0), (1.8e18, 1.0)]
        {
            let line = Line { offset_ns, drift: ppm * 1e-6 };
            let (lower, upper) = bounds(line, 60, varied);
            let fit = fit(&lower, &upper).unwrap();
            assert_eq!(fit.messages, 12_000);
            for time_ns in [1_000_000_000, 30_000_000_000, 60_000_000_000] {
                let error = (fit.line.map(time_ns) - line.map(time_ns)).abs();
                // Numbers of that size are multiples of 256.
                let rounding = if offset_ns > 1e18 { 512.0 } else { 2.0 };
                assert!(error <= fit.uncertainty_ns + rounding, "{error} {fit:?}");
            }
            assert!(fit.uncertainty_ns < 60_000.0, "{fit:?}");
            assert!((fit.line.drift - line.drift).abs() < 2e-6, "{fit:?}");
        }
    }

    #[test]
    fn few_messages_leave_the_rate_open_and_say_so() {
        let (mut lower, mut upper) = (Bounds::lower(), Bounds::upper());
        upper.add(1_000_000_000, 5_000_100);
        lower.add(1_010_000_000, 4_999_900);
        let fit = fit(&lower, &upper).unwrap();
        assert!(fit.line.drift.abs() < 1e-7, "{fit:?}");
        let add = fit.line.map(1_005_000_000) - 1_005_000_000.0;
        assert!((add - 5_000_000.0).abs() < 101.0, "{fit:?}");
        assert!(fit.uncertainty_ns > 5_000.0, "{fit:?}");
    }

    #[test]
    fn no_line_where_bounds_contradict_or_are_missing() {
        let (mut lower, mut upper) = (Bounds::lower(), Bounds::upper());
        upper.add(1_000_000, 100);
        assert_eq!(fit(&lower, &upper), Err(NoFit::OneWay));
        lower.add(1_000_000, 5_100);
        let Err(NoFit::Contradiction(by_ns)) = fit(&lower, &upper) else { panic!() };
        assert!((by_ns - 4_998.0).abs() < 1.0, "{by_ns}");
    }

    #[test]
    fn more_points_than_are_kept_change_nothing() {
        let line = Line { offset_ns: 1e6, drift: 3e-6 };
        let (lower, upper) = bounds(line, 2000, varied);
        assert!(upper.count() as usize > POINTS_MAX && upper.points.len() <= POINTS_MAX);
        let fit = fit(&lower, &upper).unwrap();
        let error = (fit.line.map(1_000_000_000_000) - line.map(1_000_000_000_000)).abs();
        assert!(error <= fit.uncertainty_ns + 2.0, "{fit:?}");
    }

    #[test]
    fn lines_are_put_together_and_turned_round() {
        let (a, b) = (Line { offset_ns: 5e9, drift: 2e-5 }, Line { offset_ns: -7e8, drift: -3e-5 });
        let time_ns = 123_456_789_000;
        let there = a.map(time_ns);
        let both = a.then(&b).map(time_ns);
        assert!((both - b.map(there as u64)).abs() < 2.0);
        assert!((a.inverse().map(there as u64) - time_ns as f64).abs() < 2.0);
    }
}
