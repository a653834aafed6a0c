//! Where the time of calls goes when another process serves them: switches and calls of the processes
//! that a system consists of, put between the moments at which the program's thread begins and ends a call.
//!
//! At each moment of a call either the program's thread runs, or one of the system's others, or none of
//! them. So the steps of a call follow each other without gaps, and add up to its time.

use std::collections::{BTreeMap, HashMap};

use serde::Serialize;

/// Something that the kernel reports of the observed processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// `CLOCK_MONOTONIC` in nanoseconds.
    pub time_ns: u64,
    /// On which processor.
    pub cpu: u32,
    /// What.
    pub what: What,
    /// Whether it is of a system call. Those cost less than those of the scheduler.
    pub of_call: bool,
}

/// What a record is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// A processor goes over to a thread; `None` is one that is not observed.
    Switch(Option<u32>),
    /// A thread begins a call of the kernel's.
    Begin(u32, HostCall),
    /// It ends.
    End(u32),
    /// Anything else. It took time to be reported.
    Other,
}

/// Calls of the kernel's that a system makes to serve one of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum HostCall {
    /// Reading from a descriptor.
    Read,
    /// Writing to one.
    Write,
    /// Waiting for one of several.
    Poll,
    /// Waiting at a futex.
    Futex,
    /// Waiting for time, or a signal.
    Sleep,
    /// Waiting for a child: how tracers wait.
    Child,
}

/// A call of the program, on this machine's clock.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Call {
    /// When it begins, `CLOCK_MONOTONIC` in nanoseconds.
    pub begin_ns: f64,
    /// On which processor.
    pub from: u32,
    /// When it has ended.
    pub end_ns: f64,
}

/// Where time goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Step {
    /// The program's thread runs all the time, and none of the system's: its kernel serves it.
    Own,
    /// The program's thread runs all the time, and one of the system's beside it: they pass work through
    /// memory.
    Beside,
    /// The program's thread runs on until it is stopped.
    Leave,
    /// None runs until the system does: the way there.
    HandOver,
    /// The system runs.
    Work,
    /// The system is in a call of the kernel's and runs there.
    HostCall(HostCall),
    /// The program's thread runs in between, for the system.
    #[serde(rename = "errand")]
    ForSystem,
    /// None runs in between: the system waits.
    Wait,
    /// None runs until the program's thread does: the way back.
    WayBack,
    /// The program's thread runs until its call has ended.
    Return,
}

/// A step's nanoseconds, records of system calls, and other records.
pub type Sum = [f64; 3];
/// What each step has.
pub type Steps = BTreeMap<Step, Sum>;

/// A piece of a call in which the same threads run.
#[derive(Clone, Copy, Debug)]
struct Piece {
    sum: Sum,
    own: bool,
    /// Another of the system's threads runs, in a call of the kernel's or not.
    other: Option<Option<HostCall>>,
}

/// Divides calls into steps, and says which thread of this kernel made them. Records and calls are in order of
/// time. `None` where the thread is not known, since the processor has not switched since the recording began.
pub fn divide(records: &[Record], calls: &[Call]) -> Vec<Option<(u32, Steps)>> {
    let mut state = State::default();
    let mut records = records.iter().peekable();
    let mut all = Vec::new();
    for call in calls {
        while let Some(record) = records.next_if(|record| (record.time_ns as f64) <= call.begin_ns)
        {
            state.take(record);
        }
        let own = state.running.get(&call.from).copied().flatten();
        let mut pieces = Vec::new();
        let mut at = call.begin_ns;
        while let Some(record) = records.next_if(|record| (record.time_ns as f64) < call.end_ns) {
            let time = record.time_ns as f64;
            let (of_call, other) = if record.of_call { (1.0, 0.0) } else { (0.0, 1.0) };
            pieces.extend(own.map(|own| state.piece(own, [time - at, of_call, other])));
            state.take(record);
            at = time;
        }
        pieces.extend(own.map(|own| state.piece(own, [call.end_ns - at, 0.0, 0.0])));
        all.push(own.map(|own| (own, steps_of(&pieces))));
    }
    all
}

