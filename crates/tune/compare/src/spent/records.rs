//! Records of the kernel's events as a burden: how many, and what they take.

/// What a record takes, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Cost {
    /// Of a system call that begins or ends.
    pub(super) of_call_ns: f64,
    /// Of anything else.
    pub(super) other_ns: f64,
}

/// How many records of either kind: at system calls, and others.
pub(super) type Records = [f64; 2];

impl Cost {
    /// What so many records take.
    pub(super) fn of(self, [of_calls, others]: Records) -> f64 {
        of_calls * self.of_call_ns + others * self.other_ns
    }
}
