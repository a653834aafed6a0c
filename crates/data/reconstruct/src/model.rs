//! What is learned of a place: which calls a question causes, how many, in what order, how long after what.
//!
//! A question is a row of events: its begin, the begins and the ends of its calls, its end. When a call
//! begins follows from the latest event before it: *that* event, and the delay since. So calls in turn
//! follow the end of the one before, calls at once the begin of the one before, and whether a call is
//! made at all (a cache that did not have it) shows in which events follow one another.

use rustc_hash::FxHashMap;

use crate::delay::{BINS, Samples, bin, log_widths};

/// Calls of one class that a question makes at most, as far as counts are learned one by one.
const COUNTS: usize = 12;
/// What events that were never seen before count for, of all.
const FLOOR: f32 = 0.002;
/// The logarithm of what is as good as impossible.
const NEVER: f32 = -60.0;

/// An event of a question, as what calls follow on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// The question's begin.
    Start,
    /// The begin of a call of a class.
    Begin(u16),
    /// Its end.
    End(u16),
}

impl Event {
    fn place(self) -> usize {
        match self {
            Event::Start => 0,
            Event::Begin(class) => 1 + 2 * usize::from(class),
            Event::End(class) => 2 + 2 * usize::from(class),
        }
    }
}

/// How many classes there are of questions and of calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Classes {
    /// Of questions.
    pub questions: usize,
    /// Of calls.
    pub calls: usize,
}

impl Classes {
    fn events(self) -> usize {
        1 + 2 * self.calls
    }

    /// The place of what follows: a call of a class, or the end of the question.
    fn next(self, question: u16, call: Option<u16>) -> usize {
        let call = call.map_or(self.calls, usize::from);
        usize::from(question) * (self.calls + 1) + call
    }

    fn pair(self, question: u16, call: u16) -> usize {
        usize::from(question) * self.calls + usize::from(call)
    }
}

/// Counts and delays of assignments, from which a model is made.
#[derive(Debug)]
pub struct Learner {
    classes: Classes,
    delays: FxHashMap<(usize, usize), Samples>,
    counts: Vec<[f32; COUNTS]>,
    lone: Vec<f32>,
    span_ns: f32,
}

impl Learner {
    /// Without a sample, over a stretch of time.
    pub fn new(classes: Classes, span_ns: i64) -> Learner {
        Learner {
            classes,
            delays: FxHashMap::default(),
            counts: vec![[0.0; COUNTS]; classes.questions * classes.calls],
            lone: vec![0.0; classes.calls],
            span_ns: span_ns.max(1) as f32,
        }
    }

    /// Something followed an event: a call, or the end of the question.
    pub fn follows(
        &mut self,
        question: u16,
        call: Option<u16>,
        event: Event,
        delay_ns: i64,
        weight: f32,
    ) {
        let key = (self.classes.next(question, call), event.place());
        self.delays.entry(key).or_default().add(delay_ns, weight);
    }

    /// A question made so many calls of a class.
    pub fn made(&mut self, question: u16, call: u16, count: usize) {
        let row = self.counts.get_mut(self.classes.pair(question, call));
        if let Some(sum) = row.and_then(|row| row.get_mut(count.min(COUNTS - 1))) {
            *sum += 1.0;
        }
    }

    /// A call was nothing's.
    pub fn lone(&mut self, call: u16) {
        if let Some(sum) = self.lone.get_mut(usize::from(call)) {
            *sum += 1.0;
        }
    }

    /// The model. `once`: a question makes one call at most.
    pub fn model(&self, once: bool) -> Model {
        let mut model = Model::empty(self.classes);
        let mut totals: FxHashMap<usize, f32> = FxHashMap::default();
        for ((next, _), samples) in &self.delays {
            *totals.entry(*next).or_default() += samples.total();
        }
        let events = self.classes.events();
        for ((next, event), samples) in &self.delays {
            let all = totals.get(next).copied().unwrap_or(1.0).max(1e-3);
            let floor = (0.5 / (all + 1.0)).max(FLOOR) / events as f32;
            let density = samples.density(all, floor, &model.log_widths);
            if let Some(place) = model.places.get_mut(next * events + event) {
                *place = model.densities.len() as u32;
                model.densities.push(density);
            }
            if let Some(log) = model.floors.get_mut(*next) {
                *log = (floor / BINS as f32).ln();
            }
        }
        for (row, to) in self.counts.iter().zip(&mut model.counts) {
            *to = steps(row, once);
        }
        for (count, to) in self.lone.iter().zip(&mut model.lone) {
            *to = ((0.5 * count + 1e-4) / self.span_ns).ln();
        }
        model
    }
}

