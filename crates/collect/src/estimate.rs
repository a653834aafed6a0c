//! What a function's samples say of all its calls.

use std::collections::HashMap;

/// A timed call.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sample {
    /// Ticks on a processor.
    pub ticks: u64,
    /// Ticks that it waited, as the calls that it stands for may have.
    pub waited: u64,
    /// Ticks that it was preempted: that happened to it alone.
    pub preempted: u64,
    /// Who called it, if that is known.
    pub caller: Option<u32>,
    /// Calls that it stands for; 0 if it was too long to be left to chance, and stands for itself.
    pub weight: u32,
    /// Other samples lie in it: it is as long as what it did.
    pub busy: bool,
}

/// A sample that took so many times as long as the next shorter one was stretched: by an
/// interrupt, or a machine that lent its processor to another. It counts as the next shorter one,
/// and what it took beyond that counts once. Calls that are long because they call much are told
/// by the samples in them.
const STRETCHED: u64 = 16;
/// So many of a function's samples may have been stretched.
const LONGEST: usize = 3;
/// With fewer samples than this, the longest are as good as any.
const FEW: u64 = 256;

/// Ticks of calls: of samples, weighted, or of all calls.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Ticks {
    /// On a processor.
    pub cpu: f64,
    /// On a processor or not.
    pub wall: f64,
}

/// Weighted sums over samples.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    cpu: f64,
    waited: f64,
    /// Ticks on a processor that count once.
    cpu_once: f64,
    /// Ticks off the processor that count once.
    off_once: f64,
}

impl Sums {
    fn add(&mut self, sample: &Sample, inner: f64) {
        let weight = f64::from(sample.weight);
        self.cpu += weight * (sample.ticks as f64 - inner);
        self.waited += weight * sample.waited as f64;
        self.off_once += sample.preempted as f64;
    }

    fn add_once(&mut self, sample: &Sample) {
        self.cpu_once += sample.ticks as f64;
        self.off_once += (sample.waited + sample.preempted) as f64;
    }

    fn cut(&mut self, sample: &Sample, bound: u64) {
        let beyond = (sample.ticks - bound) as f64;
        self.cpu -= f64::from(sample.weight) * beyond;
        self.cpu_once += beyond;
    }

    fn scaled(&self, scale: f64) -> Ticks {
        let cpu = self.cpu * scale + self.cpu_once;
        Ticks { cpu, wall: cpu + self.waited * scale + self.off_once }
    }
}

/// Samples of one function in one thread.
#[derive(Clone, Debug, Default)]
pub struct Estimate {
    samples: u64,
    /// Sum of weights.
    weights: f64,
    all: Sums,
    /// By caller.
    callers: HashMap<u32, Sums>,
    /// The longest that are not busy, falling.
    longest: Vec<Sample>,
    /// Calls that stand for themselves.
    long: u64,
}

/// What is said of all calls, without what probes add.
#[derive(Clone, Debug, Default)]
pub struct Share {
    /// All calls.
    pub total: Ticks,
    /// Calls by each caller.
    pub of_callers: HashMap<u32, Ticks>,
}

impl Estimate {
    /// Takes a call; `inner` ticks of a sample are the probe's.
    pub fn add(&mut self, sample: Sample, inner: f64) {
        if sample.weight == 0 {
            self.add_long(&sample);
            return;
        }
        self.samples += 1;
        self.weights += f64::from(sample.weight);
        self.all.add(&sample, inner);
        if let Some(caller) = sample.caller {
            self.callers.entry(caller).or_default().add(&sample, inner);
        }
        let at = self.longest.partition_point(|longer| longer.ticks >= sample.ticks);
        if at <= LONGEST && !sample.busy {
            self.longest.insert(at, sample);
            self.longest.truncate(LONGEST + 1);
        }
    }

    fn add_long(&mut self, sample: &Sample) {
        self.long += 1;
        self.all.add_once(sample);
        if let Some(caller) = sample.caller {
            self.callers.entry(caller).or_default().add_once(sample);
        }
    }

    /// What the samples say of `calls` calls. The number is exact, so what is estimated is only
    /// how long a call takes.
    pub fn share(mut self, calls: u64) -> Share {
        let stretched = self.stretched();
        for sample in &self.longest[..stretched] {
            let bound = self.longest[stretched].ticks;
            self.all.cut(sample, bound);
            if let Some(caller) = sample.caller.and_then(|id| self.callers.get_mut(&id)) {
                caller.cut(sample, bound);
            }
        }
        let others = calls.saturating_sub(self.long) as f64;
        let scale = if self.weights == 0.0 { 0.0 } else { others / self.weights };
        let of_callers = self.callers.iter().map(|(id, sums)| (*id, sums.scaled(scale)));
        Share { total: self.all.scaled(scale), of_callers: of_callers.collect() }
    }

    /// How many of the longest samples were stretched.
    fn stretched(&self) -> usize {
        let far = |pair: &[Sample]| pair[0].ticks / STRETCHED > pair[1].ticks;
        let last = if self.samples < FEW { None } else { self.longest.windows(2).rposition(far) };
        last.map_or(0, |at| at + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(ticks: u64) -> Sample {
        Sample { ticks, caller: Some(9), weight: 64, ..Sample::default() }
    }

    #[test]
    fn a_stretched_sample_counts_once() {
        let mut estimate = Estimate::default();
        for i in 0..1000 {
            estimate.add(sample(if i == 500 { 1_000_000 } else { 100 }), 10.0);
        }
        assert_eq!(estimate.stretched(), 1);
        let share = estimate.share(64_000);
        let taken = 64_000.0 * 90.0 + 999_900.0;
        assert_eq!((share.total.cpu, share.of_callers[&9].cpu), (taken, taken));
    }

    #[test]
    fn long_calls_of_a_function_s_own_stand_for_others() {
        let mut estimate = Estimate::default();
        for i in 0..1000u64 {
            estimate.add(sample(if i % 200 == 0 { 1_000_000 + i } else { 100 }), 0.0);
        }
        assert_eq!(estimate.stretched(), 0);
        // Nor is a single one cut that other samples lie in.
        let mut estimate = Estimate::default();
        for i in 0..1000u64 {
            let ticks = if i == 3 { 1_000_000 } else { 100 };
            estimate.add(Sample { busy: i == 3, ..sample(ticks) }, 0.0);
        }
        assert_eq!(estimate.stretched(), 0);
    }

    #[test]
    fn long_calls_stand_for_themselves() {
        let mut estimate = Estimate::default();
        (0..1000).for_each(|_| estimate.add(sample(100), 10.0));
        (0..70).for_each(|_| estimate.add(Sample { weight: 0, ..sample(1_000_000) }, 10.0));
        let share = estimate.share(64_070);
        let taken = 64_000.0 * 90.0 + 70_000_000.0;
        assert_eq!((share.total.cpu, share.of_callers[&9].cpu), (taken, taken));
    }

    #[test]
    fn waits_stand_for_others_and_preemption_does_not() {
        let mut estimate = Estimate::default();
        estimate.add(Sample { waited: 1000, preempted: 500, ..sample(50) }, 0.0);
        let total = estimate.share(640).total;
        assert_eq!(total, Ticks { cpu: 32_000.0, wall: 32_000.0 + 640_000.0 + 500.0 });
        assert_eq!(Estimate::default().share(7).total, Ticks::default());
    }
}