/// Who runs where, and in which call.
#[derive(Debug, Default)]
struct State {
    running: HashMap<u32, Option<u32>>,
    calls: HashMap<u32, HostCall>,
}

impl State {
    fn take(&mut self, record: &Record) {
        match record.what {
            What::Switch(to) => {
                self.running.insert(record.cpu, to);
            }
            What::Begin(tid, call) => {
                self.calls.insert(tid, call);
            }
            What::End(tid) => {
                self.calls.remove(&tid);
            }
            What::Other => {}
        }
    }

    fn piece(&self, own: u32, sum: Sum) -> Piece {
        let mut piece = Piece { sum, own: false, other: None };
        for tid in self.running.values().flatten() {
            if *tid == own {
                piece.own = true;
            } else if piece.other.flatten().is_none() {
                piece.other = Some(self.calls.get(tid).copied());
            }
        }
        piece
    }
}

fn steps_of(pieces: &[Piece]) -> Steps {
    let mut steps = Steps::new();
    let mut add = |step, piece: &Piece| {
        add_to(steps.entry(step).or_default(), piece.sum);
    };
    let is_out = |piece: &Piece| !piece.own;
    let (Some(first), Some(last)) =
        (pieces.iter().position(is_out), pieces.iter().rposition(is_out))
    else {
        for piece in pieces {
            add(if piece.other.is_some() { Step::Beside } else { Step::Own }, piece);
        }
        return steps;
    };
    let serves = |piece: &Piece| is_out(piece) && piece.other.is_some();
    let first_served = pieces.iter().position(serves);
    let last_served = pieces.iter().rposition(serves);
    for (at, piece) in pieces.iter().enumerate() {
        let step = match (piece.own, piece.other) {
            (true, _) if at < first => Step::Leave,
            (true, _) if at > last => Step::Return,
            (true, _) => Step::ForSystem,
            (false, Some(Some(call))) => Step::HostCall(call),
            (false, Some(None)) => Step::Work,
            (false, None) if first_served.is_none_or(|served| at < served) => Step::HandOver,
            (false, None) if last_served.is_some_and(|served| at < served) => Step::Wait,
            (false, None) => Step::WayBack,
        };
        add(step, piece);
    }
    steps
}

fn add_to(sum: &mut Sum, other: Sum) {
    for (sum, other) in sum.iter_mut().zip(other) {
        *sum += other;
    }
}

/// The interquartile mean of calls: but for the quarter that took longest and the quarter that took shortest.
/// Whole calls are left out, so the steps still add up.
pub fn mean(calls: &[Steps]) -> Option<Steps> {
    let total = |steps: &Steps| steps.values().map(|[ns, ..]| ns).sum::<f64>();
    let mut sorted: Vec<&Steps> = calls.iter().collect();
    sorted.sort_by(|a, b| total(a).total_cmp(&total(b)));
    let kept = trimmed(&sorted);
    let mut mean = Steps::new();
    for steps in kept {
        for (step, sum) in *steps {
            add_to(mean.entry(*step).or_default(), sum.map(|sum| sum / kept.len() as f64));
        }
    }
    (!kept.is_empty()).then_some(mean)
}

/// All steps together.
pub fn total(steps: &Steps) -> Sum {
    let mut all = Sum::default();
    steps.values().for_each(|sum| add_to(&mut all, *sum));
    all
}

/// The same mean of times.
pub fn mean_of_times(times: &[f64]) -> Option<f64> {
    let mut sorted = times.to_vec();
    sorted.sort_by(f64::total_cmp);
    let kept = trimmed(&sorted);
    (!kept.is_empty()).then(|| kept.iter().sum::<f64>() / kept.len() as f64)
}