/// What each further call adds to the logarithm of a count's likelihood.
fn steps(counts: &[f32; COUNTS], once: bool) -> [f32; COUNTS] {
    let all: f32 = counts.iter().sum::<f32>() + 1.0;
    // A count that was never seen is likelier next to one that was.
    let seen = |n: usize| counts.get(n).copied().unwrap_or(0.0);
    let share = |n: usize| {
        let near = seen(n.wrapping_sub(1)) + seen(n + 1);
        ((seen(n) + 0.02 * near + 0.05) / all).ln()
    };
    let mut steps = [0.0; COUNTS];
    for (n, step) in steps.iter_mut().enumerate().skip(1) {
        *step = if once && n > 1 { NEVER } else { share(n) - share(n - 1) };
    }
    steps
}

/// What is known of a place.
#[derive(Debug)]
pub struct Model {
    classes: Classes,
    /// For what follows and the event before it: the density's number.
    places: Vec<u32>,
    densities: Vec<[f32; BINS]>,
    floors: Vec<f32>,
    /// What the first, second, … call of a class adds.
    counts: Vec<[f32; COUNTS]>,
    /// How many calls of a class are nothing's, for a nanosecond.
    lone: Vec<f32>,
    log_widths: [f32; BINS],
    /// Only the delay since the question's begin is known.
    from_start: bool,
    /// How much likelier it is that two calls come in the order of what they follow: a logarithm.
    pub in_order: f32,
}

impl Model {
    fn empty(classes: Classes) -> Model {
        let nexts = classes.questions * (classes.calls + 1);
        Model {
            classes,
            places: vec![u32::MAX; nexts * classes.events()],
            densities: Vec::new(),
            floors: vec![(FLOOR / BINS as f32).ln(); nexts],
            counts: vec![[0.0; COUNTS]; classes.questions * classes.calls],
            lone: vec![0.0; classes.calls],
            log_widths: log_widths(),
            from_start: false,
            in_order: 0.0,
        }
    }

    /// As [`Learner::model`] of samples of delays since questions' begins alone; `rates` are how many
    /// calls of each class a question makes.
    pub fn from_start(learner: &Learner, rates: &[f32], once: bool) -> Model {
        let mut model = learner.model(once);
        model.from_start = true;
        // What fits nothing yet may fit what is learned later.
        model.lone.fill(NEVER);
        for (rate, to) in rates.iter().zip(&mut model.counts) {
            *to = expected(*rate, once);
        }
        model
    }

    /// Whether only delays since questions' begins are known.
    pub fn is_from_start(&self) -> bool {
        self.from_start
    }

    /// How likely something follows an event after a delay: a logarithm, for a nanosecond.
    pub fn follows(&self, question: u16, call: Option<u16>, event: Event, delay_ns: i64) -> f32 {
        let next = self.classes.next(question, call);
        let place = self.places.get(next * self.classes.events() + event.place());
        let bin = bin(delay_ns);
        match place.and_then(|place| self.densities.get(*place as usize)) {
            Some(density) => density.get(bin).copied().unwrap_or(NEVER),
            None => {
                let width = self.log_widths.get(bin).copied().unwrap_or(0.0);
                self.floors.get(next).copied().unwrap_or(NEVER) - width
            }
        }
    }

    /// What the `nth` call of a class adds, from 1.
    pub fn count(&self, question: u16, call: u16, nth: usize) -> f32 {
        let row = self.counts.get(self.classes.pair(question, call));
        let step = row.and_then(|row| row.get(nth.min(COUNTS - 1)));
        step.copied().unwrap_or(NEVER)
    }

    /// How likely a call is nothing's: a logarithm, for a nanosecond.
    pub fn lone(&self, call: u16) -> f32 {
        self.lone.get(usize::from(call)).copied().unwrap_or(NEVER)
    }
}

/// Counts' steps, where only the mean is known: counts are taken to vary little.
fn expected(rate: f32, once: bool) -> [f32; COUNTS] {
    let whole = rate.floor();
    let part = (rate - whole).clamp(0.02, 0.98);
    std::array::from_fn(|n| match n as f32 {
        n if once && n > 1.0 => NEVER,
        n if n <= whole => 2.0,
        n if n == whole + 1.0 => (part / (1.0 - part)).ln(),
        _ => -3.0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_seen_is_likelier() {
        let classes = Classes { questions: 1, calls: 2 };
        let mut learner = Learner::new(classes, 1_000_000_000);
        for n in 0..100 {
            learner.follows(0, Some(0), Event::Start, 50_000 + n * 100, 1.0);
            learner.follows(0, Some(1), Event::End(0), 200_000, 1.0);
            learner.made(0, 0, 1);
            learner.made(0, 1, usize::from(n % 4 == 0));
        }
        let model = learner.model(false);
        let first = |ns| model.follows(0, Some(0), Event::Start, ns);
        assert!(first(55_000) > first(550_000) + 3.0);
        let second = |event| model.follows(0, Some(1), event, 200_000);
        assert!(second(Event::End(0)) > second(Event::Begin(0)) + 3.0);
        assert!(model.count(0, 0, 1) > 2.0 && model.count(0, 0, 2) < -2.0);
        assert!((-2.0..0.0).contains(&model.count(0, 1, 1)));
        assert!(model.lone(0) < first(55_000));
    }
}
