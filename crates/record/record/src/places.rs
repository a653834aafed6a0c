//! Functions' own times, from samples of a thread's PC.
//!
//! To time a call takes longer than many calls do, and disturbs what it times: of short functions no
//! timed call says how long they are untimed. A sample of the PC disturbs nothing but itself, and is as
//! likely to hit a function as the function takes time; that of code without probes is found on the
//! stack, and counts as its caller's, as everywhere.

use std::collections::HashMap;

use fettle_types::FunctionIndex;

use crate::perf::Place;

/// What is at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// Rewritten text of a function.
    Function(FunctionIndex),
    /// What probes call.
    Agent,
    /// Anything else.
    Other,
}

impl Code {
    /// The function whose rewritten text it is.
    pub fn function(self) -> Option<FunctionIndex> {
        match self {
            Code::Function(function) => Some(function),
            Code::Agent | Code::Other => None,
        }
    }
}

/// Samples from which on they are evidence for a thread.
const ENOUGH: u64 = 32;

/// Where one thread was.
#[derive(Debug, Default)]
pub struct Places {
    pc_samples: u64,
    by_function: HashMap<FunctionIndex, u64>,
}

impl Places {
    /// Takes where the thread's PC was; `code_at` says what is at an address.
    pub fn add(&mut self, place: &Place, code_at: impl Fn(u64) -> Code) {
        self.pc_samples += 1;
        let function = match code_at(place.instruction) {
            // What returns there was called in front of it.
            Code::Other => place.stack.iter().find_map(|at| code_at(at.wrapping_sub(1)).function()),
            code => code.function(),
        };
        if let Some(function) = function {
            *self.by_function.entry(function).or_default() += 1;
        }
    }

    /// How much of the thread's time it was in a function; `None` if there were too few samples to say.
    pub fn share_of(&self, function: FunctionIndex) -> Option<f64> {
        let found = self.by_function.get(&function).copied().unwrap_or(0);
        (self.pc_samples >= ENOUGH).then_some(found as f64 / self.pc_samples as f64)
    }
}

#[cfg(test)]
mod tests {
    use fettle_types::Pid;

    use super::*;

    fn code_at(address: u64) -> Code {
        match address {
            0x1000..0x1100 => Code::Agent,
            0x1100..0x1200 => Code::Function(FunctionIndex(1)),
            0x1200..0x1300 => Code::Function(FunctionIndex(2)),
            _ => Code::Other,
        }
    }

    fn place(instruction: u64, stack: &[u64]) -> Place {
        let pid = Pid::own();
        Place { pid, tid: pid.first_thread(), instruction, stack: stack.to_vec() }
    }

    #[test]
    fn code_without_probes_is_its_caller_s() {
        let mut places = Places::default();
        for _ in 0..50 {
            places.add(&place(0x1180, &[0x1210]), code_at);
            // A call at the end of function 1 returns to what follows it.
            places.add(&place(0x7f00, &[3, 0x1080, 0x1200, 0x1250]), code_at);
        }
        // In the agent, and where there is no caller.
        places.add(&place(0x1010, &[0x1210]), code_at);
        assert_eq!(places.share_of(FunctionIndex(1)), Some(100.0 / 101.0));
        places.add(&place(0x7f00, &[]), code_at);
        assert_eq!(
            (places.share_of(FunctionIndex(1)), places.share_of(FunctionIndex(2))),
            (Some(100.0 / 102.0), Some(0.0))
        );
    }

    #[test]
    fn few_looks_tell_nothing() {
        let mut places = Places::default();
        places.add(&place(0x1180, &[]), code_at);
        assert_eq!(places.share_of(FunctionIndex(1)), None);
    }
}
