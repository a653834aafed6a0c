//! What a function's samples say of all its calls.

use std::collections::HashMap;

use fettle_types::FunctionIndex;

/// A timed call.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sample {
    /// Ticks on a processor.
    pub ticks: u64,
    /// Ticks that it waited, as the calls that it stands for may have.
    pub waited: u64,
    /// Ticks that it was preempted: that happened to it alone.
    pub preempted: u64,
    /// Its caller, if that is known.
    pub caller: Option<FunctionIndex>,
    /// Calls that it stands for; 0 if it was too long to be left to chance, and stands for itself.
    pub weight: u32,
    /// Other samples lie in it: it is as long as what it did.
    pub busy: bool,
    /// A signal came while it went on.
    pub interrupted: bool,
}

/// A sample that took so many times as long as the next shorter one was stretched: by an interrupt, or a
/// hypervisor that gave the processor to another machine. It counts as the next shorter one, and what it
/// took beyond that counts once. Calls that are long because they call much are known by the samples in
/// them.
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
    /// Waiting, as far as samples that waited stand for others.
    pub waited: f64,
    /// Off-CPU, each time for itself.
    pub off_once: f64,
}

/// Weighted sums over samples.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    cpu: f64,
    waited: f64,
    /// Ticks on a processor that count once.
    cpu_once: f64,
    /// Off-CPU ticks that count once.
    off_once: f64,
}

impl Sums {
    fn add(&mut self, sample: &Sample, inner: f64) {
        let weight = f64::from(sample.weight);
        self.cpu += weight * (sample.ticks as f64 - inner);
        match sample.weight {
            // It stands for no other.
            1 => self.off_once += sample.waited as f64,
            _ => self.waited += weight * sample.waited as f64,
        }
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

    fn merge(&mut self, other: &Sums) {
        self.cpu += other.cpu;
        self.waited += other.waited;
        self.cpu_once += other.cpu_once;
        self.off_once += other.off_once;
    }

    fn scaled(&self, scale: f64) -> Ticks {
        let cpu = self.cpu * scale + self.cpu_once;
        Ticks { cpu, waited: self.waited * scale, off_once: self.off_once }
    }
}

/// Sums over a function's samples.
#[derive(Clone, Debug, Default)]
struct Group {
    all: Sums,
    /// By caller.
    callers: HashMap<FunctionIndex, Sums>,
}

impl Group {
    fn each(&mut self, caller: Option<FunctionIndex>, change: impl Fn(&mut Sums)) {
        change(&mut self.all);
        if let Some(caller) = caller {
            change(self.callers.entry(caller).or_default());
        }
    }

    fn merge(&mut self, other: &Group) {
        self.all.merge(&other.all);
        for (caller, sums) in &other.callers {
            self.callers.entry(*caller).or_default().merge(sums);
        }
    }
}

/// Samples that signals interrupted.
#[derive(Clone, Debug, Default)]
struct Interrupted {
    count: u64,
    weights: f64,
    /// As if each stood for others.
    for_others: Group,
    /// As if each stood for itself.
    for_itself: Group,
}

/// Samples of one function in one thread.
#[derive(Clone, Debug, Default)]
pub struct Estimate {
    samples: u64,
    /// Sum of weights.
    weights: f64,
    sums: Group,
    /// The longest that are not busy, falling.
    longest: Vec<Sample>,
    /// Calls that stand for themselves.
    long: u64,
    /// Apart from all of these, until all are known.
    interrupted: Interrupted,
}

/// What is said of all calls, without what probes add.
#[derive(Clone, Debug, Default)]
pub struct Share {
    /// All calls.
    pub total: Ticks,
    /// Calls by each caller.
    pub of_callers: HashMap<FunctionIndex, Ticks>,
}

impl Estimate {
    /// Takes a call; `inner` ticks of a sample are the probe's.
    pub fn add(&mut self, sample: Sample, inner: f64) {
        let caller = sample.caller;
        self.sum(&sample, inner, |group, change| group.each(caller, change));
        if sample.weight == 0 {
            self.long += 1;
        } else if sample.interrupted {
            self.interrupted.count += 1;
            self.interrupted.weights += f64::from(sample.weight);
        } else {
            self.samples += 1;
            self.weights += f64::from(sample.weight);
            let at = self.longest.partition_point(|longer| longer.ticks >= sample.ticks);
            if at <= LONGEST && !sample.busy {
                self.longest.insert(at, sample);
                self.longest.truncate(LONGEST + 1);
            }
        }
    }

    /// A call that was taken in was one by `caller`, as is known now.
    pub fn called_by(&mut self, caller: FunctionIndex, sample: &Sample, inner: f64) {
        self.sum(sample, inner, |group, change| {
            change(group.callers.entry(caller).or_default());
        });
    }