/// Without the quarter at either end.
pub fn trimmed<T>(sorted: &[T]) -> &[T] {
    let cut = sorted.len() / 4;
    &sorted[cut..sorted.len() - cut]
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: u32 = 10;
    const SENTRY: u32 = 20;

    fn switch(time_ns: u64, cpu: u32, to: Option<u32>) -> Record {
        Record { time_ns, cpu, what: What::Switch(to), of_call: false }
    }

    fn record(time_ns: u64, what: What) -> Record {
        Record { time_ns, cpu: 0, what, of_call: true }
    }

    fn call(begin: f64, end: f64) -> Call {
        Call { begin_ns: begin, from: 0, end_ns: end }
    }

    fn ns(steps: &Steps, step: Step) -> f64 {
        steps.get(&step).map_or(0.0, |[ns, ..]| *ns)
    }

    #[test]
    fn a_call_that_another_process_serves() {
        let records = [
            switch(50, 0, Some(OWN)),
            switch(110, 0, None),
            switch(130, 1, Some(SENTRY)),
            record(150, What::Begin(SENTRY, HostCall::Read)),
            record(180, What::End(SENTRY)),
            switch(240, 1, None),
            switch(260, 0, Some(OWN)),
        ];
        let all = divide(&records, &[call(100.0, 300.0)]);
        let [Some((OWN, steps))] = &all[..] else { panic!("{all:?}") };
        let expected = [
            (Step::Leave, 10.0),
            (Step::HandOver, 20.0),
            (Step::Work, 80.0),
            (Step::HostCall(HostCall::Read), 30.0),
            (Step::WayBack, 20.0),
            (Step::Return, 40.0),
        ];
        for (step, time) in expected {
            assert_eq!(ns(steps, step), time, "{step:?} {steps:?}");
        }
        assert_eq!(total(steps), [200.0, 2.0, 4.0]);
    }

    #[test]
    fn calls_without_a_switch_and_with_errands() {
        let records = [
            switch(50, 0, Some(OWN)),
            // Beside each other.
            switch(150, 1, Some(SENTRY)),
            switch(180, 1, None),
            // There, back for the system, there again after a wait, and back.
            switch(310, 0, Some(SENTRY)),
            switch(320, 0, Some(OWN)),
            switch(330, 0, Some(SENTRY)),
            switch(340, 0, None),
            switch(345, 0, Some(SENTRY)),
            switch(350, 0, Some(OWN)),
        ];
        let calls = [call(100.0, 200.0), call(210.0, 220.0), call(300.0, 400.0)];
        let all: Vec<Steps> =
            divide(&records, &calls).into_iter().map(|found| found.unwrap().1).collect();
        assert_eq!((ns(&all[0], Step::Beside), ns(&all[0], Step::Own)), (30.0, 70.0));
        assert_eq!(ns(&all[1], Step::Own), 10.0);
        assert_eq!((ns(&all[2], Step::ForSystem), ns(&all[2], Step::Wait)), (10.0, 5.0));
        assert_eq!((ns(&all[2], Step::Work), ns(&all[2], Step::Return)), (25.0, 50.0));
    }

    #[test]
    fn a_thread_that_is_not_known_is_left_out() {
        assert_eq!(divide(&[switch(150, 0, Some(OWN))], &[call(100.0, 200.0)]), [None]);
        assert_eq!(divide(&[switch(50, 0, None)], &[call(100.0, 200.0)]), [None]);
    }

    #[test]
    fn means_leave_out_both_ends_and_add_up() {
        let steps = |own: f64, work: f64| {
            Steps::from([(Step::Own, [own, 1.0, 0.0]), (Step::Work, [work, 2.0, 1.0])])
        };
        let mut calls: Vec<Steps> = (0..4).map(|_| steps(10.0, 20.0)).collect();
        calls.extend([steps(1e6, 0.0), steps(1e5, 0.0), steps(0.1, 0.1), steps(1.0, 0.1)]);
        let found = mean(&calls).unwrap();
        assert_eq!((ns(&found, Step::Own), ns(&found, Step::Work)), (10.0, 20.0));
        assert_eq!(total(&found), [30.0, 3.0, 1.0]);
        assert_eq!(mean_of_times(&[1.0; 10]), Some(1.0));
        assert!(mean(&[]).is_none() && mean_of_times(&[]).is_none());
    }
}
