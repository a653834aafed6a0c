//! A place: where questions come in and calls go out, and each call is one question's.

/// A question or a call.
#[derive(Clone, Copy, Debug, Default)]
pub struct Item {
    /// When it began.
    pub begin: i64,
    /// When it ended.
    pub end: i64,
    /// Its class: what is alike behaves alike.
    pub class: u16,
    /// The thread that worked on it; 0 if it is not known.
    pub thread: u64,
    /// Of two sides of one call: the connection between them; 0 if it is not known.
    pub connection: u64,
}

/// No question.
pub const NONE: u32 = u32::MAX;
/// Clocks of tracing libraries count microseconds, and round begins and durations.
pub const ROUNDED_NS: i64 = 2_000;

/// Questions and calls, each in order of their begins.
#[derive(Clone, Debug, Default)]
pub struct Place {
    /// What was asked.
    pub questions: Vec<Item>,
    /// What was asked for it.
    pub calls: Vec<Item>,
    /// By class of question and of call: whether one can cause the other.
    pub allowed: Vec<bool>,
    /// A question causes one call at most: both are sides of one.
    pub once: bool,
    /// By class of call: it may go on when its question has ended.
    pub outlives: Vec<bool>,
    /// A call may seem to end so much later than it did: what was asked notes its end when it has
    /// answered, and then the one that asked has gone on already.
    pub late_ns: i64,
    /// A question's calls are made by its own thread.
    pub same_thread: bool,
}

impl Place {
    /// A question, which has to exist.
    pub fn question(&self, number: u32) -> Item {
        self.questions.get(number as usize).copied().unwrap_or_default()
    }

    /// A call, which has to exist.
    pub fn call(&self, number: u32) -> Item {
        self.calls.get(number as usize).copied().unwrap_or_default()
    }

    /// How many classes of calls there are.
    pub fn call_classes(&self) -> usize {
        self.outlives.len()
    }

    /// Whether a question can have caused a call.
    pub fn can(&self, question: &Item, call: &Item) -> bool {
        let class = usize::from(call.class);
        let ends = match self.outlives.get(class) {
            Some(true) => call.begin,
            _ => call.end,
        };
        question.begin <= call.begin + ROUNDED_NS
            && question.end + self.late_ns.max(ROUNDED_NS) >= ends
            && (question.connection == call.connection
                || question.connection == 0
                || call.connection == 0)
            && (!self.same_thread || question.thread == call.thread)
            && self.allowed.get(usize::from(question.class) * self.call_classes() + class)
                == Some(&true)
    }
}

/// What is known of one call in the end.
#[derive(Clone, Copy, Debug)]
pub struct Chosen {
    /// Its question, or [`NONE`].
    pub question: u32,
    /// How many there were to choose from.
    pub candidates: u32,
    /// How likely the choice is right.
    pub likely: f32,
}

impl Default for Chosen {
    fn default() -> Chosen {
        Chosen { question: NONE, candidates: 0, likely: 1.0 }
    }
}