    /// Adds a call to the sums where it counts, to those that `of` gives of a group.
    fn sum(&mut self, sample: &Sample, inner: f64, of: impl Fn(&mut Group, &dyn Fn(&mut Sums))) {
        let for_others = |sums: &mut Sums| sums.add(sample, inner);
        let for_itself = |sums: &mut Sums| sums.add_once(sample);
        if sample.weight == 0 {
            of(&mut self.sums, &for_itself);
        } else if sample.interrupted {
            of(&mut self.interrupted.for_others, &for_others);
            of(&mut self.interrupted.for_itself, &for_itself);
        } else {
            of(&mut self.sums, &for_others);
        }
    }

    /// What the samples say of `calls` calls. The number is exact, so what is estimated is only
    /// how long a call takes.
    pub fn share(mut self, calls: u64) -> Share {
        let stretched = self.stretched();
        for sample in &self.longest[..stretched] {
            let bound = self.longest[stretched].ticks;
            self.sums.each(sample.caller, |sums| sums.cut(sample, bound));
        }
        self.take_interrupted();
        let others = calls.saturating_sub(self.long) as f64;
        let scale = if self.weights == 0.0 { 0.0 } else { others / self.weights };
        let of_callers = self.sums.callers.iter().map(|(id, sums)| (*id, sums.scaled(scale)));
        Share { total: self.sums.all.scaled(scale), of_callers: of_callers.collect() }
    }

    /// Decides what interrupted samples stand for. A short call that is timed takes much longer than one
    /// that is not, so that signals come in timed ones far more often: what they take is that call's alone.
    /// But where most are interrupted, waiting for signals is what the function does.
    fn take_interrupted(&mut self) {
        let Interrupted { count, weights, for_others, for_itself } = &self.interrupted;
        if *weights > self.weights {
            self.weights += weights;
            self.sums.merge(for_others);
        } else {
            self.long += count;
            self.sums.merge(for_itself);
        }
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
        Sample { ticks, caller: Some(FunctionIndex(9)), weight: 64, ..Sample::default() }
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
        assert_eq!((share.total.cpu, share.of_callers[&FunctionIndex(9)].cpu), (taken, taken));
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
        assert_eq!((share.total.cpu, share.of_callers[&FunctionIndex(9)].cpu), (taken, taken));
    }

    #[test]
    fn a_call_that_a_signal_interrupted_stands_for_others_only_where_most_are() {
        let interrupted = Sample { interrupted: true, ..sample(100_000) };
        let mut estimate = Estimate::default();
        (0..900).for_each(|_| estimate.add(sample(100), 10.0));
        (0..100).for_each(|_| estimate.add(interrupted, 10.0));
        let share = estimate.share(64_000);
        let taken = 63_900.0 * 90.0 + 100.0 * 100_000.0;
        assert_eq!((share.total.cpu, share.of_callers[&FunctionIndex(9)].cpu), (taken, taken));

        let mut estimate = Estimate::default();
        estimate.add(sample(100), 10.0);
        (0..9).for_each(|_| estimate.add(interrupted, 10.0));
        let taken = 64.0 * 90.0 + 9.0 * 64.0 * 99_990.0;
        assert_eq!(estimate.share(640).total.cpu, taken);
    }

    #[test]
    fn a_caller_that_is_known_later_has_what_it_would_have_had() {
        let interrupted = Sample { interrupted: true, ..sample(100_000) };
        let (mut at_once, mut later) = (Estimate::default(), Estimate::default());
        for i in 0..1000 {
            let sample = if i % 10 == 0 { interrupted } else { sample(100) };
            at_once.add(sample, 10.0);
            later.add(Sample { caller: None, ..sample }, 10.0);
            later.called_by(FunctionIndex(9), &sample, 10.0);
        }
        let at_once = at_once.share(64_000);
        assert_eq!(
            later.share(64_000).of_callers[&FunctionIndex(9)],
            at_once.of_callers[&FunctionIndex(9)]
        );
        assert_eq!(at_once.total, at_once.of_callers[&FunctionIndex(9)]);
    }

    #[test]
    fn waits_stand_for_others_and_preemption_does_not() {
        let mut estimate = Estimate::default();
        estimate.add(Sample { waited: 1000, preempted: 500, ..sample(50) }, 0.0);
        let total = estimate.share(640).total;
        assert_eq!(total, Ticks { cpu: 32_000.0, waited: 640_000.0, off_once: 500.0 });
        assert_eq!(Estimate::default().share(7).total, Ticks::default());
    }
}
